"""Colours seen through transparent shapes and in mirrors, along rays from pixel to pixel."""

from __future__ import annotations

import warp as wp

from sensorium.cameras.render.light_rays import AWAY, is_blocked, is_near, ray_to_light
from sensorium.cameras.render.lighting import clamped, lit_surface, sky_color, smooth_normal
from sensorium.cameras.render.paint_structs import Backdrop, Canvas, Light, Looks, Textures
from sensorium.cameras.render.shade import (
    OPAQUE,
    flat_normal,
    in_fog,
    in_haze,
    mirrored,
    on_plane,
    put_color,
    shift_at,
    sky_distance,
    world_line,
)
from sensorium.cameras.render.structs import (
    Cameras,
    HitRecord,
    Lens,
    Placed,
    rotation_of,
    row_pose,
    row_size,
    shape_pose,
)
from sensorium.cameras.render.texturing import texture_color
from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.geometry.hfield import HFields
from sensorium.geometry.primitives import BOX, PLANE
from sensorium.geometry.trace import ray_shape
from sensorium.geometry.transforms import quat_rotate, quat_rotate_inverse

BEHIND = wp.constant(wp.float32(0.3))
"""Opacity of a plane seen from behind, as in MuJoCo."""
MAX_SURFACES = wp.constant(16)
"""Maximum number of surfaces along a path."""


@wp.func
def next_surface(
    placed: Placed, fields: HFields, hidden: wp.array2d[wp.uint8], env: int, mount: int, skipped: int, s: wp.vec3,
    d: wp.vec3, after: float, far: float,
) -> tuple[wp.float32, wp.int32, wp.int32]:  # fmt: skip
    """Return t, instance row and face of the nearest surface beyond t = `after` on a line; row -1 for none."""
    instances = placed.instances
    length = wp.length(d)
    unit = d / length
    start = s + after * d
    best = (far - after) * length
    found_row = int(-1)
    found_face = int(-1)
    for row in range(instances.kind.shape[0]):
        if hidden[mount, row] == wp.uint8(0) and row != skipped:
            if is_near(placed, env, row, start, unit, best):
                pos, quat = row_pose(placed, env, row)
                size = row_size(placed, env, row)
                t, face = ray_shape(instances, fields, row, size, pos, quat, start, unit, best)
                if t < best:
                    best = t
                    found_row = row
                    found_face = face
    return after + best / length, found_row, found_face


@wp.func
def reached_by(
    placed: Placed, fields: HFields, hidden: wp.array2d[wp.uint8], looks: Looks, lights: wp.array2d[Light], env: int,
    mount: int, shape: int, point: wp.vec3, n: wp.vec3, forward: wp.vec3, away: float,
) -> wp.int32:  # fmt: skip
    """Return the mask of the lights with shadows that reach a point of a surface."""
    instances = placed.instances
    mask = int(0)
    for k in range(lights.shape[1]):
        light = lights[env, k]
        bit = light.shadow
        if bit < 0:
            continue
        may_reach, start, way, far = ray_to_light(light, forward, point, n, away, looks.casts[shape])
        is_dark = not may_reach
        for row in range(instances.kind.shape[0]):
            if not is_dark and hidden[mount, row] == wp.uint8(0) and looks.casts[instances.shape[row]] != 0:
                if is_near(placed, env, row, start, way, far):
                    is_dark = is_blocked(placed, fields, env, row, start, way, far)
        if not is_dark:
            mask = mask | (1 << bit)
    return mask


@wp.func
def needs_path(placed: Placed, looks: Looks, has_mirrors: int, env: int, shape: int, eye: wp.vec3) -> wp.bool:
    """Return whether a shape is transparent or a mirror, or a plane that the camera at `eye` sees from behind."""
    if looks.rgba[env % looks.rgba.shape[0], shape][3] < OPAQUE:
        return True
    if has_mirrors != 0 and looks.finish[env % looks.finish.shape[0], shape][3] > 0.0:
        return True
    if placed.instances.kind[placed.row[shape]] != PLANE:
        return False
    pos, quat = shape_pose(placed, env, shape)
    return wp.dot(eye - pos, quat_rotate(quat, wp.vec3(0.0, 0.0, 1.0))) < 0.0


