"""A live mujoco_warp Model and Data of the user as an engine: stepped and reset by their owner."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp

from sensorium.compute import Compute, keeps_current
from sensorium.engines.mujoco.base import model_time_step
from sensorium.engines.mujoco.derived import Derived
from sensorium.engines.mujoco.live import WrappedModelEngine
from sensorium.engines.mujoco_warp.source import WarpSource
from sensorium.engines.mujoco_warp.worlds import mujoco_warp
from sensorium.errors import ModelError, shown


class LiveMujocoWarpEngine(WrappedModelEngine):
    """A live mujoco_warp Model and Data; created by `MujocoWarpEngine.from_mjw`.

    The owner calls mujoco_warp.step and then `scene.update()`. Edits by the owner (state, model, gravity), and arrays
    of the Model that the owner replaced, take effect at the next `scene.update()`. With `fresh=True` mujoco_warp's
    forward computation runs in the owner's Data, up to the stage that sensors need. It writes derived fields and never
    the state, so the next step is unaffected.

    Args:
        mjm: MjModel that `m` was created from.
        m: mujoco_warp's Model.
        d: mujoco_warp's Data.
        fresh: whether to compute derived state after each step; False reads the state that the step left (`lag` 1).

    Raises:
        ModelError: an argument has a wrong type, sizes do not match, time steps differ between environments, or
            `fresh=False` with the RK4 integrator or with bodies that may sleep.
    """

    name = "mujoco_warp"
    varies_late = True
    _holds_asleep = False
    _data, _step_call = "Data", "mujoco_warp.step(m, d)"
    _reset_fix = "write {} yourself (mujoco_warp.reset_data(m, d, reset=mask))"

    @keeps_current
    def __init__(self, mjm: Any, m: Any, d: Any, *, fresh: bool = True) -> None:
        module = mujoco_warp()
        for what, value, kind in (("mjm", mjm, mujoco.MjModel), ("m", m, module.Model), ("d", d, module.Data)):
            if not isinstance(value, kind):
                expected = f"a {kind.__module__.split('.')[0]}.{kind.__name__}"
                raise ModelError(f"from_mjw: got {shown(value)} as {what}, expected {expected}.")
        counts = (int(mjm.nq), int(mjm.nv), int(mjm.nu), int(mjm.nbody), int(mjm.nsensordata))
        given = (int(m.nq), int(m.nv), int(m.nu), int(m.nbody), int(m.nsensordata))
        held = (d.qpos.shape[1], d.qvel.shape[1], d.ctrl.shape[1], d.xpos.shape[1], d.sensordata.shape[1])
        for what, other in (("m", given), ("d", held)):
            if other != counts:
                raise ModelError(
                    f"from_mjw: {what} has (nq, nv, nu, nbody, nsensordata) = {other}, mjm has {counts}: all three "
                    "must be of one model (m = mujoco_warp.put_model(mjm), d = mujoco_warp.make_data(mjm, nworld=...))."
                )
        if m.opt.gravity.device != d.qpos.device:
            raise ModelError(f"from_mjw: m is on {m.opt.gravity.device}, d on {d.qpos.device}: put both on one device.")
        steps = np.unique(m.opt.timestep.numpy())
        if len(steps) > 1:
            raise ModelError(f"from_mjw: environments have different time steps ({steps[:4]} s): set all to the same.")
        device, num_envs = str(wp.device_to_torch(d.qpos.device)), int(d.nworld)
        # without `fresh` the owner's forward() between two updates would mix two instants in views
        super().__init__(Derived(num_envs, device, Compute(device, num_envs), torch.float32, shows=fresh), fresh)
        self._check_unfresh(m.opt)
        self.dt = float(mjm.opt.timestep)
        if np.float32(self.dt) != steps[0]:
            self.dt = float(str(steps[0]))  # edited by the owner: the shortest decimal of the float32
        model_time_step(self.dt, "from_mjw")
        self.m, self.d = m, d
        self._wrap(WarpSource(mjm, m, d, self._derived.compute, self._health))
        self.capture(True)

    @property
    def _computes_wrenches(self) -> bool:
        return self.fresh or getattr(self.m.opt, "run_rne_postconstraint", False)
