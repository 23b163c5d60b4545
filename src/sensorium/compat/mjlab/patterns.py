"""The ray patterns of mjlab's document, with its names, defaults and order of arguments."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Self

from numpy.typing import ArrayLike

from sensorium import patterns as _patterns
from sensorium.compat.aliases import AliasedCfg
from sensorium.errors import ConfigError


class _Ordered(AliasedCfg):
    """Config whose first fields may be given without their names."""

    is_abstract: ClassVar[bool] = True
    order: ClassVar[tuple[str, ...]] = ()

    def __init__(self, /, *values: Any, **data: Any) -> None:
        if len(values) > len(self.order):
            expected = f"at most {len(self.order)} values: {', '.join(self.order)}"
            raise ConfigError.single(type(self).__name__, "arguments", values, expected)
        super().__init__(**dict(zip(self.order, values, strict=False)), **data)


class GridPatternCfg(_Ordered, _patterns.GridPatternCfg):
    """Parallel rays from the points of a grid."""

    is_abstract: ClassVar[bool] = True
    order: ClassVar[tuple[str, ...]] = ("size", "resolution", "direction")

    rounding: Literal["down", "nearest"] = "nearest"
    """How the number of steps is rounded where the size is not a multiple of the resolution."""


class RingPatternCfg(_Ordered, _patterns.RingPatternCfg):
    """Parallel rays from the centre and from circles around it."""

    is_abstract: ClassVar[bool] = True
    order: ClassVar[tuple[str, ...]] = ("rings", "include_center", "direction")
    Ring: ClassVar[type[_patterns.Ring]] = _patterns.Ring


class PinholeCameraPatternCfg(_Ordered, _patterns.ImagePlanePatternCfg):
    """Rays of a pinhole camera along -z, from corner to corner of its image, row by row from the lower left."""

    is_abstract: ClassVar[bool] = True
    order: ClassVar[tuple[str, ...]] = ("width", "height", "fovy")

    @classmethod
    def kind(cls) -> str:
        """Return the kind of this pattern in files."""
        return _patterns.ImagePlanePatternCfg.kind()

    @classmethod
    def from_mujoco_camera(cls, camera_name: str) -> Self:
        """Return the pattern of a camera of the model, by its full name; the sensor reads its image and lens."""
        return cls(camera=camera_name)

    @classmethod
    def from_intrinsic_matrix(cls, intrinsic_matrix: ArrayLike, width: int, height: int) -> Self:
        """Return the pattern with the vertical field of view of an intrinsic matrix, px; pixels are square.

        Raises:
            ConfigError: as for `sensorium.patterns.PinholeCameraPatternCfg.from_intrinsic_matrix`.
        """
        image = _patterns.PinholeCameraPatternCfg.from_intrinsic_matrix(intrinsic_matrix, width, height, 1.0)
        tangent = 0.5 * float(image.vertical_aperture or 0.0)  # for a focal length of 1
        return cls(width=width, height=height, fovy=math.degrees(2.0 * math.atan(tangent)))


__all__ = ["GridPatternCfg", "PinholeCameraPatternCfg", "RingPatternCfg"]
