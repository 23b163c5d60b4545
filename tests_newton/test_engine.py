"""NewtonEngine keeps the protocol, and refuses what a model or a solver does not provide."""

from __future__ import annotations

import newton
import pytest
import quadruped
import torch
import warp as wp

import sensorium as sn
from sensorium.errors import ArgumentError, ModelError, ScheduleError, UnknownNameError, UnsupportedError
from sensorium.rl import RlEnv
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    BODY_VELOCITY,
    CONTACT_REPORT,
    JOINT_EFFORT,
    JOINT_STATE,
    JOINT_TORQUE,
    JOINT_WRENCH,
    MAGNETIC,
    NATIVE_SENSOR,
    SHAPES,
    Requirement,
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


def sphere(num_envs: int = 2, height: float = 0.0995) -> newton.Model:
    """Return a model with a sphere that falls on a ground shared by all worlds."""
    builder, ball = newton.ModelBuilder(), newton.ModelBuilder()
    newton.solvers.SolverMuJoCo.register_custom_attributes(builder)
    body = ball.add_body(xform=wp.transform((0.0, 0.0, height), wp.quat_identity()), label="ball")
    ball.add_shape_sphere(body, radius=0.1, label="skin")
    ball.add_site(body, label="imu")
    builder.add_ground_plane()
    builder.replicate(ball, num_envs)
    return builder.finalize(device="cpu")


@pytest.mark.parametrize("solver", ["SolverMuJoCo", "SolverXPBD", "SolverFeatherstone"])
def test_protocol_of_free_bodies(solver: str) -> None:
    mass = float(sphere().body_mass.numpy()[0])
    height = 0.15 if solver == "SolverXPBD" else 0.0995  # XPBD moves a body out of the ground without a velocity

    def make(num_envs: int) -> sn.NewtonEngine:
        model = sphere(num_envs, height)
        return sn.NewtonEngine(model, getattr(newton.solvers, solver)(model), dt=0.002)

    rules = check_engine(make, free={"ball": mass}, ticks=20)
    assert ("free_bodies_obey_newton" in rules) == (solver == "SolverMuJoCo")
    assert {"velocities_move_the_bodies", "resuming_is_exact", "reset_leaves_the_others"} <= {*rules}


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


def pendulum(num_envs: int = 2) -> newton.Model:
    """Return a model with a hinge whose body has its centre of mass away from its origin."""
    builder, world = newton.ModelBuilder(), newton.ModelBuilder()
    link = world.add_link(label="link")
    world.add_shape_box(link, xform=wp.transform((0.3, 0.0, 0.0), wp.quat_identity()), hx=0.3, hy=0.02, hz=0.02)
    hinge = world.add_joint_revolute(-1, link, axis=(0.0, 1.0, 0.0), label="hinge")
    world.add_articulation([hinge])
    builder.replicate(world, num_envs)
    return builder.finalize(device="cpu")


@pytest.mark.parametrize("solver", ["SolverXPBD", "SolverFeatherstone", "SolverMuJoCo"])
def test_joints_of_each_solver(solver: str) -> None:
    model = pendulum()
    engine = sn.NewtonEngine(model, getattr(newton.solvers, solver)(model), dt=0.001)
    engine.prepare({JOINT_STATE: "joints", BODY_POSE: "pose", BODY_VELOCITY: "pose"})
    engine.reset([1], {"joint_q": [[0.4]], "joint_qd": [[-1.0]]})
    engine.refresh()
    half = torch.tensor(0.2)
    turned = torch.stack([half.cos(), torch.tensor(0.0), half.sin(), torch.tensor(0.0)])
    torch.testing.assert_close(engine.array("body_quat_w")[1, 0], turned, rtol=0.0, atol=1e-6)
    before = engine.array("joint_pos")[:, 0].clone()
    torch.testing.assert_close(before, torch.tensor([0.0, 0.4]), rtol=0.0, atol=1e-5)
    torch.testing.assert_close(engine.array("joint_vel")[:, 0], torch.tensor([0.0, -1.0]), rtol=0.0, atol=1e-4)
    engine.step(None, 20)
    engine.refresh()
    moved = engine.array("joint_pos")[:, 0] - before
    assert 0.001 < float(moved[0]) < 0.02 and -0.02 < float(moved[1]) < -0.001  # gravity pulls the bar down
    assert float(engine.array("body_pos_w").abs().max()) < 1e-3  # the origin is on the hinge
    assert float(engine.array("body_lin_vel_w").abs().max()) < 2e-2


