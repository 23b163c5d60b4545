"""The sensors of GeneLab's document, with its names and defaults."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from sensorium.cfg import SensorCfg
from sensorium.compat.aliases import AliasedCfg
from sensorium.sensors.touch import kinematic_tactile as _tactile
from sensorium.sensors.touch.contact_depth_probe import ContactDepthProbe as KinematicDepthSensor
from sensorium.sensors.touch.contact_depth_probe import ContactDepthProbeCfg as KinematicDepthSensorCfg
from sensorium.sensors.touch.contact_probe import ContactProbe as KinematicContactSensor
from sensorium.sensors.touch.contact_probe import ContactProbeCfg as KinematicContactSensorCfg
from sensorium.sensors.touch.kinematic_tactile import KinematicTactileSensor


class KinematicTactileSensorData(_tactile.KinematicTactileSensorData):
    """One sample."""

    __slots__ = ()

    @property
    def raw(self) -> Tensor:
        """`force`."""
        return self.force


class KinematicTactileSensorCfg(AliasedCfg, _tactile.KinematicTactileSensorCfg):
    """Configuration of a kinematic tactile sensor."""

    data_class: ClassVar[type[Any] | None] = KinematicTactileSensorData


__all__ = [
    "KinematicContactSensor",
    "KinematicContactSensorCfg",
    "KinematicDepthSensor",
    "KinematicDepthSensorCfg",
    "KinematicTactileSensor",
    "KinematicTactileSensorCfg",
    "KinematicTactileSensorData",
    "SensorCfg",
]
