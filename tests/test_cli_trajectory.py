"""Commands with --trajectory: data sets, services and views without a simulator, and errors that name the options."""

from __future__ import annotations

import contextlib
import itertools
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from rosbags.rosbag2 import Reader

import sensorium as sn
from sensorium.cli import main
from sensorium.cli.commands import Run
from sensorium.cli.simulation import simulate
from sensorium.demo import hall
from sensorium.jobs.drives import drive_of
from sensorium.record import NpzRecorder, load

RIG = """
[[sensor]]
kind = "imu"
name = "imu"
body = "body"
rate_hz = 100.0
acceleration = "engine"

[[sensor]]
kind = "ray_caster"
name = "ranges"
body = "body"
rate_hz = 10.0
max_distance = 50.0
pattern = { kind = "spherical", fov = [360.0, 90.0], n_points = [16, 8] }
"""


def run(folder: Path, *options: str) -> int:
    path = folder / "rig.toml"
    path.write_text(RIG, encoding="utf-8")
    return main(["run", "--rig", str(path), "--out", str(folder / "out"), *options])


def test_a_trajectory_file_and_a_mesh_file_become_a_recording(tmp_path: Path) -> None:
    """A straight flight of 0.2055 s at 2 m/s, 2 m above a floor, with a gap; the last, incomplete step is omitted."""
    lines = [f"1305031098.{t:06d} {2e-6 * t:.9f} 0 2 0 0 0 1" for t in (0, 5000, 10000, 15000, 205500)]
    (tmp_path / "path.tum").write_text("\n".join(lines), encoding="utf-8")
    floor = "v -50 -50 0\nv 50 -50 0\nv 50 50 0\nv -50 50 0\nf 1 2 3 4\n"
    (tmp_path / "floor.obj").write_text(floor, encoding="utf-8")
    options = ("--trajectory", str(tmp_path / "path.tum"), "--world", str(tmp_path / "floor.obj"), "--envs", "2")
    assert run(tmp_path, *options) == 2 and run(tmp_path, *options, "--max-gap", "0.2") == 0
    recorded = load(tmp_path / "out/readings.npz")
    assert recorded.description["engine"] == "trajectory" and recorded.description["num_envs"] == 2
    imu, ranges = recorded["imu"], recorded["ranges"]
    np.testing.assert_allclose(imu.time, np.arange(21) * 0.01, atol=1e-9)
    np.testing.assert_allclose(imu.truth["lin_acc_b"], np.broadcast_to([0.0, 0.0, 9.81], (21, 2, 3)), atol=1e-4)
    hits = ranges.truth["distances"]
    assert hits.shape == (3, 2, 128) and np.isclose(hits[np.isfinite(hits)].min(), 2.0 * np.sqrt(2.0), atol=1e-3)


