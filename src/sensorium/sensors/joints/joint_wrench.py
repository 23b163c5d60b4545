"""Force and torque that bodies exert on each other through the joint between them.

Axes: ``[env, mount, xyz]`` (no mount axis for a singular selector). A mount is a joint, or a body and what joins it to
its parent: joints of any kind, or a weld.

The wrench is all that the joint passes on: the constraint, and what actuators, springs, friction and damping do in it.
With f and m its force and its torque about the origin p of the child body's frame, and a the anchor,

    force = R^T f        torque = R^T (m - (a - p) x f)

where R are the axes it is expressed in (Featherstone, Rigid Body Dynamics Algorithms, 2008, section 2.8). At rest a
body of mass M is held up: the force on it is M g upwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
import warp as wp
from torch import Tensor

from sensorium.cfg import MountedSensorCfg
from sensorium.compute import Rows, kernel, recorded
from sensorium.errors import ConfigError, Fault
from sensorium.geometry.transforms import quat_multiply, quat_rotate, quat_rotate_inverse
from sensorium.measurement.record import Record
from sensorium.readings import DebugShape
from sensorium.sensors.core.base import SimpleSensor
from sensorium.spec import BODY_POSE, JOINT_WRENCH, Field, Requirement
from sensorium.world.mount import is_finite3, is_finite4

WrenchFrame = Literal["joint", "child", "parent", "world"]
SELECTABLE = ("joint", "joints", "body", "bodies", "link_name", "link_names")


@dataclass(frozen=True, slots=True)
class JointWrenchData:
    """One sample of joint wrenches; frame and side are those of the config."""

    force: Annotated[Tensor, Field("N", (3,), frame="sensor", role="vector_at")]
    """Force `[env, mount, 3]`, N."""
    torque: Annotated[Tensor, Field("N m", (3,), frame="sensor")]
    """Torque about the anchor `[env, mount, 3]`, N m."""


class JointWrenchCfg(MountedSensorCfg[JointWrenchData]):
    """Configuration of joint wrenches. Select joints of any kind, or bodies: each with what joins it to its parent.

    The anchor is the joint's (for a body: the origin of its frame), moved and turned by `offset`. Where several joints
    join one body to its parent, the wrench is that of all of them together, about the anchor of the one that is named.
    """

    frame: WrenchFrame = "joint"
    """Axes of force and torque. ``joint``: the joint's, fixed to the child; they are the child body's own axes turned
    by ``offset.rot`` (an engine that keeps no axes per joint, such as MuJoCo, has no others). ``child``: the child
    body's. ``parent``: the parent body's. ``world``: the world's. The torque is about the anchor in each of them."""
    on: Literal["child", "parent"] = "child"
    """``child``: what the parent exerts on the child (at rest: +M g upwards). ``parent``: the opposite, what the child
    exerts on the parent."""

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**data)
        selector, value = self.selector
        if selector not in SELECTABLE or (self.is_plural is False and value == "world"):
            fault = Fault(selector, repr(value), f"a joint or a body, by one of {', '.join(SELECTABLE)}")
            raise ConfigError(f"{type(self).__name__}({self.label!r})", [fault])


@kernel
def _wrench(
    rows: Rows,
    sign: float,
    axes: int,
    body_in: wp.array[wp.int32],
    offset_pos_in: wp.array2d[wp.vec3],
    offset_quat_in: wp.array2d[wp.vec4],
    parent_in: wp.array[wp.int32],
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
    force = sign * force_in[env, body]
    torque = sign * torque_in[env, body] - wp.cross(arm, force)
    turn = wp.vec4(1.0, 0.0, 0.0, 0.0)
    if axes == 0:
        turn = quat_multiply(child, offset_quat_in[env, mount])
    elif axes == 1:
        turn = child
    elif axes == 2 and parent_in[mount] >= 0:
        turn = body_quat_in[env, parent_in[mount]]
    force_out[env, mount] = quat_rotate_inverse(turn, force)
    torque_out[env, mount] = quat_rotate_inverse(turn, torque)
    flag = wp.uint8(0)
    if not (is_finite3(force) and is_finite3(torque) and is_finite4(turn)):
        flag = wp.uint8(1)
        any_bad[0] = 1
    bad_out[env, mount] = flag


FRAMES: tuple[WrenchFrame, ...] = ("joint", "child", "parent", "world")


class JointWrench(SimpleSensor[JointWrenchCfg, JointWrenchData]):
    """Wrench between child and parent, at one or several joints."""

    requires: ClassVar[tuple[Requirement, ...]] = (JOINT_WRENCH, BODY_POSE)
    checks_state: ClassVar[bool] = True

    def fields(self) -> Mapping[str, Field]:
        """Return force and torque, in the frame that the config names."""
        if self.cfg.frame == "joint":
            return super().fields()
        frame = "world" if self.cfg.frame == "world" else self.cfg.frame
        return {
            name: Field(field.unit, field.shape, frame=frame, role=field.role)
            for name, field in super().fields().items()
        }

    def _notes(self) -> dict[str, str]:
        """Return whose wrench it is, about which point and in which axes."""
        giver = "parent" if self.cfg.on == "child" else "child"
        axes = {
            "joint": "the joint's (the child body's, turned by offset.rot)",
            "child": "the child body's",
            "parent": "the parent body's",
            "world": "the world's",
        }
        return {
            "wrench": f"what the {giver} exerts on the {self.cfg.on}",
            "point": "the joint's anchor (of a body: its frame origin), moved by offset.pos",
            "axes": axes[self.cfg.frame],
        }

    def setup(self) -> None:
        """Find the parents, where their axes are asked for."""
        self.notes = self._notes()
        bodies = self.mount.body.tolist()
        title = f"{type(self.cfg).__name__}({self.name!r})"
        for name, body in zip(self.mount.names, bodies, strict=True):
            if body < 0:
                raise ConfigError.single(
                    title, self.cfg.selector[0], name, "something that moves", "It is the world's."
                )
        parents = [self.engine.parent_body(body) if self.cfg.frame == "parent" else -1 for body in bodies]
        if None in parents:
            fix = "Use 'joint', 'child' or 'world'."
            raise ConfigError.single(
                title, "frame", "parent", f"an engine that knows parents, not {self.engine.name!r}", fix
            )
        self._parents = torch.tensor(parents, dtype=torch.int32, device=self.device)

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Move and turn the wrenches in one launch."""
        array = self.engine.array
        self.compute_on.launch(
            _wrench,
            (self.mount.count,),
            [
                1.0 if self.cfg.on == "child" else -1.0,
                FRAMES.index(self.cfg.frame),
                *self.mount.warp_inputs,
                wp.from_torch(self._parents, dtype=wp.int32),
                wp.from_torch(array("body_quat_w"), dtype=wp.vec4),
                wp.from_torch(array("body_parent_force_w"), dtype=wp.vec3),
                wp.from_torch(array("body_parent_torque_w"), dtype=wp.vec3),
            ],
            [
                raw.warp.force,
                raw.warp.torque,
                self.buffers.bad_wp,
                self.clock.bad_wp,
            ],
        )

    def debug_draw(self) -> Iterable[DebugShape]:
        """Draw the force as an arrow at each anchor, 0.01 m per N."""
        self.ensure_current()
        sign = 1.0 if self.cfg.on == "child" else -1.0
        force = sign * self.engine.array("body_parent_force_w")[:, self.mount.body.long()]
        pos = self.mount.pos_w
        yield DebugShape("arrows", torch.stack([pos, pos + 0.01 * force], dim=-2).reshape(-1, 2, 3).cpu().numpy())
