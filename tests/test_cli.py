"""The command line: demo and run write their files, and every mistake ends with one message and exit code 2."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
from selection import gate
from test_pictures import IMAGES, check_picture, pixels

from sensorium.cli import main, simulation
from sensorium.demo import model_path
from sensorium.errors import ModelError
from sensorium.jobs.rig import load_semantics, tables_of
from sensorium.record import load
from sensorium.sensors.inertial.imu import ImuCfg

pytest.importorskip("mujoco.batch")

RIG = """
[[sensor]]
kind = "imu"
name = "torso"
body = "torso"
"""
PNG = b"\x89PNG\r\n\x1a\n"


def rig(folder: Path, text: str = RIG) -> str:
    path = folder / "rig.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def suite(name: str) -> str:
    import dm_control

    return str(Path(dm_control.__file__).parent / "suite" / name)


def run(folder: Path, *options: str, model: str = str(model_path()), text: str | None = None) -> int:
    """Run `sensorium run` with a rig on the bundled robot, by default for 20 ms."""
    text = text if text is not None else RIG.replace('"torso"\nbody = "torso"', '"trunk"\nbody = "trunk"')
    return main(["run", model, "--rig", rig(folder, text), "--out", str(folder / "out"), "--seconds", "0.02", *options])


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Omit the pictures of runs, which take most of the time."""
    monkeypatch.setattr("sensorium.cli.simulation.pictures", lambda *_: [])


def failed(capsys: pytest.CaptureFixture[str], code: int, *parts: str) -> None:
    """Check the exit code, and that stderr holds a single message with these parts."""
    out, err = capsys.readouterr()
    assert code == 2, (code, out, err)
    assert "Traceback" not in err + out
    assert err.count("error:") == 1, err
    plain = " ".join(err.split())
    for part in parts:
        assert part in plain, (part, err)
    assert "wrote" not in out


# Results --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """The result of a command: its files and its output."""

    out: Path
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A demo of three envs and two seconds with seed 3, shared by several tests."""
    out, said, noted = tmp_path_factory.mktemp("demo") / "demo", io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(noted):
        assert main(["demo", "--envs", "3", "--seconds", "2", "--out", str(out), "--seed", "3"]) == 0
    return Result(out, said.getvalue(), noted.getvalue())


def test_demo_writes_readings_and_a_picture(demo: Result) -> None:
    """A demo leaves finite truth and measurement of both IMUs, their specs, a picture and a table."""
    with np.load(demo.out / "readings.npz") as file:
        arrays = {key: file[key] for key in file.files}
    for name, captures in (("trunk", 401), ("foot", 201)):
        rows = len(arrays[f"{name}/time"])
        assert rows >= captures
        for branch in ("measured", "truth"):
            for field in ("ang_vel_b", "lin_acc_b"):
                value = arrays[f"{name}/{branch}/{field}"]
                assert value.shape == (rows, 3, 3) and value.dtype == np.float32
                assert np.isfinite(value).all()
        for key in ("capture_time", "truth_time", "valid"):
            assert arrays[f"{name}/{key}"].shape == (rows, 3)
        assert len(np.unique(arrays[f"{name}/truth_time"][:, 0])) == captures
        assert (arrays[f"{name}/capture_time"] <= arrays[f"{name}/time"][:, None]).all()
    description = json.loads(str(arrays["description"]))
    assert description["num_envs"] == 3 and description["seed"] == 3
    assert description["sensors"]["trunk"]["preset"] == "bmi088"
    assert [field["unit"] for field in description["sensors"]["foot"]["fields"]] == ["rad/s", "m/s^2"]
    for kind in ("imu", "joint", "frame_transformer", "builtin"):
        assert (demo.out / f"{kind}.png").read_bytes().startswith(PNG)
    check_picture(demo.out / "imu.png", 400_000)
    assert pixels(demo.out / "imu.png").shape == pixels(IMAGES / "imu.png").shape, "not the picture of the docs"
    assert demo.stderr == ""
    for word in ("trunk", "foot", "ang_vel_b", "m/s^2", "3x3", "200 Hz", "measured", "true", str(demo.out / "imu.png")):
        assert word in demo.stdout


def test_demo_reads_joints_feet_and_declared_sensors(demo: Result) -> None:
    """Encoders report multiples of their step, feet are below the trunk, and the feet's touch carries the weight."""
    recording = load(demo.out / "readings.npz")
    counts = recording["encoders"].measured["position"].astype(np.float64) * 2**14 / (2.0 * np.pi)
    assert counts.shape[1:] == (3, 12) and np.abs(counts - np.round(counts)).max() < 2e-3
    error = recording["encoders"].measured["position"] - recording["encoders"].truth["position"]
    assert 1e-4 < np.abs(error).max() < 0.001 + np.pi / 2**14 + 1e-6  # half the backlash, plus half a step
    feet = recording["feet"].measured["target_pos_source"]
    names = recording["feet"].info["constants"]
    assert names["target_names"] == names["target_frame_names"] == ["FL_foot", "FR_foot", "RL_foot", "RR_foot"]
    assert feet.shape[1:] == (3, 4, 3) and (feet[..., 2] < -0.2).all() and (feet[..., :2, 0] > 0.0).all()
    touch = sum(recording[f"{leg}_touch"].truth["value"][..., 0] for leg in ("FL", "FR", "RL", "RR"))
    model = mujoco.MjModel.from_xml_path(str(model_path()))
    weight = 9.81 * mujoco.mj_getTotalmass(model)
    assert touch[recording["FL_touch"].time > 1.0].mean() == pytest.approx(weight, rel=0.05)
    assert recording["trunk_velocity"].truth["value"][-250:, :, 0].mean() > 0.2


