"""Variants of blueprints: a kind of sensor for one purpose, with the attribute names that are usual for it.

A camera with one data type is a variant: ``sensor.camera.depth`` has `image_size_x`, `image_size_y` and `fov` instead
of `width`, `height` and `lens`. The other attributes are fields of the config.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
        f"sensor.camera.{name}", kind, doc, (*attributes, *more), ("data_types", "width", "height", *hidden),
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

_SPEED, _ISO = 200.0, 100.0
"""Shutter speed (1/s) and sensitivity at which white is white."""
_EXPOSURE = (
    Attribute(
        id="shutter_speed", type="float", unit="1/s", low=0.0, open_low=True, default=str(_SPEED),
        doc="Inverse of the exposure time. At 200/s and ISO 100 white is full scale.",
    ),
    Attribute(id="iso", type="float", low=0.0, open_low=True, default=str(_ISO), doc="Sensitivity; twice is one stop."),
)  # fmt: skip


def _color_fields(values: Mapping[str, Any], title: str, *, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a colour camera; an exposure other than the default becomes a stage."""
    given = dict(values)
    speed, iso = given.pop("shutter_speed", None) or _SPEED, given.pop("iso", None) or _ISO
    fields = _camera_fields(given, title, fixed=fixed)
    if (speed, iso) != (_SPEED, _ISO):
        stage = {"kind": "image", "exposure_time": 1.0 / speed, "gain": iso / _ISO, "white_exposure": 1.0 / _SPEED}
        fields["stages"] = (stage, *fields.get("stages", ()))
    return fields


_THRESHOLD = "of the brightness (the logarithm of the luminance)"
_EVENTS = (
    Attribute(
        id="positive_threshold", type="float", low=0.0, open_low=True, default="0.3",
        doc=f"Rise {_THRESHOLD} that causes an event.",
    ),
    Attribute(
        id="negative_threshold", type="float", low=0.0, open_low=True, default="0.3",
        doc=f"Fall {_THRESHOLD} that causes an event.",
    ),
    Attribute(
        id="refractory_period_ns", type="int", unit="ns", low=0.0, default="0",
        doc="Time after an event in which its pixel reports no other.",
    ),
)  # fmt: skip


def _event_fields(values: Mapping[str, Any], title: str, *, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an event camera; times are in s."""
    fields = _camera_fields(values, title, fixed=fixed)
    if (period := fields.pop("refractory_period_ns", None)) is not None:
        fields["refractory_period"] = 1e-9 * period
    return fields


_VARIANTS = (
    *(_typed(type, doc) for type, doc in _TYPES.items()),
    _camera(
        "rgb", "Camera that shows colours.", _EXPOSURE, fixed={"data_types": ("rgb",)},
        hidden=tuple(_COLORIZE + name for name in _SEGMENTATIONS), fields=_color_fields,
    ),
    _camera(
        "dvs", "Camera whose pixels report changes of their brightness.", _EVENTS, kind="event_camera",
        fixed={"positive_threshold": 0.3, "negative_threshold": 0.3},
        hidden=("refractory_period", *(_COLORIZE + name for name in _SEGMENTATIONS)), fields=_event_fields,
    ),
)  # fmt: skip
VARIANTS: Mapping[str, Variant] = {variant.id: variant for variant in _VARIANTS}
"""Variants by the id of their blueprint."""
