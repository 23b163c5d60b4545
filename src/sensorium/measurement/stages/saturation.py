"""Full scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import warp as wp
from pydantic import Field as PydanticField
from pydantic import ValidationInfo, field_validator

from sensorium.cfg import Amount, Place, StageCfg, amount_bounds, bad
from sensorium.compute import Rows, kernel
from sensorium.measurement.record import Record
from sensorium.measurement.stages.amounts import amount_row, check_fit, column_values, no_law, row
from sensorium.measurement.stages.key import StageKey


@kernel
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
    low: Amount | None = PydanticField(default=None, validate_default=True)
    """Lower end; by default minus `high`."""

    @field_validator("high")
    @classmethod
    def _high(cls, value: Any) -> Any:
        return no_law(value)

    @field_validator("low")
    @classmethod
    def _low(cls, value: Any, info: ValidationInfo) -> Any:
        if "high" not in info.data:
            return value
        if value is None:
            if amount_bounds(info.data["high"])[0] < 0.0:
                raise bad("a lower end below `high`", "Minus a negative number is above it.")
            return value
        if amount_bounds(no_law(value))[1] > amount_bounds(info.data["high"])[0]:
            raise bad("a lower end at or below the upper one")
        return value

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return nothing; check that the ends fit."""
        for count in columns.values():
            check_fit(count, high=self.high, low=self.low)
        return {}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Clip (one launch per field)."""
        for field, columns in key.columns.items():
            high = row(self.high, columns)
            low = -high if self.low is None else row(self.low, columns)
            ends = [amount_row(key, end) for end in (low, high)]
            key.compute.launch(_saturate, (columns,), ends, [column_values(slot[field])])
