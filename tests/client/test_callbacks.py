"""Queues of listeners: order, no overlap, clearing, ending, and exceptions raised by listeners."""

from __future__ import annotations

import gc
import logging
import random
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest
from nursery import PATIENCE, until

from sensorium.client.callbacks import LOGGER, CallbackQueue, Callbacks
from sensorium.wire.failures import Failures

Queue = CallbackQueue[Callable[[], object]]
"""A queue of functions, each of which is called."""


@pytest.fixture
def shared() -> Iterator[Callbacks]:
    made = Callbacks()
    opened.clear()
    yield made
    for queue in opened:
        queue.close()
    for queue in opened:
        queue.join(PATIENCE)
    assert threads() == []


opened: list[Queue] = []


def queue_of(shared: Callbacks, name: str = "a") -> Queue:
    queue: Queue = CallbackQueue(name, lambda call: call(), shared)
    opened.append(queue)
    return queue


def drained(queue: Queue) -> bool:
    """Wait until all queued items have been handled."""
    done = threading.Event()
    assert queue.put([done.set])
    return done.wait(PATIENCE) and queue.wait(PATIENCE)


@pytest.fixture(autouse=True)
def no_noise(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "sensorium.client")


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("sensorium-listener")]


class Gate:
    """A call that signals its start and ends when released."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.ended = False

    def __call__(self) -> None:
        self.begun.set()
        assert self.may_end.wait(PATIENCE)
        self.ended = True


def hold(queue: Queue) -> Gate:
    gate = Gate()
    assert queue.put([gate])
    assert gate.begun.wait(PATIENCE)
    return gate


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def waits(thread: threading.Thread) -> bool:
    """Return whether a thread is still running although it had time to end."""
    thread.join(0.05)
    return thread.is_alive()


# Order ----------------------------------------------------------------------------------------------------------------


def test_items_of_one_queue_are_handled_in_order_and_one_at_a_time(shared: Callbacks) -> None:
    seen, inside = list[int](), list[int]()
    done = threading.Event()

    def call(i: int) -> None:
        inside.append(i)
        assert inside == [i]
        seen.append(i)
        inside.clear()
        if i == 4_999:
            done.set()

    queue = CallbackQueue("a", call, shared)
    for i in range(5_000):
        assert queue.put([i])
    assert done.wait(PATIENCE)
    queue.close()
    queue.join(PATIENCE)
    assert seen == list(range(5_000)) and shared.errors.count == 0


def test_items_of_different_queues_are_handled_concurrently(shared: Callbacks) -> None:
    meeting = threading.Barrier(8)
    queues = [queue_of(shared, f"s{i}") for i in range(8)]
    for queue in queues:
        queue.put([lambda: meeting.wait(PATIENCE)])  # breaks, and raises, unless all are inside
    assert all(drained(queue) for queue in queues)
    assert shared.errors.count == 0


def test_queue_starts_one_daemon_thread_with_its_first_item(shared: Callbacks) -> None:
    queue = queue_of(shared)
    assert threads() == []
    for _ in range(50):
        assert drained(queue)
    (thread,) = threads()
    assert thread.daemon


def test_blocking_listener_does_not_block_others(shared: Callbacks) -> None:
    blocked, free, seen = queue_of(shared, "blocked"), queue_of(shared, "free"), list[int]()
    gate = hold(blocked)
    for i in range(1000):
        free.put([lambda i=i: seen.append(i)])
    assert drained(free)
    assert seen == list(range(1000)) and not gate.ended
    gate.may_end.set()


def test_call_can_put_items_into_its_own_queue(shared: Callbacks) -> None:
    queue, seen, done = queue_of(shared), list[int](), threading.Event()

    def count(left: int) -> None:
        seen.append(left)
        if left:
            queue.put([lambda: count(left - 1)])
        else:
            done.set()

    queue.put([lambda: count(500)])
    assert done.wait(PATIENCE)
    assert seen == list(range(500, -1, -1))


# Clearing and closing -------------------------------------------------------------------------------------------------


def test_clear_drops_queued_items_and_wait_waits_for_the_running_call(shared: Callbacks) -> None:
    queue, called = queue_of(shared), list[int]()
    gate = hold(queue)
    for i in range(10):
        queue.put([lambda i=i: called.append(i)])
    queue.clear()
    waiting = in_thread(queue.wait)
    assert waits(waiting) and not queue.items
    gate.may_end.set()
    waiting.join(PATIENCE)
    assert not waiting.is_alive() and gate.ended
    queue.put([lambda: called.append(-1)])
    assert drained(queue) and called == [-1]


def test_wait_with_timeout_reports_a_running_call(shared: Callbacks) -> None:
    queue = queue_of(shared)
    gate = hold(queue)
    assert queue.wait(timeout=0.01) is False
    gate.may_end.set()
    assert queue.wait(timeout=PATIENCE) is True


def test_wait_ends_after_the_running_call_despite_later_ones(shared: Callbacks) -> None:
    queue, called = queue_of(shared), list[int]()
    gate, last = hold(queue), Gate()
    queue.put([lambda: called.append(1), last])
    waiting = in_thread(queue.wait)
    assert waits(waiting)
    gate.may_end.set()
    waiting.join(PATIENCE)
    assert not waiting.is_alive() and not last.ended
    last.may_end.set()
    assert drained(queue) and called == [1] and queue.wait()


def test_blocking_listener_is_abandoned_after_the_timeout(shared: Callbacks, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sensorium.client")
    shared.patience = 0.1
    queue = queue_of(shared, "front lidar")
    gate = hold(queue)
    assert queue.wait() is False
    assert "'front lidar' was abandoned" in caplog.text and "0.1 s" in caplog.text
    gate.may_end.set()


def test_wait_inside_its_own_call_returns_immediately(shared: Callbacks) -> None:
    queue, seen = queue_of(shared), list[object]()
    queue.put([lambda: seen.append(queue.wait())])
    assert drained(queue) and seen == [False]


def test_calls_that_wait_for_each_other_do_not_deadlock(shared: Callbacks) -> None:
    queues, meeting = [queue_of(shared, f"s{i}") for i in range(3)], threading.Barrier(3)
    ended = list[bool]()

    def call(other: Queue) -> None:
        meeting.wait(PATIENCE)
        ended.append(other.wait(PATIENCE))

    for queue, other in zip(queues, [*queues[1:], queues[0]], strict=True):
        queue.put([lambda other=other: call(other)])
    assert all(drained(queue) for queue in queues)
    assert len(ended) == 3
    assert shared.errors.count == 0


def test_closed_queue_drops_its_items_refuses_new_ones_and_ends_its_thread(shared: Callbacks) -> None:
    queue, called = queue_of(shared), list[int]()
    gate = hold(queue)
    queue.put([lambda: called.append(1)])
    assert queue.close() and queue.closed and not queue.close()
    assert queue.put([lambda: called.append(2)]) is False
    assert queue.closed
    gate.may_end.set()
    queue.join(PATIENCE)
    assert gate.ended and called == [] and threads() == []


@pytest.mark.parametrize("is_used", [True, False])
def test_last_call_of_a_closed_queue_follows_the_running_call(shared: Callbacks, is_used: bool) -> None:
    queue, seen = queue_of(shared), list[object]()
    gate = hold(queue) if is_used else None
    queue.close(lambda: seen.append(gate is None or gate.ended))
    if gate is not None:
        gate.may_end.set()
    queue.join(PATIENCE)
    assert seen == [True]


# Errors ---------------------------------------------------------------------------------------------------------------


def fail(error: BaseException) -> NoReturn:
    raise error


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_exception_of_a_call_is_logged_under_the_sensors_name_and_the_thread_continues(
    shared: Callbacks, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    queue, seen, before = queue_of(shared, "front lidar"), list[int](), time.time()
    queue.put([lambda: fail(error), lambda: seen.append(1)])
    assert drained(queue)
    assert seen == [1] and len(threads()) == 1
    (kept,) = shared.errors.take()
    assert kept.sensor == "front lidar" and kept.error is error and "queue_of" in kept.where
    assert "Traceback" in kept.traceback and "in fail" in kept.traceback
    assert before <= kept.time <= time.time()
    assert "front lidar" in str(kept) and type(error).__name__ in str(kept)
    assert "front lidar" in caplog.text and "in fail" in caplog.text
    assert shared.errors.take() == [] and shared.errors.count == 1


def test_error_log_keeps_the_newest_errors_and_counts_all() -> None:
    log = Failures(LOGGER, limit=3)
    for i in range(10):
        log.add("imu", "tick", ValueError(i))
    assert [each.error.args[0] for each in log.take()] == [7, 8, 9]
    assert log.take() == [] and log.count == 10


def test_logged_error_keeps_no_data_alive(shared: Callbacks) -> None:
    """The frames of a listener and of chained errors would otherwise keep buffers alive."""

    class Data:
        pass

    alive = list[weakref.ref[Data]]()

    def inner() -> None:
        data = Data()
        alive.append(weakref.ref(data))
        raise ValueError

    def listener(data: Data) -> None:
        try:
            inner()
        except ValueError as error:
            raise RuntimeError from error

    data = Data()
    alive.append(weakref.ref(data))
    queue: CallbackQueue[Data] = CallbackQueue("a", listener, shared)
    queue.put([data])
    del data
    until(lambda: shared.errors.count)
    queue.close()
    queue.join(PATIENCE)
    gc.collect()
    assert shared.errors.count == 1 and [each() for each in alive] == [None, None]


def test_error_with_a_broken_repr_is_still_reported(shared: Callbacks) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    class Listener:
        def __call__(self, item: object) -> None:
            raise Odd

        def __repr__(self) -> str:
            raise ValueError

    queue: CallbackQueue[None] = CallbackQueue("a", Listener(), shared)
    queue.put([None])
    until(lambda: shared.errors.count)
    queue.close()
    queue.join(PATIENCE)
    (kept,) = shared.errors.take()
    assert isinstance(kept.error, Odd) and kept.where == "listener <Listener, whose repr raises ValueError>"


def test_broken_log_handler_does_not_end_the_thread(shared: Callbacks, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise OSError("disk full")

    logger, broken, queue = logging.getLogger("sensorium.client"), Broken(), queue_of(shared)
    logger.addFilter(broken)
    try:
        queue.put([lambda: fail(ValueError("kept"))])
        assert drained(queue)
    finally:
        logger.removeFilter(broken)
    assert shared.errors.count == 1 and "disk full" in capsys.readouterr().err


# Programs and stress --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", "[each.close() for each in queues]", "sys.exit(3)"])
def test_program_exits_cleanly_with_queued_items_and_running_calls(ending: str) -> None:
    program = f"""
        import sys, threading
        from sensorium.client.callbacks import Callbacks, CallbackQueue
        begun = threading.Event()
        def again(queue):
            begun.set()
            queue.put([queue])
        shared = Callbacks()
        queues = [CallbackQueue(str(i), again, shared) for i in range(8)]
        for queue in queues:
            queue.put([queue])
        begun.wait()
        {ending}
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stderr == "" and done.returncode == (3 if "exit(3" in ending else 0)


