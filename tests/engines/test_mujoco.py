from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.engines.base import ARRAYS, FrameOnBody
from sensorium.engines.mujoco.engine import PERSISTENT_UP_TO, MujocoEngine
from sensorium.engines.mujoco.spec import hidden, prepare_spec
from sensorium.errors import (
    MissingDependencyError,
    ModelError,
    NonFiniteStateWarning,
    ScheduleError,
    SensoriumWarning,
    UnknownNameError,
    UnsupportedError,
)
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    BODY_VELOCITY,
    GRAVITY,
    MAGNETIC,
    MODEL_ELEMENTS,
    Requirement,
)

MODELS = Path(__file__).parents[1] / "models"
TUMBLER = MODELS / "engine_tumbler.xml"
ALL = (BODY_POSE, BODY_VELOCITY, BODY_ACCELERATION, GRAVITY, MAGNETIC)
INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION


def wanted(*requirements):
    return {requirement: "probe" for requirement in requirements or ALL}


def tumbler(num_envs=1, requirements=ALL, model=TUMBLER, **options):
    """Return a tumbling engine: every env has its own spin."""
    engine = MujocoEngine(model, num_envs, **options)
    if requirements:
        engine.prepare(wanted(*requirements))
    throw(engine.qvel)
    engine.forward()
    return engine


def throw(qvel):
    generator = torch.Generator().manual_seed(1)
    qvel[:] = 3.0 * torch.randn(100, qvel.shape[1], generator=generator, dtype=torch.float64)[: len(qvel)]


def controls(steps, num_envs=1):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(steps, num_envs, 2, generator=generator, dtype=torch.float64)


def reference(model, state):
    """Return pose, velocity and acceleration of each body for an integration state, computed by MuJoCo."""
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, state, INTEGRATION)
    mujoco.mj_forward(model, data)
    mujoco.mj_rnePostConstraint(model, data)
    velocity, acceleration = np.zeros((2, model.nbody, 6))
    for body in range(model.nbody):
        for function, out in ((mujoco.mj_objectVelocity, velocity), (mujoco.mj_objectAcceleration, acceleration)):
            function(model, data, mujoco.mjtObj.mjOBJ_XBODY, body, out[body], 0)
    acceleration[:, 3:] += model.opt.gravity
    return {
        "body_pos_w": data.xpos[1:],
        "body_quat_w": data.xquat[1:],
        "body_ang_vel_w": velocity[1:, :3],
        "body_lin_vel_w": velocity[1:, 3:],
        "body_ang_acc_w": acceleration[1:, :3],
        "body_lin_acc_w": acceleration[1:, 3:],
    }


def assert_equals(engine, env, expected):
    for name, values in expected.items():
        got = engine.array(name)[env].double().numpy()
        np.testing.assert_allclose(got, values, rtol=1e-5, atol=1e-5 * max(1.0, np.abs(values).max()), err_msg=name)


# Derived state


@pytest.mark.parametrize("num_envs", [2, PERSISTENT_UP_TO + 1])
def test_derived_state_equals_mujocos_at_body_frame_origins(num_envs):
    """Poses, velocities and coordinate accelerations of a tumbling, colliding chain equal MuJoCo's to 1e-5."""
    engine = tumbler(num_envs)
    touched = False
    for ctrl in controls(150, num_envs):
        engine.step(ctrl, substeps=2)
        if engine.tick % 30 == 0:
            engine.refresh()
            touched |= bool(engine.array("body_lin_acc_w").abs().max() > 50.0)
            for env in (0, num_envs - 1):
                assert_equals(engine, env, reference(engine.model, engine.batch.state[env]))
    assert touched, "the chain should have hit the ground hard"


@pytest.mark.parametrize("requirement", [BODY_POSE, BODY_VELOCITY, BODY_ACCELERATION])
def test_each_stage_alone_is_computed_for_live_data(requirement):
    """Positions, velocities or accelerations alone equal MuJoCo's, in a model without sensors that need them."""
    model = mujoco.MjModel.from_xml_path(str(TUMBLER))
    data, row = mujoco.MjData(model), np.empty(mujoco.mj_stateSize(model, INTEGRATION))
    throw(torch.from_numpy(data.qvel)[None])
    engine = MujocoEngine.from_mj(model, data)
    engine.prepare(wanted(requirement))
    for _ in range(3):
        mujoco.mj_step(model, data, 20)
        engine.count_ticks(20)
        engine.refresh()
        mujoco.mj_getState(model, data, row, INTEGRATION)
        expected = reference(model, row)
        assert_equals(engine, 0, {name: expected[name] for name in ARRAYS[requirement]})


def test_falling_body_accelerates_with_gravity_and_resting_body_does_not():
    """Acceleration is coordinate acceleration: gravity for an unsupported body, zero for a supported one."""
    xml = """<mujoco><worldbody><geom type="plane" size="2 2 .1"/>
      <body name="falling" pos="0 0 1"><freejoint/><geom size=".1"/></body>
      <body name="lying" pos="1 0 .1"><freejoint/><geom size=".1" solref=".005 1"/></body></worldbody></mujoco>"""
    engine = MujocoEngine(xml)
    engine.prepare(wanted(BODY_ACCELERATION))
    engine.step(substeps=150)
    engine.refresh()
    acceleration = engine.array("body_lin_acc_w")[0]
    assert acceleration[0] == pytest.approx([0.0, 0.0, -9.81], abs=1e-5)
    assert acceleration[1] == pytest.approx([0.0, 0.0, 0.0], abs=2e-2)


@pytest.mark.parametrize("body", ["post", "cap", "hand"])
def test_static_welded_and_mocap_bodies_are_at_rest(body):
    """A body that cannot move has exactly zero velocity and acceleration, and its pose is correct."""
    engine = tumbler()
    engine.mocap_pos[0, 0] = torch.tensor([2.0, 3.0, 4.0])
    engine.step(substeps=20)
    engine.refresh()
    row = engine.frame("body", body).body
    for name in ("body_lin_vel_w", "body_ang_vel_w", "body_lin_acc_w", "body_ang_acc_w"):
        assert not engine.array(name)[0, row].any(), name
    expected = {"post": [1, 0, 0.5], "cap": [1, 0, 0.6], "hand": [2, 3, 4]}[body]
    assert engine.array("body_pos_w")[0, row] == pytest.approx(expected)


