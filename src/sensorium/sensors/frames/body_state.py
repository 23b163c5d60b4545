"""State of bodies: pose and velocity in the world, as a motion-capture system reports them.

Axes: ``[env, mount, ...]``, one mount per body (no mount axis for a singular selector); ``_w`` world axes.

With d the offset of a mount on its body in world axes, and p, v and w the position, velocity and angular velocity of
the body's frame: p_m = p + d, v_m = v + w x d, w_m = w. Without an offset it is the origin of the body frame.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import warp as wp
from torch import Tensor

from sensorium.compute import Rows, kernel, masked_tid, recorded
from sensorium.measurement.record import Record
from sensorium.measurement.sensor_cfg import SELECTORS, MountedSensorCfg
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports
from sensorium.spec import BODY_POSE, BODY_VELOCITY, SHAPES, Field, Requirement
from sensorium.world.bodies import body_boxes
from sensorium.world.mount import Mounts, flag_state, is_finite3, is_finite4, mount_motion
from sensorium.world.select import Named, entity_of

Three = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class BodyStateData:
    """One sample of the state of bodies; fields that the config does not select are None."""

    pos_w: Annotated[Tensor, Field("m", (3,), frame="world", role="point", parity="polar")]
    """Position in the world, m."""
    quat_w: Annotated[Tensor, Field("1", (4,), frame="world", kind="rotation", role="pose")]
    """Orientation in the world, unit quaternion (w, x, y, z)."""
    lin_vel_w: Annotated[Tensor, Field("m/s", (3,), frame="world", role="vector_at", parity="polar")]
    """Velocity of that point relative to the world, world axes, m/s."""
    ang_vel_w: Annotated[Tensor, Field("rad/s", (3,), frame="world", role="angular_velocity", parity="axial")]
    """Angular velocity relative to the world, world axes, rad/s."""
    body_names: tuple[str, ...]
    """Name of the body of each mount."""
    entities: tuple[str, ...]
    """Entity of each mount: the part of its name before the first ``/``, empty where there is none."""
    centers: tuple[Three, ...]
    """Centre of the bounding box of each body's shapes, in the frame of the body, m."""
    half_extents: tuple[Three, ...]
    """Half the size of that box, m; 0 if a body has no bounded shape or the engine provides no shapes."""


FIELDS = ("pos_w", "quat_w", "lin_vel_w", "ang_vel_w")
VELOCITIES = ("lin_vel_w", "ang_vel_w")


class BodyStateCfg(MountedSensorCfg[BodyStateData]):
    """Configuration of the state of bodies. By default it selects all bodies: ``bodies=".*"``."""

    fields: tuple[str, ...] | Literal["all"] = "all"
    """Computed fields: any of pos_w, quat_w, lin_vel_w and ang_vel_w."""
    selectable: ClassVar[tuple[str, ...]] = FIELDS

    if not TYPE_CHECKING:  # type checkers derive the arguments from the fields

        def __init__(self, /, **data: Any) -> None:
            if not any(name in data for name in SELECTORS):
                data["bodies"] = ".*"
            super().__init__(**data)

    @classmethod
    def example(cls) -> Self:
        """Return a config for `sensorium.testing.tumbling_engine`: all bodies."""
        return cls()


@wp.struct
class BodyStateTask:
    """Data of one sensor for the kernel. Unused outputs have length 0."""

    mounts: wp.array[Mounts]
    # Output
    pos_w: wp.array2d[wp.vec3]
    quat_w: wp.array2d[wp.vec4]
    lin_vel_w: wp.array2d[wp.vec3]
    ang_vel_w: wp.array2d[wp.vec3]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@kernel
def _body_state(rows: Rows, tasks: wp.array[BodyStateTask]) -> None:
    k, env, mount = masked_tid(rows)
    t = tasks[k]
    if mount >= t.bad.shape[1]:
        return
    p, q, v, w, _arm = mount_motion(t.mounts, env, mount)
    flag_state(t.bad, t.any_bad, env, mount, is_finite3(p) and is_finite4(q) and is_finite3(v) and is_finite3(w))
    if t.pos_w.shape[0] > 0:
        t.pos_w[env, mount] = p
    if t.quat_w.shape[0] > 0:
        t.quat_w[env, mount] = q
    if t.lin_vel_w.shape[0] > 0:
        t.lin_vel_w[env, mount] = v
    if t.ang_vel_w.shape[0] > 0:
        t.ang_vel_w[env, mount] = w


class BodyState(SimpleSensor[BodyStateCfg, BodyStateData]):
    """Pose and velocity of one or several bodies."""

    checks_state: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: BodyStateCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return the requirements of the selected fields, and shapes for the boxes if the engine provides them."""
        yield BODY_POSE
        if set(cfg.selected) & set(VELOCITIES):
            yield BODY_VELOCITY
        if supports(SHAPES) is None:
            yield SHAPES

    def setup(self) -> None:
        """Store the names of the bodies, their entities and their bounding boxes."""
        names = self.mount.body_names
        boxes = [[0.0] * 6] * len(names)
        if self.engine.supports(SHAPES) is None:
            known = {name: box for name, box in zip(self.engine.names("body"), body_boxes(self.engine), strict=True)}
            boxes = [known[name].tolist() if name in known else [0.0] * 6 for name in names]
        self.body_names, self.entities = tuple(names), tuple(map(entity_of, names))
        self.centers = tuple(tuple(box[:3]) for box in boxes)
        self.half_extents = tuple(tuple(box[3:]) for box in boxes)

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Compute all selected fields in one launch, shared by all such sensors of one rate."""
        t = BodyStateTask()
        t.mounts = self.mount.warp_state(velocities=bool(set(self.cfg.selected) & set(VELOCITIES)))
        for name in self.cfg.selected:
            setattr(t, name, getattr(raw.warp, name))
        t.bad, t.any_bad = self.buffers.bad_wp, self.clock.bad_wp
        self.compute_on.launch_task(_body_state, (self.mount.count,), t)
