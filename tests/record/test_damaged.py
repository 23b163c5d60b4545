"""Damaged, hostile and oddly named files: a ModelError that names file and place, or an equal recording."""

from __future__ import annotations

import json
import os
import resource
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sensorium.errors import ModelError
from sensorium.readings import Array
from sensorium.record import NpzRecorder, Recording, SensorRecording, load
from sensorium.record.archive import key_of, name_of

ODD = (
    "robot/imu", "a/measured", "a", "measured", "truth", "..", "../up", "/root", "a//b", "a/", "nul\0l", "line\nend",
    "back\\slash", "100%", "%41", "A", "", ".", "tab\t", "\ud800", "größe", " space ", "a/measured/x", "%",
)  # fmt: skip


def sensor(name: str, rows: int = 7, *, ragged: bool = False, fields: tuple[str, ...] = ("time", "rate")) -> Any:
    rng = np.random.default_rng(len(name))
    time = np.arange(rows) * 0.01
    counts = rng.integers(0, 3, rows * 2)
    ends = np.concatenate(([0], np.cumsum(counts)))
    offsets = np.stack([ends[:-1].reshape(rows, 2)[:, 0], ends[1::2], ends[2::2]], axis=1) if ragged else None
    values: dict[str, Array] = {each: rng.normal(size=(rows, 2, 3)).astype(np.float32) for each in fields}
    if ragged:
        values["events"] = rng.normal(size=(int(ends[-1]), 3)).astype(np.float32)
    stamps = np.repeat(time[:, None], 2, axis=1)
    return SensorRecording(
        name, {"kind": "gyro"}, np.arange(2), time, stamps, stamps + 1, rng.random((rows, 2)) > 0.5, values,
        {each: value + 1 for each, value in values.items()}, stamps + 2, offsets,
    )  # fmt: skip


def recording(*sensors: SensorRecording) -> Recording:
    described = {each.name: dict(each.info) for each in sensors}
    return Recording({"engine": "none", "dt": 0.01, "sensors": described}, {each.name: each for each in sensors})


def same(one: Recording, two: Recording) -> bool:
    def flat(each: SensorRecording) -> Mapping[str, Any]:
        parts = ("env_ids", "time", "capture_time", "truth_time", "valid", "stamp", "offsets")
        found = {part: getattr(each, part) for part in parts if getattr(each, part) is not None}
        for branch in ("measured", "truth"):
            found |= {(branch, name): value for name, value in getattr(each, branch).items()}
        return found

    if one.description != two.description or list(one) != list(two):
        return False
    pairs = [(flat(one[name]), flat(two[name])) for name in one]
    return all(
        a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)
        for a, b in pairs
    )


# Damage ---------------------------------------------------------------------------------------------------------------


def test_a_damaged_file_is_refused_or_reads_the_same(tmp_path: Path) -> None:
    """Bytes are flipped, removed, doubled and swapped anywhere in a file, 120 times, and the file is truncated."""
    original = recording(sensor("robot/imu"), sensor("hits", ragged=True))
    content = original.save(tmp_path / "whole.npz").read_bytes()
    path, rng, refused = tmp_path / "run.npz", np.random.default_rng(0), 0
    directory = content.rindex(b"PK\x05\x06") - 2500  # where a flip hits bytes that zipfile reads
    for number in range(120):
        damaged = bytearray(content)
        first = directory if number % 3 else 0
        for place in rng.integers(first, len(content), 1 + number % 4):
            damaged[place] = rng.integers(256) if number % 2 else damaged[place] ^ (1 << int(rng.integers(8)))
        if number % 7 == 0:
            damaged = damaged[: rng.integers(len(content))]
        if number % 11 == 0:
            a, b = sorted(rng.integers(0, len(damaged) + 1, 2).tolist())
            damaged[a:b] = damaged[a:b][::-1] if number % 2 else b""
        path.write_bytes(damaged)
        try:
            assert same(load(path), original), number
        except ModelError as error:
            assert "run.npz" in str(error)
            refused += 1
    assert 40 < refused < 118


