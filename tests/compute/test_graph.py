"""Threads, graphs and time words: the work handed over by the main loop, and the data exchanged with devices."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import synthetic as syn
import torch
import warp as wp
from streaming import Nursery

import sensorium as sn
from sensorium.compute import AsyncCopy, Clock, Compute, Rows, graph, program
from sensorium.compute.graph import LaunchWorkers
from sensorium.spec import exact_fraction

wp.set_module_options({"enable_backward": False})


@wp.kernel
def _add_one(rows: Rows, values: wp.array2d[wp.float32]) -> None:
    i, k = wp.tid()
    values[rows.start + i, k] += 1.0


# Threads --------------------------------------------------------------------------------------------------------------


def test_workers_run_pieces_concurrently() -> None:
    """Every piece waits for all the others, so none can finish before all have started."""
    workers, meeting = LaunchWorkers(3), threading.Barrier(4, timeout=120.0)
    done: list[int] = []

    def piece(k: int) -> None:
        meeting.wait()
        done.append(k)

    for _ in range(3):
        workers.run([lambda k=k: piece(k) for k in range(4)])  # type: ignore[misc]
    assert sorted(done) == sorted([0, 1, 2, 3] * 3)


@pytest.mark.parametrize("where", [0, 1])
def test_error_in_a_piece_is_raised_in_the_submitting_thread(where: int) -> None:
    """The workers continue afterwards."""
    workers, done = LaunchWorkers(1), []

    def fail() -> None:
        raise ValueError("piece")

    pieces = [lambda: done.append(0), lambda: done.append(1)]
    with pytest.raises(ValueError, match="piece"):
        workers.run([fail if k == where else piece for k, piece in enumerate(pieces)])
    workers.run(pieces)
    assert sorted(done) == sorted([1 - where, 0, 1])


def test_threads_end_with_their_workers() -> None:
    before, workers = set(threading.enumerate()), LaunchWorkers(3)
    workers.run([int] * 4)
    threads = set(threading.enumerate()) - before
    assert threads and all(thread.is_alive() for thread in threads)
    del workers
    gc.collect()
    for thread in threads:
        thread.join(120.0)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(("owner", "where"), [(ThreadPoolExecutor, "submit"), (graph, "wait")])
@pytest.mark.parametrize("after", [False, True])
def test_workers_continue_after_an_interrupt_at_any_point(
    owner: Any, where: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal arrives while a piece is handed over or waited for, before or after the threads know of the piece."""
    workers, done = LaunchWorkers(2), []
    pieces = [lambda k=k: done.append(k) for k in range(3)]
    hand_over = getattr(owner, where)

    def interrupted(*args: Any) -> None:
        if after:
            hand_over(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, where, interrupted)
        workers.run(pieces)
    for _ in range(20):  # no work is pending that could still be done
        done.clear()
        workers.run(pieces)
        assert sorted(done) == [0, 1, 2]


FORKED = """
import os, signal, sys
from sensorium.compute.graph import LaunchWorkers
workers, done = LaunchWorkers(1), []
workers.run([int, int])
child = os.fork()
signal.alarm(100)
workers.run([lambda: done.append(0), lambda: done.append(1)])
assert sorted(done) == [0, 1]
if child:
    sys.exit(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes fork on Unix only")
def test_forked_process_has_its_own_workers(nursery: Nursery) -> None:
    """A fork does not copy threads: the child would wait forever for its parent's threads."""
    program = nursery.program(FORKED)
    assert program.wait() == 0, program.err


def test_a_capture_waits_for_launches_and_launches_for_it() -> None:
    """On the CPU a launch from another thread would be recorded in the capture instead of run."""
    events: list[str] = []
    capturing, launched = threading.Event(), threading.Event()

    def capture() -> None:
        with graph.launching.capturing_alone():
            events.append("capture")
            capturing.set()
            assert not launched.wait(0.1)
            events.append("captured")

    def launch() -> None:
        assert capturing.wait(120.0)
        with graph.launching:
            events.append("launch")
            launched.set()

    threads = [threading.Thread(target=each) for each in (capture, launch)]
    with graph.launching:
        for thread in threads:
            thread.start()
        assert not capturing.wait(0.1)
        events.append("others launched")
    for thread in threads:
        thread.join(120.0)
    assert events == ["others launched", "capture", "captured", "launch"]