def test_demo_scans_match_the_ground(demo: Result) -> None:
    """True hits of the height scan lie on MuJoCo's ground; measured distances differ by the configured noise."""
    scan = load(demo.out / "readings.npz")["scan"]
    model = mujoco.MjModel.from_xml_path(str(model_path()))
    data = mujoco.MjData(model)
    data.qpos[0] = -50.0  # obstacles removed
    mujoco.mj_forward(model, data)
    hits = scan.truth["ray_hits_w"][::20].reshape(-1, 3)[::7].astype(np.float64)
    assert len(hits) > 300 and np.ptp(hits[:, 2]) > 0.008  # uneven
    for x, y, z in hits:
        met = mujoco.mj_ray(model, data, [x, y, 1.0], [0.0, 0.0, -1.0], None, 1, -1, np.zeros(1, np.int32))
        assert 1.0 - met == pytest.approx(z, abs=1e-4)
    errors = []
    for env in range(3):
        _, measured, truth = scan.paired("distances", env)
        errors.append((measured - truth).ravel())
    error = np.concatenate(errors)
    assert error.std() == pytest.approx(0.005, rel=4.0 / np.sqrt(2.0 * len(error)))
    assert abs(error.mean()) < 4.0 * 0.005 / np.sqrt(len(error))


def test_demo_feet_touch_the_ground_at_their_radius(demo: Result) -> None:
    """A foot that carries weight is one radius above the ground, up to its slope; in the air it is well above."""
    recording = load(demo.out / "readings.npz")
    feet = recording["clearance"]
    assert feet.info["mounts"] == ["FL_foot", "FR_foot", "RL_foot", "RR_foot"]
    radius = mujoco.MjModel.from_xml_path(str(model_path())).geom("FL_foot").size[0]
    for k, leg in enumerate(("FL", "FR", "RL", "RR")):
        touch = recording[f"{leg}_touch"]
        rows = np.searchsorted(touch.time, feet.time + 1e-6) - 1
        force, height = touch.truth["value"][rows, :, 0], feet.truth["heights"][..., k]
        held = height[force > 30.0]
        assert len(held) > 50 and radius - 0.01 < held.min() and held.max() < radius + 0.003
        assert 0.04 < height.max() < 0.1


def test_demo_lidar_loses_points_and_shows_its_range_noise(demo: Result) -> None:
    """The share of lost points is the configured share. Truth and measurement of a walking robot are both swept."""
    lidar = load(demo.out / "readings.npz")["lidar"]
    assert lidar.measured["points_b"].shape[1:] == (3, 1080, 3)
    measured, truth = lidar.measured["points_b"][5:], lidar.truth["points_b"][5:]
    is_hit = np.isfinite(truth[..., 0])
    assert is_hit.mean() > 0.9
    lost = ~np.isfinite(measured[..., 0])[is_hit]
    assert lost.mean() == pytest.approx(0.02, abs=0.01)  # only some rays of one branch leave the ground
    both = is_hit & np.isfinite(measured[..., 0])
    moved = np.linalg.norm(measured[both] - truth[both], axis=-1)
    assert np.median(moved) == pytest.approx(0.6745 * 0.02, rel=0.1)  # the range noise alone


