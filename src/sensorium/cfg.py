"""Configs: frozen, keyword-only, validated at construction, and the same in Python, JSON and TOML.

A config holds plain values; nothing in the library ever writes into it. All faults of one config are reported at once
as a `ConfigError`. Knobs (the amounts of imperfection) take a number, a vector, a distribution redrawn per env at
reset, or, where a sensor has fields of several units, a mapping from field to one of these.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import math
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from itertools import zip_longest
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    Strict,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from sensorium.errors import ConfigError, Fault, UnknownNameError, nearest, shown
from sensorium.random import Choice, Distribution, Normal, Uniform, distribution_from_dict
from sensorium.spec import kind_of

if TYPE_CHECKING:
    from torch import Tensor

    from sensorium.measurement.record import Record
    from sensorium.measurement.stages import StageKey
    from sensorium.spec import FieldSpec

DataT = TypeVar("DataT")
T = TypeVar("T")

Float = Annotated[float, Strict()]
"""A number; text that looks like one is refused."""
Vec3 = tuple[Float, Float, Float]
Quat = tuple[Float, Float, Float, Float]


def bad(expected: str, fix: str = "") -> PydanticCustomError:
    """Return the exception that a validator raises; it becomes one `Fault`.

    A validator of the whole config names the fields first: ``bad("low, high: two numbers that rise")``.
    """
    return PydanticCustomError("sensorium", "{expected}", {"expected": expected, "fix": fix})


def must(holds: Callable[[Any], bool], expected: str, fix: str = "") -> AfterValidator:
    """Return an annotation of a field: values other than None for which a test does not hold are refused.

    ``Annotated[Float, must(lambda share: 0.0 <= share <= 1.0, "a share in [0, 1]")]``. Several hold in their order.
    """

    def check(value: Any) -> Any:
        if value is not None and not holds(value):
            raise bad(expected, fix)
        return value

    return AfterValidator(check)


# Numbers --------------------------------------------------------------------------------------------------------------

LARGEST = 3.4028234e38
"""Numbers of a config end up in float32: nothing larger than this is accepted but infinity, where a field takes it."""
SMALLEST = 1.1754944e-38
"""Nothing smaller in size than this is accepted but 0, for the same reason."""
MOST = 2**31 - 1
"""Whole numbers of a config end up in int32."""


def as_plain(value: Any) -> Any:
    """Return what a NumPy array or a tensor holds as numbers and lists; anything else unchanged."""
    try:
        return value.tolist() if hasattr(value, "tolist") else value
    except Exception:  # a tensor on the meta device holds no number
        return value


def numbers_in(value: Any) -> NDArray[np.float64]:
    """Return numbers in lists, an array or a tensor as float64, of any shape.

    Raises:
        ValueError: there is something else, rows of several lengths, or a number that float32 cannot hold.
    """
    try:
        array = np.asarray(as_plain(value))
        if array.dtype.kind not in "biuf" and array.size:
            raise ValueError("not only numbers")
        with np.errstate(over="ignore"):
            numbers = array.astype(np.float64)
    except Exception as error:  # an object of another library may raise anything when it is converted
        raise ValueError(str(error)) from None
    size = np.abs(numbers)
    if ((size < SMALLEST) & (size > 0.0) | (size > LARGEST) & (size < math.inf)).any():
        raise ValueError(f"a number is smaller than {SMALLEST:.3g} or larger than {LARGEST:.3g} in size")
    return numbers


def differ(one: Any, other: Any) -> bool:
    """Return whether two values of a field that has two names are not the same."""
    try:
        return bool(as_plain(one) != as_plain(other))
    except Exception:  # as in numbers_in
        return True


def name_in(data: Mapping[str, Any]) -> str:
    """Return the name in the arguments of a config in brackets, for messages; empty where it is no text."""
    name = data.get("name")
    return f"({name!r})" if isinstance(name, str) and name else ""


def _python_number(value: Any) -> Any:
    """Return the Python number that a NumPy or torch scalar holds; anything else unchanged."""
    value = as_plain(value)
    if not isinstance(value, Real) or isinstance(value, bool | int | float):
        return value
    try:
        return float(value)
    except OverflowError:  # a fraction
        return value


def parse_float(value: Any) -> Any:
    """Return a number as float32 can hold it; infinity and NaN are left to the field. Raises what a validator may."""
    value = value if type(value) is float else _python_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad("a valid number")
    size = abs(value)
    if size and not SMALLEST <= size <= LARGEST and size != math.inf and size == size:
        raise bad(f"0, infinity or a number whose size is from {SMALLEST:.3g} to {LARGEST:.3g}")
    return value


def parse_int(value: Any) -> Any:
    """Return a number as int32 can hold it; fractions are left to the field. Raises what a validator may raise."""
    value = value if type(value) is int else _python_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad("a valid integer")
    if not abs(value) <= MOST:
        raise bad(f"a whole number from -{MOST} to {MOST}")
    return value


def parse_bool(value: Any) -> Any:
    """Return a flag; text and numbers are refused. Raises what a validator may raise."""
    if not isinstance(value, bool) and not isinstance(value := _python_number(value), bool):
        raise bad("True or False")
    return value


PARSERS = {"float": parse_float, "int": parse_int, "bool": parse_bool}
"""What is called on each number and flag of a config before pydantic, which alone would convert almost anything."""
PARTS = ("schema", "items_schema", "keys_schema", "values_schema")
"""Keys under which a core schema has another one, or a list of them."""


def _checked(schema: Any) -> Any:
    """Return a core schema whose numbers and flags go through `PARSERS`, and whose texts are no bytes.

    What is checked already, as in a config inside another, is left as it is.
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


