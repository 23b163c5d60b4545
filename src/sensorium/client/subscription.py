"""One listener of one sensor: what it asked for, its credits, and the calls with what comes in."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from sensorium.client.callbacks import LOGGER, CallbackQueue
from sensorium.client.checks import ListenOptions, env_range
from sensorium.client.link import Message
from sensorium.client.session import Session
from sensorium.errors import ConfigError, StreamError, UnknownNameError
from sensorium.wire import messages as say
from sensorium.wire.bundles import is_bundle
from sensorium.wire.data import SensorData
from sensorium.wire.header import HEADER_BYTES, LOST, MAGIC, Header, body_offset
from sensorium.wire.layout import plan
from sensorium.wire.packing import CREDIT, Record
from sensorium.wire.serializers import FieldSerializer, by_name, read_bundle, read_message
from sensorium.wire.stream_info import StreamInfo

_Arrived = tuple[int, float, Any, int]
"""A message that waits: number of the subscription, when it came (s, monotonic), memory, samples left out before."""

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
JOIN_S = 0.5
"""Longest wait for the thread of a listener that has stopped, s."""
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
    """One listener of one sensor; `RemoteSensor.listen` and `Client.subscribe` make them.

    Args:
        session: of the client whose it is.
        name: of the sensor.
        callback: called with each data object, on a thread of its own, one after the other.
        options: how it listens.
        on_end: called once with the reason when it ends without `stop`.
        keeps: what is kept alive until it ends, such as the client.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        callback: Callable[[Any], object],
        options: ListenOptions,
        *,
        on_end: Callable[[str], object] | None = None,
        keeps: object = None,
    ) -> None:
        def wrong(field: str, got: object, expected: str, fix: str = "") -> ConfigError:
            return ConfigError.single(f"listen({name!r})", field, got, expected, fix)

        if not callable(callback):
            raise wrong("callback", callback, "a function of one argument, the data")
        self._session, self.name, self._callback, self._on_end = session, name, callback, on_end
        self._keeps = keeps
        info = session.info(name)
        if info.where == "client":
            raise wrong("name", name, "a sensor of the simulation", "This one runs in the client that spawned it.")
        self.lossless = options.policy == "lossless" or info.events
        self._options = options
        self._info = info
        self._aim(info)
        self._queue: CallbackQueue[_Arrived] = CallbackQueue(name, self._deliver, session.callbacks, self._return)
        self._lock = self._queue.lock
        self.number = -1
        self.reason = ""
        """Why it ended, where it did without `stop`; it is there before `on_end` is called."""
        self._ended = False
        self._unreturned = 0
        self._is_behind = False  # whether, of the latest, only the newest that waits is worth anything
        self._received = self._dropped = self._lost = self._nbytes = 0
        self._last: tuple[float, float, int] = (0.0, 0.0, -1)
        self._times: deque[tuple[float, int]] = deque(maxlen=512)

    def _aim(self, info: StreamInfo) -> None:
        """Find out what to ask of a stream: its environments, and how much may be under way.

        Raises:
            ConfigError: it has not the environments.
        """
        self.first, self.count = env_range(self._options.envs, info.num_envs, self.name)
        queue, specs = self._options.queue, info.specs
        nbytes = sum(prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in specs) * self.count
        large = nbytes >= LARGE
        if self.lossless:
            bound = WINDOW_SMALL if queue is None or info.events else queue  # a short queue costs no bursts of events
            self._window = WINDOW_LARGE if large else min(WINDOW_SMALL, bound)
            self._room = (ROOM_LARGE if large else ROOM_SMALL) if queue is None else queue
        else:  # where nobody knows how long messages are, as where they are large: the server has them wait
            is_known = info.type_name == FieldSerializer.type_name and not any(spec.is_ragged for spec in specs)
            length = (
                body_offset(self.count, len(info.mounts) or 1) + plan(specs, self.count, 0, self._options.truth).nbytes
            )
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
            self._queue.clear()
            if (info.num_envs, info.specs) != (before.num_envs, before.specs):  # of a server that was started anew
                try:
                    self._aim(info)
                except ConfigError:
                    is_whole = False
        if not is_whole:
            self.finish(f"the server has {info.num_envs} envs now, and envs={self._options.envs} was asked for")
            return
        self._session.link.tell(
            say.Subscribe(
                number,
                info.id,
                self.lossless,
                self._options.every,
                self._options.max_rate or 0.0,
                self.first,
                self.count,
                self._options.truth,
                self._window,
                self._room,
            )
        )

    def take(self, messages: list[Message]) -> None:
        """Have the listener called with what came in; on the link's thread."""
        now, number, credit = time.monotonic(), self.number, 0
        self._session.saw(_frame_of(messages[-1][0]))
        with self._lock:
            self._queue.put([(number, now, memory, dropped) for memory, dropped in messages])
            if not self.lossless:
                waiting = self._queue.items
                self._is_behind |= bool(waiting) and now - waiting[0][1] > PROMPT
                credit = self._leave_out(1 if self._is_behind else max(1, self._window // 2))  # for what is newer
        if credit:
            self._session.link.send(Record(CREDIT, number, credit))

    def _leave_out(self, most: int) -> int:
        """Leave out the oldest that wait, beyond `most`; return the credits for them. Under the lock."""
        waiting, count = self._queue.items, 0
        while len(waiting) > most:
            self._dropped += 1 + waiting.popleft()[3]
            count += 1
        return count

    def _deliver(self, item: _Arrived) -> tuple[int, int]:
        """Call the listener with one message, or with each of a bundle; return number and credits for `_return`."""
        number, when, memory, dropped = item
        credit = 0
        if not self.lossless:
            with self._lock:
                if (self._is_behind or time.monotonic() - when > PROMPT) and self._queue.items:
                    self._dropped += 1 + dropped
                    credit = 1 + self._leave_out(1)
                    number, _, memory, dropped = self._queue.items.popleft()
                self._is_behind = False
        del item
        if self._ended or number != self.number:
            return number, 0
        self._dropped += dropped
        info, callback, before, begun, done = self._info, self._callback, self._received, 0, 0
        head, body = memory if isinstance(memory, tuple) else (memory, None)
        del memory
        data: SensorData | None = None
        messages: Iterator[SensorData] | None = None
        while not self._ended:
            try:
                if messages is None:
                    messages = iter(())  # where the first line fails
                    credit += _credits(head)
                    self._nbytes += len(head) + (0 if body is None else len(body))
                    is_many = body is None and is_bundle(head)
                    messages = read_bundle(head, info) if is_many else map(read_message, (head,), (info,), (body,))
                for data in messages:
                    begun += 1
                    if begun == 1:
                        self._note(data.raw.header)
                    self._received += 1
                    callback(data)
                    done = begun
                    if self._ended:
                        break
                break
            except BaseException as error:
                if begun > done:
                    self._session.callbacks.errors.report(self.name, callback, error)
                    done = begun
                else:
                    self._misread(info, error)
        if self._received > before:
            self._times.append((time.monotonic(), self._received - before))
        data = messages = head = body = None  # the traceback of an error that is kept holds this frame
        return number, credit

    def _note(self, header: Header) -> None:
        """Note what a message, or the first of a bundle, says of its frame, or of lost events."""
        if header.flags & LOST:
            self._received -= 1
            self._lost += header.lost
            text = "%d events of %r were lost: the listener is too slow, or queue= too small"
            LOGGER.warning(text, header.lost, self.name)
        else:
            age = (header.time_ns - header.capture_ns) * 1e-9
            self._last = (age, (time.time_ns() - header.wall_ns) * 1e-9, header.frame)

    def _misread(self, info: StreamInfo, error: BaseException) -> None:
        """Report a message that could not be read; where none ever can be, end."""
        try:
            by_name(info.type_name)
        except UnknownNameError as unknown:
            self.stop(reason=f"its data cannot be read here: {unknown}")
        else:
            self._session.callbacks.errors.report_unreadable(self.name, error)

    def _return(self, delivered: tuple[int, int]) -> None:
        """Give credits back: at once what the server waits for, else in good portions."""
        number, count = delivered
        with self._lock:
            if number != self.number or self._ended:
                return  # of a connection that broke: the new one has credits of its own
            count += self._unreturned
            waits = self.lossless and count * 4 < self._window and bool(self._queue.items)
            self._unreturned = count if waits else 0
        if count and not waits:
            self._session.link.send(Record(CREDIT, number, count))

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
        if first:
            self._session.forget(self)
        self._queue.close()
        end = time.monotonic() + self._session.callbacks.patience
        with contextlib.suppress(StreamError):  # of a server that is closed
            while not self._queue.wait(0.01) and time.monotonic() < end and self._session.pump(0.0):
                pass  # on the thread of a loop in this process, which the listener may be waiting for
        if self._queue.wait():
            self._queue.join(JOIN_S)  # so that its thread holds nothing any more
        self._keeps = None
        if first and reason and self._on_end is not None:
            self._on_end(reason)

    def finish(self, reason: str) -> None:
        """End it because the server says so."""
        with self._lock:
            if self._ended:
                return
            self.reason, self._ended = reason, True
        self._session.forget(self, tell=False)
        self._queue.close(self._tell_end)

    def _tell_end(self) -> None:
        """Tell why it ended, on its thread, which would end with the client."""
        try:
            if self._on_end is not None:
                self._on_end(self.reason)
        except BaseException as error:
            self._session.callbacks.errors.report(self.name, self._on_end, error)
        finally:
            self._keeps = None

    def __repr__(self) -> str:
        state = "ended" if self._ended else f"{self._received} received, {self._dropped} dropped"
        return f"<Subscription to {self.name!r}: {state}>"


def _frame_of(memory: Any) -> int:
    """Return the frame of a data message; -1 where it is not one of ours."""
    head = memory[0] if isinstance(memory, tuple) else memory
    is_ours = len(head) >= HEADER_BYTES and bytes(head[:4]) == MAGIC
    return Header.peek(head).frame if is_ours else -1


def _credits(head: Any) -> int:
    """Return how many messages the server counted for what it sent; none for the word that some were lost."""
    if is_bundle(head):
        start = Header.peek(head).body_offset
        return int.from_bytes(bytes(head[start : start + 4]), "little")
    return 0 if len(head) > 6 and head[6] & LOST else 1


__all__ = ["Stats", "Subscription"]
