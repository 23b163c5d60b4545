"""Recordings that end badly: a killed process, a full disk, a slow disk. What was written can be read."""

from __future__ import annotations

import errno
import gc
import io
import os
import random
import signal
import struct
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.opcode import Opcode
from mcap.reader import make_reader
from mcap_scenes import assert_all_same, assert_same, following, scene
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore
from selection import gate
from streaming import Nursery, until

import sensorium as sn
from sensorium.errors import ModelError, SensoriumWarning
from sensorium.readings import Reading
from sensorium.record import mcap_writer, rows
from sensorium.record.chunks import Part
from sensorium.record.mcap_writer import McapWriter
from sensorium.record.repair import repair

HERE = Path(__file__).parent
RECORDER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from mcap_scenes import scene
made = scene()
with made.record(sys.argv[2], ros2=bool(sys.argv[3])):
    print("ready", flush=True)
    while True:
        made.update()
        time.sleep(0.001)
"""
ABANDONED = """
import sys
sys.path.insert(0, sys.argv[1])
from mcap_scenes import scene
made = scene()
made.record(sys.argv[2])
made.update()
"""


def written(path: Path) -> int:
    """Return how many readings of the IMU a file has that may still be recorded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SensoriumWarning)
        return sn.replay(path).counts.get("imu", 0)


def check_killed(nursery: Nursery, path: Path, seconds: float, ros2: bool) -> None:
    child = nursery.program(RECORDER, str(HERE), str(path), "ros2" if ros2 else "")
    until(lambda: child.out.startswith("ready\n"))
    time.sleep(seconds)
    until(lambda: written(path), "a chunk in the file")
    count = written(path)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    with pytest.warns(SensoriumWarning, match="was not completed"):
        before = [*sn.replay(path)]
    assert sum(each.name == "imu" for each in before) >= count
    result = repair(path, in_place=True)
    assert not result.was_complete and repair(path, in_place=True).was_complete
    with sn.replay(path) as replay:
        after = [*replay]
        assert replay.is_complete
    assert_all_same(before, after)
    with open(path, "rb") as file:
        reader = make_reader(file, validate_crcs=True)
        messages = [message for _, _, message in reader.iter_messages()]
        summary = reader.get_summary()
    assert summary is not None and summary.statistics is not None
    assert len(messages) == summary.statistics.message_count == result.messages
    with AnyReader([path], default_typestore=get_typestore(Stores.ROS2_JAZZY)) as bag:
        assert sum(1 for _ in bag.messages()) == len(messages)
        for connection, _, data in bag.messages():
            bag.deserialize(data, connection.msgtype)


