"""Nearest points of surfaces, checked by searches over sampled surfaces and over all triangles in float64."""

from __future__ import annotations

import numpy as np
import pytest
import surfaces
import warp as wp
from numpy.typing import NDArray
from reference import random_shapes

from sensorium.geometry.hfield import HFields, build_hfields
from sensorium.geometry.nearest import nearest_hfield, nearest_mesh, nearest_primitive
from sensorium.geometry.shapes import KINDS, HeightField, Mesh

wp.set_module_options({"fuse_fp": False, "enable_backward": False})

Array = NDArray[np.float64]

EPS = 2.0**-24
"""Half a unit in the last place of float32, relative: the rounding of one operation."""
SOLIDS = {
    "sphere": [(0.5, 0.0, 0.0), (0.01, 0.0, 0.0), (20.0, 0.0, 0.0)],
    "capsule": [(0.1, 0.5, 0.0), (2.0, 0.01, 0.0), (0.005, 3.0, 0.0)],
    "ellipsoid": [(0.5, 1.0, 0.2), (10.0, 0.1, 3.0), (0.02, 0.01, 0.03), (1.0, 1.0, 0.3), (1.0, 0.3, 0.3), (1.0,) * 3],
    "cylinder": [(0.3, 0.5, 0.0), (5.0, 0.002, 0.0), (0.01, 10.0, 0.0)],
    "box": [(0.5, 1.0, 0.2), (10.0, 10.0, 0.005), (0.01, 0.02, 8.0)],
    "plane": [(0.5, 2.0, 0.0)],
}  # fmt: skip
"""Sizes per kind: plain, flat and long, and ellipsoids with equal radii."""
CASES = [pytest.param(kind, size, id=f"{kind}-{n}") for kind, sizes in SOLIDS.items() for n, size in enumerate(sizes)]


@wp.kernel
def _primitive(
    kind: int,
    size: wp.vec3,
    p: wp.array[wp.vec3],
    foot: wp.array[wp.vec3],
    distance: wp.array[float],
) -> None:
    i = wp.tid()
    spot, far = nearest_primitive(kind, size, p[i])
    foot[i] = spot
    distance[i] = far


@wp.kernel
def _mesh(
    mesh: wp.uint64,
    limit: float,
    p: wp.array[wp.vec3],
    foot: wp.array[wp.vec3],
    distance: wp.array[float],
    face: wp.array[int],
) -> None:
    i = wp.tid()
    spot, far, triangle = nearest_mesh(mesh, p[i], limit)
    foot[i] = spot
    distance[i] = far
    face[i] = triangle


@wp.kernel
def _hfield(
    fields: HFields, index: int, limit: float, p: wp.array[wp.vec3], foot: wp.array[wp.vec3], distance: wp.array[float]
) -> None:
    i = wp.tid()
    spot, far = nearest_hfield(fields, index, p[i], limit)
    foot[i] = spot
    distance[i] = far


def single(values: Array) -> Array:
    """Return numbers that float32 represents exactly."""
    return values.astype(np.float32).astype(np.float64)


def outputs(count: int) -> tuple[wp.array, wp.array]:
    return wp.zeros(count, dtype=wp.vec3, device="cpu"), wp.zeros(count, dtype=float, device="cpu")


def nearest(kind: str, size: tuple[float, ...], p: Array) -> tuple[Array, Array]:
    """Return the nearest points and the distances, as kernels give them."""
    foot, distance = outputs(len(p))
    places = wp.array(p, dtype=wp.vec3, device="cpu")
    args = [KINDS.index(kind), wp.vec3(*size), places, foot, distance]  # type: ignore[arg-type]
    wp.launch(_primitive, len(p), args, device="cpu")
    return foot.numpy().astype(np.float64), distance.numpy().astype(np.float64)


def to_mesh(mesh: Mesh, p: Array, limit: float = 1e6) -> tuple[Array, Array, NDArray[np.int32]]:
    tree = wp.Mesh(
        wp.array(mesh.vertices.astype(np.float32), dtype=wp.vec3, device="cpu"),
        wp.array(mesh.faces.ravel(), dtype=wp.int32, device="cpu"),
        bvh_constructor="cubql",
        bvh_leaf_size=4,
    )
    foot, distance = outputs(len(p))
    face = wp.zeros(len(p), dtype=int, device="cpu")
    places = wp.array(p, dtype=wp.vec3, device="cpu")
    wp.launch(_mesh, len(p), [tree.id, limit, places, foot, distance, face], device="cpu")
    return foot.numpy().astype(np.float64), distance.numpy().astype(np.float64), face.numpy()


def to_hfield(field: HeightField, p: Array, limit: float = 1e6) -> tuple[Array, Array]:
    other = HeightField(np.ones((3, 4)), (1.0, 1.0))
    foot, distance = outputs(len(p))
    args = [build_hfields([other, field]), 1, limit, wp.array(p, dtype=wp.vec3, device="cpu"), foot, distance]
    wp.launch(_hfield, len(p), args, device="cpu")
    return foot.numpy().astype(np.float64), distance.numpy().astype(np.float64)


