"""Common base of engines around live objects, which read the data that the owner steps and resets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sensorium.engines.mujoco.base import MujocoModelEngine
from sensorium.engines.mujoco.source import Source
from sensorium.errors import ScheduleError
from sensorium.spec import Requirement


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