def test_demo_camera_sees_the_labelled_ground_and_landmarks(demo: Result) -> None:
    """Labels agree with the depth, which has the configured noise; pixels of the ground lie on it; pictures and images
    of the last frame are written, and the table lists the labels.
    """
    camera = load(demo.out / "readings.npz")["head"]
    labels = camera.info["constants"]["labels"]["semantic_segmentation"]["idToLabels"]
    ids = {label["class"]: int(id) for id, label in labels.items()}
    assert {*ids} == {"BACKGROUND", "UNLABELLED", "ground", "robot", "crate", "pole"}
    seen, depth = (camera.truth[name][-1, 0, ..., 0] for name in ("semantic_segmentation", "distance_to_image_plane"))
    assert seen.shape == (48, 64) and len(camera.time) == 21
    np.testing.assert_array_equal(np.isinf(depth), seen == ids["BACKGROUND"])
    share = {label: float((camera.truth["semantic_segmentation"] == id).mean()) for label, id in ids.items()}
    assert share["ground"] > 0.4 and share["crate"] > 0.005 and share["pole"] > 0.001 and share["UNLABELLED"] == 0.0
    k, pos = camera.truth["intrinsic_matrices"][-1, 0], camera.truth["pos_w"][-1, 0]
    rows, columns = np.nonzero(seen == ids["ground"])
    rays = np.stack([np.ones(len(rows)), (k[0, 2] - columns - 0.5) / k[0, 0], (k[1, 2] - rows - 0.5) / k[1, 1]], axis=1)
    w, xyz = camera.truth["quat_w_world"][-1, 0, 0], camera.truth["quat_w_world"][-1, 0, 1:]
    points = rays * depth[rows, columns, None]
    points = pos + points + 2.0 * np.cross(xyz, np.cross(xyz, points) + w * points)
    assert np.abs(points[:, 2]).max() < 0.03  # the height of the uneven ground
    measured, truth = (branch["distance_to_image_plane"] for branch in (camera.measured, camera.truth))
    assert (measured[np.isfinite(truth)] - truth[np.isfinite(truth)]).std() == pytest.approx(0.01, rel=0.02)
    for name in ("camera", "head.distance_to_image_plane", "head.semantic_segmentation"):
        assert (demo.out / f"{name}.png").read_bytes().startswith(PNG) and f"{name}.png" in demo.stdout
    assert "ground" in demo.stdout and "of 3072 missed" in demo.stdout and " %" in demo.stdout


def test_many_numbers_are_summarised(demo: Result) -> None:
    """The table summarises a scan by its spread and its missing values, without listing hundreds of numbers."""
    words = " ".join(demo.stdout.split())
    assert re.search(r"rgb 3x48x64x3 1 r \d+ to \d+", words), "colours of 8 bits are integers"
    for word in ("3x187", "min +0.", "median +0.", "max +0.", "x +", "of 1080 missed"):
        assert word in words, word
    assert max(map(len, demo.stdout.splitlines())) <= 120 + len(str(demo.out))
    for kind in ("ray_caster", "terrain_height", "lidar"):
        picture = (demo.out / f"{kind}.png").read_bytes()
        assert picture.startswith(PNG) and len(picture) < 250_000


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0.0, "+0.000"), (-1.25, "-1.250"), (0.0005, "+0.001"), (1.3e-4, "+1.30e-04"), (-2e-7, "-2.00e-07"),
     (12345.6, "+12345.600"), (2e7, "+2.00e+07"), (float("inf"), "  +inf"), (float("nan"), "  +nan")],
)  # fmt: skip
def test_only_zero_is_shown_as_zero(number: float, shown: str) -> None:
    """The table uses metres; displacements of tenths of a millimetre must not appear as zero."""
    assert simulation._number(number) == shown


def test_shares_of_labels_are_percents_without_exponent() -> None:
    shares = [("floor", (), 0.9997), ("wall", (), 0.104), ("pole", (), 0.00028)]
    assert simulation._shares(shares).split("\n") == ["floor 100 %", "wall 10 %", "pole 0.028 %"]


@pytest.mark.parametrize(
    ("number", "other", "shown"),
    [(47.39774201, 47.39774337, "+47.3977420"), (np.float32(101325.12), np.float32(101326.5), "+101325.1"),
     (0.5, 0.5, "+0.500"), (0.5, 0.2, "+0.500"), (0.5, float("inf"), "+0.500"), (1.0, 1.0 + 1e-12, "+1.000000000")],
)  # fmt: skip
def test_differences_are_shown_with_two_digits(number: float, other: float, shown: str) -> None:
    """A position of 1e-6 deg differs visibly from the true one; no number has more digits than its type."""
    assert simulation._number(number, other) == shown


def test_demo_shows_configured_noise_and_latency(demo: Result) -> None:
    """Samples arrive after delay and jitter, in a different order per env, and differ slightly from their truth."""
    recording = load(demo.out / "readings.npz")
    for name, low, high in (("trunk", 0.004, 0.006), ("foot", 0.012, 0.016)):
        sensor = recording[name]
        for env in range(3):
            arrivals = sensor.arrivals(env)[1:]
            latency = sensor.time[arrivals] - sensor.capture_time[arrivals, env]
            assert latency.min() >= low - 1e-9 and latency.max() <= high + 0.002 + 1e-9
            captured, measured, truth = sensor.paired("ang_vel_b", env)
            assert len(captured) > 0.8 * 2.0 * sensor.info["rate_hz"]
            assert 1e-4 < (measured - truth).std() < 0.2
    last = recording["trunk"].measured["ang_vel_b"][-1]
    assert not np.array_equal(last[0], last[1])


