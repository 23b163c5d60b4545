"""Parsing and display of arguments: errors for invalid numbers, and descriptions of optional values."""

from __future__ import annotations

from pathlib import Path
from types import NoneType
from typing import Any, get_args

from tyro.conf import arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from sensorium.jobs.rig import rig_file

RIG = PrimitiveConstructorSpec[Path | None](
    nargs=1,
    metavar="RIG",
    instance_from_str=lambda texts: rig_file(Path(texts[0])),
    is_instance=lambda value: value is None or isinstance(value, Path),
    str_from_instance=lambda value: [str(value)],
)
"""Parser of a rig: a file, or the name of a bundled one."""
REGISTRY = ConstructorRegistry()
"""Settings with which `tyro.cli` parses arguments."""
_WORDS: dict[Any, str] = {int: "a whole number", float: "a number"}


def unset(metavar: str, default: str) -> Any:
    """Return the `--help` entry of an option without a default value: its placeholder, and the resulting behaviour."""
    return arg(metavar=metavar, help_behavior_hint=f"(default: {default})" if default else "")


@REGISTRY.primitive_rule
def _number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Return the parser of a number, or of an optional number."""
    kinds = {kind for kind in get_args(info.type) if kind is not NoneType} or {info.type}
    kind = kinds.pop()
    return None if kinds or kind not in _WORDS else number(kind)


def number(kind: type[int] | type[float], if_list: str = "") -> PrimitiveConstructorSpec[Any]:
    """Return the parser of a number.

    Args:
        kind: type of the number.
        if_list: what to do where numbers separated by commas are given; ``{}`` stands for them.
    """

    def parse(texts: list[str]) -> Any:
        try:
            return kind(texts[0])
        except ValueError:
            fix = f". {if_list.format(texts[0])}" if if_list and "," in texts[0] else ""
            raise ValueError(f"got {texts[0]!r}, expected {_WORDS[kind]}{fix}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=parse,
        is_instance=lambda value: value is None or isinstance(value, int | float),
        str_from_instance=lambda value: [str(value)],
    )
