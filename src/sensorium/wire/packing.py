"""Records in ZeroMQ messages: all records for one receiver share a multipart message.

A record is a part that starts with a head of 16 bytes: kind, number of further parts, `a` (u32) and `b` (u64), little
endian. The rest of the part is its content. The content of a record with further parts is these parts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

from sensorium.errors import WireError

CONTROL = 1
"""A control message, see `messages`."""
DATA = 2
"""A data message (header, poses, body): its bytes, or one or two further parts, header and poses, then the body.
`a` is the subscription, `b` the number of the message in the subscription, from 1."""
SLOT = 3
"""A data message in a shared-memory slot; the content is its `PLACE`, `a` and `b` as for DATA."""
CREDIT = 4
"""To the server: b more data messages may be sent to subscription a."""
RELEASE = 5
"""To the server: slot b of segment a was read."""

PLACE = struct.Struct("<QQQ")
"""Place of a data message in shared memory: number of the segment, announced by `messages.Segment`, number of the slot
in it, and size of the message, bytes."""
_HEAD = struct.Struct("<BBxxIQ")


class Record(NamedTuple):
    """Record of a message.

    Args:
        kind: see the constants.
        a: see `kind`.
        b: see `kind`.
        content: bytes of the record, or a tuple of parts.
    """

    kind: int
    a: int = 0
    b: int = 0
    content: Any = b""


def pack(records: Iterable[Record]) -> list[Any]:
    """Return the parts of one message."""
    parts: list[Any] = []
    for kind, a, b, content in records:
        if isinstance(content, tuple):
            parts += (_HEAD.pack(kind, len(content), a, b), *content)
        else:
            parts.append(_HEAD.pack(kind, 0, a, b) + content)
    return parts


def unpack(parts: Iterable[Any]) -> list[Record]:
    """Return the records of a message whose parts are memoryviews of bytes; contents are views of them.

    Raises:
        WireError: the parts are not records.
    """
    rest, records = iter(parts), []
    for part in rest:
        if len(part) < _HEAD.size:
            raise WireError(f"a record has {len(part)} bytes, expected at least {_HEAD.size}")
        kind, further, a, b = _HEAD.unpack_from(part)
        if kind == SLOT and len(part) != _HEAD.size + PLACE.size:
            raise WireError(f"the location of a slot has {len(part) - _HEAD.size} bytes, expected {PLACE.size}")
        if not further:
            records.append(Record(kind, a, b, part[_HEAD.size :]))
            continue
        content = tuple(islice(rest, further))
        if kind != DATA or not 1 <= len(content) == further <= 2:
            raise WireError(f"a record of kind {kind} has {len(content)} of {further} further parts")
        records.append(Record(kind, a, b, content))
    return records
