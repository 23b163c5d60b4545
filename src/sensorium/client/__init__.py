"""What a process needs to listen to the sensors of a simulation in another: no torch, no engine.

``from sensorium.client import connect`` works with numpy, pyzmq and msgspec alone.
"""

from __future__ import annotations

from sensorium.errors import MissingDependencyError

try:
    from sensorium.client.client import Client, connect
    from sensorium.client.requests import ServerError
except ModuleNotFoundError as error:
    if error.name not in ("zmq", "msgspec"):
        raise
    package = {"zmq": "pyzmq"}.get(error.name, error.name)
    raise MissingDependencyError(
        f"listening to a simulation needs {package}: pip install 'sensorium[stream]', or pip install {package}."
    ) from error

__all__ = ["Client", "ServerError", "connect"]
