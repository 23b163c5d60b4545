"""Records of exceptions raised in code of users and authors: logged at once, counted, and kept until they are read."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import traceback
from collections import deque
from dataclasses import dataclass

from sensorium.errors import StreamError


@dataclass(frozen=True, slots=True)
class Failure:
    """Exception raised by a listener, or in the code of a streamed sensor.

    Attributes:
        sensor: name of the sensor.
        where: what raised it: the listener as `repr` shows it, or an operation of the sensor, e.g. ``"tick"``; empty if
            data could not be read.
        error: the exception. The variables of its frames are cleared so that it keeps no data alive.
        traceback: full traceback as text.
        time: wall clock time, seconds since 1970.
        frame: frame of the failure; -1 outside frames.
    """

    sensor: str
    where: str
    error: BaseException
    traceback: str
    time: float
    frame: int = -1

    def __str__(self) -> str:
        return f"{self.title}: {self.error}"

    @property
    def title(self) -> str:
        """Sensor, place and type of the exception, without its text."""
        what = f"sensor {self.sensor!r}: {self.where} raised" if self.where else f"cannot read data of {self.sensor!r}:"
        return f"{what} {type(self.error).__name__}"


class Failures:
    """Log of exceptions: all are counted, and the first and the newest are kept. Thread-safe.

    Args:
        logger: logger for each exception.
        limit: number of records kept.
    """

    def __init__(self, logger: logging.Logger, limit: int = 100) -> None:
        self._logger = logger
        self._kept: deque[Failure] = deque(maxlen=limit)
        self._first: Failure | None = None
        self._count = self._taken = 0  # all, and those that were taken, or could have been
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """Total number of records, including those that are no longer kept."""
        return self._count

    def add(self, sensor: str, where: str, error: BaseException, frame: int = -1) -> Failure:
        """Log an exception as an error, and keep it; see `Failure`."""
        record = Failure(sensor, where, error, _trace_of(error), time.time(), frame)
        _clear_frames(error)
        try:
            self._logger.error("%s\n%s", record.title, record.traceback)
        except Exception:  # a broken logging handler of the user: the record is still kept
            with contextlib.suppress(Exception):
                traceback.print_exc()
        with self._lock:
            self._kept.append(record)
            self._first = self._first or record
            self._count += 1
        return record

    def take(self) -> list[Failure]:
        """Return the kept records, oldest first, and forget them; `count` is unchanged."""
        return self._take()[0]

    def check(self) -> None:
        """Raise the first error that was not taken, if any, and forget all errors.

        Raises:
            StreamError: caused by the first error; the message states how many there were.
        """
        _, first, count = self._take()
        if first is not None:
            more = f" (and {count - 1} more)" if count > 1 else ""
            raise StreamError(f"{first}{more}") from first.error

    def _take(self) -> tuple[list[Failure], Failure | None, int]:
        """Return the newest errors, the first one and the number of errors since the last call, and forget them."""
        with self._lock:
            found = (list(self._kept), self._first, self._count - self._taken)
            self._first, self._taken = None, self._count
            self._kept.clear()
        return found


def _trace_of(error: BaseException) -> str:
    """Return the traceback of an exception as text, even if the exception cannot be formatted."""
    try:
        return "".join(traceback.format_exception(error))
    except Exception as inner:
        return f"{type(error).__name__}, whose text raises {type(inner).__name__}\n"


def _clear_frames(error: BaseException) -> None:
    """Release the variables of all frames of an exception and of the exceptions that caused it."""
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        each = todo.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        todo += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            todo += each.exceptions
        traceback.clear_frames(each.__traceback__)
