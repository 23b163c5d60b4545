"""Race conditions: late greetings, broken connections, sensors that fail while their client leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from streaming import PATIENCE, Relay, TickerDataSerializer, build, connect, running, serving, until

import sensorium as sn
from sensorium.client import link
from sensorium.compat.actors import make_generic_sensor_definition
from sensorium.stream.streamed import StreamedSensor
from sensorium.wire import messages as msg
from sensorium.wire.attributes import SensorDefinition
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
    """Fails as its client leaves."""

    serializer = TickerDataSerializer
    leave: ClassVar[Callable[[], object]]

    @classmethod
    def definition(cls) -> SensorDefinition:
        return make_generic_sensor_definition("other", "test_failing")

    def tick(self, snapshot: Snapshot) -> None:
        type(self).leave()
        raise RuntimeError("it is broken")


def test_a_client_greets_as_soon_as_the_connection_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for its next greeting, neither at first nor after a restart of the server."""
    monkeypatch.setattr(link, "HELLO_S", 2.0 * PATIENCE)
    with serving(lockstep=True, world={"columns": 0}) as server:
        address = server.address
        client = sn.connect(address, timeout=PATIENCE)
    with client, serving(address, lockstep=True, world={"columns": 0}):
        until(lambda: client.is_connected)


def test_repeated_welcome_starts_everything_once() -> None:
    """The client greets again before the first answer arrives. The second answer arrives while it listens."""
    is_listening = threading.Event()

    def may_answer(relay: Relay) -> bool:
        is_repeated = sum(isinstance(each, msg.Catalogue) for each in relay.received) > 1
        return is_repeated and (len(relay.answered) < 2 or is_listening.is_set())

    with serving(lockstep=True, world={"columns": 0}) as server, Relay(server.address, may_answer) as relay:
        with connect(relay.address, shared_memory=False) as client:
            got: list[int] = []
            client.sensors["gauge"].listen(lambda data: got.append(data.frame), policy="lossless")
            until(lambda: server.counts.subscriptions == 1)
            is_listening.set()
            until(lambda: sum(isinstance(each, msg.Catalogue) for each in relay.answered) > 1, "the second answer")
            frames = [client.step() for _ in range(20)]
            until(lambda: got and got[-1] == frames[-1])
            assert sum(isinstance(each, msg.Subscribe) for each in relay.asked) == server.counts.subscriptions == 1
            assert got[-20:] == frames and got == sorted(set(got))


def test_messages_of_a_broken_connection_give_no_credit_to_the_next(caplog: pytest.LogCaptureFixture) -> None:
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
            assert second.clients == 1 and not [each for each in caplog.records if "disconnected" in each.getMessage()]
            assert got[-100:] == list(range(last - 99, last + 1))


def test_frame_is_complete_after_the_last_worker_without_polling() -> None:
    """The owner of the loop waits for requests; the end-of-frame message arrives as soon as the data have arrived."""
    Later.gate.clear()
    with sn.serve(build(columns=0), "tcp://127.0.0.1:0") as server:
        server.spawn("sensor.other.test_later", name="later")
        with connect(server.address) as client, sn.client.FrameSync(client, ["later", "gauge"]) as sync:
            client.on_tick(lambda snapshot: None)  # the server has heard of the `FrameSync` when it hears of this
            until(lambda: server.counts.subscriptions == 3)
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

        def leave() -> None:
            client.close()
            until(lambda: server.clients == 0)

        Failing.leave = leave
        server.scene.step()
        assert "weak" not in server.streams
        server.spawn("sensor.other.test_ticker", name="weak")
        server.poll()
        server.scene.step()
        assert "weak" in server.streams


def test_the_server_closes_while_clients_are_busy() -> None:
    """With active callbacks, open requests and held slots, everything ends, and kept data stay readable."""
    before = threading.active_count()
    kept: list[Any] = []
    for _ in range(5):
        server = sn.serve(build(columns=8192), "tcp://127.0.0.1:0", lockstep=True)
        with Relay(server.address) as relay:
            with running(server):
                clients = [connect(server.address), connect(relay.address)]
                for client in clients:
                    client.sensors["sheet"].listen(kept.append, policy="lossless")
                    clients[0].step()
            asking = threading.Thread(target=lambda client=clients[1]: _swallow(client.reset))
            asking.start()
            until(lambda relay=relay: any(isinstance(each, msg.Reset) for each in relay.asked))  # type: ignore[misc]
            server.close()
            asking.join(PATIENCE)
            assert not asking.is_alive()
            for client in clients:
                client.close()
    until(lambda: threading.active_count() <= before)
    for data in kept:
        assert data["cells"][1, 7] == 1024.0 + data.tick + 7.0


def _swallow(call: Any) -> None:
    with pytest.raises(sn.StreamError):
        call()
