"""Files of poses: TUM, CSV files of EuRoC and with any header, and KITTI."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sensorium.errors import ModelError, file_kind, listed, nearest, shown
from sensorium.geometry.spline import Array
from sensorium.geometry.transforms import quat_from_matrix

TUM, EUROC = "t x y z qx qy qz qw (TUM)", "t,x,y,z,qw,qx,qy,qz (EuRoC, t in ns)"
"""Columns of files without a header."""
KITTI = 12
"""Numbers of a pose in a file of KITTI."""
COLUMNS = ("t", "x", "y", "z", "qw", "qx", "qy", "qz")
SUFFIXES = (".tum", ".txt", ".csv")
"""Usual endings of such files."""
SECONDS = {"s": 0, "sec": 0, "secs": 0, "second": 0, "seconds": 0, "ms": -3, "us": -6, "µs": -6, "ns": -9, "nsec": -9}
"""Unit of a column of times -> power of ten in s."""
METRES = {"": 1.0, "m": 1.0, "cm": 1e-2, "mm": 1e-3, "km": 1e3}
_TIMES = {"t", "time", "times", "timestamp", "timestamps", "stamp"}
_POSITIONS = {"p", "t", "pos", "position", "trans", "translation", "loc", "location"}
_QUATERNIONS = {"q", "quat", "quaternion", "orientation", "rot", "rotation", "att", "attitude"}
_UNIT = re.compile(r"(.*?)\s*(?:\[(.*)\]|\((.*)\)|_(ns|us|ms|s|sec|m|mm|cm))?", re.DOTALL)
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
_AXIS = re.compile(r"(.*?)([wxyz])")
_FRAME = np.array([[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]])
"""Rotation from forward, left, up to the axes of KITTI's camera: right, down, forward."""


@dataclass(frozen=True, slots=True)
class Poses:
    """Poses in a file.

    Attributes:
        stamps: times, ns, int64 `[n]`.
        pos: positions, m, `[n, 3]`.
        quat: orientations wxyz `[n, 4]`.
        lines: number of the line of each pose.
        written: time of each pose as it is written.
    """

    stamps: Array
    pos: Array
    quat: Array
    lines: list[int]
    written: list[str]


def read_poses(
    path: Path, label: str, *, rate_hz: float | None, times: str | Path | None, drop_repeated: bool
) -> Poses:
    """Return the poses in a file; see `Trajectory.from_file`.

    Raises:
        ModelError: the file is missing, or a line is invalid.
    """
    table = _table(contents(path, label), label)
    if not table.names and table.rows and len(table.rows[0]) == KITTI:
        found = _kitti(table, path, label, rate_hz, times)
    else:
        if (given := rate_hz if times is None else times) is not None:
            raise ModelError(f"{label}: got {shown(given)} for its times, expected none: it has a column of times.")
        found = _columns(table, label)
    if drop_repeated and len(found.stamps):
        kept = np.flatnonzero(np.diff(found.stamps, prepend=found.stamps[0] - 1) != 0)
        parts = found.stamps[kept], found.pos[kept], found.quat[kept]
        return Poses(*parts, [found.lines[k] for k in kept], [found.written[k] for k in kept])
    return found


@dataclass(slots=True)
class _Table:
    """Words of a file."""

    names: list[str]
    """Names of the columns; empty without a header."""
    rows: list[list[str]]
    lines: list[int]
    is_csv: bool


def _table(text: str, label: str) -> _Table:
    """Return the words of a text. Comments start with ``#``, and the last one before the poses may name columns.

    Raises:
        ModelError: a line has another number of columns than the first one.
    """
    found, comment, mark = _Table([], [], [], False), "", None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        is_head = not found.rows and not found.names
        if not line or line.startswith("#"):
            comment = line.lstrip("# ") if line and is_head else comment
            continue
        if is_head:
            mark = next((each for each in ",;" if each in line), None)
            found.is_csv = mark is not None
        words = [word.strip().strip('"') for word in line.split(mark)]
        if is_head and not any(map(_is_number, words)):
            found.names = words
            continue
        if is_head and comment:
            names = [word.strip() for word in comment.split(mark)]
            found.names = names if len(names) == len(words) and len(_places(names, "")) == len(COLUMNS) else []
        if found.names and len(words) != len(found.names):
            raise _wrong(label, number, words, f"{len(found.names)}: {listed(found.names)}")
        found.rows.append(words)
        found.lines.append(number)
    return found


