"""Data (`LidarData`) and configuration (`LidarCfg`) of a lidar."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import model_validator
from torch import Tensor

from sensorium.cfg import Amount, Finite, Float, NonNegative, Positive, Share, bad, in_unit, must
from sensorium.patterns import PatternField, SpinningPatternCfg
from sensorium.sensors.rays.ray_cfg import RayCfg
from sensorium.spec import Field


@dataclass(frozen=True, slots=True)
class LidarData:
    """One scan; fields that the config does not select are None.

    With ``returns="dual"`` the fields of a point have an axis of 2 after the rays: the strongest return, and the last.
    """

    distances: Annotated[Tensor, Field("m", role="range")]
    """Distance along each ray as measured by the device, m; +inf (or `no_hit_value`) for no return."""
    points_b: Annotated[Tensor, Field("m", (3,), frame="sensor", kind="derived", role="point", parity="polar")]
    """Point at that distance along the ray, m, as if the sensor had not moved during the scan; +inf for no return."""
    points_w: Annotated[Tensor, Field("m", (3,), frame="world", kind="derived", role="point", parity="polar")]
    """Point at that distance along the ray from the sensor's pose when the ray fired, m; +inf for no return."""
    intensity: Annotated[Tensor, Field("1", kind="derived")]
    """Intensity of the return, see `intensity_mode`; 0 for no return."""
    cos_incidence: Annotated[Tensor, Field("1", kind="derived", low=0.0, high=1.0)]
    """Cosine of the angle between the outward normal and the direction back to the sensor; 0 for no return."""
    normals_w: Annotated[Tensor, Field("1", (3,), frame="world", kind="derived", low=-1.0, high=1.0, parity="polar")]
    """Outward unit normal of the surface; 0 for no return."""
    geom_ids: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Shape that was hit: row in the sensor's `geom_names`; -1 for no return."""
    semantic_ids: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Semantic label of the shape: row in the sensor's `semantic_names`; 0 for no label and for no return."""
    time_offset: Annotated[Tensor, Field("s", kind="derived")]
    """Firing time of each ray relative to the capture, s; at most 0."""
    channel: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Laser index of each ray."""
    azimuth: Annotated[Tensor, Field("rad", kind="derived")]
    """Azimuth of each ray about the sensor's z axis, from its x axis, rad, left positive."""
    elevation: Annotated[Tensor, Field("rad", kind="derived")]
    """Elevation of each ray above the sensor's x-y plane, rad."""


FIELDS = ("distances", "points_b", "points_w", "intensity", "cos_incidence", "normals_w", "geom_ids", "semantic_ids",
          "time_offset", "channel", "azimuth", "elevation")  # fmt: skip
PER_RAY = ("time_offset", "channel", "azimuth", "elevation")
"""Fields with one value per ray, independent of the returns."""

PHYSICAL = ("intensity_mode", "intensity_max", "intensity_noise", "attenuation", "reference_snr",
            "reference_reflectance", "reference_range", "detection_threshold", "detection_sd", "drop_rate",
            "range_noise", "range_noise_snr", "channel_bias", "beam_divergence", "beam_diameter", "sub_rays", "returns",
            "pulse_duration", "reflectance")  # fmt: skip
"""Fields that only ``model="physical"`` uses."""
DROPOFF = ("atmosphere_attenuation_rate", "dropoff_general_rate", "dropoff_intensity_limit", "dropoff_zero_intensity",
         "noise_stddev")  # fmt: skip
"""Fields that only ``model="dropoff"`` uses."""


def _above_0(value: Any) -> bool:
    return np.size(value) > 0 and all(0.0 < part < math.inf for part in np.atleast_1d(value))


def _is_flat(value: Any) -> bool:
    return not isinstance(value, tuple) or all(isinstance(part, float) for part in value)


Table = Annotated[Float | tuple[Float, ...], must(_above_0, "numbers greater than 0")]


