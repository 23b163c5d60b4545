"""Subscription of one listener to one sensor: its options, its credits, and its calls with received data."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
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
from sensorium.wire.data import LostEvents, messages_in
from sensorium.wire.header import BUNDLE, HEADER_BYTES, MAGIC, Header, body_offset
from sensorium.wire.serializers import FieldSerializer, by_name, read_bundle, read_message
from sensorium.wire.stream_info import StreamInfo, plan

_NO_HEADER = Header()


@dataclass(slots=True)
class _Arrived:
    """Pending message, or bundle of messages."""

    number: int
    """Number of the subscription at the arrival; a reconnection gives it another one."""
    when: float
    """Time of the arrival, s, monotonic."""
    header: Header
    credits: int
    """Number of messages, each of which returns a credit."""
    message: Message


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
        on_end: function called once with the reason if the subscription ends without `stop`, on the thread of the
            listener.
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
        self._queue: CallbackQueue[_Arrived] = CallbackQueue(name, self._deliver, session.callbacks)
        self._lock = self._queue.lock
        self.number = -1
        self.reason = ""
        """Reason why the subscription ended without `stop`; set before `on_end` is called."""
        self.ended = False
        """Whether the subscription has ended."""
        self._unreturned = self._seq = self._received = self._replaced = self._lost = self._nbytes = 0
        self._last: tuple[float, float, int] = (0.0, 0.0, -1)
        self._times: deque[tuple[float, int]] = deque(maxlen=512)

    def _aim(self, info: StreamInfo) -> None:
        """Determine the environments to request and the limits of messages in transit.

        Raises:
            ConfigError: the stream does not have the environments.
        """
        self.first, self.count = env_range(self._options.envs, info.num_envs, self.name)
        queue, specs = self._options.queue, info.specs
        body = plan(specs, self.count, 0, self._options.truth)
        large = body_offset(self.count, len(info.mounts) or 1) + body.nbytes > LARGE
        if self.lossless:
            bound = WINDOW_SMALL if queue is None or info.events else queue  # a short queue loses no event bursts
            self._window = WINDOW_LARGE if large else min(WINDOW_SMALL, bound)
            self._room = (ROOM_LARGE if large else ROOM_SMALL) if queue is None else queue
        else:  # if the length is unknown, as for large messages, the server holds them back
            is_known = info.type_name == FieldSerializer.type_name and not any(spec.is_ragged for spec in specs)
            self._window, self._room = WINDOW_LATEST if is_known and not large else 1, 1

    @property
    def stats(self) -> Stats:
        """Current statistics."""
        now = time.monotonic()
        recent = [(when, count) for when, count in list(self._times) if now - when < RATE_OVER]
        span = now - recent[0][0] if recent else 0.0
        rate = sum(count for _, count in recent[1:]) / span if len(recent) > 1 and span > 0.0 else 0.0
        return Stats(self._received, self._replaced, self._lost, self._nbytes, rate, *self._last)

    def suspend(self) -> None:
        """Discard the pending data of a server that no longer exists; `begin` follows."""
        with self._lock:
            self.number = -1
            self._queue.clear()

    def is_current(self, data: Sample) -> bool:
        """Return whether data are of the present server; a running call of the listener may have earlier data."""
        return data.info is self._info and self.number >= 0

    def begin(self, info: StreamInfo, number: int) -> None:
        """Subscribe, initially and after each reconnection."""
        with self._lock:
            self._info, self.number, self._unreturned, self._seq = info, number, 0, 0
            self._queue.clear()
        try:
            self._aim(info)
        except ConfigError:  # the server was restarted
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
        now, number, arrived = time.monotonic(), self.number, deque[_Arrived]()
        for message in messages:
            head, header, count = message[1], _NO_HEADER, 1
            if len(head) >= HEADER_BYTES and head[:4] == MAGIC:
                header = Header.peek(head)
                count = messages_in(head) if header.flags & BUNDLE else 1
            arrived.append(_Arrived(number, now, header, count, message))
        self._session.note_frame(header.frame)
        with self._lock:
            if self._queue.put(arrived):
                arrived.clear()
                waiting = self._queue.items
                if not self.lossless and len(waiting) > 1:
                    most = 1 if now - waiting[0].when > PROMPT else max(1, self._window // 2)
                    while len(waiting) > most:
                        arrived.append(waiting.popleft())
        if arrived:
            self._return_unread(arrived)

    def _return_unread(self, dropped: deque[_Arrived]) -> None:
        """Return the credits of messages that are not delivered, and all that were not returned yet."""
        with self._lock:
            count, self._unreturned = self._unreturned, 0
        self._session.link.send_credit(self.number, count + sum(each.credits for each in dropped))

    def _deliver(self, item: _Arrived) -> None:
        """Call the listener with one message, or with each of a bundle, and return the credits."""
        seq, head, body = item.message
        del item.message
        callback, info, header, before = self._callback, self._info, item.header, self._received
        data: Sample | None = None
        messages: Iterator[Sample] = iter(())
        is_called = False
        is_late = not self.lossless and bool(self._queue.items) and time.monotonic() - item.when > PROMPT
        if not (self.ended or callback is None or item.number != self.number or is_late):
            missed, self._seq = seq - self._seq - 1, seq + item.credits - 1
            self._nbytes += len(head) + (0 if body is None else len(body))
            age, latency = (header.time_ns - header.capture_ns) * 1e-9, time.time() - header.wall_ns * 1e-9
            try:
                messages = read_bundle(head, info) if header.flags & BUNDLE else iter((read_message(head, info, body),))
            except Exception as error:
                self._misread(info, error)
            if not self.lossless:
                self._replaced += missed
            elif missed:
                self._lost += missed
                fix = "Make the listener faster, or increase queue=."
                LOGGER.warning("the server dropped %d events of %r. %s", missed, self.name, fix)
                messages = chain((self.lost_events(header.frame, header.tick, header.time_ns, missed),), messages)
            while not self.ended:  # again after each exception, with the next message
                try:
                    for data in messages:  # runs once per small message
                        if data.__class__ is not LostEvents:
                            if self._received == before:
                                self._last = (age, latency, header.frame)
                            self._received += 1
                        is_called = True
                        callback(data)
                        is_called = False
                        if self.ended:
                            break
                    break
                except BaseException as error:  # includes SystemExit: no listener may end the thread
                    if is_called:
                        is_called = False
                        self._session.callbacks.report(self.name, callback, error)
                    else:
                        self._misread(info, error)
            if self._received > before:
                self._times.append((time.monotonic(), self._received - before))
        data = messages = head = body = None  # type: ignore[assignment]  # released before the credits return
        count = item.credits
        with self._lock:  # the credits return at once if the listener waits, otherwise in portions
            if item.number == self.number:
                count += self._unreturned
                may_wait = bool(self._queue.items) and count * 4 < self._window
                self._unreturned, count = (count, 0) if may_wait else (0, count)
        self._session.link.send_credit(item.number, count)

    def lost_events(self, frame: int, tick: int, time_ns: int, count: int) -> LostEvents:
        """Return the notice that a number of events of this subscription were lost."""
        env_ids = np.arange(self.first, self.first + self.count)
        return LostEvents(self.name, self._info, frame, tick, time_ns * 1e-9, env_ids, count)

    def _misread(self, info: StreamInfo, error: BaseException) -> None:
        """Report a message that could not be read; end the subscription if no message can be read."""
        try:
            by_name(info.type_name)
        except UnknownNameError as unknown:
            self.finish(f"this process cannot read its data: {unknown}")
        else:
            self._session.callbacks.report(self.name, None, error)

    def stop(self) -> None:
        """End the subscription; the listener is not called again. Repeated calls are allowed.

        The call waits until a running call of the listener has ended, except when a listener makes it. After about 5 s
        it returns with a warning even if the running call blocks.
        """
        self.ended = True
        self._session.forget(self)
        self._return_unread(self._queue.close())
        end = time.monotonic() + self._session.callbacks.patience
        with contextlib.suppress(StreamError):  # the server may be closed
            while not self._queue.wait(0.01) and time.monotonic() < end and self._session.pump(0.0):
                pass  # on the thread of a loop in this process, for which the listener may be waiting
        if self._queue.wait():
            self._queue.join(JOIN_S)  # so that its thread holds no more references
        self._callback = self._keeps = None

    def finish(self, reason: str) -> None:
        """End the subscription, and call `on_end` with the reason on the thread of the listener."""
        with self._lock:
            if self.ended:
                return
            self.ended, self.reason = True, reason
        self._session.forget(self)
        self._return_unread(self._queue.close(self._report_end))

    def _report_end(self) -> None:
        """Call `on_end` with the reason, on the thread of the queue, and then release `keeps`."""
        try:
            if self._on_end is not None:
                self._on_end(self.reason)
        except BaseException as error:
            self._session.callbacks.report(self.name, self._on_end, error)
        finally:
            self._callback = self._keeps = None
