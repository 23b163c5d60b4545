"""Barometers."""

from __future__ import annotations

from sensorium.presets.info import described

PRESETS = described({"px4_baro": {"rate_hz": 50.0, "noise": {"pressure": 1.0}}})
