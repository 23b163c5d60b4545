"""Force and torque between two bodies through the joint that connects them.

Axes: ``[env, mount, xyz]`` (no mount axis for a singular selector). A mount is a joint, or a body with the connection
to its parent: joints of any kind, or a weld.

The wrench is everything that the joint transmits: the constraint force and the forces of actuators, springs, friction
and damping in it. With f and m its force and its torque about the origin p of the child body's frame, and a the anchor,

    force = R^T f        torque = R^T (m - (a - p) x f)

where R are the axes of the result (Featherstone, Rigid Body Dynamics Algorithms, 2008, section 2.8). At rest, the force
on a body of mass M is M g upwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from sensorium.engines.base import FrameOnBody
from sensorium.errors import ConfigError
from sensorium.measurement.sensor_cfg import MountedSensorCfg
from sensorium.sensors.core.parts import frame_rows
from sensorium.sensors.joints.wrench import WrenchSensor
from sensorium.spec import BODY_POSE, JOINT_WRENCH, Field, Requirement

WrenchFrame = Literal["joint", "child", "parent", "world"]


@dataclass(frozen=True, slots=True)
class JointWrenchData:
    """One sample of joint wrenches; the config defines frame and side."""

    force: Annotated[Tensor, Field("N", (3,), frame="sensor", role="vector_at", parity="polar")]
    """Force `[env, mount, 3]`, N."""
    torque: Annotated[Tensor, Field("N m", (3,), frame="sensor", parity="axial")]
    """Torque about the anchor `[env, mount, 3]`, N m."""


class JointWrenchCfg(MountedSensorCfg[JointWrenchData]):
    """Configuration of joint wrenches. Select joints of any kind, or bodies for the connection to their parent.

    The anchor is the joint's (for a body: the origin of its frame), moved and rotated by `offset`. If several joints
    connect a body to its parent, the wrench is that of all of them together, about the anchor of the selected joint.
    """

    frame: WrenchFrame = "joint"
    """Axes of force and torque. ``joint``: the joint's axes, fixed to the child: the child body's axes rotated by
    ``offset.rot`` (engines such as MuJoCo keep no separate axes per joint). ``child``: the child body's axes.
    ``parent``: the parent body's axes. ``world``: world axes. The torque is about the anchor in all four."""
    on: Literal["child", "parent"] = "child"
    """``child``: wrench that the parent exerts on the child (at rest +M g upwards). ``parent``: the opposite wrench,
    which the child exerts on the parent."""

    sits_on: ClassVar[tuple[str, tuple[str, ...]] | None] = (
        "a joint or a body", ("joint", "joints", "body", "bodies", "link_name", "link_names")
    )  # fmt: skip


FRAMES: tuple[WrenchFrame, ...] = ("joint", "child", "parent", "world")


class JointWrench(WrenchSensor[JointWrenchCfg, JointWrenchData]):
    """Wrench between child and parent, at one or several joints."""

    requires: ClassVar[tuple[Requirement, ...]] = (JOINT_WRENCH, BODY_POSE)

    def fields(self) -> Mapping[str, Field]:
        """Return force and torque, in the config's frame."""
        frame = "sensor" if self.cfg.frame == "joint" else self.cfg.frame
        return {name: replace(field, frame=frame) for name, field in super().fields().items()}

    def setup(self) -> None:
        """Look up the parents if their axes are needed."""
        super().setup()
        giver = "parent" if self.cfg.on == "child" else "child"
        axes = {
            "joint": "the joint's (the child body's, rotated by offset.rot)",
            "child": "the child body's",
            "parent": "the parent body's",
            "world": "the world's",
        }
        self.notes = {
            "wrench": f"wrench that the {giver} exerts on the {self.cfg.on}",
            "point": "the joint's anchor (of a body: its frame origin), moved by offset.pos",
            "axes": axes[self.cfg.frame],
        }
        needed = self.cfg.frame == "parent"
        parents = [self.engine.parent_body(body) if needed else -1 for body in self.mount.body.tolist()]
        if None in parents:
            fix = "Use 'joint', 'child' or 'world'."
            known = f"an engine that provides parents, which {self.engine.name!r} does not"
            raise ConfigError.single(self.cfg.title, "frame", "parent", known, fix)
        self._axes = FRAMES.index(self.cfg.frame)
        self._parents = torch.tensor(parents, dtype=torch.int32, device=self.device)

    def about_drawing(self) -> dict[str, Any]:
        """Return the frames of the bodies whose axes the wrenches have."""
        bodies = {"parent": self._parents, "child": self.mount.body}.get(self.cfg.frame)
        return {} if bodies is None else {"frames": frame_rows(map(FrameOnBody, bodies.tolist()))}
