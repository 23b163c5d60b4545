"""A batch whose derived state is current without a second forward computation: it is stepped one tick ahead.

mj_step computes the derived state of the state before the step and then integrates it. To observe the current state,
the batch takes the next step at once, keeps the result, and restores the current state. Derived state is then that of
mj_forward, bit for bit, and the next tick only copies the kept result. If inputs of an environment changed in between,
e.g. its control, its state or a field of its model, the kept result is discarded and mj_step runs on the new inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from sensorium.engines.mujoco.base import BAD_STATE

__all__ = ["LookaheadBatch"]

_CALLBACKS = [getattr(mujoco, name) for name in dir(mujoco) if name.startswith("get_mjcb_")]
_UNSAVED = int(mujoco.mjtEnableBit.mjENBL_SLEEP) | int(getattr(mujoco.mjtEnableBit, "mjENBL_IPC", 0))


class LookaheadBatch(Batch):  # type: ignore[misc]  # MuJoCo has no types
    """A batch with `advance` and `observe`, whose results are those of `step` and `forward`.

    `observe` looks ahead unless the result would probably be discarded: the inputs of most environments changed after
    as many ticks before. It never looks ahead

    - with physics callbacks, whose inputs are unknown,
    - with the RK4 integrator, whose derived state after a step belongs to no tick,
    - where MuJoCo keeps state outside of the row: for sleeping bodies, in the contact mode IPC, and for plugins in a
      persistent batch.
    """

    def __init__(self, model: Any, nsim: int, nthread: int, persistent: bool) -> None:
        super().__init__(model, nsim, nthread, persistent)
        self._may_look = _has_lookahead([model], persistent)
        self._seen, self._next = self.state.copy(), np.empty_like(self.state)  # observed rows, and those a tick later
        self._is_observed = False
        self._is_known = np.zeros(nsim, dtype=bool)  # envs whose row in `_next` is the result of `mj_step` on `_seen`
        self._inputs: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # fields of the model, and their observed values
        self._held = self._interval = 0  # ticks since the inputs of most envs changed, and between the last two changes

    def observe(self, stage: int) -> None:
        """Compute derived state of the current state, up to `stage` or further.

        Raises:
            SimulationError: MuJoCo failed in some environments.
        """
        self._is_observed = True
        self._is_known[:] = False
        self._seen[...] = self.state
        for values, seen in self._inputs.values():
            seen[...] = values
        if not self._may_look or self._held == self._interval or any(callback() is not None for callback in _CALLBACKS):
            self.forward(stage=stage)
            return
        try:
            with suppress(SimulationError):
                self.step()
            self._next[...] = self.state
        finally:
            self.state[...] = self._seen
        is_bad = self.warning[:, BAD_STATE, 1].any(axis=1)  # MuJoCo replaced the state before it computed the rest
        self._is_known[:] = (self.status == 0) & ~is_bad
        if not self._is_known.all():
            self.warning[:, BAD_STATE] = 0
            self.forward(~self._is_known, stage)

    def advance(self, nstep: int) -> None:
        """Advance all environments, as `step`.

        Raises:
            SimulationError: MuJoCo failed in some environments.
        """
        if not self._is_observed:
            self._held += nstep
            self.step(nstep=nstep)
            return
        self._is_observed = False
        is_same = (self.state.view(np.int64) == self._seen.view(np.int64)).all(axis=1)
        for values, seen in self._inputs.values():
            is_same &= (_bits(values) == _bits(seen)).all(axis=1)
        if 2 * np.count_nonzero(is_same) < self.nsim:
            self._interval, self._held = self._held, 0
        self._held += nstep
        is_known = self._is_known & is_same
        self.state[is_known] = self._next[is_known]
        try:
            if not is_known.all():
                self.step(~is_known, nstep)
        finally:
            if nstep > 1 and is_known.any():
                self.step(is_known, nstep - 1)

    def expand(self, name: str) -> np.ndarray:
        """Return a field of the model per environment, as `Batch.expand`; `advance` follows edits."""
        values: np.ndarray = super().expand(name)
        if name not in self._inputs:
            self._inputs[name] = values, values.copy()
            self._may_look &= name not in ("opt.integrator", "opt.enableflags")
        return values

    def set_const(self, ids: Any = None) -> None:
        """Compute constants of the model, as `Batch.set_const`."""
        self._is_known[:] = False
        super().set_const(ids)

    def set_models(self, models: Any) -> None:
        """Set the models of the environments, as `Batch.set_models`."""
        self._is_known[:] = False
        super().set_models(models)
        each = models if isinstance(models, list | tuple) else [models or self.model]
        self._may_look = _has_lookahead(each, self.persistent)


def _has_lookahead(models: Sequence[Any], persistent: bool) -> bool:
    """Whether the state row is the whole state of environments and mj_step leaves derived state of one instant."""
    rk4 = int(mujoco.mjtIntegrator.mjINT_RK4)
    return not any(
        int(model.opt.integrator) == rk4 or (persistent and (int(model.opt.enableflags) & _UNSAVED or model.nplugin))
        for model in models
    )


def _bits(values: np.ndarray) -> np.ndarray:
    """Return the bytes of a field `[env, ...]`, which compare equal only if nothing changed, NaN included."""
    return values.reshape(len(values), -1).view(np.uint8)
