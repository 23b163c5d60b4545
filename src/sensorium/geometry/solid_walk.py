"""Signed distances to closed meshes, for kernels: by lists of triangles in the cells of a grid, else by a tree.

A mesh has a grid of cubes around it, which all environments share. Each cell knows the distance d of its centre, with
its sign. A distance changes by no more than the way that a point goes: a point at a distance r from the centre is from
d - r to d + r away from the surface, and that is enough to tell that most points are too far. Where the surface is
near, a cell also lists all triangles that can be the nearest to any of its points, those nearest to the centre first: a
walk ends where the rest cannot be nearer than what was found. Other cells ask the tree, with the limit d + r.

The nearest triangle is sought in float32, in a frame of each triangle, where nothing is lost to differences of squares;
the nearest point on it, its distance and the sign are worked out in float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import warp as wp

if TYPE_CHECKING:  # Warp's scalars have no operators that a type checker could see
    F64: TypeAlias = Any
else:
    F64 = wp.float64

_ZERO: Any = wp.constant(wp.float64(0.0))
_FAR = wp.constant(wp.float32(1.0e30))
FACE_BITS = wp.constant(wp.int32(20))
"""Bits of an entry that tell the triangle; a mesh with more triangles has no grid."""
STEPS = wp.constant(wp.int32(2047))
"""Steps of the distance in the other bits of an entry."""
FEW = wp.constant(wp.int32(64))
"""A mesh of no more triangles never asks its tree: all of them are tried."""


@wp.struct
class Solid:
    """One mesh, seen from the middle of the box around it.

    Attributes:
        mesh: id of its `wp.Mesh`.
        centre: middle of the box, in the mesh's frame, m.
        half: half the sides of the box, m.
        face: place of its first face; edges have three times this place.
        count: how many faces.
        cell: place of its first cell.
        low: least corner of the grid, m.
        side: side of a cell, m.
        count_x: cells along x; 0 for no grid.
        count_y: along y.
        count_z: along z.
        step: what a step of the distance in an entry is, m.
        slack: what float32 may have lost of a distance, m.
    """

    mesh: wp.uint64
    centre: wp.vec3d
    half: wp.vec3
    face: wp.int32
    count: wp.int32
    cell: wp.int32
    low: wp.vec3
    side: wp.float32
    count_x: wp.int32
    count_y: wp.int32
    count_z: wp.int32
    step: wp.float32
    slack: wp.float32


@wp.struct
class Cell:
    """A cell of a grid.

    Attributes:
        distance: signed, of its centre, m.
        start: place of the first entry of its list.
        count: entries of the list; 0 where the tree is asked.
    """

    distance: wp.float32
    start: wp.int32
    count: wp.int32


@wp.struct
class Solids:
    """Meshes as signed distances need them.

    Attributes:
        solid: row in `solids` of each instance row, -1 for another kind of shape.
        scale: what is left to scale of each instance, of one size but for the signs.
        solids: the different meshes.
        vertices: of all meshes, from their centres, m.
        vertex_normals: unit.
        faces: rows of the corners.
        face_normals: unit.
        edge_normals: unit, three of each face.
        frames: four of each face: its unit normal, the direction from its first to its second corner, the direction
            across both, each with what is left to add to a product with a point; then the second corner's place along
            the first direction, and the third corner's along both.
        cells: of all grids.
        entries: of all lists: a face's place among its mesh's, and above `FACE_BITS` how much farther from the cell's
            centre it is than the nearest, in `STEPS` of the most that this can be; a bit less.
    """

    solid: wp.array[wp.int32]
    scale: wp.array[wp.vec3]
    solids: wp.array[Solid]
    vertices: wp.array[wp.vec3d]
    vertex_normals: wp.array[wp.vec3]
    faces: wp.array[wp.vec3i]
    face_normals: wp.array[wp.vec3]
    edge_normals: wp.array[wp.vec3]
    frames: wp.array[wp.vec4]
    cells: wp.array[Cell]
    entries: wp.array[wp.int32]


@wp.func
def gap_sq(frames: wp.array[wp.vec4], face: int, q: wp.vec3, best: float) -> wp.float32:
    """Return the square of the distance from a point to a triangle; infinite where its plane is that far already.

    Args:
        frames: those of `Solids`; by themselves, for a call copies what it is given.
        face: place of the face.
        q: the point, from the mesh's centre, m.
        best: a square of a distance, m^2.
    """
    f = frames[4 * face]
    w = f[0] * q[0] + f[1] * q[1] + f[2] * q[2] + f[3]
    out = w * w
    if out >= best:
        return wp.inf
    f = frames[4 * face + 1]
    u = f[0] * q[0] + f[1] * q[1] + f[2] * q[2] + f[3]
    f = frames[4 * face + 2]
    v = f[0] * q[0] + f[1] * q[1] + f[2] * q[2] + f[3]
    f = frames[4 * face + 3]
    gap = wp.float32(_FAR)
    if v < 0.0:  # beyond the first side; a point is nearest to a side that it is beyond
        x = u - wp.clamp(u, 0.0, f[0])
        gap = x * x + v * v
    ex = f[1] - f[0]
    x = u - f[0]
    if ex * v < f[2] * x:
        t = wp.clamp((ex * x + f[2] * v) * f[3], 0.0, 1.0)
        x -= t * ex
        y = v - t * f[2]
        gap = wp.min(gap, x * x + y * y)
    if f[1] * v > f[2] * u:
        t = wp.clamp((f[1] * u + f[2] * v) / (f[1] * f[1] + f[2] * f[2]), 0.0, 1.0)
        x = u - t * f[1]
        y = v - t * f[2]
        gap = wp.min(gap, x * x + y * y)
    if gap < _FAR:
        out += gap
    return out


@wp.func
def _foot(a: wp.vec3d, b: wp.vec3d, c: wp.vec3d) -> tuple[wp.vec3d, wp.int32]:
    """Return the point of a triangle nearest to the origin, and where it is.

    It is at a corner (0 to 2), on an edge (3 from a to b, 4 from b to c, 5 from c to a) or between them (6). After C.
    Ericson, "Real-Time Collision Detection", 5.1.5.
    """
    ab = b - a
    ac = c - a
    d1 = -wp.dot(ab, a)
    d2 = -wp.dot(ac, a)
    if d1 <= _ZERO and d2 <= _ZERO:
        return a, 0
    d3 = -wp.dot(ab, b)
    d4 = -wp.dot(ac, b)
    if d3 >= _ZERO and d4 <= d3:
        return b, 1
    vc = d1 * d4 - d3 * d2
    if vc <= _ZERO and d1 >= _ZERO and d3 <= _ZERO:
        return a + (d1 / (d1 - d3)) * ab, 3
    d5 = -wp.dot(ab, c)
    d6 = -wp.dot(ac, c)
    if d6 >= _ZERO and d5 <= d6:
        return c, 2
    vb = d5 * d2 - d1 * d6
    if vb <= _ZERO and d2 >= _ZERO and d6 <= _ZERO:
        return a + (d2 / (d2 - d6)) * ac, 5
    va = d3 * d6 - d5 * d4
    if va <= _ZERO and d4 - d3 >= _ZERO and d5 - d6 >= _ZERO:
        return b + ((d4 - d3) / ((d4 - d3) + (d5 - d6))) * (c - b), 4
    total = va + vb + vc
    return a + (vb / total) * ab + (vc / total) * ac, 6


@wp.func
def _finish(solids: Solids, s: Solid, face: int, q: wp.vec3d) -> tuple[wp.float32, wp.vec3d, wp.vec3]:
    """Return the signed distance to the nearest triangle, the way to its nearest point, and the gradient.

    Args:
        solids: all meshes.
        s: the mesh.
        face: place of the face.
        q: the point, from the mesh's centre, m.
    """
    corner = solids.faces[face]
    arm, feature = _foot(solids.vertices[corner[0]] - q, solids.vertices[corner[1]] - q, solids.vertices[corner[2]] - q)
    length = wp.length(arm)
    if feature == 6:
        normal = solids.face_normals[face]
        far = wp.float32(length)
        if wp.dot(arm, wp.vec3d(normal)) > _ZERO:
            far = -far
        return far, arm, normal
    normal = wp.vec3()
    if feature < 3:
        normal = solids.vertex_normals[corner[feature]]
    else:
        normal = solids.edge_normals[3 * face + feature - 3]
    side = wp.float64(1.0)
    if wp.dot(arm, wp.vec3d(normal)) > _ZERO:
        side = -side
    if length > wp.float64(s.slack):
        normal = wp.vec3((-side / length) * arm)
    return wp.float32(side * length), arm, normal


@wp.func
def _nearest_face(s: Solid, frames: wp.array[wp.vec4], p: wp.vec3, limit: float) -> wp.int32:
    """Return the place of the face that is nearest to a point, by the tree; -1 beyond a limit."""
    face = wp.int32(-1)
    if s.count <= FEW:
        best = limit * limit
        for k in range(s.face, s.face + s.count):
            gap = gap_sq(frames, k, p, best)
            if gap < best:
                best = gap
                face = k
        return face
    query = wp.mesh_query_point_no_sign(s.mesh, p, limit)
    if query.result:
        face = s.face + query.face
    return face


@wp.func
def by_tree(solids: Solids, s: Solid, q: wp.vec3d, limit: float) -> wp.float32:
    """Return the signed distance to a mesh, m, without its grid; infinite beyond a limit.

    Args:
        solids: all meshes.
        s: the mesh.
        q: the point, from the mesh's centre, m.
        limit: how far to look, m.
    """
    face = _nearest_face(s, solids.frames, wp.vec3(q), limit)
    if face < 0:
        return wp.inf
    far, _arm, _out = _finish(solids, s, face, q)
    return far


@wp.func
def signed_mesh(solids: Solids, which: int, q: wp.vec3d, reach: float) -> tuple[wp.float32, wp.vec3d, wp.vec3]:
    """Return the signed distance to a mesh, m, the way to the nearest point, and the gradient, in the mesh's axes.

    Args:
        solids: all meshes.
        which: row in `solids.solids`.
        q: the point, from the mesh's centre, m.
        reach: an outer distance above this may be told as +inf, m.
    """
    s = solids.solids[which]
    p = wp.vec3(q)
    over = wp.vec3()
    for i in range(3):
        over[i] = wp.max(wp.abs(p[i]) - s.half[i], 0.0)
    if wp.isnan(p[0] + p[1] + p[2]):
        return wp.nan, wp.vec3d(), wp.vec3(0.0, 0.0, 1.0)
    outside = wp.length(over)
    if outside > reach + s.slack or wp.isinf(outside):
        return wp.inf, wp.vec3d(), wp.vec3(0.0, 0.0, 1.0)
    limit = wp.float32(_FAR)
    face = wp.int32(-1)
    is_listed = wp.bool(False)
    if s.count_x > 0:
        at = (p - s.low) / s.side
        x = wp.clamp(wp.int32(wp.floor(at[0])), 0, s.count_x - 1)
        y = wp.clamp(wp.int32(wp.floor(at[1])), 0, s.count_y - 1)
        z = wp.clamp(wp.int32(wp.floor(at[2])), 0, s.count_z - 1)
        cell = solids.cells[s.cell + (z * s.count_y + y) * s.count_x + x]
        off = wp.vec3(at[0] - wp.float32(x) - 0.5, at[1] - wp.float32(y) - 0.5, at[2] - wp.float32(z) - 0.5)
        away = s.side * wp.length(off) + s.slack
        limit = wp.abs(cell.distance) + away
        if cell.distance > away:  # outside for certain
            if cell.distance - away > reach:
                return wp.inf, wp.vec3d(), wp.vec3(0.0, 0.0, 1.0)
            limit = wp.min(limit, reach + s.slack)
        if cell.count > 0 and wp.max(wp.max(wp.abs(off[0]), wp.abs(off[1])), wp.abs(off[2])) <= 0.5:
            is_listed = True
            far = limit
            best = limit * limit
            nearest = wp.abs(cell.distance) - away
            for k in range(cell.start, cell.start + cell.count):
                entry = solids.entries[k]
                if nearest + s.step * wp.float32(entry >> FACE_BITS) >= far:
                    break
                row = s.face + (entry & ((1 << FACE_BITS) - 1))
                gap = gap_sq(solids.frames, row, p, best)
                if gap < best:
                    best = gap
                    far = wp.sqrt(gap)
                    face = row
    elif outside > 0.0:
        limit = wp.min(limit, reach + s.slack)
    if not is_listed:
        face = _nearest_face(s, solids.frames, p, limit)
    if face < 0:
        return wp.inf, wp.vec3d(), wp.vec3(0.0, 0.0, 1.0)
    distance, arm, out = _finish(solids, s, face, q)
    return distance, arm, out


__all__ = ["FACE_BITS", "FEW", "STEPS", "Cell", "Solid", "Solids", "by_tree", "gap_sq", "signed_mesh"]
