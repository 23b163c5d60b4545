"""Buffers and their pool: memory is reused, but never while a view of it exists."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from sensorium.errors import ConfigError
from sensorium.wire.buffers import MAX_BLOCKS, MAX_BYTES, Buffer, BufferPool

SECONDS = 120.0
"""Time-out of a thread, s; a thread that exceeds it is deadlocked."""


def address(buffer: Buffer) -> int:
    return int(buffer.array(np.uint8).__array_interface__["data"][0])


def from_pool(pool: BufferPool, size: int, value: int = 0) -> Buffer:
    buffer = pool.pop()
    buffer.reset(size)
    buffer.array(np.uint8)[:] = value
    return buffer


def in_threads(work: Callable[[int], None], count: int = 4) -> None:
    """Run `work(i)` in `count` threads to their end, and raise the first exception here."""
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "a thread waits for ever"
    if errors:
        raise errors[0]


@pytest.fixture
def collector_at_every_step() -> Iterator[None]:
    """Run the garbage collector as often as possible."""
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)


def test_buffer_operations_of_the_contract() -> None:
    """1024 allocates; 512 keeps the memory, size 512 of 1024; 2048 allocates new memory."""
    buffer = Buffer()
    assert (buffer.size, buffer.capacity) == (0, 0)
    buffer.reset(1024)
    first = buffer.array(np.uint8)
    first[:] = 7
    assert (buffer.size, buffer.capacity) == (1024, 1024)
    buffer.reset(512)
    assert (buffer.size, buffer.capacity) == (512, 1024)
    assert np.shares_memory(buffer.array(np.uint8), first)
    assert address(buffer) == first.__array_interface__["data"][0]
    buffer.reset(2048)
    assert (buffer.size, buffer.capacity) == (2048, 2048)
    assert not np.shares_memory(buffer.array(np.uint8), first)
    assert (first == 7).all()


def test_a_buffer_from_an_empty_pool_has_no_memory() -> None:
    pool = BufferPool()
    buffer = pool.pop()
    assert (buffer.size, buffer.capacity, len(buffer.view), buffer.array(np.float32).shape) == (0, 0, 0, (0,))
    del buffer
    assert pool.in_pool == 0, "there was no memory to return"


def test_next_buffer_reuses_the_previous_memory() -> None:
    """The memory returns when the buffer goes out of scope, without any call, at any size set meanwhile."""
    pool = BufferPool()

    def use() -> int:
        buffer = from_pool(pool, 1000)
        buffer.reset(10)
        return address(buffer)

    before = use()
    assert pool.in_pool == 1
    buffer = pool.pop()
    assert (buffer.size, buffer.capacity) == (0, 1000)
    buffer.reset(600)
    assert address(buffer) == before
    assert pool.in_pool == 0


def test_memory_given_up_for_a_larger_one_does_not_come_back() -> None:
    pool = BufferPool()
    buffer = from_pool(pool, 100)
    buffer.reset(200)
    assert pool.in_pool == 0
    del buffer
    assert (pool.in_pool, pool.pop().capacity) == (1, 200)


VIEWS: dict[str, Callable[[Buffer], Any]] = {
    "view": lambda buffer: buffer.view,
    "slice of the view": lambda buffer: buffer.view[3:9].cast("b"),
    "array": lambda buffer: buffer.array(np.uint8),
    "array of a view of an array": lambda buffer: buffer.array(np.float32).reshape(2, -1)[1:, ::2].T.view(np.int32),
    "record field": lambda buffer: buffer.array(np.dtype([("a", "<f4"), ("b", "<u8")]), 4, 16)["b"],
    "asarray of a memoryview": lambda buffer: np.asarray(memoryview(buffer.array(np.int16)[4:])),
    "frombuffer of the view": lambda buffer: np.frombuffer(buffer.view, np.uint8)[5:],
    "read-only": lambda buffer: buffer.view.toreadonly(),
    "iterator": lambda buffer: iter(buffer.array(np.uint8).reshape(-1, 8)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_memory_stays_out_while_any_view_lives(name: str) -> None:
    """The buffer is gone and its pool lends another; the content of the view does not change."""
    pool = BufferPool()
    buffer = from_pool(pool, 1024, 3)
    kept = VIEWS[name](buffer)
    shown = None if name == "iterator" else bytes(kept)
    del buffer
    gc.collect()
    assert pool.in_pool == 0
    other = from_pool(pool, 1024, 99)
    if shown is None:
        kept = next(kept)
        shown = bytes([3] * 8)
    assert bytes(kept) == shown
    del kept
    assert pool.in_pool == 1
    del other
    assert pool.in_pool == 2


def test_pool_limits_the_number_of_pieces() -> None:
    """The last returned piece is kept, and is reused first."""
    pool = BufferPool()
    buffers = [from_pool(pool, 100) for _ in range(MAX_BLOCKS + 2)]
    places = [address(buffer) for buffer in buffers]
    for k in range(len(buffers)):
        buffers[k] = Buffer()
    assert pool.in_pool == MAX_BLOCKS
    again = [from_pool(pool, 100) for _ in range(MAX_BLOCKS)]
    assert [address(buffer) for buffer in again] == places[:1:-1]
    assert pool.in_pool == 0


def test_pool_limits_the_number_of_bytes() -> None:
    pool = BufferPool()
    small, large, too_large = pool.pop(300), pool.pop(MAX_BYTES - 200), pool.pop(MAX_BYTES + 1)
    del small, too_large
    assert pool.in_pool == 1, "alone over the limit: it drives nothing else out"
    del large
    assert (pool.in_pool, pool.pop().capacity) == (1, MAX_BYTES - 200)


def test_pool_can_be_released_before_its_buffers() -> None:
    pool = BufferPool()
    from_pool(pool, 64)
    buffer, other = from_pool(pool, 64, 5), from_pool(pool, 64, 6)
    kept = other.array(np.uint8)
    del pool, other
    gc.collect()
    assert (buffer.array(np.uint8) == 5).all()
    buffer.reset(4096)
    buffer.array(np.uint8)[:] = 7
    assert (kept == 6).all()
    moved = buffer.pop()
    del buffer
    assert bytes(moved.view) == bytes([7] * 4096)


def test_pop_moves_the_memory_out() -> None:
    pool = BufferPool()
    buffer = from_pool(pool, 100, 4)
    place = address(buffer)
    moved = buffer.pop()
    assert (buffer.size, buffer.capacity, len(buffer)) == (0, 0, 0)
    assert (moved.size, moved.capacity, address(moved)) == (100, 100, place)
    assert bytes(moved.view) == bytes([4] * 100)
    buffer.reset(50)
    buffer.array(np.uint8)[:] = 9
    assert (moved.array(np.uint8) == 4).all()
    del moved
    assert pool.in_pool == 1
    del buffer
    assert [pool.pop().capacity, pool.pop().capacity] == [50, 50]


def test_resize_keeps_the_content() -> None:
    buffer = Buffer(10)
    buffer.array(np.uint8)[:] = np.arange(10)
    buffer.resize(1000)
    assert (buffer.size, buffer.capacity) == (1000, 1000)
    assert bytes(buffer.view[:10]) == bytes(range(10))
    buffer.resize(4)
    assert (buffer.size, buffer.capacity, bytes(buffer.view)) == (4, 1000, bytes(range(4)))


def test_clear_keeps_the_memory() -> None:
    buffer = Buffer(100)
    place = address(buffer)
    buffer.clear()
    assert (buffer.size, len(buffer), buffer.capacity) == (0, 0, 100)
    buffer.reset(100)
    assert address(buffer) == place


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000, 4096, 100_001, 5_000_000])
def test_memory_starts_at_a_multiple_of_64(size: int) -> None:
    pool = BufferPool()
    for _ in range(3):
        held = [from_pool(pool, size) for _ in range(3)]
        assert [address(buffer) % 64 for buffer in held] == [0, 0, 0]


def test_views_write_to_the_buffer() -> None:
    buffer = Buffer(64)
    buffer.view[:] = bytes(64)
    buffer.array("<f8", (2, 3), 8)[:] = [[1, 2, 3], [4, 5, 6]]
    assert bytes(buffer.view) == bytes(8) + np.arange(1.0, 7.0).astype("<f8").tobytes() + bytes(8)
    records = buffer.array(np.dtype([("a", "<u4"), ("b", "<u4")]))
    assert len(records) == 8
    records["b"] = 5
    assert buffer.array("<u4").tolist()[1::2] == [5] * 8


@pytest.mark.parametrize(
    "source",
    [
        b"hello",
        bytearray(b"hello"),
        memoryview(b"hello").toreadonly(),
        b"",
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.arange(12, dtype=np.float32).reshape(3, 4).T[::2],
        np.zeros((0, 3)),
        np.float64(2.5).reshape(()),
        memoryview(np.arange(4, dtype=np.int64)),
    ],
)
def test_copy_from_has_the_bytes_of_the_source(source: Any) -> None:
    buffer = Buffer()
    buffer.copy_from(source)
    assert bytes(buffer.view) == (source.tobytes() if hasattr(source, "tobytes") else bytes(source))


def test_copy_from_another_buffer_is_a_copy() -> None:
    first, second = Buffer(), Buffer()
    first.copy_from(b"abc")
    second.copy_from(first)
    first.array(np.uint8)[:] = 0
    assert bytes(second.view) == b"abc"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Buffer(-1), "Buffer.size: got -1"),
        (lambda: Buffer().reset(1.5), "Buffer.size: got 1.5"),
        (lambda: Buffer(8).array(np.float32, 3), "at most 8 bytes"),
        (lambda: Buffer(16).array(np.float32, (2, 2), 4), "at most 12 bytes"),
        (lambda: Buffer(16).array(np.float32, (-1, 2)), "shape: got"),
        (lambda: Buffer(16).array(np.float32, None, 17), "offset: got 17"),
        (lambda: Buffer(16).array(np.float32, None, -4), "offset: got -4"),
        (lambda: Buffer(16).array(object), "plain bytes"),
        (lambda: Buffer(16).array("S0"), "plain bytes"),
    ],
)
def test_invalid_operations_raise(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        call()


def test_an_array_never_reaches_past_the_size_into_the_capacity() -> None:
    buffer = Buffer(64)
    buffer.reset(8)
    assert (buffer.array(np.uint8).nbytes, buffer.view.nbytes) == (8, 8)
    with pytest.raises(ConfigError):
        buffer.array(np.uint8, 9)


def test_memory_returns_from_another_thread() -> None:
    pool = BufferPool()
    held = [from_pool(pool, 100).array(np.uint8)[10:]]
    assert pool.in_pool == 0
    in_threads(lambda _: held.clear(), count=1)
    assert pool.in_pool == 1


def test_memory_is_never_lent_twice() -> None:
    """Four threads write distinct marks, pass buffers to each other, and always find the written mark."""
    pool = BufferPool()
    shelf: list[tuple[int, Any]] = []

    def work(mark: int) -> None:
        for step in range(1500):
            value = mark * 60 + step % 60
            shelf.append((value, from_pool(pool, 64 + step % 5, value).array(np.uint8)))
            if len(shelf) > 6:
                expected, array = shelf.pop(0)
                assert (array == expected).all()

    in_threads(work)
    shelf.clear()
    kept = [pool.pop(1) for _ in range(pool.in_pool)]
    assert len({address(buffer) for buffer in kept}) == len(kept) <= MAX_BLOCKS


def test_garbage_collector_can_return_memory_during_a_call(collector_at_every_step: None) -> None:
    """Buffers in reference cycles die whenever the collector runs, also while this thread is inside the pool."""
    pool = BufferPool()

    def work(_: int) -> None:
        for step in range(300):
            cycle: list[Any] = [from_pool(pool, 100 + step % 300)]
            cycle.append(cycle)
            del cycle
            assert pool.in_pool <= MAX_BLOCKS

    in_threads(work, count=3)
    gc.collect()
    assert 0 < pool.in_pool <= MAX_BLOCKS


def test_memory_returns_while_the_same_thread_holds_the_lock() -> None:
    pool = BufferPool()
    held = [from_pool(pool, 100) for _ in range(MAX_BLOCKS + 2)]

    def work(_: int) -> None:
        with pool._lock:
            held.clear()
            pool.pop().reset(10)

    in_threads(work, count=1)
    assert pool.in_pool == MAX_BLOCKS


def test_buffers_can_live_until_interpreter_exit() -> None:
    """Buffers live in globals, in cycles, and in an endless thread, also in one that holds the pool's lock for ever."""
    program = """
import threading
from sensorium.wire.buffers import Buffer, BufferPool
pool = BufferPool()
def made(n):
    buffer = pool.pop(); buffer.reset(n); return buffer
kept = [made(100), made(200).array("u1"), made(300).view]
kept.append(kept)
import sensorium.wire.buffers as module
module.kept = kept
class Late:
    def __init__(self): self.held = [made(50)]
    def __del__(self): self.held.clear(); made(70)
late = Late(); late.me = late
started = threading.Event()
def spin():
    held = made(10); started.set()
    while True: held = made(1000)
threading.Thread(target=spin, daemon=True).start()
started.wait(120.0)
locked = BufferPool()
import colorsys  # what it holds dies with it, while the thread below keeps alive what is named here
colorsys.kept = locked.pop()
colorsys.kept.reset(10)
held = threading.Event()
def stay():
    with locked._lock:
        held.set()
        threading.Event().wait()
threading.Thread(target=stay, daemon=True).start()
held.wait(120.0)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
