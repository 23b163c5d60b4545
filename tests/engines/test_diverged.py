"""A NaN state that MuJoCo reset in the same tick: finite readings that are marked invalid."""

from __future__ import annotations

import mujoco
import pytest
import torch

import sensorium as sn
from sensorium.engines.mujoco.engine import MujocoEngine
from sensorium.errors import NonFiniteStateWarning, SensoriumWarning

XML = """<mujoco><option timestep="0.002"/><worldbody><geom name="ground" type="plane" size="5 5 .1"/>
  <body name="ball" pos="0 0 1"><freejoint/><geom name="ball" size=".1"/><site name="imu"/></body>
  <body name="link" pos="2 0 1"><joint name="hinge" axis="0 1 0"/><geom size=".1" pos=".2 0 0"/></body></worldbody>
  <actuator><motor joint="hinge"/></actuator></mujoco>"""
NAN = float("nan")
SENSORS = [
    sn.ImuCfg(name="lazy", site="imu"),
    sn.ImuCfg(name="eager", site="imu", evaluate="always"),
    sn.ImuCfg(name="late", site="imu", delay=0.004),
    sn.ImuCfg(name="slow", site="imu", rate_hz=50.0),
    sn.JointSensorCfg(name="joint", joint="hinge"),
    sn.ContactSensorCfg(name="contact", primary=sn.ContactMatch(mode="body", pattern="ball"), fields=("found",)),
]
NAMES = [cfg.name for cfg in SENSORS]


class Owned:
    """Return two environments that the scene steps."""

    def __init__(self, xml=XML, **options):
        self.engine = MujocoEngine(xml, num_envs=2, **options)
        self.scene = sn.Scene(self.engine, SENSORS)

    def step(self, count=1):
        self.scene.step(substeps=count)

    def break_(self, name="qvel"):
        getattr(self.engine, name)[1, 0] = NAN

    def reset(self, env):
        self.scene.reset([env])


class Live:
    """Return two environments that their owner steps."""

    def __init__(self, fresh=True):
        spec = mujoco.MjSpec.from_string(XML)
        self.model = sn.prepare(spec, SENSORS).compile()
        self.datas = [mujoco.MjData(self.model) for _ in range(2)]
        self.engine = MujocoEngine.from_mj(self.model, self.datas, fresh=fresh)
        self.scene = sn.Scene(self.engine, SENSORS)

    def step(self, count=1):
        self.scene.begin_control_step()
        for _ in range(count):
            for data in self.datas:
                mujoco.mj_step(self.model, data)
            self.scene.update()

    def break_(self, name="qvel"):
        getattr(self.datas[1], name)[0] = NAN

    def reset(self, env):
        mujoco.mj_resetData(self.model, self.datas[env])
        self.scene.reset([env])


@pytest.fixture(autouse=True)
def _log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log to the working directory


WORLDS = {
    "mujoco": Owned,
    "mujoco unfresh": lambda: Owned(fresh=False),
    "from_mj": Live,
    "from_mj unfresh": lambda: Live(fresh=False),
}


def valid(world, names=NAMES):
    return {name: world.scene[name].valid.tolist() for name in names}


def every(names, flags):
    return {name: flags for name in names}


