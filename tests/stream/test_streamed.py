"""Streamed sensors: order of calls, content and time of messages, captures on other threads, failures, registry."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest
from nursery import PATIENCE
from streamed_host import Host, NoTree, bodies

import sensorium as sn
from sensorium import plugins
from sensorium.compat.actors import make_generic_sensor_definition
from sensorium.errors import RegistrationError, SensoriumWarning, StreamError, UnknownNameError
from sensorium.plugins import Plugins
from sensorium.pose import Pose
from sensorium.stream import streamed
from sensorium.stream.sending import MAX_IN_BUNDLE, MAX_PENDING, Capture
from sensorium.stream.streamed import StreamedSensor, run_tick
from sensorium.wire.attributes import ActorDescription, Attribute, SensorDefinition
from sensorium.wire.buffers import Buffer
from sensorium.wire.data import ArrayData, RawData
from sensorium.wire.serializers import Serializer
from sensorium.wire.world import Snapshot, owner_of


class Numbers(ArrayData):
    dtype = np.dtype("<f8")


class NumbersSerializer(Serializer):
    type_name = "sensorium.tests.Numbers/1"

    @staticmethod
    def serialize(sensor: Any, /, *args: Any) -> Any:
        (numbers,) = args
        return numbers

    @staticmethod
    def deserialize(raw: RawData, /) -> Numbers:
        return Numbers(raw)


class Probe(StreamedSensor):
    """Records its calls, and runs a test's function in `tick`."""

    serializer = NumbersSerializer

    @classmethod
    def definition(cls) -> SensorDefinition:
        gain = Attribute("gain", {"type": "number", "default": 1.0})
        return make_generic_sensor_definition("other", "test_probe", (gain,))

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.act: Callable[[Probe, Snapshot], None] = lambda probe, snapshot: None

    def set(self, description: ActorDescription) -> None:
        super().set(description)
        self.calls.append(f"set {description.get_float('gain', 0.0)} {self.name}")

    def set_owner(self, owner: Any) -> None:
        super().set_owner(owner)
        self.calls.append(f"owner {owner.body.name if owner else None}")

    def tick(self, snapshot: Snapshot) -> None:
        super().tick(snapshot)
        self.calls.append(f"tick {snapshot.frame}")
        self.act(self, snapshot)

    def close(self) -> None:
        super().close()
        self.calls.append("close")


WORLD = bodies(("robot/base", (0.2, 0.1, 0.1)), ("robot/arm", (0.1, 0.1, 0.1)), ("box", (0.1, 0.1, 0.1)))


@pytest.fixture
def host() -> Iterator[Host]:
    with Host(WORLD, 3) as host:
        yield host


# Life cycle of a sensor -----------------------------------------------------------------------------------------------


def test_attributes_are_set_before_the_owner_and_both_before_the_first_tick(host: Host) -> None:
    """The order is set, with values given as text, then set_owner, then a tick per frame, then close."""
    probe = host.spawn(Probe, {"gain": "2.5"}, attach_to="robot/base", transform=Pose((0, 0, 1)))
    assert probe.calls == ["set 2.5 guard", "owner robot/base"]
    host.frame(probe)
    host.frame(probe)
    streamed.end(probe, host.failures)
    assert probe.calls[2:] == ["tick 1", "tick 2", "close"]
    assert probe.description.values == {"gain": 2.5} and probe.transform == Pose((0, 0, 1)) and probe.envs == range(3)


def test_set_owner_is_not_called_without_attachment(host: Host) -> None:
    sensor = host.spawn(Probe)
    assert sensor.calls == ["set 1.0 guard"] and sensor.owner is None


def test_definition_is_the_only_required_method(host: Host) -> None:
    """Attributes and attachment are available also where a class overrides nothing or omits the super() call."""

    class Bare(StreamedSensor):
        serializer = NumbersSerializer

        @staticmethod
        def definition() -> SensorDefinition:
            return make_generic_sensor_definition("other", "test_bare")

        def set_owner(self, owner: Any) -> None:
            pass

    bare = host.spawn(Bare, attach_to="robot/arm")
    assert bare.owner.body.name == "robot/arm" and host.frame(bare) == [] and host.failures.count == 0


