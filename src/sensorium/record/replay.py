"""Replay of a recording: the same readings as from the live scene."""

from __future__ import annotations

import itertools
import json
import os
import struct
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.errors import ArgumentError, ModelError, SensoriumWarning, UnknownNameError, listed
from sensorium.readings import Array, Bodies, Reading, SceneDescription
from sensorium.record.archive import is_npz
from sensorium.record.batches import Batch, readings_of, stack_of
from sensorium.record.npz import NpzRecorder, Recording, load
from sensorium.record.recorder import ABOUT, BODIES, FORMAT, MARKS, checksum, missing

if TYPE_CHECKING:
    from sensorium.record.mcap_file import McapFile, Messages
    from sensorium.record.stacks import Stack

SUFFIXES = (".mcap", ".db3", ".npz")
"""Suffixes of recordings."""
CACHED = 2
"""Number of decompressed chunks kept."""


_Key = tuple[int, int]
"""Channels of the measured and of the true messages; 0 without truth."""


class _Several(Sequence[memoryview]):
    """Contents of some messages, which are only made when they are read."""

    def __init__(self, data: Callable[[int], memoryview], numbers: Array) -> None:
        self._data, self._numbers = data, numbers.tolist()

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, chosen: Any) -> Any:
        if isinstance(chosen, slice):
            return [self._data(number) for number in self._numbers[chosen]]
        return self._data(self._numbers[chosen])


_Pairs = tuple[_Several, _Several]
"""Measured messages, and those of their truth."""


class NoRecordingError(ModelError):
    """A file of another program; it may be a bag."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Mark in a recording, e.g. the start of an episode or a task.

    Attributes:
        tick: physics tick.
        time: simulation time, s.
        env_ids: environments it concerns, int64 [n].
        name: its kind, e.g. ``"episode"``.
        value: its text.
    """

    tick: int
    time: float
    env_ids: Array
    name: str
    value: str


