"""Textures on surfaces: coordinates as in MuJoCo 4, and trilinear filtering."""

from __future__ import annotations

import warp as wp

from sensorium.geometry.images.paint_structs import Looks, Textures
from sensorium.geometry.primitives import BOX, CAPSULE, CYLINDER, HFIELD, MESH, PLANE
from sensorium.geometry.ray_structs import Instances

TURN = wp.constant(wp.float32(6.283185307179586))


@wp.func
def part_of(kind: int, extent: wp.vec3, p: wp.vec3) -> wp.int32:
    """Return the part of a shape at a point of its surface, for the mapping of a texture.

    A box has the axis of its side, a cylinder 1 for a cap, a capsule 1 and -1 for its upper and lower half sphere.
    """
    part = int(0)
    if kind == BOX:
        q = wp.vec3(wp.abs(p[0]) / extent[0], wp.abs(p[1]) / extent[1], wp.abs(p[2]) / extent[2])
        if q[1] > q[0]:
            part = 1
        if q[2] > wp.max(q[0], q[1]):
            part = 2
    elif kind == CYLINDER:
        if wp.abs(p[2]) / extent[2] > wp.sqrt(p[0] * p[0] + p[1] * p[1]) / extent[0]:
            part = 1
    elif kind == CAPSULE:
        if p[2] > extent[2]:
            part = 1
        elif p[2] < -extent[2]:
            part = -1
    return part


@wp.func
def image_point(kind: int, part: int, extent: wp.vec3, mapping: wp.vec3, p: wp.vec3) -> wp.vec2:
    """Return the texture coordinates of an image at a point of a shape, m, in its frame."""
    scale = wp.vec2(mapping[0], mapping[1])
    if kind >= MESH:  # projected along z
        if mapping[2] == 0.0:
            scale = wp.vec2(scale[0] / extent[0], scale[1] / extent[1])
        return wp.vec2(0.5 * scale[0] * p[0] - 0.5, -0.5 * scale[1] * p[1] - 0.5)
    if mapping[2] != 0.0:
        if extent[0] > 0.0:
            scale[0] = scale[0] * extent[0]
        if extent[1] > 0.0:
            scale[1] = scale[1] * extent[1]
    u = float(0.0)
    v = float(0.0)
    shift = float(0.0)
    if kind == PLANE:
        if extent[0] > 0.0:
            u = 0.5 + 0.5 * p[0] / extent[0]
        else:
            u = 0.5 * p[0]
            shift = -0.5
        if extent[1] > 0.0:
            v = 0.5 - 0.5 * p[1] / extent[1]
        else:
            v = -0.5 * p[1]
            shift = -0.5
    elif kind == BOX:
        a = wp.where(part == 0, 1, 0)
        b = wp.where(part == 2, 1, 2)
        u = 0.5 + 0.5 * p[a] / extent[a]
        v = 0.5 - 0.5 * p[b] / extent[b]
    elif kind == CYLINDER and part == 1:
        u = 0.5 + 0.5 * p[0] / extent[0]
        v = 0.5 + 0.5 * p[1] / extent[1]
    else:
        u = wp.atan2(p[1] / extent[1], p[0] / extent[0]) / TURN
        if u < 0.0:
            u = u + 1.0
        if kind == CYLINDER or (kind == CAPSULE and part == 0):
            v = 0.5 - 0.5 * p[2] / extent[2]
        elif kind == CAPSULE:
            rise = wp.asin(wp.clamp((wp.abs(p[2]) - extent[2]) / extent[0], 0.0, 1.0)) * 4.0 / TURN
            v = wp.where(part > 0, 1.0 - rise, rise)
        else:
            v = 0.5 - 2.0 * wp.asin(wp.clamp(p[2] / extent[2], -1.0, 1.0)) / TURN
    return wp.vec2(u * scale[0] + shift, v * scale[1] + shift)


@wp.func
def cube_direction(kind: int, part: int, extent: wp.vec3, mapping: wp.vec3, p: wp.vec3) -> wp.vec3:
    """Return the direction in which a cube's texture is seen at a point of a shape, m, in its frame."""
    r = p
    if kind < MESH and kind != PLANE:
        r = wp.cw_div(p, extent)
        if kind == CAPSULE and part != 0:
            r[2] = float(part) + (p[2] - float(part) * extent[2]) / extent[0]
    if mapping[2] != 0.0:
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
    mesh = wp.mesh_get(instances.mesh[row])
    q = wp.cw_div(p, instances.size[row])
    a = mesh.points[mesh.indices[3 * face]]
    ab = mesh.points[mesh.indices[3 * face + 1]] - a
    ac = mesh.points[mesh.indices[3 * face + 2]] - a
    n = wp.cross(ab, ac)
    scale = 1.0 / wp.length_sq(n)
    b = wp.dot(wp.cross(q - a, ac), n) * scale
    c = wp.dot(wp.cross(ab, q - a), n) * scale
    return wp.vec3(1.0 - b - c, b, c)


