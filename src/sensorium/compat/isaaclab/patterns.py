"""The ray patterns of Isaac Lab 2.3: configs, and functions ``f(cfg, device)`` that return starts and directions.

Both results are float32 tensors `[ray, 3]` in the sensor's frame: x forward, y left, z up.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium import patterns as _patterns
from sensorium.cfg import Float, must
from sensorium.compat.aliases import AliasedCfg
from sensorium.errors import ConfigError
from sensorium.patterns import (
    BpearlPatternCfg,
    PatternBaseCfg,
    PinholeCameraPatternCfg,
    bpearl_pattern,
    lidar_pattern,
    pinhole_camera_pattern,
)
from sensorium.patterns.base import Device

LATER = must(lambda _: True, "any value")
"""Annotation of a field that is checked when the rays are computed, as in Isaac Lab."""


def _checked(cfg: GridPatternCfg) -> _patterns.GridPatternCfg:
    """Return the grid as a config of sensorium, which checks the size and the number of rays."""
    if cfg.ordering not in ("xy", "yx"):
        fix = "Ordering must be 'xy' or 'yx'."
        raise ConfigError.single("GridPatternCfg", "ordering", cfg.ordering, "an order of the axes", fix)
    if not cfg.resolution > 0.0:
        fix = "Resolution must be greater than 0."
        raise ConfigError.single("GridPatternCfg", "resolution", cfg.resolution, "a distance, m", fix)
    fields = ("size", "resolution", "direction", "ordering")
    return _patterns.GridPatternCfg(**{name: getattr(cfg, name) for name in fields})


def grid_pattern(cfg: GridPatternCfg, device: Device) -> tuple[Tensor, Tensor]:
    """Return starts and directions of the rays; see `sensorium.patterns.grid_pattern`.

    Raises:
        ConfigError: the ordering or the resolution is invalid, or the grid has too many rays.
    """
    return _patterns.grid_pattern(_checked(cfg), device)


class GridPatternCfg(AliasedCfg, _patterns.GridPatternCfg):
    """Parallel rays from the points of a grid. Its function checks `resolution` and `ordering`."""

    is_abstract: ClassVar[bool] = True

    resolution: Annotated[Float, LATER]
    """Distance between neighbouring points, m."""
    size: tuple[Float, Float]
    """Extent along x and y, m; 0 gives one row."""
    ordering: str = "xy"  # type: ignore[assignment]
    """Axis that varies fastest from ray to ray: ``xy`` for x, ``yx`` for y."""

    func = staticmethod(grid_pattern)  # type: ignore[assignment]

    @field_validator("resolution")
    @classmethod
    def _resolution(cls, value: float, info: ValidationInfo) -> float:
        return value

    @property
    def return_shape(self) -> tuple[int, ...]:
        """(y, x) for the ordering ``xy``, (x, y) for ``yx``: the last axis varies fastest."""
        return _checked(self).return_shape


class LidarPatternCfg(AliasedCfg, _patterns.LidarPatternCfg):
    """Rays of a multi-channel lidar. Both ends of the horizontal field of view are included.

    ``spacing="one_less"`` gives the rays of versions before 2.3.
    """

    is_abstract: ClassVar[bool] = True

    spacing: Literal["exact", "both_ends", "one_less"] = "both_ends"
    """``both_ends`` reduces a step that does not divide the range; see `sensorium.patterns.LidarPatternCfg`."""


__all__ = [
    "BpearlPatternCfg", "GridPatternCfg", "LidarPatternCfg", "PatternBaseCfg", "PinholeCameraPatternCfg",
    "bpearl_pattern", "grid_pattern", "lidar_pattern", "pinhole_camera_pattern",
]  # fmt: skip
