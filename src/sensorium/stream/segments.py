"""Memory of messages: shared memory with the slots that are lent to clients, or buffers of the stream's pool."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from sensorium.errors import StreamError
from sensorium.stream.subscriptions import Payload, Session, Topic
from sensorium.wire import messages as msg
from sensorium.wire.packing import Place
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
        available: whether shared memory is available on this machine.
        sessions: all clients.
        send: function that sends a control message to a client.
    """

    def __init__(
        self, available: bool, sessions: Mapping[bytes, Session], send: Callable[[Session, msg.Message], None]
    ) -> None:
        self._available, self._sessions, self._send = available, sessions, send
        self._open: dict[int, SlotWriter] = {}
        self._retired: dict[int, SlotWriter] = {}
        self._created = 0

    def __len__(self) -> int:
        return len(self._open) + len(self._retired)

    def allocate(self, topic: Topic, size: int, sessions: Iterable[Session], in_slot: bool, body: Any) -> Payload:
        """Return memory for a message to some clients, in shared memory if one of them can read it.

        Args:
            topic: topic of the message.
            size: size of the message, bytes.
            sessions: clients that receive it.
            in_slot: whether shared memory may be used.
            body: body of the message if it never changes; it is then sent without a copy, unless shared memory is used.
        """
        if size <= SMALL:
            return Payload(bytearray(size), size)
        if in_slot and self._available and any(each.shares_memory for each in sessions):
            payload = self._slot(topic, size)
            if payload is not None:
                return payload
        if body is not None:
            return Payload(bytearray(size - len(body)), size, body=body)
        buffer = topic.pool.pop()
        buffer.reset(size)
        return Payload(buffer.view, size)

    def _slot(self, topic: Topic, size: int) -> Payload | None:
        writer = self._open.get(topic.segment)
        if writer is None or writer.slot_size < size:
            self.retire(topic)
            room = 2 * size if any(spec.is_ragged for spec in topic.info.specs) else size
            try:
                writer = self._open[self._created] = SlotWriter(room, SLOTS)
            except StreamError:  # no memory or descriptor is left: the socket carries the message
                return None
            topic.segment, self._created = self._created, self._created + 1
        slot = writer.take()
        if slot is None:
            return None
        data = np.frombuffer(writer.memory(slot)[:size], np.uint8)
        weakref.finalize(data, writer.release, slot).atexit = False
        return Payload(data, size, topic.segment, slot)

    def can_lend(self, session: Session, payload: Payload) -> bool:
        """Return whether a client can read a message in shared memory, and holds few slots of its segment."""
        return (
            session.shares_memory
            and payload.segment in self._open
            and sum(n for (segment, _), n in session.lent.items() if segment == payload.segment) < SLOTS_PER_CLIENT
        )

    def lend(self, session: Session, payload: Payload) -> bytes:
        """Lend a slot to a client, and return its place."""
        segment, writer = payload.segment, self._open[payload.segment]
        if segment not in session.segments:
            session.segments.add(segment)
            self._send(session, msg.Segment(segment, writer.name, writer.token, writer.slot_size, SLOTS))
        writer.retain(payload.slot)
        session.lent[segment, payload.slot] += 1
        return Place(segment, payload.slot, payload.size).pack()

    def release(self, session: Session, segment: int, slot: int, times: int = 1) -> None:
        """Release a slot that a client has read.

        Raises:
            ValueError: the client does not hold it.
        """
        place = segment, slot
        if session.lent[place] < times:
            raise ValueError(f"RELEASE of slot {slot} of segment {segment}, which the client does not hold")
        session.lent[place] -= times
        if not session.lent[place]:
            del session.lent[place]
        writer = self._open.get(segment) or self._retired.get(segment)
        if writer is not None:
            writer.release(slot, times)
        self.tidy()

    def release_all(self, session: Session) -> None:
        """Release all slots of a client that is gone."""
        for (segment, slot), times in list(session.lent.items()):
            self.release(session, segment, slot, times)

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
