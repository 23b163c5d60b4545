"""Light on several surfaces at once: a CPU computes the light on one and on `LANES` surfaces in about the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import warp as wp

from sensorium.cameras.render.lighting import GLOBAL, light_at, whole_part, whole_power
from sensorium.cameras.render.paint_structs import Light

LANES = wp.constant(16)
"""Number of surfaces whose light is computed at once."""
Lanes = wp.types.vector(length=16, dtype=wp.float32)
"""A number of each of those surfaces."""
if TYPE_CHECKING:  # Warp's types are not valid annotations for a type checker
    Lanes3: TypeAlias = Any
    LaneInts: TypeAlias = Any
else:
    Lanes3 = wp.types.matrix(shape=(3, 16), dtype=wp.float32)
    """A vector of each of those surfaces, in columns."""
    LaneInts = wp.types.vector(length=16, dtype=wp.int32)
    """A whole number of each of those surfaces."""


@wp.func
def lit_surfaces(
    lights: wp.array2d[Light],
    env: int,
    has_shadows: bool,
    has_fractions: bool,
    forward: wp.vec3,
    reached: LaneInts,
    point: Lanes3,
    normal: Lanes3,
    sight: Lanes3,
    rgb: Lanes3,
    finish: Lanes3,
    texture: Lanes3,
) -> tuple[Lanes3, Lanes3]:
    """Return the colours of some surfaces, as `lit_surface` does for one.

    Most loops over the surfaces have no branches and no calls, so that a compiler turns them into vector instructions.

    Args:
        lights: the lights.
        env: environment.
        has_shadows: whether lights cast shadows.
        has_fractions: whether half the exponent of a highlight has a fraction, for any of them.
        forward: unit direction in which the camera looks.
        reached: masks of the lights that reach the surfaces.
        point: points of the surfaces, m.
        normal: normals, of any length.
        sight: directions of the lines of sight, of any length.
        rgb: colours of the surfaces.
        finish: first elements of `Looks.finish`.
        texture: colours of the textures.
    """
    unit = Lanes3()
    back = Lanes3()
    base = Lanes3()
    more = Lanes3()
    extra = Lanes3()  # `more` without limits
    share = Lanes()
    along = Lanes()
    cosine = Lanes()
    square = Lanes()
    gleam = Lanes()
    count = lights.shape[1]
    glow = wp.where(count == 0, GLOBAL, 0.0)
    i = int(0)
    while i < LANES:
        scale = wp.sqrt(sight[0, i] * sight[0, i] + sight[1, i] * sight[1, i] + sight[2, i] * sight[2, i])
        scale = -1.0 / wp.max(scale, 1.0e-9)
        length = wp.sqrt(normal[0, i] * normal[0, i] + normal[1, i] * normal[1, i] + normal[2, i] * normal[2, i])
        length = wp.max(length, 1.0e-30)
        for c in range(3):
            back[c, i] = scale * sight[c, i]
            unit[c, i] = normal[c, i] / length
            base[c, i] = (finish[0, i] + glow) * rgb[c, i]
        i += 1
    for k in range(count):
        light = lights[env, k]
        whole = whole_part(light.cone[1])
        i = int(0)
        while i < LANES:
            p = wp.vec3(point[0, i], point[1, i], point[2, i])
            n = wp.vec3(unit[0, i], unit[1, i], unit[2, i])
            b = wp.vec3(back[0, i], back[1, i], back[2, i])
            part, axis, slope, bright = light_at(light, forward, p, n, b, finish[2, i])
            share[i] = part * whole_power(axis, whole)
            along[i] = axis
            cosine[i] = slope
            square[i] = bright
            bright = whole_power(bright, whole_part(0.5 * finish[2, i]))
            gleam[i] = wp.where(square[i] > 0.0, finish[1, i] * bright, 0.0)
            i += 1
        if light.cone[1] != float(whole):
            i = int(0)
            while i < LANES:
                share[i] = share[i] * wp.pow(along[i], light.cone[1] - float(whole))
                i += 1
        if has_fractions:
            i = int(0)
            while i < LANES:
                half = 0.5 * finish[2, i]
                if square[i] > 0.0 and half != float(whole_part(half)):
                    gleam[i] = gleam[i] * wp.pow(square[i], half - float(whole_part(half)))
                i += 1
        if has_shadows and light.shadow >= 0:
            i = int(0)
            while i < LANES:
                part = wp.where(((reached[i] >> light.shadow) & 1) != 0, share[i], 0.0)
                for c in range(3):
                    color = (light.ambient[c] + cosine[i] * light.diffuse[c]) * rgb[c, i]
                    color = part * (color + gleam[i] * light.specular[c])
                    more[c, i] = more[c, i] + wp.clamp(color, 0.0, 1.0)
                    extra[c, i] = extra[c, i] + color
                i += 1
        else:
            i = int(0)
            while i < LANES:
                for c in range(3):
                    color = (light.ambient[c] + cosine[i] * light.diffuse[c]) * rgb[c, i]
                    base[c, i] = base[c, i] + share[i] * (color + gleam[i] * light.specular[c])
                i += 1
    i = int(0)
    while i < LANES:
        for c in range(3):
            limited = wp.clamp(base[c, i], 0.0, 1.0) + more[c, i]
            extra[c, i] = (base[c, i] + extra[c, i]) * texture[c, i]
            base[c, i] = limited * texture[c, i]
        i += 1
    return base, extra
