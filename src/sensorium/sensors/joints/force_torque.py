"""Six-axis force/torque sensor between a body and its parent, with the software of such a device: tare, tool weight.

Axes: ``[env, mount, xyz]`` (no mount axis for a singular selector). A mount is a joint, a site or a body. It is the
frame of the sensor, fixed to the child; the link from child to parent (joints of any kind, or a weld) carries the
sensor.

The truth is the whole wrench between child and parent. With f and m its force and its torque about the origin p of the
child body's frame, s the origin of the sensor and R its axes,

    force = R^T f        torque = R^T (m + (p - s) x f)

(Featherstone, Rigid Body Dynamics Algorithms, 2008, section 2.8). The sign depends on `on`: at rest a tool of mass M on
the child reads M g upwards.

Knobs and stages model the device: noise, crosstalk, drift, saturation and quantisation. Its software is applied last
and subtracts the assumed wrench of the tool, and the tare. For a tool of mass M with centre of mass at c, acceleration
a_c of that centre, gravity g, angular velocity w, angular acceleration alpha and inertia I about c, all in the sensor's
axes,

    force = M (a_c - g)        torque = c x M (a_c - g) + I alpha + w x I w        (Newton, Euler)

of which M (-g) and c x M (-g) are the weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import warp as wp
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Float, Vec3, bad, in_unit, is_finite, must
from sensorium.compute import Rows, is_first, kernel, masked_tid, recorded
from sensorium.engines.envs import env_rows
from sensorium.errors import ConfigError
from sensorium.geometry.transforms import quat_multiply, quat_rotate_inverse
from sensorium.measurement.record import Record
from sensorium.measurement.sensor_cfg import MountedSensorCfg
from sensorium.sensors.core.hooks import Supports, used_if
from sensorium.sensors.joints.wrench import WrenchSensor
from sensorium.spec import BODY_ACCELERATION, BODY_POSE, BODY_VELOCITY, GRAVITY, JOINT_WRENCH, Field, Requirement
from sensorium.world.mount import Mounts
from sensorium.world.select import Named


@dataclass(frozen=True, slots=True)
class ForceTorqueData:
    """One sample of force/torque sensors, in the sensors' frames."""

    force: Annotated[Tensor, Field("N", (3,), frame="sensor", role="vector_at", parity="polar")]
    """Force `[env, mount, 3]`, N."""
    torque: Annotated[Tensor, Field("N m", (3,), frame="sensor", parity="axial")]
    """Torque about the sensor's origin `[env, mount, 3]`, N m."""


class ForceTorqueCfg(MountedSensorCfg[ForceTorqueData]):
    """Configuration of force/torque sensors. Select joints, sites or bodies; `offset` moves and rotates the frame.

    The sensor measures the wrench between the selected element's body and its parent body.
    """

    on: Literal["child", "parent"] = "child"
    """``child``: wrench that the parent exerts on the child (at rest +M g upwards, as MuJoCo's force and torque
    sensors).
    ``parent``: the opposite wrench, which the child exerts on the parent; a tool that hangs on the sensor pulls it
    down."""
    tool_mass: Annotated[Float, must(lambda mass: 0.0 <= mass < math.inf, "a finite mass >= 0"), in_unit("kg")] = 0.0
    """Mass of the tool that the software compensates, kg. Its weight, along the true direction of gravity, is
    subtracted from the measured wrench. The truth is not compensated."""
    tool_com: Annotated[Vec3, must(is_finite, "finite numbers"), in_unit("m")] = (0.0, 0.0, 0.0)
    """Centre of mass of the tool in the sensor's frame, m."""
    compensate: Literal["weight", "motion"] = "weight"
    """``weight``: gravity only. ``motion``: also the force and torque that accelerate the tool, from the true
    motion."""
    tool_inertia: Annotated[
        Vec3, must(lambda row: is_finite(row) and min(row) >= 0.0, "finite numbers >= 0"), in_unit("kg m^2")
    ] = (0.0, 0.0, 0.0)
    """Moments of inertia of the tool about its centre of mass, along the sensor's axes, kg m^2; used with
    ``compensate="motion"``."""
    tare: bool | Literal["manual"] = False
    """True: the complete measured wrench of the first sample of an episode, noise included, is subtracted from then on;
    ``sensor.tare()`` repeats this. ``"manual"``: tare only by ``sensor.tare()``."""

    sits_on: ClassVar[tuple[str, tuple[str, ...]] | None] = (
        "a joint, a site or a body",
        ("joint", "joints", "site", "sites", "body", "bodies", "link_name", "link_names"),
    )

    @field_validator("tool_com")
    @classmethod
    def _of_a_tool(cls, value: Vec3, info: ValidationInfo) -> Vec3:
        if any(value) and info.data.get("tool_mass") == 0.0:
            raise bad("a tool_mass as well", "Give tool_mass=...")
        return value

    @field_validator("tool_inertia")
    @classmethod
    def _of_motion(cls, value: Vec3, info: ValidationInfo) -> Vec3:
        if any(value) and info.data.get("compensate") == "weight":
            raise bad(
                "0 unless compensate is 'motion'",
                "Give compensate='motion', since the weight does not depend on the inertia.",
            )
        return value

    @property
    def has_tool(self) -> bool:
        """Whether the software compensates a tool."""
        return self.tool_mass > 0.0 or (self.compensate == "motion" and any(self.tool_inertia))


