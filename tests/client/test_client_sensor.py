"""Client sensors: order of frames, ticks on many threads, listeners, errors, and the registry."""

from __future__ import annotations

import logging
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client_world import BODIES, CAR, FakeHost, drain, listen, snapshot, spawn
from nursery import PATIENCE, until

from sensorium.client import client_sensor
from sensorium.client.callbacks import Callbacks
from sensorium.client.client_sensor import REGISTRY, ClientEvent, ClientSensor, definitions
from sensorium.compat.actors import make_generic_sensor_definition
from sensorium.errors import (
    ConfigError,
    RegistrationError,
    SensoriumWarning,
    StaleError,
    StreamError,
    UnknownNameError,
)
from sensorium.plugins import Plugins
from sensorium.pose import Pose
from sensorium.wire.attributes import ActorDescription, Attribute, SensorDefinition
from sensorium.wire.world import Owner, Snapshot, owner_of


@pytest.fixture
def host() -> Iterator[FakeHost]:
    host = FakeHost(Callbacks())
    yield host
    host.close()


@pytest.fixture(autouse=True)
def no_noise(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "sensorium.client")


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restrict a test's registrations to that test."""
    monkeypatch.setattr(REGISTRY, "data", REGISTRY.registered())


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(ClientEvent):
    """The position of the car."""

    x: float


class Follow(ClientSensor):
    """Reports the position of the car, and records all calls."""

    def __init__(self) -> None:
        self.calls = list[Any]()
        self.inside = 0

    def set(self, description: ActorDescription) -> None:
        super().set(description)
        self.calls.append(("set", dict(description.values)))

    def set_owner(self, owner: Owner) -> None:
        super().set_owner(owner)
        self.calls.append(("set_owner", owner.body.name))

    def reset(self) -> None:
        self.calls.append("reset")

    def on_tick(self, snapshot: Snapshot) -> Moved:
        self.inside += 1
        assert self.inside == 1
        self.calls.append(snapshot.frame)
        event = Moved.at(self, snapshot, x=float(snapshot.pos_w[0, 1, 0]))
        self.inside -= 1
        return event

    def close(self) -> None:
        super().close()
        self.calls.append("close")


def made(host: FakeHost, cls: type[Any] = Follow, **options: Any) -> Any:
    options = {"owner": owner_of(CAR, BODIES), **options}
    return spawn(cls, host, "follow", ActorDescription("sensor.other.follow", {"speed": 2.0}), **options)


