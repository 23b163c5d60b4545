"""Memory of one sensor's measurement: records, states, knobs and ring as its plan uses them; non-finite state.

A clean sensor has one record: its measured data is its truth.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
import torch
import warp as wp

from sensorium.compute import AsyncCopy, Clock, Compute
from sensorium.engines.base import Engine
from sensorium.errors import NonFiniteStateWarning
from sensorium.measurement.chain import NOISE, QUANTISE, WALK_AND_BIAS, ChainField, ChainTable
from sensorium.measurement.counter import AccessCounter, SampleCounter
from sensorium.measurement.knobs import Knobs
from sensorium.measurement.plan import SensorPlan
from sensorium.measurement.record import Record, Timeline
from sensorium.measurement.stage_key import StageRun, new_state, stage_runs
from sensorium.measurement.transport import DelayRing
from sensorium.random import stream_key

if TYPE_CHECKING:
    from sensorium.measurement.schedule import SampleGroup
    from sensorium.sensors.core.poses import CapturePoses

NAN_VALUE = 4
"""Flag of a mount whose true value is NaN; 1 is that of a state that is known not to be finite."""


class SensorBuffers:
    """Memory of one sensor between truth and reading.

    Args:
        plan: plan of the measurement, which determines the memory.
        compute: device and masks.
        clock: clock of the scene.
    """

    def __init__(self, plan: SensorPlan, compute: Compute, clock: Clock) -> None:
        self.compute, self.clock = compute, clock
        self.bad = torch.zeros((compute.num_envs, max(plan.mounts, 1)), dtype=torch.uint8, device=compute.device)
        """uint8 [env, mount], 1 where the engine's state was not finite: the sample is not valid. A sensor that counts
        its mounts differently assigns a tensor of another size in its setup."""
        self.kept: dict[str, torch.Tensor] = {}
        """Further tensors to save for resuming, such as settings made at run time; a reset does not alter them."""
        self.custom: dict[str, torch.Tensor] = {}
        """States registered by the sensor itself."""
        self.tables: WeakSet[ChainTable] = WeakSet()
        """All chain tables in use that refer to these knobs."""
        self.knobs = Knobs(plan, compute, clock, self.refresh_tables)
        self.plan = replace(plan, knobs=frozenset(self.knobs.tables))
        self.stages = stage_runs(self.plan, compute, clock)
        self.counter = SampleCounter(clock, plan.rate)
        """Number and ticks of the captures."""
        self._allocate()
        self.own_table: ChainTable | None = None
        """Chain table for launches of this sensor alone."""
        if self.plan.has_hardware:
            self.own_table = ChainTable(compute, self.chain_fields(own=True))
            self.tables.add(self.own_table)
        self.group: SampleGroup | None = None
        """Group of sensors that this one is evaluated with."""
        self.before_first: Callable[[], None] | None = lambda: None
        """Called before the first evaluation on read: a sensor without a config is prepared only then. None after it:
        from then on the sensor is evaluated with the others."""
        self.wanted = True
        """Whether the sensor was read since its last due tick (used for ``evaluate="wanted"``)."""
        self.listeners = 0
        """Number of recorders and listeners that want every sample."""
        self.poses: CapturePoses | None = None
        """Where the mounts were at the captures, while an output publishes that."""
        self.body_at_fault: Callable[[int, int], str] = lambda env, mount: "?"
        """Returns the body with a non-finite state, for an env and a mount."""
        self._snapshot: list[torch.Tensor] = []

    def _allocate(self) -> None:
        plan, num_envs, device = self.plan, self.compute.num_envs, self.compute.device
        largest = max((spec.shape for spec in (*plan.specs, *plan.mid_specs)), key=prod, default=())
        self.compute.memory.check(num_envs * sum(spec.nbytes for spec in plan.mid_specs), shape=(num_envs, *largest))

        def record() -> Record:
            return Record(plan.mid_specs, num_envs, device)

        depth = 1 + (plan.lookback if plan.has_branches else 0)
        self.truths = [record() for _ in range(depth)]
        """True values, newest first."""
        self.slots = [record() for _ in range(depth)] if plan.has_branches else self.truths
        """Measured values before hardware imperfections, newest first."""
        self.truth, self.slot = self.truths[0], self.slots[0]
        self.truth_timeline = Timeline(self.truths, self._is_first)
        self.slot_timeline = Timeline(self.slots, self._is_first)
        self.work = record() if plan.has_hardware else self.slot
        """The measured value in intermediate space."""
        self.walks = {
            name: torch.zeros((num_envs, plan.chained[name][1].columns), dtype=torch.float32, device=device)
            for knob, name in self.knobs.tables
            if knob == "random_walk"
        }
        self.truth_out, self.work_out = self.truth, self.work
        previous = plan.lookback + 1 if plan.hooks.post else 0
        self.posts = [[Record(plan.specs, num_envs, device) for _ in range(previous)] for _ in range(2)]
        """The previous outputs of `post_process`, newest first: true and measured."""
        if plan.hooks.post:
            self.truth_out, self.work_out = (Record(plan.specs, num_envs, device) for _ in range(2))
        self.ring = DelayRing(plan, self.compute, self.clock, self.bad, self.counter) if plan.has_ring else None
        self.late = self.ring if self.ring is not None and self.ring.has_delay else None
        """The ring, where `data` may be older than the newest sample."""
        self.counter.in_flight = 0 if self.ring is None else self.ring.latest
        self.observers = [run for run in self.stages if run.cfg.observes]
        """Stages that run at every tick."""
        self.scratch = record() if self.observers else Record((), num_envs, device)
        """Truth of a tick between samples, for these stages."""
        self.flags = [torch.zeros_like(self.bad) for _ in range(2)] if self.observers else []
        self.own_clock: Any = next((run for run in self.stages if hasattr(run.cfg, "stamps")), None)
        """The run of the stage that is the sensor's own clock: it has `stamps`. None without one."""

    def _is_first(self) -> torch.Tensor:
        """Bool [env]: whether the current sample is the first of the env's episode."""
        return self.clock.reset_tick == self.clock.tick

    def post_timeline(self, branch: int) -> Timeline:
        """Return the timeline of a `post_process` hook: true (0) or measured (1)."""
        return Timeline(self.posts[branch], self._is_first)

    def new_state(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Register a state of the sensor itself, float32 `[env, *shape]`; see `Sensor.new_state`."""
        self.custom[name] = new_state(self.compute, shape)
        return self.custom[name]

    def seal(self, evaluate: str | None = None) -> None:
        """Complete the plan after the sensor has registered its states, or change when it is evaluated."""
        states = [f"stage/{k}" for k, run in enumerate(self.stages) if run.states]
        self.plan = replace(self.plan, states=(*self.custom, *states), evaluate=evaluate or self.plan.evaluate)
        self.counter.is_pure = self.plan.is_pure
        if self.plan.is_on_access:
            self.counter = AccessCounter(self.clock, self.plan.rate)

    # The chain --------------------------------------------------------------------------------------------------------

    def refresh_tables(self) -> None:
        """Update the chain tables after knobs moved in memory."""
        for table in self.tables:
            table.refresh()

    def chain_fields(self, own: bool = False) -> list[ChainField]:
        """Return the chain's work for each field; with `own`, for a launch of this sensor alone, in place on `work`."""
        plan, fields = self.plan, []
        keys = stream_key(plan.seed, plan.label, "noise"), stream_key(plan.seed, plan.label, "random_walk")
        for name, (index, spec) in plan.chained.items():
            source = self.work if own or plan.has_scale else self.slot
            places = {"source": source[name], "target": self.work[name]}
            if name in self.walks:
                places["walk"] = self.walks[name]
            if not own and self.ring is not None:
                places |= self.ring.places(name)
            if own or self.ring is not None or plan.knobs:
                knobs = {knob: table for (knob, field), table in self.knobs.tables.items() if field == name}
                fields.append(ChainField(places, knobs, spec.columns, index, spec.kind == "rotation", keys))
        return fields

    def standard_chain(self, slot: Record) -> None:
        """Run noise, random walk, bias and quantisation in place on the measured record (one launch)."""
        if slot is not self.work:
            raise ValueError("standard_chain must be called with the record passed to apply_hardware_imperfections")
        if self.own_table is not None and self.knobs.tables:
            self.own_table.launch(NOISE | WALK_AND_BIAS | QUANTISE)

    def stages_at(self, *places: str) -> list[StageRun]:
        """Return the stages at the given places of the chain."""
        return [run for run in self.stages if run.cfg.place in places]

    # Reset ------------------------------------------------------------------------------------------------------------

    def begin_episode(self) -> None:
        """Redraw knobs that are distributions, and reset all states, in the envs of the active mask."""
        self.knobs.redraw()
        if self.ring is not None:
            self.ring.redraw()
        for run in self.stages:
            run.cfg.reset(run.states, run.key)
        inside = self.compute.mask > 0
        older = (each for records in (*self.posts, self.truths[1:], self.slots[1:]) for each in records)
        views = (view for each in older for _, view in each.items())
        for tensor in (*self.custom.values(), *views):
            tensor.masked_fill_(inside.reshape(-1, *(1,) * (tensor.dim() - 1)), 0)
        if self.plan.hooks.reset is not None:
            self.plan.hooks.reset(self.compute.mask)

    def invalidate(self, envs: torch.Tensor) -> None:
        """Mark the newest capture of some environments as invalid.

        Args:
            envs: bool `[env]`.
        """
        self.bad.masked_fill_(envs[:, None], 1)
        if self.ring is not None:
            self.ring.invalidate(envs)

    @contextmanager
    def keeping_rows(self) -> Iterator[None]:
        """Preserve the rows of envs outside the reset mask, which Python hooks in this block may overwrite."""
        tensors = list({id(tensor): tensor for tensor in self._written().values()}.values())
        if len(self._snapshot) != len(tensors):
            self._snapshot = [torch.empty_like(tensor) for tensor in tensors]
        for kept, tensor in zip(self._snapshot, tensors, strict=True):
            kept.copy_(tensor)
        yield
        inside = self.compute.reset_envs > 0
        for kept, tensor in zip(self._snapshot, tensors, strict=True):
            tensor.copy_(torch.where(inside.reshape(-1, *(1,) * (tensor.dim() - 1)), tensor, kept))

    def restart(self) -> None:
        """Discard the remains of an interrupted call; a reset of all envs or a load must follow."""
        self.wanted = True
        self.counter.restart()
        if self.ring is not None:
            self.ring.restart()

    # State, size ------------------------------------------------------------------------------------------------------

    def _written(self) -> dict[str, torch.Tensor]:
        """Return the memory that a sample writes besides the ring, by name; a record may have several names."""
        out: dict[str, torch.Tensor] = {"bad": self.bad}
        groups = {"truth": self.truths, "slot": self.slots, "work": [self.work], "truth_out": [self.truth_out],
                  "work_out": [self.work_out], "post_truth": self.posts[0], "post_work": self.posts[1]}  # fmt: skip
        for name, records in groups.items():
            for k, record in enumerate(records):
                out |= {f"{name}/{k}/{field}": view for field, view in record.items()}
        out |= {f"flags/{k}": flags for k, flags in enumerate(self.flags)}
        out |= {f"walk/{name}": walk for name, walk in self.walks.items()}
        out |= {f"state/{name}": state for name, state in self.custom.items()}
        out |= {f"stage/{k}/{name}": state for k, run in enumerate(self.stages) for name, state in run.states.items()}
        return out

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the memory by name; with the counter's tensors, this is everything to save for resuming."""
        knobs = {f"knob/{knob}/{name}": table.values for (knob, name), table in self.knobs.tables.items()}
        return {**self._written(), **knobs, **(self.ring.tensors() if self.ring is not None else {}), **self.kept}

    def counters(self) -> dict[str, int]:
        """Return the host's counters, which must be saved to resume."""
        soonest = 0 if self.ring is None else self.ring.soonest
        return {**self.counter.counters(), "wanted": int(self.wanted), "soonest": soonest}

    def load(self, tensors: Mapping[str, torch.Tensor], counters: Mapping[str, int]) -> None:
        """Restore the result of `counters`, and resize the memory that `tensors` returns to its saved size."""
        for (knob, name), table in self.knobs.tables.items():
            saved = tensors[f"knob/{knob}/{name}"]
            if saved.shape != table.values.shape:  # the knob was set per env at run time
                table.values = saved.clone().to(self.compute.device)
        self.refresh_tables()
        self.counter.load(counters, tensors)
        self.wanted = bool(counters["wanted"])
        if self.ring is not None:
            self.ring.soonest = counters["soonest"]

    @property
    def bad_wp(self) -> Any:
        """`bad` as a Warp array."""
        return wp.from_torch(self.bad)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        shown = [] if self.late is None else self.late.shown.tensors()
        tensors = [*self.tensors().values(), *self._snapshot, *self.scratch.tensors(), *shown]
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
        return sum(storages.values())


class StateWatch:
    """Warns where kernels flagged NaN or infinity in the engine's state.

    On CUDA the host does not wait for the flags, so the warning is late by some control steps.

    Args:
        clock: clock with the flag that shows whether any sensor found non-finite state.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bad = AsyncCopy(clock.bad)
        self._checked: int | None = None
        self._reported: set[tuple[str, int]] = set()
        self._found: list[tuple[SensorBuffers, AsyncCopy]] = []
        self._found_at = (0, 0)

    def forget(self, rows: torch.Tensor | None) -> None:
        """Report the envs of a reset again if they fail; None means all."""
        if rows is None:
            self._reported.clear()
        elif self._reported:
            again = set((rows.nonzero()[:, 0] if rows.dtype == torch.bool else rows).tolist())
            self._reported = {(label, env) for label, env in self._reported if env not in again}

    def invalidate(self, engine: Engine, sensors: Iterable[SensorBuffers]) -> None:
        """Invalidate this tick's captures in environments whose state the simulator replaced, until their reset."""
        replaced = engine.replaced()
        if replaced is None:
            return
        for sensor in sensors:
            if sensor.counter.is_current:
                sensor.invalidate(replaced)

    def report(self, sensors: Iterable[SensorBuffers]) -> None:
        """Warn of non-finite engine state with env, body and tick, once per sensor and env until its next reset."""
        clock = self._clock
        if clock.bad.is_cuda:  # once per control step is sufficient
            if self._checked == clock.control_tick:
                return
            self._checked = clock.control_tick
        if self._found:
            self._check()
        elif self._take_bad():
            self._found = [(sensor, AsyncCopy(sensor.bad)) for sensor in sensors]
            for _, copy in self._found:
                copy.start()
            self._found_at = (clock.control_tick, clock.tick)
            self._check()

    def _take_bad(self) -> bool:
        """Return whether a kernel found a non-finite state since the last call; on CUDA with a delay of some calls."""
        arrived = self._bad.take()
        found = arrived is not None and bool(arrived[0])
        if self._bad.start() or found:
            self._clock.bad.zero_()  # after the copy, in stream order
        return found

    def _check(self) -> None:
        """Warn if the flags of all sensors have arrived."""
        flags = []
        for sensor, copy in reversed(self._found):
            if (values := copy.take()) is None:  # copies arrive in order, so the last one suffices
                return
            flags.append((sensor, values))
        self._found = []
        begin, tick = self._found_at
        messages, flagged = [], False
        for sensor, values in reversed(flags):
            for env, mount in np.argwhere((values == 1) | (values == NAN_VALUE)).tolist():
                flagged = True
                if (sensor.plan.label, env) in self._reported:
                    continue
                self._reported.add((sensor.plan.label, env))
                body = sensor.body_at_fault(env, mount)
                where = f"in env {env}, body {body!r}, at tick {tick}; its samples are marked invalid until"
                messages.append(
                    f"sensor {sensor.plan.label!r}: the engine's state is not finite {where} the state is finite again "
                    f"(reset env {env})"
                    if values[env, mount] == 1
                    else f"sensor {sensor.plan.label!r}: its true value is NaN {where} it is a number; either the "
                    "engine's state is not finite, or a hook of the sensor divides by 0 or the like"
                )
        if not flagged:
            messages.append(
                f"the engine's state was not finite for a moment between the control steps at ticks {begin} and "
                f"{tick}; the samples of that moment are marked invalid"
            )
        for message in messages:
            warnings.warn(message, NonFiniteStateWarning, stacklevel=5)
