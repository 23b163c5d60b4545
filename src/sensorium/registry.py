"""Which sensor class belongs to which config class: a table of types that imports no sensor itself.

Pairs are made where a sensor class is defined. A config imported alone finds its sensor in a sibling module of its own
package on first use. Installed packages announce their sensors and stages through the entry-point group
`sensorium.sensors`; so do ours. A broken plugin is reported by name and never takes the program down.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any

from sensorium.cfg.sensor import OWNERS, SensorCfg
from sensorium.cfg.stage import FINDERS, STAGE_KINDS, StageCfg
from sensorium.errors import DuplicateNameError, RegistrationError, SensoriumWarning, UnknownNameError
from sensorium.plugins import announced, attempt, load, module_of, package_of, text_of

ENTRY_POINT_GROUP = "sensorium.sensors"
OURS = "sensorium."
"""How the module names of our own sensors begin: a plugin cannot take a kind of theirs."""

WITHOUT_SENSORS = ("sensorium.cfg.", "sensorium.compat.")
"""Packages whose configs have no sensors of their own: no sibling module is imported for them."""

_pairs: dict[type, type] = {}
_searched: set[type] = set()
"""Config classes without a sensor in any of their sibling modules."""
_loaded = False
_broken: list[BrokenPlugin] = []
_hidden: set[type] = set()
"""Config classes of plugins whose kind is one of ours: files mean ours."""


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """An installed plugin that cannot be used, or not in full.

    Args:
        name: name of its entry point.
        value: what the entry point names, e.g. ``"my_package.sensor"``.
        distribution: name and version of the installed package; empty where unknown.
        reason: what is wrong, one sentence.
        fix: what to do about it, one sentence.
        kinds: kinds of sensors and stages it is known to concern.
    """

    name: str
    value: str
    distribution: str
    reason: str
    fix: str
    kinds: tuple[str, ...] = ()

    def __str__(self) -> str:
        package = f" of {self.distribution}" if self.distribution else ""
        return f"the sensor plugin {self.name!r}{package} ({self.value}) {self.reason} {self.fix}"


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
    """Return the sensor class of a config class, or of its nearest base that has one.

    Sibling modules are looked into where a class is not paired yet.

    Raises:
        RegistrationError: none is found.
    """
    failures: dict[str, BaseException] = {}
    owner = paired_base(cfg_class, failures)
    if owner not in _pairs:
        hint = "".join(f"\n  {name} could not be imported: {text_of(error)}" for name, error in failures.items())
        raise RegistrationError(
            f"no sensor class is paired with {cfg_class.__module__}.{cfg_class.__qualname__}. Define "
            f"class My(SimpleSensor[{cfg_class.__qualname__}, MyData]) in the same module or package.{hint}"
        )
    return _pairs[owner]


def paired_base(cfg_class: type, failures: dict[str, BaseException] | None = None) -> type:
    """Return a config class, or the nearest of its bases, that is paired with a sensor; itself where none is.

    Args:
        cfg_class: the class.
        failures: gets the sibling modules that could not be imported.
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
        if not found:  # else it is tried again
            _searched.add(base)
        elif failures is not None:
            failures.update(found)
    return cfg_class


def _import_siblings(cfg_class: type) -> dict[str, BaseException]:
    """Import the modules beside the config's own, so that its sensor class can pair itself; likely names come first."""
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


def load_installed(*, warn: bool = True) -> None:
    """Import every package that announces sensors, once; a broken one is noted, see `broken`.

    Args:
        warn: also warn of each broken one, by name and with the fix.
    """
    global _loaded
    if _loaded:
        return
    _loaded = True
    for point in sorted(announced(ENTRY_POINT_GROUP), key=_order):
        _broken.extend(_load(point))
    for plugin in _broken if warn else ():  # at the end: where warnings are errors, the first ends this
        warnings.warn(str(plugin), SensoriumWarning, stacklevel=3)


def broken() -> tuple[BrokenPlugin, ...]:
    """Return the installed plugins that cannot be used, each with the reason and the fix."""
    load_installed()
    return tuple(_broken)


def plugin_of(cls: type) -> str:
    """Return the installed plugin a class belongs to, e.g. ``"plugin 'wind' of wind-sensor 0.1"``; empty for none."""
    package = cls.__module__.partition(".")[0]
    points = [each for each in announced(ENTRY_POINT_GROUP) if module_of(each).partition(".")[0] == package]
    for point in sorted(points, key=lambda each: (module_of(each) != cls.__module__, each.name)):
        distribution = _distribution(point)
        return f"plugin {point.name!r}" + (f" of {distribution}" if distribution else "")
    return ""


def _order(point: EntryPoint) -> tuple[bool, str, str]:
    return not f"{module_of(point)}.".startswith(OURS), _distribution(point), point.name


def _distribution(point: EntryPoint) -> str:
    return " ".join(package_of(point)).strip()


def _import_names(point: EntryPoint) -> None:
    """Import the names of a package that imports them when they are asked for."""
    loaded = point.load()
    for name in getattr(loaded, "__all__", ()):
        getattr(loaded, name, None)


def _load(point: EntryPoint) -> list[BrokenPlugin]:
    """Import one plugin and return what is wrong with it."""
    pairs, stages = set(_pairs), dict(STAGE_KINDS)

    def note(reason: str, fix: str, *kinds: str) -> BrokenPlugin:
        return BrokenPlugin(point.name, point.value, _distribution(point), reason, fix, kinds)

    error = load(point) or attempt(partial(_import_names, point))
    for cfg_class in set(_pairs) - pairs:
        if (fault := attempt(partial(_kind, cfg_class))) is not None:  # a method of the plugin, which may raise as well
            del _pairs[cfg_class]
            error = error or fault
    if error is not None:
        _forget_unfinished(pairs, stages)
        reason, fix = _why(point, error)
        return [note(f"could not be loaded and is left out: {reason}", fix)]
    return [*_clashes(point, note), *_stage_clashes(stages, note)]


