"""Slow reference for signed distances, in float64 NumPy: brute force from first principles, without any kernel.

    reference = reference_distance(shape, points)
    reference.distance, reference.point, reference.gradient

The nearest point of a mesh is searched over all its triangles. A point is inside by its winding number, the sum of the
solid angles of all triangles as seen from the point, which does not depend on normals: A. Jacobson, L. Kavan and O.
Sorkine-Hornung, "Robust Inside-Outside Segmentation using Generalized Winding Numbers", SIGGRAPH 2013.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.ray_parts import Floats, solid_of
from reference.ray_scenes import at_world
from sensorium.geometry.shapes import HeightField, Shape
from sensorium.geometry.transforms import rotation

TOUCHING = 1e-9
"""Relative distance to the surface within which a point is on it; the gradient is then a surface normal."""
HALVINGS = 1100
"""Number of bisections that exhaust an interval of float64."""


@dataclass(frozen=True, eq=False)
class ReferenceDistance:
    """Nearest surface points of given points. Arrays are float64.

    Attributes:
        distance: `[point]`, signed, m: negative inside.
        point: `[point, 3]`, nearest point of the surface, m, world; any one of several equally near points.
        gradient: `[point, 3]`, unit, world: away from the solid, both outside and inside; on the surface a normal.
    """

    distance: Floats
    point: Floats
    gradient: Floats


def reference_distance(
    shape: Shape, points: ArrayLike, poses: tuple[ArrayLike, ArrayLike] | None = None
) -> ReferenceDistance:
    """Return signed distances of points to a shape.

    The region below a plane, whatever its size, and below a height field without a base within its extent, is inside.

    Args:
        shape: of any kind; a mesh must be closed, with triangles oriented either way.
        points: `[point, 3]`, m, world.
        poses: positions `[body, 3]`, m, and unit quaternions (w, x, y, z) `[body, 4]` of the bodies.

    Raises:
        ModelError: the shape's body is not resolved yet.
        ValueError: the shape moves with a body without a pose.
    """
    pos, quat = at_world(shape, poses)
    turn = rotation(quat)
    p = (np.asarray(points, float).reshape(-1, 3) - pos) @ turn
    if shape.mesh is not None:
        corners = (shape.mesh.vertices * np.array(shape.scale))[shape.mesh.faces]
        foot, normal = nearest_on_triangles(p, corners)
        inside = np.abs(winding_number(p, corners)) > 0.5
    elif shape.hfield is not None:
        vertices, faces, _ids = solid_of(shape.hfield)
        corners = vertices[faces]
        area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
        corners = corners[area > 0.0]
        foot, normal = nearest_on_triangles(p, corners)
        inside = _below(shape.hfield, p)
        if shape.hfield.base is not None:
            inside = np.abs(winding_number(p, corners)) > 0.5
    else:
        foot, normal, inside = _analytic(shape.kind, np.array([*shape.size, 0.0, 0.0, 0.0])[:3], p)
    arm = p - foot
    length = np.linalg.norm(arm, axis=1)
    side = np.where(inside, -1.0, 1.0)
    touches = length <= TOUCHING * np.linalg.norm(p, axis=1)
    gradient = np.where(touches[:, None], normal, side[:, None] * arm / np.where(touches, 1.0, length)[:, None])
    return ReferenceDistance(side * length, pos + foot @ turn.T, gradient @ turn.T)


def nearest_on_triangles(points: ArrayLike, corners: ArrayLike) -> tuple[Floats, Floats]:
    """Return the nearest points `[point, 3]` on triangles, and the unit normals of those triangles.

    Args:
        points: `[point, 3]`, m.
        corners: `[triangle, 3, 3]`, m; each with an area.
    """
    p = np.asarray(points, float)
    best, foot, normal = np.full(len(p), np.inf), np.zeros_like(p), np.zeros_like(p)

    def offer(place: Floats, rows: NDArray[np.int64], unit: Floats) -> None:
        far = ((p[rows] - place) ** 2).sum(axis=1)
        better = far < best[rows]
        chosen = rows[better]
        best[chosen], foot[chosen], normal[chosen] = far[better], place[better], unit

    for triangle in np.asarray(corners, float):
        unit = np.cross(triangle[1] - triangle[0], triangle[2] - triangle[0])
        unit /= np.linalg.norm(unit)
        height = (p - triangle[0]) @ unit
        rows = np.flatnonzero(height**2 < best)
        over = p[rows] - height[rows, None] * unit
        within = np.ones(len(rows), dtype=bool)
        for k in range(3):
            start, along = triangle[k], triangle[(k + 1) % 3] - triangle[k]
            beyond = (over - start) @ np.cross(unit, along) < 0.0
            within &= ~beyond
            share = np.clip((over[beyond] - start) @ along / (along @ along), 0.0, 1.0)
            offer(start + share[:, None] * along, rows[beyond], unit)
        offer(over[within], rows[within], unit)
    return foot, normal


def winding_number(points: ArrayLike, corners: ArrayLike) -> Floats:
    """Return the winding number of triangles around points, `[point]`: 1 inside a closed surface, 0 outside.

    The solid angle of a triangle follows A. van Oosterom and J. Strackee, IEEE Trans. Biomed. Eng. 30 (1983).

    Args:
        points: `[point, 3]`, m.
        corners: `[triangle, 3, 3]`, m, oriented outwards; the result is -1 inside if they are oriented inwards.
    """
    p = np.asarray(points, float)
    total = np.zeros(len(p))
    for triangle in np.asarray(corners, float):
        a, b, c = (corner - p for corner in triangle)
        la, lb, lc = (np.sqrt((side * side).sum(axis=1)) for side in (a, b, c))
        volume = a[:, 0] * (b[:, 1] * c[:, 2] - b[:, 2] * c[:, 1])
        volume += a[:, 1] * (b[:, 2] * c[:, 0] - b[:, 0] * c[:, 2]) + a[:, 2] * (b[:, 0] * c[:, 1] - b[:, 1] * c[:, 0])
        rest = la * lb * lc + (a * b).sum(axis=1) * lc + (b * c).sum(axis=1) * la + (c * a).sum(axis=1) * lb
        total += 2.0 * np.arctan2(volume, rest)
    return total / (4.0 * np.pi)


def _below(hfield: HeightField, p: Floats) -> NDArray[np.bool_]:
    """Return which points are below the surface, within its extent."""
    rows, columns = hfield.heights.shape
    u = (p[:, 0] + hfield.size[0]) * (columns - 1) / (2.0 * hfield.size[0])
    v = (p[:, 1] + hfield.size[1]) * (rows - 1) / (2.0 * hfield.size[1])
    within = (u >= 0.0) & (v >= 0.0) & (u <= columns - 1) & (v <= rows - 1)
    col, row = (np.clip(np.floor(x), 0, n - 2).astype(int) for x, n in ((u, columns), (v, rows)))
    a, b, z = u - col, v - row, hfield.heights
    low, high = z[row, col], z[row + 1, col + 1]
    right = low + a * (z[row, col + 1] - low) + b * (high - z[row, col + 1])
    left = low + b * (z[row + 1, col] - low) + a * (high - z[row + 1, col])
    below: NDArray[np.bool_] = within & (p[:, 2] < np.where(a >= b, right, left))
    return below


def _unit(vectors: Floats) -> Floats:
    """Return vectors normalised to length 1; the x axis for zero vectors."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(length > 0.0, vectors / np.where(length > 0.0, length, 1.0), [1.0, 0.0, 0.0])


