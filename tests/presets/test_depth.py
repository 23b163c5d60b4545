"""The presets of depth cameras: that they measure what their sources state."""

from __future__ import annotations

import math

import numpy as np
import pytest
from depth_camera import camera, measured

from sensorium.presets.depth import D435, DEVICES, KINECT_V1, DepthDevice, d435_stages, kinect_v1_stages


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_a_device_says_where_its_numbers_are_from(device: DepthDevice) -> None:
    """Each has a source, says what was not checked, and its stages survive a file."""
    assert device.source and any("not checked" in note for note in device.notes)
    cfg = camera(np.ones((4, 6)), *device.stages())
    assert type(cfg).from_toml(cfg.to_toml()) == cfg


def wall(device: DepthDevice, z: float) -> np.ndarray:
    """Return errors of a head-on wall where both views see it, m, with the device's resolution."""
    out = measured(np.full((40, 400), z), *device.stages(), envs=3, resolution=device.resolution)[:, :, 300:]
    assert (out > 0.0).all()
    return out - z


def test_the_d435_has_a_centimetre_and_a_half_at_two_metres() -> None:
    """sd = z^2 0.08 px / (424 px 50 mm), 1.5 cm; 1.8 mm for 1/32 px and 0.3 mm for 1 mm steps are little beside it."""
    step = 4.0 / 32 / 21.2
    expected = math.sqrt((4.0 * 0.08 / 21.2) ** 2 + step**2 / 12 + 0.001**2 / 12)
    assert expected == pytest.approx(0.0152, abs=1e-4)
    assert wall(D435, 2.0).std() == pytest.approx(expected, rel=0.1)  # 5 x 5 px share their noise


@pytest.mark.parametrize("width", [848, 106])
def test_the_d435_sees_from_17_centimetres_on(width: int) -> None:
    """The search range ends at f B / 126 = 0.168 m, also where the image was made smaller afterwards."""
    z = np.tile(np.repeat(np.array([0.160, 0.176]), 40), (8, 1))
    near = measured(z, d435_stages(width)[0].replace(noise_px=0.0, shadow=False))[0] > 0.0
    assert not near[:, :36].any() and near[:, 44:].all()


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_a_smaller_image_has_the_depths_of_the_device(device: DepthDevice) -> None:
    """A quarter of the width: the noise of a wall is the same, and shadows are a quarter as wide."""
    image = np.full((60, 106), 2.0)
    image[:, 70:] = 0.8
    stages = device.stages(device.width // 4)
    out = measured(image, *stages, envs=20)
    full = measured(np.full((40, 160), 2.0), *device.stages(), envs=20)[:, :, 80:]
    small = out[:, :, 30:50]
    assert small[small > 0.0].std() == pytest.approx(full[full > 0.0].std(), rel=0.05)
    holes = (out == 0.0)[:, :, 40:].mean(axis=(0, 1)).sum()
    band = device.focal_px / 4 * device.errors["baseline"] * (1.0 / 0.8 - 1.0 / 2.0)
    assert abs(holes - band) <= 1.0


@pytest.mark.parametrize(("z", "sd"), [(0.8, 0.001504), (2.0, 0.006064), (5.0, 0.041404)])
def test_the_kinect_has_millimetres_near_and_centimetres_far(z: float, sd: float) -> None:
    """Over a few centimetres of depth the deviation is the published one."""
    image = np.tile(z + np.linspace(-0.04, 0.04, 400), (30, 1))
    out = measured(image, *kinect_v1_stages(), envs=3, resolution=KINECT_V1.resolution)
    error = (out - image)[:, :, 150:]
    assert error.std() == pytest.approx(sd, rel=0.05)


def test_the_field_of_view_is_that_of_the_device() -> None:
    assert D435.fov_deg == pytest.approx(90.0) and KINECT_V1.fov_deg == pytest.approx(57.8, abs=0.1)
