"""Slanted rays over the index: all triangles in float64, exact aims, all starting points, and the choice of the
walk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import warp as wp
from numpy.typing import NDArray
from ray_worlds import World
from reference import compare_casts, reference_cast

from sensorium import TensorEngine
from sensorium.geometry.columns import ColumnsIndex, build_columns
from sensorium.geometry.columns_walk import WalkIndex, build_walk, columns_walk, is_terrain, may_be_terrain
from sensorium.geometry.shapes import Mesh, Shape

wp.set_module_options({"fuse_fp": False, "enable_backward": False})

Array = NDArray[np.float64]
Faces = NDArray[np.int64]

TOLERANCE = 1e-4
"""Tolerance, m."""


@wp.kernel
def _cast(
    columns: ColumnsIndex,
    walk: WalkIndex,
    o: wp.array[wp.vec3],
    d: wp.array[wp.vec3],
    t_max: float,
    t: wp.array[float],
    triangle: wp.array[int],
) -> None:
    i = wp.tid()
    reached, met = columns_walk(columns, walk, o[i], d[i], t_max)
    t[i] = reached
    triangle[i] = met


class Walked:
    """Triangles and casts at them."""

    def __init__(self, vertices: Array, faces: Faces) -> None:
        columns = build_columns(vertices, faces)
        self.inputs = [columns.to(), build_walk(columns, vertices, faces)]

    def cast(self, o: Array, d: Array, t_max: float = np.inf) -> tuple[Array, NDArray[np.int32]]:
        o, d = np.broadcast_arrays(o, d)
        n = len(o)
        t, triangle = wp.zeros(n, dtype=float, device="cpu"), wp.zeros(n, dtype=int, device="cpu")
        rays = [wp.array(np.float32(each), dtype=wp.vec3, device="cpu") for each in (o, d)]
        wp.launch(_cast, n, [*self.inputs, *rays, float(t_max), t, triangle], device="cpu")
        return t.numpy().astype(np.float64), triangle.numpy()


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


@pytest.mark.parametrize("offset", [(0.0, 0.0, 0.0), (1000.0, -3000.0, 200.0)], ids=["near", "far"])
@pytest.mark.parametrize(("scene", "most"), [(terrain, 0.01), (cluttered, 0.01), (soup, 0.03)])
def test_ray_matches_brute_force_over_triangles_in_float64(scene: Any, most: float, offset: tuple[float, ...]) -> None:
    """The number of rays omitted because they pass a silhouette is bounded; small triangles have long silhouettes."""
    vertices, faces = scene()
    vertices = vertices + offset
    o, d = rays(vertices, faces, 1500)
    reference = reference_cast([Shape("mesh", "all", mesh=Mesh(vertices, faces))], o, d)
    t, triangle = Walked(vertices, faces).cast(o, d)
    hit = triangle >= 0
    length = np.linalg.norm(d, axis=1)
    report = compare_casts(reference, t * length, np.where(hit, 0, -1), face=triangle, most_left_out=most)
    print(report)
    assert 600 < report.hits < 1450


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
    walked = Walked(vertices + np.array([offset, -offset, 0.0]), faces)
    for start in ([0.0, 0.0, 1.5], [0.25, -2.0, 4.0], [-2.5, 2.5, 0.9], [0.5, 0.5, -2.0]):
        o = np.float32(np.array(start) + np.array([offset, -offset, 0.0])).astype(np.float64)
        to = aim + np.array([offset, -offset, 0.0]) - o
        far = np.linalg.norm(to, axis=1)
        t, triangle = walked.cast(o, to / far[:, None])
        assert (triangle >= 0).all()
        # a grazing ray at a ridge may pass above it by the rounding of its direction, and hits the surface behind
        past = t - far
        assert (past < TOLERANCE).mean() > 0.998
        assert past.max() < 1.0
        assert (np.abs(past) < TOLERANCE).mean() > 0.5


def test_boxes_are_closed() -> None:
    """Rays from inside a box at its edges and corners, also horizontal ones, do not leave it."""
    vertices, faces = boxes(1)
    middle = np.float32(vertices.mean(axis=0)).astype(np.float64)
    ends = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    shares = np.linspace(0.0, 1.0, 41)[:, None, None]
    aim = (vertices[ends[:, 0]] * (1 - shares) + vertices[ends[:, 1]] * shares).reshape(-1, 3)
    far = np.linalg.norm(aim - middle, axis=1)
    t, triangle = Walked(vertices, faces).cast(middle, (aim - middle) / far[:, None])
    assert (triangle >= 0).all()
    np.testing.assert_allclose(t, far, atol=TOLERANCE)


def test_a_ray_counts_from_its_start_to_t_max_inclusive() -> None:
    """Both faces of two sheets and of a wall are hit from in front, between, on and behind them."""
    sheets = np.array([[0, 0, 1], [4, 0, 1], [0, 4, 1], [0, 0, 3], [4, 0, 3], [0, 4, 3]], float)
    walked = Walked(sheets, np.arange(6).reshape(2, 3))
    o = np.array([[1.0, 1.0, z] for z in (5.0, 3.0, 2.0, 1.0, 0.0)])
    assert walked.cast(o, np.array([0.0, 0.0, -1.0]))[0].tolist() == [2.0, 0.0, 1.0, 0.0, np.inf]
    assert walked.cast(o, np.array([0.0, 0.0, 1.0]))[0].tolist() == [np.inf, 0.0, 1.0, 0.0, 1.0]
    assert walked.cast(o[[0]], np.array([0.0, 0.0, -0.5]))[0].tolist() == [4.0]
    below = float(np.nextafter(np.float32(2.0), np.float32(0.0)))
    assert walked.cast(o[[0]], np.array([0.0, 0.0, -1.0]), 2.0)[1].tolist() == [1]
    assert walked.cast(o[[0]], np.array([0.0, 0.0, -1.0]), below)[1].tolist() == [-1]
    wall = Walked(sheets[:3, [2, 1, 0]], np.array([[0, 1, 2]]))
    o = np.array([[x, 1.0, 1.0] for x in (3.0, 1.0, 0.0)])
    assert wall.cast(o, np.array([-1.0, 0.0, 0.0]))[0].tolist() == [2.0, 0.0, np.inf]
    assert wall.cast(o, np.array([1.0, 0.0, 0.0]), 1.0)[0].tolist() == [np.inf, 0.0, 1.0]
    assert wall.cast(o[[0]], np.array([-1.0, 0.0, 0.0]), below)[1].tolist() == [-1]


def test_non_finite_ray_hits_nothing() -> None:
    walked = Walked(*terrain(5))
    bad = np.array([[np.nan, 0, 0], [np.inf, 0, 0], [0, -np.inf, 1]], float)
    assert walked.cast(bad, np.array([0.0, 0.6, -0.8]))[1].tolist() == [-1, -1, -1]
    assert walked.cast(np.zeros(3), bad)[1].tolist() == [-1, -1, -1]


def room() -> tuple[Array, Faces]:
    """A terrain with a ceiling over it."""
    vertices, faces = terrain(40)
    return np.concatenate([vertices, vertices + np.array([0, 0, 2.5])]), np.concatenate([faces, faces + len(vertices)])


def test_terrain_is_distinguished_from_rooms_and_triangle_soups() -> None:
    many = [(np.tile(soup()[0], (4, 1)), np.arange(3600).reshape(-1, 3)), boxes(200), room(), terrain(10)]
    for vertices, faces in many:
        assert not may_be_terrain(vertices, faces) or not is_terrain(build_columns(vertices, faces), vertices, faces)
    vertices, faces = terrain(40, turn=0.3)
    assert may_be_terrain(vertices, faces)
    assert is_terrain(build_columns(vertices, faces), vertices, faces)


def test_terrain_uses_the_grid_walk_and_rooms_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways give the same hits, ray by ray: distance, shape, face and normal."""

    def world(vertices: Array, faces: Faces) -> World:
        ground = Mesh(vertices, faces)
        shapes = (
            Shape("sphere", "ball", (0.4,), pos=(1.0, 0.5, 0.8)),
            Shape("mesh", "ground", mesh=ground, scale=(1.0, 1.0, -1.0), pos=(0.1, 0.0, 0.2)),
        )
        return World(TensorEngine(1, 0.01, shapes=shapes), [(-1, (0.0, 0.0, 1.2))])

    directions = np.random.default_rng(4).normal(size=(4000, 3)) * [1, 1, 0.4]
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    found = {}
    for name in ("walk", "tree"):
        if name == "tree":
            monkeypatch.setattr("sensorium.shapes.ray_static.may_be_terrain", lambda *_: False)
        there = world(*terrain(40))
        cast = there.rays(np.zeros((4000, 3)), directions)
        assert bool(cast.view.slanted().is_walked) == (name == "walk")
        assert bool(cast.view.slanted().mesh) == (name == "tree")
        found[name] = {key: array[0, 0] for key, array in there.cast(cast).items()}
    monkeypatch.undo()
    one, other = found["walk"], found["tree"]
    same = np.isclose(one["distance"], other["distance"], rtol=0.0, atol=TOLERANCE) & (one["shape"] == other["shape"])
    assert same.mean() > 0.999  # the rest pass a ridge by less than rounding
    assert 500 < np.isfinite(one["distance"]).sum() < 3900
    assert (one["face"] == other["face"])[same].mean() > 0.999
    agree = same & (one["face"] == other["face"])
    np.testing.assert_allclose(one["normal"][agree], other["normal"][agree], atol=1e-5)
    inside = world(*room())
    assert not inside.rays(np.zeros((1, 3)), directions[:1]).view.slanted().is_walked


def test_vertical_and_slanted_rays_share_one_index() -> None:
    ground = Mesh(*terrain(40))
    world = World(TensorEngine(1, 0.01, shapes=(Shape("mesh", "ground", mesh=ground),)))
    view = world.rays(np.zeros((1, 3)), np.array([[0.6, 0.0, -0.8]])).view
    assert view.slanted().columns.triangles.ptr == view.indexed().columns.triangles.ptr
