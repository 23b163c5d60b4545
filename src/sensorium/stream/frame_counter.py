"""Frame counter: numbers frames, tracks their messages, and notifies clients of complete frames."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping

from sensorium.stream.failures import LOG
from sensorium.stream.outboxes import Outboxes
from sensorium.stream.subscriptions import Session, Subscription
from sensorium.wire import messages as msg

HELD_S = 1.0
"""Time that a frame waits for a capture before its sensor is reported, s."""


class FrameCounter:
    """Frame counter that notifies clients of complete frames in order, after all messages of worker threads were sent.

    Args:
        outboxes: outboxes of the clients.
    """

    def __init__(self, outboxes: Outboxes) -> None:
        self._outboxes = outboxes
        self.frame = 0
        """Number of the last frame."""
        self._lock = threading.RLock()
        self._open: dict[int, Counter[str]] = {}
        self._resolved: deque[tuple[str, int]] = deque()
        self._waiting: deque[tuple[int, int, int]] = deque()
        self._since = 0.0
        self._named: set[str] = set()
        self._sent: dict[int, Counter[Subscription]] = {}
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
        sent: dict[Session, dict[int, int]] = {}
        with self._lock:
            for each, count in self._sent.get(frame, Counter()).items():
                streams.add(each.topic.info.id)
                sent.setdefault(each.session, {})[each.number] = count
        named = tuple(sorted(streams))
        for session in sessions:
            theirs = sorted(sent.get(session, {}).items())
            numbers, counts = tuple(number for number, _ in theirs), tuple(count for _, count in theirs)
            self._outboxes.send(session, msg.FrameDone(frame, tick, time_ns, named, numbers, counts))

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
                self._outboxes.slow.append(text)
                with self._outboxes.lock:
                    for session in self._outboxes.sessions.values():
                        if session.listens_to_frames:
                            self._outboxes.note(session, text)

    def sent(self, frame: int, receivers: Iterable[Subscription] | Mapping[Subscription, int]) -> None:
        """Register the receivers of a message of a frame: once per message, or the number of messages per receiver."""
        with self._lock:
            if frame >= self._announced:
                self._sent.setdefault(frame, Counter()).update(receivers)

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
                with self._outboxes.lock:
                    listeners = [each for each in self._outboxes.sessions.values() if each.listens_to_frames]
                    if listeners:
                        self.announce(listeners, frame, tick, time_ns)
                self._announced = frame
                for earlier in [number for number in self._sent if number < frame]:
                    del self._sent[earlier]