@kernel(blocks=2)
def trace_paths(
    rows: Rows,
    has_shadows: int,
    has_mirrors: int,
    spacing: float,
    lens: Lens,
    cameras: Cameras,
    placed: Placed,
    fields: HFields,
    looks: Looks,
    textures: Textures,
    lights: wp.array2d[Light],
    backdrop: Backdrop,
    hidden: wp.array2d[wp.uint8],
    hits: HitRecord,
    canvas: Canvas,
) -> None:
    """Compute the colours of the pixels in a row whose nearest surface is transparent or a mirror.

    As in MuJoCo, transparent surfaces receive light without shadows, only their outer faces are visible, and their
    colour is blended twice: first from front to back, then from back to front. A mirror adds the scene that it shows,
    without sky and shadows, and each path has at most one mirror.

    Args:
        rows: the environments.
        has_shadows: whether lights cast shadows.
        has_mirrors: whether to show mirrored scenes.
        spacing: see `shade`.
        lens: the lines of sight.
        cameras: poses of the cameras.
        placed: the shapes.
        fields: all height fields.
        looks: looks of the shapes.
        textures: their textures.
        lights: the lights.
        backdrop: background of the shapes.
        hidden: 1 if a mount ignores an instance `[mount, instance]`.
        hits: the visible surfaces.
        canvas: the output.
    """
    env, mount, piece = masked_tid(rows)
    place = place_of(rows, env)
    instances = placed.instances
    forward = quat_rotate(cameras.quat[env, mount], wp.vec3(1.0, 0.0, 0.0))
    eye = cameras.pos[env, mount]
    e = env % looks.rgba.shape[0]
    f = env % looks.finish.shape[0]
    g = env % looks.texture.shape[0]
    first = (rows.first + piece) * lens.width
    last_shape = int(-1)
    is_plain = bool(True)  # whether the shape needs no path
    start = int(0)
    while start < lens.width and is_plain:  # most rows need no path: this loop is small
        shape = hits.shape[place, mount, first + start]
        if shape != last_shape:
            last_shape = shape
            is_plain = shape < 0 or not needs_path(placed, looks, has_mirrors, env, shape, eye)
        start += 1
    if is_plain:
        return
    for pixel in range(first + start - 1, first + lens.width):
        shape = hits.shape[place, mount, pixel]
        if shape != last_shape:
            last_shape = shape
            is_plain = shape < 0 or not needs_path(placed, looks, has_mirrors, env, shape, eye)
        if is_plain:
            continue
        row = placed.row[shape]
        pos, quat = row_pose(placed, env, row)
        s, d = world_line(lens, cameras, env, mount, pixel)
        face = hits.face[place, mount, pixel]
        t = 1.0 / hits.inverse[place, mount, pixel]
        if t > sky_distance(backdrop, d):
            continue
        line = d
        last = float(wp.inf)  # t of the last surface in front of the mirror, or of the mirror
        mirror = wp.vec4()
        shine = float(1.0)  # factor of the colours in a mirror
        skipped = int(-1)
        # Of the surfaces so far: share of the light that passes them, and their colours blended in either order
        passes = float(1.0)
        nearer = wp.vec3()
        farther = wp.vec3()
        raw_nearer = wp.vec3()
        raw_farther = wp.vec3()
        # The same in front of the mirror, and the colour of the mirror
        outer_passes = float(1.0)
        outer_nearer = wp.vec3()
        outer_farther = wp.vec3()
        raw_outer_nearer = wp.vec3()
        raw_outer_farther = wp.vec3()
        own = wp.vec3()
        raw_own = wp.vec3()
        color = wp.vec3()
        raw = wp.vec3()
        ends = float(0.0)  # opacity of the last surface
        is_open = bool(True)
        count = int(0)
        while is_open and count < MAX_SURFACES:
            if count > 0:
                t, row, face = next_surface(placed, fields, hidden, env, mount, skipped, s, d, t * 1.00001, lens.far)
                if row >= 0:
                    shape = instances.shape[row]
                    pos, quat = row_pose(placed, env, row)
            count += 1
            if row < 0 or (skipped < 0 and t > sky_distance(backdrop, d)):
                is_open = False
                t = wp.inf
                if skipped < 0 and backdrop.sky >= 0:
                    color = in_fog(backdrop, sky_distance(backdrop, d), sky_color(textures, backdrop, d))
                    raw = color
                    ends = 1.0
            if is_open:
                point = s + t * d
                p = quat_rotate_inverse(quat, point - pos)
                flat = flat_normal(placed, fields, env, row, face, p)
                n = quat_rotate(quat, flat)
                rgba = looks.rgba[e, shape]
                alpha = rgba[3]
                is_outer = wp.dot(n, d) <= 0.0
                is_opaque = alpha >= OPAQUE
                if instances.kind[row] == PLANE:
                    if wp.dot(eye - pos, n) < 0.0:
                        alpha = BEHIND * alpha
                        is_opaque = False
                    is_outer = True
                if is_opaque or is_outer:
                    image = wp.vec4(1.0, 1.0, 1.0, 1.0)
                    texture = looks.texture[g, shape]
                    if texture >= 0:
                        turn = wp.transpose(rotation_of(quat))
                        _s, wu = mirrored(mirror, p, shift_at(lens, cameras, env, mount, pixel, 1, t))
                        _s, wv = mirrored(mirror, p, shift_at(lens, cameras, env, mount, pixel, lens.width, t))
                        along = turn * d
                        wu = on_plane(turn * (spacing * wu), along, flat)
                        wv = on_plane(turn * (spacing * wv), along, flat)
                        image = texture_color(looks, textures, instances, texture, shape, row, face, p, wu, wv)
                    reached = int(-1)
                    if is_opaque and has_shadows != 0 and skipped < 0:
                        reached = reached_by(
                            placed, fields, hidden, looks, lights, env, mount, shape, point, n, forward, AWAY * t
                        )
                    normal = n
                    if looks.first[shape][0] >= 0:
                        normal = quat_rotate(quat, smooth_normal(looks, placed, shape, row, face, p))
                    finish = looks.finish[f, shape]
                    rgb = shine * wp.vec3(rgba[0], rgba[1], rgba[2])
                    tint = wp.vec3(image[0], image[1], image[2])
                    back = -wp.normalize(d)
                    color, raw = lit_surface(lights, env, reached, point, normal, back, forward, rgb, finish, tint)
                    color = clamped(in_fog(backdrop, t, color))
                    raw = in_fog(backdrop, t, raw)
                    if not is_opaque:
                        alpha = alpha * image[3]
                        nearer = nearer + passes * alpha * color
                        raw_nearer = raw_nearer + passes * alpha * raw
                        farther = (1.0 - alpha) * farther + alpha * color
                        raw_farther = (1.0 - alpha) * raw_farther + alpha * raw
                        passes = passes * (1.0 - alpha)
                        color = wp.vec3()
                        raw = wp.vec3()
                    else:
                        shows = has_mirrors != 0 and skipped < 0 and finish[3] > 0.0 and is_outer
                        if instances.kind[row] == BOX and flat[2] < 0.5:
                            shows = False
                        if skipped < 0:
                            last = t
                        if shows:
                            skipped = row
                            shine = finish[3]
                            mirror = wp.vec4(n[0], n[1], n[2], wp.dot(n, point))
                            s, d = mirrored(mirror, s, d)
                            own = color
                            raw_own = raw
                            outer_passes = passes
                            outer_nearer = nearer
                            outer_farther = farther
                            raw_outer_nearer = raw_nearer
                            raw_outer_farther = raw_farther
                            passes = 1.0
                            nearer = wp.vec3()
                            farther = wp.vec3()
                            raw_nearer = wp.vec3()
                            raw_farther = wp.vec3()
                            color = wp.vec3()
                            raw = wp.vec3()
                        else:
                            is_open = False
                            ends = 1.0
        if skipped >= 0:
            color = clamped(own + passes * (passes * color + farther) + nearer)
            raw = raw_own + passes * (passes * raw + raw_farther) + raw_nearer
            passes = outer_passes
            nearer = outer_nearer
            farther = outer_farther
            raw_nearer = raw_outer_nearer
            raw_farther = raw_outer_farther
            ends = 1.0
        color = in_haze(backdrop, placed, env, eye, line, last, color)
        raw = in_haze(backdrop, placed, env, eye, line, last, raw)
        color = passes * (passes * color + farther) + nearer
        raw = passes * (passes * raw + raw_farther) + raw_nearer
        put_color(canvas, env, place, mount, pixel, color, raw, 1.0 - (1.0 - ends) * passes * passes)
