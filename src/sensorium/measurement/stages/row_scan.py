"""Row scan: sequential sampling of the rows of a pad."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
import warp as wp

from sensorium.cfg import Float, must
from sensorium.compute import Rows, is_first, kernel, masked_tid, tick_now
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place, StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import Row, amount_row, column_values
from sensorium.measurement.stages.taxels import TaxelColumns, layout_of
from sensorium.spec import FieldSpec, exact_fraction


@kernel
def _keep(rows: Rows, now: wp.array2d[wp.float32], begun: wp.array2d[wp.float32], past: wp.array3d[wp.float32]) -> None:
    """Store a tick. The first tick after a reset fills the whole past."""
    env, column = masked_tid(rows)
    depth = past.shape[1]
    x = now[env, column]
    if begun[env, column] == 0.0:
        begun[env, column] = 1.0
        for k in range(depth):
            past[env, k, column] = x
    past[env, wp.int32(tick_now(rows) % wp.int64(depth)), column] = x


@wp.func
def between(newer: float, older: float, f: float) -> float:
    """Return the signal at a fraction f before the newer instant."""
    if wp.isnan(newer):
        return older
    if wp.isnan(older):  # from an invalid sample, which must not spread to this one
        return newer
    if wp.isfinite(newer) and wp.isfinite(older):
        return newer + f * (older - newer)
    return float(wp.where(f > 0.5, older, newer))


@kernel
def _scan(
    rows: Rows,
    whole: wp.array[wp.float32],
    share: wp.array[wp.float32],
    past: wp.array3d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    env, column = masked_tid(rows)
    depth = past.shape[1]
    at = wp.int32(tick_now(rows) % wp.int64(depth)) - int(whole[column]) + depth
    newer = past[env, at % depth, column]
    values[env, column] = newer
    f = share[column]
    if f > 0.0:
        values[env, column] = between(newer, past[env, (at - 1) % depth, column], f)


@kernel
def _scan_between(
    rows: Rows, share: wp.array[wp.float32], last: wp.array2d[wp.float32], values: wp.array2d[wp.float32]
) -> None:
    env, column = masked_tid(rows)
    newer = values[env, column]
    older = last[env, column]
    last[env, column] = newer
    f = share[column]
    if is_first(rows, env) or f == 0.0:
        return
    values[env, column] = between(newer, older, f)


class RowScan(StageCfg):
    """Row-scan skew: the rows of a grid are sampled one after the other, the last one at the capture.

    Row r of n shows the signal at t - scan_time (n - 1 - r) / n: the scan takes n equal steps, and the sample has the
    timestamp of the last one. The signal is interpolated linearly between known instants. Times before the first sample
    of an episode show that sample. The truth stays the point sample.

    The stage makes the sensor evaluate every tick, see `between`. An infinite value is not interpolated: the nearer of
    the two values is shown. Of NaN and a number, the number is shown.
    """

    place: ClassVar[Place] = "physics"
    is_recorded: ClassVar[bool] = True
    otherwise: ClassVar[str] = "RowScan(between='samples') interpolates between its samples instead."

    scan_time: Annotated[Float, must(lambda time: 0.0 <= time < math.inf, "a finite number of seconds >= 0")]
    """Duration of a whole scan, s: from 0, for simultaneous rows, to the period of the sensor."""
    axis: Literal["row", "column"] = "row"
    """Sequentially sampled axis: the rows of the grid (its first axis), or its columns (the second)."""
    direction: Literal["rising", "falling"] = "rising"
    """``"rising"``: from row 0 to the last row. ``"falling"``: from the last row to row 0, which is then sampled at the
    capture."""
    between: Literal["ticks", "samples"] = "ticks"
    """Known instants: the physics ticks, or only the sensor's samples. Samples suffice if the sensor samples at every
    tick, or if the signal is linear between samples. They are required for sensors that remember earlier samples
    themselves and so cannot be evaluated in between."""

    @property
    def observes(self) -> bool:  # type: ignore[override]  # a choice of each instance
        """Whether the stage needs the ticks between samples."""
        return self.between == "ticks"

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError` if a field has no rows, or the scan is longer than the period."""
        for field in columns:
            layout = layout_of(specs[field])
            if len(layout.shape) != 2:
                raise ValueError(f"a grid of rows and columns; {field!r} has {layout}")
        if self.scan_time > period * (1.0 + 1e-9):
            raise ValueError(f"a scan_time of at most the period, {period:g} s, not {self.scan_time:g} s")

    def lags(self, layout: TaxelColumns) -> Row:
        """Return the age of each row (or column), as a fraction of the scan time."""
        n = layout.shape[0 if self.axis == "row" else 1]
        lags = np.arange(n)[::-1] / n
        return lags if self.direction == "rising" else lags[::-1]

    def _lags_of(self, spec: FieldSpec, time: float) -> Row:
        """Return the lag of each column of a field, in units of a time, s."""
        layout = layout_of(spec)
        lags = self.lags(layout) * float(exact_fraction(self.scan_time) / exact_fraction(time))
        grid = np.broadcast_to(lags[:, None] if self.axis == "row" else lags, layout.shape)
        return np.tile(np.repeat(grid.reshape(-1), spec.columns // layout.count), layout.mounts)

    def state_shapes(self, key: StageKey) -> Mapping[str, tuple[int, ...]]:
        """Return the stored ticks, or the last sample, of each field."""
        if self.between == "samples":
            return {f"last_{field}": (count,) for field, count in key.columns.items()}
        depth = 1 + math.ceil(max(self._lags_of(spec, key.clock.dt).max() for spec in key.specs.values()))
        past = {f"past_{field}": (depth, count) for field, count in key.columns.items()}
        return {**past, **{f"begun_{field}": (count,) for field, count in key.columns.items()}}

    def observe(self, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Store a tick (one launch per field)."""
        for field, columns in key.columns.items():
            inputs = [column_values(truth[field])]
            key.compute.launch(_keep, (columns,), inputs, [state[f"begun_{field}"], state[f"past_{field}"]])

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Write each row's value at its own time (two launches per field, or one between samples)."""
        clock = key.clock
        if self.between == "samples":
            for field, columns in key.columns.items():
                share = amount_row(key, np.minimum(self._lags_of(key.specs[field], key.period), 1.0))
                outputs = [state[f"last_{field}"], column_values(slot[field])]
                key.compute.launch(_scan_between, (columns,), [share], outputs)
            return
        self.observe(slot, state, key)
        for field, columns in key.columns.items():
            whole, share = np.divmod(self._lags_of(key.specs[field], clock.dt), 1.0)
            inputs = [amount_row(key, whole), amount_row(key, share), state[f"past_{field}"]]
            key.compute.launch(_scan, (columns,), inputs, [column_values(slot[field])])
