"""Data (`CameraData`) and configuration (`RayCasterCameraCfg`) of a camera that casts rays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import field_validator, model_validator
from torch import Tensor

from sensorium.cfg import OffsetCfg, bad, in_unit
from sensorium.engines.base import CameraLens
from sensorium.errors import ConfigError, Fault, nearest
from sensorium.geometry.cameras import Convention, convert_orientation_convention
from sensorium.patterns import OptionalPatternField, PinholeCameraPatternCfg
from sensorium.sensors.rays.ray_cfg import DriftRange, Range, RayCfg, spans_of
from sensorium.spec import Field

IMAGE = ("height", "width", "channel")
VECTORS = ("height", "width", "xyz")


@dataclass(frozen=True, slots=True)
class CameraData:
    """One image and its camera pose; data types that the config does not select are None.

    Attributes:
        image_shape: (height, width), pixels.
        data_types: the data types, under the config's names.
    """

    pos_w: Annotated[Tensor, Field("m", (3,), frame="world", kind="derived", role="point")]
    """Position of the camera's optical centre in the world, m."""
    quat_w_world: Annotated[Tensor, Field("1", (4,), frame="world", kind="derived", role="pose")]
    """Orientation of the camera in the world, axes forward, left, up; unit quaternion (w, x, y, z)."""
    intrinsic_matrices: Annotated[Tensor, Field("px", (3, 3), ("row", "column"), kind="derived")]
    """Intrinsic matrix, px: ((fx, 0, cx), (0, fy, cy), (0, 0, 1))."""
    distance_to_camera: Annotated[Tensor, Field("m", (1, 1, 1), IMAGE, role="image")]
    """Distance along each pixel's ray to its hit, m."""
    distance_to_image_plane: Annotated[Tensor, Field("m", (1, 1, 1), IMAGE, role="image")]
    """Distance of each pixel's hit along the camera's axis (z-depth), m."""
    normals: Annotated[Tensor, Field("1", (1, 1, 3), VECTORS, frame="world", kind="derived", role="image")]
    """Outward unit normal of the surface at the hit, in the world; 0 for a miss."""
    points_b: Annotated[Tensor, Field("m", (1, 1, 3), VECTORS, frame="sensor", kind="derived", role="image")]
    """Hit point of each pixel, in the camera's frame with axes right, down, forward, m; +inf for a miss."""
    geom_ids: Annotated[Tensor, Field("1", (1, 1, 1), IMAGE, dtype="int32", kind="id", role="image")]
    """Shape that was hit: row in the sensor's `geom_names`; -1 for a miss."""
    face_ids: Annotated[Tensor, Field("1", (1, 1, 1), IMAGE, dtype="int32", kind="id", role="image")]
    """Triangle that was hit, of a mesh (row of its faces) or height field; -1 for other shapes and for a miss."""
    image_shape: tuple[int, int]
    data_types: tuple[str, ...]

    @property
    def output(self) -> dict[str, Tensor]:
        """The selected data types, in the config's order and under its names."""
        return {name: getattr(self, name) for name in self.data_types}

    @property
    def info(self) -> list[dict[str, Any]]:
        """Additional information on each data type per environment; always None."""
        return [dict.fromkeys(self.data_types) for _ in range(len(self.pos_w))]

    @property
    def quat_w_ros(self) -> Tensor:
        """`quat_w_world` for the axes right, down, forward."""
        return convert_orientation_convention(self.quat_w_world, "world", "ros")

    @property
    def quat_w_opengl(self) -> Tensor:
        """`quat_w_world` for the axes right, up, backward, as in OpenGL and USD."""
        return convert_orientation_convention(self.quat_w_world, "world", "opengl")


DISTANCES = ("distance_to_image_plane", "distance_to_camera")
TYPES = ("distance_to_camera", "distance_to_image_plane", "normals", "points_b", "geom_ids", "face_ids")
UNSUPPORTED = (
    "bounding_box_2d_loose", "bounding_box_2d_loose_fast", "bounding_box_2d_tight", "bounding_box_2d_tight_fast",
    "bounding_box_3d", "bounding_box_3d_fast", "instance_id_segmentation", "instance_id_segmentation_fast",
    "instance_segmentation", "instance_segmentation_fast", "motion_vectors", "rgb", "semantic_segmentation",
    "skeleton_data",
)  # fmt: skip
FOCAL = ("focal_length", "horizontal_aperture", "vertical_aperture")
"""Fields of a `PinholeCameraPatternCfg` that define the focal lengths."""
CENTRE = ("horizontal_aperture_offset", "vertical_aperture_offset")
"""Fields that define the principal point."""
ON_CAMERAS = ("camera", "cameras", "prim_path")
"""Selectors that can refer to a camera of the model."""
ALWAYS = ("pos_w", "quat_w_world", "intrinsic_matrices")


