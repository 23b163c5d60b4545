"""Triangles of meshes and height fields, grouped for drawing: clusters of neighbours, and groups of clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from sensorium.geometry.shapes import HeightField

TRIANGLES = 64
"""Maximum number of triangles of a cluster."""
VERTICES = 96
"""Maximum number of vertices of a cluster."""
BLOCKS = 16
"""Maximum number of blocks of a height field's bottom along each axis."""
GROUP = 16
"""Number of clusters of a group."""


@wp.struct
class Surface:
    """Triangles of one mesh or height field, in its own frame and without scale.

    Attributes:
        points: vertices, m; for a mesh those of its `wp.Mesh`.
        vertex: index into `points` of the vertices of each cluster, cluster by cluster.
        corner: the three corners of each triangle, 8 bits each: positions among its cluster's vertices.
        face: face of each triangle.
        first_vertex: first of a cluster's entries in `vertex`, `[cluster + 1]`.
        first_triangle: first of a cluster's triangles, `[cluster + 1]`.
        sphere: centre and radius of a sphere around each cluster, m.
        group: the same for each group of clusters.
        triangles: number of triangles.
    """

    points: wp.array[wp.vec3]
    vertex: wp.array[wp.int32]
    corner: wp.array[wp.int32]
    face: wp.array[wp.int32]
    first_vertex: wp.array[wp.int32]
    first_triangle: wp.array[wp.int32]
    sphere: wp.array[wp.vec4]
    group: wp.array[wp.vec4]
    triangles: wp.int32


def build_clusters(
    points: NDArray[Any], faces: NDArray[Any], ids: NDArray[Any] | None = None
) -> dict[str, NDArray[Any]]:
    """Return the clusters of triangles: arrays of `Surface` by name.

    Args:
        points: vertices, `[vertex, 3]`.
        faces: `[triangle, 3]`.
        ids: face of each triangle; None for its row.
    """
    points = points.astype(np.float32).astype(np.float64)
    centres = points[faces].mean(axis=1)
    parts = _split(centres, [np.arange(len(faces))], TRIANGLES)
    while len(wide := [part for part in parts if len(part) > 1 and len(np.unique(faces[part])) > VERTICES]):
        many = {id(part) for part in wide}
        halves = [half for part in parts for half in (_halves(centres, part, 1) if id(part) in many else (part,))]
        parts = halves
    order = np.concatenate(parts)
    sizes = np.array([len(part) for part in parts])
    cluster = np.repeat(np.arange(len(parts)), sizes)
    keys, corners = np.unique(cluster[:, None] * len(points) + faces[order], return_inverse=True)
    first_vertex = np.searchsorted(keys, np.arange(len(parts) + 1) * len(points))
    local = corners.reshape(-1, 3) - first_vertex[cluster][:, None]
    vertex = keys % len(points)
    first_triangle = np.concatenate([[0], np.cumsum(sizes)])
    starts = np.concatenate([first_vertex[:-1:GROUP], first_vertex[-1:]])
    whole = {
        "vertex": vertex,
        "corner": local @ [1, 1 << 8, 1 << 16],
        "face": order if ids is None else ids[order],
        "first_vertex": first_vertex,
        "first_triangle": first_triangle,
    }
    spheres = {"sphere": _spheres(points[vertex], first_vertex), "group": _spheres(points[vertex], starts)}
    return {name: values.astype(np.int32) for name, values in whole.items()} | spheres


def _split(centres: NDArray[Any], parts: list[NDArray[Any]], most: int) -> list[NDArray[Any]]:
    """Return neighbouring triangles together, in order, at most so many in a part."""
    done: list[NDArray[Any]] = []
    while parts:
        part = parts.pop()
        if len(part) <= most:
            done.append(part)
        else:
            first, second = _halves(centres, part, most)
            parts += [second, first]
    return done


