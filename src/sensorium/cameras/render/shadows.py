"""Shadows: which lights reach the surfaces that pixels show, tile by tile.

Shadows of triangles are drawn as the light sees them. The points that the pixels of a tile show are projected from the
light, in perspective or in parallel, and put into a grid of bins. A triangle blocks the light of a point if its
projection contains that of the point, and it is nearer to the light there. So a triangle is compared with the few
points of its bins, and no tree is searched. Rays towards the light test analytic shapes, and meshes with many triangles
per point. In the tiles of a GPU, which are so small that triangles are never drawn, rays test all shapes.
"""

from __future__ import annotations

import warp as wp

from sensorium.cameras.render.clusters import GROUP, VERTICES, Surface
from sensorium.cameras.render.light_rays import AWAY, is_blocked, ray_to_light
from sensorium.cameras.render.lighting import way_to_light
from sensorium.cameras.render.paint_structs import Light, Looks
from sensorium.cameras.render.place import turned_from_z
from sensorium.cameras.render.shade import OPAQUE, flat_normal, shift_at, world_line
from sensorium.cameras.render.structs import (
    Cameras,
    HitRecord,
    Lens,
    Placed,
    rotation_of,
    row_bounds,
    row_centre,
    row_pose,
)
from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.geometry.hfield import HFields
from sensorium.geometry.primitives import MESH
from sensorium.geometry.transforms import quat_rotate, quat_rotate_inverse

POINTS = 256
"""Maximum number of pixels of a tile."""
BINS = wp.constant(8)
"""Bins along each axis of the projection."""
CLUSTERS = 16
"""Maximum number of clusters of a shape that are drawn."""
DENSE = wp.constant(4)
"""Triangles per point from which rays are faster than drawing them."""
NEAREST = wp.constant(wp.float32(0.02))
"""Minimum distance of projected surfaces from the light, as a share of the tile's."""
Floats = wp.types.vector(length=POINTS, dtype=wp.float32)
Ints = wp.types.vector(length=POINTS, dtype=wp.int32)
Heads = wp.types.vector(length=64, dtype=wp.int32)
Numbers = wp.types.vector(length=VERTICES, dtype=wp.float32)
MAX = wp.constant(128)
"""Number of shapes that are tested by rays together."""
Near = wp.types.vector(length=128, dtype=wp.int32)
Balls = wp.types.matrix(shape=(128, 4), dtype=wp.float32)
Chosen = wp.types.vector(length=CLUSTERS, dtype=wp.int32)
DRAWS = True
"""Static flag: tiles have so many pixels that drawing triangles may pay."""
FEW = 4
"""Maximum number of pixels of a tile in the variant that draws nothing. Below 16, no variant draws a cluster."""
FewFloats = wp.types.vector(length=FEW, dtype=wp.float32)
FewInts = wp.types.vector(length=FEW, dtype=wp.int32)
FEW_MAX = wp.constant(16)
FewNear = wp.types.vector(length=16, dtype=wp.int32)
FewBalls = wp.types.matrix(shape=(16, 4), dtype=wp.float32)


@wp.func
def projected(h: wp.vec3, inverse: float) -> wp.vec3:
    """Return two coordinates of a projection from a light, and a third that is linear in them and rises towards it.

    Args:
        h: point in a frame whose z axis points away from the light, m.
        inverse: inverse distance of the light from the origin of that frame, 1/m; 0 for parallel rays.
    """
    scale = 1.0 / (1.0 + h[2] * inverse)
    return wp.vec3(h[0] * scale, h[1] * scale, -h[2] * scale)


@wp.func
def is_around(h: wp.vec3, r: float, inverse: float) -> wp.bool:
    """Return whether a sphere comes so near to the light that it cannot be projected; see `projected`."""
    return 1.0 + (h[2] - r) * inverse <= NEAREST


