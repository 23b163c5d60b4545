"""Publisher: writes samples and messages of streamed sensors for their listeners, and announces complete frames."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sensorium.readings import Array, Reading
from sensorium.stream.subscription_table import LOG, Session, Subscription, SubscriptionTable, Topic
from sensorium.wire import messages as msg
from sensorium.wire.data import Item, bundle_body
from sensorium.wire.header import BUNDLE, EVENTS, TRUTH, Header, begin_message, body_offset, type_id
from sensorium.wire.serializers import FieldSerializer

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
    """

    frame: int
    tick: int
    time_ns: int
    wall_ns: int
    first_env: int
    poses: Array


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
            wall_ns: wall clock of the frame, ns since 1970.
            dt: physics time step, s.
            among: its subscriptions that the sample concerns.
            is_new: whether the sample is new; False for the last sample, which new subscriptions receive.
        """
        pose, time_ns, start = reading.pose, round(reading.time * 1e9), reading.first_env
        poses = np.zeros((len(reading.env_ids), 0, 7), np.float32) if pose is None else pose
        moment = Moment(self.frame, reading.tick, time_ns, wall_ns, start, poses)
        if topic.serializer.kind:
            self._events(topic, reading, moment, among)
            return
        info, arrays = topic.info, reading.arrays()
        capture_tick, offsets = arrays["meta"]["capture_tick"], arrays["meta"].get("offsets")
        if info.events:
            rows = FieldSerializer.rows
            among = [each for each in among if rows(reading, each.key[0] - start, each.key[1])]
        for (first, count, truth), wanting in self._table.wanted(topic, among, is_new=is_new).items():
            row = first - start
            filled = 0 if offsets is None else int(offsets[row + count] - offsets[row])
            layout, age_ns = info.layout(count, filled, truth), time_ns - round(int(capture_tick[row]) * dt * 1e9)
            write = partial(FieldSerializer.write, info.name, arrays, row, count, layout)
            flags = TRUTH if truth else 0
            self._send(
                topic, moment, first, count, layout.nbytes, write, topic.seq, wanting, rows=filled, age_ns=age_ns,
                flags=flags,
            )  # fmt: skip

    def _events(self, topic: Topic, reading: Reading, moment: Moment, among: Iterable[Subscription]) -> None:
        """Send the messages into which the serializer of a stream converts a reading."""
        tick, lost = reading.tick, reading.measured.get("lost")
        since, topic.sent_tick = topic.sent_tick if topic.sent_tick <= tick else -1, tick
        if not topic.has_lost and lost is not None and lost.any():
            topic.has_lost = True
            text = "sensor %r: %d events of one control step found no free row and are lost"
            LOG.warning(text, topic.info.name, int(lost.sum()))
        if items := topic.serializer.serialize(reading, since):
            self.messages(topic, items, moment, among, age_ns=round(float(reading.age[0]) * 1e9))

    def messages(
        self,
        topic: Topic,
        items: Sequence[Item],
        moment: Moment,
        among: Iterable[Subscription] | None = None,
        *,
        age_ns: int = 0,
        is_lasting: bool = True,
    ) -> None:
        """Send messages of a stream to the subscriptions of their environments.

        Several small messages of a frame share a bundle for lossless subscriptions that take all of them.

        Args:
            topic: topic of the stream.
            items: body, first environment and number of environments of each message; bodies are read-only.
            moment: frame of the messages; `poses` has all environments of the sensor.
            among: subscriptions that the messages concern; None for all.
            age_ns: age of the data at that time, ns.
            is_lasting: whether the bytes never change while a view of them exists, so that no copy is needed. Bytes of
                a buffer return to the pool with the last view.
        """
        seq = topic.seq
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
            own = body if is_lasting else None
            write = partial(_copy, body)
            self._send(topic, moment, first, count, len(body), write, topic.seq, wanting, age_ns=age_ns, body=own)
        topic.seq = seq + len(items)
        start, stop = moment.first_env, moment.first_env + len(moment.poses)
        for (first, end), wanting in whole.items():
            is_all = first <= start and stop <= end
            chosen = items if is_all else [item for item in items if item[1] < end and first < item[1] + item[2]]
            if chosen:
                body = bundle_body(chosen)
                self._send(
                    topic, moment, start, stop - start, len(body), partial(_copy, body), seq + 1, wanting,
                    age_ns=age_ns, flags=BUNDLE, n=len(chosen),
                )  # fmt: skip

    def _send(
        self, topic: Topic, moment: Moment, first: int, count: int, size: int, write: Callable[[memoryview], None],
        seq: int, wanting: list[Subscription], *, rows: int = 0, age_ns: int = 0, flags: int = 0, n: int = 1,
        body: bytes | memoryview | None = None,
    ) -> None:  # fmt: skip
        """Send one message, or a bundle of `n`, to subscriptions; `write` writes its body of `size` bytes."""
        if not (receivers := self._table.with_room(wanting)):
            return
        poses = moment.poses[first - moment.first_env :][:count]
        whole = body_offset(count, poses.shape[1]) + size
        payload = self._table.allocate(topic, whole, receivers, in_slot=n == 1, body=body)  # a bundle is read at once
        payload.count = n
        head = Header(
            flags | (EVENTS if topic.info.events else 0), type_id(topic.serializer.type_name), topic.info.id, rows, seq,
            moment.frame, moment.tick, moment.time_ns, moment.time_ns - age_ns, moment.wall_ns - age_ns, first, count,
            poses.shape[1], size,
        )  # fmt: skip
        place = begin_message(payload.data, head, poses)
        if payload.body is None:
            write(place)
        lost = self._table.offer(payload, receivers)
        with self._lock:
            sent = self._sent.setdefault(moment.frame, {})
            for each in receivers:
                sent.setdefault(each, [0, 0])[each in lost] += n

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
                for session in self._table.frame_listeners:
                    self._table.send(session, msg.Note(text))

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
                if listeners := self._table.frame_listeners:
                    self.announce(listeners, *done)
                while self._sent and (earlier := min(self._sent)) < done[0]:
                    del self._sent[earlier]


def _copy(body: bytes | memoryview, place: memoryview) -> None:
    """Copy a body to its place; NumPy copies a large one without holding the interpreter's lock."""
    if len(body) < 4096:
        place[:] = body
    else:
        np.copyto(np.frombuffer(place, np.uint8), np.frombuffer(body, np.uint8))
