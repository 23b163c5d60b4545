"""The sensors of Isaac Lab's document, with its names and defaults."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field

from sensorium.cfg import MountedSensorCfg, OffsetCfg, Vec3
from sensorium.compat.aliases import AliasedCfg
from sensorium.compat.isaaclab.base import WithoutHandles
from sensorium.compat.isaaclab.cameras import (
    UNSUPPORTED_TYPES,
    Camera,
    CameraCfg,
    CameraData,
    FisheyeCameraCfg,
    MultiMeshRayCasterCamera,
    MultiMeshRayCasterCameraCfg,
    MultiMeshRayCasterCameraData,
    PinholeCameraCfg,
    RayCasterCamera,
    RayCasterCameraCfg,
    TiledCamera,
    TiledCameraCfg,
    TiledCameraData,
)  # fmt: skip
from sensorium.compat.isaaclab.rays import (
    MultiMeshRayCaster,
    MultiMeshRayCasterCfg,
    MultiMeshRayCasterData,
    RayCaster,
    RayCasterCfg,
    RayCasterData,
    RaycastTargetCfg,
)  # fmt: skip
from sensorium.patterns import BpearlPatternCfg, GridPatternCfg, PatternBaseCfg, PinholeCameraPatternCfg
from sensorium.patterns import LidarPatternCfg as _LidarPatternCfg
from sensorium.sensors.contact import contact_sensor as _contact
from sensorium.sensors.contact.contact_sensor import ContactSensorData
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.frames import frame_transformer as _frames
from sensorium.sensors.frames.frame_transformer import FrameTransformerData
from sensorium.sensors.inertial import imu as _imu
from sensorium.sensors.inertial.imu import ImuData

SensorBase = Sensor
SensorBaseCfg = MountedSensorCfg
LidarPatternCfg = partial(_LidarPatternCfg, spacing="both_ends")
"""Includes both ends of the horizontal field of view; ``spacing="one_less"`` is that of versions before 2.3."""


class ContactSensor(WithoutHandles, _contact.ContactSensor):
    """Contact sensor of this document."""


class ContactSensorCfg(AliasedCfg, _contact.ContactSensorCfg):
    """Configuration of a contact sensor: net normal forces on bodies. Histories have one entry per sensor update."""

    sensor_class: ClassVar[type[Any] | None] = ContactSensor

    prim_path: str
    """Path, or pattern of paths, of the bodies."""
    history_of: Literal["tick", "sample"] = "sample"
    """Whether history entries are per tick or per sample."""


class FrameTransformer(WithoutHandles, _frames.FrameTransformer):
    """Frame transformer of this document."""


class FrameTransformerCfg(AliasedCfg, _frames.FrameTransformerCfg):
    """Configuration of a frame transformer."""

    sensor_class: ClassVar[type[Any] | None] = FrameTransformer

    class FrameCfg(_frames.FrameTransformerCfg.FrameCfg):
        """Target frames."""

        prim_path: str
        """Path, or pattern of paths, of prims."""

    prim_path: str
    """Path of the source frame."""
    target_frames: tuple[FrameCfg | _frames.FrameTransformerCfg.FrameCfg, ...]
    """Target frames, in this order."""
    offset: OffsetCfg = Field(default=OffsetCfg(), alias="source_frame_offset")
    """Pose of the source frame relative to the prim."""


class Imu(WithoutHandles, _imu.Imu):
    """IMU of this document."""


class ImuCfg(AliasedCfg, _imu.ImuCfg):
    """Configuration of an IMU that computes all fields except the magnetic one."""

    sensor_class: ClassVar[type[Any] | None] = Imu

    prim_path: str
    """Path of the prim that carries the IMU."""
    fields: tuple[str, ...] | Literal["measured", "all"] = _imu.FIELDS[:-1]
    """Computed fields."""
    gravity_bias: Vec3 | None = (0.0, 0.0, 9.81)
    """Added to the acceleration, in world axes, m/s^2."""


__all__ = [
    "UNSUPPORTED_TYPES", "BpearlPatternCfg", "Camera", "CameraCfg", "CameraData", "ContactSensor",
    "ContactSensorCfg", "ContactSensorData", "FisheyeCameraCfg", "FrameTransformer", "FrameTransformerCfg",
    "FrameTransformerData", "GridPatternCfg", "Imu", "ImuCfg", "ImuData", "LidarPatternCfg", "MultiMeshRayCaster",
    "MultiMeshRayCasterCamera", "MultiMeshRayCasterCameraCfg", "MultiMeshRayCasterCameraData",
    "MultiMeshRayCasterCfg", "MultiMeshRayCasterData", "OffsetCfg", "PatternBaseCfg", "PinholeCameraCfg",
    "PinholeCameraPatternCfg", "RayCaster", "RayCasterCamera", "RayCasterCameraCfg", "RayCasterCfg",
    "RayCasterData", "RaycastTargetCfg", "SensorBase", "SensorBaseCfg", "TiledCamera", "TiledCameraCfg",
    "TiledCameraData",
]  # fmt: skip