@pytest.mark.usefixtures("no_pictures")
def test_equal_seeds_give_equal_files(tmp_path: Path, demo: Result) -> None:
    """Equal seeds give equal recordings over their common length, which are noisy."""
    assert main(["demo", "--envs", "3", "--seconds", "0.1", "--seed", "3", "--out", str(tmp_path)]) == 0
    long, same = (load(path / "readings.npz") for path in (demo.out, tmp_path))
    assert list(same) == list(long)
    for name, sensor in same.items():
        rows = len(sensor.time)
        assert 1 < rows == (long[name].time <= sensor.time[-1] + 1e-9).sum()
        for branch in ("measured", "truth"):
            for field, values in getattr(sensor, branch).items():
                assert np.array_equal(values, getattr(long[name], branch)[field][:rows]), (name, field)
    assert not np.array_equal(same["trunk"].measured["lin_acc_b"], same["trunk"].truth["lin_acc_b"])


@pytest.mark.parametrize("model", gate(["quadruped.xml", "humanoid.xml", "dog.xml"], {"humanoid.xml"}))
def test_run_on_models_of_dm_control(tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str) -> None:
    """Any MJCF model with a body named torso takes an IMU there, under any control."""
    pytest.importorskip("dm_control")
    text = RIG + 'preset = "bmi088"\nrate_hz = 100.0\ndelay = 0.01\n' + RIG.replace('name = "torso"', 'name = "clean"')
    assert run(tmp_path, "--envs", "2", "--seconds", "0.2", model=suite(model), text=text) == 0, capsys.readouterr()
    recording = load(tmp_path / "out/readings.npz")
    assert list(recording) == ["torso", "clean"]
    assert recording["torso"].measured["ang_vel_b"].shape[1:] == (2, 3)
    assert len(recording["clean"].time) == 41
    assert np.isfinite(recording["clean"].truth["lin_acc_b"]).all()
    assert (tmp_path / "out/imu.png").read_bytes().startswith(PNG)


def test_run_with_rays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rig with a pattern runs: the table counts misses, images and ids, and each kind has its picture."""
    text = """
[[sensor]]
kind = "ray_caster"
name = "sky"
body = "trunk"
pattern = {kind = "grid", size = [1.6, 1.0], direction = [0.0, 0.0, 1.0]}
targets = ["terrain"]
fields = "all"
[[sensor]]
kind = "depth_camera"
name = "camera"
site = "camera"
offset = {convention = "world"}
pattern = {kind = "pinhole_camera", width = 64, height = 48}
rate_hz = 50.0
"""
    assert run(tmp_path, text=text) == 0, capsys.readouterr()
    shown = " ".join(capsys.readouterr().out.split())
    assert "all 187 missed" in shown and "1 different, mostly -1" in shown
    assert "1x48x64x1" in shown and "of 3072 missed" in shown
    recording = load(tmp_path / "out/readings.npz")
    assert np.isinf(recording["sky"].measured["distances"]).all()
    for kind in ("ray_caster", "depth_camera"):
        assert (tmp_path / f"out/{kind}.png").read_bytes().startswith(PNG)


def test_labels_of_a_rig_are_seen_by_its_camera(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Labels of the rig select boxes and segmentations, in `run` and `explain`."""
    text = """
[semantics]
crate = "crate_.*"
"kind:ground" = ["terrain", "apron_.*"]

[[sensor]]
kind = "camera"
name = "eye"
camera = "front"
width = 32
height = 24
data_types = ["semantic_segmentation", "bounding_box_2d_tight"]
semantic_filter = "class: crate"
"""
    assert run(tmp_path, text=text) == 0, capsys.readouterr()
    shown = " ".join(capsys.readouterr().out.split())
    assert "unlabelled" in shown and "crate" in shown and "eye.bounding_box_2d_tight.png" in shown
    eye = load(tmp_path / "out/readings.npz")["eye"]
    assert int(eye.truth["bounding_box_2d_tight_count"][-1, 0]) >= 1
    assert main(["explain", str(model_path()), "--rig", rig(tmp_path, text)]) == 0
    with pytest.raises(ModelError, match=r"semantics: got \{'crate': 3\}, expected label = patterns"):
        load_semantics(Path(rig(tmp_path, "[semantics]\ncrate = 3\n" + RIG)))
    assert tables_of(Path(rig(tmp_path, "[semantics]\ncrate = 'crate_.*'\n"))) == []  # for sensors that clients spawn


@pytest.mark.usefixtures("no_pictures")
def test_hold_keeps_a_torque_driven_joint_where_it_started(tmp_path: Path) -> None:
    """A motor on a horizontal arm holds it against gravity; without control the arm falls."""
    model = tmp_path / "arm.xml"
    model.write_text(
        """<mujoco><option timestep="0.002"/><worldbody><body name="arm"><joint name="j" axis="0 1 0" damping="0.01"/>
        <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.02" mass="1"/></body></worldbody>
        <actuator><motor joint="j" gear="20" ctrlrange="-1 1"/></actuator></mujoco>"""
    )
    text = '[[sensor]]\nkind = "imu"\nbody = "arm"\nfields = ["projected_gravity_b"]\n'
    tilt = {}
    for control in ("hold", "zero"):
        assert run(tmp_path, "--seconds", "0.5", "--control", control, model=str(model), text=text) == 0
        down = load(tmp_path / "out/readings.npz")["imu"].truth["projected_gravity_b"][-1, 0]
        tilt[control] = float(np.arctan2(down[0], -down[2]))
    assert abs(tilt["hold"]) < 0.1
    assert abs(tilt["zero"]) > 1.0


