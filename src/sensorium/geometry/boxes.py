"""Overlap of rotated boxes, in kernels, float64."""

from __future__ import annotations

import warp as wp

ENDLESS = 1e9
"""Half-extent used for infinite boxes, m, so that sums stay finite."""


@wp.func
def quat_matrix(q: wp.vec4) -> wp.mat33d:
    """Return the rotation matrix of a quaternion (w, x, y, z) of any non-zero length; not finite for length 0."""
    d = wp.vec4d(wp.float64(q[0]), wp.float64(q[1]), wp.float64(q[2]), wp.float64(q[3]))
    s = wp.float64(2.0) / wp.dot(d, d)
    one = wp.float64(1.0)
    w, x, y, z = d[0], d[1], d[2], d[3]
    return wp.mat33d(
        one - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y),
        s * (x * y + w * z), one - s * (x * x + z * z), s * (y * z - w * x),
        s * (x * z - w * y), s * (y * z + w * x), one - s * (x * x + y * y),
    )  # fmt: skip


@wp.func
def boxes_overlap(
    between: wp.vec3d, turn_a: wp.mat33d, half_a: wp.vec3d, turn_b: wp.mat33d, half_b: wp.vec3d
) -> wp.bool:
    """Return whether two rotated boxes overlap or touch: the separating axis test; False for non-finite values.

    Two boxes are separate exactly if they are separate along one of 15 axes. These are the three axes of each box, and
    the nine normals to an axis of each. See Gottschalk, Lin and Manocha, OBBTree, SIGGRAPH 1996.

    Args:
        between: vector from the centre of a to the centre of b, world, m.
        turn_a: orientation of a.
        half_a: half-extents of a, m, at most `ENDLESS`.
        turn_b: orientation of b.
        half_b: half-extents of b, m, at most `ENDLESS`.
    """
    t = wp.transpose(turn_a) * between
    r = wp.transpose(turn_a) * turn_b  # the axes of b in a's frame are its columns
    slack = wp.float64(0.0)  # for rounding errors with parallel edges
    for i in range(3):
        slack += wp.float64(1e-12) * wp.min(wp.max(half_a[i], half_b[i]), wp.float64(1e3))
    meets = bool(True)
    for i in range(3):
        reach_a = half_a[i] + slack
        reach_b = half_b[i] + slack
        along = wp.float64(0.0)
        for j in range(3):
            reach_a += half_b[j] * wp.abs(r[i, j])
            reach_b += half_a[j] * wp.abs(r[j, i])
            along += t[j] * r[j, i]
        meets = meets and wp.abs(t[i]) <= reach_a and wp.abs(along) <= reach_b
    for i in range(3):
        m = (i + 1) % 3
        n = (i + 2) % 3
        for j in range(3):
            u = (j + 1) % 3
            v = (j + 2) % 3
            reach = half_a[m] * wp.abs(r[n, j]) + half_a[n] * wp.abs(r[m, j]) + slack
            reach += half_b[u] * wp.abs(r[i, v]) + half_b[v] * wp.abs(r[i, u])
            meets = meets and wp.abs(t[n] * r[m, j] - t[m] * r[n, j]) <= reach
    return meets


__all__ = ["ENDLESS", "boxes_overlap", "quat_matrix"]
