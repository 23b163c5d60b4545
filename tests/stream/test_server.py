"""The server's data per listener and frame, and permitted actions of its owner; subscriptions compared with a model."""

from __future__ import annotations

import itertools
import math
import random
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from streaming import DT, PATIENCE, GaugeCfg, Sheet, SheetCfg, TickerDataSerializer, build, held, until
from synthetic import advance, world

import sensorium as sn
from sensorium.compat.actors import make_generic_sensor_definition
from sensorium.spec import contact_array
from sensorium.stream.streamed import StreamedSensor
from sensorium.stream.subscription_table import SMALL, Session, Subscription, SubscriptionTable, Topic
from sensorium.wire import messages as msg
from sensorium.wire.attributes import SensorDefinition
from sensorium.wire.header import BUNDLE, HEADER_BYTES, Header
from sensorium.wire.packing import CONTROL, DATA, PLACE, SLOT, Record
from sensorium.wire.serializers import read_bundle, read_message
from sensorium.wire.slots import SlotReader, slots_available
from sensorium.wire.stream_info import StreamInfo

# A listener without a socket ------------------------------------------------------------------------------------------


class _Said(deque[Record]):
    """An outbox that only the test empties."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Record] = []

    def append(self, record: Record) -> None:
        self.all.append(record)


class Listener:
    """A client of a server within the same thread; messages are available immediately."""

    _routes = itertools.count()

    def __init__(self, server: sn.Server) -> None:
        self.server, self.table = server, server._table
        self.session = Session(b"listener%d" % next(self._routes), "listener", 1, "here")
        self.session.outbox, self.session.silence = _Said(), -math.inf
        self.streams: dict[int, StreamInfo] = {}
        with self.table.lock:
            self.table.sessions[self.session.route] = self.session
            self.table.frame_listeners[self.session] = None

    def listen(
        self, name: str, *, lossless: bool = True, every: int = 1, rate: float = 0.0, first: int = 0, count: int = 0,
        truth: bool = False,
    ) -> int:  # fmt: skip
        """Subscribe and return the subscription number."""
        number, info = len(self.streams) + 1, self.server.streams[name]
        self.streams[number] = info
        wish = msg.Subscribe(number, info.id, lossless, every, rate, first, count, truth, 64, 1024)
        self.table.subscribe(self.session, wish)
        return number

    def stop(self, number: int) -> None:
        """End a subscription."""
        self.table.unsubscribe(self.session, number)

    def take(self) -> list[Any]:
        """Return the received messages: control messages, and (subscription, data)."""
        messages: list[Any] = []
        records, self.session.outbox.all = self.session.outbox.all, []  # type: ignore[attr-defined]
        for kind, number, _, content in records:
            if kind == CONTROL:
                messages.append(msg.decode(msg.TO_CLIENT, content))
                continue
            head, *bodies = content if isinstance(content, tuple) else (content,)
            body = bodies[0] if bodies else None
            head, info = memoryview(bytes(head)), self.streams[number]
            if head[6] & BUNDLE:
                data = list(read_bundle(head, info))
            else:
                data = [read_message(head, info, None if body is None else memoryview(bytes(body)))]
            messages += [(number, each) for each in data]
            self.table.credit(self.session, number, len(data))
        return messages

    def data(self, number: int = 0) -> list[Any]:
        """Return the received data of a subscription, or of all."""
        return [each[1] for each in self.take() if isinstance(each, tuple) and number in (0, each[0])]


@pytest.fixture
def rates() -> Iterator[sn.Server]:
    """A server whose sensors have rates that do not divide each other, with delays and without."""
    scene = build(columns=0)
    for name, period, delay in (("third", 3, 0), ("fifth", 5, 0), ("late", 3, 2), ("later", 3, 7)):
        scene.add(GaugeCfg(name=name, rate_hz=1.0 / (period * DT), delay=delay * DT or None))
    with sn.Server(scene) as server:
        yield server


def steps(server: sn.Server, count: int) -> None:
    for _ in range(count):
        server.scene.step()
        server.poll()


# Frames ---------------------------------------------------------------------------------------------------------------


def test_each_listener_gets_each_sample_once_in_its_frame(rates: sn.Server) -> None:
    """Each listener gets no sample twice and no old sample, whenever it starts, with or without polling."""
    scene, listeners = rates.scene, []
    names = ("gauge", "third", "fifth", "late", "later")
    came: dict[str, dict[int, int]] = {name: {} for name in names}
    for k in range(40):
        scene.step()
        for name in names:
            sensor = scene[name]
            if bool(sensor.is_new[0]):
                came[name][k + 1] = int(sensor.capture_tick[0])
        if k % 2:
            rates.poll()
        if k < 20:
            listener = Listener(rates)
            at = rates.frame
            listeners.append((listener, at, k % 2, {name: listener.listen(name, truth=k % 3 == 0) for name in names}))
            if k % 4 == 0:
                rates.poll()
    for listener, begun, is_polled, numbers in listeners:
        messages = listener.take()
        for name, number in numbers.items():
            of_it = [each[1] for each in messages if isinstance(each, tuple) and each[0] == number]
            assert len({data.frame for data in of_it}) == len(of_it), f"{name}: twice in one frame"
            is_plain = not of_it[0].truth
            got = {data.frame: int(data.capture_tick[0]) for data in of_it}
            arrived = {frame: tick for frame, tick in came[name].items() if frame > begun}
            if is_plain:
                assert {frame: tick for frame, tick in got.items() if frame > begun} == arrived, (name, begun)
            else:
                assert arrived.items() <= got.items(), (name, begun)
            early = {frame: tick for frame, tick in got.items() if frame <= begun}
            assert early.items() <= {begun: came[name].get(begun, got.get(begun))}.items(), (name, is_polled)


def test_a_step_of_many_ticks_has_a_frame_for_each_arrival_at_a_lossless_listener() -> None:
    """Samples of every third tick arrive after 2 and 7 ticks, where no sensor is due."""
    scene = build(columns=0)
    scene.remove("gauge")
    for name, delay in (("late", 2), ("later", 7)):
        scene.add(GaugeCfg(name=name, update_period=3 * DT, delay=delay * DT))
    with sn.Server(scene) as server:
        listener = Listener(server)
        for name in ("late", "later"):
            listener.listen(name)
        server.poll()
        listener.take()
        scene.step(substeps=24)
        got = [(data.sensor, data.tick, int(data.capture_tick[0])) for data in listener.data()]
    assert [each for each in got if each[0] == "late"] == [("late", 3 * k + 2, 3 * k) for k in range(8)]
    assert [each for each in got if each[0] == "later"] == [("later", 3 * k + 7, 3 * k) for k in range(6)]


def test_new_listener_gets_the_last_frames_sample_once(rates: sn.Server) -> None:
    steps(rates, 15)
    listener = Listener(rates)
    for name in ("fifth", "third", "late"):
        listener.listen(name)
    rates.poll()
    rates.poll()
    greeted = [(data.sensor, data.frame, int(data.capture_tick[0])) for data in listener.data()]
    assert sorted(greeted) == [("fifth", 15, 15), ("late", 15, 13)]
    steps(rates, 3)
    got = [(data.sensor, data.frame, int(data.capture_tick[0])) for data in listener.data()]
    assert sorted(got) == [("late", 18, 16), ("third", 16, 16)]


def test_end_of_frame_lists_subscriptions_with_data(rates: sn.Server) -> None:
    """A listener of arrivals is not asked to wait for data that only a listener of the truth gets immediately."""
    listener = Listener(rates)
    plain, true = listener.listen("late"), listener.listen("late", truth=True)
    steps(rates, 2)
    listener.take()
    for _ in range(12):
        steps(rates, 1)
        messages = listener.take()
        (done,) = (each for each in messages if isinstance(each, msg.FrameDone))
        had = sorted(each[0] for each in messages if isinstance(each, tuple))
        assert [number for number, _, _ in done.messages] == had
        assert (plain in had) == bool(rates.scene["late"].is_new[0])
        assert bool(done.streams) == bool(had)
    assert true == 2


class InTurn(StreamedSensor):
    """Sends an event of one environment in each frame, a different environment each time."""

    serializer = TickerDataSerializer
    events: ClassVar[bool] = True

    @classmethod
    def definition(cls) -> SensorDefinition:
        return make_generic_sensor_definition("other", "test_in_turn")

    def tick(self, snapshot: Any) -> None:
        self.stream.send(np.zeros(2, np.int64), env=snapshot.frame % len(self.envs))


class Memory(InTurn):
    """Keeps all snapshots."""

    kept: ClassVar[list[tuple[Any, Any]]] = []

    @classmethod
    def definition(cls) -> SensorDefinition:
        return make_generic_sensor_definition("other", "test_memory")

    def tick(self, snapshot: Any) -> None:
        self.kept.append((snapshot.pos_w, snapshot.pos_w.copy()))


def test_snapshots_never_change() -> None:
    """They have their own memory, whether or not a client listens to the bodies too."""
    engine = sn.TensorEngine(1, DT, motion=lambda t: {"body_pos_w": np.full((1, 1, 3), t, np.float32)})
    with sn.Server(sn.Scene(engine)) as server:
        server.spawn("sensor.other.test_memory")
        steps(server, 3)
        Listener(server).listen("world")
        steps(server, 3)
    assert [float(then[0, 0, 0]) for _, then in Memory.kept] == pytest.approx([k * DT for k in range(1, 7)])
    assert all(np.array_equal(now, then) for now, then in Memory.kept)


def test_frames_are_complete_for_listeners_of_some_environments() -> None:
    """Beside a listener of all environments, a listener of some does not wait for data that only the other gets."""
    with build(columns=0).local_client(timeout=PATIENCE) as client:
        sensor = client.spawn("sensor.other.test_in_turn")
        sensor.listen(lambda data: None)
        with sn.client.FrameSync(client, [sensor.name, "gauge"], envs=slice(1, 2)) as sync:
            for _ in range(8):
                frame = client.step()
                bundle = sync.get(frame, timeout=PATIENCE)
                assert bundle["gauge"] is not None and (bundle[sensor.name] is not None) == (frame % 4 == 1)


def test_every_counts_samples_available_to_the_listener(rates: sn.Server) -> None:
    """A listener with `every` gets the first sample and each second from there, also between the samples of others."""
    listener = Listener(rates)
    whole, half = listener.listen("late"), listener.listen("late", every=2)
    listener.listen("late", truth=True)
    steps(rates, 40)
    messages = [each for each in listener.take() if isinstance(each, tuple)]
    everything = [data.frame for number, data in messages if number == whole]
    assert [data.frame for number, data in messages if number == half] == everything[::2]
    assert len(everything) > 10


def test_values_poses_and_truth_equal_the_scenes_bit_for_bit() -> None:
    """Delays, jitter, loss and histories agree, for all envs and slices at both ends, at every tick with an arrival."""
    cfgs = [
        sn.ImuCfg(name="a", body="body", rate_hz=50.0, acc_noise=0.1, delay=0.03, jitter=0.02),
        sn.ImuCfg(
            name="b",
            body="body",
            rate_hz=100.0,
            delay=0.01,
            loss=0.3,
            history_length=3,
            offset=sn.OffsetCfg(pos=(1, 2, 3)),
        ),
        sn.ImuCfg(name="c", body="body", history_length=2, gyro_noise=0.1),
    ]
    scene = world(cfgs, num_envs=5, capture=False, debug=True)
    with sn.Server(scene) as server:
        listener = Listener(server)
        parts = {
            listener.listen(name, truth=True, first=part.start, count=part.stop - part.start): (name, part)
            for name in "abc"
            for part in (slice(0, 5), slice(0, 1), slice(4, 5), slice(1, 3))
        }
        server.poll()
        listener.take()
        seen = 0
        for k in range(60):
            if k == 30:
                scene.reset([1, 4])
                listener.take()
            advance(scene)
            shown = scene.publish(["a", "b", "c"], poses=True)
            for number, data in (each for each in listener.take() if isinstance(each, tuple)):
                name, part = parts[number]
                reading = shown[name]
                seen += 1
                for key in data.measured:
                    np.testing.assert_array_equal(data[key], reading[key][part])
                    np.testing.assert_array_equal(data.truth[key], reading.truth[key][part])
                np.testing.assert_array_equal(data.capture_tick, reading.capture_tick[part])
                np.testing.assert_array_equal(data.age, reading.age[part])
                assert reading.pose is not None
                poses = reading.pose[part].reshape(data.transforms.shape)
                np.testing.assert_array_equal(data.transforms, poses)
                assert data.tick == scene.tick and data.num_envs == part.stop - part.start
        assert seen > 4 * 3 * 30


def test_sensors_with_history_send_each_sample_once() -> None:
    """Their `data` holds the last samples; the message holds the newest of them, as for every other sensor."""
    block = sn.engines.Shape("box", "block", (0.2, 0.2, 0.1), body="thing")
    engine = sn.TensorEngine(3, 0.001, bodies=("tip", "thing"), shapes=[block])
    points = ((0.0, 0.0, 0.0), (0.05, 0.0, 0.0))
    cfg = sn.KinematicTactileSensorCfg(name="skin", link_name="tip", probe_local_pos=points, history_length=4)
    scene = sn.Scene(engine, [cfg])
    with sn.Server(scene) as server:
        listener = Listener(server)
        listener.listen("skin", truth=True, first=1, count=2)
        server.poll()
        listener.take()
        forces = []
        for depth in (0.001, 0.002, 0.004, 0.003, 0.001):
            engine.body_pos_w[:, 1, 2] = 0.11 - depth
            scene.update()
            (data,) = listener.data()
            forces.append(scene["skin"].ground_truth.force.numpy().copy()[1:])
            np.testing.assert_array_equal(data["force"], scene["skin"].data.force.numpy()[1:, 0])
            np.testing.assert_array_equal(data.truth["force"], forces[-1])
        assert data["force"].shape == (2, 2, 3) and data.info.specs[0].axes == ("probe", "xyz")
        assert np.abs(forces[-1] - forces[-2]).max() > 0.0


def test_events_are_sent_to_listeners_of_their_environments() -> None:
    """Each sample is sent once, with the bounds of its environments; without events no message is sent or counted."""
    match = sn.ContactMatch(mode="body", pattern="left|right")
    cfg = sn.CollisionEventsCfg(name="hits", primary=match)
    (report,) = sn.CollisionEvents.needs(cfg, sn.TensorEngine(bodies=("left", "right")), lambda need: None)

    def motion(time: float) -> dict[str, Any]:
        values, tick = torch.zeros(3, 2, 1, 7), round(time / DT)
        if tick % 6 >= 3:
            values[tick // 6 % 3, :, 0, 0] = 1.0
            values[tick // 6 % 3, :, 0, 3] = float(tick)
        return {contact_array(report): values}

    engine = sn.TensorEngine(3, DT, bodies=("left", "right"), provides=("contact",))
    engine.contacts[report]
    engine.motion = motion
    engine.forward()
    scene = sn.Scene(engine, [cfg])
    with sn.Server(scene) as server:
        listener = Listener(server)
        parts = {
            listener.listen("hits", first=first, count=count): (first, count)
            for first, count in ((0, 3), (1, 1), (2, 1))
        }
        second = listener.listen("hits", every=2)
        steps(server, 1)
        got: dict[int, list[int]] = {number: [] for number in (*parts, second)}
        shown: list[int] = []
        for _ in range(60):
            scene.step()
            offsets = scene.publish(["hits"])["hits"].offsets
            assert offsets is not None
            shown += [scene.tick] if offsets[-1] else []
            for number, data in (each for each in listener.take() if isinstance(each, tuple)):
                first, count = parts.get(number, (0, 3))
                np.testing.assert_array_equal(data.offsets, offsets[first : first + count + 1] - offsets[first])
                assert data.offsets[-1] > 0
                got[number].append(data.tick)
        assert got[1] == shown and len(shown) > 15
        assert got[second] == shown[::2]
        assert got[2] and got[3] and set(got[2]).isdisjoint(got[3])


def test_last_environment_alone_can_be_selected() -> None:
    for num_envs in (1, 512):
        with sn.Server(build(num_envs=num_envs, columns=0)) as server:
            listener = Listener(server)
            listener.listen("gauge", first=num_envs - 1, count=1)
            steps(server, 2)
            got = listener.data()
            assert [data["vec"][0, 0] for data in got] == [1024.0 * (num_envs - 1) + data.tick for data in got]
            assert len(got) == 2


# Actions of the scene's owner -----------------------------------------------------------------------------------------


def test_replaced_sensor_with_equal_config_is_detected() -> None:
    """The counts of listeners are correct, and the sensor is computed only for active listeners."""
    scene = sn.Scene(sn.TensorEngine(2, DT), [SheetCfg(name="sheet", columns=300, rate_hz=0.25 / DT)])

    def computed(count: int) -> int:
        before = Sheet.computed
        steps(server, count)
        return Sheet.computed - before

    with sn.Server(scene) as server:
        listener = Listener(server)
        first = listener.listen("sheet")
        assert computed(40) == 10
        cfg = scene["sheet"].cfg
        scene.remove("sheet")
        scene.add(cfg)
        server.poll()
        ends = [each for each in listener.take() if isinstance(each, msg.Eos)]
        assert [end.subscription for end in ends] == [first]
        assert scene["sheet"].buffers.listeners == 0
        assert computed(40) <= 1
        listener.listen("sheet")
        server.poll()
        assert scene["sheet"].buffers.listeners == 1 and computed(40) == 10
        scene.reconfigure("sheet", columns=301)
        assert computed(40) <= 1 and scene["sheet"].buffers.listeners == 0
    assert scene["sheet"].buffers.listeners == 0


def test_owner_can_remove_sensors_spawned_by_clients() -> None:
    """The stream of a removed sensor ends, its name is free, and its client's end has no effect."""
    scene = build(columns=0)
    with sn.Server(scene) as server, scene.local_client(timeout=PATIENCE, server=server) as client:
        listener = Listener(server)
        info = client.spawn("sensor.other.imu", attach_to="body").info
        listener.listen(info.name)
        steps(server, 1)
        scene.remove(info.name)
        steps(server, 1)
        assert info.name not in server.streams and "imu" not in scene.sensors
        assert [each.reason for each in listener.take() if isinstance(each, msg.Eos)] == [
            "it was removed from its scene"
        ]
        with pytest.raises(sn.UnknownNameError, match="spawned sensor"):
            server.remove(info.name)
        again = server.spawn("sensor.other.imu", attach_to="body")
        assert again.name == info.name
        client.close()
        steps(server, 1)
        assert again.name in server.streams


