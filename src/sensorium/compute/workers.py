"""Threads that share the work of the thread that owns the loop: one queue for work and one for results each."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue

Work = Callable[[], object]


class LaunchWorkers:
    """A number of waiting threads, which end with this object.

    Args:
        count: number of threads.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._workers = [_Worker() for _ in range(self._count)]
        self._ends = [weakref.finalize(self, worker.end) for worker in self._workers]
        for end in self._ends:
            end.atexit = False  # a thread that wakes during interpreter shutdown may crash the process
        self._is_whole = True

    def _renew(self) -> None:
        """End all threads after their current work, and start new ones."""
        for worker, end in zip(self._workers, self._ends, strict=True):
            worker.end()
            worker.thread.join()
            end.detach()
        self._begin()

    def run(self, pieces: Sequence[Work]) -> None:
        """Run the first piece here and each other piece on a thread, in parallel; raise the first error of a piece."""
        if not self._is_whole or self._process != os.getpid():  # interrupted, or forked: a fork has no other threads
            self._renew()
        self._is_whole = False
        used = self._workers[: len(pieces) - 1]
        try:
            for worker, piece in zip(used, pieces[1:], strict=True):
                worker.start(piece)
            try:
                pieces[0]()
            finally:
                errors = [error for worker in used if (error := worker.wait()) is not None]
                self._is_whole = True
        finally:
            if not self._is_whole:  # interrupted during their work, whose memory may be freed next
                self._renew()
        if errors:
            raise errors[0]


class _Worker:
    """A thread that runs pieces of work one after another."""

    def __init__(self) -> None:
        self._given: SimpleQueue[Work | None] = SimpleQueue()
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._loop, name="sensorium", daemon=True)
        self.thread.start()

    def start(self, work: Work) -> None:
        """Pass a piece of work to the thread."""
        self._given.put(work)

    def wait(self) -> BaseException | None:
        """Wait until the work is done, and return its exception, or None."""
        return self._done.get()

    def end(self) -> None:
        """End the thread after its current work; repeated calls have no effect."""
        self._given.put(None)

    def _loop(self) -> None:
        while (work := self._given.get()) is not None:
            try:
                work()
            except BaseException as error:  # raised again in the thread that passed the work
                self._done.put(error)
            else:
                self._done.put(None)
