"""Tables of readings: a file per sensor and branch, with a row per capture and environment."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from math import prod
from pathlib import Path

import numpy as np

from sensorium.errors import ArgumentError, shown
from sensorium.readings import Array, Reading
from sensorium.record.archive import stem_of
from sensorium.record.arrivals import Arrivals
from sensorium.record.export.table_files import FILES, TableField, TableFile
from sensorium.record.stacks import Stack
from sensorium.record.staging import staged
from sensorium.spec import FieldSpec

MAX_COLUMNS = 4096
"""Maximum number of columns of one field in CSV and Parquet files."""
BLOCK_BYTES = 4_000_000
"""Size of the readings of one sensor that are written at once, bytes."""
BLOCK_READINGS = 512
"""Number of readings of one sensor that are written at once."""
ENV = (TableField("env", "int64"), TableField("tick", "int64"), TableField("time", "float64", unit="s"))
"""First values of each row: environment, tick and time of the capture."""
MEASURED = (TableField("stamp", "float64", unit="s"), TableField("arrival", "float64", unit="s"))
"""Further values of measured rows: time by the sensor's own clock, and time at which the value was first read."""


def write_tables(
    readings: Iterable[Reading],
    folder: str | os.PathLike[str],
    file_format: str,
    *,
    dt: float,
    env: int | None = None,
    keep_all: bool = False,
) -> list[str]:
    """Write ``SENSOR.measured.FORMAT`` and ``SENSOR.truth.FORMAT``, each with a row per capture and environment.

    Rows have the environment, tick and time of the capture, and the fields. Measured rows also have the time by the
    sensor's clock, the time of arrival, and the recorded pose. Values that have not arrived are omitted. Fields with
    events are written to ``SENSOR.BRANCH.events.FORMAT``, a row per event.

    Args:
        readings: readings of any sensors, each sensor's in the order of time.
        folder: the folder; created if missing, existing files are replaced.
        file_format: ``"csv"``, ``"npz"`` or ``"parquet"``.
        dt: physics time step, s.
        env: the environment; None for all.
        keep_all: whether all valid readings of the same capture are written, as for logged values.

    Returns:
        One message for everything that the format cannot hold.

    Raises:
        ArgumentError: no reading contains the environment.
        MissingDependencyError: the format needs a package that is not installed.
    """
    notes: list[str] = []
    tables: dict[str, list[_SensorTables]] = {}
    known: set[int] = set()
    with staged(folder) as root, ExitStack() as stack:
        stems = {each.name.partition(".measured")[0] for each in root.iterdir()}  # of an outer block
        for reading in readings:
            known.update(reading.env_ids.tolist())
            if env is not None and env not in reading.env_ids:
                continue
            of_name = tables.setdefault(reading.name, [])
            table = next((each for each in of_name if each.fits(reading)), None)
            if table is None:
                key, number = stem_of(reading.name), 1
                stem = key
                while stem in stems:
                    number += 1
                    stem = f"{key}.{number}"
                stems.add(stem)
                table = _SensorTables(reading, root / stem, file_format, dt, env, keep_all, stack)
                of_name.append(table)
                notes += table.notes
            table.add(reading)
        for each in (table for of_name in tables.values() for table in of_name):
            each.write()
        if env is not None and env not in known:
            raise ArgumentError(f"env: got {shown(env)}, expected one of the recorded environments {sorted(known)}.")
    return notes


