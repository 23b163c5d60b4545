"""Magnetometers."""

from __future__ import annotations

from sensorium.presets.info import PresetInfo

PRESETS = (
    PresetInfo(
        name="px4_mag",
        kind="magnetometer",
        title="The magnetometer of PX4's simulation: noise and bias walk, in gauss",
        source="PX4's simulation, gazebo_magnetometer_plugin, defaults and the values of its quadrotor models",
        convention="two-sided: PX4 multiplies its density by sqrt(rate), as noise_density is; used unchanged",
        notes=(
            "mag_b is in gauss: give the magnetic field in gauss (1 T = 1e4 gauss).",
            "Checked: noise density, walk, correlation time, rate. Recalled, not checked: that PX4 took them for an "
            "ADIS16448, whose sheet states a tenth of the noise.",
            "PX4 starts the bias at 0; here it starts in its stationary distribution, with 0.11 mgauss deviation.",
            "No hard and soft iron, no range and no resolution: PX4 has none. Other versions of it use 0.01 gauss per "
            "sample at 20 Hz instead, without a walk.",
        ),
        fields={
            "unit": "G",
            "rate_hz": 100.0,
            "noise_density": {"mag_b": 0.4e-3},
            "stages": [{"kind": "gauss_markov", "fields": ["mag_b"], "density": 6.4e-6, "tau": 600.0}],
        },
    ),
)
