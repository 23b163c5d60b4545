"""Arguments of the ray kernels: static shapes, moving shapes, rays, mounts, and outputs."""

from __future__ import annotations

import warp as wp

from sensorium.geometry.columns import ColumnsIndex

BLOCK = wp.constant(wp.int32(32))
"""Number of neighbouring rays that one CPU thread casts in sequence, so that one search for moving shapes serves
all."""
NEAR = 64
"""Number of shapes that a block can store; with more in its cone, each ray tests all of them."""
Near = wp.types.vector(length=NEAR, dtype=wp.int32)
MOVERS = SHAPES = True
"""Static flags of the ray kernels: shapes that move, and static shapes that are tested individually."""
VARIANTS = {
    "triangles": {"MOVERS": False, "SHAPES": False},
    "still": {"MOVERS": False, "SHAPES": True},
    "all": {"MOVERS": True, "SHAPES": True},
}
"""Variants of the ray kernels: static triangles only, static shapes of any kind, and all shapes."""
BASE, YAW, WORLD, YAW_STARTS = 0, 1, 2, 3
"""Rotation of rays with their mount: fully, about the vertical only, not at all, or about the vertical for the starts
only (the directions keep world axes)."""


@wp.struct
class Surroundings:
    """Static shapes, in world axes, the same in all environments.

    Attributes:
        tree: address of the `geometry.wide_tree` of all triangles; 0 for none.
        mesh: id of the `wp.Mesh` of all triangles; 0 for none.
        face_shape: shape of each triangle of the tree, the mesh or the index.
        face_id: their face ids.
        face_normal: their unit normals; empty with a `wp.Mesh`.
        bvh: id of the `wp.Bvh` around analytic shapes; 0 for none.
        bvh_row: instance row of each of its boxes.
        alone: instance rows that every ray tests: planes and height fields.
        is_indexed: whether vertical rays use `columns`.
        columns: the 2-D index over triangles.
    """

    tree: wp.uint64
    mesh: wp.uint64
    face_shape: wp.array[wp.int32]
    face_id: wp.array[wp.int32]
    face_normal: wp.array[wp.vec3]
    bvh: wp.uint64
    bvh_row: wp.array[wp.int32]
    alone: wp.array[wp.int32]
    is_indexed: wp.int32
    columns: ColumnsIndex


@wp.struct
class Instances:
    """Shapes that are tested individually: first static ones, with poses in the world, then moving ones.

    Attributes:
        kind: number of the kind, as in `shapes.KINDS`.
        size: sizes; for a mesh its scale.
        tree: address of the `geometry.wide_tree` of a mesh; 0 where rays use `mesh`.
        mesh: `wp.Mesh` id, 0 for no mesh.
        field: row among the height fields.
        upright: 1 if the shape is static and its z axis is the world's.
        heading: cosine and sine of its rotation about that axis.
        shape: number of the shape in the scene.
        face_start: first of its entries in `face_id`.
        face_id: face ids of all meshes.
        body: row of the body, -1 for the world.
        pos: origin on the body, m; for static shapes in the world.
        quat: orientation on the body; for static shapes in the world.
        centre: centre of a bounding sphere, in the shape's frame, m.
        radius: radius of that sphere, m.
        moving: number of the first shape that moves.
        shape_body: row of the body of each shape of the scene, -1 for the world.
    """

    kind: wp.array[wp.int32]
    size: wp.array[wp.vec3]
    tree: wp.array[wp.uint64]
    mesh: wp.array[wp.uint64]
    field: wp.array[wp.int32]
    upright: wp.array[wp.int32]
    heading: wp.array[wp.vec2]
    shape: wp.array[wp.int32]
    face_start: wp.array[wp.int32]
    face_id: wp.array[wp.int32]
    body: wp.array[wp.int32]
    pos: wp.array[wp.vec3]
    quat: wp.array[wp.vec4]
    centre: wp.array[wp.vec3]
    radius: wp.array[wp.float32]
    moving: wp.int32
    shape_body: wp.array[wp.int32]


