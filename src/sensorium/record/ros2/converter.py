"""Readings to ROS 2 messages: topics, frames and time stamps of all sensors of a scene, for chosen environments."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sensorium.errors import ArgumentError, ConfigError, UnknownNameError
from sensorium.pose import Pose, composed
from sensorium.readings import Array, Reading, SceneDescription
from sensorium.record.arrivals import Arrivals
from sensorium.record.ros2.cdr import MessageBlock, Template, serialize
from sensorium.record.ros2.mapping import Channel, ImageFormat, MappedSensor, Samples, channels_of, exact_ns
from sensorium.record.ros2.message_types import message_type, schema_text, type_hash
from sensorium.record.ros2.names import OPTICAL, WORLD, env_prefixes, numbered, ros_name
from sensorium.record.stacks import Stack

NS = 1_000_000_000
_FOREVER = "{sec: 9223372036, nsec: 854775807}"
_QOS = """\
- history: keep_last
  depth: {depth}
  reliability: reliable
  durability: {durability}
  deadline: {forever}
  lifespan: {forever}
  liveliness: automatic
  liveliness_lease_duration: {forever}
  avoid_ros_namespace_conventions: false
"""
IDENTITY = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
_OPTICAL_XYZW = (-0.5, 0.5, -0.5, 0.5)
"""Rotation from a camera's frame (x forward, z up) to its optical frame (z forward, y down)."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of the recording.

    Attributes:
        name: its name, e.g. ``"/env_0003/imu/data_raw"``.
        type: its message type, e.g. ``"sensor_msgs/msg/Imu"``.
        is_latched: whether late subscribers get its last message (durability ``transient_local``).
        sensor: name of its sensor; empty for ``/clock``, ``/tf`` and ``/tf_static``.
    """

    name: str
    type: str
    is_latched: bool = False
    sensor: str = ""

    @property
    def schema(self) -> str:
        """Text of its schema, in the encoding ``ros2msg``."""
        return schema_text(self.type)

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of its channel in an MCAP file, as rosbag2 writes them."""
        durability, depth = ("transient_local", 1) if self.is_latched else ("volatile", 10)
        qos = _QOS.format(durability=durability, depth=depth, forever=_FOREVER)
        return {"offered_qos_profiles": qos, "topic_type_hash": type_hash(self.type)}


@dataclass(frozen=True, slots=True)
class StaticFrame:
    """Constant pose of a frame in its parent frame, in every environment.

    Attributes:
        parent: name of the parent frame, without the env's prefix.
        name: name of the frame, without the env's prefix.
        pose: position, m, and quaternion wxyz.
    """

    parent: str
    name: str
    pose: tuple[float, float, float, float, float, float, float]


def nanoseconds(seconds: Any) -> Array:
    """Return times in s as int64 ns."""
    return np.asarray(np.rint(np.multiply(seconds, float(NS))), np.int64)


def _stamp_columns(path: str, stamps: Array) -> dict[str, Array]:
    seconds, rest = np.divmod(stamps, NS)
    return {f"{path}.sec": seconds, f"{path}.nanosec": rest}


