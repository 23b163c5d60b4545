"""Calibration files agree with the lenses, the noise and the mounts of the sensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.cli import main
from sensorium.errors import ModelError
from sensorium.lenses import EquirectangularLensCfg
from sensorium.record.calibration import distortion_of, noise_of
from sensorium.record.export import write_calibration

OPTICAL = Rotation.from_matrix([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
"""Axes right, down, forward of an image, in axes forward, left, up."""


def opencv(model: str, d: tuple[float, ...], tangents: np.ndarray) -> np.ndarray:
    """Return distorted points by the formulas in OpenCV's documentation."""
    x, y = tangents.T
    r = np.hypot(x, y)
    if model == "equidistant":
        t = np.arctan(r)
        scale = t * (1.0 + d[0] * t**2 + d[1] * t**4 + d[2] * t**6 + d[3] * t**8) / np.where(r > 0.0, r, 1.0)
        return np.stack([x * scale, y * scale], axis=1)
    k1, k2, p1, p2, k3, k4, k5, k6 = (*d, 0.0, 0.0, 0.0)[:8]
    radial = (1.0 + k1 * r**2 + k2 * r**4 + k3 * r**6) / (1.0 + k4 * r**2 + k5 * r**4 + k6 * r**6)
    return np.stack(
        [
            x * radial + 2.0 * p1 * x * y + p2 * (r**2 + 2.0 * x**2),
            y * radial + p1 * (r**2 + 2.0 * y**2) + 2.0 * p2 * x * y,
        ],
        axis=1,
    )


@pytest.mark.parametrize(
    ("lens", "model", "kalibr"),
    [
        (sn.lenses.PinholeLensCfg(fovy=60.0), "plumb_bob", "radtan"),
        (sn.lenses.BrownConradyLensCfg(fovy=60.0, k1=-0.2, k2=0.05, p1=1e-3, p2=-2e-3), "plumb_bob", "radtan"),
        (sn.lenses.BrownConradyLensCfg(fovy=60.0, k1=-0.2, k3=0.01), "plumb_bob", ""),
        (sn.lenses.BrownConradyLensCfg(fovy=60.0, k1=0.3, k2=0.1, k4=0.4, k6=0.02), "rational_polynomial", ""),
        (sn.lenses.KannalaBrandtLensCfg(fovy=60.0, k1=-0.01, k2=0.02, k3=1e-3, k4=1e-4), "equidistant", "equidistant"),
    ],
)
def test_distortion(lens: Any, model: str, kalibr: str) -> None:
    found = distortion_of(sn.CameraCfg(body="a", width=8, height=6, lens=lens).to_dict())
    assert found is not None and (found.model, found.kalibr) == (model, kalibr)
    assert len(found.coefficients) == {"plumb_bob": 5, "rational_polynomial": 8, "equidistant": 4}[model]
    tangents = np.random.default_rng(0).uniform(-0.5, 0.5, (50, 2))
    points = torch.from_numpy(np.concatenate([tangents, np.ones((50, 1))], axis=1))
    np.testing.assert_allclose(opencv(model, found.coefficients, tangents), lens.project(points), atol=1e-12)


@pytest.mark.parametrize("lens", [EquirectangularLensCfg(), sn.lenses.OrthographicLensCfg(view_height=2.0)])
def test_lenses_without_a_model(lens: Any) -> None:
    assert distortion_of(sn.CameraCfg(body="a", width=8, height=6, lens=lens).to_dict()) is None


def imu_field(cfg: sn.ImuCfg) -> np.ndarray:
    """Return 40 samples of the gyroscope at 50 Hz."""
    scene = sn.Scene(sn.TensorEngine(num_envs=3, dt=0.005, bodies=["base"]), [cfg], seed=5)
    found = []
    for _ in range(40):
        for _ in range(4):
            scene.update()
        found.append(scene[cfg].read().ang_vel_b.numpy())
    return np.array(found)