# Knobs ----------------------------------------------------------------------------------------------------------------


def parse_amount(value: Any) -> Any:
    """Return one amount: a float, a (nested) tuple of floats or a distribution. Raises what a validator may raise."""
    if isinstance(value, Uniform | Normal | Choice):
        return value
    if isinstance(value, Mapping):
        try:
            return distribution_from_dict(dict(value))
        except ConfigError:
            raise
        except (ValueError, TypeError) as error:
            raise bad(str(error)) from None
    value = _python_number(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        parts = tuple(parse_amount(part) for part in value)
        if not parts or any(isinstance(part, Uniform | Normal | Choice) for part in parts):
            raise bad("a non-empty vector of numbers", "For a distribution per column give it vectors.")
        return parts
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad("a number, a vector or a distribution such as Uniform(0, 0.02)")
    if not abs(value) <= LARGEST:
        raise bad(f"a finite number, at most {LARGEST:.3g} in size")
    return float(parse_float(value))


def _parse_knob(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping) and not (len(value) == 1 and next(iter(value)) in ("uniform", "normal", "choice")):
        if not value:
            raise bad("a mapping from field to amount, or a number")
        if odd := [field for field in value if not isinstance(field, str)]:
            raise bad("a mapping from field to amount", f"{shown(odd[0])} is no name of a field.")
        return {field: parse_amount(amount) for field, amount in value.items()}
    return parse_amount(value)


def _dump_knob(value: Any) -> Any:
    if isinstance(value, Uniform | Normal | Choice):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {field: _dump_knob(amount) for field, amount in value.items()}
    if isinstance(value, tuple):
        return [_dump_knob(part) for part in value]
    return value


def amount_bounds(value: Any) -> tuple[float, float]:
    """Return the least and greatest number an amount (or a mapping of amounts) can give."""
    if isinstance(value, Uniform | Normal | Choice):
        low, high = value.bounds
        return amount_bounds(_as_tuple(low))[0], amount_bounds(_as_tuple(high))[1]
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple):
        pairs = [amount_bounds(part) for part in value]
        return min(low for low, _ in pairs), max(high for _, high in pairs)
    return float(value), float(value)


def _as_tuple(value: Any) -> Any:
    value = as_plain(value)
    return tuple(value) if isinstance(value, list) else value


if TYPE_CHECKING:
    Amount = float | Sequence[float] | Sequence[Sequence[float]] | Distribution
    Knob = Amount | Mapping[str, Amount] | None
else:
    Amount = Annotated[Any, PlainValidator(parse_amount), PlainSerializer(_dump_knob)]
    Knob = Annotated[Any, PlainValidator(_parse_knob), PlainSerializer(_dump_knob)]


# Bases ----------------------------------------------------------------------------------------------------------------


