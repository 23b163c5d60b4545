"""Closed triangle meshes as solids, on the host: test for being closed, orientation, and normals of features.

The sign of a distance to a mesh is that of the vector from the nearest point, along the normal there. On an edge that
normal is the sum of the normals of its triangles, at a vertex the sum weighted by their angles: J. A. Baerentzen and H.
Aanaes, "Signed Distance Computation Using the Angle Weighted Pseudonormal", IEEE TVCG 11 (2005). The normal of a single
triangle would give the wrong side at sharp edges.

A mesh may have several closed parts, beside each other or in cavities of each other. Parts must not overlap: a point in
one of them that is nearest to the surface of another would count as outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sensorium.errors import ModelError, listed
from sensorium.geometry.samples import winding
from sensorium.geometry.shapes import Mesh

WELD = 1e-6
"""Distance below which vertices are merged if a mesh is otherwise open, relative to its extent."""
MAX_PAIRS = 1 << 24
"""Maximum product of open edges and their vertices for the search of vertices on edges; beyond it the mesh is open."""
TOLD = 3
"""Number of edges of each kind in a message."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class SolidSurface:
    """A closed surface, oriented outwards, with its data for kernels. Float64, m, relative to `centre`.

    Attributes:
        centre: centre of its bounding box, in the mesh's frame.
        half: half the sides of that box.
        vertices: `[vertex, 3]`, without duplicates.
        faces: `[face, 3]`.
        vertex_normals: `[vertex, 3]`, unit, as are those of edges and faces.
        edge_normals: `[face, 3, 3]`: of the edges from corner 0 to 1, 1 to 2, and 2 to 0.
        face_normals: `[face, 3]`.
    """

    centre: Floats
    half: Floats
    vertices: Floats
    faces: Ints
    vertex_normals: Floats
    edge_normals: Floats
    face_normals: Floats


def surface_of(mesh: Mesh, scale: tuple[float, ...] = (1.0, 1.0, 1.0)) -> SolidSurface:
    """Return a mesh, scaled, as a closed surface that is oriented outwards.

    A closed part that is oriented inwards is a cavity if other parts surround it; otherwise it is reversed.

    Args:
        mesh: the triangles.
        scale: factors along its axes, all positive.

    Raises:
        ModelError: the mesh is not closed: edges have a single triangle, triangles of opposite orientation, or an odd
            number of them; the message gives their number and the first ones. Corners at the same position are one
            vertex, and a vertex on the edge of another triangle splits that edge.
    """
    points, faces = _closed(mesh)
    points = points * np.array(scale)
    low, high = points.min(axis=0), points.max(axis=0)
    centre = 0.5 * (low + high)
    points = points - centre
    faces = _outwards(points, faces)
    corners = points[faces]
    sides = np.roll(corners, -1, axis=1) - corners
    normals = np.cross(sides[:, 0], sides[:, 1])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    back = -np.roll(sides, 1, axis=1)
    angles = np.arctan2(np.linalg.norm(np.cross(sides, back), axis=-1), (sides * back).sum(axis=-1))
    at_vertices = np.zeros_like(points)
    for k in range(3):
        np.add.at(at_vertices, faces[:, k], angles[:, k, None] * normals)
    _edges, edge_of = np.unique(_undirected(faces), return_inverse=True)
    at_edges = np.zeros((len(_edges), 3))
    np.add.at(at_edges, edge_of.reshape(-1), np.repeat(normals, 3, axis=0))
    return SolidSurface(
        centre,
        0.5 * (high - low),
        points,
        faces,
        _unit(at_vertices),
        _unit(at_edges)[edge_of.reshape(-1, 3)],
        normals,
    )


def _unit(vectors: Floats) -> Floats:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    out: Floats = np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0.0)
    return out


def _closed(mesh: Mesh) -> tuple[Floats, Ints]:
    """Return points and faces of a mesh without repeated vertices, or raise."""
    points, faces, rows = _welded(mesh)
    edges, count, _run, first = _faulty(faces)
    if not len(edges):
        return points, faces
    total = len(np.unique(_undirected(faces)))
    parts = []
    kinds = (
        ("open, with one triangle only", count == 1),
        ("between triangles of opposite orientation", (count > 1) & (count % 2 == 0)),
        ("shared by an odd number of triangles", (count > 1) & (count % 2 == 1)),
    )
    for what, chosen in kinds:
        if chosen.any():
            where = [
                f"{_place(points[a])} to {_place(points[b])} of triangle {mesh.face_ids[rows[face]]}"
                for (a, b), face in zip(edges[chosen][:TOLD], first[chosen][:TOLD], strict=True)
            ]
            more = int(chosen.sum()) - len(where)
            parts.append(
                f"{chosen.sum()} of {total} edges are {what}: {listed(where)}" + (f", and {more} more" if more else "")
            )
    raise ModelError(
        f"mesh {mesh.name!r}: a signed distance needs a closed surface with consistently oriented triangles. "
        f"{'; '.join(parts)} (m, in the mesh's frame). Close it, use its convex hull or a primitive, or exclude "
        "the shape."
    )


def _place(point: Floats) -> str:
    return f"({', '.join(f'{value:.6g}' for value in point)})"


