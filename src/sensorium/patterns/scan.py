"""Scans: patterns whose rays fire one after the other, as tables of time, azimuth, elevation and channel.

A scan pattern is one period as a table in time order. A sensor's scan in a time interval is a window of the table,
which repeats endlessly: `window` selects its rays.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sensorium.cfg import Parsed, bad, numbers_in
from sensorium.errors import ConfigError
from sensorium.patterns.base import MAX_RAYS, Device, PatternBaseCfg, Positive, Rays, along, tensor

COLUMNS = ("time", "azimuth", "elevation", "channel")
_WORDS = {
    "t": "time", "time": "time", "timestamp": "time", "az": "azimuth", "azimuth": "azimuth", "el": "elevation",
    "elevation": "elevation", "zenith": "zenith", "channel": "channel", "ring": "channel", "line": "channel",
    "laser": "channel",
}  # fmt: skip
"""Accepted column names in files; a unit may follow: ``Azimuth/deg``, ``time_us``."""
_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "deg": 1.0, "rad": math.degrees(1.0)}


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ScanTable:
    """Firing times and directions of rays over one period. Rows are sorted by time, stably.

    Args:
        time: `[ray]`, s since the start of the scan, >= 0; need not be uniform.
        azimuth: `[ray]`, deg, left of x about z.
        elevation: `[ray]`, deg, upwards.
        channel: `[ray]`, laser of each ray; None means 0 for all.
        period: s after which the scan repeats, later than the last time; None uses the last time plus the median step.

    Attributes:
        time: float64 `[ray]`.
        azimuth: float64 `[ray]`.
        elevation: float64 `[ray]`.
        channel: int32 `[ray]`.
        period: float.

    Raises:
        ConfigError: columns are empty, of different lengths or not finite, or a value is out of range: the message
            gives the row.
    """

    time: NDArray[np.float64]
    azimuth: NDArray[np.float64]
    elevation: NDArray[np.float64]
    channel: NDArray[np.int32]
    period: float

    def __init__(
        self,
        time: ArrayLike,
        azimuth: ArrayLike,
        elevation: ArrayLike,
        channel: ArrayLike | None = None,
        period: float | None = None,
    ) -> None:
        t, az, el = (
            _column(name, values) for name, values in zip(COLUMNS[:3], (time, azimuth, elevation), strict=True)
        )
        ch = np.zeros(len(t)) if channel is None else _column("channel", channel)
        for name, values in zip(COLUMNS, (t, az, el, ch), strict=True):
            if len(values) != len(t):
                raise ConfigError.single("ScanTable", name, len(values), f"as many rows as times, {len(t)}")
        _refuse("time", t, t >= 0.0, "a time >= 0, s", "Subtract the first time.")
        _refuse("elevation", el, np.abs(el) <= 90.0, "from -90 to 90, deg", "Convert a zenith angle to 90 - zenith.")
        _refuse("channel", ch, (ch >= 0.0) & (ch == np.floor(ch)) & (ch < 2**31), "a whole number >= 0")
        order = np.argsort(t, kind="stable")
        t = t[order]
        if period is None:
            steps = np.diff(t)
            steps = steps[steps > 0.0]
            if not len(steps):
                fix = "Give the period, since all rays have the same time."
                raise ConfigError.single("ScanTable", "period", None, "a period, s", fix)
            period = float(t[-1] + np.median(steps))
        if not (isinstance(period, int | float) and t[-1] < period < math.inf):
            raise ConfigError.single("ScanTable", "period", period, f"a time after that of the last ray, {t[-1]:g} s")
        columns: tuple[NDArray[Any], ...] = (t, az[order], el[order], ch[order].astype(np.int32))
        for name, array in zip(COLUMNS, columns, strict=True):
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "period", float(period))

    def __len__(self) -> int:
        return len(self.time)

    def __repr__(self) -> str:
        return f"ScanTable({len(self)} rays, {int(self.channel.max()) + 1} channels, {self.period:g} s)"

    def directions(self) -> NDArray[np.float64]:
        """Return the unit directions, float64 `[ray, 3]`, in the sensor's frame."""
        return along(self.azimuth, self.elevation)

    # Files ------------------------------------------------------------------------------------------------------------

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], points_per_second: float | None = None, period: float | None = None
    ) -> ScanTable:
        """Read a table from a ``.csv`` or ``.npz`` file.

        A CSV file has a header; an ``.npz`` file has one array per column. The columns are time (or t), azimuth (az),
        elevation (el) or zenith (angle from straight up), and channel (ring, line, laser), in any order and case; other
        columns are ignored. A unit may follow: ``Azimuth/deg``, ``elevation_rad``, ``time_us``; the default units are s
        and deg.

        Args:
            path: the file.
            points_per_second: sets the time of row i to i / points_per_second; a column of times is then optional and
                ignored.
            period: overrides the period in the file.

        Raises:
            ConfigError: the file is missing, cannot be read, or does not hold a table.
        """
        file = Path(path)
        fix = "Give the columns time, azimuth, elevation or zenith, and channel for several lasers."
        try:
            columns = _read_npz(file) if file.suffix == ".npz" else _read_csv(file)
        except FileNotFoundError:
            raise ConfigError.single("ScanTable", "path", str(file), "a file that exists", "Check the path.") from None
        except Exception as error:  # NumPy and zipfile raise many kinds for damaged files
            raise ConfigError.single(
                "ScanTable", "path", str(file), f"a table: {error or type(error).__name__}", fix
            ) from None
        found = _known_columns(columns)
        if points_per_second is not None:
            if not 0.0 < points_per_second < math.inf:
                raise ConfigError.single("ScanTable", "points_per_second", points_per_second, "a rate > 0, 1/s")
            count = len(found.get("azimuth", ()))
            found["time"] = np.arange(count) / points_per_second
            period = count / points_per_second if period is None else period
        missing = [name for name in COLUMNS[:3] if name not in found]
        if missing:
            expected = f"columns {', '.join(COLUMNS[:3])}; {', '.join(missing)} missing"
            raise ConfigError.single("ScanTable", "path", list(columns), expected, fix)
        if period is None and "period" in columns:
            period = float(columns["period"])
        return cls(found["time"], found["azimuth"], found["elevation"], found.get("channel"), period)

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a ``.csv`` or ``.npz`` file; reading it gives the same numbers.

        Raises:
            ConfigError: the file name has another ending.
        """
        file = Path(path)
        columns = {name: getattr(self, name) for name in COLUMNS}
        if file.suffix == ".npz":
            np.savez_compressed(file, **columns, period=self.period)
        elif file.suffix == ".csv":
            with file.open("w", newline="", encoding="utf-8") as stream:
                stream.write(f"# period = {self.period!r}\n")
                writer = csv.writer(stream)
                writer.writerow(COLUMNS)
                writer.writerows(zip(*(columns[name].tolist() for name in COLUMNS), strict=True))
        else:
            raise ConfigError.single("ScanTable", "path", str(file), "a name that ends in .csv or .npz")


def _column(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        array = numbers_in(values)
    except ValueError:
        raise ConfigError.single("ScanTable", name, values, "numbers, one per ray") from None
    if array.ndim != 1 or not 0 < len(array) <= MAX_RAYS:
        expected = f"one number per ray, 1 to {MAX_RAYS} of them"
        raise ConfigError.single("ScanTable", name, array.shape, expected)
    _refuse(name, array, np.isfinite(array), "a finite number")
    return array


def _refuse(name: str, values: NDArray[np.float64], good: NDArray[np.bool_], expected: str, fix: str = "") -> None:
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise ConfigError.single("ScanTable", f"{name}[{row}]", float(values[row]), expected, fix)


def _read_csv(path: Path) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    with path.open(encoding="utf-8-sig") as stream:
        line = stream.readline()
        while line.lstrip().startswith("#"):
            key, _, value = line.strip("# \n").partition("=")
            if key.strip() == "period":
                columns["period"] = float(value)
            line = stream.readline()
        names = [name.strip() for name in line.split(",")]
        rows = np.loadtxt(stream, delimiter=",", ndmin=2)
    if not rows.size or rows.shape[1] != len(names):
        raise ValueError(f"rows of {len(names)} numbers under the header {line.strip()!r}")
    return {**dict(zip(names, rows.T, strict=True)), **columns}


def _read_npz(path: Path) -> dict[str, Any]:
    with (
        path.open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):  # NumPy does not close a damaged file
        return {name: arrays[name] for name in arrays.files}


def _known_columns(columns: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Return the known columns, in s and deg."""
    found = {}
    for given, values in columns.items():
        text = given.strip().lower().replace("[", "/").rstrip("]").replace("_", "/")
        word, _, unit = (part.strip() for part in text.partition("/"))
        if word in _WORDS and unit in _UNITS:
            scaled = np.asarray(values, np.float64) * _UNITS[unit]
            name = _WORDS[word]
            found["elevation" if name == "zenith" else name] = 90.0 - scaled if name == "zenith" else scaled
    return found


