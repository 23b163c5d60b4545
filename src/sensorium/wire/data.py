"""What a listener gets: the numbers of one message, seen where they were received.

Nothing is copied and nothing can be written. Every array is a view of the received memory and keeps it alive by itself,
so that it stays as it is for as long as anyone holds it; `copy()` gives memory of its own back.
"""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NoReturn, Self, overload

import numpy as np
import numpy.typing as npt

from sensorium.errors import ConfigError, RegistrationError, UnknownNameError, WireError, listed, nearest
from sensorium.spec import FieldSpec
from sensorium.wire.header import ALIGNMENT, BUNDLE, HEADER_BYTES, POSE_BYTES, TRUTH, Header
from sensorium.wire.layout import Block, Layout, plan
from sensorium.wire.pose import Pose

Array = np.ndarray[Any, np.dtype[Any]]
Where = Literal["scene", "server", "client"]
"""Which part a sensor's data come from: the scene, code on the server beside it, or the client itself."""

_FLOAT = np.dtype("<f4")
_BYTE = np.dtype("u1")
_NOTHING = np.frombuffer(b"", _BYTE)
_CHUNK = 4096
_set: Callable[[Any, str, Any], None] = object.__setattr__


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What a listener needs to know of a stream once.

    Attributes:
        id: number of the stream on its server.
        name: the sensor's name.
        kind: the sensor's kind, e.g. ``"imu"``, or the id of its definition.
        type_name: name of the type of its data, e.g. ``"sensorium.fields/1"``; it says which serializer reads them.
        specs: the fields, where the data have any, mount axis squeezed for a singular selector.
        rate_hz: samples per second of simulation time; 0 for events.
        mounts: name of each mount.
        events: whether it sends when something happens, instead of at a rate.
        where: which part the data come from.
        cfg: the sensor's config, JSON-able.
        constants: what the sensor says once, e.g. names that the numbers in its fields stand for; JSON-able.
        num_envs: environments of the server.
    """

    id: int
    name: str
    kind: str
    type_name: str
    specs: tuple[FieldSpec, ...] = ()
    rate_hz: float = 0.0
    mounts: tuple[str, ...] = ()
    events: bool = False
    where: Where = "scene"
    cfg: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    num_envs: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description."""
        plain = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            **plain,
            "specs": [spec.to_dict() for spec in self.specs],
            "mounts": list(self.mounts),
            "cfg": dict(self.cfg),
            "constants": dict(self.constants),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> StreamInfo:
        """Return the stream that `to_dict` described.

        Raises:
            WireError: the values describe no stream.
        """
        try:
            specs = tuple(FieldSpec.from_dict(each) for each in values["specs"])
            given = {name: values[name] for name in _TYPES}
            mounts = tuple(values["mounts"])
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"no description of a stream: {type(error).__name__}: {error}") from None
        wrong = [name for name, types in _TYPES.items() if not _is_one(given[name], types)]
        wrong += [f"dtype of {spec.name}" for spec in specs if np.dtype(spec.dtype).kind not in "biuf"]
        wrong += ["mounts"] * (not all(isinstance(mount, str) for mount in mounts))
        wrong += ["specs"] * (len({spec.name for spec in specs}) != len(specs))
        if not wrong:
            wrong += ["id"] * (not 0 <= given["id"] < 2**32) + ["num_envs"] * (not 0 <= given["num_envs"] < 2**32)
            wrong += ["where"] * (given["where"] not in ("scene", "server", "client"))
        if wrong:
            raise WireError(f"no description of a stream: wrong value of {listed(wrong)} in {values!r:.400}")
        return cls(specs=specs, mounts=mounts, **{**given, "rate_hz": float(given["rate_hz"])})

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamInfo.from_dict, (self.to_dict(),)


_TYPES: dict[str, tuple[type, ...]] = {
    "id": (int,),
    "name": (str,),
    "kind": (str,),
    "type_name": (str,),
    "rate_hz": (float, int),
    "events": (bool,),
    "where": (str,),
    "cfg": (Mapping,),
    "constants": (Mapping,),
    "num_envs": (int,),
}


