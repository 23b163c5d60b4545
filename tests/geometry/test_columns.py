"""The index for vertical rays, checked against every triangle in float64: edges, vertices, huge triangles and distant
positions.
"""

from __future__ import annotations

import numpy as np
import pytest
import warp as wp
from numpy.typing import NDArray

from sensorium.errors import ModelError
from sensorium.geometry.columns import (
    ENTRIES_PER_TRIANGLE,
    MIN_ENTRIES,
    Columns,
    ColumnsIndex,
    build_columns,
    columns_ray,
)

wp.set_module_options({"fuse_fp": False, "enable_backward": False})

Array = NDArray[np.float64]
Faces = NDArray[np.int64]

TOLERANCE = 1e-4
"""Tolerance, m."""


@wp.kernel
def _cast(
    columns: ColumnsIndex,
    o: wp.array[wp.vec3],
    sign: float,
    t_max: wp.array[float],
    t: wp.array[float],
    triangle: wp.array[int],
) -> None:
    i = wp.tid()
    reached, met = columns_ray(columns, o[i][0], o[i][1], o[i][2], sign, t_max[i])
    t[i] = reached
    triangle[i] = met


def cast(columns: Columns, o: Array, sign: float, t_max: Array | float = np.inf) -> tuple[Array, NDArray[np.int32]]:
    n = len(o)
    limits = wp.array(np.broadcast_to(np.float32(t_max), n).copy(), dtype=float, device="cpu")
    t, triangle = wp.zeros(n, dtype=float, device="cpu"), wp.zeros(n, dtype=int, device="cpu")
    starts = wp.array(o, dtype=wp.vec3, device="cpu")
    wp.launch(_cast, n, [columns.to(), starts, sign, limits, t, triangle], device="cpu")
    return t.numpy().astype(np.float64), triangle.numpy()


def tried(vertices: Array, faces: Faces, o: Array, sign: float) -> tuple[Array, NDArray[np.int64], Array, Array]:
    """Test every triangle in float64, by the signs of the areas that a position forms with its edges.

    Returns:
        t, triangle, slope of the triangle (rise over run), and distance of the ray to the nearest edge, m.
    """
    corners = vertices[faces]
    x, y = corners[None, :, :, 0] - o[:, None, None, 0], corners[None, :, :, 1] - o[:, None, None, 1]
    areas = np.stack([x[..., k - 2] * y[..., k - 1] - x[..., k - 1] * y[..., k - 2] for k in range(3)], axis=-1)
    lengths = np.stack([np.hypot(*(corners[:, k - 1] - corners[:, k - 2])[:, :2].T) for k in range(3)], axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = areas / areas.sum(-1, keepdims=True)
        z = (weights * corners[None, :, :, 2]).sum(-1)
        near = np.nanmin(np.abs(areas) / lengths, axis=(1, 2))
        t = sign * (z - o[:, 2:])
        t = np.where((weights >= 0).all(-1) & (t >= 0), t, np.inf)
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    steep = np.hypot(normal[:, 0], normal[:, 1]) / np.maximum(np.abs(normal[:, 2]), 1e-300)
    first = t.argmin(axis=1)
    found = t[np.arange(len(o)), first]
    return found, np.where(np.isfinite(found), first, -1), steep[first], near


def terrain(side: int, extent: float) -> tuple[Array, Faces]:
    """A rough surface of side x side points, two triangles per cell, ordered differently from the grid."""
    rng = np.random.default_rng(0)
    x, y = np.meshgrid(np.linspace(-extent, extent, side), np.linspace(-extent, extent, side))
    z = 0.3 * np.sin(x) + 0.2 * np.cos(1.3 * y) + rng.uniform(0, 0.1, x.shape)
    corner = (np.arange(side - 1)[:, None] * side + np.arange(side - 1)).ravel()
    one = np.stack([corner, corner + 1, corner + side + 1], axis=-1)
    two = np.stack([corner, corner + side + 1, corner + side], axis=-1)
    faces = np.concatenate([one, two])
    return np.stack([x, y, z], axis=-1).reshape(-1, 3), faces[rng.permutation(len(faces))]


def soup() -> tuple[Array, Faces]:
    """Triangles of all sizes, slopes and directions that overlap and intersect."""
    rng = np.random.default_rng(1)
    centre = rng.uniform(-10, 10, (300, 1, 3))
    corners = centre + rng.normal(size=(300, 3, 3)) * 10.0 ** rng.uniform(-2, 1, (300, 1, 1))
    return corners.reshape(-1, 3), np.arange(900).reshape(-1, 3)


def rooms() -> tuple[Array, Faces]:
    """Boxes with floors, ceilings and vertical walls, on a ground of two triangles."""
    rng = np.random.default_rng(2)
    unit = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)], float)
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    box = np.array([f for a, b, c, d in quads for f in ((a, b, c), (a, c, d))])
    vertices, faces = (
        [np.array([[-50, -50, 0], [50, -50, 0], [50, 50, 0], [-50, 50, 0]], float)],
        [[0, 1, 2], [0, 2, 3]],
    )
    for k in range(40):
        vertices.append(rng.uniform(-20, 20, 3) * [1, 1, 0] + unit * rng.uniform(0.1, 6, 3) + [0, 0, rng.uniform(0, 4)])
        faces += (box + 4 + 8 * k).tolist()
    return np.concatenate(vertices), np.array(faces)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("offset", [(0.0, 0.0, 0.0), (1000.0, -3000.0, 200.0)], ids=["near", "far"])
