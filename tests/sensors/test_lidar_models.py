"""Lidar return models: range noise, detection, intensity, footprints CARLA's model, checked against formulas."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

import sensorium as sn
from sensorium.geometry.shapes import Shape
from sensorium.patterns import GridPatternCfg, LidarPatternCfg, SpinningPatternCfg

Array = NDArray[np.float64]

SHOTS = 4000
"""Rays of the bundle, all straight ahead."""
AHEAD = SpinningPatternCfg(elevations=(0.0,) * SHOTS, cycle_interval=1.0, rate_hz=1.0, start=0.0)


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def wall(at: float, angle: float = 0.0, **kwargs: Any) -> Shape:
    """Return a wall whose face crosses the x axis at a distance, rotated about z by an angle."""
    half = 0.5 * angle
    pos = (at + 0.5 * math.cos(angle), 0.5 * math.sin(angle), 0.0)
    quat = (math.cos(half), 0.0, 0.0, math.sin(half))
    return Shape("box", **{"name": "wall", "size": (0.5, 500.0, 500.0), "pos": pos, "quat": quat, **kwargs})


def lidar_at(*shapes: Shape, envs: int = 1, seed: int = 4, **kwargs: Any) -> Any:
    engine = sn.TensorEngine(envs, 0.01, shapes=list(shapes), bodies=("body",))
    cfg = {"name": "lidar", "body": "body", "pattern": AHEAD, "motion_distortion": False, "max_distance": 1000.0,
           "scan_duration": 1.0,
           "fields": ("distances", "points_b", "intensity", "cos_incidence", "geom_ids")}  # fmt: skip
    scene = sn.Scene(engine, [sn.LidarCfg(**{**cfg, **kwargs})], seed=seed)
    return scene["lidar"]


def is_normal(values: Array, mean: float, sd: float) -> None:
    """Assert that a sample has a distribution's mean and standard deviation, both within their 99.9 % bounds."""
    n = len(values)
    assert abs(values.mean() - mean) < 3.29 * sd / math.sqrt(n) + 2e-5
    low, high = stats.chi2.ppf([0.0005, 0.9995], n - 1)
    assert low < (n - 1) * values.var(ddof=1) / sd**2 < high
    assert stats.kstest((values - mean) / sd, "norm").pvalue > 1e-3


def is_share(count: int, total: int, p: float) -> None:
    """Assert that a count is inside the 99 % interval of the binomial distribution."""
    low, high = stats.binom.ppf([0.005, 0.995], total, p)
    assert low <= count <= high, f"{count} of {total}, expected {low} to {high}"


# Distances ------------------------------------------------------------------------------------------------------------


def test_range_to_a_wall_has_the_configured_mean_and_deviation() -> None:
    """At 25 m with 3 cm of noise the distances are normal about 25 m, and the points lie on their rays."""
    lidar = lidar_at(wall(25.0), range_noise=0.03, fields="all")
    distances = numpy(lidar.data.distances[0])
    is_normal(distances, 25.0, 0.03)
    assert numpy(lidar.ground_truth.distances[0]) == pytest.approx(25.0, abs=1e-5)
    assert numpy(lidar.data.points_b[0])[:, 0] == pytest.approx(distances, abs=1e-5)
    assert numpy(lidar.data.points_w[0])[:, 0] == pytest.approx(distances, abs=1e-5)


SHEET: dict[str, Any] = {
    "reference_snr": 250.0, "reference_range": 20.0, "reference_reflectance": 0.8,
    "range_noise": (0.015, 0.03, 0.10), "range_noise_snr": (250.0, 100.0, 12.0),
}  # fmt: skip


