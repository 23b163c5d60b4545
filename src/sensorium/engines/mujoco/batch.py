"""The environments of `MujocoEngine`: a `mujoco.batch.Batch` that the engine steps and resets, one tick ahead.

mj_step computes the derived state of the state before the step and then integrates it. To observe the current state,
the batch takes the next step at once, keeps the result, and restores the current state. Derived state is then that of
mj_forward, bit for bit, and the next tick only copies the kept result. If inputs of an environment changed in between,
e.g. its control, its state or a field of its model, the kept result is discarded and mj_step runs on the new inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
import torch
from mujoco.batch import MODEL_FIELDS, Batch, SimulationError

from sensorium.engines.mujoco.base import STATE_FIELDS, shared_memory
from sensorium.engines.mujoco.source import BAD_STATE, LIMITS, OPTIONS, Health, OwnedSource, engine_fault
from sensorium.engines.offsets import LiveOffsets
from sensorium.errors import ModelError, SensoriumWarning, listed

_BAD_CTRL = int(mujoco.mjtWarning.mjWARN_BADCTRL)
_NONE = int(mujoco.mjtStage.mjSTAGE_NONE)

_CALLBACKS = [getattr(mujoco, name) for name in dir(mujoco) if name.startswith("get_mjcb_")]
LOOKAHEAD_FROM = 8
"""Minimum number of environments that look ahead.

