"""MuJoCo on the GPU: thousands of environments of one model on one device, with mujoco_warp; on the CPU for tests.

State and derived state are mujoco_warp's own float32 memory where possible. The physics is replayed as a graph. As with
the other MuJoCo engines, `refresh` runs the forward computation on the state after the last tick, up to the stage that
the requirements need, which does not alter the physics. With `fresh=False` nothing is recomputed, all derived state is
one tick old, and `lag` is 1. On CUDA the order of contacts, and therefore the last bits of the physics, varies from run
to run unless `deterministic=True`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import warp as wp

from sensorium.compute import check_envs, graph, keeps_current, resolve_device
from sensorium.engines.envs import mark, positive_int, put
from sensorium.engines.mujoco.base import model_time_step
from sensorium.engines.mujoco.owned import OwnedModelEngine, state_size
from sensorium.engines.mujoco.spec import reason_of
from sensorium.engines.mujoco_warp.base import WarpModelEngine
from sensorium.engines.mujoco_warp.live import LiveMujocoWarpEngine
from sensorium.engines.mujoco_warp.worlds import Worlds, default_state, mujoco_warp, put_model, sizes
from sensorium.errors import ModelError
from sensorium.spec import SHAPES, Requirement

__all__ = ["LiveMujocoWarpEngine", "MujocoWarpEngine"]


class MujocoWarpEngine(WarpModelEngine, OwnedModelEngine):
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
        super().__init__(model, positive_int(num_envs, "num_envs"), resolve_device(device), fresh, None, keyframe)
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

    def _install(self, model: Any, prepared: frozenset[Requirement]) -> None:
        """Create the worlds of a model; the state of earlier ones, before the first tick, is carried over."""
        worlds = self._made(model)
        start = {} if self._key < 0 else default_state(model, self._key)
        start_on_device = {name: torch.from_numpy(values).to(self.device) for name, values in start.items()}
        _write(worlds.states(), start_on_device, None)
        for option in ("gravity", "magnetic"):
            worlds.expand(f"opt.{option}")
        if self._is_installed:
            old = self._worlds
            pristine = put_model(old.mjm, self._label, self._derived.compute.wp_device)
            self._set_options(pristine)
            worlds.take_over(old, pristine, default_state(old.mjm, self._key))
        self._attach(worlds)
        self._is_installed, self._model, self._start = True, model, start_on_device
        self._reset_mask = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        if self._offsets:
            self._bind_offsets()
        self.dt = model_time_step(model.opt.timestep, self._label)
        self._derive(prepared)

    @graph.launching
    def _made(self, model: Any) -> Worlds:
        """Return new worlds of a compiled model."""
        module, device = mujoco_warp(), self._derived.compute.wp_device
        check_envs("MujocoWarpEngine", self.num_envs, 4 * state_size(model), self.device)
        m = put_model(model, self._label, device)
        self._set_options(m)
        room = sizes(model, module, **self._sizes)
        try:
            with wp.ScopedDevice(device):
                d = module.make_data(model, nworld=self.num_envs, **room)
        except (RuntimeError, ValueError) as error:  # too much memory, or sizes beyond Warp's integers
            raise ModelError(
                f"{self._label}: {self.num_envs} environments with memory for nconmax={room['nconmax']} contacts and "
                f"njmax={room['njmax']} constraints each cannot be created on {device}: {reason_of(error)}. Use fewer "
                "environments, or a lower nconmax or njmax."
            ) from error
        return Worlds(model, m, d, self._derived.compute)

    def _set_options(self, m: Any) -> None:
        module = mujoco_warp()
        m.opt.warn_overflow = type(m.opt.warn_overflow)(0)  # this engine warns instead, once and with names
        if self._deterministic:
            if not hasattr(m.opt, "deterministic"):
                raise ModelError(
                    f"deterministic: mujoco_warp {module.__version__} does not support it; use 4.0 or newer."
                )
            m.opt.deterministic = int(module.DeterminismType.ALL)

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
        self._ensure()
        return self._worlds.expand(field)

    # State ------------------------------------------------------------------------------------------------------------

    def _check_time_steps(self) -> None:
        self._check_time_step(self.model.opt.timestep, "engine.model")
        super()._check_time_steps()

    def _advance(self, ticks: int) -> None:
        self._worlds.step(ticks)

    def _put_back(self, ids: torch.Tensor | None) -> None:
        mark(self._reset_mask, ids)
        self._worlds.reset(self._reset_mask)
        _write(self._worlds.states(), self._start, self._reset_mask)

    def _rows(self) -> dict[str, torch.Tensor]:
        return self._worlds.states()

    def _own_options(self) -> dict[str, torch.Tensor]:
        return {name: self._worlds.of_each(name) for name in ("opt.gravity", "opt.magnetic")}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`, in an engine with the same model and number of environments.

        Raises:
            ArgumentError: the state belongs to another model or number of environments.
        """
        for name in state["options"]:
            self._worlds.expand(name)
        super().load_state(state)


def _write(targets: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor], mask: torch.Tensor | None) -> None:
    """Write values that all environments share, into all of them or those of a mask."""
    for name, target in targets.items():
        if name in values:
            put(target, values[name].expand_as(target), mask)
