"""The sensors of Isaac Lab's document, with its names and defaults."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_serializer
from torch import Tensor

from sensorium.cfg import Cfg, MountedSensorCfg, OffsetCfg, Vec3
from sensorium.compat.aliases import AliasedCfg
from sensorium.patterns import BpearlPatternCfg, GridPatternCfg, PatternBaseCfg, PatternField, PinholeCameraPatternCfg
from sensorium.patterns import LidarPatternCfg as _LidarPatternCfg
from sensorium.sensors.cameras import ray_caster_camera as _camera
from sensorium.sensors.contact import contact_sensor as _contact
from sensorium.sensors.contact.contact_sensor import ContactSensor, ContactSensorData
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.frames import frame_transformer as _frames
from sensorium.sensors.frames.frame_transformer import FrameTransformer, FrameTransformerData
from sensorium.sensors.inertial import imu as _imu
from sensorium.sensors.inertial.imu import Imu, ImuData
from sensorium.sensors.rays import ray_caster as _rays
from sensorium.sensors.rays.ray_caster import RayCaster
from sensorium.world.ray_cast import Alignment
from sensorium.world.ray_scene import Targets

SensorBase = Sensor
SensorBaseCfg = MountedSensorCfg
RayCasterCamera = _camera.RayCasterCamera
MultiMeshRayCaster = RayCaster
LidarPatternCfg = partial(_LidarPatternCfg, spacing="both_ends")
"""Includes both ends of the horizontal field of view; ``spacing="one_less"`` is that of versions before 2.3."""

_YAW_ONLY = BeforeValidator(lambda value: {True: "yaw", False: "base"}[value] if isinstance(value, bool) else value)
YawOnly = Annotated[Alignment, _YAW_ONLY]
"""A flag: whether rays rotate about the vertical only."""
Paths = str | tuple[str, ...]


class RayCasterData(_rays.RayCasterData):
    """One scan."""

    __slots__ = ()

    @property
    def ray_mesh_ids(self) -> Tensor:
        """`geom_ids` with an axis of length 1 at the end."""
        return self.geom_ids if self.geom_ids is None else self.geom_ids.unsqueeze(-1)


MultiMeshRayCasterData = RayCasterData


class CameraData(_camera.CameraData):
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
    def output(self) -> dict[str, Tensor]:
        """The selected data types, under both of their names."""
        found = {name: getattr(self, name) for name in self.data_types}
        return found | {alias: found[name] for alias, name in _DATA_TYPES.items() if name in found}


_DATA_TYPES = {"depth": "distance_to_image_plane", "image_mesh_ids": "geom_ids"}


def _data_types(value: Any) -> Any:
    return tuple(_DATA_TYPES.get(name, name) for name in value) if isinstance(value, tuple | list) else value


class ContactSensorCfg(AliasedCfg, _contact.ContactSensorCfg):
    """Configuration of a contact sensor: net normal forces on bodies. Histories have one entry per sensor update."""

    prim_path: str
    """Path, or pattern of paths, of the bodies."""
    history_of: Literal["tick", "sample"] = "sample"
    """Whether history entries are per tick or per sample."""


class FrameTransformerCfg(AliasedCfg, _frames.FrameTransformerCfg):
    """Configuration of a frame transformer."""

    class FrameCfg(_frames.FrameTransformerCfg.FrameCfg):
        """Target frames."""

        prim_path: str
        """Path, or pattern of paths, of prims."""

    prim_path: str
    """Path of the source frame."""
    offset: OffsetCfg = Field(default=OffsetCfg(), alias="source_frame_offset")
    """Pose of the source frame relative to the prim."""


class RayCasterCfg(AliasedCfg, _rays.RayCasterCfg):
    """Configuration of a ray caster."""

    data_class: ClassVar[type[Any] | None] = RayCasterData

    prim_path: str
    """Path of the prim that carries the sensor."""
    targets: Paths = Field(alias="mesh_prim_paths")
    """Paths of the shapes that rays can hit."""
    pattern: PatternField = Field(alias="pattern_cfg")
    """Pattern of the rays."""
    ray_alignment: YawOnly = Field(default="base", alias="attach_yaw_only")
    """Rotation of the rays with the prim. ``"yaw_starts"`` is what Isaac Lab itself computes for `attach_yaw_only`."""


class RaycastTargetCfg(Cfg):
    """One entry of `mesh_prim_paths` of a ray caster for several meshes."""

    prim_expr: str
    """Path, or pattern of paths."""
    is_shared: bool = False
    """No effect: static shapes are stored once for all environments, and meshes are always shared."""
    merge_prim_meshes: bool = True
    """No effect: all shapes of a body can be hit."""
    track_mesh_transforms: bool = True
    """False declares the shapes static. Moving shapes are always tracked, so False is rejected for them."""


MeshPath = str | RaycastTargetCfg


def _with_ids(value: Any) -> Any:
    base: tuple[str, ...] = _rays.RayCasterCfg.model_fields["fields"].default
    return base + ("geom_ids",) * value if isinstance(value, bool) else value


class MultiMeshRayCasterCfg(RayCasterCfg):
    """Configuration of a ray caster for several meshes."""

    RaycastTargetCfg: ClassVar[type[RaycastTargetCfg]] = RaycastTargetCfg

    targets: MeshPath | tuple[MeshPath, ...] = Field(alias="mesh_prim_paths")  # type: ignore[assignment]
    """Paths of the shapes that rays can hit."""
    fields: Annotated[tuple[str, ...] | Literal["all"], BeforeValidator(_with_ids)] = Field(
        default=_rays.RayCasterCfg.model_fields["fields"].default, alias="update_mesh_ids"
    )
    """Computed fields. A flag selects whether `geom_ids` (`ray_mesh_ids`) is among them."""

    @field_serializer("targets")
    def _paths(self, value: MeshPath | tuple[MeshPath, ...]) -> tuple[str, ...]:
        given = value if isinstance(value, tuple) else (value,)
        return tuple(each if isinstance(each, str) else each.prim_expr for each in given)

    @property
    def seen(self) -> Targets:
        """The shapes that rays can hit."""
        given = self.targets if isinstance(self.targets, tuple) else (self.targets,)
        still = [each for each in given if isinstance(each, RaycastTargetCfg) and not each.track_mesh_transforms]
        return replace(super().seen, include=self._paths(self.targets), still=tuple(each.prim_expr for each in still))


class RayCasterCameraCfg(AliasedCfg, _camera.RayCasterCameraCfg):
    """Configuration of a camera that casts rays."""

    data_class: ClassVar[type[Any] | None] = CameraData

    prim_path: str
    """Path of the prim that carries the camera."""
    targets: Paths = Field(alias="mesh_prim_paths")
    """Paths of the shapes that rays can hit."""
    pattern: PatternField = Field(alias="pattern_cfg")
    """Image and lens, a `PinholeCameraPatternCfg`."""
    ray_alignment: Annotated[Literal["base", "yaw", "world"], _YAW_ONLY] = Field(
        default="base", alias="attach_yaw_only"
    )
    """Rotation of the camera with the prim."""
    data_types: Annotated[tuple[str, ...], BeforeValidator(_data_types)] = ("distance_to_image_plane",)
    """Computed data types; also accepts ``depth`` and ``image_mesh_ids``."""


class ImuCfg(AliasedCfg, _imu.ImuCfg):
    """Configuration of an IMU that computes all fields except the magnetic one."""

    prim_path: str
    """Path of the prim that carries the IMU."""
    fields: tuple[str, ...] | Literal["measured", "all"] = _imu.FIELDS[:-1]
    """Computed fields."""
    gravity_bias: Vec3 | None = (0.0, 0.0, 9.81)
    """Added to the acceleration, in world axes, m/s^2."""


__all__ = [
    "BpearlPatternCfg",
    "CameraData",
    "ContactSensor",
    "ContactSensorCfg",
    "ContactSensorData",
    "FrameTransformer",
    "FrameTransformerCfg",
    "FrameTransformerData",
    "GridPatternCfg",
    "Imu",
    "ImuCfg",
    "ImuData",
    "LidarPatternCfg",
    "MultiMeshRayCaster",
    "MultiMeshRayCasterCfg",
    "MultiMeshRayCasterData",
    "OffsetCfg",
    "PatternBaseCfg",
    "PinholeCameraPatternCfg",
    "RayCaster",
    "RayCasterCamera",
    "RayCasterCameraCfg",
    "RayCasterCfg",
    "RayCasterData",
    "RaycastTargetCfg",
    "SensorBase",
    "SensorBaseCfg",
]
