"""Configs of lenses: a pinhole, and a fisheye lens whose angles are a polynomial of the radius in the image."""

from __future__ import annotations

from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Discriminator, Tag, model_validator

from sensorium.cfg import Cfg, Finite, Float, Positive, bad, in_unit, must
from sensorium.patterns import PinholeCameraPatternCfg
from sensorium.sensors.cameras.camera_base_cfg import CENTRE, FOCAL

Angle = Annotated[Float, must(lambda angle: 0.0 < angle < 180.0, "an angle between 0 and 180, deg"), in_unit("deg")]
WideAngle = Annotated[Float, must(lambda angle: 0.0 < angle <= 360.0, "an angle up to 360, deg"), in_unit("deg")]
Table = tuple[NDArray[np.float64], NDArray[np.bool_]]
"""Unit directions of the pixels `[pixel, 3]`, with axes forward, left, up, and whether light reaches them."""


class PinholeLensCfg(Cfg):
    """Pinhole lens, without the size of the image: by its vertical angle, or by focal length and apertures.

    Focal length and apertures share a unit, which cancels: fx = width * focal_length / horizontal_aperture.
    """

    fovy: Angle | None = None
    """Vertical field of view, degrees, with square pixels; an alternative to the apertures."""
    focal_length: Positive = 24.0
    """Focal length, in the unit of the apertures."""
    horizontal_aperture: Positive = 20.955
    """Width of the image plane."""
    vertical_aperture: Positive | None = None
    """Height of the image plane; None gives square pixels."""
    horizontal_aperture_offset: Finite = 0.0
    """Shift of the principal point to the right, as tangent: cx = width/2 + offset * fx."""
    vertical_aperture_offset: Finite = 0.0
    """Shift of the principal point down, as tangent: cy = height/2 + offset * fy."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.fovy is not None and (given := [name for name in FOCAL[1:] if name in self.model_fields_set]):
            raise bad(f"fovy: either fovy or {given[0]}", "Keep one of the two.")
        return self

    @classmethod
    def from_intrinsic_matrix(cls, intrinsic_matrix: ArrayLike, width: int, height: int) -> PinholeLensCfg:
        """Return the lens of an intrinsic matrix.

        Args:
            intrinsic_matrix: (fx, 0, cx, 0, fy, cy, 0, 0, 1), nine numbers row by row or `[3, 3]`, pixels.
            width: number of columns.
            height: number of rows.

        Raises:
            ConfigError: the matrix is singular, not finite, or has skew or a last row other than (0, 0, 1).
        """
        image = PinholeCameraPatternCfg.from_intrinsic_matrix(intrinsic_matrix, width, height)
        return PinholeLensCfg(**{name: getattr(image, name) for name in PinholeLensCfg.model_fields if name != "fovy"})

    def at(self, width: int, height: int) -> PinholeCameraPatternCfg:
        """Return this lens with an image of a size in px."""
        names = self.model_fields_set & PinholeLensCfg.model_fields.keys()
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return PinholeCameraPatternCfg(width=width, height=height, **given)

    @property
    def stated(self) -> set[str]:
        """Fields of a pinhole lens that are given; the others are those of the camera of the model."""
        return self.model_fields_set

    def table(self, width: int, height: int) -> Table | None:
        """Return None: the intrinsic matrix defines the directions."""
        return None


class FisheyeLensCfg(Cfg):
    """Fisheye lens: the angle of a ray from the optical axis is a polynomial of its distance from the optical centre.

    Centre and polynomial are those of an image of `nominal_size`; images of another size are scaled along each axis.
    """

    nominal_size: Annotated[tuple[Positive, Positive], in_unit("px")]
    """Width and height of the image that the other fields describe, px."""
    optical_centre: Annotated[tuple[Finite, Finite], in_unit("px")]
    """Column and row of the optical axis in that image, px from the upper left corner."""
    polynomial: tuple[Finite, ...]
    """Coefficients c of the angle c0 + c1 r + c2 r^2 + ..., rad, for r px from the optical centre."""
    max_fov: WideAngle = 200.0
    """Full field of view, degrees; pixels beyond it see nothing."""

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if len(self.polynomial) < 2:
            raise bad("polynomial: at least two coefficients", "Give (0, c1) for an equidistant lens.")
        (width, height), (x, y) = self.nominal_size, self.optical_centre
        radii = np.linspace(0.0, np.hypot(max(x, width - x), max(y, height - y)), 2000)
        angle, slope = self._angle(radii), self._angle(radii, 1)
        seen = np.maximum.accumulate(angle) <= np.radians(0.5 * self.max_fov)
        if (slope[seen] <= 0.0).any() or not seen.any():
            raise bad(
                f"polynomial: an angle that rises with the radius up to max_fov = {self.max_fov:g} deg",
                "The lens folds over: several radii see the same direction. Decrease max_fov.",
            )
        return self

    def _angle(self, radius: NDArray[np.float64], order: int = 0) -> NDArray[np.float64]:
        polynomial = np.polynomial.Polynomial(self.polynomial)
        found: NDArray[np.float64] = (polynomial.deriv(order) if order else polynomial)(radius)
        return found

    def at(self, width: int, height: int) -> PinholeCameraPatternCfg:
        """Return the pinhole lens that equals this one near the optical axis, for an image of a size in px."""
        scale = np.array([width, height]) / self.nominal_size
        focal = scale / self._angle(np.zeros(1), 1)[0]
        centre = scale * self.optical_centre
        k = [[focal[0], 0.0, centre[0]], [0.0, focal[1], centre[1]], [0.0, 0.0, 1.0]]
        return PinholeCameraPatternCfg.from_intrinsic_matrix(k, width, height)

    @property
    def stated(self) -> set[str]:
        """Fields of a pinhole lens: all, since nothing of the camera of the model remains."""
        return {*FOCAL, *CENTRE}

    def table(self, width: int, height: int) -> Table:
        """Return the directions of the pixels of an image of a size in px."""
        u = (np.arange(width) + 0.5) * self.nominal_size[0] / width - self.optical_centre[0]
        v = (np.arange(height) + 0.5) * self.nominal_size[1] / height - self.optical_centre[1]
        x, y = (each.reshape(-1) for each in np.meshgrid(u, v))
        radius = np.hypot(x, y)
        angle = self._angle(radius)
        sine = np.sin(angle) / np.maximum(radius, 1e-12)
        is_lit = (angle >= 0.0) & (angle <= np.radians(0.5 * self.max_fov))
        return np.stack([np.cos(angle), -sine * x, -sine * y], axis=1), is_lit


def _kind_of(value: Any) -> str:
    is_fisheye = "polynomial" in value if isinstance(value, dict) else isinstance(value, FisheyeLensCfg)
    return "fisheye" if is_fisheye else "pinhole"


LensField = Annotated[
    Annotated[PinholeLensCfg, Tag("pinhole")] | Annotated[FisheyeLensCfg, Tag("fisheye")], Discriminator(_kind_of)
]
"""Type of a config field that holds a lens."""
