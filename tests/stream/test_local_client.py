"""The client in the simulation's process: the same API as elsewhere, direct access to server memory, no deadlocks."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from selection import gate
from streaming import PATIENCE, Nursery, build, connect, held, running, serving, until

import sensorium as sn
from sensorium.pose import Pose

COLUMNS = 65536
"""Numbers of the large reading: 256 KiB for each environment."""
CART = """
<mujoco><option timestep="0.005"/><worldbody><body name="robot/cart"><joint name="slide" type="slide" axis="1 0 0"/>
<geom size=".1"/></body></worldbody><actuator><motor name="push" joint="slide"/></actuator></mujoco>
"""


def in_time(function: Callable[[], Any]) -> Any:
    """Run a function in a separate thread and return its result; raise an error if it does not finish."""
    out: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            out.append(function())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it waits for ever"
    if failed:
        raise failed[0]
    return out[0]


@contextlib.contextmanager
def connected(transport: str) -> Iterator[sn.Client]:
    if transport == "in-process":
        with build(columns=COLUMNS).local_client(timeout=PATIENCE) as client:
            yield client
        return
    with serving(lockstep=True, world={"columns": COLUMNS}) as server, connect(server.address) as client:
        yield client


def a_program(client: sn.Client) -> dict[str, Any]:
    """Use every feature of a client, and return the results."""
    arrived: dict[str, list[Any]] = {"gauge": [], "sheet": [], "events": [], "frames": []}
    client.sensors["gauge"].listen(
        lambda d: arrived["gauge"].append((d.frame, d["vec"].tobytes(), d.truth["vec"].tobytes())),
        policy="lossless", envs=slice(1, 3), truth=True,
    )  # fmt: skip
    client.sensors["sheet"].listen(
        lambda d: arrived["sheet"].append((d.frame, d["cells"].tobytes())), policy="lossless"
    )
    blueprint = client.blueprints.find("sensor.other.test_ticker")
    blueprint.set_attribute("burst", "3")
    ticker = client.spawn(blueprint, Pose((0.0, 0.0, 1.0)), "body", env=2)
    ticker.listen(lambda event: arrived["events"].append((event.frame, [*event], event.transform.pos, event.first_env)))
    walker = client.spawn("sensor.other.test_pedometer", attach_to="body")
    walker.listen(arrived["frames"].append)
    with sn.client.FrameSync(client, ["gauge"]) as sync:
        frames = [client.step(substeps=k) for k in (1, 2, 1)]
        synced = [sync.get(frame, timeout=PATIENCE)["gauge"].frame for frame in frames]
    client.reset([3])
    last = client.step()
    until(lambda: all(arrived[name] for name in ("gauge", "sheet", "frames")))
    until(lambda: arrived["gauge"][-1][0] == arrived["sheet"][-1][0] == arrived["frames"][-1] == last)
    until(lambda: [frame for frame, *_ in arrived["events"][-3:]] == [last] * 3)
    walker.destroy()
    client.destroy(ticker)
    with pytest.raises(sn.UnknownNameError, match="gage"):
        client.sensors["gage"]
    with pytest.raises(sn.ServerError, match="test_ticker"):
        client.destroy("test_ticker")
    about = (client.num_envs, client.dt, client.is_lockstep, client.bodies["body"], client.description.to_dict())
    return {**arrived, "about": about, "steps": frames, "synced": synced, "blueprints": client.blueprints.ids}


def test_local_program_has_the_results_of_the_network_one() -> None:
    """Listening with every option, spawning, destroying, stepping, resetting, frames and errors give equal results."""
    with connected("in-process") as client:
        local = a_program(client)
    with connected("network") as client:
        remote = a_program(client)
    assert local.keys() == remote.keys()
    for what in local:
        assert local[what] == remote[what], what


# Memory ---------------------------------------------------------------------------------------------------------------


def test_large_local_frame_is_the_servers_memory() -> None:
    """Two clients get the same read-only memory, which is unchanged for as long as they hold it."""
    scene = build(columns=COLUMNS)
    with (
        scene.local_client(timeout=PATIENCE) as client,
        scene.local_client(timeout=PATIENCE, server=client.server) as second,
    ):
        mine: list[Any] = []
        its: list[Any] = []
        client.sensors["sheet"].listen(mine.append, policy="lossless")
        second.sensors["sheet"].listen(its.append, policy="lossless")
        until(lambda: client.server.counts.subscriptions == 2)
        frames = [client.step() for _ in range(6)]
        until(lambda: mine and its and mine[-1].frame == its[-1].frame == frames[-1])
        assert [data.frame for data in mine[-6:]] == [data.frame for data in its[-6:]] == frames
        for a, b in zip(mine[-6:], its[-6:], strict=True):
            assert np.shares_memory(a["cells"], b["cells"])
            for view in (a["cells"], a.stamp):
                with pytest.raises((TypeError, ValueError), match="read-only"):
                    view[0] = 0
            with pytest.raises(ValueError, match="WRITEABLE"):
                a["cells"].flags.writeable = True
            assert a["cells"][2, 7] == 2 * 1024.0 + a.tick + 7.0, "a frame that is held was written over"
        assert not client.notes and not client.errors


def test_memory_of_released_frames_is_freed() -> None:
    """Of dozens of frames, four of which are held at a time, only a handful exist at any time."""
    with build(columns=COLUMNS).local_client(timeout=PATIENCE) as client:
        received: list[weakref.ref[Any]] = []
        most = 0
        kept: list[Any] = []

        def take(data: Any) -> None:
            nonlocal most
            kept.append(data["cells"][1])
            assert kept[-1].base.nbytes > kept[-1].nbytes  # a view of the message
            received.append(weakref.ref(kept[-1].base))
            del kept[:-4]
            received[:] = [reference for reference in received if reference() is not None]
            most = max(most, len(received))

        sheet = client.sensors["sheet"]
        sheet.listen(take, policy="lossless")
        for count in range(1, 51):
            client.step()
            until(lambda count=count: sheet.stats.received >= count)  # a slow listener would hold more frames
        assert 4 <= most <= 12


# Threads --------------------------------------------------------------------------------------------------------------


def test_loop_thread_can_send_any_request() -> None:
    """No request waits for a loop that is itself waiting."""
    engine = sn.MujocoEngine(CART, 2)
    scene = sn.Scene(engine, [sn.ImuCfg(name="imu", body="robot/cart", acc_noise=0.0)])

    def everything() -> list[int]:
        with scene.local_client(timeout=PATIENCE / 2) as client:
            events: list[Any] = []
            frames = []
            for k in range(5):
                ticker = client.spawn("sensor.other.test_ticker", attach_to="robot/cart")
                ticker.listen(events.append)
                extra = client.spawn("sensor.other.imu", attach_to="robot/cart")
                client.control([[k], [-k]])
                assert engine.ctrl.tolist() == [[k], [-k]]
                frames.append(client.step())
                assert engine.ctrl.tolist() == [[k], [-k]]
                frames.append(client.step([0.5 * k]))
                frames.append(client.reset())
                until(lambda: [event.frame for event in events[-3:]] == frames[-3:])
                client.destroy(extra)
                client.destroy(ticker)
            client.sensors["imu"].set("acc_noise", 0.5)
            assert client.sensors["imu"].read().frame == frames[-1]
            return frames

    frames = in_time(everything)
    assert frames == [*range(frames[0], frames[0] + 15)]


def test_other_threads_can_send_requests_while_the_owner_polls() -> None:
    """Four threads spawn, listen, destroy and step simultaneously; everything is executed on the owner's thread."""
    scene = build(columns=0)
    with sn.Server(scene, lockstep=True) as server, running(server) as loop:
        stepped_on: set[threading.Thread] = set()
        with scene.watch(lambda: stepped_on.add(threading.current_thread())):
            with scene.local_client(timeout=PATIENCE, server=server) as client:
                frames: list[int] = []

                def work() -> None:
                    for _ in range(3):
                        ticker = client.spawn("sensor.other.test_ticker", attach_to="body")
                        events: list[Any] = []
                        ticker.listen(events.append)
                        frames.append(client.step())
                        frames.append(client.step())
                        until(lambda events=events: len(events) >= 1)  # type: ignore[misc]
                        client.destroy(ticker)

                threads = [threading.Thread(target=work) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for _ in range(4):  # this thread created the client, but another runs the loop
                    frames.append(client.step())
                for thread in threads:
                    thread.join(PATIENCE)
                    assert not thread.is_alive()
        assert sorted(frames) == [*range(min(frames), min(frames) + 28)]
        assert stepped_on == {loop}
        assert not server.counts.sessions or server.counts.sessions <= 1


def test_thread_that_takes_over_the_loop_is_served() -> None:
    """After the thread that ran the loop has ended, the thread that created the client executes requests again."""
    scene = build(columns=0)
    with scene.local_client(timeout=PATIENCE) as client:
        first = client.step()
        with running(client.server):
            assert client.step() == first + 1
        assert client.step() == first + 2


def test_unserved_request_error_names_the_loop() -> None:
    """A request from another thread without polling raises an error with a message in time."""
    with build(columns=0).local_client(timeout=PATIENCE) as client:
        client.timeout = 0.2
        with pytest.raises(sn.StreamError, match=r"did not answer within 0\.2 s.* server\.poll\(\)"):
            in_time(lambda: client.control(None))
        client.timeout = PATIENCE
        assert client.step() > 0  # the request is executed now, and its answer is discarded


def test_listener_can_send_requests_while_the_owner_polls() -> None:
    """The listener spawns and destroys from its callback, on a worker thread."""
    with build(columns=0).local_client(timeout=PATIENCE) as client:
        made: list[str] = []

        def take(data: Any) -> None:
            sensor = client.spawn("sensor.other.test_ticker", attach_to="body")
            made.append(sensor.name)
            client.destroy(sensor)

        client.sensors["gauge"].listen(take)
        until(lambda: client.step() and len(made) >= 10)
        client.sensors["gauge"].stop()  # while a call waits for this very thread
        assert not client.errors
        assert client.server.streams.keys() == {"gauge", "world"}


# Several clients and shutdown -----------------------------------------------------------------------------------------


def test_two_local_clients_of_one_server_are_independent() -> None:
    """Each client has separate listeners and sensors; both may step; the client that started the server ends it."""
    scene = build(columns=0)
    with (
        scene.local_client(timeout=PATIENCE) as first,
        scene.local_client(timeout=PATIENCE, server=first.server) as second,
    ):
        arrived: dict[str, list[int]] = {"first": [], "second": []}
        first.sensors["gauge"].listen(lambda d: arrived["first"].append(d.frame), policy="lossless")
        second.sensors["gauge"].listen(lambda d: arrived["second"].append(d.frame), policy="lossless", every=2)
        mine = first.spawn("sensor.other.test_ticker", attach_to="body")
        with pytest.raises(sn.ServerError, match="only destroy sensors that it spawned"):
            second.destroy(mine.name)
        assert second.sensors[mine.name].kind == mine.kind
        frames = [client.step() for client in (first, second) * 5]
        assert frames == [*range(frames[0], frames[0] + 10)]
        until(lambda: arrived["first"][-1:] == frames[-1:] and len(arrived["second"]) >= 5)
        second.close()
        assert first.step() == frames[-1] + 1 and first.server.clients == 1


def test_two_local_clients_with_own_servers_share_one_scene() -> None:
    """Both clients hear of every step, whichever client takes it."""
    scene = build(columns=0)
    with scene.local_client(timeout=PATIENCE) as first, scene.local_client(timeout=PATIENCE) as second:
        arrived: list[list[int]] = [[], []]
        for k, client in enumerate((first, second)):
            client.sensors["gauge"].listen(lambda d, k=k: arrived[k].append(d.tick), policy="lossless")
        start = scene.tick
        first.step()
        second.step()
        scene.step()
        until(lambda: all(ticks[-1:] == [start + 3] for ticks in arrived))
        assert arrived[0][-3:] == arrived[1][-3:] == [start + 1, start + 2, start + 3]
        first.close()
        assert second.step() > 0


def test_local_client_leaves_a_shared_server_open() -> None:
    """Remote listeners continue when the local client is closed; the server's end closes it."""
    with sn.serve(build(), "tcp://127.0.0.1:0", lockstep=True) as server:
        with connect(server.address) as remote:
            local = server.scene.local_client(timeout=PATIENCE, server=server)
            ticks: list[int] = []
            remote.sensors["gauge"].listen(lambda d: ticks.append(d.tick), policy="lossless")
            until(lambda: server.poll(0.01) is not None and server.counts.subscriptions)
            local.step()
            local.close()
            server.scene.step()
            until(lambda: ticks[-1:] == [server.scene.tick])
            again = server.scene.local_client(timeout=PATIENCE, server=server)
            server.close()
            assert again.is_closed and local.is_closed
            with pytest.raises(sn.StreamError, match="closed"):
                again.step()


@pytest.mark.parametrize("order", gate(["client first", "server first", "both at once"], {"both at once"}))
def test_closing_in_any_order_leaves_nothing(order: str) -> None:
    """No thread, descriptor, memory or sensor is left, and the scene continues or can be collected."""

    def once() -> weakref.ref[Any]:
        scene = build(columns=COLUMNS)
        names = set(scene)
        client = scene.local_client(timeout=PATIENCE)
        client.sensors["sheet"].listen(lambda data: None)
        client.spawn("sensor.other.test_ticker", attach_to="body").listen(lambda data: None)
        client.spawn("sensor.other.test_pedometer", attach_to="body").listen(lambda data: None)
        client.spawn("sensor.other.imu", attach_to="body")
        for _ in range(3):
            client.step()
        server = client.server
        if order == "client first":
            client.close()
            server.close()
        elif order == "server first":
            server.close()
            client.close()
        else:
            threads = [threading.Thread(target=each.close) for each in (client, server, client, server)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
                assert not thread.is_alive()
            scene.update()  # other threads closed it: the scene releases its part at its next step
        assert client.is_closed and set(scene) == names
        assert scene["sheet"].buffers.listeners == 0
        scene.step()
        return weakref.ref(scene)

    once()  # created once per process and kept
    before = held()
    scenes = [once() for _ in range(2)]
    # A listener's thread that ends late still holds the last scene.
    until(lambda: gc.collect() >= 0 and [scene() for scene in scenes] == [None] * 2, "the end of all scenes")
    until(lambda: held()["threads"] <= before["threads"], "the end of all threads")
    after = held()
    assert {name: after[name] for name in ("fds", "memfds", "mapped")} == {
        name: before[name] for name in ("fds", "memfds", "mapped")
    }


def test_local_client_keeps_its_scene_alive() -> None:
    """A program that holds only the client can continue; after the client's end the scene is released."""
    client = build(columns=0).local_client(timeout=PATIENCE)
    scene = weakref.ref(client.server.scene)
    gc.collect()
    assert client.step() > 0
    client.close()
    del client
    gc.collect()
    assert scene() is None


def test_client_can_be_closed_by_its_own_listener() -> None:
    """Once the close has returned, everything has ended."""
    with build(columns=0).local_client(timeout=PATIENCE) as client:
        server = client.server
        done = threading.Event()

        def take(data: Any) -> None:
            client.close()
            done.set()

        client.sensors["gauge"].listen(take)
        with contextlib.suppress(sn.StreamError):  # the step may be cut short
            client.step()
        assert done.wait(PATIENCE)
        assert client.is_closed and server.clients == 0
        server.scene.step()


FORGETFUL = """
import sys, warnings
warnings.simplefilter("error")
from streaming import PATIENCE, build
client = build(columns=65536).local_client(timeout=PATIENCE)
client.sensors["sheet"].listen(lambda data: kept.append(data) if len(kept) < 5 else None)
kept = []
client.spawn("sensor.other.test_ticker", attach_to="body").listen(print if "print" in sys.argv else id)
for _ in range(10):
    client.step()
print("the end")
"""


def test_program_without_close_exits_cleanly(nursery: Nursery) -> None:
    """The program exits with active listeners, held data and spawned sensors."""
    run = nursery.program(FORGETFUL)
    assert run.wait() == 0 and run.out.endswith("the end\n")
    assert not run.err, run.err


SUSPENDED = """
import logging, os, signal, subprocess, time
from streaming import PATIENCE, build
import sensorium as sn
logging.basicConfig(level=logging.INFO)
with sn.serve(build(columns=0), "tcp://127.0.0.1:0", lockstep=True, lease=2.0) as server:
    client = server.scene.local_client(timeout=PATIENCE, server=server)
    ticker = client.spawn("sensor.other.test_ticker", attach_to="body")
    waker = subprocess.Popen(["sh", "-c", f"while sleep 3; do kill -CONT {os.getpid()} || exit; done"])
    os.kill(os.getpid(), signal.SIGSTOP)
    waker.kill()
    for _ in range(50):
        client.step()
        time.sleep(0.01)  # for the rounds of the server, in which it ends sessions
    print(server.clients, ticker.name in client.sensors)
"""


def test_a_program_that_was_suspended_keeps_its_clients(nursery: Nursery) -> None:
    """A debugger, a suspended computer or a busy machine stops a program for longer than the lease of its clients."""
    program = nursery.program(SUSPENDED)
    assert program.wait() == 0, program.err
    assert program.out == "1 True\n" and "has sent no message" not in program.err


UNCLOSED = """
import atexit, sys, threading
atexit.register(lambda: print(client.is_closed))  # after the functions of later imports
import sensorium as sn
client = sn.connect(sys.argv[1])
came = threading.Event()
client.sensors["gauge"].listen(lambda data: (came.set(), threading.Event().wait()))
assert came.wait(120.0)
"""


def test_client_is_closed_at_exit(nursery: Nursery) -> None:
    """The server has no client at the end, and a listener that never returns does not stop the exit."""
    with serving(step=True, world={"columns": 0}) as server:
        program = nursery.program(UNCLOSED, server.address, bare=True)
        until(lambda: server.counts.subscriptions, "the listener")
        assert program.wait() == 0, program.err
        assert program.out == "True\n"
        assert server.clients == 0
