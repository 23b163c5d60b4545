"""Rays against all shapes of an environment: static ones, shared by all, and moving ones, per environment.

The static shapes are one `Surroundings`: all triangles in one tree, analytic shapes in another, height fields and
planes individually. Vertical rays use an index over the ground plane instead of the tree.
Moving shapes are few: a block of neighbouring rays first collects the shapes whose bounding spheres its cone
intersects, and its rays test only those.

The kernels write the nearest hit of each ray: both faces count, t >= 0, up to the limit.
"""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid, shared_func, tick_captured
from sensorium.geometry.columns import columns_ray
from sensorium.geometry.hfield import HFields, hfield_normal, ray_hfield, ray_hfield_vertical
from sensorium.geometry.primitives import HFIELD, MESH, primitive_normal, ray_primitive
from sensorium.geometry.ray_poses import (
    first_tick,
    nearest_tick,
    place_ray,
    pose_at,
    quat_near,
    ray_of,
    ray_time,
    scan_begin,
    slot_near,
    slot_of,
)
from sensorium.geometry.ray_structs import (
    MOVERS,
    NEAR,
    SHAPES,
    VARIANTS,
    YAW,
    YAW_STARTS,
    Bundle,
    Hits,
    Instances,
    Moving,
    Near,
    Pose,
    Surroundings,
)
from sensorium.geometry.transforms import quat_rotate, quat_rotate_inverse, quat_yaw
from sensorium.geometry.wide_tree import wide_tree_ray


@shared_func
def ray_mesh(tree: wp.uint64, mesh: wp.uint64, o: wp.vec3, d: wp.vec3, limit: float) -> tuple[wp.float32, wp.int32]:
    """Return t (inf for a miss) and the face of a mesh in its own frame; without a tree, by its `wp.Mesh`."""
    t = float(wp.inf)
    face = int(-1)
    if tree != wp.uint64(0):
        t, face = wide_tree_ray(tree, o, d, limit)
        return t, face
    query = wp.mesh_query_ray(mesh, o, d, limit)
    if query.result:
        t = query.t
        face = query.face
    return t, face


@wp.func
def ray_solid(
    instances: Instances, row: int, size: wp.vec3, pos: wp.vec3, quat: wp.vec4, o: wp.vec3, d: wp.vec3, limit: float
) -> tuple[wp.float32, wp.int32]:
    """Return the result of `ray_shape` for a shape that is not a height field."""
    lo = quat_rotate_inverse(quat, o - pos)
    ld = quat_rotate_inverse(quat, d)
    kind = instances.kind[row]
    t = float(wp.inf)
    face = int(-1)
    if kind == MESH:
        t, face = ray_mesh(instances.tree[row], instances.mesh[row], wp.cw_div(lo, size), wp.cw_div(ld, size), limit)
    else:
        t = ray_primitive(kind, size, lo, ld)
    if t > limit:
        t = wp.inf
    return t, face


@wp.func
def ray_shape(
    instances: Instances,
    fields: HFields,
    row: int,
    size: wp.vec3,
    pos: wp.vec3,
    quat: wp.vec4,
    o: wp.vec3,
    d: wp.vec3,
    limit: float,
) -> tuple[wp.float32, wp.int32]:
    """Return t (inf for a miss, or beyond the limit) and the face of one shape with a size at a pose."""
    if instances.kind[row] != HFIELD:
        t, face = ray_solid(instances, row, size, pos, quat, o, d, limit)
        return t, face
    lo = quat_rotate_inverse(quat, o - pos)
    ld = quat_rotate_inverse(quat, d)
    t, face = ray_hfield(fields, instances.field[row], lo, ld, limit)
    if t > limit:
        t = wp.inf
    return t, face


@wp.func
def ray_instance(
    instances: Instances, fields: HFields, row: int, pos: wp.vec3, quat: wp.vec4, o: wp.vec3, d: wp.vec3, limit: float
) -> tuple[wp.float32, wp.int32]:
    """Return t (inf for a miss, or beyond the limit) and the face of one shape at a pose."""
    t, face = ray_shape(instances, fields, row, instances.size[row], pos, quat, o, d, limit)
    return t, face


@wp.func
def local_normal(instances: Instances, fields: HFields, row: int, size: wp.vec3, face: int, point: wp.vec3) -> wp.vec3:
    """Return the outward unit normal of a shape with a size at a point of its surface, both in the shape's frame.

    It is the same at all points of a face whose number is not negative.
    """
    kind = instances.kind[row]
    n = wp.vec3()
    if kind == MESH:
        # mirroring does not change the outside of a solid
        n = wp.normalize(wp.cw_div(wp.mesh_eval_face_normal(instances.mesh[row], face), size))
    elif kind == HFIELD:
        n = hfield_normal(fields, instances.field[row], face, point)
    else:
        n = primitive_normal(kind, size, point)
    return n