@pytest.mark.parametrize(
    ("at", "rho", "sd"),
    [
        (20.0, 0.8, 0.015),  # the reference itself
        (10.0, 0.8, 0.015),  # four times its ratio: beyond the table
        (20.0 * math.sqrt(2.5), 0.8, 0.03),
        (20.0, 0.8 * 12.0 / 250.0, 0.10),  # by reflectance instead of distance
        (20.0, 0.8 * math.sqrt(100.0 * 12.0) / 250.0, math.sqrt(0.03 * 0.10)),  # half way, in logarithms
    ],
)
def test_noise_follows_the_signal_to_noise_ratio(at: float, rho: float, sd: float) -> None:
    """A data sheet's table of deviations over ratios is followed at its points, between and beyond them."""
    lidar = lidar_at(wall(at, reflectance=rho), **SHEET)
    is_normal(numpy(lidar.data.distances[0]), at, sd)


def test_signal_ratio_follows_a_power_law() -> None:
    """With one ratio the deviation increases as 1/sqrt(SNR): linearly with distance."""
    for at in (10.0, 40.0):
        lidar = lidar_at(wall(at), reference_snr=100.0, reference_reflectance=0.5, reference_range=20.0,
                         range_noise=0.02, range_noise_snr=100.0)  # fmt: skip
        is_normal(numpy(lidar.data.distances[0]), at, 0.02 * at / 20.0)


def test_channel_biases_are_drawn_per_channel_and_env_and_stay_in_an_episode() -> None:
    """Channel errors follow their distribution over channels and envs; they change only at a reset."""
    pattern = LidarPatternCfg(
        channels=64, vertical_fov_range=(-5.0, 5.0), horizontal_fov_range=(-2.0, 2.0), horizontal_res=2.0
    )
    engine = sn.TensorEngine(60, 0.01, shapes=[wall(20.0)])
    cfg = sn.LidarCfg(name="lidar", body="body", pattern=pattern, channel_bias=sn.Normal(0.01, 0.02), fields="all")
    scene = sn.Scene(engine, [cfg], seed=2)

    def biases() -> Array:
        data, truth = scene["lidar"].data, scene["lidar"].ground_truth
        return numpy(data.distances - truth.distances).reshape(60, 64, 3)

    first = biases()
    assert np.ptp(first, axis=2).max() < 1e-5, "all rays of a channel have its bias"
    is_normal(first[..., 0].ravel(), 0.01, 0.02)
    scene.update()
    assert biases() == pytest.approx(first, abs=1e-5)
    scene.reset([3])
    assert (np.abs(biases() - first).max(axis=(1, 2)) > 1e-3).nonzero()[0].tolist() == [3]


def test_given_channel_biases_are_used() -> None:
    """One number per channel is that channel's error."""
    pattern = LidarPatternCfg(
        channels=3, vertical_fov_range=(-1.0, 1.0), horizontal_fov_range=(0.0, 0.0), horizontal_res=1.0
    )
    lidar = lidar_at(wall(20.0), pattern=pattern, channel_bias=(0.1, 0.0, -0.2), scan_duration=None,
                     motion_distortion=False)  # fmt: skip
    error = numpy(lidar.data.distances[0] - lidar.ground_truth.distances[0])
    assert error == pytest.approx([0.1, 0.0, -0.2], abs=1e-5)


def test_noise_never_moves_a_miss() -> None:
    """Rays without a hit stay +inf, or the value for a miss, under every kind of noise."""
    for value in (None, -1.0):
        lidar = lidar_at(wall(2000.0), range_noise=1.0, noise=1.0, bias=3.0, resolution=0.1, channel_bias=5.0,
                         no_hit_value=value)  # fmt: skip
        for data in (lidar.data, lidar.ground_truth):
            assert (data.distances == (math.inf if value is None else value)).all()
            assert torch.isinf(data.points_b).all() and (data.geom_ids == -1).all()


def test_the_standard_knobs_act_on_distances_and_points_follow() -> None:
    """Quantised distances are on their grid, and the points are at exactly these distances."""
    lidar = lidar_at(wall(25.0), noise=0.05, resolution=0.012)
    distances = numpy(lidar.data.distances[0])
    assert np.abs(distances / 0.012 - np.rint(distances / 0.012)).max() < 1e-3 and len(np.unique(distances)) > 10
    assert numpy(lidar.data.points_b[0])[:, 0] == pytest.approx(distances, abs=1e-5)