class LidarCfg(RayCfg[LidarData]):
    """Configuration of a lidar. Knobs such as `noise` act last, on the distances, m; points are derived from them.

    Without any imperfection the measured scan equals the true one.
    """

    pattern: PatternField = SpinningPatternCfg.vlp16()
    """Directions and firing times of the rays, in the sensor's frame: x forward, y left, z up."""
    scan_duration: Annotated[Positive | None, in_unit("s")] = None
    """Length of the scan that ends at the capture, s; None uses the time between samples. Not for patterns without
    times, whose scan is always the whole pattern."""
    motion_distortion: bool = True
    """Whether each ray is cast at the time when it fires, instead of at the capture. Requires a pattern with times."""
    fields: tuple[str, ...] | Literal["all"] = ("distances", "points_b", "intensity")
    """Computed fields; ``"all"`` selects every field that the pattern provides."""
    cloud_layout: Literal["velodyne", "ouster", "livox"] = "velodyne"
    """Manufacturer whose driver's fields the points of ROS 2 messages have. They need the fields `intensity`, `channel`
    and `time_offset`; without one of them, points have those of ``"velodyne"`` that are computed."""
    max_distance: Annotated[Float, in_unit("m")] = 200.0
    """Largest measured distance, m; farther hits are misses."""
    model: Literal["physical", "dropoff"] = "physical"
    """Model of the returns. With ``"dropoff"`` they depend on distance only, and weak points are lost."""
    reflectance: dict[str, NonNegative] = {}  # noqa: RUF012
    """Reflectance by semantic label, or by name or pattern of geoms or bodies; overrides that of the shapes. Later
    entries override earlier ones. 1 is a white matt surface; retro-reflectors are above 1."""
    intensity_mode: Literal["calibrated", "raw"] = "calibrated"
    """``"calibrated"``: rho |cos| exp(-2 alpha R), as reported by devices that correct for 1/R^2. ``"raw"``: received
    power relative to that of the reference target."""
    intensity_scale: Positive = 1.0
    """Factor on intensities, in both models: with 100 a white surface reads 100."""
    intensity_max: Positive | None = None
    """Largest measured intensity; retro-reflectors saturate the receiver."""
    intensity_noise: NonNegative = 0.0
    """Standard deviation of a measured intensity, relative to the intensity."""
    attenuation: Annotated[NonNegative, in_unit("1/m")] = 0.0
    """Extinction alpha of the air, 1/m: fog, rain, dust. Visibility V is about 3.9 / alpha."""
    reference_snr: Positive | None = None
    """Signal-to-noise ratio of the reference target, as a ratio of powers, not in dB; None makes noise and detection
    independent of it."""
    reference_reflectance: Positive = 0.8
    """Reflectance of the reference target."""
    reference_range: Annotated[Positive, in_unit("m")] = 100.0
    """Distance of the reference target, m."""
    detection_threshold: Annotated[Finite | None, in_unit("dB")] = None
    """Signal-to-noise ratio at which half of the returns are detected, dB; None detects all. Requires
    `reference_snr`."""
    detection_sd: Annotated[NonNegative, in_unit("dB")] = 1.0
    """Softness s of that threshold, dB: a return is detected with probability Phi((SNR - threshold) / s)."""
    drop_rate: Share = 0.0
    """Probability that a return is lost, independent of its intensity."""
    range_noise: Annotated[Table | None, in_unit("m", minimum=0.0)] = None
    """Standard deviation of a distance, m: one number, or one for each ratio in `range_noise_snr`."""
    range_noise_snr: Table | None = None
    """Signal-to-noise ratios of `range_noise`. One ratio: the deviation scales with 1/sqrt(SNR). Several: it is
    interpolated between them in logarithms, and constant outside."""
    channel_bias: Annotated[
        Annotated[Amount, must(_is_flat, "a number, one number per channel, or a distribution")] | None, in_unit("m")
    ] = None
    """Error of the distances of each channel, m: one number, one per channel, or a distribution drawn per channel,
    mount and env at each reset."""
    beam_divergence: Annotated[
        Float | tuple[Float, Float],
        must(
            lambda value: all(0.0 <= angle < 0.5 for angle in np.atleast_1d(value)),
            "angles from 0 to 0.5, rad",
            "Give radians: 0.003 is 3 mrad or 0.17 degrees.",
        ),
        in_unit("rad"),
    ] = 0.0
    """Full angle of the beam at half its peak power, rad: one number, or one across azimuth and one across elevation.
    If it or `beam_diameter` is above 0, each ray is a bundle of `sub_rays`."""
    beam_diameter: Annotated[NonNegative, in_unit("m")] = 0.0
    """Diameter of the beam at half its peak power where it leaves the sensor, m."""
    sub_rays: Literal[7, 19] = 7
    """Rays in the bundle, on a hexagonal grid with a pitch of 0.5 (7) or 0.4 (19) of the beam width, with Gaussian
    weights."""
    returns: Literal["strongest", "last", "dual"] = "strongest"
    """Reported echo of a bundle. ``"dual"``: the strongest and the last, on an axis of 2; if these are the same, the
    second strongest, or none."""
    pulse_duration: Annotated[Positive, in_unit("s")] = 5.0e-9
    """Pulse length t_p of a beam with a footprint, s: echoes less than c t_p / 2 apart merge into one echo in between
    (a mixed pixel)."""
    atmosphere_attenuation_rate: Annotated[NonNegative, in_unit("1/m")] = 0.004
    """Rate a of ``"dropoff"``, 1/m: the intensity is exp(-a d)."""
    dropoff_general_rate: Share = 0.45
    """Fraction of rays that ``"dropoff"`` removes before casting."""
    dropoff_intensity_limit: NonNegative = 0.8
    """Intensity above which ``"dropoff"`` keeps all points."""
    dropoff_zero_intensity: Share = 0.4
    """Probability that ``"dropoff"`` loses a point of intensity 0; it decreases linearly to 0 at the limit."""
    noise_stddev: Annotated[NonNegative, in_unit("m")] = 0.0
    """Standard deviation of the points along their rays in ``"dropoff"``, m."""

    selectable: ClassVar[tuple[str, ...]] = FIELDS

    @model_validator(mode="after")
    def _fits(self) -> Any:
        given = self.model_fields_set
        if not {"distances", "points_b"} & {*self.selected}:
            raise bad("fields: distances or points_b in fields", "Add distances, since only these two mark misses.")
        for other, names in (("physical", DROPOFF), ("dropoff", PHYSICAL)):
            wrong = [name for name in names if name in given]
            if self.model == other and wrong:
                model = "dropoff" if other == "physical" else "physical"
                raise bad(f'{wrong[0]}: no such field with model="{other}"', f'Give model="{model}".')
        if self.reference_snr is None:
            for name in ("detection_threshold", "range_noise_snr"):
                if getattr(self, name) is not None:
                    raise bad(
                        f"{name}: reference_snr as well",
                        "Give reference_snr, from which the ratios of all targets follow.",
                    )
        if self.detection_threshold is None and "detection_sd" in given:
            raise bad("detection_sd: detection_threshold as well", "Give detection_threshold, which it softens.")
        sds, ratios = (np.size(np.asarray(value)) for value in (self.range_noise, self.range_noise_snr))
        if self.range_noise_snr is not None and (self.range_noise is None or sds != ratios):
            raise bad(f"range_noise_snr: one ratio for each of the {sds} deviations in range_noise, not {ratios}")
        if self.range_noise_snr is None and isinstance(self.range_noise, tuple):
            raise bad("range_noise: one number, or range_noise_snr with a ratio for each")
        if isinstance(self.range_noise_snr, tuple) and len(set(self.range_noise_snr)) < ratios:
            raise bad("range_noise_snr: distinct ratios")
        if not self.has_footprint:
            for name in ("returns", "sub_rays", "pulse_duration"):
                if name in given and getattr(self, name) != "strongest":
                    raise bad(
                        f"{name}: beam_divergence as well",
                        "Give beam_divergence, since a ray without width has one return.",
                    )
        return self

    @property
    def selected(self) -> tuple[str, ...]:
        """The computed fields, in the order of the data class: also `distances` if a knob or stage alters them."""
        own = super().selected
        return own if self.is_clean or "distances" in own else ("distances", *own)

    @property
    def divergence(self) -> tuple[float, float]:
        """Full angles of the beam across azimuth and across elevation, rad."""
        value = self.beam_divergence
        return value if isinstance(value, tuple) else (value, value)

    @property
    def has_footprint(self) -> bool:
        """Whether each ray is cast as a bundle."""
        return self.beam_diameter > 0.0 or any(angle > 0.0 for angle in self.divergence)

    @property
    def alters_returns(self) -> bool:
        """Whether measured returns differ from true ones, apart from the standard chain."""
        if self.model == "dropoff":
            return self.dropoff_general_rate > 0.0 or self.dropoff_zero_intensity > 0.0 or self.noise_stddev > 0.0
        return (
            any(getattr(self, name) is not None for name in (
                "intensity_max", "detection_threshold", "range_noise", "channel_bias", "reference_snr"))
            or self.intensity_noise > 0.0 or self.drop_rate > 0.0 or self.has_footprint
        )  # fmt: skip
