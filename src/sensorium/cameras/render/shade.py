"""Colours of the surfaces that pixels show."""

from __future__ import annotations

import warp as wp

from sensorium.cameras.render.lanes import LANES, LaneInts, Lanes3, lit_surfaces
from sensorium.cameras.render.lighting import clamped, sky_color, smooth_normal, whole_part
from sensorium.cameras.render.paint_structs import Backdrop, Canvas, Light, Looks, Textures
from sensorium.cameras.render.srgb import decoded
from sensorium.cameras.render.structs import (
    Cameras,
    HitRecord,
    Lens,
    Placed,
    face_normal,
    pixel_line,
    rotation_of,
    row_pose,
    row_size,
    shape_pose,
)
from sensorium.cameras.render.texturing import texture_color
from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.geometry.hfield import HFields, hfield_normal
from sensorium.geometry.primitives import HFIELD, MESH, primitive_normal
from sensorium.geometry.transforms import quat_rotate

OPAQUE = wp.constant(wp.float32(0.995))
"""Minimum opacity of a surface that hides everything behind it, as in MuJoCo."""


@wp.func
def world_line(lens: Lens, cameras: Cameras, env: int, mount: int, pixel: int) -> tuple[wp.vec3, wp.vec3]:
    """Return start, m, and direction of a pixel's line of sight in the world."""
    start, direction = pixel_line(lens, env, pixel)
    turn = cameras.quat[env, mount]
    return cameras.pos[env, mount] + quat_rotate(turn, start), quat_rotate(turn, direction)


@wp.func
def mirrored(mirror: wp.vec4, s: wp.vec3, d: wp.vec3) -> tuple[wp.vec3, wp.vec3]:
    """Return the mirror image of a line in a plane, given by its unit normal and its distance; 0 for no mirror."""
    n = wp.vec3(mirror[0], mirror[1], mirror[2])
    return s - 2.0 * (wp.dot(n, s) - mirror[3]) * n, d - 2.0 * wp.dot(n, d) * n


@wp.func
def normal_at(placed: Placed, fields: HFields, row: int, kind: int, size: wp.vec3, face: int, p: wp.vec3) -> wp.vec3:
    """Return an outward normal of any length of a shape at a point of its surface, in its frame."""
    instances = placed.instances
    n = wp.vec3()
    if kind == MESH:
        n = face_normal(instances.mesh[row], face, size)
    elif kind == HFIELD:
        n = hfield_normal(fields, instances.field[row], face, p)
    else:
        n = primitive_normal(kind, size, p)
    return n


@wp.func
def flat_normal(placed: Placed, fields: HFields, env: int, row: int, face: int, p: wp.vec3) -> wp.vec3:
    """Return the outward unit normal of a shape at a point of its surface, in its frame."""
    kind = placed.instances.kind[row]
    return wp.normalize(normal_at(placed, fields, row, kind, row_size(placed, env, row), face, p))


@wp.func
def shift_at(lens: Lens, cameras: Cameras, env: int, mount: int, pixel: int, step: int, t: float) -> wp.vec3:
    """Return how far the point at t moves from a pixel to the next one in its row (`step` 1) or column (width), m."""
    other = pixel + step
    if other / lens.width >= lens.height or (step == 1 and other % lens.width == 0):
        other = pixel - step
    if other < 0:  # an image of a single row or column
        other = pixel
    s, d = world_line(lens, cameras, env, mount, pixel)
    so, do = world_line(lens, cameras, env, mount, other)
    if wp.length_sq(do) == 0.0:  # beyond the field of view: the neighbour on the other side
        other = wp.clamp(2 * pixel - other, 0, lens.width * lens.height - 1)
        so, do = world_line(lens, cameras, env, mount, other)
    return so - s + t * (do - d)


@wp.func
def on_plane(shift: wp.vec3, d: wp.vec3, n: wp.vec3) -> wp.vec3:
    """Return the shift of the intersection with a plane of normal n, for a shift of a line along d."""
    along = wp.dot(n, d)
    if wp.abs(along) < 1.0e-9:
        return shift
    return shift - (wp.dot(n, shift) / along) * d


