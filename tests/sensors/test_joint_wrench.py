"""Joint wrenches, checked against statics, float64 rigid-body formulas, and MuJoCo's force and torque sensors."""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.testing import check_sensor

Array = NDArray[np.float64]
EPS = 2.0**-24
G = 9.81
QUARTER_Z = (math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5))


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def wxyz(rotation: Rotation) -> Array:
    return np.asarray(rotation.as_quat(scalar_first=True))


def engine_of(envs: int, **kwargs: Any) -> sn.TensorEngine:
    words: Any = ("pose", "joint_wrench")
    joints = {"hip": ("upper", (0.1, 0.2, 0.3)), "knee": ("lower", (0.0, -0.1, 0.05))}
    return sn.TensorEngine(envs, 0.002, bodies=("upper", "lower"), joints=joints, provides=words, **kwargs)


def loaded(envs: int) -> sn.TensorEngine:
    """Return two bodies that rotate under changing wrenches, differently in each env."""
    phase = 0.7 * torch.arange(envs, dtype=torch.float64)[:, None] + torch.arange(2, dtype=torch.float64)

    def motion(t: float) -> dict[str, Any]:
        angle = 3.0 * t + phase
        half = torch.stack([angle.cos(), 0.6 * angle.sin(), 0.0 * angle, 0.8 * angle.sin()], dim=-1)
        force = torch.stack([angle.sin(), (2.0 * angle).cos(), angle], dim=-1)
        return {"body_quat_w": half, "body_parent_force_w": force, "body_parent_torque_w": 2.0 * force.flip(-1)}

    return engine_of(envs, motion=motion)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"joints": ".*"}, marks=pytest.mark.full),
        {"joint": "knee", "frame": "child"},
        {"bodies": ".*", "frame": "world", "on": "parent"},
    ],
)
def test_contract_holds(fields: dict[str, Any]) -> None:
    """`check_sensor` passes for joints and bodies, with and without a mount axis."""
    check_sensor(sn.JointWrenchCfg(**fields), loaded)


# Frames, sides and points ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", ["child", "parent"])
@pytest.mark.parametrize("frame", ["joint", "child", "world"])
def test_wrench_transforms_by_the_adjoint(frame: Any, on: Any) -> None:
    """For random states force and torque equal R^T f and R^T (m - (a - p) x f) in float64, including the sign."""
    rng = np.random.default_rng(1)
    engine = engine_of(100)
    turns, mount = Rotation.random(200, rng=rng), Rotation.random(1, rng=rng)[0]
    engine.body_quat_w = wxyz(turns).reshape(100, 2, 4)
    engine.body_pos_w = rng.normal(size=(100, 2, 3))
    f, m = rng.normal(0.0, 10.0, (100, 2, 3)), rng.normal(0.0, 3.0, (100, 2, 3))
    engine.body_parent_force_w, engine.body_parent_torque_w = f, m
    offset = sn.OffsetCfg(pos=(0.3, -0.2, 0.1), rot=tuple(wxyz(mount).tolist()))
    cfg = sn.JointWrenchCfg(joints=".*", frame=frame, on=on, offset=offset)
    data = sn.Scene(engine, [cfg])[cfg].data
    sign = 1.0 if on == "child" else -1.0
    for k, anchor in enumerate(((0.1, 0.2, 0.3), (0.0, -0.1, 0.05))):
        body = turns[k::2]
        arm = body.apply(np.add(anchor, offset.pos))
        axes = {"joint": body * mount, "child": body, "world": Rotation.identity(100)}[frame].inv()
        expected = axes.apply(sign * f[:, k]), axes.apply(sign * (m[:, k] - np.cross(arm, f[:, k])))
        for name, values in zip(("force", "torque"), expected, strict=True):
            np.testing.assert_allclose(numpy(getattr(data, name)[:, k]), values, atol=60.0 * EPS * 40.0)


