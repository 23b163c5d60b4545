"""Blueprints: attributes as properties of a JSON schema, with the same values on both sides.

A `SensorDefinition` names a sensor that can be spawned and lists its `Attribute`s. Values are sent as text or as plain
data. ``"0.02"``, ``"true"``, ``"[0, 0, 1]"``, ``"{uniform = [0, 0.02]}"`` (TOML) and the same in JSON are accepted for
numbers, booleans, vectors and structures.
"""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from sensorium.errors import ConfigError, Fault, SensoriumError, UnknownNameError, WireError, listed, nearest, shown

if TYPE_CHECKING:
    from sensorium.wire.keywords import AttributeType, Keywords

Where = Literal["scene", "server", "client"]
"""Places where a sensor runs: in the scene, beside it in the server, or in the client."""
_EXPECTED = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "numbers, e.g. [0, 0, 1]",
    "structure": "a value, or a text in JSON or TOML",
}
_ID = re.compile(r"[A-Za-z_]\w*")
_DEFINITION_ID = re.compile(r"[a-z_]\w*(\.[a-z_0-9]\w*)+")


def _keywords(schema: Mapping[str, Any]) -> Keywords:
    """Return the keywords of a JSON schema. Raises ValueError if it is none."""
    from sensorium.wire.keywords import Keywords, convert

    return convert(schema, Keywords)


