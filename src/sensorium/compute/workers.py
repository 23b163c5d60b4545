"""Threads that share work with the thread that owns the loop: one queue for work, one for results."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue

Work = Callable[[], object]


class Workers:
    """A number of waiting threads. They end with this object.

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
            end.atexit = False  # a thread that wakes while Python ends may take the process down
        self._is_whole = True

    def _renew(self) -> None:
        """Let go of all threads, once they have done what they are at, and take new ones."""
        for worker, end in zip(self._workers, self._ends, strict=True):
            worker.end()
            worker.thread.join()
            end.detach()
        self._begin()

    def run(self, pieces: Sequence[Work]) -> None:
        """Do the first piece here and one on each thread, at the same time; an error of a piece is raised here."""
        if not self._is_whole or self._process != os.getpid():  # interrupted, or a fork: it has no other threads
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
            if not self._is_whole:  # interrupted while they work: what they work on may be gone next
                self._renew()
        if errors:
            raise errors[0]


class _Worker:
    """One thread that does what it is given, piece by piece."""

    def __init__(self) -> None:
        self._given: SimpleQueue[Work | None] = SimpleQueue()
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._loop, name="sensorium", daemon=True)
        self.thread.start()

    def start(self, work: Work) -> None:
        """Hand work over."""
        self._given.put(work)

    def wait(self) -> BaseException | None:
        """Wait until the work is done, and return what it raised."""
        return self._done.get()

    def end(self) -> None:
        """Let the thread end, once it has done what it was given; again does nothing."""
        self._given.put(None)

    def _loop(self) -> None:
        while (work := self._given.get()) is not None:
            try:
                work()
            except BaseException as error:  # it is raised where the work was given
                self._done.put(error)
            else:
                self._done.put(None)
