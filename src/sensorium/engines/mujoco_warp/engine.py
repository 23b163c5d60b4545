"""MuJoCo on the GPU: thousands of environments of one model on one device, with mujoco_warp; on the CPU for tests.

State and derived state are mujoco_warp's own float32 memory where possible. The physics is replayed as a graph. As with
the other MuJoCo engines, `refresh` runs the forward computation on the state after the last tick, up to the stage that
the requirements need, which does not alter the physics. With `fresh=False` nothing is recomputed, all derived state is
one tick old, and `lag` is 1. On CUDA the order of contacts, and therefore the last bits of the physics, varies from run
to run unless `deterministic=True`.
"""

from __future__ import annotations

from typing import Any

import torch
import warp as wp

from sensorium.compute import Compute, check_envs, graph, keeps_current, resolve_device
from sensorium.engines.envs import positive_int
from sensorium.engines.mujoco.base import OwnedModelEngine, state_size
from sensorium.engines.mujoco.derived import Derived
from sensorium.engines.mujoco.spec import reason_of
from sensorium.engines.mujoco_warp.live import LiveMujocoWarpEngine
from sensorium.engines.mujoco_warp.source import WarpSource
from sensorium.engines.mujoco_warp.worlds import mujoco_warp, put_model, sizes
from sensorium.errors import ModelError
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
