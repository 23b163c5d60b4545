"""MuJoCo on the GPU: thousands of environments of one model on one device, with mujoco_warp; on the CPU for tests.

State and derived state are mujoco_warp's own float32 memory where possible. The physics is replayed as a graph. As with
the other MuJoCo engines, `refresh` runs the forward computation on the state after the last tick, up to the stage that
the requirements need, which does not alter the physics. With `fresh=False` nothing is recomputed, all derived state is
one tick old, and `lag` is 1. On CUDA the order of contacts, and therefore the last bits of the physics, varies from run
to run unless `deterministic=True`. `MujocoWarpEngine.from_mjw` wraps a live Model and Data of the user instead.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp

from sensorium.compute import Compute, check_envs, graph, keeps_current, resolve_device
from sensorium.engines.envs import positive_int
from sensorium.engines.mujoco.base import OwnedModelEngine, model_time_step, state_size
from sensorium.engines.mujoco.derived import Derived
from sensorium.engines.mujoco.live import WrappedModelEngine
from sensorium.engines.mujoco.spec import reason_of
from sensorium.engines.mujoco_warp.source import WarpSource
from sensorium.engines.mujoco_warp.worlds import mujoco_warp, put_model, sizes
from sensorium.errors import ModelError, shown
from sensorium.spec import SHAPES, Requirement

__all__ = ["LiveMujocoWarpEngine", "MujocoWarpEngine"]


class MujocoWarpEngine(OwnedModelEngine):
    """N parallel environments of one MuJoCo model on one device, stepped by mujoco_warp.

    Args:
        model: path to an MJCF or URDF file, XML text (starts with ``<``), an MjSpec, or a compiled MjModel. Sensors
            cannot add elements to an MjModel.
        num_envs: number of environments.
        device: torch device of physics and derived arrays, ``"cuda"`` or ``"cuda:1"``; ``"cpu"`` is intended for tests,
            because mujoco_warp is slow on it.
        fresh: whether to bring derived state up to the current tick on read; False leaves it one tick old, at no cost.
        keyframe: name or index of the keyframe with the initial state and the state after a reset; None for the model's
            default state.
        nconmax: mean number of contacts per environment for which memory is allocated; None for an estimate from the
            model.
        njmax: number of constraints per environment for which memory is allocated; None for an estimate from the model.
        deterministic: whether to use a fixed order of contacts and sums, at a cost; needs mujoco_warp 4 or newer.
    """

    name = "mujoco_warp"
    _holds_asleep = False
    _own_call = "MujocoWarpEngine.from_mjw(mjm, m, d)"

    @keeps_current
    def __init__(
        self,
        model: Any,
        num_envs: int = 1,
        *,
        device: str = "cuda",
        fresh: bool = True,
        keyframe: str | int | None = None,
        nconmax: int | None = None,
        njmax: int | None = None,
        deterministic: bool = False,
    ) -> None:
        mujoco_warp()
        given = {"nconmax": nconmax, "njmax": njmax}
        self._sizes = {what: None if size is None else positive_int(size, what) for what, size in given.items()}
        self._deterministic = deterministic
        device, num_envs = resolve_device(device), positive_int(num_envs, "num_envs")
        derived = Derived(num_envs, device, Compute(device, num_envs), torch.float32, shows=True)
        super().__init__(model, derived, fresh, keyframe)
        self.capture(True)
        self._ensure()  # reports features that mujoco_warp lacks now instead of at the first step

    @staticmethod
    def from_mjw(mjm: Any, m: Any, d: Any, *, fresh: bool = True) -> LiveMujocoWarpEngine:
        """Wrap a live mujoco_warp Model and Data.

        The caller steps and resets them, and calls `scene.update()` after each step.

        Args:
            mjm: MjModel that `m` was created from, which has the names.
            m: mujoco_warp's Model.
            d: mujoco_warp's Data, `nworld` environments.
            fresh: whether to recompute derived state of the state after the last step, in the caller's Data; False
                reads the state that `mujoco_warp.step` left, one tick old.

        Raises:
            ModelError: an argument has a wrong type, or the sizes do not match.
        """
        return LiveMujocoWarpEngine(mjm, m, d, fresh=fresh)

    # Model ------------------------------------------------------------------------------------------------------------

    def grants_late(self, requirement: Requirement) -> bool:
        """Whether a requirement may be prepared late; not if it needs new worlds, whose memory is elsewhere."""
        return super().grants_late(requirement) and (requirement == SHAPES or not self._lacks(requirement))

    @graph.launching
    def _new_source(self, model: Any) -> WarpSource:
        module, compute = mujoco_warp(), self._derived.compute
        check_envs("MujocoWarpEngine", self.num_envs, 4 * state_size(model), self.device)
        m = self._put(model)
        room = sizes(model, module, **self._sizes)
        try:
            with wp.ScopedDevice(compute.wp_device):
                d = module.make_data(model, nworld=self.num_envs, **room)
        except (RuntimeError, ValueError) as error:  # too much memory, or sizes beyond Warp's integers
            raise ModelError(
                f"{self._label}: {self.num_envs} environments with memory for nconmax={room['nconmax']} contacts and "
                f"njmax={room['njmax']} constraints each cannot be created on {compute.wp_device}: "
                f"{reason_of(error)}. Use fewer environments, or a lower nconmax or njmax."
            ) from error
        return WarpSource(model, m, d, compute, self._health, self._put, self._key)

    def _put(self, model: Any) -> Any:
        """Return a mujoco_warp Model on the device, with the options of this engine."""
        module, m = mujoco_warp(), put_model(model, self._label, self._derived.compute.wp_device)
        m.opt.warn_overflow = type(m.opt.warn_overflow)(0)  # this engine warns instead, once and with names
        if self._deterministic:
            if not hasattr(m.opt, "deterministic"):
                raise ModelError(
                    f"deterministic: mujoco_warp {module.__version__} does not support it; use 4.0 or newer."
                )
            m.opt.deterministic = int(module.DeterminismType.ALL)
        return m

    @property
    def m(self) -> Any:
        """mujoco_warp's Model; writes to it, and replacements of its arrays, take effect."""
        return self._source.m

    @property
    def d(self) -> Any:
        """mujoco_warp's Data, `nworld` environments."""
        return self._source.d

    def expand(self, field: str) -> torch.Tensor:
        """Give each environment separate values in a field of mujoco_warp's Model, and return them.

        Args:
            field: name of the field, e.g. ``"geom_friction"``, ``"site_pos"``, ``"opt.gravity"``; a field that
                mujoco_warp documents with a leading ``*``.

        Returns:
            The values `[env, ...]`, float32 or int32, live and writable. Graphs are captured again automatically.

        Raises:
            UnknownNameError: the Model has no such field.
            ArgumentError: all environments must share the field.
        """
        values: torch.Tensor = self._source.expand(field)
        return values


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
