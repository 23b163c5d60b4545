"""Whole robots of dm_control: every joint, end body and declared sensor against native sensors added beside them.

The native sensors are MuJoCo's, evaluated by mj_forward in float64 on the state of each environment, without any code
of this library.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from selection import gate

import sensorium as sn

pytest.importorskip("mujoco.batch")

ROBOTS = {
    "quadruped": "suite/quadruped.xml",
    "humanoid": "suite/humanoid.xml",
    "dog": "suite/dog.xml",
    "jaco_arm": "third_party/kinova/jaco_arm.xml",
    "manipulator": "suite/manipulator.xml",
}
SENSOR, OBJECT, JOINT = mujoco.mjtSensor, mujoco.mjtObj, mujoco.mjtJoint
ENVS, TICKS = 3, 25


@dataclass(frozen=True)
class Robot:
    """An unchanged robot, and the robot with native sensors added."""

    path: str
    declared: tuple[str, ...]
    joints: tuple[str, ...]
    ends: tuple[str, ...]
    root: str
    reference: mujoco.MjModel


@cache
def robot(name: str) -> Robot:
    """Load a robot, and add a native sensor of each kind to a copy of it."""
    import dm_control

    path = str(Path(dm_control.__file__).parent / ROBOTS[name])
    spec = mujoco.MjSpec.from_file(path)
    model = spec.compile()
    declared = tuple(model.sensor(k).name for k in range(model.nsensor))
    scalar = (int(JOINT.mjJNT_HINGE), int(JOINT.mjJNT_SLIDE))
    joints = tuple(model.joint(k).name for k in range(model.njnt) if int(model.jnt_type[k]) in scalar)
    parents = set(model.body_parentid.tolist())
    ends = tuple(model.body(k).name for k in range(1, model.nbody) if k not in parents)
    root = next(model.body(k).name for k in range(1, model.nbody) if model.body(k).name)
    for joint in joints:
        kinds = (SENSOR.mjSENS_JOINTPOS, SENSOR.mjSENS_JOINTVEL, SENSOR.mjSENS_JOINTACTFRC)
        for kind, word in zip(kinds, ("position", "velocity", "effort"), strict=True):
            spec.add_sensor(name=f"test/{word}/{joint}", type=kind, objtype=OBJECT.mjOBJ_JOINT, objname=joint)
    for end in ends:
        for kind, word in ((SENSOR.mjSENS_FRAMEPOS, "pos"), (SENSOR.mjSENS_FRAMEQUAT, "quat")):
            spec.add_sensor(
                name=f"test/{word}/{end}", type=kind, objtype=OBJECT.mjOBJ_XBODY, objname=end,
                reftype=OBJECT.mjOBJ_XBODY, refname=root,
            )  # fmt: skip
    return Robot(path, declared, joints, ends, root, spec.compile())


@pytest.mark.parametrize("name", gate(ROBOTS, {*ROBOTS} - {"dog"}))
def test_all_sensors_of_a_robot_equal_mujocos(name: str) -> None:
    """Joints agree within 1e-6, frames within 1e-5, and declared sensors bit for bit, at every fifth tick."""
    bot = robot(name)
    engine = sn.MujocoEngine(bot.path, ENVS)
    frames = sn.FrameTransformerCfg.FrameCfg
    scene = sn.Scene(
        engine,
        [
            sn.JointSensorCfg(name="joints", joints=".*", fields=("position", "velocity", "effort")),
            sn.FrameTransformerCfg(
                name="ends", body=bot.root, target_frames=tuple(frames(body=end) for end in bot.ends)
            ),
        ],
    )
    assert tuple(scene["joints"].data.joint_names) == bot.joints and len(bot.joints) > 0
    assert tuple(scene["ends"].data.target_frame_names) == bot.ends and len(bot.ends) > 0
    assert set(bot.declared) == set(scene) - {"joints", "ends"}
    random = torch.Generator().manual_seed(1)
    low, high = engine.ctrl_range.clamp(-1.0, 1.0).unbind(-1)
    data = mujoco.MjData(bot.reference)
    seen = 0.0
    for tick in range(1, TICKS + 1):
        scene.step(low + (high - low) * torch.rand((ENVS, engine.nu), generator=random, dtype=torch.float64))
        if tick % 5:
            continue
        joints, ends = scene["joints"].ground_truth, scene["ends"].ground_truth
        for env in range(ENVS):
            row = engine.batch.state[env]
            assert len(row) == mujoco.mj_stateSize(bot.reference, mujoco.mjtState.mjSTATE_INTEGRATION)
            mujoco.mj_setState(bot.reference, data, row, mujoco.mjtState.mjSTATE_INTEGRATION)
            mujoco.mj_forward(bot.reference, data)
            for field in ("position", "velocity", "effort"):
                native = [data.sensor(f"test/{field}/{joint}").data[0] for joint in bot.joints]
                np.testing.assert_allclose(getattr(joints, field)[env].numpy(), native, rtol=1e-6, atol=1e-6)
            for word, value in (("pos", ends.target_pos_source), ("quat", ends.target_quat_source)):
                native = np.array([data.sensor(f"test/{word}/{end}").data for end in bot.ends])
                if word == "quat":
                    native = np.where(native[:, :1] < 0.0, -native, native)
                np.testing.assert_allclose(value[env].numpy(), native, atol=1e-5)
            for sensor in bot.declared:
                native = data.sensor(sensor).data.astype(np.float32)
                assert np.array_equal(scene[sensor].ground_truth[env].numpy(), native), sensor
            seen = max(seen, float(np.abs(joints.effort[env].numpy()).max()))
    assert seen > 0.0 or engine.nu == 0
