"""What a radar gives (`RadarData`) and how it is described (`RadarCfg`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, model_validator
from torch import Tensor

from sensorium.cfg import Float, NonNegative, Positive, bad, in_unit, must
from sensorium.patterns import OptionalPatternField
from sensorium.patterns.base import Int
from sensorium.sensors.rays.ray_cfg import LIGHT_SPEED, RayCfg
from sensorium.spec import Field


@dataclass(frozen=True, slots=True)
class RadarData:
    """One scan; fields that the config does not name are None."""

    range: Annotated[Tensor, Field("m", role="range")]
    """Distance along each ray, m; +inf (or `no_hit_value`) for no detection."""
    velocity: Annotated[Tensor, Field("m/s")]
    """Rate at which that distance changes, m/s: negative is approaching; 0 for no detection."""
    azimuth: Annotated[Tensor, Field("rad")]
    """Direction of the ray about the radar's z axis from its x axis, rad, left positive."""
    altitude: Annotated[Tensor, Field("rad")]
    """Its direction above the radar's x-y plane, rad."""
    snr: Annotated[Tensor, Field("1", kind="derived")]
    """Signal-to-noise ratio (of powers, no dB): the true one is the mean over fluctuations, the measured one what the
    receiver saw; 0 for no detection."""
    points_b: Annotated[Tensor, Field("m", (3,), frame="sensor", kind="derived", role="point")]
    """Point at that distance in that direction, m; +inf for no detection."""
    geom_ids: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """What was met: row in the sensor's `geom_names`; -1 for nothing, and for a false alarm."""


FIELDS = ("range", "velocity", "azimuth", "altitude", "snr", "points_b", "geom_ids")
ALWAYS = FIELDS[:4]
"""Fields that make a detection, and are computed in any case."""


def up_to(most: int) -> AfterValidator:
    """Return an annotation of angles, degrees."""
    return must(lambda angle: 0.0 <= angle <= most, f"an angle from 0 to {most}, degrees")


COUNTS = must(lambda value: min(np.atleast_1d(value)) >= 1, "whole numbers from 1 on")
CONE = ("horizontal_fov_deg", "vertical_fov_deg", "points_per_second", "points", "distribution")
"""Fields that a fixed pattern replaces."""


