"""Closed meshes for tests of signed distances: convex and concave, with cavities, sharp edges and several parts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from sensorium.geometry.bounds import box_mesh
from sensorium.geometry.shapes import Mesh

Array = NDArray[np.float64]
Faces = NDArray[np.int64]


def single(values: Array) -> Array:
    """Return the numbers rounded to float32."""
    return np.asarray(values).astype(np.float32).astype(np.float64)


def icosphere(splits: int) -> tuple[Array, Faces]:
    """Return a unit ball of 20 * 4^splits triangles."""
    t = 0.5 * (1.0 + np.sqrt(5.0))
    points = np.array([[s, r * t, 0.0] for r in (1, -1) for s in (-1, 1)])
    points = np.concatenate([np.roll(points, k, axis=1) for k in range(3)])
    hull = ConvexHull(points)
    faces = _outwards(points, hull.simplices)
    for _ in range(splits):
        edges = np.sort(np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]), axis=1)
        ends, row = np.unique(edges, axis=0, return_inverse=True)
        middle = len(points) + row.reshape(3, -1)
        points = np.concatenate([points, points[ends].mean(axis=1)])
        a, b, c = faces.T
        ab, bc, ca = middle
        faces = np.concatenate(
            [np.stack(part, axis=1) for part in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))]
        )
    return points / np.linalg.norm(points, axis=1, keepdims=True), faces


def _outwards(points: Array, faces: Faces) -> Faces:
    """Orient the faces of a convex mesh around the origin outwards."""
    corners = points[faces]
    volume = (corners[:, 0] * np.cross(corners[:, 1], corners[:, 2])).sum(axis=1)
    return np.where(volume[:, None] < 0.0, faces[:, ::-1], faces).astype(np.int64)


def hull(rng: np.random.Generator, count: int = 40) -> Mesh:
    """Return the convex hull of random points, stretched at random."""
    points = rng.normal(size=(count, 3))
    points = points / np.linalg.norm(points, axis=1, keepdims=True) ** rng.uniform(0.0, 1.0)
    points = single((points - points.mean(axis=0)) * rng.uniform(0.1, 1.0, 3))
    return Mesh(points, _outwards(points, ConvexHull(points).simplices), "hull")


def bumpy(rng: np.random.Generator, splits: int = 2) -> Mesh:
    """Return a star-shaped ball of random radii, with ridges and dents."""
    points, faces = icosphere(splits)
    return Mesh(single(points * rng.uniform(0.6, 1.0, (len(points), 1))), faces, "bumpy")


def torus(around: int = 24, across: int = 10, thickness: float = 0.3) -> Mesh:
    """Return a ring of radius 1 about z."""
    u, v = np.meshgrid(2 * np.pi * np.arange(around) / around, 2 * np.pi * np.arange(across) / across, indexing="ij")
    radius = 1.0 + thickness * np.cos(v)
    points = np.stack([radius * np.cos(u), radius * np.sin(u), thickness * np.sin(v)], axis=-1).reshape(-1, 3)
    index = np.arange(around * across).reshape(around, across)
    right = np.roll(index, -1, axis=0)
    faces = [
        np.stack([index, right, np.roll(right, -1, 1)], -1),
        np.stack([index, np.roll(right, -1, 1), np.roll(index, -1, 1)], -1),
    ]
    return Mesh(single(points), np.concatenate([part.reshape(-1, 3) for part in faces]), "torus")


def joined(*meshes: Mesh, name: str = "joined") -> Mesh:
    """Return several meshes as a single mesh."""
    starts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes)])
    faces = [mesh.faces + start for mesh, start in zip(meshes, starts[:-1], strict=True)]
    return Mesh(np.concatenate([mesh.vertices for mesh in meshes]), np.concatenate(faces), name)


def turned(mesh: Mesh) -> Mesh:
    """Return the mesh with its triangle winding reversed."""
    return Mesh(mesh.vertices, mesh.faces[:, ::-1], mesh.name)


def moved(mesh: Mesh, shift: object = 0.0, size: object = 1.0) -> Mesh:
    """Return the mesh scaled, then shifted."""
    return Mesh(single(mesh.vertices * np.asarray(size) + np.asarray(shift)), mesh.faces, mesh.name)


def two_parts(rng: np.random.Generator) -> Mesh:
    """Return two bodies that do not touch."""
    return joined(
        moved(bumpy(rng, 1), (-0.7, 0.0, 0.1), 0.5), moved(torus(12, 6), (0.8, 0.2, 0.0), 0.5), name="two parts"
    )


def hollow(rng: np.random.Generator) -> Mesh:
    """Return a body with a cavity that contains another body."""
    inner = moved(torus(12, 6), (0.05, 0.0, 0.0), (0.18, 0.18, 0.09))
    return joined(bumpy(rng, 2), turned(moved(box_mesh((1.0, 1.0, 1.0)), 0.0, (0.3, 0.3, 0.2))), inner, name="hollow")


def fins(count: int = 7, inner: float = 0.1, height: float = 0.4) -> Mesh:
    """Return a star of sharp blades around z, whose faces form an angle of a few degrees at the tips."""
    turn = np.pi * np.arange(2 * count) / count
    radius = np.where(np.arange(2 * count) % 2 == 0, 1.0, inner)
    outline = np.stack([radius * np.cos(turn), radius * np.sin(turn)], axis=1)
    n = len(outline)
    points = np.concatenate(
        [np.c_[outline, np.full(n, -height)], np.c_[outline, np.full(n, height)], [[0, 0, -height], [0, 0, height]]]
    )
    k, after = np.arange(n), (np.arange(n) + 1) % n
    sides = [np.stack([k, after, after + n], -1), np.stack([k, after + n, k + n], -1)]
    caps = [np.stack([np.full(n, 2 * n), after, k], -1), np.stack([np.full(n, 2 * n + 1), k + n, after + n], -1)]
    return Mesh(single(points), np.concatenate([*sides, *caps]), "fins")


def blade(thickness: float = 0.02) -> Mesh:
    """Return a wedge along z whose faces form an angle of about a degree."""
    outline = np.array([[0.0, 0.0], [1.0, -0.5 * thickness], [1.0, 0.5 * thickness]])
    points = np.concatenate([np.c_[outline, np.full(3, -0.5)], np.c_[outline, np.full(3, 0.5)]])
    faces = [[0, 2, 1], [3, 4, 5], [0, 1, 4], [0, 4, 3], [1, 2, 5], [1, 5, 4], [2, 0, 3], [2, 3, 5]]
    return Mesh(single(points), faces, "blade")


def closed_meshes(seed: int = 0) -> dict[str, Mesh]:
    """Return one mesh of each kind."""
    rng = np.random.default_rng(seed)
    return {
        "hull": hull(rng), "bumpy": bumpy(rng), "torus": torus(), "two parts": two_parts(rng), "hollow": hollow(rng),
        "fins": fins(), "blade": blade(),
    }  # fmt: skip


def places_around(mesh: Mesh, count: int, rng: np.random.Generator) -> Array:
    """Return points near faces, edges and corners of a mesh at all scales, in its bounding box, and farther away."""
    corners = mesh.vertices[mesh.faces]
    extent = float(np.ptp(corners.reshape(-1, 3), axis=0).max())
    part = count // 4
    weights = rng.dirichlet(np.ones(3), 2 * part)
    weights[part:, 2] = 0.0  # on edges
    weights[part + part // 2 :, 1] = 0.0  # on corners
    weights /= weights.sum(axis=1, keepdims=True)
    at = (weights[:, :, None] * corners[rng.integers(0, len(corners), 2 * part)]).sum(axis=1)
    away = rng.normal(size=(2 * part, 3))
    away *= (10.0 ** rng.uniform(-5.0, -0.5, 2 * part) * extent / np.linalg.norm(away, axis=1))[:, None]
    low, high = corners.min(axis=(0, 1)), corners.max(axis=(0, 1))
    box = rng.uniform(low - 0.15 * extent, high + 0.15 * extent, (part, 3))
    wide = 0.5 * (low + high) + rng.normal(size=(count - 3 * part, 3)) * extent
    return single(np.concatenate([at + away, box, wide]))
