"""Lenses of cameras: which direction each pixel sees, and at which pixel a point appears.

A lens maps between directions and a plane. With K the intrinsic matrix, the point of the pixel in row v and column u on
the plane is p = K^-1 (u + 1/2, v + 1/2, 1) without its last component. Directions have the ``"ros"`` axes: x right, y
down, z forward. Near the axis, every perspective lens maps the direction (x, y, 1) to p = (x, y).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
import warp as wp
from numpy.typing import ArrayLike
from pydantic import field_validator, model_validator
from torch import Tensor

from sensorium.cameras.camera_base_cfg import FOCAL
from sensorium.cameras.geometry import pixel_rays
from sensorium.cameras.render import project
from sensorium.cfg import Cfg, Finite, Float, Parsed, Positive, bad, in_unit, must
from sensorium.errors import ConfigError, nearest, shown
from sensorium.geometry.transforms import angle_of
from sensorium.patterns import PinholeCameraPatternCfg

SAMPLES = 64
"""Number of points between the axis and a pixel at which a distortion must not fold over."""
Narrow = Annotated[Float, must(lambda angle: 0.0 < angle < 180.0, "an angle between 0 and 180, deg"), in_unit("deg")]
Angle = Annotated[Positive, must(lambda angle: angle <= 360.0, "an angle up to 360, deg"), in_unit("deg")]


class LensCfg(Cfg):
    """Base of the lenses."""

    is_pinhole: ClassVar[bool] = False
    """Whether the direction of a pixel, per metre of depth, is an affine function of the pixel."""
    is_parallel: ClassVar[bool] = False
    """Whether all rays are parallel, so that they start on the image plane."""
    defines_intrinsics: ClassVar[bool] = False
    """Whether the lens defines the intrinsic matrix, so that the camera needs no focal length."""

    @classmethod
    def kind(cls) -> str:
        """Return the kind of this lens in files."""
        return next(kind for kind, known in LENSES.items() if issubclass(cls, known))

    def to_dict(self) -> dict[str, Any]:
        """Return the given fields, with the lens's ``kind``."""
        return {"kind": self.kind(), **super().to_dict()}

    def intrinsic_matrix(self, width: int, height: int) -> Tensor:
        """Return the intrinsic matrix that the lens defines for an image size in px, float64 `[3, 3]`.

        Raises:
            ConfigError: the lens uses the focal length of the camera.
        """
        raise ConfigError.single(type(self).__name__, "kind", self.kind(), "a lens that defines its intrinsic matrix")

    def unproject(self, plane: Tensor) -> Tensor:
        """Return the unit directions of points of the plane, float64 `[..., 3]`; 0 where the lens sees nothing.

        Args:
            plane: float64 `[..., 2]`.
        """
        raise NotImplementedError

    def project(self, points: Tensor) -> Tensor:
        """Return where points appear on the plane, float64 `[..., 2]`; NaN for points that the lens does not see.

        Args:
            points: float64 `[..., 3]`, m, in the camera's frame.
        """
        raise NotImplementedError

    @property
    def formula(self) -> tuple[int, tuple[float, ...], float]:
        """Number, coefficients and edge of `cameras.render.project.Projection`."""
        return project.PINHOLE, (), 0.0

    def folds(self, plane: Tensor) -> Tensor:
        """Return which points of the plane have no direction because the lens folds over, bool `[...]`.

        Args:
            plane: float64 `[..., 2]`.
        """
        return torch.zeros(plane.shape[:-1], dtype=torch.bool, device=plane.device)


