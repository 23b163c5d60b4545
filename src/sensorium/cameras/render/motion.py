"""Motion of the visible surfaces in the image between two frames."""

from __future__ import annotations

import warp as wp

from sensorium.cameras.render.project import ORTHOGRAPHIC, Projection, pixel_of
from sensorium.cameras.render.structs import Cameras, HitRecord, Lens, Placed, pixel_line, shape_pose
from sensorium.compute import Rows, is_first, kernel, masked_tid, place_of
from sensorium.geometry.transforms import quat_rotate, quat_rotate_inverse


@wp.struct
class Before:
    """Poses at the previous frame: of the cameras `[env, mount]`, and of the moving shapes `[env, moving shape]`."""

    camera_pos: wp.array2d[wp.vec3]
    camera_quat: wp.array2d[wp.vec4]
    pos: wp.array2d[wp.vec3]
    quat: wp.array2d[wp.vec4]


@kernel(group="images")
def image_motion(
    rows: Rows,
    sign: float,
    lens: Lens,
    projection: Projection,
    cameras: Cameras,
    placed: Placed,
    before: Before,
    record: HitRecord,
    motion_out: wp.array3d[wp.vec2],
) -> None:
    """Compute how far the surface of each pixel moved since the previous frame, px, times `sign`.

    A pixel without a surface shows the motion of a point at infinity, or 0 if the lens does not see it. In the first
    frame nothing has moved.
    """
    env, mount, piece = masked_tid(rows)
    pixel = rows.first + piece
    place = place_of(rows, env)
    motion = wp.vec2()
    shape = record.shape[place, mount, pixel]
    start, direction = pixel_line(lens, env, pixel)
    is_seen = wp.length_sq(direction) > 0.0
    if is_seen and not is_first(rows, env) and (shape >= 0 or projection.kind != ORTHOGRAPHIC):
        at = wp.vec3()
        if shape >= 0:
            local = start + direction / record.inverse[place, mount, pixel]
            point = cameras.pos[env, mount] + quat_rotate(cameras.quat[env, mount], local)
            row = placed.row[shape] - placed.instances.moving
            if row >= 0:
                pos, quat = shape_pose(placed, env, shape)
                point = before.pos[env, row] + quat_rotate(
                    before.quat[env, row], quat_rotate_inverse(quat, point - pos)
                )
            at = quat_rotate_inverse(before.camera_quat[env, mount], point - before.camera_pos[env, mount])
        else:
            turned = quat_rotate(cameras.quat[env, mount], direction)
            at = quat_rotate_inverse(before.camera_quat[env, mount], turned)
        now = wp.vec2(float(pixel % lens.width) + 0.5, float(pixel / lens.width) + 0.5)
        then = pixel_of(projection, env, at)
        motion = wp.vec2(wp.inf, wp.inf)
        if wp.isfinite(then[0]):
            motion = sign * (now - then)
    motion_out[env, mount, pixel] = motion


@kernel(group="images")
def keep_poses(rows: Rows, cameras: Cameras, placed: Placed, before: Before) -> None:
    """Keep the poses of this frame for the next one."""
    env, item = masked_tid(rows)
    mounts = before.camera_pos.shape[1]
    if item < mounts:
        before.camera_pos[env, item] = cameras.pos[env, item]
        before.camera_quat[env, item] = cameras.quat[env, item]
    else:
        before.pos[env, item - mounts] = placed.pos[env, item - mounts]
        before.quat[env, item - mounts] = placed.quat[env, item - mounts]
