"""Requirements mean the same on every engine: MuJoCo's functions on one state are compared with all engines.

The state has contact, active motors, bodies that rotate about centres of mass off their frames, and a welded body. Only
the ball and the ground collide, because mujoco_warp compiles a kernel for each pair of shape types that may collide.
A TensorEngine has the values that its user writes; it verifies that shapes, rows and names are the same.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.engines.base import ARRAYS
from sensorium.engines.mujoco.spec import prepare_spec
from sensorium.spec import (
    CONTACT_REPORT,
    JOINT_WRENCH,
    MODEL_ELEMENTS,
    NATIVE_SENSOR,
    SHAPES,
    Requirement,
    contact_array,
)

XML = """
<mujoco>
  <option gravity="0.5 0 -9.81" magnetic="0.2 0 -0.4" integrator="implicitfast"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <geom name="ground" type="plane" size="5 5 .1" contype="1"/>
    <camera name="eye" pos="0 0 3" fovy="50"/>
    <body name="plate"><geom name="plate" type="box" size=".1 .1 .01" pos="3 0 0"/></body>
    <body name="ball" pos="2 0 .0995"><freejoint/><geom name="ball" size=".1" mass="3" conaffinity="1"/></body>
    <body name="base" pos="0 0 1" euler="20 30 40">
      <freejoint/>
      <geom name="base" type="box" size=".2 .1 .05" pos=".03 -.02 .04" mass="2"/>
      <site name="imu" pos="0.1 0.02 0.03" euler="40 0 20"/>
      <body name="arm" pos=".2 0 0">
        <joint name="shoulder" axis="0 1 0" damping="0.1" armature="0.01"/>
        <geom name="arm" type="capsule" size=".03 .15" pos="0 0 -.2" mass="0.5"/>
        <site name="flange"/>
        <body name="rod" pos="0 0 -.35">
          <joint name="slide" type="slide" axis="0 0 1"/>
          <geom name="rod" type="cylinder" size=".02 .1" pos=".01 0 -.1" mass="0.2"/>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon><spatial name="cord" width=".02"><site site="imu"/><site site="flange"/></spatial></tendon>
  <actuator><motor joint="shoulder" gear="2"/><motor joint="slide" gear="5"/></actuator>
  <sensor>
    <gyro name="gyro" site="imu"/>
    <force name="force" site="flange"/>
    <torque name="torque" site="flange"/>
  </sensor>
