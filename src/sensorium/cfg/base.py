"""Base class of all configs: validated numbers, errors that list every fault, JSON and TOML."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain
from numbers import Real
from types import FunctionType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    Strict,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, core_schema

from sensorium.cfg.help import FIELDS, CfgType, meanings
from sensorium.errors import ConfigError, Fault, SensoriumError, nearest, shown
from sensorium.lazy import public_part

DataT = TypeVar("DataT")
T = TypeVar("T")

Float = Annotated[float, Strict()]
"""A number; text that looks like a number is rejected."""
Vec3 = tuple[Float, Float, Float]
Quat = tuple[Float, Float, Float, Float]


def bad(expected: str, fix: str = "") -> PydanticCustomError:
    """Return the exception for a validator to raise; it becomes one `Fault`.

    A validator of the whole config names the fields first: ``bad("low, high: two rising numbers")``.
    """
    return PydanticCustomError("sensorium", "{expected}", {"expected": expected, "fix": fix})


class Rule(AfterValidator):
    """Result of `must`. A subclass that declares the field again without a rule keeps it."""


def must(holds: Callable[[Any], object], expected: str, fix: str = "") -> AfterValidator:
    """Return an annotation for a field that rejects values, other than None, for which a test fails.

    ``Annotated[Float, must(lambda share: 0.0 <= share <= 1.0, "a share in [0, 1]")]``. Several tests run in order.
    """

    def check(value: Any) -> Any:
        if value is not None and not holds(value):
            raise bad(expected, fix)
        return value

    return Rule(check)


def rules_of(field: FieldInfo) -> list[Rule]:
    """Return the rules of a field, including those of an optional field."""
    parts: list[Any] = [field.annotation]
    for part in parts:
        if get_origin(part) in (Union, UnionType):
            parts += get_args(part)
    marks = chain(field.metadata, *(getattr(part, "__metadata__", ()) for part in parts))
    return [mark for mark in marks if isinstance(mark, Rule)]


def in_unit(unit: str = "", **bounds: float) -> Any:
    """Return an annotation of a field: its unit and bounds, as the JSON schema of its config has them.

    ``Annotated[Float, in_unit("Hz", exclusiveMinimum=0.0)]``. Clients of a server check chosen values against it.
    """
    return Field(json_schema_extra={**({"unit": unit} if unit else {}), **bounds})


def is_finite(value: float | Sequence[float]) -> bool:
    """Return whether a number, or each of several, is finite: a test for `must`."""
    return all(map(math.isfinite, value if isinstance(value, Sequence) else (value,)))


Positive = Annotated[
    Float, must(lambda number: 0.0 < number < math.inf, "a finite number > 0"), in_unit(exclusiveMinimum=0.0)
]
NonNegative = Annotated[
    Float, must(lambda number: 0.0 <= number < math.inf, "a finite number >= 0"), in_unit(minimum=0.0)
]
Finite = Annotated[Float, must(math.isfinite, "a finite number")]
Share = Annotated[
    Float, must(lambda share: 0.0 <= share <= 1.0, "a share in [0, 1]"), in_unit(minimum=0.0, maximum=1.0)
]


# Numbers --------------------------------------------------------------------------------------------------------------

LARGEST = 3.4028234e38
"""Config numbers are stored as float32: larger ones are rejected, except infinity in fields that accept it."""
SMALLEST = 1.1754944e-38
"""Smaller magnitudes other than 0 are rejected for the same reason."""
MAX = 2**31 - 1
"""Whole numbers of a config are stored as int32."""


def as_plain(value: Any) -> Any:
    """Return the content of a NumPy array or a tensor as numbers and lists; any other value unchanged."""
    try:
        return value.tolist() if hasattr(value, "tolist") else value
    except Exception:  # a tensor on the meta device holds no data
        return value


def numbers_in(value: Any) -> NDArray[np.float64]:
    """Return nested lists, an array or a tensor of numbers as a float64 array of any shape.

    Raises:
        ValueError: a value is not a number, rows differ in length, or float32 cannot hold a number.
    """
    try:
        array = np.asarray(as_plain(value))
        if array.dtype.kind not in "biuf" and array.size:
            raise ValueError("not only numbers")
        with np.errstate(over="ignore"):
            numbers = array.astype(np.float64)
    except Exception as error:  # an object of another library may raise anything on conversion
        raise ValueError(str(error)) from None
    size = np.abs(numbers)
    if ((size < SMALLEST) & (size > 0.0) | (size > LARGEST) & (size < math.inf)).any():
        raise ValueError(f"the magnitude of a number is below {SMALLEST:.3g} or above {LARGEST:.3g}")
    return numbers


def name_in(data: Mapping[str, Any]) -> str:
    """Return the `name` among a config's arguments in brackets, for messages; empty if it is not text."""
    name = data.get("name")
    return f"({name!r})" if isinstance(name, str) and name else ""


