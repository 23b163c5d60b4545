"""Abrupt end of either side at any moment: the other side continues and reconnects, and nothing of it is left."""

from __future__ import annotations

import gc
import os
import random
import socket
import threading
from typing import Any

import pytest
from streaming import PATIENCE, Child, Nursery, connect, held, serving, until

import sensorium as sn
from sensorium.errors import StreamError

KILLS = 3
"""Kills per side; the soak run has 100 of each."""
WORLD = {"columns": 16384, "num_envs": 4}


def some(seconds: float) -> None:
    """Sleep for a random time before the kill."""
    threading.Event().wait(random.uniform(0.0, seconds))


def killed_clients(nursery: Nursery, times: int, shared_memory: bool = True) -> None:
    """Kill clients that listen with all policies, hold slots and have spawned sensors."""
    with serving(step=True, world=WORLD, lease=600.0 if shared_memory else 1.0, shared_memory=shared_memory) as server:
        with connect(server.address) as witness:
            seen: list[int] = []
            witness.sensors["sheet"].listen(lambda data: seen.append(data.frame))
            listen = {
                "sheet": {"policy": "lossless"}, "gauge": {"policy": "latest"}, "world": {"max_rate": 200.0},
            }  # fmt: skip
            before: dict[str, int] = {}
            for i in range(times):
                with nursery.start("client", address=server.address, listen=listen, spawn=True, hold=9) as client:
                    some(0.05)
                    at = len(seen)
                    client.kill()
                until(lambda: server.clients == 1 and server.counts.topics == 3, "the end of its session")
                until(lambda at=at: len(seen) > at + 5, "frames for the other client")
                until(lambda: server.counts.subscriptions == 1 and server.counts.slots_lent <= 2)
                if i == 1:
                    gc.collect()
                    before = held()
            gc.collect()
            for name in ("fds", "memfds", "threads"):
                until(lambda name=name: held()[name] <= before[name], f"as few {name} as before")  # type: ignore[misc]
            after = held()
            assert set(server.streams) == {"gauge", "sheet", "world"}
            assert after["rss"] - before["rss"] < 48 * 2**20
        assert not server.failures.take()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def killed_servers(nursery: Nursery, times: int, transport: str, folder: Any) -> None:
    """Kill servers during frames and requests; each time another server takes the address."""
    address = f"ipc://{folder}/socket" if transport == "ipc" else f"tcp://127.0.0.1:{free_port()}"

    def start() -> Child:
        return nursery.start("server", address=address, world=WORLD, hz=300.0)

    server = start()
    # Requests that are neither answered nor fail at once last longer than the test waits for them.
    with sn.connect(address, timeout=3.0 * PATIENCE, shared_memory=transport != "network") as client:
        frames: dict[str, list[tuple[int, int]]] = {"sheet": [], "gauge": [], "tick": []}
        broken: list[Any] = []
        generation = [0]

        def take(data: Any) -> None:
            if data.sensor == "sheet" and data["cells"][2, 7] != 2048.0 + data.tick + 7.0:
                broken.append(data)
            frames[data.sensor].append((generation[0], data.frame))

        client.sensors["sheet"].listen(take)
        client.sensors["gauge"].listen(take, policy="lossless")
        ticker = client.spawn("sensor.other.test_ticker", name="tick")
        ticker.listen(lambda data: frames["tick"].append((generation[0], data.frame)))
        before: dict[str, int] = {}
        answers: list[BaseException | int] = []

        def ask() -> None:
            try:
                answers.append(client.reset([1]))
            except StreamError as error:
                answers.append(error)

        until(lambda: all(frames.values()))
        for i in range(times):
            some(0.05)
            asking = threading.Thread(target=ask)
            asking.start()
            some(0.003)
            server.kill()
            server = start()
            at = {name: len(each) for name, each in frames.items()}
            try:
                until(lambda at=at: all(len(frames[name]) > at[name] + 3 for name in at), "data of the new server")
            except AssertionError as error:
                came = {name: len(frames[name]) - at[name] for name in at}
                raise AssertionError(f"kill {i}: {came}, {client!r}, {client.notes}, {server.ask('held')}") from error
            until(lambda: client.is_connected)
            asking.join(PATIENCE)  # it failed, or it began after the kill and waited for the new server
            assert not asking.is_alive()
            generation[0] += 1
            if i == 1:
                gc.collect()
                before = held()
        gc.collect()
        for name, more in (("fds", 1), ("threads", 0), ("mapped", 1)):
            until(lambda name=name, more=more: held()[name] <= before[name] + more, f"as few {name}")  # type: ignore[misc]
        after = held()
        assert after["rss"] - before["rss"] < 48 * 2**20
        assert not broken and not client.errors and len(answers) == times
        about = server.ask("held")
        assert about["sessions"] == 1 and about["subscriptions"] == 3 and about["topics"] == 4
    until(lambda: server.ask("held")["sessions"] == 0)
    server.stop()


def test_killed_clients_leave_nothing_and_others_continue(nursery: Nursery) -> None:
    """Clients are killed a few times, at random moments."""
    killed_clients(nursery, KILLS)


@pytest.mark.parametrize("transport", ["tcp", pytest.param("ipc", marks=pytest.mark.soak)])
def test_client_reconnects_after_the_server_was_killed(nursery: Nursery, tmp_path: Any, transport: str) -> None:
    """The client reconnects, after the start of the new server, with all that it had."""
    killed_servers(nursery, KILLS, transport, tmp_path)


@pytest.mark.soak
def test_kills_of_clients_and_servers_leave_nothing(nursery: Nursery, tmp_path: Any) -> None:
    """Each side is killed a hundred times: half of them with shared memory, half without."""
    killed_clients(nursery, 50)
    killed_clients(nursery, 50, shared_memory=False)
    killed_servers(nursery, 50, "tcp", tmp_path)
    killed_servers(nursery, 50, "network", tmp_path)


def test_client_suspended_beyond_the_lease_reconnects(nursery: Nursery) -> None:
    """The server forgets the client, and the others continue; once resumed, the client connects and listens again."""
    import signal

    with serving(step=True, world={"columns": 0}, lease=0.5) as server:
        listen = {"gauge": {"policy": "lossless"}}
        with nursery.start("client", address=server.address, listen=listen, spawn=True, hold=0) as client:
            until(lambda: server.clients == 1)
            os.kill(client.pid, signal.SIGSTOP)
            until(lambda: server.clients == 0 and set(server.streams) == {"gauge", "world"})
            os.kill(client.pid, signal.SIGCONT)
            until(lambda: server.clients == 1 and "test_ticker" in server.streams)
            before = client.ask("held")["received"]["gauge"]
            until(lambda: client.ask("held")["received"]["gauge"] > before + 20)
        until(lambda: server.clients == 0)