# Detection ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [0.0, 60.0, 75.0])
@pytest.mark.parametrize("at", [30.0, 60.0, 100.0])
def test_detection_follows_range_and_incidence(at: float, angle: float) -> None:
    """The share of returns is (1 - floor) Phi((SNR - threshold) / s), inside the binomial 99 % interval."""
    law = {"reference_snr": 40.0, "reference_range": 50.0, "reference_reflectance": 0.5, "detection_threshold": 13.0,
           "detection_sd": 2.0, "drop_rate": 0.05, "attenuation": 0.002}  # fmt: skip
    lidar = lidar_at(wall(at, math.radians(angle)), **law)
    snr = 40.0 * math.cos(math.radians(angle)) * (50.0 / at) ** 2 * math.exp(-2 * 0.002 * (at - 50.0))
    p = 0.95 * NormalDist().cdf((10.0 * math.log10(snr) - 13.0) / 2.0)
    is_share(int(torch.isfinite(lidar.data.distances).sum()), SHOTS, p)
    assert torch.isfinite(lidar.ground_truth.distances).all(), "truth drops nothing"
    lost = torch.isinf(lidar.data.distances)
    assert (lidar.data.geom_ids[lost] == -1).all() and (lidar.data.intensity[lost] == 0.0).all()


def test_draws_differ_from_sample_to_sample_and_between_seeds() -> None:
    """Lost returns are independent at each sample: the overlap of two samples matches chance."""
    lost = []
    for seed in (1, 2):
        engine = sn.TensorEngine(1, 0.01, shapes=[wall(25.0)])
        cfg = sn.LidarCfg(name="lidar", body="body", pattern=AHEAD, drop_rate=0.3, scan_duration=1.0)
        scene = sn.Scene(engine, [cfg], seed=seed)
        for _ in range(2):
            scene.update()
            lost.append(torch.isinf(scene["lidar"].data.distances[0]).clone())
    for one, other in ((0, 1), (0, 2), (1, 3)):
        is_share(int((lost[one] & lost[other]).sum()), SHOTS, 0.09)


def test_black_target_gives_no_return() -> None:
    """With a known signal-to-noise ratio, a reflectance of 0 gives no return; the true distance and intensity are 0."""
    lidar = lidar_at(wall(25.0, reflectance=0.0), **SHEET)
    assert torch.isinf(lidar.data.distances).all()
    assert (lidar.ground_truth.intensity == 0.0).all() and torch.isfinite(lidar.ground_truth.distances).all()


# Intensity ------------------------------------------------------------------------------------------------------------


def test_intensities_follow_the_lidar_equation() -> None:
    """A calibrated intensity is rho cos exp(-2 a R) at any distance; a raw one is divided by R^2, relative to the
    reference.
    """
    for at, angle, rho in ((10.0, 0.0, 0.8), (40.0, 1.0, 0.2)):
        shape = wall(at, angle, reflectance=rho)
        expected = rho * math.cos(angle) * math.exp(-2 * 0.01 * at)
        for model in ({}, {"range_noise": 0.01}):
            lidar = lidar_at(shape, attenuation=0.01, intensity_scale=100.0, **model)
            assert numpy(lidar.data.intensity[0]) == pytest.approx(100.0 * expected, rel=1e-4)
        raw = lidar_at(shape, attenuation=0.01, intensity_mode="raw", reference_reflectance=0.5, reference_range=20.0)
        reference = 0.5 * math.exp(-2 * 0.01 * 20.0) / 20.0**2
        assert numpy(raw.ground_truth.intensity[0]) == pytest.approx(expected / at**2 / reference, rel=1e-4)


