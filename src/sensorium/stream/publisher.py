"""Publisher: writes samples and messages of streamed sensors for their listeners, and announces complete frames."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sensorium.readings import Array, Reading
from sensorium.stream.subscription_table import LOG, Session, Subscription, SubscriptionTable, Topic
from sensorium.wire import messages as msg
from sensorium.wire.data import Item, bundle_body
from sensorium.wire.header import BUNDLE, EVENTS, TRUTH, Header, begin_message, body_offset, type_id
from sensorium.wire.serializers import FieldSerializer

_FIELDS = type_id(FieldSerializer.type_name)
HELD_S = 1.0
"""Time that a frame waits for a capture before its sensor is reported, s."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Time and pose of a measurement.

    Attributes:
        frame: the frame.
        tick: its physics tick.
        time_ns: its simulation time, ns.
        wall_ns: its wall clock, ns since 1970.
        first_env: first environment in `poses`.
        poses: pose of the sensor in the world, float32 ``[env, 1, 7]``: position in m and orientation wxyz.
        age_ns: age of the data at that time, ns.
    """

    frame: int
    tick: int
    time_ns: int
    wall_ns: int
    first_env: int
    poses: Array
    age_ns: int = 0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message of a streamed sensor, or many small ones of one frame, ready to send.

    Attributes:
        type_id: number of their data type, which selects the serializer.
        items: body, first environment and number of environments of each; bodies are read-only.
        moment: frame of the messages; `poses` has all environments of the sensor.
        is_lasting: whether the bytes never change while a view of them exists, so that no copy is needed. Bytes of a
            buffer return to the pool with the last view.
    """

    type_id: int
    items: list[Item]
    moment: Moment
    is_lasting: bool = True


