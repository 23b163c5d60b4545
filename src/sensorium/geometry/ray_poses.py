"""Poses of rays and shapes: at a tick, and for a scan that takes time, between the ticks, when each ray fires.

The poses of the last ticks are stored in slots, tick modulo their number. A scan ends at its capture; times of rays are
relative to it and at most 0.
"""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid, tick_captured, tick_now, ticks_after
from sensorium.geometry.ray_structs import WORLD, YAW, YAW_STARTS, Bundle, Hits, Instances, Pose
from sensorium.geometry.transforms import quat_multiply, quat_rotate, quat_slerp, quat_yaw
from sensorium.random import F32


@wp.func
def slot_of(tick: wp.int64, slots: int) -> wp.int32:
    """Return the slot of a tick."""
    return slot_near(wp.int32(tick % wp.int64(slots)), 0, slots)


@wp.func
def slot_near(slot: int, ticks: int, slots: int) -> wp.int32:
    """Return the slot of a tick that is some ticks after that of a slot."""
    return ((slot + ticks) % slots + slots) % slots


@wp.func
def first_tick(reset_tick: wp.int64, captured: wp.int64, slots: int) -> wp.int32:
    """Return the first stored tick of the episode relative to the capture, <= 0; whatever the engine's lag."""
    return wp.int32(wp.clamp(reset_tick - captured, wp.int64(1 - slots), wp.int64(0)))


@wp.func
def pose_at(pose: Pose, env: int, mount: int, now: int, earliest: int, time: float) -> tuple[wp.vec3, wp.vec4]:
    """Return the pose of a mount at a time relative to its capture in slot `now`, interpolated between stored ticks."""
    x = float(wp.float64(time) / pose.dt)
    whole = int(wp.floor(x))
    share = x - float(whole)
    before = wp.max(whole, earliest)
    after = wp.min(wp.max(whole + 1, before), 0)
    i = slot_near(now, before, pose.slots)
    j = slot_near(now, after, pose.slots)
    p = pose.pos[env, i, mount]
    q = pose.quat[env, i, mount]
    if j != i:
        p = p + share * (pose.pos[env, j, mount] - p)
        q = quat_slerp(q, pose.quat[env, j, mount], share)
    return p, q


@wp.func
def nearest_tick(pose: Pose, earliest: int, time: float) -> wp.int32:
    """Return the stored tick that is nearest to a time, s, both relative to the capture."""
    return wp.max(int(wp.round(float(wp.float64(time) / pose.dt))), earliest)


@wp.func
def quat_near(q: wp.vec4, to: wp.vec4) -> wp.vec4:
    """Return q or -q, whichever is nearer: the same rotation."""
    if wp.dot(q, to) < 0.0:
        return -q
    return q


@wp.func
def scan_end(bundle: Bundle, captured: wp.int64) -> tuple[wp.float64, wp.int32]:
    """Return the end of a moving scan window: whole periods since tick 0, and rays of the current period."""
    fired = wp.floor(wp.float64(captured) * bundle.per_tick + wp.float64(0.5)) * wp.float64(bundle.group)
    turns = wp.floor(fired / wp.float64(bundle.total))
    return turns, int(fired - turns * wp.float64(bundle.total))


@wp.func
def scan_begin(bundle: Bundle, captured: wp.int64) -> wp.int32:
    """Return the index of a scan's first ray, counted from the start of the period in which it ends."""
    begin = wp.int32(0)
    if bundle.per_tick > wp.float64(0.0):
        _turns, end = scan_end(bundle, captured)
        begin = end - bundle.count
    return int(begin)


@wp.func
def ray_time(bundle: Bundle, place: int, captured: wp.int64, dt: wp.float64) -> wp.float32:
    """Return the firing time of a ray of a scan, s relative to the capture at its end."""
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
def ray_of(bundle: Bundle, env: int, index: int) -> tuple[wp.vec3, wp.vec3]:
    """Return start and direction of a ray in the ray frame."""
    e = env % bundle.directions.shape[0]
    return bundle.starts[e, index], bundle.directions[e, index]


@wp.func
def place_ray(
    pose: Pose, env: int, mount: int, pos: wp.vec3, quat: wp.vec4, start: wp.vec3, direction: wp.vec3
) -> tuple[wp.vec3, wp.vec3]:
    """Return start and direction in the world of a ray in the ray frame, for a mount at a pose."""
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


