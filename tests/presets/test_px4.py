"""Presets of PX4's simulated magnetometer and barometer: they measure as its plugins do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import sensorium as sn
from sensorium.presets import presets

FIELD = (0.21, 0.0, -0.42)


def test_preset_names_belong_to_their_kind() -> None:
    """Unchecked values are stated."""
    for name, kind in (("px4_mag", "magnetometer"), ("px4_baro", "barometer")):
        assert presets()[name].kind == kind and any("not checked" in note for note in presets()[name].notes)


@pytest.mark.parametrize(("name", "cfg_class"), [("px4_mag", sn.MagnetometerCfg), ("px4_baro", sn.BarometerCfg)])
def test_preset_config_round_trips_through_a_file(name: str, cfg_class: Any) -> None:
    """The config is of the right kind and survives JSON and TOML."""
    cfg = sn.preset(name, body="body")
    assert type(cfg) is cfg_class
    assert cfg_class.from_json(cfg.to_json()) == cfg
    assert cfg_class.from_toml(cfg.to_toml()) == cfg


def test_the_magnetometer_has_the_noise_and_the_walk_of_the_plugin() -> None:
    """At 100 Hz a sample has 4 mgauss of noise; without noise, the bias has 0.11 mgauss in the long run."""
    envs = 5000
    scene = sn.Scene(sn.TensorEngine(envs, 0.01), [sn.preset("px4_mag", body="body", magnetic_field=FIELD)])
    error = (scene["magnetometer"].data.mag_b - scene["magnetometer"].ground_truth.mag_b).numpy()
    bias = 6.4e-6 * math.sqrt(600.0 / 2.0)
    bound = 5 / math.sqrt(2 * 3 * envs)
    assert error.std() == pytest.approx(math.hypot(4e-3, bias), rel=bound)
    quiet = sn.preset("px4_mag", body="body", magnetic_field=FIELD, noise_density=None)
    sensor = sn.Scene(sn.TensorEngine(envs, 0.01), [quiet])["magnetometer"]
    assert (sensor.data.mag_b - sensor.ground_truth.mag_b).numpy().std() == pytest.approx(bias, rel=bound)
    assert sensor.specs[0].unit == "G"
    assert presets()["px4_mag"].fields["rate_hz"] == 100.0


def test_the_barometer_has_the_noise_of_the_plugin() -> None:
    """At 50 Hz a sample has a noise of 1 Pa, which is 8.3 cm of height."""
    envs = 5000
    scene = sn.Scene(sn.TensorEngine(envs, 0.02), [sn.preset("px4_baro", body="body")])
    data = scene["barometer"].data
    bound = 5 / math.sqrt(2 * envs)
    assert np.std(data.pressure.numpy().astype(np.float64)) == pytest.approx(1.0, rel=bound)
    assert np.std(data.altitude.numpy()) == pytest.approx(0.0832, rel=bound)
    assert scene["barometer"].info.rate_hz == 50.0
