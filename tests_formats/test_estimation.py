"""A Kalman filter with exported IMU and GNSS values estimates states, biases and its own uncertainty consistently."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from scipy.stats import chi2

from sensorium.cli import main

Array = NDArray[np.float64]
ENVS, SECONDS = 32, 20
GRAVITY = np.array([0.0, 0.0, -9.81])
POS, VEL, TURN, GYRO, ACC = (slice(k, k + 3) for k in range(0, 15, 3))
START = np.repeat([0.1, 0.1, 0.02, 0.01, 0.1], 3)
"""Deviations of the states at the start; those of the biases are those of the rig."""
RIG = """
[[sensor]]
kind = "imu"
name = "imu"
body = "body"
fields = ["ang_vel_b", "lin_acc_b"]
rate_hz = 200.0
gyro_noise_density = 1e-3
acc_noise_density = 1e-2
gyro_random_walk_density = 1e-4
acc_random_walk_density = 1e-3
gyro_bias = {normal = [0.0, 0.01]}
acc_bias = {normal = [0.0, 0.1]}

[[sensor]]
kind = "gnss"
name = "gnss"
body = "body"
rate_hz = 5.0
pos_noise = 0.05
vel_noise = 0.05
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The drone's flight in many environments, which differ in their noise, as tables and as calibration."""
    root = tmp_path_factory.mktemp("estimation")
    (root / "rig.toml").write_text(RIG)
    run = ["run", "--trajectory", "drone", "--rig", f"{root}/rig.toml", "--envs", str(ENVS), "--seconds", str(SECONDS)]
    assert main([*run, "--record", f"{root}/run.mcap", "--states"]) == 0
    assert main(["export", f"{root}/run.mcap", "--to", str(root), "--format", "csv"]) == 0
    assert main(["calib", f"{root}/run.mcap", "--to", str(root)]) == 0
    return root


def read(file: Path, *fields: str) -> list[Array]:
    """Return the ticks `[row]` and fields `[row, env, axis]` of a table."""
    table = pd.read_csv(file)
    columns = [[name for name in table.columns if name.rpartition(".")[0] == field] for field in fields]
    ticks = table["tick"].to_numpy().reshape(-1, ENVS)[:, 0]
    return [ticks, *(table[each].to_numpy().reshape(-1, ENVS, len(each)) for each in columns)]


def cross(vector: Array) -> Array:
    """Return the matrices `[env, 3, 3]` of cross products with vectors."""
    return np.cross(np.eye(3), vector[:, None, :])


