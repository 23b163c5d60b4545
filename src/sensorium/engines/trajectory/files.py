"""Files of poses: TUM, CSV files of EuRoC and with any header, and KITTI."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from sensorium.errors import ModelError, listed, shown, text_in
from sensorium.geometry.spline import Array
from sensorium.geometry.transforms import quat_from_matrix

TUM, EUROC = ["t", "x", "y", "z", "qx", "qy", "qz", "qw"], ["t [ns]", "x", "y", "z", "qw", "qx", "qy", "qz"]
"""Columns of files without a header; those of EuRoC are separated by commas, and more may follow."""
KITTI = 12
"""Numbers of a pose in a file of KITTI."""
COLUMNS = ("t", "x", "y", "z", "qw", "qx", "qy", "qz")
SUFFIXES = (".tum", ".txt", ".csv")
"""Usual endings of such files."""
SECONDS = {"s": 9, "sec": 9, "seconds": 9, "ms": 6, "us": 3, "µs": 3, "ns": 0}
"""Unit of a column of times -> power of ten in ns."""
METRES = {"": 1.0, "m": 1.0, "cm": 1e-2, "mm": 1e-3, "km": 1e3}
"""Unit of a column of positions -> m."""
_UNIT = re.compile(r"(.*?)\s*(?:\[(.*)\]|\((.*)\)|_(ns|us|ms|s|sec|m|mm|cm))?", re.DOTALL)


def _column(words: str, axis: str, rest: str = "") -> re.Pattern[str]:
    """Return the pattern of a name with one of some words, anything in between, and an axis at its end."""
    return re.compile(rf"(?:(?:.*[^a-z])?(?:{words})(?:[^a-z](?:.*[^a-z])?)?){rest}{axis}", re.IGNORECASE)


_PATTERNS = {
    "t": re.compile(r"(?:.*[^a-z])?(?:t|time|timestamp|stamp)s?", re.IGNORECASE),
    **{f"q{axis}": _column("q|quat|quaternion|orientation|rot|rotation", axis) for axis in "wxyz"},
    **{axis: _column("p|t|pos|position|trans|translation|loc|location", axis, "?") for axis in "xyz"},
}
"""Column -> its names."""
_FRAME = np.array([[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]])
"""Rotation from forward, left, up to the axes of KITTI's camera: right, down, forward."""


class Poses(NamedTuple):
    """Poses in a file."""

    stamps: Array
    """Times, ns, int64 `[n]`."""
    pos: Array
    """Positions, m, `[n, 3]`."""
    quat: Array
    """Orientations wxyz `[n, 4]`."""
    lines: Array
    """Number of the line of each pose, int64 `[n]`."""
    written: Any
    """Time of each pose as it is written, text `[n]`."""


def read_poses(
    path: Path, label: str, *, rate_hz: float | None, times: str | Path | None, drop_repeated: bool
) -> Poses:
    """Return the poses in a file; see `Trajectory.from_file`.

    Raises:
        ModelError: the file is missing, or a line is invalid.
    """
    names, lines, rows = _table(text_in(path, label, SUFFIXES), label)
    if len(names) == KITTI and not names[0]:
        pos, quat = _kitti(_numbers(rows, range(KITTI), lines, label).reshape(-1, 3, 4), lines, label)
        stamps, written = _times(path, label, len(rows), rate_hz, times)
    else:
        if (given := rate_hz if times is None else times) is not None:
            raise ModelError(f"{label}: got {shown(given)} for its times, expected none: it has a column of times.")
        places = _places(names, label)
        if missing := [each for each in COLUMNS if each not in places]:
            raise ModelError(
                f"{label}: its header has no column {', '.join(missing)}, got {listed(names)}. Name the columns "
                f"{', '.join(COLUMNS)}, with units if they are not s and m, such as 't [ns]'."
            )
        written = [words[places["t"][0]] for words in rows]
        convert = _clock(written, names[places["t"][0]], places["t"][1], label)
        stamps = _stamps(zip(written, lines, strict=True), convert, label)
        values = _numbers(rows, [places[name][0] for name in COLUMNS[1:]], lines, label)
        for axis, (place, unit) in enumerate(places[name] for name in "xyz"):
            if unit not in METRES:
                raise ModelError(f"{label}: the unit of {names[place]!r} is {unit!r}, expected m, cm, mm or km.")
            values[:, axis] *= METRES[unit]
        pos, quat = values[:, :3], values[:, 3:]
    found = Poses(stamps, pos, quat, np.array(lines, np.int64), np.array(written, str))
    if not drop_repeated:
        return found
    is_new = np.diff(stamps, prepend=stamps[:1] - 1) != 0
    return Poses(*(each[is_new] for each in found))


