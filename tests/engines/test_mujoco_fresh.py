"""Fresh derived state: states are those of mj_step, derived state that of mj_forward, and most ticks compute once."""

from __future__ import annotations

import copy
import ctypes

import mujoco
import numpy as np
import pytest
import torch
from selection import gate

from sensorium.demo import model_path
from sensorium.engines.mujoco.batch import LOOKAHEAD_FROM, LookaheadBatch
from sensorium.engines.mujoco.engine import PERSISTENT_UP_TO, MujocoEngine
from sensorium.errors import NonFiniteStateWarning
from sensorium.spec import BODY_ACCELERATION, BODY_POSE, BODY_VELOCITY, JOINT_EFFORT, JOINT_WRENCH

ACC = int(mujoco.mjtStage.mjSTAGE_ACC)
INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION
FIELDS = (
    "xpos", "xquat", "cvel", "cacc", "cfrc_int", "subtree_com", "qacc", "qfrc_actuator", "qfrc_constraint",
    "sensordata", "ncon",
)  # fmt: skip
ROOM = """<mujoco>
<option integrator="{integrator}" timestep="0.004" cone="elliptic"><flag sleep="{sleep}"/></option>
<worldbody>
  <geom name="ground" type="plane" size="9 9 .1"/>
  <body name="base" pos="0 0 .3"><freejoint/><geom name="base" size=".1 .15 .08" type="box"/><site name="imu"/>
    <body name="thigh" pos=".2 0 0">
      <joint name="hip" axis="0 1 0" damping=".1" armature=".01" frictionloss=".05"/>
      <geom type="capsule" fromto="0 0 0 .2 0 0" size=".03"/>
      <body name="shank" pos=".2 0 0"><joint name="knee" axis="0 1 0" range="-1 1" damping=".1"/>
        <geom type="capsule" fromto="0 0 0 .2 0 0" size=".03"/></body></body></body>
  <body name="ball" pos=".5 .4 .3"><freejoint/><geom name="ball" size=".1"/><site name="ball"/></body>
  <body name="bob" pos=".8 .4 .4"><joint type="ball"/><geom size=".1" pos=".1 0 0"/><site name="bob"/></body>
  <body name="crate" pos="-1 0 .1"><freejoint/><geom type="box" size=".1 .1 .1"/><site name="crate"/></body>
  <body name="hand" mocap="true" pos="0 0 2"><geom size=".02" contype="0" conaffinity="0"/></body>
</worldbody>
<equality><connect body1="ball" body2="bob" anchor="0 0 0"/><weld body1="shank" body2="hand" active="false"/></equality>
<tendon>
  <fixed name="leg"><joint joint="hip" coef="1"/><joint joint="knee" coef="-.5"/></fixed>
  <spatial springlength=".3" stiffness="20" damping="1"><site site="imu"/><site site="ball"/></spatial>
</tendon>
<actuator>
  <position joint="hip" kp="20"/>
  <general joint="knee" dyntype="filter" dynprm=".05" gainprm="3" biastype="affine" biasprm="0 -3 -.1"/>
  <motor tendon="leg" gear=".3"/><intvelocity joint="hip" kp="2" actrange="-1 1"/>
</actuator>
<sensor>
  <accelerometer site="imu"/><accelerometer site="crate"/><force site="bob"/><touch site="ball"/>
  <gyro site="imu" nsample="4" delay=".008"/><framelinacc objtype="site" objname="bob" nsample="3" interval=".012"/>
  <contact geom1="ground" data="found force pos" reduce="netforce"/>
</sensor>
</mujoco>"""
WANTED = dict.fromkeys((BODY_POSE, BODY_VELOCITY, BODY_ACCELERATION, JOINT_WRENCH, JOINT_EFFORT), "probe")


def room(integrator="implicitfast", sleep="disable"):
    return ROOM.format(integrator=integrator, sleep=sleep)


def engine_of(model, num_envs=3, **options):
    engine = MujocoEngine(model, num_envs, **options)
    engine.prepare(WANTED)
    return engine


@pytest.fixture
def few(monkeypatch):
    """Let few environments look ahead."""
    monkeypatch.setattr("sensorium.engines.mujoco.batch.LOOKAHEAD_FROM", 1)


