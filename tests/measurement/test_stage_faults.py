"""Faults: onset, duration and reported values, checked against their configured distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import synthetic as syn
import torch
from numpy.typing import NDArray

import sensorium as sn

Array = NDArray[np.float64]

N = 4096


def series(stage: sn.stages.StageCfg, ticks: int, num_envs: int = N, reset: dict[int, list[int]] | None = None,
           dt: float = 0.01, **kwargs: Any) -> tuple[Array, Array]:  # fmt: skip
    """Return truth and measured values of every tick, `[time, env, 3]`; all true values of an env differ."""
    scene = syn.world([syn.ProbeCfg(name="p", stages=(stage,), **kwargs)], num_envs, dt, seed=6)
    truths, values = [], []
    for tick in range(ticks):
        if tick:
            syn.advance(scene)
        if reset and tick in reset:
            syn.reset(scene, reset[tick], tick=5000 + tick)
        truths.append(scene["p"].ground_truth.vec.double().numpy().copy())
        values.append(scene["p"].data.vec.double().numpy().copy())
    return np.stack(truths), np.stack(values)


def binomial(count: int, trials: int, p: float) -> None:
    """Assert that a count lies in the 99.9 % interval of its distribution."""
    from scipy import stats

    low, high = stats.binom.ppf([0.0005, 0.9995], trials, p)
    assert low <= count <= high, (count / trials, p)


# Dropout --------------------------------------------------------------------------------------------------------------


def test_elements_drop_out_independently() -> None:
    """The share of lost values is the probability, per axis, and axes are lost independently."""
    p = np.array([0.1, 0.3, 0.0])
    truth, value = series(sn.stages.Dropout(probability=tuple(p), mode="value", value=-7.5), 6)
    lost = value != truth
    assert (value[lost] == -7.5).all()
    for j in range(3):
        binomial(int(lost[..., j].sum()), 6 * N, float(p[j]))
    binomial(int((lost[..., 0] & lost[..., 1]).sum()), 6 * N, 0.03)


def test_whole_sample_drops_out() -> None:
    """With per="sample" all elements of all fields of the stage are lost together."""
    stage = sn.stages.Dropout(probability=0.25, per="sample", mode="nan", fields=("vec", "speed"))
    scene = syn.world([syn.ProbeCfg(name="p", fields=("vec", "speed"), stages=(stage,))], N)
    lost = scene["p"].data.speed.isnan()
    assert torch.equal(scene["p"].data.vec.isnan(), lost[:, None].expand(-1, 3))
    binomial(int(lost.sum()), N, 0.25)


def test_a_held_value_is_the_last_good_one() -> None:
    """mode="hold" repeats the previous report across any number of lost samples, but never across a reset."""
    truth, value = series(sn.stages.Dropout(probability=0.5), 30, 256, reset={17: [3, 4, 5]})
    good = truth[0]
    np.testing.assert_array_equal(value[0], good)  # the first sample is good
    lost = 0
    for tick in range(1, 30):
        if tick == 17:
            good[3:6] = truth[17][3:6]
            np.testing.assert_array_equal(value[17][3:6], good[3:6])
        is_good = value[tick] == truth[tick]
        good = np.where(is_good, truth[tick], good)
        np.testing.assert_array_equal(value[tick], good)
        lost += int((~is_good).sum())
    binomial(lost, 29 * 256 * 3 - 9, 0.5)
    _, stuck = series(sn.stages.Dropout(probability=1.0), 5, 2)
    np.testing.assert_array_equal(stuck, np.broadcast_to(stuck[0], stuck.shape))


@pytest.mark.parametrize(("mode", "filled"), [("zero", 0.0), ("miss", math.inf), ("nan", math.nan)])
def test_gap_is_filled_as_configured(mode: Any, filled: float) -> None:
    """0, a miss or NaN is reported unchanged, after quantisation and full scale."""
    stages = (sn.stages.Saturation(high=30.0), sn.stages.Dropout(probability=1.0, mode=mode))
    scene = syn.world([syn.ProbeCfg(name="p", bias=0.3, resolution=0.5, stages=stages)], 2)
    np.testing.assert_array_equal(scene["p"].data.vec.numpy(), np.full((2, 3), filled))


def test_dropouts_come_in_bursts() -> None:
    """With GilbertElliott(p, r) the share of lost values is p/(p+r), the mean burst 1/r, and a reset starts in the good
    state.
    """
    p, r = 0.1, 0.4
    truth, value = series(sn.stages.Dropout(probability=sn.GilbertElliott(p, r), mode="zero"), 80, 512, reset={40: [7]})
    lost = value != truth
    binomial(int(lost[0].sum()), lost[0].size, p)  # the first sample may have just turned bad
    settled = lost[30:].reshape(50, -1)
    share = p / (p + r)
    # neighbours correlate as 1 - p - r: fewer independent samples by (2 - p - r) / (p + r)
    independent = settled.size / ((2.0 - p - r) / (p + r))
    assert settled.mean() == pytest.approx(share, abs=5.0 * math.sqrt(share * (1.0 - share) / independent))
    ends = int((settled[:-1] & ~settled[1:]).sum())
    binomial(ends, int(settled[:-1].sum()), r)


def test_a_probability_is_drawn_per_env() -> None:
    """A distribution draws each env's and axis's probability for an episode, and redraws it after a reset."""
    stage = sn.stages.Dropout(probability=sn.Choice((0.0, 1.0)), mode="zero")
    truth, value = series(stage, 8, 512, reset={4: [0, 1]})
    lost = (value == 0.0) & (truth != 0.0)
    binomial(int(lost[1].sum()), lost[1].size, 0.5)
    assert (lost[1:, 2:] == lost[1, 2:]).all() and (lost[5:, :2] == lost[5, :2]).all()


# When faults strike ---------------------------------------------------------------------------------------------------


def struck(truth: Array, value: Array) -> NDArray[np.bool_]:
    return value != truth


def spike(**kwargs: Any) -> sn.stages.SpikeFault:
    return sn.stages.SpikeFault(amount=1000.0, **kwargs)


def test_scheduled_fault_occurs_at_its_time() -> None:
    """The fault applies to samples with start <= t < start + duration since their env's reset, once per episode."""
    stage = spike(start=0.05, duration=0.03)
    now = struck(*series(stage, 40, 4, reset={20: [1, 2]}))
    expected = np.zeros((40, 4, 3), bool)
    expected[5:8] = True
    expected[25:28, 1:3] = True
    np.testing.assert_array_equal(now, expected)


