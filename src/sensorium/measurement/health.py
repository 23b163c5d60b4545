"""Reports of non-finite engine state, once per sensor and env, with body and tick. Its samples are invalid."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
import torch

from sensorium.compute import Clock, Compute
from sensorium.compute.copies import AsyncCopy
from sensorium.engines.base import Engine
from sensorium.errors import NonFiniteStateWarning
from sensorium.measurement.buffers import SensorBuffers
from sensorium.measurement.work import NAN_VALUE


class StateWatch:
    """Warns where kernels flagged NaN or infinity in the engine's state.

    On CUDA the host does not wait for the flags, so the warning is late by some control steps.

    Args:
        compute: device of the flags.
        clock: clock with the flag that shows whether any sensor found non-finite state.
    """

    def __init__(self, compute: Compute, clock: Clock) -> None:
        self._compute, self._clock = compute, clock
        self._bad = AsyncCopy(compute, clock.bad)
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
        if not self._compute.is_cpu:  # once per control step is sufficient
            if self._checked == clock.control_tick:
                return
            self._checked = clock.control_tick
        if self._found:
            self._check()
        elif self._take_bad():
            self._found = [(sensor, AsyncCopy(self._compute, sensor.bad)) for sensor in sensors]
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