def test_run_on_a_urdf(tmp_path: Path) -> None:
    """A URDF robot runs as well; links are addressed by their URDF names."""
    inertial = '<inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'
    model = tmp_path / "robot.urdf"
    model.write_text(
        f"""<robot name="swing"><link name="base">{inertial}</link><link name="arm">{inertial}
        <collision><origin xyz="0.2 0 0"/><geometry><box size="0.4 0.05 0.05"/></geometry></collision></link>
        <joint name="hinge" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>
        <limit lower="-3" upper="3" effort="10" velocity="10"/></joint></robot>"""
    )
    text = '[[sensor]]\nkind = "imu"\nlink_name = "arm"\nrate_hz = 100.0\n'
    assert run(tmp_path, "--seconds", "0.1", model=str(model), text=text) == 0
    assert load(tmp_path / "out/readings.npz")["imu"].measured["lin_acc_b"].shape == (11, 1, 3)


@pytest.mark.usefixtures("no_pictures")
def test_control_from_a_file_and_from_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Equal controls from files and a function give equal readings; random controls give different readings."""
    start = np.array([0.0, 0.8, -1.5] * 4)
    rows = start + 0.1 * np.sin(np.arange(5)[:, None])
    np.savez(tmp_path / "play.npz", ctrl=rows, dt=0.01)
    (tmp_path / "my_gait_for_test.py").write_text(
        "import numpy as np\n\ndef control(scene, t):\n"
        "    ctrl = np.array([0.0, 0.8, -1.5] * 4) + 0.1 * np.sin(min(round(t / 0.01), 4))\n"
        "    return np.broadcast_to(ctrl, (scene.num_envs, 12))\n"
    )
    monkeypatch.chdir(tmp_path)
    found = {}
    assert run(tmp_path, "--seconds", "0.06", "--envs", "2", "--control", "play.npz", "--record", "played.mcap") == 0
    for control in ("play.npz", "played.mcap", "my_gait_for_test:control", "random"):
        assert run(tmp_path, "--seconds", "0.06", "--envs", "2", "--control", control) == 0, capsys.readouterr()
        found[control] = load(tmp_path / "out/readings.npz")["trunk"].truth["lin_acc_b"]
    assert np.array_equal(found["play.npz"], found["my_gait_for_test:control"])
    assert np.array_equal(found["play.npz"], found["played.mcap"])
    assert not np.array_equal(found["play.npz"], found["random"])


def test_interrupt_saves_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C ends the run with code 130, and table and files hold the readings so far."""
    (tmp_path / "stops_for_test.py").write_text(
        "def control(scene, t):\n    if t >= 0.1:\n        raise KeyboardInterrupt\n"
    )
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path, "--seconds", "5", "--control", "stops_for_test:control") == 130
    sensor = load(tmp_path / "out/readings.npz")["trunk"]
    assert sensor.time[-1] == pytest.approx(0.1)
    out, err = capsys.readouterr()
    assert "interrupted at t = 0.1 s" in err
    assert "trunk" in out


@pytest.mark.usefixtures("no_pictures")
def test_slices_of_a_run_have_the_noise_of_the_whole(tmp_path: Path) -> None:
    """`--first-env` sets the number of the first environment, and the recording's description states it."""
    text = '[[sensor]]\nkind = "imu"\nname = "trunk"\nsite = "imu"\ngyro_noise = 0.1\n'
    found = []
    for options in (("--envs", "4"), ("--envs", "2", "--first-env", "2")):
        assert run(tmp_path, *options, text=text) == 0
        recording = load(tmp_path / "out/readings.npz")
        found.append((recording["trunk"].measured["ang_vel_b"], recording.description["first_env"]))
    assert np.array_equal(found[0][0][:, 2:], found[1][0]) and [first for _, first in found] == [0, 2]
    assert not np.array_equal(found[0][0][:, :2], found[1][0])