# Windows --------------------------------------------------------------------------------------------------------------


def window(times: ArrayLike, period: float, start: float, stop: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the rays that fire from `start` to before `stop`, for an endlessly repeating scan.

    Consecutive windows share no ray and omit none.

    Args:
        times: `[ray]`, s, in [0, period), never decreasing.
        period: s.
        start: start of the window, s since the start of the scan.
        stop: end of the window, s.

    Returns:
        Indices of the rays, int64 `[fired]`, in firing order, and their firing times: repeat * period + time, float64
        `[fired]`, s since the start of the scan.

    Raises:
        ValueError: stop is before start, or start is before 0.
    """
    if not 0.0 <= start <= stop < math.inf:
        raise ValueError(f"window: got {start} to {stop} s, expected 0 <= start <= stop, finite.")
    t = np.asarray(times, np.float64)
    repeats = np.arange(max(math.floor(start / period) - 1, 0), math.floor(stop / period) + 2)
    indices, fired = [np.zeros(0, np.int64)], [np.zeros(0)]
    for repeat in repeats:
        absolute = repeat * period + t
        first, last = np.searchsorted(absolute, (start, stop))
        indices.append(np.arange(first, last))
        fired.append(absolute[first:last])
    return np.concatenate(indices), np.concatenate(fired)


# Patterns -------------------------------------------------------------------------------------------------------------


class ScanPatternCfg(PatternBaseCfg):
    """Pattern whose rays fire one after the other from the sensor's origin. Subclass it and define `table`."""

    is_abstract: ClassVar[bool] = True

    def table(self) -> ScanTable:
        """Return one period of the scan."""
        raise NotImplementedError(f"{type(self).__name__} does not define table")

    def func(self, device: Device) -> tuple[Tensor, Tensor]:
        """Return starts (0) and directions, float32 `[ray, 3]`, in firing order."""
        directions = tensor(self.table().directions(), device)
        return torch.zeros_like(directions), directions

    def count_rays(self) -> int | None:
        """Return the number of rays in the table, or an upper bound; None if unknown before the table is computed."""
        return None

    def shape_of(self, table: ScanTable) -> tuple[int, ...]:
        """Return the shape of the rays of `table` on their natural axes; by default one axis."""
        return (len(table),)

    @property
    def return_shape(self) -> tuple[int, ...]:
        """Shape of the rays on their natural axes, the last one varying fastest."""
        return self.shape_of(self.table())

    def rays(self, device: Device = "cpu") -> Rays:
        """Return one period of the scan, on `device`, in firing order."""
        table = self.table()
        directions = tensor(table.directions(), device)
        return Rays(
            torch.zeros_like(directions),
            directions,
            self.shape_of(table),
            torch.tensor(table.time, dtype=torch.float64, device=device),
            torch.tensor(table.channel, dtype=torch.int32, device=device),
            table.period,
        )


def _parse_numbers(value: Any) -> Any:
    if value is None:
        return None
    try:
        array = numbers_in(value)
    except ValueError:
        raise bad("a list of numbers, one per ray") from None
    if array.ndim != 1:
        raise bad("a list of numbers, one per ray")
    return tuple(array.tolist())


if TYPE_CHECKING:
    Numbers = ArrayLike | None
else:
    Numbers = Annotated[Any, Parsed("ArrayLike | None", _parse_numbers)]


class TablePatternCfg(ScanPatternCfg):
    """Scan from a measured, published or computed table. Give `path`, or the columns themselves.

    Manufacturers such as Livox publish tables for scanners with complex motion. Check the licence; this package
    includes no tables.
    """

    points_per_second: Positive | None = None
    """Sets the time of row i to i / points_per_second, 1/s, which overrides times in the table."""
    period: Positive | None = None
    """Time after which the scan repeats, s; None uses the last time plus the median step between rays."""
    path: str | None = None
    """A ``.csv`` or ``.npz`` file, see `ScanTable.from_file`."""
    time: Numbers = None
    """Time of each ray since the start of the scan, s."""
    azimuth: Numbers = None
    """Azimuth of each ray, deg, left positive."""
    elevation: Numbers = None
    """Elevation of each ray, deg, up positive."""
    channel: Numbers = None
    """Laser of each ray; None means 0 for all."""

    def __init__(self, /, **data: Any) -> None:
        if isinstance(data.get("path"), os.PathLike):
            data = {**data, "path": os.fspath(data["path"])}
        super().__init__(**data)
        columns = [name for name in COLUMNS if getattr(self, name) is not None]
        name = type(self).__name__
        if self.path is not None and columns:
            raise ConfigError.single(name, columns[0], "a column", "either path or columns", "Keep one of the two.")
        needed = ["azimuth", "elevation"] if self.points_per_second is not None else ["time", "azimuth", "elevation"]
        missing = [each for each in needed if each not in columns]
        if self.path is None and missing:
            fix = "Give path=..., or the columns time, azimuth and elevation."
            raise ConfigError.single(name, missing[0], None, "a column", fix)
        try:
            self.table()
        except ConfigError as error:
            raise ConfigError(name, error.faults) from None

    @classmethod
    def from_table(cls, table: ScanTable) -> TablePatternCfg:
        """Return the pattern of a table, with the rays stored in the config."""
        return cls(
            time=table.time,
            azimuth=table.azimuth,
            elevation=table.elevation,
            channel=table.channel,
            period=table.period,
        )

    def table(self) -> ScanTable:
        """Return the table, read from the file if a path is given."""
        if self.path is not None:
            try:
                state = os.stat(self.path)
                stamp = (state.st_mtime_ns, state.st_size)
            except OSError:
                stamp = (0, 0)
            return _load(self.path, stamp, self.points_per_second, self.period)
        time, period = self.time, self.period
        if self.points_per_second is not None:
            count = len(np.asarray(self.azimuth))
            time = np.arange(count) / self.points_per_second
            period = count / self.points_per_second if period is None else period
        assert time is not None and self.azimuth is not None and self.elevation is not None
        return ScanTable(time, self.azimuth, self.elevation, self.channel, period)


@lru_cache(maxsize=8)
def _load(
    path: str, stamp: tuple[int, int], points_per_second: float | None, period: float | None
) -> ScanTable:  # `stamp` distinguishes a rewritten file
    return ScanTable.from_file(path, points_per_second, period)
