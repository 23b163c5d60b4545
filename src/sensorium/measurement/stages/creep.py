"""Creep: a slow change of the reading under a constant load, and drift in units per hour."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import warp as wp
from pydantic import Field as PydanticField

from sensorium.cfg import Amount, Float
from sensorium.compute import Rows, is_first, kernel, masked_tid, tick_now, ticks_since
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place, StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import (
    BEGAN,
    DrawnStage,
    PositiveTime,
    Row,
    amount_row,
    check_fit,
    column_values,
    launch_start,
    time_above,
)

_PER_DECADE = 2
"""Processes per decade of rates: the sum is then within 2e-3 of the creep of one decade."""


@kernel
def _creep(
    rows: Rows,
    is_settled: int,
    hours_per_tick: float,
    leak: wp.array[wp.float32],
    weight: wp.array[wp.float32],
    amount: wp.array2d[wp.float32],
    drift: wp.array2d[wp.float32],
    began: wp.array2d[wp.float32],
    last: wp.array2d[wp.float32],
    first: wp.array2d[wp.float32],
    parts: wp.array3d[wp.float32],
    carry: wp.array3d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    env, column = masked_tid(rows)
    x = values[env, column]
    if not wp.isfinite(x):
        return
    if is_first(rows, env):
        first[env, column] = 0.0
        if is_settled != 0:
            first[env, column] = x
    load = x - first[env, column]
    before = last[env, column]
    total = wp.float32(0.0)
    for k in range(leak.shape[0]):
        p = wp.float32(0.0)
        c = wp.float32(0.0)
        if not is_first(rows, env):
            # compensated sum: the slowest parts change by less than the last digit per sample
            c = carry[env, column, k]
            step = leak[k] * (before - parts[env, column, k]) - c
            p = parts[env, column, k] + step
            c = (p - parts[env, column, k]) - step
        parts[env, column, k] = p
        carry[env, column, k] = c
        total = total + weight[k] * p
    last[env, column] = load
    since = float(ticks_since(tick_now(rows), began, env)) * hours_per_tick
    values[env, column] = x + amount[env, column] * total + drift[env, column] * since


class Creep(DrawnStage):
    """Creep of an elastic element, and drift: x -> x + creep F log10(1 + t / t0) + drift t, for a load F since t = 0.

    Logarithmic creep (Phillips, "The slow stretch in indiarubber, glass, and metal wires when subjected to a constant
    pull", Proc. Phys. Soc. 19, 1905), superposed for varying loads (Boltzmann): a removed load recovers by the same
    law. It is a sum of first-order processes, two per decade of their rates s, since ln(1 + t / t0) = integral of (1 -
    exp(-s t)) exp(-s t0) / s over s. The sum is within 2e-3 of the creep of one decade up to `t_max`; beyond that,
    creep ends.
    """

    place: ClassVar[Place] = "scale"

    creep: Amount = 0.0
    """Creep per decade of time, as a fraction of the load: a number, one per axis, or a distribution drawn per env and
    axis at reset."""
    t0: PositiveTime = 1.0
    """Time from which the creep is logarithmic, s."""
    t_max: Annotated[Float, time_above("t0")] = PydanticField(default=1e4, validate_default=True)
    """Longest time for which the law is approximated, s."""
    start: Literal["unloaded", "settled"] = "unloaded"
    """``"unloaded"``: the load at the first sample of an episode has just been applied. ``"settled"``: it was applied
    long ago and the device was zeroed since; only changes creep."""
    drift: Amount = 0.0
    """Drift, in the field's unit per hour since the reset: a number, one per axis, or a distribution."""

    def processes(self) -> tuple[Row, Row]:
        """Return the rates (1/s) of the summed processes, and their weights for a creep of 1."""
        low, high = 0.1 / self.t_max, 10.0 / self.t0
        rates = np.geomspace(low, high, 1 + math.ceil(_PER_DECADE * math.log10(high / low) - 1e-9))
        step = math.log(rates[1] / rates[0])
        weights = np.exp(-rates * self.t0) * step
        weights[0] /= -math.expm1(-step)  # it represents all slower ones, whose rates are a geometric series
        return rates, weights / math.log(10.0)

    def amounts(self, columns: int) -> dict[str, tuple[Any, int]]:
        """Return creep and drift."""
        return {"creep": (self.creep, columns), "drift": (self.drift, columns)}

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the processes with their rounding residues, the last load, the first value, and the drawn amounts."""
        check_fit(columns, creep=self.creep, drift=self.drift)
        count = self.processes()[0].size
        specs: dict[str, tuple[int, ...]] = {"began": (BEGAN,)}
        for field, width in columns.items():
            specs |= {f"{name}_{field}": (width, count) for name in ("parts", "carry")}
            specs |= {f"{name}_{field}": (width,) for name in ("last", "first")}
        return {**specs, **super().state_specs(columns)}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Advance the processes and add their sum (one launch per field, and one that acts only at a reset)."""
        launch_start(key, state["began"])
        rates, weights = self.processes()
        rows = [amount_row(key, each) for each in (-np.expm1(-rates * key.period), weights)]
        first = [int(self.start == "settled"), key.clock.dt / 3600.0, *rows]
        for field, columns in key.columns.items():
            kept = [state[f"{name}_{field}"] for name in ("last", "first", "parts", "carry")]
            inputs = [*first, *self.tables(state, key, field), state["began"]]
            key.compute.launch(_creep, (columns,), inputs, [*kept, column_values(slot[field])])

    def reset(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Set all states to zero, and draw the amounts."""
        StageCfg.reset(self, state, key)
        super().reset(state, key)
