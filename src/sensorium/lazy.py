"""Public names of a package, each loaded when it is first used, as the package's stub lists them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any


def public_names(package: str, stub: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package, from its stub.

    Args:
        package: full name of the package or module.
        stub: path of its stub, with one import per line: ``from module import name as name``. The public parts of
            `sensorium` are imported from it and are not in `__all__`.
    """
    with open(stub, encoding="utf-8") as file:
        imports = [line.split() for line in file if line.startswith("from ")]
    modules = {words[-1]: words[1] for words in imports}
    names = [name for name, module in modules.items() if module != "sensorium"]

    def load(name: str) -> Any:
        if name not in modules:
            if package == "sensorium" and (places := _places_of(name)):
                warnings.warn(f"sensorium.{name} has moved: use {places[0]}.{name}.", DeprecationWarning, stacklevel=3)
                return getattr(sys.modules[places[0]], name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}{_hint(name, names)}")
        try:
            is_part = name not in names
            value = import_module(f"sensorium.{name}") if is_part else getattr(import_module(modules[name]), name)
        except ModuleNotFoundError as error:
            from sensorium.errors import MissingDependencyError

            missing = MissingDependencyError.of_core(f"{package}.{name}", error)
            if missing is None:
                raise
            raise missing from None
        setattr(sys.modules[package], name, value)
        return value

    return names, load, lambda: sorted(modules)


def public_part(name: str) -> Any:
    """Return a public part of sensorium for the text of an error, in a module that must not import it."""
    return getattr(sys.modules["sensorium"], name)


def _places_of(name: str) -> list[str]:
    """Return the package, and those of its parts, in which a name is public."""
    from importlib.util import find_spec

    if name.startswith("_") or find_spec(f"sensorium.{name}"):  # a module is looked up here before it is imported
        return []
    root = sys.modules["sensorium"]
    places = ["sensorium"] if name in root.__all__ else []
    for part in dir(root):
        if part not in root.__all__:
            try:
                module = getattr(root, part)
            except ImportError:  # the part needs a package that is not installed
                continue
            places += [module.__name__] if name in getattr(module, "__all__", ()) else []
    return places


def _hint(name: str, names: list[str]) -> str:
    """Return where else a name is public, otherwise the nearest names of the package."""
    from difflib import get_close_matches
    from importlib.util import find_spec

    if name.startswith("_") or find_spec(f"sensorium.{name}"):
        return ""
    if places := _places_of(name):
        return f". Use {places[0]}.{name}"
    root = sys.modules["sensorium"]
    near = (name[:1].isupper() and root.compat.places_of(name)) or get_close_matches(name, names, n=3)
    return f". Did you mean: {', '.join(near)}?" if near else ""