def test_exception_in_set_reaches_the_spawner_and_closes_the_sensor(host: Host) -> None:
    closed = []

    class Picky(StreamedSensor):
        serializer = NumbersSerializer

        @classmethod
        def definition(cls) -> SensorDefinition:
            return make_generic_sensor_definition("other", "test_picky")

        def set(self, description: ActorDescription) -> None:
            raise sn.ConfigError.single("Picky", "gain", 0, "more")

        def close(self) -> None:
            closed.append(self.name)

    with pytest.raises(sn.ConfigError, match=r"Picky\.gain"):
        host.spawn(Picky)
    assert closed == ["guard"]


def test_owner_links_are_its_tree_or_its_entity() -> None:
    world = bodies(*[(name, (0.1, 0.1, 0.1)) for name in ("r/base", "r/arm", "r/hand", "r/toy", "s/base")])

    class Tree(NoTree):
        def parent_body(self, body: int) -> int | None:
            return (-1, 0, 1, -1, -1)[body]

    hand = owner_of(world["r/hand"], world, Tree().parent_body)
    assert (hand.links, hand.root.name) == ({0, 1, 2}, "r/base")
    assert owner_of(world["r/toy"], world, Tree().parent_body).links == {3}
    assert owner_of(world["r/hand"], world, NoTree().parent_body).links == {0, 1, 2, 3}
    loose = bodies(("a", (0.1, 0.1, 0.1)), ("b", (0.1, 0.1, 0.1)))
    assert owner_of(loose["a"], loose, NoTree().parent_body).links == {0}


def test_world_pose_combines_owner_pose_and_transform(host: Host) -> None:
    """The pose is compared with `Pose`, for each environment."""
    rng = np.random.default_rng(3)
    quat = rng.normal(size=(3, 3, 4)).astype(np.float32)
    quat /= np.linalg.norm(quat, axis=-1, keepdims=True)
    snapshot = host.at(1, rng.normal(size=(3, 3, 3)), quat)
    offset = Pose((0.1, 0.2, 0.3), (0.6, 0.0, 0.8, 0.0))
    probe = host.spawn(Probe, attach_to="robot/arm", transform=offset, envs=range(1, 3))
    for row, env in enumerate((1, 2)):
        expected = (snapshot.pose("robot/arm", env) @ offset).to_array()
        np.testing.assert_allclose(probe.pose(snapshot)[row], expected, atol=1e-6)
    free = host.spawn(Probe, transform=Pose((0.1, 0.2, 0.3), (0.6 * 1.0005, 0.0, 0.8 * 1.0005, 0.0)))
    np.testing.assert_allclose(free.pose(snapshot), np.tile(offset.to_array(), (3, 1)), atol=1e-15)


# Sending --------------------------------------------------------------------------------------------------------------


def test_a_message_carries_frame_times_pose_and_environments(host: Host) -> None:
    probe = host.spawn(Probe, attach_to="box", transform=Pose((1, 0, 0)), envs=range(1, 3))
    probe.act = lambda probe, snapshot: probe.stream.send(np.arange(3.0))
    pos = np.arange(27.0).reshape(3, 3, 3)
    (message,) = host.frame(probe, pos)
    data = host.received(message)
    assert list(data) == [0.0, 1.0, 2.0]
    assert (data.frame, data.tick, data.time) == (1, 2, 0.02)
    assert (data.first_env, data.num_envs) == (1, 2) and message.moment.wall_ns == 1_000_000_001
    np.testing.assert_array_equal(data.transforms[:, 0, :3], pos[1:, 2] + [1, 0, 0])


