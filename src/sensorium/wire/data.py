"""Data of one message, as views of the received memory.

The data are not copied and are read-only; see `RawData`. Data of sensors of the scene are in `field_data`.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NoReturn, Self, overload

import numpy as np
import numpy.typing as npt

from sensorium.errors import ConfigError, RegistrationError, WireError
from sensorium.wire.pose import Pose
from sensorium.wire.raw_data import RawData, ReadOnly, put
from sensorium.wire.stream_info import StreamInfo

Array = np.ndarray[Any, np.dtype[Any]]

_CHUNK = 4096


class SensorData(ReadOnly):
    """Data of one sensor at one frame. Read-only; the object and each of its arrays keep the received memory alive.

    A custom data type derives from this class or from `ArrayData`, takes a `RawData` and adds properties.
    """

    __slots__ = ("__weakref__", "_raw")

    _raw: RawData

    def __init__(self, raw: RawData) -> None:
        put(self, "_raw", raw)

    @property
    def raw(self) -> RawData:
        """The message: its header and memory."""
        return self._raw

    @property
    def info(self) -> StreamInfo:
        """Stream of the data."""
        return self._raw.info

    @property
    def sensor(self) -> str:
        """Name of the sensor."""
        return self._raw.info.name

    @property
    def frame(self) -> int:
        """Number of the frame on the server; all data of a frame share it."""
        return self._raw.header.frame

    @property
    def seq(self) -> int:
        """Number of the message in its stream; a gap means that this listener missed messages."""
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
        """Simulation time of the capture (of the first env), s."""
        return self._raw.header.capture_ns * 1e-9

    @property
    def age(self) -> float:
        """Age of the value at the frame (of the first env), s of simulation time."""
        return (self._raw.header.time_ns - self._raw.header.capture_ns) * 1e-9

    @property
    def capture_time_wall(self) -> float:
        """Wall-clock time of the server at the capture, s since 1970."""
        return self._raw.header.wall_ns * 1e-9

    def latency(self) -> float:
        """Return the wall-clock time since the capture, s; between hosts, clock offsets add to it."""
        return (time.time_ns() - self._raw.header.wall_ns) * 1e-9

    @property
    def first_env(self) -> int:
        """Number of the first env in the data."""
        return self._raw.header.first_env

    @property
    def num_envs(self) -> int:
        """Number of envs in the data."""
        return self._raw.header.num_envs

    @property
    def env_ids(self) -> npt.NDArray[np.int64]:
        """Numbers of the envs in the data, int64 `[env]`."""
        header = self._raw.header
        ids = np.arange(header.first_env, header.first_env + header.num_envs, dtype=np.int64)
        ids.flags.writeable = False
        return ids

    @property
    def events_lost(self) -> int:
        """Number of events lost before this message."""
        return self._raw.header.lost

    @property
    def transforms(self) -> npt.NDArray[np.float32] | None:
        """Poses in the world at the capture, `[env, mount, 7]` (m, quaternion wxyz); None for a sensor without pose."""
        return self._raw.transforms

    @property
    def transform(self) -> Pose | None:
        """Pose of the first env and mount in the world at the capture; None for a sensor without a pose.

        It is also None for a state that is not finite, and for a late sample captured before any listener requested it.

        Raises:
            WireError: the received numbers are not a pose.
        """
        poses = self._raw.transforms
        if poses is None or not len(poses) or not np.isfinite(poses[0, 0]).all():
            return None
        try:
            return Pose.from_array(poses[0, 0])
        except ConfigError as error:
            raise WireError(f"the first transform of {self.sensor!r} is invalid. {error}") from None

    @property
    def raw_data(self) -> memoryview:
        """Bytes of the body, read-only."""
        return self._raw.body

    def copy(self) -> Self:
        """Return a copy in separate memory; the received memory can then be released."""
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
        """Return the summary of the contents for `repr`."""
        return f"{len(self._raw.body)} bytes" if type(self) is SensorData else ""


_data_slots: Any = SensorData
_set_raw: Callable[[SensorData, RawData], None] = _data_slots._raw.__set__


class LostEvents(SensorData):
    """Notice that `events_lost` events were lost, sent instead of data; iterating over it yields nothing."""

    __slots__ = ()

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[NoReturn]:
        return iter(())

    def _about(self) -> str:
        return f"{self.events_lost} lost"


class Items:
    """Access to an object's `array` as to a read-only list: length, iteration, index and slices."""

    __slots__ = ()

    @property
    def array(self) -> Array:
        """Array of all items."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        array = self.array
        if array.ndim > 1 or array.dtype.names is not None:
            yield from array
            return
        for start in range(0, len(array), _CHUNK):  # as one list, an image of bytes would be 50 MB of numbers
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
            raise TypeError(f"an index of {type(self).__name__} is an integer or a slice, got {index!r}") from None
        item = self.array[position]
        return item.item() if isinstance(item, np.generic) and item.dtype.names is None else item

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        if copy:
            return np.array(self.array, dtype)
        array: Array = np.asarray(self.array, dtype)
        if copy is False and not np.shares_memory(array, self.array):
            raise ValueError(f"{type(self).__name__} cannot be converted to {np.dtype(dtype)} without a copy")
        return array


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
        _set_raw(self, raw)
        if len(raw.body) % self._itemsize:
            raise WireError(
                f"a message of {raw.info.name!r} has a body of {len(raw.body)} bytes, which is not a multiple of the "
                f"item size of {self.dtype.itemsize} bytes ({self.dtype})."
            )

    @property
    def array(self) -> Array:
        """All items, `[item]`, read-only; a view that keeps the received memory alive."""
        raw = self._raw
        return np.ndarray((len(raw.body) // self.dtype.itemsize,), self.dtype, raw.array)

    def _about(self) -> str:
        return f"{len(self)} items of {self.dtype}"
