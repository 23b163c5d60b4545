"""Surfaces as clouds of points, each with an area and a small grid, for sums over the points near a position.

Each shape has a cloud and a grid in its own frame, shared by all environments. A cell of the grid lists all points
within reach of any position in it, so that a query reads one list.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import warp as wp
from numpy.typing import NDArray

from sensorium.geometry.samples import SurfaceSamples
from sensorium.geometry.shapes import Shape
from sensorium.geometry.transforms import rotation

Array = NDArray[np.float64]

CELLS = 64
"""Maximum number of cells of a grid per point; the cells are enlarged to reach it."""
ENTRIES = 4_000_000
"""Maximum total number of list entries of a cloud, or twice its number of points if that is more."""
COARSER = 1.25
"""Factor by which the side of a cell is enlarged."""


@wp.struct
class Clouds:
    """The clouds of all shapes that a sensor tracks, by instance rows.

    Attributes:
        points: position in the shape's frame, m, and area, m2, of the points that each cell lists, cell by cell.
        start: index of the first entry of each cell, x fastest, and after the last cell of a shape its end.
        first: index in `start` of the first cell of each shape; -1 for an unbounded plane, which has no points.
        low: minimum corner of each grid, m.
        pace: cells per metre of each grid.
        size: number of cells of each grid along its axes.
    """

    points: wp.array[wp.vec4]
    start: wp.array[wp.int32]
    first: wp.array[wp.int32]
    low: wp.array[wp.vec3]
    pace: wp.array[wp.float32]
    size: wp.array[wp.vec3i]


@dataclass(frozen=True, slots=True)
class FiledClouds:
    """Clouds with their host data.

    Attributes:
        clouds: for kernels.
        nbytes: bytes of their memory.
    """

    clouds: Clouds
    nbytes: int


def file_clouds(samples: Sequence[SurfaceSamples | None], reach: float, device: str) -> FiledClouds:
    """Return clouds with their grids.

    Args:
        samples: points of each shape in its frame; None for an unbounded plane.
        reach: maximum distance of a query, m.
        device: device of the arrays.
    """
    points, starts, first, low, pace, size = [np.zeros((0, 4))], [np.zeros(0, np.int64)], [], [], [], []
    total, entries = 0, 0
    for each in samples:
        if each is None or not len(each):  # a shape with only covered points has one empty, distant cell
            first.append(-1 if each is None else entries)
            low.append(np.full(3, np.inf))
            pace.append(1.0)
            size.append((1, 1, 1))
            if each is not None:
                starts.append(np.array([total, total]))
                entries += 2
            continue
        corner, side, count = _grid(each.points, reach)
        listed, ends = _lists(each.points, corner, side, count, reach)
        points.append(np.concatenate([each.points, each.areas[:, None]], axis=1)[listed])
        starts.append(total + np.concatenate([[0], ends]))
        first.append(entries)
        low.append(corner)
        pace.append(1.0 / side)
        size.append(tuple(count.tolist()))
        total, entries = total + len(listed), entries + len(ends) + 1
    out = Clouds()
    out.points = wp.array(np.concatenate(points).astype(np.float32), dtype=wp.vec4, device=device)
    out.start = wp.array(np.concatenate(starts).astype(np.int32), dtype=wp.int32, device=device)
    out.first = wp.array(np.array(first, np.int32), dtype=wp.int32, device=device)
    out.low = wp.array(np.array(low, np.float32).reshape(-1, 3), dtype=wp.vec3, device=device)
    out.pace = wp.array(np.array(pace, np.float32), dtype=wp.float32, device=device)
    out.size = wp.array(np.array(size, np.int32).reshape(-1, 3), dtype=wp.vec3i, device=device)
    arrays = (out.points, out.start, out.first, out.low, out.pace, out.size)
    return FiledClouds(out, sum(int(each.capacity) for each in arrays))


def _grid(points: Array, reach: float) -> tuple[Array, float, NDArray[np.int64]]:
    """Return minimum corner, cell side and cell counts of the grid around a cloud and its reach."""
    low, extent = points.min(axis=0) - reach, np.ptp(points, axis=0) + 2.0 * reach
    side = 1.01 * reach  # so that a point is only within reach of its own cell and of neighbouring cells
    while True:
        count = np.floor(extent / side).astype(np.int64) + 1
        fits = np.prod(count.astype(np.float64)) <= CELLS * len(points) + 64
        around = (1.0 + 2.0 * reach / side) ** 3  # upper bound of the cells that list a point
        if fits and (len(points) * around <= ENTRIES or around <= 2.0):
            return low, side, count
        side *= COARSER


def _lists(
    points: Array, low: Array, side: float, count: NDArray[np.int64], reach: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the points in the lists of the cells, cell by cell, and the end of each list."""
    margin = 1e-4 * side + 1e-6 * float((count * side).max() + np.abs(low).max())  # larger than rounding errors
    at = np.floor((points - low) / side).astype(np.int64)
    span = math.ceil((reach + margin) / side)
    cells, rows = [], []
    for step in itertools.product(range(-span, span + 1), repeat=3):
        cell = at + np.array(step)
        corner = low + cell * side
        gap = np.maximum(0.0, np.maximum(corner - points, points - corner - side))
        near = np.flatnonzero(((gap**2).sum(axis=1) <= (reach + margin) ** 2) & ((cell >= 0) & (cell < count)).all(1))
        cells.append((cell[near, 2] * count[1] + cell[near, 1]) * count[0] + cell[near, 0])
        rows.append(near)
    where, listed = np.concatenate(cells), np.concatenate(rows)
    order = np.lexsort((listed, where))  # sorted by point within a cell, so that the reach does not change the sums
    return listed[order], np.cumsum(np.bincount(where, minlength=int(count.prod())))


