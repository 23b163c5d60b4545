"""Workers and strands: order, no overlap, clearing, ending, and what happens to what listeners raise."""

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

from sensorium.client.callbacks import ErrorLog, Strand, Workers
from sensorium.errors import ConfigError, StreamError

LONG = 20.0
"""Seconds after which something that should have happened has not."""


@pytest.fixture
def workers() -> Iterator[Workers]:
    with Workers(name="test") as made:
        yield made
    assert threads_named("test") == []


@pytest.fixture(autouse=True)
def no_noise(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "sensorium.client")


def threads_named(name: str) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith(f"{name}-")]


class Gate:
    """A call that tells that it has begun and ends when it may."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.ended = False

    def __call__(self) -> None:
        self.begun.set()
        assert self.may_end.wait(LONG)
        self.ended = True


def hold(strand: Strand) -> Gate:
    gate = Gate()
    assert strand.submit(gate)
    assert gate.begun.wait(LONG)
    return gate


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def waits(thread: threading.Thread) -> bool:
    """Whether a thread has not ended although it had time to."""
    thread.join(0.05)
    return thread.is_alive()


# Order ----------------------------------------------------------------------------------------------------------------


def test_calls_of_one_strand_are_made_in_order_and_never_at_the_same_time(workers: Workers) -> None:
    strand, seen, inside = workers.strand("a"), list[int](), list[int]()

    def call(i: int) -> None:
        inside.append(i)
        assert inside == [i]
        seen.append(i)
        inside.clear()

    for i in range(20_000):
        assert workers.submit(strand, call, i)
    assert strand.join(LONG)
    assert seen == list(range(20_000))
    assert workers.errors.count == 0


def test_calls_of_different_strands_run_at_the_same_time(workers: Workers) -> None:
    meeting = threading.Barrier(4)
    strands = [workers.strand(f"s{i}") for i in range(4)]
    for strand in strands:
        strand.submit(meeting.wait, LONG)  # breaks, and raises, unless all four are inside
    assert all(strand.join(LONG) for strand in strands)
    assert workers.errors.count == 0


def test_threads_are_made_on_first_use_and_never_more_than_asked_for() -> None:
    with Workers(2, name="few") as workers:
        assert workers.threads == 0 and threads_named("few") == []
        strands = [workers.strand(f"s{i}") for i in range(10)]
        done = list[int]()
        first = hold(strands[0])
        assert workers.threads == 1
        for i, strand in enumerate(strands):
            strand.submit(done.append, i)
        first.may_end.set()
        assert all(strand.join(LONG) for strand in strands)
        assert sorted(done) == list(range(10))
        assert len(threads_named("few")) == workers.threads <= 2
        assert all(thread.daemon for thread in threads_named("few"))
    assert threads_named("few") == []


def test_an_idle_thread_is_used_before_another_is_made(workers: Workers) -> None:
    strand = workers.strand("a")
    for _ in range(50):
        strand.submit(int)
        assert strand.join(LONG)
    assert workers.threads == 1


def test_a_strand_with_many_calls_does_not_keep_others_waiting() -> None:
    """The one thread alternates: the other strand's single call is made long before the ten thousand are through."""
    with Workers(1, name="fair") as workers:
        busy, other = workers.strand("busy"), workers.strand("other")
        gate, done, at = hold(busy), list[int](), list[int]()
        for i in range(10_000):
            busy.submit(done.append, i)
        other.submit(lambda: at.append(len(done)))
        gate.may_end.set()
        assert busy.join(LONG) and other.join(LONG)
    assert len(done) == 10_000
    assert at[0] <= 64


def test_one_strand_that_blocks_does_not_block_the_others(workers: Workers) -> None:
    blocked, free, seen = workers.strand("blocked"), workers.strand("free"), list[int]()
    gate = hold(blocked)
    for i in range(1000):
        free.submit(seen.append, i)
    assert free.join(LONG)
    assert seen == list(range(1000)) and not gate.ended
    gate.may_end.set()


def test_a_call_may_submit_to_its_own_strand(workers: Workers) -> None:
    strand, seen = workers.strand("a"), list[int]()

    def count(left: int) -> None:
        seen.append(left)
        if left:
            strand.submit(count, left - 1)

    strand.submit(count, 500)
    assert strand.join(LONG)
    assert seen == list(range(500, -1, -1))


