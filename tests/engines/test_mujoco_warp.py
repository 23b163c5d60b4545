from __future__ import annotations

import dataclasses
import importlib.util
import resource
import warnings
from importlib import metadata
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
import warp as wp
from no_waiting import nobody_waits
from two_engines import sensors, values_of

import sensorium as sn
from sensorium.compute import devices
from sensorium.engines.mujoco.spec import prepare_spec
from sensorium.engines.mujoco_warp.engine import LiveMujocoWarpEngine, MujocoWarpEngine
from sensorium.engines.mujoco_warp.source import batched, parts_of
from sensorium.engines.mujoco_warp.worlds import mujoco_warp
from sensorium.errors import (
    MissingDependencyError,
    ModelError,
    ScheduleError,
    SensoriumWarning,
    UnknownNameError,
    UnsupportedError,
)
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    BODY_VELOCITY,
    CONTACT_REPORT,
    GRAVITY,
    JOINT_EFFORT,
    JOINT_STATE,
    JOINT_TORQUE,
    JOINT_WRENCH,
    MAGNETIC,
    MODEL_ELEMENTS,
    NATIVE_SENSOR,
    contact_array,
)

mjw = pytest.importorskip("mujoco_warp", reason="the engine of the extra `warp`")
HAS_BATCH = importlib.util.find_spec("mujoco.batch") is not None  # MuJoCo since 3.17
OWN_ENGINES = (*([sn.MujocoEngine] if HAS_BATCH else []), MujocoWarpEngine)
WALKER = Path(__file__).parents[1] / "models" / "two_engines.xml"
MOTION = (BODY_POSE, BODY_VELOCITY, BODY_ACCELERATION, GRAVITY, MAGNETIC)
ALL = (*MOTION, JOINT_STATE, JOINT_EFFORT, JOINT_TORQUE, JOINT_WRENCH)
STATE = ("qpos", "qvel", "act", "ctrl", "mocap_pos", "mocap_quat")
FALL = """<mujoco><option timestep='.002' integrator='implicitfast'/><worldbody>
  <geom name='ground' type='plane' size='5 5 .1'/>
  <body name='box' pos='0 0 1'><freejoint/><geom name='box' type='box' size='.1 .1 .1' mass='1'/>
    <site name='tag' pos='.1 0 0'/></body></worldbody></mujoco>"""
CHAIN = """<mujoco><option timestep='.002' integrator='implicitfast'/><worldbody><body name='a' pos='0 0 1'>
  <joint name='one' axis='0 1 0'/><geom type='capsule' fromto='0 0 0 .2 0 0' size='.02'/><body name='b' pos='.2 0 0'>
  <joint name='two' axis='0 1 0'/><geom type='capsule' fromto='0 0 0 .2 0 0' size='.02'/></body></body></worldbody>
  <actuator><motor joint='one'/><motor joint='two'/></actuator></mujoco>"""


def wanted(*requirements):
    return {requirement: "probe" for requirement in requirements}


def thrown(model=WALKER, num_envs=2, requirements=ALL, *, seed=1, **options):
    """Return an engine whose environments start with different velocities."""
    engine = MujocoWarpEngine(model, num_envs, device="cpu", **options)
    engine.prepare(wanted(*requirements))
    generator = torch.Generator().manual_seed(seed)
    engine.qvel[:] = torch.randn(8, engine.qvel.shape[1], generator=generator)[:num_envs]
    engine.forward()
    return engine


def controls(engine, steps, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return 0.8 * torch.randn(steps, engine.num_envs, engine.nu, generator=generator)


def rows_of(engine):
    """Return a copy of everything that a step starts from."""
    return {name: values.clone() for name, values in engine._source.rows().items()}


def arrays_of(engine):
    return {name: engine.array(name).clone() for name in engine._derived.arrays}


def assert_same(got, expected, rows=slice(None)):
    """Compare bit for bit."""
    assert got.keys() == expected.keys()
    for name, values in got.items():
        assert torch.equal(values[rows], expected[name][rows]), name


def address(array):
    return int(array.ptr)


def data_of(engine, env, model=None):
    """Return MuJoCo's computation, in float64, for the current state of an env."""
    model = model or engine.model
    data = mujoco.MjData(model)
    for name in STATE:
        if getattr(data, name).size:
            getattr(data, name)[:] = getattr(engine, name)[env].numpy()
    data.qacc_warmstart[:] = wp.to_torch(engine.d.qacc_warmstart)[env].numpy()
    mujoco.mj_forward(model, data)
    mujoco.mj_rnePostConstraint(model, data)
    return data


def reference(engine, env, model=None):
    """Return pose, velocity and acceleration of each body and state of each scalar joint, computed by MuJoCo."""
    model = model or engine.model
    data = data_of(engine, env, model)
    velocity, acceleration = np.zeros((2, model.nbody, 6))
    for body in range(model.nbody):
        for function, out in ((mujoco.mj_objectVelocity, velocity), (mujoco.mj_objectAcceleration, acceleration)):
            function(model, data, mujoco.mjtObj.mjOBJ_XBODY, body, out[body], 0)
    acceleration[:, 3:] += model.opt.gravity
    acceleration[model.body_weldid == 0] = 0.0  # which MuJoCo reports by itself since 3.12
    joints = [model.joint(name).id for name in engine.names("scalar_joint")]
    return {
        "body_pos_w": data.xpos[1:],
        "body_quat_w": data.xquat[1:],
        "body_ang_vel_w": velocity[1:, :3],
        "body_lin_vel_w": velocity[1:, 3:],
        "body_ang_acc_w": acceleration[1:, :3],
        "body_lin_acc_w": acceleration[1:, 3:],
        "joint_pos": data.qpos[model.jnt_qposadr[joints]],
        "joint_vel": data.qvel[model.jnt_dofadr[joints]],
        "joint_effort": data.qfrc_actuator[model.jnt_dofadr[joints]],
    }


def assert_close(engine, env, expected, tolerance=1e-4):
    for name, values in expected.items():
        got = engine.array(name)[env].double().numpy()
        scale = max(1.0, float(np.abs(values).max()))
        np.testing.assert_allclose(got, values, rtol=0, atol=tolerance * scale, err_msg=name)


# Views of mujoco_warp's memory


def test_state_is_mujoco_warps_memory_and_writes_apply_after_forward_or_step():
    """The state tensors share mujoco_warp's memory, so a write changes its state."""
    engine = thrown()
    for name in STATE:
        assert getattr(engine, name).data_ptr() == address(getattr(engine.d, name)), name
        assert getattr(engine, name) is getattr(engine, name), name
    engine.qpos[1, 0] += 5.0
    before = engine.array("body_pos_w")[:, 1, 0].clone()
    engine.forward()
    trunk = engine.names("body").index("trunk")
    assert engine.array("body_pos_w")[1, trunk, 0] == 5.0 and engine.tick == 0
    assert before.shape == (2,)
    engine.qvel[:, 0] = 2.0
    engine.step()
    assert engine.qpos[1, 0] - 5.0 == pytest.approx(2.0 * engine.dt, abs=1e-3)


def test_adjacent_elements_are_a_view_without_copy():
    """Poses of bodies, joints of a chain of hinges and native sensors share mujoco_warp's own arrays."""
    xml = CHAIN.replace("</mujoco>", "<sensor><jointpos joint='two' name='angle'/></sensor></mujoco>")
    engine = MujocoWarpEngine(xml, 3, device="cpu")
    engine.prepare(wanted(BODY_POSE, JOINT_STATE, JOINT_EFFORT, NATIVE_SENSOR("angle")))
    d = engine.d
    assert engine.array("body_pos_w").data_ptr() == address(d.xpos) + 12, "the world is left out"
    assert engine.array("body_quat_w").data_ptr() == address(d.xquat) + 16
    assert engine.array("joint_pos").data_ptr() == address(d.qpos)
    assert engine.array("joint_vel").data_ptr() == address(d.qvel)
    assert engine.array("joint_effort").data_ptr() == address(d.qfrc_actuator)
    assert engine.array("native:angle").data_ptr() == address(d.sensordata)
    engine.qpos[:] = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    engine.forward()
    assert engine.array("native:angle").tolist() == engine.array("joint_pos")[:, 1:].tolist()


def test_separated_elements_are_copied():
    """Joints with a ball, free or nameless joint between them have their own values in order."""
    engine = thrown()
    engine.step(controls(engine, 1)[0], substeps=3)
    engine.refresh()
    assert engine.array("joint_pos").data_ptr() != address(engine.d.qpos)
    for env in range(2):
        expected = {name: values for name, values in reference(engine, env).items() if name.startswith("joint")}
        assert_close(engine, env, expected)
    nameless = MujocoWarpEngine(CHAIN.replace("name='one' ", ""), device="cpu")
    assert nameless.names("scalar_joint") == ("joint_0", "two")
    nameless.prepare(wanted(JOINT_STATE))
    nameless.qpos[:] = torch.tensor([[0.25, 0.5]])
    nameless.forward()
    assert nameless.array("joint_pos").tolist() == [[0.25, 0.5]]


def test_views_become_copies_when_hidden_bodies_separate_them():
    """Rows follow the names for any added sensors; a previously returned array is the same tensor object."""

    def add(spec):
        spec.body("box").add_body(name="sensorium/plate", pos=[0, 0, 1])
        spec.worldbody.add_body(name="ball", pos=[0, 0, 3])

    engine = MujocoWarpEngine(FALL, 2, device="cpu")
    engine.prepare(wanted(BODY_POSE))
    position = engine.array("body_pos_w")
    assert position.data_ptr() == address(engine.d.xpos) + 12
    engine.prepare({MODEL_ELEMENTS(add): "skin"})
    engine.qpos[1, 2] = 0.5
    engine.forward()
    assert engine.array("body_pos_w") is position
    assert engine.names("body") == ("box", "ball")
    assert position[:, :, 2].tolist() == [[1, 3, 2], [0.5, 3, 1.5]]


def test_addresses_never_change():
    """State and derived arrays keep their addresses through preparation, steps, resets and restored states."""
    engine = MujocoWarpEngine(WALKER, 2, device="cpu")
    state = {name: getattr(engine, name).data_ptr() for name in (*STATE, "gravity", "magnetic")}
    engine.prepare(wanted(*ALL))
    poses = engine.array("body_pos_w").data_ptr()
    feet = CONTACT_REPORT(("geom", ("left_foot", "right_foot")), None, ("found", "force"), "netforce", 1)
    engine.prepare(wanted(feet))
    assert engine.array("body_pos_w").data_ptr() == poses, "what sensors add to the model moves nothing"
    arrays = {name: engine.array(name).data_ptr() for name in engine._derived.arrays}
    for _ in range(3):
        engine.step()
    saved = engine.state()
    engine.reset([1], {"qpos": engine.qpos[1]})
    engine.reset(None)
    engine.load_state(saved)
    engine.refresh()
    assert {name: getattr(engine, name).data_ptr() for name in state} == state
    assert {name: engine.array(name).data_ptr() for name in arrays} == arrays
    assert all(engine.array(name).dtype == torch.float32 for name in arrays)


# Derived state


def test_derived_state_equals_mujocos_at_body_frame_origins():
    """Poses, velocities, coordinate accelerations and joints of a stumbling walker equal MuJoCo's to 1e-4."""
    engine = thrown()
    hardest = 0.0
    for ctrl in controls(engine, 30):
        engine.step(ctrl, substeps=5)
        engine.refresh()
        for env in range(2):
            expected = reference(engine, env)
            touching = bool(data_of(engine, env).ncon)
            assert_close(engine, env, {name: v for name, v in expected.items() if not (touching and "acc" in name)})
            if touching:  # of one solver in float32 and one in float64
                hardest = max(hardest, float(np.abs(expected["body_lin_acc_w"]).max()))
                assert_close(engine, env, expected, 2e-2)
    assert hardest > 50.0, "the walker should have hit the ground"


@pytest.mark.parametrize("body", ["boulder", "post", "carriage"])
def test_static_and_mocap_bodies_are_at_rest(body):
    """A body that cannot move has exactly zero velocity and acceleration, and its pose is correct."""
    engine = thrown()
    engine.mocap_pos[0, 0] = torch.tensor([2.0, 3.0, 4.0])
    engine.step(substeps=5)
    engine.refresh()
    row = engine.frame("body", body).body
    for name in ("body_lin_vel_w", "body_ang_vel_w", "body_lin_acc_w", "body_ang_acc_w"):
        assert not engine.array(name)[0, row].any(), name
    expected = {"boulder": [2, -1, 0.3], "post": [0.25, 1, 0.5], "carriage": [2, 3, 4]}[body]
    assert engine.array("body_pos_w")[0, row] == pytest.approx(expected)


def test_disabled_gravity_shows_in_gravity_and_acceleration():
    """With the gravity flag off, from the start or later, gravity_w is zero and a floating body does not accelerate."""
    xml = FALL.replace("<worldbody>", "<option><flag gravity='disable' contact='disable'/></option><worldbody>")
    engine = MujocoWarpEngine(xml, device="cpu")
    engine.prepare(wanted(*MOTION))
    engine.refresh()
    assert not engine.array("gravity_w").any() and not engine.array("body_lin_acc_w").any()
    engine.m.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_GRAVITY)
    engine.forward()
    assert engine.array("gravity_w")[0].tolist() == pytest.approx([0, 0, -9.81])
    assert engine.array("body_lin_acc_w")[0, 0].tolist() == pytest.approx([0, 0, -9.81])