def test_disabled_gravity_shows_in_gravity_and_acceleration():
    """With the gravity flag off, gravity_w is zero and a floating body does not accelerate."""
    xml = """<mujoco><option><flag gravity="disable"/></option><worldbody>
      <body><freejoint/><geom size=".1"/></body></worldbody></mujoco>"""
    engine = MujocoEngine(xml)
    engine.prepare(wanted())
    engine.refresh()
    assert not engine.array("gravity_w").any() and not engine.array("body_lin_acc_w").any()


def test_derived_arrays_keep_their_addresses():
    """The arrays remain the same tensors at the same address through steps, resets and restored states."""
    engine = tumbler(2)
    names = engine._derived.arrays
    before = {name: engine.array(name).data_ptr() for name in names}
    state = {name: getattr(engine, name).data_ptr() for name in ("qpos", "qvel", "act", "ctrl", "gravity")}
    engine.step()
    saved = engine.state()
    engine.reset(torch.tensor([1]), {"qpos": engine.qpos[1]})
    engine.reset(None, {})
    engine.load_state(saved)
    engine.refresh()
    assert {name: engine.array(name).data_ptr() for name in names} == before
    assert {name: getattr(engine, name).data_ptr() for name in state} == state
    assert all(engine.array(name).dtype == torch.float32 for name in names)


def test_unprepared_array_raises_key_error_that_names_the_requirement():
    """Access to an array whose requirement was not declared raises an error that names the requirement."""
    engine = tumbler(requirements=(BODY_POSE,))
    with pytest.raises(KeyError, match=r"body_lin_acc_w.*It comes with BODY_ACCELERATION"):
        engine.array("body_lin_acc_w")


# Reading does not alter the physics


@pytest.mark.parametrize("integrator", ["EULER", "RK4", "IMPLICITFAST"])
@pytest.mark.parametrize("num_envs", [2, PERSISTENT_UP_TO + 1])
def test_reading_never_alters_the_physics(integrator, num_envs):
    """Trajectories read at every tick and never read are bit-identical, solver state included."""
    spec = mujoco.MjSpec.from_file(str(TUMBLER))
    spec.option.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator}")
    read, unread = (tumbler(num_envs, model=spec) for _ in range(2))
    for ctrl in controls(150, num_envs):
        for engine in (read, unread):
            engine.step(ctrl)
        read.refresh()
        read.forward()
    assert np.array_equal(read.batch.state, unread.batch.state)


def test_results_are_independent_of_threads_and_kept_data():
    """One thread or two, with few or many other environments, give the same trajectory bit for bit."""
    engines = [tumbler(2, threads=1), tumbler(2, threads=2), tumbler(PERSISTENT_UP_TO + 1)]
    for engine in engines:
        engine.step(torch.tensor([0.3, -0.2]), substeps=60)
        engine.refresh()
        assert np.array_equal(engine.batch.state[:2], engines[0].batch.state)
        assert torch.equal(engine.array("body_lin_acc_w")[:2], engines[0].array("body_lin_acc_w"))


def test_unfresh_state_lags_exactly_one_tick():
    """With fresh=False all derived state is one tick old, and `lag` reports it until a forward."""
    fresh, stale = tumbler(), tumbler(fresh=False)
    assert (fresh.lag, stale.lag) == (0, 0)
    for ctrl in controls(60):
        previous = {name: array.clone() for name, array in fresh._derived.arrays.items()}
        for engine in (fresh, stale):
            engine.step(ctrl)
            engine.refresh()
        assert (fresh.lag, stale.lag) == (0, 1)
        for name in ("body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w"):
            assert torch.equal(stale.array(name), previous[name]), name
    stale.forward()
    assert stale.lag == 0
    for name in previous:
        assert torch.equal(stale.array(name), fresh.array(name)), name
    stale.step()
    assert stale.lag == 1
    stale.reset(None, {})
    assert stale.lag == 0


def test_unfresh_acceleration_belongs_to_the_instant_of_the_unfresh_velocity():
    """With fresh=False acceleration is also one tick old, under the control of the last step."""
    engine = tumbler(fresh=False)
    for ctrl in controls(40):
        before = engine.batch.state[0].copy()
        engine.step(ctrl)
    engine.refresh()
    data = mujoco.MjData(engine.model)
    mujoco.mj_setState(engine.model, data, before, INTEGRATION)
    data.ctrl[:] = ctrl[0]
    mujoco.mj_getState(engine.model, data, before, INTEGRATION)
    assert_equals(engine, 0, reference(engine.model, before))


def test_refresh_without_changes_runs_nothing(monkeypatch):
    """A second refresh in the same tick does no work."""
    engine = tumbler()
    engine.step()
    engine.refresh()
    monkeypatch.setattr(type(engine._derived), "convert", lambda *_: pytest.fail("converted again"))
    engine.refresh()


# State


def test_state_writes_take_effect_after_forward():
    """A write to engine.qpos moves the simulation itself; derived state follows after forward()."""
    engine = tumbler(2)
    engine.qpos[1, 0] += 5.0
    engine.forward()
    moved = engine.array("body_pos_w")[1, 0, 0] - engine.array("body_pos_w")[0, 0, 0]
    assert moved == pytest.approx(5.0)
    assert engine.batch.qpos[1, 0] == engine.qpos[1, 0]
    assert engine.tick == 0


@pytest.mark.parametrize("make", [torch.tensor, np.array, list])
def test_control_is_shared_or_one_row_per_env(make):
    """Control is `[nu]` for all or `[env, nu]`, from tensors, arrays and lists; None keeps the current values."""
    engine = tumbler(2)
    engine.step(make([0.5, 0.25]))
    assert engine.ctrl.tolist() == [[0.5, 0.25], [0.5, 0.25]]
    engine.step(make([[1.0, 2.0], [3.0, 4.0]]), substeps=3)
    engine.step()
    assert engine.ctrl.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert engine.tick == 5


