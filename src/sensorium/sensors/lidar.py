"""Lidar: a scan of rays that fire one after the other, with what a receiver makes of the light that comes back.

Axes: ``[env, mount, ray]`` (no mount axis for a singular selector); with two returns per ray ``[env, mount, ray,
return]``. Rays are in the order in which they fire; the last one fires at the capture. A scan is a window of the
pattern's time table that ends there and always has the same number of rays.

Truth is the scan as it would be if all rays fired at the capture, without noise. The measured scan is distorted: each
ray leaves from where the mount is when it fires, at shapes where they are then, and its point is shown in the sensor's
frame as if the sensor had stood still.

Power that comes back from an extended target of reflectance rho at distance R under the angle of incidence theta is
P = rho |cos theta| exp(-2 alpha R) / R^2 up to a factor. The factor is such that `reference_reflectance` at
`reference_range`, head-on, gives the signal-to-noise ratio `reference_snr`. Source: the lidar equation for a beam that
the target fills (e.g. W. Wagner et al., ISPRS J. 60, 2006).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray
from pydantic import field_validator, model_validator
from torch import Tensor

from sensorium.cfg import Amount, Float, bad
from sensorium.compute import Rows, recorded
from sensorium.errors import ConfigError, Fault, SelectionError, listed, nearest
from sensorium.geometry.trace import Bundle, Pose, place_ray, pose_at, ray_of, ray_time, scan_begin, slot_of
from sensorium.measurement.pipeline import Hooks
from sensorium.measurement.record import Record, Timeline
from sensorium.patterns import PatternField, Rays, SpinningPatternCfg
from sensorium.random import F32, Choice, Normal, Uniform, draw, normal_table, philox, word_to_normal, word_to_uniform
from sensorium.readings import DebugShape
from sensorium.sensors.base import SimpleSensor
from sensorium.sensors.ray_cfg import RayCfg
from sensorium.spec import BODY_POSE, SHAPES, Field, Requirement, exact_fraction
from sensorium.world.ray_cast import RayCast

wp.set_module_options({"fuse_fp": False, "enable_backward": False})

LIGHT_SPEED = 299_792_458.0
"""Speed of light, m/s."""
MOST_SUB_RAYS = 19
NEAREST = wp.constant(1.0e-3)
"""Power is that of this distance where a target is nearer, m: 1/R^2 has no end."""
Sorted = wp.types.vector(length=MOST_SUB_RAYS, dtype=wp.float32)
Order = wp.types.vector(length=MOST_SUB_RAYS, dtype=wp.int32)
STRONGEST, LAST, DUAL = 0, 1, 2
RETURNS = {"strongest": STRONGEST, "last": LAST, "dual": DUAL}
FIXED: int = wp.constant(-1)
"""Kind of a channel bias that is not drawn."""


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
    cos_incidence: Annotated[Tensor, Field("1", kind="derived")]
    """Cosine of the angle between the outward normal and the way back to the sensor; 0 for no return."""
    normals_w: Annotated[Tensor, Field("1", (3,), frame="world", kind="derived")]
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
CARLA = ("atmosphere_attenuation_rate", "dropoff_general_rate", "dropoff_intensity_limit", "dropoff_zero_intensity",
         "noise_stddev")  # fmt: skip
"""Fields that only ``model="carla"`` has, by CARLA's names."""


