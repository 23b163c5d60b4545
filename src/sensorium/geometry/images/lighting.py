"""Light on surfaces, as MuJoCo's renderer computes it, and what is behind them."""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid
from sensorium.geometry.images.paint_structs import DIRECTIONAL, SPOT, Backdrop, Light, Looks, Textures
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
    """The lights, and where they are on the bodies, `[1 or env, light]` or `[light]`.

    Attributes:
        kind: see `HEAD`.
        shadow: see `Light`; likewise for `fall`, `cone` and the colours.
        body: row of the body of each light, -1 for the world.
        tracking: see `FIXED`.
        pos: position on the body, m.
        direction: direction of the rays.
        first: first of its points, one more than there are lights.
        point_body: bodies of the points, -1 for the world.
        point: position on the body, m, and weight.
    """

    kind: wp.array[wp.int32]
    shadow: wp.array[wp.int32]
    fall: wp.array[wp.vec3]
    cone: wp.array[wp.vec2]
    ambient: wp.array2d[wp.vec3]
    diffuse: wp.array2d[wp.vec3]
    specular: wp.array2d[wp.vec3]
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
    lights: wp.array2d[Light],
) -> None:
    """Compute the lights of the environments, with their poses from those of their bodies."""
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
    common = env % mounts.ambient.shape[0]
    light = Light()
    light.kind = mounts.kind[k]
    light.shadow = mounts.shadow[k]
    light.pos = pos
    light.direction = wp.normalize(direction)
    light.ambient = mounts.ambient[common, k]
    light.diffuse = mounts.diffuse[common, k]
    light.specular = mounts.specular[common, k]
    light.fall = mounts.fall[k]
    light.cone = mounts.cone[k]
    lights[env, k] = light


@wp.func
def way_to_light(light: Light, point: wp.vec3, forward: wp.vec3) -> tuple[wp.vec3, wp.float32]:
    """Return the unit vector from a point towards a light, and its distance, m; infinite for parallel rays."""
    way = -forward
    far = float(wp.inf)
    if light.kind >= SPOT:
        way = light.pos - point
        far = wp.length(way)
        way = (1.0 / wp.max(far, 1.0e-9)) * way
    elif light.kind == DIRECTIONAL:
        way = -light.direction
    return way, far


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
def share_of_light(light: Light, way: wp.vec3, far: float) -> wp.float32:
    """Return the share of a light's colour that reaches a point, by its distance and by the cone of a spot."""
    if light.kind < SPOT:
        return 1.0
    fall = light.fall
    share = float(1.0)
    weakening = fall[0] + far * (fall[1] + far * fall[2])
    if weakening != 1.0:
        share = 1.0 / wp.max(weakening, 1.0e-9)
    if light.kind == SPOT:
        along = -wp.dot(light.direction, way)
        if along < light.cone[0]:
            return 0.0
        share = share * power(wp.max(along, 0.0), light.cone[1])
    return share


@wp.func
def light_on(
    light: Light, way: wp.vec3, share: float, normal: wp.vec3, back: wp.vec3, rgb: wp.vec3, finish: wp.vec4
) -> wp.vec3:
    """Return the light that a surface scatters towards the viewer, before its texture.

    Args:
        light: the light.
        way: see `way_to_light`.
        share: see `share_of_light`.
        normal: unit normal.
        back: unit vector towards the viewer.
        rgb: colour of the surface.
        finish: see `Looks`.
    """
    cosine = wp.dot(normal, way)
    color = light.ambient
    if cosine > 0.0:
        color = color + cosine * light.diffuse
    color = wp.cw_mul(color, rgb)
    if cosine > 0.0 and finish[1] > 0.0:
        # the power of the cosine is at most exp(-DARK) unless exponent * (1 - cosine) < DARK
        half = way + back
        along = wp.dot(normal, half)
        size = wp.length_sq(half)
        least = finish[2] - DARK
        if along > 0.0 and (least < 0.0 or (finish[2] * along) * (finish[2] * along) > least * least * size):
            gleam = along / wp.sqrt(size)
            color = color + (finish[1] * power(gleam, finish[2])) * light.specular
    return share * color


@wp.func
def clamped(color: wp.vec3) -> wp.vec3:
    """Return a colour with components from 0 to 1."""
    return wp.vec3(wp.clamp(color[0], 0.0, 1.0), wp.clamp(color[1], 0.0, 1.0), wp.clamp(color[2], 0.0, 1.0))


@wp.func
def lit_surface(
    lights: wp.array2d[Light],
    env: int,
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
    count = lights.shape[1]
    if count == 0:
        base = base + GLOBAL * rgb
        raw = base
    for k in range(count):
        light = lights[env, k]
        bit = light.shadow
        if reached == -1 or bit < 0 or ((reached >> bit) & 1) != 0:
            way, far = way_to_light(light, point, forward)
            share = share_of_light(light, way, far)
            if share > 0.0:
                color = light_on(light, way, share, normal, back, rgb, finish)
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
