"""Current of a motor, and the joint torque that its drive estimates from it.

Axes: ``[env, joint]`` (no joint axis for a singular selector). Current in A, torque in N m (slide: N).

With effort what the actuators exert at the joint, N the gear, eta its efficiency, K the torque constant at the
winding's temperature and K0 that of the data sheet (at 25 C), q and w the joint's position and velocity:

    i       = effort / (N eta K)                             K = K0 (1 + c (T - 25))
    i_meas  = i + sum_k A_k sin(k P N q) / K + noise, offset, saturation, resolution
    tau     = N eta K0 i_meas - friction(w)
    friction(w) = (C + (S - C) exp(-(w/w_s)^2)) sign(w) + B w, and 0 at w = 0

The second part of i_meas is cogging: what the drive has to spend so that the torque stays smooth. The friction is what
the drive takes it to be (C Coulomb, S static, w_s Stribeck, B viscous: Armstrong-Helouvry, Dupont & Canudas de Wit,
Automatica 30, 1994). The true torque is that of `spec.JOINT_TORQUE`, at the gearbox output.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import torch
import warp as wp
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Float, bad
from sensorium.compute import Rows, kernel, recorded
from sensorium.measurement.record import Record, Timeline
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports, used_if
from sensorium.sensors.core.prefixed import MotorCurrentKnobs
from sensorium.spec import JOINT_EFFORT, JOINT_STATE, JOINT_TORQUE, Field, Requirement
from sensorium.world.joints import JointsCfg, PerJoint, ScalarJoints, resolve_joints
from sensorium.world.select import Named

REFERENCE_TEMPERATURE = 25.0
"""Winding temperature at which data sheets state the torque constant, degrees Celsius."""


@dataclass(frozen=True, slots=True)
class MotorCurrentData:
    """One sample of motor currents."""

    current: Annotated[Tensor, Field("A")]
    """Current of the motor `[env, joint]`, A: the part that makes torque (q axis)."""
    torque: Annotated[Tensor, Field("N m", kind="derived")]
    """Torque at the joint `[env, joint]`, N m (slide: N): at the gearbox output; the measured one is the estimate."""
    joint_names: tuple[str, ...]
    """Full names of the joints, in the order of the joint axis."""


FRICTION = ("coulomb", "static", "stribeck_velocity", "viscous")


class MotorCurrentCfg(JointsCfg[MotorCurrentData], MotorCurrentKnobs):
    """Configuration of motor current sensors. Knobs are those of the current, in A: `noise` or `current_noise`.

    Every number per joint is one for all or a tuple in joint order. Full scale is a `Saturation` stage.
    """

    fields: tuple[Literal["current", "torque"], ...] = ("current", "torque")
    """What is computed; the torque needs the current beside it, and an engine that gives JOINT_TORQUE."""

    prefixed_knobs: ClassVar[Mapping[str, tuple[str, str]]] = {"current": ("current", "A")}

    torque_constant: PerJoint
    """Torque constant K0 at 25 C, N m/A."""
    gear: PerJoint = 1.0
    """Turns of the motor per turn of the joint N (slide: rad per m)."""
    efficiency: PerJoint = 1.0
    """Efficiency of the gearbox eta, in (0, 1], the same in both directions."""
    kt_temperature_coefficient: Float = 0.0
    """Change c of the torque constant, relative per K; about -0.001 for neodymium magnets."""
    winding_temperature: Float = REFERENCE_TEMPERATURE
    """Temperature T of the motor, degrees Celsius."""
    coulomb: PerJoint = 0.0
    """Coulomb friction C that the drive assumes, N m at the joint (slide: N)."""
    static: PerJoint | None = None
    """Static friction S that it assumes, N m; None is that of `coulomb`."""
    stribeck_velocity: PerJoint = 0.01
    """Velocity w_s at which friction has fallen from static towards Coulomb by 63 %, rad/s (slide: m/s)."""
    viscous: PerJoint = 0.0
    """Viscous friction B that it assumes, N m s/rad."""
    cogging: tuple[Float, ...] = ()
    """Amplitudes A_1, A_2, ... of the cogging torque, N m at the motor."""
    cogging_cycles: Float = 1.0
    """Periods P of its fundamental per turn of the motor: the least common multiple of slots and poles."""

    @field_validator("fields")
    @classmethod
    def _needs_current(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "current" not in value:
            raise bad("the current among `fields`", "The torque is estimated from it.")
        return value

    @field_validator("torque_constant", "gear", "efficiency", "stribeck_velocity")
    @classmethod
    def _positive(cls, value: Any, info: ValidationInfo) -> Any:
        row = value if isinstance(value, tuple) else (value,)
        if min(row) <= 0.0:
            raise bad("a number above 0, or one per joint")
        if info.field_name == "efficiency" and max(row) > 1.0:
            raise bad("an efficiency in (0, 1], or one per joint")
        return value

    @field_validator("coulomb", "static", "viscous")
    @classmethod
    def _not_negative(cls, value: Any) -> Any:
        if value is not None and min(value if isinstance(value, tuple) else (value,)) < 0.0:
            raise bad("nothing negative")
        return value

    @field_validator("cogging")
    @classmethod
    def _amplitudes(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0.0 <= amplitude < math.inf for amplitude in value):
            raise bad("finite amplitudes >= 0")
        return value

    @field_validator("cogging_cycles")
    @classmethod
    def _cycles(cls, value: float) -> float:
        if not 0.0 < value < math.inf:
            raise bad("a finite number above 0")
        return value

    @field_validator("kt_temperature_coefficient", "winding_temperature")
    @classmethod
    def _keeps_torque(cls, value: float, info: ValidationInfo) -> float:
        data = {**info.data, str(info.field_name): value}
        rise = data.get("winding_temperature", REFERENCE_TEMPERATURE) - REFERENCE_TEMPERATURE
        if not 0.0 < 1.0 + data.get("kt_temperature_coefficient", 0.0) * rise < math.inf:
            raise bad("a motor that still has a torque constant above 0", "About -0.001 per K is usual.")
        return value

    @property
    def derating(self) -> float:
        """The torque constant at the winding's temperature, relative to that of the data sheet."""
        return 1.0 + self.kt_temperature_coefficient * (self.winding_temperature - REFERENCE_TEMPERATURE)

    @property
    def has_friction(self) -> bool:
        """Whether the drive compensates any friction."""
        numbers = (self.coulomb, self.static or 0.0, self.viscous)
        return any(max(value if isinstance(value, tuple) else (value,)) > 0.0 for value in numbers)