class Ros2Messages:
    """Conversion of readings to ROS 2 messages.

    A sample becomes one message per channel of its sensor, env and mount when it arrives; its header has the capture
    time. Samples that are not valid become none. Readings must be given in order of time, each once.

    Args:
        description: description of the scene.
        envs: environments to convert; None for all.
        sensors: names of the sensors to convert; None for all.
        messages: sensor -> names of the mappers to use for it; by default all that need no request.
        truth: whether to convert the ground truth too, to topics under ``<sensor>/truth``.
        poses: whether readings carry poses; they become transforms ``world`` -> body on ``/tf``, with true times.
        frames: further constant frames, for ``/tf_static``.
        start_ns: time of the messages at tick 0, ns.
        images: format of images of 8 bits, unless `messages` names mappers for their sensor.

    Raises:
        UnknownNameError: an unknown sensor or mapper.
        ArgumentError: an unknown environment.
        ConfigError: a mapper has no message for its sensor, or two sensors have the same topics.

    Attributes:
        topics: all topics; their indices are those in message blocks.
        envs: the converted environments.
        prefixes: start of the names of each of them, see `names.env_prefixes`.
        unmapped: sensor -> names of its fields that no message holds.
    """

    def __init__(
        self,
        description: SceneDescription,
        envs: Iterable[int] | None = None,
        *,
        sensors: Iterable[str] | None = None,
        messages: Mapping[str, Sequence[str]] | None = None,
        truth: bool = False,
        poses: bool = False,
        frames: Sequence[StaticFrame] = (),
        start_ns: int = 0,
        images: ImageFormat = "raw",
    ) -> None:
        self.envs = tuple(range(description.num_envs) if envs is None else envs)
        wrong = [env for env in self.envs if not 0 <= env < description.num_envs]
        if wrong or len(set(self.envs)) != len(self.envs):
            raise ArgumentError(
                f"envs: got {self.envs}, expected different numbers from 0 to {description.num_envs - 1}"
            )
        names = list(description.sensors if sensors is None else sensors)
        for name in (*names, *(messages or {})):
            if name not in description.sensors:
                raise UnknownNameError("sensor", name, description.sensors)
        self.prefixes = env_prefixes([description.first_env + env for env in self.envs], description.num_envs)
        self._dt, self._truth, self._poses, self._start_ns = description.dt, truth, poses, start_ns
        self._keeps_all = description.engine == "rosbag2"
        """Whether each reading is a message, since messages of other programs may have equal time stamps."""
        self._frames = list(frames)
        self._taken = {WORLD}
        """Names of frames."""
        self.topics: list[Topic] = [Topic("/clock", "rosgraph_msgs/msg/Clock")]
        self._clock = Template("rosgraph_msgs/msg/Clock", [{}])
        self._tf = self._tf_static = 0
        if poses:
            self._tf = self._add(Topic("/tf", "tf2_msgs/msg/TFMessage"))
        self.unmapped: dict[str, tuple[str, ...]] = {}
        self._sensors: dict[str, _SensorMessages] = {}
        for name in names:
            sensor = MappedSensor.from_description(name, description.sensors[name])
            channels = channels_of(sensor, (messages or {}).get(name), images)
            taken = {each for channel in channels for each in channel.fields}
            left = tuple(spec.name for spec in sensor.specs if spec.name not in taken)
            if left:
                self.unmapped[name] = left
            self._sensors[name] = _SensorMessages(self, sensor, channels)
        self._bodies = {"world": WORLD}
        self._given, self._inner = {each.name for each in frames}, tuple(self._frames)
        self._place(description)

    def placed(self, description: SceneDescription) -> Ros2Messages:
        """Return the same conversion for other places of the sensors on their bodies.

        The first constant frame adds the topic ``/tf_static``, after those that exist.

        Args:
            description: description of the scene, in which only the places differ.
        """
        new = copy.copy(self)
        new.topics, new._frames, new._sensors = list(self.topics), list(self._inner), {}
        for name, sensor in self._sensors.items():
            new._sensors[name] = sensor.of(new)
        new._place(description)
        return new

    def _place(self, description: SceneDescription) -> None:
        """Define the tree of frames: from the world to bodies, and from bodies to the sensors that are fixed on them.

        The pose of a body follows from the sensor on it with the highest rate. Sensors without a constant place are
        children of the world.

        Args:
            description: description of the scene.
        """
        bodies = self._bodies
        drivers: dict[str, tuple[float, _SensorMessages, int, Array]] = {}
        for name, sensor in self._sensors.items():
            about = description.sensors[name]
            places = about.get("frames", ())
            for mount, frame in enumerate(sensor.frames):
                if len(places) != len(sensor.frames):
                    sensor.followed.append((mount, frame, IDENTITY))
                elif frame not in self._given:
                    body, pose = places[mount]["body"], Pose.from_array(places[mount]["pose"])
                    if body not in bodies:
                        bodies[body] = self._new_frame(ros_name(body))
                    self._frames.append(StaticFrame(bodies[body], frame, tuple(pose.to_array())))
                    rate = float(about.get("rate_hz", 0.0))
                    if bodies[body] != WORLD and rate > drivers.get(body, (-1.0,))[0]:
                        drivers[body] = (rate, sensor, mount, pose.inverse().to_array())
        for body, (_, sensor, mount, inner) in drivers.items():
            sensor.followed.append((mount, bodies[body], inner))
        if self._frames and not self._tf_static:
            self._tf_static = self._add(Topic("/tf_static", "tf2_msgs/msg/TFMessage", is_latched=True))

    def _new_frame(self, name: str) -> str:
        """Return a name of a frame; with a number if another frame has it."""
        frame = next(each for each in numbered(name) if self._taken.isdisjoint((each, each + OPTICAL)))
        self._taken |= {frame, frame + OPTICAL}
        return frame

    @property
    def posed(self) -> tuple[str, ...]:
        """The sensors whose readings become transforms on ``/tf``."""
        return tuple(name for name, sensor in self._sensors.items() if sensor.followed) if self._poses else ()

    def topics_of(self, sensor: str, mount: int) -> list[Topic]:
        """Return the topics of the measured values of one mount, in the first converted environment."""
        channels = self._sensors[sensor]._channels
        return [
            self.topics[first] for branch, own, *_, first in channels if branch == "measured" and own in (None, mount)
        ]

    def _add(self, topic: Topic) -> int:
        if any(each.name == topic.name for each in self.topics):
            raise ConfigError.single("Ros2Messages", "sensors", topic.name, "different topics", "Rename a sensor.")
        self.topics.append(topic)
        return len(self.topics) - 1

    def encode(self, readings: Sequence[Reading] | Stack) -> Iterator[MessageBlock]:
        """Yield the messages of readings of one sensor, one block per channel and mount.

        Args:
            readings: readings of the same sensor and envs, in order of time.

        Raises:
            ArgumentError: the readings differ in sensor or envs, or lack a converted env.
        """
        if len(readings):
            name = readings.name if isinstance(readings, Stack) else readings[0].name
            sensor = self._sensors.get(name)
            if sensor is not None:
                yield from sensor.encode(readings if isinstance(readings, Stack) else Stack.of(readings))

    def clock(self, times: Any) -> MessageBlock:
        """Return one message on ``/clock`` for each time.

        Args:
            times: simulation times `[message]`, s.
        """
        stamps = self._start_ns + nanoseconds(np.atleast_1d(times))
        zeros = np.zeros(len(stamps), np.int64)
        return MessageBlock.of_rows(zeros, stamps, self._clock.fill(zeros, _stamp_columns("clock", stamps)))

    def static(self, time: float = 0.0) -> MessageBlock:
        """Return the message on ``/tf_static`` with all constant frames; an empty block without such frames.

        Args:
            time: simulation time of the message, s.
        """
        stamp = self._start_ns + int(nanoseconds(time))
        transforms = [
            _transform(prefix + frame.parent, prefix + frame.name, stamp, frame.pose)
            for prefix in self.prefixes
            for frame in self._frames
        ]
        count = 1 if transforms else 0
        data = serialize("tf2_msgs/msg/TFMessage", {"transforms": transforms}) if transforms else b""
        rows = np.frombuffer(data, np.uint8).reshape(count, len(data))
        return MessageBlock.of_rows(np.full(count, self._tf_static), np.full(count, stamp), rows)


