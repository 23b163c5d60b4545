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


@dataclass(frozen=True, slots=True)
class Variant:
    """A blueprint that stands for a kind of sensor with some fields given.

    Attributes:
        id: id of the blueprint.
        kind: kind of the sensor.
        doc: description of the sensor.
        attributes: attributes in addition to those of the kind; one with the same id replaces that of the kind.
        hidden: attributes of the kind that it does not have.
        names: field of the config -> attribute that sets it, for messages.
        fields: returns the fields of the config from the chosen values; gets the title of the blueprint for messages.
    """

    id: str
    kind: str
    doc: str
    attributes: tuple[Attribute, ...]
    hidden: tuple[str, ...]
    names: Mapping[str, str]
    fields: Callable[[Mapping[str, Any], str], dict[str, Any]]

    def define(self, definition: SensorDefinition) -> SensorDefinition:
        """Return the definition of the variant, from that of the kind."""
        left_out = {*self.hidden, *(each.id for each in self.attributes)}
        kept = (each for each in definition if each.id not in left_out)
        return SensorDefinition(
            id=self.id,
            attributes=(*self.attributes, *kept),
            doc=self.doc,
            where=definition.where,
            needs=definition.needs,
            attach=definition.attach,
        )


def _attribute(id: str, default: Any, unit: str, doc: str, **bounds: Any) -> Attribute:
    """Return an attribute whose type is that of its default."""
    type = {bool: "bool", int: "int", float: "float"}.get(default.__class__, "string")
    return Attribute(id=id, type=type, default=str(default).lower(), unit=unit, doc=doc, **bounds)  # type: ignore[arg-type]


