"""Pinhole images by tiles: the shapes of each tile, from front to back, and their surfaces.

Triangles of meshes and height fields are drawn cluster by cluster, other shapes analytically.
Boxes and planes are affine functions, other analytic shapes and dense meshes are hit by rays. A dense mesh has many
triangles per pixel; its rays are limited by the nearest hit so far.

A triangle is drawn with homogeneous coordinates: a line of sight meets it if it passes its three edges on the same
side. The side is the sign of the product of the direction with the edge's plane through the camera, the cross product
of the edge's ends. Two triangles with a common edge use the same numbers with opposite signs, so no pixel between them
is lost. Triangles that cross the camera's plane need no clipping.

See M. Olano and T. Greer, Triangle scan conversion using 2D homogeneous coordinates, Graphics Hardware 1997.
"""

from __future__ import annotations

import warp as wp

from sensorium.cameras.render.clusters import GROUP, VERTICES, Surface
from sensorium.cameras.render.structs import (
    Cameras,
    HitRecord,
    Lens,
    Lists,
    Placed,
    put_hit,
    rotation_of,
    row_bounds,
    row_pose,
    row_size,
    tile_axes,
)
from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.geometry.primitives import BOX, MESH, PLANE, ray_primitive
from sensorium.geometry.transforms import quat_rotate

Numbers = wp.types.vector(length=VERTICES, dtype=wp.float32)
"""One coordinate of the vertices of a cluster."""
MARGIN = wp.constant(1e-3)
"""Margin of the rectangle around a triangle, px, for rounding."""


@wp.func
def is_beside(
    ball: wp.vec4,
    turn: wp.mat33,
    shift: wp.vec3,
    low: wp.vec2,
    high: wp.vec2,
    reach: wp.vec4,
    widest: float,
    near: float,
    far: float,
) -> wp.bool:
    """Return whether a sphere in a shape's frame is outside the part of space that a rectangle of pixels shows."""
    p = turn * wp.vec3(ball[0], ball[1], ball[2]) + shift
    r = ball[3] * widest
    if p[2] + r < near or p[2] - r > far:
        return True
    if p[0] - low[0] * p[2] < -r * reach[0] or high[0] * p[2] - p[0] < -r * reach[1]:
        return True
    return p[1] - low[1] * p[2] < -r * reach[2] or high[1] * p[2] - p[1] < -r * reach[3]


@wp.func
def sign_in(edge: wp.vec3, us: wp.vec2, vs: wp.vec2) -> int:
    """Return the sign of an edge's function in a rectangle of pixels: 1 or 2, or 0 if it changes there."""
    low = wp.min(edge[0] * us[0], edge[0] * us[1]) + (wp.min(edge[1] * vs[0], edge[1] * vs[1]) + edge[2])
    high = wp.max(edge[0] * us[0], edge[0] * us[1]) + (wp.max(edge[1] * vs[0], edge[1] * vs[1]) + edge[2])
    sign = int(0)
    if low > 0.0:
        sign = int(1)
    if high < 0.0:
        sign = int(2)
    return sign


