"""The one place that decides whether, when and how a message goes to a subscription.

One message is written once for all subscriptions that get the same (same envs, same branches), into a shared-memory
slot where one of its receivers can read that, else into a buffer of the pool. Credits bound what is under way to a
subscription, so a slow client delays only itself. A message that may not be sent yet waits in the queue of the
subscription, replaces the one that waits there, or is lost, as the policy says.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from sensorium.stream.outboxes import Outboxes
from sensorium.stream.subscriptions import BYTES_QUEUED, Payload, Sent, Session, Share, Subscription, Topic
from sensorium.wire import messages as say
from sensorium.wire.header import EVENTS, LOST, Header, type_id
from sensorium.wire.packing import DATA, PARTS, SLOT, Place, Record
from sensorium.wire.slots import SlotWriter

SMALL = 16 * 1024
"""Bytes up to which a message goes with others in one block, instead of in a slot or a part of its own."""
LARGE_UNDER_WAY, LARGE_IN_SLOTS = 3, 4
"""Messages larger than that which may be under way to one subscription, whatever its window: through the socket (more
of them slow the receiver down, whose memory is then never warm), and in shared memory."""
BYTES_UNDER_WAY = 64 * 2**20
"""Bytes of small messages under way to one subscription, at most."""
SLOTS_PER_CLIENT = 6
"""Slots of one segment that one client may hold; what it gets beyond them are copies."""
SLOTS = 64
"""Slots of a segment. Those never used take no memory."""
WAIT = 0
"""No kind of record: the message may not be sent yet."""


class Delivery:
    """Decides about each message, and puts it into the outbox of its client. All methods may be called by any thread.

    Args:
        outboxes: of the clients.
        end: ends a subscription with a reason.
        uses_slots: whether shared memory is available on this machine.
        most_held: bytes of messages that wait, or are under way, for all clients together.
        patience: seconds that a step waits for slow listeners that must lose nothing; 0 where no step waits.
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
        """Bytes of messages that may be held for clients, and that are."""
        self.sent_bytes = 0
        """Bytes of data given to clients."""
        self.complaints: deque[str] = deque(maxlen=100)
        """Slow clients that a step waited for in vain, in words."""
        self._is_closing = False
        self._segments: dict[int, SlotWriter] = {}
        self._retired: dict[int, SlotWriter] = {}
        self._next_segment = 0

    # Memory of messages -----------------------------------------------------------------------------------------------

    def allocate(
        self, topic: Topic, size: int, receivers: list[Subscription], *, in_slot: bool = True, body: Any = None
    ) -> Payload:
        """Return memory for one message to some subscriptions, in shared memory where one of them can read that.

        Args:
            topic: whose message it is.
            size: its bytes.
            receivers: subscriptions that get it.
            in_slot: whether shared memory may be used.
            body: its body, where that stays as it is: it is then sent as it is, unless shared memory is used.
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
                topic.segment = self._next_segment
                self._next_segment += 1
                room = 2 * size if any(spec.is_ragged for spec in topic.info.specs) else size
                writer = self._segments[topic.segment] = SlotWriter(room, SLOTS)
            slot = writer.take()
            if slot is None:
                return None
            data = np.frombuffer(writer.memory(slot)[:size], np.uint8)
            weakref.finalize(data, writer.release, slot).atexit = False
            return Payload(data, size, topic.segment, slot)

    def retire(self, topic: Topic) -> None:
        """Use the segment of a stream no more; it is closed once no client holds a slot of it."""
        with self._lock:
            writer = self._segments.pop(topic.segment, None)
            if writer is not None:
                self._retired[topic.segment] = writer
                for session in self._sessions.values():
                    if topic.segment in session.segments:
                        session.segments.discard(topic.segment)
                        self._outboxes.tell(session, say.Unmap(topic.segment))
                self.tidy()
            topic.segment = -1

    def tidy(self) -> None:
        """Close segments that are not used any more once no client holds a slot of them; called now and then."""
        if not self._retired:
            return
        with self._lock:
            for segment, writer in list(self._retired.items()):
                if writer.free == writer.count:
                    writer.close()
                    del self._retired[segment]

    def release(self, session: Session, segment: int, slot: int, times: int = 1) -> None:
        """Note that a client is done with a slot.

        Raises:
            ValueError: it does not hold it.
        """
        with self._lock:
            held = session.held.get((segment, slot), 0)
            if held < times:
                raise ValueError(f"RELEASE of slot {slot} of segment {segment}, which it does not hold")
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
        """Give all memory back."""
        for writer in [*self._segments.values(), *self._retired.values()]:
            writer.close()
        self._segments.clear()
        self._retired.clear()

    # Decisions --------------------------------------------------------------------------------------------------------

    def stop_waiting(self) -> None:
        """Let no step wait any more, since the server closes."""
        with self._lock:
            self._is_closing = True
            self._has_room.notify_all()

    def with_room(self, receivers: list[Subscription]) -> list[Subscription]:
        """Wait in lock-step for slow listeners that must lose nothing; the others are named and ended.

        Returns:
            Those of the receivers that go on.
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
                f"the step waited {self._patience:g} s for client {slow.session} to take data of "
                f"{slow.topic.info.name!r}; its lossless subscription is ended"
            )
            self.complaints.append(text)
            self._slow.append(text)
            self._end(slow, f"too slow: the step waited {self._patience:g} s for it")
        return [each for each in receivers if not each.ended]

    def offer(self, payload: Payload, receivers: list[Subscription]) -> None:
        """Give a message that was written to subscriptions, each after its policy."""
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
                    self._tell_lost(subscription)
                    self._enqueue(subscription, payload)
                elif subscription.topic.info.events and not subscription.ended:
                    self._lose(subscription, [payload])
                else:
                    waits = f"{subscription.limit} messages" if subscription.is_full else "a message that has no room"
                    fix = "Take them faster, raise queue=, or listen with policy='latest'"
                    self._end_slow(subscription, f"{waits} waited for it. {fix}")

    def _way(self, subscription: Subscription, payload: Payload) -> int:
        """Return the kind of record that a message may go out as now; WAIT where it may not."""
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
        """Note that a message goes out, and return its record; None where it is too long, and the subscription ends."""
        session, size = subscription.session, payload.size
        if kind == PARTS:
            if payload.segment in self._segments and session.shares_memory:
                self._warn_of_copies(subscription)
            if size > session.max_message:
                reason = f"a message of {size} bytes is longer than the {session.max_message} that the client takes"
                self._end(subscription, f"{reason}: connect(..., max_message=...), or listen to fewer envs")
                return None
        subscription.credit -= payload.count
        dropped, subscription.dropped = subscription.dropped, 0
        self.sent_bytes += size
        session.sent += 1
        content, share = payload.data, payload.share
        if kind == DATA:
            share = Share(size)  # each client gets a copy
        elif kind == PARTS:
            content = (payload.data,) if payload.body is None else (payload.data, payload.body)
        elif kind == SLOT:
            content = self._lend(session, payload)
        if payload.count:  # else no credit comes back for it
            if kind != SLOT:
                self._hold(share)
                session.under_way += size
                session.awaited += 1
            subscription.under_way.append(Sent(payload.count, session.sent, None if kind == SLOT else share))
        return Record(kind, subscription.number, dropped, content)

    def _lend(self, session: Session, payload: Payload) -> bytes:
        """Lend a slot to a client, and return its place."""
        segment, writer = payload.segment, self._segments[payload.segment]
        if segment not in session.segments:
            session.segments.add(segment)
            self._outboxes.tell(session, say.Segment(segment, writer.name, writer.token, writer.slot_size, SLOTS))
        writer.retain(payload.slot)
        place = (segment, payload.slot)
        session.held[place] = session.held.get(place, 0) + 1
        session.held_of[segment] = session.held_of.get(segment, 0) + 1
        return Place(segment, payload.slot, payload.size).pack()

    def _warn_of_copies(self, subscription: Subscription) -> None:
        name = subscription.topic.info.name
        text = (
            f"{name!r}: {SLOTS_PER_CLIENT} of its messages are kept alive by views of them, which is all the shared "
            "memory that one client may hold. What comes now are copies, which is slower: keep data.copy() instead of "
            "data or arrays of it"
        )
        self._outboxes.note(subscription.session, text, once=f"holds {name}")

    # What may not be sent yet -----------------------------------------------------------------------------------------

    def _replace(self, subscription: Subscription, payload: Payload) -> None:
        """Have a message take the place of the one that waits for a listener of the latest."""
        if subscription.queue:
            self._empty(subscription)
            subscription.dropped += 1
        if self._has_memory(payload):
            self._enqueue(subscription, payload)
        else:
            subscription.dropped += 1

    def _is_full(self, subscription: Subscription) -> bool:
        """Whether a lossless subscription must take messages before it gets more."""
        return subscription.is_full or (subscription.queued > 0 and self.held >= self.most_held)

    def _has_memory(self, payload: Payload) -> bool:
        return payload.share.holders > 0 or self.held + payload.size <= self.most_held

    def _make_room(self, payload: Payload) -> bool:
        """Have those that keep most waiting give way, until there is room for one message; return whether there is."""
        while not self._has_memory(payload):
            everyone = [each for session in self._sessions.values() for each in session.subscriptions.values()]
            waiting = [each for each in everyone if each.queued]
            if not waiting:
                return False
            self._give_way(max(waiting, key=lambda each: each.queued_bytes))
        return True

    def _give_way(self, subscription: Subscription) -> None:
        """Take from a subscription all that waits for it, as its policy says."""
        if not subscription.lossless:
            self._empty(subscription)
            subscription.dropped += 1
        elif subscription.topic.info.events:
            later, last = subscription.lost, subscription.last_lost
            self._lose(subscription, list(subscription.queue))
            if later:
                subscription.last_lost = last  # it was lost after those that waited
            self._empty(subscription)
            self._tell_lost(subscription)  # ahead of what comes next
            subscription.session.is_blocked = True
        else:
            size, most = subscription.queued_bytes / 1e6, self.most_held / 1e6
            reached = f"when the messages of all clients reached max_queued_mb={most:.4g}"
            fix = "Take them faster, listen with policy='latest', or serve with a higher max_queued_mb"
            self._end_slow(subscription, f"{size:.3g} MB waited for it {reached}. {fix}")

    def _end_slow(self, subscription: Subscription, why: str) -> None:
        """End a lossless subscription whose client is too slow."""
        if not subscription.ended:
            self._slow.append(f"client {subscription.session}, {subscription.topic.info.name!r}: too slow: {why}")
            self._end(subscription, f"too slow: {why}")

    def _lose(self, subscription: Subscription, events: Iterable[Payload]) -> None:
        """Count events that a subscription does not get."""
        if not subscription.lost:
            name = subscription.topic.info.name
            self._slow.append(f"client {subscription.session} is too slow: it loses events of {name!r}")
        for payload in events:
            header = Header.peek(payload.data)
            subscription.lost += payload.count or header.lost  # without a count it is a record of such events
            subscription.last_lost = header

    def _tell_lost(self, subscription: Subscription) -> None:
        """Put a record of the events that were lost since into the queue, where there were any."""
        if subscription.lost:
            (first, count, _), lost = subscription.key, subscription.lost
            told = {"first_env": first, "num_envs": count, "lost": lost, "rows": 0, "poses": 0, "body_bytes": 0}
            kind = type_id(subscription.topic.info.type_name)
            head = subscription.last_lost._replace(flags=LOST | EVENTS, type_id=kind, **told).pack()
            self._enqueue(subscription, Payload(head, len(head), count=0))
            subscription.lost = 0

    # Credits ----------------------------------------------------------------------------------------------------------

    def give_credit(self, session: Session, number: int, more: int) -> None:
        """Note that a client took messages, and send it what waits.

        Raises:
            ValueError: more than were under way.
        """
        with self._lock:
            subscription = session.subscriptions.get(number)
            if subscription is None:
                return  # it ended meanwhile
            subscription.credit += more
            if subscription.credit > subscription.window:
                raise ValueError(f"CREDIT of {more} to subscription {number}, more than was under way")
            self._take_credit(subscription, more)
            self._flush(subscription)
            if session.is_blocked:
                session.is_blocked = False
                for other in list(session.subscriptions.values()):
                    self._flush(other)

    def _take_credit(self, subscription: Subscription, more: int) -> None:
        """Note that messages under way have arrived, and with them all that was sent before."""
        session, place = subscription.session, -1
        while more > 0 and subscription.under_way:
            sent = subscription.under_way[0]
            taken = min(more, sent.count)
            sent.count, more = sent.count - taken, more - taken
            if not sent.count:
                subscription.under_way.popleft()
                session.awaited -= sent.share is not None
                self._landed(session, sent)
                place = sent.place
        read = [each for each in session.orphans if each.place < place]
        if read:
            session.orphans = [each for each in session.orphans if each.place > place]
            for sent in read:
                self._landed(session, sent)

    def _flush(self, subscription: Subscription) -> None:
        queue = subscription.queue
        was_full = self._is_full(subscription)
        while queue and (kind := self._way(subscription, queue[0])):
            record = self._sent(subscription, self._dequeue(subscription), kind)
            if record is not None:
                self._outboxes.put(subscription.session, record)
            if not queue:
                self._tell_lost(subscription)  # goes around once more
        if was_full and not self._is_full(subscription):
            self._has_room.notify_all()

    def abandon(self, subscription: Subscription) -> None:
        """Drop what waits for a subscription that ends; what is under way to it counts until a later credit."""
        with self._lock:
            self._empty(subscription)
            session = subscription.session
            session.orphans.extend(subscription.under_way)
            session.awaited -= sum(each.share is not None for each in subscription.under_way)
            subscription.under_way.clear()

    def forget(self, session: Session) -> None:
        """Take back what a client that is gone held."""
        with self._lock:
            for (segment, slot), times in list(session.held.items()):
                self.release(session, segment, slot, times)
            for sent in session.orphans:
                self._landed(session, sent)
            session.orphans.clear()

    def _landed(self, session: Session, sent: Sent) -> None:
        if sent.share is not None:
            session.under_way -= sent.share.size
            self._let_go(sent.share)

    def _hold(self, share: Share) -> None:
        if not share.holders:
            self.held += share.size
        share.holders += 1

    def _let_go(self, share: Share) -> None:
        share.holders -= 1
        if not share.holders:
            was_full = self.held >= self.most_held
            self.held -= share.size
            if was_full and self.held < self.most_held:
                self._has_room.notify_all()

    def _enqueue(self, subscription: Subscription, payload: Payload) -> None:
        self._hold(payload.share)
        subscription.queue.append(payload)
        subscription.queued += payload.count
        subscription.queued_bytes += payload.size

    def _dequeue(self, subscription: Subscription) -> Payload:
        payload = subscription.queue.popleft()
        subscription.queued -= payload.count
        subscription.queued_bytes -= payload.size
        self._let_go(payload.share)
        return payload

    def _empty(self, subscription: Subscription) -> None:
        while subscription.queue:
            self._dequeue(subscription)


__all__ = ["SMALL", "Delivery"]
