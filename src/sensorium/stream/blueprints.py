"""Blueprints from the configs of sensors, and configs from the values chosen on a blueprint.

Every registered config class is a `SensorDefinition`: the JSON schema of the config. The id is ``sensor.other.KIND``.
The `variants` of `sensorium.compat` have further ids, such as a camera of depth images alone. Values that the config
rejects are also rejected here, with the text of the config's errors.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema

from sensorium import compat, registry
from sensorium.errors import ConfigError, DuplicateNameError, Fault, SensoriumError, SensoriumWarning, shown
from sensorium.measurement.sensor_cfg import SELECTORS, MountedSensorCfg, SensorCfg
from sensorium.spec import Requirement
from sensorium.wire.attributes import Attribute, SensorDefinition, blueprint_title, find_id, plain

if TYPE_CHECKING:
    from sensorium.pose import Pose

_LOG = logging.getLogger("sensorium.stream")


def definitions(extra: Iterable[Any] = (), *, presets: Mapping[str, Any] | None = None) -> dict[str, SensorDefinition]:
    """Return the definitions of all registered sensors and of others, by id.

    A class that cannot be described, e.g. of a broken plugin, is omitted with a `SensoriumWarning` that names it. A
    kind shared by two classes is also omitted, and the log reports it once.

    Args:
        extra: classes of streamed sensors, with a `definition`.
        presets: presets by name, each with a `kind`. They become the recommended values of an attribute ``preset``.
    """
    found: dict[str, SensorDefinition] = {}
    makers: list[tuple[str, Callable[[], Any]]] = []
    for id, kind in _kinds().items():
        try:
            registry.cfg_for_kind(kind)
        except DuplicateNameError as error:
            _report(f"The sensor kind {kind!r} has no blueprint: {error}")
        else:
            makers.append((repr(kind), partial(_of_scene, id, kind, presets or {})))
    makers += [(shown(each), each.definition) for each in extra]
    for what, make in makers:
        try:
            definition = make()
            if found.setdefault(definition.id, definition) != definition:
                raise DuplicateNameError(f"another sensor already has the blueprint {definition.id!r}")
        except Exception as error:
            text = f"the sensor {what} has no blueprint: {type(error).__name__}: {error}"
            warnings.warn(text, SensoriumWarning, stacklevel=2)
    return dict(sorted(found.items()))


def _of_scene(id: str, kind: str, presets: Mapping[str, Any]) -> SensorDefinition:
    """Return the definition of a sensor of the scene, with the presets of its kind."""
    definition = _find(id).definition
    names = [name for name, preset in presets.items() if preset.kind == kind and id == _id(kind)]
    if not names:
        return definition
    doc = "Name of a device preset. Attributes that are set explicitly take precedence."
    return definition.with_attributes(Attribute("preset", {"type": "string", "enum": names, "description": doc}))


@cache
def _report(text: str) -> None:
    """Log a text once."""
    _LOG.warning(text)


def build_cfg(
    id: str,
    values: Mapping[str, object] | None = None,
    *,
    name: str = "",
    attach_to: str | None = None,
    transform: Pose | None = None,
    preset: Callable[..., SensorCfg[Any]] | None = None,
) -> SensorCfg[Any]:
    """Return the config of a sensor from the values chosen on its blueprint.

    Args:
        id: id of the blueprint, or its bare kind.
        values: attribute id -> text or Python value; absent values use the config's defaults.
        name: name in the scene; empty uses the kind.
        attach_to: full name of the body it is attached to; None for the world. A selector among the values, such as
            ``site``, takes precedence.
        transform: pose of the sensor in the frame that it is attached to, x forward, also for cameras.
        preset: function that builds a config from the name of a preset and from fields; used if the blueprint has
            presets.

    Raises:
        UnknownNameError: there is no such blueprint.
        ConfigError: all faults together, each with the attribute, the value and the accepted values.
    """
    blueprint = _find(id)
    definition, title = blueprint.definition, blueprint_title(blueprint.definition.id)
    given = dict(values or {})
    device = str(given.pop("preset", None) or "") if preset is not None else ""
    fields = definition.choose(given)
    place, pose = blueprint.attached(fields, attach_to, title), blueprint.posed(transform, title)
    asked = {**dict.fromkeys(place, "attach_to"), "offset": "transform"}
    if (variant := compat.variants().get(definition.id)) is not None:
        fields = variant.fields(fields, title)
        asked |= variant.names
    fields |= place | pose
    if name:
        fields["name"] = name
    try:
        cfg = preset(device, **fields) if preset is not None and device else blueprint.cfg_class(**fields)
    except ConfigError as error:
        raise ConfigError(title, [_renamed(fault, asked) for fault in error.faults]) from None
    except SensoriumError:
        raise
    except Exception as error:  # a config that does not expect such values may raise any exception
        expected = f"values that {blueprint.cfg_class.__name__} accepts"
        text = f"{type(error).__name__}: {error}."
        raise ConfigError.single(title, ", ".join(fields), tuple(fields.values()), expected, text) from error
    if not isinstance(cfg, blueprint.cfg_class):
        raise ConfigError.single(title, "preset", device, f"a preset of kind {definition.kind}, not of {cfg.kind()}")
    return cfg


def _renamed(fault: Fault, asked: Mapping[str, str]) -> Fault:
    """Return a fault with the field name that the user chose, e.g. ``attach_to`` for ``body``."""
    words = fault.field.partition(".")[0].split(", ")
    return replace(fault, field=", ".join(asked.get(word, word) for word in words)) if {*words} & {*asked} else fault


def _kinds() -> dict[str, str]:
    """Return the kind of the sensor of each blueprint, by id."""
    known: Any = registry.registered()
    kinds = {_id(kind): kind for kind in sorted({cfg_class.kind() for cfg_class in known})}
    return kinds | {id: each.kind for id, each in compat.variants().items() if _id(each.kind) in kinds}


def _find(id: str) -> _Blueprint:
    kinds = _kinds()
    id = find_id({each: each.rpartition(".")[2] for each in kinds}, id)
    cfg_class: Any = registry.cfg_for_kind(kinds[id])
    found = _blueprint_of(cfg_class)
    variant = compat.variants().get(id)
    return found if variant is None else replace(found, definition=variant.define(found.definition))


def _id(kind: str) -> str:
    return f"sensor.other.{kind}"


# Blueprint of a config class ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Blueprint:
    """A config class and its blueprint.

    Args:
        cfg_class: the config class.
        definition: definition of the blueprint.
        selectors: accepted selectors, for a sensor with a mount.
        attach: field set by `attach_to`: ``"body"``, ``"primary"``, ``"joints"``, or empty for none.
        on_world: whether it is attached to the world by default.
    """

    cfg_class: type[SensorCfg[Any]]
    definition: SensorDefinition
    selectors: tuple[str, ...]
    attach: str
    on_world: bool

    def attached(self, fields: Mapping[str, Any], body: str | None, title: str) -> dict[str, Any]:
        """Return the fields that select the mount, unless `fields` already do."""
        selectors = ("primary", "prim_path") if self.attach == "primary" else self.selectors
        if any(name in fields for name in selectors):
            return {}
        if body is not None and self.attach:
            return {self.attach: _PLACES[self.attach](body)}
        ways = [name for name in ("site", "joint", "geom", "camera", "obj") if name in self.definition]
        if body is not None:
            expected = "no value, since this sensor is not mounted on a body"
            fix = f"Set {' or '.join(ways)}, and omit attach_to." if ways else "Omit attach_to."
        elif self.on_world:
            return {"body": "world"}
        elif self.attach in ("primary", "joints") or not self.selectors:
            return {}
        else:
            expected = "the name of a body" if self.attach else "a place"
            fix = f"Set {' or '.join(['attach_to', *ways] if self.attach else ways)}."
        raise ConfigError.single(title, "attach_to", body, expected, fix)

    def posed(self, transform: Pose | None, title: str) -> dict[str, Any]:
        """Return the field with the pose of the sensor."""
        if transform is None or not any((*transform.pos, *transform.rot[1:])):
            return {}
        if "offset" not in self.cfg_class.model_fields:
            fix = f"A {self.definition.kind} has no pose. Omit transform."
            raise ConfigError.single(title, "transform", transform, "the identity", fix)
        return {"offset": {"pos": transform.pos, "rot": transform.rot}}


_PLACES: Mapping[str, Callable[[str], Any]] = {
    "primary": lambda body: {"mode": "body", "pattern": body},
    "body": str,
    "joints": lambda body: f"{re.escape(body.partition('/')[0])}/.*" if "/" in body else ".*",
}
"""Field that `attach_to` sets -> its value for a body."""
_ATTACH = {
    "": "",
    "body": "body that the sensor is mounted on (required)",
    "primary": "body whose contacts are measured, instead of primary",
    "joints": "a body of the robot; all joints of that robot are measured, instead of joint and joints",
}
"""Field that `attach_to` sets -> description of its effect."""


@cache
def _blueprint_of(cfg_class: Any) -> _Blueprint:
    """Describe a config class; errors in the class are raised."""
    known = cfg_class.model_fields
    least = {name: 1.0 for name, info in known.items() if info.is_required()}
    is_mounted = issubclass(cfg_class, MountedSensorCfg)
    selectors = tuple(
        name for name in SELECTORS if name in known and (not is_mounted or _takes(cfg_class, least, {name: "x"}))
    )
    attach = next((name for name in _PLACES if name in (selectors if is_mounted else known)), "")
    on_world = is_mounted and attach == "body" and _takes(cfg_class, least, {"body": "world"})
    left_out = {"name", "offset", *(name for name in SELECTORS if is_mounted and name not in selectors)}
    schema = cfg_class.model_json_schema(schema_generator=_Schema)
    attributes = [
        Attribute(name, values, required=known[name].is_required() and name != attach)
        for name, values in schema["properties"].items()
        if name not in left_out
    ]
    kind = cfg_class.kind()
    definition = SensorDefinition(
        id=_id(kind),
        attributes=tuple(attributes),
        doc=_first_paragraph(registry.sensor_for(cfg_class)) or _first_paragraph(cfg_class),
        where="scene",
        needs=_in_words(kind, _requirements(cfg_class, least, selectors, attach)),
        attach=_ATTACH[attach].replace(" (required)", "; by default the world" if on_world else " (required)"),
        defs=schema.get("$defs", {}),
    )
    return _Blueprint(cfg_class, definition, selectors, attach, on_world)


def _first_paragraph(cls: type) -> str:
    return " ".join((cls.__doc__ or "").strip().split("\n\n")[0].split())


def _takes(cfg_class: type[SensorCfg[Any]], least: Mapping[str, Any], selector: Mapping[str, str]) -> bool:
    """Return whether a config accepts a selector."""
    try:
        cfg_class(**{**least, **selector})
    except ConfigError as error:
        return not any(fault.field in (*selector, "mount") for fault in error.faults)
    except Exception:  # caused by another placeholder value: reported when a sensor is built
        return True
    return True


# Requirements ---------------------------------------------------------------------------------------------------------


def _requirements(
    cfg_class: Any, least: Mapping[str, Any], selectors: Sequence[str], attach: str
) -> Iterable[Requirement]:
    """Return the requirements of an example config; without an example, those that the class always has."""
    sensor_class = registry.sensor_for(cfg_class)
    places = [{name: name} for name in ("body", "site", "joint") if name in selectors]
    where = places[0] if places else {attach: _PLACES[attach]("body")} if attach else {}
    names = ["body", "site", "geom", "joint", "camera"]
    model: Any = SimpleNamespace(names=lambda kind: [kind, *names], parent_body=lambda body: None)
    try:
        cfg = cfg_class.example() if hasattr(cfg_class, "example") else cfg_class(**{**least, **where})
        return list(sensor_class.needs(cfg, model, lambda requirement: None))
    except Exception:
        return getattr(sensor_class, "requires", ())


def _in_words(kind: str, needed: Iterable[Requirement]) -> str:
    """Return a description of what must be reserved."""
    words = []
    for requirement in needed:
        word = "contact" if requirement.kind == "CONTACT_REPORT" else kind
        words.append(f"{requirement.kind} (reserve {word})" if requirement.args else requirement.kind)
    return ", ".join(dict.fromkeys(words))


class _Schema(GenerateJsonSchema):
    """JSON schema of a config: types unknown to pydantic accept any value, and defaults are plain values."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        return {}

    def encode_default(self, dft: Any) -> Any:
        return plain(dft)
