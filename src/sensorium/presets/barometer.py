"""Barometers."""

from __future__ import annotations

from sensorium.presets.info import PresetInfo

PRESETS = (
    PresetInfo(
        name="px4_baro",
        kind="barometer",
        title="The barometer of PX4's simulation: 1 Pa of white noise",
        source="PX4's simulation, gazebo_barometer_plugin, and the values of its quadrotor models",
        convention="1 Pa per sample, whatever the rate; at 50 Hz that is a two-sided density of 0.14 Pa/sqrt(Hz)",
        notes=(
            "Checked: noise, rate, and that the models set the plugin's drift to 0. Recalled, not checked: that the "
            "noise is normal with exactly this deviation (the plugin's generator is of its own making).",
            "PX4 computes with 288 K at sea level, here it is the standard's 288.15 K: 0.5 per mille in height.",
            "No lag, no position error, no temperature: PX4 has none.",
        ),
        fields={"rate_hz": 50.0, "noise": {"pressure": 1.0}},
    ),
)