class RadarCfg(RayCfg[RadarData]):
    """Configuration of a radar. Knobs are given per field, e.g. ``noise={"range": 0.1, "velocity": 0.05}``.

    Without any imperfection the measured scan is the true one.
    """

    horizontal_fov_deg: Annotated[
        Float, must(lambda angle: 0.0 <= angle <= 360.0, "an angle from 0 to 360, degrees"), in_unit("deg")
    ] = 30.0
    """Full horizontal angle of the cone, degrees; at most 360, below 180 with the central distribution."""
    vertical_fov_deg: Annotated[Float, up_to(180), in_unit("deg")] = 30.0
    """Full vertical angle of the cone, degrees; at most 180, and below it with the central distribution."""
    points_per_second: Positive = 1500.0
    """Rays per second; a sample has those of the time between two samples, rounded down."""
    points: Annotated[Int | None, COUNTS, in_unit(minimum=1)] = None
    """Rays of one sample, instead of `points_per_second`."""
    distribution: Literal["area", "central"] = "area"
    """How rays lie in the cone: ``"area"`` evenly over the ellipse of azimuth and altitude; ``"central"`` denser
    towards the middle, on the flat end of the cone: (1, tan(h/2) u cos, tan(v/2) u sin) with u and angle uniform."""
    pattern: OptionalPatternField = None
    """Fixed rays in the radar's frame instead of the cone; they all fire at once."""
    fields: tuple[str, ...] | Literal["all"] = ALWAYS
    """What is computed besides range, velocity, azimuth and altitude; ``"all"`` is all that can be."""
    max_distance: Annotated[Float, in_unit("m")] = 100.0
    """A farther hit is a miss, m."""
    carrier_frequency: Annotated[Positive, in_unit("Hz")] = 77.0e9
    """Frequency of the wave, Hz; its length is lambda = c / f."""
    bandwidth: Annotated[Positive | None, in_unit("Hz")] = None
    """Bandwidth B of a chirp, Hz: the range cell is c / (2 B)."""
    chirp_time: Annotated[Positive | None, in_unit("s")] = None
    """Time T_c from one chirp to the next, s: measured velocities fold into +- lambda / (4 T_c)."""
    frame_time: Annotated[Positive | None, in_unit("s")] = None
    """Time T_f of all chirps of a sample, s: the velocity cell is lambda / (2 T_f)."""
    sampling_rate: Annotated[Positive | None, in_unit("Hz")] = None
    """Samples per second f_s of a chirp, Hz: nothing beyond f_s c T_c / (2 B) is noticed."""
    channels: Annotated[Int | tuple[Int, Int], COUNTS] | None = None
    """Virtual antennas N, half a wavelength apart, in azimuth, or in azimuth and altitude: the angle cell is 2 / N."""
    grid: bool = False
    """Whether measured range, velocity and angles are rounded to multiples of their cells, as far as there are any."""
    reference_snr: Positive | None = None
    """Signal-to-noise ratio (of powers, no dB) of a target of 1 m^2 at `reference_range`; None leaves noise and
    detection without it."""
    reference_range: Annotated[Positive, in_unit("m")] = 50.0
    """Distance of that target, m."""
    rcs: Annotated[dict[str, NonNegative], in_unit("m^2")] = {}  # noqa: RUF012
    """Radar cross-section that a ray finds head-on, m^2, by semantic label, or by name or pattern of geoms or bodies;
    later entries win. Of other shapes it is their reflectance times 1 m^2."""
    incidence_exponent: NonNegative = 1.0
    """Power n of |cos| of the angle of incidence in the cross-section; 0 for none."""
    false_alarm_probability: (
        Annotated[Float, must(lambda p: 0.0 < p < 1.0, "a probability above 0 and below 1", "1e-6 is usual.")] | None
    ) = None
    """p_fa of the detector, which sets its threshold; a target is noticed with p_fa^(1 / (1 + SNR)). None notices all.
    It needs `reference_snr`."""
    estimation_noise: bool = True
    """Whether range and velocity scatter with cell / sqrt(2 SNR), where `reference_snr` and the cells are known; never
    by more than one cell."""
    clutter_rate: NonNegative = 0.0
    """Mean number of false alarms of a scan that meets nothing: each ray without a detection shows one with probability
    1 - exp(-clutter_rate / rays), at a uniform range and velocity."""
    clutter_speed: Annotated[Positive | None, in_unit("m/s")] = None
    """Greatest speed of a false alarm, m/s; None is that of `chirp_time`."""

    selectable: ClassVar[tuple[str, ...]] = FIELDS
    always: ClassVar[tuple[str, ...]] = ALWAYS

    @model_validator(mode="after")
    def _fits(self) -> Any:
        given = self.model_fields_set
        if self.pattern is not None:
            for name in CONE:
                if name in given:
                    raise bad(f"{name}: nothing beside pattern, whose rays are fixed", "Give one of the two.")
        if self.points is not None and "points_per_second" in given:
            raise bad("only one of points and points_per_second")
        if self.distribution == "central" and max(self.horizontal_fov_deg, self.vertical_fov_deg) >= 180.0:
            raise bad("horizontal_fov_deg, vertical_fov_deg: below 180 degrees with distribution='central'",
                      "Its rays end on a plane ahead; distribution='area' has no such limit.")  # fmt: skip
        if self.frame_time is not None and self.chirp_time is not None and self.frame_time < self.chirp_time:
            raise bad(f"frame_time: at least chirp_time = {self.chirp_time:g} s", "A frame has one chirp or more.")
        if self.sampling_rate is not None and (self.bandwidth is None or self.chirp_time is None):
            raise bad("sampling_rate: beside bandwidth and chirp_time", "They make a range of it.")
        if self.grid and all(part is None for part in (self.bandwidth, self.frame_time, self.channels)):
            raise bad("grid: beside bandwidth, frame_time or channels", "They say how large its cells are.")
        if self.clutter_rate > 0.0 and self.clutter_speed is None and self.chirp_time is None:
            raise bad("clutter_rate: beside clutter_speed or chirp_time", "They bound the speed of false alarms.")
        if self.reference_snr is None:
            needy = ["false_alarm_probability"] if self.false_alarm_probability is not None else []
            needy += ["fields"] if "snr" in self.fields and self.fields != "all" else []
            needy += [name for name in ("rcs", "incidence_exponent", "reference_range") if name in given]
            if needy:
                raise bad(f"{needy[0]}: beside reference_snr", "The ratio of a known target says what others give.")
        return self

    @property
    def selected(self) -> tuple[str, ...]:
        """The fields that are computed, in the order of `RadarData`."""
        return tuple(name for name in super().selected if name != "snr" or self.reference_snr is not None)

    @property
    def wavelength(self) -> float:
        """Length of the wave, m."""
        return LIGHT_SPEED / self.carrier_frequency

    @property
    def range_cell(self) -> float | None:
        """Range resolution c / (2 B), m; None without `bandwidth`."""
        return None if self.bandwidth is None else 0.5 * LIGHT_SPEED / self.bandwidth

    @property
    def range_limit(self) -> float:
        """Longest range that is noticed, m: f_s c T_c / (2 B), +inf without `sampling_rate`."""
        if self.sampling_rate is None:
            return math.inf
        assert self.range_cell is not None and self.chirp_time is not None
        return self.sampling_rate * self.chirp_time * self.range_cell

    @property
    def velocity_cell(self) -> float | None:
        """Velocity resolution lambda / (2 T_f), m/s; None without `frame_time`."""
        return None if self.frame_time is None else 0.5 * self.wavelength / self.frame_time

    @property
    def velocity_limit(self) -> float:
        """Greatest velocity that is told apart, lambda / (4 T_c), m/s; +inf without `chirp_time`."""
        return math.inf if self.chirp_time is None else 0.25 * self.wavelength / self.chirp_time

    @property
    def angle_cells(self) -> tuple[float | None, float | None]:
        """Resolution 2 / N of azimuth and altitude, rad; None without `channels` there."""
        counts = self.channels if isinstance(self.channels, tuple) else (self.channels, None)
        first, second = (None if count is None else 2.0 / count for count in counts)
        return first, second

    @property
    def detects(self) -> bool:
        """Whether the receiver misses, scatters or invents something."""
        scatters = self.estimation_noise and (self.bandwidth is not None or self.frame_time is not None)
        return (
            (self.reference_snr is not None and (scatters or self.false_alarm_probability is not None))
            or self.sampling_rate is not None
            or self.clutter_rate > 0.0
        )

    @property
    def folds(self) -> bool:
        """Whether measured values are brought into a limited span, or onto a grid."""
        return self.chirp_time is not None or self.grid


__all__ = ["FIELDS", "RadarCfg", "RadarData"]