# Clearing -------------------------------------------------------------------------------------------------------------


def test_clear_forgets_what_is_queued_and_waits_for_what_runs(workers: Workers) -> None:
    strand, called = workers.strand("a"), list[int]()
    gate = hold(strand)
    for i in range(10):
        strand.submit(called.append, i)
    clearing = in_thread(strand.clear)
    assert waits(clearing)
    assert strand.pending == 0 and strand.running
    gate.may_end.set()
    clearing.join(LONG)
    assert not clearing.is_alive() and gate.ended
    assert strand.submit(called.append, -1) and strand.join(LONG)
    assert called == [-1]


def test_clear_with_a_time_out_says_that_something_still_runs(workers: Workers) -> None:
    strand = workers.strand("a")
    gate = hold(strand)
    assert strand.clear(timeout=0.01) is False
    gate.may_end.set()
    assert strand.clear(timeout=LONG) is True


def test_clear_waits_for_the_running_call_only_not_for_those_submitted_since(workers: Workers) -> None:
    strand = workers.strand("a")
    first, second = hold(strand), Gate()
    clearing = in_thread(strand.clear)
    assert waits(clearing)
    strand.submit(second)
    first.may_end.set()
    clearing.join(LONG)
    assert not clearing.is_alive() and not second.ended
    second.may_end.set()


def test_wait_waits_for_the_running_call_and_leaves_the_others(workers: Workers) -> None:
    strand, called = workers.strand("a"), list[int]()
    gate, last = hold(strand), Gate()
    strand.submit(called.append, 1)
    strand.submit(last)
    assert strand.wait(0.01) is False
    waiting = in_thread(strand.wait)
    assert waits(waiting)
    gate.may_end.set()
    waiting.join(LONG)
    assert not waiting.is_alive() and not last.ended
    last.may_end.set()
    assert strand.join(LONG) and called == [1] and strand.wait()


def test_clear_from_within_the_call_itself_does_not_wait(workers: Workers) -> None:
    strand, seen = workers.strand("a"), list[object]()

    def call() -> None:
        strand.submit(seen.append, "never")
        seen.append(strand.clear())

    strand.submit(call)
    assert strand.join(LONG)
    assert seen == [False]


def test_calls_that_clear_one_another_do_not_wait_for_ever(workers: Workers) -> None:
    strands, meeting = [workers.strand(f"s{i}") for i in range(3)], threading.Barrier(3)
    ended = list[bool]()

    def call(other: Strand) -> None:
        meeting.wait(LONG)
        ended.append(other.clear())

    for strand, other in zip(strands, [*strands[1:], strands[0]], strict=True):
        strand.submit(call, other)
    assert all(strand.join(LONG) for strand in strands)
    assert sorted(ended) == [False, True, True]  # one of the circle cannot wait
    assert workers.errors.count == 0


def test_a_closed_strand_refuses_calls_and_can_be_closed_again(workers: Workers) -> None:
    strand = workers.strand("a")
    assert strand.close() and strand.closed
    assert strand.submit(int) is False
    assert strand.close()
    assert "closed" in repr(strand)


def test_waiting_for_ones_own_end_is_an_error(workers: Workers) -> None:
    strand = workers.strand("a")
    strand.submit(strand.join)
    assert strand.join(LONG)
    (error,) = workers.errors.take()
    assert isinstance(error.error, StreamError) and "this very call" in str(error.error)


def test_join_says_when_calls_are_left_at_the_time_out(workers: Workers) -> None:
    strand = workers.strand("a")
    gate = hold(strand)
    assert strand.join(0.01) is False
    gate.may_end.set()


# Errors ---------------------------------------------------------------------------------------------------------------


