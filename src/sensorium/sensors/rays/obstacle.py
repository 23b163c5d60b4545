"""Obstacle: the nearest surface that a ball hits on its way forward from the sensor.

Axes: ``[env, mount]`` (no mount axis for a singular selector).

The ball starts at the sensor and moves along the sensor's x axis. Its distance to an obstacle is the way that its
centre moves until it touches a surface: the least s_i - sqrt(R^2 - r_i^2) of rays i at a distance r_i from the axis,
which hit a surface at s_i; 0 if it touches one at the start. 64 rays on a spiral cover each part of the cross-section
equally, with one on the axis. Objects that fit between rays, up to about a quarter of the radius R, can be missed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from sensorium.cfg import NonNegative, Positive, in_unit
from sensorium.measurement.record import Record
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.frames.targets_cfg import TargetsCfg
from sensorium.spec import BODY_POSE, SHAPES, Field

RAYS = 64
"""Number of rays of a ball; 1 for radius 0."""
NOTHING = -2
"""Id of the body for no obstacle."""
GOLDEN = math.pi * (3.0 - math.sqrt(5.0))
"""Angle from one ray to the next, rad."""


@dataclass(frozen=True, slots=True)
class ObstacleData:
    """The nearest obstacle at one tick."""

    distance: Annotated[Tensor, Field("m", role="range")]
    """Way of the ball to the obstacle, m; +inf for no obstacle."""
    body: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Id of the body: its index in the engine's list of bodies; -1 for the world, -2 for no obstacle."""


class ObstacleCfg(TargetsCfg[ObstacleData]):
    """Configuration of the nearest obstacle ahead. By default it ignores the robot that carries it.

    Knobs such as `noise` act on the distance, m.
    """

    max_distance: Annotated[Positive, in_unit("m")] = 5.0
    """Longest way of the ball, m."""
    hit_radius: Annotated[NonNegative, in_unit("m")] = 0.5
    """Radius of the ball, m; 0 for a ray."""
    ignore_static: bool = False
    """Whether shapes that cannot move are ignored."""


class Obstacle(SimpleSensor[ObstacleCfg, ObstacleData]):
    """The nearest obstacle ahead of one or several mounts."""

    requires = (BODY_POSE, SHAPES)
    checks_state: ClassVar[bool] = True

    def setup(self) -> None:
        """Select the shapes, and distribute the rays over the cross-section of the ball."""
        cfg, seen = self.cfg, self.cfg.seen
        if cfg.ignore_static:
            static = tuple(re.escape(shape.name) for shape in self.rays.shapes if shape.is_static)
            seen = replace(seen, exclude=(*seen.exclude, *static))
        k = np.arange(RAYS if cfg.hit_radius else 1)
        share, angle = k / len(k), GOLDEN * k
        starts = cfg.hit_radius * np.stack([0.0 * k, *np.sqrt(share) * [np.cos(angle), np.sin(angle)]], axis=-1)
        self._cast = self.ray_cast(
            starts=starts, directions=np.tile([1.0, 0.0, 0.0], (len(k), 1)), targets=seen,
            limits=(0.0, cfg.max_distance + cfg.hit_radius),
        )  # fmt: skip
        self.buffers.body_at_fault = self._cast.body_at_fault
        self._front = torch.tensor(cfg.hit_radius * np.sqrt(1.0 - share), device=self.device).float()
        self._ways = torch.zeros(self.num_envs, self.mount.count, len(k), dtype=torch.float32, device=self.device)
        self._nearest = self._ways[..., :1].clone()
        self._ids, self._body = self._ways.int(), self._nearest.int()
        self._index, self._is_far = self._nearest.long(), self._nearest.bool()

    def update_raw_data(self, raw: Record) -> None:
        """Cast the rays, and keep the shortest way."""
        self._cast.cast({"distance": self._ways, "body": self._ids})
        self._ways.sub_(self._front).clamp_(min=0.0)
        torch.min(self._ways, dim=-1, keepdim=True, out=(self._nearest, self._index))
        torch.gather(self._ids, -1, self._index, out=self._body)
        torch.gt(self._nearest, self.cfg.max_distance, out=self._is_far)
        raw.distance.copy_(self._nearest.masked_fill_(self._is_far, math.inf)[..., 0])
        raw.body.copy_(self._body.masked_fill_(self._is_far, NOTHING)[..., 0])