class Cfg(BaseModel):
    """Base of every config: frozen, unknown fields refused, JSON and TOML round trip.

    Raises:
        ConfigError: at construction, listing every fault with field, value, what is accepted and the fix.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False, arbitrary_types_allowed=True)

    def __init__(self, /, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise _config_error(type(self), error, data) from None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Return the schema that refuses text, flags, arrays and what float32 or int32 cannot hold as numbers."""
        return _checked(handler(source))

    @model_validator(mode="wrap")
    @classmethod
    def _named_by_words(cls, value: Any, build: ValidatorFunctionWrapHandler) -> Any:
        if isinstance(value, Mapping) and (odd := [name for name in value if not isinstance(name, str)]):
            raise bad(f"a {cls.__name__} or its fields by name", f"{shown(odd[0])} is no name of a field.")
        return build(value)

    def __repr_args__(self) -> Any:
        return [(name, value) for name, value in super().__repr_args__() if name in self.model_fields_set]

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated as a whole."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**given, **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that were given, JSON-able, unions tagged by ``kind``."""
        return self.model_dump(mode="json", exclude_unset=True, exclude_none=True)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build the config from what `to_dict` returned.

        Raises:
            ConfigError: every fault at once.
        """
        return cls(**{name: value for name, value in data.items() if name != "kind" or "kind" in cls.model_fields})

    def to_json(self) -> str:
        """Return the config as JSON text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Build the config from JSON text."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON schema, with the meaning of each field as its description."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in meanings(cls).items():
            if name in properties:
                properties[name].setdefault("description", text)
        return schema

    def to_toml(self) -> str:
        """Return the config as TOML text."""
        import tomli_w

        return tomli_w.dumps(self.to_dict())

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Build the config from TOML text."""
        with toml_words():
            return cls.from_dict(tomllib.loads(text))


WORDS_OF_OTHERS = {
    "visualizer_cfg": "A viewer draws by itself: give debug_vis=True.",
    "viz": "A viewer draws by itself: give debug_vis=True.",
    "reference_meshes": "Meshes are always shared: leave it out.",
    "class_type": "The sensor class is known by the class of its config.",
    "secondary_policy": "Contact with any of the matches counts: leave it out.",
    "entity_idx": "Name what it is mounted on: body=..., site=..., or ObjRef(type, name, entity).",
    "link_idx_local": "Name what it is mounted on: link_name=... or body=...",
    "pos_offset": "Give offset=OffsetCfg(pos=...).",
    "euler_offset": "Give offset=OffsetCfg(rot=(w, x, y, z)).",
}
"""Fields of configs of other libraries that have another form here, and what to write."""


def meanings(cls: type[BaseModel]) -> dict[str, str]:
    """Return what each field of a config means: the docstring under it, or the description it was given.

    The source is read when somebody asks. A field whose class has no source (typed at a prompt) is left out.
    """
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, BaseModel) and "[" not in base.__name__:
            texts.update(_docstrings(base.__module__).get(base.__qualname__, {}))
    given = {name: info.description for name, info in cls.model_fields.items() if info.description}
    texts.update(given)
    return {name: texts[name] for name in cls.model_fields if name in texts}


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings under the annotated names of each class of a module, by qualified name."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError):
        return {}
    found: dict[str, dict[str, str]] = {}

    def look_into(body: Sequence[ast.stmt], path: str) -> None:
        for item, after in zip_longest(body, body[1:]):
            match item, after:
                case ast.ClassDef(name=name), _:
                    found[f"{path}{name}"] = {}  # of a class that is defined twice, the last
                    look_into(item.body, f"{path}{name}.")
                case ast.FunctionDef(name=name), _:
                    look_into(item.body, f"{path}{name}.<locals>.")
                case ((ast.If() | ast.Try() | ast.With()), _):
                    look_into(item.body, path)
                    look_into(getattr(item, "orelse", []), path)
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found.get(path.removesuffix("."), {})[name] = inspect.cleandoc(text)

    look_into(tree.body, "")
    return found


def _config_error(cls: type[Cfg], error: ValidationError, data: Mapping[str, Any]) -> ConfigError:
    title = cls.__name__.split("[")[0] + name_in(data)
    faults = []
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"] if not str(part).endswith("]")) or "(config)"
        got = shown(item["input"])
        context = item.get("ctx", {})
        if item["type"] == "extra_forbidden":
            expected, fix = _known_fields(cls, str(item["loc"][-1]))
            faults.append(Fault(field, f"unknown field with value {got}", expected, fix))
        elif item["type"] == "missing":
            faults.append(Fault(field, "nothing", "a value", f"Give {field}=..."))
        elif item["type"] == "sensorium":
            expected = context["expected"]
            words, colon, rest = expected.partition(": ")
            if not item["loc"] and colon and all(word in cls.model_fields for word in words.split(", ")):
                values = (data.get(word, cls.model_fields[word].default) for word in words.split(", "))
                field, got, expected = words, ", ".join(map(shown, values)), rest
            faults.append(Fault(field, got, expected, context["fix"]))
        elif isinstance(context.get("error"), ConfigError):  # of a config inside this one
            within = f"{field}." if item["loc"] else ""
            for each in context["error"].faults:
                faults.append(Fault(f"{within}{each.field}", each.got, each.expected, each.fix))
        else:
            text = item["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            faults.append(Fault(field, got, text[:1].lower() + text[1:]))
    return ConfigError(title, faults)


def _known_fields(cls: type[Cfg], unknown: str) -> tuple[str, str]:
    """Return which fields a config has, the nearest few of many, and what to write instead of an unknown one."""
    known = list(cls.model_fields)
    fix = WORDS_OF_OTHERS.get(unknown) or nearest(unknown, known).strip()
    if len(known) <= FEW_FIELDS:
        return f"one of the fields {', '.join(known)}", fix
    expected = f"one of the {len(known)} fields of {cls.__name__.split('[')[0]}"
    if fix:
        return expected, fix
    kind = getattr(cls, "kind", None) if cls.__module__.startswith("sensorium.") else None
    near = ", ".join(get_close_matches(unknown, known, n=NEAREST_FIELDS, cutoff=0.0))
    return f"{expected}, such as {near}", f"`sensorium list {kind()}` shows all." if kind else ""


FEW_FIELDS, NEAREST_FIELDS = 8, 4
"""An unknown field gets a list of all fields where they are few, else of so many."""
_TOML_WORDS = (
    (r"Uniform\(0, 0\.02\)", "{ uniform = [0.0, 0.02] }"),
    (r"GilbertElliott\(p, r\)", "{ p = ..., r = ... }"),
    (r"OffsetCfg\((\w+)=\((.*?)\)\)", r"{ \1 = [\2] }"),
    (r"OffsetCfg\((\w+)=\.\.\.\)", r"{ \1 = ... }"),
    (r'\{"(\w+)": (\[.*?\])\}', r"{ \1 = \2 }"),
    (r"\{'(\w+)': \.\.\.\}", r"{ \1 = ... }"),
    (r"\b(\w+)=(?=\S)", r"\1 = "),
    (r"\b(\w+) = True\b", r"\1 = true"),
)
"""Patterns of what is written in Python, and what stands for it in TOML."""


@contextlib.contextmanager
def toml_words() -> Iterator[None]:
    """Have config errors say what to write as TOML."""
    try:
        yield
    except ConfigError as error:
        faults = [replace(each, expected=_as_toml(each.expected), fix=_as_toml(each.fix)) for each in error.faults]
        raise type(error)(error.config, faults) from None


def _as_toml(text: str) -> str:
    for pattern, form in _TOML_WORDS:
        text = re.sub(pattern, form, text)
    return text


ABSENT: Any = object()
"""Stands for an argument that was not given, where None may be."""


def without_absent(**values: Any) -> dict[str, Any]:
    """Return the values that were given: for an `__init__` with arguments by place, whose config tells what lacks."""
    return {name: value for name, value in values.items() if value is not ABSENT}


class OffsetCfg(Cfg):
    """Fixed pose of a sensor's frame in the frame of what it is mounted on."""

    pos: Vec3 = (0.0, 0.0, 0.0)
    """Origin, m."""
    rot: Quat = (1.0, 0.0, 0.0, 0.0)
    """Orientation, unit quaternion (w, x, y, z)."""

    @field_validator("pos")
    @classmethod
    def _finite(cls, pos: Vec3) -> Vec3:
        if not all(map(math.isfinite, pos)):
            raise bad("three finite numbers, m")
        return pos

    @field_validator("rot")
    @classmethod
    def _unit(cls, rot: Quat) -> Quat:
        norm = sum(part * part for part in rot) ** 0.5
        if not abs(norm - 1.0) < 1e-3:
            fix = f"Normalised it is {tuple(round(part / norm, 6) for part in rot)}." if norm > 1e-6 else ""
            raise bad(f"a unit quaternion (w, x, y, z), not one of length {norm:.6g}", fix)
        return rot


