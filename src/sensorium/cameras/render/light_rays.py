"""Rays towards lights."""

from __future__ import annotations

import warp as wp

from sensorium.cameras.render.lighting import shines_along, way_to_light
from sensorium.cameras.render.paint_structs import Light
from sensorium.cameras.render.structs import Placed, row_bounds, row_centre, row_pose, row_size
from sensorium.geometry.hfield import HFields, ray_hfield
from sensorium.geometry.primitives import HFIELD, MESH, ray_primitive
from sensorium.geometry.transforms import quat_rotate_inverse

AWAY = wp.constant(wp.float32(1.0e-4))
"""How far a ray towards a light starts above the surface, as a share of the distance to the camera."""


@wp.func
def ray_to_light(
    light: Light, forward: wp.vec3, point: wp.vec3, n: wp.vec3, away: float, casts: int
) -> tuple[wp.bool, wp.vec3, wp.vec3, wp.float32]:
    """Return whether a light may reach a point of a surface, the ray towards it: start, unit direction and length.

    Args:
        light: the light.
        forward: unit direction in which the camera looks.
        point: point of the surface, m.
        n: its unit normal, not that for shading.
        away: how far above the surface the ray starts, m.
        casts: 1 if the surface casts shadows, and so shades its own back.
    """
    way, far = way_to_light(light, point, forward)
    facing = wp.dot(n, way)
    may_reach = (facing > 0.0 or casts == 0) and shines_along(light, way)
    return may_reach, point + (wp.sign(facing) * away) * n, way, far


@wp.func
def is_blocked(placed: Placed, fields: HFields, env: int, row: int, s: wp.vec3, d: wp.vec3, far: float) -> wp.bool:
    """Return whether a shape is within a distance along a ray with a unit direction."""
    instances = placed.instances
    pos, quat = row_pose(placed, env, row)
    size = row_size(placed, env, row)
    lo = quat_rotate_inverse(quat, s - pos)
    ld = quat_rotate_inverse(quat, d)
    kind = instances.kind[row]
    if kind == MESH:
        return wp.mesh_query_ray_anyhit(instances.mesh[row], wp.cw_div(lo, size), wp.cw_div(ld, size), far)
    t = float(wp.inf)
    if kind == HFIELD:
        t, _face = ray_hfield(fields, instances.field[row], lo, ld, far)
    else:
        t = ray_primitive(kind, size, lo, ld)
    return t < far


@wp.func
def is_near(placed: Placed, env: int, row: int, s: wp.vec3, d: wp.vec3, far: float) -> wp.bool:
    """Return whether the bounding sphere of a shape meets a line from s along d, a unit vector, of length `far`, m."""
    to = row_centre(placed, env, row) - s
    radius, _half = row_bounds(placed, env, row)
    along = wp.clamp(wp.dot(to, d), 0.0, far)
    return radius > 0.0 and wp.length_sq(to - along * d) <= radius * radius
