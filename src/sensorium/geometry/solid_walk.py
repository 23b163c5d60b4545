"""Signed distances to closed meshes, for kernels: by lists of triangles in the cells of a grid, or by a tree.

A mesh has a grid of cubes around it, which all environments share. Each cell stores the signed distance d of its
centre. A distance changes at most by the distance that a point moves: a point at a distance r from the centre is from d
- r to d + r away from the surface, which suffices to reject most points as too far. Near the surface, a cell also lists
all triangles that can be the nearest to any of its points, those nearest to the centre first. A search ends when the
rest cannot be nearer than the best so far. Other cells use the tree, with the limit d + r.

The nearest triangle is searched in float32, in a frame of each triangle, where differences of squares lose no
precision. The nearest point on it, its distance and the sign are computed in float64.
"""

from __future__ import annotations

from typing import Any

import warp as wp

from sensorium.geometry.nearest import nearest_on_triangle

_ZERO: Any = wp.constant(wp.float64(0.0))
_FAR = wp.constant(wp.float32(1.0e30))
FACE_BITS = wp.constant(wp.int32(20))
"""Bits of an entry that hold the triangle; a mesh with more triangles has no grid."""
STEPS = wp.constant(wp.int32(2047))
"""Number of distance steps in the other bits of an entry."""
FEW = wp.constant(wp.int32(64))
"""Maximum number of triangles of a mesh that is searched completely, without its tree."""


@wp.struct
class Solid:
    """One mesh, relative to the centre of its bounding box.

    Attributes:
        mesh: id of its `wp.Mesh`.
        centre: centre of the box, in the mesh's frame, m.
        half: half the sides of the box, m.
        face: index of its first face; its edges start at three times this index.
        count: number of faces.
        cell: index of its first cell.
        low: minimum corner of the grid, m.
        side: side of a cell, m.
        count_x: cells along x; 0 for no grid.
        count_y: cells along y.
        count_z: cells along z.
        step: size of a distance step in an entry, m.
        slack: maximum float32 error of a distance, m.
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
        start: index of the first entry of its list.
        count: entries of the list; 0 if the tree is used.
    """

    distance: wp.float32
    start: wp.int32
    count: wp.int32


@wp.struct
class Solids:
    """Meshes in the form needed for signed distances.

    Attributes:
        solid: row in `solids` of each instance row, -1 for another kind of shape.
        scale: remaining scale of each instance, of one magnitude with signs.
        solids: the distinct meshes.
        vertices: of all meshes, relative to their centres, m.
        vertex_normals: unit.
        faces: rows of the corners.
        face_normals: unit.
        edge_normals: unit, three per face.
        frames: four per face: its unit normal, the direction from its first to its second corner, the direction
            perpendicular to both, each with the constant of its product with a point; then the second corner's
            coordinate along the first direction, and the third corner's along both.
        cells: of all grids.
        entries: of all lists: a face's index within its mesh, and above `FACE_BITS` its distance from the cell's centre
            beyond the nearest one, in `STEPS` of the greatest such distance, rounded down.
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
    """Return the squared distance from a point to a triangle; infinite if its plane is already too far.

    Args:
        frames: those of `Solids`, passed separately because a call copies its arguments.
        face: index of the face.
        q: the point, relative to the mesh's centre, m.
        best: a squared distance, m^2.
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
def _finish(solids: Solids, s: Solid, face: int, q: wp.vec3d) -> tuple[wp.float32, wp.vec3d, wp.vec3]:
    """Return the signed distance to the nearest triangle, the vector to its nearest point, and the gradient.

    Args:
        solids: all meshes.
        s: the mesh.
        face: index of the face.
        q: the point, relative to the mesh's centre, m.
    """
    corner = solids.faces[face]
    arm, feature = nearest_on_triangle(
        solids.vertices[corner[0]] - q, solids.vertices[corner[1]] - q, solids.vertices[corner[2]] - q
    )
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
    """Return the index of the face nearest to a point, by the tree; -1 beyond a limit."""
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
        q: the point, relative to the mesh's centre, m.
        limit: maximum distance, m.
    """
    face = _nearest_face(s, solids.frames, wp.vec3(q), limit)
    if face < 0:
        return wp.inf
    far, _arm, _out = _finish(solids, s, face, q)
    return far


@wp.func
def signed_mesh(solids: Solids, which: int, q: wp.vec3d, reach: float) -> tuple[wp.float32, wp.vec3d, wp.vec3]:
    """Return the signed distance to a mesh, m, the vector to the nearest point, and the gradient, in the mesh's axes.

    Args:
        solids: all meshes.
        which: row in `solids.solids`.
        q: the point, relative to the mesh's centre, m.
        reach: an outer distance above this may be returned as +inf, m.
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