def test_arm_at_rest_is_supported_in_the_joints_frame() -> None:
    """A mass of 2 kg with its centre at (-0.25, -0.1, -0.15), in a joint frame rotated by 90 degrees about z, gives (0,
    0, m g) and (-0.1 m g, 0.25 m g, 0).
    """
    xml = """
    <mujoco><worldbody><body pos="0 0 1"><joint name="hinge" axis="0 0 1"/>
      <inertial mass="2" pos="0.1 -0.25 -0.15" diaginertia=".1 .1 .1"/></body></worldbody></mujoco>
    """
    turned = sn.JointWrenchCfg(name="turned", joint="hinge", offset=sn.OffsetCfg(rot=QUARTER_Z))
    plain = sn.JointWrenchCfg(name="plain", joint="hinge")
    opposite = sn.JointWrenchCfg(name="opposite", joint="hinge", on="parent", offset=sn.OffsetCfg(rot=QUARTER_Z))
    scene = sn.Scene(sn.MujocoEngine(xml), [turned, plain, opposite])
    scene.step(substeps=3)
    weight = 2.0 * G
    np.testing.assert_allclose(numpy(scene[turned].data.force[0]), [0.0, 0.0, weight], atol=1e-5)
    np.testing.assert_allclose(numpy(scene[turned].data.torque[0]), [-0.1 * weight, 0.25 * weight, 0.0], atol=1e-5)
    np.testing.assert_allclose(numpy(scene[plain].data.torque[0]), [-0.25 * weight, -0.1 * weight, 0.0], atol=1e-5)
    np.testing.assert_allclose(numpy(scene[opposite].data.force[0]), [0.0, 0.0, -weight], atol=1e-5)
    notes = scene["opposite"].info.notes
    assert notes["wrench"] == "wrench that the child exerts on the parent" and "offset.rot" in notes["axes"]


ARM = """
<mujoco>
  <option timestep="0.002" tolerance="1e-12" iterations="200"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="box" pos="0 0 0.4">
      <freejoint name="root"/>
      <geom type="box" size="0.2 0.1 0.05" pos="0.05 0.02 0" density="400"/>
      <body name="upper" pos="0.2 0 0" euler="0 20 10">
        <joint name="shoulder" type="ball" pos="0.02 -0.01 0.03" damping="0.02"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
        <site name="shoulder" pos="0.02 -0.01 0.03"/>
        <body name="lower" pos="0.3 0 0" euler="0 40 0">
          <joint name="elbow" axis="0 1 0" pos="0 0.04 0" damping="0.05" stiffness="2"/>
          <geom type="capsule" fromto="0 0 0 0.25 0 0" size="0.025"/>
          <site name="elbow" pos="0 0.04 0" euler="30 -50 120"/>
          <body name="hand" pos="0.25 0 0" euler="0 30 0">
            <geom type="ellipsoid" size="0.06 0.03 0.05"/>
            <site name="hand"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="elbow" ctrlrange="-3 3"/></actuator>
  <sensor>
    <force name="f shoulder" site="shoulder"/><torque name="t shoulder" site="shoulder"/>
    <force name="f elbow" site="elbow"/><torque name="t elbow" site="elbow"/>
    <force name="f hand" site="hand"/><torque name="t hand" site="hand"/>
  </sensor>
</mujoco>
"""


def test_a_moving_arm_in_contact_reads_as_mujocos_force_and_torque_sensors() -> None:
    """Ball, hinge and weld of a tumbling arm that hits the floor agree with MuJoCo's sites there, to 1e-5."""
    model = mujoco.MjModel.from_xml_string(ARM)
    elbow = tuple(float(x) for x in model.site("elbow").quat)
    cfgs = [
        sn.JointWrenchCfg(name="shoulder", joint="shoulder"),
        sn.JointWrenchCfg(name="elbow", joint="elbow", offset=sn.OffsetCfg(rot=elbow)),
        sn.JointWrenchCfg(name="hand", body="hand"),
    ]
    engine = sn.MujocoEngine(ARM, num_envs=3)
    scene = sn.Scene(engine, cfgs)
    rng = np.random.default_rng(2)
    scene.reset(qvel=rng.normal(0.0, 1.0, (3, model.nv)))
    touched = 0
    for _ in range(30):
        scene.step(torch.as_tensor(rng.uniform(-3.0, 3.0, (3, 1))), substeps=10)
        for env in range(3):
            data = mujoco.MjData(model)
            for name in ("qpos", "qvel", "ctrl"):
                getattr(data, name)[:] = numpy64(getattr(engine, name)[env])
            mujoco.mj_forward(model, data)
            touched += data.ncon
            for cfg in cfgs:
                ours = scene[cfg].data
                for letter, values in (("f", ours.force), ("t", ours.torque)):
                    native = data.sensor(f"{letter} {cfg.name}").data
                    size = max(1.0, float(np.abs(native).max()))
                    np.testing.assert_allclose(numpy(values[env]), native, atol=1e-5 * size, err_msg=cfg.name)
    assert touched > 30