@kernel(blocks=2)
def draw_clusters(
    rows: Rows,
    lens: Lens,
    cameras: Cameras,
    placed: Placed,
    surfaces: wp.array[Surface],
    lists: Lists,
    record: HitRecord,
) -> None:
    """Draw the triangles of one tile."""
    env, mount, piece = masked_tid(rows)
    tile = rows.first + piece
    place = place_of(rows, env)
    instances = placed.instances
    to_pixels, _to_world = tile_axes(lens, cameras, env, mount, tile)
    eye = cameras.pos[env, mount]
    u0 = (tile % lens.columns) * lens.tile
    v0 = (tile / lens.columns) * lens.tile
    half = lens.tile / 2
    row_u = wp.vec3(to_pixels[0, 0], to_pixels[0, 1], to_pixels[0, 2])
    row_v = wp.vec3(to_pixels[1, 0], to_pixels[1, 1], to_pixels[1, 2])
    forward = wp.vec3(to_pixels[2, 0], to_pixels[2, 1], to_pixels[2, 2])
    least = 1.0 / lens.far
    most = 1.0 / lens.near
    x = Numbers()
    y = Numbers()
    z = Numbers()
    us = Numbers()
    vs = Numbers()
    for k in range(lists.count[place, mount, tile]):
        entry = lists.row[place, mount, tile, k]
        row = entry >> 1
        if instances.kind[row] < MESH or (entry & 1) != 0:
            continue
        rect = lists.rect[place, mount, tile, k]
        u_first = (rect & 255) - half
        u_last = ((rect >> 8) & 255) - half
        v_first = ((rect >> 16) & 255) - half
        v_last = (rect >> 24) - half
        low = wp.vec2(float(u_first) - 0.5, float(v_first) - 0.5)
        high = wp.vec2(float(u_last) + 0.5, float(v_last) + 0.5)
        reach = wp.vec4(
            wp.length(row_u - low[0] * forward),
            wp.length(row_u - high[0] * forward),
            wp.length(row_v - low[1] * forward),
            wp.length(row_v - high[1] * forward),
        )
        edge_u = wp.vec2(float(u_first), float(u_last))
        edge_v = wp.vec2(float(v_first), float(v_last))
        shape = instances.shape[row]
        scale = wp.vec3(1.0, 1.0, 1.0)
        if instances.kind[row] == MESH:
            scale = instances.size[row]
        widest = wp.max(wp.abs(scale))
        pos, quat = row_pose(placed, env, row)
        turn = to_pixels * rotation_of(quat) * wp.diag(scale)
        shift = to_pixels * (pos - eye)
        surface = surfaces[placed.surface[row]]
        clusters = surface.sphere.shape[0]
        for group in range(surface.group.shape[0]):
            if is_beside(surface.group[group], turn, shift, low, high, reach, widest, lens.near, lens.far):
                continue
            for c in range(group * GROUP, wp.min(group * GROUP + GROUP, clusters)):
                if is_beside(surface.sphere[c], turn, shift, low, high, reach, widest, lens.near, lens.far):
                    continue
                ball = surface.sphere[c]
                is_ahead = (turn[2, 0] * ball[0] + turn[2, 1] * ball[1] + turn[2, 2] * ball[2] + shift[2]) > ball[
                    3
                ] * widest
                first = surface.first_vertex[c]
                for i in range(surface.first_vertex[c + 1] - first):
                    p = turn * surface.points[surface.vertex[first + i]] + shift
                    inverse = 1.0 / p[2]
                    x[i] = p[0]
                    y[i] = p[1]
                    z[i] = p[2]
                    us[i] = p[0] * inverse
                    vs[i] = p[1] * inverse
                for triangle in range(surface.first_triangle[c], surface.first_triangle[c + 1]):
                    corners = surface.corner[triangle]
                    i = corners & 255
                    j = (corners >> 8) & 255
                    m = corners >> 16
                    low_u = edge_u[0]
                    high_u = edge_u[1]
                    low_v = edge_v[0]
                    high_v = edge_v[1]
                    if is_ahead or wp.min(wp.min(z[i], z[j]), z[m]) > 0.0:
                        low_u = wp.clamp(wp.min(wp.min(us[i], us[j]), us[m]) - MARGIN, low_u, 99.0)
                        high_u = wp.clamp(wp.max(wp.max(us[i], us[j]), us[m]) + MARGIN, -99.0, high_u)
                        low_v = wp.clamp(wp.min(wp.min(vs[i], vs[j]), vs[m]) - MARGIN, low_v, 99.0)
                        high_v = wp.clamp(wp.max(wp.max(vs[i], vs[j]), vs[m]) + MARGIN, -99.0, high_v)
                    begin_u = 128 - int(128.0 - low_u)  # rounds up
                    end_u = int(high_u + 128.0) - 128  # rounds down
                    begin_v = 128 - int(128.0 - low_v)
                    end_v = int(high_v + 128.0) - 128
                    if wp.max(begin_u - end_u, begin_v - end_v) > 0:
                        continue
                    a = wp.vec3(x[i], y[i], z[i])
                    b = wp.vec3(x[j], y[j], z[j])
                    e = wp.vec3(x[m], y[m], z[m])
                    na = wp.cross(b, e)
                    nb = wp.cross(e, a)
                    nc = wp.cross(a, b)
                    rect_u = wp.vec2(float(begin_u), float(end_u))
                    rect_v = wp.vec2(float(begin_v), float(end_v))
                    # terrains take half of the time, the hall a fifth: many triangles miss the rectangle around them
                    if (sign_in(na, rect_u, rect_v) | sign_in(nb, rect_u, rect_v) | sign_in(nc, rect_u, rect_v)) == 3:
                        continue
                    for v in range(begin_v, end_v + 1):
                        ra = na[1] * float(v) + na[2]
                        rb = nb[1] * float(v) + nb[2]
                        rc = nc[1] * float(v) + nc[2]
                        base = (v0 + half + v) * lens.width + u0 + half
                        for u in range(begin_u, end_u + 1):
                            wa = na[0] * float(u) + ra
                            wb = nb[0] * float(u) + rb
                            wc = nc[0] * float(u) + rc
                            # one branch for all conditions, since it is seldom predictable
                            inverse = (wa + wb + wc) / (wa * a[2] + wb * b[2] + wc * e[2])
                            sides = wp.min(wp.min(wa, wb), wc) * wp.max(wp.max(wa, wb), wc)
                            inverse = wp.where(sides >= 0.0, inverse, -1.0)
                            if inverse >= wp.max(record.inverse[place, mount, base + u], least):
                                if inverse <= most:
                                    put_hit(record, place, mount, base + u, inverse, shape, surface.face[triangle])