@wp.func
def sky_distance(backdrop: Backdrop, d: wp.vec3) -> wp.float32:
    """Return t at which the sky hides everything behind it; infinite without a sky."""
    if backdrop.sky < 0:
        return wp.inf
    return backdrop.distance / wp.max(wp.sqrt(d[0] * d[0] + d[1] * d[1]), wp.abs(d[2]))


@wp.func
def in_fog(backdrop: Backdrop, t: float, color: wp.vec3) -> wp.vec3:
    """Return a colour at t along a line of sight in the fog."""
    if backdrop.fog_range[1] <= 0.0:
        return color
    share = wp.clamp((t - backdrop.fog_range[0]) / (backdrop.fog_range[1] - backdrop.fog_range[0]), 0.0, 1.0)
    return (1.0 - share) * color + share * backdrop.fog


@wp.func
def in_haze(backdrop: Backdrop, placed: Placed, env: int, s: wp.vec3, d: wp.vec3, t: float, color: wp.vec3) -> wp.vec3:
    """Return a colour at t along a line of sight in the haze over the horizon of the ground.

    The haze is a cone around the camera. Its colour is densest at a height in it, and fades upwards and downwards.
    """
    if backdrop.ground < 0 or placed.row[backdrop.ground] < 0:
        return color
    pos, quat = shape_pose(placed, env, backdrop.ground)
    up = quat_rotate(quat, wp.vec3(0.0, 0.0, 1.0))
    height = wp.dot(s - pos, up) / backdrop.distance
    rise = wp.dot(d, up)
    flat = wp.length(d - rise * up)
    if height <= 0.0 or rise >= 0.0 or flat <= 0.0:
        return color
    slope = rise / (flat * height)
    away = 1.0 / (1.0 - backdrop.haze_height * slope)
    level = 1.0 + slope * away
    if level <= 0.0 or t * flat < away * backdrop.distance:
        return color
    haze = in_fog(backdrop, away * backdrop.distance / flat, backdrop.haze)
    density = level / backdrop.haze_top
    if level > backdrop.haze_top:
        density = (1.0 - level) / (1.0 - backdrop.haze_top)
    return (1.0 - density) * color + density * haze


@wp.func
def byte_of(value: float) -> wp.uint8:
    """Return a component of a colour, 0 to 1, as a byte."""
    return wp.uint8(int(value * 255.0 + 0.5))


@wp.func
def put_color(
    canvas: Canvas, env: int, place: int, mount: int, pixel: int, color: wp.vec3, raw: wp.vec3, alpha: float
) -> None:
    """Write the colour of a pixel, as a display shows it and without limits, and its opacity."""
    if canvas.rgb.shape[0] > 0:
        for k in range(3):
            canvas.rgb[env, mount, 3 * pixel + k] = byte_of(color[k])
    if canvas.rgba.shape[0] > 0:
        for k in range(3):
            canvas.rgba[env, mount, 4 * pixel + k] = byte_of(color[k])
        canvas.rgba[env, mount, 4 * pixel + 3] = byte_of(alpha)
    if canvas.linear.shape[0] > 0:
        canvas.linear[env, mount, pixel] = wp.vec3(decoded(raw[0]), decoded(raw[1]), decoded(raw[2]))
    if canvas.samples.shape[0] > 0:
        canvas.samples[place, mount, pixel] = wp.vec4(color[0], color[1], color[2], alpha)
    if canvas.linear_samples.shape[0] > 0:
        canvas.linear_samples[place, mount, pixel] = wp.vec3(decoded(raw[0]), decoded(raw[1]), decoded(raw[2]))


