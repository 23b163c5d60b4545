"""Rays over a part of the sphere, evenly in azimuth and elevation."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Float, bad, must
from sensorium.patterns.base import (
    Device,
    Int,
    PatternBaseCfg,
    along,
    check_count,
    check_elevations,
    check_span,
    is_full_turn,
    stepped,
    tensor,
)

Extent = Float | tuple[Float, Float]


def spherical_pattern(cfg: SphericalPatternCfg, device: Device) -> tuple[Tensor, Tensor]:
    """Return starts (0) and directions, float32 `[ray, 3]`; elevation varies fastest."""
    azimuth, elevation = cfg.grid_angles()
    directions = along(azimuth[:, None], elevation[None, :]).reshape(-1, 3)
    return tensor(np.zeros_like(directions), device), tensor(directions, device)


def _range(extent: float | tuple[float, float]) -> tuple[float, float]:
    return extent if isinstance(extent, tuple) else (-0.5 * extent, 0.5 * extent)


class SphericalPatternCfg(PatternBaseCfg):
    """Rays from one point over a field of view.

    The angles come from `angles`, else from `angular_resolution`, else from `n_points`. Both ends of the field of view
    are included, except the end of a full turn.
    """

    fov: tuple[Extent, Extent] = (360.0, 60.0)
    """Azimuth and elevation, deg: one number is a centred extent, a pair is (low, high)."""
    n_points: Annotated[tuple[Int, Int], must(lambda counts: min(counts) >= 1, "at least 1 of each")] = (128, 64)
    """Number of azimuths and of elevations; a single one is at the lower end."""
    angular_resolution: (
        Annotated[tuple[Float, Float], must(lambda steps: min(steps) > 0.0, "two angles greater than 0, deg")] | None
    ) = None
    """Exact steps in azimuth and elevation, deg; an alternative to `n_points`. The upper end is included if on the
    grid."""
    angles: (
        Annotated[tuple[tuple[Float, ...], tuple[Float, ...]], must(all, "at least one azimuth and one elevation")]
        | None
    ) = None
    """Explicit azimuths and elevations, deg."""

    func = staticmethod(spherical_pattern)

    @field_validator("fov")
    @classmethod
    def _fov(cls, value: tuple[Extent, Extent]) -> tuple[Extent, Extent]:
        azimuth, elevation = map(_range, value)
        check_span(azimuth)
        if elevation[1] < elevation[0]:
            raise bad("elevations (low, high), deg", "Swap low and high.")
        check_elevations(elevation)
        return value

    @field_validator("n_points")
    @classmethod
    def _points(cls, value: tuple[int, int]) -> tuple[int, int]:
        check_count(math.prod(value))
        return value

    @field_validator("angular_resolution")
    @classmethod
    def _resolution(cls, value: tuple[float, float] | None, info: ValidationInfo) -> tuple[float, float] | None:
        if value is not None:
            fov = info.data.get("fov", cls.model_fields["fov"].default)
            sides = zip(map(_range, fov), value, strict=True)
            check_count(math.prod((high - low) / step + 1.0 for (low, high), step in sides))
        return value

    @field_validator("angles")
    @classmethod
    def _angles(cls, value: tuple[tuple[float, ...], tuple[float, ...]] | None) -> object:
        if value is not None:
            check_elevations(value[1])
            check_count(len(value[0]) * len(value[1]))
        return value

    def grid_angles(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the azimuths and the elevations, deg."""
        if self.angles is not None:
            return np.array(self.angles[0]), np.array(self.angles[1])
        found = []
        for axis, (low, high) in enumerate(map(_range, self.fov)):
            if self.angular_resolution is not None:
                found.append(stepped(low, high, self.angular_resolution[axis]))
            else:
                found.append(np.linspace(low, high, self.n_points[axis], endpoint=not is_full_turn(high - low)))
        return found[0], found[1]

    def count_rays(self) -> int:
        """Return the number of rays, or an upper bound."""
        if self.angles is not None:
            return len(self.angles[0]) * len(self.angles[1])
        if self.angular_resolution is None:
            return math.prod(self.n_points)
        sides = zip(map(_range, self.fov), self.angular_resolution, strict=True)
        return math.prod(math.floor((high - low) / step) + 2 for (low, high), step in sides)

    @property
    def return_shape(self) -> tuple[int, ...]:
        """(azimuths, elevations)."""
        azimuth, elevation = self.grid_angles()
        return len(azimuth), len(elevation)
