"""Which sensor class belongs to which config class: a table of types that imports no sensor itself.

Pairs are made where a sensor class is defined. A config imported alone finds its sensor in a sibling module of its own
package on first use. Installed packages announce their sensors through the entry-point group `sensorium.sensors`; so do
ours. A broken plugin is reported by name and never takes the program down.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import warnings
from importlib.metadata import entry_points
from typing import Any

from sensorium.errors import DuplicateNameError, RegistrationError, SensoriumWarning, UnknownNameError

ENTRY_POINT_GROUP = "sensorium.sensors"

_pairs: dict[type, type] = {}
_loaded = False


def pair(cfg_class: type, sensor_class: type) -> None:
    """Note that `sensor_class` is built from `cfg_class`.

    Raises:
        RegistrationError: the config class is already paired with another sensor.
    """
    other = _pairs.get(cfg_class)
    if other is not None and other is not sensor_class:
        raise RegistrationError(
            f"config {cfg_class.__name__} is already paired with {other.__module__}.{other.__qualname__}; "
            f"{sensor_class.__qualname__} needs a config class of its own: "
            f"class My{cfg_class.__name__}({cfg_class.__name__}): ..."
        )
    _pairs[cfg_class] = sensor_class


def sensor_for(cfg_class: type) -> type[Any]:
    """Return the sensor class of a config class, looking into sibling modules where it is not paired yet.

    Raises:
        RegistrationError: none is found.
    """
    if cfg_class not in _pairs:
        failures = _import_siblings(cfg_class)
        if cfg_class not in _pairs:
            hint = "".join(f"\n  {name} could not be imported: {error}" for name, error in failures.items())
            raise RegistrationError(
                f"no sensor class is paired with {cfg_class.__module__}.{cfg_class.__qualname__}. Define "
                f"class My(SimpleSensor[{cfg_class.__qualname__}, MyData]) in the same module or package.{hint}"
            )
    return _pairs[cfg_class]


def _import_siblings(cfg_class: type) -> dict[str, Exception]:
    """Import the modules beside the config's own, so that its sensor class can pair itself."""
    package_name = cfg_class.__module__.rpartition(".")[0]
    package = sys.modules.get(package_name)
    failures: dict[str, Exception] = {}
    for module in pkgutil.iter_modules(getattr(package, "__path__", [])):
        name = f"{package_name}.{module.name}"
        if name in sys.modules or module.ispkg:
            continue
        try:
            importlib.import_module(name)
        except Exception as error:
            failures[name] = error
        if cfg_class in _pairs:
            break
    return failures


def load_installed() -> None:
    """Import every package that announces sensors, once; a broken one is a warning with its name."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            point.load()
        except Exception as error:
            warnings.warn(
                f"the sensor plugin {point.name!r} ({point.value}) could not be loaded and is left out: "
                f"{type(error).__name__}: {error}",
                SensoriumWarning,
                stacklevel=2,
            )


def registered() -> dict[type, type]:
    """Return all pairs of config class and sensor class that are known now."""
    load_installed()
    return dict(_pairs)


def cfg_for_kind(kind: str) -> type[Any]:
    """Return the config class of a kind as written in files, e.g. ``"imu"``.

    Raises:
        UnknownNameError: no sensor of that kind, with the nearest.
        DuplicateNameError: two installed sensors have that kind.
    """
    load_installed()
    kinds: dict[str, list[Any]] = {}
    for cfg_class in _pairs:
        kinds.setdefault(cfg_class.kind(), []).append(cfg_class)  # type: ignore[attr-defined]
    found = kinds.get(kind, [])
    if not found:
        raise UnknownNameError("sensor kind", kind, kinds)
    if len(found) > 1:
        names = ", ".join(f"{cls.__module__}.{cls.__qualname__}" for cls in found)
        raise DuplicateNameError(f"two sensors have the kind {kind!r}: {names}. Rename one config class.")
    return found[0]  # type: ignore[no-any-return]
