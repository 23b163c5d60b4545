from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch

from sensorium.engines.base import FrameOnBody
from sensorium.engines.mujoco.engine import PERSISTENT_UP_TO, MujocoEngine
from sensorium.engines.mujoco.spec import prepare_spec
from sensorium.errors import ModelError, ScheduleError, UnknownNameError, UnsupportedError
from sensorium.spec import (
    BODY_POSE,
    BODY_VELOCITY,
    JOINT_EFFORT,
    JOINT_STATE,
    JOINT_TORQUE,
    JOINT_WRENCH,
    MODEL_ELEMENTS,
)

ROBOT = """
<mujoco model="robot">
  <option timestep="0.002" integrator="implicitfast"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body name="trunk" pos="0 0 .4">
      <freejoint name="root"/>
      <geom type="box" size=".1 .08 .05"/>
      <site name="belly" pos=".05 .02 -.03" quat=".8 .1 .5 .3"/>
      <body name="thigh" pos=".12 0 0">
        <joint name="hip" axis="0 1 .2" range="-40 40" damping=".1 .02 .03" armature=".02" frictionloss=".3"
          stiffness="2"/>
        <geom type="capsule" fromto="0 0 0 .1 0 -.1" size=".03"/>
        <body name="shank" pos=".1 0 -.1" quat=".9 .1 .3 .3" gravcomp="1">
          <joint name="knee" axis="1 .3 0" range="-30 30" armature=".01" frictionloss=".2" actuatorgravcomp="true"/>
          <geom type="capsule" fromto="0 0 0 .1 0 -.1" size=".03"/>
          <site name="ankle" pos=".1 .02 -.03" quat=".3 .1 -.5 .8"/>
          <body name="foot" pos=".1 0 -.1">
            <joint name="press" type="slide" axis="0 .1 1" range="-.05 .05" armature=".3" frictionloss="1"
              actuatorfrcrange="-2 2"/>
            <joint name="twist" axis="0 0 1" damping=".001"/>
            <geom size=".04"/>
          </body>
        </body>
      </body>
      <body name="tail" pos="-.12 0 0">
        <joint name="wag" type="ball" damping=".02"/>
        <geom type="capsule" fromto="0 0 0 -.2 0 .05" size=".02"/>
        <body name="tip" pos="-.2 0 .05">
          <joint axis="0 1 0" damping=".01"/>
          <geom size=".03"/>
        </body>
      </body>
    </body>
    <body name="post" pos="1 0 0"><geom size=".05" mass="2"/></body>
  </worldbody>
  <tendon><fixed name="couple"><joint joint="knee" coef="1"/><joint joint="twist" coef="-.5"/></fixed></tendon>
  <actuator>
    <general joint="hip" gear="3" damping=".01 .02 .005" armature=".005" gainprm="2"/>
    <motor joint="knee" gear="2"/>
    <motor joint="press" gear="10"/>
    <motor tendon="couple"/>
  </actuator>
</mujoco>
"""
JOINTS = ("hip", "knee", "press", "twist", "joint_6")
JOINT = (JOINT_STATE, JOINT_EFFORT, JOINT_TORQUE, JOINT_WRENCH)
JOINT_ARRAYS = ("joint_pos", "joint_vel", "joint_effort", "joint_torque", "body_parent_force_w", "body_parent_torque_w")
INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION
FRICTION, LIMIT = (int(getattr(mujoco.mjtConstraint, f"mjCNSTR_{kind}")) for kind in ("FRICTION_DOF", "LIMIT_JOINT"))


def wanted(*requirements):
    return {requirement: "probe" for requirement in requirements or JOINT}


def spec(integrator="implicitfast", **options):
    made = mujoco.MjSpec.from_string(ROBOT)
    made.option.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator.upper()}")
    for name, value in options.items():
        setattr(made.option, name, value)
    return made