class Twin:
    """One MjModel and one MjData for each environment, stepped by mj_step."""

    def __init__(self, engine):
        self.models = [copy.copy(engine.model) for _ in range(engine.num_envs)]
        self.datas = [mujoco.MjData(model) for model in self.models]
        self.outputs = {name: engine.batch.bind(name) for name in FIELDS}
        self.engine = engine

    def step(self, count):
        for model, data in zip(self.models, self.datas, strict=True):
            for _ in range(count):
                mujoco.mj_step(model, data)

    def write(self, field, env, values):
        """Write the state of an environment, in the engine and here."""
        self.engine.batch.bind(field)[env] = values
        getattr(self.datas[env], field)[:] = values

    def check(self):
        """Compare the states bit for bit, and the derived state with that of mj_forward on copies."""
        batch = self.engine.batch
        row = np.empty(batch.nstate)
        for env, (model, data) in enumerate(zip(self.models, self.datas, strict=True)):
            mujoco.mj_getState(model, data, row, INTEGRATION)
            assert row.tobytes() == batch.state[env].tobytes()
            current = copy.copy(data)
            mujoco.mj_forward(model, current)
            for name, values in self.outputs.items():
                assert np.asarray(getattr(current, name), values.dtype).tobytes() == values[env].tobytes(), name


def disturb(twin, random, tick):
    """Write state, model fields, controls and resets at random."""
    engine, envs = twin.engine, len(twin.datas)
    env = int(random.integers(envs))
    choice = int(random.integers(40))
    nv, nbody = engine.model.nv, engine.model.nbody
    if choice == 0:
        twin.write("qvel", env, random.normal(size=nv))
    elif choice == 1:
        twin.write("xfrc_applied", env, 3.0 * random.normal(size=(nbody, 6)))
    elif choice == 2 and engine.model.nmocap:
        twin.write("mocap_pos", env, random.normal(size=(1, 3)))
    elif choice == 3:
        mujoco.mj_resetData(twin.models[env], twin.datas[env])
        qvel = random.normal(size=(1, nv))
        twin.datas[env].qvel[:] = qvel
        engine.reset([env], {"qvel": qvel})
    elif choice == 4:
        friction = random.uniform(0.2, 1.5)
        engine.batch.expand("geom_friction")[env, :, 0] = twin.models[env].geom_friction[:, 0] = friction
    elif choice == 5:
        engine.gravity[env, 0] = twin.models[env].opt.gravity[0] = random.normal()
    elif choice == 6:
        twin.write("ctrl", env, random.normal(size=engine.nu))
    elif choice == 7 and engine.model.neq:
        on = [1, int(random.integers(2))]
        engine.batch.bind("eq_active")[env] = on
        twin.datas[env].eq_active[:] = on
    elif choice == 8:
        saved = engine.state()
        engine.qpos.zero_()
        engine.load_state(saved)
    elif choice == 9:
        engine.forward()
    elif choice == 10:
        twin.datas[env].qvel[0] = np.nan
        engine.qvel[env, 0] = torch.nan


CHOSEN = [
    ("room", "Euler", "disable", False, 5, 160), ("room", "implicit", "disable", True, 5, 160),
    ("room", "implicitfast", "enable", True, 5, 160), ("quadruped", "implicitfast", "disable", False, 5, 160),
    ("room", "discrete", "disable", True, 5, 160), ("room", "RK4", "disable", False, 5, 160),
    ("room", "implicitfast", "disable", False, 1, 160),
]  # fmt: skip
LONG = [
    (*case, 10_000)
    for integrator in ("Euler", "implicit", "implicitfast")
    for case in (
        ("room", integrator, "disable", False, 5),
        ("room", integrator, "disable", True, 1),
        ("room", integrator, "enable", True, 5),
        ("quadruped", integrator, "disable", True, 5),
        ("quadruped", integrator, "disable", False, 2),
    )
]


