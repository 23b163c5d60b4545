"""Current of a motor, and the joint torque that its drive estimates from it.

Axes: ``[env, joint]`` (no joint axis for a singular selector). Current in A, torque in N m (slide: N).

With effort the actuators' effort at the joint, N the gear, eta its efficiency, K the torque constant at the winding's
temperature and K0 that of the data sheet (at 25 C), q and w the joint's position and velocity:

    i       = effort / (N eta K)                             K = K0 (1 + c (T - 25))
    i_meas  = i + sum_k A_k sin(k P N q) / K + noise, offset, saturation, resolution
    tau     = N eta K0 i_meas - friction(w)
    friction(w) = (C + (S - C) exp(-(w/w_s)^2)) sign(w) + B w, and 0 at w = 0

The second term of i_meas is cogging: the extra current that keeps the torque smooth. The friction is the drive's own
model (C Coulomb, S static, w_s Stribeck, B viscous: Armstrong-Helouvry, Dupont & Canudas de Wit, Automatica 30, 1994).
The true torque is that of `spec.JOINT_TORQUE`, at the gearbox output.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
import warp as wp
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Float, bad, in_unit, must
from sensorium.compute import Rows, kernel, masked_tid, recorded
from sensorium.measurement.record import Record, Timeline
from sensorium.sensors.core.hooks import Supports, used_if
from sensorium.sensors.core.prefixed import MotorCurrentKnobs
from sensorium.sensors.joints.scalar import JointsCfg, ScalarJointSensor
from sensorium.spec import JOINT_EFFORT, JOINT_STATE, JOINT_TORQUE, Field, Requirement
from sensorium.world.joints import PerJoint, Positive, per_joint
from sensorium.world.mount import flag_state
from sensorium.world.select import Named

REFERENCE_TEMPERATURE = 25.0
"""Winding temperature at which data sheets specify the torque constant, degrees Celsius."""


@dataclass(frozen=True, slots=True)
class MotorCurrentData:
    """One sample of motor currents."""

    current: Annotated[Tensor, Field("A")]
    """Torque-producing current of the motor (q axis) `[env, joint]`, A."""
    torque: Annotated[Tensor, Field("N m|N", kind="derived")]
    """Torque at the gearbox output `[env, joint]`, N m (slide: N); the measured value is the drive's estimate."""
    joint_names: tuple[str, ...]
    """Full names of the joints, in the order of the joint axis."""


NotNegative = Annotated[PerJoint, must(lambda value: min(per_joint(value)) >= 0.0, "a number >= 0, or one per joint")]
FRICTION = ("coulomb", "static", "stribeck_velocity", "viscous")


