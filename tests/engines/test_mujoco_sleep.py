"""Sleeping bodies: sensors on them read the same as MuJoCo's sensors on the same bodies."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from selection import gate

import sensorium as sn
from sensorium.engines.mujoco.engine import MujocoEngine
from sensorium.engines.mujoco.spec import prepare_spec
from sensorium.errors import UnsupportedError
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    BODY_VELOCITY,
    CONTACT_REPORT,
    JOINT_EFFORT,
    JOINT_STATE,
    JOINT_TORQUE,
    JOINT_WRENCH,
    contact_array,
)

BOX = """<mujoco><option timestep="0.002"><flag sleep="enable"/></option><worldbody>
  <geom name="ground" type="plane" size="5 5 .1"/>
  <body name="box" pos="0 0 .1"><freejoint/><geom name="box" type="box" size=".1 .1 .1"/>
    <site name="imu" pos=".03 .02 .05" euler="10 20 30"/></body>
  {more}
</worldbody>{rest}</mujoco>"""
BALL = '<body name="ball" pos="1 0 .4"><freejoint/><geom size=".1"/><site name="ball"/></body>'
ARM = """<body name="arm" pos="-1 0 .15"{policy}><joint name="shoulder" axis="0 1 0" damping="1"/>
    <geom type="capsule" size=".02" fromto="0 0 0 .4 0 -.12" mass="1"/>
    <body name="tip" pos=".4 0 -.12"><joint name="elbow" axis="0 1 0" damping="1"/>
      <geom type="capsule" size=".02" fromto="0 0 0 .2 0 0" mass=".2"/><site name="tip"/></body></body>"""
WHEEL = """<body name="wheel" pos="3 0 1"><joint name="axle" axis="0 1 0"/><geom size=".1" pos=".2 0 0"/>
    <site name="rim" pos=".2 0 0"/></body>"""
ROOM = BOX.format(more=BALL + ARM.format(policy="") + WHEEL, rest="")
BOX_ALONE = BOX.format(more="", rest="")
DRIVEN = BOX.format(
    more=ARM.format(policy=' sleep="allowed"'), rest='<actuator><motor joint="shoulder"/></actuator>'
).replace('<body name="box" pos="0 0 .1"><freejoint/>', '<body name="box">')
NATIVE = {
    "imu": '<accelerometer name="imu" site="imu"/>',
    "ball": '<accelerometer name="ball" site="ball"/>',
    "rim": '<accelerometer name="rim" site="rim"/>',
    "imu speed": '<velocimeter name="imu speed" site="imu"/>',
    "ball speed": '<velocimeter name="ball speed" site="ball"/>',
    "rim speed": '<velocimeter name="rim speed" site="rim"/>',
    "force": '<force name="force" site="tip"/>',
    "torque": '<torque name="torque" site="tip"/>',
    "hold": '<contact name="hold" data="found force" reduce="netforce" body1="box"/>',
}
REPORT = CONTACT_REPORT(("body", ("box",)), None, ("found", "force"), "netforce")
IMUS = [
    sn.ImuCfg(name=name, site=name, fields=("lin_acc_b", "ang_vel_b", "lin_vel_b")) for name in ("imu", "ball", "rim")
]
WRENCH = sn.ForceTorqueCfg(name="wrench", site="tip")


class Twin:
    """Return the readings of MuJoCo alone, on the same model with its own sensors."""

    def __init__(self, xml: str, fresh: bool = True) -> None:
        sensors = "".join(text for text in NATIVE.values() if text.split('"')[-2] in xml)
        self.model = mujoco.MjModel.from_xml_string(xml.replace("</mujoco>", f"<sensor>{sensors}</sensor></mujoco>"))
        self.data, self.fresh = mujoco.MjData(self.model), fresh

    def step(self, count: int) -> None:
        for _ in range(count):
            mujoco.mj_step(self.model, self.data)
        if self.fresh:
            mujoco.mj_forward(self.model, self.data)

    def __getitem__(self, name: str) -> list[float]:
        return self.data.sensor(name).data.tolist()

    @property
    def asleep(self) -> list[str]:
        roots = [self.model.body(i).name for i in self.model.tree_bodyadr]
        return [name for name, cycle in zip(roots, self.data.tree_asleep, strict=True) if cycle >= 0]


class Owned:
    """Return an engine that steps itself, and its scene."""

    def __init__(self, engine, sensors) -> None:
        self.engine = engine
        engine.prepare({REPORT: "report", BODY_VELOCITY: "probe"})
        self.scene = sn.Scene(engine, sensors)

    def step(self, count):
        self.scene.step(substeps=count)

    def push(self, velocity):
        self.engine.qvel[0, 2] = velocity


class Live(Owned):
    """Return MuJoCo's data, stepped by their owner."""

    def __init__(self, model, sensors, fresh) -> None:
        self.model, self.data = model, mujoco.MjData(model)
        super().__init__(MujocoEngine.from_mj(model, self.data, fresh=fresh), sensors)

    def step(self, count):
        for _ in range(count):
            mujoco.mj_step(self.model, self.data)
            self.scene.update()

    def push(self, velocity):
        self.data.qvel[2] = velocity


