"""Shapes described by engines: MuJoCo's geoms against MuJoCo itself, and shapes passed to a `TensorEngine`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

import sensorium as sn
from sensorium.engines.mujoco.spec import prepare_spec
from sensorium.errors import ModelError, UnsupportedError

TETRAHEDRON = "0 0 0  1 0 0  0 2 0  0 0 3"
ASSETS = f"""
  <asset>
    <mesh name="wedge" vertex="{TETRAHEDRON}"/>
    <mesh name="scaled" vertex="{TETRAHEDRON}" scale=".5 .2 .1"/>
    <hfield name="hills" nrow="4" ncol="5" size="2 1.5 .8 .3" elevation="
      0 3 1 4 2
      5 9 2 6 1
      5 3 5 8 9
      7 9 3 2 4"/>
    <material name="red" rgba="1 0 0 1"/>
    <material name="glass" rgba="1 1 1 0"/>
  </asset>"""
KINDS = f"""
<mujoco>
  {ASSETS}
  <worldbody>
    <geom name="ground" type="plane" size="4 3 .1" pos="0 0 -2" euler="1 2 3"/>
    <geom name="field" type="hfield" hfield="hills" pos="-6 2 -1" euler="0 0 30"/>
    <geom name="rock" type="mesh" mesh="wedge" pos="1 2 3" euler="10 20 30"/>
    <body name="table" pos="2 1 .5" euler="0 20 40">
      <geom name="top" type="box" size=".5 .4 .02" pos=".1 .2 .3" euler="5 0 15"/>
      <body name="shelf" pos="0 .3 -.2" euler="30 0 0">
        <geom name="ball" size=".1" pos=".2 0 .1"/>
        <body name="door" pos="0 .1 0" euler="0 0 10">
          <joint name="hinge" axis="1 2 3"/>
          <geom name="panel" type="box" size=".3 .02 .4" pos=".3 0 0" euler="0 7 0"/>
          <body name="knob" pos=".5 .1 0" euler="0 50 0">
            <geom name="grip" type="ellipsoid" size=".05 .03 .02" pos="0 .02 .01" euler="40 0 0"/>
          </body>
        </body>
      </body>
    </body>
    <body name="hand" mocap="true" pos="0 0 2" euler="10 0 0">
      <geom name="palm" type="cylinder" size=".1 .03" pos="0 .1 0" euler="0 30 0"/>
      <body name="finger" pos=".1 0 0" euler="0 0 60">
        <geom name="tip" type="capsule" size=".02 .1" pos="0 .05 .1" euler="20 30 0"/>
      </body>
    </body>
    <body name="stone" pos="3 3 3">
      <freejoint/>
      <geom name="big" type="mesh" mesh="scaled" pos=".1 .2 .3" euler="70 10 20"/>
      <geom name="small" type="mesh" mesh="scaled" pos="-.1 .2 .3" euler="0 10 -20"/>
    </body>
  </worldbody>
</mujoco>"""


def live(xml: str) -> sn.engines.Engine:
    model = mujoco.MjModel.from_xml_string(xml)
    return sn.MujocoEngine.from_mj(model, mujoco.MjData(model))


def batch(xml: str) -> sn.engines.Engine:
    return sn.MujocoEngine(xml, 2)


ENGINES = pytest.mark.parametrize("make", [batch, live])


def by_name(engine: sn.engines.Engine) -> dict[str, sn.engines.Shape]:
    return {shape.name: shape for shape in engine.shapes()}


def rotation(quat: Any) -> np.ndarray:
    matrix = np.empty(9)
    mujoco.mju_quat2Mat(matrix, np.array(quat))
    return matrix.reshape(3, 3)


def randomised(model: mujoco.MjModel, seed: int = 0) -> mujoco.MjData:
    """Return data in a random state, also of the mocap bodies."""
    data, rng = mujoco.MjData(model), np.random.default_rng(seed)
    data.qvel[:] = rng.normal(size=model.nv)
    mujoco.mj_integratePos(model, data.qpos, data.qvel, 1.0)
    data.mocap_pos[:] += rng.normal(size=data.mocap_pos.shape)
    data.mocap_quat[:] = rng.normal(size=data.mocap_quat.shape)
    data.mocap_quat[:] /= np.linalg.norm(data.mocap_quat, axis=1, keepdims=True)
    mujoco.mj_forward(model, data)
    return data


def pose_w(engine: sn.engines.Engine, shape: sn.engines.Shape, data: mujoco.MjData) -> tuple[np.ndarray, np.ndarray]:
    """Return origin and rotation of a shape in the world, composed with MuJoCo's pose of its body."""
    pos, turn = np.array(shape.pos), rotation(shape.quat)
    if shape.is_static:
        return pos, turn
    body = data.body(engine.names("body")[shape.row])
    return body.xpos + body.xmat.reshape(3, 3) @ pos, body.xmat.reshape(3, 3) @ turn


