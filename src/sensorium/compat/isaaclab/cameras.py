"""The cameras of Isaac Lab's document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from numpy.typing import ArrayLike
from pydantic import BeforeValidator, Field, field_serializer
from torch import Tensor

from sensorium.cameras import camera as _camera
from sensorium.cameras import camera_base_cfg as _camera_base_cfg
from sensorium.cameras import camera_cfg as _camera_cfg
from sensorium.cameras import camera_data as _camera_data
from sensorium.cameras import ray_caster_camera as _ray_camera
from sensorium.cameras import ray_caster_camera_cfg as _ray_camera_cfg
from sensorium.cameras.geometry import Convention, tile_images
from sensorium.cameras.lenses import FThetaLensCfg, LensCfg, LensField, PinholeLensCfg
from sensorium.cfg import NONE, Float, OffsetCfg, bad
from sensorium.compat.aliases import AliasedCfg, aliases
from sensorium.compat.isaaclab import rays as _rays
from sensorium.compat.isaaclab.base import WithoutHandles
from sensorium.compat.isaaclab.markers import Style
from sensorium.errors import ConfigError, Fault, PathError, listed
from sensorium.measurement.sensor_cfg import Evaluate
from sensorium.patterns import PatternField, PinholeCameraPatternCfg
from sensorium.patterns.pinhole import Pixels
from sensorium.shapes.ray_cast import Alignment


class CameraData(_camera_data.CameraData):
    """One image."""

    __slots__ = ()

    @property
    def depth(self) -> Tensor:
        """`distance_to_image_plane`."""
        return self.distance_to_image_plane

    @property
    def image_mesh_ids(self) -> Tensor:
        """`geom_ids`."""
        return self.geom_ids

    @property
    def output(self) -> _camera_data.Images:
        """The selected data types; mesh ids under both of their names."""
        found = super().output
        if "geom_ids" in found:
            found["image_mesh_ids"] = found["geom_ids"]
        return found


MultiMeshRayCasterCameraData = CameraData


class TiledCameraData(CameraData):
    """The images of all environments, also as tiles of one image."""

    __slots__ = ()

    @property
    def info(self) -> dict[str, Any]:  # type: ignore[override]
        """Data type -> labels of its ids for all cameras, or None for a type without ids."""
        return super().info[0]

    @property
    def tiled_output(self) -> dict[str, Tensor]:
        """The selected data types, each as one image of all cameras, row by row: see `tile_images`."""
        return {name: tile_images(image.reshape(-1, *image.shape[-3:])) for name, image in self.output.items()}


_DATA_TYPES = {"depth": "distance_to_image_plane", "image_mesh_ids": "geom_ids"}


def _data_types(value: Any) -> Any:
    return tuple(_DATA_TYPES.get(name, name) for name in value) if isinstance(value, tuple | list) else value


class CameraOffsetCfg(_camera_base_cfg.CameraOffsetCfg):
    """Pose of a camera relative to the prim."""

    convention: Convention = "ros"
    """Camera axes that `rot` rotates. For a camera of the model without `spawn`, the default is ``"opengl"``."""


def _stating_convention(data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a camera with the convention of its offset as a given field, so that files include it."""
    offset = data.get("offset", {})
    given = offset.model_dump(exclude_unset=True) if isinstance(offset, OffsetCfg) else offset
    return {**data, "offset": {"convention": "ros", **given}} if isinstance(given, Mapping) else data


class RayCasterCamera(_ray_camera.RayCasterCamera, _rays.RayCaster):
    """Camera of this document that casts rays."""


MultiMeshRayCasterCamera = RayCasterCamera


