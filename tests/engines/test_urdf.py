"""URDF files: meshes of ROS packages, links on fixed joints, and visual shapes that MuJoCo drops."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import trimesh
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.errors import ModelError, SensoriumWarning

INERTIAL = """<inertial><origin xyz="{com}"/><mass value="{mass}"/>
  <inertia ixx=".01" iyy=".02" izz=".025" ixy="0" ixz="0" iyz="0"/></inertial>"""
BALL = "<{0}><origin xyz='{1}'/><geometry><sphere radius='.1'/></geometry></{0}>"


def link(name: str, *parts: str, mass: float = 1.0, com: str = ".01 .02 .03") -> str:
    own = INERTIAL.format(mass=mass, com=com) if mass else ""
    return f"<link name='{name}'>{own}{''.join(parts)}</link>"


def joint(child: str, parent: str, kind: str = "fixed", place: str = "xyz='.1 .02 -.2' rpy='.3 .2 .1'") -> str:
    return f"""<joint name='to_{child}' type='{kind}'><parent link='{parent}'/><child link='{child}'/>
      <axis xyz='0 1 0'/><origin {place}/></joint>"""


def robot(*parts: str, options: str = "") -> str:
    return f"<robot name='robot'>{options}{''.join(parts)}</robot>"


LEG = robot(
    link("world", "<collision><origin xyz='0 0 -.55'/><geometry><box size='4 4 .1'/></geometry></collision>", mass=0.0),
    link("base"),
    link("leg", BALL.format("collision", "0 0 0")),
    link("ankle", mass=0.0),
    link("foot", BALL.format("collision", "0 0 -.1"), mass=0.5, com="0 .05 -.1"),
    link("toe", BALL.format("collision", "0 0 0"), mass=0.2),
    joint("base", "world", "floating", "xyz='0 0 .1'"),
    joint("leg", "base", "continuous"),
    joint("ankle", "leg"),
    joint("foot", "ankle"),
    joint("toe", "foot", "continuous", "xyz='.3 0 0'"),
)


def test_links_on_fixed_joints_are_mounts_and_change_no_dynamics() -> None:
    """A chain leg, ankle, foot against MuJoCo's own model, which merges the three links, also in contact."""
    merged = mujoco.MjModel.from_xml_string(LEG)
    assert [merged.body(i).name for i in range(merged.nbody)] == ["world", "base", "leg", "toe"]
    engine = sn.MujocoEngine(LEG)
    assert engine.names("body") == ("base", "leg", "ankle", "foot", "toe")
    match = sn.ContactMatch(mode="body", pattern="leg|foot")
    contact = sn.ContactSensorCfg(name="contact", primary=match, fields=("found",))
    scene = sn.Scene(engine, [contact], discover=False)
    scene.step(substeps=10)
    assert scene["contact"].data.found[0].tolist() == [0.0, 1.0]  # type: ignore[attr-defined]
    model = engine.model
    data, here = mujoco.MjData(merged), mujoco.MjData(model)
    for _ in range(400):
        mujoco.mj_step(merged, data)
        mujoco.mj_step(model, here)
    np.testing.assert_allclose(here.qpos, data.qpos, atol=1e-9)
    np.testing.assert_allclose(here.qvel, data.qvel, atol=1e-9)
    assert data.ncon > 0
    mujoco.mj_forward(model, here)
    mujoco.mj_forward(merged, data)
    full = [np.zeros((m.nv, m.nv)) for m in (model, merged)]
    mujoco.mj_fullM(model, here, full[0])
    mujoco.mj_fullM(merged, data, full[1])
    np.testing.assert_allclose(full[0], full[1], atol=1e-10)
    imu = sn.ImuCfg(name="imu", body="ankle")
    with pytest.raises(sn.SelectionError, match=r"fixed joints of URDF files.*compiler\.fusestatic = False"):
        sn.Scene(sn.MujocoEngine(merged), [imu])
    place = Rotation.from_euler("xyz", [0.3, 0.2, 0.1])  # roll, pitch, yaw about fixed axes
    pos, turn = data.body("leg").xpos, Rotation.from_matrix(data.body("leg").xmat.reshape(3, 3))
    for name in ("ankle", "foot"):
        pos, turn = pos + turn.apply([0.1, 0.02, -0.2]), turn * place
        np.testing.assert_allclose(here.body(name).xpos, pos, atol=1e-9)
        np.testing.assert_allclose(here.body(name).xmat.reshape(3, 3), turn.as_matrix(), atol=1e-9)


def test_links_below_a_root_that_mujoco_cannot_keep_are_reported() -> None:
    """MuJoCo allows a free joint only on the world, so that the root link stays merged into the world."""
    text = robot(link("root", mass=0.0), link("base"), joint("base", "root", "floating"))
    imu = sn.ImuCfg(name="imu", body="base", fields=("lin_acc_b",))
    with pytest.warns(SensoriumWarning, match="merged into their parents.*rename it to 'world'"):
        scene = sn.Scene(sn.MujocoEngine(text), [imu])
    assert scene.engine.names("body") == ("base",)
    np.testing.assert_allclose(scene["imu"].data.lin_acc_b, 0.0, atol=1e-6)  # type: ignore[attr-defined]