def test_ctrl_c_within_a_step_ends_the_run_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The step is not interrupted, so table and files hold all complete readings."""
    (tmp_path / "signals_for_test.py").write_text(
        "import signal\n\ndef control(scene, t):\n    if t >= 0.1:\n        step = scene.engine.step\n"
        "        def interrupted(*args):\n            signal.raise_signal(signal.SIGINT)\n            step(*args)\n"
        "        scene.engine.step = interrupted\n"
    )
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path, "--seconds", "5", "--control", "signals_for_test:control") == 130
    assert 0.1 < load(tmp_path / "out/readings.npz")["trunk"].time[-1] < 0.12
    out, err = capsys.readouterr()
    assert "interrupted at t = 0.1" in err and "trunk" in out


def test_a_missing_matplotlib_costs_only_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Matplotlib all other files are written, and a note states what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run(tmp_path) == 0
    assert "pip install 'sensorium[plot]'" in capsys.readouterr().err
    assert (tmp_path / "out/readings.npz").exists() and not (tmp_path / "out/imu.png").exists()


def test_a_missing_package_is_named_with_the_command_to_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sensorium.record.mcap_writer", None)
    path = tmp_path / "a run.mcap"
    assert run(tmp_path, "--record", str(path)) == 2
    err = capsys.readouterr().err
    assert "pip install 'sensorium[record]'" in err and "pip install 'sensorium[all]' && sensorium run " in err
    assert f"--record '{path}'" in err


# Help -----------------------------------------------------------------------------------------------------------------


def test_help_explains_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of each command shows examples, the options and their defaults."""
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    assert all(word in overview for word in ("demo", "run", "list", "--version"))
    assert main(["demo", "--help"]) == 0
    text = capsys.readouterr().out
    assert "sensorium demo --envs 256" in text and "default: 4" in text and "default: 4.0" in text
    assert main(["run", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())  # line breaks may occur anywhere
    assert "[[sensor]]" in text and "module:function" in text and "default: hold" in text


# Mistakes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('[[sensr]]\nkind = "imu"\n', ["sensr", "sensor", "rig.toml"]),
        ('[semantcs]\na = "b"\n', ["semantcs", "Did you mean 'semantics'"]),
        ('[[sensor]]\nkind = "imuu"\nsite = "imu"\n', ["'imuu'", "Did you mean 'imu'?", "[[sensor]] 1, kind 'imuu': "]),
        ('[[sensor]]\nsite = "imu"\n', ["kind: got nothing", "imu", "[[sensor]] 1: "]),
        ('[[sensor]]\nkind = "imu"\nsite = "imu"\ngyro_nois = 0.1\n', ["gyro_nois", "Did you mean 'gyro_noise'"]),
        ('[[sensor]]\nkind = "imu"\nbody = "trunkk"\n', ["trunkk", "'trunk'", "body"]),
        ('[[sensor]]\nkind = "imu"\nsite = "imu"\ngyro_noise = -0.1\n', ["gyro_noise", "-0.1", "an amount >= 0"]),
        ('[[sensor]]\nkind = "imu"\nsite = "imu"\ndelay = 0.01\njitter = 0.02\n', ["jitter", "0.02", "0.01"]),
        ('[[sensor]]\nkind = "imu"\nsite = "imu"\n' * 2, ["sensors 1 and 2", "'imu'", "name"]),
        ('[[sensor]]\nkind = "imu"\nsite = "imu"\npreset = "bmi08"\n', ["'bmi08'", "Did you mean 'bmi088'"]),
        ('[[sensor]]\nkind = "imu"\nsite = "imu"\npreset = 7\n', ["preset", "7"]),
        ('[[sensor]]\nkind = "imu"\nsite = \n', ["rig.toml", "TOML", "line 3, column 8"]),
        ('[sensor]\nkind = "imu"\nsite = "imu"\n', ["[[sensor]]", "two brackets"]),
        ("", ["no sensor", "[[sensor]]"]),
        ('[[sensor]]\nkind = "imu"\nsite = "imu"\nrate_hz = "fast"\n', ["rate_hz", "'fast'", "number"]),
        ('[[sensor]]\nkind = "imu"\n', ["no selector", "site"]),
        (
            '[[sensor]]\nkind = "ray_caster"\nbody = "trunk"\npattern = {kind = "gird"}\n',
            ["[[sensor]] 1, kind 'ray_caster'", "pattern.kind", "'gird'", "Did you mean 'grid'?", "spinning"],
        ),
        (
            '[[sensor]]\nkind = "ray_caster"\nbody = "trunk"\npattern = {kind = "grid", resolution = 0.0}\n',
            ["pattern.resolution", "0.0", "greater than 0"],
        ),
        (
            '[[sensor]]\nkind = "ray_caster"\nbody = "trunk"\npattern = {kind = "grid", sizes = [1.0, 1.0]}\n',
            ["pattern.sizes", "Did you mean 'size'"],
        ),
    ],
)
def test_a_wrong_rig_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, parts: list[str]
) -> None:
    """Each mistake in a rig file is reported with its place, its value and the accepted values."""
    failed(capsys, run(tmp_path, text=text), *parts)


