"""Signed distance, for kernels: the depth of a point in a solid, and the direction out of it.

Points are given in the shape's own frame. A distance is negative inside. Its gradient is a unit vector away from the
solid, both outside and inside; on the surface it is the outward normal. At an edge or a corner it is one of the outward
directions. Of several equally near points of the surface, always the same one is used.

The region below a plane is inside, whatever the plane's size, because solvers treat planes as unbounded; only rays use
the size. The region below a height field without a base is inside as well; the region beside it is outside. Meshes must
be closed; see `sensorium.geometry.solid_mesh`.
"""

from __future__ import annotations

import warp as wp

from sensorium.geometry.hfield import BASE, HFields, hfield_height, hfield_normal
from sensorium.geometry.nearest import nearest_hfield, nearest_on_triangle, nearest_primitive, signed_box, signed_round
from sensorium.geometry.primitives import BOX, CAPSULE, CYLINDER, ELLIPSOID, HFIELD, MESH, PLANE, SPHERE
from sensorium.geometry.ray_structs import Instances
from sensorium.geometry.solid_walk import Solids, signed_mesh


@wp.func
def _signed_cylinder(radius: float, half: float, p: wp.vec3) -> tuple[wp.float32, wp.vec3, wp.vec3]:
    """Return the signed distance to a cylinder along z, its nearest point, and the gradient."""
    rho = wp.sqrt(p[0] * p[0] + p[1] * p[1])
    x = wp.float32(1.0)
    y = wp.float32(0.0)
    if rho > 0.0:
        x = p[0] / rho
        y = p[1] / rho
    up = wp.where(p[2] < 0.0, -1.0, 1.0)
    side = rho - radius
    cap = wp.abs(p[2]) - half
    foot = wp.vec3(p[0], p[1], p[2])
    if side >= 0.0 or side >= cap:
        foot[0] = radius * x
        foot[1] = radius * y
    if cap >= 0.0 or cap > side:
        foot[2] = up * half
    if side > 0.0 and cap > 0.0:
        length = wp.sqrt(side * side + cap * cap)
        return length, foot, wp.vec3(side * x, side * y, up * cap) / length
    if side >= cap:
        return side, foot, wp.vec3(x, y, 0.0)
    return cap, foot, wp.vec3(0.0, 0.0, up)


@wp.func
def _signed_ellipsoid(radii: wp.vec3, p: wp.vec3) -> tuple[wp.float32, wp.vec3, wp.vec3]:
    """Return the signed distance to an ellipsoid, its nearest point, and the gradient.

    Close to the surface the vector from there loses precision, and the surface normal is used instead.
    """
    foot, distance = nearest_primitive(ELLIPSOID, radii, p)
    least = wp.min(radii[0], wp.min(radii[1], radii[2]))
    normal = wp.vec3()
    for i in range(3):
        normal[i] = (foot[i] / radii[i]) * (least / radii[i])
    normal = wp.normalize(normal)
    arm = p - foot
    if distance > 0.01 * wp.max(radii[0], wp.max(radii[1], radii[2])):
        if wp.length(wp.cw_div(p, radii)) < 1.0:
            distance = -distance
        return distance, foot, arm / distance
    return wp.dot(arm, normal), foot, normal


@wp.func
def signed_analytic(kind: int, size: wp.vec3, p: wp.vec3) -> tuple[wp.float32, wp.vec3, wp.vec3]:
    """Return the signed distance to an analytic shape, m, its nearest point, and the gradient.

    Args:
        kind: PLANE to BOX; for another kind the distance is +inf.
        size: as in `sensorium.geometry.shapes`, m; unused entries are not read.
        p: a point in the shape's frame, m.
    """
    if kind == SPHERE:
        far, out = signed_round(p, size[0])
        return far, size[0] * out, out
    if kind == CAPSULE:
        z = wp.clamp(p[2], -size[1], size[1])
        far, out = signed_round(wp.vec3(p[0], p[1], p[2] - z), size[0])
        return far, wp.vec3(0.0, 0.0, z) + size[0] * out, out
    if kind == BOX:
        far, foot, out = signed_box(size, p)
        return far, foot, out
    if kind == CYLINDER:
        far, foot, out = _signed_cylinder(size[0], size[1], p)
        return far, foot, out
    if kind == ELLIPSOID:
        far, foot, out = _signed_ellipsoid(size, p)
        return far, foot, out
    if kind == PLANE:
        return p[2], wp.vec3(p[0], p[1], 0.0), wp.vec3(0.0, 0.0, 1.0)
    return wp.inf, wp.vec3(wp.inf, wp.inf, wp.inf), wp.vec3(0.0, 0.0, 1.0)