def _is_one(value: object, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and (types == (bool,) or not isinstance(value, bool))


# A message as it was received -----------------------------------------------------------------------------------------


class RawData:
    """One message: its header, and the memory that holds poses and body.

    Attributes:
        body: the body, read-only.
        info: the stream that it belongs to.
    """

    __slots__ = ("_array", "_head", "_header", "body", "info")

    _header: Header | tuple[Header, int, int, int]
    body: memoryview
    info: StreamInfo
    _head: memoryview
    _array: npt.NDArray[np.uint8] | None

    def __init__(self, memory: Any, info: StreamInfo, body: Any = None) -> None:
        """See `read`, which has the same arguments and errors."""
        head = memoryview(memory).toreadonly()
        if head.ndim != 1 or head.format != "B":
            head = head.cast("B")
        if body is None:
            header = Header.read(head)
            rest = head[header.body_offset :]
        else:
            rest = memoryview(body).toreadonly()
            if rest.ndim != 1 or rest.format != "B":
                rest = rest.cast("B")
            header = Header.read(head, len(rest))
        if header.first_env + header.num_envs > info.num_envs:
            raise WireError(
                f"a message of stream {info.name!r} has {header.num_envs} envs from {header.first_env} on, of "
                f"{info.num_envs}."
            )
        _set(self, "_header", header)
        _set(self, "body", rest)
        _set(self, "info", info)
        _set(self, "_head", head)
        _set(self, "_array", None)

    @property
    def header(self) -> Header:
        """The numbers in its head."""
        header = self._header
        if isinstance(header, Header):
            return header
        whole, seq, first, count = header  # one of a bundle: made when somebody asks
        flags, size = whole.flags & ~BUNDLE, len(self.body)
        own = whole._replace(flags=flags, seq=seq, first_env=first, num_envs=count, body_bytes=size)
        _set(self, "_header", own)
        return own

    @property
    def _bytes(self) -> npt.NDArray[np.uint8]:
        """The body, as what all arrays are views of: NumPy would let a view of the memory be made writable again."""
        array = self._array
        if array is None:
            array = np.frombuffer(self.body, _BYTE) if len(self.body) else _NOTHING
            _set(self, "_array", array)
        return array

    @classmethod
    def read(cls, memory: Any, info: StreamInfo, body: Any = None) -> RawData:
        """Look at a received message, with every length checked; nothing is copied.

        Args:
            memory: the message, contiguous: np.uint8 array, memoryview or bytes. It must not be written any more.
            info: the stream it belongs to.
            body: the message's body, where it is a piece of memory of its own; `memory` is header and poses then.

        Raises:
            WireError: these bytes are no message of ours, or none of that stream.
        """
        return cls(memory, info, body)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        _refuse(self, name)

    def __delattr__(self, name: str) -> NoReturn:
        _refuse(self, name)

    @property
    def transforms(self) -> npt.NDArray[np.float32] | None:
        """Poses of the sensor, float32 `[env, mount, 7]` (m, quaternion wxyz), read-only; None if it sits nowhere."""
        header = self.header
        if not header.poses:
            return None
        count = header.num_envs * header.poses * 7
        return np.frombuffer(self._head, _FLOAT, count, HEADER_BYTES).reshape(header.num_envs, header.poses, 7)

    def copy(self) -> RawData:
        """Return the same message in memory of its own, in one piece."""
        header = self.header
        start = header.body_offset
        memory = empty(header.message_bytes)
        memory[:start] = np.frombuffer(self._own_head(), np.uint8)
        memory[start:] = self._bytes
        memory.flags.writeable = False
        return RawData(memory, self.info)

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self._own_head() + bytes(self.body), self.info)

    def _own_head(self) -> bytes:
        """Return header and poses, up to where the body begins."""
        header = self.header
        return (header.pack() + bytes(self._head[HEADER_BYTES : header.body_offset])).ljust(header.body_offset, b"\0")


_new = object.__new__
_slots: Any = RawData  # writing through a slot's descriptor is quicker than by name
_set_header, _set_body, _set_info = _slots._header.__set__, _slots.body.__set__, _slots.info.__set__
_set_head, _set_array = _slots._head.__set__, _slots._array.__set__


