"""Listeners are called on threads: each has one of its own, which calls it with one item after the other."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sensorium.errors import StreamError
from sensorium.wire.failures import Failures, trace_of

LOGGER = logging.getLogger("sensorium.client")
"""Where what a listener raises is logged."""

LONGEST = 300
"""Longest text shown of a listener."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ListenerError:
    """What one call of a listener raised."""

    sensor: str
    """Name of the sensor whose listener it was."""
    callback: str
    """The listener, as `repr` shows it; empty where none was called, since the data could not be read."""
    error: BaseException
    """The exception. The variables of its frames are cleared, so that it keeps no data alive."""
    traceback: str
    """The whole traceback as text."""
    time: float
    """Wall clock, seconds since 1970."""

    def __str__(self) -> str:
        what = f"{type(self.error).__name__}: {self.error}"
        if not self.callback:
            return f"data of {self.sensor!r} cannot be read: {what}"
        return f"a listener of {self.sensor!r} raised {what} ({self.callback})"


class ErrorLog(Failures[ListenerError]):
    """What listeners raised: logged at once, kept until somebody takes it; the first and the newest, all counted."""

    def __init__(self, limit: int = 100) -> None:
        super().__init__(limit)
        self._first: ListenerError | None = None
        self._taken = 0  # of all, how many somebody has taken, or could have

    def report(self, sensor: str, callback: object, error: BaseException) -> ListenerError:
        """Log an exception and keep it.

        Args:
            sensor: name of the sensor whose listener raised it.
            callback: the listener.
            error: what it raised.
        """
        shown, text = _shown(callback), trace_of(error)
        kind = type(error).__name__
        record = self._record(sensor, shown, error, text)
        return self._keep(record, LOGGER, "a listener of %r raised %s (%s)\n%s", sensor, kind, shown, text)

    def report_unreadable(self, sensor: str, error: BaseException) -> ListenerError:
        """Log and keep what reading a message raised, e.g. its serializer's `deserialize`.

        Args:
            sensor: name of the sensor whose data it was.
            error: what was raised.
        """
        text = trace_of(error)
        record = self._record(sensor, "", error, text)
        return self._keep(record, LOGGER, "data of %r cannot be read\n%s", sensor, text)

    def _record(self, sensor: str, callback: str, error: BaseException, text: str) -> ListenerError:
        record = ListenerError(sensor, callback, error, text, time.time())
        _clear_frames(error)
        with self._lock:
            self._first = self._first or record
        return record

    def take(self) -> list[ListenerError]:
        """Return what is kept of the newest, oldest first, and forget it; `count` stays."""
        with self._lock:
            kept, self._first, self._taken = list(self._kept), None, self._count
            self._kept.clear()
        return kept

    def check(self) -> None:
        """Raise the first of those that nobody has taken, where there are any, and forget all.

        Raises:
            StreamError: caused by the first; it says how many there were.
        """
        with self._lock:
            first, count = self._first, self._count - self._taken
            self._first, self._taken = None, self._count
            self._kept.clear()
        if first is not None:
            more = f" (and {count - 1} more)" if count > 1 else ""
            raise StreamError(f"{first}{more}") from first.error


PATIENCE = 5.0
"""Seconds that a running call may take to end when its listener stops, by default."""

_current = threading.local()
"""`queue`: the queue whose thread this is."""
_waits = threading.Lock()
"""Held while a thread notes which queue it waits for, so that two threads never wait for each other."""


class Callbacks:
    """What all queues of one client share."""

    def __init__(self) -> None:
        self.errors = ErrorLog()
        """Exceptions of listeners."""
        self.patience = PATIENCE
        """Longest wait for a running call when its listener stops, s; a call that blocks is then left alone."""