def test_accelerations_are_correct_with_disabled_sensors():
    """The sensor flag stops mujoco_warp's sensors, but not the accelerations for this package's sensors."""
    spec = mujoco.MjSpec.from_file(str(WALKER))
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
    engine = thrown(spec)
    engine.step(controls(engine, 1)[0], substeps=4)
    engine.refresh()
    assert_close(engine, 1, reference(engine, 1))
    assert engine.model.nsensor
    with pytest.raises(UnsupportedError, match="sensor="):
        engine.prepare({NATIVE_SENSOR("gyro"): "gyro"})


def test_native_sensors_and_contacts_equal_mujocos():
    """Native sensors of all kinds and reports of contacts equal MuJoCo's in float64."""
    model = mujoco.MjModel.from_xml_path(str(WALKER))
    names = [model.sensor(i).name for i in range(model.nsensor)]
    feet = CONTACT_REPORT(("geom", ("left_foot", "right_foot")), None, ("found", "force"), "netforce", 1)
    engine = thrown(requirements=(*map(NATIVE_SENSOR, names), feet))
    for ctrl in controls(engine, 20):
        engine.step(ctrl, substeps=2)
    engine.refresh()
    data = data_of(engine, 1)
    for name in names:
        if name == "clock":
            assert engine.array("native:clock")[1, 0] == pytest.approx(40 * engine.dt, rel=1e-5)
            continue
        expected = data.sensor(name).data
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(engine.array(f"native:{name}")[1], expected, atol=1e-3 * scale, err_msg=name)
    assert engine.array(contact_array(feet)).shape[:2] == (2, 2)


# Reading does not alter the physics


@pytest.mark.parametrize("integrator", ["IMPLICITFAST", "EULER", "RK4"])
def test_reading_never_alters_the_physics(integrator):
    """Trajectories read at every tick and never read are bit-identical, solver state included."""
    spec = mujoco.MjSpec.from_file(str(WALKER))
    spec.option.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator}")
    spec.option.timestep = 0.001
    read, unread, bare = thrown(spec), thrown(spec), thrown(spec, requirements=())
    for ctrl in controls(read, 60):
        for engine in (read, unread, bare):
            engine.step(ctrl)
        read.refresh()
        read.forward()
    assert read.qpos.isfinite().all() and read.d.nacon.numpy()[0] >= 0
    assert_same(rows_of(read), rows_of(unread))
    assert_same(rows_of(read), rows_of(bare))


def test_reading_adds_nothing_to_a_delayed_sensors_history():
    """The samples that MuJoCo stores for delayed and periodic sensors are those of the steps, read or unread."""
    spec = mujoco.MjSpec.from_string(FALL)
    for name, kind, interval in (("late", "ACCELEROMETER", 0.0), ("seldom", "ACCELEROMETER", 0.006)):
        sensor = spec.add_sensor(name=name, type=getattr(mujoco.mjtSensor, f"mjSENS_{kind}"))
        sensor.objtype, sensor.objname = mujoco.mjtObj.mjOBJ_SITE, "tag"
        sensor.nsample, sensor.delay, sensor.interval = 4, 0.004, [interval, 0.0]
    read, unread = (thrown(spec, requirements=(BODY_ACCELERATION,)) for _ in range(2))
    for k in range(30):
        for engine in (read, unread):
            wp.to_torch(engine.d.qfrc_applied)[:, 0] = float(k)
            engine.step()
        read.refresh()
    assert read._source.rows()["history"].any()
    assert_same(rows_of(read), rows_of(unread))


@pytest.mark.slow
def test_reading_wakes_no_world():
    """With sleeping enabled, the sleep state depends neither on reads nor on temporary states."""
    xml = FALL.replace("pos='0 0 1'", "pos='0 0 .1'").replace("timestep", "sleep_tolerance='.05' timestep")
    xml = xml.replace("<worldbody>", "<option><flag sleep='enable'/></option><worldbody>")
    read, unread = (thrown(xml, requirements=(BODY_ACCELERATION, BODY_VELOCITY)) for _ in range(2))
    slept = []
    for k in range(120):
        for engine in (read, unread):
            push = wp.to_torch(engine.d.qfrc_applied)
            if k == 0:
                engine.qvel[:] = 0.0
            if k == 90:
                push[0, 2] = 1.0
                read.forward()
                push[0, 2] = 0.0
            if k == 100:
                push[1, 2] = 20.0
            engine.step()
        read.refresh()
        slept.append((wp.to_torch(read.d.tree_asleep) >= 0)[:, 0].tolist())
    assert_same(rows_of(read), rows_of(unread))
    assert slept[80] == [True, True] and slept[95] == [True, True] and slept[-1] == [True, False]
    with pytest.raises(ModelError, match=r"fresh=False with <flag sleep"):
        MujocoWarpEngine(xml, device="cpu", fresh=False)


def test_a_control_callback_is_not_called_by_sensors():
    """A callback that writes controls is called only in steps, and a refresh does not repeat its writes."""
    engine = thrown(CHAIN, requirements=(BODY_ACCELERATION,))
    calls = []

    def control(m, d):
        calls.append(1)
        d.ctrl.fill_(0.5)

    engine.capture(False)
    engine.m.callback.control = control
    engine.step()
    assert len(calls) == 1 and engine.ctrl.unique().tolist() == [0.5]
    engine.ctrl.zero_()
    engine.refresh()
    assert len(calls) == 1 and not engine.ctrl.any()
    assert engine.m.callback.control is control
    engine.capture(True)
    for _ in range(3):
        engine.step()
    assert engine.ctrl.unique().tolist() == [0.5], "in a graph, too"
    engine.m.callback.control = lambda m, d: d.ctrl.fill_(0.25)
    engine.step()
    assert engine.ctrl.unique().tolist() == [0.25], "a callback that comes later is noticed"


def test_graphs_and_single_launches_are_bit_identical():
    """Captured graphs and uncaptured launches give the same physics and the same derived state."""
    captured, plain, mixed = (thrown() for _ in range(3))
    plain.capture(False)
    for k, ctrl in enumerate(controls(captured, 20)):
        mixed.capture(k % 7 > 2)
        for engine in (captured, plain, mixed):
            engine.step(ctrl, substeps=2)
            engine.refresh()
            if k == 9:
                engine.reset([1])
    for engine in (plain, mixed):
        assert_same(rows_of(captured), rows_of(engine))
        assert_same(arrays_of(captured), arrays_of(engine))


