"""Textures on surfaces: coordinates as in MuJoCo 4, and trilinear filtering."""

from __future__ import annotations

import warp as wp

from sensorium.cameras.render.paint_structs import Looks, Textures
from sensorium.geometry.primitives import BOX, CAPSULE, CYLINDER, MESH, PLANE
from sensorium.geometry.ray_structs import Instances

TURN = wp.constant(wp.float32(6.283185307179586))


@wp.func
def part_of(kind: int, extent: wp.vec3, inverse: wp.vec3, p: wp.vec3) -> wp.int32:
    """Return the part of a shape at a point of its surface, for the mapping of a texture.

    A box has the axis of its side, a cylinder 2 for a cap, a capsule 1 and -1 for its upper and lower half sphere.
    """
    part = int(0)
    if kind == BOX:
        q = wp.cw_mul(wp.vec3(wp.abs(p[0]), wp.abs(p[1]), wp.abs(p[2])), inverse)
        if q[1] > q[0]:
            part = 1
        if q[2] > wp.max(q[0], q[1]):
            part = 2
    elif kind == CYLINDER:
        if wp.abs(p[2]) * inverse[2] > wp.sqrt(p[0] * p[0] + p[1] * p[1]) * inverse[0]:
            part = 2
    elif kind == CAPSULE:
        if p[2] > extent[2]:
            part = 1
        elif p[2] < -extent[2]:
            part = -1
    return part


@wp.func
def is_flat(kind: int, part: int) -> wp.bool:
    """Return whether texture coordinates are linear in the point of a part of a shape."""
    return kind == PLANE or kind == BOX or kind >= MESH or (kind == CYLINDER and part == 2)


@wp.func
def image_axes(kind: int, part: int, inverse: wp.vec3, scale: wp.vec3) -> tuple[wp.int32, wp.int32, wp.vec4]:
    """Return the axes of a flat part of a shape along which the coordinates of an image change, and how.

    The coordinates at a point p with axes a and b are (x p[a] + z, y p[b] + w) with the last vector's x, y, z and w.
    """
    a = wp.where(kind == BOX and part == 0, 1, 0)
    b = wp.where(kind == BOX and part != 2, 2, 1)
    if kind >= MESH:  # projected along z
        return a, b, wp.vec4(0.5 * scale[0], -0.5 * scale[1], -0.5, -0.5)
    out = wp.vec4(0.5 * scale[0] * inverse[a], -0.5 * scale[1] * inverse[b], 0.5 * scale[0], 0.5 * scale[1])
    if kind == CYLINDER:
        out[1] = -out[1]
    elif kind == PLANE and inverse[0] * inverse[1] == 0.0:
        if inverse[0] == 0.0:
            out[0] = 0.5 * scale[0]
            out[2] = 0.0
        if inverse[1] == 0.0:
            out[1] = -0.5 * scale[1]
            out[3] = 0.0
        out[2] = out[2] - 0.5
        out[3] = out[3] - 0.5
    return a, b, out


@wp.func
def round_point(kind: int, part: int, extent: wp.vec3, inverse: wp.vec3, scale: wp.vec3, p: wp.vec3) -> wp.vec2:
    """Return the coordinates of an image at a point of a round part of a shape, m, in its frame."""
    u = wp.atan2(p[1] * inverse[1], p[0] * inverse[0]) / TURN
    if u < 0.0:
        u = u + 1.0
    v = 0.5 - 0.5 * p[2] * inverse[2]
    if kind == CAPSULE and part != 0:
        rise = wp.asin(wp.clamp((wp.abs(p[2]) - extent[2]) * inverse[0], 0.0, 1.0)) * 4.0 / TURN
        v = wp.where(part > 0, 1.0 - rise, rise)
    elif kind != CAPSULE and kind != CYLINDER:
        v = 0.5 - 2.0 * wp.asin(wp.clamp(p[2] * inverse[2], -1.0, 1.0)) / TURN
    return wp.vec2(u * scale[0], v * scale[1])


@wp.func
def cube_direction(kind: int, part: int, extent: wp.vec3, inverse: wp.vec3, scale: wp.vec3, p: wp.vec3) -> wp.vec3:
    """Return the direction in which a cube's texture is seen at a point of a shape, m, in its frame."""
    r = p
    if kind < MESH and kind != PLANE:
        r = wp.cw_mul(p, inverse)
        if kind == CAPSULE and part != 0:
            r[2] = float(part) + (p[2] - float(part) * extent[2]) * inverse[0]
    if scale[2] != 0.0:
        r = wp.cw_mul(r, extent)
    return r


