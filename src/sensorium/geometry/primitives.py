"""Rays against the analytic shapes, for kernels: plane, sphere, capsule, ellipsoid, cylinder and box.

A ray o + t d is given in the shape's own frame; d need not be a unit vector, t is in units of it. The result is the
smallest t >= 0 on the surface. Both faces can be hit, so a ray that starts inside a solid hits its exit. A miss is
`inf`. Sizes are those of `sensorium.geometry.shapes`: half lengths and radii, axes along z.

Every solid here is convex: a ray intersects it in one interval, and there is no gap between a side and a cap.
Quadratics are solved in float64 about the ray's closest approach to the axis or the centre. So the error of t is that
of the final rounding to float32, even for a ray that comes from far away or is nearly tangent.
"""

import warp as wp

from sensorium.compute import shared_func

PLANE = wp.constant(0)
"""Kernel number of this kind: its index in `sensorium.geometry.shapes.KINDS`; the same applies below."""
SPHERE = wp.constant(1)
CAPSULE = wp.constant(2)
ELLIPSOID = wp.constant(3)
CYLINDER = wp.constant(4)
BOX = wp.constant(5)
MESH = wp.constant(6)
HFIELD = wp.constant(7)

_INF = wp.constant(wp.float64(float("inf")))
_ZERO = wp.constant(wp.float64(0.0))


@wp.func
def ray_plane(size: wp.vec3, o: wp.vec3, d: wp.vec3) -> wp.float32:
    """Return t at which the ray crosses the plane z = 0, from either side (MuJoCo's planes have one face).

    Args:
        size: half extents along x and y, m; 0 means unbounded. The third is not read.
        o: start of the ray in the plane's frame, m.
        d: its direction, of any length.
    """
    if d[2] == 0.0:
        return wp.inf
    t = -o[2] / d[2]
    if t < 0.0:
        return wp.inf
    if size[0] > 0.0 and wp.abs(o[0] + t * d[0]) > size[0]:
        return wp.inf
    if size[1] > 0.0 and wp.abs(o[1] + t * d[1]) > size[1]:
        return wp.inf
    return t


@wp.func
def _ball_interval(o: wp.vec3d, d: wp.vec3d, radius: wp.float64) -> wp.vec2d:
    """Return where the line enters and leaves the ball about the origin; (inf, -inf) on a miss."""
    a = wp.dot(d, d)
    middle = -wp.dot(o, d) / a
    closest = o + middle * d
    room = radius * radius - wp.dot(closest, closest)
    if not room >= _ZERO:
        return wp.vec2d(_INF, -_INF)
    half = wp.sqrt(room / a)
    return wp.vec2d(middle - half, middle + half)


@wp.func
def _tube_interval(o: wp.vec3d, d: wp.vec3d, radius: wp.float64, half_length: wp.float64) -> wp.vec2d:
    """Return where the line enters and leaves the solid cylinder along z; (inf, -inf) on a miss."""
    start = -_INF
    end = _INF
    a = d[0] * d[0] + d[1] * d[1]
    if a > _ZERO:
        middle = -(o[0] * d[0] + o[1] * d[1]) / a
        x = o[0] + middle * d[0]
        y = o[1] + middle * d[1]
        room = radius * radius - (x * x + y * y)
        if room < _ZERO:
            return wp.vec2d(_INF, -_INF)
        half = wp.sqrt(room / a)
        start = middle - half
        end = middle + half
    elif o[0] * o[0] + o[1] * o[1] > radius * radius:
        return wp.vec2d(_INF, -_INF)
    if d[2] != _ZERO:
        middle = -o[2] / d[2]
        half = half_length / wp.abs(d[2])
        start = wp.max(start, middle - half)
        end = wp.min(end, middle + half)
    elif wp.abs(o[2]) > half_length:
        return wp.vec2d(_INF, -_INF)
    if start > end:
        return wp.vec2d(_INF, -_INF)
    return wp.vec2d(start, end)


@wp.func
def _nearest(interval: wp.vec2d) -> wp.float32:
    """Return the first end of the interval that is not behind the ray's start."""
    if interval[0] > interval[1] or interval[1] < _ZERO:
        return wp.inf
    if interval[0] >= _ZERO:
        return wp.float32(interval[0])
    return wp.float32(interval[1])