def test_control_of_wrong_shape_names_the_expected_shape():
    """A control of the wrong shape raises an error with both shapes, and nothing moves."""
    engine = tumbler(3)
    with pytest.raises(ValueError, match=r"ctrl: got shape \(3,\), expected \(3, 2\) or \(2,\)"):
        engine.step([0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="substeps: got 0"):
        engine.step(substeps=0)
    assert engine.tick == 0


@pytest.mark.parametrize("env_ids", [[2], torch.tensor([2]), np.array([False, False, True, False])])
def test_reset_of_one_env_leaves_the_others_bit_identical(env_ids):
    """Resetting env 2 to a given state changes neither state nor derived state of any other env."""
    engine = tumbler(4)
    engine.step(torch.tensor([0.3, 0.1]), substeps=40)
    engine.refresh()
    rows = engine.batch.state.copy()
    arrays = {name: array.clone() for name, array in engine._derived.arrays.items()}
    qpos = torch.as_tensor(engine.model.qpos0).clone()
    qpos[:3] = torch.tensor([7.0, 8.0, 9.0])
    engine.reset(env_ids, {"qpos": qpos, "ctrl": 0.5})
    others = [0, 1, 3]
    assert np.array_equal(engine.batch.state[others], rows[others])
    for name, before in arrays.items():
        assert torch.equal(engine.array(name)[others], before[others]), name
    assert engine.array("body_pos_w")[2, 0].tolist() == [7.0, 8.0, 9.0]
    assert engine.qvel[2].abs().max() == 0.0 and engine.ctrl[2].tolist() == [0.5, 0.5]
    assert_equals(engine, 2, reference(engine.model, engine.batch.state[2]))
    engine.refresh()
    assert torch.equal(engine.array("body_lin_acc_w")[others], arrays["body_lin_acc_w"][others])


def test_reset_rows_follow_the_order_of_the_env_ids():
    """Values given for env ids [3, 1] are assigned to env 3 and env 1 in that order."""
    engine = tumbler(4)
    engine.reset([3, 1], {"ctrl": [[3.0, 3.0], [1.0, 1.0]]})
    assert engine.ctrl[:, 0].tolist() == [0.0, 1.0, 0.0, 3.0]


def test_reset_accepts_the_engines_own_state():
    """Values that are views of the live state have their contents from before the reset."""
    engine = tumbler(4)
    engine.reset([3, 1], {"ctrl": [[3.0, 3.0], [1.0, 1.0]]})
    engine.reset([1, 3], {"ctrl": engine.ctrl[[3, 1]]})
    engine.reset([3], {"ctrl": engine.ctrl[3]})
    assert engine.ctrl[:, 0].tolist() == [0.0, 3.0, 0.0, 1.0]


def test_reset_uses_the_requested_keyframe():
    """The default state is the model's; with `keyframe=`, by name or index, it is the keyframe's."""
    assert MujocoEngine(TUMBLER).qpos[0, 2] == 0.6
    for keyframe in ("high", 0):
        engine = MujocoEngine(TUMBLER, 2, keyframe=keyframe)
        assert engine.qpos[:, 2].tolist() == [1.5, 1.5]
        engine.step(substeps=10)
        engine.reset([0], {})
        assert engine.qpos[0, 2] == 1.5 and engine.qpos[1, 2] != 1.5
    with pytest.raises(UnknownNameError, match="Did you mean 'high'"):
        MujocoEngine(TUMBLER, keyframe="hihg")


def test_reset_refuses_invalid_values_before_any_change():
    """Wrong ids, keys and shapes are errors that leave the state unchanged."""
    engine = tumbler(2)
    engine.step(substeps=5)
    before = engine.batch.state.copy()
    with pytest.raises(UnknownNameError, match=r"unknown state 'qpso'. Did you mean 'qpos'"):
        engine.reset([0], {"qpso": 0.0})
    with pytest.raises(ValueError, match=r"qvel: got values of shape \(3,\), expected \(1, 13\)"):
        engine.reset([0], {"qvel": [0.0, 0.0, 0.0]})
    for ids in ([2], [-1], [0, 0], [0.5], np.array([True])):
        with pytest.raises(ValueError, match="env_ids: got"):
            engine.reset(ids, {})
    assert np.array_equal(engine.batch.state, before)


@pytest.mark.parametrize("fresh", [True, False])
def test_a_restored_state_resumes_bit_identically(fresh):
    """200 steps at once end in the same bits as 100 steps, a save, a load in a fresh engine, and 100 more."""
    whole, first, second = (tumbler(3, fresh=fresh) for _ in range(3))
    for engine in (whole, first):
        engine.gravity[1, 2] = -3.0
    inputs = controls(200, 3)
    for ctrl in inputs:
        whole.step(ctrl)
        whole.refresh()
    for ctrl in inputs[:100]:
        first.step(ctrl)
    saved = first.state()
    first.step(substeps=7)
    second.load_state(saved)
    assert (second.tick, second.lag) == (100, 0 if fresh else 1)
    for name, array in second._derived.arrays.items():
        assert torch.equal(array, saved["arrays"][name]), name
    for ctrl in inputs[100:]:
        second.step(ctrl)
    second.refresh()
    assert second.tick == whole.tick and np.array_equal(second.batch.state, whole.batch.state)
    for name in whole._derived.arrays:
        assert torch.equal(second.array(name), whole.array(name)), name


def test_a_state_of_another_model_is_refused():
    """A state of different sizes raises an error that states them."""
    with pytest.raises(ValueError, match=r"got state of shape \(2, \d+\), expected \(3, \d+\)"):
        tumbler(3).load_state(tumbler(2).state())


def test_per_env_gravity_acts_and_is_reported():
    """An env with its own gravity falls accordingly, gravity_w reports it, and a reset keeps it."""
    xml = "<mujoco><worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
    engine = MujocoEngine(xml, 3)
    engine.prepare(wanted())
    engine.gravity[1] = torch.tensor([0.0, 0.0, -1.62])
    engine.gravity[2] = 0.0
    engine.magnetic[2] = torch.tensor([1.0, 2.0, 3.0])
    engine.step(substeps=100)
    engine.refresh()
    assert engine.qvel[:, 2].tolist() == pytest.approx([-9.81 * 0.2, -1.62 * 0.2, 0.0])
    assert engine.array("gravity_w")[:, 2].tolist() == pytest.approx([-9.81, -1.62, 0.0])
    assert engine.array("body_lin_acc_w")[:, 0, 2].tolist() == pytest.approx([-9.81, -1.62, 0.0])
    assert engine.array("magnetic_w").tolist()[1:] == [pytest.approx([0.0, -0.5, 0.0]), [1.0, 2.0, 3.0]]
    engine.reset(None, {})
    assert engine.array("gravity_w")[1, 2] == pytest.approx(-1.62)


@pytest.mark.filterwarnings("ignore::sensorium.errors.NonFiniteStateWarning")
def test_diverged_env_is_reported_once_and_others_continue(tmp_path, monkeypatch):
    """A state that becomes NaN gives one warning with env and tick, until that env is reset."""
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log to the working directory
    engine, calm = tumbler(4), tumbler(4)
    engine.qvel[2, 0] = float("nan")
    with pytest.warns(NonFiniteStateWarning, match="env 2 became NaN.* by tick 3 and MuJoCo reset it"):
        engine.step(substeps=3)
    assert engine.diverged.tolist() == [False, False, True, False]
    calm.step(substeps=3)
    assert np.array_equal(engine.batch.state[[0, 1, 3]], calm.batch.state[[0, 1, 3]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.qvel[2, 0] = float("nan")
        engine.step()
    engine.reset([2], {})
    assert not engine.diverged.any()
    engine.qvel[2, 0] = float("nan")
    with pytest.warns(NonFiniteStateWarning, match="env 2"):
        engine.step()


# Names and frames


def test_names_are_in_model_order_and_unnamed_elements_have_one():
    """Names list the elements that can be mounted on; one without a name is listed by its kind and number."""
    engine = MujocoEngine(TUMBLER)
    assert engine.names("body") == (
        "trunk", "thigh", "shank", "toe", "body_5", "post", "cap", "arm", "hand", "lamp",
    )  # fmt: skip
    assert engine.names("joint") == ("root", "hip", "knee", "tail", "swing", "dangle")
    assert engine.names("geom") == ("ground", "trunk", *(f"geom_{i}" for i in range(2, 11)))
    assert engine.names("site") == ("imu",)
    assert engine.names("camera") == ("front", "chase")
    assert engine.names("actuator") == ("hip", "knee")
    assert engine.entities == () and engine.keyframes == ("high",) and engine.nu == 2
    assert engine.ctrl_range.tolist() == [[-1.0, 1.0], [-float("inf"), float("inf")]]


def test_unnamed_geoms_have_the_same_names_on_every_way_to_an_engine():
    """A contact belongs to the geom of this name in the compiled model."""
    xml = """<mujoco><option gravity="0 0 0"/><worldbody>
      <body name="base"><freejoint/><geom size=".1"/><body pos="1 0 0"><joint/><geom size=".1"/></body>
      <body pos="0 1 0"><geom size=".1"/></body></body><body pos="1.15 0 0"><geom size=".1"/></body>
      </worldbody></mujoco>"""
    touch = sn.ContactSensorCfg(name="c", primary=sn.ContactMatch(mode="geom", pattern="geom_.*"), fields=("found",))
    spec = mujoco.MjSpec.from_string(xml)
    model = sn.prepare(spec, [touch]).compile()
    for engine in (MujocoEngine(xml), MujocoEngine.from_mj(model, mujoco.MjData(model))):
        scene = sn.Scene(engine, [touch])
        assert scene["c"].primary_names == ["geom_0", "geom_1", "geom_2", "geom_3"]
        assert scene["c"].data.found.tolist() == [[0.0, 1.0, 0.0, 1.0]]
    sealed = MujocoEngine(mujoco.MjModel.from_xml_string(xml))
    for kind in ("body", "joint", "geom"):
        assert sealed.names(kind) == engine.names(kind)
    pair = MujocoEngine.compose({"left": xml, "right": xml})
    for kind, count in (("body", 4), ("joint", 2), ("geom", 4)):
        sides = [name.partition("/")[0] for name in pair.names(kind)]
        assert [sides.count(side) for side in ("left", "right")] == [count, count]


def test_frames_have_the_models_poses():
    """A frame names the body that it is fixed to and its offset there."""
    engine = MujocoEngine(TUMBLER)
    trunk, thigh = 0, 1
    assert engine.frame("body", "trunk") == FrameOnBody(trunk)
    assert engine.frame("body", "world") == FrameOnBody(-1)
    assert engine.frame("geom", "ground").body == -1
    site = engine.frame("site", "imu")
    assert (site.body, site.pos) == (trunk, (0.1, 0.02, 0.03)) and site.quat == pytest.approx((0.8, 0, 0.6, 0))
    assert engine.frame("joint", "hip") == FrameOnBody(thigh, (0.0, 0.0, 0.01))
    assert engine.frame("actuator", "hip") == engine.frame("joint", "hip")
    assert engine.frame("camera", "front").quat == pytest.approx((0.5, 0.5, -0.5, -0.5))
    with pytest.raises(ModelError, match="camera 'chase' is not fixed"):
        engine.frame("camera", "chase")
    with pytest.raises(UnknownNameError, match=r"unknown site 'imus'.*Did you mean 'imu'.*Known: imu"):
        engine.frame("site", "imus")


def test_repr_does_not_compile_the_model():
    """The repr names model, environments, time step, bodies and device, and does not modify the model."""
    engine = MujocoEngine(TUMBLER, 4)
    text = "MujocoEngine('tumbler', num_envs=4, dt=0.002 s, bodies=10, device='cpu', fresh=True, tick=0)"
    assert repr(engine) == text and engine._model is None
    engine.step()
    assert repr(engine) == text.replace("tick=0", "tick=1")


# Composing


def test_compose_puts_each_entity_under_its_prefix():
    """Entities keep their joints and get `name/` prefixes; the first entity's options apply."""
    box = mujoco.MjSpec.from_string(
        "<mujoco><option timestep='.01'/><worldbody><body name='b'><freejoint name='f'/><geom size='.1'/></body>"
        "</worldbody></mujoco>"
    )
    before = box.to_xml()
    with pytest.warns(SensoriumWarning, match=r"timestep 0.01 .here 0.002.*first entity, 'robot'") as caught:
        engine = MujocoEngine.compose(
            {"robot": TUMBLER, "red": (box, (3, 0, 1)), "blue": (box, (4, 0, 1), (0, 0, 0, 1))}, num_envs=2
        )
    assert [str(warning.message).split("'")[1] for warning in caught] == ["red", "blue"]
    assert engine.dt == 0.002
    assert engine.entities == ("robot", "red", "blue")
    assert engine.names("body")[0] == "robot/trunk" and engine.names("body")[-2:] == ("red/b", "blue/b")
    assert engine.keyframes == ("robot/high",)
    engine.prepare(wanted(BODY_POSE, GRAVITY))
    engine.refresh()
    assert engine.array("body_pos_w")[1, -2:].tolist() == [[3, 0, 1], [4, 0, 1]]
    assert engine.array("body_quat_w")[0, -1].tolist() == [0, 0, 0, 1]
    assert box.to_xml() == before
    engine.step(substeps=20)
    assert engine.qvel[0, -6 + 2] < -0.3, "the box should fall"


def test_terrain_becomes_the_world_and_sets_options(tmp_path, monkeypatch):
    """The terrain has no prefix, its time step and gravity apply, and MuJoCo logs nothing about it."""
    monkeypatch.chdir(tmp_path)
    terrain = (
        "<mujoco><option timestep='.004' gravity='0 0 -1'/><worldbody><geom name='hill' size='1'/></worldbody></mujoco>"
    )
    with pytest.warns(SensoriumWarning, match=r"'robot' has options that are not used: integrator.*the terrain"):
        engine = MujocoEngine.compose({"robot": str(TUMBLER)}, terrain)
    assert engine.dt == 0.004 and engine.names("geom")[:4] == ("hill", "robot/ground", "robot/trunk", "robot/geom_2")
    assert engine.gravity.tolist() == [[0, 0, -1]]
    assert not list(tmp_path.iterdir()), "MuJoCo writes its log where it runs"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('timestep="0.005"', r"timestep 0.005 \(here 0.002\)"),
        ('gravity="0 0 -1.6"', r"gravity 0 0 -1.6 \(here 0 0 -9.81\)"),
        ('integrator="implicitfast"', r"integrator implicitfast \(here euler\)"),
        ('><flag sleep="enable" contact="disable"/></option', r"disableflags contact \(here none\), enableflags sleep"),
    ],
)
def test_unused_options_of_an_entity_are_named(options, message):
    """A terrain without options has MuJoCo's defaults; an entity's differing options cause a warning with both
    values.
    """
    ball = '<mujoco><option {}/><worldbody><body name="b"><freejoint/><geom size=".1"/></body></worldbody></mujoco>'
    terrain = '<mujoco><worldbody><geom type="plane" size="1 1 .1"/></worldbody></mujoco>'
    model = ball.format(options) if "flag" not in options else ball.replace(" {}/>", options + ">")
    with pytest.warns(
        SensoriumWarning, match=f"compose: the entity 'ball' has options that are not used: {message}.*the terrain"
    ):
        MujocoEngine.compose({"ball": model}, terrain)
    same = terrain.replace("<worldbody>", model.split("<worldbody>")[0].removeprefix("<mujoco>") + "<worldbody>", 1)
    MujocoEngine.compose({"ball": model, "other": ball.format("")}, same)
    MujocoEngine.compose({"ball": ball.format("")}, same)


def test_compose_error_names_the_faulty_entity():
    """Errors in compose name the entity concerned."""
    with pytest.raises(ModelError, match=r"entity 'box': model file 'nothing.xml' does not exist"):
        MujocoEngine.compose({"robot": TUMBLER, "box": "nothing.xml"})
    with pytest.raises(ModelError, match="entity name 'a/b' is invalid"):
        MujocoEngine.compose({"a/b": TUMBLER})
    with pytest.raises(ModelError, match=r"entity 'robot': got .*expected model, \(model, pos\)"):
        MujocoEngine.compose({"robot": (TUMBLER, (1, 2))})
    with pytest.raises(ModelError, match="at least one entity"):
        MujocoEngine.compose({})


# Requirements and the model


def test_model_is_compiled_once_with_the_sensors_requirements():
    """A hidden accelerometer makes MuJoCo compute accelerations; neither names nor the caller's spec include it."""
    spec = mujoco.MjSpec.from_file(str(TUMBLER))
    before = spec.to_xml()
    engine = MujocoEngine(spec)
    assert engine._model is None
    engine.prepare(wanted(BODY_ACCELERATION))
    assert engine.model.nsensor == 1 and engine.names("site") == ("imu",)
    assert spec.to_xml() == before
    engine.prepare(wanted(BODY_ACCELERATION, BODY_POSE))
    assert engine.model.nsensor == 1


def test_model_that_computes_accelerations_gets_no_extra_sensors():
    """A model's existing accelerometer suffices, unless it samples at intervals."""
    text = TUMBLER.read_text()
    own = text.replace("<keyframe>", "<sensor><accelerometer site='imu'/></sensor><keyframe>")
    now_and_then = own.replace("site='imu'/>", "site='imu' interval='0.02' nsample='2'/>")
    for xml, sensors in ((own, 1), (now_and_then, 2)):
        engine = MujocoEngine(xml)
        engine.prepare(wanted(BODY_ACCELERATION))
        assert engine.model.nsensor == sensors
    assert MujocoEngine(mujoco.MjModel.from_xml_string(own)).supports(BODY_ACCELERATION) is None
    assert MujocoEngine(mujoco.MjModel.from_xml_string(now_and_then)).supports(BODY_ACCELERATION) is not None


def test_recompilation_before_the_first_tick_keeps_written_state():
    """State written before the sensors were known is kept, and previously returned tensors show the new state."""
    engine = MujocoEngine(TUMBLER, 2)
    qpos, gravity = engine.qpos, engine.gravity
    qpos[1, 2] = 2.5
    gravity[1, 2] = -5.0
    engine.ctrl[:, 0] = 0.7
    engine.mocap_pos[0, 0] = 4.0
    engine.prepare(wanted(BODY_POSE, GRAVITY))
    position = engine.array("body_pos_w")
    engine.prepare(wanted(BODY_ACCELERATION))
    engine.refresh()
    assert position[1, 0, 2] == 2.5 and engine.array("body_pos_w") is position
    assert engine.array("gravity_w")[1, 2] == -5.0
    assert engine.ctrl[:, 0].tolist() == [0.7, 0.7] and engine.mocap_pos[0, 0, 0] == 4.0
    qpos[1, 2] = 3.5
    engine.forward()
    assert position[1, 0, 2] == 3.5


def test_model_change_after_the_first_tick_is_refused_and_suggests_reserve():
    """Changes to the model are rejected once time has passed; existing quantities are granted."""
    engine = tumbler(requirements=(BODY_POSE,))
    engine.step()
    with pytest.raises(UnsupportedError, match=r"'imu' requires BODY_ACCELERATION.*after 1 ticks.*reserve="):
        engine.prepare({BODY_ACCELERATION: "imu"})
    with pytest.raises(UnsupportedError, match="reserve="):
        engine.prepare({MODEL_ELEMENTS(lambda spec: None): "skin"})
    assert engine.prepared == {BODY_POSE}
    engine.prepare({BODY_VELOCITY: "imu"})
    engine.refresh()
    assert engine.array("body_lin_vel_w").any()


def test_sealed_model_error_explains_preparation():
    """An MjModel cannot be changed: the error names sn.prepare, and a spec prepared with it is accepted."""
    spec = mujoco.MjSpec.from_file(str(TUMBLER))
    engine = MujocoEngine(spec.copy().compile())
    with pytest.raises(UnsupportedError, match=r"MujocoEngine|mujoco.*sn\.prepare\(spec, sensors\)"):
        engine.prepare({BODY_ACCELERATION: "imu"})
    plugin = MODEL_ELEMENTS(add_beacon)
    with pytest.raises(UnsupportedError, match=r"sn\.prepare\(spec, sensors\)"):
        engine.prepare({plugin: "beacon"})
    prepare_spec(spec, [BODY_ACCELERATION, plugin])
    sealed = MujocoEngine(spec.compile())
    sealed.prepare({BODY_ACCELERATION: "imu", plugin: "beacon"})
    sealed.refresh()
    assert sealed.array("body_lin_acc_w")[0, 0] == pytest.approx([0, 0, -9.81], abs=1e-4)


def test_model_with_disabled_sensors_provides_no_accelerations():
    """With the sensor flag off MuJoCo computes no sensors, so the engine rejects the request instead of returning
    zeros.
    """
    body = "<worldbody><body><geom size='.1'/></body></worldbody>"
    xml = f"<mujoco><option><flag sensor='disable'/></option>{body}</mujoco>"
    assert "sensor=" in str(MujocoEngine(xml).supports(BODY_ACCELERATION))


def test_unsupported_requirement_is_refused_by_name():
    """An unknown requirement is rejected with sensor, requirement and engine in the message."""
    with pytest.raises(UnsupportedError, match="sensor 'enc' requires SMELL, which engine 'mujoco'"):
        MujocoEngine(TUMBLER).prepare({Requirement("SMELL"): "enc"})


def add_beacon(spec):
    spec.worldbody.add_site(name="beacon")
    spec.body("trunk").add_site(name="sensorium/beacon")


def test_model_elements_are_added_once_and_stay_hidden():
    """A plugin's function runs once for any number of sensors; names with the reserved prefix are found but not
    listed.
    """
    calls = []

    def add(spec):
        calls.append(spec)
        add_beacon(spec)

    engine = MujocoEngine(TUMBLER)
    engine.prepare({MODEL_ELEMENTS(add): "one"})
    engine.prepare({MODEL_ELEMENTS(add): "two", BODY_POSE: "two"})
    assert len(calls) == 1
    assert engine.names("site") == ("beacon", "imu")
    assert engine.frame("site", "sensorium/beacon").body == 0
    assert not any(hidden(name) for kind in ("body", "site", "geom") for name in engine.names(kind))


def test_hidden_bodies_come_last_and_do_not_shift_the_others():
    """A hidden body's row of derived state comes after all others, so rows still follow `names("body")`."""

    def add(spec):
        spec.worldbody.add_body(name="sensorium/rig", pos=[0, 0, 7], mocap=True)
        spec.body("trunk").add_body(name="sensorium/plate", pos=[0, 0, 1])

    engine = MujocoEngine(TUMBLER)
    names = engine.names("body")
    engine.prepare({MODEL_ELEMENTS(add): "skin", BODY_POSE: "skin"})
    engine.refresh()
    assert engine.names("body") == names
    position = engine.array("body_pos_w")[0]
    assert position.shape == (12, 3)
    assert position[engine.frame("body", "sensorium/rig").body].tolist() == [0, 0, 7]
    assert position[names.index("post")].tolist() == [1, 0, 0.5]


def test_elements_that_resize_written_state_are_refused():
    """If a plugin adds joints, previously written state cannot be carried over, and the error says so."""

    def add(spec):
        body = spec.body("trunk").add_body()
        body.add_joint(name="extra")
        body.add_geom(size=[0.1, 0, 0])

    engine = MujocoEngine(TUMBLER.read_text().split("<keyframe>")[0] + "</mujoco>")
    qpos = engine.qpos
    engine.prepare({MODEL_ELEMENTS(add): "skin"})
    assert qpos.shape == (1, 16)
    written = MujocoEngine(TUMBLER.read_text().split("<keyframe>")[0] + "</mujoco>")
    written.qpos[0, 0] = 1.0
    with pytest.raises(ModelError, match="changed the size of qpos, qvel, which was written before"):
        written.prepare({MODEL_ELEMENTS(add): "skin"})


def test_late_requirements_are_readable_immediately():
    """A sensor that needs no model change may be added after many ticks, fresh or not, and is current from then on."""
    for fresh in (True, False):
        engine = tumbler(2, requirements=(BODY_POSE,), fresh=fresh)
        engine.step(substeps=30)
        engine.refresh()
        engine.prepare(wanted(BODY_VELOCITY, GRAVITY, MAGNETIC))
        engine.refresh()
        assert engine.lag == 0
        expected = reference(engine.model, engine.batch.state[1])
        assert_equals(engine, 1, {name: expected[name] for name in ("body_pos_w", "body_lin_vel_w", "body_ang_vel_w")})


def test_partial_reset_of_an_unfresh_engine_keeps_other_envs_one_tick_old():
    """With fresh=False a reset updates only the reset envs, and after the next step all lag again."""
    engine, twin = tumbler(3, fresh=False), tumbler(3, fresh=False)
    for each in (engine, twin):
        each.step(substeps=30)
    engine.reset([1], {})
    engine.refresh()
    twin.refresh()
    for name, array in engine._derived.arrays.items():
        assert torch.equal(array[[0, 2]], twin.array(name)[[0, 2]]), name
    assert_equals(engine, 1, reference(engine.model, engine.batch.state[1]))


def test_prepare_spec_is_idempotent():
    """Preparation is idempotent; two functions of one factory with different values count as two."""

    def factory(name):
        return MODEL_ELEMENTS(lambda spec: spec.worldbody.add_site(name=name) and None)

    spec = mujoco.MjSpec.from_file(str(TUMBLER))
    needs = [BODY_ACCELERATION, BODY_POSE, factory("a"), factory("b")]
    prepare_spec(spec, needs)
    names = {element.name for element in (*spec.sites, *spec.sensors)}
    assert {"a", "b", "sensorium/acceleration"} <= names
    added = spec.to_xml()
    prepare_spec(spec, needs)
    assert spec.to_xml() == added
    assert spec.compile().nsite == 4


def test_failing_model_function_is_named():
    """An error in a plugin's function names the function."""

    def broken(spec):
        raise KeyError("torso")

    with pytest.raises(ModelError, match=r"broken \(MODEL_ELEMENTS\) failed on the MjSpec: KeyError: 'torso'"):
        MujocoEngine(TUMBLER).prepare({MODEL_ELEMENTS(broken): "skin"})


# Messages


def test_missing_file_error_suggests_similar_files(tmp_path):
    """A missing model file raises an error that lists the folder's files and the closest names."""
    shutil.copy(TUMBLER, tmp_path / "quadruped.xml")
    with pytest.raises(ModelError, match=r"quadrupde.xml' does not exist. Did you mean 'quadruped.xml'\?"):
        MujocoEngine(tmp_path / "quadrupde.xml")
    with pytest.raises(ModelError, match="nor does its folder"):
        MujocoEngine(tmp_path / "nowhere" / "robot.xml")
    with pytest.raises(ModelError, match=r"is a folder: name the file in it. Model files in .*quadruped.xml"):
        MujocoEngine(tmp_path)


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        (
            "<mujoco><worldbody><geom type='blob'/></worldbody></mujoco>",
            "cannot be read: XML Error: invalid keyword: 'blob'",
        ),
        ("<mujoco><worldbody>", "the XML text cannot be read: XML parse error"),
    ],
)
def test_broken_model_raises_one_error_with_the_reason(tmp_path, xml, message):
    """A broken model raises a single error with MuJoCo's reason, for files and for text."""
    with pytest.raises(ModelError, match=message):
        MujocoEngine(xml)
    (tmp_path / "robot.xml").write_text(xml)
    with pytest.raises(ModelError, match=r"robot.xml' cannot be read"):
        MujocoEngine(tmp_path / "robot.xml")


