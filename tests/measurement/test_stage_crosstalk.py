"""Crosstalk, checked against matrix products in float64 and the statistics of a drawn distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import synthetic as syn
import torch
from numpy.typing import NDArray

import sensorium as sn
from sensorium.testing import check_sensor

Array = NDArray[np.float64]
SIX = ("force", "torque")
EPS = 2.0**-24


def engine_of(envs: int, bodies: tuple[str, ...] = ("hand",)) -> sn.TensorEngine:
    return sn.TensorEngine(envs, 0.01, bodies=bodies, provides=("pose", "joint_wrench"))


def run(stage: sn.stages.Crosstalk, loads: Array, bodies: tuple[str, ...] = ("hand",), **kwargs: Any) -> Array:
    """Return the readings of force/torque sensors for loads `[load, env, mount, 6]`, `[load, env, mount, 6]`."""
    engine = engine_of(loads.shape[1], bodies)
    scene = sn.Scene(engine, [sn.ForceTorqueCfg(name="ft", bodies=".*", stages=(stage,), **kwargs)])
    rows = []
    for load in torch.tensor(loads, dtype=torch.float32):
        engine.body_parent_force_w[:], engine.body_parent_torque_w[:] = load[..., :3], load[..., 3:]
        scene.update()
        data = scene["ft"].data
        rows.append(torch.cat([data.force, data.torque], dim=-1).double().numpy())
        truth = scene["ft"].ground_truth
        assert torch.equal(torch.cat([truth.force, truth.torque], dim=-1), load)
    return np.stack(rows)


@pytest.mark.parametrize("mounts", [1, 3])
def test_all_elements_of_all_fields_are_mixed_by_one_matrix(mounts: int) -> None:
    """The reading is (I + X) (force, torque) at each mount separately; the truth is unchanged."""
    rng = np.random.default_rng(1)
    matrix, loads = 0.1 * rng.normal(size=(6, 6)), rng.normal(size=(4, 2, mounts, 6))
    stage = sn.stages.Crosstalk(fields=SIX, matrix=tuple(map(tuple, matrix)))
    out = run(stage, loads, tuple("abc"[:mounts]))
    np.testing.assert_allclose(out, loads + loads @ matrix.T, atol=10.0 * EPS * np.abs(loads).max())


def test_the_order_of_the_fields_is_the_order_of_the_elements() -> None:
    """With the torque named first, row 0 of the matrix is that of the torque about x."""
    matrix = np.zeros((6, 6))
    matrix[0, 3] = 0.5  # torque x picks up half of force x
    stage = sn.stages.Crosstalk(fields=("torque", "force"), matrix=tuple(map(tuple, matrix)))
    out = run(stage, np.array([[[[2.0, 0.0, 0.0, 0.0, 0.0, 0.0]]]]))
    np.testing.assert_array_equal(out[0, 0, 0], [2.0, 0.0, 0.0, 1.0, 0.0, 0.0])


def test_a_number_is_the_same_coupling_everywhere_but_on_the_diagonal() -> None:
    """Each of three elements reads itself and 0.1 of the two others."""
    out = run(sn.stages.Crosstalk(fields=("force",), matrix=0.1), np.array([[[[1.0, 2.0, 4.0, 7.0, 8.0, 9.0]]]]))
    np.testing.assert_allclose(out[0, 0, 0], [1.6, 2.5, 4.3, 7.0, 8.0, 9.0], rtol=1e-6)


@pytest.mark.parametrize("scale", [(300.0, 30.0), (300.0, 300.0, 300.0, 30.0, 30.0, 30.0)])
def test_fractions_of_full_scale_match_data_sheet_percentages(scale: tuple[float, ...]) -> None:
    """With 2 % from every channel, 300 N of force give 2 % of 30 N m as torque, and 30 N m give 2 % of 300 N."""
    stage = sn.stages.Crosstalk(fields=SIX, matrix=0.02, full_scale=scale)
    out = run(stage, np.stack([np.eye(6)[2] * 300.0, np.eye(6)[4] * 30.0])[:, None, None])[:, 0, 0]
    np.testing.assert_allclose(out[0], [6.0, 6.0, 300.0, 0.6, 0.6, 0.6], rtol=1e-6)
    np.testing.assert_allclose(out[1], [6.0, 6.0, 6.0, 0.6, 30.0, 0.6], rtol=1e-6)


def identified(loads: Array, readings: Array) -> Array:
    """Return the matrices C `[env, 6, 6]` with readings = C loads by least squares, as in a calibration."""
    solve = [np.linalg.lstsq(loads[:, env], readings[:, env], rcond=None)[0].T for env in range(loads.shape[1])]
    return np.stack(solve)


def test_distribution_draws_off_diagonal_entries_once_per_env() -> None:
    """Six loads determine C of each env: ones on the diagonal, 30 draws off it, others at a reset."""
    envs, sd = 200, 0.02
    loads = np.broadcast_to(np.eye(6)[:, None, None], (6, envs, 1, 6))
    stage = sn.stages.Crosstalk(fields=SIX, matrix=sn.Normal(0.0, sd))
    c = identified(loads[:, :, 0], run(stage, loads)[:, :, 0])
    off = c[:, ~np.eye(6, dtype=bool)]
    np.testing.assert_allclose(np.diagonal(c, axis1=1, axis2=2), 1.0, atol=1e-6)
    assert off.std() == pytest.approx(sd, rel=5.0 / math.sqrt(2.0 * off.size))
    assert abs(off.mean()) < 5.0 * sd / math.sqrt(off.size)
    correlations = np.corrcoef(off, rowvar=False)[np.triu_indices(30, 1)]
    assert np.abs(correlations).max() < 5.5 / math.sqrt(envs)


def test_matrices_are_redrawn_at_a_reset_of_their_env_only() -> None:
    """The reading of a constant load changes in the reset env, and in no other."""
    engine = engine_of(3)
    engine.body_parent_force_w = (1.0, 2.0, 3.0)
    stage = sn.stages.Crosstalk(fields=SIX, matrix=sn.Uniform(-0.1, 0.1))
    scene = sn.Scene(engine, [sn.ForceTorqueCfg(name="ft", body="hand", stages=(stage,))])
    scene.update()
    before = scene["ft"].read().torque
    scene.reset([1])
    after = scene["ft"].read().torque
    assert torch.equal(before[[0, 2]], after[[0, 2]]) and not torch.equal(before[1], after[1])


def test_choice_among_matrices_picks_a_whole_matrix() -> None:
    """For devices with known calibrations, each env has one of them, diagonal included."""
    rng = np.random.default_rng(3)
    devices = 0.05 * rng.normal(size=(2, 36))
    stage = sn.stages.Crosstalk(fields=SIX, matrix=sn.Choice(tuple(map(tuple, devices))))
    loads = np.broadcast_to(np.eye(6)[:, None, None], (6, 40, 1, 6))
    c = identified(loads[:, :, 0], run(stage, loads)[:, :, 0]) - np.eye(6)
    distance = np.abs(c.reshape(40, 1, 36) - devices).max(axis=2)
    assert distance.min(axis=1).max() < 1e-6
    assert set(distance.argmin(axis=1)) == {0, 1}


def test_fields_of_any_size_are_mixed_if_the_size_is_given() -> None:
    """A vector of three and a scalar are four elements."""
    stage = sn.stages.Crosstalk(fields=("vec", "speed"), matrix=0.5, size=4)
    scene = syn.world([syn.ProbeCfg(name="p", fields=("vec", "speed"), stages=(stage,))], 2)
    truth, data = scene["p"].ground_truth, scene["p"].data
    x = torch.cat([truth.vec, truth.speed[:, None]], dim=1)
    expected = 0.5 * x + 0.5 * x.sum(dim=1, keepdim=True)
    torch.testing.assert_close(torch.cat([data.vec, data.speed[:, None]], dim=1), expected)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({}, "matrix"),
        ({"matrix": ((1.0, 2.0),)}, "a square matrix"),
        ({"matrix": (1.0, 2.0, 3.0, 4.0)}, "a square matrix"),
        ({"matrix": sn.Normal((0.0, 0.0), 1.0)}, "numbers or of whole matrices"),
        ({"matrix": 0.1, "full_scale": 0.0}, "numbers > 0"),
        ({"matrix": 0.1, "full_scale": sn.Uniform(1.0, 2.0)}, "fixed numbers for the device"),
        ({"matrix": 0.1, "size": 1}, ">= 2"),
        ({"matrix": ((0.0, 1.0), (1.0, 0.0)), "size": 3}, "number of rows"),
    ],
)
def test_invalid_matrix_is_refused(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        sn.stages.Crosstalk(fields=SIX, **fields)


@pytest.mark.parametrize(
    ("stage", "match"),
    [
        (
            sn.stages.Crosstalk(fields=SIX, matrix=((0.0, 1.0), (1.0, 0.0))),
            "over the 6 elements of force, torque, not over 2",
        ),
        (sn.stages.Crosstalk(fields=SIX, matrix=0.1, size=4), "6 elements of force, torque, so size=6"),
        (
            sn.stages.Crosstalk(fields=SIX, matrix=0.1, full_scale=(1.0, 2.0, 3.0)),
            "each of 6 elements or 2 fields, not 3",
        ),
        (sn.stages.Crosstalk(matrix=0.1), "fields"),
    ],
)
def test_a_matrix_that_does_not_fit_the_sensor_is_refused(stage: sn.stages.Crosstalk, match: str) -> None:
    """The fault is found when the scene is built, and the error states the number of elements."""
    with pytest.raises(sn.ConfigError, match=match):
        sn.Scene(engine_of(1), [sn.ForceTorqueCfg(body="hand", stages=(stage,))])


def test_contract_holds() -> None:
    """An IMU with crosstalk between gyroscope and accelerometer passes every rule."""
    stage = sn.stages.Crosstalk(fields=("ang_vel_b", "lin_acc_b"), matrix=sn.Normal(0.0, 0.01))
    cfg = sn.ImuCfg(body="body", fields=("ang_vel_b", "lin_acc_b"), stages=(stage,))
    assert "resuming_is_exact" in check_sensor(cfg)
