"""Blueprints: attributes with their types, defaults and recommended values, as plain values on both sides.

A `SensorDefinition` names a sensor that can be spawned and lists its `Attribute`s. They are sent as the properties of a
JSON schema, with the additional keyword ``unit``. Values are sent as text or as plain data. ``"0.02"``, ``"true"``,
``"[0, 0, 1]"``, ``"{uniform = [0, 0.02]}"`` (TOML) and the same in JSON are accepted for numbers, booleans, vectors and
structures.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

from sensorium.errors import ConfigError, Fault, SensoriumError, UnknownNameError, WireError, listed, nearest, shown

AttributeType = Literal["bool", "int", "float", "string", "vector", "json"]
"""Types of an attribute. ``json`` is any nested structure of numbers, text, lists and tables."""
Where = Literal["scene", "server", "client"]
"""Places where a sensor runs: in the scene, beside it in the server, or in the client."""

_TYPES: tuple[str, ...] = get_args(AttributeType)
_WHERE: tuple[str, ...] = get_args(Where)
_SCHEMA_TYPES = {"bool": "boolean", "int": "integer", "float": "number", "string": "string"}
_TYPES_BY_SCHEMA = {name: type for type, name in _SCHEMA_TYPES.items()}
_BOOLS = {"true": True, "1": True, "false": False, "0": False}
_EXPECTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "vector": "numbers, e.g. [0, 0, 1]",
    "json": "a value, or a text in JSON or TOML",
}
_ID = re.compile(r"[A-Za-z_]\w*")
_DEFINITION_ID = re.compile(r"[a-z_]\w*(\.[a-z_0-9]\w*)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """Attribute of a blueprint.

    Args:
        id: name, an identifier.
        type: type of the value.
        default: default value as text; an empty text means that the attribute is then omitted. None uses the first
            recommended value. Python values are converted to text.
        recommended_values: sensible values, as text.
        restrict_to_recommended: whether all other values are rejected.
        unit: SI unit as text; empty if unknown or without unit.
        doc: description of the attribute.
        required: whether a value is required.
        low: smallest accepted number; also applies to the components of a vector or a list.
        high: largest accepted number.
        open_low: whether `low` itself is rejected.
        size: number of components of a vector; 0 for any number.
        words: whether a ``json`` attribute also accepts plain text, such as ``all``.

    Raises:
        ConfigError: the id is not an identifier, the type is unknown, or a default or recommended value is not
            accepted.
    """

    id: str
    type: AttributeType = "string"
    default: str | None = None
    recommended_values: tuple[str, ...] = ()
    restrict_to_recommended: bool = False
    unit: str = ""
    doc: str = ""
    required: bool = False
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    size: int = 0
    words: bool = False

    def __post_init__(self) -> None:
        title = f"Attribute({self.id!r})"
        if not _ID.fullmatch(str(self.id)):
            raise ConfigError.single(title, "id", self.id, "letters, digits and underscores, e.g. 'safe_distance'")
        if self.type not in _TYPES:
            fix = nearest(str(self.type).lower(), _TYPES).strip()
            raise ConfigError.single(title, "type", self.type, f"one of {', '.join(_TYPES)}", fix)
        if isinstance(self.recommended_values, str):
            got = self.recommended_values
            raise ConfigError.single(title, "recommended_values", got, "a tuple of values", f"Write ({got!r},).")
        values = tuple(self._checked(title, "recommended_values", value) for value in self.recommended_values)
        object.__setattr__(self, "recommended_values", values)
        if self.restrict_to_recommended and not values:
            raise ConfigError.single(title, "restrict_to_recommended", True, "recommended values to restrict to")
        default: Any = self.default
        if default is None and values and not self.required:
            default = values[0]
        object.__setattr__(self, "default", self._checked(title, "default", default))

    def _checked(self, title: str, name: str, value: Any) -> str:
        try:
            return self.text(self.parse(value)) if value not in ("", None) else ""
        except ConfigError as error:
            raise ConfigError(title, [replace(fault, field=name) for fault in error.faults]) from None

    @property
    def is_fixed(self) -> bool:
        """Whether only one value is accepted, for the reason in `doc`."""
        return self.restrict_to_recommended and len(self.recommended_values) == 1

    @property
    def expected(self) -> str:
        """Description of the accepted values."""
        if self.is_fixed:
            return f"only {self.recommended_values[0]}"
        if self.restrict_to_recommended:
            return f"one of {', '.join(self.recommended_values)}"
        words = _EXPECTED[self.type]
        if self.type == "json" and math.isfinite(max(self.low, -self.high)):
            words = f"{words}, with numbers"
        if self.type == "vector" and self.size:
            words = f"{self.size} numbers, e.g. {json.dumps([0] * (self.size - 1) + [1])}"
        if math.isfinite(self.low):
            words += f" {'>' if self.open_low else '>='} {self.low:g}"
        if math.isfinite(self.high):
            words += f"{' and' if math.isfinite(self.low) else ''} <= {self.high:g}"
        return f"{words} ({self.unit})" if self.unit and self.type in ("int", "float", "vector") else words

    def parse(self, value: object, blueprint: str = "") -> Any:
        """Return the parsed value: a bool, int, float, str, a tuple of floats, or plain data.

        Args:
            value: text, or a Python value of the type. None gives None (not set); so does empty text, except for
                strings.
            blueprint: id of the blueprint, for the message.

        Raises:
            ConfigError: the value has the wrong type, is out of bounds, or is not among the values that the attribute
                is restricted to.
        """
        is_empty = value is None or (self.type != "string" and isinstance(value, str) and not value.strip())
        if is_empty and not self.required:
            return None
        with contextlib.suppress(ValueError, TypeError, OverflowError, RecursionError):
            parsed = _READERS[self.type](self, plain(value))
            allowed = [_READERS[self.type](self, text) for text in self.recommended_values]
            is_allowed = not self.restrict_to_recommended or any(_same(parsed, each) for each in allowed)
            if is_allowed and not is_empty and self._is_within(parsed):
                return parsed
        fix = nearest(value, self.recommended_values).strip() if isinstance(value, str) else ""
        fix = self.doc if self.is_fixed else fix
        raise ConfigError.single(blueprint_title(blueprint), self.id, value, self.expected, fix)

    def text(self, value: object) -> str:
        """Return a value as text that `parse` accepts; empty for None."""
        if value is None:
            return ""
        value = plain(value)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    @property
    def value(self) -> Any:
        """Default as a Python value; None if the attribute is omitted by default."""
        return self.parse(self.default) if self.default else None

    def _is_within(self, value: Any) -> bool:
        if isinstance(value, list | tuple):
            return all(map(self._is_within, value))
        if isinstance(value, bool) or not isinstance(value, int | float):
            return True
        return self.low <= value <= self.high and not (self.open_low and value == self.low)

    def to_schema(self) -> dict[str, Any]:
        """Return the attribute as the JSON schema of a property."""
        schema: dict[str, Any] = {}
        if self.type in _SCHEMA_TYPES:
            schema["type"] = _SCHEMA_TYPES[self.type]
        elif self.type == "vector":
            schema |= {"type": "array", "items": {"type": "number"}}
            schema |= {"minItems": self.size, "maxItems": self.size} if self.size else {}
        elif self.words and not self.restrict_to_recommended:
            schema["anyOf"] = [{"type": "object"}, {"type": "string"}]
        values = [plain(self.parse(each)) for each in self.recommended_values]
        found = {
            "enum" if self.restrict_to_recommended else "examples": values,
            "exclusiveMinimum" if self.open_low else "minimum": self.low if self.low > -math.inf else None,
            "maximum": self.high if self.high < math.inf else None,
            "unit": self.unit,
            "description": self.doc,
        }
        schema |= {name: value for name, value in found.items() if value not in (None, "", [])}
        return schema | {"default": plain(self.value)} if self.default else schema

    @classmethod
    def from_schema(cls, id: str, schema: Mapping[str, Any], *, required: bool = False) -> Attribute:
        """Build the attribute from the JSON schema of a property, as generated by `to_schema` and pydantic.

        ``examples`` become the recommended values, ``enum`` the values that the attribute is restricted to. Structures
        become ``json``.

        Raises:
            ConfigError: the schema contradicts itself.
            LookupError, TypeError, ValueError, AttributeError: the mapping is not a JSON schema.
        """
        members = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
        if len(members) == 1:  # an optional value has a single member besides null
            schema = {**members[0], **schema}
        types, values = [_type_of(each) for each in members], [_values_of(each) for each in members]
        type: AttributeType = types[0] if len(types) == 1 else "json"
        is_open = type == "bool" and "enum" not in schema  # both of its values are accepted
        is_closed = all(values) and not is_open
        named = [] if is_open else [value for each in values for value in each]
        bounds = {**schema, **schema["items"]} if type == "vector" and "items" in schema else schema
        default = schema.get("default")
        return cls(
            id=id,
            type=type,
            default="" if default is None else default,
            recommended_values=tuple(named or schema.get("examples", ())),
            restrict_to_recommended=is_closed,
            unit=_text(schema.get("unit", "")),
            doc=" ".join(schema.get("description", "").split()),
            required=required,
            low=float(bounds.get("minimum", bounds.get("exclusiveMinimum", -math.inf))),
            high=float(bounds.get("maximum", math.inf)),
            open_low="exclusiveMinimum" in bounds,
            size=schema.get("maxItems", 0) if type == "vector" else 0,
            words=type == "json" and (is_closed or "string" in types),
        )


def _type_of(schema: Mapping[str, Any]) -> AttributeType:
    if schema.get("type") == "array":
        parts = schema.get("prefixItems") or [schema.get("items", {})]
        return "vector" if all(part.get("type") == "number" for part in parts) else "json"
    return cast(AttributeType, _TYPES_BY_SCHEMA.get(schema.get("type", ""), "json"))


def _values_of(schema: Mapping[str, Any]) -> list[Any]:
    """Return all values that a schema accepts, if it lists them."""
    if schema.get("type") == "boolean" and "enum" not in schema:
        return [True, False]
    return [schema["const"]] if "const" in schema else list(schema.get("enum", ()))


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


def blueprint_title(blueprint: str) -> str:
    """Return the title of a blueprint in messages."""
    return f"Blueprint({blueprint!r})" if blueprint else "Attribute"


def _same(a: Any, b: Any) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)


# Parsers: each takes the attribute and a plain value, and raises ValueError for an invalid value ----------------------


def _bool(attribute: Attribute, value: Any) -> bool:
    if isinstance(value, str):
        value = _BOOLS.get(value.strip().lower(), value)
    if not isinstance(value, bool):
        raise ValueError
    return value


def _int(attribute: Attribute, value: Any) -> int:
    if isinstance(value, str):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ValueError
    return int(value)


def _float(attribute: Attribute, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError
    number = float(value)
    if math.isnan(number):
        raise ValueError
    return number


def _string(attribute: Attribute, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise ValueError
    return str(value)


def _vector(attribute: Attribute, value: Any) -> tuple[float, ...]:
    if isinstance(value, str):
        value = value.strip()
        inside = value[1:-1] if value[0] + value[-1] in ("[]", "()") else value
        value = inside.replace(",", " ").split()
    if not isinstance(value, list) or (attribute.size and len(value) != attribute.size):
        raise ValueError
    return tuple(_float(attribute, part) for part in value)


def _json(attribute: Attribute, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return read_text(value)
    except (ValueError, RecursionError):
        if attribute.words:
            return value
        raise


_READERS = {"bool": _bool, "int": _int, "float": _float, "string": _string, "vector": _vector, "json": _json}


def read_text(text: str) -> Any:
    """Return the value written in a text, parsed as JSON or, failing that, as TOML.

    Raises:
        ValueError: the text is neither.
    """
    try:
        return json.loads(text)
    except ValueError:
        pass
    except RecursionError:
        raise ValueError("the text is nested too deeply") from None
    found = tomllib.loads(f"value = {text.strip()}")
    if set(found) != {"value"}:
        raise ValueError("expected one value")
    try:
        return plain(found["value"])
    except TypeError as error:  # a date
        raise ValueError(str(error)) from None


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

    def __post_init__(self) -> None:
        title = f"SensorDefinition({self.id!r})"
        if not _DEFINITION_ID.fullmatch(str(self.id)):
            raise ConfigError.single(title, "id", self.id, "words separated by dots, e.g. 'sensor.other.safe_distance'")
        if self.where not in _WHERE:
            raise ConfigError.single(title, "where", self.where, f"one of {', '.join(_WHERE)}")
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
        defaults = {each.id: each.value for each in self.attributes if each.default}
        return ActorDescription(self.id, {**defaults, **chosen})

    def to_dict(self) -> dict[str, Any]:
        """Return the definition as plain data, with its attributes as a JSON schema."""
        properties = {attribute.id: attribute.to_schema() for attribute in self.attributes}
        required = [attribute.id for attribute in self.attributes if attribute.required]
        texts = {name: getattr(self, name) for name in _TEXTS}
        return {**texts, "tags": list(self.tags), "properties": properties, "required": required}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SensorDefinition:
        """Build the definition from the result of `to_dict`.

        Raises:
            WireError: the data are not a definition.
        """
        try:
            required = data.get("required", ())
            attributes = tuple(
                Attribute.from_schema(id, schema, required=id in required)
                for id, schema in data.get("properties", {}).items()
            )
            texts = {name: _text(data[name]) for name in _TEXTS if name in data}
            return cls(attributes=attributes, tags=tuple(map(_text, data.get("tags", ()))), **texts)
        except (SensoriumError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise WireError(f"SensorDefinition expected, got {shown(data)}: {error}") from None


_TEXTS = ("id", "doc", "where", "needs", "kind", "attach")


def _text(value: object) -> Any:
    if not isinstance(value, str):
        raise TypeError(f"got {shown(value)}, expected text")
    return value


def make_generic_sensor_definition(
    type: str = "other", id: str = "", attributes: Iterable[Attribute] = (), **fields: Any
) -> SensorDefinition:
    """Return the definition ``sensor.TYPE.ID``; authors add attributes with `with_attributes`.

    Args:
        type: group of the sensor, e.g. ``"other"``, ``"camera"``, ``"lidar"``.
        id: name within the group, e.g. ``"safe_distance"``.
        attributes: attributes of the blueprint.
        fields: see `SensorDefinition`.

    Raises:
        ConfigError: the names do not form a valid id.
    """
    return SensorDefinition(id=f"sensor.{type}.{id}", attributes=tuple(attributes), **fields)


def find_definition(definitions: Mapping[str, SensorDefinition], name: str) -> SensorDefinition:
    """Return the definition of an id, of ``sensor.other.KIND``, or of a bare kind such as ``"imu"``.

    Raises:
        UnknownNameError: no definition matches, or several have that kind; the message names the nearest.
    """
    if name in definitions:
        return definitions[name]
    kind = name.removeprefix("sensor.other.")
    found = [definition for definition in definitions.values() if definition.kind == kind]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownNameError("blueprint", name, [each.id for each in found], "Several have that kind, so use the id.")
    kinds = [definition.kind for definition in definitions.values()]
    raise UnknownNameError("blueprint", name, definitions, nearest_kind(name, definitions, kinds))


def nearest_kind(name: str, ids: Iterable[str], kinds: Iterable[str]) -> str:
    """Return the kind nearest to a name that resembles no id; empty if there is none."""
    return "" if nearest(name, ids) else nearest(name.rpartition(".")[2], kinds).strip()


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
        return cast(float, self._read("float", id, default))

    def get_int(self, id: str, default: int) -> int:
        """Return an integer, or the default if the value is not set.

        Raises:
            ConfigError: the value is not an integer.
        """
        return cast(int, self._read("int", id, default))

    def get_bool(self, id: str, default: bool) -> bool:
        """Return a boolean, or the default if the value is not set.

        Raises:
            ConfigError: the value is neither true nor false.
        """
        return cast(bool, self._read("bool", id, default))

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
        return cast("tuple[float, ...]", self._read("vector", id, default))

    def _read(self, type: AttributeType, id: str, default: Any) -> Any:
        value = Attribute(id=id, type=type).parse(self.values.get(id), self.id)
        return default if value is None else value