def python_number(value: Any) -> Any:
    """Return the Python number in a NumPy or torch scalar; any other value unchanged."""
    value = as_plain(value)
    if not isinstance(value, Real) or isinstance(value, bool | int | float):
        return value
    try:
        return float(value)
    except OverflowError:  # a fraction
        return value


def parse_float(value: Any) -> Any:
    """Return a number that float32 can hold. The field itself checks infinity and NaN. Raises as a validator does."""
    value = value if type(value) is float else python_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad("a valid number")
    size = abs(value)
    if size and not SMALLEST <= size <= LARGEST and size != math.inf and size == size:
        raise bad(f"0, infinity or a number of magnitude {SMALLEST:.3g} to {LARGEST:.3g}")
    return value


def parse_int(value: Any) -> Any:
    """Return a number that int32 can hold. The field itself checks for fractions. Raises as a validator does."""
    value = value if type(value) is int else python_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad("a valid integer")
    if not abs(value) <= MAX:
        raise bad(f"a whole number from -{MAX} to {MAX}")
    return value


def parse_bool(value: Any) -> Any:
    """Return a flag; text and numbers are rejected. Raises as a validator does."""
    if not isinstance(value, bool) and not isinstance(value := python_number(value), bool):
        raise bad("True or False")
    return value


PARSERS = {"float": parse_float, "int": parse_int, "bool": parse_bool}
"""Parsers that run on each number and flag of a config before pydantic, which would convert almost any value."""
PARTS = ("schema", "items_schema", "keys_schema", "values_schema")
"""Keys of a core schema that hold another schema, or a list of schemas."""


def _checked(schema: Any) -> Any:
    """Return a core schema whose numbers and flags pass through `PARSERS`, and whose text fields reject bytes.

    Schemas that are already checked, such as a config inside another, are left unchanged.
    """
    kind = schema["type"]
    if kind in PARSERS:
        return core_schema.no_info_before_validator_function(PARSERS[kind], schema)
    if kind == "str":
        return {**schema, "strict": True}
    if kind == "function-before" and schema["function"]["function"] in PARSERS.values():
        return schema
    changed = dict(schema)
    for part in PARTS:
        if isinstance(inner := schema.get(part), Mapping):
            changed[part] = _checked(inner)
        elif isinstance(inner, list):
            changed[part] = [_checked(each) for each in inner]
    if kind == "union":
        choices = [each if isinstance(each, tuple) else (each, None) for each in schema["choices"]]
        changed["choices"] = [(_checked(each), label) if label else _checked(each) for each, label in choices]
    if kind == "model-fields":
        changed["fields"] = {
            name: {**field, "schema": _checked(field["schema"])} for name, field in schema["fields"].items()
        }
    if kind == "definitions":
        changed["definitions"] = [_checked(each) for each in schema["definitions"]]
    return changed


# Bases ----------------------------------------------------------------------------------------------------------------


def _sealed(value: Any) -> Any:
    """Return a value with the configs in it sealed."""
    if isinstance(value, tuple):
        return tuple(map(_sealed, value))
    return value.sealed() if isinstance(value, Cfg) else value


