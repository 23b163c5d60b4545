"""Rules for all depth error models: misses, truth, envs, resets, files, and rejected fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from depth_camera import Z, camera, measured, plane, step, world

import sensorium as sn
from sensorium.testing import check_sensor

STAGES: dict[str, Any] = {
    "stereo": sn.stages.StereoDepth(
        baseline=0.05, fov_deg=60.0, noise_px=0.1, quantum=1 / 32, locking=0.02, max_disparity=100.0,
        edge_fattening=0.5, grazing=(0.1, 0.4), window=3, slow_share=0.3, slow_time=0.05, max_range=9.0,
    ),
    "kinect": sn.stages.KinectDepth(focal_px=40.0, baseline=0.5, grazing=(0.1, 0.4), principal_point=(15.0, 11.0)),
    "redwood": sn.stages.KinectDepth(focal_px=40.0, variant="redwood"),
    "tof": sn.stages.TofDepth(
        focal_px=40.0, modulation_hz=20e6, ambient=1e4, contrast=0.5, min_signal=500.0, multipath=0.1, flying=0.5,
        wiggle=0.01, window=3,
    ),
}  # fmt: skip
ALL = pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)


def room(height: int = 22, width: int = 30) -> np.ndarray:
    """Return a slanted wall behind a strip, with a hole to the sky: +inf."""
    image = np.minimum(plane(height, width, 40.0, 3.0, 0.9), step(height, width, 1.0, np.inf, 14, 20))
    image[:6, 4:18] = np.inf
    return image


@ALL
def test_stage_neither_removes_nor_adds_misses(stage: Any) -> None:
    """+inf in the truth is +inf in the measurement; every other pixel has a value >= 0."""
    out = measured(room(), stage, envs=6, samples=3)
    assert (np.isinf(out) == np.isinf(room())).all()
    assert not np.isnan(out).any() and (out >= 0.0).all()
    assert (out[np.isfinite(out)] > 0.0).mean() > 0.3


@ALL
def test_miss_reported_as_a_number_stays_a_miss(stage: Any) -> None:
    """Cameras that report 0 for a miss also do so with errors enabled."""
    image = np.where(np.isinf(room()), 0.0, room())
    assert (measured(image, stage, envs=3)[:, np.isinf(room())] == 0.0).all()


@ALL
def test_env_is_independent_of_env_count(stage: Any) -> None:
    """Env 2 of 3 equals env 2 of 40, and neither two envs nor two samples are equal."""
    few, many = measured(room(), stage, envs=3, samples=2), measured(room(), stage, envs=40, samples=2)
    np.testing.assert_array_equal(few[:3], many[:3])
    np.testing.assert_array_equal(few[3:], many[40:43])
    assert not np.array_equal(many[0], many[1]) and not np.array_equal(few[0], few[3])


@pytest.mark.usefixtures("at_once")
@ALL
def test_captured_and_launched_results_are_equal(stage: Any) -> None:
    """Scenes that replay captured graphs give the same bits."""
    cfg = camera(room(), stage)
    scenes = world(cfg, 3, capture=False), world(cfg, 3, capture=True)
    for _ in range(4):
        for scene in scenes:
            scene.update()
        values = [scene["camera"].data.distance_to_image_plane for scene in scenes]
        assert torch.equal(*values)


@ALL
def test_mount_and_channel_axes_are_optional(stage: Any) -> None:
    """A field [height, width] is measured as [height, width, 1] with the same draws; each mount has separate draws."""
    flat = camera({"flat": room()}, stage.replace(fields=("flat",)))
    scene = world(flat)
    scene.update()
    values = scene["camera"].data.flat
    assert values.shape == (1, 22, 30)
    assert torch.equal(torch.isinf(values[0]), torch.from_numpy(np.isinf(room())))
    scene = world(camera({"flat": np.stack([room(), room()])}, stage.replace(fields=("flat",))))
    scene.update()
    two = scene["camera"].data.flat
    assert two.shape == (1, 2, 22, 30) and not torch.equal(two[0, 0], two[0, 1])
    assert torch.equal(two[0, 0], values[0])


@ALL
def test_stages_round_trip_through_files(stage: Any) -> None:
    """JSON and TOML restore the same stage, inside its sensor's config."""
    cfg = camera(room(), stage)
    assert type(cfg).from_json(cfg.to_json()) == cfg
    assert type(cfg).from_toml(cfg.to_toml()) == cfg


@ALL
@pytest.mark.parametrize("name", ["distance_to_camera", "normals", "reflectance"])
def test_fields_without_z_depth_are_refused(stage: Any, name: str) -> None:
    """The message names the intended field."""
    images = {Z: room(), "distance_to_camera": room(), "reflectance": room(), "normals": np.zeros((22, 30, 3))}
    with pytest.raises(sn.ConfigError, match=r"a field of z-depth.*distance_to_image_plane"):
        world(camera({n: images[n] for n in (Z, name)}, stage.replace(fields=(name,))))


@pytest.mark.slow
def test_all_rules_of_the_contract_hold() -> None:
    """A camera with each of the models passes every rule of `check_sensor`."""
    for stage in STAGES.values():
        assert len(check_sensor(camera(room(), stage))) >= 15


def test_earlier_imperfection_is_included() -> None:
    """The bias of the same sensor is included in the depth model's input."""
    still = STAGES["tof"].replace(noise_scale=0.0, wiggle=0.0, multipath=0.0)
    np.testing.assert_allclose(measured(np.full((8, 8), 2.0), still, bias=0.25), 2.25, rtol=1e-6)


def test_a_reset_does_not_disturb_the_other_envs() -> None:
    """Env 1 is reset off the grid of samples; the others continue as in a scene without a reset."""
    cfg = camera(room(), STAGES["stereo"], update_period=0.03)
    scenes = world(cfg, 3), world(cfg, 3)
    for k in range(8):
        for scene in scenes:
            scene.update()
        if k == 3:
            scenes[0].reset([1])
        a, b = (scene["camera"].data.distance_to_image_plane for scene in scenes)
        assert torch.equal(a[[0, 2]], b[[0, 2]])
        assert (k < 3) == torch.equal(a[1], b[1])
