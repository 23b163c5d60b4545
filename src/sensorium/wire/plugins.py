"""Installed packages that announce modules of theirs for us to import: loaded once, broken ones named."""

from __future__ import annotations

import importlib
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from sensorium.errors import SensoriumWarning


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
            for point in sorted(entry_points(group=self.group), key=lambda each: (each.name, each.value)):
                self._load(point, tables)
            for text in self.broken.values():  # at the end: where warnings are errors, the first ends this
                warnings.warn(text, SensoriumWarning, stacklevel=stacklevel + 1)

    def _load(self, point: EntryPoint, tables: Sequence[dict[Any, type]]) -> None:
        before = [dict(table) for table in tables]
        try:
            point.load()
        except (Exception, SystemExit) as error:
            for table, known in zip(tables, before, strict=True):
                for key, cls in list(table.items()):
                    if known.get(key) is not cls and cls.__module__ not in sys.modules:  # its import was given up
                        del table[key]
            package = f" of {point.dist.name} {point.dist.version}" if point.dist is not None else ""
            fix = f"Mend or update it, or remove it: pip uninstall {point.dist.name}." if point.dist else "Mend it."
            self._reasons[point.name] = why = f"{type(error).__name__}: {error}{_place(error)}."
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
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "" if last.filename.startswith("<frozen") else f" ({last.filename}:{last.lineno})"