def test_scheduled_fault_also_affects_a_slow_sensor() -> None:
    """A fault between two samples affects the next sample; a fault that starts off the tick grid, the tick after."""
    now = struck(*series(spike(start=0.012, duration=0.001), 16, 2, rate_hz=25.0))
    assert now.all(axis=(1, 2)).nonzero()[0].tolist() == [4, 5, 6, 7]  # the sample of tick 4, as long as it is shown
    now = struck(*series(spike(start=0.012), 16, 2))
    assert now.all(axis=(1, 2)).nonzero()[0].tolist() == [2]


def test_fault_starts_and_elements_are_selectable() -> None:
    """`start` may differ per axis, and `elements` selects the axes that can be affected."""
    now = struck(*series(spike(start=(0.0, 0.02, 0.04), duration=None, elements=(0, 2)), 8, 2))
    first = [now[:, 0, j].nonzero()[0].tolist() for j in range(3)]
    assert first == [[0, 1, 2, 3, 4, 5, 6, 7], [], [4, 5, 6, 7]]


def test_a_start_is_drawn_per_env() -> None:
    """The onsets of a uniform distribution pass a Kolmogorov-Smirnov test; per sample all axes start together."""
    from scipy import stats

    stage = spike(start=sn.Uniform(0.0, 0.5), duration=None, per="sample")
    now = struck(*series(stage, 51))
    assert (now == now[..., :1]).all()
    assert now[-1].all()
    onset = 0.01 * (50 - now[..., 0].sum(axis=0) + 1)  # the first tick at or after the drawn time
    spread = np.random.default_rng(0).uniform(0.0, 0.01, N)  # within the tick
    assert stats.kstest((onset - spread) / 0.5, "uniform").pvalue > 0.001


