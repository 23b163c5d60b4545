"""Rays against all that an environment holds: what stands still, shared by all, and what moves, per environment.

What stands still is one `Surroundings`: all triangles in one tree, analytic shapes in another, height fields and planes
one by one; for vertical rays, and for all rays at a terrain, an index over the ground plane instead of the tree. What
moves is few: a block of neighbouring rays first keeps the shapes whose bounding spheres its cone meets, and its rays
test only those.

Kernels here write the nearest hit of each ray: both faces count, t >= 0, nothing beyond the limit.
"""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows
from sensorium.geometry.columns import ColumnsIndex, columns_ray
from sensorium.geometry.columns_walk import WalkIndex, columns_walk
from sensorium.geometry.hfield import HFields, hfield_normal, ray_hfield, ray_hfield_vertical
from sensorium.geometry.primitives import HFIELD, MESH, primitive_normal, ray_primitive
from sensorium.geometry.transforms import quat_multiply, quat_rotate, quat_rotate_inverse, quat_slerp, quat_yaw

wp.set_module_options({"fuse_fp": False, "enable_backward": False})

BLOCK = wp.constant(wp.int32(32))
"""Rays that one CPU thread casts after each other; neighbours, so that one look at what moves serves all of them."""
NEAR = 64
"""Shapes that a block can keep; with more in its cone, each ray looks at all of them."""
Near = wp.types.vector(length=NEAR, dtype=wp.int32)
BASE, YAW, WORLD, YAW_STARTS = 0, 1, 2, 3
"""How rays follow their mount: wholly, about the vertical only, not at all, or about the vertical with the starts only
(the directions keep to the world)."""


@wp.struct
class Surroundings:
    """What stands still, in world axes, and is the same in all environments.

    Attributes:
        mesh: id of the `wp.Mesh` of all triangles; 0 for none.
        face_shape: shape of each of its triangles.
        face_id: their face ids.
        bvh: id of the `wp.Bvh` around analytic shapes; 0 for none.
        bvh_row: instance row of each of its boxes.
        alone: instance rows that every ray tests: planes and height fields.
        is_indexed: whether vertical rays use `columns`.
        columns: the 2-D index over triangles.
        column_shape: shape of each of its triangles.
        column_face: their face ids.
        column_normal: their unit normals.
        is_walked: whether rays in any direction use `columns` and `walk`.
        walk: what they need besides.
    """

    mesh: wp.uint64
    face_shape: wp.array[wp.int32]
    face_id: wp.array[wp.int32]
    bvh: wp.uint64
    bvh_row: wp.array[wp.int32]
    alone: wp.array[wp.int32]
    is_indexed: wp.int32
    columns: ColumnsIndex
    column_shape: wp.array[wp.int32]
    column_face: wp.array[wp.int32]
    column_normal: wp.array[wp.vec3]
    is_walked: wp.int32
    walk: WalkIndex