def robot(num_envs=1, requirements=JOINT, model=ROBOT, **options):
    """Return a robot that is thrown to the ground, differently in each env."""
    engine = MujocoEngine(model, num_envs, **options)
    engine.prepare(wanted(*requirements))
    generator = torch.Generator().manual_seed(1)
    engine.qvel[:] = 2.0 * torch.randn(100, engine.qvel.shape[1], generator=generator, dtype=torch.float64)[:num_envs]
    engine.forward()
    return engine


def controls(steps, num_envs=1):
    return torch.randn(steps, num_envs, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def forwarded(engine, env):
    """Return MuJoCo's MjData of one env, fully computed."""
    data = mujoco.MjData(engine.model)
    mujoco.mj_setState(engine.model, data, engine.batch.state[env], INTEGRATION)
    mujoco.mj_forward(engine.model, data)
    mujoco.mj_rnePostConstraint(engine.model, data)
    return data


def dofs(model):
    return model.jnt_dofadr[model.jnt_type >= int(mujoco.mjtJoint.mjJNT_SLIDE)]


def rows(model, data, kind):
    """Return the generalized force of one kind of constraint `[dof]`, row by row, and the number of rows."""
    force, count = np.zeros(model.nv), 0
    for row in range(data.nefc):
        if data.efc_type[row] == kind:
            jacobian = np.zeros(model.nv)
            if mujoco.mj_isSparse(model):
                start, length = data.efc_J_rowadr[row], data.efc_J_rownnz[row]
                jacobian[data.efc_J_colind[start : start + length]] = data.efc_J[start : start + length]
            else:
                jacobian[:] = data.efc_J.reshape(data.nefc, model.nv)[row]
            force += jacobian * data.efc_force[row]
            count += 1
    return force, count


def expected_torque(model, data):
    """Return the gearbox output by definition, in float64, with friction from MuJoCo's constraint forces."""
    armature = model.dof_armature.copy()
    armature[model.joint("hip").dofadr[0]] += 0.005 * 3.0**2
    friction, _ = rows(model, data, FRICTION)
    torque = data.qfrc_actuator - armature * data.qacc + friction + data.qfrc_damper
    return torque[dofs(model)]


def assert_close(got, expected, rtol=1e-5):
    expected = np.asarray(expected)
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * max(1.0, np.abs(expected).max()))


# Names


def test_scalar_joints_are_the_hinges_and_slides_in_model_order():
    """Free, ball and hidden joints have no row, and hidden ones do not change the name of an unnamed one. A scalar
    joint's frame is that of its joint.
    """

    def add(made):
        body = made.body("trunk").add_body(name="sensorium/rig")
        body.add_joint(name="sensorium/spring")
        body.add_site()
        body.add_geom(size=[0.01, 0, 0])

    engine = MujocoEngine(ROBOT)
    engine.prepare({MODEL_ELEMENTS(add): "rig", JOINT_STATE: "encoder"})
    engine.forward()
    assert engine.names("scalar_joint") == JOINTS and engine.array("joint_pos").shape == (1, 5)
    assert engine.names("joint") == ("root", "hip", "knee", "press", "twist", "wag", "joint_6")
    assert len(engine.shapes()) == engine.model.ngeom - 1 == len(engine.names("geom"))
    assert engine.names("site") == ("belly", "ankle")
    assert engine.frame("scalar_joint", "knee") == engine.frame("joint", "knee") == FrameOnBody(2)
    with pytest.raises(UnknownNameError, match="'wag'"):
        engine.frame("scalar_joint", "wag")
    pair = MujocoEngine.compose({"left": ROBOT, "right": ROBOT})
    assert pair.names("scalar_joint") == tuple(f"{side}/{joint}" for side in ("left", "right") for joint in JOINTS)


# Position, velocity, effort


