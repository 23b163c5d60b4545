"""Rays along the world's vertical, by look-ups: as `cast_rays`, but ten times as fast for height scans."""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid
from sensorium.geometry.columns import columns_ray, columns_reach
from sensorium.geometry.hfield import BASE, HField, HFields, ray_hfield_vertical
from sensorium.geometry.primitives import HFIELD
from sensorium.geometry.ray_structs import (
    MOVERS,
    NEAR,
    SHAPES,
    VARIANTS,
    WORLD,
    Bundle,
    Hits,
    Instances,
    Moving,
    Near,
    Pose,
    Surroundings,
)
from sensorium.geometry.trace import hit_normal, ray_instance, ray_solid, write_hit
from sensorium.geometry.transforms import quat_heading, quat_rotate

HIGHEST = wp.constant(1.0e30)
"""Height that no shape reaches, m."""


@wp.func
def look_up(
    heights: wp.array[wp.float32], h: HField, half: wp.vec2, per: wp.vec2, x: float, y: float, z: float, sign: float
) -> tuple[wp.float32, wp.int32, wp.vec2]:
    """Return the result of `ray_hfield_vertical`, in float32 and with the field's dimensions as arguments, and slopes.

    The slopes of the surface along x and y are per cell.
    """
    u = (x + half[0]) * per[0]
    v = (y + half[1]) * per[1]
    t = float(wp.inf)
    face = int(-1)
    slopes = wp.vec2()
    if u >= 0.0 and v >= 0.0 and u <= float(h.cols - 1) and v <= float(h.rows - 1):
        col = wp.min(int(u), h.cols - 2)
        row = wp.min(int(v), h.rows - 2)
        a = u - float(col)
        b = v - float(row)
        at = h.heights + row * h.cols + col
        z00 = heights[at]
        z11 = heights[at + h.cols + 1]
        corner = float(0.0)
        face = 2 * (row * (h.cols - 1) + col)
        if a >= b:
            corner = heights[at + 1]
            slopes = wp.vec2(corner - z00, z11 - corner)
            corner = z00 + a * (corner - z00) + b * (z11 - corner)
        else:
            corner = heights[at + h.cols]
            slopes = wp.vec2(z11 - corner, corner - z00)
            corner = z00 + b * (corner - z00) + a * (z11 - corner)
            face += 1
        t = sign * (corner - z)
        if h.base >= 0.0:
            bottom = sign * (-h.base - z)
            if not (t >= 0.0 and (t <= bottom or bottom < 0.0)):
                t = bottom
                face = BASE
        if t < 0.0:
            t = wp.inf
    return t, face, slopes


@wp.func
def _row(standing: wp.array[wp.int32], first: int, movers: int, n: int) -> wp.int32:
    """Return the instance row of the n-th shape that is tested individually: moving ones first."""
    row = first + n
    if n >= movers:
        row = standing[n - movers]
    return row


@wp.func
def _nearest(
    surroundings: Surroundings, instances: Instances, fields: HFields, moving: Moving, hidden: wp.array2d[wp.uint8],
    near: Near, count: int, movers: int, env: int, mount: int, s: wp.vec3, d: wp.vec3, limit: float,
) -> tuple[float, int, int]:  # fmt: skip
    """Return distance, instance row and triangle of the first shape of a column within a limit; row -1 for none."""
    t = float(limit)
    best = int(-1)
    face = int(-1)
    looks = wp.where(count > NEAR, movers + surroundings.bvh_row.shape[0], count)
    for n in range(looks):
        row = _row(surroundings.bvh_row, instances.moving, movers, n)
        if count <= NEAR:
            row = near[n]
        elif hidden[mount, row] != wp.uint8(0):
            continue
        k = row - instances.moving
        at = instances.pos[row]
        turned = instances.quat[row]
        c = at + quat_rotate(turned, instances.centre[row])
        if k >= 0:
            c = moving.centre[env, 0, k]
        size = instances.radius[row]
        along = d[2] * (c[2] - s[2])
        if along < -size or along - size > t:
            continue
        if (c[0] - s[0]) * (c[0] - s[0]) + (c[1] - s[1]) * (c[1] - s[1]) > size * size:
            continue
        if k >= 0:
            at = moving.pos[env, 0, k]
            turned = moving.quat[env, 0, k]
        found = float(wp.inf)
        triangle = int(-1)
        if movers > 0 and k >= 0:  # may be a height field
            found, triangle = ray_instance(instances, fields, row, at, turned, s, d, t)
        else:
            found, triangle = ray_solid(instances, row, instances.size[row], at, turned, s, d, t)
        if found <= t:
            t = found
            best = row
            face = triangle
    return t, best, face


