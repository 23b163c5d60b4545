"""Data (`RadarData`) and configuration (`RadarCfg`) of a radar."""

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
    """One scan; fields that the config does not select are None."""

    range: Annotated[Tensor, Field("m", role="range")]
    """Distance along each ray, m; +inf (or `no_hit_value`) for no detection."""
    velocity: Annotated[Tensor, Field("m/s")]
    """Rate of change of the distance, m/s: negative means approaching; 0 for no detection."""
    azimuth: Annotated[Tensor, Field("rad")]
    """Azimuth of the ray about the radar's z axis, from its x axis, rad, left positive."""
    altitude: Annotated[Tensor, Field("rad")]
    """Elevation of the ray above the radar's x-y plane, rad."""
    snr: Annotated[Tensor, Field("1", kind="derived")]
    """Signal-to-noise ratio, as a ratio of powers, not in dB. True: mean over fluctuations. Measured: with
    fluctuations. 0 for no detection."""
    points_b: Annotated[Tensor, Field("m", (3,), frame="sensor", kind="derived", role="point", parity="polar")]
    """Point at that distance in the direction of the ray, m; +inf for no detection."""
    geom_ids: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Shape that was hit: row in the sensor's `geom_names`; -1 for no detection and for a false alarm."""


FIELDS = ("range", "velocity", "azimuth", "altitude", "snr", "points_b", "geom_ids")
ALWAYS = FIELDS[:4]
"""Fields of a detection, which are always computed."""


def up_to(most: int) -> AfterValidator:
    """Return an annotation of angles from 0 to a maximum, degrees."""
    return must(lambda angle: 0.0 <= angle <= most, f"an angle from 0 to {most}, degrees")


COUNTS = must(lambda value: min(np.atleast_1d(value)) >= 1, "whole numbers >= 1")
CONE = ("horizontal_fov_deg", "vertical_fov_deg", "points_per_second", "points", "distribution")
"""Fields that have no effect with a fixed pattern."""