def test_amounts_per_sample_become_densities_with_the_same_readings() -> None:
    per_sample = {"gyro_noise": 0.02, "gyro_random_walk": 0.003}
    cfg = sn.ImuCfg(name="imu", body="base", rate_hz=50.0, fields=("ang_vel_b",), **per_sample)
    scene = sn.Scene(sn.TensorEngine(num_envs=1, dt=0.005, bodies=["base"]), [cfg])
    (spec,) = scene["imu"].specs
    noise = noise_of(cfg.to_dict(), spec, "gyro", 50.0)
    assert any("0.02 per sample / sqrt(50 Hz)" in note for note in noise.notes)
    densities = {"gyro_noise_density": noise.density, "gyro_random_walk_density": noise.random_walk}
    same = sn.ImuCfg(name="imu", body="base", rate_hz=50.0, fields=("ang_vel_b",), **densities)
    first, second = imu_field(cfg), imu_field(same)
    assert first.std() > 0.02
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("knobs", "density", "walk", "note"),
    [
        ({"noise_density": {"ang_vel_b": 0.1}}, 0.1, 0.0, ""),
        ({"noise_density": {"gyro": [0.1, 0.3, 0.2]}}, 0.3, 0.0, "differs between the axes"),
        ({"gyro_noise": sn.Uniform(0.1, 0.3)}, 0.02, 0.0, "the mean of its distribution"),
        ({"stages": [sn.stages.GaussMarkov(fields=("ang_vel_b",), density=4e-6, tau=300.0)]}, 0.0, 4e-6, "300 s"),
        ({}, 0.0, 0.0, ""),
    ],
)
def test_noise(knobs: dict[str, Any], density: float, walk: float, note: str) -> None:
    cfg = sn.ImuCfg(name="imu", body="base", fields=("ang_vel_b", "lin_acc_b"), rate_hz=100.0, **knobs)
    spec = next(each for each in sn.Scene(sn.TensorEngine(1, dt=0.01, bodies=["base"]), [cfg])["imu"].specs)
    found = noise_of(cfg.to_dict(), spec, "gyro", 100.0)
    assert (found.density, found.random_walk) == (pytest.approx(density), pytest.approx(walk))
    assert any(note in each for each in found.notes) if note else not found.notes


KALIBR = """
cam0:
  cam_overlaps: [1]
  camera_model: pinhole
  distortion_coeffs: [-0.28, 0.07, 0.0002, -0.0001]
  distortion_model: radtan
  intrinsics: [458.654, 457.296, 367.215, 248.375]
  resolution: [752, 480]
  rostopic: /cam0/image_raw
cam1:
  T_cn_cnm1:
  - [1.0, 0.0, 0.0, 0.1]
  camera_model: pinhole
  distortion_coeffs: [-0.01, 0.02, 0.001, 0.0001]
  distortion_model: equidistant
  intrinsics: [190.978, 190.973, 254.931, 256.897]
  resolution: [512, 512]
"""
ROS = """image_width: 640
image_height: 480
camera_name: front
camera_matrix: {rows: 3, cols: 3, data: [430.2, 0, 306.9, 0, 430.5, 227.2, 0, 0, 1]}
distortion_model: rational_polynomial
distortion_coefficients: {rows: 1, cols: 8, data: [0.3, 0.1, 0.001, -0.002, 0.01, 0.4, 0.05, 0.02]}
"""
ECHO = """header:
  stamp: {sec: 3, nanosec: 5}
  frame_id: front
height: 480
width: 640
distortion_model: plumb_bob
d: [0.0, 0.0, 0.0, 0.0, 0.0]
k:
- 430.2
- 0.0
- 306.9
- 0.0
- 430.5
- 227.2
- 0.0
- 0.0
- 1.0
---
"""
EUROC = """sensor_type: camera
resolution: [752, 480]
camera_model: pinhole
intrinsics: [458.654, 457.296, 367.215, 248.375]
distortion_model: radial-tangential
distortion_coefficients: [-0.28340811, 0.07395907, 0.00019359, 1.76187114e-05]
"""