ObjType = Literal["body", "xbody", "joint", "geom", "site", "actuator", "tendon", "camera", "mesh"]
"""Kinds of model elements that a reference can name."""


class ObjRef(Cfg):
    """A model element by type and name, optionally inside one entity."""

    type: ObjType
    """Kind of element. To a native sensor a ``body`` is its inertial frame and an ``xbody`` its own."""
    name: str
    """Name or full-match pattern."""
    entity: str | None = None
    """Entity (name prefix before ``/``); None means the name as it stands."""


class GilbertElliott(Cfg):
    """Loss in bursts: a good state loses nothing, a bad one everything (Gilbert 1960).

    The loss rate is p / (p + r), the mean burst length 1 / r samples.
    """

    p: Annotated[float, Strict()]
    """Probability per sample to turn bad, in [0, 1]."""
    r: Annotated[float, Strict()]
    """Probability per sample to turn good again, in (0, 1]."""

    if TYPE_CHECKING:

        def __init__(self, p: float, r: float) -> None: ...
    else:

        def __init__(self, p: Any = ABSENT, r: Any = ABSENT, **others: Any) -> None:
            super().__init__(**without_absent(p=p, r=r), **others)

    @field_validator("p")
    @classmethod
    def _p(cls, p: float) -> float:
        if not 0.0 <= p <= 1.0:
            raise bad("a probability in [0, 1]")
        return p

    @field_validator("r")
    @classmethod
    def _r(cls, r: float) -> float:
        if not 0.0 < r <= 1.0:
            raise bad("a probability in (0, 1]", "With r = 0 a burst would never end.")
        return r