@pytest.mark.parametrize("num_envs", [3, PERSISTENT_UP_TO + 1])
def test_joint_state_and_effort_equal_mujocos(num_envs):
    """Positions, velocities and actuator forces of each joint are MuJoCo's fields rounded to float32, bit for bit."""
    engine = robot(num_envs, (JOINT_STATE, JOINT_EFFORT))
    clamped = False
    for ctrl in controls(100, num_envs):
        engine.step(ctrl, substeps=2)
        engine.refresh()
        for env in (0, num_envs - 1):
            data = forwarded(engine, env)
            joints = [data.joint(name) for name in JOINTS]
            for array, values in (
                ("joint_pos", [joint.qpos[0] for joint in joints]),
                ("joint_vel", [joint.qvel[0] for joint in joints]),
                ("joint_effort", data.qfrc_actuator[dofs(engine.model)]),
            ):
                assert engine.array(array)[env].tolist() == np.float32(values).tolist(), array
            clamped |= abs(engine.array("joint_effort")[env, 2].item()) == 2.0
    assert clamped, "actuatorfrcrange should have clamped the slide"


def test_effort_includes_actuators_gears_tendons_and_actuated_gravity_compensation():
    """Effort is gear times force, summed over actuators and tendons, plus gravity compensation by the actuators."""
    engine = robot(1, (JOINT_EFFORT,))
    engine.reset(None, {"ctrl": [0.5, 0.25, 0.1, 0.8]})
    hip, knee, press, twist, _ = engine.array("joint_effort")[0].tolist()
    assert hip == pytest.approx(3 * 2 * 0.5) and press == pytest.approx(1.0) and twist == pytest.approx(-0.5 * 0.8)
    data = forwarded(engine, 0)
    held = data.qfrc_gravcomp[engine.model.joint("knee").dofadr[0]]
    assert abs(held) > 0.05 and knee == pytest.approx(2 * 0.25 + 0.8 + held)


# Torque at the gearbox output


@pytest.mark.parametrize(("ctrl", "speed"), [(0.05, 0.0), (3.0, 0.0), (-3.0, 5.0), (0.0, -5.0), (0.0, 1e-4)])
def test_drive_torque_is_the_torque_the_link_needs(ctrl, speed):
    """If no other force acts on a link, the gearbox output torque is the link's inertia times its acceleration.

    Rotor inertia, friction and damping belong to the drive, whether it sticks, slips or coasts.
    """
    xml = """<mujoco><option gravity="0 0 0"/><worldbody><body>
      <joint name="j" axis="0 0 1" armature=".03" damping=".2 .01 .02" frictionloss=".4"/>
      <geom type="box" size=".1 .1 .1" mass="3"/></body></worldbody>
      <actuator><motor joint="j" gear="4" armature=".002" damping=".01"/></actuator></mujoco>"""
    engine = MujocoEngine(xml)
    engine.prepare(wanted(JOINT_TORQUE, JOINT_EFFORT))
    engine.reset(None, {"ctrl": ctrl, "qvel": speed})
    inertia = 3.0 * (0.2**2 + 0.2**2) / 12.0
    assert_close(engine.array("joint_torque")[0], inertia * forwarded(engine, 0).qacc)
    assert engine.array("joint_effort")[0, 0] == pytest.approx(4 * ctrl)


