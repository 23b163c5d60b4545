"""Plugin of pytest for mjlab's tests: the sensors of `sensorium.compat.mjlab` take the place of mjlab's own.

Classes and configs of sensors are replaced in mjlab's modules before any test is imported. mjlab's scenes, simulation,
base classes and observation terms are its own, and so are the sensors of elements that sensorium itself added.
"""

from __future__ import annotations

import sys
from typing import Any

import mjlab.sensor
import mjlab.sensor.builtin_sensor
import mjlab.sensor.camera_sensor
import mjlab.sensor.contact_sensor
import mjlab.sensor.raycast_sensor
import mjlab.sensor.terrain_height_sensor

from sensorium.compat import mjlab as ours
from sensorium.compat.mjlab.scenes import SceneSensor, SensoriumCfg, SensoriumSensor
from sensorium.sensors import builtin

_THEIRS = mjlab.sensor.BuiltinSensor


class Declared(SceneSensor):
    """Sensor that the model declares, in a scene of its own: mjlab lets it edit no spec."""

    def initialize(self, *arguments: Any) -> None:
        self._leads, self._shared = True, SensoriumSensor(SensoriumCfg(sensors=[self.cfg]))
        super().initialize(*arguments)


class BuiltinSensor(ours.BuiltinSensor):
    """sensorium's class, with mjlab's way to wrap a sensor that the model declares."""

    @classmethod
    def from_existing(cls, name: str) -> Any:
        own = name.startswith("sensorium/")
        return _THEIRS.from_existing(name) if own else Declared(builtin.BuiltinSensorCfg.from_existing(name))


def install() -> None:
    """Replace mjlab's classes wherever its modules have them."""
    names = [name for name in ours.__all__ if hasattr(mjlab.sensor, name) and name not in ("Sensor", "SensorCfg")]
    replaced = {getattr(mjlab.sensor, name): getattr(ours, name) for name in names} | {_THEIRS: BuiltinSensor}
    for module in [each for name, each in sys.modules.items() if name.partition(".")[0] == "mjlab"]:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value in replaced:
                setattr(module, name, replaced[value])


install()
