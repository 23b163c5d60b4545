"""Recorder: writes the readings of a scene to an MCAP file while the scene runs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import struct
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from sensorium.errors import ConfigError, MissingDependencyError, ScheduleError, SensoriumWarning, shown
from sensorium.readings import Array, Reading, read_only
from sensorium.record.batches import LITTLE_ENDIAN, PACKAGE, TYPES, Batch, batches_of, of_envs
from sensorium.record.stacks import Stack
from sensorium.spec import FieldSpec

if TYPE_CHECKING:
    from sensorium.record.chunks import Part
    from sensorium.record.mcap_writer import McapWriter
    from sensorium.record.ros2 import ImageFormat
    from sensorium.record.ros2_track import Ros2Track
    from sensorium.record.rows import LogRows, SensorRows
    from sensorium.scene import Scene
    from sensorium.scene.states import SensorStates

FORMAT = "1"
"""Version of the contents of a recording."""
ABOUT = "sensorium"
"""Name of the metadata record that describes a recording."""
WORLD_FILE = ("world.npz", "application/x-npz")
"""Name and media type of the attached description of the world."""
CONTROL, BODIES, MARKS = "control", "bodies", "/marks"
"""Names of the records of the controls and of the poses of all bodies, and topic of the marks."""
BODY_RATE = 30.0
"""Maximum rate of the poses of all bodies, with which viewers show a recording, per second of simulation."""
MARK_TYPE = f"{PACKAGE}/msg/Mark"
MARK_DEFINITION = """# An episode, a task or another event of some environments
int64 tick
float64 time
int64[] env_ids
string name
string value
"""
MAX_DATE = 2**31 * 10**9
"""End of the dates of ROS 2 messages, ns since 1970: in 2038."""
LARGEST = 2**18
"""Maximum size of a reading that is collected with others, bytes."""
_PROGRAMS = ("sensorium", "numpy", "torch", "warp-lang", "mujoco", "mujoco-warp", "newton")


def open_writer(path: str | os.PathLike[str] | IO[bytes]) -> McapWriter:
    """Create an MCAP file at a path, or write it to an open file.

    Raises:
        MissingDependencyError: the extra `record` is not installed.
        ConfigError: the file cannot be created, is not a regular file, or is still written by another recording.
    """
    try:
        from sensorium.record.mcap_writer import McapWriter
    except ImportError as error:
        raise missing(error) from None
    library = f"sensorium {_version('sensorium')}"
    if not isinstance(path, str | os.PathLike):
        return McapWriter(path, "ros2", library)
    if os.path.exists(path) and not os.path.isfile(path):
        raise ConfigError.single("Recorder", "path", path, "a regular file", "Give another path.")
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return McapWriter(path, "ros2", library)
    except (OSError, TypeError, ValueError) as error:  # bytes, zero bytes
        reason = getattr(error, "strerror", None) or error
        raise ConfigError.single("Recorder", "path", path, "a file that can be written", f"{reason}.") from error


def add_description(
    writer: McapWriter, scene: Mapping[str, Any], env_ids: Iterable[int], bodies: Any, start_ns: int = 0
) -> None:
    """Describe the recording in its file.

    Args:
        writer: the file.
        scene: the result of `SceneDescription.to_dict`.
        env_ids: the recorded environments.
        bodies: list of all bodies, see `Bodies.to_dict`.
        start_ns: time at tick 0, ns.
    """
    versions = {name: found for name in _PROGRAMS if (found := _version(name))}
    values = {
        "format": FORMAT,
        "scene": json.dumps({name: value for name, value in scene.items() if name != "sensors"}),
        "env_ids": json.dumps([*env_ids]),
        "bodies": json.dumps(bodies),
        "versions": json.dumps({**versions, "python": platform.python_version()}),
    }
    if start_ns:
        values["start_ns"] = json.dumps(start_ns)
    writer.add_metadata(ABOUT, {**values, "checksum": checksum(values)})


def add_batch(writer: McapWriter, batch: Batch, group: str, **metadata: str) -> int:
    """Add a channel for messages of a layout and return its number.

    Args:
        writer: the file.
        batch: the layout.
        group: ``"sensor"`` or ``"log"``.
        metadata: further information about the channel.
    """
    return writer.add_channel(
        batch.topic, batch.type_name, batch.definition, {**batch.to_dict(), "group": group, **metadata}
    )


def open_sensor(
    writer: McapWriter, reading: Reading, env_ids: Array, dt: float, described: Any, truth: bool = True
) -> tuple[tuple[Batch, ...], tuple[int, ...]]:
    """Add the channels of a sensor, and return their layouts and numbers: measured values and, if wanted, truth.

    Args:
        writer: the file.
        reading: a reading of the sensor.
        env_ids: the recorded environments.
        dt: physics time step, s.
        described: description of the sensor.
        truth: whether to add a channel for the truth.
    """
    batches = batches_of(reading, env_ids, dt)[: 1 + truth]
    about: tuple[dict[str, str], ...] = ({"description": json.dumps(described)}, {})
    return batches, tuple(
        add_batch(writer, batch, "sensor", **each) for batch, each in zip(batches, about, strict=False)
    )


def add_marks(writer: McapWriter) -> int:
    """Add the channel of the marks and return its number."""
    return writer.add_channel(MARKS, MARK_TYPE, MARK_DEFINITION, {"group": "marks"})


def mark_message(tick: int, time: float, env_ids: Array, name: str, value: str) -> bytes:
    """Return the message of a mark."""
    head = struct.pack("<4sqdI", LITTLE_ENDIAN, tick, time, len(env_ids))
    ids = bytes(4 if len(env_ids) else 0) + env_ids.astype("<i8").tobytes()
    texts = b""
    for text in (name, value):
        data = text.encode("utf-8", "surrogatepass") + b"\0"
        texts += bytes(-(len(head) - 4 + len(ids) + len(texts)) % 4) + struct.pack("<I", len(data)) + data
    return head + ids + texts


def checksum(values: Mapping[str, str]) -> str:
    """Return the checksum of a record of named texts."""
    return f"{zlib.crc32(json.dumps(dict(values), sort_keys=True).encode()):08x}"


def missing(error: ImportError) -> MissingDependencyError:
    """Return the error for a missing package of the extra `record`."""
    return MissingDependencyError(
        f"MCAP files need {error.name}, which is not installed: pip install 'sensorium[record]'."
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def nanoseconds(seconds: float) -> int:
    """Return a simulation time as the log time of a message, ns."""
    return max(round(seconds * 1e9), 0)


@dataclass(slots=True)
class _Track:
    """Channels of one sensor."""

    sensor: Any
    """The sensor; its channels are opened again if it is replaced."""
    batches: tuple[Batch, ...]
    channels: tuple[int, ...]


class Recorder:
    """Recording of a scene in an MCAP file, made by `Scene.record`; a context manager that completes the file on exit.

    Every sample of every chosen sensor is recorded, with its truth: when it is captured, and when it arrives. The
    recorder takes them when the scene steps, updates or resets. A thread compresses and writes them. If it cannot keep
    up, the step waits, and nothing is lost. If the file cannot be written, e.g. because the disk is full, one warning
    is issued, the recording stops, and the simulation continues.

    Args:
        scene: the scene.
        path: the file; missing folders are created, an existing file is replaced.
        sensors: names or configs of the sensors to record; None records those with a config, and those that the model
            declares once they are read.
        envs: environments to record; None records all.
        ros2: whether to write standard ROS 2 messages too, one per environment and sample; ``"only"`` writes nothing
            else. Such a file is a ROS 2 bag: `sensorium.open` reads it as the bag of another program.
        truth: whether to write true values, and the poses of sensors and bodies.
        states: whether to write the true states of sensors, such as biases, as readings of ``NAME.states``; see
            `sensorium.scene.states`.
        images: images of 8 bits in ROS 2 messages: ``"raw"``, or compressed as ``"png"`` or ``"jpeg"``.
        start_ns: date of tick 0, ns since 1970, which exports add to all times, and ``ros2="only"`` at once; by
            default that of a trajectory, which only exports add.

    Raises:
        ConfigError: the file cannot be created, is not a regular file, or is still written by another recording; an
            environment does not exist; the options contradict each other; or the bias of a stage is unknown.
        UnknownNameError: no sensor has that name.
        MissingDependencyError: the extra `record` is not installed.
    """

    def __init__(
        self,
        scene: Scene,
        path: str | os.PathLike[str],
        *,
        sensors: Iterable[Any] | None = None,
        envs: Iterable[int] | None = None,
        ros2: bool | Literal["only"] = False,
        truth: bool = True,
        states: bool = False,
        images: ImageFormat = "raw",
        start_ns: int = 0,
    ) -> None:
        self._scene = scene
        if not 0 <= start_ns < MAX_DATE:
            expected = f"a date from 0 to before {MAX_DATE} (2038), ns since 1970"
            raise ConfigError.single("Recorder", "start_ns", start_ns, expected, "Use for example time.time_ns().")
        if images != "raw" and not ros2:
            raise ConfigError.single("Recorder", "images", images, "'raw', or ROS 2 messages", "Add ros2=True.")
        if states and ros2 == "only":
            expected = "False with ros2='only', since no ROS 2 message holds states"
            raise ConfigError.single("Recorder", "states", states, expected, "Use ros2=True.")
        chosen = [sensors] if isinstance(sensors, str) else sensors
        self._names = None if chosen is None else [scene[each].name for each in chosen]
        self.env_ids = _env_ids(envs, scene.num_envs)
        """The recorded environments, int64 [env]."""
        first, last = int(self.env_ids[0]), int(self.env_ids[-1])
        self._span = None if last + 1 - first == scene.num_envs else slice(first, last + 1)
        self._rows = self.env_ids - first
        self._takes_all = len(self._rows) == last + 1 - first
        self._choice: Any = slice(first, last + 1) if self._takes_all else self.env_ids
        self.ros2 = bool(ros2)
        self._is_own = ros2 != "only"
        """Whether readings are written, and not only ROS 2 messages."""
        self._truth, self._images, self._with_states, self._start_ns = truth, images, states, start_ns
        self._states: dict[str, SensorStates] = {}
        self._tracks: dict[str, _Track] = {}
        self._rows_of: dict[str, SensorRows] = {}
        """Sensor -> rows, for sensors with small readings, in the order of the scene."""
        self._logs: dict[str, LogRows] = {}
        self._marks = 0
        """Number of the channel of the marks; 0 before the first one."""
        self._followed: dict[str, Any] = {}
        self._ros2: Ros2Track | None = None
        self.frame = 0
        """Number of frames so far, that is, of moments with new data."""
        self._tick = scene.tick
        self._is_step_start = True
        self._ctrl: Any = None
        self._sees_ctrl = False
        self._controls: Array = np.zeros(0)
        """The tensor of the controls, whether the host sees its memory, and the same on the host."""
        self._control = b""
        """The controls that were recorded last, as bytes."""
        self._bodies_at = -math.inf
        self._bodies_every = math.ceil(0.999 / BODY_RATE / scene.engine.dt)
        """Tick of the newest poses of all bodies, and ticks between two of them."""
        self._arrangement = -1
        self._places = scene.places()
        self._episode = self._episodes()
        self._warned = False
        self._writer = open_writer(path)
        try:
            self._describe()
            self._writer.collect, self._writer.writes_collected = self._collect, not self._is_own
            self._cursor = scene.sample_cursor()
            self._watch = scene.watch(self._on_frame)
            self._on_frame()
        except BaseException:
            self._writer.close()
            raise

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{self.frame} frames"
        return f"<Recorder {self.path}: {state}>"

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self._writer.path)

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is recorded: it was closed, or the file could not be written."""
        return self._watch.is_closed

    @property
    def failed(self) -> bool:
        """Whether the file could not be written."""
        return self._writer.error is not None

    # Contents on request ----------------------------------------------------------------------------------------------

    def log(self, name: str, values: Any) -> None:
        """Record values of the loop, such as actions or rewards.

        Args:
            name: their name, e.g. ``"actions"``.
            values: `[env, ...]`, a row for each environment of the scene; always of the same shape and type.

        Raises:
            ConfigError: the values have no row per environment, or another shape or type than before; or the file has
                ROS 2 messages only.
        """
        expected = f"an array [env {self._scene.num_envs}, ...] of numbers or bools"
        try:
            array = _on_host(values)
        except (TypeError, ValueError) as error:
            raise ConfigError.single("Recorder.log", name, shown(values), expected, f"{error}.") from None
        self._check_own("Recorder.log", name)
        if name in (CONTROL, BODIES):
            reserved = "another name, since the controls and the poses of bodies have these"
            raise ConfigError.single("Recorder.log", "name", name, reserved)
        if array.shape[:1] != (self._scene.num_envs,) or array.dtype.name not in TYPES:
            raise ConfigError.single("Recorder.log", name, f"{array.dtype} {list(array.shape)}", expected)
        self._log(name, array[self._choice], self._scene.tick, expected)

    def mark(self, name: str, value: str = "", env_ids: Iterable[int] | None = None) -> None:
        """Record a mark at the current time, such as the start of a task.

        The start of each episode is marked by the recorder itself, with the name ``"episode"``.

        Args:
            name: kind of the mark, e.g. ``"task"``.
            value: text, e.g. the task.
            env_ids: environments it concerns; None for all recorded ones.

        Raises:
            ConfigError: an environment does not exist, or the file has ROS 2 messages only.
        """
        self._check_own("Recorder.mark", name)
        if self.is_closed:
            return
        envs = self.env_ids
        if env_ids is not None:
            envs = _env_ids(env_ids, self._scene.num_envs, "Recorder.mark", "env_ids", least=0)
        if not self._marks:
            self._marks = add_marks(self._writer)
        data = mark_message(self._scene.tick, self._scene.time, envs, name, value)
        self._writer.add((self._marks, nanoseconds(self._scene.time), time.time_ns(), self.frame, [data]))

    def attach(self, name: str, media_type: str, data: bytes) -> None:
        """Attach a file to the recording, e.g. ``attach("rig.toml", "application/toml", text.encode())``."""
        if not self.is_closed:
            self._writer.attach(name, media_type, data)

    def flush(self) -> None:
        """Write everything recorded so far to the file, and wait for it."""
        self._writer.flush()

    def close(self) -> None:
        """Complete the file. Closing twice has no effect."""
        self._watch.close()
        self._writer.close()
        for name in list(self._followed):
            self._unfollow(name)
        self._report()

    def _check_own(self, method: str, name: str) -> None:
        """Raise `ConfigError` if the file has ROS 2 messages only."""
        if not self._is_own:
            expected = "a recording that does not hold ROS 2 messages only"
            raise ConfigError.single(method, "name", name, expected, "Use ros2=True instead of ros2='only'.")

    # Description ------------------------------------------------------------------------------------------------------

    def _describe(self) -> None:
        """Write the constant data: scene, versions, bodies, shapes."""
        if not self._is_own:
            return
        scene = self._scene
        about, bodies = scene.description().to_dict(), scene.bodies().to_dict()["bodies"]
        start_ns = self._start_ns or getattr(scene.engine, "start_ns", 0)  # of a trajectory
        add_description(self._writer, about, self.env_ids.tolist(), bodies, start_ns)
        self._writer.attach(*WORLD_FILE, scene.world_file())

    # Frames -----------------------------------------------------------------------------------------------------------

    def _on_frame(self) -> None:
        """Record new data; called on the loop's thread after each advance of the scene."""
        if self._writer.error is not None:
            self.close()
            return
        scene = self._scene
        wall, tick, frame = time.time_ns(), scene.tick, self.frame
        followed, others = self._follow(), []
        for name in followed:
            rows = self._rows_of.get(name)
            if rows is None:
                others += self._cursor.pending([name])
            elif rows.live.take():
                if others:  # larger readings are written at once, in the order of the sensors
                    self._write_readings(others, frame + 1, wall)
                    others = []
                self.frame = frame + 1
                with self._writer.lock:
                    rows.add((self.frame, wall, tick))
                self._write_states(name, wall)
        if others:
            self._write_readings(others, frame + 1, wall)
        if self._is_own:
            self._record_control()
            self._record_bodies()
            if tick <= self._tick:
                self._mark_episodes()
        self._tick = tick

    def _write_readings(self, names: list[str], frame: int, wall: int) -> None:
        """Write the new readings of sensors, which are evaluated together."""
        self.frame = frame
        now = nanoseconds(self._scene.time)
        readings = self._scene.publish(names, since=self._cursor, envs=self._span, poses=self._truth)
        for name, reading in readings.items():
            self._write_reading(name, reading if self._takes_all else of_envs(reading, self._rows), now, wall)
            self._write_states(name, wall)

    def _write_states(self, name: str, wall: int) -> None:
        """Write the true states of a sensor at its newest capture."""
        if not self._with_states:
            return
        sensor = self._followed[name]
        states = self._states.get(name)
        if states is None or states.sensor is not sensor:
            states = self._states[name] = self._scene.sensor_states(name)
        reading = states.read(self._span) if states.specs else None
        if reading is None:
            return
        own = reading if self._takes_all else of_envs(reading, self._rows)
        track = self._tracks.get(own.name)
        if track is None or track.sensor is not sensor:
            track = self._tracks[own.name] = self._open_track(sensor, own, states.describe(), truth=False)
        self._add(track, own, [*self._followed].index(name), nanoseconds(self._scene.time), wall, None)

    def _add(self, track: _Track, reading: Reading, order: int, now: int, wall: int, about: Any) -> None:
        """Add the messages of a reading to the file."""
        self._writer.add(
            *(
                (channel, now, wall, self.frame, batch.encode(reading))
                for batch, channel in zip(track.batches, track.channels, strict=True)
            ),
            order=order,
            about=about,
        )

    def _write_reading(self, name: str, reading: Reading, now: int, wall: int) -> None:
        """Write one reading."""
        track = self._tracks.get(name)
        if track is None or track.sensor is not self._followed[name]:
            described = self._scene.description().sensors[name]
            track = self._tracks[name] = self._open_track(self._followed[name], reading, described, truth=self._truth)
        order = [*self._followed].index(name)
        self._add(track, reading, order, now, wall, self._about(lambda _: Stack.of([reading])))
        if sum(batch.nbytes for batch in track.batches) <= LARGEST:
            live = self._scene.live_sample(name)
            if live is not None:
                from sensorium.record.rows import SensorRows

                envs = None if len(self.env_ids) == self._scene.num_envs else self._choice
                about = self._about(lambda data: rows.stack(data[0]))
                rows = SensorRows(self._writer, order, live, track.batches, track.channels, envs, about)
                self._rows_of[name] = rows

    def _about(self, stack: Callable[[Sequence[Any]], Stack]) -> Any:
        """Return the standard messages to which the readings of a part are added, and a function that returns them."""
        return None if self._ros2 is None else (self._ros2, stack)

    def _collect(self, parts: Sequence[Part]) -> None:
        """Add the standard messages of the readings in a chunk; called by the writer's thread."""
        tracks: dict[Ros2Track, None] = {}
        for part in parts:
            if part.about is not None:
                part.complete()
                if part.buffers:
                    track, stack = part.about
                    track.add(stack(part.buffers))
                    tracks[track] = None
        for track in tracks:
            track.write(self.frame)

    def _follow(self) -> Mapping[str, Any]:
        """Return the sensors to record by name; they count this recorder among their listeners."""
        scene = self._scene
        is_moved = self.ros2 and self._places.have_changed(self._followed, scene.tick)
        if scene.arrangement != self._arrangement or is_moved:
            if self._names is None:
                found: Mapping[str, Any] = scene.sensors_in_use
            else:
                found = {name: scene[name] for name in self._names if name in scene}
            for name, rows in self._rows_of.items():
                self._cursor.follow(self._followed[name], rows.live)
            self._rows_of = {}
            is_changed = is_moved or found != self._followed
            for name in [*self._followed]:
                if found.get(name) is not self._followed[name]:
                    self._unfollow(name)
            for name, sensor in found.items():
                if name not in self._followed:
                    self._followed[name] = sensor
                    sensor.buffers.listeners += 1
            self._followed = dict(found)
            self._watch.sensors = tuple(self._followed.values())
            if self.ros2 and is_changed:
                self._follow_ros2()
            self._arrangement = scene.arrangement
        return self._followed

    @property
    def unmapped(self) -> Mapping[str, tuple[str, ...]]:
        """Sensor -> names of its fields that no ROS 2 message holds; empty without ROS 2 messages."""
        return {} if self._ros2 is None else self._ros2.unmapped

    def _follow_ros2(self) -> None:
        """Prepare the messages of the sensors that are followed now."""
        from sensorium.record.ros2_track import Ros2Track

        about = self._scene.description()
        about = replace(about, sensors={name: about.sensors[name] for name in self._followed})
        self._places.have_changed(self._followed, self._scene.tick)
        self._ros2 = Ros2Track(
            self._writer, about, self.env_ids.tolist(), self._ros2, time=self._scene.time, truth=self._truth,
            images=self._images, start_ns=0 if self._is_own else self._start_ns,  # readings count from 0
        )  # fmt: skip

    def _unfollow(self, name: str) -> None:
        sensor = self._followed.pop(name)
        sensor.buffers.listeners -= 1
        if not sensor.is_retired:
            with contextlib.suppress(ScheduleError):  # after an interrupted step, the scene only allows a reset
                self._scene.forget_poses([name])

    def _open_track(self, sensor: Any, reading: Reading, described: Any, truth: bool) -> _Track:
        """Open the channels of a sensor."""
        dt = self._scene.engine.dt
        if self._is_own:
            return _Track(sensor, *open_sensor(self._writer, reading, self.env_ids, dt, described, truth))
        batches = batches_of(reading, self.env_ids, dt)[: 1 + truth]
        return _Track(sensor, batches, (0,) * len(batches))

    # Controls, logs and episodes --------------------------------------------------------------------------------------

    def _record_control(self) -> None:
        """Record the controls when they change, at the tick from which they hold."""
        scene = self._scene
        if self._is_step_start and scene.tick > self._tick:
            ctrl = getattr(scene.engine, "ctrl", None)
            if ctrl is not self._ctrl or not self._sees_ctrl:
                self._ctrl, self._sees_ctrl, self._controls = ctrl, True, np.zeros(0)
                if ctrl is not None and ctrl.ndim == 2:
                    self._sees_ctrl, self._controls = ctrl.is_cpu, ctrl.detach().cpu().numpy()
            contents = self._controls.tobytes()
            if contents != self._control:
                self._log(CONTROL, self._controls[self._choice], self._tick, "the controls", actuators=True)
                self._control = contents
        self._is_step_start = not scene.is_within_step

    def _record_bodies(self) -> None:
        """Record the poses of all bodies, at the end of control steps and at most at `BODY_RATE`."""
        scene = self._scene
        if not self._truth or scene.is_within_step or 0 <= scene.tick - self._bodies_at < self._bodies_every:
            return
        poses = scene.body_poses(self._span)
        if poses is not None and poses.shape[1]:
            self._log(BODIES, poses if self._takes_all else poses[self._rows], scene.tick, "the poses of bodies")
        self._bodies_at = scene.tick

    def _log(self, name: str, values: Array, tick: int, expected: str, actuators: bool = False) -> None:
        if self.is_closed:
            return
        rows = self._logs.get(name)
        if rows is None:
            rows = self._logs[name] = self._open_log(name, values, actuators)
        spec = rows.spec
        if values.shape[1:] != spec.shape or values.dtype != rows.dtype:
            fits = f"{expected} of shape {[len(values), *spec.shape]} and type {spec.dtype} as before"
            raise ConfigError.single("Recorder.log", name, f"{values.dtype} {list(values.shape)}", fits)
        with self._writer.lock:
            rows.add((self.frame, time.time_ns(), tick), values)

    def _open_log(self, name: str, values: Array, actuators: bool) -> LogRows:
        """Open the channel of a log with values like these."""
        from sensorium.record.rows import LogRows

        axes = ("actuator",) if actuators else tuple(f"axis{k}" for k in range(values.ndim - 1))
        spec = FieldSpec("value", axes, values.shape[1:], values.dtype.name, "", "", "vector", "scalar")
        batch = Batch(name, "log", (spec,), self.env_ids, "measured", 0, self._scene.engine.dt)
        about = {"names": json.dumps(list(self._scene.engine.control_names))} if actuators else {}
        return LogRows(self._writer, batch, add_batch(self._writer, batch, "log", **about), self._scene.clock.time_at)

    def _episodes(self) -> Array:
        return _on_host(self._scene.clock.episode).copy()

    def _mark_episodes(self) -> None:
        """Mark the environments whose episode changed since the last call."""
        now = self._episodes()
        changed = self.env_ids[(now != self._episode)[self.env_ids]]
        if len(changed):
            self.mark("episode", env_ids=changed.tolist())
        self._episode = now

    def _report(self) -> None:
        """Warn, once, that the file could not be written."""
        error = self._writer.error
        if error is not None and not self._warned:
            self._warned = True
            reason = getattr(error, "strerror", None) or error
            warnings.warn(
                f"recording {str(self.path)!r} stopped at t = {self._scene.time:.4g} s: {reason}. The "
                "file contains everything written before, and the simulation continues.",
                SensoriumWarning,
                stacklevel=2,
            )


def _env_ids(given: Any, num_envs: int, what: str = "Recorder", field: str = "envs", least: int = 1) -> Array:
    """Return the chosen environments, `least` or more, in ascending order; all for None."""
    if given is None:
        return read_only(np.arange(num_envs))
    ids = given.tolist() if hasattr(given, "tolist") else given
    ids = [*ids] if isinstance(ids, Iterable) else [ids]
    known = [type(each) is not bool and isinstance(each, int | np.integer) and 0 <= each < num_envs for each in ids]
    if len(ids) < least or not all(known):
        raise ConfigError.single(what, field, shown(given), f"numbers of environments from 0 to {num_envs - 1}")
    return read_only(np.array(sorted({*ids}), np.int64))


def _on_host(values: Any) -> Array:
    """Return a copy of an array or tensor in host memory, in its byte order."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.array(values)
    return array.astype(array.dtype.newbyteorder("="), copy=False)
