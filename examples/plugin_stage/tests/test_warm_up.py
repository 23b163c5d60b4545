"""The stage decays as specified, resets only masked environments, can be saved, and passes `check_sensor` on an IMU."""

import math

import pytest
import sensorium as sn
import torch
from sensorium.testing import check_sensor, tumbling_engine

from warm_up import WarmUp

STAGE = WarmUp(fields=("ang_vel_b",), start=0.02, tau=0.05)


def errors(scene: sn.Scene) -> torch.Tensor:
    """Return measured minus true angular velocity, rad/s."""
    gyro = scene["imu"]
    return gyro.data.ang_vel_b - gyro.ground_truth.ang_vel_b


def test_the_bias_dies_away_exponentially() -> None:
    scene = sn.Scene(tumbling_engine(8, dt=0.002), [sn.ImuCfg(body="body", stages=(STAGE,))])
    start = errors(scene).clone()
    for k in range(1, 40):
        scene.step()
        torch.testing.assert_close(errors(scene), start * math.exp(-k * 0.002 / 0.05), rtol=0.0, atol=1e-6)


def test_the_time_constant_does_not_depend_on_the_rate() -> None:
    """At a sampling period of 10 ms, the bias after 40 ms is the same."""
    cfg = sn.ImuCfg(body="body", update_period=0.01, stages=(STAGE,))
    scene = sn.Scene(tumbling_engine(8, dt=0.002), [cfg])
    start = errors(scene).clone()
    scene.step(substeps=20)
    torch.testing.assert_close(errors(scene), start * math.exp(-0.04 / 0.05), rtol=0.0, atol=1e-6)


def test_the_first_bias_has_the_given_deviation() -> None:
    """2000 environments and 3 columns. The bounds are four standard errors of a deviation."""
    scene = sn.Scene(tumbling_engine(2000), [sn.ImuCfg(body="body", stages=(STAGE,))])
    deviation = errors(scene).std().item()
    assert abs(deviation - 0.02) < 4 * 0.02 / math.sqrt(2 * 6000)


def test_a_reset_draws_anew_for_its_environments_alone() -> None:
    scene = sn.Scene(tumbling_engine(4), [sn.ImuCfg(body="body", stages=(STAGE,))])
    first = errors(scene).clone()
    scene.step(substeps=5)
    later = errors(scene).clone()
    scene.reset([2])
    now = errors(scene)
    assert torch.equal(now[[0, 1, 3]], later[[0, 1, 3]])
    assert (now[2] - first[2]).abs().min() > 1e-4  # another episode, another bias
    assert now[2].abs().max() > 1e-3


def test_it_survives_json_and_toml_by_its_kind() -> None:
    cfg = sn.ImuCfg(body="body", stages=(STAGE,))
    assert 'kind = "warm_up"' in cfg.to_toml()
    assert sn.ImuCfg.from_toml(cfg.to_toml()) == cfg
    assert sn.ImuCfg.from_json(cfg.to_json()) == cfg


def test_a_time_constant_of_nothing_is_refused() -> None:
    with pytest.raises(sn.ConfigError, match=r"WarmUp\.tau: got 0\.0, expected greater than 0"):
        WarmUp(start=0.1, tau=0.0)


def test_a_sensor_with_the_stage_passes_check_sensor() -> None:
    check_sensor(sn.ImuCfg(body="body", stages=(STAGE,)))