@pytest.mark.parametrize(
    ("solver", "requirement", "reason"),
    [
        ("SolverXPBD", JOINT_WRENCH, "joint wrenches of SolverXPBD hold only for bodies at rest"),
        ("SolverFeatherstone", JOINT_WRENCH, "joint wrenches of SolverFeatherstone hold only for bodies at rest"),
        ("SolverFeatherstone", BODY_ACCELERATION, "SolverFeatherstone does not provide 'body_qdd'"),
        ("SolverSemiImplicit", JOINT_EFFORT, "SolverSemiImplicit does not provide 'qfrc_actuator'"),
        ("SolverSemiImplicit", MAGNETIC, "SolverSemiImplicit has no magnetic field"),
        ("SolverXPBD", NATIVE_SENSOR("gyro"), "Newton models have no sensors of MuJoCo"),
    ],
)
def test_refusals_name_solver_and_quantity(solver: str, requirement: Requirement, reason: str) -> None:
    model = pendulum()
    engine = sn.NewtonEngine(model, getattr(newton.solvers, solver)(model), dt=0.001)
    with pytest.raises(UnsupportedError, match=rf"'probe' requires {requirement.kind}.*newton.*{reason}"):
        engine.prepare({requirement: "probe"})
    assert engine.prepared == frozenset()


def test_model_without_worlds() -> None:
    builder = newton.ModelBuilder()
    newton.solvers.SolverMuJoCo.register_custom_attributes(builder)
    body = builder.add_body(xform=wp.transform((0.0, 0.0, 1.0), wp.quat_identity()), label="ball")
    builder.add_shape_sphere(body, radius=0.1, label="skin")
    builder.add_ground_plane()
    model = builder.finalize(device="cpu")
    engine = sn.NewtonEngine(model, newton.solvers.SolverXPBD(model), dt=0.002)
    assert engine.num_envs == 1 and engine.names("body") == ("ball",)
    engine.prepare({BODY_POSE: "test"})
    for _ in range(10):
        engine.step()
    engine.refresh()
    assert 0.99 < float(engine.array("body_pos_w")[0, 0, 2]) < 1.0
    engine.reset(None, {})
    assert float(engine.array("body_pos_w")[0, 0, 2]) == 1.0


@pytest.mark.parametrize("closes", ["to the world", "to the first body"])
@pytest.mark.parametrize("is_articulated", [True, False])
def test_joints_that_close_loops_are_not_in_the_tree(closes: str, is_articulated: bool) -> None:
    chain, builder = newton.ModelBuilder(), newton.ModelBuilder()
    bars = [chain.add_link(label=label) for label in ("crank", "rod", "rocker")]
    for bar in bars:
        chain.add_shape_box(bar, hx=0.1, hy=0.02, hz=0.02)
    joints = [
        chain.add_joint_revolute(above, bar, axis=(0, 1, 0)) for above, bar in zip((-1, *bars), bars, strict=False)
    ]
    if is_articulated:
        chain.add_articulation(joints)
    ends = (-1, bars[2]) if closes == "to the world" else (bars[2], bars[0])
    chain.add_joint_revolute(*ends, axis=(0, 1, 0))
    builder.replicate(chain, 2)
    model = builder.finalize(device="cpu", skip_validation_joints=not is_articulated)
    engine = sn.NewtonEngine(model, newton.solvers.SolverXPBD(model), dt=0.002)
    assert [engine.parent_body(row) for row in range(3)] == [-1, 0, 1]
    assert engine.subtree("rod") == ("rod", "rocker")


def test_later_requirements_keep_arrays_in_place() -> None:
    engine = quadruped.engine_of()
    engine.prepare({BODY_POSE: "first"})
    quat = engine.array("body_quat_w")
    engine.prepare({BODY_VELOCITY: "second", BODY_ACCELERATION: "second"})
    assert engine.array("body_quat_w").data_ptr() == quat.data_ptr()
    engine.reset(None, quadruped.start())
    torch.testing.assert_close(quat[:, 0, 1:], engine.joint_q[:, 3:6])


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
    with pytest.raises(UnsupportedError, match=r"'scan'.*SHAPES.*shape 'step' has a different size in world 1"):
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