def test_body_sensors_survive_the_server_that_streamed_the_bodies() -> None:
    """Two servers on a scene share the states of the bodies; neither removes them from the other."""
    scene = build(columns=0)
    first = sn.Server(scene)
    with sn.Server(scene) as second:
        listener = Listener(second)
        ticker = second.spawn("sensor.other.test_ticker", attach_to="body")
        listener.listen(ticker.name)
        steps(second, 2)
        first.close()
        steps(second, 2)
        scene.remove("world")
        steps(second, 2)
        assert [data.frame for data in listener.data()] == [1, 2, 3, 4, 5, 6]
        assert not second.failures.count
    assert list(scene) == ["gauge"]


def test_scene_sensor_named_world_is_reported_as_conflict() -> None:
    scene = sn.Scene(sn.TensorEngine(2, DT), [GaugeCfg(name="world")])
    with sn.Server(scene) as server:
        with pytest.raises(sn.ConfigError, match="Rename the other sensor"):
            server.spawn("sensor.other.test_ticker", attach_to="body")
        listener = Listener(server)
        listener.listen("world")
        steps(server, 2)
        assert len(listener.data()) == 2
    assert list(scene) == ["world"]


def test_two_servers_do_not_share_pose_state() -> None:
    """After a listener of the other server stops, poses of this server continue, and end with its last listener."""
    scene = world([sn.ImuCfg(name="imu", body="body", rate_hz=20.0, delay=0.03)])
    with sn.Server(scene) as one, sn.Server(scene) as other:
        mine, its = Listener(one), Listener(other)
        number = its.listen("imu")
        mine.listen("imu")
        one.poll()
        for k in range(40):
            if k == 13:
                its.stop(number)
            advance(scene)
            other.poll()
            one.poll()
        got = mine.data()
        assert len(got) > 7
        assert [data.transforms[1, 0, 0] for data in got] == [64.0 + float(data.capture_tick[1]) for data in got]
        assert scene["imu"].buffers.listeners == 1
    assert scene["imu"].buffers.listeners == 0 and scene["imu"].buffers.poses is None


