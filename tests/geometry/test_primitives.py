"""Rays against analytic shapes: an independent search in float64, MuJoCo's rays, and exact cases."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import warp as wp
from numpy.typing import NDArray

from sensorium.geometry import primitives
from sensorium.geometry.primitives import primitive_normal, ray_primitive
from sensorium.geometry.shapes import KINDS

wp.set_module_options({"fuse_fp": False, "enable_backward": False})

Array = NDArray[np.float64]

TOLERANCE = 1e-4
"""Required accuracy of every distance in scenes of tens of metres, m."""
SOLIDS = {
    "sphere": [(0.5, 0.0, 0.0), (0.01, 0.0, 0.0), (20.0, 0.0, 0.0)],
    "capsule": [(0.1, 0.5, 0.0), (2.0, 0.01, 0.0), (0.005, 3.0, 0.0)],
    "ellipsoid": [(0.5, 1.0, 0.2), (10.0, 0.1, 3.0), (0.02, 0.01, 0.03)],
    "cylinder": [(0.3, 0.5, 0.0), (5.0, 0.002, 0.0), (0.01, 10.0, 0.0)],
    "box": [(0.5, 1.0, 0.2), (10.0, 10.0, 0.005), (0.01, 0.02, 8.0)],
}
"""Sizes per kind: plain, flat and long."""
CASES = [pytest.param(kind, size, id=f"{kind}-{n}") for kind, sizes in SOLIDS.items() for n, size in enumerate(sizes)]


@wp.kernel
def _cast(
    kind: int,
    size: wp.vec3,
    o: wp.array[wp.vec3],
    d: wp.array[wp.vec3],
    t: wp.array[float],
    normal: wp.array[wp.vec3],
) -> None:
    i = wp.tid()
    t[i] = ray_primitive(kind, size, o[i], d[i])
    if t[i] < wp.inf:
        normal[i] = primitive_normal(kind, size, o[i] + t[i] * d[i])


def cast(kind: str, size: tuple[float, ...], o: Array, d: Array) -> tuple[Array, Array]:
    """Return t and the normals of rays, as the kernels give them."""
    starts, along = (wp.array(a, dtype=wp.vec3, device="cpu") for a in (o, d))
    t, normal = wp.zeros(len(o), dtype=float, device="cpu"), wp.zeros(len(o), dtype=wp.vec3, device="cpu")
    args = [KINDS.index(kind), wp.vec3(*size), starts, along, t, normal]  # type: ignore[arg-type]
    wp.launch(_cast, len(o), args, device="cpu")
    return t.numpy().astype(np.float64), normal.numpy().astype(np.float64)


def outside_by(kind: str, size: tuple[float, ...], p: Array) -> Array:
    """Return how far a point is outside the solid, negative inside: a convex function of the point."""
    if kind in ("sphere", "capsule"):
        half = size[1] if kind == "capsule" else 0.0
        return np.linalg.norm(p - np.clip(p, [0, 0, -half], [0, 0, half]), axis=-1) - size[0]
    if kind == "ellipsoid":
        return (np.linalg.norm(p / size, axis=-1) - 1.0) * min(size)
    if kind == "cylinder":
        return np.maximum(np.hypot(p[..., 0], p[..., 1]) - size[0], np.abs(p[..., 2]) - size[1])
    return (np.abs(p) - size).max(axis=-1)


def searched(kind: str, size: tuple[float, ...], o: Array, d: Array) -> tuple[Array, Array]:
    """Find t >= 0 by search alone: locate the deepest point of the line, then bisect to either side of it.

    Returns:
        t (`inf` on a miss) and how far outside the deepest point of the whole line is.
    """

    def outside(t: Array) -> Array:
        return outside_by(kind, size, o + t[:, None] * d)

    reach = (np.linalg.norm(o, axis=-1) + 2.0 * np.linalg.norm(size)) / np.linalg.norm(d, axis=-1)
    low, high = -reach, reach
    for _ in range(120):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        rises = outside(left) < outside(right)
        low, high = np.where(rises, low, left), np.where(rises, right, high)
    deepest = (low + high) / 2
    depth = outside(deepest)

    def crossing(out: Array) -> Array:
        inside = deepest.copy()
        for _ in range(70):
            middle = (inside + out) / 2
            is_out = outside(middle) > 0
            inside, out = np.where(is_out, inside, middle), np.where(is_out, middle, out)
        return (inside + out) / 2

    start, end = crossing(-reach), crossing(reach)
    t = np.where(start >= 0, start, end)
    return np.where((depth > 0) | (end < 0), np.inf, t), depth


def rays(size: tuple[float, ...], count: int, distance: float, seed: int) -> tuple[Array, Array]:
    """Return rays from about `distance` away to points in and around the shape, with directions of lengths 0.01 to
    100.
    """
    rng = np.random.default_rng(seed)
    extent = np.array([max(value, max(size) * 0.02) for value in size])
    if size[2] == 0.0:
        extent[:] = size[0], size[0], size[0] + size[1]
    target = rng.uniform(-1.2, 1.2, (count, 3)) * extent
    away = rng.normal(size=(count, 3))
    away /= np.linalg.norm(away, axis=-1, keepdims=True)
    o = target + away * distance * rng.uniform(0.5, 1.0, (count, 1))
    d = (target - o) / np.linalg.norm(target - o, axis=-1, keepdims=True) * 10.0 ** rng.uniform(-2, 2, (count, 1))
    return o.astype(np.float32).astype(np.float64), d.astype(np.float32).astype(np.float64)


def test_kind_numbers_are_indices_in_the_list_of_kinds() -> None:
    names = ("PLANE", "SPHERE", "CAPSULE", "ELLIPSOID", "CYLINDER", "BOX", "MESH", "HFIELD")
    assert tuple(name.lower() for name in names) == KINDS
    assert [getattr(primitives, name) for name in names] == list(range(8))


@pytest.mark.parametrize("distance", [0.02, 3.0, 30.0, 1000.0])
@pytest.mark.parametrize(("kind", "size"), CASES)
def test_ray_matches_a_search_in_float64(kind: str, size: tuple[float, ...], distance: float) -> None:
    """Rays start inside, close by and far away; only lines that touch within 1e-6 of the size are omitted.

    Boxes are cast in float32, so their limit is 1e-6 of the whole scene.
    """
    o, d = rays(size, 2000, distance, seed=1)
    t, _ = cast(kind, size, o, d)
    expected, depth = searched(kind, size, o, d)
    clear = np.abs(depth) > 1e-6 * max(*size, 0.3 * distance if kind == "box" else 0.0)
    assert clear.mean() >= 0.995
    assert np.array_equal(np.isinf(t[clear]), np.isinf(expected[clear]))
    hit = clear & np.isfinite(expected)
    assert hit.sum() > 100
    assert (np.abs(t[hit] - expected[hit]) * np.linalg.norm(d[hit], axis=-1)).max() < TOLERANCE


@pytest.mark.parametrize(("kind", "size"), CASES)
def test_grazing_ray_is_as_exact(kind: str, size: tuple[float, ...]) -> None:
    """Rays along the surface, 0.1 to 1 degrees from tangency, from 20 m, are accurate."""
    rng = np.random.default_rng(2)
    centred = rng.normal(size=(2000, 3)) * 1e-3 * min(value for value in size if value > 0)
    outward = rng.normal(size=(2000, 3))
    start, _ = searched(kind, size, centred, outward)
    p = centred + start[:, None] * outward
    step = 1e-7 * max(size)
    normal = np.stack([outside_by(kind, size, p + step * e) - outside_by(kind, size, p - step * e) for e in np.eye(3)])
    normal = normal.T / np.linalg.norm(normal.T, axis=-1, keepdims=True)
    tangent = np.cross(normal, rng.normal(size=(2000, 3)))
    tangent /= np.linalg.norm(tangent, axis=-1, keepdims=True)
    slope = np.deg2rad(rng.uniform(0.1, 1.0, (2000, 1)))
    d = np.float32(np.cos(slope) * tangent - np.sin(slope) * normal).astype(np.float64)
    o = np.float32(p - 20.0 * d).astype(np.float64)
    t, _ = cast(kind, size, o, d)
    expected, depth = searched(kind, size, o, d)
    clear = np.abs(depth) > 1e-6 * max(size)
    assert np.array_equal(np.isinf(t[clear]), np.isinf(expected[clear]))
    hit = clear & np.isfinite(expected)
    assert hit.sum() > 250
    assert np.abs(t[hit] - expected[hit]).max() < TOLERANCE


@pytest.mark.parametrize(("kind", "size"), CASES)
def test_ray_matches_mujoco(kind: str, size: tuple[float, ...]) -> None:
    o, d = rays(size, 1000, 5.0, seed=3)
    t, _ = cast(kind, size, o, d)
    number = getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}")
    pose = np.zeros(3), np.eye(3).ravel()
    theirs = np.array([mujoco.mju_rayGeom(*pose, np.array(size), o[i], d[i], number) for i in range(len(o))])
    expected = np.where(theirs < 0, np.inf, theirs)
    _, depth = searched(kind, size, o, d)
    clear = np.abs(depth) > 1e-6 * max(size)
    hit = clear & np.isfinite(expected)
    assert np.array_equal(np.isinf(t[clear]), np.isinf(expected[clear]))
    assert (np.abs(t[hit] - expected[hit]) * np.linalg.norm(d[hit], axis=-1)).max() < TOLERANCE


@pytest.mark.parametrize(("kind", "size"), CASES)
def test_normals_point_outwards_and_are_perpendicular(kind: str, size: tuple[float, ...]) -> None:
    """Normals match the gradient of the distance, by differences in float64, from outside and inside, away from
    edges.
    """
    near, far = rays(size, 3000, 0.3 * size[0], seed=4), rays(size, 3000, 5.0, seed=5)
    o, d = np.concatenate([near[0], far[0]]), np.concatenate([near[1], far[1]])
    t, normal = cast(kind, size, o, d)
    hit = np.isfinite(t)
    p = o[hit] + t[hit, None] * d[hit]
    step = 3e-6 * max(1.0, *size)
    sides = [[outside_by(kind, size, p + sign * step * e) for e in np.eye(3)] for sign in (1, -1)]
    expected = ((np.array(sides[0]) - np.array(sides[1])) / (2 * step)).T
    middle = outside_by(kind, size, p)
    bend = np.abs(np.array(sides[0]) + np.array(sides[1]) - 2 * middle).max(axis=0) / step
    smooth = bend < 1e-2  # elsewhere an edge is within a step: two normals
    assert smooth.mean() > 0.9 or min(size[:2]) < 0.02
    expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
    assert np.linalg.norm(normal[hit], axis=-1) == pytest.approx(1.0, abs=1e-6)
    assert np.abs(normal[hit] - expected)[smooth].max() < 2e-2
    assert np.median(np.abs(normal[hit] - expected)[smooth].max(axis=-1)) < 1e-4


@pytest.mark.parametrize(("kind", "size"), CASES)
def test_a_ray_from_the_centre_leaves_through_every_edge_seam_and_vertex(kind: str, size: tuple[float, ...]) -> None:
    """Rays are aimed exactly at corners, edges, rims and seams from inside, and at the same points from far outside."""
    extent = np.array(size if kind in ("box", "ellipsoid") else (size[0], size[0], size[1]))
    corners = np.stack(np.meshgrid(*[[-1.0, -0.5, 0.0, 0.5, 1.0]] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    round_ = np.linspace(0, 2 * np.pi, 33)
    circle = np.stack([np.cos(round_), np.sin(round_), 0 * round_ + 1.0], axis=-1)
    aims = np.concatenate([corners[np.any(corners != 0, axis=-1)], circle, circle * [1, 1, -1]])
    aims = np.float32(aims * np.where(extent > 0, extent, size[0])).astype(np.float64)
    t, _ = cast(kind, size, np.zeros_like(aims), aims)
    expected, _ = searched(kind, size, np.zeros_like(aims), aims)
    assert np.isfinite(t).all()
    assert (np.abs(t - expected) * np.linalg.norm(aims, axis=-1)).max() < TOLERANCE
    t, _ = cast(kind, size, 8.0 * aims, -aims)  # exact in float32: the same line from outside
    far = outside_by(kind, size, 8.0 * aims) > 0.0
    assert far.sum() > 60
    assert (np.abs(t - (8.0 - expected)) * np.linalg.norm(aims, axis=-1))[far].max() < TOLERANCE


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize(("kind", "size"), CASES)
def test_rays_along_a_shape_axis_are_exact(kind: str, size: tuple[float, ...], axis: int) -> None:
    """Zeros in the direction cause no division by zero: through the middle, beside it, and past the shape."""
    extent = np.array(size if kind in ("box", "ellipsoid") else (size[0], size[0], size[1]))
    extent = np.where(extent > 0, extent, size[0]) + (size[0] * np.array([0, 0, 1]) if kind == "capsule" else 0)
    beside = np.array([0.0, 0.3, -0.6, 1.1])
    o = np.array([np.insert([a, b], axis, 5.0) for a in beside for b in beside]) * extent
    o = np.float32(o).astype(np.float64)
    d = np.tile(-2.0 * np.eye(3)[axis], (len(o), 1))
    t, _ = cast(kind, size, o, d)
    expected, _ = searched(kind, size, o, d)
    assert np.array_equal(np.isinf(t), np.isinf(expected))
    hit = np.isfinite(t)
    assert 2.0 * np.abs(t[hit] - expected[hit]).max() < TOLERANCE
    back, _ = cast(kind, size, o, -d)
    assert np.isinf(back).all()


@pytest.mark.parametrize("size", [(0.0, 0.0, 0.0), (2.0, 3.0, 0.1), (2.0, 0.0, 0.1), (0.0, 3.0, 0.1)])
def test_a_plane_is_hit_from_both_sides_inside_its_extent(size: tuple[float, ...]) -> None:
    """Hits match the crossing position in float64; half extents of 0 are unbounded, each independently."""
    rng = np.random.default_rng(6)
    o = np.float32(rng.uniform(-6, 6, (4000, 3))).astype(np.float64)
    d = np.float32(rng.normal(size=(4000, 3)) * 10.0 ** rng.uniform(-2, 2, (4000, 1))).astype(np.float64)
    t, normal = cast("plane", size, o, d)
    expected = -o[:, 2] / d[:, 2]
    at = np.abs(o + expected[:, None] * d)[:, :2]
    bound = np.where(np.array(size[:2]) > 0, size[:2], np.inf)
    expected = np.where((expected >= 0) & (at <= bound).all(axis=-1), expected, np.inf)
    clear = (np.abs(at - bound) > 1e-5).all(axis=-1) & (np.abs(d[:, 2]) > 2e-3 * np.linalg.norm(d, axis=-1))
    assert np.array_equal(np.isinf(t[clear]), np.isinf(expected[clear]))
    hit = clear & np.isfinite(expected)
    assert (o[hit, 2] > 0).sum() > 50 and (o[hit, 2] < 0).sum() > 50
    assert (np.abs(t[hit] - expected[hit]) / np.maximum(1.0, expected[hit])).max() < 1e-6
    assert np.array_equal(normal[hit], np.tile([0.0, 0.0, 1.0], (hit.sum(), 1)))


def test_ray_within_the_plane_does_not_hit_it() -> None:
    t, _ = cast("plane", (0.0, 0.0, 0.0), np.zeros((1, 3)), np.array([[1.0, 0.0, 0.0]]))
    assert np.isinf(t).all()


@pytest.mark.parametrize("kind", ["mesh", "hfield"])
def test_non_analytic_kinds_are_a_miss(kind: str) -> None:
    t, _ = cast(kind, (1.0, 1.0, 1.0), np.array([[0.0, 0.0, 5.0]]), np.array([[0.0, 0.0, -1.0]]))
    assert np.isinf(t).all()
