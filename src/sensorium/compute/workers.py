"""Threads that share work with the thread that owns the loop: handed over by two locks, which is the cheapest way."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence

Work = Callable[[], object]


class Workers:
    """A number of waiting threads. They end with this object.

    Args:
        count: number of threads.
    """

    def __init__(self, count: int) -> None:
        self._begin(count)

    def _begin(self, count: int) -> None:
        self._process = os.getpid()
        self._workers = [_Worker() for _ in range(count)]
        for worker in self._workers:
            weakref.finalize(self, worker.end)

    def __repr__(self) -> str:
        return f"Workers({len(self._workers)} thread(s))"

    def run(self, pieces: Sequence[Work]) -> None:
        """Do the first piece here and one on each thread, at the same time; an error of a piece is raised here."""
        if self._process != os.getpid():  # a fork has no threads but the one that forked
            self._begin(len(self._workers))
        used = self._workers[: len(pieces) - 1]
        for worker, piece in zip(used, pieces[1:], strict=True):
            worker.start(piece)
        try:
            pieces[0]()
        finally:
            errors = [error for worker in used if (error := worker.wait()) is not None]
        if errors:
            raise errors[0]


class _Worker:
    """One thread that does what it is given, piece by piece."""

    def __init__(self) -> None:
        self._given, self._done = threading.Lock(), threading.Lock()
        self._given.acquire()
        self._done.acquire()
        self._is_busy = False
        self._work: Work | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._loop, name="sensorium", daemon=True).start()

    def start(self, work: Work) -> None:
        """Hand work over."""
        if self._is_busy:  # somebody interrupted the wait for the last piece
            self.wait()
        self._work, self._is_busy = work, True
        self._given.release()

    def wait(self) -> BaseException | None:
        """Wait until the work is done, and return what it raised."""
        self._done.acquire()
        self._is_busy = False
        error, self._error = self._error, None
        return error

    def end(self) -> None:
        """Let the thread end."""
        self._work = None
        self._given.release()

    def _loop(self) -> None:
        while True:
            self._given.acquire()
            if self._work is None:
                return
            try:
                self._work()
            except BaseException as error:  # it is raised where the work was given
                self._error = error
            self._done.release()
