"""Cells of a link, on the host: volumes, faces between cells, surface, and points that represent it.

All values are float64 in the link's frame. A cell is a box of a grid over the bounding box of the link's shapes; the
part of it inside a shape is determined with evenly spaced points.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sensorium.errors import ConfigError
from sensorium.geometry.bounds import placed_box
from sensorium.geometry.samples import SurfaceSamples, body_samples, inside, is_closed, surface_triangles
from sensorium.geometry.shapes import Shape
from sensorium.geometry.solid_mesh import connected
from sensorium.geometry.transforms import compose, rotation

Array = NDArray[np.float64]

ALONG = 36
"""Minimum number of points along each axis of a link for the computation of volumes."""
PER_CELL = 4
"""Minimum number of points along each axis of a cell."""
MAX = 1_000_000
"""Number of points beyond which no refinement is tried, even if the volumes of thin shapes are still inaccurate."""
CLOSE = 0.02
"""Target relative error of volumes."""
BLIND = 0.1
"""Relative error above which cells and the faces between them are unreliable."""
PER_SAMPLE = 32
"""Number of points for the computation of surface areas, per point that is kept."""
CHUNK = 1_000_000
"""Number of points that are tested together."""
PHASES = (0.7548776662466927, 0.5698402909980532)
"""Offset of each point relative to its neighbours, in points, so that no sheet falls between all of them: powers of
1 / 1.3247..., the plastic number, whose multiples are evenly distributed (Roberts, R2 sequence, 2018)."""
ASIDE = 1e-6
"""Distance from a wall between cells at which both sides are tested, in cells."""


@dataclass(frozen=True, eq=False, slots=True)
class LinkCells:
    """The cells of one link, in the order of `[x, y, z]`.

    Attributes:
        grid: number of cells along each axis.
        low: minimum corner of the grid, m.
        size: sides of a cell, m.
        volume: volume inside the link's shapes, m^3 `[cell]`; 0 for an empty cell.
        faces: area shared with the next cell along x, y and z, m^2 `[3, cell]`; 0 at the walls.
        area: area of the link's surface in each cell, m^2 `[cell]`.
        nearest: nearest cell that is not empty `[cell]`; for such a cell, itself.
        samples: points that represent the surface.
        cell: cell of each sample.
    """

    grid: tuple[int, int, int]
    low: Array
    size: Array
    volume: Array
    faces: Array
    area: Array
    nearest: NDArray[np.int32]
    samples: SurfaceSamples
    cell: NDArray[np.int32]


@functools.lru_cache(maxsize=32)  # a rebuilt scene cuts the same links again, which takes most of its time
def link_cells(shapes: tuple[Shape, ...], grid: tuple[int, int, int], count: int, config: str, link: str) -> LinkCells:
    """Cut a link into cells.

    Args:
        shapes: shapes of the link, in its frame.
        grid: number of cells along each axis.
        count: approximate number of points that represent the surface.
        config: the config, for messages.
        link: name of the link, for messages.

    Raises:
        ConfigError: the shapes have no volume.
    """
    for shape in shapes:
        _check_solid(shape, config, link)
    boxes = np.array([_bounds(shape) for shape in shapes])
    low, high = boxes[:, 0].min(axis=0), boxes[:, 1].max(axis=0)
    size = (high - low) / np.array(grid)
    per_cell, volume, faces, off = _cut(shapes, grid, low, size)
    if off > BLIND:
        expected = f"shapes thick enough to cut link {link!r} along its own axes"
        fix = f"It is sampled every {' x '.join(f'{side:.2g}' for side in size / per_cell)} m. "
        fix += "Use grid_size=(1, 1, 1), or other shapes with geometry= or include_geom_groups=."
        raise ConfigError.single(config, "grid_size", grid, expected, fix)
    there = np.flatnonzero(volume > 0.0)
    nearest = _nearest(grid, size, there)
    dense = body_samples(shapes, count=count * PER_SAMPLE)
    cell = nearest[cell_of(dense.points, grid, low, size)]
    area: Array = np.bincount(cell, dense.areas, minlength=math.prod(grid)).astype(np.float64)
    samples, kept = _thinned(dense, cell, count)
    return LinkCells(grid, low, size, volume, faces, area, nearest, samples, kept)


def in_link(shape: Shape, pos: Array, quat: Array) -> Shape:
    """Return a static shape, which is given in the world, in the frame of its link at a pose."""
    back = (float(quat[0]), *(-quat[1:]).tolist())
    arm = (np.array(shape.pos) - pos).tolist()
    (x, y, z), (w, *turn) = compose((0.0, 0.0, 0.0), back, arm, shape.quat)
    return replace(shape, pos=(x, y, z), quat=(w, turn[0], turn[1], turn[2]), is_static=False)


def cell_of(points: Array, grid: tuple[int, int, int], low: Array, size: Array) -> NDArray[np.int64]:
    """Return the cell that contains each point, or the nearest one."""
    place = np.clip(((points - low) / size).astype(np.int64), 0, np.array(grid) - 1)
    return np.asarray((place[:, 0] * grid[1] + place[:, 1]) * grid[2] + place[:, 2])


def _check_solid(shape: Shape, config: str, link: str) -> None:
    """Raise `ConfigError` if a shape has no inside."""
    why = ""
    if shape.kind == "plane":
        why = "a plane has none"
    elif shape.kind == "hfield" and (shape.hfield is None or shape.hfield.base is None):
        why = "a height field without a base has none"
    elif shape.kind == "mesh" and (shape.mesh is None or not is_closed(shape.mesh.vertices, shape.mesh.faces)):
        why = "a mesh that is not closed has none" if shape.mesh is not None else shape.fault
    if why:
        fix = "Select other shapes with geometry= or include_geom_groups=, or another link."
        raise ConfigError.single(
            config, "mount", link, f"a link whose shapes have a volume; for {shape.name!r}, {why}", fix
        )


def _bounds(shape: Shape) -> tuple[Array, Array]:
    """Return the minimum and maximum corner of a shape in the link's frame, exactly."""
    turn, pos = rotation(shape.quat), np.array(shape.pos)
    if shape.kind == "hfield":
        points = surface_triangles(shape).reshape(-1, 3) @ turn.T + pos
        return points.min(axis=0), points.max(axis=0)
    return placed_box(shape, turn, pos)