def fail(error: BaseException) -> NoReturn:
    raise error


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_whatever_a_call_raises_is_kept_under_the_sensors_name_and_the_thread_goes_on(
    workers: Workers, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    strand, seen, before = workers.strand("front lidar"), list[int](), time.time()
    strand.submit(fail, error)
    strand.submit(seen.append, 1)
    assert strand.join(LONG)
    assert seen == [1] and workers.threads == 1
    (kept,) = workers.errors.take()
    assert kept.sensor == "front lidar" and kept.error is error and "fail" in kept.callback
    assert "Traceback" in kept.traceback and "in fail" in kept.traceback
    assert before <= kept.time <= time.time()
    assert "front lidar" in str(kept) and type(error).__name__ in str(kept)
    assert "front lidar" in caplog.text and "in fail" in caplog.text
    assert workers.errors.take() == [] and workers.errors.count == 1


def test_the_log_keeps_the_newest_and_counts_all() -> None:
    log = ErrorLog(limit=3)
    for i in range(10):
        log.report("imu", fail, ValueError(i))
    assert len(log) == 3 and log.count == 10
    assert [each.error.args[0] for each in log.take()] == [7, 8, 9]
    assert len(log) == 0 and log.count == 10


def test_a_kept_error_keeps_no_data_alive(workers: Workers) -> None:
    """A listener's variables, and those of the errors an error came from, would else hold buffers for ever."""

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

    strand, data = workers.strand("a"), Data()
    alive.append(weakref.ref(data))
    strand.submit(listener, data)
    del data
    assert strand.join(LONG)
    gc.collect()
    assert len(workers.errors) == 1 and [each() for each in alive] == [None, None]


def test_an_error_that_cannot_be_shown_is_reported_all_the_same(workers: Workers) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    class Listener:
        def __call__(self) -> None:
            raise Odd

        def __repr__(self) -> str:
            raise ValueError

    strand = workers.strand("a")
    strand.submit(Listener())
    assert strand.join(LONG)
    (kept,) = workers.errors.take()
    assert isinstance(kept.error, Odd) and kept.callback == "<Listener, whose repr raises ValueError>"


def test_a_broken_log_handler_ends_no_thread(workers: Workers, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise OSError("disk full")

    logger, broken, strand = logging.getLogger("sensorium.client"), Broken(), workers.strand("a")
    logger.addFilter(broken)
    try:
        strand.submit(fail, ValueError("kept"))
        assert strand.join(LONG)
    finally:
        logger.removeFilter(broken)
    assert workers.errors.count == 1 and "disk full" in capsys.readouterr().err


def test_the_data_of_a_call_are_let_go_when_it_has_ended(workers: Workers) -> None:
    class Data:
        pass

    strand, data = workers.strand("a"), Data()
    alive = weakref.ref(data)
    strand.submit(id, data)
    del data
    assert strand.join(LONG)
    assert alive() is None


# Ending ---------------------------------------------------------------------------------------------------------------


def test_close_waits_for_what_runs_drops_what_waits_and_may_be_called_again() -> None:
    workers, called = Workers(name="ends"), list[int]()
    strand, other = workers.strand("a"), workers.strand("b")
    gate = hold(strand)
    strand.submit(called.append, 1)
    closing = in_thread(workers.close)
    assert waits(closing)
    assert strand.submit(called.append, 2) is False and other.submit(called.append, 3) is False
    gate.may_end.set()
    closing.join(LONG)
    assert not closing.is_alive() and gate.ended and called == [] and workers.closed
    assert workers.close() and workers.threads == 0 and threads_named("ends") == []
    assert strand.clear() and strand.join(LONG)


def test_close_can_first_make_the_calls_that_were_submitted() -> None:
    workers, called = Workers(2, name="drains"), list[int]()
    strands = [workers.strand(f"s{i}") for i in range(5)]
    gate = hold(strands[0])
    for i in range(1000):
        strands[i % 5].submit(called.append, i)
    gate.may_end.set()
    assert workers.close(LONG, drain=True)
    assert sorted(called) == list(range(1000))


def test_close_with_a_time_out_says_that_a_thread_is_left() -> None:
    workers = Workers(name="slow")
    gate = hold(workers.strand("a"))
    assert workers.close(0.01) is False and workers.close(0.01, drain=True) is False
    gate.may_end.set()
    assert workers.close(LONG) is True


def test_close_from_within_calls_returns_at_once_and_the_threads_end() -> None:
    workers, meeting, results = Workers(name="inside"), threading.Barrier(3), list[bool]()

    def call() -> None:
        meeting.wait(LONG)
        results.append(workers.close())

    for i in range(3):
        workers.strand(f"s{i}").submit(call)
    for thread in threads_named("inside"):
        thread.join(LONG)
    assert results == [False] * 3 and threads_named("inside") == []
    assert workers.close(LONG)


def test_close_of_workers_that_never_ran_does_nothing() -> None:
    assert Workers().close()


def test_forgotten_workers_take_their_threads_with_them() -> None:
    workers = Workers(name="forgotten")
    strand = workers.strand("a")
    strand.submit(int)
    strand.join(LONG)
    (thread,) = threads_named("forgotten")
    del workers
    gc.collect()
    thread.join(LONG)
    assert not thread.is_alive() and strand.submit(int) is False


@pytest.mark.parametrize("ending", ["", "workers.close()", "sys.exit(3)", "atexit.register(workers.close)"])
def test_a_program_ends_cleanly_with_calls_queued_and_running(ending: str) -> None:
    """A running listener is waited for for a second at most, and calls submitted at the exit are refused or made."""
    program = f"""
        import atexit, sys, threading
        from sensorium.client.callbacks import Workers
        workers = Workers()
        strands = [workers.strand(str(i)) for i in range(8)]
        begun = threading.Event()
        def again(strand, i):
            begun.set()
            strand.submit(again, strand, i + 1)
        for strand in strands:
            strand.submit(again, strand, 0)
        begun.wait()
        {ending}
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=LONG
    )
    assert done.stderr == "" and done.returncode == (3 if "exit(3" in ending else 0)


# Bad use --------------------------------------------------------------------------------------------------------------


def test_workers_need_a_thread() -> None:
    with pytest.raises(ConfigError, match=r"Workers\.count: got 0, expected a number of threads >= 1"):
        Workers(0)


def test_a_strand_of_other_workers_is_refused(workers: Workers) -> None:
    with Workers() as others, pytest.raises(StreamError, match="belongs to other workers"):
        workers.submit(others.strand("a"), int)


# Stress ---------------------------------------------------------------------------------------------------------------


def test_many_threads_strands_and_clears_lose_and_double_nothing() -> None:
    """Each strand's calls come in order, without overlap, and none that was submitted before a clear comes after it.

    Where nobody clears, every single call is made.
    """
    seed = random.Random(1).random
    per_thread, threads, strands_count = 1500, 6, 9

    with Workers(4, name="stress") as workers:
        strands = [workers.strand(f"s{i}") for i in range(strands_count)]
        seen: list[list[tuple[int, int]]] = [[] for _ in strands]
        inside = [0] * strands_count
        wrong = list[str]()
        epoch = [0] * strands_count  # raised by each clear, after it: calls of an older epoch must not come any more
        submit_lock = [threading.Lock() for _ in strands]

        def call(s: int, thread: int, i: int, at: int) -> None:
            inside[s] += 1
            if inside[s] != 1:
                wrong.append("overlap")
            if at < epoch[s]:
                wrong.append("called after its clear")
            seen[s].append((thread, i))
            if seed() < 0.01:
                inside[s] -= 1
                raise ValueError
            inside[s] -= 1

        def submit(thread: int) -> None:
            for i in range(per_thread):
                s = (i * 7 + thread) % strands_count
                with submit_lock[s]:
                    strands[s].submit(call, s, thread, i, epoch[s])

        def clear() -> None:
            for i in range(200):
                s = i % 3  # the first three only
                with submit_lock[s]:
                    strands[s].clear()
                    epoch[s] += 1

        running = [in_thread(lambda thread=t: submit(thread)) for t in range(threads)]  # type: ignore[misc]
        running += [in_thread(clear), in_thread(clear)]
        for each in running:
            each.join(LONG)
            assert not each.is_alive()
        assert all(strand.join(LONG) for strand in strands)

        assert wrong == []
        for s, calls in enumerate(seen):
            assert len(set(calls)) == len(calls)
            for t in range(threads):
                of_thread = [i for thread, i in calls if thread == t]
                assert of_thread == sorted(of_thread)
                if s >= 3:
                    assert of_thread == [i for i in range(per_thread) if (i * 7 + t) % strands_count == s]
        assert {type(each.error) for each in workers.errors.take()} == {ValueError}
    assert threads_named("stress") == []