@wp.struct
class Instances:
    """Shapes that are tested one by one: first those that stand still, with poses in the world, then those that move.

    Attributes:
        kind: number of the kind, as in `shapes.KINDS`.
        size: sizes; of a mesh its scale.
        mesh: `wp.Mesh` id, 0 for no mesh.
        field: row among the height fields.
        upright: 1 where the shape stands still and its z axis is the world's.
        heading: cosine and sine of its turn about that axis.
        shape: number of the shape in the scene.
        face_start: first of its entries in `face_id`.
        face_id: face ids of all meshes.
        body: row of the body, -1 for the world.
        pos: origin on the body, m; of what stands still in the world.
        quat: orientation, likewise.
        centre: centre of a bounding sphere, in the shape's frame, m.
        radius: its radius, m.
        moving: number of the first shape that moves.
        shape_body: row of the body of each shape of the scene, -1 for the world.
    """

    kind: wp.array[wp.int32]
    size: wp.array[wp.vec3]
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
    """Where the moving shapes are: per env and, for scans that take time, per tick slot.

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
    """The rays of one sensor in its own frame.

    Attributes:
        starts: `[1 or env, ray]`, m.
        directions: `[1 or env, ray]`, unit.
        inverse_k: `[1 or env, 3]` rows of the inverse intrinsic matrix; then there are no `starts` and `directions`.
        width: pixels in a row, with `inverse_k`.
        angle_cos: cosine of the angle about a block's middle ray that holds the whole block, by its first ray.
        angle_sin: its sine; -1 where the block is wider than a half space.
        radius: distance from the middle ray's start that holds all starts of the block, m.
        total: rays of one period.
        count: rays of one scan.
        vertical: -1 or 1 where all rays are along -z or +z after alignment, else 0.
        times: times of the rays in a period, s; empty where a scan takes no time.
        period: s.
        per_tick: groups of rays per tick, where the window of a scan moves over the period; 0 for always the same rays.
        group: rays that a window never parts: the sub-rays of a beam.
    """

    starts: wp.array2d[wp.vec3]
    directions: wp.array2d[wp.vec3]
    inverse_k: wp.array2d[wp.vec3]
    width: wp.int32
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
    """Where the sensor is, and how its rays follow.

    Attributes:
        pos: origins of the mount `[env, slot, mount]`, m, world.
        quat: orientations.
        offset_pos: pose of the ray frame on the mount `[1 or env, mount]`.
        offset_quat: its orientation.
        drift: added to the origin `[0 or env, mount]`, m, world.
        cast_drift: x and y added to the starts along the alignment's axes, z to the hits `[0 or env, mount]`, m.
        alignment: see `BASE`.
        slots: ticks that are kept; 1 for a scan in an instant.
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
    """What is written, `[env, mount, ray]` each; an empty array is left out.

    Attributes:
        distance: m; +inf for a miss.
        point: m, world; +inf for a miss.
        normal: unit, world; 0 for a miss.
        cosine: of the angle of incidence: that between the normal and the way back, negative from inside; 0 for a miss.
        shape: number of the shape in the scene; -1 for a miss.
        body: row of its body, -1 for the world; -2 for a miss.
        face: face id; -1 for none.
        start: where the ray started, m, world.
        direction: its unit vector, world.
        time: s from the capture, not above 0.
        miss: what `distance` is for a miss.
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


@wp.func
def ray_instance(
    instances: Instances, fields: HFields, row: int, pos: wp.vec3, quat: wp.vec4, o: wp.vec3, d: wp.vec3, limit: float
) -> tuple[wp.float32, wp.int32]:
    """Return t (inf for a miss, or beyond the limit) and the face of one shape in a pose."""
    lo = quat_rotate_inverse(quat, o - pos)
    ld = quat_rotate_inverse(quat, d)
    kind = instances.kind[row]
    t = float(wp.inf)
    face = int(-1)
    if kind == MESH:
        scale = instances.size[row]
        query = wp.mesh_query_ray(instances.mesh[row], wp.cw_div(lo, scale), wp.cw_div(ld, scale), limit)
        if query.result:
            t = query.t
            face = query.face
    elif kind == HFIELD:
        t, face = ray_hfield(fields, instances.field[row], lo, ld, limit)
    else:
        t = ray_primitive(kind, instances.size[row], lo, ld)
    if t > limit:
        t = wp.inf
    return t, face


@wp.func
def normal_of(
    instances: Instances, fields: HFields, row: int, face: int, pos: wp.vec3, quat: wp.vec4, point: wp.vec3
) -> wp.vec3:
    """Return the outward unit normal of a shape at a point of its surface, in the world."""
    kind = instances.kind[row]
    local = quat_rotate_inverse(quat, point - pos)
    n = wp.vec3()
    if kind == MESH:
        scale = instances.size[row]  # a mirrored solid keeps its outside
        n = wp.normalize(wp.cw_div(wp.mesh_eval_face_normal(instances.mesh[row], face), scale))
    elif kind == HFIELD:
        n = hfield_normal(fields, instances.field[row], face, local)
    else:
        n = primitive_normal(kind, instances.size[row], local)
    return quat_rotate(quat, n)


@wp.func
def slot_of(tick: int, slots: int) -> wp.int32:
    """Return where a tick is kept."""
    return ((tick % slots) + slots) % slots


@wp.func
def first_tick(reset_tick: int, captured: int) -> wp.int32:
    """Return the first tick of the episode of which poses are kept: that of the reset, whatever the engine's lag."""
    return wp.min(reset_tick, captured)


