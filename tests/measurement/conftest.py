"""Lets the tests of this folder import what they share with others (`tests/synthetic.py`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