# Stages ---------------------------------------------------------------------------------------------------------------

Place = Literal["physics", "scale", "noise", "bias", "saturation", "dropout", "post"]
"""Where in the measurement chain a stage works, in this order; quantisation is between saturation and dropout."""
PLACES: tuple[Place, ...] = ("physics", "scale", "noise", "bias", "saturation", "dropout", "post")

STAGE_KINDS: dict[str, type[StageCfg]] = {}
"""Every stage class by kind; filled where a stage is defined."""
FINDERS: list[Callable[[], object]] = []
"""What is called where a kind of stage is unknown, before that is an error: it loads installed plugins."""


class StageCfg(Cfg):
    """One imperfection beyond the standard chain. Subclass it, set `place`, write `apply`.

    The subclass is config and behaviour in one; it keeps no state on itself. What must survive from one sample to the
    next is declared by `state_specs` and handed to `apply`, so that reset, save and re-evaluation reach it.
    """

    place: ClassVar[Place]
    """Where in the chain it works. A subclass may make it a field with a default, for each instance to choose."""
    is_recorded: ClassVar[bool] = False
    """True where `apply` only launches Warp kernels with fixed arguments: it is called once and replayed."""
    observes: ClassVar[bool] = False
    """True where the stage also looks at the ticks between samples, in `observe`."""
    otherwise: ClassVar[str] = ""
    """What to give instead where a sensor cannot be asked between samples: a sentence for the message."""
    on_values: ClassVar[bool] = True
    """False where the stage alters no field, and so takes no `fields`."""

    fields: tuple[str, ...] = ()
    """Fields it works on; empty means all floating-point vector fields of the sensor."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        place = cls.__dict__.get("place")
        if "place" in inspect.get_annotations(cls) and "place" in cls.model_fields:
            place = cls.model_fields["place"].default
        if place is not None:
            if place not in PLACES:
                raise TypeError(f"{cls.__name__}.place is {place!r}; expected one of {', '.join(PLACES)}")
            STAGE_KINDS[kind_of(cls)] = cls

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that were given, with the stage's ``kind``."""
        return {"kind": kind_of(type(self)), **super().to_dict()}

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return name -> shape (after env) of the float32 states this stage keeps.

        Args:
            columns: the fields it works on and their number of columns.
        """
        return {}

    def state_shapes(self, key: StageKey) -> Mapping[str, tuple[int, ...]]:
        """Return all states; override it in place of `state_specs` where their shapes need more than columns.

        Args:
            key: has the layout of the fields in `specs`, the period and the tick.
        """
        return self.state_specs(key.columns)

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError`, with what is expected as its text, where the stage cannot work on a sensor.

        Args:
            columns: the fields it works on and their number of columns.
            specs: all fields that `truth` has.
            period: mean time between samples, s.
        """

    def keeps_rotations(self) -> bool:
        """Return whether unit quaternions stay such; where not, a rotation field named in `fields` is refused."""
        return False

    def apply(self, slot: Record, truth: Record, state: Mapping[str, Tensor], key: StageKey) -> None:
        """Alter the measured `slot` in place, once per sample for all mounts and envs.

        Args:
            slot: measured fields, `[env, mount, ...]` each.
            truth: true fields of the same sample, read only.
            state: the declared states, `[env, *shape]` float32, written in place.
            key: random numbers and times of this sample.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define apply")

    def observe(self, truth: Record, state: Mapping[str, Tensor], key: StageKey) -> None:
        """Look at the true value at a tick between samples; called only where `observes` is true.

        A stage that `is_recorded` only launches Warp kernels with fixed arguments here: they are recorded and replayed.

        Args:
            truth: true fields of the sensor at this tick, before `apply_transform`, read only.
            state: the declared states, written in place.
            key: times of this tick.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define observe")

    def reset(self, state: Mapping[str, Tensor], key: StageKey) -> None:
        """Set the states of the envs in `key.mask` for a new episode; by default to zero."""
        for tensor in state.values():
            tensor.masked_fill_((key.mask > 0).reshape(-1, *(1,) * (tensor.dim() - 1)), 0.0)


