"""Mount of a sensor: pose, velocity and acceleration of its frame in the world, `[env, mount, ...]`.

A mount is an offset on a body. With d the offset in world axes, w and alpha the body's angular velocity and
acceleration, v and a those of its frame origin (rigid-body kinematics):

    p_m = p + d        v_m = v + w x d        a_m = a + alpha x d + w x (w x d)

If the owner of a model moves the element of the mount (domain randomisation of `site_pos`, for instance), the offset
follows, for each environment, from the next refresh of the engine. The change is a jump without velocity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
import warp as wp

from sensorium.cfg import OffsetCfg
from sensorium.compute import Clock, Compute, Rows, kernel, masked_tid
from sensorium.engines.base import Engine, FrameOnBody
from sensorium.geometry.transforms import compose, quat_multiply, quat_rotate


@wp.func
def is_finite3(v: wp.vec3) -> wp.bool:
    """Return whether all components of a vector are finite."""
    return wp.isfinite(v[0]) and wp.isfinite(v[1]) and wp.isfinite(v[2])


@wp.func
def is_finite4(v: wp.vec4) -> wp.bool:
    """Return whether all components of a quaternion are finite."""
    return wp.isfinite(v[0]) and wp.isfinite(v[1]) and wp.isfinite(v[2]) and wp.isfinite(v[3])


@wp.struct
class Mounts:
    """The mounts of one sensor and the state of their bodies, for its kernels; see `MountView.warp_state`.

    Kernels take an array of one struct, because each thread would copy a struct argument, which costs more than the
    pose.
    """

    body: wp.array[wp.int32]
    offset_pos: wp.array2d[wp.vec3]
    offset_quat: wp.array2d[wp.vec4]
    body_pos: wp.array2d[wp.vec3]
    body_quat: wp.array2d[wp.vec4]
    # Length 0 where they are not needed
    body_lin_vel: wp.array2d[wp.vec3]
    body_ang_vel: wp.array2d[wp.vec3]


@wp.func
def flag_state(bad: wp.array2d[wp.uint8], any_bad: wp.array[wp.int32], env: int, mount: int, is_finite: bool) -> None:
    """Set the flag of a mount, and with it the clock's, where the state that a sample needs is not finite."""
    bad[env, mount] = wp.uint8(0)
    if not is_finite:
        bad[env, mount] = wp.uint8(1)
        any_bad[0] = 1


@wp.func
def mount_pose(mounts: wp.array[Mounts], env: int, mount: int):  # type: ignore[no-untyped-def]  # Warp infers it
    """Return position and orientation of a mount in the world."""
    pos = mounts[0].offset_pos[env, mount]
    quat = mounts[0].offset_quat[env, mount]
    body = mounts[0].body[mount]
    if body >= 0:
        turn = mounts[0].body_quat[env, body]
        pos = mounts[0].body_pos[env, body] + quat_rotate(turn, pos)
        quat = quat_multiply(turn, quat)
    return pos, quat


@wp.func
def mount_motion(mounts: wp.array[Mounts], env: int, mount: int):  # type: ignore[no-untyped-def]  # Warp infers it
    """Return position, orientation, velocity, angular velocity and arm (d, see the module) of a mount in the world."""
    arm = mounts[0].offset_pos[env, mount]
    quat = mounts[0].offset_quat[env, mount]
    pos = arm
    lin_vel = wp.vec3()
    ang_vel = wp.vec3()
    body = mounts[0].body[mount]
    if body >= 0:
        turn = mounts[0].body_quat[env, body]
        arm = quat_rotate(turn, arm)
        quat = quat_multiply(turn, quat)
        pos = mounts[0].body_pos[env, body] + arm
        if mounts[0].body_lin_vel.shape[0] > 0:
            ang_vel = mounts[0].body_ang_vel[env, body]
            lin_vel = mounts[0].body_lin_vel[env, body] + wp.cross(ang_vel, arm)
    return pos, quat, lin_vel, ang_vel, arm