@pytest.mark.parametrize("fresh", [True, False])
def test_steps_and_mask_resets_do_not_wait_for_the_device(fresh):
    """Physics, sensors and readings stay on the device, and so do masks of terminated episodes."""
    imu = sn.ImuCfg(name="imu", site="imu", acc_noise=0.1, delay=0.004)
    scene = sn.Scene(MujocoWarpEngine(WALKER, 3, device="cpu", fresh=fresh), [imu])
    mask = torch.tensor([False, True, False])
    for _ in range(4):
        scene.step(substeps=10)
        scene.reset(mask)
    with nobody_waits(cuda=False):
        for _ in range(3):
            scene.step(substeps=2)
            _ = scene[imu].data, scene[imu].ground_truth
        scene.reset(mask)
        scene.step()
    assert scene[imu].frame.tolist()[1] == 2 and scene[imu].data.lin_acc_b.isfinite().all()


@pytest.mark.parametrize("fresh", [True, False])
def test_four_single_steps_equal_one_step_of_four_substeps(fresh):
    """Substeps are steps: state and derived state have the same bits."""
    single, four = thrown(fresh=fresh), thrown(fresh=fresh)
    for ctrl in controls(single, 6):
        for _ in range(4):
            single.step(ctrl)
        four.step(ctrl, substeps=4)
        for engine in (single, four):
            engine.refresh()
    assert single.tick == four.tick == 24 and single.lag == four.lag
    assert_same(rows_of(single), rows_of(four))
    assert_same(arrays_of(single), arrays_of(four))


@pytest.mark.parametrize(
    ("flag", "names"),
    [("", ("potential", "kinetic")), ("<option><flag energy='enable'/></option>", ("potential",))],
)
def test_energies_equal_mujocos_and_reading_them_changes_nothing(flag, names):
    """Sensors of energy, with and without the energy flag, equal MuJoCo's."""
    energies = "<sensor><e_potential name='potential'/><e_kinetic name='kinetic'/></sensor></mujoco>"
    xml = CHAIN.replace("</mujoco>", energies).replace("<worldbody>", f"{flag}<worldbody>")
    read, unread = (thrown(xml, requirements=map(NATIVE_SENSOR, names)) for _ in range(2))
    for ctrl in controls(read, 20):
        for engine in (read, unread):
            engine.step(ctrl)
        read.refresh()
    assert_same(rows_of(read), rows_of(unread))
    for env in range(2):
        data = data_of(read, env)
        for name in names:
            assert read.array(f"native:{name}")[env].tolist() == pytest.approx(data.sensor(name).data, rel=1e-4)


def test_refresh_without_changes_runs_nothing(monkeypatch):
    """A second refresh in the same tick does no work."""
    engine = thrown()
    engine.step()
    engine.refresh()
    monkeypatch.setattr(type(engine._derived), "convert", lambda *_: pytest.fail("converted again"))
    engine.refresh()


# One tick behind


def test_unfresh_state_is_entirely_one_tick_old():
    """With fresh=False joints, poses and velocities are one tick old, and `lag` reports it until a forward."""
    fresh, stale = thrown(), thrown(fresh=False)
    assert (fresh.lag, stale.lag) == (0, 0)
    names = [name for name in arrays_of(fresh) if "pos" in name or "vel" in name or "quat" in name]
    assert {"joint_pos", "joint_vel", "body_pos_w", "body_lin_vel_w"} <= set(names)
    for ctrl in controls(fresh, 20):
        previous = arrays_of(fresh)
        for engine in (fresh, stale):
            engine.step(ctrl)
            engine.refresh()
        assert (fresh.lag, stale.lag) == (0, 1)
        for name in names:
            assert torch.equal(stale.array(name), previous[name]), name
    assert_same(rows_of(fresh), rows_of(stale))
    stale.forward()
    assert stale.lag == 0
    for name in names:
        assert torch.equal(stale.array(name), fresh.array(name)), name
    stale.step()
    assert stale.lag == 1
    stale.reset(None)
    assert stale.lag == 0


def test_unfresh_acceleration_belongs_to_the_instant_of_the_unfresh_velocity():
    """With fresh=False acceleration and effort are also one tick old, under the control of that step."""
    engine, twin = thrown(fresh=False), thrown()
    for ctrl in controls(engine, 15):
        for each in (engine, twin):
            each.ctrl.copy_(ctrl)
        twin.forward()
        expected = arrays_of(twin)
        for each in (engine, twin):
            each.step()
    engine.refresh()
    for name, values in expected.items():
        scale = max(1.0, float(values.abs().max()))
        torch.testing.assert_close(engine.array(name), values, rtol=0, atol=1e-5 * scale, msg=name)


def test_partial_reset_of_an_unfresh_engine_keeps_other_envs_one_tick_old():
    """With fresh=False a reset updates only the reset envs, and after the next step all lag again."""
    engine, twin = (thrown(num_envs=3, fresh=False) for _ in range(2))
    for each in (engine, twin):
        each.step(substeps=8)
    engine.reset([1])
    assert engine.lag == 0
    engine.refresh()
    twin.refresh()
    assert_same(arrays_of(engine), arrays_of(twin), [0, 2])
    assert_close(engine, 1, reference(engine, 1))
    for each in (engine, twin):
        each.step()
        each.refresh()
    assert engine.lag == 1
    assert_same(arrays_of(engine), arrays_of(twin), [0, 2])
    start = engine.model.qpos0[[engine.model.joint(name).qposadr[0] for name in engine.names("scalar_joint")]]
    assert engine.array("joint_pos")[1].tolist() == start.astype(np.float32).tolist()


def test_capture_time_of_unfresh_readings_is_one_tick_earlier():
    """A sensor's age is one tick with fresh=False and zero with fresh=True."""
    for fresh, age in ((True, 0.0), (False, 0.002)):
        engine = MujocoWarpEngine(FALL, 2, device="cpu", fresh=fresh)
        scene = sn.Scene(engine, [sn.ImuCfg(name="imu", site="tag")])
        scene.step(substeps=3)
        assert scene["imu"].age.unique().tolist() == pytest.approx([age])


def test_unfresh_with_rk4_is_refused():
    """The Runge-Kutta method leaves bodies at a state that belongs to no tick."""
    spec = mujoco.MjSpec.from_file(str(WALKER))
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    with pytest.raises(ModelError, match="fresh=False with the RK4 integrator"):
        MujocoWarpEngine(spec, device="cpu", fresh=False)


def test_late_requirements_are_readable_immediately():
    """A sensor that needs no model change may be added after many ticks, fresh or not, and is current from then on."""
    for fresh in (True, False):
        engine = thrown(requirements=(BODY_POSE,), fresh=fresh)
        engine.step(substeps=9)
        engine.refresh()
        engine.prepare(wanted(BODY_VELOCITY, JOINT_STATE, GRAVITY))
        engine.refresh()
        assert engine.lag == 0
        expected = reference(engine, 1)
        assert_close(engine, 1, {name: expected[name] for name in ("body_pos_w", "body_lin_vel_w", "joint_pos")})


# Reset


@pytest.mark.parametrize("env_ids", [[2], torch.tensor([2]), np.array([False, False, True, False]), 2])
def test_reset_of_one_env_leaves_the_others_bit_identical(env_ids):
    """Resetting env 2 to a given state changes neither state nor derived state of any other env, now or later."""
    engine, twin = (thrown(num_envs=4) for _ in range(2))
    ctrl = torch.full((engine.nu,), 0.3)
    for each in (engine, twin):
        each.step(ctrl, substeps=30)
        each.refresh()
    qpos = torch.as_tensor(engine.model.qpos0).clone()
    qpos[:3] = torch.tensor([7.0, 8.0, 9.0])
    engine.reset(env_ids, {"qpos": qpos, "ctrl": 0.5, "mocap_pos": [[1.0, 2.0, 3.0]], "act": 0.25})
    others = [0, 1, 3]
    assert_same(rows_of(engine), rows_of(twin), others)
    assert_same(arrays_of(engine), arrays_of(twin), others)
    trunk = engine.names("body").index("trunk")
    assert engine.array("body_pos_w")[2, trunk].tolist() == [7.0, 8.0, 9.0]
    assert not engine.qvel[2].any() and set(engine.ctrl[2].tolist()) == {0.5} and set(engine.act[2].tolist()) == {0.25}
    assert engine.mocap_pos[2].tolist() == [[1.0, 2.0, 3.0]]
    assert_close(engine, 2, reference(engine, 2))
    for each in (engine, twin):
        each.step(substeps=10)
        each.refresh()
    assert_same(rows_of(engine), rows_of(twin), others)
    assert_same(arrays_of(engine), arrays_of(twin), others)


@pytest.mark.parametrize("fresh", [True, False])
def test_contacts_of_others_survive_the_reset_of_the_first_env(fresh):
    """Contacts in one env are reported at the same instant as before when another env is lifted."""
    report = CONTACT_REPORT(("geom", ("box",)), None, ("found", "force"), "netforce", 1)
    engine = MujocoWarpEngine(FALL.replace("pos='0 0 1'", "pos='0 0 .1'"), 3, device="cpu", fresh=fresh)
    engine.prepare(wanted(report, BODY_VELOCITY))
    engine.step(substeps=100)
    engine.refresh()
    before = arrays_of(engine)
    assert before[contact_array(report)][..., 0].flatten().tolist() == [4.0] * 3
    engine.reset([0], {"qpos": [0, 0, 5, 1, 0, 0, 0]})
    engine.refresh()
    assert_same(arrays_of(engine), before, [1, 2])
    assert not engine.array(contact_array(report))[0].any()