@pytest.mark.parametrize("scene", [terrain(25, 3.0), soup(), rooms()], ids=["terrain", "soup", "rooms"])
def test_ray_matches_brute_force_over_triangles_in_float64(
    scene: tuple[Array, Faces], offset: tuple[float, ...], sign: float
) -> None:
    """Rays start above, below, between and inside closed boxes; rays within 10 um of an edge are omitted.

    Distances are compared up to 0.1 degrees from tangency.
    """
    vertices, faces = scene[0] + offset, scene[1]
    rng = np.random.default_rng(3)
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    o = rng.uniform(low - 0.05 * (high - low), high + 0.05 * (high - low), (750, 3))
    o = np.float32(o).astype(np.float64)
    expected, triangles, steep, near = tried(vertices, faces, o, sign)
    t, triangle = cast(build_columns(vertices, faces), o, sign)
    clear = near > 1e-5
    assert clear.mean() > 0.99
    assert np.array_equal(triangle[clear], triangles[clear])
    hit = clear & np.isfinite(expected) & (steep < 1.0 / np.tan(np.deg2rad(0.1)))
    assert hit.sum() > 40
    assert np.abs(t[hit] - expected[hit]).max() < TOLERANCE
    assert np.isinf(t[clear & np.isinf(expected)]).all()


