"""Client requests to the owner of the loop: steps, controls, resets, knobs; errors arrive with the server's message."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from streaming import DT, PATIENCE, Peer, Relay, build, connect, running, serving, until

import sensorium as sn
from sensorium.errors import StreamError
from sensorium.wire import messages as msg


@pytest.fixture
def server() -> Iterator[sn.Server]:
    """A lock-step server whose loop runs in another thread."""
    with serving(lockstep=True, world={"columns": 0, "noise": 0.5}) as made:
        yield made


@pytest.fixture
def client(server: sn.Server) -> Iterator[sn.Client]:
    """A client of the server."""
    with connect(server.address) as made:
        yield made


@pytest.fixture
def peer(server: sn.Server) -> Iterator[Peer]:
    """A client that checks no request."""
    with Peer(server.address) as made:
        yield made


def test_each_step_of_several_clients_runs_once(server: sn.Server, client: sn.Client) -> None:
    """Three threads of two clients step at the same time: frames are distinct, and the tick is their sum."""
    with connect(server.address) as second:
        frames: list[int] = []

        def work(of: sn.Client) -> None:
            frames.extend(of.step(substeps=2) for _ in range(50))

        threads = [threading.Thread(target=work, args=(of,)) for of in (client, second, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert len(set(frames)) == 150 and server.scene.tick == 300


def test_a_client_sets_the_pace_of_a_loop_that_the_server_runs() -> None:
    """Pause, single steps and speed act between two steps. A pause ends with its client. Other loops have no pace."""
    scene, stop = build(columns=0), threading.Event()
    with sn.serve(scene, "tcp://127.0.0.1:0") as server, connect(server.address) as client:
        loop = threading.Thread(target=server.run, kwargs={"substeps": 2, "speed": 0.0, "until": stop.is_set})
        loop.start()
        try:
            assert client.pace() == {"paused": False, "speed": 0.0}
            assert client.pace(paused=True) == {"paused": True, "speed": 0.0}
            tick = scene.tick
            client.pace(steps=3)
            until(lambda: scene.tick == tick + 6)
            assert [client.pace() for _ in range(3)] == [{"paused": True, "speed": 0.0}] * 3  # between two steps
            assert scene.tick == tick + 6
            assert client.pace(speed=0.5, paused=False) == {"paused": False, "speed": 0.5}
            begin, tick = time.monotonic(), scene.tick
            until(lambda: scene.tick >= tick + 8)
            assert time.monotonic() - begin > 4 * DT  # 8 ticks at half the speed; not all of a delay is caught up
            for wrong, says in (
                ({"speed": -1.0}, "pace.speed"),
                ({"steps": 0}, "pace.steps"),
                ({"paused": 1}, "paused"),
            ):
                with pytest.raises(sn.ServerError, match=says):
                    client.pace(**wrong)
            with connect(server.address) as other:
                assert other.pace(paused=True, speed=0.0)["paused"] and client.pace()["paused"]
            tick = scene.tick
            until(lambda: scene.tick > tick and not client.pace()["paused"])
        finally:
            stop.set()
            loop.join(PATIENCE)
    with serving(world={"columns": 0}) as server, connect(server.address) as client:
        assert client.pace() is None
        with pytest.raises(sn.StreamError, match="its program takes the steps"):
            client.pace(paused=True)


def test_reset_sends_a_frame_to_listeners(server: sn.Server, client: sn.Client, peer: Peer) -> None:
    """All or some environments are reset; invalid ids are refused without effect, and an empty list has no effect."""
    got: list[int] = []
    client.sensors["gauge"].listen(lambda data: got.append(data.frame), policy="lossless")
    client.step()
    frame = client.reset()
    assert client.reset([0, 2]) == frame + 1
    until(lambda: got and got[-1] == frame + 1)
    for wrong in ([4], [-1], [1, 1]):
        with pytest.raises(sn.ConfigError, match=r"reset\.env_ids"):
            client.reset(wrong)
        peer.send(msg.Reset(1, tuple(wrong)))
        assert re.search(r"reset\.env_ids.*each once", peer.answer(msg.Reply).error)
    assert client.reset([]) == frame + 1
    assert server.frame == frame + 1


def test_a_knob_is_set_for_some_environments(server: sn.Server, client: sn.Client, peer: Peer) -> None:
    """The knob is effective from the next step on; an unknown knob and an unknown sensor give an error message."""
    client.sensors["gauge"].set("vec_noise", 0.0, env_ids=[1, 2])
    client.step()
    truth, shown = server.scene["gauge"].ground_truth.vec, server.scene["gauge"].data.vec
    assert (shown == truth).all(-1).tolist() == [False, True, True, False]
    with pytest.raises(StreamError, match="no_such_knob"):
        client.sensors["gauge"].set("no_such_knob", 1.0)
    peer.send(msg.Set(1, "nobody", "vec_noise", 1.0, None), msg.Set(2, "gauge", "vec_noise", 1.0, (7,)))
    assert "nobody" in peer.answer(msg.Reply).error
    assert re.search(r"set\('vec_noise'\)\.env_ids.*0 to 3", peer.answer(msg.Reply).error)
    assert client.step() == 2


def test_controls_of_wrong_shape_or_non_finite_are_refused(server: sn.Server, client: sn.Client, peer: Peer) -> None:
    """This engine has no controls to set; the simulation has not moved."""
    with pytest.raises(StreamError, match="NaN or infinity"):
        client.step([float("nan")])
    with pytest.raises(StreamError):
        client.control([1.0, 2.0])
    peer.send(msg.Step(1, 0, (), b""))
    assert "step.substeps" in peer.answer(msg.Reply).error
    with pytest.raises(sn.ConfigError, match="ctrl"):
        client.step(torch.zeros(2, 2, 2))
    assert server.scene.tick == 0 and client.step() == 1


def test_simulation_error_is_sent_to_the_client_and_the_server_continues(server: sn.Server, client: sn.Client) -> None:
    """The exception's message and class reach the client; the next step works."""

    def fail() -> None:
        raise OSError("the arm is on fire")

    watch = server.scene.watch(fail)
    with pytest.raises(StreamError, match="OSError: the arm is on fire") as caught:
        client.step()
    assert caught.value.kind == "OSError"  # type: ignore[attr-defined]
    watch.close()
    assert client.step() == 2
    until(lambda: client.is_connected)


