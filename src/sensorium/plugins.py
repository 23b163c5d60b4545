"""Lookup of classes and functions by name: built-in ones, those of installed packages, and those of the program.

A `Registry` is filled where a class is defined. Installed packages announce further modules in an entry-point group
(`Plugins`). These are imported once, when a name is unknown or all classes are requested. A broken package is reported
by name and never stops the program.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import traceback
import warnings
from collections import UserDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from sensorium.errors import RegistrationError, SensoriumWarning, UnknownNameError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Callable[..., Any])
OURS = "sensorium."
"""Prefix of the names of built-in modules; a plugin cannot replace a built-in name."""


def is_ours(cls: Callable[..., Any]) -> bool:
    """Return whether a class or function is part of sensorium."""
    return cls.__module__.startswith(OURS)


def path_of(cls: Callable[..., Any]) -> str:
    """Return module and name of a class or function."""
    return f"{cls.__module__}.{cls.__qualname__}"


def attempt(work: Callable[[], object]) -> BaseException | None:
    """Run code of a plugin and return the exception it raised, `SystemExit` included. Ctrl-C still ends the program."""
    try:
        work()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error
    return None


def text_of(error: BaseException) -> str:
    """Return type and text of an exception, even of one whose `__str__` fails."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


# Installed packages ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """Description of an installed plugin that cannot be used, or only in part.

    Args:
        what: kind of class that the plugin defines, e.g. ``"sensor"``.
        name: name of its entry point.
        value: value of the entry point, e.g. ``"my_package.sensor"``.
        distribution: name and version of the installed package; empty if unknown.
        reason: the fault, one sentence.
        fix: required action, one sentence.
        kinds: names of the affected classes, as far as known.
    """

    what: str
    name: str
    value: str
    distribution: str
    reason: str
    fix: str
    kinds: tuple[str, ...] = ()

    def __str__(self) -> str:
        package = f" of {self.distribution}" if self.distribution else ""
        return f"the {self.what} plugin {self.name!r}{package} ({self.value}) {self.reason} {self.fix}"


class Plugins:
    """Packages that announce modules of one kind. A broken one causes a warning with its name.

    Args:
        group: the entry-point group in which packages announce modules.
        what: kind of class that the modules define, for messages, e.g. ``"serializer"``.
        ours: built-in modules, imported first.
    """

    def __init__(self, group: str, what: str, ours: Sequence[str] = ()) -> None:
        self.group, self.what, self.ours = group, what, tuple(ours)
        self.tables: list[Registry[Any, Any]] = []
        """Registries of the modules' classes. Entries of a module that failed to import are removed again."""
        self.is_loaded = False
        """Whether the modules were loaded or are being loaded."""
        self.is_loading = False
        """Whether a module is being imported now."""
        self.broken: list[BrokenPlugin] = []
        self._lock = threading.RLock()

    def load(self, *, warn: bool = True, stacklevel: int = 1) -> None:
        """Import all modules once; other threads that call this meanwhile wait.

        Args:
            warn: also warn of each broken plugin, with its name and the fix.
            stacklevel: stack level of the warnings; 1 is the caller.
        """
        with self._lock:
            if self.is_loaded:
                return
            self.is_loaded = True
            for module in self.ours:
                importlib.import_module(module)
            self._points = tuple(entry_points(group=self.group))
            for point in sorted(self._points, key=_order):
                self.broken += self._load(point)
            for plugin in self.broken if warn else ():  # last: the first raises where warnings are errors
                warnings.warn(str(plugin), SensoriumWarning, stacklevel=stacklevel + 1)

    def _load(self, point: EntryPoint) -> list[BrokenPlugin]:
        """Import one plugin and return its fault."""
        tables = [(table, dict(table.data)) for table in self.tables]
        found: list[tuple[str, str, str]] = []

        def work() -> None:
            _import(point)
            package = module_of(point).partition(".")[0]
            entries = [(key not in before, cls) for table, before in tables for key, cls in table.items()]
            if not any(is_new or cls.__module__.partition(".")[0] == package for is_new, cls in entries):
                raise RegistrationError(f"it defines nothing that belongs to the group {self.group}")
            for table, before in tables:
                found.extend(table.check(before, package))

        self.is_loading = True
        error = attempt(work)
        self.is_loading = False
        if error is not None:
            for table, before in tables:
                table.forget_unfinished(before)
            reason, fix = self._why(point, error)
            found = [(f"could not be loaded and is ignored: {reason}", fix, "")]
        place = self.what, point.name, point.value, _distribution(point)
        return [BrokenPlugin(*place, reason, fix, (kind,) if kind else ()) for reason, fix, kind in found]

    def _why(self, point: EntryPoint, error: BaseException) -> tuple[str, str]:
        """Return why a plugin failed to load, and what to do."""
        table = f'[project.entry-points."{self.group}"]'
        declared = f"Correct {point.name} = {point.value!r} under {table} in its pyproject.toml, and install it again."
        name, _ = _package_of(point)
        removal = f" or remove it: pip uninstall {name}." if name else " or uninstall it."
        module = module_of(point)
        if isinstance(error, ValueError) and not module:
            return f"{error}.", declared
        if isinstance(error, ModuleNotFoundError) and error.name and module:
            if module == error.name or module.startswith(f"{error.name}."):
                return f"there is no module {error.name}.", declared
            return f"it needs {error.name}, which is not installed.", f"Install {error.name},{removal}"
        frames = traceback.extract_tb(error.__traceback__)
        if isinstance(error, AttributeError) and module and point.attr and frames[-1].name in ("load", "<lambda>"):
            return f"its module {module} has no {point.attr}.", declared
        last = next((frame for frame in reversed(frames) if _is_of_plugin(frame.filename)), None)
        if isinstance(error, RegistrationError):  # raised in sensorium; the fault is in the class definition
            last = next((frame for frame in reversed(frames) if frame.name == "<module>"), last)
        where = f" ({last.filename}:{last.lineno})" if last is not None else ""
        return f"{text_of(error)}{where}.", f"Mend or update it,{removal}"

    def suspects(self, name: str = "") -> str:
        """Return why a name may be missing: the plugin of that name is broken, or any broken plugin may define it."""
        own = next((str(each) for each in self.broken if name and name in (each.name, *each.kinds)), "")
        if own:
            return own[:1].upper() + own[1:]
        texts = "; ".join(map(str, self.broken))
        return texts and f"It may be in a plugin that is broken: {texts}"

    @functools.cached_property
    def _points(self) -> tuple[EntryPoint, ...]:
        """Entry points of the group; reading them takes milliseconds, and a scene asks for each sensor of a program."""
        return tuple(entry_points(group=self.group))

    def of(self, cls: type) -> str:
        """Return the installed plugin of a class, e.g. ``"plugin 'wind' of wind-sensor 0.1"``, or an empty string."""
        package = cls.__module__.partition(".")[0]
        points = [each for each in self._points if module_of(each).partition(".")[0] == package]
        for point in sorted(points, key=lambda each: (module_of(each) != cls.__module__, each.name)):
            distribution = _distribution(point)
            return f"plugin {point.name!r}" + (f" of {distribution}" if distribution else "")
        return ""


