"""Hysteresis and creep: the dependence of soft or sticky elements on earlier values, and on the time under load."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import warp as wp
from pydantic import Field as PydanticField
from pydantic import ValidationInfo, field_validator

from sensorium.cfg import Amount, Float, Positive, amount_bounds, bad, is_finite, must
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
from sensorium.random import Normal

# Rate-dependent -------------------------------------------------------------------------------------------------------


@kernel
def _relax(
    rows: Rows,
    decay: float,
    strength: wp.array2d[wp.float32],
    last: wp.array2d[wp.float32],
    branch: wp.array2d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    env, column = masked_tid(rows)
    x = values[env, column]
    before = last[env, column]
    if is_first(rows, env) or not wp.isfinite(before):
        last[env, column] = x
        branch[env, column] = 0.0
        return
    if not wp.isfinite(x):
        return
    xi = decay * branch[env, column] + (x - before)
    last[env, column] = x
    branch[env, column] = xi
    values[env, column] = x + strength[env, column] * xi


def _keeps_some(strength: Any) -> bool:
    return isinstance(strength, Normal) or amount_bounds(strength)[0] > -1.0


class Viscoelastic(DrawnStage):
    """Viscoelastic hysteresis: y = x + strength * xi, xi <- exp(-period / tau) xi + (x - previous x).

    xi is the force of a spring in series with a damper (a Maxwell branch) under a strain x, in units of x, parallel to
    the spring that x itself represents: the standard linear solid. A step first shows 1 + strength times its size and
    relaxes to its size with tau. A sine of angular frequency w leads; its loop has the area `loop_area`. The first
    sample of an episode is unchanged, and the branch starts relaxed. A value that is not finite is passed on and
    otherwise ignored.
    """

    place: ClassVar[Place] = "scale"

    strength: Annotated[Amount, must(_keeps_some, "numbers above -1", "With -1 a fast change would have no effect.")]
    """Relative overshoot of a fast change, above -1: a number, one per axis, or a distribution drawn per env and axis
    at reset. A negative value makes the response lag: 1 + strength of a step appears at once, and the rest follows."""
    tau: PositiveTime
    """Time constant of the relaxation, s."""

    def loop_area(self, amplitude: float, frequency_hz: float, strength: float | None = None) -> float:
        """Return the area of the loop y(x) for a sine, in the field's unit squared: the integral of y dx.

        It is pi strength A^2 wT / (1 + (wT)^2), T = tau, with its maximum at w = 1 / tau. For sampled signals it is the
        limit for short periods.

        Args:
            amplitude: A, in the field's unit.
            frequency_hz: w / (2 pi).
            strength: strength of the loop; by default the stage's, if that is a number.
        """
        share = self.strength if strength is None else strength
        if not isinstance(share, float):
            raise ValueError(f"strength: got {share!r}, expected a number. Give strength=...")
        turn = 2.0 * math.pi * frequency_hz * self.tau
        return math.pi * share * amplitude**2 * turn / (1.0 + turn * turn)

    def amounts(self, columns: int) -> dict[str, tuple[Any, int]]:
        """Return the strength."""
        return {"strength": (self.strength, columns)}

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the last values, the branches, and the drawn strengths."""
        check_fit(columns, strength=self.strength)
        kept = {f"{name}_{field}": (width,) for field, width in columns.items() for name in ("last", "branch")}
        return {**kept, **super().state_specs(columns)}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Advance the branches and add them (one launch per field)."""
        decay = math.exp(-key.period / self.tau)
        for field, columns in key.columns.items():
            inputs = [decay, *self.tables(state, key, field)]
            outputs = [state[f"last_{field}"], state[f"branch_{field}"], column_values(slot[field])]
            key.compute.launch(_relax, (columns,), inputs, outputs)

    def reset(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Set all states to zero, and draw the strengths."""
        StageCfg.reset(self, state, key)
        super().reset(state, key)


# Rate-independent -----------------------------------------------------------------------------------------------------