Its fixed cost per tick is that of stepping a quadruped once. With fewer environments, continuing from a forward
computation in a persistent batch costs as little.
"""
_INPUTS, _OUTPUTS = (frozenset(getattr(mujoco.MjModel, f"_setconst_{what}", ())) for what in ("inputs", "outputs"))
"""Fields of the model that mj_setConst reads and writes; empty if this version of MuJoCo does not list them."""
_UNSAVED = int(mujoco.mjtEnableBit.mjENBL_SLEEP) | int(getattr(mujoco.mjtEnableBit, "mjENBL_IPC", 0))


class LookaheadBatch(Batch):  # type: ignore[misc]  # MuJoCo has no types
    """A batch with `advance` and `observe`, whose results are those of `step` and `forward`.

    `observe` looks ahead unless the result would probably be discarded: the inputs of most environments changed after
    as many ticks before. It never looks ahead

    - with physics callbacks, whose inputs are unknown,
    - with the RK4 integrator, whose derived state after a step belongs to no tick,
    - where MuJoCo keeps state outside of the row, which no call of a batch restores: for sleeping bodies, in the
      contact mode IPC, and for plugins in a persistent batch.
    """

    def __init__(self, model: Any, nsim: int, nthread: int, persistent: bool) -> None:
        super().__init__(model, nsim, nthread, persistent)
        self._has_constants = False  # whether `set_const` may have given further fields values per environment
        self._may_look = self._has_lookahead([model])
        self._seen, self._next = self.state.copy(), np.empty_like(self.state)  # observed rows, and those a tick later
        self._inputs = {"": (_bits(self.state), _bits(self._seen))}  # rows and fields of the model, and as observed
        self._is_observed = False
        self._is_known = np.zeros(nsim, dtype=bool)  # envs whose row in `_next` is the result of `mj_step` on `_seen`
        self._count = 0  # number of those
        state = mujoco.mjtState
        first, last = int(state.mjSTATE_CTRL), int(state.mjSTATE_USERDATA)
        is_last = mujoco.mj_stateSize(model, 2 * last - 1) == mujoco.mj_stateSize(model, state.mjSTATE_INTEGRATION)
        # columns that a step changes: all before the controls, where plugins keep no state
        self._moving = slice(mujoco.mj_stateSize(model, first - 1) if is_last else None)
        self._kept = self._moving  # columns of `_next` that hold the result; the others are as in `_seen`
        self._held = self._interval = 0  # ticks since the inputs of most envs changed, and between the last two changes

    if not hasattr(Batch, "expanded"):  # MuJoCo 3.17

        @property
        def models(self) -> Any:
            """The models that were set by `set_models`; None for the batch's model."""
            return self._models

    def expanded(self, name: str) -> np.ndarray | None:
        """Return the values per environment of a field of the model; None if it is shared."""
        if name in MODEL_FIELDS and name not in self._inputs and not self._has_constants:
            return None  # without a call of MuJoCo: engines ask in each tick
        if hasattr(Batch, "expanded"):
            values: np.ndarray | None = super().expanded(name)
            return values
        return None if self._b.expanded(name) is None else self.expand(name)  # MuJoCo 3.17

    def observe(self, stage: int) -> None:
        """Compute derived state of the current state, up to `stage` or further.

        Raises:
            SimulationError: MuJoCo failed in some environments.
        """
        if not self._may_look:
            self.forward(stage=stage)
            return
        self._is_observed = True
        for values, seen in self._inputs.values():
            seen[...] = values
        self._count = 0
        if self._held != self._interval and not _has_callbacks():
            self._count = self._look_ahead()
        if not self._count:
            self.forward(stage=stage)
        elif self._count < self.nsim:
            self.forward(~self._is_known, stage)

    def _look_ahead(self) -> int:
        """Take the next step, keep its result, and restore the state; return the number of known envs."""
        known, self._kept = self._is_known, slice(None)
        try:
            try:
                self.step()
                known[:] = True
            except SimulationError:
                np.equal(self.status, 0, out=known)
            if np.count_nonzero(self.warning):  # MuJoCo replaces a bad state before it computes derived state
                known &= ~self.warning[:, BAD_STATE, 1].any(axis=1)
                self.warning[:, BAD_STATE] = 0
            else:
                self._kept = self._moving
            self._next[:, self._kept] = self.state[:, self._kept]
        finally:
            self.state[:, self._kept] = self._seen[:, self._kept]
        return int(np.count_nonzero(known))

    def advance(self, nstep: int) -> None:
        """Advance all environments, as `step`.

        Raises:
            SimulationError: MuJoCo failed in some environments.
        """
        count = 0
        if self._is_observed:
            self._is_observed = False
            count = self._unchanged(0 if _has_callbacks() else self._count)
        self._held += nstep
        if not count:
            self.step(nstep=nstep)
            return
        is_all, known, columns = count == self.nsim, self._is_known, self._kept
        rows = slice(None) if is_all else known
        self.state[rows, columns] = self._next[rows, columns]
        try:
            if not is_all:
                self.step(~known, nstep)
        finally:
            if nstep > 1:
                self.step(known, nstep - 1)

    def _unchanged(self, count: int) -> int:
        """Return the number of known envs whose inputs are as observed, and note when those of most changed."""
        is_same: Any = True
        for values, seen in self._inputs.values():
            if values.tobytes() != seen.tobytes():
                is_same = is_same & (values == seen).all(axis=1)
        if is_same is True:
            return count
        self._is_known &= is_same
        if 2 * np.count_nonzero(is_same) < self.nsim:
            self._interval, self._held = self._held, 0
        return int(np.count_nonzero(self._is_known)) if count else 0

    def expand(self, name: str) -> np.ndarray:
        """Return a field of the model per environment, as `Batch.expand`; `advance` follows edits."""
        values: np.ndarray = super().expand(name)
        if name not in self._inputs:
            self._inputs[name] = _bits(values), _bits(values).copy()
            self._may_look &= name not in ("opt.integrator", "opt.enableflags")
        return values

    def set_const(self, ids: Any = None) -> None:
        """Compute constants of the model, as `Batch.set_const`."""
        self._count = 0
        self._has_constants = True
        super().set_const(ids)

    def is_derived(self, field: str) -> bool:
        """Whether MuJoCo computes a field of the model from other fields alone."""
        return field in _OUTPUTS and field not in _INPUTS

    def update_constants(self, fields: Iterable[str], ids: Any = None) -> None:
        """Compute the constants that MuJoCo derives from fields of the model, after these were written."""
        if any(field.startswith("opt.") or field in _INPUTS or not _INPUTS for field in fields):
            self.set_const(ids)

    def set_models(self, models: Any) -> None:
        """Set the models of the environments, as `Batch.set_models`."""
        self._count = 0
        super().set_models(models)
        each = models if isinstance(models, list | tuple) else [models or self.model]
        self._may_look = self._has_lookahead(each)

    def _has_lookahead(self, models: Sequence[Any]) -> bool:
        """Whether rows are the whole state of environments and mj_step leaves derived state of one instant."""
        rk4 = int(mujoco.mjtIntegrator.mjINT_RK4)
        return self.nsim >= LOOKAHEAD_FROM and not any(
            int(model.opt.integrator) == rk4
            or (self.persistent and (int(model.opt.enableflags) & _UNSAVED or model.nplugin))
            for model in models
        )


