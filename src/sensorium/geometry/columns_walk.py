"""Rays in any direction over the grid of `sensorium.geometry.columns`, for triangles that form terrain.

A ray is followed from cell to cell of the grid. The least and the maximum height in each cell are known, and also of
blocks of 4 x 4 and of 16 x 16 cells; cells that the ray passes above or below are skipped. This is efficient if few
triangles lie above each other. In rooms the heights of all cells reach from floor to ceiling, and a tree is faster
there. `is_terrain` distinguishes the two by the geometry alone.

The position of the ray is float64. In each cell it restarts at the cell's border, so that all float32 arithmetic there
involves lengths of a triangle, and heights are pairs of float32 numbers, because flat angles amplify errors. Triangles
are widened by possible rounding errors, so that no ray passes between two. Steep triangles, which heights do not bound
well, are stored separately and tested in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp
from numpy.typing import ArrayLike, NDArray

from sensorium.geometry.columns import CHUNK, EPSILON, MISS, Columns, ColumnsIndex, cell_margin, overlapping
from sensorium.random import F64

FINE = wp.constant(2)
"""Binary logarithm of the cells per side of a block of the finer level."""
COARSE = wp.constant(4)
"""Binary logarithm of the cells per side of a block of the coarser level."""
FEWEST = 1000
"""Minimum number of triangles of a terrain; below it, a tree is as fast."""
LAYERS = 1.3
"""Maximum mean number of triangles above each other in a terrain, over non-empty columns."""
STEEP_SHARE = 0.2
"""Maximum fraction of steep area in a terrain."""
PER_CELL = 8.0
"""Maximum mean number of triangles in a column of a terrain; it is larger if large triangles lie among small ones."""
STEEP = 0.2
"""Minimum z component of the unit normal of a triangle that is not steep."""
WIDER = 1e-6
"""Tolerance of barycentric coordinates of steep triangles."""
_INF: Any = wp.constant(wp.float64(float("inf")))
_ZERO: Any = wp.constant(wp.float64(0.0))
_FAR: Any = wp.constant(wp.float64(1e300))
_ONE: Any = wp.constant(wp.float64(1.0))
_WIDER: Any = wp.constant(wp.float64(WIDER))


@wp.struct
class WalkIndex:
    """Data for kernels in addition to `ColumnsIndex`."""

    heights: wp.array[wp.vec2]
    """Minimum and maximum height in a cell above the heights' origin, m, (inf, -inf) if empty; then the same for blocks
    of the finer and of the coarser level, row by row."""
    fine: wp.int32
    """Index of the first block of the finer level."""
    coarse: wp.int32
    """Index of the first block of the coarser level."""
    more: wp.array[wp.vec2]
    """`[triangle]`: rounding residue of the height at the corner, m; effect of a height's error on barycentric
    coordinates, or -1 for a triangle that is steep or omitted."""
    steep_first: wp.array[wp.int32]
    """`[cell + 1]`: start of each cell's list in `steep_entries`; empty without steep triangles."""
    steep_entries: wp.array[wp.int32]
    """Rows of `steep`, cell by cell."""
    steep: wp.array[wp.vec3d]
    """`[row, 3]`, flat: corners of the steep triangles, the height above the origin, m."""
    steep_triangle: wp.array[wp.int32]
    """Indices of the steep triangles."""
    slack: wp.float32
    """Maximum error of heights, m."""
    low: wp.float64
    high: wp.float64
    """Minimum and maximum height, m."""


def may_be_terrain(vertices: ArrayLike, faces: ArrayLike) -> bool:
    """Return False if `is_terrain` is False for the index of these triangles, without building it.

    Args:
        vertices: `[n, 3]`, m.
        faces: `[m, 3]`, rows of `vertices`.
    """
    rows = np.asarray(faces)
    if len(rows) < FEWEST:
        return False
    corners = np.asarray(vertices, np.float64)[rows]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    area = np.linalg.norm(normal, axis=1)
    flat = np.abs(normal[:, 2])
    extent = np.ptp(corners.reshape(-1, 3), axis=0)
    return bool(
        area[flat <= STEEP * area].sum() <= STEEP_SHARE * area.sum()
        and 0.5 * flat.sum() <= LAYERS * extent[0] * extent[1]
    )


