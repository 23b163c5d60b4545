"""Preparation of closed meshes for signed distances: their trees, and grids whose cells list near triangles."""

from __future__ import annotations

import hashlib
import inspect
import secrets
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import warp as wp
from numpy.typing import NDArray

from sensorium.compute import kernel
from sensorium.geometry import solid_mesh, solid_walk
from sensorium.geometry.bounds import tree_of
from sensorium.geometry.shapes import Mesh
from sensorium.geometry.solid_mesh import SolidSurface, surface_of
from sensorium.geometry.solid_walk import FACE_BITS, STEPS, Cell, Solid, Solids, by_tree, gap_sq

CELLS_PER_FACE = 6
"""Number of cells of a grid per triangle."""
FEWEST_CELLS = 1 << 10
MAX_CELLS = 1 << 18
"""Limits of the number of cells of a grid."""
PADDING = 0.08
"""Extent of a grid beyond its mesh, in longest sides of the mesh; the tree is used for points outside the grid."""
LONGEST = wp.constant(wp.int32(400))
"""Maximum number of triangles in a cell's list before thinning."""
MAX_ENTRIES = 1 << 22
"""Maximum number of entries of all lists of a mesh; beyond it, cells far from the surface get no list."""
RINGS = 16
"""Number of steps in which cells get lists, those nearest to the surface first."""
WORTHWHILE = 0.05
"""Minimum fraction of a step's cells with a sufficiently short list; below it, farther steps are skipped."""
SLACK = 1e-6
"""Maximum float32 error of a distance, in half diagonals of the mesh."""

PARTS = wp.constant(wp.int32(2))
"""Number of parts of a cell along each axis for thinning its list."""
Reaches = wp.types.vector(length=8, dtype=wp.float32)

_CELL = np.dtype([("distance", np.float32), ("start", np.int32), ("count", np.int32)])


@wp.struct
class Lattice:
    """Centres of a grid's cells.

    Attributes:
        low: the first centre, m.
        side: distance between neighbours, m.
        count_x: number along x.
        count_y: number along y.
        half: half the diagonal of a cell, m, with a margin.
        slack: maximum float32 error of a distance, m.
    """

    low: wp.vec3
    side: wp.float32
    count_x: wp.int32
    count_y: wp.int32
    half: wp.float32
    slack: wp.float32


@wp.func
def _centre(lattice: Lattice, cell: int) -> wp.vec3:
    row = cell / lattice.count_x
    x = cell - row * lattice.count_x
    z = row / lattice.count_y
    y = row - z * lattice.count_y
    return lattice.low + lattice.side * wp.vec3(wp.float32(x), wp.float32(y), wp.float32(z))


@wp.func
def _within(k: int) -> wp.vec3:
    """Return the centre of a part of a cell, in units of a part's side."""
    x = k % PARTS
    y = (k / PARTS) % PARTS
    z = k / (PARTS * PARTS)
    return wp.vec3(wp.float32(x) + 0.5, wp.float32(y) + 0.5, wp.float32(z) + 0.5)


@kernel
def _measure(solids: Solids, lattice: Lattice, distance: wp.array[wp.float32]) -> None:
    """Write the signed distance of each cell's centre, m."""
    cell = wp.tid()
    far = by_tree(solids, solids.solids[0], wp.vec3d(_centre(lattice, cell)), 1.0e30)
    distance[cell] = far


@kernel
def _count(
    solids: Solids,
    lattice: Lattice,
    distance: wp.array[wp.float32],
    cells: wp.array[wp.int32],
    count: wp.array[wp.int32],
) -> None:
    """Count the triangles that can be nearest to a point of some cells; 0 if there are too many for a list."""
    cell = cells[wp.tid()]
    q = _centre(lattice, cell)
    reach = wp.abs(distance[cell]) + 2.0 * lattice.half
    around = wp.vec3(reach, reach, reach)
    boxes = wp.mesh_query_aabb(solids.solids[0].mesh, q - around, q + around)
    face = wp.int32(0)
    found = wp.int32(0)
    while wp.mesh_query_aabb_next(boxes, face):
        if gap_sq(solids.frames, face, q, wp.inf) <= reach * reach:
            found += 1
            if found > LONGEST:
                break
    if found > LONGEST:
        found = 0
    count[cell] = found


