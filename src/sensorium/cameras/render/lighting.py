"""Light on surfaces, as MuJoCo's renderer computes it, and their background."""

from __future__ import annotations

import warp as wp

from sensorium.cameras.render.paint_structs import DIRECTIONAL, SPOT, Backdrop, Light, Looks, Textures
from sensorium.cameras.render.structs import Placed
from sensorium.cameras.render.texturing import add_level, cube_point, cube_side, weights_at
from sensorium.compute import Rows, kernel, masked_tid
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
        shadow: see `Light`, also for `fall`, `cone` and the colours.
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
def shines_along(light: Light, way: wp.vec3) -> wp.bool:
    """Return whether a point is in the cone of a light, for the unit vector from there towards it."""
    return light.kind != SPOT or -wp.dot(light.direction, way) >= light.cone[0]


@wp.func
def whole_part(exponent: float) -> wp.int32:
    """Return the whole part of an exponent, at most 127."""
    return wp.clamp(int(exponent), 0, 127)


@wp.func
def whole_power(base: float, exponent: int) -> wp.float32:
    """Return a number to a whole power from 0 to 127, without branches."""
    result = float(1.0)
    square = float(base)
    rest = int(exponent)
    for _bit in range(7):
        result = wp.where((rest & 1) != 0, result * square, result)
        square = square * square
        rest = rest >> 1
    return result


@wp.func
def power(base: float, exponent: float) -> wp.float32:
    """Return a power of a number from 0 to 1; a whole exponent up to 127 takes products only."""
    whole = whole_part(exponent)
    rest = exponent - float(whole)
    result = whole_power(base, whole)
    if rest != 0.0:
        result = result * wp.pow(base, rest)
    return result


@wp.func
def light_at(
    light: Light, forward: wp.vec3, point: wp.vec3, normal: wp.vec3, back: wp.vec3, exponent: float
) -> tuple[wp.float32, wp.float32, wp.float32, wp.float32]:
    """Return the effect of a light at a surface.

    It has no branches and computes with components, since only then does a compiler compute several surfaces at once.

    Args:
        light: the light.
        forward: unit direction in which the camera looks.
        point: point of the surface, m.
        normal: unit normal.
        back: unit vector towards the viewer.
        exponent: exponent of highlights.

    Returns:
        The share of the light's colour at this distance, 0 outside the cone of a spot; the cosine of the angle to the
        axis of a spot, 1 for another light; the cosine of the angle to the normal, at least 0; the squared cosine of
        the angle of the highlight to the normal, 0 where the highlight is too dark to matter.
    """
    is_local = light.kind >= SPOT
    is_headlight = light.kind < DIRECTIONAL
    x = light.pos[0] - point[0]
    y = light.pos[1] - point[1]
    z = light.pos[2] - point[2]
    far = wp.sqrt(x * x + y * y + z * z)
    scale = 1.0 / wp.max(far, 1.0e-9)
    x = wp.where(is_local, scale * x, wp.where(is_headlight, -forward[0], -light.direction[0]))
    y = wp.where(is_local, scale * y, wp.where(is_headlight, -forward[1], -light.direction[1]))
    z = wp.where(is_local, scale * z, wp.where(is_headlight, -forward[2], -light.direction[2]))
    fall = light.fall[0] + far * (light.fall[1] + far * light.fall[2])
    share = wp.where(is_local, 1.0 / wp.max(fall, 1.0e-9), 1.0)
    along = wp.max(-(light.direction[0] * x + light.direction[1] * y + light.direction[2] * z), 0.0)
    along = wp.where(light.kind == SPOT, along, 1.0)
    share = wp.where(light.kind == SPOT and along < light.cone[0], 0.0, share)
    cosine = wp.max(normal[0] * x + normal[1] * y + normal[2] * z, 0.0)
    x = x + back[0]
    y = y + back[1]
    z = z + back[2]
    upright = wp.max(normal[0] * x + normal[1] * y + normal[2] * z, 0.0)
    square = upright * upright / wp.max(x * x + y * y + z * z, 1.0e-12)
    # the power of the cosine is at most exp(-DARK) unless exponent * (1 - cosine) < DARK
    least = wp.max(exponent - DARK, 0.0)
    is_dark = cosine <= 0.0 or exponent * exponent * square < least * least
    return share, along, cosine, wp.where(is_dark, 0.0, square)


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
    """Return the colour of a surface: as a display shows it once fog is added and it is limited to 1; and the radiance.

    As in MuJoCo, lights without shadows add up to at most 1 before the texture multiplies them, and each light with
    shadows adds at most 1 more where it reaches the surface. The radiance has no such limits.

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
    extra = wp.vec3()  # `more` without limits
    count = lights.shape[1]
    if count == 0:
        base = base + GLOBAL * rgb
    for k in range(count):
        light = lights[env, k]
        bit = light.shadow
        if reached == -1 or bit < 0 or ((reached >> bit) & 1) != 0:
            share, along, cosine, square = light_at(light, forward, point, normal, back, finish[2])
            gleam = float(0.0)
            if square > 0.0:
                gleam = finish[1] * power(square, 0.5 * finish[2])
            color = wp.cw_mul(light.ambient + cosine * light.diffuse, rgb) + gleam * light.specular
            color = (share * power(along, light.cone[1])) * color
            if reached == -1 or bit < 0:
                base = base + color
            else:
                more = more + clamped(color)
                extra = extra + color
    return wp.cw_mul(clamped(base) + more, texture), wp.cw_mul(base + extra, texture)


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