class RayCasterCameraCfg(_ray_camera_cfg.RayCasterCameraCfg, _rays.RayCasterCfg):
    """Configuration of a camera that casts rays."""

    OffsetCfg: ClassVar[type[OffsetCfg]] = CameraOffsetCfg
    data_class: ClassVar[type[Any] | None] = CameraData
    sensor_class: ClassVar[type[Any] | None] = RayCasterCamera
    fields: ClassVar[None]  # type: ignore[misc, assignment]  # of a scan: no such option
    ray_cast_drift_range: ClassVar[None]  # type: ignore[misc, assignment]
    debug_rays: ClassVar[None]  # type: ignore[misc, assignment]

    prim_path: str
    """Path of the prim that carries the camera."""
    evaluate: Evaluate = "on_access"
    """When samples are computed; by default a due sample waits for a read."""
    targets: _rays.Paths = Field(alias="mesh_prim_paths")
    """Paths of the shapes that rays can hit."""
    pattern: PatternField = Field(alias="pattern_cfg")
    """Image and lens, a `PinholeCameraPatternCfg`."""
    visualizer_cfg: Style = None
    """Markers, or a style."""
    ray_alignment: Annotated[Literal["base", "yaw", "world"], _rays.YAW_ONLY] = Field(
        default="base", alias="attach_yaw_only"
    )
    """Rotation of the camera with the prim."""
    data_types: Annotated[_camera_data.RayDataTypes, BeforeValidator(_data_types)] = ("distance_to_image_plane",)
    """Computed data types; also accepts ``depth`` and ``image_mesh_ids``."""

    @property
    def alignment(self) -> Alignment:
        """Rotation of the camera with the prim."""
        return self.ray_alignment

    if not TYPE_CHECKING:  # type checkers derive the arguments from the fields

        def __init__(self, /, **data: Any) -> None:
            super().__init__(**_stating_convention(data))


class MultiMeshRayCasterCameraCfg(RayCasterCameraCfg, _rays.MultiMeshRayCasterCfg):  # type: ignore[misc]
    """Configuration of a camera that casts rays at several meshes."""

    targets: _rays.MeshPath | tuple[_rays.MeshPath, ...] = Field(alias="mesh_prim_paths")  # type: ignore[assignment]
    """Paths of the shapes that rays can hit."""

    if not TYPE_CHECKING:  # as above

        def __init__(self, /, update_mesh_ids: bool = False, **data: Any) -> None:
            if update_mesh_ids:
                given = data.get("data_types", type(self).model_fields["data_types"].default)
                data = {**data, "data_types": (*given, "geom_ids")}
            super().__init__(**data)


class PinholeCameraCfg(PinholeLensCfg):
    """Lens of a camera to create. Only `clipping_range` and the lens itself have an effect on images."""

    projection_type: Literal["pinhole"] = "pinhole"
    """Kind of lens."""
    clipping_range: tuple[Float, Float] = (0.01, 1.0e6)
    """Nearest and farthest distance to the image plane of a visible surface, m."""
    focus_distance: Float = 400.0
    """No effect: everything is in focus."""
    f_stop: Float = 0.0
    """No effect: 0 turns focusing off."""
    lock_camera: bool = True
    """No effect: there is no viewport that could move the camera."""

    @property
    def plain(self) -> LensCfg:
        """The lens without the fields that have no effect."""
        names = self.model_fields_set & PinholeLensCfg.model_fields.keys()
        return PinholeLensCfg(**{name: getattr(self, name) for name in names})

    @classmethod
    def from_intrinsic_matrix(
        cls,
        intrinsic_matrix: ArrayLike,
        width: int,
        height: int,
        clipping_range: tuple[float, float] = (0.01, 1.0e6),
        focal_length: float | None = None,
        **fields: Any,
    ) -> PinholeCameraCfg:
        """Return the lens of an intrinsic matrix; an off-centre principal point and non-square pixels are honoured.

        Args:
            intrinsic_matrix: (fx, 0, cx, 0, fy, cy, 0, 0, 1), nine numbers row by row or `[3, 3]`, pixels.
            width: number of columns.
            height: number of rows.
            clipping_range: see the field.
            focal_length: unit of the apertures; None for 24.
            fields: other fields.

        Raises:
            ConfigError: the matrix is singular, not finite, or has skew, or a field is invalid.
        """
        image = PinholeCameraPatternCfg.from_intrinsic_matrix(
            intrinsic_matrix, width, height, 24.0 if focal_length is None else focal_length
        )
        names = PinholeLensCfg.model_fields.keys() - {"fovy"}
        given = {name: getattr(image, name) for name in names}
        return PinholeCameraCfg(**given, clipping_range=clipping_range, **fields)


