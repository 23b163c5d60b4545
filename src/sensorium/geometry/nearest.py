"""Nearest point on surfaces, for kernels: analytic shapes, meshes and height fields.

Points are given in the shape's own frame. A distance is that to the surface, from inside a solid as from outside. Of
several equally near points, always the same one is returned. Sizes are those of `sensorium.geometry.shapes`.

Corners of triangles and the ellipsoid are computed in float64, because differences of squares would lose precision in
float32.
"""

from __future__ import annotations

from typing import Any

import warp as wp

from sensorium.geometry.hfield import COARSE, FINE, HField, HFields, surface_at
from sensorium.geometry.primitives import BOX, CAPSULE, CYLINDER, ELLIPSOID, PLANE, SPHERE
from sensorium.random import F64

NEWTON = wp.constant(wp.int32(32))
"""Maximum number of steps towards the nearest point of an ellipsoid; radii of a ratio of 10^6 took up to 15."""
_ZERO: Any = wp.constant(wp.float64(0.0))
_ONE: Any = wp.constant(wp.float64(1.0))
_INF: Any = wp.constant(wp.float64(float("inf")))


# Analytic shapes ------------------------------------------------------------------------------------------------------


@wp.func
def _nearest_ellipsoid(radii: wp.vec3, p: wp.vec3) -> wp.vec3:
    """Return the nearest point on the surface of an ellipsoid.

    The foot is x_i = a_i^2 p_i / (t + a_i^2) with the greatest t that puts it on the surface (D. Eberly, "Distance from
    a Point to an Ellipse, an Ellipsoid, or a Hyperellipsoid"). With c the smallest radius, r_i = (a_i / c)^2 and
    w = t / c^2 + 1, u_i = x_i / a_i = r_i (p_i / a_i) / (w + r_i - 1), and w is the zero of sum u_i^2 - 1, which is
    convex and decreasing. Newton's steps from a w at which one u_i is 1 and the others are at most 1 therefore never
    overshoot.
    """
    least = wp.float64(wp.min(radii[0], wp.min(radii[1], radii[2])))
    a = wp.vec3d(radii)
    lift = wp.vec3d()  # r_i - 1
    z = wp.vec3d()
    w = _ZERO
    for i in range(3):
        lift[i] = (a[i] - least) * (a[i] + least) / (least * least)
        z[i] = (_ONE + lift[i]) * wp.abs(wp.float64(p[i])) / a[i]
        w = wp.max(w, z[i] - lift[i])
    u = wp.vec3d()
    for _ in range(NEWTON):
        total = -_ONE
        slope = _ZERO
        for i in range(3):
            u[i] = _ZERO
            if z[i] > _ZERO:
                u[i] = z[i] / (w + lift[i])
                total += u[i] * u[i]
                slope += u[i] * u[i] / (w + lift[i])
        if total <= _ZERO:
            break
        w += total / (wp.float64(2.0) * slope)
    if w == _ZERO:  # deep inside, on the plane perpendicular to the shortest axis: the foot is off that plane
        rest = _ONE
        short = wp.int32(0)
        for i in range(3):
            rest -= u[i] * u[i]
            if a[i] < a[short]:
                short = i
        u[short] = wp.sqrt(wp.max(rest, _ZERO))
    u = wp.normalize(u)
    foot = wp.vec3()
    for i in range(3):
        foot[i] = wp.float32(a[i] * u[i])
        if p[i] < 0.0:
            foot[i] = -foot[i]
    return foot


@wp.func
def _nearest_cylinder(radius: float, half_length: float, p: wp.vec3) -> wp.vec3:
    """Return the nearest point on the side or the caps of a cylinder along z."""
    rho = wp.sqrt(p[0] * p[0] + p[1] * p[1])
    x = wp.float32(1.0)
    y = wp.float32(0.0)
    if rho > 0.0:
        x = p[0] / rho
        y = p[1] / rho
    z = wp.clamp(p[2], -half_length, half_length)
    if rho < radius and wp.abs(p[2]) < half_length:
        if radius - rho <= half_length - wp.abs(p[2]):
            return wp.vec3(radius * x, radius * y, p[2])
        if p[2] < 0.0:
            return wp.vec3(p[0], p[1], -half_length)
        return wp.vec3(p[0], p[1], half_length)
    side = wp.min(rho, radius)
    return wp.vec3(side * x, side * y, z)


