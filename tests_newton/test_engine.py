"""NewtonEngine keeps the protocol, and refuses what a model or a solver does not provide."""

from __future__ import annotations

import newton
import pytest
import quadruped
import torch
import warp as wp

import sensorium as sn
from sensorium.errors import ArgumentError, ModelError, ScheduleError, UnknownNameError, UnsupportedError
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    BODY_VELOCITY,
    CONTACT_REPORT,
    JOINT_STATE,
    JOINT_TORQUE,
    SHAPES,
    contact_array,
)
from sensorium.testing import check_engine

IMU = sn.ImuCfg(name="imu", site="imu", noise={"ang_vel_b": 0.01})


@pytest.mark.parametrize("fresh", [True, False])
def test_protocol(fresh: bool) -> None:
    rules = check_engine(lambda num_envs: quadruped.engine_of(num_envs, fresh=fresh), ticks=20)
    assert {"velocities_move_the_bodies", "contact_reports_agree", "resuming_is_exact", "bodies_form_a_tree"} <= {
        *rules
    }


def sphere(num_envs: int = 2) -> newton.Model:
    """Return a model with a sphere that falls on a ground shared by all worlds."""
    builder, ball = newton.ModelBuilder(), newton.ModelBuilder()
    body = ball.add_body(xform=wp.transform((0.0, 0.0, 0.0995), wp.quat_identity()), label="ball")
    ball.add_shape_sphere(body, radius=0.1, label="skin")
    ball.add_site(body, label="imu")
    builder.add_ground_plane()
    builder.replicate(ball, num_envs)
    return builder.finalize(device="cpu")


def test_other_solvers_provide_what_they_can() -> None:
    model = sphere()
    engine = sn.NewtonEngine(model, newton.solvers.SolverXPBD(model), dt=0.002)
    report = CONTACT_REPORT(("body", ("ball",)), None, ("found", "force"), "netforce")
    engine.prepare({report: "contact", BODY_POSE: "imu", BODY_VELOCITY: "imu", JOINT_STATE: "joints"})
    for _ in range(100):
        engine.step()
    engine.refresh()
    weight = 9.81 * float(model.body_mass.numpy()[0])
    force = engine.array(contact_array(report))[:, 0, 0, 1:]
    assert float((force[:, 2] - weight).abs().max()) < 0.2 * weight
    with pytest.raises(UnsupportedError, match=r"'imu'.*BODY_ACCELERATION.*SolverXPBD does not provide 'body_qdd'"):
        engine.prepare({BODY_ACCELERATION: "imu"})


def test_quantities_that_newton_lacks() -> None:
    engine = quadruped.engine_of()
    with pytest.raises(UnsupportedError, match=r"'motors'.*JOINT_TORQUE.*newton.*SolverMuJoCo"):
        engine.prepare({JOINT_TORQUE: "motors"})


def test_worlds_of_unequal_size_are_refused() -> None:
    builder, small = newton.ModelBuilder(), newton.ModelBuilder()
    newton.solvers.SolverMuJoCo.register_custom_attributes(builder)
    body = small.add_body(label="box")
    small.add_shape_box(body, hx=0.1, hy=0.1, hz=0.1)
    builder.add_world(quadruped.robot())
    builder.add_world(small)
    model = builder.finalize(device="cpu")
    with pytest.raises(ModelError, match=r"worlds 0 and 1 have different bodies .*9 and 1"):
        sn.NewtonEngine(model, newton.solvers.SolverXPBD(model), dt=0.002)


def worlds_with(*heights: float) -> newton.Model:
    """Return a model whose worlds have a step of these heights."""
    builder = newton.ModelBuilder()
    for height in heights:
        world = newton.ModelBuilder()
        body = world.add_body(label="ball")
        world.add_shape_sphere(body, radius=0.1, label="skin")
        world.add_shape_box(-1, hx=1.0, hy=1.0, hz=height, label="step")
        builder.add_world(world)
    return builder.finalize(device="cpu")


def test_terrain_is_shared_or_copied() -> None:
    shared, copied = sphere(), worlds_with(0.2, 0.2)
    for model, ground in ((shared, "plane"), (copied, "box")):
        engine = sn.NewtonEngine(model, newton.solvers.SolverXPBD(model), dt=0.002)
        assert engine.supports(SHAPES) is None
        assert {shape.kind for shape in engine.shapes()} == {"sphere", ground}
        assert next(shape for shape in engine.shapes() if shape.kind == ground).is_static
    differing = worlds_with(0.2, 0.3)
    engine = sn.NewtonEngine(differing, newton.solvers.SolverXPBD(differing), dt=0.002)
    with pytest.raises(UnsupportedError, match=r"'scan'.*SHAPES.*shape 'step' has another size in world 1"):
        sn.Scene(engine, [sn.RayCasterCfg(name="scan", body="ball")])


def test_loop_of_the_owner() -> None:
    model = quadruped.model_of(4)
    solver = newton.solvers.SolverMuJoCo(model)
    state, spare, control = model.state(), model.state(), model.control()
    owned = quadruped.engine_of()
    owned.reset(None, quadruped.start())
    state.assign(owned.newton_state)
    live = sn.NewtonEngine.from_newton(model, solver, lambda: state, dt=quadruped.DT, control=control)
    scenes = [sn.Scene(engine, [IMU], seed=3) for engine in (live, owned)]
    scenes[1].reset(**quadruped.start())
    scenes[0].reset()
    for _ in range(10):
        solver.step(state, spare, control, None, quadruped.DT)
        state, spare = spare, state
        scenes[0].update()
        scenes[1].step()
        ours, theirs = (scene["imu"].data for scene in scenes)
        torch.testing.assert_close(ours.lin_acc_b, theirs.lin_acc_b, rtol=0.0, atol=0.0)
        torch.testing.assert_close(ours.ang_vel_b, theirs.ang_vel_b, rtol=0.0, atol=0.0)
    with pytest.raises(ScheduleError, match="wraps your Newton loop"):
        scenes[0].step()
    with pytest.raises(ScheduleError, match=r"write joint_q of your newton.State"):
        scenes[0].reset([1], joint_q=0.0)


def test_arguments() -> None:
    model = sphere()
    solver = newton.solvers.SolverXPBD(model)
    with pytest.raises(ModelError, match=r"expected a newton.Model"):
        sn.NewtonEngine("robot.xml", solver, dt=0.002)
    with pytest.raises(ModelError, match="belongs to another model"):
        sn.NewtonEngine(sphere(), solver, dt=0.002)
    with pytest.raises(ArgumentError, match="control: got 'qpos'"):
        sn.NewtonEngine(model, solver, dt=0.002, control="qpos")
    engine = sn.NewtonEngine(model, solver, dt=0.002)
    with pytest.raises(ArgumentError, match=r"ctrl: got shape \(3,\), expected \(2, 0\)"):
        engine.step(torch.zeros(3))
    with pytest.raises(UnknownNameError, match="qpos"):
        engine.reset(None, {"qpos": 0.0})
    assert engine.prepared == frozenset()
    engine.prepare({BODY_POSE: "test"})
    assert BODY_ACCELERATION not in engine.prepared
