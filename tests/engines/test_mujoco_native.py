from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch
from selection import pairs

from sensorium.engines.base import NativeSensor
from sensorium.engines.mujoco.engine import PERSISTENT_UP_TO, MujocoEngine
from sensorium.engines.mujoco.spec import prepare_spec
from sensorium.errors import ModelError, UnknownNameError, UnsupportedError
from sensorium.spec import BODY_ACCELERATION, BODY_POSE, JOINT_STATE, JOINT_WRENCH, NATIVE_SENSOR

BODIES = """
  <compiler angle="radian"/>
  <option timestep="0.002" integrator="implicitfast" magnetic="0.2 0 -0.4"/>
  <asset><mesh name="plate" builtin="plate" params="3 3" scale=".05 .05 .01"/></asset>
  <worldbody>
    <geom name="ground" type="plane" size="5 5 .1"/>
    <site name="hall" type="box" size=".4 .4 .15" pos="0 0 .1"/>
    <camera name="watch" pos="0 -2 1" xyaxes="1 0 0 0 .4 1" resolution="32 24"/>
    <body name="trunk" pos="0 0 .15">
      <freejoint/>
      <geom name="trunk" type="box" size=".1 .08 .05"/>
      <geom name="skin" type="mesh" mesh="plate" pos="0 0 -.05" contype="0" conaffinity="0" mass="0"/>
      <site name="imu" pos=".05 .02 .03" quat=".8 .1 .5 .3"/>
      <site name="belly" type="box" size=".12 .1 .07"/>
      <site name="pad" quat="0 1 0 0" size=".2"/>
      <camera name="eye" pos="0 0 -.1" resolution="2 2" fovy="40"/>
      <body name="arm" pos=".12 0 0">
        <joint name="hinge" axis="0 1 .2" range="-.3 .3" limited="true" damping=".02"/>
        <geom name="arm" type="capsule" fromto="0 0 0 .1 0 0" size=".03"/>
        <body name="hand" pos=".12 0 -.02">
          <joint name="slide" type="slide" axis="0 .1 1" range="-.02 .02" limited="true"/>
          <geom name="hand" size=".04"/>
          <site name="palm" pos="0 .01 -.02" quat=".9 .3 0 .1"/>
        </body>
      </body>
      <body name="tail" pos="-.12 0 0">
        <joint name="ball" type="ball" range="0 .3" limited="true" damping=".01"/>
        <geom name="tail" type="capsule" fromto="0 0 0 -.2 0 .05" size=".02"/>
      </body>
    </body>
  </worldbody>
  <tendon>
    <spatial name="rope" range="0 .16" limited="true"><site site="imu"/><site site="palm"/></spatial>
    <fixed name="sum"><joint joint="hinge" coef="1"/><joint joint="slide" coef="2"/></fixed>
  </tendon>
  <actuator><motor name="hinge" joint="hinge" gear="2"/><motor name="rope" tendon="rope"/></actuator>
"""
FRAME = (*(f"frame{word}" for word in ("pos", "quat", "xaxis", "yaxis", "zaxis", "linvel", "angvel")),)
ON_SITE = ("accelerometer", "velocimeter", "gyro", "force", "torque", "magnetometer")
ADDED = {
    "touch": NATIVE_SENSOR("touch", "touch", "site", "belly"),
    **{type: NATIVE_SENSOR(type, type, "site", "palm") for type in ON_SITE},
    "range": NATIVE_SENSOR("range", "rangefinder", objname="palm"),
    "beams": NATIVE_SENSOR("beams", "rangefinder", "camera", "eye", parameters=(("data", "dist normal depth"),)),
    "pixel": NATIVE_SENSOR("pixel", "camprojection", "site", "palm", "camera", "watch"),
    **{
        f"{kind}{what} {name}": NATIVE_SENSOR(f"{kind}{what} {name}", f"{kind}{what}", kind, name)
        for kind, whats, names in (
            ("joint", ("pos", "vel", "actuatorfrc", "limitpos", "limitvel", "limitfrc"), ("hinge", "slide")),
            ("tendon", ("pos", "vel"), ("rope", "sum")),
            ("tendon", ("actuatorfrc", "limitpos", "limitvel", "limitfrc"), ("rope",)),
            ("actuator", ("pos", "vel", "frc"), ("hinge", "rope")),
        )
        for what in whats
        for name in names
    },
    "ballquat": NATIVE_SENSOR("ballquat", "ballquat", "joint", "ball"),
    "ballangvel": NATIVE_SENSOR("ballangvel", "ballangvel", "joint", "ball"),
    **{f"{type} free": NATIVE_SENSOR(f"{type} free", type, "xbody", "hand") for type in FRAME},
    **{f"{type} to": NATIVE_SENSOR(f"{type} to", type, "geom", "hand", "site", "imu") for type in FRAME},
    "framelinacc": NATIVE_SENSOR("framelinacc", "framelinacc", "body", "arm"),
    "frameangacc": NATIVE_SENSOR("frameangacc", "frameangacc", "camera", "eye"),
    **{type: NATIVE_SENSOR(type, type, "body", "arm") for type in ("subtreecom", "subtreelinvel", "subtreeangmom")},
    "inside": NATIVE_SENSOR("inside", "insidesite", "xbody", "hand", "site", "hall"),
    "juts out": NATIVE_SENSOR(
        "juts out", "insidesite", "geom", "hand", "site", "hall", parameters=(("enclosed", True),)
    ),
    **{
        type: NATIVE_SENSOR(type, type, "geom", "hand", "body", "tail", 2.0)
        for type in ("distance", "normal", "fromto")
    },
    **{type: NATIVE_SENSOR(type, type) for type in ("e_potential", "e_kinetic", "clock")},
    "taxels": NATIVE_SENSOR("taxels", "tactile", "mesh", "plate", "geom", "skin"),
    "clipped": NATIVE_SENSOR("clipped", "accelerometer", "site", "imu", cutoff=5.0),
}
"""All types of native sensor that can be added, by sensor name."""
DECLARED = """
  <sensor>
    <contact name="hits" geom1="ground" data="found force pos" num="3"/>
    <contact name="near" body1="hand" data="found dist"/>
    <jointpos name="kept" joint="hinge" nsample="3"/>
    <gyro name="late" site="imu" nsample="4" delay=".007" interp="linear"/>
    <accelerometer name="slow" site="imu" nsample="2" interval=".005"/>
    <jointvel name="slow and late" joint="slide" nsample="6" interval=".005 -.002" delay=".009" interp="cubic"/>
    <plugin name="grid" plugin="mujoco.sensor.touch_grid" objtype="site" objname="pad">
      <config key="size" value="3 2"/><config key="fov" value="180 90"/><config key="gamma" value="0"/>
      <config key="nchannel" value="2"/>
    </plugin>
    <clock/>
  </sensor>
"""
EXTENSION = '<extension><plugin plugin="mujoco.sensor.touch_grid"/></extension>'
MODEL = f"<mujoco>{EXTENSION}{BODIES}{DECLARED}</mujoco>"
READ = {name: NATIVE_SENSOR(name) for name in ("hits", "near", "kept", "late", "slow", "slow and late", "grid")}
INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION


def probe(*requirements):
    return dict.fromkeys(requirements, "probe")


def controls(steps, num_envs):
    return torch.randn(steps, num_envs, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def throw(qvel):
    """Return an engine whose env 0 drops flat on its belly while the others tumble."""
    generator = torch.Generator().manual_seed(4)
    qvel[:] = 2.0 * torch.randn(100, qvel.shape[1], generator=generator, dtype=torch.float64)[: len(qvel)]
    qvel[:, 2] = -2.0
    qvel[0, [0, 1, 3, 4, 5]] = 0.0


def names_of(stage):
    """Return the names of all sensors, or of the sensors that MuJoCo computes at one stage."""
    spec = mujoco.MjSpec.from_string(MODEL)
    prepare_spec(spec, ADDED.values())
    model = spec.compile()
    stages = {name: int(model.sensor_needstage[sensor(model, name)]) for name in (*ADDED, *READ)}
    return [name for name, needed in stages.items() if stage in (0, needed)]


def sensor(model, name):
    return model.sensor(name if name in READ else f"sensorium/native/{name}").id


def expected(model, sensordata, name):
    i = sensor(model, name)
    return np.float32(sensordata[model.sensor_adr[i] : model.sensor_adr[i] + model.sensor_dim[i]])


def forwarded(model, data):
    """Return MuJoCo's sensordata for the state that `data` has reached, without modifying it."""
    row, fresh = np.empty(mujoco.mj_stateSize(model, INTEGRATION)), mujoco.MjData(model)
    mujoco.mj_getState(model, data, row, INTEGRATION)
    mujoco.mj_setState(model, fresh, row, INTEGRATION)
    mujoco.mj_forward(model, fresh)
    return fresh.sensordata.copy()


# Values


def test_all_native_sensor_types_are_covered():
    """Every MuJoCo type is added or declared here, except user sensors, which are rejected."""
    spec = mujoco.MjSpec.from_string(MODEL)
    prepare_spec(spec, ADDED.values())
    types = {int(kind) for kind in spec.compile().sensor_type}
    assert {int(kind) for kind in mujoco.mjtSensor.__members__.values()} - types == {int(mujoco.mjtSensor.mjSENS_USER)}


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize(("num_envs", "fresh"), pairs([3, PERSISTENT_UP_TO + 1], [True, False]))
def test_every_native_value_equals_mujocos_bit_for_bit(num_envs, fresh, stage):
    """Over 100 ticks of tumbling and contact each value is MuJoCo's sensordata as float32, also for delayed sensors.

    The same holds with sensors of one stage only, where MuJoCo's computation stops at that stage.
    """
    names = names_of(stage)
    engine = MujocoEngine(MODEL, num_envs, fresh=fresh)
    engine.prepare(probe(*(ADDED.get(name, READ.get(name)) for name in names)))
    throw(engine.qvel)
    model, envs = engine.model, (0, 1, num_envs - 1)
    references = {env: mujoco.MjData(model) for env in envs}
    for env, data in references.items():
        data.qvel[:] = engine.qvel[env]
    addresses = {name: engine.array(f"native:{name}").data_ptr() for name in names}
    moved = dict.fromkeys(names, 0)
    for ctrl in controls(100, num_envs):
        engine.step(ctrl)
        engine.refresh()
        for env, data in references.items():
            data.ctrl[:] = ctrl[env]
            mujoco.mj_step(model, data)
            sensordata = forwarded(model, data) if fresh else data.sensordata
            for name in names:
                values = expected(model, sensordata, name)
                assert np.array_equal(engine.array(f"native:{name}")[env].numpy(), values), (name, engine.tick)
                moved[name] += bool(values.any())
    for env, data in references.items():
        assert np.array_equal(engine.qpos[env], data.qpos), "reading has changed the physics"
    assert engine.lag == (0 if fresh else 1)
    assert {name for name, count in moved.items() if not count} == set(), "these should have shown something"
    assert {name: engine.array(f"native:{name}").data_ptr() for name in names} == addresses


@pytest.mark.parametrize(("stage", "fresh"), pairs([0, 1, 2, 3], [True, False]))
def test_every_native_value_of_live_data_equals_mujocos_bit_for_bit(fresh, stage):
    """Wrapped data give the same bits: after a forward for the current state, or as mj_step left them."""
    names = names_of(stage)
    spec = mujoco.MjSpec.from_string(MODEL)
    prepare_spec(spec, ADDED.values())
    model = spec.compile()
    datas, twins = ([mujoco.MjData(model) for _ in range(3)] for _ in range(2))
    start = torch.zeros(3, model.nv, dtype=torch.float64)
    throw(start)
    engine = MujocoEngine.from_mj(model, datas, fresh=fresh)
    engine.prepare(probe(*(ADDED.get(name, READ.get(name)) for name in names)))
    for env, pair in enumerate(zip(datas, twins, strict=True)):
        for data in pair:
            data.qvel[:] = start[env]
    for ctrl in controls(100, 3):
        for env, pair in enumerate(zip(datas, twins, strict=True)):
            for data in pair:
                data.ctrl[:] = ctrl[env]
                mujoco.mj_step(model, data)
        engine.count_ticks(1)
        engine.refresh()
        for env, twin in enumerate(twins):
            sensordata = forwarded(model, twin) if fresh else twin.sensordata
            for name in names:
                values = expected(model, sensordata, name)
                assert np.array_equal(engine.array(f"native:{name}")[env].numpy(), values), (name, engine.tick)
    for data, twin in zip(datas, twins, strict=True):
        assert np.array_equal(data.qpos, twin.qpos) and np.array_equal(data.history, twin.history)


@pytest.mark.parametrize("num_envs", [2, PERSISTENT_UP_TO + 1])
def test_refresh_adds_nothing_to_a_sensors_history(num_envs):
    """Several refreshes in one tick do not change state and history buffers of delayed sensors, bit for bit."""
    read, unread = (MujocoEngine(MODEL, num_envs) for _ in range(2))
    for engine in (read, unread):
        engine.prepare(probe(*READ.values()))
        throw(engine.qvel)
    for ctrl in controls(40, num_envs):
        for engine in (read, unread):
            engine.step(ctrl)
        read.refresh()
        read.forward()
        read.forward()
    assert read.batch.history.any() and np.array_equal(read.batch.state, unread.batch.state)


# What is there


def test_declared_sensors_are_listed_with_type_unit_and_location():
    """Discovery finds the model's named sensors and omits nameless and hidden ones."""
    engine = MujocoEngine(MODEL)
    engine.prepare(probe(*ADDED.values(), BODY_ACCELERATION))
    sensors = {sensor.name: sensor for sensor in engine.native_sensors()}
    assert tuple(sensors) == tuple(READ)
    assert sensors["kept"] == NativeSensor("kept", "jointpos", 1, "rad", "real", "pos", "joint", "hinge")
    assert sensors["late"] == NativeSensor("late", "gyro", 3, "rad/s", "real", "vel", "site", "imu")
    assert (sensors["hits"].type, sensors["hits"].dim, sensors["hits"].unit) == ("contact", 21, "")
    assert not any(name.startswith("sensorium") for name in engine.names("site"))


@pytest.mark.parametrize(
    ("xml", "described"),
    [
        ('<touch name="s" site="imu" cutoff="3"/>', ("touch", 1, "N", "positive", "acc", "site", "imu", "", "", 3.0)),
        ('<jointvel name="s" joint="slide"/>', ("jointvel", 1, "m/s", "real", "vel", "joint", "slide")),
        ('<jointactuatorfrc name="s" joint="hinge"/>', ("jointactuatorfrc", 1, "N m", "real", "acc", "joint", "hinge")),
        ('<tendonpos name="s" tendon="rope"/>', ("tendonpos", 1, "m", "real", "pos", "tendon", "rope")),
        ('<tendonpos name="s" tendon="sum"/>', ("tendonpos", 1, "", "real", "pos", "tendon", "sum")),
        ('<ballquat name="s" joint="ball"/>', ("ballquat", 4, "1", "quat", "pos", "joint", "ball")),
        (
            '<framepos name="s" objtype="xbody" objname="hand" reftype="camera" refname="eye"/>',
            ("framepos", 3, "m", "real", "pos", "xbody", "hand", "camera", "eye"),
        ),
        ('<framezaxis name="s" objtype="geom" objname="hand"/>', ("framezaxis", 3, "1", "axis", "pos", "geom", "hand")),
        ('<rangefinder name="s" site="imu"/>', ("rangefinder", 1, "m", "real", "pos", "site", "imu")),
        ('<rangefinder name="s" site="imu" data="dist dir"/>', ("rangefinder", 4, "", "real", "pos", "site", "imu")),
        ('<magnetometer name="s" site="imu"/>', ("magnetometer", 3, "", "real", "pos", "site", "imu")),
        ('<clock name="s"/>', ("clock", 1, "s", "real", "pos")),
        ('<user name="s" dim="2" needstage="acc"/>', ("user", 2, "", "real", "acc")),
    ],
)
def test_a_native_sensor_describes_itself(xml, described):
    """Type, number of values, unit, kind of values, stage, element, reference and cutoff match the model."""
    engine = MujocoEngine(f"<mujoco>{BODIES}<sensor>{xml}</sensor></mujoco>")
    assert engine.native_sensors() == (NativeSensor("s", *described),)


def test_units_of_all_types_are_known_or_marked_unknown():
    """A sensor of each type has a unit, except those whose unit depends on the model or the user."""
    spec = mujoco.MjSpec.from_string(MODEL)
    prepare_spec(spec, ADDED.values())
    for made in spec.sensors:
        made.name = made.name.replace("sensorium/native/", "own ")
    units = {sensor.type: sensor.unit for sensor in MujocoEngine(spec).native_sensors() if sensor.name != "own beams"}
    open_units = {"magnetometer", "tendonpos", "tendonvel", "contact", "tactile", "plugin"}
    open_units |= {"actuatorpos", "actuatorvel", "actuatorfrc"}
    assert {type for type, unit in units.items() if not unit} == open_units


def test_model_description_is_cached_until_recompilation():
    """Discovery queries each declared sensor, so describing the model at each query would be quadratic."""
    engine = MujocoEngine(f'<mujoco>{BODIES}<sensor><clock name="time"/></sensor></mujoco>')
    first = engine.native_sensors()
    assert engine.native_sensors() is first
    assert engine.supports(NATIVE_SENSOR("time")) is None
    assert engine.native_sensors() is first
    added = NATIVE_SENSOR("own", "clock")
    assert engine.native_sensor(added) is None
    engine.prepare({added: "a sensor"})
    assert engine.native_sensors() is not first and engine.native_sensors() == first
    assert engine.native_sensor(added) == replace(first[0], name="own")


def test_a_composed_model_has_its_sensors_under_prefixes():
    """Sensors of an entity are read by their full name; added sensors may have any name."""
    engine = MujocoEngine.compose({"a": MODEL, "b": MODEL}, num_envs=2)
    wanted = (
        NATIVE_SENSOR("a/late"),
        NATIVE_SENSOR("b/late"),
        NATIVE_SENSOR("a/eye's <gyro>", "gyro", "site", "a/imu"),
    )
    engine.prepare(probe(*wanted))
    engine.qvel[:, 3] = 2.0
    engine.forward()
    assert {sensor.name for sensor in engine.native_sensors()} == {f"{e}/{name}" for e in "ab" for name in READ}
    assert engine.array("native:a/eye's <gyro>").norm(dim=1).tolist() == pytest.approx([2.0, 2.0])


# When


@pytest.mark.parametrize("fresh", [True, False])
def test_declared_sensors_are_granted_anytime_and_keep_their_place(fresh):
    """Reading the model's sensors does not change it: after ticks, in a sealed model, one after the other."""
    sealed = mujoco.MjModel.from_xml_string(MODEL)
    engine = MujocoEngine(sealed, 2, fresh=fresh)
    throw(engine.qvel)
    engine.prepare(probe(READ["late"]))
    first = engine.array("native:late")
    address = first.data_ptr()
    engine.step(substeps=20)
    engine.refresh()
    engine.prepare(probe(READ["hits"], READ["kept"]))
    engine.refresh()
    assert engine.lag == 0 and engine.model is sealed
    assert engine.array("native:late") is first and first.data_ptr() == address
    for env in range(2):
        data = mujoco.MjData(sealed)
        mujoco.mj_setState(sealed, data, engine.batch.state[env], INTEGRATION)
        values = forwarded(sealed, data)
        for name in ("late", "hits", "kept"):
            assert np.array_equal(engine.array(f"native:{name}")[env].numpy(), expected(sealed, values, name)), name


def test_sensor_added_before_the_first_tick_leaves_earlier_ones_in_place():
    """A recompilation before the first tick keeps the arrays' addresses; later the error refers to reserve."""
    engine = MujocoEngine(MODEL, 2)
    engine.prepare(probe(READ["kept"], ADDED["gyro"]))
    engine.qvel[:, 3:6] = 1.0
    engine.qpos[:, 7] = 0.2
    kept = engine.array("native:kept")
    address = kept.data_ptr()
    engine.prepare(probe(ADDED["jointpos hinge"], JOINT_STATE))
    engine.refresh()
    assert kept.data_ptr() == address and kept.tolist() == engine.array("native:jointpos hinge").tolist()
    assert engine.array("native:gyro").any() and kept[0, 0] == pytest.approx(0.2)
    engine.step()
    with pytest.raises(UnsupportedError, match=r"this sensor is not in the model, and after 1 ticks.*reserve="):
        engine.prepare(probe(ADDED["torque"]))


def test_sealed_model_accepts_prepared_sensors_only():
    """sn.prepare adds the hidden sensors of all types; a sealed model, stepped or live, then grants them."""
    spec = mujoco.MjSpec.from_string(MODEL)
    own = [sensor.name for sensor in spec.sensors]
    for _ in range(2):
        prepare_spec(spec, ADDED.values())
        added = sorted(f"sensorium/native/{name}" for name in ADDED)
        assert sorted(sensor.name for sensor in spec.sensors if sensor.name not in own) == added
    model = spec.compile()
    for make in (MujocoEngine, lambda sealed: MujocoEngine.from_mj(sealed, mujoco.MjData(sealed))):
        for name, requirement in ADDED.items():
            assert make(model).supports(requirement) is None, name
        with pytest.raises(UnsupportedError, match=r"this sensor is not in the model.*sn\.prepare\(spec, sensors\)"):
            make(model).prepare(probe(NATIVE_SENSOR("other", "gyro", "site", "imu")))
        for changed in (
            NATIVE_SENSOR("gyro", "gyro", "site", "imu"),
            NATIVE_SENSOR("gyro", "gyro", "site", "palm", cutoff=1.0),
            NATIVE_SENSOR("gyro", "velocimeter", "site", "palm"),
            NATIVE_SENSOR("framepos to", "framepos", "geom", "hand", "site", "belly"),
            NATIVE_SENSOR("range", "rangefinder", "site", "palm", parameters=(("data", "depth"),)),
        ):
            with pytest.raises(UnsupportedError, match="already added under this name with other settings"):
                make(model).prepare(probe(changed))


def test_one_added_sensor_serves_accelerations_and_wrenches():
    """An added sensor that makes MuJoCo compute accelerations makes the hidden accelerometer unnecessary."""
    engine = MujocoEngine(f"<mujoco>{BODIES}</mujoco>")
    engine.prepare(probe(ADDED["force"], BODY_ACCELERATION, JOINT_WRENCH))
    assert engine.model.nsensor == 1


@pytest.mark.parametrize("fresh", [True, False])
def test_native_arrays_are_reset_saved_and_restored(fresh):
    """A reset changes the rows of its envs only, and a restored engine resumes bit-identically, history included."""
    engine, other = (MujocoEngine(MODEL, 3, fresh=fresh) for _ in range(2))
    names = ("late", "slow", "accelerometer", "jointpos hinge")
    for each in (engine, other):
        each.prepare(probe(*(ADDED.get(name, READ.get(name)) for name in names)))
    throw(engine.qvel)
    inputs = controls(40, 3)
    for ctrl in inputs[:20]:
        engine.step(ctrl)
    engine.refresh()
    before = {name: engine.array(f"native:{name}").clone() for name in names}
    engine.reset([1], {"qpos": engine.model.qpos0 + 0.01})
    assert engine.array("native:jointpos hinge")[1].tolist() == pytest.approx([0.01])
    for name, values in before.items():
        assert torch.equal(engine.array(f"native:{name}")[[0, 2]], values[[0, 2]]), name
    other.load_state(engine.state())
    for ctrl in inputs[20:]:
        for each in (engine, other):
            each.step(ctrl)
            each.refresh()
    for name in names:
        assert torch.equal(engine.array(f"native:{name}"), other.array(f"native:{name}")), name


def test_a_sensor_callback_is_not_called_by_live_sensors():
    """A stateful sensor callback is called only in the owner's own steps."""
    with_user = DECLARED.replace(PLUGIN, '<user name="mine" dim="1" needstage="vel"/>')
    model = mujoco.MjModel.from_xml_string(f"<mujoco>{BODIES}{with_user}</mujoco>")
    data = mujoco.MjData(model)
    engine = MujocoEngine.from_mj(model, data)
    engine.prepare(probe(READ["late"]))
    calls = []
    mujoco.set_mjcb_sensor(lambda m, d, stage: calls.append(stage))
    try:
        mujoco.mj_step(model, data)
        count = len(calls)
        engine.count_ticks(1)
        engine.refresh()
        assert len(calls) == count > 0
    finally:
        mujoco.set_mjcb_sensor(None)


PLUGIN = DECLARED[DECLARED.index("<plugin") : DECLARED.index("<clock/>")]


# What cannot be


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        (NATIVE_SENSOR("lat"), r"the model declares no sensor 'lat'. Did you mean 'late'.*Set a type to add one"),
        (
            NATIVE_SENSOR("late", "gyro", "site", "imu"),
            "the model declares a sensor of this name: omit the type",
        ),
        (NATIVE_SENSOR("s", "gyroscope", "site", "imu"), r"no sensor type 'gyroscope'. Did you mean .*'gyro'"),
        (NATIVE_SENSOR("s", "user"), "'user' cannot be added: its values come from a custom callback"),
        (NATIVE_SENSOR("s", "plugin"), "'plugin' cannot be added: it needs a plugin instance: declare it in the model"),
        (NATIVE_SENSOR("s", "contact"), "'contact' cannot be added: use ContactSensor instead"),
        (NATIVE_SENSOR("s", "framepos", "place", "imu"), "objtype: got 'place', expected a kind of element"),
        (NATIVE_SENSOR("s", "framepos", "", "imu"), "objtype: got '', expected a kind of element"),
        (NATIVE_SENSOR("s", "framepos", "site", "imu", "", "palm"), "reftype: got '', expected a kind of element"),
        (
            NATIVE_SENSOR("s", "gyro", "site", "imu", parameters=(("rate", 5),)),
            "got 'rate'; a gyro sensor accepts: none",
        ),
        (
            NATIVE_SENSOR("s", "rangefinder", "site", "imu", parameters=(("data", "normal dist"),)),
            "data: got 'normal dist', expected some of 'dist dir origin point normal depth', in this order",
        ),
        (
            NATIVE_SENSOR("s", "insidesite", "geom", "hand", "site", "hall", parameters=(("enclosed", "yes"),)),
            "enclosed: got 'yes', expected true or false",
        ),
    ],
)
def test_impossible_native_sensor_is_refused_with_the_reason(requirement, message):
    """An engine rejects with sensor, reason and fix, before it modifies the model; sn.prepare uses the same words."""
    with pytest.raises(UnsupportedError, match=rf"sensor 'probe' requires NATIVE_SENSOR.*{message}"):
        MujocoEngine(MODEL).prepare(probe(requirement))
    model = mujoco.MjModel.from_xml_string(MODEL)
    with pytest.raises(UnsupportedError, match=message):
        MujocoEngine.from_mj(model, mujoco.MjData(model)).prepare(probe(requirement))
    if requirement.args[1]:
        with pytest.raises(ModelError, match=rf"native sensor '(s|late)': .*{message}"):
            prepare_spec(mujoco.MjSpec.from_string(MODEL), [requirement])


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        (NATIVE_SENSOR("s", "gyro", "site", "imus"), "unrecognized name 'imus' of sensorized object"),
        (NATIVE_SENSOR("s", "gyro", "body", "arm"), "sensor must be attached to site"),
        (NATIVE_SENSOR("s", "gyro"), "sensor"),
        (NATIVE_SENSOR("s", "jointpos", "joint", "ball"), "joint must be slide or hinge"),
        (NATIVE_SENSOR("s", "framepos", "site", "imu", "site", "nowhere"), "unrecognized name 'nowhere'"),
        (NATIVE_SENSOR("s", "framequat", "site", "imu", cutoff=1.0), "cutoff applied to axis or quaternion"),
        (NATIVE_SENSOR("s", "gyro", "site", "imu", cutoff=-1.0), "negative cutoff"),
        (NATIVE_SENSOR("s", "tactile", "mesh", "cloth", "geom", "skin"), "unrecognized name 'cloth'"),
    ],
)
def test_mujocos_rejection_names_sensor_and_reason(requirement, message):
    """MuJoCo's compile errors become one error about the sensor, and the engine is unchanged."""
    engine = MujocoEngine(MODEL)
    with pytest.raises(ModelError, match=rf"native sensor 's' cannot be added to the XML text: .*{message}"):
        engine.prepare(probe(requirement, BODY_POSE))
    assert engine.prepared == frozenset()
    engine.prepare(probe(BODY_POSE, READ["late"]))
    engine.step()