@pytest.mark.parametrize("field", ["qvel", "qpos"])
@pytest.mark.parametrize("kind", WORLDS)
def test_samples_after_mujocos_auto_reset_are_invalid_until_the_callers_reset(kind, field):
    """All sensors, eager, lazy, late and slow, are invalid from the first sample after the NaN, in that env only."""
    world = WORLDS[kind]()
    world.step(3)
    assert valid(world) == every(NAMES, [True, True])
    world.break_(field)
    with pytest.warns(NonFiniteStateWarning, match=r"env 1 became NaN.*by tick 4 and MuJoCo reset it.*not valid"):
        world.step()
    prompt = [name for name in NAMES if name not in ("late", "slow")]
    assert valid(world, prompt) == every(prompt, [True, False])
    assert valid(world, ["late", "slow"]) == every(["late", "slow"], [True, True])  # captured before
    world.step(20)
    assert valid(world) == every(NAMES, [True, False])
    assert world.scene["lazy"].data.lin_acc_b.isfinite().all()
    world.reset(0)
    assert valid(world) == {**every(NAMES, [True, False]), "late": [False, False]}  # nothing has arrived yet
    world.scene.update(ticks=0)
    assert valid(world, prompt) == every(prompt, [True, False])
    world.scene.add(sn.ImuCfg(name="added", site="imu", evaluate="always"))
    assert valid(world, ["added"]) == {"added": [True, False]}
    world.reset(1)
    world.step(20)
    assert valid(world) == every(NAMES, [True, True]) and not world.engine.diverged.any()
    world.break_(field)
    with pytest.warns(NonFiniteStateWarning, match="env 1"):
        world.step()
    assert valid(world, prompt) == every(prompt, [True, False])


@pytest.mark.parametrize("kind", WORLDS)
def test_auto_reset_between_samples_is_noticed(kind):
    """NaN at a tick of a control step without a due sample makes the next sample invalid."""
    world = WORLDS[kind]()
    world.step(13)
    world.break_()
    with pytest.warns(NonFiniteStateWarning, match="env 1"):
        world.step(7)
    world.step()
    assert valid(world, ["slow", "late"]) == {"slow": [True, False], "late": [True, False]}


def test_loaded_state_keeps_samples_invalid():
    """The saved state records which environments MuJoCo had reset."""
    world, other = Owned(), Owned()
    world.break_()
    with pytest.warns(NonFiniteStateWarning):
        world.step(2)
    other.scene.load_state(world.scene.state())
    assert valid(other, ["eager"]) == {"eager": [True, False]}
    other.step(2)
    assert valid(other, ["eager", "lazy"]) == {"eager": [True, False], "lazy": [True, False]}


def test_without_auto_reset_the_diverged_state_is_shown():
    """With autoreset off NaN stays, and samples are invalid until the state is finite again."""
    world = Owned(XML.replace('"0.002"/>', '"0.002"><flag autoreset="disable"/></option>'))
    world.break_()
    with pytest.warns(NonFiniteStateWarning):
        world.step(2)
        assert valid(world, ["lazy", "eager"]) == every(["lazy", "eager"], [True, False])
    assert world.engine.diverged.tolist() == [False, True] and world.engine.replaced() is None
    assert world.scene["eager"].data.lin_acc_b[1].isnan().any()


def test_bad_controls_are_reported():
    """MuJoCo applies zeros for NaN controls; the state is unaffected, and its samples are valid."""
    world = Owned()
    world.engine.ctrl[1] = NAN
    with pytest.warns(SensoriumWarning, match=r"controls of env 1 were NaN.*by tick 1.*applied zeros.*check ctrl"):
        world.step(2)
    assert valid(world, ["lazy"]) == {"lazy": [True, True]} and not world.engine.diverged.any()
    assert world.engine.replaced() is None


@pytest.mark.slow
def test_mujoco_warp_nan_stays_invalid_until_reset():
    """mujoco_warp performs no automatic reset: the state stays NaN."""
    # without contacts, whose kernels take seconds to compile
    xml = XML.replace('"0.002"/>', '"0.002"><flag contact="disable"/></option>')
    engine = sn.MujocoWarpEngine(xml, 2, device="cpu")
    scene = sn.Scene(engine, SENSORS[:2])
    engine.qvel[1, 0] = NAN
    with pytest.warns(NonFiniteStateWarning, match="env 1, body 'ball'"):
        scene.step(substeps=2)
        assert scene["lazy"].valid.tolist() == scene["eager"].valid.tolist() == [True, False]
    scene.step(substeps=2)
    assert scene["eager"].valid.tolist() == [True, False]
    scene.reset(torch.tensor([False, True]))
    assert scene["lazy"].valid.all() and scene["eager"].valid.all()
