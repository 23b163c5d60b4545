"""Client package for listening to the sensors of a simulation in another process: it needs neither torch nor an engine.

``from sensorium.client import connect`` needs only numpy, pyzmq and msgspec. They are imported on the first use of a
public name of this package. The user can therefore interrupt ``python -m sensorium.client`` while they load.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from sensorium.lazy import public_names

for _module, _package in (("zmq", "pyzmq"), ("msgspec", "msgspec")):
    if find_spec(_module) is None:
        from sensorium.errors import MissingDependencyError

        _missing = MissingDependencyError(
            f"listening to a simulation needs {_package}: pip install pyzmq msgspec, or the extra: sensorium[stream]."
        )
        if sys.argv[:1] == ["-m"] and __name__ in sys.orig_argv:  # `python -m sensorium.client` shows no traceback
            print(f"error: {_missing}", file=sys.stderr)
            raise SystemExit(2)
        raise _missing


__all__, __getattr__, __dir__ = public_names(__name__, f"{__file__}i")
