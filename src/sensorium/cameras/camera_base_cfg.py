"""Config base of cameras: their pose on a mount, image and lens from a camera of the model, and clipping."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from sensorium.cameras.camera_data import ALIASES, ALWAYS, COUNT
from sensorium.cameras.geometry import Convention, convert_orientation_convention, look_at
from sensorium.cameras.stages.depth_image import DepthStage
from sensorium.cfg import OffsetCfg, Vec3, bad, numbers_in
from sensorium.engines.base import CameraLens
from sensorium.errors import ConfigError, Fault, nearest
from sensorium.geometry.transforms import quat_from_matrix
from sensorium.measurement.sensor_cfg import MountedSensorCfg
from sensorium.patterns import PinholeCameraPatternCfg
from sensorium.sensors.frames.targets_cfg import TargetsCfg

DataT = TypeVar("DataT")

FOCAL = ("fovy", "focal_length", "horizontal_aperture", "vertical_aperture")
"""Fields of a pinhole lens that define the focal lengths."""
CENTRE = ("horizontal_aperture_offset", "vertical_aperture_offset")
"""Fields that define the principal point."""
ON_CAMERAS = ("camera", "cameras", "prim_path")
"""Selectors that can refer to a camera of the model."""


class CameraOffsetCfg(OffsetCfg):
    """Pose of a camera relative to the frame it is mounted on."""

    convention: Convention = "world"
    """Camera axes that `rot` rotates: ``"world"`` (x forward, z up, as for all other sensors), ``"ros"`` (z forward, y
    down) or ``"opengl"`` (-z forward, y up). For a camera of the model (`camera=`) the default is ``"opengl"``, its
    native convention."""

    @classmethod
    def from_view(cls, pos: Vec3, lookat: Vec3, up: Vec3 = (0.0, 0.0, 1.0)) -> Self:
        """Return the pose of a camera that looks at a point, in the frame of the mount.

        Args:
            pos: position of the camera, m.
            lookat: point in the centre of the view, m.
            up: direction that is up in the image; where it is along the view, see `look_at`.

        Raises:
            ConfigError: the two points are equal, or a number is not finite.
        """
        eye, target, upwards = (torch.tensor(part, dtype=torch.float64, device="cpu") for part in (pos, lookat, up))
        w, x, y, z = look_at(eye, target, "world", cls.__name__, up=upwards).tolist()
        return cls(pos=pos, rot=(w, x, y, z), convention="world")

    @classmethod
    def from_matrix(cls, matrix: ArrayLike, convention: Convention = "opengl") -> Self:
        """Return the pose of a 4x4 matrix.

        Args:
            matrix: `[4, 4]`: rotation, position (m) in the last column, and (0, 0, 0, 1) in the last row.
            convention: camera axes that it rotates.

        Raises:
            ConfigError: the matrix is not a rotation and a position.
        """
        try:
            pose = numbers_in(matrix).reshape(4, 4)
        except ValueError:
            pose = np.full((4, 4), np.nan)
        turn = pose[:3, :3]
        good = np.isfinite(pose).all() and pose[3].tolist() == [0.0, 0.0, 0.0, 1.0]
        if not (good and np.abs(turn @ turn.T - np.eye(3)).max() < 1e-3 and np.linalg.det(turn) > 0.0):
            expected = "a [4, 4] matrix of a rotation and a position, with the last row (0, 0, 0, 1)"
            raise ConfigError.single(cls.__name__, "matrix", np.asarray(matrix).tolist(), expected)
        rot = quat_from_matrix(torch.from_numpy(turn))
        return cls(pos=pose[:3, 3].tolist(), rot=(rot / rot.norm()).tolist(), convention=convention)


class CameraMountCfg(MountedSensorCfg[DataT], Generic[DataT]):
    """Sensor whose offset is the pose of a camera, in one of three conventions."""

    mount_has_offset: ClassVar[bool] = False

    offset: CameraOffsetCfg = CameraOffsetCfg()
    """Pose of the camera relative to the frame it is mounted on."""

    OffsetCfg: ClassVar[type[OffsetCfg]] = CameraOffsetCfg

    def __init__(self, /, **data: Any) -> None:
        offset = data.get("offset")
        if isinstance(offset, OffsetCfg) and not isinstance(offset, CameraOffsetCfg):
            data = {**data, "offset": CameraOffsetCfg(pos=offset.pos, rot=offset.rot)}
        super().__init__(**data)

    @property
    def convention(self) -> Convention:
        """Axes that the offset rotates, for a `prim_path` that does not refer to a camera."""
        return self.convention_on(self.selector[0] in ("camera", "cameras"))

    def convention_on(self, is_camera: bool) -> Convention:
        """Return the axes that the offset rotates, for a camera of the model or another mount."""
        return "opengl" if is_camera and "convention" not in self.offset.model_fields_set else self.offset.convention

    def offset_on(self, is_camera: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the offset for a camera of the model or another mount: float64 `[3]`, m, and `[4]`, x forward."""
        rot = torch.tensor(self.offset.rot, dtype=torch.float32, device="cpu").double()
        quat = convert_orientation_convention(rot, self.convention_on(is_camera), "world")
        return torch.tensor(self.offset.pos, dtype=torch.float64, device="cpu"), quat / quat.norm()