def test_a_message_about_one_environment_has_only_its_pose(host: Host) -> None:
    probe = host.spawn(Probe, attach_to="box", envs=range(1, 3))
    probe.act = lambda probe, snapshot: probe.stream.send(np.ones(1), env=2)
    (message,) = host.frame(probe, np.arange(27.0).reshape(3, 3, 3))
    assert (message.first_env, message.num_envs) == (2, 1)
    assert host.received(message).transforms[:, 0, 0].tolist() == [24.0]
    with pytest.raises(sn.ConfigError, match=r"env.*0.*1\.\.2"):
        probe.stream.send(np.ones(1), env=0)


@pytest.mark.parametrize(
    "body",
    [
        np.arange(6.0).reshape(2, 3).T,
        np.arange(6.0, dtype=">f8")[::1],
        np.arange(6.0).tobytes(),
        bytearray(np.arange(6.0).tobytes()),
        memoryview(np.arange(6.0).tobytes()),
    ],
    ids=["strided", "big-endian", "bytes", "bytearray", "memoryview"],
)
def test_serializer_result_is_sent_as_little_endian_bytes(host: Host, body: Any) -> None:
    probe = host.spawn(Probe)
    probe.act = lambda probe, snapshot: probe.stream.send(body)
    (message,) = host.frame(probe)
    expected = body.ravel() if isinstance(body, np.ndarray) else np.arange(6.0)
    np.testing.assert_array_equal(host.received(message).array, expected)
    assert message.body.readonly


def test_non_bytes_result_ends_the_sensor_with_a_reason(host: Host) -> None:
    probe = host.spawn(Probe)
    probe.act = lambda probe, snapshot: probe.stream.send({"a": 1})
    assert host.frame(probe) == []
    (failure,) = host.failures.take()
    assert "NumbersSerializer.serialize returned {'a': 1}, expected a Buffer" in str(failure)


def test_later_changes_by_the_author_do_not_alter_sent_data(host: Host) -> None:
    """An array is copied; the memory of a buffer is moved out of it."""
    array, kept = np.ones(4), []
    probe = host.spawn(Probe)

    def act(probe: Probe, snapshot: Snapshot) -> None:
        buffer = probe.stream.pop_buffer()
        buffer.copy_from(np.full(4, 2.0))
        probe.stream.send(array)
        probe.stream.send(buffer)
        array[:] = 7.0
        assert len(buffer) == 0
        buffer.copy_from(np.full(4, 8.0))
        kept.append(buffer)

    probe.act = act
    first, second = (host.received(message).array.tolist() for message in host.frame(probe))
    assert first == [1.0] * 4 and second == [2.0] * 4


def test_message_memory_returns_after_its_last_view(host: Host) -> None:
    probe = host.spawn(Probe)

    def act(probe: Probe, snapshot: Snapshot) -> None:
        buffer = probe.stream.pop_buffer()
        buffer.reset(8000)
        buffer.array("<f8")[:] = snapshot.frame
        probe.stream.send(buffer)

    probe.act = act
    pool = probe.stream.pool
    (message,) = host.frame(probe)
    data = host.received(message)
    kept = data.array[5:]
    del message, data
    gc.collect()
    assert pool.in_pool == 0 and kept[0] == 1.0
    del kept
    gc.collect()
    assert pool.in_pool == 1
    host.frame(probe)
    assert pool.in_pool == 1, "the frame reused the memory"


def test_without_listeners_nothing_is_serialised_or_run(host: Host) -> None:
    probe = host.spawn(Probe)
    host.listening = False
    ran = []

    def act(probe: Probe, snapshot: Snapshot) -> None:
        assert not probe.listeners and not probe.stream.has_listeners
        probe.stream.send(object())
        probe.stream.send_async(lambda: ran.append(1))
        probe.stream.capture().send(object())

    probe.act = act
    assert host.frame(probe) == [] and host.failures.count == 0 and not ran
    assert list(host.opened) == list(host.done) == [1]