</mujoco>
"""
ENVS, BODIES, JOINTS = 2, ("plate", "ball", "base", "arm", "rod"), ("shoulder", "slide")
COLUMNS = ("found", "force", "dist", "pos", "normal")
REPORT = CONTACT_REPORT(("body", ("ball",)), ("geom", "ground"), COLUMNS, "maxforce", 1)
NATIVE = NATIVE_SENSOR("gyro")
BOXES = {"ground": "plane", "plate": "box", "ball": "sphere", "base": "box", "arm": "capsule", "rod": "cylinder"}

CORD = sn.engines.Shape("capsule", "cord", (0.02, 1.0), element="tendon")


def _add_marker(spec: Any) -> None:
    spec.worldbody.add_site(name="marker")


ELEMENTS = MODEL_ELEMENTS(_add_marker)
ALL = [*ARRAYS, NATIVE, REPORT]


def _state(model: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    data = mujoco.MjData(model)
    qpos = data.qpos + 0.0
    qpos[-2:] = 0.4, 0.05
    return qpos, np.linspace(-1.0, 1.5, model.nv) * (np.arange(model.nv) >= 6), np.array([0.7, -0.3])


def _reference() -> dict[str, np.ndarray]:
    """Return the expected value of each array, one environment, from MuJoCo's functions and sensors."""
    model = mujoco.MjModel.from_xml_string(XML)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.ctrl[:] = _state(model)
    mujoco.mj_forward(model, data)
    ids = [model.body(name).id for name in BODIES]
    motion: dict[str, list[Any]] = {name: [] for name in ("vel", "acc")}
    for body in ids:
        for name, function in (("vel", mujoco.mj_objectVelocity), ("acc", mujoco.mj_objectAcceleration)):
            values = np.zeros(6)
            function(model, data, mujoco.mjtObj.mjOBJ_XBODY, body, values, 0)
            motion[name].append(values)
    vel, acc = (np.array(values) for values in motion.values())
    acc[:, 3:] += model.opt.gravity
    vel[0] = acc[0] = 0.0  # mj_objectAcceleration gives -gravity for a body welded to the world
    contact = next(c for c in data.contact if model.geom("ball").id in c.geom)
    force = np.zeros(6)  # in a frame from the ground to the ball, which a report rotates about its second tangent
    mujoco.mj_contactForce(model, data, list(data.contact).index(contact), force)
    turn = data.site("flange").xmat.reshape(3, 3)
    joints = [model.joint(name) for name in JOINTS]
    effort = np.array([data.qfrc_actuator[joint.dofadr[0]] for joint in joints])
    lost = [joint.armature[0] * data.qacc[joint.dofadr[0]] + joint.damping[0] * data.qvel[joint.dofadr[0]]
            for joint in joints]  # fmt: skip
    return {
        "body_pos_w": data.xpos[ids],
        "body_quat_w": data.xquat[ids],
        "body_ang_vel_w": vel[:, :3],
        "body_lin_vel_w": vel[:, 3:],
        "body_ang_acc_w": acc[:, :3],
        "body_lin_acc_w": acc[:, 3:],
        "gravity_w": model.opt.gravity,
        "magnetic_w": model.opt.magnetic,
        "joint_pos": np.array([data.qpos[joint.qposadr[0]] for joint in joints]),
        "joint_vel": np.array([data.qvel[joint.dofadr[0]] for joint in joints]),
        "joint_effort": effort,
        "joint_torque": effort - np.array(lost),
        "body_parent_force_w": turn @ data.sensor("force").data,
        "body_parent_torque_w": turn @ data.sensor("torque").data,
        "tendon_segments_w": np.array([[data.site("imu").xpos, data.site("flange").xpos]]),
        "tendon_radii": np.array([0.02]),
        "native:gyro": data.sensor("gyro").data,
        contact_array(REPORT): np.hstack([1.0, force[:2], -force[2], contact.dist, contact.pos, -contact.frame[:3]])[
            None, None
        ],
    }


def _prepared() -> Any:
    spec = mujoco.MjSpec.from_string(XML)
    prepare_spec(spec, [*ALL, ELEMENTS])
    return spec.compile()


def mujoco_engine() -> Any:
    """Return N environments stepped by MuJoCo."""
    return sn.MujocoEngine(XML, ENVS)


def mujoco_live() -> Any:
    """Return an engine around MjData."""
    model = _prepared()
    return sn.MujocoEngine.from_mj(model, [mujoco.MjData(model) for _ in range(ENVS)])


def warp_engine() -> Any:
    """Return N environments stepped by mujoco_warp."""
    return sn.MujocoWarpEngine(XML, ENVS, device="cpu")


def warp_live() -> Any:
    """Return an engine around mujoco_warp's Model and Data."""
    import mujoco_warp

    model = _prepared()
    return sn.MujocoWarpEngine.from_mjw(model, mujoco_warp.put_model(model), mujoco_warp.make_data(model, nworld=ENVS))


def tensor_engine() -> Any:
    """Return an engine whose user writes the reference values."""
    return sn.TensorEngine(
        ENVS,
        bodies=BODIES,
        joints=JOINTS,
        slides=("slide",),
        geoms={"ground": "world"},
        native={"gyro": 3},
        shapes=[*(sn.engines.Shape(kind, name, syn) for name, kind, syn in _sizes()), CORD],
        provides=("pose", "velocity", "acceleration", "gravity", "joint_state", "joint_effort", "joint_torque",
                  "joint_wrench", "tendon_paths", "contact"),
    )  # fmt: skip