@wp.func
def slab(o: float, half: float) -> wp.vec3:
    """Return factors of a ray's component that give its inverse t at one pair of sides of a box.

    A line enters the slab at inverse t = x d + z, and leaves it at the greater of y d and the third value's: the
    first factor is 0 if the start is inside the slab.
    """
    below = 1.0 / (-half - o)
    above = 1.0 / (half - o)
    if o > half:
        return wp.vec3(above, below, below)
    if o < -half:
        return wp.vec3(below, above, above)
    return wp.vec3(0.0, below, above)


@kernel(blocks=2)
def draw_analytic(rows: Rows, lens: Lens, cameras: Cameras, placed: Placed, lists: Lists, record: HitRecord) -> None:
    """Draw the analytic shapes and dense meshes of one tile."""
    env, mount, piece = masked_tid(rows)
    tile = rows.first + piece
    place = place_of(rows, env)
    instances = placed.instances
    _to_pixels, to_world = tile_axes(lens, cameras, env, mount, tile)
    eye = cameras.pos[env, mount]
    u0 = (tile % lens.columns) * lens.tile
    v0 = (tile / lens.columns) * lens.tile
    shift = lens.tile / 2
    most = 1.0 / lens.near
    least = 1.0 / lens.far
    for k in range(lists.count[place, mount, tile]):
        entry = lists.row[place, mount, tile, k]
        row = entry >> 1
        is_dense = (entry & 1) != 0
        kind = instances.kind[row]
        if kind >= MESH and not is_dense:
            continue
        rect = lists.rect[place, mount, tile, k]
        start = lists.front[place, mount, tile, k]
        front = 1.0 / start
        size = row_size(placed, env, row)
        shape = instances.shape[row]
        pos, quat = row_pose(placed, env, row)
        back = wp.transpose(rotation_of(quat))
        o = back * (eye - pos)
        along = back * to_world
        du = wp.vec3(along[0, 0], along[1, 0], along[2, 0])
        dv = wp.vec3(along[0, 1], along[1, 1], along[2, 1])
        d0 = wp.vec3(along[0, 2], along[1, 2], along[2, 2])
        if is_dense:
            o = wp.cw_div(o, size)
            du = wp.cw_div(du, size)
            dv = wp.cw_div(dv, size)
            d0 = wp.cw_div(d0, size)
        # The slabs of a box: inverse t at which a line enters and leaves them is affine in (u, v)
        is_box = kind == BOX and front < most
        is_box = is_box and (wp.abs(o[0]) > size[0] or wp.abs(o[1]) > size[1] or wp.abs(o[2]) > size[2])
        sx = wp.vec3()
        sy = wp.vec3()
        sz = wp.vec3()
        open = wp.vec3()
        if is_box:
            sx = slab(o[0], size[0])
            sy = slab(o[1], size[1])
            sz = slab(o[2], size[2])
            open = wp.vec3(
                wp.where(sx[0] == 0.0, wp.inf, 0.0),
                wp.where(sy[0] == 0.0, wp.inf, 0.0),
                wp.where(sz[0] == 0.0, wp.inf, 0.0),
            )
        for v in range((rect >> 16) & 255, (rect >> 24) + 1):
            base = (v0 + v) * lens.width + u0
            dy = d0 + float(v - shift) * dv
            for u in range(rect & 255, ((rect >> 8) & 255) + 1):
                before = record.inverse[place, mount, base + u]
                if before > front:
                    continue
                d = dy + float(u - shift) * du
                inverse = float(0.0)
                face = int(-1)
                if is_dense:
                    limit = lens.far
                    if before > 0.0:
                        limit = 1.000001 / before
                    query = wp.mesh_query_ray(instances.mesh[row], o + start * d, d, limit - start)
                    if query.result:
                        inverse = 1.0 / (start + query.t)
                        face = query.face
                elif is_box:
                    enters = wp.min(wp.min(sx[0] * d[0] + open[0], sy[0] * d[1] + open[1]), sz[0] * d[2] + open[2])
                    leaves = wp.max(
                        wp.max(wp.max(sx[1] * d[0], sx[2] * d[0]), wp.max(sy[1] * d[1], sy[2] * d[1])),
                        wp.max(sz[1] * d[2], sz[2] * d[2]),
                    )
                    if enters >= leaves:
                        inverse = enters
                elif kind == PLANE:
                    inverse = -d[2] / o[2]
                    if size[0] > 0.0 and not wp.abs(o[0] * inverse + d[0]) <= size[0] * inverse:
                        inverse = 0.0
                    if size[1] > 0.0 and not wp.abs(o[1] * inverse + d[1]) <= size[1] * inverse:
                        inverse = 0.0
                else:
                    inverse = 1.0 / (lens.near + ray_primitive(kind, size, o + lens.near * d, d))
                if inverse >= least and inverse <= most and inverse > 0.0:
                    put_hit(record, place, mount, base + u, inverse, shape, face)


