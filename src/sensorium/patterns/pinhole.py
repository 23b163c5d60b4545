"""Rays of a pinhole camera, through the centres of its pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Float, must, numbers_in
from sensorium.errors import ConfigError, Fault, shown
from sensorium.patterns.base import Device, Int, PatternBaseCfg, check_count, tensor

_NEAR_SINGULAR = 1e-12
"""Minimum ratio of an intrinsic matrix's singular values; that of a 10,000-pixel camera is above 1e-9."""


def pinhole_camera_pattern(
    cfg: PinholeCameraPatternCfg, intrinsic_matrices: Tensor, device: Device
) -> tuple[Tensor, Tensor]:
    """Return starts (0) and unit directions, float32 `[n, ray, 3]` each, for given intrinsics.

    Args:
        cfg: defines width and height.
        intrinsic_matrices: `[n, 3, 3]`, pixels.
        device: device of the result.

    Raises:
        ConfigError: a matrix is singular or not finite.
    """
    directions = cfg.rays_from_intrinsics(intrinsic_matrices).to(device)
    return torch.zeros_like(directions), directions


Length = Annotated[Float, must(lambda length: length > 0.0, "a length greater than 0")]
Angle = Annotated[Float, must(lambda angle: 0.0 < angle < 180.0, "an angle between 0 and 180, deg")]
Pixels = Annotated[Int, must(lambda count: count >= 1, "at least 1 pixel")]