def triangles_w(engine: sn.engines.Engine, shape: sn.engines.Shape, data: mujoco.MjData) -> np.ndarray:
    """Return the corners of a mesh shape in the world `[face, 3, 3]`."""
    pos, turn = pose_w(engine, shape, data)
    assert shape.mesh is not None
    return (shape.mesh.vertices * shape.scale @ turn.T + pos)[shape.mesh.faces]


# Poses and sizes ------------------------------------------------------------------------------------------------------


@ENGINES
def test_every_shape_kind_has_mujocos_pose(make: Callable[[str], sn.engines.Engine]) -> None:
    """The pose of a shape, composed with its body's, is geom_xpos and geom_xmat of a random state to 1e-6."""
    engine = make(KINDS)
    data = randomised(engine.model)
    kinds = {}
    for shape in engine.shapes():
        geom = data.geom(shape.name)
        pos, turn = pose_w(engine, shape, data)
        np.testing.assert_allclose(pos, geom.xpos, rtol=0, atol=1e-6, err_msg=shape.name)
        np.testing.assert_allclose(turn, geom.xmat.reshape(3, 3), rtol=0, atol=1e-6, err_msg=shape.name)
        kinds[shape.kind] = shape.size
    assert set(kinds) == {"plane", "hfield", "mesh", "box", "sphere", "ellipsoid", "cylinder", "capsule"}


def test_sizes_match_the_model() -> None:
    """The number of sizes matches the kind, in MuJoCo's order; a mesh and a height field have their own data."""
    sizes = {name: shape.size for name, shape in by_name(batch(KINDS)).items()}
    assert sizes == {
        "ground": (4.0, 3.0), "field": (), "rock": (), "top": (0.5, 0.4, 0.02), "ball": (0.1,),
        "panel": (0.3, 0.02, 0.4), "grip": (0.05, 0.03, 0.02), "palm": (0.1, 0.03), "tip": (0.02, 0.1),
        "big": (), "small": (),
    }  # fmt: skip


