"""Sensors of a scene by name, configured or declared by the model, and what they require of an engine.

Declared sensors are in a scene without a config and cost nothing until they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sensorium import registry
from sensorium.compute import Clock, Memory
from sensorium.engines.base import Engine, NameKind, NativeSensor
from sensorium.errors import (
    ConfigError,
    DuplicateNameError,
    Fault,
    SelectionError,
    UnknownNameError,
    UnsupportedError,
    listed,
    nearest,
)
from sensorium.measurement.sensor_cfg import SensorCfg
from sensorium.sensors.builtin import BuiltinSensorCfg, described, field_of, with_full_names
from sensorium.sensors.core.base import Sensor
from sensorium.spec import NATIVE_SENSOR, Requirement, resolve_field
from sensorium.world.select import Named, plural

if TYPE_CHECKING:
    import mujoco


class SensorTable:
    """Sensors of one scene.

    Attributes:
        built: name -> sensor; configured sensors in the order given, and declared sensors that were built.
        free: declared sensors in the scene without a config; empty before `discover`.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine, self._is_fresh = engine, bool(getattr(engine, "fresh", True))
        self.built: dict[str, Sensor[Any, Any]] = {}
        self.free: dict[str, NativeSensor] = {}
        self._full_names: dict[str, str] = {}

    # Names ------------------------------------------------------------------------------------------------------------

    @property
    def configured(self) -> list[str]:
        """Names of the sensors with a config, in order."""
        return [name for name in self.built if name not in self.free]

    @property
    def names(self) -> list[str]:
        """Names of all sensors: configured sensors, then free ones."""
        return [*self.configured, *self.free]

    def __contains__(self, name: str) -> bool:
        return name in self.built or name in self.free or len(_ending_in(name, self.names)) == 1

    def full_name(self, name: str) -> str:
        """Return the full name of the one sensor that a name selects; the prefix may be omitted.

        Raises:
            SelectionError: several names of sensors end in that name.
            UnsupportedError: the model declares the sensor, but the engine does not support it.
            UnknownNameError: there is no such sensor.
        """
        if name in self.built or name in self.free:
            return name
        if name not in self._full_names:
            found = _match(name, self.names, "Scene", "sensor")
            if found is None:
                declared = [name] if name in self.known else _ending_in(name, self.known)
                need = NATIVE_SENSOR(declared[0]) if len(declared) == 1 else None
                if need is not None and (reason := self.engine.supports(need)) is not None:
                    why = f"the model declares it, but {reason}"
                    raise UnsupportedError(declared[0], need, self.engine.name, why)
                raise UnknownNameError("sensor", name, self.names)
            self._full_names[name] = found
        return self._full_names[name]

    # Configs ----------------------------------------------------------------------------------------------------------

    def named(self, configs: Iterable[SensorCfg[Any]], without: str = "") -> list[SensorCfg[Any]]:
        """Return configs with their names in the scene.

        Args:
            configs: configs to add to the sensors that have a config.
            without: a configured sensor whose name may be used again.

        Raises:
            ConfigError: an item is not a sensor config.
            DuplicateNameError: two sensors would have the same name.
        """
        seen, named = {name for name in self.configured if name != without}, []
        for cfg in configs:
            if not isinstance(cfg, SensorCfg):
                raise ConfigError.single("Scene", "sensors", cfg, "sensor configs such as ImuCfg(...)")
            cfg = self.resolve(cfg).sealed()
            if cfg.label in seen:
                raise DuplicateNameError(
                    f"{type(cfg).__name__}.name: two sensors are called {cfg.label!r}. Give each a unique name: "
                    f"{type(cfg).__name__}(name={cfg.label + '_2'!r}, ...)."
                )
            self._check(cfg, self.free)
            seen.add(cfg.label)
            named.append(cfg)
        return named

    def prepare_late(self, cfg: SensorCfg[Any], memory: Memory) -> None:
        """Prepare the engine for a sensor added late, which is possible if it is declared or needs nothing new.

        Raises:
            UnsupportedError: the sensor has a requirement that was not reserved.
        """
        engine, missing = self.engine, {}
        for requirement, name in requirements_of([cfg], engine.supports, engine).items():
            if requirement in engine.prepared:
                continue
            is_declared = self._is_fresh and requirement.kind == "NATIVE_SENSOR"
            is_declared = is_declared and requirement == NATIVE_SENSOR(requirement.args[0])
            if not is_declared and not engine.grants_late(requirement):
                reserve = (
                    f"Scene(..., reserve=[{type(cfg).__name__}(...)]), or serve with --reserve RIG.toml that has one"
                )
                why = f"the model was prepared without it. Reserve it: {reserve}."
                raise UnsupportedError(name, requirement, engine.name, why)
            missing[requirement] = name
        if missing:
            with memory.building(cfg):
                engine.prepare(missing)

    # Add, replace and remove ------------------------------------------------------------------------------------------

    def put(self, sensor: Sensor[Any, Any]) -> None:
        """Add a sensor with a config; it replaces a declared sensor of the same name."""
        self.release(sensor.name, "was given a config")
        self.built[sensor.name] = sensor

    def replace(self, old: Sensor[Any, Any], new: Sensor[Any, Any]) -> None:
        """Replace a sensor with another one, and retire it."""
        for name in (old.name, new.name):
            self.free.pop(name, None)
        built = self.built.items()
        self.built = dict((new.name, new) if each is old else (name, each) for name, each in built)
        self._full_names = {}
        old.retire("was reconfigured")

    def release(self, name: str, why: str) -> None:
        """Remove a sensor, if it is in the scene."""
        self.free.pop(name, None)
        self._full_names = {}
        if (sensor := self.built.pop(name, None)) is not None:
            sensor.retire(why)

    # Declared sensors -------------------------------------------------------------------------------------------------

    @cached_property
    def known(self) -> Mapping[str, NativeSensor]:
        """All sensors that the model declares, by name; the first access may compile the model."""
        return {sensor.name: sensor for sensor in self.engine.native_sensors()}

    def discover(self, configs: Iterable[SensorCfg[Any]]) -> None:
        """Add the sensors that the model declares, except those with a config.

        Raises:
            DuplicateNameError: a config has the name of a different sensor that the model declares.
        """
        supports = self.engine.supports
        self.free = {name: each for name, each in self.known.items() if supports(NATIVE_SENSOR(name)) is None}
        for cfg in configs:
            self._check(cfg, self.free)
            self.free.pop(cfg.label, None)
        if not self._is_fresh:  # derived state prepared later would belong to a different instant
            self.grant(self.free)

    def resolve(self, cfg: SensorCfg[Any]) -> SensorCfg[Any]:
        """Return a native sensor's config with full names of the sensor or its elements, and other configs unchanged.

        Raises:
            SelectionError: no declared sensor or element matches, or several do.
            DuplicateNameError: the model declares a sensor of that name.
        """
        if not isinstance(cfg, BuiltinSensorCfg):
            return cfg
        if not cfg.is_declared:
            self._check(cfg, self.known)
            return cfg if cfg.label in self.known else with_full_names(cfg, self.engine.names)
        title = f"BuiltinSensorCfg({cfg.label!r})"
        found = _match(cfg.label, self.known, title, "name")
        if found is None:
            fix = (
                f"{nearest(cfg.label, self.known)} It declares: {listed(self.known)}. To add one, give sensor_type=..."
            )
            expected = "the name of a sensor declared in the model"
            raise SelectionError(title, [Fault("name", repr(cfg.label), expected, fix.strip())])
        return cfg if found == cfg.label else cfg.replace(name=found)

    def _check(self, cfg: SensorCfg[Any], declared: Mapping[str, NativeSensor]) -> None:
        """Raise `DuplicateNameError` if a config has the name of a different sensor that the model declares."""
        native = declared.get(cfg.label)
        if native is None or (isinstance(cfg, BuiltinSensorCfg) and (cfg.is_declared or not native.type)):
            return
        label = cfg.label
        without = (
            "" if isinstance(cfg, BuiltinSensorCfg) else ", or exclude the declared one with Scene(..., discover=False)"
        )
        raise DuplicateNameError(
            f"{type(cfg).__name__}.name: {label!r} is the name of this config and of a sensor in the model's XML "
            f"({described(native)}). The declared sensor needs no config; to set its knobs, use "
            f"BuiltinSensorCfg.from_existing({label!r}, ...). To have both, give the config another name, such as "
            f"{label + '_2'!r}{without}."
        )

    def grant(self, names: Iterable[str]) -> None:
        """Make the engine compute the free sensors among `names`; this adds no requirement to the model."""
        wanted = {NATIVE_SENSOR(name): name for name in names if name in self.free}
        missing = {need: name for need, name in wanted.items() if need not in self.engine.prepared}
        if missing:
            self.engine.prepare(missing)

    def describe(self, clock: Clock) -> dict[str, dict[str, Any]]:
        """Return the static description of each sensor; free sensors are not built for it."""
        from sensorium.scene.publish import describe  # imported on use: few loops describe their sensors

        out = {name: describe(self.built[name]) for name in self.configured}
        for name, sensor in self.free.items():
            field, cfg = resolve_field("value", field_of(sensor), None), BuiltinSensorCfg.from_existing(name)
            about = {"kind": cfg.kind(), "rate_hz": 1.0 / clock.dt, "fields": [field.to_dict()]}
            out[name] = {**about, "cfg": cfg.to_dict()}
        return out


