"""The clients of a server, and what is to be sent to each of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from sensorium.stream.subscriptions import Session
from sensorium.wire import messages as say
from sensorium.wire.packing import CONTROL, Record

MOST_PER_ENVELOPE = 1024
"""Records that go in one message of the socket."""


class Outboxes:
    """Clients and their outboxes. All methods may be called by any thread.

    Args:
        wake: has the socket's thread send what is in the outboxes.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.lock = threading.RLock()
        self.has_room = threading.Condition(self.lock)
        """Notified when messages were taken, or subscriptions ended."""
        self.sessions: dict[bytes, Session] = {}
        self.slow: deque[str] = deque(maxlen=100)
        """Which clients were too slow, in words, until the owner of the server takes it."""
        self._wake = wake
        self._ready: dict[Session, None] = {}

    def tell(self, session: Session, message: say.Message) -> None:
        """Say something to one client."""
        self.put(session, Record(CONTROL, 0, 0, say.encode(message)))

    def tell_all(self, message: say.Message) -> None:
        """Say something to all clients."""
        record = Record(CONTROL, 0, 0, say.encode(message))
        with self.lock:
            for session in self.sessions.values():
                self.put(session, record)

    def note(self, session: Session, text: str, once: str = "") -> None:
        """Warn a client's user; of one thing once, where it has a word."""
        if once:
            if once in session.noted:
                return
            session.noted.add(once)
        self.tell(session, say.Note(text))

    def put(self, session: Session, record: Record) -> None:
        """Send a record to one client."""
        with self.lock:
            session.outbox.append(record)
            if session not in self._ready:
                self._ready[session] = None
        self._wake()

    @property
    def has_outgoing(self) -> bool:
        """Whether anything is to be sent."""
        return bool(self._ready)

    def outgoing(self) -> Iterator[tuple[Session, list[Record]]]:
        """Yield what is to be sent, for the socket's thread."""
        while True:
            with self.lock:
                if not self._ready:
                    return
                session = next(iter(self._ready))
                outbox = session.outbox
                if len(outbox) <= MOST_PER_ENVELOPE:
                    records = list(outbox)
                    outbox.clear()
                    del self._ready[session]
                else:
                    records = [outbox.popleft() for _ in range(MOST_PER_ENVELOPE)]
            if records:
                yield session, records

    def clear(self, session: Session) -> None:
        """Send nothing more to a client that is gone."""
        with self.lock:
            self._ready.pop(session, None)
            session.outbox.clear()


__all__ = ["Outboxes"]