@pytest.mark.parametrize(
    ("integrator", "solver"),
    [
        ("implicitfast", "NEWTON"),
        pytest.param("Euler", "NEWTON", marks=pytest.mark.full),
        ("implicit", "CG"),
        ("RK4", "NEWTON"),
        pytest.param("implicitfast", "CG", marks=pytest.mark.full),
    ],
)
def test_torque_with_dry_friction_equals_mujocos_constraint_forces(integrator, solver):
    """In contact, at joint limits, sticking and slipping, the torque matches its definition with MuJoCo's friction
    rows.
    """
    made = spec(integrator, solver=getattr(mujoco.mjtSolver, f"mjSOL_{solver}"), cone=mujoco.mjtCone.mjCONE_ELLIPTIC)
    engine = robot(3, model=made)
    sticks, limits, contacts = 0, 0, 0
    for ctrl in controls(120, 3):
        engine.step(ctrl, substeps=2)
        engine.refresh()
        for env in range(3):
            data = forwarded(engine, env)
            assert_close(engine.array("joint_torque")[env], expected_torque(engine.model, data))
            friction, _ = rows(engine.model, data, FRICTION)
            at = dofs(engine.model)[:3]
            sticks += int((np.abs(friction[at]) < 0.999 * engine.model.dof_frictionloss[at]).sum())
            limits += rows(engine.model, data, LIMIT)[1]
            contacts += data.ncon
    assert sticks > 20 and limits > 20 and contacts > 20


def test_torque_excludes_forces_acting_beside_the_drive():
    """The force balance of the links gives the same torque: the joint's part of MuJoCo's interaction force without
    springs, end stops and passive gravity compensation.
    """
    engine = robot(1, model=spec(iterations=200, tolerance=1e-14))
    checked = 0
    for ctrl in controls(150):
        engine.step(ctrl, substeps=2)
        engine.refresh()
        model, data = engine.model, forwarded(engine, 0)
        transmitted = np.array([data.cdof[dof] @ data.cfrc_int[model.dof_bodyid[dof]] for dof in range(model.nv)])
        beside = data.qfrc_passive - data.qfrc_damper + rows(model, data, LIMIT)[0]
        assert_close(engine.array("joint_torque")[0], (transmitted - beside)[dofs(model)], rtol=1e-4)
        checked += data.nefc
    assert checked > 1000


def test_friction_and_armature_are_per_env():
    """Values set per env through the batch, before or after the sensors were created, apply to the torque."""
    engine = robot(3)
    hip = int(dofs(engine.model)[0])
    engine.batch.expand("dof_frictionloss")[:, hip] = [0.0, 0.3, 3.0]
    engine.batch.expand("dof_armature")[:, hip] = [0.02, 0.5, 0.1]
    engine.step(controls(1, 3)[0], substeps=5)
    engine.refresh()
    for env in range(3):
        model, data = engine.batch.get_model(env), mujoco.MjData(engine.model)
        mujoco.mj_setState(model, data, engine.batch.state[env], INTEGRATION)
        mujoco.mj_forward(model, data)
        assert_close(engine.array("joint_torque")[env], expected_torque(model, data))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"solver": mujoco.mjtSolver.mjSOL_PGS}, "PGS solver: choose solver"),
        ({"noslip_iterations": 3}, "noslip iterations: set noslip_iterations to 0"),
        ({"integrator": "discrete"}, "discrete integrator: choose another"),
    ],
)
def test_unknown_friction_is_refused_and_read_from_live_data(options, why):
    """If friction is not a function of the acceleration, the error names the joint; a live MjData provides it."""
    made = spec(**options)
    with pytest.raises(UnsupportedError, match=rf"joint 'hip' has dry friction.*{why}.*from_mj.*JOINT_EFFORT"):
        MujocoEngine(made).prepare(wanted(JOINT_TORQUE))
    model = made.compile()
    data = mujoco.MjData(model)
    live = MujocoEngine.from_mj(model, data)
    live.prepare(wanted(JOINT_TORQUE))
    for ctrl in controls(50):
        data.ctrl[:] = ctrl[0]
        mujoco.mj_step(model, data)
        live.count_ticks(1)
        live.refresh()
    mujoco.mj_forward(model, data)
    assert_close(live.array("joint_torque")[0], expected_torque(model, data))
    for joint in made.joints:
        joint.frictionloss = 0.0
    assert MujocoEngine(made).supports(JOINT_TORQUE) is None
    off = spec(**options)
    off.option.disableflags = int(mujoco.mjtDisableBit.mjDSBL_FRICTIONLOSS)
    assert MujocoEngine(off).supports(JOINT_TORQUE) is None