def messages_of(
    header: Header, head: memoryview, bodies: bytes, rows: Iterable[tuple[int, int, int]], info: StreamInfo
) -> Iterator[RawData]:
    """Yield the messages of a bundle whose lengths were checked. This runs once for each small message.

    Args:
        header: that of the bundle.
        head: read-only memory with the poses of all its envs, 128 bytes after its begin.
        bodies: the bodies, one after the other.
        rows: length, first env and number of envs of each.
        info: the stream it belongs to.
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
    """Write the header of a message and return where its poses and its body go, both writable.

    Args:
        memory: the whole message, or header and poses only, where the body is a piece of its own; at a multiple of 64.
        header: what it says.

    Returns:
        Poses, float32 `[env, mount, 7]` (m, quaternion wxyz; to be filled), and the body's memory.

    Raises:
        WireError: the memory is too small.
    """
    header.pack_into(memory)
    start, shape = header.body_offset, (header.num_envs, header.poses, 7)
    if len(memory) < start:
        raise WireError(f"{len(memory)} bytes of memory for a header and poses of {start}.")
    poses: npt.NDArray[np.float32] = np.ndarray(shape, _FLOAT, memory, HEADER_BYTES)
    end = HEADER_BYTES + poses.nbytes
    memory[end:start] = bytes(start - end)
    return poses, memory[start:]


def empty(size: int) -> npt.NDArray[np.uint8]:
    """Return memory of that many bytes, contents undefined, that begins at a multiple of 64."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def _received(message: bytes, info: StreamInfo) -> RawData:
    """Return a pickled message, in aligned memory."""
    memory = empty(len(message))
    memory[:] = np.frombuffer(message, np.uint8)
    memory.flags.writeable = False
    return RawData(memory, info)


def _refuse(owner: object, name: str) -> NoReturn:
    raise AttributeError(f"{type(owner).__name__}.{name} cannot be assigned to: received data are read-only")


# What a listener gets -------------------------------------------------------------------------------------------------


class SensorData:
    """Data of one sensor at one frame. Read-only; it and every array of it keep the received memory alive.

    A type of data of your own derives from this class or from `ArrayData`, takes a `RawData` and adds properties.
    """

    __slots__ = ("__weakref__", "_raw")

    _raw: RawData

    def __init__(self, raw: RawData) -> None:
        _set(self, "_raw", raw)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        _refuse(self, name)

    def __delattr__(self, name: str) -> NoReturn:
        _refuse(self, name)

    @property
    def raw(self) -> RawData:
        """The message: its header and memory."""
        return self._raw

    @property
    def info(self) -> StreamInfo:
        """The stream that it came from."""
        return self._raw.info

    @property
    def sensor(self) -> str:
        """Name of the sensor."""
        return self._raw.info.name

    @property
    def frame(self) -> int:
        """Number of the frame on the server; data of one frame share it."""
        return self._raw.header.frame

    @property
    def seq(self) -> int:
        """Number of the message in its stream: a gap is what this listener did not get."""
        return self._raw.header.seq

    @property
    def tick(self) -> int:
        """Physics tick of the frame."""
        return self._raw.header.tick

    @property
    def time(self) -> float:
        """Simulation time of the frame, s."""
        return self._raw.header.time_ns * 1e-9

    @property
    def timestamp(self) -> float:
        """Simulation time at which the value was sensed (that of the first env), s."""
        return self._raw.header.capture_ns * 1e-9

    @property
    def age(self) -> float:
        """How old the value was at the frame (that of the first env), s of simulation time."""
        return (self._raw.header.time_ns - self._raw.header.capture_ns) * 1e-9

    @property
    def capture_time_wall(self) -> float:
        """Wall clock of the server when it was captured, s since 1970."""
        return self._raw.header.wall_ns * 1e-9

    def latency(self) -> float:
        """Return the seconds of wall clock from its capture until now; between hosts as right as their clocks are."""
        return (time.time_ns() - self._raw.header.wall_ns) * 1e-9

    @property
    def first_env(self) -> int:
        """Number of the first env in it."""
        return self._raw.header.first_env

    @property
    def num_envs(self) -> int:
        """How many envs it holds."""
        return self._raw.header.num_envs

    @property
    def env_ids(self) -> npt.NDArray[np.int64]:
        """Numbers of the envs in it, int64 `[env]`."""
        header = self._raw.header
        ids = np.arange(header.first_env, header.first_env + header.num_envs, dtype=np.int64)
        ids.flags.writeable = False
        return ids

    @property
    def events_lost(self) -> int:
        """How many events were lost before this message."""
        return self._raw.header.lost

    @property
    def transforms(self) -> npt.NDArray[np.float32] | None:
        """Poses in the world at the capture, `[env, mount, 7]` (m, quaternion wxyz); None if it sits nowhere."""
        return self._raw.transforms

    @property
    def transform(self) -> Pose | None:
        """Pose in the world at the capture, of the first env and mount; None if the sensor sits nowhere.

        It is None, too, where nobody asked for it yet when a late sample was captured, and for a state that is not
        finite.

        Raises:
            WireError: what was sent is no pose.
        """
        poses = self._raw.transforms
        if poses is None or not len(poses) or not np.isfinite(poses[0, 0]).all():
            return None
        try:
            return Pose.from_array(poses[0, 0])
        except ConfigError as error:
            raise WireError(f"data of {self.sensor!r}: the first transform is no pose. {error}") from None

    @property
    def raw_data(self) -> memoryview:
        """The body's bytes, read-only."""
        return self._raw.body

    def copy(self) -> Self:
        """Return the same in memory of its own; what was received can be given back then."""
        return type(self)(self._raw.copy())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._raw,)

    def __repr__(self) -> str:
        header = self._raw.header
        last = header.first_env + header.num_envs - 1
        envs = {0: "no envs", 1: f"env {last}"}.get(header.num_envs, f"envs {header.first_env}..{last}")
        about = self._about()
        return (
            f"{type(self).__name__}({self.sensor!r}, frame={header.frame}, time={self.time:.6g} s, "
            f"age={self.age:.6g} s, {envs}{', ' if about else ''}{about})"
        )

    def _about(self) -> str:
        """Return what `repr` tells of the contents."""
        return f"{len(self._raw.body)} bytes" if type(self) is SensorData else ""