def find_kind(value: Mapping[Any, Any], kinds: Mapping[str, T]) -> tuple[T | None, Any, dict[str, Any]]:
    """Return what the ``kind`` in a file's fields means, None where it means nothing, that kind, and the other fields.

    Installed plugins are loaded where it is unknown. Raises what a validator may raise where a field has no name.
    """
    fields = dict(value)
    kind = fields.pop("kind", None)
    if odd := [name for name in fields if not isinstance(name, str)]:
        raise bad("fields by name", f"{shown(odd[0])} is no name of a field.")
    if not isinstance(kind, str):
        return None, kind, fields
    if kind not in kinds:
        for find in FINDERS:
            find()
    return kinds.get(kind), kind, fields


def _parse_stages(value: Any) -> tuple[StageCfg, ...]:
    if isinstance(value, StageCfg):
        raise bad("a tuple of stages", "Write (stage,) with a comma.")
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise bad("a tuple of stages")
    stages = []
    for number, item in enumerate(value):
        if isinstance(item, Mapping):
            found, kind, fields = find_kind(item, STAGE_KINDS)
            if found is None:
                hint = nearest(str(kind), STAGE_KINDS).strip()
                raise bad(f"stages whose kind is one of {', '.join(sorted(STAGE_KINDS))}", hint)
            try:
                item = found(**fields)
            except ConfigError as error:
                faults = [replace(each, field=f"{number}.{each.field}") for each in error.faults]
                raise ConfigError(error.config, faults) from None
        if not isinstance(item, StageCfg):
            raise bad("a tuple of stages", f"{shown(item)} is none.")
        stages.append(item)
    return tuple(stages)


if TYPE_CHECKING:
    Stages = tuple[StageCfg, ...]
else:
    Stages = Annotated[
        Any, PlainValidator(_parse_stages), PlainSerializer(lambda stages: [stage.to_dict() for stage in stages])
    ]


# Sensor configs -------------------------------------------------------------------------------------------------------


