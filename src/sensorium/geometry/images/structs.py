"""Arguments of the image kernels: lens, cameras, shapes, and the hit record with the nearest surface of every pixel.

A camera looks along x, with y to the left and z up. The line of sight of a pixel is start + t * direction, in this
frame. For a pinhole the direction has x = 1, so t is the depth along the optical axis. For a table of directions, which
are unit vectors, t is the length of the ray.
"""

from __future__ import annotations

import warp as wp

from sensorium.geometry.ray_structs import Instances


@wp.struct
class Lens:
    """Lines of sight of the pixels of an image, the same for all mounts of an environment.

    Attributes:
        inverse_k: `[1 or env, 3]` rows of the inverse intrinsic matrix of a pinhole; empty with a table.
        directions: `[1 or env, pixel]`, unit; empty for a pinhole.
        starts: `[1 or env, pixel]`, m; empty if all lines start at the camera.
        width: pixels in a row.
        height: pixels in a column.
        near: least t of a hit; surfaces before it are cut away.
        far: greatest t of a hit.
    """

    inverse_k: wp.array2d[wp.vec3]
    directions: wp.array2d[wp.vec3]
    starts: wp.array2d[wp.vec3]
    width: wp.int32
    height: wp.int32
    near: wp.float32
    far: wp.float32


@wp.struct
class Cameras:
    """Poses of the cameras in the world, `[env, mount]`."""

    pos: wp.array2d[wp.vec3]
    quat: wp.array2d[wp.vec4]


@wp.struct
class Placed:
    """The shapes that cameras can see, and their poses in the world.

    Attributes:
        instances: the shapes, static ones first.
        row: instance row of each shape of the scene; -1 for a shape that is not visible.
        pos: origins of the moving shapes `[env, moving shape]`, m.
        quat: their orientations.
        centre: centres of their bounding spheres, m.
    """

    instances: Instances
    row: wp.array[wp.int32]
    pos: wp.array2d[wp.vec3]
    quat: wp.array2d[wp.vec4]
    centre: wp.array2d[wp.vec3]


@wp.struct
class HitRecord:
    """Nearest surface of every pixel, `[place, mount, pixel]`, for the environments in flight.

    A kernel finds the place of an environment by `compute.place_of(rows, env)`. Pixels count row by row from the top
    left.

    Attributes:
        inverse: 1 / t of the hit, 1/m; 0 for a miss.
        shape: number of the shape in the scene; -1 for a miss.
        face: face id, as of rays; -1 for a miss, or a shape without faces.
    """

    inverse: wp.array3d[wp.float32]
    shape: wp.array3d[wp.int32]
    face: wp.array3d[wp.int32]


@wp.func
def pixel_line(lens: Lens, env: int, pixel: int) -> tuple[wp.vec3, wp.vec3]:
    """Return start, m, and direction of a pixel's line of sight in the camera's frame."""
    start = wp.vec3()
    direction = wp.vec3()
    if lens.inverse_k.shape[0] > 0:
        e = env % lens.inverse_k.shape[0]
        at = wp.vec3(float(pixel % lens.width) + 0.5, float(pixel / lens.width) + 0.5, 1.0)
        x = wp.dot(lens.inverse_k[e, 0], at)
        y = wp.dot(lens.inverse_k[e, 1], at)
        z = wp.dot(lens.inverse_k[e, 2], at)
        direction = wp.vec3(1.0, -x / z, -y / z)
    else:
        direction = lens.directions[env % lens.directions.shape[0], pixel]
        if lens.starts.shape[0] > 0:
            start = lens.starts[env % lens.starts.shape[0], pixel]
    return start, direction


@wp.func
def shape_pose(placed: Placed, env: int, shape: int) -> tuple[wp.vec3, wp.vec4]:
    """Return position, m, and orientation in the world of a visible shape of the scene."""
    row = placed.row[shape]
    pos = placed.instances.pos[row]
    quat = placed.instances.quat[row]
    if row >= placed.instances.moving:
        pos = placed.pos[env, row - placed.instances.moving]
        quat = placed.quat[env, row - placed.instances.moving]
    return pos, quat