_data_slots: Any = SensorData
_set_raw: Callable[[SensorData, RawData], None] = _data_slots._raw.__set__


class LostEvents(SensorData):
    """The word that events were lost, `events_lost` of them, instead of data: empty wherever it is looped over."""

    __slots__ = ()

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[NoReturn]:
        return iter(())

    def _about(self) -> str:
        return f"{self.events_lost} lost"


class _Items:
    """Access to an object's `array` as to a list: length, iteration, index and slices; nothing can be assigned."""

    __slots__ = ()

    @property
    def array(self) -> Array:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        array = self.array
        if array.ndim > 1 or array.dtype.names is not None:
            yield from array
            return
        for start in range(0, len(array), _CHUNK):  # an image of bytes would be 50 MB of numbers at once
            yield from array[start : start + _CHUNK].tolist()

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Array: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self.array[index]
        try:
            position = operator.index(index)
        except TypeError:
            raise TypeError(f"{type(self).__name__} takes integers and slices, not {index!r}") from None
        item = self.array[position]
        return item.item() if isinstance(item, np.generic) and item.dtype.names is None else item

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        if copy:
            return np.array(self.array, dtype)
        array: Array = np.asarray(self.array, dtype)
        if copy is False and not np.shares_memory(array, self.array):
            raise ValueError(f"{type(self).__name__} as {np.dtype(dtype)} needs a copy")
        return array


