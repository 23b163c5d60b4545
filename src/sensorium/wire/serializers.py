"""Serializers: conversion of data of one type to bytes and back.

Each type of data has one serializer, found at run time by the stable number of the type's name. The default,
`FieldSerializer`, writes readings of any sensor. The definition of a class that derives from `Serializer` registers it.
Installed packages announce their serializers through the entry-point group `sensorium.serializers`. A broken serializer
is reported by name and never stops the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from sensorium.errors import RegistrationError, WireError, listed
from sensorium.plugins import Plugins, Registry
from sensorium.readings import Array, Reading, Sample
from sensorium.wire.data import RawData, empty, split_bundle
from sensorium.wire.header import BUNDLE, TRUTH, type_id
from sensorium.wire.stream_info import Layout, StreamInfo, plan

ENTRY_POINT_GROUP = "sensorium.serializers"
OURS = ("sensorium.stream.events",)
"""Built-in modules that define further serializers; imported by name when a stream needs one."""
_NAME = re.compile(r"[\w.\-]+/\d+")
_INSTALL = "Import the module that defines its serializer, or install its package."

_serializers: Registry[str, type[Serializer]] = Registry(
    "type of data",
    Plugins(ENTRY_POINT_GROUP, "serializer", OURS),
    "{cls} has the type_name {key!r}, which {other} already has. Use another type_name.",
)


class Serializer:
    """Serializer of one type of data. It has exactly two static methods; the definition of the class registers it.

    ::

        class SafeDistanceSerializer(Serializer):
            type_name = "my_package.SafeDistanceEvent/1"

            @staticmethod
            def serialize(sensor, body_ids):
                return np.asarray(body_ids, np.uint32)

            @staticmethod
            def deserialize(raw):
                return SafeDistanceEvent(raw)

    Raises:
        RegistrationError: at the definition of a class without a type name, or with the type name of another class.
    """

    type_name: ClassVar[str]
    """Name and version of the data type, ``"package.Type/1"``. Both must be the same on both sides: increase the
    version whenever the bytes change."""
    kind: ClassVar[str] = ""
    """Kind of the scene's sensors whose readings it converts; empty for data that streamed sensors send.

    ``serialize(reading, since)`` then returns the messages of a reading: body, first env and number of envs of each.
    Events up to the physics tick `since` were sent before.
    """
    at_step_end: ClassVar[bool] = False
    """Whether such readings are converted only at the end of a control step, since their rows cover the whole step."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        name: object = getattr(cls, "type_name", None)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise RegistrationError(
                f"{cls.__qualname__}.type_name: got {name!r}, expected a name and a version such as "
                "'my_package.Thing/1'. Both sides identify the type of the data by this name."
            )
        for method in ("serialize", "deserialize"):
            defined = next((vars(base)[method] for base in cls.__mro__ if method in vars(base)), None)
            if not isinstance(defined, staticmethod) or defined is vars(Serializer)[method]:
                raise RegistrationError(f"{cls.__qualname__}.{method} must be defined, as a @staticmethod.")
        _serializers.add(name, cls)

    @staticmethod
    def serialize(sensor: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return the body of a message, any object with contiguous bytes: a buffer, bytes, memoryview or array.

        Args:
            sensor: the sending sensor.
            args: arguments of ``stream.send(...)``.
            kwargs: never passed; declared so that type checkers accept custom parameters.
        """
        raise NotImplementedError

    @staticmethod
    def deserialize(raw: RawData, /) -> Sample:
        """Return the data for listeners, as a view of the message.

        Raises:
            WireError: the bytes are not of this type.
        """
        raise NotImplementedError


# Registry -------------------------------------------------------------------------------------------------------------


def by_name(name: str) -> type[Serializer]:
    """Return the serializer of a type of data.

    Raises:
        UnknownNameError: there is none, or only one of another version; the message names the fix.
    """
    fix = _INSTALL
    if (found := _serializers.lookup(name)) is not None:
        return found
    stem, _, version = name.rpartition("/")
    others = sorted(known.rpartition("/")[2] for known in _serializers if known.rpartition("/")[0] == stem)
    if others and stem:
        fix = (
            f"This process has version {', '.join(others)} of {stem!r}, but the other side sends version {version}. "
            "Install the same version of its package on both sides."
        )
    return _serializers.find(name, fix)


def for_kind(kind: str) -> type[Serializer]:
    """Return the serializer for readings of a kind of sensor; `FieldSerializer` unless another one serves this kind."""
    return next((cls for cls in registered().values() if cls.kind == kind), FieldSerializer)


def registered() -> dict[str, type[Serializer]]:
    """Return all serializers, name of the type -> class, including installed packages; warn of broken ones."""
    return _serializers.registered()


def read_message(memory: Any, info: StreamInfo, body: Any = None) -> Sample:
    """Return the data of a received message without a copy: a `Reading`, or data of a custom type.

    Args:
        memory: the message, contiguous; it must not be written afterwards.
        info: stream of the message.
        body: the message's body, if it is in separate memory; `memory` is then header and poses.

    Raises:
        WireError: the bytes are not a sensorium message, or not a message of that stream.
        UnknownNameError: this process has no serializer for its type of data.
    """
    raw = RawData(memory, info, body)
    header = raw.header
    if header.stream != info.id:
        raise WireError(f"stream {info.id} ({info.name!r}) received a message that belongs to stream {header.stream}.")
    if header.flags & BUNDLE:
        raise WireError(f"stream {info.name!r} received a bundle instead of a single message.")
    cls = by_name(info.type_name)
    if header.type_id != type_id(cls.type_name):
        raise WireError(
            f"a message of stream {info.name!r} has data of type {header.type_id:#018x} instead of {info.type_name!r}."
        )
    return cls.deserialize(raw)


def read_bundle(memory: Any, info: StreamInfo) -> Iterator[Sample]:
    """Return the data of each message of a bundle.

    Raises:
        WireError: the bytes are not a bundle of that stream.
        UnknownNameError: this process has no serializer for its type of data.
    """
    cls = by_name(info.type_name)
    return map(cls.deserialize, split_bundle(memory, info, type_id(info.type_name)))


# Default serializer ---------------------------------------------------------------------------------------------------


class FieldSerializer(Serializer):
    """Default serializer for every sensor: all fields of a reading in order, see `stream_info`."""

    type_name = "sensorium.fields/1"

    @staticmethod
    def serialize(reading: Reading, /, first: int = 0, count: int | None = None, truth: bool = False) -> Array:
        """Return the body for `count` envs of a reading, from row `first` on, uint8 in aligned memory.

        Args:
            reading: reading of the sensor.
            first: first row of ``reading.env_ids``.
            count: number of rows; None for all from `first` on.
            truth: whether to include the ground truth.
        """
        count = len(reading.env_ids) - first if count is None else count
        layout = plan(reading.specs, count, FieldSerializer.rows(reading, first, count), truth)
        memory = empty(layout.nbytes)
        FieldSerializer.write(reading.name, reading.arrays(), first, count, layout, memory.data)
        return memory

    @staticmethod
    def rows(reading: Reading, first: int, count: int) -> int:
        """Return the number of rows of ragged fields in `count` envs; 0 without such fields."""
        offsets = reading.offsets
        return 0 if offsets is None else int(offsets[first + count]) - int(offsets[first])

    @staticmethod
    def write(
        name: str, arrays: Mapping[str, Mapping[str, Array]], first: int, count: int, layout: Layout, out: memoryview
    ) -> None:
        """Write a body, with one copy per field.

        Args:
            name: name of the sensor, for messages.
            arrays: arrays of its reading, see `Reading.arrays`.
            first: first row of ``reading.env_ids``.
            count: number of rows.
            layout: layout of the body.
            out: writable memory of ``layout.nbytes`` bytes, aligned to 64 bytes.

        Raises:
            WireError: the reading's arrays do not match its specs.
        """
        rows = envs = slice(first, first + count)
        if (offsets := arrays["meta"].get("offsets")) is not None:
            rows = slice(int(offsets[first]), int(offsets[first + count]))
        for branch, field, shape, dtype, offset, is_ragged in layout.blocks:
            values = arrays[branch][field]
            if field == "offsets":
                values = values[first : first + count + 1] - values[first]
            else:
                values = values[rows if is_ragged else envs]
            if values.shape != shape or values.dtype != dtype:
                raise WireError(
                    f"reading of {name!r}: {field} is {values.dtype} {list(values.shape)}, not {dtype} "
                    f"{list(shape)} as its spec says."
                )
            np.copyto(np.ndarray(shape, dtype, out, offset), values)
        for begin, end in layout.gaps:
            out[begin:end] = bytes(end - begin)

    @staticmethod
    def deserialize(raw: RawData, /) -> Reading:
        """Return the fields as views of the message.

        Raises:
            WireError: the length of the body does not match the stream's fields and the header, or its ragged rows are
                not in order.
        """
        header, info, body = raw.header, raw.info, raw.array
        layout = info.layout(header.num_envs, header.rows, bool(header.flags & TRUTH))
        if layout.nbytes != header.body_bytes:
            raise WireError(
                f"a message of {info.name!r} has a body of {header.body_bytes} bytes, expected {layout.nbytes} for "
                f"{header.num_envs} envs with {header.rows} rows of {listed(spec.name for spec in info.specs)}."
            )
        arrays: dict[str, dict[str, Array]] = {"meta": {}, "measured": {}, "truth": {}}
        for branch, name, shape, dtype, offset, _ in layout.blocks:
            arrays[branch][name] = np.ndarray(shape, dtype, body, offset)
        offsets = arrays["meta"].pop("offsets", None)
        if offsets is not None and (offsets[0] != 0 or offsets[-1] != header.rows or (np.diff(offsets) < 0).any()):
            raise WireError(f"a message of {info.name!r} has row offsets that do not ascend from 0 to {header.rows}.")
        return Reading(
            info.name, info.kind, info.specs, raw.env_ids, header.tick, header.time_ns * 1e-9, arrays["measured"],
            arrays["truth"], arrays["meta"], _offsets=offsets, _pose=raw.pose, frame=header.frame, seq=header.seq,
            info=info, capture_time_wall=header.wall_ns * 1e-9,
        )  # fmt: skip
