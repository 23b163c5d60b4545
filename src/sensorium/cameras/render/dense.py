"""Meshes with many triangles per pixel in a tile of a pinhole image: rays, limited by the nearest hit so far."""

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
    tile_axes,
)
from sensorium.compute import Rows, kernel, masked_tid, place_of


@kernel
def draw_dense(rows: Rows, lens: Lens, cameras: Cameras, placed: Placed, lists: Lists, record: HitRecord) -> None:
    """Draw the dense meshes of one tile."""
    env, mount, piece = masked_tid(rows)
    tile = rows.first + piece
    place = place_of(rows, env)
    instances = placed.instances
    _to_pixels, to_world = tile_axes(lens, cameras, env, mount, tile)
    eye = cameras.pos[env, mount]
    u0 = (tile % lens.columns) * lens.tile
    v0 = (tile / lens.columns) * lens.tile
    shift = lens.tile / 2
    for k in range(lists.count[place, mount, tile]):
        entry = lists.row[place, mount, tile, k]
        if (entry & 1) == 0:
            continue
        row = entry >> 1
        rect = lists.rect[place, mount, tile, k]
        front = lists.front[place, mount, tile, k]
        scale = instances.size[row]
        shape = instances.shape[row]
        mesh = instances.mesh[row]
        pos, quat = row_pose(placed, env, row)
        back = wp.transpose(rotation_of(quat))
        o = wp.cw_div(back * (eye - pos), scale)
        along = back * to_world
        du = wp.cw_div(wp.vec3(along[0, 0], along[1, 0], along[2, 0]), scale)
        dv = wp.cw_div(wp.vec3(along[0, 1], along[1, 1], along[2, 1]), scale)
        d0 = wp.cw_div(wp.vec3(along[0, 2], along[1, 2], along[2, 2]), scale)
        for v in range((rect >> 16) & 255, (rect >> 24) + 1):
            base = (v0 + v) * lens.width + u0
            dy = d0 + float(v - shift) * dv
            for u in range(rect & 255, ((rect >> 8) & 255) + 1):
                limit = lens.far
                before = record.inverse[place, mount, base + u]
                if before > 0.0:
                    limit = 1.000001 / before
                if limit < front:
                    continue
                d = dy + float(u - shift) * du
                query = wp.mesh_query_ray(mesh, o + front * d, d, limit - front)
                if query.result:
                    put_hit(record, place, mount, base + u, 1.0 / (front + query.t), shape, query.face)
