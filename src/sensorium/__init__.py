"""Senses for simulated robots: what their sensors would report, true and measured, for one environment or thousands."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sensorium.cfg import GilbertElliott as GilbertElliott
    from sensorium.cfg import MountedSensorCfg as MountedSensorCfg
    from sensorium.cfg import ObjRef as ObjRef
    from sensorium.cfg import OffsetCfg as OffsetCfg
    from sensorium.cfg import SensorCfg as SensorCfg
    from sensorium.cfg import SimpleSensorCfg as SimpleSensorCfg
    from sensorium.cfg import StageCfg as StageCfg
    from sensorium.compute import Rows as Rows
    from sensorium.compute import recorded as recorded
    from sensorium.engines.base import Engine as Engine
    from sensorium.engines.mujoco import MujocoEngine as MujocoEngine
    from sensorium.engines.tensor import TensorEngine as TensorEngine
    from sensorium.errors import ConfigError as ConfigError
    from sensorium.errors import DuplicateNameError as DuplicateNameError
    from sensorium.errors import MissingDependencyError as MissingDependencyError
    from sensorium.errors import ModelError as ModelError
    from sensorium.errors import NonFiniteStateWarning as NonFiniteStateWarning
    from sensorium.errors import RegistrationError as RegistrationError
    from sensorium.errors import ScheduleError as ScheduleError
    from sensorium.errors import SelectionError as SelectionError
    from sensorium.errors import SensoriumError as SensoriumError
    from sensorium.errors import SensoriumWarning as SensoriumWarning
    from sensorium.errors import StaleError as StaleError
    from sensorium.errors import UnknownNameError as UnknownNameError
    from sensorium.errors import UnsupportedError as UnsupportedError
    from sensorium.measurement.record import Record as Record
    from sensorium.measurement.record import Timeline as Timeline
    from sensorium.measurement.stages import GaussMarkov as GaussMarkov
    from sensorium.measurement.stages import Saturation as Saturation
    from sensorium.measurement.stages import ScaleError as ScaleError
    from sensorium.measurement.stages import StageKey as StageKey
    from sensorium.presets import preset as preset
    from sensorium.random import Choice as Choice
    from sensorium.random import Normal as Normal
    from sensorium.random import Uniform as Uniform
    from sensorium.readings import DebugShape as DebugShape
    from sensorium.readings import Reading as Reading
    from sensorium.readings import SceneDescription as SceneDescription
    from sensorium.scene import Scene as Scene
    from sensorium.scene import prepare as prepare
    from sensorium.sensors.base import Sensor as Sensor
    from sensorium.sensors.base import SimpleSensor as SimpleSensor
    from sensorium.sensors.imu import Imu as Imu
    from sensorium.sensors.imu import ImuCfg as ImuCfg
    from sensorium.sensors.imu import ImuData as ImuData
    from sensorium.spec import BODY_ACCELERATION as BODY_ACCELERATION
    from sensorium.spec import BODY_POSE as BODY_POSE
    from sensorium.spec import BODY_VELOCITY as BODY_VELOCITY
    from sensorium.spec import GRAVITY as GRAVITY
    from sensorium.spec import JOINT_STATE as JOINT_STATE
    from sensorium.spec import MAGNETIC as MAGNETIC
    from sensorium.spec import MODEL_ELEMENTS as MODEL_ELEMENTS
    from sensorium.spec import Field as Field
    from sensorium.spec import FieldSpec as FieldSpec
    from sensorium.spec import Requirement as Requirement

    __version__: str

_MODULES = {
    "BODY_ACCELERATION": "sensorium.spec",
    "BODY_POSE": "sensorium.spec",
    "BODY_VELOCITY": "sensorium.spec",
    "Choice": "sensorium.random",
    "ConfigError": "sensorium.errors",
    "DebugShape": "sensorium.readings",
    "DuplicateNameError": "sensorium.errors",
    "Engine": "sensorium.engines.base",
    "Field": "sensorium.spec",
    "FieldSpec": "sensorium.spec",
    "GRAVITY": "sensorium.spec",
    "GaussMarkov": "sensorium.measurement.stages",
    "GilbertElliott": "sensorium.cfg",
    "Imu": "sensorium.sensors.imu",
    "ImuCfg": "sensorium.sensors.imu",
    "ImuData": "sensorium.sensors.imu",
    "JOINT_STATE": "sensorium.spec",
    "MAGNETIC": "sensorium.spec",
    "MODEL_ELEMENTS": "sensorium.spec",
    "MissingDependencyError": "sensorium.errors",
    "ModelError": "sensorium.errors",
    "MountedSensorCfg": "sensorium.cfg",
    "MujocoEngine": "sensorium.engines.mujoco",
    "NonFiniteStateWarning": "sensorium.errors",
    "Normal": "sensorium.random",
    "ObjRef": "sensorium.cfg",
    "OffsetCfg": "sensorium.cfg",
    "Reading": "sensorium.readings",
    "Record": "sensorium.measurement.record",
    "RegistrationError": "sensorium.errors",
    "Requirement": "sensorium.spec",
    "Rows": "sensorium.compute",
    "Saturation": "sensorium.measurement.stages",
    "ScaleError": "sensorium.measurement.stages",
    "Scene": "sensorium.scene",
    "SceneDescription": "sensorium.readings",
    "ScheduleError": "sensorium.errors",
    "SelectionError": "sensorium.errors",
    "Sensor": "sensorium.sensors.base",
    "SensorCfg": "sensorium.cfg",
    "SensoriumError": "sensorium.errors",
    "SensoriumWarning": "sensorium.errors",
    "SimpleSensor": "sensorium.sensors.base",
    "SimpleSensorCfg": "sensorium.cfg",
    "StageCfg": "sensorium.cfg",
    "StageKey": "sensorium.measurement.stages",
    "StaleError": "sensorium.errors",
    "TensorEngine": "sensorium.engines.tensor",
    "Timeline": "sensorium.measurement.record",
    "Uniform": "sensorium.random",
    "UnknownNameError": "sensorium.errors",
    "UnsupportedError": "sensorium.errors",
    "prepare": "sensorium.scene",
    "preset": "sensorium.presets",
    "recorded": "sensorium.compute",
}
"""Every public name and the module it lives in; a module is imported when one of its names is first used."""

__all__ = [
    "BODY_ACCELERATION",
    "BODY_POSE",
    "BODY_VELOCITY",
    "GRAVITY",
    "JOINT_STATE",
    "MAGNETIC",
    "MODEL_ELEMENTS",
    "Choice",
    "ConfigError",
    "DebugShape",
    "DuplicateNameError",
    "Engine",
    "Field",
    "FieldSpec",
    "GaussMarkov",
    "GilbertElliott",
    "Imu",
    "ImuCfg",
    "ImuData",
    "MissingDependencyError",
    "ModelError",
    "MountedSensorCfg",
    "MujocoEngine",
    "NonFiniteStateWarning",
    "Normal",
    "ObjRef",
    "OffsetCfg",
    "Reading",
    "Record",
    "RegistrationError",
    "Requirement",
    "Rows",
    "Saturation",
    "ScaleError",
    "Scene",
    "SceneDescription",
    "ScheduleError",
    "SelectionError",
    "Sensor",
    "SensorCfg",
    "SensoriumError",
    "SensoriumWarning",
    "SimpleSensor",
    "SimpleSensorCfg",
    "StageCfg",
    "StageKey",
    "StaleError",
    "TensorEngine",
    "Timeline",
    "Uniform",
    "UnknownNameError",
    "UnsupportedError",
    "prepare",
    "preset",
    "recorded",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module, metadata

    value: Any
    if name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
    elif name == "__version__":
        try:
            value = metadata.version("sensorium")
        except metadata.PackageNotFoundError:  # run from a source tree that is not installed
            value = "0+unknown"
    else:
        from difflib import get_close_matches

        near = get_close_matches(name, _MODULES, n=3)
        hint = f". Did you mean: {', '.join(near)}?" if near else ""
        raise AttributeError(f"module 'sensorium' has no attribute {name!r}{hint}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