class Cfg(BaseModel, metaclass=CfgType):
    """Base of every config: frozen, rejects unknown fields, converts to and from JSON and TOML.

    Raises:
        ConfigError: at construction, listing every fault with field, value, what is accepted and the fix.
    """

    model_config = ConfigDict(
        defer_build=True, frozen=True, extra="forbid", validate_default=False, arbitrary_types_allowed=True
    )

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**data)  # defined so that pydantic calls it also for a config inside another one

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse the assignment, of which a sensor would know nothing, unless the set of given fields accepts it."""
        assign = getattr(self.model_fields_set, "assign", None)
        if assign is not None and name in type(self).model_fields:
            assign(self, self.replace(**{name: value}))
            return
        expected = "no assignment, since the config is immutable"
        fix = f"replace({name}=...) returns a changed copy, for the field or the variable that holds this config."
        if name not in type(self).model_fields:
            expected, fix = _known_fields(type(self), name)
        raise ConfigError.single(self._title, name, value, expected, fix)

    def __delattr__(self, name: str) -> None:
        """Refuse the deletion: every field has a value."""
        fault = Fault(name, "a deletion", "a value", "A field that is not given to the constructor has its default.")
        raise ConfigError(self._title, [fault])

    @property
    def _title(self) -> str:
        return f"{type(self).__name__.split('[')[0]}{name_in(self.__dict__)}"

    def sealed(self) -> Self:
        """Return the copy that a sensor keeps: neither it nor a config inside it can change."""
        copy = self.model_copy()
        vars(copy).update({name: _sealed(getattr(self, name)) for name in type(self).model_fields})
        object.__setattr__(copy, "__pydantic_fields_set__", {*self.model_fields_set})
        return copy

    if not TYPE_CHECKING:

        def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
            """Return a copy with some fields changed, validated as a whole."""
            copy = super().model_copy(deep=deep)
            return copy.replace(**update) if update else copy

        @classmethod
        def model_rebuild(cls, *, _parent_namespace_depth: int = 2, **options: Any) -> bool | None:
            """Build the validators again; names that the annotations lack are looked up where this is called."""
            return super().model_rebuild(_parent_namespace_depth=_parent_namespace_depth + 2, **options)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Keep the rules of fields that the class declares again without a rule, and the errors of its methods."""
        super().__pydantic_init_subclass__(**kwargs)
        _wrap_methods(cls, vars(cls).keys() & METHODS)
        kept = {}
        for name in cls.model_fields.keys() & inspect.get_annotations(cls).keys():
            above = (base.model_fields.get(name) for base in cls.__mro__[1:] if issubclass(base, BaseModel))
            before = next((field for field in above if field is not None), None)
            if before is not None and not rules_of(cls.model_fields[name]):
                kept[name] = rules_of(before)
        if any(kept.values()):
            for name, rules in kept.items():
                cls.model_fields[name].metadata += rules
            cls.model_rebuild(force=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Return a schema with strict numbers: no text, flags or arrays, nothing beyond float32 and int32."""
        return _checked(handler(source))

    @model_validator(mode="wrap")
    @classmethod
    def _check_field_names(cls, value: Any, build: ValidatorFunctionWrapHandler) -> Any:
        if isinstance(value, Mapping) and (odd := [name for name in value if not isinstance(name, str)]):
            raise bad(f"a {cls.__name__} or its fields by name", f"{shown(odd[0])} is not a field name.")
        try:
            return build(value)
        except ValidationError as error:
            given = value if isinstance(value, Mapping) and _reads_toml.get() else {}
            texts = {name for name, each in given.items() if isinstance(each, str) and each == NONE}
            nones = dict.fromkeys(texts & {each["loc"][0] for each in error.errors() if each["loc"]})
            if not nones:
                raise
            try:
                return build({**given, **nones})
            except ValidationError:
                raise error from None
        except RecursionError:
            raise bad("values with fewer levels") from None

    @model_serializer(mode="wrap")
    def _without_absent(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit None where it is the default."""
        found = dump(self).items()  # first: pydantic 2.7 tries it with values of other types
        fields = type(self).model_fields
        return {name: value for name, value in found if value is not None or fields[name].default is not None}

    def __hash__(self) -> int:
        values = (self.__dict__[name] for name in type(self).model_fields)
        return hash((type(self), *(each for each in values if not isinstance(each, Mapping))))

    def __dir__(self) -> list[str]:
        """Return the methods and the fields with a value; `replace` accepts all fields."""
        fields = [name for name in type(self).model_fields if vars(self).get(name) is not None]
        return sorted({*dir(type(self)), *fields})

    def __repr_args__(self) -> Any:
        return [(name, value) for name, value in super().__repr_args__() if name in self.model_fields_set]

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated as a whole."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**given, **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return the given fields, JSON-serialisable, with unions tagged by ``kind``; None unless it is the default."""
        return self.model_dump(mode="json", exclude_unset=True)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build the config from the result of `to_dict`.

        Raises:
            ConfigError: lists every fault at once.
        """
        return cls(**{name: value for name, value in data.items() if name != "kind" or "kind" in cls.model_fields})

    def to_json(self) -> str:
        """Return the config as JSON text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Build the config from JSON text. Raises as `from_dict` does."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON schema, with the meaning of each field as its description."""
        schema = handler(core_schema)
        if text := (cls.__doc__ or "").partition(FIELDS)[0]:
            schema["description"] = text
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in meanings(cls).items():
            if name in properties:
                properties[name].setdefault("description", text)
        return schema

    def to_toml(self) -> str:
        """Return the config as TOML text, in which ``"none"`` stands for None.

        Its tables are inline, so that the text of a sensor is valid below ``[[sensor]]`` of a rig file.
        """
        return "".join(_toml_line(name, value) for name, value in _with_none(self.to_dict()).items())

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Build the config from TOML text. Raises as `from_dict` does."""
        with toml_words():
            return cls.from_dict(tomllib.loads(text))


def _in_our_words(method: Any) -> Any:
    """Return a method, or class method, that raises `ConfigError`: for arguments that do not fit, or if replaced."""
    if isinstance(method, classmethod):
        return classmethod(_in_our_words(method.__func__))
    fix = REPLACED.get(method.__name__) if method.__module__ == BaseModel.__module__ else None

    @functools.wraps(method)
    def call(owner: Any, *args: Any, **options: Any) -> Any:
        cls = owner if isinstance(owner, type) else type(owner)
        if fix:
            fault = Fault(f"{method.__name__}()", "a call", "a method of sensorium's configs", fix)
            raise ConfigError(cls.__name__, [fault])
        try:
            return method(owner, *args, **options)
        except SensoriumError:
            raise
        except Exception as error:  # pydantic raises exceptions of many types
            if isinstance(error, ValidationError):
                fields = args[0] if args and isinstance(args[0], Mapping) else options
                raise _config_error(cls, error, fields) from None
            given = [*map(shown, args), *(f"{name}={shown(value)}" for name, value in options.items())]
            title = "(config)" if method.__name__ == "__init__" else f"{method.__name__}()"
            text = f"{str(error).rstrip('.')}."
            raise ConfigError(cls.__name__, [Fault(title, ", ".join(given), "valid arguments", text)]) from error

    return call


def _wrap_methods(cls: type[Cfg], names: Iterable[str]) -> None:
    """Apply `_in_our_words` to the methods of a class; pydantic calls `model_post_init` only where it is defined."""
    for name in names:
        method = inspect.getattr_static(cls, name)
        is_called = name == "__init__" or not name.startswith(("_", "model_post_init"))
        if is_called and isinstance(method, FunctionType | classmethod):
            setattr(cls, name, _in_our_words(method))


REPLACED = {
    **dict.fromkeys(("construct", "model_construct", "from_orm"), "Call the class with the fields by name."),
    **dict.fromkeys(("parse_file", "parse_raw"), "Write cls.from_json(text) or cls.from_toml(text)."),
    **dict.fromkeys(("schema", "schema_json"), "Write cls.model_json_schema()."),
    "copy": "Write cfg.replace(...) or copy.copy(cfg).",
    "dict": "Write cfg.to_dict().",
    "json": "Write cfg.to_json().",
    "parse_obj": "Write cls.from_dict(fields).",
    "update_forward_refs": "Write cls.model_rebuild().",
    "validate": "Write cls.model_validate(value).",
}
"""Methods of pydantic that skip checks or that it deprecates, and their replacements."""

METHODS = frozenset(type.__dir__(Cfg))
"""Names of the methods of all configs."""
_wrap_methods(Cfg, METHODS)


_reads_toml: ContextVar[bool] = ContextVar("reads_toml", default=False)
NONE = "none"
"""None in TOML, which has no such value, for fields that take no text."""


def _with_none(value: Any) -> Any:
    """Return plain values with `NONE` for None."""
    if isinstance(value, dict):
        return {name: _with_none(each) for name, each in value.items()}
    return [_with_none(each) for each in value] if isinstance(value, list) else NONE if value is None else value


def _toml_line(name: str, value: Any) -> str:
    """Return a value of TOML with its name; its tables are inline."""
    import tomli_w

    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, dict) for each in value)):
        return tomli_w.dumps({name: 0}).replace(" = 0\n", f" = {_inline(value)}\n")
    return tomli_w.dumps({name: value})


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(_toml_line(*each).rstrip() for each in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return _toml_line("", value).partition(" = ")[2].rstrip()


def _config_error(cls: type[Cfg], error: ValidationError, data: Mapping[str, Any]) -> ConfigError:
    title = cls.__name__.split("[")[0] + name_in(data)
    faults = []
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"] if not str(part).endswith("]")) or "(config)"
        got = shown(item["input"])
        context = item.get("ctx", {})
        if item["type"] == "extra_forbidden":
            expected, fix = _known_fields(cls, str(item["loc"][-1]))
            faults.append(Fault(field, f"an unknown field (value {got})", expected, fix))
        elif item["type"] == "missing":
            faults.append(Fault(field, "nothing", "a value", f"Give {field}=..."))
        elif item["type"] == "json_invalid":
            faults.append(Fault(field, got, "fields by name as JSON", f"{item['msg']}."))
        elif item["type"] == "sensorium":
            expected = context["expected"]
            words, colon, rest = expected.partition(": ")
            if not item["loc"] and colon and all(word in cls.model_fields for word in words.split(", ")):
                values = (data.get(word, cls.model_fields[word].default) for word in words.split(", "))
                field, got, expected = words, ", ".join(map(shown, values)), rest
            faults.append(Fault(field, got, expected, context["fix"]))
        elif isinstance(context.get("error"), ConfigError):  # from a nested config
            within = f"{field}." if item["loc"] else ""
            for each in context["error"].faults:
                faults.append(Fault(f"{within}{each.field}", each.got, each.expected, each.fix))
        else:
            text = item["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            faults.append(Fault(field, got, text[:1].lower() + text[1:]))
    return ConfigError(title, faults)


def _known_fields(cls: type[Cfg], unknown: str) -> tuple[str, str]:
    """Return the fields of a config, or the nearest ones of many, and the replacement of an unknown field."""
    known = list(cls.model_fields)
    fix = public_part("compat").replacement_of(unknown)
    field = re.match(r"Give (\w+)=", fix)
    if not fix or (field and field[1] not in known):
        fix = nearest(unknown, known).strip()
    if len(known) <= FEW_FIELDS:
        return f"one of the fields {', '.join(known)}", fix
    expected = f"one of the {len(known)} fields of {cls.__name__.split('[')[0]}"
    if fix:
        return expected, fix
    kind = getattr(cls, "kind", None) if cls.__module__.startswith("sensorium.") else None
    near = ", ".join(get_close_matches(unknown, known, n=NEAREST_FIELDS, cutoff=0.0))
    return f"{expected}, such as {near}", f"`sensorium list {kind()}` lists all." if kind else ""


FEW_FIELDS, NEAREST_FIELDS = 8, 4
"""Up to this number of fields, the error for an unknown field lists all of them; beyond it, the nearest ones."""
_TOML_WORDS = (
    (r"Uniform\(0, 0\.02\)", "{ uniform = [0.0, 0.02] }"),
    (r"GilbertElliott\(p, r\)", "{ p = ..., r = ... }"),
    (r"OffsetCfg\((\w+)=\((.*?)\)\)", r"{ \1 = [\2] }"),
    (r"OffsetCfg\((\w+)=\.\.\.\)", r"{ \1 = ... }"),
    (r"PinholeLensCfg\((\w+)=\.\.\.\)", r'{ kind = "pinhole", \1 = ... }'),
    (r'\{"(\w+)": (\[.*?\])\}', r"{ \1 = \2 }"),
    (r"\{'(\w+)': \.\.\.\}", r"{ \1 = ... }"),
    (r"\b(\w+)=(?=\S)", r"\1 = "),
    (r"\b(\w+) = True\b", r"\1 = true"),
)
"""Patterns of Python syntax in messages, and their form in TOML."""


@contextlib.contextmanager
def toml_words() -> Iterator[None]:
    """Read configs from TOML: ``"none"`` stands for None, and errors show fixes in TOML syntax."""
    token = _reads_toml.set(True)
    try:
        yield
    except ConfigError as error:
        faults = [replace(each, expected=_as_toml(each.expected), fix=_as_toml(each.fix)) for each in error.faults]
        raise type(error)(error.config, faults) from None
    finally:
        _reads_toml.reset(token)


def _as_toml(text: str) -> str:
    for pattern, form in _TOML_WORDS:
        text = re.sub(pattern, form, text)
    return text


ABSENT: Any = object()
"""Placeholder for an argument that was not given, where None is a valid value."""


def without_absent(**values: Any) -> dict[str, Any]:
    """Return the given values, for an `__init__` with positional arguments; the config reports missing ones."""
    return {name: value for name, value in values.items() if value is not ABSENT}


class OffsetCfg(Cfg):
    """Fixed pose of a sensor's frame relative to the frame it is mounted on."""

    pos: Annotated[Vec3, must(is_finite, "three finite numbers, m")] = (0.0, 0.0, 0.0)
    """Origin, m."""
    rot: Quat = (1.0, 0.0, 0.0, 0.0)
    """Orientation, unit quaternion (w, x, y, z)."""

    @field_validator("rot")
    @classmethod
    def _unit(cls, rot: Quat) -> Quat:
        norm = sum(part * part for part in rot) ** 0.5
        if not abs(norm - 1.0) < 1e-3:
            fix = f"The normalised quaternion is {tuple(round(part / norm, 6) for part in rot)}." if norm > 1e-6 else ""
            raise bad(f"a unit quaternion (w, x, y, z), not one of length {norm:.6g}", fix)
        return rot


ObjType = Literal["body", "xbody", "joint", "geom", "site", "actuator", "tendon", "camera", "mesh"]
"""Kinds of model elements that a reference can name."""


class ObjRef(Cfg):
    """Reference to a model element by type and name, optionally within one entity."""

    type: ObjType
    """Kind of element. For a native sensor, ``body`` means the inertial frame and ``xbody`` the body frame."""
    name: str
    """Name or full-match pattern."""
    entity: str | int | None = None
    """Entity: its name (the prefix before ``/``), or its position in the model, from 0; None uses the name as given. In
    a model without prefixes, the entities with a position are the kinematic trees."""
    index: int | None = None
    """Position among the matches, in the order of the model, from 0; None means all of them."""
