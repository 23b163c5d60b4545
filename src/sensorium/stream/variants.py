"""Variants of blueprints: a kind of sensor for one purpose, with the attribute names that are usual for it.

A camera with one data type is a variant: ``sensor.camera.depth`` has `image_size_x`, `image_size_y` and `fov` instead
of `width`, `height` and `lens`. A variant with the id of its kind replaces the blueprint of the kind: an IMU also has
`noise_accel_stddev_x`. The other attributes are fields of the config. An attribute without a counterpart accepts only
the value that corresponds to the sensor; the error for other values states the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sensorium.errors import ConfigError, shown
from sensorium.wire.attributes import Attribute, SensorDefinition


def _unchanged(fields: dict[str, Any], title: str) -> dict[str, Any]:
    return fields


@dataclass(frozen=True, slots=True)
class Variant:
    """A blueprint that stands for a kind of sensor with some fields given.

    Attributes:
        id: id of the blueprint.
        kind: kind of the sensor.
        doc: description of the sensor; empty for that of the kind.
        attributes: attributes in addition to those of the kind; one with the same id replaces that of the kind.
        names: field of the config -> attribute that sets it; the field itself is no attribute.
        defaults: fields with other values than the default of the kind.
        hidden: further attributes of the kind that it does not have.
        convert: returns the fields of the config from the chosen values under the names of fields; gets the title of
            the blueprint for messages.
    """

    id: str
    kind: str
    doc: str
    attributes: tuple[Attribute, ...]
    names: Mapping[str, str]
    defaults: Mapping[str, Any]
    hidden: tuple[str, ...] = ()
    convert: Callable[[dict[str, Any], str], dict[str, Any]] = _unchanged

    def define(self, definition: SensorDefinition) -> SensorDefinition:
        """Return the definition of the variant, from that of the kind."""
        left_out = {*self.hidden, *self.names, *(each.id for each in self.attributes)}
        kept = (each for each in definition if each.id not in left_out)
        return SensorDefinition(
            id=self.id,
            attributes=(*self.attributes, *kept),
            doc=self.doc or definition.doc,
            where=definition.where,
            needs=definition.needs,
            attach=definition.attach,
        )

    def fields(self, values: Mapping[str, Any], title: str) -> dict[str, Any]:
        """Return the fields of the config from the chosen values; `title` names the blueprint in messages."""
        field_of = {name: field for field, name in self.names.items()}
        chosen = {field_of.get(name, name): value for name, value in values.items()}
        return self.convert({**self.defaults, **chosen}, title)


def _attribute(id: str, default: Any, unit: str, doc: str, **bounds: Any) -> Attribute:
    """Return an attribute whose type is that of its default."""
    type: Any = {bool: "bool", int: "int", float: "float"}.get(default.__class__, "string")
    return Attribute(id=id, type=type, default=str(default).lower(), unit=unit, doc=doc, **bounds)


def _positive(id: str, default: float, unit: str, doc: str, high: float = math.inf) -> Attribute:
    return _attribute(id, default, unit, doc, low=0.0, open_low=True, high=high)


def _refused(reason: str, **accepted: Any) -> tuple[Attribute, ...]:
    """Return attributes that accept one value each; others are refused with the reason."""
    return tuple(
        _attribute(id, value, "", reason, recommended_values=(str(value).lower(),), restrict_to_recommended=True)
        for id, value in accepted.items()
    )


def _vectors(
    fields: dict[str, Any], title: str, parts: Mapping[str, Sequence[str]], factors: Sequence[float] = (1.0, 1.0, 1.0)
) -> dict[str, Any]:
    """Replace attributes for the components of vectors by the vectors; components that are not set are 0.

    Raises:
        ConfigError: a vector and one of its components are both set.
    """
    for field, names in parts.items():
        given = {name: fields.pop(name) for name in names if name in fields}
        _refuse_both(given, field, fields, title)
        if given:
            fields[field] = [factor * given.get(name, 0.0) for name, factor in zip(names, factors, strict=True)]
    return fields


def _refuse_both(given: Mapping[str, Any], other: str, fields: Mapping[str, Any], title: str) -> None:
    """Raise an error for the first of some attributes if another field is set."""
    if given and other in fields:
        name, value = next(iter(given.items()))
        raise ConfigError.single(title, name, value, f"no value, since {other} is set to {shown(fields[other])}")


_SEED = _refused("The random numbers follow from the seed of the scene and the name of the sensor.", noise_seed=0)

# Cameras --------------------------------------------------------------------------------------------------------------

_TYPES = {
    "depth": "Camera that measures the distance to the image plane, m.",
    "semantic_segmentation": "Camera that shows the labels of the surfaces.",
    "instance_segmentation": "Camera that shows the labelled objects.",
    "optical_flow": "Camera that shows how far each surface moved in the image since the previous frame, px.",
    "normals": "Camera that shows the unit normals of the surfaces in the world.",
}
"""Data type -> description of a camera of that type alone."""
_COLORIZE = tuple(f"colorize_{name}_segmentation" for name in ("semantic", "instance", "instance_id"))
_FOV = 90.0
_IMAGE = (
    _attribute("image_size_x", 800, "px", "Image width.", low=1.0),
    _attribute("image_size_y", 600, "px", "Image height.", low=1.0),
    _positive("fov", _FOV, "deg", "Horizontal field of view of a pinhole; a camera of the model has its own. An "
              "alternative to lens.", 179.9),
)  # fmt: skip
_LENS = _refused(
    "The distortion has no published formula. Set lens to a lens with distortion.",
    lens_circle_falloff=5.0, lens_circle_multiplier=0.0, lens_k=-1.0, lens_kcube=0.0, lens_x_size=0.08,
    lens_y_size=0.08,
)  # fmt: skip


def _camera_fields(fields: dict[str, Any], title: str) -> dict[str, Any]:
    """Return the fields of a camera's config, with a lens of the field of view."""
    given = {"fov": fields.pop("fov")} if "fov" in fields else {}
    _refuse_both(given, "lens", fields, title)
    if given or not {"lens", "camera", "cameras"} & fields.keys():
        aperture = 2.0 * math.tan(0.5 * math.radians(given.get("fov", _FOV)))
        fields["lens"] = {"kind": "pinhole", "focal_length": 1.0, "horizontal_aperture": aperture}
    return fields


