"""Poses of cameras and of the shapes that they see."""

from __future__ import annotations

import warp as wp

from sensorium.cameras.render.structs import Cameras, Placed
from sensorium.compute import Rows, kernel, masked_tid
from sensorium.geometry.transforms import quat_multiply, quat_rotate, quat_yaw

BASE, YAW, WORLD = 0, 1, 2
"""Rotation of the cameras with their mount: fully, about the vertical only, or not at all."""


@kernel(group="place")
def place_cameras(
    rows: Rows,
    alignment: int,
    pos_in: wp.array2d[wp.vec3],
    quat_in: wp.array2d[wp.vec4],
    offset_pos_in: wp.array2d[wp.vec3],
    offset_quat_in: wp.array2d[wp.vec4],
    drift_in: wp.array2d[wp.vec3],
    cameras: Cameras,
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    """Compute the poses of the cameras from their mounts, and flag those that are not finite."""
    env, mount = masked_tid(rows)
    e = env % offset_pos_in.shape[0]
    turn = quat_in[env, mount]
    if alignment == YAW:
        turn = quat_yaw(turn)
    elif alignment == WORLD:
        turn = wp.vec4(1.0, 0.0, 0.0, 0.0)
    pos = pos_in[env, mount] + quat_rotate(turn, offset_pos_in[e, mount])
    if drift_in.shape[0] > 0:
        pos = pos + drift_in[env, mount]
    quat = quat_multiply(turn, offset_quat_in[e, mount])
    cameras.pos[env, mount] = pos
    cameras.quat[env, mount] = quat
    flag = wp.uint8(0)
    if not (wp.isfinite(wp.length_sq(pos)) and wp.isfinite(wp.length_sq(quat))):
        flag = wp.uint8(1)
        any_bad[0] = 1
    bad_out[env, mount] = flag


@wp.func
def turned_from_z(n: wp.vec3) -> wp.vec4:
    """Return a rotation that maps the z axis to a unit vector, unit quaternion (w, x, y, z)."""
    quat = wp.vec4(0.0, 1.0, 0.0, 0.0)
    if n[2] > -0.999999:
        quat = wp.normalize(wp.vec4(1.0 + n[2], -n[1], n[0], 0.0))
    return quat


@kernel(group="place")
def place_segments(
    rows: Rows,
    segment: wp.array[wp.int32],
    ends_in: wp.array3d[wp.vec3],
    radius_in: wp.array2d[wp.float32],
    placed: Placed,
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    """Compute poses and sizes of the segments of tendons from their ends, and flag an env if one is not finite."""
    env, item = masked_tid(rows)
    k = placed.segments - placed.instances.moving + item
    start = ends_in[env, segment[item], 0]
    end = ends_in[env, segment[item], 1]
    length = wp.length(end - start)
    quat = wp.vec4(1.0, 0.0, 0.0, 0.0)
    if length > 0.0:
        quat = turned_from_z((end - start) / length)
    placed.pos[env, k] = 0.5 * (start + end)
    placed.centre[env, k] = 0.5 * (start + end)
    placed.quat[env, k] = quat
    placed.size[env, item] = wp.vec3(radius_in[env, segment[item]], 0.5 * length, 0.0)
    if not wp.isfinite(length):
        for mount in range(bad_out.shape[1]):
            bad_out[env, mount] = wp.uint8(1)
        any_bad[0] = 1
