"""Unit normals of the surfaces in the world."""

from __future__ import annotations

from typing import Any

import warp as wp

from sensorium.cameras.annotators.base import Annotator
from sensorium.cameras.render.structs import (
    Cameras,
    HitRecord,
    Lens,
    Placed,
    face_normal,
    line_at,
    rotation_of,
    row_size,
    shape_pose,
)
from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.geometry.hfield import HFields
from sensorium.geometry.primitives import MESH, PLANE
from sensorium.geometry.trace import local_normal
from sensorium.measurement.record import Record


@kernel(group="images", blocks=2)
def _normals(
    rows: Rows,
    lens: Lens,
    cameras: Cameras,
    placed: Placed,
    fields: HFields,
    hits: HitRecord,
    normals: wp.array3d[wp.vec3],
) -> None:
    """Write the outward unit normal of each pixel's surface, 0 for a miss.

    Neighbours often show the same shape or face, so poses and normals of faces are kept from one pixel to the next.
    """
    env, mount, piece = masked_tid(rows)
    place = place_of(rows, env)
    line = rows.first + piece
    eye = cameras.pos[env, mount]
    turn = rotation_of(cameras.quat[env, mount])
    # the line of sight of a pinhole is linear in the pixels
    is_pinhole = lens.inverse_k.shape[0] > 0
    _start, ahead = line_at(lens, env, line, 0)
    across = wp.vec3()
    if is_pinhole:
        _start, across = line_at(lens, env, line, 1)
        across = across - ahead
    kept = wp.int32(-1)
    kept_face = wp.int32(-1)
    kind = wp.int32(-1)
    row = wp.int32(-1)
    size = wp.vec3()
    to_world = wp.mat33()
    to_shape = wp.mat33()
    origin = wp.vec3()
    shape_ahead = wp.vec3()
    shape_across = wp.vec3()
    found = wp.vec3()
    for column in range(lens.width):
        pixel = line * lens.width + column
        normal = wp.vec3()
        shape = hits.shape[place, mount, pixel]
        if shape >= 0:
            face = hits.face[place, mount, pixel]
            if shape != kept:
                row = placed.row[shape]
                kind = placed.instances.kind[row]
                size = row_size(placed, env, row)
                pos, quat = shape_pose(placed, env, shape)
                to_world = rotation_of(quat)
                to_shape = wp.transpose(to_world) * turn
                origin = wp.transpose(to_world) * (eye - pos)
                shape_ahead = to_shape * ahead
                shape_across = to_shape * across
            if shape != kept or face != kept_face or (face < 0 and kind != PLANE):
                if kind == MESH:
                    found = to_world * wp.normalize(face_normal(placed.instances.mesh[row], face, size))
                else:
                    t = 1.0 / hits.inverse[place, mount, pixel]
                    at = origin + t * (shape_ahead + float(column) * shape_across)
                    if not is_pinhole:
                        start, direction = line_at(lens, env, line, column)
                        at = origin + to_shape * (start + t * direction)
                    found = to_world * local_normal(placed.instances, fields, row, size, face, at)
            kept = shape
            kept_face = face
            normal = found
        normals[env, mount, pixel] = normal


class Normals(Annotator):
    """`normals`."""

    types = ("normals",)

    def annotate(self, record: Record, hits: Any, *, is_last: bool) -> None:
        """Compute the normals of a frame (one launch)."""
        camera, cast = self.camera, self.camera.cast
        inputs = [cast.lens, cast.cameras, cast.placed, cast.arrays.fields, hits]
        outputs = [self.image(record, "normals", wp.vec3)]
        camera.compute_on.launch(_normals, (camera.mount.count, camera.image_shape[0]), inputs, outputs, split=True)
