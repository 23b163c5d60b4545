"""Worker threads that call listeners: those of one strand in order, those of several strands at the same time."""

from __future__ import annotations

import logging
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from sensorium.errors import ConfigError, StreamError
from sensorium.wire.failures import Failures, trace_of

LOGGER = logging.getLogger("sensorium.client")
"""Where what a listener raises is logged."""

BURST = 64
"""Calls of one strand that a worker makes before it looks after the others."""
SLICE = 0.002
"""Time after which it does so at the next call, s."""

LONGEST = 300
"""Longest text shown of a listener."""

Call = tuple[Callable[..., object], tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class ListenerError:
    """What one call of a listener raised."""

    sensor: str
    """Name of the sensor (of the strand) whose listener it was."""
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
"""Seconds that a listener which is running may take to end, by default."""


class Strand:
    """A line of calls that are made one after the other, in the order of their submission; see `Workers.strand`."""

    __slots__ = ("_busy", "_calls", "_closed", "_core", "_queued", "_serial", "_waiting", "name")

    def __init__(self, core: _Core, name: str) -> None:
        self.name = name
        """Name of the sensor it belongs to; errors tell it."""
        self._core = core
        self._calls: deque[Call] = deque()
        self._queued = False  # in the list of strands that wait for a worker
        self._busy = False  # a call is running
        self._waiting: Strand | None = None  # the strand whose call the running one waits for
        self._serial = 0  # calls begun
        self._closed = False

    @property
    def pending(self) -> int:
        """Calls that have not begun."""
        return len(self._calls)

    @property
    def running(self) -> bool:
        """Whether a call is being made now."""
        return self._busy

    @property
    def closed(self) -> bool:
        """Whether calls are refused."""
        return self._closed

    def submit(self, function: Callable[..., object], *args: object) -> bool:
        """Have a worker call ``function(*args)`` after all that was submitted before; see `Workers.submit`."""
        return self._core.submit(self, function, args)

    def clear(self, timeout: float | None = None) -> bool:
        """Forget the calls that have not begun, and wait until the running one has ended.

        There is no waiting from within that call itself, nor where it in turn waits for the call that asks.

        Args:
            timeout: longest wait, s; None is the workers' `patience`, after which the call is left alone and a warning
                is logged.

        Returns:
            whether nothing that was submitted before is still running.
        """
        return self._core.clear(self, timeout, close=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the call that runs now has ended, as `clear` does; those that have not begun stay."""
        return self._core.wait(self, timeout)

    def close(self, timeout: float | None = None) -> bool:
        """As `clear`; from now on calls are refused. Closing it again waits again, and is else without effect."""
        return self._core.clear(self, timeout, close=True)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all calls have been made.

        Returns:
            whether they have; False at the time-out.

        Raises:
            StreamError: called from within one of them, which could never end.
        """
        return self._core.join(self, timeout)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._calls)} pending{', running' * self._busy}"
        return f"<Strand {self.name!r}: {state}>"


class Workers:
    """Threads that call listeners. They are made on first use and are gone when the workers are closed or forgotten.

    A thread belongs to no strand: any free one takes the next strand that has calls. Listeners that block hold one
    thread each; with all of them held, other strands wait.

    Args:
        count: most threads, >= 1.
        name: beginning of the threads' names.
        errors: where what listeners raise is reported; None makes a log of its own.

    Raises:
        ConfigError: `count` is less than 1.
    """

    def __init__(self, count: int = 4, name: str = "sensorium", errors: ErrorLog | None = None) -> None:
        if count < 1:
            raise ConfigError.single("Workers", "count", count, "a number of threads >= 1")
        self.errors = ErrorLog() if errors is None else errors
        """What listeners raised."""
        self._core = _Core(count, name, self.errors)
        self.patience = PATIENCE
        self._finalizer = weakref.finalize(self, _Core.close, self._core, 1.0, False)

    @property
    def threads(self) -> int:
        """How many threads there are now."""
        return len(self._core.threads)

    @property
    def patience(self) -> float:
        """Longest wait for a listener that runs when it is to end, s: one that blocks for ever holds up nobody else."""
        return self._core.patience

    @patience.setter
    def patience(self, seconds: float) -> None:
        self._core.patience = seconds

    @property
    def closed(self) -> bool:
        """Whether calls are refused."""
        return self._core.closing

    def strand(self, name: str) -> Strand:
        """Return a new strand.

        Args:
            name: name of the sensor it belongs to, for the reports of errors.
        """
        return Strand(self._core, name)

    def submit(self, strand: Strand, function: Callable[..., object], *args: object) -> bool:
        """Have a worker call ``function(*args)`` after all that was submitted to this strand before.

        What it raises is reported in `errors`, under the strand's name.

        Returns:
            whether it was taken: not where the strand or the workers are closed.
        """
        return self._core.submit(strand, function, args)

    def close(self, timeout: float | None = None, *, drain: bool = False) -> bool:
        """End the threads: what has not begun is not called any more, what runs is waited for. May be called again.

        From within a listener it returns at once; the threads end when their listeners have.

        Args:
            timeout: longest wait, s; None is `patience`.
            drain: first make all calls that have been submitted (within the time-out; not from within a listener).

        Returns:
            whether all threads have ended.
        """
        return self._core.close(timeout, drain)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Workers {self._core.name!r}: {self.threads} of {self._core.count} threads>"


