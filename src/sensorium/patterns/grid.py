"""Parallel rays on a grid: height scans."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Float, must
from sensorium.patterns.base import Device, Direction, PatternBaseCfg, check_count, tensor

_SLACK = 1e-9
"""Tolerance, m, for points beyond the edge due to rounding."""


def grid_pattern(cfg: GridPatternCfg, device: Device) -> tuple[Tensor, Tensor]:
    """Return starts and directions, float32 `[ray, 3]`; the direction is copied without normalisation.

    x_i = -size/2 + i * resolution while below size/2 + 1e-9, and the same for y. The grid is not centred if the size is
    not a multiple of the resolution.
    """
    x, y = (-0.5 * size + cfg.resolution * np.arange(count) for size, count in zip(cfg.size, cfg.counts, strict=True))
    columns, rows = np.meshgrid(x, y, indexing="xy" if cfg.ordering == "xy" else "ij")
    starts = np.stack([columns.ravel(), rows.ravel(), np.zeros(columns.size)], axis=-1)
    return tensor(starts, device), tensor(np.tile(cfg.direction, (len(starts), 1)), device)


class GridPatternCfg(PatternBaseCfg):
    """Parallel rays from the points of a grid in the plane z = 0 of the sensor.

    (1.6, 1.0) m at 0.1 m is 17 x 11 = 187 rays.
    """

    size: Annotated[tuple[Float, Float], must(lambda size: not min(size) < 0.0, "two lengths >= 0, m")] = (1.0, 1.0)
    """Extent along x and y, m; 0 gives one row."""
    resolution: Annotated[Float, must(lambda step: step > 0.0, "a resolution greater than 0, m")] = 0.1
    """Distance between neighbouring points, m."""
    direction: Direction = (0.0, 0.0, -1.0)
    """Direction of all rays; need not have unit length."""
    ordering: Literal["xy", "yx"] = "xy"
    """Axis that varies fastest from ray to ray: ``xy`` for x, ``yx`` for y."""
    rounding: Literal["down", "nearest"] = "down"
    """How the number of steps is rounded where the size is not a multiple of the resolution. With ``nearest``, the last
    point may be up to half a step beyond the size."""

    func = staticmethod(grid_pattern)

    @field_validator("resolution")
    @classmethod
    def _resolution(cls, value: float, info: ValidationInfo) -> float:
        size = info.data.get("size", cls.model_fields["size"].default)
        check_count(((size[0] + _SLACK) / value + 1.0) * ((size[1] + _SLACK) / value + 1.0))
        return value

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of points along x and y."""
        slack = _SLACK if self.rounding == "down" else 0.5 * self.resolution
        return tuple(math.ceil((size + slack) / self.resolution) for size in self.size)

    @property
    def return_shape(self) -> tuple[int, ...]:
        """(y, x) for the ordering ``xy``, (x, y) for ``yx``: the last axis varies fastest."""
        nx, ny = self.counts
        return (ny, nx) if self.ordering == "xy" else (nx, ny)