def mesh(name: str, part: str = "collision") -> str:
    return f"<{part}><geometry><mesh filename='{name}' scale='1 1 2'/></geometry></{part}>"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return the folder of a package whose name differs from that of its folder, with two meshes of one name."""
    folder = tmp_path / "work space" / "checkout"
    for place, made in (
        (folder / "meshes/visual/part.stl", trimesh.creation.icosphere(1)),
        (folder / "meshes/part.stl", trimesh.creation.box()),
        (folder.parent / "other/meshes/part.stl", trimesh.creation.icosphere(0)),
        (tmp_path / "share/far/part.stl", trimesh.creation.icosahedron().subdivide().subdivide()),
    ):
        place.parent.mkdir(parents=True, exist_ok=True)
        made.export(place)
    (folder / "package.xml").write_text("<package><name>my_robot</name></package>", encoding="utf-8")
    (folder / "urdf/nested").mkdir(parents=True)
    return folder


def written(package: Path, *parts: str, options: str = "") -> Path:
    path = package / "urdf/nested/robot.urdf"
    text = robot(link("base"), link("arm", *parts), joint("arm", "base", "continuous"), options=options)
    path.write_text(f"<?xml version='1.0'?>\n<!-- one\ntwo -->\n{text}", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "vertices"),
    [
        ("package://my_robot/meshes/part.stl", 8),
        ("package://my_robot/meshes/visual/part.stl", 42),
        ("model://checkout/meshes/part.stl", 8),
        ("package://other/meshes/part.stl", 12),
        ("package://far/part.stl", 162),
        ("../../meshes/visual/part.stl", 42),
        ("file://{root}/work%20space/checkout/meshes/part.stl", 8),
        ("{root}/work space/checkout/meshes/part.stl", 8),
    ],
)
def test_meshes_of_packages_and_paths(
    name: str, vertices: int, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages above the file and beside them, and in a folder of ROS; meshes of one name in several folders."""
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    options = "<mujoco><compiler strippath='true'/></mujoco>"
    names = ("package://my_robot/meshes/part.stl", name.format(root=tmp_path))
    path = written(package, *map(mesh, names), options=options)
    model = sn.MujocoEngine(path).model
    used = [int(model.mesh_vertnum[i]) for i in model.geom_dataid]
    assert used == [8, vertices]
    size = np.ptp(model.mesh_vert[: model.mesh_vertnum[0]], axis=0)
    np.testing.assert_allclose(np.sort(size), [1.0, 1.0, 2.0], atol=1e-6)


def test_a_mesh_of_an_unknown_package_is_explained(package: Path) -> None:
    path = written(package, mesh("package://nowhere/part.stl"))
    with pytest.raises(ModelError) as caught:
        sn.MujocoEngine(path).names("body")
    for part in (str(path), "nowhere/part.stl", "package:// starts at", "Set ROS_PACKAGE_PATH"):
        assert part in str(caught.value)
    path = written(package, mesh("package://nowhere/part.dae", "visual"))
    assert sn.MujocoEngine(path).model.nmesh == 0  # which MuJoCo drops
    (path.parent / "flat").mkdir()
    trimesh.creation.box().export(path.parent / "flat/part.stl")
    path = written(package, mesh("package://nowhere/part.stl"), options="<mujoco><compiler meshdir='flat'/></mujoco>")
    assert sn.MujocoEngine(path).model.nmesh == 1  # where MuJoCo looks, which drops the path
    text = path.read_text(encoding="utf-8").replace("<axis xyz='0 1 0'", "<axis xyz='0 1'")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=f"line {1 + text[: text.index('<axis')].count(chr(10))}$"):
        sn.MujocoEngine(path)


def test_visual_shapes_that_are_dropped_are_reported_once_where_a_camera_looks() -> None:
    camera = sn.CameraCfg(name="camera", body="world", width=4, height=4, lens=sn.lenses.PinholeLensCfg(fovy=60.0))
    beam = sn.RayCasterCfg(name="beam", body="world")
    parts = (link("base", BALL.format("collision", "0 0 0"), BALL.format("visual", "0 0 1")), link("arm"))
    keep = '<mujoco><compiler discardvisual="false"/></mujoco>'

    def shapes(cfg: Any, options: str = "") -> tuple[list[str], int]:
        text = robot(*parts, joint("arm", "base", "continuous"), options=options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scene = sn.Scene(sn.MujocoEngine(text), [cfg, cfg.replace(name="second")], discover=False)
        return [str(each.message) for each in caught], len(scene.engine.shapes())

    (message,), count = shapes(camera)
    assert 'discardvisual="false"' in message and count == 1
    assert shapes(beam) == ([], 1)
    assert shapes(camera, keep) == ([], 2)