def on_shapes(shapes: Sequence[Shape], samples: SurfaceSamples) -> list[SurfaceSamples]:
    """Return the samples of a body split by shape, each in the shape's own frame."""
    parts = []
    for row, shape in enumerate(shapes):
        part, turn = samples[samples.shape == row], rotation(shape.quat)
        points, normals = (part.points - np.array(shape.pos)) @ turn, part.normals @ turn
        parts.append(SurfaceSamples(points, normals, part.areas, part.shape))
    return parts


@wp.func
def _over_plane(p: wp.vec3, radius: float) -> wp.vec4:
    """Return `_over_cloud` of an unbounded plane through the origin, across z.

    With r from |z| to R the points at that distance have the area 2 pi r dr, so the integral of R - r is
    pi / 3 (R - |z|)^2 (R + 2 |z|); by symmetry its centre is the foot of p.
    """
    z = wp.abs(p[2])
    if z >= radius:
        return wp.vec4()
    weight = wp.pi / 3.0 * (radius - z) * (radius - z) * (radius + 2.0 * z)
    return wp.vec4(0.0, 0.0, -weight * p[2], weight)


@wp.func
def _over_cloud(clouds: Clouds, row: int, p: wp.vec3, radius: float, other: float) -> tuple[wp.vec4, wp.vec4]:
    """Return the sums over one cloud, for two radii, of area P (o - p) and of area P; see `over_surface`."""
    one = wp.vec4()
    two = wp.vec4()
    at = (p - clouds.low[row]) * clouds.pace[row]
    size = clouds.size[row]
    for i in range(3):
        if not (at[i] >= 0.0 and at[i] < float(size[i])):  # also NaN
            return one, two
    cell = clouds.first[row] + (wp.int32(at[2]) * size[1] + wp.int32(at[1])) * size[0] + wp.int32(at[0])
    far = wp.max(radius, other)
    for k in range(clouds.start[cell], clouds.start[cell + 1]):
        o = clouds.points[k]
        arm = wp.vec3(o[0] - p[0], o[1] - p[1], o[2] - p[2])
        square = wp.dot(arm, arm)
        if square < far * far:
            r = wp.sqrt(square)
            weight = o[3] * wp.max(radius - r, 0.0)
            one = one + wp.vec4(weight * arm[0], weight * arm[1], weight * arm[2], weight)
            if other > 0.0:
                weight = o[3] * wp.max(other - r, 0.0)
                two = two + wp.vec4(weight * arm[0], weight * arm[1], weight * arm[2], weight)
    return one, two


@wp.func
def way_to_reach(clouds: Clouds, row: int, p: wp.vec3, reach: float) -> wp.float32:
    """Return a lower bound of the distance from a position to any position within reach of a surface, m.

    Args:
        clouds: all clouds.
        row: row of the shape.
        p: the position in the shape's frame, m.
        reach: maximum distance of a query, m: that given to `file_clouds`.
    """
    if clouds.first[row] < 0:
        return wp.max(wp.abs(p[2]) - reach, 0.0)
    low = clouds.low[row]
    size = clouds.size[row]
    gap = wp.vec3()
    for i in range(3):
        high = low[i] + float(size[i]) / clouds.pace[row]
        gap[i] = wp.max(wp.max(low[i] - p[i], p[i] - high), 0.0)
    return wp.length(gap)


@wp.func
def over_surface(clouds: Clouds, row: int, p: wp.vec3, radius: float, other: float) -> tuple[wp.vec4, wp.vec4]:
    """Return the sums over a surface within a ball, for two radii: of a P (o - p), m4, and, last, of a P, m3.

    P = max(0, R - |p - o|) for a point at o of area a.

    Args:
        clouds: all clouds.
        row: row of the shape.
        p: centre of the ball in the shape's frame, m.
        radius: R of the first sums, m.
        other: R of the second sums, m; 0 for none.
    """
    if clouds.first[row] < 0:
        one, two = _over_plane(p, radius), _over_plane(p, other)
    else:
        one, two = _over_cloud(clouds, row, p, radius, other)
    return one, two