@wp.func
def _signed_hfield(fields: HFields, index: int, p: wp.vec3, reach: float) -> tuple[wp.float32, wp.vec3, wp.vec3]:
    """Return the signed distance to a height field, its nearest point, and the gradient.

    The nearest point is known in float32; the vector to it is computed in float64, from the triangles around it.
    """
    h = fields.fields[index]
    top, face = hfield_height(fields, index, p[0], p[1])
    inside = p[2] < top and (h.base < 0.0 or p[2] > -h.base)  # beside the field its height is -inf
    limit = wp.where(inside, wp.inf, reach)
    foot, far = nearest_hfield(fields, index, p, limit)
    if not far <= limit:
        return wp.inf, foot, wp.vec3(0.0, 0.0, 1.0)
    side = wp.where(inside, -1.0, 1.0)
    # The foot is accurate to a few units in the last place, so it may be in a neighbouring cell.
    u = (wp.float64(foot[0]) + h.half_x) * h.per_x
    v = (wp.float64(foot[1]) + h.half_y) * h.per_y
    near = wp.float64(3.0e-7) * (h.half_x + h.half_y)
    du = near * h.per_x
    dv = near * h.per_y
    best = wp.float64(float(wp.inf))
    arm = wp.vec3d()
    for row in range(
        wp.clamp(wp.int32(wp.floor(v - dv)), 0, h.rows - 2), wp.clamp(wp.int32(wp.floor(v + dv)), 0, h.rows - 2) + 1
    ):
        for col in range(
            wp.clamp(wp.int32(wp.floor(u - du)), 0, h.cols - 2), wp.clamp(wp.int32(wp.floor(u + du)), 0, h.cols - 2) + 1
        ):
            at = h.heights + row * h.cols + col
            x0 = wp.float64(col) / h.per_x - h.half_x - wp.float64(p[0])
            x1 = wp.float64(col + 1) / h.per_x - h.half_x - wp.float64(p[0])
            y0 = wp.float64(row) / h.per_y - h.half_y - wp.float64(p[1])
            y1 = wp.float64(row + 1) / h.per_y - h.half_y - wp.float64(p[1])
            a = wp.vec3d(x0, y0, wp.float64(fields.heights[at]) - wp.float64(p[2]))
            b = wp.vec3d(x1, y1, wp.float64(fields.heights[at + h.cols + 1]) - wp.float64(p[2]))
            c = wp.vec3d(x1, y0, wp.float64(fields.heights[at + 1]) - wp.float64(p[2]))
            d = wp.vec3d(x0, y1, wp.float64(fields.heights[at + h.cols]) - wp.float64(p[2]))
            for k in range(2):
                way, _feature = nearest_on_triangle(a, c, b)
                if k == 1:
                    way, _feature = nearest_on_triangle(a, b, d)
                if wp.length_sq(way) < best:
                    best = wp.length_sq(way)
                    arm = way
                    face = 2 * (row * (h.cols - 1) + col) + k
    length = wp.sqrt(best)
    slack = wp.float64(4.0e-7) * (h.half_x + h.half_y + wp.abs(wp.float64(foot[2])))
    if length <= wp.float64(far) + slack:
        if length > slack:
            return side * wp.float32(length), wp.vec3(wp.vec3d(p) + arm), wp.vec3((-wp.float64(side) / length) * arm)
        return side * wp.float32(length), foot, hfield_normal(fields, index, face, foot)
    if wp.float64(far) > slack:  # on a wall or the bottom
        return side * far, foot, side * wp.normalize(p - foot)
    return side * far, foot, hfield_normal(fields, index, BASE, foot)


@wp.func
def signed_distance(
    instances: Instances, solids: Solids, fields: HFields, row: int, p: wp.vec3, reach: float
) -> tuple[wp.float32, wp.vec3, wp.vec3]:
    """Return the signed distance to one shape, m, the nearest point of its surface, and the gradient, in its frame.

    Args:
        instances: the shapes.
        solids: their meshes.
        fields: all height fields.
        row: row of the shape.
        p: a point in the shape's frame, m.
        reach: a distance above this may be returned as +inf, m; point and gradient are then undefined. Depths are
            always exact.
    """
    kind = instances.kind[row]
    if kind == MESH:
        scale = solids.scale[row]
        which = solids.solid[row]
        size = wp.vec3d(scale)
        factor = wp.abs(scale[0])
        centre = solids.solids[which].centre
        q = wp.cw_div(wp.vec3d(p), size) - centre
        far, arm, out = signed_mesh(solids, which, q, reach / factor)
        foot = wp.vec3(wp.cw_mul(q + arm + centre, size))
        return factor * far, foot, wp.cw_mul(out, scale / factor)
    if kind == HFIELD:
        far, foot, out = _signed_hfield(fields, instances.field[row], p, reach)
        return far, foot, out
    far, foot, out = signed_analytic(kind, instances.size[row], p)
    return far, foot, out
