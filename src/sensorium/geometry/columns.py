"""Index for vertical rays over static triangles: a grid of columns, each with the triangles above it.

The index is in the frame of the vertices. A ray along z hits only triangles of one column, which are about four in a
terrain with a column per triangle. The data of each triangle make the test cheap: two barycentric coordinates and the
height are linear in x and y.

All data for rays are float32, computed in float64 from the vertices. Positions are relative to a corner of the triangle
that is itself rounded to float32, and heights are relative to one origin. So far from the origin, only the precision of
the ray's own coordinates is lost. Triangles are widened by possible rounding errors, so that no ray passes between two
that share an edge or a vertex.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import ArrayLike, NDArray

from sensorium.errors import ModelError

CELLS_PER_TRIANGLE = 2.0
"""Number of columns of the grid per triangle; large triangles make the grid coarser."""
MAX_CELLS = 1 << 24
"""Maximum number of columns."""
ENTRIES_PER_TRIANGLE = 16
"""Maximum number of list entries per triangle, by boxes; the grid is coarsened to reach it."""
MIN_ENTRIES = 1 << 16
"""Number of entries that is always allowed."""
STEEPEST = 1e-6
"""Minimum z component of a unit normal; a vertical triangle is omitted, since a vertical ray only grazes it."""
BORDER = 1e-5
"""Margin of the grid at each side, relative to its extent."""
CHUNK = 1 << 14
"""Number of triangles that are processed together."""
EPSILON = 2.0**-24
"""Half a unit in the last place of float32, relative."""
MISS = wp.constant(-1)
"""Triangle index of a miss."""


@wp.struct
class ColumnsIndex:
    """The index for kernels."""

    first: wp.array[wp.int32]
    """`[cell + 1]`: start of each cell's list in `entries`; cells go row by row, x fastest."""
    entries: wp.array[wp.int32]
    """Triangles, cell by cell."""
    triangles: wp.array[wp.vec4]
    """`[triangle, 3]`, flat: (x and y of the corner, height there, tolerance of barycentric coordinates), (the rows of
    their matrix), (their values at the corner, slopes of the height along x and y)."""
    cells_x: wp.int32
    cells_y: wp.int32
    x: wp.float32
    y: wp.float32
    """Minimum corner of the grid, m."""
    per_x: wp.float32
    per_y: wp.float32
    """Cells per metre."""
    z: wp.float32
    """Origin of the heights, m."""


@dataclass(frozen=True, eq=False, slots=True)
class Columns:
    """The index on the host; see `ColumnsIndex`."""

    first: NDArray[np.int32]
    """`[cell + 1]`."""
    entries: NDArray[np.int32]
    """`[entry]`."""
    triangles: NDArray[np.float32]
    """`[triangle, 3, 4]`; not finite for omitted triangles."""
    cells: tuple[int, int]
    """Along x and y."""
    corner: tuple[float, float]
    """x, y, m."""
    per_metre: tuple[float, float]
    """Cells along x and y."""
    height: float
    """Origin of the heights, m."""

    def to(self, device: Any = "cpu") -> ColumnsIndex:
        """Return the index for kernels."""
        out = ColumnsIndex()
        out.first = wp.array(self.first, dtype=wp.int32, device=device)
        out.entries = wp.array(self.entries, dtype=wp.int32, device=device)
        out.triangles = wp.array(self.triangles.reshape(-1, 4), dtype=wp.vec4, device=device)
        out.cells_x, out.cells_y = self.cells
        out.x, out.y = self.corner
        out.per_x, out.per_y = self.per_metre
        out.z = self.height
        return out