class PinholeCameraPatternCfg(PatternBaseCfg):
    """One ray per pixel of a pinhole camera that looks along x, row by row from the top left.

    Pixel (row v, column u) has its centre at (u + 0.5, v + 0.5); its ray points along K^-1 (u + 0.5, v + 0.5, 1). Focal
    length and apertures share a unit, which cancels: fx = width * focal_length / horizontal_aperture. ``fovy=...``, the
    vertical field of view in degrees, is an alternative to the apertures; the pixels are then square.
    """

    width: Pixels
    """Number of columns."""
    height: Pixels
    """Number of rows."""
    focal_length: Length = 24.0
    """Focal length, in the unit of the apertures."""
    horizontal_aperture: Length = 20.955
    """Width of the image plane."""
    vertical_aperture: Length | None = None
    """Height of the image plane; None gives square pixels."""
    horizontal_aperture_offset: Float = 0.0
    """Shift of the principal point to the right, as tangent: cx = width/2 + offset * fx."""
    vertical_aperture_offset: Float = 0.0
    """Shift of the principal point down, as tangent: cy = height/2 + offset * fy."""

    def __init__(self, /, **data: Any) -> None:
        if "fovy" in data:
            data = _apertures_of_fovy(type(self).__name__, dict(data))
        super().__init__(**data)

    @field_validator("width", "height")
    @classmethod
    def _pixels(cls, value: int, info: ValidationInfo) -> int:
        check_count(value * info.data.get("width", 1))
        return value

    @classmethod
    def from_intrinsic_matrix(
        cls, intrinsic_matrix: ArrayLike, width: int, height: int, focal_length: float = 24.0
    ) -> PinholeCameraPatternCfg:
        """Return the pattern of an intrinsic matrix; the property `intrinsic_matrix` returns it up to the last bit.

        Args:
            intrinsic_matrix: (fx, 0, cx, 0, fy, cy, 0, 0, 1), nine numbers row by row or `[3, 3]`, pixels.
            width: number of columns.
            height: number of rows.
            focal_length: only sets the unit of the apertures.

        Raises:
            ConfigError: the matrix is singular, not finite, or has skew or a last row other than (0, 0, 1). Use
                `rays_from_intrinsics` for such a camera.
        """
        try:
            k = numbers_in(intrinsic_matrix).reshape(3, 3)
        except ValueError:
            raise _bad_matrix(cls.__name__, intrinsic_matrix, "9 numbers, or [3, 3]") from None
        if not np.isfinite(k).all():
            raise _bad_matrix(cls.__name__, k.tolist(), "finite numbers")
        fx, fy = k[0, 0], k[1, 1]
        if not (fx > 0.0 and fy > 0.0):
            raise _bad_matrix(cls.__name__, k.tolist(), "a non-singular matrix with fx > 0 and fy > 0")
        if k[0, 1] != 0.0 or k[1, 0] != 0.0 or k[2].tolist() != [0.0, 0.0, 1.0]:
            raise _bad_matrix(cls.__name__, k.tolist(), "no skew, and (0, 0, 1) as the last row")
        return cls(
            width=width,
            height=height,
            focal_length=focal_length,
            horizontal_aperture=float(width * focal_length / fx),
            vertical_aperture=float(height * focal_length / fy),
            horizontal_aperture_offset=float((k[0, 2] - 0.5 * width) / fx),
            vertical_aperture_offset=float((k[1, 2] - 0.5 * height) / fy),
        )

    @classmethod
    def from_fov(
        cls,
        width: int,
        height: int,
        *,
        fov_horizontal: float | None = None,
        fov_vertical: float | None = None,
        focal_length: float = 24.0,
    ) -> PinholeCameraPatternCfg:
        """Return the pattern of a field of view; a single angle implies square pixels.

        Args:
            width: number of columns.
            height: number of rows.
            fov_horizontal: angle between the left and right edge of the image, deg.
            fov_vertical: angle between the upper and lower edge of the image, deg.
            focal_length: only sets the unit of the apertures.

        Raises:
            ConfigError: neither angle is given, or an angle is not between 0 and 180 degrees.
        """
        if fov_horizontal is None and fov_vertical is None:
            raise ConfigError.single(cls.__name__, "fov_horizontal", None, "fov_horizontal or fov_vertical, deg")
        given = {"fov_horizontal": fov_horizontal, "fov_vertical": fov_vertical}
        apertures = {
            name: None if fov is None else 2.0 * focal_length * _half_tangent(cls.__name__, name, fov)
            for name, fov in given.items()
        }
        horizontal, vertical = apertures["fov_horizontal"], apertures["fov_vertical"]
        if horizontal is None and vertical is not None:
            horizontal = vertical * width / height
        return cls(
            width=width,
            height=height,
            focal_length=focal_length,
            horizontal_aperture=horizontal,
            vertical_aperture=vertical,
        )

    @property
    def intrinsic_matrix(self) -> NDArray[np.float64]:
        """Intrinsic matrix K, float64 `[3, 3]`, pixels: ((fx, 0, cx), (0, fy, cy), (0, 0, 1))."""
        fx = self.width * self.focal_length / self.horizontal_aperture
        fy = fx
        if self.vertical_aperture is not None:
            fy = self.height * self.focal_length / self.vertical_aperture
        cx = self.horizontal_aperture_offset * fx + 0.5 * self.width
        cy = self.vertical_aperture_offset * fy + 0.5 * self.height
        return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])

    @property
    def return_shape(self) -> tuple[int, ...]:
        """(height, width)."""
        return self.height, self.width

    def func(self, device: Device) -> tuple[Tensor, Tensor]:
        """Return starts (0) and unit directions, float32 `[ray, 3]`."""
        starts, directions = pinhole_camera_pattern(
            self, torch.tensor(self.intrinsic_matrix, device="cpu")[None], device
        )
        return starts[0], directions[0]

    def rays_from_intrinsics(self, intrinsic_matrices: Tensor) -> Tensor:
        """Return the unit directions for given intrinsics, float32 `[n, ray, 3]`, row by row from the top left.

        Args:
            intrinsic_matrices: `[n, 3, 3]`, pixels, for images of `width` x `height`; any invertible matrices.

        Raises:
            ConfigError: another shape, or a matrix that is singular or not finite: the message gives the first one.
        """
        name = type(self).__name__
        k = intrinsic_matrices
        if not isinstance(k, torch.Tensor):
            k = torch.as_tensor(k, device="cpu")
        if k.dim() != 3 or tuple(k.shape[1:]) != (3, 3):
            raise _bad_matrix(name, tuple(k.shape), "a tensor [n, 3, 3]")
        k = k.double()
        finite = torch.isfinite(k).all(dim=-1).all(dim=-1)
        sizes = torch.linalg.svdvals(torch.where(finite[:, None, None], k, torch.zeros_like(k)))
        good = finite & (sizes[:, 2] > _NEAR_SINGULAR * sizes[:, 0])
        if not bool(good.all()):
            row = int(torch.nonzero(~good)[0, 0])
            raise _bad_matrix(name, k[row].tolist(), f"a finite non-singular matrix, in row {row} of {len(k)}")
        u = torch.arange(self.width, dtype=torch.float64, device=k.device) + 0.5
        v = torch.arange(self.height, dtype=torch.float64, device=k.device) + 0.5
        rows, columns = torch.meshgrid(v, u, indexing="ij")
        pixels = torch.stack([columns.reshape(-1), rows.reshape(-1), torch.ones_like(columns).reshape(-1)])
        p = torch.linalg.inv(k) @ pixels  # [n, 3, ray]: x to the right, y down, z forward
        directions = torch.stack([p[:, 2], -p[:, 0], -p[:, 1]], dim=-1)
        unit: Tensor = (directions / directions.norm(dim=-1, keepdim=True)).float()
        return unit

    @classmethod
    def from_lens(
        cls,
        res: tuple[int, int] = (128, 96),
        fx: float | None = None,
        fy: float | None = None,
        cx: float | None = None,
        cy: float | None = None,
        fov_horizontal: float | None = None,
        fov_vertical: float | None = None,
    ) -> PinholeCameraPatternCfg:
        """Build the camera from the values of a data sheet.

        Args:
            res: (width, height), pixels.
            fx: focal length, pixels; without fy it applies to both axes.
            fy: focal length, pixels; without fx it applies to both axes.
            cx: principal point, pixels; None uses the centre.
            cy: principal point, pixels; None uses the centre.
            fov_horizontal: deg, an alternative to focal lengths; 90 by default.
            fov_vertical: deg, an alternative to focal lengths; alone it implies square pixels.

        Raises:
            ConfigError: both focal lengths and angles are given, or a value is invalid.
        """
        width, height = res
        focal = fx if fx is not None else fy
        angle = fov_horizontal if fov_horizontal is not None else fov_vertical
        if focal is not None and angle is not None:
            raise ConfigError.single(
                cls.__name__, "fx", focal, "either focal lengths or angles", "Keep one of the two."
            )
        if focal is not None:
            matrix = [[fx or focal, 0.0, 0.5 * width], [0.0, fy or focal, 0.5 * height], [0.0, 0.0, 1.0]]
        else:
            fov = 90.0 if angle is None else fov_horizontal
            cfg = cls.from_fov(width, height, fov_horizontal=fov, fov_vertical=fov_vertical)
            matrix = cfg.intrinsic_matrix.tolist()
        matrix[0][2] = matrix[0][2] if cx is None else cx
        matrix[1][2] = matrix[1][2] if cy is None else cy
        return cls.from_intrinsic_matrix(matrix, width, height)