def is_terrain(columns: Columns, vertices: ArrayLike, faces: ArrayLike) -> bool:
    """Return whether few triangles lie above each other and few are steep, so that a walk is faster than a tree.

    Args:
        columns: the index of these triangles, for which `may_be_terrain` is True.
        vertices: `[n, 3]`, m.
        faces: `[m, 3]`, rows of `vertices`.
    """
    corners = np.asarray(vertices, np.float64)[np.asarray(faces)]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    counts = np.diff(columns.first)
    filled = int(np.count_nonzero(counts))
    area = filled / (columns.per_metre[0] * columns.per_metre[1])
    return bool(0.5 * np.abs(normal[:, 2]).sum() <= LAYERS * area and counts.sum() <= PER_CELL * filled)


def build_walk(columns: Columns, vertices: ArrayLike, faces: ArrayLike, device: Any = "cpu") -> WalkIndex:
    """Return the data for slanted rays, for kernels that also take `columns.to(device)`.

    Args:
        columns: the index of these triangles.
        vertices: `[n, 3]`, m.
        faces: `[m, 3]`, rows of `vertices`.
        device: device of the arrays.
    """
    points, rows = np.asarray(vertices, np.float64) - [0.0, 0.0, columns.height], np.asarray(faces)
    cells, corner, per_metre = np.array(columns.cells), np.array(columns.corner), np.array(columns.per_metre)
    margin = cell_margin(cells)
    is_steep = np.zeros(len(rows), bool)
    more = np.zeros((len(rows), 2), np.float32)
    for start in range(0, len(rows), CHUNK):
        part = slice(start, start + CHUNK)
        is_steep[part], more[part] = _describe(points[rows[part]], columns.triangles[part])
    steep = np.flatnonzero(is_steep)
    low, high = np.full(int(cells.prod()), np.inf), np.full(int(cells.prod()), -np.inf)
    counts = np.diff(columns.first)
    for start in range(0, len(columns.entries), 4 * CHUNK):
        ids = columns.entries[start : start + 4 * CHUNK]
        first, last = np.searchsorted(columns.first, [start, start + len(ids)], side="right") - 1
        last = min(last, len(counts) - 1)
        ends = np.clip(columns.first[first : last + 2], start, start + len(ids))
        cell = np.repeat(np.arange(first, last + 1), np.diff(ends))
        below, above = _heights(points[rows[ids]], cell, corner, per_metre, cells, margin)
        begins = np.flatnonzero(np.diff(cell, prepend=-1))
        of = cell[begins]
        low[of] = np.minimum(low[of], np.minimum.reduceat(below, begins))
        high[of] = np.maximum(high[of], np.maximum.reduceat(above, begins))
    corners = points[rows[steep]]
    pairs = list(overlapping(corners, corner, per_metre, cells))
    none = np.zeros(0, np.int32)
    cell, owner = (np.concatenate([none, *(pair[k] for pair in pairs)]) for k in (0, 1))
    np.minimum.at(low, cell, corners[owner, :, 2].min(axis=1))
    np.maximum.at(high, cell, corners[owner, :, 2].max(axis=1))
    used = points[rows]
    slack = 8.0 * EPSILON * float(np.ptp(used[..., 2])) + 64.0 * EPSILON / float(per_metre.min())
    grid = np.stack([low - 2.0 * slack, high + 2.0 * slack], axis=-1).reshape(cells[1], cells[0], 2)
    levels = [_blocks(grid, 1 << shift) for shift in (0, int(FINE), int(COARSE))]  # rounding is less than the slack
    steep_first = np.zeros(len(counts) + 1 if len(steep) else 0, np.int32)
    if len(steep):
        np.cumsum(np.bincount(cell, minlength=len(counts)), out=steep_first[1:])
    heights = np.concatenate(levels)
    out = WalkIndex()
    for name, values, dtype in (
        ("heights", heights, wp.vec2),
        ("more", more, wp.vec2),
        ("steep_first", steep_first, wp.int32),
        ("steep_entries", owner[np.argsort(cell, kind="stable")], wp.int32),
        ("steep", corners.reshape(-1, 3), wp.vec3d),
        ("steep_triangle", steep, wp.int32),
    ):
        setattr(out, name, wp.array(values, dtype=dtype, device=device))
    out.slack = slack
    out.fine, out.coarse = len(levels[0]), len(levels[0]) + len(levels[1])
    out.low, out.high = float(heights[:, 0].min()), float(heights[:, 1].max())
    return out


