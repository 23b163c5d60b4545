"""Ranges of the numbers of presets, and the warning of a noise that no device has."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sensorium.errors import SensoriumWarning, listed
from sensorium.presets import presets

FACTOR = 10.0
"""Factor to the presets from which on a noise is reported."""
WALKS = {"random_walk": "random_walk_density", "noise": "noise_density"}
"""Knob per sample -> knob per sqrt(Hz)."""
UNITS = ("unit", "magnetic_unit")
"""Fields that choose the unit of a config's data."""


class Extreme(NamedTuple):
    """One end of a range.

    Attributes:
        value: the number, SI (or in the unit that the config chooses).
        preset: name of the preset that has it.
    """

    value: float
    preset: str


def preset_ranges(kind: str, **units: str) -> dict[str, tuple[Extreme, Extreme]]:
    """Return the smallest and largest value of each parameter over all presets of a kind.

    Noise and random walk per sample are converted to densities with the preset's rate.

    Args:
        kind: kind of the sensor config, e.g. ``"imu"``.
        units: `unit` or `magnetic_unit`; presets that have another one are left out.

    Returns:
        Path in the config, e.g. ``"noise_density.ang_vel_b"`` or ``"range_noise"`` -> smallest and largest. A
        distribution counts by its deviation, or by its limits.
    """
    found: dict[str, list[Extreme]] = {}
    for info in presets().of_kind(kind):
        if all(info.fields.get(name, unit) == unit for name, unit in units.items()):
            for path, value in _numbers(info.fields, info.fields.get("rate_hz")):
                found.setdefault(path, []).append(Extreme(value, info.name))
    return {path: (min(each), max(each)) for path, each in found.items()}


def warn_of_unusual_noise(cfg: Any, dt: float) -> None:
    """Warn if a noise of a sensor config is more than ten times, or less than a tenth of, that of every preset.

    Args:
        cfg: the config; only noise, random walk and deviations that it gives are compared.
        dt: time step of the engine, s; the sampling period of configs without a rate.

    Warns:
        SensoriumWarning: with config, field, value and the nearest preset.
    """
    prefixes = cfg.knob_prefixes() if hasattr(cfg, "knob_prefixes") else {}
    given: dict[str, Any] = {}
    for name, value in cfg.to_dict().items():
        prefix, _, knob = name.partition("_")
        if prefix in prefixes and is_noise(knob):
            given.setdefault(knob, {})[prefixes[prefix]] = value
        elif is_noise(name):
            named = isinstance(value, Mapping) and not value.keys() & {"uniform", "normal", "choice"}
            given[name] = {prefixes.get(key, key): each for key, each in value.items()} if named else value
    rate = cfg.rate_hz or 1.0 / (cfg.update_period or dt)
    units = {name: getattr(cfg, name) for name in UNITS if getattr(cfg, name, None)}
    ranges = preset_ranges(cfg.kind(), **units)
    for path, value in _numbers(given, rate):
        match = [path] if path in ranges else [other for other in ranges if other.startswith(f"{path}.")]
        if len(match) != 1 or value == 0.0:
            continue
        low, high = ranges[match[0]]  # one device alone does not show what is usual
        if low.preset != high.preset and low.value > 0.0 and not low.value / FACTOR <= value <= high.value * FACTOR:
            nearest, more = (high, "more than ten times") if value > high.value else (low, "less than a tenth of")
            warnings.warn(
                f"{cfg.title}: {match[0]} is {value:.3g}, {more} that of every preset of kind {cfg.kind()!r}. The "
                f"nearest is {nearest.preset!r} with {nearest.value:.3g}. Check the unit of {listed(sorted(given))}.",
                SensoriumWarning,
                stacklevel=4,
            )


def is_noise(name: str) -> bool:
    """Return whether a config field is the deviation or density of a noise or of a random walk."""
    return name in {*WALKS, *WALKS.values(), "range_noise", "horizontal_sd", "vertical_sd"}


def _numbers(fields: Any, rate: float | None, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield path and number of all numbers, with those per sample as densities."""
    if isinstance(fields, Mapping):
        if isinstance(fields.get("normal"), list | tuple):  # a distribution; `normal` is also a field of contacts
            yield from _numbers(fields["normal"][1], rate, path)
            return
        for key, value in fields.items():
            if key in ("uniform", "choice"):
                yield from _numbers(value, rate, path)
            elif path == "" and key in WALKS and rate:
                scale = math.sqrt(rate) ** (1.0 if key == "random_walk" else -1.0)
                yield from ((name, number * scale) for name, number in _numbers(value, None, WALKS[key]))
            elif key == "stages":
                for stage in value:
                    where = f"stages.{stage['kind']}.{stage['fields'][0]}"
                    rest = {name: each for name, each in stage.items() if name not in ("kind", "fields")}
                    yield from _numbers(rest, None, where)
            else:
                yield from _numbers(value, None if path else rate, f"{path}.{key}" if path else key)
    elif isinstance(fields, list | tuple):
        for value in fields:
            yield from _numbers(value, rate, path)
    elif isinstance(fields, int | float) and not isinstance(fields, bool):
        yield path, float(fields)
