"""Subscription of one listener to one sensor: its options, its credits, and its calls with received data."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from sensorium.client import checks
from sensorium.client.callbacks import LOGGER, CallbackQueue
from sensorium.client.checks import ListenOptions, env_range
from sensorium.client.link import Message
from sensorium.client.session import Session
from sensorium.errors import ConfigError, StreamError, UnknownNameError
from sensorium.readings import Sample
from sensorium.wire import messages as msg
from sensorium.wire.bundles import is_bundle, messages_in
from sensorium.wire.data import LostEvents
from sensorium.wire.header import HEADER_BYTES, MAGIC, Header, body_offset
from sensorium.wire.layout import plan
from sensorium.wire.serializers import FieldSerializer, by_name, read_bundle, read_message
from sensorium.wire.stream_info import StreamInfo

_Arrived = tuple[int, float, Any, int]
"""Pending message: subscription number, arrival time (s, monotonic), memory, number in the subscription."""

LARGE = 16 * 1024
"""Size from which messages are large, bytes; only a few large messages are in transit at a time."""
WINDOW_LARGE, WINDOW_SMALL = 4, 16384
"""Messages in transit to a lossless listener (large, small); `queue`, if given, also limits small samples."""
ROOM_LARGE, ROOM_SMALL = 64, 65536
"""Default number of further messages (large, small) that may wait on the server for a lossless listener."""
WINDOW_LATEST = 64
"""Small messages in transit to a listener with policy ``"latest"``; half of them may wait in the client."""
PROMPT = 0.01
"""Longest wait of a message with policy ``"latest"`` that is still delivered although newer messages exist, s."""
JOIN_S = 0.5
"""Longest wait for the thread of a stopped listener, s."""
RATE_OVER = 2.0
"""Time window of `Stats.rate`, s of wall clock."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of a subscription.

    Attributes:
        received: number of messages.
        replaced: number of samples that newer samples replaced before the listener was ready.
        lost: number of lost events.
        nbytes: number of bytes.
        rate: messages per second of wall clock over the last 2 s.
        age: age of the value at its frame, at the last call of the listener, simulation time, s.
        latency: wall clock time from the capture to that call, s.
        frame: frame of the last message; -1 before the first.
    """

    received: int = 0
    replaced: int = 0
    lost: int = 0
    nbytes: int = 0
    rate: float = 0.0
    age: float = 0.0
    latency: float = 0.0
    frame: int = -1


class Subscription:
    """Subscription of one listener to one sensor, created by `RemoteSensor.listen` and `Client.subscribe`.

    Args:
        session: session of the client that owns the subscription.
        name: name of the sensor.
        callback: function called with each data object, on a dedicated thread, one object at a time.
        options: options of the listener.
        on_end: function called once with the reason if the subscription ends without `stop`.
        keeps: object kept alive until the subscription ends, e.g. the client.
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
        checks.function(f"listen({name!r})", "callback", callback)
        self._session, self.name, self._on_end = session, name, on_end
        self._callback: Callable[[Any], object] | None = callback
        self._keeps = keeps
        info = session.info(name)
        if info.where == "client":
            fix = "This sensor runs in the client that spawned it."
            raise ConfigError.single(f"listen({name!r})", "name", name, "a sensor of the server", fix)
        self.lossless = options.policy == "lossless" or info.events
        self._options = options
        self._info = info
        self._aim(info)
        self._queue: CallbackQueue[_Arrived] = CallbackQueue(name, self._deliver, session.callbacks, self._return)
        self._lock = self._queue.lock
        self.number = -1
        self.reason = ""
        """Reason why the subscription ended without `stop`; set before `on_end` is called."""
        self._ended = False
        self._unreturned = 0
        self._is_behind = False  # with policy "latest": whether only the newest pending message is still of use
        self._seq = self._received = self._replaced = self._lost = self._nbytes = 0
        self._last: tuple[float, float, int] = (0.0, 0.0, -1)
        self._times: deque[tuple[float, int]] = deque(maxlen=512)

    def _aim(self, info: StreamInfo) -> None:
        """Determine the environments to request and the limits of messages in transit.

        Raises:
            ConfigError: the stream does not have the environments.
        """
        self.first, self.count = env_range(self._options.envs, info.num_envs, self.name)
        queue, specs = self._options.queue, info.specs
        nbytes = sum(prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in specs) * self.count
        large = nbytes >= LARGE
        if self.lossless:
            bound = WINDOW_SMALL if queue is None or info.events else queue  # a short queue loses no event bursts
            self._window = WINDOW_LARGE if large else min(WINDOW_SMALL, bound)
            self._room = (ROOM_LARGE if large else ROOM_SMALL) if queue is None else queue
        else:  # if the length is unknown, as for large messages, the server holds them back
            is_known = info.type_name == FieldSerializer.type_name and not any(spec.is_ragged for spec in specs)
            length = (
                body_offset(self.count, len(info.mounts) or 1) + plan(specs, self.count, 0, self._options.truth).nbytes
            )
            self._window, self._room = WINDOW_LATEST if is_known and length <= LARGE else 1, 1

    @property
    def stats(self) -> Stats:
        """Current statistics."""
        now = time.monotonic()
        recent = [(when, count) for when, count in list(self._times) if now - when < RATE_OVER]
        span = now - recent[0][0] if recent else 0.0
        rate = sum(count for _, count in recent[1:]) / span if len(recent) > 1 and span > 0.0 else 0.0
        return Stats(self._received, self._replaced, self._lost, self._nbytes, rate, *self._last)

    @property
    def ended(self) -> bool:
        """Whether the subscription has ended."""
        return self._ended

    def begin(self, info: StreamInfo, number: int) -> None:
        """Subscribe, initially and after each reconnection."""
        is_whole = True
        with self._lock:
            before, self._info, self.number, self._unreturned, self._seq = self._info, info, number, 0, 0
            self._queue.clear()
            if (info.num_envs, info.specs) != (before.num_envs, before.specs):  # the server was restarted
                try:
                    self._aim(info)
                except ConfigError:
                    is_whole = False
        if not is_whole:
            self.finish(f"the server now has {info.num_envs} envs, but envs={self._options.envs} was requested")
            return
        options = self._options
        self._session.link.send_control(
            msg.Subscribe(
                number, info.id, self.lossless, options.every, options.max_rate or 0.0, self.first, self.count,
                options.truth, self._window, self._room,
            )
        )  # fmt: skip

    def take(self, messages: list[Message]) -> None:
        """Queue received messages for the listener; runs on the thread of the link."""
        now, number, credit = time.monotonic(), self.number, 0
        self._session.note_frame(_frame_of(messages[-1][0]))
        with self._lock:
            if not self._queue.put([(number, now, memory, seq) for memory, seq in messages]):
                credit = sum(messages_in(memory) for memory, _ in messages)
            elif not self.lossless:
                waiting = self._queue.items
                self._is_behind |= bool(waiting) and now - waiting[0][1] > PROMPT
                credit = self._leave_out(1 if self._is_behind else max(1, self._window // 2))  # for newer ones
        self._session.link.send_credit(number, credit)

    def _leave_out(self, most: int) -> int:
        """Drop the oldest pending messages beyond `most`; return the credits for them. Requires the lock."""
        waiting = self._queue.items
        count = max(len(waiting) - most, 0)
        for _ in range(count):
            waiting.popleft()
        return count

    def _deliver(self, item: _Arrived) -> tuple[int, int]:
        """Call the listener with one message, or with each of a bundle; return number and credits for `_return`."""
        number, when, memory, seq = item
        credit = 0
        if not self.lossless:
            with self._lock:
                if (self._is_behind or time.monotonic() - when > PROMPT) and self._queue.items:
                    credit = 1 + self._leave_out(1)
                    number, _, memory, seq = self._queue.items.popleft()
                self._is_behind = False
        del item
        callback = self._callback
        count = messages_in(memory)
        credit += count
        if self._ended or callback is None or number != self.number:
            return number, credit
        missed, self._seq = seq - self._seq - 1, seq + count - 1
        info, before = self._info, self._received
        head, body = memory if isinstance(memory, tuple) else (memory, None)
        del memory
        self._nbytes += len(head) + (0 if body is None else len(body))
        data: Sample | None = None
        messages: Iterator[Sample] = iter(())
        try:
            is_many = body is None and is_bundle(head)
            messages = read_bundle(head, info) if is_many else map(read_message, (head,), (info,), (body,))
            if not self.lossless:
                self._replaced += missed
            elif missed:
                self._lost += missed
                LOGGER.warning(
                    "the server dropped %d events of %r. Make the listener faster, or increase queue=.",
                    missed,
                    self.name,
                )
                header = Header.peek(head)
                self._call(callback, self.lost_events(header.frame, header.tick, header.time_ns, missed))
        except Exception as error:
            self._misread(info, error)
        is_called = False
        while not self._ended:
            try:
                for data in messages:  # runs once per small message
                    if self._received == before:
                        self._last = (data.time - data.timestamp, data.latency(), data.frame)
                    self._received += 1
                    is_called = True
                    callback(data)
                    is_called = False
                    if self._ended:
                        break
                break
            except BaseException as error:  # includes SystemExit: no listener may end the thread
                if is_called:
                    is_called = False
                    self._session.callbacks.errors.report(self.name, callback, error)
                else:
                    self._misread(info, error)
        if self._received > before:
            self._times.append((time.monotonic(), self._received - before))
        data = messages = head = body = None  # type: ignore[assignment]  # stored tracebacks refer to this frame
        return number, credit

    def _call(self, callback: Callable[[Any], object], data: Sample) -> None:
        try:
            callback(data)
        except BaseException as error:
            self._session.callbacks.errors.report(self.name, callback, error)

    def lost_events(self, frame: int, tick: int, time_ns: int, count: int) -> LostEvents:
        """Return the notice that a number of events of this subscription were lost."""
        env_ids = np.arange(self.first, self.first + self.count)
        return LostEvents(self.name, self._info, frame, tick, time_ns * 1e-9, env_ids, count)

    def _misread(self, info: StreamInfo, error: BaseException) -> None:
        """Report a message that could not be read; end the subscription if no message can be read."""
        try:
            by_name(info.type_name)
        except UnknownNameError as unknown:
            self.stop(reason=f"this process cannot read its data: {unknown}")
        else:
            self._session.callbacks.errors.report(self.name, None, error)

    def _return(self, delivered: tuple[int, int]) -> None:
        """Return credits: immediately if the server waits for them, otherwise in large portions."""
        number, count = delivered
        with self._lock:
            if number == self.number and not self._ended:
                count += self._unreturned
                waits = self.lossless and count * 4 < self._window and bool(self._queue.items)
                self._unreturned, count = (count, 0) if waits else (0, count)
        self._session.link.send_credit(number, count)

    def _close_queue(self, last: Callable[[], object] | None = None) -> None:
        """Accept no more messages, and return the credits of those that wait."""
        dropped = self._queue.close(last)
        with self._lock:
            count, self._unreturned = self._unreturned, 0
        for _, _, memory, _ in dropped:
            count += messages_in(memory)
        self._session.link.send_credit(self.number, count)

    def stop(self, *, reason: str = "") -> None:
        """End the subscription; the listener is not called again. Repeated calls are allowed.

        The call waits until a running call of the listener has ended, except when a listener makes it. After about 5 s
        it returns with a warning even if the running call blocks.

        Args:
            reason: reason passed to `on_end`; if empty, `on_end` is not called.
        """
        with self._lock:
            first, self._ended = not self._ended, True
            if first:
                self.reason = reason
        if first:
            self._session.forget(self)
        self._close_queue()
        end = time.monotonic() + self._session.callbacks.patience
        with contextlib.suppress(StreamError):  # the server may be closed
            while not self._queue.wait(0.01) and time.monotonic() < end and self._session.pump(0.0):
                pass  # on the thread of a loop in this process, for which the listener may be waiting
        if self._queue.wait():
            self._queue.join(JOIN_S)  # so that its thread holds no more references
        self._callback = self._keeps = None
        if first and reason and self._on_end is not None:
            self._on_end(reason)

    def finish(self, reason: str) -> None:
        """End the subscription on behalf of the server."""
        with self._lock:
            if self._ended:
                return
            self.reason, self._ended = reason, True
        self._session.forget(self, tell=False)
        self._close_queue(self._report_end)

    def _report_end(self) -> None:
        """Call `on_end` with the reason, on the thread of the queue, and then release `keeps`."""
        try:
            if self._on_end is not None:
                self._on_end(self.reason)
        except BaseException as error:
            self._session.callbacks.errors.report(self.name, self._on_end, error)
        finally:
            self._callback = self._keeps = None


def _frame_of(memory: Any) -> int:
    """Return the frame of a data message; -1 if the message has no header."""
    head = memory[0] if isinstance(memory, tuple) else memory
    is_ours = len(head) >= HEADER_BYTES and bytes(head[:4]) == MAGIC
    return Header.peek(head).frame if is_ours else -1
