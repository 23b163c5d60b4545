"""Frame counter: numbers frames, tracks their messages, and notifies clients of complete frames."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from sensorium.stream.subscription_table import SubscriptionTable
from sensorium.stream.subscriptions import LOG, Session, Subscription
from sensorium.wire import messages as msg

HELD_S = 1.0
"""Time that a frame waits for a capture before its sensor is reported, s."""


class FrameCounter:
    """Frame counter that notifies clients of complete frames in order, after all messages of worker threads were sent.

    Args:
        table: the subscriptions.
    """

    def __init__(self, table: SubscriptionTable) -> None:
        self._table, self._lock = table, table.lock
        self.frame = 0
        """Number of the last frame."""
        self.waiting: deque[tuple[int, int, int]] = deque()
        """Frame, tick and time (ns) of the frames that wait for messages of worker threads."""
        self._open: Counter[tuple[int, str]] = Counter()
        """Number of unresolved captures of each frame and sensor."""
        self._resolved: deque[tuple[int, str]] = deque()
        self._since = 0.0
        self._named: set[str] = set()
        self._sent: dict[int, dict[Subscription, list[int]]] = {}
        """Frame -> number of messages sent to each subscription, and number of lost messages."""

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
            self._open[frame, name] += 1

    def resolved(self, name: str, frame: int) -> None:
        """Register that such a message was sent or dropped; may be called during garbage collection, in any thread."""
        self._resolved.append((frame, name))

    def run_periodic(self) -> None:
        """Report the sensors that a frame has waited for too long; they delay all listeners of frames."""
        self.flush()  # captures that ended in a garbage collection on the socket's thread
        with self._lock:
            if not self.waiting or time.monotonic() - self._since < HELD_S:
                return
            frame = self.waiting[0][0]
            for name in sorted({name for number, name in self._open if number <= frame} - self._named):
                self._named.add(name)
                text = (
                    f"Frame {frame} is incomplete after {HELD_S:g} s: {name!r} has a capture of this or an "
                    "earlier frame that it has neither sent nor dropped"
                )
                LOG.warning("%s", text)
                self._table.slow.append(text)
                for session in self._table.frame_listeners():
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
            sent = self._sent.setdefault(frame, {})
            for each in receivers:
                sent.setdefault(each, [0, 0])[each in lost] += count

    def done(self, frame: int, tick: int, time_ns: int) -> None:
        """Register that all messages of a frame were sent, except those of captures."""
        with self._lock:
            if not self.waiting:
                self._since = time.monotonic()
            self.waiting.append((frame, tick, time_ns))
            self.flush()

    def flush(self) -> None:
        """Notify clients of all frames that are now complete."""
        with self._lock:
            while self._resolved:
                capture = self._resolved.popleft()
                self._open[capture] -= 1
                if self._open[capture] <= 0:
                    del self._open[capture]
            first = min(self._open)[0] if self._open else self.frame + 1
            while self.waiting and self.waiting[0][0] < first:
                done = self.waiting.popleft()
                self._since = time.monotonic()
                if listeners := self._table.frame_listeners():
                    self.announce(listeners, *done)
                for earlier in [number for number in self._sent if number < done[0]]:
                    del self._sent[earlier]
