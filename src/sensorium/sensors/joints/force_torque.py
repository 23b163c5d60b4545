"""Six-axis force/torque sensor between a body and its parent, with the software of such a device: tare, tool weight.

Axes: ``[env, mount, xyz]`` (no mount axis for a singular selector). A mount is a joint, a site or a body: the frame of
the sensor, fixed to the child, whose link to its parent (joints of any kind, or a weld) carries it.

The truth is the whole wrench that passes between child and parent. With f and m its force and its torque about the
origin p of the child body's frame, s the origin of the sensor and R its axes,

    force = R^T f        torque = R^T (m + (p - s) x f)

(Featherstone, Rigid Body Dynamics Algorithms, 2008, section 2.8). The sign is that of `on`: at rest a tool of mass M on
the child reads M g upwards.

Measured: noise, crosstalk, drift, saturation and quantisation are the device's, by knobs and stages. Its software
comes last and subtracts what it takes the tool to weigh, and the tare. For a tool of mass M whose centre of mass is at
c, that has the acceleration a_c, with gravity g, angular velocity w, angular acceleration alpha, inertia I about c, all
in the sensor's axes,

    force = M (a_c - g)        torque = c x M (a_c - g) + I alpha + w x I w        (Newton, Euler)

of which only M (-g) and c x M (-g) are the weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
import warp as wp
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Float, MountedSensorCfg, Vec3, bad
from sensorium.compute import Rows, is_first, kernel, recorded
from sensorium.engines.envs import env_rows
from sensorium.errors import ConfigError, Fault
from sensorium.geometry.transforms import quat_multiply, quat_rotate, quat_rotate_inverse
from sensorium.measurement.record import Record
from sensorium.readings import DebugShape
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports, used_if
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    BODY_VELOCITY,
    GRAVITY,
    JOINT_WRENCH,
    Field,
    Requirement,
)
from sensorium.world.mount import is_finite3, is_finite4
from sensorium.world.select import Named

SELECTABLE = ("joint", "joints", "site", "sites", "body", "bodies", "link_name", "link_names")


@dataclass(frozen=True, slots=True)
class ForceTorqueData:
    """One sample of force/torque sensors, in their own axes."""

    force: Annotated[Tensor, Field("N", (3,), frame="sensor", role="vector_at")]
    """Force `[env, mount, 3]`, N."""
    torque: Annotated[Tensor, Field("N m", (3,), frame="sensor")]
    """Torque about the sensor's origin `[env, mount, 3]`, N m."""


class ForceTorqueCfg(MountedSensorCfg[ForceTorqueData]):
    """Configuration of force/torque sensors. Select joints, sites or bodies; `offset` moves and turns the sensor there.

    What is measured is what joins the body that the selected element belongs to with its parent body.
    """

    on: Literal["child", "parent"] = "child"
    """``child``: what the parent exerts on the child (at rest: +M g upwards; as MuJoCo's force and torque sensors).
    ``parent``: the opposite, what the child exerts on the parent: a tool that hangs on the sensor pulls it down."""
    tool_mass: Float = 0.0
    """Mass of the tool that the software compensates, kg: its weight, in the true direction of gravity, is subtracted
    from the measured wrench. The truth is not compensated."""
    tool_com: Vec3 = (0.0, 0.0, 0.0)
    """Centre of mass of the tool in the sensor's frame, m."""
    tool_inertia: Vec3 = (0.0, 0.0, 0.0)
    """Moments of inertia of the tool about its centre of mass, along the sensor's axes, kg m^2; used with
    ``compensate="motion"``."""
    compensate: Literal["weight", "motion"] = "weight"
    """``weight``: gravity only. ``motion``: also what it takes to accelerate the tool, from the true motion."""
    tare: bool | Literal["manual"] = False
    """True: the measured wrench of the first sample of an episode, after all else, is subtracted from then on, noise
    and all; ``sensor.tare()`` does it anew. ``"manual"``: by ``sensor.tare()`` only."""

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**data)
        selector, value = self.selector
        faults = []
        if selector not in SELECTABLE or (self.is_plural is False and value == "world"):
            faults.append(Fault(selector, repr(value), f"a joint, a site or a body, by one of {', '.join(SELECTABLE)}"))
        if any(self.tool_com) and self.tool_mass == 0.0:
            faults.append(Fault("tool_com", str(self.tool_com), "a tool_mass beside it", "Give tool_mass=..."))
        if any(self.tool_inertia) and self.compensate == "weight":
            fix = "Give compensate='motion'; the weight does not depend on it."
            faults.append(Fault("tool_inertia", str(self.tool_inertia), "it only with compensate='motion'", fix))
        if faults:
            raise ConfigError(f"{type(self).__name__}({self.label!r})", faults)

    @field_validator("tool_mass", "tool_com", "tool_inertia")
    @classmethod
    def _tool(cls, value: Any, info: ValidationInfo) -> Any:
        numbers = value if isinstance(value, tuple) else (value,)
        least = -math.inf if info.field_name == "tool_com" else 0.0
        if not all(math.isfinite(number) and number >= least for number in numbers):
            raise bad("finite numbers" if info.field_name == "tool_com" else "nothing negative, and finite")
        return value

    @property
    def has_tool(self) -> bool:
        """Whether the software compensates a tool."""
        return self.tool_mass > 0.0 or (self.compensate == "motion" and any(self.tool_inertia))


