"""Exports agree with the trajectory and the world that the readings come from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trimesh
from kitti_drive import INTRINSICS, LANDMARKS, drive
from reference.surfaces import nearest_on_triangles
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.demo import hall
from sensorium.errors import ArgumentError
from sensorium.readings import Reading
from sensorium.record.export import write_euroc, write_kitti, write_tum
from sensorium.spec import FieldSpec
from sensorium.testing import tumbling_engine

OTHERS = ("exact (imu)", "imu (imu)", "state (body_state)")
START = 1403636580838555648
UNKNOWN = "which an IMU has if it is recorded with its states (--states, states=True)"
BEAMS = sn.patterns.SphericalPatternCfg(fov=(360.0, 120.0), n_points=(60, 20))
SENSORS = (
    sn.ImuCfg(name="imu", body="body", rate_hz=200.0, gyro_noise=0.01, delay=0.01),
    sn.BodyStateCfg(name="state", body="body", rate_hz=50.0),
    sn.ImuCfg(name="exact", body="body", rate_hz=50.0, fields="all"),
    sn.LidarCfg(name="lidar", body="body", pattern=BEAMS, rate_hz=5.0, fields=("points_b", "intensity"),
                offset=sn.OffsetCfg(pos=(0.1, 0.0, 0.2), rot=(0.8, 0.0, 0.6, 0.0))),
)  # fmt: skip


def flight(first: float = 8.0, seconds: float = 2.0) -> sn.Trajectory:
    """Return a part of the drone's flight."""
    path = hall.drone()
    rows = (path.times >= first) & (path.times <= first + seconds)
    return sn.Trajectory(path.times[rows], path.pos[rows], path.quat[rows])


@pytest.fixture(scope="module")
def recorded() -> tuple[sn.Trajectory, list[Reading]]:
    """The readings of two environments at each tick, with poses."""
    path = flight()
    engine = sn.TrajectoryEngine(path, 0.005, num_envs=2, world=hall.shapes())
    scene = sn.Scene(engine, SENSORS, seed=0)
    scene.publish(poses=True)
    scene.reset()
    cursor, readings = scene.sample_cursor(), []
    readings += scene.publish(poses=True, since=cursor).values()
    while engine.ticks_left:
        scene.step()
        readings += scene.publish(["imu", "state"], poses=True).values()  # at every tick, whether new or not
        readings += scene.publish(["exact", "lidar"], poses=True, since=cursor).values()
    return path, readings


def agree(path: sn.Trajectory, times: np.ndarray, pos: np.ndarray, wxyz: np.ndarray) -> None:
    """Check poses at times since the start to 1e-6 m and rad."""
    true = path.at(times)
    assert np.linalg.norm(pos - true.pos, axis=1).max() < 1e-6
    turn = Rotation.from_quat(wxyz[:, [1, 2, 3, 0]]).inv() * Rotation.from_quat(true.quat[:, [1, 2, 3, 0]])
    assert turn.magnitude().max() < 1e-6


