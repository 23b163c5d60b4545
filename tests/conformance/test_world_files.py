"""A world from a file looks as in `MujocoEngine`: lights, sky, materials, textures and colours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trimesh
from PIL import Image
from trimesh.visual import TextureVisuals
from trimesh.visual.material import PBRMaterial

import sensorium as sn

POS, QUAT = (-0.5, 0.3, 1.1), (0.9961947, 0.0, 0.0871557, 0.0)
"""Pose of the camera, which looks along x and 10 degrees down."""
WORLD = """
<mujoco>
  <visual><headlight ambient=".2 .2 .2" diffuse=".3 .3 .3"/></visual>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1=".3 .5 .7" rgb2="0 0 0" width="16" height="96"/>
    <texture name="grid" type="2d" builtin="checker" rgb1=".1 .2 .3" rgb2=".8 .7 .6" width="32" height="32"/>
    <texture name="cross" type="cube" builtin="flat" mark="cross" rgb1=".8 .3 .1" width="16" height="96"/>
    <material name="grid" texture="grid" texrepeat="4 4" texuniform="true" reflectance=".3"/>
    <material name="cross" texture="cross" specular=".9" shininess=".8"/>
    <material name="glow" rgba=".9 .2 .2 1" emission=".5"/>
  </asset>
  <worldbody>
    <light type="directional" dir=".4 .3 -1" pos="0 0 5" diffuse=".4 .4 .4"/>
    <geom type="plane" size="0 0 1" material="grid"/>
    <body pos="2 .5 .5" euler="0 0 30">
      <geom name="box" type="box" size=".3 .4 .5" material="cross"/>
      <light pos="-1 0 2" dir=".3 0 -1" diffuse=".6 .5 .3" cutoff="60"/>
      <body pos="0 0 1" euler="30 0 0">
        <geom size=".3" material="glow"/><site name="box" pos="0 .5 0" size=".1" rgba="0 1 0 1"/>
        <light mode="targetbody" target="post" pos="0 1 2" dir="0 0 -1" diffuse=".2 .3 .6"/>
      </body>
    </body>
    <body name="post" pos="3 -1.5 .4"><geom type="capsule" size=".2 .3" rgba=".1 .7 .3 1"/></body>
  </worldbody>
