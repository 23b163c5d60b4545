"""Inertial measurement unit: accelerometer, gyroscope, magnetometer, and the true motion.

Axes: ``[env, mount, xyz]`` (no mount axis for a singular selector); ``_w`` world, ``_b`` the IMU's own frame.

An accelerometer measures specific force. With a the coordinate acceleration of the mount, g gravity and R the IMU's
orientation, f_b = R^T (a - g): at rest it reads +9.81 m/s^2 upwards, in free fall 0. With d the offset of the mount on
its body, a = a_body + alpha x d + w x (w x d) (Titterton & Weston, Strapdown Inertial Navigation Technology, 2004).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import torch
import warp as wp
from torch import Tensor

from sensorium.cfg import COLUMN_KNOBS, Vec3
from sensorium.compute import Rows, is_first, kernel, masked_tid, recorded, tick_captured, ticks_after
from sensorium.geometry.transforms import quat_rotate_inverse
from sensorium.measurement.record import Record
from sensorium.measurement.sensor_cfg import MountedSensorCfg
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports
from sensorium.sensors.core.prefixed import ImuKnobs
from sensorium.spec import BODY_ACCELERATION, BODY_POSE, BODY_VELOCITY, GRAVITY, MAGNETIC, Field, FluxUnit, Requirement
from sensorium.world.mount import Mounts, is_finite3, is_finite4, mount_motion
from sensorium.world.select import Named

NO_SAMPLE_BEFORE = 2
"""Validity flag of the first sample after a reset if accelerations are differences and need an earlier sample."""


@dataclass(frozen=True, slots=True)
class ImuData:
    """One IMU sample; fields that the config does not select are None."""

    pos_w: Annotated[Tensor, Field("m", (3,), frame="world", role="point", parity="polar")]
    """Position of the IMU in the world, m."""
    quat_w: Annotated[Tensor, Field("1", (4,), frame="world", kind="rotation", role="pose")]
    """Orientation of the IMU in the world, unit quaternion (w, x, y, z)."""
    projected_gravity_b: Annotated[Tensor, Field("1", (3,), frame="sensor", low=-1.0, high=1.0, parity="polar")]
    """Direction of the env's gravity in the IMU frame, unit vector; 0 without gravity."""
    lin_vel_b: Annotated[Tensor, Field("m/s", (3,), frame="sensor", role="vector_at", parity="polar")]
    """Velocity of the IMU relative to the world, in the IMU frame, m/s."""
    ang_vel_b: Annotated[Tensor, Field("rad/s", (3,), frame="sensor", role="angular_velocity", parity="axial")]
    """Angular velocity relative to the world, in the IMU frame (gyroscope), rad/s."""
    lin_acc_b: Annotated[Tensor, Field("m/s^2", (3,), frame="sensor", role="specific_force", parity="polar")]
    """Specific force in the IMU frame (accelerometer), m/s^2; with a `gravity_bias`, acceleration plus that bias."""
    ang_acc_b: Annotated[Tensor, Field("rad/s^2", (3,), frame="sensor", parity="axial")]
    """Angular acceleration in the IMU frame, rad/s^2."""
    mag_b: Annotated[Tensor, Field("field", (3,), frame="sensor", role="magnetic", parity="axial")]
    """Magnetic flux in the IMU frame (magnetometer), in the config's `magnetic_unit` (by default that of the given field)."""


FIELDS = ("pos_w", "quat_w", "projected_gravity_b", "lin_vel_b", "ang_vel_b", "lin_acc_b", "ang_acc_b", "mag_b")
MOVING = {"lin_vel_b", "ang_vel_b", "lin_acc_b", "ang_acc_b"}
MEASURED = ("ang_vel_b", "lin_acc_b", "mag_b")


class ImuCfg(MountedSensorCfg[ImuData], ImuKnobs):
    """Configuration of an IMU. Knobs: per field (``noise={"ang_vel_b": 0.01}``) or by prefix (``gyro_noise=0.01``)."""

    fields: tuple[str, ...] | Literal["measured", "all"] = "measured"
    """Computed fields: by default those that a device measures; ``"all"`` adds pose, velocities and angular
    acceleration. Both omit `mag_b` if the engine has no magnetic field, unless a knob is given for it."""
    selectable: ClassVar[tuple[str, ...]] = FIELDS
    gravity_bias: Vec3 | None = None
    """Vector added to the coordinate acceleration, in world axes, m/s^2. None adds the negative of the env's gravity,
    so that the accelerometer reads specific force; (0, 0, 0) gives coordinate acceleration."""
    magnetic_field: Vec3 | None = None
    """Flux in world axes, in `magnetic_unit`; None uses the engine's field."""
    magnetic_unit: FluxUnit | None = None
    """Unit of the field (the engine's or `magnetic_field`), of `mag_b` and of its knobs. None leaves the unit unnamed;
    ROS 2 messages then omit `mag_b`, since they need tesla."""
    acceleration: Literal["auto", "engine", "difference"] = "auto"
    """Source of accelerations: the engine, or differences of the mount's world velocity over the true elapsed time,
    never across a reset (the first sample is then not valid). ``auto`` uses the engine's accelerations if available."""

    @property
    def selected(self) -> tuple[str, ...]:
        """The computed fields, in the order of the data class, on an engine with a magnetic field."""
        return MEASURED if self.fields == "measured" else super().selected

    prefixed_knobs: ClassVar[Mapping[str, tuple[str, str]]] = {
        "acc": ("lin_acc_b", "m/s^2"),
        "gyro": ("ang_vel_b", "rad/s"),
        "mag": ("mag_b", "field unit"),
    }


