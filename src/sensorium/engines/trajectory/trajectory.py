"""Trajectories: poses over time, from arrays or files, and the smooth curve through them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sensorium.errors import ArgumentError, ModelError, nearest, shown
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
    def from_file(cls, path: str | Path, *, max_gap: float | None = None) -> Trajectory:
        """Return the trajectory in a TUM file or in an EuRoC CSV file; the content decides.

        A line of a TUM file is ``t x y z qx qy qz qw``, separated by spaces. A line of a CSV file of EuRoC starts with
        ``t, x, y, z, qw, qx, qy, qz``, t in ns, and further columns are ignored. Lines that start with ``#`` are
        comments.

        Args:
            path: the file.
            max_gap: longest time between two adjacent poses, s; None is 10 times the median of these times.

        Raises:
            ModelError: the file is missing or invalid; the message names the line, the value and the fix.
        """
        stamps, pos, quat, lines, written = _read_poses(path)
        times = (stamps - stamps[0]) * 1e-9 if len(stamps) else np.zeros(0)
        if (fault := _fault(times, pos, quat, written, max_gap)) is not None:
            row, text = fault
            raise ModelError(f"trajectory file {str(path)!r}{'' if row is None else f', line {lines[row]}'}, {text}")
        found = cls(times, pos, quat, max_gap=max_gap)
        found.start_ns = int(stamps[0])
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
            "a time after that of the previous pose. Sort the poses by time, and remove repeated ones.",
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


# Files ----------------------------------------------------------------------------------------------------------------


TUM, EUROC = "t x y z qx qy qz qw (TUM)", "t,x,y,z,qw,qx,qy,qz (EuRoC, t in ns)"
"""Columns of the two formats."""
COLUMNS = 8
"""Number of columns that both formats share."""
SUFFIXES = (".tum", ".txt", ".csv")
"""Usual endings of such files."""


def _read_poses(path: str | Path) -> tuple[Array, Array, Array, list[int], list[str]]:
    """Return the poses in a file: CSV of EuRoC if the first pose contains commas, otherwise TUM.

    Returns:
        Times `[n]`, int64 ns, positions `[n, 3]`, m, quaternions `[n, 4]`, wxyz, and the line and the time of each pose
        as it is written.

    Raises:
        ModelError: the file is missing, or a line is invalid.
    """
    path = Path(path).expanduser()
    label = f"trajectory file {str(path)!r}"
    rows: list[list[float]] = []
    lines: list[int] = []
    times: list[str] = []
    stamps: list[int] = []
    is_csv = False
    for number, line in enumerate(_contents(path, label).splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        is_csv = "," in line if not rows else is_csv
        form, words = (EUROC, line.split(",")) if is_csv else (TUM, line.split())
        words = [word.strip() for word in words]
        if len(words) < COLUMNS or (len(words) > COLUMNS and not is_csv):
            raise ModelError(f"{label}, line {number}: got {len(words)} columns ({shown(line, 60)}), expected {form}.")
        stamps.append(_number(words[0], _nanoseconds if is_csv else _seconds, label, number, "time"))
        rows.append([_number(word, float, label, number, "number") for word in words[1:COLUMNS]])
        lines.append(number)
        times.append(words[0])
    values = np.array(rows, dtype=np.float64).reshape(-1, COLUMNS - 1)
    order = [3, 4, 5, 6] if is_csv else [6, 3, 4, 5]
    return np.array(stamps, dtype=np.int64), values[:, :3], values[:, order], lines, times


def _contents(path: Path, label: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        folder = path.absolute().parent
        names = [each.name for each in folder.glob("*") if each.suffix in SUFFIXES] if folder.is_dir() else []
        raise ModelError(f"{label} does not exist.{nearest(path.name, names)} Check the path.") from None
    except IsADirectoryError:
        raise ModelError(f"{label} is a folder. Give the file in it.") from None
    except UnicodeDecodeError:
        raise ModelError(f"{label} is not text, expected lines of {TUM} or {EUROC}.") from None
    except OSError as error:
        raise ModelError(f"{label} cannot be read: {error.strerror or error}.") from None


def _number(word: str, convert: Callable[[str], Any], label: str, line: int, what: str) -> Any:
    try:
        return convert(word)
    except (ValueError, ArithmeticError):
        kinds: dict[Any, str] = {_nanoseconds: "a whole number of ns below 2**63", _seconds: "seconds below 2**63 ns"}
        expected = kinds.get(convert, "a number")
        given = shown(word, 60)
        raise ModelError(f"{label}, line {line}: {what}: got {given}, expected {expected}. Correct it.") from None


def _nanoseconds(word: str) -> int:
    return int(_stamp(int(word)))


def _seconds(word: str) -> int:
    """Return ns; a float64 of seconds since 1970 would be rounded to 0.2 microseconds."""
    return int(_stamp(Decimal(word) * 10**9).to_integral_value())


def _stamp(value: Any) -> Any:
    """Return a time in ns; before its conversion to int, which takes minutes for a large exponent."""
    if not abs(value) < 2**63:
        raise OverflowError
    return value
