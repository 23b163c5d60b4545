"""The sensors of mjlab's document, with its names and defaults, and sensorium's sensors inside mjlab's scenes.

The names in `IN_MJLAB` need mjlab, which is imported when one of them is first used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from sensorium.cfg import ObjRef
from sensorium.compat.mjlab.cameras import CameraSensor, CameraSensorCfg, CameraSensorData
from sensorium.compat.mjlab.entries import SceneEntryCfg
from sensorium.compat.mjlab.patterns import GridPatternCfg, PinholeCameraPatternCfg, RingPatternCfg
from sensorium.compat.mjlab.rays import (
    RayCastData,
    RayCastSensor,
    RayCastSensorCfg,
    TerrainHeightData,
    TerrainHeightSensor,
    TerrainHeightSensorCfg,
)
from sensorium.measurement.sensor_cfg import SensorCfg
from sensorium.sensors import builtin as _builtin
from sensorium.sensors.builtin import BuiltinSensor
from sensorium.sensors.contact import contact_sensor as _contact
from sensorium.sensors.contact.contact_sensor import ContactMatch, ContactSensor
from sensorium.sensors.core.base import Sensor

if TYPE_CHECKING:
    from sensorium.compat.mjlab.scenes import (
        SceneSensor,
        SensoriumCfg,
        SensoriumSensor,
        add_sensors,
        reading,
        scene_of,
    )

ContactData = _contact.ContactSensorData
IN_MJLAB = ("SceneSensor", "SensoriumCfg", "SensoriumSensor", "add_sensors", "reading", "scene_of")
"""Names that need mjlab; a star import has them where mjlab is installed."""


class BuiltinSensorCfg(SceneEntryCfg, _builtin.BuiltinSensorCfg):
    """Configuration of a native sensor of MuJoCo."""

    sensor_type: str
    """Type of the sensor, as in MuJoCo's XML."""


class ContactSensorCfg(SceneEntryCfg, _contact.ContactSensorCfg):
    """Configuration of a report of contacts."""

    primary: ContactMatch
    """Elements whose contacts are reported."""
    secondary_policy: Literal["each", "first", "any", "error"] = "first"
    """What several matches of `secondary` mean."""
    force_on: Literal["primary", "secondary"] = "secondary"
    """Side on which force and torque in world axes act: under a standing foot, the force reads -z, along `normal`."""


def __getattr__(name: str) -> Any:
    if name in IN_MJLAB:
        return getattr(import_module("sensorium.compat.mjlab.scenes"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BuiltinSensor", "BuiltinSensorCfg", "CameraSensor", "CameraSensorCfg", "CameraSensorData", "ContactData",
    "ContactMatch", "ContactSensor", "ContactSensorCfg", "GridPatternCfg", "ObjRef", "PinholeCameraPatternCfg",
    "RayCastData", "RayCastSensor", "RayCastSensorCfg", "RingPatternCfg", "SceneSensor", "Sensor", "SensorCfg",
    "SensoriumCfg", "SensoriumSensor", "TerrainHeightData", "TerrainHeightSensor", "TerrainHeightSensorCfg",
    "add_sensors", "reading", "scene_of",
]  # fmt: skip
if find_spec("mjlab") is None:
    __all__ = [name for name in __all__ if name not in IN_MJLAB]