@wp.struct
class ImuTask:
    """Data of one IMU for the kernels. Unused arrays of the engine and unused outputs have length 0."""

    dt: wp.float32
    difference: wp.int32
    mounts: wp.array[Mounts]
    # Engine; the magnetic field may have one row for all envs
    body_lin_acc: wp.array2d[wp.vec3]
    body_ang_acc: wp.array2d[wp.vec3]
    gravity: wp.array[wp.vec3]
    force_bias: wp.array[wp.vec3]
    magnetic: wp.array[wp.vec3]
    # Memory for differences [env, mount]
    last_lin_vel: wp.array2d[wp.vec3]
    last_ang_vel: wp.array2d[wp.vec3]
    last_tick: wp.array[wp.int32]
    # Output
    pos_w: wp.array2d[wp.vec3]
    quat_w: wp.array2d[wp.vec4]
    projected_gravity_b: wp.array2d[wp.vec3]
    lin_vel_b: wp.array2d[wp.vec3]
    ang_vel_b: wp.array2d[wp.vec3]
    lin_acc_b: wp.array2d[wp.vec3]
    ang_acc_b: wp.array2d[wp.vec3]
    mag_b: wp.array2d[wp.vec3]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@kernel
def _imu(rows: Rows, tasks: wp.array[ImuTask]) -> None:
    # tasks[k] is not assigned to a variable: each thread would copy the large struct
    k, env, mount = masked_tid(rows)
    if mount >= tasks[k].bad.shape[1]:
        return
    p, q, v, w, d = mount_motion(tasks[k].mounts, env, mount)
    a = wp.vec3()
    alpha = wp.vec3()
    body = tasks[k].mounts[0].body[mount]
    if body >= 0 and tasks[k].body_ang_acc.shape[0] > 0:
        alpha = tasks[k].body_ang_acc[env, body]
        a = tasks[k].body_lin_acc[env, body] + wp.cross(alpha, d) + wp.cross(w, wp.cross(w, d))
    flag = wp.uint8(0)
    if tasks[k].difference != 0:
        elapsed = ticks_after(tick_captured(rows), tasks[k].last_tick[env])
        if is_first(rows, env) or elapsed <= 0:
            flag = wp.static(wp.uint8(NO_SAMPLE_BEFORE))
        else:
            a = (v - tasks[k].last_lin_vel[env, mount]) / (float(elapsed) * tasks[k].dt)
            alpha = (w - tasks[k].last_ang_vel[env, mount]) / (float(elapsed) * tasks[k].dt)
        tasks[k].last_lin_vel[env, mount] = v
        tasks[k].last_ang_vel[env, mount] = w
        # last_tick is advanced once per env, by _imu_tick, after all mounts have read it
    if not (
        is_finite3(p) and is_finite4(q) and is_finite3(v) and is_finite3(w) and is_finite3(a) and is_finite3(alpha)
    ):
        flag = wp.uint8(1)
        tasks[k].any_bad[0] = 1
    tasks[k].bad[env, mount] = flag
    if tasks[k].pos_w.shape[0] > 0:
        tasks[k].pos_w[env, mount] = p
    if tasks[k].quat_w.shape[0] > 0:
        tasks[k].quat_w[env, mount] = q
    if tasks[k].projected_gravity_b.shape[0] > 0:
        tasks[k].projected_gravity_b[env, mount] = quat_rotate_inverse(q, wp.normalize(tasks[k].gravity[env]))
    if tasks[k].lin_vel_b.shape[0] > 0:
        tasks[k].lin_vel_b[env, mount] = quat_rotate_inverse(q, v)
    if tasks[k].ang_vel_b.shape[0] > 0:
        tasks[k].ang_vel_b[env, mount] = quat_rotate_inverse(q, w)
    if tasks[k].lin_acc_b.shape[0] > 0:
        f = a
        if tasks[k].force_bias.shape[0] > 0:
            f = f + tasks[k].force_bias[0]
        else:
            f = f - tasks[k].gravity[env]
        tasks[k].lin_acc_b[env, mount] = quat_rotate_inverse(q, f)
    if tasks[k].ang_acc_b.shape[0] > 0:
        tasks[k].ang_acc_b[env, mount] = quat_rotate_inverse(q, alpha)
    if tasks[k].mag_b.shape[0] > 0:
        tasks[k].mag_b[env, mount] = quat_rotate_inverse(q, tasks[k].magnetic[env % tasks[k].magnetic.shape[0]])