def build_columns(vertices: ArrayLike, faces: ArrayLike, progress: Callable[[float], None] | None = None) -> Columns:
    """Build the index.

    Args:
        vertices: `[n, 3]`, m.
        faces: `[m, 3]`, rows of `vertices`; the index identifies triangles by their row here.
        progress: called with the finished fraction, 0 to 1, from time to time.

    Raises:
        ModelError: no triangles.
    """
    points = np.asarray(vertices, np.float64)
    rows = np.asarray(faces)
    if rows.ndim != 2 or rows.shape[1] != 3 or not len(rows):
        raise ModelError(f"build_columns: faces: got an array of shape {rows.shape}, expected [n, 3] with n > 0.")
    tell = progress or (lambda _: None)
    tell(0.0)
    is_used = np.zeros(len(points), bool)
    is_used[rows.ravel()] = True
    used = points[is_used]
    low, high = used.min(axis=0), used.max(axis=0)
    height = float(np.float32((low[2] + high[2]) / 2))
    triangles = np.full((len(rows), 3, 4), np.nan, np.float32)
    kept = np.zeros(len(rows), bool)
    for part in _chunks(len(rows)):
        triangles[part], kept[part] = _describe(points[rows[part]], height)
        tell(0.3 * part.stop / len(rows))
    scale = max(1.0, np.abs(used).max())
    pad = BORDER * np.maximum(high[:2] - low[:2], 1e-3 * scale)  # keeps triangles away from the border
    corner = (low[:2] - pad).astype(np.float32).astype(np.float64)
    extent = high[:2] + pad - corner
    wanted = min(max(CELLS_PER_TRIANGLE * len(rows), 1.0), MAX_CELLS)
    while True:
        side = np.sqrt(extent.prod() / wanted)
        cells = np.clip(np.ceil(extent / side), 1, wanted).astype(np.int64)
        per_metre = (cells / extent).astype(np.float32).astype(np.float64)
        total = 0
        for part in _chunks(len(rows)):
            first, last = _box(points[rows[part]][kept[part]], corner, per_metre, cells)
            total += int((last - first + 1).prod(axis=1).sum())
        if total <= max(MIN_ENTRIES, ENTRIES_PER_TRIANGLE * len(rows)) or cells.prod() == 1:
            break
        wanted = max(1.0, wanted / 4)
    tell(0.4)
    lists: list[NDArray[np.int32]] = []
    owners: list[NDArray[np.int32]] = []
    for part in _chunks(len(rows)):
        ids = np.flatnonzero(kept[part]).astype(np.int32) + np.int32(part.start)
        for cell, owner in overlapping(points[rows[ids]], corner, per_metre, cells):
            lists.append(cell)
            owners.append(ids[owner])
        tell(0.4 + 0.4 * part.stop / len(rows))
    cell = np.concatenate(lists) if lists else np.zeros(0, np.int32)
    order = np.argsort(cell, kind="stable")
    entries = np.concatenate(owners)[order] if owners else np.zeros(0, np.int32)
    first_entry = np.zeros(int(cells.prod()) + 1, np.int32)
    np.cumsum(np.bincount(cell, minlength=int(cells.prod())), out=first_entry[1:])
    tell(1.0)
    return Columns(
        first=first_entry,
        entries=entries,
        triangles=triangles,
        cells=(int(cells[0]), int(cells[1])),
        corner=(float(corner[0]), float(corner[1])),
        per_metre=(float(per_metre[0]), float(per_metre[1])),
        height=height,
    )