class LiveWarp(Owned):
    """Return mujoco_warp's data, stepped by their owner."""

    def __init__(self, model, sensors) -> None:
        import mujoco_warp

        self.module, self.m = mujoco_warp, mujoco_warp.put_model(model)
        self.d = mujoco_warp.make_data(model, nworld=1)
        super().__init__(sn.MujocoWarpEngine.from_mjw(model, self.m, self.d), sensors)

    def step(self, count):
        for _ in range(count):
            self.module.step(self.m, self.d)
            self.scene.update()


def made(kind, xml, sensors):
    spec = mujoco.MjSpec.from_string(xml)
    if kind == "mujoco_warp":
        return Owned(sn.MujocoWarpEngine(spec, device="cpu"), sensors)
    if kind.startswith("mujoco"):
        return Owned(MujocoEngine(spec, fresh=kind == "mujoco"), sensors)
    model = sn.prepare(spec, [*sensors, REPORT]).compile()
    if kind == "from_mjw":
        return LiveWarp(model, sensors)
    return Owned(MujocoEngine(model), sensors) if kind == "sealed" else Live(model, sensors, fresh=kind == "from_mj")


CPU = ["mujoco", "mujoco unfresh", "sealed", "from_mj", "from_mj unfresh"]
WARP = ["mujoco_warp", "from_mjw"]


def assert_as_native(world, twin, close, names=("imu", "ball", "rim")):
    """Accelerations, wrench, contact and velocity of all bodies equal those of MuJoCo's sensors."""
    scene, near = world.scene, {"rel": close, "abs": close}
    for name in names:
        assert scene[name].valid.all()
        assert scene[name].data.lin_acc_b[0].tolist() == pytest.approx(twin[name], **near), name
        assert scene[name].data.lin_vel_b[0].tolist() == pytest.approx(twin[f"{name} speed"], **near), name
    assert scene["wrench"].data.force[0].tolist() == pytest.approx(twin["force"], **near)
    assert scene["wrench"].data.torque[0].tolist() == pytest.approx(twin["torque"], **near)
    world.engine.refresh()
    found, *force = world.engine.array(contact_array(REPORT))[0, 0, 0].tolist()
    assert found == twin["hold"][0] and force == pytest.approx([-value for value in twin["hold"][1:]], **near)


@pytest.mark.parametrize("kind", gate([*CPU, *WARP], {"mujoco unfresh", "from_mj"}))
def test_readings_of_sleeping_bodies_equal_native_sensors(kind):
    """A box, a ball and an arm at rest, beside a swinging wheel, match MuJoCo when asleep, awake and asleep again."""
    world = made(kind, ROOM, [*IMUS, WRENCH])
    twin = Twin(ROOM, fresh="unfresh" not in kind)
    close = 2e-2 if kind in ("mujoco_warp", "from_mjw") else 1e-4
    awake = []
    for tick in range(30, 631, 30):
        if tick == 390:  # up it goes
            world.push(1.0)
            twin.data.qvel[2] = 1.0
        world.step(30)
        twin.step(30)
        if close < 1e-3 or tick in (360, 390):
            assert_as_native(world, twin, close)
        awake.append("box" not in twin.asleep)
    assert awake[0] and not awake[10] and awake[12] and not awake[-1]
    assert twin.asleep == ["box", "ball", "arm"]
    assert_as_native(world, twin, close)


