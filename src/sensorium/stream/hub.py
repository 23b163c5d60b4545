"""Who listens to what, and what each of them gets: topics, sessions, subscriptions and their policies. No sockets here.

One message is written once for all subscriptions that get the same (same envs, same branches), into a shared-memory
slot where one of its receivers can read that, else into a buffer of the pool. Credits bound what is under way to a
subscription: a slow client holds up nobody but itself.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from sensorium.wire import messages as say
from sensorium.wire.buffers import Buffer, BufferPool
from sensorium.wire.header import EVENTS, LOST, Header, type_id
from sensorium.wire.packing import CONTROL, DATA, PART, PARTS, SLOT, Place, Record
from sensorium.wire.slots import SlotWriter
from sensorium.wire.stream_info import StreamInfo

SMALL = 16 * 1024
"""Bytes up to which a message goes with others in one block, instead of in a slot or a part of its own."""
LARGE_UNDER_WAY, LARGE_IN_SLOTS = 3, 4
"""Messages larger than that which may be under way to one subscription, whatever its window: through the socket (more
of them slow the receiver down, whose memory is then never warm), and in shared memory."""
BYTES_UNDER_WAY, BYTES_QUEUED = 64 * 2**20, 256 * 2**20
"""Bytes of small messages under way to one subscription, and bytes that wait for it, at most. No client has more than
the second under way; what all clients have waiting and under way is bounded besides, see `Hub`."""
SLOTS_PER_CLIENT = 6
"""Slots of one segment that one client may hold; what it gets beyond them are copies."""
SLOTS = 64
"""Slots of a segment. Those never used take no memory."""
MOST_SUBSCRIPTIONS = 1024
"""Subscriptions that one client may have."""
MOST_PER_ENVELOPE = 1024
"""Records that go in one message of the socket."""


class Share:
    """Memory of a message that queues and connections hold together: it counts once.

    Args:
        size: its bytes.
    """

    __slots__ = ("holders", "size")

    def __init__(self, size: int) -> None:
        self.size, self.holders = size, 0


@dataclass(slots=True)
class Sent:
    """A message under way to a subscription.

    Args:
        count: credits that have yet to come back.
        place: number of the message among all that its client was sent.
        share: its memory; None where that is shared with the client.
    """

    count: int
    place: int
    share: Share | None


Key = tuple[int, int, bool]
"""What a subscription gets of a sample: first env, number of envs, whether with the ground truth."""


class Payload:
    """One data message in memory.

    Args:
        data: its bytes, writable until it is offered.
        size: number of them.
        segment: number of the shared-memory segment it is in; -1 for none.
        slot: number of the slot.
        count: messages that it stands for; of a bundle several.
        body: its body, where that is memory of its own that nobody writes to any more; `data` is header and poses then.
    """

    __slots__ = ("body", "count", "data", "segment", "share", "size", "slot")

    def __init__(
        self, data: Any, size: int, segment: int = -1, slot: int = -1, count: int = 1, body: Any = None
    ) -> None:
        self.data, self.size, self.segment, self.slot, self.count = data, size, segment, slot, count
        self.body, self.share = body, Share(size)


@dataclass(slots=True, eq=False)
class Session:
    """One client.

    Args:
        route: what the socket addresses it by.
        name: what it calls itself.
        pid: of its process.
        host: where that runs.
    """

    route: bytes
    name: str
    pid: int
    host: str
    number: int = 0
    shares_memory: bool = False
    """Whether it can read our slots."""
    max_message: int = 2**30
    """Most bytes of a message that it takes through the socket; a longer one would break the connection."""
    hears_frames: bool = False
    last_seen: float = 0.0
    greeted: float = 0.0
    last_pong: float = 0.0
    outbox: deque[Record] = field(default_factory=deque, repr=False)
    subscriptions: dict[int, Subscription] = field(default_factory=dict, repr=False)
    held: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)
    """(segment, slot) -> how often it was lent."""
    held_of: dict[int, int] = field(default_factory=dict, repr=False)
    """Segment -> slots lent."""
    segments: set[int] = field(default_factory=set, repr=False)
    """Segments it was told of."""
    sensors: set[str] = field(default_factory=set, repr=False)
    """Names of the sensors it spawned."""
    noted: set[str] = field(default_factory=set, repr=False)
    """What it was warned of."""
    under_way: int = 0
    """Bytes under way, also to subscriptions that have ended: the client has not shown yet that it has read them."""
    awaited: int = 0
    """Messages among them that a credit will come back for."""
    sent: int = 0
    """Messages that it was sent."""
    is_blocked: bool = False
    """Whether a message waits only since so many bytes are under way."""
    orphans: list[Sent] = field(default_factory=list, repr=False)
    """Messages under way to subscriptions that have ended: a credit for a later one shows that they were read."""
    requests: int = 0
    """Requests that wait for the owner of the loop."""

    def __str__(self) -> str:
        return f"{self.name!r} (process {self.pid} on {self.host})"


@dataclass(slots=True, eq=False)
class Subscription:
    """One client's wish for the data of one topic."""

    session: Session
    number: int
    topic: Topic
    lossless: bool
    every: int
    interval: float
    key: Key
    window: int
    limit: int
    """Messages queued at most."""
    credit: int = 0
    samples: int = 0
    """Samples that it could have had; with `every` it gets the first and each n-th from there."""
    next_time: float = 0.0
    queue: deque[Payload] = field(default_factory=deque, repr=False)
    queued: int = 0
    """Messages in the queue."""
    queued_bytes: int = 0
    under_way: deque[Sent] = field(default_factory=deque, repr=False)
    dropped: int = 0
    lost: int = 0
    last_lost: Header = field(default_factory=Header)
    """Of the last event that was lost."""
    ended: bool = False

    @property
    def is_full(self) -> bool:
        """Whether a further message finds no place."""
        return self.queued >= self.limit or self.queued_bytes >= BYTES_QUEUED