@wp.func
def is_aside(h: wp.vec3, r: float, inverse: float, low: wp.vec3, high: wp.vec3) -> wp.bool:
    """Return whether a sphere hides the light from no point whose projection is in a box."""
    if is_around(h, r, inverse):
        return 1.0 + (h[2] + r) * inverse < 0.0
    most = 1.0 / (1.0 + (h[2] - r) * inverse)
    q = projected(h, inverse)
    far = wp.max(wp.abs(h[0]), wp.abs(h[1]))
    reach = r * most + far * (most - 1.0 / (1.0 + h[2] * inverse)) + 1.0e-6 * (far + wp.abs(h[2]))
    if q[0] + reach < low[0] or q[0] - reach > high[0] or q[1] + reach < low[1] or q[1] - reach > high[1]:
        return True
    return (r - h[2]) * most < low[2]


@kernel(variants={"drawn": {"DRAWS": True}, "rays": {"DRAWS": False}}, blocks=2)
def cast_shadows(
    rows: Rows,
    side: int,
    lens: Lens,
    cameras: Cameras,
    placed: Placed,
    fields: HFields,
    surfaces: wp.array[Surface],
    looks: Looks,
    lights: wp.array2d[Light],
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
        surfaces: triangles of meshes and height fields.
        looks: looks of the shapes.
        lights: the lights.
        hidden: 1 if a mount ignores an instance `[mount, instance]`.
        hits: the visible surfaces.
        reached: the output: a bit for each light.
    """
    env, mount, piece = masked_tid(rows)
    place = place_of(rows, env)
    instances = placed.instances
    shapes = instances.kind.shape[0]
    columns = (lens.width + side - 1) / side
    u0 = ((rows.first + piece) % columns) * side
    v0 = ((rows.first + piece) / columns) * side
    u1 = wp.min(u0 + side, lens.width)
    v1 = wp.min(v0 + side, lens.height)
    # the line of sight of a pinhole is linear in the pixels
    eye, ahead = world_line(lens, cameras, env, mount, v0 * lens.width + u0)
    across = shift_at(lens, cameras, env, mount, v0 * lens.width + u0, 1, 1.0)
    down = shift_at(lens, cameras, env, mount, v0 * lens.width + u0, lens.width, 1.0)
    is_pinhole = lens.inverse_k.shape[0] > 0
    forward = quat_rotate(cameras.quat[env, mount], wp.vec3(1.0, 0.0, 0.0))
    e = env % looks.rgba.shape[0]
    is_empty = bool(True)
    middle = wp.vec3()  # a point of the tile
    for v in range(v0, v1):
        for u in range(u0, u1):
            pixel = v * lens.width + u
            reached[place, mount, pixel] = 0
            if is_empty and hits.shape[place, mount, pixel] >= 0:
                is_empty = False
                s, d = world_line(lens, cameras, env, mount, pixel)
                middle = s + d / hits.inverse[place, mount, pixel]
    if is_empty:
        return
    draws = int(0)
    most = int(FEW_MAX)
    if wp.static(DRAWS):
        draws = 1
        most = MAX
        x = Floats()
        y = Floats()
        z = Floats()
        pixels = Ints()
        starts_x = Floats()
        starts_y = Floats()
        starts_z = Floats()
        near = Near()
        balls = Balls()
    else:
        x = FewFloats()
        y = FewFloats()
        z = FewFloats()
        pixels = FewInts()
        starts_x = FewFloats()
        starts_y = FewFloats()
        starts_z = FewFloats()
        near = FewNear()
        balls = FewBalls()
    after = Ints()
    heads = Heads()
    chosen = Chosen()
    us = Numbers()
    vs = Numbers()
    ws = Numbers()
    for k in range(lights.shape[1]):
        light = lights[env, k]
        bit = light.shadow
        if bit < 0:
            continue
        way, far = way_to_light(light, middle, forward)
        inverse = 1.0 / far
        turn = wp.transpose(rotation_of(turned_from_z(-way)))
        # The points that the light may reach, in the projection
        low = wp.vec3(wp.inf, wp.inf, wp.inf)
        high = wp.vec3(-wp.inf, -wp.inf, -wp.inf)
        count = int(0)
        is_ahead = bool(True)
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
                s = eye
                d = ahead + float(u - u0) * across + float(v - v0) * down
                if not is_pinhole:
                    s, d = world_line(lens, cameras, env, mount, pixel)
                t = 1.0 / hits.inverse[place, mount, pixel]
                point = s + t * d
                local = quat_rotate_inverse(own_quat, point - own_pos)
                face = hits.face[place, mount, pixel]
                n = quat_rotate(own_quat, flat_normal(placed, fields, env, own_row, face, local))
                may_reach, start, _way, _far = ray_to_light(light, forward, point, n, AWAY * t, looks.casts[shape])
                if may_reach:
                    reached[place, mount, pixel] = reached[place, mount, pixel] | (1 << bit)
                    h = turn * (start - middle)
                    is_ahead = is_ahead and not is_around(h, 0.0, inverse)
                    q = projected(h, inverse)
                    low = wp.min(low, q)
                    high = wp.max(high, q)
                    x[count] = q[0]
                    y[count] = q[1]
                    z[count] = q[2]
                    starts_x[count] = start[0]
                    starts_y[count] = start[1]
                    starts_z[count] = start[2]
                    pixels[count] = pixel
                    count += 1
        if count == 0:
            continue
        per_x = float(BINS) / wp.max(high[0] - low[0], 1.0e-9)
        per_y = float(BINS) / wp.max(high[1] - low[1], 1.0e-9)
        is_sorted = bool(False)
        lit = int(count)
        left = int(0)  # shapes for rays
        last = int(-1)  # the shape that blocked the light of the point before is likely to block this one's
        for row in range(shapes + 1):
            is_caster = row < shapes and lit > 0
            centre = wp.vec3()
            radius = float(0.0)
            if is_caster:
                is_caster = hidden[mount, row] == wp.uint8(0) and looks.casts[instances.shape[row]] != 0
            if is_caster:
                radius, _half = row_bounds(placed, env, row)
                centre = row_centre(placed, env, row)
                is_caster = radius > 0.0
                if is_ahead:
                    is_caster = is_caster and not is_aside(turn * (centre - middle), radius, inverse, low, high)
            # The clusters between the points and the light
            index = int(-1)
            if is_caster:
                index = placed.surface[row]
            is_drawn = is_ahead and index >= 0
            if is_drawn:  # triangles over the points, if they are spread evenly
                share = wp.min((high[0] - low[0]) * (high[1] - low[1]) / (3.0 * radius * radius), 1.0)
                is_drawn = share * float(surfaces[index].triangles) < float(lit * DENSE)
            found = int(0)
            scale = wp.vec3(1.0, 1.0, 1.0)
            to = wp.mat33()
            shift = wp.vec3()
            if is_drawn:
                if instances.kind[row] == MESH:
                    scale = instances.size[row]
                widest = wp.max(wp.abs(scale))
                pos, quat = row_pose(placed, env, row)
                to = turn * rotation_of(quat) * wp.diag(scale)
                shift = turn * (pos - middle)
                clusters = surfaces[index].sphere.shape[0]
                groups = surfaces[index].group.shape[0]
                limit = draws * wp.min(wp.static(CLUSTERS), lit * DENSE / 64)
                group = int(0)
                while group < groups and is_drawn:
                    ball = surfaces[index].group[group]
                    if not is_aside(
                        to * wp.vec3(ball[0], ball[1], ball[2]) + shift, ball[3] * widest, inverse, low, high
                    ):
                        for c in range(group * GROUP, wp.min(group * GROUP + GROUP, clusters)):
                            ball = surfaces[index].sphere[c]
                            h = to * wp.vec3(ball[0], ball[1], ball[2]) + shift
                            r = ball[3] * widest
                            if is_drawn and not is_aside(h, r, inverse, low, high):
                                is_drawn = found < limit and not is_around(h, r, inverse)
                                if is_drawn:
                                    chosen[found] = c
                                    found += 1
                    group += 1
            if is_caster and not is_drawn:
                near[left] = row
                balls[left] = wp.vec4(centre[0], centre[1], centre[2], radius)
                left += 1
                found = 0
            if draws * found > 0 and not is_sorted:
                is_sorted = True
                for i in range(BINS * BINS):
                    heads[i] = -1
                for i in range(count):
                    bin_x = wp.min(int((x[i] - low[0]) * per_x), BINS - 1)
                    bin_y = wp.min(int((y[i] - low[1]) * per_y), BINS - 1)
                    after[i] = heads[bin_y * BINS + bin_x]
                    heads[bin_y * BINS + bin_x] = i
            for number_c in range(draws * found):
                c = chosen[number_c]
                first = surfaces[index].first_vertex[c]
                for i in range(surfaces[index].first_vertex[c + 1] - first):
                    q = projected(to * surfaces[index].points[surfaces[index].vertex[first + i]] + shift, inverse)
                    us[i] = q[0]
                    vs[i] = q[1]
                    ws[i] = q[2]
                for triangle in range(surfaces[index].first_triangle[c], surfaces[index].first_triangle[c + 1]):
                    corners = surfaces[index].corner[triangle]
                    i = corners & 255
                    j = (corners >> 8) & 255
                    m = corners >> 16
                    min_x = (wp.min(wp.min(us[i], us[j]), us[m]) - low[0]) * per_x
                    max_x = (wp.max(wp.max(us[i], us[j]), us[m]) - low[0]) * per_x
                    min_y = (wp.min(wp.min(vs[i], vs[j]), vs[m]) - low[1]) * per_y
                    max_y = (wp.max(wp.max(vs[i], vs[j]), vs[m]) - low[1]) * per_y
                    nearest = wp.max(wp.max(ws[i], ws[j]), ws[m])
                    if wp.min(max_x, max_y) < 0.0 or wp.max(min_x, min_y) > float(BINS) or nearest < low[2]:
                        continue
                    for bin_y in range(int(wp.max(min_y, 0.0)), int(wp.min(max_y, float(BINS - 1))) + 1):
                        for bin_x in range(int(wp.max(min_x, 0.0)), int(wp.min(max_x, float(BINS - 1))) + 1):
                            at = heads[bin_y * BINS + bin_x]
                            while at >= 0:
                                ax = us[i] - x[at]
                                ay = vs[i] - y[at]
                                bx = us[j] - x[at]
                                by = vs[j] - y[at]
                                cx = us[m] - x[at]
                                cy = vs[m] - y[at]
                                a = bx * cy - by * cx
                                b = cx * ay - cy * ax
                                w = ax * by - ay * bx
                                # one branch for all conditions, since it is seldom predictable
                                height = (a * ws[i] + b * ws[j] + w * ws[m]) / (a + b + w)
                                sides = wp.min(wp.min(a, b), w) * wp.max(wp.max(a, b), w)
                                if wp.where(sides >= 0.0, height, -wp.inf) > z[at]:
                                    z[at] = wp.inf
                                    lit -= 1
                                    reached[place, mount, pixels[at]] = reached[place, mount, pixels[at]] - (1 << bit)
                                at = after[at]
            if left == most or row == shapes:
                for i in range(count):
                    if z[i] < wp.inf and left > 0:
                        start = wp.vec3(starts_x[i], starts_y[i], starts_z[i])
                        to_light, length = way_to_light(light, start, forward)
                        is_dark = bool(False)
                        if last >= 0:
                            is_dark = is_blocked(placed, fields, env, last, start, to_light, length)
                        c = int(0)
                        while c < left and not is_dark:
                            ball = balls[c]
                            gap = wp.vec3(ball[0], ball[1], ball[2]) - start
                            gap = gap - wp.clamp(wp.dot(gap, to_light), 0.0, length) * to_light
                            if wp.length_sq(gap) <= ball[3] * ball[3] and near[c] != last:
                                is_dark = is_blocked(placed, fields, env, near[c], start, to_light, length)
                                if is_dark:
                                    last = near[c]
                            c += 1
                        if is_dark:
                            z[i] = wp.inf
                            lit -= 1
                            reached[place, mount, pixels[i]] = reached[place, mount, pixels[i]] - (1 << bit)
                left = 0