@pytest.mark.parametrize("scale", [(1.0, 1.0, 1.0), (0.5, 0.2, 0.1), (-0.7, 0.4, 0.9)])
def test_vertices_of_an_asymmetric_mesh_are_those_of_the_file(scale: tuple[float, ...]) -> None:
    """The tetrahedron's four triangles, scaled, rotated and moved by hand, match to 1e-6 with the same faces.

    MuJoCo compiles a mesh about its centre of mass and principal axes, which differ far from this mesh's own.
    """
    written = np.array(TETRAHEDRON.split(), dtype=float).reshape(4, 3) * scale
    text = " ".join(map(str, scale))
    engine = batch(
        f"""<mujoco><compiler angle="radian"/><asset><mesh name="m" vertex="{TETRAHEDRON}" scale="{text}"/></asset>
        <worldbody><body name="b" pos="1 -2 .5"><freejoint/>
        <geom name="g" type="mesh" mesh="m" pos=".3 .2 -.4" quat=".5 .1 -.7 .3"/></body></worldbody></mujoco>"""
    )
    data = randomised(engine.model, 3)
    quat = np.array([0.5, 0.1, -0.7, 0.3]) / np.linalg.norm([0.5, 0.1, -0.7, 0.3])
    local = written @ rotation(quat).T + [0.3, 0.2, -0.4]
    expected = local @ rotation(data.qpos[3:7]).T + data.qpos[:3]

    def ordered(triangles: np.ndarray) -> np.ndarray:
        return np.array(sorted(sorted(map(tuple, corners.round(5))) for corners in triangles))

    given = triangles_w(engine, by_name(engine)["g"], data)
    faces = expected[[[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]]
    np.testing.assert_allclose(ordered(given), ordered(faces), rtol=0, atol=2e-5)
    near = np.linalg.norm(given.reshape(-1, 1, 3) - expected, axis=2)
    assert near.min(axis=1).max() < 1e-6
    assert set(near.argmin(axis=1)) == {0, 1, 2, 3}


def test_geoms_of_one_mesh_share_it() -> None:
    """There is one Mesh object per mesh of the model, one HeightField per height field, and one list of shapes."""
    shapes = by_name(engine := batch(KINDS))
    assert shapes["big"].mesh is shapes["small"].mesh is not shapes["rock"].mesh
    assert shapes["rock"].mesh is not None and shapes["rock"].mesh.name == "wedge"
    assert shapes["big"].scale == (1.0, 1.0, 1.0)
    assert engine.shapes() is engine.shapes()
    twice = batch(
        KINDS.replace('<geom name="rock"', '<geom name="more" type="hfield" hfield="hills"/><geom name="rock"')
    )
    assert by_name(twice)["field"].hfield is by_name(twice)["more"].hfield


def test_triangles_without_area_are_omitted() -> None:
    """A mesh with a degenerate triangle is described without it, because no ray can hit it."""
    xml = """<mujoco><asset><mesh name="m" vertex="0 0 0  1 0 0  0 1 0  0 0 1"
      face="0 2 1  0 1 3  0 3 2  1 2 3  0 1 1"/></asset>
      <worldbody><geom name="g" type="mesh" mesh="m"/></worldbody></mujoco>"""
    mesh = by_name(batch(xml))["g"].mesh
    assert mesh is not None and mesh.face_ids.tolist() == [0, 1, 2, 3]
    model = mujoco.MjModel.from_xml_string(xml)
    for wrong, message in ((9, "indices 0 to 9, expected 0 to 3"), (-1, "indices -1 to 3")):
        model.mesh_face[0, 0] = wrong
        with pytest.raises(ModelError, match=f"mesh 'm': faces: {message}"):
            by_name(sn.MujocoEngine.from_mj(model, mujoco.MjData(model)))


# Height fields --------------------------------------------------------------------------------------------------------


def height(field: sn.engines.HeightField, x: float, y: float) -> float:
    """Return the height as documented in `HeightField`: two triangles per cell, split from (r, c) to (r + 1, c + 1)."""
    rows, columns = field.heights.shape
    u, v = ((x / field.size[0] + 1) / 2 * (columns - 1), (y / field.size[1] + 1) / 2 * (rows - 1))
    c, r = min(int(u), columns - 2), min(int(v), rows - 2)
    u, v = u - c, v - r
    low, high = field.heights[r, c], field.heights[r + 1, c + 1]
    if u >= v:
        return float(low + u * (field.heights[r, c + 1] - low) + v * (high - field.heights[r, c + 1]))
    return float(low + v * (field.heights[r + 1, c] - low) + u * (high - field.heights[r + 1, c]))


def test_heights_match_mujocos_rays() -> None:
    """A vertical ray finds the same height to 1e-6, at corners and elsewhere, nothing outside, and the base from
    below.
    """
    geom = '<geom name="field" type="hfield" hfield="hills" pos="0 0 .7"/>'
    engine = batch(f"<mujoco>{ASSETS}<worldbody>{geom}</worldbody></mujoco>")
    field = by_name(engine)["field"].hfield
    assert field is not None and (field.heights.shape, field.size, field.base) == ((4, 5), (2.0, 1.5), 0.3)
    assert field.heights.max() == pytest.approx(0.8) and field.heights[0, 4] == pytest.approx(0.8 * 4 / 9)
    data = randomised(engine.model)
    hit = np.zeros(1, dtype=np.int32)

    def down(x: float, y: float, z: float = 5.0, dz: float = -1.0) -> float:
        far = mujoco.mj_ray(engine.model, data, [x, y, z], [0.0, 0.0, dz], None, 1, -1, hit)
        return z + dz * far - 0.7 if far >= 0.0 else -np.inf

    corners = [(x, y) for x in (-1.9999, 1.9999) for y in (-1.4999, 1.4999)]
    inside = np.random.default_rng(0).uniform((-2, -1.5), (2, 1.5), (200, 2)).tolist()
    for x, y in corners + inside:
        assert down(x, y) == pytest.approx(height(field, x, y), abs=1e-6), (x, y)
    assert down(2.001, 0.0) == down(0.0, -1.501) == -np.inf
    assert down(0.3, 0.2, -5.0, 1.0) == pytest.approx(-field.base)


# What moves -----------------------------------------------------------------------------------------------------------


@ENGINES
def test_welded_bodies_are_static_and_mocap_bodies_are_not(make: Callable[[str], sn.engines.Engine]) -> None:
    """Static shapes are the world and all without a joint between, except mocap bodies and bodies welded to them."""
    engine = make(KINDS)
    shapes = by_name(engine)
    assert {name for name, shape in shapes.items() if shape.is_static} == {"ground", "field", "rock", "top", "ball"}
    bodies = engine.names("body")
    rows = {name: "world" if shape.row < 0 else bodies[shape.row] for name, shape in shapes.items()}
    assert rows == {
        "ground": "world", "field": "world", "rock": "world", "top": "table", "ball": "shelf", "panel": "door",
        "grip": "knob", "palm": "hand", "tip": "finger", "big": "stone", "small": "stone",
    }  # fmt: skip
    assert tuple(shapes) == engine.names("geom")
    assert engine.geoms("stone") == ("big", "small") and engine.geoms("world") == ("ground", "field", "rock")


# Visibility -----------------------------------------------------------------------------------------------------------

SEEN = f"""
<mujoco>
  {ASSETS}
  <worldbody>
    <geom name="plain" size=".1"/>
    <geom name="clear" size=".1" pos="1 0 0" rgba="1 1 1 0"/>
    <geom name="red" size=".1" pos="2 0 0" material="red"/>
    <geom name="red_clear" size=".1" pos="3 0 0" material="red" rgba="0 0 1 0"/>
    <geom name="glass" size=".1" pos="4 0 0" material="glass"/>
    <geom name="glass_solid" size=".1" pos="5 0 0" material="glass" rgba="0 1 0 1"/>
    <geom name="white" size=".1" pos="6 0 0" rgba="1 1 1 .01"/>
    <geom name="shown" size=".1" pos="7 0 0" group="2" contype="0" conaffinity="0"/>
    <geom name="inner" size=".1" pos="8 0 0" group="3"/>
    <geom name="paired" size=".1" pos="9 0 0" contype="0" conaffinity="0" group="5"/>
    <geom name="one_way" size=".1" pos="10 0 0" contype="0" conaffinity="2"/>
  </worldbody>
  <contact><pair geom1="paired" geom2="plain"/></contact>
</mujoco>"""


def test_visible_shapes_are_those_mj_ray_hits() -> None:
    """A ray from above hits exactly the geoms flagged visible, by the alpha of the material or of the geom."""
    engine = batch(SEEN)
    data = randomised(engine.model)
    hit = np.zeros(1, dtype=np.int32)
    for shape in engine.shapes():
        far = mujoco.mj_ray(engine.model, data, [shape.pos[0], 0.0, 5.0], [0.0, 0.0, -1.0], None, 1, -1, hit)
        assert shape.is_visible == (far >= 0.0), shape.name
    assert {shape.name for shape in engine.shapes() if not shape.is_visible} == {"clear", "glass", "glass_solid"}


def test_groups_and_contacts_match_the_model() -> None:
    """Visual means visible and in group 0 to 2. Collision means nonzero contype or conaffinity, or a contact pair."""
    shapes = by_name(batch(SEEN))
    assert {name: shape.group for name, shape in shapes.items() if shape.group} == {"shown": 2, "inner": 3, "paired": 5}
    assert {name for name, shape in shapes.items() if not shape.is_visual} == {
        "clear", "glass", "glass_solid", "inner", "paired",
    }  # fmt: skip
    assert {name for name, shape in shapes.items() if not shape.is_collision} == {"shown"}
    assert all(shape.labels == () for shape in shapes.values())


def test_reflectance_is_the_luminance_of_the_drawn_colour() -> None:
    """Rec. 709 weights apply to the geom's own colour if it has one, else to its material's, as in mjv_addGeoms."""
    engine = batch(SEEN)
    scene = mujoco.MjvScene(engine.model, maxgeom=50)
    option = mujoco.MjvOption()
    option.geomgroup[:] = 1
    data = randomised(engine.model)
    mujoco.mjv_updateScene(engine.model, data, option, None, mujoco.MjvCamera(), int(mujoco.mjtCatBit.mjCAT_ALL), scene)
    drawn = {engine.model.geom(geom.objid).name: geom.rgba.copy() for geom in scene.geoms[: scene.ngeom]}
    shapes = by_name(engine)
    assert {"plain", "red", "white", "glass_solid", "inner"} <= set(drawn)
    for name, rgba in drawn.items():
        assert shapes[name].reflectance == pytest.approx(rgba[:3] @ [0.2126, 0.7152, 0.0722], abs=1e-6), name
    assert shapes["white"].reflectance == pytest.approx(1.0) and shapes["red"].reflectance == pytest.approx(0.2126)


# Names and faults -----------------------------------------------------------------------------------------------------


def test_unnamed_geom_gets_a_unique_name() -> None:
    """The name is `geom_{id}`, with a unique suffix if a geom already has that name."""
    xml = '<mujoco><worldbody><geom size=".1"/><geom name="geom_2" size=".1"/><geom size=".1"/></worldbody></mujoco>'
    assert [shape.name for shape in batch(xml).shapes()] == ["geom_0", "geom_2", "geom_2_"]


def test_names_of_composed_entities_have_their_prefix() -> None:
    """`robot/geom`, on the body `robot/link`."""
    part = '<mujoco><worldbody><body name="link"><joint/><geom name="hull" size=".1"/></body></worldbody></mujoco>'
    floor = '<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/></worldbody></mujoco>'
    engine = sn.MujocoEngine.compose({"robot": part, "other": (part, (1.0, 0.0, 0.0))}, floor)
    rows = {shape.name: shape.row for shape in engine.shapes()}
    assert rows == {"floor": -1, "robot/hull": 0, "other/hull": 1}
    assert engine.names("body") == ("robot/link", "other/link")


@ENGINES
def test_shapes_that_rays_cannot_hit_give_the_reason(make: Callable[[str], sn.engines.Engine]) -> None:
    """A flex and a signed distance field are listed with their names, flags and a fault; no other shape has one."""
    shapes = by_name(
        make(
            f"""<mujoco>{ASSETS}<worldbody>
            <geom name="floor" type="plane" size="1 1 1"/>
            <geom name="blob" type="sdf" mesh="wedge" group="1"/>
            <flexcomp name="cloth" type="grid" count="3 3 1" spacing=".1 .1 .1" dim="2" radius=".01" mass="1">
              <edge equality="true"/><contact contype="0" conaffinity="0"/>
            </flexcomp></worldbody></mujoco>"""
        )
    )
    assert {name: shape.fault for name, shape in shapes.items()} == {
        "floor": "",
        "blob": "it is a signed distance field (SDF), which rays cannot hit; with type='mesh' they hit its surface",
        "cloth": "it is deformable (a flex), which rays cannot hit",
    }
    assert (shapes["blob"].group, shapes["blob"].is_static, shapes["blob"].mesh) == (1, True, None)
    assert not shapes["cloth"].is_static and not shapes["cloth"].is_collision and shapes["cloth"].is_visible


def add_hidden(spec: Any) -> None:
    spec.worldbody.add_geom(name="sensorium/dot", size=[0.1, 0, 0])
    body = spec.worldbody.add_body(name="sensorium/carrier", mocap=True)
    body.add_geom(size=[0.1, 0, 0])
    body.add_body(name="below").add_geom(name="below", size=[0.1, 0, 0])


def test_shapes_added_by_sensors_are_omitted() -> None:
    """Hidden geoms, and all on hidden bodies, are not shapes and do not shift the names of nameless geoms."""
    xml = '<mujoco><worldbody><body name="b"><joint/><geom size=".1"/></body></worldbody></mujoco>'
    spec = mujoco.MjSpec.from_string(xml)
    prepare_spec(spec, [sn.engines.MODEL_ELEMENTS(add_hidden)])
    model = spec.compile()
    assert model.ngeom == 4
    sealed, wrapped = sn.MujocoEngine(model), sn.MujocoEngine.from_mj(model, mujoco.MjData(model))
    asked = sn.MujocoEngine(xml)
    assert [shape.name for shape in asked.shapes()] == ["geom_0"]
    asked.prepare({sn.engines.MODEL_ELEMENTS(add_hidden): "marker", sn.engines.SHAPES: "lidar"})
    assert asked.model.ngeom == 4
    for engine in (sealed, wrapped, asked):
        (shape,) = engine.shapes()
        assert shape.name == "geom_0" and engine.names("body")[shape.row] == "b"


# Granting -------------------------------------------------------------------------------------------------------------


@ENGINES
def test_shapes_are_granted_without_an_array_or_a_stage(make: Callable[[str], sn.engines.Engine]) -> None:
    """SHAPES requires no computation and adds no array, alone or with others, also for a sealed model."""
    engine = make(KINDS)
    assert engine.supports(sn.engines.SHAPES) is None
    engine.prepare({sn.engines.SHAPES: "lidar"})
    assert engine._plan.stage == 0 and sn.engines.SHAPES in engine.prepared
    engine.refresh()
    with pytest.raises(KeyError, match="unknown derived array 'shapes'"):
        engine.array("shapes")
    engine.prepare({sn.engines.BODY_POSE: "lidar"})
    engine.refresh()
    assert engine.array("body_pos_w").shape[1] == len(engine.names("body"))
    assert sn.MujocoEngine(mujoco.MjModel.from_xml_string(KINDS)).supports(sn.engines.SHAPES) is None
    assert sn.prepare(mujoco.MjSpec.from_string(KINDS), [sn.engines.SHAPES]).compile().ngeom == len(engine.shapes())


@pytest.mark.parametrize(
    ("field", "row", "what"),
    [
        ("geom_size", 3, "geom 'top' has a different geom_size in env 1"),
        ("geom_pos", 9, "geom 'big' has a different geom_pos in env 1"),
        ("body_pos", 2, "body 'shelf' has a different body_pos in env 1"),
        ("geom_rgba", 4, "geom 'ball' has a different geom_rgba in env 1"),
    ],
)
def test_shapes_that_differ_between_environments_are_refused(field: str, row: int, what: str) -> None:
    """Shapes are shared: a batch whose geoms differ raises an error that names the geom; an equal change in all envs is
    used.
    """
    engine = sn.MujocoEngine(KINDS, 2)
    values = engine.batch.expand(field)
    if field == "geom_rgba":
        values[1, row, :3] = 0.1
        assert by_name(engine)["ball"].is_visible
        engine = sn.MujocoEngine(KINDS, 2)
        values = engine.batch.expand(field)
        values[1, row, 3] = 0.0
    else:
        values[1, row] += 0.05
    with pytest.raises(ModelError, match=rf"{what} than in env 0\. Shapes are shared by all environments"):
        engine.shapes()
    values[0] = values[1]
    assert len(engine.shapes()) == 11
    if field == "geom_size":
        assert by_name(engine)["top"].size == pytest.approx((0.55, 0.45, 0.07))


def test_shapes_that_differ_later_are_refused_at_the_next_reset() -> None:
    """Domain randomisation writes at resets: rays that would miss its changes must not continue silently."""
    engine = sn.MujocoEngine(KINDS, 2)
    engine.reset(None)
    engine.shapes()
    sizes = engine.batch.expand("geom_size")
    sizes[1, 3] += 0.05
    with pytest.raises(ModelError, match=r"geom 'top' has a different geom_size in env 1 than in env 0"):
        engine.reset([1])
    sizes[1, 3] = sizes[0, 3]
    engine.reset([1])


def test_moving_body_can_start_elsewhere_in_each_env() -> None:
    """Poses of moving bodies are state, so shapes do not depend on them."""
    engine = sn.MujocoEngine(KINDS, 2)
    engine.batch.expand("body_pos")[1, engine.model.body("door").id] += 0.1
    assert len(engine.shapes()) == 11


def test_environments_of_different_models_are_refused() -> None:
    """`batch.set_models` with several models raises a clear error."""
    engine = sn.MujocoEngine(KINDS, 2)
    engine.batch.set_models([mujoco.MjModel.from_xml_string(KINDS) for _ in range(2)])
    with pytest.raises(ModelError, match="the environments run different models"):
        engine.shapes()


# Known robots ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["suite/quadruped.xml", "suite/humanoid.xml", "suite/dog.xml", "third_party/kinova/jaco_arm.xml"]
)
def test_robots_of_dm_control_have_a_shape_for_each_geom(path: str) -> None:
    """Every geom is listed in order, at MuJoCo's pose in a random state, each mesh once."""
    folder = Path(pytest.importorskip("dm_control").__file__).parent
    engine = sn.MujocoEngine(str(folder / path))
    model = engine.model
    model.geom_sameframe[:] = 0  # else MuJoCo uses the inertial frame for a geom's if they agree to 1e-6
    data = randomised(model, 1)
    shapes = engine.shapes()
    assert len(shapes) == model.ngeom and len({shape.name for shape in shapes}) == model.ngeom
    for i, shape in enumerate(shapes):
        assert shape.name in (model.geom(i).name, f"geom_{i}") and not shape.fault
        pos, turn = pose_w(engine, shape, data)
        np.testing.assert_allclose(pos, data.geom_xpos[i], rtol=0, atol=1e-6)
        np.testing.assert_allclose(turn, data.geom_xmat[i].reshape(3, 3), rtol=0, atol=1e-6)
    used = {int(i) for i in model.geom_dataid[model.geom_type == int(mujoco.mjtGeom.mjGEOM_MESH)]}
    assert len({id(shape.mesh) for shape in shapes if shape.mesh is not None}) == len(used)


