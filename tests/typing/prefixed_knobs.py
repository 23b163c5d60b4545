"""Writes the stub of the knobs with a prefix; run it as a script after a change of `prefixed_knobs` of a config."""

from __future__ import annotations

import sensorium as sn
from sensorium.cfg.knobs import COLUMN_KNOBS
from sensorium.sensors.core import prefixed

CONFIGS = (sn.GnssCfg, sn.ImuCfg, sn.JointSensorCfg, sn.MotorCurrentCfg)
STUB = f"{prefixed.__file__}i"
HEAD = '''"""Written by `tests/typing/prefixed_knobs.py` from `prefixed_knobs` of the configs."""

from sensorium.cfg import Cfg, Knob
'''


def stub() -> str:
    """Return the text of the stub."""
    text = HEAD
    for cfg in CONFIGS:
        names = [f"{prefix}_{knob}" for prefix in cfg.prefixed_knobs for knob in COLUMN_KNOBS]
        text += f"\nclass {cfg.__name__.removesuffix('Cfg')}Knobs(Cfg):\n"
        text += "".join(f"    {name}: Knob = None\n" for name in names)
    return text


if __name__ == "__main__":
    with open(STUB, "w", encoding="utf-8") as file:
        file.write(stub())
