"""What a lidar gives (`LidarData`) and how it is described (`LidarCfg`)."""

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
    """One scan; fields that the config does not name are None.

    With ``returns="dual"`` the fields of a point have an axis of 2 after the rays: the strongest return, and the last.
    """

    distances: Annotated[Tensor, Field("m", role="range")]
    """Distance along each ray as the device believes it, m; +inf (or `no_hit_value`) for no return."""
    points_b: Annotated[Tensor, Field("m", (3,), frame="sensor", kind="derived", role="point")]
    """Point at that distance along the ray, m, as if the sensor had stood still; +inf for no return."""
    points_w: Annotated[Tensor, Field("m", (3,), frame="world", kind="derived", role="point")]
    """Point at that distance along the ray from where the sensor was when it fired, m; +inf for no return."""
    intensity: Annotated[Tensor, Field("1", kind="derived")]
    """Strength of the return, see `intensity_mode`; 0 for none."""
    cos_incidence: Annotated[Tensor, Field("1", kind="derived", low=0.0, high=1.0)]
    """Cosine of the angle between the outward normal and the way back to the sensor; 0 for no return."""
    normals_w: Annotated[Tensor, Field("1", (3,), frame="world", kind="derived", low=-1.0, high=1.0)]
    """Outward unit normal of the surface; 0 for no return."""
    geom_ids: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """What was met: row in the sensor's `geom_names`; -1 for no return."""
    semantic_ids: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Its semantic label: row in the sensor's `semantic_names`; 0 for none, and for no return."""
    time_offset: Annotated[Tensor, Field("s", kind="derived")]
    """When each ray fires, s from the capture, not above 0."""
    channel: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Laser of each ray."""
    azimuth: Annotated[Tensor, Field("rad", kind="derived")]
    """Direction of each ray about the sensor's z axis from its x axis, left positive."""
    elevation: Annotated[Tensor, Field("rad", kind="derived")]
    """Its direction above the sensor's x-y plane."""


FIELDS = ("distances", "points_b", "points_w", "intensity", "cos_incidence", "normals_w", "geom_ids", "semantic_ids",
          "time_offset", "channel", "azimuth", "elevation")  # fmt: skip
PER_RAY = ("time_offset", "channel", "azimuth", "elevation")
"""Fields that have one value per ray, whatever comes back."""

PHYSICAL = ("intensity_mode", "intensity_max", "intensity_noise", "attenuation", "reference_snr",
            "reference_reflectance", "reference_range", "detection_threshold", "detection_sd", "drop_rate",
            "range_noise", "range_noise_snr", "channel_bias", "beam_divergence", "beam_diameter", "sub_rays", "returns",
            "pulse_duration", "reflectance")  # fmt: skip
"""Fields that only ``model="physical"`` has."""
DROPOFF = ("atmosphere_attenuation_rate", "dropoff_general_rate", "dropoff_intensity_limit", "dropoff_zero_intensity",
         "noise_stddev")  # fmt: skip
"""Fields that only ``model="dropoff"`` has."""


def _above_0(value: Any) -> bool:
    return np.size(value) > 0 and all(0.0 < part < math.inf for part in np.atleast_1d(value))


def _is_flat(value: Any) -> bool:
    return not isinstance(value, tuple) or all(isinstance(part, float) for part in value)


Table = Annotated[Float | tuple[Float, ...], must(_above_0, "numbers greater than 0")]