class CameraBaseCfg(CameraMountCfg[DataT], TargetsCfg[DataT], Generic[DataT]):
    """Sensor with images of a camera.

    For a camera of the model (`camera=`, `cameras=`, or a `prim_path` of one), image and lens default to those of that
    camera, in each environment.
    """

    types: ClassVar[tuple[str, ...]] = ()
    """Fields of images that the sensor can compute, in the order of the data class."""
    needs_size: ClassVar[tuple[str, str]]
    """Field that defines the size of the image, and its accepted values, for messages."""

    # Data types -------------------------------------------------------------------------------------------------------

    @property
    def asked(self) -> tuple[str, ...]:
        """Data types under the given names."""
        given: tuple[str, ...] = getattr(self, "data_types", ())
        return given

    @property
    def selected(self) -> tuple[str, ...]:
        """The computed fields of `CameraData`, in its order."""
        wanted = {ALIASES.get(name, name) for name in self.asked}
        wanted |= {name + COUNT for name in wanted}
        return (*ALWAYS, *(name for name in self.types if name in wanted))

    # Distances --------------------------------------------------------------------------------------------------------

    @property
    def depth_limits(self) -> tuple[float, float]:
        """Minimum and maximum t of a visible surface, m; see `ImageSpec.limits`."""
        raise NotImplementedError

    @property
    def measured_range(self) -> tuple[float, float, float]:
        """Range of measured distances: `depth_limits`, and the minimum length of a ray, m."""
        return (*self.depth_limits, 0.0)

    @property
    def hole(self) -> float:
        """Distance that stands for no measurement, m, whatever the range: of a stage's model, or 0; NaN without any."""
        stages = [stage.hole_value for stage in self.stages if isinstance(stage, DepthStage)]
        return next(iter(stages), 0.0 if self.stages else math.nan)

    @property
    def clipping(self) -> tuple[float, float]:
        """Maximum distance that is not clipped, and the value beyond it and for a miss, m."""
        raise NotImplementedError

    @property
    def clips(self) -> bool:
        """Whether a pixel without a hit in range shows a value other than +inf."""
        farthest, beyond = self.clipping
        return farthest < self.depth_limits[1] or beyond != math.inf

    @property
    def point_beyond(self) -> float:
        """Depth of the points of clipped pixels, m; negative where clipping does not change the points."""
        return -1.0

    # Image and lens ---------------------------------------------------------------------------------------------------

    @property
    def size(self) -> tuple[int, int] | None:
        """(width, height), px, from the config; None leaves it to a camera of the model."""
        raise NotImplementedError

    def lens_at(self, width: int, height: int) -> PinholeCameraPatternCfg | None:
        """Return the lens of the config for an image of this size, px; None if the config gives none."""
        raise NotImplementedError

    def image_on(self, camera: CameraLens | None, name: str = "") -> tuple[int, int]:
        """Return (width, height), px, for a given camera of the model or without one.

        Args:
            camera: image and lens of that camera.
            name: its name, for the message.

        Raises:
            ConfigError: neither the config nor the camera defines a size.
        """
        if self.size is not None:
            return self.size
        fix = f"Camera {name!r} has no size either: set its resolution=... in the model." if name else ""
        if camera is None or camera.resolution is None:
            field, expected = self.needs_size
            raise ConfigError(self.title, [Fault(field, "nothing", expected, fix)])
        return camera.resolution

    def matrices_on(self, camera: CameraLens | None, name: str = "") -> NDArray[np.float64]:
        """Return the intrinsic matrices, px, float64 `[1 or env, 3, 3]`, with the values of the config where given.

        Args:
            camera: image and lens of the camera of the model that carries the sensor; None for other mounts.
            name: its name, for the message.

        Raises:
            ConfigError: the camera is orthographic, and the config defines no focal length.
        """
        width, height = self.image_on(camera, name)
        if camera is None:
            lens = self.lens_at(width, height) or PinholeCameraPatternCfg(width=width, height=height)
            return lens.intrinsic_matrix[None]
        if camera.is_orthographic and not self.states_focal:
            fix = 'Give it projection="perspective" in the model, or a lens with fovy=...'
            got = f"camera {name!r}, which is orthographic"
            raise ConfigError(self.title, [Fault(self.selector[0], got, "a perspective camera", fix)])
        k = camera.matrices(width, height)
        self._state(k, width, height)
        return k

    @property
    def lens_fields(self) -> set[str]:
        """Names of the fields of a pinhole lens that the config gives."""
        raise NotImplementedError

    @property
    def states_focal(self) -> bool:
        """Whether the config defines the focal length."""
        return bool(self.lens_fields & {*FOCAL})

    def _state(self, k: NDArray[np.float64], width: int, height: int) -> None:
        """Write the config's values into the intrinsic matrices of a camera of the model, for an image of this size."""
        lens = self.lens_at(width, height)
        if lens is None:
            return
        if self.states_focal:
            k[:, [0, 1], [0, 1]] = lens.intrinsic_matrix.diagonal()[:2]
        for row, (name, size) in enumerate(zip(CENTRE, (width, height), strict=True)):
            if name in self.lens_fields:
                k[:, row, 2] = 0.5 * size + getattr(lens, name) * k[:, row, row]


def check_types(value: tuple[str, ...], known: tuple[str, ...]) -> None:
    """Raise as a validator does where a data type is unknown or given twice, or there is none."""
    for name in value:
        if name not in known:
            raise bad(f"data types among {', '.join(known)}", nearest(name, known).strip())
    if not value or len(set(value)) != len(value):
        raise bad("at least one data type, each once")
