"""The solids around a mount, as its kernels see them: which are near, where they are, and how they move.

All is in the frame of the mount, so that probes, which are fixed to it, need no transform of their own.
"""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, kernel
from sensorium.geometry.hfield import HFields
from sensorium.geometry.primitives import MESH, PLANE
from sensorium.geometry.ray_structs import Instances
from sensorium.geometry.solids import Solids, signed_analytic, signed_distance
from sensorium.geometry.transforms import quat_multiply, quat_rotate, quat_rotate_inverse


@wp.struct
class Shapes:
    """What signed distances are measured to.

    Attributes:
        instances: the shapes.
        solids: their meshes.
        fields: all height fields.
    """

    instances: Instances
    solids: Solids
    fields: HFields


@wp.struct
class Around:
    """The shapes near a mount, in its frame. The last axis counts those that are near, `count` of them.

    Attributes:
        count: how many are near `[env, mount]`.
        row: instance row of each `[env, mount, near]`.
        pos: origins, m.
        quat: orientations.
        lin: velocity of the material at the mount's origin as seen from the mount, m/s: at a point p of the mount the
            shape moves by lin + ang x p, in the mount's axes, relative to the mount; empty where nobody needs it.
        ang: angular velocity relative to the mount, rad/s.
    """

    count: wp.array2d[wp.int32]
    row: wp.array3d[wp.int32]
    pos: wp.array3d[wp.vec3]
    quat: wp.array3d[wp.vec4]
    lin: wp.array3d[wp.vec3]
    ang: wp.array3d[wp.vec3]


@wp.struct
class Touched:
    """The shape that is deepest at a point.

    Attributes:
        distance: signed distance from the point to its surface, m; the reach of the search where nothing is nearer.
        near: its place in `Around`; -1 for none.
        point: the nearest point of its surface, m, in the mount's frame.
        normal: unit vector out of it, in the mount's frame.
    """

    distance: wp.float32
    near: wp.int32
    point: wp.vec3
    normal: wp.vec3


@kernel
def place_solids(
    rows: Rows,
    centre: wp.vec3,
    radius: float,
    pos_in: wp.array2d[wp.vec3],
    quat_in: wp.array2d[wp.vec4],
    lin_in: wp.array2d[wp.vec3],
    ang_in: wp.array2d[wp.vec3],
    instances: Instances,
    hidden: wp.array2d[wp.uint8],
    body_pos_in: wp.array2d[wp.vec3],
    body_quat_in: wp.array2d[wp.vec4],
    body_lin_in: wp.array2d[wp.vec3],
    body_ang_in: wp.array2d[wp.vec3],
    around: Around,
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    """List the shapes near a mount, with poses and velocities relative to it, and flag it where one is nowhere.

    Args:
        rows: which environments.
        centre: centre of a ball around all probes with their reach, m, in the mount's frame.
        radius: its radius, m.
        pos_in: where the mounts are, m, world.
        quat_in: how they are turned.
        lin_in: velocities of their origins, m/s, world; empty where nobody needs velocities.
        ang_in: angular velocities, rad/s, world; likewise.
        instances: the shapes.
        hidden: 1 where a mount does not feel an instance `[mount, instance]`.
        body_pos_in: where the bodies are.
        body_quat_in: how they are turned.
        body_lin_in: velocities of their origins; likewise.
        body_ang_in: angular velocities.
        around: what is written.
        bad_out: 1 where the state is not finite, else 0 `[env, mount]`.
        any_bad: 1 where any is.
    """
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    pos = pos_in[env, mount]
    quat = quat_in[env, mount]
    moves = around.lin.shape[0] > 0
    is_bad = not (wp.isfinite(wp.length_sq(pos)) and wp.isfinite(wp.length_sq(quat)))
    if moves and not is_bad:
        is_bad = not (wp.isfinite(wp.length_sq(lin_in[env, mount])) and wp.isfinite(wp.length_sq(ang_in[env, mount])))
    count = wp.int32(0)
    for row in range(instances.kind.shape[0]):
        if hidden[mount, row] != wp.uint8(0):
            continue
        shape_pos = instances.pos[row]
        shape_quat = instances.quat[row]
        body = instances.body[row]
        if body >= 0:
            turn = body_quat_in[env, body]
            shape_pos = body_pos_in[env, body] + quat_rotate(turn, shape_pos)
            shape_quat = quat_multiply(turn, shape_quat)
            if not (wp.isfinite(wp.length_sq(shape_pos)) and wp.isfinite(wp.length_sq(shape_quat))):
                is_bad = True
                continue
        arm = quat_rotate_inverse(quat, shape_pos - pos)
        turned = quat_multiply(wp.vec4(quat[0], -quat[1], -quat[2], -quat[3]), shape_quat)
        if instances.kind[row] == PLANE:
            if quat_rotate_inverse(turned, centre - arm)[2] > radius:
                continue
        elif wp.length(arm + quat_rotate(turned, instances.centre[row]) - centre) > radius + instances.radius[row]:
            continue
        around.row[env, mount, count] = row
        around.pos[env, mount, count] = arm
        around.quat[env, mount, count] = turned
        if moves:
            lin = -lin_in[env, mount]
            ang = -ang_in[env, mount]
            if body >= 0:
                spin = body_ang_in[env, body]
                lin = lin + body_lin_in[env, body] + wp.cross(spin, pos - body_pos_in[env, body])
                ang = ang + spin
                if not (wp.isfinite(wp.length_sq(lin)) and wp.isfinite(wp.length_sq(ang))):
                    is_bad = True
            around.lin[env, mount, count] = quat_rotate_inverse(quat, lin)
            around.ang[env, mount, count] = quat_rotate_inverse(quat, ang)
        count += 1
    around.count[env, mount] = count
    bad_out[env, mount] = wp.where(is_bad, wp.uint8(1), wp.uint8(0))
    if is_bad:
        any_bad[0] = 1


@wp.func
def deepest(shapes: Shapes, around: Around, env: int, mount: int, p: wp.vec3, reach: float) -> Touched:
    """Return the shape that a point is deepest in, or nearest to.

    Args:
        shapes: all of them.
        around: those near the mount.
        env: which environment.
        mount: which mount.
        p: the point in the mount's frame, m.
        reach: how far to look, m.
    """
    out = Touched()
    out.distance = reach
    out.near = -1
    for k in range(around.count[env, mount]):
        turn = around.quat[env, mount, k]
        arm = around.pos[env, mount, k]
        local = quat_rotate_inverse(turn, p - arm)
        row = around.row[env, mount, k]
        kind = shapes.instances.kind[row]
        distance, foot, gradient = signed_analytic(kind, shapes.instances.size[row], local)
        if kind >= MESH:  # by itself: a call copies all it is told, of every probe
            distance, foot, gradient = signed_distance(
                shapes.instances, shapes.solids, shapes.fields, row, local, wp.max(out.distance, 0.0)
            )
        if distance < out.distance:
            out.distance = distance
            out.near = k
            out.point = foot
            out.normal = gradient
    if out.near >= 0:
        turn = around.quat[env, mount, out.near]
        out.point = around.pos[env, mount, out.near] + quat_rotate(turn, out.point)
        out.normal = quat_rotate(turn, out.normal)
    return out


@wp.func
def surface_velocity(around: Around, env: int, mount: int, near: int, p: wp.vec3) -> wp.vec3:
    """Return the velocity of a shape's material at a point of the mount, relative to the mount, m/s, in its axes."""
    return around.lin[env, mount, near] + wp.cross(around.ang[env, mount, near], p)


__all__ = ["Around", "Shapes", "Touched", "deepest", "place_solids", "surface_velocity"]
