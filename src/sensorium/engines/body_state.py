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
from sensorium.engines.read_rows import ReadRows
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
READ = {name: 1 << bit for bit, name in enumerate(("body_quat_w", *AT_COM))}
"""Bits of the flags of bodies that are read."""


@kernel
def convert_bodies(
    rows: Rows,
    is_xyzw: int,
    per_thread: int,
    read: wp.array[wp.uint8],
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
    """Convert the rows of some bodies that have the bit of an output in `read`; other outputs may be missing."""
    env, part = masked_tid(rows)
    quats, quats_out = quat[env], quat_out[env]
    centres = com[env % wp.max(com.shape[0], 1)]
    ang_vels, vels, vels_out = ang_vel[env], lin_vel[env], lin_vel_out[env]
    body = int(part * per_thread)
    end = wp.min(body + per_thread, quats.shape[0])
    while body < end:
        flags = int(read[body])
        if flags != 0:
            q = quats[body]
            if is_xyzw != 0:
                q = wp.vec4(q[3], q[0], q[1], q[2])
            if (flags & wp.static(READ["body_quat_w"])) != 0:
                quats_out[body] = q
            if flags > wp.static(READ["body_quat_w"]):
                r = quat_rotate(q, centres[body])
                if (flags & wp.static(READ["body_pos_w"])) != 0:
                    pos_out[env, body] = pos[env, body] - r
                if (flags & wp.static(READ["body_lin_vel_w"] | READ["body_lin_acc_w"])) != 0:
                    w = ang_vels[body]
                    turn = wp.cross(w, r)
                    if (flags & wp.static(READ["body_lin_vel_w"])) != 0:
                        vels_out[body] = vels[body] - turn
                    if (flags & wp.static(READ["body_lin_acc_w"])) != 0:
                        alpha = wp.cross(ang_acc[env, body], r)
                        lin_acc_out[env, body] = lin_acc[env, body] - alpha - wp.cross(w, turn)
                if (flags & wp.static(READ["body_parent_torque_w"])) != 0:
                    torque_out[env, body] = torque[env, body] + wp.cross(r, force[env, body])
        body += 1


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
        all_read: whether all rows are converted; otherwise those that `read` returned.

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
        all_read: bool = True,
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
        count = max((array.shape[1] for array in self._out.values()), default=0)
        self._rows = ReadRows(count, {name: READ[name] for name in self._out}, compute.device)
        if all_read:
            self._rows.flags.copy_(self._rows.unread())
        both = (compute.all_envs, compute.reset_envs)
        is_empty = not any(map(torch.Tensor.numel, self._out.values()))
        self._segments = [] if is_empty else [compute.record(self._launch, mask) for mask in both]

    def _launch(self) -> None:
        inputs: list[Any] = [self._given.get(name) for name in ("body_quat_w", "body_ang_vel_w", "body_ang_acc_w")]
        inputs += [self._given.get(name) for name in ("body_parent_force_w", *AT_COM)]
        outputs = [self._out.get(name) for name in ("body_quat_w", *AT_COM)]
        count = next(iter(self._out.values())).shape[1]
        per_thread = count if self._compute.is_cpu else 1  # a thread costs the CPU as much as a body
        constants = [self._rows.flags, self._com]
        parts = -(-count // max(per_thread, 1))
        self._compute.launch(convert_bodies, (parts,), [self._is_xyzw, per_thread, *constants, *inputs], outputs)

    def run(self, masked: bool = False) -> None:
        """Convert the current values of all environments, or of those in `compute.reset_envs`."""
        if self._segments:
            self._segments[masked].run()

    def read(self, name: str, bodies: torch.Tensor | None = None) -> torch.Tensor:
        """Return an array whose rows of some bodies (None: all) are converted from now on."""
        if (new := self._rows.add(name, bodies)) is not None:
            self._rows.run_for(new, self._launch)
        return self.arrays[name]

    def complete(self) -> None:
        """Convert the rows that are not read, too."""
        if bool(self._rows.unread().any()):
            self._rows.run_for(self._rows.unread(), self._launch)
