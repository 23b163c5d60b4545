"""Safe distance: the bodies inside a box around the body that the sensor is mounted on.

Axes: ``[env, event]``; `count` is the number of filled rows of an env, which come first. Published, recorded and
streamed data hold the filled rows only, see `Reading.offsets`. The sensor's frame is x forward, y left, z up.

The distances are f to the front, b to the back and l to each side. In the sensor's frame the centre of the box is at
x = (f - b)/2, y = z = 0. Its half-extents are ((f + b)/2, l, 0) plus those of the bounding box of the sensor's body,
which are added without rotation. A body is inside if its own bounding box, which rotates with it, overlaps or touches
this box. A body without shapes has no bounding box, so it is never inside.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import warp as wp
from pydantic import Field as Described
from pydantic import field_validator, model_validator
from torch import Tensor

from sensorium.cfg import Float, bad, in_unit, must
from sensorium.compute import Rows, kernel, masked_tid, recorded
from sensorium.errors import Fault, SelectionError, listed
from sensorium.geometry.boxes import ENDLESS, boxes_overlap, quat_matrix
from sensorium.measurement.record import Record
from sensorium.measurement.sensor_cfg import MountedSensorCfg, one_place
from sensorium.sensors.core.base import SimpleSensor
from sensorium.spec import BODY_POSE, SHAPES, Field
from sensorium.world.bodies import body_boxes, tree_of
from sensorium.world.mount import Mounts, flag_state, is_finite3, is_finite4, mount_pose
from sensorium.world.select import entity_of

NONE = -1
"""Id in an empty row."""


@dataclass(frozen=True, slots=True)
class SafeDistanceData:
    """The bodies inside the box at one tick; rows beyond `count` are empty."""

    count: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Number of filled rows."""
    body: Annotated[Tensor, Field("1", (1,), ("event",), dtype="int32", kind="id")]
    """Id of each body inside, ascending: its index in the engine's list of bodies; -1 for an empty row."""


def _distance(default: float) -> Any:
    """Return the annotations of a distance with its recommended value."""
    return Described(default, examples=[default])


