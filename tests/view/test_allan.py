"""Allan deviations agree with their definition, and the fit finds the densities of simulated noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sensorium.view.allan import (
    INCREMENTS,
    INSTABILITY,
    ROUNDING,
    WALK,
    WHITE,
    Allan,
    Series,
    Term,
    allan_of,
    allan_variance,
    degrees_of_freedom,
    fit,
    sizes_for,
    terms_of,
)

RATE, COUNT = 100.0, 40_000
N, K = 0.02, 0.005
GYRO: dict[str, Any] = {
    "name": "ang_vel_b", "axes": ["env", "xyz"], "shape": [3], "dtype": "float32", "unit": "rad/s", "kind": "vector",
    "role": "angular_velocity",
}  # fmt: skip


def reference(samples: np.ndarray, m: int) -> float:
    """Return the overlapping Allan variance by its definition: second differences of the integral."""
    phase = np.concatenate(([0.0], np.cumsum(samples)))
    total = 0.0
    for k in range(len(phase) - 2 * m):
        total += (phase[k + 2 * m] - 2.0 * phase[k + m] + phase[k]) ** 2
    return total / (2.0 * m * m * (len(phase) - 2 * m))


def test_the_variance_is_that_of_the_definition() -> None:
    samples = np.random.default_rng(0).normal(3.0, 1.0, (400, 2)).cumsum(axis=0)
    sizes = sizes_for(len(samples))
    assert sizes[0] == 1 and sizes[-1] <= 50 and len(set(sizes.tolist())) == len(sizes)
    found = allan_variance(samples, sizes)
    for row, m in enumerate(sizes.tolist()):
        assert found[row] == pytest.approx([reference(samples[:, k], m) for k in range(2)], rel=1e-9)
    assert np.isnan(allan_variance(samples[:9], [5])).all()


def test_the_hadamard_variance_is_that_of_second_differences() -> None:
    """A ramp has none; by the definition, means of 7 samples."""
    samples = np.random.default_rng(3).normal(size=(200, 1)).cumsum(axis=0)
    means = np.convolve(samples[:, 0], np.ones(7) / 7, "valid")
    expected = np.mean((means[14:] - 2.0 * means[7:-7] + means[:-14]) ** 2) / 6.0
    ramped = samples + 0.3 * np.arange(200.0)[:, None]
    assert allan_variance(ramped, [7], hadamard=True)[0, 0] == pytest.approx(expected, rel=1e-9)


def test_missing_samples_are_left_out_of_averages() -> None:
    """An average needs half of its samples; averages with fewer are left out."""
    random = np.random.default_rng(1)
    samples = random.normal(size=(300, 1))
    samples[random.random(300) < 0.3] = np.nan
    for m in (1, 2, 5, 12):
        means = []
        for k in range(300 - m + 1):
            part = samples[k : k + m, 0]
            known = part[np.isfinite(part)]
            means.append(known.mean() if 2 * len(known) >= m else np.nan)
        steps = np.array(means[m:]) - np.array(means[:-m])
        assert allan_variance(samples, [m])[0, 0] == pytest.approx(0.5 * np.nanmean(steps**2), rel=1e-9)


def noise(kind: str, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed).normal(size=COUNT)
    return N * math.sqrt(RATE) * random if kind == "white" else np.cumsum(K / math.sqrt(RATE) * random)


def fitted(samples: np.ndarray, terms: tuple[Term, ...], wanted: bool = False) -> tuple[np.ndarray, np.ndarray]:
    sizes = sizes_for(len(samples))
    bases = np.stack([term.variance(sizes / RATE, 1.0 / RATE) for term in terms], axis=1)
    variance = allan_variance(samples[:, None], sizes)[:, 0]
    return fit(bases, variance, degrees_of_freedom(len(samples), sizes), np.full(len(terms), wanted))


@pytest.mark.parametrize(("kind", "slope"), [("white", -0.5), ("walk", 0.5)])
def test_slopes(kind: str, slope: float) -> None:
    """White noise falls with the root of the averaging time, a random walk rises; both are fitted alone."""
    samples = noise(kind)
    sizes = np.array([4, 8, 16, 32, 64])
    deviation = np.sqrt(allan_variance(samples[:, None], sizes)[:, 0])
    assert np.polyfit(np.log(sizes), np.log(deviation), 1)[0] == pytest.approx(slope, abs=0.03)
    (white, walk, instability), (white_sd, walk_sd, _) = fitted(samples, (WHITE, WALK, INSTABILITY))
    assert instability == 0.0
    if kind == "white":
        assert white == pytest.approx(N, abs=5 * white_sd) and white_sd < 0.01 * N and walk < 0.1 * K
    else:
        assert walk == pytest.approx(K, abs=5 * walk_sd) and walk_sd < 0.05 * K and white < 0.1 * N


def test_terms_together() -> None:
    """Of white noise and a walk, both coefficients are found in 16 runs, and scatter by their standard deviations."""
    scores, means = [], []
    for seed in range(16):
        found, sd = fitted(noise("white", seed) + noise("walk", seed + 100), (WHITE, WALK), wanted=True)
        scores.append((found - [N, K]) / sd)
        means.append(found)
    assert np.abs(scores).max() < 5.0 and 0.4 < np.std(scores) < 1.6
    assert np.mean(means, axis=0) == pytest.approx([N, K], rel=0.1)


STEPS = {"at a level": (0.0, 2.0, 0.0), "between two": (0.5, 1.5, 0.0), "moving": (0.0, 2.5, 1.0)}
"""Mean in steps, step in standard deviations of the noise, and amplitude of the motion."""


def rounded_fit(noise: np.ndarray, step: float, true: np.ndarray | None = None) -> Allan:
    info = {"rate_hz": RATE, "cfg": {}}
    return allan_of(Series(0.0, 1.0 / RATE, noise, true, np.full(3, step)), info, GYRO, ["x", "y", "z"])


@pytest.mark.parametrize("kind", STEPS)
def test_quantisation_is_not_white_noise(kind: str) -> None:
    """With steps above the noise, the mean N of 24 runs is within three standard errors, and Q is step / sqrt(12)."""
    mean, ratio, moves = STEPS[kind]
    step, time = ratio * N * math.sqrt(RATE), np.arange(6000)[:, None] / RATE
    true, found, sd = moves * np.sin(time * [5.0, 3.0, 0.7]), [], []
    for seed in range(8):
        values = true + mean * step + N * math.sqrt(RATE) * np.random.default_rng(seed).normal(size=(6000, 3))
        allan = rounded_fit(step * np.rint(values / step) - true, step, true)
        assert allan.terms[:2] == (WHITE, WALK) and allan.fitted[allan.terms.index(ROUNDING)] == pytest.approx(
            step / math.sqrt(12.0)
        )
        found.append(allan.fitted[0])
        sd.append(allan.fitted_sd[0])
    error = np.mean(found) - N
    assert abs(error) < 3.0 * np.std(found) / math.sqrt(24) < 0.02 * N
    assert np.abs((np.array(found) - N) / sd).max() < 4.0


def test_quantisation_of_increments() -> None:
    """A gyroscope that counts angles: 3 Q^2 / T^2 with Q = angle / sqrt(12), and N beside it (IEEE Std 952)."""
    found = []
    for seed in range(8):
        rates = N * math.sqrt(RATE) * np.random.default_rng(seed).normal(size=(6000, 3)) + [0.0, 0.1, 0.33]
        angle = 1.5 * N / math.sqrt(RATE)
        counted = np.diff(angle * np.rint(np.cumsum(rates / RATE, axis=0) / angle), axis=0) * RATE
        allan = rounded_fit(counted, angle * RATE)
        found.append(allan.fitted[[0, allan.terms.index(INCREMENTS)]])
    white, increments = np.mean(found, axis=(0, 2))
    assert white == pytest.approx(N, rel=0.01) and increments == pytest.approx(angle / math.sqrt(12.0), rel=0.05)


def test_a_gauss_markov_process() -> None:
    """The exact variance of the process, for which the driving noise is found; far below tau it is a walk."""
    q, tau, random = 0.02, 2.0, np.random.default_rng(3)
    phi, sd = math.exp(-1.0 / (RATE * tau)), q * math.sqrt(tau / 2.0)
    bias, drive = sd * random.normal(), random.normal(size=COUNT) * sd * math.sqrt(1.0 - phi * phi)
    samples = np.empty(COUNT)
    for k in range(COUNT):
        samples[k] = bias
        bias = phi * bias + drive[k]
    term = Term("q", "", "", tau)
    (white, found), (_, found_sd) = fitted(samples + noise("white"), (WHITE, term), wanted=True)
    assert white == pytest.approx(N, rel=0.03) and found == pytest.approx(q, abs=5 * found_sd) and found_sd < 0.12 * q
    short = np.array([1e-6, 1e-5, 1e-3]) * tau
    assert term.variance(short, 1e-9) == pytest.approx(WALK.variance(short, 1e-9), rel=1e-3)
    assert term.variance(np.array([1e4 * tau]), 1e-9) == pytest.approx(tau / 1e4, rel=1e-3)  # white at long times
    times = tau * np.linspace(1.0, 3.0, 201)
    peak = np.sqrt(term.variance(times, 1e-9))
    assert peak.max() == pytest.approx(0.437 * math.sqrt(tau), rel=2e-3)
    assert times[peak.argmax()] == pytest.approx(1.89 * tau, rel=0.02)


@pytest.mark.parametrize(
    ("cfg", "expected"),
    [
        ({"gyro_noise": 0.1}, {"N": 0.01}),
        ({"acc_noise": 0.1}, {}),
        ({"noise_density": {"gyro": 0.02, "lin_acc_b": 3.0}}, {"N": 0.02}),
        (
            {"noise": {"ang_vel_b": {"uniform": [0.0, 0.2]}}, "resolution": {"ang_vel_b": 0.12}},
            {"N": 0.01, "Q": 0.12 / math.sqrt(12.0)},
        ),
        ({"gyro_random_walk": 1e-3, "gyro_noise_density": 0.1}, {"N": 0.1, "K": 0.01}),
        ({"random_walk_density": {"ang_vel_b": [0.1, 0.2, 0.3]}}, {"K": [0.1, 0.2, 0.3]}),
        ({"stages": [{"kind": "gauss_markov", "fields": ["ang_vel_b"], "density": 0.3, "tau": 9.0}]}, {"q": 0.3}),
        ({"stages": [{"kind": "gauss_markov", "fields": ["lin_acc_b"], "density": 0.3, "tau": 9.0}]}, {}),
        ({"stages": [{"kind": "flicker", "bias_instability": {"normal": [0.2, 0.1]}}]}, {"B": 0.2}),
    ],
)
def test_configured_coefficients(cfg: dict[str, Any], expected: dict[str, Any]) -> None:
    """Knobs by field or prefix, per sample or as densities, vectors, distributions and stages."""
    info = {"rate_hz": RATE, "cfg": cfg, "prefixes": {"gyro": "ang_vel_b", "acc": "lin_acc_b"}}
    terms, configured = terms_of(info, GYRO)
    found = {term.symbol: row for term, row in zip(terms, configured, strict=True)}
    assert found.keys() == {"N"} | expected.keys() | (set() if expected.keys() & {"K", "B", "q"} else {"K", "B"})
    for symbol, row in found.items():
        assert row == pytest.approx(np.broadcast_to(expected.get(symbol, 0.0), 3), rel=1e-4)