def test_all_faults_of_a_rig_are_reported_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two faulty sensors give a single message that names both."""
    text = '[[sensor]]\nkind = "imuu"\n[[sensor]]\nkind = "imu"\nsite = "imu"\nbias_ = 1.0\nnois = 2.0\n'
    failed(capsys, run(tmp_path, text=text), "[[sensor]] 1", "imuu", "[[sensor]] 2", "bias_", "nois")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--seconds", "-1"], ["--seconds", "-1", "> 0"]),
        (["--seconds", "nan"], ["--seconds", "nan"]),
        (["--envs", "0"], ["--envs", "0", ">= 1"]),
        (["--envs", "99999999999"], ["--envs: got 99999999999", "2147483647"]),
        (["--first-env", "-1"], ["--first-env", "-1", "0 to 2147483647"]),
        (["--first-env", "2147483647", "--envs", "2"], ["--first-env", "2147483647", "0 to 2147483646"]),
        (["--device", "gpu7"], ["--device", "gpu7", "cpu"]),
        (["--device", "cuda:99"], ["--device", "cuda:99"]),
        (["--control", "holdd"], ["--control", "holdd", "Did you mean 'hold'?"]),
        (["--control", "nowhere.npz"], ["--control", "nowhere.npz", "does not exist"]),
        (["--control", "no_such_module:control"], ["--control", "no_such_module"]),
        (["--control", "math:sinn"], ["--control", "math", "sinn", "Did you mean 'sin'"]),
        (["--control", "math:sqrt"], ["--control: got 'math:sqrt'", "failed at t = 0 s: TypeError"]),
        (["--control", "operator:lt"], ["--control: got 'operator:lt'", "TypeError"]),
    ],
)
def test_a_wrong_option_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], parts: list[str]
) -> None:
    """Each unusable option is reported with its value and the accepted values."""
    failed(capsys, run(tmp_path, *options), *parts)


def test_demo_checks_its_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The demo applies the same checks, and also refuses a file in place of its folder."""
    failed(capsys, main(["demo", "--envs", "0"]), "--envs")
    (tmp_path / "taken").write_text("")
    failed(capsys, main(["demo", "--out", str(tmp_path / "taken")]), "--out", "a folder")
    failed(capsys, main(["demo", "--out", str(tmp_path / "taken/demo")]), "--out")


@pytest.mark.parametrize(
    ("arrays", "parts"),
    [
        ({"control": np.zeros((3, 12))}, ["'ctrl'", "control"]),
        ({"ctrl": np.zeros((3, 7))}, ["(3, 7)", "[time, 12]"]),
        ({"ctrl": np.zeros((3, 1, 12))}, ["(3, 1, 12)", "[time, env, 12] with the controls of 3 envs or more"]),
        ({"ctrl": np.zeros(12)}, ["(12,)"]),
        ({"ctrl": np.zeros((0, 12))}, ["(0, 12)"]),
        ({"ctrl": np.full((3, 12), np.nan)}, ["NaN"]),
        ({"ctrl": np.zeros((3, 12)), "dt": 0.0}, ["dt"]),
        ({"ctrl": np.array(["a"])}, ["ctrl"]),
    ],
)
def test_a_wrong_control_file_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arrays: dict[str, np.ndarray], parts: list[str]
) -> None:
    """Each mistake in a control file is reported with the expected shape; its envs are those of the whole run."""
    np.savez(tmp_path / "ctrl.npz", **arrays)
    options = ("--control", str(tmp_path / "ctrl.npz"), "--first-env", "2")
    failed(capsys, run(tmp_path, *options), "--control", "ctrl.npz", *parts)


def test_a_control_of_a_wrong_shape_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unsuitable return value of a control function is reported with the expected shape."""
    (tmp_path / "wrong_for_test.py").write_text("def control(scene, t):\n    return [1.0, 2.0]\n")
    monkeypatch.chdir(tmp_path)
    failed(capsys, run(tmp_path, "--control", "wrong_for_test:control"), "shape (2,)", "(12,)", "(1, 12)")
    (tmp_path / "broken_for_test.py").write_text("def control(:\n")
    failed(capsys, run(tmp_path, "--control", "broken_for_test:control"), "broken_for_test", "SyntaxError")


def test_a_missing_or_broken_model_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing model, a file that is not XML and an invalid MJCF model are reported with the reason."""
    good = tmp_path / "robot.xml"
    good.write_text("<mujoco><worldbody><body><geom size='1'/></worldbody></mujoco>")
    failed(capsys, run(tmp_path, model=str(tmp_path / "robt.xml")), "robt.xml", "does not exist", "'robot.xml'")
    failed(capsys, run(tmp_path, model=str(good)), "robot.xml")
    good.write_text("<mujoco><worldbody><body><joint type='hinj'/></body></worldbody></mujoco>")
    failed(capsys, run(tmp_path, model=str(good)), "robot.xml", "hinj")
    failed(capsys, run(tmp_path, model=str(tmp_path)), "folder")


