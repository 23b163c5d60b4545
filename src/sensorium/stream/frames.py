"""One frame: what is new of the scene's sensors goes to those who listen, streamed sensors tick, then it is complete.

A frame is an advance of the scene to a tick at which its sensors were looked at, or a reset. All of it happens on the
thread of the loop's owner.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sensorium.readings import Reading
from sensorium.stream.failures import LOG
from sensorium.stream.hub import Hub, Key, Session, Subscription, Topic
from sensorium.stream.outgoing import Bundle, Outgoing
from sensorium.wire import messages as say
from sensorium.wire.bundles import Item, bundle_body
from sensorium.wire.header import BUNDLE, EVENTS, HEADER_BYTES, TRUTH, Header, body_offset, type_id
from sensorium.wire.layout import plan
from sensorium.wire.serializers import FieldSerializer
from sensorium.wire.stream_info import StreamInfo

_FIELDS = type_id(FieldSerializer.type_name)

HELD_S = 1.0
"""Seconds that a frame waits for a capture before its sensor is named."""


class Publisher:
    """Writes readings and messages for those who get them.

    Args:
        hub: who listens.
        lockstep: whether a step waits for slow listeners that must lose nothing.
        patience: longest wait for them, s.
    """

    def __init__(self, hub: Hub, *, lockstep: bool, patience: float) -> None:
        self._hub, self.lockstep, self.patience = hub, lockstep, patience
        self.complaints: deque[str] = deque(maxlen=100)
        """Which slow clients were waited for in vain."""

    def greet(self, subscription: Subscription, reading: Reading, frame: int, wall_ns: int, dt: float) -> bool:
        """Send a new subscription the sample that its topic has in this frame; returns whether there was any."""
        topic = subscription.topic
        rows = self._rows(reading, subscription.key)
        if topic.info.events and not self._has_rows(reading, rows):
            return False
        self._write_reading(topic, reading, rows, subscription.key, [subscription], frame, wall_ns, dt)
        subscription.samples += 1
        if subscription.interval:
            subscription.next_time = time.monotonic() + subscription.interval
        return True

    def reading(
        self,
        topic: Topic,
        reading: Reading,
        frame: int,
        wall_ns: int,
        dt: float,
        among: list[Subscription],
    ) -> list[Subscription]:
        """Send a reading to those who want this sample of it, among some; returns who got it."""
        if topic.info.events:
            among = [each for each in among if self._has_rows(reading, self._rows(reading, each.key))]
        out: list[Subscription] = []
        for key, receivers in self._hub.wanted(topic, among).items():
            if not (receivers := self._with_room(receivers)):
                continue
            self._write_reading(topic, reading, self._rows(reading, key), key, receivers, frame, wall_ns, dt)
            out += receivers
        return out

    @staticmethod
    def _rows(reading: Reading, key: Key) -> slice:
        """Return the rows of a reading that a subscription gets."""
        first, count, _ = key
        start = first - int(reading.env_ids[0])
        return slice(start, start + count)

    @staticmethod
    def _has_rows(reading: Reading, rows: slice) -> bool:
        offsets = reading.offsets
        return offsets is None or bool(offsets[rows.stop] > offsets[rows.start])

    def _write_reading(
        self,
        topic: Topic,
        reading: Reading,
        rows: slice,
        key: Key,
        receivers: list[Subscription],
        frame: int,
        wall_ns: int,
        dt: float,
    ) -> None:
        first, count, truth = key
        specs = reading.specs
        offsets = reading.offsets
        filled = 0 if offsets is None else int(offsets[rows.stop] - offsets[rows.start])
        layout = plan(specs, count, filled, truth)
        pose = None if reading.pose is None else reading.pose[rows]
        poses = 0 if pose is None else int(np.prod(pose.shape[1:-1]))
        start = body_offset(count, poses)
        payload = self._hub.allocate(topic, start + layout.nbytes, receivers)
        memory = memoryview(payload.data)
        age = float(reading.age[rows.start])
        time_ns = round(reading.time * 1e9)
        Header(
            (TRUTH if truth else 0) | (EVENTS if topic.info.events else 0),
            _FIELDS,
            topic.info.id,
            filled,
            topic.seq,
            frame,
            reading.tick,
            time_ns,
            round(int(reading.capture_tick[rows.start]) * dt * 1e9),
            wall_ns - round(age * 1e9),
            first,
            count,
            poses,
            0,
            layout.nbytes,
        ).pack_into(memory)
        if pose is not None:
            place_poses(memory, pose)
        FieldSerializer.write(reading, rows, truth, memory[start:])
        del memory
        self._hub.offer(payload, receivers)

    def bundle(self, topic: Topic, bundle: Bundle) -> Counter[Subscription]:
        """Send many small messages of a streamed sensor; returns who got any, and how many."""
        items, moment, seq = bundle.items, bundle.moment, topic.seq
        whole: dict[tuple[int, int], list[Subscription]] = {}
        single = []
        for each in topic.subscriptions:
            if each.lossless and each.every == 1 and not each.interval:
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
        for (first, end), receivers in whole.items():
            if first <= moment.first_env and moment.first_env + len(moment.poses) <= end:
                chosen = items
            else:
                chosen = [item for item in items if item[1] < end and first < item[1] + item[2]]
            if not chosen or not (receivers := self._with_room(receivers)):
                continue
            self._write_bundle(topic, bundle, chosen, seq + 1, receivers)
            out.update(dict.fromkeys(receivers, len(chosen)))
        return out

    def _write_bundle(
        self, topic: Topic, bundle: Bundle, items: list[Item], seq: int, receivers: list[Subscription]
    ) -> None:
        moment, body = bundle.moment, bundle_body(items)
        count, poses = moment.poses.shape[:2]
        start = body_offset(count, poses)
        payload = self._hub.allocate(topic, start + len(body), receivers, in_slot=False)
        payload.count = len(items)
        memory = memoryview(payload.data)
        Header(
            BUNDLE | (EVENTS if topic.info.events else 0),
            bundle.type_id,
            topic.info.id,
            0,
            seq,
            moment.frame,
            moment.tick,
            moment.time_ns,
            moment.time_ns,
            moment.wall_ns,
            moment.first_env,
            count,
            poses,
            0,
            len(body),
        ).pack_into(memory)
        place_poses(memory, moment.poses)
        copy_bytes(memory, start, memoryview(body))
        del memory
        self._hub.offer(payload, receivers)

    def message(self, topic: Topic, message: Outgoing, among: list[Subscription] | None = None) -> list[Subscription]:
        """Send what a streamed sensor made to those whose environments it concerns; returns who got it."""
        first, end = message.first_env, message.first_env + message.num_envs
        among = topic.subscriptions if among is None else among
        among = [each for each in among if each.key[0] < end and first < each.key[0] + each.key[1]]
        receivers = [each for group in self._hub.wanted(topic, among).values() for each in group]
        if not (receivers := self._with_room(receivers)):
            return []
        moment, body = message.moment, message.body
        poses = moment.poses.shape[1]
        start = body_offset(message.num_envs, poses)
        payload = self._hub.allocate(topic, start + len(body), receivers, body=body if message.is_lasting else None)
        memory = memoryview(payload.data)
        Header(
            EVENTS if topic.info.events else 0,
            message.type_id,
            topic.info.id,
            0,
            topic.seq,
            moment.frame,
            moment.tick,
            moment.time_ns,
            moment.time_ns,
            moment.wall_ns,
            first,
            message.num_envs,
            poses,
            0,
            len(body),
        ).pack_into(memory)
        place_poses(memory, moment.poses)
        if payload.body is None:
            copy_bytes(memory, start, body)
        del memory
        self._hub.offer(payload, receivers)
        return receivers

    def _with_room(self, receivers: list[Subscription]) -> list[Subscription]:
        """Wait in lock-step for slow listeners that must lose nothing; who is too slow is named and ended."""
        if not self.lockstep or not any(each.lossless and self._hub.is_full(each) for each in receivers):
            return receivers
        must = [each for each in receivers if each.lossless and not each.topic.info.events]
        for slow in self._hub.wait_for_room(must, time.monotonic() + self.patience):
            text = (
                f"the step waited {self.patience:g} s for client {slow.session} to take data of "
                f"{slow.topic.info.name!r}; its lossless subscription is ended"
            )
            self.complaints.append(text)
            self._hub.slow.append(text)
            self._hub.end(slow, f"too slow: the step waited {self.patience:g} s for it")
        return [each for each in receivers if not each.ended]


def place_poses(memory: memoryview, poses: Any) -> None:
    """Write poses `[env, mount, 7]` behind the header."""
    flat = np.asarray(poses, "<f4").reshape(-1)
    np.frombuffer(memory, "<f4", flat.size, HEADER_BYTES)[:] = flat


def copy_bytes(memory: memoryview, start: int, body: memoryview) -> None:
    """Copy a body to its place."""
    if len(body) < 4096:
        memory[start : start + len(body)] = body
    else:  # NumPy copies without holding the interpreter's lock
        np.copyto(np.frombuffer(memory, np.uint8, len(body), start), np.frombuffer(body, np.uint8))


class Marks:
    """Tells clients that a frame is complete, in order; a frame waits for what worker threads still send of it.

    Args:
        hub: who wants to hear.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._lock = threading.RLock()
        self._open: dict[int, Counter[str]] = {}
        self._resolved: deque[tuple[str, int]] = deque()
        self._waiting: deque[tuple[int, int, int]] = deque()
        self._since = 0.0
        self._named: set[str] = set()
        self._sent: dict[int, Counter[Subscription]] = {}
        self._told = 0

    @property
    def waiting(self) -> bool:
        """Whether frames wait for what worker threads still send."""
        return bool(self._waiting)

    def tell(self, sessions: Iterable[Session], frame: int, tick: int, time_ns: int) -> None:
        """Tell clients of the last complete frame; they may be told again."""
        streams: set[int] = set()
        sent: dict[Session, dict[int, int]] = {}
        with self._lock:
            for each, count in self._sent.get(frame, Counter()).items():
                streams.add(each.topic.info.id)
                sent.setdefault(each.session, {})[each.number] = count
        named = tuple(sorted(streams))
        for session in sessions:
            theirs = sorted(sent.get(session, {}).items())
            numbers, counts = tuple(number for number, _ in theirs), tuple(count for _, count in theirs)
            self._hub.tell(session, say.FrameDone(frame, tick, time_ns, named, numbers, counts))

    def capture(self, name: str, frame: int) -> None:
        """Note that a sensor will send something of a frame later."""
        with self._lock:
            self._open.setdefault(frame, Counter())[name] += 1

    def resolved(self, name: str, frame: int) -> None:
        """Note that it was sent or dropped; may be called while garbage is collected, in any thread."""
        self._resolved.append((name, frame))

    def look_around(self) -> None:
        """Name the sensors that a frame waits for since long: all that wait for frames wait for them."""
        with self._lock:
            if not self._waiting or time.monotonic() - self._since < HELD_S:
                return
            frame = self._waiting[0][0]
            names = {name for number, counts in self._open.items() if number <= frame for name in counts}
            for name in sorted(names - self._named):
                self._named.add(name)
                text = (
                    f"frame {frame} is not complete after {HELD_S:g} s: {name!r} holds a capture of it, or of an "
                    "earlier one, and has neither sent nor dropped it"
                )
                LOG.warning("%s", text)
                self._hub.slow.append(text)
                with self._hub.lock:
                    for session in self._hub.sessions.values():
                        if session.hears_frames:
                            self._hub.note(session, text)

    def sent(self, frame: int, receivers: Iterable[Subscription] | Mapping[Subscription, int]) -> None:
        """Note who got a message of a frame, once for each message, or how many each got."""
        with self._lock:
            if frame >= self._told:
                self._sent.setdefault(frame, Counter()).update(receivers)

    def done(self, frame: int, tick: int, time_ns: int) -> None:
        """Note that all of a frame was sent but what is captured."""
        with self._lock:
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting.append((frame, tick, time_ns))
            self.flush()

    def flush_resolved(self) -> None:
        """Do as `flush`, where anything was resolved since; on the socket's thread."""
        if self._resolved:
            self.flush()

    def flush(self) -> None:
        """Tell of the frames that are complete now."""
        with self._lock:
            while self._resolved:
                name, frame = self._resolved.popleft()
                counts = self._open.get(frame)
                if counts is not None:
                    counts[name] -= 1
                    if counts[name] <= 0:
                        del counts[name]
                    if not counts:
                        del self._open[frame]
            while self._waiting and not any(frame <= self._waiting[0][0] for frame in self._open):
                frame, tick, time_ns = self._waiting.popleft()
                self._since = time.monotonic()
                with self._hub.lock:
                    hearers = [each for each in self._hub.sessions.values() if each.hears_frames]
                    if hearers:
                        self.tell(hearers, frame, tick, time_ns)
                self._told = frame
                for earlier in [number for number in self._sent if number < frame]:
                    del self._sent[earlier]


def is_bulk(info: StreamInfo) -> bool:
    """Return whether a sensor makes images or many numbers per env, so that it is worth computing on demand only."""
    return any(spec.role == "image" or spec.columns >= 256 for spec in info.specs)


def hull(subscriptions: Iterable[Subscription]) -> slice:
    """Return the environments that any of some subscriptions gets."""
    keys = [each.key for each in subscriptions]
    return slice(min(first for first, _, _ in keys), max(first + count for first, count, _ in keys))


__all__ = ["Marks", "Publisher", "copy_bytes", "hull", "is_bulk", "place_poses"]