@wp.func
def hit_normal(
    surroundings: Surroundings,
    instances: Instances,
    fields: HFields,
    moving: Moving,
    env: int,
    slot: int,
    point: wp.vec3,
    best: int,
    face: int,
) -> wp.vec3:
    """Return the outward unit normal at a hit point, world, of an instance row, or of a static triangle for -2."""
    if best == -2:
        if surroundings.face_normal.shape[0] > 0:
            return surroundings.face_normal[face]
        return wp.mesh_eval_face_normal(surroundings.mesh, face)
    pos = instances.pos[best]
    quat = instances.quat[best]
    if best >= instances.moving:
        pos = moving.pos[env, slot, best - instances.moving]
        quat = moving.quat[env, slot, best - instances.moving]
    at = quat_rotate_inverse(quat, point - pos)
    return quat_rotate(quat, local_normal(instances, fields, best, instances.size[best], face, at))


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
    """Write the requested outputs of one ray."""
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
            normal = hit_normal(surroundings, instances, fields, moving, env, slot, s + t * d, best, face)
        if out.normal.shape[0] > 0:
            out.normal[env, mount, r] = normal
        if out.cosine.shape[0] > 0:
            out.cosine[env, mount, r] = -wp.dot(d, normal)
    if out.shape.shape[0] > 0 or out.body.shape[0] > 0:
        shape = int(-1)
        if is_hit:
            if best == -2:
                shape = surroundings.face_shape[face]
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
            elif instances.kind[best] == MESH:
                id = instances.face_id[instances.face_start[best] + face]
            else:
                id = face
        out.face[env, mount, r] = id
    if out.start.shape[0] > 0:
        out.start[env, mount, r] = s
    if out.direction.shape[0] > 0:
        out.direction[env, mount, r] = d


@kernel(variants=VARIANTS, blocks={"triangles": 3, "still": 2, "all": 2})
def cast_rays(
    rows: Rows,
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
        rows: the environments.
        limits: minimum and greatest distance, m.
        per_block: rays in a block.
        surroundings: the static shapes.
        instances: shapes that are tested individually.
        fields: all height fields.
        moving: poses of the moving shapes.
        hidden: 1 if a mount ignores an instance `[mount, instance]`.
        pose: poses of the mounts.
        bundle: the rays.
        out: the outputs.
    """
    env, mount, piece = masked_tid(rows)
    block = rows.first + piece
    captured = tick_captured(rows)
    earliest = first_tick(rows.reset_tick[env], captured, pose.slots)
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
    # Moving shapes near this block
    count = int(0)
    near = Near()
    movers = int(0)
    if wp.static(MOVERS):
        movers = moving.pos.shape[2]
    if movers > 0:
        mid = (first + last) / 2
        if bundle.per_tick > wp.float64(0.0):
            mid = first + per_block / 2  # a window's last block may have fewer rays, with the cone of a whole one
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
            mp, mq = pose_at(pose, env, mount, now, earliest, ray_time(bundle, begin + mid, captured, pose.dt))
            if turns:
                mq = quat_yaw(mq)
        s, d = place_ray(pose, env, mount, mp, mq, s0, d0)
        if takes_time:
            # rays of the block start at different poses: widen by the motion of the mount between them
            begins = ray_time(bundle, begin + first, captured, pose.dt)
            ends = ray_time(bundle, begin + last - 1, captured, pose.dt)
            tick = nearest_tick(pose, earliest, begins)
            slot = slot_near(now, tick, pose.slots)
            if nearest_tick(pose, earliest, ends) != tick:
                count = NEAR + 1  # moving shapes change their poses meanwhile: each ray tests all
            turn = float(0.0)
            shift = float(0.0)
            corners = int(3)  # the path of the mount has a corner at a tick in between
            for corner in range(corners):
                ap = pose.pos[env, slot, mount]
                aq = pose.quat[env, slot, mount]
                if corner < 2:
                    ap, aq = pose_at(pose, env, mount, now, earliest, wp.where(corner == 0, begins, ends))
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
    alone = int(0)
    bvh = wp.uint64(0)
    if wp.static(SHAPES):
        alone = surroundings.alone.shape[0]
        bvh = surroundings.bvh
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
                p, q = pose_at(pose, env, mount, now, earliest, time)
                if turns:
                    q = quat_yaw(q)
                slot = slot_near(now, nearest_tick(pose, earliest, time), pose.slots)
        s, d = place_ray(pose, env, mount, p, q, s0, d0)
        t = limits[1]
        best = int(-1)  # instance row; -1 none, -2 a static triangle
        face = int(-1)
        # Moving shapes first: they are cheap, and shapes behind them need no search
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
                best = -2
                face = triangle
        elif surroundings.tree != wp.uint64(0) or surroundings.mesh != wp.uint64(0):
            found, triangle = ray_mesh(surroundings.tree, surroundings.mesh, s, d, t)
            if found <= t:
                t = found
                best = -2
                face = triangle
        for k in range(alone):
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
        if bvh != wp.uint64(0):
            boxes = wp.bvh_query_ray(bvh, s, d)
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
