"""The sensors, one file each. A name of the package is imported when it is first asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sensorium.sensors.all import *  # noqa: F403 - for type checkers; said once, there


def __getattr__(name: str) -> Any:
    if name != "__all__" and name[:1] in (*"_", *"abcdefghijklmnopqrstuvwxyz"):  # no class: perhaps a module of ours
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("sensorium.sensors.all"), name)