def errors_of_filter(root: Path, factor: float = 1.0) -> tuple[Array, Array]:
    """Return errors `[sample, env, 15]` and covariances of an error-state Kalman filter after each GNSS sample.

    The error of the rotation is on the right, in axes of the body (Sola, Quaternion kinematics for the error-state
    Kalman filter, 2017, table 3). Specific forces and rates between two samples are their mean.

    Args:
        root: the exported files.
        factor: factor on the noise densities of the IMU, 1 for those of the calibration.
    """
    ticks, rate, force, true_pos, true_quat = read(
        root / "imu.measured.csv", "ang_vel_b", "lin_acc_b", "pose_pos.0", "pose_quat.0"
    )
    _, true_gyro, true_acc, true_vel = read(
        root / "imu.states.measured.csv", "bias_ang_vel_b", "bias_lin_acc_b", "lin_vel_w"
    )
    fixes, *measured = read(root / "gnss.measured.csv", "pos_enu", "vel_enu")
    fix = dict(zip(fixes.tolist(), np.concatenate(measured, axis=2), strict=True))
    description = json.loads((root / "description.json").read_text())
    spread = [description["sensors"]["gnss"]["cfg"][name] for name in ("pos_noise", "vel_noise")]
    measurement_noise = np.diag(np.repeat(spread, 3) ** 2)
    imu = yaml.safe_load((root / "imu0.yaml").read_text())
    dt = 1.0 / imu["update_rate"]
    white = [factor * imu[f"{name}_noise_density"] for name in ("accelerometer", "gyroscope")]
    walks = [imu[f"{name}_random_walk"] for name in ("gyroscope", "accelerometer")]
    process_noise = np.diag(np.repeat([0.0, *white, *walks], 3) ** 2) * dt
    true_turn = [Rotation.from_quat(quat[:, [1, 2, 3, 0]]) for quat in true_quat]

    start = np.random.default_rng(0).normal(size=(ENVS, 15)) * START
    pos, vel = true_pos[0] + start[:, POS], true_vel[0] + start[:, VEL]
    turn = true_turn[0] * Rotation.from_rotvec(start[:, TURN])
    gyro, acc = np.zeros((ENVS, 3)), np.zeros((ENVS, 3))
    covariance = np.tile(np.diag(START**2), (ENVS, 1, 1))
    errors, covariances = [], []
    for k, tick in enumerate(ticks.tolist()):
        if k:
            step = (0.5 * (rate[k - 1] + rate[k]) - gyro) * dt
            middle = turn * Rotation.from_rotvec(0.5 * step)
            matrix, felt = middle.as_matrix(), 0.5 * (force[k - 1] + force[k]) - acc
            motion = middle.apply(felt) + GRAVITY
            change = np.tile(np.eye(15), (ENVS, 1, 1))
            change[:, POS, VEL] = np.eye(3) * dt
            change[:, VEL, TURN], change[:, VEL, ACC] = -matrix @ cross(felt) * dt, -matrix * dt
            change[:, POS, TURN], change[:, POS, ACC] = 0.5 * dt * change[:, VEL, TURN], 0.5 * dt * change[:, VEL, ACC]
            change[:, TURN, TURN] = Rotation.from_rotvec(-step).as_matrix()
            change[:, TURN, GYRO] = -np.eye(3) * dt
            pos, vel, turn = pos + vel * dt + 0.5 * motion * dt**2, vel + motion * dt, turn * Rotation.from_rotvec(step)
            covariance = change @ covariance @ change.swapaxes(1, 2) + process_noise
        if tick in fix:
            gain = covariance[:, :, :6] @ np.linalg.inv(covariance[:, :6, :6] + measurement_noise)
            delta = np.einsum("nij,nj->ni", gain, fix[tick] - np.concatenate([pos, vel], axis=1))
            rest = np.eye(15) - gain @ np.eye(6, 15)
            covariance = rest @ covariance @ rest.swapaxes(1, 2) + gain @ measurement_noise @ gain.swapaxes(1, 2)
            pos, vel, gyro, acc = (
                value + delta[:, part] for value, part in ((pos, POS), (vel, VEL), (gyro, GYRO), (acc, ACC))
            )
            turn = turn * Rotation.from_rotvec(delta[:, TURN])
            turned = (turn.inv() * true_turn[k]).as_rotvec()
            off = (true_pos[k] - pos, true_vel[k] - vel, turned, true_gyro[k] - gyro, true_acc[k] - acc)
            errors.append(np.concatenate(off, axis=1))
            covariances.append(covariance)
    return np.array(errors), np.array(covariances)


def within_band(errors: Array, covariances: Array) -> tuple[float, bool]:
    """Return the share of samples whose squared errors are in their 95 % band, and whether their mean is in it.

    Each is normalised by its covariance and averaged over the environments (Bar-Shalom, Li, Kirubarajan, Estimation
    with applications to tracking and navigation, 2001, section 5.4.2).
    """
    squared = (errors * np.linalg.solve(covariances, errors[..., None])[..., 0]).sum(axis=2).mean(axis=1)
    low, high = chi2.ppf([0.025, 0.975], errors.shape[2] * ENVS) / ENVS
    return float(((squared > low) & (squared < high)).mean()), bool(low < squared.mean() < high)


def test_an_error_state_filter_is_consistent(folder: Path) -> None:
    errors, covariances = errors_of_filter(folder)
    assert len(errors) == SECONDS * 5 + 1
    share, mean = within_band(errors, covariances)
    assert mean and share >= 0.9
    for part in (POS, VEL, TURN, GYRO, ACC):
        assert within_band(errors[:, :, part], covariances[:, :, part, part])[1], part
    found = np.sqrt((errors[-1] ** 2).mean(axis=0))
    assert (found[GYRO] < 0.5 * START[GYRO]).all() and (found[ACC] < 0.5 * START[ACC]).all()  # it learns the biases


@pytest.mark.parametrize("factor", [2.0**-0.5, 2.0**0.5])
def test_a_filter_with_the_other_convention_of_densities_is_inconsistent(factor: float, folder: Path) -> None:
    """The test above sees the factor between one-sided and two-sided densities."""
    share, mean = within_band(*errors_of_filter(folder, factor))
    assert not mean and share < 0.5
