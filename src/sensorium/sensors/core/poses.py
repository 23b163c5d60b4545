"""Poses of a sensor's mounts at the capture of the current sample, recorded only while an output publishes poses.

A sample may be shown late, and each environment may show a different one. Poses are therefore stored beside the
samples: one slot for each slot of the sensor's ring, written with the sample and selected by the slot that is shown.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import warp as wp

from sensorium.compute import FIRST, Rows, kernel, masked_tid, mode_now
from sensorium.geometry.transforms import quat_multiply, quat_rotate
from sensorium.measurement.chain import has_arrived

if TYPE_CHECKING:
    from sensorium.sensors.core.base import Sensor


Pose = wp.types.vector(length=7, dtype=wp.float32)
"""Position, m, and quaternion (w, x, y, z)."""


@wp.struct
class PoseTask:
    """Poses of one sensor. `stamps` is empty where no sample can be lost; unused arrays are empty as well."""

    head: wp.array[wp.int32]
    stamps: wp.array2d[wp.vec3i]
    mount_body: wp.array[wp.int32]
    mount_pos: wp.array2d[wp.vec3]
    mount_quat: wp.array2d[wp.vec4]
    offset_pos: wp.array2d[wp.vec3]
    offset_quat: wp.array2d[wp.vec4]
    body_pos: wp.array2d[wp.vec3]
    body_quat: wp.array2d[wp.vec4]
    slots: wp.array3d[Pose]


@kernel
def _keep(rows: Rows, tasks: wp.array[PoseTask]) -> None:
    """Write the current poses beside the sample, into the same slots as the sample; see `DelayRing.freeze`."""
    k, env, mount = masked_tid(rows)
    t = tasks[k]
    if mount >= t.mount_body.shape[0]:
        return
    pos = t.mount_pos[env, mount]
    quat = t.mount_quat[env, mount]
    if t.offset_pos.shape[0] > 0:
        pos = pos + quat_rotate(quat, t.offset_pos[env, mount])
        quat = quat_multiply(quat, t.offset_quat[env, mount])
    body = t.mount_body[mount]
    if body >= 0:
        turn = t.body_quat[env, body]
        pos = t.body_pos[env, body] + quat_rotate(turn, pos)
        quat = quat_multiply(turn, quat)
    pose = Pose(pos[0], pos[1], pos[2], quat[0], quat[1], quat[2], quat[3])
    head = t.head[env]
    end = t.slots.shape[0] - 1
    if mode_now(rows) == FIRST:  # the first sample of an episode fills all slots
        for slot in range(end + 1):
            t.slots[slot, env, mount] = pose
    elif t.stamps.shape[0] > 0:
        stamp = t.stamps[head, env]
        if has_arrived(rows, stamp[0], stamp[1]):
            t.slots[end, env, mount] = t.slots[head, env, mount]
    t.slots[head, env, mount] = pose


class CapturePoses:
    """Poses of a sensor at its captures, one per mount, `offset` included; NaN for samples captured earlier.

    Args:
        sensor: sensor with mounts; if a mount is on a body, the engine must provide BODY_POSE.
    """

    def __init__(self, sensor: Sensor[Any, Any]) -> None:
        assert sensor.mount is not None
        self._sensor, self._mount = sensor, sensor.mount
        self._ring = sensor.buffers.late
        compute = sensor.compute_on
        shape = (compute.num_envs, self._mount.count, 7)
        slots = 1 if self._ring is None else self._ring.slots
        self._slots = torch.full((slots, *shape), math.nan, dtype=torch.float32, device=compute.device)
        self._head = torch.zeros(compute.num_envs, dtype=torch.int32, device=compute.device)
        self._envs = torch.arange(compute.num_envs, device=compute.device)

    def begin(self) -> None:
        """Restart the record: poses of earlier captures are unknown, those of current samples are the engine's."""
        sensor = self._sensor
        sensor.engine.refresh()
        self.keep()
        captures, tick, ring = sensor.buffers.counter, sensor.clock.tick, self._ring
        newest, following = (0, 0) if ring is None else (ring.position, (ring.position + 1) % ring.depth)
        now = self._slots[following].clone()
        self._slots.fill_(math.nan)
        self._slots[newest] = torch.where((captures.arrival_tick == tick)[:, None, None], now, math.nan)
        self._slots.copy_(torch.where((captures.first_tick == tick)[:, None, None], now, self._slots))

    def keep(self) -> None:
        """Record the poses of the sample that is being captured (a recordable task), before the ring stamps it."""
        sensor, ring, t = self._sensor, self._ring, PoseTask()
        t.head = wp.from_torch(self._head if ring is None else ring.head, dtype=wp.int32)
        t.mount_body, t.mount_pos, t.mount_quat = self._mount.warp_inputs
        if (offset := sensor.pose_offset) is not None:
            t.offset_pos = wp.from_torch(offset[0].contiguous(), dtype=wp.vec3)
            t.offset_quat = wp.from_torch(offset[1].contiguous(), dtype=wp.vec4)
        if self.needs_bodies(sensor):
            t.body_pos = wp.from_torch(sensor.engine.array("body_pos_w"), dtype=wp.vec3)
            t.body_quat = wp.from_torch(sensor.engine.array("body_quat_w"), dtype=wp.vec4)
        t.slots = wp.from_torch(self._slots, dtype=Pose)
        if ring is not None and ring.has_loss:
            t.stamps = wp.from_torch(ring.stamps, dtype=wp.vec3i)
        sensor.compute_on.launch_task(_keep, (self._mount.count,), t)

    @staticmethod
    def needs_bodies(sensor: Sensor[Any, Any]) -> bool:
        """Whether one of a sensor's mounts is on a body, which requires BODY_POSE."""
        return sensor.mount is not None and any(name != "world" for name in sensor.mount.body_names)

    def shown(self) -> torch.Tensor:
        """Return the poses at the capture of the sample in `data`, which must have been read before.

        Returns:
            float32 `[env, mount, 7]`: position (m) and quaternion (w, x, y, z) in the world frame.
        """
        ring = self._ring
        if ring is None:
            return self._slots[0]
        return self._slots[ring.shown_slot.to(torch.int64), self._envs]
