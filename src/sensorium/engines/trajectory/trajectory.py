"""Trajectories: poses over time, from arrays or files, and the smooth curve through them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sensorium.engines.trajectory.files import read_poses
from sensorium.errors import ArgumentError, ModelError, shown
from sensorium.geometry.spline import Array, Motion, PoseSpline

FEWEST = 4
"""Minimum number of poses; a cubic spline has no fewer."""
GAP_FACTOR = 10.0
"""Default of the longest gap between two adjacent poses, in medians of the intervals between poses."""
LARGEST_TURN = math.radians(179.0)
"""Maximum turn between two adjacent poses, rad; beyond it, noise decides the direction."""
FARTHEST = 1e5
"""Maximum distance of a coordinate from the world's origin, m; float32 resolves 8 mm there."""
NORM_ERROR = 0.05
"""Maximum deviation of a quaternion's norm from 1."""
ORDER = "quaternion (w x y z)"
"""Quaternions in messages, which are in this order for all files."""


class Trajectory:
    """Smooth path of a body through given poses.

    The path passes through each pose at its time. Velocity and acceleration, linear and angular, are continuous. Each
    is the exact derivative of the path. The path amplifies noise of the poses in its accelerations: an error e of poses
    that are h seconds apart gives accelerations of the order e / h^2.

    Args:
        times: times of the poses `[n]`, s, increasing, at least 4. Time 0 of the path is the first pose.
        pos: positions of the body's frame in the world `[n, 3]`, m.
        quat: orientations wxyz `[n, 4]`. Signs are ignored, norms are set to 1.
        max_gap: longest time between two adjacent poses, s. A longer gap raises, because the path within it is unknown.
            None is 10 times the median of these times.

    Attributes:
        times: float64 `[n]`, s since the first pose.
        pos: float64 `[n, 3]`.
        quat: float64 `[n, 4]`, unit quaternions.
        start_ns: time of the first pose as given, ns, int.
        curve: the curve through the poses, a `PoseSpline`.

    Raises:
        ArgumentError: the arrays do not describe a path; the message names the first faulty pose.
    """

    def __init__(self, times: ArrayLike, pos: ArrayLike, quat: ArrayLike, *, max_gap: float | None = None) -> None:
        given = np.atleast_1d(_numbers(times, "times", 0))
        self.times = given - (given[0] if len(given) else 0.0)
        self.pos, self.quat = _numbers(pos, "pos", 3), _numbers(quat, "quat", 4)
        lengths = {name: len(array) for name, array in vars(self).items()}
        if len(set(lengths.values())) > 1:
            raise ArgumentError(f"Trajectory: got arrays of different lengths ({lengths}), expected one row per pose.")
        if (fault := _fault(self.times, self.pos, self.quat, given, max_gap)) is not None:
            row, text = fault
            raise ArgumentError(f"Trajectory, {'' if row is None else f'pose {row}, '}{text}")
        self.start_ns = round(float(given[0]) * 1e9)
        self.quat /= np.linalg.norm(self.quat, axis=1, keepdims=True)
        for array in (self.times, self.pos, self.quat):
            array.flags.writeable = False
        self.curve = PoseSpline(self.times, self.pos, self.quat)

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        max_gap: float | None = None,
        rate_hz: float | None = None,
        times: str | Path | None = None,
        drop_repeated: bool = False,
    ) -> Trajectory:
        """Return the trajectory in a file of TUM, EuRoC or KITTI, or in a table with a header; the content decides.

        A line of a TUM file is ``t x y z qx qy qz qw``, separated by spaces. A line of a CSV file of EuRoC starts with
        ``t, x, y, z, qw, qx, qy, qz``, t in ns, and further columns are ignored. A line of KITTI is a transform
        `[3, 4]` by rows, of a camera (x right, y down, z forward) in its first frame. The body has the place of the
        camera, with x forward and z up, and the world is its first frame. Columns with names may have any order. Lines
        that start with ``#`` are comments.

        Args:
            path: the file.
            max_gap: longest time between two adjacent poses, s; None is 10 times the median of these times.
            rate_hz: poses per second of a KITTI file.
            times: file with the time of each pose of a KITTI file, s; None takes ``times.txt`` beside the poses, or
                that of the sequence in KITTI's folders.
            drop_repeated: whether to keep only the first of adjacent poses with equal times.

        Raises:
            ModelError: the file is missing or invalid; the message names the line, the value and the fix.
        """
        path = Path(path).expanduser()
        label = f"trajectory file {str(path)!r}"
        poses = read_poses(path, label, rate_hz=rate_hz, times=times, drop_repeated=drop_repeated)
        seconds = (poses.stamps - poses.stamps[0]) * 1e-9 if len(poses.stamps) else np.zeros(0)
        if (fault := _fault(seconds, poses.pos, poses.quat, poses.written, max_gap)) is not None:
            row, text = fault
            raise ModelError(f"{label}{'' if row is None else f', line {poses.lines[row]}'}, {text}")
        found = cls(seconds, poses.pos, poses.quat, max_gap=max_gap)
        found.start_ns = int(poses.stamps[0])
        return found

    def __repr__(self) -> str:
        return f"Trajectory({len(self.times)} poses, {self.duration:g} s)"

    @property
    def duration(self) -> float:
        """Time from the first to the last pose, s."""
        return float(self.times[-1])

    def at(self, times: ArrayLike) -> Motion:
        """Return the motion at times since the first pose.

        Args:
            times: times `[time]`, s, from 0 to `duration`.

        Returns:
            Arrays `[time, 3 or 4]`, see `Motion`.

        Raises:
            ArgumentError: a time is before the start or after the end.
        """
        wanted = np.atleast_1d(_numbers(times, "times", 0))
        slack = 1e-9 * (1.0 + self.duration)
        outside = ~((wanted >= -slack) & (wanted <= self.duration + slack))
        if outside.any():
            raise ArgumentError(f"times: got {wanted[outside][0]:g} s, expected 0 to {self.duration:g} s.")
        return self.curve.at(wanted)