def _camera(
    name: str,
    doc: str,
    more: tuple[Attribute, ...] = (),
    *,
    kind: str = "camera",
    defaults: Mapping[str, Any],
    hidden: tuple[str, ...] = _COLORIZE,
    convert: Callable[[dict[str, Any], str], dict[str, Any]] = _camera_fields,
) -> Variant:
    """Return a variant with the size and the angle of the image."""
    return Variant(
        f"sensor.camera.{name}", kind, doc, (*_IMAGE, *more, *_LENS),
        {"width": "image_size_x", "height": "image_size_y"}, {"width": 800, "height": 600, **defaults},
        ("data_types", *hidden), convert,
    )  # fmt: skip


def _typed(type: str, doc: str) -> Variant:
    """Return the variant of a camera with one data type."""
    option = f"colorize_{type}"
    text = "Whether the image is a colour (uint8, 4 channels) instead of an id (int32, 1 channel)."
    is_colored = option in _COLORIZE
    return _camera(
        type, doc, (_attribute(option, False, "", text),) if is_colored else (),
        defaults={"data_types": (type,)} | ({option: False} if is_colored else {}),
        hidden=tuple(each for each in _COLORIZE if each != option),
    )  # fmt: skip


# Colours and events ---------------------------------------------------------------------------------------------------

_EXPOSURE = (
    _positive("shutter_speed", 200.0, "1/s", "Inverse of the exposure time. At 200/s, ISO 100 and f/1.4 white is full "
              "scale."),
    _positive("iso", 100.0, "", "Sensitivity; twice is one stop."),
    _positive("fstop", 1.4, "", "F-number; the exposure is proportional to its inverse square."),
    *_refused("Colours are encoded as sRGB, about 2.2.", gamma=2.2),
    *_refused("The exposure is not automatic. Set shutter_speed, iso or fstop.", exposure_mode="manual",
              exposure_compensation=0.0, exposure_min_bright=10.0, exposure_max_bright=12.0, exposure_speed_up=3.0,
              exposure_speed_down=1.0, calibration_constant=16.0),
    *_refused("The image is sharp at all distances and clipped at white. Errors of a camera are stages.",
              focal_distance=1000.0, blur_amount=1.0, blur_radius=0.0, min_fstop=1.2, blade_count=5,
              motion_blur_intensity=0.0, motion_blur_max_distortion=0.35, motion_blur_min_object_screen_size=0.1,
              slope=0.88, toe=0.55, shoulder=0.26, black_clip=0.0, white_clip=0.04, temp=6500.0, tint=0.0,
              chromatic_aberration_intensity=0.0, chromatic_aberration_offset=0.0, bloom_intensity=0.0,
              lens_flare_intensity=0.0, enable_postprocess_effects=False),
)  # fmt: skip


