"""Rays against height fields: every triangle tried in float64, MuJoCo's rays, and rays aimed at edges and vertices."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import warp as wp
from numpy.typing import NDArray

from sensorium.geometry.hfield import (
    BASE,
    MISS,
    HFields,
    build_hfields,
    hfield_height,
    hfield_normal,
    ray_hfield,
    ray_hfield_vertical,
)
from sensorium.geometry.shapes import HeightField

wp.set_module_options({"fuse_fp": False, "enable_backward": False})

Array = NDArray[np.float64]

TOLERANCE = 1e-4
"""Tolerance, m."""
FLATTEST = np.sin(np.deg2rad(0.1))
"""Sine below which distances are not compared: rays that hit the surface at a smaller angle."""


@wp.kernel
def _slanted(
    fields: HFields,
    index: int,
    o: wp.array[wp.vec3],
    d: wp.array[wp.vec3],
    t_max: wp.array[float],
    t: wp.array[float],
    face: wp.array[int],
    normal: wp.array[wp.vec3],
) -> None:
    i = wp.tid()
    reached, met = ray_hfield(fields, index, o[i], d[i], t_max[i])
    t[i] = reached
    face[i] = met
    if met != -2:
        normal[i] = hfield_normal(fields, index, met, o[i] + reached * d[i])


@wp.kernel
def _vertical(
    fields: HFields, index: int, o: wp.array[wp.vec3], sign: float, t: wp.array[float], face: wp.array[int]
) -> None:
    i = wp.tid()
    reached, met = ray_hfield_vertical(fields, index, o[i], sign)
    t[i] = reached
    face[i] = met


@wp.kernel
def _height(fields: HFields, index: int, o: wp.array[wp.vec3], z: wp.array[float], face: wp.array[int]) -> None:
    i = wp.tid()
    found, met = hfield_height(fields, index, o[i][0], o[i][1])
    z[i] = found
    face[i] = met


def cast(
    field: HeightField, o: Array, d: Array, t_max: Array | float = np.inf
) -> tuple[Array, NDArray[np.int32], Array]:
    """Return t, face and normal; the field stands between two others in its struct."""
    other = HeightField(np.arange(12.0).reshape(4, 3), (1.0, 2.0))
    n = len(o)
    limits = wp.array(np.broadcast_to(np.float32(t_max), n).copy(), dtype=float, device="cpu")
    t, face = wp.zeros(n, dtype=float, device="cpu"), wp.zeros(n, dtype=int, device="cpu")
    normal = wp.zeros(n, dtype=wp.vec3, device="cpu")
    starts, along = (wp.array(a, dtype=wp.vec3, device="cpu") for a in (o, d))
    args = [build_hfields([other, field, other]), 1, starts, along, limits, t, face, normal]
    wp.launch(_slanted, n, args, device="cpu")
    return t.numpy().astype(np.float64), face.numpy(), normal.numpy().astype(np.float64)


def upright(field: HeightField, o: Array, sign: float) -> tuple[Array, NDArray[np.int32]]:
    t, face = wp.zeros(len(o), dtype=float, device="cpu"), wp.zeros(len(o), dtype=int, device="cpu")
    starts = wp.array(o, dtype=wp.vec3, device="cpu")
    wp.launch(_vertical, len(o), [build_hfields([field]), 0, starts, sign, t, face], device="cpu")
    return t.numpy().astype(np.float64), face.numpy()


def triangles(field: HeightField) -> tuple[Array, NDArray[np.int64]]:
    """Return the corners `[triangle, 3, xyz]` and face ids of the surface, and of the base of a solid."""
    z = np.float32(field.heights).astype(np.float64)
    rows, cols = z.shape
    x, y = np.meshgrid(np.linspace(-1, 1, cols) * field.size[0], np.linspace(-1, 1, rows) * field.size[1])
    p = np.stack([x, y, z], axis=-1)
    corners, ids = [], []
    for r in range(rows - 1):
        for c in range(cols - 1):
            corners += [(p[r, c], p[r, c + 1], p[r + 1, c + 1]), (p[r, c], p[r + 1, c + 1], p[r + 1, c])]
            ids += [2 * (r * (cols - 1) + c), 2 * (r * (cols - 1) + c) + 1]
    if field.base is not None:
        down = p.copy()
        down[..., 2] = -field.base
        for edge, below in zip(
            (p[0], p[-1], p[:, 0], p[:, -1]), (down[0], down[-1], down[:, 0], down[:, -1]), strict=True
        ):
            for k in range(len(edge) - 1):
                corners += [(edge[k], edge[k + 1], below[k]), (edge[k + 1], below[k + 1], below[k])]
        corners += [(down[0, 0], down[0, -1], down[-1, -1]), (down[0, 0], down[-1, -1], down[-1, 0])]
        ids += [-1] * (len(corners) - len(ids))
    return np.array(corners), np.array(ids)


def tried(field: HeightField, o: Array, d: Array) -> tuple[Array, NDArray[np.int64], Array, Array]:
    """Test every triangle in float64.

    Returns:
        t, face id, unit normal of the triangle, sine of the angle of incidence.
    """
    corners, ids = triangles(field)
    t, face = np.full(len(o), np.inf), np.full(len(o), -2)
    normals, sine = np.zeros((len(o), 3)), np.ones(len(o))
    a, e1, e2 = corners[:, 0], corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    n = np.cross(e1, e2)
    n /= np.linalg.norm(n, axis=-1, keepdims=True)
    for i in range(len(o)):
        with np.errstate(divide="ignore", invalid="ignore"):
            h = np.cross(d[i], e2)
            inverse = 1.0 / (e1 * h).sum(-1)
            u = inverse * ((o[i] - a) * h).sum(-1)
            q = np.cross(o[i] - a, e1)
            v = inverse * (q @ d[i])
            at = inverse * (e2 * q).sum(-1)
            at = np.where((u >= -1e-12) & (v >= -1e-12) & (u + v <= 1 + 1e-12) & (at >= 0), at, np.inf)
        k = int(at.argmin())
        if np.isfinite(at[k]):
            t[i], face[i], normals[i] = at[k], ids[k], n[k]
            sine[i] = abs(n[k] @ d[i]) / np.linalg.norm(d[i])
    return t, face, normals, sine


def fields() -> list[HeightField]:
    rng = np.random.default_rng(0)
    waves = np.sin(np.arange(70)[:, None] * 0.2) + np.cos(np.arange(90) * 0.13) + rng.normal(size=(70, 90)) * 0.05
    stairs = np.repeat(np.repeat(rng.integers(0, 4, (5, 4)), 3, axis=0), 4, axis=1) * 0.17
    return [
        HeightField(rng.uniform(0, 1, (2, 2)), (1.0, 2.0), 0.3, "one cell"),
        HeightField(rng.uniform(0, 1, (3, 11)), (3.0, 0.5), None, "narrow"),
        HeightField(stairs + 0.1, (2.0, 2.5), 0.0, "stairs"),
        HeightField(np.full((10, 17), 0.5), (2.0, 1.0), None, "flat"),
        HeightField(np.full((10, 17), 0.5), (2.0, 1.0), 0.2, "flat solid"),
        HeightField(waves * 2 - 20.0, (30.0, 20.0), None, "70 x 90, below 0"),
        HeightField(waves - waves.min(), (30.0, 20.0), 1.0, "70 x 90, solid"),
    ]


def named(field: HeightField) -> str:
    return field.name


def rays(field: HeightField, count: int, distance: float, seed: int) -> tuple[Array, Array]:
    """Rays from up to `distance` away, in all directions, to points in the field's box; directions of lengths 0.01 to
    100.
    """
    rng = np.random.default_rng(seed)
    low, high = float(field.heights.min()), float(field.heights.max())
    target = rng.uniform(-1, 1, (count, 3)) * [1.1 * field.size[0], 1.1 * field.size[1], (high - low) / 2 + 0.1]
    target[:, 2] += (low + high) / 2
    away = rng.normal(size=(count, 3)) * [1, 1, 0.5]
    away /= np.linalg.norm(away, axis=-1, keepdims=True)
    d = -away * 10.0 ** rng.uniform(-2, 2, (count, 1))
    o = target + away * distance * rng.uniform(0.0, 1.0, (count, 1))
    return np.float32(o).astype(np.float64), np.float32(d).astype(np.float64)


@pytest.mark.parametrize("field", fields(), ids=named)
@pytest.mark.parametrize("distance", [1.0, 40.0, 1000.0])
def test_ray_matches_brute_force_over_triangles_in_float64(field: HeightField, distance: float) -> None:
    """From above, below, inside and far away, hit or miss, face, distance and normal are the same."""
    o, d = rays(field, 160, distance, seed=1)
    t, face, normal = cast(field, o, d)
    expected, faces, normals, sine = tried(field, o, d)
    assert np.array_equal(np.isinf(t), np.isinf(expected))
    assert np.array_equal(face, faces)
    hit = np.isfinite(t)
    assert hit.sum() > 20
    steep = hit & (sine > FLATTEST)
    assert (np.abs(t[steep] - expected[steep]) * np.linalg.norm(d[steep], axis=-1)).max() < TOLERANCE
    surface = face >= 0
    upwards = normals * np.sign(normals[:, 2:])
    assert np.abs(normal - upwards)[surface].max() < 1e-5
    base = face == BASE
    away = (o + t.clip(max=1e9)[:, None] * d)[base] - [0.0, 0.0, field.heights.min()]
    assert np.abs((normal * normals)[base].sum(-1)) == pytest.approx(1.0, abs=1e-6)
    assert ((normal[base] * away).sum(-1) > 0).all()


@pytest.mark.parametrize("field", fields(), ids=named)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_vertical_rays_agree_in_a_single_lookup(field: HeightField, sign: float) -> None:
    """The results match a test of every triangle, and the walk."""
    o, _ = rays(field, 160, 1.0, seed=2)
    d = np.tile([0.0, 0.0, sign], (len(o), 1))
    t, face = upright(field, o, sign)
    expected, faces, _, _ = tried(field, o, d)
    walked, walked_face, _ = cast(field, o, d)
    assert np.array_equal(face, faces) and np.array_equal(walked_face, faces)
    hit = np.isfinite(expected)
    assert hit.sum() > 20
    assert np.abs(t[hit] - expected[hit]).max() < TOLERANCE
    assert np.abs(walked[hit] - expected[hit]).max() < TOLERANCE
    assert np.isinf(t[~hit]).all() and np.isinf(walked[~hit]).all()


def test_height_is_that_of_the_triangle_below() -> None:
    field = HeightField([[0.0, 1.0], [2.0, 5.0]], (1.0, 1.0))
    places = np.array([[-1, -1, 0], [1, -1, 0], [-1, 1, 0], [1, 1, 0], [0.5, -0.5, 0], [-0.5, 0.5, 0], [1.01, 0, 0]])
    z, face = wp.zeros(7, dtype=float, device="cpu"), wp.zeros(7, dtype=int, device="cpu")
    at = wp.array(places, dtype=wp.vec3, device="cpu")
    wp.launch(_height, 7, [build_hfields([field]), 0, at, z, face], device="cpu")
    right = 0.0 + 0.75 * 1.0 + 0.25 * (5.0 - 1.0)  # on the triangle with corner (row 0, column 1)
    left = 0.0 + 0.75 * 2.0 + 0.25 * (5.0 - 2.0)
    assert z.numpy().tolist() == [0.0, 1.0, 2.0, 5.0, right, left, -np.inf]
    assert face.numpy()[4:].tolist() == [0, 1, MISS]


@pytest.mark.parametrize("sides", [(9, 9), (33, 65), (130, 70)])
def test_no_ray_slips_through_an_edge_or_a_vertex(sides: tuple[int, int]) -> None:
    """Rays are aimed exactly, in float32, at points of the grid and at midpoints of all edges, diagonals included."""
    rng = np.random.default_rng(3)
    rows, cols = sides
    z = rng.integers(0, 4, sides) / 16.0
    field = HeightField(z, ((cols - 1) / 2, (rows - 1) / 2))
    x, y = np.meshgrid(np.arange(cols) - (cols - 1) / 2, np.arange(rows) - (rows - 1) / 2)
    points = np.stack([x, y, z], axis=-1)
    aims = [
        points[1:-1, 1:-1],
        (points[1:-1, :-1] + points[1:-1, 1:]) / 2,
        (points[:-1, 1:-1] + points[1:, 1:-1]) / 2,
        (points[:-1, :-1] + points[1:, 1:]) / 2,
    ]
    aim = np.concatenate([a.reshape(-1, 3) for a in aims])
    for away in (
        [0.0, 0.0, 4.0],
        [2.0, 0.0, 4.0],
        [0.0, -2.0, 4.0],
        [3.0, 3.0, 8.0],
        [-2.0, 2.0, 4.0],
        [8.0, -3.0, 32.0],
    ):
        for up in (1.0, -1.0):
            d = np.tile([-away[0], -away[1], -up * away[2]], (len(aim), 1))
            t, face, _ = cast(field, aim - d, d)
            assert (face >= 0).all()
            assert (np.abs(t - 1.0) * np.linalg.norm(away)).max() < TOLERANCE


def test_rays_along_grid_lines_and_diagonals_are_exact() -> None:
    """Rays stay on an edge all the way; a float64 test of every triangle gives their end points."""
    rng = np.random.default_rng(4)
    field = HeightField(rng.integers(0, 8, (17, 17)) / 8.0, (8.0, 8.0))
    o, d = [], []
    for k in range(-7, 8):
        for slope in (-0.125, -0.05, 0.0, 0.05):
            for along in ([1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [1.0, 1.0], [-1.0, -1.0]):
                across = np.array([-along[1], along[0]]) * k if 0.0 in along else np.array([k, 0.0])
                o.append([*(across - 12 * np.array(along)), 0.9 - 12 * slope + 0.003 * k])
                d.append([*along, slope])
    starts, along_ = np.float32(o).astype(np.float64), np.float32(d).astype(np.float64)
    t, _, _ = cast(field, starts, along_)
    expected, _, _, sine = tried(field, starts, along_)
    assert np.array_equal(np.isinf(t), np.isinf(expected))
    hit = np.isfinite(t) & (sine > FLATTEST)
    assert hit.sum() > 100
    assert np.abs(t[hit] - expected[hit]).max() < TOLERANCE


@pytest.mark.parametrize("base", [0.2, 1.0])
def test_ray_from_outside_matches_mujoco(base: float) -> None:
    """Distance and normal match those of `mj_ray` on its own solid: surface, side walls and bottom."""
    rng = np.random.default_rng(5)
    shape, size, high = (23, 31), (3.0, 2.0), 0.8
    data = rng.uniform(0, 1, shape)
    data[0, 0], data[-1, -1] = 0.0, 1.0
    spec = mujoco.MjSpec()
    elevation = spec.add_hfield(name="h", nrow=shape[0], ncol=shape[1], size=[*size, high, base])
    elevation.userdata = data.ravel()
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname="h")
    model = spec.compile()
    state = mujoco.MjData(model)
    mujoco.mj_forward(model, state)
    field = HeightField(model.hfield_data.reshape(shape).astype(np.float64) * high, size, base)
    o, d = rays(field, 1500, 8.0, seed=6)
    o -= 10.0 * d / np.linalg.norm(d, axis=-1, keepdims=True)
    o = np.float32(o).astype(np.float64)
    t, face, normal = cast(field, o, d)
    expected, normals = np.full(len(o), np.inf), np.zeros((len(o), 3))
    for i in range(len(o)):
        at = mujoco.mj_ray(model, state, o[i], d[i], None, 1, -1, np.zeros(1, np.int32), normals[i])
        expected[i] = at if at >= 0 else np.inf
    assert np.array_equal(np.isinf(t), np.isinf(expected))
    hit = np.isfinite(t)
    assert (face[hit] >= 0).sum() > 200 and (face[hit] == BASE).sum() > 100
    steep = hit & (np.abs((normals * d).sum(-1)) / np.linalg.norm(d, axis=-1) > FLATTEST)
    assert (np.abs(t[steep] - expected[steep]) * np.linalg.norm(d[steep], axis=-1)).max() < TOLERANCE
    assert np.abs(normal - normals)[hit].max() < 1e-4


def test_t_max_is_inclusive() -> None:
    field = HeightField(np.zeros((5, 5)), (2.0, 2.0), 0.5)
    o, d = np.array([[0.3, 0.1, 4.0]] * 2), np.array([[0.0, 0.0, -2.0]] * 2)
    t, face, _ = cast(field, o, d, np.array([2.0, np.nextafter(np.float32(2.0), np.float32(0.0))]))
    assert t[0] == 2.0 and face[0] >= 0
    assert np.isinf(t[1]) and face[1] == MISS


def test_absent_height_fields_are_empty_arrays() -> None:
    none = build_hfields([])
    assert (len(none.fields), len(none.heights), len(none.blocks)) == (0, 0, 0)
