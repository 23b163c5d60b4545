"""Tables hold each sample of the readings once, and agree with them when the csv module, NumPy or pyarrow read them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap_scenes import following, scene

import sensorium as sn
from sensorium.errors import ArgumentError
from sensorium.readings import Reading
from sensorium.record.export import table_files, tables, write_tables
from sensorium.record.staging import staged
from sensorium.spec import FieldSpec

DT = 0.002
FORMATS = ("csv", "npz", "parquet")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Reading]:
    """The readings of three of five environments, with delays, resets and two mounts."""
    path, made = tmp_path_factory.mktemp("tables") / "run.mcap", scene()
    with made.record(path, envs=[0, 1, 3]):
        for tick in range(90):
            made.update()
            if tick in (50, 51):
                made.reset([3])
    with sn.replay(path) as replay:
        return list(replay)


def read(path: Path) -> dict[str, list[Any]]:
    """Return column -> values, as an independent reader returns them."""
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            head, *rows = csv.reader(file)
        return {name: [float(row[place]) for row in rows] for place, name in enumerate(head)}
    if path.suffix == ".parquet":
        found = pytest.importorskip("pyarrow.parquet").read_table(path)
        return {name: found[name].to_numpy().tolist() for name in found.column_names}
    columns: dict[str, list[Any]] = {}
    with np.load(path, allow_pickle=False) as file:
        for name in file.files:
            for index in np.ndindex(file[name].shape[1:]):
                columns[".".join((name, *map(str, index)))] = file[name][(slice(None), *index)].tolist()
    return columns


def samples(readings: list[Reading], name: str, branch: str) -> Iterator[tuple[Reading, int, int]]:
    """Yield (reading, row, tick) of each sample, found one by one."""
    last: dict[int, tuple[int, int]] = {}
    for reading in readings:
        if reading.name != name:
            continue
        for row, env in enumerate(reading.env_ids.tolist()):
            if branch == "measured" and not reading.valid[row]:
                last[env] = (-1, int(reading.captures[row]))
                continue
            tick = int((reading.capture_tick if branch == "measured" else reading.truth_tick)[row])
            frame = int(reading.captures[row])
            before = last.get(env, (-1, -1))
            last[env] = (tick, frame)
            if tick != before[0] or frame < before[1]:
                yield reading, row, tick


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("block", [1, 7, 512])
def test_each_sample_is_a_row(
    file_format: str, block: int, recorded: list[Reading], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "BLOCK_READINGS", block)
    if file_format == "parquet":
        pytest.importorskip("pyarrow")
    assert write_tables(recorded, tmp_path, file_format, dt=DT) == []
    names = {"imu": "imu", "robot/state": "robot%2Fstate"}
    assert {each.name for each in tmp_path.iterdir()} == {
        f"{stem}.{branch}.{file_format}" for stem in names.values() for branch in ("measured", "truth")
    }
    for name, stem in names.items():
        for branch in ("measured", "truth"):
            found = read(tmp_path / f"{stem}.{branch}.{file_format}")
            expected: list[list[float]] = []
            for reading, row, tick in samples(recorded, name, branch):
                values: list[float] = [int(reading.env_ids[row]), tick, tick * DT]
                if branch == "measured":
                    assert reading.pose is not None
                    values += [reading.stamp[row], reading.time]
                    values += [*reading.pose[row][:, :3].ravel(), *reading.pose[row][:, 3:].ravel()]
                of_branch = reading.measured if branch == "measured" else reading.truth
                values += [each for field in of_branch.values() for each in np.ravel(field[row])]
                expected.append([float(each) for each in values])
            assert len(expected) > (150 if name == "imu" else 25)
            got = [list(row) for row in zip(*found.values(), strict=True)]
            exact = np.array(got, np.float32) if file_format == "csv" else np.array(got)
            wanted = np.array(expected, exact.dtype)
            np.testing.assert_array_equal(exact, wanted)
            for exactly in ("env", "tick", "time"):
                place = [*found].index(exactly)
                assert found[exactly] == [row[place] for row in expected]


def test_names_of_columns(recorded: list[Reading], tmp_path: Path) -> None:
    write_tables(recorded, tmp_path, "csv", dt=DT, env=3)
    with (tmp_path / "imu.truth.csv").open() as file:
        head = file.readline().strip().split(",")
    assert head[:3] == ["env", "tick", "time"]
    assert head[3:9] == [f"ang_vel_b.{mount}.{axis}" for mount in range(2) for axis in "xyz"]
    found = read(tmp_path / "robot%2Fstate.measured.csv")
    assert {"quat_w.w", "quat_w.z", "pose_quat.0.w", "pos_w.x", "stamp", "arrival"} <= found.keys()
    assert set(found["env"]) == {3.0}


def event_reading(tick: int, counts: list[int], rng: np.random.Generator, name: str = "dvs") -> Reading:
    specs = (
        FieldSpec("num", (), (), "int32", "1", "", "id", "scalar"),
        FieldSpec("time", ("event",), (9,), "float64", "s", "", "derived", "scalar"),
        FieldSpec("pixel", ("event", "pixel"), (9, 2), "uint16", "1", "", "id", "scalar"),
        FieldSpec("on", ("event",), (9,), "bool", "1", "", "flag", "scalar"),
        FieldSpec("half", ("weird,name",), (1,), "float16", "1", "", "vector", "scalar"),
    )
    rows, envs = sum(counts), len(counts)
    values = {
        "num": np.array(counts, np.int32),
        "time": rng.random(rows),
        "pixel": rng.integers(0, 65535, (rows, 2)).astype(np.uint16),
        "on": rng.random(rows) < 0.5,
        "half": np.array([[math.inf], [math.nan], [0.1]], np.float16)[:envs],
    }
    ids = np.arange(envs)
    meta = {
        "capture_tick": np.full(envs, tick), "valid": np.ones(envs, bool), "is_new": np.ones(envs, bool),
        "frame": np.full(envs, tick),
    }  # fmt: skip
    offsets = np.concatenate(([0], np.cumsum(counts)))
    return Reading(name, "dvs", specs, ids, tick, tick * DT, values, {}, meta, _offsets=offsets, _dt=DT)


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("env", [None, 1])
def test_events_have_a_row_each(file_format: str, env: int | None, tmp_path: Path) -> None:
    if file_format == "parquet":
        pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    readings = [event_reading(tick, counts, rng) for tick, counts in enumerate(([2, 0, 3], [0, 0, 0], [1, 4, 0]))]
    assert write_tables(readings, tmp_path, file_format, dt=DT, env=env) == []
    found = read(tmp_path / f"dvs.measured.events.{file_format}")
    expected = [
        [row, reading.tick, reading["time"][event], *reading["pixel"][event].tolist(), bool(reading["on"][event])]
        for reading in readings for row in range(3) if env in (None, row)
        for event in range(*reading.rows(row).indices(99))
    ]  # fmt: skip
    got = zip(*(found[name] for name in ("env", "tick", "time_", "pixel.0", "pixel.1", "on")), strict=True)
    assert [list(row) for row in got] == expected and len(expected) == (10 if env is None else 4)
    captures = read(tmp_path / f"dvs.measured.{file_format}")
    half = np.array(captures["half.0"], np.float16)
    np.testing.assert_array_equal(half, np.concatenate([each["half"][[*range(3)] if env is None else [env], 0]
                                                        for each in readings]))  # fmt: skip
    assert len(captures["num"]) == (9 if env is None else 3) and "pixel.0" not in captures


def test_fields_that_do_not_fit_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_COLUMNS", 1)
    reading = event_reading(1, [1, 2], np.random.default_rng(0))
    (note,) = write_tables([reading], tmp_path, "csv", dt=DT)
    assert "dvs: pixel has 2 values per row" in note and "--format npz" in note
    assert "time_" in read(tmp_path / "dvs.measured.events.csv")
    assert write_tables([reading], tmp_path, "npz", dt=DT) == []


def test_a_sensor_that_changes_starts_new_files(recorded: list[Reading], tmp_path: Path) -> None:
    """Also if another sensor has the name of such a file; and long names are shortened to different ones."""
    rng = np.random.default_rng(0)
    order = (("a.2", 1), ("a", 1), ("a", 2), ("a", 2), ("../a", 1), ("é" * 150 + "x", 1), ("é" * 150 + "y", 1))
    readings = [event_reading(tick, [1] * envs, rng, name)
                for tick, (name, envs) in enumerate(order)]  # fmt: skip
    with staged(tmp_path) as root:  # as the logs of a recording, which are written after its sensors
        write_tables(readings[:2], root, "csv", dt=DT)
        write_tables(readings[2:], root, "csv", dt=DT)
    lines = {
        path.name: len(path.read_text().splitlines()) - 1 for path in tmp_path.iterdir() if "events" not in path.name
    }
    long = sorted(name for name in lines if name.startswith("é"))
    assert [lines.pop(name) for name in long] == [1, 1] and max(len(name.encode()) for name in long) < 255
    assert lines == {"a.2.measured.csv": 1, "a.measured.csv": 1, "a.3.measured.csv": 4, "..%2Fa.measured.csv": 1}
    assert not (tmp_path.parent / "a.measured.csv").exists()


def test_an_environment_that_was_not_recorded_is_an_error(recorded: list[Reading], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"env: got 2, expected one of the recorded environments \[0, 1, 3\]"):
        write_tables(recorded, tmp_path, "csv", dt=DT, env=2)


def test_parquet_has_units(recorded: list[Reading], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_tables(recorded, tmp_path, "parquet", dt=DT)
    field = parquet.read_schema(tmp_path / "imu.truth.parquet").field("ang_vel_b.1.y")
    assert field.metadata == {b"unit": b"rad/s", b"frame": b"sensor"} and str(field.type) == "float"


def test_live_readings_give_the_same_tables(tmp_path: Path) -> None:
    made = scene(2)
    with following(made) as live, made.record(tmp_path / "run.mcap"):
        for _ in range(40):
            made.update()
    (tmp_path / "live").mkdir()
    (tmp_path / "replayed").mkdir()
    with sn.replay(tmp_path / "run.mcap") as replay:
        write_tables(replay, tmp_path / "replayed", "csv", dt=DT)
    write_tables(live, tmp_path / "live", "csv", dt=DT)
    for path in (tmp_path / "live").iterdir():
        assert path.read_text() == (tmp_path / "replayed" / path.name).read_text()
    assert table_files.FILES.keys() == set(FORMATS)
