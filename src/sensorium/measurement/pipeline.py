"""The line of one sensor from truth to reading: its memory, and the work of one sample in order.

    raw -> physics imperfections -> transform -> hardware imperfections -> post-process -> frozen -> delay -> read

Truth passes raw -> transform -> post-process and never sees the rest. Memory is made only where a part is used: a clean
sensor has one record, and its measured data are its truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import warp as wp

from sensorium.cfg import PLACES, SimpleSensorCfg, StageCfg
from sensorium.compute import Compute, Rows, Segment, kernel
from sensorium.compute.clock import Clock, Rate
from sensorium.errors import ConfigError, Fault, UnknownNameError
from sensorium.measurement.chain import (
    EVERYTHING,
    NOISE,
    QUANTISE,
    WALK_AND_BIAS,
    ChainField,
    ChainTable,
)
from sensorium.measurement.knobs import Knobs
from sensorium.measurement.record import Record, Timeline, clear_word, copy_word, words_of
from sensorium.measurement.stages import StageKey
from sensorium.measurement.transport import Ring
from sensorium.random import stream_key
from sensorium.spec import FieldSpec, kind_of

ALWAYS, ON_SAMPLE, ON_FIRST = 0, 1, 2
WORDS = wp.constant(32)
"""Words that one thread copies."""


@kernel
def _move(
    rows: Rows,
    when: int,
    clock: wp.array[wp.int32],
    reset_tick: wp.array[wp.int32],
    count: int,
    wide: int,
    source: wp.uint64,
    target: wp.uint64,
) -> None:
    i, piece = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    if when == 1 and clock[1] != 0:
        return
    if when == 2 and reset_tick[env] != clock[0]:
        return
    first = env * count + piece * WORDS
    for at in range(first, wp.min(first + WORDS, (env + 1) * count)):
        copy_word(wide, source, at, target, at)


@kernel
def _forget(
    rows: Rows, clock: wp.array[wp.int32], reset_tick: wp.array[wp.int32], count: int, wide: int, target: wp.uint64
) -> None:
    i, piece = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0) or reset_tick[env] != clock[0]:
        return
    first = env * count + piece * WORDS
    for at in range(first, wp.min(first + WORDS, (env + 1) * count)):
        clear_word(wide, target, at)


@wp.struct
class GuardTask:
    """States of one sensor or stage, and their backup."""

    clock: wp.array[wp.int32]
    state: wp.array2d[wp.float32]
    backup: wp.array2d[wp.float32]


@kernel
def _guard(rows: Rows, tasks: wp.array[GuardTask]) -> None:
    k, i, piece = wp.tid()
    env = rows.start + i
    t = tasks[k]
    if rows.mask[env] == wp.uint8(0):
        return
    for w in range(piece * WORDS, wp.min((piece + 1) * WORDS, t.state.shape[1])):
        if t.clock[1] == 2:
            t.state[env, w] = t.backup[env, w]
        else:
            t.backup[env, w] = t.state[env, w]


@kernel
def _clear_flags(rows: Rows, bad: wp.array2d[wp.uint8]) -> None:
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] != wp.uint8(0):
        bad[env, mount] = wp.uint8(0)


@kernel
def _flag_nan(
    rows: Rows, columns: int, values: wp.array2d[wp.float32], bad: wp.array2d[wp.uint8], any_bad: wp.array[wp.int32]
) -> None:
    i, block = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    for column in range(block * 64, wp.min(block * 64 + 64, columns)):
        if wp.isnan(values[env, column]):
            bad[env, column * bad.shape[1] / columns] = wp.uint8(1)
            any_bad[0] = 1


BEGIN, END, SAMPLE = 0, 1, 2
"""What `_observed_flags` is for: before and after an observed tick, and at a sample."""


@kernel
def _observed_flags(
    rows: Rows,
    when: int,
    clock: wp.array[wp.int32],
    reset_tick: wp.array[wp.int32],
    bad: wp.array2d[wp.uint8],
    shown: wp.array2d[wp.uint8],
    observed: wp.array2d[wp.uint8],
    before: wp.array2d[wp.uint8],
) -> None:
    """Keep the shown sample's flags while ticks are observed; a sample inherits those of the ticks that led to it."""
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    if when == 0:
        shown[env, mount] = bad[env, mount]
    elif when == 1:
        observed[env, mount] = wp.max(observed[env, mount], bad[env, mount])
        bad[env, mount] = shown[env, mount]
    else:
        if clock[1] != 2:
            before[env, mount] = observed[env, mount]
        if reset_tick[env] == clock[0]:
            before[env, mount] = wp.uint8(0)
        observed[env, mount] = wp.uint8(0)
        bad[env, mount] = wp.max(bad[env, mount], before[env, mount])