@wp.func
def signed_round(arm: wp.vec3, radius: float) -> tuple[wp.float32, wp.vec3]:
    """Return the signed distance from the surface around a centre, or an axis, and the gradient."""
    length = wp.length(arm)
    if length > 0.0:
        return length - radius, arm / length
    return -radius, wp.vec3(1.0, 0.0, 0.0)


@wp.func
def signed_box(size: wp.vec3, p: wp.vec3) -> tuple[wp.float32, wp.vec3, wp.vec3]:
    """Return the signed distance to a box, its nearest point, and the gradient."""
    foot = wp.vec3()
    over = wp.vec3()
    outward = wp.vec3()
    most = -wp.float32(wp.inf)
    axis = wp.int32(0)
    for i in range(3):
        gap = wp.abs(p[i]) - size[i]
        if gap > most:
            most = gap
            axis = i
        outward[i] = wp.where(p[i] < 0.0, -1.0, 1.0)
        over[i] = outward[i] * wp.max(gap, 0.0)
        foot[i] = wp.clamp(p[i], -size[i], size[i])
    if most > 0.0:
        length = wp.length(over)
        return length, foot, over / length
    foot[axis] = outward[axis] * size[axis]
    gradient = wp.vec3()
    gradient[axis] = outward[axis]
    return most, foot, gradient


@wp.func
def _foot(kind: int, size: wp.vec3, p: wp.vec3) -> wp.vec3:
    """Return the nearest point on the surface of an analytic shape; (inf, inf, inf) for other kinds."""
    if kind == SPHERE or kind == CAPSULE:
        z = wp.float32(0.0)
        if kind == CAPSULE:
            z = wp.clamp(p[2], -size[1], size[1])
        _far, out = signed_round(wp.vec3(p[0], p[1], p[2] - z), size[0])
        return wp.vec3(size[0] * out[0], size[0] * out[1], z + size[0] * out[2])
    if kind == BOX:
        _far, foot, _out = signed_box(size, p)
        return foot
    if kind == CYLINDER:
        return _nearest_cylinder(size[0], size[1], p)
    if kind == ELLIPSOID:
        return _nearest_ellipsoid(size, p)
    if kind == PLANE:
        x = p[0]
        y = p[1]
        if size[0] > 0.0:
            x = wp.clamp(x, -size[0], size[0])
        if size[1] > 0.0:
            y = wp.clamp(y, -size[1], size[1])
        return wp.vec3(x, y, 0.0)
    return wp.vec3(wp.inf, wp.inf, wp.inf)


@wp.func
def nearest_primitive(kind: int, size: wp.vec3, p: wp.vec3) -> tuple[wp.vec3, wp.float32]:
    """Return the nearest point on the surface of an analytic shape, and the distance to it, m.

    Args:
        kind: PLANE to BOX; for a mesh or a height field both results are infinite.
        size: as in `sensorium.geometry.shapes`, m; unused entries are not read.
        p: a point in the shape's frame, m.
    """
    foot = _foot(kind, size, p)
    return foot, wp.length(p - foot)


# Triangles ------------------------------------------------------------------------------------------------------------


