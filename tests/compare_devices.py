"""Compare what all sensors show on a GPU with what they show on the CPU: `python -m tests.compare_devices`.

The states are those of `dump_readings.py`: every kind that a `TensorEngine` supports, with imperfections, stages,
resets and saved states. Functions such as the sine differ in their last bits between devices, so a value agrees within
1e-4 of itself or of 1. A ray at an edge may hit another face: 0.1 % of a kind's values may disagree. Random words are
compared bit for bit in `test_random.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE, SHARE = 1e-4, 1e-3


def compared(ours: dict[str, Any], reference: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return, by kind, the number of compared values and the shares that are equal in all bits and that agree."""
    counts: dict[str, np.ndarray] = {}
    for label, sensor in reference["sensors"].items():
        for key, shots in sensor["shots"].items():
            for step, expected in shots.items():
                found = ours["sensors"][label]["shots"][key][step]
                same = (found == expected) | ((found != found) & (expected != expected))
                with np.errstate(invalid="ignore"):  # infinities
                    near = np.abs(found - expected.astype(float)) <= TOLERANCE * np.maximum(1.0, np.abs(expected))
                near &= np.isfinite(expected)
                count = np.array([same.size, same.sum(), (same | near).sum()], float)
                counts[sensor["kind"]] = counts.get(sensor["kind"], 0.0) + count
    return {
        kind: {"values": total, "equal": equal / total, "agree": agree / total}
        for kind, (total, equal, agree) in sorted(counts.items())
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: 0 all kinds agree, 1 one does not."""
    parser = argparse.ArgumentParser("python -m tests.compare_devices", description=__doc__)
    parser.add_argument("--device", default="cuda:0", help="the device to compare with the CPU (default: cuda:0)")
    parser.add_argument("--kinds", default="", help="kinds, separated by commas (default: all)")
    parser.add_argument("--steps", type=int, default=16, help="steps with readings (default: 16)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the shares to this file")
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(Path(__file__).parent))
    import dump_readings

    cfgs, _ = dump_readings.configs(dump_readings.World("mujoco").engine, tuple(filter(None, options.kinds.split(","))))
    reference, ours = (dump_readings.run("tensor", cfgs, options.steps, each) for each in ("cpu", options.device))
    rows = compared(ours, reference)
    for kind, row in rows.items():
        print(f"{kind}: {row['values']:.0f} values, {row['equal']:.3%} equal in all bits, {row['agree']:.3%} agree")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    wrong = [kind for kind, row in rows.items() if row["agree"] < 1.0 - SHARE]
    if wrong or not rows:
        print(f"These kinds disagree: {', '.join(wrong)}." if rows else "No kind was compared.")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    raise SystemExit(main())