def test_loop_with_observables_is_one_tick_old() -> None:
    model = quadruped.model_of(4)
    solver = newton.solvers.SolverMuJoCo(model)
    state, spare, control = model.state(), model.state(), model.control()
    contacts = newton.Contacts(solver.get_max_contact_count(), 0, device=model.device)
    observables = solver.observables({"body_qdd", "contact_f"}, contacts=contacts)
    owned = quadruped.engine_of(fresh=False)
    owned.reset(None, quadruped.start())
    state.assign(owned.newton_state)
    live = sn.NewtonEngine.from_newton(
        model, solver, lambda: state, dt=quadruped.DT, control=control, observables=observables
    )
    feet = tuple(f"{leg}_foot" for leg in quadruped.LEGS)
    report = CONTACT_REPORT(("geom", feet), None, ("found", "force", "pos"), "maxforce")
    needed = {BODY_ACCELERATION: "imu", BODY_POSE: "imu", BODY_VELOCITY: "imu", report: "feet"}
    names = ("body_pos_w", "body_quat_w", "body_lin_vel_w", "body_lin_acc_w", contact_array(report))
    for engine in (live, owned):
        engine.prepare(needed)
        engine.refresh()
    assert (live.lag, owned.lag) == (0, 0)
    for k in range(30):
        solver.step(state, spare, control, contacts, quadruped.DT, observables=observables)
        state, spare = spare, state
        live.count_ticks(1)
        owned.step()
        if k == 20:
            for name in ("body_q", "body_qd", "joint_q", "joint_qd"):
                start = model.state() if k else state
                newton.eval_fk(model, start.joint_q, start.joint_qd, start)
                here, there = wp.to_torch(getattr(state, name)), wp.to_torch(getattr(start, name))
                here.view(4, -1)[2] = there.view(4, -1)[2]
            mask = wp.from_torch(torch.tensor([False, False, True, False, False]))
            solver.reset(state, mask, flags=0)
            live.reset([2])
            owned.reset([2], {})
        for engine in (live, owned):
            engine.refresh()
        for name in names:
            torch.testing.assert_close(live.array(name), owned.array(name), rtol=0.0, atol=0.0, msg=f"{name} at {k}")
    with pytest.raises(UnsupportedError, match=r"'wrist'.*JOINT_WRENCH.*the observables of your loop lack"):
        live.prepare({JOINT_WRENCH: "wrist"})
    with pytest.raises(ScheduleError, match="2 ticks at once"):
        live.count_ticks(2)
    with pytest.raises(ModelError, match="expected those of the solver"):
        sn.NewtonEngine.from_newton(model, solver, state, dt=quadruped.DT, observables="all")


def test_the_current_state_belongs_to_the_model() -> None:
    model = sphere()
    current = {"state": model.state()}
    live = sn.NewtonEngine.from_newton(model, newton.solvers.SolverXPBD(model), lambda: current["state"], dt=0.002)
    for state, why in ((sphere(1).state(), "belongs to another model"), (None, "the function returned None")):
        current["state"] = state
        with pytest.raises(ModelError, match=why):
            live.count_ticks(1)


def test_poses_of_bodies_that_the_solver_would_replace_are_rejected() -> None:
    model = sphere()
    engine = sn.NewtonEngine(model, newton.solvers.SolverMuJoCo(model), dt=0.002)
    with pytest.raises(ArgumentError, match="state: got body_q, but SolverMuJoCo computes bodies from joints"):
        engine.reset([1], {"body_q": (0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)})


def test_arguments() -> None:
    model = sphere()
    solver = newton.solvers.SolverXPBD(model)
    with pytest.raises(ModelError, match=r"expected a newton.Model"):
        sn.NewtonEngine("robot.xml", solver, dt=0.002)
    with pytest.raises(ModelError, match="belongs to another model"):
        sn.NewtonEngine(sphere(), solver, dt=0.002)
    for pipeline in ("sap", newton.CollisionPipeline(sphere())):
        with pytest.raises(ModelError, match="as pipeline, expected one of this model: newton"):
            sn.NewtonEngine(model, solver, dt=0.002, pipeline=pipeline)
    with pytest.raises(ArgumentError, match="control: got 'qpos'"):
        sn.NewtonEngine(model, solver, dt=0.002, control="qpos")
    engine = sn.NewtonEngine(model, solver, dt=0.002)
    with pytest.raises(ArgumentError, match=r"ctrl: got shape \(3,\), expected \(2, 0\)"):
        engine.step(torch.zeros(3))
    with pytest.raises(UnknownNameError, match="qpos"):
        engine.reset(None, {"qpos": 0.0})
    for pose in ("joint_q", "body_q"):
        with pytest.raises(ArgumentError, match=f"{pose}: got a quaternion of zeros"):
            engine.reset([1], {pose: 0.0})
    assert engine.prepared == frozenset()
    engine.prepare({BODY_POSE: "test"})
    assert BODY_ACCELERATION not in engine.prepared


class Walk(RlEnv):
    """Pays nothing, and ends no episode."""

    def reward(self) -> torch.Tensor:
        return torch.ones(self.num_envs)


def test_task_has_an_action_for_each_control_and_ends_diverged_episodes() -> None:
    """The controls of position targets are named as the scalar joints. A world with NaN terminates with reward 0."""
    engine = quadruped.engine_of(2)
    task = Walk(sn.Scene(engine, [sn.JointSensorCfg(name="legs", joints=".*")]), {"policy": ["legs"]})
    assert task.action_names == engine.names("scalar_joint") and task.action.shape == engine.ctrl.shape == (2, 8)
    task.reset()
    engine.joint_qd[1, 0] = float("nan")
    reward, terminated, _ = task.step(torch.zeros(2, 8))
    assert terminated.tolist() == [False, True] and reward.tolist() == [1.0, 0.0]
    with pytest.warns(sn.NonFiniteStateWarning):
        assert all(values.isfinite().all() for values in task.observe().values())
    task.reset(terminated)
    assert not task.step(torch.zeros(2, 8)).terminated.any()
