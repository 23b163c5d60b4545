"""Delivery: the only module that decides whether, when and how a message goes to a subscription.

A message is written once for all subscriptions with the same content (same envs, same branches). It is written to a
shared-memory slot if a receiver can read it, otherwise to a buffer of the pool. Credits limit the messages in transit
to a subscription, so a slow client delays only itself. A message that may not be sent yet is handled by the policy: it
is queued, replaces the queued message, or is lost.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from sensorium.errors import StreamError
from sensorium.stream.outboxes import Outboxes
from sensorium.stream.subscriptions import BYTES_QUEUED, Payload, Sent, Session, Share, Subscription, Topic
from sensorium.wire import messages as msg
from sensorium.wire.header import EVENTS, LOST, Header, type_id
from sensorium.wire.packing import DATA, PARTS, SLOT, Place, Record
from sensorium.wire.slots import SlotWriter

SMALL = 16 * 1024
"""Largest message that is combined with others in one block, bytes. Larger ones use a slot or a separate part."""
LARGE_UNDER_WAY, LARGE_IN_SLOTS = 3, 4
"""Maximum number of messages larger than `SMALL` in transit to one subscription, whatever its window. The first limit
applies to the socket, where more would slow down the receiver, whose memory is then never warm. The second applies to
shared memory."""
BYTES_UNDER_WAY = 64 * 2**20
"""Largest total size of small messages in transit to one subscription, bytes."""
SLOTS_PER_CLIENT = 6
"""Maximum number of slots of one segment that a client may hold; further messages are copied."""
SLOTS = 64
"""Number of slots of a segment. Unused slots take no memory."""
WAIT = 0
"""Not a record kind: the message may not be sent yet."""


class Delivery:
    """Delivery of messages to the outboxes of clients, by policy. All methods may be called by any thread.

    Args:
        outboxes: outboxes of the clients.
        end: function that ends a subscription with a reason.
        uses_slots: whether shared memory is available on this machine.
        most_held: largest total size of messages that are queued or in transit, for all clients together, bytes.
        patience: time that a step waits for slow lossless listeners, s; 0 if steps do not wait.
    """

    def __init__(
        self,
        outboxes: Outboxes,
        end: Callable[[Subscription, str], None],
        *,
        uses_slots: bool,
        most_held: int = 2**30,
        patience: float = 0.0,
    ) -> None:
        self._outboxes, self._end, self._uses_slots, self._patience = outboxes, end, uses_slots, patience
        self._lock, self._sessions, self._slow = outboxes.lock, outboxes.sessions, outboxes.slow
        self._has_room = outboxes.has_room
        self.most_held, self.held = most_held, 0
        """Current size of the messages held for clients, bytes; `most_held` is the limit."""
        self.sent_bytes = 0
        """Total size of the data sent to clients, bytes."""
        self.slow_client_reports: deque[str] = deque(maxlen=100)
        """Reports of clients that did not read in time during a step."""
        self._is_closing = False
        self._segments: dict[int, SlotWriter] = {}
        self._retired: dict[int, SlotWriter] = {}
        self._next_segment = 0

    # Memory of messages -----------------------------------------------------------------------------------------------

    def allocate(
        self, topic: Topic, size: int, receivers: list[Subscription], *, in_slot: bool = True, body: Any = None
    ) -> Payload:
        """Return memory for a message to some subscriptions, in shared memory if a receiver can read it.

        Args:
            topic: topic of the message.
            size: size of the message, bytes.
            receivers: subscriptions that receive it.
            in_slot: whether shared memory may be used.
            body: body of the message if it never changes; it is then sent without a copy, unless shared memory is used.
        """
        if size <= SMALL:
            return Payload(bytearray(size), size)
        if in_slot and self._uses_slots and any(each.session.shares_memory for each in receivers):
            payload = self._slot(topic, size)
            if payload is not None:
                return payload
        if body is not None:
            return Payload(bytearray(size - len(body)), size, body=body)
        buffer = topic.pool.pop()
        buffer.reset(size)
        return Payload(buffer.view, size)

    def _slot(self, topic: Topic, size: int) -> Payload | None:
        with self._lock:
            writer = self._segments.get(topic.segment)
            if writer is None or writer.slot_size < size:
                self.retire(topic)
                room = 2 * size if any(spec.is_ragged for spec in topic.info.specs) else size
                try:
                    writer = self._segments[self._next_segment] = SlotWriter(room, SLOTS)
                except StreamError:  # no memory or descriptor is left: the socket carries the message
                    return None
                topic.segment = self._next_segment
                self._next_segment += 1
            slot = writer.take()
            if slot is None:
                return None
            data = np.frombuffer(writer.memory(slot)[:size], np.uint8)
            weakref.finalize(data, writer.release, slot).atexit = False
            return Payload(data, size, topic.segment, slot)

    def retire(self, topic: Topic) -> None:
        """Retire the segment of a stream; it is closed when no client holds a slot of it."""
        with self._lock:
            writer = self._segments.pop(topic.segment, None)
            if writer is not None:
                self._retired[topic.segment] = writer
                for session in self._sessions.values():
                    if topic.segment in session.segments:
                        session.segments.discard(topic.segment)
                        self._outboxes.send(session, msg.Unmap(topic.segment))
                self.tidy()
            topic.segment = -1

    def tidy(self) -> None:
        """Close retired segments of which no client holds a slot; called periodically."""
        if not self._retired:
            return
        with self._lock:
            for segment, writer in list(self._retired.items()):
                if writer.free == writer.count:
                    writer.close()
                    del self._retired[segment]

    def release(self, session: Session, segment: int, slot: int, times: int = 1) -> None:
        """Release a slot that a client has read.

        Raises:
            ValueError: the client does not hold it.
        """
        with self._lock:
            held = session.held.get((segment, slot), 0)
            if held < times:
                raise ValueError(f"RELEASE of slot {slot} of segment {segment}, which the client does not hold")
            session.held[segment, slot] = held - times
            if held == times:
                del session.held[segment, slot]
            session.held_of[segment] -= times
            writer = self._segments.get(segment) or self._retired.get(segment)
            if writer is not None:
                writer.release(slot, times)
            self.tidy()

    @property
    def segments(self) -> int:
        """Number of segments of shared memory."""
        return len(self._segments) + len(self._retired)

    def close(self) -> None:
        """Release all memory."""
        for writer in [*self._segments.values(), *self._retired.values()]:
            writer.close()
        self._segments.clear()
        self._retired.clear()

    # Decisions --------------------------------------------------------------------------------------------------------

    def stop_waiting(self) -> None:
        """Stop all waiting steps, because the server closes."""
        with self._lock:
            self._is_closing = True
            self._has_room.notify_all()

    def with_room(self, receivers: list[Subscription]) -> list[Subscription]:
        """Wait in lock-step for slow lossless listeners; those that stay slow are reported and ended.

        Returns:
            The receivers that continue.
        """
        if not self._patience or not any(each.lossless and self._is_full(each) for each in receivers):
            return receivers
        must = [each for each in receivers if each.lossless and not each.topic.info.events]
        deadline = time.monotonic() + self._patience
        with self._lock:
            while full := [each for each in must if not each.ended and self._is_full(each)]:
                left = deadline - time.monotonic()
                if left <= 0.0 or self._is_closing:
                    break
                self._has_room.wait(left)
        for slow in [] if self._is_closing else full:
            text = (
                f"The step waited {self._patience:g} s for client {slow.session} to read "
                f"{slow.topic.info.name!r}. Its lossless subscription has ended"
            )
            self.slow_client_reports.append(text)
            self._slow.append(text)
            self._end(slow, f"too slow: the step waited {self._patience:g} s for it")
        return [each for each in receivers if not each.ended]

    def offer(self, payload: Payload, receivers: list[Subscription]) -> None:
        """Send a written message to subscriptions, by the policy of each."""
        with self._lock:
            for subscription in receivers:
                if subscription.ended:
                    continue
                if not subscription.queue and (kind := self._way(subscription, payload)):
                    record = self._sent(subscription, payload, kind)
                    if record is not None:
                        self._outboxes.put(subscription.session, record)
                elif not subscription.lossless:
                    self._replace(subscription, payload)
                elif not subscription.is_full and self._make_room(payload) and not subscription.ended:
                    self._send_lost_record(subscription)
                    self._enqueue(subscription, payload)
                elif subscription.topic.info.events and not subscription.ended:
                    self._count_lost(subscription, [payload])
                else:
                    waits = (
                        f"{subscription.limit} messages" if subscription.is_full else "a message without free memory"
                    )
                    fix = "Process data faster, increase queue=, or listen with policy='latest'"
                    self._end_slow(subscription, f"{waits} waited for the listener. {fix}")

    def _way(self, subscription: Subscription, payload: Payload) -> int:
        """Return the record kind for sending a message now; WAIT if it may not be sent yet."""
        if subscription.credit <= 0:
            return WAIT
        session, size, segment = subscription.session, payload.size, payload.segment
        if size <= SMALL:
            kind = DATA
        elif session.shares_memory and segment in self._segments and session.held_of.get(segment, 0) < SLOTS_PER_CLIENT:
            kind = SLOT
        else:
            kind = PARTS
        most = min(BYTES_QUEUED, self.most_held // (2 * max(len(self._sessions), 1)))
        if kind != SLOT and session.awaited and session.under_way + size > most:
            session.is_blocked = True
            return WAIT
        under_way = subscription.window - subscription.credit
        if payload.count > 1:
            return kind
        if kind == DATA:
            return kind if under_way * size < BYTES_UNDER_WAY else WAIT
        return kind if under_way < (LARGE_IN_SLOTS if kind == SLOT else LARGE_UNDER_WAY) else WAIT

    def _sent(self, subscription: Subscription, payload: Payload, kind: int) -> Record | None:
        """Register a message as sent and return its record; end the subscription and return None if it is too long."""
        session, size = subscription.session, payload.size
        if kind == PARTS:
            if size > session.max_message:
                reason = f"a message has {size} bytes, and the client accepts at most {session.max_message}"
                self._end(subscription, f"{reason}. Increase connect(..., max_message=...), or listen to fewer envs")
                return None
        subscription.credit -= payload.count
        dropped, subscription.dropped = subscription.dropped, 0
        self.sent_bytes += size
        session.sent += 1
        content, share = payload.data, payload.share
        if kind == DATA:
            share = Share(size)  # each client receives a copy
        elif kind == PARTS:
            content = (payload.data,) if payload.body is None else (payload.data, payload.body)
        elif kind == SLOT:
            content = self._lend(session, payload)
        if payload.count:  # otherwise no credit is returned for it
            if kind != SLOT:
                self._hold_share(share)
                session.under_way += size
                session.awaited += 1
            subscription.under_way.append(Sent(payload.count, session.sent, None if kind == SLOT else share))
        return Record(kind, subscription.number, dropped, content)

    def _lend(self, session: Session, payload: Payload) -> bytes:
        """Lend a slot to a client, and return its place."""
        segment, writer = payload.segment, self._segments[payload.segment]
        if segment not in session.segments:
            session.segments.add(segment)
            self._outboxes.send(session, msg.Segment(segment, writer.name, writer.token, writer.slot_size, SLOTS))
        writer.retain(payload.slot)
        place = (segment, payload.slot)
        session.held[place] = session.held.get(place, 0) + 1
        session.held_of[segment] = session.held_of.get(segment, 0) + 1
        return Place(segment, payload.slot, payload.size).pack()

    # Messages that may not be sent yet --------------------------------------------------------------------------------

    def _replace(self, subscription: Subscription, payload: Payload) -> None:
        """Replace the queued message of a listener with policy latest."""
        if subscription.queue:
            self._empty(subscription)
            subscription.dropped += 1
        if self._has_memory(payload):
            self._enqueue(subscription, payload)
        else:
            subscription.dropped += 1

    def _is_full(self, subscription: Subscription) -> bool:
        """Return whether a lossless subscription must read messages before it receives more."""
        return subscription.is_full or (subscription.queued > 0 and self.held >= self.most_held)

    def _has_memory(self, payload: Payload) -> bool:
        return payload.share.holders > 0 or self.held + payload.size <= self.most_held

    def _make_room(self, payload: Payload) -> bool:
        """Drop queued messages of the largest queues until a message fits; return whether it does."""
        while not self._has_memory(payload):
            everyone = [each for session in self._sessions.values() for each in session.subscriptions.values()]
            waiting = [each for each in everyone if each.queued]
            if not waiting:
                return False
            self._drop_queue(max(waiting, key=lambda each: each.queued_bytes))
        return True

    def _drop_queue(self, subscription: Subscription) -> None:
        """Drop all queued messages of a subscription, by its policy."""
        if not subscription.lossless:
            self._empty(subscription)
            subscription.dropped += 1
        elif subscription.topic.info.events:
            later, last = subscription.lost, subscription.last_lost
            self._count_lost(subscription, list(subscription.queue))
            if later:
                subscription.last_lost = last  # lost after the queued messages
            self._empty(subscription)
            self._send_lost_record(subscription)  # before any later message
            subscription.session.is_blocked = True
        else:
            size, most = subscription.queued_bytes / 1e6, self.most_held / 1e6
            reached = f"when the messages of all clients reached max_queued_mb={most:.4g}"
            fix = "Process data faster, listen with policy='latest', or serve with a higher max_queued_mb"
            self._end_slow(subscription, f"{size:.3g} MB waited for the listener {reached}. {fix}")

    def _end_slow(self, subscription: Subscription, why: str) -> None:
        """End a lossless subscription whose client is too slow."""
        if not subscription.ended:
            self._slow.append(f"Client {subscription.session} is too slow for {subscription.topic.info.name!r}: {why}")
            self._end(subscription, f"too slow: {why}")

    def _count_lost(self, subscription: Subscription, events: Iterable[Payload]) -> None:
        """Count events that a subscription loses."""
        if not subscription.lost:
            name = subscription.topic.info.name
            self._slow.append(f"Client {subscription.session} is too slow and loses events of {name!r}")
        for payload in events:
            header = Header.peek(payload.data)
            subscription.lost += payload.count or header.lost  # without a count it is a record of lost events
            subscription.last_lost = header

    def _send_lost_record(self, subscription: Subscription) -> None:
        """Queue a record of the events lost since the last one, if there are any."""
        if subscription.lost:
            (first, count, _), lost = subscription.key, subscription.lost
            told = {"first_env": first, "num_envs": count, "lost": lost, "rows": 0, "poses": 0, "body_bytes": 0}
            kind = type_id(subscription.topic.info.type_name)
            head = subscription.last_lost._replace(flags=LOST | EVENTS, type_id=kind, **told).pack()
            self._enqueue(subscription, Payload(head, len(head), count=0))
            subscription.lost = 0

    # Credits ----------------------------------------------------------------------------------------------------------

    def give_credit(self, session: Session, number: int, more: int) -> None:
        """Add credits for messages that a client read, and send it queued messages.

        Raises:
            ValueError: more credits than messages in transit.
        """
        with self._lock:
            subscription = session.subscriptions.get(number)
            if subscription is None:
                return  # ended in the meantime
            subscription.credit += more
            if subscription.credit > subscription.window:
                raise ValueError(f"CREDIT of {more} for subscription {number}, more than the messages in transit")
            self._take_credit(subscription, more)
            self._flush(subscription)
            if session.is_blocked:
                session.is_blocked = False
                for other in list(session.subscriptions.values()):
                    self._flush(other)

    def _take_credit(self, subscription: Subscription, more: int) -> None:
        """Register the arrival of messages in transit, and of all messages sent before them."""
        session, place = subscription.session, -1
        while more > 0 and subscription.under_way:
            sent = subscription.under_way[0]
            taken = min(more, sent.count)
            sent.count, more = sent.count - taken, more - taken
            if not sent.count:
                subscription.under_way.popleft()
                session.awaited -= sent.share is not None
                self._note_arrival(session, sent)
                place = sent.place
        read = [each for each in session.orphans if each.place < place]
        if read:
            session.orphans = [each for each in session.orphans if each.place > place]
            for sent in read:
                self._note_arrival(session, sent)

    def _flush(self, subscription: Subscription) -> None:
        queue = subscription.queue
        was_full = self._is_full(subscription)
        while queue and (kind := self._way(subscription, queue[0])):
            record = self._sent(subscription, self._dequeue(subscription), kind)
            if record is not None:
                self._outboxes.put(subscription.session, record)
            if not queue:
                self._send_lost_record(subscription)  # one more loop iteration
        if was_full and not self._is_full(subscription):
            self._has_room.notify_all()

    def abandon(self, subscription: Subscription) -> None:
        """Drop the queued messages of a subscription that ends; messages in transit count until a later credit."""
        with self._lock:
            self._empty(subscription)
            session = subscription.session
            session.orphans.extend(subscription.under_way)
            session.awaited -= sum(each.share is not None for each in subscription.under_way)
            subscription.under_way.clear()

    def forget(self, session: Session) -> None:
        """Release everything held by a client that is gone."""
        with self._lock:
            for (segment, slot), times in list(session.held.items()):
                self.release(session, segment, slot, times)
            for sent in session.orphans:
                self._note_arrival(session, sent)
            session.orphans.clear()

    def _note_arrival(self, session: Session, sent: Sent) -> None:
        if sent.share is not None:
            session.under_way -= sent.share.size
            self._release_share(sent.share)

    def _hold_share(self, share: Share) -> None:
        if not share.holders:
            self.held += share.size
        share.holders += 1

    def _release_share(self, share: Share) -> None:
        share.holders -= 1
        if not share.holders:
            was_full = self.held >= self.most_held
            self.held -= share.size
            if was_full and self.held < self.most_held:
                self._has_room.notify_all()

    def _enqueue(self, subscription: Subscription, payload: Payload) -> None:
        self._hold_share(payload.share)
        subscription.queue.append(payload)
        subscription.queued += payload.count
        subscription.queued_bytes += payload.size

    def _dequeue(self, subscription: Subscription) -> Payload:
        payload = subscription.queue.popleft()
        subscription.queued -= payload.count
        subscription.queued_bytes -= payload.size
        self._release_share(payload.share)
        return payload

    def _empty(self, subscription: Subscription) -> None:
        while subscription.queue:
            self._dequeue(subscription)