def test_envs_sleep_independently():
    """One env rests while another falls; both match MuJoCo alone from the same start."""
    engine = MujocoEngine(BOX.format(more="", rest=""), num_envs=2)
    scene = sn.Scene(engine, [sn.ImuCfg(name="imu", site="imu")])
    scene.reset(qpos=[[0, 0, z, 1, 0, 0, 0] for z in (0.1, 0.6)])
    low, high = Twin(BOX_ALONE), Twin(BOX_ALONE)
    high.data.qpos[2] = 0.6
    for _ in range(10):
        scene.step(substeps=20)
        for env, twin in enumerate((low, high)):
            twin.step(20)
            assert scene["imu"].data.lin_acc_b[env].tolist() == pytest.approx(twin["imu"], abs=1e-4)
            assert bool(engine.batch.get_data(env).tree_asleep[0] >= 0) == bool(twin.asleep)
        if scene.tick == 140:
            assert low.asleep and not high.asleep


def test_initially_sleeping_body_reads_as_its_native_sensor():
    """With sleep="init" a box rests from the start and reads its weight."""
    xml = BOX_ALONE.replace('name="box" pos', 'name="box" sleep="init" pos').replace("0 0 .1", "0 0 .0995")
    for kind in CPU:
        world, twin = made(kind, xml, [sn.ImuCfg(name="imu", site="imu")]), Twin(xml, fresh="unfresh" not in kind)
        assert twin.asleep == ["box"]
        world.step(3)
        twin.step(3)
        assert world.scene["imu"].data.lin_acc_b[0].tolist() == pytest.approx(twin["imu"], abs=1e-4)
        assert twin["imu"][2] > 8.0


def test_effort_of_a_sleeping_joint_is_kept():
    """MuJoCo clears qfrc_actuator of a sleeping tree; its jointactuatorfrc sensor, and JOINT_EFFORT, keep the value."""
    engine = MujocoEngine(DRIVEN)
    engine.prepare({JOINT_EFFORT: "probe", JOINT_TORQUE: "probe", JOINT_STATE: "probe"})
    engine.ctrl[:] = 0.2
    engine.step(substeps=400)
    engine.refresh()
    assert engine.batch.get_data(0).tree_asleep[0] >= 0 and not engine.batch.bind("qfrc_actuator").any()
    assert engine.array("joint_effort")[0].tolist() == pytest.approx([0.2, 0.0])
    assert engine.array("joint_torque")[0].tolist() == pytest.approx([0.2, 0.0])


def test_unreadable_quantities_of_sleeping_bodies_are_refused_by_name():
    """A sealed model without the sensors, an inert joint, a static body's wrench, and the world as secondary all
    work.
    """
    sealed = MujocoEngine(mujoco.MjModel.from_xml_string(ROOM))
    for requirement in (BODY_ACCELERATION, JOINT_WRENCH, JOINT_EFFORT):
        with pytest.raises(UnsupportedError, match=f"'probe' requires {requirement}.*'mujoco'.*sleep.*sn.prepare"):
            sealed.prepare({requirement: "probe"})
    sealed.prepare({BODY_POSE: "probe", BODY_VELOCITY: "probe"})
    model = mujoco.MjModel.from_xml_string(ROOM)
    stale = MujocoEngine.from_mj(model, mujoco.MjData(model), fresh=False)
    with pytest.raises(UnsupportedError, match=r"BODY_ACCELERATION.*sleep.*fresh=True"):
        stale.prepare({BODY_ACCELERATION: "probe"})
    inert = DRIVEN.replace('damping="1"', 'damping="1" armature="0.01"')
    with pytest.raises(UnsupportedError, match=r'JOINT_TORQUE.*\'shoulder\'.*sleep="never"'):
        MujocoEngine(inert).prepare({JOINT_TORQUE: "probe"})
    MujocoEngine(inert.replace('sleep="allowed"', 'sleep="never"')).prepare({JOINT_TORQUE: "probe"})
    table = BOX.format(more='<body name="table"><geom size=".1" pos="2 2 0"/></body>', rest="")
    with pytest.raises(UnsupportedError, match=r"'scale' requires JOINT_WRENCH.*'table' is static.*sleep"):
        sn.Scene(MujocoEngine(table), [sn.ForceTorqueCfg(name="scale", body="table")])
    report = CONTACT_REPORT(("body", ("box",)), ("subtree", "world"), ("found", "force"), "netforce")
    with pytest.raises(UnsupportedError, match=r"secondary: the subtree of 'world' has static and moving.*sleep"):
        MujocoEngine(table).prepare({report: "probe"})