def module_of(point: EntryPoint) -> str:
    """Return the module that an entry point names; empty if its value is malformed."""
    try:
        return point.module
    except (AttributeError, ValueError):  # importlib.metadata parses the value on access
        return ""


def _package_of(point: EntryPoint) -> tuple[str, str]:
    """Return name and version of the package of an entry point; empty if its metadata lack them."""
    try:
        name, version = (point.dist.name, point.dist.version) if point.dist is not None else ("", "")
    except Exception:  # a package without a METADATA file; some versions of Python return None instead
        return "", ""
    return name or "", version or ""


def _distribution(point: EntryPoint) -> str:
    return " ".join(_package_of(point)).strip()


def _order(point: EntryPoint) -> tuple[bool, str, str, str]:
    return not f"{module_of(point)}.".startswith(OURS), _distribution(point), point.name, point.value


def _is_of_plugin(filename: str) -> bool:
    return "importlib" not in filename and filename != __file__


def _import(point: EntryPoint) -> None:
    """Import the module that an entry point names, and the names that its package imports lazily."""
    try:
        loaded = point.load()
    except AttributeError:
        if module_of(point):
            raise
        raise ValueError(f"{point.value!r} names no module; expected package.module or package.module:name") from None
    for name in getattr(loaded, "__all__", ()):
        getattr(loaded, name, None)


# Classes by name ------------------------------------------------------------------------------------------------------


class Registry(UserDict[K, V]):
    """Table of classes, or of functions, by name.

    Args:
        what: meaning of a name, for messages, e.g. ``"client sensor"``.
        plugins: the packages that define further classes.
        clash: message for a class that takes the name of another, with ``{key}``, ``{cls}`` and ``{other}``.
        keeps_ours: protect only built-in names from redefinition by the program; by default all names are protected. A
            plugin can never replace a name.
    """

    def __init__(self, what: str, plugins: Plugins, clash: str, *, keeps_ours: bool = False) -> None:
        super().__init__()
        self.what, self.plugins, self.clash, self.keeps_ours = what, plugins, clash, keeps_ours
        plugins.tables.append(self)

    def add(self, key: K, cls: V) -> None:
        """Register a class. A class that is redefined, as in a notebook, replaces the old one.

        Raises:
            RegistrationError: another class has that name.
        """
        other = self.get(key)
        if other is not None and path_of(other) != path_of(cls):
            takes = not is_ours(cls) and (is_ours(other) or self.plugins.is_loading)
            if takes or not self.keeps_ours:
                raise RegistrationError(self.clash.format(key=key, cls=path_of(cls), other=path_of(other)))
        self[key] = cls

    def registered(self, stacklevel: int = 2) -> dict[K, V]:
        """Return all known classes, those of installed packages included."""
        self.plugins.load(stacklevel=stacklevel + 1)
        return dict(self.data)

    def lookup(self, key: K) -> V | None:
        """Return the class of a name, or None; installed packages are loaded if the name is unknown."""
        if key not in self:
            self.plugins.load(stacklevel=3)
        return self.get(key)

    def find(self, key: K, fix: str = "") -> V:
        """Return the class of a name.

        Args:
            key: the name.
            fix: required action if the name is unknown.

        Raises:
            UnknownNameError: unknown name; the message lists the nearest names and the plugins that failed to load.
        """
        found = self.lookup(key)
        if found is None:
            known: Iterable[Any] = self
            raise UnknownNameError(self.what, str(key), known, f"{fix} {self.plugins.suspects(str(key))}".strip())
        return found

    def check(self, before: dict[K, V], package: str) -> list[tuple[str, str, str]]:
        """Return the problems of the classes that a plugin defined: reason, what to do and affected name of each.

        Args:
            before: the entries before the plugin was loaded.
            package: name of the plugin's package.
        """
        return []

    def forget_unfinished(self, before: dict[K, V]) -> None:
        """Remove the entries of a module whose import failed."""
        for key, cls in list(self.items()):
            if before.get(key) is not cls and cls.__module__ not in sys.modules:
                del self[key]
                self.update({key: before[key]} if key in before else {})