def _ending_in(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that equal `name` after their prefix."""
    return [full for full in names if full.endswith(f"/{name}")]


def _match(name: str, names: Collection[str], title: str, field: str) -> str | None:
    """Return the full name of the sensor that a name selects, its prefix being optional; None without a match.

    Raises:
        SelectionError: several names end in that name.
    """
    found = [name] if name in names else _ending_in(name, names)
    if len(found) > 1:
        fix = f"It matches {listed(found)}. Write the full name."
        raise SelectionError(title, [Fault(field, repr(name), "exactly one sensor", fix)])
    return found[0] if found else None


class SensorMap(Mapping[str, Sensor[Any, Any]]):
    """Snapshot of a scene's sensors by name; a discovered sensor is built on its first lookup."""

    def __init__(self, names: Collection[str], get: Callable[[str], Sensor[Any, Any]]) -> None:
        self._names = dict.fromkeys(names)
        self._get = get

    def __getitem__(self, name: str) -> Sensor[Any, Any]:
        if name not in self._names:
            raise UnknownNameError("sensor", str(name), self._names)
        return self._get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __repr__(self) -> str:
        return f"SensorMap({listed(self._names)})"


def requirements_of(
    items: Iterable[SensorCfg[Any] | Requirement], supports: Callable[[Requirement], str | None], model: Named
) -> dict[Requirement, str]:
    """Return the requirements of configs, each with the name of the first sensor that has it.

    Args:
        items: configs, and requirements to reserve.
        supports: returns the reason why a requirement is unsupported, or None if it is supported.
        model: model whose names the patterns of configs match.
    """
    needed: dict[Requirement, str] = {}
    for item in items:
        if isinstance(item, Requirement):
            needed.setdefault(item, "(reserved)")
            continue
        for requirement in registry.sensor_for(type(item)).needs(item, model, supports):
            needed.setdefault(requirement, item.label)
    return needed


def prepare(spec: mujoco.MjSpec, sensors: Iterable[SensorCfg[Any] | Requirement]) -> mujoco.MjSpec:
    """Add the elements that sensors need to an mjSpec before it is compiled by the caller; return the same spec.

    Sensors cannot be mounted on the added elements: their names are hidden. Unnamed bodies, geoms and other elements of
    the model get names such as `geom_3`.
    """
    from sensorium.engines.mujoco.elements import hidden
    from sensorium.engines.mujoco.spec import name_elements, prepare_spec

    name_elements(spec)

    def names(kind: NameKind) -> list[str]:
        found = [element.name for element in getattr(spec, plural(kind)) if not hidden(element.name)]
        return found[1:] if kind == "body" else found  # without the world

    def parent_body(body: int) -> int:
        known = names("body")
        parent = spec.body(known[body]).parent.name
        return known.index(parent) if parent in known else -1

    named = [
        with_full_names(item, names) if isinstance(item, BuiltinSensorCfg) and not item.is_declared else item
        for item in sensors
    ]
    prepare_spec(
        spec, requirements_of(named, lambda requirement: None, SimpleNamespace(names=names, parent_body=parent_body))
    )
    return spec