class SensorCfg(Cfg, Generic[DataT]):
    """What every sensor has: a name, a rate and a history.

    The type parameter is the sensor's data class, so that `scene[cfg].data` is typed.
    """

    name: str = ""
    """Name in the scene; empty takes the kind, e.g. ``"imu"``."""
    update_period: Float = 0.0
    """Seconds between samples; 0 samples at every physics tick. Need not be a multiple of the time step."""
    rate_hz: Float | None = None
    """Samples per second, instead of `update_period`."""
    history_length: int = 0
    """Samples kept in `.history`; 0 keeps none."""
    debug_vis: bool = False
    """Whether the sensor draws itself in a viewer."""
    evaluate: Literal["auto", "always", "on_read", "wanted"] = "auto"
    """When samples are computed. ``auto``: on first read where that cannot be noticed, else at each due tick.
    ``always``: at each due tick. ``on_read``: only when read. ``wanted``: at due ticks, but not while nobody reads."""

    @field_validator("update_period")
    @classmethod
    def _period(cls, value: float) -> float:
        if not 0.0 <= value < float("inf"):
            raise bad("a finite number of seconds >= 0", "0 means every tick.")
        return value

    @field_validator("rate_hz")
    @classmethod
    def _rate(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None:
            if not 0.0 < value < float("inf"):
                raise bad("a finite number of samples per second > 0")
            if info.data.get("update_period"):
                raise bad("no rate_hz beside update_period", "Keep one of the two.")
        return value

    @field_validator("history_length")
    @classmethod
    def _history(cls, value: int) -> int:
        if value < 0:
            raise bad("a whole number >= 0")
        return value

    @classmethod
    def kind(cls) -> str:
        """Return the name of this config class in files."""
        return kind_of(cls)

    @property
    def label(self) -> str:
        """The name in the scene."""
        return self.name or self.kind()

    @property
    def prefixed_name(self) -> str:
        """The name in the scene, with the entity's prefix where the sensor has one: `label`."""
        return self.label

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that were given, with the config's ``kind``."""
        return {"kind": self.kind(), **super().to_dict()}


NON_NEGATIVE_KNOBS = (
    "noise",
    "noise_density",
    "random_walk",
    "random_walk_density",
    "resolution",
    "delay",
    "jitter",
)
_NON_NEGATIVE_ENDINGS = tuple(f"_{knob}" for knob in NON_NEGATIVE_KNOBS[:5])
"""A knob with a prefix, such as `gyro_noise`."""


class SimpleSensorCfg(SensorCfg[DataT], Generic[DataT]):
    """A sensor that goes through the measurement pipeline, with the standard knobs.

    A knob that is absent (None) takes no memory and no time; one that is given, even as 0, can be set per env at run
    time. `noise` and `random_walk` are per sample; the densities are per sqrt(Hz) and stay right when the rate changes.
    """

    noise: Knob = None
    """Standard deviation of white noise, per sample, in the field's unit (rad for a rotation)."""
    noise_density: Knob = None
    """White noise as a two-sided density (Allan's N), unit/sqrt(Hz): sigma = N * sqrt(sample rate)."""
    bias: Knob = None
    """Constant offset, in the field's unit."""
    random_walk: Knob = None
    """Standard deviation of the bias increment, per sample, in the field's unit."""
    random_walk_density: Knob = None
    """Rate random walk (Allan's K), unit*sqrt(Hz): sigma of the increment = K / sqrt(sample rate)."""
    resolution: Knob = None
    """Quantisation step, in the field's unit; 0 leaves the signal continuous."""
    delay: Amount | None = None
    """Seconds from capture to arrival; rounded to the nearest tick, half up."""
    jitter: Amount | None = None
    """Extra delay, drawn per sample: a number means uniform in [0, jitter) seconds; at most `delay`."""
    loss: Float | GilbertElliott | None = None
    """Probability that a sample never arrives, or `GilbertElliott(p, r)` for bursts."""
    stages: Stages = ()
    """Imperfections beyond the standard chain; those of one place run in this order."""

    @field_validator("*", mode="after")
    @classmethod
    def _non_negative(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.field_name or ""
        if name not in NON_NEGATIVE_KNOBS and not name.endswith(_NON_NEGATIVE_ENDINGS):
            return value
        if not isinstance(value, float | tuple | Mapping | Uniform | Choice):
            return value
        if amount_bounds(value)[0] < 0.0:
            fix = "Use an amount >= 0; a Normal distribution is clipped at 0."
            raise bad("nothing negative", fix)
        return value

    @field_validator("jitter", mode="after")
    @classmethod
    def _jitter(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None:
            if "delay" in info.data:
                delay = info.data["delay"]
                most = amount_bounds(delay)[0] if delay is not None else 0.0
                if not isinstance(value, Normal) and amount_bounds(value)[1] > most:
                    raise bad(f"a jitter of at most the delay, {most:g} s", "Raise delay or lower jitter.")
                if delay is None:
                    raise bad("no jitter without a delay", "Give delay as well; it must be at least the jitter.")
            if isinstance(value, tuple):
                raise bad("one number or distribution: jitter belongs to the sensor, not to a column")
        return value

    @field_validator("delay", mode="after")
    @classmethod
    def _delay(cls, value: Any) -> Any:
        if isinstance(value, tuple):
            raise bad("one number or distribution: delay belongs to the sensor, not to a column")
        return value

    @field_validator("loss", mode="after")
    @classmethod
    def _loss(cls, value: Any) -> Any:
        if isinstance(value, float) and not 0.0 <= value < 1.0:
            raise bad("a probability in [0, 1), or GilbertElliott(p, r)")
        return value


SELECTORS = ("site", "sites", "body", "bodies", "geom", "geoms", "joint", "joints", "camera", "cameras", "link_name",
             "link_names", "prim_path")  # fmt: skip
Selector = str | ObjRef | None
Selectors = str | ObjRef | tuple[str | ObjRef, ...] | None


class MountedSensorCfg(SimpleSensorCfg[DataT], Generic[DataT]):
    """A sensor that sits somewhere. Give exactly one selector.

    A singular selector means exactly one place and gives no mount axis; a plural one (a full-match pattern or a list)
    gives a mount axis after env. ``body="world"`` (or ``body=None``, said explicitly) mounts on the world.
    """

    site: Selector = None
    """Name (or full-match pattern) of one site."""
    sites: Selectors = None
    """Pattern or list of sites."""
    body: Selector = None
    """Name of one body; ``"world"`` is the world."""
    bodies: Selectors = None
    """Pattern or list of bodies."""
    geom: Selector = None
    """Name of one geom."""
    geoms: Selectors = None
    """Pattern or list of geoms."""
    joint: Selector = None
    """Name of one joint: its anchor, in the axes of its body."""
    joints: Selectors = None
    """Pattern or list of joints."""
    camera: Selector = None
    """Name of one camera of the model."""
    cameras: Selectors = None
    """Pattern or list of cameras."""
    link_name: Selector = None
    """Name of one body, in the words of URDF."""
    link_names: Selectors = None
    """Pattern or list of bodies, in the words of URDF."""
    prim_path: str | None = None
    """Path of one prim: ``{ENV_REGEX_NS}/Robot/imu`` is tried as ``Robot/imu`` and then as ``imu``."""
    offset: OffsetCfg = OffsetCfg()
    """Pose of the sensor's frame in the frame it is mounted on."""

    OffsetCfg: ClassVar[type[OffsetCfg]] = OffsetCfg

    def __init__(self, /, **data: Any) -> None:
        given = [name for name in SELECTORS if name in data]
        wanted = [name for name in given if data[name] is not None]
        if given and not wanted:
            data = {name: value for name, value in data.items() if name not in given} | {"body": "world"}
        faults = []
        if len(wanted) > 1:
            got = ", ".join(f"{name}={data[name]!r}" for name in wanted)
            faults.append(Fault("mount", got, "exactly one selector", "Keep one of them."))
        elif not given:
            expected = f"one of {', '.join(SELECTORS)}"
            faults.append(Fault("mount", "no selector", expected, 'To mount on the world write body="world".'))
        try:
            super().__init__(**data)
        except ConfigError as error:
            raise ConfigError(error.config, [*error.faults, *faults]) from None
        if faults:
            raise ConfigError(f"{type(self).__name__.split('[')[0]}{name_in(data)}", faults)

    @property
    def selector(self) -> tuple[str, Any]:
        """The selector that was given: its field name and value."""
        return next((name, getattr(self, name)) for name in SELECTORS if getattr(self, name) is not None)

    @property
    def is_plural(self) -> bool:
        """Whether the sensor has a mount axis."""
        return self.selector[0].endswith("s") or self.selector[0] == "bodies"


def known_field(cfg: Cfg, name: str) -> None:
    """Raise `UnknownNameError` where a config has no field of that name."""
    if name not in type(cfg).model_fields:
        raise UnknownNameError(f"field of {type(cfg).__name__}", name, type(cfg).model_fields)
