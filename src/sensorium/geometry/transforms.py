"""Quaternions (w, x, y, z) as `wp.vec4` for kernels; `wp.quat` (xyzw) never crosses a kernel boundary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import warp as wp


@wp.func
def quat_rotate(q: wp.vec4, v: wp.vec3) -> wp.vec3:
    """Turn v by the unit quaternion q (w, x, y, z)."""
    u = wp.vec3(q[1], q[2], q[3])
    t = 2.0 * wp.cross(u, v)
    return v + q[0] * t + wp.cross(u, t)


@wp.func
def quat_rotate_inverse(q: wp.vec4, v: wp.vec3) -> wp.vec3:
    """Turn v by the inverse of the unit quaternion q (w, x, y, z): world axes to body axes."""
    u = wp.vec3(-q[1], -q[2], -q[3])
    t = 2.0 * wp.cross(u, v)
    return v + q[0] * t + wp.cross(u, t)


@wp.func
def quat_multiply(a: wp.vec4, b: wp.vec4) -> wp.vec4:
    """Return the Hamilton product a b (w, x, y, z): first b, then a."""
    return wp.vec4(
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    )


@wp.func
def quat_slerp(a: wp.vec4, b: wp.vec4, share: float) -> wp.vec4:
    """Return the unit quaternion a share of the shorter way from a to b, at constant angular velocity."""
    other = b
    cosine = wp.dot(a, b)
    if cosine < 0.0:
        other = -b
        cosine = -cosine
    if cosine > 0.9999:  # below 0.03 rad: the chord is the arc to 1e-6 rad, and sines of it would lose digits
        return wp.normalize(a + share * (other - a))
    angle = wp.acos(cosine)
    return (wp.sin((1.0 - share) * angle) * a + wp.sin(share * angle) * other) / wp.sin(angle)


@wp.func
def quat_heading(q: wp.vec4) -> wp.vec2:
    """Return cosine and sine of the turn about the world's z axis that takes x to where q takes it, seen from above.

    Where q takes x nearly upright (within 0.1 of the vertical's sine), what it takes y to says the heading.
    """
    x = 1.0 - 2.0 * (q[2] * q[2] + q[3] * q[3])
    y = 2.0 * (q[0] * q[3] + q[1] * q[2])
    if x * x + y * y < 0.01:  # q takes y to (-y, x) in the plane: turned back by a right angle that is where x would be
        y = -2.0 * (q[1] * q[2] - q[0] * q[3])
        x = 1.0 - 2.0 * (q[1] * q[1] + q[3] * q[3])
    return wp.normalize(wp.vec2(x, y))


@wp.func
def quat_yaw(q: wp.vec4) -> wp.vec4:
    """Return the turn of `quat_heading` as a quaternion."""
    heading = quat_heading(q)
    half = 0.5 * wp.atan2(heading[1], heading[0])
    return wp.vec4(wp.cos(half), 0.0, 0.0, wp.sin(half))


def compose(
    pos: Sequence[float], quat: Sequence[float], inner_pos: Sequence[float], inner_quat: Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the pose of an inner frame that is given in an outer one, in the frame of the outer (float64)."""
    q, p = np.asarray(quat, np.float64), np.asarray(inner_quat, np.float64)
    q, p = q / np.linalg.norm(q), p / np.linalg.norm(p)
    v = np.asarray(inner_pos, np.float64)
    t = 2.0 * np.cross(q[1:], v)
    turned = v + q[0] * t + np.cross(q[1:], t)
    scalar = q[0] * p[0] - q[1:] @ p[1:]
    vector = q[0] * p[1:] + p[0] * q[1:] + np.cross(q[1:], p[1:])
    return tuple((np.asarray(pos, np.float64) + turned).tolist()), (float(scalar), *vector.tolist())