@wp.func
def pose_at(pose: Pose, env: int, mount: int, captured: int, earliest: int, time: float) -> tuple[wp.vec3, wp.vec4]:
    """Return position and orientation of a mount some seconds from its capture, between the ticks that are kept."""
    x = float(wp.float64(time) / pose.dt)
    whole = int(wp.floor(x))
    share = x - float(whole)
    before = wp.max(wp.max(captured + whole, earliest), captured - pose.slots + 1)
    after = wp.min(wp.max(captured + whole + 1, before), captured)
    i = slot_of(before, pose.slots)
    j = slot_of(after, pose.slots)
    p = pose.pos[env, i, mount]
    q = pose.quat[env, i, mount]
    if j != i:
        p = p + share * (pose.pos[env, j, mount] - p)
        q = quat_slerp(q, pose.quat[env, j, mount], share)
    return p, q


@wp.func
def nearest_tick(pose: Pose, captured: int, earliest: int, time: float) -> wp.int32:
    """Return the tick, of those that are kept, that is nearest to a time some seconds from the capture."""
    tick = captured + int(wp.round(float(wp.float64(time) / pose.dt)))
    return wp.max(wp.max(tick, earliest), captured - pose.slots + 1)


@wp.func
def ray_of(bundle: Bundle, env: int, index: int) -> tuple[wp.vec3, wp.vec3]:
    """Return start and direction of a ray in the ray frame."""
    start = wp.vec3()
    direction = wp.vec3()
    if bundle.inverse_k.shape[0] > 0:
        e = env % bundle.inverse_k.shape[0]
        pixel = wp.vec3(float(index % bundle.width) + 0.5, float(index / bundle.width) + 0.5, 1.0)
        x = wp.dot(bundle.inverse_k[e, 0], pixel)
        y = wp.dot(bundle.inverse_k[e, 1], pixel)
        z = wp.dot(bundle.inverse_k[e, 2], pixel)
        direction = wp.normalize(wp.vec3(z, -x, -y))
    else:
        e = env % bundle.directions.shape[0]
        start = bundle.starts[e, index]
        direction = bundle.directions[e, index]
    return start, direction


@wp.func
def place_ray(
    pose: Pose, env: int, mount: int, pos: wp.vec3, quat: wp.vec4, start: wp.vec3, direction: wp.vec3
) -> tuple[wp.vec3, wp.vec3]:
    """Return start and direction in the world of a ray in the ray frame, whose mount is at a pose."""
    s = start
    d = direction
    if pose.offset_pos.shape[0] > 0:
        e = env % pose.offset_pos.shape[0]
        turn = pose.offset_quat[e, mount]
        s = pose.offset_pos[e, mount] + quat_rotate(turn, s)
        d = quat_rotate(turn, d)
    if pose.cast_drift.shape[0] > 0:
        drift = pose.cast_drift[env, mount]
        s = s + wp.vec3(drift[0], drift[1], 0.0)
    if pose.alignment != WORLD:
        s = quat_rotate(quat, s)
        if pose.alignment != YAW_STARTS:
            d = quat_rotate(quat, d)
    s = pos + s
    if pose.drift.shape[0] > 0:
        s = s + pose.drift[env, mount]
    return s, d


