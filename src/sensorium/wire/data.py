"""Received messages and the data in them, as views of the received memory; and new messages, prepared for sending.

Data are not copied. Every array is a read-only view of the received memory and keeps it alive and unchanged for as long
as the array exists. `copy()` returns the same data in separate memory. Data of the scene's sensors are a `Reading`.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import numpy.typing as npt

from sensorium.errors import RegistrationError, WireError
from sensorium.readings import Array, Items, Sample
from sensorium.wire.header import ALIGNMENT, BUNDLE, HEADER_BYTES, POSE_BYTES, Header
from sensorium.wire.stream_info import StreamInfo

_FLOAT = np.dtype("<f4")
_BYTE = np.dtype("u1")
_NOTHING = np.frombuffer(b"", _BYTE)


class RawData:
    """One message: its header, and the memory of its poses and body. Every length is checked; the data are not copied.

    Args:
        memory: the message, contiguous: np.uint8 array, memoryview or bytes. It must not be written afterwards.
        info: stream of the message.
        body: the message's body, if it is in separate memory; `memory` is then header and poses.

    Attributes:
        header: contents of the header.
        head: header and poses, or the whole message, read-only.
        body: the body, read-only.
        array: body as uint8 `[byte]`, base of all arrays: views of the memory itself could be made writable.
        info: stream of the message.

    Raises:
        WireError: the bytes are not a sensorium message, or not a message of that stream.
    """

    __slots__ = ("_item", "array", "body", "head", "header", "info")

    header: Header
    body: memoryview
    info: StreamInfo
    head: memoryview
    array: npt.NDArray[np.uint8]
    _item: tuple[Header, int, int, int]
    """Header of a bundle, and number, first env and number of envs of this message of it."""

    def __init__(self, memory: Any, info: StreamInfo, body: Any = None) -> None:
        head = memoryview(memory).toreadonly().cast("B")
        rest = None if body is None else memoryview(body).toreadonly().cast("B")
        header = Header.read(head, None if rest is None else len(rest))
        if rest is None:
            rest = head[len(head) - header.body_bytes :]
        if header.first_env + header.num_envs > info.num_envs:
            raise WireError(
                f"a message of stream {info.name!r} contains {header.num_envs} envs from {header.first_env} on, of "
                f"{info.num_envs}."
            )
        self.header, self.head, self.body, self.info = header, head, rest, info

    def __getattr__(self, name: str) -> Any:
        """Create `array`, and the header of a message of a bundle, on first use."""
        if name == "array":
            self.array = np.frombuffer(self.body, _BYTE) if len(self.body) else _NOTHING
            return self.array
        if name != "header":
            raise AttributeError(f"RawData has no attribute {name!r}")
        whole, seq, first, count = self._item
        flags, size = whole.flags & ~BUNDLE, len(self.body)
        self.header = whole._replace(flags=flags, seq=seq, first_env=first, num_envs=count, body_bytes=size)
        return self.header

    @property
    def pose(self) -> npt.NDArray[np.float32] | None:
        """Poses of the sensor, float32 `[env, mount, 7]` (m, quaternion wxyz), read-only; None without poses."""
        header = self.header
        if not header.poses:
            return None
        count = header.num_envs * header.poses * 7
        return np.frombuffer(self.head, _FLOAT, count, HEADER_BYTES).reshape(header.num_envs, header.poses, 7)

    @property
    def env_ids(self) -> npt.NDArray[np.int64]:
        """Numbers of the envs in the message, int64 `[env]`, read-only."""
        header = self.header
        ids = np.arange(header.first_env, header.first_env + header.num_envs, dtype=np.int64)
        ids.flags.writeable = False
        return ids

    def copy(self) -> RawData:
        """Return the same message in separate memory, in one piece."""
        return _joined(self._own_head(), self.body, self.info)

    def __reduce__(self) -> tuple[Any, ...]:
        return _joined, (self._own_head(), bytes(self.body), self.info)

    def _own_head(self) -> bytes:
        """Return header and poses, up to the start of the body."""
        header = self.header
        return (header.pack() + bytes(self.head[HEADER_BYTES : header.body_offset])).ljust(header.body_offset, b"\0")


def empty(size: int) -> npt.NDArray[np.uint8]:
    """Return memory of `size` bytes, contents undefined, aligned to 64 bytes."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def _joined(head: bytes, body: bytes | memoryview, info: StreamInfo) -> RawData:
    """Return a message in aligned memory."""
    memory = empty(len(head) + len(body))
    memory[: len(head)] = np.frombuffer(head, _BYTE)
    memory[len(head) :] = np.frombuffer(body, _BYTE)
    memory.flags.writeable = False
    return RawData(memory, info)


# Bundles --------------------------------------------------------------------------------------------------------------

Item = tuple[bytes | memoryview, int, int]
"""Body, first env and number of envs of a message."""


# The body of a bundle starts with the number of messages and a row per message, u32: the size of its body in bytes,
# its first env and its number of envs. The bodies follow in order. Message i has the number `seq` of the header plus i.
_ROW = struct.Struct("<III")


def messages_in(memory: Any) -> int:
    """Return the number of messages in received memory: several for a bundle."""
    if len(memory) < HEADER_BYTES or not memory[6] & BUNDLE:
        return 1
    start = Header.peek(memory).body_offset
    return int.from_bytes(bytes(memory[start : start + 4]), "little")


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
    raw = RawData(memory, info)
    header, body, head = raw.header, raw.body, raw.head
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
    bodies, stride = bytes(body[at:]), header.poses * POSE_BYTES

    def messages() -> Iterator[RawData]:  # the loop body runs once per small message
        start, seq = 0, header.seq
        for length, first, count in rows:
            each = RawData.__new__(RawData)
            each._item, each.info = (header, seq, first, count), info
            each.body = memoryview(bodies[start : start + length])
            each.head = head if count == header.num_envs else head[(first - header.first_env) * stride :]
            yield each
            start += length
            seq += 1

    return messages()


