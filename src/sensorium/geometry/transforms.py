"""Quaternions (w, x, y, z) as `wp.vec4` for kernels; `wp.quat` (xyzw) never crosses a kernel boundary."""

import warp as wp

wp.set_module_options({"fuse_fp": False, "enable_backward": False})


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
