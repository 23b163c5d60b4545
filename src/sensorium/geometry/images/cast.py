"""Visibility by one ray per pixel against every shape."""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.geometry.hfield import HFields
from sensorium.geometry.images.structs import Cameras, HitRecord, Lens, Placed, pixel_line
from sensorium.geometry.primitives import MESH
from sensorium.geometry.trace import ray_instance
from sensorium.geometry.transforms import quat_rotate


@kernel
def cast_pixels(
    rows: Rows,
    per_block: int,
    lens: Lens,
    cameras: Cameras,
    placed: Placed,
    fields: HFields,
    hidden: wp.array2d[wp.uint8],
    record: HitRecord,
) -> None:
    """Find the nearest surfaces of a block of neighbouring pixels."""
    env, mount, piece = masked_tid(rows)
    place = place_of(rows, env)
    first = (rows.first + piece) * per_block
    instances = placed.instances
    for pixel in range(first, wp.min(first + per_block, lens.width * lens.height)):
        s, d = pixel_line(lens, env, pixel)
        d = quat_rotate(cameras.quat[env, mount], d)
        s = cameras.pos[env, mount] + quat_rotate(cameras.quat[env, mount], s) + lens.near * d
        length2 = wp.length_sq(d)
        t = lens.far - lens.near
        best = int(-1)
        face = int(-1)
        for row in range(instances.kind.shape[0]):
            if hidden[mount, row] != wp.uint8(0):
                continue
            pos = instances.pos[row]
            quat = instances.quat[row]
            centre = pos + quat_rotate(quat, instances.centre[row])
            if row >= instances.moving:
                pos = placed.pos[env, row - instances.moving]
                quat = placed.quat[env, row - instances.moving]
                centre = placed.centre[env, row - instances.moving]
            v = centre - s
            along = wp.dot(v, d) / length2
            size = instances.radius[row]
            if wp.length_sq(v - along * d) > size * size * 1.0001:
                continue
            found, fface = ray_instance(instances, fields, row, pos, quat, s, d, t)
            if found < t or (found == t and best < 0):
                t = found
                best = row
                face = fface
        inverse = float(0.0)
        shape = int(-1)
        id = int(-1)
        if best >= 0:
            inverse = 1.0 / (lens.near + t)
            shape = instances.shape[best]
            if face >= 0:
                id = face
                if instances.kind[best] == MESH:
                    id = instances.face_id[instances.face_start[best] + face]
        record.inverse[place, mount, pixel] = inverse
        record.shape[place, mount, pixel] = shape
        record.face[place, mount, pixel] = id
