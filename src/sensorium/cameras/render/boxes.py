"""Bounding boxes of the objects in an image.

An object is a set of shapes. Its visible pixels are those that show one of its shapes. Its pixels alone are those that
would show it if it were the only object, so they include hidden ones. A tight box surrounds the visible pixels, a loose
box the pixels alone, both with inclusive bounds. The occlusion ratio is the hidden share of the pixels alone.
"""

from __future__ import annotations

import warp as wp

from sensorium.cameras.render.structs import (
    Cameras,
    HitRecord,
    Lens,
    Placed,
    pixel_line,
    row_bounds,
    row_size,
    shape_pose,
)
from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.geometry.hfield import HFields
from sensorium.geometry.trace import ray_shape
from sensorium.geometry.transforms import quat_multiply, quat_rotate, quat_rotate_inverse

X_MIN, Y_MIN, X_MAX, Y_MAX, COUNT = range(5)
"""Columns of `Extents`."""


@wp.struct
class Objects:
    """The objects of a scene.

    Attributes:
        of_shape: object of each shape of the scene, -1 for none.
        first: first entry of each object in `shape`, and the number of entries: one more than there are objects.
        shape: shapes of the objects, in the order of the objects; only those that cameras can see.
        label: semantic id of each object.
    """

    of_shape: wp.array[wp.int32]
    first: wp.array[wp.int32]
    shape: wp.array[wp.int32]
    label: wp.array[wp.int32]


@kernel(group="images")
def clear_extents(rows: Rows, height: int, width: int, extents: wp.array4d[wp.int32]) -> None:
    """Set the extents of all objects to those of no pixel."""
    env, mount, item = masked_tid(rows)
    extents[env, mount, item, X_MIN] = width
    extents[env, mount, item, Y_MIN] = height
    extents[env, mount, item, X_MAX] = -1
    extents[env, mount, item, Y_MAX] = -1
    extents[env, mount, item, COUNT] = 0


@wp.func
def _include(extents: wp.array4d[wp.int32], env: int, mount: int, item: int, x: int, y: int) -> None:
    wp.atomic_min(extents, env, mount, item, X_MIN, x)
    wp.atomic_min(extents, env, mount, item, Y_MIN, y)
    wp.atomic_max(extents, env, mount, item, X_MAX, x)
    wp.atomic_max(extents, env, mount, item, Y_MAX, y)
    wp.atomic_add(extents, env, mount, item, COUNT, 1)


@kernel(group="images")
def measure_visible(rows: Rows, lens: Lens, objects: Objects, record: HitRecord, extents: wp.array4d[wp.int32]) -> None:
    """Include each pixel in the extent of the object that it shows."""
    env, mount, piece = masked_tid(rows)
    pixel = rows.first + piece
    shape = record.shape[place_of(rows, env), mount, pixel]
    if shape >= 0:
        item = objects.of_shape[shape]
        if item >= 0:
            _include(extents, env, mount, item, pixel % lens.width, pixel / lens.width)


@kernel(group="images", blocks=2)
def measure_alone(
    rows: Rows,
    lens: Lens,
    cameras: Cameras,
    placed: Placed,
    fields: HFields,
    objects: Objects,
    hidden: wp.array2d[wp.uint8],
    extents: wp.array4d[wp.int32],
) -> None:
    """Include each pixel in the extents of all objects that it would show alone."""
    env, mount, piece = masked_tid(rows)
    pixel = rows.first + piece
    s, d = pixel_line(lens, env, pixel)
    d = quat_rotate(cameras.quat[env, mount], d)
    s = cameras.pos[env, mount] + quat_rotate(cameras.quat[env, mount], s) + lens.near * d
    length2 = wp.length_sq(d)
    if length2 == 0.0:  # the lens sees nothing
        return
    instances = placed.instances
    for item in range(objects.label.shape[0]):
        entry = objects.first[item]
        last = objects.first[item + 1]
        while entry < last:
            row = placed.row[objects.shape[entry]]
            entry = entry + 1
            if hidden[mount, row] == wp.uint8(0):
                pos, quat = shape_pose(placed, env, objects.shape[entry - 1])
                v = pos + quat_rotate(quat, instances.centre[row]) - s
                size, _half = row_bounds(placed, env, row)
                if wp.length_sq(v - (wp.dot(v, d) / length2) * d) <= size * size * 1.0001:
                    scale = row_size(placed, env, row)
                    t, _face = ray_shape(instances, fields, row, scale, pos, quat, s, d, lens.far - lens.near)
                    if t < wp.inf:
                        _include(extents, env, mount, item, pixel % lens.width, pixel / lens.width)
                        entry = last


@wp.func
def _occlusion(
    visible: wp.array4d[wp.int32], alone: wp.array4d[wp.int32], env: int, mount: int, item: int
) -> wp.float32:
    total = alone[env, mount, item, COUNT]
    if total == 0:
        return 0.0
    return wp.max(1.0 - float(visible[env, mount, item, COUNT]) / float(total), 0.0)


