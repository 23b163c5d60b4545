"""Messages of a recording: one per reading and branch, with all its environments, as CDR with a ROS 2 definition.

A reading becomes two messages, ``measured`` and ``truth``. Each starts with `tick` i64 and `time` f64 (s). Values per
environment follow, then the sensor's fields `[env, ...]`, flat and in C order. Ragged fields are sequences at the end,
and `offsets` i64 [env + 1] gives the first row of each environment. The definition is made from the `FieldSpec`s, so
that any reader of ROS 2 definitions can decode the messages.
"""

from __future__ import annotations

import itertools
import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from sensorium.errors import ModelError, SensoriumError, listed
from sensorium.readings import Array, Reading, read_only
from sensorium.record.stacks import ABOUT, Stack, one_after_the_other
from sensorium.spec import FieldSpec

PACKAGE = "sensorium_msgs"
"""Package in the names of the message types."""
BRANCHES = ("measured", "truth")
OPCODE = 5
"""Opcode of a message in MCAP files."""
HEADS: np.dtype[Any] = np.dtype([
    ("opcode", "u1"), ("length", "<u8"), ("channel", "<u2"), ("sequence", "<u4"), ("log_time", "<u8"),
    ("publish_time", "<u8"),
])  # fmt: skip
"""Head of a message: the record's, and those of the message before its contents."""
LITTLE_ENDIAN = b"\0\1\0\0"
"""First four bytes of every CDR message here; alignment counts from their end."""
MAX_ENVS = 2**24
"""Maximum number of environments of a recording."""
MAX_ELEMENTS = 2**40
"""Maximum number of elements of one field per environment."""

DECODED = 2**18
"""Size of the messages that are decoded together, bytes; their readings share memory."""

Arrays = tuple[dict[str, Array], dict[str, Array]]
"""Tick, time and values per environment of messages, and their fields."""

_HEAD = struct.Struct("<4sqd")
_COUNT = struct.Struct("<I")
TYPES = {"bool": "bool", "float16": "uint16"} | {
    name: name
    for name in ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
}
"""NumPy type -> type in definitions; a float16 is written as its bits."""
_META = {"capture_tick": "int64", "frame": "int64", "stamp": "float64", "valid": "bool", "is_new": "bool"}
"""Values per environment of a measured message."""
_COMMENTS = {
    "capture_tick": "tick of the capture of each value",
    "truth_tick": "tick of the capture of each value",
    "frame": "number of captures since the reset",
    "stamp": "time of the capture by the sensor's own clock, s",
    "valid": "whether the value has arrived",
    "is_new": "whether it arrived in this control step",
    "pose": "pose of the sensor in the world at the capture, m and quaternion wxyz",
    "offsets": "first row of each environment in the sequences below",
}
_RESERVED = {"tick", "time", *_COMMENTS}


@dataclass(frozen=True, slots=True)
class _Column:
    """One array of a message: name of its value, name in the definition, element type, shape, place of its bytes."""

    name: str
    member: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pad: bytes
    start: int
    nbytes: int
    comment: str

    @property
    def line(self) -> str:
        count = prod(self.shape)
        return f"{TYPES[self.dtype.name]}[{count}] {self.member}  # {self.comment}"


