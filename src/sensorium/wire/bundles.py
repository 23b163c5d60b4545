"""Bundles: many small messages of one stream and one frame, with a common header and common poses.

The body starts with the number n of messages, u32. A row per message follows: the size of its body in bytes, its first
env and its number of envs, u32. The bodies follow in order. All numbers are little endian. Message i has the number
`seq` of the header plus i.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from sensorium.errors import WireError
from sensorium.wire.data import RawData, messages_of
from sensorium.wire.header import BUNDLE, HEADER_BYTES, Header
from sensorium.wire.stream_info import StreamInfo

Item = tuple[bytes | memoryview, int, int]
"""Body, first env and number of envs of a message."""

_ROW = struct.Struct("<III")


def messages_in(memory: Any) -> int:
    """Return the number of messages in received memory, or in its head and body: several for a bundle."""
    head = memory[0] if isinstance(memory, tuple) else memory
    if len(head) < HEADER_BYTES or not head[6] & BUNDLE:
        return 1
    start = Header.peek(head).body_offset
    return int.from_bytes(bytes(head[start : start + 4]), "little")


def bundle_body(items: Sequence[Item]) -> bytes:
    """Return the body of a bundle."""
    pack = _ROW.pack
    table = [pack(len(body), first, count) for body, first, count in items]
    return b"".join((len(items).to_bytes(4, "little"), *table, *(body for body, _, _ in items)))


def split_bundle(memory: Any, info: StreamInfo, type_id: int) -> Iterator[RawData]:
    """Return the messages of a bundle. Their bodies are copies, so that they do not keep the received memory alive.

    Args:
        memory: the message, contiguous; it must not be written afterwards.
        info: stream of the message.
        type_id: expected type of the data.

    Raises:
        WireError: the bytes are not a bundle of that stream.
    """
    whole = RawData(memory, info)
    header, body, head = whole.header, whole.body, whole.head
    if not header.flags & BUNDLE:
        raise WireError(f"a message of stream {info.name!r} is not a bundle.")
    if header.type_id != type_id:
        raise WireError(f"a bundle of stream {info.name!r} contains data of the wrong type {header.type_id:#018x}.")
    if header.stream != info.id:
        raise WireError(f"stream {info.id} ({info.name!r}) received a bundle that belongs to stream {header.stream}.")
    size = len(body)
    n = int.from_bytes(body[:4], "little") if size >= 4 else -1
    at = 4 + _ROW.size * n
    if n < 0 or at > size:
        raise WireError(f"a bundle of stream {info.name!r} has {size} bytes, which is too short for {n} messages.")
    rows = list(_ROW.iter_unpack(body[4:at]))
    end = header.first_env + header.num_envs
    if at + sum(row[0] for row in rows) != size:
        raise WireError(f"the messages in a bundle of stream {info.name!r} do not add up to its {size} bytes.")
    if any(first < header.first_env or first + count > end for _, first, count in rows):
        raise WireError(f"a bundle of stream {info.name!r} contains messages of environments outside its header.")
    return messages_of(header, head, bytes(body[at:]), rows, info)
