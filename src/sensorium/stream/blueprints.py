"""Blueprints from the configs of sensors, and configs from the values chosen on a blueprint.

Every registered config class is a `SensorDefinition`. Its fields are the attributes, with their types, defaults,
meanings and, for choices, the available values. The id is ``sensor.other.KIND``. Some kinds also have
`sensorium.stream.variants`, such as a camera of depth images alone. Values that the config rejects are also rejected
here, with the text of the config's errors.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, cast

from pydantic.json_schema import GenerateJsonSchema

from sensorium import registry
from sensorium.cfg import SELECTORS, MountedSensorCfg, SensorCfg
from sensorium.errors import (
    ConfigError,
    DuplicateNameError,
    Fault,
    SensoriumError,
    SensoriumWarning,
    UnknownNameError,
    shown,
)
from sensorium.spec import Requirement
from sensorium.stream.variants import VARIANTS
from sensorium.wire.attributes import Attribute, SensorDefinition, blueprint_title, nearest_kind, plain

if TYPE_CHECKING:
    from sensorium.pose import Pose

RESERVED_BY_WORD = {"CONTACT_REPORT": "contact"}
"""Requirements with arguments that have a separate word for `reserve`."""

_TICK = "sensor_tick"
_HANDLED = ("name", "offset")


class PresetLike(Protocol):
    """Required properties of a preset."""

    @property
    def kind(self) -> str:
        """Kind of the sensor."""


Extra = SensorDefinition | type
"""Definition of a sensor, or a class with a `definition`: a streamed sensor, or one that runs in the client."""

_LOG = logging.getLogger("sensorium.stream")
_ambiguous: set[str] = set()
"""Kinds already reported in the log."""


def definitions(
    extra: Iterable[Extra] = (), *, presets: Mapping[str, PresetLike] | None = None
) -> dict[str, SensorDefinition]:
    """Return the definitions of all registered sensors and of others, by id.

    A class that cannot be described, e.g. of a broken plugin, is omitted with a `SensoriumWarning` that names it. A
    kind shared by two classes is also omitted, and the log reports it once.

    Args:
        extra: definitions of other sensors, or classes that return one from `definition()`.
        presets: presets by name, which become the recommended values of an attribute ``preset``.
    """
    found: dict[str, SensorDefinition] = {}

    def add(what: str, make: Callable[[], SensorDefinition]) -> None:
        try:
            definition = make()
            if not isinstance(definition, SensorDefinition):
                raise TypeError(f"its definition is {shown(definition)}, expected a SensorDefinition")
            if found.get(definition.id, definition) != definition:
                raise DuplicateNameError(f"another sensor already has the blueprint {definition.id!r}")
        except Exception as error:
            text = f"{what} has no blueprint: {type(error).__name__}: {error}"
            warnings.warn(text, SensoriumWarning, stacklevel=3)
            return
        found[definition.id] = definition

    def of_kind(kind: str) -> SensorDefinition:
        cfg_class: Any = registry.cfg_for_kind(kind)
        definition = _blueprint_of(cfg_class).definition
        if (variant := VARIANTS.get(definition.id)) is not None:
            definition = variant.define(definition)
        names = tuple(name for name, preset in (presets or {}).items() if preset.kind == kind)
        if not names:
            return definition
        doc = "Name of a device preset. Attributes that are set explicitly take precedence."
        return definition.with_attributes(
            Attribute(id="preset", default="", recommended_values=names, restrict_to_recommended=True, doc=doc)
        )

    for kind in sorted(set(map(_kind, registry.registered()))):
        try:
            registry.cfg_for_kind(kind)
        except DuplicateNameError as error:
            if kind not in _ambiguous:
                _ambiguous.add(kind)
                _LOG.warning("The sensor kind %r has no blueprint: %s", kind, error)
            continue
        add(f"the sensor {kind!r}", partial(of_kind, kind))
        for variant in VARIANTS.values():
            if variant.kind == kind and variant.id != _id(kind):
                add(f"the sensor {variant.id!r}", lambda id=variant.id: _find(id).definition)  # type: ignore[misc]
    for each in extra:
        add(f"the sensor {shown(each)}", partial(_defined, each))
    return dict(sorted(found.items()))


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
    chosen = definition.choose(given)
    fields = {attribute.id: chosen[attribute.id] for attribute in definition
              if attribute.id in chosen and not attribute.is_fixed}  # fmt: skip
    if _TICK in fields:
        if "update_period" in fields:
            fault = Fault(_TICK, shown(fields[_TICK]), "no value, since update_period is set", "Keep one of the two.")
            raise ConfigError(title, [fault])
        fields["update_period"] = fields.pop(_TICK)
    place, pose = blueprint.attached(fields, attach_to, title), blueprint.posed(transform, title)
    asked = {**dict.fromkeys(place, "attach_to"), "offset": "transform"}
    if (variant := VARIANTS.get(definition.id)) is not None:
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


def _defined(each: Any) -> SensorDefinition:
    return each if isinstance(each, SensorDefinition) else each.definition()


def _renamed(fault: Fault, asked: Mapping[str, str]) -> Fault:
    """Return a fault with the field name that the user chose, e.g. ``attach_to`` for ``body``."""
    words = fault.field.partition(".")[0].split(", ")
    return replace(fault, field=", ".join(asked.get(word, word) for word in words)) if {*words} & {*asked} else fault


def _find(id: str) -> _Blueprint:
    ids = {_id(kind): kind for kind in map(_kind, registry.registered())}
    kind = ids.get(id, id.removeprefix("sensor.other."))
    variant = VARIANTS.get(_id(kind) if kind in ids.values() else _full_id(id))
    if variant is not None:
        kind = variant.kind
    if kind not in ids.values():
        raise UnknownNameError("blueprint", id, ids, nearest_kind(id, ids, ids.values()))
    cfg_class: Any = registry.cfg_for_kind(kind)
    found = _blueprint_of(cfg_class)
    return found if variant is None else replace(found, definition=variant.define(found.definition))


def _full_id(id: str) -> str:
    """Return the id of the variant with this short name; other ids unchanged."""
    return next((each for each in VARIANTS if each.rpartition(".")[2] == id), id)


def _id(kind: str) -> str:
    return f"sensor.other.{kind}"


def _kind(cfg_class: Any) -> str:
    kind: str = cfg_class.kind()
    return kind


# Blueprint of a config class ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Blueprint:
    """A config class and its blueprint.

    Args:
        cfg_class: the config class.
        definition: definition of the blueprint.
        selectors: accepted selectors, for a sensor with a mount.
        attach: field set by `attach_to`: ``"body"``, ``"primary"``, ``"joints"``, or empty for none.
        on_world: whether it may be attached to the world.
    """

    cfg_class: type[SensorCfg[Any]]
    definition: SensorDefinition
    selectors: tuple[str, ...]
    attach: str
    on_world: bool

    def attached(self, fields: Mapping[str, Any], body: str | None, title: str) -> dict[str, Any]:
        """Return the fields that select the mount, unless `fields` already do."""
        selectors = self.selectors
        if self.attach == "primary":
            selectors = ("primary", "prim_path")
        if any(name in fields for name in selectors):
            return {}
        if not self.attach and self.selectors and body is None:
            raise self._needs_place(None, "a place", title)
        if self.attach == "body":
            if body is None and not self.on_world:
                raise self._needs_place(None, "the name of a body", title)
            return {"body": "world" if body is None else body}
        if body is None:
            return {}
        if self.attach == "primary":
            return {"primary": {"mode": "body", "pattern": body}}
        if self.attach == "joints":
            entity, slash, _ = body.partition("/")
            return {"joints": f"{re.escape(entity)}/.*" if slash else ".*"}
        raise self._needs_place(body, "no value, since this sensor is not mounted on a body", title)

    def _needs_place(self, body: str | None, expected: str, title: str) -> ConfigError:
        """Return the error for an invalid mount, with the fields to set."""
        ways = [name for name in self.selectors if name in ("site", "joint", "geom", "camera")]
        ways += [name for name in ("obj",) if name in self.definition]
        words = " or ".join(ways)
        if body is not None:
            fix = f"Set {words}, and omit attach_to." if ways else "Omit attach_to."
        elif not self.attach:
            fix = f"Set {words}."
        else:
            fix = f"Set attach_to or {words}." if ways else "Set attach_to."
        return ConfigError.single(title, "attach_to", body, expected, fix)

    def posed(self, transform: Pose | None, title: str) -> dict[str, Any]:
        """Return the field with the pose of the sensor."""
        offset = self.cfg_class.model_fields.get("offset")
        pose: dict[str, Any] = {}
        if transform is not None:
            pos, rot = tuple(map(float, transform.pos)), tuple(map(float, transform.rot))
            if any(pos) or rot not in ((1.0, 0.0, 0.0, 0.0), (-1.0, 0.0, 0.0, 0.0)):
                pose = {"pos": pos, "rot": rot}
        if offset is None:
            if pose:
                fix = f"A {self.definition.kind} has no pose. Omit transform."
                raise ConfigError.single(title, "transform", transform, "the identity", fix)
            return {}
        return {"offset": pose} if pose else {}


@cache
def _blueprint_of(cfg_class: Any) -> _Blueprint:
    """Describe a config class; errors in the class are raised."""
    kind = _kind(cfg_class)
    least = _least(cfg_class)
    is_mounted = issubclass(cfg_class, MountedSensorCfg)
    known = cfg_class.model_fields
    selectors = tuple(name for name in SELECTORS if name in known)
    attach, on_world = "", True
    if is_mounted:
        selectors = tuple(name for name in selectors if _takes(cfg_class, least, name, "x"))
        attach = "body" if "body" in selectors else ""
        on_world = attach == "body" and _takes(cfg_class, least, "body", "world")
    elif "primary" in known:
        attach = "primary"
    elif "joints" in known:
        attach = "joints"
    elif "body" in known:
        attach, on_world = "body", False
    left_out = {*_HANDLED, *(name for name in SELECTORS if is_mounted and name not in selectors)}
    attributes = [
        Attribute.from_schema(name, schema, required=known[name].is_required() and name != attach)
        for name, schema in cfg_class.model_json_schema(schema_generator=_Schema)["properties"].items()
        if name not in left_out
    ]
    if "update_period" in known and _TICK not in known:
        attributes.insert(0, Attribute(id=_TICK, type="float", unit="s", low=0.0, doc="Alias of `update_period`."))
    needed = _requirements(cfg_class, least, selectors, attach)
    definition = SensorDefinition(
        id=_id(kind),
        attributes=tuple(attributes),
        tags=tuple(dict.fromkeys([*_id(kind).split("."), kind])),
        doc=_first_paragraph(registry.sensor_for(cfg_class)) or _first_paragraph(cfg_class),
        where="scene",
        needs=_in_words(kind, needed),
        kind=kind,
        attach=_attach_in_words(attach, on_world),
    )
    return _Blueprint(cfg_class, definition, selectors, attach, on_world)


def _attach_in_words(attach: str, on_world: bool) -> str:
    if attach == "body":
        return f"body that the sensor is mounted on{'; by default the world' if on_world else ' (required)'}"
    if attach == "primary":
        return "body whose contacts are measured, instead of primary"
    if attach == "joints":
        return "a body of the robot; all joints of that robot are measured, instead of joint and joints"
    return ""


def _first_paragraph(cls: type) -> str:
    return " ".join((cls.__doc__ or "").strip().split("\n\n")[0].split())


def _takes(cfg_class: type[SensorCfg[Any]], least: Mapping[str, Any], selector: str, value: str) -> bool:
    """Return whether a config accepts a selector."""
    try:
        cfg_class(**{**least, selector: value})
    except ConfigError as error:
        return not any(fault.field in (selector, "mount") for fault in error.faults)
    except Exception:  # caused by another placeholder value: reported when a sensor is built
        return True
    return True


def _least(cfg_class: type[SensorCfg[Any]]) -> dict[str, Any]:
    """Return placeholder values for the required fields, as far as possible."""
    made: dict[str, Any] = {}
    for name, info in cfg_class.model_fields.items():
        if info.is_required():
            made[name] = {"mode": "body", "pattern": "body"} if name == "primary" else 1.0
    return made


# Requirements ---------------------------------------------------------------------------------------------------------


def _requirements(
    cfg_class: type[SensorCfg[Any]], least: Mapping[str, Any], selectors: Sequence[str], attach: str
) -> tuple[Requirement, ...]:
    """Return the requirements of an example config; without an example, those that the class always has."""
    sensor_class = registry.sensor_for(cfg_class)
    where: dict[str, Any] = {"primary": {"mode": "body", "pattern": "body"}} if attach == "primary" else {}
    where = {"joints": "joint"} if attach == "joints" else where
    places: list[dict[str, Any]] = [{name: name} for name in ("body", "site", "joint") if name in selectors]
    names = ["body", "site", "geom", "joint", "camera"]
    model = SimpleNamespace(names=lambda kind: [kind, *names], parent_body=lambda body: None)
    makers: list[Callable[[], Any]] = [cast(Any, owner).example for owner in (cfg_class, sensor_class)
                                       if hasattr(owner, "example")]  # fmt: skip
    makers += [partial(cfg_class, **{**least, **place}) for place in places or [where]]
    for make in makers:
        try:
            needed = list(sensor_class.needs(make(), model, lambda requirement: None))
        except Exception:
            continue
        return tuple(dict.fromkeys(needed))
    return tuple(getattr(sensor_class, "requires", ()))


def _in_words(kind: str, needed: Iterable[Requirement]) -> str:
    """Return a description of what must be reserved."""
    words = []
    for requirement in needed:
        word = RESERVED_BY_WORD.get(requirement.kind, kind) if requirement.args else ""
        words.append(f"{requirement.kind} (reserve {word})" if word else requirement.kind)
    return ", ".join(dict.fromkeys(words))


class _Schema(GenerateJsonSchema):
    """JSON schema of a config: types unknown to pydantic accept any value, and defaults are plain values."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        return {}

    def encode_default(self, dft: Any) -> Any:
        return plain(dft)