def test_intensity_ratio_equals_reflectance_ratio() -> None:
    """Reflectance comes from the shape, by label or by name; later entries of the config take precedence."""

    def intensity(shape: Shape, **given: float) -> float:
        lidar = lidar_at(shape, reflectance=given)
        return float(lidar.data.intensity[0, 0])

    bright, dark = (intensity(wall(30.0, reflectance=rho)) for rho in (0.8, 0.1))
    assert bright / dark == pytest.approx(8.0, rel=1e-6)
    labelled = wall(30.0, labels=("asphalt",))
    assert intensity(labelled, asphalt=0.2) / dark == pytest.approx(2.0, rel=1e-6)
    assert intensity(labelled, asphalt=0.2, wall=0.4) / dark == pytest.approx(4.0, rel=1e-6)
    assert intensity(labelled, **{"wa.*": 0.4, "asphalt": 0.2}) / dark == pytest.approx(2.0, rel=1e-6)


def test_retro_reflectors_saturate_the_receiver() -> None:
    """Measured intensities are clipped at `intensity_max`; the truth is not."""
    lidar = lidar_at(wall(30.0), reflectance={"wall": 40.0}, intensity_max=2.55)
    assert (lidar.data.intensity == 2.55).all()
    assert numpy(lidar.ground_truth.intensity[0]) == pytest.approx(40.0, rel=1e-5)


def test_intensity_noise_is_relative() -> None:
    """The deviation of the measured intensity is a share of the true one, and the intensity is never below 0."""
    lidar = lidar_at(wall(30.0, reflectance=0.5), intensity_noise=0.1)
    is_normal(numpy(lidar.data.intensity[0]), 0.5, 0.05)


# Footprints -----------------------------------------------------------------------------------------------------------


def edge(back: float) -> tuple[Shape, Shape]:
    """Return a plate at 10 m that covers the left half of the beam, and a wall behind it."""
    return Shape("box", "plate", (0.005, 5.0, 5.0), pos=(10.005, 5.0, 0.0)), wall(back)


FAN = GridPatternCfg(resolution=0.001, size=(0.0, 0.06), direction=(1.0, 0.0, 0.0))
"""Parallel rays along x, 1 mm apart across the edge."""


def fan(*shapes: Shape, **kwargs: Any) -> Any:
    """Return a lidar whose rays cross an edge at y = 0, 1 mm apart."""
    return lidar_at(*shapes, pattern=FAN, scan_duration=None, **kwargs)


def test_mixed_pixels_require_a_footprint() -> None:
    """Across an edge with 0.3 m behind it, there are points in between with divergence, and none without."""
    sharp = numpy(fan(*edge(10.3)).data.distances[0])
    assert set(np.round(sharp, 4).tolist()) == {10.0, 10.3}
    mixed = numpy(fan(*edge(10.3), beam_divergence=0.002, sub_rays=19).data.distances[0])
    between = (mixed > 10.01) & (mixed < 10.29)
    assert between.sum() >= 4
    y = FAN.rays().starts.numpy()[:, 1]
    assert np.abs(y[between]).max() < 0.8 * 10.3 * math.tan(0.002) + 1e-6, "only where the beam touches the edge"
    far = ~between & (np.abs(y) > 0.03 - 1e-6)
    assert np.abs(mixed - sharp)[far].max() < 1e-4


def test_a_beam_without_divergence_has_the_footprint_of_its_diameter() -> None:
    """Parallel sub-rays of a 2 cm beam mix within 0.8 of its width from an edge, at any distance."""
    for at in (0.0, 200.0):
        plate = Shape("box", "plate", (0.005, 5.0, 5.0), pos=(10.005 + at, 5.0, 0.0))
        mixed = numpy(fan(plate, wall(10.3 + at), beam_diameter=0.02, sub_rays=19).data.distances[0]) - at
        between = (mixed > 10.01) & (mixed < 10.29)
        y = FAN.rays().starts.numpy()[between, 1]
        assert between.sum() > 20 and np.abs(y).max() < 0.8 * 0.02 + 1e-6


