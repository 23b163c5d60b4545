"""Kernels of a camera that casts rays: its pose, and the images from the lengths of its rays."""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid
from sensorium.geometry.transforms import quat_multiply, quat_rotate, quat_yaw
from sensorium.measurement.record import copy_word


@kernel(group="images")
def camera_pose(
    rows: Rows,
    alignment: int,
    pos_in: wp.array2d[wp.vec3],
    quat_in: wp.array2d[wp.vec4],
    offset_pos_in: wp.array2d[wp.vec3],
    offset_quat_in: wp.array2d[wp.vec4],
    drift_in: wp.array2d[wp.vec3],
    k_in: wp.array3d[wp.float32],
    pos_out: wp.array2d[wp.vec3],
    quat_out: wp.array2d[wp.vec4],
    k_out: wp.array4d[wp.float32],
) -> None:
    """Store the poses of the cameras and their intrinsic matrices."""
    env, mount = masked_tid(rows)
    turn = quat_in[env, mount]
    if alignment == 1:
        turn = quat_yaw(turn)
    elif alignment == 2:
        turn = wp.vec4(1.0, 0.0, 0.0, 0.0)
    pos = pos_in[env, mount] + quat_rotate(turn, offset_pos_in[env, mount])
    if drift_in.shape[0] > 0:
        pos = pos + drift_in[env, mount]
    pos_out[env, mount] = pos
    quat_out[env, mount] = quat_multiply(turn, offset_quat_in[env, mount])
    for row in range(3):
        for column in range(3):
            k_out[env, mount, row, column] = k_in[env, row, column]


@kernel
def copy_field(rows: Rows, count: int, wide: int, source: wp.uint64, target: wp.uint64) -> None:
    """Copy a field of `count` words per env."""
    env, word = masked_tid(rows)
    copy_word(wide, source, env * count + word, target, env * count + word)


RAY, RAY_IN_PLANE, DEPTH = 0, 1, 2
"""Inputs of `make_images`: the ray's length in `ranges` or in `depths`, or z-depth in `depths`."""


@kernel(group="images")
def make_images(
    rows: Rows,
    source: int,
    is_last: int,
    farthest: float,
    beyond: float,
    keeps_points: int,
    width: int,
    inverse_k: wp.array2d[wp.vec3],
    ranges_in: wp.array3d[wp.float32],
    depths_in: wp.array3d[wp.float32],
    ranges: wp.array3d[wp.float32],
    depths: wp.array3d[wp.float32],
    points: wp.array3d[wp.vec3],
) -> None:
    """Compute both distances from one, and the points; clip as the last step."""
    env, mount, pixel = masked_tid(rows)
    e = env % inverse_k.shape[0]
    at = wp.vec3(float(pixel % width) + 0.5, float(pixel / width) + 0.5, 1.0)
    p = wp.vec3(wp.dot(inverse_k[e, 0], at), wp.dot(inverse_k[e, 1], at), wp.dot(inverse_k[e, 2], at))
    length = wp.length(p)
    r = wp.float32(0.0)
    z = wp.float32(0.0)
    if source == 2:
        z = depths_in[env, mount, pixel]
        r = z * length
    else:
        if source == 0:
            r = ranges_in[env, mount, pixel]
        else:
            r = depths_in[env, mount, pixel]
        z = r / length
    misses = wp.isinf(z)
    has_point = not misses
    if is_last != 0:
        has_point = keeps_points != 0 or not (misses or z > farthest)
        if misses or r > farthest:
            r = beyond
        if misses or z > farthest:
            z = beyond
    if ranges.shape[0] > 0:
        ranges[env, mount, pixel] = r
    if depths.shape[0] > 0:
        depths[env, mount, pixel] = z
    if points.shape[0] > 0:
        point = wp.vec3(wp.inf, wp.inf, wp.inf)
        if has_point:
            point = z * p
        points[env, mount, pixel] = point
