"""Native sensors: accepted configs, and values that match MuJoCo's bit for bit in float32."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from scipy import stats

import sensorium as sn
from sensorium.engines.base import NativeSensor
from sensorium.engines.mujoco.live import LiveMujocoEngine
from sensorium.sensors import builtin
from sensorium.sensors.builtin import ONLY_DECLARED, TYPES
from sensorium.testing import check_sensor

pytest.importorskip("mujoco.batch")

KINDS = ("body", "xbody", "joint", "geom", "site", "actuator", "tendon", "camera", "mesh")
FRAME = ("body", "xbody", "geom", "site", "camera")

TAKES: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...], bool]] = {
    ("accelerometer", "velocimeter", "gyro", "force", "torque", "magnetometer", "touch"): (("site",), (), False),
    ("rangefinder",): (("site", "camera"), (), False),
    ("camprojection",): (("site",), ("camera",), True),
    ("jointpos", "jointvel", "jointlimitpos", "jointlimitvel", "jointlimitfrc", "jointactuatorfrc"): (
        ("joint",), (), False,
    ),
    ("ballquat", "ballangvel"): (("joint",), (), False),
    ("tendonpos", "tendonvel", "tendonlimitpos", "tendonlimitvel", "tendonlimitfrc", "tendonactuatorfrc"): (
        ("tendon",), (), False,
    ),
    ("actuatorpos", "actuatorvel", "actuatorfrc"): (("actuator",), (), False),
    ("framepos", "framequat", "framexaxis", "frameyaxis", "framezaxis", "framelinvel", "frameangvel"): (
        FRAME, FRAME, False,
    ),
    ("framelinacc", "frameangacc"): (FRAME, (), False),
    ("subtreecom", "subtreelinvel", "subtreeangmom"): (("body",), (), False),
    ("insidesite",): (FRAME, ("site",), True),
    ("distance", "normal", "fromto"): (("geom", "body"), ("geom", "body"), True),
    ("e_potential", "e_kinetic", "clock"): ((), (), False),
    ("tactile",): (("mesh",), ("geom",), True),
}  # fmt: skip
"""Types -> element kinds for obj, for ref, and whether a ref is required, from MuJoCo's manual."""
RULES = {name: rule for names, rule in TAKES.items() for name in names}


def ref(kind: str, name: str = "x", entity: str | None = None) -> sn.ObjRef:
    return sn.ObjRef(type=kind, name=name, entity=entity)  # type: ignore[arg-type]


def cfg_of(sensor_type: str, **fields: Any) -> sn.BuiltinSensorCfg:
    return sn.BuiltinSensorCfg(name="probe", sensor_type=sensor_type, **fields)


def faults(**fields: Any) -> dict[str, str]:
    """Return field -> message for every fault of a config."""
    with pytest.raises(sn.ConfigError) as caught:
        sn.BuiltinSensorCfg(**fields)
    return {fault.field: str(fault) for fault in caught.value.faults}


# Configs --------------------------------------------------------------------------------------------------------------


def test_every_type_of_mujoco_is_known() -> None:
    """There are 49 types: those that can be added, and three that only a model can declare (contact has a separate
    sensor).
    """
    assert set(TYPES) == set(RULES)
    assert len(TYPES) + len(ONLY_DECLARED) == len(mujoco.mjtSensor.__members__) == 49


@pytest.mark.parametrize("sensor_type", TYPES)
def test_type_accepts_the_same_elements_as_mujoco(sensor_type: str) -> None:
    objs, refs, needs_ref = RULES[sensor_type]
    fitting: dict[str, Any] = {"obj": ref(objs[0])} if objs else {}
    fitting |= {"ref": ref(refs[0])} if needs_ref else {}
    assert cfg_of(sensor_type, **fitting).sensor_type == sensor_type
    for field, taken in (("obj", objs), ("ref", refs)):
        for kind in KINDS:
            given = {"name": "probe", "sensor_type": sensor_type, **fitting, field: ref(kind)}
            if kind in taken:
                sn.BuiltinSensorCfg(**given)
                continue
            found = faults(**given)
            assert list(found) == [field]
            expected = " or ".join(taken[-2:]) if taken else f"{sensor_type} takes none"
            assert expected.replace(" or ", " or a ") in found[field] or not taken, found
            assert f"got ObjRef(type={kind!r}" in found[field]
    needed = ["obj"] * bool(objs) + ["ref"] * needs_ref
    for field in needed:
        rest = {name: value for name, value in fitting.items() if name != field}
        assert re.match(
            rf"{field}: got nothing, expected a reference .*{sensor_type} requires {field} with type=.*"
            rf"Write {field}=ObjRef",
            faults(name="probe", sensor_type=sensor_type, **rest)[field],
        )


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"sensor_type": "gyroo"}, "sensor_type", "Did you mean 'gyro'?"),
        ({"sensor_type": "contact"}, "sensor_type", "Use ContactSensorCfg(...) instead."),
        ({"sensor_type": "user"}, "sensor_type", "Declare it in the model's XML"),
        ({"sensor_type": "plugin"}, "sensor_type", "Declare it in the model's XML"),
        ({"sensor_type": "clock", "cutoff": -1.0}, "cutoff", "got -1.0, expected a finite number >= 0"),
        ({"sensor_type": "clock", "cutoff": float("nan")}, "cutoff", "got nan, expected a finite number >= 0"),
        ({"sensor_type": "clock", "obj": ref("site")}, "obj", "expected no obj for clock"),
        ({"sensor_type": "clock", "parameters": {"data": "dist"}}, "parameters", "expected none for this type"),
        ({"obj": ref("site")}, "obj", "without sensor_type"),
        ({"ref": ref("site")}, "ref", "without sensor_type"),
        ({"cutoff": 1.0}, "cutoff", "without sensor_type"),
        ({"name": ""}, "sensor_type", "from_existing(name)"),
    ],
)
def test_impossible_config_raises(fields: dict[str, Any], field: str, message: str) -> None:
    found = faults(**{"name": "probe", **fields})
    assert list(found) == [field]
    assert message in found[field]