def test_echoes_farther_apart_than_the_pulse_do_not_mix() -> None:
    """With c t_p / 2 = 0.75 m an edge 0.7 m deep gives mixed pixels, and an edge 0.8 m deep two clean echoes."""
    for depth, mixes in ((0.7, True), (0.8, False)):
        d = numpy(fan(*edge(10.0 + depth), beam_divergence=0.002).data.distances[0])
        between = (d > 10.01) & (d < 10.0 + depth - 0.01)
        assert between.any() == mixes
    shorter = numpy(fan(*edge(10.3), beam_divergence=0.002, pulse_duration=1e-9).data.distances[0])
    assert not ((shorter > 10.01) & (shorter < 10.29)).any()


def test_a_mixed_pixel_is_the_mean_weighted_by_power() -> None:
    """Results match float64 NumPy: sub-rays on the hexagon, Gaussian weights, power by reflectance and 1/R^2."""
    div, rho = 0.004, (0.8, 0.2)
    plate, back = edge(10.4)
    lidar = fan(plate, back, beam_divergence=div, sub_rays=7, reflectance={"plate": rho[0], "wall": rho[1]})
    angles = np.arange(6) * math.pi / 3.0
    hexagon = np.concatenate([[[0.0, 0.0]], 0.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)])
    weights = np.exp(-4.0 * math.log(2.0) * (hexagon**2).sum(axis=1))
    weights /= weights.sum()
    compared = 0
    for ray, y0 in enumerate(FAN.rays().starts.numpy()[:, 1].astype(np.float64)):
        slope = math.tan(div) * hexagon  # across (left) and up, per metre along x
        y = y0 + 10.0 * slope[:, 0]
        if np.abs(y).min() < 1e-5:
            continue  # on the edge itself
        length = np.sqrt(1.0 + (slope**2).sum(axis=1))
        on_plate = y > 0.0
        # behind the edge a sub-ray hits the plate's side face, which turns to the left there
        t = np.where(on_plate, 10.0, 10.4) * length
        power = weights * np.where(on_plate, *rho) / length / t**2
        expected = (power * t).sum() / power.sum()
        side = ~on_plate & (y0 + 10.01 * slope[:, 0] > 0.0)
        if not side.any():
            assert float(lidar.data.distances[0, ray]) == pytest.approx(expected, abs=2e-5)
            compared += on_plate.any() and not on_plate.all()
            strength = power.sum() * expected**2
            assert float(lidar.data.intensity[0, ray]) == pytest.approx(strength, rel=1e-4)
    assert compared > 10


def test_dual_returns_are_the_strongest_and_the_last() -> None:
    """Across an edge 5 m deep, the returns are strongest and last if they differ, else the second strongest, or
    none.
    """
    rho = {"plate": 0.8, "wall": 0.8}
    lidar = fan(*edge(15.0), beam_divergence=0.002, sub_rays=19, returns="dual", reflectance=rho)
    data, truth = lidar.data, lidar.ground_truth
    assert data.distances.shape == (1, 61, 2) and data.points_b.shape == (1, 61, 2, 3)
    first, second = numpy(data.distances[0]).T
    two = np.isfinite(second)
    assert 3 < two.sum() < 60
    assert set(np.round(np.sort(np.stack([first, second], 1)[two], axis=1), 2).ravel().tolist()) == {10.0, 15.0}
    strengths = numpy(data.intensity[0])[two] / numpy(data.distances[0])[two] ** 2
    assert (strengths[:, 0] >= strengths[:, 1]).all(), "the first is the stronger"
    assert (first[two] == first[two].max()).any(), "where the last is the strongest, the second strongest is second"
    assert torch.isinf(truth.distances[0, :, 1]).all() and torch.isfinite(truth.distances[0, :, 0]).all()
    cloud = lidar.point_cloud()
    assert len(cloud["points_b"]) == 61 + two.sum()
    last = numpy(
        fan(*edge(15.0), beam_divergence=0.002, sub_rays=19, returns="last", reflectance=rho).data.distances[0]
    )
    strongest = numpy(fan(*edge(15.0), beam_divergence=0.002, sub_rays=19, reflectance=rho).data.distances[0])
    assert strongest == pytest.approx(first, abs=0) and (last >= strongest).all() and (last > strongest).any()
    assert last[two] == pytest.approx(15.0, abs=1e-3)