@wp.struct
class Moving:
    """Poses of the moving shapes: per env and, for scans that take time, per tick slot.

    Attributes:
        pos: origins `[env, slot, shape]`, m, world.
        quat: orientations.
        centre: centres of the bounding spheres, m, world.
    """

    pos: wp.array3d[wp.vec3]
    quat: wp.array3d[wp.vec4]
    centre: wp.array3d[wp.vec3]


@wp.struct
class Bundle:
    """The rays of one sensor in its ray frame.

    Attributes:
        starts: `[1 or env, ray]`, m.
        directions: `[1 or env, ray]`, unit.
        angle_cos: cosine of the angle about a block's middle ray that contains the block, by its first ray.
        angle_sin: sine of that angle; -1 if the block is wider than a half space.
        radius: distance from the middle ray's start that contains all starts of the block, m.
        total: rays of one period.
        count: rays of one scan.
        vertical: -1 or 1 if all rays are along -z or +z after alignment, otherwise 0.
        times: times of the rays in a period, s; empty for an instantaneous scan.
        period: s.
        per_tick: groups of rays per tick, for a window that moves over the period; 0 if it is always the same.
        group: rays that a window never separates: the sub-rays of a beam.
    """

    starts: wp.array2d[wp.vec3]
    directions: wp.array2d[wp.vec3]
    angle_cos: wp.array2d[wp.float32]
    angle_sin: wp.array2d[wp.float32]
    radius: wp.array2d[wp.float32]
    total: wp.int32
    count: wp.int32
    vertical: wp.int32
    times: wp.array[wp.float32]
    period: wp.float64
    per_tick: wp.float64
    group: wp.int32


@wp.struct
class Pose:
    """Poses of the mounts, and the rotation of the rays with them.

    Attributes:
        pos: origins of the mount `[env, slot, mount]`, m, world.
        quat: orientations.
        offset_pos: pose of the ray frame on the mount `[1 or env, mount]`.
        offset_quat: its orientation.
        drift: added to the origin `[0 or env, mount]`, m, world.
        cast_drift: x and y added to the starts along the alignment's axes, z to the hits `[0 or env, mount]`, m.
        alignment: see `BASE`.
        slots: number of stored ticks; 1 for an instantaneous scan.
        dt: s.
    """

    pos: wp.array3d[wp.vec3]
    quat: wp.array3d[wp.vec4]
    offset_pos: wp.array2d[wp.vec3]
    offset_quat: wp.array2d[wp.vec4]
    drift: wp.array2d[wp.vec3]
    cast_drift: wp.array2d[wp.vec3]
    alignment: wp.int32
    slots: wp.int32
    dt: wp.float64


@wp.struct
class Hits:
    """Outputs, `[env, mount, ray]` each; an empty array is not written.

    Attributes:
        distance: m; +inf for a miss.
        point: m, world; +inf for a miss.
        normal: unit, world; 0 for a miss.
        cosine: cosine of the angle of incidence, between the normal and the way back; negative from inside; 0 for a
            miss.
        shape: number of the shape in the scene; -1 for a miss.
        body: row of its body, -1 for the world; -2 for a miss.
        face: face id; -1 for none.
        start: start of the ray, m, world.
        direction: unit direction of the ray, world.
        time: s relative to the capture, at most 0.
        miss: value of `distance` for a miss.
    """

    distance: wp.array3d[wp.float32]
    point: wp.array3d[wp.vec3]
    normal: wp.array3d[wp.vec3]
    cosine: wp.array3d[wp.float32]
    shape: wp.array3d[wp.int32]
    body: wp.array3d[wp.int32]
    face: wp.array3d[wp.int32]
    start: wp.array3d[wp.vec3]
    direction: wp.array3d[wp.vec3]
    time: wp.array3d[wp.float32]
    miss: wp.float32
