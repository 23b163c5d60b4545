"""The state of bodies, checked against MuJoCo's arrays, rigid-body kinematics, and boxes around sampled points."""

from __future__ import annotations

import json
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.testing import check_sensor
from sensorium.world.bodies import body_boxes
from sensorium.world.select import entity_of

MODEL = """
<mujoco>
  <option timestep="0.005"/>
  <asset><mesh name="wedge" vertex="0 0 0  0.3 0 0  0 0.2 0  0 0 0.1"/></asset>
  <worldbody>
    <geom name="ground" type="plane" size="5 5 .1"/>
    <body name="robot/base" pos="0 0 1.5" euler="10 20 30">
      <freejoint/>
      <geom name="trunk" type="box" size=".2 .1 .05" pos=".05 0 0" euler="0 0 30" mass="2"/>
      <site name="marker" pos="0.1 0.2 0.3" euler="40 0 0"/>
      <body name="robot/arm" pos=".2 0 0">
        <joint name="shoulder" axis="0 1 0"/>
        <geom type="capsule" size=".03 .15" pos="0 0 -.15" euler="20 30 0"/>
        <geom type="cylinder" size=".05 .02" pos="0 .1 -.3" euler="50 0 10"/>
      </body>
    </body>
    <body name="robot/bare" pos="1 0 1"><freejoint/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body>
    <body name="box/it" pos="2 0 1" euler="0 45 0">
      <geom type="ellipsoid" size=".1 .2 .3" euler="30 40 50" pos="0 0 .1"/>
      <geom type="mesh" mesh="wedge" euler="0 0 70" pos=".1 .1 0"/>
    </body>
  </worldbody>
</mujoco>
"""


def spinning(num_envs: int = 3) -> sn.MujocoEngine:
    """Return an engine whose bodies translate and rotate, differently in each environment."""
    engine = sn.MujocoEngine(MODEL, num_envs)
    rng = np.random.default_rng(3)
    engine.qvel.copy_(torch.from_numpy(rng.normal(0.0, 1.0, engine.qvel.shape)))
    return engine


def test_body_state_equals_mujocos() -> None:
    """Pose and velocity of every body at its frame's origin, in world axes, match MuJoCo's functions."""
    scene = sn.Scene(spinning(), [state := sn.BodyStateCfg()])
    for _ in range(7):
        scene.step()
    data, names = scene[state].data, scene.engine.names("body")
    assert data.body_names == names and scene[state].cfg.bodies == ".*"
    model = scene.engine.model
    for env in range(3):
        d = mujoco.MjData(model)
        d.qpos[:], d.qvel[:] = scene.engine.qpos[env].numpy(), scene.engine.qvel[env].numpy()
        mujoco.mj_forward(model, d)
        for row, name in enumerate(names):
            velocity = np.zeros(6)
            mujoco.mj_objectVelocity(model, d, mujoco.mjtObj.mjOBJ_XBODY, model.body(name).id, velocity, 0)
            for got, wanted in (
                (data.pos_w, d.body(name).xpos),
                (data.quat_w, d.body(name).xquat),
                (data.lin_vel_w, velocity[3:]),
                (data.ang_vel_w, velocity[:3]),
            ):
                np.testing.assert_allclose(got[env, row].numpy(), wanted, atol=2e-6)


def test_an_offset_has_a_lever_arm() -> None:
    """At an offset d the velocity is v + w x d, and the pose is that of the offset frame; a body at rest has velocity
    0.
    """
    engine = sn.TensorEngine(1, sites={"tip": ("body", (0.0, 0.0, 1.0))})
    engine.body_pos_w = (1.0, 2.0, 3.0)
    engine.body_quat_w = (np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5))  # a quarter turn about z
    engine.body_lin_vel_w, engine.body_ang_vel_w = (0.5, 0.0, 0.0), (0.0, 0.0, 2.0)
    turn = (np.sqrt(0.5), np.sqrt(0.5), 0.0, 0.0)
    cfg = sn.BodyStateCfg(name="s", site="tip", offset=sn.OffsetCfg(pos=(1.0, 0.0, 0.0), rot=turn))
    world = sn.BodyStateCfg(name="w", body="world", offset=sn.OffsetCfg(pos=(1.0, 0.0, 0.0)))
    scene = sn.Scene(engine, [cfg, world])
    data = scene[cfg].data
    np.testing.assert_allclose(data.pos_w[0], (1.0, 3.0, 4.0), atol=1e-6)
    np.testing.assert_allclose(data.lin_vel_w[0], (0.5 - 2.0, 0.0, 0.0), atol=1e-6)
    np.testing.assert_allclose(data.ang_vel_w[0], (0.0, 0.0, 2.0), atol=1e-6)
    np.testing.assert_allclose(data.quat_w[0], (0.5, 0.5, 0.5, 0.5), atol=1e-6)
    assert data.body_names == ("body",) and scene[world].data.body_names == ("world",)
    assert scene[world].data.pos_w.tolist() == [[1.0, 0.0, 0.0]] and not scene[world].data.lin_vel_w.any()


