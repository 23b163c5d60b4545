"""Damaged and hostile MCAP files: one ModelError, or the readings that were recorded; memory stays bounded."""

from __future__ import annotations

import json
import struct
import tracemalloc
import warnings
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import pytest
import zstandard
from mcap import records
from mcap.data_stream import RecordBuilder
from mcap.reader import NonSeekingReader, make_reader
from mcap_scenes import bits, following, scene
from selection import gate

import sensorium as sn
from sensorium.errors import ModelError, SensoriumWarning
from sensorium.readings import Reading
from sensorium.record import mcap_writer
from sensorium.record.batches import Batch
from sensorium.record.mcap_writer import MAGIC, Summary
from sensorium.record.recorder import checksum
from sensorium.record.repair import repair

MAX = 200 * 2**20
"""Greatest memory for any of the small files here, bytes."""


def record(path: Path, ticks: int = 30) -> list[Reading]:
    made = scene(2)
    with following(made) as live, made.record(path) as recorder:
        for number in range(ticks):
            made.update()
            recorder.mark("task", str(number))
    return live


def read(path: Path) -> list[Reading]:
    """Read everything in a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SensoriumWarning)
        with sn.replay(path) as replay:
            found = [*replay]
            for reading in found:
                assert reading.age is not None
            assert isinstance(replay.marks, list) and replay.end >= replay.start
            replay.at(0.01)
            replay.attachment("world.npz")
            return found


def summed(readings: list[Reading]) -> list[Any]:
    return [
        (each.name, each.tick, [bits(value) for branch in (each.measured, each.truth) for value in branch.values()])
        for each in readings
    ]


@pytest.mark.parametrize("files", gate([20, 600], {20}))
def test_a_damaged_file_is_refused_or_reads_the_same(
    files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes are flipped, removed, doubled and swapped anywhere in a file, and the file is truncated.

    A repair gives no fewer readings than there were.
    """
    monkeypatch.setattr(mcap_writer, "CHUNK_BYTES", 6000)
    path = tmp_path / "run.mcap"
    expected = summed(record(tmp_path / "whole.mcap"))
    content, rng, refused = (tmp_path / "whole.mcap").read_bytes(), np.random.default_rng(0), 0
    tracemalloc.start()
    for number in range(files):
        damaged = bytearray(content)
        for place in rng.integers(len(content), size=1 + number % 4):
            damaged[place] = rng.integers(256) if number % 2 else damaged[place] ^ (1 << int(rng.integers(8)))
        begin, end = sorted(rng.integers(len(content), size=2).tolist())
        if number % 7 == 0:
            del damaged[begin : min(end, begin + 40)]
        if number % 11 == 0:
            damaged[begin:begin] = damaged[begin : min(end, begin + 200)]
        if number % 13 == 0:
            del damaged[end:]
        path.write_bytes(damaged)
        count = 0
        for attempt in (read, partial(repair, in_place=True), read):
            try:
                found = attempt(path)
            except ModelError as error:
                refused += 1
                assert str(path) in str(error)
                continue
            if isinstance(found, list):
                rest = iter(expected)
                assert all(each in rest for each in summed(found)) and len(found) >= count
                count = len(found)
    assert refused > files / 6
    assert tracemalloc.get_traced_memory()[1] < MAX
    tracemalloc.stop()