class Publisher:
    """Writer of readings and messages for their receivers, which counts them by frame.

    Frames are announced in order, after all messages of worker threads were sent. Readings are written on the thread of
    the loop's owner.

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

    def reading(
        self,
        topic: Topic,
        reading: Reading,
        frame: int,
        wall_ns: int,
        dt: float,
        among: Iterable[Subscription],
        *,
        is_new: bool = True,
    ) -> None:
        """Send a reading to those of some subscriptions that want this sample.

        Args:
            topic: topic of the sensor.
            reading: its reading.
            frame: number of the frame.
            wall_ns: wall clock of the frame, ns since 1970.
            dt: physics time step, s.
            among: its subscriptions that the sample concerns.
            is_new: whether the sample is new; False for the last sample, which new subscriptions receive.
        """
        pose, time_ns, start = reading.pose, round(reading.time * 1e9), reading.first_env
        poses = np.zeros((len(reading.env_ids), 0, 7), np.float32) if pose is None else pose
        if topic.serializer.kind:
            age_ns = round(float(reading.age[0]) * 1e9)
            self._events(topic, reading, Moment(frame, reading.tick, time_ns, wall_ns, start, poses, age_ns), among)
            return
        info, arrays = topic.info, reading.arrays()
        capture_tick, offsets = arrays["meta"]["capture_tick"], arrays["meta"].get("offsets")
        if info.events:
            rows = FieldSerializer.rows
            among = [each for each in among if rows(reading, each.key[0] - start, each.key[1])]
        for key, wanting in self._table.wanted(topic, among, is_new=is_new).items():
            if not (receivers := self._table.with_room(wanting)):
                continue
            first, count, truth = key
            row = first - start
            filled = 0 if offsets is None else int(offsets[row + count] - offsets[row])
            layout, capture_ns = info.layout(count, filled, truth), round(int(capture_tick[row]) * dt * 1e9)
            payload = self._table.allocate(topic, body_offset(count, poses.shape[1]) + layout.nbytes, receivers)
            head = Header(
                (TRUTH if truth else 0) | (EVENTS if info.events else 0), _FIELDS, info.id, filled, topic.seq, frame,
                reading.tick, time_ns, capture_ns, wall_ns - time_ns + capture_ns, first, count, poses.shape[1],
                layout.nbytes,
            )  # fmt: skip
            place = begin_message(payload.data, head, poses[row : row + count])
            FieldSerializer.write(info.name, arrays, row, count, layout, place)
            self.sent(frame, receivers, 1, self._table.offer(payload, receivers))

    def _events(self, topic: Topic, reading: Reading, moment: Moment, among: Iterable[Subscription]) -> None:
        """Send the messages into which the serializer of a stream converts a reading."""
        tick, lost = reading.tick, reading.measured.get("lost")
        since, topic.sent_tick = topic.sent_tick if topic.sent_tick <= tick else -1, tick
        if not topic.has_lost and lost is not None and lost.any():
            topic.has_lost = True
            text = "sensor %r: %d events of one control step found no free row and are lost"
            LOG.warning(text, topic.info.name, int(lost.sum()))
        if items := topic.serializer.serialize(reading, since):
            self.messages(topic, Outgoing(type_id(topic.serializer.type_name), items, moment), among)

    def messages(self, topic: Topic, message: Outgoing, among: Iterable[Subscription] | None = None) -> None:
        """Send messages of a stream to the subscriptions of their environments.

        Several small messages of a frame share a bundle for lossless subscriptions that take all of them.
        """
        items, moment, seq = message.items, message.moment, topic.seq
        whole: dict[tuple[int, int], list[Subscription]] = {}
        single = []
        for each in topic.subscriptions if among is None else among:
            if len(items) > 1 and each.lossless and each.every == 1 and not each.interval:
                first, count, _ = each.key
                whole.setdefault((first, first + count), []).append(each)
            else:
                single.append(each)
        for body, first, count in items if single else ():
            end = first + count
            inside = [each for each in single if each.key[0] < end and first < each.key[0] + each.key[1]]
            wanting = [each for group in self._table.wanted(topic, inside).values() for each in group]
            self._send(topic, message, first, count, body, topic.seq, wanting)
        topic.seq = seq + len(items)
        start, stop = moment.first_env, moment.first_env + len(moment.poses)
        for (first, end), wanting in whole.items():
            is_all = first <= start and stop <= end
            chosen = items if is_all else [item for item in items if item[1] < end and first < item[1] + item[2]]
            if chosen:
                body = bundle_body(chosen)
                self._send(topic, message, start, stop - start, body, seq + 1, wanting, n=len(chosen), flags=BUNDLE)

    def _send(
        self,
        topic: Topic,
        message: Outgoing,
        first: int,
        count: int,
        body: bytes | memoryview,
        seq: int,
        wanting: list[Subscription],
        *,
        n: int = 1,
        flags: int = 0,
    ) -> None:
        """Send one message, or a bundle of `n`, to subscriptions."""
        if not (receivers := self._table.with_room(wanting)):
            return
        moment = message.moment
        poses = moment.poses[first - moment.first_env :][:count]
        size = body_offset(count, poses.shape[1]) + len(body)
        own = body if message.is_lasting and n == 1 else None  # a client reads a bundle in one piece
        payload = self._table.allocate(topic, size, receivers, in_slot=n == 1, body=own)
        payload.count = n
        head = Header(
            flags | (EVENTS if topic.info.events else 0), message.type_id, topic.info.id, 0, seq, moment.frame,
            moment.tick, moment.time_ns, moment.time_ns - moment.age_ns, moment.wall_ns - moment.age_ns, first, count,
            poses.shape[1], len(body),
        )  # fmt: skip
        place = begin_message(payload.data, head, poses)
        if payload.body is None and len(body) < 4096:
            place[:] = body
        elif payload.body is None:  # NumPy copies without holding the interpreter's lock
            np.copyto(np.frombuffer(place, np.uint8), np.frombuffer(body, np.uint8))
        self.sent(moment.frame, receivers, n, self._table.offer(payload, receivers))

    # Frames -----------------------------------------------------------------------------------------------------------

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
        self._table.wake()

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
                while self._sent and (earlier := min(self._sent)) < done[0]:
                    del self._sent[earlier]
