"""Context of a stage in addition to its data: random numbers as a pure function, and times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import warp as wp

from sensorium.compute import Compute, Rows, kernel, tick_now
from sensorium.compute.clock import Clock
from sensorium.measurement.draws import Stream, stream_of, stream_words
from sensorium.random import normal_table, stream_key, word_to_normal, word_to_uniform
from sensorium.spec import FieldSpec


@kernel
def _fill_random(
    rows: Rows,
    is_normal: int,
    columns: int,
    stream: Stream,
    table: wp.array[wp.vec3],
    values_out: wp.array2d[wp.float32],
) -> None:
    i, quad = wp.tid()
    env = rows.start + i
    words = stream_words(rows, env, tick_now(rows), quad, stream)
    for j in range(4):
        if 4 * quad + j < columns:
            value = word_to_uniform(words[j])
            if is_normal != 0:
                value = word_to_normal(words[j], table)
            values_out[env, 4 * quad + j] = value


class StageKey:
    """Random numbers and times for one stage of one sensor.

    Every draw is a pure function of (seed, sensor name, stage, purpose; capture tick, env, episode, field, column).

    Args:
        compute: device and masks.
        clock: time.
        seed: seed of the scene.
        sensor: the sensor's name.
        stage: name of the stage's random streams.
        period: ticks between samples.
        fields: the fields that it alters, with their index in the data class.

    Attributes:
        sensor: the sensor's name.
        period: mean time between samples, s.
        columns: number of columns of each field.
        field_index: index of each field in the data class.
        specs: layout of each field, with the mount axis.
    """

    def __init__(
        self,
        compute: Compute,
        clock: Clock,
        seed: int,
        sensor: str,
        stage: str,
        period: float,
        fields: Mapping[str, tuple[int, FieldSpec]],
    ) -> None:
        self.compute, self.clock = compute, clock
        self.period = clock.dt * period
        self.columns = {name: spec.columns for name, (_, spec) in fields.items()}
        self.field_index = {name: index for name, (index, _) in fields.items()}
        self.specs = {name: spec for name, (_, spec) in fields.items()}
        self.sensor, self._seed, self._stage = sensor, seed, stage
        self._buffers: dict[tuple[str, str], torch.Tensor] = {}

    def __repr__(self) -> str:
        return f"StageKey(sensor={self.sensor!r}, stage={self._stage!r}, period={self.period:g} s)"

    @property
    def mask(self) -> torch.Tensor:
        """uint8 [env]: the envs to process; in `reset`, those whose episode just started."""
        return self.compute.mask

    @property
    def first(self) -> torch.Tensor:
        """Bool [env]: whether this sample is the first one since the env's reset."""
        return self.clock.reset_tick == self.clock.words[0]

    def stream(self, purpose: str, field: str = "") -> Any:
        """Return a `Stream` of random numbers for a kernel.

        Args:
            purpose: use of the numbers.
            field: name of the field; empty for numbers that belong to no field.
        """
        index = self.field_index[field] if field else 0
        return stream_of(index, stream_key(self._seed, self.sensor, f"{self._stage}/{purpose}"))

    def normal(self, purpose: str, field: str) -> torch.Tensor:
        """Return standard normals `[env, column]` for a field at this sample (separate memory, redrawn)."""
        return self._fill(purpose, field, is_normal=1)

    def uniform(self, purpose: str, field: str) -> torch.Tensor:
        """Return uniforms in [0, 1) `[env, column]` for a field at this sample."""
        return self._fill(purpose, field, is_normal=0)

    def scratch(self, purpose: str, field: str) -> torch.Tensor:
        """Return uninitialised float32 scratch memory `[env, column]` for work within one sample."""
        return self._memory(f"scratch/{purpose}", field)

    def _fill(self, purpose: str, field: str, is_normal: int) -> torch.Tensor:
        columns, values = self.columns[field], self._memory(purpose, field)
        inputs = [is_normal, columns, self.stream(purpose, field), normal_table(self.compute.wp_device)]
        self.compute.launch(_fill_random, (-(-columns // 4),), inputs, [values])
        return values

    def _memory(self, name: str, field: str) -> torch.Tensor:
        values = self._buffers.get((name, field))
        if values is None:
            shape = (self.compute.num_envs, self.columns[field])
            values = self._buffers[name, field] = torch.zeros(shape, dtype=torch.float32, device=self.compute.device)
        return values
