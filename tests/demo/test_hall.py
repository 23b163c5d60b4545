"""The bundled hall: closed to its paths, the same for the same seed, and large enough to scan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hall_textures
import numpy as np
import pytest
from reference.surfaces import nearest_on_triangles
from scipy.ndimage import gaussian_filter, maximum_filter
from scipy.spatial.transform import Rotation
from selection import gate

import sensorium as sn
from sensorium.demo import hall


def corners(world: tuple[sn.engines.Shape, ...]) -> np.ndarray:
    return np.concatenate([shape.mesh.vertices[shape.mesh.faces] for shape in world if shape.mesh is not None])


@pytest.mark.parametrize(("name", "clearance"), [("drone", 0.29), ("car", 0.4)])
@pytest.mark.parametrize("seed", gate([0, 1], {0}))
def test_paths_keep_clear_of_the_hall(name: str, clearance: float, seed: int) -> None:
    path = getattr(hall, name)()
    points = path.at(np.linspace(0.0, path.duration, 500)).pos
    foot, _ = nearest_on_triangles(points, corners(hall.shapes(seed)))
    assert np.linalg.norm(points - foot, axis=1).min() > clearance


@pytest.mark.parametrize("name", ["drone", "car"])
def test_paths_start_and_end_at_rest_and_are_gentle(name: str) -> None:
    path = getattr(hall, name)()
    motion = path.at(np.linspace(0.0, path.duration, 5000))
    speed = np.linalg.norm(motion.lin_vel, axis=1)
    assert 60.0 < path.duration < 90.0 and max(speed[0], speed[-1]) < 1e-3 and speed.max() < 2.3
    assert np.linalg.norm(motion.lin_acc, axis=1).max() < 5.0 and np.linalg.norm(motion.ang_vel, axis=1).max() < 3.0


def test_the_drone_banks_and_the_car_climbs_the_ramp() -> None:
    drone, car = hall.drone(), hall.car()
    motion = drone.at(np.linspace(1.0, drone.duration - 1.0, 3000))
    up = Rotation.from_quat(motion.quat[:, [1, 2, 3, 0]]).apply([0.0, 0.0, 1.0])
    thrust = motion.lin_acc + np.array([0.0, 0.0, 9.81])
    assert (np.cross(up, thrust) / np.linalg.norm(thrust, axis=1)[:, None]).max() < 0.03
    assert np.degrees(np.arccos(up[:, 2].min())) > 15.0
    motion = car.at(np.linspace(1.0, car.duration - 1.0, 3000))
    nose = Rotation.from_quat(motion.quat[:, [1, 2, 3, 0]]).apply([1.0, 0.0, 0.0])
    assert motion.pos[:, 2].max() == pytest.approx(1.5, abs=0.01) and motion.pos[:, 2].min() == pytest.approx(0.5)
    assert np.degrees(np.arcsin(nose[:, 2].max())) == pytest.approx(np.degrees(np.arctan(1.0 / 7.0)), abs=0.3)
    assert (nose * motion.lin_vel).sum(axis=1).min() > 0.95 * np.linalg.norm(motion.lin_vel, axis=1).min()


def test_the_seed_decides_the_crates() -> None:
    first, again, other = (hall.shapes(seed) for seed in (0, 0, 1))
    assert np.array_equal(corners(first), corners(again))
    meshes = [[shape.mesh for shape in world if shape.mesh is not None] for world in (first, other)]
    changed = [a.name for a, b in zip(*meshes, strict=True) if a.vertices.shape != b.vertices.shape]
    assert changed == ["crate"]
    assert 3000 < len(corners(first)) < 8000


def test_the_textures_are_those_of_the_script() -> None:
    with np.load(Path(hall.__file__).with_suffix(".npz")) as file:
        for name, drawn in hall_textures.textures().items():
            np.testing.assert_array_equal(file[name], drawn)
    used = {shape.material.texture.name.partition("/")[2] for shape in hall.shapes() if shape.mesh is not None}  # type: ignore[union-attr]
    assert used == set(hall_textures.KINDS)


def test_faces_look_into_the_hall() -> None:
    """Lamps light a surface from its front: all faces that rays from the flight hit are seen from there."""
    engine = sn.TrajectoryEngine(hall.drone(), 0.05, world=hall.shapes())
    rays = sn.patterns.SphericalPatternCfg(fov=(360.0, 160.0), n_points=(60, 30))
    fields = ("distances", "points_w", "normals_w")
    lidar = sn.LidarCfg(name="lidar", body="body", pattern=rays, max_distance=60.0, fields=fields)
    scene = sn.Scene(engine, [lidar])
    for _ in range(3):
        data = scene["lidar"].data
        seen = data.points_w - engine.body_pos_w
        hit = data.distances.isfinite()
        assert hit.sum() > 1000 and ((seen * data.normals_w).sum(dim=-1)[hit] < 0.0).all()
        scene.step(substeps=400)


def test_tags_hang_upright_on_walls() -> None:
    """Their fronts are on a wall up to their edges, and look into the hall."""
    world, edges, fronts = hall.shapes(), [], []
    tags = [shape for shape in world if shape.labels == ("tag",)]
    assert [tag.name for tag in tags] == [f"tag_{k}" for k in range(len(hall.TAGS))]
    for tag, (*_, azimuth) in zip(tags, np.array(hall.TAGS), strict=True):
        turn = Rotation.from_quat(tag.quat, scalar_first=True)
        front = [np.cos(np.radians(azimuth)), np.sin(np.radians(azimuth)), 0.0]
        np.testing.assert_allclose(turn.apply([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), [[0.0, 0.0, 1.0], front], atol=1e-9)
        x, y, z = tag.size
        edges.append(tag.pos + turn.apply([(x, y, z), (-x, y, z), (x, -y, z), (-x, -y, z)]))
        fronts += [front] * 4
    found = np.concatenate(edges)
    walls = tuple(shape for shape in world if shape.name in ("wall", "room"))
    off = found - nearest_on_triangles(found, corners(walls))[0]
    assert np.linalg.norm(off, axis=1).max() < 1e-4 and (off * fronts).sum(axis=1).min() > 5e-5


def corner_count(image: np.ndarray) -> int:
    """Return the number of corners that Shi and Tomasi's tracker would choose, at least 5 px apart."""
    down, across = np.gradient(gaussian_filter(image.astype(np.float64), 0.7))
    a, b, c = (gaussian_filter(each, 1.0) for each in (down * down, down * across, across * across))
    strength = 0.5 * (a + c) - np.sqrt(0.25 * (a - c) ** 2 + b**2)  # the smaller eigenvalue
    return int(((strength == maximum_filter(strength, 9)) & (strength > 0.01 * strength.max())).sum())