def test_all_faults_are_reported_together() -> None:
    found = faults(name="probe", sensor_type="distance", ref=ref("joint"), cutoff=-1.0, noise=-0.1)
    assert set(found) == {"obj", "ref", "cutoff", "noise"}


@pytest.mark.parametrize(
    "cfg",
    [
        sn.BuiltinSensorCfg(name="a", sensor_type="gyro", obj=ref("site", "imu", "robot"), noise=0.1),
        sn.BuiltinSensorCfg(name="a", sensor_type="framepos", obj=ref("body"), ref=ref("xbody"), cutoff=2.0),
        sn.BuiltinSensorCfg(name="a", sensor_type="rangefinder", obj=ref("site"), parameters={"data": "dist normal"}),
        sn.BuiltinSensorCfg.from_existing("robot/imu", delay=0.01),
    ],
)
def test_configs_round_trip(cfg: sn.BuiltinSensorCfg) -> None:
    assert sn.BuiltinSensorCfg.from_json(cfg.to_json()) == cfg
    assert sn.BuiltinSensorCfg.from_toml(cfg.to_toml()) == cfg


def table_rows() -> Iterator[tuple[str, str, str, str]]:
    """Yield type, number of values, unit and frame of each row of the module's table."""
    lines = (builtin.__doc__ or "").splitlines()
    start = next(k for k, line in enumerate(lines) if line.strip().startswith("-----"))
    edges = [match.span() for match in re.finditer("-+", lines[start])]
    for line in lines[start + 1 :]:
        if not line.strip():
            return
        name, dim, unit, frame = (line[low:high].strip() for low, high in edges[:4])
        if name:
            yield name, dim, unit, frame


def test_documented_table_matches_the_code() -> None:
    rows = {name: rest for name, *rest in table_rows()}
    assert set(rows) - {"user, plugin"} == set(TYPES)
    for name, known in TYPES.items():
        dim, unit, frame = rows[name]
        assert dim == ("any" if known.dim is None else str(known.dim)), name
        assert unit == known.unit, name
        assert frame == {"sensor": "site"}.get(known.frame, known.frame), name


# Every type, on MuJoCo ------------------------------------------------------------------------------------------------

ZOO = """
<mujoco>
  <option timestep="0.004" magnetic="0.2 0 -0.4"/>
  <asset><mesh name="skin" builtin="wedge" params="4 4 60 60 0" scale=".1 .1 .1"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1"/>
    <body name="trunk" pos="0 0 .5">
      <freejoint/>
      <geom name="trunk" type="box" size=".15 .1 .05" pos=".02 0 0"/>
      <site name="imu" pos=".1 .02 .03" quat=".8 0 .6 0"/>
      <site name="zone" size=".5"/>
      <camera name="eye" pos="-.5 0 .1" xyaxes="0 -1 0 0 0 1" resolution="4 3" fovy="60"/>
      <body name="leg" pos=".2 0 0">
        <joint name="hip" axis="0 1 0" range="-.3 .3" limited="true" margin=".6"/>
        <geom name="leg" type="capsule" fromto="0 0 0 0 0 -.2" size=".03"/>
        <body name="foot" pos="0 0 -.25">
          <joint name="ankle" type="ball"/>
          <geom name="foot" size=".04"/>
          <site name="sole" size=".06"/>
        </body>
      </body>
      <body name="rail" pos="-.2 0 0">
        <joint name="slide" type="slide" axis="0 0 1" damping="2"/>
        <geom size=".04"/>
      </body>
    </body>
    <body name="ball" pos=".4 .1 .05"><freejoint/><geom name="ball" size=".05"/></body>
  </worldbody>
  <tendon>
    <spatial name="rope" range="0 .2" limited="true" margin=".5"><site site="imu"/><site site="sole"/></spatial>
  </tendon>
  <actuator><motor name="motor" joint="hip" gear="3"/><motor name="winch" tendon="rope"/></actuator>
</mujoco>
"""
ELEMENTS = {
    "joint": "hip", "tendon": "rope", "actuator": "motor", "site": "imu", "body": "trunk", "xbody": "leg",
    "geom": "trunk", "camera": "eye", "mesh": "skin",
}  # fmt: skip
OTHER = {
    "site": "zone", "body": "leg", "xbody": "trunk", "geom": "ball", "camera": "eye",
}  # fmt: skip
SPECIAL: dict[str, dict[str, Any]] = {
    "touch": {"obj": ref("site", "sole")},
    "ballquat": {"obj": ref("joint", "ankle")},
    "ballangvel": {"obj": ref("joint", "ankle")},
    "insidesite": {"obj": ref("site", "sole"), "ref": ref("site", "zone")},
    "distance": {"obj": ref("geom", "foot"), "ref": ref("geom", "ball"), "cutoff": 3.0},
    "normal": {"obj": ref("body", "foot"), "ref": ref("geom", "ball"), "cutoff": 3.0},
    "fromto": {"obj": ref("geom", "foot"), "ref": ref("body", "ball"), "cutoff": 3.0},
    "tactile": {"obj": ref("mesh", "skin"), "ref": ref("geom", "foot")},
    "camprojection": {"obj": ref("site", "imu"), "ref": ref("camera", "eye")},
}


