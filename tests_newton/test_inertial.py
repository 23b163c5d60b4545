"""IMU, joints and frames on Newton agree with Newton's own sensors and with MuJoCo from the same states."""

from __future__ import annotations

from pathlib import Path

import mujoco
import newton
import numpy as np
import pytest
import quadruped
import torch
import warp as wp
from newton.sensors import SensorFrameTransform, SensorIMU

import sensorium as sn
from sensorium.errors import ModelError
from sensorium.spec import BODY_ACCELERATION, BODY_POSE, BODY_VELOCITY, JOINT_EFFORT, JOINT_STATE, JOINT_WRENCH

IMU = sn.ImuCfg(name="imu", site="imu")
NEEDED = (BODY_POSE, BODY_VELOCITY, BODY_ACCELERATION, JOINT_STATE, JOINT_EFFORT, JOINT_WRENCH)


@pytest.fixture(scope="module", params=[4, 64])
def scene(request: pytest.FixtureRequest) -> sn.Scene:
    sensors = [
        IMU,
        sn.JointSensorCfg(name="joints", joints=".*"),
        sn.FrameTransformerCfg(name="feet", site="imu", target_frames=[sn.FrameTransformerCfg.FrameCfg(site=".*_toe")]),
    ]
    return sn.Scene(quadruped.engine_of(request.param), sensors)


def engine_in(scene: sn.Scene) -> sn.NewtonEngine:
    engine = scene.engine
    assert isinstance(engine, sn.NewtonEngine)
    return engine


def test_names_are_the_ends_of_labels(scene: sn.Scene) -> None:
    engine = engine_in(scene)
    assert engine.names("body")[:3] == ("base", "FL_thigh", "FL_shank")
    assert engine.names("site") == ("imu", "FL_toe", "FR_toe", "RL_toe", "RR_toe")
    assert "FL_foot" in engine.names("geom") and "imu" not in engine.names("geom")
    assert engine.names("scalar_joint")[:2] == ("FL_hip", "FL_knee")
    assert engine.subtree("FL_thigh") == ("FL_thigh", "FL_shank")


def test_imu_is_that_of_newton(scene: sn.Scene) -> None:
    engine = engine_in(scene)
    theirs = SensorIMU(engine.model, "*imu", request_state_attributes=False)
    scene.reset(**quadruped.start(scene.num_envs))
    for k in range(60):
        scene.step(torch.full((8,), 0.2 * np.sin(0.1 * k)))
        if k % 10 == 0:
            ours = scene["imu"].ground_truth
            engine.refresh()
            theirs.update(engine.newton_state, observables=engine._access.observables)
            accelerometer, gyroscope = (wp.to_torch(each) for each in (theirs.accelerometer, theirs.gyroscope))
            torch.testing.assert_close(ours.ang_vel_b, gyroscope, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(ours.lin_acc_b, accelerometer, rtol=1e-5, atol=1e-4)
            assert float(accelerometer.norm(dim=-1).max()) > 5.0


@pytest.mark.parametrize("integrator", ["implicitfast", "euler", "rk4"])
def test_state_is_that_of_mujoco(tmp_path: Path, integrator: str) -> None:
    model, path = quadruped.model_of(4), tmp_path / "compiled.xml"
    solver = newton.solvers.SolverMuJoCo(model, save_to_mjcf=str(path), integrator=integrator)
    engine = sn.NewtonEngine(model, solver, dt=quadruped.DT)
    spec = mujoco.MjSpec.from_file(str(path))
    spec.option.timestep = quadruped.DT
    other = sn.MujocoEngine(spec, num_envs=engine.num_envs)
    for each in (engine, other):
        each.prepare(dict.fromkeys(NEEDED, "test"))
    rows = [_row(other, "body", name) for name in engine.names("body")]
    joints = [_row(other, "scalar_joint", name) for name in engine.names("scalar_joint")]
    engine.reset(None, quadruped.start())
    for _ in range(5):
        quadruped.run(engine, 20)
        engine.refresh()
        data = engine.solver.mjw_data
        state = {name: wp.to_torch(getattr(data, name)).double() for name in ("qpos", "qvel", "ctrl")}
        other.reset(None, state)
        other.refresh()
        for name in ("pos", "quat", "lin_vel", "ang_vel"):
            ours, theirs = engine.array(f"body_{name}_w"), other.array(f"body_{name}_w")[:, rows]
            if name == "quat":
                theirs = theirs * torch.sign((ours * theirs).sum(-1, keepdim=True))
            torch.testing.assert_close(ours, theirs, rtol=0.0, atol=2e-5 * max(1.0, float(theirs.abs().max())))
        for name in ("lin_acc", "ang_acc", "parent_force", "parent_torque"):
            ours, theirs = engine.array(f"body_{name}_w"), other.array(f"body_{name}_w")[:, rows]
            error, scale = float((ours - theirs).abs().max()), float(theirs.abs().max())
            assert error <= 1e-4 * scale, f"{name}: {error} of {scale}"
        for name in ("joint_pos", "joint_vel", "joint_effort"):
            ours, theirs = engine.array(name), other.array(name)[:, joints]
            torch.testing.assert_close(
                ours, theirs, rtol=1e-4, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}"
            )