def test_a_footprint_moves_with_the_scan() -> None:
    """With distortion, moving windows and divergence combined, a wall ahead is at its position when each ray fired."""

    def motion(t: float) -> dict[str, Any]:
        return {"body_pos_w": (5.0 * t, 0.0, 0.0)}

    pattern = SpinningPatternCfg(elevations=(-3.0, 0.0, 3.0), cycle_interval=1e-3, firing_interval=1e-4, rate_hz=7.0)
    engine = sn.TensorEngine(1, 0.01, shapes=[wall(40.0)], motion=motion)
    cfg = {"body": "body", "pattern": pattern, "update_period": 0.03, "fields": "all", "exclude_parent_body": False}
    thin = sn.LidarCfg(name="thin", **cfg)
    wide = sn.LidarCfg(name="wide", beam_divergence=0.001, **cfg)
    scene = sn.Scene(engine, [thin, wide])
    for _ in range(8):
        scene.step(substeps=9)
        one, other = scene[thin].data, scene[wide].data
        near = one.distances < 60.0
        assert torch.equal(one.time_offset, other.time_offset) and torch.equal(one.azimuth, other.azimuth)
        if near.any():
            start = 5.0 * (scene.time + numpy(one.time_offset[near]))
            d = np.cos(numpy(one.azimuth[near])) * np.cos(numpy(one.elevation[near]))
            assert numpy(one.distances[near]) == pytest.approx((40.0 - start) / d, abs=1e-4)
            assert numpy(other.distances[near]) == pytest.approx(numpy(one.distances[near]), rel=1e-4)


# CARLA ----------------------------------------------------------------------------------------------------------------


def test_carla_intensity_uses_the_true_distance() -> None:
    """I = exp(-a d) in both branches, from the true distance; noise only moves the point."""
    lidar = lidar_at(wall(50.0, 0.7, reflectance=0.1), model="dropoff", dropoff_general_rate=0.0, noise_stddev=0.2)
    data = lidar.data
    kept = torch.isfinite(data.distances)
    for intensity in (data.intensity[kept], lidar.ground_truth.intensity):
        assert numpy(intensity).ravel() == pytest.approx(math.exp(-0.004 * 50.0), rel=1e-6)
    is_normal(numpy(data.distances[kept]), 50.0, 0.2)


@pytest.mark.parametrize(("at", "general"), [(20.0, 0.45), (20.0, 0.0), (100.0, 0.45), (100.0, 0.0), (400.0, 0.2)])
def test_carla_drops_points_by_its_two_rules(at: float, general: float) -> None:
    """All returns above the limit survive; below it, a share of 1 - zero + zero / limit * I does (99 % interval)."""
    lidar = lidar_at(wall(at), model="dropoff", dropoff_general_rate=general)
    intensity = math.exp(-0.004 * at)
    keep = 1.0 if intensity > 0.8 else 1.0 - 0.4 + (0.4 / 0.8) * intensity
    is_share(int(torch.isfinite(lidar.data.distances).sum()), SHOTS, (1.0 - general) * keep)
    assert torch.isfinite(lidar.ground_truth.distances).all()


def test_semantic_cosine_matches_carla() -> None:
    """cos_inc_angle = dot(-direction, normal), in both branches."""
    lidar = lidar_at(wall(20.0, 0.9), model="dropoff", dropoff_general_rate=0.0, dropoff_zero_intensity=0.0)
    assert numpy(lidar.data.cos_incidence[0]) == pytest.approx(math.cos(0.9), abs=1e-5)
