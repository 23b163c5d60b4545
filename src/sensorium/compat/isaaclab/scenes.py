"""Scenes of Isaac Lab as classes: the sensors are attributes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import partial
from types import FunctionType
from typing import Any, TypeVar, dataclass_transform

from sensorium.cfg import Cfg
from sensorium.errors import ConfigError, Fault
from sensorium.measurement.sensor_cfg import SensorCfg

T = TypeVar("T")
KEPT = FunctionType, property, classmethod, staticmethod, type
"""Attributes without an annotation that are no settings."""


def _fresh(value: Any) -> Any:
    return value if value is MISSING else deepcopy(value)


def _copy(self: Any, **changes: Any) -> Any:
    """Return an independent copy with some attributes changed."""
    return replace(self, **{each.name: _fresh(getattr(self, each.name)) for each in fields(self)} | changes)


@dataclass_transform(kw_only_default=True)
def configclass(cls: type[T]) -> type[T]:
    """Make a class a dataclass, with `copy` and `replace`, whose instances have copies of its attributes.

    Attributes may lack an annotation; one without a value is `dataclasses.MISSING`. Configs of sensors and patterns are
    returned unchanged.
    """
    if issubclass(cls, Cfg):
        return cls
    hints, own = inspect.get_annotations(cls), dict(vars(cls))
    is_free = {name: not name.startswith("__") and not isinstance(value, KEPT) for name, value in own.items()}
    cls.__annotations__ = {name: hints.get(name, Any) for name in own if name in hints or is_free[name]} | hints
    for name, hint in cls.__annotations__.items():
        if "ClassVar" not in str(hint) and not isinstance(value := own.get(name, MISSING), Field):
            setattr(cls, name, field(default_factory=partial(_fresh, value)))
    for name in ("copy", "replace"):
        setattr(cls, name, _copy)
    return dataclass(kw_only=True)(cls)


@configclass
class InteractiveSceneCfg:
    """Base of scenes as classes, for `sensorium.Scene`. A sensor config in an attribute is a sensor of that name.

    Robots, terrain and lights belong to the engine: other attributes have no effect. Iterating gives the configs.
    """

    num_envs: int | None = None
    """Number of environments, which must be that of the engine; None for any."""
    env_spacing: float | None = None
    """No effect: environments are separate worlds, and `Scene.env_origins` is 0."""
    lazy_sensor_update: bool = True
    """False computes all sensors at each of their samples."""
    replicate_physics: bool = True
    """No effect: the engine repeats one model."""
    filter_collisions: bool = True
    """No effect: environments never collide with each other."""
    clone_in_fabric: bool = False
    """No effect."""

    def __iter__(self) -> Iterator[SensorCfg[Any]]:
        """Return the configs of the sensors, with their names.

        Raises:
            ConfigError: an attribute has no value, or is the sensor config of another library.
        """
        names = dict.fromkeys(name for base in reversed(type(self).__mro__) for name in vars(base)) | vars(self)
        for name in names:
            cfg = getattr(self, name)
            if isinstance(cfg, SensorCfg):
                changes = {} if cfg.name else {"name": name}
                yield cfg.replace(**changes, **({} if self.lazy_sensor_update else {"evaluate": "always"}))
            elif hasattr(cfg, "update_period"):
                fix = "Import its class from sensorium.compat.isaaclab."
                raise ConfigError.single(type(self).__name__, name, cfg, "a sensor config of sensorium", fix)
            elif cfg is MISSING:
                fix = f"For a part of the engine, write {name} = None."
                raise ConfigError(type(self).__name__, [Fault(name, "nothing", "a value", fix)])


__all__ = ["InteractiveSceneCfg", "configclass"]
