"""Stages of one sensor, validated against its fields, with their states, random numbers and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import warp as wp

from sensorium.compute import Compute, Rows, kernel, tick_now
from sensorium.compute.clock import Clock
from sensorium.errors import ConfigError, Fault, UnknownNameError
from sensorium.measurement.draws import Stream, stream_of, stream_words
from sensorium.measurement.plan import SensorPlan
from sensorium.measurement.stage_cfg import PLACES, StageCfg
from sensorium.random import normal_table, stream_key, word_to_normal, word_to_uniform
from sensorium.spec import FieldSpec, kind_of


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


@dataclass(slots=True)
class StageRun:
    """One stage of one sensor with its states and random numbers."""

    cfg: StageCfg
    states: dict[str, torch.Tensor]
    """Name -> float32 `[env, *shape]`, kept from sample to sample."""
    key: StageKey


def new_state(compute: Compute, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a new state, float32 `[env, *shape]`, all zeros."""
    return torch.zeros((compute.num_envs, *shape), dtype=torch.float32, device=compute.device)


def stage_runs(plan: SensorPlan, compute: Compute, clock: Clock) -> list[StageRun]:
    """Return the stages of a sensor in order of execution.

    Raises:
        ConfigError: stages have faults, all of which are listed.
    """
    runs: list[StageRun] = []
    faults: list[Fault] = []
    for number, stage in enumerate(plan.cfg.stages):
        where, kind = f"stages.{number}", kind_of(type(stage))
        if not stage.on_values and any(type(run.cfg) is type(stage) for run in runs):
            faults.append(Fault(where, kind, "only one stage of this kind"))
            continue
        if isinstance(names := _fields(plan, number, stage), Fault):
            faults.append(names)
            continue
        fields = {name: plan.chained[name] for name in names}
        key = StageKey(compute, clock, plan.seed, plan.label, f"stage{number}/{kind}", plan.rate.period, fields)
        try:
            stage.check(key.columns, {spec.name: spec for spec in plan.mid_specs}, key.period)
            states = {name: new_state(compute, shape) for name, shape in stage.state_shapes(key).items()}
            runs.append(StageRun(stage, states, key))
        except ValueError as error:
            faults.append(Fault(where, kind, str(error)))
    if faults:
        raise ConfigError(plan.cfg.title, faults)
    return sorted(runs, key=lambda run: PLACES.index(run.cfg.place))


def _fields(plan: SensorPlan, number: int, stage: StageCfg) -> tuple[str, ...] | Fault:
    """Return the fields that a stage works on, or their fault."""
    chained, where, kind = plan.chained, f"stages.{number}.fields", kind_of(type(stage))
    if not stage.on_values:
        if not stage.fields:
            return ()
        return Fault(where, repr(stage.fields), "no fields", "This stage alters no value.")
    vectors = tuple(name for name, (_, spec) in chained.items() if spec.kind == "vector")
    names = stage.fields or vectors
    for spec in plan.mid_specs:
        if spec.name in names and spec.dtype != "float32":
            expected = f"fields of float32, not {spec.dtype}: of this sensor {', '.join(chained) or 'none'}"
            return Fault(where, repr(spec.name), expected)
    for name in names:
        if name not in chained:
            error = UnknownNameError(f"field of sensor {plan.label!r}", name, chained)
            return Fault(where, repr(name), "a field of this sensor", str(error))
    turned = [name for name in names if chained[name][1].kind == "rotation"]
    if turned and not stage.keeps_rotations():
        expected = f"no rotation field: {kind} would not keep its quaternions unit"
        fix = f"Turn them with the knobs, e.g. noise={{{turned[0]!r}: 0.01}} in rad."
        return Fault(where, repr(turned[0]), expected, fix)
    units = {chained[name][1].unit for name in names}
    if len(units) > 1 and not stage.fields:
        expected = f"`fields` named, since this sensor's fields have the units {', '.join(sorted(units))}"
        return Fault(where, "()", expected, f'Write fields=("{names[0]}",).')
    for k, other in enumerate(plan.cfg.stages[:number]):
        is_early = other.place == stage.place and not other.observes and {*names} & {*(other.fields or vectors)}
        if stage.observes and is_early:
            expected = f"a place after {kind}, which observes all ticks"
            return Fault(f"stages.{k}", kind_of(type(other)), expected, "Give that one first.")
    return names