def test_name_belongs_to_one_sensor():
    """Two sensors that describe one name differently are rejected, together or one after the other."""
    gyro, other = ADDED["gyro"], NATIVE_SENSOR("gyro", "gyro", "site", "imu")
    with pytest.raises(
        ModelError, match="native sensor 'gyro': it was already added under this name with other settings"
    ):
        MujocoEngine(MODEL).prepare({gyro: "one", other: "two"})
    engine = MujocoEngine(MODEL)
    engine.prepare(probe(gyro))
    with pytest.raises(UnsupportedError, match="already added under this name with other settings: rename one"):
        engine.prepare(probe(other))


def test_user_sensors_and_disabled_sensors_are_refused():
    """A declared user sensor has no value from MuJoCo, and with the sensor flag off no sensor has one."""
    xml = f'<mujoco>{BODIES}<sensor><user name="mine" dim="2"/><clock name="time"/></sensor></mujoco>'
    off = xml.replace("<option ", '<option><flag sensor="disable"/></option><option ')
    for text, name, message in (
        (xml, "mine", "'mine' is a user sensor: its values come from a custom callback"),
        (off, "time", 'flag sensor="disable"'),
    ):
        model = mujoco.MjModel.from_xml_string(text)
        for engine in (MujocoEngine(text), MujocoEngine(model), MujocoEngine.from_mj(model, mujoco.MjData(model))):
            with pytest.raises(UnsupportedError, match=message):
                engine.prepare(probe(NATIVE_SENSOR(name)))


def test_kinetic_energy_is_refused_if_mujocos_value_is_outdated():
    """With the energy flag MuJoCo's sensor is late, by a call or by an env, so it is rejected; others are not."""
    xml = f"<mujoco>{BODIES}<sensor><e_kinetic name='own'/></sensor></mujoco>"
    late = xml.replace("<option ", '<option><flag energy="enable"/></option><option ')
    for requirement in (NATIVE_SENSOR("own"), ADDED["e_kinetic"]):
        with pytest.raises(UnsupportedError, match=r"kinetic energy of an earlier computation.*remove the flag"):
            MujocoEngine(late).prepare(probe(requirement))
        assert MujocoEngine(xml).supports(requirement) is None
    assert MujocoEngine(late).supports(ADDED["e_potential"]) is None


def test_unprepared_native_array_error_names_the_requirement():
    """Access to a native array that was not required raises an error that names NATIVE_SENSOR."""
    with pytest.raises(UnknownNameError, match=r"native:late.*It comes with NATIVE_SENSOR\('late'\)"):
        MujocoEngine(MODEL).array("native:late")
