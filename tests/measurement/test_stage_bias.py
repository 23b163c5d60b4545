"""Changing biases, checked by their statistics: flicker by its Allan deviation, temperature by the exponential."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import synthetic as syn
import torch
from numpy.typing import NDArray
from reference.draws import normals_numpy

import sensorium as sn
from sensorium.measurement.stage_key import StageRun
from sensorium.random import stream_key

Array = NDArray[np.float64]

FLOOR = math.sqrt(2.0 * math.log(2.0) / math.pi)


def still(cfgs: list[Any], num_envs: int, dt: float = 0.01, **kwargs: Any) -> sn.Scene:
    """Build a scene whose body rests at (1, 2, 4)."""
    return syn.world(cfgs, num_envs, dt, at=(1.0, 2.0, 4.0), **kwargs)


def error(scene: sn.Scene, name: str = "p") -> Array:
    """Return measured minus true of `vec`, float64 `[env, 3]`."""
    return (scene[name].data.vec.double() - scene[name].ground_truth.vec.double()).numpy()


# Flicker --------------------------------------------------------------------------------------------------------------


def gauss_markov_variance(t: Array, tau: float, sd: float) -> Array:
    """Return the Allan variance of a Gauss-Markov process (IEEE Std 952, annex): q^2 tau^2 / T (1 - ...)."""
    x = t / tau
    q2 = 2.0 * sd**2 / tau
    return q2 * tau**2 / t * (1.0 - (3.0 - 4.0 * np.exp(-x) + np.exp(-2.0 * x)) / (2.0 * x))


def allan_deviation(samples: Array, m: int) -> float:
    """Return the overlapping Allan deviation over averages of m samples; samples are `[time, column]`."""
    total = np.vstack([np.zeros((1, samples.shape[1])), np.cumsum(samples, axis=0)])
    means = (total[m:] - total[:-m]) / m
    return math.sqrt(0.5 * float(np.mean((means[m:] - means[:-m]) ** 2)))


@functools.cache
def flicker(tau_min: float, tau_max: float, dt: float, steps: int, envs: int) -> Array:
    """Return the flicker of B = 1 at rest, `[time, column]`."""
    stage = sn.stages.Flicker(bias_instability=1.0, tau_min=tau_min, tau_max=tau_max)
    scene = still([syn.ProbeCfg(name="p", stages=(stage,))], envs, dt, seed=3)
    rows = [error(scene).ravel()]
    for _ in range(steps - 1):
        scene.update()
        rows.append(error(scene).ravel())
    return np.stack(rows)


@pytest.mark.parametrize("band", [(1.0, 3.0), (0.1, 10.0), (1.0, 1000.0), (0.02, 7000.0)])
def test_the_processes_add_up_to_a_flat_floor(band: tuple[float, float]) -> None:
    """The closed Allan variances of the processes sum to (0.664 B)^2 within 5 %, so 2.5 % of the deviation."""
    taus, sds = sn.stages.Flicker(bias_instability=1.0, tau_min=band[0], tau_max=band[1]).components()
    t = np.geomspace(*band, 300)
    deviation = np.sqrt(sum(gauss_markov_variance(t, tau, sd) for tau, sd in zip(taus, sds, strict=True)))
    np.testing.assert_allclose(deviation, FLOOR, rtol=0.025)
    assert taus.size <= math.ceil(math.log10(band[1] / band[0])) + 2


def test_the_allan_deviation_of_flicker_is_flat_at_its_floor() -> None:
    """Over 1.6 decades of averaging time it is 0.664 B within 10 %, and its slope is 0 within 0.1."""
    samples = flicker(10.0, 400.0, 1.0, 2400, 400)
    sizes = np.unique(np.geomspace(10, 400, 12).round().astype(int))
    measured = np.array([allan_deviation(samples, m) for m in sizes])
    chance = 1.0 / math.sqrt(2.0 * samples.shape[1] * (len(samples) // sizes[-1] - 1))  # where clusters are fewest
    assert 5.0 * chance < 0.05  # so that 10 % reflects the process, not chance
    np.testing.assert_allclose(measured, FLOOR, rtol=0.10)
    assert abs(np.polyfit(np.log(sizes), np.log(measured), 1)[0]) < 0.1
    assert math.log10(sizes[-1] / sizes[0]) > 1.5


def test_slow_sampling_does_not_alias_into_the_band() -> None:
    """Sampled at twice `tau_min`, so that the fastest processes are white, the floor holds from four samples on."""
    samples = flicker(1.0, 100.0, 2.0, 400, 400)
    for m in (4, 8, 16, 32, 50):
        assert allan_deviation(samples, m) == pytest.approx(FLOOR, rel=0.10), m


def test_flicker_starts_stationary() -> None:
    """The first sample and later samples have the same deviation, the root of the sum of the variances."""
    samples = flicker(10.0, 400.0, 1.0, 2400, 400)
    sd = float(
        np.sqrt((sn.stages.Flicker(bias_instability=1.0, tau_min=10.0, tau_max=400.0).components()[1] ** 2).sum())
    )
    for row in (0, 1, 1200, 2399):
        # sampling at 1 s removes 1 % from the process of 1.7 s
        assert samples[row].std() == pytest.approx(sd, rel=0.01 + 5.0 / math.sqrt(2.0 * samples.shape[1]))


def test_flicker_amount_is_per_axis_and_env() -> None:
    """A vector scales each axis, a distribution each env: the same noise times B."""
    base = dict(tau_min=0.1, tau_max=1.0)
    amounts = {"one": 1.0, "axes": (1.0, 2.0, 0.0), "drawn": sn.Uniform(1.0, 3.0)}
    scenes = {
        name: still([syn.ProbeCfg(name="p", stages=(sn.stages.Flicker(bias_instability=amount, **base),))], 64)
        for name, amount in amounts.items()
    }
    ratios = []
    for _ in range(4):
        errors = {name: error(scene) for name, scene in scenes.items()}
        one = errors["one"]
        np.testing.assert_allclose(errors["axes"], one * [1.0, 2.0, 0.0], atol=2e-6)
        ratios.append(errors["drawn"] / one)
        for scene in scenes.values():
            scene.update()
    big = np.abs(one) > 0.1  # where float32 leaves digits to compare
    np.testing.assert_allclose(ratios[-1][big], ratios[0][big], rtol=1e-3)
    assert ratios[0].min() >= 0.999 and ratios[0].max() <= 3.001 and np.unique(ratios[0].round(3)).size > 150


def run_of(scene: sn.Scene) -> StageRun:
    (run,) = scene["p"].buffers.stages
    return run


def test_a_long_correlation_time_keeps_its_digits() -> None:
    """3000 samples of a process of 1000 s at 1 kHz equal float64 arithmetic on the same normals, up to rounding."""
    dt, tau, q, envs = 0.001, 1000.0, 0.1, 8
    stage = sn.stages.GaussMarkov(density=q, tau=tau)
    scene = still([syn.ProbeCfg(name="p", stages=(stage,))], envs, dt, seed=4)
    key = stream_key(4, "p", "stage0/gauss_markov/drift")
    phi = math.exp(-dt / tau)
    sd = q * math.sqrt(tau / 2.0)

    def normals(tick: int) -> Array:
        return normals_numpy(key, tick, np.arange(envs), scene.clock.episode.numpy(), 0, 3).astype(np.float64)

    b = sd * normals(0)
    for tick in range(1, 3001):
        scene.update()
        b = phi * b + sd * math.sqrt(1.0 - phi**2) * normals(tick)
    step = 2.0**-21  # between neighbours in float32, for values up to 8
    atol = 5.0 * math.sqrt(3000.0) * step / math.sqrt(12.0)  # a phi rounded to float32 would be off by five times that
    np.testing.assert_allclose(run_of(scene).states["drift_vec"].numpy(), b, atol=atol, rtol=0.0)
    assert 4.0 < np.abs(b).max() < 8.0


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"bias_instability": -1.0}, "bias_instability: got -1.0, expected an amount >= 0"),
        ({"bias_instability": 1.0, "tau_min": 10.0, "tau_max": 2.0}, "above tau_min, 10 s"),
        ({"bias_instability": 1.0, "tau_min": 2000.0}, "above tau_min"),
        ({"bias_instability": 1.0, "tau_min": 0.0}, "time > 0"),
    ],
)
def test_impossible_flicker_is_refused(kwargs: dict[str, Any], text: str) -> None:
    with pytest.raises(sn.ConfigError, match=text):
        sn.stages.Flicker(**kwargs)


# Temperature ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [{}, {"rate_hz": 30.0}])
def test_warming_up_is_exponential(rate: dict[str, float]) -> None:
    """Bias and scale follow T = ambient + heating (1 - exp(-t/tau)) at any rate, per axis, from the reset on."""
    tau, dt, ambient, heating = 0.7, 0.01, 15.0, 20.0
    coefficient, scale = np.array([0.01, -0.02, 0.0]), np.array([0.0, 0.001, -0.002])
    stage = sn.stages.TemperatureDrift(
        coefficient=tuple(coefficient), scale_coefficient=tuple(scale), ambient=ambient, self_heating=heating, tau=tau
    )
    scene = still([syn.ProbeCfg(name="p", stages=(stage,), **rate)], 3, dt)
    x = np.array([1.0, 2.0, 4.0])
    began = np.zeros(3)
    for k in range(1, 200):
        scene.update()
        if k == 77:
            scene.reset([1], body_pos_w=torch.tensor([[[1.0, 2.0, 4.0]]]))
            began[1] = k
        t = (scene["p"].capture_tick.numpy() - began) * dt
        excess = ambient + heating * (1.0 - np.exp(-t / tau)) - 25.0
        expected = x + excess[:, None] * (scale * x + coefficient)
        np.testing.assert_allclose(scene["p"].data.vec.numpy(), expected, rtol=3e-7, atol=3e-7)


def test_late_sensor_warms_up_from_its_start() -> None:
    """The time counts from the sensor's start, not from the env's episode; likewise after its own reset."""
    scene = still([], 2)
    for _ in range(50):
        scene.update()
    stage = sn.stages.TemperatureDrift(coefficient=1.0, self_heating=10.0, tau=0.5)
    sensor = scene.add(syn.ScalarCfg(name="p", stages=(stage,)))
    for k in range(5):
        expected = 1.0 + 10.0 * (1.0 - math.exp(-k * 0.01 / 0.5))
        np.testing.assert_allclose(sensor.data.numpy(), expected, atol=2e-6)  # three roundings of 10 K
        scene.update()
    sensor.reset([1])
    np.testing.assert_allclose(sensor.data.numpy(), [1.0 + 10.0 * (1.0 - math.exp(-0.1)), 1.0], atol=2e-6)


def test_temperatures_are_drawn_per_env() -> None:
    """A distribution of the ambient temperature shifts all axes of an env equally, redrawn at its reset; tau = 0 is
    warm.
    """
    stage = sn.stages.TemperatureDrift(coefficient=(1.0, 2.0, 4.0), ambient=sn.Uniform(0.0, 40.0), self_heating=5.0)
    scene = still([syn.ProbeCfg(name="p", stages=(stage,))], 512)
    first = error(scene)
    np.testing.assert_allclose(first[:, 1:], first[:, :1] * [2.0, 4.0], rtol=1e-5, atol=1e-5)
    excess = first[:, 0]
    assert excess.min() >= -20.0 and excess.max() <= 20.0
    assert abs(excess.mean()) < 5.0 * 40.0 / math.sqrt(12.0 * 512)
    scene.update()
    np.testing.assert_allclose(error(scene), first, atol=1e-5)
    scene.reset([3])
    assert (np.abs(error(scene) - first).max(axis=1) > 1e-3).nonzero()[0].tolist() == [3]


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"ambient": (1.0, 2.0, 3.0)}, "one number"),
        ({"self_heating": sn.Uniform((0.0, 1.0), 2.0)}, "one number"),
        ({"tau": -1.0}, "time >= 0"),
        ({"reference": math.inf}, "finite temperature"),
    ],
)
def test_impossible_temperatures_are_refused(kwargs: dict[str, Any], text: str) -> None:
    with pytest.raises(sn.ConfigError, match=text):
        sn.stages.TemperatureDrift(**kwargs)