def test_many_messages_of_a_frame_keep_their_order_and_their_environments(host: Host) -> None:
    """Small messages, which are bundled, and large ones between them keep their order, each with its environment."""
    probe = host.spawn(Probe, attach_to="box", envs=range(1, 3))
    sizes = [1, 2, 3, 1000, 4, 5, 2000, 3000, 6]

    def act(probe: Probe, snapshot: Snapshot) -> None:
        for k, size in enumerate(sizes):
            probe.stream.send(np.full(size, float(k)).tobytes(), env=(1, 2, None)[k % 3])

    probe.act = act
    for frame in (1, 2):
        got = [host.received(message) for message in host.frame(probe, np.arange(27.0).reshape(3, 3, 3) * frame)]
        assert [(data[0], len(data), data.frame) for data in got] == [(k, n, frame) for k, n in enumerate(sizes)]
        assert [(data.first_env, data.num_envs) for data in got] == [(1, 1), (2, 1), (1, 2)] * 3
        assert [data.transforms[0, 0, 0] for data in got] == [15 * frame, 24 * frame, 15 * frame] * 3


def test_messages_beyond_one_bundle_all_arrive(host: Host) -> None:
    probe = host.spawn(Probe)
    count = 2 * MAX_IN_BUNDLE + 3

    def act(probe: Probe, snapshot: Snapshot) -> None:
        for k in range(count):
            probe.stream.send(np.float64(k).tobytes())

    probe.act = act
    assert [host.received(message)[0] for message in host.frame(probe)] == list(range(count))


def test_data_sent_before_an_exception_arrive(host: Host) -> None:
    probe = host.spawn(Probe)

    def act(probe: Probe, snapshot: Snapshot) -> None:
        probe.stream.send(np.ones(1).tobytes())
        raise ValueError("later")

    probe.act = act
    (message,) = host.frame(probe)
    assert host.received(message).frame == 1
    assert "later" in str(*host.failures.take())


def test_sending_from_another_thread_requires_a_capture(host: Host) -> None:
    """Otherwise its frame would be undefined."""
    probe = host.spawn(Probe)
    host.frame(probe)
    errors = []

    def elsewhere() -> None:
        for call in (probe.stream.send, probe.stream.capture, probe.stream.send_async):
            try:
                call(*(() if call == probe.stream.capture else (len,)))
            except StreamError as error:
                errors.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(PATIENCE)
    assert len(errors) == 3 and all("thread" in error and "capture" in error for error in errors)


# Captures -------------------------------------------------------------------------------------------------------------


def captures(host: Host, probe: Probe, frames: int = 1) -> list[Capture]:
    """Return a capture of each of some frames, between which the box moves by 1 m."""
    out: list[Capture] = []
    probe.act = lambda probe, snapshot: out.append(probe.stream.capture())
    for frame in range(frames):
        host.frame(probe, np.full(3, float(frame + 1)))
    probe.act = lambda probe, snapshot: None
    return out


def test_capture_sends_for_its_frame_in_any_order(host: Host) -> None:
    """Other threads send in reverse order of frames; each message has the frame, time and pose of its capture."""
    probe = host.spawn(Probe, attach_to="box")
    taken = captures(host, probe, 3)
    assert not host.done and [capture.frame for capture in taken] == [1, 2, 3]
    assert taken[1].time == pytest.approx(0.04) and taken[1].transform == Pose((2, 2, 2))
    for capture in reversed(taken):
        thread = threading.Thread(target=capture.send, args=(np.full(1, float(capture.frame)),))
        thread.start()
        thread.join(PATIENCE)
    got = [host.received(message) for message in host.taken()]
    assert [(data.frame, data[0], data.transform.pos[0]) for data in got] == [(3, 3, 3), (2, 2, 2), (1, 1, 1)]
    assert list(host.done) == [3, 2, 1]


def test_a_capture_is_for_one_message(host: Host) -> None:
    probe = host.spawn(Probe)
    (capture,) = captures(host, probe)
    capture.send(np.ones(1))
    with pytest.raises(StreamError, match="frame 1 was already sent"):
        capture.send(np.ones(1))
    assert len(host.taken()) == 1
    (other,) = captures(host, probe)
    other.drop()
    other.drop()
    with pytest.raises(StreamError, match="frame 2 was already dropped"):
        other.send(np.ones(1))
    assert not host.taken() and list(host.done) == [1, 2]