def member(array: Array | bytes, *, shape: str | None = None) -> bytes:
    """Return an array as a separate file; `shape` replaces the true shape in its header."""
    if isinstance(array, bytes):
        return array
    out = BytesIO()
    np.save(out, array, allow_pickle=True)
    content = out.getvalue()
    if shape is not None:
        true = str(array.shape).encode()
        content = content.replace(true, shape.encode().ljust(len(true)), 1)
    return content


def write(path: Path, members: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def whole(tmp_path: Path, **changes: Any) -> dict[str, bytes]:
    """Return the members of a valid file with some of them changed; None removes a member."""
    path = recording(sensor("imu"), sensor("hits", ragged=True)).save(tmp_path / "sound.npz")
    with zipfile.ZipFile(path) as archive:
        found: dict[str, Any] = {name: archive.read(name) for name in archive.namelist()}
    found |= {f"{name}.npy": value for name, value in changes.items()}
    return {name: value for name, value in found.items() if value is not None}


TEXT: Callable[[str], bytes] = lambda text: member(np.array(text))  # noqa: E731
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "nested": ({"description": TEXT('{"sensors": ' + "[" * 100_000 + "]" * 100_000 + "}")}, "description.*Recursion"),
    "no JSON": ({"description": TEXT("{")}, "description"),
    "a list": ({"description": TEXT("[]")}, "description"),
    "sensors a number": ({"description": TEXT('{"sensors": 3}')}, "description"),
    "sensor a number": ({"description": TEXT('{"sensors": {"imu": 3}}')}, "description"),
    "no text": ({"description": member(np.zeros(3))}, "description.*expected one text"),
    "no description": ({"description": None}, "description.*missing"),
    "objects": ({"imu/time": member(np.array([{}], dtype=object))}, "imu/time.*expected numbers"),
    "records": ({"imu/time": member(np.zeros(7, dtype="f8,i4"))}, "imu/time.*expected numbers"),
    "no array": ({"imu/time": b"no array"}, "imu/time"),
    "missing": ({"imu/valid": None}, "imu/valid.*missing"),
    "short": ({"imu/time": member(np.zeros(7))[:-8]}, "imu/time.*header says"),
    "long": ({"imu/time": member(np.zeros(7)) + b"12345678"}, "imu/time.*header says"),
    "huge": ({"imu/time": member(np.zeros(10**6), shape="(10**9,)")}, "imu/time"),
    "other rows": ({"imu/valid": member(np.zeros((6, 2), bool))}, r"imu/valid.*bool \[6, 2\]"),
    "other type": ({"imu/valid": member(np.zeros((7, 2)))}, r"imu/valid.*float64 \[7, 2\]"),
    "field": ({"imu/measured/rate": member(np.zeros((7, 3)))}, r"imu/measured/rate.*\[7, 3\]"),
    "text field": ({"imu/measured/rate": member(np.full((7, 2), "x"))}, "imu/measured/rate"),
    "offsets": ({"hits/offsets": member(np.full((7, 3), 10**9))}, "hits/offsets.*increase"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_a_model_error_that_names_the_array(tmp_path: Path, case: str) -> None:
    changes, says = HOSTILE[case]
    write(tmp_path / "run.npz", whole(tmp_path, **changes))
    with pytest.raises(ModelError, match=rf"(?s)run\.npz.*{says}"):
        load(tmp_path / "run.npz")


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_that_hides_sizes_is_refused(tmp_path: Path, compression: int) -> None:
    write(tmp_path / "run.npz", whole(tmp_path), compression)
    with pytest.raises(ModelError, match="compression"):
        load(tmp_path / "run.npz")


def test_recompressed_file_reads_the_same(tmp_path: Path) -> None:
    write(tmp_path / "run.npz", whole(tmp_path), zipfile.ZIP_DEFLATED)
    assert same(load(tmp_path / "run.npz"), load(tmp_path / "sound.npz"))


def test_a_small_file_takes_no_large_memory(tmp_path: Path) -> None:
    """0.1 MB that expand to 100 MB are refused, or ignored where nothing describes them, within 75 MB of memory."""
    zeros = member(np.zeros(12_500_000))
    small = tmp_path / "run.npz"
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    cases: list[tuple[dict[str, Any], bool]] = [
        ({"imu/time": zeros}, False),
        ({"imu/measured/rate": zeros}, False),
        ({"description": member(np.array(" " * 25_000_000))}, False),
        ({"other": zeros}, True),
    ]
    for changes, reads in cases:
        write(small, whole(tmp_path, **changes), zipfile.ZIP_DEFLATED)
        assert small.stat().st_size < 500_000
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 75_000_000, hard))
        try:
            if reads:
                assert [*load(small)] == ["imu", "hits"]
            else:
                with pytest.raises(ModelError) as caught:
                    load(small)
                assert not isinstance(caught.value.__cause__, MemoryError)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_a_recording_larger_than_the_memory_is_refused_with_both_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recording(sensor("imu", rows=20_000)).save(tmp_path / "run.npz")
    monkeypatch.setattr("sensorium.record.archive.host_available", lambda: 1_000_000)
    with pytest.raises(ModelError, match=r"run\.npz.* needs 3\.08 MB of memory, and 1 MB are available"):
        load(path)


