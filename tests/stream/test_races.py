"""Race conditions: late greetings, broken connections, sensors that fail while their client leaves."""

from __future__ import annotations

import threading
import warnings
from typing import Any, ClassVar

import numpy as np
import pytest
from streaming import PATIENCE, TickerDataSerializer, build, connect, running, serving, until

import sensorium as sn
from sensorium.client import link
from sensorium.client.session import Session
from sensorium.errors import SensoriumWarning
from sensorium.stream.streamed import StreamedSensor
from sensorium.wire import messages as msg
from sensorium.wire.attributes import SensorDefinition, make_generic_sensor_definition
from sensorium.wire.world import Snapshot


class Later(StreamedSensor):
    """Sends the frame's number from a worker thread, once a gate is open."""

    serializer = TickerDataSerializer
    gate: ClassVar[threading.Event] = threading.Event()

    @classmethod
    def definition(cls) -> SensorDefinition:
        return make_generic_sensor_definition("other", "test_later")

    def tick(self, snapshot: Snapshot) -> None:
        self.stream.send_async(self._work, snapshot.frame)

    def _work(self, frame: int) -> Any:
        self.gate.wait(PATIENCE)
        return np.array([frame])


class Failing(StreamedSensor):
    """Fails at its second frame."""

    serializer = TickerDataSerializer

    @classmethod
    def definition(cls) -> SensorDefinition:
        return make_generic_sensor_definition("other", "test_failing")

    def tick(self, snapshot: Snapshot) -> None:
        if snapshot.frame > 1:
            raise RuntimeError("it is broken")


def test_a_client_greets_as_soon_as_the_connection_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for its next greeting, neither at first nor after a restart of the server."""
    monkeypatch.setattr(link, "HELLO_S", 2.0 * PATIENCE)
    with serving(lockstep=True, world={"columns": 0}) as server:
        address = server.address
        client = sn.connect(address, timeout=PATIENCE)
    with client, serving(address, lockstep=True, world={"columns": 0}):
        until(lambda: client.is_connected)


def test_repeated_welcome_starts_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is busy for longer than a client waits before its next greeting."""
    learnt: list[Any] = []
    learn = Session._process_catalogue

    def note(self: Session, catalogue: msg.Catalogue) -> None:
        learnt.append(catalogue)
        learn(self, catalogue)

    monkeypatch.setattr(Session, "_process_catalogue", note)
    with serving(lockstep=True, world={"columns": 0}) as server:
        welcome, hear = server._access._welcome, server._access._handle_message

        def slow_welcome(*args: Any) -> None:
            threading.Event().wait(0.8)  # the server is busy with another task
            welcome(*args)

        def count(session: Any, message: Any) -> None:
            again.extend([message] if isinstance(message, msg.Hello) else [])
            hear(session, message)

        again: list[Any] = []
        monkeypatch.setattr(server._access, "_welcome", slow_welcome)
        monkeypatch.setattr(server._access, "_handle_message", count)
        with connect(server.address) as client:
            got: list[int] = []
            client.sensors["gauge"].listen(lambda data: got.append(data.frame), policy="lossless")
            frames = [client.step() for _ in range(20)]
            until(lambda: got and got[-1] == frames[-1])
            assert again, "the greeting was said once only: this test tests nothing"
            client._session.on_control(server._access._catalogue())  # the answer to a repeated greeting
            assert len(learnt) == 1 and server.counts.subscriptions == 1
            assert got[-20:] == frames


def test_messages_of_a_broken_connection_give_no_credit_to_the_next() -> None:
    """A lossless listener is at work, with messages waiting, during a server restart: it continues in order."""
    first = sn.serve(build(columns=0), "tcp://127.0.0.1:0", lockstep=True)
    address = first.address
    gate, entered = threading.Event(), threading.Event()
    got: list[int] = []

    def take(data: Any) -> None:
        entered.set()
        gate.wait(PATIENCE)
        got.append(data.frame)

    with sn.connect(address, timeout=PATIENCE) as client:
        with running(first):
            client.subscribe("gauge", take, policy="lossless", queue=64)
            for _ in range(10):
                client.step()  # its answer comes after its data
            assert entered.wait(PATIENCE)
        first.close()
        with sn.serve(build(columns=0), address, lockstep=True) as second, running(second):
            until(lambda: client.is_connected and second.counts.subscriptions == 1)
            client.step()
            gate.set()
            for _ in range(100):
                last = client.step()
            until(lambda: got[-1] == last)
            assert second._access.refused == 0 and second.clients == 1
            assert got[-100:] == list(range(last - 99, last + 1))


