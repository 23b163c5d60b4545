"""Variants of blueprints: a kind of sensor with one purpose, whose attributes have the names that such a sensor has.

A camera with one data type is a variant: ``sensor.camera.depth`` has `image_size_x`, `image_size_y` and `fov` in the
place of `width`, `height` and `lens`. The other attributes are fields of the config.
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


def _camera_fields(values: Mapping[str, Any], title: str, *, type: str, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a camera's config from the attributes of its variant."""
    fields = {**fixed, **values, "data_types": (type,)}
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


def _camera(type: str, doc: str) -> Variant:
    option = _COLORIZE + type
    attributes = [
        Attribute(id=name, type="int", unit="px", low=1.0, default=str(size), doc=f"Image {field}.")
        for name, (field, size) in _SIZES.items()
    ]
    text = "Horizontal field of view of a pinhole; a camera of the model has its own. An alternative to lens."
    attributes.append(
        Attribute(id="fov", type="float", unit="deg", low=0.0, high=179.9, open_low=True, default=str(_FOV), doc=text)
    )
    fixed: dict[str, Any] = {}
    if "segmentation" in type:
        fixed[option] = False
        text = "Whether the image is a color (uint8, 4 channels) instead of an id (int32, 1 channel)."
        attributes.append(Attribute(id=option, type="bool", default="false", doc=text))
    hidden = ("data_types", "width", "height", *(_COLORIZE + name for name in _SEGMENTATIONS if name != type))
    names = {field: name for name, (field, _) in _SIZES.items()}
    fields = partial(_camera_fields, type=type, fixed=fixed)
    return Variant(f"sensor.camera.{type}", "camera", doc, tuple(attributes), hidden, names, fields)


VARIANTS: Mapping[str, Variant] = {
    variant.id: variant for variant in (_camera(type, doc) for type, doc in _TYPES.items())
}
"""Variants by the id of their blueprint."""
