"""One listener of one sensor: what it asked for, its credits, and the calls with what comes in."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from sensorium.client.callbacks import LOGGER
from sensorium.client.link import Message
from sensorium.client.session import Session
from sensorium.errors import ConfigError, StreamError, UnknownNameError
from sensorium.wire import messages as say
from sensorium.wire.bundles import is_bundle
from sensorium.wire.data import SensorData
from sensorium.wire.header import LOST, Header, body_offset
from sensorium.wire.layout import plan
from sensorium.wire.packing import CREDIT, Record
from sensorium.wire.serializers import FieldSerializer, by_name, read_bundle, read_message
from sensorium.wire.stream_info import StreamInfo

Policy = Literal["latest", "lossless"]
"""What happens to samples that a listener is too slow for: only the newest is kept, or all are."""
Envs = slice | int | range | None

LARGE = 16 * 1024
"""Bytes from which on messages are large: few of them are under way at a time."""
WINDOW_LARGE, WINDOW_SMALL = 4, 16384
"""Messages under way to a lossless listener; of small samples no more than its `queue`, where it says one."""
ROOM_LARGE, ROOM_SMALL = 64, 65536
"""Messages that wait for it on the server beyond these."""
WINDOW_LATEST = 64
"""Small messages under way to a listener of the latest; half of them may wait for it here."""
PROMPT = 0.01
"""How long a message may wait for a listener of the latest and still be given, though newer ones came, s."""
RATE_OVER = 2.0
"""Seconds of wall clock that `Stats.rate` looks back."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What a subscription has had so far.

    Attributes:
        received: messages.
        dropped: samples that were left out, since newer ones were there before the listener was ready.
        lost: events that were lost.
        nbytes: bytes.
        rate: messages per second of wall clock, over the last 2 s.
        age: how old the value was when the listener was called the last time, in simulation time at its frame, s.
        latency: wall clock from its capture to that call, s.
        frame: frame of the last message; -1 before the first.
    """

    received: int = 0
    dropped: int = 0
    lost: int = 0
    nbytes: int = 0
    rate: float = 0.0
    age: float = 0.0
    latency: float = 0.0
    frame: int = -1


class Subscription:
    """One listener of one sensor; `RemoteSensor.listen` and `Client._subscribe` make them.

    Args:
        session: of the client whose it is.
        name: of the sensor.
        callback: called with each data object, on a worker thread, one after the other.
        policy: see `RemoteSensor.listen`, which has the same arguments and errors; `checks.listening` has checked the
            others.
        every: likewise.
        max_rate: likewise.
        envs: likewise.
        truth: likewise.
        queue: likewise.
        on_end: called once with the reason when it ends without `stop`.
        keeps: what is kept alive until it ends, such as the client.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        callback: Callable[[Any], object],
        *,
        policy: Policy = "latest",
        every: int = 1,
        max_rate: float | None = None,
        envs: Envs = None,
        truth: bool = False,
        queue: int | None = None,
        on_end: Callable[[str], object] | None = None,
        keeps: object = None,
    ) -> None:
        def wrong(field: str, got: object, expected: str, fix: str = "") -> ConfigError:
            return ConfigError.single(f"listen({name!r})", field, got, expected, fix)

        if not callable(callback):
            raise wrong("callback", callback, "a function of one argument, the data")
        if policy not in ("latest", "lossless"):
            raise wrong("policy", policy, "'latest' or 'lossless'")
        self._session, self.name, self._callback, self._on_end = session, name, callback, on_end
        self._keeps = keeps
        info = session.info(name)
        if info.where == "client":
            raise wrong("name", name, "a sensor of the simulation", "This one runs in the client that spawned it.")
        self.lossless = policy == "lossless" or info.events
        self.every, self.max_rate, self.truth = every, max_rate, truth
        self._envs, self._queue = envs, queue
        self._info = info
        self._aim(info)
        self._strand = session.workers.strand(name)
        self._lock = threading.RLock()  # what is let go under it may, by its end, stop listeners
        self.number = -1
        self.reason = ""
        """Why it ended, where it did without `stop`; it is there before `on_end` is called."""
        self._ended = False
        self._unreturned = 0
        self._waiting: deque[tuple[float, Any, int]] = deque()  # of the latest: when it came, message, dropped before
        self._is_behind = False  # whether only the newest of them is worth anything
        self._is_queued = False  # whether a worker will look at them
        self._received = self._dropped = self._lost = self._nbytes = 0
        self._last: tuple[float, float, int] = (0.0, 0.0, -1)
        self._times: deque[tuple[float, int]] = deque(maxlen=512)

    def _aim(self, info: StreamInfo) -> None:
        """Find out what to ask of a stream: its environments, and how much may be under way.

        Raises:
            ConfigError: it has not the environments.
        """
        self.first, self.count = env_range(self._envs, info.num_envs, self.name)
        queue, specs = self._queue, info.specs
        nbytes = sum(prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in specs) * self.count
        large = nbytes >= LARGE
        if self.lossless:
            bound = WINDOW_SMALL if queue is None or info.events else queue  # a short queue costs no bursts of events
            self._window = WINDOW_LARGE if large else min(WINDOW_SMALL, bound)
            self._room = (ROOM_LARGE if large else ROOM_SMALL) if queue is None else queue
        else:  # where nobody knows how long messages are, as where they are large: the server has them wait
            is_known = info.type_name == FieldSerializer.type_name and not any(spec.is_ragged for spec in specs)
            length = body_offset(self.count, len(info.mounts) or 1) + plan(specs, self.count, 0, self.truth).nbytes
            self._window, self._room = WINDOW_LATEST if is_known and length <= LARGE else 1, 1

    @property
    def stats(self) -> Stats:
        """What it has had so far."""
        now = time.monotonic()
        recent = [(when, count) for when, count in list(self._times) if now - when < RATE_OVER]
        span = now - recent[0][0] if recent else 0.0
        rate = sum(count for _, count in recent[1:]) / span if len(recent) > 1 and span > 0.0 else 0.0
        return Stats(self._received, self._dropped, self._lost, self._nbytes, rate, *self._last)

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._ended

    def begin(self, info: StreamInfo, number: int) -> None:
        """Subscribe, at first and again on a new connection."""
        is_whole = True
        with self._lock:
            before, self._info, self.number, self._unreturned = self._info, info, number, 0
            self._waiting.clear()
            if (info.num_envs, info.specs) != (before.num_envs, before.specs):  # of a server that was started anew
                try:
                    self._aim(info)
                except ConfigError:
                    is_whole = False
        if not is_whole:
            self.finish(f"the server has {info.num_envs} envs now, and envs={self._envs} was asked for")
            return
        self._session.link.tell(
            say.Subscribe(
                number,
                info.id,
                self.lossless,
                self.every,
                self.max_rate or 0.0,
                self.first,
                self.count,
                self.truth,
                self._window,
                self._room,
            )
        )

    def take(self, messages: list[Message]) -> None:
        """Have the listener called with what came in; on the link's thread."""
        if self.lossless:
            self._strand.submit(self._deliver, self.number, messages)
            return
        now = time.monotonic()
        with self._lock:
            self._waiting.extend((now, memory, dropped) for memory, dropped in messages)
            credit = self._leave_out(now)
            number, begins, self._is_queued = self.number, not self._is_queued, True
        if credit:
            self._session.link.send(Record(CREDIT, number, credit))
        if begins:
            self._strand.submit(self._deliver_latest)

    def _leave_out(self, now: float) -> int:
        """Leave out what is too old, or too much, for a listener of the latest; return the credits for it."""
        waiting = self._waiting
        if waiting and now - waiting[0][0] > PROMPT:
            self._is_behind = True
        most = 1 if self._is_behind else max(1, self._window // 2)  # the other half brings what is newer
        before = len(waiting)
        while len(waiting) > most:
            self._dropped += 1 + waiting.popleft()[2]
        return before - len(waiting)

    def _deliver_latest(self) -> None:
        """Call the listener with what waits for it, on a worker thread."""
        for _ in range(WINDOW_LATEST):
            with self._lock:
                credit = self._leave_out(time.monotonic())
                self._is_behind = False
                if self._ended or not self._waiting:
                    self._is_queued = False
                    return
                number, info = self.number, self._info
                _, memory, dropped = self._waiting.popleft()
                self._dropped += dropped
            credit += self._give(info, memory)
            del memory  # before the server may send more: it could be in one of its slots
            self._return(number, credit)
        self._strand.submit(self._deliver_latest)  # others may have waited

    def _deliver(self, number: int, messages: list[Message]) -> None:
        """Call the listener with what came in, on a worker thread."""
        info = self._info
        messages.reverse()
        while messages:
            memory, dropped = messages.pop()
            if self._ended or number != self.number:
                return
            self._dropped += dropped
            credit = self._give(info, memory)
            del memory
            self._return(number, credit)

    def _give(self, info: StreamInfo, memory: Any) -> int:
        """Call the listener with one message, or with each of a bundle; return the credits for it."""
        credit = 0
        head, body = memory if isinstance(memory, tuple) else (memory, None)
        del memory
        try:
            credit = _credits(head)
            self._nbytes += len(head) + (0 if body is None else len(body))
            if body is None and is_bundle(head):
                self._call_all(read_bundle(head, info))
            else:
                data = read_message(head, info, body)
                del head, body
                self._call(data)
                del data  # the listener may keep it; we do not
        except BaseException as error:
            self._misread(info, error)
        return credit

    def _misread(self, info: StreamInfo, error: BaseException) -> None:
        """Report a message that could not be read; where none ever can be, end."""
        try:
            by_name(info.type_name)
        except UnknownNameError as unknown:
            self.stop(reason=f"its data cannot be read here: {unknown}")
        else:
            self._session.workers.errors.report_unreadable(self.name, error)

    def _call(self, data: SensorData) -> None:
        """Call the listener once."""
        header = data.raw.header
        if header.flags & LOST:
            self._note_lost(header.lost)
        else:
            self._received += 1
            age = (header.time_ns - header.capture_ns) * 1e-9
            self._last = (age, (time.time_ns() - header.wall_ns) * 1e-9, header.frame)
            self._times.append((time.monotonic(), 1))
        callback = self._callback
        try:
            callback(data)
        except BaseException as error:
            self._session.workers.errors.report(self.name, callback, error)

    def _call_all(self, messages: Iterator[SensorData]) -> None:
        """Call the listener with each message of a bundle."""
        callback, begun, done = self._callback, 0, 0
        while not self._ended:
            try:
                for data in messages:
                    begun += 1
                    self._received += 1
                    if begun == 1:
                        header = data.raw.header
                        self._last = (0.0, (time.time_ns() - header.wall_ns) * 1e-9, header.frame)
                    callback(data)
                    done = begun
                    if self._ended:
                        break
                break
            except BaseException as error:
                if begun > done:
                    self._session.workers.errors.report(self.name, callback, error)
                    done = begun
                else:
                    self._session.workers.errors.report_unreadable(self.name, error)
        self._times.append((time.monotonic(), begun))

    def _return(self, number: int, count: int) -> None:
        """Give credits back: at once what the server waits for, else in good portions."""
        with self._lock:
            if number != self.number or self._ended:
                return  # of a connection that broke: the new one has credits of its own
            count += self._unreturned
            waits = self.lossless and count * 4 < self._window and self._strand.pending
            self._unreturned = count if waits else 0
        if count and not waits:
            self._session.link.send(Record(CREDIT, number, count))

    def _note_lost(self, count: int) -> None:
        self._lost += count
        LOGGER.warning("%d events of %r were lost: the listener is too slow, or queue= too small", count, self.name)

    def stop(self, *, reason: str = "") -> None:
        """End it; from now on the listener is not called. May be called again.

        It waits until a running call of the listener has ended, but not from within that, and not for one that blocks
        for ever: after 5 s or so it goes on, with a warning.

        Args:
            reason: what `on_end` is told; nothing where that is empty.
        """
        with self._lock:
            first, self._ended = not self._ended, True
            if first:
                self.reason = reason
                self._waiting.clear()
        if first:
            self._session.forget(self)
        end = time.monotonic() + self._session.workers.patience
        with contextlib.suppress(StreamError):  # of a server that is closed
            while not self._strand.close(0.01) and time.monotonic() < end and self._session.pump(0.0):
                pass  # on the thread of a loop in this process, which the listener may be waiting for
        self._strand.close()
        self._keeps = None
        if first and reason and self._on_end is not None:
            self._on_end(reason)

    def finish(self, reason: str) -> None:
        """End it because the server says so."""
        with self._lock:
            if self._ended:
                return
            self.reason, self._ended = reason, True
            self._waiting.clear()
        self._session.forget(self, tell=False)
        if not self._strand.submit(self._tell_end, reason):
            self._keeps = None

    def _tell_end(self, reason: str) -> None:
        """Tell why it ended, on a worker thread, which would end with the client."""
        try:
            if self._on_end is not None:
                self._on_end(reason)
        finally:
            self._keeps = None

    def __repr__(self) -> str:
        state = "ended" if self._ended else f"{self._received} received, {self._dropped} dropped"
        return f"<Subscription to {self.name!r}: {state}>"


def _credits(head: Any) -> int:
    """Return how many messages the server counted for what it sent; none for the word that some were lost."""
    if is_bundle(head):
        start = Header.peek(head).body_offset
        return int.from_bytes(bytes(head[start : start + 4]), "little")
    return 0 if len(head) > 6 and head[6] & LOST else 1


def env_range(envs: Envs, num_envs: int, name: str) -> tuple[int, int]:
    """Return (first, number) of the environments that a listener asks for.

    Raises:
        ConfigError: they are no range of environments that there are.
    """
    expected = f"None, an environment from 0 to {num_envs - 1}, or a slice of them without a step"
    if envs is None:
        return 0, num_envs
    if isinstance(envs, int | np.integer) and not isinstance(envs, bool):
        if 0 <= envs < num_envs:
            return int(envs), 1
    elif isinstance(envs, slice | range):
        chosen = range(num_envs)[envs] if isinstance(envs, slice) else envs
        if len(chosen) and chosen.step == 1 and 0 <= chosen.start and chosen.stop <= num_envs:
            return chosen.start, len(chosen)
    raise ConfigError.single(f"listen({name!r})", "envs", envs, expected)


__all__ = ["Envs", "Policy", "Stats", "Subscription"]