def _welded(mesh: Mesh) -> tuple[Floats, Ints, Ints]:
    """Return points and faces with one row per position, and the row of each face in the mesh's faces."""
    used, corners = np.unique(mesh.faces, return_inverse=True)
    points = mesh.vertices[used] + 0.0
    faces = corners.reshape(-1, 3).astype(np.int64)
    rows = np.arange(len(faces))
    points, places = np.unique(points, axis=0, return_inverse=True)
    faces = places.reshape(-1)[faces]
    if len(_faulty(faces)[0]):
        step = WELD * float(np.ptp(points, axis=0).max())
        label = _clusters(points, step)
        kept, label = np.unique(label, return_inverse=True)
        points, faces = points[kept], label.reshape(-1)[faces]
        whole = (faces != np.roll(faces, 1, axis=1)).all(axis=1)
        faces, rows = faces[whole], rows[whole]
        split, rows_of_split = _split(points, faces, rows, step)
        if not len(_faulty(split)[0]):
            faces, rows = split, rows_of_split
    return points, faces, rows


def _split(points: Floats, faces: Ints, rows: Ints, step: float) -> tuple[Ints, Ints]:
    """Return faces and their rows, after splitting those with a vertex of an open edge on an open edge."""
    while True:
        edges, _count, _run, first = _faulty(faces)
        ends = np.unique(edges)
        if len(edges) * len(ends) > MAX_PAIRS:
            return faces, rows
        start, way = points[edges[:, 0]], points[edges[:, 1]] - points[edges[:, 0]]
        length = np.linalg.norm(way, axis=1)
        arm = points[ends] - start[:, None]
        along = (arm * (way / length[:, None])[:, None]).sum(axis=-1)
        beside = np.linalg.norm(arm - along[..., None] * (way / length[:, None])[:, None], axis=-1)
        on = (beside <= step) & (along > step) & (along < length[:, None] - step)
        chosen = np.flatnonzero(on.any(axis=1))
        chosen = chosen[np.unique(first[chosen], return_index=True)[1]]  # one edge of a triangle at a time
        if not len(chosen):
            return faces, rows
        face, vertex = first[chosen], ends[on[chosen].argmax(axis=1)]
        side = (np.sort(edges[chosen], axis=1)[:, None] == _sides(faces[face])).all(axis=-1).argmax(axis=1)
        one, other = faces[face], faces[face]
        one[np.arange(len(face)), (side + 1) % 3] = vertex
        other[np.arange(len(face)), side] = vertex
        faces, rows = np.concatenate([faces, other]), np.concatenate([rows, rows[face]])
        faces[face] = one


def _sides(faces: Ints) -> Ints:
    """Return the lesser and the greater vertex of each side `[face, 3, 2]`."""
    sides: Ints = np.sort(np.stack([faces, np.roll(faces, -1, axis=1)], axis=-1), axis=-1)
    return sides


def _clusters(points: Floats, step: float) -> Ints:
    """Return for each point the first one it is merged with: in the same cell of a grid, or of a shifted one."""
    cells = [np.floor(points / step + shift).astype(np.int64) for shift in (0.0, 0.5)]
    firsts = []
    for choice in np.ndindex(2, 2, 2):
        keys = np.stack([cells[choice[axis]][:, axis] for axis in range(3)], axis=1)
        _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        firsts.append(first[group.reshape(-1)])
    return connected(len(points), np.tile(np.arange(len(points)), 8), np.concatenate(firsts))


def connected(count: int, one: NDArray[Any], other: NDArray[Any]) -> Ints:
    """Return for each item the least item that it is connected with, given connected pairs."""
    label = np.arange(count)
    while True:
        low = np.minimum(label[one], label[other])
        new = label.copy()
        np.minimum.at(new, one, low)
        np.minimum.at(new, other, low)
        new = new[new]
        if np.array_equal(new, label):
            return label
        label = new


def _undirected(faces: Ints) -> Ints:
    """Return a number of each edge `[3 * face]`, the same for both directions."""
    a, b = faces.reshape(-1), np.roll(faces, -1, axis=1).reshape(-1)
    keys: Ints = np.minimum(a, b) * (int(faces.max()) + 1) + np.maximum(a, b)
    return keys


def _faulty(faces: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return edges that are not traversed equally often both ways: ends, triangles, difference, first triangle."""
    a, b = faces.reshape(-1), np.roll(faces, -1, axis=1).reshape(-1)
    _keys, first, edge_of, count = np.unique(
        _undirected(faces), return_index=True, return_inverse=True, return_counts=True
    )
    run = np.zeros(len(count), dtype=np.int64)
    np.add.at(run, edge_of.reshape(-1), np.where(a < b, 1, -1))
    bad = np.flatnonzero(run)
    return np.stack([a[first[bad]], b[first[bad]]], axis=1), count[bad], run[bad], first[bad] // 3


def _outwards(points: Floats, faces: Ints) -> Ints:
    """Return the faces, with closed parts reversed that are oriented inwards and are not cavities."""
    corners = points[faces]
    volumes = (corners[:, 0] * np.cross(corners[:, 1], corners[:, 2])).sum(axis=1)
    if volumes.sum() < 0.0:
        faces, volumes = faces[:, ::-1], -volumes
        corners = corners[:, ::-1]
    vertex_part = connected(len(points), faces[:, :2].ravel(), faces[:, 1:].ravel())
    names, part = np.unique(vertex_part[faces[:, 0]], return_inverse=True)
    part = part.reshape(-1)
    volume = np.bincount(part, weights=volumes, minlength=len(names))
    turned = np.zeros(len(names), dtype=bool)
    solid = volume[part] > 0.0
    for name in np.flatnonzero(volume < 0.0):
        inside = corners[part == name][:1].mean(axis=1)
        turned[name] = winding(corners[solid], inside)[0] == 0
    return np.ascontiguousarray(np.where(turned[part][:, None], faces[:, ::-1], faces))