class FisheyeCameraCfg(PinholeCameraCfg):
    """Fisheye lens of a camera to create: the angle of a ray is a polynomial of its radius in the nominal image.

    The fields of a pinhole other than `clipping_range` have no effect.
    """

    projection_type: Literal["fisheyePolynomial"] = "fisheyePolynomial"  # type: ignore[assignment]
    """Kind of lens. The document's other kinds are not available."""
    fisheye_nominal_width: Float = 1936.0
    """Width of the nominal image, px."""
    fisheye_nominal_height: Float = 1216.0
    """Height of the nominal image, px."""
    fisheye_optical_centre_x: Float = 970.94244
    """Column of the optical axis, px."""
    fisheye_optical_centre_y: Float = 600.37482
    """Row of the optical axis, px."""
    fisheye_max_fov: Float = 200.0
    """Full field of view, degrees."""
    fisheye_polynomial_a: Float = 0.0
    """Constant coefficient of the angle, rad."""
    fisheye_polynomial_b: Float = 0.00245
    """Linear coefficient, rad/px."""
    fisheye_polynomial_c: Float = 0.0
    """Quadratic coefficient, rad/px^2."""
    fisheye_polynomial_d: Float = 0.0
    """Cubic coefficient, rad/px^3."""
    fisheye_polynomial_e: Float = 0.0
    """Quartic coefficient, rad/px^4."""
    fisheye_polynomial_f: Float = 0.0
    """Quintic coefficient, rad/px^5."""

    @property
    def plain(self) -> LensCfg:
        """The lens without the fields that have no effect."""
        constant, *coefficients = (getattr(self, f"fisheye_polynomial_{letter}") for letter in "abcdef")
        if constant != 0.0:
            expected = "0: the axis is at the optical centre"
            raise ConfigError.single(type(self).__name__, "fisheye_polynomial_a", constant, expected)
        return FThetaLensCfg(
            coefficients=tuple(coefficients),
            nominal_size=(self.fisheye_nominal_width, self.fisheye_nominal_height),
            centre=(self.fisheye_optical_centre_x, self.fisheye_optical_centre_y),
            max_fov_deg=self.fisheye_max_fov,
        )


UNSUPPORTED_TYPES = {
    "bounding_box_2d_loose", "bounding_box_2d_loose_fast", "bounding_box_2d_tight", "bounding_box_2d_tight_fast",
    "bounding_box_3d", "bounding_box_3d_fast", "instance_id_segmentation", "instance_segmentation",
}  # fmt: skip
"""Data types that Isaac Lab's cameras refuse."""


def _start_or_frame(value: Any) -> Any:
    return {True: "frame", False: "start"}[value] if isinstance(value, bool) else value


PoseOption = Annotated[Literal["frame", "start"], BeforeValidator(_start_or_frame)]
"""A flag: whether data have the pose of each frame instead of the one at the start of the episode."""


class Camera(WithoutHandles, _camera.Camera):
    """Camera of this document."""

    UNSUPPORTED_TYPES: ClassVar[set[str]] = UNSUPPORTED_TYPES
    """Data types that `CameraCfg` refuses."""

    def setup(self) -> None:
        """Raise `PathError` where the path of a camera of the model leads to something else."""
        if self.cfg.lens is None and not all(self.mount.cameras):
            fix = f"Give spawn=PinholeCameraCfg() to create a camera. Cameras: {listed(self.engine.names('camera'))}."
            fault = Fault("prim_path", repr(self.cfg.selector[1]), "the path of a camera of the model", fix)
            raise PathError(self.cfg.title, [fault])
        super().setup()


class TiledCamera(Camera):
    """Camera whose images of all environments can be read as tiles of one image."""