class LidarCfg(RayCfg[LidarData]):
    """Configuration of a lidar. Knobs such as `noise` act on the distances, m, after all else; points follow.

    Without any imperfection the measured scan is the true one.
    """

    pattern: PatternField = SpinningPatternCfg.vlp16()
    """The rays, and when they fire, in the sensor's frame: x forward, y left, z up."""
    scan_duration: Float | None = None
    """Length of the scan that ends at the capture, s; None is the time between samples. Not for patterns without times,
    which are whole at each sample."""
    motion_distortion: bool = True
    """Whether each ray of the measured scan leaves when it fires, instead of all at the capture. It needs a pattern
    with times."""
    fields: tuple[str, ...] | Literal["all"] = ("distances", "points_b", "intensity")
    """What is computed; ``"all"`` is all that the pattern has."""
    max_distance: Float = 200.0
    """A farther hit is a miss, m."""
    model: Literal["physical", "carla"] = "physical"
    """How light comes back: ``"carla"`` is that simulator's, where distance alone counts."""
    reflectance: dict[str, Float] = {}
    """Reflectance by semantic label, or by name or pattern of geoms or bodies, instead of the shapes' own; later
    entries win. 1 is a white matt surface; retro-reflectors are above."""
    intensity_mode: Literal["calibrated", "raw"] = "calibrated"
    """``"calibrated"``: rho |cos| exp(-2 alpha R), as devices that undo 1/R^2 show it. ``"raw"``: received power as a
    share of the reference's."""
    intensity_scale: Float = 1.0
    """Factor on intensities, also on CARLA's: 100 shows a white surface as 100."""
    intensity_max: Float | None = None
    """Greatest measured intensity: retro-reflectors saturate the receiver."""
    intensity_noise: Float = 0.0
    """Standard deviation of a measured intensity, as a share of it."""
    attenuation: Float = 0.0
    """Extinction alpha of the air, 1/m: fog, rain, dust. Visibility V is about 3.9 / alpha."""
    reference_snr: Float | None = None
    """Signal-to-noise ratio (of powers, no dB) of the reference target; None leaves noise and detection without it."""
    reference_reflectance: Float = 0.8
    """Reflectance of the reference target."""
    reference_range: Float = 100.0
    """Its distance, m."""
    detection_threshold: Float | None = None
    """Signal-to-noise ratio, dB, at which half of the returns are noticed; None notices all. It needs
    `reference_snr`."""
    detection_sd: Float = 1.0
    """Softness s of that threshold, dB: a return is noticed with probability Phi((SNR - threshold) / s)."""
    drop_rate: Float = 0.0
    """Probability that a return is lost, whatever its strength."""
    range_noise: Float | tuple[Float, ...] | None = None
    """Standard deviation of a distance, m: one number, or several for the ratios `range_noise_snr`."""
    range_noise_snr: Float | tuple[Float, ...] | None = None
    """Signal-to-noise ratios of `range_noise`. One: the deviation goes with 1/sqrt(SNR). Several: it is interpolated
    between them, in logarithms, and constant beyond."""
    channel_bias: Amount | None = None
    """Error of the distances of each channel, m: one number, one per channel, or a distribution drawn per channel,
    mount and env at each reset."""
    beam_divergence: Float | tuple[Float, Float] = 0.0
    """Full angle of the beam at half its greatest power, rad: one, or across azimuth and across elevation. Above 0 each
    ray is a bundle of `sub_rays`."""
    beam_diameter: Float = 0.0
    """Diameter of the beam at half its greatest power where it leaves, m."""
    sub_rays: Literal[7, 19] = 7
    """Rays in the bundle, on a hexagonal grid of a half (7) or 0.4 (19) of the beam's width, with Gaussian weights."""
    returns: Literal["strongest", "last", "dual"] = "strongest"
    """Which echo of a bundle is shown. ``"dual"``: the strongest and the last, on an axis of 2; where these are one,
    the second strongest, or none."""
    pulse_duration: Float = 5.0e-9
    """Length t_p of a pulse, s: echoes less than c t_p / 2 behind each other become one in between (a mixed pixel)."""
    atmosphere_attenuation_rate: Float = 0.004
    """CARLA: intensity is exp(-a d) with this a, 1/m."""
    dropoff_general_rate: Float = 0.45
    """CARLA: share of rays that never leave."""
    dropoff_intensity_limit: Float = 0.8
    """CARLA: points above this intensity are kept."""
    dropoff_zero_intensity: Float = 0.4
    """CARLA: probability that a point of intensity 0 is lost; linear from there to the limit, where none is."""
    noise_stddev: Float = 0.0
    """CARLA: standard deviation of the points along their rays, m."""

    @field_validator("fields")
    @classmethod
    def _known(cls, value: tuple[str, ...] | str) -> tuple[str, ...] | str:
        if not isinstance(value, str):
            for name in value:
                if name not in FIELDS:
                    raise bad(f"fields among {', '.join(FIELDS)}", nearest(name, FIELDS).strip())
            if not {"distances", "points_b"} & set(value):
                raise bad("distances or points_b among the fields", "Without them a miss cannot be told.")
        return value

    @field_validator("scan_duration", "intensity_scale", "reference_snr", "reference_reflectance", "reference_range",
                     "pulse_duration", "intensity_max")  # fmt: skip
    @classmethod
    def _positive(cls, value: float | None) -> float | None:
        if value is not None and not 0.0 < value < math.inf:
            raise bad("a finite number greater than 0")
        return value

    @field_validator("intensity_noise", "attenuation", "detection_sd", "beam_diameter", "noise_stddev",
                     "atmosphere_attenuation_rate", "dropoff_intensity_limit")  # fmt: skip
    @classmethod
    def _not_negative(cls, value: float) -> float:
        if not 0.0 <= value < math.inf:
            raise bad("a finite number >= 0")
        return value

    @field_validator("drop_rate", "dropoff_general_rate", "dropoff_zero_intensity")
    @classmethod
    def _probability(cls, value: float) -> float:
        if not 0.0 <= value <= 1.0:
            raise bad("a probability from 0 to 1")
        return value

    @field_validator("detection_threshold")
    @classmethod
    def _finite(cls, value: float | None) -> float | None:
        if value is not None and not math.isfinite(value):
            raise bad("a finite number, dB")
        return value

    @field_validator("reflectance")
    @classmethod
    def _reflectances(cls, value: dict[str, float]) -> dict[str, float]:
        if not all(0.0 <= share < math.inf for share in value.values()):
            raise bad("reflectances >= 0")
        return value

    @field_validator("beam_divergence")
    @classmethod
    def _divergence(cls, value: Any) -> Any:
        if not all(0.0 <= angle < 0.5 for angle in np.atleast_1d(value)):
            raise bad("angles from 0 to 0.5, rad", "0.003 is 3 mrad, 0.17 degrees.")
        return value

    @field_validator("range_noise", "range_noise_snr")
    @classmethod
    def _table(cls, value: Any) -> Any:
        if value is not None and not (
            np.size(value) > 0 and all(0.0 < part < math.inf for part in np.atleast_1d(value))
        ):
            raise bad("numbers greater than 0")
        return value

    @field_validator("channel_bias")
    @classmethod
    def _bias(cls, value: Any) -> Any:
        if isinstance(value, tuple) and not all(isinstance(part, float) for part in value):
            raise bad("a number, one number per channel, or a distribution")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Any:
        given = self.model_fields_set
        for other, names in (("physical", CARLA), ("carla", PHYSICAL)):
            wrong = [name for name in names if name in given]
            if self.model == other and wrong:
                model = "carla" if other == "physical" else "physical"
                raise bad(f'{wrong[0]}: nothing, for model="{other}" does not know it', f'Give model="{model}".')
        if self.reference_snr is None:
            for name in ("detection_threshold", "range_noise_snr"):
                if getattr(self, name) is not None:
                    raise bad(f"{name}: beside reference_snr", "The ratio of a known target says what others give.")
        sds, ratios = (np.size(np.asarray(value)) for value in (self.range_noise, self.range_noise_snr))
        if self.range_noise_snr is not None and (self.range_noise is None or sds != ratios):
            raise bad(f"range_noise_snr: one ratio for each of the {sds} deviations in range_noise, not {ratios}")
        if self.range_noise_snr is None and isinstance(self.range_noise, tuple):
            raise bad("range_noise: one number, or range_noise_snr with a ratio for each")
        if isinstance(self.range_noise_snr, tuple) and len(set(self.range_noise_snr)) < ratios:
            raise bad("range_noise_snr: ratios that differ")
        if not self.has_footprint:
            for name in ("returns", "sub_rays", "beam_diameter"):
                if name in given and getattr(self, name) not in ("strongest", 0.0):
                    raise bad(f"{name}: beside beam_divergence", "A ray without width has one return.")
        return self

    @property
    def selected(self) -> tuple[str, ...]:
        """The fields that are computed, in the order of `LidarData`, as far as the pattern has them."""
        return FIELDS if self.fields == "all" else tuple(name for name in FIELDS if name in self.fields)

    @property
    def divergence(self) -> tuple[float, float]:
        """Full angles of the beam across azimuth and across elevation, rad."""
        value = self.beam_divergence
        return value if isinstance(value, tuple) else (value, value)

    @property
    def has_footprint(self) -> bool:
        """Whether each ray is a bundle."""
        return any(angle > 0.0 for angle in self.divergence)

    @property
    def alters_returns(self) -> bool:
        """Whether the measured returns differ from the true ones, apart from distortion and the standard chain."""
        if self.model == "carla":
            return self.dropoff_general_rate > 0.0 or self.dropoff_zero_intensity > 0.0 or self.noise_stddev > 0.0
        return (
            any(getattr(self, name) is not None for name in (
                "intensity_max", "detection_threshold", "range_noise", "channel_bias", "reference_snr"))
            or self.intensity_noise > 0.0 or self.drop_rate > 0.0 or self.has_footprint
        )  # fmt: skip


# Kernels --------------------------------------------------------------------------------------------------------------


