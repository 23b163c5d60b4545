"""MuJoCo on the GPU: thousands of environments of one model on one device, with mujoco_warp; on the CPU for tests.

State and derived state are mujoco_warp's own float32 memory where that is possible. The physics is replayed as a graph.
As with the other MuJoCo engines, `refresh` runs the forward computation up to the stage that the requirements need, on
the state after the last tick, which does not alter the physics; with `fresh=False` nothing is recomputed, all derived
state is one tick old, and `lag` is 1. On CUDA the order of contacts, and with it the last bits of the physics, varies
from run to run unless `deterministic=True`.
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
        model: path to an MJCF or URDF file, XML text (starts with ``<``), an MjSpec, or a compiled MjModel. An MjModel
            is sealed: sensors can add nothing to it.
        num_envs: number of environments.
        device: torch device of physics and derived arrays, ``"cuda"``, ``"cuda:1"``; ``"cpu"`` is there for tests, for
            mujoco_warp is slow on it.
        fresh: bring derived state up to the current tick when it is read; False leaves it one tick behind, for free.
        keyframe: name or index of the keyframe that environments start from and are reset to; None for the model's
            default state.
        nconmax: contacts that each environment has memory for, on average; None for a guess from the model.
        njmax: constraints that each environment has memory for; None for a guess from the model.
        deterministic: make contacts and sums come in one order, at a cost; needs mujoco_warp 4 or newer.

    Raises:
        MissingDependencyError: mujoco_warp is not installed, or does not match the installed MuJoCo.
        ModelError: the file is missing or broken, the model has something that mujoco_warp lacks, or there is no memory
            for as many environments; `fresh=False` with the RK4 integrator or with bodies that may sleep.
        UnknownNameError: no such keyframe.
        ArgumentError: no such device.
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
        self._ensure()  # what mujoco_warp lacks is said now, not at the first step

    @staticmethod
    def from_mjw(mjm: Any, m: Any, d: Any, *, fresh: bool = True) -> LiveMujocoWarpEngine:
        """Wrap a live mujoco_warp Model and Data.

        You step and reset them; then call `scene.update()` after each step.

        Args:
            mjm: the MjModel that `m` was made from: it has the names.
            m: mujoco_warp's Model.
            d: mujoco_warp's Data, `nworld` environments.
            fresh: compute derived state anew for the state after the last step, in your Data; False reads it as
                `mujoco_warp.step` left it, one tick behind.

        Raises:
            ModelError: a wrong type, or sizes that do not belong together.
        """
        return LiveMujocoWarpEngine(mjm, m, d, fresh=fresh)

    # Model ------------------------------------------------------------------------------------------------------------

    def grants_late(self, requirement: Requirement) -> bool:
        """Whether a requirement may be prepared late; not where it needs other worlds, whose memory is elsewhere."""
        return super().grants_late(requirement) and (requirement == SHAPES or not self._lacks(requirement))

    def _install(self, model: Any, prepared: frozenset[Requirement]) -> None:
        """Make the worlds of a model; where there were some before the first tick, carry their state over."""
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
        except (RuntimeError, ValueError) as error:  # too much memory, or more than Warp can count
            raise ModelError(
                f"{self._label}: {self.num_envs} environments with room for nconmax={room['nconmax']} contacts and "
                f"njmax={room['njmax']} constraints each cannot be made on {device}: {reason_of(error)}. Give fewer "
                "environments, or a lower nconmax or njmax."
            ) from error
        return Worlds(model, m, d, self._derived.compute)

    def _set_options(self, m: Any) -> None:
        module = mujoco_warp()
        m.opt.warn_overflow = type(m.opt.warn_overflow)(0)  # this engine says it, once and by name
        if self._deterministic:
            if not hasattr(m.opt, "deterministic"):
                raise ModelError(f"deterministic: mujoco_warp {module.__version__} cannot; it needs 4.0 or newer.")
            m.opt.deterministic = int(module.DeterminismType.ALL)

    def expand(self, field: str) -> torch.Tensor:
        """Give each environment values of its own in a field of mujoco_warp's Model, and return them.

        Args:
            field: name of the field, e.g. ``"geom_friction"``, ``"site_pos"``, ``"opt.gravity"``; one that mujoco_warp
                documents with a leading ``*``.

        Returns:
            The values `[env, ...]`, float32 or int32, live and writable. Graphs are captured anew by themselves.

        Raises:
            UnknownNameError: the Model has no such field.
            ArgumentError: all environments must share it.
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
        """Restore what `state` returned, in an engine of the same model and number of environments.

        Raises:
            ArgumentError: the state is of another model or number of environments.
        """
        for name in state["options"]:
            self._worlds.expand(name)
        super().load_state(state)


def _write(targets: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor], mask: torch.Tensor | None) -> None:
    """Write values that all environments get, into all of them or those of a mask."""
    for name, target in targets.items():
        if name in values:
            put(target, values[name].expand_as(target), mask)
