"""Configuration (`CameraCfg`) of a camera that images the shapes of the scene."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import field_validator, model_validator

from sensorium.cameras.annotators import ANNOTATORS, TYPES
from sensorium.cameras.camera_base_cfg import ON_CAMERAS, CameraBaseCfg, check_types
from sensorium.cameras.camera_data import ALIASES, ALWAYS, DISTANCES, CameraData, DataTypes
from sensorium.cameras.lenses import FocalLensCfg, LensCfg, LensField, OrthographicLensCfg, PinholeLensCfg
from sensorium.cameras.semantics import parse_filter
from sensorium.cameras.stages.image_sensor import LINEAR, ImageSensor
from sensorium.cfg import Float, bad, in_unit
from sensorium.engines.base import CameraLens
from sensorium.memory import in_mb
from sensorium.patterns import PinholeCameraPatternCfg
from sensorium.patterns.base import MAX_RAYS
from sensorium.patterns.pinhole import Pixels
from sensorium.shapes.scene import Targets


class CameraCfg(CameraBaseCfg[CameraData]):
    """Configuration of a camera that images the visible shapes of the scene.

    By default it sees all visible shapes of its environment, including those of the robot that carries it.

    Knobs such as `noise`, m, and stages act on `distance_to_image_plane` if it is selected, otherwise on
    `distance_to_camera`; the other distance and `points_b` are derived from the measured one. Misses stay misses, and
    clipping is applied last.

    Stages on `linear_rgb`, such as `ImageSensor`, alter the measured colors: `rgb` and `rgba` are encoded from it.

    For a camera of the model (`camera=`, `cameras=`, or a `prim_path` of one), image and lens default to those of that
    camera, in each environment.
    """

    types: ClassVar[tuple[str, ...]] = tuple(ANNOTATORS)
    selectable: ClassVar[tuple[str, ...]] = (*ALWAYS, *TYPES)
    needs_size: ClassVar[tuple[str, str]] = ("width, height", "the size of the image, px")

    width: Pixels | None = None
    """Number of columns, px; None uses the resolution of the camera of the model."""
    height: Pixels | None = None
    """Number of rows, px; given together with `width`."""
    lens: LensField | None = None
    """Lens: `PinholeLensCfg`, `BrownConradyLensCfg`, `KannalaBrandtLensCfg`, `FThetaLensCfg`, `EquirectangularLensCfg`
    or `OrthographicLensCfg`. Focal length, apertures and offsets that it omits are those of the camera of the model, if
    there is one. None uses that camera's lens, otherwise the defaults of `PinholeLensCfg`."""
    data_types: DataTypes = ("distance_to_image_plane",)
    """Computed data types: any of distance_to_camera, distance_to_image_plane (also ``depth``), rgb, rgba, albedo,
    linear_rgb, normals, points_b, geom_ids, face_ids, semantic_segmentation, instance_segmentation,
    instance_id_segmentation, segmentation, motion_vectors, optical_flow, bounding_box_2d_tight, bounding_box_2d_loose,
    bounding_box_3d."""
    clipping_range: Annotated[tuple[Float, Float], in_unit("m")] = (0.01, 1.0e6)
    """Nearest and farthest distance of a visible surface, m: to the image plane for pinhole and orthographic lenses, to
    the camera for others. Nearer and farther parts of surfaces are cut away."""
    depth_clipping_behavior: Literal["max", "zero", "none"] = "none"
    """Value of misses and of distances beyond the far end of `clipping_range`: that end (``"max"``), 0 (``"zero"``), or
    +inf (``"none"``). Each data type is clipped by its own distance."""
    semantic_filter: str | tuple[str, ...] = "*:*"
    """Labels that segmentations show, as ``"type: label & !label | label; type: *"``, or a list of types. `!` negates,
    `&` binds before `|`, and `,` and `;` both add further surfaces. Surfaces without such a label are unlabelled."""
    missing_labels: Literal["error", "ignore"] = "error"
    """Whether a label of `semantic_filter` that no shape has is an error, or selects nothing."""
    colorize_semantic_segmentation: bool = True
    """Whether `semantic_segmentation` is a colour (uint8, 4 channels) instead of an id (int32, 1 channel)."""
    colorize_instance_segmentation: bool = True
    """Whether `instance_segmentation` is a colour instead of an id."""
    colorize_instance_id_segmentation: bool = True
    """Whether `instance_id_segmentation` is a colour instead of an id."""
    samples: Literal[1, 4] = 1
    """Samples of each pixel for colors: 4 smooth the edges of shapes. Other data types always have one sample."""
    shadows: bool = True
    """Whether lights cast shadows, for colours."""
    reflections: bool = True
    """Whether surfaces with a mirroring material show the mirrored scene, for colours."""
    textures: bool = True
    """Whether surfaces show their textures, for colours."""
    haze: bool = True
    """Whether the horizon of an unbounded plane fades into the sky, for colours."""
    fog: bool = False
    """Whether colours fade into the fog of the model with the distance, which is that of `clipping_range`."""
    reported_pose: Literal["frame", "start"] = "frame"
    """Pose in `pos_w` and `quat_w_world`: that of each frame, or the one at the start of the episode or at the last
    `set_world_poses`."""
    copy_data: bool = False
    """Whether each read of `data` returns new tensors, which keep their values, instead of live views."""
    show_sites: bool = False
    """Whether the sites of the model are visible."""
    exclude_parent_body: bool = False
    """Whether to exclude the shapes of the body that carries the camera. Shapes of the world are never excluded."""
    exclude_own_links: bool = False
    """Whether to exclude also the other links of the camera's robot, the bodies of the same kinematic tree."""

    if not TYPE_CHECKING:  # type checkers derive the arguments from the fields

        def __init__(self, /, **data: Any) -> None:
            super().__init__(**data)
            if self.size is None and self.selector[0] not in ON_CAMERAS:
                self.image_on(None)  # raises

    @field_validator("data_types")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        cls.check_data_types(value)
        return value

    @classmethod
    def check_data_types(cls, value: tuple[str, ...]) -> None:
        """Raise as a validator does where a data type is not available."""
        known = (*TYPES, *(name for name, field in ALIASES.items() if field in TYPES))
        check_types(value, known)

    @field_validator("clipping_range")
    @classmethod
    def _rising(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0.0 < value[0] < value[1] < float("inf"):
            raise bad("a range (near, far) with 0 < near < far, both finite, m")
        return value

    @field_validator("semantic_filter")
    @classmethod
    def _parses(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        parse_filter(value)
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.width is None) != (self.height is None):
            raise bad("width, height: both or neither", "Give width and height.")
        if self.width is not None and self.height is not None and self.width * self.height > MAX_RAYS:
            size = in_mb(4.0 * self.width * self.height)
            raise bad(f"width, height: at most {MAX_RAYS} pixels, not {self.width} x {self.height}, {size} per image")
        if sum(isinstance(stage, ImageSensor) for stage in self.stages) > 1:
            raise bad("stages: at most one ImageSensor", "It is the whole path of the light through the camera.")
        self.refuse_idle_knobs("no distance and no linear_rgb is in data_types", *DISTANCES, LINEAR)
        return self

    @property
    def selected(self) -> tuple[str, ...]:
        """The computed fields, in the order of `CameraData`: also `linear_rgb` if a stage alters colours."""
        own = super().selected
        is_altered = any(LINEAR in stage.fields for stage in self.stages) and not {"rgb", "rgba"}.isdisjoint(own)
        return (*ALWAYS, *(name for name in self.types if name in own or (is_altered and name == LINEAR)))

    @property
    def seen(self) -> Targets:
        """The selection of shapes."""
        return replace(super().seen, elements=("geom", "tendon", "skin", *(("site",) if self.show_sites else ())))

    @property
    def size(self) -> tuple[int, int] | None:
        """(width, height), px, from the config; None leaves it to a camera of the model."""
        return None if self.width is None or self.height is None else (self.width, self.height)

    @property
    def own_lens(self) -> LensCfg | None:
        """Lens of the config; None uses the lens of a camera of the model."""
        return self.lens

    @property
    def lens_fields(self) -> set[str]:
        """Names of the fields of the lens that the config gives."""
        return self.own_lens.model_fields_set if isinstance(self.own_lens, FocalLensCfg) else set()

    def lens_at(self, width: int, height: int) -> PinholeCameraPatternCfg | None:
        """Return the lens of the config for an image of this size, px; None if the config gives none."""
        return self.own_lens.at(width, height) if isinstance(self.own_lens, FocalLensCfg) else None

    def matrices_on(self, camera: CameraLens | None, name: str = "") -> NDArray[np.float64]:
        """Return the intrinsic matrices, px, float64 `[1 or env, 3, 3]`, with the values of the config where given.

        Those of a parallel camera are in px/m, those of a panorama in px/rad.
        """
        width, height = self.image_on(camera, name)
        if self.own_lens is not None and self.own_lens.defines_intrinsics:
            return self.own_lens.intrinsic_matrix(width, height).numpy()[None]
        if self.lens_on(camera).is_parallel and camera is not None:
            each = [OrthographicLensCfg(view_height=view).intrinsic_matrix(width, height) for view in camera.fovy]
            return torch.stack(each).numpy()
        return super().matrices_on(camera, name)

    def lens_on(self, camera: CameraLens | None) -> LensCfg:
        """Return the lens for a given camera of the model or without one; its intrinsics are those of `matrices_on`."""
        if self.own_lens is not None:
            return self.own_lens
        is_parallel = camera is not None and camera.is_orthographic
        return OrthographicLensCfg(view_height=1.0) if is_parallel else PinholeLensCfg()

    @property
    def depth_limits(self) -> tuple[float, float]:
        """Minimum and maximum t of a visible surface, m; see `ImageSpec.limits`."""
        return self.clipping_range

    @property
    def clipping(self) -> tuple[float, float]:
        """Maximum distance that is not clipped, and the value beyond it and for a miss, m."""
        far = self.clipping_range[1]
        return far, {"none": float("inf"), "max": far, "zero": 0.0}[self.depth_clipping_behavior]
