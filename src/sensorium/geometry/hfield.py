"""Rays against height fields, walked as grids, for kernels. The data: `sensorium.geometry.shapes.HeightField`.

Frame: the field's own; x along the columns, y along the rows, z up; it extends from -half to +half. A cell lies between
the points (row, column) and (row + 1, column + 1); the diagonal between these two splits it into two triangles.

Face ids: ``2 * (row * (columns - 1) + column) + k``; k = 0 is the triangle with the corner (row, column + 1), k = 1 the
one with (row + 1, column). `BASE` is the bottom or a side wall of a solid field, `MISS` is no face.

A solid field is the volume between -base and the surface, inside the extent; a ray from inside hits its exit. (MuJoCo
also stops such a ray at height 0, where the upper and the lower half of its solid meet.)

Along a ray the height above the surface is linear between the lines of the grid and the diagonals that it crosses. It
is evaluated at each of them, and a hit is where its sign changes. So no ray can pass between two triangles. Cells are
grouped into blocks of 4 x 4 and of 32 x 32 with their minimum and maximum heights; blocks that the ray passes above or
below are skipped. Positions are float64, because a flat angle amplifies an error of the height.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from sensorium.geometry.shapes import HeightField
from sensorium.random import F64

BASE = wp.constant(-1)
"""Face id of the bottom and the side walls."""
MISS = wp.constant(-2)
"""Face id of a miss."""
FINE = wp.constant(2)
"""Binary logarithm of the cells per side of a block of the finer level."""
COARSE = wp.constant(5)
"""Binary logarithm of the cells per side of a block of the coarser level."""
_INF: Any = wp.constant(wp.float64(float("inf")))
_ZERO: Any = wp.constant(wp.float64(0.0))
_ONE: Any = wp.constant(wp.float64(1.0))
_HALF: Any = wp.constant(wp.float64(0.5))


@wp.struct
class HField:
    """One height field: the positions of its values in the shared arrays, and its dimensions."""

    rows: wp.int32
    cols: wp.int32
    heights: wp.int32
    """Index of point (0, 0); the points follow row by row."""
    fine: wp.int32
    """Index of the first block of the finer level; blocks follow row by row."""
    coarse: wp.int32
    """Index of the first block of the coarser level."""
    half_x: wp.float64
    half_y: wp.float64
    """Half extents, m."""
    per_x: wp.float64
    per_y: wp.float64
    """Cells per metre."""
    base: wp.float32
    """Thickness of the solid below height 0, m; negative for a surface without a solid."""
    low: wp.float32
    high: wp.float32
    """Minimum and maximum height, m."""


@wp.struct
class HFields:
    """All height fields of a scene, as one kernel argument."""

    fields: wp.array[HField]
    heights: wp.array[wp.float32]
    """m."""
    blocks: wp.array[wp.vec2]
    """Minimum and maximum height of each block, m."""


def build_hfields(fields: Sequence[HeightField], device: Any = "cpu") -> HFields:
    """Return the height fields for kernels; the index of a field is its position in `fields`.

    Args:
        fields: any number of them, including none.
        device: device of the arrays.
    """
    records, heights, blocks = [], [np.zeros(0, np.float32)], [np.zeros((0, 2), np.float32)]
    points = cells = 0
    for field in fields:
        grid = field.heights.astype(np.float32)
        fine, coarse = (_extremes(grid, 1 << int(shift)) for shift in (FINE, COARSE))
        record = HField()
        record.rows, record.cols = grid.shape
        record.heights, record.fine, record.coarse = points, cells, cells + len(fine)
        record.half_x, record.half_y = field.size
        record.per_x, record.per_y = (
            (grid.shape[1] - 1) / (2 * field.size[0]),
            (grid.shape[0] - 1) / (2 * field.size[1]),
        )
        record.base = -1.0 if field.base is None else field.base
        record.low, record.high = float(grid.min()), float(grid.max())
        records.append(record)
        heights.append(grid.ravel())
        blocks += [fine, coarse]
        points, cells = points + grid.size, cells + len(fine) + len(coarse)
    out = HFields()
    out.fields = wp.array(records, dtype=HField, device=device) if records else wp.zeros(0, dtype=HField, device=device)
    out.heights = wp.array(np.concatenate(heights), dtype=wp.float32, device=device)
    out.blocks = wp.array(np.concatenate(blocks), dtype=wp.vec2, device=device)
    return out


def _extremes(grid: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    """Return the minimum and the maximum height of blocks of `side` x `side` cells, `[block, 2]`, row by row."""
    out = []
    for reduce in (np.minimum, np.maximum):
        cells = reduce(reduce(grid[:-1, :-1], grid[:-1, 1:]), reduce(grid[1:, :-1], grid[1:, 1:]))
        by_row = reduce.reduceat(cells, np.arange(0, cells.shape[0], side), axis=0)
        out.append(reduce.reduceat(by_row, np.arange(0, cells.shape[1], side), axis=1).ravel())
    return np.stack(out, axis=-1)


@wp.func
def hfield_height(fields: HFields, index: int, x: float, y: float) -> tuple[wp.float32, wp.int32]:
    """Return the height of the surface, m, and the face there; (-inf, MISS) outside the extent.

    Args:
        fields: all fields.
        index: index of the field.
        x: position in the field's frame, m.
        y: position in the field's frame, m.
    """
    h = fields.fields[index]
    u = (wp.float64(x) + h.half_x) * h.per_x
    v = (wp.float64(y) + h.half_y) * h.per_y
    if not (u >= _ZERO and v >= _ZERO and u <= wp.float64(h.cols - 1) and v <= wp.float64(h.rows - 1)):
        return -wp.inf, MISS
    col = wp.min(wp.int32(u), h.cols - 2)
    row = wp.min(wp.int32(v), h.rows - 2)
    a = wp.float32(u - wp.float64(col))
    b = wp.float32(v - wp.float64(row))
    at = h.heights + row * h.cols + col
    z00 = fields.heights[at]
    z11 = fields.heights[at + h.cols + 1]
    face = 2 * (row * (h.cols - 1) + col)
    if a >= b:
        corner = fields.heights[at + 1]
        return z00 + a * (corner - z00) + b * (z11 - corner), face
    corner = fields.heights[at + h.cols]
    return z00 + b * (corner - z00) + a * (z11 - corner), face + 1


@wp.func
def ray_hfield_vertical(fields: HFields, index: int, o: wp.vec3, sign: float) -> tuple[wp.float32, wp.int32]:
    """Return t, m, and the face of a ray along the field's own z axis; (inf, MISS) on a miss.

    The result is that of `ray_hfield`, in the time of one look-up.

    Args:
        fields: all fields.
        index: index of the field.
        o: start of the ray in the field's frame, m.
        sign: +1.0 up, -1.0 down; t >= 0 counts along it.
    """
    z, face = hfield_height(fields, index, o[0], o[1])
    if face == MISS:
        return wp.inf, MISS
    base = fields.fields[index].base
    t = sign * (z - o[2])
    if base < 0.0:
        if t >= 0.0:
            return t, face
        return wp.inf, MISS
    bottom = sign * (-base - o[2])
    if t >= 0.0 and (t <= bottom or bottom < 0.0):
        return t, face
    if bottom >= 0.0:
        return bottom, BASE
    return wp.inf, MISS


@wp.func
def _surface(z00: F64, z01: F64, z10: F64, z11: F64, a: F64, b: F64) -> F64:
    """Return the height in a cell, at a of its width and b of its depth, clamped to 0 to 1."""
    p = wp.clamp(a, _ZERO, _ONE)
    q = wp.clamp(b, _ZERO, _ONE)
    if p >= q:
        return z00 + p * (z01 - z00) + q * (z11 - z01)
    return z00 + q * (z10 - z00) + p * (z11 - z10)


@wp.func
def surface_at(fields: HFields, h: HField, u: F64, v: F64) -> F64:
    """Return the height of the surface at a position in cells, clamped to the extent."""
    col = wp.clamp(wp.int32(u), 0, h.cols - 2)
    row = wp.clamp(wp.int32(v), 0, h.rows - 2)
    at = h.heights + row * h.cols + col
    return _surface(
        wp.float64(fields.heights[at]),
        wp.float64(fields.heights[at + 1]),
        wp.float64(fields.heights[at + h.cols]),
        wp.float64(fields.heights[at + h.cols + 1]),
        u - wp.float64(col),
        v - wp.float64(row),
    )


@wp.func
def _slab(o: F64, d: F64, low: F64, high: F64, within: wp.vec2d) -> wp.vec2d:
    """Return the part of an interval of t in which o + t d is from low to high; (inf, -inf) if empty."""
    if d == _ZERO:
        if o < low or o > high:
            return wp.vec2d(_INF, -_INF)
        return within
    t0 = (low - o) / d
    t1 = (high - o) / d
    return wp.vec2d(wp.max(within[0], wp.min(t0, t1)), wp.min(within[1], wp.max(t0, t1)))


@wp.func
def ray_hfield(fields: HFields, index: int, o: wp.vec3, d: wp.vec3, t_max: float) -> tuple[wp.float32, wp.int32]:
    """Return the smallest t in 0 to t_max at which a ray hits a height field, and the face; (inf, MISS) on a miss.

    Args:
        fields: all fields.
        index: index of the field.
        o: start of the ray in the field's frame, m.
        d: its direction, of any length: t is in units of it.
        t_max: maximum t, inclusive, in the same units.
    """
    h = fields.fields[index]
    columns = wp.float64(h.cols - 1)
    rows = wp.float64(h.rows - 1)
    u0 = (wp.float64(o[0]) + h.half_x) * h.per_x
    v0 = (wp.float64(o[1]) + h.half_y) * h.per_y
    z0 = wp.float64(o[2])
    du = wp.float64(d[0]) * h.per_x
    dv = wp.float64(d[1]) * h.per_y
    dz = wp.float64(d[2])
    # The part of the line inside the extent, and above the bottom of a solid.
    inside = _slab(v0, dv, _ZERO, rows, _slab(u0, du, _ZERO, columns, wp.vec2d(-_INF, _INF)))
    if h.base >= 0.0:
        inside = _slab(z0, dz, wp.float64(-h.base), _INF, inside)
    begin = wp.max(inside[0], _ZERO)
    if begin > inside[1] or begin > wp.float64(t_max):
        return wp.inf, MISS
    low = wp.float64(h.low)
    high = wp.float64(h.high)
    z = z0 + begin * dz
    side = _ONE
    if z < low:
        side = -_ONE
    elif z <= high:
        if z - surface_at(fields, h, u0 + begin * du, v0 + begin * dv) < _ZERO:
            side = -_ONE
    if side < _ZERO and h.base >= 0.0 and inside[0] >= _ZERO:
        return wp.float32(begin), BASE
    # The part of that interval at the heights of the surface; with a margin, since a surface may be flat.
    margin = wp.float64(1.0e-6) * (_ONE + high - low)
    part = _slab(z0, dz, low - margin, high + margin, wp.vec2d(begin, wp.min(inside[1], wp.float64(t_max))))
    if part[0] <= part[1]:
        t, face = _walk(fields, h, wp.vec3d(u0, v0, z0), wp.vec3d(du, dv, dz), part[0], part[1], side)
        if face != MISS:
            return t, face
    if side < _ZERO and h.base >= 0.0 and inside[1] <= wp.float64(t_max):
        return wp.float32(inside[1]), BASE
    return wp.inf, MISS


@wp.func
def _edge(cell: int, shift: int, o: F64, d: F64, per: F64) -> F64:
    """Return t at which the ray leaves the block of a cell along one axis; inf if it never does."""
    block = cell >> shift
    if d > _ZERO:
        return (wp.float64((block + 1) << shift) - o) * per
    if d < _ZERO:
        return (wp.float64(block << shift) - o) * per
    return _INF


@wp.func
def _walk(
    fields: HFields, h: HField, o: wp.vec3d, d: wp.vec3d, begin: F64, end: F64, side: F64
) -> tuple[wp.float32, wp.int32]:
    """Follow the ray from `begin` to `end` until it changes its side of the surface. x and y are in cells."""
    per_u = _ZERO
    per_v = _ZERO
    if d[0] != _ZERO:
        per_u = _ONE / d[0]
    if d[1] != _ZERO:
        per_v = _ONE / d[1]
    t = begin
    col = wp.clamp(wp.int32(wp.floor(o[0] + t * d[0])), 0, h.cols - 2)
    row = wp.clamp(wp.int32(wp.floor(o[1] + t * d[1])), 0, h.rows - 2)
    fine_cols = ((h.cols - 2) >> FINE) + 1
    coarse_cols = ((h.cols - 2) >> COARSE) + 1
    shift = int(COARSE)
    above = _ZERO
    known = wp.int32(0)
    while True:
        leave_u = _edge(col, shift, o[0], d[0], per_u)
        leave_v = _edge(row, shift, o[1], d[1], per_v)
        to = wp.max(t, wp.min(end, wp.min(leave_u, leave_v)))
        if shift > 0:
            block = h.fine + (row >> FINE) * fine_cols + (col >> FINE)
            if shift == COARSE:
                block = h.coarse + (row >> COARSE) * coarse_cols + (col >> COARSE)
            extremes = fields.blocks[block]
            za = o[2] + t * d[2]
            zb = o[2] + to * d[2]
            passes = wp.min(za, zb) > wp.float64(extremes[1])
            if side < _ZERO:
                passes = wp.max(za, zb) < wp.float64(extremes[0])
            if not passes:
                shift = wp.where(shift == COARSE, FINE, 0)
                continue
            known = 0
        else:
            at = h.heights + row * h.cols + col
            z00 = wp.float64(fields.heights[at])
            z01 = wp.float64(fields.heights[at + 1])
            z10 = wp.float64(fields.heights[at + h.cols])
            z11 = wp.float64(fields.heights[at + h.cols + 1])
            u = o[0] - wp.float64(col)
            v = o[1] - wp.float64(row)
            face = 2 * (row * (h.cols - 1) + col)
            if known == 0:
                above = o[2] + t * d[2] - _surface(z00, z01, z10, z11, u + t * d[0], v + t * d[1])
                if above * side <= _ZERO:
                    if u + t * d[0] < v + t * d[1]:
                        face += 1
                    return wp.float32(t), face
                known = 1
            # The diagonal, where the ray crosses it inside the cell.
            spread = d[0] - d[1]
            cross = to
            if spread != _ZERO:
                cross = (v - u) / spread
            if cross > t and cross < to:
                a = wp.clamp(u + cross * d[0], _ZERO, _ONE)
                then = o[2] + cross * d[2] - (z00 + a * (z11 - z00))
                if then * side <= _ZERO:
                    middle = _HALF * (t + cross)
                    if u + middle * d[0] < v + middle * d[1]:
                        face += 1
                    return wp.float32(t + (cross - t) * (above / (above - then))), face
                t = cross
                above = then
            then = o[2] + to * d[2] - _surface(z00, z01, z10, z11, u + to * d[0], v + to * d[1])
            if then * side <= _ZERO:
                middle = _HALF * (t + to)
                if u + middle * d[0] < v + middle * d[1]:
                    face += 1
                return wp.float32(t + (to - t) * (above / (above - then))), face
            above = then
        t = to
        if t >= end:
            return wp.inf, MISS
        # Advance to the cell behind the edge. Across it, the ray stays in its row or column within this block.
        old_col = col
        old_row = row
        if leave_u <= leave_v:
            col = wp.where(d[0] > _ZERO, ((col >> shift) + 1) << shift, ((col >> shift) << shift) - 1)
            if shift > 0:
                first = (row >> shift) << shift
                row = wp.clamp(wp.int32(wp.floor(o[1] + t * d[1])), first, wp.min(first + (1 << shift), h.rows - 1) - 1)
        else:
            row = wp.where(d[1] > _ZERO, ((row >> shift) + 1) << shift, ((row >> shift) << shift) - 1)
            if shift > 0:
                first = (col >> shift) << shift
                col = wp.clamp(wp.int32(wp.floor(o[0] + t * d[0])), first, wp.min(first + (1 << shift), h.cols - 1) - 1)
        if col < 0 or row < 0 or col > h.cols - 2 or row > h.rows - 2:
            return wp.inf, MISS
        if (col >> COARSE) != (old_col >> COARSE) or (row >> COARSE) != (old_row >> COARSE):
            shift = int(COARSE)
        elif (col >> FINE) != (old_col >> FINE) or (row >> FINE) != (old_row >> FINE):
            shift = int(FINE)
    return wp.inf, MISS


@wp.func
def hfield_normal(fields: HFields, index: int, face: int, p: wp.vec3) -> wp.vec3:
    """Return the unit normal of a face in the field's frame: upwards on the surface, outwards on the base.

    Args:
        fields: all fields.
        index: index of the field.
        face: face id of a ray's hit.
        p: the hit point, m; used only for `BASE`.
    """
    h = fields.fields[index]
    if face == BASE:
        normal = wp.vec3(0.0, 0.0, -1.0)
        gap = wp.abs(p[2] + h.base)
        if wp.abs(wp.abs(p[0]) - wp.float32(h.half_x)) < gap:
            gap = wp.abs(wp.abs(p[0]) - wp.float32(h.half_x))
            normal = wp.vec3(wp.sign(p[0]), 0.0, 0.0)
        if wp.abs(wp.abs(p[1]) - wp.float32(h.half_y)) < gap:
            normal = wp.vec3(0.0, wp.sign(p[1]), 0.0)
        return normal
    if face < 0:
        return wp.vec3(0.0, 0.0, 0.0)
    cell = face >> 1
    row = cell / (h.cols - 1)
    at = h.heights + row * h.cols + cell - row * (h.cols - 1)
    z00 = fields.heights[at]
    z11 = fields.heights[at + h.cols + 1]
    z01 = fields.heights[at + 1]
    z10 = fields.heights[at + h.cols]
    along_x = z01 - z00
    along_y = z11 - z01
    if face - 2 * cell == 1:
        along_x = z11 - z10
        along_y = z10 - z00
    return wp.normalize(wp.vec3(-along_x * wp.float32(h.per_x), -along_y * wp.float32(h.per_y), 1.0))
