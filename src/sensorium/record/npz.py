"""Recording of readings in one `.npz` file, which is readable with NumPy alone.

For each sensor NAME, with one row per event (a capture, or the arrival of a delayed sample, in any env):

    NAME/measured/FIELD     [row, env, ...]  value read at that time; delayed if the sensor has a delay
    NAME/truth/FIELD        [row, env, ...]  ground truth at the newest capture; never delayed
    NAME/time               [row]            time of the event, s
    NAME/capture_time       [row, env]       capture time of the measured value, s
    NAME/truth_time         [row, env]       capture time of the truth, s
    NAME/valid              [row, env]       whether the measured value had arrived and the engine's state was finite
    NAME/stamp              [row, env]       time by the sensor's own clock, s
    NAME/env_ids            [env]
    description             JSON: engine, dt, seed, and per sensor its kind, rate, field specs and config

Fields with an event axis are ragged: all events one after the other, `[event, ...]`, and

    NAME/offsets            [row, env + 1]   first event of each row and env; the last column is the end

NAME and FIELD are as in the description, except for characters and words that a key cannot hold, see `archive.key_of`.

With a delay, measured and true value of one row belong to different captures; `SensorRecording.paired` aligns them.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sensorium.errors import ModelError, SensoriumWarning, UnknownNameError
from sensorium.readings import Array, Reading, SceneDescription
from sensorium.record.archive import Archive, check_regular, key_of, name_of, open_archive
from sensorium.record.staging import staged
from sensorium.spec import FieldSpec

_PARTS = ("env_ids", "time", "capture_time", "truth_time", "valid", "stamp")
_BRANCHES = ("measured", "truth")


@dataclass(frozen=True, slots=True)
class SensorRecording:
    """The samples of one sensor; see the module for the meaning of rows.

    Attributes:
        name: the sensor's name.
        info: its part of the description: ``kind``, ``rate_hz``, ``fields``, ``cfg``.
        env_ids: int64 [env].
        time: float64 [row], s.
        capture_time: float64 [row, env], s.
        truth_time: float64 [row, env], s.
        valid: bool [row, env].
        measured: field -> [row, env, ...].
        truth: field -> [row, env, ...].
        stamp: float64 [row, env], timestamp of the measured value by the sensor's own clock, s.
        offsets: int64 [row, env + 1], first event of each row and env in ragged fields; None without them.
    """

    name: str
    info: Mapping[str, Any]
    env_ids: Array
    time: Array
    capture_time: Array
    truth_time: Array
    valid: Array
    measured: Mapping[str, Array]
    truth: Mapping[str, Array]
    stamp: Array
    offsets: Array | None = None

    def events(self, row: int, env: int = 0) -> slice:
        """Return the range of events of one row and env (by column) in ragged fields.

        Raises:
            TypeError: the sensor has no ragged field.
        """
        if self.offsets is None:
            raise TypeError(f"recording of {self.name!r}: it has no fields with an event axis")
        return slice(int(self.offsets[row, env]), int(self.offsets[row, env + 1]))

    @property
    def age(self) -> Array:
        """float64 [row, env], age of the measured value at the time of the event, s."""
        age: Array = self.time[:, None] - self.capture_time
        return age

    def captures(self, env: int = 0) -> Array:
        """Return the rows with a new capture of the truth in one env (by column)."""
        return _changes(self.truth_time[:, env])

    def arrivals(self, env: int = 0) -> Array:
        """Return the rows with the arrival of a new valid sample in one env (by column)."""
        rows = _changes(np.where(self.valid[:, env], self.capture_time[:, env], -np.inf))
        valid: Array = rows[self.valid[rows, env]]
        return valid

    def paired(self, name: str, env: int = 0) -> tuple[Array, Array, Array]:
        """Return capture times [n], measured and true values [n, ...] of the same captures, in one env (by column).

        Samples that were lost or have not arrived are omitted.
        """
        arrivals, captures = self.pairs(env)
        return self.capture_time[arrivals, env], self.measured[name][arrivals, env], self.truth[name][captures, env]

    def pairs(self, env: int = 0) -> tuple[Array, Array]:
        """Return the rows of measured and of true values, `[n]` each, for the same captures of one env.

        They are the last rows of each capture: a reset replaces a capture that was made at the same tick.
        """
        captures = _ends(self.truth_time[:, env])
        arrivals = _ends(np.where(self.valid[:, env], self.capture_time[:, env], -np.inf))
        arrivals = arrivals[self.valid[arrivals, env]]
        _, left, right = np.intersect1d(
            self.capture_time[arrivals, env], self.truth_time[captures, env], return_indices=True
        )
        return arrivals[left], captures[right]

    def between(self, start: float = -math.inf, end: float = math.inf) -> SensorRecording:
        """Return the rows of a time span, s; they share memory with this recording."""
        first, last = np.searchsorted(self.time, [start, end + 1e-9]).tolist()
        rows = slice(first, last)
        ragged = {spec["name"] for spec in self.info.get("fields", ()) if spec["axes"][1:2] == ["event"]}
        events, offsets = slice(0, 0), self.offsets
        if offsets is not None:
            offsets = offsets[rows]
            events = slice(int(offsets[0, 0]), int(offsets[-1, -1])) if last > first else events
            offsets = offsets - events.start
        measured, truth = (
            {name: values[events if name in ragged else rows] for name, values in branch.items()}
            for branch in (self.measured, self.truth)
        )
        return replace(
            self, time=self.time[rows], capture_time=self.capture_time[rows], truth_time=self.truth_time[rows],
            valid=self.valid[rows], stamp=self.stamp[rows], measured=measured, truth=truth, offsets=offsets,
        )  # fmt: skip


def _ends(values: Array) -> Array:
    """Return the indices after which a sequence changes, including the last."""
    return np.flatnonzero(np.concatenate((np.not_equal(values[1:], values[:-1]), [len(values) > 0])))


def _changes(values: Array) -> Array:
    """Return the indices at which a sequence changes, including the first."""
    return np.flatnonzero(np.concatenate(([len(values) > 0], np.not_equal(values[1:], values[:-1]))))


@dataclass(frozen=True, slots=True)
class Recording(Mapping[str, SensorRecording]):
    """Recorded run: name -> `SensorRecording`, with the description of its scene."""

    description: Mapping[str, Any]
    sensors: Mapping[str, SensorRecording]

    def __getitem__(self, name: str) -> SensorRecording:
        if name not in self.sensors:
            raise UnknownNameError("recorded sensor", name, self.sensors)
        return self.sensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.sensors)

    def __len__(self) -> int:
        return len(self.sensors)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one `.npz` file atomically and return its path; missing folders are created.

        A link to a file is kept, and its target is written.

        Raises:
            ModelError: the file cannot be written, or is not a regular file.
        """
        arrays: dict[str, Array] = {"description": np.array(json.dumps(self.description))}
        for name, sensor in self.sensors.items():
            key = key_of(name)
            arrays |= {f"{key}/{part}": getattr(sensor, part) for part in _PARTS}
            if sensor.offsets is not None:
                arrays[f"{key}/offsets"] = sensor.offsets
            for branch in _BRANCHES:
                values: Mapping[str, Array] = getattr(sensor, branch)
                arrays |= {f"{key}/{branch}/{key_of(each, slashes=False)}": value for each, value in values.items()}
        try:
            if Path(path).exists():
                check_regular(Path(path))
            whole = Path(path).resolve()
            with staged(whole.parent) as root, open(root / whole.name, "wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
        except ModelError:
            raise
        except (OSError, RuntimeError, TypeError, ValueError) as error:  # links in a circle, bytes, zero bytes
            reason = getattr(error, "strerror", None) or error
            raise ModelError(f"recording {path!r} cannot be written: {reason}. Give another path.") from error
        return Path(path)


def load(path: str | os.PathLike[str]) -> Recording:
    """Return the recording in a file written by `NpzRecorder.save`.

    Raises:
        ModelError: the file is missing, damaged, not a recording, or larger than the available memory.
    """
    with open_archive(path) as archive:
        text = archive.text("description")
        try:
            description = json.loads(text)
            described = {str(name): dict(info) for name, info in description["sensors"].items()}
        except Exception as error:  # any error that json or a description of another shape may cause
            raise archive.error("description", f"{type(error).__name__}: {error}") from error
        places = {name: _places(archive, name) for name in described}
        archive.check_size([key for keys in places.values() for key in keys.values()])
        sensors = {}
        for name, keys in places.items():
            if keys:  # otherwise the sensor is described, but was never recorded
                sensors[name] = _recorded(archive, name, description["sensors"][name], keys)
    return Recording(description, sensors)


def _places(archive: Archive, name: str) -> dict[str, str]:
    """Return part -> key of the arrays of one sensor, with matching shapes; for fields ``"measured/FIELD"``.

    Raises:
        ModelError: an array is missing, or its shape or type does not match the others.
    """
    key, own = key_of(name), len(key_of(name)) + 1
    found: dict[str, str] = {}
    for member in archive.members:
        part = member[own:] if member.startswith(f"{key}/") else ""
        branch, _, rest = part.partition("/")
        if part in (*_PARTS, "offsets"):
            found[part] = member
        elif branch in _BRANCHES and rest and "/" not in rest:
            found[f"{branch}/{name_of(rest)}"] = member
    if not found:
        return found
    for part in _PARTS:
        if part not in found:
            raise archive.error(f"{key}/{part}", "it is missing")
    rows, envs = archive.members[found["time"]].shape[:1], archive.members[found["env_ids"]].shape[:1]
    wanted = {"env_ids": (envs, "iu"), "time": (rows, "f"), "valid": (rows + envs, "b")}
    wanted |= dict.fromkeys(("capture_time", "truth_time", "stamp"), (rows + envs, "f"))
    wanted["offsets"] = (*rows, sum(envs) + 1), "iu"
    for part, member in found.items():
        shape, dtype = archive.members[member].shape, archive.members[member].dtype
        if part in wanted:
            expected, kinds = wanted[part]
            fits = shape == expected and dtype.kind in kinds
        else:  # a field: all events in sequence, or a value per row and env
            expected = rows + envs
            fits = dtype.kind in "biuf" and (shape[:2] == expected or (bool(shape) and "offsets" in found))
        if not fits:
            raise archive.error(member, f"it holds {dtype} {list(shape)}, which does not fit [row, env] = {expected}")
    return found


def _recorded(archive: Archive, name: str, info: Mapping[str, Any], keys: Mapping[str, str]) -> SensorRecording:
    """Return the recording of one sensor."""
    recording = _of_parts(name, info, {part: archive.read(key) for part, key in keys.items()})
    offsets = recording.offsets
    if offsets is not None:
        fields = (*recording.measured.values(), *recording.truth.values())
        events = min((len(each) for each in fields if each.shape[:2] != recording.valid.shape), default=None)
        ends = [0, *offsets.reshape(-1).tolist(), *([] if events is None else [events])]
        if any(first > second for first, second in pairwise(ends)):
            raise archive.error(keys["offsets"], "its numbers do not increase from 0 to the number of events")
    return recording


def _of_parts(name: str, info: Mapping[str, Any], parts: Mapping[str, Array]) -> SensorRecording:
    """Return the recording of one sensor from its arrays; those of fields are named ``"measured/FIELD"``."""
    measured, truth = (
        {part.partition("/")[2]: values for part, values in parts.items() if part.startswith(f"{branch}/")}
        for branch in _BRANCHES
    )
    env_ids, time, captures, truths, valid, stamp = (parts[part] for part in _PARTS)
    offsets = parts.get("offsets")
    return SensorRecording(name, info, env_ids, time, captures, truths, valid, measured, truth, stamp, offsets)


@dataclass(slots=True)
class _Track:
    """Recorded data of one sensor, of readings with the same fields."""

    specs: tuple[FieldSpec, ...]
    has_truth: bool
    env_ids: Array
    rows: Array
    columns: dict[str, list[Array]] = field(default_factory=dict)
    state: dict[str, Array] = field(default_factory=dict)
    """Content of the last added row; a reading with the same content is skipped."""
    events: int = 0
    """Number of rows of ragged fields so far."""

    def __len__(self) -> int:
        return len(self.columns.get("tick", ()))


def _described(tracks: list[_Track], info: Mapping[str, Any]) -> _Track:
    """Return the readings with the described fields; the most numerous ones if there are none."""
    specs = tuple(FieldSpec.from_dict(each) for each in info.get("fields", ()))
    return max(tracks, key=lambda track: (track.specs == specs, len(track)))


class NpzRecorder:
    """Recorder that collects readings and writes them as one `.npz` file.

    Add a reading at every tick with a capture: with ``cursor = scene.sample_cursor()``, call
    ``scene.publish(since=cursor)`` after each tick. To record arrivals of delayed samples, also add readings at the
    ticks in between. A reading without new samples is skipped. Where the fields of a sensor change, the recording has
    the readings with the fields in the description.

    Args:
        max_envs: number of recorded environments, from the first; None records all.
        max_bytes: maximum memory; when it is reached, a warning is issued and recording stops.
    """

    def __init__(self, *, max_envs: int | None = 64, max_bytes: int = 2**30) -> None:
        self.max_envs = max_envs
        self.max_bytes = max_bytes
        self.nbytes = 0
        self.is_full = False
        """Whether `max_bytes` was reached and readings were omitted."""
        self._tracks: dict[str, list[_Track]] = {}

    def __len__(self) -> int:
        """Return the number of rows of all sensors together."""
        return sum(len(track) for tracks in self._tracks.values() for track in tracks)

    def add_all(self, readings: Mapping[str, Reading] | Iterable[Reading]) -> None:
        """Add several readings, e.g. the result of `scene.publish()`."""
        for reading in readings.values() if isinstance(readings, Mapping) else readings:
            self.add(reading)

    def add(self, reading: Reading) -> None:
        """Add a reading if it has new data for a recorded env."""
        if self.is_full:
            return
        tracks, fields = self._tracks.setdefault(reading.name, []), (reading.specs, bool(reading.truth))
        track = next((each for each in tracks if (each.specs, each.has_truth) == fields), None)
        if track is None:
            rows = np.arange(len(reading.env_ids))
            if self.max_envs is not None:
                rows = rows[: self.max_envs]
            track = _Track(*fields, reading.env_ids[rows].copy(), rows)
            tracks.append(track)
        rows = track.rows
        state = {name: reading.meta[name][rows] for name in ("frame", "capture_tick", "truth_tick", "valid")}
        if track.state and all(np.array_equal(value, track.state[name]) for name, value in state.items()):
            return
        track.state = state
        row: dict[str, Array] = {"tick": np.array(reading.tick), **state}
        row.pop("frame")
        row["stamp"] = reading.stamp[rows]
        ragged = {spec.name for spec in reading.specs if spec.is_ragged}
        offsets = reading.offsets
        if offsets is not None:  # the recorded envs are the first ones
            offsets = offsets[: len(rows) + 1]
            row["offsets"] = offsets + track.events
        for branch, values in (("measured", reading.measured), ("truth", reading.truth)):
            for name, value in values.items():
                kept = value[: int(offsets[-1])].copy() if offsets is not None and name in ragged else value[rows]
                row[f"{branch}/{name}"] = kept
        size = sum(value.nbytes for value in row.values())
        if self.nbytes + size > self.max_bytes:
            self.is_full = True
            warnings.warn(
                f"NpzRecorder: {self.max_bytes / 2**20:.0f} MiB full at tick {reading.tick} (t = {reading.time:g} s): "
                "nothing later is recorded. Record fewer envs (max_envs), lower rates, or increase max_bytes.",
                SensoriumWarning,
                stacklevel=2,
            )
            return
        self.nbytes += size
        track.events += 0 if offsets is None else int(offsets[-1])
        for key, value in row.items():
            track.columns.setdefault(key, []).append(value)

    def recording(self, description: SceneDescription | Mapping[str, Any]) -> Recording:
        """Return the recording so far, as `load` would return it after `save`.

        Where the fields of a sensor changed, a warning states how many readings have other fields and are omitted.
        """
        described: Mapping[str, Any] = (
            description.to_dict() if isinstance(description, SceneDescription) else dict(description)
        )
        dt = described["dt"]
        missing: dict[str, Any] = {name: {} for name in self._tracks if name not in described["sensors"]}
        described = {**described, "sensors": {**described["sensors"], **missing}}
        sensors = {}
        for name, tracks in self._tracks.items():
            info = described["sensors"][name]
            track = _described(tracks, info)
            ragged = {spec.name for spec in track.specs if spec.is_ragged}
            values = {
                key: np.concatenate(rows) if key.partition("/")[2] in ragged else np.stack(rows)
                for key, rows in track.columns.items()
            }
            if not values:
                continue
            total = sum(map(len, tracks))
            if total > len(track):
                warnings.warn(
                    f"{name}: {total - len(track)} of {total} readings are omitted, because their fields differ.",
                    SensoriumWarning,
                    stacklevel=2,
                )
            times = {f"{part}time": values[f"{part}tick"] * dt for part in ("", "capture_", "truth_")}
            sensors[name] = _of_parts(name, info, {**values, **times, "env_ids": track.env_ids})
        return Recording(described, sensors)

    def save(self, path: str | os.PathLike[str], description: SceneDescription | Mapping[str, Any]) -> Path:
        """Write the recording to one `.npz` file, and return its path.

        Args:
            path: the file; missing folders are created.
            description: ``scene.description()``, or its dictionary.
        """
        return self.recording(description).save(path)
