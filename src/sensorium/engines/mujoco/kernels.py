"""Kernels that compute derived arrays from MuJoCo's fields, for float64 and for float32.

With `d = p - subtree_com[body_rootid]` (p: body frame origin), and MuJoCo's spatial vectors about that centre of mass,
in world axes, rotation first (`cvel = [w, v]`, `cacc = [alpha, a]` where `a` holds minus gravity, `cfrc_int = [t, f]`):

    velocity at p                     v + w x d
    coordinate acceleration at p      (a + gravity) + alpha x d + w x (v + w x d)
    torque of the parent about p      t - d x f

as in mj_objectVelocity, mj_objectAcceleration and the force and torque sensors. Bodies welded to the world and mocap
bodies are at rest by definition: MuJoCo has no velocity for them, even if their pose is edited between steps. As with
MuJoCo's own force sensors, gravity compensation and fluid forces count as transmitted by the parent.

Results are float32. Fields of the model have one row, or one per environment: kernels read row `env % rows`. An empty
output is not requested. `held` has the columns of `sensordata` with values of sleeping bodies, or -1.
"""

# Without `from __future__ import annotations`: Warp must see the types that a factory is called with.

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import warp as wp

from sensorium.compute import Rows, kernel, masked_tid


def _kernel(real: Any) -> Callable[[Callable[..., None]], Any]:
    """Declare a kernel in a module named after it and the type of MuJoCo's fields."""
    return lambda function: kernel(function, group=f"{function.__name__}_{real.__name__}")


@wp.func
def _triple(sensordata: wp.array2d[Any], env: wp.int32, column: wp.int32) -> Any:
    return wp.vector(sensordata[env, column], sensordata[env, column + 1], sensordata[env, column + 2])


class Kernels(NamedTuple):
    """The kernels for one type of MuJoCo's fields."""

    bodies: Any
    wrenches: Any
    joints: Any
    sensors: Any


