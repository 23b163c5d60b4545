"""What engines around live objects of their owner share: they read what the owner steps and resets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from sensorium.engines.mujoco.base import MujocoModelEngine
from sensorium.errors import ScheduleError
from sensorium.spec import Requirement


class WrappedModelEngine(MujocoModelEngine):
    """An engine around a compiled model and live data, which their owner steps and resets."""

    owns_time = False
    _data: str
    """How messages name the owner's data."""
    _step_call: str
    """The owner's call that takes a step."""
    _newest: dict[str, torch.Tensor]
    """The state now, of which `_previous` has that of one tick ago."""
    _reset_fix: str
    """What the owner does instead of giving `reset` a state, with `{}` for the names."""

    @property
    def model(self) -> Any:
        """The owner's MjModel."""
        return self._model

    def _apply(self, requirements: frozenset[Requirement]) -> None:
        self._derive(self.prepared | requirements)

    def step(self, ctrl: Any = None, substeps: int = 1) -> None:
        """Refuse: the owner steps.

        Raises:
            ScheduleError: always.
        """
        raise ScheduleError(
            f"this engine wraps your {self._data}, so you own the loop: call {self._step_call}, then scene.update()."
        )

    def count_ticks(self, ticks: int) -> None:
        """Note that the owner took `ticks` steps; derived state is read again at the next `refresh`.

        Raises:
            ScheduleError: several ticks at once with `fresh=False` and a requirement that reads joint positions; the
                time step was edited (on CUDA the host does not wait for that: a later update raises it).
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

    def _keep_state(self, ids: torch.Tensor | None = None) -> None:
        super()._keep_state(ids)
        self._note_state(self._newest, ids)

    def _derive(self, prepared: frozenset[Requirement]) -> None:
        super()._derive(prepared)
        self._newest = {name: values.clone() for name, values in self._previous.items()}

    def reset(self, env_ids: Any, state: Mapping[str, Any] | None = None) -> None:
        """Read environments again after their owner reset them; no state is written.

        Args:
            env_ids: None for all, integers, or a bool mask `[env]`.
            state: must be empty: the owner writes the data.

        Raises:
            ScheduleError: `state` is not empty.
            ModelError: shapes were described, and are not the same in all environments any more (on CUDA the host does
                not wait for that: a later update or reset raises it).
        """
        if state:
            raise ScheduleError(
                f"this engine wraps your {self._data} and writes no state to it: "
                f"{self._reset_fix.format(', '.join(state))}, then call scene.reset(env_ids)."
            )
        ids = self._selected(env_ids)
        self._forget(ids)
        if ids is None or len(ids):
            self._refresh_reset(ids)
        self._check_shapes()

    def _forget(self, ids: torch.Tensor | None) -> None:
        """Forget what was noted of environments before their owner reset them."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned, after the owner restored the physics."""
        super().load_state(state)
        self._note_state(self._newest)
