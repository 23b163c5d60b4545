"""Saturation at full scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
import warp as wp
from pydantic import Field as PydanticField

from sensorium.cfg import Amount
from sensorium.compute import Rows, kernel, masked_tid
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place, StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import amount_row, below_high, check_fit, column_values, ends_row, not_drawn


@kernel
def _saturate(
    rows: Rows, low_in: wp.array[wp.float32], high_in: wp.array[wp.float32], values: wp.array2d[wp.float32]
) -> None:
    env, column = masked_tid(rows)
    values[env, column] = wp.clamp(values[env, column], low_in[column], high_in[column])


class Saturation(StageCfg):
    """Full scale: the measured value is clipped to [low, high]."""

    place: ClassVar[Place] = "saturation"
    is_recorded: ClassVar[bool] = True

    high: Annotated[Amount, not_drawn()]
    """Upper end, in the field's unit; a number or one per axis."""
    low: Annotated[Amount | None, not_drawn(), below_high("end")] = PydanticField(default=None, validate_default=True)
    """Lower end; by default minus `high`."""

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return no states; check that the ends fit."""
        check_fit(columns, high=self.high, low=self.low)
        return {}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Clip (one launch per field)."""
        for field, columns in key.columns.items():
            ends = [amount_row(key, end) for end in ends_row(self.low, self.high, columns)]
            key.compute.launch(_saturate, (columns,), ends, [column_values(slot[field])])