@dataclass(frozen=True)
class Attribute:
    """Attribute of a blueprint: a property of a JSON schema.

    Args:
        id: name, an identifier.
        schema: JSON schema of the values, with the keywords that pydantic uses: ``type``, ``default``, ``description``,
            bounds, ``examples`` (recommended values), ``enum`` (the only accepted values), and also ``unit`` (an SI
            unit). Bounds also apply to the components of a vector or a list.
        required: whether a value is required.

    Raises:
        ConfigError: the id is not an identifier, the schema is invalid, or it does not accept its own default or
            examples.
    """

    id: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    required: bool = False

    def __post_init__(self) -> None:
        title = f"Attribute({self.id!r})"
        if not _ID.fullmatch(str(self.id)):
            raise ConfigError.single(title, "id", self.id, "letters, digits and underscores, e.g. 'safe_distance'")
        try:
            stated = {"examples": self._keywords.examples, "enum": self.choices, "default": [self._keywords.default]}
        except ValueError as error:
            raise ConfigError.single(title, "schema", self.schema, "a JSON schema of a property", f"{error}.") from None
        for name, value in ((name, each) for name, values in stated.items() for each in values if each is not None):
            try:
                self.parse(value)
            except ConfigError as error:
                raise ConfigError(title, [replace(fault, field=name) for fault in error.faults]) from None

    @cached_property
    def _members(self) -> list[dict[str, Any]]:
        """The alternatives of the schema, without null."""
        return [each for each in _keywords(self.schema).any_of or [dict(self.schema)] if each.get("type") != "null"]

    @cached_property
    def _keywords(self) -> Keywords:
        """Keywords of the schema, of its only alternative, and of the numbers of a vector."""
        schema = {**self._members[0], **self.schema} if len(self._members) == 1 else self.schema
        words = _keywords(schema)
        return _keywords({**words.items, **schema}) if words.kind == "array" else words

    @property
    def type(self) -> AttributeType:
        """Type of the values."""
        return self._keywords.kind if len(self._members) == 1 else "structure"

    @cached_property
    def _listed(self) -> list[list[Any]]:
        """The values that each alternative lists: its constant, its enumeration, or those of an alternative flag."""
        flags = [True, False] if len(self._members) > 1 else []
        return [each.choices or (flags if each.type == "boolean" else []) for each in map(_keywords, self._members)]

    @property
    def choices(self) -> tuple[Any, ...]:
        """The only accepted values; empty if the schema does not list them."""
        return tuple(chain(*self._listed)) if all(self._listed) else ()

    @property
    def recommended_values(self) -> tuple[str, ...]:
        """Recommended values, as text."""
        return tuple(map(text_of, list(chain(*self._listed)) or self._keywords.examples))

    @property
    def restrict_to_recommended(self) -> bool:
        """Whether all other values are rejected."""
        return bool(self.choices)

    @property
    def is_fixed(self) -> bool:
        """Whether only one value is accepted, for the reason in `doc`."""
        return len(self.choices) == 1

    @property
    def unit(self) -> str:
        """SI unit as text; empty if unknown or without unit."""
        return self._keywords.unit

    @property
    def doc(self) -> str:
        """Description of the attribute."""
        return " ".join(self._keywords.description.split())

    @property
    def default(self) -> Any:
        """Default as a Python value; None if the attribute is omitted by default."""
        return None if self._keywords.default is None else self._parsed(self._keywords.default)

    @property
    def expected(self) -> str:
        """Description of the accepted values."""
        if self.choices:
            return f"{'only' if self.is_fixed else 'one of'} {', '.join(self.recommended_values)}"
        words, size = _EXPECTED[self.type], self._keywords.max_items
        if self.type == "array" and size:
            words = f"{size} numbers, e.g. {json.dumps([0] * (size - 1) + [1])}"
        if limits := " and ".join(f"{sign} {bound:g}" for sign, _, bound in self._keywords.bounds):
            words += f"{', with numbers' if self.type == 'structure' else ''} {limits}"
        return f"{words} ({self.unit})" if self.unit and self.type in ("integer", "number", "array") else words

    def parse(self, value: object, blueprint: str = "") -> Any:
        """Return the parsed value: a bool, int, float, str, a tuple of floats, or plain data.

        Args:
            value: text, or a Python value of the type. None gives None (not set); so does empty text, except for
                strings.
            blueprint: id of the blueprint, for the message.

        Raises:
            ConfigError: the value has the wrong type, is out of bounds, or is not among the `choices`.
        """
        is_empty = value is None or (self.type != "string" and isinstance(value, str) and not value.strip())
        try:
            if not is_empty:
                return self._parsed(plain(value))
        except (ValueError, TypeError, RecursionError):
            pass
        if is_empty and not self.required:
            return None
        fix = nearest(value, self.recommended_values).strip() if isinstance(value, str) else ""
        fix = self.doc if self.is_fixed else fix
        raise ConfigError.single(blueprint_title(blueprint), self.id, value, self.expected, fix)

    def _parsed(self, value: Any) -> Any:
        """Return the value that plain data mean. Raises ValueError if it is not accepted."""
        parsed = self._converted(value if self.type == "string" or not isinstance(value, str) else value.strip())
        is_among = any(parsed == each and isinstance(parsed, bool) == isinstance(each, bool) for each in self.choices)
        is_sized = self.type != "array" or self._keywords.max_items in (0, len(parsed))
        if (self.choices and not is_among) or not is_sized or not self._is_within(parsed):
            raise ValueError
        return parsed

    def _converted(self, value: Any) -> Any:
        if self.type == "structure":
            try:
                return _read_text(value) if isinstance(value, str) else value
            except (ValueError, TypeError, RecursionError):
                is_word = any(each.get("type") == "string" for each in self._members) or value in chain(*self._listed)
                if is_word:
                    return value
                raise
        if self.type == "string" and isinstance(value, bool | int | float):
            return text_of(value)
        if self.type == "number" and isinstance(value, str):
            return float(value)
        if self.type == "array" and isinstance(value, str):
            value = [float(each) for each in value.strip("[]()").replace(",", " ").split()]
        from sensorium.wire.keywords import TYPES, convert

        return convert(value, TYPES[self.type], strict=False)

    def _is_within(self, value: Any) -> bool:
        if isinstance(value, list | tuple):
            return all(map(self._is_within, value))
        if isinstance(value, bool) or not isinstance(value, int | float):
            return True
        return value == value and all(holds(value, bound) for _, holds, bound in self._keywords.bounds)


