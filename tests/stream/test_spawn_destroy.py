"""Spawned and destroyed sensors leave nothing behind, and clients cannot take each other's sensors."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from streaming import PATIENCE, Child, Nursery, Pedometer, Peer, build, connect, held, running, serving, until

import sensorium as sn
from sensorium.errors import StreamError
from sensorium.wire import messages as msg

WARM = 20

KINDS: dict[str, dict[str, Any]] = {
    "in the scene": {
        "blueprint": "sensor.other.body_state",
        "attach_to": "body",
        "lossless": {"policy": "lossless"},
    },
    "on the server": {"blueprint": "sensor.other.test_ticker", "lossless": {"policy": "lossless"}},
    "in the client": {"blueprint": "sensor.other.test_pedometer"},  # its frames are never dropped
}


@pytest.fixture(scope="module")
def server(nursery: Nursery) -> Iterator[Child]:
    """A lock-step server in another process."""
    with nursery.start("server", address="tcp://127.0.0.1:0", world={"columns": 0}, lockstep=True) as child:
        yield child


@pytest.mark.parametrize("cycles", [12, pytest.param(1000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("what", KINDS)
def test_spawned_and_destroyed_sensors_leave_nothing(server: Child, what: str, cycles: int) -> None:
    """Descriptors, threads, memory, streams and sensors of the scene stay constant on both sides."""
    with connect(server.address) as client:
        blueprint = client.blueprints.find(KINDS[what]["blueprint"])
        attach_to = KINDS[what].get("attach_to")
        received = [0]

        def cycle(i: int) -> None:
            sensor = client.spawn(blueprint, attach_to=attach_to)
            if i % 5 == 0:
                sensor.listen(lambda data: received.__setitem__(0, received[0] + 1))
                client.step()
            sensor.destroy()

        for i in range(WARM):
            cycle(i)
        gc.collect()
        before = server.ask("held"), held()
        for i in range(cycles):
            cycle(i)
        until(lambda: server.ask("held")["subscriptions"] == 0)
        gc.collect()
        after = server.ask("held"), held()
        for side in (0, 1):
            a, b = before[side], after[side]
            for key in ("memfds", "mapped", "topics", "subscriptions", "sensors", "segments"):
                assert a.get(key) == b.get(key), (side, key)
            for key in ("fds", "threads"):
                assert b[key] <= a[key] + 2, (side, key)
            assert b["rss"] - a["rss"] < (6 if cycles < 1000 else 12) * 2**20, (
                f"{(b['rss'] - a['rss']) / cycles:.0f} bytes per sensor"
            )
        assert received[0] > 0 and set(client.streams) == {"gauge", "world"} and not client.errors


def test_sensors_are_removed_with_their_client(server: Child) -> None:
    """They are removed with or without a goodbye of the client; sensors of other clients stay."""
    with connect(server.address) as other:
        other.spawn("sensor.other.test_ticker", name="theirs")
        client = connect(server.address)
        for i, how in enumerate(KINDS.values()):
            client.spawn(how["blueprint"], attach_to=how.get("attach_to"), name=f"mine_{i}")
        until(lambda: {"mine_0", "mine_1", "mine_2", "theirs"} <= set(other.streams))
        client.close()
        until(lambda: set(other.streams) == {"gauge", "world", "theirs"})
    until(lambda: server.ask("held")["topics"] == 2)


def test_client_can_destroy_only_its_own_sensors(server: Child) -> None:
    """Destroying sensors of another client or of the scene is refused with a message, and they stay."""
    with connect(server.address) as owner, connect(server.address) as other:
        mine = owner.spawn("sensor.other.test_ticker", name="mine")
        until(lambda: "mine" in other.streams)
        for name in ("mine", "gauge", "world", "nothing"):
            with pytest.raises(
                StreamError, match=r"a sensor that this client spawned|only destroy sensors that it spawned"
            ):
                other.destroy(name)
        got: list[int] = []
        mine.listen(lambda data: got.append(data.frame))
        owner.step()
        until(lambda: got)
        mine.destroy()
        mine.destroy()
        with pytest.raises(StreamError):
            owner.destroy("mine")


def test_failed_spawn_leaves_nothing(server: Child) -> None:
    """Invalid blueprints, bodies, attributes, names and environments give an error message and leave no trace."""
    with connect(server.address) as client, Peer(server.address) as peer:
        before = server.ask("held")
        ticker = client.blueprints.find("sensor.other.test_ticker")
        with pytest.raises(sn.ConfigError, match="env: got 99"):
            client.spawn(ticker, env=99)
        with pytest.raises(StreamError, match="gauge"):
            client.spawn(ticker, name="gauge")
        with pytest.raises(sn.UnknownNameError):
            client.spawn(ticker, attach_to="nobody")
        with pytest.raises(sn.UnknownNameError):
            client.spawn("sensor.other.no_such_thing")
        peer.send(msg.Spawn(1, ticker.id, {"burst": {"a": 1}}, "wrong", (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0), "", -1))
        assert "burst" in peer.answer(msg.Reply).error
        after = server.ask("held")
        assert (before["topics"], before["sensors"]) == (after["topics"], after["sensors"])


def test_sensors_are_respawned_after_a_server_restart_and_listeners_continue() -> None:
    """Sensors of all three kinds return under their names; no data of the first server follow those of the second.

    The first step after the connection has the data of all of them, in listeners and in a `FrameSync`.
    """
    first = sn.serve(build(columns=0), "tcp://127.0.0.1:0", lockstep=True)
    address = first.address
    got: dict[str, list[Any]] = {}
    with sn.connect(address, timeout=PATIENCE) as client:
        with running(first):
            for how in KINDS.values():
                before = client.spawn(how["blueprint"], attach_to=how.get("attach_to"))
                sensor = client.spawn(how["blueprint"], attach_to=how.get("attach_to"))
                before.destroy()  # its name is free for the server, and not taken when the other is spawned again
                kept = got.setdefault(sensor.name, [])
                sensor.listen(
                    lambda data, kept=kept: kept.append(getattr(data, "frame", data)), **how.get("lossless", {})
                )
            sync = sn.client.FrameSync(client, [name for name in client.sensors if name in got])
            for _ in range(5):
                client.step()
            until(lambda: all(each and each[-1] == 5 for each in got.values()))
            assert None not in sync.get(5, timeout=PATIENCE).values()
        first.close()
        until(lambda: not client.is_connected)
        with pytest.raises(StreamError, match=r"within 0\.05 s"):
            client.step(timeout=0.05)
        with sn.serve(build(columns=0), address, lockstep=True) as second, running(second):
            client.wait_connected(PATIENCE)
            frames = [client.step() for _ in range(3)]
            until(lambda: all(each[-1] == frames[-1] for each in got.values()))
            for kept in got.values():
                assert [frame for frame in kept if frame == 0 or frame in frames][-3:] == frames
            for frame in frames:
                assert None not in sync.get(frame, timeout=PATIENCE).values()
            sync.close()
            assert not [name for name in client.streams if name not in {*got, "gauge", "world"}]
    assert not client.is_connected


def test_pedometers_of_two_clients_see_every_frame() -> None:
    """A client-side sensor gets the frames in order, whatever the other client does."""
    with serving(lockstep=True, world={"columns": 0}) as server:
        with connect(server.address) as a, connect(server.address) as b:
            seen: dict[str, list[int]] = {"a": [], "b": []}
            mine = a.spawn("sensor.other.test_pedometer")
            second = b.spawn("sensor.other.test_pedometer")
            assert isinstance(mine, Pedometer) and mine.name != second.name
            mine.listen(seen["a"].append)
            second.listen(seen["b"].append)
            for i in range(60):
                b.step()
                if i == 30:
                    second.destroy()
            until(lambda: seen["a"] and seen["a"][-1] == 60)
            for frames in seen.values():
                assert np.diff(frames).tolist() == [1] * (len(frames) - 1)
            assert not seen["b"] or seen["b"][-1] <= 31


@pytest.mark.parametrize("name", ["x\ny", "\x1b[31mred", " x", "x" * 129])
def test_unprintable_name_is_refused(name: str) -> None:
    with serving(lockstep=True, world={"columns": 0}) as server, connect(server.address) as client:
        with pytest.raises(StreamError, match="printable characters"):
            client.spawn("sensor.other.test_ticker", name=name)
        assert set(server.streams) == {"gauge", "world"}