def test_exports_of_a_recording_have_the_times_of_the_trajectory_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that evo and other tools find the poses of equal times; tables hold the date."""
    lines = [f"{1305031098 + k}.123456789 {k} 0 2 0 0 0 1" for k in range(4)]
    (tmp_path / "path.tum").write_text("\n".join(lines), encoding="utf-8")
    file = str(tmp_path / "run.mcap")
    options = ("--trajectory", str(tmp_path / "path.tum"), "--world", "hall", "--seconds", "1")
    assert run(tmp_path, *options, "--record", file) == 0
    for form, path in (("tum", "imu.tum"), ("euroc", "mav0/imu0/data.csv")):
        assert main(["export", file, "--to", str(tmp_path / form), "--format", form]) == 0
        (_, first, *_, last) = (tmp_path / form / path).read_text(encoding="utf-8").splitlines()
        stamps = [line.replace(",", " ").split()[0].replace(".", "") for line in (first, last)]
        assert stamps == ["1305031098123456789", "1305031099123456789"]
    assert main(["export", file, "--to", str(tmp_path / "csv"), "--format", "csv"]) == 0
    assert json.loads((tmp_path / "csv/description.json").read_text())["start_ns"] == 1305031098123456789
    assert "1305031098123456789" not in capsys.readouterr().out
    assert main(["export", file, "--to", str(tmp_path / "bag"), "--format", "rosbag2"]) == 0
    with Reader(tmp_path / "bag") as bag:
        assert bag.start_time == 1305031098123456789
    other = sn.Trajectory([0.0, 1.0, 2.0, 3.0], np.zeros((4, 3)), np.tile([1.0, 0.0, 0.0, 0.0], (4, 1)))
    assert sn.TrajectoryEngine([tmp_path / "path.tum", other]).start_ns == 0


def test_a_run_records_each_sample_and_arrival_without_a_stop_at_every_tick(tmp_path: Path) -> None:
    """NPZ and MCAP files have the rows of a loop that publishes at every tick, with delay, jitter and loss."""
    late: dict[str, Any] = {"body": "body", "rate_hz": 50.0, "gyro_noise": 0.01}
    cfgs = [
        sn.ImuCfg(name="prompt", body="body", rate_hz=30.0),
        sn.ImuCfg(name="late", delay=0.0123, **late),
        sn.ImuCfg(name="lossy", delay=0.003, jitter=0.002, loss=sn.GilbertElliott(0.2, 0.5), **late),
    ]
    made = [sn.Scene(sn.TrajectoryEngine(hall.drone(), num_envs=2), cfgs) for _ in range(3)]
    stops: list[int] = []
    made[1].watch(lambda: stops.append(made[1].tick))
    recorders = [NpzRecorder(), NpzRecorder()]
    recorders[0].add_all(made[0].publish())
    for _ in range(500):
        made[0].step()
        recorders[0].add_all(made[0].publish())
    assert simulate(made[1], lambda scene, time: None, 40, 500, recorders[1])
    with made[2].record(tmp_path / "run.mcap") as recorder:
        made[2].watch(lambda: stops.append(made[2].tick))
        made[2].step(substeps=500)
    assert not recorder.failed and len(stops) < 500
    expected, *others = (each.recording(made[0].description()) for each in recorders)
    with sn.replay(tmp_path / "run.mcap") as replay:
        others.append(replay.recording())
    for recording, name in itertools.product(others, expected):
        for part in ("time", "capture_time", "truth_time", "valid"):
            np.testing.assert_array_equal(getattr(recording[name], part), getattr(expected[name], part), err_msg=name)
        for branch, field in itertools.product(("measured", "truth"), expected[name].truth):
            values = (getattr(each[name], branch)[field] for each in (recording, expected))
            np.testing.assert_array_equal(*values, err_msg=name)


def test_poses_of_kitti_and_repeated_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A camera that moves along its own z axis, and the same path with a repeated pose."""
    lines = [f"1 0 0 0 0 1 0 0 0 0 1 {0.2 * k}" for k in range(4)]
    (tmp_path / "00.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "stamps").write_text("5\n5.1\n5.2\n5.3\n", encoding="utf-8")
    tum = [f"5.{k} {0.2 * k} 0 0 0 0 0 1\n" for k in (0, 1, 1, 2, 3)]
    (tmp_path / "path.tum").write_text("".join(tum), encoding="utf-8")
    kitti, repeated = ("--trajectory", str(tmp_path / "00.txt")), ("--trajectory", str(tmp_path / "path.tum"))
    for options, words in ((kitti, "--rate 10 or --times FILE"), (repeated, "--drop-repeated")):
        assert run(tmp_path, *options) == 2 and words in " ".join(capsys.readouterr().err.split())
    assert run(tmp_path, *kitti, "--rate", "0") == 2 and "got the rate 0" in capsys.readouterr().err
    for reading in (
        Run(trajectory=kitti[1], rate=10.0),
        Run(trajectory=kitti[1], times=str(tmp_path / "stamps")),
        Run(trajectory=repeated[1], drop_repeated=True),
    ):
        drive = reading.drive()
        assert drive is not None
        np.testing.assert_allclose(drive.trajectory.at([0.0, 0.25]).pos, [[0, 0, 0], [0.5, 0, 0]], atol=1e-9)


@pytest.mark.parametrize("name", ["drone", "car"])
def test_bundled_names(name: str, tmp_path: Path) -> None:
    assert run(tmp_path, "--trajectory", name, "--world", "hall", "--seconds", "0.1") == 0
    recorded = load(tmp_path / "out/readings.npz")
    start = getattr(hall, name)().at(0.0)
    np.testing.assert_allclose(recorded["imu"].truth["ang_vel_b"][0, 0], start.ang_vel[0], atol=1e-3)
    hits = recorded["ranges"].truth["distances"][0, 0]
    assert np.isfinite(hits).mean() > 0.8 and hits.min() > 0.25
    lights = drive_of(name, "hall").engine(1, "cpu").lighting().lights
    assert lights == hall.lighting().lights and not any(light.kind == "head" for light in lights)


def test_explain_describes_a_rig_on_a_trajectory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The world's meshes are among the shapes that rays hit; a short trajectory is also long enough for --time."""
    lines = [f"{0.02 * k} {k} 0 2 0 0 0 1" for k in range(4)]
    (tmp_path / "path.tum").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "rig.toml").write_text(RIG, encoding="utf-8")
    options = ("--trajectory", str(tmp_path / "path.tum"), "--world", "hall", "--rig", str(tmp_path / "rig.toml"))
    assert main(["explain", *options, "--envs", "2", "--time", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert (described["engine"], described["dt"], described["num_envs"]) == ("trajectory", 0.001, 2)
    assert described["model"] == str(tmp_path / "path.tum")
    hit = {shape["name"]: shape["moves"] for shape in described["sensors"]["ranges"]["rays"]["shapes"]}
    assert hit == {shape.name: False for shape in hall.shapes()}
    assert described["sensors"]["imu"]["mounts"] == [{"name": "body", "body": "body"}]
    assert described["cost"]["ticks"] == 59 and list(described["cost"]["sensors_s"]) == ["imu", "ranges"]
    (tmp_path / "path.tum").write_text("\n".join([*lines, "3.0 4 0 2 0 0 0 1"]), encoding="utf-8")
    assert main(["explain", *options]) == 2 and "--max-gap" in capsys.readouterr().err
    assert main(["explain", *options, "--max-gap", "3"]) == 0
    assert main(["explain", str(tmp_path / "robot.xml"), *options]) == 2
    assert "expected no value with --trajectory" in capsys.readouterr().err


def test_serve_stops_and_view_waits_at_the_end_of_a_trajectory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page starts it again with a reset."""
    lines = [f"{0.02 * k} {k} 0 2 0 0 0 1" for k in range(4)]
    (tmp_path / "path.tum").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "rig.toml").write_text(RIG, encoding="utf-8")
    options = ["--trajectory", str(tmp_path / "path.tum"), "--world", "hall", "--rig", str(tmp_path / "rig.toml")]
    assert main(["serve", *options, "--address", "tcp://127.0.0.1:0", "--speed", "0", "--substeps", "7"]) == 0
    said = capsys.readouterr().out
    assert "path.tum: 1 env, 1 ms per tick" in said and "ranges" in said

    class Opened(contextlib.nullcontext[None]):
        """A page that is reset at the end of the trajectory, and closed at the next one."""

        ends: ClassVar[list[int]] = []

        def __init__(self, scene: sn.Scene, **options: object) -> None:
            super().__init__()
            self.scene = scene

        def __enter__(self) -> Any:
            return self

        @property
        def is_closed(self) -> bool:
            return len(self.ends) == 2

        def wait(self, seconds: float) -> None:
            self.ends.append(self.scene.tick)
            self.scene.reset()

    monkeypatch.setattr("sensorium.view.live.handle.LiveView", Opened)
    assert main(["view", *options]) == 0
    assert Opened.ends == [60, 120]


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (("view",), ["MODEL, --trajectory: got None"]),
        (("serve",), ["MODEL, --trajectory, --replay: got ''", "expected a model, a trajectory or a recording"]),
        (("view", "run.mcap", "--world", "hall"), ["--world: got 'hall'", "Add --trajectory"]),
        (("view", "demo", "--trajectory", "car"), ["MODEL: got 'demo', expected no value with --trajectory"]),
        (("serve", "demo", "--trajectory", "car"), ["MODEL: got 'demo', expected no value with --trajectory"]),
        (("serve", "demo", "--max-gap", "1"), ["--max-gap: got 1.0", "Add --trajectory"]),
        (("serve", "--trajectory", "car", "--control", "client"), ["--control: got 'client'"]),
        (("serve", "--trajectory", "car", "--replay", "run.mcap"), ["MODEL, --replay: got 'car --replay run.mcap'"]),
        (("serve", "--world", "hall", "--replay", "run.mcap"), ["--world: got 'hall'", "no --world with --replay"]),
    ],
)
def test_options_that_do_not_fit_a_service_or_a_view(
    args: tuple[str, ...], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*args]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("error:") == 1 and "Traceback" not in said
    for part in parts:
        assert part in said


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ((), ["MODEL, --trajectory: got None"]),
        (("--world", "hall"), ["--world: got 'hall'", "Add --trajectory"]),
        (("--max-gap", "1"), ["--max-gap: got 1.0", "Add --trajectory"]),
        (("--drop-repeated",), ["--drop-repeated: got True", "Add --trajectory"]),
        (("robot.xml", "--trajectory", "car"), ["MODEL: got 'robot.xml', expected no value with --trajectory"]),
        (("--trajectory", "car", "--control", "random"), ["--control: got 'random'"]),
        (("--trajectory", "car", "--engine", "newton"), ["--engine: got 'newton'"]),
        (("--trajectory", "car", "--seconds", "1000"), ["--seconds: got 1000.0, expected at most 68.8 s"]),
        (("--trajectory", "carr"), ["trajectory file 'carr' does not exist"]),
        (("--trajectory", "car", "--world", "hal.obj"), ["'hal.obj' does not exist"]),
    ],
)
def test_options_that_do_not_fit(
    options: tuple[str, ...], parts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *options) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("error:") == 1 and "Traceback" not in said
    for part in parts:
        assert part in said