def zoo_configs() -> list[sn.BuiltinSensorCfg]:
    """Return one config for each type, and for each kind of element a frame, with and without a reference."""
    configs = []
    for sensor_type, (objs, _, _) in RULES.items():
        special = SPECIAL.get(sensor_type)
        if special is not None:
            configs.append(sn.BuiltinSensorCfg(name=sensor_type, sensor_type=sensor_type, **special))
            continue
        for kind in objs or ("",):
            obj = {"obj": ref(kind, ELEMENTS[kind])} if kind else {}
            configs.append(sn.BuiltinSensorCfg(name=f"{sensor_type}_{kind}", sensor_type=sensor_type, **obj))
    for sensor_type in ("framepos", "framequat", "framexaxis", "framelinvel", "frameangvel"):
        for kind in FRAME:
            configs.append(
                sn.BuiltinSensorCfg(
                    name=f"{sensor_type}_to_{kind}", sensor_type=sensor_type, obj=ref("site", "sole"),
                    ref=ref(kind, OTHER[kind]),
                )
            )  # fmt: skip
    configs += [
        sn.BuiltinSensorCfg(name="bounded", sensor_type="jointvel", obj=ref("joint", "hip"), cutoff=0.05),
        sn.BuiltinSensorCfg(name="sliding", sensor_type="jointpos", obj=ref("joint", "slide")),
        sn.BuiltinSensorCfg(
            name="hit", sensor_type="rangefinder", obj=ref("site", "imu"), parameters={"data": "dist point normal"}
        ),
        sn.BuiltinSensorCfg(
            name="within", sensor_type="insidesite", obj=ref("body", "foot"), ref=ref("site", "zone"),
            parameters={"enclosed": True},
        ),
    ]  # fmt: skip
    return configs


def as_xml(cfg: sn.BuiltinSensorCfg) -> str:
    """Return a config as a line of MuJoCo's XML, following the manual."""
    attributes = {"name": cfg.name}
    obj, other, kind = cfg.obj, cfg.ref, cfg.sensor_type
    if obj is not None:
        generic = kind.startswith("frame") or kind == "insidesite"
        numbered = {"distance": "1", "normal": "1", "fromto": "1"}.get(kind, "")
        attributes |= {"objtype": obj.type, "objname": obj.name} if generic else {f"{obj.type}{numbered}": obj.name}
    if other is not None:
        numbered = {"distance": "2", "normal": "2", "fromto": "2"}.get(kind, "")
        generic = kind.startswith("frame")
        attributes |= (
            {"reftype": other.type, "refname": other.name} if generic else {f"{other.type}{numbered}": other.name}
        )
    if cfg.cutoff:
        attributes["cutoff"] = str(cfg.cutoff)
    for name, value in (cfg.parameters or {}).items():
        attributes[name] = str(value).lower()
    return f"<{kind} " + " ".join(f'{name}="{value}"' for name, value in attributes.items()) + "/>"


def with_sensors(xml: str, *lines: str) -> str:
    return xml.replace("</mujoco>", f"<sensor>{''.join(lines)}</sensor></mujoco>")


def throw(model: Any, data: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data.qvel[:] = rng.normal(size=model.nv)
    data.ctrl[:] = rng.uniform(-1.0, 1.0, size=model.nu)


def native_values(model: Any, data: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return MuJoCo's sensordata for the state of `data`, in float32."""
    fresh = mujoco.MjData(model)
    state = mujoco.mjtState.mjSTATE_INTEGRATION
    row = np.empty(mujoco.mj_stateSize(model, state))
    mujoco.mj_getState(model, data, row, state)
    mujoco.mj_setState(model, fresh, row, state)
    mujoco.mj_forward(model, fresh)
    names = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_SENSOR, i) for i in range(model.nsensor)]
    return {
        name: fresh.sensordata[start : start + dim].astype(np.float32)
        for name, start, dim in zip(names, model.sensor_adr, model.sensor_dim, strict=True)
    }


def compare(scene: sn.Scene, names: list[str], model: Any, datas: list[Any], steps: int = 12) -> set[str]:
    """Step a scene beside MuJoCo, compare bits, and return the sensors that ever had a nonzero value."""
    for env, data in enumerate(datas):
        scene.engine.qvel[env] = torch.from_numpy(data.qvel)  # type: ignore[attr-defined]
        scene.engine.ctrl[env] = torch.from_numpy(data.ctrl)  # type: ignore[attr-defined]
    scene.engine.forward()
    scene.update()
    alive = set()
    for _ in range(steps):
        expected = [native_values(model, data) for data in datas]
        for name in names:
            value = scene[name].data
            rows = np.stack([each[name] for each in expected])
            assert value.numpy().tobytes() == rows.tobytes(), (name, value, rows)
            alive |= {name} if rows.any() else set()
        scene.step(substeps=5)
        for data in datas:
            for _ in range(5):
                mujoco.mj_step(model, data)
    return alive