@kernel
def _list(
    solids: Solids,
    lattice: Lattice,
    distance: wp.array[wp.float32],
    count: wp.array[wp.int32],
    start: wp.array[wp.int32],
    entries: wp.array[wp.int32],
) -> None:
    """Write the triangles counted by `_count`, the nearest to the centre first, ties by the lower number."""
    cell = wp.tid()
    if count[cell] == 0:
        return
    q = _centre(lattice, cell)
    reach = wp.abs(distance[cell]) + 2.0 * lattice.half
    around = wp.vec3(reach, reach, reach)
    boxes = wp.mesh_query_aabb(solids.solids[0].mesh, q - around, q + around)
    face = wp.int32(0)
    first = start[cell]
    found = wp.int32(0)
    while wp.mesh_query_aabb_next(boxes, face):
        gap = gap_sq(solids.frames, face, q, wp.inf)
        if gap <= reach * reach:
            more = wp.max(wp.sqrt(gap) - wp.abs(distance[cell]), 0.0) / (2.0 * lattice.half)
            entry = face + (wp.min(wp.int32(more * wp.float32(STEPS)), STEPS) << FACE_BITS)
            k = first + found
            while k > first and entries[k - 1] > entry:
                entries[k] = entries[k - 1]
                k -= 1
            entries[k] = entry
            found += 1


@kernel
def _thin(
    solids: Solids,
    lattice: Lattice,
    count: wp.array[wp.int32],
    start: wp.array[wp.int32],
    entries: wp.array[wp.int32],
    left: wp.array[wp.int32],
) -> None:
    """Set entries to -1 that cannot be nearest in any of the smaller cubes of a cell, and count the others."""
    cell = wp.tid()
    first = start[cell]
    end = first + count[cell]
    low = _centre(lattice, cell) - 0.5 * lattice.side * wp.vec3(1.0, 1.0, 1.0)
    part = lattice.side / wp.float32(PARTS)
    reach = Reaches()
    for k in range(PARTS * PARTS * PARTS):
        q = low + part * _within(k)
        best = float(wp.inf)
        for i in range(first, end):
            best = wp.min(best, gap_sq(solids.frames, entries[i] & ((1 << FACE_BITS) - 1), q, best))
        reach[k] = wp.sqrt(best) + 2.0 * lattice.half / wp.float32(PARTS) + lattice.slack
    found = wp.int32(0)
    for i in range(first, end):
        face = entries[i] & ((1 << FACE_BITS) - 1)
        is_needed = bool(False)
        for k in range(PARTS * PARTS * PARTS):
            if not is_needed:
                is_needed = gap_sq(solids.frames, face, low + part * _within(k), wp.inf) <= reach[k] * reach[k]
        if is_needed:
            found += 1
        else:
            entries[i] = -1
    left[cell] = found


