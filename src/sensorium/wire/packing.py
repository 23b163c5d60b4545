"""Packing of records into one ZeroMQ message and unpacking: all records for one receiver share a message.

The first part is a block of records. A record is a 16-byte head (kind, a, b, length; u32, little-endian), then `length`
bytes, then zeros up to a multiple of 8. A record of kind `PARTS` has no bytes in the block. Its `length` is the number
of its message parts, which follow the block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sensorium.errors import WireError

CONTROL = 1
"""A control message, see `messages`."""
DATA = 2
"""A data message (header, poses, body); a is the subscription, b the number of samples omitted before it."""
PARTS = 3
"""A data message in separate parts: the whole message, or header and poses, then the body."""
SLOT = 4
"""A data message in a shared-memory slot; the bytes name the slot, see `Place`."""
CREDIT = 5
"""To the server: b more data messages may be sent to subscription a."""
RELEASE = 6
"""To the server: slot b of segment a was read."""

_HEAD = struct.Struct("<IIII")
_PLACE = struct.Struct("<QQQ")
_PADS = tuple(bytes(n) for n in range(8))


class Record(NamedTuple):
    """Record of a message.

    Args:
        kind: see the constants.
        a: see `kind`.
        b: see `kind`.
        content: bytes of the record; for PARTS a tuple of parts.
    """

    kind: int
    a: int = 0
    b: int = 0
    content: Any = b""


class Place(NamedTuple):
    """Place of a data message in shared memory.

    Args:
        segment: number of the segment, announced by `messages.Segment`.
        slot: number of the slot in the segment.
        length: size of the message, bytes.
    """

    segment: int
    slot: int
    length: int

    def pack(self) -> bytes:
        """Return the place as bytes."""
        return _PLACE.pack(*self)

    @classmethod
    def unpack(cls, content: Any) -> Place:
        """Return the place that `pack` wrote.

        Raises:
            WireError: the content has another length.
        """
        if len(content) != _PLACE.size:
            raise WireError(f"the location of a slot has {len(content)} bytes, expected {_PLACE.size}")
        return cls(*_PLACE.unpack(content))


def pack(records: Iterable[Record]) -> list[Any]:
    """Return the parts of one message."""
    block: list[Any] = []
    parts: list[Any] = [b""]
    for kind, a, b, content in records:
        size = len(content)
        block.append(_HEAD.pack(kind, a, b, size))
        if kind == PARTS:
            parts.extend(content)
        elif size:
            block.append(content)
            block.append(_PADS[-size & 7])
    parts[0] = b"".join(block)
    return parts


def unpack(parts: Sequence[Any]) -> Iterator[Record]:
    """Yield the records of a message whose parts are memoryviews of bytes; contents are views of them.

    Raises:
        WireError: the lengths do not agree; raised during iteration.
    """
    if not parts:
        raise WireError("a message has no parts")
    block = parts[0]
    at, end, following = 0, len(block), 1
    read, size = _HEAD.unpack_from, _HEAD.size
    while at < end:
        if end - at < size:
            raise WireError(f"the head of a record has {end - at} bytes, expected {size}")
        kind, a, b, length = read(block, at)
        at += size
        if kind == PARTS:
            if not 1 <= length <= 2 or following + length > len(parts):
                raise WireError(f"a record refers to {length} message parts, but {len(parts) - following} follow")
            yield Record(kind, a, b, tuple(parts[following : following + length]))
            following += length
            continue
        if length > end - at:
            raise WireError(f"a record has {length} bytes, but only {end - at} bytes follow")
        yield Record(kind, a, b, block[at : at + length])
        at += length + (-length & 7)
    if following != len(parts):
        raise WireError(f"{len(parts) - following} message parts belong to no record")
