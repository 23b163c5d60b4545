"""Publisher: writes new samples of the scene's sensors and messages of streamed sensors for their listeners.

All methods run on the thread of the loop's owner, except for messages that streamed sensors send from worker threads.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sensorium.readings import Reading
from sensorium.stream.frame_counter import FrameCounter
from sensorium.stream.outgoing import Moment, Outgoing
from sensorium.stream.subscription_table import SubscriptionTable
from sensorium.stream.subscriptions import LOG, Subscription, Topic
from sensorium.wire.bundles import bundle_body
from sensorium.wire.header import BUNDLE, EVENTS, TRUTH, Header, begin_message, body_offset, type_id
from sensorium.wire.serializers import FieldSerializer

_FIELDS = type_id(FieldSerializer.type_name)


class Publisher:
    """Writer of readings and messages for their receivers.

    Args:
        table: the subscriptions.
        frame_counter: counter of the messages of each frame.
    """

    def __init__(self, table: SubscriptionTable, frame_counter: FrameCounter) -> None:
        self._table, self._frame_counter = table, frame_counter

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
            self._frame_counter.sent(frame, receivers, 1, self._table.offer(payload, receivers))

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
        self._frame_counter.sent(moment.frame, receivers, n, self._table.offer(payload, receivers))