@dataclass(frozen=True, eq=False, slots=True)
class PreparedMesh:
    """One prepared mesh: arrays for kernels on the host, and its tree on the device.

    Attributes:
        surface: the triangles.
        tree: the same as a `wp.Mesh`, relative to the centre.
        low: minimum corner of the grid, m.
        side: side of a cell, m.
        counts: cells along x, y and z; zeros for no grid.
        cells: `[cell]`, x varies fastest; ``start`` is relative to the mesh's first entry.
        step: see `Solid.step`, m.
        entries: `[entry]`, int32.
    """

    surface: SolidSurface
    tree: wp.Mesh
    low: NDArray[np.float32]
    side: float
    counts: tuple[int, ...]
    cells: NDArray[Any]
    step: float
    entries: NDArray[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of its grid."""
        return int(self.cells.nbytes + self.entries.nbytes)


def prepare_mesh(mesh: Mesh, scale: tuple[float, ...], device: str) -> PreparedMesh:
    """Return a mesh, scaled by positive factors, prepared for signed distances.

    It is kept on disk beside Warp's compiled kernels, so that it is prepared only once.

    Args:
        mesh: the triangles.
        scale: factors along its axes.
        device: device of its kernels.

    Raises:
        ModelError: the mesh is not closed; see `surface_of`.
    """
    path = _cached(mesh, scale, device)
    try:
        return _read(path, device)
    except (OSError, EOFError, ValueError, KeyError, BadZipFile):  # new or damaged
        prepared = _with_grid(surface_of(mesh, scale), device)
        _write(path, prepared)
        return prepared


def _cached(mesh: Mesh, scale: tuple[float, ...], device: str) -> Path:
    """Return the file of a prepared mesh beside Warp's kernels; its name is a hash of everything it depends on."""
    kind = "cpu" if wp.get_device(device).is_cpu else "cuda"
    parts = [inspect.getsource(solid_mesh), inspect.getsource(solid_walk), inspect.getsource(sys.modules[__name__])]
    key = hashlib.sha256(repr((wp.__version__, kind, scale, mesh.vertices.shape, parts)).encode())
    key.update(mesh.vertices.tobytes())
    key.update(mesh.faces.tobytes())
    return Path(wp.config.kernel_cache_dir, "sensorium_solids", f"{key.hexdigest()}.npz")


def _read(path: Path, device: str) -> PreparedMesh:
    with path.open("rb") as file, np.load(file) as stored:
        values: dict[str, Any] = dict(stored)
    surface = SolidSurface(**{each.name: values.pop(each.name) for each in fields(SolidSurface)})
    values |= {"side": float(values["side"]), "step": float(values["step"]), "counts": tuple(values["counts"].tolist())}
    return PreparedMesh(surface, tree_of(surface.vertices, surface.faces, device), **values)


def _write(path: Path, mesh: PreparedMesh) -> None:
    values = {each.name: getattr(mesh.surface, each.name) for each in fields(SolidSurface)}
    values |= {each.name: getattr(mesh, each.name) for each in fields(PreparedMesh)[2:]}
    part = path.with_suffix(f".{secrets.token_hex(4)}.part")  # other processes may write the same mesh
    with suppress(OSError):  # the folder cannot be written, or the disk is full
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as file:
                np.savez(file, **values)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def _without_grid(surface: SolidSurface, device: str) -> PreparedMesh:
    tree = tree_of(surface.vertices, surface.faces, device)
    no_cells, no_entries = np.zeros(0, _CELL), np.zeros(0, np.int32)
    return PreparedMesh(surface, tree, np.zeros(3, np.float32), 1.0, (0, 0, 0), no_cells, 0.0, no_entries)


def _with_grid(surface: SolidSurface, device: str) -> PreparedMesh:
    bare = _without_grid(surface, device)
    if len(surface.faces) > 1 << int(FACE_BITS):
        return bare
    wanted = float(np.clip(CELLS_PER_FACE * len(surface.faces), FEWEST_CELLS, MAX_CELLS))
    sides = 2.0 * (surface.half + 2.0 * PADDING * surface.half.max())
    side = float((sides.prod() / wanted) ** (1.0 / 3.0))
    counts = np.maximum(np.ceil(sides / side), 1.0).astype(int)
    low = (-0.5 * side * counts).astype(np.float32)
    total = int(counts.prod())
    solids = gather([bare], device)
    lattice = Lattice()
    lattice.low, lattice.side = wp.vec3(*(low + np.float32(0.5 * side))), side
    lattice.count_x, lattice.count_y = int(counts[0]), int(counts[1])
    slack = SLACK * float(np.linalg.norm(surface.half))
    lattice.half, lattice.slack = 0.5 * np.sqrt(3.0) * side + 4.0 * slack, 4.0 * slack
    distance = wp.zeros(total, dtype=wp.float32, device=device)
    count = wp.zeros(total, dtype=wp.int32, device=device)
    wp.launch(_measure, total, [solids, lattice, distance], device=device)
    cells = np.zeros(total, _CELL)
    cells["distance"] = distance.numpy()
    away = np.abs(cells["distance"])
    nearest_first = np.argsort(away, kind="stable").astype(np.int32)
    band = PADDING * 2.0 * float(surface.half.max()) + side
    for ring in np.array_split(nearest_first[: int((away <= band).sum())], RINGS):
        some = wp.array(ring, dtype=wp.int32, device=device)
        wp.launch(_count, len(ring), [solids, lattice, distance, some, count], device=device)
        cells["count"] = count.numpy()
        if (cells["count"][ring] > 0).sum() < WORTHWHILE * len(ring) or cells["count"].sum() > MAX_ENTRIES:
            break
    cells["count"][nearest_first[np.cumsum(cells["count"][nearest_first]) > MAX_ENTRIES]] = 0
    cells["start"] = np.cumsum(cells["count"]) - cells["count"]
    listed = int(cells["count"].sum())
    entries = wp.zeros(max(listed, 1), dtype=wp.int32, device=device)
    lists = [wp.array(np.ascontiguousarray(cells[name]), dtype=wp.int32, device=device) for name in ("count", "start")]
    wp.launch(_list, total, [solids, lattice, distance, *lists, entries], device=device)
    wp.launch(_thin, total, [solids, lattice, *lists, entries, count], device=device)
    cells["count"] = count.numpy()
    cells["start"] = np.cumsum(cells["count"]) - cells["count"]
    kept = entries.numpy()[:listed]
    step = float(2.0 * lattice.half / int(STEPS))
    return PreparedMesh(surface, bare.tree, low, side, tuple(counts.tolist()), cells, step, kept[kept >= 0])


def gather(prepared: Sequence[PreparedMesh], device: str) -> Solids:
    """Return the concatenated arrays of meshes for kernels, without instances."""
    solids: list[Solid] = []
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in _TYPES}
    vertex = face = cell = entry = 0
    for mesh in prepared:
        surface, s = mesh.surface, Solid()
        s.mesh, s.centre, s.half = mesh.tree.id, wp.vec3d(*surface.centre), wp.vec3(*surface.half)
        s.face, s.count, s.cell = face, len(surface.faces), cell
        s.low, s.side = wp.vec3(*mesh.low), mesh.side
        s.count_x, s.count_y, s.count_z = mesh.counts
        s.step = mesh.step
        s.slack = SLACK * float(np.linalg.norm(surface.half))
        solids.append(s)
        cells = mesh.cells.copy()
        cells["start"] += entry
        rows = {
            "vertices": surface.vertices,
            "vertex_normals": surface.vertex_normals,
            "faces": surface.faces + vertex,
            "face_normals": surface.face_normals,
            "edge_normals": surface.edge_normals.reshape(-1, 3),
            "frames": _frames(surface).reshape(-1, 4),
            "cells": cells,
            "entries": mesh.entries,
        }
        for name, values in rows.items():
            parts[name].append(values)
        vertex, face = vertex + len(surface.vertices), face + len(surface.faces)
        cell, entry = cell + len(cells), entry + len(mesh.entries)
    out = Solids()
    for name, (dtype, kind, width) in _TYPES.items():
        values = np.concatenate([np.zeros((0, width) if width else 0, kind), *parts[name]]).astype(kind)
        setattr(out, name, wp.array(values, dtype=dtype, device=device))
    out.solids = wp.array(solids, dtype=Solid, device=device) if solids else wp.zeros(0, dtype=Solid, device=device)
    out.solids.trees = [mesh.tree for mesh in prepared]  # kernels know them by their ids; this keeps them alive
    out.solid = wp.zeros(0, dtype=wp.int32, device=device)
    out.scale = wp.zeros(0, dtype=wp.vec3, device=device)
    return out