</mujoco>
"""
TURN = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
"""Transform from z up to y up, as in glTF files."""


def image(engine: Any, body: str = "body", kind: Any = "rgb", **offset: Any) -> torch.Tensor:
    """Return what a camera on a body sees, `[height, width, channel]`, levels of 255."""
    camera = sn.CameraCfg(
        name="camera",
        body=body,
        width=64,
        height=48,
        lens=sn.lenses.PinholeLensCfg(fovy=70.0),
        data_types=(kind,),
        show_sites=True,
        offset={"convention": "world", **offset},
    )
    scene = sn.Scene(engine, [camera], discover=False)
    return getattr(scene["camera"].data, kind)[0].double()  # type: ignore[attr-defined]


def expected_of(path: Path) -> torch.Tensor:
    """Return what the camera sees in `MujocoEngine`."""
    return image(sn.MujocoEngine(path), "world", pos=POS, rot=QUAT)


def along_trajectory(world: Any) -> sn.TrajectoryEngine:
    return sn.TrajectoryEngine((np.arange(4.0), np.tile(POS, (4, 1)), np.tile(QUAT, (4, 1))), 0.01, world=world)


def test_a_model_looks_the_same_in_every_engine(tmp_path: Path) -> None:
    """Several lights, one of them on a turned body and one that looks at another, a sky, textures and a site."""
    path = tmp_path / "world.xml"
    path.write_text(WORLD, encoding="utf-8")
    expected = expected_of(path)
    assert expected.mean() > 50.0 and expected.std() > 30.0
    hull = sn.engines.Shape("sphere", "hull", (0.1,), "body", (-2.0, 0.0, 0.0))
    written = sn.TensorEngine(world=path, provides=("pose",), shapes=[hull])
    written.body_pos_w, written.body_quat_w = torch.tensor(POS), torch.tensor(QUAT)
    for engine in (along_trajectory(path), written):
        assert (image(engine) - expected).abs().mean() < 0.05, engine.name
    dark = sn.TensorEngine(world=path, lighting=sn.engines.Lighting(lights=()), provides=("pose",))
    assert not dark.lighting().lights


def parts() -> dict[str, trimesh.Trimesh]:
    """Return a box, a cylinder and a ball in front of the camera."""
    found = {
        "box": trimesh.creation.box((1.0, 1.5, 1.0)),
        "drum": trimesh.creation.cylinder(0.4, 1.2, sections=24),
        "ball": trimesh.creation.icosphere(2, 0.4),
    }
    for mesh, pos in zip(found.values(), ([2.0, 0.4, 0.6], [1.8, -1.0, 0.7], [2.5, 0.2, 1.7]), strict=True):
        mesh.apply_translation(pos)
    return found


def uv_of(mesh: trimesh.Trimesh) -> np.ndarray:
    x, y, z = mesh.vertices.T
    return np.stack([x + 0.3 * z, 0.7 * y + z], axis=-1)


def normals_of(mesh: trimesh.Trimesh) -> np.ndarray:
    """Return normals that differ from those of the surface."""
    normals = mesh.vertices - mesh.vertices.mean(axis=0) + (0.0, 0.1, 0.2)
    return normals / np.linalg.norm(normals, axis=1, keepdims=True)


def obj_of(name: str, mesh: trimesh.Trimesh, start: int = 1) -> list[str]:
    """Return the lines of a mesh in an OBJ file: with texture coordinates for the box, with normals for the ball."""
    lines = [f"v {x} {y} {z}" for x, y, z in mesh.vertices]
    lines += [f"vn {x} {y} {z}" for x, y, z in normals_of(mesh)] if name == "ball" else []
    lines += [f"vt {u} {v}" for u, v in uv_of(mesh)] if name == "box" else []
    form = {"box": "{0}/{0}", "drum": "{0}", "ball": "{0}//{1}"}[name]
    return lines + ["f " + " ".join(form.format(i + start, i + 1) for i in face) for face in mesh.faces]


def test_meshes_look_as_in_a_model_with_the_same_meshes_and_textures(tmp_path: Path) -> None:
    """OBJ with its materials, and glTF with its transforms and y up, against MuJoCo's own reader of OBJ and PNG."""
    pixels = np.random.default_rng(0).integers(0, 255, (6, 8, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    picture = Image.fromarray(pixels)
    picture.save(tmp_path / "paint.png")
    meshes, red = parts(), (200, 60, 40)
    kd = " ".join(str(level / 255) for level in red)
    lines, start = ["mtllib hall.mtl"], 1
    scene = trimesh.Scene()
    for name, mesh in meshes.items():
        (tmp_path / f"{name}.obj").write_text("\n".join(obj_of(name, mesh)), encoding="utf-8")
        lines += [f"o {name}", f"usemtl {'paint' if name == 'box' else 'red'}", *obj_of(name, mesh, start)]
        start += len(mesh.vertices)
        material = PBRMaterial(baseColorTexture=picture) if name == "box" else PBRMaterial(baseColorFactor=[*red, 255])
        mirror = np.diag([2.0, -2.0, 2.0])
        half = trimesh.Trimesh((mesh.vertices - 1.0) @ np.linalg.inv(mirror), mesh.faces[:, ::-1], process=False)
        half.visual = TextureVisuals(uv=uv_of(mesh) if name == "box" else None, material=material)
        if name == "ball":
            half.vertex_normals = normals_of(mesh) @ mirror
        place = trimesh.transformations.translation_matrix([1.0] * 3)
        place[:3, :3] = mirror
        scene.add_geometry(half, geom_name=name, node_name=name, transform=TURN @ place)
    (tmp_path / "hall.obj").write_text("\n".join(lines), encoding="utf-8")
    text = f"newmtl paint\nKd .4 .4 .4\nmap_Kd paint.png\nnewmtl red\nKd {kd}\n"
    (tmp_path / "hall.mtl").write_text(text, encoding="utf-8")
    scene.export(tmp_path / "hall.glb")
    files = "".join(f"<mesh name='{name}' file='{name}.obj' inertia='shell'/>" for name in meshes)
    (tmp_path / "hall.xml").write_text(
        f"""<mujoco><asset><texture name="paint" type="2d" file="paint.png"/>{files}
        <material name="paint" texture="paint"/>
        </asset><worldbody><geom type="mesh" mesh="box" material="paint"/><geom type="mesh" mesh="ball" rgba="{kd} 1"/>
        <geom type="mesh" mesh="drum" rgba="{kd} 1"/></worldbody></mujoco>""",
        encoding="utf-8",
    )
    expected = expected_of(tmp_path / "hall.xml")
    assert (expected.sum(dim=-1) > 0.0).double().mean() > 0.2
    for file in ("hall.obj", "hall.glb"):
        engine = along_trajectory(tmp_path / file)
        assert {shape.name for shape in engine.shapes()} == set(meshes)
        assert (image(engine) - expected).abs().mean() < 0.05, file


def test_each_material_of_an_object_is_a_shape_with_a_name(tmp_path: Path) -> None:
    """In glTF, objects that share a mesh of several materials; in OBJ, one object."""

    def split(tree: dict[str, Any]) -> None:
        part = tree["meshes"][0]["primitives"][0]
        tree["meshes"][0]["primitives"] = [{**part, "material": i} for i in (0, 1, 1)]
        tree["materials"] = [{"name": name} for name in ("red", "blue")]
        tree["nodes"] = [{"name": "crate", "mesh": 0}, {"name": "wall", "mesh": 0}]
        tree["scenes"] = [{"nodes": [0, 1]}]

    data = trimesh.exchange.gltf.export_glb(trimesh.Scene(parts()["box"]), tree_postprocessor=split)
    (tmp_path / "hall.glb").write_bytes(data)
    names = [shape.name for shape in along_trajectory(tmp_path / "hall.glb").shapes()]
    materials = ("red", "blue", "blue_")
    assert sorted(names) == sorted(f"{name}_{each}" for name in ("crate", "wall") for each in materials)
    lines = obj_of("drum", parts()["drum"])
    text = "\n".join(
        ["mtllib hall.mtl", "o crate", "usemtl red", *lines, "usemtl blue", "f 1 2 3", "o wall", "f 4 5 6"]
    )
    (tmp_path / "hall.obj").write_text(text, encoding="utf-8")
    (tmp_path / "hall.mtl").write_text("newmtl red\nKd 1 0 0\nnewmtl blue\nKd 0 0 1\n", encoding="utf-8")
    shapes = along_trajectory(tmp_path / "hall.obj").shapes()
    assert {shape.name: shape.rgba[:3] for shape in shapes} == {
        "crate_red": (1.0, 0.0, 0.0),
        "crate_blue": (0.0, 0.0, 1.0),
        "wall": (0.0, 0.0, 1.0),
    }


def test_colours_of_vertices_fade_over_their_triangle(tmp_path: Path) -> None:
    """One triangle in front of the camera, whose colour at a pixel is the weighted mean of its corners'."""
    corners = np.array([[2.0, 2.0, -2.0], [2.0, -2.0, -2.0], [2.0, 0.0, 2.0]]) + POS
    colors = np.array([[0.2, 0.3, 0.4], [0.9, 0.3, 0.1], [0.1, 0.4, 0.9]])
    lines = ["v " + " ".join(map(str, (*corner, *color))) for corner, color in zip(corners, colors, strict=True)]
    (tmp_path / "triangle.obj").write_text("\n".join([*lines, "f 1 2 3"]), encoding="utf-8")
    engine = sn.TensorEngine(world=tmp_path / "triangle.obj", provides=("pose",))
    engine.body_pos_w = torch.tensor(POS)
    found = image(engine, kind="albedo").numpy()
    focal = 24.0 / np.tan(np.radians(35.0))
    row, column = np.mgrid[:48, :64] + 0.5
    y, z = 2.0 * (32.0 - column) / focal, 2.0 * (24.0 - row) / focal
    seen = np.stack([y, z, np.ones_like(y)], axis=-1)
    weight = seen @ np.linalg.inv(np.concatenate([(corners - POS).T[1:], np.ones((1, 3))])).T
    is_inside = (weight > 0.05).all(axis=-1)
    assert is_inside.sum() > 300
    np.testing.assert_allclose(found[is_inside][:, :3], 255.0 * (weight @ colors)[is_inside], atol=3.0)


def test_colours_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    """A missing material file or image, lights of glTF, which have other units, and the tendons of a model."""
    triangle = "v 2 -1 0\nv 2 1 0\nv 2 0 2\nvt 0 0\nvt 1 0\nvt 0 1\nusemtl wood\nf 1/1 2/2 3/3\n"
    (tmp_path / "bare.obj").write_text(f"mtllib lost.mtl\n{triangle}", encoding="utf-8")
    (tmp_path / "hall.obj").write_text(f"mtllib hall.mtl\n{triangle}", encoding="utf-8")
    (tmp_path / "hall.mtl").write_text("newmtl wood\nmap_Kd wood.png\n", encoding="utf-8")
    for file, lost in (("bare.obj", "lost.mtl"), ("hall.obj", "wood.png")):
        with pytest.warns(sn.SensoriumWarning, match=lost):
            along_trajectory(tmp_path / file)

    def add_lights(tree: dict[str, Any]) -> None:
        tree["extensions"] = {"KHR_lights_punctual": {"lights": [{"type": "point"}]}}

    data = trimesh.exchange.gltf.export_glb(trimesh.Scene(parts()["box"]), tree_postprocessor=add_lights)
    (tmp_path / "lit.glb").write_bytes(data)
    (tmp_path / "cable.xml").write_text(
        """<mujoco><worldbody><geom size="1"/><site name="a"/><site name="b" pos="1 0 0"/></worldbody>
        <tendon><spatial><site site="a"/><site site="b"/></spatial></tendon></mujoco>""",
        encoding="utf-8",
    )
    for file, lost in (
        ("lit.glb", "its lights, in lux and candela, are not used"),
        ("cable.xml", "its tendons are not drawn"),
    ):
        engine = along_trajectory(tmp_path / file)
        with pytest.warns(sn.SensoriumWarning, match=lost):
            image(engine)