def _color_fields(fields: dict[str, Any], title: str) -> dict[str, Any]:
    """Return the fields of a colour camera; an exposure other than the default becomes a stage."""
    speed, iso, stop = (fields.pop(each.id, each.value) / each.value for each in _EXPOSURE[:3])
    if (speed, iso, stop) != (1.0, 1.0, 1.0):
        times = {"exposure_time": 0.005 / speed, "white_exposure": 0.005 * stop**2}
        fields["stages"] = ({"kind": "image", "gain": iso, **times}, *fields.get("stages", ()))
    return _camera_fields(fields, title)


_BRIGHTNESS = "of the brightness (the logarithm of the luminance) that causes an event."
_EVENTS = (
    _positive("positive_threshold", 0.3, "", f"Rise {_BRIGHTNESS}"),
    _positive("negative_threshold", 0.3, "", f"Fall {_BRIGHTNESS}"),
    _attribute("refractory_period_ns", 0, "ns", "Time after an event in which its pixel reports no other.", low=0.0),
)


def _event_fields(fields: dict[str, Any], title: str) -> dict[str, Any]:
    """Return the fields of an event camera; times are in s."""
    if (period := fields.pop("refractory_period_ns", None)) is not None:
        fields["refractory_period"] = 1e-9 * period
    return _camera_fields(fields, title)


# Rays -----------------------------------------------------------------------------------------------------------------

_SCAN = (
    _attribute("channels", 32, "", "Number of lasers.", low=1.0),
    _attribute("points_per_second", 56000.0, "1/s", "Rays of all lasers per second.", low=1.0),
    _positive("rotation_frequency", 10.0, "Hz", "Rotations per second."),
    _attribute("upper_fov", 10.0, "deg", "Elevation of the first laser.", low=-90.0, high=90.0),
    _attribute("lower_fov", -30.0, "deg", "Elevation of the last laser.", low=-90.0, high=90.0),
    _positive("horizontal_fov", 360.0, "deg", "Extent in azimuth.", 360.0),
)
"""Geometry of a scan, an alternative to `pattern`."""


def _scan_fields(fields: dict[str, Any], title: str) -> dict[str, Any]:
    """Return the fields of a lidar with equal angles between its lasers, which fire together."""
    given = {each.id: fields.pop(each.id) for each in _SCAN if each.id in fields}
    _refuse_both(given, "pattern", fields, title)
    if "pattern" not in fields:
        lasers, rate, turns, upper, lower, width = (given.get(each.id, each.value) for each in _SCAN)
        elevations = [upper - k * (upper - lower) / max(lasers - 1, 1) for k in range(lasers)]
        fields["pattern"] = {
            "kind": "spinning", "elevations": elevations, "cycle_interval": lasers / rate, "rate_hz": turns,
            "horizontal_fov": (-0.5 * width, 0.5 * width), "sawtooth": True,
        }  # fmt: skip
    return fields


def _rays(id: str, kind: str, doc: str, most: float, more: tuple[Attribute, ...], **others: Any) -> Variant:
    """Return a variant of a sensor that measures distances up to `range`."""
    names = {"max_distance": "range", **others.pop("names", {})}
    reach = _positive("range", most, "m", "Largest measured distance.")
    return Variant(id, kind, doc, (*more, reach), names, {"max_distance": most, **others.pop("defaults", {})}, **others)


# Motion and position --------------------------------------------------------------------------------------------------

_IMU = {
    f"{knob}_{what}": tuple(f"noise_{name}_{word}_{axis}" for axis in "xyz")
    for knob, name, what, word in (
        ("acc", "accel", "noise", "stddev"), ("gyro", "gyro", "noise", "stddev"), ("gyro", "gyro", "bias", "bias"),
    )
}  # fmt: skip
_GNSS = {
    f"pos_{what}": tuple(f"noise_{name}_{word}" for name in ("lon", "lat", "alt"))
    for what, word in (("noise", "stddev"), ("bias", "bias"))
}
"""Vector in the config (x, y, z, or east, north, up) -> attributes of its components."""
_EQUATOR, _FLATNESS = 6378137.0, 0.00669437999014
"""WGS84: equatorial radius, m, and squared eccentricity."""