@wp.func
def play(before: float, x: float, half: float) -> float:
    """Return the output of a play of width 2 half: it follows x only when pushed."""
    return float(wp.min(wp.max(before, x - half), x + half))


@kernel
def _lose_motion(
    rows: Rows,
    half: wp.array[wp.float32],
    weight: wp.array[wp.float32],
    held: wp.array3d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    env, column = masked_tid(rows)
    x = values[env, column]
    is_new = is_first(rows, env) or not wp.isfinite(held[env, column, 0])
    if not (wp.isfinite(x) or is_new):
        return
    y = x
    for k in range(half.shape[0]):
        o = x
        if not is_new:
            o = play(held[env, column, k], x, half[k])
            y = y + weight[k] * (o - x)
        held[env, column, k] = o
    values[env, column] = y


class Play(StageCfg):
    """Hysteresis of dry friction, independent of the rate: y = (1 - sum of w_k) x + sum of w_k P_k(x), P_k plays.

    A play of width 2 r is o = min(max(o, x - r), x + r) (Brokate & Sprekels, Hysteresis and Phase Transitions, 1996):
    backlash, or an element that sticks until the force is large enough. Several in parallel form the Prandtl-Ishlinskii
    model, whose complement x - P_k(x) is Maxwell slip. Each has a loop in the form of a parallelogram, `loop_area`. The
    first sample of an episode is unchanged. A value that is not finite is passed on and otherwise ignored.
    """

    place: ClassVar[Place] = "scale"
    is_recorded: ClassVar[bool] = True

    width: Annotated[
        Float | tuple[Float, ...],
        must(lambda width: width != () and is_finite(width) and np.min(width) >= 0.0, "finite widths >= 0"),
    ]
    """Width 2 r of the play, or of each of several, at least 0: in the field's unit, or as a fraction of `full_scale`.
    It is the distance by which x must return before y does."""
    weight: Float | tuple[Float, ...] | None = None
    """Fraction w of the signal that passes through the play, or through each of several, in [0, 1] and at most 1 in
    total; the rest passes directly. By default the whole signal, in equal fractions."""
    full_scale: Positive | None = None
    """Full scale of the field, in its unit: `width` is then a fraction of it, as in data sheets."""

    @field_validator("weight")
    @classmethod
    def _weight(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None:
            return value
        weights = np.atleast_1d(np.array(value, np.float64))
        if not ((weights >= 0.0).all() and weights.sum() <= 1.0 + 1e-9):
            raise bad("shares >= 0 with a sum of at most 1")
        if "width" in info.data and np.shape(value) != np.shape(info.data["width"]):
            raise bad(f"one share for each of {np.size(info.data['width'])} widths, not {np.size(value)}")
        return value

    def plays(self) -> tuple[tuple[float, float], ...]:
        """Return width, in the field's unit, and weight of each play."""
        widths = np.atleast_1d(np.array(self.width, np.float64)) * (1.0 if self.full_scale is None else self.full_scale)
        weights = np.full(len(widths), 1.0 / len(widths)) if self.weight is None else np.atleast_1d(self.weight)
        return tuple(zip(widths.tolist(), weights.tolist(), strict=True))

    def loop_area(self, span: float) -> float:
        """Return the area of the closed loop y(x) for x back and forth over a span: sum of w 2r (span - 2r).

        The result is positive, although y lags and the integral of y dx is negative.

        Args:
            span: distance from the lowest to the highest x, in the field's unit. A play wider than that does not move.
        """
        return math.fsum(weight * width * max(0.0, span - width) for width, weight in self.plays())

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the outputs of the plays."""
        return {f"held_{field}": (count, len(self.plays())) for field, count in columns.items()}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Advance the plays (one launch per field)."""
        widths, weights = zip(*self.plays(), strict=True)
        inputs = [amount_row(key, np.multiply(widths, 0.5)), amount_row(key, weights)]
        for field, columns in key.columns.items():
            outputs = [state[f"held_{field}"], column_values(slot[field])]
            key.compute.launch(_lose_motion, (columns,), inputs, outputs)


# Creep ----------------------------------------------------------------------------------------------------------------

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