# Custom shapes --------------------------------------------------------------------------------------------------------


def box(name: str, **more: Any) -> sn.engines.Shape:
    return sn.engines.Shape("box", name, (0.1, 0.2, 0.3), **more)


def test_tensor_engine_returns_the_given_shapes() -> None:
    """Shapes are in order, with the rows of the named bodies; the world never moves, and geoms are a separate list."""
    engine = sn.TensorEngine(
        bodies=("base", "tool"),
        geoms={"pad": "tool"},
        shapes=[
            sn.engines.Shape("plane", "ground"),
            box("wall", body="world"),
            box("trunk", body="base", pos=(1, 2, 3)),
            box("tip", body="tool"),
            box("trail", body=0),
            box("bench", body="tool", is_static=True),
        ],
    )
    shapes = engine.shapes()
    assert [(shape.name, shape.body) for shape in shapes] == [
        ("ground", -1), ("wall", -1), ("trunk", 0), ("tip", 1), ("trail", 0), ("bench", 1),
    ]  # fmt: skip
    assert [shape.is_static for shape in shapes] == [True, True, False, False, False, True]
    assert shapes[2].pos == (1.0, 2.0, 3.0) and shapes[2].row == 0
    assert engine.names("geom") == ("pad",)
    assert engine.supports(sn.engines.SHAPES) is None
    engine.prepare({sn.engines.SHAPES: "lidar", sn.engines.BODY_POSE: "lidar"})