def test_reset_rows_follow_the_order_of_the_env_ids():
    """Values for env ids [3, 1] are assigned to env 3 and env 1 in that order, also if they are the state itself."""
    engine = MujocoWarpEngine(CHAIN, 4, device="cpu")
    engine.reset([3, 1], {"ctrl": [[3.0, 3.0], [1.0, 1.0]]})
    assert engine.ctrl[:, 0].tolist() == [0.0, 1.0, 0.0, 3.0]
    engine.reset([1, 3], {"ctrl": engine.ctrl[[3, 1]], "qpos": engine.qpos[0]})
    assert engine.ctrl[:, 0].tolist() == [0.0, 3.0, 0.0, 1.0]
    engine.reset([3], {"ctrl": engine.ctrl[3]})
    assert engine.ctrl[:, 0].tolist() == [0.0, 3.0, 0.0, 1.0]


@pytest.mark.parametrize("keyframe", [None, "low", 0])
def test_reset_env_equals_a_new_one(keyframe):
    """After a reset of all, state and derived state are those of a new engine; gravity stays."""
    key = (
        "<keyframe><key name='low' time='2' qpos='.5 -.5' qvel='1 2' ctrl='.1 .2' mpos='4 5 6' mquat='0 1 0 0'/>"
        "</keyframe></mujoco>"
    )
    xml = CHAIN.replace("</mujoco>", key).replace(
        "</worldbody>", "<body name='hand' mocap='true' pos='1 1 1' quat='0 0 1 0'/></worldbody>"
    )
    engine, new = (MujocoWarpEngine(xml, 3, device="cpu", keyframe=keyframe) for _ in range(2))
    engine.prepare(wanted(*ALL))
    new.prepare(wanted(*ALL))
    expected = [0.0, 0.0] if keyframe is None else [0.5, -0.5]
    assert new.qpos.tolist() == [expected] * 3
    assert new.mocap_pos[2].tolist() == ([[1, 1, 1]] if keyframe is None else [[4, 5, 6]])
    assert wp.to_torch(new.d.time).tolist() == [0.0 if keyframe is None else 2.0] * 3
    new.refresh()
    for each in (engine, new):
        each.gravity[1] = torch.tensor([0.0, 0.0, -1.0])
    engine.step([0.4, 0.4], substeps=10)
    engine.mocap_pos[:] = 0.0
    engine.reset(None)
    assert engine.gravity[1].tolist() == [0, 0, -1]
    new.forward()
    assert_same(rows_of(engine), rows_of(new))
    assert_same(arrays_of(engine), arrays_of(new))
    with pytest.raises(UnknownNameError, match="Did you mean 'low'"):
        MujocoWarpEngine(xml, device="cpu", keyframe="lwo")


def test_reset_restores_qpos0_of_each_env():
    """A reset uses the default position that the owner set for that env."""
    engine = MujocoWarpEngine(CHAIN, 2, device="cpu")
    engine.expand("qpos0")[1] = 0.75
    engine.reset(None)
    assert engine.qpos.tolist() == [[0.0, 0.0], [0.75, 0.75]]


def test_reset_refuses_invalid_values_before_any_change():
    """Wrong ids, keys and shapes are errors that leave the state unchanged."""
    engine = thrown(CHAIN)
    engine.step(substeps=5)
    before = rows_of(engine)
    with pytest.raises(UnknownNameError, match=r"unknown state 'qpso'. Did you mean 'qpos'"):
        engine.reset([0], {"qpso": 0.0})
    with pytest.raises(ValueError, match=r"qvel: got values of shape \(3,\), expected \(1, 2\)"):
        engine.reset([0], {"qvel": [0.0, 0.0, 0.0]})
    for ids in ([2], [-1], [0, 0], [0.5], np.array([True])):
        with pytest.raises(ValueError, match="env_ids: got"):
            engine.reset(ids)
    engine.reset([])
    assert_same(rows_of(engine), before)


def test_control_is_shared_or_per_env_and_wrong_shape_names_the_expected():
    """Control is `[nu]` for all or `[env, nu]`; None keeps the current values; a wrong shape moves nothing."""
    engine = MujocoWarpEngine(CHAIN, 3, device="cpu")
    engine.step([0.5, 0.25])
    assert engine.ctrl.tolist() == [[0.5, 0.25]] * 3
    engine.step(np.arange(6.0).reshape(3, 2), substeps=2)
    engine.step()
    assert engine.ctrl.tolist() == [[0, 1], [2, 3], [4, 5]] and engine.tick == 4
    with pytest.raises(ValueError, match=r"ctrl: got shape \(4,\), expected \(3, 2\) or \(2,\)"):
        engine.step([0.0] * 4)
    with pytest.raises(ValueError, match="substeps: got 0"):
        engine.step(substeps=0)
    assert engine.tick == 4


# Saving


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("refreshed", [True, False])
def test_a_restored_state_resumes_bit_identically(fresh, refreshed):
    """Uninterrupted steps end in the same bits as steps, a save, a load in another engine and the remaining steps."""
    whole, first, second = (thrown(fresh=fresh) for _ in range(3))
    for engine in (whole, first):
        engine.gravity[1, 2] = -3.0
    inputs = controls(whole, 30)
    for ctrl in inputs:
        whole.step(ctrl)
        whole.refresh()
    for ctrl in inputs[:15]:
        first.step(ctrl)
        if refreshed:
            first.refresh()
    saved = first.state()
    first.step(substeps=7)
    second.load_state(saved)
    assert (second.tick, second.lag) == (15, 0 if fresh else 1)
    assert_same(arrays_of(second), saved["arrays"])
    second.refresh()
    assert_same(arrays_of(second), saved["arrays"])
    for ctrl in inputs[15:]:
        second.step(ctrl)
    second.refresh()
    assert second.tick == whole.tick
    assert_same(rows_of(second), rows_of(whole))
    assert_same(arrays_of(second), arrays_of(whole))


@pytest.mark.parametrize("built_inside", [False, True])
@pytest.mark.parametrize("kind", OWN_ENGINES)
def test_tensors_created_in_inference_mode_are_writable_outside(kind, built_inside):
    """Roll-outs run in that mode, and arrays are created at first use; steps, resets and loads continue outside of
    it.
    """

    def built():
        noisy = sn.ImuCfg(name="noisy", site="imu", gyro_noise=0.1, gyro_bias=sn.Uniform(0, 1), delay=0.008)
        return sn.Scene(kind(WALKER, 2, device="cpu"), [noisy, sn.ImuCfg(name="imu", site="imu")])

    scene = None if built_inside else built()
    with torch.inference_mode():
        scene = scene or built()
        for _ in range(3):
            scene.step(torch.zeros(5))
            scene.reset(torch.tensor([True, False]))
        scene["noisy"].set("gyro_noise", 0.2)
        saved = scene.state()
        inside = [scene[name].read().ang_vel_b for name in ("noisy", "imu")]
    scene.load_state(saved)
    assert all(
        torch.equal(scene[name].data.ang_vel_b, kept) for name, kept in zip(("noisy", "imu"), inside, strict=True)
    )
    scene.step(torch.zeros(5))
    scene["noisy"].set("gyro_noise", 0.3, env_ids=[1])
    scene.engine.qpos[0, 2] += 1.0
    scene.reset([1], qpos=scene.engine.qpos[:1])
    scene.reset(torch.tensor([True, False]))


@pytest.mark.filterwarnings("ignore:contacts of:sensorium.SensoriumWarning")  # which mujoco_warp 3 misinterprets
def test_torch_default_dtype_has_no_effect():
    """With float64 as the default dtype, as some learners need, every sensor measures the same."""
    readings = []
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            scene = sn.Scene(MujocoWarpEngine(WALKER, 2, device="cpu"), sensors(), seed=1)
            scene.step(np.zeros(5))
            scene.reset([1])
            readings.append({name: values_of(scene[name], is_measured=True) for name in scene.sensors})
        finally:
            torch.set_default_dtype(torch.float32)
    for name, fields in readings[0].items():
        for field, values in fields.items():
            got = readings[1][name][field]
            assert got.dtype == values.dtype and torch.equal(got.nan_to_num(), values.nan_to_num()), f"{name}.{field}"


def test_restored_readings_use_current_mount_poses():
    """A sensor is read right after `load_state`: its site is at each environment's position, as before saving."""
    imu = sn.ImuCfg(name="imu", site="imu")
    scenes = []
    for _ in range(2):
        scene = sn.Scene(MujocoWarpEngine(WALKER, 2, device="cpu"), [imu])
        scene.engine.expand("site_pos")[1] += 1.0
        scenes.append(scene)
    saved, other = scenes
    saved.engine.qvel[:, 3:6] = torch.tensor([0.0, 0.0, 2.0])
    saved.update()
    saved.step(substeps=2)
    other.load_state(saved.state())
    assert torch.equal(other[imu].data.lin_acc_b, saved[imu].data.lin_acc_b)
    assert saved[imu].data.lin_acc_b[1].norm() > 3.0


def test_gravity_shared_again_by_all_envs_is_restored():
    """The saved gravity of each env is restored even if the owner replaced it by one value for all."""
    engine = MujocoWarpEngine(CHAIN, 4, device="cpu")
    pair = np.array([[0, 0, -1], [0, 0, -2]], np.float32)
    engine.m.opt.gravity = wp.array(pair, dtype=wp.vec3, device="cpu")
    saved = engine.state()
    engine.m.opt.gravity = wp.array(pair[:1], dtype=wp.vec3, device="cpu")
    engine.load_state(saved)
    assert engine.gravity[:, 2].tolist() == [-1, -2, -1, -2]


def test_a_state_of_another_model_is_refused():
    """A state of different sizes raises an error that states them, and nothing is loaded."""
    engine = thrown(CHAIN, 3)
    before = rows_of(engine)
    with pytest.raises(
        ValueError, match=r"saved state: got time of shape \(2,\), expected \(3,\): it belongs to another"
    ):
        engine.load_state(thrown(CHAIN).state())
    with pytest.raises(ValueError, match="another model or number of environments"):
        engine.load_state(thrown(FALL, 3).state())
    assert_same(rows_of(engine), before)


