"""The sensor's own clock, which provides the timestamps of its samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
import warp as wp

from sensorium.cfg import Amount
from sensorium.compute import Rows, kernel, ticks_since
from sensorium.measurement.draws import Stream, is_drawn, normals_of
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place, StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import (
    BEGAN,
    ONE_NUMBER,
    Time,
    amount_table,
    draw_amount,
    launch_start,
)
from sensorium.random import normal_table


@kernel
def _stamp(
    rows: Rows,
    dt: wp.float64,
    resolution: wp.float64,
    jitter: float,
    offset: wp.array2d[wp.float32],
    skew: wp.array2d[wp.float32],
    ticks: wp.array[wp.int64],
    began: wp.array2d[wp.float32],
    stream: Stream,
    table: wp.array[wp.vec3],
    stamp_out: wp.array[wp.float64],
) -> None:
    i, _one = wp.tid()
    env = rows.start + i
    tick = ticks[env]
    since = wp.float64(ticks_since(tick, began, env)) * dt
    stamp = wp.float64(tick) * dt + wp.float64(offset[env, 0]) + wp.float64(1.0e-6) * wp.float64(skew[env, 0]) * since
    if jitter > 0.0:
        draws = normals_of(rows, env, tick, 0, stream, table)
        stamp = stamp + wp.float64(jitter * draws[0])
    if resolution > wp.float64(0.0):
        stamp = wp.floor(stamp / resolution) * resolution
    stamp_out[env] = stamp


class ClockError(StageCfg):
    """Timestamps from the sensor's own clock: `sensor.stamp`, in addition to the true `capture_time`.

    stamp = t + offset + skew * (t - t_reset) + jitter * w, w ~ N(0, 1), rounded down to `resolution`; t is the capture
    time. At each reset of its env or its sensor, the clock is set correctly up to the offset. It then runs fast by
    `skew_ppm`
    millionths: 20 to 50 for a crystal, 10000 to 20000 for the RC oscillator of a small MEMS device. Values, capture
    times and arrival times are not altered; all other clocks of a scene are perfect.
    """

    place: ClassVar[Place] = "post"
    is_recorded: ClassVar[bool] = True
    on_values: ClassVar[bool] = False

    offset: Annotated[Amount, ONE_NUMBER] = 0.0
    """Error of the clock at a reset, s, positive if ahead: a number, or a distribution drawn per env at reset."""
    skew_ppm: Annotated[Amount, ONE_NUMBER] = 0.0
    """Rate error of the clock, parts per million; positive if fast. A number, or a distribution drawn per env at
    reset."""
    jitter: Time = 0.0
    """Standard deviation of the timestamp of one sample, s."""
    resolution: Time = 0.0
    """Quantisation step of the timestamp, s, e.g. 1e-6; 0 leaves it continuous."""

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the drawn amounts, and the start tick of a clock with an error."""
        drawn = {name: (1,) for name in ("offset", "skew_ppm") if is_drawn(getattr(self, name))}
        return drawn if self.skew_ppm == 0.0 else {**drawn, "began": (BEGAN,)}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Do nothing: no value is altered."""

    def reset(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Draw offset and skew for the envs whose episode starts, and set the clock."""
        for name, values in state.items():
            if name == "began":
                launch_start(key, values)
            else:
                draw_amount(key, name, getattr(self, name), "", values)

    def stamps(self, ticks: torch.Tensor, state: Mapping[str, torch.Tensor], key: StageKey) -> torch.Tensor:
        """Return the clock's time at capture ticks.

        Args:
            ticks: int64 [env].
            state: the stage's states.
            key: the stage's random numbers.

        Returns:
            float64 [env], s.
        """
        out = torch.zeros(len(ticks), dtype=torch.float64, device=ticks.device)
        tables = [amount_table(key, getattr(self, name), 1, state.get(name)) for name in ("offset", "skew_ppm")]
        began = state.get("began", torch.zeros((len(ticks), BEGAN), dtype=torch.float32, device=ticks.device))
        first, drawn = [wp.float64(key.clock.dt), wp.float64(self.resolution), self.jitter], key.stream("jitter")
        with key.compute.masked(key.compute.all_envs):
            inputs = [*first, *tables, ticks, began, drawn, normal_table(key.compute.wp_device)]
            key.compute.launch(_stamp, (1,), inputs, [out])
        return out