def test_noise_and_delay_model_a_motion_capture_system() -> None:
    """Noise, delay and rate work as for all sensors: the orientation stays unit, and the truth is unaffected."""
    engine = sn.TensorEngine(512, 0.01, motion=lambda t: {"body_pos_w": (10.0 * t, 0.0, 0.0)})
    mocap = sn.BodyStateCfg(
        body="body", rate_hz=50.0, delay=0.02, noise={"pos_w": 0.001, "quat_w": 0.01}, fields=("pos_w", "quat_w")
    )
    scene = sn.Scene(engine, [mocap], seed=2)
    scene.step(substeps=11)
    sensor = scene[mocap]
    assert sensor.capture_tick.tolist() == [8] * 512 and sensor.data.lin_vel_w is None
    error = sensor.data.pos_w - torch.tensor([0.8, 0.0, 0.0])
    assert abs(error.std().item() / 0.001 - 1.0) < 5.0 / np.sqrt(2 * 1536)  # five deviations of a deviation
    np.testing.assert_allclose(sensor.data.quat_w.norm(dim=-1), 1.0, atol=1e-6)
    angle = 2.0 * sensor.data.quat_w[:, 1:]
    assert abs(angle.std().item() / 0.01 - 1.0) < 5.0 / np.sqrt(2 * 1536)
    assert torch.equal(sensor.ground_truth.pos_w, torch.tensor([1.0, 0.0, 0.0]).expand(512, 3))


def test_only_selected_fields_add_requirements() -> None:
    """A pose does not require velocities from the engine; a velocity does."""
    engine = sn.TensorEngine(2, provides=("pose",))
    assert sn.Scene(engine, [sn.BodyStateCfg(fields=("pos_w",))])["body_state"].data.pos_w.shape == (2, 1, 3)
    with pytest.raises(sn.UnsupportedError, match="BODY_VELOCITY"):
        sn.Scene(engine, [sn.BodyStateCfg()])
    with pytest.raises(sn.ConfigError, match=r"fields among pos_w.*quat_w"):
        sn.BodyStateCfg(fields=("quat",))
    with pytest.raises(sn.ConfigError, match="at least one field"):
        sn.BodyStateCfg(fields=())
    with pytest.raises(sn.ConfigError, match="exactly one selector"):
        sn.BodyStateCfg(body="a", site="b")


def test_non_finite_state_is_invalid() -> None:
    """NaN in one environment invalidates that environment's sample, and the warning names the body."""
    engine = sn.TensorEngine(3, bodies=("a", "b"))
    scene = sn.Scene(engine, [state := sn.BodyStateCfg()])
    engine.body_lin_vel_w[1, 1, 0] = float("nan")
    with pytest.warns(sn.NonFiniteStateWarning, match="env 1, body 'b'"):
        scene.update()
        assert scene[state].valid.tolist() == [True, False, True]


# Boxes ----------------------------------------------------------------------------------------------------------------


def surface_points(model: Any, geom: int) -> np.ndarray:
    """Return points that lie on a geom's surface and reach its extremes, in the geom's frame: float64 [point, 3]."""
    kind, size = mujoco.mjtGeom(model.geom_type[geom]), model.geom_size[geom]
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        first = model.mesh_vertadr[mesh]
        return np.array(model.mesh_vert[first : first + model.mesh_vertnum[mesh]], np.float64)
    u, v = np.meshgrid(np.linspace(0.0, 2.0 * np.pi, 721), np.linspace(-1.0, 1.0, 721))
    flat = np.sqrt(1.0 - v**2)
    ball = np.stack([flat * np.cos(u), flat * np.sin(u), v], axis=-1).reshape(-1, 3)
    if kind == mujoco.mjtGeom.mjGEOM_ELLIPSOID:
        return ball * size
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        return ball * size[0] + np.sign(ball[:, 2:]) * (0.0, 0.0, size[1])
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        ring = np.stack([np.cos(u[0]), np.sin(u[0])], axis=-1) * size[0]
        return np.concatenate([np.c_[ring, np.full(len(ring), z)] for z in (-size[1], size[1])])
    assert kind == mujoco.mjtGeom.mjGEOM_BOX
    return np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * size