@wp.func
def mesh_point(looks: Looks, first: int, face: int, scale: wp.vec2, weights: wp.vec3) -> wp.vec2:
    """Return the texture coordinates of a mesh for the weights of a face's corners."""
    at = first + 3 * face
    uv = weights[0] * looks.uvs[at] + weights[1] * looks.uvs[at + 1] + weights[2] * looks.uvs[at + 2]
    return wp.cw_mul(uv, scale)


@wp.func
def unpacked(word: wp.uint32) -> wp.vec4:
    """Return the channels of a texel, 0 to 255."""
    return wp.vec4(
        float(word & wp.uint32(255)),
        float((word >> wp.uint32(8)) & wp.uint32(255)),
        float((word >> wp.uint32(16)) & wp.uint32(255)),
        float(word >> wp.uint32(24)),
    )


@wp.func
def bilinear(textures: Textures, texture: int, level: int, side: int, at: wp.vec2) -> wp.vec4:
    """Return a level of a texture between its four nearest texels, 0 to 255; images repeat, sides of a cube do not."""
    shape = textures.level[texture, level]
    width = shape[1]
    height = shape[2]
    x = at[0]
    y = at[1]
    is_image = textures.count[texture][1] == 1
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
    a = (1.0 - fx) * unpacked(textures.texels[upper + left]) + fx * unpacked(textures.texels[upper + right])
    b = (1.0 - fx) * unpacked(textures.texels[lower + left]) + fx * unpacked(textures.texels[lower + right])
    return (1.0 - fy) * a + fy * b


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
    color = bilinear(textures, texture, level, side, at)
    blend = detail - float(level)
    if blend > 0.0 and level < last:
        color = (1.0 - blend) * color + blend * bilinear(textures, texture, level + 1, side, at)
    return color / 255.0


@wp.func(inline=False)  # large, with several callers
def texture_color(
    looks: Looks,
    textures: Textures,
    instances: Instances,
    texture: int,
    shape: int,
    row: int,
    face: int,
    p: wp.vec3,
    pu: wp.vec3,
    pv: wp.vec3,
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
        pu: point of the tangent plane that the next pixel in the row shows.
        pv: point of the tangent plane that the next pixel in the column shows.
    """
    kind = instances.kind[row]
    extent = looks.extent[shape]
    mapping = looks.mapping[shape]
    side = int(0)
    at = wp.vec2()
    au = wp.vec2()
    av = wp.vec2()
    period = float(0.0)
    if textures.count[texture][1] == 6:
        part = part_of(kind, extent, p)
        r = cube_direction(kind, part, extent, mapping, p)
        side = cube_side(r)
        at = cube_point(side, r)
        au = cube_point(side, cube_direction(kind, part, extent, mapping, pu))
        av = cube_point(side, cube_direction(kind, part, extent, mapping, pv))
    elif kind == MESH and looks.first[shape][1] >= 0:
        first = looks.first[shape][1]
        scale = wp.vec2(mapping[0], mapping[1])
        if mapping[2] != 0.0:
            scale = wp.vec2(scale[0] * extent[0], scale[1] * extent[1])
        at = mesh_point(looks, first, face, scale, weights_at(instances, row, face, p))
        au = mesh_point(looks, first, face, scale, weights_at(instances, row, face, pu))
        av = mesh_point(looks, first, face, scale, weights_at(instances, row, face, pv))
    else:
        part = part_of(kind, extent, p)
        at = image_point(kind, part, extent, mapping, p)
        au = image_point(kind, part, extent, mapping, pu)
        av = image_point(kind, part, extent, mapping, pv)
        if kind != PLANE and kind != BOX and kind != HFIELD and kind != MESH:
            period = mapping[0]
            if mapping[2] != 0.0:
                period = period * extent[0]
    du = au - at
    dv = av - at
    if period > 0.0:  # across the seam of a round shape
        du[0] = du[0] - period * wp.round(du[0] / period)
        dv[0] = dv[0] - period * wp.round(dv[0] / period)
    return filtered(textures, texture, side, at, du, dv)