# Faulty streamed sensors ----------------------------------------------------------------------------------------------


class Faulty(StreamedSensor):
    """A sensor with a selectable fault."""

    serializer = TickerDataSerializer
    fault: ClassVar[str] = ""
    server: ClassVar[Any] = None

    @classmethod
    def definition(cls) -> SensorDefinition:
        return make_generic_sensor_definition("other", "test_faulty")

    def set(self, description: Any) -> None:
        super().set(description)
        self._fail("set")

    def set_owner(self, owner: Any) -> None:
        super().set_owner(owner)
        self._fail("set_owner")

    def tick(self, snapshot: Any) -> None:
        self._fail("tick")
        if self.fault == "env":
            self.stream.send(np.zeros(2, np.int64), env=99)
        elif self.fault == "nobody":
            self.stream.send(b"")
        elif self.fault == "removal":
            for name in list(self.server.streamed.sensors):
                self.server.remove(name)

    def close(self) -> None:
        self._fail("close")

    def _fail(self, where: str) -> None:
        if self.fault == where:
            raise RuntimeError(where)


@pytest.mark.parametrize("fault", ["set", "set_owner", "tick", "env", "close", "nobody", "removal"])
def test_faulty_sensor_removes_only_itself(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others continue, each frame ends, and nothing of the faulty sensor is left."""
    scene = build(columns=0)
    with sn.Server(scene) as server:
        listener = Listener(server)
        gauge = listener.listen("gauge")
        monkeypatch.setattr(Faulty, "server", server)
        monkeypatch.setattr(Faulty, "fault", fault)
        if fault in ("set", "set_owner"):
            with pytest.raises(RuntimeError, match=fault):
                server.spawn("sensor.other.test_faulty", attach_to="body")
        else:
            names = [server.spawn("sensor.other.test_faulty").name for _ in range(2)]
            for name in names:
                listener.listen(name)
            steps(server, 3)
            for name in names:
                if name in server.streams:
                    server.remove(name)
        steps(server, 2)
        messages = listener.take()
        frames = [each[1].frame for each in messages if isinstance(each, tuple) and each[0] == gauge]
        done = [each.frame for each in messages if isinstance(each, msg.FrameDone)]
        assert frames[-2:] == done[-2:] and np.diff(done).tolist() == [1] * (len(done) - 1)
        assert set(server.streams) == {"gauge", "world"}
        assert not server.streamed.sensors and server.streamed.world is None
        assert server.failures.count == {"tick": 2, "env": 2, "close": 2}.get(fault, 0)
    assert list(scene) == ["gauge"]


# The loop -------------------------------------------------------------------------------------------------------------


def test_short_lived_listeners_leave_nothing() -> None:
    """Descriptors, threads, subscriptions, poses and pending work are as before."""
    scene = build(columns=0)
    with sn.Server(scene) as server:
        steps(server, 2)
        before = held()
        for k in range(300):
            listener = Listener(server)
            numbers = [listener.listen("gauge", truth=k % 2 == 0), listener.listen("world")]
            if k % 3:
                steps(server, 1)
            for number in numbers[k % 2 :]:
                listener.stop(number)
            server._table.remove_session(listener.session)
        steps(server, 2)
        after = held()
        assert (after["fds"], after["threads"]) == (before["fds"], before["threads"])
        assert server.counts[:2] == (0, 0) and not server._table.fresh
        until(lambda: not server._sockets._ready, "the socket's thread")
        assert scene["gauge"].buffers.listeners == 0 and scene["world"].buffers.listeners == 0
        assert scene["world"].buffers.poses is None


def test_server_without_polling_keeps_nothing_of_short_lived_clients() -> None:
    """Subscriptions that started and ended, and clients that requested frame messages, are forgotten."""
    with sn.Server(build(columns=0)) as server:
        access = server._access
        for _ in range(50):
            listener = Listener(server)
            for _ in range(20):
                access._handle_message(listener.session, msg.Frames(True))
                listener.stop(listener.listen("gauge"))
            assert len(server._table.fresh) == 0 and len(access.new_frame_listeners) == 1
            access.end(listener.session)
        assert not access.new_frame_listeners


def test_loop_speed_is_validated() -> None:
    with sn.Server(build(columns=0)) as server:
        for speed in (-1.0, float("nan"), float("inf")):
            with pytest.raises(sn.ConfigError, match=r"Server\.run\.speed"):
                server.run(speed=speed, until=lambda: True)


# The subscription table against a model -------------------------------------------------------------------------------


def test_shared_memory_is_freed_after_the_last_message_of_an_ended_stream() -> None:
    """This holds also for a message in transit through the socket when its stream ends."""
    model = Model(0)
    model.subscribe()
    (expected,) = model.subscriptions
    expected.real.session.shares_memory = True
    topic = expected.real.topic
    payload = model.table.allocate(topic, 2 * SMALL, [expected.real])
    assert payload.writer is not None and model.table.counts.segments == 1
    model.table.remove_topic(topic.info.name, "removed")
    assert model.table.counts.segments == 1
    del payload
    assert model.table.counts.segments == 0
    model.table.close()


class Outboxes:
    """Records for clients, which only the test takes."""

    def put(self, session: Session, record: Record) -> None:
        session.outbox.append(record)

    def send(self, session: Session, message: msg.Message) -> None:
        self.put(session, Record(CONTROL, 0, 0, msg.encode(message)))

    def wake(self) -> None:
        """Wake the thread, of which there is none."""


@dataclass
class Expected:
    """Expected data of a subscription, according to its policy."""

    real: Subscription
    kind: str
    window: int
    limit: int
    offered: list[int] = field(default_factory=list)
    got: list[int] = field(default_factory=list)
    accounted: int = 0
    """Number of the last message that was given."""
    under_way: int = 0
    ended: str = ""


class Model:
    """A table, its clients and their expected data, under random operations."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.random = random.Random(seed)
        self.table = SubscriptionTable(Outboxes(), uses_slots=slots_available(), **options)  # type: ignore[arg-type]
        self.subscriptions: list[Expected] = []
        self.by_number: dict[tuple[bytes, int], Expected] = {}
        self.slots: list[tuple[Session, tuple[int, int, int], bytes]] = []
        self.segments: dict[tuple[bytes, int], msg.Segment] = {}
        """(client, number of a segment) -> its announcement to the client."""
        self.numbers = itertools.count(1)
        self.sent = itertools.count(1)
        for number in range(1, 4):
            self.add_topic(number)
        for k in range(3):
            self.connect(k)

    def memory(self, session: Session, segment: int, slot: int) -> bytes:
        """Return the header in a slot, as the client reads it."""
        found = self.segments[session.route, segment]
        return bytes(SlotReader(found.name, found.token, found.slot_size, found.count).memory(slot, HEADER_BYTES))

    def add_topic(self, number: int) -> None:
        about = {"id": number, "name": f"t{number}", "kind": "x", "type_name": "x/1", "num_envs": 4}
        self.table.add_topic(Topic(StreamInfo(**about, events=number == 3)))  # type: ignore[arg-type]

    def connect(self, k: int) -> None:
        session = Session(b"%d" % k, f"c{k}", 1, "here", shares_memory=k != 0)
        self.table.sessions[session.route] = session

    def subscribe(self) -> None:
        session, topic = (
            self.random.choice([*self.table.sessions.values()]),
            self.random.choice([*self.table.topics.values()]),
        )
        number, lossless = next(self.numbers), self.random.random() < 0.5
        window, limit = self.random.randint(1, 5), self.random.randint(1, 6)
        wish = msg.Subscribe(number, topic.info.id, lossless, 1, 0.0, self.random.randrange(4), 1, False, window, limit)
        self.table.subscribe(session, wish)
        kind = "events" if topic.info.events else "lossless" if lossless else "latest"
        expected = Expected(session.subscriptions[number], kind, window, limit)
        self.subscriptions.append(expected)
        self.by_number[session.route, number] = expected

    def offer(self) -> None:
        topic = self.table.topics[self.random.choice([*self.table.topics])]
        for receivers in self.table.wanted(topic, topic.subscriptions).values():
            number = next(self.sent)
            size = self.random.choice((HEADER_BYTES, SMALL + self.random.randint(1, 9000)))
            payload = self.table.allocate(topic, size, receivers)
            memoryview(payload.data)[:HEADER_BYTES] = self.content(number)
            for each in self.subscriptions:
                if each.real in receivers:
                    each.offered.append(number)
            self.table.offer(payload, receivers)
            del payload

    @staticmethod
    def content(number: int) -> bytes:
        return Header(seq=number, frame=2 * number).pack()

    def read(self) -> None:
        """Read all messages for the clients."""
        for session in self.table.sessions.values():
            while session.outbox:
                kind, number, seq, content = session.outbox.popleft()
                if kind == CONTROL:
                    message = msg.decode(msg.TO_CLIENT, content)
                    if isinstance(message, msg.Eos):
                        self.by_number[session.route, message.subscription].ended = message.reason
                    elif isinstance(message, msg.Segment):
                        self.segments[session.route, message.segment] = message
                    continue
                expected = self.by_number[session.route, number]
                if kind == SLOT:
                    place = PLACE.unpack(content)
                    assert session.shares_memory
                    memory = self.memory(session, *place[:2])
                    self.slots.append((session, place, memory))
                else:
                    assert kind == DATA
                    head = content[0] if isinstance(content, tuple) else content
                    memory = bytes(memoryview(head)[:HEADER_BYTES])
                self.receive(expected, seq, memory)

    def receive(self, expected: Expected, seq: int, memory: bytes) -> None:
        assert seq == expected.accounted + 1 or (seq > expected.accounted and expected.kind != "lossless")
        assert memory == self.content(expected.offered[seq - 1]), "another one"
        expected.got.append(expected.offered[seq - 1])
        expected.accounted = seq
        expected.under_way += 1
        assert expected.under_way <= expected.window

    def credit(self) -> None:
        waiting = [each for each in self.subscriptions if each.under_way]
        if waiting:
            each = self.random.choice(waiting)
            count = self.random.randint(1, each.under_way)
            each.under_way -= count
            self.table.credit(each.real.session, each.real.number, count)

    def release(self, count: int = 1) -> None:
        for _ in range(min(count, len(self.slots))):
            session, (segment, slot, _), memory = self.slots.pop(self.random.randrange(len(self.slots)))
            if self.table.sessions.get(session.route) is session:
                assert self.memory(session, segment, slot) == memory, "written while held"
                self.table.release(session, segment, slot)

    def end(self) -> None:
        if self.table.sessions and self.subscriptions:
            real = self.random.choice(self.subscriptions).real
            self.table.unsubscribe(real.session, real.number)

    def disconnect(self) -> None:
        self.read()
        session = self.random.choice([*self.table.sessions.values()])
        self.table.remove_session(session)
        for each in self.subscriptions:
            if each.real.session is session:
                each.ended, each.under_way = "gone", 0
        self.connect(int(session.route))

    def replace_topic(self) -> None:
        name = self.random.choice([*self.table.topics])
        number = self.table.topics[name].info.id
        self.table.remove_topic(name, "removed")
        self.add_topic(number)

    def check(self) -> None:
        for each in self.subscriptions:
            if each.ended == "gone" or each.real.ended:
                continue
            waits = len(each.offered) - each.accounted
            assert each.real.queued <= (1 if each.kind == "latest" else each.limit)
            assert waits == each.real.queued if each.kind == "lossless" else waits >= each.real.queued
            if each.kind == "latest" and each.real.waiting:
                assert each.real.waiting[0][0] == len(each.offered), "the newest"
            assert each.under_way or each.real.queued == 0
        for each in self.subscriptions:
            if each.ended.startswith("too slow") and "max_queued_mb" not in each.ended:
                assert each.kind == "lossless" and len(each.offered) - len(each.got) > each.limit

    def check_held(self, most: int) -> None:
        """Compare the counted sizes with the messages that wait and are in transit."""
        for session in self.table.sessions.values():
            sizes = [
                size
                for each in session.subscriptions.values()
                for size in (*(payload.size for _, payload in each.waiting), *(held for _, held in each.in_transit))
                if size
            ]
            assert session.held == sum(sizes)
            assert session.held <= most // len(self.table.sessions) or len(sizes) == 1


@pytest.mark.parametrize("cause", ["read", "stopped", "disconnected", "more memory", "closing"])
def test_step_that_waits_for_a_listener_continues_as_soon_as_it_can(cause: str) -> None:
    """The step may wait an hour, but a change that lets it continue wakes it."""
    model = Model(0, patience=3600.0, max_held=900 if cause == "more memory" else 2**30)
    table, waiting = model.table, threading.Event()

    class Noted(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            waiting.set()  # with the lock, which the change below needs
            return super().wait(timeout)

    table.has_room = Noted(table.lock)
    (session, other, _), topic = table.sessions.values(), table.topics["t1"]
    limit = 10 if cause == "more memory" else 1
    table.subscribe(session, msg.Subscribe(1, topic.info.id, True, 1, 0.0, 0, 1, False, 1, limit))
    listener = session.subscriptions[1]
    for _ in range(2):  # the first is in transit, the second waits
        table.offer(table.allocate(topic, HEADER_BYTES, [listener]), [listener])
    found: list[list[Subscription]] = []
    step = threading.Thread(target=lambda: found.append(table.with_room([listener])), daemon=True)
    step.start()
    assert waiting.wait(PATIENCE) and not found
    match cause:
        case "read":
            table.credit(session, 1, 1)
        case "stopped":
            table.unsubscribe(session, 1)
        case "disconnected":
            table.remove_session(session)
        case "more memory":  # the share of a client that is gone
            table.remove_session(other)
        case "closing":
            table.stop_waiting()
    step.join(PATIENCE)
    assert found == [[] if cause in ("stopped", "disconnected") else [listener]]


@pytest.mark.parametrize("most", [200_000, 2**30])
def test_memory_held_for_clients_is_counted_and_bounded(most: int) -> None:
    """Subscriptions with the most waiting messages are ended; none waits for ever, and at the end nothing is held."""
    model = Model(most, max_held=most)
    operations = {
        model.offer: 60, model.credit: 8, model.release: 10, model.read: 20, model.subscribe: 8, model.end: 2,
        model.disconnect: 0.5, model.replace_topic: 0.5,
    }  # fmt: skip
    for _ in range(1500):
        (operation,) = model.random.choices([*operations], [*operations.values()])
        operation()
        model.check_held(most)
    model.read()
    assert any("max_queued_mb" in each.ended for each in model.subscriptions) is (most < 2**30)
    got = sum(len(each.got) for each in model.subscriptions)
    for _ in range(3000):
        model.read()
        model.credit()
    assert sum(len(each.got) for each in model.subscriptions) > got
    assert all(not each.real.queued for each in model.subscriptions if not each.ended and not each.real.ended)
    for session in list(model.table.sessions.values()):
        model.table.remove_session(session)
    model.table.close()


@pytest.mark.parametrize("seed", range(3))
def test_subscription_table_matches_the_policy_model(seed: int) -> None:
    """Lossless gives all in order or an end, latest counts drops, events count losses; held slots stay unchanged."""
    model = Model(seed)
    operations = {
        model.offer: 40, model.credit: 25, model.release: 15, model.read: 20, model.subscribe: 6, model.end: 2,
        model.disconnect: 0.5, model.replace_topic: 0.5,
    }  # fmt: skip
    for _ in range(1500):
        (operation,) = model.random.choices([*operations], [*operations.values()])
        operation()
        if operation is model.read:
            model.check()
    assert {each.kind for each in model.subscriptions if each.got} == {"lossless", "latest", "events"}
    assert sum(len(each.got) for each in model.subscriptions) > 300
    model.read()
    for each in model.subscriptions:
        model.table.unsubscribe(each.real.session, each.real.number)
    model.release(len(model.slots))
    counts = model.table.counts
    assert (counts.subscriptions, counts.slots_lent) == (0, 0)
    for name in list(model.table.topics):
        model.table.remove_topic(name, "removed")
    assert model.table.counts.segments == 0
    model.table.close()