def test_subscription_started_before_the_catalogue_is_not_duplicated() -> None:
    """A listener starts between the answer to the greeting and the catalogue: the server has a single subscription."""
    with serving(lockstep=True, world={"columns": 0}) as server, connect(server.address) as client:
        client.sensors["gauge"].listen(lambda data: None, policy="lossless")
        until(lambda: server.counts.subscriptions == 1)
        server._table.send_to_all(server._access._catalogue())  # as if the first had arrived only now
        client.step()  # its answer comes after the catalogue, and the next request after what the client makes of it
        client.step()
        assert server.counts.subscriptions == 1


def test_frame_is_complete_after_the_last_worker_without_polling() -> None:
    """The owner of the loop waits for requests; the end-of-frame message arrives as soon as the data have arrived."""
    Later.gate.clear()
    with sn.serve(build(columns=0), "tcp://127.0.0.1:0") as server:
        server.spawn("sensor.other.test_later", name="later")
        with connect(server.address) as client, sn.client.FrameSync(client, ["later", "gauge"]) as sync:
            until(lambda: server.counts.subscriptions == 2 and server._access.new_frame_listeners)
            server.poll()
            server.scene.step()
            with pytest.raises(TimeoutError, match="frame 1"):
                sync.get(1, timeout=0.05)
            Later.gate.set()
            bundle = sync.get(1, timeout=PATIENCE)  # no poll since
            assert bundle["later"] is not None and bundle["gauge"] is not None
            assert int(bundle["later"][0]) == 1


def test_sensor_failing_as_its_client_leaves_is_removed_once() -> None:
    """The loop continues, and a sensor that has taken over the name stays."""
    with sn.serve(build(columns=0), "tcp://127.0.0.1:0") as server:
        client = connect(server.address)
        with running(server):
            client.spawn("sensor.other.test_failing", name="weak")
        client.close()
        until(lambda: server.clients == 0)
        (session,) = server._gone
        server._gone.clear()
        server.scene.step()
        server._gone.append(session)  # its end is noticed during the next frame
        server.remove("weak", "it failed")
        server.spawn("sensor.other.test_ticker", name="weak")
        server.poll()
        server.scene.step()
        assert "weak" in server.streams


def test_connection_survives_warnings_as_errors() -> None:
    """A note of the server is stored in `notes`, and all data that the client keeps arrive."""
    with serving(lockstep=True, world={"columns": 8192}) as server, connect(server.address) as client:
        kept: list[Any] = []
        with warnings.catch_warnings():
            warnings.simplefilter("error", SensoriumWarning)
            client.sensors["sheet"].listen(kept.append, policy="lossless")
            (session,) = server._table.sessions.values()
            server._table.send(session, msg.Note("it is late"))
            for _ in range(20):
                last = client.step()
            until(lambda: kept and kept[-1].frame == last)
        assert client.is_connected and client.notes == ["it is late"]
        kept.clear()


def test_the_server_closes_while_clients_are_busy() -> None:
    """With active callbacks, open requests and held slots, everything ends, and kept data stay readable."""
    before = threading.active_count()
    kept: list[Any] = []
    for _ in range(10):
        server = sn.serve(build(columns=8192), "tcp://127.0.0.1:0", lockstep=True)
        with running(server):
            clients = [connect(server.address), connect(server.address)]
            for client in clients:
                client.sensors["sheet"].listen(kept.append, policy="lossless")
                clients[0].step()
        asking = threading.Thread(target=lambda client=clients[1]: _swallow(client.reset))
        asking.start()
        until(lambda server=server: server._access.commands)
        server.close()
        asking.join(PATIENCE)
        assert not asking.is_alive()
        for client in clients:
            client.close()
    until(lambda: threading.active_count() == before)
    for data in kept:
        assert data["cells"][1, 7] == 1024.0 + data.tick + 7.0


def _swallow(call: Any) -> None:
    with pytest.raises(sn.StreamError):
        call()
