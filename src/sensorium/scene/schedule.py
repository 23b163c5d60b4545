"""When sensors are sampled: those of one rate together, in one program, at the ticks of their grid.

Which tick and which sensors is known on the host, without waiting for a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from sensorium.compute import Clock, Compute, Program, Rate, Segment
from sensorium.compute.graph import launching
from sensorium.measurement.chain import EVERYTHING, ChainTable
from sensorium.measurement.transport import Ring
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.core.captures import Beat

NEVER = 2**62
"""A tick that does not come."""


@dataclass(slots=True)
class Group:
    """Sensors that are evaluated together."""

    rate: Rate
    sensors: list[Sensor[Any, Any]]
    next_due: int = 0
    program: Program | None = field(default=None, repr=False)
    """Their own program, where they are evaluated on read."""
    table: ChainTable | None = field(default=None, repr=False)
    """What their chain launch works on."""
    beat: Beat | None = field(default=None, repr=False)
    """Their common count of captures, once they are in step."""
    rings: list[Ring] = field(init=False, repr=False)
    """The rings of those that have one."""

    def __post_init__(self) -> None:
        self.rings = [sensor.line.ring for sensor in self.sensors if sensor.line.ring is not None]

    def note_sample(self, tick: int, lag: int) -> None:
        """Note a sample of all of them, and move their rings on."""
        for ring in self.rings:
            ring.advance()
        if self.beat is not None and self.beat.is_whole:
            self.beat.note_sample(tick, lag)
            return
        for sensor in self.sensors:
            sensor.captures.note_sample(tick, lag)
        self.beat = Beat.of(sensor.captures for sensor in self.sensors)

    @property
    def watches(self) -> bool:
        """Whether one of these sensors looks at the ticks between its samples, which may be left out where unwanted."""
        may_look = not self.rate.every_tick or self.sensors[0].evaluates == "wanted"
        return may_look and any(sensor.line.watches for sensor in self.sensors)

    def work(self, compute: Compute, clock: Clock) -> list[Segment]:
        """Return the work of one sample of all of them."""
        segments, self.table = work(compute, clock, self.sensors, compute.all_envs)
        return segments

    def forget(self) -> None:
        """Drop the program; its table need not follow the knobs any more."""
        for sensor in self.sensors:
            sensor.line.tables = [table for table in sensor.line.tables if table is not self.table]
        self.program = self.table = None


@launching
def work(
    compute: Compute, clock: Clock, sensors: Sequence[Sensor[Any, Any]], mask: torch.Tensor
) -> tuple[list[Segment], ChainTable]:
    """Return the work of one sample of some sensors in order, with one launch of the chain for all of them.

    Args:
        compute: where it runs.
        clock: the scene's clock.
        sensors: the sensors.
        mask: the envs it is for, `compute.all_envs` or `compute.reset_envs`.

    Returns:
        The segments, and the table of the chain; it follows the knobs as long as the sensors' lines list it.
    """
    segments = [segment for sensor in sensors for segment in sensor.line.before_chain(mask)]
    fused = [sensor for sensor in sensors if sensor.line.is_fused]
    table = ChainTable(compute, clock, [chain for sensor in fused for chain in sensor.line.chain_fields()])
    if table.count:
        segments.append(compute.record(lambda: table.launch(EVERYTHING), mask))
        for sensor in fused:
            sensor.line.tables.append(table)
    for sensor in sensors:
        if sensor.poses is not None:
            segments.append(compute.record(sensor.poses.keep, mask, owner=sensor.line))
    segments += [segment for sensor in sensors for segment in sensor.line.after_chain(mask)]
    return segments, table


class Schedule:
    """The sensors that are sampled when they are due, in rate groups.

    Args:
        compute: where their work runs.
        clock: the scene's clock.
    """

    def __init__(self, compute: Compute, clock: Clock) -> None:
        self._compute, self._clock = compute, clock
        self._groups: list[Group] = []
        self._program: Program | None = None
        self.next_due = NEVER
        """The next tick at which there is work."""

    def __repr__(self) -> str:
        return f"Schedule({self._groups!r}, next_due={self.next_due})"

    def arrange(self, sensors: Iterable[Sensor[Any, Any]]) -> None:
        """Sort sensors into rate groups; their program is built anew when it is first run."""
        for group in self._groups:
            group.forget()
        self._program = None
        groups: dict[Any, list[Sensor[Any, Any]]] = {}
        for sensor in sensors:
            evaluation = sensor._evaluation()[0]
            if evaluation == "lazy":
                continue
            key = (sensor.rate, sensor.name if evaluation == "wanted" else None)
            groups.setdefault(key, []).append(sensor)
        self._groups = [Group(members[0].rate, members) for members in groups.values()]
        for group in self._groups:
            group.next_due = group.rate.next_after(self._clock.tick)
        self._note_next_due()

    def _note_next_due(self) -> None:
        soon = self._clock.tick + 1
        self.next_due = min((soon if group.watches else group.next_due for group in self._groups), default=NEVER)

    def missed_by(self, new_tick: int) -> list[str]:
        """Return the sensors of one group whose readings would be wrong after a jump from the clock's tick to another.

        These are sensors with memory that would lose samples, and stages that would lose ticks they look at.
        """
        for group in self._groups:
            missed = group.rate.next_after(group.next_due) <= new_tick or group.next_due < new_tick
            if (group.next_due <= new_tick and missed) or group.watches:
                names = [
                    sensor.name
                    for sensor in group.sensors
                    if sensor.line.watches or (missed and sensor.line.has_memory)
                ]
                if names:
                    return names
        return []

    def sample(self, lag: int) -> None:
        """Sample what became due with the clock's tick, and let the stages that look at every tick look."""
        tick = self._clock.tick
        due = [False] * (2 * len(self._groups))
        for k, group in enumerate(self._groups):
            if group.next_due > tick:
                due[len(self._groups) + k] = group.watches
                continue
            group.next_due = group.rate.next_after(tick)
            first = group.sensors[0]
            if first.evaluates == "wanted":
                if not (first.wanted or first.listeners):
                    due[len(self._groups) + k] = group.watches
                    continue
                first.wanted = False
            due[k] = True
            group.note_sample(tick, lag)
        self._scheduled().run(due)
        self._note_next_due()

    def sample_again(self) -> None:
        """Evaluate the current samples anew, where they are of the clock's tick."""
        tick = self._clock.tick
        due = [
            any(sensor.captures.samples and sensor.captures.last_tick == tick for sensor in group.sensors)
            for group in self._groups
        ]
        self._scheduled().run([*due, *[False] * len(due)])

    def _scheduled(self) -> Program:
        """Return the program of all scheduled sensors, by rate group; then what they do at ticks between samples."""
        if self._program is None:
            groups = list(enumerate(self._groups))
            samples = [(k, segment) for k, group in groups for segment in group.work(self._compute, self._clock)]
            looks = [
                (len(groups) + k, segment)
                for k, group in groups
                if group.watches
                for sensor in group.sensors
                if sensor.line.watches
                for segment in sensor.line.observation(self._compute.all_envs)
            ]
            self._program = Program([*samples, *looks])
        return self._program


__all__ = ["Group", "Schedule", "work"]