def _volume(shape: Shape) -> float:
    """Return the volume of a solid shape, m^3."""
    size = shape.size
    if shape.kind in ("mesh", "hfield"):
        corners = surface_triangles(shape)
        return abs(float(np.einsum("ij,ij->", corners[:, 0], np.cross(corners[:, 1], corners[:, 2])))) / 6.0
    if shape.kind == "box":
        return 8.0 * math.prod(size[:3])
    if shape.kind == "cylinder":
        return 2.0 * math.pi * size[0] ** 2 * size[1]
    if shape.kind == "capsule":
        return math.pi * size[0] ** 2 * (2.0 * size[1] + 4.0 / 3.0 * size[0])
    radii = np.broadcast_to(np.array(size[:3]), 3)
    return 4.0 / 3.0 * math.pi * float(radii.prod())


def _in_shapes(shapes: Sequence[Shape], points: Array) -> NDArray[np.bool_]:
    """Return whether each point is inside of each shape `[shape, point]`."""
    return np.stack([inside(shape, (points - np.array(shape.pos)) @ rotation(shape.quat)) for shape in shapes])


def _cut(
    shapes: Sequence[Shape], grid: tuple[int, int, int], low: Array, size: Array
) -> tuple[NDArray[np.int64], Array, Array, float]:
    """Return points along each axis of a cell, volumes and faces of the cells, and the relative error of the volume.

    Points are refined until shapes have their volume and are connected, which takes more points for thin shapes such as
    tilted sheets. Shapes have their exact volume, except for meshes with overlapping parts, whose volume is that of the
    points. Cells that contain only a corner of a shape, without connection to others, are treated as empty.
    """
    exact = np.array([_volume(shape) for shape in shapes])
    is_mesh = np.array([shape.kind == "mesh" for shape in shapes])
    parts = sum(_parts_of(shape) for shape in shapes)
    per_cell = np.maximum(PER_CELL, -(-ALONG // np.array(grid)))
    seen = np.zeros(len(shapes))
    while True:
        share, found = _counted(shapes, grid, low, size, per_cell)
        before, seen = seen, found * math.prod(size / per_cell)
        is_steady = is_mesh & (seen > 0.0) & (np.abs(seen - before) <= CLOSE * seen)
        true = np.where(is_steady & (seen < exact * (1.0 - CLOSE)), seen, exact)
        faces = np.stack([_shared(shapes, grid, low, size, per_cell, axis, share) for axis in range(3)])
        label = connected(len(share), *_neighbours(grid, faces))
        each = np.bincount(label, share, minlength=len(share))
        is_there = np.isin(label, np.argsort(-each, kind="stable")[:parts]) & (share > 0.0)
        whole = max(float(share.sum()), 1.0)
        off = max(float(np.abs(seen - true).sum() / true.sum()), 1.0 - float(share[is_there].sum()) / whole)
        is_plain = len(share) == 1 and not is_mesh.any()
        if off <= CLOSE or is_plain or 8 * math.prod(np.array(grid) * per_cell) > MAX:
            break
        per_cell = 2 * per_cell
    if len(share) == 1:  # there are no faces
        share, is_there, off = np.maximum(share, 1.0), np.ones(1, bool), 0.0
    share[~is_there] = 0.0
    faces *= is_there
    union = true.sum() / max(float(found.sum()), 1.0) * whole
    return per_cell, share * (union / max(float(share.sum()), 1.0)), faces, off


def _counted(
    shapes: Sequence[Shape], grid: tuple[int, int, int], low: Array, size: Array, per_cell: NDArray[np.int64]
) -> tuple[Array, Array]:
    """Return the number of points of each cell inside any shape, and the number of all points inside each shape."""
    fine = np.array(grid) * per_cell
    share, found = np.zeros(math.prod(grid)), np.zeros(len(shapes))
    layers = max(1, CHUNK // int(fine[1] * fine[2]))
    for start in range(0, int(fine[0]), layers):
        i, j, k = np.meshgrid(np.arange(start, min(start + layers, fine[0])), *map(np.arange, fine[1:]), indexing="ij")
        place = np.stack([i + _phase(j, k), j + _phase(k, i), k + _phase(i, j)], axis=-1)
        part = low + place.reshape(-1, 3) * (size / per_cell)
        is_in = _in_shapes(shapes, part)
        found += is_in.sum(axis=1)
        share += np.bincount(cell_of(part[is_in.any(axis=0)], grid, low, size), minlength=len(share))
    return share, found


def _shared(
    shapes: Sequence[Shape],
    grid: tuple[int, int, int],
    low: Array,
    size: Array,
    per_cell: NDArray[np.int64],
    axis: int,
    volume: Array,
) -> Array:
    """Return the area inside the shapes between each cell and the next one along an axis, m^2 `[cell]`."""
    area = np.zeros(grid)
    if grid[axis] == 1:
        return area.ravel()
    is_there = volume.reshape(grid) > 0.0
    across = [k for k in range(3) if k != axis]
    each = math.prod(size[k] / per_cell[k] for k in across)
    i, j = np.meshgrid(*(np.arange(grid[k] * per_cell[k]) for k in across), indexing="ij")
    place = np.stack([i + _phase(j, i), j + _phase(i, j)], axis=-1).reshape(-1, 2)
    points = np.empty((len(place), 3))
    points[:, across] = low[across] + place * (size / per_cell)[across]
    for wall in range(grid[axis] - 1):
        points[:, axis] = low[axis] + size[axis] * (wall + 1)
        step = np.eye(3)[axis] * size[axis] * ASIDE  # between two flush shapes, points of the wall are in neither
        below, above = (_in_shapes(shapes, points + side * step).any(axis=0) for side in (-1.0, 1.0))
        is_in = below & above
        counts = is_in.reshape(grid[across[0]], per_cell[across[0]], grid[across[1]], per_cell[across[1]])
        pair = np.take(is_there, wall, axis) & np.take(is_there, wall + 1, axis)
        at = tuple(wall if k == axis else slice(None) for k in range(3))
        area[at] = counts.sum(axis=(1, 3)) * each * pair
    return area.ravel()


def _neighbours(grid: tuple[int, int, int], faces: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all pairs of cells that share a face."""
    strides = (grid[1] * grid[2], grid[2], 1)
    cells = [np.flatnonzero(faces[axis]) for axis in range(3)]
    return np.concatenate(cells), np.concatenate([each + step for each, step in zip(cells, strides, strict=True)])


def _parts_of(shape: Shape) -> int:
    """Return the number of parts of a shape that share no corners."""
    if shape.mesh is None:
        return 1
    used = np.unique(shape.mesh.faces)
    places, corner = np.unique(shape.mesh.vertices[used], axis=0, return_inverse=True)
    faces = corner.ravel()[np.searchsorted(used, shape.mesh.faces)]
    label = connected(len(places), faces[:, :2].ravel(), faces[:, 1:].ravel())
    return len(np.unique(label))


def _phase(one: NDArray[np.int64], other: NDArray[np.int64]) -> Array:
    return np.asarray((0.5 + PHASES[0] * one + PHASES[1] * other) % 1.0)


def _nearest(grid: tuple[int, int, int], size: Array, there: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return for each cell the nearest of some cells; itself if it is one of them."""
    centres = np.stack(np.meshgrid(*(np.arange(n) for n in grid), indexing="ij"), axis=-1).reshape(-1, 3) * size
    nearest = np.arange(len(centres), dtype=np.int32)
    missing = np.setdiff1d(nearest, there)
    is_there = np.zeros(np.array(grid) + 2, bool)
    inner = is_there[1:-1, 1:-1, 1:-1]
    inner.flat[there] = True
    beside = [np.roll(is_there, step, axis)[1:-1, 1:-1, 1:-1] for axis in range(3) for step in (-1, 1)]
    there = np.flatnonzero(inner & ~np.logical_and.reduce(beside))  # a cell surrounded by others is never the nearest
    for start in range(0, len(missing), 256):
        rows = missing[start : start + 256]
        gaps = ((centres[rows, None] - centres[None, there]) ** 2).sum(axis=-1)
        nearest[rows] = there[gaps.argmin(axis=1)]
    return nearest


def _thinned(dense: SurfaceSamples, cell: NDArray[np.int32], count: int) -> tuple[SurfaceSamples, NDArray[np.int32]]:
    """Return about `count` of many samples, each with the area of its neighbours in the same cell and on the same side.

    The parts of each side of a cell have equal numbers of samples, so the areas of cells are preserved.
    """
    side = np.abs(dense.normals).argmax(axis=1)
    side = 2 * side + (dense.normals[np.arange(len(dense)), side] > 0.0)
    key = cell.astype(np.int64) * 6 + side
    order = np.argsort(key, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(key[order])) + 1)
    each = dense.area / count
    rows, areas = [], []
    for group in groups:
        for part in _parts(dense.points, group, max(1, round(float(dense.areas[group].sum()) / each))):
            middle = np.average(dense.points[part], axis=0, weights=dense.areas[part])
            rows.append(part[((dense.points[part] - middle) ** 2).sum(axis=1).argmin()])
            areas.append(dense.areas[part].sum())
    kept = dense[np.array(rows)]
    return replace(kept, areas=np.array(areas)), cell[np.array(rows)]


def _parts(points: Array, rows: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    """Return rows of points cut into parts of about equal numbers, always across their longest extent."""
    count = min(count, len(rows))
    if count == 1:
        return [rows]
    left = count // 2
    axis = int(np.ptp(points[rows], axis=0).argmax())
    order = rows[np.argsort(points[rows, axis], kind="stable")]
    cut = len(rows) * left // count
    return [*_parts(points, order[:cut], left), *_parts(points, order[cut:], count - left)]