def test_free_running_simulation_cannot_be_stepped() -> None:
    """The error states how to enable stepping."""
    with serving(step=True, world={"columns": 0}) as server, connect(server.address) as client:
        with pytest.raises(StreamError, match="lockstep=True"):
            client.step()


def test_request_during_a_blocked_loop_is_reported_and_done_later() -> None:
    """The request times out with a message; when the loop polls again, the late answer has no effect."""
    with sn.serve(build(columns=0), "tcp://127.0.0.1:0", lockstep=True) as server:
        with connect(server.address) as client:
            with pytest.raises(StreamError, match=r"reset: .* did not answer within 0\.2 s.*server\.poll"):
                client.timeout = 0.2
                client.reset()
            with running(server):
                client.timeout = PATIENCE
                assert client.step() == 2  # the reset was the first frame


def test_too_many_pending_requests_disconnect_only_that_client() -> None:
    """A client that floods an unpolled loop gets the reason; another client stays connected."""
    with sn.serve(build(columns=0), "tcp://127.0.0.1:0", lockstep=True) as server:
        with Peer(server.address) as flooder, connect(server.address) as other:
            for i in range(400):
                flooder.send(msg.Reset(i, None))
            assert "256 requests" in flooder.answer(msg.Refused).reason
            until(lambda: server.clients == 1)
            until(lambda: other.is_connected)
            server.poll()
            assert server.frame == 0  # no caller waits for these requests


def test_pending_requests_fail_with_a_reason_when_the_server_ends() -> None:
    """Requests fail at once, not at the time-out."""
    server = sn.serve(build(columns=0), "tcp://127.0.0.1:0", lockstep=True)
    with Relay(server.address) as relay, connect(relay.address) as client:
        failed: list[BaseException] = []

        def ask() -> None:
            try:
                client.reset()
            except StreamError as error:
                failed.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        until(lambda: any(isinstance(each, msg.Reset) for each in relay.asked))
        server.close("the lights went out")
        thread.join(PATIENCE / 2)
        assert failed and "the lights went out" in str(failed[0])
        client.timeout = 0.2
        with pytest.raises(StreamError, match=r"lights went out|no server answered"):
            client.step()


def test_requests_from_a_listener_are_answered(server: sn.Server, client: sn.Client) -> None:
    """A listener may step, spawn and destroy."""
    done: list[Any] = []

    def take(data: Any) -> None:
        if len(done) < 5:
            done.append(client.step())

    client.sensors["gauge"].listen(take, policy="lossless")
    until(lambda: len(done) == 5)
    assert done == [1, 2, 3, 4, 5]


def test_local_client_steps_in_its_thread_and_serves_others() -> None:
    """Both clients step the same scene; requests of other threads are executed while this thread waits."""
    with build(columns=0).local_client(timeout=PATIENCE) as local:
        got: list[int] = []
        local.sensors["gauge"].listen(lambda data: got.append(data.frame), policy="lossless")
        frames: list[int] = []
        thread = threading.Thread(target=lambda: frames.extend(local.step() for _ in range(20)))
        thread.start()
        mine = [local.step() for _ in range(20)]
        until(lambda: (local.server.poll(), not thread.is_alive())[1])
        thread.join()
        until(lambda: got and got[-1] == 40)
        assert sorted(mine + frames) == list(range(1, 41)) == got[-40:]
