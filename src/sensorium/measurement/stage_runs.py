"""Stages of one sensor, validated against its fields, with their states and random numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sensorium.compute import Compute
from sensorium.compute.clock import Clock
from sensorium.errors import ConfigError, Fault, UnknownNameError
from sensorium.measurement.plan import SensorPlan
from sensorium.measurement.stage_cfg import PLACES, StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.spec import kind_of


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
