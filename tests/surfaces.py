"""Slow search for the nearest points of surfaces: it samples surfaces in float64 and uses none of the library's
formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from reference.ray_scenes import at_world

from sensorium.geometry.shapes import HeightField, Shape
from sensorium.geometry.transforms import rotation

Array = NDArray[np.float64]
Patch = Callable[[Array, Array], Array]
"""A piece of a surface: a function from u and v, each in 0 to 1, to points."""


def patches(kind: str, size: Sequence[float]) -> list[Patch]:
    """Return the pieces of an analytic shape's surface."""

    def ball(radii: ArrayLike, shift: float = 0.0, start: float = 0.0, end: float = np.pi) -> Patch:
        def at(u: Array, v: Array) -> Array:
            polar, turn = start + (end - start) * u, 2.0 * np.pi * v
            unit = np.stack([np.sin(polar) * np.cos(turn), np.sin(polar) * np.sin(turn), np.cos(polar)], axis=-1)
            return unit * radii + np.array([0.0, 0.0, shift])

        return at

    def tube(radius: float, half: float) -> Patch:
        return lambda u, v: np.stack(
            [radius * np.cos(2 * np.pi * v), radius * np.sin(2 * np.pi * v), half * (2 * u - 1)], axis=-1
        )

    def disc(radius: float, z: float) -> Patch:
        return lambda u, v: np.stack(
            [radius * u * np.cos(2 * np.pi * v), radius * u * np.sin(2 * np.pi * v), np.full_like(u, z)], axis=-1
        )

    def face(axis: int, sign: float) -> Patch:
        def at(u: Array, v: Array) -> Array:
            points = np.empty((*u.shape, 3))
            points[..., axis] = sign * size[axis]
            for other, share in zip([i for i in range(3) if i != axis], (u, v), strict=True):
                points[..., other] = size[other] * (2.0 * share - 1.0)
            return points

        return at

    if kind == "sphere":
        return [ball(np.full(3, size[0]))]
    if kind == "ellipsoid":
        return [ball(np.array(size[:3]))]
    if kind == "capsule":
        radii = np.full(3, size[0])
        ends = [ball(radii, size[1], 0.0, np.pi / 2), ball(radii, -size[1], np.pi / 2, np.pi)]
        return [tube(size[0], size[1]), *ends]
    if kind == "cylinder":
        return [tube(size[0], size[1]), disc(size[0], size[1]), disc(size[0], -size[1])]
    if kind == "box":
        return [face(axis, sign) for axis in range(3) for sign in (-1.0, 1.0)]
    return [lambda u, v: np.stack([size[0] * (2 * u - 1), size[1] * (2 * v - 1), np.zeros_like(u)], axis=-1)]


def searched(kind: str, size: Sequence[float], p: Array, grid: int = 61, rounds: int = 22) -> Array:
    """Return the distance `[point]` to an analytic surface, found on a grid per piece that is refined repeatedly."""
    best = np.full(len(p), np.inf)
    lattice = [axis.ravel() for axis in np.meshgrid(np.linspace(0, 1, grid), np.linspace(0, 1, grid), indexing="ij")]
    fine = [axis.ravel() for axis in np.meshgrid(np.linspace(-1, 1, 9), np.linspace(-1, 1, 9), indexing="ij")]
    for patch in patches(kind, size):
        far = np.linalg.norm(p[:, None] - patch(*lattice), axis=-1)
        at = far.argmin(axis=1)
        u, v, step = lattice[0][at], lattice[1][at], 1.5 / (grid - 1)
        for _ in range(rounds):
            us = np.clip(u[:, None] + step * fine[0], 0.0, 1.0)
            vs = np.clip(v[:, None] + step * fine[1], -1.0, 2.0) if kind != "box" and kind != "plane" else np.clip(
                v[:, None] + step * fine[1], 0.0, 1.0
            )  # fmt: skip
            far = np.linalg.norm(p[:, None] - patch(us, vs), axis=-1)
            at = far.argmin(axis=1)
            rows = np.arange(len(p))
            u, v, step = us[rows, at], vs[rows, at], step * 0.5
        best = np.minimum(best, far.min(axis=1))
    return best


def to_triangles(p: Array, corners: Array) -> Array:
    """Return the distance `[point]` to triangles `[triangle, 3, 3]`: to their planes or to their edges."""
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    normal = np.cross(b - a, c - a)
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    best = np.full(len(p), np.inf)
    for i, point in enumerate(p):
        height = ((point - a) * normal).sum(axis=1)
        foot = point - height[:, None] * normal
        inside = np.ones(len(a), bool)
        for start, end in ((a, b), (b, c), (c, a)):
            inside &= (np.cross(end - start, foot - start) * normal).sum(axis=1) >= 0.0
            share = ((point - start) * (end - start)).sum(axis=1) / ((end - start) ** 2).sum(axis=1)
            near = start + np.clip(share, 0.0, 1.0)[:, None] * (end - start)
            best[i] = min(best[i], np.linalg.norm(point - near, axis=1).min())
        if inside.any():
            best[i] = min(best[i], np.abs(height[inside]).min())
    return best


def triangles_of(field: HeightField) -> Array:
    """Return all triangles of a height field, `[triangle, 3, 3]`: its surface and the other faces of its solid."""
    rows, cols = field.heights.shape
    x, y = np.linspace(-field.size[0], field.size[0], cols), np.linspace(-field.size[1], field.size[1], rows)
    grid = np.stack([*np.meshgrid(x, y), field.heights], axis=-1)
    p00, p01, p10, p11 = (part.reshape(-1, 3) for part in (grid[:-1, :-1], grid[:-1, 1:], grid[1:, :-1], grid[1:, 1:]))
    found = [np.stack([p00, p01, p11], 1), np.stack([p00, p11, p10], 1)]
    if field.base is not None:
        down = grid.copy()
        down[..., 2] = -field.base
        for top, bottom in (
            (grid[0], down[0]),
            (grid[-1], down[-1]),
            (grid[:, 0], down[:, 0]),
            (grid[:, -1], down[:, -1]),
        ):
            found += [np.stack([top[:-1], top[1:], bottom[1:]], 1), np.stack([top[:-1], bottom[1:], bottom[:-1]], 1)]
        corner = down[[0, 0, -1, -1], [0, -1, -1, 0]]
        found.append(np.stack([corner[[0, 1, 2]], corner[[0, 2, 3]]]))
    triangles = np.concatenate(found)
    area = np.linalg.norm(np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]), axis=1)
    return triangles[area > 1e-12]


def to_shape(shape: Shape, p: Array, poses: tuple[ArrayLike, ArrayLike] | None = None) -> Array:
    """Return the distance `[point]` from world points to the surface of a shape."""
    pos, quat = at_world(shape, poses)
    local = (p - pos) @ rotation(quat)
    if shape.mesh is not None:
        return to_triangles(local, (shape.mesh.vertices * np.array(shape.scale))[shape.mesh.faces])
    if shape.hfield is not None:
        return to_triangles(local, triangles_of(shape.hfield))
    if shape.kind == "plane" and 0.0 in shape.size:
        assert shape.size == (0.0, 0.0)
        return np.abs(local[:, 2])
    return searched(shape.kind, shape.size, local)