@pytest.mark.parametrize("case", gate([*CHOSEN, *LONG], CHOSEN), ids=str)
@pytest.mark.filterwarnings("ignore:the state of env::")
@pytest.mark.usefixtures("few")
def test_states_and_derived_state_equal_those_of_mj_step_and_mj_forward(monkeypatch, tmp_path, case):
    name, integrator, sleep, persistent, every, ticks = case
    monkeypatch.chdir(tmp_path)  # MuJoCo's log of diverged states
    if name == "room":
        model = room(integrator, sleep)
    else:
        model = mujoco.MjSpec.from_file(str(model_path()))
        model.option.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator.upper()}")
    monkeypatch.setattr("sensorium.engines.mujoco.engine.PERSISTENT_UP_TO", 3 if persistent else 0)
    engine = engine_of(model, 3, threads=2)
    twin, random = Twin(engine), np.random.default_rng(ticks)
    tick, home = 0, engine.ctrl.clone().numpy()
    while tick < ticks:
        if tick % every == 0:
            ctrl = home + 0.3 * random.normal(size=(3, engine.nu))
            for data, values in zip(twin.datas, ctrl, strict=True):
                data.ctrl[:] = values
        else:
            ctrl = None
        count = int(random.integers(1, 4)) if random.integers(10) == 0 else 1
        engine.step(ctrl, count)
        twin.step(count)
        if random.random() < 0.8:
            engine.refresh()
            twin.check()
            disturb(twin, random, tick)
        tick += count


class Forwards:
    """Count of environments that forward computations of a batch ran on."""

    def __init__(self, monkeypatch):
        self.envs = 0
        forward = LookaheadBatch.forward

        def counted(batch, ids=None, stage=ACC):
            self.envs += batch.nsim if ids is None else len(np.arange(batch.nsim)[ids])
            return forward(batch, ids, stage)

        monkeypatch.setattr(LookaheadBatch, "forward", counted)

    def of(self, engine, ticks, ctrl=lambda tick: None):
        """Return how many environments were computed in `ticks` ticks, each observed."""
        before = self.envs
        for tick in range(ticks):
            engine.step(ctrl(tick))
            engine.refresh()
        return self.envs - before


@pytest.mark.parametrize("num_envs", [LOOKAHEAD_FROM - 1, LOOKAHEAD_FROM, PERSISTENT_UP_TO + 1])
def test_held_control_needs_no_forward_computation(monkeypatch, num_envs):
    engine = engine_of(room(), num_envs)
    forwards = Forwards(monkeypatch)
    assert forwards.of(engine, 30) == (30 * num_envs if num_envs < LOOKAHEAD_FROM else 0)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("every", [1, 4])
