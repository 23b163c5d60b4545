"""Publisher: writes new samples of the scene's sensors and messages of streamed sensors for their listeners.

All methods run on the thread of the loop's owner, except for messages that streamed sensors send from worker threads.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sensorium.readings import Array, Reading
from sensorium.stream.failures import LOG
from sensorium.stream.frame_counter import FrameCounter
from sensorium.stream.outgoing import Bundle, Moment, Outgoing
from sensorium.stream.subscription_table import SubscriptionTable
from sensorium.stream.subscriptions import Key, Payload, Subscription, Topic
from sensorium.wire.bundles import Item, bundle_body
from sensorium.wire.data import begin_message
from sensorium.wire.header import BUNDLE, EVENTS, TRUTH, Header, body_offset, type_id
from sensorium.wire.layout import plan
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
        among: list[Subscription],
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
        if topic.serializer.kind:
            self._events(topic, reading, frame, wall_ns, among)
            return
        if topic.info.events:
            among = [each for each in among if _filled(reading, each.key)]
        for key, wanting in self._table.wanted(topic, among, is_new=is_new).items():
            receivers = self._table.with_room(wanting)
            if not receivers:
                continue
            first, count, truth = key
            rows, filled = _rows(reading, key), _filled(reading, key)
            nbytes = plan(reading.specs, count, filled, truth).nbytes
            moment = _moment(reading, rows, frame, wall_ns)
            size = body_offset(count, moment.poses.shape[1]) + nbytes
            payload = self._table.allocate(topic, size, receivers)
            head = _header(topic, moment, topic.seq, first, count, nbytes, _FIELDS, TRUTH if truth else 0)
            head = head._replace(rows=filled, capture_ns=round(int(reading.capture_tick[rows.start]) * dt * 1e9))
            FieldSerializer.write(reading, rows, truth, _begin(payload, head, moment.poses))
            self._offer(frame, payload, receivers)

    def _offer(self, frame: int, payload: Payload, receivers: list[Subscription]) -> None:
        lost = self._table.offer(payload, receivers)
        self._frame_counter.sent(frame, receivers, payload.count, lost)

    def _events(self, topic: Topic, reading: Reading, frame: int, wall_ns: int, among: list[Subscription]) -> None:
        """Send the messages into which the serializer of a stream converts a reading."""
        tick = reading.tick
        since, topic.sent_tick = topic.sent_tick if topic.sent_tick <= tick else -1, tick
        self._warn_of_lost(topic, reading)
        items = topic.serializer.serialize(reading, since)
        if not items:
            return
        moment = _moment(reading, slice(0, len(reading.env_ids)), frame, wall_ns)
        self.bundle(topic, Bundle(type_id(topic.serializer.type_name), items, moment), among)

    def _warn_of_lost(self, topic: Topic, reading: Reading) -> None:
        """Report in the log, once, that a sensor had no free rows for some of its events."""
        lost = reading.measured.get("lost")
        if not topic.has_lost and lost is not None and lost.any():
            topic.has_lost = True
            text = "sensor %r: %d events of one control step found no free row and are lost"
            LOG.warning(text, topic.info.name, int(lost.sum()))

    def bundle(self, topic: Topic, bundle: Bundle, among: list[Subscription] | None = None) -> None:
        """Send many small messages of a stream."""
        items, moment, seq = bundle.items, bundle.moment, topic.seq
        whole: dict[tuple[int, int], list[Subscription]] = {}
        single = []
        for each in topic.subscriptions if among is None else among:
            if len(items) > 1 and each.lossless and each.every == 1 and not each.interval:
                first, count, _ = each.key
                whole.setdefault((first, first + count), []).append(each)
            else:
                single.append(each)
        for body, first, count in items if single else ():
            each_one = Outgoing(bundle.type_id, memoryview(body), moment, first, count)
            self.message(topic, each_one, among=single)
        topic.seq = seq + len(items)
        for (first, end), wanting in whole.items():
            if first <= moment.first_env and moment.first_env + len(moment.poses) <= end:
                chosen = items
            else:
                chosen = [item for item in items if item[1] < end and first < item[1] + item[2]]
            if chosen and (receivers := self._table.with_room(wanting)):
                self._send_bundle(topic, bundle, chosen, seq + 1, receivers)

    def _send_bundle(
        self, topic: Topic, bundle: Bundle, items: list[Item], seq: int, receivers: list[Subscription]
    ) -> None:
        moment, body = bundle.moment, bundle_body(items)
        count, poses = moment.poses.shape[:2]
        payload = self._table.allocate(topic, body_offset(count, poses) + len(body), receivers, in_slot=False)
        payload.count = len(items)
        head = _header(topic, moment, seq, moment.first_env, count, len(body), bundle.type_id, BUNDLE)
        copy_bytes(_begin(payload, head, moment.poses), memoryview(body))
        self._offer(moment.frame, payload, receivers)

    def message(self, topic: Topic, message: Outgoing, among: list[Subscription] | None = None) -> None:
        """Send a message of a streamed sensor to the subscriptions of its environments."""
        first, end = message.first_env, message.first_env + message.num_envs
        among = topic.subscriptions if among is None else among
        among = [each for each in among if each.key[0] < end and first < each.key[0] + each.key[1]]
        wanting = [each for group in self._table.wanted(topic, among).values() for each in group]
        if not (receivers := self._table.with_room(wanting)):
            return
        moment, body = message.moment, message.body
        poses = moment.poses[first - moment.first_env : end - moment.first_env]
        size = body_offset(message.num_envs, poses.shape[1]) + len(body)
        payload = self._table.allocate(topic, size, receivers, body=body if message.is_lasting else None)
        head = _header(topic, moment, topic.seq, first, message.num_envs, len(body), message.type_id)
        place = _begin(payload, head, poses)
        if payload.body is None:
            copy_bytes(place, body)
        self._offer(moment.frame, payload, receivers)


def _rows(reading: Reading, key: Key) -> slice:
    """Return the rows of a reading for a subscription."""
    start = key[0] - int(reading.env_ids[0])
    return slice(start, start + key[1])


def _filled(reading: Reading, key: Key) -> int:
    """Return the number of rows of ragged fields for a subscription."""
    return FieldSerializer.rows(reading, _rows(reading, key).start, key[1])


def _moment(reading: Reading, rows: slice, frame: int, wall_ns: int) -> Moment:
    """Return the time of a reading and the poses of some of its rows."""
    envs, pose = reading.env_ids[rows], reading.pose
    poses = np.zeros((len(envs), 0, 7), np.float32) if pose is None else pose[rows].reshape(len(envs), -1, 7)
    age_ns = round(float(reading.age[rows.start]) * 1e9)
    return Moment(frame, reading.tick, round(reading.time * 1e9), wall_ns, int(envs[0]), poses, age_ns)


def _header(
    topic: Topic, moment: Moment, seq: int, first: int, count: int, nbytes: int, type_id: int, flags: int = 0
) -> Header:
    """Return the header of a message, or bundle, about a measurement."""
    return Header(
        flags | (EVENTS if topic.info.events else 0), type_id, topic.info.id, 0, seq, moment.frame, moment.tick,
        moment.time_ns, moment.time_ns - moment.age_ns, moment.wall_ns - moment.age_ns, first, count,
        moment.poses.shape[1], nbytes,
    )  # fmt: skip


def _begin(payload: Payload, header: Header, poses: Array) -> memoryview:
    """Write header and poses `[env, mount, 7]` of a message; return the memory of its body."""
    place, body = begin_message(memoryview(payload.data), header)
    place[...] = poses
    return body


def copy_bytes(memory: memoryview, body: memoryview) -> None:
    """Copy a body into its memory."""
    if len(body) < 4096:
        memory[:] = body
    else:  # NumPy copies without holding the interpreter's lock
        np.copyto(np.frombuffer(memory, np.uint8), np.frombuffer(body, np.uint8))


def hull(subscriptions: Iterable[Subscription]) -> slice:
    """Return the range of environments that covers all given subscriptions."""
    keys = [each.key for each in subscriptions]
    return slice(min(first for first, _, _ in keys), max(first + count for first, count, _ in keys))
