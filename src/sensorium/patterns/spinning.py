"""Spinning scanners: a column of lasers on a rotating head, each with its firing time."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import numpy as np

from sensorium.cfg import Float, must
from sensorium.errors import ConfigError
from sensorium.patterns.base import ELEVATIONS, MAX_RAYS, AzimuthSpan, Int, Positive, is_full_turn, wrapped
from sensorium.patterns.scan import ScanPatternCfg, ScanTable

_SLACK = 1e-9
"""Tolerance of a count of cycles above a whole number, due to rounding."""

_VLP16 = (-15.0, 1.0, -13.0, 3.0, -11.0, 5.0, -9.0, 7.0, -7.0, 9.0, -5.0, 11.0, -3.0, 13.0, -1.0, 15.0)
"""Elevations of the VLP-16 by laser, in firing order, deg: the table in open-source drivers."""


Whole = Annotated[Int, must(lambda number: number >= 1, "a whole number >= 1")]


class SpinningPatternCfg(ScanPatternCfg):
    """Head with a column of lasers that rotates uniformly and fires cycle after cycle.

    Cycle k starts at k * `cycle_interval`; in it, laser j fires (j // `firing_group`) * `firing_interval` later. The
    azimuth of a ray is that of the head when it fires, plus the laser's own, so columns are slanted. Channel j is entry
    j of `elevations`.

    The table is `revolutions` turns long. The last cycle is the last one that ends within them, so each laser fires
    equally often in each table. If the cycles do not divide the turn, the next table starts less than a cycle later
    than on the device.
    """

    is_abstract: ClassVar[bool] = False

    elevations: Annotated[tuple[Float, ...], must(len, "the elevation of at least one channel, deg"), ELEVATIONS]
    """Elevation of each laser, deg, in firing order."""
    cycle_interval: Positive
    """Time from one cycle of all lasers to the next, s."""
    rate_hz: Positive = 10.0
    """Turns per second."""
    firing_interval: Annotated[Float, must(lambda time: time >= 0.0, "a time >= 0, s")] = 0.0
    """Time from one laser (or group) to the next within a cycle, s; 0 fires all at once."""
    firing_group: Whole = 1
    """Number of lasers that fire together."""
    azimuth_offsets: tuple[Float, ...] = ()
    """Azimuth of each laser relative to the head, deg, left positive; empty means 0 for all."""
    clockwise: bool = True
    """Direction of rotation, seen from above; clockwise azimuths decrease."""
    start: Float = 180.0
    """Azimuth of the head at time 0, deg; by default the seam is behind."""
    horizontal_fov: Annotated[AzimuthSpan, must(lambda span: span[0] != span[1], "a range that is not empty")] = (
        -180.0,
        180.0,
    )
    """Azimuths (low, high), deg, left positive, in which rays are kept; the high end is excluded."""
    sawtooth: bool = False
    """Whether the head sweeps only `horizontal_fov`, `rate_hz` times per second, and jumps back, instead of rotating;
    `start` then has no effect."""
    revolutions: Whole = 1
    """Number of turns in the table."""

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**data)
        lasers = len(self.elevations)
        if self.azimuth_offsets and len(self.azimuth_offsets) != lasers:
            expected = f"one azimuth for each of the {lasers} elevations, or none"
            raise self._bad("azimuth_offsets", len(self.azimuth_offsets), expected)
        if self._last_firing >= self.cycle_interval:
            expected = f"lasers that all fire within a cycle of {self.cycle_interval:g} s"
            fix = f"The last fires after {self._last_firing:g} s: shorten firing_interval or lengthen cycle_interval."
            raise self._bad("firing_interval", self.firing_interval, expected, fix)
        if self.cycles < 1:
            expected = f"at least one cycle in {self.revolutions / self.rate_hz:g} s"
            raise self._bad("cycle_interval", self.cycle_interval, expected, "Give the interval in seconds.")
        if self.cycles * lasers > MAX_RAYS:
            expected = f"at most {MAX_RAYS} rays, not {self.cycles * lasers:.3g}"
            raise self._bad("cycle_interval", self.cycle_interval, expected, "Give the interval in seconds.")

    @property
    def _last_firing(self) -> float:
        """Firing time of the last laser, s since the start of its cycle."""
        return (len(self.elevations) - 1) // self.firing_group * self.firing_interval

    @property
    def cycles(self) -> int:
        """Number of cycles in the table."""
        room = self.revolutions / self.rate_hz - self._last_firing
        return math.ceil(room / self.cycle_interval - _SLACK)

    def count_rays(self) -> int:
        """Return the number of rays in the table, those outside `horizontal_fov` included."""
        return self.cycles * len(self.elevations)

    def table(self) -> ScanTable:
        """Return `revolutions` turns."""
        lasers = len(self.elevations)
        delay = np.arange(lasers) // self.firing_group * self.firing_interval
        time = (np.arange(self.cycles) * self.cycle_interval)[:, None] + delay[None, :]
        low, high = self.horizontal_fov
        sense = -1.0 if self.clockwise else 1.0
        turns = time * self.rate_hz
        if self.sawtooth:
            share = turns - np.floor(turns + _SLACK)
            azimuth = (high if self.clockwise else low) + sense * (high - low) * share
        else:
            azimuth = self.start + sense * 360.0 * turns
        azimuth = wrapped(azimuth + np.array(self.azimuth_offsets or (0.0,)))
        keep = np.ones(time.shape, bool)
        if not self.sawtooth and not is_full_turn(high - low):
            keep = np.mod(azimuth - low, 360.0) < high - low
        elevation = np.broadcast_to(self.elevations, time.shape)
        channel = np.broadcast_to(np.arange(lasers), time.shape)
        if not keep.any():
            raise self._bad("horizontal_fov", self.horizontal_fov, "a range that contains rays", "Use a wider range.")
        return ScanTable(time[keep], azimuth[keep], elevation[keep], channel[keep], self.revolutions / self.rate_hz)

    def shape_of(self, table: ScanTable) -> tuple[int, ...]:
        """Return (columns, channels) if no ray is omitted, otherwise one axis."""
        lasers = len(self.elevations)
        return (self.cycles, lasers) if len(table) == self.cycles * lasers else (len(table),)

    # Devices ----------------------------------------------------------------------------------------------------------

    @classmethod
    def vlp16(cls, rate_hz: float = 10.0) -> SpinningPatternCfg:
        """Return Velodyne's VLP-16: 16 lasers, -15 to 15 degrees, about 289,000 rays per second.

        Source: VLP-16 user manual (2.304 us from laser to laser, 55.296 us per cycle, 0.199 degrees between columns
        at 10 Hz); the angles by laser are those of open-source drivers. Small azimuths and heights of lasers are
        omitted.

        Args:
            rate_hz: turns per second, 5 to 20 on the device.
        """
        return cls(elevations=_VLP16, cycle_interval=55.296e-6, firing_interval=2.304e-6, rate_hz=rate_hz)

    @classmethod
    def hdl32e(cls, rate_hz: float = 10.0) -> SpinningPatternCfg:
        """Return Velodyne's HDL-32E: 32 lasers, -30.67 to 10.67 degrees, about 694,000 rays per second.

        Lasers of the lower and the upper half alternate, 4/3 degrees apart within a half. Recalled from the HDL-32E
        user manual 63-9113, not checked against it: angles, order, 46.08 us per cycle, 1.152 us from laser to laser.

        Args:
            rate_hz: turns per second, 5 to 20 on the device.
        """
        lower = [-92.0 / 3.0 + 4.0 / 3.0 * k for k in range(16)]
        angles = tuple(angle for low in lower for angle in (low, low + 64.0 / 3.0))
        return cls(elevations=angles, cycle_interval=46.08e-6, firing_interval=1.152e-6, rate_hz=rate_hz)

    @classmethod
    def os1_64(cls, columns: int = 1024, rate_hz: float = 10.0) -> SpinningPatternCfg:
        """Return Ouster's OS1-64 of the first generation: 64 lasers that fire at once, in whole columns per turn.

        Source: OS1 data sheet, generation 1 (33.2 degrees, 512, 1024 or 2048 columns, 10 or 20 Hz). Recalled: even
        elevations from 16.611 down to -16.611, and laser azimuths that repeat 3.164, 1.055, -1.055, -3.164 degrees
        clockwise. Each device has individual values in its metadata: `replace` them.

        Args:
            columns: columns per turn.
            rate_hz: turns per second.
        """
        for name, value in (("columns", columns), ("rate_hz", rate_hz)):
            if not 0.0 < value < math.inf:
                raise ConfigError.single(cls.__name__, name, value, "a number greater than 0")
        return cls(
            elevations=tuple(np.linspace(16.611, -16.611, 64).tolist()),
            azimuth_offsets=(-3.164, -1.055, 1.055, 3.164) * 16,
            cycle_interval=1.0 / (columns * rate_hz),
            rate_hz=rate_hz,
        )
