"""Keywords of a JSON schema that describe attributes, and conversion of values to their types by msgspec."""

from __future__ import annotations

from collections.abc import Callable
from operator import ge, gt, le, lt
from typing import Any, Literal, TypeVar, cast

import msgspec
from msgspec import UNSET, Struct

T = TypeVar("T")
AttributeType = Literal["boolean", "integer", "number", "string", "array", "structure"]
"""Types of an attribute. ``array`` is a vector of numbers; ``structure`` is any other list, a table, or a choice of
several types.
"""
TYPES: dict[str, Any] = {
    "boolean": bool, "integer": int, "number": float, "string": str, "array": tuple[float, ...],
}  # fmt: skip
"""Python types of all but structures."""


class Keywords(Struct, rename="camel"):
    """Keywords of a JSON schema that describe an attribute; all others are ignored."""

    type: Literal["boolean", "integer", "number", "string", "array", "object", "null"] | None = None
    any_of: list[dict[str, Any]] = []
    const: Any = UNSET
    enum: list[Any] = []
    examples: list[Any] = []
    default: Any = None
    items: dict[str, Any] = {}
    prefix_items: list[dict[str, Any]] = []
    max_items: int = 0
    minimum: float | None = None
    exclusive_minimum: float | None = None
    maximum: float | None = None
    exclusive_maximum: float | None = None
    unit: str = ""
    description: str = ""

    @property
    def kind(self) -> AttributeType:
        """Type of a value."""
        parts = self.prefix_items or [self.items]
        is_list = self.type == "array" and not all(part.get("type") == "number" for part in parts)
        return "structure" if is_list or self.type not in TYPES else cast(AttributeType, self.type)

    @property
    def bounds(self) -> list[tuple[str, Callable[[float, float], bool], float]]:
        """Sign, comparison and number of each bound."""
        lower = (">=", ge, self.minimum), (">", gt, self.exclusive_minimum)
        upper = ("<=", le, self.maximum), ("<", lt, self.exclusive_maximum)
        return [(sign, holds, bound) for sign, holds, bound in (*lower, *upper) if bound is not None]

    @property
    def choices(self) -> list[Any]:
        """The constant or the enumeration."""
        return self.enum if self.const is UNSET else [self.const]


def convert(value: Any, type: type[T], *, strict: bool = True) -> T:
    """Return plain data as a value of a type.

    Raises:
        ValueError: the data are not of the type. In older versions, the exception of msgspec is not a ValueError.
    """
    try:
        return msgspec.convert(value, type, strict=strict)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