@wp.func
def nearest_on_triangle(a: wp.vec3d, b: wp.vec3d, c: wp.vec3d) -> tuple[wp.vec3d, wp.int32]:
    """Return the point of a triangle nearest to the origin, and its feature.

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
def nearest_mesh(mesh: wp.uint64, p: wp.vec3, limit: float) -> tuple[wp.vec3, wp.float32, wp.int32]:
    """Return the nearest point on a mesh, the distance, m, and the triangle; (inf, inf, -1) beyond the limit.

    Args:
        mesh: id of the `wp.Mesh`.
        p: a point in the mesh's frame, m.
        limit: maximum distance, m.
    """
    query = wp.mesh_query_point_no_sign(mesh, p, limit)
    if not query.result:
        return wp.vec3(wp.inf, wp.inf, wp.inf), wp.inf, -1
    origin = wp.vec3d(p)
    a = wp.vec3d(wp.mesh_get_point(mesh, 3 * query.face)) - origin
    b = wp.vec3d(wp.mesh_get_point(mesh, 3 * query.face + 1)) - origin
    c = wp.vec3d(wp.mesh_get_point(mesh, 3 * query.face + 2)) - origin
    arm, _feature = nearest_on_triangle(a, b, c)
    return wp.vec3(origin + arm), wp.float32(wp.length(arm)), query.face


# Height fields --------------------------------------------------------------------------------------------------------


@wp.func
def _gap(q: F64, low: F64, high: F64) -> F64:
    """Return the distance of a number from an interval."""
    return wp.max(_ZERO, wp.max(low - q, q - high))


@wp.func
def _block_gap(h: HField, q: wp.vec3d, col: int, row: int, cols: int, rows: int, low: F64, high: F64) -> F64:
    """Return the distance from a point to the box around some cells."""
    x0 = wp.float64(col) / h.per_x - h.half_x
    y0 = wp.float64(row) / h.per_y - h.half_y
    gap = wp.vec3d(
        _gap(q[0], x0, wp.float64(col + cols) / h.per_x - h.half_x),
        _gap(q[1], y0, wp.float64(row + rows) / h.per_y - h.half_y),
        _gap(q[2], low, high),
    )
    return wp.length(gap)


@wp.func
def nearest_hfield(fields: HFields, index: int, p: wp.vec3, limit: float) -> tuple[wp.vec3, wp.float32]:
    """Return the nearest point on a height field and the distance, m; infinite beyond the limit.

    The side walls and the bottom of a solid field count. The surface is searched within the known distance to the point
    above or below, by blocks of cells with their minimum and maximum heights.

    Args:
        fields: all fields.
        index: index of the field.
        p: a point in the field's frame, m.
        limit: maximum distance, m.
    """
    h = fields.fields[index]
    q = wp.vec3d(p)
    best = wp.float64(limit)
    arm = wp.vec3d(_INF, _INF, _INF)
    floor = wp.float64(h.low)
    if h.base >= 0.0:
        floor = wp.min(floor, -wp.float64(h.base))
    if _block_gap(h, q, 0, 0, h.cols - 1, h.rows - 1, floor, wp.float64(h.high)) > best:
        return wp.vec3(wp.inf, wp.inf, wp.inf), wp.inf
    x = wp.clamp(q[0], -h.half_x, h.half_x)
    y = wp.clamp(q[1], -h.half_y, h.half_y)
    for k in range(6):  # the surface above or below, then the bottom and the walls of a solid
        spot = wp.vec3d(x, y, -wp.float64(h.base))
        if k == 0:
            spot = wp.vec3d(x, y, surface_at(fields, h, (x + h.half_x) * h.per_x, (y + h.half_y) * h.per_y))
        elif h.base < 0.0:
            continue
        elif k >= 2:
            if k < 4:
                spot[0] = wp.float64(2 * k - 5) * h.half_x
            else:
                spot[1] = wp.float64(2 * k - 9) * h.half_y
            top = surface_at(fields, h, (spot[0] + h.half_x) * h.per_x, (spot[1] + h.half_y) * h.per_y)
            spot[2] = wp.clamp(q[2], -wp.float64(h.base), top)
        length = wp.length(spot - q)
        if length <= best:
            best = length
            arm = spot - q
    first_col = wp.clamp(wp.int32(wp.floor((q[0] - best + h.half_x) * h.per_x)), 0, h.cols - 2)
    last_col = wp.clamp(wp.int32(wp.floor((q[0] + best + h.half_x) * h.per_x)), 0, h.cols - 2)
    first_row = wp.clamp(wp.int32(wp.floor((q[1] - best + h.half_y) * h.per_y)), 0, h.rows - 2)
    last_row = wp.clamp(wp.int32(wp.floor((q[1] + best + h.half_y) * h.per_y)), 0, h.rows - 2)
    coarse_cols = ((h.cols - 2) >> COARSE) + 1
    fine_cols = ((h.cols - 2) >> FINE) + 1
    inner = COARSE - FINE
    for big_row in range(first_row >> COARSE, (last_row >> COARSE) + 1):
        for big_col in range(first_col >> COARSE, (last_col >> COARSE) + 1):
            z = fields.blocks[h.coarse + big_row * coarse_cols + big_col]
            side = 1 << COARSE
            far = _block_gap(h, q, big_col * side, big_row * side, side, side, wp.float64(z[0]), wp.float64(z[1]))
            if far >= best:
                continue
            for mid_row in range(
                wp.max(big_row << inner, first_row >> FINE), wp.min(((big_row + 1) << inner) - 1, last_row >> FINE) + 1
            ):
                for mid_col in range(
                    wp.max(big_col << inner, first_col >> FINE),
                    wp.min(((big_col + 1) << inner) - 1, last_col >> FINE) + 1,
                ):
                    zs = fields.blocks[h.fine + mid_row * fine_cols + mid_col]
                    step = 1 << FINE
                    near = _block_gap(
                        h, q, mid_col * step, mid_row * step, step, step, wp.float64(zs[0]), wp.float64(zs[1])
                    )
                    if near >= best:
                        continue
                    for row in range(
                        wp.max(mid_row << FINE, first_row), wp.min(((mid_row + 1) << FINE) - 1, last_row) + 1
                    ):
                        for col in range(
                            wp.max(mid_col << FINE, first_col), wp.min(((mid_col + 1) << FINE) - 1, last_col) + 1
                        ):
                            found = _nearest_in_cell(fields, h, q, col, row, best)
                            length = wp.length(found)
                            if length < best:
                                best = length
                                arm = found
    if arm[0] == _INF:
        return wp.vec3(wp.inf, wp.inf, wp.inf), wp.inf
    return wp.vec3(q + arm), wp.float32(best)


@wp.func
def _nearest_in_cell(fields: HFields, h: HField, q: wp.vec3d, col: int, row: int, best: F64) -> wp.vec3d:
    """Return the vector from a point to the nearest point of a cell's two triangles; infinite if it is too far."""
    at = h.heights + row * h.cols + col
    z00 = wp.float64(fields.heights[at])
    z01 = wp.float64(fields.heights[at + 1])
    z10 = wp.float64(fields.heights[at + h.cols])
    z11 = wp.float64(fields.heights[at + h.cols + 1])
    low = wp.min(wp.min(z00, z01), wp.min(z10, z11))
    high = wp.max(wp.max(z00, z01), wp.max(z10, z11))
    if _block_gap(h, q, col, row, 1, 1, low, high) >= best:
        return wp.vec3d(_INF, _INF, _INF)
    x0 = wp.float64(col) / h.per_x - h.half_x - q[0]
    x1 = wp.float64(col + 1) / h.per_x - h.half_x - q[0]
    y0 = wp.float64(row) / h.per_y - h.half_y - q[1]
    y1 = wp.float64(row + 1) / h.per_y - h.half_y - q[1]
    a = wp.vec3d(x0, y0, z00 - q[2])
    b = wp.vec3d(x1, y1, z11 - q[2])
    right, _feature = nearest_on_triangle(a, wp.vec3d(x1, y0, z01 - q[2]), b)
    left, _feature = nearest_on_triangle(a, b, wp.vec3d(x0, y1, z10 - q[2]))
    if wp.length_sq(left) < wp.length_sq(right):
        return left
    return right
