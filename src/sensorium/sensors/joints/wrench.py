"""Common base of the sensors of the wrench between a body and its parent: the kernel, and the check of mounts."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

import warp as wp
from torch import Tensor

from sensorium.compute import Rows, kernel, masked_tid, recorded
from sensorium.errors import ConfigError
from sensorium.geometry.transforms import quat_multiply, quat_rotate, quat_rotate_inverse
from sensorium.measurement.record import Record
from sensorium.measurement.sensor_cfg import MountedSensorCfg
from sensorium.sensors.core.base import SimpleSensor
from sensorium.world.mount import Mounts, flag_state, is_finite3, is_finite4

CfgT = TypeVar("CfgT", bound=MountedSensorCfg[Any])
DataT = TypeVar("DataT")
JOINT, CHILD, PARENT, WORLD = 0, 1, 2, 3
"""Axes of a wrench: those of the mount, the child, the parent or the world."""


@wp.struct
class WrenchTask:
    """Data of one sensor for the kernel. `parents` has length 0 unless the axes are the parent's."""

    sign: wp.float32
    axes: wp.int32
    mounts: wp.array[Mounts]
    parents: wp.array[wp.int32]
    parent_force: wp.array2d[wp.vec3]
    parent_torque: wp.array2d[wp.vec3]
    force: wp.array2d[wp.vec3]
    torque: wp.array2d[wp.vec3]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@kernel
def _wrench(rows: Rows, tasks: wp.array[WrenchTask]) -> None:
    k, env = masked_tid(rows)
    t = tasks[k]
    for mount in range(t.bad.shape[1]):
        body = t.mounts[0].body[mount]
        child = t.mounts[0].body_quat[env, body]
        arm = quat_rotate(child, t.mounts[0].offset_pos[env, mount])
        force = t.sign * t.parent_force[env, body]
        torque = t.sign * t.parent_torque[env, body] - wp.cross(arm, force)
        turn = wp.vec4(1.0, 0.0, 0.0, 0.0)
        if t.axes == wp.static(JOINT):
            turn = quat_multiply(child, t.mounts[0].offset_quat[env, mount])
        elif t.axes == wp.static(CHILD):
            turn = child
        elif t.axes == wp.static(PARENT):
            parent = t.parents[mount]
            if parent >= 0:
                turn = t.mounts[0].body_quat[env, parent]
        t.force[env, mount] = quat_rotate_inverse(turn, force)
        t.torque[env, mount] = quat_rotate_inverse(turn, torque)
        flag_state(t.bad, t.any_bad, env, mount, is_finite3(force) and is_finite3(torque) and is_finite4(turn))


class WrenchSensor(SimpleSensor[CfgT, DataT], Generic[CfgT, DataT]):
    """Sensor of the wrench between a body and its parent, at one or several mounts; its config has `on`."""

    checks_state: ClassVar[bool] = True
    _axes = JOINT
    """Axes of the wrenches."""
    _parents: Tensor | None = None
    """Parent of the body of each mount, int32 `[mount]`, where the axes are the parent's."""

    @property
    def sign(self) -> float:
        """1 for the wrench that the parent exerts on the child, -1 for the opposite."""
        return 1.0 if self.cfg.on == "child" else -1.0  # type: ignore[attr-defined]

    def setup(self) -> None:
        """Reject mounts on the world."""
        for name, body in zip(self.mount.names, self.mount.body.tolist(), strict=True):
            if body < 0:
                fix = "Select an element of a body that has a parent; this one belongs to the world."
                raise ConfigError.single(self.cfg.title, self.cfg.selector[0], name, "an element of a moving body", fix)

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Transform the wrenches in one launch, shared by all such sensors of one rate."""
        t = WrenchTask()
        t.sign, t.axes, t.mounts = self.sign, self._axes, self.mount.warp_state()
        if self._parents is not None:
            t.parents = wp.from_torch(self._parents)
        t.parent_force = wp.from_torch(self.engine.array("body_parent_force_w"), dtype=wp.vec3)
        t.parent_torque = wp.from_torch(self.engine.array("body_parent_torque_w"), dtype=wp.vec3)
        t.force, t.torque = raw.warp.force, raw.warp.torque
        t.bad, t.any_bad = self.buffers.bad_wp, self.clock.bad_wp
        self.compute_on.launch_task(_wrench, (), t)
