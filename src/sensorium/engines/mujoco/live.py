"""Live objects as engines, which their owner steps and resets: the common base, and a live MjModel and its MjData."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np
import torch

from sensorium.compute import Compute, keeps_current, resolve_device
from sensorium.engines.mujoco.base import MujocoModelEngine, model_time_step, shared_memory
from sensorium.engines.mujoco.derived import FRICTION, Derived, Plan
from sensorium.engines.mujoco.sleep import AWAKE, disabled
from sensorium.engines.mujoco.source import BAD_STATE, LIMITS, OPTIONS, Health, Source, engine_fault
from sensorium.engines.mujoco.torque import dry_friction
from sensorium.engines.offsets import LiveOffsets
from sensorium.errors import ModelError, ScheduleError, shown
from sensorium.spec import Requirement

_SPEC = int(mujoco.mjtState.mjSTATE_INTEGRATION)
_QUIET = np.zeros(len(BAD_STATE), dtype=np.int32).tobytes()
_FUNCTIONS = {name.lower(): getattr(mujoco, name) for name in dir(mujoco) if name.startswith("mj_")}
"""MuJoCo's functions by their names in lower case, as those of `Plan.functions` without underscores."""


class WrappedModelEngine(MujocoModelEngine):
    """An engine around a compiled model and live data, which their owner steps and resets."""

    owns_time = False
    _data: str
    """Name of the owner's data in messages."""
    _step_call: str
    """Call of the owner that takes a step."""
    _reset_fix: str
    """Call of the owner that replaces the state argument of `reset`, with `{}` for the names."""

    def _wrap(self, source: Source) -> None:
        """Use the owner's simulation."""
        self._source, self._model = source, source.model
        self._derive(frozenset())

    def _apply(self, requirements: frozenset[Requirement]) -> None:
        self._derive(self.prepared | requirements)

    def step(self, ctrl: Any = None, substeps: int = 1) -> None:
        """Raise `ScheduleError`, because the owner steps the simulation.

        Raises:
            ScheduleError: always.
        """
        raise ScheduleError(
            f"this engine wraps your {self._data}, so your loop steps it: call {self._step_call}, then scene.update()."
        )

    def count_ticks(self, ticks: int) -> None:
        """Register `ticks` steps of the owner. With `fresh`, derived state is computed at the next `refresh`.

        Raises:
            ScheduleError: several ticks were given with `fresh=False` and a requirement that reads joint positions, or
                the time step was edited. On CUDA the host does not wait for the latter check: a later update raises it.
        """
        if self._previous and ticks > 1:
            name = self._step_call.partition("(")[0].rpartition(".")[2]
            raise ScheduleError(
                f"{ticks} ticks at once: with fresh=False joint positions and velocities are kept from one tick to the "
                f"next, so call scene.update() after each {name}, or use fresh=True."
            )
        self._check_time_steps()
        super().count_ticks(ticks)
        if ticks:
            for name, newest in self._newest.items():
                self._previous[name].copy_(newest)
            self._note_state(self._newest)
            self._note_ticks()
            if not self.fresh:
                self.refresh()  # before the owner's next forward computation overwrites it with another instant
            self._source.check()

    def reset(self, env_ids: Any, state: Mapping[str, Any] | None = None) -> None:
        """Read environments again after their owner reset them; no state is written.

        Args:
            env_ids: None for all, integers, or a bool mask `[env]`.
            state: must be empty: the owner writes the data.

        Raises:
            ScheduleError: `state` is not empty.
            ModelError: described shapes are no longer the same in all environments. On CUDA the host does not wait for
                this check: a later update or reset raises it.
        """
        if state:
            raise ScheduleError(
                f"this engine wraps your {self._data} and cannot write its state: "
                f"{self._reset_fix.format(', '.join(state))}, then call scene.reset(env_ids)."
            )
        ids = self._selected(env_ids)
        self._source.forget(ids)
        if ids is None or len(ids):
            self._refresh_reset(ids)
        self._source.check_shapes()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`, after the owner restored the physics."""
        super().load_state(state)
        self._note_state(self._newest)


class LiveMujocoEngine(WrappedModelEngine):
    """Live MjData of one MjModel, one for each environment; created by `MujocoEngine.from_mj`.

    The state is float64: with one environment the owner's arrays themselves, with several a copy. Gravity and magnetic
    flux are always a copy (write `model.opt`).

    The owner calls mj_step and then `scene.update()`. Edits by the owner (state, model, gravity) take effect at the
    next `scene.update()`. The engine writes nothing of the owner's: with `fresh=True` the state is copied into a
    private MjData, where MuJoCo's forward computation runs without the owner's control callback.

    Args:
        model: compiled MjModel.
        data: one MjData, or a sequence of them.
        device: torch device of the derived arrays.
        fresh: whether to recompute derived state after each step; False reads the state that mj_step left (`lag` 1).

    Raises:
        ModelError: an argument has a wrong type, an MjData belongs to another model, or `fresh=False` with the RK4
            integrator.
    """

    _data, _step_call = "MjData", "mujoco.mj_step(model, data)"
    _reset_fix = "set {} in your data (mujoco.mj_resetData(model, data); data.qpos[:] = ...)"
    _reads_friction = True

    @keeps_current
    def __init__(self, model: Any, data: Any, *, device: str = "cpu", fresh: bool = True) -> None:
        if not isinstance(model, mujoco.MjModel):
            raise ModelError(f"from_mj: got {shown(model)} as the model, expected a compiled mujoco.MjModel.")
        datas = list(data) if isinstance(data, list | tuple) else [data]
        for item in datas:
            if not isinstance(item, mujoco.MjData):
                raise ModelError(f"from_mj: got {shown(item)}, expected a mujoco.MjData or a sequence of them.")
            if (item.qpos.size, item.ctrl.size, len(item.xpos)) != (model.nq, model.nu, model.nbody):
                raise ModelError(
                    "from_mj: the sizes of an MjData differ from the model: create it with mujoco.MjData(model)."
                )
        if not datas or len({id(item) for item in datas}) != len(datas):
            raise ModelError("from_mj: expected one distinct mujoco.MjData for each environment.")
        super().__init__(Derived(len(datas), resolve_device(device), Compute("cpu", len(datas))), fresh)
        self._check_unfresh(model.opt)
        self.dt = model_time_step(model.opt.timestep, "from_mj")
        self._wrap(DataSource(model, datas, self._health))

    @property
    def datas(self) -> tuple[Any, ...]:
        """MjData of the owner, one for each environment."""
        return tuple(self._source.datas)


class DataSource(Source):
    """Live MjData of one MjModel, which are only read.

    Args:
        model: the MjModel.
        datas: MjData of the owner, one for each environment.
        health: problems that were reported.

    Attributes:
        datas: see above.
    """

    is_weightless = False  # the owner may change gravity at any time, so `compute` checks it

    def __init__(self, model: Any, datas: Sequence[Any], health: Health) -> None:
        super().__init__(model, len(datas))
        self.datas, self._health = datas, health
        self._scratch = self._new_scratch()
        self._row = np.empty(mujoco.mj_stateSize(model, _SPEC))
        self._fields: dict[str, np.ndarray] = {}
        self._placed: dict[str, np.ndarray] = {}  # fields with the poses of mounts on their bodies
        self._seen: list[bytes] = []  # their last values
        self._bad = [data.warning.number[BAD_STATE[0] : BAD_STATE[-1] + 1] for data in datas]  # live views
        self._counted, self._times = self._warned()

    # Memory ----------------------------------------------------------------------------------------------------------

    def bind(self, plan: Plan) -> None:
        """Use a plan."""
        super().bind(plan)
        self._functions = [_FUNCTIONS[f"mj_{name.replace('_', '')}"] for name in plan.functions]

    def field(self, name: str) -> np.ndarray:
        """Return an array that `compute` fills, or the owner's own values where all envs share them."""
        if name in self.plan.model_fields and not name.startswith("opt."):
            return np.asarray(getattr(self.model, name))[None]
        owner, field = (self.options, name[4:]) if name.startswith("opt.") else (self._scratch, name)
        like = self._scratch.qvel if name == FRICTION else getattr(owner, field)
        return self._fields.setdefault(name, np.zeros((self.num_envs, *like.shape), like.dtype))

    def state(self, name: str) -> torch.Tensor:
        """Return the owner's memory, or a copy of it with several environments."""
        if name.startswith("opt."):
            values = getattr(self.options, name.removeprefix("opt."))
            return torch.tensor(values, device="cpu").repeat(self.num_envs, 1)
        if self.num_envs == 1:
            return torch.from_numpy(getattr(self.datas[0], name))[None]
        return torch.from_numpy(np.stack([getattr(data, name) for data in self.datas]))

    def edited_time_step(self, dt: float) -> tuple[float, str] | None:
        """Return the current time step, s, if it is not `dt`, with its location for messages."""
        step = self.model_options.timestep
        return None if step == dt else (step, "the wrapped MjModel")

    # Mounts ----------------------------------------------------------------------------------------------------------

    def place(self, offsets: LiveOffsets) -> None:
        """Register the memory of the fields with the poses of mounts on their bodies."""
        self._placed, self._seen = {name: getattr(self.model, name)[None] for name in offsets.fields}, []
        offsets.bind(self.elements.row, {name: shared_memory(values) for name, values in self._placed.items()})

    def follow(self, offsets: LiveOffsets, ids: torch.Tensor | None) -> None:
        """Update the mounts of all envs or some from their poses on their bodies, if these changed."""
        seen = [values.tobytes() for values in self._placed.values()]
        if seen != self._seen:
            offsets.follow(ids)
            self._seen = seen if ids is None else []

    # Bad states ------------------------------------------------------------------------------------------------------

    @property
    def diverged(self) -> torch.Tensor:
        """Bool `[env]`: environments whose state became NaN, infinite or huge since their last reset."""
        return torch.from_numpy(self._health.diverged.copy())

    def forget(self, ids: torch.Tensor | None) -> None:
        """Discard records of environments from before their owner reset them."""
        rows = slice(None) if ids is None else ids.numpy()
        self._health.diverged[rows] = False
        counts, times = self._warned()
        self._counted[rows], self._times[rows] = counts[rows], times[rows]

    def _newly_bad(self) -> np.ndarray | None:
        """Return where MuJoCo found a bad state since the last call; any reset restarts the counts.

        None if none was ever found, which is fastest.
        """
        if all(bad.tobytes() == _QUIET for bad in self._bad):
            self._counted[...] = 0
            return None
        counts, times = self._warned()
        again = (counts > 0) & (times < self._times)[:, None]
        bad: np.ndarray = np.any((counts > self._counted) | again, axis=1)
        self._counted, self._times = counts, times
        return bad

    def _warned(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of bad states `[env, warning]`, in the order of `BAD_STATE`, and the times `[env]`, s."""
        return np.array(self._bad), np.array([data.time for data in self.datas])

    # Computations ----------------------------------------------------------------------------------------------------

    def compute(self, ids: torch.Tensor | None, *, is_current: bool, is_edited: bool) -> None:
        """Copy the fields of the plan, from the live data or computed from its state in private data."""
        if ids is None and (bad := self._newly_bad()) is not None:
            self._health.report_diverged(bad, self.model)
        option, plan = self.options, self.plan
        weightless = disabled(option, "GRAVITY")
        full = np.zeros((self.num_envs, len(LIMITS)), dtype=np.int64)
        with _without_callbacks():
            for env in range(self.num_envs) if ids is None else ids.tolist():
                for name in self._fields.keys() & OPTIONS:
                    is_off = weightless and name == "opt.gravity"
                    self._fields[name][env] = 0.0 if is_off else getattr(option, name.removeprefix("opt."))
                data = self._forwarded(env) if is_current and plan.fields else self.datas[env]
                for name in plan.fields:
                    self._fields[name][env] = getattr(data, name)
                if FRICTION in self._fields:
                    self._fields[FRICTION][env] = dry_friction(self.model, data)
                numbers = data.warning.number
                full[env] = [numbers[limit] for limit in LIMITS]
        self._health.report_limits(full, self.model)

    def _forwarded(self, env: int) -> Any:
        """Compute derived state of one environment in private data.

        Raises:
            ModelError: MuJoCo failed, e.g. because its memory was too small.
        """
        model, data = self.model, self._scratch
        mujoco.mj_getState(model, self.datas[env], self._row, _SPEC)
        mujoco.mj_setState(model, data, self._row, _SPEC)
        try:
            for function in self._functions:
                function(model, data)
        except mujoco.FatalError as error:
            self._scratch = self._new_scratch()  # data is unusable after an error
            raise ModelError(engine_fault(str(error), f"env {env}", "Your MjData is unchanged.")) from error
        return data

    def _new_scratch(self) -> Any:
        data = mujoco.MjData(self.model)
        data.tree_asleep[:] = AWAKE  # including trees that start asleep: only mj_step puts bodies to sleep
        return data


@contextmanager
def _without_callbacks() -> Iterator[None]:
    """Disable control and sensor callbacks, which may count their calls, within the block."""
    control, sensor = mujoco.get_mjcb_control(), mujoco.get_mjcb_sensor()
    if control is None and sensor is None:
        yield
        return
    mujoco.set_mjcb_control(None)
    mujoco.set_mjcb_sensor(None)
    try:
        yield
    finally:
        mujoco.set_mjcb_control(control)
        mujoco.set_mjcb_sensor(sensor)
