"""Sensors for simulated robots: true and measured readings, for one environment or thousands.

The stub `__init__.pyi` lists the public names. A module is imported when one of its names is first used.
"""

from typing import Any

from sensorium.lazy import public_names

__all__, _load, __dir__ = public_names(__name__, f"{__file__}i")


def __getattr__(name: str) -> Any:
    if name != "__version__":
        return _load(name)
    from importlib import metadata

    try:
        return metadata.version("sensorium")
    except metadata.PackageNotFoundError:  # run from a source tree that is not installed
        return "0+unknown"
