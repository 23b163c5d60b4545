"""Stages: imperfections beyond the standard chain, and the three that most devices need.

`GaussMarkov` (turn-on bias and a bias that wanders and returns), `ScaleError` (scale factor and cross-axis coupling)
and `Saturation` (full scale). They are written on the public contract of `StageCfg`, as a plugin's would be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import warp as wp
from pydantic import ValidationInfo, field_validator

from sensorium.cfg import Amount, Float, Place, StageCfg, amount_bounds, bad
from sensorium.compute import Compute, Rows
from sensorium.compute.clock import Clock
from sensorium.measurement.record import Record
from sensorium.random import (
    Choice,
    Normal,
    Uniform,
    draw,
    normal_table,
    normals4,
    philox,
    stream_key,
    uniforms4,
)

wp.set_module_options({"fuse_fp": False, "enable_backward": False})


@wp.kernel
def _fill_random(
    rows: Rows,
    is_normal: int,
    columns: int,
    clock: wp.array[wp.int32],
    episode: wp.array[wp.int32],
    field: wp.uint32,
    key0: wp.uint32,
    key1: wp.uint32,
    table: wp.array[wp.vec3],
    values_out: wp.array2d[wp.float32],
) -> None:
    i, quad = wp.tid()
    env = rows.start + i
    element = (field << wp.uint32(24)) | wp.uint32(quad)
    draws = wp.vec4()
    if is_normal != 0:
        draws = normals4(wp.uint32(clock[0]), wp.uint32(env), wp.uint32(episode[env]), element, key0, key1, table)
    else:
        draws = uniforms4(wp.uint32(clock[0]), wp.uint32(env), wp.uint32(episode[env]), element, key0, key1)
    for j in range(4):
        if 4 * quad + j < columns:
            values_out[env, 4 * quad + j] = draws[j]


class StageKey:
    """Random numbers and times for one stage of one sensor.

    Every draw is a pure function of (seed, sensor name, stage, purpose; capture tick, env, episode, field, column).

    Attributes:
        period: mean time between samples, s.
        columns: number of columns of each field.
        field_index: index of each field in the data class.
    """

    def __init__(
        self,
        compute: Compute,
        clock: Clock,
        *,
        seed: int,
        label: str,
        stage: str,
        period: float,
        columns: Mapping[str, int],
        field_index: Mapping[str, int],
    ) -> None:
        self.compute, self.clock = compute, clock
        self.period = period
        self.columns = dict(columns)
        self.field_index = dict(field_index)
        self._seed, self._label, self._stage = seed, label, stage
        self._buffers: dict[tuple[str, str], torch.Tensor] = {}

    def __repr__(self) -> str:
        return f"StageKey(sensor={self._label!r}, stage={self._stage!r}, period={self.period:g} s)"

    @property
    def mask(self) -> torch.Tensor:
        """uint8 [env]: the envs that are worked on; `reset` gets those whose episode just began."""
        return self.compute.mask

    @property
    def first(self) -> torch.Tensor:
        """Bool [env]: whether this sample is the first one since the env's reset."""
        return self.clock.reset_tick == self.clock.words[0]

    def stream(self, purpose: str) -> tuple[Any, Any]:
        """Return the two key words of a stream of random numbers, for a kernel."""
        words = stream_key(self._seed, self._label, f"{self._stage}/{purpose}")
        return wp.uint32(words[0]), wp.uint32(words[1])

    def normal(self, purpose: str, field: str) -> torch.Tensor:
        """Return standard normals `[env, column]` for a field at this sample (its own memory, drawn anew)."""
        return self._fill(purpose, field, is_normal=1)

    def uniform(self, purpose: str, field: str) -> torch.Tensor:
        """Return uniforms in [0, 1) `[env, column]` for a field at this sample."""
        return self._fill(purpose, field, is_normal=0)

    def _fill(self, purpose: str, field: str, is_normal: int) -> torch.Tensor:
        columns = self.columns[field]
        values = self._buffers.get((purpose, field))
        if values is None:
            shape = (self.compute.num_envs, columns)
            values = self._buffers[purpose, field] = torch.zeros(shape, dtype=torch.float32, device=self.compute.device)
        self.compute.launch(
            _fill_random,
            (-(-columns // 4),),
            [
                is_normal, columns, self.clock.words_wp, self.clock.episode_wp, wp.uint32(self.field_index[field]),
                *self.stream(purpose), normal_table(self.compute.wp_device),
            ],
            [wp.from_torch(values, dtype=wp.float32)],
        )  # fmt: skip
        return values


# Gauss-Markov ---------------------------------------------------------------------------------------------------------


@wp.kernel
def _gauss_markov(
    rows: Rows,
    columns: int,
    decay: float,
    step_sd: wp.array[wp.float32],
    start_sd: wp.array[wp.float32],
    turn_on_sd: wp.array[wp.float32],
    clock: wp.array[wp.int32],
    episode: wp.array[wp.int32],
    reset_tick: wp.array[wp.int32],
    field: wp.uint32,
    key0: wp.uint32,
    key1: wp.uint32,
    turn_on_key0: wp.uint32,
    turn_on_key1: wp.uint32,
    table: wp.array[wp.vec3],
    drift: wp.array2d[wp.float32],
    turn_on: wp.array2d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    i, quad = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    tick = clock[0]
    element = (field << wp.uint32(24)) | wp.uint32(quad)
    draws = normals4(wp.uint32(tick), wp.uint32(env), wp.uint32(episode[env]), element, key0, key1, table)
    if reset_tick[env] == tick:
        starts = normals4(
            wp.uint32(tick), wp.uint32(env), wp.uint32(episode[env]), element, turn_on_key0, turn_on_key1, table
        )
        for j in range(4):
            column = 4 * quad + j
            if column < columns:
                drift[env, column] = start_sd[column] * draws[j]
                turn_on[env, column] = turn_on_sd[column] * starts[j]
    else:
        for j in range(4):
            column = 4 * quad + j
            if column < columns:
                drift[env, column] = decay * drift[env, column] + step_sd[column] * draws[j]
    for j in range(4):
        column = 4 * quad + j
        if column < columns:
            values[env, column] = values[env, column] + drift[env, column] + turn_on[env, column]


def _row(amount: Any, columns: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Spread a scalar, an element vector or a full row over the columns of a field."""
    values = np.asarray(amount, np.float64).reshape(-1)
    if columns % values.size:
        raise ValueError(f"an amount of {values.size} numbers does not fit into {columns} columns")
    return np.tile(values, columns // values.size)


def _no_law(value: Any) -> Any:
    if isinstance(value, Uniform | Normal | Choice):
        raise bad("a number or a vector", "This stage already draws per env at reset.")
    return value


class GaussMarkov(StageCfg):
    """A bias of first-order Gauss-Markov kind, plus a constant turn-on bias drawn per env at reset.

    b[k+1] = phi b[k] + w sqrt(q^2 tau/2 (1 - phi^2)) with phi = exp(-period/tau) and w ~ N(0, 1): exact for any period,
    with the stationary deviation q sqrt(tau/2) (IEEE Std 952; Maybeck 1979). The two are independent, so the turn-on
    bias does not decay.
    """

    place: ClassVar[Place] = "bias"
    is_recorded: ClassVar[bool] = True

    density: Amount
    """Driving noise q (two-sided density, Allan's K for times well below tau), unit/s/sqrt(Hz)."""
    tau: Float
    """Correlation time, s."""
    turn_on: Amount = 0.0
    """Standard deviation of the turn-on bias, in the field's unit."""
    start: str = "stationary"
    """Deviation at reset: ``"stationary"`` draws from the long-run law, ``"zero"`` starts at none."""

    @field_validator("density", "turn_on")
    @classmethod
    def _amounts(cls, value: Any) -> Any:
        if amount_bounds(_no_law(value))[0] < 0.0:
            raise bad("nothing negative")
        return value

    @field_validator("tau")
    @classmethod
    def _tau(cls, value: float) -> float:
        if not 0.0 < value < math.inf:
            raise bad("a finite time > 0 in seconds", "For a walk without return use random_walk_density.")
        return value

    @field_validator("start")
    @classmethod
    def _start(cls, value: str) -> str:
        if value not in ("stationary", "zero"):
            raise bad("'stationary' or 'zero'")
        return value

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the drift and the turn-on bias of each field."""
        return {f"{what}_{field}": (count,) for field, count in columns.items() for what in ("drift", "turn_on")}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Add the bias (one launch per field)."""
        decay = math.exp(-key.period / self.tau)
        for field, columns in key.columns.items():
            density = _row(self.density, columns)
            stationary = density * math.sqrt(self.tau / 2.0)
            rows = [
                stationary * math.sqrt(1.0 - decay**2),
                stationary * (self.start == "stationary"),
                _row(self.turn_on, columns),
            ]
            key.compute.launch(
                _gauss_markov,
                (-(-columns // 4),),
                [
                    columns, decay, *(wp.array(row, dtype=wp.float32, device=key.compute.wp_device) for row in rows),
                    key.clock.words_wp, key.clock.episode_wp, key.clock.reset_tick_wp,
                    wp.uint32(key.field_index[field]), *key.stream("drift"), *key.stream("turn_on"),
                    normal_table(key.compute.wp_device),
                ],
                [
                    wp.from_torch(state[f"drift_{field}"]), wp.from_torch(state[f"turn_on_{field}"]),
                    wp.from_torch(slot[field].view(slot[field].shape[0], -1), dtype=wp.float32),
                ],
            )  # fmt: skip

    def reset(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Nothing to do: the first sample after a reset draws both parts anew."""


# Scale and cross-axis -------------------------------------------------------------------------------------------------


@wp.kernel
def _draw_columns(
    rows: Rows,
    kind: int,
    low_in: wp.array[wp.float32],
    high_in: wp.array[wp.float32],
    choices_in: wp.array[wp.float32],
    clock: wp.array[wp.int32],
    episode: wp.array[wp.int32],
    reset_tick: wp.array[wp.int32],
    field: wp.uint32,
    key0: wp.uint32,
    key1: wp.uint32,
    table: wp.array[wp.vec3],
    values_out: wp.array2d[wp.float32],
) -> None:
    i, column = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0) or reset_tick[env] != clock[0]:
        return
    element = (field << wp.uint32(24)) | wp.uint32(column / 4)
    words = philox(wp.uint32(0), wp.uint32(env), wp.uint32(episode[env]), element, key0, key1)
    values_out[env, column] = draw(kind, low_in[column], high_in[column], choices_in, words[column % 4], table)


@wp.kernel
def _scale(
    rows: Rows,
    scale_in: wp.array2d[wp.float32],
    cross_in: wp.array2d[wp.float32],
    values: wp.array2d[wp.vec3],
) -> None:
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    x = values[env, mount]
    a = 3 * mount
    c = 6 * mount
    s = wp.vec3(
        (1.0 + scale_in[env, a]) * x[0], (1.0 + scale_in[env, a + 1]) * x[1], (1.0 + scale_in[env, a + 2]) * x[2]
    )
    values[env, mount] = wp.vec3(
        s[0] + cross_in[env, c] * s[1] + cross_in[env, c + 1] * s[2],
        s[1] + cross_in[env, c + 2] * s[0] + cross_in[env, c + 3] * s[2],
        s[2] + cross_in[env, c + 4] * s[0] + cross_in[env, c + 5] * s[1],
    )


class ScaleError(StageCfg):
    """Scale factor error and cross-axis coupling of three-axis fields: x -> T (I + S) x.

    S is diagonal. T has ones on the diagonal and the couplings elsewhere: non-orthogonality and misalignment of the
    sensitive axes together (IEEE Std 1431). A distribution is drawn per env, mount and axis at reset.
    """

    place: ClassVar[Place] = "scale"
    is_recorded: ClassVar[bool] = True

    scale: Amount = 0.0
    """Relative error per axis: 0.01 reads 1 % too much. A number, three numbers or a distribution."""
    cross_axis: Amount = 0.0
    """Coupling: a number (all six), three numbers (column j couples with c_j into the other axes), six numbers (xy, xz,
    yx, yz, zx, zy) or a distribution (all six drawn)."""

    @field_validator("scale", "cross_axis")
    @classmethod
    def _sizes(cls, value: Any, info: ValidationInfo) -> Any:
        allowed = (1, 3) if info.field_name == "scale" else (1, 3, 6)
        parts: tuple[Any, ...] = (value.low, value.high) if isinstance(value, Uniform) else ()
        parts = (value.mean, value.std) if isinstance(value, Normal) else parts
        parts = tuple(value.values) if isinstance(value, Choice) else parts
        for part in parts or (value,):
            if np.size(part) not in allowed:
                raise bad(f"{' or '.join(map(str, allowed))} numbers, or a distribution of such")
        if isinstance(value, Choice) and any(np.ndim(part) for part in value.values):
            raise bad("a choice among numbers")
        return value

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the drawn scale errors and couplings of each field."""
        specs: dict[str, tuple[int, ...]] = {}
        for field, count in columns.items():
            if count % 3:
                raise ValueError(f"ScaleError works on three-axis fields; {field!r} has {count} columns")
            specs |= {f"scale_{field}": (count,), f"cross_{field}": (count * 2,)}
        return specs

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Multiply (three launches per field, of which two only work at a reset)."""
        for field, columns in key.columns.items():
            self._draw("scale", _axes(self.scale), columns, field, state[f"scale_{field}"], key)
            self._draw("cross", _couplings(self.cross_axis), 2 * columns, field, state[f"cross_{field}"], key)
            values = wp.from_torch(slot[field].view(slot[field].shape[0], -1, 3), dtype=wp.vec3)
            inputs = [wp.from_torch(state[f"scale_{field}"]), wp.from_torch(state[f"cross_{field}"]), values]
            key.compute.launch(_scale, (columns // 3,), inputs)

    def _draw(
        self,
        what: str,
        law: tuple[int, Sequence[float], Sequence[float], Sequence[float]],
        columns: int,
        field: str,
        values: torch.Tensor,
        key: StageKey,
    ) -> None:
        kind, first, second, choices = law
        device = key.compute.wp_device
        key.compute.launch(
            _draw_columns,
            (columns,),
            [
                kind, wp.array(_row(first, columns), dtype=wp.float32, device=device),
                wp.array(_row(second, columns), dtype=wp.float32, device=device),
                wp.array(choices, dtype=wp.float32, device=device), key.clock.words_wp, key.clock.episode_wp,
                key.clock.reset_tick_wp, wp.uint32(key.field_index[field]), *key.stream(what), normal_table(device),
            ],
            [wp.from_torch(values)],
        )  # fmt: skip

    def reset(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Nothing to do: the first sample after a reset draws anew."""


def _law(amount: Any, spread: Callable[[Any], list[float]]) -> tuple[int, list[float], list[float], list[float]]:
    if isinstance(amount, Uniform):
        return amount.kind, spread(amount.low), spread(amount.high), [0.0]
    if isinstance(amount, Normal):
        return amount.kind, spread(amount.mean), spread(amount.std), [0.0]
    if isinstance(amount, Choice):
        return (
            amount.kind,
            spread(0.0),
            spread(0.0),
            [float(value) for value in amount.values if not isinstance(value, tuple)],
        )
    return Uniform(0.0, 0.0).kind, spread(amount), spread(amount), [0.0]


def _axes(amount: Any) -> tuple[int, list[float], list[float], list[float]]:
    return _law(amount, lambda value: np.broadcast_to(np.asarray(value, np.float64).reshape(-1), 3).tolist())


def _couplings(amount: Any) -> tuple[int, list[float], list[float], list[float]]:
    def spread(value: Any) -> list[float]:
        parts = np.asarray(value, np.float64).reshape(-1)
        if parts.size == 3:  # c_j is what axis j couples into the others
            x, y, z = parts.tolist()
            return [y, z, x, z, x, y]
        six: list[float] = np.broadcast_to(parts, 6).tolist()
        return six

    return _law(amount, spread)


# Saturation -----------------------------------------------------------------------------------------------------------


@wp.kernel
def _saturate(
    rows: Rows,
    low_in: wp.array[wp.float32],
    high_in: wp.array[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    i, column = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    values[env, column] = wp.clamp(values[env, column], low_in[column], high_in[column])


class Saturation(StageCfg):
    """Full scale: the measured value is clipped to [low, high]."""

    place: ClassVar[Place] = "saturation"
    is_recorded: ClassVar[bool] = True

    high: Amount
    """Upper end, in the field's unit; a number or one per axis."""
    low: Amount | None = None
    """Lower end; by default minus `high`."""

    @field_validator("high")
    @classmethod
    def _high(cls, value: Any) -> Any:
        return _no_law(value)

    @field_validator("low")
    @classmethod
    def _low(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None or "high" not in info.data:
            return value
        if amount_bounds(_no_law(value))[1] > amount_bounds(info.data["high"])[0]:
            raise bad("a lower end at or below the upper one")
        return value

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Clip (one launch per field)."""
        for field, columns in key.columns.items():
            high = _row(self.high, columns)
            low = -high if self.low is None else _row(self.low, columns)
            ends = [wp.array(end, dtype=wp.float32, device=key.compute.wp_device) for end in (low, high)]
            values = wp.from_torch(slot[field].view(slot[field].shape[0], -1), dtype=wp.float32)
            key.compute.launch(_saturate, (columns,), [*ends, values])