def test_boxes_tightly_enclose_the_shapes() -> None:
    """The box of each body encloses many points on its geoms; a body that never moves has a box in its own frame."""
    engine = spinning(1)
    scene = sn.Scene(engine, [state := sn.BodyStateCfg(name="state")])
    data, model = scene[state].data, engine.model
    for row, name in enumerate(data.body_names):
        body = model.body(name).id
        points = []
        for geom in np.flatnonzero(model.geom_bodyid == body):
            turn = np.zeros(9)
            mujoco.mju_quat2Mat(turn, model.geom_quat[geom])
            points.append(surface_points(model, geom) @ turn.reshape(3, 3).T + model.geom_pos[geom])
        cloud = np.concatenate(points) if points else np.zeros((1, 3))
        low, high = cloud.min(axis=0), cloud.max(axis=0)
        np.testing.assert_allclose(data.centers[row], 0.5 * (low + high), atol=3e-6, err_msg=name)
        np.testing.assert_allclose(data.half_extents[row], 0.5 * (high - low), atol=3e-6, err_msg=name)
    assert data.half_extents[data.body_names.index("robot/bare")] == (0.0, 0.0, 0.0)
    assert data.entities == ("robot", "robot", "robot", "box")


def test_the_scene_lists_its_bodies() -> None:
    """`bodies()` lists every body with its number, name, entity and box, and requires no reservation."""
    scene = sn.Scene(spinning(1), discover=False)
    bodies, boxes = scene.bodies(), body_boxes(scene.engine)
    assert bodies.names == scene.engine.names("body") and bodies["box/it"].entity == "box"
    for row, body in bodies.items():
        assert body.id == row
        assert (*body.center, *body.half_extents) == tuple(boxes[row].tolist())
    assert bodies["robot/base"].half_extents[2] == pytest.approx(0.05)
    blind = sn.Scene(sn.TensorEngine(2, bodies=("a", "b/c")), discover=False).bodies()
    assert [body.half_extents for body in blind.values()] == [(0.0, 0.0, 0.0)] * 2
    assert [body.entity for body in blind.values()] == ["", "b"]


def test_unbounded_shapes_are_omitted() -> None:
    """A plane, a height field and a static shape of a body without a pose are not part of a box."""
    field = sn.engines.HeightField(np.zeros((2, 2)), (1.0, 1.0))
    shapes = [
        sn.engines.Shape("plane", "floor", body="a"),
        sn.engines.Shape("hfield", "hills", hfield=field, body="a"),
        sn.engines.Shape("sphere", "ball", (0.5,), body="b", pos=(1.0, 0.0, 0.0)),
    ]
    engine = sn.TensorEngine(1, bodies=("a", "b"), shapes=shapes)
    assert body_boxes(engine).tolist() == [[0.0] * 6, [1.0, 0.0, 0.0, 0.5, 0.5, 0.5]]
    assert entity_of("base") == "" and entity_of("robot/left/foot") == "robot"


# Contract -------------------------------------------------------------------------------------------------------------


def test_contract_holds() -> None:
    """`check_sensor` passes with imperfections; the config survives JSON, and so do the constants."""
    check_sensor(sn.BodyStateCfg(name="one", body="body", delay=0.02, noise={"pos_w": 0.01}))
    cfg = sn.BodyStateCfg.example()
    assert sn.BodyStateCfg.from_dict(json.loads(json.dumps(cfg.to_dict()))) == cfg
    scene = sn.Scene(spinning(1), [sn.BodyStateCfg(name="state")])
    described = scene.description().sensors["state"]
    assert json.loads(json.dumps(described))["constants"]["entities"] == ["robot", "robot", "robot", "box"]
    assert described["mounts"] == list(scene.engine.names("body"))
    drawn = list(scene["state"].debug_draw())
    assert drawn[0].kind == "frames" and drawn[0].data.shape == (4, 7)
