"""What is new to one output: every recorder, server or viewer has its own count, so that none misses another's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from sensorium.sensors.core.base import Sensor


class News:
    """What one output has not yet taken of a scene's sensors; `Scene.news` makes one.

    At first everything is news. ``scene.publish(names, since=news)`` takes what is new and notes that it was taken.

    Args:
        in_use: returns the sensors that `Scene.publish` takes by default.
        sensor: returns a sensor by name.
    """

    def __init__(self, in_use: Callable[[], list[str]], sensor: Callable[[str], Sensor[Any, Any]]) -> None:
        self._in_use, self._sensor = in_use, sensor
        self._taken: WeakKeyDictionary[Sensor[Any, Any], tuple[int, int, int]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"News({len(self._taken)} sensor(s) taken before)"

    def of(self, names: Iterable[str] | None = None, *, truth: bool = True) -> list[str]:
        """Return the sensors that have something new, without copying or evaluating anything.

        New is a sample that arrived, and, with `truth`, one that was captured: they differ where a sensor has a delay.
        So is a capture that was made anew, at a reset or after an edit. On CUDA the host does not look at the device:
        there a sample may be said to have arrived at each tick at which it can.

        Args:
            names: sensors to ask about, as for `Scene.publish`. None takes those that `Scene.publish` would.
            truth: whether a capture that has not arrived is news as well: the ground truth has it at once.
        """
        wanted = self._in_use() if names is None else names
        return [name for name in wanted if self._is_new(self._sensor(name), truth)]

    def note(self, sensor: Sensor[Any, Any]) -> None:
        """Note that what a sensor shows now was taken."""
        self._taken[sensor] = (*_captures(sensor), sensor.clock.tick)

    def skip(self, sensor: Sensor[Any, Any], tick: int) -> None:
        """Note that what came up to a tick was taken: what came after it is still news.

        For an output that begins to look at a sensor, and wants nothing older.
        """
        captures, off_grid = _captures(sensor)
        if sensor.is_lazy:
            captures = sensor.rate.index(min(tick, sensor.clock.tick))
        elif sensor.buffers.counter.last_tick > tick:
            captures -= 1
        if sensor.buffers.counter.first_at > tick:
            off_grid -= 1
        self._taken[sensor] = captures, off_grid, tick

    def _is_new(self, sensor: Sensor[Any, Any], truth: bool) -> bool:
        taken = self._taken.get(sensor)
        if taken is None:
            return True
        captures, off_grid = _captures(sensor)
        ring = sensor.buffers.ring
        is_delayed = ring is not None and ring.has_delay
        if off_grid != taken[1] or (captures != taken[0] and (truth or not is_delayed)):
            return True
        return is_delayed and sensor.has_arrived(taken[2])


def _captures(sensor: Sensor[Any, Any]) -> tuple[int, int]:
    """Return how many captures a sensor has had on its grid and off it; a lazy one has those that it could have."""
    captures = sensor.buffers.counter
    return sensor.rate.index(sensor.clock.tick) if sensor.is_lazy else captures.samples, captures.off_grid


__all__ = ["News"]