@wp.func
def cube_side(r: wp.vec3) -> wp.int32:
    """Return the side of a cube in a direction: +x, -x, +y, -y, +z, -z."""
    a = wp.vec3(wp.abs(r[0]), wp.abs(r[1]), wp.abs(r[2]))
    axis = int(0)
    if a[1] > a[0]:
        axis = 1
    if a[2] > wp.max(a[0], a[1]):
        axis = 2
    return 2 * axis + wp.where(r[axis] < 0.0, 1, 0)


@wp.func
def cube_point(side: int, r: wp.vec3) -> wp.vec2:
    """Return the texture coordinates of a direction on a side of a cube, in OpenGL's orientation."""
    sign = wp.where(side % 2 == 0, 1.0, -1.0)
    across = -sign * r[2]
    down = -r[1]
    if side / 2 == 1:
        across = r[0]
        down = sign * r[2]
    elif side / 2 == 2:
        across = sign * r[0]
    depth = wp.max(sign * r[side / 2], 1.0e-9)
    return wp.vec2(0.5 + 0.5 * across / depth, 0.5 + 0.5 * down / depth)


@wp.func
def weights_at(instances: Instances, row: int, face: int, p: wp.vec3) -> wp.vec3:
    """Return the weights of a face's corners at a point of its plane, in the frame of the shape."""
    mesh = instances.mesh[row]
    q = wp.cw_div(p, instances.size[row])
    a = wp.mesh_get_point(mesh, 3 * face)
    ab = wp.mesh_get_point(mesh, 3 * face + 1) - a
    ac = wp.mesh_get_point(mesh, 3 * face + 2) - a
    n = wp.cross(ab, ac)
    scale = 1.0 / wp.length_sq(n)
    b = wp.dot(wp.cross(q - a, ac), n) * scale
    c = wp.dot(wp.cross(ab, q - a), n) * scale
    return wp.vec3(1.0 - b - c, b, c)


@wp.func
def mesh_point(looks: Looks, first: int, face: int, scale: wp.vec3, weights: wp.vec3) -> wp.vec2:
    """Return the texture coordinates of a mesh for the weights of a face's corners."""
    at = first + 3 * face
    uv = weights[0] * looks.uvs[at] + weights[1] * looks.uvs[at + 1] + weights[2] * looks.uvs[at + 2]
    return wp.vec2(uv[0] * scale[0], uv[1] * scale[1])


@wp.func
def add_texel(color: wp.vec4, word: wp.uint32, weight: float) -> wp.vec4:
    """Return a colour plus the channels of a texel, 0 to 255, times a weight."""
    return wp.vec4(
        color[0] + weight * float(word & wp.uint32(255)),
        color[1] + weight * float((word >> wp.uint32(8)) & wp.uint32(255)),
        color[2] + weight * float((word >> wp.uint32(16)) & wp.uint32(255)),
        color[3] + weight * float(word >> wp.uint32(24)),
    )


@wp.func
def add_level(
    color: wp.vec4, textures: Textures, texture: int, level: int, side: int, at: wp.vec2, weight: float
) -> wp.vec4:
    """Return a colour plus a level of a texture between its four nearest texels, 0 to 255, times a weight.

    Images repeat, sides of a cube do not.
    """
    shape = textures.level[texture, level]
    width = shape[1]
    height = shape[2]
    is_image = textures.count[texture][1] == 1
    x = at[0]
    y = at[1]
    if is_image:
        x = x - wp.floor(x)
        y = y - wp.floor(y)
    x = x * float(width) - 0.5
    y = y * float(height) - 0.5
    x0 = wp.floor(x)
    y0 = wp.floor(y)
    fx = x - x0
    fy = y - y0
    left = int(x0)
    top = int(y0)
    right = left + 1
    bottom = top + 1
    if is_image:
        left = wp.where(left < 0, width - 1, left)
        top = wp.where(top < 0, height - 1, top)
        right = wp.where(right >= width, 0, right)
        bottom = wp.where(bottom >= height, 0, bottom)
    else:
        left = wp.clamp(left, 0, width - 1)
        top = wp.clamp(top, 0, height - 1)
        right = wp.clamp(right, 0, width - 1)
        bottom = wp.clamp(bottom, 0, height - 1)
    upper = shape[0] + (side * height + top) * width
    lower = shape[0] + (side * height + bottom) * width
    above = weight * (1.0 - fy)
    below = weight * fy
    color = add_texel(color, textures.texels[upper + left], above * (1.0 - fx))
    color = add_texel(color, textures.texels[upper + right], above * fx)
    color = add_texel(color, textures.texels[lower + left], below * (1.0 - fx))
    return add_texel(color, textures.texels[lower + right], below * fx)


