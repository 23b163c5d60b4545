"""Data that a listener keeps stay unchanged, over all transports, and cost only that listener."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streaming import PATIENCE, build, connect, serving, until

import sensorium as sn
from sensorium.stream.subscription_table import SLOTS_PER_CLIENT

LATER = 140
"""More than twice the slots of a segment."""
TRANSPORTS = ("shared memory", "ipc", "socket", "in-process")


@contextlib.contextmanager
def linked(transport: str, tmp_path: Path) -> Iterator[tuple[sn.Server, sn.Client]]:
    """Return a lock-step server and its client."""
    if transport == "in-process":
        with build(columns=8192).local_client(timeout=PATIENCE) as client:
            yield client.server, client
        return
    address = f"ipc://{tmp_path}/socket" if transport == "ipc" else "tcp://127.0.0.1:0"
    with serving(address, lockstep=True, world={"columns": 8192}) as server:
        with connect(server.address, shared_memory=transport != "socket") as client:
            yield server, client


def bytes_of(kept: Any) -> bytes:
    """Return the bytes of a kept array, or of the first field of kept data."""
    return (kept if isinstance(kept, np.ndarray) else next(iter(kept.measured.values()))).tobytes()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_kept_view_is_unchanged_after_many_later_frames(transport: str, tmp_path: Path) -> None:
    """Small and large views, arrays and data objects stay unchanged; writing to them is refused."""
    with linked(transport, tmp_path) as (_server, client):
        kept: list[tuple[Any, bytes]] = []
        counts = {"gauge": 0, "sheet": 0}

        def keep(data: Any) -> None:
            if data.frame == 0:
                return  # the reading before the first step
            counts[data.sensor] += 1
            field = data["vec" if data.sensor == "gauge" else "cells"]
            if counts[data.sensor] == 3:
                for view in (field, field[1:3, 1:3], data.transforms if data.transforms is not None else field[::2]):
                    kept.append((view, view.tobytes()))
                kept.append((data, bytes_of(data)))

        for name in counts:
            client.sensors[name].listen(keep, policy="lossless")
        for _ in range(3 + LATER):
            client.step()
        until(lambda: all(count == 3 + LATER for count in counts.values()))
        assert len(kept) == 8
        for view, before in kept:
            assert bytes_of(view) == before
            if isinstance(view, np.ndarray):
                assert not view.flags.writeable
                with pytest.raises(ValueError, match=r"read-only|WRITEABLE|writeable"):
                    view[...] = 0
        for name in counts:
            client.sensors[name].stop()
    for view, before in kept:  # the connection is closed, and in-process the server too
        assert bytes_of(view) == before
    assert not client.errors


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_copy_owns_its_memory_and_released_data_return_their_slot(transport: str, tmp_path: Path) -> None:
    """The received object is freed with its last view; the copy remains."""
    with linked(transport, tmp_path) as (server, client):
        box: list[Any] = []
        client.step()
        subscription = client.subscribe("sheet", box.append, policy="lossless")
        client.step()
        until(lambda: box and box[-1].frame == 2)
        subscription.stop()
        del box[:-1]
        data = box.pop()
        copy, view = data.copy(), data["cells"][2, 10:20]
        gone = weakref.ref(data)
        assert copy["cells"].tobytes() == data["cells"].tobytes()
        assert not np.shares_memory(copy["cells"], data["cells"])
        del data
        gc.collect()
        assert gone() is None
        if transport in ("shared memory", "ipc", "in-process"):
            until(lambda: server.counts.slots_lent <= 1)
        assert view.tolist() == copy["cells"][2, 10:20].tolist()
        del view
        until(lambda: server.counts.slots_lent == 0)


def test_client_holding_all_slots_gets_copies_and_others_are_not_slowed() -> None:
    """All kept data are correct; the other client had every frame through shared memory. No client gets a warning."""
    with serving(lockstep=True, world={"columns": 8192}) as server:
        with connect(server.address, name="hoarder") as hoarder, connect(server.address) as other:
            kept: list[Any] = []
            sums: list[tuple[int, float]] = []
            hoarder.sensors["sheet"].listen(kept.append, policy="lossless")
            other.sensors["sheet"].listen(
                lambda data: sums.append((data.frame, float(data["cells"][1, 0]))), policy="lossless"
            )
            frames = [other.step() for _ in range(50)]
            until(lambda: kept and sums and kept[-1].frame == sums[-1][0] == frames[-1])
            until(lambda: server.counts.slots_lent == SLOTS_PER_CLIENT)
            assert [data.frame for data in kept][-50:] == [frame for frame, _ in sums][-50:] == frames
            for data, (_, total) in zip(kept[-50:], sums[-50:], strict=True):
                assert data["cells"][1, 0] == 1024.0 + data.tick == total
                assert data["cells"][3, 8191] == 3 * 1024.0 + data.tick + 8191.0
            assert not other.notes and not hoarder.notes
            del data
            kept.clear()
            until(lambda: server.counts.slots_lent == 0)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_clients_receive_the_same_data(transport: str, tmp_path: Path) -> None:
    """Their data agree bit for bit, also where a client takes a part of the environments."""
    with linked(transport, tmp_path) as (server, client):
        second = (
            server.scene.local_client(timeout=PATIENCE, server=server)
            if transport == "in-process"
            else connect(server.address)
        )
        with second:
            mine: dict[int, bytes] = {}
            whole: dict[int, bytes] = {}
            part: dict[int, bytes] = {}
            client.sensors["sheet"].listen(lambda d: mine.update({d.frame: d["cells"].tobytes()}), policy="lossless")
            second.sensors["sheet"].listen(lambda d: whole.update({d.frame: d["cells"].tobytes()}), policy="lossless")
            second.subscribe(
                "sheet", lambda d: part.update({d.frame: d["cells"].tobytes()}), policy="lossless", envs=slice(1, 3)
            )
            frames = [client.step() for _ in range(12)]
            until(lambda: all(each and max(each) == frames[-1] for each in (mine, whole, part)))
            assert [*mine][-12:] == [*whole][-12:] == [*part][-12:] == frames
            assert all(mine[frame] == whole[frame] for frame in frames)
            row = len(mine[frames[0]]) // 4
            assert all(part[frame] == mine[frame][row : 3 * row] for frame in frames)


def test_slots_released_in_any_thread_and_order_are_returned_once() -> None:
    """Four threads keep and drop views at random while frames continue; at the end all slots are free."""
    with serving(step=True, world={"columns": 8192}) as server, connect(server.address) as client:
        lock = threading.Lock()
        kept: list[Any] = []
        wrong: list[Any] = []

        def work(seed: int) -> None:
            random = np.random.default_rng(seed)
            subscription = client.subscribe("sheet", take, policy="latest")
            for _ in range(40):
                until(lambda: kept)
                with lock:
                    mine = kept.pop(int(random.integers(len(kept)))) if kept else None
                if mine is not None and mine[0][1, 0] != 1024.0 + mine[1]:
                    wrong.append(mine)
                del mine
            subscription.stop()

        def take(data: Any) -> None:
            with lock:
                if len(kept) < 5:
                    kept.append((data["cells"][:, ::7], data.tick))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kept.clear()
        assert not wrong
        until(lambda: server.counts.subscriptions == 0, "the end of the subscriptions")
        until(lambda: server.counts.slots_lent == 0, "the slots")
        until(lambda: client.is_connected)


@pytest.mark.parametrize("transport", ["shared memory", "ipc", "socket"])
@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.soak)])
def test_readings_appended_to_a_list_stay_unchanged_and_delay_nobody(
    transport: str, count: int, tmp_path: Path
) -> None:
    """The list keeps every message of 32 kB; another listener gets each of them as well."""
    address = f"ipc://{tmp_path}/socket" if transport == "ipc" else "tcp://127.0.0.1:0"
    with serving(address, lockstep=True, world={"num_envs": 1, "columns": 8192}) as server:
        options = {"shared_memory": transport != "socket"}
        with connect(server.address, **options) as client, connect(server.address, **options) as other:
            kept: list[Any] = []
            frames: list[int] = []
            client.sensors["sheet"].listen(kept.append, policy="lossless")
            other.sensors["sheet"].listen(lambda data: frames.append(data.frame), policy="lossless")
            stepped = [client.step() for _ in range(count)]
            until(lambda: kept and frames and kept[-1].frame == frames[-1] == stepped[-1])
            assert [data.frame for data in kept][-count:] == frames[-count:] == stepped
            cells = np.array([data["cells"][0, [0, -1]] for data in kept])
            assert (cells == np.array([data.tick for data in kept])[:, None] + [0.0, 8191.0]).all()
            assert not client.notes and not other.notes