def _chunks(count: int) -> list[slice]:
    return [slice(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]


def _describe(corners: NDArray[np.float64], height: float) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the data for rays of triangles `[n, 3, xyz]`, and which of them are not vertical."""
    e1, e2 = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    normal = np.cross(e1, e2)
    length = np.linalg.norm(normal, axis=1)
    kept = np.abs(normal[:, 2]) > STEEPEST * length
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        matrix = np.stack([e2[:, 1], -e2[:, 0], -e1[:, 1], e1[:, 0]], axis=1) / normal[:, 2:]
        slopes = -normal[:, :2] / normal[:, 2:]
        anchor = corners[:, 0, :2].astype(np.float32).astype(np.float64)
        off = anchor - corners[:, 0, :2]
        at = np.stack([(matrix[:, :2] * off).sum(1), (matrix[:, 2:] * off).sum(1)], axis=1)
        z = corners[:, 0, 2] - height + (slopes * off).sum(1)
        # Of sums of three products: each rounds, and so do the factors and the place itself, relative to the anchor.
        reach = np.abs(corners[:, :, :2] - anchor[:, None]).max(axis=1)
        size = np.abs(matrix) * np.concatenate([reach, reach], axis=1)
        loose = 8.0 * EPSILON * (1.0 + np.maximum(size[:, 0] + size[:, 1], size[:, 2] + size[:, 3]))
        out = np.concatenate([anchor, z[:, None], loose[:, None], matrix, at, slopes], axis=1).astype(np.float32)
    kept &= np.isfinite(out).all(axis=1)
    return out.reshape(-1, 3, 4), kept


def _box(
    corners: NDArray[np.float64], corner: NDArray[np.float64], per_metre: NDArray[np.float64], cells: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last cell along x and y that triangles may touch, `[n, 2]` each."""
    place = (corners[:, :, :2] - corner) * per_metre
    margin = cell_margin(cells)
    first = np.clip(np.floor(place.min(axis=1) - margin), 0, cells - 1).astype(np.int64)
    last = np.clip(np.floor(place.max(axis=1) + margin), 0, cells - 1).astype(np.int64)
    return first, last


def cell_margin(cells: NDArray[Any]) -> float:
    """Return the distance, in cells, by which float32 may misplace a ray relative to its cell."""
    return 1e-4 + 8.0 * EPSILON * float(cells.max())


def overlapping(
    corners: NDArray[np.float64], corner: NDArray[np.float64], per_metre: NDArray[np.float64], cells: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """Yield the pairs (cell, row of the triangle) that overlap, several hundred thousand at a time."""
    first, last = _box(corners, corner, per_metre, cells)
    sums = np.cumsum((last - first + 1).prod(axis=1))
    cuts = np.unique(np.searchsorted(sums, np.arange(0, int(sums[-1]) if len(sums) else 0, 16 * CHUNK), side="left"))
    for start, stop in itertools.pairwise(np.unique([0, *cuts, len(corners)]).tolist()):
        cell, owner = _overlaps(corners[start:stop], corner, per_metre, cells)
        yield cell, owner + np.int32(start)


def _overlaps(
    corners: NDArray[np.float64], corner: NDArray[np.float64], per_metre: NDArray[np.float64], cells: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the pairs (cell, row of the triangle) that overlap: by boxes first, then by the edges' separating axes."""
    first, last = _box(corners, corner, per_metre, cells)
    span = last - first + 1
    count = span.prod(axis=1)
    owner = np.repeat(np.arange(len(corners), dtype=np.int32), count)
    number = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    x = first[owner, 0] + number % span[owner, 0]
    y = first[owner, 1] + number // span[owner, 0]
    touches = np.ones(len(owner), bool)
    place = (corners[:, :, :2] - corner) * per_metre
    half = 0.5 + cell_margin(cells)
    for k in range(3):
        a, edge = place[:, k], place[:, (k + 1) % 3] - place[:, k]
        axis = np.stack([-edge[:, 1], edge[:, 0]], axis=1)
        own = (axis * (place[:, (k + 2) % 3] - a)).sum(1)  # the triangle is from 0 to this along the axis
        reach = half * np.abs(axis).sum(1)
        middle = axis[owner, 0] * (x + 0.5 - a[owner, 0]) + axis[owner, 1] * (y + 0.5 - a[owner, 1])
        touches &= middle >= (np.minimum(own, 0.0) - reach)[owner]
        touches &= middle <= (np.maximum(own, 0.0) + reach)[owner]
    return (y * cells[0] + x)[touches].astype(np.int32), owner[touches]


@wp.func
def columns_reach(columns: ColumnsIndex, x: float, y: float, radius: float) -> wp.bool:
    """Return whether a vertical ray within a radius of a place may hit a triangle; True is not certain.

    Args:
        columns: the index.
        x: the place in the frame of the vertices, m.
        y: the place in the frame of the vertices, m.
        radius: distance from the place, m.
    """
    wide = 1.0001 * radius + 1.0e-6 * (wp.abs(x) + wp.abs(y))  # rounding
    first_col = wp.max(wp.int32(wp.floor((x - wide - columns.x) * columns.per_x)), 0)
    last_col = wp.min(wp.int32(wp.floor((x + wide - columns.x) * columns.per_x)), columns.cells_x - 1)
    first_row = wp.max(wp.int32(wp.floor((y - wide - columns.y) * columns.per_y)), 0)
    last_row = wp.min(wp.int32(wp.floor((y + wide - columns.y) * columns.per_y)), columns.cells_y - 1)
    reaches = wp.bool(False)
    row = wp.where(first_col > last_col, last_row + 1, first_row)
    while row <= last_row and not reaches:
        k = columns.first[row * columns.cells_x + first_col]
        end = columns.first[row * columns.cells_x + last_col + 1]
        while k < end and not reaches:
            i = columns.entries[k]
            at = columns.triangles[3 * i]
            m = columns.triangles[3 * i + 1]
            rest = columns.triangles[3 * i + 2]
            dx = x - at[0]
            dy = y - at[1]
            b1 = rest[0] + m[0] * dx + m[1] * dy
            b2 = rest[1] + m[2] * dx + m[3] * dy
            # Barycentric coordinates are linear: their greatest values in the circle
            most1 = b1 + wide * wp.sqrt(m[0] * m[0] + m[1] * m[1])
            most2 = b2 + wide * wp.sqrt(m[2] * m[2] + m[3] * m[3])
            most3 = 1.0 - b1 - b2 + wide * wp.sqrt((m[0] + m[2]) * (m[0] + m[2]) + (m[1] + m[3]) * (m[1] + m[3]))
            reaches = not (wp.min(wp.min(most1, most2), most3) < -2.0 * at[3])
            k += 1
        row += 1
    return reaches


@wp.func
def columns_ray(
    columns: ColumnsIndex, x: float, y: float, z: float, sign: float, t_max: float
) -> tuple[wp.float32, wp.int32]:
    """Return t, m, and the first triangle that a vertical ray hits; (inf, MISS) on a miss.

    Args:
        columns: the index.
        x: start of the ray in the frame of the vertices, m.
        y: start of the ray in the frame of the vertices, m.
        z: start of the ray in the frame of the vertices, m.
        sign: +1.0 up, -1.0 down; t >= 0 counts along it. Both faces of a triangle can be hit.
        t_max: maximum t, inclusive, m.
    """
    best = float(wp.inf)
    triangle = int(MISS)
    u = (x - columns.x) * columns.per_x
    v = (y - columns.y) * columns.per_y
    # A ray at the border within rounding is in the border's cell; the triangles define where they end.
    if not (u > -1.0 and v > -1.0 and u < float(columns.cells_x + 1) and v < float(columns.cells_y + 1)):
        return best, triangle
    col = wp.clamp(wp.int32(u), 0, columns.cells_x - 1)
    row = wp.clamp(wp.int32(v), 0, columns.cells_y - 1)
    cell = row * columns.cells_x + col
    height = z - columns.z
    for k in range(columns.first[cell], columns.first[cell + 1]):
        i = columns.entries[k]
        at = columns.triangles[3 * i]
        m = columns.triangles[3 * i + 1]
        rest = columns.triangles[3 * i + 2]
        dx = x - at[0]
        dy = y - at[1]
        b1 = rest[0] + m[0] * dx + m[1] * dy
        b2 = rest[1] + m[2] * dx + m[3] * dy
        if wp.min(wp.min(b1, b2), 1.0 - b1 - b2) >= -at[3]:
            t = sign * ((at[2] - height) + (rest[2] * dx + rest[3] * dy))
            if t >= 0.0 and t < best and t <= t_max:
                best = t
                triangle = i
    return best, triangle
