"""A batch whose derived state is current without a second forward computation: it is stepped one tick ahead.

mj_step computes the derived state of the state before the step and then integrates it. To observe the current state,
the batch takes the next step at once, keeps the result, and restores the current state. Derived state is then that of
mj_forward, bit for bit, and the next tick only copies the kept result. If inputs of an environment changed in between,
e.g. its control, its state or a field of its model, the kept result is discarded and mj_step runs on the new inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import MODEL_FIELDS, Batch, SimulationError

from sensorium.engines.mujoco.source import BAD_STATE

__all__ = ["LOOKAHEAD_FROM", "LookaheadBatch"]

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
        self._moving = _moving_columns(model)
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


def _has_callbacks() -> bool:
    for callback in _CALLBACKS:  # in each tick: a generator takes longer
        if callback() is not None:
            return True
    return False


def _bits(values: np.ndarray) -> np.ndarray:
    """Return the numbers of a field `[env, ...]` as integers `[env, n]`, equal only where all bits are, also of NaN."""
    return values.reshape(len(values), -1).view(f"i{values.dtype.itemsize}")


def _moving_columns(model: Any) -> slice:
    """Return the columns of the state that a step changes: all before the controls, where plugins keep no state."""
    state = mujoco.mjtState
    first, last = int(state.mjSTATE_CTRL), int(state.mjSTATE_USERDATA)
    is_last = mujoco.mj_stateSize(model, 2 * last - 1) == mujoco.mj_stateSize(model, state.mjSTATE_INTEGRATION)
    return slice(mujoco.mj_stateSize(model, first - 1) if is_last else None)
