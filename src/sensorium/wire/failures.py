"""What the code of users and authors raised: logged at once, counted, and kept until somebody asks."""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from collections import deque
from typing import Generic, TypeVar

Record = TypeVar("Record")


class Failures(Generic[Record]):
    """Records of what was raised: the newest of them are kept, all are counted. Thread-safe.

    Args:
        limit: how many are kept.
    """

    def __init__(self, limit: int = 100) -> None:
        self._kept: deque[Record] = deque(maxlen=limit)
        self._count = 0
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many there were in all, those that are not kept any more included."""
        return self._count

    def __len__(self) -> int:
        return len(self._kept)

    def take(self) -> list[Record]:
        """Return what is kept, oldest first, and forget it; `count` stays."""
        with self._lock:
            kept = list(self._kept)
            self._kept.clear()
        return kept

    def _keep(self, record: Record, logger: logging.Logger, text: str, *values: object) -> Record:
        """Log a record, as an error with this text, and keep it."""
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
    """Return the traceback of an exception as text, also where it cannot show itself."""
    try:
        return "".join(traceback.format_exception(error))
    except Exception as inner:
        return f"{type(error).__name__}, whose text raises {type(inner).__name__}\n"
