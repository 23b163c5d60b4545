"""`python -m sensorium`: the command line without its installed script."""

import sys

from sensorium.cli import main

if __name__ == "__main__":
    sys.exit(main())
