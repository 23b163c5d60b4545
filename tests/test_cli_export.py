"""`sensorium export`: what it writes, reports and rejects."""

from __future__ import annotations

import csv
import errno
import json
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

import sensorium as sn
from sensorium.cli import main
from sensorium.cli.exports import Format
from sensorium.record import Replay
from sensorium.record.mcap_file import McapFile

DT = 0.002


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two environments with an IMU that has two mounts, a state and a logged value."""
    path = tmp_path_factory.mktemp("export") / "run.mcap"
    engine = sn.TensorEngine(num_envs=2, dt=DT, bodies=["base", "arm"])
    imu = sn.ImuCfg(name="imu", body="base", gyro_noise=0.01, delay=0.006, fields=("ang_vel_b", "lin_acc_b"))
    scene = sn.Scene(engine, [imu, sn.BodyStateCfg(name="state", bodies=["base", "arm"], rate_hz=50.0)], seed=3)
    with scene.record(path) as recorder:
        for tick in range(50):
            scene.update()
            recorder.log("reward", np.array([tick, -tick], np.float32))
        recorder.mark("task", "wait")
    return path


def export(recording: Path, *options: object) -> int:
    return main(["export", str(recording), *map(str, options)])


def test_tables_with_logs_and_description(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(recording, "--to", tmp_path / "new/csv", "--format", "csv", "--start", 0.02, "--end", 0.05) == 0
    out = capsys.readouterr().out
    assert "wrote" in out and "not exported: shapes of the world" in out and "marks" not in out
    with (tmp_path / "new/csv/log.reward.measured.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["value"]) for row in rows if row["env"] == "1"] == [-float(tick) for tick in range(9, 25)]
    about = json.loads((tmp_path / "new/csv/description.json").read_text())
    assert about["marks"][-1] == {"time": 0.1, "tick": 50, "env_ids": [0, 1], "name": "task", "value": "wait"}
    assert about["sensors"]["imu"]["fields"][0]["unit"] == "rad/s" and about["dt"] == DT
    with (tmp_path / "new/csv/imu.measured.csv").open() as file:
        times = {float(row["arrival"]) for row in csv.DictReader(file)}
    assert min(times) == pytest.approx(0.02) and max(times) == pytest.approx(0.05)


def test_a_sensor_and_an_environment(recording: Path, tmp_path: Path) -> None:
    assert export(recording, "--to", tmp_path, "--format", "npz", "--sensor", "imu", "--env", 1) == 0
    assert {each.name for each in tmp_path.iterdir()} == {"imu.measured.npz", "imu.truth.npz", "description.json"}
    with np.load(tmp_path / "imu.measured.npz") as found, sn.replay(recording) as replay:
        last = replay.at(replay.end)["imu"]
        assert set(found["env"]) == {1} and found["ang_vel_b"].shape[1:] == (3,)
        np.testing.assert_array_equal(found["ang_vel_b"][-1], last["ang_vel_b"][1])


def test_tum_and_euroc_of_one_environment(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(recording, "--to", tmp_path, "--format", "tum", "--env", 1) == 0
    out = capsys.readouterr().out
    assert "not exported: environments 0; choose one with --env" in out
    assert "state: mounts after the first, base" in out and "reward, marks; --format csv" in out
    assert len((tmp_path / "state.tum").read_text().splitlines()) == 1 + 6
    assert export(recording, "--to", tmp_path, "--format", "euroc") == 0
    with (tmp_path / "mav0/imu0/data.csv").open() as file:
        stamps = [int(row[0]) for row in csv.reader(file) if not row[0].startswith("#")]
    with sn.replay(recording) as replay:
        arrived = {int(each.capture_tick[0]) for each in replay.readings("imu") if each.valid[0]}
    assert stamps == [tick * 2_000_000 for tick in sorted(arrived)] and len(stamps) > 40
    truth = (tmp_path / "mav0/state_groundtruth_estimate0/data.csv").read_text().splitlines()
    assert [int(line.split(",")[0]) for line in truth[1:]] == stamps  # the body is the IMU


def messages(bag: Path) -> Iterator[tuple[str, int, Any]]:
    with Reader(bag) as reader:
        store = get_typestore(Stores.ROS2_JAZZY)
        for each in reader.connections:
            if each.msgtype not in store.types:
                store.register(get_types_from_msg(each.msgdef.data, each.msgtype))
        for connection, stamp, data in reader.messages():
            yield connection.topic, stamp, store.deserialize_cdr(data, connection.msgtype)


def test_rosbag2_is_read_by_rosbags(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The messages of both environments hold the recorded values; counts and times of the metadata are those."""
    bag = tmp_path / "bag"
    assert export(recording, "--to", bag, "--format", "rosbag2") == 0
    found: dict[str, list[Any]] = {}
    times = []
    for topic, stamp, message in messages(bag):
        found.setdefault(topic, []).append((stamp, message))
        times.append(stamp)
    with Reader(bag) as reader:
        assert reader.message_count == len(times) and reader.ros_distro == "jazzy"
        assert (reader.start_time, reader.end_time) == (min(times), max(times) + 1)
        for each in reader.connections:
            assert each.msgcount == len(found.get(each.topic, []))
        assert {each.topic for each in reader.connections} >= {"/clock", "/tf", "/env_0001/imu/data_raw"}
    for env in (0, 1):
        with sn.replay(recording) as replay:
            expected: dict[int, np.ndarray] = {}
            for reading in replay.readings("imu"):
                if reading.valid[env]:
                    expected.setdefault(int(reading.capture_tick[env]), reading["ang_vel_b"][env])
        got = found[f"/env_000{env}/imu/data_raw"]
        assert len(got) == len(expected) > 40
        for (stamp, message), (tick, rate) in zip(got, expected.items(), strict=True):
            header = message.header.stamp.sec * 10**9 + message.header.stamp.nanosec
            assert header == round(tick * DT * 1e9) and stamp >= header
            values = message.angular_velocity
            np.testing.assert_array_equal(np.array([values.x, values.y, values.z], np.float32), rate)
    assert "reward, marks; --format csv" in capsys.readouterr().out


