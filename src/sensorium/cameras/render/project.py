"""Position of points in an image, for every lens: the inverse of the lines of sight."""

from __future__ import annotations

import warp as wp

PINHOLE, ORTHOGRAPHIC, BROWN_CONRADY, KANNALA_BRANDT, F_THETA, EQUIRECTANGULAR = range(6)
"""Numbers of the lenses in kernels."""


@wp.struct
class Projection:
    """A lens as a formula; `sensorium.cameras.lenses` documents the formulas.

    Attributes:
        kind: number of the lens.
        k: `[1 or env, 3]` rows of the intrinsic matrix.
        coefficients: of Brown-Conrady k1, k2, p1, p2, k3 to k6; of Kannala-Brandt k1 to k4; of f-theta the angles of
            the powers of the radius, where the focal length is 1; otherwise empty.
        edge: maximum radius of an f-theta lens, where the focal length is 1.
    """

    kind: wp.int32
    k: wp.array2d[wp.vec3]
    coefficients: wp.array[wp.float32]
    edge: wp.float32


@wp.func
def _brown_conrady(c: wp.array[wp.float32], x: float, y: float) -> wp.vec2:
    r2 = x * x + y * y
    radial = 1.0 + r2 * (c[0] + r2 * (c[1] + r2 * c[4]))
    radial = radial / (1.0 + r2 * (c[5] + r2 * (c[6] + r2 * c[7])))
    return wp.vec2(
        x * radial + 2.0 * c[2] * x * y + c[3] * (r2 + 2.0 * x * x),
        y * radial + c[2] * (r2 + 2.0 * y * y) + 2.0 * c[3] * x * y,
    )


@wp.func
def _fisheye_radius(projection: Projection, angle: float) -> wp.float32:
    c = projection.coefficients
    radius = float(0.0)
    if projection.kind == KANNALA_BRANDT:
        a2 = angle * angle
        radius = angle * (1.0 + a2 * (c[0] + a2 * (c[1] + a2 * (c[2] + a2 * c[3]))))
    else:
        low = float(0.0)
        high = projection.edge
        for _step in range(30):
            middle = 0.5 * (low + high)
            value = float(0.0)
            for power in range(c.shape[0]):
                value = (value + c[c.shape[0] - 1 - power]) * middle
            if value < angle:
                low = middle
            else:
                high = middle
        radius = 0.5 * (low + high)
    return radius


@wp.func
def pixel_of(projection: Projection, env: int, point: wp.vec3) -> wp.vec2:
    """Return column and row, px, of a point in the camera's frame (x forward, y left, z up), m; inf if behind it."""
    x = -point[1]
    y = -point[2]
    z = point[0]
    plane = wp.vec2(x, y)
    kind = projection.kind
    if kind == PINHOLE or kind == BROWN_CONRADY:
        if z <= 0.0:
            return wp.vec2(wp.inf, wp.inf)
        plane = plane / z
        if kind == BROWN_CONRADY:
            plane = _brown_conrady(projection.coefficients, plane[0], plane[1])
    elif kind == EQUIRECTANGULAR:
        plane = wp.vec2(wp.atan2(x, z), wp.atan2(y, wp.sqrt(x * x + z * z)))
    elif kind != ORTHOGRAPHIC:
        sideways = wp.sqrt(x * x + y * y)
        if sideways > 0.0:
            plane = plane * (_fisheye_radius(projection, wp.atan2(sideways, z)) / sideways)
    at = wp.vec3(plane[0], plane[1], 1.0)
    e = env % projection.k.shape[0]
    return wp.vec2(wp.dot(projection.k[e, 0], at), wp.dot(projection.k[e, 1], at))