def _table(text: str, label: str) -> tuple[list[str], list[int], list[list[str]]]:
    """Return names of columns, which are empty for KITTI, and number and words of each line with a pose.

    Comments start with ``#``, and the last one before the poses may name the columns.

    Raises:
        ModelError: a line has another number of columns than the first one.
    """
    names: list[str] = []
    lines: list[int] = []
    rows: list[list[str]] = []
    comment, mark, is_open = "", None, False
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            comment = line.lstrip("# ") if line and not names else comment
            continue
        if not names:
            mark = next((each for each in ",;" if each in line), None)
        words = [word.strip().strip('"') for word in line.split(mark)]
        if not names:
            names = [word.strip() for word in comment.split(mark)]
            if not any(map(_is_number, words)):
                names = words
                continue
            if len(names) != len(words) or len(_places(names, "")) < len(COLUMNS):
                is_open = mark is not None
                names = [""] * KITTI if len(words) == KITTI and not is_open else EUROC if is_open else TUM
        if len(words) < len(names) or (len(words) > len(names) and not is_open):
            expected = f"{len(names)}: {' '.join(names)}" if names[0] else f"{KITTI} (KITTI)"
            line = shown(line, 60)
            raise ModelError(f"{label}, line {number}: got {len(words)} columns ({line}), expected {expected}.")
        rows.append(words)
        lines.append(number)
    return names or TUM, lines, rows


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _clock(written: Sequence[str], name: str, unit: str, label: str) -> Callable[[str], int]:
    """Return the function that converts times to ns. Without a unit, the number of digits tells dates in s and in ns.

    Raises:
        ModelError: the unit is unknown, or the times may have several.
    """
    if not unit:
        size = float(written[0]) if written and _is_number(written[0]) else 0.0
        unit = "ns" if abs(size) >= 1e17 else "us or ms" if abs(size) >= 1e11 else "s"
    if unit not in SECONDS:
        raise ModelError(
            f"{label}: the unit of {name!r} is {unit!r}, expected one of {', '.join(SECONDS)}, stated in a header, "
            f"such as '{name.partition('[')[0].strip()} [us]'."
        )
    return _nanoseconds if unit == "ns" else partial(_seconds, exponent=SECONDS[unit])


def _places(names: Sequence[str], label: str) -> dict[str, tuple[int, str]]:
    """Return place and unit of the columns of a pose; of times the first one, but those of a header before others.

    Args:
        names: names of all columns.
        label: the file, for messages; empty to return nothing if the names are ambiguous.

    Raises:
        ModelError: two columns have the same meaning.
    """
    found: dict[str, tuple[int, str]] = {}
    for place, name in enumerate(names):
        base, *units = re.fullmatch(_UNIT, name).groups()  # type: ignore[union-attr]  # which all names match
        key = next((key for key, pattern in _PATTERNS.items() if pattern.fullmatch(base)), "")
        if key in found and key != "t":
            if not label:
                return {}
            both = f"{names[found[key][0]]!r} and {name!r}"
            raise ModelError(f"{label}: its header has two columns for {key}: {both}. Remove one of them.")
        if key and (key not in found or "header" in base):
            found[key] = place, next(filter(None, units), "").strip().lower()
    return found


# KITTI ----------------------------------------------------------------------------------------------------------------