def outside_by(kind: str, size: tuple[float, ...], p: Array) -> Array:
    """Return how far a point is outside a solid, in a measure that is negative inside and 0 on the surface."""
    if kind in ("sphere", "capsule"):
        half = size[1] if kind == "capsule" else 0.0
        return np.linalg.norm(p - np.clip(p, [0, 0, -half], [0, 0, half]), axis=-1) - size[0]
    if kind == "ellipsoid":
        return (np.linalg.norm(p / size, axis=-1) - 1.0) * min(size)
    if kind == "cylinder":
        return np.maximum(np.hypot(p[..., 0], p[..., 1]) - size[0], np.abs(p[..., 2]) - size[1])
    if kind == "plane":
        return np.abs(p[..., 2]) + np.maximum(np.abs(p[..., :2]) - size[:2], 0.0).max(axis=-1)
    return (np.abs(p) - size).max(axis=-1)


def points(size: tuple[float, ...], seed: int, count: int = 60) -> Array:
    """Return points inside, near, far, in the planes of symmetry, on the axes and at the centre."""
    rng = np.random.default_rng(seed)
    extent = np.array([max(value, 0.02 * max(size)) for value in size])
    if size[2] == 0.0:
        extent[:] = size[0], size[0], size[0] + size[1]
    p = rng.uniform(-1.3, 1.3, (count, 3)) * extent
    far = rng.normal(size=(count // 4, 3)) * 5.0 * max(size)
    flat = p[: count // 2] * rng.integers(0, 2, (count // 2, 3))
    return single(np.concatenate([p, far, flat, np.zeros((1, 3))]))


# Analytic shapes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "size"), CASES)
def test_nearest_point_on_an_analytic_surface_is_the_nearest(kind: str, size: tuple[float, ...]) -> None:
    """The point is on the surface at the reported distance, and a search finds no nearer point."""
    size = tuple(np.float32(size).astype(float))
    p = points(size, seed=len(kind))
    foot, distance = nearest(kind, size, p)
    rounding = 16 * EPS * (np.linalg.norm(p, axis=1) + np.linalg.norm(size))
    assert (np.abs(outside_by(kind, size, foot)) <= rounding).all()
    assert (np.abs(np.linalg.norm(p - foot, axis=1) - distance) <= rounding).all()
    reference = surfaces.searched(kind, size, p)
    assert (distance <= reference + rounding).all()
    assert (distance >= reference - 1e-3 * np.linalg.norm(size)).all()  # so the search was a good one


@pytest.mark.parametrize(("kind", "size"), [("ellipsoid", (0.5, 1.0, 0.2)), ("cylinder", (0.3, 0.5, 0.0))])
def test_direction_to_the_point_is_the_gradient_of_the_distance(kind: str, size: tuple[float, ...]) -> None:
    """The gradient matches central differences of the distance, away from kinks."""
    rng = np.random.default_rng(3)
    p = single(rng.normal(size=(200, 3)))
    foot, distance = nearest(kind, size, p)
    step = 2.0**-7
    gradient = np.stack(
        [(nearest(kind, size, p + step * e)[1] - nearest(kind, size, p - step * e)[1]) / (2 * step) for e in np.eye(3)],
        axis=1,
    )
    away = (distance > 0.1) & (outside_by(kind, size, p) > 0.1)
    assert away.sum() > 100
    given = (p - foot)[away] / distance[away, None]
    np.testing.assert_allclose(given, gradient[away], atol=2e-3)


def test_an_unbounded_plane_is_nearest_at_the_foot() -> None:
    p = single(np.random.default_rng(1).normal(size=(20, 3)) * 100.0)
    foot, distance = nearest("plane", (0.0, 0.0, 0.0), p)
    np.testing.assert_array_equal(distance, np.abs(p[:, 2]))
    np.testing.assert_array_equal(foot, p * [1.0, 1.0, 0.0])


def test_plane_can_be_bounded_along_one_axis() -> None:
    foot, distance = nearest("plane", (0.0, 2.0, 0.0), np.array([[50.0, 5.0, -4.0], [-9.0, 1.0, -4.0]]))
    np.testing.assert_array_equal(foot, [[50.0, 2.0, 0.0], [-9.0, 1.0, 0.0]])
    np.testing.assert_array_equal(distance, [5.0, 4.0])


def test_other_kinds_are_infinitely_far_for_the_analytic_formulas() -> None:
    for kind in ("mesh", "hfield"):
        assert nearest(kind, (1.0, 1.0, 1.0), np.zeros((1, 3)))[1].tolist() == [np.inf]


@pytest.mark.parametrize("ratio", [1e1, 1e3, 1e6])
def test_needle_and_disc_ellipsoids_are_exact(ratio: float) -> None:
    """The foot stays on the surface and nearest, also from planes of symmetry and with very unequal radii."""
    rng = np.random.default_rng(5)
    for radii in ((1.0, 1.0 / ratio, 1.0 / ratio), (1.0, 0.7, 1.0 / ratio)):
        size = tuple(np.float32(radii).astype(float))
        p = single(rng.normal(size=(300, 3)) * rng.choice([0.0, 1e-4, 0.5, 2.0], (300, 3)))
        foot, distance = nearest("ellipsoid", size, p)
        np.testing.assert_allclose(np.linalg.norm(foot / size, axis=1), 1.0, atol=8 * EPS)
        best = surfaces.searched("ellipsoid", size, p)
        rounding = 16 * EPS * (1.0 + np.linalg.norm(p, axis=1))
        assert (np.abs(np.linalg.norm(p - foot, axis=1) - distance) <= rounding).all()
        assert (distance <= best + rounding).all()
        assert (distance >= best - 1e-2).all()  # the search may end in another local minimum


# Meshes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_mesh_distance_is_the_minimum_over_its_triangles(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mesh = random_shapes(rng, 1, ("mesh",))[0].mesh
    assert mesh is not None
    p = single(np.concatenate([rng.uniform(-1.5, 1.5, (150, 3)), rng.normal(size=(50, 3)) * 30.0]))
    foot, distance, face = to_mesh(mesh, p)
    rounding = 16 * EPS * (1.0 + np.linalg.norm(p, axis=1))
    assert (np.abs(distance - surfaces.to_triangles(p, mesh.vertices[mesh.faces])) <= rounding).all()
    for i in range(len(p)):
        corners = mesh.vertices[mesh.faces[face[i]]]
        assert surfaces.to_triangles(foot[i : i + 1], corners[None])[0] <= rounding[i]
    assert (np.abs(np.linalg.norm(p - foot, axis=1) - distance) <= rounding).all()


def test_nothing_beyond_the_limit_is_found_on_a_mesh() -> None:
    mesh = Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])
    p = np.array([[0.2, 0.2, 0.4], [0.2, 0.2, 0.6]])
    foot, distance, face = to_mesh(mesh, p, limit=0.5)
    np.testing.assert_allclose(distance, [0.4, np.inf], rtol=1e-7)
    assert face.tolist() == [0, -1] and np.isinf(foot[1]).all()


# Height fields --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [None, 0.0, 0.4])
@pytest.mark.parametrize(("rows", "cols"), [(2, 2), (3, 7), (20, 37)])
def test_height_field_distance_is_the_minimum_over_its_triangles(rows: int, cols: int, base: float | None) -> None:
    """Points are above, below, beside and inside rough ground, with the walls and the bottom of a solid field."""
    rng = np.random.default_rng(rows)
    field = HeightField(single(rng.uniform(0.0, 0.5, (rows, cols))), (2.0, 1.25), base)
    p = rng.uniform(-1.0, 1.0, (200, 3)) * [2.6, 1.8, 1.2]
    p = single(np.concatenate([p, rng.normal(size=(20, 3)) * 20.0]))
    foot, distance = to_hfield(field, p)
    triangles = surfaces.triangles_of(field)
    rounding = 16 * EPS * (2.0 + np.linalg.norm(p, axis=1))
    assert (np.abs(distance - surfaces.to_triangles(p, triangles)) <= rounding).all()
    assert (surfaces.to_triangles(foot, triangles) <= rounding).all()
    assert (np.abs(np.linalg.norm(p - foot, axis=1) - distance) <= rounding).all()


def test_all_blocks_of_a_height_field_are_searched() -> None:
    """A spike in flat ground of 200 x 150 cells is nearest from every point that is closer to it than to the ground
    below.
    """
    heights = np.zeros((151, 201))
    heights[100, 140] = 3.0
    field = HeightField(heights, (10.0, 7.5))
    spike = np.array([-10.0 + 140 * 0.1, -7.5 + 100 * 0.1, 3.0])
    rng = np.random.default_rng(2)
    p = single(spike + rng.uniform(-1.0, 1.0, (30, 3)) * [8.0, 8.0, 2.0] + [0.0, 0.0, 3.0])
    foot, distance = to_hfield(field, p)
    reference = surfaces.to_triangles(p, surfaces.triangles_of(field))
    np.testing.assert_allclose(distance, reference, atol=32 * EPS * 20.0)
    near = np.linalg.norm(foot - spike, axis=1) < 0.15
    assert near.sum() > 5 and (~near).sum() > 5


def test_nothing_beyond_the_limit_is_found_on_a_height_field() -> None:
    field = HeightField(np.zeros((5, 5)), (1.0, 1.0))
    foot, distance = to_hfield(field, np.array([[0.0, 0.0, 0.5], [0.0, 0.0, 0.75], [1.75, 0.0, 0.0]]), limit=0.625)
    assert distance.tolist() == [0.5, np.inf, np.inf] and np.isinf(foot[1:]).all()