def _transform(parent: str, child: str, stamp: int, pose: Sequence[float]) -> dict[str, Any]:
    x, y, z, qw, qx, qy, qz = pose
    return {
        "header": {"stamp": {"sec": stamp // NS, "nanosec": stamp % NS}, "frame_id": parent},
        "child_frame_id": child,
        "transform": {"translation": {"x": x, "y": y, "z": z}, "rotation": {"x": qx, "y": qy, "z": qz, "w": qw}},
    }


def _values(channel: Channel, prefix: str, frame: str) -> dict[str, Any]:
    """Return the constant values of a channel's messages, with the names of their frames."""
    in_header = prefix + (WORLD if channel.frame == WORLD else frame + channel.frame)
    names = {"header": {"frame_id": in_header}, "child_frame_id": prefix + frame}
    own = {field.name for field in message_type(channel.message).fields}
    return {**{name: value for name, value in names.items() if name in own}, **channel.values}


class _New(NamedTuple):
    """New samples of one branch of a stack, `[sample]`."""

    at: Array
    """Number of the reading."""
    envs: Array
    """Number of the env among the converted ones."""
    rows: Array
    """Number of the env in the reading."""
    stamps: Array
    """Time of the capture by the sensor's own clock, ns."""
    true_stamps: Array
    """Time of the capture, ns."""
    frames: Array
    """Captures since the reset."""
    log_times: Array
    """Time of the reading, ns."""
    is_all: bool
    """Whether these are all values of the stack, in order."""


class _SensorMessages:
    """Messages of one sensor."""

    def __init__(self, owner: Ros2Messages, sensor: MappedSensor, channels: Sequence[Channel]) -> None:
        self._owner, self._sensor = owner, sensor
        prefixes = owner.prefixes
        self._envs = np.array(owner.envs, np.int64)
        self._ids: bytes = b""
        self._rows = self._envs
        self._arrivals: dict[tuple[str, str], Arrivals] = {}
        base = ros_name(sensor.name)
        frames = [f"{base}/{ros_name(mount)}" for mount in sensor.mounts] or [base]
        self.frames = [owner._new_frame(each) for each in frames]
        """Frame of each mount."""
        self._channels: list[tuple[str, int | None, Channel, Template, int]] = []
        branches = {"measured": "", "truth": "truth/"} if owner._truth else {"measured": ""}
        for channel in channels:
            for mount, frame in enumerate(self.frames):
                values = [_values(channel, prefix, frame) for prefix in prefixes]
                template = Template(channel.message, values, channel.varying)
                for branch, word in branches.items():
                    first = len(owner.topics)
                    for prefix in prefixes:
                        name = f"/{prefix}{frame}/{word}{channel.topic}"
                        owner._add(Topic(name, channel.message, sensor=sensor.name))
                    self._channels.append((branch, mount if sensor.mounts else None, channel, template, first))
        if any(channel.frame == OPTICAL for channel in channels):
            x, y, z, w = _OPTICAL_XYZW
            owner._frames += [StaticFrame(each, each + OPTICAL, (0, 0, 0, w, x, y, z)) for each in self.frames]
        self.followed: list[tuple[int, str, Array]] = []
        """Mount, frame whose pose follows from the mount's, and the pose of that frame on the mount."""
        self._tf: Template | None = None

    def of(self, owner: Ros2Messages) -> _SensorMessages:
        """Return the same messages for a conversion with other places; both know which samples are new."""
        new = copy.copy(self)
        new._owner, new.followed, new._tf = owner, [], None
        return new

    def encode(self, stack: Stack) -> Iterator[MessageBlock]:
        """Yield the messages of consecutive readings, one block per channel and mount."""
        rows = self._rows_of(stack)
        taken = {("measured", ""): self._taken("measured", stack, rows)}
        for branch, mount, channel, template, first in self._channels:
            if branch == "truth" and not stack.truth:
                continue
            kind = branch, channel.gaps if branch == "measured" else ""
            new = taken[kind] if kind in taken else taken.setdefault(kind, self._taken(branch, stack, rows, kind[1]))
            if not len(new.at):
                continue
            values = stack.measured if branch == "measured" else stack.truth
            samples = Samples(new.stamps, new.frames, stack, values, new.at, new.rows, new.is_all, mount)
            columns = dict(channel.columns(samples))
            if channel.errors is not None and branch == "measured":
                columns |= channel.errors(samples)
            if template.has_header:
                columns |= _stamp_columns("header.stamp", columns.pop("header.stamp", new.stamps))
            if channel.varying:
                elements, counts = columns.pop(channel.varying)
                data, starts = template.fill_varying(new.envs, columns, elements, counts)
                yield MessageBlock(first + new.envs, new.log_times, data, starts)
            else:
                yield MessageBlock.of_rows(first + new.envs, new.log_times, template.fill(new.envs, columns))
        if self._owner._poses and stack.pose is not None:
            yield from self._transforms(stack.pose, taken["measured", ""])

    def _rows_of(self, stack: Stack) -> Array:
        """Return the rows of the converted envs in each reading."""
        ids = stack.env_ids.tobytes()
        if ids != self._ids:
            order = np.argsort(stack.env_ids, kind="stable")
            at = np.searchsorted(stack.env_ids, self._envs, sorter=order)
            rows = order[np.minimum(at, len(order) - 1)]
            if not np.array_equal(stack.env_ids[rows], self._envs):
                raise ArgumentError(f"readings: got envs {stack.env_ids.tolist()}, expected {self._envs.tolist()}")
            self._ids, self._rows = ids, rows
        return self._rows

    def _taken(self, branch: str, stack: Stack, rows: Array, gaps: str = "") -> _New:
        """Return the new samples of a branch, also those without a value, see `Channel.gaps`."""
        is_measured = branch == "measured"
        ticks = stack.about["capture_tick" if is_measured else "truth_tick"][:, rows]
        frames = stack.about["frame"][:, rows]
        valid = stack.about["valid"][:, rows] if is_measured else np.ones(ticks.shape, bool)
        if gaps:
            is_gap = (stack.measured[gaps][:, rows] == 0).reshape(*valid.shape, -1).any(axis=2)
            valid = valid | (is_gap & stack.about["is_new"][:, rows])
        arrivals = self._arrivals.setdefault((branch, gaps), Arrivals(len(self._envs)))
        new = valid if self._owner._keeps_all else arrivals.new(ticks, frames, valid)
        true = stack.times[:, None] - (stack.ticks[:, None] - ticks) * self._owner._dt
        seconds = stack.about["stamp"][:, rows] if is_measured else true
        start, offsets = self._owner._start_ns, (stack.measured if is_measured else stack.truth).get("time_offset")
        if offsets is not None and stack.offsets is None:  # scans that began before the time 0 have no stamp in ROS
            new = new & (start + nanoseconds(seconds) + exact_ns(offsets.min()) >= 0)
        stamps, true_stamps = (  # ROS accepts no negative times
            np.maximum(start + nanoseconds(each[new]), 0) for each in (seconds, true)
        )
        at, envs = np.nonzero(new)
        is_all = len(at) == new.size and np.array_equal(rows, np.arange(len(stack.env_ids)))
        return _New(
            at, envs, rows[envs], stamps, true_stamps, frames[new], start + nanoseconds(stack.times)[at], is_all
        )

    def _transforms(self, poses: Array, new: _New) -> Iterator[MessageBlock]:
        """Yield the transforms from the world to the frames that follow the mounts, with the true time."""
        poses = poses[new.at, new.rows]
        mounts = poses.shape[1]
        known = np.isfinite(poses).all(axis=(1, 2))
        poses, envs, stamps, log_times = poses[known], new.envs[known], new.true_stamps[known], new.log_times[known]
        if not len(envs) or not self.followed or mounts != len(self.frames):
            return
        if self._tf is None:
            unit = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
            prefixes = self._owner.prefixes
            values = [
                {"transforms": [_transform(prefix + WORLD, prefix + frame, 0, unit) for _, frame, _ in self.followed]}
                for prefix in prefixes
            ]
            self._tf = Template("tf2_msgs/msg/TFMessage", values)
        columns: dict[str, Array] = {}
        for index, (mount, _, inner) in enumerate(self.followed):
            path, pose = f"transforms[{index}]", poses[:, mount]
            if inner is not IDENTITY:
                pose = composed(pose.astype(np.float64), inner)
            columns |= _stamp_columns(f"{path}.header.stamp", stamps)
            columns[f"{path}.transform.translation"] = pose[:, :3]
            columns[f"{path}.transform.rotation"] = pose[:, [4, 5, 6, 3]]
        yield MessageBlock.of_rows(np.full(len(envs), self._owner._tf), log_times, self._tf.fill(envs, columns))
