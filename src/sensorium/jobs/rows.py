"""Rows of a data set: a row per measured sample that arrived in its episode, with the truth of the same capture."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from sensorium.readings import Array, Reading
from sensorium.record.arrivals import Arrivals
from sensorium.record.export.table_files import TableField
from sensorium.record.stacks import Stack
from sensorium.spec import FieldSpec

HEAD = (
    TableField("env", "int64"), TableField("episode", "int64"), TableField("tick", "int64"),
    TableField("time", "float64", unit="s"), TableField("stamp", "float64", unit="s"),
    TableField("arrival", "float64", unit="s"),
)  # fmt: skip
"""First values of each row: global environment and episode, and, since the start of the episode, tick and time of the
capture, time by the sensor's own clock, and time at which the value was first read."""
TRUTH = "truth."
"""Start of the names of true values."""
BLOCK_BYTES, BLOCK_READINGS = 8_000_000, 512
"""Size and number of the readings of one sensor that become rows at once."""


@dataclass(frozen=True, slots=True)
class Column:
    """Values of one field for consecutive rows.

    Args:
        values: `[row, ...]`, or `[item, ...]` of a ragged field.
        counts: number of items of each row, `[row]`; None for other fields.
    """

    values: Array
    counts: Array | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive rows.

    Args:
        columns: field -> values.
        env: local environment of each row.
        readings: the readings that the rows were made of, if they are wanted.
        episode: number of the episode.
        start: tick at which it started.
    """

    columns: Mapping[str, Column]
    env: Array
    readings: Sequence[Reading] = ()
    episode: int = 0
    start: int = 0

    def __len__(self) -> int:
        return len(self.env)

    @property
    def nbytes(self) -> int:
        """Size of the values, bytes."""
        return sum(each.values.nbytes for each in self.columns.values())

    def of_envs(self, kept: Array) -> Block:
        """Return the rows of some environments, bool `[env]`."""
        if kept.all():
            return self
        rows = kept[self.env]
        columns = {
            name: Column(each.values[rows])
            if each.counts is None
            else Column(each.values[np.repeat(rows, each.counts)], each.counts[rows])
            for name, each in self.columns.items()
        }
        return Block(columns, self.env[rows])


class SensorRows:
    """Rows of one sensor.

    Args:
        specs: specs of its fields.
        mounts: number of its mounts whose poses are known; 0 for none.
        truth: whether rows have the truth.
        first_env: global index of environment 0.
        num_envs: number of environments.
        readings: whether blocks hold their readings.

    Attributes:
        fields: the fields of the rows.
        names: name of a spec -> name of its field.
        ragged: names of the fields with any number of items per row.
    """

    def __init__(
        self,
        specs: Sequence[FieldSpec],
        mounts: int,
        truth: bool,
        first_env: int,
        num_envs: int,
        readings: bool = False,
    ) -> None:
        self.specs, self._keeps_readings = tuple(specs), readings
        self._truth, self._first_env, self._num_envs = truth, first_env, num_envs
        self.fields, self.names = [*HEAD], dict[str, str]()
        for spec in specs:
            name = spec.name
            while name in {each.name for each in self.fields}:
                name += "_"
            self.names[spec.name] = name
            self.fields.append(_field(spec, name))
        if truth:
            self.fields += [_field(spec, TRUTH + self.names[spec.name]) for spec in specs]
        if mounts:
            self.fields.append(TableField(f"{TRUTH}pose_pos", "float32", ("mount", "xyz"), (mounts, 3), "m", "world"))
            self.fields.append(TableField(f"{TRUTH}pose_quat", "float32", ("mount", "wxyz"), (mounts, 4), "1", "world"))
        self._mounts = mounts
        self._single = [spec.name for spec in specs if not spec.is_ragged]
        ragged = [self.names[spec.name] for spec in specs if spec.is_ragged]
        self.ragged = {*ragged, *(TRUTH + name for name in ragged)}
        self.begin(0, 0)

    @property
    def about(self) -> dict[str, Any]:
        """JSON-serialisable description of the fields, from which `described` returns the same fields."""
        return {"specs": [spec.to_dict() for spec in self.specs], "mounts": self._mounts, "truth": self._truth}

    @classmethod
    def described(cls, about: Mapping[str, Any]) -> SensorRows:
        """Return the rows of no environments with the fields of a description."""
        return cls([FieldSpec.from_dict(each) for each in about["specs"]], about["mounts"], about["truth"], 0, 0)

    def begin(self, episode: int, tick: int) -> None:
        """Start an episode at a tick."""
        self._episode, self._start = episode, tick
        self._arrivals = Arrivals(self._num_envs)
        self._pending: list[Reading] = []
        self._size = 0
        self._known: tuple[Array, dict[str, Array]] = (np.zeros(0, np.int64), {})
        """Ticks of earlier captures whose measured values can still arrive, and their truth `[capture, env, ...]`."""

    def add(self, reading: Reading) -> Block | None:
        """Add a reading; return rows if there are many."""
        self._pending.append(reading)
        self._size += sum(array.nbytes for each in (reading.measured, reading.truth) for array in each.values())
        return self.take() if self._size >= BLOCK_BYTES or len(self._pending) >= BLOCK_READINGS else None

    def take(self) -> Block | None:
        """Return the rows of the readings that were added since the last call."""
        readings, self._pending, self._size = self._pending, [], 0
        return self.block(Stack.of(readings), readings[0]._dt, readings) if readings else None

    def block(self, stack: Stack, dt: float, readings: Sequence[Reading] = ()) -> Block:
        """Return the rows of the next readings.

        Args:
            stack: the readings.
            dt: physics time step, s.
            readings: the same, if they are known one by one.
        """
        about = stack.about
        at, env = np.nonzero(self._arrivals.new(about["capture_tick"], about["frame"], about["valid"]))
        ticks = about["capture_tick"][at, env]
        start = self._start * dt
        head: list[Array] = [
            self._first_env + stack.env_ids[env], np.full(len(at), self._episode), ticks - self._start,
            (ticks - self._start) * dt, about["stamp"][at, env] - start, stack.times[at] - start,
        ]  # fmt: skip
        columns = {field.name: Column(values) for field, values in zip(HEAD, head, strict=True)}
        items, counts = stack.rows(at, env) if stack.offsets is not None else (at, None)
        for spec in self.specs:
            values = stack.measured[spec.name]
            values = values[items] if spec.is_ragged else _chosen(values, at, env)
            columns[self.names[spec.name]] = Column(values, counts if spec.is_ragged else None)
        if self._truth:
            is_shown = (about["capture_tick"] == about["truth_tick"]) & about["valid"]
            if is_shown.all() and not len(self._known[0]):  # every capture arrived at once
                truth = {name: _chosen(stack.truth[name], at, env) for name in self._single}
            else:
                row = self._rows_of_truth(stack, ticks)
                truth = {name: values[row, env] for name, values in self._known[1].items()}
                self._forget(int(about["capture_tick"][-1].min()))
            for spec in self.specs:
                values = stack.truth[spec.name][items] if spec.is_ragged else truth[spec.name]
                columns[TRUTH + self.names[spec.name]] = Column(values, counts if spec.is_ragged else None)
        if self._mounts:
            assert stack.pose is not None
            pose = _chosen(stack.pose, at, env)
            columns[f"{TRUTH}pose_pos"] = Column(pose[..., :3])
            columns[f"{TRUTH}pose_quat"] = Column(pose[..., 3:])
        return Block(columns, env, readings if self._keeps_readings else (), self._episode, self._start)

    def _rows_of_truth(self, stack: Stack, ticks: Array) -> Array:
        """Return the row of each capture in `_known`, after the truth of a stack has been added there.

        All environments capture at the same ticks, because they are reset together.
        """
        captures = stack.about["truth_tick"][:, 0]
        known, values = self._known
        new = np.flatnonzero(captures > np.concatenate((known[-1:] if len(known) else [-1], captures[:-1])))
        if len(known):
            values = {name: np.concatenate((values[name], stack.truth[name][new])) for name in self._single}
        else:
            values = {name: stack.truth[name][new] for name in self._single}
        self._known = np.concatenate((known, captures[new])), values
        return np.searchsorted(self._known[0], ticks)

    def _forget(self, tick: int) -> None:
        """Forget the truth of captures before a tick: readings never go back."""
        ticks, values = self._known
        first = int(np.searchsorted(ticks, tick))
        self._known = ticks[first:], {name: array[first:].copy() for name, array in values.items()}


def _chosen(values: Array, at: Array, env: Array) -> Array:
    """Return the rows of some readings and environments, in this order; without a copy if they are all."""
    count = values.shape[0] * values.shape[1]
    return values.reshape(count, *values.shape[2:]) if len(at) == count else values[at, env]


def _field(spec: FieldSpec, name: str) -> TableField:
    skipped = 1 if spec.is_ragged else 0
    return TableField(name, spec.dtype, spec.axes[skipped:], spec.shape[skipped:], spec.unit, spec.frame)


class Checksum:
    """Hash of rows, which does not depend on the file that holds them or on how they were divided into blocks.

    Args:
        fields: the fields of the rows.
    """

    def __init__(self, fields: Sequence[TableField]) -> None:
        self._digests = defaultdict[tuple[str, str], Any](hashlib.sha256)
        self._shapes = {field.name: (field.dtype, *field.shape) for field in fields}
        self.rows = 0

    def add(self, columns: Mapping[str, Column]) -> None:
        """Add rows."""
        self.rows += len(columns[HEAD[0].name].values)
        for name, column in columns.items():
            if column.counts is not None:
                self._digests[name, "counts"].update(column.counts.astype("<i8").data)
            if column.values.size:
                self._digests[name, "values"].update(np.ascontiguousarray(column.values).data.cast("B"))

    def hexdigest(self) -> str:
        """Return the hash, 64 hexadecimal digits."""
        whole = hashlib.sha256()
        for name, shape in self._shapes.items():
            parts = [self._digests[name, part].hexdigest() for part in ("counts", "values")]
            whole.update(f"{name}\0{shape}\0{parts}\0".encode())
        return whole.hexdigest()


def width_of(field: TableField) -> int:
    """Return the number of values of one item of a field."""
    return prod(field.shape)