@wp.struct
class Model:
    """How light comes back; see `LidarCfg` for most.

    Attributes:
        carla: 1 for CARLA's model.
        range_x: logarithms of signal-to-noise ratios, rising; empty where the deviation is the same for all.
        range_y: logarithms of deviations; empty for none.
        power: power of the reference target.
        snr: its ratio; 0 where that is not known.
        threshold: dB; -inf notices all.
        depth: c t_p / 2, m.
        weights: of the sub-rays, which sum up to 1.
        bias_kind: kind of the law of channel biases, `FIXED` for numbers.
        bias_first: its first number per channel; empty for no bias.
    """

    carla: wp.int32
    is_raw: wp.int32
    returns: wp.int32
    scale: wp.float32
    most: wp.float32
    intensity_noise: wp.float32
    attenuation: wp.float32
    power: wp.float32
    snr: wp.float32
    threshold: wp.float32
    threshold_sd: wp.float32
    drop: wp.float32
    limit: wp.float32
    zero: wp.float32
    sd: wp.float32
    depth: wp.float32
    range_x: wp.array[wp.float32]
    range_y: wp.array[wp.float32]
    weights: wp.array[wp.float32]
    bias_kind: wp.int32
    bias_joint: wp.int32
    bias_first: wp.array[wp.float32]
    bias_second: wp.array[wp.float32]
    bias_choices: wp.array2d[wp.float32]
    key0: wp.uint32
    key1: wp.uint32
    bias_key0: wp.uint32
    bias_key1: wp.uint32


@wp.struct
class Tables:
    """What is known of shapes and of rays before anything is cast.

    Attributes:
        reflectance: of each shape.
        semantic: semantic id of each shape.
        channel: of each ray of a period; empty for none.
        azimuth: of each ray of a period, rad.
        elevation: likewise.
    """

    reflectance: wp.array[wp.float32]
    semantic: wp.array[wp.int32]
    channel: wp.array[wp.int32]
    azimuth: wp.array[wp.float32]
    elevation: wp.array[wp.float32]


@wp.struct
class Found:
    """What was met `[env, mount, ray]`; the sub-rays of a ray are neighbours."""

    distance: wp.array3d[wp.float32]
    cosine: wp.array3d[wp.float32]
    shape: wp.array3d[wp.int32]
    normal: wp.array3d[wp.vec3]


@wp.struct
class Scan:
    """The fields of a record `[env, mount, ray * returns]` or `[env, mount, ray]`; empty ones are left out."""

    distances: wp.array3d[wp.float32]
    points_b: wp.array3d[wp.vec3]
    points_w: wp.array3d[wp.vec3]
    intensity: wp.array3d[wp.float32]
    cos_incidence: wp.array3d[wp.float32]
    normals_w: wp.array3d[wp.vec3]
    geom_ids: wp.array3d[wp.int32]
    semantic_ids: wp.array3d[wp.int32]
    time_offset: wp.array3d[wp.float32]
    channel: wp.array3d[wp.int32]
    azimuth: wp.array3d[wp.float32]
    elevation: wp.array3d[wp.float32]
    returns: wp.int32
    miss: wp.float32
    moves: wp.int32


@wp.func
def _write_ray(out: Scan, tables: Tables, bundle: Bundle, dt: wp.float64, captured: int, env: int, mount: int, ray: int,
               place: int, index: int) -> None:  # fmt: skip
    """Write what belongs to a ray whatever comes back."""
    if out.time_offset.shape[0] > 0:
        time = wp.float32(0.0)
        if bundle.times.shape[0] > 0:
            time = ray_time(bundle, place, captured, dt)
        out.time_offset[env, mount, ray] = time
    if out.channel.shape[0] > 0:
        out.channel[env, mount, ray] = tables.channel[index]
    if out.azimuth.shape[0] > 0:
        out.azimuth[env, mount, ray] = tables.azimuth[index]
    if out.elevation.shape[0] > 0:
        out.elevation[env, mount, ray] = tables.elevation[index]


@wp.func
def _write_points(out: Scan, bundle: Bundle, pose: Pose, captured: int, earliest: int, env: int, mount: int,
                  column: int, place: int, index: int, t: float) -> None:  # fmt: skip
    """Write where a ray of a length ends, in the sensor's frame and in the world."""
    if out.points_b.shape[0] == 0 and out.points_w.shape[0] == 0:
        return
    inside = wp.vec3(wp.inf, wp.inf, wp.inf)
    outside = inside
    if wp.isfinite(t):
        s0, d0 = ray_of(bundle, env, index)
        inside = s0 + t * d0
        if out.points_w.shape[0] > 0:
            now = slot_of(captured, pose.slots)
            p = pose.pos[env, now, mount]
            q = pose.quat[env, now, mount]
            if out.moves != 0:
                p, q = pose_at(pose, env, mount, captured, earliest, ray_time(bundle, place, captured, pose.dt))
            s, d = place_ray(pose, env, mount, p, q, s0, d0)
            outside = s + t * d
    if out.points_b.shape[0] > 0:
        out.points_b[env, mount, column] = inside
    if out.points_w.shape[0] > 0:
        out.points_w[env, mount, column] = outside


@wp.func
def _write_return(out: Scan, tables: Tables, env: int, mount: int, column: int, t: float, intensity: float,
                  cosine: float, shape: int, normal: wp.vec3) -> None:  # fmt: skip
    """Write a return; none where its distance is not finite."""
    is_hit = wp.isfinite(t)
    if out.distances.shape[0] > 0:
        out.distances[env, mount, column] = wp.where(is_hit, t, out.miss)
    if out.intensity.shape[0] > 0:
        out.intensity[env, mount, column] = wp.where(is_hit, intensity, 0.0)
    if out.cos_incidence.shape[0] > 0:
        out.cos_incidence[env, mount, column] = wp.where(is_hit, cosine, 0.0)
    if out.normals_w.shape[0] > 0:
        out.normals_w[env, mount, column] = wp.where(is_hit, normal, wp.vec3())
    if out.geom_ids.shape[0] > 0:
        out.geom_ids[env, mount, column] = wp.where(is_hit, shape, -1)
    if out.semantic_ids.shape[0] > 0:
        label = wp.int32(0)
        if is_hit:
            label = tables.semantic[shape]
        out.semantic_ids[env, mount, column] = label


@wp.func
def _power(model: Model, reflectance: float, cosine: float, t: float) -> F32:
    """Return the power that comes back, up to a factor."""
    r = wp.max(t, NEAREST)
    return reflectance * wp.abs(cosine) * wp.exp(-2.0 * model.attenuation * t) / (r * r)


@wp.func
def _strength(model: Model, power: float, t: float) -> F32:
    """Return the intensity of a return, without noise and without limit."""
    if model.is_raw != 0:
        return model.scale * power / model.power
    r = wp.max(t, NEAREST)
    return model.scale * power * r * r