def test_the_seconds_of_a_view_start_when_the_page_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the start takes."""
    now = 0.0

    def monotonic() -> float:
        nonlocal now
        now += 0.25
        return now

    class Opened:
        is_closed = False

        def __init__(self, scene: object, **options: object) -> None:
            nonlocal now
            now = 100.0

        def __enter__(self) -> Opened:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("sensorium.view.live.handle.LiveView", Opened)
    monkeypatch.setattr("sensorium.cli.view.time", SimpleNamespace(monotonic=monotonic))
    assert main(["view", "demo", "--envs", "1", "--seconds", "1"]) == 0
    assert now > 101.0


def test_a_missing_rig_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing rig is reported with the nearest file name."""
    rig(tmp_path)
    code = main(["run", str(model_path()), "--rig", str(tmp_path / "rigg.toml"), "--out", str(tmp_path / "out")])
    failed(capsys, code, "rigg.toml", "does not exist", "Did you mean 'rig.toml'?")


@pytest.mark.parametrize("args", [["rum"], ["demo", "--env", "3", "--bogus"], ["demo", "--envs", "x"], ["run"]])
def test_arguments_that_cannot_be_parsed_end_with_code_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown commands and options, and values of a wrong type, are explained on stderr."""
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err and "sensorium" in err


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["sevre"], ["unknown command 'sevre'", "Did you mean 'serve'?", "--help"]),
        (["--verison"], ["Did you mean '--version'?"]),
        (["robot.xml"], ["unknown command 'robot.xml'", "sensorium run robot.xml --rig rig.toml"]),
    ],
)
def test_an_unknown_command_is_explained(args: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the nearest command, and the command to run for a model."""
    failed(capsys, main(args), *parts)


def test_options_of_other_commands_are_not_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--env", "3"]) == 2
    err = capsys.readouterr().err
    assert "--envs N" in err and "sensorium demo --help" in err
    assert "listen" not in err and "explain" not in err


@pytest.mark.parametrize("command", ["run", "explain", "serve"])
def test_swapped_model_and_rig_arguments_are_recognised(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Swapped arguments, a rig alone as a model, and a model as a rig under any name are recognised."""
    robot, sensors = str(model_path()), rig(tmp_path)
    failed(capsys, main([command, sensors, "--rig", robot]), "MODEL, --rig", f"Swap them: {robot} --rig {sensors}")
    failed(capsys, main([command, sensors, "--rig", sensors]), "model file", "is TOML, as rig files are", "MJCF")
    other = tmp_path / "robot.txt"
    other.write_text(Path(robot).read_text(encoding="utf-8"), encoding="utf-8")
    failed(capsys, main([command, robot, "--rig", str(other)]), "robot.txt", "is XML", "[[sensor]]")


IMU = '[[sensor]]\nkind = "imu"\nname = "a"\nbody = "trunk"\n'


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('delay = "fast"', "delay: got 'fast', expected a number, a vector or a distribution such as "
         "{ uniform = [0.0, 0.02] }."),
        ("bias = { uniform = [0.2, 0.1] }", "bias.low: got 0.2, expected at most high, 0.1."),
        ("delay = { uniforn = [0.0, 0.1] }", "delay.keys: got 'uniforn', expected one of { uniform = [low, high] }, "
         "{ normal = [mean, std] }, { choice = [value, ...] }."),
        ("loss = 2.0", "loss: got 2.0, expected a probability in [0, 1), or { p = ..., r = ... }."),
        ('stages = [{ kind = "low_pass", cutof = 3.0 }]', "stages.0.cutof: got an unknown field (value 3.0)"),
        ("noise = 0.1", "Write noise = { ang_vel_b = ... }."),
        ('body = "trunkk"', "body: got 'trunkk', expected the name of a body in the model. Did you mean 'trunk'?"),
        ("pos_offset = [0.0, 0.0, 0.1]", "Give offset = { pos = ... }."),
        ("viz = true", "give debug_vis = true."),
        ('gyro_nois = 0.1', "gyro_nois: got an unknown field (value 0.1), expected one of the {count} fields of "
         "ImuCfg. Did you mean 'gyro_noise'"),
        ('xyz = 0.1', "xyz: got an unknown field (value 0.1), expected one of the {count} fields of ImuCfg, such as "),
        ('xyz = 0.1', "`sensorium list imu`"),
    ],
)  # fmt: skip
def test_rig_error_names_the_table_and_shows_the_fix_as_toml(
    line: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the file, the table by number, kind and name, and the field, with a short list of fields."""
    imu = IMU.replace('body = "trunk"\n', "") if line.startswith("body") else IMU
    assert run(tmp_path, text=f'[[sensor]]\nkind = "joint"\njoints = ".*"\n\n{imu}{line}\n') == 2
    err = capsys.readouterr().err
    said = " ".join(err.split())
    assert f"rig file '{tmp_path / 'rig.toml'}', [[sensor]] 2, kind 'imu', name 'a': " in said
    assert expected.replace("{count}", str(len(ImuCfg.model_fields))) in said
    for python in ("Uniform(", "OffsetCfg", "GilbertElliott", "=True", "ImuCfg("):
        assert python not in said
    assert all(len(row) < 600 for row in err.splitlines())
