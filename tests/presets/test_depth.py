"""Presets of depth cameras: they measure as their sources state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from depth_camera import camera, measured

import sensorium as sn
from sensorium.cameras.depth_camera import DepthCameraCfg
from sensorium.presets import preset_fields

DEVICES = ("d435", "kinect_v1")
WIDTHS = {"d435": 848, "kinect_v1": 640}


def stage_of(name: Any, width: int | None = None) -> Any:
    """Return the errors of a device for a part of its image; `width` is that to which its whole image is reduced."""
    (stage,) = sn.preset(name, body="body").stages
    scale = 1.0 if width is None else width / WIDTHS[name]
    return stage.replace(fov_deg=None, focal_px=stage.matched_focal_px * scale)


@pytest.mark.parametrize("name", DEVICES)
def test_stages_of_a_device_survive_a_file_round_trip(name: str) -> None:
    cfg = camera(np.ones((4, 6)), stage_of(name))
    assert type(cfg).from_toml(cfg.to_toml()) == cfg


def wall(name: str, z: float) -> np.ndarray:
    """Return the errors in m of a head-on wall, where both views see it, at the device's resolution."""
    out = measured(np.full((40, 400), z), stage_of(name), envs=3, resolution=0.001)[:, :, 300:]
    assert (out > 0.0).all()
    return out - z


def test_d435_noise_is_1_5_cm_at_2_m() -> None:
    """sd = z^2 0.08 px / (424 px 50 mm), 1.5 cm; 1.8 mm for 1/32 px and 0.3 mm for 1 mm steps are negligible."""
    step = 4.0 / 32 / 21.2
    expected = math.sqrt((4.0 * 0.08 / 21.2) ** 2 + step**2 / 12 + 0.001**2 / 12)
    assert expected == pytest.approx(0.0152, abs=1e-4)
    assert wall("d435", 2.0).std() == pytest.approx(expected, rel=0.1)  # 5 x 5 px share their noise


@pytest.mark.parametrize("width", [848, 106])
def test_d435_range_starts_at_17_cm(width: int) -> None:
    """The search range ends at f B / 126 = 0.168 m, even if the image was made smaller afterwards."""
    z = np.tile(np.repeat(np.array([0.160, 0.176]), 40), (8, 1))
    near = measured(z, stage_of("d435", width).replace(noise_px=0.0, shadow=False))[0] > 0.0
    assert not near[:, :36].any() and near[:, 44:].all()