@kernel
def _current(
    rows: Rows,
    column_in: wp.array[wp.int32],
    amperes_in: wp.array[wp.float32],
    # Cogging: amplitude of each harmonic [harmonic], rad of the fundamental per rad of the joint and A per N m [joint]
    cogging_in: wp.array[wp.float32],
    phase_in: wp.array[wp.float32],
    spent_in: wp.array[wp.float32],
    # Engine; length 0 where it is not needed
    effort_in: wp.array2d[wp.float32],
    torque_in: wp.array2d[wp.float32],
    pos_in: wp.array2d[wp.float32],
    current_out: wp.array2d[wp.float32],
    torque_out: wp.array2d[wp.float32],
    current_slot: wp.array2d[wp.float32],
    torque_slot: wp.array2d[wp.float32],
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
        current = effort_in[env, column] * amperes_in[joint]
        current_out[env, joint] = current
        if current_slot.shape[0] > 0:
            angle = phase_in[joint] * pos_in[env, column]
            cogging = wp.float32(0.0)
            for k in range(cogging_in.shape[0]):
                cogging = cogging + cogging_in[k] * wp.sin(float(k + 1) * angle)
            current = current + cogging * spent_in[joint]
            current_slot[env, joint] = current
        if torque_in.shape[0] > 0:
            torque_out[env, joint] = torque_in[env, column]
            if torque_slot.shape[0] > 0:
                torque_slot[env, joint] = torque_in[env, column]
            if not wp.isfinite(torque_in[env, column]):
                flag = wp.uint8(1)
        if not wp.isfinite(current):
            flag = wp.uint8(1)
    bad_out[env, 0] = flag
    if flag != wp.uint8(0):
        any_bad[0] = 1


@kernel
def _estimate(
    rows: Rows,
    column_in: wp.array[wp.int32],
    torque_per_ampere_in: wp.array[wp.float32],
    coulomb_in: wp.array[wp.float32],
    static_in: wp.array[wp.float32],
    stribeck_in: wp.array[wp.float32],
    viscous_in: wp.array[wp.float32],
    vel_in: wp.array2d[wp.float32],
    current_in: wp.array2d[wp.float32],
    torque_out: wp.array2d[wp.float32],
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    i, joint = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    torque = torque_per_ampere_in[joint] * current_in[env, joint]
    if vel_in.shape[0] > 0:
        w = vel_in[env, column_in[joint]]
        if not wp.isfinite(w):
            bad_out[env, 0] = wp.uint8(1)
            any_bad[0] = 1
        if w != 0.0:
            ratio = w / stribeck_in[joint]
            dry = coulomb_in[joint] + (static_in[joint] - coulomb_in[joint]) * wp.exp(-ratio * ratio)
            torque = torque - (dry * wp.sign(w) + viscous_in[joint] * w)
    torque_out[env, joint] = torque


class MotorCurrent(SimpleSensor[MotorCurrentCfg, MotorCurrentData]):
    """Current, and the torque estimated from it, of the motors of one or several hinges and slides."""

    checks_state: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: MotorCurrentCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return only what the selected fields and the parts of the model need."""
        yield JOINT_EFFORT
        if "torque" in cfg.fields:
            yield JOINT_TORQUE
        if cfg.cogging or (cfg.has_friction and "torque" in cfg.fields):
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
        """Return the selected fields, with the joint axis and the units of these joints."""
        return self.joints.fields({name: field for name, field in super().fields().items() if name in self.cfg.fields})

    def _body_at_fault(self, env: int, mount: int) -> str:
        """Return the first joint whose state is not finite."""
        values = [self.buffers.slot[name].view(self.num_envs, -1)[env] for name in self.cfg.fields]
        if self._subtracts_friction:
            values.append(self.engine.array("joint_vel")[env, list(self.joints.columns)])
        return f"of joint {self.joint_names[int(torch.stack(values).isfinite().all(dim=0).int().argmin())]}"

    @property
    def _subtracts_friction(self) -> bool:
        return self.cfg.has_friction and "torque" in self.cfg.fields

    def setup(self) -> None:
        """Compute the constants of each joint, in float64."""
        cfg, joints = self.cfg, self.joints
        self.buffers.body_at_fault = self._body_at_fault

        def row(name: str, value: Any = None) -> Tensor:
            return torch.tensor(joints.numbers(cfg, name, value), dtype=torch.float64, device="cpu")

        nominal, gear = row("torque_constant"), row("gear")
        ratio = gear * row("efficiency")
        constants = {
            "amperes": 1.0 / (ratio * nominal * cfg.derating),
            "torque_per_ampere": ratio * nominal,
            "cogging": torch.tensor(cfg.cogging, device="cpu"),
            "phase": cfg.cogging_cycles * gear,
            "spent": 1.0 / (nominal * cfg.derating),
            **{name: row(name) for name in FRICTION if name != "static"},
            "static": row("coulomb" if cfg.static is None else "static"),
        }
        self._constants = {
            name: wp.from_torch(values.to(device=self.device, dtype=torch.float32))
            for name, values in constants.items()
        }
        self._columns = wp.array(joints.columns, dtype=wp.int32, device=self.compute_on.wp_device)

    @recorded
    @used_if(lambda self: not self.cfg.cogging)
    def update_raw_data(self, raw: Record) -> None:
        """Compute true current and torque in one launch."""
        self._measure(raw, None)

    @recorded
    @used_if(lambda self: self.cfg.cogging)
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Compute true current and torque, and the current with cogging, in one launch."""
        self._measure(raw, slot)

    def _measure(self, raw: Record, slot: Record | None) -> None:
        nothing = torch.zeros((0, 1), dtype=torch.float32, device=self.device)
        has_torque = "torque" in self.cfg.fields
        engine = [
            self.engine.array("joint_effort"),
            self.engine.array("joint_torque") if has_torque else nothing,
            self.engine.array("joint_pos") if slot is not None else nothing,
        ]
        outputs = [
            raw.current,
            raw.torque if has_torque else nothing,
            slot.current if slot is not None else nothing,
            slot.torque if slot is not None and has_torque else nothing,
        ]
        self.compute_on.launch(
            _current,
            (1,),
            [
                self._columns,
                *(self._constants[name] for name in ("amperes", "cogging", "phase", "spent")),
                *(wp.from_torch(each) for each in engine),
            ],
            [
                *(wp.from_torch(each if each is nothing else each.view(self.num_envs, -1)) for each in outputs),
                self.buffers.bad_wp,
                self.clock.bad_wp,
            ],
        )

    @recorded
    @used_if(lambda self: "torque" in self.cfg.fields)
    def derive_measured(self, slot: Record) -> None:
        """Estimate the torque from the measured current, as the drive does."""
        velocity = (
            self.engine.array("joint_vel")
            if self._subtracts_friction
            else torch.zeros((0, 1), dtype=torch.float32, device=self.device)
        )
        self.compute_on.launch(
            _estimate,
            (self.joints.count,),
            [
                self._columns,
                *(self._constants[name] for name in ("torque_per_ampere", *FRICTION)),
                wp.from_torch(velocity),
                wp.from_torch(slot.current.view(self.num_envs, -1)),
            ],
            [
                wp.from_torch(slot.torque.view(self.num_envs, -1)),
                self.buffers.bad_wp,
                self.clock.bad_wp,
            ],
        )