def test_concurrent_puts_and_clears_neither_lose_nor_duplicate_items(shared: Callbacks) -> None:
    """Each queue's calls come in order and without overlap, and no call queued before a clear comes after it.

    Without a clear, every single call is made.
    """
    seed = random.Random(1).random
    per_thread, count_of_threads, count_of_queues = 1500, 6, 9
    queues = [queue_of(shared, f"s{i}") for i in range(count_of_queues)]
    seen: list[list[tuple[int, int]]] = [[] for _ in queues]
    inside = [0] * count_of_queues
    wrong = list[str]()
    epoch = [0] * count_of_queues  # raised by each clear, after it: calls of an older epoch must not follow
    put_lock = [threading.Lock() for _ in queues]

    def call(s: int, thread: int, i: int, at: int) -> None:
        inside[s] += 1
        if inside[s] != 1:
            wrong.append("overlap")
        if at < epoch[s]:
            wrong.append("called after its clear")
        seen[s].append((thread, i))
        inside[s] -= 1
        if seed() < 0.01:
            raise ValueError

    def put(thread: int) -> None:
        for i in range(per_thread):
            s = (i * 7 + thread) % count_of_queues
            with put_lock[s]:
                queues[s].put([lambda s=s, i=i, at=epoch[s]: call(s, thread, i, at)])

    def clear() -> None:
        for i in range(200):
            s = i % 3  # only the first three
            with put_lock[s]:
                queues[s].clear()
                queues[s].wait(PATIENCE)
                epoch[s] += 1

    running = [in_thread(lambda thread=t: put(thread)) for t in range(count_of_threads)]  # type: ignore[misc]
    running += [in_thread(clear), in_thread(clear)]
    for each in running:
        each.join(PATIENCE)
        assert not each.is_alive()
    assert all(drained(queue) for queue in queues)
    assert wrong == []
    for s, calls in enumerate(seen):
        assert len(set(calls)) == len(calls)
        for t in range(count_of_threads):
            of_thread = [i for thread, i in calls if thread == t]
            assert of_thread == sorted(of_thread)
            if s >= 3:
                assert of_thread == [i for i in range(per_thread) if (i * 7 + t) % count_of_queues == s]
    assert {type(each.error) for each in shared.errors.take()} == {ValueError}