def test_compile_error_gives_the_reason():
    """A model that parses but does not compile raises its error at first use."""
    engine = MujocoEngine("<mujoco><worldbody><body><freejoint/></body></worldbody></mujoco>")
    with pytest.raises(ModelError, match="the XML text cannot be compiled: mass and inertia of moving bodies"):
        engine.prepare(wanted(BODY_POSE))


def test_wrong_types_are_refused_with_the_accepted_ones():
    """Any object that is not a model is rejected by type, and the error for MjData refers to from_mj."""
    with pytest.raises(
        ModelError, match=r"a int .* is not a model: give a path to MJCF or URDF, XML text, or an MjSpec"
    ):
        MujocoEngine(5)
    model = mujoco.MjModel.from_xml_path(str(TUMBLER))
    with pytest.raises(ModelError, match=r"MujocoEngine.from_mj"):
        MujocoEngine(mujoco.MjData(model))
    with pytest.raises(ValueError, match="num_envs: got 0"):
        MujocoEngine(TUMBLER, 0)


def test_old_mujoco_is_detected(monkeypatch):
    """Without mujoco.batch the error names the version that has it and the alternative."""
    monkeypatch.setitem(__import__("sys").modules, "mujoco.batch", None)
    monkeypatch.delattr(mujoco, "batch", raising=False)
    with pytest.raises(MissingDependencyError, match=r"3\.17 or newer.*from_mj"):
        MujocoEngine(TUMBLER)


