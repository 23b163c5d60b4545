"""Arguments of the kernels that compute colours: looks of the shapes, textures, lights, and the background."""

from __future__ import annotations

import warp as wp

HEAD, DIRECTIONAL, SPOT, POINT = 0, 1, 2, 3
"""Kinds of lights: their indices in `appearance.LIGHT_KINDS`."""


@wp.struct
class Looks:
    """Looks of the shapes of the scene, `[1 or env, shape]` or `[shape]`.

    Attributes:
        rgba: colour and opacity.
        finish: emission, specular, exponent of highlights, and brightness of the mirrored scene.
        texture: row of the texture, -1 for none.
        scale: factors of texture coordinates, then 1 where repetitions count per metre.
        extent: half lengths along the shape's axes, m; 0 where unbounded.
        inverse: their inverses; 0 where unbounded.
        first: first of its mesh's corners in `normals` and in `uvs`, -1 for none.
        casts: 1 where it casts shadows.
        normals: normals of meshes, three for each face.
        uvs: texture coordinates of meshes, three for each face.
    """

    rgba: wp.array2d[wp.vec4]
    finish: wp.array2d[wp.vec4]
    texture: wp.array2d[wp.int32]
    scale: wp.array[wp.vec3]
    extent: wp.array[wp.vec3]
    inverse: wp.array[wp.vec3]
    first: wp.array[wp.vec2i]
    casts: wp.array[wp.int32]
    normals: wp.array[wp.vec3]
    uvs: wp.array[wp.vec2]


@wp.struct
class Textures:
    """All textures of the scene.

    Attributes:
        texels: red, green, blue and alpha, 8 bits each from the lowest.
        level: first texel, width and height of each level of detail, `[texture, level]`; the sides of a cube follow
            each other.
        count: number of levels and of sides of each texture.
    """

    texels: wp.array[wp.uint32]
    level: wp.array2d[wp.vec3i]
    count: wp.array[wp.vec2i]


@wp.struct
class Light:
    """A light of an environment.

    Attributes:
        kind: see `HEAD`.
        shadow: bit of the light in a mask of the lights that reach a surface; -1 if it casts no shadow.
        pos: position in the world, m.
        direction: unit direction of the rays in the world.
        ambient: colour of the ambient light; that of a light that is off is 0, as are the next two.
        diffuse: colour of the diffuse light.
        specular: colour of highlights.
        fall: constant, linear and quadratic attenuation.
        cone: cosine of the cutoff angle, and exponent of the cosine within.
    """

    kind: wp.int32
    shadow: wp.int32
    pos: wp.vec3
    direction: wp.vec3
    ambient: wp.vec3
    diffuse: wp.vec3
    specular: wp.vec3
    fall: wp.vec3
    cone: wp.vec2


@wp.struct
class Backdrop:
    """Background of the shapes.

    Attributes:
        sky: row of the sky's texture, -1 for none.
        distance: radius of the sky, m.
        ground: shape number of the unbounded plane with haze, -1 for none.
        haze: colour of the haze.
        haze_height: share of the sky's radius over which the ground fades.
        haze_top: height in the haze at which nothing else is visible, as a share of the camera's height.
        fog: colour of the fog.
        fog_range: t along a line of sight at which it starts and ends; both 0 for none.
    """

    sky: wp.int32
    distance: wp.float32
    ground: wp.int32
    haze: wp.vec3
    haze_height: wp.float32
    haze_top: wp.float32
    fog: wp.vec3
    fog_range: wp.vec2


@wp.struct
class Canvas:
    """Where colours go; an empty array is not written.

    Attributes:
        rgb: colours of the images as bytes `[env, mount, 3 * pixel]`.
        rgba: the same with opacity `[env, mount, 4 * pixel]`.
        albedo: colours without light, and opacity, as bytes.
        linear: linear radiance `[env, mount, pixel]`.
        samples: colours of the samples of images in flight, 0 to 1, and opacity `[place, mount, sample]`.
        linear_samples: their linear radiance.
        albedo_samples: their colours without light, and opacity.
    """

    rgb: wp.array3d[wp.uint8]
    rgba: wp.array3d[wp.uint8]
    albedo: wp.array3d[wp.uint8]
    linear: wp.array3d[wp.vec3]
    samples: wp.array3d[wp.vec4]
    linear_samples: wp.array3d[wp.vec3]
    albedo_samples: wp.array3d[wp.vec4]