def in_threads(count: int, function: Callable[[int], object]) -> None:
    """Call a function in several threads at once, and wait for all of them."""
    errors = list[BaseException]()

    def run(i: int) -> None:
        try:
            function(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert errors == []


# Life cycle of a sensor -----------------------------------------------------------------------------------------------


def test_hooks_are_called_in_order(host: FakeHost) -> None:
    gone, arrived = list[str](), list[Moved]()
    sensor = made(host, on_destroy=lambda: gone.append("gone"))
    assert sensor.calls == [("set", {"speed": 2.0}), ("set_owner", "car/chassis")] and host.handles == []
    listen(sensor, arrived.append)
    host.send(snapshot(3, (1.5, 0.0)))
    host.send(snapshot(4, (2.5, 0.0)))
    drain(sensor)
    sensor.destroy()
    sensor.destroy()
    assert sensor.calls[2:] == ["reset", 3, 4, "close"] and gone == ["gone"] and not sensor.is_alive
    assert [event.x for event in arrived] == [1.5, 2.5]
    with pytest.raises(StaleError, match="sensor 'follow' was destroyed"):
        sensor.listen(arrived.append)


def test_event_has_the_attributes_of_all_data(host: FakeHost) -> None:
    """The sensor sits 2 m ahead of the car's origin, and the car is turned by 90 degrees."""
    arrived, half = list[Moved](), np.sqrt(0.5)
    sensor = made(host, envs=range(4, 6), transform=Pose((2.0, 0.0, 1.0)))
    listen(sensor, arrived.append)
    host.send(snapshot(7, [(1.0, 5.0), (8.0, 9.0)], np.pi / 2, first_env=4))
    drain(sensor)
    (event,) = arrived
    assert (event.frame, event.tick, event.timestamp, event.time, event.age) == (7, 70, 0.07, 0.07, 0.0)
    assert (event.sensor, event.env, event.events_lost) == ("follow", 4, 0) and event.copy() is event
    assert event.transform is not None
    np.testing.assert_allclose(event.transform.pos, (1.0, 7.0, 1.0), atol=1e-6)
    np.testing.assert_allclose(event.transform.rot, (half, 0.0, 0.0, half), atol=1e-6)
    assert host.handles[0].envs == range(4, 6)


def test_sensor_without_owner_is_fixed_in_the_world(host: FakeHost) -> None:
    sensor = made(host, owner=None, transform=Pose((1.0, 2.0, 3.0)))
    assert sensor.pose(snapshot(1)) == Pose((1.0, 2.0, 3.0)) and sensor.owner is None


def test_owner_lists_the_bodies_of_its_entity() -> None:
    assert owner_of(CAR, BODIES).links == {1, 2}
    assert owner_of(BODIES["tree"], BODIES).links == {3}


def test_snapshot_without_the_sensors_environments_is_refused(host: FakeHost) -> None:
    sensor = made(host, envs=range(1, 3))
    assert sensor.rows(snapshot(1, np.zeros((4, 2)))) == slice(1, 3)
    with pytest.raises(StreamError, match=r"snapshot .*1\.\.2 of sensor 'follow'"):
        sensor.rows(snapshot(1, np.zeros((2, 2))))


def test_extra_arguments_are_passed_to_init(host: FakeHost) -> None:
    class Built(Follow):
        def __init__(self, gain: float) -> None:
            super().__init__()
            self.gain = gain

    assert made(host, Built, gain=2.5).gain == 2.5
    with pytest.raises(TypeError, match="gian"):
        made(host, Built, gian=2.5)


def test_sensor_that_fails_in_construction_is_closed(host: FakeHost) -> None:
    calls, gone = list[str](), list[int]()

    class Picky(ClientSensor):
        def set(self, description: ActorDescription) -> None:
            raise ConfigError.single("Picky", "attach_to", None, "a body")

        def close(self) -> None:
            calls.append("close")

    with pytest.raises(ConfigError, match="attach_to"):
        made(host, Picky, on_destroy=lambda: gone.append(1))
    assert calls == ["close"] and gone == []


# Listening ------------------------------------------------------------------------------------------------------------


def test_on_tick_runs_only_while_there_is_a_listener(host: FakeHost) -> None:
    sensor, arrived = made(host), list[Moved]()
    assert not sensor.is_listening and "stopped" in repr(sensor)
    sensor.stop()
    listen(sensor, arrived.append)
    assert sensor.is_listening and len(host.handles) == 1 and "'car/chassis': listening" in repr(sensor)
    host.send(snapshot(1))
    drain(sensor)
    (handle,) = host.handles
    sensor.stop()
    sensor.stop()
    assert not sensor.is_listening and host.handles == []
    handle.callback(snapshot(2))
    listen(sensor, arrived.append)
    host.send(snapshot(3))
    drain(sensor)
    assert sensor.calls[2:] == ["reset", 1, "reset", 3] and [event.frame for event in arrived] == [1, 3]
    assert sensor.dropped == 0


def test_second_listen_replaces_the_listener_without_interruption(host: FakeHost) -> None:
    sensor, first, second = made(host), list[Moved](), list[Moved]()
    listen(sensor, first.append)
    host.send(snapshot(1))
    drain(sensor)
    listen(sensor, second.append)
    host.send(snapshot(2))
    drain(sensor)
    assert [event.frame for event in first] == [1] and [event.frame for event in second] == [2]
    assert sensor.calls[2:] == ["reset", 1, 2] and host.subscriptions == 1


def test_replacing_or_stopping_waits_until_the_listener_has_ended(host: FakeHost) -> None:
    for end in (lambda s: s.stop(), lambda s: listen(s, print), lambda s: s.destroy()):
        sensor, begun, may_end, ended = made(host), threading.Event(), threading.Event(), list[int]()

        def slow(event: Moved) -> None:
            begun.set()  # noqa: B023
            assert may_end.wait(PATIENCE)  # noqa: B023
            ended.append(event.frame)  # noqa: B023

        listen(sensor, slow)
        host.send(snapshot(1))
        host.send(snapshot(2))
        assert begun.wait(PATIENCE)
        ending = threading.Thread(target=end, args=(sensor,))
        ending.start()
        ending.join(0.05)
        assert ending.is_alive() and ended == []
        may_end.set()
        ending.join(PATIENCE)
        assert not ending.is_alive() and ended == [1]
        sensor.destroy()


def test_on_tick_calls_of_several_threads_do_not_overlap(host: FakeHost) -> None:
    begun, may_end, arrived = threading.Semaphore(0), threading.Event(), list[Moved]()

    class Slow(Follow):
        def on_tick(self, snapshot: Snapshot) -> Moved:
            begun.release()
            assert may_end.wait(PATIENCE)
            return super().on_tick(snapshot)

    sensor = made(host, Slow)
    listen(sensor, arrived.append)
    first, second = (threading.Thread(target=host.send, args=(snapshot(frame),)) for frame in (1, 2))
    first.start()
    assert begun.acquire(timeout=PATIENCE)
    second.start()
    assert not begun.acquire(timeout=0.05)
    may_end.set()
    for thread in (first, second):
        thread.join(PATIENCE)
        assert not thread.is_alive()
    drain(sensor)
    assert sensor.calls[2:] == ["reset", 1, 2] and [event.frame for event in arrived] == [1, 2]


def test_listener_and_on_tick_can_stop_replace_and_destroy_their_sensor(host: FakeHost) -> None:
    sensor, arrived = made(host), list[Any]()

    def last(event: Moved) -> None:
        arrived.append(-event.frame)
        sensor.destroy()

    def once(event: Moved) -> None:
        listen(sensor, last)
        arrived.append(event.frame)

    listen(sensor, once)
    host.send(snapshot(1))
    until(lambda: arrived == [1])
    host.send(snapshot(2))
    until(lambda: arrived == [1, -2] and not sensor.is_alive)
    assert not sensor.is_alive and host.handles == []

    class Once(Follow):
        def on_tick(self, snapshot: Snapshot) -> Moved:
            self.emit(super().on_tick(snapshot))
            self.stop()
            return super().on_tick(snapshot)

    sensor = made(host, Once)
    listen(sensor, arrived.append)
    host.send(snapshot(3))
    assert not sensor.is_listening and sensor.calls[2:] == ["reset", 3, 3]
    assert host.callbacks.errors.count == 0


def test_refused_subscription_leaves_the_sensor_stopped(host: FakeHost) -> None:
    sensor, host.error = made(host), StreamError("the connection is gone")
    with pytest.raises(StreamError, match="gone"):
        listen(sensor, print)
    assert not sensor.is_listening
    host.error = None
    listen(sensor, print)
    assert sensor.is_listening
    sensor.stop()


def test_non_callable_listener_is_refused(host: FakeHost) -> None:
    with pytest.raises(ConfigError, match=r"Follow\.listen: got 3, expected a function of one argument"):
        made(host).listen(3)


def test_slow_listener_loses_events_and_receives_their_count(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_sensor, "MAX_QUEUED", 4)
    sensor, arrived, begun, may_go_on = made(host), list[Moved](), threading.Event(), threading.Event()

    def slow(event: Moved) -> None:
        begun.set()
        assert may_go_on.wait(PATIENCE)
        arrived.append(event)

    listen(sensor, slow)
    host.send(snapshot(0))
    assert begun.wait(PATIENCE)
    for frame in range(1, 11):
        host.send(snapshot(frame))
    assert sensor.events_lost == 6
    may_go_on.set()
    until(lambda: len(arrived) == 5)
    host.send(snapshot(11))
    host.send(snapshot(12))
    drain(sensor)
    assert [(e.frame, e.events_lost) for e in arrived] == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (11, 6), (12, 0)]