# Fields of the model


def test_env_with_fields_of_another_model_behaves_like_it():
    """Physics and sensors of an env follow its own gravity, masses, frictions, gains and sites, bit for bit."""
    other = mujoco.MjSpec.from_file(str(WALKER))
    other.option.gravity = [0.5, 0, -4.0]
    other.option.magnetic = [1.0, 2.0, 3.0]
    other.geom("trunk").mass = 9.0
    other.geom("left_foot").friction = [0.1, 0.005, 0.0001]
    other.joint("left_hip").armature = 0.2
    other.joint("left_knee").frictionloss = 0.6
    other.site("imu").pos = [0.0, 0.1, 0.2]
    other.actuator("left_hip").gear[0] = 3.0
    native = tuple(NATIVE_SENSOR(name) for name in ("accelerometer", "gyro"))
    both = MujocoWarpEngine(WALKER, 2, device="cpu")
    plain, changed = MujocoWarpEngine(WALKER, device="cpu"), MujocoWarpEngine(other, device="cpu")
    names = []
    theirs = parts_of(changed.m)
    for prefix, mine in parts_of(both.m).items():
        for name in batched(mine):
            array, wanted_array = getattr(mine, name), getattr(theirs[prefix], name)
            if array.size and not np.array_equal(array.numpy()[:1], wanted_array.numpy()[:1]):
                names.append(prefix + name)
                both.expand(prefix + name)[1] = wp.to_torch(wanted_array)[0]
    assert {"opt.gravity", "body_mass", "geom_friction", "dof_armature", "site_pos", "actuator_gear"} <= set(names)
    engines = (both, plain, changed)
    for engine in engines:
        engine.prepare(wanted(*ALL, *native))
        engine.qpos[:, 2] -= 0.05
        engine.forward()
    for ctrl in controls(plain, 40):
        for engine in engines:
            engine.step(ctrl.expand(engine.num_envs, -1))
    for engine in engines:
        engine.refresh()
    rows, derived = rows_of(both), arrays_of(both)
    for env, engine in ((0, plain), (1, changed)):
        for mine, expected in ((rows, rows_of(engine)), (derived, arrays_of(engine))):
            for name, values in expected.items():
                assert torch.equal(mine[name][env], values[0]), name
    assert not torch.equal(rows["qpos"][0], rows["qpos"][1])


def test_gravity_and_flux_act_and_are_reported():
    """An env with its own gravity falls accordingly, gravity_w reports it, and a reset keeps it."""
    engine = MujocoWarpEngine(FALL, 3, device="cpu")
    engine.prepare(wanted(*MOTION))
    engine.gravity[1] = torch.tensor([0.0, 0.0, -1.62])
    engine.gravity[2] = 0.0
    engine.magnetic[2] = torch.tensor([1.0, 2.0, 3.0])
    engine.step(substeps=50)
    engine.refresh()
    assert engine.qvel[:, 2].tolist() == pytest.approx([-9.81 * 0.1, -1.62 * 0.1, 0.0], rel=1e-5)
    assert engine.array("gravity_w")[:, 2].tolist() == pytest.approx([-9.81, -1.62, 0.0])
    assert engine.array("body_lin_acc_w")[:, 0, 2].tolist() == pytest.approx([-9.81, -1.62, 0.0])
    assert engine.array("magnetic_w").tolist()[1:] == [pytest.approx([0.0, -0.5, 0.0]), [1.0, 2.0, 3.0]]
    engine.reset(None)
    assert engine.array("gravity_w")[1, 2] == pytest.approx(-1.62)


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_replaced_arrays_of_the_owner_take_effect_automatically(rows):
    """Env n uses row n % rows of a Model array, in physics, derived state and mount offsets."""
    engine = MujocoWarpEngine(FALL, 4, device="cpu")
    scene = sn.Scene(engine, [sn.ImuCfg(name="imu", site="tag", fields=("pos_w", "projected_gravity_b"))])
    for _ in range(40):  # long enough for everything to be captured
        scene.step()
    gravity = np.array([[0, 0, -1.0 - row] for row in range(rows)], np.float32)
    engine.m.opt.gravity = wp.array(gravity, dtype=wp.vec3, device="cpu")
    sites = np.array([[[0, 0.1 + row, 0]] for row in range(rows)], np.float32)
    engine.m.site_pos = wp.array(sites, dtype=wp.vec3, device="cpu")
    before = engine.qvel[:, 2].clone()
    scene.step()
    expected = [row % rows for row in range(4)]
    fell = ((engine.qvel[:, 2] - before) / engine.dt).tolist()
    assert fell == pytest.approx([-1.0 - row for row in expected], rel=1e-3)
    assert engine.gravity.shape == (rows, 3)
    lever = scene["imu"].ground_truth.pos_w - engine.qpos[:, :3]
    assert lever[:, 1].tolist() == pytest.approx([0.1 + row for row in expected], abs=1e-5)
    engine.prepare(wanted(GRAVITY))
    engine.refresh()
    assert engine.array("gravity_w")[:, 2].tolist() == [-1.0 - row for row in expected]
    scene.reset([3])
    lever = scene["imu"].ground_truth.pos_w - engine.qpos[:, :3]
    assert lever[:, 1].tolist() == pytest.approx([0.1 + row for row in expected], abs=1e-5)


def test_options_set_by_the_owner_take_effect_automatically():
    """A change to an option that was frozen in a graph is detected."""
    engine, twin = thrown(), thrown()
    for each in (engine, twin):
        each.step(substeps=3)
    engine.m.opt.disableflags = int(mujoco.mjtDisableBit.mjDSBL_GRAVITY)
    twin.gravity[:] = 0.0
    for each in (engine, twin):
        each.step(substeps=3)
        each.refresh()
    assert_same(rows_of(engine), rows_of(twin))
    assert_same(arrays_of(engine), arrays_of(twin))


def test_replaced_data_array_raises_a_clear_error():
    """Arrays that derived state reads must keep their addresses; the message names the array."""
    engine = MujocoWarpEngine(FALL, 2, device="cpu")
    engine.prepare(wanted(BODY_POSE))
    engine.refresh()
    engine.d.xpos = wp.clone(engine.d.xpos)
    with pytest.raises(ModelError, match="xpos of the mujoco_warp Data was replaced by another array"):
        engine.forward()


def test_values_written_before_the_scene_survive_model_changes():
    """State, expanded fields, replaced arrays, options and callbacks stay as the owner set them, and so do tensors."""
    engine = MujocoWarpEngine(FALL, 2, device="cpu")
    m = engine.m
    qpos, gravity, friction = engine.qpos, engine.gravity, engine.expand("geom_friction")
    qpos[1, 2] = 2.5
    gravity[1, 2] = -5.0
    friction[1] = 0.25
    m.opt.iterations = 7
    m.body_mass = wp.array(np.array([[0, 3.0], [0, 4.0]], np.float32), dtype=wp.float32, device="cpu")
    m.callback.passive = passive = lambda m, d: None
    report = CONTACT_REPORT(("geom", ("box",)), None, ("found",), "none", 2)
    engine.prepare(wanted(BODY_POSE, GRAVITY, report))
    engine.refresh()
    assert engine.m is not m, "the report needs sensors in the model"
    assert engine.qpos is qpos and engine.gravity is gravity
    assert engine.array("body_pos_w")[1, 0, 2] == 2.5 and engine.array("gravity_w")[1, 2] == -5.0
    assert wp.to_torch(engine.m.geom_friction)[1].unique().tolist() == [0.25]
    friction[0] = 0.5
    assert wp.to_torch(engine.m.geom_friction)[0].unique().tolist() == [0.5]
    assert engine.m.opt.iterations == 7 and engine.m.body_mass.numpy()[:, 1].tolist() == [3.0, 4.0]
    assert engine.m.callback.passive is passive
    qpos[1, 2] = 3.5
    engine.forward()
    assert engine.array("body_pos_w")[1, 0, 2] == 3.5


def test_resizing_written_state_is_refused_without_data_loss():
    """If a plugin adds joints or sites, previously written values cannot be carried over, and the error names them."""

    def add(spec):
        body = spec.body("box").add_body()
        body.add_joint(name="extra")
        body.add_geom(size=[0.1, 0, 0])
        body.add_site(name="spot")

    engine = MujocoWarpEngine(FALL, 2, device="cpu")
    qpos = engine.qpos
    engine.prepare({MODEL_ELEMENTS(add): "skin"})
    assert qpos.shape == (2, 8) and engine.qpos is qpos
    written = MujocoWarpEngine(FALL, 2, device="cpu")
    written.qpos[0, 0] = 1.0
    with pytest.raises(ModelError, match=r"qpos was written before the scene was created.*after Scene\(\.\.\.\)"):
        written.prepare({MODEL_ELEMENTS(add): "skin"})
    assert written.qpos.shape == (2, 7) and written.qpos[0, 0] == 1.0
    written.step()
    moved = MujocoWarpEngine(FALL, 2, device="cpu")
    moved.expand("site_pos")[1] = 1.0
    with pytest.raises(ModelError, match="site_pos of mujoco_warp's Model was written before the scene was created"):
        moved.prepare({MODEL_ELEMENTS(add): "skin"})


def test_expand_gives_each_env_its_own_values():
    """All fields that mujoco_warp stores per world can be expanded; other and unknown fields are rejected."""
    engine = MujocoWarpEngine(WALKER, 18, device="cpu")
    assert engine.model.nbody == 19
    for prefix, owner in parts_of(engine.m).items():
        for name in batched(owner):
            if prefix + name == "opt.timestep" or not getattr(owner, name).size:
                continue
            before = getattr(owner, name).numpy()
            values = engine.expand(prefix + name)
            assert values.shape[0] == 18 and values.data_ptr() == address(getattr(owner, name)), name
            assert np.array_equal(getattr(owner, name).numpy(), np.broadcast_to(before[:1], (18, *before.shape[1:])))
            assert engine.expand(prefix + name) is values
    with pytest.raises(UnknownNameError, match=r"unknown field of mujoco_warp's Model 'geom_frction'.*'geom_friction'"):
        engine.expand("geom_frction")
    for shared in ("body_parentid", "mocap_bodyid", "opt.timestep", "key_mpos"):
        with pytest.raises((ValueError, UnknownNameError), match=f"{shared}.*(all environments|Known)"):
            engine.expand(shared)


