"""The bundled hall: closed to its paths, the same for the same seed, and large enough to scan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from reference.surfaces import nearest_on_triangles
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
    changed = [a.name for a, b in zip(first, other, strict=True) if a.mesh.vertices.shape != b.mesh.vertices.shape]  # type: ignore[union-attr]
    assert changed == ["crate"]
    assert 3000 < len(corners(first)) < 8000


def test_the_hall_as_a_file(tmp_path: Path) -> None:
    world = hall.shapes()
    lines = hall.write_obj(world, tmp_path / "hall.obj").read_text(encoding="utf-8").splitlines()
    vertices = np.array([line.split()[1:] for line in lines if line.startswith("v ")], dtype=np.float64)
    faces = np.array([line.split()[1:] for line in lines if line.startswith("f ")], dtype=np.int64) - 1
    np.testing.assert_allclose(vertices[faces], corners(world), atol=1e-7)