@kernel
def _pose(
    rows: Rows,
    mounts: wp.array[Mounts],
    pos_out: wp.array2d[wp.vec3],
    quat_out: wp.array2d[wp.vec4],
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    env, mount = masked_tid(rows)
    pos, quat = mount_pose(mounts, env, mount)
    pos_out[env, mount] = pos
    quat_out[env, mount] = quat
    if not (is_finite3(pos) and is_finite4(quat)):
        bad_out[env, mount] = wp.uint8(1)
        any_bad[0] = 1


@kernel
def _motion(
    rows: Rows,
    order: int,
    mounts: wp.array[Mounts],
    body_lin_in: wp.array2d[wp.vec3],
    body_ang_in: wp.array2d[wp.vec3],
    lin_out: wp.array2d[wp.vec3],
    ang_out: wp.array2d[wp.vec3],
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    env, mount = masked_tid(rows)
    lin = wp.vec3()
    ang = wp.vec3()
    body = mounts[0].body[mount]
    if body >= 0:
        d = quat_rotate(mounts[0].body_quat[env, body], mounts[0].offset_pos[env, mount])
        ang = body_ang_in[env, body]
        lin = body_lin_in[env, body] + wp.cross(ang, d)
        if order == 2:
            w = mounts[0].body_ang_vel[env, body]
            lin = lin + wp.cross(w, wp.cross(w, d))
    lin_out[env, mount] = lin
    ang_out[env, mount] = ang
    if not (is_finite3(lin) and is_finite3(ang)):
        bad_out[env, mount] = wp.uint8(1)
        any_bad[0] = 1


class MountView:
    """The frames of a sensor's mounts. World quantities are computed on first access at a tick.

    Attributes:
        names: names of the selected elements, in mount order.
        count: number of mounts.
        cameras: camera of the model for each mount; "" for any other element.
        body: int32 [mount], body of each mount, -1 for the world.
        offset_pos: float32 [env, mount, 3], origin in the body's frame, m; the engine may change it (`Engine.offsets`).
        offset_quat: float32 [env, mount, 4], orientation in the body's frame, wxyz; the engine may change it.
    """

    def __init__(
        self,
        engine: Engine,
        compute: Compute,
        clock: Clock,
        names: Sequence[str],
        frames: Sequence[FrameOnBody],
        offset: OffsetCfg | Sequence[OffsetCfg],
        bad: Callable[[], torch.Tensor],
    ) -> None:
        self._engine, self._compute, self._clock, self._bad = engine, compute, clock, bad
        self.names = tuple(names)
        self.count = len(self.names)
        elements = (frame.element or ("body", "") for frame in frames)
        self.cameras = tuple(name if kind == "camera" else "" for kind, name in elements)
        own = [offset] * self.count if isinstance(offset, OffsetCfg) else offset
        inner = [(each.pos, each.rot) for each in own]
        device = compute.device
        self.body = torch.tensor([frame.body for frame in frames], dtype=torch.int32, device=device)
        live = engine.offsets(frames, inner)
        if live is None:
            poses = [compose(frame.pos, frame.quat, *pose) for frame, pose in zip(frames, inner, strict=True)]
            pos = torch.tensor([pos for pos, _ in poses], dtype=torch.float32, device=device).reshape(-1, 3)
            quat = torch.tensor([quat for _, quat in poses], dtype=torch.float32, device=device).reshape(-1, 4)
            live = pos.expand(compute.num_envs, -1, -1), quat.expand(compute.num_envs, -1, -1)
        self.offset_pos, self.offset_quat = live
        bodies = engine.names("body")
        self.body_names = tuple("world" if frame.body < 0 else bodies[frame.body] for frame in frames)
        self._views: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        self._versions: dict[str, tuple[int, int]] = {}
        self._states: dict[bool, tuple[Any, Any]] = {}

    def __repr__(self) -> str:
        pairs = zip(self.names, self.body_names, strict=True)
        return f"MountView({', '.join(f'{name} on {body}' for name, body in pairs)})"

    @property
    def bad(self) -> torch.Tensor:
        """The sensor's uint8 [env, mount] flags: 1 if the state for a sample is not finite."""
        return self._bad()

    @property
    def warp_inputs(self) -> list[Any]:
        """Body `[mount]`, offset position and quaternion `[env, mount]` as Warp arrays, for a custom kernel."""
        return [
            wp.from_torch(self.body, dtype=wp.int32),
            wp.from_torch(self.offset_pos, dtype=wp.vec3),
            wp.from_torch(self.offset_quat, dtype=wp.vec4),
        ]

    def warp_state(self, *, velocities: bool = False) -> Any:
        """Return the mounts and the poses (with `velocities`, the motion) of their bodies, for a custom kernel.

        `mount_pose` and `mount_motion` read them in the kernel. Needs BODY_POSE, and BODY_VELOCITY for velocities.
        """
        if velocities in self._states:
            return self._states[velocities][1]
        array, mounts = self._engine.array, Mounts()
        mounts.body, mounts.offset_pos, mounts.offset_quat = self.warp_inputs
        mounts.body_pos = wp.from_torch(array("body_pos_w"), dtype=wp.vec3)
        mounts.body_quat = wp.from_torch(array("body_quat_w"), dtype=wp.vec4)
        if velocities:
            mounts.body_lin_vel = wp.from_torch(array("body_lin_vel_w"), dtype=wp.vec3)
            mounts.body_ang_vel = wp.from_torch(array("body_ang_vel_w"), dtype=wp.vec3)
        state = wp.array([mounts], dtype=Mounts, device=self._compute.wp_device)
        self._states[velocities] = mounts, state
        return state

    def _view(self, what: str, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        views = self._views.get(what)
        if views is None:
            shape = (self._compute.num_envs, self.count)
            views = self._views[what] = (
                torch.zeros((*shape, 3), dtype=torch.float32, device=self._compute.device),
                torch.zeros((*shape, width), dtype=torch.float32, device=self._compute.device),
            )
        # in a recording one launch, since recorded launches run together; otherwise one per version of the state
        recording = self._compute.recording
        version = (recording, 0 if recording else self._clock.version)
        if self._versions.get(what) != version:
            self._launch(what, views)
            self._versions[what] = version
        return views

    def _launch(self, what: str, views: tuple[torch.Tensor, torch.Tensor]) -> None:
        outputs = [*views, self._bad(), self._clock.bad_wp]
        if what == "pose":
            self._compute.launch(_pose, (self.count,), [self.warp_state()], outputs)
            return
        pair = [self._engine.array(name) for name in (f"body_lin_{what}_w", f"body_ang_{what}_w")]
        inputs = [1 if what == "vel" else 2, self.warp_state(velocities=True), *pair]
        self._compute.launch(_motion, (self.count,), inputs, outputs)

    @property
    def pos_w(self) -> torch.Tensor:
        """float32 [env, mount, 3], origin in the world, m. Needs BODY_POSE."""
        return self._view("pose", 4)[0]

    @property
    def quat_w(self) -> torch.Tensor:
        """float32 [env, mount, 4], orientation in the world, wxyz. Needs BODY_POSE."""
        return self._view("pose", 4)[1]

    @property
    def lin_vel_w(self) -> torch.Tensor:
        """float32 [env, mount, 3], velocity of the origin, world axes, m/s. Needs BODY_POSE and BODY_VELOCITY."""
        return self._view("vel", 3)[0]

    @property
    def ang_vel_w(self) -> torch.Tensor:
        """float32 [env, mount, 3], angular velocity, world axes, rad/s. Needs BODY_POSE and BODY_VELOCITY."""
        return self._view("vel", 3)[1]

    @property
    def lin_acc_w(self) -> torch.Tensor:
        """float32 [env, mount, 3], coordinate acceleration of the origin, world axes, m/s^2.

        Needs BODY_POSE, BODY_VELOCITY and BODY_ACCELERATION.
        """
        return self._view("acc", 3)[0]

    @property
    def ang_acc_w(self) -> torch.Tensor:
        """float32 [env, mount, 3], angular acceleration, world axes, rad/s^2. It has the needs of `lin_acc_w`."""
        return self._view("acc", 3)[1]

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        tensors = [self.body, self.offset_pos, self.offset_quat, *chain.from_iterable(self._views.values())]
        return sum(tensor.nbytes for tensor in tensors)
