"""Knobs with a prefix, declared for type checkers in the stub of this module.

At run time `prefixed_knobs` of a config creates the fields; `tests/typing/prefixed_knobs.py` writes the stub from it.
"""

GnssKnobs = ImuKnobs = JointSensorKnobs = MotorCurrentKnobs = object