@wp.struct
class SoftwareTask:
    """Data of one sensor's software for the kernel. Unused arrays have length 0."""

    sign: wp.float32
    mass: wp.float32
    com: wp.vec3
    inertia: wp.vec3
    tares_at_reset: wp.int32
    mounts: wp.array[Mounts]
    gravity: wp.array[wp.vec3]
    body_lin_acc: wp.array2d[wp.vec3]
    body_ang_acc: wp.array2d[wp.vec3]
    tare_force: wp.array2d[wp.vec3]
    tare_torque: wp.array2d[wp.vec3]
    untared_force: wp.array2d[wp.vec3]
    untared_torque: wp.array2d[wp.vec3]
    force: wp.array2d[wp.vec3]
    torque: wp.array2d[wp.vec3]


@kernel
def _software(rows: Rows, tasks: wp.array[SoftwareTask]) -> None:
    k, env, mount = masked_tid(rows)
    t = tasks[k]
    if mount >= t.force.shape[1]:
        return
    f = t.force[env, mount]
    m = t.torque[env, mount]
    if t.gravity.shape[0] > 0:
        body = t.mounts[0].body[mount]
        offset = t.mounts[0].offset_quat[env, mount]
        turn = quat_multiply(t.mounts[0].body_quat[env, body], offset)
        load = quat_rotate_inverse(turn, -t.gravity[env])
        spin = wp.vec3()
        if t.body_ang_acc.shape[0] > 0:
            w = quat_rotate_inverse(turn, t.mounts[0].body_ang_vel[env, body])
            alpha = quat_rotate_inverse(turn, t.body_ang_acc[env, body])
            c = t.com + quat_rotate_inverse(offset, t.mounts[0].offset_pos[env, mount])
            load = load + quat_rotate_inverse(turn, t.body_lin_acc[env, body])
            load = load + wp.cross(alpha, c) + wp.cross(w, wp.cross(w, c))
            spin = wp.cw_mul(t.inertia, alpha) + wp.cross(w, wp.cw_mul(t.inertia, w))
        f = f - t.sign * t.mass * load
        m = m - t.sign * (t.mass * wp.cross(t.com, load) + spin)
    if t.tare_force.shape[0] > 0:
        if t.tares_at_reset != 0 and is_first(rows, env):
            t.tare_force[env, mount] = f
            t.tare_torque[env, mount] = m
        t.untared_force[env, mount] = f
        t.untared_torque[env, mount] = m
        f = f - t.tare_force[env, mount]
        m = m - t.tare_torque[env, mount]
    t.force[env, mount] = f
    t.torque[env, mount] = m


TARE = ("tare_force", "tare_torque", "untared_force", "untared_torque")


class ForceTorque(WrenchSensor[ForceTorqueCfg, ForceTorqueData]):
    """Six-axis force/torque sensor at one or several joints, sites or bodies."""

    @classmethod
    def needs(cls, cfg: ForceTorqueCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return wrench and pose, and the requirements of the tool compensation."""
        yield JOINT_WRENCH
        yield BODY_POSE
        if cfg.has_tool:
            yield GRAVITY
            if cfg.compensate == "motion":
                yield BODY_VELOCITY
                yield BODY_ACCELERATION

    def setup(self) -> None:
        """Allocate the memory of the tare."""
        super().setup()
        cfg, giver = self.cfg, "parent" if self.cfg.on == "child" else "child"
        subtracted = [f"the tool's {cfg.compensate}"] if cfg.has_tool else []
        subtracted += ["the tare"] if cfg.tare else []
        self.notes = {
            "wrench": f"wrench that the {giver} exerts on the {cfg.on}",
            "point and axes": "those of the sensor: the mount's, moved and rotated by offset",
            "subtracted from the measured wrench": " and ".join(subtracted) or "nothing",
        }
        self._tare = [self.new_state(name, (self.mount.count, 3)) for name in TARE] if cfg.tare else []

    def tare(self, env_ids: Any = None) -> None:
        """Use the measured wrench of the newest sample as zero, from the next sample on.

        Args:
            env_ids: int ids, bool mask, or None for all.

        Raises:
            ConfigError: the config has no `tare`.
        """
        if not self.cfg.tare:
            fix = f"Give tare='manual', or scene.reconfigure({self.name!r}, tare='manual')."
            raise ConfigError.single(self.cfg.title, "tare", False, "'manual' or True", fix)
        self.ensure_current()
        rows = env_rows(env_ids, self.num_envs, self.device)
        which = slice(None) if rows is None else rows
        for tare, untared in zip(self._tare[:2], self._tare[2:], strict=True):
            tare[which] = untared[which]

    @recorded
    @used_if(lambda self: self.cfg.has_tool or self.cfg.tare)
    def derive_measured(self, slot: Record) -> None:
        """Subtract the tool and the tare from the measured wrench (one launch, or none without them)."""
        cfg, array, t = self.cfg, self.engine.array, SoftwareTask()
        moves = cfg.has_tool and cfg.compensate == "motion"
        t.sign, t.mass, t.com, t.inertia = self.sign, cfg.tool_mass, wp.vec3(*cfg.tool_com), wp.vec3(*cfg.tool_inertia)
        t.tares_at_reset, t.mounts = int(cfg.tare is True), self.mount.warp_state(velocities=moves)
        if cfg.has_tool:
            t.gravity = wp.from_torch(array("gravity_w"), dtype=wp.vec3)
        if moves:
            t.body_lin_acc = wp.from_torch(array("body_lin_acc_w"), dtype=wp.vec3)
            t.body_ang_acc = wp.from_torch(array("body_ang_acc_w"), dtype=wp.vec3)
        for name, state in zip(TARE, self._tare, strict=False):
            setattr(t, name, wp.from_torch(state, dtype=wp.vec3))
        t.force, t.torque = slot.warp.force, slot.warp.torque
        self.compute_on.launch_task(_software, (self.mount.count,), t)
