"""Time of flight: phase noise, wrapping, multipath, flying pixels, dark surfaces and wiggling, along the ray."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from depth_camera import Z, camera, cosines, measured, plane, step, world

import sensorium as sn

F, C, FM = 40.0, 299_792_458.0, 20e6
SPAN = 0.5 * C / FM
"""Ray length over which the phase completes one turn, m."""
H, W = 24, 32


def tof(**fields: Any) -> sn.stages.TofDepth:
    """Return a camera without errors other than the given ones, 77 degrees wide at 64 px."""
    return sn.stages.TofDepth(**{"focal_px": F, "modulation_hz": FM, "noise_scale": 0.0, **fields})


def stretch(height: int = H, width: int = W) -> np.ndarray:
    """Return the length of each pixel's ray per metre of depth."""
    u, v = np.meshgrid(np.arange(width) + 0.5 - 0.5 * width, np.arange(height) + 0.5 - 0.5 * height)
    return np.sqrt(1.0 + (u**2 + v**2) / F**2)


@pytest.mark.parametrize(("z", "degrees"), [(0.5, 0.0), (1.5, 50.0), (4.0, 30.0)])
def test_the_noise_follows_signal_and_ambient_light(z: float, degrees: float) -> None:
    """Errors along the ray, over c / (4 sqrt2 pi f) sqrt(A + B) / (c_d A) of each pixel, have variance 1."""
    angle = math.radians(degrees)
    image = plane(H, W, F, z, angle)
    stage = tof(noise_scale=1.0, signal=2e5, ambient=1e4, contrast=0.6, reflectance=0.4)
    error = (measured(image, stage, envs=40) - image) * stretch()
    a = 2e5 * 0.4 * cosines(H, W, F, angle) / (image * stretch()) ** 2
    sd = C / (4.0 * math.sqrt(2.0) * math.pi * FM) * np.sqrt(a + 1e4) / (0.6 * a)
    ratio = error / sd
    assert np.std(ratio) == pytest.approx(1.0, abs=4.9 / math.sqrt(2.0 * ratio.size))
    assert abs(ratio.mean()) < 4.9 / math.sqrt(ratio.size)
    assert stage.standard_deviation(float(a[3, 5])) == pytest.approx(sd[3, 5])


def test_ranges_wrap_along_the_ray() -> None:
    """The length of the ray is reported modulo c / (2 f), not the depth."""
    image = plane(H, W, F, 7.0, math.radians(35.0))
    out = measured(image, tof())[0] * stretch()
    r = image * stretch()
    np.testing.assert_allclose(out, np.mod(r, SPAN), atol=2e-5)
    assert 0.1 < (r > SPAN).mean() < 0.9
    further = measured(image, tof(unambiguous_range=100.0))[0]
    np.testing.assert_allclose(further, image, rtol=1e-6)
    np.testing.assert_array_equal(measured(image, tof(wrap=False))[0], further)


def test_a_second_path_makes_the_range_longer() -> None:
    """The bias is that of the sum of two phasors, and positive at every range."""
    image = np.tile(np.linspace(0.3, 5.0, W), (H, 1))
    out = measured(image, tof(multipath=0.3, multipath_excess=0.25))[0] * stretch()
    r = image * stretch()
    k = 2.0 * math.pi / SPAN
    total = np.exp(1j * k * r) + 0.3 * np.exp(1j * k * 1.25 * r)
    bias = np.angle(total * np.exp(-1j * k * r)) / k
    assert (bias > 0.0).all() and bias.max() > 0.1
    np.testing.assert_allclose(out - r, bias, atol=2e-5)


def test_the_periodic_error_has_four_periods_in_a_turn() -> None:
    """The error is wiggle sin(4 phase)."""
    image = np.tile(np.linspace(0.3, 5.0, W), (H, 1))
    r = image * stretch()
    out = measured(image, tof(wiggle=0.02))[0] * stretch()
    np.testing.assert_allclose(out - r, 0.02 * np.sin(4.0 * 2.0 * np.pi * r / SPAN), atol=1e-5)