@kernel
def place_shapes(
    rows: Rows,
    slots: int,
    instances: Instances,
    body_pos_in: wp.array2d[wp.vec3],
    body_quat_in: wp.array2d[wp.vec4],
    pos_out: wp.array3d[wp.vec3],
    quat_out: wp.array3d[wp.vec4],
    centre_out: wp.array3d[wp.vec3],
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    """Compute the poses of the moving shapes from their bodies, and flag an env if one is not finite."""
    env, k = masked_tid(rows)
    row = instances.moving + k
    body = instances.body[row]
    turn = body_quat_in[env, body]
    pos = body_pos_in[env, body] + quat_rotate(turn, instances.pos[row])
    quat = quat_multiply(turn, instances.quat[row])
    slot = slot_of(tick_captured(rows), slots)
    pos_out[env, slot, k] = pos
    quat_out[env, slot, k] = quat
    centre_out[env, slot, k] = pos + quat_rotate(quat, instances.centre[row])
    if not (wp.isfinite(wp.length_sq(pos)) and wp.isfinite(wp.length_sq(quat))):
        for mount in range(bad_out.shape[1]):
            bad_out[env, mount] = wp.uint8(1)
        any_bad[0] = 1


@kernel(group="poses")
def keep_pose(
    rows: Rows,
    slots: int,
    pos_in: wp.array2d[wp.vec3],
    quat_in: wp.array2d[wp.vec4],
    pos_out: wp.array3d[wp.vec3],
    quat_out: wp.array3d[wp.vec4],
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    """Store the poses of the mounts at this tick, and flag those that are not finite."""
    env, mount = masked_tid(rows)
    slot = slot_of(tick_captured(rows), slots)
    pos = pos_in[env, mount]
    quat = quat_in[env, mount]
    pos_out[env, slot, mount] = pos
    quat_out[env, slot, mount] = quat
    flag = wp.uint8(0)
    if not (wp.isfinite(wp.length_sq(pos)) and wp.isfinite(wp.length_sq(quat))):
        flag = wp.uint8(1)
        any_bad[0] = 1
    bad_out[env, mount] = flag


@kernel(group="poses")
def bridge_gap(
    rows: Rows,
    slots: int,
    last: wp.array2d[wp.int32],
    pos: wp.array3d[wp.vec3],
    quat: wp.array3d[wp.vec4],
    centre: wp.array3d[wp.vec3],
) -> None:
    """Fill the ticks of a jump with poses interpolated between those before and after it."""
    env, k = masked_tid(rows)
    captured = tick_captured(rows)
    jump = ticks_after(captured, last[env, k])
    last[env, k] = wp.int32(captured)
    if wp.int64(jump) > tick_now(rows) - rows.reset_tick[env] or jump < 2:
        return
    now = slot_of(captured, slots)
    then = now
    if jump < slots:  # earlier poses are overwritten
        then = slot_near(now, -jump, slots)
    for ago in range(1, wp.min(jump, slots)):
        share = float(jump - ago) / float(jump)
        slot = slot_near(now, -ago, slots)
        pos[env, slot, k] = pos[env, then, k] + share * (pos[env, now, k] - pos[env, then, k])
        quat[env, slot, k] = quat_slerp(quat[env, then, k], quat[env, now, k], share)
        if centre.shape[2] > 0:
            centre[env, slot, k] = centre[env, then, k] + share * (centre[env, now, k] - centre[env, then, k])


@wp.func
def in_range(t: float, limits: wp.vec2) -> F32:
    """Return a measured distance, or +inf, a miss, for one outside the limits."""
    if t < limits[0] or t > limits[1]:
        return wp.inf
    return t


@kernel
def follow_rays(rows: Rows, limits: wp.vec2, per_block: int, pose: Pose, bundle: Bundle, out: Hits) -> None:
    """Write the end point of each ray of the length `out.distance`, and show a length outside the limits as a miss."""
    env, mount, piece = masked_tid(rows)
    first = (rows.first + piece) * per_block
    captured = tick_captured(rows)
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
        t = in_range(out.distance[env, mount, r], limits)
        if not wp.isfinite(t):  # a miss; a distance that is NaN stays
            if not wp.isnan(out.distance[env, mount, r]):
                out.distance[env, mount, r] = out.miss
            if out.point.shape[0] > 0:
                out.point[env, mount, r] = wp.vec3(wp.inf, wp.inf, wp.inf)
            if out.normal.shape[0] > 0:
                out.normal[env, mount, r] = wp.vec3()
            if out.shape.shape[0] > 0:
                out.shape[env, mount, r] = -1
            if out.body.shape[0] > 0:
                out.body[env, mount, r] = -2
            if out.face.shape[0] > 0:
                out.face[env, mount, r] = -1
        elif out.point.shape[0] > 0:
            index = r
            if bundle.per_tick > wp.float64(0.0):
                index = ((begin + r) % bundle.total + bundle.total) % bundle.total
            p = pos
            q = quat
            if takes_time:
                time = ray_time(bundle, begin + r, captured, pose.dt)
                p, q = pose_at(pose, env, mount, now, first_tick(rows.reset_tick[env], captured, pose.slots), time)
                if turns:
                    q = quat_yaw(q)
            s0, d0 = ray_of(bundle, env, index)
            s, d = place_ray(pose, env, mount, p, q, s0, d0)
            out.point[env, mount, r] = s + t * d + lift