def test_fields_whose_first_size_equals_the_env_count_stay_shared():
    """A list of bodies is not a list of environments, even if the counts are equal."""
    engine = MujocoWarpEngine(WALKER, 19, device="cpu")
    assert engine.m.body_parentid.shape == (19,)
    with pytest.raises(ValueError, match="body_parentid: got a field that all environments of mujoco_warp share"):
        engine.expand("body_parentid")


def test_shapes_that_differ_between_envs_are_refused_by_name():
    """Rays hit one set of shapes: an element that differs is named; a value common to all envs is used."""
    engine = MujocoWarpEngine(WALKER, 2, device="cpu")
    engine.expand("geom_size")[:, engine.model.geom("trunk").id] = torch.tensor([0.3, 0.2, 0.1])
    trunk = next(shape for shape in engine.shapes() if shape.name == "trunk")
    assert trunk.size == pytest.approx((0.3, 0.2, 0.1))
    other = MujocoWarpEngine(WALKER, 2, device="cpu")
    other.expand("geom_size")[1, other.model.geom("trunk").id, 0] = 0.5
    with pytest.raises(ModelError, match="geom 'trunk' has a different geom_size in env 1 than in env 0"):
        other.shapes()


@pytest.mark.parametrize("is_mask", [False, True])
def test_shapes_changed_to_differ_are_refused_at_the_next_reset(is_mask):
    """Rays would still hit env 0's shapes as described; properties that rays do not depend on may differ."""
    engine = MujocoWarpEngine(WALKER, 2, device="cpu")
    engine.shapes()
    post, trunk = engine.model.body("post").id, engine.model.geom("trunk").id
    ids = torch.tensor([False, True]) if is_mask else [1]
    engine.expand("geom_friction")[1] = 0.3
    engine.expand("geom_rgba")[1, :, :3] = 0.3
    engine.expand("body_pos")[1, engine.model.body("arm").id] += 0.1
    engine.expand("geom_size")[:, trunk] *= 1.1
    engine.reset(ids)
    engine.m.body_pos = wp.clone(engine.m.body_pos)
    engine.expand("body_pos")[1, post, 0] += 0.1
    with pytest.raises(ModelError, match="body 'post' has a different body_pos in env 1 than in env 0"):
        engine.reset(ids)
    engine.expand("body_pos")[1, post, 0] = engine.expand("body_pos")[0, post, 0]
    engine.reset(ids)
    engine.step()


# Memory for contacts


def heap(count, gap=0.0):
    """Return boxes that lie on the ground side by side, four contacts each, or hang above it."""
    boxes = "".join(
        f"<body pos='{i % 6 * 0.3} {i // 6 * 0.3} {0.049 + gap}'><freejoint/><geom type='box' size='.1 .1 .05'/></body>"
        for i in range(count)
    )
    return (
        "<mujoco><option timestep='.002' integrator='implicitfast'/><worldbody><geom type='plane' size='5 5 .1'/>"
        f"{boxes}</worldbody></mujoco>"
    )


def test_memory_is_sized_from_the_default_state_and_the_keyframes():
    """The default capacity is twice the model's initial contacts, and the caller's value overrides it."""
    spec = mujoco.MjSpec.from_string(heap(30, gap=1.0))
    model = spec.compile()
    qpos = model.qpos0.copy()
    assert MujocoWarpEngine(spec, 2, device="cpu").d.naconmax < 2 * 240
    qpos[2::7] -= 1.0
    spec.add_key(name="lying", qpos=qpos)
    engine = MujocoWarpEngine(spec, 2, device="cpu")
    assert engine.d.naconmax >= 2 * 240 and engine.d.njmax >= 2 * 4 * 120
    chosen = MujocoWarpEngine(spec, 2, device="cpu", nconmax=33, njmax=44)
    assert (int(chosen.d.naconmax), int(chosen.d.njmax)) == (66, 44)
    for size in ("nconmax", "njmax"):
        with pytest.raises(ValueError, match=f"{size}: got 0"):
            MujocoWarpEngine(spec, device="cpu", **{size: 0})


def test_excessive_memory_is_refused_with_the_setting_to_lower():
    """Three billion contacts exceed Warp's count: the message names sizes and number of environments."""
    with pytest.raises(ModelError, match="3 environments with memory for nconmax=1000000000 contacts"):
        MujocoWarpEngine(FALL, 3, device="cpu", nconmax=10**9)


def test_too_little_contact_memory_is_reported_once_with_the_setting_to_raise():
    """For a box on four corners with capacity for one contact, the message names envs, size, value and losses."""
    engine = MujocoWarpEngine(heap(1), 2, device="cpu", nconmax=1)
    with pytest.warns(SensoriumWarning) as told:
        engine.step()
    messages = [str(each.message) for each in told]
    assert any(
        "env 0, 1 was too small by tick 1" in message
        and "contacts" in message
        and "Raise nconmax (now 1): MujocoWarpEngine(..., nconmax=...)" in message
        for message in messages
    ), messages
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.step(substeps=3)


def test_too_little_constraint_memory_names_the_env():
    """Only the env whose box touches the ground runs out, and the physics of the other is unaffected."""
    engine, twin = MujocoWarpEngine(heap(1), 2, device="cpu", njmax=8), MujocoWarpEngine(heap(1), 2, device="cpu")
    for each in (engine, twin):
        each.qpos[0, 2::7] += 1.0
    with pytest.warns(SensoriumWarning, match=r"env 1 was too small by tick 1 for constraints.*Raise njmax \(now 8\)"):
        engine.step()
    twin.step()
    assert_same(rows_of(engine), rows_of(twin), 0)


def test_owner_of_the_data_learns_which_size_to_raise():
    """For wrapped objects the message names mujoco_warp's own function."""
    model = mujoco.MjModel.from_xml_string(heap(1))
    m, d = mjw.put_model(model), mjw.make_data(model, nworld=2, nconmax=1)
    m.opt.warn_overflow = type(m.opt.warn_overflow)(0)
    engine = MujocoWarpEngine.from_mjw(model, m, d)
    mjw.step(m, d)
    with pytest.warns(
        SensoriumWarning, match=r"nconmax \(now 1\) in the call that creates the Data: mujoco_warp\.make_data"
    ):
        engine.count_ticks(1)


# Messages


@pytest.fixture
def versions(monkeypatch):
    """Return pip's list of installed packages; set an entry to None for a missing package."""
    said = {name: metadata.version(name) for name in ("mujoco", "mujoco-warp")}

    def version(name):
        if said.get(name) is None:
            raise metadata.PackageNotFoundError(name)
        return said[name]

    monkeypatch.setattr(metadata, "version", version)
    mujoco_warp.cache_clear()
    yield said
    mujoco_warp.cache_clear()


def test_missing_mujoco_warp_error_explains_installation(versions):
    """The pip command has the extra, and the version that fits the installed MuJoCo."""
    release = ".".join(versions["mujoco"].split(".")[:2])
    versions["mujoco-warp"] = None
    with pytest.raises(
        MissingDependencyError, match=rf"pip install 'sensorium\[warp\]', or .*'mujoco-warp=={release}\.\*'"
    ):
        MujocoWarpEngine(FALL, device="cpu")


def test_version_mismatch_error_names_a_working_pair(versions):
    """The message names both versions and the pip command for a matching pair."""
    versions.update({"mujoco": "3.11.0", "mujoco-warp": "4.0.0"})
    with pytest.raises(
        MissingDependencyError,
        match=r"mujoco 3\.11\.0 and mujoco-warp 4\.0\.0 do not match.*pip install 'mujoco==4\.0\.\*'.*3\.11\.\*",
    ):
        MujocoWarpEngine(FALL, device="cpu")
    versions.update({"mujoco": "4.0.1", "mujoco-warp": "4.0.0"})
    assert mujoco_warp() is mjw


def test_mujoco_warp_import_error_gives_the_reason(versions, monkeypatch):
    """The reason for the failed import is in the message."""
    monkeypatch.setitem(__import__("sys").modules, "mujoco_warp", None)
    with pytest.raises(MissingDependencyError, match=r"cannot be imported beside mujoco .*sensorium\[warp\]"):
        MujocoWarpEngine(FALL, device="cpu")


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("<option solver='PGS'/>", "mjSOL_PGS"),
        ("<option><flag fwdinv='enable'/></option>", "mjENBL_FWDINV"),
        ("<option><flag fwdinv='enable' override='enable'/></option>", "mjENBL_OVERRIDE"),
        ("<option><flag midphase='disable'/></option>", "mjDSBL_MIDPHASE"),
        ("<option solver='CG'><flag sleep='enable'/></option>", "sleeping requires the Newton solver"),
    ],
)
def test_a_feature_that_mujoco_warp_lacks_is_named_at_construction(option, name):
    """The message names the solver, flag or sensor, and the engine that supports it."""
    xml = FALL.replace("<worldbody>", f"{option}<worldbody>")
    with pytest.raises(ModelError, match=f"mujoco_warp .* cannot simulate the XML text.*{name}.*MujocoEngine"):
        MujocoWarpEngine(xml, device="cpu")


