"""Lidars. Lengths are in metres, angles in degrees where the pattern uses them; the code converts other units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sensorium.patterns import RotatingMirrorPatternCfg, SpinningPatternCfg
from sensorium.presets.info import PresetInfo

PER_RETURN = "deviations are per return, whatever the rate: no density, neither one- nor two-sided"


def _normal(std: float) -> dict[str, list[float]]:
    return {"normal": [0.0, std]}


def _vlp16() -> Mapping[str, Any]:
    per_channel = 0.015  # recalled
    return {
        "pattern": SpinningPatternCfg.vlp16().to_dict(),
        "rate_hz": 10.0,
        "min_distance": 0.5,  # recalled
        "max_distance": 100.0,
        "range_noise": math.sqrt(0.03**2 - per_channel**2),  # 3 cm, recalled, with the channels' part
        "channel_bias": _normal(per_channel),
        "resolution": 0.002,  # recalled
        "beam_divergence": [3.0e-3, 1.2e-3],  # recalled
        "intensity_scale": 100.0,  # recalled
        "intensity_max": 255.0,  # recalled
    }


def _os1_64() -> Mapping[str, Any]:
    return {
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
    }


def _mid360() -> Mapping[str, Any]:
    return {
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
    }


PRESETS = (
    PresetInfo(
        name="vlp16",
        kind="lidar",
        title="Velodyne VLP-16: 16 channels, 360 degrees, 100 m, 10 Hz",
        source="Velodyne, VLP-16 user manual 63-9243 (angles, firing times), and its data sheet (range)",
        convention=f"{PER_RETURN}; the sheet's accuracy, +-3 cm, is taken as one deviation",
        notes=(
            "Checked: firing times, angles, 100 m.",
            "Recalled, not checked: +-3 cm and the 1.5 cm of it that belong to channels, least distance 0.5 m, steps "
            "of 2 mm, divergence 3.0 x 1.2 mrad, and intensities (0 to 100 for matt surfaces, up to 255 for "
            "retro-reflectors).",
            "The manufacturer states no signal-to-noise ratio: noise is independent of distance, and returns up to "
            "100 m are all detected. Give reference_snr and detection_threshold for a custom model.",
            "The footprint casts 7 rays per beam: beam_divergence=0 is seven times faster and has no mixed pixels.",
        ),
        fields=_vlp16(),
    ),
    PresetInfo(
        name="os1_64",
        kind="lidar",
        title="Ouster OS1-64 (first generation): 64 channels, 1024 columns, 33.2 degrees, 120 m, 10 Hz",
        source="Ouster, OS1 data sheet, generation 1: repeatability, resolution, divergence, aperture, ranges",
        convention=f"{PER_RETURN}; the sheet's repeatability is one standard deviation",
        notes=(
            "Checked: deviations 1.5, 3, 10 cm at ratios 250, 100, 12; 1.2 cm; 0.13 degrees (width at half power); "
            "10 mm; 120 m at 80 % and 40 m at 10 % reflectance.",
            "Fitted, not checked: a ratio of 12 at 120 m and 80 %, detected with 90 %. By 1/R^2 it is 13.5 at 40 m and "
            "10 %, so that both ranges of the sheet agree.",
            "Recalled, not checked: least distance 0.8 m, that ranges are for 90 % of returns, and the lasers' angles, "
            "see SpinningPatternCfg.os1_64.",
            "Angular error (0.01 degrees), false returns (1e-4) and sunlight are omitted.",
        ),
        fields=_os1_64(),
    ),
    PresetInfo(
        name="mid360",
        kind="lidar",
        title="Livox Mid-360: 360 x 59 degrees, 200,000 points/s, 70 m, 10 Hz, scans that do not repeat",
        source="Livox, Mid-360 data sheet: field of view, deviation at 10 m, ranges, blind zone",
        convention=f"{PER_RETURN}; the sheet's 2 cm is one standard deviation",
        notes=(
            "Checked: field of view, 2 cm at 10 m, 40 m at 10 % and 70 m at 80 % reflectance, blind below 0.1 m.",
            "Fitted, not checked: a ratio of 12 at 40 m and 10 %, detected with 90 %. By 1/R^2 alone 80 % would reach "
            "113 m; the sheet's 70 m is the limit here.",
            "Recalled, not checked: 200,000 points/s, and intensities (0 to 150 for matt surfaces, up to 255 for "
            "retro-reflectors).",
            "The curve is an approximation, see RotatingMirrorPatternCfg.mid360. Angular error (0.15 degrees), the "
            "3 cm at 0.2 m and the footprint are omitted.",
        ),
        fields=_mid360(),
    ),
)
