"""Records of exceptions raised in code of users and authors: logged at once, counted, and kept until they are read."""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from collections import deque
from typing import Generic, TypeVar

Record = TypeVar("Record")


class Failures(Generic[Record]):
    """Records of exceptions: all are counted, and the newest are kept. Thread-safe.

    Args:
        limit: number of records kept.
    """

    def __init__(self, limit: int = 100) -> None:
        self._kept: deque[Record] = deque(maxlen=limit)
        self._count = 0
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """Total number of records, including those that are no longer kept."""
        return self._count

    def __len__(self) -> int:
        return len(self._kept)

    def take(self) -> list[Record]:
        """Return the kept records, oldest first, and clear them; `count` is unchanged."""
        with self._lock:
            kept = list(self._kept)
            self._kept.clear()
        return kept

    def _keep(self, record: Record, logger: logging.Logger, text: str, *values: object) -> Record:
        """Log a record as an error with this text, and keep it."""
        try:
            logger.error(text, *values)
        except Exception:  # a broken logging handler of the user: the record is still kept
            with contextlib.suppress(Exception):
                traceback.print_exc()
        with self._lock:
            self._kept.append(record)
            self._count += 1
        return record


def trace_of(error: BaseException) -> str:
    """Return the traceback of an exception as text, even if the exception cannot be formatted."""
    try:
        return "".join(traceback.format_exception(error))
    except Exception as inner:
        return f"{type(error).__name__}, whose text raises {type(inner).__name__}\n"