def test_every_added_type_equals_mujocos() -> None:
    """Values match a model that declares the same sensors in XML and is stepped by MuJoCo."""
    configs = zoo_configs()
    model = mujoco.MjModel.from_xml_string(with_sensors(ZOO, *(as_xml(cfg) for cfg in configs)))
    datas = [mujoco.MjData(model) for _ in range(2)]
    for env, data in enumerate(datas):
        throw(model, data, env)
    scene = sn.Scene(sn.MujocoEngine(ZOO, 2), configs)
    names = [cfg.label for cfg in configs]
    assert list(scene) == names  # added sensors are hidden
    alive = compare(scene, names, model, datas)
    assert alive == set(names), "what was 0 all the time was not compared"
    for cfg in configs:
        (spec,) = scene[cfg].specs
        known = TYPES[cfg.sensor_type]
        assert known.dim in (None, *spec.shape), cfg
        assert spec.kind == ("rotation" if cfg.sensor_type in ("framequat", "ballquat") else "vector"), cfg


def test_every_declared_type_is_discovered() -> None:
    """The same sensors in the XML are found, with the units of their elements, and are equal bit for bit."""
    contact = '<contact name="contact" geom1="foot" data="found force" num="2"/>'
    lines = [*(as_xml(cfg) for cfg in zoo_configs()), contact]
    xml = with_sensors(ZOO, *lines)
    model = mujoco.MjModel.from_xml_string(xml)
    datas = [mujoco.MjData(model)]
    throw(model, datas[0], 5)
    scene = sn.Scene(sn.MujocoEngine(xml))
    names = list(scene)
    assert len(names) == len(lines) == model.nsensor
    assert compare(scene, names, model, datas) == set(names), "what was 0 all the time was not compared"
    units = {"jointpos_joint": "rad", "sliding": "m", "contact": "", "magnetometer_site": "field", "within": "m"}
    assert {name: scene[name].specs[0].unit for name in units} == units
    assert scene["contact"].data.shape == (1, 8)


def test_typed_and_declared_sensors_have_the_unit_of_their_element() -> None:
    """A hinge reads rad and a slide reads m, for a sensor in the XML as well as in a config."""
    joints = {"turning": "hinge", "moving": "slide"}
    bodies = "".join(
        f'<body><joint name="{name}" type="{kind}"/><geom size="0.1"/></body>' for name, kind in joints.items()
    )
    declared = "".join(f'<jointpos name="declared_{name}" joint="{name}"/>' for name in joints)
    xml = f"<mujoco><worldbody>{bodies}</worldbody><sensor>{declared}</sensor></mujoco>"
    typed = [
        sn.BuiltinSensorCfg(name=f"typed_{name}", sensor_type="jointpos", obj={"type": "joint", "name": name})
        for name in joints
    ]
    scene = sn.Scene(sn.MujocoEngine(xml), typed)
    for name, unit in (("turning", "rad"), ("moving", "m")):
        assert scene[f"typed_{name}"].specs[0].unit == scene[f"declared_{name}"].specs[0].unit == unit


def test_user_computed_sensor_is_omitted_with_the_reason() -> None:
    xml = with_sensors(ZOO, '<user name="user" dim="3"/>', '<clock name="clock"/>')
    scene = sn.Scene(sn.MujocoEngine(xml))
    assert list(scene) == ["clock"]
    with pytest.raises(sn.UnsupportedError, match=r"'user'.*its values come from a custom callback"):
        scene["user"]


def test_a_reference_of_an_acceleration_is_refused_because_mujoco_ignores_it() -> None:
    spec = mujoco.MjSpec.from_string(ZOO)
    for name, reftype in (("plain", mujoco.mjtObj.mjOBJ_UNKNOWN), ("relative", mujoco.mjtObj.mjOBJ_BODY)):
        spec.add_sensor(
            name=name, type=mujoco.mjtSensor.mjSENS_FRAMELINACC, objtype=mujoco.mjtObj.mjOBJ_BODY, objname="foot",
            reftype=reftype, refname="trunk" if name == "relative" else "",
        )  # fmt: skip
    model = spec.compile()
    data = mujoco.MjData(model)
    throw(model, data, 1)
    values = native_values(model, data)
    assert values["plain"].any()
    assert np.array_equal(values["plain"], values["relative"])
    with pytest.raises(sn.ConfigError, match="expected no ref for framelinacc"):
        cfg_of("framelinacc", obj=ref("body", "foot"), ref=ref("body", "trunk"))


# Signs and frames -----------------------------------------------------------------------------------------------------

