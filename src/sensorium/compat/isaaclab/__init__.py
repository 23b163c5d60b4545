"""The sensors of Isaac Lab 2.3, with its names and defaults.

Quaternions are (w, x, y, z), as there. Isaac Lab 3 uses (x, y, z, w); a quaternion does not show its order, so that
scripts for that version need other numbers.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from sensorium.cfg import OffsetCfg, Vec3
from sensorium.compat.isaaclab import cameras, markers, patterns, rays
from sensorium.compat.isaaclab.base import WithoutHandles
from sensorium.compat.isaaclab.cameras import *  # noqa: F403
from sensorium.compat.isaaclab.markers import MarkedCfg, VisualizationMarkersCfg
from sensorium.compat.isaaclab.patterns import *  # noqa: F403
from sensorium.compat.isaaclab.rays import *  # noqa: F403
from sensorium.compat.isaaclab.scenes import InteractiveSceneCfg, configclass
from sensorium.measurement.sensor_cfg import Evaluate, MountedSensorCfg
from sensorium.sensors.contact import contact_sensor as _contact
from sensorium.sensors.contact.contact_sensor import ContactSensorData
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.frames import frame_transformer as _frames
from sensorium.sensors.frames.frame_transformer import FrameTransformerData
from sensorium.sensors.inertial import imu as _imu
from sensorium.sensors.inertial.imu import ImuData

SensorBase = Sensor
SensorBaseCfg = MountedSensorCfg


class ContactSensor(WithoutHandles, _contact.ContactSensor):
    """Contact sensor of this document."""


class ContactSensorCfg(MarkedCfg, _contact.ContactSensorCfg):
    """Configuration of a contact sensor: net normal forces on bodies. Histories have one entry per sensor update."""

    sensor_class: ClassVar[type[Any] | None] = ContactSensor

    prim_path: str
    """Path, or pattern of paths, of the bodies."""
    history_of: Literal["tick", "sample"] = "sample"
    """Whether history entries are per tick or per sample."""


class FrameTransformer(WithoutHandles, _frames.FrameTransformer):
    """Frame transformer of this document."""


class FrameTransformerCfg(MarkedCfg, _frames.FrameTransformerCfg):
    """Configuration of a frame transformer."""

    sensor_class: ClassVar[type[Any] | None] = FrameTransformer

    class FrameCfg(_frames.FrameTransformerCfg.FrameCfg):
        """Target frames."""

        prim_path: str
        """Path, or pattern of paths, of prims."""

    prim_path: str
    """Path of the source frame."""
    evaluate: Evaluate = "on_access"
    """When samples are computed; by default a due sample waits for a read."""
    target_frames: tuple[FrameCfg | _frames.FrameTransformerCfg.FrameCfg, ...]
    """Target frames, in this order."""
    offset: OffsetCfg = Field(default=OffsetCfg(), alias="source_frame_offset")
    """Pose of the source frame relative to the prim."""
    leaf_names: bool = True
    """Whether frames without a name have the last part of the path even if it is not unique."""


class Imu(WithoutHandles, _imu.Imu):
    """IMU of this document."""


class ImuCfg(MarkedCfg, _imu.ImuCfg):
    """Configuration of an IMU that computes all fields except the magnetic one."""

    sensor_class: ClassVar[type[Any] | None] = Imu

    prim_path: str
    """Path of the prim that carries the IMU."""
    evaluate: Evaluate = "on_access"
    """When samples are computed; by default a due sample waits for a read."""
    fields: tuple[str, ...] | Literal["measured", "all"] = _imu.FIELDS[:-1]
    """Computed fields."""
    gravity_bias: Vec3 | None = (0.0, 0.0, 9.81)
    """Added to the acceleration, in world axes, m/s^2."""


__all__ = [
    "ContactSensor", "ContactSensorCfg", "ContactSensorData", "FrameTransformer", "FrameTransformerCfg",
    "FrameTransformerData", "Imu", "ImuCfg", "ImuData", "InteractiveSceneCfg", "OffsetCfg", "SensorBase",
    "SensorBaseCfg", "VisualizationMarkersCfg", "configclass", "markers", "patterns",
]  # fmt: skip
__all__ += cameras.__all__
__all__ += patterns.__all__
__all__ += rays.__all__