@kernel(blocks=2)
def shade(
    rows: Rows,
    is_lit: int,
    spacing: float,
    lens: Lens,
    cameras: Cameras,
    placed: Placed,
    fields: HFields,
    looks: Looks,
    textures: Textures,
    lights: wp.array2d[Light],
    backdrop: Backdrop,
    hits: HitRecord,
    reached: wp.array3d[wp.int32],
    canvas: Canvas,
) -> None:
    """Compute the colours of a row of pixels, as if all surfaces were opaque and without mirrors.

    Args:
        rows: the environments.
        is_lit: whether colours with light are needed, besides the albedo.
        spacing: distance between the pixels of the image, in pixels here; textures are filtered to it.
        lens: the lines of sight.
        cameras: poses of the cameras.
        placed: the shapes.
        fields: all height fields.
        looks: looks of the shapes.
        textures: their textures.
        lights: the lights.
        backdrop: background of the shapes.
        hits: the visible surfaces.
        reached: mask of the lights with shadows that reach them; empty if no light casts shadows.
        canvas: the output.
    """
    env, mount, piece = masked_tid(rows)
    place = place_of(rows, env)
    forward = quat_rotate(cameras.quat[env, mount], wp.vec3(1.0, 0.0, 0.0))
    e = env % looks.rgba.shape[0]
    f = env % looks.finish.shape[0]
    g = env % looks.texture.shape[0]
    last = int(-1)
    row = int(-1)
    kind = int(-1)
    size = wp.vec3()
    pos = wp.vec3()
    turn = wp.mat33()
    rgba = wp.vec4()
    finish = wp.vec4()
    texture = int(-1)
    is_smooth = bool(False)
    top = (rows.first + piece) * lens.width
    # the line of sight of a pinhole is linear in the pixels
    eye, ahead = world_line(lens, cameras, env, mount, top)
    across = shift_at(lens, cameras, env, mount, top, 1, 1.0)
    down = shift_at(lens, cameras, env, mount, top, lens.width, 1.0)
    is_pinhole = lens.inverse_k.shape[0] > 0
    has_shadows = reached.shape[0] > 0
    point = Lanes3()
    normal = Lanes3()
    sight = Lanes3()
    rgb = Lanes3()
    shine = Lanes3()
    tint = Lanes3()
    mask = LaneInts()
    shown = LaneInts()
    start = int(0)
    while start < lens.width:
        count = wp.min(lens.width - start, LANES)
        has_fractions = bool(False)
        i = int(0)
        while i < count:  # the surfaces
            pixel = top + start + i
            s = eye
            d = ahead + float(start + i) * across
            if not is_pinhole:
                s, d = world_line(lens, cameras, env, mount, pixel)
            shape = hits.shape[place, mount, pixel]
            t = 1.0 / hits.inverse[place, mount, pixel]
            if shape >= 0 and t > sky_distance(backdrop, d):
                shape = -1
            shown[i] = shape
            if shape >= 0:
                if shape != last:
                    last = shape
                    row = placed.row[shape]
                    kind = placed.instances.kind[row]
                    size = row_size(placed, env, row)
                    pos, quat = row_pose(placed, env, row)
                    turn = wp.transpose(rotation_of(quat))
                    rgba = looks.rgba[e, shape]
                    finish = looks.finish[f, shape]
                    texture = looks.texture[g, shape]
                    is_smooth = looks.first[shape][0] >= 0
                face = hits.face[place, mount, pixel]
                at = s + t * d
                p = turn * (at - pos)
                n = wp.vec3()
                if is_smooth:
                    n = smooth_normal(looks, placed, shape, row, face, p)
                else:
                    n = normal_at(placed, fields, row, kind, size, face, p)
                image = wp.vec4(1.0, 1.0, 1.0, 1.0)
                if texture >= 0:
                    wu = spacing * t * across
                    wv = spacing * t * down
                    if not is_pinhole:
                        wu = shift_at(lens, cameras, env, mount, pixel, 1, t)
                        wv = shift_at(lens, cameras, env, mount, pixel, lens.width, t)
                    along = turn * d
                    wu = on_plane(turn * wu, along, n)
                    wv = on_plane(turn * wv, along, n)
                    image = texture_color(looks, textures, placed.instances, texture, shape, row, face, p, wu, wv)
                n = n * turn
                has_fractions = has_fractions or 0.5 * finish[2] != float(whole_part(0.5 * finish[2]))
                for c in range(3):
                    point[c, i] = at[c]
                    normal[c, i] = n[c]
                    sight[c, i] = d[c]
                    rgb[c, i] = rgba[c]
                    shine[c, i] = finish[c]
                    tint[c, i] = image[c]
                if has_shadows:
                    mask[i] = reached[place, mount, pixel]
            i += 1
        colors = Lanes3()
        raws = Lanes3()
        if is_lit != 0:
            colors, raws = lit_surfaces(
                lights, env, has_shadows, has_fractions, forward, mask, point, normal, sight, rgb, shine, tint
            )
        i = int(0)
        while i < count:  # the pixels
            pixel = top + start + i
            s = eye
            d = ahead + float(start + i) * across
            if not is_pinhole:
                s, d = world_line(lens, cameras, env, mount, pixel)
            has_sky = backdrop.sky >= 0 and wp.length_sq(d) > 0.0  # not where the lens sees nothing
            t = float(wp.inf)
            color = wp.vec3()
            raw = wp.vec3()
            albedo = wp.vec4()
            if shown[i] >= 0:
                t = 1.0 / hits.inverse[place, mount, pixel]
                flat = clamped(wp.vec3(rgb[0, i] * tint[0, i], rgb[1, i] * tint[1, i], rgb[2, i] * tint[2, i]))
                albedo = wp.vec4(flat[0], flat[1], flat[2], 1.0)
                color = clamped(in_fog(backdrop, t, wp.vec3(colors[0, i], colors[1, i], colors[2, i])))
                raw = in_fog(backdrop, t, wp.vec3(raws[0, i], raws[1, i], raws[2, i]))
            elif has_sky:
                sky = sky_color(textures, backdrop, d)
                albedo = wp.vec4(sky[0], sky[1], sky[2], 1.0)
                color = in_fog(backdrop, sky_distance(backdrop, d), sky)
                raw = color
            if is_lit != 0:
                if backdrop.ground >= 0:
                    color = in_haze(backdrop, placed, env, s, d, t, color)
                    raw = in_haze(backdrop, placed, env, s, d, t, raw)
                alpha = wp.where(shown[i] >= 0 or has_sky, 1.0, 0.0)
                put_color(canvas, env, place, mount, pixel, color, raw, alpha)
            if canvas.albedo.shape[0] > 0:
                for k in range(4):
                    canvas.albedo[env, mount, 4 * pixel + k] = byte_of(albedo[k])
            if canvas.albedo_samples.shape[0] > 0:
                canvas.albedo_samples[place, mount, pixel] = albedo
            i += 1
        start += LANES