class SafeDistanceCfg(MountedSensorCfg[SafeDistanceData]):
    """Configuration of the bodies inside a box around the sensor's body. On the world the box has no height.

    The body itself is never inside.
    """

    safe_distance_front: Annotated[Float, in_unit("m")] = _distance(1.0)
    """Forward extent of the box from the sensor, beyond the body's own size, m."""
    safe_distance_back: Annotated[Float, in_unit("m")] = _distance(0.5)
    """Backward extent, m; negative if the box begins in front of the sensor."""
    safe_distance_lateral: Annotated[
        Float, must(lambda side: 0.0 <= side < math.inf, "a finite distance >= 0"), in_unit("m", minimum=0.0)
    ] = _distance(0.5)
    """Extent to each side, m."""
    entity: str = ""
    """Full-match pattern of the entities whose bodies count; empty for all."""
    exclude_own_links: bool = True
    """Whether the other bodies of the body's kinematic tree never count."""

    @classmethod
    def example(cls) -> Self:
        """Return a config for an engine with a body ``"body"``."""
        return cls(body="body")

    @model_validator(mode="after")
    def _forms_a_box(self) -> Self:
        if not 0.0 <= self.safe_distance_front + self.safe_distance_back < math.inf:
            raise bad("safe_distance_front, safe_distance_back: finite distances whose sum is >= 0")
        return self

    @field_validator("entity")
    @classmethod
    def _is_pattern(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise bad("a regular expression", f"The regular expression is invalid: {error}.") from None
        return value

    _one_place = field_validator("sites", "bodies", "geoms", "joints", "cameras", "link_names")(one_place)


@wp.struct
class Guard:
    """Data of one sensor for the kernel: its box, and the bodies that may be inside."""

    mounts: wp.array[Mounts]
    center: wp.vec3d
    half: wp.vec3d
    bodies: wp.array[wp.int32]
    centers: wp.array[wp.vec3d]
    halves: wp.array[wp.vec3d]
    # Output
    count: wp.array[wp.int32]
    inside: wp.array2d[wp.int32]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@kernel
def _guard(rows: Rows, tasks: wp.array[Guard]) -> None:
    k, env = masked_tid(rows)
    t = tasks[k]
    pos, quat = mount_pose(t.mounts, env, 0)
    flag_state(t.bad, t.any_bad, env, 0, is_finite3(pos) and is_finite4(quat))
    turn = quat_matrix(quat)
    middle = wp.vec3d(wp.float64(pos[0]), wp.float64(pos[1]), wp.float64(pos[2])) + turn * t.center
    count = wp.int32(0)
    for row in range(t.bodies.shape[0]):
        body = t.bodies[row]
        p = t.mounts[0].body_pos[env, body]
        between = wp.vec3d(wp.float64(p[0]), wp.float64(p[1]), wp.float64(p[2])) - middle
        reach = wp.length(t.half) + wp.length(t.halves[row]) + wp.length(t.centers[row])
        if wp.length(between) <= reach * wp.float64(1.000001):  # False for values that are not finite
            other = quat_matrix(t.mounts[0].body_quat[env, body])
            if boxes_overlap(between + other * t.centers[row], turn, t.half, other, t.halves[row]):
                t.inside[env, count] = body
                count += 1
    t.count[env] = count
    for row in range(count, t.inside.shape[1]):
        t.inside[env, row] = wp.static(NONE)


class SafeDistance(SimpleSensor[SafeDistanceCfg, SafeDistanceData]):
    """The bodies inside a box around the body that the sensor is mounted on."""

    requires = (BODY_POSE, SHAPES)
    checks_state: ClassVar[bool] = True

    @cached_property
    def candidates(self) -> list[int]:
        """Ids of the bodies that may be inside, ascending.

        Raises:
            SelectionError: no entity matches the pattern.
        """
        names, boxes = self.engine.names("body"), body_boxes(self.engine)
        pattern = self.cfg.entity or ".*"
        matching = [row for row, name in enumerate(names) if re.fullmatch(pattern, entity_of(name))]
        if names and not matching:
            there = listed(sorted({entity_of(name) or "''" for name in names}))
            fault = Fault("entity", repr(pattern), "a pattern of an entity", f"There are: {there}.")
            raise SelectionError(self.cfg.title, [fault])
        body = int(self.mount.body[0])
        own = {body} if body < 0 or not self.cfg.exclude_own_links else tree_of(body, self.engine)[1]
        return [row for row in matching if row not in own and boxes[row, 3:].any()]

    def about_drawing(self) -> dict[str, Any]:
        """Return the box."""
        return {"box": [*self.center.tolist(), *self.half_extents.tolist()]}

    def fields(self) -> Mapping[str, Field]:
        """Return the fields with a row for each body that may be inside."""
        declared = super().fields()
        return {**declared, "body": replace(declared["body"], shape=(max(len(self.candidates), 1),))}

    def setup(self) -> None:
        """Compute the box, and store the boxes of the bodies that may be inside."""
        cfg, boxes = self.cfg, body_boxes(self.engine).astype(np.float64)
        front, back, body = cfg.safe_distance_front, cfg.safe_distance_back, int(self.mount.body[0])
        self.center = np.array([0.5 * (front - back), 0.0, 0.0])
        """Centre of the box in the sensor's frame, m."""
        self.half_extents = np.array([0.5 * (front + back), cfg.safe_distance_lateral, 0.0])
        """Half of its size along the axes of the sensor's frame, m."""
        if body >= 0:
            self.half_extents = self.half_extents + boxes[body, 3:]
        self._guard = t = Guard()
        device, rows = self.compute_on.wp_device, boxes[self.candidates]
        t.mounts = self.mount.warp_state()
        t.center, t.half = wp.vec3d(*self.center), wp.vec3d(*np.minimum(self.half_extents, ENDLESS))
        t.bodies = wp.array(np.array(self.candidates, np.int32), dtype=wp.int32, device=device)
        t.centers = wp.array(rows[:, :3], dtype=wp.vec3d, device=device)
        t.halves = wp.array(np.minimum(rows[:, 3:], ENDLESS), dtype=wp.vec3d, device=device)

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Find the bodies inside the box of each environment (one launch, shared by all such sensors of one rate)."""
        t = self._guard
        t.count, t.inside = wp.from_torch(raw["count"][:, 0]), wp.from_torch(raw["body"][:, 0])
        t.bad, t.any_bad = self.buffers.bad_wp, self.clock.bad_wp
        self.compute_on.launch_task(_guard, (), t)
