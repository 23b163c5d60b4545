"""Replay of ROS 2 bags of other programs: MCAP files, SQLite files, and folders with `metadata.yaml`.

Each topic becomes a sensor with one environment, and each message a reading. A topic of joint states becomes a sensor
per set of joints, and the topics of transforms a sensor per frame. Ticks are ns since the first message of the bag.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sensorium.errors import ArgumentError, MissingDependencyError, ModelError
from sensorium.readings import Bodies, Reading, SceneDescription, read_only
from sensorium.record.bag_frames import TRANSFORMS, FrameTree, frame_of
from sensorium.record.bag_messages import JOINT_STATE, Unreadable, constants_of, flaw_of, left_out, stamp_of, values_of
from sensorium.record.replay import Replay
from sensorium.spec import snake_case

if TYPE_CHECKING:
    from rosbags.typesys.store import Typestore

    from sensorium.record.bag_files import Connection, Raw

TICK = 1e-9
"""Time step of a bag, s."""
SAME_CLOCK = 3600 * 10**9
"""Maximum difference of the stamp in a message and the time of its arrival in the bag by the same clock, ns."""
DATED = 10**18
"""Time from which a stamp is a date, ns since 1970. Clocks of simulations and devices start at 0."""
MAX_TRIED = 100
"""Number of unreadable messages at the start of a topic after which the topic is omitted."""
MAX_NOTED = 300
"""Length of the reasons for one topic, in characters, after which no more are added."""


@dataclass(slots=True)
class _Sensor:
    """Messages of one topic; of joint states those with the same joints, of transforms those that move one frame."""

    connections: list[Connection]
    joints: list[str]
    """Joints in the order of the readings."""
    about: dict[str, Any]
    """Its description."""
    start: int
    """Time of its first message, ns since the start of the bag."""
    first: tuple[int, int | None]
    """Time of the first readable message, ns since the start, and time in its header, ns; None without a header."""
    count: int = 1
    clock: int | None = None
    """Time of its clock at tick 0, ns; None if its messages have no time stamps."""


class BagReplay(Replay):
    """Open ROS 2 bag of another program; see `Replay`.

    `description.sensors` has one sensor per topic, named after the topic without its leading slash. Messages of a topic
    with other joints than the first are the sensors ``TOPIC.2`` and so on. Transforms are the sensors ``tf/FRAME`` with
    the poses of a frame in the root of its tree. Readings have no ground truth. Times start
    at 0. Readings with impossible contents, such as a rotation of zeros, are not valid, and `unread` names the reason.

    Args:
        path: a file or folder.

    Attributes:
        start_ns: time at tick 0 by the clock of the time stamps, ns; since 1970 unless all stamps are of a simulation.
        unread: topic -> reason why its messages, or some of them or of their fields, are not in valid readings.

    Raises:
        ModelError: it is not a bag, it has no messages of ROS 2, or it is damaged.
        MissingDependencyError: the extra `bags` is not installed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            from rosbags.typesys import Stores, get_typestore

            from sensorium.record.bag_files import Bag
        except ImportError as error:
            raise MissingDependencyError(
                f"ROS 2 bags of other programs need {error.name}, which is not installed: pip install "
                "'sensorium[bags]'."
            ) from None
        self.path = Path(path)
        self._stack = ExitStack()
        self.unread, self.log_descriptions, self._logs, self._marks = {}, {}, {}, set()
        self._stores: dict[Connection, Typestore] = {}
        """Connection -> its types."""
        self._topics: dict[str, dict[tuple[str, ...], str]] = {}
        """Topic -> sorted names of the joints in a message, empty for other messages -> sensor."""
        self._joints: dict[int, dict[bytes, tuple[str, ...]]] = {}
        """Size of encoded names of joints, bytes -> encoded names -> sorted names."""
        self._frames: dict[str, FrameTree] = {}
        """Start of the topics of transforms, which namespaces share -> their frames."""
        self._found: dict[str, _Sensor] = {}
        try:
            self._bag = self._guarded(lambda: Bag(self.path, self._stack))
            self._first_ns: int = self._bag.start
            self._length: int = self._bag.end - self._first_ns
            self._describe([get_typestore(Stores.ROS2_JAZZY)])
        except BaseException:
            self._stack.close()
            raise
        self.env_ids = read_only(np.zeros(1, np.int64))
        self.bodies, self.versions, self.is_complete = Bodies([]), {}, True

    def __repr__(self) -> str:
        return f"<BagReplay {os.fspath(self.path)!r}: {len(self._found)} sensors, {self.end:g} s>"

    def close(self) -> None:
        """Close the files. Closing twice has no effect."""
        self._stack.close()

    def _error(self, reason: str) -> ModelError:
        return ModelError(f"{os.fspath(self.path)!r} is not a readable bag: {reason}.")

    def _guarded(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except ModelError:
            raise
        except Exception as error:  # SQLite, YAML and codecs raise many kinds for damaged files
            reason = str(error).rstrip(".") or "it is damaged"
            raise self._error(f"{reason} ({type(error).__name__})") from None

    def _note(self, connection: Connection, reason: str) -> None:
        """Add a reason to `unread`."""
        known = self.unread.setdefault(connection.topic, f"{connection.type}: {reason}")
        if reason not in known and len(known) < MAX_NOTED:
            self.unread[connection.topic] = f"{known}; {reason}"

    # Description ------------------------------------------------------------------------------------------------------

    def _types(self, own: Connection, stores: list[Typestore]) -> Typestore:
        """Return types with those of a connection: as the bag defines them, otherwise of ROS 2 Jazzy.

        Args:
            own: the connection.
            stores: types of the other connections, first those of ROS 2.

        Raises:
            Unreadable: the type is unknown, or messages are not encoded as those of ROS 2.
        """
        from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore

        if own.encoding != "cdr":
            raise Unreadable(f"the encoding of its messages is {own.encoding!r}, expected 'cdr'")
        reason = "the bag does not define it"
        try:
            defined: Any = {}
            if own.language == "ros2msg" and own.definition.strip():
                defined = get_types_from_msg(own.definition, own.type)
            elif own.language in ("ros2idl", "omgidl"):
                defined = get_types_from_idl(own.definition)
            if own.type in defined:
                for store in stores:
                    if all(store.fielddefs.get(name, parts)[1] == parts[1] for name, parts in defined.items()):
                        break
                else:  # another version of a known type
                    store = get_typestore(Stores.EMPTY)
                    stores.append(store)
                store.register({name: parts for name, parts in defined.items() if name not in store.types})
                return store
        except Exception as error:  # rosbags raises many kinds for definitions that it cannot parse
            reason = f"its definition cannot be parsed ({type(error).__name__})"
        if own.type not in stores[0].types:
            raise Unreadable(f"the type {own.type} is unknown, and {reason}")
        return stores[0]

    def _describe(self, stores: list[Typestore]) -> None:
        """Find the sensors, their clocks and their rates.

        Args:
            stores: types of ROS 2.
        """
        counts = self._bag.counts
        topics: dict[str, list[Connection]] = {}
        for each in sorted(counts, key=lambda each: not counts[each]):
            try:
                self._stores[each] = self._types(each, stores)
            except Unreadable as error:
                self._note(each, str(error))
                continue
            same = topics.setdefault(each.topic.strip("/"), [])
            if same and same[0].type != each.type:
                self._note(each, "the topic has several types, and this one is omitted")
            else:
                same.append(each)
        self._topics = {name: {} for name in topics}
        for name, connections in topics.items():
            if connections[0].type == TRANSFORMS:
                self._read_transforms(name, connections)
            else:
                self._find_sensors(name, connections)
        for start, frames in self._frames.items():
            self._find_frames(start, frames)
        if self.unread and not self._found:
            reasons = "; ".join(map(": ".join, self.unread.items()))
            raise self._error(f"no topic has readable messages: {reasons}. Record messages of ROS 2 in CDR")
        newest = self._newest(self._found, self._length)
        self._align(newest)
        for name, sensor in self._found.items():
            connection, tick, data = newest[name]
            span, periods = tick - sensor.start, max(sensor.count - 1, 0)
            sensor.about["rate_hz"] = float(f"{periods / (span * TICK):.6g}") if span > 0 else 0.0
            with suppress(Unreadable):  # the last message, since the first may lack fields that are not yet known
                values = values_of(self._decoded(connection, data))
                sensor.about["fields"] = [value.spec.to_dict() for value in values]
        self.description = SceneDescription(
            "rosbag2", TICK, 1, 0, {name: each.about for name, each in self._found.items()}
        )

    def _find_sensors(self, topic: str, connections: list[Connection]) -> None:
        """Read the first message of a topic, and all joint states, as each may have other joints."""
        sensors, start, reason = self._topics[topic], None, ""
        taken = self._topics.keys() - {topic}
        for tried, (connection, tick, data) in enumerate(self._raw(connections)):
            start = tick if start is None else start
            try:
                key = self._key(connection, data)
                if key in sensors:
                    self._found[sensors[key]].count += 1
                    continue
                message = self._decoded(connection, data)
                values = values_of(message)
            except Unreadable as error:
                reason = str(error)
                if tried >= MAX_TRIED and connection.type != JOINT_STATE:
                    break
                continue
            if left := left_out(message, values):
                self._note(connection, f"readings do not hold {', '.join(left)}")
            name, number = topic, 1
            while name in taken or name in self._found:
                number += 1
                name = f"{topic}.{number}"
            sensors[key] = name
            frame, constants = getattr(getattr(message, "header", None), "frame_id", ""), constants_of(message)
            about = {
                "kind": snake_case(connection.type.rpartition("/")[2]),
                "fields": [value.spec.to_dict() for value in values],
                **({"constants": constants} if constants else {}),
                "cfg": {"type": connection.type, "frame_id": frame},
            }
            joints, first = list(message.name) if key else [], (tick, stamp_of(message))
            sensor = self._found[name] = _Sensor(connections, joints, about, tick, first)
            if connection.type != JOINT_STATE:
                sensor.start, sensor.count = start, sum(self._bag.counts[each] for each in connections)
                break
        if reason and not sensors:
            self._note(connections[0], reason)

    def _read_transforms(self, topic: str, connections: list[Connection]) -> None:
        """Read all transforms of a topic."""
        start, _, last = topic.rpartition("/")
        frames, is_empty = self._frames.setdefault(start, FrameTree()), True
        for connection, tick, data in self._whole(connections):
            try:
                transforms = self._decoded(connection, data).transforms
            except Unreadable as error:
                self._note(connection, f"some messages: {error}")
                continue
            for each in transforms:
                frames.add(each, connection, tick, is_static=last == "tf_static")
                is_empty = False
        if is_empty:
            self._note(connections[0], "it has no transforms")

    def _find_frames(self, start: str, frames: FrameTree) -> None:
        """Describe the sensor of each frame."""
        frames.connect()
        for frame, flaw in frames.flaws.items():
            self._note(frames.links[frame].connection, f"{frame}: {flaw}")
        for driver, followers in frames.followers.items():
            link = frames.links[driver]
            tick, transform = link.first
            topic = link.connection.topic.strip("/")
            for frame in followers:
                name = "/".join(filter(None, (start, "tf", frame)))
                while name in self._topics or name in self._found:
                    name += ".2"
                about = {
                    "kind": snake_case(TRANSFORMS.rpartition("/")[2]),
                    "fields": [value.spec.to_dict() for value in values_of(transform)],
                    "cfg": {"type": TRANSFORMS, "frame_id": frames.root(frame)},
                }
                self._topics[topic][frame,] = name
                connections = [each for each in self._stores if each.topic.strip("/") == topic]
                first = tick, stamp_of(transform)
                self._found[name] = _Sensor(connections, [], about, tick, first, len(link.stamps))

    def _align(self, newest: Mapping[str, Raw]) -> None:
        """Set the clocks: that of the bag, one for dates of another time, and one for times without date.

        The last two are aligned so that no topic starts with a message from the future.
        """
        clocks: dict[bool, int] = {}
        others, is_wall = [], False
        for name, sensor in self._found.items():
            tick, stamp = sensor.first
            if stamp == 0:  # not set in the first message
                connection, tick, data = newest[name]
                with suppress(Unreadable):
                    stamp = stamp_of(self._decoded(connection, data))
            if stamp and abs(stamp - self._first_ns - tick) < SAME_CLOCK:
                sensor.clock, is_wall = self._first_ns, True
            elif stamp:
                clocks[stamp > DATED] = max(clocks.get(stamp > DATED, 0), stamp - tick)
                others.append((sensor, stamp > DATED))
        for sensor, is_dated in others:
            sensor.clock = clocks[is_dated]
        self.start_ns = self._first_ns if is_wall or not clocks else max(clocks.values())

    def _decoded(self, connection: Connection, data: Any) -> Any:
        """Return a message; of a frame and a transform, the transform of this frame in its root.

        Raises:
            Unreadable: it does not fit its definition, or there is no pose at this time.
        """
        if isinstance(data, tuple):
            return self._frames[connection.topic.strip("/").rpartition("/")[0]].placed(*data)
        try:
            return self._stores[connection].deserialize_cdr(data, connection.type)
        except Exception as error:  # rosbags and struct raise many kinds
            raise Unreadable(f"it cannot be decoded ({type(error).__name__}: {error})") from None

    def _key(self, connection: Connection, data: Any) -> tuple[str, ...]:
        """Return the sorted names of the joints in a message, or the name of a frame; empty for other types.

        Messages with unknown joints are decoded.

        Raises:
            Unreadable: it does not fit its definition.
        """
        if connection.type != JOINT_STATE:
            return data[:1] if isinstance(data, tuple) else ()
        order: Literal["little", "big"] = "little" if data[1:2] == b"\1" else "big"
        start = 16 + int.from_bytes(data[12:16], order)  # after the time stamp and the name of the frame
        start += -start % 4
        for size, known in self._joints.items():
            if (key := known.get(bytes(data[start : start + size]))) is not None:
                return key
        names = self._decoded(connection, data).name
        encoded = len(names).to_bytes(4, order)
        for text in (f"{name}\0".encode() for name in names):
            encoded += len(text).to_bytes(4, order) + text + bytes(-len(text) % 4)
        return self._joints.setdefault(len(encoded), {}).setdefault(encoded, tuple(sorted(names)))

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
        return {name: each.count for name, each in self._found.items()}

    def attachment(self, name: str) -> bytes | None:
        """Return None: bags have no attached files of a recording."""
        return None

    def at(self, when: float, names: str | Iterable[str] | None = None) -> dict[str, Reading]:
        """Return the newest reading of each sensor at a time; a sensor without an earlier reading is missing.

        Args:
            when: time, s.
            names: sensors; None for all.
        """
        newest = self._newest(self._wanted(names), self._tick(when))
        found: dict[str, Reading] = {}
        for name in self._found:
            raw = newest.get(name)
            while raw and (reading := self._reading(*raw, {})) is None:  # its contents are unreadable
                raw = self._newest([name], raw[1] - 1).get(name)
            if raw and reading is not None:
                found[name] = reading
        return found

    def _newest(self, names: Collection[str], end: int) -> dict[str, Raw]:
        """Return the last message of each sensor up to a tick. The bag is read backwards, in growing parts."""
        found: dict[str, Raw] = {}
        span = 10**9
        while end >= 0 and (left := [name for name in names if name not in found]):
            newest = {self._name_of(raw): raw for raw in self._raw(self._connections_of(left), end - span + 1, end)}
            found |= {name: newest[name] for name in left if name in newest}
            end, span = end - span, 4 * span
        return found

    # Reading ----------------------------------------------------------------------------------------------------------

    def _tick(self, when: float) -> int:
        if when != when:
            raise ArgumentError("time: got nan, expected a number, s.")
        return round(min(max(when, -1.0), self.end + 1.0) * 1e9)

    def _connections_of(self, names: Iterable[str]) -> list[Connection]:
        return list({each: None for name in names for each in self._found[name].connections})

    def _name_of(self, raw: Raw) -> str:
        """Return the sensor of a message; empty for an unreadable one."""
        connection, _, data = raw
        sensors = self._topics[connection.topic.strip("/")]
        with suppress(Unreadable):
            return sensors.get(self._key(connection, data), "")
        return ""

    def _raw(self, connections: list[Connection], first: int = 0, last: int | None = None) -> Iterator[Raw]:
        """Yield the messages of a span of ticks; of transforms, those of each frame that they move, and its name."""
        for connection, tick, data in self._whole(connections, first, last):
            if connection.type != TRANSFORMS:
                yield connection, tick, data
                continue
            frames = self._frames[connection.topic.strip("/").rpartition("/")[0]]
            with suppress(Unreadable):  # noted when the bag was opened
                for each in self._decoded(connection, data).transforms:
                    for frame in frames.followers.get(frame_of(each), ()):
                        yield connection, tick, (frame, each)

    def _whole(self, connections: list[Connection], first: int = 0, last: int | None = None) -> Iterator[Raw]:
        """Yield the messages of a span of ticks as they are in the bag."""
        start = self._first_ns
        messages = self._bag.messages(connections, start + first, start + (self._length if last is None else last))
        while (found := self._guarded(lambda: next(messages, None))) is not None:
            connection, time, data = found
            yield connection, time - start, data

    def _numbered(self, names: str | Iterable[str] | None, start: float, end: float) -> Iterator[tuple[int, Reading]]:
        """Yield (frame, reading); messages of the same time are one frame."""
        counts: dict[str, int] = {}
        frame, before, wanted = 0, -1, self._wanted(names)
        for raw in self._raw(self._connections_of(wanted), self._tick(start), self._tick(end)):
            if isinstance(raw[2], tuple) and self._name_of(raw) not in wanted:  # most frames move at each transform
                continue
            reading = self._reading(*raw, counts)
            if reading is not None and reading.name in wanted:
                frame, before = frame + (reading.tick != before), reading.tick
                yield frame, reading

    def _reading(self, connection: Connection, tick: int, data: Any, counts: dict[str, int]) -> Reading | None:
        """Return the reading of a message; None if its contents are unreadable, which is noted.

        Args:
            connection: its connection.
            tick: its tick.
            data: its bytes.
            counts: sensor -> number of its messages so far.
        """
        try:
            message, key = self._decoded(connection, data), self._key(connection, data)
            values = values_of(message)
        except Unreadable as error:
            self._note(connection, f"some messages: {error}")
            return None
        name = self._topics[connection.topic.strip("/")][key]
        sensor = self._found[name]
        counts[name] = number = counts.get(name, 0) + 1
        if sensor.joints and message.name != sensor.joints:
            order = [message.name.index(joint) for joint in sensor.joints]
            values = [replace(value, array=read_only(value.array[order])) for value in values]
        if flaw := flaw_of(message, values):
            self._note(connection, f"some messages are not valid: {flaw}")
        stamp, clock = stamp_of(message), sensor.clock
        is_far = stamp is not None and clock is not None and abs(stamp - clock - tick) >= SAME_CLOCK
        is_unset = is_far and (stamp == 0 or clock == self._first_ns)
        capture = tick if stamp is None or clock is None or is_unset else stamp - clock
        measured, offsets = {}, None
        for value in values:
            measured[value.spec.name] = value.array if value.spec.is_ragged else read_only(value.array[None])
            if value.spec.is_ragged:
                offsets = read_only(np.array([0, len(value.array)], np.int64))
        meta = {
            "capture_tick": read_only(np.array([capture], np.int64)),
            "stamp": read_only(np.array([capture / 1e9])),
            "frame": read_only(np.array([number - 1], np.int64)),
            "valid": read_only(np.array([not flaw])),
            "is_new": read_only(np.ones(1, bool)),
        }
        return Reading(
            name, sensor.about["kind"], tuple(value.spec for value in values), self.env_ids, tick, tick / 1e9, measured,
            {}, meta, _offsets=offsets, _dt=TICK,
        )  # fmt: skip
