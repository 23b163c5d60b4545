"""The slow reference for signed distances: closed forms, formula-free searches, and equivalent shapes."""

from __future__ import annotations

import numpy as np
import pytest
import surfaces
from numpy.typing import NDArray
from reference import random_poses, reference_distance
from reference.surfaces import nearest_on_triangles, winding_number
from scipy.spatial.transform import Rotation
from solid_meshes import bumpy, hollow, icosphere, torus, turned

from sensorium.geometry.bounds import box_mesh
from sensorium.geometry.shapes import HeightField, Mesh, Shape

Floats = NDArray[np.float64]
X, Y, Z = np.eye(3)
HALF = np.sqrt(0.5)

CASES = {
    "plane above": (Shape("plane", "s"), [3.0, 9.0, 2.0], 2.0, [3.0, 9.0, 0.0], Z),
    "plane below": (Shape("plane", "s"), [3.0, 9.0, -2.0], -2.0, [3.0, 9.0, 0.0], Z),
    "beside a rectangle": (Shape("plane", "s", (1.0, 2.0)), [4.0, 6.0, -2.0], -2.0, [4.0, 6.0, 0.0], Z),
    "sphere": (Shape("sphere", "s", (2.0,)), [0.0, 3.0, 4.0], 3.0, [0.0, 1.2, 1.6], 0.6 * Y + 0.8 * Z),
    "in a sphere": (Shape("sphere", "s", (2.0,)), [0.0, 0.0, -0.5], -1.5, [0.0, 0.0, -2.0], -Z),
    "capsule": (Shape("capsule", "s", (1.0, 2.0)), [0.0, 3.0, 6.0], 4.0, [0.0, 0.6, 2.8], 0.6 * Y + 0.8 * Z),
    "in a capsule": (Shape("capsule", "s", (1.0, 2.0)), [0.0, 0.5, 1.5], -0.5, [0.0, 1.0, 1.5], Y),
    "cylinder's rim": (Shape("cylinder", "s", (1.0, 2.0)), [0.0, 4.0, 6.0], 5.0, [0.0, 1.0, 2.0], 0.6 * Y + 0.8 * Z),
    "in a cylinder": (Shape("cylinder", "s", (1.0, 2.0)), [0.0, 0.5, -1.9], -0.1, [0.0, 0.5, -2.0], -Z),
    "box's edge": (Shape("box", "s", (1.0, 2.0, 3.0)), [4.0, 6.0, 0.0], 5.0, [1.0, 2.0, 0.0], 0.6 * X + 0.8 * Y),
    "in a box": (Shape("box", "s", (1.0, 2.0, 3.0)), [0.1, -1.5, 0.0], -0.5, [0.1, -2.0, 0.0], -Y),
    "on a box": (Shape("box", "s", (1.0, 2.0, 3.0)), [0.1, -2.0, 0.0], 0.0, [0.1, -2.0, 0.0], -Y),
    "ellipsoid's tip": (Shape("ellipsoid", "s", (1.0, 2.0, 3.0)), [0.0, 0.0, 7.0], 4.0, [0.0, 0.0, 3.0], Z),
    "in an ellipsoid": (Shape("ellipsoid", "s", (1.0, 2.0, 3.0)), [0.2, 0.0, 0.0], -0.8, [1.0, 0.0, 0.0], X),
    "turned and shifted": (
        Shape("box", "s", (1.0, 2.0, 3.0), pos=(0.0, 0.0, 5.0), quat=(HALF, 0.0, 0.0, HALF)),
        [2.5, 0.0, 5.0], 0.5, [2.0, 0.0, 5.0], X,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_simple_cases_have_known_answers(case: str) -> None:
    shape, p, distance, point, gradient = CASES[case]
    found = reference_distance(shape, [p])
    np.testing.assert_allclose(found.distance, [distance], atol=1e-12)
    np.testing.assert_allclose(found.point, [point], atol=1e-12)
    np.testing.assert_allclose(found.gradient, [gradient], atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "size"),
    [("ellipsoid", (0.5, 1.0, 0.2)), ("ellipsoid", (1.0, 1.0, 0.3)), ("cylinder", (0.3, 0.5)), ("capsule", (0.1, 0.5)),
     ("box", (0.5, 1.0, 0.2)), ("sphere", (0.5,))],
)  # fmt: skip
def test_a_search_over_the_surface_finds_nothing_nearer(kind: str, size: tuple[float, ...]) -> None:
    rng = np.random.default_rng(0)
    p = rng.normal(size=(60, 3)) * rng.choice([0.0, 0.3, 1.0, 3.0], (60, 3))
    found = reference_distance(Shape(kind, "s", size), p)  # type: ignore[arg-type]
    searched = surfaces.searched(kind, size, p)
    assert (np.abs(found.distance) <= searched + 1e-9).all()
    assert (np.abs(found.distance) >= searched - 2e-3).all()
    np.testing.assert_allclose(surfaces.searched(kind, size, found.point), 0.0, atol=2e-3)


@pytest.mark.parametrize("kind", ["sphere", "capsule", "ellipsoid", "cylinder", "box", "plane"])
def test_gradient_matches_central_differences(kind: str) -> None:
    size = {"sphere": (0.5,), "capsule": (0.2, 0.5), "cylinder": (0.3, 0.5), "plane": ()}.get(kind, (0.5, 1.0, 0.2))
    shape = Shape(kind, "s", size, pos=(0.1, 0.2, 0.3), quat=(0.5, 0.5, -0.5, 0.5))  # type: ignore[arg-type]
    p = np.random.default_rng(1).normal(size=(300, 3))
    found = reference_distance(shape, p)
    away = found.distance > 0.05  # inside there are places where the nearest surface point jumps
    slopes = [
        (reference_distance(shape, p + 1e-6 * e).distance - reference_distance(shape, p - 1e-6 * e).distance) / 2e-6
        for e in np.eye(3)
    ]
    assert away.sum() > 50
    np.testing.assert_allclose(found.gradient[away], np.stack(slopes, axis=1)[away], atol=1e-5)


def test_a_box_of_triangles_or_of_a_flat_height_field_is_a_box() -> None:
    p = np.random.default_rng(2).uniform(-1.0, 1.0, (400, 3))
    box = reference_distance(Shape("box", "s", (0.6, 0.4, 0.3)), p)
    mesh = Shape("mesh", "s", mesh=box_mesh((0.6, 0.4, 0.3)))
    flat = HeightField(np.full((4, 6), 0.3), (0.6, 0.4), base=0.3)
    for shape in (mesh, Shape("hfield", "s", hfield=flat)):
        found = reference_distance(shape, p)
        np.testing.assert_allclose(found.distance, box.distance, atol=1e-12)
        outside = box.distance > 0.0
        np.testing.assert_allclose(found.gradient[outside], box.gradient[outside], atol=1e-9)


def test_triangulated_balls_converge_to_a_sphere() -> None:
    points, faces = icosphere(3)
    p = np.random.default_rng(3).normal(size=(300, 3))
    found = reference_distance(Shape("mesh", "s", mesh=Mesh(points, faces)), p)
    np.testing.assert_allclose(found.distance, reference_distance(Shape("sphere", "s", (1.0,)), p).distance, atol=0.011)


def test_distance_to_triangles_matches_planes_and_edges() -> None:
    rng = np.random.default_rng(4)
    corners = rng.normal(size=(40, 3, 3))
    p = rng.normal(size=(200, 3)) * 1.5
    foot, normal = nearest_on_triangles(p, corners)
    np.testing.assert_allclose(np.linalg.norm(p - foot, axis=1), surfaces.to_triangles(p, corners), atol=1e-12)
    np.testing.assert_allclose(surfaces.to_triangles(foot, corners), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(normal, axis=1), 1.0)


def test_winding_number_counts_windings_around_a_point() -> None:
    """The test covers a star-shaped body, whose inside follows from the ray from its middle, a ring, and a cavity."""
    rng = np.random.default_rng(5)
    mesh = bumpy(rng)
    corners = mesh.vertices[mesh.faces]
    p = rng.uniform(-1.0, 1.0, (300, 3))
    inside = np.zeros(len(p), bool)
    for triangle in corners:  # p is a sum of the corners with non-negative weights, and these sum to less than 1
        weights = np.linalg.solve(triangle.T, p.T)
        inside |= (weights >= 0.0).all(axis=0) & (weights.sum(axis=0) <= 1.0)
    number = winding_number(p, corners)
    np.testing.assert_allclose(number, inside.astype(float), atol=1e-9)
    np.testing.assert_allclose(winding_number(p, corners[:, ::-1]), -number, atol=1e-12)
    ring = torus()
    through = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    np.testing.assert_allclose(winding_number(through, ring.vertices[ring.faces]), [0.0, 1.0], atol=1e-9)
    shell = hollow(rng)
    number = winding_number([[0.0, 0.0, 0.15], [0.0, 0.0, 0.4]], shell.vertices[shell.faces])
    np.testing.assert_allclose(number, [0.0, 1.0], atol=1e-9)


def test_a_mesh_wound_inwards_is_the_same_solid() -> None:
    mesh = bumpy(np.random.default_rng(6), 1)
    p = np.random.default_rng(7).normal(size=(100, 3))
    out, inwards = (reference_distance(Shape("mesh", "s", mesh=each), p) for each in (mesh, turned(mesh)))
    np.testing.assert_allclose(out.distance, inwards.distance, atol=1e-12)


def test_points_below_a_height_field_are_inside_and_beside_it_outside() -> None:
    field = HeightField([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], (1.0, 1.0))
    p = [[0.0, 0.0, 0.5], [0.0, 0.0, 2.0], [0.9, 0.9, -3.0], [1.1, 0.0, -3.0]]
    assert (reference_distance(Shape("hfield", "s", hfield=field), p).distance < 0.0).tolist() == [
        True, False, True, False,
    ]  # fmt: skip


def test_shapes_move_with_their_bodies() -> None:
    rng = np.random.default_rng(8)
    pos, quat = random_poses(rng, 3)
    turn = Rotation.from_quat(np.roll(quat[2], -1))
    shape = Shape("box", "s", (0.5, 0.3, 0.2), body=2, pos=(0.1, 0.2, 0.3), quat=(HALF, HALF, 0.0, 0.0))
    still = Shape("box", "s", (0.5, 0.3, 0.2))
    p = rng.normal(size=(50, 3))
    here = reference_distance(still, p)
    inner = Rotation.from_quat([HALF, 0.0, 0.0, HALF])
    there = reference_distance(shape, pos[2] + turn.apply(np.array(shape.pos) + inner.apply(p)), (pos, quat))
    np.testing.assert_allclose(there.distance, here.distance, atol=1e-12)
    np.testing.assert_allclose(there.gradient, turn.apply(inner.apply(here.gradient)), atol=1e-9)
    np.testing.assert_allclose(
        there.point, pos[2] + turn.apply(np.array(shape.pos) + inner.apply(here.point)), atol=1e-9
    )
    with pytest.raises(ValueError, match="whose pose is not in"):
        reference_distance(shape, p)