class MotorCurrentCfg(JointsCfg[MotorCurrentData], MotorCurrentKnobs):
    """Configuration of motor current sensors. Knobs apply to the current, in A: `noise` or `current_noise`.

    A number per joint is one number for all joints or a tuple in joint order. A `Saturation` stage sets the full scale.
    """

    fields: Annotated[
        tuple[Literal["current", "torque"], ...],
        must(
            lambda fields: "current" in fields,
            "current in `fields`",
            "Add current to fields, since the torque is estimated from it.",
        ),
    ] = ("current", "torque")
    """Computed fields; the torque requires the current as well, and an engine with JOINT_TORQUE."""
    selectable: ClassVar[tuple[str, ...]] = ("current", "torque")

    prefixed_knobs: ClassVar[Mapping[str, tuple[str, str]]] = {"current": ("current", "A")}

    torque_constant: Annotated[Positive, in_unit("N m/A")]
    """Torque constant K0 at 25 C, N m/A."""
    gear: Positive = 1.0
    """Turns of the motor per turn of the joint N (slide: rad per m)."""
    efficiency: Annotated[
        Positive, must(lambda value: max(per_joint(value)) <= 1.0, "an efficiency in (0, 1], or one per joint")
    ] = 1.0
    """Efficiency of the gearbox eta, in (0, 1], the same in both directions."""
    kt_temperature_coefficient: Float = 0.0
    """Relative change c of the torque constant per kelvin; about -0.001 for neodymium magnets."""
    winding_temperature: Annotated[Float, in_unit("degC")] = REFERENCE_TEMPERATURE
    """Temperature T of the motor, degrees Celsius."""
    coulomb: Annotated[NotNegative, in_unit("N m")] = 0.0
    """Coulomb friction C in the drive's model, N m at the joint (slide: N)."""
    static: Annotated[NotNegative | None, in_unit("N m")] = None
    """Static friction S in the drive's model, N m; None uses `coulomb`."""
    stribeck_velocity: Annotated[Positive, in_unit("rad/s")] = 0.01
    """Velocity w_s at which friction has fallen by 63 % from static towards Coulomb, rad/s (slide: m/s)."""
    viscous: Annotated[NotNegative, in_unit("N m s/rad")] = 0.0
    """Viscous friction B in the drive's model, N m s/rad."""
    cogging: Annotated[
        tuple[Float, ...],
        must(lambda row: all(0.0 <= amplitude < math.inf for amplitude in row), "finite amplitudes >= 0"),
        in_unit("N m"),
    ] = ()
    """Amplitudes A_1, A_2, ... of the cogging torque, N m at the motor."""
    cogging_cycles: Annotated[Float, must(lambda n: 0.0 < n < math.inf, "a finite number above 0")] = 1.0
    """Periods P of the fundamental per turn of the motor: the least common multiple of slots and poles."""

    @field_validator("kt_temperature_coefficient", "winding_temperature")
    @classmethod
    def _keeps_torque(cls, value: float, info: ValidationInfo) -> float:
        data = {**info.data, str(info.field_name): value}
        rise = data.get("winding_temperature", REFERENCE_TEMPERATURE) - REFERENCE_TEMPERATURE
        if not 0.0 < 1.0 + data.get("kt_temperature_coefficient", 0.0) * rise < math.inf:
            raise bad("values that keep the torque constant above 0", "Use a coefficient of about -0.001 per K.")
        return value

    @property
    def derating(self) -> float:
        """The torque constant at the winding's temperature, relative to that of the data sheet."""
        return 1.0 + self.kt_temperature_coefficient * (self.winding_temperature - REFERENCE_TEMPERATURE)

    @property
    def has_friction(self) -> bool:
        """Whether the drive compensates any friction."""
        return any(max(per_joint(value)) > 0.0 for value in (self.coulomb, self.static or 0.0, self.viscous))


@wp.struct
class CurrentTask:
    """Data of one sensor for the kernels. Unused arrays of the engine and unused outputs have length 0."""

    columns: wp.array[wp.int32]
    # Per joint; for cogging: amplitude of each harmonic, rad of the fundamental per rad of the joint, A per N m
    amperes: wp.array[wp.float32]
    torque_per_ampere: wp.array[wp.float32]
    cogging: wp.array[wp.float32]
    phase: wp.array[wp.float32]
    spent: wp.array[wp.float32]
    coulomb: wp.array[wp.float32]
    stiction: wp.array[wp.float32]
    stribeck_velocity: wp.array[wp.float32]
    viscous: wp.array[wp.float32]
    # Engine [env, joint of the model]
    joint_effort: wp.array2d[wp.float32]
    joint_torque: wp.array2d[wp.float32]
    joint_pos: wp.array2d[wp.float32]
    joint_vel: wp.array2d[wp.float32]
    # Truth and measured branch [env, joint]
    current: wp.array2d[wp.float32]
    torque: wp.array2d[wp.float32]
    current_slot: wp.array2d[wp.float32]
    torque_slot: wp.array2d[wp.float32]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@kernel
def _current(rows: Rows, tasks: wp.array[CurrentTask]) -> None:
    k, env = masked_tid(rows)
    t = tasks[k]
    is_good = wp.bool(True)
    for joint in range(t.columns.shape[0]):
        column = t.columns[joint]
        current = t.joint_effort[env, column] * t.amperes[joint]
        t.current[env, joint] = current
        if t.current_slot.shape[0] > 0:
            angle = t.phase[joint] * t.joint_pos[env, column]
            cogging = wp.float32(0.0)
            for harmonic in range(t.cogging.shape[0]):
                cogging = cogging + t.cogging[harmonic] * wp.sin(float(harmonic + 1) * angle)
            current = current + cogging * t.spent[joint]
            t.current_slot[env, joint] = current
        if t.joint_torque.shape[0] > 0:
            t.torque[env, joint] = t.joint_torque[env, column]
            if t.torque_slot.shape[0] > 0:
                t.torque_slot[env, joint] = t.joint_torque[env, column]
            if not wp.isfinite(t.joint_torque[env, column]):
                is_good = wp.bool(False)
        if not wp.isfinite(current):
            is_good = wp.bool(False)
    flag_state(t.bad, t.any_bad, env, 0, is_good)