@kernel
def _wrench(
    rows: Rows,
    sign: float,
    body_in: wp.array[wp.int32],
    offset_pos_in: wp.array2d[wp.vec3],
    offset_quat_in: wp.array2d[wp.vec4],
    body_quat_in: wp.array2d[wp.vec4],
    force_in: wp.array2d[wp.vec3],
    torque_in: wp.array2d[wp.vec3],
    force_out: wp.array2d[wp.vec3],
    torque_out: wp.array2d[wp.vec3],
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    body = body_in[mount]
    child = body_quat_in[env, body]
    arm = quat_rotate(child, offset_pos_in[env, mount])
    turn = quat_multiply(child, offset_quat_in[env, mount])
    force = sign * force_in[env, body]
    torque = sign * torque_in[env, body] - wp.cross(arm, force)
    force_out[env, mount] = quat_rotate_inverse(turn, force)
    torque_out[env, mount] = quat_rotate_inverse(turn, torque)
    flag = wp.uint8(0)
    if not (is_finite3(force) and is_finite3(torque) and is_finite4(turn)):
        flag = wp.uint8(1)
        any_bad[0] = 1
    bad_out[env, mount] = flag


@kernel
def _software(
    rows: Rows,
    sign: float,
    mass: float,
    com: wp.vec3,
    inertia: wp.vec3,
    tares_at_reset: int,
    body_in: wp.array[wp.int32],
    offset_pos_in: wp.array2d[wp.vec3],
    offset_quat_in: wp.array2d[wp.vec4],
    # Engine; a first axis of length 0 means that it is not needed
    body_quat_in: wp.array2d[wp.vec4],
    gravity_in: wp.array[wp.vec3],
    ang_vel_in: wp.array2d[wp.vec3],
    lin_acc_in: wp.array2d[wp.vec3],
    ang_acc_in: wp.array2d[wp.vec3],
    tare_force: wp.array2d[wp.vec3],
    tare_torque: wp.array2d[wp.vec3],
    untared_force: wp.array2d[wp.vec3],
    untared_torque: wp.array2d[wp.vec3],
    force: wp.array2d[wp.vec3],
    torque: wp.array2d[wp.vec3],
) -> None:
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    f = force[env, mount]
    m = torque[env, mount]
    if gravity_in.shape[0] > 0:
        body = body_in[mount]
        child = body_quat_in[env, body]
        turn = quat_multiply(child, offset_quat_in[env, mount])
        load = quat_rotate_inverse(turn, -gravity_in[env])
        spin = wp.vec3()
        if ang_acc_in.shape[0] > 0:
            w = quat_rotate_inverse(turn, ang_vel_in[env, body])
            alpha = quat_rotate_inverse(turn, ang_acc_in[env, body])
            c = com + quat_rotate_inverse(offset_quat_in[env, mount], offset_pos_in[env, mount])
            load = load + quat_rotate_inverse(turn, lin_acc_in[env, body])
            load = load + wp.cross(alpha, c) + wp.cross(w, wp.cross(w, c))
            spin = wp.cw_mul(inertia, alpha) + wp.cross(w, wp.cw_mul(inertia, w))
        f = f - sign * mass * load
        m = m - sign * (mass * wp.cross(com, load) + spin)
    if tare_force.shape[0] > 0:
        if tares_at_reset != 0 and is_first(rows, env):
            tare_force[env, mount] = f
            tare_torque[env, mount] = m
        untared_force[env, mount] = f
        untared_torque[env, mount] = m
        f = f - tare_force[env, mount]
        m = m - tare_torque[env, mount]
    force[env, mount] = f
    torque[env, mount] = m


class ForceTorque(SimpleSensor[ForceTorqueCfg, ForceTorqueData]):
    """Six-axis force/torque sensor at one or several joints, sites or bodies."""

    checks_state: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: ForceTorqueCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return wrench and pose, and what the compensation of a tool needs."""
        yield JOINT_WRENCH
        yield BODY_POSE
        if cfg.has_tool:
            yield GRAVITY
            if cfg.compensate == "motion":
                yield BODY_VELOCITY
                yield BODY_ACCELERATION

    def _notes(self) -> dict[str, str]:
        """Return whose wrench it is, about which point and in which axes, and what the software does."""
        cfg, giver = self.cfg, "parent" if self.cfg.on == "child" else "child"
        subtracted = [f"the tool's {cfg.compensate}"] if cfg.has_tool else []
        subtracted += ["the tare"] if cfg.tare else []
        return {
            "wrench": f"what the {giver} exerts on the {cfg.on}",
            "point and axes": "the sensor's own: the mount's, moved and turned by offset",
            "subtracted from the measured wrench": " and ".join(subtracted) or "nothing",
        }

    def setup(self) -> None:
        """Make the memory of the tare."""
        self.notes = self._notes()
        for name, body in zip(self.mount.names, self.mount.body.tolist(), strict=True):
            if body < 0:
                title = f"{type(self.cfg).__name__}({self.name!r})"
                fix = "It is the world's, which has no parent."
                raise ConfigError.single(title, self.cfg.selector[0], name, "something that moves", fix)
        if self.cfg.tare:
            names = ("tare_force", "tare_torque", "untared_force", "untared_torque")
            self._tare = [self.new_state(name, (self.mount.count, 3)) for name in names]

    def tare(self, env_ids: Any = None) -> None:
        """Take the measured wrench of the newest sample for zero, from the next sample on.

        Args:
            env_ids: int ids, bool mask, or None for all.

        Raises:
            ConfigError: the config has no `tare`.
        """
        if not self.cfg.tare:
            fix = f"Give tare='manual', or scene.reconfigure({self.name!r}, tare='manual')."
            raise ConfigError.single(
                f"{type(self.cfg).__name__}({self.name!r})", "tare", False, "'manual' or True", fix
            )
        self.ensure_current()
        rows = env_rows(env_ids, self.num_envs, self.device)
        which = slice(None) if rows is None else rows
        for tare, untared in zip(self._tare[:2], self._tare[2:], strict=True):
            tare[which] = untared[which]

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Move and turn the wrenches in one launch."""
        array = self.engine.array
        self.compute_on.launch(
            _wrench,
            (self.mount.count,),
            [
                1.0 if self.cfg.on == "child" else -1.0,
                *self.mount.warp_inputs,
                wp.from_torch(array("body_quat_w"), dtype=wp.vec4),
                wp.from_torch(array("body_parent_force_w"), dtype=wp.vec3),
                wp.from_torch(array("body_parent_torque_w"), dtype=wp.vec3),
            ],
            [raw.warp.force, raw.warp.torque, self.buffers.bad_wp, self.clock.bad_wp],
        )

    @recorded
    @used_if(lambda self: self.cfg.has_tool or self.cfg.tare)
    def derive_measured(self, slot: Record) -> None:
        """Subtract the tool and the tare from the measured wrench (one launch, none without them)."""
        cfg, device = self.cfg, self.device
        none = torch.zeros((0, 1, 3), dtype=torch.float32, device=device)

        def vectors(name: str, needed: bool) -> Any:
            return wp.from_torch(self.engine.array(name) if needed else none, dtype=wp.vec3)

        moves = cfg.has_tool and cfg.compensate == "motion"
        self.compute_on.launch(
            _software,
            (self.mount.count,),
            [
                1.0 if cfg.on == "child" else -1.0,
                cfg.tool_mass,
                wp.vec3(*cfg.tool_com),
                wp.vec3(*cfg.tool_inertia),
                int(cfg.tare is True),
                *self.mount.warp_inputs,
                wp.from_torch(self.engine.array("body_quat_w"), dtype=wp.vec4),
                wp.from_torch(self.engine.array("gravity_w") if cfg.has_tool else none[:, 0], dtype=wp.vec3),
                vectors("body_ang_vel_w", moves),
                vectors("body_lin_acc_w", moves),
                vectors("body_ang_acc_w", moves),
            ],
            [
                *(wp.from_torch(state, dtype=wp.vec3) for state in (self._tare if cfg.tare else [none] * 4)),
                slot.warp.force,
                slot.warp.torque,
            ],
        )

    def debug_draw(self) -> Iterable[DebugShape]:
        """Draw the true force as an arrow at each sensor, 0.01 m per N."""
        self.ensure_current()
        sign = 1.0 if self.cfg.on == "child" else -1.0
        force = sign * self.engine.array("body_parent_force_w")[:, self.mount.body.long()]
        pos = self.mount.pos_w
        yield DebugShape("arrows", torch.stack([pos, pos + 0.01 * force], dim=-2).reshape(-1, 2, 3).cpu().numpy())