def _halves(centres: NDArray[Any], part: NDArray[Any], unit: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return two parts along the longest axis, the first with `unit` elements times a power of two.

    So consecutive parts of `unit` elements that form a group are also neighbours.
    """
    values = centres[part]
    axis = int(np.ptp(values, axis=0).argmax())
    units = -(-len(part) // unit)
    count = unit << ((units - 1).bit_length() - 1)
    order = np.argsort(values[:, axis], kind="stable")
    return part[order[:count]], part[order[count:]]


def _spheres(points: NDArray[Any], first: NDArray[Any]) -> NDArray[np.float32]:
    """Return centre and radius of spheres around consecutive points, with a margin, `[part, 4]`."""
    low, high = (reduce.reduceat(points, first[:-1], axis=0) for reduce in (np.minimum, np.maximum))
    centre = (0.5 * (low + high)).astype(np.float32)
    part = np.repeat(np.arange(len(first) - 1), np.diff(first))
    radius = np.maximum.reduceat(np.linalg.norm(points - centre[part], axis=1), first[:-1])
    margin = 1e-5 * (radius + np.abs(centre).max(axis=1)) + 1e-7
    return np.concatenate([centre, (radius + margin)[:, None]], axis=1).astype(np.float32)


def triangles_of(field: HeightField) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int32]]:
    """Return vertices, triangles and faces of a height field; with a base, also of its walls and bottom (face -1)."""
    rows, columns = field.heights.shape
    x, y = np.linspace(-field.size[0], field.size[0], columns), np.linspace(-field.size[1], field.size[1], rows)
    points = np.stack(np.broadcast_arrays(x[None, :], y[:, None], field.heights), axis=-1).reshape(-1, 3)
    index = np.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = index[:-1, :-1], index[:-1, 1:], index[1:, 1:], index[1:, :-1]
    faces = np.stack([np.stack([a, b, c], -1), np.stack([a, c, d], -1)], axis=2).reshape(-1, 3)
    ids = np.arange(len(faces))
    if field.base is not None:
        rim = np.concatenate([index[0, :-1], index[:-1, -1], index[-1, :0:-1], index[:0:-1, 0]])
        foot, bottom = _bottom(points.reshape(rows, columns, 3), rim, field.base)
        low = len(points) + np.arange(len(rim))
        next_rim, next_low = np.roll(rim, -1), np.roll(low, -1)
        points, bottom = np.concatenate([points, foot]), bottom + len(points)
        walls = [np.stack([rim, low, next_low], -1), np.stack([rim, next_low, next_rim], -1)]
        faces = np.concatenate([faces, *walls, bottom])
        ids = np.concatenate([ids, np.full(len(faces) - len(ids), -1)])
    return points, faces.astype(np.int32), ids.astype(np.int32)


def _bottom(grid: NDArray[Any], rim: NDArray[Any], base: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return vertices of the bottom, those below the rim first, and its triangles.

    Each block of cells is a fan around its middle. Small blocks keep triangles short, because one that crosses the
    plane of a camera is tried at all of its pixels. Only vertices of the rim divide an edge, on both sides of it.
    """
    rows, columns, _ = grid.shape
    number = {int(vertex): i for i, vertex in enumerate(rim)}
    below = [grid.reshape(-1, 3)[vertex] for vertex in rim]
    faces = []
    cuts_v, cuts_u = (np.unique(np.linspace(0, count - 1, BLOCKS + 1).astype(int)) for count in (rows, columns))
    for v0, v1 in zip(cuts_v[:-1].tolist(), cuts_v[1:].tolist(), strict=True):
        for u0, u1 in zip(cuts_u[:-1].tolist(), cuts_u[1:].tolist(), strict=True):
            us = range(u0, u1) if v0 == 0 else (u0,)
            ring = [v0 * columns + u for u in us]
            ring += [v * columns + u1 for v in (range(v0, v1) if u1 == columns - 1 else (v0,))]
            ring += [v1 * columns + u for u in (range(u1, u0, -1) if v1 == rows - 1 else (u1,))]
            ring += [v * columns + u0 for v in (range(v1, v0, -1) if u0 == 0 else (v1,))]
            for vertex in ring:
                if vertex not in number:
                    number[vertex] = len(below)
                    below.append(grid.reshape(-1, 3)[vertex])
            middle = len(below)
            below.append(0.5 * (grid[v0, u0] + grid[v1, u1]))
            around = [number[vertex] for vertex in ring]
            faces += [(b, a, middle) for a, b in zip(around, around[1:] + around[:1], strict=True)]
    return np.array(below) * [1.0, 1.0, 0.0] - [0.0, 0.0, base], np.array(faces)