_TYPES: dict[str, tuple[Any, Any, int]] = {
    "vertices": (wp.vec3d, np.float64, 3),
    "vertex_normals": (wp.vec3, np.float32, 3),
    "faces": (wp.vec3i, np.int32, 3),
    "face_normals": (wp.vec3, np.float32, 3),
    "edge_normals": (wp.vec3, np.float32, 3),
    "frames": (wp.vec4, np.float32, 4),
    "cells": (Cell, _CELL, 0),
    "entries": (wp.int32, np.int32, 0),
}
"""Kernel type, NumPy type and row size of each array of `Solids`."""


def _frames(surface: SolidSurface) -> NDArray[np.float64]:
    """Return the values of `Solids.frames`, `[face, 4, 4]`."""
    a, b, c = (surface.vertices[surface.faces[:, k]] for k in range(3))
    length = np.linalg.norm(b - a, axis=1)
    along = (b - a) / length[:, None]
    across = np.cross(surface.face_normals, along)
    out = np.zeros((len(a), 4, 4))
    for k, axis in enumerate((surface.face_normals, along, across)):
        out[:, k, :3], out[:, k, 3] = axis, -(axis * a).sum(axis=1)
    x, y = ((axis * (c - a)).sum(axis=1) for axis in (along, across))
    out[:, 3] = np.stack([length, x, y, 1.0 / ((x - length) ** 2 + y**2)], axis=1)
    return out