class ArrayData(_Items, SensorData):
    """Data that are one array of equal items, seen where they were received.

    It is used as a list that cannot be changed: `len`, iteration, index and slices. Items are Python numbers, or NumPy
    records where `dtype` is structured. A type of your own is two lines::

        class SafeDistanceEvent(ArrayData):
            dtype = np.uint32

    Raises:
        WireError: the body is no whole number of items.
        RegistrationError: at the definition of a class whose `dtype` is none of plain numbers.
    """

    __slots__ = ()

    dtype: ClassVar[Any] = np.dtype("u1")
    """Type of an item, NumPy's, may be structured; taken as little endian."""
    _itemsize: ClassVar[int] = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        try:
            dtype = np.dtype(cls.dtype)
        except TypeError as error:
            raise RegistrationError(f"{cls.__qualname__}.dtype = {cls.dtype!r} is no type of NumPy: {error}") from None
        if dtype.hasobject or not dtype.itemsize:
            raise RegistrationError(f"{cls.__qualname__}.dtype = {dtype} cannot be sent: take numbers of a fixed size.")
        cls.dtype = dtype.newbyteorder("<")
        cls._itemsize = dtype.itemsize

    def __init__(self, raw: RawData) -> None:
        _set_raw(self, raw)
        if len(raw.body) % self._itemsize:
            raise WireError(
                f"data of {raw.info.name!r}: a body of {len(raw.body)} bytes is no whole number of items of "
                f"{self.dtype.itemsize} bytes ({self.dtype})."
            )

    @property
    def array(self) -> Array:
        """All items, `[item]`, read-only; a view that keeps the received memory alive."""
        return self._array

    @property
    def _array(self) -> Array:
        raw = self._raw
        return np.ndarray((len(raw.body) // self.dtype.itemsize,), self.dtype, raw._bytes)

    def _about(self) -> str:
        return f"{len(self)} items of {self.dtype}"


# Data of fields -------------------------------------------------------------------------------------------------------


_BRANCH_SLOTS = ("_blocks", "_layout", "_source", "_views")


class FieldBranch(_Items):
    """The fields of a sensor, measured or true: by attribute, ``data.lin_acc_b``, or by name, ``data["lin_acc_b"]``.

    Each is a read-only view `[env, ...]` of the received memory (`[row, ...]` where ragged), made when it is asked for.
    A sensor with one field can be used as that array, too: `len`, iteration, index. With several fields `len` is the
    number of envs.
    """

    __slots__ = ()

    _source: RawData
    _layout: Layout
    _blocks: Mapping[str, Block]
    _views: dict[str, Array]

    def _fill(self, source: RawData, layout: Layout, blocks: Mapping[str, Block]) -> None:
        _set(self, "_source", source)
        _set(self, "_layout", layout)
        _set(self, "_blocks", blocks)
        _set(self, "_views", {})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        _refuse(self, name)

    def __delattr__(self, name: str) -> NoReturn:
        _refuse(self, name)

    @property
    def specs(self) -> tuple[FieldSpec, ...]:
        """What each field is."""
        return self._source.info.specs

    @property
    def fields(self) -> Mapping[str, Array]:
        """All fields, name -> array."""
        return MappingProxyType({name: self._field(name) for name in self._blocks})

    @property
    def array(self) -> Array:
        """The one field.

        Raises:
            TypeError: there are several.
        """
        if len(self._blocks) != 1:
            raise TypeError(
                f"data of {self._source.info.name!r} have several fields: {listed(self._blocks)}. Take one, e.g. "
                f"data[{next(iter(self._blocks), '')!r}]."
            )
        return self._field(next(iter(self._blocks)))

    @property
    def offsets(self) -> npt.NDArray[np.int64] | None:
        """Where the rows of each env begin in ragged fields, int64 `[env + 1]`; None without such fields."""
        return self._meta("offsets") if "offsets" in self._layout.meta else None

    def rows(self, index: int) -> slice:
        """Return the rows of ragged fields that belong to ``env_ids[index]``.

        Raises:
            TypeError: the sensor has no ragged field.
            IndexError: there is no such env.
        """
        offsets, count = self.offsets, self._source.header.num_envs
        if offsets is None:
            raise TypeError(f"data of {self._source.info.name!r} have no fields with an event axis, so no rows per env")
        position = operator.index(index)
        if not -count <= position < count:
            raise IndexError(f"data of {self._source.info.name!r} have {count} envs; there is no env at {position}")
        position %= count
        return slice(int(offsets[position]), int(offsets[position + 1]))

    def _field(self, name: str) -> Array:
        view = self._views.get(name)
        if view is None:
            view = self._views[name] = self._blocks[name].view(self._source._bytes)
        return view

    def _meta(self, what: str) -> Any:
        return self._layout.meta[what].view(self._source._bytes)

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_") or name not in self._blocks:
            known = list(self._blocks) if not name.startswith("_") else []
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}.{nearest(name, known)} Fields: {listed(known)}"
            )
        return self._field(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._blocks]

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: str | slice) -> Array: ...
    def __getitem__(self, index: str | int | slice) -> Any:
        if not isinstance(index, str):
            return super().__getitem__(index)
        if index not in self._blocks:
            raise UnknownNameError(f"field of {self._source.info.name!r}", index, self._blocks)
        return self._field(index)

    def __contains__(self, item: object) -> bool:
        if isinstance(item, str):
            return item in self._blocks
        return any(np.array_equal(each, item) for each in self)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.array) if len(self._blocks) == 1 else self._source.header.num_envs

    def __iter__(self) -> Iterator[Any]:
        self.array  # noqa: B018 - of several fields none is looped over: an error at once, not at the first item
        return super().__iter__()


