"""Image sensor: noise by photon transfer, lens, colours, exposure control and compression, against other sources."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from linear_images import flat, images, scene_of
from scipy import ndimage
from scipy.stats import poisson

import sensorium as sn

WELL, READ, DARK, BLACK = 6000.0, 4.0, 300.0, 64.0
NOISY: dict[str, Any] = {
    "exposure_time": 0.01, "full_well": WELL, "read_noise": READ, "dark_current": DARK, "black_level": BLACK,
    "bit_depth": 12,
}  # fmt: skip


def gradient(height: int = 24, width: int = 32) -> np.ndarray:
    """Return an image with smooth colours from 0.02 to 0.9."""
    v, u = np.mgrid[:height, :width]
    red, green = (u + 0.5) / width, (v + 0.5) / height
    return 0.02 + 0.88 * np.stack([red, green, 0.5 + 0.5 * np.sin(0.4 * u + 0.3 * v)], axis=-1)


def digital(values: np.ndarray) -> np.ndarray:
    """Return the digital numbers of 12 bits of measured values."""
    return values * (4095.0 - BLACK) + BLACK


# Electrons ------------------------------------------------------------------------------------------------------------


def test_defaults_only_quantise() -> None:
    """Half a step of 12 bits; the truth stays."""
    scene = scene_of(gradient(), sn.stages.ImageSensor())
    error = images(scene, 1)[0, 0] - gradient()
    assert 1e-5 < np.abs(error).max() <= 0.5 / 4095 + 1e-7
    np.testing.assert_array_equal(scene["camera"].ground_truth.linear_rgb[0], gradient().astype(np.float32))


@pytest.mark.parametrize("gain", [1.0, 4.0])
def test_photon_transfer(gain: float) -> None:
    """var = K^2 (read^2 + dark) + K (mean - dark mean) + 1/12: slope and intercept within 3 % (EMVA 1288)."""
    levels = np.linspace(0.0, 0.8, 9)
    image = np.repeat(levels, 48)[None, :, None] * np.ones((120, 1, 3))
    sensor = sn.stages.ImageSensor(gain=gain, white_exposure=0.01 * gain, **NOISY)
    out = digital(images(scene_of(image, sensor, seed=4), 4)[:, 0]).reshape(4, 120, 9, 48, 3)
    mean, var = out.mean(axis=(0, 1, 3, 4)), out.var(axis=(0, 1, 3, 4))
    per_electron = gain * (4095.0 - BLACK) / WELL
    slope, intercept = np.polyfit(mean - mean[0], var, 1, w=1.0 / var)
    assert slope == pytest.approx(per_electron, rel=0.03)
    assert intercept == pytest.approx(per_electron**2 * (READ**2 + DARK * 0.01) + 1.0 / 12.0, rel=0.03)
    expected = BLACK + per_electron * (DARK * 0.01 + WELL * levels / gain)
    np.testing.assert_allclose(mean, expected, rtol=2e-3)


@pytest.mark.parametrize("electrons", [0.3, 3.0, 19.0, 21.0, 60.0])
def test_few_electrons_are_poisson_distributed(electrons: float) -> None:
    """The distribution function of 200,000 pixels is that of a Poisson number within 0.6 %."""
    sensor = sn.stages.ImageSensor(full_well=1000.0, bit_depth=None)
    counts = images(scene_of(flat(electrons / 1000.0, 256, 260), sensor), 1).reshape(-1) * 1000.0
    np.testing.assert_allclose(counts, np.rint(counts), atol=1e-3)
    at = np.arange(150)
    found = np.searchsorted(np.sort(counts), at + 0.5) / counts.size
    assert np.abs(found - poisson.cdf(at, electrons)).max() < 6e-3
    assert counts.mean() == pytest.approx(electrons, rel=0.01) and counts.var() == pytest.approx(electrons, rel=0.02)


def test_pattern_is_fixed_within_an_episode() -> None:
    """Gains and offsets of pixels stay from frame to frame, and differ between envs and episodes."""
    sensor = sn.stages.ImageSensor(full_well=1e6, prnu=0.01, dsnu=100.0, bit_depth=None)
    scene = scene_of(np.concatenate([flat(0.0), flat(0.5)]), sensor, envs=2)
    first = images(scene, 8)
    pattern = first.mean(axis=0)
    dark, bright = pattern[:, :64], pattern[:, 64:]
    assert dark.std() == pytest.approx(1e-4, rel=0.05)
    assert bright.std() == pytest.approx(np.hypot(0.005, 1e-4), rel=0.05)
    assert np.corrcoef(first[0].reshape(-1), first[1].reshape(-1))[0, 1] > 0.99
    assert abs(np.corrcoef(bright[0].reshape(-1), bright[1].reshape(-1))[0, 1]) < 0.05
    scene.reset()
    again = images(scene, 1)[0]
    assert abs(np.corrcoef(bright[0].reshape(-1), again[0, 64:].reshape(-1))[0, 1]) < 0.05


def test_bright_light_is_clipped_at_the_full_well() -> None:
    out = images(scene_of(flat(1.7), sn.stages.ImageSensor(gain=0.5, white_exposure=0.01, bit_depth=None)), 1)
    np.testing.assert_allclose(out, 0.5, atol=1e-6)


def test_same_seed_same_bits() -> None:
    """Numbers depend on seed, env and tick only."""
    sensor = sn.stages.ImageSensor(prnu=0.01, dsnu=1.0, color_filter="rggb", jpeg_quality=80, **NOISY)
    one = images(scene_of(gradient(), sensor, envs=2, seed=7), 2)
    np.testing.assert_array_equal(one, images(scene_of(gradient(), sensor, envs=3, seed=7), 2)[:, :2])
    assert (one != images(scene_of(gradient(), sensor, envs=2, seed=8), 2)).mean() > 0.5


# Lens -----------------------------------------------------------------------------------------------------------------


def test_flat_field_is_the_vignetting() -> None:
    """cos^4 of the angle to the axis, f = 40 px; and a polynomial of the distance from the centre."""
    v, u = np.mgrid[:48, :64] + 0.5
    r2 = (u - 32) ** 2 + (v - 24) ** 2
    out = images(scene_of(flat(0.9, 48, 64), sn.stages.ImageSensor(vignetting="cos4", bit_depth=None)), 1)[0, 0]
    np.testing.assert_allclose(out[..., 1], 0.9 * np.cos(np.arctan(np.sqrt(r2) / 40.0)) ** 4, rtol=1e-5)
    shape = (-0.4, 0.1, -0.05)
    out = images(scene_of(flat(0.9, 48, 64), sn.stages.ImageSensor(vignetting=shape, bit_depth=None)), 1)[0, 0]
    s = r2 / (32**2 + 24**2)
    np.testing.assert_allclose(out[..., 0], 0.9 * (1 - 0.4 * s + 0.1 * s**2 - 0.05 * s**3), rtol=1e-5)


@pytest.mark.parametrize(("spread", "variance"), [("disk", 0.25), ("gaussian", 1.0)])
def test_a_point_becomes_its_spread(spread: Any, variance: float) -> None:
    """The light stays; its variance along an axis is r^2 / 4 for a disk and r^2 for a normal distribution."""
    image = flat(0.0, 41, 41)
    image[20, 20] = (0.9, 0.5, 0.1)
    sensor = sn.stages.ImageSensor(blur_radius=4.0, point_spread=spread, bit_depth=None)
    out = images(scene_of(image, sensor), 1)[0, 0]
    np.testing.assert_allclose(out.sum(axis=(0, 1)), image[20, 20], rtol=1e-5)
    u = np.arange(41) - 20
    assert (out[..., 0].sum(axis=0) * u**2).sum() / 0.9 == pytest.approx(16.0 * variance, rel=0.04)
    if spread == "disk":
        assert (out[..., 0] > 0.0).sum() == pytest.approx(np.pi * 4.0**2, rel=0.4)


# Colours --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rggb", "bggr", "grbg", "gbrg"])
def test_demosaicing_is_bilinear(name: Any) -> None:
    """Each pixel keeps its own colour; the others are means of adjacent pixels, computed by convolutions."""
    image = gradient(10, 13)
    out = images(scene_of(image, sn.stages.ImageSensor(color_filter=name, bit_depth=None)), 1)[0, 0]
    v, u = np.mgrid[:10, :13]
    kernel = np.ones((3, 3))
    for c, letter in enumerate("rgb"):
        mask = np.array(["rgb".index(each) for each in name]).reshape(2, 2)[v % 2, u % 2] == "rgb".index(letter)
        total = ndimage.convolve(np.where(mask, image[..., c], 0.0), kernel, mode="constant")
        count = ndimage.convolve(mask.astype(float), kernel, mode="constant")
        np.testing.assert_allclose(out[..., c], np.where(mask, image[..., c], total / count), atol=1e-6)


def test_white_balance_compensates_the_response_and_its_noise_grows() -> None:
    """A grey wall stays grey; red, whose pixels collect half the electrons, has twice the variance."""
    sensor = sn.stages.ImageSensor(full_well=2000.0, color_response=(0.5, 1.0, 0.8), bit_depth=None)
    out = images(scene_of(flat(0.3, 128, 128), sensor), 1)[0, 0].reshape(-1, 3)
    np.testing.assert_allclose(out.mean(axis=0), 0.3, rtol=0.01)
    assert out[:, 0].var() / out[:, 1].var() == pytest.approx(2.0, rel=0.05)
    tinted = sn.stages.ImageSensor(white_balance=sn.Uniform((0.8, 1.0, 1.0), (0.8, 1.0, 1.2)), bit_depth=None)
    means = images(scene_of(flat(0.5, 4, 4), tinted, envs=6), 1)[0].mean(axis=(1, 2))
    np.testing.assert_allclose(means[:, :2], [[0.4, 0.5]] * 6, rtol=1e-5)
    assert (means[:, 2] >= 0.5).all() and means[:, 2].std() > 0.01


@pytest.mark.parametrize("quality", [10, 50, 90])
@pytest.mark.parametrize("size", [(32, 48), (21, 35)])
def test_jpeg_equals_that_of_libjpeg(quality: int, size: tuple[int, int]) -> None:
    """The decoded colours of Pillow with the same tables and 4:2:0, but for ties: a tenth of its error."""
    pillow = pytest.importorskip("PIL.Image")
    noise = np.random.default_rng(1).normal(0.0, 0.03, (*size, 3))
    image = np.clip(gradient(*size) + noise, 0.0, 1.0)
    image[5:17, 8:20] = (0.9, 0.05, 0.1)
    encoded = np.where(image <= 0.0031308, 12.92 * image, 1.055 * image ** (1 / 2.4) - 0.055)
    codes = np.rint(255.0 * encoded).astype(np.uint8)
    file = io.BytesIO()
    pillow.fromarray(codes).save(file, "JPEG", quality=quality, subsampling=2)
    expected = np.asarray(pillow.open(file), np.float64)
    out = images(scene_of(image, sn.stages.ImageSensor(jpeg_quality=quality, bit_depth=None)), 1)[0, 0]
    found = np.rint(255.0 * np.where(out <= 0.0031308, 12.92 * out, 1.055 * out ** (1 / 2.4) - 0.055))
    difference = np.abs(found - expected)
    assert difference.mean() < 0.1 * np.abs(expected - codes).mean()
    assert (difference <= 2.0).mean() > 0.85


# Exposure -------------------------------------------------------------------------------------------------------------


def test_automatic_exposure_reaches_its_target_at_its_rate() -> None:
    """From a frame to the next at most 8 stops/s; time first, then gain, both within bounds."""
    auto = sn.stages.AutoExposure(target=0.2, rate=8.0, exposure_time=(1e-3, 8e-3), gain=(1.0, 4.0))
    sensor = sn.stages.ImageSensor(auto_exposure=auto, exposure_time=1e-3, white_exposure=4e-3, bit_depth=None)
    scene = scene_of(lambda tick: flat(0.02 if tick > 200 else 0.05, 8, 8), sensor, envs=2)
    means = images(scene, 400)[:, :, 0, 0, 0]
    assert means[0] == pytest.approx(0.05 / 4 * 2**0.08, rel=1e-4)  # the second frame
    stops = np.diff(np.log2(means[:200]), axis=0)
    assert stops.max() == pytest.approx(0.08, rel=1e-3) and means[199] == pytest.approx(0.2, rel=1e-3)
    assert means[-1] == pytest.approx(0.02 * 8.0 / 4.0 * 4.0, rel=1e-3)  # the bounds end below the target
    state = scene["camera"].stage_state(sensor)
    assert state["exposure_time_now_linear_rgb"][0, 0] == pytest.approx(8e-3)
    scene.reset([0])
    assert scene["camera"].data.linear_rgb[:, 0, 0, 0].tolist() == pytest.approx([0.02 / 4, means[-1, 1]], rel=1e-3)


def test_amounts_are_drawn_per_env_at_reset() -> None:
    sensor = sn.stages.ImageSensor(exposure_time=sn.Uniform(0.005, 0.01), white_exposure=0.01, bit_depth=None)
    scene = scene_of(flat(0.8, 4, 4), sensor, envs=16)
    before = images(scene, 2)[:, :, 0, 0, 0]
    np.testing.assert_array_equal(before[0], before[1])
    assert 0.4 <= before.min() < 0.5 < 0.7 < before.max() <= 0.8
    scene.reset()
    assert (images(scene, 1)[0, :, 0, 0, 0] != before[0]).all()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"read_noise": 3.0}, "full_well: got None, expected a number, since read_noise is given"),
        ({"exposure_time": sn.Uniform(0.01, 0.02)}, "white_exposure: got None, expected a time"),
        ({"exposure_time": 0.0}, "exposure_time: got 0.0, expected finite numbers > 0"),
        ({"gain": (1.0, 2.0)}, "gain: .* one number"),
        ({"black_level": 5000.0}, "black_level: got 5000.0, expected less than 4095"),
        ({"vignetting": (0.1, 0.1, 0.1, 0.1)}, "at most three coefficients"),
        ({"blur_radius": 40.0}, "numbers from 0 to 32"),
        ({"jpeg_quality": 0}, "quality from 1 to 100"),
        ({"bit_depth": 17}, "1 to 16 bits"),
    ],
)
def test_invalid_configs_name_field_and_fix(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(sn.ConfigError, match=text):
        sn.stages.ImageSensor(**fields)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"subposes": 4}, "a camera that images a scene, since subposes, line_time of the stage needs it"),
        ({"white_balance": (1.0, 2.0)}, "white_balance that fits"),
        ({"fields": ("intrinsic_matrices",)}, "a field of this sensor"),
    ],
)
def test_a_stage_that_does_not_fit_the_sensor_is_rejected(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(sn.ConfigError, match=text):
        scene_of(flat(0.5, 4, 4), sn.stages.ImageSensor(**fields))


def test_config_survives_files() -> None:
    sensor = sn.stages.ImageSensor(
        auto_exposure=sn.stages.AutoExposure(target=0.3), vignetting=(-0.3,), gain=2.0, color_filter="rggb"
    )
    cfg = sn.ImuCfg(body="b", stages=(sensor,))
    for other in (sn.ImuCfg.from_toml(cfg.to_toml()), sn.ImuCfg.from_json(cfg.to_json())):
        assert other == cfg
