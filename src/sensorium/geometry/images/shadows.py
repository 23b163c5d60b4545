"""Shadows: which lights reach the surfaces that pixels show, found by rays towards the lights."""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.geometry.hfield import HFields, ray_hfield
from sensorium.geometry.images.lighting import share_of_light, way_to_light
from sensorium.geometry.images.paint_structs import Lights, Looks
from sensorium.geometry.images.shade import OPAQUE, flat_normal, world_line
from sensorium.geometry.images.structs import Cameras, HitRecord, Lens, Placed, row_bounds, row_pose, row_size
from sensorium.geometry.primitives import HFIELD, MESH, ray_primitive
from sensorium.geometry.ray_structs import Instances
from sensorium.geometry.transforms import quat_rotate, quat_rotate_inverse

MOST = 128
"""Number of shapes near a tile that can be stored; with more of them, each ray tests all shapes."""
Rows128 = wp.types.vector(length=MOST, dtype=wp.int32)
Floats128 = wp.types.vector(length=MOST, dtype=wp.float32)
AWAY = wp.constant(wp.float32(1.0e-4))
"""How far a ray towards a light starts above the surface, as a share of the distance to the camera."""


@wp.func
def is_blocked(
    instances: Instances,
    fields: HFields,
    row: int,
    size: wp.vec3,
    pos: wp.vec3,
    quat: wp.vec4,
    s: wp.vec3,
    d: wp.vec3,
    far: float,
) -> wp.bool:
    """Return whether a shape with a size is within a distance along a ray with a unit direction."""
    lo = quat_rotate_inverse(quat, s - pos)
    ld = quat_rotate_inverse(quat, d)
    kind = instances.kind[row]
    if kind == MESH:
        return wp.mesh_query_ray_anyhit(instances.mesh[row], wp.cw_div(lo, size), wp.cw_div(ld, size), far)
    t = float(wp.inf)
    if kind == HFIELD:
        t, _face = ray_hfield(fields, instances.field[row], lo, ld, far)
    else:
        t = ray_primitive(kind, size, lo, ld)
    return t < far


@wp.func
def is_beside_line(to: wp.vec3, d: wp.vec3, far: float, reach: float) -> wp.bool:
    """Return whether a sphere of radius `reach` about `to` is off a line from the origin along d, of length `far`."""
    along = wp.clamp(wp.dot(to, d), 0.0, far)
    return wp.length_sq(to - along * d) > reach * reach


@wp.func
def is_near(
    placed: Placed, env: int, row: int, pos: wp.vec3, quat: wp.vec4, s: wp.vec3, d: wp.vec3, far: float, spread: float
) -> wp.bool:
    """Return whether a shape's bounding sphere is within `spread` of a line from s along d, of length `far`, m."""
    to = pos + quat_rotate(quat, placed.instances.centre[row]) - s
    radius, _half = row_bounds(placed, env, row)
    return radius > 0.0 and not is_beside_line(to, d, far, radius + spread)


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
    near = Rows128()
    x = Floats128()
    y = Floats128()
    z = Floats128()
    r = Floats128()
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
                centre = pos + quat_rotate(quat, instances.centre[row])
                radius, _half = row_bounds(placed, env, row)
                to = centre - middle
                narrows = wp.clamp(wp.dot(to, way) / axis[3], 0.0, 1.0)  # the rays of a tile meet in the light
                if radius > 0.0 and not is_beside_line(to, way, axis[3], radius + spread * (1.0 - narrows)):
                    if count < MOST:
                        near[count] = row
                        x[count] = centre[0]
                        y[count] = centre[1]
                        z[count] = centre[2]
                        r[count] = radius
                    count += 1
        tests = wp.where(count > MOST, shapes, count)
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
                n = quat_rotate(
                    own_quat, flat_normal(placed, fields, env, own_row, hits.face[place, mount, pixel], local)
                )
                facing = wp.dot(n, way)
                if facing <= 0.0 and looks.casts[shape] != 0:
                    continue
                point = point + (wp.sign(facing) * AWAY * t) * n
                is_dark = bool(False)
                if last >= 0:
                    pos, quat = row_pose(placed, env, last)
                    is_dark = is_blocked(
                        instances, fields, last, row_size(placed, env, last), pos, quat, point, way, axis[3]
                    )
                c = int(0)
                while c < tests and not is_dark:
                    row = c
                    if count <= MOST:
                        row = near[c]
                        to = wp.vec3(x[c], y[c], z[c]) - point
                        if row == last or is_beside_line(to, way, axis[3], r[c]):
                            row = -1
                    elif hidden[mount, row] != wp.uint8(0) or looks.casts[instances.shape[row]] == 0:
                        row = -1
                    if row >= 0:
                        pos, quat = row_pose(placed, env, row)
                        is_close = count <= MOST or is_near(placed, env, row, pos, quat, point, way, axis[3], 0.0)
                        size = row_size(placed, env, row)
                        if is_close and is_blocked(instances, fields, row, size, pos, quat, point, way, axis[3]):
                            is_dark = True
                            last = row
                    c += 1
                if not is_dark:
                    reached[place, mount, pixel] = reached[place, mount, pixel] | (1 << bit)
