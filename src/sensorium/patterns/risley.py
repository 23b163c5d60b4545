"""Rosettes of Risley prisms: two glass wedges that rotate at different rates deflect the beam."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sensorium.cfg import Float, must
from sensorium.patterns.base import MAX_RAYS, Positive, along
from sensorium.patterns.scan import ScanPatternCfg, ScanTable

Array = NDArray[np.float64]

MID40_RATES_HZ = (7294.0 / 60.0, -4664.0 / 60.0)
"""Turns per second of the prisms of a Livox Mid-40. Recalled from Liu, Zhang, Hong, "Low-cost retina-like robotic
lidars based on incommensurable scanning" (IEEE/ASME T-Mech 2021), not checked against it."""

_MID40_WEDGE = 16.93639424846274
"""Wedge of two equal prisms of index 1.51 that deflect a beam by 19.2 degrees when aligned, by Snell's law, deg."""


class RisleyPatternCfg(ScanPatternCfg):
    """Beams along x, deflected by two rotating prisms: a non-repetitive rosette.

    Prism k deflects the beam by d_k = (n - 1) wedge_k, towards the angle 2 pi rate_k t about x (0 is left, 90 degrees
    up). In the paraxial approximation the two add up: the angle from x is |d_1 e^(i a_1) + d_2 e^(i a_2)|, which for
    equal prisms is 2 d |cos((a_1 - a_2)/2)| in the direction (a_1 + a_2)/2. With ``exact`` the beam is refracted at all
    four surfaces by Snell's law; each prism then has a plane face towards the laser and a tilted one towards the world.

    The table is `period` long and then repeats with a jump, unlike the device.
    """

    is_abstract: ClassVar[bool] = False

    wedges: Annotated[
        tuple[Float, Float],
        must(
            lambda wedges: 0.0 <= min(wedges) and 0.0 < max(wedges) < 45.0, "two angles from 0 to 45, deg, not both 0"
        ),
    ]
    """Angle between the two faces of each prism, deg."""
    rates_hz: tuple[Float, Float]
    """Turns per second of each prism, counter-clockwise as seen from the scene (right-handed about x)."""
    points_per_second: Positive
    """Total ray rate of all beams, 1/s."""
    refractive_index: Annotated[
        Float, must(lambda index: index > 1.0, "an index greater than 1", "Use about 1.5 for glass.")
    ] = 1.51
    """Index n of the glass; 1.51 is BK7 at 905 nm."""
    phase: Float = 0.0
    """Angle of the second prism at time 0, deg; the first is at 0."""
    beams: Annotated[
        tuple[tuple[Float, Float], ...],
        must(len, "at least one beam (azimuth, elevation), deg", "Give ((0, 0),) for straight ahead."),
    ] = ((0.0, 0.0),)
    """Azimuth and elevation of each beam before the prisms, deg. All fire together; beam j is channel j."""
    period: Positive = 2.0
    """Length of the table, s."""
    exact: bool = False
    """Whether to refract by Snell's law instead of adding the paraxial deflections."""

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**data)
        pulses = self.period * self.points_per_second / len(self.beams)
        if not 1e-6 < pulses <= MAX_RAYS / len(self.beams):
            expected = f"between 1 and {MAX_RAYS} rays in the table, not {pulses * len(self.beams):.3g}"
            raise self._bad("period", self.period, expected, "Give the period in seconds.")
        widest = sum(self.deviations) + max(math.hypot(*beam) for beam in self.beams)
        if not widest < 90.0:
            fix = "Use smaller wedges or a lower refractive_index."
            raise self._bad("wedges", self.wedges, f"beams below 90 degrees, not {widest:.3g}", fix)
        if self.exact:
            turn = np.linspace(0.0, 360.0, 361)
            first, second = (angle.ravel() for angle in np.meshgrid(turn[::15], turn))
            self._refracted(np.radians(first), np.radians(second))

    @property
    def deviations(self) -> tuple[float, float]:
        """Paraxial deflection (n - 1) wedge of each prism, deg."""
        first, second = ((self.refractive_index - 1.0) * wedge for wedge in self.wedges)
        return first, second

    def angles(self, time: Array) -> tuple[Array, Array]:
        """Return the deflection directions of the prisms at times in s, each `[time]`, rad about x."""
        first, second = (2.0 * np.pi * rate * time for rate in self.rates_hz)
        return first, second + math.radians(self.phase)

    def count_rays(self) -> int:
        """Return the number of rays in the table."""
        return math.ceil(self.period * self.points_per_second / len(self.beams) - 1e-9) * len(self.beams)

    def table(self) -> ScanTable:
        """Return the first `period` of the scan."""
        beams = len(self.beams)
        pulses = self.count_rays() // beams
        time: Array = np.arange(pulses, dtype=np.float64) * (beams / self.points_per_second)
        first, second = self.angles(time)
        directions = self._refracted(first, second) if self.exact else self._added_up(first, second)
        x, y, z = np.moveaxis(directions, -1, 0)
        return ScanTable(
            np.repeat(time, beams),
            np.degrees(np.arctan2(y, x)).ravel(),
            np.degrees(np.arctan2(z, np.hypot(x, y))).ravel(),
            np.tile(np.arange(beams), pulses),
            self.period,
        )

    def _added_up(self, first: Array, second: Array) -> Array:
        """Return directions `[time, beam, 3]` in the paraxial approximation."""
        d1, d2 = np.radians(self.deviations)
        bend = d1 * np.exp(1j * first) + d2 * np.exp(1j * second)
        beams = math.radians(1.0) * np.array([complex(*beam) for beam in self.beams])
        total = bend[:, None] + beams[None, :]
        angle, side = np.abs(total), np.angle(total)
        return np.stack([np.cos(angle), np.sin(angle) * np.cos(side), np.sin(angle) * np.sin(side)], axis=-1)

    def _refracted(self, first: Array, second: Array) -> Array:
        """Return directions `[time, beam, 3]` by Snell's law at four surfaces."""
        n = self.refractive_index
        rays = np.broadcast_to(along(*np.array(self.beams).T), (len(first), len(self.beams), 3))
        plane = np.array([1.0, 0.0, 0.0])
        for angle, wedge in zip((first, second), np.radians(self.wedges), strict=True):
            tilted = np.stack(
                [np.full_like(angle, np.cos(wedge)), -np.sin(wedge) * np.cos(angle), -np.sin(wedge) * np.sin(angle)],
                axis=-1,
            )
            rays = self._through(rays, plane, 1.0 / n)
            rays = self._through(rays, tilted[:, None, :], n)
        return rays

    def _through(self, rays: Array, normal: Array, ratio: float) -> Array:
        """Return unit directions behind a surface; `normal` points along the rays, `ratio` is n before / n behind."""
        along_normal = np.sum(rays * normal, axis=-1, keepdims=True)
        rest = 1.0 - ratio**2 * (1.0 - along_normal**2)
        if not ((rest > 0.0) & (along_normal > 0.0)).all():
            fix = "Use smaller wedges or a lower refractive_index."
            raise self._bad("wedges", self.wedges, "prisms without total reflection of any beam", fix)
        bent: Array = ratio * rays + (np.sqrt(rest) - ratio * along_normal) * normal
        return bent

    # Devices ----------------------------------------------------------------------------------------------------------

    @classmethod
    def mid40(cls, period: float = 2.0, exact: bool = False) -> RisleyPatternCfg:
        """Return Livox's Mid-40: one beam, a circle of 38.4 degrees, 100,000 rays per second.

        Source of the field of view: Mid-40 data sheet. Recalled: ray rate and rotation rates of the prisms. The two
        prisms are assumed equal, with the wedge that fills the field of view, 18.82 degrees (paraxial) or 16.94
        (exact): this value is fitted, not measured.

        Args:
            period: length of the table, s.
            exact: refract by Snell's law.
        """
        wedge = _MID40_WEDGE if exact else 9.6 / 0.51
        return cls(
            wedges=(wedge, wedge), rates_hz=MID40_RATES_HZ, points_per_second=100_000.0, period=period, exact=exact
        )

    @classmethod
    def avia(cls, period: float = 2.0) -> RisleyPatternCfg:
        """Return a scan in the style of Livox's Avia: six beams, 70.4 x 77.2 degrees, 240,000 rays per second.

        Source of field of view and rate: Avia data sheet. The rest is an approximation: equal prisms that rotate as in
        the Mid-40, and six beams spread evenly upwards to fill the height. For the exact curve use the manufacturer's
        table in a `TablePatternCfg`.

        Args:
            period: length of the table, s.
        """
        wedge = 0.25 * 70.4 / 0.51
        spread = 0.5 * (77.2 - 70.4)
        return cls(
            wedges=(wedge, wedge),
            rates_hz=MID40_RATES_HZ,
            points_per_second=240_000.0,
            beams=tuple((0.0, float(up)) for up in np.linspace(-spread, spread, 6)),
            period=period,
        )