@kernel
def refine_lens(rows: Rows, inverse_k: wp.array2d[wp.vec3], finer: wp.array2d[wp.vec3]) -> None:
    """Compute a row of the inverse intrinsic matrix of an image with twice as many rows and columns."""
    env, row = masked_tid(rows)
    k = inverse_k[env, row]
    finer[env, row] = wp.vec3(0.5 * k[0], 0.5 * k[1], k[2])


@kernel(group="samples")
def write_bytes(
    rows: Rows, width: int, channels: int, samples: wp.array3d[wp.vec4], image: wp.array3d[wp.uint8]
) -> None:
    """Write a row of an image as bytes, each pixel the mean of 2 x 2 samples."""
    env, mount, piece = masked_tid(rows)
    place = place_of(rows, env)
    row = rows.first + piece
    for column in range(width):
        first = 4 * row * width + 2 * column
        total = samples[place, mount, first] + samples[place, mount, first + 1]
        first = first + 2 * width
        total = 0.25 * (total + samples[place, mount, first] + samples[place, mount, first + 1])
        for k in range(channels):
            image[env, mount, (row * width + column) * channels + k] = byte_of(total[k])


@kernel(group="samples")
def write_linear(rows: Rows, width: int, samples: wp.array3d[wp.vec3], image: wp.array3d[wp.vec3]) -> None:
    """Write a row of linear radiances, each the mean of 2 x 2 samples."""
    env, mount, piece = masked_tid(rows)
    place = place_of(rows, env)
    row = rows.first + piece
    for column in range(width):
        first = 4 * row * width + 2 * column
        total = samples[place, mount, first] + samples[place, mount, first + 1]
        first = first + 2 * width
        total = total + samples[place, mount, first] + samples[place, mount, first + 1]
        image[env, mount, row * width + column] = 0.25 * total
