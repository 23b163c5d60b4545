"""Clients dropped without `close`: an idle client ends with a warning; a listening client continues."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from streaming import PATIENCE, Pedometer, build, held, serving, until

import sensorium as sn

Opened = Callable[[], sn.Client]


def left(before: dict[str, int]) -> bool:
    """Return whether no more threads and descriptors are held than before."""
    now = held()
    return all(now[name] <= before[name] for name in ("threads", "fds", "memfds"))


@contextlib.contextmanager
def opener(transport: str) -> Iterator[tuple[Opened, sn.Scene]]:
    """Yield a function that opens a client, and its scene; at the end no resources of any client may be left."""
    gc.collect()
    if transport == "in-process":
        scene = build(columns=0)
        with scene.local_client(timeout=PATIENCE) as other:  # created once per process and kept
            other.spawn("sensor.other.test_ticker", attach_to="body").listen(lambda data: None)
            other.step()
        before = held()
        yield scene.local_client, scene
        until(lambda: left(before), "the end of all threads")
        scene.step()  # the scene releases here what other threads have closed
        assert scene["gauge"].buffers.listeners == 0
    else:
        with serving(lockstep=True, world={"columns": 0}) as server:
            with sn.connect(server.address):
                pass
            until(lambda: server.clients == 0)
            before = held()
            yield lambda: sn.connect(server.address, timeout=PATIENCE), server.scene
            until(lambda: left(before) and not server.clients, "the end of all threads")


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Disable the garbage collection of reference cycles."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def gone(client: weakref.ref[sn.Client]) -> None:
    """Wait until a client no longer exists."""
    until(lambda: client() is None, "the end of a client")


def to_sensor(client: sn.Client, note: Callable[[int], None]) -> Callable[[], None]:
    sensor = client.sensors["gauge"]
    sensor.listen(lambda data: note(data.frame), policy="lossless")
    return sensor.stop


def to_bodies(client: sn.Client, note: Callable[[int], None]) -> Callable[[], None]:
    return client.on_tick(lambda snapshot: note(snapshot.frame)).stop


def to_frames(client: sn.Client, note: Callable[[int], None]) -> Callable[[], None]:
    return client.on_frame(lambda done: note(done.frame)).stop


both = pytest.mark.parametrize("transport", ["in-process", "network"])


def unclosed() -> Any:
    """Expect the warning about a client that was not closed."""
    return pytest.warns(ResourceWarning, match=r"unclosed <Client of (tcp|inproc)://.*connected, .*: call its close")


@both
def test_unreferenced_idle_client_ends_with_a_warning(transport: str) -> None:
    """The client ends without a garbage collection: after steps, listening, a spawned sensor and kept data."""
    with opener(transport) as (opened, _), without_collection():
        client = opened()
        kept: list[Any] = []
        gauge = client.sensors["gauge"]
        gauge.listen(kept.append, policy="lossless")
        with sn.client.FrameSync(client, ["gauge"]) as sync:
            frame = client.step()
            assert sync.get(frame, timeout=PATIENCE)["gauge"] is not None
        ticker = client.spawn("sensor.other.test_ticker", attach_to="body")
        world = client.on_tick(kept.append)
        for _ in range(3):
            client.step()
        until(lambda: len(kept) >= 6)
        gauge.stop()
        world.stop()
        mine = weakref.ref(client)
        with unclosed() as caught:
            del client, gauge, ticker, sync, world
            gone(mine)
        assert len(caught) == 1 and caught[0].filename == __file__


@both
def test_closed_client_is_released_without_warning(transport: str) -> None:
    """Warnings are errors here."""
    with opener(transport) as (opened, _), without_collection():
        with opened() as client:
            client.sensors["gauge"].listen(lambda data: None)
            client.step()
        mine = weakref.ref(client)
        del client
        gone(mine)


@both
def test_a_sensor_keeps_its_client(transport: str) -> None:
    """The sensor answers requests, can be listened to and stopped; afterwards the client ends."""
    with opener(transport) as (opened, _), without_collection():
        client = opened()
        sensor, mine = client.sensors["gauge"], weakref.ref(client)
        del client
        got: list[int] = []
        sensor.listen(lambda data: got.append(data.frame), policy="lossless")
        client = mine()
        assert client is not None and client.sensors["gauge"] is sensor
        last = client.step()
        del client
        until(lambda: got[-1:] == [last])
        sensor.stop()
        assert sensor.stats.received == len(got) and not sensor.is_listening and sensor.is_alive
        with unclosed():
            del sensor
            gone(mine)


@both
@pytest.mark.parametrize("listen", [to_sensor, to_bodies, to_frames])
def test_listening_client_stays_alive_unreferenced(transport: str, listen: Callable[..., Callable[[], None]]) -> None:
    """The listener hears of every step; the client ends when the last listener is stopped."""
    with opener(transport) as (opened, _), without_collection():
        got: list[int] = []
        client = opened()
        mine, stop = weakref.ref(client), listen(client, got.append)
        last = client.step()
        del client
        for _ in range(3):
            until(lambda last=last: got[-1:] == [last])  # type: ignore[misc]
            again = mine()
            assert again is not None
            last = again.step()
            del again
        with unclosed():
            stop()
            del stop
            gone(mine)


def test_listening_requires_no_reference() -> None:
    """A single line suffices; when the server ends the stream, the client is idle and ends."""
    with sn.serve(build(columns=0), "tcp://127.0.0.1:0") as server, without_collection():
        server.spawn("sensor.other.test_ticker", name="ticker")
        got: list[int] = []
        sn.connect(server.address).sensors["ticker"].listen(lambda events: got.append(events.frame))
        until(lambda: server.poll() is not None and server.counts.subscriptions == 1)
        for frame in range(1, 4):
            server.scene.step()
            until(lambda frame=frame: got == [*range(1, frame + 1)])  # type: ignore[misc]
        with unclosed(), pytest.warns(sn.SensoriumWarning, match="listening to 'ticker' ended: it was removed"):
            server.remove("ticker")
            until(lambda: server.clients == 0, "the end of the client")


def test_listener_can_release_the_last_reference_to_its_client() -> None:
    """The drop occurs on a worker thread, which ends as well."""
    with opener("network") as (opened, _), without_collection():
        client = opened()
        mine, sensors = weakref.ref(client), [client.sensors["gauge"]]
        sensors[0].listen(lambda data: sensors.pop().stop() if sensors else None)
        with unclosed():
            client.step()
            del client
            gone(mine)


def test_client_released_during_a_step_does_not_disturb_the_scene() -> None:
    """The drop may occur at any time, as by a garbage collection: here before and after the server reads the frame."""
    with opener("in-process") as (opened, scene), without_collection():
        for _ in range(2):
            kept: list[Any] = []
            with scene.watch(lambda kept=kept: kept.clear()):  # type: ignore[misc]
                kept.append(opened())
                kept[0].spawn("sensor.other.imu", attach_to="body")
                mine = weakref.ref(kept[0])
                with unclosed():
                    scene.step()
                    gone(mine)
            scene.step()
            assert set(scene) == {"gauge"}


@both
def test_client_side_sensor_is_closed_with_its_client(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Client and sensor reference each other, so a garbage collection finds them; a listening sensor keeps both."""
    closed: list[str] = []
    monkeypatch.setattr(Pedometer, "close", lambda self: closed.append(self.name))
    with opener(transport) as (opened, _):
        client = opened()
        got: list[int] = []
        walker = client.spawn("sensor.other.test_pedometer", attach_to="body")
        walker.listen(got.append)
        mine, its, name = weakref.ref(client), weakref.ref(walker), walker.name
        last = client.step()
        until(lambda: got[-1:] == [last])
        del client, walker
        gc.collect()
        found, sensor = mine(), its()
        assert found is not None and sensor is not None and not closed
        last = found.step()
        until(lambda: got[-1:] == [last])
        sensor.stop()
        with unclosed():
            del found, sensor
            gc.collect()
            until(lambda: closed == [name], "the end of the sensor")
