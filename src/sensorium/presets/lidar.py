"""Lidars. Lengths are in metres, angles in degrees where the pattern uses them; the code converts other units."""

from __future__ import annotations

import math

from sensorium.patterns import RotatingMirrorPatternCfg, SpinningPatternCfg
from sensorium.presets.info import described, normal

PER_CHANNEL = 0.015
"""The channels' part of the VLP-16's deviation, m; recalled."""


PRESETS = described(
    {
        "vlp16": {
            "pattern": SpinningPatternCfg.vlp16().to_dict(),
            "rate_hz": 10.0,
            "min_distance": 0.5,  # recalled
            "max_distance": 100.0,
            "range_noise": math.sqrt(0.03**2 - PER_CHANNEL**2),  # 3 cm, recalled, with the channels' part
            "channel_bias": normal(PER_CHANNEL),
            "resolution": 0.002,  # recalled
            "beam_divergence": [3.0e-3, 1.2e-3],  # recalled
            "intensity_scale": 100.0,  # recalled
            "intensity_max": 255.0,  # recalled
        },
        "os1_64": {
            "pattern": SpinningPatternCfg.os1_64().to_dict(),
            "rate_hz": 10.0,
            "min_distance": 0.8,  # recalled
            "max_distance": 150.0,
            "reference_snr": 12.0,
            "reference_reflectance": 0.8,
            "reference_range": 120.0,
            "detection_threshold": 10.0 * math.log10(12.0) - 1.2816,  # 90 % at the reference, with a softness of 1 dB
            "range_noise": [0.015, 0.03, 0.10],
            "range_noise_snr": [250.0, 100.0, 12.0],
            "resolution": 0.012,
            "beam_divergence": math.radians(0.13),
            "beam_diameter": 0.010,
        },
        "mid360": {
            "pattern": RotatingMirrorPatternCfg.mid360().to_dict(),
            "rate_hz": 10.0,
            "min_distance": 0.1,
            "max_distance": 70.0,
            "reference_snr": 12.0,
            "reference_reflectance": 0.1,
            "reference_range": 40.0,
            "detection_threshold": 10.0 * math.log10(12.0) - 1.2816,
            "range_noise": 0.02,
            "intensity_scale": 150.0,  # recalled
            "intensity_max": 255.0,  # recalled
        },
    }
)
