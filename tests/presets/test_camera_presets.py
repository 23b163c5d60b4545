"""Presets of colour cameras: sources, lenses, and images with the stated errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import sensorium as sn
from sensorium.presets import presets

CAMERAS = {name: info for name, info in presets().items() if info.kind == "camera"}
FOV = {"d435_rgbd": 69.4, "d455_rgbd": 90.0, "zed2": 84.3, "oak_d": 66.1, "pi_hq": 55.3}
"""Horizontal field of view, degrees."""


def test_every_camera_states_what_it_estimates() -> None:
    assert CAMERAS.keys() == FOV.keys()
    for info in CAMERAS.values():
        assert info.source and any("Checked" in note for note in info.notes)
        assert any("not checked" in note.lower() or "Recalled" in note for note in info.notes)
        assert any("Estimate" in note for note in info.notes)


@pytest.mark.parametrize("name", CAMERAS)
def test_a_preset_images_a_wall(name: str) -> None:
    """The lens has the device's angle; grey stays grey and reaches the target; depth is near 1 m, or absent."""
    wall = sn.engines.Shape("box", "wall", (0.1, 5.0, 5.0), pos=(1.1, 0.0, 0.0), rgba=(0.6, 0.6, 0.6, 1.0))
    fields: Any = CAMERAS[name].fields
    width = 64
    cfg: Any = sn.preset(
        name, name="camera", body="body", offset={"convention": "world"}, width=width,
        height=round(fields["height"] * width / fields["width"]),
    )  # fmt: skip
    assert type(cfg).from_toml(cfg.to_toml()) == cfg
    scene = sn.Scene(sn.TensorEngine(2, 1 / 30, shapes=[wall]), [cfg], seed=3)
    for _ in range(30):
        scene.update()
    data: Any = scene["camera"].data
    k = data.intrinsic_matrices[0]
    assert 2 * math.degrees(math.atan(0.5 * width / float(k[0, 0]))) == pytest.approx(FOV[name], abs=0.1)
    light = data.linear_rgb.double().numpy().reshape(-1, 3)
    assert light.mean() == pytest.approx(0.18, rel=0.1)
    np.testing.assert_allclose(light.mean(axis=0), light.mean(), rtol=0.03)
    truth: Any = scene["camera"].ground_truth
    assert (data.rgb != truth.rgb).any()
    if "distance_to_image_plane" in fields["data_types"]:
        depth = data.distance_to_image_plane
        assert abs(float(depth[depth > 0.0].median()) - 1.0) < 0.02 and (depth == 0.0).float().mean() < 0.3
    else:
        assert data.distance_to_image_plane is None