class FocalLensCfg(LensCfg):
    """Lens with a focal length: by the vertical angle that it has without distortion, or by apertures.

    Focal length and apertures share a unit, which cancels: fx = width * focal_length / horizontal_aperture.
    """

    fovy: Narrow | None = None
    """Vertical field of view without distortion, degrees, with square pixels; an alternative to the apertures."""
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
    def from_intrinsic_matrix(cls, intrinsic_matrix: ArrayLike, width: int, height: int) -> Self:
        """Return the lens of an intrinsic matrix.

        Args:
            intrinsic_matrix: (fx, 0, cx, 0, fy, cy, 0, 0, 1), nine numbers row by row or `[3, 3]`, pixels. The centre
                of the first pixel is at (0.5, 0.5). For OpenCV, ROS and Kalibr it is at (0, 0): add 0.5 to their cx
                and cy.
            width: number of columns.
            height: number of rows.

        Raises:
            ConfigError: the matrix is singular, not finite, or has skew or a last row other than (0, 0, 1).
        """
        image = PinholeCameraPatternCfg.from_intrinsic_matrix(intrinsic_matrix, width, height)
        return cls(**{name: getattr(image, name) for name in FocalLensCfg.model_fields if name != "fovy"})

    def at(self, width: int, height: int) -> PinholeCameraPatternCfg:
        """Return this lens with an image of a size in px."""
        given = {name: getattr(self, name) for name in self.model_fields_set & {*FocalLensCfg.model_fields}
                 if getattr(self, name) is not None}  # fmt: skip
        return PinholeCameraPatternCfg(width=width, height=height, **given)


class DistortedLensCfg(FocalLensCfg):
    """Lens with a focal length and coefficients of a distortion."""

    coefficient_fields: ClassVar[tuple[str, ...]]
    """Fields of the coefficients in the order of OpenCV, ROS and Kalibr."""

    @classmethod
    def from_intrinsic_matrix(
        cls, intrinsic_matrix: ArrayLike, width: int, height: int, distortion: ArrayLike = ()
    ) -> Self:
        """Return the lens of an intrinsic matrix and of coefficients of distortion.

        Args:
            intrinsic_matrix: the matrix, as of `PinholeLensCfg`.
            width: number of columns.
            height: number of rows.
            distortion: coefficients in the order of OpenCV, such as (k1, k2, p1, p2, k3) for `BrownConradyLensCfg`;
                missing ones are 0.

        Raises:
            ConfigError: the matrix is invalid, or the lens has no such coefficient.
        """
        values = np.ravel(np.asarray(distortion, np.float64)).tolist()
        known = cls.coefficient_fields
        if any(values[len(known) :]):
            expected = f"at most {len(known)} coefficients: {', '.join(known)}"
            raise ConfigError.single(cls.__name__, "distortion", values, expected, "Use a lens that has them.")
        lens = super().from_intrinsic_matrix(intrinsic_matrix, width, height)
        return lens.replace(**dict(zip(known, values, strict=False)))


class PinholeLensCfg(FocalLensCfg):
    """Lens without distortion."""

    is_pinhole = True

    def unproject(self, plane: Tensor) -> Tensor:
        """Return unit directions, float64 `[..., 3]`."""
        return _forward(plane)

    def project(self, points: Tensor) -> Tensor:
        """Return tangents, float64 `[..., 2]`; NaN behind the camera."""
        return _tangents(points)


class OrthographicLensCfg(LensCfg):
    """Lens with parallel rays. The pixels are square."""

    is_parallel = True
    defines_intrinsics = True

    view_height: Annotated[Positive, in_unit("m")]
    """Height of the visible rectangle, m."""

    def intrinsic_matrix(self, width: int, height: int) -> Tensor:
        """Return the matrix, float64 `[3, 3]`; its focal lengths are in px/m."""
        scale = height / self.view_height
        return _centred(scale, scale, width, height)

    @property
    def formula(self) -> tuple[int, tuple[float, ...], float]:
        """Number, coefficients and edge of the projection."""
        return project.ORTHOGRAPHIC, (), 0.0

    def unproject(self, plane: Tensor) -> Tensor:
        """Return (0, 0, 1) for every point, float64 `[..., 3]`. The ray starts at the point (x, y, 0), m."""
        return torch.cat([torch.zeros_like(plane), torch.ones_like(plane[..., :1])], dim=-1)

    def project(self, points: Tensor) -> Tensor:
        """Return x and y, m, float64 `[..., 2]`; NaN behind the camera."""
        return torch.where(points[..., 2:] >= 0.0, points[..., :2], float("nan"))