UNBOUNDED = wp.constant(1e29)
"""Radius from which a shape is unbounded, m."""
FEW = wp.constant(256)
"""Number of triangles up to which a mesh is never dense."""
DENSE = wp.constant(32.0)
"""Triangles per pixel of a shape's rectangle from which rays are faster than drawing all triangles."""
AROUND = wp.constant(6.0)
"""Pixels of a shape that surrounds the camera, relative to the tile's, for that choice."""
SHAPE_MARGIN = wp.constant(2e-3)
"""Margin of a shape's rectangle, px, for rounding."""


@kernel
def list_shapes(
    rows: Rows,
    lens: Lens,
    cameras: Cameras,
    placed: Placed,
    surfaces: wp.array[Surface],
    hidden: wp.array2d[wp.uint8],
    lists: Lists,
    record: HitRecord,
) -> None:
    """Clear one tile, and list its shapes."""
    env, mount, piece = masked_tid(rows)
    tile = rows.first + piece
    place = place_of(rows, env)
    instances = placed.instances
    size = lens.tile
    u0 = (tile % lens.columns) * size
    v0 = (tile / lens.columns) * size
    wide = wp.min(size, lens.width - u0)
    high = wp.min(size, lens.height - v0)
    for v in range(high):
        for u in range(wide):
            pixel = (v0 + v) * lens.width + u0 + u
            record.inverse[place, mount, pixel] = 0.0
            record.shape[place, mount, pixel] = -1
            record.face[place, mount, pixel] = -1
    to_pixels, _to_world = tile_axes(lens, cameras, env, mount, tile)
    eye = cameras.pos[env, mount]
    low_u = float(-size / 2) - 0.5
    low_v = float(-size / 2) - 0.5
    high_u = low_u + float(wide)
    high_v = low_v + float(high)
    row_u = wp.vec3(to_pixels[0, 0], to_pixels[0, 1], to_pixels[0, 2])
    row_v = wp.vec3(to_pixels[1, 0], to_pixels[1, 1], to_pixels[1, 2])
    forward = wp.vec3(to_pixels[2, 0], to_pixels[2, 1], to_pixels[2, 2])
    left = wp.normalize(row_u - low_u * forward)
    right = wp.normalize(high_u * forward - row_u)
    top = wp.normalize(row_v - low_v * forward)
    bottom = wp.normalize(high_v * forward - row_v)
    count = int(0)
    for row in range(instances.kind.shape[0]):
        if hidden[mount, row] != wp.uint8(0):
            continue
        pos, quat = row_pose(placed, env, row)
        radius, half = row_bounds(placed, env, row)
        if radius == 0.0:
            continue
        front = lens.near
        u_first = int(0)
        u_last = wide - 1
        v_first = int(0)
        v_last = high - 1
        area = AROUND * float(size * size)
        if radius < UNBOUNDED:
            centre = pos - eye + quat_rotate(quat, instances.centre[row])
            ahead = wp.dot(forward, centre)
            if ahead + radius < lens.near or ahead - radius > lens.far:
                continue
            if wp.dot(left, centre) < -radius or wp.dot(right, centre) < -radius:
                continue
            if wp.dot(top, centre) < -radius or wp.dot(bottom, centre) < -radius:
                continue
            # the corners of its box, in pixels
            axes = to_pixels * rotation_of(quat)
            middle = to_pixels * centre
            nearest = float(wp.inf)
            farthest = float(-wp.inf)
            min_u = float(wp.inf)
            max_u = float(-wp.inf)
            min_v = float(wp.inf)
            max_v = float(-wp.inf)
            beside = int(15)
            corners = int(8)
            for corner in range(corners):
                at = wp.vec3(
                    wp.where((corner & 1) == 0, -half[0], half[0]),
                    wp.where((corner & 2) == 0, -half[1], half[1]),
                    wp.where((corner & 4) == 0, -half[2], half[2]),
                )
                p = middle + axes * at
                nearest = wp.min(nearest, p[2])
                farthest = wp.max(farthest, p[2])
                inverse = 1.0 / p[2]
                min_u = wp.min(min_u, p[0] * inverse)
                max_u = wp.max(max_u, p[0] * inverse)
                min_v = wp.min(min_v, p[1] * inverse)
                max_v = wp.max(max_v, p[1] * inverse)
                if p[0] >= low_u * p[2]:
                    beside = beside & 14
                if p[0] <= high_u * p[2]:
                    beside = beside & 13
                if p[1] >= low_v * p[2]:
                    beside = beside & 11
                if p[1] <= high_v * p[2]:
                    beside = beside & 7
            slack = 1.0e-5 * (wp.abs(ahead) + radius)
            if beside != 0 or farthest + slack < lens.near or nearest - slack > lens.far:
                continue
            if nearest > slack:
                area = wp.max(max_u - min_u, 1.0) * wp.max(max_v - min_v, 1.0)
                shift = float(size / 2)
                u_first = wp.max(u_first, int(wp.ceil(wp.clamp(min_u, -100.0, 100.0) - SHAPE_MARGIN + shift)))
                u_last = wp.min(u_last, int(wp.floor(wp.clamp(max_u, -100.0, 100.0) + SHAPE_MARGIN + shift)))
                v_first = wp.max(v_first, int(wp.ceil(wp.clamp(min_v, -100.0, 100.0) - SHAPE_MARGIN + shift)))
                v_last = wp.min(v_last, int(wp.floor(wp.clamp(max_v, -100.0, 100.0) + SHAPE_MARGIN + shift)))
                if u_first > u_last or v_first > v_last:
                    continue
            front = wp.max(wp.max(nearest, ahead - radius) - slack, lens.near)
        entry = 2 * row
        if instances.mesh[row] != wp.uint64(0):
            surface = placed.surface[row]  # Warp 1.17 fails to compile it as an index of a field
            triangles = surfaces[surface].triangles
            if triangles > FEW and float(triangles) > DENSE * area:
                entry += 1
        lists.row[place, mount, tile, count] = entry
        lists.rect[place, mount, tile, count] = u_first | (u_last << 8) | (v_first << 16) | (v_last << 24)
        lists.front[place, mount, tile, count] = front
        count += 1
    lists.count[place, mount, tile] = count
    # Front to back: insertion sort with decreasing gaps
    gap = int(1)
    while 3 * gap < count:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            front = lists.front[place, mount, tile, i]
            entry = lists.row[place, mount, tile, i]
            rect = lists.rect[place, mount, tile, i]
            k = int(i)
            while k >= gap:
                if lists.front[place, mount, tile, k - gap] <= front:
                    break
                lists.front[place, mount, tile, k] = lists.front[place, mount, tile, k - gap]
                lists.row[place, mount, tile, k] = lists.row[place, mount, tile, k - gap]
                lists.rect[place, mount, tile, k] = lists.rect[place, mount, tile, k - gap]
                k -= gap
            lists.front[place, mount, tile, k] = front
            lists.row[place, mount, tile, k] = entry
            lists.rect[place, mount, tile, k] = rect
        gap = gap // 3
