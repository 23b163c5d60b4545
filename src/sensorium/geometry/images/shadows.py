"""Shadows: which lights reach the surfaces that pixels show, found by rays towards the lights."""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.geometry.hfield import HFields, ray_hfield
from sensorium.geometry.images.lighting import share_of_light, way_to_light
from sensorium.geometry.images.paint_structs import Lights, Looks
from sensorium.geometry.images.shade import OPAQUE, flat_normal, world_line
from sensorium.geometry.images.structs import Cameras, HitRecord, Lens, Placed, row_pose
from sensorium.geometry.primitives import HFIELD, MESH, ray_primitive
from sensorium.geometry.ray_structs import NEAR, Instances, Near
from sensorium.geometry.transforms import quat_rotate, quat_rotate_inverse

AWAY = wp.constant(wp.float32(1.0e-4))
"""How far a ray towards a light starts above the surface, as a share of the distance to the camera."""


@wp.func
def is_blocked(
    instances: Instances, fields: HFields, row: int, pos: wp.vec3, quat: wp.vec4, s: wp.vec3, d: wp.vec3, far: float
) -> wp.bool:
    """Return whether a shape is within a distance along a ray with a unit direction."""
    lo = quat_rotate_inverse(quat, s - pos)
    ld = quat_rotate_inverse(quat, d)
    kind = instances.kind[row]
    if kind == MESH:
        scale = instances.size[row]
        return wp.mesh_query_ray_anyhit(instances.mesh[row], wp.cw_div(lo, scale), wp.cw_div(ld, scale), far)
    t = float(wp.inf)
    if kind == HFIELD:
        t, _face = ray_hfield(fields, instances.field[row], lo, ld, far)
    else:
        t = ray_primitive(kind, instances.size[row], lo, ld)
    return t < far


@wp.func
def is_near(
    placed: Placed, env: int, row: int, pos: wp.vec3, quat: wp.vec4, s: wp.vec3, d: wp.vec3, far: float, spread: float
) -> wp.bool:
    """Return whether a shape's bounding sphere is within `spread` of a line from s along d, of length `far`, m."""
    v = pos + quat_rotate(quat, placed.instances.centre[row]) - s
    reach = placed.instances.radius[row] + spread
    along = wp.clamp(wp.dot(v, d), 0.0, far)
    return wp.length_sq(v - along * d) <= reach * reach


@kernel
def cast_shadows(
    rows: Rows,
    side: int,
    lens: Lens,
    cameras: Cameras,
    placed: Placed,
    fields: HFields,
    looks: Looks,
    lights: Lights,
    hidden: wp.array2d[wp.uint8],
    hits: HitRecord,
    reached: wp.array3d[wp.int32],
) -> None:
    """Find the lights with shadows that reach the opaque surfaces of one tile.

    Args:
        rows: the environments.
        side: pixels along a side of the tile.
        lens: the lines of sight.
        cameras: poses of the cameras.
        placed: the shapes.
        fields: all height fields.
        looks: looks of the shapes.
        lights: the lights.
        hidden: 1 if a mount ignores an instance `[mount, instance]`.
        hits: the visible surfaces.
        reached: the output: a bit for each light.
    """
    env, mount, piece = masked_tid(rows)
    place = place_of(rows, env)
    instances = placed.instances
    columns = (lens.width + side - 1) / side
    tile = rows.first + piece
    u0 = (tile % columns) * side
    v0 = (tile / columns) * side
    u1 = wp.min(u0 + side, lens.width)
    v1 = wp.min(v0 + side, lens.height)
    forward = quat_rotate(cameras.quat[env, mount], wp.vec3(1.0, 0.0, 0.0))
    e = env % looks.rgba.shape[0]
    low = wp.vec3(wp.inf, wp.inf, wp.inf)
    high = wp.vec3(-wp.inf, -wp.inf, -wp.inf)
    for v in range(v0, v1):
        for u in range(u0, u1):
            pixel = v * lens.width + u
            reached[place, mount, pixel] = 0
            shape = hits.shape[place, mount, pixel]
            if shape >= 0:
                s, d = world_line(lens, cameras, env, mount, pixel)
                point = s + d / hits.inverse[place, mount, pixel]
                low = wp.min(low, point)
                high = wp.max(high, point)
    if low[0] > high[0]:
        return
    middle = 0.5 * (low + high)
    spread = 0.5 * wp.length(high - low)
    shapes = instances.kind.shape[0]
    near = Near()
    for k in range(lights.kind.shape[0]):
        bit = lights.shadow[k]
        if bit < 0:
            continue
        axis = way_to_light(lights, env, k, middle, forward)
        way = wp.vec3(axis[0], axis[1], axis[2])
        count = int(0)
        for row in range(shapes):
            if hidden[mount, row] == wp.uint8(0) and looks.casts[instances.shape[row]] != 0:
                pos, quat = row_pose(placed, env, row)
                if is_near(placed, env, row, pos, quat, middle, way, axis[3], spread):
                    if count < NEAR:
                        near[count] = row
                    count += 1
        tests = wp.where(count > NEAR, shapes, count)
        last = int(-1)  # the shape that blocked the light of the pixel before is likely to block this one's
        own = int(-1)
        own_row = int(-1)
        own_pos = wp.vec3()
        own_quat = wp.vec4()
        for v in range(v0, v1):
            for u in range(u0, u1):
                pixel = v * lens.width + u
                shape = hits.shape[place, mount, pixel]
                if shape < 0 or looks.rgba[e, shape][3] < OPAQUE:
                    continue
                if shape != own:
                    own = shape
                    own_row = placed.row[shape]
                    own_pos, own_quat = row_pose(placed, env, own_row)
                s, d = world_line(lens, cameras, env, mount, pixel)
                t = 1.0 / hits.inverse[place, mount, pixel]
                point = s + t * d
                axis = way_to_light(lights, env, k, point, forward)
                if share_of_light(lights, env, k, axis) <= 0.0:
                    continue
                way = wp.vec3(axis[0], axis[1], axis[2])
                local = quat_rotate_inverse(own_quat, point - own_pos)
                n = quat_rotate(own_quat, flat_normal(placed, fields, own_row, hits.face[place, mount, pixel], local))
                facing = wp.dot(n, way)
                if facing <= 0.0 and looks.casts[shape] != 0:
                    continue
                point = point + (wp.sign(facing) * AWAY * t) * n
                is_dark = bool(False)
                for c in range(-1, tests):
                    row = last
                    if c >= 0:
                        row = c
                        if count <= NEAR:
                            row = near[c]
                        elif hidden[mount, row] != wp.uint8(0) or looks.casts[instances.shape[row]] == 0:
                            continue
                        if row == last:
                            continue
                    if row >= 0 and not is_dark:
                        pos, quat = row_pose(placed, env, row)
                        if is_near(placed, env, row, pos, quat, point, way, axis[3], 0.0):
                            if is_blocked(instances, fields, row, pos, quat, point, way, axis[3]):
                                is_dark = True
                                last = row
                if not is_dark:
                    reached[place, mount, pixel] = reached[place, mount, pixel] | (1 << bit)
