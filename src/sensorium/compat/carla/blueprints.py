"""Blueprints with CARLA's ids and attributes, each for a kind of sensor; the tables are in ``blueprints.toml``.

A camera with one data type is a variant: ``sensor.camera.depth`` has `image_size_x`, `image_size_y` and `fov` instead
of `width`, `height` and `lens`. A variant with the id of its kind replaces the blueprint of the kind: an IMU also has
`noise_accel_stddev_x`. The other attributes are fields of the config. An attribute without a counterpart accepts only
the value that corresponds to the sensor; the error for other values states the reason.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from sensorium.compat.carla import lidar_pattern
from sensorium.errors import ConfigError, shown
from sensorium.wire.attributes import Attribute, SensorDefinition

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_TABLES: dict[str, Any] = tomllib.loads(files(__package__).joinpath("blueprints.toml").read_text("utf-8"))
_GROUPS = {group: [Attribute(*each) for each in schemas.items()] for group, schemas in _TABLES["attributes"].items()}
for _each in _TABLES["refused"]:
    _GROUPS.setdefault(_each["group"], []).extend(
        Attribute(id, {"const": value, "default": value, "type": _TYPES[type(value)], "description": _each["reason"]})
        for id, value in _each["accepted"].items()
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """A blueprint that stands for a kind of sensor with some fields given.

    Attributes:
        id: id of the blueprint.
        kind: kind of the sensor.
        groups: groups of attributes in addition to those of the kind; one with the same id replaces that of the kind.
        doc: description of the sensor; empty for that of the kind.
        names: field of the config -> attribute that sets it; the field itself is no attribute.
        defaults: fields with other values than the default of the kind.
        hidden: further attributes of the kind that it does not have.
    """

    id: str
    kind: str
    groups: Sequence[str]
    doc: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    hidden: Sequence[str] = ()

    @property
    def attributes(self) -> list[Attribute]:
        """Attributes in addition to those of the kind."""
        return [attribute for group in (*self.groups, "tick") for attribute in _GROUPS[group]]

    def define(self, definition: SensorDefinition) -> SensorDefinition:
        """Return the definition of the variant, from that of the kind."""
        own = self.attributes
        left_out = {*self.hidden, *self.names, *(each.id for each in own)}
        attributes = list(own)
        for each in definition:
            if each.id in self.defaults:  # shown as it is
                each = replace(each, schema={**each.schema, "default": self.defaults[each.id]})
            attributes += [each] * (each.id not in left_out)
        doc = self.doc or definition.doc
        return replace(definition, id=self.id, attributes=tuple(attributes), doc=doc, tags=(), kind="")

    def fields(self, values: Mapping[str, Any], title: str) -> dict[str, Any]:
        """Return the fields of the config from the chosen values.

        Args:
            values: attribute id -> value.
            title: title of the blueprint, for messages.

        Raises:
            ConfigError: an attribute and the field that it sets are both chosen.
        """
        field_of = {name: field for field, name in self.names.items()}
        fixed = {each.id for each in self.attributes if each.is_fixed}
        chosen = {field_of.get(name, name): value for name, value in values.items() if name not in fixed}
        fields = {**self.defaults, **chosen}
        for group in (*self.groups, "tick"):
            if group in _CONVERSIONS:
                given = {each.id: fields.pop(each.id) for each in _GROUPS[group] if each.id in fields}
                fields |= _CONVERSIONS[group](given, fields, title)
        return fields


def _refuse_both(given: Mapping[str, Any], other: str, fields: Mapping[str, Any], title: str) -> None:
    """Raise an error for the first of some attributes if another field is set."""
    if given and other in fields:
        name, value = next(iter(given.items()))
        raise ConfigError.single(title, name, value, f"no value, since {other} is set to {shown(fields[other])}")


# Conversions: each takes the chosen attributes of a group and the fields, and returns the fields that they set -------


def _camera_fields(given: Mapping[str, Any], fields: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Return the lens of a field of view; a camera of the model has its own."""
    _refuse_both(given, "lens", fields, title)
    if not given and {"lens", "camera", "cameras"} & fields.keys():
        return {}
    aperture = 2.0 * math.tan(0.5 * math.radians(given.get("fov", 90.0)))
    return {"lens": {"kind": "pinhole", "focal_length": 1.0, "horizontal_aperture": aperture}}


def _color_fields(given: Mapping[str, Any], fields: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Return the stage of an exposure other than the default."""
    speed, iso, stop = (given.get(each.id, each.default) / each.default for each in _GROUPS["exposure"][:3])
    if (speed, iso, stop) == (1.0, 1.0, 1.0):
        return {}
    times = {"exposure_time": 0.005 / speed, "white_exposure": 0.005 * stop**2}
    return {"stages": ({"kind": "image", "gain": iso, **times}, *fields.get("stages", ()))}


def _event_fields(given: Mapping[str, Any], fields: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Return the times in s."""
    return {name.removesuffix("_ns"): 1e-9 * value if name.endswith("_ns") else value for name, value in given.items()}


def _scan_fields(given: Mapping[str, Any], fields: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Return the pattern of the lasers."""
    _refuse_both(given, "pattern", fields, title)
    return {} if "pattern" in fields else {"pattern": lidar_pattern(**given)}


def _cone_fields(given: Mapping[str, Any], fields: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Return the distribution of the rays; a pattern has its own."""
    return dict(given) if "pattern" in fields else {"distribution": "central", **given}


def _period(given: Mapping[str, Any], fields: Mapping[str, Any], title: str) -> dict[str, Any]:
    _refuse_both(given, "update_period", fields, title)
    return {"update_period": given["sensor_tick"]} if given else {}


def _vectors(given: Mapping[str, Any], fields: Mapping[str, Any], title: str, group: str = "imu") -> dict[str, Any]:
    """Return the vectors of some components; components that are not set are 0."""
    vectors = {}
    for vector, names in _TABLES["vectors"][group].items():
        parts = {name: given[name] for name in names if name in given}
        _refuse_both(parts, vector, fields, title)
        if parts:
            vectors[vector] = [parts.get(name, 0.0) for name in names]
    return vectors


_EQUATOR, _FLATNESS = 6378137.0, 0.00669437999014
"""WGS84: equatorial radius, m, and squared eccentricity."""


def _receiver_fields(given: Mapping[str, Any], fields: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Return the errors in m; those in degrees are converted at the latitude of the origin."""
    latitude = math.radians(float((fields.get("origin") or (0.0,))[0]))
    normal = _EQUATOR / math.sqrt(1.0 - _FLATNESS * math.sin(latitude) ** 2)
    meridian = (1.0 - _FLATNESS) * normal**3 / _EQUATOR**2
    east, north = math.radians(1.0) * normal * math.cos(latitude), math.radians(1.0) * meridian
    vectors = _vectors(given, fields, title, "gnss")
    return {name: (east * lon, north * lat, alt) for name, (lon, lat, alt) in vectors.items()}


_CONVERSIONS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any], str], dict[str, Any]]] = {
    "image": _camera_fields, "exposure": _color_fields, "events": _event_fields, "scan": _scan_fields,
    "cone": _cone_fields, "tick": _period, "imu": _vectors, "gnss": _receiver_fields,
}  # fmt: skip
"""Group of attributes -> conversion; attributes of other groups are fields, or have names of fields."""
VARIANTS: Mapping[str, Variant] = {id: Variant(id=id, **table) for id, table in _TABLES["blueprints"].items()}
"""Variants by the id of their blueprint."""