def test_random_faults_have_their_rate_and_their_duration() -> None:
    """Onsets among healthy samples are Bernoulli with rate * period, and each fault has its configured duration."""
    rate, period, duration = 5.0, 0.01, 0.04
    now = struck(*series(spike(rate=rate, duration=duration, elements=(0,)), 40))[..., 0]
    healthy = ~now
    binomial(int((healthy[:-1] & now[1:]).sum()), int(healthy[:-1].sum()), rate * period)
    runs = np.diff(np.vstack([np.zeros(N), now, np.zeros(N)]).T, axis=1)
    rows, starts = (runs == 1).nonzero()
    lengths = (runs == -1).nonzero()[1] - starts
    whole = starts + lengths < 40
    alone = lengths[whole] % 4  # a fault that follows at once joins the one before
    assert (alone == 0).all() and (lengths[whole] == 4).sum() > 0.9 * whole.sum() > 500
    assert (now[0] | healthy[0]).all() and len(np.unique(rows)) > 0.5 * N


def test_a_probability_is_per_sample_and_a_duration_is_drawn_per_fault() -> None:
    """Single samples fail with the probability; a drawn duration differs between faults of one env."""
    now = struck(*series(spike(probability=0.2), 12))
    binomial(int(now.sum()), now.size, 0.2)
    assert abs(np.corrcoef(now[:-1].ravel(), now[1:].ravel())[0, 1]) < 5.0 / math.sqrt(now[1:].size)
    now = struck(*series(spike(probability=0.02, duration=sn.Choice((0.02, 0.07)), elements=(0,)), 60))[..., 0]
    runs = np.diff(np.vstack([np.zeros(N), now, np.zeros(N)]).T, axis=1)
    starts = (runs == 1).nonzero()[1]
    lengths = ((runs == -1).nonzero()[1] - starts)[starts < 40]
    twos, sevens = int((lengths == 2).sum()), int((lengths == 7).sum())
    # a fault stays single unless the next sample starts another fault, with 2 % either way
    binomial(sevens, twos + sevens, 0.5)
    assert twos + sevens > 0.95 * lengths.size


def test_permanent_fault_ends_with_the_episode() -> None:
    """duration=None lasts until the reset, and the env is healthy after it."""
    now = struck(*series(spike(start=0.03, duration=None), 12, 2, reset={8: [0]}))
    assert now[:, 0, 0].nonzero()[0].tolist() == [3, 4, 5, 6, 7, 11]
    assert now[:, 1, 0].nonzero()[0].tolist() == [3, 4, 5, 6, 7, 8, 9, 10, 11]


# What faults do -------------------------------------------------------------------------------------------------------


def test_a_stuck_value_is_the_last_one_before_the_fault() -> None:
    """During the fault the previous value is repeated; at the first sample of an episode, that sample."""
    truth, value = series(sn.stages.StuckFault(start=0.04, duration=0.03), 10, 3)
    expected = truth.copy()
    expected[4:7] = truth[3]
    np.testing.assert_array_equal(value, expected)
    truth, value = series(sn.stages.StuckFault(start=0.0), 10, 3, reset={6: [1]})
    np.testing.assert_array_equal(value[:6], np.broadcast_to(truth[0], (6, 3, 3)))
    np.testing.assert_array_equal(value[6:, 1], np.broadcast_to(truth[6, 1], (4, 3)))


def test_a_stuck_value_repeats_its_noise() -> None:
    """The stuck value is the reported value, with noise and quantisation: it repeats to the bit."""
    _, value = series(sn.stages.StuckFault(start=0.02), 8, 3, noise=1.0, resolution=0.25)
    np.testing.assert_array_equal(value[2:], np.broadcast_to(value[1], (6, 3, 3)))
    np.testing.assert_array_equal(value, np.round(value * 4.0) / 4.0)


def test_spikes_follow_their_distribution() -> None:
    """Amounts are redrawn for each spike and element: they pass a Kolmogorov-Smirnov test, uncorrelated."""
    from scipy import stats

    stage = sn.stages.SpikeFault(probability=1.0, amount=sn.Normal(3.0, 2.0))
    scene = syn.world([syn.ProbeCfg(name="p", stages=(stage,))], N)
    draws = []
    for _ in range(2):
        scene.engine.body_pos_w[:] = 0.0
        scene.update()
        draws.append(scene["p"].data.vec.double().numpy().copy())
    z = (np.stack(draws) - 3.0) / 2.0
    assert stats.kstest(z.ravel(), "norm").pvalue > 0.001
    assert np.abs(np.corrcoef(z[0], z[1], rowvar=False)[np.triu_indices(6, 1)]).max() < 5.0 / math.sqrt(N)