# Errors ---------------------------------------------------------------------------------------------------------------


def test_errors_are_reported_with_the_sensors_name_and_the_sensor_continues(host: FakeHost) -> None:
    class Faulty(Follow):
        def on_tick(self, snapshot: Snapshot) -> Any:
            if snapshot.frame == 1:
                raise ValueError("in on_tick")
            if snapshot.frame == 2:
                raise SystemExit("in on_tick too")
            return super().on_tick(snapshot)

    arrived = list[int]()

    def listener(event: Moved) -> None:
        arrived.append(event.frame)
        raise KeyError("in the listener")

    sensor = made(host, Faulty)
    listen(sensor, listener)
    for frame in range(1, 5):
        host.send(snapshot(frame))
    drain(sensor)
    assert arrived == [3, 4] and sensor.is_listening
    errors = host.callbacks.errors.take()
    assert [type(each.error) for each in errors if "on_tick" in each.where] == [ValueError, SystemExit]
    assert [type(each.error) for each in errors if "listen.<locals>" in each.where] == [KeyError, KeyError]
    assert {each.sensor for each in errors} == {"follow"} and len(errors) == 4


# Ticks on several threads ---------------------------------------------------------------------------------------------


def test_late_frames_are_dropped_and_counted(host: FakeHost) -> None:
    sensor, arrived = made(host), list[Moved]()
    listen(sensor, arrived.append)
    for frame in (5, 3, 6, 6, 4, 9, 7):
        host.send(snapshot(frame))
    drain(sensor)
    assert [event.frame for event in arrived] == [5, 6, 9] and sensor.dropped == 4


