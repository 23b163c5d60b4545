"""Shared-memory slots: writes are visible to another process, views outlive both processes, and nothing leaks."""

from __future__ import annotations

import fcntl
import gc
import json
import mmap
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest

from sensorium.errors import StreamError, WireError
from sensorium.wire import slots
from sensorium.wire.slots import PAGE, PROBE, SlotReader, SlotWriter, probe_slots, slots_available

SECONDS = 120.0
"""Time-out of every operation, s."""

WRITER = """
import json, sys
import numpy as np
from sensorium.wire.slots import SlotWriter
slot_size, count = int(sys.argv[1]), int(sys.argv[2])
writer = SlotWriter(slot_size, count)
print(json.dumps([writer.name, writer.token.hex(), writer.slot_size, writer.count]), flush=True)
kept = []
for line in sys.stdin:  # a seed: a slot full of numbers that only this seed gives
    slot, memory = writer.take()
    kept.append(memory)
    memory[:] = np.random.default_rng(int(line)).integers(0, 256, memory.size, np.uint8)
    print(slot, flush=True)
"""


class OtherProcess:
    """A writer in a separate process."""

    def __init__(self, slot_size: int, count: int) -> None:
        command = [sys.executable, "-c", WRITER, str(slot_size), str(count)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        name, token, slot_size, count = json.loads(self._line())
        self.segment = (name, bytes.fromhex(token), slot_size, count)

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def write(self, seed: int) -> int:
        """Let the process fill a slot, and return the slot."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        return int(self._line())

    def kill(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait(SECONDS) == -signal.SIGKILL
        self.process.stdin.close()
        self.process.stdout.close()


@contextmanager
def other_process(slot_size: int = 100_000, count: int = 3) -> Iterator[OtherProcess]:
    other = OtherProcess(slot_size, count)
    try:
        yield other
    finally:
        if other.process.poll() is None:
            other.kill()


def numbers(seed: int, size: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def opened(writer: SlotWriter, on_release: Callable[[int], None] | None = None) -> SlotReader:
    return SlotReader(writer.name, writer.token, writer.slot_size, writer.count, on_release)


def held_by_this_process() -> tuple[int, int]:
    """Return (file descriptors, mapped segments) of this process."""
    gc.collect()
    with open("/proc/self/maps") as maps:
        mapped = sum("memfd:sensorium" in line for line in maps)
    return len(os.listdir("/proc/self/fd")), mapped


def test_another_process_reads_written_data() -> None:
    """Whole slots and prefixes of them agree bit for bit, at 64-byte boundaries."""
    with other_process() as other, nullcontext(SlotReader(*other.segment)) as reader:
        written = {seed: other.write(seed) for seed in (1, 2, 3)}
        assert sorted(written.values()) == [0, 1, 2]
        for seed, slot in written.items():
            for length in (reader.slot_size, 1000, 1, 0):
                array = reader.memory(slot, length)
                assert (array.dtype, array.shape) == (np.uint8, (length,))
                assert array.__array_interface__["data"][0] % 64 == 0
                assert np.array_equal(array, numbers(seed, reader.slot_size)[:length])


def test_a_kept_view_survives_the_writer_and_the_reader() -> None:
    """The view shows the same bytes after SIGKILL of the writer's process and after the reader was closed and freed."""
    released: list[int] = []
    with other_process() as other:
        reader = SlotReader(*other.segment, released.append)
        slot = other.write(5)
        kept = reader.memory(slot, 90_000)[100:].view(np.uint32)[::2]
        expected = numbers(5, reader.slot_size)[100:90_000].view(np.uint32)[::2].copy()
        other.kill()
        assert np.array_equal(kept, expected)
        del reader
        gc.collect()
        assert np.array_equal(kept, expected)
        assert released == []
        del kept
        assert released == [slot]


def test_a_reader_cannot_write() -> None:
    """The array, NumPy's writable flag and a new mapping of the memory all refuse writes."""
    with other_process() as other, nullcontext(SlotReader(*other.segment)) as reader:
        array = reader.memory(other.write(1), 100)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        for view in (array, array[3:], np.asarray(memoryview(array)), array.view("<u4")):
            with pytest.raises(ValueError, match="cannot set WRITEABLE"):
                view.setflags(write=True)
        assert memoryview(array).readonly
        file = os.open(other.segment[0], os.O_RDWR)
        try:
            with pytest.raises(PermissionError):
                mmap.mmap(file, PAGE)
            with pytest.raises(PermissionError):
                os.write(file, b"x")
        finally:
            os.close(file)


@pytest.mark.parametrize("length", [0, PAGE, 2 * PAGE, 100 * PAGE])
def test_segment_size_cannot_be_changed(length: int) -> None:
    """A reader therefore never reads unmapped memory, which would kill it."""
    with closing(SlotWriter(PAGE, 2)) as writer, nullcontext(opened(writer)) as reader:
        taken = writer.take()
        assert taken is not None
        array = reader.memory(taken[0], PAGE)
        with pytest.raises(PermissionError):
            os.truncate(writer.name, length)
        file = os.open(writer.name, os.O_RDWR)
        try:
            with pytest.raises(PermissionError):
                fcntl.fcntl(file, 1033, 8)  # F_ADD_SEALS: a seal against writing is refused as well
        finally:
            os.close(file)
        taken[1][:3] = list(b"abc")
        assert bytes(array[:3]) == b"abc"


VIEWS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda array: array,
    "slice": lambda array: array[5:],
    "view of a view": lambda array: array.reshape(2, -1)[1:].view(np.uint16).T[::3],
    "asarray": lambda array: np.asarray(array),
    "memoryview": lambda array: memoryview(array)[4:].cast("b"),
    "array of a memoryview": lambda array: np.asarray(memoryview(array[8:])),
    "ndarray over it": lambda array: np.ndarray((3,), "<f8", buffer=array, offset=16),
    "frombuffer": lambda array: np.frombuffer(array, np.uint32)[1:],
}