def _wrong(label: str, number: int, words: Sequence[str], expected: str) -> ModelError:
    """Return the error of a line with a wrong number of columns."""
    line = shown(" ".join(words), 60)
    return ModelError(f"{label}, line {number}: got {len(words)} columns ({line}), expected {expected}.")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


# Columns --------------------------------------------------------------------------------------------------------------


def _columns(table: _Table, label: str) -> Poses:
    """Return the poses in a table with a column of times."""
    names = table.names
    if names:
        places = _places(names, label)
        if missing := [each for each in COLUMNS if each not in places]:
            raise ModelError(
                f"{label}: its header has no column {', '.join(missing)}, got {listed(names)}. Name the columns "
                f"{', '.join(COLUMNS)}, with units if they are not s and m, such as 't [ns]'."
            )
    else:
        order = COLUMNS if table.is_csv else ("t", "x", "y", "z", "qx", "qy", "qz", "qw")
        places = {name: (place, "ns" if table.is_csv and name == "t" else "") for place, name in enumerate(order)}
        for number, words in zip(table.lines, table.rows, strict=True):
            if len(words) < len(COLUMNS) or (len(words) > len(COLUMNS) and not table.is_csv):
                raise _wrong(label, number, words, EUROC if table.is_csv else TUM)
    place, unit = places["t"]
    written = [words[place] for words in table.rows]
    if not unit:
        unit = _unit_of(written[0] if names and written else "0", label, table.lines, names[place] if names else "")
    exponent = SECONDS.get(unit)
    if exponent is None:
        raise ModelError(f"{label}: the unit of {names[place]!r} is {unit!r}, expected {', '.join(SECONDS)}.")
    convert = _nanoseconds if unit == "ns" else lambda word: _seconds(word, exponent)
    stamps = [
        _number(word, convert, label, line, "time") for word, line in zip(written, table.lines, strict=True)
    ]  # fmt: skip
    values = np.empty((len(stamps), 7))
    for column, name in enumerate(COLUMNS[1:]):
        place, unit = places[name]
        scale = METRES.get(unit) if name in "xyz" else 1.0
        if scale is None:
            raise ModelError(f"{label}: the unit of {names[place]!r} is {unit!r}, expected m, cm, mm or km.")
        each = (_number(words[place], float, label, line, "number")
                for words, line in zip(table.rows, table.lines, strict=True))  # fmt: skip
        values[:, column] = np.fromiter(each, float, len(stamps)) * scale
    return Poses(np.array(stamps, np.int64), values[:, :3], values[:, 3:], table.lines, written)


def _unit_of(word: str, label: str, lines: Sequence[int], name: str) -> str:
    """Return the unit of times without a stated one: dates in s and in ns differ in their number of digits."""
    try:
        size = abs(float(word))
    except ValueError:
        size = 0.0
    if 1e11 <= size < 1e17:
        raise ModelError(
            f"{label}, line {lines[0]}: time: got {shown(word, 60)}, and the header does not state its unit, expected for "
            f"example '{name} [us]'."
        )
    return "s" if size < 1e11 else "ns"


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
        match = _UNIT.fullmatch(name)
        assert match is not None
        base, *units = match.groups()
        unit = next((each.strip().lower() for each in units if each is not None), "")
        words = [word.lower() for word in _WORD.findall(base)]
        if not words:
            continue
        if words[-1] in _TIMES and (len(words) == 1 or not _POSITIONS & {*words}):
            if "t" not in found or "header" in words:
                found["t"] = place, unit
            continue
        axis = _AXIS.fullmatch(words[-1])
        if axis is None:
            continue
        others = {*words[:-1], *filter(None, [axis[1]])}
        quaternion = bool(_QUATERNIONS & others) or (not others and axis[2] == "w")
        if not quaternion and others and (not _POSITIONS & others or axis[2] == "w"):
            continue
        key = ("q" if quaternion else "") + axis[2]
        if key in found:
            if not label:
                return {}
            both = f"{names[found[key][0]]!r} and {name!r}"
            raise ModelError(f"{label}: its header has two columns for {key}: {both}. Remove one of them.")
        found[key] = place, unit
    return found


# KITTI ----------------------------------------------------------------------------------------------------------------


