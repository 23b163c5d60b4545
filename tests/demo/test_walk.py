"""The demo's robot walks on its ground for as long as the simulation runs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

import sensorium as sn
from sensorium.demo import robots
from sensorium.demo.gait import Trot, steer

Array = npt.NDArray[np.float64]

PERIOD = 0.01
"""Seconds between two controls, as in `sensorium serve demo`."""


def walk(envs: int, seconds: float) -> Array:
    """Return the poses of the trunks [time, env, 7] at every second of the demo's walk."""
    robot = robots.ROBOTS["demo"]
    engine = robot.engine(envs, "cpu")
    scene = sn.Scene(engine, discover=False)
    robot.start(scene)
    control, ticks = robot.control(scene), round(PERIOD / engine.dt)
    poses = [engine.qpos[:, :7].clone()]
    for step in range(round(seconds / PERIOD)):
        engine.step(control(None, step * PERIOD), ticks)  # type: ignore[arg-type]
        if (step + 1) % round(1.0 / PERIOD) == 0:
            poses.append(engine.qpos[:, :7].clone())
    return torch.stack(poses).numpy()


def check_it_walks(poses: Array) -> None:
    assert np.isfinite(poses).all()
    x, y, z = np.moveaxis(poses[..., :3], -1, 0)
    assert x.min() > -4.0 and x.max() < 12.0 and np.abs(y).max() < 5.0  # uneven ground, and the level metres round it
    assert z.min() > 0.26 and z.max() < 0.36
    assert (1.0 - 2.0 * (poses[..., 4] ** 2 + poses[..., 5] ** 2)).min() > 0.98  # upright
    path = np.linalg.norm(np.diff(poses[..., :2], axis=0), axis=-1)  # m in each second
    paths = np.lib.stride_tricks.sliding_window_view(path, 10, axis=0).sum(axis=-1)
    assert paths.min() > 2.5 and path.mean() > 0.35
    assert np.ptp(x, axis=0).min() > 4.0  # it goes somewhere, not round in a small circle


def test_robot_stays_on_its_ground() -> None:
    """A straight walk of 38 s would end 14 m from its start, 2 m beyond the limit."""
    check_it_walks(walk(1, 38.0))


@pytest.mark.soak
def test_robot_walks_for_hours() -> None:
    """The robot walks for two hours in each of two environments."""
    check_it_walks(walk(2, 7200.0))


def test_robot_turns_to_the_centre_only_near_the_rim() -> None:
    """Yaw rates are 0 in the middle, turn to the nearer side elsewhere, and change steadily with the position."""

    def rate(x: float, y: float, yaw: float) -> float:
        pose = torch.tensor([[x, y, 0.3, np.cos(yaw / 2.0), 0.0, 0.0, np.sin(yaw / 2.0)]], dtype=torch.float64)
        return float(steer(pose))

    assert rate(0.0, 0.0, 0.2) == rate(8.9, 1.9, 1.0) == rate(4.0, -1.9, -3.0) == 0.0
    assert rate(11.0, 0.0, np.pi) == pytest.approx(0.0, abs=1e-12)  # it already heads for the middle
    assert rate(11.0, 1.0, 0.0) < -0.5 and rate(11.0, -1.0, 0.0) > 0.5  # the shorter way round
    assert rate(4.0, 4.0, np.pi) > 0.5 and rate(4.0, 4.0, 0.0) < -0.5
    rates = [rate(x, 0.3, 0.4) for x in np.linspace(8.5, 10.0, 301)]
    assert max(np.abs(np.diff(rates))) < 0.02


@pytest.mark.parametrize("late", [3600.0, 86_400.0 * 30])
def test_gait_is_unchanged_after_a_month(late: float) -> None:
    """Strides repeat: after any whole number of strides the targets equal those of the first."""
    trot = Trot(frequency=2.5)
    for time in np.arange(1.0, 1.4, PERIOD):
        torch.testing.assert_close(trot.targets(time + late), trot.targets(time), rtol=0.0, atol=1e-5)