@pytest.mark.parametrize("name", VIEWS)
def test_release_is_reported_once_after_the_last_view(name: str) -> None:
    released: list[int] = []
    with closing(SlotWriter(PAGE, 3)) as writer, nullcontext(opened(writer, released.append)) as reader:
        array = reader.memory(2, 240)
        kept = VIEWS[name](array)
        del array
        gc.collect()
        assert released == []
        second = kept[1:]
        del kept
        gc.collect()
        assert released == []
        del second
        assert released == [2]
        gc.collect()
        assert released == [2]


def test_arrays_of_one_slot_are_released_separately() -> None:
    released: list[int] = []
    with closing(SlotWriter(PAGE, 3)) as writer, nullcontext(opened(writer, released.append)) as reader:
        first, second = reader.memory(1, 10), reader.memory(1, 10)
        del first
        assert released == [1]
        del second
        assert released == [1, 1]


def test_release_is_reported_in_the_thread_of_the_last_view() -> None:
    released: list[tuple[int, int]] = []

    def tell(slot: int) -> None:
        released.append((slot, threading.get_ident()))

    with closing(SlotWriter(PAGE, 1)) as writer, nullcontext(opened(writer, tell)) as reader:
        held = [reader.memory(0, 100)[1:]]
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join(SECONDS)
        assert [slot for slot, _ in released] == [0]
        assert released[0][1] == thread.ident != threading.get_ident()


def test_arrays_in_a_reference_cycle_are_released_by_the_collector() -> None:
    released: list[int] = []
    with closing(SlotWriter(PAGE, 1)) as writer, nullcontext(opened(writer, released.append)) as reader:
        cycle: list[Any] = [reader.memory(0, 100)]
        cycle.append(cycle)
        del cycle
        gc.collect()
        assert released == [0]


