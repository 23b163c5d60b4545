"""Torque cell at the output of a joint's gearbox.

Axes: ``[env, joint]`` (no joint axis for a singular selector). Hinges in N m, slides in N.

The cell measures the torque that the drive delivers to the link: actuator force - armature * acceleration + dry
friction
- damping * velocity, see `spec.JOINT_TORQUE`. So a joint at rest reads its load, whether the motor or the drive's
  friction
holds it. Gravity, contacts and springs appear only through the reaction of the drive to them.

A strain wave gear disturbs a cell in or behind it: ripple = A sin(c N q + p), with q the joint's position, N the gear
and c = 2 cycles per turn of the wave generator (Taghirad & Belanger, "Intelligent built-in torque sensor for harmonic
drive systems", IEEE Trans. Instrum. Meas. 48, 1999).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import warp as wp
from torch import Tensor

from sensorium.cfg import Float, in_unit, must
from sensorium.compute import Rows, kernel, masked_tid, recorded
from sensorium.measurement.record import Record, Timeline
from sensorium.sensors.core.hooks import Supports, used_if
from sensorium.sensors.joints.joint_kernels import draw_phases
from sensorium.sensors.joints.scalar import JointsCfg, ScalarJointSensor
from sensorium.spec import JOINT_STATE, JOINT_TORQUE, Field, Requirement
from sensorium.world.joints import PerJoint, Positive, per_joint
from sensorium.world.mount import flag_state
from sensorium.world.select import Named


@dataclass(frozen=True, slots=True)
class JointTorqueData:
    """One sample of torque cells."""

    torque: Annotated[Tensor, Field("N m|N")]
    """Torque that the drive delivers to the link `[env, joint]`, N m (slide: force, N)."""


class JointTorqueCfg(JointsCfg[JointTorqueData]):
    """Configuration of torque cells. Knobs are in N m (slide: N); give one number for all joints or a tuple."""

    ripple: Annotated[
        PerJoint | None, must(lambda a: min(per_joint(a)) >= 0.0, "an amplitude >= 0, or one per joint"), in_unit("N m")
    ] = None
    """Amplitude of the ripple A, N m (slide: N)."""
    ripple_cycles: Annotated[Float, must(lambda n: 0.0 < n < math.inf, "a finite number above 0")] = 2.0
    """Cycles of the ripple per turn of the shaft that causes it: 2 for the wave generator of a strain wave gear."""
    gear: Positive = 1.0
    """Turns of that shaft per turn of the joint, e.g. 100 (slide: rad per m)."""
    ripple_phase: Annotated[Float | None, must(math.isfinite, "a finite angle, rad"), in_unit("rad")] = None
    """Phase p of the ripple at joint position 0, rad; None draws it per env and joint at reset."""


@wp.struct
class TorqueTask:
    """Data of one sensor for the kernel. Without ripple, its arrays have length 0."""

    columns: wp.array[wp.int32]
    # Ripple
    key0: wp.uint32
    key1: wp.uint32
    given_phase: wp.int32
    phase: wp.float32
    cycles: wp.float32
    ripple: wp.array[wp.float32]
    gear: wp.array[wp.float32]
    # Engine [env, joint of the model]
    joint_torque: wp.array2d[wp.float32]
    joint_pos: wp.array2d[wp.float32]
    # Truth and measured branch [env, joint]
    torque: wp.array2d[wp.float32]
    slot: wp.array2d[wp.float32]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@kernel
def _torque(rows: Rows, tasks: wp.array[TorqueTask]) -> None:
    k, env = masked_tid(rows)
    t = tasks[k]
    is_good = wp.bool(True)
    for joint in range(t.columns.shape[0]):
        column = t.columns[joint]
        torque = t.joint_torque[env, column]
        if not wp.isfinite(torque):
            is_good = wp.bool(False)
        t.torque[env, joint] = torque
        if t.slot.shape[0] > 0:
            angle = t.cycles * t.gear[joint] * t.joint_pos[env, column]
            if not wp.isfinite(angle):
                is_good = wp.bool(False)
            if t.given_phase != 0:
                angle = angle + t.phase
            else:
                drawn = draw_phases(rows, env, joint, t.key0, t.key1)
                angle = angle + drawn[0]
            t.slot[env, joint] = torque + t.ripple[joint] * wp.sin(angle)
    flag_state(t.bad, t.any_bad, env, 0, is_good)


class JointTorque(ScalarJointSensor[JointTorqueCfg, JointTorqueData]):
    """Torque at the gearbox output of one or several hinges and slides; `.data` is the tensor itself."""

    single: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: JointTorqueCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return JOINT_TORQUE, and JOINT_STATE if there is ripple."""
        yield JOINT_TORQUE
        if cfg.ripple is not None:
            yield JOINT_STATE

    def setup(self) -> None:
        """Compute the constants of each joint."""
        super().setup()
        self.notes["joints"] = ", ".join(self.joint_names)
        self._ripple, self._gear = self._per_joint("ripple"), self._per_joint("gear")

    @recorded
    @used_if(lambda self: self.cfg.ripple is None)
    def update_raw_data(self, raw: Record) -> None:
        """Read the engine in one launch, shared by all torque cells of one rate."""
        self._measure(raw, None)

    @recorded
    @used_if(lambda self: self.cfg.ripple is not None)
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Read the engine and add the ripple to the measured torque in the same launch."""
        self._measure(raw, slot)

    def _measure(self, raw: Record, slot: Record | None) -> None:
        cfg, t = self.cfg, TorqueTask()
        t.columns = self._columns
        t.joint_torque = wp.from_torch(self.engine.array("joint_torque"))
        t.torque = wp.from_torch(self._rows(raw, "torque"))
        if slot is not None:
            t.key0, t.key1 = self.stream("ripple")
            t.given_phase, t.phase = int(cfg.ripple_phase is not None), cfg.ripple_phase or 0.0
            t.cycles, t.ripple, t.gear = cfg.ripple_cycles, self._ripple, self._gear
            t.joint_pos = wp.from_torch(self.engine.array("joint_pos"))
            t.slot = wp.from_torch(self._rows(slot, "torque"))
        t.bad, t.any_bad = self.buffers.bad_wp, self.clock.bad_wp
        self.compute_on.launch_task(_torque, (), t)
