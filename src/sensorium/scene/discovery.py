"""The sensors that a model declares by itself: in a scene without a config, at no cost until they are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import Any

from sensorium.cfg import SensorCfg
from sensorium.compute import Clock
from sensorium.engines.base import Engine, NativeSensor
from sensorium.errors import (
    DuplicateNameError,
    Fault,
    SelectionError,
    UnknownNameError,
    UnsupportedError,
    listed,
    nearest,
)
from sensorium.sensors.builtin import BuiltinSensorCfg, described, field_of, with_full_names
from sensorium.sensors.core.base import Sensor
from sensorium.spec import NATIVE_SENSOR, Requirement, resolve_field


class Declared:
    """The sensors of one model.

    Attributes:
        free: those that are in the scene without a config; none before `discover`.
        refused: those that the engine cannot give, with the reason.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.free: dict[str, NativeSensor] = {}
        self.refused: dict[str, str] = {}

    @cached_property
    def known(self) -> Mapping[str, NativeSensor]:
        """All that the model declares, by name; asking for it may compile the model."""
        return {sensor.name: sensor for sensor in self.engine.native_sensors()}

    def discover(self) -> None:
        """Have what the model declares in the scene without a config."""
        for name, sensor in self.known.items():
            reason = self.engine.supports(NATIVE_SENSOR(name))
            if reason is None:
                self.free[name] = sensor
            else:
                self.refused[name] = reason

    def resolve(self, cfg: SensorCfg[Any]) -> SensorCfg[Any]:
        """Return a native sensor's config with full names, of the sensor itself or of its elements; others as they are.

        Raises:
            SelectionError: there is no such declared sensor or element, or several match.
            DuplicateNameError: the model declares a sensor of that name.
        """
        if not isinstance(cfg, BuiltinSensorCfg):
            return cfg
        if not cfg.is_declared:
            self._check(cfg, self.known)
            return cfg if cfg.label in self.known else with_full_names(cfg, self.engine.names)
        if cfg.label in self.known:
            return cfg
        found = ending_in(cfg.label, self.known)
        if len(found) == 1:
            return cfg.replace(name=found[0])
        expected = "the name of a sensor that the model declares"
        fix = f"{nearest(cfg.label, self.known)} It declares: {listed(self.known)}. To add one, give sensor_type=..."
        if found:
            expected, fix = "exactly one of them", f"It matches {listed(found)}. Write the full name."
        raise SelectionError(
            f"BuiltinSensorCfg({cfg.label!r})", [Fault("name", repr(cfg.label), expected, fix.strip())]
        )

    def check(self, cfg: SensorCfg[Any]) -> None:
        """Raise `DuplicateNameError` where a config has the name of another sensor, which the model declares."""
        self._check(cfg, self.free)

    def _check(self, cfg: SensorCfg[Any], declared: Mapping[str, NativeSensor]) -> None:
        native = declared.get(cfg.label)
        if native is None or (isinstance(cfg, BuiltinSensorCfg) and (cfg.is_declared or not native.type)):
            return
        label = cfg.label
        without = (
            "" if isinstance(cfg, BuiltinSensorCfg) else ", or leave the other out with Scene(..., discover=False)"
        )
        raise DuplicateNameError(
            f"{type(cfg).__name__}.name: {label!r} is given in the config and declared in the model's XML as well "
            f"({described(native)}). The declared one is in the scene without a config; to give it knobs write "
            f"BuiltinSensorCfg.from_existing({label!r}, ...). To have both, give the config another name, such as "
            f"{label + '_2'!r}{without}."
        )

    def take(self, name: str) -> None:
        """Note that a sensor has a config now, or was removed: it is no longer in the scene by itself."""
        self.free.pop(name, None)

    def grant(self, names: Collection[str]) -> None:
        """Have the engine compute declared sensors from now on; that needs nothing new of the model."""
        wanted = {NATIVE_SENSOR(name): name for name in names}
        missing = {need: name for need, name in wanted.items() if need not in self.engine.prepared}
        if missing:
            self.engine.prepare(missing)

    def grants(self, requirement: Requirement) -> bool:
        """Whether a requirement is a declared sensor, which can be prepared at any time."""
        return requirement.kind == "NATIVE_SENSOR" and requirement == NATIVE_SENSOR(requirement.args[0])

    def describe(self, name: str, clock: Clock) -> dict[str, Any]:
        """Return what `publish.describe` says of a discovered sensor, without building it."""
        field = resolve_field("value", field_of(self.free[name]), None)
        cfg = BuiltinSensorCfg.from_existing(name)
        return {"kind": cfg.kind(), "rate_hz": 1.0 / clock.dt, "fields": [field.to_dict()], "cfg": cfg.to_dict()}


def ending_in(name: str, names: Collection[str]) -> list[str]:
    """Return the names whose part after a prefix is `name`."""
    return [full for full in names if full.endswith(f"/{name}")]


def full_name(name: str, names: Collection[str], refused: Mapping[str, str], engine: Engine) -> str:
    """Return the one sensor that a name without its prefix means.

    Args:
        name: what was asked for.
        names: all sensors in the scene.
        refused: sensors that the model declares and the engine cannot give, with the reason.
        engine: for the message.

    Raises:
        SelectionError: several sensors end in that name.
        UnsupportedError: it is one of `refused`.
        UnknownNameError: there is no such sensor.
    """
    found = ending_in(name, names)
    if len(found) == 1:
        return found[0]
    if found:
        fix = f"It matches {listed(found)}. Write the full name."
        raise SelectionError("Scene", [Fault("sensor", repr(name), "exactly one sensor", fix)])
    impossible = [name] if name in refused else ending_in(name, refused)
    if len(impossible) == 1:
        raise UnsupportedError(
            impossible[0],
            NATIVE_SENSOR(impossible[0]),
            engine.name,
            f"the model declares it, but {refused[impossible[0]]}",
        )
    raise UnknownNameError("sensor", name, names)


class SensorMap(Mapping[str, Sensor[Any, Any]]):
    """Name -> sensor of a scene as it was; a discovered sensor is built when it is looked up."""

    def __init__(self, names: Collection[str], get: Callable[[str], Sensor[Any, Any]]) -> None:
        self._names = dict.fromkeys(names)
        self._get = get

    def __getitem__(self, name: str) -> Sensor[Any, Any]:
        if name not in self._names:
            raise UnknownNameError("sensor", name, self._names)
        return self._get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __repr__(self) -> str:
        return f"SensorMap({listed(self._names)})"


__all__ = ["Declared", "SensorMap", "full_name"]