def plain(value: object) -> Any:
    """Return a Python value as plain data: tuples and arrays as lists, distributions and configs as their contents.

    Raises:
        TypeError: the value contains an object without a plain form.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    for name in ("to_dict", "tolist"):
        convert = getattr(value, name, None)
        if callable(convert) and not isinstance(value, type):
            return plain(convert())
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    raise TypeError(f"{shown(value)} cannot be converted to plain data")


def text_of(value: object) -> str:
    """Return a value as text that `Attribute.parse` accepts; empty for None."""
    value = plain(value)
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def blueprint_title(blueprint: str) -> str:
    """Return the title of a blueprint in messages."""
    return f"Blueprint({blueprint!r})" if blueprint else "Attribute"


def _read_text(text: str) -> Any:
    """Return the value written in a text, parsed as JSON or, failing that, as TOML."""
    with contextlib.suppress(ValueError):
        return json.loads(text)
    found = tomllib.loads(f"value = {text}")
    if set(found) != {"value"}:
        raise ValueError("expected one value")
    return plain(found["value"])


# Definitions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorDefinition:
    """Definition of a sensor that can be spawned, with its attributes.

    Args:
        id: ``sensor.GROUP.NAME``, e.g. ``"sensor.other.safe_distance"``.
        attributes: attributes of the blueprint.
        tags: search words; by default the parts of the id.
        doc: description of the sensor, one sentence.
        where: place where the sensor runs.
        needs: description of what must be reserved when the server starts; empty if not needed.
        kind: short name; by default the last part of the id. Blueprints are also found by it.
        attach: description of the effect of `attach_to`; empty for a sensor that cannot be attached.
        defs: name -> JSON schema of the structures to which attributes refer with ``$ref``.

    Raises:
        ConfigError: the id is invalid, or two attributes share an id.
    """

    id: str
    attributes: tuple[Attribute, ...] = ()
    tags: tuple[str, ...] = ()
    doc: str = ""
    where: Where = "server"
    needs: str = ""
    kind: str = ""
    attach: str = "the body that it moves with"
    defs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        title = f"SensorDefinition({self.id!r})"
        if not _DEFINITION_ID.fullmatch(str(self.id)):
            raise ConfigError.single(title, "id", self.id, "words separated by dots, e.g. 'sensor.other.safe_distance'")
        if self.where not in get_args(Where):
            raise ConfigError.single(title, "where", self.where, f"one of {', '.join(get_args(Where))}")
        object.__setattr__(self, "attributes", tuple(self.attributes))
        ids = [attribute.id for attribute in self.attributes]
        twice = [name for name in ids if ids.count(name) > 1]
        if twice:
            raise ConfigError.single(title, "attributes", twice[0], "different ids", "Use each id once.")
        object.__setattr__(self, "tags", tuple(self.tags) or tuple(self.id.split(".")))
        object.__setattr__(self, "kind", self.kind or self.id.rpartition(".")[2])

    def with_attributes(self, *attributes: Attribute, **changes: Any) -> SensorDefinition:
        """Return the definition with further attributes, and with other fields changed."""
        return replace(self, attributes=(*self.attributes, *attributes), **changes)

    def __contains__(self, id: object) -> bool:
        return any(attribute.id == id for attribute in self.attributes)

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)

    def __getitem__(self, id: str) -> Attribute:
        """Return the attribute with an id.

        Raises:
            UnknownNameError: no attribute has this id; the message names the nearest id.
        """
        for attribute in self.attributes:
            if attribute.id == id:
                return attribute
        raise UnknownNameError(f"attribute of {self.id}", id, [attribute.id for attribute in self.attributes])

    def choose(self, values: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Return the chosen values, checked and typed; omit all others.

        Args:
            values: attribute id -> text or Python value; None means not chosen.

        Raises:
            ConfigError: all faults together: unknown attributes, and values that are not accepted.
        """
        known = {attribute.id: attribute for attribute in self.attributes}
        chosen: dict[str, Any] = {}
        faults: list[Fault] = []
        for name, value in (values or {}).items():
            if name not in known:
                expected, fix = f"one of the attributes {listed(known)}", nearest(str(name), known).strip()
                faults.append(Fault(str(name), f"unknown attribute with value {shown(value)}", expected, fix))
            elif value is not None:
                try:
                    chosen[name] = known[name].parse(value, self.id)
                except ConfigError as error:
                    faults += error.faults
        if faults:
            raise ConfigError(blueprint_title(self.id), faults)
        return {name: value for name, value in chosen.items() if value is not None}

    def describe(self, values: Mapping[str, object] | None = None) -> ActorDescription:
        """Return the description of a sensor to create: the chosen values, and defaults for all others.

        Args:
            values: attribute id -> text or Python value; None means not chosen.

        Raises:
            ConfigError: all faults of `choose` together; without such faults, all missing required attributes.
        """
        chosen = self.choose(values)
        missing = [each for each in self.attributes if each.required and each.id not in chosen]
        if missing:
            faults = [Fault(each.id, "nothing", each.expected, f"Set {each.id}.") for each in missing]
            raise ConfigError(blueprint_title(self.id), faults)
        defaults = {each.id: value for each in self.attributes if (value := each.default) is not None}
        return ActorDescription(self.id, {**defaults, **chosen})

    def to_dict(self) -> dict[str, Any]:
        """Return the definition as plain data, with its attributes as a JSON schema."""
        texts = {name: getattr(self, name) for name in ("id", "doc", "where", "needs", "kind", "attach")}
        return {
            **texts,
            "tags": list(self.tags),
            "properties": {attribute.id: attribute.schema for attribute in self.attributes},
            "required": [attribute.id for attribute in self.attributes if attribute.required],
            "$defs": self.defs,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SensorDefinition:
        """Build the definition from the result of `to_dict`.

        Raises:
            WireError: the data are not a definition.
        """
        from sensorium.wire.keywords import convert

        try:
            properties = convert(data.get("properties", {}), dict[str, dict[str, Any]])
            required = convert(data.get("required", []), list[str])
            attributes = [Attribute(id, schema, id in required) for id, schema in properties.items()]
            return convert({**data, "defs": data.get("$defs", {}), "attributes": attributes}, cls)
        except (SensoriumError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise WireError(f"SensorDefinition expected, got {shown(data)}: {error}") from None


def find_definition(definitions: Mapping[str, SensorDefinition], name: str) -> SensorDefinition:
    """Return the definition of an id, of ``sensor.other.KIND``, or of a bare kind such as ``"imu"``.

    Raises:
        UnknownNameError: no definition matches, or several have that kind; the message names the nearest.
    """
    return definitions[find_id({id: each.kind for id, each in definitions.items()}, name)]


def find_id(kinds: Mapping[str, str], name: str) -> str:
    """Return the id of a blueprint from its id or kind; see `find_definition`.

    Args:
        kinds: id -> kind of all blueprints.
        name: the id or the kind.
    """
    if name in kinds:
        return name
    found = [id for id, kind in kinds.items() if kind == name.removeprefix("sensor.other.")]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownNameError("blueprint", name, found, "Several have that kind, so use the id.")
    fix = "" if nearest(name, kinds) else nearest(name.rpartition(".")[2], kinds.values()).strip()
    raise UnknownNameError("blueprint", name, kinds, fix)


# Descriptions passed to sensors ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ActorDescription:
    """Description of a sensor that is being created: its blueprint and the values of its attributes.

    Args:
        id: id of the blueprint.
        values: attribute id -> value, typed or text.
    """

    id: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, id: str) -> Any:
        """Return a value unchanged.

        Raises:
            UnknownNameError: no value has this id; the message names the nearest id.
        """
        if id not in self.values:
            raise UnknownNameError(f"value of {self.id}", id, self.values)
        return self.values[id]

    def __contains__(self, id: object) -> bool:
        return id in self.values

    def get(self, id: str, default: Any = None) -> Any:
        """Return a value unchanged, or the default."""
        return self.values.get(id, default)

    def get_float(self, id: str, default: float) -> float:
        """Return a number, or the default if the value is not set.

        Raises:
            ConfigError: the value is not a number.
        """
        return cast(float, self._read("number", id, default))

    def get_int(self, id: str, default: int) -> int:
        """Return an integer, or the default if the value is not set.

        Raises:
            ConfigError: the value is not an integer.
        """
        return cast(int, self._read("integer", id, default))

    def get_bool(self, id: str, default: bool) -> bool:
        """Return a boolean, or the default if the value is not set.

        Raises:
            ConfigError: the value is neither true nor false.
        """
        return cast(bool, self._read("boolean", id, default))

    def get_str(self, id: str, default: str) -> str:
        """Return text, or the default if the value is not set.

        Raises:
            ConfigError: the value is a list or a table.
        """
        return cast(str, self._read("string", id, default))

    def get_vector(self, id: str, default: tuple[float, ...]) -> tuple[float, ...]:
        """Return a vector, or the default if the value is not set.

        Raises:
            ConfigError: the value is not a vector.
        """
        return cast("tuple[float, ...]", self._read("array", id, default))

    def _read(self, type: AttributeType, id: str, default: Any) -> Any:
        schema = {"type": type} | ({"items": {"type": "number"}} if type == "array" else {})
        value = Attribute(id, schema).parse(self.values.get(id), self.id)
        return default if value is None else value