class ImagePlanePatternCfg(PatternBaseCfg):
    """Rays of a pinhole camera that looks along -z, with x to the right and y up, row by row from the lower left.

    Unlike those of `PinholeCameraPatternCfg`, the outermost rays pass through the corners of the image.
    """

    width: Pixels = 16
    """Number of columns."""
    height: Pixels = 12
    """Number of rows."""
    fovy: Angle = 45.0
    """Vertical field of view, degrees."""
    fovx: Angle | None = None
    """Horizontal field of view, degrees; None gives square pixels."""
    camera: str | None = None
    """Camera of the model that defines the image and its field of view in place of the other fields."""

    @property
    def return_shape(self) -> tuple[int, ...]:
        """(height, width)."""
        return self.height, self.width

    def of_model(self, engine: Any) -> ImagePlanePatternCfg:
        """Return the pattern with the image size and the field of view of its camera.

        Raises:
            UnknownNameError: there is no such camera.
            ConfigError: the camera has no resolution, or no field of view.
        """
        if self.camera is None:
            return self
        lens = engine.camera_lens(self.camera)
        if lens is None or lens.resolution is None or lens.is_orthographic:
            expected = "a camera of the model with a resolution and a field of view"
            raise self._bad("camera", self.camera, expected, 'Give it resolution="64 48" in the model.')
        (width, height), angles = lens.resolution, (None, float(lens.fovy[0]))
        if lens.sensor_size is not None:
            angles = tuple(np.degrees(2.0 * np.arctan(0.5 * np.array(lens.sensor_size) / lens.intrinsic[0, :2])))
        return self.replace(width=width, height=height, fovx=angles[0], fovy=angles[1], camera=None)

    def func(self, device: Device) -> tuple[Tensor, Tensor]:
        """Return starts (0) and unit directions, float32 `[ray, 3]`."""
        if self.camera is not None:
            raise self._bad("camera", self.camera, "no camera without its model", "Use of_model(engine) first.")
        tangent_y = math.tan(math.radians(0.5 * self.fovy))
        tangent_x = tangent_y * self.width / self.height
        if self.fovx is not None:
            tangent_x = math.tan(math.radians(0.5 * self.fovx))
        columns, rows = np.meshgrid(np.linspace(-1.0, 1.0, self.width), np.linspace(-1.0, 1.0, self.height))
        points = [tangent_x * columns.ravel(), tangent_y * rows.ravel(), np.full(columns.size, -1.0)]
        directions = tensor(np.stack(points, axis=-1), device)
        return torch.zeros_like(directions), directions


def _bad_matrix(name: str, got: object, expected: str) -> ConfigError:
    fix = "Give ((fx, 0, cx), (0, fy, cy), (0, 0, 1)), pixels."
    return ConfigError.single(name, "intrinsic_matrix", got, expected, fix)


def _half_tangent(config: str, field: str, fov: Any) -> float:
    if isinstance(fov, bool) or not isinstance(fov, int | float) or not 0.0 < fov < 180.0:
        fix = "Use a SphericalPatternCfg for a wider view."
        raise ConfigError.single(config, field, fov, "an angle between 0 and 180, deg", fix)
    return math.tan(math.radians(0.5 * fov))


def _apertures_of_fovy(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a config with apertures instead of the vertical field of view."""
    fovy = data.pop("fovy")
    other: Sequence[str] = [key for key in ("horizontal_aperture", "vertical_aperture") if data.get(key) is not None]
    if other:
        raise ConfigError(name, [Fault("fovy", shown(fovy), f"either fovy or {other[0]}", "Keep one of the two.")])
    tangent = _half_tangent(name, "fovy", fovy)
    focal = data.get("focal_length", PinholeCameraPatternCfg.model_fields["focal_length"].default)
    width, height = data.get("width"), data.get("height")
    if all(isinstance(value, int | float) and value > 0 for value in (focal, width, height)):
        data["vertical_aperture"] = 2.0 * focal * tangent
        data["horizontal_aperture"] = data["vertical_aperture"] * width / height
    return data
