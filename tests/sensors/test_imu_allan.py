"""The noise of a simulated IMU, measured as for a real device by its Allan deviation.

Environments are independent runs: many short runs give the clusters of one long run. With M independent clusters an
Allan deviation is known to a relative standard deviation of about 1/sqrt(2 (M - 1)).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sensorium as sn

Array = NDArray[np.float64]

ENVS = 512
COLUMNS = 3 * ENVS


def allan_deviation(samples: Array, m: int) -> float:
    """Return the overlapping Allan deviation over averages of m samples; samples are `[time, column]`."""
    total = np.vstack([np.zeros((1, samples.shape[1])), np.cumsum(samples.astype(np.float64), axis=0)])
    means = (total[m:] - total[:-m]) / m
    steps = means[m:] - means[:-m]
    return math.sqrt(0.5 * float(np.mean(steps**2)))


def spread(count: int, m: int) -> float:
    """Return the relative standard deviation of `allan_deviation`, counting only clusters that do not overlap."""
    return 1.0 / math.sqrt(2.0 * COLUMNS * max(count // m - 1, 1))


@functools.cache
def recorded(dt: float, seconds: float, **kwargs: Any) -> dict[str, Array]:
    """Return the errors of gyroscope and accelerometer at rest, `[time, column]`."""
    engine = sn.TensorEngine(ENVS, dt)
    fields = ("ang_vel_b", "lin_acc_b")
    scene = sn.Scene(engine, [sn.ImuCfg(body="body", fields=fields, **kwargs)], seed=5)
    rows: dict[str, list[Array]] = {name: [] for name in fields}
    for _ in range(round(seconds / dt)):
        scene.update()
        for name in fields:
            error = getattr(scene["imu"].data, name) - getattr(scene["imu"].ground_truth, name)
            rows[name].append(error.numpy().astype(np.float64).ravel())
    return {name: np.stack(values) for name, values in rows.items()}


WHITE, WALK = 2.5e-4, 1.2e-3


def white_and_walk(dt: float) -> dict[str, Array]:
    return recorded(dt, 2.56, gyro_noise_density=WHITE, acc_random_walk_density=WALK)


@pytest.mark.parametrize("dt", [0.01, 0.005])
def test_white_noise_has_the_configured_density_at_every_averaging_time(dt: float) -> None:
    """The Allan deviation of white noise is N/sqrt(T) within 3 %, at both time steps."""
    samples = white_and_walk(dt)["ang_vel_b"]
    for m in (1, 2, 4, 8, 16):
        expected = WHITE / math.sqrt(m * dt)
        assert 5 * spread(len(samples), m) < 0.03  # so that 3 % exceeds random variation
        assert allan_deviation(samples, m) == pytest.approx(expected, rel=0.03), m


@pytest.mark.parametrize("dt", [0.01, 0.005])
def test_a_random_walk_rises_with_the_root_of_the_averaging_time(dt: float) -> None:
    """The Allan deviation of a rate random walk is K sqrt(T/3) within 3 % and its slope 1/2 within 10 %."""
    samples = white_and_walk(dt)["lin_acc_b"]
    sizes = np.array([8, 16, 32, 64])
    measured = np.array([allan_deviation(samples, m) for m in sizes])
    # averages of m points instead of an integral: (2 m^2 + 1) / (2 m^2) of the variance
    expected = WALK * np.sqrt(sizes * dt / 3.0 * (1.0 + 0.5 / sizes**2))
    np.testing.assert_allclose(measured, expected, rtol=0.03)
    slope = np.polyfit(np.log(sizes), np.log(measured), 1)[0]
    assert slope == pytest.approx(0.5, rel=0.1)


def test_halving_the_time_step_keeps_noise_and_walk_densities() -> None:
    """At the same averaging time in seconds, both deviations agree between two time steps within 3 %."""
    coarse, fine = white_and_walk(0.01), white_and_walk(0.005)
    for name in coarse:
        for m in (8, 16, 32):
            assert allan_deviation(fine[name], 2 * m) == pytest.approx(allan_deviation(coarse[name], m), rel=0.03), name


def test_a_density_holds_at_a_rate_below_that_of_the_physics() -> None:
    """At 100 Hz with a step of 2 ms the white noise has the same density, and a sample has N sqrt(100)."""
    engine = sn.TensorEngine(ENVS, 0.002)
    cfg = sn.ImuCfg(body="body", fields=("ang_vel_b",), gyro_noise_density=WHITE, rate_hz=100.0)
    scene = sn.Scene(engine, [cfg])
    rows = []
    for tick in range(1, 5 * 64 + 1):
        scene.update()
        if tick % 5 == 0:
            rows.append(scene["imu"].data.ang_vel_b.numpy().astype(np.float64).ravel().copy())
    samples = np.stack(rows)
    assert samples.std() == pytest.approx(WHITE * math.sqrt(100.0), rel=5 / math.sqrt(2 * samples.size))
    for m in (1, 2, 4):
        assert allan_deviation(samples, m) == pytest.approx(WHITE / math.sqrt(m / 100.0), rel=0.03)


DRIVE, TAU, STEP = 3e-3, 0.4, 0.02


def gauss_markov_deviation(m: int, dt: float = STEP) -> float:
    """Return the exact Allan deviation of averages of m samples of the Gauss-Markov process."""
    lags = np.arange(2 * m)
    covariance = DRIVE**2 * TAU / 2.0 * np.exp(-dt / TAU * np.abs(lags[:, None] - lags[None, :]))
    weights = np.concatenate([np.full(m, -1.0 / m), np.full(m, 1.0 / m)])
    return math.sqrt(0.5 * float(weights @ covariance @ weights))


def gauss_markov() -> Array:
    stage = sn.stages.GaussMarkov(fields=("ang_vel_b",), density=DRIVE, tau=TAU)
    return recorded(STEP, 8.0, stages=(stage,))["ang_vel_b"]


def test_gauss_markov_is_stationary_from_the_first_sample() -> None:
    """The bias has the deviation q sqrt(tau/2) at the reset and later, and decorrelates as exp(-t/tau)."""
    samples = gauss_markov()
    sd = DRIVE * math.sqrt(TAU / 2.0)
    for row in (0, 100, 399):
        assert samples[row].std() == pytest.approx(sd, rel=5 / math.sqrt(2 * COLUMNS))
    lag = round(TAU / STEP)
    correlation = float(np.mean(samples[:-lag] * samples[lag:])) / sd**2
    # at least as many independent pairs as columns times intervals of 2 tau
    assert correlation == pytest.approx(math.exp(-1.0), abs=5 / math.sqrt(COLUMNS * 8.0 / (2 * TAU)))


def test_gauss_markov_allan_peak_is_at_its_correlation_time() -> None:
    """The Allan deviation follows the exact curve, and peaks at 0.437 q sqrt(tau) near 1.89 tau."""
    samples = gauss_markov()
    sizes = np.unique(np.geomspace(4, 130, 24).round().astype(int))
    measured = np.array([allan_deviation(samples, m) for m in sizes])
    exact = np.array([gauss_markov_deviation(m) for m in sizes])
    chance = np.array([spread(len(samples), m) for m in sizes])
    assert (np.abs(measured / exact - 1.0) < 5.0 * chance).all(), np.abs(measured / exact - 1.0) / chance
    top = int(np.argmax(measured))
    # sampling at tau/20 changes the continuous peak by less than 0.2 %
    assert measured[top] == pytest.approx(0.437 * DRIVE * math.sqrt(TAU), rel=0.002 + 5.0 * chance[top])
    # the curve is flat there: the peak may lie wherever the exact curve is within the spread of its top
    flat = sizes[exact > exact.max() * (1.0 - 5.0 * chance[top])] * STEP
    assert flat[0] <= sizes[top] * STEP <= flat[-1]
    assert flat[0] < 1.89 * TAU < flat[-1]
    peak = sizes[int(np.argmax(exact))] * STEP
    assert peak == pytest.approx(1.89 * TAU, rel=0.1)  # the sizes are 16 % apart
