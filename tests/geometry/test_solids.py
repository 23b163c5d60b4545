"""Signed distances to analytic shapes and height fields, checked against the slow reference in float64."""

from __future__ import annotations

import numpy as np
import pytest
import warp as wp
from numpy.typing import NDArray
from reference import reference_distance
from reference.surfaces import nearest_on_triangles
from surfaces import triangles_of

from sensorium.geometry.hfield import HFields, build_hfields
from sensorium.geometry.ray_structs import Instances
from sensorium.geometry.shapes import KINDS, HeightField, Shape
from sensorium.geometry.solid_grid import build_solids
from sensorium.geometry.solid_walk import Solids
from sensorium.geometry.solids import signed_distance

wp.set_module_options({"fuse_fp": False, "enable_backward": False})

Array = NDArray[np.float64]

EPS = 2.0**-24
"""Half a unit in the last place of float32, relative: the rounding of one operation."""
SIZES = {
    "sphere": [(0.5,), (0.01,), (20.0,)],
    "capsule": [(0.1, 0.5), (2.0, 0.01), (0.005, 3.0)],
    "ellipsoid": [(0.5, 1.0, 0.2), (10.0, 0.1, 3.0), (0.02, 0.01, 0.03), (1.0, 1.0, 0.3), (1.0, 0.3, 0.3), (1.0,) * 3],
    "cylinder": [(0.3, 0.5), (5.0, 0.002), (0.01, 10.0)],
    "box": [(0.5, 1.0, 0.2), (10.0, 10.0, 0.005), (0.01, 0.02, 8.0)],
    "plane": [(), (0.5, 2.0), (0.5, 0.0)],
}
CASES = [
    pytest.param(Shape(kind, "s", size), id=f"{kind}-{n}")  # type: ignore[arg-type]
    for kind, sizes in SIZES.items()
    for n, size in enumerate(sizes)
]


@wp.kernel
def _signed(
    instances: Instances,
    solids: Solids,
    fields: HFields,
    reach: float,
    p: wp.array[wp.vec3],
    distance: wp.array[float],
    foot: wp.array[wp.vec3],
    gradient: wp.array[wp.vec3],
) -> None:
    i = wp.tid()
    far, spot, out = signed_distance(instances, solids, fields, 1, p[i], reach)
    distance[i] = far
    foot[i] = spot
    gradient[i] = out


def signed(shape: Shape, p: Array, reach: float = np.inf) -> tuple[Array, Array, Array]:
    """Return distances, nearest points and gradients as kernels give them; the shape is the second of two."""
    count = len(p)
    instances = Instances()
    kind = KINDS.index(shape.kind)
    instances.kind = wp.array([0, kind], dtype=wp.int32, device="cpu")
    instances.size = wp.array([(0.0,) * 3, (*shape.size, 0.0, 0.0, 0.0)[:3]], dtype=wp.vec3, device="cpu")
    instances.field = wp.array([-1, 1], dtype=wp.int32, device="cpu")
    fields = [HeightField(np.ones((3, 4)), (1.0, 1.0))] + ([shape.hfield] if shape.hfield else [])
    distance = wp.zeros(count, dtype=float, device="cpu")
    foot, gradient = (wp.zeros(count, dtype=wp.vec3, device="cpu") for _ in range(2))
    places = wp.array(p, dtype=wp.vec3, device="cpu")
    args = [
        instances,
        build_solids([None, None], "cpu"),
        build_hfields(fields),
        reach,
        places,
        distance,
        foot,
        gradient,
    ]
    wp.launch(_signed, count, args, device="cpu")
    return tuple(out.numpy().astype(np.float64) for out in (distance, foot, gradient))  # type: ignore[return-value]


def single(values: Array) -> Array:
    """Return numbers that float32 represents exactly."""
    return values.astype(np.float32).astype(np.float64)


def as_single(shape: Shape) -> Shape:
    return Shape(shape.kind, shape.name, tuple(np.float32(shape.size).astype(float)))