# Custom types of data ------------------------------------------------------------------------------------------------


def _path(path: str) -> Any:
    """Return a property with the value at a path of attributes."""
    return property(operator.attrgetter(path))


def _seconds(name: str) -> Any:
    """Return a property with a time of the header, s."""
    return property(lambda data: getattr(data.raw.header, name) * 1e-9)


class SensorData(Sample):
    """Data of one message of a custom type; the object and each of its arrays keep the received memory alive.

    A custom data type derives from this class or from `ArrayData`, takes a `RawData` and adds properties. The
    attributes of `Sample` are those of the message's header.
    """

    __slots__ = ("__weakref__", "raw")

    raw: RawData
    """The message: its header and memory."""

    def __init__(self, raw: RawData) -> None:
        self.raw = raw

    info: StreamInfo = _path("raw.info")
    """Stream of the data."""
    name: str = _path("raw.info.name")
    """Name of the sensor."""
    frame: int = _path("raw.header.frame")
    """Number of the frame on the server; all data of a frame share it."""
    seq: int = _path("raw.header.seq")
    """Number of the message in its stream; a gap means that this listener missed messages."""
    tick: int = _path("raw.header.tick")
    """Physics tick of the frame."""
    env_ids: Array = _path("raw.env_ids")
    """Numbers of the envs in the data, int64 `[env]`."""
    pose: Array | None = _path("raw.pose")
    """Poses in the world at the capture, `[env, mount, 7]` (m, quaternion wxyz); None for a sensor without pose."""
    raw_data: memoryview = _path("raw.body")
    """Bytes of the body, read-only."""

    time: float = _seconds("time_ns")
    """Simulation time of the frame, s."""
    timestamp: float = _seconds("capture_ns")
    """Simulation time of the capture (of the first env), s."""
    capture_time_wall: float = _seconds("wall_ns")
    """Wall-clock time of the server at the capture, s since 1970."""

    @property
    def age(self) -> float:
        """Age of the value at the frame (of the first env), s of simulation time."""
        return (self.raw.header.time_ns - self.raw.header.capture_ns) * 1e-9

    def copy(self) -> Self:
        """Return a copy in separate memory; the received memory can then be released."""
        return type(self)(self.raw.copy())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.raw,)

    def _about(self) -> str:
        return f"{len(self.raw.body)} bytes" if type(self) is SensorData else ""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LostEvents(Sample):
    """Notice that `events_lost` events were lost, in place of their data; iterating over it yields nothing.

    Attributes:
        name: the sensor's name.
        info: stream of the events.
        frame: number of the frame on the server after which the loss was noticed.
        tick: physics tick of the frame.
        time: simulation time of the frame, s.
        env_ids: numbers of the envs of the subscription, int64 `[env]`.
        events_lost: number of lost events.
    """

    name: str
    info: StreamInfo
    frame: int
    tick: int
    time: float
    env_ids: Array
    events_lost: int
    seq: int = -1
    pose: None = None
    capture_time_wall: float = math.nan

    @property
    def timestamp(self) -> float:  # type: ignore[override]
        """Equal to `time`."""
        return self.time

    def copy(self) -> LostEvents:
        """Return the notice itself, because it holds no received memory."""
        return self

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[NoReturn]:
        return iter(())

    def _about(self) -> str:
        return f"{self.events_lost} lost"


class ArrayData(Items, SensorData):
    """Data that are one array of equal items, as a view of the received memory.

    It behaves as a read-only list: `len`, iteration, index and slices. Items are Python numbers, or NumPy records if
    `dtype` is structured. A custom type takes two lines::

        class SafeDistanceEvent(ArrayData):
            dtype = np.uint32

    Raises:
        WireError: the body is not a whole number of items.
        RegistrationError: at the definition of a class whose `dtype` does not consist of plain numbers.
    """

    __slots__ = ()

    dtype: ClassVar[Any] = np.dtype("u1")
    """NumPy type of an item, may be structured; read as little endian."""
    _itemsize: ClassVar[int] = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        try:
            dtype = np.dtype(cls.dtype)
        except TypeError as error:
            raise RegistrationError(
                f"{cls.__qualname__}.dtype: got {cls.dtype!r}, expected a NumPy dtype ({error})"
            ) from None
        if dtype.hasobject or not dtype.itemsize:
            raise RegistrationError(f"{cls.__qualname__}.dtype: got {dtype}, expected numbers of a fixed size.")
        cls.dtype = dtype.newbyteorder("<")
        cls._itemsize = dtype.itemsize

    def __init__(self, raw: RawData) -> None:
        super().__init__(raw)
        if len(raw.body) % self._itemsize:
            raise WireError(
                f"a message of {raw.info.name!r} has a body of {len(raw.body)} bytes, which is not a multiple of the "
                f"item size of {self.dtype.itemsize} bytes ({self.dtype})."
            )

    @property
    def array(self) -> Array:
        """All items, `[item]`, read-only; a view that keeps the received memory alive."""
        raw = self.raw
        return np.ndarray((len(raw.body) // self.dtype.itemsize,), self.dtype, raw.array)

    def _about(self) -> str:
        return f"{len(self)} items of {self.dtype}"