def test_images_have_corners_and_do_not_depend_on_the_camera() -> None:
    """In the same light, a wall has the same colour from two places."""
    views = [
        sn.CameraCfg.OffsetCfg.from_view(pos, (-12.0, -12.0, 1.5)) for pos in ((-12.0, -8.0, 1.5), (-14.0, -8.5, 2.5))
    ]
    size: dict[str, Any] = {"lens": sn.lenses.PinholeLensCfg(fovy=70.0), "data_types": ("rgb",)}
    fixed = [
        sn.CameraCfg(name=f"fixed_{k}", body="world", offset=view, width=40, height=30, **size)
        for k, view in enumerate(views)
    ]
    front = sn.CameraCfg(name="front", body="body", width=320, height=240, **size)
    engine = sn.TrajectoryEngine(hall.drone(), 0.05, world=hall.shapes(), lighting=hall.lighting())
    scene = sn.Scene(engine, [front, *fixed])
    first, second = (scene[cfg].data.rgb[0, 12:18, 15:25].numpy().reshape(-1, 3).mean(axis=0) for cfg in fixed)
    np.testing.assert_allclose(first, second, rtol=0.1)
    for _ in range(2):
        assert corner_count(scene["front"].data.rgb[0].numpy().mean(axis=-1)) > 150
        scene.step(substeps=720)


def test_the_hall_as_a_file(tmp_path: Path) -> None:
    world = hall.shapes()
    lines = hall.write_obj(world, tmp_path / "hall.obj").read_text(encoding="utf-8").splitlines()
    vertices = np.array([line.split()[1:] for line in lines if line.startswith("v ")], dtype=np.float64)
    faces = np.array([line.split()[1:] for line in lines if line.startswith("f ")], dtype=np.int64) - 1
    np.testing.assert_allclose(vertices[faces], corners(world), atol=1e-7)