class RadarCfg(RayCfg[RadarData]):
    """Configuration of a radar. Knobs are given per field, e.g. ``noise={"range": 0.1, "velocity": 0.05}``.

    Without any imperfection the measured scan equals the true one.
    """

    horizontal_fov_deg: Annotated[
        Float, must(lambda angle: 0.0 <= angle <= 360.0, "an angle from 0 to 360, degrees"), in_unit("deg")
    ] = 30.0
    """Full horizontal angle of the cone, degrees; at most 360, and below 180 with the central distribution."""
    vertical_fov_deg: Annotated[Float, up_to(180), in_unit("deg")] = 30.0
    """Full vertical angle of the cone, degrees; at most 180, and below 180 with the central distribution."""
    points_per_second: Positive = 1500.0
    """Rays per second; a sample has the rays of one sampling interval, rounded down."""
    points: Annotated[Int | None, COUNTS, in_unit(minimum=1)] = None
    """Rays per sample; an alternative to `points_per_second`."""
    distribution: Literal["area", "central"] = "area"
    """Distribution of the rays in the cone. ``"area"``: uniform over the ellipse of azimuth and altitude.
    ``"central"``: denser towards the axis, on the flat end of the cone: (1, tan(h/2) u cos, tan(v/2) u sin) with u and
    angle uniform."""
    pattern: OptionalPatternField = None
    """Fixed rays in the radar's frame instead of the cone; all fire at once."""
    fields: tuple[str, ...] | Literal["all"] = ALWAYS
    """Computed fields besides range, velocity, azimuth and altitude; ``"all"`` selects every field."""
    max_distance: Annotated[Float, in_unit("m")] = 100.0
    """Largest measured distance, m; farther hits are misses."""
    carrier_frequency: Annotated[Positive, in_unit("Hz")] = 77.0e9
    """Carrier frequency f, Hz; the wavelength is lambda = c / f."""
    bandwidth: Annotated[Positive | None, in_unit("Hz")] = None
    """Bandwidth B of a chirp, Hz: the range cell is c / (2 B)."""
    chirp_time: Annotated[Positive | None, in_unit("s")] = None
    """Time T_c from one chirp to the next, s: measured velocities are aliased into +- lambda / (4 T_c)."""
    frame_time: Annotated[Positive | None, in_unit("s")] = None
    """Total time T_f of the chirps of a sample, s: the velocity cell is lambda / (2 T_f)."""
    sampling_rate: Annotated[Positive | None, in_unit("Hz")] = None
    """Sampling rate f_s within a chirp, Hz: targets beyond f_s c T_c / (2 B) are not detected."""
    channels: Annotated[Int | tuple[Int, Int], COUNTS] | None = None
    """Number of virtual antennas N, half a wavelength apart, in azimuth, or in azimuth and altitude; the angle cell is
    2 / N."""
    grid: bool = False
    """Whether measured range, velocity and angles are rounded to multiples of their cells, where these are defined."""
    reference_snr: Positive | None = None
    """Signal-to-noise ratio of a target of 1 m^2 at `reference_range`, as a ratio of powers, not in dB; None makes
    noise and detection independent of it."""
    reference_range: Annotated[Positive, in_unit("m")] = 50.0
    """Distance of that target, m."""
    rcs: Annotated[dict[str, NonNegative], in_unit("m^2")] = {}  # noqa: RUF012
    """Radar cross-section at normal incidence, m^2, by semantic label, or by name or pattern of geoms or bodies. Later
    entries override earlier ones. The default for other shapes is their reflectance times 1 m^2."""
    incidence_exponent: NonNegative = 1.0
    """Exponent n of |cos| of the angle of incidence in the cross-section; 0 disables the dependence."""
    false_alarm_probability: (
        Annotated[Float, must(lambda p: 0.0 < p < 1.0, "a probability above 0 and below 1", "A common value is 1e-6.")]
        | None
    ) = None
    """False alarm probability p_fa of the detector, which sets its threshold: a target is detected with probability
    p_fa^(1 / (1 + SNR)). None detects all targets. Requires `reference_snr`."""
    estimation_noise: bool = True
    """Whether range and velocity have noise of cell / sqrt(2 SNR), where `reference_snr` and the cells are given; at
    most one cell."""
    clutter_rate: NonNegative = 0.0
    """Mean number of false alarms of a scan without hits: each ray without a detection reports one with probability
    1 - exp(-clutter_rate / rays), at a uniform range and velocity."""
    clutter_speed: Annotated[Positive | None, in_unit("m/s")] = None
    """Maximum speed of a false alarm, m/s; None uses the limit from `chirp_time`."""

    selectable: ClassVar[tuple[str, ...]] = FIELDS
    always: ClassVar[tuple[str, ...]] = ALWAYS

    @model_validator(mode="after")
    def _fits(self) -> Any:
        given = self.model_fields_set
        if self.pattern is not None:
            for name in CONE:
                if name in given:
                    raise bad(f"{name}: either {name} or pattern, whose rays are fixed", "Give one of the two.")
        if self.points is not None and "points_per_second" in given:
            raise bad("either points or points_per_second")
        if self.distribution == "central" and max(self.horizontal_fov_deg, self.vertical_fov_deg) >= 180.0:
            raise bad("horizontal_fov_deg, vertical_fov_deg: below 180 degrees with distribution='central'",
                      "Use distribution='area' for wider angles.")  # fmt: skip
        if self.frame_time is not None and self.chirp_time is not None and self.frame_time < self.chirp_time:
            raise bad(f"frame_time: at least chirp_time = {self.chirp_time:g} s", "A frame has at least one chirp.")
        if self.sampling_rate is not None and (self.bandwidth is None or self.chirp_time is None):
            raise bad("sampling_rate: bandwidth and chirp_time as well", "Give both, since they convert it to a range.")
        if self.grid and all(part is None for part in (self.bandwidth, self.frame_time, self.channels)):
            raise bad(
                "grid: bandwidth, frame_time or channels as well", "Give one of them, since they define the cells."
            )
        if self.clutter_rate > 0.0 and self.clutter_speed is None and self.chirp_time is None:
            raise bad(
                "clutter_rate: clutter_speed or chirp_time as well",
                "Give one of them, since they limit the speed of false alarms.",
            )
        if self.reference_snr is None:
            needy = ["false_alarm_probability"] if self.false_alarm_probability is not None else []
            needy += ["fields"] if "snr" in self.fields and self.fields != "all" else []
            needy += [name for name in ("rcs", "incidence_exponent", "reference_range") if name in given]
            if needy:
                raise bad(
                    f"{needy[0]}: reference_snr as well",
                    "Give reference_snr, from which the ratios of all targets follow.",
                )
        return self

    @property
    def selected(self) -> tuple[str, ...]:
        """The computed fields, in the order of `RadarData`."""
        return tuple(name for name in super().selected if name != "snr" or self.reference_snr is not None)

    @property
    def wavelength(self) -> float:
        """Wavelength, m."""
        return LIGHT_SPEED / self.carrier_frequency

    @property
    def range_cell(self) -> float | None:
        """Range resolution c / (2 B), m; None without `bandwidth`."""
        return None if self.bandwidth is None else 0.5 * LIGHT_SPEED / self.bandwidth

    @property
    def range_limit(self) -> float:
        """Maximum range of detections, m: f_s c T_c / (2 B); +inf without `sampling_rate`."""
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
        """Maximum unambiguous velocity lambda / (4 T_c), m/s; +inf without `chirp_time`."""
        return math.inf if self.chirp_time is None else 0.25 * self.wavelength / self.chirp_time

    @property
    def angle_cells(self) -> tuple[float | None, float | None]:
        """Resolution 2 / N of azimuth and altitude, rad; None if `channels` gives none."""
        counts = self.channels if isinstance(self.channels, tuple) else (self.channels, None)
        first, second = (None if count is None else 2.0 / count for count in counts)
        return first, second

    @property
    def detects(self) -> bool:
        """Whether the receiver has missed detections, noise or false alarms."""
        scatters = self.estimation_noise and (self.bandwidth is not None or self.frame_time is not None)
        return (
            (self.reference_snr is not None and (scatters or self.false_alarm_probability is not None))
            or self.sampling_rate is not None
            or self.clutter_rate > 0.0
        )

    @property
    def folds(self) -> bool:
        """Whether measured values are aliased or rounded to a grid."""
        return self.chirp_time is not None or self.grid
