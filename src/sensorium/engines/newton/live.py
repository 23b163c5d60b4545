"""A Newton model in a live loop of its owner as an engine: stepped and reset by the owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import warp as wp

from sensorium.engines.base import Engine
from sensorium.engines.envs import env_selection, restore
from sensorium.engines.newton.engine import NewtonEngine, launches
from sensorium.engines.newton.layout import newton
from sensorium.errors import ModelError, ScheduleError, shown


class LiveNewtonEngine(NewtonEngine):
    """A Newton model that its owner steps and resets; created by `NewtonEngine.from_newton`.

    The owner calls `solver.step` and then `scene.update()`. The engine copies the owner's state. Without `observables`
    it computes accelerations, contacts and forces by a trial step, after which it restores the solver's internal state.

    Args:
        model: a `newton.Model`.
        solver: the solver of the loop.
        state: a `newton.State` or a function that returns the current one.
        dt: time step of the loop, s.
        control: the `newton.Control` of the loop.
        pipeline: as for `NewtonEngine`.
        observables: the observables of the loop, which belong to the state before its last step.

    Raises:
        ModelError: as for `NewtonEngine`, or the state or the observables have another type or solver.
    """

    owns_time = False

    def __init__(
        self, model: Any, solver: Any, state: Any, *, dt: float, control: Any, pipeline: Any, observables: Any
    ) -> None:
        current = state if callable(state) else lambda: state
        if not isinstance(current(), newton().State):
            raise ModelError(f"from_newton: got {shown(state)} as state, expected a newton.State or a function.")
        if observables is not None and getattr(observables, "_solver", None) is not solver:
            raise ModelError(
                f"from_newton: got {shown(observables)} as observables, expected those of the solver: "
                "solver.observables({'body_qdd', ...})."
            )
        self._given = observables
        super().__init__(model, solver, dt=dt, fresh=observables is None, pipeline=pipeline)
        self._current: Callable[[], Any] = current
        if control is not None:
            self.newton_control = control
            self._ctrl_to = self._control_places("joint_target_q")
        self._read()

    def _new_contacts(self, pipeline: Any) -> Any:
        return super()._new_contacts(pipeline) if self._given is None else self._given.contacts

    def _new_observables(self, contacts: Any) -> Any:
        return super()._new_observables(contacts) if self._given is None else self._given

    def _lacks(self, observable: str) -> str | None:
        if self._given is not None and observable not in self._given.kinds:
            kinds = ", ".join(map(repr, sorted({*self._given.kinds, observable})))
            return f"the observables of your loop lack {observable!r}: give it solver.observables({{{kinds}}})."
        return super()._lacks(observable)

    @launches
    def _read(self) -> None:
        """Copy the owner's state.

        Raises:
            ModelError: it is no state of the model.
        """
        owner = self._current()
        if not isinstance(owner, newton().State):
            raise ModelError(f"from_newton: the function returned {shown(owner)}, expected the current newton.State.")
        for name in ("joint_q", "joint_qd", "body_q", "body_qd", "body_f"):
            target, source = getattr(self.newton_state, name), getattr(owner, name)
            if target is not None and target.size:
                if source is None or source.size != target.size:
                    raise ModelError(
                        "from_newton: the current state belongs to another model: give that of this model."
                    )
                wp.copy(target, source)
        target, rows = self._ctrl_to
        self.ctrl.copy_(target[rows])
        self._is_current = False

    def step(self, ctrl: Any = None, substeps: int = 1) -> None:
        """Raise `ScheduleError`, because the owner steps the simulation.

        Raises:
            ScheduleError: always.
        """
        raise ScheduleError(
            "this engine wraps your Newton loop: call solver.step(state_0, state_1, ...), then scene.update()."
        )

    def count_ticks(self, ticks: int) -> None:
        """Register `ticks` steps of the owner; derived state is read again at the next `refresh`.

        Raises:
            ScheduleError: several ticks were given, with observables that belong to the state before the last one.
        """
        if ticks > 1 and not self.fresh:
            raise ScheduleError(
                f"{ticks} ticks at once: observables belong to the state before the last step, so call scene.update() "
                "after each step, or wrap the loop without observables."
            )
        super().count_ticks(ticks)
        if ticks and not self.fresh:
            self._keep_shown()
            self.lag = 1
        self._read()

    def forward(self) -> None:
        """Read the owner's state again, with the poses of bodies that are in it."""
        self._read()
        self.lag = 0
        self.refresh()

    def reset(self, env_ids: Any, state: Mapping[str, Any] | None = None) -> None:
        """Read environments again after their owner reset them; no state is written.

        Args:
            env_ids: None for all, integers, or a bool mask `[env]`.
            state: must be empty: the owner writes the state.

        Raises:
            ScheduleError: `state` is not empty.
        """
        if state:
            raise ScheduleError(
                f"this engine wraps your Newton loop and cannot write its state: write {', '.join(state)} of your "
                "newton.State yourself, then call scene.reset(env_ids)."
            )
        ids = env_selection(env_ids, self.num_envs, self.device)
        if not self.fresh:
            self.refresh()  # the last tick of the other envs, which the reset would otherwise lose
        self._read()
        if ids is None or len(ids):
            self._show_reset(ids)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the tick and the derived arrays of `state`, after the owner restored the physics."""
        Engine.load_state(self, state)
        self._read()
        self.lag = int(state["lag"])
        if self.lag:
            restore(self._derived.arrays, state["arrays"])
            self._is_current = True
