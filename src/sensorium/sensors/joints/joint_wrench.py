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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from sensorium.cfg import MountedSensorCfg
from sensorium.compute import recorded
from sensorium.errors import ConfigError
from sensorium.measurement.record import Record
from sensorium.sensors.joints.wrench import WrenchSensor
from sensorium.spec import BODY_POSE, JOINT_WRENCH, Field, Requirement

WrenchFrame = Literal["joint", "child", "parent", "world"]


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

    sits_on: ClassVar[tuple[str, tuple[str, ...]] | None] = (
        "a joint or a body", ("joint", "joints", "body", "bodies", "link_name", "link_names")
    )  # fmt: skip


FRAMES: tuple[WrenchFrame, ...] = ("joint", "child", "parent", "world")


class JointWrench(WrenchSensor[JointWrenchCfg, JointWrenchData]):
    """Wrench between child and parent, at one or several joints."""

    requires: ClassVar[tuple[Requirement, ...]] = (JOINT_WRENCH, BODY_POSE)

    def fields(self) -> Mapping[str, Field]:
        """Return force and torque, in the frame that the config names."""
        frame = "sensor" if self.cfg.frame == "joint" else self.cfg.frame
        return {name: replace(field, frame=frame) for name, field in super().fields().items()}

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
        super().setup()
        self.notes = self._notes()
        needed = self.cfg.frame == "parent"
        parents = [self.engine.parent_body(body) if needed else -1 for body in self.mount.body.tolist()]
        if None in parents:
            fix = "Use 'joint', 'child' or 'world'."
            title, known = (
                f"{type(self.cfg).__name__}({self.name!r})",
                f"an engine that knows parents, not {self.engine.name!r}",
            )
            raise ConfigError.single(title, "frame", "parent", known, fix)
        self._parents = torch.tensor(parents, dtype=torch.int32, device=self.device)

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Move and turn the wrenches in one launch."""
        self.measure(raw, FRAMES.index(self.cfg.frame), self._parents)
