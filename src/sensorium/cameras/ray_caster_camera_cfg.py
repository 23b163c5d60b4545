"""Configuration (`RayCasterCameraCfg`) of a camera that casts rays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import field_validator, model_validator

from sensorium.cameras.camera_base_cfg import ON_CAMERAS, CameraBaseCfg, check_types
from sensorium.cameras.camera_data import ALWAYS, DISTANCES, CameraData, RayDataTypes
from sensorium.cfg import bad, in_unit
from sensorium.errors import ConfigError, Fault
from sensorium.patterns import OptionalPatternField, PinholeCameraPatternCfg
from sensorium.sensors.rays.ray_cfg import DriftRange, RayCfg

TYPES = ("distance_to_camera", "distance_to_image_plane", "normals", "points_b", "geom_ids", "face_ids")
NEAREST = 1e-6
"""Minimum depth of a visible surface, m."""
UNSUPPORTED = (
    "bounding_box_2d_loose", "bounding_box_2d_loose_fast", "bounding_box_2d_tight", "bounding_box_2d_tight_fast",
    "bounding_box_3d", "bounding_box_3d_fast", "instance_id_segmentation", "instance_id_segmentation_fast",
    "instance_segmentation", "instance_segmentation_fast", "motion_vectors", "rgb", "semantic_segmentation",
    "skeleton_data",
)  # fmt: skip


class RayCasterCameraCfg(CameraBaseCfg[CameraData], RayCfg[CameraData]):
    """Configuration of a camera that casts rays.

    Knobs such as `noise`, m, and stages act on `distance_to_image_plane` if it is selected, otherwise on
    `distance_to_camera`; the other distance and `points_b` are derived from the measured one. Misses stay misses, and
    clipping is applied last. Stages that read the true image get it clipped: for them, hits beyond `max_distance` are
    at that distance. They treat a miss as no value, whatever number it shows.

    For a camera of the model (`camera=`, `cameras=`, or a `prim_path` of one), image and lens default to those of that
    camera, in each environment.
    """

    types: ClassVar[tuple[str, ...]] = TYPES
    selectable: ClassVar[tuple[str, ...]] = (*ALWAYS, *TYPES)
    needs_size: ClassVar[tuple[str, str]] = ("pattern", "a PinholeCameraPatternCfg with width and height")

    pattern: OptionalPatternField = None
    """Image and lens, a `PinholeCameraPatternCfg`. Optional for a camera of the model; a pattern with only `width` and
    `height` uses the lens of that camera."""
    data_types: RayDataTypes = ("distance_to_image_plane",)
    """Computed data types: any of distance_to_camera, distance_to_image_plane, normals, points_b, geom_ids,
    face_ids."""
    ray_alignment: Literal["base", "yaw", "world"] = "base"
    """Motion of the camera with its mount: fully, about the vertical only, or its position only."""
    depth_clipping_behavior: Literal["max", "zero", "none"] = "none"
    """Value of misses and of distances beyond `max_distance`: `max_distance` (``"max"``), 0 (``"zero"``), or +inf for a
    miss and the unchanged distance (``"none"``). Each data type is clipped by its own distance."""
    drift_range: Annotated[DriftRange, in_unit("m")] = (0.0, 0.0)
    """Range of an error of the measured position along each world axis, m, redrawn per env at each reset; a mapping
    gives one range per axis."""

    if not TYPE_CHECKING:  # type checkers derive the arguments from the fields

        def __init__(self, /, **data: Any) -> None:
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
        check_types(value, TYPES)
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

    @property
    def size(self) -> tuple[int, int] | None:
        """(width, height), px, from the config; None leaves it to a camera of the model."""
        own = self.pinhole
        return None if own is None else (own.width, own.height)

    @property
    def lens_fields(self) -> set[str]:
        """Names of the fields of a pinhole lens that the config gives."""
        return set() if self.pattern is None else self.pattern.model_fields_set

    def lens_at(self, width: int, height: int) -> PinholeCameraPatternCfg | None:
        """Return the lens of the config for an image of this size, px; None if the config gives none."""
        return self.pinhole

    @property
    def limits(self) -> tuple[float, float]:
        """Minimum and maximum length of a ray, m: hits beyond `max_distance` are found, and clipped later."""
        return self.min_distance, max(self.max_distance, 1e6)

    @property
    def depth_limits(self) -> tuple[float, float]:
        """Minimum and maximum depth of a visible surface, m; `limits` of the rays apply to their hits."""
        return NEAREST, self.limits[1]

    @property
    def measured_range(self) -> tuple[float, float, float]:
        """Range of measured distances: `depth_limits`, and the minimum length of a ray, m."""
        return (*self.depth_limits, self.min_distance)

    @property
    def point_beyond(self) -> float:
        """Depth of the points of clipped pixels, m."""
        return float("inf") if self.depth_clipping_behavior == "none" else self.clipping[1]

    @property
    def clipping(self) -> tuple[float, float]:
        """Maximum distance that is not clipped, and the value beyond it and for a miss, m."""
        if self.depth_clipping_behavior == "none":
            return float("inf"), self.miss
        return self.max_distance, self.max_distance if self.depth_clipping_behavior == "max" else 0.0