@kernel(variants=VARIANTS, blocks={"triangles": 3, "still": 3, "all": 2})
def cast_vertical(
    rows: Rows,
    limits: wp.vec2,
    per_block: int,
    surroundings: Surroundings,
    instances: Instances,
    fields: HFields,
    moving: Moving,
    hidden: wp.array2d[wp.uint8],
    pose: Pose,
    bundle: Bundle,
    is_more: int,
    out: Hits,
) -> None:
    """Cast one block of rays along the world's -z or +z, as `cast_rays` does, but by look-ups.

    The rays fire at one instant, and all height fields are upright.

    Args:
        rows: the environments.
        limits: minimum and greatest distance, m.
        per_block: rays in a block.
        surroundings: the static shapes.
        instances: shapes that are tested individually.
        fields: all height fields.
        moving: poses of the moving shapes.
        hidden: 1 if a mount ignores an instance `[mount, instance]`.
        pose: poses of the mounts.
        bundle: the rays.
        is_more: whether outputs other than distance, point and normal are requested.
        out: the outputs.
    """
    env, mount, piece = masked_tid(rows)
    block = rows.first + piece
    first = block * per_block
    last = wp.min(first + per_block, bundle.count)
    p = pose.pos[env, 0, mount]
    heading = wp.vec2(1.0, 0.0)
    if pose.alignment != WORLD:
        heading = quat_heading(pose.quat[env, 0, mount])
    cosine = heading[0]
    sine = heading[1]
    lift = float(0.0)
    shift = wp.vec2()
    if pose.drift.shape[0] > 0:
        p = p + pose.drift[env, mount]
    if pose.cast_drift.shape[0] > 0:
        shift = wp.vec2(pose.cast_drift[env, mount][0], pose.cast_drift[env, mount][1])
        lift = pose.cast_drift[env, mount][2]
    sign = float(bundle.vertical)
    d = wp.vec3(0.0, 0.0, sign)
    # Shapes in the column of the block, by their instance rows
    count = int(0)
    near = Near()
    middle = bundle.starts[0, (first + last) / 2]
    radius = bundle.radius[0, first]
    x = p[0] + cosine * (middle[0] + shift[0]) - sine * (middle[1] + shift[1])
    y = p[1] + sine * (middle[0] + shift[0]) + cosine * (middle[1] + shift[1])
    movers = int(0)
    standing = int(0)
    alone = int(0)
    if wp.static(MOVERS):
        movers = moving.pos.shape[2]
    if wp.static(SHAPES):
        standing = surroundings.bvh_row.shape[0]
        alone = surroundings.alone.shape[0]
    for k in range(movers):
        c = moving.centre[env, 0, k]
        reach = instances.radius[instances.moving + k] + radius
        if (c[0] - x) * (c[0] - x) + (c[1] - y) * (c[1] - y) <= reach * reach:
            if hidden[mount, instances.moving + k] == wp.uint8(0):
                if count < NEAR:
                    near[count] = instances.moving + k
                count += 1
    if standing > 0:
        low = wp.vec3(x - radius, y - radius, -HIGHEST)
        high = wp.vec3(x + radius, y + radius, HIGHEST)
        boxes = wp.bvh_query_aabb(surroundings.bvh, low, high)
        leaf = int(0)
        while wp.bvh_query_next(boxes, leaf):
            row = surroundings.bvh_row[leaf]
            if hidden[mount, row] == wp.uint8(0):
                if count < NEAR:
                    near[count] = row
                count += 1
    is_indexed = surroundings.is_indexed
    if is_indexed != 0 and last - first > 1:
        is_indexed = wp.where(columns_reach(surroundings.columns, x, y, radius), 1, 0)
    # A single height field is a common case: its dimensions stay in registers
    lone = int(-1)
    h = HField()
    half = wp.vec2()
    per = wp.vec2()
    origin = wp.vec3()
    turn = wp.vec2(1.0, 0.0)
    if alone == 1:
        row = surroundings.alone[0]
        if instances.kind[row] == HFIELD and hidden[mount, row] == wp.uint8(0):
            lone = row
            h = fields.fields[instances.field[row]]
            half = wp.vec2(float(h.half_x), float(h.half_y))
            per = wp.vec2(float(h.per_x), float(h.per_y))
            origin = instances.pos[row]
            turn = instances.heading[row]
    others = wp.where(lone >= 0, 0, alone)
    if lone >= 0 and is_indexed == 0 and is_more == 0:
        turn_s = turn[0] * sine - turn[1] * cosine
        turn_c = turn[0] * cosine + turn[1] * sine
        u0 = turn[0] * (p[0] - origin[0]) + turn[1] * (p[1] - origin[1])
        v0 = turn[0] * (p[1] - origin[1]) - turn[1] * (p[0] - origin[0])
        starts = bundle.starts[0]
        distances = out.distance[env, mount]
        points = out.point[env, mount]
        writes_distance = out.distance.shape[0] > 0
        writes_point = out.point.shape[0] > 0
        normals = out.normal[env, mount]
        writes_normal = out.normal.shape[0] > 0
        for r in range(first, last):
            s0 = starts[r]
            x0 = s0[0] + shift[0]
            y0 = s0[1] + shift[1]
            z = p[2] + s0[2]
            t, face, slopes = look_up(
                fields.heights, h, half, per,
                u0 + turn_c * x0 - turn_s * y0, v0 + turn_s * x0 + turn_c * y0, z - origin[2], sign,
            )  # fmt: skip
            x = p[0] + cosine * x0 - sine * y0
            y = p[1] + sine * x0 + cosine * y0
            best = int(-1)
            if count > 0:
                t, best, triangle = _nearest(
                    surroundings,
                    instances,
                    fields,
                    moving,
                    hidden,
                    near,
                    count,
                    movers,
                    env,
                    mount,
                    wp.vec3(x, y, z),
                    d,
                    t,
                )
                if best >= 0:
                    face = triangle
            is_hit = t <= limits[1] and t >= limits[0]
            if writes_distance:
                distances[r] = wp.where(is_hit, t, out.miss)
            if writes_point:
                point = wp.vec3(wp.inf, wp.inf, wp.inf)
                if is_hit:
                    point = wp.vec3(x, y, z + sign * t + lift)
                points[r] = point
            if writes_normal:
                normal = wp.vec3()
                if is_hit and best < 0 and face >= 0:
                    a = -slopes[0] * per[0]
                    b = -slopes[1] * per[1]
                    normal = wp.normalize(wp.vec3(turn[0] * a - turn[1] * b, turn[1] * a + turn[0] * b, 1.0))
                elif is_hit:
                    row = wp.where(best < 0, lone, best)
                    at = wp.vec3(x, y, z + sign * t)
                    normal = hit_normal(surroundings, instances, fields, moving, env, 0, at, row, face)
                normals[r] = normal
        return
    for r in range(first, last):
        s0 = bundle.starts[0, r]
        x0 = s0[0] + shift[0]
        y0 = s0[1] + shift[1]
        x = p[0] + cosine * x0 - sine * y0
        y = p[1] + sine * x0 + cosine * y0
        z = p[2] + s0[2]
        s = wp.vec3(x, y, z)
        t = limits[1]
        best = int(-1)
        face = int(-1)
        if is_indexed != 0:
            found, triangle = columns_ray(surroundings.columns, x, y, z, sign, t)
            if found <= t:
                t = found
                best = -2
                face = triangle
        if lone >= 0:
            u = x - origin[0]
            v = y - origin[1]
            found, triangle, _slopes = look_up(
                fields.heights, h, half, per, turn[0] * u + turn[1] * v, turn[0] * v - turn[1] * u, z - origin[2], sign
            )
            if found <= t:
                t = found
                best = lone
                face = triangle
        for n in range(others):
            row = surroundings.alone[n]
            if hidden[mount, row] != wp.uint8(0):
                continue
            found = float(wp.inf)
            triangle = int(-1)
            if instances.kind[row] == HFIELD:
                c = instances.pos[row]
                way = instances.heading[row]
                u = x - c[0]
                v = y - c[1]
                at = wp.vec3(way[0] * u + way[1] * v, way[0] * v - way[1] * u, z - c[2])
                found, triangle = ray_hfield_vertical(fields, instances.field[row], at, sign)
            else:
                found, triangle = ray_solid(
                    instances, row, instances.size[row], instances.pos[row], instances.quat[row], s, d, t
                )
            if found <= t:
                t = found
                best = row
                face = triangle
        if count > 0:
            found, row, triangle = _nearest(
                surroundings, instances, fields, moving, hidden, near, count, movers, env, mount, s, d, t
            )
            if row != -1:
                t = found
                best = row
                face = triangle
        is_hit = best != -1 and t >= limits[0]
        if out.distance.shape[0] > 0:
            out.distance[env, mount, r] = wp.where(is_hit, t, out.miss)
        if out.point.shape[0] > 0:
            point = wp.vec3(wp.inf, wp.inf, wp.inf)
            if is_hit:
                point = wp.vec3(x, y, z + sign * t + lift)
            out.point[env, mount, r] = point
        if is_more != 0 or out.normal.shape[0] > 0:
            write_hit(surroundings, instances, fields, moving, pose, out, env, mount, r, 0, s, d, t, best, face, is_hit)
