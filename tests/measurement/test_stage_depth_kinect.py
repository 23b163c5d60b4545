"""The first Kinect: axial and lateral noise at several depths and angles, the disparity grid, the Redwood variant."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
from depth_camera import cosines, measured, plane, step
from scipy.stats import chi2

import sensorium as sn

F, B = 580.0, 0.075
FB = F * B
PHI = statistics.NormalDist().cdf


def kinect(**fields: Any) -> sn.stages.KinectDepth:
    """Return a Kinect without shadows, except for the given options."""
    return sn.stages.KinectDepth(**{"focal_px": F, "shadow": False, **fields})


def axial(z: Any, angle: Any) -> Any:
    """Return the published standard deviation of the depth, m."""
    steep = np.degrees(angle) > 60.0
    return 0.0012 + 0.0019 * (z - 0.4) ** 2 + steep * 1e-4 / np.sqrt(z) * angle**2 / (0.5 * np.pi - angle) ** 2


@pytest.mark.parametrize("degrees", [0.0, 40.0, 58.0, 70.0, 80.0])
@pytest.mark.parametrize("z", [0.6, 1.5, 3.0])
def test_axial_noise_matches_the_publication(z: float, degrees: float) -> None:
    """The sum of the squared errors, each over its own deviation, is within the 99.9 % bounds of chi-square."""
    image = plane(24, 32, F, z, math.radians(degrees))
    error = measured(image, kinect(quantum=0.0), envs=20) - image
    ratio = error / axial(image, np.arccos(cosines(24, 32, F, math.radians(degrees))))
    low, high = chi2.ppf([5e-4, 1.0 - 5e-4], ratio.size)
    assert low < (ratio**2).sum() < high
    assert abs(ratio.mean()) < 3.3 / math.sqrt(ratio.size) + 1e-3


def test_rounding_is_part_of_the_published_noise() -> None:
    """With the grid of 1/8 px, a step of 2 cm at 2.6 m, the deviation over many depths still matches the published
    one.
    """
    image = np.tile(np.linspace(2.5, 2.7, 64), (48, 1))
    error = measured(image, kinect(), envs=8) - image
    assert error.std() == pytest.approx(axial(2.6, 0.0), rel=0.03)


def test_disparities_lie_on_the_grid() -> None:
    """f B / z is a multiple of 1/8 px."""
    d = FB / measured(plane(24, 32, F, 2.0, 0.5), kinect())[0] * 8.0
    np.testing.assert_allclose(d, np.round(d), atol=1e-6 * d.max())


def test_a_step_has_the_published_lateral_noise() -> None:
    """Head-on a pixel k + 1/2 px beside a step shows the other side with probability Phi(-(k + 1/2) / 0.8)."""
    envs, rows = 100, 40
    image = step(rows, 40, 1.0, 2.0, 20, 40)
    near = (measured(image, kinect(noise_scale=0.0, quantum=0.0), envs=envs) < 1.5).mean(axis=(0, 1))
    expected = np.array([PHI((u + 0.5 - 20.0) / 0.8) for u in range(40)])
    bound = 4.9 * np.sqrt(expected * (1.0 - expected) / (envs * rows)) + 1e-3
    assert (np.abs(near - expected) <= bound).all()


def test_the_projector_casts_shadows_to_the_left() -> None:
    """The band is f B (1/near - 1/far) px wide."""
    image = step(4, 160, 1.2, 2.5, 90, 160)
    holes = measured(image, kinect(shadow=True, lateral_scale=0.0))[0] == 0.0
    columns = np.flatnonzero(holes[0, 40:]) + 40
    assert columns[-1] == 89 and abs(columns.size - FB * (1.0 / 1.2 - 1.0 / 2.5)) <= 1.0


def test_values_are_limited_to_the_range() -> None:
    """No value is below min_range or beyond max_range."""
    z = np.tile(np.linspace(0.2, 8.0, 300), (2, 1))
    out = measured(z, kinect(noise_scale=0.0, lateral_scale=0.0, quantum=0.0, max_range=6.0))[0]
    seen = (z > 0.4) & (z < 6.0)
    np.testing.assert_allclose(out[seen], z[seen], rtol=3e-7)
    assert (out[~seen] == 0.0).all()


def redwood(**fields: Any) -> sn.stages.KinectDepth:
    """Return the Redwood variant without shadows and limits below 10 m."""
    return kinect(**{"variant": "redwood", "min_range": 0.0, **fields})


@pytest.mark.parametrize("z", [0.7, 2.0, 4.9])
def test_redwood_rounds_a_noisy_disparity(z: float) -> None:
    """The frequencies of the disparities are those of round(8 (35.130/z + 0.027778 n)) / 8."""
    out = measured(np.full((48, 64), z), redwood(), envs=8)
    k = np.round(8.0 * 35.130 / out).astype(int)
    np.testing.assert_allclose(out, 35.130 * 8.0 / k, rtol=1e-6)
    d = 8.0 * 35.130 / z
    for value in range(k.min() - 1, k.max() + 2):
        p = PHI((value + 0.5 - d) / (8 * 0.027778)) - PHI((value - 0.5 - d) / (8 * 0.027778))
        assert abs((k == value).mean() - p) < 4.9 * math.sqrt(p * (1.0 - p) / k.size) + 1e-5


def test_redwood_has_half_the_resolution_and_ends_at_ten_metres() -> None:
    """Without jitter each 2 x 2 block shows its first pixel; 10 m and more is 0."""
    rng = np.random.default_rng(3)
    z = rng.uniform(0.5, 12.0, (10, 12))
    out = measured(z, redwood(lateral_scale=0.0, noise_scale=0.0, quantum=0.0))[0]
    blocks = np.kron(z[::2, ::2], np.ones((2, 2)))
    np.testing.assert_allclose(out, np.where(blocks < 10.0, blocks, 0.0), rtol=3e-7)


def test_redwood_samples_a_jittered_pixel() -> None:
    """At a step between blocks the pixels beside it show the other side with probability Phi(-1/2 / 0.25)."""
    envs, rows = 100, 40
    image = step(rows, 40, 1.0, 2.0, 20, 40)
    near = (measured(image, redwood(noise_scale=0.0), envs=envs) < 1.5).mean(axis=(0, 1))
    p = PHI(-0.5 / 0.25)
    bound = 4.9 * math.sqrt(p / (envs * rows))
    assert near[19] == pytest.approx(p, abs=bound) and near[20] == pytest.approx(1.0 - p, abs=bound)
    assert (near[:18] < 1e-3).all() and (near[22:] > 1.0 - 1e-3).all()


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"baseline": -0.1}, "> 0"),
        ({"quantum": -0.125}, ">= 0"),
        ({"min_range": 3.0, "max_range": 2.0}, "below max_range, 2 m"),
        ({"variant": "v2"}, "variant"),
    ],
)
def test_impossible_numbers_are_refused(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        kinect(**fields)
