"""Configured imperfections of a recorded sensor, read from its description."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from sensorium.readings import Array


def columns_of(spec: Mapping[str, Any]) -> int:
    """Return the number of elements of a field per environment."""
    return prod(spec["shape"])


def spread(spec: Mapping[str, Any], amount: Any) -> Array:
    """Return an amount as one number per element of a field, `[column]`; of a distribution the mean."""
    if isinstance(amount, Mapping):
        (law, numbers), *_ = amount.items()
        amount = numbers[0] if law == "normal" else np.mean(np.asarray(numbers, np.float64), axis=0)
    return np.broadcast_to(np.asarray(amount, np.float64), tuple(spec["shape"])).reshape(-1)


def is_distribution(amount: Any) -> bool:
    """Return whether an amount of a description is a distribution."""
    return isinstance(amount, Mapping) and len(amount) == 1 and next(iter(amount)) in ("uniform", "normal", "choice")


def amount_of(info: Mapping[str, Any], spec: Mapping[str, Any], knob: str) -> Array | None:
    """Return the configured amount of a knob for a field, one number per element `[column]`; None if it has none.

    Args:
        info: description of the sensor.
        spec: description of the field.
        knob: ``noise``, ``noise_density``, ``bias``, ``random_walk``, ``random_walk_density`` or ``resolution``.
    """
    cfg, name = info.get("cfg", {}), spec["name"]
    prefixes = {prefix: field for prefix, field in info.get("prefixes", {}).items() if field == name}
    amount = cfg.get(knob)
    if isinstance(amount, Mapping) and not is_distribution(amount):
        amount = next((each for key, each in amount.items() if key == name or key in prefixes), None)
    elif spec.get("kind") not in ("vector", "rotation"):
        amount = None
    for prefix in prefixes:
        amount = cfg.get(f"{prefix}_{knob}", amount)
    if amount is None or spec.get("kind") == "rotation":  # its amounts are angles, not elements
        return None
    return spread(spec, amount)


def stages_of(info: Mapping[str, Any], spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the configured stages that act on a field."""
    stages = info.get("cfg", {}).get("stages", ())
    return [each for each in stages if spec["name"] in (each.get("fields") or (spec["name"],))]
