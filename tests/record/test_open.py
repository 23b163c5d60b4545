"""One call opens every kind of recording, and the other calls name it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import sensorium as sn
from sensorium.cli import main
from sensorium.errors import ModelError
from sensorium.record import NpzRecorder, Recording, Replay, load
from sensorium.record.bags import BagReplay
from tests.record.mcap_scenes import scene
from tests.record.test_bags import gyro, write_all


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same run in an MCAP and in an npz file, and a folder with a bag."""
    folder, made, recorder = tmp_path_factory.mktemp("recordings"), scene(), NpzRecorder()
    with made.record(folder / "run.mcap"):
        for _ in range(20):
            made.update()
            recorder.add_all(made.publish())
    recorder.save(folder / "run.npz", made.description())
    rosbags = pytest.importorskip("rosbags.rosbag2")
    write_all(folder / "bag", rosbags.StoragePlugin.MCAP, [(0, "/imu", gyro(0.5, 10**18))])
    write_all(folder / "old", rosbags.StoragePlugin.SQLITE3, [(0, "/imu", gyro(0.5, 10**18))])
    return folder


def alone(file: Path, folder: Path, name: str = "") -> Path:
    """Return a folder with one file."""
    folder.mkdir()
    shutil.copy(file, folder / (name or file.name))
    return folder


def test_open_returns_what_the_loader_of_the_kind_returns(files: Path, tmp_path: Path) -> None:
    npz, mcap = files / "run.npz", files / "run.mcap"
    for path in (npz, alone(npz, tmp_path / "a"), alone(npz, tmp_path / "b", "run") / "run"):
        opened = sn.open(path)
        assert isinstance(opened, Recording)
        np.testing.assert_array_equal(opened["imu"].measured["ang_vel_b"], load(npz)["imu"].measured["ang_vel_b"])
    for path in (mcap, alone(mcap, tmp_path / "c"), alone(mcap, tmp_path / "d", "run") / "run"):
        with sn.open(str(path)) as replay, sn.replay(mcap) as expected:  # type: ignore[union-attr]
            assert type(replay) is Replay and replay.counts == expected.counts and replay.counts["imu"] > 20
    (bag,), (old,) = (files / "bag").glob("*.mcap"), (files / "old").glob("*.db3")
    for path in (files / "bag", bag, files / "old", old, alone(bag, tmp_path / "e"), alone(old, tmp_path / "f")):
        with sn.open(path) as replay:  # type: ignore[union-attr]
            assert type(replay) is BagReplay and [each["ang_vel_b"][0, 2] for each in replay.readings()] == [0.5]


def test_wrong_loaders_name_the_right_call(files: Path, tmp_path: Path) -> None:
    for path in (files / "run.mcap", files / "bag"):
        with pytest.raises(ModelError, match=r"(not a recording in an npz file|is a folder).*sensorium\.open"):
            load(path)
    with pytest.raises(ModelError, match=r"sensorium\.record\.load or sensorium\.open"):
        sn.replay(files / "run.npz")
    with pytest.raises(ModelError, match=r"got run\.mcap, run\.npz\. Give the path of a file"):
        sn.open(files)
    with pytest.raises(ModelError, match="got none"):
        sn.open(tmp_path)
    for name in ("none.npz", "none.mcap", "none.db3", "none"):
        with pytest.raises(ModelError, match="does not exist"):
            sn.open(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "head", "part"),
    [
        ("old.bag", b"#ROSBAG V2.0\n", r"a ROS 1 bag\. Convert it: .* rosbags-convert --src .*old\.bag --dst old"),
        ("old.db3", b"#ROSBAG V2.0\n", "a ROS 1 bag"),
        ("clip.mp4", b"\0\0\0\x20ftypisom", "a video, which has no readings. Give the recording or the bag"),
        ("clip.mcap", b"\x1a\x45\xdf\xa3", "a video"),
        ("layout.json", b'{"layout": 1}', "a JSON file, such as a layout of Foxglove"),
        ("bag.sqlite3", b"SQLite format 3\0", r"a SQLite file\. If it is a ROS 2 bag, rename it to bag\.db3"),
        ("notes.txt", b"hello", r"not an MCAP file\. Give a recording"),
    ],
)
def test_other_files_are_named_with_what_to_do(name: str, head: bytes, part: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(head + bytes(99))
    for read in (sn.open, sn.replay):
        with pytest.raises(ModelError, match=part):
            read(path)
    if name == "old.bag":
        with pytest.raises(ModelError, match=r"not a recording in an npz file, but a ROS 1 bag\."):
            load(path)
        with pytest.raises(ModelError, match=r"a folder without metadata\.yaml, .* got old\.bag"):
            sn.open(tmp_path)


def test_a_bag_whose_writer_was_killed_names_repair(files: Path, tmp_path: Path) -> None:
    """As a file, and in a folder with and without the list of files."""
    (bag,) = (files / "bag").glob("*.mcap")
    folder = alone(bag, tmp_path / "bag")
    file = folder / bag.name
    file.write_bytes(bag.read_bytes()[:-4])
    for path in (file, folder):
        with pytest.raises(ModelError, match=rf"sensorium repair {file} \(with --in-place"):
            sn.open(path)
    shutil.copy(files / "bag/metadata.yaml", folder)
    with pytest.raises(ModelError, match=f"sensorium repair {file}"):
        sn.open(folder)
    assert main(["repair", str(file), "--in-place"]) == 0
    with sn.replay(folder) as replay:
        assert len(list(replay)) == 1


def test_commands_take_folders_and_bags(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (alone(files / "run.mcap", tmp_path / "a"), files / "bag"):
        for command in (["replay"], ["report"], ["export", "--to", str(tmp_path / "out"), "--format", "csv"]):
            assert main([command[0], str(path), *command[1:]]) == 0
            assert "imu" in capsys.readouterr().out or command[0] == "export"
        assert (tmp_path / "out/imu.measured.csv").exists()
        shutil.rmtree(tmp_path / "out")
    assert main(["export", str(files / "bag"), "--to", str(tmp_path / "euroc"), "--format", "euroc"]) == 0
    assert "rate_hz: 0" in (tmp_path / "euroc/mav0/imu0/sensor.yaml").read_text()  # of a single message
    assert main(["report", str(alone(files / "run.npz", tmp_path / "b"))]) == 0
    assert "imu" in capsys.readouterr().out
