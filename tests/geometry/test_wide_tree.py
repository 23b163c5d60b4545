"""Rays against the eight-wide tree: all triangles in float64, a scalar twin, exact aims, and all starting points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import warp as wp
from numpy.typing import NDArray

from sensorium.geometry.wide_tree import CUT_LEVELS, NODE_ROWS, STACK, build_wide_tree, wide_tree_ray

OPTIONS = {"fuse_fp": False, "enable_backward": False}
wp.set_module_options({**OPTIONS, "cpu_compiler_flags": "-march=native -DWP_NO_BFLOAT16="})

Array = NDArray[np.float64]
Faces = NDArray[np.int64]

TOLERANCE = 1e-5
"""Tolerance, m."""


def _cast(
    tree: wp.uint64,
    o: wp.array[wp.vec3],
    d: wp.array[wp.vec3],
    t_max: float,
    t: wp.array[float],
    triangle: wp.array[int],
) -> None:
    i = wp.tid()
    reached, met = wide_tree_ray(tree, o[i], d[i], t_max)
    t[i] = reached
    triangle[i] = met


@wp.func
def _triangle(rows: wp.array2d[float], row: int, lane: int, o: wp.vec3d, d: wp.vec3d) -> float:
    """Return t at one triangle of a leaf, in float64; -1 on a miss."""
    a = wp.vec3d()
    b = wp.vec3d()
    c = wp.vec3d()
    for k in range(3):
        a[k] = wp.float64(rows[row + k, lane])
        b[k] = wp.float64(rows[row + 3 + k, lane])
        c[k] = wp.float64(rows[row + 6 + k, lane])
    s = o - a
    p = wp.cross(d, c - a)
    q = wp.cross(s, b - a)
    per = wp.float64(1.0) / wp.dot(b - a, p)
    u = wp.dot(s, p) * per
    v = wp.dot(d, q) * per
    slack = wp.float64(1.0e-10)
    if u >= -slack and v >= -slack and u + v <= wp.float64(1.0) + slack:
        return wp.float32(wp.dot(c - a, q) * per)
    return -1.0


@wp.kernel
def _twin(
    rows: wp.array2d[float],
    children: wp.array2d[int],
    o: wp.array[wp.vec3],
    d: wp.array[wp.vec3],
    t_max: float,
    t: wp.array[float],
    triangle: wp.array[int],
) -> None:
    """What `wide_tree_ray` means, one box and one triangle at a time, in float64 and in any order."""
    i = wp.tid()
    start = wp.vec3d(o[i] - wp.vec3(rows[0, 0], rows[0, 1], rows[0, 2]))
    way = wp.vec3d(d[i])
    best = float(t_max)
    face = wp.int32(-1)
    stack = wp.vector(dtype=int, length=256)
    stack[0] = 1
    top = wp.int32(1)
    if not wp.isfinite(wp.length_sq(o[i]) + wp.length_sq(d[i])):
        top = 0
    while top > 0:
        top -= 1
        row = stack[top]
        for lane in range(8):
            if row >= 0:
                enter = wp.float64(0.0)
                leave = wp.float64(best)
                for k in range(3):
                    low = wp.float64(rows[row + k, lane]) - start[k]
                    high = wp.float64(rows[row + 3 + k, lane]) - start[k]
                    if way[k] == wp.float64(0.0):
                        if low > wp.float64(0.0) or high < wp.float64(0.0):
                            leave = wp.float64(-1.0)
                    else:
                        enter = wp.max(enter, wp.min(low / way[k], high / way[k]))
                        leave = wp.min(leave, wp.max(low / way[k], high / way[k]))
                if rows[row, lane] <= rows[row + 3, lane] and enter <= leave * wp.float64(1.0000001):
                    stack[top] = children[row + 6, lane]
                    top += 1
            else:
                found = _triangle(rows, ~row, lane, start, way)
                id = children[~row + 10, lane]
                if found >= 0.0 and (found < best or (found == best and (face < 0 or id < face))):
                    best = found
                    face = id
    t[i] = wp.where(face < 0, wp.inf, best)
    triangle[i] = face


def portable_cast() -> wp.Kernel:
    """Return the cast compiled for any CPU of this architecture: without -march=native, x86-64 has only SSE2."""
    module = wp.get_module("test_wide_tree.portable")
    module.options |= {**OPTIONS, "cpu_compiler_flags": "-DWP_NO_BFLOAT16="}
    return wp.Kernel(_cast, module=module)


CAST = wp.kernel(_cast)


class Tree:
    """Triangles and casts at them."""

    def __init__(self, vertices: Array, faces: Faces) -> None:
        self.rows = build_wide_tree(vertices, faces)

    def cast(self, o: Array, d: Array, t_max: float = np.inf, kernel: Any = CAST) -> tuple[Array, NDArray[np.int32]]:
        o, d = np.broadcast_arrays(o, d)
        n = len(o)
        t, triangle = wp.zeros(n, dtype=float, device="cpu"), wp.zeros(n, dtype=int, device="cpu")
        rays = [wp.array(np.float32(each), dtype=wp.vec3, device="cpu") for each in (o, d)]
        tree = [wp.uint64(self.rows.ptr)] if kernel is not _twin else [self.rows, self.rows.view(wp.int32)]
        wp.launch(kernel, n, [*tree, *rays, float(t_max), t, triangle], device="cpu")
        return t.numpy().astype(np.float64), triangle.numpy()

    @property
    def depth(self) -> int:
        """Number of levels of nodes."""
        children = self.rows.numpy().view(np.int32)
        level, depth = np.array([1]), 0
        while len(level):
            depth, below = depth + 1, children[level + NODE_ROWS - 1]
            level = below[below > 0]
        return depth


def terrain(side: int = 25, extent: float = 3.0, turn: float = 0.0) -> tuple[Array, Faces]:
    """A rough surface of side x side points, two triangles per cell, ordered differently from the grid."""
    rng = np.random.default_rng(0)
    x, y = np.meshgrid(np.linspace(-extent, extent, side), np.linspace(-extent, extent, side))
    z = 0.3 * np.sin(x) + 0.2 * np.cos(1.3 * y) + rng.uniform(0, 0.1, x.shape)
    corner = (np.arange(side - 1)[:, None] * side + np.arange(side - 1)).ravel()
    one = np.stack([corner, corner + 1, corner + side + 1], axis=-1)
    two = np.stack([corner, corner + side + 1, corner + side], axis=-1)
    faces = np.concatenate([one, two])
    points = np.stack([x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn), z], axis=-1)
    return points.reshape(-1, 3), faces[rng.permutation(len(faces))]


def boxes(count: int) -> tuple[Array, Faces]:
    """Stacked boxes with vertical walls; some are rotated."""
    rng = np.random.default_rng(2)
    unit = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)], float)
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    box = np.array([f for a, b, c, d in quads for f in ((a, b, c), (a, c, d))])
    vertices = []
    for k in range(count):
        turn = 0.0 if k % 2 else rng.uniform(0, np.pi)
        c, s = np.cos(turn), np.sin(turn)
        points = unit * rng.uniform(0.2, 1.5, 3) @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])
        vertices.append(points + rng.uniform(-2.5, 2.0, 3) * [1, 1, 0] + [0, 0, rng.uniform(0, 1)])
    return np.concatenate(vertices), np.concatenate([box + 8 * k for k in range(count)])


def cluttered() -> tuple[Array, Faces]:
    """Terrain with boxes that stand on it and overhang it."""
    (ground, under), (things, above) = terrain(), boxes(12)
    return np.concatenate([ground, things]), np.concatenate([under, above + len(ground)])


def soup() -> tuple[Array, Faces]:
    """Triangles of all sizes, slopes and directions that overlap and intersect."""
    rng = np.random.default_rng(1)
    corners = rng.uniform(-3, 3, (300, 1, 3)) + rng.normal(size=(300, 3, 3)) * 10.0 ** rng.uniform(-2, 0, (300, 1, 1))
    return corners.reshape(-1, 3), np.arange(900).reshape(-1, 3)


def rays(vertices: Array, faces: Faces, count: int) -> tuple[Array, Array]:
    """Ray starts inside, above, below and outside the extent; some are flat, along axes or vertical, and most are
    aimed.
    """
    rng = np.random.default_rng(3)
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    o = rng.uniform(low - 0.5 * (high - low), high + 0.5 * (high - low), (count, 3))
    d = rng.normal(size=(count, 3))
    d[: count // 6, 2] *= 0.1
    aims = np.arange(count // 6, count - count // 4)  # the others at points of triangles
    shares = rng.dirichlet(np.ones(3), (len(aims), 1))
    d[aims] = (shares @ vertices[faces[rng.integers(len(faces), size=len(aims))]])[:, 0] - o[aims]
    axes = np.concatenate([np.eye(3), -np.eye(3), [[1, 1, 0], [-1, 1, 0], [1, 0, -1], [0, -1, -1]]])
    d[-count // 4 :] = axes[rng.integers(len(axes), size=count - (count - count // 4))]
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    return np.float32(o).astype(np.float64), np.float32(d).astype(np.float64)


def scaled() -> tuple[Array, Faces]:
    """The cluttered scene, mirrored and stretched, with triangles without area, twice the same, and not finite."""
    vertices, faces = cluttered()
    vertices = np.concatenate([vertices * [-1.0, 3.0, 0.2], [[np.nan, 0.0, 0.0], [np.inf, 1.0, 0.0]]])
    rng = np.random.default_rng(6)
    flat = rng.integers(len(vertices) - 2, size=(40, 3))
    flat[:20, 2] = flat[:20, 1]
    flat[20:, 1:] = flat[20:, :1]
    broken = np.stack([[len(vertices) - 1, len(vertices) - 2]] * 4).repeat(2, axis=1)[:, :3]
    return vertices, np.concatenate([flat, broken, faces, faces[::-1]])


def brute(vertices: Array, faces: Faces, o: Array, d: Array) -> tuple[Array, NDArray[np.int64]]:
    """Return distance and lowest triangle of the nearest hit, by all triangles in float64, of float32 vertices."""
    a, b, c = np.moveaxis(np.float32(vertices).astype(float)[faces], 1, 0)
    with np.errstate(all="ignore"):
        n = np.cross(b - a, c - a)
        t = ((a - o[:, None]) * n).sum(-1) / (d[:, None] * n).sum(-1)
        at = o[:, None] + t[..., None] * d[:, None]
        inside = np.ones(t.shape, bool)
        for p, q in ((a, b), (b, c), (c, a)):
            side = (np.cross(q - p, at - p) * n).sum(-1)
            inside &= side >= -1e-12 * (n * n).sum(-1)
        t = np.where(inside & (t >= 0.0), t.astype(np.float32), np.inf)
    nearest = t.min(axis=1)
    return nearest, np.where(np.isfinite(nearest), t.argmin(axis=1), -1)


@pytest.mark.parametrize("scene", [terrain, cluttered, soup, scaled])
def test_hits_are_those_of_all_triangles_in_float64(scene: Any) -> None:
    """Distances agree within 1e-5 m also at flat angles; of equally near triangles the lowest index is hit."""
    vertices, faces = scene()
    o, d = rays(vertices[np.isfinite(vertices).all(axis=1)], faces[faces.max(axis=1) < len(vertices) - 2], 600)
    reference, first = brute(vertices, faces, o, d)
    tree = Tree(vertices, faces)
    t, triangle = tree.cast(o, d)
    assert 240 < (triangle >= 0).sum() < 590
    same = triangle == first
    assert same.mean() > 0.998  # exactly at an edge, each may round
    hit = same & (triangle >= 0)
    np.testing.assert_allclose(t[hit], reference[hit], rtol=0.0, atol=TOLERANCE)
    twin = tree.cast(o, d, kernel=_twin)
    np.testing.assert_array_equal(t, twin[0])
    np.testing.assert_array_equal(triangle, twin[1])
    limited = tree.cast(o, d, 2.0)
    np.testing.assert_array_equal(limited[1], np.where(t <= 2.0, triangle, -1))


def test_a_cpu_without_avx_gives_the_same_hits() -> None:
    vertices, faces = cluttered()
    o, d = rays(vertices, faces, 1500)
    tree = Tree(vertices, faces)
    here, there = tree.cast(o, d), tree.cast(o, d, kernel=portable_cast())
    np.testing.assert_array_equal(here[0], there[0])
    np.testing.assert_array_equal(here[1], there[1])


@pytest.mark.parametrize("turn", [0.0, 0.3])
@pytest.mark.parametrize("offset", [0.0, 3000.0], ids=["near", "far"])
def test_no_ray_slips_through_an_edge_or_a_vertex(offset: float, turn: float) -> None:
    """From one position, rays at all inner vertices and points of edges never hit anything behind the surface."""
    vertices, faces = terrain(40, 3.0, turn)
    inside = np.hypot(vertices[:, 0], vertices[:, 1]) < 2.9
    ends = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    ends = ends[inside[ends].all(axis=1)]
    aims = [vertices[inside]]
    aims += [vertices[ends[:, 0]] * (1 - share) + vertices[ends[:, 1]] * share for share in (0.5, 1 / 3, 0.01)]
    aim = np.concatenate(aims)
    tree = Tree(vertices + np.array([offset, -offset, 0.0]), faces)
    for start in ([0.0, 0.0, 1.5], [0.25, -2.0, 4.0], [-2.5, 2.5, 0.9], [0.5, 0.5, -2.0]):
        o = np.float32(np.array(start) + np.array([offset, -offset, 0.0])).astype(np.float64)
        to = aim + np.array([offset, -offset, 0.0]) - o
        far = np.linalg.norm(to, axis=1)
        t, _ = tree.cast(o, to / far[:, None])
        odd = np.flatnonzero(~(t - far < 1e-4))
        # a grazing ray at a ridge may pass above it by the rounding of its direction, and go where brute force goes
        assert len(odd) < 0.1 * len(far)
        way = np.float32(to / far[:, None])[odd[::20]].astype(np.float64)
        here = np.broadcast_to(o - [offset, -offset, 0.0], way.shape)
        np.testing.assert_allclose(t[odd[::20]], brute(vertices, faces, here, way)[0], rtol=0.0, atol=TOLERANCE)
        assert (np.abs(t - far) < 1e-4).mean() > 0.5


def test_boxes_are_closed() -> None:
    """Rays from inside a box at its edges and corners, also horizontal ones, do not leave it."""
    vertices, faces = boxes(1)
    middle = np.float32(vertices.mean(axis=0)).astype(np.float64)
    ends = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    shares = np.linspace(0.0, 1.0, 41)[:, None, None]
    aim = (vertices[ends[:, 0]] * (1 - shares) + vertices[ends[:, 1]] * shares).reshape(-1, 3)
    far = np.linalg.norm(aim - middle, axis=1)
    t, triangle = Tree(vertices, faces).cast(middle, (aim - middle) / far[:, None])
    assert (triangle >= 0).all()
    np.testing.assert_allclose(t, far, atol=TOLERANCE)


def test_a_ray_counts_from_its_start_to_t_max_inclusive() -> None:
    """Both faces of two sheets and of a wall are hit from in front, between, on and behind them."""
    sheets = np.array([[0, 0, 1], [4, 0, 1], [0, 4, 1], [0, 0, 3], [4, 0, 3], [0, 4, 3]], float)
    tree = Tree(sheets, np.arange(6).reshape(2, 3))
    o = np.array([[1.0, 1.0, z] for z in (5.0, 3.0, 2.0, 1.0, 0.0)])
    assert tree.cast(o, np.array([0.0, 0.0, -1.0]))[0].tolist() == [2.0, 0.0, 1.0, 0.0, np.inf]
    assert tree.cast(o, np.array([0.0, 0.0, 1.0]))[0].tolist() == [np.inf, 0.0, 1.0, 0.0, 1.0]
    assert tree.cast(o[[0]], np.array([0.0, 0.0, -0.5]))[0].tolist() == [4.0]
    below = float(np.nextafter(np.float32(2.0), np.float32(0.0)))
    assert tree.cast(o[[0]], np.array([0.0, 0.0, -1.0]), 2.0)[1].tolist() == [1]
    assert tree.cast(o[[0]], np.array([0.0, 0.0, -1.0]), below)[1].tolist() == [-1]
    wall = Tree(sheets[:3, [2, 1, 0]], np.array([[0, 1, 2]]))
    o = np.array([[x, 1.0, 1.0] for x in (3.0, 1.0, 0.0)])
    assert wall.cast(o, np.array([-1.0, 0.0, 0.0]))[0].tolist() == [2.0, 0.0, np.inf]
    assert wall.cast(o, np.array([1.0, 0.0, 0.0]), 1.0)[0].tolist() == [np.inf, 0.0, 1.0]
    assert wall.cast(o[[0]], np.array([-1.0, 0.0, 0.0]), below)[1].tolist() == [-1]


def test_rays_that_are_not_finite_or_have_no_direction_hit_nothing() -> None:
    tree = Tree(*terrain(5))
    bad = np.array([[np.nan, 0, 0], [np.inf, 0, 0], [0, -np.inf, 1]], float)
    assert tree.cast(bad, np.array([0.0, 0.6, -0.8]))[1].tolist() == [-1, -1, -1]
    assert tree.cast(np.zeros(3), bad)[1].tolist() == [-1, -1, -1]
    assert tree.cast(np.zeros((2, 3)), np.array([[0.0, 0.0, 0.0], [0.0, -0.0, 0.0]]))[1].tolist() == [-1, -1]
    assert tree.cast(np.array([[1e30, 0, 0], [0, 0, 1e30]]), np.array([[-1.0, 0, 0], [0, 0, 1]]))[1].tolist() == [
        -1,
        -1,
    ]


def test_meshes_without_a_triangle_and_with_one() -> None:
    down = np.array([[0.2, 0.2, 1.0]]), np.array([[0.0, 0.0, -1.0]])
    one = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], float)
    assert Tree(one, np.zeros((0, 3), int)).cast(*down)[1].tolist() == [-1]
    assert Tree(one * np.nan, np.array([[0, 1, 2]])).cast(*down)[1].tolist() == [-1]
    assert Tree(one, np.array([[0, 1, 2]])).cast(*down)[0].tolist() == [1.0]
    # in the plane of the triangle and along its box: not hit, but along an edge of another one it is
    assert Tree(one, np.array([[0, 1, 2]])).cast(np.array([[-1.0, 0, 0]]), np.array([[1.0, 0, 0]]))[1].tolist() == [-1]
    fin = np.array([[0, 0, 0], [1, 0, 0], [0, 0, 1]], float)
    assert Tree(fin, np.array([[0, 1, 2]])).cast(np.array([[0.0, -1, 0]]), np.array([[0.0, 1, 0]]))[0].tolist() == [1.0]


@pytest.mark.parametrize("kind", ["equal", "growing"])
def test_the_stack_has_room_for_the_deepest_tree(kind: str) -> None:
    """Equal triangles cannot be split by place. Growing ones are split unevenly, level by level."""
    count = 20_000 if kind == "equal" else 4000
    at = np.zeros(count) if kind == "equal" else np.repeat(1.5 ** np.arange(-100, 100), 20)
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0.5]]) * np.maximum(at, 1.0 * (kind == "equal"))[:, None, None]
    tree = Tree((corners + at[:, None, None]).reshape(-1, 3), np.arange(3 * count).reshape(-1, 3))
    assert tree.depth <= (STACK - 1) // 7
    assert (kind == "growing") == (tree.depth > CUT_LEVELS)
    t, triangle = tree.cast(np.array([[0.2, 0.2, 9.0]]), np.array([[0.0, 0.0, -1.0]]))
    assert np.isfinite(t[0])
    assert triangle[0] % 20 == 0  # the lowest of the equal ones
