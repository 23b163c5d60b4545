"""Pace of a simulation that its server runs: speed, pause and single steps, which clients may change."""

from __future__ import annotations

import math
from typing import Any

from sensorium.errors import ConfigError
from sensorium.stream.subscription_table import Session


class Pace:
    """Pace of the loop in `Server.run`. A pause ends with the client that requested it.

    Args:
        speed: simulated seconds per second of the wall clock; 0 for maximum speed.
    """

    def __init__(self, speed: float) -> None:
        self.speed, self.is_paused = speed, False
        self._steps = 0
        self._paused_by: Session | None = None

    def take_step(self) -> bool:
        """Return whether the loop may take a step now; in a pause, count it as one of the single steps."""
        if self.is_paused and not self._steps:
            return False
        self._steps = max(0, self._steps - 1)
        return True

    def set(self, what: str, value: Any, session: Session) -> None:
        """Pause or continue (``"paused"``), allow single steps (``"steps"``), or set the speed (``"speed"``).

        Raises:
            ConfigError: the value is invalid, or there is no such setting.
        """
        if what == "paused":
            if not isinstance(value, bool):
                raise ConfigError.single("pace", what, value, "True or False")
            self._pause(session if value else None)
        elif what == "steps":
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError.single("pace", what, value, "a whole number >= 1")
            self._pause(session)
            self._steps += value
        elif what == "speed":
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < math.inf:
                raise ConfigError.single("pace", what, value, "a finite number >= 0", "0 means maximum speed.")
            self.speed = float(value)
        else:
            raise ConfigError.single("pace", "setting", what, "paused, steps or speed")

    def _pause(self, session: Session | None) -> None:
        self._paused_by, self.is_paused = session, session is not None
        self._steps = 0 if session is None else self._steps

    def forget(self, session: Session) -> None:
        """End the pause of a client that is gone."""
        if self._paused_by is session:
            self._pause(None)

    def to_dict(self) -> dict[str, Any]:
        """Return the pace for clients."""
        return {"paused": self.is_paused, "speed": self.speed}
