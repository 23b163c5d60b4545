"""Arguments of the image kernels: lens, cameras, shapes, and the hit record with the nearest surface of every pixel.

A camera looks along x, with y to the left and z up. The line of sight of a pixel is start + t * direction, in this
frame. For a pinhole the direction has x = 1, so t is the depth along the optical axis. For a table of directions, which
are unit vectors, t is the length of the ray.
"""

from __future__ import annotations

import warp as wp

from sensorium.geometry.ray_structs import Instances
from sensorium.geometry.transforms import quat_rotate


@wp.struct
class Lens:
    """Lines of sight of the pixels of an image, the same for all mounts of an environment.

    Attributes:
        inverse_k: `[1 or env, 3]` rows of the inverse intrinsic matrix of a pinhole; empty with a table.
        directions: `[1 or env, pixel]`, unit, or 0 where the lens sees nothing; empty for a pinhole.
        starts: `[1 or env, pixel]`, m; empty if all lines start at the camera.
        width: pixels in a row.
        height: pixels in a column.
        tile: pixels along a side of a tile, even, at most 64.
        columns: tiles in a row.
        near: minimum t of a hit; surfaces before it are cut away.
        far: maximum t of a hit.
    """

    inverse_k: wp.array2d[wp.vec3]
    directions: wp.array2d[wp.vec3]
    starts: wp.array2d[wp.vec3]
    width: wp.int32
    height: wp.int32
    tile: wp.int32
    columns: wp.int32
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
        half: half extents of the box about the centre of each instance's bounding sphere, in its frame, m.
        surface: index of the `Surface` of each instance; -1 for an analytic shape.
        row: instance row of each shape of the scene; -1 for a shape that is not visible.
        pos: origins of the moving shapes `[env, moving shape]`, m.
        quat: their orientations.
        centre: centres of their bounding spheres, m.
        segments: number of the first row that is a segment of a tendon, a capsule with a size per environment.
        size: radius and half length of the segments `[env, segment]`, m; radius 0 for a segment that is not there.
    """

    instances: Instances
    half: wp.array[wp.vec3]
    surface: wp.array[wp.int32]
    row: wp.array[wp.int32]
    pos: wp.array2d[wp.vec3]
    quat: wp.array2d[wp.vec4]
    centre: wp.array2d[wp.vec3]
    segments: wp.int32
    size: wp.array2d[wp.vec3]


@wp.struct
class HitRecord:
    """Nearest surface of every pixel, `[place, mount, pixel]`, for the environments in flight.

    A kernel finds the place of an environment by `compute.place_of(rows, env)`. Pixels count row by row from the top
    left.

    Attributes:
        inverse: 1 / t of the hit, 1/m; 0 for a miss.
        shape: number of the shape in the scene; -1 for a miss.
        face: row in `Mesh.faces` of a mesh, or face id of a height field; -1 for a miss, or a shape without faces.
    """

    inverse: wp.array3d[wp.float32]
    shape: wp.array3d[wp.int32]
    face: wp.array3d[wp.int32]


@wp.struct
class Lists:
    """Shapes in the tiles of the images in flight, front to back: `[place, mount, tile]` and `[..., shape]`.

    Attributes:
        count: number of shapes.
        row: instance row, times 2, plus 1 for a dense mesh, which is drawn by rays.
        rect: range of pixels in the tile, inclusive, 8 bits each: first and last column, first and last row.
        front: minimum t at which the shape may be visible.
    """

    count: wp.array3d[wp.int32]
    row: wp.array4d[wp.int32]
    rect: wp.array4d[wp.int32]
    front: wp.array4d[wp.float32]


@wp.func
def line_at(lens: Lens, env: int, row: int, column: int) -> tuple[wp.vec3, wp.vec3]:
    """Return start, m, and direction of a pixel's line of sight in the camera's frame; 0 if the lens sees nothing."""
    start = wp.vec3()
    direction = wp.vec3()
    if lens.inverse_k.shape[0] > 0:
        e = env % lens.inverse_k.shape[0]
        at = wp.vec3(float(column) + 0.5, float(row) + 0.5, 1.0)
        x = wp.dot(lens.inverse_k[e, 0], at)
        y = wp.dot(lens.inverse_k[e, 1], at)
        z = wp.dot(lens.inverse_k[e, 2], at)
        direction = wp.vec3(1.0, -x / z, -y / z)
    else:
        pixel = row * lens.width + column
        direction = lens.directions[env % lens.directions.shape[0], pixel]
        if lens.starts.shape[0] > 0:
            start = lens.starts[env % lens.starts.shape[0], pixel]
    return start, direction


@wp.func
def pixel_line(lens: Lens, env: int, pixel: int) -> tuple[wp.vec3, wp.vec3]:
    """Return the result of `line_at` for a pixel's number."""
    start, direction = line_at(lens, env, pixel / lens.width, pixel % lens.width)
    return start, direction


@wp.func
def shape_pose(placed: Placed, env: int, shape: int) -> tuple[wp.vec3, wp.vec4]:
    """Return position, m, and orientation in the world of a visible shape of the scene."""
    pos, quat = row_pose(placed, env, placed.row[shape])
    return pos, quat


