"""Knobs, the amounts of imperfections: a number, a vector, a distribution, or a mapping from field to one of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from sensorium.cfg.base import ABSENT, LARGEST, Cfg, Float, bad, must, parse_float, python_number, without_absent
from sensorium.cfg.help import Parsed
from sensorium.errors import ConfigError, shown
from sensorium.random import Choice, Distribution, Normal, Uniform, distribution_from_dict


def parse_amount(value: Any) -> Any:
    """Return one amount: a float, a (nested) tuple of floats or a distribution. Raises as a validator does."""
    if isinstance(value, Uniform | Normal | Choice):
        return value
    if isinstance(value, Mapping):
        try:
            return distribution_from_dict(dict(value))
        except ConfigError:
            raise
        except (ValueError, TypeError) as error:
            raise bad(str(error)) from None
    value = python_number(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        parts = tuple(parse_amount(part) for part in value)
        if not parts or any(isinstance(part, Uniform | Normal | Choice) for part in parts):
            raise bad("a non-empty vector of numbers", "Give a distribution per column as vectors.")
        return parts
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad("a number, a vector or a distribution such as Uniform(0, 0.02)")
    if not abs(value) <= LARGEST:
        raise bad(f"finite numbers of magnitude at most {LARGEST:.3g}")
    return float(parse_float(value))


def _parse_knob(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping) and not (len(value) == 1 and next(iter(value)) in ("uniform", "normal", "choice")):
        if not value:
            raise bad("a mapping from field to amount, or a number")
        if odd := [field for field in value if not isinstance(field, str)]:
            raise bad("a mapping from field to amount", f"{shown(odd[0])} is not a field name.")
        return {field: parse_amount(amount) for field, amount in value.items()}
    return parse_amount(value)


def dump_amount(value: Any) -> Any:
    """Return an amount, or amounts by field, as plain data."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {field: dump_amount(amount) for field, amount in value.items()}
    if isinstance(value, tuple):
        return [dump_amount(part) for part in value]
    return value


def amount_bounds(value: Any) -> tuple[float, float]:
    """Return the minimum and maximum number that an amount (or a mapping of amounts) can take."""
    if isinstance(value, Uniform | Normal | Choice):
        low, high = value.bounds
        return float(np.min(low)), float(np.max(high))
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple):
        pairs = [amount_bounds(part) for part in value]
        return min(low for low, _ in pairs), max(high for _, high in pairs)
    return float(value), float(value)


def is_within(amount: Any, low: float, high: float) -> bool:
    """Return whether an amount stays in [low, high]; a normal distribution is clipped."""
    if isinstance(amount, Normal):
        return True
    least, most = amount_bounds(amount)
    return low <= least <= most <= high


if TYPE_CHECKING:
    Amount = float | Sequence[float] | Sequence[Sequence[float]] | Distribution
    Knob = Amount | Mapping[str, Amount] | None
else:
    Amount = Annotated[Any, Parsed("float | Sequence[float] | Distribution", parse_amount, dump_amount)]
    Knob = Annotated[Any, Parsed("Knob | None", _parse_knob, dump_amount)]


COLUMN_KNOBS = {
    "noise": "{}",
    "noise_density": "{}/sqrt(Hz)",
    "bias": "{}",
    "random_walk": "{} per sample",
    "random_walk_density": "{}*sqrt(Hz)",
    "resolution": "{}",
}
"""Knobs with an amount per column of a data field, and their units in terms of the field's unit."""


class GilbertElliott(Cfg):
    """Loss in bursts: the good state loses no samples, the bad state all of them (Gilbert 1960).

    The loss rate is p / (p + r), the mean burst length 1 / r samples.
    """

    p: Annotated[Float, must(lambda p: 0.0 <= p <= 1.0, "a probability in [0, 1]")]
    """Probability per sample of entering the bad state, in [0, 1]."""
    r: Annotated[
        Float,
        must(
            lambda r: 0.0 < r <= 1.0, "a probability in (0, 1]", "Give r > 0, since with r = 0 a burst would never end."
        ),
    ]
    """Probability per sample of returning to the good state, in (0, 1]."""

    if TYPE_CHECKING:

        def __init__(self, p: float, r: float) -> None: ...
    else:

        def __init__(self, p: Any = ABSENT, r: Any = ABSENT, **others: Any) -> None:
            super().__init__(**without_absent(p=p, r=r), **others)