@pytest.mark.parametrize(
    ("text", "camera", "size", "matrix", "model", "d"),
    [
        (KALIBR, "cam0", (752, 480), (458.654, 457.296, 367.215, 248.375), "", (-0.28, 0.07, 0.0002, -0.0001, 0.0)),
        (KALIBR, "cam1", (512, 512), (190.978, 190.973, 254.931, 256.897), "equidistant", (-0.01, 0.02, 0.001, 0.0001)),
        (ROS, None, (640, 480), (430.2, 430.5, 306.9, 227.2), "", (0.3, 0.1, 0.001, -0.002, 0.01, 0.4, 0.05, 0.02)),
        (ECHO, None, (640, 480), (430.2, 430.5, 306.9, 227.2), "", (0.0,) * 5),
        (EUROC, None, (752, 480), (458.654, 457.296, 367.215, 248.375), "",
         (-0.28340811, 0.07395907, 0.00019359, 1.76187114e-05, 0.0)),
    ],
)  # fmt: skip
def test_lenses_of_files_have_the_pixels_of_opencv(
    text: str, camera: str | None, size: tuple[int, int], matrix: Any, model: str, d: Any, tmp_path: Path
) -> None:
    """A camera that is built with the lens sees points half a pixel further right and down than OpenCV, whose first
    pixel has its centre at (0, 0).
    """
    (tmp_path / "lens.yaml").write_text(text)
    lens = sn.lens_from_file(tmp_path / "lens.yaml", camera)
    cfg = sn.CameraCfg(body="a", width=size[0], height=size[1], lens=lens)
    tangents = np.random.default_rng(0).uniform(-0.5, 0.5, (50, 2))
    points = torch.from_numpy(np.concatenate([tangents, np.ones((50, 1))], axis=1))
    k = cfg.matrices_on(None)[0]
    found = lens.project(points).numpy() * k[[0, 1], [0, 1]] + k[:2, 2]
    fx, fy, cx, cy = matrix
    np.testing.assert_allclose(found - 0.5, opencv(model, d, tangents) * (fx, fy) + (cx, cy), atol=1e-4)


@pytest.mark.parametrize(
    ("text", "camera", "part"),
    [
        (KALIBR, None, r"camera: got None, expected one of cam0, cam1, in .*Name one"),
        (KALIBR, "cam2", r"camera: got 'cam2', expected one of cam0, cam1, in .*Did you mean"),
        (
            KALIBR.replace("camera_model: pinhole", "camera_model: omni"),
            "cam0",
            "cam0: camera_model: got 'omni', expected",
        ),
        (KALIBR.replace("radtan", "fov"), "cam0", "cam0: distortion_model: got 'fov', expected none, radtan"),
        (KALIBR.replace("  resolution: [752, 480]\n", ""), "cam0", "cam0: resolution is missing"),
        (KALIBR.replace("458.654", "-1"), "cam0", "fx > 0"),
        (KALIBR.replace("458.654", "wide"), "cam0", "a value is invalid: .*'wide'"),
        (
            ROS.replace("[0.3,", "[1, 2, 3, 4, 5, 6, 0.3,"),
            None,
            "distortion: got .* at most 8 coefficients: k1, k2, p1",
        ),
        ("a: [", None, "is not YAML"),
        ("- 1", None, "camera: got None, expected one of none, in a camera chain"),
        ('{"a": 1}', None, "is a JSON file"),
    ],
)
def test_faults_of_lens_files_are_named(text: str, camera: str | None, part: str, tmp_path: Path) -> None:
    (tmp_path / "lens.yaml").write_text(text)
    with pytest.raises(ModelError, match=part):
        sn.lens_from_file(tmp_path / "lens.yaml", camera)
    with pytest.raises(ModelError, match=r"Did you mean 'lens\.yaml'"):
        sn.lens_from_file(tmp_path / "lense.yaml")


