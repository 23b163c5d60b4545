"""Subscriptions of a server: its streams and clients, and whether, when and how a message goes to a subscription.

A message is written once for all subscriptions with the same content (same envs, same branches), and numbered in each
of them. Credits limit the messages in transit to a subscription, so a slow client delays only itself. A message that
may not be sent yet waits: only the newest one for policy ``"latest"``, up to a limit for a lossless subscription. A
message that is replaced, or an event that finds no room, leaves a gap in the numbers.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from sensorium.errors import StreamError
from sensorium.wire import messages as msg
from sensorium.wire.buffers import BufferPool
from sensorium.wire.packing import DATA, PLACE, SLOT, Record
from sensorium.wire.serializers import FieldSerializer, Serializer
from sensorium.wire.slots import SlotWriter
from sensorium.wire.stream_info import StreamInfo

if TYPE_CHECKING:
    from sensorium.stream.sockets import Sockets

LOG = logging.getLogger("sensorium.stream")
"""Logger of the server."""
Key = tuple[int, int, bool]
"""Requested content of a sample: first env, number of envs, whether with the ground truth."""
MAX_SUBSCRIPTIONS = 1024
"""Maximum number of subscriptions of one client."""
MAX_WINDOW = 65536
"""Maximum number of messages in transit to a subscription, and of messages that wait for it."""
LARGE_IN_SOCKET, LARGE_IN_SLOTS = 3, 4
"""Maximum number of messages larger than `SMALL` in transit to one subscription, whatever its window. The first limit
applies to the socket, where more would slow down the receiver, whose memory is then never warm. The second applies to
shared memory."""
SMALL = 16 * 1024
"""Largest message that shares a part with its head, bytes. Larger ones use a slot or separate parts."""
SLOTS_PER_CLIENT = 6
"""Maximum number of slots of one segment that a client may hold; further messages are copied."""
SLOTS = 64
"""Number of slots of a segment. Unused slots take no memory."""


@dataclass(slots=True, eq=False)
class Payload:
    """One data message in memory.

    Args:
        data: its bytes, writable until it is offered.
        size: its size, bytes.
        writer: its shared-memory segment; None for none.
        slot: number of the slot.
        count: number of messages that it represents; several for a bundle.
        body: its body, if it is in separate memory that never changes; `data` is then header and poses.
    """

    data: Any
    size: int
    writer: SlotWriter | None = None
    slot: int = -1
    count: int = 1
    body: Any = None


@dataclass(slots=True, eq=False)
class Session:
    """One client.

    Args:
        route: its address in the socket.
        name: its chosen name.
        pid: id of its process.
        host: host of its process.
    """

    route: bytes
    name: str
    pid: int
    host: str
    shares_memory: bool = False
    """Whether it can read the server's slots."""
    max_message: int = 2**30
    """Largest message that it accepts through the socket, bytes; a longer one would break the connection."""
    silence: float = 0.0
    """Time without a message from it, s, while the server's thread ran: not that of a suspended program."""
    greeted: float = 0.0
    last_pong: float = 0.0
    outbox: deque[Record] = field(default_factory=deque, repr=False)
    subscriptions: dict[int, Subscription] = field(default_factory=dict, repr=False)
    """Subscriptions, including ended ones with messages in transit."""
    held: int = 0
    """Size of the messages that wait or are in transit through the socket, bytes."""
    lent: dict[tuple[int, int], list[Any]] = field(default_factory=dict, repr=False)
    """(segment, slot) -> its memory, once for each time that it was lent."""
    segments: set[int] = field(default_factory=set, repr=False)
    """Segments announced to the client."""
    sensors: set[str] = field(default_factory=set, repr=False)
    """Names of the sensors it spawned."""
    process: int | None = None
    """Descriptor that tells the end of its process, which is on this machine."""
    requests: int = 0
    """Number of requests that wait for the owner of the loop."""

    def __str__(self) -> str:
        return f"{self.name!r} (process {self.pid} on {self.host})"


@dataclass(slots=True, eq=False)
class Subscription:
    """Subscription of one client to one topic."""

    session: Session
    number: int
    topic: Topic
    lossless: bool
    every: int
    interval: float
    key: Key
    window: int
    """Maximum number of messages in transit."""
    limit: int
    """Maximum number of waiting messages."""
    samples: int = 0
    """Number of samples available to it; with `every` it receives the first and every n-th after it."""
    next_time: float = 0.0
    seq: int = 0
    """Number of messages offered to it, including those that were replaced or lost."""
    waiting: deque[tuple[int, Payload]] = field(default_factory=deque, repr=False)
    """Messages that may not be sent yet, each with the number of its first message."""
    queued: int = 0
    """Number of waiting messages; a bundle counts as its messages."""
    in_transit: deque[list[int]] = field(default_factory=deque, repr=False)
    """Number of messages without a credit, and size in the socket, of each sent payload."""
    sent: int = 0
    """Number of messages in transit."""
    ended: bool = False


