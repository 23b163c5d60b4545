"""Parallel rays on concentric circles, such as those around a foot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import ABSENT, Cfg, Float, Vec3, bad, must, without_absent
from sensorium.patterns.base import Device, Direction, Int, PatternBaseCfg, check_count, tensor


class Ring(Cfg):
    """One circle of a `RingPatternCfg`: ``Ring(0.1, 8)``."""

    radius: Annotated[
        Float,
        must(
            lambda radius: 0.0 < radius < float("inf"),
            "a radius greater than 0, m",
            "For a ray at the centre, give include_center=True.",
        ),
    ]
    """Radius, m."""
    num_samples: Annotated[Int, must(lambda samples: samples >= 1, "at least 1 ray")]
    """Number of rays on the circle; the first is at +x."""

    if TYPE_CHECKING:

        def __init__(self, radius: float, num_samples: int) -> None: ...
    else:

        def __init__(self, radius: Any = ABSENT, num_samples: Any = ABSENT, **others: Any) -> None:
            super().__init__(**without_absent(radius=radius, num_samples=num_samples), **others)

    @field_validator("num_samples")
    @classmethod
    def _samples(cls, value: int) -> int:
        check_count(value)
        return value


def ring_pattern(cfg: RingPatternCfg, device: Device) -> tuple[Tensor, Tensor]:
    """Return starts and directions, float32 `[ray, 3]`: the centre, then ring by ring, at 2 pi i / n from +x."""
    parts = [np.zeros((1, 3))] if cfg.include_center else []
    for ring in cfg.rings:
        angle = 2.0 * np.pi * np.arange(ring.num_samples) / ring.num_samples
        circle = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], axis=-1)
        parts.append(ring.radius * circle)
    starts = np.concatenate(parts)
    return tensor(starts, device), tensor(np.tile(cfg.direction, (len(starts), 1)), device)


class RingPatternCfg(PatternBaseCfg):
    """Parallel rays from the centre and from circles around it, in the plane z = 0 of the sensor."""

    rings: tuple[Ring, ...]
    """The circles, in the order of the rays."""
    include_center: bool = True
    """Whether the first ray starts at the centre."""
    direction: Direction = (0.0, 0.0, -1.0)
    """Direction of all rays; need not have unit length."""

    func = staticmethod(ring_pattern)

    @classmethod
    def single_ring(
        cls, radius: float = 0.1, num_samples: int = 8, include_center: bool = True, direction: Vec3 = (0.0, 0.0, -1.0)
    ) -> RingPatternCfg:
        """Return a pattern of one circle.

        Args:
            radius: radius, m.
            num_samples: number of rays on the circle.
            include_center: whether the first ray starts at the centre.
            direction: direction of all rays.
        """
        return cls(rings=(Ring(radius, num_samples),), include_center=include_center, direction=direction)

    @field_validator("include_center")
    @classmethod
    def _center(cls, value: bool, info: ValidationInfo) -> bool:
        if not value and info.data.get("rings") == ():
            raise bad("at least one ray", "Give rings=(Ring(0.1, 8),) or include_center=True.")
        return value

    @property
    def return_shape(self) -> tuple[int, ...]:
        """One axis: rings may have different numbers of rays."""
        return (self.include_center + sum(ring.num_samples for ring in self.rings),)