@pytest.mark.parametrize(("sensor", "rate", "late"), [("state", 50.0, 0), ("imu", 200.0, 2)])
def test_tum(
    sensor: str, rate: float, late: int, recorded: tuple[sn.Trajectory, list[Reading]], tmp_path: Path
) -> None:
    path, readings = recorded
    file = write_tum(readings, tmp_path / "path.tum", sensor=sensor, env=1, start_ns=START)
    rows = [line.split() for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    stamps = np.array([int(row[0].replace(".", "")) for row in rows])
    np.testing.assert_array_equal(stamps, START + np.arange(len(rows)) * round(1e9 / rate))
    assert len(rows) == round(path.duration * rate) + 1 - late  # samples that have not arrived at the end
    values = np.array([row[1:] for row in rows], dtype=np.float64)
    agree(path, (stamps - START) * 1e-9, values[:, :3], values[:, [6, 3, 4, 5]])
    again = sn.Trajectory.from_file(file)
    assert again.start_ns == START and np.abs(again.pos - values[:, :3]).max() == 0.0


def test_euroc_counts_samples_of_a_sensor_that_was_replaced(tmp_path: Path) -> None:
    """An IMU without acceleration, replaced by one with it, as in a recording: the later samples are written."""
    scene = sn.Scene(tumbling_engine(1), [sn.ImuCfg(name="imu", body="body", fields=("ang_vel_b",))])
    readings: list[Reading] = []
    for fields in (("ang_vel_b",), ("ang_vel_b", "lin_acc_b")):
        scene.remove("imu")
        scene.add(sn.ImuCfg(name="imu", body="body", fields=fields))
        for _ in range(3):
            scene.step()
            readings += scene.publish(poses=True).values()
    lost = "imu (imu): 3 samples have neither a rate and a specific force nor an image"
    assert write_euroc(readings, tmp_path) == [lost, f"imu: the true velocity and biases, {UNKNOWN}"]
    lines = (tmp_path / "mav0/imu0/data.csv").read_text(encoding="utf-8").splitlines()
    assert [int(line.split(",")[0]) for line in lines[1:]] == [8_000_000, 10_000_000, 12_000_000]


@pytest.mark.parametrize("body", ["state", "exact"])
def test_euroc(body: str, recorded: tuple[sn.Trajectory, list[Reading]], tmp_path: Path) -> None:
    """One body reports its velocity in the world, the other one in its own frame."""
    path, readings = recorded
    notes = write_euroc(readings, tmp_path, body=body, start_ns=START)
    skipped = "lidar (lidar): EuRoC holds IMUs and images of 8 bits only"
    assert notes == [skipped, f"{body}: the true biases, {UNKNOWN}"]
    root = tmp_path / "mav0"
    truth = np.loadtxt(root / "state_groundtruth_estimate0/data.csv", delimiter=",")
    assert len(truth) == round(path.duration * 50.0) + 1
    times = (truth[:, 0] - START) * 1e-9  # float64 is off by up to 128 ns
    agree(path, np.round(times, 3), truth[:, 1:4], truth[:, 4:8])
    np.testing.assert_allclose(truth[:, 8:11], path.at(np.round(times, 3)).lin_vel, atol=1e-6)
    again = sn.Trajectory.from_file(root / "state_groundtruth_estimate0/data.csv")
    assert again.start_ns == START and again.duration == pytest.approx(path.duration, abs=1e-9)
    lines = (root / "imu0/data.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("#timestamp [ns],w_RS_S_x [rad s^-1],") and lines[0].endswith(",a_RS_S_z [m s^-2]")
    stamps = np.array([int(line.split(",")[0]) for line in lines[1:]])
    np.testing.assert_array_equal(np.diff(stamps), 5_000_000)
    motion = path.at((stamps - START) * 1e-9)
    turn = Rotation.from_quat(motion.quat[:, [1, 2, 3, 0]]).inv()
    values = np.loadtxt(root / "imu0/data.csv", delimiter=",")[:, 1:]
    error = values[:, :3] - turn.apply(motion.ang_vel)
    assert 0.009 < error.std() < 0.011  # as measured
    np.testing.assert_allclose(values[:, 3:], turn.apply(motion.lin_acc - np.array([0.0, 0.0, -9.81])), atol=1e-5)
    extrinsics = (root / "imu0/sensor.yaml").read_text(encoding="utf-8")
    numbers = np.array(extrinsics.partition("[")[2].partition("]")[0].split(","), dtype=np.float64)
    np.testing.assert_allclose(numbers.reshape(4, 4), np.eye(4), atol=2e-6)


def test_euroc_ground_truth_of_a_recording_with_states(tmp_path: Path) -> None:
    """The biases are what a delayed IMU without noise adds to the true motion, and the velocity is the trajectory's."""
    path = flight(seconds=1.0)
    drift = sn.stages.GaussMarkov(density=0.01, tau=5.0, turn_on=0.02, fields=("lin_acc_b",))
    flicker = sn.stages.Flicker(bias_instability=sn.Uniform(0.01, 0.02), fields=("lin_acc_b",))
    heat = sn.stages.TemperatureDrift(
        coefficient=(0.01, 0.02, 0.0), ambient=sn.Uniform(20.0, 40.0), self_heating=10.0, tau=0.5, fields=("ang_vel_b",)
    )
    cfg = sn.ImuCfg(
        name="imu", body="body", rate_hz=200.0, delay=0.015, gyro_bias=sn.Uniform(-0.1, 0.1), gyro_random_walk=0.001,
        stages=(drift, flicker, heat), offset=sn.OffsetCfg(pos=(0.3, 0.0, 0.0)),
    )  # fmt: skip
    scene = sn.Scene(sn.TrajectoryEngine(path, 0.0025, num_envs=2), [cfg], seed=0)
    with scene.record(tmp_path / "run.mcap", states=True, envs=[1]):
        while scene.tick < 201:
            scene.step()
        scene.reset([0])  # between two captures; it has no effect on the other environment
        while scene.engine.ticks_left:
            scene.step()
    with sn.replay(tmp_path / "run.mcap") as replay:
        states = [reading for reading in replay.readings(["imu.states"])]
        about = replay.description.sensors["imu.states"]
        assert write_euroc(replay.readings(), tmp_path, body="imu", env=1) == []
    assert about["kind"] == "sensor_states" and [each["name"] for each in about["fields"]] == [*states[0].measured]
    assert [*states[0].measured] == ["bias_ang_vel_b", "walk_ang_vel_b", "bias_lin_acc_b", "delay", "lin_vel_w"]
    np.testing.assert_allclose([each.delay[0] for each in states], 0.015, rtol=1e-6)
    held, again = (each for each in states if each.capture_tick[0] == 200)
    assert all(np.array_equal(array, again.measured[name]) for name, array in held.measured.items())
    np.testing.assert_array_equal(np.unique([each.capture_tick[0] for each in states]), np.arange(0, 401, 2))
    rows = np.loadtxt(tmp_path / "mav0/state_groundtruth_estimate0/data.csv", delimiter=",", comments=None, skiprows=1)
    head = (tmp_path / "mav0/state_groundtruth_estimate0/data.csv").read_text(encoding="utf-8").partition("\n")[0]
    assert rows.shape == (198, 17) and head.endswith("b_a_RS_S_z [m s^-2]") and ", b_w_RS_S_x [rad s^-1]" in head
    motion = path.at(rows[:, 0] * 1e-9)
    turn = Rotation.from_quat(motion.quat[:, [1, 2, 3, 0]])
    arm = turn.apply([0.3, 0.0, 0.0])
    np.testing.assert_allclose(rows[:, 8:11], motion.lin_vel + np.cross(motion.ang_vel, arm), atol=1e-5)
    imu = np.loadtxt(tmp_path / "mav0/imu0/data.csv", delimiter=",")
    np.testing.assert_array_equal(imu[:, 0], rows[:, 0])
    lever = np.cross(motion.ang_acc, arm) + np.cross(motion.ang_vel, np.cross(motion.ang_vel, arm))
    force = turn.inv().apply(motion.lin_acc + lever + np.array([0.0, 0.0, 9.81]))
    np.testing.assert_allclose(imu[:, 1:4] - turn.inv().apply(motion.ang_vel), rows[:, 11:14], atol=1e-6)
    np.testing.assert_allclose(imu[:, 4:7] - force, rows[:, 14:17], atol=2e-5)
    assert rows[:, 11:].std(axis=0).min() > 1e-4 and np.abs(rows[:, 11:]).max() > 0.05


def test_euroc_images_and_their_pose_on_the_body(tmp_path: Path) -> None:
    """A camera 0.2 m ahead of the body looks to its left: T_BS holds both, and the pixels are those of the readings.

    The frame of the image is optical: its x points ahead, its y down, and its z to the left.
    """
    pillow = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    spec = FieldSpec("rgb", ("height", "width", "channel"), (4, 6, 3), "uint8", "1", "", "vector", "image")
    depth = (
        FieldSpec("depth", ("height", "width", "channel"), (4, 6, 1), "float32", "m", "", "vector", "image"),
        FieldSpec("quat_w_world", ("wxyz",), (4,), "float32", "1", "world", "rotation", "pose"),
    )
    turn = Rotation.from_euler("z", 0.3)
    body = np.concatenate([[1.0, 2.0, 3.0], turn.as_quat()[[3, 0, 1, 2]]])
    ahead = np.concatenate(
        [body[:3] + turn.apply([0.2, 0.0, 0.0]), Rotation.from_euler("z", 0.3 + np.pi / 2).as_quat()[[3, 0, 1, 2]]]
    )
    pictures, readings = [], []
    for tick in (0, 50, 100):
        pictures.append(rng.integers(0, 256, (1, 4, 6, 3), dtype=np.uint8))
        far = {"depth": np.ones((1, 4, 6, 1), np.float32), "quat_w_world": ahead[None, 3:].astype(np.float32)}
        for name, specs, values, pose in (
            ("base", (), {}, body), ("eye", (spec,), {"rgb": pictures[-1]}, ahead), ("depth", depth, far, ahead),
        ):  # fmt: skip
            meta = {"capture_tick": np.array([tick]), "valid": np.array([True])}
            readings.append(
                Reading(
                    name,
                    name,
                    specs,
                    np.array([0]),
                    tick,
                    tick * 0.002,
                    values,
                    {},
                    meta,
                    _pose=pose[None, None],
                    _dt=0.002,
                )
            )
    assert write_euroc(readings, tmp_path, body="base") == [
        *(f"{name} ({name}): EuRoC holds IMUs and images of 8 bits only" for name in ("base", "depth")),
        f"base: the true velocity and biases, {UNKNOWN}",
    ]
    lines = (tmp_path / "mav0/cam0/data.csv").read_text(encoding="utf-8").splitlines()
    assert lines == ["#timestamp [ns],filename", "0,0.png", "100000000,100000000.png", "200000000,200000000.png"]
    for line, expected in zip(lines[1:], pictures, strict=True):
        found = np.asarray(pillow.open(tmp_path / "mav0/cam0/data" / line.split(",")[1]))
        np.testing.assert_array_equal(found, expected[0])
    text = (tmp_path / "mav0/cam0/sensor.yaml").read_text(encoding="utf-8")
    numbers = np.array(text.partition("[")[2].partition("]")[0].split(","), dtype=np.float64).reshape(4, 4)
    np.testing.assert_allclose(numbers, [[1, 0, 0, 0.2], [0, 0, 1, 0], [0, -1, 0, 0], [0, 0, 0, 1]], atol=1e-8)


def test_euroc_has_the_calibration_of_imus_and_cameras(tmp_path: Path) -> None:
    """Amounts per sample are converted to densities with the rate; the focal length follows from the angle of view."""
    yaml = pytest.importorskip("ruamel.yaml").YAML(typ="safe")
    pinhole = sn.lenses.PinholeLensCfg(fovy=60.0)
    lens = sn.lenses.BrownConradyLensCfg(fovy=60.0, k1=-0.2, k2=0.05, p1=1e-3, p2=-5e-4)
    cameras = [
        sn.CameraCfg(name="eye", body="body", width=60, height=40, lens=pinhole, data_types=("rgb",), rate_hz=20.0),
        sn.CameraCfg(name="bent", body="body", width=60, height=40, data_types=("rgb",), lens=lens),
        sn.CameraCfg(
            name="round: 1",
            body="body",
            width=60,
            height=40,
            data_types=("rgb",),
            lens=sn.lenses.EquirectangularLensCfg(),
        ),
    ]
    imu = sn.ImuCfg(name="imu", body="body", rate_hz=100.0, gyro_noise=0.02, acc_random_walk_density=3e-4)
    scene = sn.Scene(sn.TrajectoryEngine(flight(), 0.01, world=hall.shapes()), [imu, *cameras])
    readings = list(scene.publish(poses=True).values())
    notes = write_euroc(readings, tmp_path, description=scene.description())
    assert notes == [
        "round: 1: the intrinsics of its lens; sensorium calib may write them in other formats",
        f"imu: the true velocity and biases, {UNKNOWN}",
    ]
    found = {
        each.parent.name: yaml.load(each.read_text(encoding="utf-8")) for each in tmp_path.glob("mav0/*/sensor.yaml")
    }
    noise = {key: value for key, value in found["imu0"].items() if key.endswith(("density", "walk"))}
    assert found["imu0"]["rate_hz"] == 100.0 and noise == pytest.approx({
        "gyroscope_noise_density": 0.02 / 10.0, "accelerometer_random_walk": 3e-4,
    })  # fmt: skip
    eye, bent, panorama = (found[f"cam{number}"] for number in range(3))
    focal = 20.0 / np.tan(np.deg2rad(30.0))
    assert eye["intrinsics"] == bent["intrinsics"] == pytest.approx([focal, focal, 29.5, 19.5], rel=1e-6)
    assert (eye["rate_hz"], eye["resolution"], eye["camera_model"]) == (20.0, [60, 40], "pinhole")
    assert eye["distortion_model"] == "radial-tangential" and eye["distortion_coefficients"] == [0.0] * 4
    assert bent["distortion_coefficients"] == pytest.approx([-0.2, 0.05, 1e-3, -5e-4])
    assert "intrinsics" not in panorama and panorama["comment"] == "round: 1"


@pytest.mark.parametrize("truth", [True, False])
def test_kitti_scans_and_poses_rebuild_the_hall(
    truth: bool, recorded: tuple[sn.Trajectory, list[Reading]], tmp_path: Path
) -> None:
    path, readings = recorded
    notes = write_kitti(readings, tmp_path, truth=truth)
    assert sorted(notes) == [f"{each}: only the scans of lidar are written" for each in OTHERS]
    folder = tmp_path / "sequences/00"
    poses = np.loadtxt(tmp_path / "poses/00.txt").reshape(-1, 3, 4)
    change = np.array((folder / "calib.txt").read_text().split()[1:], dtype=np.float64).reshape(3, 4)
    np.testing.assert_allclose(np.loadtxt(folder / "times.txt"), np.arange(len(poses)) * 0.2, atol=1e-9)
    np.testing.assert_allclose(poses[0], np.eye(4)[:3], atol=1e-6)
    mount = Rotation.from_quat([0.0, 0.6, 0.0, 0.8])
    body = Rotation.from_quat(path.quat[0, [1, 2, 3, 0]])
    start, origin = body * mount, path.pos[0] + body.apply([0.1, 0.0, 0.2])
    points = []
    for number, pose in enumerate(poses):
        scan = np.fromfile(folder / f"velodyne/{number:06d}.bin", np.float32).reshape(-1, 4).astype(np.float64)
        seen = (scan[:, :3] @ change[:, :3].T) @ pose[:, :3].T + pose[:, 3]  # in the first camera frame
        points.append(start.apply(seen @ change[:, :3]) + origin)
        assert 0.0 <= scan[:, 3].min() and scan[:, 3].max() < 1.0
    world = []
    for shape in hall.shapes():
        if shape.mesh is not None:
            world.append(shape.mesh.vertices[shape.mesh.faces])
        else:  # the plates of the tags
            corners = np.array(trimesh.creation.box(2.0 * np.array(shape.size)).triangles).reshape(-1, 3)
            turned = Rotation.from_quat(np.roll(shape.quat, -1)).apply(corners) + shape.pos
            world.append(turned.reshape(-1, 3, 3))
    cloud = np.concatenate(points)
    assert len(cloud) > 8000
    cloud = cloud[::10]
    foot, _ = nearest_on_triangles(cloud, np.concatenate(world))
    assert np.linalg.norm(cloud - foot, axis=1).max() < 1e-4


def test_kitti_oxts_and_point_times(tmp_path: Path) -> None:
    """Values of the navigation system are those of the trajectory, and each point has the time of its ray."""
    path = flight()
    beams = sn.patterns.SpinningPatternCfg(elevations=(-10.0, 0.0, 10.0), rate_hz=5.0, cycle_interval=0.005)
    sensors = [
        sn.LidarCfg(name="lidar", body="body", pattern=beams, rate_hz=5.0, fields=("points_b", "time_offset")),
        sn.ImuCfg(name="imu", body="body", rate_hz=100.0, gyro_noise=0.1, delay=0.02),
        sn.GnssCfg(name="gnss", body="body", rate_hz=4.0, origin=(48.0, 8.0, 200.0)),
    ]
    scene = sn.Scene(sn.TrajectoryEngine(path, 0.005, world=hall.shapes()), sensors, seed=0)
    scene.publish(poses=True)
    scene.reset()
    cursor, readings = scene.sample_cursor(), []
    readings += scene.publish(poses=True, since=cursor).values()
    while scene.engine.ticks_left:
        scene.step()
        readings += scene.publish(poses=True, since=cursor).values()
    alone = [reading for reading in readings if reading.name != "imu"]
    needs = ["oxts: gnss needs an IMU with poses at the same times", "gnss (gnss): only the scans of lidar are written"]
    assert write_kitti(alone, tmp_path / "alone") == needs
    notes = write_kitti(readings, tmp_path)
    assert notes == ["oxts: its values are up to 250 ms from their scans"]  # the last pose of the IMU did not arrive
    folder = tmp_path / "sequences/00"
    times, scans = np.loadtxt(folder / "oxts/times.txt"), np.loadtxt(folder / "times.txt")
    assert np.abs(times - scans)[:-1].max() <= 0.1 + 1e-9 and np.unique(
        np.round(times / 0.25) - times / 0.25
    ).tolist() == [0.0]
    rows = np.array([np.loadtxt(each) for each in sorted((folder / "oxts/data").iterdir())])
    motion = path.at(times)
    turn = Rotation.from_quat(motion.quat[:, [1, 2, 3, 0]])
    yaw, pitch, roll = turn.as_euler("ZYX").T
    level = Rotation.from_euler("z", yaw[:, None]).inv()
    force = motion.lin_acc + np.array([0.0, 0.0, 9.81])
    np.testing.assert_allclose(rows[:, 3:6], np.stack([roll, pitch, yaw], 1), atol=2e-6)
    np.testing.assert_allclose(rows[:, [7, 6]], motion.lin_vel[:, :2], atol=1e-5)
    np.testing.assert_allclose(rows[:, 8:11], level.apply(motion.lin_vel), atol=1e-5)
    np.testing.assert_allclose(rows[:, 11:14], turn.inv().apply(force), atol=1e-4)
    np.testing.assert_allclose(rows[:, 14:17], level.apply(force), atol=1e-4)
    np.testing.assert_allclose(rows[:, 17:20], turn.inv().apply(motion.ang_vel), atol=1e-5)
    np.testing.assert_allclose(rows[:, 20:23], level.apply(motion.ang_vel), atol=1e-5)
    assert (rows[:, 23:25] == 0.0).all() and (rows[:, 25:] == -1.0).all()
    east, north = 6378137.0 * np.cos(np.radians(48.0)), 6378137.0  # a sphere is off by less than 1 %
    np.testing.assert_allclose(np.radians(rows[:, 1] - 8.0) * east, motion.pos[:, 0], rtol=0.01, atol=0.02)
    np.testing.assert_allclose(np.radians(rows[:, 0] - 48.0) * north, motion.pos[:, 1], rtol=0.01, atol=0.02)
    np.testing.assert_allclose(rows[:, 2] - 200.0, motion.pos[:, 2], atol=1e-3)
    lidar = [each for each in readings if each.name == "lidar"]
    for number, reading in enumerate(lidar):
        hit = np.isfinite(reading.points_b[0]).all(axis=1)
        point_times = np.fromfile(folder / f"point_times/{number:06d}.bin", np.float32)
        np.testing.assert_array_equal(point_times, reading.time_offset[0][hit])
        assert len(point_times) == (folder / f"velodyne/{number:06d}.bin").stat().st_size / 16 and point_times.min() < 0


def test_sensors_without_poses_are_named(tmp_path: Path) -> None:
    scene = sn.Scene(sn.TrajectoryEngine(flight(), 0.01, world=hall.shapes()), [SENSORS[-1]])
    readings = list(scene.publish().values())
    with pytest.raises(ArgumentError, match="expected a sensor with poses"):
        write_tum(readings, tmp_path / "path.tum")
    with pytest.raises(ArgumentError, match="no sensor with a pose"):
        write_euroc(readings, tmp_path)
    with pytest.raises(ArgumentError, match="'lidar' has no pose"):
        write_kitti(readings, tmp_path)
    with pytest.raises(ArgumentError, match=r"env: got 3, expected one of the recorded environments \[0\]"):
        write_tum(readings, tmp_path / "path.tum", env=3)


def test_kitti_images_and_projections(tmp_path: Path) -> None:
    """Each P projects the points of a scan to the pixels that the pose and the lens of its camera give."""
    pillow = pytest.importorskip("PIL.Image")
    readings, poses = drive()
    (tmp_path / "sequences/00/velodyne").mkdir(parents=True)
    (tmp_path / "sequences/00/velodyne/000099.bin").write_bytes(b"of an earlier export")
    notes = write_kitti(readings, tmp_path)
    assert notes == [
        "tilted: its axes differ from those of grey, so P3 contains a rotation, and images are not rectified"
    ]
    folder = tmp_path / "sequences/00"
    lines = [line.split() for line in (folder / "calib.txt").read_text().splitlines()]
    calib = {key: np.array(numbers, np.float64).reshape(3, 4) for key, *numbers in lines}
    assert list(calib) == ["P0:", "P1:", "P2:", "P3:", "Tr:"]
    truth = np.loadtxt(tmp_path / "poses/00.txt").reshape(-1, 3, 4)
    assert len(truth) == len(list(folder.glob("velodyne/*.bin"))) == 5
    for number, name in ((0, "grey"), (2, "color"), (3, "tilted")):
        files = sorted(folder.glob(f"image_{number}/*.png"))
        assert [int(np.asarray(pillow.open(file)).flat[0]) for file in files] == [0, 10, 20, 30, 40]
        for scan in range(5):
            heading, at = poses[name][10 * scan]
            x, y, z = heading.inv().apply(LANDMARKS - at).T  # forward, left, up
            pixels = INTRINSICS[:2] @ np.stack([-y / x, -z / x, np.ones_like(x)])
            points = np.fromfile(folder / f"velodyne/{scan:06d}.bin", np.float32).reshape(-1, 4).astype(np.float64)
            seen = calib["Tr:"] @ np.vstack([points[:, :3].T, np.ones(200)])
            u, v, w = calib[f"P{number}:"] @ np.vstack([seen, np.ones(200)])
            np.testing.assert_allclose(np.stack([u / w, v / w]), pixels, atol=1e-3)
    np.testing.assert_allclose(calib["P2:"][:, :3], INTRINSICS, atol=1e-5)  # the cameras are parallel
    np.testing.assert_allclose(calib["P2:"][0, 3], -50.0 * 0.4, atol=1e-4)  # 0.4 m to the right
    start, origin = poses["grey"][0]
    axes = Rotation.from_matrix([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    for scan in range(5):
        heading, at = poses["grey"][10 * scan]
        np.testing.assert_allclose(truth[scan, :, 3], (start * axes).inv().apply(at - origin), atol=1e-5)
        relative = (start * axes).inv() * heading * axes
        np.testing.assert_allclose(truth[scan, :, :3], relative.as_matrix(), atol=1e-6)


def test_kitti_images_that_are_late_or_too_many(tmp_path: Path) -> None:
    readings, _ = drive()
    late = [
        replace(each, _meta={**each._meta, "capture_tick": each.capture_tick + 2}) if each.name == "color" else each
        for each in readings
        if each.name != "color" or each.tick % 10
    ]
    for name in ("tilted2", "fifth"):
        late += [replace(each, name=name) for each in readings if each.name == "tilted"]
    notes = write_kitti(late, tmp_path)
    assert "fifth: KITTI has two cameras with and two without colours" in notes
    assert any(note.startswith("color: images are up to 70 ms from their scans") for note in notes)