def test_only_one_thread_can_send_a_capture(host: Host) -> None:
    probe = host.spawn(Probe)
    for capture in captures(host, probe, 20):
        barrier, outcomes = threading.Barrier(8), []

        def race(capture: Capture = capture, barrier: Any = barrier, outcomes: Any = outcomes) -> None:
            barrier.wait(PATIENCE)
            try:
                capture.send(np.ones(1))
                outcomes.append(True)
            except StreamError:
                outcomes.append(False)

        threads = [threading.Thread(target=race) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert sorted(outcomes) == [False] * 7 + [True]
    assert len(host.taken()) == 20 and sorted(host.done) == list(range(1, 21))


def test_a_capture_that_is_dropped_unsent_resolves_itself_once(host: Host) -> None:
    """This includes a capture in a reference cycle, which only the garbage collector finds."""
    probe = host.spawn(Probe)
    first, second = captures(host, probe, 2)
    del first
    assert list(host.done) == [1]
    cycle: list[Any] = [second]
    cycle.append(cycle)
    del second, cycle
    assert list(host.done) == [1]
    gc.collect()
    assert list(host.done) == [1, 2] and not host.taken()


def test_a_send_that_fails_resolves_the_capture(host: Host) -> None:
    probe = host.spawn(Probe)
    (capture,) = captures(host, probe)
    with pytest.raises(RegistrationError):
        capture.send({"no": "bytes"})
    assert list(host.done) == [1]


def test_the_end_of_a_sensor_resolves_its_captures(host: Host) -> None:
    """A capture that an author keeps for ever does not hold the frame; later sends are discarded."""
    probe = host.spawn(Probe)
    kept, sent_late = captures(host, probe, 2)
    streamed.end(probe, host.failures)
    assert sorted(host.done) == [1, 2]
    with pytest.raises(StreamError, match="dropped"):
        sent_late.send(np.ones(1))
    assert not host.taken() and kept.frame == 1


# Worker threads -------------------------------------------------------------------------------------------------------


class Later(Executor):
    """An executor that runs its functions on request."""

    def __init__(self) -> None:
        self.work: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.ended = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.ended:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        self.work.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run(self) -> None:
        while self.work:
            future, call = self.work.pop()
            future.set_result(call())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.ended = True
        if cancel_futures:
            for future, _ in self.work:
                future.cancel()
            self.work.clear()


def test_asynchronous_data_have_the_frame_of_their_computation() -> None:
    """Functions of three frames run after the third, in reverse; a tuple is several arguments, None sends nothing."""
    with Host(WORLD, 1, Later()) as host:
        probe = host.spawn(Probe, attach_to="box")
        results: list[Any] = [np.ones(1), (np.full(1, 2.0),), None]
        probe.act = lambda probe, snapshot: probe.stream.send_async(lambda k: results[k], snapshot.frame - 1)
        for frame in range(3):
            assert host.frame(probe, np.full(3, float(frame))) == []
        assert list(host.opened) == [1, 2, 3] and not host.done
        host.executor.run()
        got = [host.received(message) for message in host.taken()]
        assert [(data.frame, data[0], data.transform.pos[0]) for data in got] == [(2, 2, 1), (1, 1, 0)]
        assert list(host.done) == [3, 2, 1]


def test_real_worker_threads_send_every_frame(host: Host) -> None:
    """100 frames, each awaited before the next, all arrive once, computed on other threads."""
    probe = host.spawn(Probe)
    threads = set()

    def compute(frame: int) -> Any:
        threads.add(threading.get_ident())
        return np.full(1000, float(frame))

    probe.act = lambda probe, snapshot: probe.stream.send_async(compute, snapshot.frame)
    got = []
    arrived = threading.Semaphore(0)
    host.sent = Notifying(arrived)
    for _ in range(100):
        early = host.frame(probe)
        assert arrived.acquire(timeout=PATIENCE)
        got += [host.received(message) for message in early + host.taken()]
    assert sorted(data.frame for data in got) == list(range(1, 101))
    assert all(data[0] == data[999] == data.frame for data in got)
    assert probe.stream.skipped == 0 and threading.get_ident() not in threads
    host.executor.shutdown()
    assert sorted(host.done) == list(range(1, 101))


class Notifying(list[Any]):
    """A list that signals appends; `taken` may empty it at any later time."""

    def __init__(self, arrived: threading.Semaphore) -> None:
        super().__init__()
        self.arrived = arrived

    def append(self, item: Any) -> None:
        super().append(item)
        self.arrived.release()


def test_an_exception_on_a_worker_thread_is_reported_with_the_sensors_name(caplog: pytest.LogCaptureFixture) -> None:
    with Host(WORLD, 1, Later()) as host, caplog.at_level(logging.ERROR, "sensorium.stream"):
        probe = host.spawn(Probe)

        def compute() -> None:
            raise ZeroDivisionError("no rays")

        probe.act = lambda probe, snapshot: probe.stream.send_async(compute)
        host.frame(probe)
        host.executor.run()
        (failure,) = host.failures.take()
        assert (failure.sensor, failure.frame, type(failure.error)) == ("guard", 1, ZeroDivisionError)
        assert "compute" in failure.where and "in compute" in failure.traceback
        assert "sensor 'guard'" in caplog.text and "ZeroDivisionError: no rays" in caplog.text
        assert list(host.done) == [1] and host.failures.take() == [] and host.failures.count == 1


def test_slow_asynchronous_work_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """At most MAX_PENDING functions wait; further functions are counted, reported once, and hold no frame."""
    with Host(WORLD, 1, Later()) as host, caplog.at_level(logging.WARNING, "sensorium.stream"):
        probe = host.spawn(Probe)
        probe.act = lambda probe, snapshot: probe.stream.send_async(lambda: np.ones(1))
        for _ in range(MAX_PENDING + 3):
            host.frame(probe)
        assert probe.stream.skipped == 3 and len(host.opened) == MAX_PENDING
        assert caplog.text.count("skips frames") == 1
        host.executor.run()
        assert len(host.taken()) == len(host.done) == MAX_PENDING
        host.frame(probe)
        host.executor.run()
        assert [message.moment.frame for message in host.taken()] == [MAX_PENDING + 4]


def test_cancelled_or_refused_work_resolves_its_capture() -> None:
    """A closing server drops waiting work, and a later call states why it fails."""
    with Host(WORLD, 1, Later()) as host:
        probe = host.spawn(Probe)
        probe.act = lambda probe, snapshot: probe.stream.send_async(lambda: np.ones(1))
        host.frame(probe)
        host.executor.shutdown(cancel_futures=True)
        assert list(host.done) == [1]
        host.frame(probe)
        (failure,) = host.failures.take()
        assert isinstance(failure.error, StreamError) and "closing" in str(failure)
        assert list(host.done) == [1, 2] and probe.stream.pending == 0


# Failures -------------------------------------------------------------------------------------------------------------


def test_a_tick_that_raises_is_reported_and_keeps_nothing_alive(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    """The server gets the reason for the end; the failure keeps no stack frame alive, so captures resolve."""
    probe = host.spawn(Probe, name="front guard")
    seen: list[weakref.ref[Any]] = []

    def act(probe: Probe, snapshot: Snapshot) -> None:
        capture = probe.stream.capture()
        seen.append(weakref.ref(capture))
        raise ValueError("box is empty")

    probe.act = act
    failure = run_tick(probe, host.at(5), host.failures)
    assert failure is not None and str(failure) == "sensor 'front guard': tick raised ValueError: box is empty"
    assert failure.frame == 5 and "in act" in failure.traceback and "front guard" in caplog.text
    assert seen[0]() is None and list(host.done) == [0]  # the stack frame of the context manager
    assert host.failures.take() == [failure]
    assert run_tick(host.spawn(Probe), host.at(6), host.failures) is None


def test_a_close_that_raises_is_reported(host: Host) -> None:
    probe = host.spawn(Probe)
    probe.close = lambda: 1 / 0
    streamed.end(probe, host.failures)
    (failure,) = host.failures.take()
    assert failure.where == "close" and isinstance(failure.error, ZeroDivisionError)


# Registry -------------------------------------------------------------------------------------------------------------


def test_defining_a_class_registers_it() -> None:
    known = streamed.REGISTRY.registered()
    assert known["sensor.other.test_probe"] is Probe
    assert streamed.REGISTRY.find("sensor.other.test_probe") is Probe
    with pytest.raises(UnknownNameError, match=r"Did you mean 'sensor.other.test_probe'"):
        streamed.REGISTRY.find("sensor.other.test_prob")


def test_subclass_without_own_definition_registers_nothing() -> None:
    class Louder(Probe):
        pass

    assert streamed.REGISTRY.find("sensor.other.test_probe") is Probe and Louder.definition() == Probe.definition()


def test_invalid_class_is_refused_at_definition() -> None:
    with pytest.raises(RegistrationError, match=r"defines 'sensor.other.test_probe', which .*Probe already"):

        class Second(StreamedSensor):
            serializer = NumbersSerializer

            @staticmethod
            def definition() -> SensorDefinition:
                return Probe.definition()

    with pytest.raises(RegistrationError, match=r"definition\(\) returned 'imu', expected a SensorDefinition"):

        class Word(StreamedSensor):
            serializer = NumbersSerializer

            @staticmethod
            def definition() -> Any:
                return "imu"

    with pytest.raises(RegistrationError, match=r"serializer is .*Numbers.*, expected a subclass of Serializer"):

        class Mixed(StreamedSensor):
            serializer = Numbers  # type: ignore[assignment]

            @staticmethod
            def definition() -> SensorDefinition:
                return make_generic_sensor_definition("other", "test_two_types")

    with pytest.raises(RegistrationError, match=r"Mute\.serializer is missing, expected a subclass of Serializer"):

        class Mute(StreamedSensor):
            @staticmethod
            def definition() -> SensorDefinition:
                return make_generic_sensor_definition("other", "test_no_serializer")

    with pytest.raises(RegistrationError, match=r"Vague needs .*definition"):

        class Vague(StreamedSensor):
            serializer = NumbersSerializer

    known = streamed.REGISTRY.registered()
    assert not {"sensor.other.test_two_types", "sensor.other.test_no_serializer"} & known.keys()


def test_broken_plugin_is_reported_by_name_without_other_effects(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "wind_streamed.py").write_text("raise OSError('no wind today')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    points = [EntryPoint("wind", "wind_streamed", streamed.ENTRY_POINT_GROUP)]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    fresh = Plugins(streamed.ENTRY_POINT_GROUP, "streamed sensor")
    fresh.tables.append(streamed.REGISTRY)
    monkeypatch.setattr(streamed.REGISTRY, "plugins", fresh)
    with pytest.warns(SensoriumWarning, match=r"plugin 'wind' \(wind_streamed\).*no wind today"):
        known = streamed.REGISTRY.registered()
    assert "sensor.other.test_probe" in known
    with pytest.raises(UnknownNameError, match=r"plugin 'wind' .* could not be loaded .*: OSError"):
        streamed.REGISTRY.find("sensor.other.wind")
    sys.modules.pop("wind_streamed", None)


def test_buffer_without_pool_can_be_sent(host: Host) -> None:
    probe = host.spawn(Probe)
    buffer = Buffer()
    buffer.copy_from(np.arange(2.0))
    probe.act = lambda probe, snapshot: probe.stream.send(buffer)
    (message,) = host.frame(probe)
    assert host.received(message).array.tolist() == [0.0, 1.0]
    assert isinstance(host.executor, ThreadPoolExecutor)
