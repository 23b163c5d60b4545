"""Subscriptions continue or end with a reason: unreadable data, bursts, restarted servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from streaming import DT, PATIENCE, GaugeCfg, build, connect, running, serving, until

import sensorium as sn
from sensorium.client import subscription as subscriptions
from sensorium.client.subscription import Subscription
from sensorium.compat.actors import make_generic_sensor_definition
from sensorium.stream.streamed import StreamedSensor
from sensorium.wire.attributes import SensorDefinition
from sensorium.wire.data import ArrayData, LostEvents, RawData
from sensorium.wire.serializers import Serializer
from sensorium.wire.stream_info import StreamInfo
from sensorium.wire.world import Snapshot

SMALL = {"columns": 0}


class Count(ArrayData):
    dtype = np.dtype("<i8")


class CountSerializer(Serializer):
    type_name = "sensorium.tests.Count/1"

    @staticmethod
    def serialize(sensor: Any, /, *args: Any, **kwargs: Any) -> Any:
        return np.array(args, np.int64).tobytes()

    @staticmethod
    def deserialize(raw: RawData, /) -> Count:
        data = Count(raw)
        if data[0] % 4 == 3:
            raise KeyError("a field")
        return data


class Counter(StreamedSensor):
    """Sends its frame three times; every fourth frame is unreadable."""

    serializer = CountSerializer
    times = 3

    @classmethod
    def definition(cls) -> SensorDefinition:
        return make_generic_sensor_definition("other", "test_counter")

    def tick(self, snapshot: Snapshot) -> None:
        for _ in range(self.times):
            self.stream.send(snapshot.frame)


class EventCounter(Counter):
    events: ClassVar[bool] = True

    @classmethod
    def definition(cls) -> SensorDefinition:
        return make_generic_sensor_definition("other", "test_event_counter")


@pytest.fixture
def lockstep() -> Iterator[tuple[sn.Server, sn.Client]]:
    """A lock-step server with a client."""
    with serving(lockstep=True, world=SMALL) as server, connect(server.address) as client:
        yield server, client
        client.callbacks.errors.take()


@pytest.fixture
def bursts() -> Iterator[tuple[sn.Server, sn.Client]]:
    """The same with a sensor that samples every second tick: a step of many ticks sends a burst."""
    engine = sn.TensorEngine(1, DT, motion=lambda t: {"body_pos_w": np.full((1, 1, 3), t, np.float32)})
    scene = sn.Scene(engine, [GaugeCfg(name="gauge", rate_hz=0.5 / DT)])
    with sn.serve(scene, "tcp://127.0.0.1:0", lockstep=True) as server, running(server):
        with connect(server.address) as client:
            yield server, client


# Unreadable data ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["test_counter", "test_event_counter"])
@pytest.mark.parametrize("policy", ["latest", "lossless"])
def test_exception_in_deserialize_drops_only_that_message(
    lockstep: tuple[sn.Server, sn.Client], policy: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener gets all other messages, in bundles too; its credits return, and the report blames no listener.

    Of nine unreadable messages, more than may be in transit, no credit is missing.
    """
    monkeypatch.setattr(subscriptions, "WINDOW_SMALL", 4)
    monkeypatch.setattr(subscriptions, "WINDOW_LATEST", 4)
    _, client = lockstep
    sensor = client.spawn(f"sensor.other.{kind}", name="counter")
    got: list[int] = []
    sensor.listen(lambda data: got.append(int(data[0])), policy=policy)
    frames = []
    for _ in range(12):
        frames.append(client.step())
        if frames[-1] % 4 != 3:
            until(lambda: got and got[-1] == frames[-1], "data after some that cannot be read")
    if policy == "lossless" or kind == "test_event_counter":
        assert got == [frame for frame in frames if frame % 4 != 3 for _ in range(3)]
    assert sensor.is_listening and not sensor.why_ended
    errors = client.errors
    assert errors
    for error in errors:
        assert str(error) == "cannot read data of 'counter': KeyError: 'a field'"
        assert error.sensor == "counter" and "deserialize" in error.traceback


def test_unknown_data_type_ends_listening_with_a_fix(
    lockstep: tuple[sn.Server, sn.Client],
) -> None:
    """The alternative would be a listener that waits for ever."""
    server, client = lockstep
    info = client._session.streams["gauge"]
    client._session.streams["gauge"] = replace(info, type_name="their_package.Thing/3")
    sensor = client.sensors["gauge"]
    with pytest.warns(sn.SensoriumWarning, match=r"listening to 'gauge' ended: this process cannot read its data"):
        sensor.listen(lambda data: None)
        client.step()
        until(lambda: sensor.why_ended and client.notes)
    assert "unknown type of data 'their_package.Thing/3'" in sensor.why_ended
    assert "Import the module that defines its serializer, or install its package" in sensor.why_ended
    assert not sensor.is_listening and not client.errors
    until(lambda: server.counts.subscriptions == 0)


