"""ROS 2 messages of a rig on a trajectory, as nodes for state estimation read them: frames, units, noise, points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from ros2_cases import NS, cloud, stamp, stores, wxyz, xyz
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.patterns import RotatingMirrorPatternCfg, SpinningPatternCfg
from sensorium.record.ros2 import Ros2Messages

FLUX = (0.01, 0.21, -0.43)
MOUNT = sn.OffsetCfg(pos=(0.1, -0.2, 0.3), rot=(0.8, 0.0, 0.6, 0.0))
SHIFT = 0.004
SPEED = 2.0


@pytest.fixture(scope="module")
def store() -> Any:
    return stores()


class Bag:
    """The messages of a scene while it runs."""

    def __init__(self, scene: sn.Scene, store: Any, **options: Any) -> None:
        self.messages = Ros2Messages(scene.description(), [0], poses=True, truth=True, **options)
        self._store = store
        self.found: dict[str, list[Any]] = {}
        self.times: dict[str, list[int]] = {}
        self._take(self.messages.static())
        self._scene = scene

    def add(self) -> None:
        """Add the newest samples."""
        for reading in self._scene.publish(poses=True).values():
            for block in self.messages.encode([reading]):
                self._take(block)

    def _take(self, block: Any) -> None:
        for index, time, data in block:
            topic = self.messages.topics[index]
            self.times.setdefault(topic.name, []).append(int(time))
            self.found.setdefault(topic.name, []).append(self._store.deserialize_cdr(bytes(data), topic.type))


@pytest.fixture(scope="module")
def flight() -> sn.Trajectory:
    times = np.linspace(0.0, 2.0, 21)
    turned = Rotation.from_rotvec(np.outer(times, [0.2, -0.3, 0.9])).as_quat()[:, [3, 0, 1, 2]]
    return sn.Trajectory(times, np.stack([SPEED * times, 0.0 * times, 1.0 + 0.1 * times], axis=1), turned)


def test_a_rig_on_a_trajectory(flight: sn.Trajectory, store: Any) -> None:
    """One tree of frames with true times, velocities in the world, tesla, and no flux that nobody gave."""
    clock = (sn.stages.ClockError(offset=SHIFT),)
    scene = sn.Scene(sn.TrajectoryEngine(flight, 0.01), [
        sn.preset("adis16448", name="imu", body="body", magnetic_field=FLUX, rate_hz=100.0),
        sn.ImuCfg(name="plain", body="body", rate_hz=50.0),
        sn.GnssCfg(name="gnss", body="body", heading_deg=90.0, rate_hz=10.0),
        sn.CameraCfg(name="eye", body="body", width=8, height=6, data_types=("rgb",), rate_hz=20.0, stages=clock,
                     offset=sn.CameraCfg.OffsetCfg(pos=MOUNT.pos, rot=MOUNT.rot, convention="world")),
        sn.BodyStateCfg(name="body", body="body", rate_hz=20.0, stages=clock, offset=MOUNT),
    ])  # fmt: skip
    bag = Bag(scene, store)
    for _ in range(20):
        scene.step(substeps=5)
        bag.add()
    assert bag.messages.unmapped["gnss"] == ("pos_enu", "hdop", "vdop") and "/plain/mag" not in bag.found
    # Units and axes
    np.testing.assert_allclose(xyz(bag.found["/imu/truth/mag"][0].magnetic_field)[2], FLUX[2] * 1e-4, rtol=1e-2)
    for message in bag.found["/gnss/fix_velocity"]:
        assert message.header.frame_id == "world"
        np.testing.assert_allclose(xyz(message.twist.twist.linear), [SPEED, 0.0, 0.1], atol=1e-5)
    # Frames: the body's, which is not that of the sensor of the same name
    (static,) = bag.found["/tf_static"]
    parents = {each.child_frame_id: each.header.frame_id for each in static.transforms}
    sensors = dict.fromkeys(["imu", "plain", "gnss", "eye", "body"], "body_2")
    assert parents == {**sensors, "eye_optical": "eye"}
    places = {each.child_frame_id: each.transform for each in static.transforms}
    for name, place in (("imu", sn.OffsetCfg()), ("eye", MOUNT), ("body", MOUNT)):
        np.testing.assert_allclose(xyz(places[name].translation), place.pos, atol=1e-7)
        np.testing.assert_allclose(wxyz(places[name].rotation), place.rot, atol=1e-7)
    assert len(bag.found["/tf"]) == 20
    for message in bag.found["/tf"]:
        (each,) = message.transforms
        assert (each.header.frame_id, each.child_frame_id) == ("world", "body_2")
        pos, quat = flight.at(stamp(each) / NS)[:2]
        np.testing.assert_allclose(xyz(each.transform.translation), np.ravel(pos), atol=1e-5)
        turn = Rotation.from_quat(wxyz(each.transform.rotation), scalar_first=True)
        assert (turn.inv() * Rotation.from_quat(np.ravel(quat), scalar_first=True)).magnitude() < 1e-5
    # A sensor with a clock of its own: its measured messages have its time, transforms and true messages the true one
    measured, true = bag.found["/eye/color/image_raw"], bag.found["/eye/truth/color/image_raw"]
    assert [stamp(a) - stamp(b) for a, b in zip(measured, true, strict=True)] == [round(SHIFT * NS)] * 20


def test_transforms_have_the_true_time_of_their_sensor(flight: sn.Trajectory, store: Any) -> None:
    """Also where the only sensor of the body has a wrong clock, a delay and a place of its own."""
    state = sn.BodyStateCfg(name="state", body="body", rate_hz=20.0, delay=0.02, offset=MOUNT,
                            stages=(sn.stages.ClockError(offset=SHIFT),))  # fmt: skip
    scene = sn.Scene(sn.TrajectoryEngine(flight, 0.01), [state])
    bag = Bag(scene, store)
    for _ in range(60):
        scene.step()
        bag.add()
    assert len(bag.found["/tf"]) > 8
    for message in bag.found["/tf"]:
        (each,) = message.transforms
        pos = flight.at(stamp(each) / NS)[0]
        np.testing.assert_allclose(xyz(each.transform.translation), np.ravel(pos), atol=1e-5)


def test_covariances_are_those_of_the_errors(store: Any) -> None:
    """Variance over environments of measured - true, within five of its standard deviations."""
    envs, dt = 3000, 0.01
    white = (0.02, 0.03, 0.04)
    engine = sn.TensorEngine(envs, dt, bodies=["body"])
    scene = sn.Scene(engine, [
        sn.ImuCfg(name="imu", body="body", gyro_noise_density=2e-3, acc_noise=white, magnetic_field=FLUX,
                  magnetic_unit="G", mag_noise=0.001, resolution={"ang_vel_b": 0.04}),
        sn.GnssCfg(name="gnss", body="body", horizontal_sd=0.5, vertical_sd=1.0, hdop=1.5, vdop=2.0, pos_noise=0.7,
                   vel_noise=white, heading_deg=90.0),
        sn.BarometerCfg(name="baro", body="body", noise=1.5),
        sn.BodyStateCfg(name="state", body="body", noise={
            "pos_w": white, "quat_w": (0.01, 0.02, 0.03), "lin_vel_w": white, "ang_vel_w": (0.3, 0.1, 0.2)}),
        sn.ImuCfg(name="drawn", body="body", fields=("ang_vel_b", "lin_acc_b"), gyro_noise=sn.Uniform(0.1, 0.2)),
    ])  # fmt: skip
    bag = Bag(scene, store)
    engine.array("body_quat_w")[:] = torch.tensor((0.8, 0.36, 0.0, 0.48))
    scene.update()
    bag.add()

    def error(sensor: str, field: str) -> np.ndarray:
        data, truth = (
            getattr(each, field).double().numpy() for each in (scene[sensor].data, scene[sensor].ground_truth)
        )
        return data - truth

    def check(found: Any, errors: np.ndarray, scale: float = 1.0) -> None:
        matrix = np.reshape(found, (3, 3)) if np.size(found) > 1 else np.array([[found]])
        bound = 5.0 * np.sqrt(2.0 / envs)
        np.testing.assert_allclose(np.diag(matrix), errors.reshape(envs, -1).var(axis=0) * scale**2, rtol=bound)
        assert not (matrix - np.diag(np.diag(matrix))).any()

    ((imu,), (mag,), (fix,), (velocity,)) = (
        bag.found[topic] for topic in ("/env_0000/imu/data_raw", "/env_0000/imu/mag", "/env_0000/gnss/fix",
                                       "/env_0000/gnss/fix_velocity")
    )  # fmt: skip
    check(imu.angular_velocity_covariance, error("imu", "ang_vel_b"))
    check(imu.linear_acceleration_covariance, error("imu", "lin_acc_b"))
    assert imu.orientation_covariance[0] == -1.0
    check(mag.magnetic_field_covariance, error("imu", "mag_b"), 1e-4)
    check(fix.position_covariance, error("gnss", "pos_enu"))
    assert fix.position_covariance_type == 2
    check(bag.found["/env_0000/baro/pressure"][0].variance, error("baro", "pressure"))
    matrix = velocity.twist.covariance.reshape(6, 6)
    check(np.round(matrix[:3, :3], 12), error("gnss", "vel_enu")[:, [1, 0, 2]])
    assert matrix[3, 3] == -1.0
    # Pose and twist of a body that is turned: in the axes of the world, and of the body
    (odometry,) = bag.found["/env_0000/state/odometry"]
    turned, still = (
        Rotation.from_quat(each.quat_w.double().numpy(), scalar_first=True)
        for each in (scene["state"].data, scene["state"].ground_truth)
    )
    parts = [
        (odometry.pose.covariance, error("state", "pos_w"), (turned * still.inv()).as_rotvec()),
        (odometry.twist.covariance, *(still.inv().apply(error("state", name)) for name in ("lin_vel_w", "ang_vel_w"))),
    ]  # fmt: skip
    for found, *errors in parts:
        expected = np.cov(np.hstack(errors).T)
        size = np.sqrt(np.outer(*[np.diag(expected)] * 2))
        np.testing.assert_allclose(found.reshape(6, 6) / size, expected / size, atol=5.0 * np.sqrt(2.0 / envs))
    assert not bag.found["/env_0000/state/truth/odometry"][0].pose.covariance.any()
    # Unknown: true values, drawn amounts, no noise
    assert not bag.found["/env_0000/imu/truth/data_raw"][0].angular_velocity_covariance.any()
    assert bag.found["/env_0000/gnss/truth/fix"][0].position_covariance_type == 0
    (drawn,) = bag.found["/env_0000/drawn/data_raw"]
    assert not drawn.angular_velocity_covariance.any() and not drawn.linear_acceleration_covariance.any()


def test_outages_of_a_receiver_are_messages_without_a_fix(store: Any) -> None:
    """The first fix takes 0.5 s; each sample is written once, when it arrives."""
    gnss = sn.GnssCfg(name="gnss", body="body", origin=(47.0, 8.0, 400.0), rate_hz=10.0, delay=0.05, pos_noise=0.1,
                      time_to_first_fix=0.5)  # fmt: skip
    scene = sn.Scene(sn.TensorEngine(1, 0.01, bodies=["body"]), [gnss])
    bag = Bag(scene, store)
    for _ in range(100):
        scene.update()
        bag.add()
    fixes = bag.found["/gnss/fix"]
    assert [stamp(each) for each in fixes] == [k * NS // 10 for k in range(10)]
    assert [each.status.status for each in fixes] == [-1] * 5 + [0] * 5
    assert [each.position_covariance_type for each in fixes] == [0] * 5 + [2] * 5
    assert [each.latitude == each.latitude for each in fixes] == [False] * 5 + [True] * 5
    assert bag.times["/gnss/fix"] == [k * NS // 10 + NS // 20 for k in range(10)]
    assert len(bag.found["/gnss/fix_velocity"]) == 5


def test_scans_are_stamped_with_their_start(store: Any) -> None:
    """To the nanosecond, although the times of points are float32."""
    wall = sn.engines.Shape("box", "wall", (0.1, 50.0, 50.0), pos=(5.0, 0.0, 0.0))
    scene = sn.Scene(
        sn.TensorEngine(1, 0.01, bodies=["body"], shapes=[wall]), [sn.preset("vlp16", name="lidar", body="body")]
    )
    bag = Bag(scene, store)
    for _ in range(40):
        scene.update()
        bag.add()
    assert [stamp(each) for each in bag.found["/lidar/points"]] == [k * NS // 10 for k in range(4)]


F4, U1, U2, U4, F8 = 7, 2, 4, 6, 8
XYZI = dict.fromkeys(["x", "y", "z", "intensity"], F4)
READERS = {
    ("vlp16", "LIO-SAM"): {**XYZI, "ring": U2, "time": F4},
    ("vlp16", "FAST-LIO"): {**XYZI, "time": F4, "ring": U2},
    ("os1_64", "LIO-SAM"): {**XYZI, "t": U4, "reflectivity": U2, "ring": U1, "noise": U2, "range": U4},
    ("os1_64", "FAST-LIO"): {**XYZI, "t": U4, "reflectivity": U2, "ring": U1, "ambient": U2, "range": U4},
    ("mid360", "livox_ros_driver2"): {**XYZI, "tag": U1, "line": U1, "timestamp": F8},
}
"""Preset and program -> fields of its points and their types in sensor_msgs/PointField. PCL takes a field only if name
and type are equal."""


def test_points_of_lidar_presets_are_those_that_estimators_read(store: Any) -> None:
    """Without options: field lists, times in order, and rings from the lowest (Velodyne) or highest (Ouster) laser."""
    path = sn.Trajectory(np.arange(4.0), [[0.0, 0.0, 1.0]] * 4, [[1.0, 0.0, 0.0, 0.0]] * 4)
    shapes = [
        sn.engines.Shape("plane", "floor", (50, 50, 1)),
        sn.engines.Shape("box", "wall", (1, 40, 40), pos=(9, 0, 0)),
    ]
    patterns: dict[str, Any] = {
        "vlp16": SpinningPatternCfg.vlp16().replace(cycle_interval=1e-3), "os1_64": SpinningPatternCfg.os1_64(64),
        "mid360": RotatingMirrorPatternCfg.mid360().replace(points_per_second=20_000),
    }  # fmt: skip
    scene = sn.Scene(sn.TrajectoryEngine(path, 0.1, world=shapes), [
        sn.preset(name, name=name, body="body", pattern=pattern) for name, pattern in patterns.items()
    ])  # fmt: skip
    bag = Bag(scene, store)
    bag.add()
    assert not any("points" in topic for topic in bag.found)  # a scan that began before the time 0 has no stamp
    scene.step()
    bag.add()
    for (preset, program), wanted in READERS.items():
        message = bag.found[f"/{preset}/points"][-1]
        fields = {each.name: each.datatype for each in message.fields}
        assert wanted.items() <= fields.items(), (preset, program)
        assert message.is_dense and message.height == 1
        points = cloud(message)[0]
        assert len(points) > 500 and points["intensity"].max() > 1.0
        times = points[{"vlp16": "time", "os1_64": "t", "mid360": "timestamp"}[preset]].astype(np.float64)
        times *= 1.0 if preset == "vlp16" else 1e-9
        assert (np.diff(times) >= 0.0).all() and 0.09 < np.ptp(times) < 0.1
        if "ring" in fields:
            up = np.arctan2(points["z"], np.hypot(points["x"], points["y"]))
            heights = [up[points["ring"] == ring].mean() for ring in np.unique(points["ring"])]
            assert (np.diff(heights) * (1.0 if preset == "vlp16" else -1.0) > 0.0).all() and len(heights) > 10
    (custom,) = bag.found["/mid360/livox"][-1:]
    points = cloud(bag.found["/mid360/points"][-1])[0]
    assert custom.point_num == len(custom.points) == len(points) and custom.timebase == stamp(custom)
    for index in range(0, len(points), 97):
        point = custom.points[index]
        assert (point.x, point.tag & 0x30, point.line) == (points["x"][index], 0, points["line"][index])
        assert custom.timebase + point.offset_time == points["timestamp"][index]


def test_layouts_of_manufacturers_need_all_their_fields() -> None:
    """Fields that are missing do not read 0."""
    path = sn.Trajectory(np.arange(4.0), [[0.0, 0.0, 1.0]] * 4, [[1.0, 0.0, 0.0, 0.0]] * 4)
    lidar = sn.preset("os1_64", name="os1", body="body", fields=("points_b", "distances", "channel"),
                      pattern=SpinningPatternCfg.os1_64(16))  # fmt: skip
    about = sn.Scene(sn.TrajectoryEngine(path, 0.1), [lidar]).description()
    (cloud_of,) = (topic for topic in Ros2Messages(about).topics if topic.name == "/os1/points")
    assert cloud_of.type == "sensor_msgs/msg/PointCloud2"
    for layout in ("ouster", "livox", "livox_custom"):
        with pytest.raises(sn.ConfigError, match=f"messages.os1.*{layout}"):
            Ros2Messages(about, messages={"os1": [layout]})