@wp.func
def _range_sd(model: Model, snr: float) -> F32:
    """Return the standard deviation of a distance, m."""
    count = model.range_y.shape[0]
    if count == 0:
        return 0.0
    if model.range_x.shape[0] == 0:
        return wp.exp(model.range_y[0])
    x = wp.log(snr)
    if count == 1:
        return wp.exp(model.range_y[0] - 0.5 * (x - model.range_x[0]))
    if x <= model.range_x[0]:
        return wp.exp(model.range_y[0])
    for k in range(1, count):
        if x < model.range_x[k]:
            share = (x - model.range_x[k - 1]) / (model.range_x[k] - model.range_x[k - 1])
            return wp.exp(model.range_y[k - 1] + share * (model.range_y[k] - model.range_y[k - 1]))
    return wp.exp(model.range_y[count - 1])


@wp.func
def _channel_bias(model: Model, channel: int, mount: int, env: int, episode: int, table: wp.array[wp.vec3]) -> F32:
    """Return the error of a channel, m: the same at every sample of an episode, without being kept anywhere."""
    channels = model.bias_first.shape[0]
    if model.bias_kind == FIXED:
        return model.bias_first[channel]
    element = channel
    if model.bias_joint != 0:  # a choice among vectors picks one vector, not one value per channel
        element = 0
    block = wp.uint32(mount * ((channels + 3) / 4) + element / 4)
    words = philox(wp.uint32(0), wp.uint32(env), wp.uint32(episode), block, model.bias_key0, model.bias_key1)
    return draw(
        model.bias_kind, model.bias_first[channel], model.bias_second[channel], model.bias_choices[channel],
        words[element % 4], table,
    )  # fmt: skip


@wp.func
def _is_noticed(model: Model, power: float, need: float) -> bool:
    """Return whether a return of a power exceeds a threshold in dB; without a reference all do."""
    if model.snr == 0.0:
        return True
    if power <= 0.0:
        return False
    return 10.0 * wp.log10(model.snr * power / model.power) > need


@wp.func
def _chosen(model: Model, powers: Sorted, echoes: int, strongest: int, number: int, need: float) -> int:
    """Return which echo is shown as a return, -1 for none; `number` is 1 for the second of two."""
    chosen = wp.int32(strongest)
    if model.returns == LAST or number == 1:
        chosen = wp.int32(-1)
        for j in range(echoes):
            if _is_noticed(model, powers[j], need):
                chosen = j
        if number == 1 and chosen == strongest:  # then the second strongest
            chosen = wp.int32(-1)
            for j in range(echoes):
                if j != strongest:
                    if powers[j] > powers[wp.max(chosen, 0)] or chosen < 0:
                        chosen = j
    return chosen


@wp.kernel
def _true_scan(
    rows: Rows,
    clock: wp.array[wp.int32],
    reset_tick: wp.array[wp.int32],
    model: Model,
    tables: Tables,
    bundle: Bundle,
    pose: Pose,
    found: Found,
    out: Scan,
) -> None:
    """Describe what the rays of a scan meet, without any error; `found` and `out` may share memory."""
    i, mount, ray = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    captured = clock[0] - clock[2]
    place = scan_begin(bundle, captured) + ray
    index = (place % bundle.total + bundle.total) % bundle.total
    _write_ray(out, tables, bundle, pose.dt, captured, env, mount, ray, place, index)
    t = found.distance[env, mount, ray]
    cosine = found.cosine[env, mount, ray]
    shape = found.shape[env, mount, ray]
    normal = wp.vec3()
    if found.normal.shape[0] > 0:
        normal = found.normal[env, mount, ray]
    intensity = wp.float32(0.0)
    if wp.isfinite(t):
        if model.carla != 0:
            intensity = model.scale * wp.exp(-model.attenuation * t)
        else:
            intensity = _strength(model, _power(model, tables.reflectance[shape], cosine, t), t)
    earliest = reset_tick[env] - clock[2]
    for e in range(out.returns):
        if e > 0:
            t = wp.inf
        column = ray * out.returns + e
        _write_return(out, tables, env, mount, column, t, intensity, cosine, shape, normal)
        _write_points(out, bundle, pose, captured, earliest, env, mount, column, place, index, t)


@wp.kernel
def _measured_scan(
    rows: Rows,
    clock: wp.array[wp.int32],
    reset_tick: wp.array[wp.int32],
    episode: wp.array[wp.int32],
    normals: wp.array[wp.vec3],
    model: Model,
    tables: Tables,
    bundle: Bundle,
    pose: Pose,
    found: Found,
    out: Scan,
) -> None:
    """Describe what a receiver notices of what the rays, or bundles of rays, of a scan meet."""
    i, mount, ray = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    captured = clock[0] - clock[2]
    earliest = reset_tick[env] - clock[2]
    place = scan_begin(bundle, captured) + ray
    index = (place % bundle.total + bundle.total) % bundle.total
    _write_ray(out, tables, bundle, pose.dt, captured, env, mount, ray, place, index)
    # Echoes: hits in the order of their distance, those close behind each other as one
    subs = model.weights.shape[0]
    first = ray * subs
    depths = Sorted()
    order = Order()
    hits = wp.int32(0)
    for k in range(subs):
        t = found.distance[env, mount, first + k]
        if wp.isfinite(t):
            at = hits
            while at > 0:
                if depths[at - 1] <= t:
                    break
                depths[at] = depths[at - 1]
                order[at] = order[at - 1]
                at -= 1
            depths[at] = t
            order[at] = k
            hits += 1
    powers = Sorted()  # of each echo; its distance goes to `depths`, its strongest sub-ray to `order`
    echoes = wp.int32(0)
    total = wp.float32(0.0)
    moment = wp.float32(0.0)
    peak = wp.float32(-1.0)
    best = wp.int32(0)
    for j in range(hits):
        k = order[j]
        t = depths[j]
        share = model.weights[k]
        if model.carla == 0:
            reflectance = tables.reflectance[found.shape[env, mount, first + k]]
            share = share * _power(model, reflectance, found.cosine[env, mount, first + k], t)
        total += share
        moment += share * t
        if share > peak:
            peak = share
            best = k
        ends = j + 1 == hits
        if not ends:
            ends = depths[j + 1] - t > model.depth
        if ends:
            mean = t
            if subs > 1 and total > 0.0:
                mean = moment / total
            depths[echoes] = mean
            order[echoes] = best
            powers[echoes] = total
            echoes += 1
            total = 0.0
            moment = 0.0
            peak = -1.0
    strongest = wp.int32(-1)
    for j in range(echoes):
        if powers[j] > powers[wp.max(strongest, 0)] or strongest < 0:
            strongest = j
    for e in range(out.returns):
        column = ray * out.returns + e
        element = wp.uint32((mount * bundle.count + ray) * out.returns + e)
        words = philox(wp.uint32(captured), wp.uint32(env), wp.uint32(episode[env]), element, model.key0, model.key1)
        lost = word_to_uniform(words[2]) < model.drop
        t = wp.float32(wp.inf)
        intensity = wp.float32(0.0)
        k = wp.int32(0)
        if model.carla != 0:
            if echoes > 0 and not lost:
                t = depths[0]
                strength = wp.exp(-model.attenuation * t)
                intensity = model.scale * strength
                if strength <= model.limit:
                    share = 1.0 - model.zero
                    if model.limit > 0.0:
                        share = share + model.zero / model.limit * strength
                    lost = word_to_uniform(words[1]) >= share
                if lost:
                    t = wp.inf
                else:
                    t = wp.max(t + model.sd * word_to_normal(words[0], normals), 0.0)
        else:
            need = model.threshold - model.threshold_sd * word_to_normal(words[1], normals)
            chosen = _chosen(model, powers, echoes, strongest, e, need)
            if chosen >= 0 and not lost:
                power = powers[chosen]
                if _is_noticed(model, power, need):
                    t = depths[chosen]
                    k = order[chosen]
                    intensity = _strength(model, power, t)
                    intensity = intensity * (1.0 + model.intensity_noise * word_to_normal(words[3], normals))
                    intensity = wp.clamp(intensity, 0.0, model.most)
                    shift = _range_sd(model, model.snr * power / model.power) * word_to_normal(words[0], normals)
                    if model.bias_first.shape[0] > 0:
                        channel = wp.int32(0)
                        if tables.channel.shape[0] > 0:
                            channel = tables.channel[index]
                        shift += _channel_bias(model, channel, mount, env, episode[env], normals)
                    t = wp.max(t + shift, 0.0)
        at = first + k
        normal = wp.vec3()
        if found.normal.shape[0] > 0:
            normal = found.normal[env, mount, at]
        _write_return(
            out, tables, env, mount, column, t, intensity, found.cosine[env, mount, at], found.shape[env, mount, at],
            normal,
        )  # fmt: skip
        _write_points(out, bundle, pose, captured, earliest, env, mount, column, place, index, t)


