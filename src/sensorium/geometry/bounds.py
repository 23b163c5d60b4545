"""Rotations and bounds of shapes, and trees of triangles, on the host; preparation for ray casts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from sensorium.geometry.shapes import Mesh, Shape
from sensorium.geometry.transforms import rotation


def tree_of(points: NDArray[Any], faces: NDArray[Any], device: str) -> wp.Mesh:
    """Return triangles as a `wp.Mesh`."""
    tree: wp.Mesh = wp.Mesh(
        wp.array(points.astype(np.float32), dtype=wp.vec3, device=device),
        wp.array(faces.reshape(-1).astype(np.int32), dtype=wp.int32, device=device),
        bvh_constructor="sah",
        bvh_leaf_size=2,
    )
    return tree


BOX_MARGIN = 1e-5
"""Margin of the boxes around triangles for rays, relative to the size of all triangles together."""


def ray_tree_of(points: NDArray[Any], faces: NDArray[Any], device: str) -> wp.Mesh:
    """Return triangles as a `wp.Mesh` without leaks: rays pass only through gaps between triangles.

    Warp tests boxes in float32 without a margin, so a ray along the border of a box, through a vertex or an edge, may
    miss the box and the triangles in it. The tree is therefore built around triangles that fill boxes with a margin.
    Then vertices and indices get their values. Warp refits a tree only on demand.
    """
    points = points.astype(np.float32)
    if len(points) > 3 * len(faces):  # most are unused
        used, faces = np.unique(faces, return_inverse=True)
        points, faces = points[used], faces.reshape(-1, 3)
    low, high = points[faces].min(axis=1), points[faces].max(axis=1)
    size, reach = float((high.max(axis=0) - low.min(axis=0)).max()), float(np.abs([low, high]).max())
    margin = np.float32(max(BOX_MARGIN * size, 1e-6 * reach))
    corners = np.stack([low - margin, high + margin, 0.5 * (low + high)], axis=1).reshape(-1, 3)
    tree = tree_of(corners, np.arange(3 * len(faces)), device)
    corners[: len(points)] = points
    tree.points.assign(corners)
    tree.indices.assign(faces.reshape(-1).astype(np.int32))
    return tree


def in_world(shape: Shape, points: NDArray[Any]) -> NDArray[np.float64]:
    """Return points `[point, 3]` in the frame of a static shape, converted to the world."""
    world: NDArray[np.float64] = points @ rotation(shape.quat).T + np.array(shape.pos)
    return world


def is_upright(quat: Sequence[float]) -> bool:
    """Return whether a frame's z axis is that of the world."""
    return bool(rotation(quat)[2, 2] > 1.0 - 1e-12)


def bounding_box(shape: Shape) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the minimum and maximum corner around a bounded static shape, in the world, with a margin."""
    centre, half = local_box(shape)
    reach = np.abs(rotation(shape.quat)) @ half
    middle = in_world(shape, centre[None])[0]
    margin = 1e-5 * (np.abs(middle) + reach) + 1e-6
    return middle - reach - margin, middle + reach + margin


def local_box(shape: Shape) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return centre and half extent of a box around a bounded shape, in its own frame."""
    if shape.mesh is not None:
        used = shape.mesh.vertices[np.unique(shape.mesh.faces)] * np.array(shape.scale)
        low, high = used.min(axis=0), used.max(axis=0)
    elif shape.hfield is not None:
        z = shape.hfield.heights
        floor = float(z.min()) if shape.hfield.base is None else -shape.hfield.base
        low, high = np.array([*(-s for s in shape.hfield.size), floor]), np.array([*shape.hfield.size, float(z.max())])
    else:
        a, *more = shape.size
        half: tuple[float, ...] = shape.size[:3]  # a box, an ellipsoid
        if shape.kind == "sphere":
            half = (a, a, a)
        elif shape.kind == "capsule":
            half = (a, a, a + more[0])
        elif shape.kind == "cylinder":
            half = (a, a, more[0])
        elif shape.kind == "plane":
            half = (a or np.inf, more[0] or np.inf, 0.0)
        high = np.array(half, dtype=np.float64)
        low = -high
    if not np.isfinite(high).all():
        return np.zeros(3), high
    return 0.5 * (low + high), 0.5 * (high - low)


def placed_box(
    shape: Shape, turn: NDArray[np.float64], pos: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the minimum and maximum corner of the tightest box around a bounded shape, along another frame's axes.

    Args:
        shape: the shape; its own pose is ignored.
        turn: rotation matrix of the shape's frame in the other frame, [3, 3].
        pos: origin of the shape's frame in the other frame, m.
    """
    if shape.mesh is not None:
        used = shape.mesh.vertices[np.unique(shape.mesh.faces)] * np.array(shape.scale)
        corners = used @ turn.T
        return corners.min(axis=0) + pos, corners.max(axis=0) + pos
    centre, half = local_box(shape)
    if shape.kind == "ellipsoid":
        reach = np.linalg.norm(turn * half, axis=1)
    elif shape.kind == "sphere":
        reach = half
    elif shape.kind in ("capsule", "cylinder"):
        radius, length = shape.size[:2]
        along = np.abs(turn[:, 2])
        disc = 1.0 if shape.kind == "capsule" else np.sqrt(np.clip(1.0 - along**2, 0.0, 1.0))
        reach = along * length + radius * disc
    else:
        reach = np.abs(turn) @ half
    middle = turn @ centre + pos
    return middle - reach, middle + reach


def bounding_sphere(shape: Shape) -> tuple[tuple[float, float, float], float]:
    """Return centre (in the shape's frame) and radius of a sphere around a shape, with a margin; 1e30 if unbounded."""
    centre, half = local_box(shape)
    if shape.mesh is not None:
        used = shape.mesh.vertices[np.unique(shape.mesh.faces)] * np.array(shape.scale)
        radius = float(np.linalg.norm(used - centre, axis=1).max())
    elif shape.kind in ("sphere", "ellipsoid"):
        radius = float(half.max())
    elif shape.kind == "capsule":
        radius = float(half[2])
    else:
        radius = float(np.linalg.norm(half))
    x, y, z = centre.tolist()
    return (x, y, z), 1e30 if not np.isfinite(radius) else radius * (1.0 + 1e-4) + 1e-6


def box_mesh(size: Sequence[float]) -> Mesh:
    """Return the twelve triangles of a box, oriented outwards."""
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=np.float64)
    faces = [
        [0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
        [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3],
    ]  # fmt: skip
    return Mesh(corners * np.array(size[:3]), faces, "box")
