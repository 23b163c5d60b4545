"""Where the time of a step goes: physics, and the kernels and hooks of each sensor."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from sensorium.compute import Segment

if TYPE_CHECKING:
    from sensorium.compute.program import Call
    from sensorium.scene.scene import Scene

WARM_UP = 8
"""Steps before the measurement, in which kernels load."""
BAR = 40
"""Characters of the bar of a whole step."""
PHYSICS, STATE, HOST = "physics", "state of the engine", "host"
"""Parts that belong to no sensor: steps of the engine, its derived state, and Python between launches."""


@dataclass(frozen=True)
class Profile:
    """Mean times of a step.

    Attributes:
        steps: number of measured steps.
        seconds: whole step, with a reading of every sensor, s.
        parts: (sensor, part) -> s. The sensor is empty for the parts `PHYSICS`, `STATE` and `HOST`. Several sensors
            that share a launch are named together. The part of a sensor is a kernel, or a Python hook in parentheses.
    """

    steps: int
    seconds: float
    parts: dict[tuple[str, str], float]

    def __rich__(self) -> Table:
        """Return a table with a bar for each part, in the order of time."""
        table = Table(
            "sensor", "part", title=f"a step with readings: {self.seconds * 1e6:,.0f} us", title_justify="left"
        )
        for heading in ("us", "share"):
            table.add_column(heading, justify="right")
        table.add_column("")
        for (sensor, part), seconds in sorted(self.parts.items(), key=lambda item: -item[1]):
            share = seconds / self.seconds
            table.add_row(sensor, part, f"{seconds * 1e6:,.1f}", f"{share:.1%}", "█" * round(BAR * share))
        return table


def profile(scene: Scene, steps: int, ctrl: Any, substeps: int) -> Profile:
    """Measure steps of a scene; see `Scene.profile`."""
    spent: defaultdict[tuple[str, str], float] = defaultdict(float)

    def step() -> None:
        scene.step(ctrl, substeps)
        for sensor in scene.sensors_in_use.values():
            _ = sensor.data

    for _ in range(WARM_UP):
        step()
    with _timed(scene, spent):
        step()  # builds single launches
        spent.clear()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        whole = time.perf_counter() - start
    spent["", HOST] = whole - sum(spent.values())
    return Profile(steps, whole / steps, {key: seconds / steps for key, seconds in spent.items()})


@contextmanager
def _timed(scene: Scene, spent: defaultdict[tuple[str, str], float]) -> Iterator[None]:
    """Add the duration of each launch, hook and call of the engine to `spent`, by sensor and part."""
    engine, schedule = scene.engine, scene._schedule
    groups = [*schedule._groups, schedule._together, *(member.group for member in schedule._members)]
    programs = [program for group in groups if group for program in (group.program, group._observing) if program]
    own = {name: value for name, value in vars(engine).items() if name in ("step", "refresh")}
    plain = {id(program): (program, program._segments) for program in programs}

    def wait() -> None:
        if not scene.compute.is_cpu:
            import torch

            torch.cuda.synchronize(scene.compute.device)

    def clocked(key: tuple[str, str], call: Callable[..., object]) -> Callable[..., object]:
        def run(*args: Any, **options: Any) -> object:
            start, inner = time.perf_counter(), sum(spent.values())
            try:
                return call(*args, **options)
            finally:
                wait()
                # without the parts inside, such as state that a step brings up to date
                spent[key] += time.perf_counter() - start - (sum(spent.values()) - inner)

        return run

    try:
        for program, segments in plain.values():
            program._segments = [_Timed(segment, clocked) for segment in segments]  # type: ignore[misc]
        for name, part in (("step", PHYSICS), ("refresh", STATE)):
            setattr(engine, name, clocked(("", part), getattr(engine, name)))
        yield
    finally:
        for name in ("step", "refresh"):
            vars(engine).pop(name, None)
        vars(engine).update(own)
        for program, segments in plain.values():
            program._segments = segments


class _Timed:
    """A segment or call of a program that runs its launches one by one, on one core."""

    def __init__(self, segment: Segment | Call, clocked: Callable[..., Callable[..., object]]) -> None:
        self._segment, self._clocked = segment, clocked
        self._runs: list[Callable[..., object]] = []

    def run(self) -> None:
        """Run all launches, or the hook."""
        if not self._runs:
            if isinstance(self._segment, Segment):
                for owners, kernels, launch in self._segment.single_launches():
                    names = ", ".join(sorted(owner.plan.label for owner in owners)) or "all"
                    self._runs.append(self._clocked((names, kernels), launch))
            else:
                hook = getattr(self._segment.hook, "func", self._segment.hook)
                name = getattr(hook, "__qualname__", type(hook).__name__)
                self._runs.append(self._clocked(("all", f"({name})"), self._segment.run))
        for run in self._runs:
            run()