def points(size: tuple[float, ...], seed: int, count: int = 400) -> Array:
    """Return points inside, near, far, in the planes of symmetry, on the axes and at the centre."""
    rng = np.random.default_rng(seed)
    extent = np.resize(np.array(size if any(size) else (1.0,)), 3)
    p = rng.uniform(-1.3, 1.3, (count, 3)) * np.maximum(extent, 0.02 * extent.max())
    far = rng.normal(size=(count // 4, 3)) * 5.0 * extent.max()
    flat = p[: count // 2] * rng.integers(0, 2, (count // 2, 3))
    return single(np.concatenate([p, far, flat, np.zeros((1, 3))]))


# Analytic shapes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", CASES)
def test_signed_distance_to_analytic_shapes_matches_the_reference(shape: Shape) -> None:
    shape = as_single(shape)
    p = points(shape.size, seed=3)
    distance, foot, _ = signed(shape, p)
    reference = reference_distance(shape, p)
    rounding = 16 * EPS * (np.linalg.norm(p, axis=1) + np.linalg.norm(shape.size))
    assert (np.abs(distance - reference.distance) <= rounding).all()
    assert (np.abs(np.linalg.norm(p - foot, axis=1) - np.abs(distance)) <= rounding).all()
    assert (np.abs(reference_distance(shape, foot).distance) <= rounding).all()
    assert (distance < 0.0).any() and (distance > 0.0).any()


@pytest.mark.parametrize("shape", CASES)
def test_gradient_is_a_unit_vector_of_slope_one(shape: Shape) -> None:
    """A step along the gradient, or against it, changes the reference by that step: it points to or from the foot."""
    shape = as_single(shape)
    p = points(shape.size, seed=4)
    distance, _foot, gradient = signed(shape, p)
    np.testing.assert_allclose(np.linalg.norm(gradient, axis=1), 1.0, atol=8 * EPS)
    sizes = [value for value in shape.size if value] or [1.0]
    step = 0.01 * min(sizes)
    outer = distance >= 0.0
    onwards = reference_distance(shape, p + np.where(outer, step, -step)[:, None] * gradient).distance
    grown = np.where(outer, onwards - distance, distance - onwards)
    back = reference_distance(shape, p - np.where(outer, step, -step)[:, None] * gradient).distance
    clear = np.abs(distance) > 2.0 * step
    shrunk = np.where(outer, distance - back, back - distance)
    scale = np.linalg.norm(p, axis=1) + np.linalg.norm(shape.size)
    assert clear.sum() > 20
    np.testing.assert_array_less(np.abs(shrunk - step)[clear], 32 * EPS * scale[clear] + 1e-5 * step)
    np.testing.assert_array_less(np.abs(grown - step)[outer], 32 * EPS * scale[outer] + 1e-5 * step)


@pytest.mark.parametrize("shape", [case for case in CASES if case.values[0].kind != "plane"])  # type: ignore[union-attr]
def test_on_the_surface_and_close_to_it_the_gradient_is_the_outward_normal(shape: Shape) -> None:
    """The gradient also holds a micrometre per metre of size from the surface, where differences of points lose their
    digits.
    """
    shape = as_single(shape)
    size = float(max(shape.size))
    smooth = shape.kind in ("sphere", "capsule", "ellipsoid")
    reference = reference_distance(shape, points(shape.size, seed=5))
    off = np.abs(reference.distance) > 1e-3 * min(shape.size)
    foot, normal = reference.point[off], reference.gradient[off]
    for away in (0.0, 1e-6, -1e-6):
        p = single(foot + away * size * normal)
        if smooth:
            at_p = reference_distance(shape, p).point
            axis = np.clip(at_p, [0, 0, -shape.size[-1]], [0, 0, shape.size[-1]]) if shape.kind == "capsule" else at_p
            expected = (
                at_p - axis * [0, 0, 1] if shape.kind == "capsule" else at_p / np.square(np.resize(shape.size, 3))
            )
            expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        else:
            within = np.abs(normal).max(axis=1) > 1.0 - 1e-9 if shape.kind == "box" else np.abs(normal[:, 2]) != 0.5
            inner = reference.distance[off] < 0.0  # from inside the way out is never to an edge
            p, expected = p[within & inner], normal[within & inner]
        _, _, gradient = signed(shape, p)
        assert len(p) > 10
        # the rounding of p moves it along the surface: the normal turns by that over the least radius
        turn = 8 * EPS * size / min(shape.size) * (size / min(shape.size) if shape.kind == "ellipsoid" else 1.0)
        np.testing.assert_allclose(gradient, expected, atol=8 * EPS + turn)


def test_equidistant_exits_give_one_of_the_gradients() -> None:
    for shape in (Shape("sphere", "s", (0.5,)), Shape("capsule", "s", (0.5, 1.0)), Shape("box", "s", (0.5, 0.5, 0.5)),
                  Shape("cylinder", "s", (0.5, 0.5)), Shape("ellipsoid", "s", (0.5, 0.5, 0.5))):  # fmt: skip
        distance, foot, gradient = signed(shape, np.zeros((1, 3)))
        assert distance[0] == -0.5
        np.testing.assert_allclose(np.linalg.norm(gradient[0]), 1.0, rtol=1e-6)
        np.testing.assert_allclose(foot[0], 0.5 * gradient[0], atol=1e-7)


def test_points_below_a_plane_are_inside_for_any_drawn_size() -> None:
    """Planes behave as in MuJoCo's solver, which ignores the size of a plane, also beside the rectangle."""
    p = np.array([[0.1, 0.2, -0.5], [0.1, 0.2, 0.5], [0.1, 0.2, 0.0], [9.0, 0.0, -0.5]])
    for size in ((), (1.0, 1.0), (1.0, 0.0)):
        distance, _, gradient = signed(Shape("plane", "s", size), p)
        assert distance.tolist() == [-0.5, 0.5, 0.0, -0.5] and gradient[:, 2].tolist() == [1.0, 1.0, 1.0, 1.0]


# Height fields --------------------------------------------------------------------------------------------------------


def rough(base: float | None, rows: int = 9, cols: int = 14, seed: int = 0) -> HeightField:
    rng = np.random.default_rng(seed)
    return HeightField(single(rng.uniform(0.0, 0.4, (rows, cols))), (2.0, 1.25), base)


def around(field: HeightField, count: int, seed: int = 1) -> Array:
    """Return points above, below and beside a height field, near its surface at all scales, and on its lattice."""
    rng = np.random.default_rng(seed)
    wide = rng.uniform(-1.0, 1.0, (count, 3)) * [2.6, 1.8, 1.2]
    corners = triangles_of(field)
    weights = rng.dirichlet(np.ones(3), count)
    near = (weights[:, :, None] * corners[rng.integers(0, len(corners), count)]).sum(axis=1)
    away = rng.normal(size=(count, 3))
    near += away / np.linalg.norm(away, axis=1, keepdims=True) * 10.0 ** rng.uniform(-5.0, -1.0, (count, 1))
    rows, cols = field.heights.shape
    column = rng.integers(0, cols, count // 4)
    row = rng.integers(0, rows, count // 4)
    lattice = np.stack(
        [column * 4.0 / (cols - 1) - 2.0, row * 2.5 / (rows - 1) - 1.25, rng.uniform(-1, 1, count // 4)], axis=1
    )
    return single(np.concatenate([wide, near, lattice]))


@pytest.mark.parametrize("base", [None, 0.0, 0.4])
def test_signed_distance_to_a_height_field_matches_the_reference(base: float | None) -> None:
    field = rough(base)
    shape = Shape("hfield", "h", hfield=field)
    p = around(field, 1200)
    distance, foot, gradient = signed(shape, p)
    reference = reference_distance(shape, p)
    rounding = 16 * EPS * (2.0 + np.linalg.norm(p, axis=1))
    assert (np.abs(np.abs(distance) - np.abs(reference.distance)) <= rounding).all()
    on_rim = np.zeros(len(p), bool)
    if base is None:  # at the rim of a surface, inside and outside meet at a distance
        on_rim = (np.abs(np.abs(p[:, :2]) - field.size) < 1e-6).any(axis=1)
    clear = (np.abs(reference.distance) > rounding) & ~on_rim
    assert (np.sign(distance) == np.sign(reference.distance))[clear].all()
    assert (distance < 0.0).sum() > 100 and (distance > 0.0).sum() > 100
    assert (np.abs(nearest_on_triangles(foot, triangles_of(field))[0] - foot).max(axis=1) <= rounding).all()
    np.testing.assert_allclose(np.linalg.norm(gradient, axis=1), 1.0, atol=8 * EPS)


@pytest.mark.parametrize("base", [None, 0.4])
def test_the_gradient_of_a_height_field_leads_away_from_its_nearest_point(base: float | None) -> None:
    field = rough(base)
    shape = Shape("hfield", "h", hfield=field)
    p = around(field, 1200, seed=2)
    distance, foot, gradient = signed(shape, p)
    reference = reference_distance(shape, p)
    same = np.linalg.norm(foot - reference.point, axis=1) < 1e-6
    assert same.mean() > 0.95
    same &= np.sign(distance) == np.sign(reference.distance)
    off = np.abs(reference.distance) > 1e-3
    np.testing.assert_allclose(gradient[same & off], reference.gradient[same & off], atol=2e-4)
    close = np.abs(reference.distance) > 2e-5
    assert (close & ~off).sum() > 50
    np.testing.assert_allclose(gradient[same & close], reference.gradient[same & close], atol=0.02)


def test_points_beside_a_height_field_without_base_are_outside() -> None:
    shape = Shape("hfield", "h", hfield=rough(None))
    p = np.array([[2.5, 0.0, -1.0], [0.0, -1.3, -0.1], [0.0, 0.0, -50.0]])
    assert (signed(shape, p)[0] > 0.0).tolist() == [True, True, False]


@pytest.mark.parametrize("base", [None, 0.4])
def test_depth_in_a_height_field_exceeds_reach_and_outer_distances_are_infinite(
    base: float | None,
) -> None:
    field = rough(base)
    shape = Shape("hfield", "h", hfield=field)
    p = around(field, 300, seed=3)
    everything, told = signed(shape, p)[0], signed(shape, p, reach=0.05)[0]
    near = everything <= 0.05
    np.testing.assert_array_equal(told[near], everything[near])
    assert np.isinf(told[~near]).all() and (told < -0.1).any()


def test_gradient_near_flat_ground_is_exactly_up() -> None:
    field = HeightField(np.full((5, 8), 0.1), (2.0, 1.0), 0.3)
    rng = np.random.default_rng(0)
    flat = rng.uniform(-0.9, 0.9, (200, 3)) * [2.0, 1.0, 0.0]
    for away in (0.0, 1e-7, -1e-7, 1e-4, -1e-4):
        gradient = signed(Shape("hfield", "h", hfield=field), single(flat + np.array([0.0, 0.0, 0.1 + away])))[2]
        np.testing.assert_allclose(gradient, np.broadcast_to([0.0, 0.0, 1.0], gradient.shape), atol=1e-6)
