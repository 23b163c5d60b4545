"""Configs: frozen, keyword-only, validated at construction, and the same in Python, JSON and TOML.

A config holds plain values, and the library never modifies it. All faults of one config are reported at once as a
`ConfigError`. Knobs (the amounts of imperfection) accept a number, a vector or a distribution that is redrawn per env
at reset. For a sensor with fields of several units, they also accept a mapping from field to one of these.
"""

from sensorium.cfg.base import (
    ABSENT,
    LARGEST,
    NONE,
    Cfg,
    Finite,
    Float,
    NonNegative,
    ObjRef,
    ObjType,
    OffsetCfg,
    Positive,
    Share,
    Vec3,
    as_plain,
    bad,
    in_unit,
    is_finite,
    must,
    name_in,
    numbers_in,
    toml_words,
    without_absent,
)
from sensorium.cfg.help import Parsed, meanings
from sensorium.cfg.knobs import COLUMN_KNOBS, Amount, GilbertElliott, Knob, amount_bounds, is_within, parse_amount

__all__ = [
    "ABSENT", "COLUMN_KNOBS", "LARGEST", "NONE", "Amount", "Cfg", "Finite", "Float",
    "GilbertElliott", "Knob", "NonNegative", "ObjRef", "ObjType", "OffsetCfg", "Parsed", "Positive",
    "Share", "Vec3", "amount_bounds", "as_plain", "bad", "in_unit", "is_finite", "is_within",
    "meanings", "must", "name_in", "numbers_in", "parse_amount", "toml_words", "without_absent",
]  # fmt: skip