# Live MjModel and MjData


def snapshot(model, data):
    state = np.empty(mujoco.mj_stateSize(model, INTEGRATION))
    mujoco.mj_getState(model, data, state, INTEGRATION)
    fields = ("qacc", "sensordata", "xpos", "xquat", "cvel", "cacc", "subtree_com", "qfrc_constraint", "efc_force")
    return [state, *(np.copy(getattr(data, name)) for name in fields)]


def live(count, **options):
    spec = mujoco.MjSpec.from_file(str(TUMBLER))
    prepare_spec(spec, ALL)
    model = spec.compile()
    datas = [mujoco.MjData(model) for _ in range(count)]
    throw(torch.from_numpy(datas[0].qvel)[None])
    for i, data in enumerate(datas[1:], 1):
        data.qvel[:] = datas[0].qvel * (1 - 0.1 * i)
    engine = MujocoEngine.from_mj(model, datas if count > 1 else datas[0], **options)
    engine.prepare(wanted())
    return model, datas, engine


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("count", [1, 3])
def test_reading_does_not_change_the_owners_data(fresh, count):
    """Every bit of the owner's MjData is the same with and without sensors that read at each tick."""
    model, datas, engine = live(count, fresh=fresh)
    _, twins, _ = live(count)
    for _ in range(100):
        for data, twin in zip(datas, twins, strict=True):
            mujoco.mj_step(model, data)
            mujoco.mj_step(model, twin)
        engine.count_ticks(1)
        engine.refresh()
    engine.forward()
    assert engine.tick == 100
    for data, twin in zip(datas, twins, strict=True):
        for mine, theirs in zip(snapshot(model, data), snapshot(model, twin), strict=True):
            assert np.array_equal(mine, theirs)