def _kernels(real: Any, vec3: Any, vec4: Any, quat: Any) -> Kernels:
    @_kernel(real)
    def derive_bodies(
        rows: Rows,
        per_thread: int,
        body_ids: wp.array[wp.int32],
        root_ids: wp.array[wp.int32],
        weld_ids: wp.array[wp.int32],
        xpos: wp.array2d[vec3],
        xquat: wp.array2d[vec4],
        subtree_com: wp.array2d[vec3],
        cvel: wp.array3d[vec3],
        cacc: wp.array3d[vec3],
        held: wp.array2d[wp.int32],
        sensordata: wp.array2d[real],
        gravity: wp.array[vec3],
        magnetic: wp.array[vec3],
        # output
        pos_out: wp.array2d[wp.vec3],
        quat_out: wp.array2d[wp.vec4],
        lin_vel_out: wp.array2d[wp.vec3],
        ang_vel_out: wp.array2d[wp.vec3],
        lin_acc_out: wp.array2d[wp.vec3],
        ang_acc_out: wp.array2d[wp.vec3],
        gravity_out: wp.array[wp.vec3],
        magnetic_out: wp.array[wp.vec3],
    ) -> None:
        """Compute pose, velocity and acceleration of some bodies; the first thread also does the env's fields."""
        env, part = masked_tid(rows)
        if part == 0:
            if gravity_out.shape[0] > 0:
                gravity_out[env] = wp.vec3(gravity[env % gravity.shape[0]])
            if magnetic_out.shape[0] > 0:
                magnetic_out[env] = wp.vec3(magnetic[env % magnetic.shape[0]])
        for item in range(part * per_thread, wp.min((part + 1) * per_thread, body_ids.shape[0])):
            body = body_ids[item]
            if pos_out.shape[0] > 0:
                pos_out[env, item] = wp.vec3(xpos[env, body])
                quat_out[env, item] = wp.vec4(xquat[env, body])
            if lin_vel_out.shape[0] > 0 or lin_acc_out.shape[0] > 0:
                ang_vel = vec3()
                lin_vel = vec3()
                ang_acc = vec3()
                lin_acc = vec3()
                if weld_ids[item] != 0:
                    arm = xpos[env, body] - subtree_com[env, root_ids[item]]
                    ang_vel = cvel[env, body, 0]
                    lin_vel = cvel[env, body, 1] + wp.cross(ang_vel, arm)
                    if lin_acc_out.shape[0] > 0:
                        if held[item, 0] >= 0:
                            lin_acc = _triple(sensordata, env, held[item, 0]) + gravity[env % gravity.shape[0]]
                            ang_acc = _triple(sensordata, env, held[item, 1])
                        else:
                            ang_acc = cacc[env, body, 0]
                            coordinate = cacc[env, body, 1] + gravity[env % gravity.shape[0]]
                            lin_acc = coordinate + wp.cross(ang_acc, arm) + wp.cross(ang_vel, lin_vel)
                if lin_vel_out.shape[0] > 0:
                    lin_vel_out[env, item] = wp.vec3(lin_vel)
                    ang_vel_out[env, item] = wp.vec3(ang_vel)
                if lin_acc_out.shape[0] > 0:
                    lin_acc_out[env, item] = wp.vec3(lin_acc)
                    ang_acc_out[env, item] = wp.vec3(ang_acc)

    @_kernel(real)
    def derive_wrenches(
        rows: Rows,
        per_thread: int,
        body_ids: wp.array[wp.int32],
        root_ids: wp.array[wp.int32],
        xpos: wp.array2d[vec3],
        subtree_com: wp.array2d[vec3],
        cfrc_int: wp.array3d[vec3],
        xquat: wp.array2d[vec4],
        held: wp.array2d[wp.int32],
        sensordata: wp.array2d[real],
        # output
        force_out: wp.array2d[wp.vec3],
        torque_out: wp.array2d[wp.vec3],
    ) -> None:
        """Move the wrenches exerted by parents to the body frame origins; those of held sensors are rotated."""
        env, part = masked_tid(rows)
        for item in range(part * per_thread, wp.min((part + 1) * per_thread, body_ids.shape[0])):
            body = body_ids[item]
            if held[item, 0] >= 0:
                q = xquat[env, body]
                turn = wp.quat_to_matrix(quat(q[1], q[2], q[3], q[0]))
                force_out[env, item] = wp.vec3(turn * _triple(sensordata, env, held[item, 0]))
                torque_out[env, item] = wp.vec3(turn * _triple(sensordata, env, held[item, 1]))
            else:
                arm = xpos[env, body] - subtree_com[env, root_ids[item]]
                force = cfrc_int[env, body, 1]
                force_out[env, item] = wp.vec3(force)
                torque_out[env, item] = wp.vec3(cfrc_int[env, body, 0] - wp.cross(arm, force))

    @_kernel(real)
    def derive_joints(
        rows: Rows,
        per_thread: int,
        qpos_ids: wp.array[wp.int32],
        dof_ids: wp.array[wp.int32],
        rotor_inertia: wp.array[real],
        softness: wp.array[real],
        decay: wp.array[real],
        qpos: wp.array2d[real],
        qvel: wp.array2d[real],
        qacc: wp.array2d[real],
        effort: wp.array2d[real],
        damper: wp.array2d[real],
        armature: wp.array2d[real],
        friction_loss: wp.array2d[real],
        inverse_weight: wp.array2d[real],
        friction_known: wp.array2d[real],
        held: wp.array[wp.int32],
        sensordata: wp.array2d[real],
        # output
        pos_out: wp.array2d[wp.float32],
        vel_out: wp.array2d[wp.float32],
        effort_out: wp.array2d[wp.float32],
        torque_out: wp.array2d[wp.float32],
    ) -> None:
        """Compute position, velocity, effort and torque of some scalar joints."""
        env, part = masked_tid(rows)
        for item in range(part * per_thread, wp.min((part + 1) * per_thread, dof_ids.shape[0])):
            dof = dof_ids[item]
            if pos_out.shape[0] > 0:
                pos_out[env, item] = wp.float32(qpos[env, qpos_ids[item]])
            if vel_out.shape[0] > 0:
                vel_out[env, item] = wp.float32(qvel[env, dof])
            if effort_out.shape[0] > 0 or torque_out.shape[0] > 0:
                driven = real(0.0)
                if held[item] >= 0:
                    driven = sensordata[env, held[item]]
                else:
                    driven = effort[env, dof]
                if effort_out.shape[0] > 0:
                    effort_out[env, item] = wp.float32(driven)
                if torque_out.shape[0] > 0:
                    friction = real(0.0)
                    if friction_known.shape[0] > 0:
                        friction = friction_known[env, dof]
                    elif softness[item] > real(0.0):
                        loss = friction_loss[env % friction_loss.shape[0], dof]
                        slip = qacc[env, dof] + decay[item] * qvel[env, dof]
                        weight = inverse_weight[env % inverse_weight.shape[0], dof]
                        least = real(1.0e-15)  # mjMINVAL
                        friction = wp.clamp(-slip / wp.max(softness[item] * weight, least), -loss, loss)
                    inertia = armature[env % armature.shape[0], dof] + rotor_inertia[item]
                    torque_out[env, item] = wp.float32(driven - inertia * qacc[env, dof] + friction + damper[env, dof])

    @_kernel(real)
    def take_sensors(
        rows: Rows,
        per_thread: int,
        columns: wp.array[wp.int32],
        negated: wp.array[wp.uint8],
        found: wp.array[wp.int32],
        sensordata: wp.array2d[real],
        # output
        values_out: wp.array2d[wp.float32],
    ) -> None:
        """Copy some numbers of native sensors or a contact report; 0 where the column `found` (-1: none) is 0."""
        env, part = masked_tid(rows)
        for item in range(part * per_thread, wp.min((part + 1) * per_thread, columns.shape[0])):
            value = sensordata[env, columns[item]]
            if negated[item] != wp.uint8(0):
                value = real(0.0) - value
            if found[item] >= 0 and sensordata[env, wp.max(found[item], 0)] == real(0.0):
                value = real(0.0)
            values_out[env, item] = wp.float32(value)

    return Kernels(derive_bodies, derive_wrenches, derive_joints, take_sensors)


KERNELS = {
    torch.float64: _kernels(wp.float64, wp.vec3d, wp.vec4d, wp.quatd),
    torch.float32: _kernels(wp.float32, wp.vec3, wp.vec4, wp.quat),
}
"""Kernels by type of MuJoCo's fields: float64 of MuJoCo, float32 of mujoco_warp."""
