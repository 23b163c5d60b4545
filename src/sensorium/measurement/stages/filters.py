"""Filters: the bandwidth of an element, and digital filters with a linear phase.

A filter starts settled at the first sample of an episode: there is no transient from zero. A value that is not finite
(the miss of a range sensor) is reported unchanged. A low-pass reports it once and restarts with the next value; a
filter with taps reports it as long as it is under one of the taps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import warp as wp
from pydantic import Field as PydanticField
from pydantic import ValidationInfo, field_validator

from sensorium.cfg import Amount, Float, amount_bounds, bad, must
from sensorium.compute import Rows, is_first, kernel, masked_tid
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place, StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import SHARED, amount_row, check_fit, column_values, row
from sensorium.spec import FieldSpec

# Low-pass -------------------------------------------------------------------------------------------------------------


@kernel
def _first_order(
    rows: Rows, alpha: wp.array[wp.float32], last: wp.array2d[wp.float32], values: wp.array2d[wp.float32]
) -> None:
    env, column = masked_tid(rows)
    x = values[env, column]
    y = last[env, column]
    if is_first(rows, env) or not wp.isfinite(x) or not wp.isfinite(y):
        y = x
    else:
        y = y + alpha[column] * (x - y)
    last[env, column] = y
    values[env, column] = y


@kernel
def _second_order(
    rows: Rows,
    gain: wp.array2d[wp.float32],
    speed: wp.array2d[wp.float32],
    level: wp.array2d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    env, column = masked_tid(rows)
    x = values[env, column]
    u = speed[env, column]
    s = level[env, column]
    if is_first(rows, env) or not wp.isfinite(x) or not wp.isfinite(s):
        speed[env, column] = 0.0
        level[env, column] = x
        return
    d = x - s
    band = gain[0, column] * u + gain[1, column] * d
    y = s + gain[1, column] * u + gain[2, column] * d
    speed[env, column] = 2.0 * band - u
    level[env, column] = 2.0 * y - s
    values[env, column] = y


class LowPass(StageCfg):
    """Low-pass filter: the bandwidth of a sensing element, or of the filter behind it.

    Order 1: y += (1 - exp(-period/tau)) (x - y), the exact solution of an RC element whose input is held over each
    period at its end value. Order 2: Butterworth, by the bilinear transform with a prewarped cutoff frequency, so that
    the gain there is exactly 1/sqrt(2). It is computed as two trapezoidal integrators, which stay accurate in float32
    for any low cutoff.
    """

    is_recorded: ClassVar[bool] = True

    place: Place = "scale"  # type: ignore[misc]  # a choice of each instance
    """Place in the chain: ``"scale"``, before the noise, for an element; ``"saturation"``, after noise and bias, for a
    digital filter; or any other place."""
    order: Literal[1, 2] = 1
    """Order of the filter."""
    time_constant: (
        Annotated[Amount, SHARED, must(lambda times: amount_bounds(times)[0] > 0.0, "times > 0 in seconds")] | None
    ) = None
    """Time constant, s, of order 1: a number, or one per axis."""
    cutoff_hz: (
        Annotated[Amount, SHARED, must(lambda rates: amount_bounds(rates)[0] > 0.0, "frequencies > 0 in Hz")] | None
    ) = PydanticField(default=None, validate_default=True)
    """Frequency at which the gain is 1/sqrt(2), Hz: a number, or one per axis. For order 1 it means the time constant
    1 / (2 pi cutoff_hz)."""

    @field_validator("time_constant")
    @classmethod
    def _time_constant(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("order") == 2:
            raise bad("no time constant for a filter of order 2", "Give cutoff_hz.")
        return value

    @field_validator("cutoff_hz")
    @classmethod
    def _cutoff(cls, value: Any, info: ValidationInfo) -> Any:
        if (value is None) == (info.data.get("time_constant") is None) and "time_constant" in info.data:
            raise bad("exactly one of cutoff_hz and time_constant")
        return value

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError` if the cutoff of order 2 is not below half the sampling rate."""
        if self.order == 2 and amount_bounds(self.cutoff_hz)[1] >= 0.5 / period:
            raise ValueError(f"a cutoff_hz below half the sampling rate, {0.5 / period:g} Hz")

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the states of the filter."""
        check_fit(columns, cutoff_hz=self.cutoff_hz, time_constant=self.time_constant)
        names = ("last",) if self.order == 1 else ("speed", "level")
        return {f"{name}_{field}": (count,) for field, count in columns.items() for name in names}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Filter (one launch per field)."""
        for field, columns in key.columns.items():
            values = column_values(slot[field])
            if self.order == 1:
                tau = row(self.time_constant, columns) if self.cutoff_hz is None else (
                    0.5 / math.pi / row(self.cutoff_hz, columns)
                )  # fmt: skip
                alpha = amount_row(key, -np.expm1(-key.period / tau))
                outputs = [state[f"last_{field}"], values]
                key.compute.launch(_first_order, (columns,), [alpha], outputs)
                continue
            cutoff = row(self.cutoff_hz, columns)
            g = np.tan(math.pi * cutoff * key.period)
            first = 1.0 / (1.0 + g * (g + math.sqrt(2.0)))
            gain = wp.array(np.stack([first, g * first, g * g * first]), dtype=wp.float32, device=key.compute.wp_device)
            outputs = [state[f"speed_{field}"], state[f"level_{field}"], values]
            key.compute.launch(_second_order, (columns,), [gain], outputs)