def test_tendon_damping_is_refused():
    """The error for a damped tendon names the tendon, its joints and the fix."""
    for text in (
        ROBOT.replace('fixed name="couple"', 'fixed name="couple" damping=".1"'),
        ROBOT.replace('tendon="couple"', 'tendon="couple" damping=".1"'),
    ):
        with pytest.raises(UnsupportedError, match=r"tendon 'couple' damps joint 'knee', 'twist'.*to the joints"):
            MujocoEngine(text).prepare(wanted(JOINT_TORQUE))
        model = mujoco.MjModel.from_xml_string(text)
        assert "tendon 'couple'" in MujocoEngine.from_mj(model, mujoco.MjData(model)).supports(JOINT_TORQUE)


# What the parent exerts


@pytest.mark.parametrize("num_envs", [2, PERSISTENT_UP_TO + 1])
def test_wrench_equals_force_and_torque_sensors(num_envs):
    """At sites away from the joints, tumbling and colliding, MuJoCo's sensors give the same force and torque."""
    made = spec()
    for site in ("belly", "ankle"):
        for kind in ("FORCE", "TORQUE"):
            made.add_sensor(
                name=f"{site} {kind}",
                type=getattr(mujoco.mjtSensor, f"mjSENS_{kind}"),
                objtype=mujoco.mjtObj.mjOBJ_SITE,
                objname=site,
            )
    engine = robot(num_envs, model=made)
    hardest = 0.0
    for ctrl in controls(100, num_envs):
        engine.step(ctrl, substeps=2)
        engine.refresh()
        for env in (0, num_envs - 1):
            data = forwarded(engine, env)
            for site, body in (("belly", 0), ("ankle", 2)):
                force, torque = (
                    engine.array(f"body_parent_{what}_w")[env, body].double().numpy() for what in ("force", "torque")
                )
                axes = data.site(site).xmat.reshape(3, 3)
                moved = torque - np.cross(data.site(site).xpos - data.body(body + 1).xpos, force)
                assert_close(force @ axes, data.sensor(f"{site} FORCE").data, rtol=2e-5)
                assert_close(moved @ axes, data.sensor(f"{site} TORQUE").data, rtol=2e-5)
                hardest = max(hardest, np.abs(force).max())
    assert hardest > 60.0, "the robot should have hit the ground harder than it weighs"


def test_a_body_at_rest_is_held_up_by_its_parent():
    """A welded load of mass m at (x, y) is held with +m g and the torque of its arm; a free body with zero."""
    xml = """<mujoco><worldbody>
      <body name="arm" pos="0 0 1"><geom size=".05" pos=".3 -.2 0" mass="2"/>
        <body name="load" pos="1 0 0"><geom size=".05" mass="3"/></body></body>
      <body name="falling" pos="3 0 5"><freejoint/><geom size=".1"/></body></worldbody></mujoco>"""
    engine = MujocoEngine(xml, 2)
    engine.prepare(wanted(JOINT_WRENCH))
    engine.forward()
    force, torque = engine.array("body_parent_force_w")[1], engine.array("body_parent_torque_w")[1]
    assert force[0].tolist() == pytest.approx([0, 0, 5 * 9.81]) and force[1].tolist() == pytest.approx([0, 0, 3 * 9.81])
    assert torque[0].tolist() == pytest.approx([-0.2 * 2 * 9.81, -(0.3 * 2 + 1.0 * 3) * 9.81, 0], abs=1e-5)
    assert torque[1].tolist() == pytest.approx([0, 0, 0], abs=1e-5)
    assert force[2].tolist() == pytest.approx([0, 0, 0], abs=1e-5)