def _kitti(table: _Table, path: Path, label: str, rate_hz: float | None, times: str | Path | None) -> Poses:
    """Return poses of KITTI: each line is a transform `[3, 4]` by rows, of a camera in its first frame."""
    rows = []
    for words, line in zip(table.rows, table.lines, strict=True):
        if len(words) != KITTI:
            raise _wrong(label, line, words, f"{KITTI} (KITTI)")
        rows.append([_number(word, float, label, line, "number") for word in words])
    pose = np.array(rows).reshape(-1, 3, 4)
    turn, pos = _FRAME.T @ pose[..., :3] @ _FRAME, pose[..., 3] @ _FRAME
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(turn @ turn.transpose(0, 2, 1) - np.eye(3)).max(axis=(1, 2))
        is_wrong = ~(error < 0.1) | ~(np.linalg.det(np.nan_to_num(turn)) > 0.0)
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        raise ModelError(
            f"{label}, line {table.lines[row]}: rotation: got {shown(pose[row, :, :3].tolist(), 90)}, expected a rotation "
            "matrix in columns 1-3, 5-7 and 9-11. Correct or remove the pose."
        )
    left, _, right = np.linalg.svd(turn)
    quat = quat_from_matrix(torch.from_numpy(left @ right)).numpy()
    stamps, written = _times(path, label, len(rows), rate_hz, times)
    return Poses(stamps, pos, quat, table.lines, written)


def _times(
    path: Path, label: str, count: int, rate_hz: float | None, times: str | Path | None
) -> tuple[Array, list[str]]:
    """Return the times of poses, ns and as written: of a rate, or of a file."""
    if rate_hz is not None:
        if times is not None or not 0.0 < rate_hz < float("inf"):
            raise ModelError(f"{label}: got the rate {shown(rate_hz)}, expected a number above 0, Hz, or a file of times.")
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
    lines = [(k, line.strip()) for k, line in enumerate(contents(file, about).splitlines(), 1)]
    lines = [(k, line) for k, line in lines if line and not line.startswith("#")]
    if len(lines) != count:
        raise ModelError(f"{about}: got {len(lines)} times, expected {count}, one for each pose of {str(path)!r}.")
    return np.array([_number(line, _seconds, about, k, "time") for k, line in lines], np.int64), [e for _, e in lines]


# Text -----------------------------------------------------------------------------------------------------------------


def contents(path: Path, label: str) -> str:
    """Return the text of a file.

    Raises:
        ModelError: it is missing, or not text.
    """
    try:
        kind = file_kind(path)
        if kind:
            raise ModelError(f"{label} is {kind}")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        folder = path.absolute().parent
        names = [each.name for each in folder.glob("*") if each.suffix in SUFFIXES] if folder.is_dir() else []
        raise ModelError(f"{label} does not exist.{nearest(path.name, names)} Check the path.") from None
    except IsADirectoryError:
        names = sorted(each.name for each in path.glob("*") if each.suffix in SUFFIXES)
        raise ModelError(f"{label} is a folder, expected a file. In it: {listed(names, 8)}.") from None
    except UnicodeDecodeError:
        raise ModelError(f"{label} is not text, expected lines of {TUM} or {EUROC}.") from None
    except OSError as error:
        raise ModelError(f"{label} cannot be read: {error.strerror or error}.") from None


def _number(word: str, convert: Callable[[str], Any], label: str, line: int, what: str) -> Any:
    try:
        return convert(word)
    except (ValueError, ArithmeticError):
        kinds: Mapping[Any, str] = {_nanoseconds: "a whole number of ns below 2**63", float: "a number"}
        expected = kinds.get(convert, "seconds below 2**63 ns")
        given = shown(word, 60)
        raise ModelError(f"{label}, line {line}: {what}: got {given}, expected {expected}. Correct it.") from None


def _nanoseconds(word: str) -> int:
    return int(_stamp(int(word)))


def _seconds(word: str, exponent: int = 0) -> int:
    """Return ns; a float64 of seconds since 1970 would be rounded to 0.2 microseconds."""
    return int(_stamp(Decimal(word).scaleb(9 + exponent)).to_integral_value())


def _stamp(value: Any) -> Any:
    """Return a time in ns; before its conversion to int, which takes minutes for a large exponent."""
    if not abs(value) < 2**63:
        raise OverflowError
    return value
