"""Message types of ROS 2: their published definitions, schema texts and RIHS01 type hashes (REP 2016)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from sensorium.errors import RegistrationError, UnknownNameError

SEPARATOR = "=" * 80
PRIMITIVES = {
    "bool": ("?", 15), "byte": ("u1", 16), "char": ("u1", 3), "float32": ("<f4", 10), "float64": ("<f8", 11),
    "int8": ("i1", 2), "uint8": ("u1", 3), "int16": ("<i2", 4), "uint16": ("<u2", 5), "int32": ("<i4", 6),
    "uint32": ("<u4", 7), "int64": ("<i8", 8), "uint64": ("<u8", 9),
}  # fmt: skip
"""Type of a field -> NumPy element type, and its number in type descriptions."""
NESTED, STRING, BOUNDED_STRING = 1, 17, 21
ARRAY, BOUNDED_SEQUENCE, SEQUENCE = 48, 96, 144
_FIELD = re.compile(r"([\w/]+)(?:<=(\d+))?(\[(<=)?(\d*)\])?\s+(\w+)(?:\s+[^=\s].*)?$")
_CONSTANT = re.compile(r"[\w<=]+\s+\w+\s*=")


@dataclass(frozen=True, slots=True)
class MessageField:
    """One field of a message type.

    Attributes:
        name: field name.
        base: name of the element's type: a primitive type, ``"string"`` or ``"package/msg/Type"``.
        length: number of elements of an array; None for a single element and for a sequence.
        is_sequence: whether the number of elements varies.
        most: maximum number of elements of a sequence; 0 for no limit.
        most_characters: maximum length of a string; 0 for no limit.
    """

    name: str
    base: str
    length: int | None = None
    is_sequence: bool = False
    most: int = 0
    most_characters: int = 0

    @property
    def dtype(self) -> str:
        """NumPy element type; empty for strings and nested types."""
        return PRIMITIVES[self.base][0] if self.base in PRIMITIVES else ""

    @property
    def is_nested(self) -> bool:
        """Whether the elements are messages."""
        return "/" in self.base

    def describe(self) -> dict[str, object]:
        """Return the description that enters the type hash."""
        if self.base == "string":
            number = BOUNDED_STRING if self.most_characters else STRING
        else:
            number = NESTED if self.is_nested else PRIMITIVES[self.base][1]
        if self.is_sequence:
            number += BOUNDED_SEQUENCE if self.most else SEQUENCE
        elif self.length is not None:
            number += ARRAY
        return {
            "name": self.name,
            "type": {
                "type_id": number,
                "capacity": self.length or self.most,
                "string_capacity": self.most_characters,
                "nested_type_name": self.base if self.is_nested else "",
            },
        }


@dataclass(frozen=True, slots=True)
class MessageType:
    """One message type.

    Attributes:
        name: full name, e.g. ``"sensor_msgs/msg/Imu"``.
        text: its definition.
        fields: its fields, in order.
    """

    name: str
    text: str
    fields: tuple[MessageField, ...]

    def describe(self) -> dict[str, object]:
        """Return the description that enters the type hash."""
        return {"type_name": self.name, "fields": [field.describe() for field in self.fields]}


_types: dict[str, MessageType] = {}


def add_definitions(text: str) -> None:
    """Add message types.

    Args:
        text: definitions in the format of schemas: ``MSG: package/Type`` above each, and a line of 80 ``=`` between
            two. Type names within are relative to the package, as in a `.msg` file.

    Raises:
        RegistrationError: a line is not a field or constant, or a type is already defined otherwise.
    """
    for part in text.split(SEPARATOR):
        head, _, body = part.strip().partition("\n")
        package, _, short = head.removeprefix("MSG:").strip().replace("/msg/", "/").partition("/")
        if not short:
            raise RegistrationError(f"message definition: got {head!r}, expected a line 'MSG: package/Type'.")
        name = f"{package}/msg/{short}"
        found = MessageType(name, f"{body.strip()}\n", tuple(_fields(name, body)))
        if _types.setdefault(name, found).fields != found.fields:
            raise RegistrationError(f"message type {name!r} is already defined with other fields. Rename one of them.")
    schema_text.cache_clear()
    type_hash.cache_clear()


def _fields(name: str, body: str) -> Iterator[MessageField]:
    for line in body.splitlines():
        line = line.partition("#")[0].strip()
        if not line or _CONSTANT.match(line):
            continue
        match = _FIELD.match(line)
        if match is None:
            raise RegistrationError(f"message type {name!r}: got {line!r}, expected 'type name' or a constant.")
        base, characters, array, most, length, field = match.groups()
        if base not in PRIMITIVES and base != "string":
            package, _, short = base.replace("/msg/", "/").rpartition("/")
            base = f"{package or ('std_msgs' if short == 'Header' else name.partition('/')[0])}/msg/{short}"
        number, limits = int(length or 0), int(characters or 0)
        if array is None or (length and not most):
            yield MessageField(field, base, number if array else None, most_characters=limits)
        else:
            yield MessageField(field, base, None, True, number, limits)


def message_type(name: str) -> MessageType:
    """Return a message type.

    Raises:
        UnknownNameError: unknown name; the message lists the nearest.
    """
    if "sensor_msgs/msg/Imu" not in _types:
        add_definitions(files(__package__).joinpath("definitions.msg").read_text(encoding="utf-8"))
    if name not in _types:
        raise UnknownNameError("message type", name, _types, "Add it with add_definitions(text).")
    return _types[name]


def dependencies(name: str) -> list[str]:
    """Return the types nested in a message type at any depth, in order of their first use."""
    found: dict[str, None] = {}
    for field in message_type(name).fields:
        if field.is_nested:
            found.setdefault(field.base)
            found.update(dict.fromkeys(dependencies(field.base)))
    return list(found)


@cache
def schema_text(name: str) -> str:
    """Return the schema with all nested types, in the encoding ``ros2msg`` of MCAP files."""
    nested = (
        f"{SEPARATOR}\nMSG: {each.replace('/msg/', '/')}\n{message_type(each).text}" for each in dependencies(name)
    )
    return message_type(name).text + "".join(nested)


@cache
def type_hash(name: str) -> str:
    """Return the type hash of ROS 2 Jazzy, ``"RIHS01_..."``."""
    described = {
        "type_description": message_type(name).describe(),
        "referenced_type_descriptions": [message_type(each).describe() for each in sorted(dependencies(name))],
    }
    return f"RIHS01_{hashlib.sha256(json.dumps(described).encode()).hexdigest()}"