class LidarCfg(RayCfg[LidarData]):
    """Configuration of a lidar. Knobs such as `noise` act on the distances, m, after all else; points follow.

    Without any imperfection the measured scan is the true one.
    """

    pattern: PatternField = SpinningPatternCfg.vlp16()
    """The rays, and when they fire, in the sensor's frame: x forward, y left, z up."""
    scan_duration: Annotated[Positive | None, in_unit("s")] = None
    """Length of the scan that ends at the capture, s; None is the time between samples. Not for patterns without times,
    which are whole at each sample."""
    motion_distortion: bool = True
    """Whether each ray of the measured scan leaves when it fires, instead of all at the capture. It needs a pattern
    with times."""
    fields: tuple[str, ...] | Literal["all"] = ("distances", "points_b", "intensity")
    """What is computed; ``"all"`` is all that the pattern has."""
    max_distance: Annotated[Float, in_unit("m")] = 200.0
    """A farther hit is a miss, m."""
    model: Literal["physical", "dropoff"] = "physical"
    """How light comes back: with ``"dropoff"`` distance alone counts, and faint points are lost."""
    reflectance: dict[str, NonNegative] = {}  # noqa: RUF012
    """Reflectance by semantic label, or by name or pattern of geoms or bodies, instead of the shapes' own; later
    entries win. 1 is a white matt surface; retro-reflectors are above."""
    intensity_mode: Literal["calibrated", "raw"] = "calibrated"
    """``"calibrated"``: rho |cos| exp(-2 alpha R), as devices that undo 1/R^2 show it. ``"raw"``: received power as a
    share of the reference's."""
    intensity_scale: Positive = 1.0
    """Factor on intensities, of both models: 100 shows a white surface as 100."""
    intensity_max: Positive | None = None
    """Greatest measured intensity: retro-reflectors saturate the receiver."""
    intensity_noise: NonNegative = 0.0
    """Standard deviation of a measured intensity, as a share of it."""
    attenuation: Annotated[NonNegative, in_unit("1/m")] = 0.0
    """Extinction alpha of the air, 1/m: fog, rain, dust. Visibility V is about 3.9 / alpha."""
    reference_snr: Positive | None = None
    """Signal-to-noise ratio (of powers, no dB) of the reference target; None leaves noise and detection without it."""
    reference_reflectance: Positive = 0.8
    """Reflectance of the reference target."""
    reference_range: Annotated[Positive, in_unit("m")] = 100.0
    """Its distance, m."""
    detection_threshold: Annotated[Finite | None, in_unit("dB")] = None
    """Signal-to-noise ratio, dB, at which half of the returns are noticed; None notices all. It needs
    `reference_snr`."""
    detection_sd: Annotated[NonNegative, in_unit("dB")] = 1.0
    """Softness s of that threshold, dB: a return is noticed with probability Phi((SNR - threshold) / s)."""
    drop_rate: Share = 0.0
    """Probability that a return is lost, whatever its strength."""
    range_noise: Annotated[Table | None, in_unit("m", minimum=0.0)] = None
    """Standard deviation of a distance, m: one number, or several for the ratios `range_noise_snr`."""
    range_noise_snr: Table | None = None
    """Signal-to-noise ratios of `range_noise`. One: the deviation goes with 1/sqrt(SNR). Several: it is interpolated
    between them, in logarithms, and constant beyond."""
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
            "0.003 is 3 mrad, 0.17 degrees.",
        ),
        in_unit("rad"),
    ] = 0.0
    """Full angle of the beam at half its greatest power, rad: one, or across azimuth and across elevation. Above 0, or
    with a `beam_diameter` above 0, each ray is a bundle of `sub_rays`."""
    beam_diameter: Annotated[NonNegative, in_unit("m")] = 0.0
    """Diameter of the beam at half its greatest power where it leaves, m."""
    sub_rays: Literal[7, 19] = 7
    """Rays in the bundle, on a hexagonal grid of a half (7) or 0.4 (19) of the beam's width, with Gaussian weights."""
    returns: Literal["strongest", "last", "dual"] = "strongest"
    """Which echo of a bundle is shown. ``"dual"``: the strongest and the last, on an axis of 2; where these are one,
    the second strongest, or none."""
    pulse_duration: Annotated[Positive, in_unit("s")] = 5.0e-9
    """Length t_p of the pulse of a beam with a footprint, s: echoes less than c t_p / 2 behind each other become one in
    between (a mixed pixel)."""
    atmosphere_attenuation_rate: Annotated[NonNegative, in_unit("1/m")] = 0.004
    """Of ``"dropoff"``: intensity is exp(-a d) with this a, 1/m."""
    dropoff_general_rate: Share = 0.45
    """Of ``"dropoff"``: share of rays that never leave."""
    dropoff_intensity_limit: NonNegative = 0.8
    """Of ``"dropoff"``: points above this intensity are kept."""
    dropoff_zero_intensity: Share = 0.4
    """Of ``"dropoff"``: probability that a point of intensity 0 is lost; linear from there to 0 at the limit."""
    noise_stddev: Annotated[NonNegative, in_unit("m")] = 0.0
    """Of ``"dropoff"``: standard deviation of the points along their rays, m."""

    selectable: ClassVar[tuple[str, ...]] = FIELDS

    @model_validator(mode="after")
    def _fits(self) -> Any:
        given = self.model_fields_set
        if not {"distances", "points_b"} & {*self.selected}:
            raise bad("fields: distances or points_b among the fields", "Without them a miss cannot be told.")
        for other, names in (("physical", DROPOFF), ("dropoff", PHYSICAL)):
            wrong = [name for name in names if name in given]
            if self.model == other and wrong:
                model = "dropoff" if other == "physical" else "physical"
                raise bad(f'{wrong[0]}: nothing, for model="{other}" does not know it', f'Give model="{model}".')
        if self.reference_snr is None:
            for name in ("detection_threshold", "range_noise_snr"):
                if getattr(self, name) is not None:
                    raise bad(f"{name}: beside reference_snr", "The ratio of a known target says what others give.")
        if self.detection_threshold is None and "detection_sd" in given:
            raise bad("detection_sd: beside detection_threshold", "It is the softness of that threshold.")
        sds, ratios = (np.size(np.asarray(value)) for value in (self.range_noise, self.range_noise_snr))
        if self.range_noise_snr is not None and (self.range_noise is None or sds != ratios):
            raise bad(f"range_noise_snr: one ratio for each of the {sds} deviations in range_noise, not {ratios}")
        if self.range_noise_snr is None and isinstance(self.range_noise, tuple):
            raise bad("range_noise: one number, or range_noise_snr with a ratio for each")
        if isinstance(self.range_noise_snr, tuple) and len(set(self.range_noise_snr)) < ratios:
            raise bad("range_noise_snr: ratios that differ")
        if not self.has_footprint:
            for name in ("returns", "sub_rays", "pulse_duration"):
                if name in given and getattr(self, name) != "strongest":
                    raise bad(f"{name}: beside beam_divergence", "A ray without width has one return.")
        return self

    @property
    def divergence(self) -> tuple[float, float]:
        """Full angles of the beam across azimuth and across elevation, rad."""
        value = self.beam_divergence
        return value if isinstance(value, tuple) else (value, value)

    @property
    def has_footprint(self) -> bool:
        """Whether each ray is a bundle."""
        return self.beam_diameter > 0.0 or any(angle > 0.0 for angle in self.divergence)

    @property
    def alters_returns(self) -> bool:
        """Whether the measured returns differ from the true ones, apart from distortion and the standard chain."""
        if self.model == "dropoff":
            return self.dropoff_general_rate > 0.0 or self.dropoff_zero_intensity > 0.0 or self.noise_stddev > 0.0
        return (
            any(getattr(self, name) is not None for name in (
                "intensity_max", "detection_threshold", "range_noise", "channel_bias", "reference_snr"))
            or self.intensity_noise > 0.0 or self.drop_rate > 0.0 or self.has_footprint
        )  # fmt: skip


__all__ = ["FIELDS", "PER_RAY", "LidarCfg", "LidarData"]
