"""Files with poses over time: TUM and EuRoC CSV."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sensorium.errors import ModelError, nearest, shown

TUM, EUROC = "t x y z qx qy qz qw (TUM)", "t,x,y,z,qw,qx,qy,qz (EuRoC, t in ns)"
"""Columns of the two formats."""
COLUMNS = 8
"""Number of columns that both formats share."""
SUFFIXES = (".tum", ".txt", ".csv")
"""Usual endings of such files."""


@dataclass(frozen=True, slots=True)
class Poses:
    """Poses as written in a file.

    Attributes:
        stamps: int64 `[n]`, ns.
        pos: float64 `[n, 3]`, m.
        quat: float64 `[n, 4]`, wxyz.
        lines: line number of each pose.
        times: time of each pose as it is written.
    """

    stamps: NDArray[np.int64]
    pos: NDArray[np.float64]
    quat: NDArray[np.float64]
    lines: list[int]
    times: list[str]


def read_poses(path: str | Path) -> Poses:
    """Return the poses in a file: CSV of EuRoC if the first pose contains commas, otherwise TUM.

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
    for number, line in enumerate(_text(path, label).splitlines(), 1):
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
    return Poses(np.array(stamps, dtype=np.int64), values[:, :3], values[:, order], lines, times)


def _text(path: Path, label: str) -> str:
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
