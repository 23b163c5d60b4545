"""Shared memory of messages: the slots that are lent to clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sensorium.errors import StreamError
from sensorium.stream.subscriptions import Payload, Session, Topic
from sensorium.wire import messages as msg
from sensorium.wire.packing import PLACE
from sensorium.wire.slots import SlotWriter

SMALL = 16 * 1024
"""Largest message that shares a part with its head, bytes. Larger ones use a slot or separate parts."""
SLOTS_PER_CLIENT = 6
"""Maximum number of slots of one segment that a client may hold; further messages are copied."""
SLOTS = 64
"""Number of slots of a segment. Unused slots take no memory."""


class Segments:
    """Segments of shared memory, one per stream with large messages. The caller holds the lock of the subscriptions.

    Args:
        sessions: all clients.
        send: function that sends a control message to a client.
    """

    def __init__(self, sessions: Mapping[bytes, Session], send: Callable[[Session, msg.Message], None]) -> None:
        self._sessions, self._send = sessions, send
        self._open: dict[int, SlotWriter] = {}
        self._retired: dict[int, SlotWriter] = {}
        self._created = 0

    def __len__(self) -> int:
        return len(self._open) + len(self._retired)

    def allocate(self, topic: Topic, size: int) -> Payload | None:
        """Return shared memory for a message of a topic; None if there is none left."""
        writer = self._open.get(topic.segment)
        if writer is None or writer.slot_size < size:
            self.retire(topic)
            room = 2 * size if any(spec.is_ragged for spec in topic.info.specs) else size
            try:
                writer = self._open[self._created] = SlotWriter(room, SLOTS)
            except StreamError:  # no memory or descriptor is left: the socket carries the message
                return None
            topic.segment, self._created = self._created, self._created + 1
        if (taken := writer.take()) is None:
            return None
        slot, memory = taken
        return Payload(memory[:size], size, topic.segment, slot)

    def can_lend(self, session: Session, payload: Payload) -> bool:
        """Return whether a client can read a message in shared memory, and holds few slots of its segment."""
        if payload.segment not in self._open:
            return False
        held = [len(lent) for (segment, _), lent in session.lent.items() if segment == payload.segment]
        return sum(held) < SLOTS_PER_CLIENT

    def lend(self, session: Session, payload: Payload) -> bytes:
        """Lend a slot to a client, and return its place."""
        segment, writer = payload.segment, self._open[payload.segment]
        if segment not in session.segments:
            session.segments.add(segment)
            self._send(session, msg.Segment(segment, writer.name, writer.token, writer.slot_size, SLOTS))
        session.lent.setdefault((segment, payload.slot), []).append(payload.data)
        return PLACE.pack(segment, payload.slot, payload.size)

    def release(self, session: Session, segment: int, slot: int) -> None:
        """Release a slot that a client has read.

        Raises:
            ValueError: the client does not hold it.
        """
        if not (held := session.lent.get((segment, slot))):
            raise ValueError(f"RELEASE of slot {slot} of segment {segment}, which the client does not hold")
        held.pop()
        if not held:
            del session.lent[segment, slot]
        self.tidy()

    def retire(self, topic: Topic) -> None:
        """Retire the segment of a stream; it is closed when no client holds a slot of it."""
        writer = self._open.pop(topic.segment, None)
        if writer is not None:
            self._retired[topic.segment] = writer
            for session in self._sessions.values():
                if topic.segment in session.segments:
                    session.segments.discard(topic.segment)
                    self._send(session, msg.Unmap(topic.segment))
            self.tidy()
        topic.segment = -1

    def tidy(self) -> None:
        """Close retired segments of which no client holds a slot; called periodically."""
        for segment, writer in list(self._retired.items()):
            if writer.free == writer.count:
                writer.close()
                del self._retired[segment]

    def close(self) -> None:
        """Release all memory."""
        for writer in [*self._open.values(), *self._retired.values()]:
            writer.close()
        self._open.clear()
        self._retired.clear()