class BrownConradyLensCfg(DistortedLensCfg):
    """Lens with radial and tangential distortion: ``plumb_bob`` and ``rational_polynomial`` of OpenCV and ROS.

    With (x, y) the tangents of a direction and r their length,

        p = (x, y) (1 + k1 r^2 + k2 r^4 + k3 r^6) / (1 + k4 r^2 + k5 r^4 + k6 r^6)
            + (2 p1 x y + p2 (r^2 + 2 x^2), p1 (r^2 + 2 y^2) + 2 p2 x y).

    Sources: D. C. Brown, "Decentering distortion of lenses", Photogrammetric Engineering 32 (1966); OpenCV, calib3d.
    """

    coefficient_fields = ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")

    k1: Finite = 0.0
    """Radial coefficient of r^2."""
    k2: Finite = 0.0
    """Radial coefficient of r^4."""
    p1: Finite = 0.0
    """First tangential coefficient."""
    p2: Finite = 0.0
    """Second tangential coefficient."""
    k3: Finite = 0.0
    """Radial coefficient of r^6."""
    k4: Finite = 0.0
    """Coefficient of r^2 in the denominator."""
    k5: Finite = 0.0
    """Coefficient of r^4 in the denominator."""
    k6: Finite = 0.0
    """Coefficient of r^6 in the denominator."""

    @property
    def formula(self) -> tuple[int, tuple[float, ...], float]:
        """Number, coefficients and edge of the projection."""
        return project.BROWN_CONRADY, tuple(getattr(self, name) for name in self.coefficient_fields), 0.0

    def unproject(self, plane: Tensor) -> Tensor:
        """Return unit directions, float64 `[..., 3]`; 0 beyond a fold."""
        tangents, is_seen = self._undistort(plane)
        return _forward(torch.where(is_seen[..., None], tangents, 0.0)) * is_seen[..., None]

    def project(self, points: Tensor) -> Tensor:
        """Return points of the plane, float64 `[..., 2]`; NaN behind the camera and beyond a fold."""
        tangents = _tangents(points)
        return torch.where(self._is_before_fold(tangents)[..., None], self._distort(tangents)[0], float("nan"))

    def folds(self, plane: Tensor) -> Tensor:
        """Return which points of the plane lie beyond a fold, bool `[...]`."""
        return ~self._undistort(plane)[1]

    def _radial(self, r2: Tensor) -> tuple[Tensor, Tensor]:
        """Return the radial factor at squared tangents, and twice its derivative by them."""
        above = 1.0 + r2 * (self.k1 + r2 * (self.k2 + r2 * self.k3))
        below = 1.0 + r2 * (self.k4 + r2 * (self.k5 + r2 * self.k6))
        above_rate = self.k1 + r2 * (2.0 * self.k2 + r2 * 3.0 * self.k3)
        below_rate = self.k4 + r2 * (2.0 * self.k5 + r2 * 3.0 * self.k6)
        return above / below, 2.0 * (above_rate * below - above * below_rate) / (below * below)

    def _distort(self, tangents: Tensor) -> tuple[Tensor, Tensor]:
        """Return the points of the plane, and their Jacobian: its three entries (xx, xy, yy) `[..., 3]`."""
        x, y = tangents.unbind(-1)
        r2 = x * x + y * y
        radial, rate = self._radial(r2)
        p1, p2 = self.p1, self.p2
        point = [
            x * radial + 2.0 * p1 * x * y + p2 * (r2 + 2.0 * x * x),
            y * radial + p1 * (r2 + 2.0 * y * y) + 2.0 * p2 * x * y,
        ]
        entries = [
            radial + x * x * rate + 2.0 * p1 * y + 6.0 * p2 * x,
            x * y * rate + 2.0 * p1 * x + 2.0 * p2 * y,
            radial + y * y * rate + 6.0 * p1 * y + 2.0 * p2 * x,
        ]
        return torch.stack(point, dim=-1), torch.stack(entries, dim=-1)

    def _undistort(self, plane: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tangents of points of the plane, and whether they exist on the branch that contains the axis.

        The point moves out from the axis in steps, so that Newton's method starts close to the solution.
        """
        tangents = torch.zeros_like(plane)
        for step in range(8 + 12):
            target = min(1.0, (step + 1) / 8) * plane
            point, entries = self._distort(tangents)
            (xx, xy, yy), (dx, dy) = entries.unbind(-1), (target - point).unbind(-1)
            move = torch.stack([yy * dx - xy * dy, xx * dy - xy * dx], dim=-1) / (xx * yy - xy * xy)[..., None]
            tangents = tangents + move
            if step >= 8 and bool((move.abs() <= 1e-12 * (1.0 + tangents.abs())).all()):
                break
        error = (self._distort(tangents)[0] - plane).norm(dim=-1)
        return tangents, (error < 1e-9 * (1.0 + plane.norm(dim=-1))) & self._is_before_fold(tangents)

    def _is_before_fold(self, tangents: Tensor) -> Tensor:
        """Return whether the distortion keeps its orientation between the axis and each point, bool `[...]`."""
        good = torch.isfinite(tangents).all(dim=-1)
        x, y = tangents.unbind(-1)
        xx, xy, yy = x * x, x * y, y * y
        across = [2.0 * (i * self.p1 * y + j * self.p2 * x) for i, j in ((1.0, 3.0), (3.0, 1.0))]
        aside = 2.0 * (self.p1 * x + self.p2 * y)
        for step in range(SAMPLES):
            part = (step + 1) / SAMPLES
            radial, rate = self._radial(part * part * (xx + yy))
            rate = part * part * rate
            first, last = radial + xx * rate + part * across[0], radial + yy * rate + part * across[1]
            good &= (first * last > (xy * rate + part * aside) ** 2) & (first > 0.0)
        return good


class _FisheyeLensCfg(LensCfg):
    """Lens whose radius on the plane depends on the angle to the axis alone."""

    max_fov_deg: Angle = 360.0
    """Field of view, deg. Pixels beyond it see nothing."""

    def _angles(self, radii: Tensor) -> Tensor:
        """Return the angle of each radius, rad; NaN beyond the lens."""
        raise NotImplementedError

    def _radii(self, angles: Tensor) -> Tensor:
        """Return the radius of each angle; NaN beyond the lens."""
        raise NotImplementedError

    def _folds_at(self) -> float:
        """Return the radius at which the lens folds over; infinity if it does so beyond its field of view."""
        raise NotImplementedError

    @property
    def _widest(self) -> float:
        return math.radians(0.5 * self.max_fov_deg)

    def unproject(self, plane: Tensor) -> Tensor:
        """Return unit directions, float64 `[..., 3]`; 0 beyond the field of view."""
        radii = plane.norm(dim=-1, keepdim=True)
        angles = self._angles(radii)
        is_seen = torch.isfinite(angles)
        angles = torch.where(is_seen, angles, 0.0)
        sideways = torch.where(radii > 0.0, torch.sin(angles) / radii.clamp(min=1e-300), 0.0)
        return torch.cat([plane * sideways, torch.cos(angles)], dim=-1) * is_seen

    def project(self, points: Tensor) -> Tensor:
        """Return points of the plane, float64 `[..., 2]`; NaN beyond the field of view."""
        sideways = points[..., :2].norm(dim=-1, keepdim=True)
        radii = self._radii(angle_of(sideways, points[..., 2:]))
        scale = torch.where(sideways > 0.0, radii / sideways.clamp(min=1e-300), radii)
        plane: Tensor = points[..., :2] * scale
        return plane

    def folds(self, plane: Tensor) -> Tensor:
        """Return which points of the plane lie beyond a fold, bool `[...]`."""
        is_beyond: Tensor = plane.norm(dim=-1) >= self._folds_at()
        return is_beyond


class KannalaBrandtLensCfg(_FisheyeLensCfg, DistortedLensCfg):
    """Fisheye lens, the model ``fisheye`` of OpenCV and ``equidistant`` of ROS and Kalibr.

    With t the angle to the axis, the radius is t (1 + k1 t^2 + k2 t^4 + k3 t^6 + k4 t^8).

    Source: J. Kannala and S. Brandt, "A generic camera model and calibration method for conventional, wide-angle, and
    fish-eye lenses", IEEE TPAMI 28 (2006).
    """

    coefficient_fields = ("k1", "k2", "k3", "k4")

    k1: Finite = 0.0
    """Coefficient of t^3."""
    k2: Finite = 0.0
    """Coefficient of t^5."""
    k3: Finite = 0.0
    """Coefficient of t^7."""
    k4: Finite = 0.0
    """Coefficient of t^9."""

    @property
    def _polynomial(self) -> np.polynomial.Polynomial:
        return np.polynomial.Polynomial([0.0, 1.0, 0.0, self.k1, 0.0, self.k2, 0.0, self.k3, 0.0, self.k4])

    @property
    def formula(self) -> tuple[int, tuple[float, ...], float]:
        """Number, coefficients and edge of the projection."""
        return project.KANNALA_BRANDT, (self.k1, self.k2, self.k3, self.k4), 0.0

    def _angles(self, radii: Tensor) -> Tensor:
        return _inverse(self._polynomial, radii, min(self._widest, _first_fold(self._polynomial)))

    def _radii(self, angles: Tensor) -> Tensor:
        is_seen = angles <= min(self._widest, _first_fold(self._polynomial))
        return torch.where(is_seen, _value(self._polynomial, angles), float("nan"))

    def _folds_at(self) -> float:
        fold = _first_fold(self._polynomial)
        return float(self._polynomial(fold)) if fold <= self._widest else math.inf


class FThetaLensCfg(_FisheyeLensCfg):
    """Fisheye lens defined by the angle of each radius: ``fisheyePolynomial`` of Omniverse.

    With r the distance from the centre, px, in an image of `nominal_size`, the angle to the axis is
    c1 r + c2 r^2 + ..., rad. The focal length near the axis is 1 / c1 px.
    """

    defines_intrinsics = True

    coefficients: tuple[Finite, ...]
    """c1, c2, ..., rad/px, rad/px^2, ...; c1 is above 0."""
    nominal_size: Annotated[tuple[Positive, Positive], in_unit("px")]
    """Width and height of the image to which the coefficients refer, px. Images of other sizes are scaled by their
    width, and cropped or extended at the top and bottom."""
    centre: Annotated[tuple[Finite, Finite], in_unit("px")] | None = None
    """Column and row of the axis in that image, px; None for its centre."""

    @field_validator("coefficients")
    @classmethod
    def _rises(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not value or not value[0] > 0.0:
            raise bad("at least one coefficient, the first above 0")
        return value

    def intrinsic_matrix(self, width: int, height: int) -> Tensor:
        """Return the matrix of the lens near its axis, float64 `[3, 3]`, px."""
        scale = width / self.nominal_size[0]
        matrix = _centred(scale / self.coefficients[0], scale / self.coefficients[0], width, height)
        if self.centre is not None:
            for axis in range(2):
                matrix[axis, 2] += scale * (self.centre[axis] - 0.5 * self.nominal_size[axis])
        return matrix

    @property
    def _polynomial(self) -> np.polynomial.Polynomial:
        """Angle of a radius on the plane, where the focal length is 1."""
        focal = 1.0 / self.coefficients[0]
        return np.polynomial.Polynomial([0.0, *(c * focal**power for power, c in enumerate(self.coefficients, 1))])

    @property
    def _edge(self) -> float:
        """Radius of the edge of the field of view, or of the fold before it."""
        fold = _first_fold(self._polynomial)
        reach = fold if math.isfinite(fold) else 2.0 * self._widest
        while not math.isfinite(fold) and self._polynomial(reach) < self._widest:
            reach *= 2.0
        edge = _inverse(self._polynomial, torch.tensor([self._widest], dtype=torch.float64, device="cpu"), reach)
        return float(torch.where(torch.isfinite(edge), edge, reach))

    @property
    def formula(self) -> tuple[int, tuple[float, ...], float]:
        """Number, coefficients and edge of the projection."""
        return project.F_THETA, tuple(self._polynomial.coef[1:].tolist()), self._edge

    def _angles(self, radii: Tensor) -> Tensor:
        return torch.where(radii <= self._edge, _value(self._polynomial, radii), float("nan"))

    def _radii(self, angles: Tensor) -> Tensor:
        return _inverse(self._polynomial, angles, self._edge)

    def _folds_at(self) -> float:
        fold = _first_fold(self._polynomial)
        return fold if self._edge >= fold else math.inf


class EquirectangularLensCfg(LensCfg):
    """Panorama: columns are equal steps of the azimuth, rows of the elevation."""

    defines_intrinsics = True

    horizontal_fov_deg: Angle = 360.0
    """Azimuth between the left and right edge of the image, deg."""
    vertical_fov_deg: Annotated[Positive, must(lambda angle: angle <= 180.0, "up to 180, deg"), in_unit("deg")] = 180.0
    """Elevation between the lower and upper edge of the image, deg."""

    def intrinsic_matrix(self, width: int, height: int) -> Tensor:
        """Return the matrix, float64 `[3, 3]`; its focal lengths are in px/rad."""
        across, up = math.radians(self.horizontal_fov_deg), math.radians(self.vertical_fov_deg)
        return _centred(width / across, height / up, width, height)

    @property
    def formula(self) -> tuple[int, tuple[float, ...], float]:
        """Number, coefficients and edge of the projection."""
        return project.EQUIRECTANGULAR, (), 0.0

    def unproject(self, plane: Tensor) -> Tensor:
        """Return unit directions, float64 `[..., 3]`; 0 beyond a full turn and beyond the poles."""
        azimuth, down = plane.unbind(-1)
        is_seen = (azimuth.abs() <= math.pi) & (down.abs() <= 0.5 * math.pi)
        flat = torch.cos(down)
        out = torch.stack([torch.sin(azimuth) * flat, torch.sin(down), torch.cos(azimuth) * flat], dim=-1)
        return out * is_seen[..., None]

    def project(self, points: Tensor) -> Tensor:
        """Return azimuth to the right and angle down, rad, float64 `[..., 2]`."""
        x, y, z = points.unbind(-1)
        return torch.stack([angle_of(x, z), angle_of(y, torch.hypot(x, z))], dim=-1)


LENSES: dict[str, type[LensCfg]] = {
    "pinhole": PinholeLensCfg,
    "brown_conrady": BrownConradyLensCfg,
    "kannala_brandt": KannalaBrandtLensCfg,
    "f_theta": FThetaLensCfg,
    "equirectangular": EquirectangularLensCfg,
    "orthographic": OrthographicLensCfg,
}
"""Lenses by kind."""


def lens_rays(lens: LensCfg, matrices: Tensor, height: int, width: int, config: str = "lens") -> tuple[Tensor, Tensor]:
    """Return the rays of all pixels, row by row from the top left, in the camera's frame with the ``"ros"`` axes.

    Args:
        lens: the lens.
        matrices: intrinsic matrices `[n, 3, 3]`.
        height: number of rows.
        width: number of columns.
        config: name of the caller, for messages.

    Returns:
        Starts, m, and unit directions, float64 `[n, height * width, 3]` each. A direction of 0 sees nothing.

    Raises:
        ConfigError: a matrix is singular, or the lens folds over within the image.
    """
    plane = pixel_rays(matrices.double(), height, width, config)[..., :2].flatten(1, 2)
    directions = lens.unproject(plane)
    folded = ~directions.any(dim=-1)
    folded[folded.clone()] = lens.folds(plane[folded])
    if bool(folded.any()):
        number, pixel = (int(i) for i in folded.nonzero()[0])
        count, radius = int(folded[number].sum()), float(plane[number].norm(dim=-1)[folded[number]].min())
        raise ConfigError.single(
            config, "lens", lens,
            f"a lens that does not fold over: {count} of {width * height} pixels are beyond the fold at a radius of "
            f"{radius:.4g} focal lengths, first row {pixel // width}, column {pixel % width}",
            "Correct its coefficients, or use a smaller field of view.",
        )  # fmt: skip
    starts = torch.zeros(*plane.shape[:2], 3, dtype=torch.float64, device=plane.device)
    if lens.is_parallel:
        starts[..., :2] = plane
    return starts, directions


def projection_of(lens: LensCfg, matrices: Tensor) -> project.Projection:
    """Return the projection of a lens.

    Args:
        lens: the lens.
        matrices: its intrinsic matrices, live, float32 `[env, 3, 3]`.
    """
    out = project.Projection()
    out.kind, coefficients, out.edge = lens.formula
    out.k = wp.from_torch(matrices, dtype=wp.vec3)
    out.coefficients = wp.array(np.array(coefficients, np.float32), dtype=wp.float32, device=str(matrices.device))
    return out


def lines_of(lens: LensCfg, matrices: Tensor, height: int, width: int, config: str) -> dict[str, Tensor]:
    """Return the lines of sight in the camera's frame (x forward, y left, z up); nothing for a pinhole.

    Args:
        lens: the lens.
        matrices: its intrinsic matrices, `[env, 3, 3]`.
        height: number of rows.
        width: number of columns.
        config: name of the caller, for messages.

    Returns:
        ``directions``, float32 unit vectors `[1 or env, pixel, 3]`, 0 where the lens sees nothing, and for a parallel
        camera ``starts``, m. Equal matrices of all environments give one table.

    Raises:
        ConfigError: the lens folds over within the image.
    """
    if lens.is_pinhole:
        return {}
    each, which = torch.unique(matrices, dim=0, return_inverse=True)
    which = which[:1] if len(each) == 1 else which
    starts, directions = (
        torch.stack([rays[..., 2], -rays[..., 0], -rays[..., 1]], dim=-1).float()[which].contiguous()
        for rays in lens_rays(lens, each, height, width, config)
    )
    return {"directions": directions, "starts": starts} if lens.is_parallel else {"directions": directions}


def parse_lens(value: Any) -> Any:
    """Return a lens: one unchanged, or the result of `to_dict`, identified by its ``kind``, by default a pinhole.

    Raises as a validator does.
    """
    if isinstance(value, LensCfg):
        return value
    if isinstance(value, Mapping):
        fields = dict(value)
        kind = fields.pop("kind", "pinhole")
        if odd := [name for name in fields if not isinstance(name, str)]:
            raise bad("fields by name", f"{shown(odd[0])} is not a field name.")
        if not isinstance(kind, str) or kind not in LENSES:
            raise ConfigError.single(
                "lens", "kind", kind, f"one of {', '.join(LENSES)}", nearest(str(kind), LENSES).strip()
            )
        return LENSES[kind].from_dict(fields)
    raise bad("a lens such as BrownConradyLensCfg(k1=-0.28, k2=0.07)", f"{shown(value)} is not a lens.")


LensField = Annotated[LensCfg, Parsed("LensCfg", parse_lens, lambda lens: lens.to_dict())]
"""Type of a config field that holds a lens of any kind."""


# Helpers --------------------------------------------------------------------------------------------------------------


def _centred(fx: float, fy: float, width: int, height: int) -> Tensor:
    rows = [[fx, 0.0, 0.5 * width], [0.0, fy, 0.5 * height], [0.0, 0.0, 1.0]]
    return torch.tensor(rows, dtype=torch.float64, device="cpu")


def _forward(tangents: Tensor) -> Tensor:
    """Return the unit directions of tangents."""
    directions = torch.cat([tangents, torch.ones_like(tangents[..., :1])], dim=-1)
    unit: Tensor = directions / directions.norm(dim=-1, keepdim=True)
    return unit


def _tangents(points: Tensor) -> Tensor:
    """Return the tangents of points; NaN behind the camera."""
    return torch.where(points[..., 2:] > 0.0, points[..., :2] / points[..., 2:], float("nan"))


def _value(polynomial: np.polynomial.Polynomial, x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for coefficient in reversed(polynomial.coef):
        out = out * x + float(coefficient)
    return out


def _first_fold(polynomial: np.polynomial.Polynomial) -> float:
    """Return the least positive x at which a polynomial stops to rise; infinity if it always rises."""
    roots = np.asarray(polynomial.deriv().trim().roots(), dtype=np.complex128)
    is_fold = (np.abs(roots.imag) < 1e-9 * (1.0 + np.abs(roots))) & (roots.real > 0.0)
    return float(roots.real[is_fold].min(initial=math.inf))


def _inverse(polynomial: np.polynomial.Polynomial, values: Tensor, greatest: float) -> Tensor:
    """Return x from 0 to `greatest`, where the polynomial rises, for given values; NaN for values beyond it."""
    low, high = torch.zeros_like(values), torch.full_like(values, greatest)
    for _ in range(64):
        middle = 0.5 * (low + high)
        is_below = _value(polynomial, middle) < values
        low, high = torch.where(is_below, middle, low), torch.where(is_below, high, middle)
    return torch.where(values <= float(polynomial(greatest)), 0.5 * (low + high), float("nan"))