def test_a_live_engine_reads_the_state_after_the_last_step():
    """Derived state of wrapped data equals MuJoCo's for the current state; with fresh=False, for one tick before.

    The owner may call mj_forward before the first read.
    """
    model, datas, engine = live(2)
    _, others, stale = live(2, fresh=False)
    for _ in range(80):
        for data, other in zip(datas, others, strict=True):
            mujoco.mj_step(model, data)
            previous = snapshot(model, other)[0]
            mujoco.mj_step(model, other)
        for each in (engine, stale):
            each.count_ticks(1)
    mujoco.mj_forward(model, others[1])
    for each in (engine, stale):
        each.refresh()
    for env, data in enumerate(datas):
        assert_equals(engine, env, reference(model, snapshot(model, data)[0]))
    assert_equals(stale, 1, reference(model, previous))
    assert (engine.lag, stale.lag) == (0, 1)
    stale.forward()
    assert stale.lag == 0
    assert_equals(stale, 1, reference(model, snapshot(model, others[1])[0]))


def test_a_live_engine_equals_the_stepping_engine():
    """Wrapped data stepped manually and the engine's own environments give the same derived bits."""
    own = tumbler(1, model=TUMBLER)
    model, (data,), engine = live(1)
    for _ in range(50):
        mujoco.mj_step(model, data)
        engine.count_ticks(1)
        own.step()
    engine.refresh()
    own.refresh()
    for name in own._derived.arrays:
        assert torch.equal(own.array(name), engine.array(name)), name


