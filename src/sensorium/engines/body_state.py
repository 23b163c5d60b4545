"""Body arrays in this package's convention, from an engine's own arrays in another: one launch for all environments.

Let R be the orientation of the body, c its centre of mass in its frame, and r = R c. From quantities at the centre of
mass follow:

    position of the frame origin      p - r
    velocity there                    v - w x r
    coordinate acceleration there     a - alpha x r - w x (w x r)
    torque about it                   t + r x f
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

import torch
import warp as wp

from sensorium.compute import Compute, Rows, kernel, masked_tid
from sensorium.engines.envs import EnvLaunches
from sensorium.errors import ArgumentError, listed
from sensorium.geometry.transforms import quat_rotate

QuatOrder = Literal["wxyz", "xyzw"]
AT_COM = ("body_pos_w", "body_lin_vel_w", "body_lin_acc_w", "body_parent_torque_w")
"""Arrays that an engine may give at the centre of mass instead of the frame origin."""
_NEEDED = {
    "body_lin_vel_w": ("body_ang_vel_w",),
    "body_lin_acc_w": ("body_ang_vel_w", "body_ang_acc_w"),
    "body_parent_torque_w": ("body_parent_force_w",),
}
"""Arrays that a conversion reads besides the array itself and the orientation."""


@kernel
def convert_bodies(
    rows: Rows,
    is_xyzw: int,
    per_thread: int,
    com: wp.array2d[wp.vec3],
    quat: wp.array2d[wp.vec4],
    ang_vel: wp.array2d[wp.vec3],
    ang_acc: wp.array2d[wp.vec3],
    force: wp.array2d[wp.vec3],
    pos: wp.array2d[wp.vec3],
    lin_vel: wp.array2d[wp.vec3],
    lin_acc: wp.array2d[wp.vec3],
    torque: wp.array2d[wp.vec3],
    quat_out: wp.array2d[wp.vec4],
    pos_out: wp.array2d[wp.vec3],
    lin_vel_out: wp.array2d[wp.vec3],
    lin_acc_out: wp.array2d[wp.vec3],
    torque_out: wp.array2d[wp.vec3],
) -> None:
    """Convert some bodies; an output of length 0 is not needed."""
    env, part = masked_tid(rows)
    quats, quats_out = quat[env], quat_out[env]
    centres = com[env % wp.max(com.shape[0], 1)]
    vels, vels_out = lin_vel[env], lin_vel_out[env]
    accs, accs_out = lin_acc[env], lin_acc_out[env]
    ang_vels, ang_accs = ang_vel[env], ang_acc[env]
    for body in range(part * per_thread, wp.min((part + 1) * per_thread, quats.shape[0])):
        q = quats[body]
        if is_xyzw != 0:
            q = wp.vec4(q[3], q[0], q[1], q[2])
        if quat_out.shape[0] > 0:
            quats_out[body] = q
        if com.shape[0] > 0:
            r = quat_rotate(q, centres[body])
            if pos_out.shape[0] > 0:
                pos_out[env, body] = pos[env, body] - r
            if lin_vel_out.shape[0] > 0 or lin_acc_out.shape[0] > 0:
                w = ang_vels[body]
                turn = wp.cross(w, r)
                if lin_vel_out.shape[0] > 0:
                    vels_out[body] = vels[body] - turn
                if lin_acc_out.shape[0] > 0:
                    accs_out[body] = accs[body] - wp.cross(ang_accs[body], r) - wp.cross(w, turn)
            if torque_out.shape[0] > 0:
                torque_out[env, body] = torque[env, body] + wp.cross(r, force[env, body])


class BodyState:
    """Arrays of bodies at their frame origins, with quaternions (w, x, y, z).

    Args:
        compute: device and environments.
        given: arrays of the engine by their names in `sensorium.engines.base.ARRAYS`, float32 `[env, body, 3 or 4]` at
            fixed addresses on the device, in world axes. The last axis is contiguous. Conversions need `body_quat_w`,
            velocities at the centre of mass need `body_ang_vel_w`, accelerations also `body_ang_acc_w`, and torques
            `body_parent_force_w`.
        quat_order: order of the given quaternions.
        at_com: those of `AT_COM` that are given at the centre of mass.
        com: centres of mass in the frames of the bodies, float32 `[1 or env, body, 3]`, m; required with `at_com`.
        out: converted arrays of an earlier object, which are filled instead of new ones.

    Attributes:
        arrays: arrays by the same names; those that need no conversion are the given tensors.

    Raises:
        ArgumentError: an array that a conversion needs was not given.
    """

    def __init__(
        self,
        compute: Compute,
        given: Mapping[str, torch.Tensor],
        *,
        quat_order: QuatOrder = "wxyz",
        at_com: Collection[str] = (),
        com: torch.Tensor | None = None,
        out: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self._compute, self._given, self._com = compute, given, com
        self._is_xyzw = int(quat_order == "xyzw")
        converted = {*at_com, *(("body_quat_w",) if self._is_xyzw else ())} & given.keys()
        for name in sorted(converted):
            missing = [need for need in ("body_quat_w", *_NEEDED.get(name, ())) if need not in given]
            if missing:
                raise ArgumentError(
                    f"given: the conversion of {name!r} needs {listed(missing)}. Give these arrays too."
                )
        if com is None and converted - {"body_quat_w"}:
            raise ArgumentError(f"com: got None, expected the centres of mass for at_com={listed(at_com)}.")
        old = {} if out is None else out
        self._out = {name: old.get(name, torch.zeros_like(given[name]).contiguous()) for name in converted}
        self.arrays: dict[str, torch.Tensor] = {**given, **self._out}
        is_empty = not any(map(torch.Tensor.numel, self._out.values()))
        self._launches = None if is_empty else EnvLaunches(compute, self._launch)

    def _launch(self) -> None:
        inputs: list[Any] = [self._given.get(name) for name in ("body_quat_w", "body_ang_vel_w", "body_ang_acc_w")]
        inputs += [self._given.get(name) for name in ("body_parent_force_w", *AT_COM)]
        outputs = [self._out.get(name) for name in ("body_quat_w", *AT_COM)]
        count = next(iter(self._out.values())).shape[1]
        per_thread = count if self._compute.is_cpu else 1  # a thread costs the CPU as much as a body
        parts = -(-count // max(per_thread, 1))
        self._compute.launch(convert_bodies, (parts,), [self._is_xyzw, per_thread, self._com, *inputs], outputs)

    def run(self, env_ids: torch.Tensor | None = None) -> None:
        """Convert the current values of all environments, or of some."""
        if self._launches is not None:
            self._launches.run(env_ids)
