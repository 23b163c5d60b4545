"""First step of a pinhole image: the shapes of every tile, with their pixels, from front to back."""

from __future__ import annotations

import warp as wp

from sensorium.cameras.render.clusters import Surface
from sensorium.cameras.render.structs import (
    Cameras,
    HitRecord,
    Lens,
    Lists,
    Placed,
    rotation_of,
    row_bounds,
    row_pose,
    tile_axes,
)
from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.geometry.transforms import quat_rotate

UNBOUNDED = wp.constant(1e29)
"""Radius from which a shape is unbounded, m."""
FEW = wp.constant(256)
"""Number of triangles up to which a mesh is never dense."""
DENSE = wp.constant(32.0)
"""Triangles per pixel of a shape's rectangle from which rays are faster than drawing all triangles."""
AROUND = wp.constant(6.0)
"""Pixels of a shape that surrounds the camera, relative to the tile's, for that choice."""
MARGIN = wp.constant(2e-3)
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
                u_first = wp.max(u_first, int(wp.ceil(wp.clamp(min_u, -100.0, 100.0) - MARGIN + shift)))
                u_last = wp.min(u_last, int(wp.floor(wp.clamp(max_u, -100.0, 100.0) + MARGIN + shift)))
                v_first = wp.max(v_first, int(wp.ceil(wp.clamp(min_v, -100.0, 100.0) - MARGIN + shift)))
                v_last = wp.min(v_last, int(wp.floor(wp.clamp(max_v, -100.0, 100.0) + MARGIN + shift)))
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
