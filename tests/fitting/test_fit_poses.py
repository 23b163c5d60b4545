"""Rests in several poses give the errors of an accelerometer without a reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sensorium as sn
from sensorium.cli import main
from sensorium.errors import ArgumentError
from sensorium.fitting import fit_poses

UNITS = {"lin_acc_b": "m/s^2"}
GRAVITY = 9.81
MATRIX = np.array([[1.01, 0.004, -0.006], [0.0, 0.98, 0.008], [0.0, 0.0, 1.005]])
BIAS = np.array([0.1, -0.05, 0.2])
TRUE = {f"bias.{axis}": BIAS[k] for k, axis in enumerate("xyz")}
TRUE |= {f"scale.{axis}": MATRIX[k, k] - 1.0 for k, axis in enumerate("xyz")}
TRUE |= {"cross_axis.xy": 0.004 / 0.98, "cross_axis.xz": -0.006 / 1.005, "cross_axis.yz": 0.008 / 1.005}


def log(seed: int, poses: int = 20, flat: float = 1.0) -> sn.Samples:
    """Return an accelerometer at 200 Hz that rests for 3 s in each of random poses."""
    random = np.random.default_rng(seed)
    directions = random.normal(size=(poses, 3)) * [1.0, 1.0, flat]
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    parts: list[Any] = []
    for first, second in zip(directions, np.roll(directions, -1, axis=0), strict=True):
        share = np.linspace(0.0, 1.0, 150)[:, None]
        turn = first * (1.0 - share) + second * share + 0.3 * random.normal(size=(150, 3))
        parts += [np.repeat(first[None], 600, axis=0), turn]
    true = GRAVITY * np.concatenate(parts)
    values = true @ MATRIX.T + BIAS + 0.02 * random.normal(size=true.shape)
    return sn.Samples(np.arange(len(values)) / 200.0, {"lin_acc_b": values}, UNITS, "log")


def test_intervals_contain_the_true_parameters() -> None:
    """Of 10 times 9 parameters about 86 are inside, and at least 79; the intervals are narrow."""
    inside = 0
    for seed in range(10):
        found = fit_poses(log(seed), gravity=GRAVITY).parameters
        assert found.keys() == {f"lin_acc_b.{name}" for name in TRUE}
        inside += sum(found[f"lin_acc_b.{name}"].low <= value <= found[f"lin_acc_b.{name}"].high
                      for name, value in TRUE.items())  # fmt: skip
        assert found["lin_acc_b.scale.x"].high - found["lin_acc_b.scale.x"].low < 0.002
    assert inside >= 79


def test_few_poses_give_bias_and_scale() -> None:
    """Of 10 times 6 parameters about 57 are inside, and at least 53, although the sensor is misaligned."""
    inside = 0
    wanted = {f"lin_acc_b.{name}": value for name, value in TRUE.items() if "cross" not in name}
    for seed in range(10):
        found = fit_poses(log(seed, poses=11), gravity=GRAVITY)
        assert found.parameters.keys() == wanted.keys()
        assert "expected at least 12" in found.refused["lin_acc_b.cross_axis.xy"]
        inside += sum(found.parameters[name].low <= value <= found.parameters[name].high
                      for name, value in wanted.items())  # fmt: skip
    assert inside >= 53


def test_the_command_writes_a_preset(tmp_path: Path) -> None:
    samples, path = log(3), tmp_path / "acc.toml"
    np.savez(tmp_path / "log.npz", time=samples.time, lin_acc_b=samples.values["lin_acc_b"])
    command = ["fit", str(tmp_path / "log.npz"), "--units", "lin_acc_b=m/s^2", "--poses", "--gravity", str(GRAVITY)]
    assert main([*command, "--to", str(path)]) == 0
    given = sn.preset(str(path), site="imu").to_dict()
    assert given["bias"]["lin_acc_b"] == pytest.approx(BIAS, abs=0.005)
    (stage,) = given["stages"]
    matrix = np.eye(3)
    matrix[~np.eye(3, dtype=bool)] = stage["cross_axis"]  # T of ScaleError, row by row
    assert matrix @ np.diag(1.0 + np.array(stage["scale"])) == pytest.approx(MATRIX, abs=0.001)


def test_poses_that_do_not_determine_the_parameters_are_refused() -> None:
    with pytest.raises(ArgumentError, match="condition number"):
        fit_poses(log(0, flat=0.0))
    with pytest.raises(ArgumentError, match="got 8 rests in different directions, expected at least 9"):
        fit_poses(log(0, poses=8))
    with pytest.raises(ArgumentError, match="expected lin_acc_b"):
        fit_poses(sn.Samples(np.arange(3.0), {"ang_vel_b": np.zeros((3, 3))}, {"ang_vel_b": "rad/s"}, "log"))