@pytest.mark.parametrize("name", DEVICES)
def test_smaller_image_keeps_the_devices_depth_errors(name: str) -> None:
    """At a quarter of the width the noise of a wall is the same, and shadows are a quarter as wide."""
    image = np.full((60, 106), 2.0)
    image[:, 70:] = 0.8
    out = measured(image, stage_of(name, WIDTHS[name] // 4), envs=20)
    full = measured(np.full((40, 160), 2.0), stage_of(name), envs=20)[:, :, 80:]
    small = out[:, :, 30:50]
    assert small[small > 0.0].std() == pytest.approx(full[full > 0.0].std(), rel=0.05)
    holes = (out == 0.0)[:, :, 40:].mean(axis=(0, 1)).sum()
    band = stage_of(name).focal_px / 4 * stage_of(name).baseline * (1.0 / 0.8 - 1.0 / 2.0)
    assert abs(holes - band) <= 1.0


@pytest.mark.parametrize(("z", "sd"), [(0.8, 0.001504), (2.0, 0.006064), (5.0, 0.041404)])
def test_kinect_noise_grows_from_millimetres_to_centimetres(z: float, sd: float) -> None:
    """Over a few centimetres of depth the standard deviation matches the published one."""
    image = np.tile(z + np.linspace(-0.04, 0.04, 400), (30, 1))
    out = measured(image, stage_of("kinect_v1"), envs=3, resolution=0.001)
    error = (out - image)[:, :, 150:]
    assert error.std() == pytest.approx(sd, rel=0.05)


def test_the_field_of_view_is_that_of_the_device() -> None:
    assert [preset_fields(name)["fov_horizontal"] for name in DEVICES] == pytest.approx([90.0, 57.8], abs=0.1)


def wall_camera(yaw: float, envs: int = 1, **fields: Any) -> sn.Scene:
    """Return a scene with a wall with its face on the plane x = 2 m, and a camera at the origin, rotated by a yaw in
    rad.
    """
    wall = sn.engines.Shape("box", "wall", size=(0.1, 50.0, 50.0), pos=(2.1, 0.0, 0.0))
    engine = sn.TensorEngine(envs, 1 / 30, bodies=("body",), shapes=(wall,))
    engine.body_quat_w[:] = torch.tensor([math.cos(0.5 * yaw), 0.0, 0.0, math.sin(0.5 * yaw)])
    cfg = DepthCameraCfg(name="camera", body="body", offset={"convention": "world"}, **fields)
    scene = sn.Scene(engine, [cfg], seed=2)
    scene.update()
    return scene


@pytest.mark.parametrize("name", DEVICES)
def test_preset_values_build_a_depth_camera(name: str) -> None:
    """A DepthCamera with the preset measures in mm, and the length of each ray follows from the measured depth."""
    shown = ("distance_to_image_plane", "distance_to_camera")
    fields = preset_fields(name)
    height, width = round(fields["res"][1] * 106 / fields["res"][0]), 106
    scene = wall_camera(0.0, envs=3, **{**fields, "data_types": shown, "res": (width, height)})
    depth, length = (getattr(scene["camera"].data, name).double().numpy()[..., 0] for name in shown)
    assert depth.shape == (3, height, width)
    assert np.mean(depth > 0.0) > 0.8 and depth[depth > 0.0].mean() == pytest.approx(2.0, abs=0.01)
    np.testing.assert_allclose(depth * 1000.0, np.round(depth * 1000.0), atol=5e-4)
    focal = stage_of(name).focal_px * 106 / fields["res"][0]
    u, v = np.meshgrid(np.arange(width) + 0.5 - 53.0, np.arange(height) + 0.5 - 0.5 * height)
    np.testing.assert_allclose(length, depth * np.sqrt(1.0 + (u**2 + v**2) / focal**2), rtol=1e-5)


@pytest.mark.parametrize("types", [(), ("normals",)], ids=["by_depth", "by_normals"])
def test_incidence_equals_that_of_the_wall_for_any_source(types: tuple[str, ...]) -> None:
    """At a yaw of 66 degrees the share of valid values is the configured one, with or without the camera's true
    normals.
    """
    yaw, focal, envs = math.radians(66.0), 60.0, 300
    stage = sn.stages.StereoDepth(baseline=0.05, focal_px=focal, grazing=(0.2, 0.5), shadow=False)
    shown = ("distance_to_image_plane", *types)
    scene = wall_camera(yaw, envs, res=(24, 16), fx=focal, data_types=shown, stages=(stage,), max_distance=100.0)
    share = (scene["camera"].data.distance_to_image_plane.numpy()[..., 0] > 0.0).mean(axis=0)
    u, v = np.meshgrid((np.arange(24) + 0.5 - 12.0) / focal, (np.arange(16) + 0.5 - 8.0) / focal)
    cosine = (math.cos(yaw) + u * math.sin(yaw)) / np.sqrt(1.0 + u**2 + v**2)  # forward x, right -y: rotated by the yaw
    expected = np.clip((cosine - 0.2) / 0.3, 0.0, 1.0)
    bound = 4.9 * math.sqrt((expected * (1.0 - expected)).sum() / envs) / expected.size
    assert share.mean() == pytest.approx(expected.mean(), abs=bound)
    assert (np.abs(share - expected) <= 5.5 * np.sqrt(expected * (1.0 - expected) / envs) + 2e-3).all()