def _analytic(kind: str, size: Floats, p: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return the nearest points of an analytic shape, the normals there, and which points are inside."""
    if kind in ("sphere", "capsule"):
        half = size[1] if kind == "capsule" else 0.0
        axis = np.clip(p, [0.0, 0.0, -half], [0.0, 0.0, half])
        out = _unit(p - axis)
        return axis + size[0] * out, out, ((p - axis) ** 2).sum(axis=1) < size[0] ** 2
    if kind == "ellipsoid":
        foot = _on_ellipsoid(size, p)
        return foot, _unit(foot / size**2), ((p / size) ** 2).sum(axis=1) < 1.0
    if kind == "plane":
        below: NDArray[np.bool_] = p[:, 2] < 0.0
        return p * [1.0, 1.0, 0.0], np.broadcast_to([0.0, 0.0, 1.0], p.shape), below
    if kind == "cylinder":
        around = _unit(p * [1.0, 1.0, 0.0])
        flat = np.stack([np.hypot(p[:, 0], p[:, 1]), p[:, 2]], axis=1)
        foot2, normal2, inside = _on_box(np.array([size[0], size[1]]), flat)
        foot = foot2[:, :1] * around + foot2[:, 1:] * [0.0, 0.0, 1.0]
        return foot, normal2[:, :1] * around + normal2[:, 1:] * [0.0, 0.0, 1.0], inside
    return _on_box(size, p)


def _on_box(size: Floats, p: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return the same for a box of any number of axes."""
    foot = np.clip(p, -size, size)
    room = size - np.abs(p)
    inside: NDArray[np.bool_] = np.all(room > 0.0, axis=1)
    rows, axis = np.arange(len(p)), room.argmin(axis=1)
    normal = np.zeros_like(p)
    normal[rows, axis] = np.where(p[rows, axis] < 0.0, -1.0, 1.0)
    out = normal[rows, axis] * size[axis]
    foot[rows[inside], axis[inside]] = out[inside]
    return foot, normal, inside


def _on_ellipsoid(radii: Floats, p: Floats) -> Floats:
    """Return the nearest points of an ellipsoid.

    They are x_i = r_i^2 p_i / (s + r_i^2 - m^2), where m is the least radius and s >= 0 puts them on the surface: D.
    Eberly, "Distance from a Point to an Ellipse, an Ellipsoid, or a Hyperellipsoid". s is found by bisection; if even
    s = 0 leaves them inside, the remainder is along the shortest axis.
    """
    lift = radii**2 - radii.min() ** 2
    q = radii * np.abs(p)
    low, high = np.zeros(len(p)), np.linalg.norm(q, axis=1)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        with np.errstate(divide="ignore", invalid="ignore"):
            u = np.where(q > 0.0, q / (middle[:, None] + lift), 0.0)
            outside = (u * u).sum(axis=1) > 1.0
        low, high = np.where(outside, middle, low), np.where(outside, high, middle)
        if (np.nextafter(low, np.inf) >= high).all():
            break
    with np.errstate(divide="ignore", invalid="ignore"):
        u = np.where(q > 0.0, q / (high[:, None] + lift), 0.0)
    short = int(radii.argmin())
    rest = np.sqrt(np.maximum(1.0 - (np.delete(u, short, axis=1) ** 2).sum(axis=1), 0.0))
    u[:, short] = np.where((q[:, short] == 0.0) & (high < 1e-300), rest, u[:, short])
    foot: Floats = radii * u * np.where(p < 0.0, -1.0, 1.0)
    return foot
