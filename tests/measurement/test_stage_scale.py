"""g-sensitivity: a gyroscope's response to the true specific force."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import sensorium as sn
from sensorium.testing import tumbling_engine

MATRIX = ((1e-3, 2e-3, 0.0), (0.0, -1e-3, 5e-4), (3e-3, 0.0, 2e-3))


def run(stage: sn.stages.GSensitivity, num_envs: int = 3, ticks: int = 20, **kwargs: Any) -> sn.Scene:
    cfg = sn.ImuCfg(fields=("ang_vel_b", "lin_acc_b"), stages=(stage,), **({"body": "body"} | kwargs))
    scene = sn.Scene(tumbling_engine(num_envs), [cfg])
    for _ in range(ticks):
        scene.step(None, 1)
    return scene


def test_the_error_is_g_times_the_true_specific_force() -> None:
    """The reading is w + G f with the *true* f: the accelerometer's noise and bias are not included."""
    scene = run(sn.stages.GSensitivity(matrix=MATRIX), acc_bias=5.0, acc_noise=1.0)
    truth = scene["imu"].ground_truth
    f, w = truth.lin_acc_b.double().numpy(), truth.ang_vel_b.double().numpy()
    expected = w + f @ np.array(MATRIX).T
    np.testing.assert_allclose(scene["imu"].data.ang_vel_b.numpy(), expected, rtol=1e-6, atol=1e-7)
    assert np.abs(expected - w).max() > 5e-3  # the effect is not zero
    assert (scene["imu"].data.lin_acc_b - truth.lin_acc_b).mean() > 4.0


def test_one_or_three_numbers_give_the_diagonal() -> None:
    """A number is G = g I, three numbers are diag(g); with a mount axis each mount senses its own force."""
    for matrix, diagonal in ((0.01, [0.01] * 3), ((0.01, 0.0, -0.02), [0.01, 0.0, -0.02])):
        scene = run(sn.stages.GSensitivity(matrix=matrix), body=None, bodies="body") if matrix == 0.01 else run(
            sn.stages.GSensitivity(matrix=matrix)
        )  # fmt: skip
        truth = scene["imu"].ground_truth
        expected = truth.ang_vel_b.double().numpy() + truth.lin_acc_b.double().numpy() * diagonal
        np.testing.assert_allclose(scene["imu"].data.ang_vel_b.numpy(), expected, rtol=1e-6, atol=1e-7)


def test_distribution_draws_nine_numbers_per_env() -> None:
    """Three forces determine the matrix of an env: nine draws, constant in an episode."""
    scene = run(sn.stages.GSensitivity(matrix=sn.Normal(0.0, 0.01)), num_envs=256, ticks=1)
    forces, errors = [], []
    for _ in range(40):
        scene.step(None, 10)
        truth, data = scene["imu"].ground_truth, scene["imu"].data
        forces.append(truth.lin_acc_b.double().numpy())
        errors.append((data.ang_vel_b.double() - truth.ang_vel_b.double()).numpy())
    f, e = np.stack(forces, axis=1), np.stack(errors, axis=1)  # [env, time, 3]
    g = np.stack([np.linalg.lstsq(f[k], e[k], rcond=None)[0].T for k in range(256)])
    np.testing.assert_allclose(np.einsum("kij,ktj->kti", g, f), e, atol=2e-6)
    assert g.std() == pytest.approx(0.01, rel=5.0 / math.sqrt(2.0 * g.size))
    off = np.corrcoef(g.reshape(256, 9), rowvar=False)[np.triu_indices(9, 1)]
    assert np.abs(off).max() < 5.0 / math.sqrt(256)


def test_a_sensor_without_the_force_is_refused() -> None:
    """The source must be one of the sensor's fields, have three axes, and be spelled correctly."""
    engine = tumbling_engine(2)
    stage = sn.stages.GSensitivity(matrix=0.01)
    with pytest.raises(sn.ConfigError, match=r"stages\.0.*a field 'lin_acc_b'; this one has ang_vel_b"):
        sn.Scene(engine, [sn.ImuCfg(body="body", fields=("ang_vel_b",), stages=(stage,))])
    wrong = stage.replace(source="lin_acc")
    with pytest.raises(sn.ConfigError, match="lin_acc_b"):
        sn.Scene(engine, [sn.ImuCfg(body="body", fields=("ang_vel_b", "lin_acc_b"), stages=(wrong,))])
    four = stage.replace(source="quat_w")
    with pytest.raises(sn.ConfigError, match="of the same shape, not"):
        sn.Scene(engine, [sn.ImuCfg(body="body", fields=("ang_vel_b", "quat_w"), stages=(four,))])
    for matrix in ((1.0, 2.0), (MATRIX, MATRIX), sn.Normal((0.0, 0.0, 0.0), 1.0)):
        with pytest.raises(sn.ConfigError, match=r"3x3|nine"):
            sn.stages.GSensitivity(matrix=matrix)


def test_three_mounts_are_not_three_axes() -> None:
    """Three numbers of three mounts, or a quaternion per mount, are not a vector whose axes could couple."""
    engine = sn.TensorEngine(1, 0.01, bodies=("a", "b", "c"))
    for stage in (
        sn.stages.ScaleError(cross_axis=0.1),
        sn.stages.GSensitivity(matrix=0.1, fields=("pressure",), source="pressure"),
    ):
        with pytest.raises(sn.ConfigError, match=r"stages\.0.*three-axis fields.*'pressure'"):
            sn.Scene(engine, [sn.BarometerCfg(bodies=".*", stages=(stage,))])
    scene = sn.Scene(
        engine, [sn.ImuCfg(bodies=".*", fields=("ang_vel_b",), stages=(sn.stages.ScaleError(cross_axis=0.1),))]
    )
    assert scene["imu"].data.ang_vel_b.shape == (1, 3, 3)
