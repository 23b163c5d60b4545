"""The range of a sensor: measured values outside become misses, or the nearest value in the range."""

from __future__ import annotations

import numpy as np
import warp as wp
from numpy.typing import ArrayLike

from sensorium.compute import Compute, Rows, kernel, masked_tid
from sensorium.measurement.record import Record
from sensorium.measurement.stages.amounts import column_values
from sensorium.random import F32


@wp.func
def in_range(value: float, low: float, high: float) -> F32:
    """Return a value in the range, or +inf, a miss, for a value outside."""
    if value < low or value > high:
        return wp.inf
    return value


@kernel
def _limit(rows: Rows, low: float, high: wp.array[wp.float32], saturates: int, values: wp.array2d[wp.float32]) -> None:
    env, column = masked_tid(rows)
    value = values[env, column]
    if wp.isfinite(value):
        most = high[column % high.shape[0]]
        if saturates != 0:
            value = wp.clamp(value, low, most)
        values[env, column] = in_range(value, low, most)


def limit_range(
    compute: Compute, slot: Record, name: str, low: float, high: ArrayLike, *, saturates: bool = False
) -> None:
    """Limit the finite values of a field to a range (one launch); misses are unchanged.

    Args:
        compute: launches the kernel.
        slot: the measured record.
        name: the field; nothing is done if the record does not have it.
        low: smallest value.
        high: largest value: a number, or one per element of a mount.
        saturates: whether a value outside becomes the nearest one in the range, instead of a miss, +inf.
    """
    if name in slot:
        values, device = column_values(slot[name]), compute.wp_device
        inputs = [low, wp.array(np.atleast_1d(np.asarray(high, np.float32)), device=device), int(saturates)]
        compute.launch(_limit, (values.shape[1],), inputs, [values])
