"""Large sensors are computed only while a client listens to them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from streaming import PATIENCE, Sheet, SheetCfg, build, connect, running, until

import sensorium as sn


def computed(of: Callable[[], object]) -> int:
    """Return how often the large sensor was computed during an action."""
    before = Sheet.computed
    of()
    return Sheet.computed - before


@pytest.mark.parametrize("where", ["tcp", "in-process"])
def test_large_sensor_is_computed_only_with_listeners(where: str) -> None:
    """With none, one, two, one and no listener, each listener has every computed frame."""
    scene = build(columns=1024)
    with sn.serve(scene, "tcp://127.0.0.1:0", lockstep=True) as server, running(server):
        client = connect(server.address) if where == "tcp" else scene.local_client(timeout=PATIENCE, server=server)
        with client, connect(server.address) as stepper:

            def ten() -> None:
                for _ in range(10):
                    stepper.step()

            assert computed(ten) == 0
            got: dict[str, list[int]] = {"a": [], "b": []}
            first = client.subscribe("sheet", lambda data: got["a"].append(data.frame), policy="lossless")
            until(lambda: server.counts.subscriptions == 1)
            assert 10 <= computed(ten) <= 11  # the frame at which it started is computed as well
            second = stepper.subscribe("sheet", lambda data: got["b"].append(data.frame), policy="lossless")
            until(lambda: server.counts.subscriptions == 2)
            assert 10 <= computed(ten) <= 11
            until(lambda: got["a"] and got["a"][-1] == server.frame)
            first.stop()
            until(lambda: server.counts.subscriptions == 1)
            assert computed(ten) == 10
            until(lambda: got["b"] and got["b"][-1] == server.frame)
            second.stop()
            until(lambda: server.counts.subscriptions == 0)
            stepper.step()
            assert computed(ten) == 0 and scene["sheet"].buffers.listeners == 0
            assert got["a"][-20:] == list(range(11, 31)) and got["b"][-20:] == list(range(21, 41))


def test_disconnected_client_requests_no_computation() -> None:
    """The computation ends with the connection."""
    scene = build(columns=1024)
    with sn.serve(scene, "tcp://127.0.0.1:0", lockstep=True) as server, running(server):
        with connect(server.address) as stepper:
            client = connect(server.address)
            client.sensors["sheet"].listen(lambda data: None)
            until(lambda: server.counts.subscriptions == 1)
            assert computed(stepper.step) >= 1
            client.close()
            until(lambda: server.counts.subscriptions == 0)
            stepper.step()
            assert computed(stepper.step) == 0


def test_sensors_read_by_the_owner_or_set_to_always_are_computed() -> None:
    """Reading a sensor in the server's process works without listeners; a config with `always` is unaffected."""
    scene = build(columns=1024)
    with sn.serve(scene, "tcp://127.0.0.1:0") as server:
        assert computed(scene.step) == 0
        assert scene["sheet"].data.cells[2, 5] == 2048.0 + scene.tick + 5.0
        assert server.counts.subscriptions == 0
    always = sn.Scene(build(columns=0).engine, [SheetCfg(name="sheet", columns=1024, evaluate="always")])
    with sn.serve(always, "tcp://127.0.0.1:0"):
        assert computed(always.step) == 1


def test_rate_limited_listener_gets_the_newest_sample() -> None:
    """A subscription to every fifth sample gets the value of its frame."""
    scene = build(columns=1024)
    with sn.serve(scene, "tcp://127.0.0.1:0", lockstep=True) as server, running(server):
        with connect(server.address) as client:
            got: list[tuple[int, float]] = []
            client.subscribe(
                "sheet", lambda data: got.append((data.tick, float(data["cells"][0, 0]))), policy="lossless", every=5
            )
            for _ in range(20):
                client.step()
            until(lambda: len(got) >= 4)
            assert all(tick == value for tick, value in got)
