"""Samples of one sensor of a log, in SI units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sensorium.readings import Array


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of one sensor.

    Attributes:
        time: float64 `[row]`, s; when each sample was captured, by the best clock of the log.
        values: field of the sensor's config -> float64 `[row, column]`, SI.
        units: field -> unit, e.g. ``"rad/s"``.
        source: file and sensor that they come from.
        arrival: float64 `[row]`, s; when each sample arrived, by the clock of the computer. None if there is one time.
    """

    time: Array
    values: Mapping[str, Array]
    units: Mapping[str, str]
    source: str
    arrival: Array | None = None

    def __len__(self) -> int:
        return len(self.time)

    def rows(self, chosen: Array | slice) -> Samples:
        """Return some of the rows."""
        values = {name: each[chosen] for name, each in self.values.items()}
        arrival = None if self.arrival is None else self.arrival[chosen]
        return replace(self, time=self.time[chosen], values=values, arrival=arrival)

    def between(self, start: float = -np.inf, end: float = np.inf) -> Samples:
        """Return the rows of a time span, s."""
        return self.rows((self.time >= start) & (self.time <= end))