@wp.func
def filtered(textures: Textures, texture: int, side: int, at: wp.vec2, du: wp.vec2, dv: wp.vec2) -> wp.vec4:
    """Return a texture at coordinates, 0 to 1.

    Args:
        textures: all textures.
        texture: row of the texture.
        side: side of a cube, 0 for an image.
        at: coordinates.
        du: their change to the next pixel in the row.
        dv: their change to the next pixel in the column.
    """
    shape = textures.level[texture, 0]
    size = wp.vec2(float(shape[1]), float(shape[2]))
    spread = wp.max(wp.length_sq(wp.cw_mul(du, size)), wp.length_sq(wp.cw_mul(dv, size)))
    last = textures.count[texture][0] - 1
    detail = 0.5 * wp.log2(wp.max(spread, 1.0))
    level = wp.min(int(detail), last)
    blend = detail - float(level)
    if level == last:
        blend = 0.0
    color = add_level(wp.vec4(), textures, texture, level, side, at, (1.0 - blend) / 255.0)
    if blend > 0.0:
        color = add_level(color, textures, texture, level + 1, side, at, blend / 255.0)
    return color


@wp.func
def texture_color(
    looks: Looks,
    textures: Textures,
    instances: Instances,
    texture: int,
    shape: int,
    row: int,
    face: int,
    p: wp.vec3,
    wu: wp.vec3,
    wv: wp.vec3,
) -> wp.vec4:
    """Return the colour of a texture on a shape.

    Args:
        looks: looks of all shapes.
        textures: all textures.
        instances: the shapes.
        texture: row of the texture.
        shape: number of the shape in the scene.
        row: its instance row.
        face: its face.
        p: point of its surface in its frame, m.
        wu: from there to the point of the tangent plane that the next pixel in the row shows.
        wv: the same for the next pixel in the column.
    """
    kind = instances.kind[row]
    extent = looks.extent[shape]
    inverse = looks.inverse[shape]
    scale = looks.scale[shape]
    part = part_of(kind, extent, inverse, p)
    side = int(0)
    at = wp.vec2()
    du = wp.vec2()
    dv = wp.vec2()
    if textures.count[texture][1] == 6:
        r = cube_direction(kind, part, extent, inverse, scale, p)
        side = cube_side(r)
        at = cube_point(side, r)
        du = cube_point(side, cube_direction(kind, part, extent, inverse, scale, p + wu)) - at
        dv = cube_point(side, cube_direction(kind, part, extent, inverse, scale, p + wv)) - at
    elif kind == MESH and looks.first[shape][1] >= 0:
        first = looks.first[shape][1]
        at = mesh_point(looks, first, face, scale, weights_at(instances, row, face, p))
        du = mesh_point(looks, first, face, scale, weights_at(instances, row, face, p + wu)) - at
        dv = mesh_point(looks, first, face, scale, weights_at(instances, row, face, p + wv)) - at
    elif is_flat(kind, part):
        a, b, to = image_axes(kind, part, inverse, scale)
        at = wp.vec2(to[0] * p[a] + to[2], to[1] * p[b] + to[3])
        du = wp.vec2(to[0] * wu[a], to[1] * wu[b])
        dv = wp.vec2(to[0] * wv[a], to[1] * wv[b])
    else:
        at = round_point(kind, part, extent, inverse, scale, p)
        du = round_point(kind, part, extent, inverse, scale, p + wu) - at
        dv = round_point(kind, part, extent, inverse, scale, p + wv) - at
        du[0] = du[0] - scale[0] * wp.round(du[0] / scale[0])  # across the seam
        dv[0] = dv[0] - scale[0] * wp.round(dv[0] / scale[0])
    return filtered(textures, texture, side, at, du, dv)