def test_flying_pixels_occur_only_at_steps_and_lie_between() -> None:
    """Beside a step each value is between both sides; elsewhere it is the truth, for any slant."""
    image = step(H, W, 1.0, 2.5, 12, 20)
    image[:, :12] = plane(H, W, F, 2.5, math.radians(55.0))[:, :12]
    out = measured(image, tof(flying=1.0), envs=50)
    edge = np.zeros(W, bool)
    edge[[11, 12, 19, 20]] = True
    np.testing.assert_allclose(out[:, :, ~edge], np.broadcast_to(image[:, ~edge], out[:, :, ~edge].shape), rtol=1e-6)
    r = image * stretch()
    for u, other in ((11, 12), (12, 11), (19, 20), (20, 19)):
        low, high = np.minimum(r[:, u], r[:, other]), np.maximum(r[:, u], r[:, other])
        seen = out[:, :, u] * stretch()[:, u]
        assert (seen >= low - 1e-4).all() and (seen <= high + 1e-4).all()
        between = (seen > low + 0.05) & (seen < high - 0.05)
        assert between.mean() > 0.3


def test_fraction_of_flying_pixels_is_as_configured() -> None:
    """With probability 0.3 a pixel at a step is mixed: 4.9 sd of a binomial."""
    out = measured(step(H, W, 1.0, 2.5, 12, W), tof(flying=0.3), envs=200)
    moved = np.abs(out[:, :, 11] - 2.5) > 1e-5
    assert moved.mean() == pytest.approx(0.3, abs=4.9 * math.sqrt(0.21 / moved.size))


def test_the_share_of_the_mixture_weighs_phasors() -> None:
    """The mixed values are angles of share A1 + (1 - share) A2 e^(i psi) for a share in [0, 1]; all shares occur."""
    image = step(4, W, 1.0, 2.5, 16, W)
    ray = stretch(4)
    r1, r2 = (image * ray)[1, 15], (image * ray)[1, 16]
    got = np.sort(measured(image, tof(flying=1.0), envs=500)[:, 1, 15] * ray[1, 15])
    share = (np.arange(500) + 0.5) / 500
    cosine = 1.0 / ray[1, 15]  # both walls are head-on; the near side is lit under the pixel's own angle
    a1, a2 = cosine / r1**2, cosine / r2**2
    k = 2.0 * math.pi / SPAN
    mixed = r1 + np.angle(share * a1 + (1.0 - share) * a2 * np.exp(1j * k * (r2 - r1))) / k
    expected = np.sort(mixed)
    gap = np.abs(np.searchsorted(expected, got) / 500 - share)  # Kolmogorov's distance
    assert gap.max() < 1.95 / math.sqrt(500)


def test_dark_surfaces_are_invalid() -> None:
    """A pixel is a hole if signal reflectance cos / r^2 is below min_signal, with the stage's own reflectances."""
    rng = np.random.default_rng(8)
    reflectance = rng.uniform(0.02, 1.0, (H, W)).astype(np.float32)
    image = plane(H, W, F, 2.0, math.radians(40.0))
    stage = tof(fields=(Z,), signal=1e5, min_signal=4e3, reflectance_field="reflectance", noise_scale=1.0)
    out = measured({Z: image, "reflectance": reflectance}, stage)[0]
    a = 1e5 * reflectance * cosines(H, W, F, math.radians(40.0)) / (image * stretch()) ** 2
    sure = np.abs(a / 4e3 - 1.0) > 1e-3
    assert ((out == 0.0) == (a < 4e3))[sure].all() and 0.1 < (out == 0.0).mean() < 0.9


def test_off_centre_principal_point_has_the_shortest_rays() -> None:
    """Wrapping of a head-on wall follows the rays from the given point."""
    image = np.full((H, W), 7.0)
    out = measured(image, tof(principal_point=(4.0, 20.0)))[0]
    u, v = np.meshgrid(np.arange(W) + 0.5 - 4.0, np.arange(H) + 0.5 - 20.0)
    ray = np.sqrt(1.0 + (u**2 + v**2) / F**2)
    np.testing.assert_allclose(out * ray, np.mod(7.0 * ray, SPAN), atol=2e-5)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"modulation_hz": 0.0}, "> 0"),
        ({"contrast": 1.2}, r"contrast in \(0, 1\]"),
        ({"multipath": 1.0}, r"ratio in \[0, 1\)"),
        ({"multipath_excess": 0.6}, r"ratio in \[0, 0.5\]"),
        ({"flying": -0.1}, r"probability in \[0, 1\]"),
        ({"wiggle_harmonic": 0}, ">= 1"),
    ],
)
def test_impossible_numbers_are_refused(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        tof(**fields)


def test_missing_reflectance_is_refused() -> None:
    with pytest.raises(sn.ConfigError, match="reflectance_field of the size of distance_to_image_plane"):
        world(camera(np.ones((4, 8)), tof(reflectance_field="albedo")))