def test_frame_count_restarts_with_the_server(host: FakeHost) -> None:
    sensor, arrived = made(host), list[Moved]()
    listen(sensor, arrived.append)
    for frame in (5, 6):
        host.send(snapshot(frame))
    sensor.restart()
    for frame in (1, 2):
        host.send(snapshot(frame))
    drain(sensor)
    assert sensor.calls[2:] == ["reset", 5, 6, "reset", 1, 2] and sensor.dropped == 0


def test_shuffled_frames_of_many_threads_are_processed_one_at_a_time_in_order(host: FakeHost) -> None:
    sensor, arrived, count = made(host), list[int](), 1000
    listen(sensor, lambda event: arrived.append(event.frame))
    frames = list(range(count))
    rng = random.Random(0)
    for i in range(0, count, 20):  # shuffled within short stretches, as threads would
        part = frames[i : i + 20]
        rng.shuffle(part)
        frames[i : i + 20] = part
    line = iter([snapshot(frame) for frame in frames])
    lock = threading.Lock()

    def bring(_: int) -> None:
        while True:
            with lock:
                found = next(line, None)
            if found is None:
                return
            host.send(found)

    in_threads(6, bring)
    drain(sensor)
    seen = [each for each in sensor.calls if isinstance(each, int)]
    assert host.callbacks.errors.count == 0
    assert seen == sorted(set(seen)) and arrived == seen
    assert len(seen) + sensor.dropped == count and len(seen) > count // 20