def test_imu_on_a_sealed_sleeping_model_differentiates_velocity():
    """If accelerations are unavailable, the IMU reports that it differentiates, and a box at rest reads g."""
    engine = MujocoEngine(mujoco.MjModel.from_xml_string(BOX_ALONE))
    scene = sn.Scene(engine, [sn.ImuCfg(name="imu", body="box")])
    for _ in range(3):
        scene.step(substeps=100)
    assert scene["imu"].acceleration_source == "difference"
    assert scene["imu"].data.lin_acc_b[0].tolist() == pytest.approx([0.0, 0.0, 9.81], abs=1e-3)


def test_sensors_for_sleeping_bodies_are_hidden_and_added_once():
    """A second preparation, also after attaching, adds nothing; names and declared sensors stay; without the flag
    none.
    """
    spec = mujoco.MjSpec.from_string(ROOM)

    def added(spec, needs):
        count = len(spec.sites) + len(spec.sensors)
        prepare_spec(spec, needs)
        return len(spec.sites) + len(spec.sensors) - count

    # a site and four sensors for each body, one for each joint
    assert added(spec, {BODY_ACCELERATION, JOINT_EFFORT, JOINT_WRENCH}) == 5 * (1 + 4) + 3
    assert added(spec, {BODY_ACCELERATION}) == 0
    world = mujoco.MjSpec.from_string('<mujoco><option><flag sleep="enable"/></option><worldbody/></mujoco>')
    world.attach(spec, prefix="room/", frame=world.worldbody.add_frame())
    assert added(world, {BODY_ACCELERATION}) == 0
    engine = MujocoEngine(world.compile())
    engine.prepare({BODY_ACCELERATION: "probe"})
    assert engine.names("site") == ("room/imu", "room/ball", "room/tip", "room/rim") and not engine.native_sensors()
    awake = mujoco.MjSpec.from_string(ROOM.replace("enable", "disable"))
    assert added(awake, {BODY_ACCELERATION, JOINT_EFFORT}) == 2  # a site with an accelerometer


def test_a_saved_state_is_restored_while_bodies_sleep():
    """A restored state reads as when it was saved, even if bodies moved since or another engine loads it."""
    engine = MujocoEngine(BOX_ALONE)
    scene = sn.Scene(engine, [sn.ImuCfg(name="imu", site="imu")])
    scene.step(substeps=100)
    before, saved = scene["imu"].read().lin_acc_b, scene.state()
    engine.qvel[0, 2] = 2.0
    scene.step(substeps=20)
    assert not torch.allclose(scene["imu"].data.lin_acc_b, before, atol=0.1)
    fresh = sn.Scene(MujocoEngine(BOX_ALONE), [sn.ImuCfg(name="imu", site="imu")])
    for each in (scene, fresh):
        each.load_state(saved)
        assert torch.equal(each["imu"].data.lin_acc_b, before)
        each.step(substeps=100)
        assert torch.allclose(each["imu"].data.lin_acc_b, before, atol=2e-2)


@pytest.mark.slow
def test_mujoco_warp_data_too_small_for_all_dofs_is_refused():
    """With nvmax below nv not all bodies can be computed awake."""
    import mujoco_warp

    model = mujoco.MjModel.from_xml_string(BOX.format(more=BALL, rest=""))
    data = mujoco_warp.make_data(model, nworld=1, nvmax=6)
    engine = sn.MujocoWarpEngine.from_mjw(model, mujoco_warp.put_model(model), data)
    engine.prepare({BODY_POSE: "probe", BODY_VELOCITY: "probe"})
    with pytest.raises(UnsupportedError, match=r"BODY_ACCELERATION.*'mujoco_warp'.*nvmax=6.*12 degrees of freedom"):
        engine.prepare({BODY_ACCELERATION: "probe"})


def test_reading_wakes_no_body():
    """The states of an engine read at every tick and of an engine never read are the same, bit for bit."""
    engines = [MujocoEngine(ROOM, num_envs=2) for _ in range(2)]
    for engine in engines:
        engine.prepare({BODY_ACCELERATION: "probe", JOINT_WRENCH: "probe", REPORT: "probe"})
    asleep = []
    for tick in range(400):
        for engine in engines:
            if tick == 300:
                engine.qvel[1, 2] = 1.0
            engine.step()
        engines[0].refresh()
        asleep.append(bool(engines[0].batch.get_data(1).tree_asleep[0] >= 0))
    assert np.array_equal(engines[0].batch.state, engines[1].batch.state)
    assert asleep[290] and not asleep[310]