def test_rosbag2_of_one_environment_and_sensor(recording: Path, tmp_path: Path) -> None:
    assert export(recording, "--to", tmp_path / "bag", "--format", "rosbag2", "--env", 1, "--sensor", "imu") == 0
    topics = {topic for topic, _, _ in messages(tmp_path / "bag")}
    assert "/env_0001/imu/data_raw" in topics and not any("env_0000" in each or "state" in each for each in topics)


def test_a_sensor_that_was_replaced_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = sn.Scene(sn.TensorEngine(num_envs=1, dt=DT, bodies=["base", "arm"]), [sn.ImuCfg(name="imu", body="base")])
    with scene.record(tmp_path / "run.mcap"):
        for _ in range(8):
            scene.update()
        scene.remove("imu")
        scene.add(sn.ImuCfg(name="imu", bodies=["base", "arm"]))
        for _ in range(6):
            scene.update()
    assert export(tmp_path / "run.mcap", "--to", tmp_path / "bag", "--format", "rosbag2") == 0
    assert "not exported: imu: 9 readings from before its config changed" in capsys.readouterr().out
    topics = [topic for topic, _, _ in messages(tmp_path / "bag")]
    assert "/imu/arm/data_raw" in topics and "/imu/data_raw" not in topics


def contents(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_the_source_is_never_replaced(recording: Path, tmp_path: Path) -> None:
    """A file and a bag are exported to their own folders, also through links and in all formats."""
    own = tmp_path / "own"
    own.mkdir()
    source = shutil.copy(recording, own / "own_0.mcap")
    (tmp_path / "folder").symlink_to(own)
    (tmp_path / "latest").symlink_to(source)
    for file, to in ((source, own), (source, tmp_path / "folder"), (tmp_path / "latest", own / "../own")):
        assert export(file, "--to", to, "--format", "rosbag2") == 2
        assert contents(own) == {"own_0.mcap": recording.read_bytes()}
    bag = tmp_path / "bag"
    assert export(source, "--to", bag, "--format", "rosbag2", "--env", 0) == 0
    before = contents(bag)
    (tmp_path / "again").symlink_to(bag)
    for file_format in get_args(Format):
        assert export(bag, "--to", tmp_path / "again", "--format", file_format) == 2
    assert export(bag, "--to", bag / "below", "--format", "csv") == 2
    assert contents(bag) == before and export(source, "--to", bag, "--format", "rosbag2", "--env", 0) == 0
    bag.rename(tmp_path / "moved")  # whose index names another file than an export would write
    assert export(tmp_path / "moved/bag_0.mcap", "--to", tmp_path / "moved", "--format", "rosbag2") == 2
    assert contents(tmp_path / "moved").keys() == before.keys()


@pytest.mark.parametrize("file_format", get_args(Format))
def test_a_failed_export_changes_nothing(
    file_format: str, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full after some readings; the files of an earlier export and of other programs stay as they are."""
    out = tmp_path / "out"
    export(recording, "--to", out, "--format", file_format)
    (out / "sequences").mkdir(parents=True, exist_ok=True)
    (out / "sequences/other").write_text("of another program")
    before, readings, stacks = contents(out), Replay.readings, Replay.stacks

    def fail(found: Iterator[Any]) -> Iterator[Any]:
        yield from islice(found, 3)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Replay, "readings", lambda *args: fail(readings(*args)))
    monkeypatch.setattr(Replay, "stacks", lambda *args: fail(stacks(*args)))
    for to in (out, tmp_path / "new"):
        assert export(recording, "--to", to, "--format", file_format) == 2
    assert contents(tmp_path) == {f"out/{name}": data for name, data in before.items()}
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "csv", "--env", 7), "--env: got 7, expected a recorded environment: 0, 1"),
        (("--format", "csv", "--sensor", "imo"), "imu"),
        (("--format", "kitti"), "expected a recorded lidar"),
        (("--format", "tum", "--start", 9), "no sensor has poses in this time span"),
        (("--format", "euroc", "--start", 9), "readings: got none, expected at least one"),
    ],
)
def test_errors(
    options: tuple[object, ...], message: str, recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(recording, "--to", tmp_path / "out", *options) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_an_npz_recording_is_rejected_with_the_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.npz").write_bytes(b"")
    assert export(tmp_path / "run.npz", "--to", tmp_path / "out", "--format", "csv") == 2
    assert "expected an MCAP recording" in (err := capsys.readouterr().err) and "--record FILE.mcap" in err
    assert not (tmp_path / "out").exists()


def test_files_that_are_no_recordings_or_no_folders(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "file"
    taken.write_text("x")
    for target in (taken, taken / "sub"):
        assert export(recording, "--to", target, "--format", "csv") == 2
        assert "--to" in capsys.readouterr().err
    damaged = bytearray(recording.read_bytes())
    with McapFile(recording) as file:
        chunk = next(block for block in file.blocks if block.is_chunk)
    damaged[chunk.offset + chunk.length // 2] ^= 0xFF
    (tmp_path / "damaged.mcap").write_bytes(damaged)
    for name in ("damaged.mcap", "file", "missing.mcap"):
        assert export(tmp_path / name, "--to", tmp_path / "out", "--format", "csv") == 2, name
        assert capsys.readouterr().err.count("error:") == 1


def test_pyarrow_is_named_when_it_is_missing(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert export(recording, "--to", tmp_path, "--format", "parquet") == 2
    assert "pip install 'sensorium[parquet]'" in capsys.readouterr().err