def _forget_unfinished(pairs: set[type], stages: dict[str, type[StageCfg]]) -> None:
    """Forget what a module registered before its import failed."""
    for cfg_class in set(_pairs) - pairs:
        if _pairs[cfg_class].__module__ not in sys.modules:
            del _pairs[cfg_class]
    for kind, stage in list(STAGE_KINDS.items()):
        if stages.get(kind) is not stage and stage.__module__ not in sys.modules:
            STAGE_KINDS.pop(kind)
            STAGE_KINDS.update({kind: stages[kind]} if kind in stages else {})


def _why(point: EntryPoint, error: BaseException) -> tuple[str, str]:
    """Return what went wrong in loading a plugin, and what to do."""
    table = f'[project.entry-points."{ENTRY_POINT_GROUP}"]'
    declared = f"Correct {point.name} = {point.value!r} under {table} in its pyproject.toml, and install it again."
    name, _ = package_of(point)
    removal = f" or remove it: pip uninstall {name}." if name else " or uninstall it."
    if not module_of(point):
        return f"{error}.", declared
    if isinstance(error, ModuleNotFoundError) and error.name:
        if point.module == error.name or point.module.startswith(f"{error.name}."):
            return f"there is no module {error.name}.", declared
        return f"it needs {error.name}, which is not installed.", f"Install {error.name},{removal}"
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, AttributeError) and point.attr and frames and frames[-1].name in ("load", "<lambda>"):
        return f"its module {point.module} has no {point.attr}.", declared
    last = next((frame for frame in reversed(frames) if "importlib" not in frame.filename), None)
    if isinstance(error, RegistrationError):  # raised in a file of ours: what matters is the class that was defined
        last = next((frame for frame in reversed(frames) if frame.name == "<module>"), last)
    where = f" ({last.filename}:{last.lineno})" if last is not None else ""
    return f"{text_of(error)}{where}.", f"Mend or update it,{removal}"


def _clashes(point: EntryPoint, note: Callable[..., BrokenPlugin]) -> list[BrokenPlugin]:
    """Return the kinds of a plugin's sensors that a sensor elsewhere has already."""
    package = point.module.partition(".")[0]
    own = [cfg_class for cfg_class in _pairs if cfg_class.__module__.partition(".")[0] == package]
    owners = {_kind(cfg_class): cfg_class for cfg_class in _pairs if cfg_class not in own}
    found = []
    for cfg_class in own:
        kind = _kind(cfg_class)
        owner = owners.get(kind)
        if owner is None:
            continue
        ours = owner.__module__.startswith(OURS)
        if ours:
            _hidden.add(cfg_class)
        means = f"means {_path(owner)}" if ours else "is ambiguous"
        reason = f"defines {_path(cfg_class)}, whose kind {kind!r} is that of {_path(owner)}: in files it {means}."
        found.append(note(reason, "Rename the config class.", kind))
    return found


def _stage_clashes(before: dict[str, type[StageCfg]], note: Callable[..., BrokenPlugin]) -> list[BrokenPlugin]:
    """Give kinds of stages that a plugin took back to who had them first, and return what was taken."""
    found = []
    for kind, owner in before.items():
        taker = STAGE_KINDS[kind]
        if taker is owner or _path(taker) == _path(owner):
            continue
        STAGE_KINDS[kind] = owner
        reason = f"defines the stage {_path(taker)}, whose kind {kind!r} stays that of {_path(owner)}."
        found.append(note(reason, "Rename the stage class.", kind))
    return found


def _kind(cfg_class: Any) -> str:
    kind: str = cfg_class.kind()
    return kind


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def registered() -> dict[type, type]:
    """Return all pairs of config class and sensor class that are known now."""
    load_installed()
    return dict(_pairs)


def cfg_for_kind(kind: str) -> type[Any]:
    """Return the config class of a kind as written in files, e.g. ``"imu"``.

    Raises:
        UnknownNameError: no sensor of that kind, with the nearest, and with the plugins that could not be loaded.
        DuplicateNameError: two sensors have that kind.
    """
    load_installed()
    kinds: dict[str, dict[str, Any]] = {}
    for cfg_class in _pairs:
        if cfg_class not in _hidden:
            kinds.setdefault(_kind(cfg_class), {})[_path(cfg_class)] = cfg_class  # the newest of a class defined anew
    found = kinds.get(kind, {})
    if not found:
        raise UnknownNameError("sensor kind", kind, kinds, _suspects(kind))
    if len(found) > 1:
        raise DuplicateNameError(f"two sensors have the kind {kind!r}: {', '.join(found)}. Rename one config class.")
    return next(iter(found.values()))  # type: ignore[no-any-return]


def _suspects(kind: str) -> str:
    """Return why a kind may be missing: its own plugin is broken, or one of the broken ones may hold it."""
    own = [plugin for plugin in _broken if kind == plugin.name or kind in plugin.kinds]
    if own:
        text = str(own[0])
        return text[:1].upper() + text[1:]
    if _broken:
        return "It may be in a plugin that is broken: " + "; ".join(str(plugin) for plugin in _broken)
    return ""


FINDERS.append(load_installed)
OWNERS.append(paired_base)