@wp.kernel
def place_shapes(
    rows: Rows,
    slots: int,
    clock: wp.array[wp.int32],
    instances: Instances,
    body_pos_in: wp.array2d[wp.vec3],
    body_quat_in: wp.array2d[wp.vec4],
    pos_out: wp.array3d[wp.vec3],
    quat_out: wp.array3d[wp.vec4],
    centre_out: wp.array3d[wp.vec3],
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    """Put the moving shapes where their bodies are, and flag an env where one is nowhere."""
    i, k = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    row = instances.moving + k
    body = instances.body[row]
    turn = body_quat_in[env, body]
    pos = body_pos_in[env, body] + quat_rotate(turn, instances.pos[row])
    quat = quat_multiply(turn, instances.quat[row])
    slot = slot_of(clock[0] - clock[2], slots)
    pos_out[env, slot, k] = pos
    quat_out[env, slot, k] = quat
    centre_out[env, slot, k] = pos + quat_rotate(quat, instances.centre[row])
    if not (wp.isfinite(wp.length_sq(pos)) and wp.isfinite(wp.length_sq(quat))):
        for mount in range(bad_out.shape[1]):
            bad_out[env, mount] = wp.uint8(1)
        any_bad[0] = 1


@wp.kernel
def keep_pose(
    rows: Rows,
    slots: int,
    clock: wp.array[wp.int32],
    pos_in: wp.array2d[wp.vec3],
    quat_in: wp.array2d[wp.vec4],
    pos_out: wp.array3d[wp.vec3],
    quat_out: wp.array3d[wp.vec4],
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    """Keep where the mounts are at this tick, and flag those that are nowhere."""
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    slot = slot_of(clock[0] - clock[2], slots)
    pos = pos_in[env, mount]
    quat = quat_in[env, mount]
    pos_out[env, slot, mount] = pos
    quat_out[env, slot, mount] = quat
    flag = wp.uint8(0)
    if not (wp.isfinite(wp.length_sq(pos)) and wp.isfinite(wp.length_sq(quat))):
        flag = wp.uint8(1)
        any_bad[0] = 1
    bad_out[env, mount] = flag


@wp.kernel
def bridge_gap(
    rows: Rows,
    slots: int,
    clock: wp.array[wp.int32],
    reset_tick: wp.array[wp.int32],
    last: wp.array2d[wp.int32],
    pos: wp.array3d[wp.vec3],
    quat: wp.array3d[wp.vec4],
    centre: wp.array3d[wp.vec3],
) -> None:
    """Fill the ticks that a jump passed over with poses between those before and after it."""
    i, k = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    captured = clock[0] - clock[2]
    before = last[env, k]
    last[env, k] = captured
    if before < reset_tick[env] - clock[2] or captured - before < 2:
        return
    now = slot_of(captured, slots)
    then = slot_of(before, slots)
    for tick in range(wp.max(before + 1, captured - slots + 1), captured):
        share = float(tick - before) / float(captured - before)
        if captured - before >= slots:  # what was before is gone
            then = now
        slot = slot_of(tick, slots)
        pos[env, slot, k] = pos[env, then, k] + share * (pos[env, now, k] - pos[env, then, k])
        quat[env, slot, k] = quat_slerp(quat[env, then, k], quat[env, now, k], share)
        if centre.shape[2] > 0:
            centre[env, slot, k] = centre[env, then, k] + share * (centre[env, now, k] - centre[env, then, k])


@wp.kernel
def cast_rays(
    rows: Rows,
    clock: wp.array[wp.int32],
    reset_tick: wp.array[wp.int32],
    limits: wp.vec2,
    per_block: int,
    surroundings: Surroundings,
    instances: Instances,
    fields: HFields,
    moving: Moving,
    hidden: wp.array2d[wp.uint8],
    pose: Pose,
    bundle: Bundle,
    out: Hits,
) -> None:
    """Cast one block of neighbouring rays of one mount of one environment.

    Args:
        rows: which environments.
        clock: the clock's words.
        reset_tick: tick of the last reset of each env.
        limits: least and greatest distance, m.
        per_block: rays in a block.
        surroundings: what stands still.
        instances: shapes tested one by one.
        fields: all height fields.
        moving: where the moving shapes are.
        hidden: 1 where a mount does not see an instance `[mount, instance]`.
        pose: where the mounts are.
        bundle: the rays.
        out: what is written.
    """
    i, mount, piece = wp.tid()
    block = rows.first + piece
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    captured = clock[0] - clock[2]
    earliest = first_tick(reset_tick[env], captured)
    begin = scan_begin(bundle, captured)
    first = block * per_block
    last = wp.min(first + per_block, bundle.count)
    now = slot_of(captured, pose.slots)
    pos = pose.pos[env, now, mount]
    quat = pose.quat[env, now, mount]
    turns = pose.alignment == YAW or pose.alignment == YAW_STARTS
    if turns:
        quat = quat_yaw(quat)
    takes_time = bundle.times.shape[0] > 0 and pose.slots > 1
    slot = now
    # What moves near this block
    count = int(0)
    near = Near()
    movers = moving.pos.shape[2]
    if movers > 0:
        mid = (first + last) / 2
        if bundle.per_tick > wp.float64(0.0):
            mid = first + per_block / 2  # a window's last block may have fewer rays; its cone is that of a whole one
        index = ((begin + mid) % bundle.total + bundle.total) % bundle.total
        low = ((begin + first) % bundle.total + bundle.total) % bundle.total
        e = env % bundle.angle_cos.shape[0]
        angle_cos = bundle.angle_cos[e, low]
        angle_sin = bundle.angle_sin[e, low]
        radius = bundle.radius[e, low]
        s0, d0 = ray_of(bundle, env, index)
        mp = pos
        mq = quat
        if takes_time:
            mp, mq = pose_at(pose, env, mount, captured, earliest, ray_time(bundle, begin + mid, captured, pose.dt))
            if turns:
                mq = quat_yaw(mq)
        s, d = place_ray(pose, env, mount, mp, mq, s0, d0)
        if takes_time:
            # rays of the block leave from other poses: widen by what the mount does between them
            begins = ray_time(bundle, begin + first, captured, pose.dt)
            ends = ray_time(bundle, begin + last - 1, captured, pose.dt)
            tick = nearest_tick(pose, captured, earliest, begins)
            slot = slot_of(tick, pose.slots)
            if nearest_tick(pose, captured, earliest, ends) != tick:
                count = NEAR + 1  # what moves is elsewhere by then: each ray looks at all
            turn = float(0.0)
            shift = float(0.0)
            for corner in range(3):  # at a tick, which may be between them, the mount's way has a corner
                ap = pose.pos[env, slot, mount]
                aq = pose.quat[env, slot, mount]
                if corner < 2:
                    ap, aq = pose_at(pose, env, mount, captured, earliest, wp.where(corner == 0, begins, ends))
                if turns:
                    aq = quat_yaw(aq)
                turn = wp.max(turn, 2.2 * wp.length(wp.sub(quat_near(aq, mq), mq)))
                other, _other_d = place_ray(pose, env, mount, ap, aq, s0, d0)
                shift = wp.max(shift, wp.length(other - s))
            radius = radius + 1.1 * shift + turn * turn * wp.length(s - mp)
            widened = wp.atan2(angle_sin, angle_cos) + turn
            if angle_sin >= 0.0 and widened < 1.5:
                angle_cos = wp.cos(widened)
                angle_sin = wp.sin(widened)
            else:
                angle_sin = -1.0
        for k in range(movers):
            row = instances.moving + k
            if hidden[mount, row] != wp.uint8(0):
                continue
            v = moving.centre[env, slot, k] - s
            far = wp.length(v)
            reach = instances.radius[row] + radius
            if far > reach:
                if far - reach > limits[1]:
                    continue
                if angle_sin >= 0.0:
                    b = reach / far
                    if wp.dot(v, d) < far * (angle_cos * wp.sqrt(1.0 - b * b) - angle_sin * b) - 1.0e-5 * far:
                        continue
            if count < NEAR:
                near[count] = k
            count += 1
    for r in range(first, last):
        index = r
        if bundle.per_tick > wp.float64(0.0):
            index = ((begin + r) % bundle.total + bundle.total) % bundle.total
        s0, d0 = ray_of(bundle, env, index)
        p = pos
        q = quat
        time = float(0.0)
        if bundle.times.shape[0] > 0:
            time = ray_time(bundle, begin + r, captured, pose.dt)
            if takes_time:
                p, q = pose_at(pose, env, mount, captured, earliest, time)
                if turns:
                    q = quat_yaw(q)
                slot = slot_of(nearest_tick(pose, captured, earliest, time), pose.slots)
        s, d = place_ray(pose, env, mount, p, q, s0, d0)
        t = limits[1]
        best = int(-1)  # instance row; -1 nothing, -2 a triangle of the tree, -3 one of the index
        face = int(-1)
        # What moves comes first: it is cheap, and what it hides need not be found
        looks = count
        if count > NEAR:
            looks = movers
        for c in range(looks):
            k = c
            if count <= NEAR:
                k = near[c]
            row = instances.moving + k
            if count > NEAR and hidden[mount, row] != wp.uint8(0):
                continue
            v = moving.centre[env, slot, k] - s
            along = wp.dot(v, d)
            size = instances.radius[row]
            if along < -size or along - size > t or wp.length_sq(v - along * d) > size * size * 1.0001:
                continue
            found, fface = ray_instance(
                instances, fields, row, moving.pos[env, slot, k], moving.quat[env, slot, k], s, d, t
            )
            if found <= t:
                t = found
                best = row
                face = fface
        if surroundings.is_indexed != 0:
            found, triangle = columns_ray(surroundings.columns, s[0], s[1], s[2], float(bundle.vertical), t)
            if found <= t:
                t = found
                best = -3
                face = triangle
        elif surroundings.is_walked != 0:
            found, triangle = columns_walk(surroundings.columns, surroundings.walk, s, d, t)
            if found <= t:
                t = found
                best = -3
                face = triangle
        elif surroundings.mesh != wp.uint64(0):
            query = wp.mesh_query_ray(surroundings.mesh, s, d, t)
            if query.result:
                t = query.t
                best = -2
                face = query.face
        for k in range(surroundings.alone.shape[0]):
            row = surroundings.alone[k]
            if hidden[mount, row] != wp.uint8(0):
                continue
            found = float(wp.inf)
            fface = int(-1)
            if bundle.vertical != 0 and instances.upright[row] != 0 and instances.kind[row] == HFIELD:
                lo = quat_rotate_inverse(instances.quat[row], s - instances.pos[row])
                found, fface = ray_hfield_vertical(fields, instances.field[row], lo, float(bundle.vertical))
            else:
                found, fface = ray_instance(instances, fields, row, instances.pos[row], instances.quat[row], s, d, t)
            if found <= t:
                t = found
                best = row
                face = fface
        if surroundings.bvh != wp.uint64(0):
            boxes = wp.bvh_query_ray(surroundings.bvh, s, d)
            leaf = int(0)
            while wp.bvh_query_next(boxes, leaf, t):
                row = surroundings.bvh_row[leaf]
                if hidden[mount, row] == wp.uint8(0):
                    found, fface = ray_instance(
                        instances, fields, row, instances.pos[row], instances.quat[row], s, d, t
                    )
                    if found <= t:
                        t = found
                        best = row
                        face = fface
        is_hit = best != -1 and t >= limits[0]
        write_hit(surroundings, instances, fields, moving, pose, out, env, mount, r, slot, s, d, t, best, face, is_hit)
        if out.time.shape[0] > 0:
            out.time[env, mount, r] = time


@wp.func
def quat_near(q: wp.vec4, to: wp.vec4) -> wp.vec4:
    """Return q or -q, whichever is nearer: the same turn."""
    if wp.dot(q, to) < 0.0:
        return -q
    return q


@wp.func
def scan_end(bundle: Bundle, captured: int) -> tuple[wp.float64, wp.int32]:
    """Return where the window of a scan ends that moves: whole periods since tick 0, and rays of the one it is in."""
    fired = wp.floor(wp.float64(captured) * bundle.per_tick + wp.float64(0.5)) * wp.float64(bundle.group)
    turns = wp.floor(fired / wp.float64(bundle.total))
    return turns, int(fired - turns * wp.float64(bundle.total))


@wp.func
def scan_begin(bundle: Bundle, captured: int) -> wp.int32:
    """Return the place of a scan's first ray, counted from the begin of the period in which it ends."""
    begin = wp.int32(0)
    if bundle.per_tick > wp.float64(0.0):
        _turns, end = scan_end(bundle, captured)
        begin = end - bundle.count
    return int(begin)


@wp.func
def ray_time(bundle: Bundle, place: int, captured: int, dt: wp.float64) -> wp.float32:
    """Return when a ray of a scan fires, s from the capture at its end."""
    wraps = wp.floor(wp.float64(place) / wp.float64(bundle.total))
    index = place - int(wraps) * bundle.total
    time = wp.float64(bundle.times[index]) + wraps * bundle.period
    if bundle.per_tick > wp.float64(0.0):
        turns, _end = scan_end(bundle, captured)
        time = time + (turns * bundle.period - wp.float64(captured) * dt)
    else:
        time = time - bundle.period
    return wp.min(float(time), 0.0)


@wp.func
def write_hit(
    surroundings: Surroundings,
    instances: Instances,
    fields: HFields,
    moving: Moving,
    pose: Pose,
    out: Hits,
    env: int,
    mount: int,
    r: int,
    slot: int,
    s: wp.vec3,
    d: wp.vec3,
    t: float,
    best: int,
    face: int,
    is_hit: bool,
) -> None:
    """Write what is wanted of one ray."""
    if out.distance.shape[0] > 0:
        out.distance[env, mount, r] = wp.where(is_hit, t, out.miss)
    if out.point.shape[0] > 0:
        point = wp.vec3(wp.inf, wp.inf, wp.inf)
        if is_hit:
            point = s + t * d
            if pose.cast_drift.shape[0] > 0:
                point = point + wp.vec3(0.0, 0.0, pose.cast_drift[env, mount][2])
        out.point[env, mount, r] = point
    if out.normal.shape[0] > 0 or out.cosine.shape[0] > 0:
        normal = wp.vec3()
        if is_hit:
            if best == -2:
                normal = wp.mesh_eval_face_normal(surroundings.mesh, face)
            elif best == -3:
                normal = surroundings.column_normal[face]
            elif best >= instances.moving:
                k = best - instances.moving
                normal = normal_of(
                    instances, fields, best, face, moving.pos[env, slot, k], moving.quat[env, slot, k], s + t * d
                )
            else:
                normal = normal_of(instances, fields, best, face, instances.pos[best], instances.quat[best], s + t * d)
        if out.normal.shape[0] > 0:
            out.normal[env, mount, r] = normal
        if out.cosine.shape[0] > 0:
            out.cosine[env, mount, r] = -wp.dot(d, normal)
    if out.shape.shape[0] > 0 or out.body.shape[0] > 0:
        shape = int(-1)
        if is_hit:
            if best == -2:
                shape = surroundings.face_shape[face]
            elif best == -3:
                shape = surroundings.column_shape[face]
            else:
                shape = instances.shape[best]
        if out.shape.shape[0] > 0:
            out.shape[env, mount, r] = shape
        if out.body.shape[0] > 0:
            body = int(-2)
            if is_hit:
                body = instances.shape_body[shape]
            out.body[env, mount, r] = body
    if out.face.shape[0] > 0:
        id = int(-1)
        if is_hit and face >= 0:
            if best == -2:
                id = surroundings.face_id[face]
            elif best == -3:
                id = surroundings.column_face[face]
            elif instances.kind[best] == MESH:
                id = instances.face_id[instances.face_start[best] + face]
            else:
                id = face
        out.face[env, mount, r] = id
    if out.start.shape[0] > 0:
        out.start[env, mount, r] = s
    if out.direction.shape[0] > 0:
        out.direction[env, mount, r] = d


@wp.kernel
def ray_points(
    rows: Rows,
    clock: wp.array[wp.int32],
    reset_tick: wp.array[wp.int32],
    per_block: int,
    pose: Pose,
    bundle: Bundle,
    distance_in: wp.array3d[wp.float32],
    point_out: wp.array3d[wp.vec3],
) -> None:
    """Put a point at the end of each ray of a given length; +inf where the length is not finite."""
    i, mount, piece = wp.tid()
    first = (rows.first + piece) * per_block
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    captured = clock[0] - clock[2]
    begin = scan_begin(bundle, captured)
    now = slot_of(captured, pose.slots)
    turns = pose.alignment == YAW or pose.alignment == YAW_STARTS
    takes_time = bundle.times.shape[0] > 0 and pose.slots > 1
    pos = pose.pos[env, now, mount]
    quat = pose.quat[env, now, mount]
    if turns:
        quat = quat_yaw(quat)
    lift = wp.vec3()
    if pose.cast_drift.shape[0] > 0:
        lift = wp.vec3(0.0, 0.0, pose.cast_drift[env, mount][2])
    for r in range(first, wp.min(first + per_block, bundle.count)):
        t = distance_in[env, mount, r]
        point = wp.vec3(wp.inf, wp.inf, wp.inf)
        if wp.isfinite(t):
            index = r
            if bundle.per_tick > wp.float64(0.0):
                index = ((begin + r) % bundle.total + bundle.total) % bundle.total
            p = pos
            q = quat
            if takes_time:
                time = ray_time(bundle, begin + r, captured, pose.dt)
                p, q = pose_at(pose, env, mount, captured, first_tick(reset_tick[env], captured), time)
                if turns:
                    q = quat_yaw(q)
            s0, d0 = ray_of(bundle, env, index)
            s, d = place_ray(pose, env, mount, p, q, s0, d0)
            point = s + t * d + lift
        point_out[env, mount, r] = point