class CameraOffsetCfg(OffsetCfg):
    """Pose of a camera relative to the frame it is mounted on."""

    convention: Convention = "ros"
    """Camera axes that `rot` rotates: ``"ros"`` (z forward, y down), ``"opengl"`` (-z forward, y up) or ``"world"`` (x
    forward, z up). For a camera of the model (`camera=`) the default is ``"opengl"``, its native convention."""


class RayCasterCameraCfg(RayCfg[CameraData]):
    """Configuration of a camera that casts rays.

    Knobs such as `noise`, m, and stages act on `distance_to_image_plane` if it is selected, otherwise on
    `distance_to_camera`; the other distance and `points_b` are derived from the measured one. Misses stay misses, and
    clipping is applied last. Stages that read the true image get it clipped: for them, hits beyond `max_distance` are
    at that distance. They treat a miss as no value, whatever number it shows.

    For a camera of the model (`camera=`, `cameras=`, or a `prim_path` of one), image and lens default to those of that
    camera, in each environment.
    """

    mount_has_offset: ClassVar[bool] = False

    pattern: OptionalPatternField = None
    """Image and lens, a `PinholeCameraPatternCfg`. Optional for a camera of the model; a pattern with only `width` and
    `height` uses the lens of that camera."""
    data_types: tuple[str, ...] = ("distance_to_image_plane",)
    """Computed data types: any of distance_to_camera, distance_to_image_plane, normals, points_b, geom_ids,
    face_ids."""
    offset: CameraOffsetCfg = CameraOffsetCfg()
    """Pose of the camera relative to the frame it is mounted on."""
    ray_alignment: Literal["base", "yaw", "world"] = "base"
    """Motion of the camera with its mount: fully, about the vertical only, or its position only."""
    depth_clipping_behavior: Literal["max", "zero", "none"] = "none"
    """Value of misses and of distances beyond `max_distance`: `max_distance` (``"max"``), 0 (``"zero"``), or +inf for a
    miss and the unchanged distance (``"none"``). Each data type is clipped by its own distance."""
    drift_range: Annotated[DriftRange, in_unit("m")] = (0.0, 0.0)
    """Range of an error of the measured position along each world axis, m, redrawn per env at each reset; a mapping
    gives one range per axis."""

    OffsetCfg: ClassVar[type[OffsetCfg]] = CameraOffsetCfg

    def __init__(self, /, **data: Any) -> None:
        offset = data.get("offset")
        if isinstance(offset, OffsetCfg) and not isinstance(offset, CameraOffsetCfg):
            data = {**data, "offset": CameraOffsetCfg(pos=offset.pos, rot=offset.rot)}
        super().__init__(**data)
        if self.needs_pattern and self.pattern is None and self.selector[0] not in ON_CAMERAS:
            fix = "Give a pattern; only a camera of the model (camera=) defines image and lens."
            raise ConfigError(self.title, [Fault("pattern", "nothing", "a PinholeCameraPatternCfg", fix)])

    @field_validator("pattern")
    @classmethod
    def _pinhole(cls, value: Any) -> Any:
        if value is not None and not isinstance(value, PinholeCameraPatternCfg):
            raise bad("a PinholeCameraPatternCfg", "Use RayCasterCfg or LidarCfg for other patterns.")
        return value

    @field_validator("data_types")
    @classmethod
    def _known(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is None:
            return value
        refused = [name for name in value if name in UNSUPPORTED]
        if refused:
            fix = f"Cast rays provide {', '.join(TYPES)}."
            raise bad(f"data types without {', '.join(refused)}, which cast rays do not provide", fix)
        for name in value:
            if name not in TYPES:
                raise bad(f"data types among {', '.join(TYPES)}", nearest(name, TYPES).strip())
        if not value or len(set(value)) != len(value):
            raise bad("at least one data type, each once")
        if "points_b" in value and not {*value} & {*DISTANCES}:
            raise bad(
                "a distance together with points_b", "Add distance_to_image_plane, from which the points are derived."
            )
        return value

    @model_validator(mode="after")
    def _fits(self) -> Any:
        if self.no_hit_value is not None and self.depth_clipping_behavior != "none":
            behaviour = self.depth_clipping_behavior
            raise bad(f"no_hit_value: None, since depth_clipping_behavior={behaviour!r} defines the value of a miss")
        self.refuse_idle_knobs("no distance is in data_types", *DISTANCES)
        return self

    needs_pattern: ClassVar[bool] = True
    """Whether only `pattern` can define image and lens."""

    @property
    def pinhole(self) -> PinholeCameraPatternCfg | None:
        """Image and lens from the config; None leaves both to a camera of the model."""
        assert self.pattern is None or isinstance(self.pattern, PinholeCameraPatternCfg)
        return self.pattern

    def image_on(self, camera: CameraLens | None, name: str = "") -> tuple[int, int]:
        """Return (width, height), px, for a given camera of the model or without one.

        Args:
            camera: image and lens of that camera.
            name: its name, for the message.

        Raises:
            ConfigError: neither the config nor the camera defines a size.
        """
        own = self.pinhole
        if own is not None:
            return own.width, own.height
        fix = f"Camera {name!r} has no size either: set its resolution=... in the model." if name else ""
        if camera is None or camera.resolution is None:
            expected = "a PinholeCameraPatternCfg with width and height"
            raise ConfigError(self.title, [Fault("pattern", "nothing", expected, fix)])
        return camera.resolution

    def matrices_on(self, camera: CameraLens | None, name: str = "") -> NDArray[np.float64]:
        """Return the intrinsic matrices, px, float64 `[1 or env, 3, 3]`, with the values of the config where given.

        Args:
            camera: image and lens of the camera of the model that carries the sensor; None for other mounts.
            name: its name, for the message.

        Raises:
            ConfigError: the camera is orthographic, and the config defines no focal length.
        """
        if camera is None:
            assert self.pinhole is not None, "image_on raises"
            return self.pinhole.intrinsic_matrix[None]
        if camera.is_orthographic and not self.states_focal:
            fix = 'Give it projection="perspective" in the model, or a pattern with fovy=...'
            got = f"camera {name!r}, which is orthographic"
            raise ConfigError(self.title, [Fault(self.selector[0], got, "a perspective camera", fix)])
        width, height = self.image_on(camera, name)
        k = camera.matrices(width, height)
        self._state(k, width, height)
        return k

    @property
    def states_focal(self) -> bool:
        """Whether the config defines the focal length."""
        return self.pattern is not None and bool(self.pattern.model_fields_set & {*FOCAL})

    def _state(self, k: NDArray[np.float64], width: int, height: int) -> None:
        """Write the config's values into the intrinsic matrices of a camera of the model, for an image of this size."""
        own = self.pattern
        if not isinstance(own, PinholeCameraPatternCfg):
            return
        if self.states_focal:
            k[:, [0, 1], [0, 1]] = own.intrinsic_matrix.diagonal()[:2]
        for row, (name, size) in enumerate(zip(CENTRE, (width, height), strict=True)):
            if name in own.model_fields_set:
                k[:, row, 2] = 0.5 * size + getattr(own, name) * k[:, row, row]

    @property
    def asked(self) -> tuple[str, ...]:
        """Data types under the given names."""
        return self.data_types

    @property
    def selected(self) -> tuple[str, ...]:
        """The computed fields of `CameraData`, in its order."""
        return (*ALWAYS, *(name for name in TYPES if name in self.asked))

    @property
    def convention(self) -> Convention:
        """Axes that the offset rotates, for a `prim_path` that does not refer to a camera."""
        return self.convention_on(self.selector[0] in ("camera", "cameras"))

    def convention_on(self, is_camera: bool) -> Convention:
        """Return the axes that the offset rotates, for a camera of the model or another mount."""
        return "opengl" if is_camera and "convention" not in self.offset.model_fields_set else self.offset.convention

    @property
    def limits(self) -> tuple[float, float]:
        """Least and greatest length of a ray, m: hits beyond `max_distance` are found, and clipped later."""
        return self.min_distance, max(self.max_distance, 1e6)

    @property
    def clipping(self) -> tuple[float, float]:
        """Greatest distance that is not clipped, and the value beyond it and for a miss, m."""
        if self.depth_clipping_behavior == "none":
            return float("inf"), self.miss
        return self.max_distance, self.max_distance if self.depth_clipping_behavior == "max" else 0.0

    @property
    def drift_spans(self) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
        """Ranges of the drift of the position, and of the drift of the rays (none), for x, y and z, m."""
        return spans_of(self.drift_range), spans_of((0.0, 0.0))

    @property
    def clips(self) -> bool:
        """Whether a pixel without a hit in range shows a value other than +inf."""
        farthest, beyond = self.clipping
        return farthest < self.limits[1] or beyond != float("inf")

    @property
    def drifts(self) -> bool:
        """Whether the measured image is taken from a different pose than the true one."""
        return any(any(span) for span in self.drift_spans[0])
