"""Lookup of the sensor class for a config class: a table of types that imports no sensor itself.

A pair is registered when a sensor class is defined. A config that was imported alone finds its sensor in a sibling
module of its package on first use. Installed packages announce their sensors and stages through the entry-point group
`sensorium.sensors`, as the built-in sensors do. A broken plugin is reported by name and never stops the program.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from functools import partial
from itertools import takewhile
from typing import Any

from sensorium.errors import DuplicateNameError, RegistrationError, UnknownNameError
from sensorium.measurement.sensor_cfg import OWNERS, SensorCfg
from sensorium.measurement.stage_cfg import SENSOR_PLUGINS
from sensorium.plugins import BrokenPlugin, Registry, attempt, is_ours, path_of, text_of

WITHOUT_SENSORS = ("sensorium.measurement.", "sensorium.compat.")
"""Packages whose configs have no sensors: no sibling module is imported for them."""

_hidden: set[type] = set()
"""Config classes of plugins whose kind equals a built-in kind; in files the kind means the built-in one."""
_searched: set[type] = set()
"""Config classes for which no sibling module defines a sensor."""


class _Pairs(Registry[type, type[Any]]):
    """Sensor classes by config class."""

    def check(self, before: dict[type, type[Any]], package: str) -> list[tuple[str, str, str]]:
        new = [cfg_class for cfg_class in self if cfg_class not in before]
        faults = {each: fault for each in new if (fault := attempt(partial(_kind, each))) is not None}
        for cfg_class in faults:  # kind() is a method of the plugin, which may raise too
            del self[cfg_class]
        if faults:
            raise next(iter(faults.values()))
        own = [cfg_class for cfg_class in self if cfg_class.__module__.partition(".")[0] == package]
        owners = {_kind(cfg_class): cfg_class for cfg_class in self if cfg_class not in own}
        found = []
        for cfg_class in own:
            kind = _kind(cfg_class)
            if (owner := owners.get(kind)) is not None:
                if is_ours(owner):
                    _hidden.add(cfg_class)
                means = f"means {path_of(owner)}" if is_ours(owner) else "is ambiguous"
                which = f"whose kind {kind!r} is that of {path_of(owner)}"
                found.append((f"defines {path_of(cfg_class)}, {which}: in files it {means}.", _RENAME, kind))
        return found


_RENAME = "Rename the config class."
_pairs = _Pairs(
    "config",
    SENSOR_PLUGINS,
    "config {key.__name__} is already paired with {other}; {cls} needs a separate config class: "
    "class My{key.__name__}({key.__name__}): ...",
)


def pair(cfg_class: type, sensor_class: type) -> None:
    """Register `sensor_class` as the sensor of `cfg_class`.

    Raises:
        RegistrationError: the config class is already paired with another sensor.
    """
    _pairs.add(cfg_class, sensor_class)


def sensor_for(cfg_class: type) -> type[Any]:
    """Return the sensor class of a config class, or of its nearest base that has one.

    A `sensor_class` of the config replaces the paired class. Sibling modules are imported if the class is not paired
    yet.

    Raises:
        RegistrationError: no sensor class was found.
    """
    failures: dict[str, BaseException] = {}
    owner = paired_base(cfg_class, failures)
    if owner not in _pairs:
        hint = "".join(f"\n  {name} could not be imported: {text_of(error)}" for name, error in failures.items())
        raise RegistrationError(
            f"no sensor class is paired with {cfg_class.__module__}.{cfg_class.__qualname__}. Define "
            f"class My(SimpleSensor[{cfg_class.__qualname__}, MyData]) in the same module or package.{hint}"
        )
    refined = takewhile(lambda base: base is not owner, cfg_class.__mro__)
    return next((own for base in refined if (own := vars(base).get("sensor_class")) is not None), _pairs[owner])


def paired_base(cfg_class: type, failures: dict[str, BaseException] | None = None) -> type:
    """Return a config class, or the nearest of its bases, that is paired with a sensor; the class itself if none is.

    Args:
        cfg_class: the class.
        failures: collects the sibling modules that could not be imported.
    """
    for base in cfg_class.__mro__:
        if base in _pairs:
            return base
        if base.__module__.startswith(WITHOUT_SENSORS) or not issubclass(base, SensorCfg) or "[" in base.__name__:
            continue
        if base in _searched or getattr(sys.modules[base.__module__].__spec__, "_initializing", False):
            continue
        found = _import_siblings(base)
        if base in _pairs:
            return base
        if not found:  # otherwise the next call tries again
            _searched.add(base)
        elif failures is not None:
            failures.update(found)
    return cfg_class


def _import_siblings(cfg_class: type) -> dict[str, BaseException]:
    """Import the modules beside the config's module so that its sensor class registers; likely names come first."""
    package_name = cfg_class.__module__.rpartition(".")[0]
    package = sys.modules.get(package_name)
    found = [module.name for module in pkgutil.iter_modules(getattr(package, "__path__", []))]
    failures: dict[str, BaseException] = {}
    for module in sorted(found, key=lambda name: (not name.startswith("sensor"), name)):
        name = f"{package_name}.{module}"
        if name in sys.modules or module == "__main__":
            continue
        if (error := attempt(partial(importlib.import_module, name))) is not None:
            failures[name] = error
        if cfg_class in _pairs:
            break
    return failures


# Installed plugins ----------------------------------------------------------------------------------------------------


def broken() -> tuple[BrokenPlugin, ...]:
    """Return the installed plugins that cannot be used, each with the reason and the fix."""
    SENSOR_PLUGINS.load()
    return tuple(SENSOR_PLUGINS.broken)


def plugin_of(cls: type) -> str:
    """Return the installed plugin of a class, e.g. ``"plugin 'wind' of wind-sensor 0.1"``, or an empty string."""
    return SENSOR_PLUGINS.of(cls)


def _kind(cfg_class: Any) -> str:
    kind: str = cfg_class.kind()
    return kind


def registered() -> dict[type, type]:
    """Return all registered pairs of config class and sensor class."""
    return _pairs.registered()


def cfg_for_kind(kind: str) -> type[Any]:
    """Return the config class of a kind as written in files, e.g. ``"imu"``.

    Raises:
        UnknownNameError: no sensor has that kind; the message lists the nearest kinds and the plugins that failed to
            load.
        DuplicateNameError: two sensors have that kind.
    """
    kinds: dict[str, dict[str, Any]] = {}
    for cfg_class in _pairs.registered():
        if cfg_class not in _hidden:
            kinds.setdefault(_kind(cfg_class), {})[path_of(cfg_class)] = cfg_class  # the newest definition of a class
    found = kinds.get(kind, {})
    if not found:
        raise UnknownNameError("sensor kind", kind, kinds, SENSOR_PLUGINS.suspects(kind))
    if len(found) > 1:
        raise DuplicateNameError(f"two sensors have the kind {kind!r}: {', '.join(found)}. Rename one config class.")
    return next(iter(found.values()))  # type: ignore[no-any-return]


OWNERS.append(paired_base)