def test_regular_control_changes_need_one_forward_computation_each(monkeypatch, every):
    engine = engine_of(room(), 3)
    forwards = Forwards(monkeypatch)

    def ctrl(tick):
        return torch.full((engine.nu,), 0.1 * (tick // every % 2)) if tick % every == 0 else None

    forwards.of(engine, 2 * every, ctrl)
    assert forwards.of(engine, 10 * every, ctrl) == 3 * 10


@pytest.mark.usefixtures("few")
def test_reset_of_one_env_leaves_the_lookahead_of_the_others(monkeypatch):
    engine = engine_of(room(), 5)
    forwards = Forwards(monkeypatch)
    stepped = []
    step = LookaheadBatch.step
    monkeypatch.setattr(
        LookaheadBatch, "step", lambda self, ids=None, nstep=1: (stepped.append((ids, nstep)), step(self, ids, nstep))
    )
    forwards.of(engine, 3)
    assert stepped == [(None, 1)] * 4  # the first tick, and one tick ahead of each
    engine.reset([2], {})
    engine.step()
    assert stepped[4][0].tolist() == [False, False, True, False, False]
    assert forwards.envs == 1


@pytest.mark.usefixtures("few")
def test_several_ticks_continue_from_the_known_tick(monkeypatch):
    engine, plain = engine_of(room(), 3), engine_of(room(), 3)
    stepped = []
    step = LookaheadBatch.step
    for _ in range(4):
        plain.step()
    engine.step()
    engine.refresh()
    monkeypatch.setattr(
        LookaheadBatch, "step", lambda self, ids=None, nstep=1: (stepped.append(nstep), step(self, ids, nstep))
    )
    engine.step(None, 3)
    assert stepped == [2]
    assert engine.batch.state.tobytes() == plain.batch.state.tobytes()


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("why", ["RK4", "sleep", "callback", "expanded"])
def test_without_a_valid_lookahead_the_forward_computation_runs(monkeypatch, why):
    engine = engine_of(room("RK4" if why == "RK4" else "Euler", "enable" if why == "sleep" else "disable"), 2)
    forwards = Forwards(monkeypatch)
    calls = []
    control = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda m, d: calls.append(1))
    if why == "expanded":
        engine.batch.expand("opt.integrator")[1] = int(mujoco.mjtIntegrator.mjINT_RK4)
    try:
        if why == "callback":
            mujoco.set_mjcb_control(control)
        assert forwards.of(engine, 10) == 2 * 10
    finally:
        mujoco.set_mjcb_control(None)
    assert bool(calls) == (why == "callback")


@pytest.mark.usefixtures("few")
def test_models_of_the_caller_look_ahead_unless_one_uses_rk4(monkeypatch):
    engine = MujocoEngine(room(), 2)
    engine.prepare({BODY_POSE: "probe", JOINT_EFFORT: "probe"})
    runge_kutta = MujocoEngine(room("RK4"), 1)
    runge_kutta.prepare({BODY_POSE: "probe", JOINT_EFFORT: "probe"})
    forwards = Forwards(monkeypatch)
    for models, expected in (([engine.model, runge_kutta.model], 20), (engine.model, 0), (None, 0)):
        engine.batch.set_models(models)
        assert forwards.of(engine, 10) == expected


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("edit", ["constants", "models"])
def test_model_edits_between_ticks_take_effect_in_the_next_tick(edit):
    engines = [MujocoEngine(room(), 2) for _ in range(2)]
    for engine in engines:
        engine.prepare({BODY_POSE: "probe"})
        if edit == "constants":
            engine.batch.expand("body_mass")[1] *= 2.0
        engine.step()
    engines[0].refresh()
    for engine in engines:
        if edit == "constants":
            engine.batch.set_const()
            subtree = engine.batch.expanded("body_subtreemass")  # set_const made it per env
            assert subtree[1, 0] == pytest.approx(2.0 * subtree[0, 0])
        else:
            heavy = copy.copy(engine.model)
            heavy.body_mass[:] *= 2.0
            engine.batch.set_models([engine.model, heavy])
        engine.step()
    assert engines[0].batch.state.tobytes() == engines[1].batch.state.tobytes()


@pytest.mark.usefixtures("few")
def test_interrupted_lookahead_leaves_the_current_state(monkeypatch):
    engine = engine_of(room(), 3)
    engine.step()
    step, before = LookaheadBatch.step, engine.batch.state.copy()

    def interrupted(batch, ids=None, nstep=1):
        step(batch, ids, nstep)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LookaheadBatch, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.refresh()
    assert engine.batch.state.tobytes() == before.tobytes()
    engine.refresh()
    np.testing.assert_array_equal(engine.array("body_pos_w")[0, 0], engine.qpos[0, :3].float())


def test_all_columns_are_copied_where_plugins_keep_state(monkeypatch):
    """A step changes the columns before the controls, and those of plugins, which are the last."""
    batch = LookaheadBatch(mujoco.MjModel.from_xml_string(room()), 1, 1, False)
    size, plugin = mujoco.mj_stateSize, int(mujoco.mjtState.mjSTATE_PLUGIN)
    monkeypatch.setattr(mujoco, "mj_stateSize", lambda model, bits: size(model, bits) + 3 * bool(int(bits) & plugin))
    with_state = LookaheadBatch(batch.model, 1, 1, False)
    assert batch._moving == slice(batch.state.shape[1] - size(batch.model, mujoco.mjtState.mjSTATE_USER))
    assert with_state._moving == slice(None)


@pytest.mark.usefixtures("few")
def test_divergence_of_the_next_tick_is_not_reported_in_this_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    engine = engine_of('<mujoco><worldbody><body><freejoint/><geom size=".1"/></body></worldbody></mujoco>', 2)
    engine.step()
    engine.batch.bind("xfrc_applied")[1, 1, 2] = 1e12  # the next step finds a bad acceleration
    before = engine.qpos.clone()
    engine.refresh()
    assert not engine.diverged.any()
    assert engine.qpos.equal(before)
    assert engine.array("body_lin_acc_w")[1, 0, 2] > 1e10
    with pytest.warns(NonFiniteStateWarning, match="env 1 became NaN, infinite or huge by tick 2"):
        engine.step()
    assert engine.diverged.tolist() == [False, True]