def test_wrenches_require_a_prepared_model():
    """As for accelerations a hidden sensor is added; a sealed model rejects it, unless it was prepared."""
    engine = MujocoEngine(ROBOT)
    engine.prepare(wanted(JOINT_WRENCH))
    assert engine.model.nsensor == 1 and engine.native_sensors() == ()
    sealed = mujoco.MjModel.from_xml_string(ROBOT)
    for make in (MujocoEngine, lambda model: MujocoEngine.from_mj(model, mujoco.MjData(model), fresh=False)):
        with pytest.raises(UnsupportedError, match=r"requires JOINT_WRENCH.*wrenches.*sn\.prepare\(spec, sensors\)"):
            make(sealed).prepare(wanted(JOINT_WRENCH))
        made = spec()
        prepare_spec(made, [JOINT_WRENCH])
        assert make(made.compile()).supports(JOINT_WRENCH) is None


# Time, order and state


@pytest.mark.parametrize("num_envs", [2, PERSISTENT_UP_TO + 1])
def test_reading_joints_never_alters_the_physics(num_envs):
    """Trajectories with joints read at every tick and never read are bit-identical."""
    read, unread = robot(num_envs), robot(num_envs)
    for ctrl in controls(100, num_envs):
        for engine in (read, unread):
            engine.step(ctrl)
        read.refresh()
        read.forward()
    assert np.array_equal(read.batch.state, unread.batch.state)


@pytest.mark.parametrize("num_envs", [2, PERSISTENT_UP_TO + 1])
def test_unfresh_joints_lag_exactly_one_tick_with_everything_else(num_envs):
    """With fresh=False positions and velocities are also one tick old, for any number of substeps."""
    needs = (*JOINT, BODY_POSE, BODY_VELOCITY)
    fresh, stale = robot(num_envs, needs), robot(num_envs, needs, fresh=False)
    for ctrl in controls(40, num_envs):
        fresh.step(ctrl, substeps=2)
        fresh.refresh()
        previous = {name: fresh.array(name).clone() for name in ("body_pos_w", "body_lin_vel_w", *JOINT_ARRAYS)}
        fresh.step()
        stale.step(ctrl, substeps=3)
        stale.refresh()
        assert stale.lag == 1 and np.array_equal(stale.batch.state, fresh.batch.state)
        for name, values in previous.items():
            assert torch.equal(stale.array(name), values), name
    stale.forward()
    fresh.refresh()
    for name in JOINT_ARRAYS:
        assert torch.equal(stale.array(name), fresh.array(name)), name
    stale.step(substeps=2)
    stale.refresh()
    kept = {name: stale.array(name).clone() for name in JOINT_ARRAYS}
    stale.reset([1], {"qvel": 0.5})
    stale.refresh()
    assert stale.array("joint_vel")[1].tolist() == [0.5] * 5
    for name, values in kept.items():
        assert torch.equal(stale.array(name)[0], values[0]), name


def test_live_joints_equal_those_of_the_stepping_engine():
    """Wrapped data stepped manually give the same values; read as mj_step left them, they are one tick old."""
    own = robot(1)
    model = own.model
    datas = [mujoco.MjData(model) for _ in range(2)]
    lives = [MujocoEngine.from_mj(model, data, fresh=fresh) for data, fresh in zip(datas, (True, False), strict=True)]
    for data, live in zip(datas, lives, strict=True):
        data.qvel[:] = own.qvel[0]
        live.prepare(wanted())
        live.forward()
    for ctrl in controls(60):
        previous = {name: own.array(name).clone() for name in JOINT_ARRAYS}
        own.ctrl[:] = ctrl
        own.forward()
        lagged = {name: own.array(name).clone() for name in JOINT_ARRAYS}
        assert torch.equal(previous["joint_pos"], lagged["joint_pos"])
        own.step(ctrl)
        own.refresh()
        for data, live in zip(datas, lives, strict=True):
            data.ctrl[:] = ctrl[0]
            mujoco.mj_step(model, data)
            live.count_ticks(1)
            live.refresh()
        for name in JOINT_ARRAYS:
            for live, values in zip(lives, (own.array(name), lagged[name]), strict=True):
                assert_close(live.array(name), values.numpy(), rtol=1e-6)
    fresh, stale = lives
    assert (fresh.lag, stale.lag) == (0, 1)
    fresh.count_ticks(3)
    with pytest.raises(ScheduleError, match=r"3 ticks at once.*after each mj_step, or use fresh=True"):
        stale.count_ticks(3)
    assert stale.tick == 60
    mujoco.mj_resetData(model, datas[1])
    stale.reset(None)
    assert stale.lag == 0 and not stale.array("joint_pos").any()


