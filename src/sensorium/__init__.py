"""Sensors for simulated robots: true and measured readings, for one environment or thousands.

The stub `__init__.pyi` lists the public names. A module is imported when one of its names is first used.
"""

from importlib import import_module
from typing import Any

with open(f"{__file__}i", encoding="utf-8") as _stub:
    _imports = [line.split() for line in _stub if line.startswith("from ")]

_MODULES = {words[-1]: words[1] for words in _imports}
"""Public names, one per import line of the stub, and the module that defines each."""

__all__ = [name for name, module in _MODULES.items() if module != __name__]


def __getattr__(name: str) -> Any:
    value: Any
    if _MODULES.get(name) == __name__:
        value = import_module(f"{__name__}.{name}")
    elif name in _MODULES:
        try:
            value = getattr(import_module(_MODULES[name]), name)
        except ModuleNotFoundError as error:
            missing = __getattr__("MissingDependencyError").of_core(f"sensorium.{name}", error)
            if missing is None:
                raise
            raise missing from None
    elif name == "__version__":
        from importlib import metadata

        try:
            value = metadata.version("sensorium")
        except metadata.PackageNotFoundError:  # run from a source tree that is not installed
            value = "0+unknown"
    else:
        from difflib import get_close_matches

        near = [] if name.startswith("_") else get_close_matches(name, __all__, n=3)
        if name[:1].isupper():  # not a module, which is looked up here before it is imported
            near = __getattr__("compat").places_of(name) or near
        hint = f". Did you mean: {', '.join(near)}?" if near else ""
        raise AttributeError(f"module 'sensorium' has no attribute {name!r}{hint}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