MOUNTS = {
    "imu": ((0.0, 0.0, 0.1), (1.0, 0.0, 0.0, 0.0)),
    "left": ((0.2, 0.1, 0.0), (0.8, 0.0, 0.0, 0.6)),
    "right": ((0.2, -0.1, 0.05), (0.8, 0.0, 0.6, 0.0)),
}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An IMU, two cameras and a lidar on a moving body, and a body that moves on its own."""
    times = np.linspace(0.0, 1.0, 11)
    turned = Rotation.from_rotvec(np.outer(times, [0.3, -0.5, 0.9])).as_quat()[:, [3, 0, 1, 2]]
    path = sn.Trajectory(times, np.stack([5.0 + times, times**2, 1.0 - times], axis=1), turned)
    still = sn.Trajectory(times, np.zeros((11, 3)), np.tile([1.0, 0.0, 0.0, 0.0], (11, 1)))
    engine = sn.TrajectoryEngine(
        {"drone": path, "gate": still}, 0.01, world=[sn.engines.Shape("plane", "floor", (9, 9, 1))]
    )

    def place(name: str) -> Any:
        pos, rot = MOUNTS[name]
        return sn.CameraCfg.OffsetCfg(pos=pos, rot=rot, convention="world")

    sensors = [
        sn.ImuCfg(name="imu", body="drone", offset=sn.OffsetCfg(pos=(0.0, 0.0, 0.1)), rate_hz=50.0, gyro_noise=0.01,
                  acc_noise_density=0.02, stages=[sn.stages.ClockError(offset=0.004)]),
        sn.DepthCameraCfg(name="left", body="drone", offset=place("left"), res=(8, 6), fx=10.0, fy=11.0, rate_hz=10.0),
        sn.CameraCfg(name="right", body="drone", offset=place("right"), width=8, height=6, rate_hz=10.0,
                     lens=sn.lenses.KannalaBrandtLensCfg(fovy=70.0, k1=0.01)),
        sn.CameraCfg(name="round", body="drone", width=8, height=4, lens=EquirectangularLensCfg(), rate_hz=10.0),
        sn.BodyStateCfg(name="gate", body="gate", rate_hz=10.0),
    ]  # fmt: skip
    file = tmp_path_factory.mktemp("calib") / "run.mcap"
    scene = sn.Scene(engine, sensors, seed=1)
    with scene.record(file), scene.record(file.with_name("no_truth.mcap"), truth=False):
        scene.step(substeps=60)
    return file


def transform(name: str, *, optical: bool = False) -> np.ndarray:
    """Return the pose of a sensor on the body, by scipy."""
    pos, wxyz = MOUNTS[name]
    turn = Rotation.from_quat(np.array(wxyz)[[1, 2, 3, 0]])
    out = np.eye(4)
    out[:3, :3], out[:3, 3] = (turn * OPTICAL if optical else turn).as_matrix(), pos
    return out


@pytest.mark.parametrize("name", ["run.mcap", "no_truth.mcap"])
def test_files_of_a_recording(name: str, recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without true poses, the constant places in the description are written."""
    assert main(["calib", str(recording.with_name(name)), "--to", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    read = YAML(typ="safe", pure=True).load
    chain = read(tmp_path / "camchain.yaml")
    assert list(chain) == ["cam0", "cam1"]
    left, right = chain.values()
    assert left["intrinsics"] == [10.0, 11.0, 3.5, 2.5] and left["resolution"] == [8, 6]
    assert left["distortion_model"] == "radtan" and left["distortion_coeffs"] == [0.0] * 4
    assert left["rostopic"] == "/left/depth/image_raw" and left["camera_model"] == "pinhole"
    assert right["distortion_model"] == "equidistant" and right["distortion_coeffs"] == [0.01, 0.0, 0.0, 0.0]
    imu = transform("imu")
    for camera, name in ((left, "left"), (right, "right")):
        expected = np.linalg.inv(transform(name, optical=True)) @ imu
        np.testing.assert_allclose(camera["T_cam_imu"], expected, atol=2e-6)
        assert camera["timeshift_cam_imu"] == pytest.approx(0.004, abs=1e-6)
    expected = np.linalg.inv(transform("right", optical=True)) @ transform("left", optical=True)
    np.testing.assert_allclose(right["T_cn_cnm1"], expected, atol=2e-6)
    assert "T_cn_cnm1" not in left
    noise = read(tmp_path / "imu0.yaml")
    assert noise["gyroscope_noise_density"] == pytest.approx(0.01 / 50.0**0.5)
    assert noise["accelerometer_noise_density"] == 0.02 and noise["update_rate"] == 50.0
    assert noise["rostopic"] == "/imu/data_raw" and "gyroscope_random_walk" not in noise
    for name in ("accelerometer_random_walk", "gyroscope_random_walk"):  # never 0, which Kalibr refuses
        assert f"imu0.yaml: {name} is missing, since the config defines none; Kalibr requires it" in out
        assert f"# {name}: " in (tmp_path / "imu0.yaml").read_text()
    info = read(tmp_path / "camera_info/right.yaml")
    assert (info["image_width"], info["image_height"], info["camera_name"]) == (8, 6, "right")
    assert info["distortion_model"] == "equidistant" and info["distortion_coefficients"]["cols"] == 4
    assert info["projection_matrix"]["data"][:3] == info["camera_matrix"]["data"][:3]
    frames = {
        (group["reference"], frame["name"]): frame
        for group in read(tmp_path / "extrinsics.yaml")
        for frame in group["frames"]
    }
    assert set(frames) == {
        ("imu", name) for name in ("imu", "left", "left_optical", "right", "right_optical", "round", "round_optical")
    } | {("gate", "gate")}
    for name in ("left", "right"):
        for ending, optical in (("", False), ("_optical", True)):
            frame = frames["imu", name + ending]
            expected = np.linalg.inv(imu) @ transform(name, optical=optical)
            np.testing.assert_allclose(frame["T"], expected, atol=2e-6)
            np.testing.assert_allclose(frame["position"], expected[:3, 3], atol=2e-6)
            quat = Rotation.from_quat(np.array(frame["quaternion_wxyz"])[[1, 2, 3, 0]])
            np.testing.assert_allclose(quat.as_matrix(), expected[:3, :3], atol=2e-6)
    assert "note: round: neither Kalibr nor ROS has a model of the lens equirectangular" in out
    assert (
        "groups that move relative to each other, those of imu, gate" in out
        and "the format has no place for clock_error" in out
    )
    assert "0.01 per sample / sqrt(50 Hz)" in out
    for name, file in (("left", "camera_info/left.yaml"), ("cam0", "camchain.yaml"), ("cam1", "camchain.yaml")):
        lens = sn.lens_from_file(tmp_path / file, name)
        expected = right if name == "cam1" else left
        fx, fy, cx, cy = expected["intrinsics"]
        np.testing.assert_allclose(
            lens.at(8, 6).intrinsic_matrix, [[fx, 0, cx + 0.5], [0, fy, cy + 0.5], [0, 0, 1]], atol=1e-4
        )
    assert isinstance(lens, sn.lenses.KannalaBrandtLensCfg) and lens.k1 == pytest.approx(0.01)


def test_another_environment(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calib", str(recording), "--to", str(tmp_path), "--env", "3"]) == 2
    assert "--env: got 3, expected a recorded environment: 0" in capsys.readouterr().err


def test_two_mounts_of_two_environments(tmp_path: Path) -> None:
    """Mounts are cameras of their own; topics have the prefix of the environment."""
    floor = sn.engines.Shape("plane", "floor", (9, 9, 1))
    engine = sn.TensorEngine(num_envs=2, dt=0.01, bodies=["base", "arm"], shapes=[floor])
    cameras = sn.DepthCameraCfg(name="eyes", bodies=["base", "arm"], res=(4, 3))
    scene = sn.Scene(engine, [cameras])
    readings = []
    for _ in range(3):
        readings += scene.publish(poses=True).values()
        scene.update()
    notes = write_calibration(readings, tmp_path, scene.description(), env=1)
    chain = YAML(typ="safe", pure=True).load(tmp_path / "camchain.yaml")
    assert [camera["rostopic"] for camera in chain.values()] == [
        f"/env_0001/eyes/{mount}/depth/image_raw" for mount in ("base", "arm")
    ]
    assert sorted(each.name for each in (tmp_path / "camera_info").iterdir()) == ["eyes_arm.yaml", "eyes_base.yaml"]
    assert not (tmp_path / "imu0.yaml").exists() and isinstance(notes, list)


def test_cameras_with_equal_and_long_names_have_files_and_topics(tmp_path: Path) -> None:
    names = ["an eye", "an_eye", "left/an_eye", "left_an_eye", "x" * 300]
    engine = sn.TensorEngine(
        num_envs=1, dt=0.01, bodies=["base"], shapes=[sn.engines.Shape("plane", "floor", (9, 9, 1))]
    )
    scene = sn.Scene(engine, [sn.DepthCameraCfg(name=name, body="base", res=(4, 3)) for name in names])
    write_calibration(scene.publish(poses=True).values(), tmp_path, scene.description())
    chain = YAML(typ="safe", pure=True).load(tmp_path / "camchain.yaml")
    bag = ["an_eye", "an_eye_2", "left/an_eye", "left_an_eye", "x" * 300]
    assert [camera["rostopic"] for camera in chain.values()] == [f"/{name}/depth/image_raw" for name in bag]
    files = ["an_eye", "an_eye_2", "left_an_eye", "left_an_eye_2", "x" * 200]
    assert sorted(each.stem for each in (tmp_path / "camera_info").iterdir()) == files