STAND = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1"/>
    <body name="post" pos="0 0 1">
      <joint name="hinge" axis="0 0 1" range="-10 10" limited="true"/>
      <geom name="post" size=".1" mass="2"/>
      <site name="imu"/>
      <site name="up" pos=".1 0 .1"/>
      <camera name="eye" pos="0 -1 0" xyaxes="1 0 0 0 0 1" resolution="100 50" fovy="60"/>
      <geom name="arm" size=".1" mass="1" pos=".3 0 0"/>
    </body>
    <body name="weight" pos="2 0 .0999">
      <freejoint/>
      <geom name="weight" size=".1" mass="3"/>
      <site name="pad" size=".2"/>
    </body>
  </worldbody>
</mujoco>
"""


def at_rest(*configs: sn.BuiltinSensorCfg, hinge: float = 0.0) -> dict[str, list[float]]:
    engine = sn.MujocoEngine(STAND)
    scene = sn.Scene(engine, configs)
    engine.qpos[:, 0] = hinge
    engine.forward()
    scene.update()
    return {name: scene[name].data[0].tolist() for name in scene}


def test_forces_support_a_body_and_accelerations_include_gravity() -> None:
    """A post of 3 kg on an upright hinge: the parent supports it with m g and counters the moment of its 1 kg arm."""
    g, site = 9.81, {"obj": ref("site", "imu")}
    shown = at_rest(
        sn.BuiltinSensorCfg(name="force", sensor_type="force", **site),
        sn.BuiltinSensorCfg(name="torque", sensor_type="torque", **site),
        sn.BuiltinSensorCfg(name="weight", sensor_type="touch", obj=ref("site", "pad")),
        sn.BuiltinSensorCfg(name="acc", sensor_type="accelerometer", obj=ref("site", "pad")),
        sn.BuiltinSensorCfg(name="linacc", sensor_type="framelinacc", obj=ref("xbody", "weight")),
    )
    assert shown["force"] == pytest.approx([0.0, 0.0, 3.0 * g], abs=1e-5)
    assert shown["torque"] == pytest.approx([0.0, -0.3 * g, 0.0], abs=1e-5)
    assert shown["weight"][0] > 0.0
    assert shown["acc"][2] == pytest.approx(shown["linacc"][2], rel=1e-5)
    assert shown["acc"][2] == pytest.approx(shown["weight"][0] / 3.0, rel=1e-3)


def test_distances_limits_and_pixels_have_the_documented_signs() -> None:
    two = {"obj": ref("geom", "post"), "ref": ref("geom", "floor"), "cutoff": 5.0}
    shown = at_rest(
        sn.BuiltinSensorCfg(name="gap", sensor_type="distance", **two),
        sn.BuiltinSensorCfg(name="normal", sensor_type="normal", **two),
        sn.BuiltinSensorCfg(name="points", sensor_type="fromto", **two),
        sn.BuiltinSensorCfg(name="near", sensor_type="distance", **{**two, "cutoff": 0.2}),
        sn.BuiltinSensorCfg(
            name="pressed", sensor_type="distance", obj=ref("geom", "weight"), ref=ref("geom", "floor"), cutoff=1.0
        ),
        sn.BuiltinSensorCfg(name="ray", sensor_type="rangefinder", obj=ref("site", "imu")),
        sn.BuiltinSensorCfg(name="pixel", sensor_type="camprojection", obj=ref("site", "up"), ref=ref("camera", "eye")),
        sn.BuiltinSensorCfg(name="limit", sensor_type="jointlimitpos", obj=ref("joint", "hinge")),
    )
    assert shown["gap"] == pytest.approx([0.9])
    assert shown["normal"] == pytest.approx([0.0, 0.0, -1.0])
    assert shown["points"] == pytest.approx([0.0, 0.0, 0.9, 0.0, 0.0, 0.0], abs=1e-6)
    assert shown["near"] == pytest.approx([0.2])
    assert shown["pressed"] == pytest.approx([-1e-4], rel=1e-2)
    assert shown["ray"] == [-1.0]
    column, row = shown["pixel"]  # to the right of the middle and above it
    pixel = 25.0 / np.tan(np.radians(30.0))  # focal length, of half the image's height
    assert column == pytest.approx(50.0 + 0.1 * pixel, rel=1e-5)
    assert row == pytest.approx(25.0 - 0.1 * pixel, rel=1e-5)
    assert shown["limit"] == [0.0]
    limit, force = (
        sn.BuiltinSensorCfg(name=name, sensor_type=f"jointlimit{name}", obj=ref("joint", "hinge"))
        for name in ("pos", "frc")
    )
    beyond = at_rest(limit, force, hinge=np.radians(10.0) + 0.02)
    assert beyond["pos"] == pytest.approx([-0.02], rel=1e-4)
    assert beyond["frc"][0] > 0.0


# Names and entities ---------------------------------------------------------------------------------------------------

ARM = """
<mujoco>
  <worldbody><body name="link"><joint name="hinge" axis="0 1 0"/><geom size=".1" pos=".1 0 0"/><site name="tip"/></body>
  </worldbody>
  <sensor><jointpos name="angle" joint="hinge"/><framequat name="turn" objtype="xbody" objname="link"/></sensor>
