"""Sensors that are evaluated when they are read; those that were ever read go together from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sensorium.compute import Clock, Compute, Program, Rate
from sensorium.engines.base import Engine
from sensorium.scene.schedule import Group
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.core.captures import Beat


class OnRead:
    """The lazy sensors of a scene.

    Args:
        engine: the engine, which is brought up to date for them.
        compute: where their work runs.
        clock: the scene's clock.
    """

    def __init__(self, engine: Engine, compute: Compute, clock: Clock) -> None:
        self._engine, self._compute, self._clock = engine, compute, clock
        self._together = Group(Rate(1, 1), [])
        self._slow: dict[str, Group] = {}

    def __contains__(self, sensor: Sensor[Any, Any]) -> bool:
        """Whether a sensor is evaluated with the others."""
        return sensor in self._together.sensors

    def arrange(self, stays: Callable[[Sensor[Any, Any]], bool]) -> None:
        """Keep some of the sensors; their programs are built anew when they are first run."""
        for group in (self._together, *self._slow.values()):
            group.forget()
        self._together = Group(Rate(1, 1), [sensor for sensor in self._together.sensors if stays(sensor)])
        self._slow = {name: group for name, group in self._slow.items() if stays(group.sensors[0])}

    def add(self, sensor: Sensor[Any, Any]) -> None:
        """Evaluate a sensor with the others from now on."""
        self._together.forget()
        self._together = Group(Rate(1, 1), [*self._together.sensors, sensor])

    def evaluate(self, sensor: Sensor[Any, Any]) -> None:
        """Bring a sensor up to date, and with it all others; one of a slower rate goes by itself."""
        engine, clock = self._engine, self._clock
        together = self._together
        if together.program is not None and sensor.captures.is_on(together.beat):
            beat = together.beat
            assert beat is not None  # nothing new: all are at one point, and move on together
            try:
                beat.note_look(clock.tick, engine.lag, clock.skipped)
                beat.evaluated = clock.version
                engine.refresh()
                together.program.run()
            except BaseException:
                beat.evaluated = -1  # there is no memory that could be half done: the next read does it
                raise
            return
        if sensor.is_pure:
            if sensor not in self:
                self.add(sensor)
            group = whole = self._together
        else:
            group = whole = self._slow.setdefault(sensor.name, Group(sensor.rate, [sensor]))
        if group.program is None:  # what was evaluated at this tick need not be prepared anew for a newcomer
            pending = [each for each in group.sensors if each.captures.evaluated != clock.version]
            group = group if len(pending) == len(group.sensors) else Group(group.rate, pending)
        points = [each.captures.point() for each in group.sensors]
        try:
            wanted = [each.captures.note_look(clock.tick, engine.lag) for each in group.sensors]
            for each in group.sensors:
                each.captures.evaluated = clock.version
            if whole is self._together:
                whole.beat = Beat.of(each.captures for each in whole.sensors)
            if any(wanted):
                engine.refresh()
                if group.program is None:
                    group.program = Program([(0, segment) for segment in group.work(self._compute, clock)])
                group.program.run()
        except BaseException:
            for each, point in zip(group.sensors, points, strict=True):
                each.captures.go_back(point)
            group.forget()
            raise
        if group is not whole:
            group.forget()


__all__ = ["OnRead"]
