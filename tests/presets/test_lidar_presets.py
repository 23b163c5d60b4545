"""Presets of lidars: they build and measure as their data sheets state."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy import stats

import sensorium as sn
from sensorium.patterns import SpinningPatternCfg
from sensorium.presets import LidarName, preset_fields, presets

LIDARS = ("vlp16", "os1_64", "mid360")
AHEAD = SpinningPatternCfg(elevations=(0.0,) * 2000, cycle_interval=1.0, rate_hz=1.0, start=0.0)


def lidar_at(name: LidarName, at: float, rho: float) -> sn.Lidar:
    """Return a device with 2000 rays straight ahead and a wall at a distance."""
    wall = sn.engines.Shape("box", "wall", (0.5, 50.0, 50.0), pos=(at + 0.5, 0.0, 0.0), reflectance=rho)
    cfg = sn.preset(name, name="lidar", body="body", pattern=AHEAD, rate_hz=1.0)
    scene = sn.Scene(sn.TensorEngine(1, 0.01, shapes=[wall]), [cfg], seed=3)
    sensor = scene["lidar"]
    assert isinstance(sensor, sn.Lidar)
    return sensor


def share_and_sd(name: LidarName, at: float, rho: float) -> tuple[int, float]:
    """Return how many of 2000 returns are detected, and the standard deviation of their distances in m."""
    data = lidar_at(name, at, rho).data
    seen = torch.isfinite(data.distances)
    return int(seen.sum()), float(data.distances[seen].double().std())


@pytest.mark.parametrize("name", LIDARS)
def test_preset_builds_and_round_trips_through_a_file(name: LidarName) -> None:
    """A preset is plain data, its config survives JSON and TOML, and its notes state the unchecked values."""
    fields = preset_fields(name)
    assert json.loads(json.dumps(fields)) == fields
    cfg = sn.preset(name, body="body")
    assert isinstance(cfg, sn.LidarCfg) and cfg.rate_hz == 10.0
    assert sn.LidarCfg.from_json(cfg.to_json()) == cfg and sn.LidarCfg.from_toml(cfg.to_toml()) == cfg
    assert any("not checked" in note for note in presets()[name].notes)


@pytest.mark.parametrize(
    ("name", "rays"), [("vlp16", 28928), pytest.param("os1_64", 65536, marks=pytest.mark.full), ("mid360", 20000)]
)
def test_a_scan_has_the_devices_number_of_rays(name: LidarName, rays: int) -> None:
    """A scan of 0.1 s has 1808 x 16 rays, 1024 x 64 rays or 200,000 rays per second."""
    engine = sn.TensorEngine(1, 0.01, shapes=[sn.engines.Shape("plane", "ground", pos=(0.0, 0.0, -1.0))])
    scene = sn.Scene(engine, [sn.preset(name, name="lidar", body="body", beam_divergence=0)])
    assert scene["lidar"].data.points_b.shape == (1, rays, 3)


def test_os1_ranges_and_deviations_match_the_data_sheet() -> None:
    """90 % of returns are detected at 120 m from 80 %, and more at 40 m from 10 %; noise is 10 cm there and 1.5 cm
    nearby.
    """
    low, high = stats.binom.ppf([0.005, 0.995], 2000, 0.9)
    far, sd = share_and_sd("os1_64", 120.0, 0.8)
    assert low <= far <= high and sd == pytest.approx(0.10, rel=0.08)
    dark, _ = share_and_sd("os1_64", 40.0, 0.1)
    assert dark > low
    near, sd = share_and_sd("os1_64", 10.0, 0.8)
    assert near == 2000 and sd == pytest.approx(np.hypot(0.015, 0.012 / np.sqrt(12.0)), rel=0.08)


def test_mid360_detects_ten_percent_targets_at_forty_metres() -> None:
    """90 % of returns are detected at 40 m from 10 %, with a noise of 2 cm."""
    low, high = stats.binom.ppf([0.005, 0.995], 2000, 0.9)
    seen, sd = share_and_sd("mid360", 40.0, 0.1)
    assert low <= seen <= high and sd == pytest.approx(0.02, rel=0.08)


def test_a_vlp16_is_accurate_to_three_centimetres() -> None:
    """Over channels and returns, the distances at 50 m have a standard deviation of 3 cm."""
    data = lidar_at("vlp16", 50.0, 0.5).data
    assert float(data.distances.double().std()) == pytest.approx(0.03, rel=0.06)