def _numbers(values: Any, name: str, columns: int) -> Array:
    """Return a copy of numbers as `[n, columns]`, or `[n]` for no columns."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.zeros((0, 0, 0))
    if array.ndim > 2 or (columns and array.shape[1:] != (columns,)) or (not columns and array.ndim == 2):
        expected = f"numbers [n, {columns}]" if columns else "numbers [n]"
        raise ArgumentError(f"{name}: got {shown(values)}, expected {expected}.")
    return array


def _fault(
    times: Array, pos: Array, quat: Array, given: Sequence[Any] | Array, max_gap: float | None
) -> tuple[int | None, str] | None:
    """Return the first fault of a path: the row of the pose, or None for the whole path, and a text.

    `times` count from the first pose, and `given` are the times to show.
    """
    if max_gap is not None and not (isinstance(max_gap, int | float) and 0.0 < max_gap < math.inf):
        return None, f"max_gap: got {shown(max_gap)}, expected a positive number, s, or None."
    if len(times) < FEWEST:
        return None, f"poses: got {len(times)}, expected at least {FEWEST}. Add poses before or after."
    norm = np.linalg.norm(quat, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = quat / norm[:, None]
        turn = 2.0 * np.arccos(np.clip(np.abs((unit[1:] * unit[:-1]).sum(axis=1)), 0.0, 1.0))
    checks = (
        (~np.isfinite(times), "time", given, "a finite number. Correct or remove the pose."),
        (~np.isfinite(pos).all(axis=1), "position", pos, "finite numbers, m. Correct or remove the pose."),
        (~np.isfinite(quat).all(axis=1), ORDER, quat, "finite numbers. Correct or remove the pose."),
        (norm == 0.0, ORDER, quat, "a unit quaternion. Correct or remove the pose; 1 0 0 0 is level."),
        (np.abs(norm - 1.0) > NORM_ERROR, ORDER, quat, "a unit quaternion. Check the order of the columns."),
        (
            np.abs(pos).max(axis=1) > FARTHEST,
            "position",
            pos,
            f"coordinates up to {FARTHEST:g} m, which float32 resolves. Subtract an origin near the path.",
        ),
        (
            np.diff(times, prepend=-np.inf) <= 0.0,
            "time",
            given,
            "a time after that of the previous pose. Sort the poses by time, and remove repeated ones: "
            "--drop-repeated, in Python drop_repeated=True.",
        ),
    )
    for wrong, what, values, expected in checks:
        if wrong.any():
            row = int(np.argmax(wrong))
            return row, f"{what}: got {_text(values[row])}, expected {expected}"
    gaps = np.diff(times)
    longest = GAP_FACTOR * float(np.median(gaps)) if max_gap is None else max_gap
    if (is_long := gaps > longest * (1.0 + 1e-9)).any():
        row = int(np.argmax(is_long)) + 1
        usual = f" ({GAP_FACTOR:g} times the median)" if max_gap is None else ""
        return row, (
            f"time: got {_text(given[row])}, {gaps[row - 1]:.6g} s after the previous pose, expected at most "
            f"{longest:.6g} s{usual}: the path within a gap is unknown. Use the poses before or after it, or allow it: "
            f"--max-gap {math.ceil(100.0 * gaps.max()) / 100.0:g}, in Python max_gap=."
        )
    if (turn > LARGEST_TURN).any():
        row = int(np.argmax(turn > LARGEST_TURN)) + 1
        return row, (
            f"quaternion: got a turn of {math.degrees(turn[row - 1]):.0f} degrees since the previous pose, expected "
            "less than 180, so that its direction is unambiguous. Add poses in between."
        )
    return None


def _text(value: Any) -> str:
    """Return a number or a vector as text; a text unchanged."""
    return value if isinstance(value, str) else " ".join(f"{number:.12g}" for number in np.atleast_1d(value))


def trajectory_of(given: Any, what: str) -> Trajectory:
    """Return a trajectory, given as one, as the path of a file, or as arrays `(times, pos, quat)`.

    Raises:
        ArgumentError: `given` is none of these, or arrays that do not describe a path.
        ModelError: the file is missing or invalid.
    """
    if isinstance(given, Trajectory):
        return given
    if isinstance(given, str | Path):
        return Trajectory.from_file(given)
    parts = tuple(given) if isinstance(given, Iterable) else ()
    if len(parts) != 3:
        raise ArgumentError(f"{what}: got {shown(given)}, expected a Trajectory, a path, or (times, pos, quat).")
    return Trajectory(*parts)