class _Core:
    """What the threads see: it does not know the `Workers`, which therefore can be forgotten while threads wait.

    One lock for all. It is re-entrant, for a garbage collection inside may close forgotten workers in this very thread.
    Nothing of a user is called, or let go, under the lock.
    """

    def __init__(self, count: int, name: str, errors: ErrorLog) -> None:
        self.count = count
        self.name = name
        self.errors = errors
        self.threads: dict[int, threading.Thread] = {}
        self.closing = False
        self.patience = PATIENCE
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)  # a strand has calls
        self._ended = threading.Condition(self._lock)  # a call, or all of a strand, has ended
        self._watchers = 0  # who waits for that
        self._ready: deque[Strand] = deque()
        self._running: dict[int, Strand] = {}  # thread -> the strand it works on
        self._idle = 0

    def submit(self, strand: Strand, function: Callable[..., object], args: tuple[object, ...]) -> bool:
        if strand._core is not self:
            raise StreamError(f"{strand!r} belongs to other workers.")
        with self._lock:
            if self.closing or strand._closed:
                return False
            strand._calls.append((function, args))
            if not strand._queued:
                strand._queued = True
                self._ready.append(strand)
                if self._idle >= len(self._ready):
                    self._work.notify()
                elif len(self.threads) < self.count:
                    self._start(strand)
                elif self._idle:
                    self._work.notify()
        return True

    def clear(self, strand: Strand, timeout: float | None, close: bool) -> bool:
        with self._lock:
            strand._closed = strand._closed or close
            dropped, strand._calls = strand._calls, deque()
            if self._watchers:
                self._ended.notify_all()
            ended = self._wait_for_call(strand, timeout)
        dropped.clear()
        return ended

    def wait(self, strand: Strand, timeout: float | None) -> bool:
        with self._lock:
            return self._wait_for_call(strand, timeout)

    def join(self, strand: Strand, timeout: float | None) -> bool:
        with self._lock:
            if strand._busy and self._waits_for_me(strand):
                raise StreamError(f"{strand!r} waits for this very call to end, which thus cannot wait for it.")
            return self._wait(strand, lambda: not strand._calls and not strand._busy, timeout)

    def close(self, timeout: float | None, drain: bool) -> bool:
        inside = threading.get_ident() in self.threads
        timeout = self.patience if timeout is None else timeout
        end = time.monotonic() + timeout
        dropped: list[deque[Call]] = []
        with self._lock:
            if drain and not inside and not self.closing:
                self._wait(None, lambda: self.closing or not (self._ready or self._running), timeout)
            self.closing = True
            while self._ready:
                strand = self._ready.popleft()
                dropped.append(strand._calls)
                strand._calls, strand._queued = deque(), False
            for strand in self._running.values():
                dropped.append(strand._calls)
                strand._calls = deque()
            self._work.notify_all()
            self._ended.notify_all()
            threads = list(self.threads.values())
        dropped.clear()
        if inside:
            return False
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in threads)

    def _start(self, strand: Strand) -> None:
        """Start a thread for a strand that has just been queued."""
        thread = threading.Thread(target=self._run, name=f"{self.name}-{len(self.threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the interpreter ends, or there are too many threads
            if self.threads:
                return  # the others do it
            self._ready.remove(strand)
            strand._queued = False
            strand._calls.pop()
            raise StreamError(f"no thread can be started for the listeners of {strand.name!r}: {error}") from error
        assert thread.ident is not None
        self.threads[thread.ident] = thread

    def _run(self) -> None:
        me = threading.get_ident()
        while True:
            with self._lock:
                self._idle += 1
                while not self._ready and not self.closing:
                    self._work.wait()
                self._idle -= 1
                if not self._ready:
                    del self.threads[me]
                    return
                strand = self._ready.popleft()
                self._running[me] = strand
            self._work_on(strand, me)

    def _work_on(self, strand: Strand, me: int) -> None:
        """Make the calls of one strand, until there are none or others have waited for long."""
        lock, left, until = self._lock, BURST, time.monotonic() + SLICE
        while True:
            with lock:
                strand._busy = False
                calls = strand._calls
                more = bool(calls)
                if more and self._ready and (left <= 0 or time.monotonic() >= until):
                    self._ready.append(strand)
                    more = False
                elif more:
                    function, args = calls.popleft()
                    strand._busy = True
                    strand._serial += 1
                else:
                    strand._queued = False
                if not more:
                    del self._running[me]
                if self._watchers:
                    self._ended.notify_all()
            if not more:
                return
            left -= 1
            try:
                function(*args)
            except BaseException as error:  # a SystemExit too: no listener ends the thread of the others
                self.errors.report(strand.name, function, error)
            del function, args  # before the next is looked for: they hold data

    def _wait_for_call(self, strand: Strand, timeout: float | None) -> bool:
        """Wait until the call that runs now has ended, unless that can never be."""
        if not strand._busy:
            return True
        if self._waits_for_me(strand):
            return False
        serial, patience = strand._serial, self.patience if timeout is None else timeout
        ended = self._wait(strand, lambda: not strand._busy or strand._serial != serial, patience)
        if not ended and timeout is None and not self.closing:
            text = "the listener of %r is left alone: it has been running for %g s since it was to end. Does it block?"
            LOGGER.warning(text, strand.name, patience)
        return ended

    def _waits_for_me(self, strand: Strand) -> bool:
        """Whether the running call of a strand is the one that asks, or waits, through others, for it."""
        mine = self._running.get(threading.get_ident())
        other: Strand | None = strand
        while mine is not None and other is not None:
            if other is mine:
                return True
            other = other._waiting if other._busy else None
        return False

    def _wait(self, strand: Strand | None, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait for a condition that has to do with a strand, or with all of them."""
        mine = self._running.get(threading.get_ident())
        if mine is not None:
            mine._waiting = strand
        self._watchers += 1
        try:
            return self._ended.wait_for(condition, timeout)
        finally:
            self._watchers -= 1
            if mine is not None:
                mine._waiting = None


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
