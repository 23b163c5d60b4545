"""Clients of a server, and the outgoing messages of each."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from sensorium.stream.subscriptions import Session
from sensorium.wire import messages as msg
from sensorium.wire.packing import CONTROL, Record

MOST_PER_ENVELOPE = 1024
"""Maximum number of records in one message of the socket."""


class Outboxes:
    """Clients and their outboxes. All methods may be called by any thread.

    Args:
        wake: function that makes the socket's thread send the contents of the outboxes.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.lock = threading.RLock()
        self.has_room = threading.Condition(self.lock)
        """Notified when messages were read, or subscriptions ended."""
        self.sessions: dict[bytes, Session] = {}
        self.slow: deque[str] = deque(maxlen=100)
        """Reports of clients that were too slow, until the owner of the server reads them."""
        self._wake = wake
        self._ready: dict[Session, None] = {}

    def send(self, session: Session, message: msg.Message) -> None:
        """Send a control message to one client."""
        self.put(session, Record(CONTROL, 0, 0, msg.encode(message)))

    def send_to_all(self, message: msg.Message) -> None:
        """Send a control message to all clients."""
        record = Record(CONTROL, 0, 0, msg.encode(message))
        with self.lock:
            for session in self.sessions.values():
                self.put(session, record)

    def note(self, session: Session, text: str) -> None:
        """Send a warning for a client's user."""
        self.send(session, msg.Note(text))

    def put(self, session: Session, record: Record) -> None:
        """Send a record to one client."""
        with self.lock:
            session.outbox.append(record)
            if session not in self._ready:
                self._ready[session] = None
        self._wake()

    @property
    def has_outgoing(self) -> bool:
        """Whether any message is waiting to be sent."""
        return bool(self._ready)

    def outgoing(self) -> Iterator[tuple[Session, list[Record]]]:
        """Yield the messages to send, for the socket's thread."""
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
        """Discard all outgoing messages to a client that is gone."""
        with self.lock:
            self._ready.pop(session, None)
            session.outbox.clear()