class BatchSource(OwnedSource):
    """Environments of one model that are stepped on all cores; MuJoCo's memory in float64.

    Args:
        model: the MjModel.
        num_envs: number of environments.
        threads: number of CPU threads.
        persistent: whether each environment has a separate MjData.
        key: index of the keyframe with the initial state, -1 for the model's default state.
        health: problems that were reported.

    Attributes:
        batch: the `mujoco.batch.Batch`.
    """

    def __init__(self, model: Any, num_envs: int, threads: int, persistent: bool, key: int, health: Health) -> None:
        super().__init__(model, num_envs)
        self.batch = LookaheadBatch(model, num_envs, threads, persistent)
        self.batch.reset(keyframe=key, stage=_NONE)
        self._key, self._health = key, health
        self._bad_ctrl = np.zeros(num_envs, dtype=bool)
        self._views: dict[str, torch.Tensor] = {}
        self._built: dict[str, np.ndarray] = {}  # fields that shapes were made from
        self._shared: dict[str, np.ndarray] = {}  # fields that mounts depend on and that no env has of its own
        self._placed_ids: list[int] = []  # of models that were set, when the mounts were placed
        self._moves = False

    def take_over(self, old: BatchSource) -> None:
        """Replace another batch, of the same model before sensors added to it, and keep the values written there."""
        changed = [f for f in STATE_FIELDS if old.batch.bind(f).shape != self.batch.bind(f).shape]
        if changed:
            start = Batch(old.model, 1)
            start.reset(keyframe=self._key, stage=_NONE)
            if any(
                not np.array_equal(each := old.batch.bind(f), np.broadcast_to(start.bind(f), each.shape))
                for f in STATE_FIELDS
            ):
                raise ModelError(
                    f"a sensor's MODEL_ELEMENTS changed the size of {', '.join(changed)}, which was written before the "
                    "scene was created: write the state after Scene(...)."
                )
        else:
            for name in STATE_FIELDS:
                self.batch.bind(name)[...] = old.batch.bind(name)
        if old.batch.models is not None:
            raise ModelError(
                "batch.set_models was called before the scene was created, which then changed the model: call it after "
                "Scene(...), with models that contain the elements its sensors need (sn.prepare)."
            )
        for name in sorted(MODEL_FIELDS):
            values = old.batch.expanded(name)
            if values is None or np.array_equal(values, np.broadcast_to(_shared_value(old.model, name), values.shape)):
                continue
            into = self.batch.expand(name)
            if into.shape != values.shape:
                raise ModelError(
                    f"a sensor changed the size of {name}, which was expanded and written before the scene was "
                    f"created: expand and write it after Scene(...)."
                )
            into[...] = values
        self._views = old._views
        for name, view in self._views.items():
            view.set_(self._view_of(name))  # type: ignore[call-overload]

    # Memory ----------------------------------------------------------------------------------------------------------

    def field(self, name: str) -> np.ndarray:
        """Return a field of MuJoCo's data or of the model `[env, ...]`, at a fixed address."""
        is_of_model = name in self.plan.model_fields or name in OPTIONS
        values: np.ndarray = self.batch.expand(name) if is_of_model else self.batch.bind(name)
        return values

    def state(self, name: str) -> torch.Tensor:
        """Return a field of the state, or of the model's options (`"opt.gravity"`), `[env, ...]`."""
        if name not in self._views:
            self._views[name] = self._view_of(name)
        return self._views[name]

    def _view_of(self, name: str) -> torch.Tensor:
        with torch.inference_mode(False):  # tensors created in that mode cannot be written outside it
            return torch.from_numpy(self.field(name))

    def rows(self) -> dict[str, torch.Tensor]:
        """Return the states of MuJoCo `[env, ...]`, live."""
        return {"state": torch.from_numpy(self.batch.state)}

    def separate_options(self) -> dict[str, torch.Tensor]:
        """Return a copy of gravity and magnetic flux `[env, 3]` where they are set per environment."""
        expanded = {name: self.batch.expanded(name) for name in OPTIONS}
        return {name: torch.tensor(values, device="cpu") for name, values in expanded.items() if values is not None}

    def separate(self, options: Mapping[str, torch.Tensor]) -> None:
        """Set options to the model's values, unless they are in a mapping."""
        for name in OPTIONS:
            if name not in options and (values := self.batch.expanded(name)) is not None:
                values[...] = _shared_value(self.model, name)

    def given(self, field: str) -> np.ndarray | None:
        """Return current values of a field of the model where they differ from `model`."""
        values: np.ndarray | None = self.batch.expanded(field)
        return _of_models(self.batch.models, field) if values is None and self.batch.models is not None else values

    @property
    def diverged(self) -> torch.Tensor:
        """Bool `[env]`: environments whose state became NaN, infinite or huge since their last reset."""
        return torch.from_numpy(self._health.diverged.copy())

    # Computations ----------------------------------------------------------------------------------------------------

    def step(self, ticks: int) -> None:
        """Take steps."""
        self._run(self.batch.advance, nstep=ticks)

    def reset(self, ids: torch.Tensor | None) -> None:
        """Reset environments to the initial state."""
        rows = _sorted(ids)
        self.batch.reset(ids=rows, keyframe=self._key, stage=_NONE)
        for flags in (self._health.diverged, self._bad_ctrl):
            flags[slice(None) if rows is None else rows] = False

    def compute(self, ids: torch.Tensor | None, *, is_current: bool, is_edited: bool) -> None:
        """Bring the fields of the plan up to date."""
        stage = self.plan.stage
        if not is_current or not stage:
            return
        if ids is None and not is_edited:
            self._run(self.batch.observe, stage=stage)
        else:
            self._run(self.batch.forward, ids=_sorted(ids), stage=stage)
        if np.count_nonzero(counters := self.batch.warning):
            self._health.report_limits(counters[:, list(LIMITS), 1], self.model)

    def _run(self, call: Callable[..., None], **given: Any) -> None:
        """Run a computation of the batch.

        Raises:
            ModelError: MuJoCo failed in some environments, e.g. because its memory was too small.
        """
        try:
            call(**given)
        except RuntimeError as error:
            if not hasattr(error, "ids"):
                raise
            which = f"env {listed(map(str, error.ids), 8)}"
            why = self.batch.error(error.ids[0])
            after = "Their state is unchanged; all others were computed. Reset, or create a new engine."
            raise ModelError(engine_fault(why, which, after)) from error

    def edited_time_step(self, dt: float) -> tuple[float, str] | None:
        """Return a current time step, s, that is not `dt`, with its location for messages; None if there is none."""
        batch, found = self.batch, [([self.model_options.timestep], "engine.model")]
        if (each := batch.expanded("opt.timestep")) is not None:
            found.append((each.ravel().tolist(), 'engine.batch.expand("opt.timestep")'))
        if batch.models is not None:
            found.append((_of_models(batch.models, "opt.timestep").tolist(), "engine.batch.set_models"))
        return next(((step, where) for steps, where in found for step in steps if step != dt), None)

    def check(self) -> None:
        """Warn of states and controls that were not finite in the last steps, and of memory that was too small."""
        counters = self.batch.warning
        if not np.count_nonzero(counters):
            return
        self._health.report_limits(counters[:, list(LIMITS), 1], self.model)
        diverged, bad_ctrl = counters[:, BAD_STATE, 1].any(axis=1), counters[:, _BAD_CTRL, 1] > 0
        counters[...] = 0  # counts of earlier steps were reported
        self._health.report_diverged(diverged, self.model)
        if (new := bad_ctrl & ~self._bad_ctrl).any():
            self._bad_ctrl |= new
            warnings.warn(
                f"the controls of env {listed(map(str, np.flatnonzero(new)), 8)} were NaN, infinite or huge by tick "
                f"{self._health.tick()}, and MuJoCo applied zeros instead: check ctrl. This warning is issued once per "
                "env and episode.",
                SensoriumWarning,
                stacklevel=4,
            )

    def forget(self, ids: torch.Tensor | None) -> None:
        """Discard MuJoCo's warnings."""
        self.batch.warning[...] = 0

    # Mounts and shapes -----------------------------------------------------------------------------------------------

    def place(self, offsets: LiveOffsets) -> None:
        """Read the poses of mounts on their bodies from the current memory of the fields."""
        self._placed_ids = self._model_ids()
        self._shared = {}
        sources = {}
        for name in offsets.fields:
            values: np.ndarray | None = self.batch.expanded(name)
            if values is None:
                values = self._shared[name] = self.values(name).copy()
            sources[name] = shared_memory(values)
        self._moves = self._moves or self.batch.models is not None or len(self._shared) < len(sources)
        offsets.bind(self.elements.row, sources)

    def _model_ids(self) -> list[int]:
        """Return the identities of the models that the caller set; empty without them."""
        models = self.batch.models
        return [] if models is None else [id(each) for each in (models if isinstance(models, tuple) else [models])]

    def follow(self, offsets: LiveOffsets, ids: torch.Tensor | None) -> None:
        """Update the mounts of all envs or some from their poses on their bodies, if any was ever moved."""
        if self._model_ids() != self._placed_ids or any(self.batch.expanded(name) is not None for name in self._shared):
            self.place(offsets)
        elif self.batch.models is not None:  # the caller may edit them
            for name, values in self._shared.items():
                values[...] = self.values(name)
        if self._moves:
            offsets.follow(ids)

    def shape_model(self) -> Any:
        """Return a model with the shapes that all environments share."""
        from sensorium.engines.mujoco.shapes import SHAPE_FIELDS, shared_model

        model = shared_model(self.batch)
        self._built = {field: np.array(getattr(model, field)) for field in SHAPE_FIELDS}
        return model

    def check_shapes(self) -> None:
        """Raise ModelError if `shapes` are no longer the same in all environments, or were changed."""
        if self._built:
            from sensorium.engines.mujoco.shapes import check_shared

            check_shared(self.model, self.batch.expanded, self._built)


def _sorted(ids: torch.Tensor | None) -> np.ndarray | None:
    """Return environments in the order that a batch requires."""
    return None if ids is None else np.sort(ids.numpy())


def _shared_value(model: Any, name: str) -> np.ndarray:
    return np.asarray(getattr(model.opt, name[4:]) if name.startswith("opt.") else getattr(model, name))


def _of_models(models: Any, name: str) -> np.ndarray:
    """Return a field of one model shared by all environments `[1, ...]`, or of the models of all `[env, ...]`."""
    each = models if isinstance(models, list | tuple) else [models]
    return np.stack([_shared_value(model, name) for model in each])


def _has_callbacks() -> bool:
    for callback in _CALLBACKS:  # in each tick: a generator takes longer
        if callback() is not None:
            return True
    return False


def _bits(values: np.ndarray) -> np.ndarray:
    """Return the numbers of a field `[env, ...]` as integers `[env, n]`, equal only where all bits are, also of NaN."""
    return values.reshape(len(values), -1).view(f"i{values.dtype.itemsize}")
