"""Both sensors against geometry, and every rule of `check_sensor`."""

import math
from typing import Any

import pytest
import sensorium as sn
import torch
from sensorium.testing import check_sensor

from full_control import BeamCfg, FloorImageCfg


def engine(num_envs: int, height: float = 1.0, tilt: float = 0.0) -> sn.TensorEngine:
    """Return bodies at a height, m, with a tilt about their y axis, rad."""
    made = sn.TensorEngine(num_envs, dt=0.01, bodies=("drone",))
    made.body_pos_w[:, 0, 2] = height
    made.body_quat_w = (math.cos(tilt / 2), 0.0, math.sin(tilt / 2), 0.0)
    return made


def test_a_steady_beam_is_exact_in_both_branches() -> None:
    """Height over the cosine of the tilt."""
    cfg = BeamCfg(body="drone", tremble=0.0)
    scene = sn.Scene(engine(2, height=1.0, tilt=0.6), [cfg])
    expected = torch.full((2,), 1.0 / math.cos(0.6))
    torch.testing.assert_close(scene[cfg].ground_truth.distance, expected)
    assert torch.equal(scene[cfg].data.distance, scene[cfg].ground_truth.distance)


def test_a_beam_that_trembles_measures_too_much() -> None:
    """From above, tilts a, b ~ N(0, s) increase the distance: E[sqrt(1 + a^2 + b^2)] = 1 + s^2 + O(s^4)."""
    cfg = BeamCfg(body="drone", tremble=0.05)
    scene = sn.Scene(engine(20000), [cfg])
    assert torch.all(scene[cfg].ground_truth.distance == 1.0)
    excess = scene[cfg].data.distance - 1.0
    assert torch.all(excess >= 0.0)
    mean_error = 0.05**2 / math.sqrt(20000)  # (a^2 + b^2)/2 is exponential: its deviation is its mean
    assert abs(excess.mean().item() - 0.05**2) < 4 * mean_error + 0.05**4


def test_the_noise_decides_what_is_hit() -> None:
    """At the end of the range, the true beam hits and some trembling beams miss, which added noise cannot model."""
    cfg = BeamCfg(body="drone", tremble=0.05, max_range=1.002)
    scene = sn.Scene(engine(2000), [cfg])
    assert torch.all(scene[cfg].ground_truth.distance == 1.0)
    misses = torch.isinf(scene[cfg].data.distance).float().mean().item()
    chance = math.exp(-(1.002**2 - 1.0) / (2 * 0.05**2))  # of a^2 + b^2 above d^2 - 1: a Rayleigh tail
    assert abs(misses - chance) < 4 * math.sqrt(chance * (1 - chance) / 2000)


def test_what_follows_still_works_for_a_beam() -> None:
    """Resolution and delay come from the standard chain and the ring."""
    cfg = BeamCfg(body="drone", tremble=0.0, resolution=0.25, delay=0.01)
    scene = sn.Scene(engine(1, height=0.9), [cfg])
    scene.engine.body_pos_w[:, 0, 2] = 0.4
    scene.update()
    assert scene[cfg].data.distance.tolist() == [1.0]
    assert scene[cfg].ground_truth.distance.tolist() == pytest.approx([0.4])


def test_the_floor_is_chequered() -> None:
    """A tile has two by two pixels. A move of half a tile to the right shifts the image one pixel to the left."""
    cfg = FloorImageCfg(body="drone", width=8, height=4, pixel=0.5, tile=1.0)
    scene = sn.Scene(engine(1), [cfg])
    rows = ["##..##..", "##..##..", "..##..##", "..##..##"]
    expected = torch.tensor([[255 * (pixel == ".") for pixel in row] for row in rows], dtype=torch.uint8)
    assert torch.equal(scene[cfg].data.image[0], expected)
    scene.engine.body_pos_w[:, 0, 0] = 0.5
    scene.update()
    assert torch.equal(scene[cfg].data.image[0, :, :-1], expected[:, 1:])


def test_nothing_is_allocated_for_the_floor_image() -> None:
    """Except one byte per mount, which records whether the engine's state was finite."""
    cfg = FloorImageCfg(body="drone")
    scene = sn.Scene(engine(16), [cfg])
    assert scene[cfg].buffers.nbytes == 16


def test_the_floor_image_is_drawn_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computed once for all reads of a tick, and not at all without a read."""
    cfg = FloorImageCfg(body="drone")
    scene = sn.Scene(engine(1), [cfg])
    drawn = []
    monkeypatch.setattr(scene[cfg].buffers.plan.hooks, "compute", lambda truth, measured: drawn.append(scene.tick))
    for tick in range(1, 5):
        scene.update()
        if tick == 3:
            scene[cfg].data, scene[cfg].read(), scene[cfg].ground_truth
    assert drawn == [3]


@pytest.mark.parametrize("knob", [{"noise": 0.1}, {"delay": 0.1}, {"history_length": 2}], ids=str)
def test_what_it_cannot_honour_it_refuses(knob: dict[str, Any]) -> None:
    with pytest.raises(sn.ConfigError, match=rf"FloorImageCfg\('floor_image'\)\.{next(iter(knob))}: .* own memory"):
        sn.Scene(engine(1), [FloorImageCfg(body="drone", **knob)])


@pytest.mark.parametrize(
    "cfg",
    [
        BeamCfg(body="body", floor=-0.5),
        BeamCfg(sites="site", floor=-0.2, tremble=0.2, rate_hz=200.0),
        FloorImageCfg(body="body", width=6, height=4),
    ],
    ids=str,
)
def test_they_keep_the_contract(cfg: sn.SensorCfg[Any]) -> None:
    check_sensor(cfg)