@pytest.mark.parametrize("place", [0.25, 0.5, "channels"])
def test_a_hole_costs_one_chunk(place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten bytes are missing: the copy has all readings but those of one chunk, and mcap reads it; also in place."""
    monkeypatch.setattr(mcap_writer, "CHUNK_BYTES", 6000)
    path, copy = tmp_path / "run.mcap", tmp_path / "run.repaired.mcap"
    expected = summed(record(path, 100))
    content = path.read_bytes()
    at = content.index(b"lz4") + 100 if place == "channels" else int(place * len(content))
    damaged = content[:at] + content[at + 10 :]
    path.write_bytes(damaged)
    with pytest.raises(ModelError, match="sensorium repair"):
        read(path)
    result = repair(path)
    assert (result.path, result.was_complete, path.read_bytes()) == (copy, False, damaged)
    found, rest = summed(read(copy)), iter(expected)
    assert all(each in rest for each in found) and 0.8 * len(expected) < len(found) <= len(expected)
    with open(copy, "rb") as file:
        assert sum(1 for _ in make_reader(file, validate_crcs=True).iter_messages()) == result.messages
    with open(copy, "rb") as file:  # without the index
        assert sum(1 for _ in NonSeekingReader(file).iter_messages()) == result.messages
    assert repair(copy).was_complete and repair(path, in_place=True).path == path
    assert path.read_bytes() == copy.read_bytes()


# Files made on purpose ------------------------------------------------------------------------------------------------


def packed(*contents: records.McapRecord) -> bytes:
    out = RecordBuilder()
    for each in contents:
        each.write(out)
    return out.end()


def about(**changes: Any) -> records.Metadata:
    scene = {"engine": "none", "dt": 0.01, "num_envs": 2, "seed": 0, "first_env": 0}
    values = {
        "format": "1", "scene": json.dumps(scene), "env_ids": "[0, 1]", "bodies": "[]", "versions": "{}",
    } | changes  # fmt: skip
    return records.Metadata("sensorium", {**values, "checksum": checksum(values)})


def layout(**changes: Any) -> dict[str, str]:
    spec = sn.FieldSpec("value", ("xyz",), (3,), "float32", "m", "", "vector", "scalar")
    found = Batch("imu", "imu", (spec,), [0, 1], "measured", 0, 0.01).to_dict()
    described = {**json.loads(found["layout"]), **changes}
    return {**found, "layout": json.dumps(described), "group": "sensor", "description": "{}"}


def channel(metadata: dict[str, str]) -> bytes:
    text = records.Schema(1, b"int64 tick", "ros2msg", "a/msg/B")
    return packed(text, records.Channel(1, "/a", "cdr", metadata, 1))


def message(data: bytes, *, length: int | None = None, number: int = 1) -> bytes:
    size = len(data) + 22 if length is None else length
    return struct.pack("<BQHIQQ", 5, size, number, 0, 0, 0) + data


def chunk(data: bytes, compression: str = "lz4", **changes: Any) -> bytes:
    body = {"lz4": lz4.frame.compress, "zstd": zstandard.compress, "": bytes}.get(compression, bytes)(data)
    fields = {"size": len(data), "crc": 0, "body": body, "packed": len(body)} | changes
    name = compression.encode()
    head = struct.pack("<QQQII", 0, 0, fields["size"], fields["crc"], len(name)) + name
    rest = head + struct.pack("<Q", fields["packed"]) + fields["body"]
    return struct.pack("<BQ", 6, changes.get("length", len(rest))) + rest


def start(metadata: records.Metadata | None = None) -> bytes:
    return MAGIC + packed(records.Header("ros2", "test"), metadata or about())


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


VALUE = Batch.from_dict(layout())
GOOD = b"".join(
    bytes(part)
    for part in VALUE.encode(
        Reading(
            "imu", "imu", VALUE.specs, np.arange(2), 0, 0.0, {"value": np.zeros((2, 3), np.float32)}, {},
            {"capture_tick": np.zeros(2, np.int64), "frame": np.zeros(2, np.int64), "stamp": np.zeros(2),
             "valid": np.ones(2, bool), "is_new": np.ones(2, bool)}, _dt=0.01,
        )
    )
)  # fmt: skip
HUGE = 2**62
BIG = {
    "name": "v",
    "axes": ["env", "a"],
    "dtype": "float32",
    "unit": "1",
    "frame": "",
    "kind": "vector",
    "role": "scalar",
}
HOSTILE: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "only magic": lambda: MAGIC,
    "no header": lambda: MAGIC + packed(about()),
    "two magics": lambda: MAGIC + MAGIC,
    "a header of 2**62 bytes": lambda: MAGIC + struct.pack("<BQ", 1, HUGE),
    "metadata of 2**62 bytes": lambda: MAGIC + packed(records.Header("", "")) + struct.pack("<BQ", 12, HUGE),
    "not of sensorium": lambda: MAGIC + packed(records.Header("ros2", "other")),
    "another format": lambda: start(about(format="9")),
    "no checksum": lambda: start(records.Metadata("sensorium", {"format": "1"})),
    "a scene that is a list": lambda: start(about(scene="[]")),
    "a scene of deep lists": lambda: start(about(scene=nested(100_000))),
    "no scene": lambda: start(about(scene="{}")),
    "infinite seed": lambda: start(
        about(scene='{"engine": "", "dt": 1, "num_envs": 1, "seed": 1e999, "first_env": 0}')
    ),
    "environments that are text": lambda: start(about(env_ids='["a"]')),
    "environments beyond int64": lambda: start(about(env_ids="[99999999999999999999]")),
    "bodies that are numbers": lambda: start(about(bodies="[1]")),
    "a chunk that states 2**60 bytes": lambda: start() + chunk(b"", size=2**60) + chunk(b""),
    "a zstd chunk that states 2**60 bytes": lambda: start() + chunk(b"", "zstd", size=2**60) + chunk(b""),
    "a zstd chunk that states 2**29 bytes": lambda: (
        start() + chunk(b"", "zstd", body=bytes(20_000), packed=20_000, size=2**29) + chunk(b"")
    ),
    "a chunk that grows": lambda: start() + chunk(bytes(10**8), size=1000) + chunk(b""),
    "a zstd chunk that grows": lambda: start() + chunk(bytes(10**8), "zstd", size=1000) + chunk(b""),
    "a chunk that shrinks": lambda: start() + chunk(bytes(1000), size=100_000) + chunk(b""),
    "a zstd chunk that shrinks": lambda: start() + chunk(bytes(1000), "zstd", size=1500) + chunk(b""),
    "a chunk of unknown compression": lambda: start() + chunk(b"", "gzip") + chunk(b""),
    "a chunk that ends in its own description": lambda: start() + chunk(b"", length=40)[:49] + chunk(b""),
    "a chunk with a wrong checksum": lambda: start() + chunk(channel(layout()), crc=1) + chunk(b""),
    "a chunk that is no frame": lambda: start() + chunk(b"", body=b"abcdefgh", packed=8) + chunk(b""),
    "a chunk of a chunk": lambda: start() + chunk(chunk(b"")[:-3]) + chunk(b""),
    "a message of 2**62 bytes": lambda: start() + chunk(message(b"", length=HUGE)) + chunk(b""),
    "a short message": lambda: start() + chunk(channel(layout()) + struct.pack("<BQH", 5, 2, 1)) + chunk(b""),
    "a message that is cut": lambda: start() + chunk(channel(layout()) + message(GOOD[:-1])),
    "a message that is longer": lambda: start() + chunk(channel(layout()) + message(GOOD + b"a")),
    "a big-endian message": lambda: start() + chunk(channel(layout()) + message(b"\0\0" + GOOD[2:])),
    "an empty message": lambda: start() + chunk(channel(layout()) + message(b"")),
    "a channel that is defined twice": lambda: (
        start() + chunk(channel(layout()) + channel(layout(dt=1.0))) + chunk(b"")
    ),
    "a layout that is not JSON": lambda: start() + chunk(channel({**layout(), "layout": "{"})),
    "a layout without fields": lambda: start() + chunk(channel({**layout(), "layout": "{}"})),
    "a layout of deep lists": lambda: start() + chunk(channel(layout(specs=[]) | {"layout": nested(100_000)})),
    "an unknown branch": lambda: start() + chunk(channel({**layout(), "branch": "other"})),
    "no time step": lambda: start() + chunk(channel(layout(dt=0.0))),
    "mounts that are text": lambda: start() + chunk(channel(layout(mounts="2"))),
    "a negative environment": lambda: start() + chunk(channel(layout(env_ids=[-1]))),
    "an environment that is a number with a point": lambda: start() + chunk(channel(layout(env_ids=[1.5]))),
    "a field of 2**62 values": lambda: (
        start() + chunk(channel(layout(specs=[{**BIG, "shape": [HUGE]}])) + message(GOOD))
    ),
    "a field of 2**30 values": lambda: (
        start() + chunk(channel(layout(specs=[{**BIG, "shape": [2**30]}])) + message(GOOD))
    ),
    "an empty field of many values": lambda: (
        start() + chunk(channel(layout(specs=[{**BIG, "axes": ["env", "a", "b"], "shape": [0, HUGE]}])) + message(GOOD))
    ),
    "a field of objects": lambda: start() + chunk(channel(layout(specs=[{**BIG, "shape": [1], "dtype": "O"}]))),
    "a field of text": lambda: start() + chunk(channel(layout(specs=[{**BIG, "shape": [1], "dtype": "U9"}]))),
    "2**24 mounts": lambda: start() + chunk(channel(layout(mounts=2**24 - 1)) + message(GOOD)),
    "a summary outside the file": lambda: start() + packed(records.DataEnd(0), records.Footer(HUGE, 0, 0)) + MAGIC,
    "a summary that is a footer": lambda: start() + packed(records.DataEnd(0), records.Footer(9, 0, 0)) + MAGIC,
    "a chunk outside the file": lambda: _with_index(chunk_start_offset=HUGE),
    "a chunk of 2**62 bytes": lambda: _with_index(chunk_length=HUGE),
    "a chunk that is a header": lambda: _with_index(chunk_start_offset=9, chunk_length=60),
    "a damaged summary": lambda: _with_index()[:-60] + b"abc" + _with_index()[-57:],
    "a summary with another checksum": lambda: _with_index().replace(b"/a", b"/b"),
}


def _with_index(**changes: Any) -> bytes:
    begin, body = start(), chunk(channel(layout()) + message(GOOD))
    index = {
        "chunk_length": len(body), "chunk_start_offset": len(begin), "compression": "lz4", "compressed_size": 1,
        "message_end_time": 0, "message_index_length": 0, "message_index_offsets": {1: 9}, "message_start_time": 0,
        "uncompressed_size": 1,
    } | changes  # fmt: skip
    summary = Summary({1: records.Schema(1, b"int64 tick", "ros2msg", "a/msg/B")}, counts={1: 1})
    summary.channels[1] = records.Channel(1, "/a", "cdr", layout(), 1)
    summary.chunks.append(records.ChunkIndex(**index))
    return begin + body + summary.ending(len(begin) + len(body))


def test_the_files_made_here_are_readable_without_their_fault(tmp_path: Path) -> None:
    for number, content in enumerate((start() + chunk(channel(layout()) + message(GOOD)), start() + channel(layout()))):
        (tmp_path / "run.mcap").write_bytes(content)
        assert len(read(tmp_path / "run.mcap")) == 1 - number
    (tmp_path / "run.mcap").write_bytes(_with_index().replace(b"\x08", b"\x08"))
    assert zlib.crc32(b"") == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_gives_one_error_and_bounded_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    path.write_bytes(HOSTILE[name]())
    tracemalloc.start()
    with pytest.raises(ModelError) as caught:
        read(path)
    assert str(path) in str(caught.value) and len(str(caught.value)) < 1000
    assert tracemalloc.get_traced_memory()[1] < MAX
    tracemalloc.stop()


@pytest.mark.parametrize("name", HOSTILE)
def test_repairing_a_hostile_file_gives_one_error_or_a_valid_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    path.write_bytes(HOSTILE[name]())
    tracemalloc.start()
    try:
        repair(path, in_place=True)
        assert repair(path, in_place=True).was_complete
    except ModelError as error:
        assert str(path) in str(error)
    assert tracemalloc.get_traced_memory()[1] < MAX
    tracemalloc.stop()
