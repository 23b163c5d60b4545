"""`python -m sensorium.cli`: the command line without its installed script."""

import sys

from sensorium.cli import main

sys.exit(main())