@kernel(group="images")
def write_boxes(
    rows: Rows,
    objects: Objects,
    extents: wp.array4d[wp.int32],
    visible: wp.array4d[wp.int32],
    alone: wp.array4d[wp.int32],
    boxes_out: wp.array4d[wp.float32],
    count_out: wp.array2d[wp.int32],
) -> None:
    """List the boxes of the objects with pixels: label, minimum and maximum column and row, occlusion ratio."""
    env, mount = masked_tid(rows)
    count = int(0)
    for item in range(objects.label.shape[0]):
        if extents[env, mount, item, COUNT] > 0:
            boxes_out[env, mount, count, 0] = float(objects.label[item])
            for column in range(4):
                boxes_out[env, mount, count, 1 + column] = float(extents[env, mount, item, column])
            boxes_out[env, mount, count, 5] = _occlusion(visible, alone, env, mount, item)
            count += 1
    count_out[env, mount] = count
    for item in range(count, objects.label.shape[0]):
        for column in range(6):
            boxes_out[env, mount, item, column] = -1.0


@wp.struct
class SolidBoxes:
    """Boxes around the parts of the objects. The shapes of one body are one part, and so is a segment of a tendon.

    Attributes:
        first: first part of each object, and the number of parts: one more than there are objects.
        shape: a shape of each part.
        pos: origin of the part's frame in the frame of that shape, m.
        quat: its orientation.
        low: minimum corner of the part in its frame, m.
        high: maximum corner.
    """

    first: wp.array[wp.int32]
    shape: wp.array[wp.int32]
    pos: wp.array[wp.vec3]
    quat: wp.array[wp.vec4]
    low: wp.array[wp.vec3]
    high: wp.array[wp.vec3]


@wp.func
def _part_pose(placed: Placed, solids: SolidBoxes, env: int, part: int) -> tuple[wp.vec3, wp.vec4]:
    pos, quat = shape_pose(placed, env, solids.shape[part])
    return pos + quat_rotate(quat, solids.pos[part]), quat_multiply(quat, solids.quat[part])


@wp.func
def _part_box(placed: Placed, solids: SolidBoxes, env: int, part: int) -> tuple[wp.vec3, wp.vec3]:
    low = solids.low[part]
    high = solids.high[part]
    row = placed.row[solids.shape[part]]
    if row >= placed.segments:
        _radius, high = row_bounds(placed, env, row)
        low = -high
    return low, high


@kernel(group="images")
def write_solid_boxes(
    rows: Rows,
    placed: Placed,
    objects: Objects,
    solids: SolidBoxes,
    visible: wp.array4d[wp.int32],
    alone: wp.array4d[wp.int32],
    boxes_out: wp.array4d[wp.float32],
    count_out: wp.array2d[wp.int32],
) -> None:
    """List the 3-D boxes of the objects in view: label, minimum and maximum corner, matrix, occlusion ratio.

    The frame is that of the object's first part. The matrix has the axes of the frame in its first three rows and its
    origin in the last row.
    """
    env, mount = masked_tid(rows)
    count = int(0)
    for item in range(objects.label.shape[0]):
        if alone[env, mount, item, COUNT] > 0:
            first = solids.first[item]
            origin, turn = _part_pose(placed, solids, env, first)
            low, high = _part_box(placed, solids, env, first)
            for part in range(first + 1, solids.first[item + 1]):
                pos, quat = _part_pose(placed, solids, env, part)
                least, most = _part_box(placed, solids, env, part)
                for corner in range(8):
                    at = least
                    for axis in range(3):
                        if (corner >> axis) % 2 == 1:
                            at[axis] = most[axis]
                    at = quat_rotate_inverse(turn, pos + quat_rotate(quat, at) - origin)
                    low = wp.min(low, at)
                    high = wp.max(high, at)
            boxes_out[env, mount, count, 0] = float(objects.label[item])
            for axis in range(3):
                unit = wp.vec3()
                unit[axis] = 1.0
                side = quat_rotate(turn, unit)
                boxes_out[env, mount, count, 1 + axis] = low[axis]
                boxes_out[env, mount, count, 4 + axis] = high[axis]
                for column in range(3):
                    boxes_out[env, mount, count, 7 + 4 * axis + column] = side[column]
                boxes_out[env, mount, count, 10 + 4 * axis] = 0.0
                boxes_out[env, mount, count, 19 + axis] = origin[axis]
            boxes_out[env, mount, count, 22] = 1.0
            boxes_out[env, mount, count, 23] = _occlusion(visible, alone, env, mount, item)
            count += 1
    count_out[env, mount] = count
    for item in range(count, objects.label.shape[0]):
        for column in range(24):
            boxes_out[env, mount, item, column] = -1.0
