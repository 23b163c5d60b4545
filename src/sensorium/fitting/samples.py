"""Samples of one sensor of a log, in SI units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sensorium.errors import ArgumentError
from sensorium.readings import Array

UNITS = {"ang_vel_b": "rad/s", "lin_acc_b": "m/s^2", "pressure": "Pa", "force": "N", "torque": "N m"}
"""Unit of the fields that are fitted; that of a magnetic field is the log's."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of one sensor.

    Attributes:
        time: float64 `[row]`, s; when each sample was captured, by the best clock of the log.
        values: field of the sensor's config -> float64 `[row, column]`, SI.
        units: field -> unit, e.g. ``"rad/s"``.
        source: file and sensor that they come from.
        arrival: float64 `[row]`, s; when each sample arrived, by the clock of the computer. None if there is one time.
        dropouts: float64 `[dropout, 2]`, s; start and end of spans that the logger lost, if the log states them.
        start: time 0 of these times by the clock of the log, s; two logs of one clock are aligned by it.
    """

    time: Array
    values: Mapping[str, Array]
    units: Mapping[str, str]
    source: str
    arrival: Array | None = None
    start: float = 0.0
    dropouts: Array | None = None

    def __len__(self) -> int:
        return len(self.time)

    def check(self) -> None:
        """Raise `ArgumentError` if a value is not finite, or a unit is unknown."""
        for name, values in self.values.items():
            if not (good := np.isfinite(values).all(axis=1)).all():
                row = int(np.argmin(good))
                raise ArgumentError(
                    f"{name}: got NaN or infinity in row {row}, expected finite values. Cut these rows."
                )
            if not self.units.get(name):
                example = UNITS.get(name, "T")
                raise ArgumentError(f"{name}: its unit is unknown, expected e.g. {example}. Give it: --units.")

    def rows(self, chosen: Array | slice) -> Samples:
        """Return some of the rows."""
        values = {name: each[chosen] for name, each in self.values.items()}
        arrival = None if self.arrival is None else self.arrival[chosen]
        return replace(self, time=self.time[chosen], values=values, arrival=arrival)

    def between(self, start: float = -np.inf, end: float = np.inf) -> Samples:
        """Return the rows of a time span, s."""
        return self.rows((self.time >= start) & (self.time <= end))
