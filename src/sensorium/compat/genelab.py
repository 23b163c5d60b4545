"""The sensors of GeneLab's document, with its names and defaults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from sensorium.compat.aliases import AliasedCfg
from sensorium.measurement.sensor_cfg import SensorCfg
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
    """Configuration of a kinematic tactile sensor.

    Signs are those of the document's example: +10 N along the normal. `on_link=True` gives those of its formula.
    """

    data_class: ClassVar[type[Any] | None] = KinematicTactileSensorData


@dataclass(kw_only=True)
class InteractiveSceneCfg:
    """Sensors of a scene, for `sensorium.Scene`; iterating gives their configs. The engine brings everything else."""

    sensors: tuple[SensorCfg[Any], ...] = ()
    """Configs of the sensors, with unique names."""

    def __iter__(self) -> Iterator[SensorCfg[Any]]:
        return iter(self.sensors)


__all__ = [
    "InteractiveSceneCfg",
    "KinematicContactSensor",
    "KinematicContactSensorCfg",
    "KinematicDepthSensor",
    "KinematicDepthSensorCfg",
    "KinematicTactileSensor",
    "KinematicTactileSensorCfg",
    "KinematicTactileSensorData",
    "SensorCfg",
]
