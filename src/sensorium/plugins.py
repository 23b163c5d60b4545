"""Installed packages that announce modules of theirs for us to import: loaded once, broken ones named."""

from __future__ import annotations

import importlib
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from sensorium.errors import SensoriumWarning


def announced(group: str) -> list[EntryPoint]:
    """Return what installed packages announce in an entry-point group, sorted by name."""
    return sorted(entry_points(group=group), key=lambda point: (point.name, point.value))


def module_of(point: EntryPoint) -> str:
    """Return the module that an entry point names; empty where its value is malformed."""
    try:
        return point.module
    except (AttributeError, ValueError):  # importlib.metadata parses the value when it is asked
        return ""


def package_of(point: EntryPoint) -> tuple[str, str]:
    """Return name and version of the package that an entry point belongs to; empty where its metadata do not say."""
    try:
        name, version = (point.dist.name, point.dist.version) if point.dist is not None else ("", "")
    except Exception:  # a package without a METADATA file; some versions of Python return None instead
        return "", ""
    return name or "", version or ""


def attempt(work: Callable[[], object]) -> BaseException | None:
    """Run code of a plugin and return what it raised, `SystemExit` included. Ctrl-C ends the program as ever."""
    try:
        work()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error
    return None


def load(point: EntryPoint) -> BaseException | None:
    """Import what an entry point names and return what went wrong."""
    error = attempt(point.load)
    if isinstance(error, AttributeError) and not module_of(point):
        return ValueError(f"{point.value!r} names no module; expected package.module or package.module:name")
    return error


def text_of(error: BaseException) -> str:
    """Return type and text of an exception, also of one that fails to describe itself."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


class Plugins:
    """The packages that announce modules of one kind. A broken one is warned of by name and takes nothing down.

    Args:
        group: the entry-point group in which they announce them.
        what: what the modules define, for messages, e.g. ``"serializer"``.
        ours: modules of our own, which are imported first.
    """

    def __init__(self, group: str, what: str, ours: Sequence[str]) -> None:
        self.group, self.what, self.ours = group, what, tuple(ours)
        self.is_loaded = False
        """Whether they were loaded, or are just being."""
        self.broken: dict[str, str] = {}
        """What is wrong with those that cannot be used, by the name of the entry point."""
        self._reasons: dict[str, str] = {}
        self._lock = threading.RLock()

    def load(self, *tables: dict[Any, type], stacklevel: int = 1) -> None:
        """Import all of them, once; other threads that ask meanwhile wait.

        Args:
            tables: where the modules' classes are noted. What a module had noted before it failed is taken out again.
            stacklevel: whom a warning blames: 1 the caller.
        """
        with self._lock:
            if self.is_loaded:
                return
            self.is_loaded = True
            for module in self.ours:
                importlib.import_module(module)
            for point in announced(self.group):
                self._load(point, tables)
            for text in self.broken.values():  # at the end: where warnings are errors, the first ends this
                warnings.warn(text, SensoriumWarning, stacklevel=stacklevel + 1)

    def _load(self, point: EntryPoint, tables: Sequence[dict[Any, type]]) -> None:
        before = [dict(table) for table in tables]
        error = load(point)
        if error is None:
            return
        for table, known in zip(tables, before, strict=True):
            for key, cls in list(table.items()):
                if known.get(key) is not cls and cls.__module__ not in sys.modules:  # its import was given up
                    del table[key]
        name, version = package_of(point)
        package = f" of {name} {version}" if name else ""
        fix = f"Mend or update it, or remove it: pip uninstall {name}." if name else "Mend it."
        self._reasons[point.name] = why = f"{text_of(error)}{_place(error)}."
        self.broken[point.name] = (
            f"the {self.what} plugin {point.name!r}{package} ({point.value}) could not be loaded and is left out: "
            f"{why} {fix}"
        )

    def suspects(self) -> str:
        """Return in which broken packages what nobody knows may be, in words; empty where none is broken."""
        texts = (
            f"It may be in the plugin {name!r}, which could not be loaded: {why}" for name, why in self._reasons.items()
        )
        return " ".join(texts)


def _place(error: BaseException) -> str:
    """Return where an exception was raised, in brackets; empty where that was the import itself."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or frames[-1].filename.startswith("<frozen"):
        return ""
    return f" ({frames[-1].filename}:{frames[-1].lineno})"
