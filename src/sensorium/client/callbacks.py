"""Threads that call listeners: each listener has a dedicated thread, which calls it with one item at a time."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sensorium.errors import StreamError, shown
from sensorium.wire.failures import Failures, trace_of

LOGGER = logging.getLogger("sensorium.client")
"""Logger for exceptions raised by listeners."""

LONGEST = 300
"""Largest number of characters shown of a listener."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ListenerError:
    """Exception raised by one call of a listener."""

    sensor: str
    """Name of the sensor whose listener raised the exception."""
    callback: str
    """The listener, as `repr` shows it; empty if no listener was called because the data could not be read."""
    error: BaseException
    """The exception. The variables of its frames are cleared so that it keeps no data alive."""
    traceback: str
    """Full traceback as text."""
    time: float
    """Wall clock time, seconds since 1970."""

    def __str__(self) -> str:
        what = f"{type(self.error).__name__}: {self.error}"
        if not self.callback:
            return f"cannot read data of {self.sensor!r}: {what}"
        return f"a listener of {self.sensor!r} raised {what} ({self.callback})"


class ErrorLog(Failures[ListenerError]):
    """Log of exceptions raised by listeners.

    Each exception is logged immediately, counted, and kept until a caller takes it. The log keeps the first and the
    newest exceptions.
    """

    _first: ListenerError | None = None
    _taken = 0  # how many of all errors were taken, or could have been

    def report(self, sensor: str, callback: object, error: BaseException) -> ListenerError:
        """Log an exception and keep it.

        Args:
            sensor: name of the sensor whose listener raised it.
            callback: the listener; None if reading a message raised it.
            error: the exception.
        """
        text, function = trace_of(error), getattr(callback, "__wrapped__", callback)
        listener = "" if function is None else shown(function, LONGEST)
        record = ListenerError(sensor, listener, error, text, time.time())
        _clear_frames(error)
        with self._lock:
            self._first = self._first or record
        what = f"cannot read data of {sensor!r}"
        if listener:
            what = f"a listener of {sensor!r} raised {type(error).__name__} ({listener})"
        return self._keep(record, LOGGER, "%s\n%s", what, text)

    def take(self) -> list[ListenerError]:
        """Return the newest errors, oldest first, and forget them; `count` is unchanged."""
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

    def _take(self) -> tuple[list[ListenerError], ListenerError | None, int]:
        """Return the newest errors, the first one and the number of errors since the last call, and forget them."""
        with self._lock:
            found = (list(self._kept), self._first, self._count - self._taken)
            self._first, self._taken = None, self._count
            self._kept.clear()
        return found


PATIENCE = 5.0
"""Default longest wait for a running call when its listener stops, s."""

_listener = threading.local()
"""Thread-local storage; `is_running` is set on the threads of listeners."""


class Callbacks:
    """State shared by all queues of one client."""

    def __init__(self) -> None:
        self.errors = ErrorLog()
        """Exceptions raised by listeners."""
        self.patience = PATIENCE
        """Longest wait for a running call when its listener stops, s; a call that blocks longer is abandoned."""


class CallbackQueue(Generic[Item]):
    """Queue whose items are passed to a function one at a time, in order, on a dedicated thread.

    The thread starts with the first item and ends with `close`. Exceptions raised by the function are reported, and the
    next item follows.

    Args:
        name: name of the sensor, for reports and the thread.
        handle: function called with each item.
        shared: state shared by all queues of the client.
    """

    def __init__(self, name: str, handle: Callable[[Item], object], shared: Callbacks) -> None:
        self.name = name
        self._handle, self._shared = handle, shared
        self.items: deque[Item] = deque()
        """Pending items. Any change other than by `put` requires `lock`."""
        self.lock = threading.RLock()  # re-entrant: a garbage collection inside may stop listeners in this very thread
        self._changed = threading.Condition(self.lock)
        self._thread: threading.Thread | None = None
        self._running = False
        self._calls = 0
        self._last: Callable[[], object] | None = None
        self.closed = False
        """Whether new items are rejected."""

    def put(self, items: Iterable[Item]) -> bool:
        """Append items and return whether they were accepted; a closed queue rejects them."""
        with self.lock:
            if self.closed:
                return False
            self.items.extend(items)
            self._go_on()
            return True

    def close(self, last: Callable[[], object] | None = None) -> deque[Item]:
        """Reject new items, and return the pending ones; repeated calls have no effect.

        Args:
            last: function called on the thread after the running call.
        """
        with self.lock:
            dropped = self.clear()
            if not self.closed:
                self.closed, self._last = True, last
                if last is not None or self._thread is not None:
                    self._go_on()
        return dropped

    def clear(self) -> deque[Item]:
        """Remove and return the pending items."""
        with self.lock:
            dropped, self.items = self.items, deque()
        return dropped  # released without the lock: the destructors of items may take locks

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the running call has ended; return whether it has.

        A listener never waits, because the other call could wait for it.

        Args:
            timeout: longest wait, s; None uses the `patience` of the client and logs a warning when it expires.
        """
        with self.lock:
            if not self._running:
                return True
            if getattr(_listener, "is_running", False):
                return False
            call, patience = self._calls, self._shared.patience if timeout is None else timeout
            ended = self._changed.wait_for(lambda: not self._running or self._calls != call, patience)
        if not ended and timeout is None:
            LOGGER.warning("the listener of %r was abandoned, because it blocked for %g s", self.name, patience)
        return ended

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended after `close`; return immediately on that thread itself."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _go_on(self) -> None:
        """Wake or start the thread; requires the lock."""
        self._changed.notify_all()
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name=f"sensorium-listener-{self.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the interpreter is exiting, or there are too many threads
            self.items.clear()
            raise StreamError(f"cannot start a thread for the listener of {self.name!r}: {error}") from error
        self._thread = thread

    def _run(self) -> None:
        _listener.is_running = True
        while True:
            with self.lock:
                self._running = False
                self._changed.notify_all()
                while not self.items and not self.closed:
                    self._changed.wait()
                if not self.items:
                    break
                item = self.items.popleft()
                self._running = True
                self._calls += 1
            try:
                self._handle(item)
            except BaseException as error:  # includes SystemExit: no listener may end the thread
                self._shared.errors.report(self.name, self._handle, error)
            del item  # release the data it holds
        if self._last is not None:
            self._last()


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
