"""Magnetometers."""

from __future__ import annotations

from sensorium.presets.info import described

PRESETS = described(
    {
        "px4_mag": {
            "unit": "G",
            "rate_hz": 100.0,
            "noise_density": {"mag_b": 0.4e-3},
            "stages": [{"kind": "gauss_markov", "fields": ["mag_b"], "density": 6.4e-6, "tau": 600.0}],
        }
    }
)