@pytest.mark.parametrize("offset", [(0.0, 0.0), (100.0, 700.0)], ids=["near", "far"])
@pytest.mark.parametrize("turn", [0.0, 0.3])
def test_no_ray_slips_through_an_edge_or_a_vertex(turn: float, offset: tuple[float, float]) -> None:
    """Rays are aimed, as exactly as float32 allows, at all inner vertices and at all edges of a rotated terrain."""
    vertices, faces = terrain(60, 7.0)
    inside = np.abs(vertices[:, :2]).max(axis=1) < 6.9
    ends = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    ends = ends[inside[ends].all(axis=1)]
    turned = vertices @ np.array([[np.cos(turn), np.sin(turn), 0], [-np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
    turned[:, :2] += offset
    aims = [turned[inside]]
    for share in (0.5, 1 / 3, 0.01):
        aims.append(turned[ends[:, 0]] * (1 - share) + turned[ends[:, 1]] * share)
    aim = np.concatenate(aims)
    columns = build_columns(turned, faces)
    for sign in (-1.0, 1.0):
        t, triangle = cast(columns, aim - [0.0, 0.0, 5.0 * sign], sign)
        assert (triangle >= 0).all()
        assert np.abs(t - 5.0).max() < (TOLERANCE if offset == (0.0, 0.0) else 2e-4)  # x is rounded by 30 um


def test_no_ray_slips_between_slivers() -> None:
    """On a fan of triangles a thousand times as long as wide, random rays and rays on its edges give the right hits."""
    angle = np.linspace(0, 2 * np.pi, 6001)[:-1]
    rim = np.stack([10 * np.cos(angle), 10 * np.sin(angle), np.zeros_like(angle)], axis=-1)
    vertices = np.concatenate([[[0.0, 0.0, 0.0]], rim])
    faces = np.stack([np.zeros(6000, int), 1 + np.arange(6000), 1 + (np.arange(6000) + 1) % 6000], axis=-1)
    rng = np.random.default_rng(4)
    within = np.sqrt(rng.uniform(0, 0.99, (6000, 1)))
    aim = np.concatenate([rim * within, rim[::-1] * [1, 1, 0] * within])
    t, triangle = cast(build_columns(vertices, faces), aim + np.array([0.0, 0.0, 2.0]), -1.0)
    assert (triangle >= 0).all()
    assert np.abs(t - 2.0).max() < TOLERANCE


def test_huge_triangles_among_small_ones_keep_the_index_small() -> None:
    """With a thousand triangles over the whole extent, the lists stay within their bound and the hits are right."""
    rng = np.random.default_rng(5)
    vertices, faces = terrain(30, 10.0)
    huge = rng.uniform(-12, 12, (1000, 3, 3)) * [1, 1, 0.2] + [0, 0, 6]
    vertices = np.concatenate([vertices, huge.reshape(-1, 3)])
    faces = np.concatenate([faces, len(vertices) - 3000 + np.arange(3000).reshape(-1, 3)])
    columns = build_columns(vertices, faces)
    assert len(columns.entries) <= max(MIN_ENTRIES, ENTRIES_PER_TRIANGLE * len(faces))
    o = np.float32(rng.uniform(-9, 9, (200, 3))).astype(np.float64)
    expected, _, steep, near = tried(vertices, faces, o, -1.0)
    t, _ = cast(columns, o, -1.0)
    hit = np.isfinite(expected) & (near > 1e-5) & (steep < 573.0)
    assert hit.sum() > 100
    assert np.abs(t[hit] - expected[hit]).max() < TOLERANCE


def test_a_ray_counts_from_its_start_to_t_max_inclusive() -> None:
    vertices = np.array([[0, 0, 1], [4, 0, 1], [0, 4, 1], [0, 0, 3], [4, 0, 3], [0, 4, 3]], float)
    columns = build_columns(vertices, [[0, 1, 2], [3, 4, 5]])
    o = np.array([[1.0, 1.0, z] for z in (5.0, 3.0, 2.0, 1.0, 0.0)])
    assert cast(columns, o, -1.0)[0].tolist() == [2.0, 0.0, 1.0, 0.0, np.inf]
    assert cast(columns, o, 1.0)[0].tolist() == [np.inf, 0.0, 1.0, 0.0, 1.0]
    below = np.nextafter(np.float32(2.0), np.float32(0.0))
    t, triangle = cast(columns, o[[0, 0]], -1.0, np.array([2.0, below]))
    assert t.tolist() == [2.0, np.inf] and triangle.tolist() == [1, -1]


def test_vertical_triangles_are_omitted() -> None:
    vertices = np.array([[0, 0, 0], [0, 2, 0], [0, 0, 2], [-1, -1, -1], [3, -1, -1], [-1, 3, -1]], float)
    columns = build_columns(vertices, [[0, 1, 2], [3, 4, 5]])
    t, triangle = cast(columns, np.array([[0.0, 0.5, 5.0]]), -1.0)
    assert t.tolist() == [6.0] and triangle.tolist() == [1]
    walls = build_columns(vertices[:3], [[0, 1, 2]])
    assert len(walls.entries) == 0
    assert cast(walls, np.array([[0.0, 0.5, 5.0]]), -1.0)[1].tolist() == [-1]


def test_progress_rises_from_0_to_1() -> None:
    told: list[float] = []
    build_columns(*terrain(10, 1.0), progress=told.append)
    assert told[0] == 0.0 and told[-1] == 1.0
    assert told == sorted(told) and len(told) > 3


def test_empty_mesh_is_refused() -> None:
    with pytest.raises(ModelError, match=r"faces: got an array of shape \(0, 3\), expected \[n, 3\] with n > 0"):
        build_columns(np.zeros((3, 3)), np.zeros((0, 3), int))