@pytest.mark.parametrize("integrator", ["implicitfast", "rk4"])
def test_observing_does_not_change_the_physics(integrator: str) -> None:
    model = quadruped.model_of(4)
    watched, alone = (
        sn.NewtonEngine(model, newton.solvers.SolverMuJoCo(model, integrator=integrator), dt=quadruped.DT)
        for _ in range(2)
    )
    watched.prepare(dict.fromkeys(NEEDED, "test"))
    for engine in (watched, alone):
        engine.reset(None, quadruped.start())
    for _ in range(30):
        for engine in (watched, alone):
            engine.step(torch.full((8,), 0.2))
        watched.refresh()
    assert torch.equal(watched.joint_q, alone.joint_q) and torch.equal(watched.joint_qd, alone.joint_qd)


def test_accelerations_need_no_other_requirement() -> None:
    alone, together = quadruped.engine_of(), quadruped.engine_of()
    alone.prepare({BODY_ACCELERATION: "test"})
    together.prepare(dict.fromkeys(NEEDED, "test"))
    for engine in (alone, together):
        engine.reset(None, quadruped.start())
        quadruped.run(engine, 5)
        engine.refresh()
    for name in ("body_lin_acc_w", "body_ang_acc_w"):
        assert torch.equal(alone.array(name), together.array(name))


def test_rk4_has_no_unfresh_accelerations() -> None:
    model = quadruped.model_of(4)
    solver = newton.solvers.SolverMuJoCo(model, integrator="rk4")
    with pytest.raises(ModelError, match=r"fresh=False.*integrator='rk4'"):
        sn.NewtonEngine(model, solver, dt=quadruped.DT, fresh=False)
    observables = solver.observables({"body_qdd"})
    with pytest.raises(ModelError, match=r"observables of your loop.*integrator='rk4'"):
        sn.NewtonEngine.from_newton(model, solver, model.state(), dt=quadruped.DT, observables=observables)


def _row(engine: sn.MujocoEngine, kind: str, name: str) -> int:
    """Return the row of an element of the model that SolverMuJoCo compiled, which Newton's label names."""
    return next(k for k, each in enumerate(engine.names(kind)) if each.endswith(name))


def test_frames_are_those_of_newton(scene: sn.Scene) -> None:
    engine = engine_in(scene)
    shapes = [k for k, label in enumerate(engine.model.shape_label) if label.endswith("_toe")]
    sites = [k for k, label in enumerate(engine.model.shape_label) if label.endswith("imu") for _ in quadruped.LEGS]
    theirs = SensorFrameTransform(engine.model, shapes, sites)
    scene.reset(**quadruped.start(scene.num_envs))
    for _ in range(3):
        scene.step(torch.zeros(8), 10)
        theirs.update(engine.newton_state)
        found = quadruped.per_env(theirs.transforms, scene.num_envs)
        ours = scene["feet"].ground_truth
        torch.testing.assert_close(ours.target_pos_source, found[..., :3], rtol=0.0, atol=2e-6)
        quat = found[..., [6, 3, 4, 5]]
        quat = quat * torch.sign((quat * ours.target_quat_source).sum(-1, keepdim=True))
        torch.testing.assert_close(ours.target_quat_source, quat, rtol=0.0, atol=2e-6)


def test_joints_are_newtons_memory(scene: sn.Scene) -> None:
    engine = engine_in(scene)
    scene.reset(**quadruped.start(scene.num_envs))
    scene.step(torch.zeros(8), 5)
    torch.testing.assert_close(scene["joints"].ground_truth.position, engine.joint_q[:, 7:], rtol=0.0, atol=0.0)
    assert engine.array("body_pos_w").data_ptr() == engine.newton_state.body_q.ptr
    assert engine.array("joint_pos").data_ptr() == engine.newton_state.joint_q.ptr + 4 * 7


def test_unfresh_state_is_one_tick_old() -> None:
    engine, fresh = quadruped.engine_of(fresh=False), quadruped.engine_of()
    for each in (engine, fresh):
        each.prepare(dict.fromkeys(NEEDED, "test"))
        each.reset(None, quadruped.start())
        quadruped.run(each, 10)
    assert (engine.lag, fresh.lag) == (1, 0)
    fresh.refresh()
    before = {name: fresh.array(name).clone() for name in ("body_pos_w", "body_quat_w", "body_lin_vel_w")}
    after = fresh.array("body_lin_acc_w").clone()
    engine.step(engine.ctrl.clone())
    engine.refresh()
    for name, values in before.items():
        torch.testing.assert_close(engine.array(name), values, rtol=0.0, atol=0.0)
    torch.testing.assert_close(engine.array("body_lin_acc_w"), after, rtol=0.0, atol=0.0)
