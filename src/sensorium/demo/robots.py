"""The bundled robots and their sensors: the quadruped of `sensorium demo`, and an arm with a sense of touch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from sensorium.demo import SEMANTICS, model_path

if TYPE_CHECKING:
    from torch import Tensor

    from sensorium.cfg import SensorCfg
    from sensorium.engines.mujoco.engine import MujocoEngine
    from sensorium.scene import Scene

    Control = Callable[[Scene, float], Any]


@dataclass(frozen=True, slots=True)
class Robot:
    """A bundled robot, which commands accept by its name instead of a model file.

    Args:
        title: heading of its results.
        model: name of its model, for `model_path`.
        presets: sensor name -> name of the modelled device.
        sensors: returns the configs of its sensors.
        control: returns its motion, for its scene.
        semantics: labels of its world, as `Scene(semantics=...)` takes them.
        begin_episode: returns the state that new episodes of some environments start with, as for `Scene.reset`; by
            default the engine's own.
    """

    title: str
    model: str
    presets: Mapping[str, str]
    sensors: Callable[[], list[SensorCfg[Any]]]
    control: Callable[[Scene], Control]
    semantics: Mapping[str, Any] = field(default_factory=dict)
    begin_episode: Callable[[Scene, Tensor], Mapping[str, Tensor] | None] = lambda scene, env_ids: None

    def engine(self, envs: int, device: str) -> MujocoEngine:
        """Return the engine for a number of environments and a device of the sensors."""
        from sensorium.engines.mujoco.engine import MujocoEngine

        return MujocoEngine(model_path(self.model), envs, device=device, keyframe="home")

    def start(self, scene: Scene) -> None:
        """Start the first episode of a new scene."""
        from sensorium.scene.draws import start_episodes

        start_episodes(scene, partial(self.begin_episode, scene), number=0)


PRESETS = {"trunk": "bmi088", "foot": "icm42688p"}
"""Sensor name -> name of the modelled device."""
LIDAR_DEG = (-30.0, -22.0, -16.0, -11.0, -7.0, -4.0)
"""Elevations of the demo's lidar, deg; the rings on the ground start at 0.7 m."""


def sensors() -> list[SensorCfg[Any]]:
    """Return the configs of the demo's sensors."""
    from sensorium.patterns import GridPatternCfg, SpinningPatternCfg
    from sensorium.presets import presets
    from sensorium.sensors.cameras.camera_cfg import CameraCfg
    from sensorium.sensors.frames.frame_transformer import FrameTransformerCfg
    from sensorium.sensors.joints.joint import JointSensorCfg
    from sensorium.sensors.rays.lidar import LidarCfg
    from sensorium.sensors.rays.ray_caster import RayCasterCfg
    from sensorium.sensors.rays.terrain_height import TerrainHeightCfg

    feet = FrameTransformerCfg.FrameCfg
    return [
        presets().build(PRESETS["trunk"], name="trunk", site="imu", rate_hz=200.0, delay=0.004, jitter=0.002),
        presets().build(PRESETS["foot"], name="foot", site="FL_foot_imu", rate_hz=100.0, delay=0.012, jitter=0.004),
        JointSensorCfg(
            name="encoders", joints=".*", bits=14, backlash=0.002, velocity_mode="difference", rate_hz=200.0
        ),
        FrameTransformerCfg(
            name="feet", body="trunk", target_frames=(feet(site=".*_foot"),), fields=("target_pos_source",)
        ),
        RayCasterCfg(
            name="scan",
            body="trunk",
            pattern=GridPatternCfg(size=(1.6, 1.0)),
            ray_alignment="yaw",
            max_distance=5.0,
            rate_hz=50.0,
            noise=0.005,
            delay=0.02,
        ),
        TerrainHeightCfg(name="clearance", sites=".*_foot", max_distance=2.0, rate_hz=100.0, noise=0.002),
        LidarCfg(
            name="lidar",
            site="lidar",
            pattern=SpinningPatternCfg(elevations=LIDAR_DEG, cycle_interval=0.1 / 180),
            max_distance=30.0,
            rate_hz=10.0,
            range_noise=0.02,
            drop_rate=0.02,
            fields=("points_b", "intensity"),
        ),
        CameraCfg(
            name="head",
            camera="front",
            width=64,
            height=48,
            data_types=("rgb", "depth", "semantic_segmentation"),
            colorize_semantic_segmentation=False,
            rate_hz=10.0,
            noise=0.01,
        ),
    ]