@wp.kernel
def _finish(
    rows: Rows,
    clock: wp.array[wp.int32],
    reset_tick: wp.array[wp.int32],
    bundle: Bundle,
    pose: Pose,
    distance_in: wp.array3d[wp.float32],
    out: Scan,
) -> None:
    """Put points where distances end, and take back the returns whose distances are gone."""
    i, mount, column = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    captured = clock[0] - clock[2]
    place = scan_begin(bundle, captured) + column / out.returns
    index = (place % bundle.total + bundle.total) % bundle.total
    t = distance_in[env, mount, column]
    earliest = reset_tick[env] - clock[2]
    _write_points(out, bundle, pose, captured, earliest, env, mount, column, place, index, t)
    if wp.isfinite(t):
        return
    if out.distances.shape[0] > 0:
        out.distances[env, mount, column] = out.miss
    if out.intensity.shape[0] > 0:
        out.intensity[env, mount, column] = 0.0
    if out.cos_incidence.shape[0] > 0:
        out.cos_incidence[env, mount, column] = 0.0
    if out.normals_w.shape[0] > 0:
        out.normals_w[env, mount, column] = wp.vec3()
    if out.geom_ids.shape[0] > 0:
        out.geom_ids[env, mount, column] = -1
    if out.semantic_ids.shape[0] > 0:
        out.semantic_ids[env, mount, column] = 0