class _SensorTables:
    """Files of one sensor whose fields do not change."""

    def __init__(
        self, first: Reading, stem: Path, file_format: str, dt: float, env: int | None, keep_all: bool, stack: ExitStack
    ) -> None:
        self._dt, self._keep_all = dt, keep_all
        self._layout = _layout(first)
        every = np.arange(len(first.env_ids))
        self._envs = every if env is None else np.flatnonzero(first.env_ids == env)
        self._pending: list[Reading] = []
        self._size = 0
        self.notes: list[str] = []
        limit = None if file_format == "npz" else MAX_COLUMNS
        self._specs: list[FieldSpec] = []
        for spec in first.specs:
            count = prod(spec.shape[1:] if spec.is_ragged else spec.shape)
            if limit is not None and count > limit:
                self.notes.append(
                    f"{first.name}: {spec.name} has {count} values per row, and {file_format} files hold at most "
                    f"{limit} columns of a field. Export it with --format npz."
                )
            else:
                self._specs.append(spec)
        self._files: dict[tuple[str, bool], TableFile] = {}
        self._arrivals: dict[str, Arrivals] = {}
        for branch in ("measured", "truth") if first.truth else ("measured",):
            self._arrivals[branch] = Arrivals(len(self._envs))
            for ragged in {spec.is_ragged for spec in first.specs} | {False}:
                events = ".events" if ragged else ""
                fields = self._fields(first, branch, ragged)
                path = stem.with_name(f"{stem.name}.{branch}{events}.{file_format}")
                file = self._files[branch, ragged] = FILES[file_format](path, fields)
                stack.callback(file.close)

    def _fields(self, reading: Reading, branch: str, ragged: bool) -> list[TableField]:
        """Return the values of each row."""
        found = [*ENV, *(MEASURED if branch == "measured" else ())]
        if branch == "measured" and not ragged and reading.pose is not None:
            mounts = reading.pose.shape[1]
            found.append(TableField("pose_pos", "float32", ("mount", "xyz"), (mounts, 3), "m", "world"))
            found.append(TableField("pose_quat", "float32", ("mount", "wxyz"), (mounts, 4), "1", "world"))
        taken = {each.name for each in found}
        for spec in self._specs:
            if spec.is_ragged != ragged:
                continue
            name = spec.name
            while name in taken:
                name += "_"
            taken.add(name)
            skipped = 1 if ragged else 0
            axes, shape = spec.axes[skipped:], spec.shape[skipped:]
            found.append(TableField(name, spec.dtype, axes, shape, spec.unit, spec.frame))
        return found

    def fits(self, reading: Reading) -> bool:
        """Return whether a reading has the fields and environments of these files."""
        return _layout(reading) == self._layout

    def add(self, reading: Reading) -> None:
        """Add a reading."""
        self._pending.append(reading)
        branches = (reading.measured, reading.truth)
        self._size += sum(array.nbytes for branch in branches for array in branch.values())
        if self._size >= BLOCK_BYTES or len(self._pending) >= BLOCK_READINGS:
            self.write()

    def write(self) -> None:
        """Write the readings added since the last call."""
        readings, self._pending, self._size = self._pending, [], 0
        if readings:
            stack = Stack.of(readings)
            for branch, arrivals in self._arrivals.items():
                self._write_branch(stack, branch, arrivals)

    def _write_branch(self, stack: Stack, branch: str, arrivals: Arrivals) -> None:
        is_measured = branch == "measured"
        ticks, frames, valid = (
            stack.about[name][:, self._envs]
            for name in ("capture_tick" if is_measured else "truth_tick", "frame", "valid")
        )
        valid = valid if is_measured else np.ones(ticks.shape, bool)
        at, column = np.nonzero(valid if self._keep_all else arrivals.new(ticks, frames, valid))
        if not len(at):
            return
        env = self._envs[column]
        head = [stack.env_ids[env], ticks[at, column], ticks[at, column] * self._dt]
        if is_measured:
            head += [stack.about["stamp"][at, env], stack.times[at]]
        values = stack.measured if is_measured else stack.truth
        chosen: tuple[Array, ...]
        for (of_branch, ragged), file in self._files.items():
            if of_branch != branch:
                continue
            arrays, chosen = list(head), (at, env)
            if ragged:
                rows, counts = stack.rows(at, env)
                arrays, chosen = [np.repeat(each, counts) for each in head], (rows,)
            elif is_measured and stack.pose is not None:
                arrays += np.split(stack.pose[chosen], [3], axis=-1)
            arrays += [values[spec.name][chosen] for spec in self._specs if spec.is_ragged == ragged]
            file.write(arrays)


def _layout(reading: Reading) -> tuple[object, ...]:
    """Return all that determines the columns and rows of a reading."""
    mounts = None if reading.pose is None else reading.pose.shape[1]
    return reading.specs, tuple(reading.env_ids.tolist()), mounts, bool(reading.truth)