def test_fresh_live_accelerations_need_no_preparation():
    """The engine's own forward computation gives accelerations for any model; those read from mj_step require a
    sensor.
    """
    model = mujoco.MjModel.from_xml_path(str(TUMBLER))
    data = mujoco.MjData(model)
    engine = MujocoEngine.from_mj(model, data)
    engine.prepare(wanted(BODY_ACCELERATION))
    engine.refresh()
    assert engine.array("body_lin_acc_w")[0, 0] == pytest.approx([0, 0, -9.81], abs=1e-4)
    with pytest.raises(UnsupportedError, match=r"use fresh=True, or call sn\.prepare"):
        MujocoEngine.from_mj(model, data, fresh=False).prepare({BODY_ACCELERATION: "imu"})
    with pytest.raises(UnsupportedError, match=r"sn\.prepare\(spec, sensors\)"):
        engine.prepare({MODEL_ELEMENTS(add_beacon): "beacon"})


def test_the_owner_steps_and_resets():
    """A live engine rejects steps and state writes, and reads the owner's reset."""
    model, (data,), engine = live(1)
    with pytest.raises(ScheduleError, match=r"mj_step\(model, data\), then scene\.update"):
        engine.step()
    with pytest.raises(ScheduleError, match="set qpos in your data"):
        engine.reset(None, {"qpos": 0.0})
    assert not engine.owns_time
    engine.qpos[0, 0] = 3.0
    assert data.qpos[0] == 3.0, "with one env the state is the owner's own array"
    data.qpos[2] = 9.0
    engine.reset(torch.tensor([0]), {})
    assert engine.array("body_pos_w")[0, 0].tolist() == [3.0, 0.0, 9.0]
    data.qvel[:] = 0.0
    model.opt.gravity[2] = -1.0
    engine.forward()
    assert engine.array("gravity_w").tolist() == [[0, 0, -1]]
    assert engine.array("body_lin_acc_w")[0, 0, 2] == pytest.approx(-1.0, abs=1e-4)