@dataclass(slots=True, eq=False)
class Topic:
    """One stream of data, e.g. of one sensor."""

    info: StreamInfo
    pool: BufferPool = field(default_factory=BufferPool, repr=False)
    subscriptions: list[Subscription] = field(default_factory=list, repr=False)
    seq: int = 0
    segment: int = -1
    """Number of its shared-memory segment; -1 before there is one."""
    samples: int = -1
    """What the sensor's count of news was when it was last published."""


class Counts(NamedTuple):
    """What a hub holds now."""

    sessions: int
    subscriptions: int
    topics: int
    segments: int
    slots_lent: int


class Hub:
    """Topics, sessions and subscriptions, and what is under way to them. All methods may be called by any thread.

    Args:
        wake: has the socket's thread send what is in the outboxes.
        uses_slots: whether shared memory can be used on this machine at all.
        most_held: bytes of messages that wait, or are under way, for all clients together.
    """

    def __init__(self, wake: Callable[[], None], uses_slots: bool, most_held: int = 2**30) -> None:
        self.lock = threading.RLock()
        self.has_room = threading.Condition(self.lock)
        self.topics: dict[int, Topic] = {}
        self.sessions: dict[bytes, Session] = {}
        self.fresh: deque[Subscription] = deque()
        """Subscriptions that began since the last frame: they get its data, too."""
        self.most_held, self.held = most_held, 0
        """Bytes of messages that may be held for clients, and that are."""
        self.sent = 0
        """Bytes of data given to clients."""
        self.slow: deque[str] = deque(maxlen=100)
        """Which clients were too slow, in words, until somebody takes it."""
        self.is_closing = False
        """Whether nobody is waited for any more."""
        self._wake = wake
        self._uses_slots = uses_slots
        self._segments: dict[int, SlotWriter] = {}
        self._retired: dict[int, SlotWriter] = {}
        self._leases: dict[int, weakref.ref[Any]] = {}
        self._ready: dict[Session, None] = {}
        self._next_segment = 0
        self._next_lease = 0

    @property
    def counts(self) -> Counts:
        """What it holds now."""
        with self.lock:
            sessions = list(self.sessions.values())
            return Counts(
                len(sessions),
                sum(len(session.subscriptions) for session in sessions),
                len(self.topics),
                len(self._segments) + len(self._retired),
                sum(sum(session.held.values()) for session in sessions),
            )

    def stop_waiting(self) -> None:
        """Wait for nobody any more, since the server closes."""
        with self.lock:
            self.is_closing = True
            self.has_room.notify_all()

    # Topics -----------------------------------------------------------------------------------------------------------

    def add_topic(self, topic: Topic) -> None:
        """Add a topic and tell all clients."""
        with self.lock:
            self.topics[topic.info.id] = topic
            self.tell_all(say.Added(topic.info.to_dict()))

    def remove_topic(self, number: int, reason: str) -> None:
        """Remove a topic: its subscriptions end with that reason."""
        with self.lock:
            topic = self.topics.pop(number, None)
            if topic is None:
                return  # the hub was closed meanwhile
            for subscription in list(topic.subscriptions):
                self.end(subscription, reason)
            self._retire(topic.segment)
            topic.segment = -1
            self.tell_all(say.Removed(number, reason))

    def replace_info(self, info: StreamInfo) -> None:
        """Say that a topic's fields changed: its subscriptions go on."""
        with self.lock:
            self.topics[info.id].info = info
            self.tell_all(say.Added(info.to_dict()))

    # Sessions ---------------------------------------------------------------------------------------------------------

    def tell(self, session: Session, message: say.Message) -> None:
        """Say something to one client."""
        self._put(session, Record(CONTROL, 0, 0, say.encode(message)))

    def tell_all(self, message: say.Message) -> None:
        """Say something to all clients."""
        record = Record(CONTROL, 0, 0, say.encode(message))
        with self.lock:
            for session in self.sessions.values():
                self._put(session, record)

    def note(self, session: Session, text: str, once: str = "") -> None:
        """Warn a client's user; of one thing once, where it has a word."""
        if once:
            if once in session.noted:
                return
            session.noted.add(once)
        self.tell(session, say.Note(text))

    def remove_session(self, session: Session) -> None:
        """Forget a client: its subscriptions end, its slots are free."""
        with self.lock:
            if self.sessions.get(session.route) is session:
                del self.sessions[session.route]
            for subscription in list(session.subscriptions.values()):
                self._drop(subscription)
            for (segment, slot), times in session.held.items():
                writer = self._writer(segment)
                if writer is not None:
                    writer.release(slot, times)
            for sent in session.orphans:
                self._landed(session, sent)
            session.orphans.clear()
            session.held.clear()
            session.held_of.clear()
            self._ready.pop(session, None)
            session.outbox.clear()
            self._close_retired()
            self.has_room.notify_all()

    def _put(self, session: Session, record: Record) -> None:
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

    # Subscriptions ----------------------------------------------------------------------------------------------------

    def subscribe(self, session: Session, wish: say.Subscribe) -> None:
        """Begin a subscription; a client's second one of the same number replaces the first.

        Raises:
            ValueError: nobody can have that; with the reason.
        """
        with self.lock:
            topic = self.topics.get(wish.stream)
            if topic is None:
                self.tell(session, say.Eos(wish.subscription, f"there is no stream {wish.stream} (any more)"))
                return
            total = topic.info.num_envs
            count = wish.num_envs or total - wish.first_env
            if wish.every < 1 or wish.window < 1 or wish.queue < 1 or not 0.0 <= wish.max_rate < float("inf"):
                raise ValueError(f"SUBSCRIBE with every={wish.every}, window={wish.window}, queue={wish.queue}")
            if not (0 <= wish.first_env and 0 < count and wish.first_env + count <= total):
                reason = f"envs {wish.first_env} to {wish.first_env + count}: there are {total}"
                self.tell(session, say.Eos(wish.subscription, reason))
                return
            old = session.subscriptions.get(wish.subscription)
            if old is not None:
                self._drop(old)
            if len(session.subscriptions) >= MOST_SUBSCRIPTIONS:
                raise ValueError(f"more than {MOST_SUBSCRIPTIONS} subscriptions of one client")
            subscription = Subscription(
                session,
                wish.subscription,
                topic,
                wish.lossless or topic.info.events,
                wish.every,
                1.0 / wish.max_rate if wish.max_rate else 0.0,
                (wish.first_env, count, wish.truth),
                min(wish.window, 65536),
                min(wish.queue, 65536) if wish.lossless or topic.info.events else 1,
                min(wish.window, 65536),
            )
            session.subscriptions[wish.subscription] = subscription
            topic.subscriptions = [*topic.subscriptions, subscription]
            self.fresh.append(subscription)
            self.tell(session, say.Subscribed(wish.subscription, topic.seq))

    def unsubscribe(self, session: Session, number: int) -> None:
        """End a subscription at the client's wish."""
        with self.lock:
            subscription = session.subscriptions.get(number)
            if subscription is not None:
                self.end(subscription, "stopped")

    def end(self, subscription: Subscription, reason: str) -> None:
        """End a subscription and say why."""
        with self.lock:
            if not subscription.ended:
                self._drop(subscription)
                self.tell(subscription.session, say.Eos(subscription.number, reason))

    def _drop(self, subscription: Subscription) -> None:
        subscription.ended = True
        with contextlib.suppress(ValueError):
            self.fresh.remove(subscription)
        self._empty(subscription)
        subscription.session.orphans.extend(subscription.under_way)
        subscription.session.awaited -= sum(each.share is not None for each in subscription.under_way)
        subscription.under_way.clear()
        topic, session = subscription.topic, subscription.session
        topic.subscriptions = [each for each in topic.subscriptions if each is not subscription]
        if session.subscriptions.get(subscription.number) is subscription:
            del session.subscriptions[subscription.number]
        self.has_room.notify_all()

    def give_credit(self, session: Session, number: int, more: int) -> None:
        """Note that a client took messages, and send it what waits.

        Raises:
            ValueError: more than were under way.
        """
        with self.lock:
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
                self.has_room.notify_all()

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

    def release(self, session: Session, segment: int, slot: int) -> None:
        """Note that a client is done with a slot.

        Raises:
            ValueError: it does not hold it.
        """
        with self.lock:
            times = session.held.get((segment, slot), 0)
            if not times:
                raise ValueError(f"RELEASE of slot {slot} of segment {segment}, which it does not hold")
            if times == 1:
                del session.held[segment, slot]
            else:
                session.held[segment, slot] = times - 1
            session.held_of[segment] -= 1
            writer = self._writer(segment)
            if writer is not None:
                writer.release(slot)
            self._close_retired()

    # Publishing -------------------------------------------------------------------------------------------------------

    def wanted(self, topic: Topic, among: Iterable[Subscription]) -> dict[Key, list[Subscription]]:
        """Count one more sample of a topic, and return who gets it, by what they get of it.

        Args:
            topic: the topic.
            among: those of its subscriptions whom the sample concerns.
        """
        out: dict[Key, list[Subscription]] = {}
        now = -1.0
        with self.lock:  # worker threads send, too
            topic.seq += 1
        for subscription in among:
            subscription.samples += 1
            if subscription.every > 1 and subscription.samples % subscription.every != 1:
                continue
            if subscription.interval:
                now = time.monotonic() if now < 0.0 else now
                if now < subscription.next_time:
                    continue
                is_late = now - subscription.next_time >= subscription.interval
                subscription.next_time = (now if is_late else subscription.next_time) + subscription.interval
            out.setdefault(subscription.key, []).append(subscription)
        return out

    def allocate(
        self, topic: Topic, size: int, receivers: list[Subscription], *, in_slot: bool = True, body: Any = None
    ) -> Payload:
        """Return memory for one message to some subscriptions, in shared memory where one of them can read that.

        Args:
            topic: whose message it is.
            size: its bytes.
            receivers: who gets it.
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
        with self.lock:
            writer = self._segments.get(topic.segment)
            if writer is None or writer.slot_size < size:
                self._retire(topic.segment)
                topic.segment = self._next_segment
                self._next_segment += 1
                room = size if all(not spec.is_ragged for spec in topic.info.specs) else 2 * size
                writer = self._segments[topic.segment] = SlotWriter(room, SLOTS)
            slot = writer.take()
            if slot is None:
                return None
            data = np.frombuffer(writer.memory(slot)[:size], np.uint8)
            number = self._next_lease
            self._next_lease += 1
            leases = self._leases

            def give_back(_: Any, writer: SlotWriter = writer, slot: int = slot) -> None:
                leases.pop(number, None)
                writer.release(slot)

            leases[number] = weakref.ref(data, give_back)
            return Payload(data, size, topic.segment, slot)

    def wait_for_room(self, subscriptions: list[Subscription], deadline: float) -> list[Subscription]:
        """Wait until lossless subscriptions have room for one more message; return those that still have none."""
        with self.lock:
            while full := [each for each in subscriptions if each.lossless and not each.ended and self.is_full(each)]:
                left = deadline - time.monotonic()
                if left <= 0.0 or self.is_closing:
                    return [] if self.is_closing else full
                self.has_room.wait(left)
        return []

    def offer(self, payload: Payload, receivers: list[Subscription]) -> None:
        """Give a message that was written to subscriptions, each after its policy."""
        with self.lock:
            for subscription in receivers:
                if subscription.ended:
                    continue
                queue = subscription.queue
                if not queue and self._may_send(subscription, payload):
                    self._send(subscription, payload)
                elif not subscription.lossless:
                    if queue:
                        self._empty(subscription)
                        subscription.dropped += 1
                    if self._has_room(payload):
                        self._enqueue(subscription, payload)
                    else:
                        subscription.dropped += 1
                elif not subscription.is_full and self._make_room(payload) and not subscription.ended:
                    self._tell_lost(subscription)
                    self._enqueue(subscription, payload)
                elif subscription.ended:
                    continue
                elif subscription.topic.info.events:
                    self._lose(subscription, [payload])
                else:
                    waits = f"{subscription.limit} messages" if subscription.is_full else "a message that has no room"
                    reason = (
                        f"too slow: {waits} waited for it. Take them faster, raise queue=, or listen with "
                        "policy='latest'"
                    )
                    self.slow.append(f"client {subscription.session}, {subscription.topic.info.name!r}: {reason}")
                    self.end(subscription, reason)

    def is_full(self, subscription: Subscription) -> bool:
        """Return whether a lossless subscription must take messages before it gets more."""
        return subscription.is_full or (subscription.queued > 0 and self.held >= self.most_held)

    def _has_room(self, payload: Payload) -> bool:
        return payload.share.holders > 0 or self.held + payload.size <= self.most_held

    def _make_room(self, payload: Payload) -> bool:
        """Have those that keep most waiting give way, until there is room for one message; return whether there is."""
        while not self._has_room(payload):
            everyone = [each for session in self.sessions.values() for each in session.subscriptions.values()]
            waiting = [each for each in everyone if each.queued]
            if not waiting:
                return False
            slowest = max(waiting, key=lambda each: each.queued_bytes)
            self._give_way(slowest)
        return True

    def _give_way(self, subscription: Subscription) -> None:
        """Take from a subscription all that waits for it, as its policy says."""
        name, size, most = subscription.topic.info.name, subscription.queued_bytes / 1e6, self.most_held / 1e6
        if not subscription.lossless:
            self._empty(subscription)
            subscription.dropped += 1
            return
        if subscription.topic.info.events:
            later, last = subscription.lost, subscription.last_lost
            self._lose(subscription, list(subscription.queue))
            if later:
                subscription.last_lost = last  # it was lost after those that waited
            self._empty(subscription)
            self._tell_lost(subscription)  # ahead of what comes next
            subscription.session.is_blocked = True
            return
        reason = (
            f"too slow: {size:.3g} MB waited for it when the messages of all clients reached max_queued_mb={most:.4g}. "
            "Take them faster, listen with policy='latest', or serve with a higher max_queued_mb"
        )
        self.slow.append(f"client {subscription.session}, {name!r}: {reason}")
        self.end(subscription, reason)

    def _lose(self, subscription: Subscription, events: Iterable[Payload]) -> None:
        """Count events that a subscription does not get."""
        if not subscription.lost:
            name = subscription.topic.info.name
            self.slow.append(f"client {subscription.session} is too slow: it loses events of {name!r}")
        for payload in events:
            header = Header.peek(payload.data)
            subscription.lost += payload.count or header.lost  # without a count it is a record of such events
            subscription.last_lost = header

    def _may_send(self, subscription: Subscription, payload: Payload) -> bool:
        under_way = subscription.window - subscription.credit
        if subscription.credit <= 0:
            return False
        session = subscription.session
        is_shared = payload.size > SMALL and payload.segment >= 0 and session.shares_memory
        is_shared = is_shared and session.held_of.get(payload.segment, 0) < SLOTS_PER_CLIENT
        most = min(BYTES_QUEUED, self.most_held // (2 * max(len(self.sessions), 1)))
        if not is_shared and session.awaited and session.under_way + payload.size > most:
            session.is_blocked = True
            return False
        if payload.count > 1:
            return True
        if payload.size <= SMALL:
            return under_way * payload.size < BYTES_UNDER_WAY
        return under_way < (LARGE_IN_SLOTS if is_shared else LARGE_UNDER_WAY)

    def _flush(self, subscription: Subscription) -> None:
        queue = subscription.queue
        was_full = self.is_full(subscription)
        while queue and self._may_send(subscription, queue[0]):
            payload = self._dequeue(subscription)
            self._send(subscription, payload)
            if not queue:
                self._tell_lost(subscription)  # goes around once more
        if was_full and not self.is_full(subscription):
            self.has_room.notify_all()

    def _tell_lost(self, subscription: Subscription) -> None:
        """Put a record of the events that were lost since into the queue, where there were any."""
        if subscription.lost:
            (first, count, _), lost = subscription.key, subscription.lost
            told = {"first_env": first, "num_envs": count, "lost": lost, "rows": 0, "poses": 0, "body_bytes": 0}
            kind = type_id(subscription.topic.info.type_name)
            head = subscription.last_lost._replace(flags=LOST | EVENTS, type_id=kind, **told).pack()
            self._enqueue(subscription, Payload(head, len(head), count=0))
            subscription.lost = 0

    def _send(self, subscription: Subscription, payload: Payload) -> None:
        session, number = subscription.session, subscription.number
        subscription.credit -= payload.count
        dropped, subscription.dropped = subscription.dropped, 0
        self.sent += payload.size
        if payload.size <= SMALL:
            self._track(subscription, payload, Share(payload.size))  # each client gets a copy
            self._put(session, Record(DATA, number, dropped, payload.data))
            return
        segment = payload.segment
        writer = self._segments.get(segment) if session.shares_memory and segment >= 0 else None
        if writer is not None:
            held = session.held_of.get(segment, 0)
            if held < SLOTS_PER_CLIENT:
                if segment not in session.segments:
                    session.segments.add(segment)
                    told = say.Segment(segment, writer.name, writer.token, writer.slot_size, SLOTS)
                    self.tell(session, told)
                writer.retain(payload.slot)
                place = (segment, payload.slot)
                session.held[place] = session.held.get(place, 0) + 1
                session.held_of[segment] = held + 1
                self._track(subscription, payload, None)
                self._put(session, Record(SLOT, number, dropped, Place(segment, payload.slot, payload.size).pack()))
                return
            text = (
                f"{subscription.topic.info.name!r}: {held} of its messages are kept alive by views of them, which is "
                "all the shared memory that one client may hold. What comes now are copies, which is slower: keep "
                "data.copy() instead of data or arrays of it"
            )
            self.note(session, text, once=f"holds {subscription.topic.info.name}")
        if payload.size > session.max_message:
            reason = (
                f"a message of {payload.size} bytes is longer than the {session.max_message} that the client takes: "
                "connect(..., max_message=...), or listen to fewer envs"
            )
            self.end(subscription, reason)
            return
        self._track(subscription, payload, payload.share)
        if payload.body is not None:
            self._put(session, Record(PARTS, number, dropped, (payload.data, payload.body)))
        else:
            self._put(session, Record(PART, number, dropped, payload.data))

    def _track(self, subscription: Subscription, payload: Payload, share: Share | None) -> None:
        """Note that a message goes out."""
        session = subscription.session
        session.sent += 1
        if not payload.count:
            return  # no credit comes back for it
        if share is not None:
            self._hold(share)
            session.under_way += share.size
            session.awaited += 1
        subscription.under_way.append(Sent(payload.count, session.sent, share))

    # Segments ---------------------------------------------------------------------------------------------------------

    def _writer(self, segment: int) -> SlotWriter | None:
        return self._segments.get(segment) or self._retired.get(segment)

    def _retire(self, segment: int) -> None:
        writer = self._segments.pop(segment, None)
        if writer is not None:
            self._retired[segment] = writer
            for session in self.sessions.values():
                if segment in session.segments:
                    session.segments.discard(segment)
                    self.tell(session, say.Unmap(segment))
            self._close_retired()

    def tidy(self) -> None:
        """Give back memory whose last message was still under way when its stream ended; called now and then."""
        if self._retired:
            with self.lock:
                self._close_retired()

    def _close_retired(self) -> None:
        """Close segments that are not used any more once nobody holds a slot of them."""
        for segment, writer in list(self._retired.items()):
            if writer.free == writer.count:
                writer.close()
                del self._retired[segment]

    def close(self) -> None:
        """Give all memory back."""
        with self.lock:
            for session in list(self.sessions.values()):
                self.remove_session(session)
            for writer in [*self._segments.values(), *self._retired.values()]:
                writer.close()
            self._segments.clear()
            self._retired.clear()
            self.topics.clear()


__all__ = ["SMALL", "Buffer", "Counts", "Hub", "Key", "Payload", "Session", "Subscription", "Topic"]
