"""Rotating mirror that nods: non-repetitive rays all around, within a band of elevations."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import numpy as np

from sensorium.cfg import Float, must
from sensorium.patterns.base import ELEVATIONS, MAX_RAYS, Positive, wrapped
from sensorium.patterns.scan import ScanPatternCfg, ScanTable

GOLDEN = 0.6180339887498949
"""(sqrt(5) - 1)/2: the fraction of a turn whose multiples are distributed most evenly on the circle."""


class RotatingMirrorPatternCfg(ScanPatternCfg):
    """One beam with a uniformly rotating azimuth and an elevation that moves uniformly up and down between two limits.

    The curve is azimuth = start + 360 rate t and elevation = low + (high - low) tri(stroke_hz t), where tri rises from
    0 to 1 and falls back once per stroke. If stroke_hz / rate_hz is not a simple fraction, each turn runs between the
    lines of earlier turns.

    The table is `period` long and then repeats.
    """

    is_abstract: ClassVar[bool] = False

    elevation_range: Annotated[
        tuple[Float, Float],
        ELEVATIONS,
        must(lambda span: span[0] < span[1], "elevations (low, high), deg", "Swap low and high."),
    ]
    """Lowest and highest elevation, deg."""
    points_per_second: Positive
    """Rays per second."""
    rate_hz: Positive = 10.0
    """Turns per second."""
    stroke_hz: Positive = 10.0 * (60.0 + GOLDEN)
    """Up-and-down strokes of the elevation per second."""
    clockwise: bool = False
    """Direction of rotation, seen from above; clockwise azimuths decrease."""
    start: Float = 180.0
    """Azimuth at time 0, deg."""
    period: Positive = 2.0
    """Length of the table, s."""

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**data)
        count = self.period * self.points_per_second
        if not 1e-6 < count <= MAX_RAYS:
            expected = f"between 1 and {MAX_RAYS} rays in the table, not {count:.3g}"
            raise self._bad("period", self.period, expected, "Give the period in seconds.")

    def count_rays(self) -> int:
        """Return the number of rays in the table."""
        return math.ceil(self.period * self.points_per_second - 1e-9)

    def table(self) -> ScanTable:
        """Return the first `period` of the scan."""
        time = np.arange(self.count_rays()) / self.points_per_second
        sense = -1.0 if self.clockwise else 1.0
        low, high = self.elevation_range
        stroke = np.mod(self.stroke_hz * time, 1.0)
        return ScanTable(
            time,
            wrapped(self.start + sense * 360.0 * self.rate_hz * time),
            low + (high - low) * (1.0 - np.abs(1.0 - 2.0 * stroke)),
            period=self.period,
        )

    @classmethod
    def mid360(cls, period: float = 2.0) -> RotatingMirrorPatternCfg:
        """Return an approximation of Livox's Mid-360: all around, -7 to 52 degrees, 200,000 rays per second.

        The field of view and the ray rate are those of the data sheet, and 10 turns per second match its frame rate.
        The curve is not Livox's, for which no formula is published. Here the elevation moves up and down 606.18 times
        per second. A frame of 0.1 s therefore has 121 strokes, and the lines of later frames fall between those of
        earlier ones. The density is uniform in elevation and azimuth, which for the device is only approximately true.
        If the exact curve matters, use Livox's published table of times and angles with `TablePatternCfg`.

        Args:
            period: length of the table, s; 200,000 rays each.
        """
        return cls(elevation_range=(-7.0, 52.0), points_per_second=200_000.0, period=period)