def numpy64(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy()


def test_parent_axes_are_those_of_the_parent_body() -> None:
    """In the parent's axes the wrench is the world's, rotated back by the parent's pose; for a root they are equal."""
    frames: Any = ("world", "parent")
    cfgs = {(frame, joint): sn.JointWrenchCfg(name=f"{frame} {joint}", joint=joint, frame=frame)
            for frame in frames for joint in ("elbow", "root")}  # fmt: skip
    engine = sn.MujocoEngine(ARM)
    scene = sn.Scene(engine, cfgs.values(), reserve=[sn.engines.BODY_POSE])
    scene.step(torch.tensor([[2.0]]), substeps=150)
    engine.refresh()
    upper = Rotation.from_quat(numpy(engine.array("body_quat_w")[0, 1]), scalar_first=True)
    for field in ("force", "torque"):
        world, parent = (numpy(getattr(scene[cfgs[frame, "elbow"]].data, field)[0]) for frame in frames)
        np.testing.assert_allclose(parent, upper.inv().apply(world), atol=1e-5 * max(1.0, np.abs(world).max()))
        assert np.abs(parent - world).max() > 0.01
        root = (getattr(scene[cfgs[frame, "root"]].data, field) for frame in frames)
        assert torch.equal(*root)


def test_several_mounts_have_an_axis_and_names() -> None:
    """A plural selector gives `[env, mount, 3]` in the order of the model; a body's anchor is its frame origin."""
    engine = loaded(2)
    joints, bodies = sn.JointWrenchCfg(name="j", joints=".*"), sn.JointWrenchCfg(name="b", bodies=".*", frame="world")
    scene = sn.Scene(engine, [joints, bodies])
    assert scene[joints].data.force.shape == (2, 2, 3) and scene["j"].info.mounts == ("hip", "knee")
    assert torch.equal(scene[bodies].data.torque, engine.array("body_parent_torque_w"))
    specs = {spec.name: (spec.unit, spec.frame) for spec in scene["b"].specs}
    assert specs == {"force": ("N", "world"), "torque": ("N m", "world")}


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"site": "s"}, "a joint or a body, by one of joint, joints, body"),
        ({"body": "world"}, "a joint or a body"),
        ({"joint": "hip", "frame": "site"}, "frame"),
        ({"joint": "hip", "on": "both"}, "on"),
        ({}, "no selector"),
    ],
)
def test_contradictory_config_is_refused(fields: dict[str, Any], match: str) -> None:
    """Only joints and bodies have a parent."""
    with pytest.raises(sn.ConfigError, match=match):
        sn.JointWrenchCfg(**fields)


def test_unsupported_engine_is_refused() -> None:
    """A missing wrench, a missing kinematic tree, or the world in a list of bodies is a clear error."""
    with pytest.raises(sn.UnsupportedError, match="JOINT_WRENCH"):
        sn.Scene(sn.TensorEngine(), [sn.JointWrenchCfg(body="body")])
    with pytest.raises(sn.ConfigError, match=r"frame: got .*'tensor'"):
        sn.Scene(engine_of(1), [sn.JointWrenchCfg(joint="hip", frame="parent")])
    with pytest.raises(sn.ConfigError, match=r"bodies: got .*'world'"):
        sn.Scene(engine_of(1), [sn.JointWrenchCfg(bodies=("upper", "world"))])


def test_non_finite_wrench_names_the_body() -> None:
    """The env is marked invalid, and the warning names the body."""
    engine = engine_of(2)
    scene = sn.Scene(engine, [sn.JointWrenchCfg(joints=".*", evaluate="always")])
    engine.body_parent_torque_w[0, 1, 2] = math.nan
    with pytest.warns(sn.NonFiniteStateWarning, match="env 0, body 'lower'"):
        scene.update()
    assert scene["joint_wrench"].valid.tolist() == [False, True]


def test_debug_draw_shows_the_force_at_the_anchor() -> None:
    """The debug shapes are one arrow per mount, in world axes, 0.01 m per N."""
    engine = engine_of(1)
    engine.body_pos_w = [[[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]]
    engine.body_parent_force_w = [[[0.0, 0.0, 50.0], [10.0, 0.0, 0.0]]]
    scene = sn.Scene(engine, [sn.JointWrenchCfg(joints=".*", frame="child")])
    (shape,) = scene["joint_wrench"].debug_draw()
    assert shape.kind == "arrows"
    starts, ends = [[1.1, 0.2, 0.3], [0.0, -0.1, 2.05]], [[1.1, 0.2, 0.8], [0.1, -0.1, 2.05]]
    np.testing.assert_allclose(shape.data, np.stack([starts, ends], axis=1), atol=1e-6)
