"""Rays of multi-channel lidars and of RoboSense's RS-Bpearl, a dome that looks upwards, all fired at once."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Float, must
from sensorium.patterns.base import (
    ELEVATIONS,
    AzimuthSpan,
    Device,
    Int,
    PatternBaseCfg,
    Step,
    along,
    check_count,
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
