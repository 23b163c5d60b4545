"""The simulation of `sensorium demo` and `sensorium serve demo`: the bundled quadruped and its sensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sensorium.demo import SEMANTICS as SEMANTICS

if TYPE_CHECKING:
    from sensorium.cfg import SensorCfg
    from sensorium.cli.control import Control
    from sensorium.engines.mujoco.engine import MujocoEngine

TITLE = "demo quadruped, trotting"
PRESETS = {"trunk": "bmi088", "foot": "icm42688p"}
"""Sensor name -> name of the modelled device."""
LIDAR_DEG = (-30.0, -22.0, -16.0, -11.0, -7.0, -4.0)
"""Elevations of the demo's lidar, deg; the rings on the ground start at 0.7 m."""


def sensors() -> list[SensorCfg[Any]]:
    """Return the configs of the demo's sensors."""
    from sensorium.patterns import GridPatternCfg, SpinningPatternCfg
    from sensorium.presets import preset
    from sensorium.sensors.cameras.camera_cfg import CameraCfg
    from sensorium.sensors.frames.frame_transformer import FrameTransformerCfg
    from sensorium.sensors.joints.joint import JointSensorCfg
    from sensorium.sensors.rays.lidar import LidarCfg
    from sensorium.sensors.rays.ray_caster import RayCasterCfg
    from sensorium.sensors.rays.terrain_height import TerrainHeightCfg

    feet = FrameTransformerCfg.FrameCfg
    return [
        preset(PRESETS["trunk"], name="trunk", site="imu", rate_hz=200.0, delay=0.004, jitter=0.002),
        preset(PRESETS["foot"], name="foot", site="FL_foot_imu", rate_hz=100.0, delay=0.012, jitter=0.004),
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
            data_types=("depth", "semantic_segmentation"),
            colorize_semantic_segmentation=False,
            rate_hz=10.0,
            noise=0.01,
        ),
    ]


def trot(engine: MujocoEngine) -> Control:
    """Return the control of a trot that turns, so that the robot stays on its ground."""
    from sensorium.demo.gait import Trot, steer

    gait = Trot()
    return lambda _, time: gait.targets(time, steer(engine.qpos[:, :7]))


def quadruped(envs: int, seed: int, device: str) -> MujocoEngine:
    """Return the engine of the robot.

    Every environment except the first has a different place (up to 0.2 m away) and heading (up to 0.2 rad).
    """
    import numpy as np

    from sensorium.demo import model_path
    from sensorium.engines.mujoco.engine import MujocoEngine

    engine = MujocoEngine(model_path(), envs, device=device, keyframe="home")
    qpos = engine.qpos.numpy()
    for env in range(1, envs):
        x, y, yaw = np.random.default_rng([abs(seed), env]).uniform(-0.2, 0.2, 3)
        c, s = math.cos(yaw / 2.0), math.sin(yaw / 2.0)
        qw, qx, qy, qz = qpos[env, 3:7]
        qpos[env, :2] += (x, y)
        qpos[env, 3:7] = (c * qw - s * qz, c * qx - s * qy, c * qy + s * qx, c * qz + s * qw)
    return engine
