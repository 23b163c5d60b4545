"""Lock-step between two processes: every frame once, in order, with the server's bits; a slow client is named."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streaming import PATIENCE, Child, Nursery, Peer, connect, serving, until

import sensorium as sn
from sensorium.wire import messages as msg

STEPS = 60
"""Many times the number of large messages under way."""


@pytest.fixture(scope="module")
def server(nursery: Nursery) -> Iterator[Child]:
    """A server in another process; its large reading uses shared memory."""
    world = {"num_envs": 4, "columns": 8192, "gauges": 2, "noise": 0.5}
    with nursery.start("server", address="tcp://127.0.0.1:0", world=world, lockstep=True, patience=PATIENCE) as child:
        child.ask("record")
        yield child


def recorded(server: Child, folder: Path) -> dict[int, dict[str, Any]]:
    """Return the readings of the server's sensors, by frame."""
    path = folder / "record.npz"
    server.ask("save", path=str(path))
    with np.load(path) as saved:
        values = {key: saved[key] for key in saved.files}
    frames = values.pop("frames")
    return {int(frame): {key: value[i] for key, value in values.items()} for i, frame in enumerate(frames)}


def bits(value: Any) -> bytes:
    return np.ascontiguousarray(value).tobytes()


def test_steps_deliver_every_frame_once_in_order_bit_identical(server: Child, tmp_path: Path) -> None:
    """Frames agree for small and large readings, all and some envs, all and each third, with and without truth."""
    got: dict[str, list[Any]] = {}
    with connect(server.address) as client:

        def listen(key: str, sensor: str, **options: Any) -> None:
            kept = got.setdefault(key, [])

            def take(data: Any) -> None:
                if sensor == "sheet":
                    column = data["cells"][:, 0]
                    kept.append((data.frame, bits(data["cells"] - column[:, None]), column.copy(), data.env_ids))
                else:
                    truth = bits(data.truth["vec"]) if options.get("truth") else b""
                    kept.append((data.frame, bits(data["vec"]), truth, data.env_ids))

            client.subscribe(sensor, take, policy="lossless", **options)

        listen("all", "gauge")
        listen("true", "gauge", truth=True)
        listen("some", "gauge", envs=slice(1, 3))
        listen("one", "gauge_2", envs=3)
        listen("third", "gauge", every=3)
        listen("sheet", "sheet")
        listen("corner", "sheet", envs=slice(2, 4), every=2)
        frames = [client.step() for _ in range(STEPS)]
        assert frames == [*range(frames[0], frames[0] + STEPS)]
        wanted = {key: STEPS for key in got} | {"third": STEPS // 3, "corner": STEPS // 2}
        until(lambda: all(sum(frame >= frames[0] for frame, *_ in got[key]) >= count for key, count in wanted.items()))
    truth = recorded(server, tmp_path)
    for key, rows, stride in [("all", slice(None), 1), ("true", slice(None), 1), ("some", slice(1, 3), 1),
                              ("one", slice(3, 4), 1), ("third", slice(None), 3)]:  # fmt: skip
        name = "gauge_2" if key == "one" else "gauge"
        numbers = [frame for frame, *_ in got[key] if frame >= frames[0]]
        assert len(numbers) in (STEPS // stride, STEPS // stride + 1)
        assert np.diff(numbers).tolist() == [stride] * (len(numbers) - 1), key
        for frame, value, true, env_ids in got[key]:
            if frame < frames[0]:
                continue  # the reading before the first step
            assert value == bits(truth[frame][name][rows]), (key, frame)
            assert list(env_ids) == list(range(4)[rows])
            if key == "true":
                assert true == bits(truth[frame]["gauge/truth"]) != value
    columns = np.arange(8192, dtype=np.float32)
    for key, rows in [("sheet", slice(None)), ("corner", slice(2, 4))]:
        stride = 1 if key == "sheet" else 2
        numbers = [frame for frame, *_ in got[key] if frame >= frames[0]]
        assert np.diff(numbers).tolist() == [stride] * (STEPS // stride - 1)
        for frame, flat, column, _ in got[key]:
            if frame < frames[0]:
                continue
            assert bits(column) == bits(truth[frame]["gauge/truth"][rows, 0])
            assert flat == bits(np.broadcast_to(columns, (len(column), 8192)))


def test_a_frame_sync_has_the_data_of_every_frame_together(server: Child, tmp_path: Path) -> None:
    """Each frame's bundle is available right after its step, with the bits of that frame."""
    with connect(server.address) as client, sn.client.FrameSync(client, ["gauge", "sheet"]) as sync:
        seen: list[tuple[int, bytes, float]] = []
        for _ in range(STEPS):
            frame = client.step()
            bundle = sync.get(frame, timeout=PATIENCE)
            gauge, sheet = bundle["gauge"], bundle["sheet"]
            assert gauge is not None and sheet is not None and gauge.frame == sheet.frame == frame
            seen.append((frame, bits(gauge["vec"]), float(sheet["cells"][1, 5])))
        assert sync.dropped <= 1 and sync.late == 0  # the reading before the first step was not requested
    truth = recorded(server, tmp_path)
    for frame, vec, cell in seen:
        assert vec == bits(truth[frame]["gauge"])
        assert cell == truth[frame]["gauge/truth"][1, 0] + 5.0


def test_the_step_waits_for_a_slow_lossless_listener(server: Child) -> None:
    """The listener takes as much as it can hold, then a step waits; nothing is lost when the listener resumes."""
    with connect(server.address) as client, connect(server.address) as stepper:
        gate, got = threading.Event(), []

        def take(data: Any) -> None:
            gate.wait(PATIENCE)
            got.append(data.frame)

        stepper.step()
        client.sensors["sheet"].listen(take, policy="lossless", queue=3)
        frames: list[int] = []

        def steps() -> None:
            for _ in range(20):
                frames.append(stepper.step())

        thread = threading.Thread(target=steps)
        thread.start()
        until(lambda: len(frames) >= 6, "as many steps as it has room for: four under way, three in the queue")
        assert not threading.Event().wait(0.3) and len(frames) in (6, 7) and not got  # it may have been greeted
        gate.set()
        thread.join(PATIENCE)
        until(lambda: got and got[-1] == frames[-1])
        assert got[-20:] == frames


def test_listener_that_never_reads_is_named_and_ended_without_blocking_others() -> None:
    """After `patience` the step continues; both clients get a message, and the others had every frame."""
    with serving(lockstep=True, patience=0.3, world={"columns": 8192}) as server:
        with connect(server.address, name="the slow one") as slow, connect(server.address) as quick:
            gate, frames = threading.Event(), []
            slow.sensors["sheet"].listen(lambda data: gate.wait(PATIENCE), policy="lossless", queue=2)
            quick.sensors["sheet"].listen(lambda data: frames.append(data.frame), policy="lossless")
            with pytest.warns(sn.SensoriumWarning, match=r"waited 0\.3 s for client 'the slow one' .* 'sheet'"):
                steps = [quick.step() for _ in range(20)]
            until(lambda: frames and frames[-1] == steps[-1])
            assert frames[-20:] == steps
            until(lambda: not slow.sensors["sheet"].is_listening)
            with pytest.warns(sn.SensoriumWarning, match="listening to 'sheet' ended: too slow"):
                gate.set()
                until(lambda: "waited 0.3 s" in slow.sensors["sheet"].why_ended)
                until(lambda: slow.notes)
            assert server.counts.subscriptions == 1


@pytest.mark.parametrize("last", [msg.Unsubscribe(1), msg.Bye()])
def test_client_stop_releases_a_waiting_step(last: msg.ToServer) -> None:
    """A client that returns no credits unsubscribes or says goodbye. The step, which would wait for it, continues."""
    with serving(lockstep=True, patience=PATIENCE, world={"columns": 8192}) as server:
        with Peer(server.address) as slow, connect(server.address) as quick:
            slow.answer(msg.Welcome)
            slow.send(msg.Subscribe(1, quick.streams["sheet"].id, True, 1, 0.0, 0, 0, False, 1, 1))
            until(lambda: server.counts.subscriptions == 1)
            steps: list[int] = []

            def run() -> None:
                for _ in range(12):
                    steps.append(quick.step())

            thread = threading.Thread(target=run)
            thread.start()
            until(lambda: server.frame >= 2)  # one message is in transit and one is queued: this frame waits
            slow.send(last)
            thread.join(PATIENCE / 2)
            assert len(steps) == 12


def test_frames_of_resets_and_substeps_are_counted_equally(server: Child) -> None:
    """A reset is a single frame; a step of many ticks makes as many frames as there are sampled ticks."""
    with connect(server.address) as client:
        frames: list[int] = []
        client.sensors["gauge"].listen(lambda data: frames.append(data.frame), policy="lossless")
        first = client.step()
        reset = client.reset([1])
        last = client.step(substeps=5)
        until(lambda: frames and frames[-1] == last)
        assert frames[frames.index(first) :] == [*range(first, last + 1)] and reset == first + 1 and last == reset + 5
