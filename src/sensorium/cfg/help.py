"""Help of configs: `help(cls)`, completion and `inspect.signature` show plain types, units and defaults."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from itertools import zip_longest
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, dataclass_transform, get_args, get_origin

from pydantic import BaseModel, Field, GetCoreSchemaHandler, PlainValidator
from pydantic_core import core_schema

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

WIDTH = 100
"""Columns of the text."""


class Parsed:
    """Annotation of a field that accepts several types, all of which one function parses.

    Args:
        shown: the types, as users write them.
        parse: returns the stored value; raises as a validator does.
        dump: returns the value as JSON has it; None if JSON takes it as it is.
    """

    def __init__(self, shown: str, parse: Callable[[Any], Any], dump: Callable[[Any], Any] | None = None) -> None:
        self.shown, self._parse, self._dump = shown, parse, dump

    def __repr__(self) -> str:
        return self.shown

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        schema = PlainValidator(self._parse).__get_pydantic_core_schema__(source, handler)
        if self._dump is None:
            return schema
        return {**schema, "serialization": core_schema.plain_serializer_function_ser_schema(self._dump)}


class _Text:
    """An annotation that is shown unchanged."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def type_text(hint: Any) -> str:
    """Return a type as its users write it: without validators, and None for its type."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _shown_by(parts[1:]) or type_text(parts[0])
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(map(type_text, parts)))
    if origin is Literal:
        return " | ".join(map(repr, parts))
    if hint is NoneType:
        return "None"
    if hint is Ellipsis:
        return "..."
    name = getattr(origin or hint, "__name__", repr(hint))
    return f"{name}[{', '.join(map(type_text, parts))}]" if parts else name


def _shown_by(marks: Sequence[Any]) -> str:
    return next((mark.shown for mark in marks if isinstance(mark, Parsed)), "")


class FieldHelp:
    """Help of one field of a config.

    Args:
        name: the field.
        info: pydantic's description of it.
        meaning: its docstring.
    """

    def __init__(self, name: str, info: Any, meaning: str) -> None:
        self.name, self._info, self.meaning = name, info, " ".join(meaning.split())
        self.is_required = bool(info.is_required())

    @cached_property
    def type(self) -> str:
        """The field's type."""
        return _shown_by(self._info.metadata) or type_text(self._info.annotation)

    @cached_property
    def unit(self) -> str:
        """Unit of the value; empty if it has none."""
        extra = self._info.json_schema_extra
        return str(extra.get("unit", "")) if isinstance(extra, dict) else ""

    @property
    def default(self) -> Any:
        """The default; `inspect.Parameter.empty` if the field is required."""
        return inspect.Parameter.empty if self.is_required else self._info.get_default(call_default_factory=True)

    def paragraph(self) -> str:
        """Return the field as an indented paragraph."""
        unit = f" [{self.unit}]" if self.unit and self.unit not in self.meaning else ""
        default = "" if self.is_required else f" = {self.default!r}"
        text = f"{self.name}: {self.type}{default}{unit}. {self.meaning}"
        return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False)


def fields_of(cls: type[BaseModel]) -> list[FieldHelp]:
    """Return the fields of a config: first those that no other kind of config has, then inherited ones."""
    texts = meanings(cls)
    found = [FieldHelp(name, info, texts.get(name, "")) for name, info in cls.model_fields.items()]
    shared = {name for base in cls.__mro__[1:] if "[" in base.__name__ for name in getattr(base, "model_fields", ())}
    return sorted(found, key=lambda field: field.name in shared)


FIELDS = "\n\nFields:\n"
"""Text between the docstring of a config and its fields."""


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class CfgType(ModelMetaclass):
    """Type of all configs; it computes their help on demand.

    A value that a class gives a field without an annotation is its default: ``class Fast(ImuCfg): rate_hz = 400.0``.
    """

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> type:
        """Create the class, with the annotations of the fields whose defaults it changes."""
        hints = namespace.setdefault("__annotations__", {})
        fields = {field: info for base in bases for field, info in getattr(base, "model_fields", {}).items()}
        for field, info in fields.items():
            for given in {field, info.alias} & namespace.keys() - hints.keys():
                hints[field] = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
                namespace[field] = Field(default=namespace.pop(given), alias=info.alias)
        return super().__new__(mcs, name, bases, namespace, **kwargs)

    def __dir__(cls) -> list[str]:
        """Return the methods that sensorium's configs define, without those of pydantic; `help` shows these."""
        names = (name for name in type.__dir__(cls) if not name.startswith("_") and not hasattr(BaseModel, name))
        return sorted(name for name in names if callable(getattr(cls, name, None)))

    @property
    def __doc__(cls) -> str:  # type: ignore[override]
        """The class's docstring, followed by its fields."""
        text = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
        fields = "\n".join(field.paragraph() for field in fields_of(cls))  # type: ignore[arg-type]
        return f"{text}{FIELDS}{fields}" if fields else text

    @property
    def __signature__(cls) -> inspect.Signature:
        """Signature with plain types."""
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(field.name, kind, default=field.default, annotation=_Text(field.type))
            for field in sorted(fields_of(cls), key=lambda each: not each.is_required)  # type: ignore[arg-type]
        ]
        return inspect.Signature(parameters)

    @__signature__.setter
    def __signature__(cls, signature: object) -> None:
        """Ignore the signature that pydantic creates."""


def meanings(cls: type[BaseModel]) -> dict[str, str]:
    """Return the meaning of each field of a config: the docstring under it, or its description.

    The source is read on demand: pydantic's `use_attribute_docstrings` reads it at each class definition, which takes
    0.4 s for one sensor's config and 1.5 s for all. A field is omitted if its class has no source file (typed at a
    prompt).
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

    def collect(body: Sequence[ast.stmt], path: str) -> None:
        for item, after in zip_longest(body, body[1:]):
            match item, after:
                case ast.ClassDef(name=name), _:
                    found[f"{path}{name}"] = {}  # the last definition of a class wins
                    collect(item.body, f"{path}{name}.")
                case ast.FunctionDef(name=name), _:
                    collect(item.body, f"{path}{name}.<locals>.")
                case ((ast.If() | ast.Try() | ast.With()), _):
                    collect(item.body, path)
                    collect(getattr(item, "orelse", []), path)
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found.get(path.removesuffix("."), {})[name] = inspect.cleandoc(text)

    collect(tree.body, "")
    return found