def test_a_sensor_plugin_is_named_at_construction():
    """MuJoCo's own plugin for touch grids runs on the CPU only."""
    plugin = "mujoco.sensor.touch_grid"
    grid = (
        f"<extension><plugin plugin='{plugin}'/></extension><sensor><plugin plugin='{plugin}' objtype='site' "
        "objname='tag'><config key='size' value='2 2'/><config key='fov' value='45 45'/><config key='gamma' value='0'/>"
        "<config key='nchannel' value='1'/></plugin></sensor></mujoco>"
    )
    with pytest.raises(ModelError, match=r"cannot simulate the XML text.*mjSENS_PLUGIN"):
        MujocoWarpEngine(FALL.replace("</mujoco>", grid), device="cpu")


def test_a_user_sensor_is_refused_by_name():
    """A value that only an owner's callback could fill is not a reading."""
    xml = FALL.replace("</mujoco>", "<sensor><user name='mine' dim='1'/></sensor></mujoco>")
    engine = MujocoWarpEngine(xml, device="cpu")
    with pytest.raises(UnsupportedError, match=r"'probe' requires NATIVE_SENSOR.*mine.*mujoco_warp"):
        engine.prepare(wanted(NATIVE_SENSOR("mine")))


def test_sealed_model_error_names_missing_parts_and_preparation():
    """An MjModel cannot be changed: the error refers to sn.prepare, and a prepared model works."""
    contact = sn.ContactSensorCfg(name="feet", primary=sn.ContactMatch(mode="geom", pattern="box"))
    spec = mujoco.MjSpec.from_string(FALL)
    sealed = MujocoWarpEngine(spec.copy().compile(), 2, device="cpu")
    with pytest.raises(UnsupportedError, match=r"'feet' requires CONTACT_REPORT.*sn\.prepare\(spec, sensors\)"):
        sn.Scene(sealed, [contact])
    model = sn.prepare(spec, [contact]).compile()
    engine = MujocoWarpEngine(model, 2, device="cpu")
    scene = sn.Scene(engine, [contact])
    qpos = engine.qpos[1:].clone()
    qpos[0, 2] = 0.099
    scene.reset([1], qpos=qpos)
    assert scene["feet"].data.found.squeeze().tolist() == [0, 4]


def test_unavailable_device_raises_the_common_device_error(monkeypatch):
    """Without CUDA, device="cuda" (the default) reports the devices found."""
    nothing = dataclasses.replace(devices.DeviceInventory.detect(), warp_devices=(), torch_devices=0)
    monkeypatch.setattr(devices.DeviceInventory, "detect", lambda: nothing)
    with pytest.raises(sn.DeviceError, match="device: got 'cuda', but no CUDA device is available"):
        MujocoWarpEngine(FALL)
    with pytest.raises(sn.DeviceError, match="device: got 'gpu'"):
        MujocoWarpEngine(FALL, device="gpu")


def test_wrong_types_are_refused_with_the_accepted_ones():
    """Any object that is not a model is rejected by type, and the error for MjData refers to from_mjw."""
    with pytest.raises(
        ModelError, match=r"a int .* is not a model: give a path to MJCF or URDF, XML text, or an MjSpec"
    ):
        MujocoWarpEngine(5, device="cpu")
    with pytest.raises(ModelError, match=r"MujocoWarpEngine.from_mjw"):
        MujocoWarpEngine(mujoco.MjData(mujoco.MjModel.from_xml_string(FALL)), device="cpu")
    with pytest.raises(ValueError, match="num_envs: got 0"):
        MujocoWarpEngine(FALL, 0, device="cpu")


def test_model_change_after_the_first_tick_is_refused_and_suggests_reserve():
    """Changes to the model are rejected once time has passed; existing quantities are granted."""
    engine = thrown(FALL, requirements=(BODY_POSE,))
    engine.step()
    report = CONTACT_REPORT(("geom", ("box",)), None, ("found",), "none", 2)
    with pytest.raises(UnsupportedError, match=r"requires CONTACT_REPORT.*after 1 ticks.*reserve="):
        engine.prepare(wanted(report))
    engine.prepare(wanted(BODY_ACCELERATION))
    engine.refresh()
    assert engine.array("body_lin_acc_w")[0, 0, 2] == pytest.approx(-9.81, abs=0.1)


def test_compose_puts_each_entity_under_its_prefix():
    """Entities keep their names behind a prefix, as with the CPU engine."""
    engine = MujocoWarpEngine.compose({"red": FALL, "blue": (CHAIN, (3, 0, 1))}, num_envs=2, device="cpu")
    assert engine.entities == ("red", "blue")
    assert engine.names("scalar_joint") == ("blue/one", "blue/two")
    assert "MujocoWarpEngine" in repr(engine) and "num_envs=2" in repr(engine)


# Models with little in them


@pytest.mark.parametrize("num_envs", [1, 3])
def test_model_without_joints_has_empty_state_and_correct_bodies(num_envs):
    """Without joints, actuators, sites and controls, poses and gravity are still read."""
    xml = "<mujoco><worldbody><body name='rock' pos='1 2 3'><geom size='.1'/></body></worldbody></mujoco>"
    engine = MujocoWarpEngine(xml, num_envs, device="cpu")
    engine.prepare(wanted(BODY_POSE, GRAVITY, JOINT_STATE))
    for _ in range(3):
        engine.step(torch.zeros(0))
    engine.refresh()
    assert engine.nu == 0 and engine.qpos.shape == (num_envs, 0) and engine.mocap_pos.shape == (num_envs, 0, 3)
    assert engine.array("body_pos_w").tolist() == [[[1, 2, 3]]] * num_envs
    assert engine.array("joint_pos").shape == (num_envs, 0)
    engine.reset([0])
    assert engine.array("gravity_w")[0].tolist() == pytest.approx([0, 0, -9.81])


def test_an_engine_without_sensors_steps():
    """Nothing is prepared, and nothing is computed besides the physics."""
    scene = sn.Scene(MujocoWarpEngine(FALL, device="cpu"), [])
    for _ in range(5):
        scene.step()
    assert scene.engine.tick == 5 and scene.engine.qvel[0, 2] == pytest.approx(-9.81 * 5 * 0.002, rel=1e-5)
    assert not scene.engine._derived.arrays


# Live Model and Data


def live(num_envs=2, requirements=ALL, spec=None, *, seed=1, **options):
    """Return another owner's objects and an engine around them."""
    spec = spec or mujoco.MjSpec.from_file(str(WALKER))
    prepare_spec(spec, requirements)
    mjm = spec.compile()
    m, d = mjw.put_model(mjm), mjw.make_data(mjm, nworld=num_envs)
    m.opt.warn_overflow = type(m.opt.warn_overflow)(0)
    generator = torch.Generator().manual_seed(seed)
    wp.to_torch(d.qvel)[:] = torch.randn(8, mjm.nv, generator=generator)[:num_envs]
    engine = MujocoWarpEngine.from_mjw(mjm, m, d, **options)
    engine.prepare(wanted(*requirements))
    return m, d, engine


@pytest.mark.parametrize("fresh", [True, False])
def test_reading_does_not_change_the_owners_state(fresh):
    """Every bit of the state is the same with and without sensors that read at each tick."""
    m, d, engine = live(fresh=fresh)
    other_m, other_d, twin = live()
    for _ in range(40):
        mjw.step(m, d)
        mjw.step(other_m, other_d)
        engine.count_ticks(1)
        engine.refresh()
    engine.forward()
    assert engine.tick == 40
    assert_same(rows_of(engine), rows_of(twin))


@pytest.mark.parametrize("fresh", [True, False])
def test_a_live_engine_equals_the_stepping_engine(fresh):
    """Objects stepped by their owner and the engine's own environments give the same derived bits."""
    feet = CONTACT_REPORT(("geom", ("left_foot", "right_foot")), None, ("found", "force"), "netforce", 1)
    needs = (*ALL, NATIVE_SENSOR("accelerometer"), feet)
    own = thrown(requirements=needs, fresh=fresh)
    m, d, engine = live(requirements=needs, fresh=fresh)
    for k in range(30):
        ctrl = torch.full((2, own.nu), 0.02 * k)
        wp.to_torch(d.ctrl).copy_(ctrl)
        mjw.step(m, d)
        engine.count_ticks(1)
        own.step(ctrl)
        if k % 3 == 0:
            own.refresh()
            engine.refresh()
            assert own.lag == engine.lag == (0 if fresh else 1)
            assert_same(arrays_of(own), arrays_of(engine))
    assert_same(rows_of(own), rows_of(engine))


def test_scene_around_live_objects_equals_an_owned_one():
    """Measured readings of scenes have the same bits for either stepper; scene.reset reads an owner's reset."""
    cfgs = [
        sn.ImuCfg(name="imu", site="imu", fields=("ang_vel_b", "lin_acc_b", "pos_w")),
        sn.ContactSensorCfg(
            name="feet",
            primary=sn.ContactMatch(mode="geom", pattern=".*_foot"),
            fields=("found", "force"),
            reduce="netforce",
        ),
    ]
    mjm = sn.prepare(mujoco.MjSpec.from_file(str(WALKER)), cfgs).compile()
    m, d = mjw.put_model(mjm), mjw.make_data(mjm, nworld=2)
    m.opt.warn_overflow = type(m.opt.warn_overflow)(0)
    engine = MujocoWarpEngine.from_mjw(mjm, m, d)
    assert isinstance(engine, LiveMujocoWarpEngine) and not engine.owns_time
    theirs = sn.Scene(engine, cfgs)
    ours = sn.Scene(MujocoWarpEngine(WALKER, 2, device="cpu"), cfgs)
    touched = False
    for k in range(120):
        mjw.step(m, d)
        theirs.update()
        ours.step()
        if k == 60:
            mjw.reset_data(m, d, reset=wp.array([False, True], dtype=wp.bool, device="cpu"))
            wp.to_torch(d.qpos)[1, 2] = 0.9
            theirs.reset([1])
            qpos = torch.as_tensor(mjm.qpos0).clone()
            qpos[2] = 0.9
            ours.reset([1], qpos=qpos)
        for field in ("ang_vel_b", "lin_acc_b", "pos_w"):
            assert torch.equal(getattr(theirs["imu"].data, field), getattr(ours["imu"].data, field)), (k, field)
        assert torch.equal(theirs["feet"].data.force, ours["feet"].data.force), k
        touched |= bool(theirs["feet"].data.found.any())
    assert touched