def test_listen_and_stop_from_many_threads_while_ticks_arrive(host: FakeHost) -> None:
    """Ticks never overlap, no stopped listener is called, and at the end all subscriptions are gone."""
    sensor, stopped, wrong = made(host), set[int](), list[int]()
    going = threading.Event()

    def tick(thread: int) -> None:
        frame = 0
        while not going.is_set():
            frame += 1
            host.send(snapshot(frame * 4 + thread))

    def switch(thread: int) -> None:
        for i in range(150):
            number = thread * 1000 + i

            def listener(event: Moved, number: int = number) -> None:
                if number in stopped:
                    wrong.append(number)

            listen(sensor, listener)
            if i % 3 == 0:
                sensor.stop()
            elif i % 3 == 1:
                listen(sensor, lambda event: None)
                stopped.add(number)  # its last call has ended when it was replaced

    def run(i: int) -> None:
        if i < 2:
            tick(i)
            return
        try:
            switch(i)
        finally:
            done.release()

    done = threading.Semaphore(0)

    def end(_: int) -> None:
        for _ in range(4):
            assert done.acquire(timeout=PATIENCE)
        going.set()

    in_threads(7, lambda i: end(i) if i == 6 else run(i))
    sensor.stop()
    assert wrong == [] and host.handles == [] and host.callbacks.errors.count == 0
    frames = [each for each in sensor.calls if isinstance(each, int)]
    assert frames == sorted(set(frames))


# Registry -------------------------------------------------------------------------------------------------------------


def test_a_class_with_a_definition_is_found_by_its_id_and_works_in_the_client() -> None:
    class Named(Follow):
        @classmethod
        def definition(cls) -> SensorDefinition:
            speed = Attribute("speed", {"type": "number", "default": 1.0})
            return make_generic_sensor_definition(type="other", id="named", attributes=[speed])

    assert REGISTRY.find("sensor.other.named") is Named and REGISTRY.registered()["sensor.other.named"] is Named
    definition = definitions()["sensor.other.named"]
    assert definition.where == "client" and [each.id for each in definition] == ["speed"]

    class Heir(Named):
        pass

    assert REGISTRY.find("sensor.other.named") is Named


def test_built_in_sensors_are_registered() -> None:
    assert "sensor.other.lane_invasion" in REGISTRY.registered()


def test_unknown_id_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"client sensor 'sensor\.other\.lane'.*lane_invasion"):
        REGISTRY.find("sensor.other.lane")


def test_duplicate_id_is_refused() -> None:
    def define(name: str) -> type[ClientSensor]:
        def definition(cls: type[ClientSensor]) -> SensorDefinition:
            return make_generic_sensor_definition(type="other", id="twice")

        body = {"definition": classmethod(definition), "__qualname__": name, "__module__": __name__}
        return type(name, (ClientSensor,), body)

    define("A")
    again = define("A")  # as in a notebook
    assert REGISTRY.find("sensor.other.twice") is again
    with pytest.raises(RegistrationError, match=r"B defines 'sensor\.other\.twice', which .*A already"):
        define("B")


def test_definition_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(RegistrationError, match=r"definition\(\) returned 3, expected a SensorDefinition"):

        class Wrong(ClientSensor):
            @classmethod
            def definition(cls) -> Any:
                return 3


def test_plugins_are_loaded_once_and_broken_ones_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good_plugin.py").write_text(
        "from sensorium.client.client_sensor import ClientSensor\n"
        "from sensorium.compat.actors import make_generic_sensor_definition\n"
        "class Good(ClientSensor):\n"
        "    @classmethod\n"
        "    def definition(cls):\n"
        "        return make_generic_sensor_definition(type='other', id='good')\n"
    )
    (tmp_path / "bad_plugin.py").write_text("raise SystemExit('no licence')\n")
    info = tmp_path / "plugins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sensorium.client_sensors]\nbad = bad_plugin\ngood = good_plugin\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins = Plugins(client_sensor.ENTRY_POINT_GROUP, "client sensor", client_sensor.OURS)
    plugins.tables.append(REGISTRY)
    monkeypatch.setattr(REGISTRY, "plugins", plugins)
    with pytest.warns(SensoriumWarning, match=r"plugin 'bad' of plugins 1\.0 .*no licence.*pip uninstall plugins"):
        assert "sensor.other.good" in REGISTRY.registered()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert REGISTRY.find("sensor.other.good").__module__ == "good_plugin"
    with pytest.raises(UnknownNameError, match=r"It may be in a plugin that is broken: .*'bad' .*SystemExit"):
        REGISTRY.find("sensor.other.bad")
    for name in ("good_plugin", "bad_plugin"):
        sys.modules.pop(name, None)