@kernel
def _imu_tick(rows: Rows, tasks: wp.array[ImuTask]) -> None:
    k, env = masked_tid(rows)
    t = tasks[k]
    t.last_tick[env] = wp.int32(tick_captured(rows))


class Imu(SimpleSensor[ImuCfg, ImuData]):
    """Inertial measurement unit at one or several mounts."""

    checks_state: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: ImuCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return the requirements of the selected fields only."""
        selected = set(cls._available(cfg, supports))
        yield BODY_POSE
        if selected & MOVING:
            yield BODY_VELOCITY
        if cls._from_engine(cfg, supports):
            yield BODY_ACCELERATION
        if "projected_gravity_b" in selected or ("lin_acc_b" in selected and cfg.gravity_bias is None):
            yield GRAVITY
        if "mag_b" in selected and cfg.magnetic_field is None:
            yield MAGNETIC

    @staticmethod
    def _available(cfg: ImuCfg, supports: Supports) -> tuple[str, ...]:
        """Return the selected fields, without `mag_b` where neither the engine nor the config provides a field."""
        knobs = [getattr(cfg, knob) for knob in COLUMN_KNOBS]
        has_knob = any(isinstance(knob, Mapping) and "mag_b" in knob for knob in knobs) or any(
            getattr(cfg, f"mag_{knob}") is not None for knob in COLUMN_KNOBS
        )
        is_optional = isinstance(cfg.fields, str) and cfg.magnetic_field is None and not has_knob
        is_absent = is_optional and "mag_b" in cfg.selected and supports(MAGNETIC) is not None
        return tuple(name for name in cfg.selected if name != "mag_b" or not is_absent)

    @staticmethod
    def _from_engine(cfg: ImuCfg, supports: Supports) -> bool:
        if not {"lin_acc_b", "ang_acc_b"} & set(cfg.selected) or cfg.acceleration == "difference":
            return False
        return cfg.acceleration == "engine" or supports(BODY_ACCELERATION) is None

    def fields(self) -> Mapping[str, Field]:
        """Return the selected fields."""
        declared = super().fields()
        fields = {name: declared[name] for name in self._available(self.cfg, self.engine.supports)}
        if "mag_b" in fields and self.cfg.magnetic_unit is not None:
            fields["mag_b"] = replace(fields["mag_b"], unit=self.cfg.magnetic_unit)
        return fields

    @cached_property
    def acceleration_source(self) -> str:
        """Source of accelerations: ``"engine"``, ``"difference"`` or ``"none"`` (no selected field needs them)."""
        if not {"lin_acc_b", "ang_acc_b"} & set(self.cfg.selected):
            return "none"
        return "engine" if self._from_engine(self.cfg, self.engine.supports) else "difference"

    def setup(self) -> None:
        """Allocate the memory of the differences."""
        self.notes["acceleration"] = self.acceleration_source
        self._difference = self.acceleration_source == "difference"
        if "mag_b" in self.cfg.selected and "mag_b" not in self.fields():
            self.notes["mag_b"] = "absent, because the engine has no magnetic field: give magnetic_field"
        shape = (self.mount.count, 3)
        if self._difference:
            self._last = [self.new_state("lin_vel", shape), self.new_state("ang_vel", shape)]
            self._last_capture = self.new_state("tick").view(torch.int32)

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Compute every selected field in one launch, shared by all IMUs of one rate."""
        cfg, names, engine, t = self.cfg, set(raw), self.engine, ImuTask()
        t.dt = self.clock.dt
        t.mounts = self.mount.warp_state(velocities=bool(names & MOVING))
        if self.acceleration_source == "engine":
            t.body_lin_acc = wp.from_torch(engine.array("body_lin_acc_w"), dtype=wp.vec3)
            t.body_ang_acc = wp.from_torch(engine.array("body_ang_acc_w"), dtype=wp.vec3)
        if "projected_gravity_b" in names or ("lin_acc_b" in names and cfg.gravity_bias is None):
            t.gravity = wp.from_torch(engine.array("gravity_w"), dtype=wp.vec3)

        if cfg.gravity_bias is not None:
            t.force_bias = wp.array([cfg.gravity_bias], dtype=wp.vec3, device=self.compute_on.wp_device)
        if cfg.magnetic_field is not None:
            t.magnetic = wp.array([cfg.magnetic_field], dtype=wp.vec3, device=self.compute_on.wp_device)
        elif "mag_b" in names:
            t.magnetic = wp.from_torch(engine.array("magnetic_w"), dtype=wp.vec3)
        for name in names:
            setattr(t, name, getattr(raw.warp, name))
        t.bad, t.any_bad = self.buffers.bad_wp, self.clock.bad_wp
        if self._difference:
            t.difference = 1
            t.last_lin_vel, t.last_ang_vel = (wp.from_torch(state, dtype=wp.vec3) for state in self._last)
            t.last_tick = wp.from_torch(self._last_capture, dtype=wp.int32)
        self.compute_on.launch_task(_imu, (self.mount.count,), t)
        if self._difference:
            self.compute_on.launch_task(_imu_tick, (), t)