@wp.func
def row_pose(placed: Placed, env: int, row: int) -> tuple[wp.vec3, wp.vec4]:
    """Return position, m, and orientation in the world of an instance row."""
    pos = placed.instances.pos[row]
    quat = placed.instances.quat[row]
    if row >= placed.instances.moving:
        pos = placed.pos[env, row - placed.instances.moving]
        quat = placed.quat[env, row - placed.instances.moving]
    return pos, quat


@wp.func
def row_centre(placed: Placed, env: int, row: int) -> wp.vec3:
    """Return the centre of a sphere around an instance row, m, world."""
    if row >= placed.instances.moving:
        return placed.centre[env, row - placed.instances.moving]
    return placed.instances.pos[row] + quat_rotate(placed.instances.quat[row], placed.instances.centre[row])


@wp.func
def row_size(placed: Placed, env: int, row: int) -> wp.vec3:
    """Return the sizes of an instance row; for a mesh its scale."""
    size = placed.instances.size[row]
    if row >= placed.segments:
        size = placed.size[env, row - placed.segments]
    return size


@wp.func
def face_normal(mesh: wp.uint64, face: int, scale: wp.vec3) -> wp.vec3:
    """Return an outward normal of any length of a face of a mesh that is scaled along its axes."""
    a = wp.mesh_get_point(mesh, 3 * face)
    ab = wp.mesh_get_point(mesh, 3 * face + 1) - a
    ac = wp.mesh_get_point(mesh, 3 * face + 2) - a
    return wp.cw_div(wp.cross(ab, ac), scale)


@wp.func
def row_bounds(placed: Placed, env: int, row: int) -> tuple[wp.float32, wp.vec3]:
    """Return the radius of a sphere around an instance row, 0 if it is absent, and half extents of a box, m."""
    radius = placed.instances.radius[row]
    half = placed.half[row]
    if row >= placed.segments:
        size = placed.size[env, row - placed.segments]
        half = wp.vec3(size[0], size[0], size[0] + size[1]) * 1.00001
        radius = wp.where(size[0] > 0.0, half[2] * 1.0001 + 1.0e-6, 0.0)
    return radius, half


@wp.func
def tile_axes(lens: Lens, cameras: Cameras, env: int, mount: int, tile: int) -> tuple[wp.mat33, wp.mat33]:
    """Return the projection of a tile of a pinhole, and its directions of sight.

    Pixels are counted from the middle of the tile, so that the centre of pixel (column, row) of the tile is at
    u = column - tile / 2, v = row - tile / 2. The first matrix maps a vector from the camera, in world axes, to
    (u t, v t, t). The columns of the second are the changes of the direction of sight with u and v, and the direction
    at (0, 0).
    """
    e = env % lens.inverse_k.shape[0]
    a = lens.inverse_k[e, 0]
    b = lens.inverse_k[e, 1]
    cu = float((tile % lens.columns) * lens.tile + lens.tile / 2) + 0.5
    cv = float((tile / lens.columns) * lens.tile + lens.tile / 2) + 0.5
    turn = cameras.quat[env, mount]
    forward = quat_rotate(turn, wp.vec3(1.0, 0.0, 0.0))
    right = quat_rotate(turn, wp.vec3(0.0, -1.0, 0.0))
    down = quat_rotate(turn, wp.vec3(0.0, 0.0, -1.0))
    fu = 1.0 / a[0]
    fv = 1.0 / b[1]
    skew = -a[1] * fu * fv
    to_pixels = wp.matrix_from_rows(
        fu * right + skew * down - (skew * b[2] + a[2] * fu + cu) * forward,
        fv * down - (b[2] * fv + cv) * forward,
        forward,
    )
    to_world = wp.matrix_from_cols(
        a[0] * right,
        a[1] * right + b[1] * down,
        forward + (a[0] * cu + a[1] * cv + a[2]) * right + (b[1] * cv + b[2]) * down,
    )
    return to_pixels, to_world


@wp.func
def rotation_of(quat: wp.vec4) -> wp.mat33:
    """Return the rotation matrix of a unit quaternion (w, x, y, z)."""
    return wp.matrix_from_cols(
        quat_rotate(quat, wp.vec3(1.0, 0.0, 0.0)),
        quat_rotate(quat, wp.vec3(0.0, 1.0, 0.0)),
        quat_rotate(quat, wp.vec3(0.0, 0.0, 1.0)),
    )


@wp.func
def put_hit(record: HitRecord, place: int, mount: int, pixel: int, inverse: float, shape: int, face: int) -> None:
    """Write a hit that is nearer than that of the record, or as near with a lower shape number or face."""
    before = record.inverse[place, mount, pixel]
    if inverse < before:
        return
    if inverse == before:
        other = record.shape[place, mount, pixel]
        if other >= 0 and (other < shape or (other == shape and record.face[place, mount, pixel] <= face)):
            return
    record.inverse[place, mount, pixel] = inverse
    record.shape[place, mount, pixel] = shape
    record.face[place, mount, pixel] = face
