"""Unit normals of the surfaces in the world."""

from __future__ import annotations

from typing import Any

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.geometry.hfield import HFields
from sensorium.geometry.images.structs import Cameras, HitRecord, Lens, Placed, pixel_line, row_size, shape_pose
from sensorium.geometry.trace import normal_of
from sensorium.geometry.transforms import quat_rotate
from sensorium.measurement.record import Record
from sensorium.sensors.cameras.annotators.base import Annotator


@kernel(group="images")
def _normals(
    rows: Rows,
    lens: Lens,
    cameras: Cameras,
    placed: Placed,
    fields: HFields,
    hits: HitRecord,
    normals: wp.array3d[wp.vec3],
) -> None:
    """Write the outward unit normal of each pixel's surface, 0 for a miss."""
    env, mount, piece = masked_tid(rows)
    first = (rows.first + piece) * lens.width
    for pixel in range(first, first + lens.width):
        place = place_of(rows, env)
        normal = wp.vec3()
        shape = hits.shape[place, mount, pixel]
        if shape >= 0:
            row = placed.row[shape]
            face = hits.face[place, mount, pixel]
            start, direction = pixel_line(lens, env, pixel)
            turn = cameras.quat[env, mount]
            at = start + direction / hits.inverse[place, mount, pixel]
            pos, quat = shape_pose(placed, env, shape)
            point = cameras.pos[env, mount] + quat_rotate(turn, at)
            size = row_size(placed, env, row)
            normal = normal_of(placed.instances, fields, row, size, face, pos, quat, point)
        normals[env, mount, pixel] = normal


class Normals(Annotator):
    """`normals`."""

    def annotate(self, record: Record, hits: Any, *, is_last: bool) -> None:
        """Compute the normals of a frame (one launch)."""
        camera, cast = self.camera, self.camera.cast
        inputs = [cast.lens, cast.cameras, cast.placed, cast.scene.fields, hits]
        outputs = [self.image(record, "normals", wp.vec3)]
        camera.compute_on.launch(_normals, (camera.mount.count, camera.image_shape[0]), inputs, outputs, split=True)
