"""Threads that call listeners: each listener has a dedicated thread, which calls it with one item at a time."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from sensorium.errors import StreamError, shown
from sensorium.wire.failures import Failures

LOGGER = logging.getLogger("sensorium.client")
"""Logger for exceptions raised by listeners."""

LONGEST = 300
"""Largest number of characters shown of a listener."""

Item = TypeVar("Item")


PATIENCE = 5.0
"""Default longest wait for a running call when its listener stops, s."""

_listener = threading.local()
"""Thread-local storage; `is_running` is set on the threads of listeners."""


class Callbacks:
    """State shared by all queues of one client."""

    def __init__(self) -> None:
        self.errors = Failures(LOGGER)
        """Exceptions raised by listeners."""
        self.patience = PATIENCE
        """Longest wait for a running call when its listener stops, s; a call that blocks longer is abandoned."""

    def report(self, sensor: str, callback: object, error: BaseException) -> None:
        """Log an exception and keep it.

        Args:
            sensor: name of the sensor whose listener raised it.
            callback: the listener; None if reading a message raised it.
            error: the exception.
        """
        function = getattr(callback, "__wrapped__", callback)
        self.errors.add(sensor, "" if function is None else f"listener {shown(function, LONGEST)}", error)


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
                self._shared.report(self.name, self._handle, error)
            del item  # release the data it holds
        if self._last is not None:
            self._last()