# Failed starts of listeners -------------------------------------------------------------------------------------------


def test_listener_that_cannot_start_or_resume_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller gets the exception of the start, and it is not restored; that of a restart becomes the reason."""
    first = sn.serve(build(**SMALL), "tcp://127.0.0.1:0", lockstep=True)
    got: list[int] = []
    begin = Subscription.begin

    def fail(self: Subscription, info: StreamInfo, number: int) -> None:
        if self.name == "world":
            raise OverflowError("a number that is too large")
        begin(self, info, number)

    with sn.connect(first.address, timeout=PATIENCE) as client:
        world = client.sensors["world"]
        with running(first):
            client.sensors["gauge"].listen(lambda data: got.append(data.frame))
            with monkeypatch.context() as patch, pytest.raises(OverflowError, match="too large"):
                patch.setattr(Subscription, "begin", fail)
                world.listen(lambda data: None)
            assert not world.is_listening
            world.listen(lambda data: None)
            client.step()
        first.close()
        monkeypatch.setattr(Subscription, "begin", fail)
        reason = "listening again failed: OverflowError: a number that is too large"
        with (
            pytest.warns(sn.SensoriumWarning, match=reason),
            sn.serve(build(**SMALL), first.address, lockstep=True) as second,
            running(second),
        ):
            until(lambda: client.notes)
            last = client.step()
            until(lambda: got[-1:] == [last])
            assert second.counts.subscriptions == 1
        assert world.why_ended == reason and client.notes == [f"listening to 'world' ended: {reason}"]


# Restarted servers ----------------------------------------------------------------------------------------------------


def restarted(num_envs: int, asked: dict[str, Any], anew: int) -> dict[str, list[list[int]]]:
    """Return the environments that listeners got from a server, and from a server of another size in its place.

    Args:
        num_envs: environments of the first server.
        asked: name -> `envs` of each listener; they must not warn.
        anew: environments of the second server.
    """
    got: dict[str, list[list[int]]] = {name: [] for name in asked}
    first = sn.serve(build(num_envs, columns=0), "tcp://127.0.0.1:0", lockstep=True)
    with sn.connect(first.address, timeout=PATIENCE) as client:
        for name, envs in asked.items():
            client.subscribe("gauge", lambda data, name=name: got[name].append(data.env_ids.tolist()), envs=envs)
        with running(first):
            client.step()
            until(lambda: all(got.values()))
        first.close()
        with sn.serve(build(anew, columns=0), first.address, lockstep=True) as second, running(second):
            until(lambda: client.is_connected and second.counts.subscriptions == len(asked))
            before = {name: len(seen) for name, seen in got.items()}
            client.step()
            until(lambda: all(len(seen) > before[name] for name, seen in got.items()))
    return {name: [seen[0], seen[-1]] for name, seen in got.items()}


def test_listener_of_all_environments_gets_all_of_a_restarted_larger_server() -> None:
    """An open slice behaves likewise; a listener of a single environment gets that environment."""
    asked = {"all": None, "rest": slice(1, None), "one": 1}
    assert restarted(2, asked, 5) == {
        "all": [[0, 1], [0, 1, 2, 3, 4]],
        "rest": [[1], [1, 2, 3, 4]],
        "one": [[1], [1]],
    }


def test_listener_of_all_environments_continues_with_fewer() -> None:
    assert restarted(2, {"all": None}, 1) == {"all": [[0, 1], [0]]}


def test_listener_of_a_removed_environment_ends_with_that_reason() -> None:
    first = sn.serve(build(2, columns=0), "tcp://127.0.0.1:0", lockstep=True)
    with sn.connect(first.address, timeout=PATIENCE) as client:
        sensor = client.sensors["gauge"]
        with running(first):
            sensor.listen(lambda data: None, envs=1)
        first.close()
        reason = "the server now has 1 envs, but envs=1 was requested"
        with pytest.warns(sn.SensoriumWarning, match=reason):
            with sn.serve(build(1, columns=0), first.address, lockstep=True) as second, running(second):
                until(lambda: client.notes)
        assert sensor.why_ended == reason and not sensor.is_listening


# Counters -------------------------------------------------------------------------------------------------------------


def test_clients_newest_frame_is_never_older_than_its_data() -> None:
    """In a free-running simulation no frame messages arrive, so data update the newest frame."""
    with serving(step=True, world=SMALL) as server, connect(server.address) as client:
        behind: list[tuple[int, int]] = []
        got: list[int] = []

        def take(data: Any) -> None:
            got.append(data.frame)
            if client.frame < data.frame:
                behind.append((client.frame, data.frame))

        client.sensors["gauge"].listen(take, policy="lossless")
        until(lambda: len(got) > 50)
        assert not behind


@pytest.mark.parametrize("policy", ["latest", "lossless"])
def test_listener_that_stops_itself_counts_that_call(lockstep: tuple[sn.Server, sn.Client], policy: Any) -> None:
    _, client = lockstep
    sensor = client.sensors["gauge"]
    within: list[Any] = []

    def take(data: Any) -> None:
        within.append(sensor.stats)
        sensor.stop()

    sensor.listen(take, policy=policy)
    client.step()
    until(lambda: within and not sensor.is_listening)
    assert within[0].received == sensor.stats.received == 1 and sensor.stats.nbytes > 0


def test_each_event_of_a_bundle_is_counted_before_its_callback(lockstep: tuple[sn.Server, sn.Client]) -> None:
    _, client = lockstep
    ticker = client.blueprints.find("sensor.other.test_ticker")
    ticker.set_attribute("burst", 20)
    sensor = client.spawn(ticker, name="ticker")
    counts: list[int] = []
    sensor.listen(lambda data: counts.append(sensor.stats.received))
    client.step()
    until(lambda: len(counts) == 20)
    assert counts == [*range(1, 21)]


def test_bundle_that_is_longer_than_a_small_message_arrives(
    lockstep: tuple[sn.Server, sn.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counter, "times", 3000)  # of 20 bytes each
    _, client = lockstep
    sensor = client.spawn("sensor.other.test_event_counter", name="counter")
    counts: list[int] = []
    sensor.listen(lambda data: counts.append(int(data[0])))
    frame = client.step()
    until(lambda: len(counts) == 3000)
    assert set(counts) == {frame}


def test_record_of_lost_events_is_not_counted_as_a_sample(
    lockstep: tuple[sn.Server, sn.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frame, age and latency stay those of the last received event."""
    _, client = lockstep
    ticker = client.blueprints.find("sensor.other.test_ticker")
    ticker.set_attribute("burst", 10)
    client.spawn(ticker, name="ticker")
    gate, seen = threading.Event(), list[Any]()

    def take(data: Any) -> None:
        if isinstance(data, LostEvents):
            seen.append((data.events_lost, subscription.stats))
        gate.wait(PATIENCE)

    monkeypatch.setattr(subscriptions, "WINDOW_SMALL", 2)
    subscription = client.subscribe("ticker", take, queue=2)
    frames = [client.step() for _ in range(5)]
    gate.set()
    until(lambda: client.step() and seen)
    lost, stats = seen[0]
    assert stats.frame in frames and 0.0 <= stats.latency < PATIENCE and stats.lost == lost
    assert stats.received + stats.lost in range(50, 1000, 10)