class Batch:
    """Layout and definition of the messages of one branch of one sensor.

    Args:
        sensor: the sensor's name.
        kind: the sensor's kind.
        specs: its fields.
        env_ids: the recorded environments.
        branch: ``"measured"`` or ``"truth"``.
        mounts: number of poses per environment; 0 for none.
        dt: physics time step, s.
    """

    def __init__(
        self,
        sensor: str,
        kind: str,
        specs: tuple[FieldSpec, ...],
        env_ids: Iterable[int],
        branch: str,
        mounts: int,
        dt: float,
    ) -> None:
        self.sensor, self.kind, self.specs, self.branch, self.mounts, self.dt = sensor, kind, specs, branch, mounts, dt
        self.env_ids = read_only(np.array([*env_ids], np.int64))
        if odd := [spec.name for spec in specs if not _is_recordable(spec)]:
            raise SensoriumError(f"sensor {sensor!r}: recordings cannot hold the type or the size of {listed(odd)}")
        self._has_rows = any(spec.is_ragged for spec in specs)
        self._columns: list[_Column] = []
        envs, end = len(self.env_ids), _HEAD.size
        taken = set(_RESERVED)

        def add(name: str, member: str, dtype: str, shape: tuple[int, ...], comment: str) -> None:
            nonlocal end
            element = np.dtype(dtype).newbyteorder("<")
            pad = -(end - 4) % element.itemsize if prod(shape) else 0
            nbytes = prod(shape) * element.itemsize
            self._columns.append(_Column(name, member, element, shape, bytes(pad), end + pad, nbytes, comment))
            end += pad + nbytes

        if branch == "measured":
            for name, dtype in _META.items():
                add(name, name, dtype, (envs,), _COMMENTS[name])
            if mounts:
                add(
                    "pose", "pose", "float32", (envs, mounts, 7), f"[env {envs}, mount {mounts}, 7] {_COMMENTS['pose']}"
                )
        else:
            add("truth_tick", "truth_tick", "int64", (envs,), _COMMENTS["truth_tick"])
        if self._has_rows:
            add("offsets", "offsets", "int64", (envs + 1,), _COMMENTS["offsets"])
        self._meta = len(self._columns)
        self._ragged: list[tuple[FieldSpec, str]] = []
        for spec in specs:
            member = _unique(_member(spec.name), taken)
            if spec.is_ragged:
                self._ragged.append((spec, member))
            else:
                axes = ", ".join(f"{axis} {size}" for axis, size in zip(spec.axes, spec.shape, strict=True))
                where = f"[env {envs}{', ' if axes else ''}{axes}] {spec.unit} {spec.frame}".rstrip()
                add(spec.name, member, spec.dtype, (envs, *spec.shape), where)
        self._end = end

    # Definition -------------------------------------------------------------------------------------------------------

    @property
    def type_name(self) -> str:
        """Name of the message type."""
        words = re.findall("[A-Za-z0-9]+", self.sensor)
        name = "".join(word[:1].upper() + word[1:] for word in words)
        return f"{PACKAGE}/msg/{'' if name[:1].isalpha() else 'S'}{name}{self.branch.capitalize()}"

    @property
    def definition(self) -> str:
        """Definition of the message type in the language of ROS 2."""
        title = f"# {self.branch} values of sensor {json.dumps(self.sensor)}, kind {self.kind}"
        lines = ["int64 tick  # physics tick", "float64 time  # simulation time, s"]
        lines += [column.line for column in self._columns if prod(column.shape)]
        for spec, member in self._ragged:
            axes = "".join(f", {axis} {size}" for axis, size in zip(spec.axes[1:], spec.shape[1:], strict=True))
            lines.append(
                f"{TYPES[np.dtype(spec.dtype).name]}[] {member}  # [row{axes}] {spec.unit} {spec.frame}".rstrip()
            )
        return "\n".join([title, *lines, ""])

    @property
    def topic(self) -> str:
        """Topic of the messages."""
        return f"/batch/{re.sub('[^A-Za-z0-9_/]', '_', self.sensor)}/{self.branch}"

    def to_dict(self) -> dict[str, str]:
        """Return the metadata of a channel, from which `from_dict` returns the same layout."""
        about = {
            "specs": [spec.to_dict() for spec in self.specs],
            "env_ids": self.env_ids.tolist(),
            "mounts": self.mounts,
            "dt": self.dt,
        }
        return {"sensor": self.sensor, "kind": self.kind, "branch": self.branch, "layout": json.dumps(about)}

    @classmethod
    def from_dict(cls, metadata: Mapping[str, str]) -> Batch:
        """Return the layout described by the metadata of a channel.

        Raises:
            ModelError: the metadata do not describe a layout.
        """
        try:
            specs, env_ids, mounts, dt = _layout(metadata["layout"])
            if metadata["branch"] not in BRANCHES:
                raise ValueError(f"branch {metadata['branch']!r}")
            return cls(metadata["sensor"], metadata["kind"], specs, env_ids, metadata["branch"], mounts, dt)
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            OverflowError,
            RecursionError,
            SensoriumError,
        ) as error:
            raise ModelError(f"a channel does not describe its sensor ({type(error).__name__}: {error})") from None

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Batch) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.sensor, self.branch))

    # Messages ---------------------------------------------------------------------------------------------------------

    def encode(self, reading: Reading) -> list[Any]:
        """Return a message as consecutive buffers, which are views of the reading's arrays.

        Args:
            reading: reading of the environments of this layout.

        Raises:
            SensoriumError: an array differs from its spec.
        """
        values = reading.measured if self.branch == "measured" else reading.truth
        about: dict[str, Any] = {**reading.meta, "pose": reading.pose, "offsets": reading.offsets}
        parts: list[Any] = [_HEAD.pack(LITTLE_ENDIAN, reading.tick, reading.time)]
        for index, column in enumerate(self._columns):
            name = column.name
            array: Array = about[name] if index < self._meta else values[name]
            if array.shape != column.shape or array.dtype != column.dtype:
                raise _differs(reading, name, array, column.dtype, column.shape)
            if column.pad:
                parts.append(column.pad)
            if column.nbytes:
                parts.append(array if array.flags.c_contiguous else np.ascontiguousarray(array))
        end = self._end
        for spec, _ in self._ragged:
            array = values[spec.name]
            if array.shape[1:] != spec.shape[1:] or array.dtype != np.dtype(spec.dtype):
                raise _differs(reading, spec.name, array, np.dtype(spec.dtype), spec.shape)
            pad = -end % 4
            parts.append(bytes(pad) + _COUNT.pack(array.size))
            end += pad + _COUNT.size
            if array.size:
                pad = -(end - 4) % array.itemsize
                parts += [bytes(pad), np.ascontiguousarray(array)]
                end += pad + array.nbytes
        return parts

    @property
    def nbytes(self) -> int:
        """Size of a message, bytes; without rows of events."""
        return self._end

    def views(self, memory: Array, start: int) -> Arrays:
        """Return the arrays of messages `[row, ...]`, without those at their end.

        Args:
            memory: one message per row, uint8 `[row, byte]`.
            start: start of the message in its row.

        Returns:
            Tick, time and the values per environment; the fields.
        """

        def view(dtype: np.dtype[Any], shape: tuple[int, ...], at: int) -> Array:
            if not prod(shape):
                return read_only(np.empty((len(memory), *shape), dtype))
            strides = tuple(dtype.itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape)))
            return np.ndarray((len(memory), *shape), dtype, memory, start + at, (memory.strides[0], *strides))

        about, fields = (
            {each.name: view(each.dtype, each.shape, each.start) for each in columns}
            for columns in (self._columns[: self._meta], self._columns[self._meta :])
        )
        return {"tick": view(np.dtype("<i8"), (), 4), "time": view(np.dtype("<f8"), (), 12), **about}, fields

    def places(self, start: int) -> tuple[dict[str, int], dict[str, int]]:
        """Return the first byte of each array of `views` but tick and time, in a message that starts at `start`."""
        about, fields = (
            {each.name: start + each.start for each in columns if each.nbytes}
            for columns in (self._columns[: self._meta], self._columns[self._meta :])
        )
        return about, fields

    def decode(self, messages: Sequence[memoryview]) -> Iterator[tuple[int, float, dict[str, Array], dict[str, Array]]]:
        """Yield tick, time (s), values per environment and fields of messages, in aligned memory that they share.

        Raises:
            ModelError: the bytes are not messages of this layout.
        """
        about, fields = self.views(self._aligned(messages), 4)
        ticks, times = about.pop("tick").tolist(), about.pop("time").tolist()
        for row, message in enumerate(messages):
            meta = {name: array[row] for name, array in about.items()}
            values = {name: array[row] for name, array in fields.items()}
            if self._ragged:
                values |= self._ragged_fields(message, meta["offsets"])
                values = {spec.name: values[spec.name] for spec in self.specs}
            yield ticks[row], times[row], meta, values

    def arrays(self, messages: Sequence[memoryview]) -> Arrays:
        """Return the arrays of messages `[message, ...]`, see `views`; of ragged fields those of all messages.

        Raises:
            ModelError: the bytes are not messages of this layout.
        """
        about, fields = self.views(self._aligned(messages), 4)
        if self._ragged:
            ends = [self._ragged_fields(each, own) for each, own in zip(messages, about["offsets"], strict=True)]
            fields |= {spec.name: np.concatenate([each[spec.name] for each in ends]) for spec, _ in self._ragged}
        return about, fields

    def _aligned(self, messages: Sequence[memoryview]) -> Array:
        """Return the fixed part of messages after 4 bytes of a row, uint8 `[message, byte]`, where numbers are aligned.

        Raises:
            ModelError: a message is too short, or of another byte order.
        """
        size = self._end
        for found in {len(message) for message in messages}:
            if found < size or (found > size and not self._ragged):
                raise self._error(f"a message has {found} bytes, expected {'at least ' * bool(self._ragged)}{size}")
        memory = np.empty((len(messages), -(-(4 + size) // 8)), np.uint64).view(np.uint8)
        joined = b"".join([each[:size] for each in messages] if self._ragged else messages)
        memory[:, 4 : 4 + size] = np.frombuffer(joined, np.uint8).reshape(-1, size)
        if (memory[:, 5] != LITTLE_ENDIAN[1]).any():
            raise self._error("a message is not little-endian CDR")
        memory.flags.writeable = False
        return memory

    def _ragged_fields(self, message: memoryview, offsets: Array) -> dict[str, Array]:
        """Return the fields at the end of a message, in separate memory."""
        end, rows, fields = self._end, int(offsets[-1]), {}
        if offsets[0] != 0 or rows < 0 or (offsets[1:] < offsets[:-1]).any():
            raise self._error("the offsets of a message do not ascend from 0")
        for spec, _ in self._ragged:
            dtype = np.dtype(spec.dtype).newbyteorder("<")
            end += -end % 4
            (count,) = _COUNT.unpack_from(message, end) if end + 4 <= len(message) else (-1,)
            end += _COUNT.size
            if count:
                end += -(end - 4) % dtype.itemsize
            if count != prod(spec.shape[1:]) * rows or end + count * dtype.itemsize > len(message):
                raise self._error(f"a message has {count} elements of {spec.name} for {rows} rows")
            fields[spec.name] = read_only(
                np.frombuffer(message, dtype, count, end).copy().reshape(rows, *spec.shape[1:])
                if count
                else np.empty((rows, *spec.shape[1:]), dtype)
            )
            end += count * dtype.itemsize
        if end != len(message):
            raise self._error(f"a message has {len(message)} bytes, expected {end}")
        return fields

    def _error(self, text: str) -> ModelError:
        return ModelError(f"sensor {self.sensor!r}, {self.branch}: {text}")


_DAMAGES = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""Errors of metadata with other contents than a layout."""


@lru_cache(maxsize=1)  # the channels of the measured values and of the truth have the same
def _layout(text: str) -> tuple[tuple[FieldSpec, ...], list[int], int, float]:
    """Return specs, environments, number of poses and time step of a layout in JSON."""
    about = json.loads(text)
    specs = tuple(FieldSpec.from_dict(each) for each in about["specs"])
    env_ids, mounts, dt = about["env_ids"], about["mounts"], float(about["dt"])
    fits = type(mounts) is int and 0 <= mounts < MAX_ENVS and dt > 0.0
    fits &= all(type(each) is int and 0 <= each < 2**31 for each in env_ids) and len(env_ids) <= MAX_ENVS
    if not fits or len({spec.name for spec in specs}) != len(specs):
        raise ValueError("a value is out of range")
    return specs, env_ids, mounts, dt


def readings_of(
    measured: Batch, firsts: Sequence[memoryview], truth: Batch | None = None, seconds: Sequence[memoryview] = ()
) -> Iterator[Reading]:
    """Yield the readings in measured messages and in the messages of their truth.

    Args:
        measured: layout of the measured messages.
        firsts: measured messages.
        truth: layout of the others; None for readings without truth.
        seconds: the message of the truth of each reading.

    Raises:
        ModelError: the messages do not belong together, or one is damaged.
    """
    most = max(1, DECODED // (measured.nbytes + (0 if truth is None else truth.nbytes)))
    start, together = 0, min(most, 4)  # the first readings are soon there
    while start < len(firsts):
        some = slice(start, start + together)
        start, together = start + together, min(most, 4 * together)
        others = itertools.repeat(None) if truth is None else truth.decode(seconds[some])
        for (tick, time, meta, fields), other in zip(measured.decode(firsts[some]), others, strict=False):
            true: dict[str, Array] = {}
            if truth is not None and other is not None:
                of_truth, _, about, true = other
                if of_truth != tick or len(truth.env_ids) != len(measured.env_ids):
                    raise ModelError(
                        f"sensor {measured.sensor!r}: truth of tick {of_truth} follows a value of tick {tick}"
                    )
                meta["truth_tick"] = about["truth_tick"]
            yield Reading(
                measured.sensor, measured.kind, measured.specs, measured.env_ids, tick, time, fields, true, meta,
                _pose=meta.pop("pose", None), _offsets=meta.pop("offsets", None), _dt=measured.dt,
            )  # fmt: skip


def stack_of(
    measured: Batch, firsts: Sequence[memoryview], truth: Batch | None = None, seconds: Sequence[memoryview] = ()
) -> Stack:
    """Return the readings in measured messages and in the messages of their truth, see `readings_of`."""
    parts = [batch.arrays(messages) for batch, messages in ((measured, firsts), (truth, seconds)) if batch is not None]
    return stacked(measured, *parts)


def batches_of(reading: Reading, env_ids: Array, dt: float) -> tuple[Batch, Batch]:
    """Return the layouts of readings like this one, of the measured values and of the truth.

    Args:
        reading: a reading of the sensor.
        env_ids: the recorded environments.
        dt: physics time step, s.
    """
    mounts = 0 if reading.pose is None else reading.pose.shape[1]
    measured, true = (
        Batch(reading.name, reading.kind, reading.specs, env_ids, branch, mounts, dt) for branch in BRANCHES
    )
    return measured, true


def stacked(measured: Batch, values: Arrays, true: Arrays | None = None) -> Stack:
    """Return the readings in the arrays of measured messages, and in those of the messages of their truth.

    Raises:
        ModelError: the messages do not belong together.
    """
    (about, fields), (about_truth, truth) = values, true or ({}, {})
    if true is not None and not np.array_equal(about["tick"], about_truth["tick"]):
        raise measured._error("its truth is of other ticks")
    offsets = about.get("offsets")
    return Stack(
        measured.sensor, measured.specs, measured.env_ids, about["tick"], about["time"], fields, truth,
        {name: about_truth.get(name, about["capture_tick"]) if name == "truth_tick" else about[name] for name in ABOUT},
        about.get("pose"), None if offsets is None else one_after_the_other(offsets),
    )  # fmt: skip


def of_envs(reading: Reading, rows: Array) -> Reading:
    """Return the reading of some of its environments.

    Args:
        reading: reading of several environments.
        rows: indices into ``reading.env_ids``, ascending.
    """
    offsets, pose = reading.offsets, reading.pose
    keep = None
    if offsets is not None:
        counts = np.diff(offsets)
        chosen = np.zeros(len(counts), bool)
        chosen[rows] = True
        keep = np.repeat(chosen, counts)
        offsets = read_only(np.concatenate(([0], np.cumsum(counts[rows], dtype=np.int64))))
    ragged = {spec.name for spec in reading.specs if spec.is_ragged}

    def part(values: Mapping[str, Array]) -> dict[str, Array]:
        return {name: read_only(array[keep if name in ragged else rows]) for name, array in values.items()}

    return Reading(
        reading.name, reading.kind, reading.specs, read_only(reading.env_ids[rows]), reading.tick, reading.time,
        part(reading.measured), part(reading.truth), {name: read_only(reading.meta[name][rows]) for name in ABOUT},
        _offsets=offsets, _pose=None if pose is None else read_only(pose[rows]), _dt=reading._dt,
    )  # fmt: skip


def _is_recordable(spec: FieldSpec) -> bool:
    """Return whether a message can hold a field."""
    return np.dtype(spec.dtype).name in TYPES and prod(size or 1 for size in spec.shape) < MAX_ELEMENTS


def _differs(reading: Reading, name: str, array: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> SensoriumError:
    return SensoriumError(
        f"reading of {reading.name!r}: {name} is {array.dtype} {list(array.shape)}, not {dtype} {list(shape)} as its "
        "spec says."
    )


def _member(name: str) -> str:
    """Return a field's name as a member of a definition: lower case, digits and single underscores."""
    words = re.findall("[a-z0-9]+", name.lower())
    joined = "_".join(words)
    return joined if joined[:1].isalpha() else f"f_{joined}" if joined else "field"


def _unique(name: str, taken: set[str]) -> str:
    """Return the name, with a number if it is taken, and record it as taken."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found