def test_a_file_that_is_recorded_is_neither_recorded_by_others_nor_repaired(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    with scene().record(path) as recorder:
        recorder.flush()
        with pytest.raises(sn.ConfigError, match=r"Recorder\.path.*another recording writes this file"):
            scene().record(path)
        for in_place in (True, False):
            with pytest.raises(ModelError, match=r"run\.mcap.*another recording writes this file"):
                repair(path, in_place=in_place)
    assert repair(path).was_complete and [*tmp_path.iterdir()] == [path]


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_a_recording_killed_at_a_random_moment_is_completed(number: int, tmp_path: Path, nursery: Nursery) -> None:
    check_killed(nursery, tmp_path / "run.mcap", random.Random(number).uniform(0.1, 4.0), ros2=number % 2 == 1)


def test_a_file_cut_anywhere_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut within chunks, between them, within indexes and within the summary: the start of the recording remains."""
    monkeypatch.setattr(mcap_writer, "CHUNK_BYTES", 8000)
    monkeypatch.setattr(rows, "MAX_ROWS", 3)
    made = scene()
    with following(made) as live, made.record(tmp_path / "run.mcap"):
        for _ in range(30):
            made.update()
    content = (tmp_path / "run.mcap").read_bytes()
    first = content.index(b"lz4")
    generator, path, counts = np.random.default_rng(0), tmp_path / "cut.mcap", []
    for cut in sorted({first + 50, len(content) - 1, *generator.integers(first, len(content), 10).tolist()}):
        path.write_bytes(content[:cut])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SensoriumWarning)
            before = [*sn.replay(path)]
        assert not repair(path, in_place=True).was_complete
        with sn.replay(path) as replay:
            assert_all_same(before, replay)
        for one, other in zip(live, before, strict=False):
            assert_same(one, other)
        counts.append(len(before))
        with open(path, "rb") as file:
            reader = make_reader(file, validate_crcs=True)
            summary = reader.get_summary()
            assert summary is not None and summary.statistics is not None
            assert sum(1 for _ in reader.iter_messages()) == summary.statistics.message_count
        with AnyReader([path]) as bag:
            assert sum(1 for _ in bag.messages()) == summary.statistics.message_count
    assert counts == sorted(counts) and counts[-1] == len(live) and counts[0] == 0
    path.write_bytes(content[: first - 100])
    with pytest.raises(ModelError):
        repair(tmp_path / "none.mcap")


# Full and slow disks --------------------------------------------------------------------------------------------------


class _Disk(io.FileIO):
    """File on a disk with limited space, or a slow one."""

    space = 10**12
    slow = 0.0

    def write(self, data: Any, /) -> int:
        time.sleep(self.slow)
        room = max(self.space - self.tell(), 0)
        if len(data) and not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(memoryview(data)[:room])


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> type[_Disk]:
    kind = type("Disk", (_Disk,), {})
    monkeypatch.setattr(mcap_writer, "open", lambda path, mode, buffering: kind(path, mode), raising=False)
    return kind


@pytest.mark.parametrize("space", gate([60_000, 61_000, 75_000, 100_000], {61_000}))
def test_a_full_disk_ends_the_recording_only(
    space: int, disk: type[_Disk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One warning; the simulation continues, with the same readings; what was written is a valid start."""
    monkeypatch.setattr(mcap_writer, "CHUNK_BYTES", 20_000)
    monkeypatch.setattr(rows, "MAX_ROWS", 4)
    disk.space = space
    made, other = scene(), scene()
    path = tmp_path / "run.mcap"
    with warnings.catch_warnings(record=True) as caught, following(made) as live:
        warnings.simplefilter("always")
        recorder = made.record(path)
        for _ in range(300):
            made.update()
            other.update()
            recorder.log("reward", np.zeros(5))
            recorder.mark("task")
        until(lambda: recorder.failed, "the error of the thread that writes")
        made.update()
        other.update()
        assert recorder.is_closed
        recorder.close()
    found = [str(each.message) for each in caught if issubclass(each.category, SensoriumWarning)]
    assert len(found) == 1 and "No space left on device" in found[0] and "run.mcap" in found[0]
    assert os.path.getsize(path) <= space
    for name in made:
        assert_same(other.publish()[name], made.publish()[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SensoriumWarning)
        readings = [*sn.replay(path)]
    assert 0 < len(readings) < len(live)
    for one, two in zip(live, readings, strict=False):
        assert_same(one, two)
    repair(path, in_place=True)
    with sn.replay(path) as replay:
        assert_all_same(readings, replay)


def test_a_disk_that_is_full_at_the_end_is_reported(disk: type[_Disk], tmp_path: Path) -> None:
    """All messages fit, the summary does not: a warning, and the file is read and completed as after a crash."""
    path = tmp_path / "run.mcap"
    with following(made := scene()) as live:
        recorder = made.record(path)
        made.update()
        recorder.flush()
        disk.space = os.path.getsize(path) + 10
        with pytest.warns(SensoriumWarning, match=r"run\.mcap.*No space left"):
            recorder.close()
    assert recorder.failed and not repair(path, in_place=True).was_complete
    with sn.replay(path) as replay:
        assert_all_same(live, replay)


def test_a_disk_that_is_full_at_once_gives_one_error(disk: type[_Disk], tmp_path: Path) -> None:
    disk.space = 10
    with pytest.raises(sn.ConfigError, match=r"Recorder\.path.*No space left"):
        scene().record(tmp_path / "run.mcap")


def test_a_slow_disk_makes_the_step_wait_and_loses_nothing(
    disk: type[_Disk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcap_writer, "CHUNK_BYTES", 4000)
    monkeypatch.setattr(mcap_writer, "QUEUE_BYTES", 12_000)
    monkeypatch.setattr(rows, "MAX_ROWS", 2)
    write, step_waits, is_stepping = disk.write, threading.Event(), False
    made, writes = scene(), []

    class Condition(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            if is_stepping and threading.current_thread() is threading.main_thread():
                step_waits.set()
            return super().wait(timeout)

    def noted(self: _Disk, data: Any, /) -> int:
        if is_stepping:
            assert step_waits.wait(120.0)
        writes.append((self.tell(), made.time * 1e9))
        return write(self, data)

    monkeypatch.setattr(disk, "write", noted)
    with following(made) as live, pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "Condition", Condition)
        with made.record(tmp_path / "run.mcap"):
            is_stepping = True
            for _ in range(100):
                made.update()
            is_stepping = False
    with sn.replay(tmp_path / "run.mcap") as replay:
        assert_all_same(live, replay)
    with open(tmp_path / "run.mcap", "rb") as file:
        chunks = make_reader(file).get_summary().chunk_indexes  # type: ignore[union-attr]
    ends = [each.chunk_start_offset + each.chunk_length + each.message_index_length for each in chunks]
    ahead = [  # a chunk of which a part is written counts as a whole
        sum(c.uncompressed_size for c, end in zip(chunks, ends, strict=True) if end > at and c.message_end_time <= now)
        for at, now in writes
    ]
    assert 12_000 < max(ahead) < 12_000 + 3 * 4000


def _add_in_reverse(path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> McapWriter:
    """Return a closed writer of twenty chunks; the first one is packed after the second, or fails then."""
    monkeypatch.setattr(mcap_writer, "CHUNK_BYTES", 1)
    writer = McapWriter(path, "", "test")
    channel, second = writer.add_channel("/a", "A", "", {}), threading.Event()

    class Slow(Part):
        def complete(self) -> None:
            if self.about == 0:
                assert second.wait(120.0)
                if fails:
                    raise RuntimeError("no index")
            if self.about == 1:
                second.set()

    for number in range(20):
        head = struct.pack("<BQHIQQ", Opcode.MESSAGE, 22, channel, number, number, number)
        writer.add_part(Slow(0, [head], np.array([[channel, number, 0]], np.int64), number), len(head))
    writer.close()
    return writer


def test_chunks_are_written_one_at_a_time_in_their_order(
    disk: type[_Disk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.slow, busy, most = 0.002, threading.Semaphore(1), []
    write = disk.write

    def alone(self: _Disk, data: Any, /) -> int:
        most.append(busy.acquire(blocking=False))
        try:
            return write(self, data)
        finally:
            busy.release()

    monkeypatch.setattr(disk, "write", alone)
    assert _add_in_reverse(tmp_path / "run.mcap", monkeypatch, fails=False).error is None
    assert all(most)
    with open(tmp_path / "run.mcap", "rb") as file:
        messages = make_reader(file, validate_crcs=True).iter_messages(log_time_order=False)
        assert [message.log_time for _, _, message in messages] == [*range(20)]


def test_nothing_is_written_after_a_chunk_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the file would have a gap that nobody notices."""
    writer = _add_in_reverse(tmp_path / "run.mcap", monkeypatch, fails=True)
    assert str(writer.error) == "no index"
    with open(tmp_path / "run.mcap", "rb") as file:
        assert not [*make_reader(file).iter_messages()]


def test_a_chunk_is_written_in_time_while_the_simulation_stands_still(tmp_path: Path) -> None:
    made = scene()
    with made.record(tmp_path / "run.mcap"):
        for _ in range(10):
            made.update()
        until(lambda: written(tmp_path / "run.mcap") >= 10, "a chunk in the file")


def test_an_abandoned_recording_is_completed_at_the_end_of_the_program(tmp_path: Path, nursery: Nursery) -> None:
    path = tmp_path / "run.mcap"
    program = nursery.program(ABANDONED, str(HERE), str(path))
    assert program.wait() == 0, program.err
    with sn.replay(path) as replay:
        assert replay.is_complete and replay.end == pytest.approx(0.002)


# Long runs ------------------------------------------------------------------------------------------------------------


def _record_long(path: Path, seconds: float, envs: int) -> None:
    """Record an IMU at 1 kHz; memory stays flat after the first second, and every sample is in the file."""
    engine = sn.TensorEngine(num_envs=envs, dt=0.001, bodies=["base"])
    made = sn.Scene(engine, [sn.ImuCfg(name="imu", body="base", gyro_noise=0.01, fields=("ang_vel_b", "lin_acc_b"))])
    ticks, first = round(seconds * 1000), 0
    with made.record(path):
        for tick in range(ticks):
            made.update()
            if tick == min(ticks // 4, 30_000):
                gc.collect()
                first = _resident()
        gc.collect()
        assert _resident() - first < 64 * 2**20
    before, count = None, 0
    with sn.replay(path) as replay:
        assert replay.counts == {"imu": ticks + 1}
        for reading in replay:
            assert before is None or reading.tick == before.tick + 1
            assert reading.env_ids.shape == (envs,) and (reading.capture_tick == reading.tick).all()
            before, count = reading, count + 1
        assert count == ticks + 1 and isinstance(before, Reading)
        assert_same(made.publish(["imu"], poses=True)["imu"], before)
        gc.collect()
        assert _resident() - first < 128 * 2**20


def _resident() -> int:
    """Return the memory of this process, bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_second_of_a_fast_sensor_in_many_environments_is_complete(tmp_path: Path) -> None:
    _record_long(tmp_path / "run.mcap", 2.0, 64)


@pytest.mark.soak
def test_ten_minutes_of_a_fast_sensor_in_many_environments_are_complete(tmp_path: Path) -> None:
    _record_long(tmp_path / "run.mcap", 600.0, 64)