def test_an_error_log_that_overflows_raises_the_first_and_the_true_count(
    lockstep: tuple[sn.Server, sn.Client],
) -> None:
    _, client = lockstep

    def fail(data: Any) -> None:
        raise ValueError(f"call {data.frame}")

    sensor = client.sensors["gauge"]
    sensor.listen(fail, policy="lossless")
    frames = [client.step() for _ in range(150)]
    until(lambda: sensor.stats.frame == frames[-1])
    sensor.stop()  # waits for the last call
    count = client.callbacks.errors.count  # it may have been greeted
    with pytest.raises(sn.StreamError, match=rf"raised ValueError: call {frames[0] - (count - 150)} .*and {count - 1}"):
        client.check()
    client.check()  # it was reported
    assert client.errors == []


# Waiting messages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", [1, 3])
def test_lossless_backlog_of_small_messages_is_queue_plus_window(queue: int) -> None:
    """In lock-step the next step waits for the listener, here for so long that the listener is ended."""
    with serving(lockstep=True, patience=0.2, world=SMALL) as server, connect(server.address) as client:
        gate, got = threading.Event(), list[int]()

        def take(data: Any) -> None:
            got.append(data.frame)
            gate.wait(PATIENCE)

        with pytest.warns(sn.SensoriumWarning, match=r"too slow|waited 0\.2 s"):
            client.sensors["gauge"].listen(take, policy="lossless", queue=queue)
            until(lambda: server.counts.subscriptions == 1)
            last = -1
            while server.counts.subscriptions:
                last = client.step()
                until(lambda: got)  # an ended listener gets no more
                assert last < 100
            gate.set()
            until(lambda: client.sensors["gauge"].why_ended and len(client.notes) >= 2)
        first = got[0]
        assert last - first == 2 * queue  # the first of them is the message in its callback