class CallbackQueue(Generic[Item]):
    """Items that a function takes one after the other, in order, on a thread of their own.

    The thread starts with the first item and ends with `close`. Exceptions of the function are reported, and the next
    item follows.

    Args:
        name: of the sensor, for reports and the thread.
        handle: takes an item.
        shared: what all queues of the client share.
        done: takes what `handle` returned, once the item is released; None for nothing.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[Item], Any],
        shared: Callbacks,
        done: Callable[[Any], object] | None = None,
    ) -> None:
        self.name = name
        self._handle, self._shared, self._done = handle, shared, done
        self.items: deque[Item] = deque()
        """Items that wait. Whoever changes them otherwise than by `put` holds `lock`."""
        self.lock = threading.RLock()  # re-entrant: a garbage collection inside may stop listeners in this very thread
        self._changed = threading.Condition(self.lock)
        self._thread: threading.Thread | None = None
        self._idle = False
        self._running = False
        self._calls = 0
        self._watchers = 0
        self._waits_for: CallbackQueue[Any] | None = None
        self._last: Callable[[], object] | None = None
        self.closed = False
        """Whether items are refused."""

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.items)} pending{', running' * self._running}"
        return f"<CallbackQueue {self.name!r}: {state}>"

    def put(self, items: Iterable[Item]) -> bool:
        """Append items; return whether they were taken, which they are until `close`."""
        with self.lock:
            if self.closed:
                return False
            self.items.extend(items)
            self._go_on()
            return True

    def close(self, last: Callable[[], object] | None = None) -> bool:
        """Refuse items from now on and drop those that wait; return whether it was open until now.

        Args:
            last: called on the thread, after the running call.
        """
        with self.lock:
            if self.closed:
                return False
            self.closed, self._last = True, last
            dropped, self.items = self.items, deque()
            if last is not None or self._thread is not None:
                self._go_on()
        dropped.clear()  # without the lock: items may hold what takes locks at its end
        return True

    def clear(self) -> None:
        """Drop the items that wait."""
        with self.lock:
            dropped, self.items = self.items, deque()
        dropped.clear()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the running call has ended; return whether it has.

        There is no wait from within that call, nor where that call itself waits for the caller.

        Args:
            timeout: longest wait, s; None is the `patience` of the client, after which a warning is logged.
        """
        mine: CallbackQueue[Any] | None = getattr(_current, "queue", None)
        with self.lock:
            if not self._running:
                return True
            with _waits:
                other: CallbackQueue[Any] | None = self
                while mine is not None and other is not None:
                    if other is mine:
                        return False
                    other = other._waits_for
                if mine is not None:
                    mine._waits_for = self
            call, patience = self._calls, self._shared.patience if timeout is None else timeout
            self._watchers += 1
            try:
                ended = self._changed.wait_for(lambda: not self._running or self._calls != call, patience)
            finally:
                self._watchers -= 1
                if mine is not None:
                    mine._waits_for = None
        if not ended and timeout is None:
            text = "the listener of %r is left alone: it has been running for %g s since it was to end. Does it block?"
            LOGGER.warning(text, self.name, patience)
        return ended

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended, after `close`; not from within it."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _go_on(self) -> None:
        """Wake the thread, or start it; under the lock."""
        if self._thread is not None:
            if self._idle:
                self._changed.notify_all()
            return
        thread = threading.Thread(target=self._run, name=f"sensorium-listener-{self.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the interpreter ends, or there are too many threads
            self.items.clear()
            raise StreamError(f"no thread can be started for the listener of {self.name!r}: {error}") from error
        self._thread = thread

    def _run(self) -> None:
        _current.queue = self
        while True:
            with self.lock:
                self._running = False
                if self._watchers:
                    self._changed.notify_all()
                while not self.items and not self.closed:
                    self._idle = True
                    self._changed.wait()
                    self._idle = False
                if not self.items:
                    break
                item = self.items.popleft()
                self._running = True
                self._calls += 1
            result, done = None, self._done
            try:
                result = self._handle(item)
            except BaseException as error:  # a SystemExit too: no listener ends the thread
                self._shared.errors.report(self.name, self._handle, error)
                done = None
            del item  # it holds data
            if done is not None:
                done(result)
        if self._last is not None:
            self._last()


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _clear_frames(error: BaseException) -> None:
    """Let go of the variables of all frames of an exception and of those it came from."""
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