def trot(scene: Scene) -> Control:
    """Return the control of a trot that turns, so that the robot stays on its ground."""
    from sensorium.demo.gait import Trot, steer

    gait, engine = Trot(), cast("MujocoEngine", scene.engine)
    return lambda _, time: gait.targets(time, steer(engine.qpos[:, :7]))


def scatter(scene: Scene, env_ids: Tensor) -> Mapping[str, Tensor]:
    """Return the start of the robot: a random place (up to 0.2 m away) and heading (up to 0.2 rad).

    The first environment of the whole run starts at the centre.
    """
    import torch

    from sensorium.random import Uniform

    home = torch.from_numpy(cast("MujocoEngine", scene.engine).model.key("home").qpos)
    moved = scene.draw("demo/start", Uniform(-0.2, 0.2), 3, env_ids).double()
    moved[scene.global_env_ids[env_ids] == 0] = 0.0
    x, y, yaw = moved.cpu().T.contiguous()
    qpos = home.repeat(len(yaw), 1)
    c, s = (0.5 * yaw).cos(), (0.5 * yaw).sin()
    qw, qx, qy, qz = home[3:7]
    qpos[:, :2] += torch.stack([x, y], dim=1)
    qpos[:, 3:7] = torch.stack([c * qw - s * qz, c * qx - s * qy, c * qy + s * qx, c * qz + s * qw], dim=1)
    return {"qpos": qpos}


def arm_sensors() -> list[SensorCfg[Any]]:
    """Return the configs of the sensors of the arm: joints, wrist wrench, fingertip skin, touch, wrist camera."""
    from sensorium.demo.arm import taxels
    from sensorium.sensors.cameras.camera_cfg import CameraCfg
    from sensorium.sensors.contact.contact_force import ContactForceCfg
    from sensorium.sensors.joints.force_torque import ForceTorqueCfg
    from sensorium.sensors.joints.joint import JointSensorCfg
    from sensorium.sensors.touch.kinematic_tactile import KinematicTactileSensorCfg

    places, normals = taxels()
    return [
        JointSensorCfg(name="encoders", joints="base|shoulder|elbow|wrist", bits=17, rate_hz=500.0),
        ForceTorqueCfg(name="wrist", site="wrist", noise={"force": 0.05, "torque": 0.001}, rate_hz=500.0),
        KinematicTactileSensorCfg(
            name="skin", body="fingertip", probe_local_pos=places, probe_local_normal=normals, probe_radius=0.002,
            noise={"force": 0.002}, rate_hz=100.0,
        ),
        ContactForceCfg(name="tip", geom="tip", noise=0.02, rate_hz=200.0),
        CameraCfg(
            name="camera", camera="wrist", width=64, height=48, data_types=("rgb", "distance_to_image_plane"),
            clipping_range=(0.01, 2.0), rate_hz=15.0, noise={"distance_to_image_plane": 0.002},
        ),
    ]  # fmt: skip


def stroke(scene: Scene) -> Control:
    """Return the control of the arm: it presses on the object and strokes it.

    A figure takes 3 s in the first environment of the whole run, and in others a random time from 2.5 to 5 s.
    """
    from sensorium.demo.arm import Stroke
    from sensorium.random import Uniform

    def control(scene: Scene, time: float) -> Any:
        period = scene.draw("arm/period", Uniform(2.5, 5.0))[:, 0].double()
        period[scene.global_env_ids == 0] = 3.0
        return Stroke(period=period.cpu().numpy()).targets(time)

    return control


ROBOTS = {
    "demo": Robot("demo quadruped, trotting", "quadruped", PRESETS, sensors, trot, SEMANTICS, scatter),
    "arm": Robot("demo arm, stroking an object", "arm", {}, arm_sensors, stroke),
}
"""Name of a model -> the bundled robot."""
