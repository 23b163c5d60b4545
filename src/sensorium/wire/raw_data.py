"""Raw messages: received ones, which are read-only, and new ones that are prepared for sending.

Data are not copied. Every array is a view of the received memory and keeps it alive and unchanged for as long as the
array exists. `copy()` returns a message in separate memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from sensorium.errors import WireError
from sensorium.wire.header import ALIGNMENT, BUNDLE, HEADER_BYTES, POSE_BYTES, Header
from sensorium.wire.stream_info import StreamInfo

_FLOAT = np.dtype("<f4")
_BYTE = np.dtype("u1")
_NOTHING = np.frombuffer(b"", _BYTE)

put: Callable[[Any, str, Any], None] = object.__setattr__
"""Function that sets an attribute of a read-only object during its construction."""


class ReadOnly:
    """Base of received data, whose attributes cannot be set."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set, because received data are read-only")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be deleted, because received data are read-only")


class RawData(ReadOnly):
    """One message: its header, and the memory of its poses and body. Every length is checked; the data are not copied.

    Args:
        memory: the message, contiguous: np.uint8 array, memoryview or bytes. It must not be written afterwards.
        info: stream of the message.
        body: the message's body, if it is in separate memory; `memory` is then header and poses.

    Attributes:
        head: header and poses, or the whole message, read-only.
        body: the body, read-only.
        info: stream of the message.

    Raises:
        WireError: the bytes are not a sensorium message, or not a message of that stream.
    """

    __slots__ = ("_array", "_header", "body", "head", "info")

    _header: Header | tuple[Header, int, int, int]
    body: memoryview
    info: StreamInfo
    head: memoryview
    _array: npt.NDArray[np.uint8] | None

    def __init__(self, memory: Any, info: StreamInfo, body: Any = None) -> None:
        head = _bytes_of(memory)
        rest = None if body is None else _bytes_of(body)
        header = Header.read(head, None if rest is None else len(rest))
        if rest is None:
            rest = head[header.body_offset :]
        if header.first_env + header.num_envs > info.num_envs:
            raise WireError(
                f"a message of stream {info.name!r} contains {header.num_envs} envs from {header.first_env} on, of "
                f"{info.num_envs}."
            )
        put(self, "_header", header)
        put(self, "body", rest)
        put(self, "info", info)
        put(self, "head", head)
        put(self, "_array", None)

    @property
    def header(self) -> Header:
        """Contents of the header."""
        header = self._header
        if isinstance(header, Header):
            return header
        whole, seq, first, count = header  # a message of a bundle: its header is created on demand
        flags, size = whole.flags & ~BUNDLE, len(self.body)
        own = whole._replace(flags=flags, seq=seq, first_env=first, num_envs=count, body_bytes=size)
        put(self, "_header", own)
        return own

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """Body as uint8 `[byte]`, base of all arrays: views of the memory itself could be made writable."""
        array = self._array
        if array is None:
            array = np.frombuffer(self.body, _BYTE) if len(self.body) else _NOTHING
            put(self, "_array", array)
        return array

    @property
    def transforms(self) -> npt.NDArray[np.float32] | None:
        """Poses of the sensor, float32 `[env, mount, 7]` (m, quaternion wxyz), read-only; None without poses."""
        header = self.header
        if not header.poses:
            return None
        count = header.num_envs * header.poses * 7
        return np.frombuffer(self.head, _FLOAT, count, HEADER_BYTES).reshape(header.num_envs, header.poses, 7)

    def copy(self) -> RawData:
        """Return the same message in separate memory, in one piece."""
        header = self.header
        start = header.body_offset
        memory = empty(header.message_bytes)
        memory[:start] = np.frombuffer(self._own_head(), np.uint8)
        memory[start:] = self.array
        memory.flags.writeable = False
        return RawData(memory, self.info)

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self._own_head() + bytes(self.body), self.info)

    def _own_head(self) -> bytes:
        """Return header and poses, up to the start of the body."""
        header = self.header
        return (header.pack() + bytes(self.head[HEADER_BYTES : header.body_offset])).ljust(header.body_offset, b"\0")


def _bytes_of(memory: Any) -> memoryview:
    """Return memory as a read-only view of bytes."""
    view = memoryview(memory).toreadonly()
    return view if view.ndim == 1 and view.format == "B" else view.cast("B")


_new = object.__new__
_slots: Any = RawData  # writing through a slot's descriptor is faster than by name
_set_header, _set_body, _set_info = _slots._header.__set__, _slots.body.__set__, _slots.info.__set__
_set_head, _set_array = _slots.head.__set__, _slots._array.__set__


def messages_of(
    header: Header, head: memoryview, bodies: bytes, rows: Iterable[tuple[int, int, int]], info: StreamInfo
) -> Iterator[RawData]:
    """Yield the messages of a bundle whose lengths were checked. The loop body runs once per small message.

    Args:
        header: header of the bundle.
        head: read-only memory with the poses of all envs of the bundle, 128 bytes after its start.
        bodies: the bodies in order, without gaps.
        rows: length, first env and number of envs of each message.
        info: stream of the bundle.
    """
    at, seq, first0, envs, stride = 0, header.seq, header.first_env, header.num_envs, header.poses * POSE_BYTES
    for length, first, count in rows:
        raw = _new(RawData)
        _set_header(raw, (header, seq, first, count))
        _set_body(raw, memoryview(bodies[at : at + length]))
        _set_info(raw, info)
        _set_head(raw, head if count == envs else head[(first - first0) * stride :])
        _set_array(raw, None)
        yield raw
        at += length
        seq += 1


def begin_message(memory: memoryview, header: Header) -> tuple[npt.NDArray[np.float32], memoryview]:
    """Write the header of a message and return the memory of its poses and its body, both writable.

    Args:
        memory: the whole message, or only header and poses if the body is separate; aligned to 64 bytes.
        header: contents of the header.

    Returns:
        Poses, float32 `[env, mount, 7]` (m, quaternion wxyz; to be filled), and the body's memory.

    Raises:
        WireError: the memory is too small.
    """
    header.pack_into(memory)
    start, shape = header.body_offset, (header.num_envs, header.poses, 7)
    if len(memory) < start:
        raise WireError(f"the header and the poses need {start} bytes of memory, got {len(memory)}.")
    poses: npt.NDArray[np.float32] = np.ndarray(shape, _FLOAT, memory, HEADER_BYTES)
    end = HEADER_BYTES + poses.nbytes
    memory[end:start] = bytes(start - end)
    return poses, memory[start:]


def empty(size: int) -> npt.NDArray[np.uint8]:
    """Return memory of `size` bytes, contents undefined, aligned to 64 bytes."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def _received(message: bytes, info: StreamInfo) -> RawData:
    """Return a pickled message, in aligned memory."""
    memory = empty(len(message))
    memory[:] = np.frombuffer(message, np.uint8)
    memory.flags.writeable = False
    return RawData(memory, info)