def test_spike_place_in_the_chain() -> None:
    """By default full scale and resolution also apply to the spike; at "dropout" it exceeds both."""
    results = {}
    for place in ("bias", "dropout"):
        stages = (sn.stages.SpikeFault(start=0.0, amount=100.2, place=place), sn.stages.Saturation(high=50.0))
        _, value = series(stages[0], 1, 1, resolution=0.5)
        scene = syn.world([syn.ProbeCfg(name="p", resolution=0.5, stages=stages)], 1)
        results[place] = (value[0, 0, 0], float(scene["p"].data.vec[0, 0]))
    assert results["bias"] == (100.0, 50.0)
    assert results["dropout"] == (pytest.approx(100.2), pytest.approx(100.2))


def test_a_rail_is_low_high_or_drawn_per_fault() -> None:
    """The value is at one rail for a whole fault, at either with equal chance; the next fault redraws it."""
    for rail, expected in (("low", [-5.0, -6.0, -7.0]), ("high", [5.0, 6.0, 7.0])):
        _, value = series(sn.stages.SaturationFault(start=0.02, high=(5.0, 6.0, 7.0), rail=rail), 5, 2)
        np.testing.assert_array_equal(value[2:], np.broadcast_to(expected, (3, 2, 3)))
    stage = sn.stages.SaturationFault(start=0.02, high=100000.0, low=-50000.0)
    _, value = series(stage, 9, reset={5: list(range(N))})
    assert set(np.unique(value[2])) == {-50000.0, 100000.0}
    np.testing.assert_array_equal(value[2:5], np.broadcast_to(value[2], (3, N, 3)))
    np.testing.assert_array_equal(value[7:], np.broadcast_to(value[7], (2, N, 3)))
    binomial(int((value[2] > 0).sum()), 3 * N, 0.5)
    binomial(int((value[2] == value[7]).sum()), 3 * N, 0.5)


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: sn.stages.Dropout(probability=1.5), r"probability in \[0, 1\]"),
        (lambda: sn.stages.Dropout(probability={"p": 2.0, "r": 0.5}), "probability in"),
        (lambda: sn.stages.Dropout(probability=0.1, mode="value"), "a value if and only if mode is 'value'"),
        (lambda: sn.stages.Dropout(probability=0.1, value=3.0), "value: got 3.0, expected a value if and only if mode"),
        (lambda: sn.stages.Dropout(probability=0.1, mode="gone"), "mode"),
        (lambda: sn.stages.StuckFault(), "exactly one of probability, rate and start"),
        (lambda: sn.stages.StuckFault(rate=1.0, start=1.0), "exactly one of"),
        (lambda: sn.stages.StuckFault(probability=0.1, rate=1.0), "exactly one of"),
        (lambda: sn.stages.StuckFault(start=-1.0), "start: got -1.0, expected times >= 0"),
        (
            lambda: sn.stages.StuckFault(start=1.0, per="sample", elements=(1,)),
            "elements: .*no elements with per='sample'",
        ),
        (lambda: sn.stages.StuckFault(start=1.0, elements=(-1,)), "indices >= 0"),
        (lambda: sn.stages.SpikeFault(start=1.0), "amount"),
        (lambda: sn.stages.SpikeFault(start=1.0, amount=sn.Choice(((1.0, 2.0, 3.0),))), "choice among numbers"),
        (lambda: sn.stages.SaturationFault(start=1.0, high=1.0, low=2.0), "at or below the upper"),
    ],
)
def test_impossible_faults_are_refused(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(sn.ConfigError, match=text):
        make()


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        (sn.stages.StuckFault(rate=101.0), "at most one fault per sample, 100 per second"),
        (sn.stages.StuckFault(start=0.0, elements=(3,)), "elements below 3"),
        (sn.stages.StuckFault(start=(0.0, 1.0)), "2 numbers does not fit 3 columns"),
        (sn.stages.Dropout(probability=(0.1, 0.2, 0.3), per="sample"), "3 numbers does not fit 1 columns"),
        (sn.stages.SpikeFault(start=0.0, amount=(1.0, 2.0)), "amount that fits"),
        (sn.stages.Saturation(high=(1.0, 2.0)), "high that fits"),
    ],
)
def test_faults_that_do_not_fit_a_sensor_are_refused(stage: sn.stages.StageCfg, text: str) -> None:
    """The error names the sensor and the stage."""
    with pytest.raises(sn.ConfigError, match=rf"'p'.*stages\.0.*{text}"):
        syn.world([syn.ProbeCfg(name="p", stages=(stage,))])
