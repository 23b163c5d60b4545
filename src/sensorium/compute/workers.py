"""Threads that share the work of the thread that owns the loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

Work = Callable[[], object]


class LaunchWorkers:
    """A number of threads, which start on first use and end with this object.

    Args:
        count: number of threads.
    """

    def __init__(self, count: int) -> None:
        self._count, self._process = count, 0

    def run(self, pieces: Sequence[Work]) -> None:
        """Run the first piece here and each other piece on a thread, in parallel; raise the first error of a piece."""
        if self._process != os.getpid():  # a fork has no other threads
            self._pool, self._process = ThreadPoolExecutor(self._count, "sensorium"), os.getpid()
        try:
            futures = list(map(self._pool.submit, pieces[1:]))
            pieces[0]()
            wait(futures)
        except BaseException:  # also an interrupt: the memory of the pieces may be freed next
            self._process = 0
            self._pool.shutdown()
            raise
        for future in futures:
            future.result()
