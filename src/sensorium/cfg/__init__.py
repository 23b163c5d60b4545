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
    values_differ,
    without_absent,
)
from sensorium.cfg.help import Parsed, meanings
from sensorium.cfg.knobs import COLUMN_KNOBS, Amount, GilbertElliott, Knob, amount_bounds, is_within, parse_amount
from sensorium.cfg.sensor import (
    SELECTORS,
    Evaluate,
    MountedSensorCfg,
    Selector,
    Selectors,
    SensorCfg,
    SimpleSensorCfg,
    VisualizerCfg,
)
from sensorium.cfg.stage import PLACES, SENSOR_PLUGINS, STAGE_KINDS, Place, StageCfg, find_kind

__all__ = [
    "ABSENT", "COLUMN_KNOBS", "LARGEST", "NONE", "PLACES", "SELECTORS", "SENSOR_PLUGINS", "STAGE_KINDS", "Amount",
    "Cfg", "Evaluate", "Finite", "Float", "GilbertElliott", "Knob", "MountedSensorCfg",
    "NonNegative", "ObjRef", "ObjType", "OffsetCfg", "Parsed", "Place", "Positive", "Selector", "Selectors",
    "SensorCfg", "Share", "SimpleSensorCfg", "StageCfg", "Vec3", "VisualizerCfg", "amount_bounds",
    "as_plain", "bad", "find_kind", "in_unit", "is_finite", "is_within", "meanings", "must", "name_in",
    "numbers_in", "parse_amount", "toml_words", "values_differ", "without_absent",
]  # fmt: skip