class PreparedMeshes:
    """Prepared meshes of a scene, shared by all users; new arrays are created only for a new mesh.

    Args:
        device: device of the arrays.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._rows: dict[Any, int] = {}
        self._prepared: list[PreparedMesh] = []
        self._gathered: Solids | None = None

    def __len__(self) -> int:
        return len(self._prepared)

    def row(self, mesh: Mesh, scale: tuple[float, ...]) -> int:
        """Return the index of a mesh, scaled by positive factors, in `gathered`.

        Raises:
            ModelError: the mesh is not closed; see `surface_of`.
        """
        key = (mesh.vertices.tobytes(), mesh.faces.tobytes(), scale)
        if key not in self._rows:
            self._prepared.append(prepare_mesh(mesh, scale, self._device))
            self._rows[key] = len(self._prepared) - 1
            self._gathered = None
        return self._rows[key]

    @property
    def gathered(self) -> Solids:
        """All prepared meshes for kernels; holders of older arrays keep these."""
        if self._gathered is None:
            self._gathered = gather(self._prepared, self._device)
        return self._gathered

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(int(getattr(self.gathered, name).capacity) for name in _TYPES)


def build_solids(
    meshes: Sequence[tuple[Mesh, tuple[float, float, float]] | None],
    device: str,
    prepared: PreparedMeshes | None = None,
) -> Solids:
    """Return the data for `signed_distance` of the meshes of all instance rows, None for rows of another kind.

    Rows with the same triangles, and scales of one ratio with any signs, share all data.

    Args:
        meshes: mesh and scale of each row.
        device: device of the arrays.
        prepared: earlier prepared meshes, whose arrays are shared; new ones are added.

    Raises:
        ModelError: a mesh is not closed; see `surface_of`.
    """
    prepared = PreparedMeshes(device) if prepared is None else prepared
    rows: list[int] = []
    scales: list[tuple[float, ...]] = []
    for item in meshes:
        if item is None:
            rows.append(-1)
            scales.append((1.0, 1.0, 1.0))
            continue
        mesh, scale = item
        size = np.abs(scale)
        is_even = bool((size == size[0]).all())
        rows.append(prepared.row(mesh, (1.0, 1.0, 1.0) if is_even else tuple(size.tolist())))
        scales.append(tuple(scale) if is_even else tuple(np.sign(scale).tolist()))
    out = Solids()
    for name in ("solids", *_TYPES):
        setattr(out, name, getattr(prepared.gathered, name))
    out.solid = wp.array(np.array(rows, np.int32), dtype=wp.int32, device=device)
    out.scale = wp.array(np.array(scales, np.float32).reshape(-1, 3), dtype=wp.vec3, device=device)
    return out