@dataclass(slots=True)
class Hooks:
    """What a sensor class overrides; None where it does not."""

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
    """At every tick; at that of a sample before `raw`, `fused` or `compute`."""
    between: Callable[[], object] | None = None
    """At the ticks between samples only, for sensors whose sample includes the look at its own tick."""
    lookback: int = 0
    checks_state: bool = False


class States:
    """Float32 states `[env, *shape]` that survive from sample to sample, with the backup a re-evaluation needs."""

    def __init__(self, compute: Compute, shapes: Mapping[str, tuple[int, ...]]) -> None:
        sizes = {name: int(torch.Size(shape).numel()) for name, shape in shapes.items()}
        total = sum(sizes.values())
        self.memory = torch.zeros((compute.num_envs, total), dtype=torch.float32, device=compute.device)
        self.backup = torch.zeros_like(self.memory)
        self.views: dict[str, torch.Tensor] = {}
        start = 0
        for name, shape in shapes.items():
            block = self.memory[:, start : start + sizes[name]]
            self.views[name] = block.view(block.shape[0], *shape) if shape else block[:, 0]
            start += sizes[name]

    def guard(self, compute: Compute, clock: Clock) -> None:
        """Keep the states of before this sample, or bring them back where the sample is evaluated again (a launch)."""
        if self.memory.shape[1]:
            t = GuardTask()
            t.clock, t.state, t.backup = clock.words_wp, wp.from_torch(self.memory), wp.from_torch(self.backup)
            compute.launch_task(_guard, (-(-self.memory.shape[1] // int(WORDS)),), t)


@dataclass(slots=True)
class StageRun:
    """One stage of one sensor, with its states and its random numbers."""

    cfg: StageCfg
    states: States
    key: StageKey
    segment_is_recorded: bool = field(init=False)

    def __post_init__(self) -> None:
        self.segment_is_recorded = self.cfg.is_recorded


class Line:
    """Memory and work of one sensor between truth and reading.

    Args:
        compute: device and masks.
        clock: time.
        cfg: the sensor's config.
        rate: its schedule.
        hooks: what the sensor class overrides.
        specs: fields in return space.
        mid_specs: fields in intermediate space (the same list where there is no post-processing).
        field_index: index of each field in the data class: the random streams' field number.
        mounts: number of mounts (for the validity flags).
        seed: the scene's seed.
        prefixes: short prefixes of fields for knobs.
    """

    def __init__(
        self,
        compute: Compute,
        clock: Clock,
        cfg: SimpleSensorCfg[Any],
        rate: Rate,
        hooks: Hooks,
        specs: Sequence[FieldSpec],
        mid_specs: Sequence[FieldSpec],
        field_index: Mapping[str, int],
        mounts: int,
        seed: int,
        prefixes: Mapping[str, str],
    ) -> None:
        self.compute, self.clock, self.cfg, self.rate, self.hooks = compute, clock, cfg, rate, hooks
        self.specs, self.mid_specs, self.label, self.seed = list(specs), list(mid_specs), cfg.label, seed
        self.bad = torch.zeros((compute.num_envs, max(mounts, 1)), dtype=torch.uint8, device=compute.device)
        """uint8 [env, mount], 1 where the engine's state was not finite: the sample is not valid."""
        self.custom: dict[str, States] = {}
        """States that the sensor registered for itself."""
        self.tables: list[ChainTable] = []
        """Every chain table that points at this line's knobs."""
        chained = {s.name: (field_index[s.name], s) for s in self.mid_specs if _takes_noise(s)}
        self.knobs = Knobs(
            compute, clock, cfg, chained, label=self.label, seed=seed, rate_hz=1.0 / (clock.dt * rate.period),
            prefixes={prefix: name for prefix, name in prefixes.items()}, changed=self._knobs_moved,
        )  # fmt: skip
        self.stages = self._build_stages(chained)
        self._allocate(chained)
        self._own_table = ChainTable(compute, clock, self.chain_fields(own=True)) if self.has_hardware else None
        self.forget_tables()

    # Set-up -----------------------------------------------------------------------------------------------------------

    def _build_stages(self, chained: Mapping[str, tuple[int, FieldSpec]]) -> list[StageRun]:
        runs: list[StageRun] = []
        faults: list[Fault] = []
        for number, stage in enumerate(self.cfg.stages):
            if not stage.on_values and stage.fields:
                fault = Fault(f"stages.{number}.fields", repr(stage.fields), "no fields", "This stage alters no value.")
                faults.append(fault)
                continue
            if not stage.on_values and any(type(run.cfg) is type(stage) for run in runs):
                faults.append(Fault(f"stages.{number}", kind_of(type(stage)), "only one stage of this kind"))
                continue
            vectors = tuple(name for name, (_, spec) in chained.items() if spec.kind == "vector")
            names = stage.fields or (vectors if stage.on_values else ())
            others = [spec for spec in self.mid_specs if spec.name in names and spec.dtype != "float32"]
            if others:
                expected = f"fields of float32, not {others[0].dtype}: of this sensor {', '.join(chained) or 'none'}"
                faults.append(Fault(f"stages.{number}.fields", repr(others[0].name), expected))
                continue
            unknown = [name for name in names if name not in chained]
            if unknown:
                error = UnknownNameError(f"field of sensor {self.label!r}", unknown[0], chained)
                faults.append(Fault(f"stages.{number}.fields", repr(unknown[0]), "a field of this sensor", str(error)))
                continue
            turned = [name for name in names if chained[name][1].kind == "rotation"]
            if turned and not stage.keeps_rotations():
                expected = f"no rotation field: {kind_of(type(stage))} would not keep its quaternions unit"
                fix = f"Turn them with the knobs, e.g. noise={{{turned[0]!r}: 0.01}} in rad."
                faults.append(Fault(f"stages.{number}.fields", repr(turned[0]), expected, fix))
                continue
            columns = {name: chained[name][1].columns for name in names}
            units = {chained[name][1].unit for name in names}
            if len(units) > 1 and not stage.fields:
                expected = f"`fields` named, since this sensor's fields have the units {', '.join(sorted(units))}"
                faults.append(Fault(f"stages.{number}.fields", "()", expected, f'Write fields=("{names[0]}",).'))
                continue
            key = StageKey(
                self.compute, self.clock, seed=self.seed, label=self.label,
                stage=f"stage{number}/{kind_of(type(stage))}",
                period=self.clock.dt * self.rate.period, columns=columns,
                field_index={name: chained[name][0] for name in names},
                specs={name: chained[name][1] for name in names},
            )  # fmt: skip
            try:
                stage.check(columns, {spec.name: spec for spec in self.mid_specs}, key.period)
                states = States(self.compute, stage.state_shapes(key))
            except ValueError as error:
                faults.append(Fault(f"stages.{number}", kind_of(type(stage)), str(error)))
                continue
            early = [
                k
                for k, other in enumerate(self.cfg.stages[:number])
                if other.place == stage.place and not other.observes and {*names} & {*(other.fields or vectors)}
            ]
            if stage.observes and early:
                first, expected = self.cfg.stages[early[0]], f"it after {kind_of(type(stage))}, which sees all ticks"
                faults.append(Fault(f"stages.{early[0]}", kind_of(type(first)), expected, "Give that one first."))
                continue
            runs.append(StageRun(stage, states, key))
        if faults:
            raise ConfigError(f"{type(self.cfg).__name__}({self.label!r})", faults)
        return sorted(runs, key=lambda run: PLACES.index(run.cfg.place))

    def _allocate(self, chained: Mapping[str, tuple[int, FieldSpec]]) -> None:
        compute, hooks, num_envs, device = self.compute, self.hooks, self.compute.num_envs, self.compute.device

        shapes = {spec.name: spec.shape for spec in (*self.specs, *self.mid_specs)}
        compute.memory.check_fields(num_envs * sum(spec.nbytes for spec in self.mid_specs), shapes)

        def record() -> Record:
            return Record(self.mid_specs, num_envs, device)

        physics_stages = any(run.cfg.place == "physics" for run in self.stages)
        self.has_branches = bool(hooks.fused or hooks.compute or hooks.physics or hooks.transform or physics_stages)
        depth = 1 + (hooks.lookback if self.has_branches else 0)
        self.truths = [record() for _ in range(depth)]
        self.slots = [record() for _ in range(depth)] if self.has_branches else self.truths
        self.truth, self.slot = self.truths[0], self.slots[0]
        is_first = lambda: self.clock.reset_tick == self.clock.tick  # noqa: E731
        self.truth_timeline = Timeline(self.truths, is_first)
        self.slot_timeline = Timeline(self.slots, is_first)
        stages = any(run.cfg.place != "physics" for run in self.stages)
        noisy_post = bool(hooks.post and self.knobs.tables)
        self.has_own_chain = bool(hooks.hardware or hooks.derive or stages or noisy_post)
        self.has_hardware = self.has_own_chain or bool(self.knobs.tables)
        self.work = record() if self.has_hardware else self.slot
        self.walks = {
            name: torch.zeros((num_envs, chained[name][1].columns), dtype=torch.float32, device=device)
            for knob, name in self.knobs.tables
            if knob == "random_walk"
        }
        self._chained = dict(chained)
        if hooks.post:
            self.truth_out, self.work_out = (Record(self.specs, num_envs, device) for _ in range(2))
            keep = max(hooks.lookback, 1)
            self._posts = tuple([Record(self.specs, num_envs, device) for _ in range(keep)] for _ in range(2))
        else:
            self.truth_out, self.work_out = self.truth, self.work
        wants_ring = self.cfg.delay is not None or self.cfg.loss is not None or self.cfg.history_length > 0
        self.ring = (
            Ring(compute, self.clock, self.cfg, self.specs, self.rate, label=self.label, seed=self.seed, bad=self.bad)
            if wants_ring
            else None
        )
        self.is_fused = not self.has_own_chain and not hooks.post
        """Whether the standard chain of this sensor runs inside the launch of its rate group."""
        self.observers = [run for run in self.stages if run.cfg.observes]
        """Stages that look at every tick."""
        if self.observers:
            self._scratch = record()
            self._flags = [torch.zeros_like(self.bad) for _ in range(3)]

    def new_state(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Register a float32 state `[env, *shape]` of the sensor's own; see `Sensor.new_state`."""
        self.custom[name] = States(self.compute, {name: shape})
        return self.custom[name].views[name]

    @property
    def has_memory(self) -> bool:
        """Whether a sample depends on earlier ones, so that none may be skipped."""
        return bool(
            self.ring or self.walks or self.custom or self.stages_with_state or self.hooks.post or self.hooks.lookback
            or self.hooks.observe
        )  # fmt: skip

    @property
    def watches(self) -> bool:
        """Whether the sensor, or a stage of it, looks at the ticks between its samples."""
        return bool(self.observers or self.hooks.observe or self.hooks.between)

    @property
    def stages_with_state(self) -> list[StageRun]:
        """Stages that keep something from one sample to the next."""
        return [run for run in self.stages if run.states.views]

    def forget_tables(self) -> None:
        """Forget the tables of programs that are built anew."""
        self.tables = [] if self._own_table is None else [self._own_table]

    def _knobs_moved(self) -> None:
        for table in self.tables:
            table.refresh()

    def chain_fields(self, own: bool = False) -> list[ChainField]:
        """Return what the chain does for each field; `own` for a launch of this sensor's own, in place on `work`."""
        fields = []
        for name, (index, spec) in self._chained.items():
            tables = {
                knob: self.knobs.tables.get((knob, name)) for knob in ("noise", "bias", "random_walk", "resolution")
            }
            chain = ChainField(
                source=self.work[name] if own else self.slot[name],
                target=self.work[name],
                columns=spec.columns,
                field_index=index,
                is_rotation=spec.kind == "rotation",
                walk=self.walks.get(name),
                noise_key=stream_key(self.seed, self.label, "noise"),
                walk_key=stream_key(self.seed, self.label, "random_walk"),
                **tables,  # type: ignore[arg-type]
            )
            if not own and self.ring is not None:
                self.ring.attach(chain, name)
            if own or self.ring is not None or self.has_hardware:
                fields.append(chain)
        return fields

    # One sample -------------------------------------------------------------------------------------------------------

    def before_chain(self, mask: torch.Tensor) -> list[Segment]:
        """Return the work of a sample up to the fused chain, for the envs of a mask."""
        work = _Work(self, mask)
        hooks = self.hooks
        if self.ring is not None:
            work.record(self.ring.begin)
        if not hooks.checks_state:
            work.record(self._clear_flags)
        if self.custom:
            work.record(self._guard_custom)
        for records in {id(self.truths): self.truths, id(self.slots): self.slots}.values():
            for newer, older in reversed(list(pairwise(records))):
                work.record(partial(self._move, newer, older, ON_SAMPLE))
        if hooks.observe:
            work.hook(hooks.observe)
        if hooks.compute:
            work.hook(hooks.compute, self.truth, self.slot)
        elif hooks.fused:
            work.hook(hooks.fused, self.truth, self.slot, self.slot_timeline)
        else:
            assert hooks.raw is not None
            work.hook(hooks.raw, self.truth)
            if self.has_branches:
                work.record(lambda: self._move(self.truth, self.slot, ALWAYS))
                if hooks.physics:
                    if hooks.lookback:
                        work.record(self._hold_first)
                    work.hook(hooks.physics, self.slot, self.slot_timeline)
        if not hooks.checks_state:
            work.record(partial(self._flag_nan, self.truth))
        if self.observers:
            work.record(partial(self._observed_flags, SAMPLE))
        for run in self._stages_at("physics"):
            self._stage(work, run, self.slot)
        if hooks.transform:
            if hooks.lookback:
                work.record(self._hold_first)
            work.hook(hooks.transform, self.truth, self.truth_timeline, is_measured=False)
            work.hook(hooks.transform, self.slot, self.slot_timeline, is_measured=True)
        if hooks.lookback:
            work.record(self._hold_first)
        if self.has_hardware:
            plain = [name for name in self.slot if self.has_own_chain or name not in self._chained]
            if plain:
                work.record(lambda: self._move(self.slot, self.work, ALWAYS, plain))
        if self.has_own_chain:
            self._hardware(work)
        if hooks.derive:
            work.hook(hooks.derive, self.work)
        if hooks.post:
            self._post(work)
        return work.segments

    def begin_measured(self, raw: Record, slot: Record) -> None:
        """Have the measured branch start from the truth (launches)."""
        self._move(raw, slot, ALWAYS)
        if self.hooks.lookback:
            self._hold_first()

    def _clear_flags(self) -> None:
        self.compute.launch(_clear_flags, (self.bad.shape[1],), [wp.from_torch(self.bad, dtype=wp.uint8)])

    def invalidate(self, envs: torch.Tensor) -> None:
        """Mark the newest capture of some environments as not valid.

        Args:
            envs: bool `[env]`.
        """
        self.bad.masked_fill_(envs[:, None], 1)
        if self.ring is not None:
            self.ring.invalidate(envs)

    def observation(self, mask: torch.Tensor) -> list[Segment]:
        """Return the work of a tick between samples: the sensor's look at it; for stages, the truth and their look."""
        work = _Work(self, mask)
        raw = self.hooks.raw
        for hook in (self.hooks.observe, self.hooks.between):
            if hook:
                work.hook(hook)
        if not self.observers:
            return work.segments
        assert raw is not None
        work.record(partial(self._observed_flags, BEGIN))
        if not self.hooks.checks_state:
            work.record(self._clear_flags)
        work.hook(raw, self._scratch)
        if not self.hooks.checks_state:
            work.record(partial(self._flag_nan, self._scratch))
        for run in self.observers:
            look = partial(run.cfg.observe, self._scratch, run.states.views, run.key)
            (work.record if run.cfg.is_recorded else work.call)(look)
        work.record(partial(self._observed_flags, END))
        return work.segments

    def check_observers(self) -> None:
        """Raise `ConfigError` where a stage observes every tick, but the truth of a tick cannot be had by itself."""
        if not self.observers:
            return
        stage, otherwise = kind_of(type(self.observers[0].cfg)), self.observers[0].cfg.otherwise
        if self.hooks.raw is None:
            why = "its truth and its measured value come from one kernel, and only at samples"
        elif self.custom:
            why = f"it remembers earlier samples itself ({', '.join(self.custom)})"
        elif self.cfg.evaluate == "wanted":
            why = 'it is not evaluated while nobody reads (evaluate="wanted")'
        else:
            return
        raise ConfigError.single(
            f"{type(self.cfg).__name__}({self.label!r})", "stages", stage, "no stage that looks at every tick",
            f"This sensor cannot be asked for its truth between samples: {why}. {otherwise}".strip(),
        )  # fmt: skip

    def _observed_flags(self, when: int) -> None:
        inputs = [when, self.clock.words_wp, self.clock.reset_tick_wp]
        flags = [wp.from_torch(flags, dtype=wp.uint8) for flags in (self.bad, *self._flags)]
        self.compute.launch(_observed_flags, (self.bad.shape[1],), inputs, flags)

    def _flag_nan(self, truth: Record) -> None:
        """Flag the envs whose truth holds NaN (infinity is a miss, not a fault), for hooks that do not check."""
        flags = [wp.from_torch(self.bad, dtype=wp.uint8), self.clock.bad_wp]
        for spec in self.mid_specs:
            if spec.dtype == "float32" and spec.columns:
                values = wp.from_torch(truth[spec.name].view(self.compute.num_envs, -1), dtype=wp.float32)
                self.compute.launch(_flag_nan, (-(-spec.columns // 64),), [spec.columns, values, *flags])

    def _guard_custom(self) -> None:
        for states in self.custom.values():
            states.guard(self.compute, self.clock)

    def after_chain(self, mask: torch.Tensor) -> list[Segment]:
        """Return the work of a sample after the fused chain: what it did not freeze, and the stamps."""
        if self.ring is None:
            return []
        ring, work = self.ring, _Work(self, mask)
        names = [spec.name for spec in self.specs if not (self.is_fused and spec.name in self._chained)]
        work.record(lambda: ring.freeze(self.work_out, names))
        work.record(ring.dispatch)
        return work.segments

    def _stages_at(self, place: str) -> list[StageRun]:
        return [run for run in self.stages if run.cfg.place == place]

    def _stage(self, work: _Work, run: StageRun, record: Record) -> None:
        if run.states.views:
            work.record(lambda: run.states.guard(self.compute, self.clock))

        def apply() -> None:
            run.cfg.apply(record, self.truth, run.states.views, run.key)

        if run.cfg.is_recorded:
            work.record(apply)
        else:
            work.call(apply)

    def _hardware(self, work: _Work) -> None:
        table = self._own_table
        assert table is not None
        for run in self._stages_at("scale"):
            self._stage(work, run, self.work)
        if self.hooks.hardware:
            work.hook(self.hooks.hardware, self.work)
            for place in ("noise", "bias", "saturation", "dropout", "post"):
                for run in self._stages_at(place):
                    self._stage(work, run, self.work)
            return
        pending = 0
        for parts, places in (
            (NOISE, ("noise",)),
            (WALK_AND_BIAS, ("bias", "saturation")),
            (QUANTISE, ("dropout", "post")),
        ):
            pending |= parts
            runs = [run for place in places for run in self._stages_at(place)]
            if runs or parts == QUANTISE:
                if self.knobs.tables:
                    work.record(partial(table.launch, pending))
                pending = 0
            for run in runs:
                self._stage(work, run, self.work)

    def standard_chain(self, slot: Record) -> None:
        """Run noise, random walk, bias and quantisation in place on the measured record (one launch)."""
        if slot is not self.work:
            raise ValueError("standard_chain works on the record that apply_hardware_imperfections was given")
        if self._own_table is not None and self.knobs.tables:
            self._own_table.launch(NOISE | WALK_AND_BIAS | QUANTISE)

    def _post(self, work: _Work) -> None:
        post = self.hooks.post
        assert post is not None
        for measured, (source, target, kept) in enumerate(
            ((self.truth, self.truth_out, self._posts[0]), (self.work, self.work_out, self._posts[1]))
        ):
            chain = [target, *kept]
            for newer, older in reversed(list(pairwise(chain))):
                work.record(partial(self._move, newer, older, ON_SAMPLE))
            timeline = Timeline(kept, lambda: self.clock.reset_tick == self.clock.tick, offset=1)
            work.record(partial(self._forget, kept))

            def run(
                source: Record = source,
                target: Record = target,
                timeline: Timeline = timeline,
                is_measured: bool = bool(measured),
            ) -> None:
                made = as_fields(post(source, timeline, is_measured=is_measured), self.specs)
                if getattr(post, "__recorded__", False):
                    self._copy(made, target)
                else:
                    target.copy_from(made)

            (work.record if getattr(post, "__recorded__", False) else work.call)(run)

    def _forget(self, kept: Sequence[Record]) -> None:
        """Have nothing from before a reset in the outputs that a `post_process` looks back at: they are zero."""
        for record in kept:
            for name in record:
                words = words_of(record[name])
                inputs = [self.clock.words_wp, self.clock.reset_tick_wp, words.count, words.wide, words.address]
                self.compute.launch(_forget, (-(-words.count // int(WORDS)),), inputs)

    def _copy(self, source: Mapping[str, torch.Tensor], target: Record) -> None:
        """Copy what a recorded `post_process` returned, tensors at addresses that stay (launches)."""
        for name in target:
            given, wanted = source[name], target[name]
            if given.shape != wanted.shape or given.dtype != wanted.dtype:
                got, expected = f"{tuple(given.shape)} {given.dtype}", f"{tuple(wanted.shape)} {wanted.dtype}"
                raise ValueError(f"post_process returned {name!r} as {got}, expected {expected}.")
            words = words_of(given)
            inputs = [ALWAYS, self.clock.words_wp, self.clock.reset_tick_wp, words.count, words.wide, words.address]
            self.compute.launch(_move, (-(-words.count // int(WORDS)),), inputs, [words_of(wanted).address])

    def _move(self, source: Record, target: Record, when: int, names: Sequence[str] | None = None) -> None:
        for name in source if names is None else names:
            words = words_of(source[name])
            inputs = [when, self.clock.words_wp, self.clock.reset_tick_wp, words.count, words.wide, words.address]
            self.compute.launch(_move, (-(-words.count // int(WORDS)),), inputs, [words_of(target[name]).address])

    def _hold_first(self) -> None:
        for records in (self.truths, self.slots):
            for older in records[1:]:
                self._move(records[0], older, ON_FIRST)

    # Reset, state, size -----------------------------------------------------------------------------------------------

    def begin_episode(self) -> None:
        """For the envs of the active mask, draw the knobs that are distributions anew and reset all states."""
        self.knobs.redraw()
        if self.ring is not None:
            self.ring.redraw()
        for run in self.stages:
            run.cfg.reset(run.states.views, run.key)
        for states in self.custom.values():
            states.memory.masked_fill_(self.compute.mask[:, None] > 0, 0.0)

    def restore(self, mask: torch.Tensor) -> None:
        """Bring the states of the masked envs back to before their current sample."""
        for states in (*self.custom.values(), *(run.states for run in self.stages)):
            states.memory.copy_(torch.where(mask[:, None] > 0, states.backup, states.memory))

    def protected(self) -> list[torch.Tensor]:
        """Return what unmasked hooks may overwrite at a reset, `[env, ...]` each."""
        records = {
            id(record): record for record in [*self.truths, *self.slots, self.work, self.truth_out, self.work_out]
        }
        if self.hooks.post:
            records |= {id(record): record for kept in self._posts for record in kept}
        tensors = [view for record in records.values() for view in record.tensors_by_env()]
        tensors += [self.bad, *self.walks.values(), *(self._flags if self.observers else ())]
        tensors += [states.memory for states in (*self.custom.values(), *(run.states for run in self.stages))]
        return tensors

    def needs_protection(self) -> bool:
        """Whether a hook is a plain Python call, which works on all envs."""
        hooks = [self.hooks.raw, self.hooks.fused, self.hooks.compute, self.hooks.physics, self.hooks.transform,
                 self.hooks.hardware, self.hooks.derive, self.hooks.observe]  # fmt: skip
        hooks.append(self.hooks.post)
        python = [hook for hook in hooks if hook is not None and not getattr(hook, "__recorded__", False)]
        return bool(python or any(not run.cfg.is_recorded for run in self.stages))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all that must be saved to resume, by name."""
        out: dict[str, torch.Tensor] = {"bad": self.bad}
        groups = {"truth": self.truths, "slot": self.slots, "work": [self.work], "truth_out": [self.truth_out],
                  "work_out": [self.work_out]}  # fmt: skip
        if self.hooks.post:
            groups |= {"post_truth": self._posts[0], "post_work": self._posts[1]}
        for name, records in groups.items():
            for k, record in enumerate(records):
                out |= {f"{name}/{k}/{field}": view for field, view in record.items()}
        if self.observers:
            out |= {f"flags/{k}": flags for k, flags in enumerate(self._flags)}
        out |= {f"walk/{name}": walk for name, walk in self.walks.items()}
        for name, states in self.custom.items():
            out |= {f"state/{name}": states.memory, f"state_backup/{name}": states.backup}
        for k, run in enumerate(self.stages):
            out |= {f"stage/{k}": run.states.memory, f"stage_backup/{k}": run.states.backup}
        out |= {f"knob/{knob}/{name}": table.values for (knob, name), table in self.knobs.tables.items()}
        if self.ring is not None:
            out |= self.ring.tensors()
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of memory of this line."""
        seen = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in self.tensors().values()
        }
        shown = self.ring.shown.nbytes if self.ring is not None and self.ring.shown is not None else 0
        return sum(seen.values()) + shown + (self._scratch.nbytes if self.observers else 0)


class _Work:
    """Collects the segments of one sample of a line in order."""

    def __init__(self, line: Line, mask: torch.Tensor) -> None:
        self.compute, self.line, self.mask = line.compute, line, mask
        self.segments: list[Segment] = []

    def record(self, launches: Callable[[], object]) -> None:
        segment = self.compute.record(launches, self.mask, owner=self.line)
        if self.segments and self.segments[-1].is_recorded:
            self.segments[-1] = self.segments[-1] + segment
        else:
            self.segments.append(segment)

    def call(self, function: Callable[[], object]) -> None:
        self.segments.append(self.compute.call(function, self.mask))

    def hook(self, hook: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        if getattr(hook, "__recorded__", False):
            self.record(lambda: hook(*args, **kwargs))
        else:
            self.call(lambda: hook(*args, **kwargs))


def as_fields(value: Any, specs: Sequence[FieldSpec]) -> Mapping[str, torch.Tensor]:
    """Turn what a `post_process` returned into field -> tensor: a mapping, a record, a data object or a lone tensor."""
    if isinstance(value, torch.Tensor):
        if len(specs) != 1:
            raise TypeError(f"post_process returned one tensor for the fields {[spec.name for spec in specs]}")
        return {specs[0].name: value}
    if isinstance(value, Mapping):
        return value
    if isinstance(value, Record):
        return dict(value.items())
    return {spec.name: getattr(value, spec.name) for spec in specs}


def _takes_noise(spec: FieldSpec) -> bool:
    return spec.dtype == "float32" and spec.kind in ("vector", "rotation") and spec.columns > 0


__all__ = ["EVERYTHING", "Hooks", "Line", "States"]