class TruthData(FieldBranch):
    """The true values that came with measured ones: of the newest capture, never delayed."""

    __slots__ = _BRANCH_SLOTS

    def __init__(self, source: RawData, layout: Layout) -> None:
        self._fill(source, layout, layout.truth)

    @property
    def capture_tick(self) -> npt.NDArray[np.int64]:
        """Tick at which the truth was sensed, int64 `[env]`."""
        return self._meta("truth_tick")  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"TruthData({self._source.info.name!r}, {_described(self._blocks)})"


class FieldData(FieldBranch, SensorData):
    """What a sensor of the scene showed at one frame, see `FieldBranch` for the fields.

    A field with the name of one of the attributes here is reached by name only: ``data["tick"]``.

    Raises:
        WireError: the body is not of the length that the stream's fields and the header say, or its ragged rows are not
            in order.
    """

    __slots__ = (*_BRANCH_SLOTS, "_truth")

    _truth: TruthData | None

    def __init__(self, raw: RawData) -> None:
        SensorData.__init__(self, raw)
        header, info = raw.header, raw.info
        layout = plan(info.specs, header.num_envs, header.rows, bool(header.flags & TRUTH))
        if layout.nbytes != header.body_bytes:
            raise WireError(
                f"data of {info.name!r}: a body of {header.body_bytes} bytes, but {header.num_envs} envs with "
                f"{header.rows} rows of the fields {listed(spec.name for spec in info.specs)} take {layout.nbytes}."
            )
        self._fill(raw, layout, layout.measured)
        if "offsets" in layout.meta:
            offsets = self._meta("offsets")
            if offsets[0] != 0 or offsets[-1] != header.rows or (offsets[1:] < offsets[:-1]).any():
                raise WireError(f"data of {info.name!r}: the rows of its envs are not in order, or not {header.rows}.")
        _set(self, "_truth", TruthData(raw, layout) if layout.truth else None)

    @property
    def truth(self) -> TruthData | None:
        """The true values; None where the subscription did not ask for them."""
        return self._truth

    @property
    def capture_tick(self) -> npt.NDArray[np.int64]:
        """Tick at which the shown value was sensed, int64 `[env]`."""
        return self._meta("capture_tick")  # type: ignore[no-any-return]

    @property
    def stamps(self) -> npt.NDArray[np.float64]:
        """Time that the sensor's own clock gave the shown value, float64 `[env]`, s."""
        return self._meta("stamp")  # type: ignore[no-any-return]

    @property
    def ages(self) -> npt.NDArray[np.float64]:
        """How old the shown value is, float64 `[env]`, s of simulation time."""
        return self._meta("age")  # type: ignore[no-any-return]

    @property
    def captures(self) -> npt.NDArray[np.int64]:
        """Captures since the env's reset, int64 `[env]`."""
        return self._meta("captures")  # type: ignore[no-any-return]

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        """Whether the shown value has arrived and the engine's state was finite when it was sensed, bool `[env]`."""
        return self._meta("valid")  # type: ignore[no-any-return]

    @property
    def is_new(self) -> npt.NDArray[np.bool_]:
        """Whether it arrived in this control step, bool `[env]`."""
        return self._meta("is_new")  # type: ignore[no-any-return]

    def _about(self) -> str:
        return _described(self._blocks) + (", with truth" if self._truth is not None else "")


def _described(blocks: Mapping[str, Block]) -> str:
    return ", ".join(
        f"{name} {re.sub('[<>=|]', '', block.dtype.name)} {list(block.shape)}" for name, block in blocks.items()
    )