class CameraCfg(AliasedCfg, _camera_cfg.CameraCfg):
    """Configuration of a camera, one at the end of a path or one to create there."""

    OffsetCfg: ClassVar[type[OffsetCfg]] = CameraOffsetCfg
    data_class: ClassVar[type[Any] | None] = CameraData
    sensor_class: ClassVar[type[Any] | None] = Camera

    prim_path: str
    """Path of the camera. With `spawn`, the camera is created at its end, on the frame that the rest leads to."""
    evaluate: Evaluate = "on_access"
    """When samples are computed; by default a due sample waits for a read."""
    lens: FisheyeCameraCfg | PinholeCameraCfg | LensField | None = Field(alias="spawn")
    """Lens of a camera to create; None uses a camera of the model."""
    width: Pixels
    """Number of columns, px."""
    height: Pixels
    """Number of rows, px."""
    data_types: _camera_data.DataTypes = ("rgb",)
    """Computed data types."""
    missing_labels: Literal["error", "ignore"] = "ignore"
    """Whether a label of `semantic_filter` that no shape has is an error, or selects nothing."""
    reported_pose: PoseOption = Field(default="frame", alias="update_latest_camera_pose")
    """Whether data have the pose of each frame instead of the one at the start of the episode."""

    def __init__(self, /, **data: Any) -> None:
        lens = data.get("spawn", data.get("lens"))
        if isinstance(lens, Mapping) and "kind" in lens:  # of a file, whose path is that of the mount
            data = {**data, "prim_path": f"{data.get('prim_path')}/camera"}
        elif isinstance(lens, Mapping):
            is_fisheye = any(str(name).startswith("fisheye") for name in lens)
            lens = (FisheyeCameraCfg if is_fisheye else PinholeCameraCfg).model_validate(lens)
            data = {name: value for name, value in data.items() if name not in ("spawn", "lens")} | {"spawn": lens}
        if lens not in (None, NONE):
            data = _stating_convention(data)
        if isinstance(lens, PinholeCameraCfg) and "clipping_range" not in data:
            data = {**data, "clipping_range": lens.clipping_range}
        super().__init__(**data)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed; another lens brings its clipping range, unless one was chosen."""
        is_of_lens = isinstance(self.lens, PinholeCameraCfg) and self.clipping_range == self.lens.clipping_range
        if not is_of_lens or not {"spawn", "lens"} & changes.keys():
            return super().replace(**changes)
        given = {name: getattr(self, name) for name in self.model_fields_set - {"clipping_range", "lens"}}
        return type(self)(**{**given, **{aliases(type(self)).get(name, name): each for name, each in changes.items()}})

    @property
    def update_latest_camera_pose(self) -> bool:
        """Whether data have the pose of each frame."""
        return self.reported_pose == "frame"

    @classmethod
    def check_data_types(cls, value: tuple[str, ...]) -> None:
        """Raise as a validator does where a data type is not available, or refused by this document."""
        if refused := [name for name in value if name in UNSUPPORTED_TYPES]:
            fast = [each for name in refused if (each := f"{name}_fast") in _camera_data.ALIASES]
            fast = [name for name in fast if name not in UNSUPPORTED_TYPES]
            fix = (
                f"Use {', '.join(fast)} instead."
                if fast
                else "The data types of sn.CameraCfg are those of its field data_types."
            )
            raise bad(f"data types without {', '.join(refused)}, which this camera does not support", fix)
        super().check_data_types(value)

    @field_serializer("prim_path")
    def _place(self, value: str) -> str:
        return self.selector[1] if self.lens is not None else value

    @property
    def own_lens(self) -> LensCfg | None:
        """The lens without the fields that have no effect; None uses the lens of a camera of the model."""
        return self.lens.plain if isinstance(self.lens, PinholeCameraCfg) else self.lens

    @field_serializer("lens")
    def _plain_lens(self, _: LensCfg | None) -> dict[str, Any] | None:
        return None if self.own_lens is None else self.own_lens.to_dict()

    @property
    def selector(self) -> tuple[str, Any]:
        """The path of the camera of the model, or of the frame that carries a camera to create."""
        name, path = _rays.check_leaf(self.title, *super().selector)
        if self.lens is None:
            return name, path
        rest = path.rstrip("/").rpartition("/")[0]
        return name, rest or "/World"


class TiledCameraCfg(CameraCfg):
    """Configuration of a camera whose images of all environments can be read as tiles of one image."""

    data_class: ClassVar[type[Any] | None] = TiledCameraData
    sensor_class: ClassVar[type[Any] | None] = TiledCamera
    other_aliases: ClassVar[Mapping[str, str]] = {"update_latest_camera_pose": "reported_pose"}

    reported_pose: PoseOption = Field(default="start", alias="return_latest_camera_pose")
    """Whether data have the pose of each frame instead of the one at the start of the episode."""

    @property
    def return_latest_camera_pose(self) -> bool:
        """Whether data have the pose of each frame."""
        return self.update_latest_camera_pose


__all__ = [
    "UNSUPPORTED_TYPES", "Camera", "CameraCfg", "CameraData", "FisheyeCameraCfg", "MultiMeshRayCasterCamera",
    "MultiMeshRayCasterCameraCfg", "MultiMeshRayCasterCameraData", "PinholeCameraCfg", "RayCasterCamera",
    "RayCasterCameraCfg", "TiledCamera", "TiledCameraCfg", "TiledCameraData",
]  # fmt: skip
