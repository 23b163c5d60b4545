"""Rays of RoboSense's RS-Bpearl, a dome that looks upwards, all fired at once."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Float, must
from sensorium.patterns.base import ELEVATIONS, Device, PatternBaseCfg, Step, along, check_count, tensor


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
