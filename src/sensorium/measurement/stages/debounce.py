"""Debouncing: suppression of changes that do not last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
import warp as wp
from pydantic import Field as PydanticField
from pydantic import ValidationInfo, field_validator

from sensorium.cfg import Amount, bad, must
from sensorium.compute import MAX_TICKS, Rows, is_first, kernel, masked_tid, tick_now
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place, StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import SHARED, Time, amount_row, check_fit, column_values, row
from sensorium.spec import exact_fraction


@wp.func
def noted(differs: bool, pending: int, by_ticks: int, tick: wp.int64) -> wp.int32:
    """Return the record of a pending change: 0 for none, its number of samples, or 1 + 30 bits of its first tick."""
    if not differs:
        return 0
    if by_ticks == 0:
        return pending + 1
    if pending == 0:
        return wp.int32(tick & wp.int64(wp.static(MAX_TICKS - 1))) + 1
    return pending


@wp.func
def has_lasted(pending: int, by_ticks: int, tick: wp.int64, wait: int) -> bool:
    """Return whether a pending change has lasted long enough to be reported."""
    if pending == 0:
        return False
    if by_ticks == 0:
        return pending >= wait
    return bool(wp.int32((tick - wp.int64(pending - 1)) & wp.int64(wp.static(MAX_TICKS - 1))) >= wait)


@kernel
def _debounce(
    rows: Rows,
    by_ticks: int,
    wait: int,
    threshold: wp.array[wp.float32],
    accepted: wp.array2d[wp.float32],
    held: wp.array2d[wp.float32],
    pending: wp.array2d[wp.int32],
    values: wp.array2d[wp.float32],
) -> None:
    env, column = masked_tid(rows)
    x = values[env, column]
    side = wp.float32(0.0)
    if x > threshold[column]:
        side = 1.0
    note = wp.int32(0)
    if not is_first(rows, env):
        note = noted(side != accepted[env, column], pending[env, column], by_ticks, tick_now(rows))
    waits = note != 0 and not has_lasted(note, by_ticks, tick_now(rows), wait)
    if waits:
        values[env, column] = held[env, column]
    else:
        note = 0
        accepted[env, column] = side
        held[env, column] = x
    pending[env, column] = note


class Debounce(StageCfg):
    """Debouncing: a value that crosses `threshold` is reported once it has stayed on the other side for long enough.

    Until then the last value on this side is held. Give exactly one of `samples` and `time`. The first sample of an
    episode is reported unchanged.
    """

    is_recorded: ClassVar[bool] = True

    place: Place = "post"  # type: ignore[misc]  # a choice of each instance
    """Place in the chain: ``"post"``, the last one, for the firmware of a device; or any other place."""
    samples: Annotated[int, must(lambda samples: samples >= 1, "a whole number >= 1")] | None = None
    """Number of consecutive samples, including the first on the other side; 1 has no effect."""
    time: Time | None = PydanticField(default=None, validate_default=True)
    """Time since the first sample on the other side, s; 0 has no effect."""
    threshold: Annotated[Amount, SHARED] = 0.0
    """Boundary of the two sides, above and at or below it: a number, or one per element, in the field's unit."""

    @field_validator("time")
    @classmethod
    def _time(cls, value: float | None, info: ValidationInfo) -> float | None:
        if "samples" in info.data and (value is None) == (info.data["samples"] is None):
            raise bad("exactly one of samples and time")
        return value

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the side reported last, its last value, and the pending change."""
        check_fit(columns, threshold=self.threshold)
        return {f"{what}_{field}": (count,) for field, count in columns.items() for what in ("side", "held", "pending")}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Report or hold values (one launch per field)."""
        by_ticks = self.time is not None
        wait = self.samples if self.time is None else math.ceil(exact_fraction(self.time) / key.clock.dt_exact)
        for field, columns in key.columns.items():
            inputs = [int(by_ticks), wait, amount_row(key, row(self.threshold, columns))]
            pending = wp.from_torch(state[f"pending_{field}"].view(torch.int32))
            outputs = [state[f"side_{field}"], state[f"held_{field}"], pending, column_values(slot[field])]
            key.compute.launch(_debounce, (columns,), inputs, outputs)