class Replay:
    """Open recording, made by `replay`. Iteration yields each `Reading` in the order in which they were recorded.

    It is also a context manager that closes the file on exit.

    Args:
        path: the file.

    Attributes:
        description: description of the recorded scene, with the recorded sensors.
        env_ids: the recorded environments, int64 [env].
        bodies: all bodies of the model.
        versions: name of a program -> its version at the recording.
        is_complete: whether the recorder completed the file. Otherwise it ends at a time up to a second before the end
            of the run.
        start_ns: time at tick 0, ns; that of the first pose for a `TrajectoryEngine`, otherwise 0 except for bags of
            other programs.
        unread: topic -> reason why its messages are not in readings; empty except for bags of other programs.
        log_descriptions: name of other recorded values, see `logs` -> description as that of a sensor.

    Raises:
        ModelError: the file is missing, is not a recording of sensorium, or is damaged.
        MissingDependencyError: the extra `record` is not installed.
    """

    start_ns = 0
    log_descriptions: dict[str, Mapping[str, Any]]

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            from sensorium.record.mcap_file import McapFile
        except ImportError as error:
            raise missing(error) from None
        self._file: McapFile = McapFile(path)
        self.unread: dict[str, str] = {}
        try:
            self._cache: OrderedDict[int, Messages] = OrderedDict()
            self._read_description()
        except BaseException:
            self._file.close()
            raise
        self.is_complete = self._file.is_complete
        if not self.is_complete:
            warnings.warn(
                f"recording {self._file.path!r} was not completed; it is read up to its last complete part. Complete "
                f"it with: sensorium repair {self._file.path}",
                SensoriumWarning,
                stacklevel=3,
            )

    def __repr__(self) -> str:
        return (
            f"<Replay {self._file.path!r}: {len(self.description.sensors)} sensors, {self.start:g} to {self.end:g} s>"
        )

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Closing twice has no effect."""
        self._file.close()

    def _error(self, reason: str) -> ModelError:
        return self._file.error(reason)

    def _read_description(self) -> None:
        file = self._file
        about = file.metadata(ABOUT)
        if not about:
            raise NoRecordingError(str(self._error("it was not written by sensorium")))
        known = about.pop("checksum", "")
        if known != checksum(about):
            raise self._error("the checksum of its description differs")
        if about.get("format") != FORMAT:
            raise self._error(f"its format is {about.get('format')!r}, and this version reads {FORMAT!r}")
        self._batches: dict[int, Batch] = {}
        self._sensors: dict[int, str] = {}
        self._truths: dict[str, set[int]] = {}
        self._logs: dict[str, set[int]] = {}
        self.log_descriptions = {}
        self._marks: set[int] = set()
        described: dict[str, Mapping[str, Any]] = {}
        for number, channel in sorted(file.channels.items()):
            group = channel.metadata.get("group")
            if group == "marks" and channel.topic == MARKS:
                self._marks.add(number)
            if group not in ("sensor", "log"):
                continue
            try:
                batch = self._batches[number] = Batch.from_dict(channel.metadata)
            except ModelError as error:
                raise self._error(str(error)) from None
            if group == "log":
                self._logs.setdefault(batch.sensor, set()).add(number)
                named = "names" in channel.metadata
                names = {"constants": {"actuator_names": self._json(channel.metadata, "names", list)}} if named else {}
                self.log_descriptions[batch.sensor] = {
                    "kind": "log", "fields": [spec.to_dict() for spec in batch.specs], **names,
                }  # fmt: skip
            elif batch.branch == "truth":
                self._truths.setdefault(batch.sensor, set()).add(number)
            else:
                self._sensors[number] = batch.sensor
                described[batch.sensor] = self._json(channel.metadata, "description", dict)
        scene = self._json(about, "scene", dict)
        try:
            self.description = SceneDescription(
                str(scene["engine"]), float(scene["dt"]), int(scene["num_envs"]), int(scene["seed"]), described,
                int(scene["first_env"]),
            )  # fmt: skip
            self.env_ids: Array = np.array(self._json(about, "env_ids", list), np.int64)
            self.bodies = Bodies.from_dict({"bodies": self._json(about, "bodies", list)})
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._error(f"its description is damaged ({type(error).__name__}: {error})") from None
        self.versions: dict[str, str] = self._json(about, "versions", dict)
        if "start_ns" in about:
            self.start_ns = self._json(about, "start_ns", int)

    def _json(self, texts: Mapping[str, str], name: str, kind: type[Any]) -> Any:
        try:
            found = json.loads(texts[name])
        except (KeyError, ValueError, RecursionError) as error:
            raise self._error(f"its {name} is damaged ({type(error).__name__}: {error})") from None
        if not isinstance(found, kind):
            raise self._error(f"its {name} is {type(found).__name__}, expected {kind.__name__}")
        return found

    # Contents ---------------------------------------------------------------------------------------------------------

    @property
    def start(self) -> float:
        """Simulation time of the first sample, s; 0 for an empty recording."""
        return self._file.span[0] * 1e-9

    @property
    def end(self) -> float:
        """Simulation time of the last sample, s; 0 for an empty recording."""
        return self._file.span[1] * 1e-9

    @property
    def counts(self) -> dict[str, int]:
        """Sensor -> number of its readings."""
        found = dict.fromkeys(self.description.sensors, 0)
        for number, name in self._sensors.items():
            found[name] += self._file.counts.get(number, 0)
        return found

    @property
    def logs(self) -> tuple[str, ...]:
        """Names of other recorded values: ``"control"`` and those of `Recorder.log`."""
        return tuple(name for name in self._logs if name != BODIES)

    def body_poses(self, start: float = -inf) -> Iterator[tuple[float, Array]]:
        """Yield times and poses of all bodies, float32 `[env, body, 7]`, m and wxyz; none where they are unknown.

        Args:
            start: first time, s.
        """
        for _, reading in self._of_channels(self._logs.get(BODIES, set()), start, inf):
            yield reading.time, reading["value"]

    def __iter__(self) -> Iterator[Reading]:
        return self.readings()

    def readings(
        self, names: str | Iterable[str] | None = None, start: float = -inf, end: float = inf
    ) -> Iterator[Reading]:
        """Yield the readings of a time span, in the order in which they were recorded.

        Args:
            names: sensors; None for all.
            start: first time, s. Earlier parts of the file are not read.
            end: last time, s.

        Raises:
            UnknownNameError: no sensor of that name was recorded.
            ModelError: the file is damaged.
        """
        for _, reading in self._numbered(names, start, end):
            yield reading

    def stacks(
        self, names: str | Iterable[str] | None = None, start: float = -inf, end: float = inf
    ) -> Iterator[Stack]:
        """Yield the readings of a time span, those of one sensor in one part of the file together; see `readings`."""
        channels = self._channels(names)
        for index in self._blocks_between(channels, start, end):
            for (first, second), (firsts, seconds) in self._pairs(index, channels)[1].items():
                try:
                    stack = stack_of(self._batches[first], firsts, self._batches.get(second), seconds)
                except ModelError as error:
                    raise self._error(str(error)) from None
                inside = np.flatnonzero((stack.times >= start) & (stack.times <= end))
                if len(inside):
                    yield stack.part(slice(int(inside[0]), int(inside[-1]) + 1))

    def frames(
        self, names: str | Iterable[str] | None = None, start: float = -inf, end: float = inf
    ) -> Iterator[dict[str, Reading]]:
        """Yield the readings of a time span grouped by frame, as `Scene.publish` returned them; see `readings`."""
        numbered = self._numbered(names, start, end)
        for _, frame in itertools.groupby(numbered, lambda each: each[0]):
            yield {reading.name: reading for _, reading in frame}

    def play(
        self, speed: float = 1.0, names: str | Iterable[str] | None = None, start: float = -inf, end: float = inf
    ) -> Iterator[dict[str, Reading]]:
        """Yield the frames of a time span at the speed of the wall clock; see `frames`.

        Args:
            speed: simulated seconds per second, above 0; infinity does not wait.
            names: sensors; None for all.
            start: first time, s.
            end: last time, s.

        Raises:
            ArgumentError: the speed is not above 0.
        """
        if not speed > 0.0:
            raise ArgumentError(f"speed: got {speed}, expected a number above 0. Use frames() to read without pacing.")
        begin = None
        for frame in self.frames(names, start, end):
            now = next(iter(frame.values())).time
            if begin is None:
                begin = time.monotonic() - now / speed
            if (left := begin + now / speed - time.monotonic()) > 0.0:
                time.sleep(left)
            yield frame

    def at(self, when: float, names: str | Iterable[str] | None = None) -> dict[str, Reading]:
        """Return the newest reading of each sensor at a time; a sensor without an earlier reading is missing.

        Args:
            when: simulation time, s.
            names: sensors; None for all.
        """
        channels = self._channels(names)
        wanted = {self._sensors[number] for number in channels}
        found: dict[str, Reading] = {}
        for index in reversed(self._blocks_between(channels, end=when)):
            if len(found) == len(wanted):
                break
            newest = {
                reading.name: reading
                for _, reading in self._block_readings(index, channels)
                if reading.time <= when and reading.name not in found
            }
            found |= newest
        return {name: found[name] for name in self.description.sensors if name in found}

    def log(self, name: str, start: float = -inf, end: float = inf) -> Iterator[Reading]:
        """Yield other recorded values of a time span as readings with one field, `value`; see `logs`.

        Args:
            name: their name.
            start: first time, s.
            end: last time, s.

        Raises:
            UnknownNameError: no values of that name were recorded.
        """
        if name not in self._logs:
            raise UnknownNameError("recorded values", name, self._logs)
        return (reading for _, reading in self._of_channels(self._logs[name], start, end))

    def layouts(self, name: str) -> list[Batch]:
        """Return the layouts of the messages of a sensor or log: of the measured values, and of the truth if there."""
        return [batch for batch in self._batches.values() if batch.sensor == name]

    @property
    def control(self) -> Iterator[Reading]:
        """Controls of the actuators, one reading per change at the tick from which they hold."""
        return self.log("control") if "control" in self._logs else iter(())

    @property
    def marks(self) -> list[Mark]:
        """All marks, in the order in which they were recorded."""
        return [mark for _, mark in self._numbered_marks()]

    def marked(self, name: str, kind: str) -> Iterator[tuple[Mark | None, Reading]]:
        """Yield the readings of a sensor or log, each with the last mark before it; None before the first one.

        Args:
            name: the sensor or log.
            kind: name of the marks.

        Raises:
            UnknownNameError: no sensor or log of that name was recorded.
        """
        marks = [(frame, mark) for frame, mark in self._numbered_marks() if mark.name == kind]
        channels, last = self._logs.get(name) or self._channels(name), None
        for frame, reading in self._of_channels(channels, -inf, inf):
            while marks and marks[0][0] <= frame:
                last = marks.pop(0)[1]
            yield last, reading

    def _numbered_marks(self) -> list[tuple[int, Mark]]:
        """Return all marks with the numbers of their frames."""
        found = []
        for index in self._blocks_between(self._marks):
            messages = self._messages(index)
            for number in np.flatnonzero(np.isin(messages.heads["channel"], [*self._marks])).tolist():
                found.append((int(messages.heads["sequence"][number]), self._mark(messages.data(number))))
        return found

    def _mark(self, data: memoryview) -> Mark:
        try:
            _, tick, now, count = struct.unpack_from("<4sqdI", data)
            at = 24 + (4 if count else 0)
            ids = np.frombuffer(data, "<i8", count, at).copy()
            at += 8 * count
            texts = []
            for _ in range(2):
                at += -(at - 4) % 4
                (size,) = struct.unpack_from("<I", data, at)
                if not 0 < size <= len(data) - at - 4:
                    raise ValueError(f"a text of {size} bytes")
                texts.append(bytes(data[at + 4 : at + 3 + size]).decode("utf-8", "surrogatepass"))
                at += 4 + size
        except (struct.error, ValueError) as error:
            raise self._error(f"a mark is damaged ({error})") from None
        return Mark(tick, now, ids, *texts)

    def attachment(self, name: str) -> bytes | None:
        """Return the contents of an attached file, e.g. ``"world.npz"``; None if there is none."""
        return self._file.attachment(name)

    def recording(self, *, max_envs: int | None = None, max_bytes: int = 2**30) -> Recording:
        """Return the whole recording in memory, e.g. for `sensorium.view.plot_recording`.

        Args:
            max_envs: number of environments, from the first recorded one; None for all.
            max_bytes: maximum memory; when it is reached, a warning is issued and later readings are omitted.
        """
        recorder = NpzRecorder(max_envs=max_envs, max_bytes=max_bytes)
        for reading in self:
            recorder.add(reading)
            if recorder.is_full:
                break
        return recorder.recording(self.description)

    # Reading ----------------------------------------------------------------------------------------------------------

    def _wanted(self, names: str | Iterable[str] | None) -> list[str]:
        """Return the names of some sensors; of all for None."""
        known = self.description.sensors
        wanted = [*known] if names is None else [names] if isinstance(names, str) else [*names]
        for name in wanted:
            if name not in known:
                raise UnknownNameError("recorded sensor", name, known)
        return wanted

    def _channels(self, names: str | Iterable[str] | None) -> set[int]:
        """Return the channels of the measured values of some sensors."""
        wanted = self._wanted(names)
        return {number for number, name in self._sensors.items() if name in wanted}

    def _numbered(self, names: str | Iterable[str] | None, start: float, end: float) -> Iterator[tuple[int, Reading]]:
        """Yield (frame, reading) of some sensors."""
        return self._of_channels(self._channels(names), start, end)

    def _of_channels(self, channels: set[int], start: float, end: float) -> Iterator[tuple[int, Reading]]:
        """Yield (frame, reading) of some channels."""
        for index in self._blocks_between(channels, start, end):
            for sequence, reading in self._block_readings(index, channels):
                if start <= reading.time <= end:
                    yield sequence, reading

    def _blocks_between(self, channels: set[int], start: float = -inf, end: float = inf) -> list[int]:
        return self._file.blocks_of(channels, start * 1e9 - 1.0, end * 1e9 + 1.0) if channels else []

    def _block_readings(self, index: int, channels: set[int]) -> Iterator[tuple[int, Reading]]:
        """Yield (frame, reading) of the readings that start in a block; the truth of the last may be in the next."""
        order, pairs = self._pairs(index, channels)
        decoded = {
            key: readings_of(self._batches[key[0]], firsts, self._batches.get(key[1]), seconds)
            for key, (firsts, seconds) in pairs.items()
        }
        for sequence, key in order:
            try:
                reading = next(decoded[key])
            except ModelError as error:
                raise self._error(str(error)) from None
            yield sequence, reading

    def _pairs(self, index: int, channels: set[int]) -> tuple[list[tuple[int, _Key]], dict[_Key, _Pairs]]:
        """Return the messages of the readings that start in a block, with those of their truth.

        Returns:
            Number of the frame and key of each, in order, and the messages with each key.
        """
        messages, after = self._messages(index), None
        channel = messages.heads["channel"].astype(np.int64)
        numbers = np.flatnonzero(np.isin(channel, [*channels]))
        if len(numbers) and numbers[-1] + 1 == len(channel):
            after = self._first_after(index)

        def data(number: int) -> memoryview:
            return messages.data(number) if after is None or number < len(channel) else after[1]

        follower = np.append(channel[1:], -1 if after is None else after[0])[numbers]
        with_truth = [each for each in channels & self._sensors.keys() if self._batches[each].sensor in self._truths]
        follower[~np.isin(channel[numbers], with_truth)] = 0
        numbers, follower = numbers[follower >= 0], follower[follower >= 0]  # the writer was killed between the two
        keys, which = np.unique(channel[numbers] << 32 | follower, return_inverse=True)
        names, pairs = [(key >> 32, key & 0xFFFFFFFF) for key in keys.tolist()], {}
        for place, (first, second) in enumerate(names):
            sensor, own = self._batches[first].sensor, numbers[which == place]
            if second and second not in self._truths[sensor]:
                raise self._error(f"a reading of {sensor!r} at byte {self._file.blocks[index].offset} has no truth")
            pairs[first, second] = _Several(data, own), _Several(data, own + 1 if second else own[:0])
        sequences = messages.heads["sequence"][numbers].tolist()
        return [(each, names[place]) for each, place in zip(sequences, which.tolist(), strict=True)], pairs

    def _first_after(self, index: int) -> tuple[int, memoryview] | None:
        """Return channel and contents of the first message after a block."""
        for following in range(index + 1, len(self._file.blocks)):
            messages = self._messages(following)
            if len(messages.heads):
                return int(messages.heads["channel"][0]), messages.data(0)
        return None

    def _messages(self, index: int) -> Messages:
        """Return the messages of readings, logs and marks in a block, frame by frame.

        The recorder writes many small messages of one sensor after the other.
        """
        found = self._cache.get(index)
        if found is None:
            found = self._file.messages(self._file.blocks[index])
            own = np.flatnonzero(np.isin(found.heads["channel"], [*self._batches, *self._marks]))
            own = own[np.argsort(found.heads["sequence"][own], kind="stable")]
            found = self._cache[index] = found._replace(begins=found.begins[own], heads=found.heads[own])
            while len(self._cache) > CACHED:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(index)
        return found


def open(path: str | os.PathLike[str]) -> Replay | Recording:
    """Open a recording of any kind: an npz file as by `load`, anything else as by `replay`.

    Args:
        path: an npz file, an MCAP file, a bag, or a folder with one of them.

    Raises:
        ModelError: the file is missing, is not a recording, or is damaged.
        MissingDependencyError: MCAP files need the extra `record`, and bags the extra `bags`.
    """
    path = _in_folder(Path(path))
    return load(path) if os.path.isfile(path) and is_npz(path) else replay(path)


def _in_folder(path: Path) -> Path:
    """Return the only recording in a folder. Files, and bags with `metadata.yaml`, are returned as they are.

    Raises:
        ModelError: the folder has no recording or several.
    """
    if not os.path.isdir(path) or (path / "metadata.yaml").exists():
        return path
    found = sorted(each for each in path.iterdir() if each.suffix.lower() in SUFFIXES)
    if len(found) == 1:
        return found[0]
    found = found or sorted(path.iterdir())
    raise ModelError(
        f"recording {os.fspath(path)!r} is a folder without metadata.yaml, expected one file in it that ends in "
        f"{', '.join(SUFFIXES)}, got {listed((each.name for each in found), 8)}. Give the path of a file."
    )


def replay(path: str | os.PathLike[str]) -> Replay:
    """Open a recording.

    ``for reading in sn.replay("run.mcap")`` yields its readings. `Replay` describes parts of it, pacing and other
    contents. ROS 2 bags of other programs open too: MCAP and SQLite files, and folders.

    Args:
        path: a file that `Scene.record` wrote, a bag, or a folder with one of them.

    Raises:
        ModelError: the file is missing, is neither a recording nor a bag, or is damaged.
        MissingDependencyError: the extra `record` is not installed; bags need the extra `bags`.
    """
    from sensorium.record.bags import BagReplay

    path = _in_folder(Path(path))
    if os.path.isdir(path) or path.suffix.lower() == ".db3":
        return BagReplay(path)
    try:
        return Replay(path)
    except NoRecordingError as error:
        try:
            return BagReplay(path)
        except ModelError as reason:
            raise NoRecordingError(f"{str(error).removesuffix('.')}, and {reason}") from None