def test_reset_of_live_data_applies_even_if_the_last_tick_was_not_read():
    """With fresh=False a reset env has its new state at once, whether or not the others were read since their step."""
    model, datas, engine = live(2, fresh=False)
    for data in datas:
        mujoco.mj_step(model, data)
    others = datas[1].xpos[1].astype(np.float32)
    engine.count_ticks(1)
    mujoco.mj_resetData(model, datas[0])
    datas[0].qpos[:3] = (3.0, 0.0, 9.0)
    engine.reset(torch.tensor([0]))
    engine.refresh()
    assert engine.array("body_pos_w")[0, 0].tolist() == [3.0, 0.0, 9.0]
    assert np.array_equal(engine.array("body_pos_w")[1, 0].numpy(), others)
    assert engine.lag == 0


def test_a_control_callback_is_not_called_by_sensors():
    """A stateful control callback is called only in the owner's own steps."""
    model, (data,), engine = live(1)
    calls = []
    mujoco.set_mjcb_control(lambda m, d: calls.append(1))
    try:
        mujoco.mj_step(model, data)
        count = len(calls)
        engine.count_ticks(1)
        engine.refresh()
        assert len(calls) == count == 1
        mujoco.mj_step(model, data)
        assert len(calls) == 2
    finally:
        mujoco.set_mjcb_control(None)


def test_from_mj_refuses_mismatched_objects():
    """Wrong types, foreign data and repeated data are rejected with the reason."""
    model = mujoco.MjModel.from_xml_path(str(TUMBLER))
    data = mujoco.MjData(model)
    other = mujoco.MjData(mujoco.MjModel.from_xml_string("<mujoco/>"))
    with pytest.raises(ModelError, match=r"expected a compiled mujoco\.MjModel"):
        MujocoEngine.from_mj(str(TUMBLER), data)
    with pytest.raises(ModelError, match=r"got 5, expected a mujoco\.MjData"):
        MujocoEngine.from_mj(model, 5)
    with pytest.raises(ModelError, match="sizes of an MjData differ from the model"):
        MujocoEngine.from_mj(model, other)
    with pytest.raises(ModelError, match=r"one distinct mujoco.MjData for each"):
        MujocoEngine.from_mj(model, [data, data])


def test_a_live_engine_restores_its_readings():
    """Tick and derived arrays of a wrapped engine are restored; the physics belongs to its owner."""
    model, (data,), engine = live(1)
    mujoco.mj_step(model, data)
    engine.count_ticks(1)
    saved = engine.state()
    mujoco.mj_step(model, data)
    engine.count_ticks(1)
    engine.refresh()
    engine.load_state(saved)
    engine.refresh()
    assert engine.tick == 1
    assert torch.equal(engine.array("body_lin_acc_w"), saved["arrays"]["body_lin_acc_w"])


@pytest.mark.parametrize("envs", [1, 2])
@pytest.mark.parametrize("field", ["geom_size", "geom_pos"])
def test_shapes_that_change_alike_in_all_environments_are_refused(field: str, envs: int) -> None:
    """Rays hit the shapes as they were when the sensors were built."""
    drone = "<body pos='0 0 3'><joint/><geom size='.1'/></body>"
    xml = f"<mujoco><worldbody><geom name='rock' size='.4'/>{drone}</worldbody></mujoco>"
    engine = sn.MujocoEngine(xml, envs)
    engine.batch.expand(field)[:] += 0.1  # before the sensors are built
    pattern = sn.patterns.GridPatternCfg(size=(0.0, 0.0))
    scene = sn.Scene(engine, [sn.RayCasterCfg(name="scan", body="body_1", pattern=pattern, ray_alignment="world")])
    scene.reset()
    engine.batch.expand(field)[:] += 0.1
    with pytest.raises(ModelError, match=f"'rock' has a different {field} in env 0 than when the sensors were built"):
        scene.reset()
