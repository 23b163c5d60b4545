"""Row scan: the rows of a pad are not sampled at one instant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
import warp as wp

from sensorium.cfg import Float, Place, StageCfg, must
from sensorium.compute import Rows, is_first, kernel, tick_now
from sensorium.measurement.record import Record
from sensorium.measurement.stages.amounts import Row, amount_row, column_values, state_views
from sensorium.measurement.stages.key import StageKey
from sensorium.measurement.stages.taxels import TaxelLayout, layout_of
from sensorium.spec import FieldSpec, exact_fraction


@kernel
def _keep(
    rows: Rows,
    now: wp.array2d[wp.float32],
    begun: wp.array2d[wp.float32],
    past: wp.array3d[wp.float32],
) -> None:
    """Keep a tick. The first one after a reset has always been."""
    i, column = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    depth = past.shape[1]
    x = now[env, column]
    if begun[env, column] == 0.0:
        begun[env, column] = 1.0
        for k in range(depth):
            past[env, k, column] = x
    past[env, tick_now(rows) % depth, column] = x


@wp.func
def between(newer: float, older: float, f: float) -> float:
    """Return the signal a fraction f before the newer instant."""
    if wp.isnan(newer):
        return older
    if wp.isnan(older):  # of a sample that was not valid: this one does not say so
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
    i, column = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    depth = past.shape[1]
    at = tick_now(rows) - int(whole[column]) + depth
    newer = past[env, at % depth, column]
    values[env, column] = newer
    f = share[column]
    if f > 0.0:
        values[env, column] = between(newer, past[env, (at - 1) % depth, column], f)


@kernel
def _scan_between(
    rows: Rows,
    share: wp.array[wp.float32],
    last: wp.array2d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    i, column = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    newer = values[env, column]
    older = last[env, column]
    last[env, column] = newer
    f = share[column]
    if is_first(rows, env) or f == 0.0:
        return
    values[env, column] = between(newer, older, f)


class RowScan(StageCfg):
    """Row-scan skew: the rows of a grid are sampled one after the other, the last of them at the capture.

    Row r of n shows the signal as it was at t - scan_time (n - 1 - r) / n: the scan takes n equal steps, and the sample
    is stamped with the last. Between two instants that are known the signal is interpolated linearly. What is older
    than the first sample of an episode shows that one. The truth stays the point sample.

    The sensor is evaluated at every tick for it, see `between`. An infinite value is not interpolated: the nearer of
    the two is shown. Of NaN and a number it is the number.
    """

    place: ClassVar[Place] = "physics"
    is_recorded: ClassVar[bool] = True
    otherwise: ClassVar[str] = "RowScan(between='samples') interpolates between its samples instead."

    scan_time: Annotated[Float, must(lambda time: 0.0 <= time < math.inf, "a finite number of seconds from 0 up")]
    """Time of a whole scan, s: from 0, where all rows are of one instant, to the period of the sensor."""
    axis: Literal["row", "column"] = "row"
    """What is sampled one after the other: the rows of the grid (its first axis), or its columns (the second)."""
    direction: Literal["rising", "falling"] = "rising"
    """``"rising"``: from row 0 to the last row, as above. ``"falling"``: from the last to row 0, which then is the one
    at the capture."""
    between: Literal["ticks", "samples"] = "ticks"
    """Known instants: the physics ticks, or the sensor's samples only. Samples are enough where the sensor samples at
    every tick, or the signal is straight between two of them; and they are what a sensor can offer that remembers
    earlier samples itself: it cannot be asked in between."""

    @property
    def observes(self) -> bool:  # type: ignore[override]  # a choice of each instance
        """Whether it looks at the ticks between samples."""
        return self.between == "ticks"

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError` where a field has no rows, or the scan is longer than the period."""
        for field in columns:
            layout = layout_of(specs[field])
            if len(layout.shape) != 2:
                raise ValueError(f"a grid of rows and columns; {field!r} has {layout}")
        if self.scan_time > period * (1.0 + 1e-9):
            raise ValueError(f"a scan_time of at most the period, {period:g} s, not {self.scan_time:g} s")

    def lags(self, layout: TaxelLayout) -> Row:
        """Return how old what each row (or column) shows is, as a fraction of the scan time."""
        n = layout.shape[0 if self.axis == "row" else 1]
        lags = np.arange(n)[::-1] / n
        return lags if self.direction == "rising" else lags[::-1]

    def _lags_of(self, spec: FieldSpec, time: float) -> Row:
        """Return the lag of each column of a field, in units of a time, s."""
        layout = layout_of(spec)
        lags = self.lags(layout) * float(exact_fraction(self.scan_time) / exact_fraction(time))
        grid = np.broadcast_to(lags[:, None] if self.axis == "row" else lags, layout.shape)
        return np.tile(np.repeat(grid.reshape(-1), spec.columns // layout.count), layout.mounts)

    def _depth(self, key: StageKey) -> int:
        """Return how many ticks are kept."""
        oldest = max(float(self._lags_of(spec, key.clock.dt).max()) for spec in key.specs.values())
        return 1 + math.ceil(oldest)

    def state_shapes(self, key: StageKey) -> Mapping[str, tuple[int, ...]]:
        """Return the ticks, or the last sample, of each field."""
        if self.between == "samples":
            return {f"last_{field}": (count,) for field, count in key.columns.items()}
        depth = self._depth(key)
        past = {f"past_{field}": (depth, count) for field, count in key.columns.items()}
        return {**past, **{f"begun_{field}": (count,) for field, count in key.columns.items()}}

    def observe(self, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Keep a tick (one launch per field)."""
        for field, columns in key.columns.items():
            inputs = [column_values(truth[field])]
            key.compute.launch(_keep, (columns,), inputs, state_views(state, f"begun_{field}", f"past_{field}"))

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Show each row as it was when its turn came (two launches per field, or one between samples)."""
        clock = key.clock
        if self.between == "samples":
            for field, columns in key.columns.items():
                share = amount_row(key, np.minimum(self._lags_of(key.specs[field], key.period), 1.0))
                outputs = [*state_views(state, f"last_{field}"), column_values(slot[field])]
                key.compute.launch(_scan_between, (columns,), [share], outputs)
            return
        self.observe(slot, state, key)
        for field, columns in key.columns.items():
            whole, share = np.divmod(self._lags_of(key.specs[field], clock.dt), 1.0)
            inputs = [amount_row(key, whole), amount_row(key, share), *state_views(state, f"past_{field}")]
            key.compute.launch(_scan, (columns,), inputs, [column_values(slot[field])])
