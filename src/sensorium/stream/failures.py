"""Exceptions in the code of streamed sensors: they end the sensor, or one of its messages, and nothing else."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from sensorium.wire.failures import Failures, trace_of

LOG = logging.getLogger("sensorium.stream")
"""Where what concerns streamed sensors is logged."""


@dataclass(frozen=True, slots=True)
class SensorFailure:
    """An exception in the code of a streamed sensor.

    Attributes:
        sensor: name of the sensor.
        where: what failed, e.g. ``"tick"``.
        frame: frame it was at; -1 outside frames.
        error: the exception, without the traceback, which would keep what the code held alive.
        trace: the traceback as text.
        wall_time: seconds since 1970.
    """

    sensor: str
    where: str
    frame: int
    error: BaseException
    trace: str
    wall_time: float

    def __str__(self) -> str:
        return f"sensor {self.sensor!r}: {self.where} raised {type(self.error).__name__}: {self.error}"


class FailureLog(Failures[SensorFailure]):
    """The failures of all streamed sensors of a server: logged, counted, and the newest of them kept. Thread-safe."""

    def add(self, sensor: str, where: str, frame: int, error: BaseException) -> SensorFailure:
        """Keep an exception, and log it with the sensor's name and the traceback.

        Args:
            sensor: name of the sensor.
            where: what failed.
            frame: frame it was at; -1 outside frames.
            error: the exception.
        """
        trace = trace_of(error)
        failure = SensorFailure(sensor, where, frame, error.with_traceback(None), trace, time.time())
        return self._keep(failure, LOG, "%s\n%s", failure, trace)
