"""Publisher: writes new samples of the scene's sensors and messages of streamed sensors for their listeners.

All methods run on the thread of the loop's owner, except for messages that streamed sensors send from worker threads.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from sensorium.readings import Reading
from sensorium.stream.failures import LOG
from sensorium.stream.outgoing import Bundle, Moment, Outgoing
from sensorium.stream.subscription_table import SubscriptionTable
from sensorium.stream.subscriptions import Key, Payload, Subscription, Topic
from sensorium.wire.bundles import Item, bundle_body
from sensorium.wire.header import BUNDLE, EVENTS, TRUTH, Header, body_offset, type_id
from sensorium.wire.layout import plan
from sensorium.wire.raw_data import begin_message
from sensorium.wire.serializers import FieldSerializer

_FIELDS = type_id(FieldSerializer.type_name)


class Publisher:
    """Writer of readings and messages for their receivers.

    Args:
        table: the subscriptions.
    """

    def __init__(self, table: SubscriptionTable) -> None:
        self._table, self._delivery = table, table.delivery

    def greet(self, subscription: Subscription, reading: Reading, frame: int, wall_ns: int, dt: float) -> bool:
        """Send a new subscription the sample of its topic in this frame; return whether there was one."""
        topic = subscription.topic
        if topic.serializer.kind:
            return bool(self._events(topic, reading, frame, wall_ns, [subscription]))
        if topic.info.events and not _has_rows(reading, subscription.key):
            return False
        payload = self._written(topic, reading, subscription.key, [subscription], frame, wall_ns, dt)
        self._delivery.offer(payload, [subscription])
        subscription.samples += 1
        if subscription.interval:
            subscription.next_time = time.monotonic() + subscription.interval
        return True

    def reading(
        self, topic: Topic, reading: Reading, frame: int, wall_ns: int, dt: float, among: list[Subscription]
    ) -> Iterable[Subscription]:
        """Send a reading to those of some subscriptions that want this sample; return the receivers."""
        if topic.serializer.kind:
            return self._events(topic, reading, frame, wall_ns, among)
        if topic.info.events:
            among = [each for each in among if _has_rows(reading, each.key)]
        out: list[Subscription] = []
        for key, wanting in self._table.wanted(topic, among).items():
            if receivers := self._delivery.with_room(wanting):
                payload = self._written(topic, reading, key, receivers, frame, wall_ns, dt)
                self._delivery.offer(payload, receivers)
                out += receivers
        return out

    def _events(
        self, topic: Topic, reading: Reading, frame: int, wall_ns: int, among: list[Subscription]
    ) -> Counter[Subscription]:
        """Send the messages into which the serializer of a stream converts a reading; return their receivers."""
        tick = reading.tick
        since, topic.sent_tick = topic.sent_tick if topic.sent_tick <= tick else -1, tick
        self._warn_of_lost(topic, reading)
        items = topic.serializer.serialize(reading, since)
        if not items:
            return Counter()
        envs, age_ns = reading.env_ids, round(float(reading.age[0]) * 1e9)
        poses = np.zeros((len(envs), 0, 7), np.float32) if reading.pose is None else reading.pose
        moment = Moment(frame, tick, round(reading.time * 1e9), wall_ns, int(envs[0]), poses, age_ns)
        return self.bundle(topic, Bundle(type_id(topic.serializer.type_name), items, moment), among)

    def _warn_of_lost(self, topic: Topic, reading: Reading) -> None:
        """Report in the log, once, that a sensor had no free rows for some of its events."""
        lost = reading.measured.get("lost")
        if not topic.has_lost and lost is not None and lost.any():
            topic.has_lost = True
            text = "sensor %r: %d events of one control step found no free row and are lost"
            LOG.warning(text, topic.info.name, int(lost.sum()))

    def _written(
        self,
        topic: Topic,
        reading: Reading,
        key: Key,
        receivers: list[Subscription],
        frame: int,
        wall_ns: int,
        dt: float,
    ) -> Payload:
        """Return a message with the rows of a reading for some subscriptions."""
        first, count, truth = key
        rows, offsets = _rows(reading, key), reading.offsets
        filled = 0 if offsets is None else int(offsets[rows.stop] - offsets[rows.start])
        nbytes = plan(reading.specs, count, filled, truth).nbytes
        pose = None if reading.pose is None else reading.pose[rows]
        poses = 0 if pose is None else int(np.prod(pose.shape[1:-1]))
        payload = self._delivery.allocate(topic, body_offset(count, poses) + nbytes, receivers)
        head = Header(
            flags=(TRUTH if truth else 0) | (EVENTS if topic.info.events else 0),
            type_id=_FIELDS,
            stream=topic.info.id,
            rows=filled,
            seq=topic.seq,
            frame=frame,
            tick=reading.tick,
            time_ns=round(reading.time * 1e9),
            capture_ns=round(int(reading.capture_tick[rows.start]) * dt * 1e9),
            wall_ns=wall_ns - round(float(reading.age[rows.start]) * 1e9),
            first_env=first,
            num_envs=count,
            poses=poses,
            body_bytes=nbytes,
        )
        FieldSerializer.write(reading, rows, truth, _begin(payload, head, pose))
        return payload

    def bundle(self, topic: Topic, bundle: Bundle, among: list[Subscription] | None = None) -> Counter[Subscription]:
        """Send many small messages of a stream; return the receivers and the number of messages for each."""
        items, moment, seq = bundle.items, bundle.moment, topic.seq
        whole: dict[tuple[int, int], list[Subscription]] = {}
        single = []
        for each in topic.subscriptions if among is None else among:
            if len(items) > 1 and each.lossless and each.every == 1 and not each.interval:
                first, count, _ = each.key
                whole.setdefault((first, first + count), []).append(each)
            else:
                single.append(each)
        out: Counter[Subscription] = Counter()
        if single:
            first_pose = moment.first_env
            for body, first, count in items:
                poses = moment.poses[first - first_pose : first - first_pose + count]
                its = replace(moment, first_env=first, poses=poses)
                each_one = Outgoing(bundle.type_id, memoryview(body), its, first, count)
                out.update(self.message(topic, each_one, among=single))
        topic.seq = seq + len(items)
        for (first, end), wanting in whole.items():
            if first <= moment.first_env and moment.first_env + len(moment.poses) <= end:
                chosen = items
            else:
                chosen = [item for item in items if item[1] < end and first < item[1] + item[2]]
            if chosen and (receivers := self._delivery.with_room(wanting)):
                self._send_bundle(topic, bundle, chosen, seq + 1, receivers)
                out.update(dict.fromkeys(receivers, len(chosen)))
        return out

    def _send_bundle(
        self, topic: Topic, bundle: Bundle, items: list[Item], seq: int, receivers: list[Subscription]
    ) -> None:
        moment, body = bundle.moment, bundle_body(items)
        count, poses = moment.poses.shape[:2]
        payload = self._delivery.allocate(topic, body_offset(count, poses) + len(body), receivers, in_slot=False)
        payload.count = len(items)
        head = _header(topic, moment, seq, moment.first_env, count, len(body), bundle.type_id, BUNDLE)
        copy_bytes(_begin(payload, head, moment.poses), memoryview(body))
        self._delivery.offer(payload, receivers)

    def message(self, topic: Topic, message: Outgoing, among: list[Subscription] | None = None) -> list[Subscription]:
        """Send a message of a streamed sensor to the subscriptions of its environments; return the receivers."""
        first, end = message.first_env, message.first_env + message.num_envs
        among = topic.subscriptions if among is None else among
        among = [each for each in among if each.key[0] < end and first < each.key[0] + each.key[1]]
        wanting = [each for group in self._table.wanted(topic, among).values() for each in group]
        if not (receivers := self._delivery.with_room(wanting)):
            return []
        moment, body = message.moment, message.body
        size = body_offset(message.num_envs, moment.poses.shape[1]) + len(body)
        payload = self._delivery.allocate(topic, size, receivers, body=body if message.is_lasting else None)
        head = _header(topic, moment, topic.seq, first, message.num_envs, len(body), message.type_id)
        place = _begin(payload, head, moment.poses)
        if payload.body is None:
            copy_bytes(place, body)
        self._delivery.offer(payload, receivers)
        return receivers


def _rows(reading: Reading, key: Key) -> slice:
    """Return the rows of a reading for a subscription."""
    start = key[0] - int(reading.env_ids[0])
    return slice(start, start + key[1])


def _has_rows(reading: Reading, key: Key) -> bool:
    """Return whether the environments of a subscription have any event."""
    offsets, rows = reading.offsets, _rows(reading, key)
    return offsets is None or bool(offsets[rows.stop] > offsets[rows.start])


def _header(
    topic: Topic, moment: Moment, seq: int, first: int, count: int, nbytes: int, type_id: int, flags: int = 0
) -> Header:
    """Return the header of a message, or bundle, whose type of data is not the default one."""
    return Header(
        flags | (EVENTS if topic.info.events else 0), type_id, topic.info.id, 0, seq, moment.frame, moment.tick,
        moment.time_ns, moment.time_ns - moment.age_ns, moment.wall_ns - moment.age_ns, first, count,
        moment.poses.shape[1], 0, nbytes,
    )  # fmt: skip


def _begin(payload: Payload, header: Header, poses: Any) -> memoryview:
    """Write header and poses `[env, mount, 7]` of a message; return the memory of its body."""
    place, body = begin_message(memoryview(payload.data), header)
    if poses is not None:
        place[...] = np.asarray(poses).reshape(place.shape)
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
