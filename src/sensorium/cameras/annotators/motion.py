"""Motion of the surfaces in the image since the previous frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import warp as wp

from sensorium.cameras.annotators.base import Annotator
from sensorium.cameras.render.project import ORTHOGRAPHIC, Projection, pixel_of
from sensorium.cameras.render.structs import Cameras, HitRecord, Lens, Placed, pixel_line, shape_pose
from sensorium.compute import Rows, is_first, kernel, masked_tid, place_of
from sensorium.geometry.transforms import quat_rotate, quat_rotate_inverse
from sensorium.measurement.record import Record

if TYPE_CHECKING:
    from sensorium.cameras.camera import Camera


SIGNS = {"motion_vectors": -1.0, "optical_flow": 1.0}
"""Sign of each field: motion vectors point to where a surface was, the flow points from there."""


class Motion(Annotator):
    """`motion_vectors` and `optical_flow`."""

    types = tuple(SIGNS)

    def __init__(self, camera: Camera, names: tuple[str, ...]) -> None:
        super().__init__(camera, names)
        mounts, moving = camera.mount.count, len(camera.cast.moving)
        self._before = before = Before()
        for name, count, size, dtype in (
            ("camera_pos", mounts, 3, wp.vec3), ("camera_quat", mounts, 4, wp.vec4),
            ("pos", moving, 3, wp.vec3), ("quat", moving, 4, wp.vec4),
        ):  # fmt: skip
            setattr(before, name, wp.from_torch(camera.new_state(f"before_{name}", (count, size)), dtype=dtype))
        self._items = mounts + moving

    def annotate(self, record: Record, hits: Any, *, is_last: bool) -> None:
        """Compute the motion of a frame (one launch per field)."""
        camera, cast = self.camera, self.camera.cast
        inputs = [cast.lens, camera.projection, cast.cameras, cast.placed, self._before, hits]
        for name in self.names:
            image = wp.from_torch(record[name].view(camera.num_envs, camera.mount.count, self.pixels, 2), dtype=wp.vec2)
            dim = (camera.mount.count, self.pixels)
            camera.compute_on.launch(image_motion, dim, [SIGNS[name], *inputs], [image], split=True)

    def finish(self) -> None:
        """Keep the poses of the frame (one launch)."""
        cast = self.camera.cast
        self.camera.compute_on.launch(keep_poses, (self._items,), [cast.cameras, cast.placed], [self._before])


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