@pytest.mark.parametrize("fresh", [True, False])
def test_joint_state_and_effort_do_not_change_the_model_and_can_be_added_late(fresh):
    """After many ticks, in a sealed model or on live data, joints are granted and current at once."""
    sealed = mujoco.MjModel.from_xml_string(ROBOT)
    engine = robot(2, (BODY_POSE,), model=sealed, fresh=fresh)
    engine.step(controls(1, 2)[0], substeps=30)
    engine.refresh()
    engine.prepare(wanted(JOINT_STATE, JOINT_EFFORT, JOINT_TORQUE))
    engine.refresh()
    assert engine.lag == 0 and engine.model is sealed
    for env in range(2):
        data = forwarded(engine, env)
        at = dofs(sealed)
        assert_close(engine.array("joint_vel")[env], data.qvel[at])
        assert_close(engine.array("joint_effort")[env], data.qfrc_actuator[at])
        assert_close(engine.array("joint_torque")[env], expected_torque(sealed, data))


@pytest.mark.parametrize("fresh", [True, False])
def test_joint_arrays_are_reset_saved_and_restored_in_place(fresh):
    """A reset changes the rows of its envs only, and a restored engine continues with the same bits."""
    engine, other = robot(3, fresh=fresh), robot(3, fresh=fresh)
    addresses = {name: engine.array(name).data_ptr() for name in JOINT_ARRAYS}
    inputs = controls(40, 3)
    for ctrl in inputs[:20]:
        engine.step(ctrl)
    engine.refresh()
    before = {name: engine.array(name).clone() for name in JOINT_ARRAYS}
    engine.reset([1], {"qvel": 1.0})
    for name, values in before.items():
        assert torch.equal(engine.array(name)[[0, 2]], values[[0, 2]]), name
    assert engine.array("joint_vel")[1].tolist() == [1.0] * 5
    other.load_state(engine.state())
    for name in JOINT_ARRAYS:
        assert torch.equal(other.array(name), engine.array(name)), name
    for ctrl in inputs[20:]:
        for each in (engine, other):
            each.step(ctrl)
            each.refresh()
    for name in JOINT_ARRAYS:
        assert torch.equal(other.array(name), engine.array(name)), name
    assert {name: engine.array(name).data_ptr() for name in JOINT_ARRAYS} == addresses


def test_runge_kutta_step_does_not_allow_unfresh_state():
    """mj_step with RK4 leaves bodies at an intermediate state, so fresh=False is rejected."""
    made = spec("RK4")
    model = made.compile()
    for make in (
        lambda: MujocoEngine(made, fresh=False),
        lambda: MujocoEngine(model, fresh=False),
        lambda: MujocoEngine.from_mj(model, mujoco.MjData(model), fresh=False),
    ):
        with pytest.raises(ModelError, match=r"fresh=False with the RK4 integrator.*Use fresh=True"):
            make()


def test_model_without_scalar_joints_has_empty_joint_arrays():
    """Without hinges and slides, joint arrays are `[env, 0]` and everything else works."""
    engine = MujocoEngine("<mujoco><worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>", 2)
    engine.prepare(wanted())
    engine.step(substeps=3)
    engine.refresh()
    assert engine.array("joint_torque").shape == (2, 0) and engine.array("body_parent_force_w").shape == (2, 1, 3)
