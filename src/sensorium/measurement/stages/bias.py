"""Biases that vary: Gauss-Markov processes, 1/f noise, and temperature drift."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import warp as wp
from pydantic import Field as PydanticField

from sensorium.cfg import Amount, Float, must
from sensorium.compute import Rows, is_first, kernel, masked_tid, tick_now, ticks_since
from sensorium.measurement.draws import Stream, is_drawn, normals_of
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place, StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import (
    BEGAN,
    ONE_NUMBER,
    DrawnStage,
    PositiveTime,
    Row,
    Time,
    amount_row,
    amount_table,
    check_fit,
    column_values,
    draw_amount,
    launch_start,
    not_drawn,
    row,
    time_above,
    within,
)
from sensorium.random import normal_table

# Gauss-Markov ---------------------------------------------------------------------------------------------------------


@kernel
def _gauss_markov(
    rows: Rows,
    columns: int,
    leak: float,
    step_sd: wp.array[wp.float32],
    start_sd: wp.array[wp.float32],
    turn_on_sd: wp.array[wp.float32],
    stream: Stream,
    turn_on_stream: Stream,
    table: wp.array[wp.vec3],
    drift: wp.array2d[wp.float32],
    turn_on: wp.array2d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    env, quad = masked_tid(rows)
    draws = normals_of(rows, env, tick_now(rows), quad, stream, table)
    starts = wp.vec4()
    if is_first(rows, env):
        starts = normals_of(rows, env, tick_now(rows), quad, turn_on_stream, table)
    for j in range(4):
        column = 4 * quad + j
        if column < columns:
            b = drift[env, column]
            if is_first(rows, env):
                b = start_sd[column] * draws[j]
                turn_on[env, column] = turn_on_sd[column] * starts[j]
            else:
                b = b + (step_sd[column] * draws[j] - leak * b)  # only one rounding, so no systematic error
            drift[env, column] = b
            values[env, column] = values[env, column] + b + turn_on[env, column]


Drive = Annotated[Amount, not_drawn(), within(0.0, math.inf, "a number or vector >= 0")]


class GaussMarkov(StageCfg):
    """First-order Gauss-Markov bias, plus a constant turn-on bias drawn per env at reset.

    b[k+1] = phi b[k] + w sqrt(q^2 tau/2 (1 - phi^2)) with phi = exp(-period/tau) and w ~ N(0, 1): exact for any period,
    with the stationary deviation q sqrt(tau/2) (IEEE Std 952; Maybeck 1979). The two are independent, so the turn-on
    bias does not decay.
    """

    place: ClassVar[Place] = "bias"
    is_recorded: ClassVar[bool] = True

    density: Drive
    """Driving noise q (two-sided density, Allan's K for times well below tau), unit/s/sqrt(Hz)."""
    tau: Annotated[
        Float,
        must(
            lambda tau: 0.0 < tau < math.inf,
            "a finite time > 0 in seconds",
            "Use random_walk_density for an unbounded walk.",
        ),
    ]
    """Correlation time, s."""
    turn_on: Drive = 0.0
    """Standard deviation of the turn-on bias, in the field's unit."""
    start: Annotated[str, must(lambda start: start in ("stationary", "zero"), "'stationary' or 'zero'")] = "stationary"
    """Drift at reset: ``"stationary"`` draws from the stationary distribution, ``"zero"`` starts at 0."""

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the drift and the turn-on bias of each field."""
        check_fit(columns, density=self.density, turn_on=self.turn_on)
        return {f"{what}_{field}": (count,) for field, count in columns.items() for what in ("drift", "turn_on")}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Add the bias (one launch per field)."""
        leak = -math.expm1(-key.period / self.tau)  # phi itself would lose precision for a tau far above the period
        for field, columns in key.columns.items():
            stationary = row(self.density, columns) * math.sqrt(self.tau / 2.0)
            sds = [
                stationary * math.sqrt(-math.expm1(-2.0 * key.period / self.tau)),
                stationary * (self.start == "stationary"),
                row(self.turn_on, columns),
            ]
            streams = [key.stream(purpose, field) for purpose in ("drift", "turn_on")]
            rows, table = [amount_row(key, sd) for sd in sds], normal_table(key.compute.wp_device)
            outputs = [state[f"drift_{field}"], state[f"turn_on_{field}"], column_values(slot[field])]
            inputs = [columns, leak, *rows, *streams, table]
            key.compute.launch(_gauss_markov, (-(-columns // 4),), inputs, outputs)

    def bias(self, field: str, state: Mapping[str, torch.Tensor], key: StageKey) -> torch.Tensor:
        """Return the drift and the turn-on bias."""
        return state[f"drift_{field}"] + state[f"turn_on_{field}"]

    def reset(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Do nothing: the first sample after a reset redraws both parts."""


# Flicker --------------------------------------------------------------------------------------------------------------

FLOOR = math.sqrt(2.0 * math.log(2.0) / math.pi)
"""Allan deviation of 1/f noise relative to B, 0.664 (IEEE Std 952)."""
PEAK = 1.8926
"""Averaging time, relative to the correlation time, at the maximum of a Gauss-Markov process's Allan deviation."""


@kernel
def _flicker(
    rows: Rows,
    columns: int,
    leak: wp.array[wp.float32],
    step_sd: wp.array[wp.float32],
    start_sd: wp.array[wp.float32],
    amount: wp.array2d[wp.float32],
    stream: Stream,
    table: wp.array[wp.vec3],
    parts: wp.array3d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    env, quad = masked_tid(rows)
    quads = (columns + 3) / 4
    total = wp.vec4()
    for c in range(leak.shape[0]):
        draws = normals_of(rows, env, tick_now(rows), c * quads + quad, stream, table)
        for j in range(4):
            column = 4 * quad + j
            if column < columns:
                b = start_sd[c] * draws[j]
                if not is_first(rows, env):
                    b = parts[env, c, column]
                    b = b + (step_sd[c] * draws[j] - leak[c] * b)
                parts[env, c, column] = b
                total[j] = total[j] + b
    for j in range(4):
        column = 4 * quad + j
        if column < columns:
            values[env, column] = values[env, column] + amount[env, column] * total[j]


class Flicker(DrawnStage):
    """Bias instability: 1/f noise, whose Allan deviation is flat at 0.664 B from `tau_min` to `tau_max`.

    The two-sided spectrum is B^2 / (2 pi f), the convention of IEEE Std 952, so that the floor is B sqrt(2 ln 2 / pi) =
    0.664 B. The noise is a sum of stationary Gauss-Markov processes with correlation times at most a decade apart.
    Processes of variance s^2 at the ratio r have the spectrum s^2 / (2 ln(r) f) between them, hence s^2 = B^2 ln(r) /
    pi. The first and the last also represent all further processes beyond them, with r / (r - 1) times that variance.
    They extend half a decade beyond the band, since the processes' own peaks are at 1.89 correlation times; the floor
    is then flat within 2.5 %.

    Each process is discretised exactly, phi = exp(-period/tau). A process faster than the sampling has its
    low-frequency density, without the part that sampling would alias into the band: its variance is s^2 tanh(x) / x
    with x = period / (2 tau).
    """

    place: ClassVar[Place] = "bias"
    is_non_negative: ClassVar[bool] = True

    bias_instability: Annotated[Amount, within(0.0, math.inf, "an amount >= 0")]
    """Bias instability B, in the field's unit. If a data sheet gives the minimum of an Allan plot, B is that value
    divided by 0.664. A distribution is drawn per env and axis at reset."""
    tau_min: PositiveTime = 1.0
    """Shortest averaging time of the flat part, s."""
    tau_max: Annotated[Float, time_above("tau_min")] = PydanticField(default=1000.0, validate_default=True)
    """Longest averaging time of the flat part, s."""

    def components(self) -> tuple[Row, Row]:
        """Return correlation times (s) and standard deviations, for B = 1, of the summed processes."""
        low, high = self.tau_min / PEAK / math.sqrt(10.0), self.tau_max / PEAK * math.sqrt(10.0)
        taus = np.geomspace(low, high, 1 + math.ceil(math.log10(high / low) - 1e-9))
        ratio = float(taus[1] / taus[0])
        variances = np.full(taus.size, math.log(ratio) / math.pi)
        variances[[0, -1]] *= ratio / (ratio - 1.0)
        return taus, np.sqrt(variances)

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the processes of each field, and the drawn amounts."""
        check_fit(columns, bias_instability=self.bias_instability)
        parts = {f"parts_{field}": (self.components()[0].size, count) for field, count in columns.items()}
        return {**parts, **super().state_specs(columns)}

    def amounts(self, columns: int) -> dict[str, tuple[Any, int]]:
        """Return B, at least 0."""
        return {"amount": (self.bias_instability, columns)}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Advance the processes and add their sum (one launch per field)."""
        taus, sds = self.components()
        x = key.period / taus
        sds = sds * np.sqrt(np.tanh(0.5 * x) / (0.5 * x))
        rows = [amount_row(key, each) for each in (-np.expm1(-x), sds * np.sqrt(-np.expm1(-2.0 * x)), sds)]
        for field, columns in key.columns.items():
            drawn = [key.stream("parts", field), normal_table(key.compute.wp_device)]
            outputs = [state[f"parts_{field}"], column_values(slot[field])]
            inputs = [columns, *rows, *self.tables(state, key, field), *drawn]
            key.compute.launch(_flicker, (-(-columns // 4),), inputs, outputs)

    def bias(self, field: str, state: Mapping[str, torch.Tensor], key: StageKey) -> torch.Tensor:
        """Return the sum of the processes."""
        (amount,) = map(wp.to_torch, self.tables(state, key, field))
        bias: torch.Tensor = amount * state[f"parts_{field}"].sum(dim=1)
        return bias


# Temperature ----------------------------------------------------------------------------------------------------------

_BITS = 40
"""Number of bits of a tick count."""


@kernel
def _temperature(
    rows: Rows,
    reference: float,
    cold: float,
    powers: wp.array[wp.float32],
    ambient: wp.array2d[wp.float32],
    heating: wp.array2d[wp.float32],
    coefficient: wp.array2d[wp.float32],
    scale: wp.array2d[wp.float32],
    began: wp.array2d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    env, column = masked_tid(rows)
    since = ticks_since(tick_now(rows), began, env)
    missing = cold  # times exp(-t / tau), as a product of powers for the same bits on every device
    for bit in range(powers.shape[0]):
        if ((since >> wp.int64(bit)) & wp.int64(1)) != wp.int64(0):
            missing = missing * powers[bit]
    excess = ambient[env, 0] + heating[env, 0] * (1.0 - missing) - reference
    x = values[env, column]
    values[env, column] = x + scale[env, column] * excess * x + coefficient[env, column] * excess


class TemperatureDrift(DrawnStage):
    """Bias and scale factor that follow the temperature T of a self-heating device.

    x -> (1 + scale_coefficient (T - reference)) x + coefficient (T - reference), with
    T = ambient + self_heating (1 - exp(-t/tau)) and t the time since the reset, in ticks: exact at any rate.
    """

    place: ClassVar[Place] = "scale"

    coefficient: Amount = 0.0
    """Temperature coefficient of the bias (TCO), unit/K: a number, one per axis, or a distribution."""
    scale_coefficient: Amount = 0.0
    """Relative temperature coefficient of the scale factor (TCS), 1/K: a number, one per axis, or a distribution."""
    reference: Annotated[Float, must(math.isfinite, "a finite temperature")] = 25.0
    """Temperature at which the device was calibrated, degrees Celsius."""
    ambient: Annotated[Amount, ONE_NUMBER] = 25.0
    """Temperature at switch-on, degrees Celsius; a distribution is drawn per env at reset."""
    self_heating: Annotated[Amount, ONE_NUMBER] = 0.0
    """Final temperature above that at switch-on, K; a distribution is drawn per env at reset."""
    tau: Time = 0.0
    """Time constant of warming up, s; 0 means warm from the start."""

    def amounts(self, columns: int) -> dict[str, tuple[Any, int]]:
        """Return the coefficients."""
        return {"coefficient": (self.coefficient, columns), "scale": (self.scale_coefficient, columns)}

    def _device(self) -> dict[str, Any]:
        """Return the amounts that are drawn once for all fields."""
        return {"ambient": self.ambient, "heating": self.self_heating}

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the tick of the first sample and the drawn amounts."""
        check_fit(columns, coefficient=self.coefficient, scale_coefficient=self.scale_coefficient)
        drawn = {name: (1,) for name, amount in self._device().items() if is_drawn(amount)}
        return {"began": (BEGAN,), **drawn, **super().state_specs(columns)}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Alter bias and scale (one launch per field, and one that acts only at a reset)."""
        launch_start(key, state["began"])
        ticks = 2.0 ** np.arange(_BITS)
        powers = np.exp(-ticks * key.clock.dt / self.tau) if self.tau > 0.0 else np.zeros(_BITS)
        device = [amount_table(key, amount, 1, state.get(name)) for name, amount in self._device().items()]
        first = [self.reference, float(self.tau > 0.0), amount_row(key, powers), *device]
        for field, columns in key.columns.items():
            inputs = [*first, *self.tables(state, key, field), state["began"]]
            key.compute.launch(_temperature, (columns,), inputs, [column_values(slot[field])])

    def bias(self, field: str, state: Mapping[str, torch.Tensor], key: StageKey) -> torch.Tensor:
        """Return the drift of the bias, without that of the scale factor."""
        ambient, heating = (
            wp.to_torch(amount_table(key, amount, 1, state.get(name))) for name, amount in self._device().items()
        )
        high, low = state["began"].double().unbind(dim=1)
        since = (key.clock.tick - (high * 65536.0 + low)) * key.clock.dt
        missing = torch.exp(-since / self.tau) if self.tau > 0.0 else torch.zeros_like(since)
        excess = ambient + heating * (1.0 - missing.float())[:, None] - self.reference
        bias: torch.Tensor = wp.to_torch(self.tables(state, key, field)[0]) * excess
        return bias

    def reset(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Draw temperatures and coefficients."""
        for name, amount in self._device().items():
            draw_amount(key, name, amount, "", state.get(name))
        super().reset(state, key)
