"""Schedule of sampling: sensors of one rate together, at the ticks of their grid; lazy ones together when read.

    Schedule.sample -> Program.run                                   at a tick at which something is due
    Schedule.reset  -> SensorBuffers.begin_episode, Program.run      for the envs of the reset mask
    SampleGroup.ensure_current -> Schedule.evaluate -> Program.run   at a read

The host always knows the next tick and its sensors without waiting for a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any

import torch

from sensorium.compute import Program
from sensorium.compute.clock import FIRST, SAMPLE, Clock
from sensorium.compute.exclusive import SceneGuard, exclusive
from sensorium.compute.program import Compute
from sensorium.engines.base import Engine
from sensorium.errors import StaleError
from sensorium.measurement.buffers import SensorBuffers, StateWatch
from sensorium.measurement.counter import NEVER, AccessCounter
from sensorium.measurement.work import SensorWork, pipeline_work
from sensorium.spec import Requirement


class SampleGroup:
    """Sensors with the same rate and time of evaluation; tracks whether their readings are current.

    Args:
        schedule: schedule that evaluates the group.
        members: buffers of the sensors.
    """

    def __init__(self, schedule: Schedule, members: Sequence[SensorBuffers]) -> None:
        plan = members[0].plan
        self._schedule, self.rate, self.members = schedule, plan.rate, list(members)
        self.next_due = plan.rate.next_after(schedule.clock.tick)
        self.program: Program | None = None
        """Work of one sample; None before the first one, and after an exception ended it."""
        self._observing: Program | None = None
        self.version = -1
        """`Clock.version` of the last evaluation on read; -1 where it must be repeated."""
        self.read_version = -1
        """`Clock.version` at which a read last found all members current, so that reads of the others need no check."""
        self.is_lazy = plan.is_lazy or plan.is_on_access
        self.is_wanted_only = plan.evaluation[0] == "wanted"
        self._counters = [each.counter for each in members]
        may_look = not plan.rate.every_tick or plan.evaluate == "wanted"
        self.watches = may_look and any(each.plan.watches for each in members)
        """Whether a member runs at ticks between its samples, which may be omitted where unwanted."""
        for each in members:
            each.group = self

    def ensure_current(self) -> None:
        """Bring the members up to date before they are read: lazy ones are evaluated."""
        guard = self._schedule._guard
        if guard.thread or guard.changing:
            guard.check()
        version = self._schedule.clock.version
        if not self.is_lazy:
            self.read_version = version
        elif self.version != version:
            self._schedule.evaluate(self)

    def expire(self) -> None:
        """Repeat the evaluation on the next read, because the state or a setting of this tick was changed."""
        self.version = self.read_version = -1
        for counter in self._counters:
            counter.repeats = True

    def show(self) -> None:
        """Take the first samples of episodes, for an output; other samples of a sensor evaluated on access wait."""
        if self.version != self._schedule.clock.version:
            self._schedule.evaluate(self, is_read=False)

    def note_sample(self, tick: int, lag: int) -> None:
        """Count a sample for all members that have none at this tick."""
        for counter in self._counters:
            if counter.last_tick < tick:
                counter.taken += 1
                counter.last_tick, counter.last_lag = tick, lag

    def comes_due(self, tick: int) -> bool:
        """Whether a wanted sample is due at a tick; also sets the next due tick."""
        if tick < self.next_due:
            return False
        self.next_due = self.rate.next_after(tick)
        if not self.is_wanted_only:
            return True
        (member,) = self.members
        is_wanted, member.wanted = bool(member.wanted or member.listeners), False
        return is_wanted

    def sampling(self) -> Program:
        """Return the program of one sample of all members."""
        if self.program is None:
            self.program = Program(pipeline_work(self.members, self._schedule.compute.all_envs))
        return self.program

    def observing(self) -> Program:
        """Return the program of a tick between samples."""
        if self._observing is None:
            mask = self._schedule.compute.all_envs
            watching = [each for each in self.members if each.plan.watches]
            self._observing = Program(
                chain.from_iterable(SensorWork(each, mask).between_samples() for each in watching)
            )
        return self._observing


class Schedule:
    """The sample groups of one scene.

    Args:
        engine: engine, which is brought up to date before a lazy evaluation.
        compute: device of the work.
        clock: clock of the scene.
        guard: guard of the scene against concurrent and interrupted calls.
    """

    def __init__(self, engine: Engine, compute: Compute, clock: Clock, guard: SceneGuard) -> None:
        self.engine, self.compute, self.clock, self._guard = engine, compute, clock, guard
        self.health = StateWatch(clock)
        self._members: list[SensorBuffers] = []
        self._groups: list[SampleGroup] = []
        self._captured: list[SensorBuffers] = []
        """Groups that a reset captures."""
        self._first: dict[tuple[SensorBuffers, ...], Program] = {}
        """Programs of the first captures of some sensors together, for the envs of the reset mask."""
        self._together: SampleGroup | None = None
        """Group of sensors without memory that were read before, and are evaluated together."""
        self._has_newcomers = False
        """Whether further sensors were read since that group was created."""
        self.next_due = NEVER
        """Next tick with work."""
        self._refreshed: tuple[int, frozenset[Requirement]] | None = None
        """`Clock.version` and requirements for which the engine's derived state was brought up to date."""

    def arrange(self, members: Iterable[SensorBuffers]) -> None:
        """Sort sensors into groups; their programs are rebuilt on the next run."""
        self._members = list(members)
        self._captured = [each for each in self._members if _is_captured_at_reset(each)]
        self._first = {}
        groups: dict[Any, list[SensorBuffers]] = {}
        for each in self._members:
            if each.plan.is_lazy or each.plan.is_on_access:
                SampleGroup(self, [each])
            else:
                alone = id(each) if each.plan.evaluation[0] == "wanted" else None
                groups.setdefault((each.plan.rate, alone), []).append(each)
        self._groups = [SampleGroup(self, group) for group in groups.values()]
        self._gather()
        self._note_next_due()

    def admit(self, member: SensorBuffers) -> None:
        """Put a new lazy sensor into a separate group until it is read."""
        SampleGroup(self, [member])
        self._members.append(member)

    def start_reading(self, member: SensorBuffers) -> None:
        """Evaluate a lazy sensor together with the others from now on."""
        if member.before_first is not None:
            member.before_first()
            member.before_first = None
            self._has_newcomers |= member.plan.is_pure

    def _gather(self) -> None:
        """Move sensors that were read for the first time into the common group."""
        members = [each for each in self._members if each.plan.is_pure and each.before_first is None]
        self._together = SampleGroup(self, members) if members else None
        self._has_newcomers = False

    def _note_next_due(self) -> None:
        soon = self.clock.tick + 1
        self.next_due = min((soon if group.watches else group.next_due for group in self._groups), default=NEVER)

    def missed_by(self, new_tick: int) -> list[str]:
        """Return the sensors of one group whose readings would be wrong after a jump from the clock's tick to another.

        These are sensors with memory that would miss samples, and sensors with stages that would miss ticks.
        """
        for group in self._groups:
            missed = group.rate.next_after(group.next_due) <= new_tick or group.next_due < new_tick
            if (group.next_due <= new_tick and missed) or group.watches:
                plans = [each.plan for each in group.members]
                if names := [plan.label for plan in plans if plan.watches or (missed and plan.has_memory)]:
                    return names
        return []

    def report(self) -> None:
        """Warn of non-finite engine state found by sensors."""
        self.health.report(self._members)

    # Samples ----------------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring the engine's derived state up to date, once for all sensors that are sampled or read at a tick.

        It is repeated when a sensor that is read for the first time added requirements, whose arrays are still empty.
        """
        current = self.clock.version, self.engine.prepared
        if self._refreshed != current:
            self.engine.refresh()
            self._refreshed = current

    def sample(self) -> None:
        """Sample the sensors due at the clock's tick, and run the stages that run at every tick."""
        self.refresh()
        tick, lag = self.clock.tick, self.engine.lag
        looking = []
        for group in self._groups:
            if group.comes_due(tick):
                group.note_sample(tick, lag)
                group.sampling().run()
            elif group.watches:
                looking.append(group)
        for group in looking:
            group.observing().run()
        self._note_next_due()
        self.health.invalidate(self.engine, self._members)

    def sample_again(self, members: Sequence[SensorBuffers] | None = None) -> None:
        """Evaluate the samples of the clock's tick again for sensors without memory: no new noise, no advance of time.

        Other sensors hold their sample until they are next due, as a device would. Lazy samples are evaluated on read,
        except those that a reset made off the grid.

        Args:
            members: buffers of the sensors; None for all.
        """
        tick, lag, reset_envs = self.clock.tick, self.engine.lag, self.compute.reset_envs
        for each in self._members if members is None else members:
            plan, counter = each.plan, each.counter
            if not counter.is_current or (plan.has_memory and not plan.is_lazy):
                continue
            counter.off_grid += 1
            if plan.is_on_access and each.group is not None:
                each.group.expire()
                continue
            is_on_grid = counter.last_tick == tick
            if is_on_grid:
                counter.last_lag = lag
            if plan.is_pure or (plan.is_lazy and is_on_grid):
                continue
            reset_envs.copy_(torch.ones_like(counter.first_tick) if is_on_grid else counter.first_tick == tick)
            self._capture([each], whole=is_on_grid)
        self.health.invalidate(self.engine, self._members)

    # On read ----------------------------------------------------------------------------------------------------------

    @exclusive
    def evaluate(self, group: SampleGroup, *, is_read: bool = True) -> None:
        """Bring a lazy group up to date; sensors that were read before are evaluated together.

        Args:
            group: group to evaluate.
            is_read: False for an output of a sensor evaluated on access: only the first sample of an episode is taken.

        Raises:
            StaleError: the engine was stepped without the scene.
        """
        engine, clock = self.engine, self.clock
        if engine.owns_time and engine.tick != clock.tick:
            raise StaleError(
                f"the engine is at tick {engine.tick}, the sensors at {clock.tick}: call scene.update() after stepping "
                f"the engine yourself, before reading {group.members[0].plan.label!r}"
            )
        member = group.members[0]
        if isinstance(member.counter, AccessCounter):
            self._access(group, member.counter, is_read)
            return
        self.start_reading(member)
        is_pure, together = member.plan.is_pure, self._together
        if is_pure and self._has_newcomers and (together is None or together.version != clock.version):
            self._gather()
            group = self._together or group
        tick, lag, last = clock.tick, engine.lag, member.counter.last_tick
        is_due = is_pure or group.rate.index(tick) > group.rate.index(last)
        group.version = clock.version
        try:
            if is_due or tick == last:
                self.refresh()
                group.sampling().run()
            if is_due:
                group.note_sample(tick, lag)
            group.read_version = clock.version
        except BaseException:  # incomplete: the next read repeats it
            group.version, group.program = -1, None
            raise
        self.health.invalidate(engine, self._members)
        self.health.report(self._members)

    def _access(self, group: SampleGroup, counter: AccessCounter, is_read: bool) -> None:
        due = counter.due(is_access=is_read)
        if due is not None:
            self.refresh()
            self.compute.reset_envs.copy_(due)
            try:
                self._capture(group.members, whole=due is self.compute.all_envs)
            except BaseException:  # as above
                self._first = {}
                raise
            counter.note_capture(due > 0, self.engine.lag, is_access=is_read)
            self.health.invalidate(self.engine, group.members)
            self.health.report(group.members)
        if is_read:
            group.version = self.clock.version

    def count_lazy_captures(self) -> None:
        """Count the captures so far of sensors evaluated on read, before an episode starts."""
        for group in {id(each.group): each.group for each in self._members if each.plan.is_pure}.values():
            if group is not None:
                group.note_sample(self.clock.tick, self.engine.lag)

    # Reset ------------------------------------------------------------------------------------------------------------

    def reset(self, rows: torch.Tensor | None) -> None:
        """Start an episode of all sensors in the envs of the reset mask, and capture a first sample.

        Args:
            rows: the same envs as selected by the caller; None for all.
        """
        self.health.forget(rows)
        self._begin(self._members)
        self._capture(self._captured, whole=rows is None)

    def reset_one(self, member: SensorBuffers, mask: torch.Tensor) -> None:
        """Restart one sensor in some envs and capture a first sample; other sensors and envs are not affected.

        Args:
            member: buffers of the sensor.
            mask: bool [env].
        """
        clock, lag = self.clock, self.engine.lag
        resets = clock.reset_tick.clone()
        try:  # these envs start at the clock's tick; the episode of the scene continues afterwards
            self.compute.reset_envs.copy_(mask)
            clock.reset_tick.copy_(torch.where(mask, clock.tick, resets))
            clock.set(clock.tick, FIRST, lag)
            self._begin([member])
            if _is_captured_at_reset(member):
                self._capture([member], whole=False)
        finally:
            clock.reset_tick.copy_(resets)
            clock.set(clock.tick, SAMPLE, lag)
        self.health.invalidate(self.engine, [member])

    def _begin(self, members: Iterable[SensorBuffers]) -> None:
        mask = self.compute.reset_envs
        with self.compute.masked(mask):
            for each in members:
                each.begin_episode()
        for each in members:
            each.counter.note_reset(mask)

    def _first_of(self, members: Sequence[SensorBuffers]) -> Program:
        """Return the program of a first capture, for the envs of the reset mask."""
        key = tuple(members)
        if key not in self._first:
            self._first[key] = Program(pipeline_work(members, self.compute.reset_envs))
        return self._first[key]

    def _capture(self, members: Sequence[SensorBuffers], *, whole: bool) -> None:
        """Capture the envs of the reset mask; the rows of others are preserved, because Python hooks see all envs."""
        program = self._first_of(members)
        with ExitStack() as stack:
            for each in () if whole else members:
                if each.plan.needs_snapshot:
                    stack.enter_context(each.keeping_rows())
            program.run()

    def load_kernels(self) -> None:
        """Load all kernels before the first one runs, so that the number to compile is known."""
        self._first_of(self._captured)
        for each in self._members:
            if not _is_captured_at_reset(each):
                pipeline_work([each], self.compute.all_envs)
        self.compute.load()


def _is_captured_at_reset(member: SensorBuffers) -> bool:
    return not (member.plan.is_pure or member.plan.is_on_access)