def _kitti(pose: Array, lines: Sequence[int], label: str) -> tuple[Array, Array]:
    """Return positions and orientations of transforms `[n, 3, 4]` of a camera."""
    turn, pos = _FRAME.T @ pose[..., :3] @ _FRAME, pose[..., 3] @ _FRAME
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(turn @ turn.transpose(0, 2, 1) - np.eye(3)).max(axis=(1, 2))
        is_wrong = ~(error < 0.1) | ~(np.linalg.det(np.nan_to_num(turn)) > 0.0)
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        raise ModelError(
            f"{label}, line {lines[row]}: rotation: got {shown(pose[row, :, :3].tolist(), 90)}, expected a rotation "
            "matrix in columns 1-3, 5-7 and 9-11. Correct or remove the pose."
        )
    return pos, quat_from_matrix(torch.from_numpy(turn)).numpy()


def _times(
    path: Path, label: str, count: int, rate_hz: float | None, times: str | Path | None
) -> tuple[Array, Sequence[str]]:
    """Return the times of poses, ns and as written: of a rate, or of a file."""
    if rate_hz is not None:
        if times is not None or not 0.0 < rate_hz < float("inf"):
            raise ModelError(
                f"{label}: got the rate {shown(rate_hz)}, expected a number above 0, Hz, or a file of times."
            )
        seconds = np.arange(count) / rate_hz
        return np.rint(seconds * 1e9).astype(np.int64), [f"{each:.9g}" for each in seconds]
    absolute = path.absolute()
    usual = (absolute.with_name("times.txt"), absolute.parents[1] / "sequences" / path.stem / "times.txt")
    file = next((each for each in usual if each.is_file()), None) if times is None else Path(times).expanduser()
    if file is None:
        raise ModelError(
            f"{label} has poses of KITTI, without times, expected times in times.txt beside it, or their rate. Add "
            "--rate 10 or --times FILE, in Python rate_hz= or times=."
        )
    about = f"file of times {str(file)!r}"
    words = [(line.strip(), k) for k, line in enumerate(text_in(file, about, SUFFIXES).splitlines(), 1) if line.strip()]
    if len(words) != count:
        raise ModelError(f"{about}: got {len(words)} times, expected {count}, one for each pose of {str(path)!r}.")
    return _stamps(words, _seconds, about), [word for word, _ in words]


# Numbers --------------------------------------------------------------------------------------------------------------


def _stamps(words: Iterable[tuple[str, int]], convert: Callable[[str], int], label: str) -> Array:
    """Return times, ns, int64 `[n]`, of words and the numbers of their lines."""
    return np.array([_number(*each, convert, label, "time") for each in words], np.int64)


def _numbers(rows: Sequence[Sequence[str]], places: Sequence[int], lines: Sequence[int], label: str) -> Array:
    """Return some columns of a table, float64 `[row, column]`."""
    values = [
        [_number(words[place], line, float, label, "number") for place in places]
        for words, line in zip(rows, lines, strict=True)
    ]
    return np.array(values, np.float64).reshape(-1, len(places))


def _number(word: str, line: int, convert: Callable[[str], Any], label: str, what: str) -> Any:
    try:
        return convert(word)
    except (ValueError, ArithmeticError):
        kinds: dict[Any, str] = {_nanoseconds: "a whole number of ns below 2**63", float: "a number"}
        expected = kinds.get(convert, "seconds below 2**63 ns")
        given = shown(word, 60)
        raise ModelError(f"{label}, line {line}: {what}: got {given}, expected {expected}. Correct it.") from None


def _nanoseconds(word: str) -> int:
    return int(_stamp(int(word)))


def _seconds(word: str, exponent: int = 9) -> int:
    """Return ns; a float64 of seconds since 1970 would be rounded to 0.2 microseconds."""
    return int(_stamp(Decimal(word).scaleb(exponent)).to_integral_value())


def _stamp(value: Any) -> Any:
    """Return a time in ns; before its conversion to int, which takes minutes for a large exponent."""
    if not abs(value) < 2**63:
        raise OverflowError
    return value
