"""Torque cell at the output of a joint's gearbox.

Axes: ``[env, joint]`` (no joint axis for a singular selector). Hinges in N m, slides in N.

What the cell feels is what the drive passes on to the link: actuator force - armature * acceleration + dry friction -
damping * velocity, see `spec.JOINT_TORQUE`. So a joint at rest reads its load, whether the motor or the drive's
friction holds it; gravity, contacts and springs show only as the reaction that the drive gives to them.

A strain wave gear disturbs a cell in or behind it: ripple = A sin(c N q + p), with q the joint's position, N the gear
and c = 2 cycles per turn of the wave generator (Taghirad & Belanger, "Intelligent built-in torque sensor for harmonic
drive systems", IEEE Trans. Instrum. Meas. 48, 1999).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import torch
import warp as wp
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Float, bad
from sensorium.compute import Rows, kernel, recorded
from sensorium.measurement.record import Record, Timeline
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports, used_if
from sensorium.sensors.joints.joint import draw_phases
from sensorium.spec import JOINT_STATE, JOINT_TORQUE, Field, Requirement
from sensorium.world.joints import JointsCfg, PerJoint, ScalarJoints, resolve_joints
from sensorium.world.select import Named


@dataclass(frozen=True, slots=True)
class JointTorqueData:
    """One sample of torque cells."""

    torque: Annotated[Tensor, Field("N m")]
    """Torque that the drive passes on to the link `[env, joint]`, N m (slide: force, N)."""


class JointTorqueCfg(JointsCfg[JointTorqueData]):
    """Configuration of torque cells. Knobs are in N m (slide: N); numbers per joint are one for all or a tuple."""

    ripple: PerJoint | None = None
    """Amplitude of the ripple A, N m (slide: N)."""
    ripple_cycles: Float = 2.0
    """Cycles of the ripple per turn of the shaft that makes it: 2 for the wave generator of a strain wave gear."""
    gear: PerJoint = 1.0
    """Turns of that shaft per turn of the joint, e.g. 100 (slide: rad per m)."""
    ripple_phase: Float | None = None
    """Phase p of the ripple at joint position 0, rad; None draws it per env and joint at reset."""

    @field_validator("ripple", "gear")
    @classmethod
    def _amounts(cls, value: Any, info: ValidationInfo) -> Any:
        least = min(value if isinstance(value, tuple) else (value,)) if value is not None else 1.0
        if info.field_name == "ripple" and least < 0.0:
            raise bad("an amplitude >= 0, or one per joint")
        if info.field_name == "gear" and least <= 0.0:
            raise bad("a number above 0, or one per joint")
        return value

    @field_validator("ripple_cycles")
    @classmethod
    def _cycles(cls, value: float) -> float:
        if not 0.0 < value < math.inf:
            raise bad("a finite number above 0")
        return value

    @field_validator("ripple_phase")
    @classmethod
    def _phase(cls, value: float | None) -> float | None:
        if value is not None and not math.isfinite(value):
            raise bad("a finite angle, rad")
        return value


@kernel
def _torque(
    rows: Rows,
    key0: wp.uint32,
    key1: wp.uint32,
    given_phase: int,
    phase: float,
    cycles: float,
    column_in: wp.array[wp.int32],
    ripple_in: wp.array[wp.float32],
    gear_in: wp.array[wp.float32],
    torque_in: wp.array2d[wp.float32],
    pos_in: wp.array2d[wp.float32],
    torque_out: wp.array2d[wp.float32],
    slot_out: wp.array2d[wp.float32],  # length 0 without ripple
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    i, _one = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    flag = wp.uint8(0)
    for joint in range(column_in.shape[0]):
        column = column_in[joint]
        torque = torque_in[env, column]
        if not wp.isfinite(torque):
            flag = wp.uint8(1)
        torque_out[env, joint] = torque
        if slot_out.shape[0] > 0:
            angle = cycles * gear_in[joint] * pos_in[env, column]
            if not wp.isfinite(angle):
                flag = wp.uint8(1)
            if given_phase != 0:
                angle = angle + phase
            else:
                drawn = draw_phases(rows, env, joint, key0, key1)
                angle = angle + drawn[0]
            slot_out[env, joint] = torque + ripple_in[joint] * wp.sin(angle)
    bad_out[env, 0] = flag
    if flag != wp.uint8(0):
        any_bad[0] = 1


class JointTorque(SimpleSensor[JointTorqueCfg, JointTorqueData]):
    """Torque at the gearbox output of one or several hinges and slides: `.data` is the tensor itself."""

    single: ClassVar[bool] = True
    checks_state: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: JointTorqueCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return JOINT_TORQUE, and JOINT_STATE where there is ripple."""
        yield JOINT_TORQUE
        if cfg.ripple is not None:
            yield JOINT_STATE

    @cached_property
    def joints(self) -> ScalarJoints:
        """The joints that the config selects."""
        return resolve_joints(self.cfg, self.engine)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Full names of the joints, in the order of the joint axis."""
        return self.joints.names

    def fields(self) -> Mapping[str, Field]:
        """Return the torque, with the joint axis and the unit of these joints."""
        return self.joints.fields(super().fields())

    def _body_at_fault(self, env: int, mount: int) -> str:
        """Return the first joint whose torque is not finite."""
        finite = self.buffers.truth["torque"].view(self.num_envs, -1)[env].isfinite()
        return f"of joint {self.joint_names[int(finite.int().argmin())]}"

    def setup(self) -> None:
        """Make the constants of each joint."""
        self.notes["joints"] = ", ".join(self.joint_names)
        self.buffers.body_at_fault = self._body_at_fault
        self._columns = torch.tensor(self.joints.columns, dtype=torch.int32, device=self.device)
        numbers = {name: self.joints.numbers(self.cfg, name, getattr(self.cfg, name) or 0.0)
                   for name in ("ripple", "gear")}  # fmt: skip
        self._ripple, self._gear = (
            torch.tensor(row, dtype=torch.float32, device=self.device) for row in numbers.values()
        )

    @recorded
    @used_if(lambda self: self.cfg.ripple is None)
    def update_raw_data(self, raw: Record) -> None:
        """Read the engine in one launch."""
        self._measure(raw, None)

    @recorded
    @used_if(lambda self: self.cfg.ripple is not None)
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Read the engine and add the ripple to the measured torque in one launch."""
        self._measure(raw, slot)

    def _measure(self, raw: Record, slot: Record | None) -> None:
        nothing = torch.zeros((0, 1), dtype=torch.float32, device=self.device)
        phase = self.cfg.ripple_phase
        self.compute_on.launch(
            _torque,
            (1,),
            [
                *(wp.uint32(word) for word in self.stream("ripple")),
                int(phase is not None),
                phase or 0.0,
                self.cfg.ripple_cycles,
                wp.from_torch(self._columns, dtype=wp.int32),
                wp.from_torch(self._ripple),
                wp.from_torch(self._gear),
                wp.from_torch(self.engine.array("joint_torque")),
                wp.from_torch(nothing if slot is None else self.engine.array("joint_pos")),
            ],
            [
                wp.from_torch(raw.torque.view(self.num_envs, -1)),
                wp.from_torch(nothing if slot is None else slot.torque.view(self.num_envs, -1)),
                self.buffers.bad_wp,
                self.clock.bad_wp,
            ],
        )
