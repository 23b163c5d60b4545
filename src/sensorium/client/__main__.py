"""Command ``python -m sensorium.client ADDRESS [SENSOR ...]``, which needs only numpy, pyzmq and msgspec."""

import sys

from sensorium.cli.plain import main

if __name__ == "__main__":
    sys.exit(main())
