"""Data sets of LeRobot, layout v3.0: frames at a constant rate, one episode after the other.

The frame at a time holds the measured values that a policy would have read then. Small fields of all sensors together
are `observation.state`, unless vectors of chosen sensors are requested. Images of 8 bits, and of distances in mm as
PNG files of 16 bits, are `observation.images.SENSOR`. Other fields are `observation.SENSOR.FIELD`. Each environment has
its own episodes.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple, Protocol

import numpy as np

from sensorium.errors import ArgumentError, UnknownNameError, shown
from sensorium.readings import Array, Reading
from sensorium.record.export.images import is_depth, is_image, write_png
from sensorium.record.export.lerobot_files import OUTDATED, Column, DatasetFiles, Feature, OpenColumn
from sensorium.record.export.table_files import TableField
from sensorium.record.replay import Mark
from sensorium.record.staging import staged
from sensorium.spec import FieldSpec

STATE_COLUMNS = 128
"""Maximum number of elements of a field in `observation.state`."""
ACTIONS, REWARDS, CONTROL = ("action", "actions"), ("reward", "rewards"), "control"
"""Names of logs that become `action` and `next.reward`; the controls are the action where no action was logged."""
MAX_AXES = 5
"""Maximum number of axes of a feature."""
NO_TASK = "no task"
"""Task of frames before the first mark with a task."""
MAX_DEPTH = 2**16 - 1
"""Greatest distance in a PNG file, mm; 0 means that there is none."""


class Vector(NamedTuple):
    """Chosen contents of one feature.

    Attributes:
        names: sensors, or fields as ``SENSOR.FIELD``.
        captures: number of newest captures in an episode whose values the feature holds one after the other, oldest
            first. The first capture is repeated until there are as many.
    """

    names: tuple[str, ...]
    captures: int = 1

    @classmethod
    def parse(cls, text: str) -> tuple[str, Vector]:
        """Return name and contents of ``NAME=SENSOR,SENSOR.FIELD`` or, for a window of captures, ``NAME=SENSOR:COUNT``.

        Raises:
            ArgumentError: it is another text.
        """
        parts = re.fullmatch(r"([\w.]+)=([^,:=]+(?:,[^,:=]+)*)(?::([1-9]\d*))?", text)
        if parts is None:
            raise ArgumentError(f"feature: got {text!r}, expected NAME=SENSOR,SENSOR.FIELD or NAME=SENSOR:COUNT.")
        return parts[1], cls(tuple(parts[2].split(",")), int(parts[3] or 1))


def write_lerobot(
    readings: Iterable[Reading], folder: str | os.PathLike[str], *, dt: float, period: float, sensors: Iterable[str],
    logs: Mapping[str, Iterable[Reading]] | None = None, marks: Iterable[Mark] = (), first_tick: int = 0,
    env: int | None = None, clock: str = "", features: Mapping[str, Vector] | None = None,
    names: Mapping[str, Sequence[str]] | None = None, video: bool = False,
) -> list[str]:  # fmt: skip
    """Write readings as a data set of LeRobot.

    An action belongs to the frame from which it takes effect. If the first one was logged at `first_tick`, actions were
    logged before the step, otherwise after it. A reward belongs to the frame before it; rewards between two frames are
    summed. An episode ends at a mark ``"episode"`` of its environment, and a mark ``"task"`` sets the task.

    Args:
        readings: readings of any sensors, in the order of time.
        folder: folder of the data set; created if missing.
        dt: physics time step, s.
        period: time between two frames, ticks; a frame between two ticks is made at the later one.
        sensors: names of the sensors; the first frame is at the first time at which all of them have a reading.
        logs: name -> logged values; see `ACTIONS`, `REWARDS` and `CONTROL`.
        marks: marks of the recording.
        first_tick: tick at which the recording starts.
        env: the environment; None for all.
        clock: sensor whose readings make one frame each, whose times may vary, instead of a fixed period.
        features: name -> float32 vector ``observation.NAME`` of values of some sensors, or ``action``. Their fields are
            in no other feature. If ``state`` is among them, the other small fields of a sensor are a vector
            ``observation.SENSOR``.
        names: sensor or log -> names of its joints or actuators, which become names of elements.
        video: write images of 8 bits as H.264 instead of PNG files.

    Returns:
        One message for everything that the layout cannot hold.

    Raises:
        ArgumentError: there is no frame, or no reading contains the environment.
        UnknownNameError: a feature is of an unknown sensor or field.
        MissingDependencyError: pyarrow is not installed, or Pillow or PyAV, which images need.
    """
    rate = 1.0 / (period * dt)
    with staged(folder, *OUTDATED) as root:
        files = DatasetFiles(root, fps_of(rate, 1e-3 if clock else 1e-6))
        layout = FeatureLayout(features, names, video)
        frames = _Frames(files, period, set(sensors), logs or {}, list(marks), first_tick, env, clock, layout)
        for reading in readings:
            frames.advance(reading.tick)
            frames.take(reading)
        frames.finish()
        return frames.notes


def period_of(ticks: Sequence[int], dt: float) -> float:
    """Return the period of values that were logged at some ticks, ticks; 0 with less than two.

    The period of a loop whose rate does not divide that of the ticks alternates between two numbers of ticks. It is
    their mean, or the period of a whole number of values per second that is equal to within a tick over all values.

    Args:
        ticks: the ticks, rising.
        dt: physics time step, s.
    """
    steps = np.diff(np.unique(ticks))
    steps = steps[np.abs(steps - np.median(steps)) <= 1.0] if len(steps) else steps  # without pauses
    if not len(steps) or not np.ptp(steps):
        return float(steps.max(initial=0))
    whole = 1.0 / (max(round(1.0 / (steps.mean() * dt)), 1) * dt)
    return float(whole if abs(whole - steps.mean()) * len(steps) <= 1.0 else steps.mean())


@dataclass(slots=True)
class _Episode:
    """Frames of the open episode of one environment."""

    columns: dict[str, OpenColumn] = field(default_factory=dict)
    ticks: list[int] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)


class _Log:
    """Logged values, by tick."""

    def __init__(self, readings: Iterable[Reading]) -> None:
        found = list(readings)
        self.ticks = np.array([reading.tick for reading in found], np.int64)
        self.values = np.stack([reading["value"] for reading in found]) if found else np.zeros((0, 0))
        self.width = self.values[0, 0].size if found else 0


class _Frames:
    """Frames of all environments, made from readings in the order of time."""

    def __init__(
        self, files: DatasetFiles, period: float, sensors: set[str], logs: Mapping[str, Iterable[Reading]],
        marks: Sequence[Mark], first_tick: int, env: int | None, clock: str, layout: FeatureLayout,
    ) -> None:  # fmt: skip
        self._files, self._period, self._sensors, self._env, self._clock = files, period, sensors, env, clock
        self._layout = layout
        self._histories: dict[str, _CaptureHistory] = {}
        self._logs = {name: _Log(values) for name, values in logs.items()}
        logged = () if "action" in layout.features else (*ACTIONS, CONTROL)
        self._action = next((name for name in logged if name in self._logs), "")
        self._reward = next((name for name in REWARDS if name in self._logs), "")
        log = self._logs.get(self._action)
        self._leads = log is None or self._action == CONTROL or bool((log.ticks[:1] <= first_tick).any())
        """Whether the action of a frame was logged at its tick instead of at the end of its step."""
        self._marks = sorted((mark for mark in marks if mark.name in ("episode", "task")), key=lambda mark: mark.tick)
        self._newest: dict[str, Reading] = {}
        self._specs: dict[str, tuple[FieldSpec, ...]] = {}
        self._sources: list[FeatureSource] = []
        self._omitted: list[str] = []
        self._envs: Array = np.zeros(0, np.int64)
        self._rows: Array = np.zeros(0, np.int64)
        self._first: Array = np.zeros(0, np.int64)
        """Tick of the first frame of the open episode of each environment."""
        self._next: Array = np.zeros(0, np.int64)
        """Tick of the next frame of each environment."""
        self._tasks: list[str] = []
        self._open: list[_Episode] = []
        self._last = 0
        self.notes = [
            f"log {name}: LeRobot holds an action and a reward"
            for name in self._logs
            if name not in (self._action, self._reward, CONTROL)
        ]

    def take(self, reading: Reading) -> None:
        """Note the newest reading of a sensor."""
        if not len(self._envs):
            self._start(reading)
        if reading.name not in self._specs and (history := self._layout.history(reading.name, reading.specs)):
            self._histories[reading.name] = history
        known = self._specs.setdefault(reading.name, reading.specs)
        if known != reading.specs:
            text = f"{reading.name}: readings after its config changed"
            self.notes += [text] if text not in self.notes else []
            return
        self._newest[reading.name], self._last = reading, reading.tick
        if reading.name in self._histories:
            self._histories[reading.name].take(reading)
        if reading.name == self._clock and self._sensors <= self._newest.keys():
            self._make(reading.tick, np.arange(len(self._envs)))

    def _start(self, reading: Reading) -> None:
        self._envs = reading.env_ids if self._env is None else reading.env_ids[reading.env_ids == self._env]
        if not len(self._envs):
            known = reading.env_ids.tolist()
            raise ArgumentError(f"env: got {shown(self._env)}, expected one of the recorded environments {known}.")
        self._rows = np.flatnonzero(np.isin(reading.env_ids, self._envs))
        self._first = np.full(len(self._envs), reading.tick, np.int64)
        self._next = self._first.copy()
        self._tasks = [NO_TASK] * len(self._envs)
        self._open = [_Episode() for _ in self._envs]
        self._marks = [mark for mark in self._marks if mark.name == "task" or mark.tick > reading.tick]

    # Time -------------------------------------------------------------------------------------------------------------

    def advance(self, tick: int) -> None:
        """Make the frames before a tick, unless readings make them."""
        if self._clock:
            return
        if len(self._next) and not self._sensors <= self._newest.keys():
            self._first[:] = self._next[:] = tick
        while len(self._next):
            due = int(self._next.min())
            if self._marks and self._marks[0].tick <= min(due, tick):
                self._follow(self._marks.pop(0))
                continue
            if due >= tick:
                return
            self._make(due, np.flatnonzero(self._next == due))

    def _follow(self, mark: Mark) -> None:
        for number in np.flatnonzero(np.isin(self._envs, mark.env_ids)).tolist():
            if mark.name == "task":
                self._tasks[number] = mark.value or NO_TASK
            else:
                self._close(number, mark.tick)
                self._first[number] = self._next[number] = mark.tick

    def finish(self) -> None:
        """Make the frames before the last tick, and complete the files."""
        self.advance(self._last)
        for number in range(len(self._open)):
            self._close(number, self._last)
        if not self._files.frames:
            raise ArgumentError(
                "readings: got no complete frame, expected at least one. Record for longer, or export more of it."
            )
        self._files.close()
        self.notes += self._omitted

    # Frames -----------------------------------------------------------------------------------------------------------

    def _make(self, tick: int, numbers: Array) -> None:
        """Make the frame of some environments at a tick."""
        for number in numbers.tolist():
            made_before = len(self._open[number].tasks)
            self._next[number] = self._first[number] + ceil((made_before + 1) * self._period - 1e-6)
        if not self._sources:
            self._sources, self._omitted = sources_of(self._specs, self._layout, self._histories)
        rows = self._rows[numbers]
        made = {source.feature.name: source.values(self._newest, rows) for source in self._sources}
        if self._action:
            made["action"] = self._acting(self._logs[self._action], tick)[rows]
        for place, number in enumerate(numbers.tolist()):
            episode = self._open[number]
            if not episode.columns:
                episode.columns = {source.feature.name: self._files.column(source.feature) for source in self._sources}
                episode.columns |= {"action": []} if self._action else {}
            for name, values in made.items():
                episode.columns[name].append(values[place])
            episode.ticks.append(tick)
            episode.tasks.append(self._tasks[number])

    def _acting(self, log: _Log, tick: int) -> Array:
        """Return the action of the frame at a tick, float32 `[env, column]`."""
        after = int(np.searchsorted(log.ticks, tick, "right"))  # the first one logged later
        place = min(max(after - int(self._leads), 0), len(log.ticks) - 1)
        values: Array = log.values[place].reshape(len(log.values[place]), -1).astype(np.float32)
        return values

    def _close(self, number: int, tick: int) -> None:
        """Write the open episode of an environment that ends at a tick."""
        episode, self._open[number] = self._open[number], _Episode()
        if not episode.tasks:
            return
        ticks = np.array(episode.ticks, np.int64)
        columns: dict[str, Any] = {**episode.columns}
        features = {source.feature.name: source.feature for source in self._sources}
        if self._action:
            features["action"] = action_of(self._logs[self._action].width, self._layout.names.get(self._action))
        if self._reward:
            log = self._logs[self._reward]
            row = self._rows[number]
            totals = np.concatenate(
                ([0.0], np.cumsum(log.values.reshape(len(log.ticks), -1, log.width)[:, row].sum(1)))
            )
            bounds = np.searchsorted(log.ticks, np.append(ticks, tick), "right")
            features["next.reward"] = Feature("next.reward", "float32", (1,))
            columns["next.reward"] = list(np.diff(totals[bounds]).astype(np.float32))
        features["next.done"] = DONE
        columns["next.done"] = [False] * (len(ticks) - 1) + [True]
        self._files.add(features, columns, episode.tasks)


# Sources --------------------------------------------------------------------------------------------------------------


class FeatureSource(Protocol):
    """Source of the values of a feature."""

    feature: Feature

    def values(self, newest: Mapping[str, Reading], rows: Array) -> Column:
        """Return the values of the environments in some rows."""


class FeatureLayout:
    """Options of the features; see `write_lerobot`."""

    def __init__(
        self, features: Mapping[str, Vector] | None = None, names: Mapping[str, Sequence[str]] | None = None,
        video: bool = False,
    ) -> None:  # fmt: skip
        self.features, self.names, self.video = features or {}, names or {}, video
        self.chosen = {item: name for name, vector in self.features.items() for item in vector.names}
        """Sensor, or field as ``SENSOR.FIELD`` -> its feature."""

    def item(self, sensor: str, spec: FieldSpec) -> str:
        """Return the item of `chosen` that contains a field; empty if there is none."""
        if spec.is_ragged or is_image(spec) or is_depth(spec):
            return ""
        return next((text for text in (f"{sensor}.{spec.name}", sensor) if text in self.chosen), "")

    def history(self, sensor: str, specs: Iterable[FieldSpec]) -> _CaptureHistory | None:
        """Return a history of the fields of a sensor of which features hold several captures; None without any."""
        items = {spec.name: item for spec in specs if (item := self.item(sensor, spec))}
        counts = {name: self.features[self.chosen[item]].captures for name, item in items.items()}
        return _CaptureHistory(max(counts.values()), list(counts)) if max(counts.values(), default=1) > 1 else None


def sources_of(
    specs: Mapping[str, Sequence[FieldSpec]], layout: FeatureLayout | None = None,
    histories: Mapping[str, _CaptureHistory] | None = None,
) -> tuple[list[FeatureSource], list[str]]:  # fmt: skip
    """Return the source of each feature, and a list of messages about fields, to which sources add.

    Args:
        specs: sensor -> specs of its fields.
        layout: options of the features; None for the default ones.
        histories: sensor -> its newest captures, for features that hold several.

    Raises:
        UnknownNameError: a feature is of an unknown sensor or field.
    """
    layout = layout or FeatureLayout()
    vectors: dict[str, list[tuple[str, FieldSpec]]] = {name: [] for name in layout.features}
    vectors.setdefault("state", [])
    found: list[FeatureSource] = []
    notes: list[str] = []
    used: set[str] = set()
    for name, each in specs.items():
        for spec in each:
            item = layout.item(name, spec)
            if spec.is_ragged:
                notes.append(f"{name}: {spec.name} differs in length from frame to frame")
            elif is_image(spec) or is_depth(spec):
                found += _images(name, spec, layout.video, notes)
            elif not spec.columns:
                continue
            elif item:
                vectors[layout.chosen[item]].append((name, spec))
                used.add(item)
            elif spec.columns <= STATE_COLUMNS and spec.axes != ("lla",):
                vector = _key(name) if "state" in layout.features else "state"
                vectors.setdefault(vector, []).append((name, spec))
            else:
                found.append(_Array(name, spec))
    if unknown := layout.chosen.keys() - used:
        raise UnknownNameError("sensor or field with numbers", min(unknown), specs)
    sources = [_VectorSource(name, fields, layout, histories or {}) for name, fields in vectors.items() if fields]
    return [*sources, *found], notes


def action_of(width: int, names: Sequence[str] | None = None) -> Feature:
    """Return the feature of the action, float32 `[width]`.

    Args:
        width: number of its elements.
        names: names of the actuators; None for numbers.
    """
    return Feature("action", "float32", (width,), list(names or (f"action.{k}" for k in range(width))))


def fps_of(rate: float, tolerance: float = 1e-6) -> float:
    """Return a number of frames per second, as a whole number if it differs by less than a relative tolerance."""
    return round(rate) if abs(rate - round(rate)) < tolerance * rate else rate


DONE = Feature("next.done", "bool", (1,))


class _CaptureHistory:
    """Newest captures of a sensor in the open episode of each environment.

    Args:
        count: number of captures.
        fields: names of the fields whose values are kept.
    """

    def __init__(self, count: int, fields: Sequence[str]) -> None:
        self._count, self._fields = count, fields
        self._captures: Array = np.zeros(0, np.int64)
        self._ticks: Array = np.zeros(0, np.int64)
        self._values: dict[str, Array] = {}

    def take(self, reading: Reading) -> None:
        """Add the captures that are new; the first one of an episode replaces all earlier ones."""
        values = {name: reading[name] for name in self._fields}
        ticks, captures = reading.capture_tick, reading.captures
        if not self._values:
            self._values = {name: np.repeat(each[:, None], self._count, axis=1) for name, each in values.items()}
        else:
            new = (ticks != self._ticks) | (captures != self._captures)
            starts = new & (captures <= self._captures)
            for name, known in self._values.items():
                known[new, :-1] = known[new, 1:]
                known[new, -1] = values[name][new]
                known[starts] = values[name][starts, None]
        self._ticks, self._captures = ticks, captures

    def values(self, name: str, rows: Array) -> Array:
        """Return the captures of a field of the environments in some rows, `[row, count, ...]`, oldest first."""
        return self._values[name][rows]


class _VectorSource:
    """Fields of one or more sensors together, of one capture or of several, oldest first."""

    def __init__(
        self,
        name: str,
        fields: Sequence[tuple[str, FieldSpec]],
        layout: FeatureLayout,
        histories: Mapping[str, _CaptureHistory],
    ) -> None:
        self._fields, self._histories = fields, histories
        self._count = layout.features[name].captures if name in layout.features else 1
        names = [
            f"{sensor}{age}.{column}"
            for age in ([""] if self._count == 1 else [f"[{k}]" for k in range(1 - self._count, 1)])
            for sensor, spec in fields
            for column in _columns(spec, layout.names.get(sensor))
        ]
        dtype = "float64" if any(spec.axes == ("lla",) for _, spec in fields) else "float32"  # 1 m in float32
        self.feature = Feature(name if name == "action" else f"observation.{name}", dtype, (len(names),), names)

    def values(self, newest: Mapping[str, Reading], rows: Array) -> Column:
        """Return the values of the environments in some rows."""
        parts = []
        for sensor, spec in self._fields:
            if self._count == 1:
                captures = newest[sensor][spec.name][rows]
            else:
                captures = self._histories[sensor].values(spec.name, rows)[:, -self._count :]
            parts.append(captures.reshape(len(rows), self._count, -1).astype(self.feature.dtype))
        return np.concatenate(parts, axis=2).reshape(len(rows), -1)


def _columns(spec: FieldSpec, joints: Sequence[str] | None) -> list[str]:
    """Return the names of the elements of a field, with the joints if they are its only axis."""
    if joints is not None and spec.shape == (len(joints),) and spec.axes == ("joint",):
        return [f"{spec.name}.{joint}" for joint in joints]
    return TableField(spec.name, spec.dtype, spec.axes, spec.shape).columns


class _Array:
    """One field of one sensor."""

    def __init__(self, sensor: str, spec: FieldSpec) -> None:
        self._sensor, self._field = sensor, spec.name
        dtype = "float32" if spec.dtype == "float16" else spec.dtype
        shape = spec.shape or (1,)
        self._shape = shape if len(shape) <= MAX_AXES else (spec.columns,)
        self.feature = Feature(_key(f"observation.{sensor}.{spec.name}"), dtype, self._shape)

    def values(self, newest: Mapping[str, Reading], rows: Array) -> Column:
        """Return the values of the environments in some rows."""
        return newest[self._sensor][self._field][rows].reshape(len(rows), *self._shape).astype(self.feature.dtype)


class _Image:
    """Images of one camera: of 8 bits as PNG files or raw for a video, distances as PNG files of 16 bits."""

    def __init__(self, sensor: str, spec: FieldSpec, mount: int | None, video: bool, notes: list[str]) -> None:
        self._sensor, self._field, self._mount, self._is_depth = sensor, spec.name, mount, is_depth(spec)
        height, width, channels = spec.squeezed().shape
        name = f"observation.images.{sensor}" + ("" if spec.name in ("rgb", "image") else f".{spec.name}")
        name += "" if mount is None else f".{mount}"
        self._is_video = video and not self._is_depth
        shape = height, width, 3 if self._is_video else min(channels, 3)
        info = {"is_depth_map": True, "depth_unit": "mm"} if self._is_depth else None
        dtype = "video" if self._is_video else "image"
        self.feature = Feature(_key(name), dtype, shape, ["height", "width", "channels"], info)
        self._notes = notes
        self._encoded: dict[int, tuple[tuple[int, int], bytes]] = {}
        """Environment -> capture and file of its newest image."""

    def values(self, newest: Mapping[str, Reading], rows: Array) -> Column:
        """Return the files, or for a video the pixels, of the environments in some rows."""
        reading, found = newest[self._sensor], list[Any]()
        for row in rows.tolist():
            pixels = reading[self._field][row]
            pixels = pixels if self._mount is None else pixels[self._mount]
            if self._is_video:
                found.append(pixels)
                continue
            capture = int(reading.capture_tick[row]), int(reading.captures[row])
            env = int(reading.env_ids[row])
            known = self._encoded.get(env)
            if known is None or known[0] != capture:
                known = self._encoded[env] = (
                    capture,
                    _png(self._millimetres(pixels) if self._is_depth else pixels[..., :3]),
                )
            found.append(known[1])
        return found

    def _millimetres(self, depth: Array) -> Array:
        """Return distances in m as uint16 in mm; 0 without one, and `MAX_DEPTH` for greater ones."""
        is_hit = np.isfinite(depth)
        if (depth[is_hit] * 1e3 >= MAX_DEPTH + 0.5).any():
            note = f"{self._sensor}: distances above {MAX_DEPTH / 1e3} m, which are saved as {MAX_DEPTH / 1e3} m"
            self._notes += [note] if note not in self._notes else []
        return np.where(is_hit, np.clip(np.rint(depth * 1e3), 0, MAX_DEPTH), 0).astype(np.uint16)


def _images(sensor: str, spec: FieldSpec, video: bool, notes: list[str]) -> list[_Image]:
    """Return one source per mount."""
    mounts = range(spec.shape[0]) if spec.axes[0] == "mount" else (None,)
    return [_Image(sensor, spec, mount, video, notes) for mount in mounts]


def _key(name: str) -> str:
    """Return a name without slashes, which LeRobot does not allow."""
    return name.replace("/", ".")


def _png(pixels: Array) -> bytes:
    out = io.BytesIO()
    write_png(out, pixels)
    return out.getvalue()
