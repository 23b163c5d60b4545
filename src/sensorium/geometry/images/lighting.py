"""Light on surfaces, as MuJoCo's renderer computes it, and what is behind them."""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid
from sensorium.geometry.images.paint_structs import DIRECTIONAL, HEAD, SPOT, Backdrop, Lights, Looks, Textures
from sensorium.geometry.images.structs import Placed
from sensorium.geometry.images.texturing import add_level, cube_point, cube_side, weights_at
from sensorium.geometry.transforms import quat_rotate

FIXED, POSITION, TARGET = 0, 1, 2
"""How a light follows bodies: the indices in `appearance.TRACKING`."""
DARK = wp.constant(wp.float32(14.0))
"""Minus the logarithm of a highlight that is not computed: a millionth of its light."""
GLOBAL = wp.constant(wp.float32(0.3))
"""Ambient light where there is no light at all."""


@wp.struct
class LightMounts:
    """Where the lights are on the bodies.

    Attributes:
        body: row of the body of each light, -1 for the world.
        tracking: see `FIXED`.
        pos: position on the body `[1 or env, light]`, m.
        direction: direction of the rays.
        first: first of its points, one more than there are lights.
        point_body: bodies of the points, -1 for the world.
        point: position on the body, m, and weight.
    """

    body: wp.array[wp.int32]
    tracking: wp.array[wp.int32]
    pos: wp.array2d[wp.vec3]
    direction: wp.array2d[wp.vec3]
    first: wp.array[wp.int32]
    point_body: wp.array[wp.int32]
    point: wp.array[wp.vec4]


@kernel
def place_lights(
    rows: Rows,
    mounts: LightMounts,
    body_pos_in: wp.array2d[wp.vec3],
    body_quat_in: wp.array2d[wp.vec4],
    lights: Lights,
) -> None:
    """Compute the poses of the lights from their bodies."""
    env, k = masked_tid(rows)
    pos = mounts.pos[env % mounts.pos.shape[0], k]
    direction = mounts.direction[env % mounts.direction.shape[0], k]
    body = mounts.body[k]
    tracking = mounts.tracking[k]
    middle = wp.vec3()
    for i in range(mounts.first[k], mounts.first[k + 1]):
        at = wp.vec3(mounts.point[i][0], mounts.point[i][1], mounts.point[i][2])
        other = mounts.point_body[i]
        if other >= 0:
            at = body_pos_in[env, other] + quat_rotate(body_quat_in[env, other], at)
        middle = middle + mounts.point[i][3] * at
    if tracking == POSITION:
        pos = pos + middle
    elif body >= 0:
        pos = body_pos_in[env, body] + quat_rotate(body_quat_in[env, body], pos)
        direction = quat_rotate(body_quat_in[env, body], direction)
    if tracking == TARGET:
        direction = middle - pos
    lights.pos[env, k] = pos
    lights.direction[env, k] = wp.normalize(direction)


@wp.func
def way_to_light(lights: Lights, env: int, k: int, point: wp.vec3, forward: wp.vec3) -> wp.vec4:
    """Return the unit vector from a point towards a light, and its distance, m; infinite for parallel rays."""
    kind = lights.kind[k]
    if kind == HEAD:
        return wp.vec4(-forward[0], -forward[1], -forward[2], wp.inf)
    if kind == DIRECTIONAL:
        direction = lights.direction[env, k]
        return wp.vec4(-direction[0], -direction[1], -direction[2], wp.inf)
    way = lights.pos[env, k] - point
    far = wp.length(way)
    way = way / wp.max(far, 1.0e-9)
    return wp.vec4(way[0], way[1], way[2], far)


@wp.func
def power(base: float, exponent: float) -> wp.float32:
    """Return a power of a number from 0 to 1; a small whole exponent takes products only."""
    rest = int(exponent)
    if exponent < 0.0 or exponent > 128.0 or float(rest) != exponent:
        return wp.pow(base, exponent)
    result = float(1.0)
    square = base
    while rest > 0:
        if (rest & 1) != 0:
            result = result * square
        square = square * square
        rest = rest >> 1
    return result


@wp.func
def share_of_light(lights: Lights, env: int, k: int, way: wp.vec4) -> wp.float32:
    """Return the share of a light's colour that reaches a point, by its distance and by the cone of a spot."""
    if lights.kind[k] < SPOT:
        return 1.0
    fall = lights.fall[k]
    share = 1.0 / wp.max(fall[0] + way[3] * (fall[1] + way[3] * fall[2]), 1.0e-9)
    if lights.kind[k] == SPOT:
        axis = lights.direction[env, k]
        along = -(axis[0] * way[0] + axis[1] * way[1] + axis[2] * way[2])
        if along < lights.cone[k][0]:
            return 0.0
        share = share * power(wp.max(along, 0.0), lights.cone[k][1])
    return share