@kernel
def _estimate(rows: Rows, tasks: wp.array[CurrentTask]) -> None:
    k, env, joint = masked_tid(rows)
    t = tasks[k]
    if joint >= t.columns.shape[0]:
        return
    torque = t.torque_per_ampere[joint] * t.current_slot[env, joint]
    if t.joint_vel.shape[0] > 0:
        w = t.joint_vel[env, t.columns[joint]]
        if not wp.isfinite(w):
            t.bad[env, 0] = wp.uint8(1)
            t.any_bad[0] = 1
        if w != 0.0:
            ratio = w / t.stribeck_velocity[joint]
            dry = t.coulomb[joint] + (t.stiction[joint] - t.coulomb[joint]) * wp.exp(-ratio * ratio)
            torque = torque - (dry * wp.sign(w) + t.viscous[joint] * w)
    t.torque_slot[env, joint] = torque


class MotorCurrent(ScalarJointSensor[MotorCurrentCfg, MotorCurrentData]):
    """Current of the motors of one or several hinges and slides, and the torque estimated from it."""

    @classmethod
    def needs(cls, cfg: MotorCurrentCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return the requirements of the selected fields and of the configured model."""
        yield JOINT_EFFORT
        if "torque" in cfg.fields:
            yield JOINT_TORQUE
        if cfg.cogging or (cfg.has_friction and "torque" in cfg.fields):
            yield JOINT_STATE

    def _inspected(self, env: int) -> list[Tensor]:
        values = [self._rows(self.buffers.slot, name)[env] for name in self.cfg.selected]
        if self._subtracts_friction:
            values.append(self.engine.array("joint_vel")[env, list(self.joints.columns)])
        return values

    @property
    def _subtracts_friction(self) -> bool:
        return self.cfg.has_friction and "torque" in self.cfg.fields

    def setup(self) -> None:
        """Compute the constants of each joint, in float64."""
        cfg, joints = self.cfg, self.joints
        super().setup()

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
            "stiction": row("coulomb" if cfg.static is None else "static"),
        }
        self._constants = {
            name: wp.from_torch(values.to(device=self.device, dtype=torch.float32))
            for name, values in constants.items()
        }
        self._constants["columns"] = self._columns

    @recorded
    @used_if(lambda self: not self.cfg.cogging)
    def update_raw_data(self, raw: Record) -> None:
        """Compute true current and torque in one launch, shared by all motor current sensors of one rate."""
        self._measure(raw, None)

    @recorded
    @used_if(lambda self: self.cfg.cogging)
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Compute true current and torque, and the current with cogging, in the same launch."""
        self._measure(raw, slot)

    def _task(self, engine: Mapping[str, bool], outputs: Mapping[str, tuple[Record, str]]) -> Any:
        """Return the task struct of this sensor, with the engine's arrays and the addresses of the outputs."""
        t = CurrentTask()
        for name, values in self._constants.items():
            setattr(t, name, values)
        for name, is_needed in engine.items():
            if is_needed:
                setattr(t, name, wp.from_torch(self.engine.array(name)))
        for name, (record, field) in outputs.items():
            if field in self.cfg.fields:
                setattr(t, name, wp.from_torch(self._rows(record, field)))
        t.bad, t.any_bad = self.buffers.bad_wp, self.clock.bad_wp
        return t

    def _measure(self, raw: Record, slot: Record | None) -> None:
        engine = {"joint_effort": True, "joint_torque": "torque" in self.cfg.fields, "joint_pos": slot is not None}
        outputs = {"current": (raw, "current"), "torque": (raw, "torque")}
        if slot is not None:
            outputs |= {"current_slot": (slot, "current"), "torque_slot": (slot, "torque")}
        self.compute_on.launch_task(_current, (), self._task(engine, outputs))

    @recorded
    @used_if(lambda self: "torque" in self.cfg.fields)
    def derive_measured(self, slot: Record) -> None:
        """Estimate the torque from the measured current, as the drive does."""
        outputs = {"current_slot": (slot, "current"), "torque_slot": (slot, "torque")}
        task = self._task({"joint_vel": self._subtracts_friction}, outputs)
        self.compute_on.launch_task(_estimate, (self.joints.count,), task)