@pytest.mark.parametrize("where", ["capture_begin", "capture_end"])
def test_an_interrupt_leaves_no_capture_open(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal arrives after Warp started the capture, or before the capture ends: later launches still run."""
    compute = Compute("cpu", 2, threads=1)
    compute.capture_after = 0
    values = torch.zeros(2, 3)
    segment = compute.record(lambda: compute.launch(_add_one, (3,), [], [wp.from_torch(values)]))
    for _ in range(program.TIMED_RUNS):
        segment.run()
    work, calls = getattr(wp, where), []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls.append(where)
        if where == "capture_begin" or len(calls) > 1:
            done = work(*args, **kwargs)
        if len(calls) > 1:
            return done
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(wp, where, interrupted)
        segment.run()
    assert not wp.get_device("cpu").is_capturing
    segment.run()
    assert segment.is_captured and bool((values == program.TIMED_RUNS + 1).all())


def test_capture_works_while_other_launches_are_blocked() -> None:
    """Two threads that build and capture their own work do not wait for each other."""
    meeting = threading.Barrier(2, timeout=120.0)
    done: list[int] = []

    def build() -> None:
        with graph.launching, graph.launching:
            meeting.wait()
            with graph.launching.capturing_alone():
                done.append(1)
        done.append(2)

    threads = [threading.Thread(target=build, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120.0)
    assert sorted(done) == [1, 1, 2, 2]


def test_two_threads_step_and_capture_independently() -> None:
    """Each counts its runs correctly, whatever the other captures in the meantime."""
    found: list[bool] = []

    def owner() -> None:
        for _ in range(20):
            compute = Compute("cpu", 2, threads=1)
            compute.capture_after = 0
            values = torch.zeros(2, 3)
            array = wp.from_torch(values)
            segment = compute.record(lambda c=compute, a=array: c.launch(_add_one, (3,), [], [a]))  # type: ignore[misc]
            for _ in range(30):
                segment.run()
            found.append(segment.is_captured and bool((values == 30.0).all()))

    threads = [threading.Thread(target=owner) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 60


@pytest.mark.parametrize("shards", [0, -1])
def test_fewer_than_one_shard_is_refused(shards: int) -> None:
    with pytest.raises(sn.ConfigError, match=f"Compute.*shards.*{shards}.*at least 1"):
        Compute("cpu", 2, shards=shards)


@pytest.mark.parametrize(("count", "envs", "made"), [(1, 8, 1), (2, 8, 2), (4, 8, 4), (4, 3, 3)])
def test_given_number_of_shards_is_used(count: int, envs: int, made: int) -> None:
    """There are at most as many parts as environments; each env is processed once, launched or captured."""
    compute = Compute("cpu", envs, shards=count)
    compute.capture_after = 0
    values = torch.zeros(envs, 3)
    segment = compute.record(lambda: compute.launch(_add_one, (3,), [], [wp.from_torch(values)]))
    for _ in range(9):
        segment.run()
    assert segment.shards == made and segment.is_captured and bool((values == 9.0).all())


# Transfers to and from a device without memory that the host shares ---------------------------------------------------


def test_time_is_sent_to_the_device_in_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, the host does not write into the words."""
    clock = Clock(Compute("cpu", 2), exact_fraction(0.01))
    launches: list[Any] = []
    launch = clock._command.launch
    monkeypatch.setattr(clock, "_host", None)
    monkeypatch.setattr(clock._command, "launch", lambda stream: (launches.append(stream), launch(stream)))
    clock.set(7, 2, 1)
    assert clock.words.tolist() == [7, 2, 1, -1] and len(launches) == 1
    clock.begin_control_step()
    clock.set(8, 0, 0)
    assert clock.words.tolist() == [8, 0, 0, 7] and clock.control_tick == 7 and len(launches) == 2
    clock.control_tick = 5
    clock.write()
    assert clock.words.tolist() == [8, 0, 0, 5]


def test_rings_advance_equally_on_device_and_host() -> None:
    """The sample's own work moves the head of a ring, in all envs, to the slot after the host's newest slot."""
    scene = syn.world([syn.ProbeCfg(name="p", rate_hz=50.0, delay=0.05, loss=0.2, noise=0.1, history_length=3)])
    ring = scene["p"].buffers.ring
    for tick in range(80):
        syn.advance(scene)
        if tick == 31:
            syn.reset(scene, [1])
        if tick == 50:
            scene.update(0)
        if tick == 60:
            scene.load_state(scene.state())
        assert set(ring.head.tolist()) == {(ring.position + 1) % ring.depth}


def test_bad_state_is_reported_once_its_flags_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU flags arrive some steps late; the warning names the tick to which they belong."""
    engine = sn.TensorEngine(3, 0.01, provides=("pose", "velocity", "acceleration", "gravity"))
    scene = sn.Scene(engine, [sn.ImuCfg(name="imu", body="body", rate_hz=100.0, evaluate="always")])
    looks: list[int] = []
    take = AsyncCopy.take

    def late(self: AsyncCopy) -> Any:
        if self._source is scene.clock.bad:
            return take(self)
        looks.append(scene.tick)
        return self._source.numpy().copy() if len(looks) > 3 else None

    monkeypatch.setattr(AsyncCopy, "take", late)
    engine.body_lin_acc_w[1] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scene.update()  # two checks: after the sample, and at the end
        assert looks == [1, 1]
    with pytest.warns(sn.NonFiniteStateWarning, match="env 1, body 'body', at tick 1;"):
        scene.update()