@dataclass(slots=True, eq=False)
class Topic:
    """One stream of data, e.g. of one sensor."""

    info: StreamInfo
    serializer: type[Serializer] = FieldSerializer
    """Converts the readings of a sensor of the scene."""
    env: int | None = None
    """Only environment of the stream; None for all."""
    pool: BufferPool = field(default_factory=BufferPool, repr=False)
    subscriptions: list[Subscription] = field(default_factory=list, repr=False)
    seq: int = 0
    writer: SlotWriter | None = None
    """Its shared-memory segment, if it has large messages. A retired segment is closed with its last lent slot."""
    sent_tick: int = -1
    """Physics tick up to which events were sent, or happened before there were listeners."""
    has_lost: bool = False
    """Whether the log reports that its sensor lost events."""


class Counts(NamedTuple):
    """Current numbers of objects that a server holds for its clients."""

    sessions: int
    subscriptions: int
    topics: int
    segments: int
    slots_lent: int


class SubscriptionTable:
    """Streams, clients and subscriptions. All methods may be called by any thread.

    Args:
        sockets: the socket.
        uses_slots: whether shared memory is available on this machine.
        max_held: largest total size of messages that wait or are in transit, for all clients together, bytes. Each
            client has an equal share.
        patience: time that a step waits for slow lossless listeners, s; 0 if steps do not wait.
    """

    def __init__(self, sockets: Sockets, *, uses_slots: bool, max_held: int = 2**30, patience: float = 0.0) -> None:
        self.send, self.wake = sockets.send, sockets.wake
        self._sockets, self._max_held, self._patience = sockets, max_held, patience
        self.lock = threading.RLock()
        self.has_room = threading.Condition(self.lock)
        """Notified when messages were read, or subscriptions ended."""
        self.sessions: dict[bytes, Session] = {}
        self.frame_listeners: dict[Session, None] = {}
        """Clients that are notified of each frame."""
        self.topics: dict[str, Topic] = {}
        """Name -> stream; only the thread of the loop's owner changes it."""
        self.gone: deque[Session] = deque()
        """Sessions that ended, until the loop's owner has removed their sensors."""
        self.fresh: deque[Subscription] = deque()
        """Subscriptions that started since the last frame; they also receive its data."""
        self.slow: deque[str] = deque(maxlen=100)
        """Reports of clients that were too slow, until the owner of the server reads them."""
        self.slow_in_step: deque[str] = deque(maxlen=100)
        """Reports of clients that did not read in time during a step."""
        self.sent_bytes = 0
        """Total size of the data sent to clients, bytes."""
        self._writers: WeakSet[SlotWriter] = WeakSet()
        """All segments, including retired ones that clients still read."""
        self._uses_slots = uses_slots
        self.version = 0
        """Number of changes of the subscriptions."""
        self._is_closing = False

    @property
    def counts(self) -> Counts:
        """Current numbers of sessions, subscriptions and resources."""
        with self.lock:
            sessions = list(self.sessions.values())
            return Counts(
                len(sessions),
                sum(not each.ended for session in sessions for each in session.subscriptions.values()),
                len(self.topics),
                len(self._writers),
                sum(len(held) for session in sessions for held in session.lent.values()),
            )

    def send_to_all(self, message: msg.Message) -> None:
        """Send a control message to all clients."""
        with self.lock:
            for session in self.sessions.values():
                self.send(session, message)

    # Topics -----------------------------------------------------------------------------------------------------------

    def add_topic(self, topic: Topic) -> None:
        """Add a topic, or repeat it with changed information, and notify all clients; its subscriptions continue."""
        with self.lock:
            self.topics[topic.info.name] = topic
            self.version += 1
            self.send_to_all(msg.Added(topic.info.to_dict()))

    def remove_topic(self, name: str, reason: str) -> None:
        """Remove a topic: its subscriptions end with that reason."""
        with self.lock:
            topic = self.topics.pop(name, None)
            if topic is None:
                return  # the table was closed in the meantime
            self.send_to_all(msg.Removed(topic.info.id, reason))  # first: a listener whose stream ended finds no sensor
            for subscription in list(topic.subscriptions):
                self.end(subscription, reason)
            self._retire(topic)

    # Sessions ---------------------------------------------------------------------------------------------------------

    def remove_session(self, session: Session) -> None:
        """Remove a client: its subscriptions end, its slots are freed."""
        with self.lock:
            if self.sessions.get(session.route) is session:
                del self.sessions[session.route]
            for subscription in list(session.subscriptions.values()):
                self._drop(subscription)
            self.frame_listeners.pop(session, None)
            session.lent.clear()
            session.outbox.clear()
            self.gone.append(session)
            self.has_room.notify_all()

    # Subscriptions ----------------------------------------------------------------------------------------------------

    def subscribe(self, session: Session, terms: msg.Subscribe) -> None:
        """Start a subscription.

        Raises:
            ValueError: the request is invalid; the message names the reason.
        """
        with self.lock:
            topic = next((each for each in self.topics.values() if each.info.id == terms.stream), None)
            if topic is None:
                self.send(session, msg.Eos(terms.subscription, f"the stream {terms.stream} does not exist"))
                return
            total = topic.info.num_envs
            first, count = terms.first_env, terms.num_envs or total - terms.first_env
            if terms.every < 1 or terms.window < 1 or terms.queue < 1 or not 0.0 <= terms.max_rate < float("inf"):
                raise ValueError(f"SUBSCRIBE with every={terms.every}, window={terms.window}, queue={terms.queue}")
            asked, reason = f"envs {first} to {first + count} were requested, and the stream has", ""
            if not (0 <= first and 0 < count and first + count <= total):
                reason = f"{asked} {total}"
            elif topic.env is not None and not first <= topic.env < first + count:
                reason = f"{asked} only env {topic.env}"
            if reason:
                self.send(session, msg.Eos(terms.subscription, reason))
                return
            if topic.env is not None:
                first, count = topic.env, 1
            if terms.subscription in session.subscriptions:
                raise ValueError(f"a second SUBSCRIBE with number {terms.subscription}")
            if len(session.subscriptions) >= MAX_SUBSCRIPTIONS:
                raise ValueError(f"more than {MAX_SUBSCRIPTIONS} subscriptions of one client")
            is_lossless = terms.lossless or topic.info.events
            subscription = session.subscriptions[terms.subscription] = Subscription(
                session,
                terms.subscription,
                topic,
                is_lossless,
                terms.every,
                1.0 / terms.max_rate if terms.max_rate else 0.0,
                (first, count, terms.truth),
                min(terms.window, MAX_WINDOW),
                min(terms.queue, MAX_WINDOW) if is_lossless else 1,
            )
            topic.subscriptions = [*topic.subscriptions, subscription]
            self.version += 1
            self.fresh.append(subscription)

    def unsubscribe(self, session: Session, number: int) -> None:
        """End a subscription on request of the client."""
        with self.lock:
            subscription = session.subscriptions.get(number)
            if subscription is not None:
                self.end(subscription, "stopped")

    def end(self, subscription: Subscription, reason: str) -> None:
        """End a subscription and notify its client of the reason."""
        with self.lock:
            if not subscription.ended:
                self._drop(subscription)
                self.send(subscription.session, msg.Eos(subscription.number, reason))

    def _drop(self, subscription: Subscription) -> None:
        subscription.ended = True
        self.version += 1
        with contextlib.suppress(ValueError):
            self.fresh.remove(subscription)
        self._drop_waiting(subscription)
        topic = subscription.topic
        topic.subscriptions = [each for each in topic.subscriptions if each is not subscription]
        if not subscription.in_transit:  # otherwise it remains until the client has read them
            subscription.session.subscriptions.pop(subscription.number, None)
        self.has_room.notify_all()

    def _end_slow(self, subscription: Subscription, why: str) -> None:
        self.slow.append(f"Client {subscription.session} is too slow for {subscription.topic.info.name!r}: {why}")
        self.end(subscription, f"too slow: {why}")

    def wanted(
        self, topic: Topic, among: Iterable[Subscription], *, is_new: bool = True
    ) -> dict[Key, list[Subscription]]:
        """Count a sample of a topic, and return its receivers, grouped by requested content.

        Args:
            topic: the topic.
            among: its subscriptions that the sample concerns.
            is_new: whether the sample is new; False for the last sample, which new subscriptions receive.
        """
        out: dict[Key, list[Subscription]] = {}
        now = -1.0
        with self.lock:  # worker threads also send
            topic.seq += is_new
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

    # Messages ---------------------------------------------------------------------------------------------------------

    def with_room(self, receivers: list[Subscription]) -> list[Subscription]:
        """Wait in lock-step for slow lossless listeners; those that stay slow are reported and ended.

        Returns:
            The receivers that continue.
        """
        if not self._patience or not any(self._must_wait(each) for each in receivers):
            return receivers
        deadline = time.monotonic() + self._patience
        with self.lock:
            while slow := [each for each in receivers if not each.ended and self._must_wait(each)]:
                left = deadline - time.monotonic()
                if left <= 0.0 or self._is_closing:
                    break
                self.has_room.wait(left)
        for each in [] if self._is_closing else slow:
            waited = f"the step waited {self._patience:g} s for"
            client, name = each.session, each.topic.info.name
            text = f"{waited.capitalize()} client {client} to read {name!r}. Its lossless subscription has ended"
            self.slow_in_step.append(text)
            self.slow.append(text)
            self.end(each, f"too slow: {waited} it")
        return [each for each in receivers if not each.ended]

    def _must_wait(self, subscription: Subscription) -> bool:
        """Return whether a step must wait until a listener has read messages."""
        if not subscription.lossless or subscription.topic.info.events:
            return False
        waiting = subscription.waiting
        return subscription.queued >= subscription.limit or (
            bool(waiting) and not self._has_memory(subscription.session, waiting[-1][1].size)
        )

    def stop_waiting(self) -> None:
        """Stop all waiting steps, because the server closes."""
        with self.lock:
            self._is_closing = True
            self.has_room.notify_all()

    def allocate(
        self, topic: Topic, size: int, receivers: list[Subscription], *, in_slot: bool = True, body: Any = None
    ) -> Payload:
        """Return memory for a message to some subscriptions, in shared memory if a client can read it.

        Args:
            topic: topic of the message.
            size: size of the message, bytes.
            receivers: its subscriptions.
            in_slot: whether shared memory may be used.
            body: body of the message if it never changes; it is then sent without a copy, unless shared memory is used.
        """
        if size <= SMALL:
            return Payload(bytearray(size), size)
        if in_slot and self._uses_slots and any([each.session.shares_memory for each in receivers]):
            with self.lock:
                if (payload := self._take_slot(topic, size)) is not None:
                    return payload
        if body is not None:
            return Payload(bytearray(size - len(body)), size, body=body)
        return Payload(topic.pool.lend(size), size)

    def offer(self, payload: Payload, receivers: list[Subscription]) -> list[Subscription]:
        """Send a written message to subscriptions, by the policy of each; return those that lose it."""
        lost = []
        with self.lock:
            for each in receivers:
                if each.ended:
                    continue
                number, each.seq = each.seq + 1, each.seq + payload.count
                if not each.lossless:
                    self._drop_waiting(each)
                is_full = each.queued >= each.limit
                if not is_full and self._has_memory(each.session, payload.size):
                    each.waiting.append((number, payload))
                    each.queued += payload.count
                    each.session.held += payload.size
                    self._send_waiting(each)
                elif each.topic.info.events:
                    lost.append(each)
                    text = f"Client {each.session} is too slow and loses events of {each.topic.info.name!r}"
                    if text not in self.slow:
                        self.slow.append(text)
                elif each.lossless and is_full:
                    fix = "Process data faster, increase queue=, or listen with policy='latest'"
                    self._end_slow(each, f"{each.limit} messages waited for the listener. {fix}")
                elif each.lossless:
                    size, limit = each.session.held / 1e6, self._max_held / 1e6
                    reached = f"beyond its share of max_queued_mb={limit:.4g}"
                    fix = "Process data faster, listen with policy='latest', or serve with a higher max_queued_mb"
                    self._end_slow(each, f"{size:.3g} MB waited for the client {reached}. {fix}")
        return lost

    def _has_memory(self, session: Session, size: int) -> bool:
        """Return whether a client may hold a further message."""
        return not session.held or session.held + size <= self._max_held // max(len(self.sessions), 1)

    def _send_waiting(self, subscription: Subscription) -> None:
        """Send waiting messages until too many are in transit."""
        session, waiting = subscription.session, subscription.waiting
        while waiting and subscription.sent < subscription.window:
            number, payload = waiting[0]
            size, content = payload.size, payload.data
            is_small = size <= SMALL
            writer = payload.writer if self._can_lend(session, subscription.topic, payload.writer) else None
            if not is_small and payload.count == 1:
                if subscription.sent >= (LARGE_IN_SLOTS if writer else LARGE_IN_SOCKET):
                    return
            if writer:
                content = self._lend(session, payload, writer)
                session.held -= size
            elif size > session.max_message:
                reason = f"a message has {size} bytes, and the client accepts at most {session.max_message}"
                self.end(subscription, f"{reason}. Increase connect(..., max_message=...), or listen to fewer envs")
                return
            elif not is_small:
                content = (payload.data,) if payload.body is None else (payload.data, payload.body)
            waiting.popleft()
            subscription.queued -= payload.count
            subscription.in_transit.append([payload.count, 0 if writer else size])
            subscription.sent += payload.count
            self.sent_bytes += size
            self._sockets.put(session, Record(SLOT if writer else DATA, subscription.number, number, content))

    def _drop_waiting(self, subscription: Subscription) -> None:
        subscription.session.held -= sum(payload.size for _, payload in subscription.waiting)
        subscription.waiting.clear()
        subscription.queued = 0

    def credit(self, session: Session, number: int, more: int) -> None:
        """Note that a client has read messages, and send it waiting messages.

        Raises:
            ValueError: it returns more credits than messages are in transit.
        """
        with self.lock:
            subscription = session.subscriptions.get(number)
            if subscription is None:
                return
            if more > subscription.sent:
                raise ValueError(f"CREDIT of {more} for subscription {number}, more than the messages in transit")
            subscription.sent -= more
            while more > 0:
                first = subscription.in_transit[0]
                taken = min(more, first[0])
                first[0], more = first[0] - taken, more - taken
                if not first[0]:
                    session.held -= subscription.in_transit.popleft()[1]
            if subscription.ended:
                if not subscription.in_transit:
                    del session.subscriptions[number]
                return
            if subscription.waiting:
                self._send_waiting(subscription)
            self.has_room.notify_all()

    # Shared memory; the caller holds the lock -------------------------------------------------------------------------

    def _take_slot(self, topic: Topic, size: int) -> Payload | None:
        """Return shared memory for a message of a topic; None if there is none left."""
        if topic.writer is None or topic.writer.slot_size < size:
            self._retire(topic)
            room = 2 * size if any(spec.is_ragged for spec in topic.info.specs) else size
            try:
                topic.writer = SlotWriter(room, SLOTS)
            except StreamError:  # no memory or descriptor is left: the socket carries the message
                return None
            self._writers.add(topic.writer)
        if (taken := topic.writer.take()) is None:
            return None
        slot, memory = taken
        return Payload(memory[:size], size, topic.writer, slot)

    def _can_lend(self, session: Session, topic: Topic, writer: SlotWriter | None) -> bool:
        """Return whether a client can read a message in shared memory, and holds few slots of its segment."""
        if writer is None or writer is not topic.writer or not session.shares_memory:
            return False
        held = [len(lent) for (segment, _), lent in session.lent.items() if segment == writer.number]
        return sum(held) < SLOTS_PER_CLIENT

    def _lend(self, session: Session, payload: Payload, writer: SlotWriter) -> bytes:
        """Lend a slot to a client, and return its place."""
        segment = writer.number
        if segment not in session.segments:
            session.segments.add(segment)
            self.send(session, msg.Segment(segment, writer.name, writer.token, writer.slot_size, SLOTS))
        session.lent.setdefault((segment, payload.slot), []).append(payload.data)
        return PLACE.pack(segment, payload.slot, payload.size)

    def release(self, session: Session, segment: int, slot: int) -> None:
        """Release a slot that a client has read.

        Raises:
            ValueError: the client does not hold it.
        """
        with self.lock:
            if not (held := session.lent.get((segment, slot))):
                raise ValueError(f"RELEASE of slot {slot} of segment {segment}, which the client does not hold")
            held.pop()
            if not held:
                del session.lent[segment, slot]

    def _retire(self, topic: Topic) -> None:
        """Retire the segment of a stream; it is closed when no client holds a slot of it."""
        if topic.writer is not None:
            for session in self.sessions.values():
                if topic.writer.number in session.segments:
                    session.segments.discard(topic.writer.number)
                    self.send(session, msg.Unmap(topic.writer.number))
        topic.writer = None

    def close(self) -> None:
        """Release all memory."""
        with self.lock:
            for topic in self.topics.values():
                self._retire(topic)
            self.topics.clear()
