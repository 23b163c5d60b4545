"""MujocoEngine on MuJoCo 3.17, the first version with `mujoco.batch`."""

from __future__ import annotations

import mujoco
import pytest
import quadruped
import torch

import sensorium as sn
from sensorium.errors import ModelError
from sensorium.testing import check_engine

IMU = sn.ImuCfg(name="imu", site="imu")


@pytest.fixture(autouse=True)
def is_3_17() -> None:
    assert mujoco.__version__.startswith("3.17.")


def test_protocol() -> None:
    rules = check_engine(lambda num_envs: sn.MujocoEngine(quadruped.ROBOT, num_envs), ticks=20)
    assert {"contact_reports_agree", "resuming_is_exact", "bodies_form_a_tree"} <= {*rules}


def test_values_per_environment() -> None:
    """Mounts follow a field that is expanded after the scene was created, and masses change the physics."""
    engine = sn.MujocoEngine(quadruped.ROBOT, 8)
    scene = sn.Scene(engine, [sn.BodyStateCfg(name="state", site="imu"), IMU])
    assert engine.batch.expanded("site_pos") is None
    before = scene["state"].ground_truth.pos_w.clone()
    engine.batch.expand("site_pos")[3, engine.model.site("imu").id, 2] += 0.25
    assert engine.batch.expanded("site_pos").shape == (8, engine.model.nsite, 3)
    scene.reset()
    moved = scene["state"].ground_truth.pos_w - before
    torch.testing.assert_close(moved[3], torch.tensor([0.0, 0.0, 0.25]), rtol=0.0, atol=1e-6)
    assert not moved[[0, 1, 2, 4, 5, 6, 7]].any()
    engine.batch.expand("opt.gravity")[5] = 0.0
    engine.qpos[:, 2] = 2.0
    scene.step(substeps=10)
    fall = engine.qvel[:, 2] - engine.qvel[5, 2]
    assert float(fall[4]) < -0.1 and torch.equal(fall[:5], fall[:1].expand(5))


def test_models_per_environment() -> None:
    engine = sn.MujocoEngine(mujoco.MjModel.from_xml_string(quadruped.ROBOT), 8)
    scene = sn.Scene(engine, [sn.JointSensorCfg(name="joints", joints=".*")])
    assert engine.batch.models is None
    other = mujoco.MjModel.from_xml_string(quadruped.ROBOT.replace('mass="4"', 'mass="8"'))
    engine.batch.set_models([engine.model] * 7 + [other])
    assert engine.batch.models[7] is other
    scene.step(substeps=40)
    assert torch.equal(engine.qpos[0], engine.qpos[6]) and not torch.equal(engine.qpos[0], engine.qpos[7])
    with pytest.raises(ModelError, match=r"the environments run different models \(batch.set_models\)"):
        scene.add(sn.RayCasterCfg(name="scan", body="base"))
