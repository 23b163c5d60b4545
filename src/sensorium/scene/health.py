"""Non-finite engine state: said once per sensor and env, with the body and the tick."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch

from sensorium.compute import Clock, Compute
from sensorium.errors import NonFiniteStateWarning
from sensorium.sensors.base import Sensor


class StateWatch:
    """Warns where kernels flagged NaN or infinity in the engine's state.

    Args:
        compute: where the flags live.
        clock: whose flag says that there is something to look for.
    """

    def __init__(self, compute: Compute, clock: Clock) -> None:
        self._compute, self._clock = compute, clock
        self._checked: int | None = None
        self._reported: set[tuple[str, int]] = set()

    def forget(self, rows: torch.Tensor | None) -> None:
        """Report the envs of a reset anew; None means all."""
        for key in [key for key in self._reported if rows is None or key[1] in rows.tolist()]:
            self._reported.discard(key)

    def report(self, sensors: Iterable[Sensor[Any, Any]]) -> None:
        """Name env, body and tick of non-finite engine state, once per sensor and env until its next reset."""
        clock = self._clock
        if not self._compute.is_cpu:  # reading the flag makes the host wait: at most once a control step
            if self._checked == clock.control_tick:
                return
            self._checked = clock.control_tick
        if not clock.take_bad():
            return
        passed = True
        for sensor in sensors:
            flags = (sensor.line.bad == 1).nonzero().tolist()
            passed = passed and not flags
            for env, mount in flags:
                if (sensor.name, env) in self._reported:
                    continue
                self._reported.add((sensor.name, env))
                body = sensor.body_at_fault(env, mount)
                warnings.warn(
                    f"sensor {sensor.name!r}: the engine's state is not finite in env {env}, body {body!r}, at tick "
                    f"{clock.tick}; its samples are marked invalid until the state is finite again (reset env {env})",
                    NonFiniteStateWarning,
                    stacklevel=4,
                )
        if passed:
            warnings.warn(
                f"the engine's state was not finite for a moment between the control steps at ticks "
                f"{clock.control_tick} and {clock.tick}; the samples of that moment are marked invalid",
                NonFiniteStateWarning,
                stacklevel=4,
            )


__all__ = ["StateWatch"]