</mujoco>
"""


def test_entity_selects_a_prefix_if_there_are_any() -> None:
    gyro = sn.BuiltinSensorCfg(name="gyro", sensor_type="gyro", obj=ref("site", "tip", "left"))
    far = sn.BuiltinSensorCfg(
        name="far", sensor_type="framepos", obj=ref("xbody", "link", "left"), ref=ref("xbody", "link", "right")
    )
    engine = sn.MujocoEngine.compose({"left": ARM, "right": (ARM, (0.0, 2.0, 0.0))})
    scene = sn.Scene(engine, [gyro, far])
    assert list(scene) == ["left/gyro", "left/far", "left/angle", "left/turn", "right/angle", "right/turn"]
    assert scene["gyro"].info.notes["native"] == "gyro on site 'left/tip', added to the model for this config"
    assert scene["far"].data.tolist() == [[0.0, -2.0, 0.0]]
    assert scene["left/angle"].info.notes["native"] == "jointpos on joint 'left/hinge', declared by the model"
    engine.qpos[:] = torch.tensor([0.5, -0.25])
    engine.forward()
    scene.update()
    assert [scene[f"{side}/angle"].data.item() for side in ("left", "right")] == [0.5, -0.25]
    with pytest.raises(sn.SelectionError, match=r"left/angle, right/angle"):
        scene["angle"]


def test_without_prefixes_an_entity_means_the_whole_model_and_prefixes_the_sensor_only() -> None:
    cfg = sn.BuiltinSensorCfg(name="gyro", sensor_type="gyro", obj=ref("site", "tip", "robot"))
    scene = sn.Scene(sn.MujocoEngine(ARM), [cfg])
    assert list(scene) == ["robot/gyro", "angle", "turn"]
    assert scene[cfg] is scene["gyro"]
    assert scene[cfg].info.notes["native"] == "gyro on site 'tip', added to the model for this config"


def test_element_can_be_named_by_a_pattern_with_one_match() -> None:
    cfg = cfg_of("framepos", obj=ref("xbody", "li.*", "right"))
    engine = sn.MujocoEngine.compose({"left": ARM, "right": (ARM, (0.0, 2.0, 0.0))})
    assert sn.Scene(engine, [cfg])["probe"].data.tolist() == [[0.0, 2.0, 0.0]]


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (ref("site", "tipp"), r"obj: got 'tipp', expected the name of a site in the model. Did you mean 'tip'\?"),
        (ref("site", ".*"), r"obj: got '\.\*', expected exactly one site. It matches root, tip. Give the name"),
        (ref("camera", "eye"), "eye"),
    ],
)
def test_element_must_exist(obj: sn.ObjRef, message: str) -> None:
    sensor_type = "rangefinder"
    xml = ARM.replace("<worldbody>", '<worldbody><site name="root"/>')
    with pytest.raises(sn.SensoriumError, match=message):
        sn.Scene(sn.MujocoEngine(xml), [cfg_of(sensor_type, obj=obj)])


def test_name_declared_in_the_xml_raises_with_the_fix() -> None:
    cfg = sn.BuiltinSensorCfg(name="angle", sensor_type="jointvel", obj=ref("joint", "hinge"))
    with pytest.raises(sn.DuplicateNameError, match=r"'angle' .* in the model's XML \(jointpos on joint.*'angle_2'"):
        sn.Scene(sn.MujocoEngine(ARM), [cfg])
    with pytest.raises(sn.DuplicateNameError, match=r"from_existing\('angle'"):
        sn.Scene(sn.MujocoEngine(ARM), [cfg], discover=False)


def test_reserved_sensor_can_be_added_late() -> None:
    cfg = cfg_of("jointvel", obj=ref("joint", "hinge"))
    scene = sn.Scene(sn.MujocoEngine(ARM), reserve=[cfg])
    scene.step(substeps=3)
    scene.add(cfg)
    assert scene["probe"].data.item() == pytest.approx(float(scene.engine.qvel[0, 0]), rel=1e-6)  # type: ignore[attr-defined]
    bare = sn.Scene(sn.MujocoEngine(ARM))
    bare.step()
    with pytest.raises(sn.UnsupportedError, match="Reserve it"):
        bare.add(cfg)
    bare.add(sn.BuiltinSensorCfg.from_existing("angle", noise=0.1))  # the model has this sensor anyway


# Live objects and models from elsewhere -------------------------------------------------------------------------------


def live(xml_or_spec: Any, seed: int = 0, envs: int = 1, **options: Any) -> tuple[Any, list[Any], LiveMujocoEngine]:
    spec = mujoco.MjSpec.from_string(xml_or_spec) if isinstance(xml_or_spec, str) else xml_or_spec
    model = spec.compile()
    datas = [mujoco.MjData(model) for _ in range(envs)]
    for env, data in enumerate(datas):
        throw(model, data, seed + env)
    return model, datas, sn.MujocoEngine.from_mj(model, datas, **options)


@pytest.mark.parametrize("fresh", [True, False])
def test_the_sensors_of_live_objects_are_discovered(fresh: bool) -> None:
    """With fresh=True, values are those of the state after the last step; otherwise sensordata of mj_step, one tick
    old.
    """
    lines = [as_xml(cfg) for cfg in zoo_configs()]
    model, datas, engine = live(with_sensors(ZOO, *lines), envs=2, fresh=fresh)
    scene = sn.Scene(engine)
    assert len(scene) == len(lines)
    for _ in range(4):
        for data in datas:
            mujoco.mj_step(model, data)
        scene.update()
    for name in scene:
        rows = [native_values(model, data)[name] if fresh else data.sensor(name).data for data in datas]
        assert np.array_equal(scene[name].data.numpy(), np.stack(rows).astype(np.float32)), name
        assert scene[name].age.tolist() == [0.0 if fresh else model.opt.timestep] * 2


def test_a_spec_is_prepared_for_live_objects() -> None:
    gyro = sn.BuiltinSensorCfg(name="gyro", sensor_type="gyro", obj=ref("site", "tip", "robot"))
    spec = sn.prepare(mujoco.MjSpec.from_string(ARM), [gyro])
    model, datas, engine = live(spec)
    scene = sn.Scene(engine, [gyro])
    assert list(scene) == ["robot/gyro", "angle", "turn"]
    mujoco.mj_step(model, datas[0])
    scene.update()
    assert scene["gyro"].data[0, 1].item() == pytest.approx(float(datas[0].qvel[0]), rel=1e-6)
    _, _, sealed = live(ARM)
    with pytest.raises(sn.UnsupportedError, match="prepare"):
        sn.Scene(sealed, [gyro])


@pytest.mark.parametrize(
    ("file", "count"),
    [
        ("quadruped", 32),
        ("humanoid", 34),
        pytest.param("dog", 13, marks=pytest.mark.full),
        ("manipulator", 5),
        ("finger", 12),
        ("reacher", 0),
    ],
)
def test_all_sensors_of_known_models_are_discovered_and_equal_mujocos(file: str, count: int) -> None:
    dm_control = pytest.importorskip("dm_control")
    path = Path(dm_control.__file__).parent / f"suite/{file}.xml"
    model = mujoco.MjModel.from_xml_path(str(path))
    datas = [mujoco.MjData(model) for _ in range(2)]
    for env, data in enumerate(datas):
        throw(model, data, env)
    scene = sn.Scene(sn.MujocoEngine(str(path), 2))
    assert len(scene) == model.nsensor == count
    compare(scene, list(scene), model, datas, steps=6)


def test_unfresh_batch_shows_the_values_of_mj_step() -> None:
    """With fresh=False, sensordata is as MuJoCo computed it during the last step, one tick old, also if it is read
    late.
    """
    xml = with_sensors(ZOO, '<force name="force" site="imu"/>', '<framepos name="pos" objtype="geom" objname="leg"/>')
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    throw(model, data, 3)
    engine = sn.MujocoEngine(xml, fresh=False)
    scene = sn.Scene(engine)
    engine.qvel[0] = torch.from_numpy(data.qvel)
    engine.ctrl[0] = torch.from_numpy(data.ctrl)
    engine.forward()
    for name in ("force", "pos"):  # "pos" is first read a few ticks later
        for _ in range(4):
            scene.step()
            mujoco.mj_step(model, data)
            assert np.array_equal(scene[name].data[0].numpy(), data.sensor(name).data.astype(np.float32))
            assert scene[name].age.tolist() == [model.opt.timestep]


def test_sensors_added_by_requirements_are_not_discovered() -> None:
    imu = sn.ImuCfg(name="imu", site="tip")  # adds a hidden accelerometer
    scene = sn.Scene(sn.MujocoEngine(ARM), [imu])
    assert list(scene) == ["imu", "angle", "turn"]


def test_model_is_computed_only_as_far_as_reads_require() -> None:
    xml = with_sensors(ZOO, '<force name="force" site="imu"/>', '<jointpos name="pos" joint="hip"/>')
    engine = sn.MujocoEngine(xml)
    scene = sn.Scene(engine)
    scene.step()
    assert engine._plan.stage == int(mujoco.mjtStage.mjSTAGE_NONE)
    _ = scene["pos"].data
    assert engine._plan.stage == int(mujoco.mjtStage.mjSTAGE_POS)
    _ = scene["force"].data
    assert engine._plan.stage == int(mujoco.mjtStage.mjSTAGE_ACC)


def test_mujoco_scene_resumes_after_other_sensors_were_read() -> None:
    xml = with_sensors(ZOO, '<force name="force" site="imu"/>', '<jointpos name="pos" joint="hip"/>')
    scene, other = sn.Scene(sn.MujocoEngine(xml)), sn.Scene(sn.MujocoEngine(xml))
    scene.engine.qvel[:] = 1.0  # type: ignore[attr-defined]
    _ = scene["force"].data, other["pos"].data
    scene.step(substeps=5)
    other.load_state(scene.state())
    for _ in range(3):
        for name in scene:
            assert torch.equal(scene[name].data, other[name].data)
        scene.step(substeps=3)
        other.step(substeps=3)


# Measurement ----------------------------------------------------------------------------------------------------------


def tensor_engine(envs: int = 4) -> sn.TensorEngine:
    """`subject` and `other` are unit quaternions that rotate; `vector` and its twin have three numbers at all times."""
    quat = {name: NativeSensor(name, "framequat", 4, "1", "quat") for name in ("subject", "other")}

    def motion(t: float) -> dict[str, torch.Tensor]:
        angle = 3.0 * t + torch.arange(float(envs))[:, None]
        turn = torch.cat([angle.cos(), 0.6 * angle.sin(), 0.0 * angle, 0.8 * angle.sin()], dim=1)
        return {f"native:{name}": turn for name in quat}

    return sn.TensorEngine(envs, 0.002, native=quat, motion=motion)


def vector_engine(envs: int = 4) -> sn.TensorEngine:
    names = ("subject", "other")

    def motion(t: float) -> dict[str, torch.Tensor]:
        phase = t + torch.arange(float(envs))[:, None] + torch.arange(7.0)
        return {f"native:{name}": phase.sin() for name in names}

    return sn.TensorEngine(envs, 0.002, native=dict.fromkeys(names, 7), motion=motion)


@pytest.mark.parametrize("make", [tensor_engine, vector_engine])
def test_contract_holds(make: Any) -> None:
    rules = check_sensor(sn.BuiltinSensorCfg.from_existing("subject"), make)
    assert {"resuming_is_exact", "lazy_equals_eager", "truth_is_never_altered"} <= set(rules)


def test_quaternion_gets_rotation_noise_and_stays_unit() -> None:
    """For small rotation noise sigma, the error angle has a mean square of 3 sigma^2 (chi squared, 3 degrees)."""
    sigma, envs = 0.02, 4000
    scene = sn.Scene(tensor_engine(envs), [sn.BuiltinSensorCfg.from_existing("subject", noise=sigma)])
    scene.step()
    shown, true = scene["subject"].data.double(), scene["subject"].ground_truth.double()
    assert (shown.norm(dim=1) - 1.0).abs().max() < 4 * 2.0**-24
    half = (shown * true).sum(dim=1).abs().clamp(max=1.0)
    squares = float(((2.0 * torch.arccos(half)) ** 2).sum()) / sigma**2
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], 3 * envs)
    assert low * 0.999 < squares < high * 1.001  # the small-angle approximation neglects sigma^2 = 4e-4


def test_scalars_get_noise_per_column_with_its_deviation() -> None:
    sigma = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    scene = sn.Scene(vector_engine(3000), [sn.BuiltinSensorCfg.from_existing("subject", noise=sigma)])
    scene.step()
    error = (scene["subject"].data - scene["subject"].ground_truth).numpy() / np.array(sigma)
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], len(error))
    assert ((low < (error**2).sum(axis=0)) & ((error**2).sum(axis=0) < high)).all()


def test_native_value_is_delayed_and_kept_in_the_history() -> None:
    cfg = sn.BuiltinSensorCfg.from_existing("pos", delay=0.008, history_length=3)
    xml = with_sensors(ZOO, '<framepos name="pos" objtype="site" objname="imu"/>')
    scene = sn.Scene(sn.MujocoEngine(xml), [cfg])
    seen = []
    for _ in range(6):
        scene.step()
        seen.append(scene["pos"].ground_truth.clone())
    assert torch.equal(scene["pos"].data, seen[-3])  # 2 ticks of 4 ms
    assert torch.equal(scene["pos"].history, torch.stack(seen[:-4:-1], dim=1))


def test_quaternion_knobs_are_rotation_knobs() -> None:
    with pytest.raises(sn.ConfigError, match="no resolution: rotations"):
        sn.Scene(tensor_engine(), [sn.BuiltinSensorCfg.from_existing("subject", resolution=0.1)])


def test_non_finite_state_is_flagged() -> None:
    engine = sn.TensorEngine(2, native={"probe": 3})
    scene = sn.Scene(engine)
    engine.native["probe"][1, 2] = float("nan")
    scene.update()
    with pytest.warns(sn.NonFiniteStateWarning, match="sensor 'probe'.* env 1"):
        _ = scene["probe"].data
    assert scene["probe"].valid.tolist() == [True, False]


def test_measured_ranges_stay_within_the_cutoff_and_misses_have_no_noise() -> None:
    """A ray down to a plane 0.03 m below, one at the cutoff of 0.5 m, one to the sky; two spheres at the cutoff."""
    xml = """<mujoco><worldbody><geom name="floor" type="plane" size="9 9 1"/>
      <body mocap="true"><site name="low" pos="0 0 .03" euler="180 0 0"/>
      <site name="high" pos="0 0 .499" euler="180 0 0"/>
      <site name="up" pos="0 0 1"/></body>
      <geom name="a" pos="2 0 2" size=".1"/><geom name="b" pos="2.69 0 2" size=".1"/>
    </worldbody></mujoco>"""
    rays = [
        sn.BuiltinSensorCfg(name=site, sensor_type="rangefinder", obj=ref("site", site), cutoff=0.5, noise=0.05)
        for site in ("low", "high", "up")
    ]
    gap = sn.BuiltinSensorCfg(
        name="gap", sensor_type="distance", obj=ref("geom", "a"), ref=ref("geom", "b"), cutoff=0.5, noise=0.05
    )
    scene = sn.Scene(sn.MujocoEngine(xml, 500), [*rays, gap])
    low, high, up, between = (scene[name].data for name in ("low", "high", "up", "gap"))
    assert (up == -0.5).all()  # MuJoCo limits the -1 of a miss, too
    assert (low >= 0.0).all() and (low == 0.0).float().mean() == pytest.approx(0.274, abs=0.08)
    for values, end in ((high, 0.492), (between, 0.421)):
        assert (values <= 0.5).all() and (values == 0.5).float().mean() == pytest.approx(end, abs=0.09)
