"""Window averaging: a sample is the mean over the time since the previous sample (integrate and dump)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
import warp as wp

from sensorium.compute import Rows, kernel, masked_tid
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place, StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import column_values


@wp.func
def _joined(mean: float, count: float, x: float) -> float:
    """Return the mean of `count` values and one more; a value that is not finite persists."""
    if not wp.isfinite(mean):
        return mean
    if not wp.isfinite(x):
        return x
    return mean + (x - mean) / (count + 1.0)


@kernel
def _look(
    rows: Rows, last: int, values: wp.array2d[wp.float32], mean: wp.array2d[wp.float32], count: wp.array[wp.float32]
) -> None:
    env, _one = masked_tid(rows)
    for column in range(values.shape[1]):
        mean[env, column] = _joined(mean[env, column], count[env], values[env, column])
    if last != 0:  # the fields of a sensor share the count
        count[env] = count[env] + 1.0


@kernel
def _dump(
    rows: Rows, last: int, mean: wp.array2d[wp.float32], count: wp.array[wp.float32], values: wp.array2d[wp.float32]
) -> None:
    env, _one = masked_tid(rows)
    for column in range(values.shape[1]):
        values[env, column] = _joined(mean[env, column], count[env], values[env, column])
        mean[env, column] = 0.0
    if last != 0:
        count[env] = 0.0


class WindowAverage(StageCfg):
    """Integrate and dump: the measured value is the mean of the true one over the ticks since the last sample.

    This models an IMU that reports increments of velocity and angle, or a converter that integrates over its period.
    The value times the period is exactly the increment, and motion faster than half the sampling rate aliases less than
    with point samples. The truth stays the point sample. The mean is over physics ticks with equal weights, up to and
    including that of the sample; the first sample after a reset has only its own tick. A sensor that samples at every
    tick is unchanged.

    The stage makes the sensor evaluate every tick, whatever its rate. It does not reduce noise: `noise_density` at the
    sampling rate is already that of the averaged signal.
    """

    place: ClassVar[Place] = "physics"
    is_recorded: ClassVar[bool] = True
    observes: ClassVar[bool] = True

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the mean of the window of each field, and its number of ticks."""
        return {**{f"mean_{field}": (count,) for field, count in columns.items()}, "count": ()}

    def observe(self, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Add a tick to the window (one launch per field)."""
        for field, last in _marked(key):
            outputs = [state[f"mean_{field}"], state["count"]]
            key.compute.launch(_look, (1,), [last, column_values(truth[field])], outputs)

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Write the mean of the window, this tick included, and start a new window (one launch per field)."""
        for field, last in _marked(key):
            inputs = [last, state[f"mean_{field}"], state["count"]]
            key.compute.launch(_dump, (1,), inputs, [column_values(slot[field])])


def _marked(key: StageKey) -> list[tuple[str, int]]:
    """Return the fields, with a mark on the last one."""
    names = list(key.columns)
    return [(name, int(name == names[-1])) for name in names]