def _refused(reason: str, **accepted: Any) -> tuple[Attribute, ...]:
    """Return attributes that accept one value each; others are refused with the reason."""
    fixed = {"restrict_to_recommended": True}
    return tuple(
        _attribute(id, value, "", reason, recommended_values=(str(value).lower(),), **fixed)
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
        if given and field in fields:
            name, value = next(iter(given.items()))
            raise ConfigError.single(title, name, value, f"no value, since {field} is set to {shown(fields[field])}")
        if given:
            fields[field] = [factor * given.get(name, 0.0) for name, factor in zip(names, factors, strict=True)]
    return fields


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
_SEGMENTATIONS = ("semantic_segmentation", "instance_segmentation", "instance_id_segmentation")
_COLORIZE = "colorize_"
_SIZES = {"image_size_x": ("width", 800), "image_size_y": ("height", 600)}
_FOV = 90.0
_LENS = _refused(
    "The distortion has no published formula. Set lens to a lens with distortion.",
    lens_circle_falloff=5.0, lens_circle_multiplier=0.0, lens_k=-1.0, lens_kcube=0.0, lens_x_size=0.08,
    lens_y_size=0.08,
)  # fmt: skip


def _camera_fields(values: Mapping[str, Any], title: str, *, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a camera's config from the attributes of its variant."""
    fields = {**fixed, **values}
    for name, (field, default) in _SIZES.items():
        fields[field] = fields.pop(name, default)
    fov = fields.pop("fov", None)
    if fov is not None and "lens" in fields:
        raise ConfigError.single(title, "fov", fov, f"no value, since lens is set to {shown(fields['lens'])}")
    if fov is None and not {"lens", "camera", "cameras"} & fields.keys():
        fov = _FOV
    if fov is not None:
        aperture = 2.0 * math.tan(0.5 * math.radians(fov))
        fields["lens"] = {"kind": "pinhole", "focal_length": 1.0, "horizontal_aperture": aperture}
    return fields


def _camera(
    name: str,
    doc: str,
    more: tuple[Attribute, ...] = (),
    *,
    kind: str = "camera",
    fixed: Mapping[str, Any] | None = None,
    hidden: tuple[str, ...] = (),
    fields: Callable[..., dict[str, Any]] = _camera_fields,
) -> Variant:
    """Return a variant with the size and the angle of the image; `fixed` and `hidden` are fields of the config."""
    attributes = [
        Attribute(id=size, type="int", unit="px", low=1.0, default=str(default), doc=f"Image {field}.")
        for size, (field, default) in _SIZES.items()
    ]
    text = "Horizontal field of view of a pinhole; a camera of the model has its own. An alternative to lens."
    attributes.append(
        Attribute(id="fov", type="float", unit="deg", low=0.0, high=179.9, open_low=True, default=str(_FOV), doc=text)
    )
    return Variant(
        f"sensor.camera.{name}", kind, doc, (*attributes, *more, *_LENS), ("data_types", "width", "height", *hidden),
        {field: size for size, (field, _) in _SIZES.items()}, partial(fields, fixed=fixed or {}),
    )  # fmt: skip


def _typed(type: str, doc: str) -> Variant:
    """Return the variant of a camera with one data type."""
    fixed: dict[str, Any] = {"data_types": (type,)}
    option = _COLORIZE + type
    more: tuple[Attribute, ...] = ()
    if "segmentation" in type:
        fixed[option] = False
        text = "Whether the image is a colour (uint8, 4 channels) instead of an id (int32, 1 channel)."
        more = (Attribute(id=option, type="bool", default="false", doc=text),)
    hidden = tuple(_COLORIZE + name for name in _SEGMENTATIONS if name != type)
    return _camera(type, doc, more, fixed=fixed, hidden=hidden)


# Colours and events ---------------------------------------------------------------------------------------------------

_SPEED, _ISO, _STOP = 200.0, 100.0, 1.4
"""Shutter speed (1/s), sensitivity and f-number at which white is white."""
_EFFECTS = (
    *_refused("Colours are encoded as sRGB, about 2.2.", gamma=2.2),
    *_refused("Exposure is never automatic. Set shutter_speed, iso or fstop.", exposure_mode="manual",
              exposure_compensation=0.0, exposure_min_bright=10.0, exposure_max_bright=12.0, exposure_speed_up=3.0,
              exposure_speed_down=1.0, calibration_constant=16.0),
    *_refused("Images are sharp at all distances.", focal_distance=1000.0, blur_amount=1.0, blur_radius=0.0,
              min_fstop=1.2, blade_count=5),
    *_refused("Exposures are instantaneous.", motion_blur_intensity=0.0, motion_blur_max_distortion=0.35,
              motion_blur_min_object_screen_size=0.1),
    *_refused("There is no film curve. Colours are clipped at white.", slope=0.88, toe=0.55, shoulder=0.26,
              black_clip=0.0, white_clip=0.04),
    *_refused("Colours are those of the surfaces and lights. Errors of a camera are stages.", temp=6500.0, tint=0.0,
              chromatic_aberration_intensity=0.0, chromatic_aberration_offset=0.0, bloom_intensity=0.0,
              lens_flare_intensity=0.0, enable_postprocess_effects=False),
)  # fmt: skip
_EXPOSURE = (
    _attribute("shutter_speed", _SPEED, "1/s", "Inverse of the exposure time. At 200/s, ISO 100 and f/1.4 white is "
               "full scale.", low=0.0, open_low=True),
    _attribute("iso", _ISO, "", "Sensitivity; twice is one stop.", low=0.0, open_low=True),
    _attribute("fstop", _STOP, "", "F-number; the exposure is proportional to its inverse square.", low=0.0,
               open_low=True),
)  # fmt: skip


def _color_fields(values: Mapping[str, Any], title: str, *, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a colour camera; an exposure other than the default becomes a stage."""
    given = dict(values)
    speed, iso, stop = (given.pop(each.id, each.value) for each in _EXPOSURE)
    fields = _camera_fields(given, title, fixed=fixed)
    if (speed, iso, stop) != (_SPEED, _ISO, _STOP):
        white = (stop / _STOP) ** 2 / _SPEED
        stage = {"kind": "image", "exposure_time": 1.0 / speed, "gain": iso / _ISO, "white_exposure": white}
        fields["stages"] = (stage, *fields.get("stages", ()))
    return fields


_THRESHOLD = "of the brightness (the logarithm of the luminance)"
_EVENTS = (
    _attribute("positive_threshold", 0.3, "", f"Rise {_THRESHOLD} that causes an event.", low=0.0, open_low=True),
    _attribute("negative_threshold", 0.3, "", f"Fall {_THRESHOLD} that causes an event.", low=0.0, open_low=True),
    _attribute("refractory_period_ns", 0, "ns", "Time after an event in which its pixel reports no other.", low=0.0),
)


def _event_fields(values: Mapping[str, Any], title: str, *, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an event camera; times are in s."""
    fields = _camera_fields(values, title, fixed=fixed)
    if (period := fields.pop("refractory_period_ns", None)) is not None:
        fields["refractory_period"] = 1e-9 * period
    return fields


# Rays -----------------------------------------------------------------------------------------------------------------

_SCAN = (
    _attribute("channels", 32, "", "Number of lasers.", low=1.0),
    _attribute("points_per_second", 56000.0, "1/s", "Rays of all lasers per second.", low=1.0),
    _attribute("rotation_frequency", 10.0, "Hz", "Rotations per second.", low=0.0, open_low=True),
    _attribute("upper_fov", 10.0, "deg", "Elevation of the first laser.", low=-90.0, high=90.0),
    _attribute("lower_fov", -30.0, "deg", "Elevation of the last laser.", low=-90.0, high=90.0),
    _attribute("horizontal_fov", 360.0, "deg", "Extent in azimuth.", low=0.0, open_low=True, high=360.0),
)
"""Geometry of a scan, an alternative to `pattern`."""
_RANGE = "Largest measured distance."
_LABELLED = ("distances", "points_b", "cos_incidence", "geom_ids", "semantic_ids")


def _scan_fields(values: Mapping[str, Any], title: str, *, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a lidar with equal angles between its lasers, which fire together."""
    fields = {**fixed, "max_distance": 10.0, **values}
    fields["max_distance"] = fields.pop("range", fields["max_distance"])
    given = {each.id: fields.pop(each.id) for each in _SCAN if each.id in fields}
    if "pattern" not in fields:
        lasers, rate, turns, upper, lower, width = (given.get(each.id, each.value) for each in _SCAN)
        elevations = [upper - k * (upper - lower) / max(lasers - 1, 1) for k in range(lasers)]
        span = (-0.5 * width, 0.5 * width)
        fields["pattern"] = {"kind": "spinning", "elevations": elevations, "cycle_interval": lasers / rate,
                             "rate_hz": turns, "horizontal_fov": span, "sawtooth": True}  # fmt: skip
    elif given:
        name, value = next(iter(given.items()))
        raise ConfigError.single(title, name, value, "no value, since pattern is set")
    return fields


_WAY = {"distance": "max_distance", "only_dynamics": "ignore_static", "debug_linetrace": "debug_vis"}
"""Attribute of an obstacle sensor -> field."""
_CONE = {"horizontal_fov": "horizontal_fov_deg", "vertical_fov": "vertical_fov_deg", "range": "max_distance"}
"""Attribute of a radar -> field."""


def _cone_fields(values: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Return the fields of a radar, whose rays are denser towards the axis by default."""
    fields = {_CONE.get(name, name): value for name, value in values.items()}
    return fields if "pattern" in fields else {"distribution": "central", **fields}


# Motion and position --------------------------------------------------------------------------------------------------

_IMU = {f"{knob}_{what}": tuple(f"noise_{name}_{word}_{axis}" for axis in "xyz") for knob, name, what, word in (
    ("acc", "accel", "noise", "stddev"), ("gyro", "gyro", "noise", "stddev"), ("gyro", "gyro", "bias", "bias"),
)}  # fmt: skip
_GNSS = {f"pos_{what}": tuple(f"noise_{name}_{word}" for name in ("lon", "lat", "alt")) for what, word in (
    ("noise", "stddev"), ("bias", "bias"),
)}  # fmt: skip
"""Vector in the config (x, y, z, or east, north, up) -> attributes of its components."""
_EQUATOR, _FLATNESS = 6378137.0, 0.00669437999014
"""WGS84: equatorial radius, m, and squared eccentricity."""


def _receiver_fields(values: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Return the fields of a GNSS receiver; errors in degrees are converted to m at the latitude of the origin."""
    latitude = math.radians(float((values.get("origin") or (0.0,))[0]))
    normal = _EQUATOR / math.sqrt(1.0 - _FLATNESS * math.sin(latitude) ** 2)
    meridian = (1.0 - _FLATNESS) * normal**3 / _EQUATOR**2
    degree = math.radians(1.0)
    return _vectors(dict(values), title, _GNSS, (degree * normal * math.cos(latitude), degree * meridian, 1.0))


def _component(name: str, unit: str) -> Attribute:
    """Return the attribute for one component of a deviation or a bias."""
    is_bias = "bias" in name
    doc = f"{'Error that is the same in' if is_bias else 'Standard deviation of'} each sample."
    return _attribute(name, 0.0, unit, doc, **({} if is_bias else {"low": 0.0}))


_VARIANTS = (
    *(_typed(type, doc) for type, doc in _TYPES.items()),
    _camera(
        "rgb", "Camera that shows colours.", (*_EXPOSURE, *_EFFECTS), fixed={"data_types": ("rgb",)},
        hidden=tuple(_COLORIZE + name for name in _SEGMENTATIONS), fields=_color_fields,
    ),
    _camera(
        "dvs", "Camera whose pixels report changes of their brightness.", _EVENTS, kind="event_camera",
        fixed={"positive_threshold": 0.3, "negative_threshold": 0.3},
        hidden=("refractory_period", *(_COLORIZE + name for name in _SEGMENTATIONS)), fields=_event_fields,
    ),
    Variant(
        "sensor.lidar.ray_cast", "lidar", "Rotating lidar whose returns depend on distance only.",
        (*_SCAN, _attribute("range", 10.0, "m", _RANGE, low=0.0, open_low=True), *_SEED),
        ("max_distance", "model"), {"max_distance": "range"},
        partial(_scan_fields, fixed={"model": "dropoff", "motion_distortion": False}),
    ),
    Variant(
        "sensor.lidar.ray_cast_semantic", "lidar", "Rotating lidar without errors that shows what each ray hits.",
        (*_SCAN, _attribute("range", 10.0, "m", _RANGE, low=0.0, open_low=True)),
        ("max_distance", "model"), {"max_distance": "range"},
        partial(_scan_fields, fixed={"motion_distortion": False, "fields": _LABELLED}),
    ),
    Variant(
        "sensor.other.radar", "radar", "Radar: distance and radial velocity of the hits in a cone of rays.",
        (
            _attribute("horizontal_fov", 30.0, "deg", "Full horizontal angle of the cone.", low=0.0, high=360.0),
            _attribute("vertical_fov", 30.0, "deg", "Full vertical angle of the cone.", low=0.0, high=180.0),
            _attribute("range", 100.0, "m", _RANGE, low=0.0, open_low=True),
            _attribute("distribution", "central", "", "Distribution of the rays: denser towards the axis, or uniform.",
                       recommended_values=("central", "area"), restrict_to_recommended=True),
            *_SEED,
        ),
        tuple(_CONE.values()), {field: name for name, field in _CONE.items()}, _cone_fields,
    ),
    Variant(
        "sensor.other.obstacle", "obstacle", "Nearest obstacle ahead; it sends a message while there is one.",
        (
            _attribute("distance", 5.0, "m", "Longest way to an obstacle.", low=0.0, open_low=True),
            _attribute("only_dynamics", False, "", "Whether shapes that cannot move are ignored."),
            _attribute("debug_linetrace", False, "", "Whether viewers draw the sensor."),
        ),
        tuple(_WAY.values()), {field: name for name, field in _WAY.items()},
        lambda values, title: {_WAY.get(name, name): value for name, value in values.items()},
    ),
    Variant(
        "sensor.other.imu", "imu", "Inertial measurement unit: accelerometer and gyroscope.",
        (*(_component(name, "rad/s" if "gyro" in name else "m/s^2") for names in _IMU.values() for name in names),
         *_SEED),
        (), {}, lambda values, title: _vectors(dict(values), title, _IMU),
    ),
    Variant(
        "sensor.other.gnss", "gnss", "Satellite navigation receiver.",
        (*(_component(name, "m" if "alt" in name else "deg") for names in _GNSS.values() for name in names), *_SEED),
        (), {}, _receiver_fields,
    ),
)  # fmt: skip
VARIANTS: Mapping[str, Variant] = {variant.id: variant for variant in _VARIANTS}
"""Variants by the id of their blueprint."""