@wp.func
def ray_capsule(radius: float, half_length: float, o: wp.vec3, d: wp.vec3) -> wp.float32:
    """Return t at which the ray hits the capsule along z; half_length, m, is that of the part between the two balls."""
    start = wp.vec3d(o)
    along = wp.vec3d(d)
    r = wp.float64(radius)
    end = wp.vec3d(_ZERO, _ZERO, wp.float64(half_length))
    tube = _tube_interval(start, along, r, end[2])
    upper = _ball_interval(start - end, along, r)
    lower = _ball_interval(start + end, along, r)
    return _nearest(wp.vec2d(wp.min(tube[0], wp.min(upper[0], lower[0])), wp.max(tube[1], wp.max(upper[1], lower[1]))))


@wp.func
def ray_box(size: wp.vec3, o: wp.vec3, d: wp.vec3) -> wp.float32:
    """Return t at which the ray hits the box with these half sides along x, y and z, m."""
    start = float(-wp.inf)
    end = float(wp.inf)
    for i in range(3):
        if d[i] != 0.0:
            low = (-size[i] - o[i]) / d[i]
            high = (size[i] - o[i]) / d[i]
            start = wp.max(start, wp.min(low, high))
            end = wp.min(end, wp.max(low, high))
        elif wp.abs(o[i]) > size[i]:
            return wp.inf
    if start > end or end < 0.0:
        return wp.inf
    if start >= 0.0:
        return start
    return end


@shared_func
def ray_primitive(kind: int, size: wp.vec3, o: wp.vec3, d: wp.vec3) -> wp.float32:
    """Return t at which the ray hits an analytic shape; `inf` on a miss, and for a mesh or a height field.

    Args:
        kind: PLANE to BOX.
        size: as in `sensorium.geometry.shapes`, m; unused entries are not read.
        o: start of the ray in the shape's frame, m.
        d: its direction, of any length.
    """
    if kind == BOX:
        return ray_box(size, o, d)
    if kind == CAPSULE:
        return ray_capsule(size[0], size[1], o, d)
    if kind == SPHERE:
        return _nearest(_ball_interval(wp.vec3d(o), wp.vec3d(d), wp.float64(size[0])))
    if kind == CYLINDER:
        return _nearest(_tube_interval(wp.vec3d(o), wp.vec3d(d), wp.float64(size[0]), wp.float64(size[1])))
    if kind == ELLIPSOID:
        radii = wp.vec3d(size)
        return _nearest(_ball_interval(wp.cw_div(wp.vec3d(o), radii), wp.cw_div(wp.vec3d(d), radii), wp.float64(1.0)))
    if kind == PLANE:
        return ray_plane(size, o, d)
    return wp.inf


@wp.func
def primitive_normal(kind: int, size: wp.vec3, p: wp.vec3) -> wp.vec3:
    """Return the outward unit normal of an analytic shape at a point of its surface, in the shape's frame.

    A point on an edge gets the normal of the face whose plane is nearest. A plane's normal is +z on both of its sides.

    Args:
        kind: PLANE to BOX.
        size: as for `ray_primitive`.
        p: a point on the surface, within rounding, m.
    """
    if kind == SPHERE:
        return wp.normalize(p)
    if kind == CAPSULE:
        return wp.normalize(wp.vec3(p[0], p[1], p[2] - wp.clamp(p[2], -size[1], size[1])))
    if kind == ELLIPSOID:
        scaled = wp.cw_div(p, size)  # in two steps: squares of small radii would underflow
        return wp.normalize(wp.cw_div(scaled, size))
    if kind == CYLINDER:
        side = wp.sqrt(p[0] * p[0] + p[1] * p[1])
        if wp.abs(wp.abs(p[2]) - size[1]) < wp.abs(side - size[0]):
            return wp.vec3(0.0, 0.0, wp.sign(p[2]))
        return wp.vec3(p[0] / side, p[1] / side, 0.0)
    if kind == BOX:
        normal = wp.vec3(wp.sign(p[0]), 0.0, 0.0)
        gap = wp.abs(wp.abs(p[0]) - size[0])
        if wp.abs(wp.abs(p[1]) - size[1]) < gap:
            gap = wp.abs(wp.abs(p[1]) - size[1])
            normal = wp.vec3(0.0, wp.sign(p[1]), 0.0)
        if wp.abs(wp.abs(p[2]) - size[2]) < gap:
            normal = wp.vec3(0.0, 0.0, wp.sign(p[2]))
        return normal
    return wp.vec3(0.0, 0.0, 1.0)
