"""Visibility with a table of directions: one ray per pixel against the shapes near its tile."""

from __future__ import annotations

import warp as wp

from sensorium.cameras.render.structs import (
    Cameras,
    HitRecord,
    Lens,
    Placed,
    pixel_line,
    put_hit,
    row_bounds,
    row_pose,
    row_size,
)
from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.geometry.hfield import HFields
from sensorium.geometry.ray_structs import NEAR, Near
from sensorium.geometry.trace import ray_shape
from sensorium.geometry.transforms import quat_rotate


@wp.func
def tile_cone(lens: Lens, env: int, u0: int, v0: int, side: int) -> tuple[wp.vec3, wp.vec3, wp.float32, wp.float32]:
    """Return a start and a direction, and how far the starts, m, and the directions, rad, of a tile are from them."""
    start, middle = pixel_line(lens, env, v0 * lens.width + u0)
    total = wp.vec3()
    u1 = wp.min(u0 + side, lens.width)
    v1 = wp.min(v0 + side, lens.height)
    for v in range(v0, v1):
        for u in range(u0, u1):
            _s, d = pixel_line(lens, env, v * lens.width + u)
            total = total + d
    if wp.length(total) > 1.0e-3:
        middle = wp.normalize(total)
    away = float(0.0)
    cosine = float(1.0)
    for v in range(v0, v1):
        for u in range(u0, u1):
            s, d = pixel_line(lens, env, v * lens.width + u)
            away = wp.max(away, wp.length(s - start))
            if wp.length_sq(d) > 0.0:
                cosine = wp.min(cosine, wp.dot(d, middle))
    return start, middle, away * 1.0001 + 1.0e-6, wp.acos(wp.clamp(cosine, -1.0, 1.0)) + 1.0e-3


@kernel(blocks=2)
def cast_pixels(
    rows: Rows,
    side: int,
    lens: Lens,
    cameras: Cameras,
    placed: Placed,
    fields: HFields,
    hidden: wp.array2d[wp.uint8],
    record: HitRecord,
) -> None:
    """Find the nearest surfaces of one tile.

    Args:
        rows: the environments.
        side: pixels along a side of the tile.
        lens: the lines of sight, of unit length.
        cameras: poses of the cameras.
        placed: the shapes.
        fields: all height fields.
        hidden: 1 if a mount ignores an instance `[mount, instance]`.
        record: the output.
    """
    env, mount, piece = masked_tid(rows)
    place = place_of(rows, env)
    instances = placed.instances
    columns = (lens.width + side - 1) / side
    tile = rows.first + piece
    u0 = (tile % columns) * side
    v0 = (tile / columns) * side
    eye = cameras.pos[env, mount]
    turn = cameras.quat[env, mount]
    start, axis, away, angle = tile_cone(lens, env, u0, v0, side)
    start = eye + quat_rotate(turn, start)
    axis = quat_rotate(turn, axis)
    near = Near()
    count = int(0)
    shapes = instances.kind.shape[0]
    for row in range(shapes):
        if hidden[mount, row] != wp.uint8(0):
            continue
        pos, quat = row_pose(placed, env, row)
        v = pos + quat_rotate(quat, instances.centre[row]) - start
        far = wp.length(v)
        reach, _half = row_bounds(placed, env, row)
        if reach == 0.0:
            continue
        reach = reach + away
        if far > reach:
            if far - reach > lens.far:
                continue
            b = reach / far
            edge = wp.cos(angle) * wp.sqrt(1.0 - b * b) - wp.sin(angle) * b
            if angle < 1.5 and wp.dot(v, axis) < far * edge - 1.0e-5 * far:
                continue
        if count < NEAR:
            near[count] = row
        count += 1
    looks = count
    if count > NEAR:
        looks = shapes
    for v in range(v0, wp.min(v0 + side, lens.height)):
        for u in range(u0, wp.min(u0 + side, lens.width)):
            pixel = v * lens.width + u
            record.inverse[place, mount, pixel] = 0.0
            record.shape[place, mount, pixel] = -1
            record.face[place, mount, pixel] = -1
            s, d = pixel_line(lens, env, pixel)
            if wp.length_sq(d) == 0.0:
                continue
            d = quat_rotate(turn, d)
            s = eye + quat_rotate(turn, s) + lens.near * d
            t = lens.far - lens.near
            for k in range(looks):
                row = k
                if count <= NEAR:
                    row = near[k]
                elif hidden[mount, row] != wp.uint8(0):
                    continue
                pos, quat = row_pose(placed, env, row)
                to = pos + quat_rotate(quat, instances.centre[row]) - s
                along = wp.dot(to, d)
                size, _half = row_bounds(placed, env, row)
                if along < -size or along - size > t or wp.length_sq(to - along * d) > size * size * 1.0001:
                    continue
                scale = row_size(placed, env, row)
                found, face = ray_shape(instances, fields, row, scale, pos, quat, s, d, t * 1.000001)
                if found <= t * 1.000001 and lens.near + found <= lens.far:
                    put_hit(record, place, mount, pixel, 1.0 / (lens.near + found), instances.shape[row], face)
                    t = wp.min(t, found)