def _describe(
    corners: NDArray[np.float64], triangles: NDArray[np.float32]
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Return which triangles `[n, 3, xyz]` are steep, and the values of `WalkIndex.more` for all."""
    e1, e2 = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    normal = np.cross(e1, e2)
    length = np.linalg.norm(normal, axis=1)
    is_steep = ~(np.abs(normal[:, 2]) > STEEP * length) | ~np.isfinite(triangles).all(axis=(1, 2))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slopes = -normal[:, :2] / normal[:, 2:]
        off = triangles[:, 0, :2].astype(np.float64) - corners[:, 0, :2]
        z = corners[:, 0, 2] + (slopes * off).sum(1)
        lost = z - triangles[:, 0, 2].astype(np.float64)
        reach = np.linalg.norm(corners[:, :, :2] - triangles[:, None, 0, :2], axis=2).max(axis=1)
        error = 8.0 * EPSILON * reach * (1.0 + np.abs(slopes).sum(axis=1))
        matrix = np.abs(triangles[:, 1].astype(np.float64))
        cost = error * np.maximum(matrix[:, 0] + matrix[:, 1], matrix[:, 2] + matrix[:, 3]) * 2.0
    more = np.where(is_steep[:, None], [0.0, -1.0], np.stack([lost, cost], axis=1))
    return is_steep, more.astype(np.float32)


def _heights(
    corners: NDArray[np.float64],
    cell: NDArray[Any],
    corner: NDArray[np.float64],
    per_metre: NDArray[np.float64],
    cells: NDArray[np.int64],
    margin: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return bounds of the heights of triangles inside cells, one triangle and one cell per row."""
    low, high = corners.min(axis=1), corners.max(axis=1)
    place = np.stack([cell % cells[0], cell // cells[0]], axis=-1)
    a = np.maximum(corner + (place - margin) / per_metre, low[:, :2])
    b = np.minimum(corner + (place + 1 + margin) / per_metre, high[:, :2])
    e1, e2 = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    normal = np.cross(e1, e2)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slopes = -normal[:, :2] / normal[:, 2:]
        middle = corners[:, 0, 2] + (slopes * (0.5 * (a + b) - corners[:, 0, :2])).sum(1)
        reach = (np.abs(slopes) * np.maximum(0.5 * (b - a), 0.0)).sum(1)
        is_known = np.isfinite(middle) & np.isfinite(reach)
    below = np.where(is_known, np.clip(middle - reach, low[:, 2], high[:, 2]), low[:, 2])
    above = np.where(is_known, np.clip(middle + reach, low[:, 2], high[:, 2]), high[:, 2])
    return below, above


def _blocks(grid: NDArray[np.float64], side: int) -> NDArray[np.float32]:
    """Return the minimum and the maximum height of blocks of `side` x `side` cells, `[block, 2]`, row by row."""
    out = []
    for k, reduce in enumerate((np.minimum, np.maximum)):
        by_row = reduce.reduceat(grid[..., k], np.arange(0, grid.shape[0], side), axis=0)
        out.append(reduce.reduceat(by_row, np.arange(0, grid.shape[1], side), axis=1).ravel())
    return np.stack(out, axis=-1).astype(np.float32)


@wp.func
def _less(a: F64, b: F64) -> F64:
    """Return the lesser of two numbers; `wp.min` also checks for NaN, which takes many times longer."""
    return wp.where(a < b, a, b)


@wp.func
def _greater(a: F64, b: F64) -> F64:
    """Return the greater of two numbers."""
    return wp.where(a > b, a, b)


@wp.func
def _slab(o: F64, d: F64, low: F64, high: F64, within: wp.vec2d) -> wp.vec2d:
    """Return the part of an interval of t in which o + t d is from low to high; (inf, -inf) if empty."""
    if d == _ZERO:
        if o < low or o > high:
            return wp.vec2d(_INF, -_INF)
        return within
    t0 = (low - o) / d
    t1 = (high - o) / d
    return wp.vec2d(_greater(within[0], _less(t0, t1)), _less(within[1], _greater(t0, t1)))


@wp.func
def _ray_steep(walk: WalkIndex, row: int, o: wp.vec3d, d: wp.vec3d) -> F64:
    """Return t at the intersection of a ray with a steep triangle; inf on a miss."""
    a = walk.steep[3 * row]
    e1 = walk.steep[3 * row + 1] - a
    e2 = walk.steep[3 * row + 2] - a
    p = wp.cross(d, e2)
    det = wp.dot(e1, p)
    if det == _ZERO:
        return _INF
    s = o - a
    b1 = wp.dot(s, p) / det
    q = wp.cross(s, e1)
    b2 = wp.dot(d, q) / det
    if not (b1 >= -_WIDER and b2 >= -_WIDER and b1 + b2 <= _ONE + _WIDER):
        return _INF
    return wp.dot(e2, q) / det


@wp.func
def columns_walk(
    columns: ColumnsIndex, walk: WalkIndex, o: wp.vec3, d: wp.vec3, t_max: float
) -> tuple[wp.float32, wp.int32]:
    """Return t and the first triangle that a ray hits; (inf, MISS) on a miss.

    Args:
        columns: the index.
        walk: its data for slanted rays.
        o: start of the ray in the frame of the vertices, m.
        d: its direction, of any length but 0: t >= 0 is in units of it. Both faces of a triangle can be hit.
        t_max: maximum t, inclusive, in the same units.
    """
    best = float(wp.inf)
    triangle = int(MISS)
    if not wp.isfinite(wp.length_sq(o) + wp.length_sq(d)):
        return best, triangle
    ox = wp.float64(o[0])
    oy = wp.float64(o[1])
    oz = wp.float64(o[2]) - wp.float64(columns.z)
    dx = wp.float64(d[0])
    dy = wp.float64(d[1])
    dz = wp.float64(d[2])
    u0 = (ox - wp.float64(columns.x)) * wp.float64(columns.per_x)
    v0 = (oy - wp.float64(columns.y)) * wp.float64(columns.per_y)
    du = dx * wp.float64(columns.per_x)
    dv = dy * wp.float64(columns.per_y)
    if (oz > walk.high and dz >= _ZERO) or (oz < walk.low and dz <= _ZERO):
        return best, triangle
    inside = _slab(u0, du, _ZERO, wp.float64(columns.cells_x), wp.vec2d(_ZERO, wp.float64(t_max)))
    inside = _slab(v0, dv, _ZERO, wp.float64(columns.cells_y), inside)
    inside = _slab(oz, dz, walk.low, walk.high, inside)
    t = inside[0]
    end = inside[1]
    if not (t <= end):
        return best, triangle
    # An edge that is never reached is infinitely far.
    per_u = wp.where(du == _ZERO, _FAR, _ONE / du)
    per_v = wp.where(dv == _ZERO, _FAR, _ONE / dv)
    per_z = wp.where(dz == _ZERO, _FAR, _ONE / dz)
    ahead_u = wp.where(du >= _ZERO, 1, 0)
    ahead_v = wp.where(dv >= _ZERO, 1, 0)
    limit = t_max
    last_col = columns.cells_x - 1
    last_row = columns.cells_y - 1
    col = wp.clamp(wp.int32(u0 + t * du), 0, last_col)
    row = wp.clamp(wp.int32(v0 + t * dv), 0, last_row)
    shift = int(COARSE)
    za = oz + t * dz
    while True:
        block_u = col >> shift
        block_v = row >> shift
        first_col = block_u << shift
        first_row = block_v << shift
        edge_u = (block_u + ahead_u) << shift
        edge_v = (block_v + ahead_v) << shift
        leave_u = (wp.float64(edge_u) - u0) * per_u
        leave_v = (wp.float64(edge_v) - v0) * per_v
        to = _greater(t, _less(end, _less(leave_u, leave_v)))
        zb = oz + to * dz
        place = wp.where(shift == 0, 0, wp.where(shift == FINE, walk.fine, walk.coarse))
        heights = walk.heights[place + block_v * ((last_col >> shift) + 1) + block_u]
        if _less(za, zb) <= wp.float64(heights[1]) and _greater(za, zb) >= wp.float64(heights[0]):
            if shift > 0:  # advance to where the ray reaches the heights of the block
                near = _less((wp.float64(heights[0]) - oz) * per_z, (wp.float64(heights[1]) - oz) * per_z)
                t = _greater(t, _less(near, to))
                za = oz + t * dz
                col = wp.clamp(wp.int32(u0 + t * du), first_col, wp.min(first_col + (1 << shift) - 1, last_col))
                row = wp.clamp(wp.int32(v0 + t * dv), first_row, wp.min(first_row + (1 << shift) - 1, last_row))
                shift = wp.where(shift == COARSE, FINE, 0)
                continue
            cell = row * columns.cells_x + col
            px = ox + t * dx
            py = oy + t * dy
            x = wp.float32(px)
            y = wp.float32(py)
            z = wp.float32(za)
            x_rest = wp.float32(px - wp.float64(x))
            y_rest = wp.float32(py - wp.float64(y))
            z_rest = wp.float32(za - wp.float64(z))
            span = wp.float32(to - t)
            for k in range(columns.first[cell], columns.first[cell + 1]):
                i = columns.entries[k]
                at = columns.triangles[3 * i]
                rest = columns.triangles[3 * i + 2]
                ax = (x - at[0]) + x_rest
                ay = (y - at[1]) + y_rest
                above = (z - at[2]) - (rest[2] * ax + rest[3] * ay)
                slope = d[2] - (rest[2] * d[0] + rest[3] * d[1])
                later = above + span * slope
                least = wp.where(above < later, above, later)
                most = wp.where(above < later, later, above)
                if least <= walk.slack and most >= -walk.slack and slope != 0.0:
                    more = walk.more[i]
                    if more[1] >= 0.0:
                        above = above + (z_rest - more[0])
                        step = -above / slope
                        m = columns.triangles[3 * i + 1]
                        ax = ax + step * d[0]
                        ay = ay + step * d[1]
                        b1 = rest[0] + m[0] * ax + m[1] * ay
                        b2 = rest[1] + m[2] * ax + m[3] * ay
                        wide = -(at[3] + more[1] / wp.abs(slope))
                        if b1 >= wide and b2 >= wide and 1.0 - b1 - b2 >= wide:
                            found = wp.float32(t + wp.float64(step))
                            if found >= 0.0 and found < best and found <= limit:
                                best = found
                                triangle = i
            if walk.steep_first.shape[0] > 0:
                for k in range(walk.steep_first[cell], walk.steep_first[cell + 1]):
                    found = wp.float32(
                        _ray_steep(walk, walk.steep_entries[k], wp.vec3d(ox, oy, oz), wp.vec3d(dx, dy, dz))
                    )
                    if found >= 0.0 and found < best and found <= limit:
                        best = found
                        triangle = walk.steep_triangle[walk.steep_entries[k]]
            end = _less(end, wp.float64(best))
        t = to
        za = zb
        if not (t < end):
            break
        # Advance to the cell behind the edge. Across it, the ray stays in its row or column within this block.
        is_u = leave_u <= leave_v
        next_col = wp.where(ahead_u == 1, first_col + (1 << shift), first_col - 1)
        next_row = wp.where(ahead_v == 1, first_row + (1 << shift), first_row - 1)
        side_col = wp.clamp(wp.int32(u0 + t * du), first_col, wp.min(first_col + (1 << shift) - 1, last_col))
        side_row = wp.clamp(wp.int32(v0 + t * dv), first_row, wp.min(first_row + (1 << shift) - 1, last_row))
        next_col = wp.where(is_u, next_col, side_col)
        next_row = wp.where(is_u, side_row, next_row)
        changed = (next_col ^ col) | (next_row ^ row)
        col = next_col
        row = next_row
        if col < 0 or row < 0 or col > last_col or row > last_row:
            break
        shift = wp.where((changed >> COARSE) != 0, COARSE, wp.where((changed >> FINE) != 0, FINE, shift))
    return best, triangle
