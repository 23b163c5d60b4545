"""Samples of one environment in a stream of readings, with their times, poses and fields by role."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sensorium.errors import ArgumentError, shown
from sensorium.readings import Array, Reading
from sensorium.spec import FieldSpec

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pose:
    """Pose of a sensor in the world.

    Args:
        pos: m, float64 `[3]`.
        quat: unit quaternion wxyz, float64 `[4]`.
    """

    pos: Floats
    quat: Floats

    @property
    def matrix(self) -> Floats:
        """Transform from the sensor's frame to the world, float64 `[4, 4]`."""
        w, x, y, z = self.quat
        transform = np.eye(4)
        transform[:3, :3] = [
            [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)],
            [2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)],
            [2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)],
        ]
        transform[:3, 3] = self.pos
        return transform


@dataclass(frozen=True)
class Sample:
    """One capture of a sensor in one environment.

    Args:
        reading: the reading that contains it.
        row: row of the environment.
        mount: mount, for sensors with a mount axis.
        truth: whether values and time are those of the ground truth.
    """

    reading: Reading
    row: int
    mount: int
    truth: bool

    @cached_property
    def tick(self) -> int:
        """Physics tick of the capture."""
        return int((self.reading.truth_tick if self.truth else self.reading.capture_tick)[self.row])

    @property
    def tick_ns(self) -> int:
        """Time of that tick, ns."""
        reading, dt = self.reading, self.reading._dt
        if np.isnan(dt):
            dt = reading.time / reading.tick if reading.tick else 0.0
        return round(self.tick * dt * 1e9)

    @property
    def ns(self) -> int:
        """Time of the capture, ns; of measured values by the sensor's own clock."""
        return self.tick_ns if self.truth else round(float(self.reading.stamp[self.row]) * 1e9)

    def spec(self, role: str, *, unit: str = "", frame: str = "", axes: tuple[str, ...] | None = None) -> str:
        """Return the name of the first field of this kind, or an empty text.

        Args:
            role: role of the field.
            unit: its unit; empty for any.
            frame: its frame; empty for any.
            axes: its axes without that of mounts; None for any.
        """

        def fits(spec: FieldSpec) -> bool:
            own = spec.axes[1:] if spec.axes[:1] == ("mount",) else spec.axes
            return spec.role == role and unit in ("", spec.unit) and frame in ("", spec.frame) and axes in (None, own)

        return next((spec.name for spec in self.reading.specs if fits(spec)), "")

    def __getitem__(self, name: str) -> Array:
        """Return the values of a field, of one mount."""
        values: Array = (self.reading.truth if self.truth else self.reading.measured)[name]
        axis = next(spec.axes[:1] for spec in self.reading.specs if spec.name == name)
        row = self.reading.rows(self.row) if axis == ("event",) else self.row
        chosen: Array = values[row]
        return chosen[self.mount] if axis == ("mount",) else chosen

    @cached_property
    def _pose_fields(self) -> tuple[str, ...]:
        """Names of the fields with the position and the orientation in the world, empty without them."""
        names = (self.spec("point", frame="world", axes=("xyz",)), self.spec("pose", frame="world", axes=("wxyz",)))
        return names if all(name in self._pose_branch for name in names) else ()

    @property
    def _pose_branch(self) -> Mapping[str, Array]:
        """The branch of the fields with the pose: the ground truth, where the reading has one."""
        return self.reading.truth or self.reading.measured

    @property
    def is_of_pose(self) -> bool:
        """Whether all poses of the sensor are found in samples of this branch.

        These are the ground truth for sensors with fields for them. `Reading.pose` belongs to the measured values, as
        do all values of a reading without ground truth.
        """
        return self.truth == bool(self._pose_fields and self.reading.truth)

    @cached_property
    def pose(self) -> Pose | None:
        """True pose of the sensor at the capture; None if the reading does not contain it."""
        reading, fields = self.reading, self._pose_fields
        if fields and int(reading.truth_tick[self.row]) == self.tick:
            branch = replace(self, truth=bool(reading.truth))
            pos, quat = (branch[name].astype(np.float64) for name in fields)
        elif reading.pose is not None and int(reading.capture_tick[self.row]) == self.tick:
            pos, quat = np.split(reading.pose[self.row, self.mount].astype(np.float64), [3])
        else:
            return None
        known = bool(np.isfinite(pos).all() and np.isfinite(quat).all() and quat.any())
        return Pose(pos, quat / np.linalg.norm(quat)) if known else None


def seconds(ns: int) -> str:
    """Return a time in ns as s, exactly."""
    return f"{'-' if ns < 0 else ''}{abs(ns) // 10**9}.{abs(ns) % 10**9:09d}"


class TimedFile:
    """Text file with a head and a line per time, in order of time once it is closed.

    Args:
        path: the file.
        head: its first line.
    """

    def __init__(self, path: Path, head: str) -> None:
        self._path, self._last, self._is_late = path, -(2**63), False
        self._file = path.open("w", encoding="utf-8")
        self._file.write(f"{head}\n")

    def write(self, ns: int, line: str) -> None:
        """Add a line, which starts with the time, ns or s with nine digits after the point."""
        self._is_late |= ns < self._last
        self._last = ns
        self._file.write(f"{line}\n")

    def close(self) -> None:
        """Complete the file."""
        self._file.close()
        if self._is_late:
            head, *lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
            lines.sort(key=lambda line: int(line.replace(",", " ").split()[0].replace(".", "")))
            self._path.write_text("".join((head, *lines)), encoding="utf-8")


def samples(readings: Iterable[Reading], env: int, *, mount: int = 0, truth: bool | None = None) -> Iterator[Sample]:
    """Yield each capture once, in the order of the readings; measured values that are not valid are omitted.

    Args:
        readings: readings of any sensors, each sensor's in the order of time.
        env: the environment.
        mount: mount of sensors that have several.
        truth: whether to take the ground truth; None takes both, as separate samples.

    Raises:
        ArgumentError: there are no readings, or none contains the environment.
    """
    seen: dict[tuple[str, bool], int] = {}
    known: set[int] = set()
    for reading in readings:
        known.update(reading.env_ids.tolist())
        rows = np.flatnonzero(reading.env_ids == env)
        for branch in (True, False) if truth is None else (truth,):
            if not len(rows) or not (branch or bool(reading.valid[rows[0]])):
                continue
            sample = Sample(reading, int(rows[0]), mount, branch)
            if seen.get((reading.name, branch)) != sample.tick:
                seen[reading.name, branch] = sample.tick
                yield sample
    if not known:
        raise ArgumentError("readings: got none, expected at least one. Record for longer, or choose other times.")
    if env not in known:
        raise ArgumentError(f"env: got {shown(env)}, expected one of the recorded environments {sorted(known)}.")