# Sensor ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """Which rays of a pattern a scan has.

    Attributes:
        count: rays of a scan.
        duration: its length, s.
        moves: whether scans begin at different places of the pattern; where not, each is one whole period.
        oldest: greatest age of a ray at the capture, s.
    """

    count: int
    duration: float
    moves: bool
    oldest: float


class Lidar(SimpleSensor[LidarCfg, LidarData]):
    """Lidar at one or several mounts."""

    requires: ClassVar[tuple[Requirement, ...]] = (BODY_POSE, SHAPES)
    checks_state: ClassVar[bool] = True

    @cached_property
    def pattern(self) -> Rays:
        """The rays of one period of the pattern."""
        rays: Rays = self.cfg.pattern.rays("cpu")
        return rays

    @cached_property
    def window(self) -> Window:
        """Which of them a scan has."""
        cfg, rays, title = self.cfg, self.pattern, f"LidarCfg({self.name!r})"
        if rays.times is None or rays.period is None:
            for name in ("scan_duration", "motion_distortion"):
                if name in cfg.model_fields_set and getattr(cfg, name):
                    expected = "nothing, for all rays of this pattern fire at once"
                    fix = "Patterns with times: SpinningPatternCfg, RisleyPatternCfg, TablePatternCfg and others."
                    raise ConfigError.single(title, name, getattr(cfg, name), expected, fix)
            return Window(len(rays), 0.0, False, 0.0)
        every = Fraction(self.rate.numerator, self.rate.denominator) * self.clock.dt_exact
        duration = float(every) if cfg.scan_duration is None else cfg.scan_duration
        period, times = rays.period, rays.times.numpy()
        turns = every / exact_fraction(period)
        is_whole = abs(duration - period) < 1e-9 * period
        if is_whole and turns.denominator == 1:
            return Window(len(rays), period, False, period - float(times[0]))
        count = round(len(rays) * duration / period)
        if count < 1:
            fix = f"Its rays are {period / len(rays):g} s apart."
            raise ConfigError.single(title, "scan_duration", duration, "time for at least one ray of the pattern", fix)
        even = np.arange(len(rays)) * (period / len(rays))
        if (times - even).max() > self.clock.dt:
            fix = f"Let scan_duration be {period:g} s, and sample every {period:g} s or a multiple of it."
            expected = "whole periods, for the rays of this pattern do not fire at an even rate"
            raise ConfigError.single(title, "scan_duration", duration, expected, fix)
        oldest = (count + 0.5) * period / len(rays) + max(float((even - times).max()), 0.0)
        if count * period / len(rays) == duration and float(every / self.clock.dt_exact).is_integer():
            oldest = count * period / len(rays) + max(float((even - times).max()), 0.0)
        return Window(count, duration, True, oldest)

    @cached_property
    def distorts(self) -> bool:
        """Whether the rays of the measured scan leave when they fire."""
        return self.cfg.motion_distortion and self.window.duration > 0.0

    @property
    def _has_chain(self) -> bool:
        """Whether the standard chain or a stage alters the distances."""
        return not self.cfg.is_clean

    def fields(self) -> Mapping[str, Field]:
        """Return the selected fields, with the number of rays."""
        declared, count = super().fields(), self.window.count
        found = {}
        for name in self.cfg.selected:
            if name == "channel" and self.pattern.channels is None:
                if self.cfg.fields == "all":
                    continue
                fix = "Leave it out of fields."
                title = f"LidarCfg({self.name!r})"
                raise ConfigError.single(title, "fields", name, "fields that the pattern has; it has no channels", fix)
            field = declared[name]
            shape: tuple[int, ...] = (count,)
            axes: tuple[str, ...] = ("ray",)
            if self.returns > 1 and name not in PER_RAY:
                shape, axes = (count, self.returns), ("ray", "return")
            vector = ("xyz",) if field.shape == (3,) else ()
            found[name] = Field(
                field.unit, (*shape, *field.shape), (*axes, *vector), field.dtype, field.frame, field.kind, field.role
            )
        return found

    def _hooks(self) -> Hooks:
        hooks = super()._hooks()
        if self.distorts or self.cfg.alters_returns:
            hooks.raw = None
        else:
            hooks.fused = None
        if not self.distorts:
            hooks.observe = None
        if not self._has_chain:
            hooks.derive = None
        return hooks

    def notes(self) -> Mapping[str, str]:
        """Return how long a scan is, and whether it is distorted."""
        scan = f"{self.window.count} rays"
        if self.window.duration:
            scan += f" in {self.window.duration:g} s"
        return {"scan": scan, "motion distortion": "yes" if self.distorts else "no"}

    # Set-up -----------------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        """Choose the shapes, and make the memory of a scan."""
        cfg, rays, window = self.cfg, self.pattern, self.window
        starts, directions = rays.starts.numpy(), rays.directions.numpy()
        slots = math.ceil(window.oldest / self.clock.dt - 1e-6) + 1 if self.distorts else 1
        common: dict[str, Any] = {
            "targets": cfg.seen,
            "config": f"{type(cfg).__name__}({cfg.label!r})",
            "limits": cfg.limits,
            "period": rays.period or 0.0,
            "per_tick": len(rays) / (rays.period or 1.0) * self.clock.dt if window.moves else 0.0,
        }
        context = (self.rays, self.engine, self.compute_on, self.clock, self.mount)
        times = None if rays.times is None else rays.times.numpy()
        self._cast = RayCast(
            *context, starts=starts, directions=directions, times=times, count=window.count, slots=slots,
            new_state=self.new_state if slots > 1 else None, **common,
        )  # fmt: skip
        self._beams, self._weights = self._cast, np.ones(1)
        if cfg.has_footprint:
            sub_starts, sub_directions, self._weights = self._bundles(starts, directions)
            subs = len(self._weights)
            self._beams = RayCast(
                *context, starts=sub_starts, directions=sub_directions, group=subs, motion=self._cast,
                times=None if times is None else np.repeat(times, subs), count=window.count * subs, **common,
            )  # fmt: skip
        self._tables = self._make_tables()
        self._model = self._make_model()
        self._scratch: dict[tuple[str, int], Tensor] = {}

    def _bundles(
        self, starts: NDArray[Any], directions: NDArray[Any]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return starts and directions of the sub-rays of all rays, neighbours of each other, and their weights."""
        step, turns = (0.5, ((6, 1.0, 0.0),))
        if self.cfg.sub_rays == 19:
            step, turns = 0.4, ((6, 1.0, 0.0), (6, math.sqrt(3.0), math.pi / 6.0), (6, 2.0, 0.0))  # type: ignore[assignment]
        offsets = [(0.0, 0.0)]
        for count, radius, phase in turns:
            for k in range(count):
                angle = phase + 2.0 * math.pi * k / count
                offsets.append((step * radius * math.cos(angle), step * radius * math.sin(angle)))
        grid = np.array(offsets)
        weights = np.exp(-4.0 * math.log(2.0) * (grid**2).sum(axis=1))
        weights /= weights.sum()
        d = np.asarray(directions, np.float64)
        left = np.cross([0.0, 0.0, 1.0], d)
        straight = np.linalg.norm(left, axis=1) < 1e-6
        left[straight] = (0.0, 1.0, 0.0)
        left /= np.linalg.norm(left, axis=1, keepdims=True)
        up = np.cross(d, left)
        across, along = (grid[:, k, None] for k in range(2))  # [sub, 1]
        spread = np.tan(np.array(self.cfg.divergence))
        aside = across * spread[0] * left[:, None] + along * spread[1] * up[:, None]
        shift = self.cfg.beam_diameter * (across * left[:, None] + along * up[:, None])
        sub_directions = d[:, None] + aside
        sub_starts = np.asarray(starts, np.float64)[:, None] + shift
        return sub_starts.reshape(-1, 3), sub_directions.reshape(-1, 3), weights

    def _array(self, values: Any, dtype: Any = wp.float32) -> Any:
        return wp.array(np.asarray(values, wp.dtype_to_numpy(dtype)), dtype=dtype, device=self.compute_on.wp_device)

    def _make_tables(self) -> Any:
        rays, tables = self.pattern, Tables()
        tables.reflectance = self._array(self._reflectances())
        tables.semantic = self._array(self.rays.semantic_ids, wp.int32)
        channels = np.zeros(0) if rays.channels is None else rays.channels.numpy()
        tables.channel = self._array(channels, wp.int32)
        self._azimuth, self._elevation = angles_of(rays.directions.numpy())
        tables.azimuth, tables.elevation = self._array(self._azimuth), self._array(self._elevation)
        return tables

    def _reflectances(self) -> list[float]:
        """Return the reflectance of each shape.

        Raises:
            SelectionError: a word of `reflectance` is no label and matches no name.
        """
        scene = self.rays
        values = [shape.reflectance for shape in scene.shapes]
        names = [(shape.name, body, *labels)
                 for shape, body, labels in zip(scene.shapes, scene.body_names, scene.labels, strict=True)]  # fmt: skip
        for word, value in self.cfg.reflectance.items():
            title, what = f"LidarCfg({self.name!r})", f"reflectance[{word!r}]"
            try:
                regex = re.compile(word)
            except re.error as error:
                expected = "a label, a name or a regular expression"
                raise SelectionError(title, [Fault(what, repr(word), expected, f"It is broken: {error}.")]) from None
            rows = [i for i, each in enumerate(names) if any(word == name or regex.fullmatch(name) for name in each)]
            if not rows:
                known = [*scene.label_names, *dict.fromkeys(scene.body_names), *(shape.name for shape in scene.shapes)]
                fix = f"{nearest(word, known).strip()} Labels, bodies and shapes here: {listed(known)}.".strip()
                raise SelectionError(
                    title, [Fault(what, repr(word), "a semantic label, or the name of a body or a geom", fix)]
                )
            for i in rows:
                values[i] = value
        return values

    def _make_model(self) -> Any:
        cfg, model = self.cfg, Model()
        model.carla = int(cfg.model == "carla")
        model.is_raw = int(cfg.intensity_mode == "raw")
        model.returns = RETURNS[cfg.returns]
        model.scale = cfg.intensity_scale
        model.most = math.inf if cfg.intensity_max is None else cfg.intensity_max
        model.intensity_noise = cfg.intensity_noise
        model.attenuation = cfg.atmosphere_attenuation_rate if model.carla else cfg.attenuation
        far = cfg.reference_range
        model.power = cfg.reference_reflectance * math.exp(-2.0 * cfg.attenuation * far) / far**2
        model.snr = cfg.reference_snr or 0.0
        model.threshold = -math.inf if cfg.detection_threshold is None else cfg.detection_threshold
        model.threshold_sd = cfg.detection_sd
        model.drop = cfg.dropoff_general_rate if model.carla else cfg.drop_rate
        model.limit, model.zero, model.sd = cfg.dropoff_intensity_limit, cfg.dropoff_zero_intensity, cfg.noise_stddev
        model.depth = 0.5 * LIGHT_SPEED * cfg.pulse_duration
        x = np.log(np.atleast_1d([] if cfg.range_noise_snr is None else cfg.range_noise_snr).astype(np.float64))
        y = np.log(np.atleast_1d([] if cfg.range_noise is None else cfg.range_noise).astype(np.float64))
        if len(x):
            order = np.argsort(x)
            x, y = x[order], y[order]
        model.range_x, model.range_y = self._array(x), self._array(y)
        model.weights = self._array(self._weights)
        model.key0, model.key1 = (wp.uint32(word) for word in self.stream("return"))
        model.bias_key0, model.bias_key1 = (wp.uint32(word) for word in self.stream("channel_bias"))
        self._set_bias(model)
        return model

    def _set_bias(self, model: Any) -> None:
        """Put the law of the channel biases into the model."""
        amount: Any = self.cfg.channel_bias
        columns = self.channels if amount is not None else 0
        given = amount.columns if isinstance(amount, Uniform | Normal | Choice) else (
            len(amount) if isinstance(amount, tuple) else None
        )  # fmt: skip
        if given is not None and given != columns:
            expected = f"one number, or one for each of the {columns} channels"
            raise ConfigError.single(f"LidarCfg({self.name!r})", "channel_bias", amount, expected)
        first, second, choices = np.zeros(columns), np.zeros(columns), np.zeros((columns, 1))
        kind: int = -1
        if isinstance(amount, Choice):
            kind, choices = Choice.kind, amount.parameters(columns)[2].T
        elif isinstance(amount, Uniform | Normal):
            kind = type(amount).kind
            first, second = (np.asarray(part, np.float64) for part in amount.parameters(columns)[:2])
        elif amount is not None:
            first = np.broadcast_to(np.asarray(amount, np.float64), columns)
        model.bias_kind = kind
        model.bias_joint = int(isinstance(amount, Choice) and amount.joint)
        model.bias_first, model.bias_second = self._array(first), self._array(second)
        model.bias_choices = self._array(np.ascontiguousarray(choices))

    # Work -------------------------------------------------------------------------------------------------------------

    def observe(self) -> None:
        """Keep where everything is at a tick between two samples."""
        self._cast.look()

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Cast the true scan and describe it (two launches)."""
        found = self._find(self._cast, raw, instant=True, look=True)
        self._describe_truth(raw, found)

    @recorded
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Cast the true scan, and the measured one where it is another; describe both."""
        true = self._find(self._cast, raw, instant=True, look=True)
        if not self.distorts and self._beams is self._cast:
            self._describe_measured(slot, true)  # before a miss gets another value
            self._describe_truth(raw, true)
        else:
            self._describe_truth(raw, true)
            measured = self._find(self._beams, slot, instant=False, look=False)
            self._describe_measured(slot, measured)

    def _find(self, cast: RayCast, record: Record, *, instant: bool, look: bool) -> Any:
        """Cast rays, and return what they met; into the record itself where it has room for it."""
        direct = cast is self._cast and self.returns == 1
        names = {"distance": "distances", "cosine": "cos_incidence", "shape": "geom_ids", "normal": "normals_w"}
        if "normals_w" not in record:
            del names["normal"]
        outputs = {
            what: record[field] if direct and field in record else self._spare(what, cast.count)
            for what, field in names.items()
        }
        cast.cast(outputs, instant=instant, look=look)
        found = Found()
        for what in ("distance", "cosine", "shape", "normal"):
            dtype = {"shape": wp.int32, "normal": wp.vec3}.get(what, wp.float32)
            setattr(found, what, self._twin(outputs.get(what), cast.count, dtype))
        return found

    def _spare(self, what: str, count: int) -> Tensor:
        """Return memory that lasts while a sample is computed."""
        if (what, count) not in self._scratch:
            shape = (self.num_envs, self.mount.count, count, *((3,) if what == "normal" else ()))
            dtype = torch.int32 if what == "shape" else torch.float32
            self._scratch[what, count] = torch.zeros(shape, dtype=dtype, device=self.device)
        return self._scratch[what, count]

    def _twin(self, tensor: Tensor | None, count: int, dtype: Any) -> Any:
        """View a tensor as a Warp array `[env, mount, count]`; an empty one where there is none."""
        if tensor is None:
            return wp.zeros((0, 0, 0), dtype=dtype, device=self.compute_on.wp_device)
        shape = (self.num_envs, self.mount.count, count, *((3,) if dtype is wp.vec3 else ()))
        return wp.from_torch(tensor.view(shape), dtype=dtype)

    def _out(self, record: Record, *, moves: bool, miss: float) -> Any:
        """Return a record as kernels write it."""
        out = Scan()
        for name in FIELDS:
            dtype = wp.vec3 if name in ("points_b", "points_w", "normals_w") else wp.float32
            if name in ("geom_ids", "semantic_ids", "channel"):
                dtype = wp.int32
            count = self.num_rays * (1 if name in PER_RAY else self.returns)
            setattr(out, name, self._twin(record[name] if name in record else None, count, dtype))
        out.returns, out.miss, out.moves = self.returns, miss, int(moves)
        return out

    def _describe_truth(self, raw: Record, found: Any) -> None:
        miss = math.inf if self._has_chain else self.cfg.miss
        out = self._out(raw, moves=False, miss=miss)
        inputs = [self.clock.words_wp, self.clock.reset_tick_wp, self._model, self._tables, self._cast.bundle,
                  self._cast.pose, found]  # fmt: skip
        self.compute_on.launch(_true_scan, (self.mount.count, self.num_rays), inputs, [out])

    def _describe_measured(self, slot: Record, found: Any) -> None:
        miss = math.inf if self._has_chain else self.cfg.miss
        out = self._out(slot, moves=self.distorts, miss=miss)
        clock = self.clock
        inputs = [clock.words_wp, clock.reset_tick_wp, clock.episode_wp, normal_table(self.compute_on.wp_device),
                  self._model, self._tables, self._cast.bundle, self._cast.pose, found]  # fmt: skip
        self.compute_on.launch(_measured_scan, (self.mount.count, self.num_rays), inputs, [out])

    @recorded
    def derive_measured(self, slot: Record) -> None:
        """Put the measured points where the measured distances end, and show misses as `no_hit_value`."""
        columns = self.num_rays * self.returns
        records = [(slot, self.distorts)]
        if self.cfg.no_hit_value is not None:
            records.append((self.line.truth, False))
        for record, moves in records:
            if "distances" not in record:
                continue
            out = self._out(record, moves=moves, miss=self.cfg.miss)
            inputs = [self.clock.words_wp, self.clock.reset_tick_wp, self._cast.bundle, self._cast.pose]
            distances = self._twin(record["distances"], columns, wp.float32)
            self.compute_on.launch(_finish, (self.mount.count, columns), [*inputs, distances], [out])

    # Host -------------------------------------------------------------------------------------------------------------

    @property
    def num_rays(self) -> int:
        """Rays of one scan of one mount."""
        return self.window.count

    @cached_property
    def returns(self) -> int:
        """Returns per ray."""
        return 2 if self.cfg.returns == "dual" else 1

    @property
    def channels(self) -> int:
        """Number of channels, 1 where the pattern has none."""
        return 1 if self.pattern.channels is None else int(self.pattern.channels.max()) + 1

    @property
    def geom_names(self) -> tuple[str, ...]:
        """Names of all shapes of the scene: what `geom_ids` count."""
        return tuple(shape.name for shape in self.rays.shapes)

    @property
    def semantic_names(self) -> tuple[str, ...]:
        """Names of the semantic labels: what `semantic_ids` count; the first is that of no label, empty."""
        return ("", *self.rays.label_names)

    def ray_ids(self, env: int = 0) -> NDArray[np.int64]:
        """Return which ray of the pattern each ray of the sample shown is, `[ray]`, by its row in `pattern`."""
        begin, total = 0, len(self.pattern)
        if self.window.moves:
            per_tick = total / (self.pattern.period or 1.0) * self.clock.dt
            begin = math.floor(int(self.capture_tick[env]) * per_tick + 0.5) - self.num_rays
        return (begin + np.arange(self.num_rays)) % total

    @property
    def horizontal_angle(self) -> float:
        """Azimuth of the newest ray of the scan of env 0, rad, left positive: where the head of a spinning lidar is."""
        return float(self._azimuth[self.ray_ids()[-1]])

    def point_cloud(self, env: int = 0, mount: int = 0, *, measured: bool = True) -> dict[str, NDArray[Any]]:
        """Return the points of one env without misses, on the host: each selected field as an array `[point, ...]`.

        Args:
            env: which environment.
            mount: which mount, where the selector is plural.
            measured: False for the true scan.
        """
        data = self.data if measured else self.ground_truth
        rows = {}
        for name in self.cfg.selected:
            values = getattr(data, name)
            if values is None:
                continue
            row = values[env].detach().cpu().numpy()
            row = row[mount] if self._mount_axis else row
            if self.returns > 1 and name in PER_RAY:
                row = np.repeat(row[:, None], self.returns, axis=1)
            rows[name] = row
        if "points_b" in rows:
            is_hit = np.isfinite(rows["points_b"]).all(axis=-1)
        else:
            is_hit = np.isfinite(rows["distances"])
            if self.cfg.no_hit_value is not None:
                is_hit &= rows["distances"] != np.float32(self.cfg.no_hit_value)
        return {name: row[is_hit] for name, row in rows.items()}

    def get_point_count(self, channel: int, env: int = 0, mount: int = 0) -> int:
        """Return how many points of a channel the measured scan has.

        Raises:
            IndexError: there is no such channel.
        """
        if not 0 <= channel < self.channels:
            raise IndexError(f"channel {channel}: this lidar has {self.channels}, 0 to {self.channels - 1}")
        values = self.data.points_b if self.data.points_b is not None else self.data.distances
        row = values[env][mount] if self._mount_axis else values[env]
        is_hit = torch.isfinite(row).all(dim=-1) if self.data.points_b is not None else torch.isfinite(row)
        if self.data.points_b is None and self.cfg.no_hit_value is not None:
            is_hit &= row != self.cfg.no_hit_value
        found = is_hit.reshape(self.num_rays, -1).cpu().numpy()
        ids = self.ray_ids(env)
        own = np.zeros(len(ids), np.int32) if self.pattern.channels is None else self.pattern.channels.numpy()[ids]
        return int(found[own == channel].sum())

    @property
    def nbytes(self) -> int:
        """Bytes of memory of this sensor."""
        spare = sum(tensor.numel() * tensor.element_size() for tensor in self._scratch.values())
        beams = 0 if self._beams is self._cast else self._beams.nbytes
        return super().nbytes + spare + beams + self._cast.nbytes

    def debug_draw(self) -> list[DebugShape]:
        """Return the points of the scan in the world."""
        data = self.data
        if data.points_w is not None:
            points = data.points_w
        elif data.points_b is not None:
            inside = data.points_b.reshape(self.num_instances, self.mount.count, -1, 3)
            pos, quat = self.mount.pos_w[:, :, None], self.mount.quat_w[:, :, None]
            axis = quat[..., 1:].expand_as(inside)
            twist = 2.0 * torch.linalg.cross(axis, torch.where(inside.isfinite(), inside, 0.0))
            turned = inside + quat[..., :1] * twist + torch.linalg.cross(axis, twist)
            points = torch.where(inside.isfinite(), pos + turned, torch.inf)
        else:
            return []
        return [DebugShape("points", points.reshape(self.num_instances, -1, 3).cpu().numpy())]


def angles_of(directions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return azimuth and elevation of directions, rad."""
    d = np.asarray(directions, np.float64)
    return np.arctan2(d[:, 1], d[:, 0]), np.arctan2(d[:, 2], np.hypot(d[:, 0], d[:, 1]))


LidarSensor = Lidar
LidarSensorCfg = LidarCfg

__all__ = ["Lidar", "LidarCfg", "LidarData", "LidarSensor", "LidarSensorCfg"]