def test_mapping_keys_name_the_shapes() -> None:
    """The keys are the names; one shape may be used twice, and the mesh is the same object."""
    wedge = sn.engines.Mesh([[0, 0, 0], [1, 0, 0], [0, 2, 0]], [[0, 1, 2]])
    stone = sn.engines.Shape("mesh", "stone", mesh=wedge, body="body")
    engine = sn.TensorEngine(shapes={"left": stone, "right": stone})
    assert [shape.name for shape in engine.shapes()] == ["left", "right"]
    assert all(shape.mesh is wedge for shape in engine.shapes())


def test_tensor_engine_without_shapes_explains_how_to_give_them() -> None:
    """Missing shapes are rejected, and an empty world is accepted."""
    engine = sn.TensorEngine()
    assert engine.shapes() == ()
    with pytest.raises(UnsupportedError, match=r"'lidar' requires SHAPES.*Give TensorEngine\(\.\.\., shapes=\["):
        engine.prepare({sn.engines.SHAPES: "lidar"})
    empty = sn.TensorEngine(shapes=())
    assert empty.supports(sn.engines.SHAPES) is None and empty.shapes() == ()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"shapes": [box("crate", body="bse")]},
            r"shape 'crate': there is no body 'bse'\. Did you mean 'base'\?.*tool",
        ),
        ({"shapes": [box("crate", body=2)]}, r"shape 'crate': got body index 2, expected -1 to 1\."),
        ({"shapes": [box("crate", body=-2)]}, r"shape 'crate': got body index -2, expected -1 to 1\."),
        (
            {"shapes": [box("crate"), box("crate")]},
            r"shape 'crate': 2 shapes have this name, give each a unique name\.",
        ),
        (
            {"shapes": [box("crate", is_static=False)]},
            r"shape 'crate': is_static=False on the world, which never moves",
        ),
        ({"shapes": box("crate")}, r"got one Shape, 'crate', expected a sequence: write shapes=\[\.\.\.\]"),
        ({"shapes": ["crate"]}, r"shapes: got 'crate', expected a Shape"),
        (
            {"shapes": [box("crate", body="tool")], "provides": ("velocity",)},
            r"shape 'crate' moves with body 'tool'.*provides=\('pose', 'velocity', 'magnetic'\).*is_static=True",
        ),
    ],
)
def test_a_shape_that_does_not_fit_is_named(more: dict[str, Any], message: str) -> None:
    """Unknown bodies, duplicate names and bodies without written poses are errors with the shape and the fix."""
    with pytest.raises(ModelError, match=message):
        sn.TensorEngine(bodies=("base", "tool"), **more)


def test_static_shapes_need_no_poses() -> None:
    """A fixed world is granted even if no pose is written."""
    engine = sn.TensorEngine(shapes=[sn.engines.Shape("plane", "ground")], provides=("velocity",))
    assert engine.supports(sn.engines.SHAPES) is None


def test_a_shape_on_a_named_body_has_no_row_yet() -> None:
    """`row` of a shape that no engine placed is an error, and so is a body that is neither row nor name."""
    with pytest.raises(ModelError, match=r"shape 'crate': body: 'base' has no row"):
        _ = box("crate", body="base").row
    with pytest.raises(ModelError, match=r"shape 'crate': body: got 0\.5, expected a row of a body"):
        box("crate", body=0.5)