def _sizes() -> list[tuple[str, Any, tuple[float, ...]]]:
    model = mujoco.MjModel.from_xml_string(XML)
    counts = {"plane": 2, "sphere": 1, "capsule": 2, "cylinder": 2, "box": 3}
    return [(name, kind, tuple(model.geom(name).size[: counts[kind]])) for name, kind in BOXES.items()]


HAS_WARP = importlib.util.find_spec("mujoco_warp") is not None
MAKERS = [mujoco_engine, mujoco_live, tensor_engine, *([warp_engine, warp_live] if HAS_WARP else [])]


@pytest.fixture(scope="module")
def reference() -> dict[str, np.ndarray]:
    return _reference()


@pytest.fixture(scope="module", params=MAKERS, ids=lambda make: make.__name__)
def engine(request: pytest.FixtureRequest, reference: dict[str, np.ndarray]) -> Any:
    """Yield each engine in the state, with all requirements granted."""
    engine = request.param()
    engine.prepare(dict.fromkeys([*ALL, SHAPES], "probe"))
    if isinstance(engine, sn.TensorEngine):
        for name, values in reference.items():
            engine.array(name).copy_(torch.from_numpy(values))
    else:
        qpos, qvel, ctrl = map(torch.from_numpy, _state(engine.model))
        if request.param is mujoco_live:
            for data in engine.datas:
                data.qpos[:], data.qvel[:], data.ctrl[:] = qpos, qvel, ctrl
        else:
            for target, values in ((engine.qpos, qpos), (engine.qvel, qvel), (engine.ctrl, ctrl)):
                target.copy_(values)
        engine.forward()
    return engine


@pytest.mark.parametrize("requirement", ALL, ids=lambda requirement: requirement.kind)
def test_requirement_means_the_same_on_every_engine(
    requirement: Requirement, engine: Any, reference: dict[str, np.ndarray]
) -> None:
    names = {NATIVE: ["native:gyro"], REPORT: [contact_array(REPORT)]}
    for name in names.get(requirement) or ARRAYS[requirement]:
        found, expected = engine.array(name), np.broadcast_to(reference[name], (ENVS, *reference[name].shape))
        assert found.dtype == torch.float32
        if requirement == JOINT_WRENCH and expected.ndim == 2:
            found = found[:, BODIES.index("arm")]
        scale = max(float(np.abs(expected).max()), 1.0)
        np.testing.assert_allclose(
            found.numpy(), expected, rtol=0, atol=scale * (1e-6 if "warp" not in engine.name else 2e-3)
        )


def test_shapes_and_cameras_are_described_identically(engine: Any) -> None:
    assert SHAPES in engine.prepared
    assert {shape.name: shape.kind for shape in engine.shapes()} == BOXES
    assert [(each.name, each.kind, each.size[0]) for each in engine.decorations()[:1]] == [("cord", "capsule", 0.02)]
    for shape, (_, _, size) in zip(engine.shapes(), _sizes(), strict=True):
        assert shape.size == pytest.approx(size, rel=1e-6)
    assert engine.names("body") == BODIES
    assert engine.names("scalar_joint") == JOINTS
    assert engine.slide_joints() == ("slide",)
    if not isinstance(engine, sn.TensorEngine):
        assert engine.camera_lens("eye").fovy.tolist() == [pytest.approx(50.0)]
        assert engine.frame("camera", "eye").body == -1


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_model_elements_are_added_or_refused(make: Any) -> None:
    engine = make()
    if isinstance(engine, sn.TensorEngine):
        with pytest.raises(sn.UnsupportedError, match=r"'probe' requires MODEL_ELEMENTS.*'tensor'"):
            engine.prepare({ELEMENTS: "probe"})
    else:
        engine.prepare({ELEMENTS: "probe"})
        assert engine.frame("site", "marker").body == -1