def test_owners_edits_apply_at_the_next_update():
    """State, gravity and sites that the owner writes, in place or by another array, are read at the next update."""
    m, d, engine = live(requirements=())
    scene = sn.Scene(engine, [sn.ImuCfg(name="imu", site="imu", fields=("pos_w", "quat_w", "lin_acc_b"))])
    engine.prepare(wanted(GRAVITY, BODY_POSE))
    qpos = wp.to_torch(d.qpos)
    qpos[1, :3] = torch.tensor([3.0, 2.0, 1.0])
    scene.update(ticks=0)
    trunk = engine.names("body").index("trunk")
    assert engine.array("body_pos_w")[1, trunk].tolist() == [3, 2, 1]
    m.opt.gravity = wp.array(np.array([[0, 0, -1], [0, 0, -2]], np.float32), dtype=wp.vec3, device="cpu")
    sites = np.repeat(m.site_pos.numpy()[:1], 2, axis=0)
    sites[1, engine.model.site("imu").id] = (0.0, 0.0, 5.0)
    m.site_pos = wp.array(sites, dtype=wp.vec3, device="cpu")
    mjw.step(m, d)
    scene.update()
    engine.refresh()
    assert engine.array("gravity_w")[:, 2].tolist() == [-1, -2]
    arm = scene["imu"].data.pos_w[1] - engine.array("body_pos_w")[1, trunk]
    assert float(arm.norm()) == pytest.approx(5.0, rel=1e-5)
    assert engine.gravity.data_ptr() == address(m.opt.gravity)


def test_recomputation_by_the_owner_after_a_refresh_changes_no_array():
    """With `fresh=False` the owner's `forward()` would otherwise update poses and leave the rest one tick old."""
    m, d, engine = live(requirements=(*ALL, NATIVE_SENSOR("gyro")), fresh=False)
    for _ in range(3):
        mjw.step(m, d)
        engine.count_ticks(1)
        engine.refresh()
        before, pose = arrays_of(engine), wp.to_torch(d.xpos).clone()
        mjw.forward(m, d)
        assert not torch.equal(wp.to_torch(d.xpos), pose)
        engine.refresh()
        assert_same(arrays_of(engine), before)


def test_owners_graph_and_engines_graph_coexist():
    """The owner's captured graph of the step is replayed between refreshes and gives the same bits."""
    m, d, engine = live()
    twin = thrown()
    mjw.step(m, d)
    engine.count_ticks(1)
    engine.refresh()
    with wp.ScopedCapture(device="cpu") as captured:
        mjw.step(m, d)
    engine.refresh()
    twin.step()
    for _ in range(10):
        wp.capture_launch(captured.graph)
        engine.count_ticks(1)
        engine.refresh()
        twin.step()
        twin.refresh()
    assert_same(rows_of(engine), rows_of(twin))
    assert_same(arrays_of(engine), arrays_of(twin))


@pytest.mark.parametrize("fresh", [True, False])
def test_reset_by_the_owner_affects_reset_envs_only(fresh):
    """The owner resets, then names the envs: these are read again, the others are unchanged."""
    m, d, engine = live(num_envs=3, fresh=fresh)
    for _ in range(5):
        mjw.step(m, d)
        engine.count_ticks(1)
    engine.refresh()
    before = arrays_of(engine)
    mjw.reset_data(m, d, reset=wp.array([False, True, False], dtype=wp.bool, device="cpu"))
    wp.to_torch(d.qpos)[1, :3] = torch.tensor([3.0, 0.0, 9.0])
    engine.reset([1])
    assert engine.lag == 0
    trunk = engine.names("body").index("trunk")
    assert engine.array("body_pos_w")[1, trunk].tolist() == [3, 0, 9]
    assert_same(arrays_of(engine), before, [0, 2])
    mjw.step(m, d)
    engine.count_ticks(1)
    engine.refresh()
    height = engine.array("body_pos_w")[1, trunk, 2]
    assert (height == 9.0) == (not fresh), "one tick behind, it is still where the reset put it"


def test_the_owner_steps_and_resets():
    """A live engine rejects steps and state writes."""
    _, _, engine = live(requirements=(JOINT_STATE,), fresh=False)
    with pytest.raises(ScheduleError, match=r"mujoco_warp\.step\(m, d\), then scene\.update"):
        engine.step()
    with pytest.raises(ScheduleError, match="write qpos yourself"):
        engine.reset(None, {"qpos": 0.0})
    with pytest.raises(ScheduleError, match=r"2 ticks at once.*use fresh=True"):
        engine.count_ticks(2)


def test_a_live_engine_restores_its_readings():
    """Tick and derived arrays of a wrapped engine are restored; the physics belongs to its owner."""
    m, d, engine = live(requirements=(BODY_VELOCITY, BODY_ACCELERATION))
    mjw.step(m, d)
    engine.count_ticks(1)
    saved = engine.state()
    mjw.step(m, d)
    engine.count_ticks(1)
    engine.refresh()
    engine.load_state(saved)
    engine.refresh()
    assert engine.tick == 1
    assert torch.equal(engine.array("body_lin_acc_w"), saved["arrays"]["body_lin_acc_w"])


def test_restoring_readings_does_not_write_owner_state():
    """Joint positions that are a view of the owner's state keep the owner's values."""
    m, d, engine = live(spec=mujoco.MjSpec.from_string(CHAIN), requirements=(JOINT_STATE, BODY_POSE))
    assert engine.array("joint_pos").data_ptr() == address(d.qpos)
    saved = engine.state()
    mjw.step(m, d)
    qpos = wp.to_torch(d.qpos).clone()
    engine.load_state(saved)
    assert torch.equal(wp.to_torch(d.qpos), qpos)
    assert torch.equal(engine.array("body_pos_w"), saved["arrays"]["body_pos_w"])


def test_fresh_live_accelerations_need_no_preparation():
    """The engine's own forward computation gives accelerations for any model; those read from a step require a
    sensor.
    """
    mjm = mujoco.MjModel.from_xml_string(FALL)
    m, d = mjw.put_model(mjm), mjw.make_data(mjm)
    engine = MujocoWarpEngine.from_mjw(mjm, m, d)
    engine.prepare(wanted(BODY_ACCELERATION))
    engine.refresh()
    assert engine.array("body_lin_acc_w")[0, 0] == pytest.approx([0, 0, -9.81], abs=1e-4)
    with pytest.raises(UnsupportedError, match=r"use fresh=True, or call sn\.prepare"):
        MujocoWarpEngine.from_mjw(mjm, m, d, fresh=False).prepare({BODY_ACCELERATION: "imu"})
    with pytest.raises(UnsupportedError, match=r"sn\.prepare\(spec, sensors\)"):
        engine.prepare({MODEL_ELEMENTS(lambda spec: spec.worldbody.add_site(name="x") and None): "beacon"})


def test_from_mjw_refuses_mismatched_objects():
    """Wrong types, foreign sizes and several time steps are rejected with the reason."""
    mjm, other = mujoco.MjModel.from_xml_string(FALL), mujoco.MjModel.from_xml_string(CHAIN)
    m, d = mjw.put_model(mjm), mjw.make_data(mjm, nworld=2)
    with pytest.raises(ModelError, match=r"from_mjw: got .* as mjm, expected a mujoco\.MjModel"):
        MujocoWarpEngine.from_mjw(FALL, m, d)
    with pytest.raises(ModelError, match=r"from_mjw: got .* as m, expected a mujoco_warp\.Model"):
        MujocoWarpEngine.from_mjw(mjm, mjm, d)
    with pytest.raises(ModelError, match=r"from_mjw: got .* as d, expected a mujoco_warp\.Data"):
        MujocoWarpEngine.from_mjw(mjm, m, mujoco.MjData(mjm))
    with pytest.raises(ModelError, match=r"from_mjw: m has .*mjm has .*all three must be of one model"):
        MujocoWarpEngine.from_mjw(mjm, mjw.put_model(other), d)
    with pytest.raises(ModelError, match="from_mjw: d has"):
        MujocoWarpEngine.from_mjw(mjm, m, mjw.make_data(other))
    m.opt.timestep = wp.array([0.002, 0.004], dtype=wp.float32, device="cpu")
    with pytest.raises(ModelError, match="environments have different time steps"):
        MujocoWarpEngine.from_mjw(mjm, m, d)
    m.opt.timestep = wp.array([0.005], dtype=wp.float32, device="cpu")
    assert MujocoWarpEngine.from_mjw(mjm, m, d).dt == 0.005
    m.opt.integrator = int(mujoco.mjtIntegrator.mjINT_RK4)
    with pytest.raises(ModelError, match="fresh=False with the RK4 integrator"):
        MujocoWarpEngine.from_mjw(mjm, m, d, fresh=False)


# Long runs


def test_two_thousand_captured_steps_keep_addresses_and_memory():
    """Neither addresses nor the memory of the process change while graphs are replayed."""
    engine = MujocoWarpEngine(CHAIN, 2, device="cpu")
    scene = sn.Scene(engine, [sn.JointSensorCfg(name="joints", joints=".*")])
    ctrl = torch.zeros(2, 2)

    def run(steps):
        for _ in range(steps):
            scene.step(ctrl)

    run(300)
    where = {name: engine.array(name).data_ptr() for name in engine._derived.arrays}
    where |= {name: getattr(engine, name).data_ptr() for name in STATE}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run(2000)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    now = {name: engine.array(name).data_ptr() for name in engine._derived.arrays}
    assert now | {name: getattr(engine, name).data_ptr() for name in STATE} == where
    assert grown < 4096, f"{grown} kB more"