def _receiver_fields(fields: dict[str, Any], title: str) -> dict[str, Any]:
    """Return the fields of a GNSS receiver; errors in degrees are converted to m at the latitude of the origin."""
    latitude = math.radians(float((fields.get("origin") or (0.0,))[0]))
    normal = _EQUATOR / math.sqrt(1.0 - _FLATNESS * math.sin(latitude) ** 2)
    meridian = (1.0 - _FLATNESS) * normal**3 / _EQUATOR**2
    degree = math.radians(1.0)
    return _vectors(fields, title, _GNSS, (degree * normal * math.cos(latitude), degree * meridian, 1.0))


def _components(parts: Mapping[str, Sequence[str]], unit_of: Callable[[str], str]) -> tuple[Attribute, ...]:
    """Return the attributes for the components of deviations and biases."""
    return tuple(
        _attribute(name, 0.0, unit_of(name), "Error that is the same in all samples.") if "bias" in name else
        _attribute(name, 0.0, unit_of(name), "Standard deviation of each sample.", low=0.0)
        for names in parts.values() for name in names
    )  # fmt: skip


_VARIANTS = (
    *(_typed(type, doc) for type, doc in _TYPES.items()),
    _camera("rgb", "Camera that shows colours.", _EXPOSURE, defaults={"data_types": ("rgb",)}, convert=_color_fields),
    _camera(
        "dvs", "Camera whose pixels report changes of their brightness.", _EVENTS, kind="event_camera",
        defaults={"positive_threshold": 0.3, "negative_threshold": 0.3}, hidden=("refractory_period", *_COLORIZE),
        convert=_event_fields,
    ),
    _rays(
        "sensor.lidar.ray_cast", "lidar", "Rotating lidar whose returns depend on distance only.", 10.0,
        (*_SCAN, *_SEED), defaults={"model": "dropoff", "motion_distortion": False}, hidden=("model",),
        convert=_scan_fields,
    ),
    _rays(
        "sensor.lidar.ray_cast_semantic", "lidar", "Rotating lidar without errors that shows what each ray hits.", 10.0,
        _SCAN, hidden=("model",), convert=_scan_fields,
        defaults={"motion_distortion": False, "fields": ("distances", "points_b", "cos_incidence", "geom_ids",
                                                         "semantic_ids")},
    ),
    _rays(
        "sensor.other.radar", "radar", "", 100.0,
        (
            _attribute("horizontal_fov", 30.0, "deg", "Full horizontal angle of the cone.", low=0.0, high=360.0),
            _attribute("vertical_fov", 30.0, "deg", "Full vertical angle of the cone.", low=0.0, high=180.0),
            _attribute("distribution", "central", "", "Distribution of the rays: denser towards the axis, or uniform.",
                       recommended_values=("central", "area"), restrict_to_recommended=True),
            *_SEED,
        ),
        names={"horizontal_fov_deg": "horizontal_fov", "vertical_fov_deg": "vertical_fov"},
        convert=lambda fields, title: fields if "pattern" in fields else {"distribution": "central", **fields},
    ),
    Variant(
        "sensor.other.obstacle", "obstacle", "",
        (
            _positive("distance", 5.0, "m", "Longest way to an obstacle."),
            _attribute("only_dynamics", False, "", "Whether shapes that cannot move are ignored."),
            _attribute("debug_linetrace", False, "", "Whether viewers draw the sensor."),
        ),
        {"max_distance": "distance", "ignore_static": "only_dynamics", "debug_vis": "debug_linetrace"}, {},
    ),
    Variant(
        "sensor.other.imu", "imu", "",
        (*_components(_IMU, lambda name: "rad/s" if "gyro" in name else "m/s^2"), *_SEED), {}, {},
        convert=partial(_vectors, parts=_IMU),
    ),
    Variant(
        "sensor.other.gnss", "gnss", "",
        (*_components(_GNSS, lambda name: "m" if "alt" in name else "deg"), *_SEED), {}, {}, convert=_receiver_fields,
    ),
)  # fmt: skip
VARIANTS: Mapping[str, Variant] = {variant.id: variant for variant in _VARIANTS}
"""Variants by the id of their blueprint."""
