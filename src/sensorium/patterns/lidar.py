"""Rays from one point, all fired at once: multi-channel lidars, RoboSense's RS-Bpearl, and a part of the sphere."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Float, bad, must
from sensorium.patterns.base import (
    ELEVATIONS,
    AzimuthSpan,
    Device,
    Int,
    PatternBaseCfg,
    Step,
    along,
    check_count,
    check_elevations,
    check_span,
    is_full_turn,
    stepped,
    tensor,
)


def lidar_pattern(cfg: LidarPatternCfg, device: Device) -> tuple[Tensor, Tensor]:
    """Return starts (0) and directions, float32 `[ray, 3]`; azimuth varies fastest."""
    directions = along(cfg.azimuths()[None, :], cfg.elevations()[:, None]).reshape(-1, 3)
    return tensor(np.zeros_like(directions), device), tensor(directions, device)


class LidarPatternCfg(PatternBaseCfg):
    """Channels at even elevations, each with rays at even azimuths, from one point and all fired at once.

    Use `SpinningPatternCfg` for a scanner whose rays fire one after the other.
    """

    channels: Annotated[Int, must(lambda channels: channels >= 1, "at least 1 channel")]
    """Number of channels; a single one is at the first elevation."""
    vertical_fov_range: Annotated[tuple[Float, Float], ELEVATIONS]
    """Elevation of the first and of the last channel, deg, up positive."""
    horizontal_fov_range: AzimuthSpan
    """Azimuths (low, high), deg, left positive; at most 360."""
    horizontal_res: Step
    """Step in azimuth, deg, kept exactly: 0 to 100 in steps of 30 is 0, 30, 60, 90. A full turn omits its end."""
    spacing: Literal["exact", "both_ends", "one_less"] = "exact"
    """``exact`` keeps the step. ``both_ends`` reduces a step that does not divide the range, so that both ends are
    included (0, 25, 50, 75, 100). ``one_less`` does the same with one ray less: a full turn in steps of 90 is then 3
    rays 120 degrees apart."""

    func = staticmethod(lidar_pattern)

    @field_validator("horizontal_res")
    @classmethod
    def _res(cls, value: float, info: ValidationInfo) -> float:
        low, high = info.data.get("horizontal_fov_range", (0.0, 0.0))
        check_count(info.data.get("channels", 1) * ((high - low) / value + 1.0))
        return value

    def elevations(self) -> NDArray[np.float64]:
        """Return the elevation of each channel, `[channel]`, deg."""
        return np.linspace(*self.vertical_fov_range, self.channels)

    def count_rays(self) -> int:
        """Return an upper bound of the number of rays."""
        low, high = self.horizontal_fov_range
        return self.channels * (math.ceil((high - low) / self.horizontal_res) + 1)

    def azimuths(self) -> NDArray[np.float64]:
        """Return the azimuths of each channel, `[column]`, deg."""
        low, high = self.horizontal_fov_range
        if self.spacing == "exact":
            return stepped(low, high, self.horizontal_res)
        steps = math.ceil((high - low) / self.horizontal_res)
        angles = np.linspace(low, high, max(steps if self.spacing == "one_less" else steps + 1, 1))
        return angles[:-1] if is_full_turn(high - low) and len(angles) > 1 else angles

    def ray_channels(self) -> NDArray[np.int32]:
        """Return the channel of each ray, `[ray]`."""
        return np.repeat(np.arange(self.channels, dtype=np.int32), len(self.azimuths()))

    @property
    def return_shape(self) -> tuple[int, ...]:
        """(channels, columns)."""
        return self.channels, len(self.azimuths())


def bpearl_pattern(cfg: BpearlPatternCfg, device: Device) -> tuple[Tensor, Tensor]:
    """Return starts (0) and directions, float32 `[ray, 3]`; elevation varies fastest, azimuth starts ahead.

    The direction at azimuth h and elevation p is (-cos p cos h, -cos p sin h, sin p), as in Isaac Lab.
    """
    directions = along(cfg.azimuths()[:, None] + 180.0, np.array(cfg.vertical_ray_angles)[None, :]).reshape(-1, 3)
    return tensor(np.zeros_like(directions), device), tensor(directions, device)


class BpearlPatternCfg(PatternBaseCfg):
    """A dome of rays: 32 elevations from 89.5 down to 2.3125 degrees, at even azimuths."""

    horizontal_fov: Annotated[Float, must(lambda fov: 0.0 < fov <= 360.0, "an angle above 0 and up to 360, deg")] = (
        360.0
    )
    """Extent in azimuth, deg."""
    horizontal_res: Step = 10.0
    """Step in azimuth, deg; the end is always omitted."""
    vertical_ray_angles: Annotated[tuple[Float, ...], must(len, "at least one elevation, deg"), ELEVATIONS] = tuple(
        89.5 - 2.8125 * k for k in range(32)
    )
    """Elevations, deg."""

    func = staticmethod(bpearl_pattern)

    @field_validator("horizontal_res")
    @classmethod
    def _res(cls, value: float, info: ValidationInfo) -> float:
        check_count(info.data.get("horizontal_fov", 360.0) / value)
        return value

    def count_rays(self) -> int:
        """Return the number of rays."""
        return math.ceil(self.horizontal_fov / self.horizontal_res - 1e-9) * len(self.vertical_ray_angles)

    def azimuths(self) -> NDArray[np.float64]:
        """Return the angles h, `[column]`, deg: -fov/2 + i * res, without the end."""
        count = math.ceil(self.horizontal_fov / self.horizontal_res - 1e-9)
        angles: NDArray[np.float64] = self.horizontal_res * np.arange(count, dtype=np.float64)
        return angles - 0.5 * self.horizontal_fov

    def ray_channels(self) -> NDArray[np.int32]:
        """Return the row of `vertical_ray_angles` of each ray, `[ray]`."""
        return np.tile(np.arange(len(self.vertical_ray_angles), dtype=np.int32), len(self.azimuths()))

    @property
    def return_shape(self) -> tuple[int, ...]:
        """(columns, channels)."""
        return len(self.azimuths()), len(self.vertical_ray_angles)


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
