"""The solids around a mount, for kernels: the near ones, their poses, and their motion.

All quantities are in the frame of the mount, so that its probes need no transform.
"""

from __future__ import annotations

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid
from sensorium.geometry.hfield import HFields
from sensorium.geometry.primitives import MESH, PLANE
from sensorium.geometry.ray_structs import Instances
from sensorium.geometry.solid_walk import Solids
from sensorium.geometry.solids import signed_analytic, signed_distance
from sensorium.geometry.transforms import quat_multiply, quat_rotate, quat_rotate_inverse


@wp.struct
class Shapes:
    """Shapes for signed distances.

    Attributes:
        instances: the shapes.
        solids: their meshes.
        fields: all height fields.
    """

    instances: Instances
    solids: Solids
    fields: HFields


@wp.struct
class NearShapes:
    """The shapes near a mount, in its frame. The last axis counts the near shapes, `count` of them.

    Attributes:
        count: number of near shapes `[env, mount]`.
        row: instance row of each `[env, mount, near]`.
        pos: origins, m.
        quat: orientations.
        lin: velocity of the material at the mount's origin relative to the mount, m/s: at a point p of the mount the
            shape moves by lin + ang x p, in the mount's axes; empty if not needed.
        ang: angular velocity relative to the mount, rad/s.
    """

    count: wp.array2d[wp.int32]
    row: wp.array3d[wp.int32]
    pos: wp.array3d[wp.vec3]
    quat: wp.array3d[wp.vec4]
    lin: wp.array3d[wp.vec3]
    ang: wp.array3d[wp.vec3]


@wp.struct
class NearestShape:
    """The shape with the least signed distance at a point.

    Attributes:
        distance: signed distance from the point to its surface, m; the reach of the search if none is nearer.
        near: its index in `NearShapes`; -1 for none.
        point: the nearest point of its surface, m, in the mount's frame.
        normal: outward unit normal there, in the mount's frame.
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
    around: NearShapes,
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    """List the shapes near a mount, with poses and velocities relative to it, and flag it if a pose is not finite.

    Args:
        rows: the environments.
        centre: centre of a ball around all probes with their reach, m, in the mount's frame.
        radius: its radius, m.
        pos_in: positions of the mounts, m, world.
        quat_in: orientations of the mounts.
        lin_in: velocities of their origins, m/s, world; empty if not needed.
        ang_in: angular velocities, rad/s, world; empty if not needed.
        instances: the shapes.
        hidden: 1 if a mount ignores an instance `[mount, instance]`.
        body_pos_in: positions of the bodies.
        body_quat_in: orientations of the bodies.
        body_lin_in: velocities of their origins; empty if not needed.
        body_ang_in: angular velocities; empty if not needed.
        around: the output.
        bad_out: 1 if the state is not finite, else 0 `[env, mount]`.
        any_bad: 1 if any flag is set.
    """
    env, mount = masked_tid(rows)
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
def deepest(shapes: Shapes, around: NearShapes, env: int, mount: int, p: wp.vec3, reach: float) -> NearestShape:
    """Return the shape with the least signed distance at a point.

    Args:
        shapes: all shapes.
        around: shapes near the mount.
        env: index of the environment.
        mount: index of the mount.
        p: the point in the mount's frame, m.
        reach: maximum distance, m.
    """
    out = NearestShape()
    out.distance = reach
    out.near = -1
    for k in range(around.count[env, mount]):
        turn = around.quat[env, mount, k]
        arm = around.pos[env, mount, k]
        local = quat_rotate_inverse(turn, p - arm)
        row = around.row[env, mount, k]
        kind = shapes.instances.kind[row]
        distance, foot, gradient = signed_analytic(kind, shapes.instances.size[row], local)
        if kind >= MESH:  # inlined, since a call would copy its arguments for every probe
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
