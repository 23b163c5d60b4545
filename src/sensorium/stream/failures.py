"""Exceptions in the code of streamed sensors: they end the sensor, or affect one message, but nothing else."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from sensorium.wire.failures import Failures, trace_of

LOG = logging.getLogger("sensorium.stream")
"""Logger for streamed sensors."""


@dataclass(frozen=True, slots=True)
class SensorFailure:
    """Exception in the code of a streamed sensor.

    Attributes:
        sensor: name of the sensor.
        where: failed operation, e.g. ``"tick"``.
        frame: frame of the failure; -1 outside frames.
        error: the exception, without its traceback, which would keep local objects alive.
        trace: the traceback as text.
        wall_time: s since 1970.
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
    """Failures of all streamed sensors of a server: logged and counted; the newest are kept. Thread-safe."""

    def add(self, sensor: str, where: str, frame: int, error: BaseException) -> SensorFailure:
        """Keep an exception, and log it with the sensor's name and the traceback.

        Args:
            sensor: name of the sensor.
            where: failed operation.
            frame: frame of the failure; -1 outside frames.
            error: the exception.
        """
        trace = trace_of(error)
        failure = SensorFailure(sensor, where, frame, error.with_traceback(None), trace, time.time())
        return self._keep(failure, LOG, "%s\n%s", failure, trace)
