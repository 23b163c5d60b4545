"""The knobs with a prefix as type checkers see them, in the stub of this module.

At run time `prefixed_knobs` of a config makes its fields; `tests/typing/prefixed_knobs.py` writes the stub from it.
"""

GnssKnobs = ImuKnobs = JointSensorKnobs = MotorCurrentKnobs = object