def test_arrays_can_live_until_interpreter_exit() -> None:
    """Nothing is called then: modules may be torn down, and a stopped thread may hold their locks for ever."""
    program = """
import colorsys, threading
from sensorium.wire.slots import SlotReader, SlotWriter
writer = SlotWriter(100, 2)
lock = threading.RLock()
def release(slot):
    with lock:
        print("released")
reader = SlotReader(writer.name, writer.token, writer.slot_size, writer.count, release)
kept = [reader.memory(0, 100), memoryview(reader.memory(1, 5))]
kept.append(kept)
colorsys.kept = reader.memory(0, 10)  # dies with that module, while the thread below keeps alive what is named here
view = writer.take()
held = threading.Event()
def stay(lock):
    with lock:
        held.set()
        threading.Event().wait()
threading.Thread(target=stay, args=(lock,), daemon=True).start()
held.wait(120.0)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def refusal(name: str, token: bytes, slot_size: int = PAGE, count: int = 1) -> str:
    """Return the message of the StreamError, after checking that the refusal leaves nothing open."""
    before = held_by_this_process()
    with pytest.raises(StreamError) as caught:
        SlotReader(name, token, slot_size, count)
    assert held_by_this_process() == before
    return str(caught.value)


def test_a_segment_with_another_token_is_refused() -> None:
    with closing(SlotWriter(PAGE, 1)) as writer:
        assert "token" in refusal(writer.name, bytes(16))
        assert "token" in refusal(writer.name, b"")


def test_a_segment_of_another_size_is_refused() -> None:
    """This holds also where the total size is the same."""
    with closing(SlotWriter(PAGE, 4)) as writer:
        assert "expected" in refusal(writer.name, writer.token, PAGE, 5)
        assert f"4 slots of {PAGE} bytes, expected 2 of {2 * PAGE}" in refusal(writer.name, writer.token, 2 * PAGE, 2)
        for slot_size, count in ((0, 1), (-PAGE, 1), (PAGE, 0), (100, 1), (2**50, 1), (PAGE, 2**60)):
            assert "expected" in refusal(writer.name, writer.token, slot_size, count)


def test_ended_process_is_reported() -> None:
    with other_process(PAGE, 1) as other:
        other.kill()
        assert "process has ended" in refusal(*other.segment)


def test_closed_segment_is_reported() -> None:
    writer = SlotWriter(PAGE, 1)
    writer.close()
    assert "has ended or closed it" in refusal(writer.name, writer.token)


def test_reused_descriptor_is_not_mistaken_for_the_segment(tmp_path: Any) -> None:
    """A file, an empty file, a pipe, a socket, a directory, a device, foreign memory and other segments are refused."""
    import socket

    with closing(SlotWriter(PAGE, 1)) as writer:
        name, token, number = writer.name, writer.token, int(writer.name.rsplit("/", 1)[1])
        with open(writer.name, "rb") as file:
            content = file.read()
    (tmp_path / "same").write_bytes(content)
    (tmp_path / "empty").touch()
    unsealed = os.memfd_create("sensorium", os.MFD_CLOEXEC)
    os.write(unsealed, content)
    files = [unsealed, *os.pipe(), os.open(tmp_path, os.O_RDONLY), os.open("/dev/zero", os.O_RDONLY)]
    files += [os.open(tmp_path / "same", os.O_RDONLY), os.open(tmp_path / "empty", os.O_RDONLY)]
    pair = socket.socketpair()
    other = SlotWriter(PAGE, 1)
    sources = [*files, pair[0].fileno(), int(other.name.rsplit("/", 1)[1])]
    messages = []
    try:
        for source in sources:
            if source != number:
                os.dup2(source, number)
            messages.append(refusal(name, token))
            if source != number:
                os.close(number)
    finally:
        for opened_file in files:
            if opened_file != number:
                os.close(opened_file)
        for end in pair:
            end.close()
        other.close()
    assert len(messages) == len(sources) == 9
    assert "not sealed" in messages[0]
    assert "another kind of file" in messages[1]
    assert "token" in messages[-1]


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "/proc/self/fd/1", "/proc/1/fd/../../2/fd/3", "/proc/1/mem", "/proc/1/fd/3\n", "/proc/01/fd/2"],
)
def test_only_descriptors_of_processes_are_opened(name: str) -> None:
    """The name comes from another process, so it must not give access to anything else on this machine."""
    assert "such as /proc/<pid>/fd/<n>" in refusal(name, bytes(16))


def test_slots_are_unavailable_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slots_available()
    with closing(SlotWriter(PAGE, 1)) as writer:
        monkeypatch.setattr(slots, "_PROC", "/nowhere")
        assert "no /nowhere" in refusal(writer.name, writer.token)
        assert not slots_available()
        with pytest.raises(StreamError, match="needs Linux with /nowhere"):
            SlotWriter(PAGE, 1)


def test_slots_are_unavailable_without_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    before = held_by_this_process()
    for name in ("memfd_create", "ftruncate"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refused)
            assert not slots_available()
            with pytest.raises(StreamError, match="Function not implemented"):
                SlotWriter(PAGE, 1)
    assert held_by_this_process() == before


def test_probe_reports_whether_slots_are_readable() -> None:
    with closing(SlotWriter(*PROBE)) as probe:
        assert probe_slots(probe.name, probe.token)
        assert not probe_slots(probe.name, bytes(16))
    assert not probe_slots(probe.name, probe.token)


def test_opening_and_closing_leaves_nothing() -> None:
    """200 segments are written and read; some arrays die after the reader and the writer."""
    before = held_by_this_process()
    kept: list[Any] = []
    for cycle in range(200):
        writer = SlotWriter(3 * PAGE, 4)
        reader = opened(writer)
        taken = writer.take()
        assert taken is not None
        slot, memory = taken
        memory[:5] = list(b"hello")
        array = reader.memory(slot, 5)
        if cycle % 3 == 0:
            kept.append(array)
            kept.append(memory)
        if cycle % 2:
            writer.close()
        del reader
        writer.close()
        assert bytes(array) == b"hello"
        del kept[:-6], writer, memory, array, taken
    kept.clear()
    assert held_by_this_process() == before


def test_dropping_without_close_leaves_nothing() -> None:
    before = held_by_this_process()
    for _ in range(20):
        writer = SlotWriter(PAGE, 1)
        opened(writer).memory(0, 10)
        del writer
    assert held_by_this_process() == before


def test_killed_writers_leave_nothing() -> None:
    """Nothing remains in this process or by name; while an array lives, its mapping does."""
    before = held_by_this_process()
    for seed in range(5):
        with other_process(PAGE, 2) as other:
            reader = SlotReader(*other.segment)
            array = reader.memory(other.write(seed), PAGE)
            other.kill()
            assert held_by_this_process()[1] == before[1] + 1
            assert np.array_equal(array, numbers(seed, PAGE))
            del array, reader, other
    assert held_by_this_process() == before


def test_unused_slots_use_no_memory() -> None:
    """The kernel provides pages on the first write; a reused slot already has its pages."""
    size = 64 * PAGE
    with closing(SlotWriter(size, 1000)) as writer:

        def used() -> int:
            return os.stat(writer.name).st_blocks * 512

        assert used() == PAGE
        for _ in range(10):
            taken = writer.take()
            assert taken is not None
            taken[1][:] = 0
            del taken
            assert used() == PAGE + size


def test_slots_begin_at_pages_and_do_not_overlap() -> None:
    with closing(SlotWriter(PAGE + 1, 3)) as writer, nullcontext(opened(writer)) as reader:
        assert writer.slot_size == 2 * PAGE
        taken = [each for each in (writer.take() for _ in range(4)) if each is not None]
        assert [slot for slot, _ in taken] == [0, 1, 2]
        for slot, memory in taken:
            memory[:] = slot + 1
        for slot in range(3):
            array = reader.memory(slot, writer.slot_size)
            assert (array == slot + 1).all()
            assert array.__array_interface__["data"][0] % PAGE == 0


def test_the_slot_freed_last_is_taken_first() -> None:
    with closing(SlotWriter(PAGE, 4)) as writer:
        taken = {slot: memory for slot, memory in (writer.take() or (-1, None) for _ in range(4))}
        assert list(taken) == [0, 1, 2, 3] and writer.take() is None and writer.free == 0
        for slot in (2, 0, 3):
            del taken[slot]
        again = [writer.take() for _ in range(4)]
        assert [each and each[0] for each in again] == [3, 0, 2, None]


@pytest.mark.parametrize("name", VIEWS)
def test_a_slot_is_free_after_its_last_view(name: str) -> None:
    with closing(SlotWriter(PAGE, 2)) as writer:
        taken = writer.take()
        assert taken is not None and writer.free == 1
        kept = VIEWS[name](taken[1])
        del taken
        gc.collect()
        assert writer.free == 1
        del kept
        assert writer.free == 2


def test_slot_is_never_lent_twice() -> None:
    """Four threads write distinct marks into the slots they hold, and always find them again."""
    errors: list[BaseException] = []
    with closing(SlotWriter(PAGE, 3)) as writer, nullcontext(opened(writer)) as reader:

        def work(mark: int) -> None:
            try:
                done = 0
                while done < 500:
                    if (taken := writer.take()) is None:
                        continue
                    slot, memory = taken
                    memory[:64] = mark
                    assert (reader.memory(slot, 64) == mark).all()
                    done += 1
                    del taken, memory
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(mark,), daemon=True) for mark in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
        assert errors == []
        assert writer.free == 3


def test_closed_writer_lends_nothing_but_its_memory_stays() -> None:
    writer = SlotWriter(PAGE, 2)
    taken = writer.take()
    assert taken is not None
    writer.close()
    assert writer.take() is None
    taken[1][:3] = list(b"abc")
    assert bytes(taken[1][:3]) == b"abc"
    del taken
    assert writer.free == 2


def test_message_without_valid_slot_is_refused() -> None:
    with closing(SlotWriter(PAGE, 2)) as writer, nullcontext(opened(writer)) as reader:
        for slot, length in ((2, 1), (-1, 1), (0, PAGE + 1), (0, -1), (2**70, 1), (0, 2**70)):
            with pytest.raises(WireError, match=f"2 slots of {PAGE} bytes"):
                reader.memory(slot, length)
