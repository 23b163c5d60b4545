"""The full scale of a sensor, at which its values pile up."""

from __future__ import annotations

from typing import Any

import numpy as np

from sensorium.fitting.rest import AXES, is_repeated
from sensorium.fitting.result import Fit, Parameter
from sensorium.fitting.samples import Samples
from sensorium.readings import Array

LEVELS = 32
"""Minimum number of different values; with fewer, a value that is frequent by chance can be the last one."""
FEWEST, RATIO, NEAR = 8, 4.0, 3
"""Minimum number of samples at full scale, and their minimum ratio to those at each of the next values. The ratio of a
sine in steps is up to 2.4."""


def add_full_scale(fit: Fit, samples: Samples) -> None:
    """Add the full scale of each column in which samples pile up at an end, and the stage that clips to it."""
    for name, values in samples.values.items():
        values = values[~is_repeated(values)]
        found = [_full_scale_of(column) for column in values.T]
        if not any(found):
            continue
        for axis, value in zip(AXES if len(found) > 1 else ("",), found, strict=True):
            if value:
                key = f"{name}.full_scale.{axis}".rstrip(".")
                parameter = Parameter(value, samples.units[name], value, value, "samples pile up there", samples.source)
                fit.parameters[key] = parameter  # type: ignore[index]
        high: Any = [value or max(found) for value in found]  # axes of a device have the same full scale
        stage = {"kind": "saturation", "fields": [name], "high": high if len(high) > 1 else high[0]}
        others = [
            each for each in fit.fields.get("stages", ()) if each["kind"] != "saturation" or name not in each["fields"]
        ]
        fit.fields["stages"] = [*others, stage]  # type: ignore[index]


def _full_scale_of(values: Array) -> float:
    """Return the absolute value at which the values `[row]` pile up; 0 where they do not."""
    levels, counts = np.unique(values, return_counts=True)
    if len(levels) < LEVELS or not np.median(np.abs(np.diff(values))):  # constant most of the time
        return 0.0
    ends = ((levels[0], counts[: NEAR + 1]), (levels[-1], counts[: -NEAR - 2 : -1]))
    return max((abs(float(end)) for end, at in ends if at[0] >= max(FEWEST, RATIO * at[1:].max())), default=0.0)
