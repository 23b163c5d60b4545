"""Replay of ROS 2 bags of other programs: MCAP files, SQLite files, and folders with `metadata.yaml`.

Each topic becomes a sensor with one environment, and each message a reading. Ticks are ns since the start of the bag.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.errors import MissingDependencyError, ModelError, UnknownNameError
from sensorium.readings import Array, Bodies, Reading, SceneDescription, read_only
from sensorium.record.bag_messages import Unreadable, Value, constants_of, stamp_of, unread_fields, values_of
from sensorium.record.replay import Mark, Replay
from sensorium.spec import snake_case

if TYPE_CHECKING:
    from rosbags.interfaces import Connection

TICK = 1e-9
"""Time step of a bag, s."""
SAME_CLOCK = 3600 * 10**9
"""Maximum difference of the stamp in a message and the time of its arrival in the bag by the same clock, ns."""


class BagReplay(Replay):
    """Open ROS 2 bag of another program; see `Replay`.

    `description.sensors` has one sensor per topic, named after the topic without its leading slash. Readings have no
    ground truth. Times start at 0.

    Args:
        path: a file or folder.

    Attributes:
        start_ns: time of the first message, ns since 1970.
        unread: topic -> reason why its messages, or some of their fields, are not in readings.

    Raises:
        ModelError: it is not a bag, it has no messages of ROS 2, or it is damaged.
        MissingDependencyError: the extra `bags` is not installed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            from rosbags.rosbag2 import Reader
        except ImportError as error:
            raise MissingDependencyError(
                f"ROS 2 bags of other programs need {error.name}, which is not installed: pip install "
                "'sensorium[bags]'."
            ) from None
        self.path = Path(path)
        self._stack = ExitStack()
        self.unread, self.log_descriptions = {}, {}
        self._connections: dict[str, Connection] = {}
        self._clocks: dict[str, int | None] = {}
        """Sensor -> time of its clock at tick 0, ns; None for messages without time stamps."""
        try:
            self._reader = self._guarded(lambda: self._stack.enter_context(Reader(self.path)))
            self._store = self._guarded(self._types)
            self._describe()
        except BaseException:
            self._stack.close()
            raise
        self.env_ids = read_only(np.zeros(1, np.int64))
        self.bodies, self.versions, self.is_complete = Bodies([]), {}, True

    def __repr__(self) -> str:
        return f"<BagReplay {os.fspath(self.path)!r}: {len(self._connections)} topics, {self.end:g} s>"

    def close(self) -> None:
        """Close the files. Closing twice has no effect."""
        self._stack.close()

    def _error(self, reason: str) -> ModelError:
        return ModelError(f"{os.fspath(self.path)!r} is not a readable bag: {reason}.")

    def _guarded(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (ModelError, Unreadable):
            raise
        except Exception as error:  # rosbags, SQLite, struct and codecs raise many kinds for damaged files
            reason = str(error).rstrip(".") or "it is damaged"
            raise self._error(f"{reason} ({type(error).__name__})") from None

    # Description ------------------------------------------------------------------------------------------------------

    def _types(self) -> Any:
        """Return the types that the bag defines, and the standard types of ROS 2 Jazzy."""
        from rosbags.interfaces import MessageDefinitionFormat
        from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore

        parsers = {MessageDefinitionFormat.MSG: get_types_from_msg}
        store, own = get_typestore(Stores.ROS2_JAZZY), {}
        for each in self._reader.connections:
            if each.msgdef.format in parsers:
                own.update(parsers[each.msgdef.format](each.msgdef.data, each.msgtype))
            elif each.msgdef.format is MessageDefinitionFormat.IDL:
                own.update(get_types_from_idl(each.msgdef.data))
        store.register({name: parts for name, parts in own.items() if name not in store.types})
        return store

    def _describe(self) -> None:
        """Read the first message of each topic."""
        sensors: dict[str, dict[str, Any]] = {}
        reader = self._reader
        self.start_ns = int(reader.start_time) if reader.message_count else 0
        self._length = int(reader.end_time) - 1 - self.start_ns if reader.message_count else 0
        for each in reader.connections:
            name = each.topic.strip("/")
            if each.msgtype not in self._store.types:
                self.unread[each.topic] = f"the type {each.msgtype} is unknown, and the bag does not define it"
                continue
            if name in self._connections:
                self.unread[each.topic] = f"it has several types; {each.msgtype} is omitted"
                continue
            first = next(self._raw([each]), None)
            if first is None:
                continue
            try:
                message, values = self._decoded(each, first[2])
            except Unreadable as error:
                self.unread[each.topic] = f"{each.msgtype}: {error}"
                continue
            if left := unread_fields(message, values):
                self.unread[each.topic] = f"{each.msgtype}: readings do not hold {', '.join(left)}"
            stamp = stamp_of(message)
            is_same_clock = stamp is None or abs(stamp - self.start_ns - first[1]) < SAME_CLOCK
            self._clocks[name] = self.start_ns if is_same_clock else (stamp - first[1] if stamp else None)
            rate = float(f"{max(each.msgcount - 1, 1) / max(self._length / 1e9, TICK):.6g}")
            frame = getattr(getattr(message, "header", None), "frame_id", "")
            constants = constants_of(message)
            sensors[name] = {
                "kind": snake_case(each.msgtype.rpartition("/")[2]),
                "rate_hz": rate,
                "fields": [value.spec.to_dict() for value in values],
                **({"constants": constants} if constants else {}),
                "cfg": {"type": each.msgtype, "frame_id": frame},
            }
            self._connections[name] = each
        if self.unread and not sensors:
            raise self._error(f"no topic has readable messages: {'; '.join(map(': '.join, self.unread.items()))}")
        self.description = SceneDescription("rosbag2", TICK, 1, 0, sensors)

    def _decoded(self, connection: Connection, data: Any) -> tuple[Any, list[Value]]:
        """Return a message and its fields.

        Raises:
            Unreadable: it has none.
        """
        message = self._guarded(lambda: self._store.deserialize_cdr(data, connection.msgtype))
        return message, self._guarded(lambda: values_of(message))

    # Contents ---------------------------------------------------------------------------------------------------------

    @property
    def start(self) -> float:
        """Time of the first message: 0."""
        return 0.0

    @property
    def end(self) -> float:
        """Time of the last message, s."""
        return self._length / 1e9

    @property
    def counts(self) -> dict[str, int]:
        """Sensor -> number of its messages."""
        return {name: each.msgcount for name, each in self._connections.items()}

    @property
    def logs(self) -> tuple[str, ...]:
        """Names of other recorded values: none."""
        return ()

    def log(self, name: str, start: float = -inf, end: float = inf) -> Iterator[Reading]:
        """Raise `UnknownNameError`: bags have no other values."""
        raise UnknownNameError("recorded values", name, ())

    @property
    def marks(self) -> list[Mark]:
        """Marks: none."""
        return []

    def body_poses(self, start: float = -inf) -> Iterator[tuple[float, Array]]:
        """Yield nothing: bags have no poses of bodies."""
        return iter(())

    def attachment(self, name: str) -> bytes | None:
        """Return None: bags have no attached files of a recording."""
        return None

    def at(self, when: float, names: str | Iterable[str] | None = None) -> dict[str, Reading]:
        """Return the newest reading of each sensor at a time; a sensor without an earlier reading is missing.

        Args:
            when: time, s.
            names: sensors; None for all.
        """
        wanted = self._wanted(names)
        newest = {each.topic.strip("/"): (each, time, data) for each, time, data in self._raw(wanted, -inf, when)}
        found = {name: self._reading(*newest[name], 0) for name in self._connections if name in newest}
        return {name: reading for name, reading in found.items() if reading is not None}

    # Reading ----------------------------------------------------------------------------------------------------------

    def _wanted(self, names: str | Iterable[str] | None) -> list[Connection]:
        wanted = self._connections if names is None else [names] if isinstance(names, str) else names
        for name in wanted:
            if name not in self._connections:
                raise UnknownNameError("recorded sensor", name, self._connections)
        return [self._connections[name] for name in wanted]

    def _raw(
        self, connections: list[Connection], start: float = -inf, end: float = inf
    ) -> Iterator[tuple[Connection, int, Any]]:
        """Yield connection, time (ns since the start of the bag) and bytes of each message of a time span."""
        if not connections:
            return
        first = self.start_ns + round(start * 1e9) if start > 0.0 else None
        last = self.start_ns + round(end * 1e9) + 1 if end < inf else None
        messages = self._guarded(lambda: self._reader.messages(connections, first, last))
        while (found := self._guarded(lambda: next(messages, None))) is not None:
            connection, time, data = found
            yield connection, int(time) - self.start_ns, data

    def _numbered(self, names: str | Iterable[str] | None, start: float, end: float) -> Iterator[tuple[int, Reading]]:
        """Yield (frame, reading); messages of the same time are one frame."""
        counts: dict[str, int] = {}
        frame, last = 0, -1
        for connection, tick, data in self._raw(self._wanted(names), start, end):
            number = counts[connection.topic] = counts.get(connection.topic, 0) + 1
            reading = self._reading(connection, tick, data, number - 1)
            if reading is not None:
                frame, last = frame + (tick != last), tick
                yield frame, reading

    def _reading(self, connection: Connection, tick: int, data: Any, number: int) -> Reading | None:
        """Return the reading of a message; None if its contents are unreadable, which is noted."""
        try:
            message, values = self._decoded(connection, data)
        except Unreadable as error:
            self.unread[connection.topic] = f"{connection.msgtype}: some messages: {error}"
            return None
        name, stamp = connection.topic.strip("/"), stamp_of(message)
        clock = self._clocks[name]
        capture = tick if stamp is None or clock is None else stamp - clock
        measured, offsets = {}, None
        for value in values:
            measured[value.spec.name] = value.array if value.spec.is_ragged else read_only(value.array[None])
            if value.spec.is_ragged:
                offsets = read_only(np.array([0, len(value.array)], np.int64))
        yes = read_only(np.ones(1, bool))
        meta = {
            "capture_tick": read_only(np.array([capture], np.int64)),
            "stamp": read_only(np.array([capture / 1e9])),
            "frame": read_only(np.array([number], np.int64)),
            "valid": yes,
            "is_new": yes,
        }
        return Reading(
            name, self.description.sensors[name]["kind"], tuple(value.spec for value in values), self.env_ids, tick,
            tick / 1e9, measured, {}, meta, _offsets=offsets, _dt=TICK,
        )  # fmt: skip