# Linear phase ---------------------------------------------------------------------------------------------------------


@kernel
def _fir(rows: Rows, taps: wp.array[wp.float32], past: wp.array3d[wp.float32], values: wp.array2d[wp.float32]) -> None:
    env, column = masked_tid(rows)
    x = values[env, column]
    n = past.shape[1]
    if is_first(rows, env):
        for k in range(n):
            past[env, k, column] = x
        return
    total = wp.float32(0.0)
    odd = wp.float32(0.0)
    is_odd = wp.int32(0)
    newer = x
    for k in range(n + 1):
        if taps[k] != 0.0:
            if wp.isfinite(newer):
                total = total + taps[k] * newer
            elif is_odd == 0:
                odd = newer
                is_odd = 1
        if k < n:
            older = past[env, k, column]
            past[env, k, column] = newer
            newer = older
    if is_odd != 0:
        total = odd
    values[env, column] = total


MAX_TAPS = 100_000
"""Maximum number of taps of a filter; larger numbers are rejected as typing errors."""


class GroupDelay(StageCfg):
    """Filter of linear phase: every frequency is delayed by the same time, (taps - 1) / 2 samples, or by `samples`.

    Give exactly one of `samples` (a pure delay), `coefficients` and `window` with `length`. The DC gain is 1. Unlike
    the knob `delay`, which sets the arrival of a sample and shows in `age`, this delay is part of the value: the
    reading still counts as fresh.
    """

    is_recorded: ClassVar[bool] = True

    place: Place = "saturation"  # type: ignore[misc]  # a choice of each instance
    """Place in the chain: ``"saturation"``, after noise and bias and before quantisation, for a digital filter;
    ``"scale"``, before the noise, for a delay of the element; or any other place."""
    samples: (
        Annotated[int, must(lambda samples: 1 <= samples <= MAX_TAPS, f"a whole number >= 1, at most {MAX_TAPS}")]
        | None
    ) = None
    """Pure delay, in samples, at most 100,000."""
    coefficients: tuple[Float, ...] | None = None
    """Taps, newest first: symmetric, with sum 1."""
    window: Literal["boxcar", "hann"] | None = None
    """Taps by name: ``"boxcar"`` is the moving average, ``"hann"`` has sin^2(pi k / (length + 1)), k = 1 .. length."""
    length: int | None = PydanticField(default=None, validate_default=True)
    """Number of taps of the window, at most 100,000."""

    @field_validator("coefficients")
    @classmethod
    def _coefficients(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is None:
            return value
        if len(value) < 2 or not all(math.isfinite(tap) for tap in value):
            raise bad("finite numbers, at least two")
        if any(abs(a - b) > 1e-6 for a, b in zip(value, reversed(value), strict=True)):
            raise bad("symmetric taps", "Give symmetric taps, since others delay frequencies differently.")
        total = math.fsum(value)
        if abs(total - 1.0) > 1e-6:
            fix = (
                f"The normalised taps are {tuple(round(tap / total, 6) for tap in value)}." if abs(total) > 1e-6 else ""
            )
            raise bad(f"taps with sum 1, not {total:.6g}", fix)
        return value

    @field_validator("length")
    @classmethod
    def _length(cls, value: int | None, info: ValidationInfo) -> int | None:
        if not info.data.keys() >= {"samples", "coefficients", "window"}:
            return value  # one of them is already invalid
        given = [name for name in ("samples", "coefficients", "window") if info.data[name] is not None]
        if len(given) != 1:
            raise bad("exactly one of samples, coefficients and window with length")
        if (value is None) == (given == ["window"]):
            raise bad("a number of taps if and only if a window is given")
        if value is not None and not 2 <= value <= MAX_TAPS:
            raise bad(f"a whole number >= 2, at most {MAX_TAPS}")
        return value

    @property
    def taps(self) -> tuple[float, ...]:
        """Weights of the newest value, the previous one, and so on."""
        if self.samples is not None:
            return (*(0.0,) * self.samples, 1.0)
        if self.coefficients is not None:
            return self.coefficients
        assert self.length is not None
        k = np.arange(1, self.length + 1)
        weights = np.ones(self.length) if self.window == "boxcar" else np.sin(math.pi * k / (self.length + 1)) ** 2
        return tuple((weights / weights.sum()).tolist())

    @property
    def delay_samples(self) -> float:
        """Delay of every frequency, in samples."""
        return float(self.samples) if self.samples is not None else 0.5 * (len(self.taps) - 1)

    def keeps_rotations(self) -> bool:
        """Return whether the filter is a pure delay."""
        return self.samples is not None

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the values before the newest one."""
        return {f"past_{field}": (len(self.taps) - 1, count) for field, count in columns.items()}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Filter (one launch per field)."""
        for field, columns in key.columns.items():
            inputs = [amount_row(key, self.taps)]
            outputs = [state[f"past_{field}"], column_values(slot[field])]
            key.compute.launch(_fir, (columns,), inputs, outputs)
