"""Server: the sensors of a scene, for listeners in this and in other processes."""

from __future__ import annotations

from sensorium.errors import MissingDependencyError

try:
    import msgspec as _msgspec
    import zmq as _zmq
except ModuleNotFoundError as error:
    package = {"zmq": "pyzmq"}.get(error.name or "", error.name)
    raise MissingDependencyError(
        f"serving a simulation needs {package}: pip install pyzmq msgspec, or the extra: sensorium[stream]."
    ) from error

del _msgspec, _zmq