@wp.func
def light_on(
    lights: Lights, common: int, k: int, way: wp.vec4, share: float, normal: wp.vec3, back: wp.vec3, rgb: wp.vec3,
    finish: wp.vec4,
) -> wp.vec3:  # fmt: skip
    """Return the light that a surface scatters towards the viewer, before its texture.

    Args:
        lights: the lights.
        common: row of the environment in the colours of the lights.
        k: the light.
        way: see `way_to_light`.
        share: see `share_of_light`.
        normal: unit normal.
        back: unit vector towards the viewer.
        rgb: colour of the surface.
        finish: see `Looks`.
    """
    to = wp.vec3(way[0], way[1], way[2])
    cosine = wp.dot(normal, to)
    color = lights.ambient[common, k]
    if cosine > 0.0:
        color = color + cosine * lights.diffuse[common, k]
    color = wp.cw_mul(color, rgb)
    if cosine > 0.0 and finish[1] > 0.0:
        gleam = wp.dot(normal, wp.normalize(to + back))
        if finish[2] * (1.0 - gleam) < DARK:  # the power is at most exp(-DARK) otherwise
            color = color + (finish[1] * power(wp.max(gleam, 0.0), finish[2])) * lights.specular[common, k]
    return share * color


@wp.func
def clamped(color: wp.vec3) -> wp.vec3:
    """Return a colour with components from 0 to 1."""
    return wp.vec3(wp.clamp(color[0], 0.0, 1.0), wp.clamp(color[1], 0.0, 1.0), wp.clamp(color[2], 0.0, 1.0))


@wp.func
def lit_surface(
    lights: Lights,
    env: int,
    common: int,
    reached: int,
    point: wp.vec3,
    normal: wp.vec3,
    back: wp.vec3,
    forward: wp.vec3,
    rgb: wp.vec3,
    finish: wp.vec4,
    texture: wp.vec3,
) -> tuple[wp.vec3, wp.vec3]:
    """Return the colour of a surface: as a display shows it, and without limits.

    As in MuJoCo, lights without shadows add up to at most 1 before the texture multiplies them, and each light with
    shadows adds at most 1 more where it reaches the surface.

    Args:
        lights: the lights.
        env: environment.
        common: row of the environment in the colours of the lights.
        reached: mask of the lights that reach the surface; -1 where no light casts shadows.
        point: point of the surface, m.
        normal: unit normal.
        back: unit vector towards the viewer.
        forward: unit direction in which the camera looks.
        rgb: colour of the surface.
        finish: see `Looks`.
        texture: colour of its texture.
    """
    base = finish[0] * rgb
    more = wp.vec3()
    raw = base
    count = lights.kind.shape[0]
    if count == 0:
        base = base + GLOBAL * rgb
        raw = base
    for k in range(count):
        bit = lights.shadow[k]
        if reached == -1 or bit < 0 or ((reached >> bit) & 1) != 0:
            way = way_to_light(lights, env, k, point, forward)
            share = share_of_light(lights, env, k, way)
            if share > 0.0:
                color = light_on(lights, common, k, way, share, normal, back, rgb, finish)
                raw = raw + color
                if reached == -1 or bit < 0:
                    base = base + color
                else:
                    more = more + clamped(color)
    return clamped(wp.cw_mul(clamped(base) + more, texture)), wp.cw_mul(raw, texture)


@wp.func
def smooth_normal(looks: Looks, placed: Placed, shape: int, row: int, face: int, p: wp.vec3) -> wp.vec3:
    """Return the normal for shading at a point of a mesh with normals, in its frame."""
    weights = weights_at(placed.instances, row, face, p)
    at = looks.first[shape][0] + 3 * face
    n = weights[0] * looks.normals[at] + weights[1] * looks.normals[at + 1] + weights[2] * looks.normals[at + 2]
    return wp.normalize(wp.cw_div(n, placed.instances.size[row]))


@wp.func
def sky_color(textures: Textures, backdrop: Backdrop, direction: wp.vec3) -> wp.vec3:
    """Return the colour of the sky in a direction."""
    if backdrop.sky < 0:
        return wp.vec3()
    r = wp.vec3(direction[0], direction[2], -direction[1])
    side = cube_side(r)
    color = add_level(wp.vec4(), textures, backdrop.sky, 0, side, cube_point(side, r), 1.0 / 255.0)
    return wp.vec3(color[0], color[1], color[2])
