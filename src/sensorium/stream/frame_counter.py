"""Frame counter: numbers frames, tracks their messages, and notifies clients of complete frames."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from sensorium.stream.failures import LOG
from sensorium.stream.subscription_table import SubscriptionTable
from sensorium.stream.subscriptions import Session, Subscription
from sensorium.wire import messages as msg

HELD_S = 1.0
"""Time that a frame waits for a capture before its sensor is reported, s."""


class FrameCounter:
    """Frame counter that notifies clients of complete frames in order, after all messages of worker threads were sent.

    Args:
        table: the subscriptions.
    """

    def __init__(self, table: SubscriptionTable) -> None:
        self._table = table
        self.frame = 0
        """Number of the last frame."""
        self._lock = threading.RLock()
        self._open: dict[int, Counter[str]] = {}
        self._resolved: deque[tuple[str, int]] = deque()
        self._waiting: deque[tuple[int, int, int]] = deque()
        self._since = 0.0
        self._named: set[str] = set()
        self._sent: dict[int, dict[Subscription, list[int]]] = {}
        """Frame -> number of messages sent to each subscription, and number of lost messages."""
        self._announced = 0

    def next(self) -> int:
        """Start a frame and return its number."""
        self.frame += 1
        return self.frame

    @property
    def waiting(self) -> bool:
        """Whether frames wait for messages of worker threads."""
        return bool(self._waiting)

    def announce(self, sessions: Iterable[Session], frame: int, tick: int, time_ns: int) -> None:
        """Notify clients of the last complete frame; repeated notifications are allowed."""
        streams: set[int] = set()
        sent: dict[Session, list[tuple[int, int, int]]] = {}
        with self._lock:
            for each, (count, lost) in self._sent.get(frame, {}).items():
                streams.add(each.topic.info.id)
                sent.setdefault(each.session, []).append((each.number, count, lost))
        named = tuple(sorted(streams))
        for session in sessions:
            messages = tuple(sorted(sent.get(session, ())))
            self._table.send(session, msg.FrameDone(frame, tick, time_ns, named, messages))

    def capture(self, name: str, frame: int) -> None:
        """Register that a sensor will send a message of a frame later."""
        with self._lock:
            self._open.setdefault(frame, Counter())[name] += 1

    def resolved(self, name: str, frame: int) -> None:
        """Register that such a message was sent or dropped; may be called during garbage collection, in any thread."""
        self._resolved.append((name, frame))

    def run_periodic(self) -> None:
        """Report the sensors that a frame has waited for too long; they delay all listeners of frames."""
        with self._lock:
            if not self._waiting or time.monotonic() - self._since < HELD_S:
                return
            frame = self._waiting[0][0]
            names = {name for number, counts in self._open.items() if number <= frame for name in counts}
            for name in sorted(names - self._named):
                self._named.add(name)
                text = (
                    f"Frame {frame} is incomplete after {HELD_S:g} s: {name!r} has a capture of this or an "
                    "earlier frame that it has neither sent nor dropped"
                )
                LOG.warning("%s", text)
                self._table.slow.append(text)
                with self._table.lock:
                    for session in self._table.sessions.values():
                        if session.listens_to_frames:
                            self._table.send(session, msg.Note(text))

    def sent(
        self, frame: int, receivers: Iterable[Subscription], count: int = 1, lost: Sequence[Subscription] = ()
    ) -> None:
        """Register the messages of a frame.

        Args:
            frame: the frame.
            receivers: their subscriptions.
            count: number of messages.
            lost: receivers that lose them.
        """
        with self._lock:
            if frame < self._announced:
                return
            sent = self._sent.setdefault(frame, {})
            for each in receivers:
                counts = sent.setdefault(each, [0, 0])
                counts[each in lost] += count

    def done(self, frame: int, tick: int, time_ns: int) -> None:
        """Register that all messages of a frame were sent, except those of captures."""
        with self._lock:
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting.append((frame, tick, time_ns))
            self.flush()

    def flush_resolved(self) -> None:
        """Call `flush` if any capture was resolved since; called on the socket's thread."""
        if self._resolved:
            self.flush()

    def flush(self) -> None:
        """Notify clients of all frames that are now complete."""
        with self._lock:
            while self._resolved:
                name, frame = self._resolved.popleft()
                counts = self._open.get(frame)
                if counts is not None:
                    counts[name] -= 1
                    if counts[name] <= 0:
                        del counts[name]
                    if not counts:
                        del self._open[frame]
            while self._waiting and not any(frame <= self._waiting[0][0] for frame in self._open):
                frame, tick, time_ns = self._waiting.popleft()
                self._since = time.monotonic()
                with self._table.lock:
                    listeners = [each for each in self._table.sessions.values() if each.listens_to_frames]
                    if listeners:
                        self.announce(listeners, frame, tick, time_ns)
                self._announced = frame
                for earlier in [number for number in self._sent if number < frame]:
                    del self._sent[earlier]
