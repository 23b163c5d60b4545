"""Plan of one sensor's measurement: its branches, memory and hooks, and when it is evaluated.

    raw -> physics imperfections -> transform -> hardware imperfections -> post-process -> frozen -> delay -> read

A plan is plain data. `buffers` allocates the memory that it describes, and `work` creates the launches of one sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch

from sensorium.compute.clock import Rate
from sensorium.errors import ConfigError
from sensorium.measurement.record import Record, Timeline
from sensorium.measurement.sensor_cfg import SimpleSensorCfg
from sensorium.measurement.stage_cfg import StageCfg
from sensorium.spec import FieldSpec, kind_of


def is_recorded(hook: Callable[..., object]) -> bool:
    """Whether a hook only launches kernels with fixed arguments, so that its launches can be replayed."""
    return bool(getattr(hook, "__recorded__", False))


@dataclass(slots=True)
class Hooks:
    """Hooks that a sensor uses; None for unused ones."""

    raw: Callable[[Record], object] | None = None
    fused: Callable[[Record, Record, Timeline], object] | None = None
    compute: Callable[[Record, Record], object] | None = None
    physics: Callable[[Record, Timeline], object] | None = None
    transform: Callable[..., object] | None = None
    hardware: Callable[[Record], object] | None = None
    derive: Callable[[Record], object] | None = None
    post: Callable[..., Any] | None = None
    reset: Callable[[torch.Tensor], object] | None = None
    observe: Callable[[], object] | None = None
    """Called at every tick; at the tick of a sample before `raw`, `fused` or `compute`."""
    between: Callable[[], object] | None = None
    """Called only at ticks between samples, for sensors whose sample covers its own tick."""


@dataclass(frozen=True)
class SensorPlan:
    """Description of one sensor's measurement.

    Args:
        cfg: config of the sensor.
        label: name of the sensor.
        seed: seed of the scene.
        rate: sampling rate.
        hooks: hooks that the sensor uses.
        specs: fields in return space.
        mid_specs: fields in intermediate space (the same list without post-processing).
        field_index: index of each field in the data class, which is its field number in random streams.
        mounts: number of mounts, for the validity flags.
        lookback: maximum k for which a hook reads `timeline.at(k)`.
        checks_state: whether the sensor's own kernel flags non-finite state.
        prefixes: short prefixes of fields for knobs.
        evaluate: time of evaluation, as in `SensorCfg.evaluate`.
        knobs: knobs of the chain that are set in the config, (knob, field); filled once they are read.
        states: names of the states registered by the sensor, and of its stages with states; filled after `setup`.
    """

    cfg: SimpleSensorCfg[Any]
    label: str
    seed: int
    rate: Rate
    hooks: Hooks
    specs: Sequence[FieldSpec]
    mid_specs: Sequence[FieldSpec]
    field_index: Mapping[str, int]
    mounts: int
    lookback: int
    checks_state: bool
    prefixes: Mapping[str, str]
    evaluate: str
    knobs: frozenset[tuple[str, str]] = frozenset()
    states: tuple[str, ...] = ()

    # Layout -----------------------------------------------------------------------------------------------------------

    @cached_property
    def chained(self) -> dict[str, tuple[int, FieldSpec]]:
        """Fields processed by the standard chain, each with its index."""
        noisy = (s for s in self.mid_specs if s.dtype == "float32" and s.kind in ("vector", "rotation") and s.columns)
        return {spec.name: (self.field_index[spec.name], spec) for spec in noisy}

    @property
    def has_branches(self) -> bool:
        """Whether truth and measured value are separate records from the start."""
        hooks = self.hooks
        physics = any(stage.place == "physics" for stage in self.cfg.stages)
        return bool(hooks.fused or hooks.compute or hooks.physics or hooks.transform or physics)

    @property
    def has_own_chain(self) -> bool:
        """Whether the chain runs in separate launches of this sensor instead of its group's launch."""
        hooks, late = self.hooks, any(stage.place not in ("physics", "scale") for stage in self.cfg.stages)
        return bool(hooks.hardware or hooks.derive or late or (hooks.post and (self.knobs or self.has_scale)))

    @property
    def has_scale(self) -> bool:
        """Whether a stage changes the measured value before the noise."""
        return any(stage.place == "scale" for stage in self.cfg.stages)

    @property
    def has_hardware(self) -> bool:
        """Whether hardware imperfections change the measured value after the slot."""
        return self.has_own_chain or self.has_scale or bool(self.knobs)

    @property
    def is_fused(self) -> bool:
        """Whether the standard chain runs in the launch of the sensor's group."""
        return not self.has_own_chain and not self.hooks.post

    @property
    def has_ring(self) -> bool:
        """Whether past samples are stored, for a delay, losses or a history."""
        return self.cfg.delay is not None or self.cfg.loss is not None or self.cfg.history_length > 0

    @property
    def observers(self) -> list[StageCfg]:
        """Stages that run at every tick."""
        return [stage for stage in self.cfg.stages if stage.observes]

    @property
    def watches(self) -> bool:
        """Whether the sensor or one of its stages runs at ticks between its samples."""
        return bool(self.observers or self.hooks.observe or self.hooks.between)

    @property
    def needs_snapshot(self) -> bool:
        """Whether work for some envs changes the rows of all, because a hook or a stage is a plain Python call."""
        hooks = (getattr(self.hooks, each.name) for each in fields(Hooks) if each.name not in ("reset", "between"))
        are_recorded = all(hook is None or is_recorded(hook) for hook in hooks)
        return not (are_recorded and all(stage.is_recorded for stage in self.cfg.stages))

    # Evaluation -------------------------------------------------------------------------------------------------------

    @property
    def has_memory(self) -> bool:
        """Whether a sample depends on earlier ones, so that no sample may be skipped."""
        walks = any(knob == "random_walk" for knob, _ in self.knobs)
        return bool(self.has_ring or walks or self.states or self.hooks.post or self.lookback or self.hooks.observe)

    @cached_property
    def evaluation(self) -> tuple[str, str]:
        """Time of evaluation, ``"lazy"`` (on read), ``"eager"``, ``"wanted"`` or ``"on_access"``, with the reason."""
        if self.evaluate == "on_access":
            if not (self.has_memory or self.watches or self.rate.every_tick):
                return "on_access", 'a due sample is taken by the next read, so reads change it (evaluate="on_access")'
        elif self.evaluate != "auto":
            names = {"always": "eager", "on_read": "lazy", "wanted": "wanted"}
            return names[self.evaluate], f'evaluate="{self.evaluate}"'
        if self.has_memory:
            why = "a sample depends on earlier ones (delay, history, walk, stage, state, lookback or post-process)"
            return "eager", why
        if not self.rate.every_tick:
            return "eager", "it is not due at every tick"
        return "lazy", "due at every tick and without memory"

    @cached_property
    def is_lazy(self) -> bool:
        """Whether samples are computed on read."""
        return self.evaluation[0] == "lazy"

    @cached_property
    def is_on_access(self) -> bool:
        """Whether a due sample waits for a read: the one case in which reads change what is measured."""
        return self.evaluation[0] == "on_access"

    @cached_property
    def is_pure(self) -> bool:
        """Whether samples are computed on read from the current state alone, with nothing to store or initialise."""
        return self.is_lazy and self.rate.every_tick

    def check(self) -> None:
        """Raise `ConfigError` if ``evaluate="on_read"`` would change numbers, or a stage cannot run at all ticks."""
        if self.cfg.evaluate == "on_read" and self.has_memory:
            raise ConfigError.single(
                self.cfg.title, "evaluate", "on_read", "'auto' or 'always'",
                "Samples of this sensor depend on earlier ones, so none may be skipped.",
            )  # fmt: skip
        if not self.observers:
            return
        stage, own = self.observers[0], [name for name in self.states if not name.startswith("stage/")]
        if self.hooks.raw is None:
            why = "one kernel computes its truth and its measured value, and only at samples"
        elif own:
            why = f"it stores earlier samples itself ({', '.join(own)})"
        elif self.cfg.evaluate == "wanted":
            why = 'it is not evaluated while unread (evaluate="wanted")'
        else:
            return
        raise ConfigError.single(
            self.cfg.title, "stages", kind_of(type(stage)), "no stage that observes every tick",
            f"The truth of this sensor is not available between samples: {why}. {stage.otherwise}".strip(),
        )  # fmt: skip