# Places ---------------------------------------------------------------------------------------------------------------


def test_non_regular_file_is_neither_read_nor_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    whole = recording(sensor("imu"))
    for name, kind in (("folder", "folder"), ("pipe", "pipe"), ("link", "pipe"), ("/dev/null", "character device")):
        for use in (whole.save, load):
            with pytest.raises(ModelError, match=f"is a {kind}, expected a regular file"):
                use(tmp_path / name)
    assert (tmp_path / "folder").is_dir() and (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "run.npz"
    link.symlink_to("there/true.npz")
    whole = recording(sensor("imu"))
    for _ in range(2):  # the file is created, then replaced
        assert whole.save(link) == link
        assert link.is_symlink() and not (tmp_path / "there/true.npz").is_symlink()
        assert same(load(link), whole)


# Names ----------------------------------------------------------------------------------------------------------------


def test_every_name_round_trips(tmp_path: Path) -> None:
    """Sensors and fields of any names survive; no key of the file leads out of a folder or equals another."""
    names = dict.fromkeys(ODD)
    fields = tuple(dict.fromkeys(each for each in ODD if each != "A"))
    saved = recording(*(sensor(name, fields=fields) for name in names))
    path = saved.save(tmp_path / "run.npz")
    assert same(load(path), saved)
    with zipfile.ZipFile(path) as archive:
        keys = archive.namelist()
    assert len(set(keys)) == len(keys)
    for key in keys:
        assert key.isprintable() and "\\" not in key and not {"", ".", ".."} & {*key.removesuffix(".npy").split("/")}


def test_keys_are_unique_and_keep_plain_names() -> None:
    assert key_of("robot/imu") == "robot/imu" and key_of("lin_acc_b", slashes=False) == "lin_acc_b"
    for slashes in (True, False):
        keys = [key_of(name, slashes=slashes) for name in ODD]
        assert len(set(keys)) == len(ODD) and [name_of(key) for key in keys] == list(ODD)


def test_sensor_missing_in_the_description_is_kept(tmp_path: Path) -> None:
    """For example, it was removed from its scene before the description was created."""
    from test_npz import described, reading

    recorder = NpzRecorder()
    recorder.add(reading(0, name="gone"))
    path = recorder.save(tmp_path / "run.npz", {**described(None), "sensors": {}})
    assert [*load(path)] == ["gone"] and json.loads(json.dumps(load(path).description))["sensors"] == {"gone": {}}