def test_lossless_listener_ends_when_its_backlog_exceeds_the_limit() -> None:
    """In a free-running simulation five messages are in transit and five wait; the next one ends the subscription."""
    with sn.serve(build(**SMALL), "tcp://127.0.0.1:0") as server, connect(server.address) as client:
        gate, got = threading.Event(), list[int]()

        def take(data: Any) -> None:
            got.append(data.frame)
            gate.wait(PATIENCE)

        client.sensors["gauge"].listen(take, policy="lossless", queue=5)
        until(lambda: (server.poll(), got)[1], "the greeting")
        for _ in range(9):
            server.scene.step()
        assert server.counts.subscriptions == 1
        with pytest.warns(sn.SensoriumWarning, match="too slow: 5 messages waited for the listener"):
            server.scene.step()
            until(lambda: server.counts.subscriptions == 0 and client.sensors["gauge"].why_ended)
            assert got == [0]
            gate.set()
            until(lambda: client.notes)


def test_reason_of_the_end_is_available_while_the_listener_still_runs() -> None:
    with serving(lockstep=True, world=SMALL) as server, connect(server.address) as client:
        gate, entered = threading.Event(), threading.Event()
        server.spawn("sensor.other.test_ticker", name="ticker")
        sensor = client.wait_for("ticker")

        def take(data: Any) -> None:
            entered.set()
            gate.wait(PATIENCE)

        sensor.listen(take)
        client.step()
        assert entered.wait(PATIENCE)
        with pytest.warns(sn.SensoriumWarning, match="listening to 'ticker' ended"):
            server.remove("ticker")
            until(lambda: not sensor.is_listening)
            assert "removed" in sensor.why_ended
            gate.set()
            until(lambda: client.notes)


# Bursts ---------------------------------------------------------------------------------------------------------------


def test_idle_latest_listener_gets_all_of_a_burst(
    bursts: tuple[sn.Server, sn.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of steps with 20 samples each none is omitted, however busy the machine is."""
    monkeypatch.setattr(subscriptions, "PROMPT", PATIENCE)
    _, client = bursts
    got: list[int] = []
    sensor = client.sensors["gauge"]
    sensor.listen(lambda data: got.append(data.frame))
    for _ in range(8):
        last = client.step(substeps=40)
        until(lambda last=last: got[-1:] == [last])  # type: ignore[misc]
    assert got[-160:] == [*range(last - 159, last + 1)]
    assert sensor.stats.replaced == 0 and sensor.stats.received == len(got)


@pytest.mark.parametrize("substeps", [2, 400])
def test_received_and_dropped_counts_sum_to_all_samples(bursts: tuple[sn.Server, sn.Client], substeps: int) -> None:
    """Omissions on the server and in the client are both counted: here for bursts while the listener waits for each."""
    _, client = bursts
    turn, got = threading.Semaphore(0), list[int]()

    def take(data: Any) -> None:
        got.append(data.frame)
        assert turn.acquire(timeout=PATIENCE)

    sensor = client.sensors["gauge"]
    sensor.listen(take)
    until(lambda: got, "the greeting")
    for _ in range(4):
        last = client.step(substeps=substeps)
        turn.release()
    turn.release(10_000)
    until(lambda: got[-1] == last, "the newest")
    stats = sensor.stats
    assert (np.diff(got) > 0).all() and stats.received == len(got)
    assert stats.replaced == (np.diff(got) - 1).sum()
    assert stats.replaced > 0 or substeps < 400


def test_slow_latest_listener_gets_the_newest_sample(
    bursts: tuple[sn.Server, sn.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 300 samples during its work, more than may be in transit, the listener gets the last sample next."""
    _, client = bursts
    gate, got = threading.Event(), list[int]()

    def take(data: Any) -> None:
        got.append(data.frame)
        gate.wait(PATIENCE)

    sensor = client.sensors["gauge"]
    sensor.listen(take)
    until(lambda: got, "the greeting")
    monkeypatch.setattr(subscriptions, "PROMPT", -1.0)  # however fast the samples come, they have waited too long
    for _ in range(3):
        last = client.step(substeps=200)
    for _ in range(4):
        client.reset([])  # its answer comes after the data for which the client has returned credits
    before = len(got)
    gate.set()
    until(lambda: got[-1] == last)
    assert got[before:] == [last] and sensor.stats.received + sensor.stats.replaced == last - got[0] + 1


def test_latest_listener_skips_samples_that_waited_too_long(
    bursts: tuple[sn.Server, sn.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait in the client; the newest is delivered, and the others are counted."""
    monkeypatch.setattr(subscriptions, "PROMPT", PATIENCE)
    _, client = bursts
    gate, got = threading.Event(), list[int]()

    def take(data: Any) -> None:
        got.append(data.frame)
        gate.wait(PATIENCE)

    sensor = client.sensors["gauge"]
    sensor.listen(take)
    until(lambda: got, "the greeting")
    last = client.step(substeps=20)  # its answer comes after its data
    monkeypatch.setattr(subscriptions, "PROMPT", -1.0)
    gate.set()
    until(lambda: got[-1] == last)
    assert len(got) == 2 and sensor.stats.replaced == last - got[0] - 1
