"""Amounts of stages per column: one row shared by all envs, or a table drawn per env at the start of an episode."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import warp as wp
from pydantic import AfterValidator, ValidationInfo

from sensorium.cfg import Float, amount_bounds, bad, is_within, must
from sensorium.compute import Rows, is_first, kernel, masked_tid, note_tick, tick_now
from sensorium.measurement.draws import column_distribution, draw_columns, is_drawn, parts
from sensorium.measurement.stage_cfg import StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.random import Uniform, normal_table

Row = np.ndarray[Any, np.dtype[np.float64]]


def row(amount: Any, columns: int) -> Row:
    """Return a scalar, an element vector or a full row, repeated over the columns of a field.

    Raises:
        ValueError: the number of columns is not a multiple of the amount's size.
    """
    values = np.asarray(amount, np.float64).reshape(-1)
    if columns % values.size:
        raise ValueError(f"an amount of {values.size} numbers does not fit {columns} columns")
    return np.tile(values, columns // values.size)


def check_fit(columns: Mapping[str, int], **amounts: Any) -> None:
    """Raise `ValueError` if an amount does not fit the columns of a field; None fits."""
    for count in columns.values():
        for name, amount in amounts.items():
            for part in parts(amount) if amount is not None else ():
                try:
                    row(part, count)
                except ValueError as error:
                    raise ValueError(f"{name} that fits: {error}") from None


def draw_amount(
    key: StageKey, purpose: str, amount: Any, field: str, values: torch.Tensor | None, non_negative: bool = False
) -> None:
    """Draw a distribution for the envs whose episode starts (one launch); no effect without `values [env, column]`."""
    if values is not None:
        columns, stream = values.shape[1], key.stream(purpose, field)
        distribution, table = amount_distribution(key, amount, columns), normal_table(key.compute.wp_device)
        inputs = [distribution, columns, int(non_negative), stream, table]
        key.compute.launch(draw_columns, (columns,), inputs, [values])


def amount_distribution(key: StageKey, amount: Any, columns: int) -> Any:
    """Return an amount per column as a `ColumnDistribution` for kernels; a number always stays the same."""
    distribution = amount if is_drawn(amount) else Uniform(amount, amount)
    return column_distribution(distribution, columns, lambda value: row(value, columns), key.compute.wp_device)


def amount_table(key: StageKey, amount: Any, columns: int, drawn: torch.Tensor | None) -> Any:
    """Return an amount as a Warp array `[env, column]`: the drawn table, or one row with stride 0."""
    if drawn is not None:
        return wp.from_torch(drawn)
    shared = torch.tensor(row(amount, columns), dtype=torch.float32, device=key.compute.device)
    return wp.from_torch(shared.expand(key.compute.num_envs, columns))


class DrawnStage(StageCfg):
    """Stage with amounts that may be distributions, which are drawn for each field, per env, at reset."""

    is_recorded: ClassVar[bool] = True
    is_non_negative: ClassVar[bool] = False
    """Whether drawn values are clipped at 0."""

    def amounts(self, columns: int) -> dict[str, tuple[Any, int]]:
        """Return name -> (amount, number of its columns) for a field of `columns` columns."""
        raise NotImplementedError

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the drawn amounts of each field."""
        return {
            f"{name}_{field}": (width,)
            for field, count in columns.items()
            for name, (amount, width) in self.amounts(count).items()
            if is_drawn(amount)
        }

    def tables(self, state: Mapping[str, torch.Tensor], key: StageKey, field: str) -> list[Any]:
        """Return the amounts of a field as Warp arrays `[env, column]`."""
        return [
            amount_table(key, amount, width, state.get(f"{name}_{field}"))
            for name, (amount, width) in self.amounts(key.columns[field]).items()
        ]

    def reset(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Draw the amounts."""
        for field, count in key.columns.items():
            for name, (amount, _) in self.amounts(count).items():
                draw_amount(key, name, amount, field, state.get(f"{name}_{field}"), self.is_non_negative)


def amount_row(key: StageKey, values: Any) -> Any:
    """Return numbers as a Warp array of float32 on the stage's device."""
    return wp.array(np.asarray(values, np.float32), dtype=wp.float32, device=key.compute.wp_device)


def column_values(field: torch.Tensor) -> Any:
    """Return a field `[env, mount, ...]` as a Warp array `[env, column]` over the same memory."""
    return wp.from_torch(field.view(field.shape[0], -1), dtype=wp.float32)


# Fields of configs ----------------------------------------------------------------------------------------------------

PositiveTime = Annotated[Float, must(lambda time: 0.0 < time < math.inf, "a finite time > 0 in seconds")]
Time = Annotated[Float, must(lambda time: 0.0 <= time < math.inf, "a finite time >= 0 in seconds")]

ONE_NUMBER = must(
    lambda amount: not any(np.ndim(part) for part in parts(amount)),
    "one number, or a distribution of one",
    "Give one value for the device, not one per axis.",
)
"""Rejects vectors and distributions of vectors."""


def not_drawn(why: str = "Give a fixed amount, since this stage already draws per env at reset.") -> AfterValidator:
    """Return an annotation that rejects distributions."""
    return must(lambda amount: not is_drawn(amount), "a number or a vector", why)


SHARED = not_drawn("Give fixed numbers, shared by all environments.")


def within(low: float, high: float, expected: str) -> AfterValidator:
    """Return an annotation that rejects amounts which can leave [low, high]. A normal distribution is clipped."""
    return must(lambda amount: is_within(amount, low, high), expected)


def below_high(what: str) -> AfterValidator:
    """Return an annotation of the lower of two ends, None for minus `high`; `what` is the term for an end."""

    def check(value: Any, info: ValidationInfo) -> Any:
        if "high" in info.data:
            most = amount_bounds(info.data["high"])[0]
            if value is None and most < 0.0:
                raise bad(f"a lower {what} below `high`", "Give `low`, since minus a negative number is above it.")
            if value is not None and amount_bounds(value)[1] > most:
                raise bad(f"a lower {what} at or below the upper one")
        return value

    return AfterValidator(check)


def time_above(field: str) -> AfterValidator:
    """Return an annotation that rejects times that are infinite or not above that of another field, s."""

    def check(value: float, info: ValidationInfo) -> float:
        least = info.data.get(field, 0.0)
        if not least < value < math.inf:
            raise bad(f"a finite time above {field}, {least:g} s")
        return value

    return AfterValidator(check)


def ends_row(low: Any, high: Any, columns: int) -> tuple[Row, Row]:
    """Return the lower and the upper end per column; None is minus the upper one."""
    most = row(high, columns)
    return -most if low is None else row(low, columns), most


# Times ----------------------------------------------------------------------------------------------------------------


def in_ticks(value: Any, key: StageKey) -> Any:
    """Return seconds in ticks, exact for decimal numbers."""
    if isinstance(value, tuple):
        return tuple(in_ticks(part, key) for part in value)
    return key.clock.ticks(value)


BEGAN = 2
"""Float32 words that hold the tick of the sensor's first sample in the env's episode, exactly; see `note_tick`."""


@kernel
def note_start(rows: Rows, began: wp.array2d[wp.float32]) -> None:
    """Store the tick of the first sample; the clock's `reset_tick` is that of the env, not of the sensor."""
    env, _one = masked_tid(rows)
    if not is_first(rows, env):
        return
    note_tick(tick_now(rows), began, env)


def launch_start(key: StageKey, began: torch.Tensor) -> None:
    """Store the tick of the first sample (a launch that acts only at a reset)."""
    key.compute.launch(note_start, (1,), [], [wp.from_torch(began)])
