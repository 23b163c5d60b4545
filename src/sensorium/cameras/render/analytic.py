"""Analytic shapes and dense meshes in a tile of a pinhole image: boxes and planes by affine functions, others by rays.

A dense mesh has many triangles per pixel. Its rays are limited by the nearest hit so far.
"""

from __future__ import annotations

import warp as wp

from sensorium.cameras.render.structs import (
    Cameras,
    HitRecord,
    Lens,
    Lists,
    Placed,
    put_hit,
    rotation_of,
    row_pose,
    row_size,
    tile_axes,
)
from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.geometry.primitives import BOX, MESH, PLANE, ray_primitive


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


@kernel
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
