"""Delay, jitter, loss and history: an exact model of the displayed sample, and the distributions of the draws."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import synthetic as syn
import torch
from scipy import stats

import sensorium as sn
from sensorium.compute import Rate
from sensorium.random import _words, normal_numpy, stream_key, uniform_numpy

SEED = 3

# The exact model ------------------------------------------------------------------------------------------------------


def arrivals(
    tick: int, num_envs: int, episode: np.ndarray, delay: float, jitter: Any, loss: Any, burst: np.ndarray, first: bool
) -> np.ndarray:
    """Return when the samples of a tick arrive, float64 [env], inf if never; `burst` is written."""
    words = _words(stream_key(SEED, "p", "transport"), tick, np.arange(num_envs), episode, 0, 4)
    late = np.full(num_envs, np.float32(delay))
    if isinstance(jitter, sn.Normal):
        extra = np.float32(jitter.mean) + np.float32(jitter.std) * normal_numpy(words[:, 0])
        late = late + np.clip(extra, -late, late)
    elif jitter is not None:
        late = late + np.float32(jitter) * uniform_numpy(words[:, 0])
    when = tick + np.floor(late + np.float32(0.5)).astype(np.float64)
    u = uniform_numpy(words[:, 1])
    if isinstance(loss, sn.GilbertElliott):
        burst[:] = np.where(burst & ~first, u >= np.float32(loss.r), u < np.float32(loss.p))
        when[burst] = math.inf
    elif loss is not None:
        when[u < np.float32(loss)] = math.inf
    return when


CASES: dict[str, dict[str, Any]] = {
    "delay": {"delay": 3},
    "uniform": {"delay": 5, "jitter": 4},
    "normal": {"delay": 4, "jitter": sn.Normal(2.0, 6.0)},
    "loss": {"loss": 0.6},
    "lossy_delay": {"delay": 4, "loss": 0.5},
    "all": {"delay": 6, "jitter": 6, "loss": 0.4},
    "bursts": {"delay": 2, "jitter": 2, "loss": sn.GilbertElliott(0.2, 0.3)},
    "changed": {"delay": 14, "changes": {9: 3, 13: 14, 34: 9}},
    "skipped": {"delay": 9, "jitter": 3, "skips": range(11, 17)},
}


@pytest.mark.parametrize("period", [1, 3, 1.6])
@pytest.mark.parametrize("case", CASES)
def test_transport_matches_the_exact_model(case: str, period: float) -> None:
    """The newest arrived sample is shown, else the first, which is then invalid; is_new and age follow.

    Delays are also lowered and raised at run time, and ticks skipped: the newest samples may then arrive last.
    """
    dt, num_envs = 0.5, 16
    given = CASES[case]
    delay, jitter, loss = (given.get(name) for name in ("delay", "jitter", "loss"))
    cfg: dict[str, Any] = {"loss": loss, "update_period": period * dt}
    if delay is not None:
        cfg["delay"] = delay * dt
    if jitter is not None:
        cfg["jitter"] = sn.Normal(jitter.mean * dt, jitter.std * dt) if isinstance(jitter, sn.Normal) else jitter * dt
    skips, rate = given.get("skips", ()), Rate.of(Fraction(1, 2), period * dt, None, "p")
    scene = syn.world([syn.ScalarCfg(name="p", **cfg)], num_envs, dt, seed=SEED, allow_gaps=True)
    sensor = scene["p"]
    episode, burst = np.zeros(num_envs, int), np.zeros(num_envs, bool)
    sent: list[list[tuple[int, float]]] = [[] for _ in range(num_envs)]

    def send(tick: int, envs: list[int], first: bool) -> None:
        mine = burst.copy()
        when = arrivals(tick, num_envs, episode, delay or 0.0, jitter, loss, mine, first)
        for env in envs:
            burst[env] = mine[env]
            sent[env] = ([] if first else sent[env]) + [(tick, when[env])]

    send(0, list(range(num_envs)), True)
    last = np.full(num_envs, -1)
    for k in range(45):
        if k in given.get("changes", ()):
            delay = given["changes"][k]
            sensor.set("delay", delay * dt)
        if k in skips:
            continue
        before = scene.tick if k else -1
        if k:
            syn.write(scene, k)
            scene.update(ticks=k - scene.tick)
            if rate.next_after(k - 1) == k or (k - 1 in skips and rate.index(k) > rate.index(skips[0] - 1)):
                send(k, list(range(num_envs)), False)
        if k == 25:
            scene.reset([1, 2])
            episode[[1, 2]] += 1
            send(k, [1, 2], True)
            last[[1, 2]] = -1
        here = [max((s for s in sent[env] if s[1] <= k), default=None) for env in range(num_envs)]
        shown = np.array([s[0] if s else sent[env][0][0] for env, s in enumerate(here)])
        assert sensor.valid.tolist() == [s is not None for s in here]
        assert sensor.capture_tick.tolist() == shown.tolist()
        assert sensor.is_new.tolist() == [s is not None and s[1] > before for s in here]
        assert sensor.age.tolist() == [(k - tick) * dt for tick in shown]
        assert torch.equal(sensor.data, torch.tensor([tick + 64.0 * env for env, tick in enumerate(shown)]))
        assert np.all(shown >= last)  # a shown sample is never withdrawn
        last = shown


def test_is_new_covers_the_control_step() -> None:
    """`is_new` covers the whole control step, even if the sample that arrived in it has since left the ring."""
    scene = syn.world([syn.ScalarCfg(name="p", loss=0.7)], 64, seed=SEED)
    for _ in range(5):
        before = scene["p"].capture_tick.clone()
        scene.step(substeps=6)
        assert torch.equal(scene["p"].is_new, scene["p"].capture_tick > before)
        assert not scene["p"].is_new.all() and scene["p"].is_new.any()


@pytest.mark.parametrize(
    ("delay", "dt", "ticks"),
    [(0.005, 0.002, 3), (0.0025, 0.01, 0), (0.0035, 0.001, 4), (0.3, 0.2, 2), (0.0149, 0.01, 1), (0.015, 0.01, 2),
     (0.35, 0.1, 4), (0.45, 0.1, 5), (0.1, 0.1, 1), (0.07, 0.01, 7), (0.29, 0.01, 29)],
)  # fmt: skip
def test_arrival_ticks_are_rounded_half_up(delay: float, dt: float, ticks: int) -> None:
    """A delay is rounded to ticks half up, exactly for the decimals as written, in the config and at run time."""
    cfgs = [syn.ScalarCfg(name="a", delay=delay), syn.ScalarCfg(name="b", delay=10.0 * delay)]
    scene = syn.world(cfgs, 1, dt)
    scene["b"].set("delay", delay)
    syn.advance(scene, 60)
    assert scene.tick - scene["a"].capture_tick.item() == ticks == scene.tick - scene["b"].capture_tick.item()


def test_a_saved_delay_is_expected_when_it_was_lowered() -> None:
    """A scene that loads a state with a lowered delay expects arrivals as early as the one that saved it."""
    scenes = [syn.world([syn.ScalarCfg(name="p", delay=0.08, update_period=0.1)], 2, 0.01) for _ in range(2)]
    scenes[0]["p"].set("delay", 0.02)
    syn.advance(scenes[0], 10)
    scenes[1].load_state(scenes[0].state())
    assert [scene["p"].next_change for scene in scenes] == [11, 11]
    for scene in scenes:
        syn.advance(scene, 2)
        assert scene["p"].has_arrived(11) and scene["p"].capture_tick.tolist() == [10, 10]


def test_longest_delay_fits() -> None:
    """With delay and jitter at their limit for every env, no arriving sample was overwritten before."""
    scene = syn.world([syn.ScalarCfg(name="p", delay=0.05, jitter=0.0)], 64)
    scene["p"].set("jitter", 0.05)
    sensor = scene["p"]
    for _ in range(40):
        syn.advance(scene)
        valid = sensor.valid
        assert valid.all() or scene.tick < 11
        assert (scene.tick - sensor.capture_tick).max() <= 10


# Statistics: fixed seeds, many envs, 99 % intervals -------------------------------------------------------------------

N = 8192


def test_loss_rate_is_the_probability() -> None:
    """The share of lost samples is the given probability, and losses of neighbouring samples are independent."""
    p = 0.3
    scene = syn.world([syn.ScalarCfg(name="p", loss=p)], N, seed=11)
    lost = []
    for _ in range(2):
        syn.advance(scene)
        lost.append((scene["p"].capture_tick < scene.tick).numpy())
    for each in (*lost, lost[0][lost[1]]):
        low, high = stats.binom.interval(0.99, each.size, p)
        assert low <= each.sum() <= high


def test_gilbert_elliott_bursts_have_their_lengths() -> None:
    """In the long run p / (p + r) is lost, and a burst continues with probability 1 - r: its mean length is 1 / r."""
    p, r = 0.2, 0.4
    scene = syn.world([syn.ScalarCfg(name="p", loss=sn.GilbertElliott(p, r))], N, seed=12)
    syn.advance(scene, 25)  # (1 - p - r)^25 = 1e-10 of the start is left
    lost = []
    for _ in range(3):
        syn.advance(scene)
        lost.append((scene["p"].capture_tick < scene.tick).numpy())
    low, high = stats.binom.interval(0.99, N, p / (p + r))
    assert low <= lost[0].sum() <= high
    for before, after in ((lost[0], lost[1]), (lost[1], lost[2])):
        low, high = stats.binom.interval(0.99, before.sum(), 1.0 - r)
        assert low <= (before & after).sum() <= high


@pytest.mark.parametrize("law", ["uniform", "range", "normal", "choice"])
def test_jitter_follows_its_distribution(law: str) -> None:
    """Arrival minus capture follows the configured distribution: Kolmogorov-Smirnov over one sample of each env."""
    dt, delay = 0.001, 0.1
    given: dict[str, tuple[Any, Any]] = {
        "uniform": (0.1, stats.uniform(0.1, 0.1)),
        "range": (sn.Uniform(0.02, 0.06), stats.uniform(0.12, 0.04)),
        "normal": (sn.Normal(0.0, 0.02), stats.norm(0.1, 0.02)),
        "choice": (sn.Choice((0.0, 0.01, 0.05)), None),
    }
    jitter, expected = given[law]
    scene = syn.world([syn.ScalarCfg(name="p", delay=delay, jitter=jitter, update_period=10.0)], N, dt, seed=13)
    arrived = np.zeros(N)
    for _ in range(202):
        before = scene["p"].valid.clone()
        scene.update()
        now = scene["p"].valid
        arrived[(now & ~before).numpy()] = scene.tick * dt
    assert scene["p"].valid.all()
    if expected is None:
        values, counts = np.unique(np.rint(arrived / dt), return_counts=True)
        assert values.tolist() == [100.0, 110.0, 150.0] and stats.chisquare(counts).pvalue > 0.01
        return
    found = stats.kstest(arrived, expected.cdf).statistic
    # rounding to ticks shifts the distribution function by at most half a tick times the highest density
    most = expected.pdf(np.linspace(0.05, 0.25, 2001)).max() * dt / 2.0
    assert found < stats.kstwo.ppf(0.99, N) + most


# History --------------------------------------------------------------------------------------------------------------


def test_history_length_is_per_sensor() -> None:
    """Each sensor keeps its own depth; slot 0 is the newest sample, slot k the sample k samples before, undelayed."""
    cfgs = [syn.ProbeCfg(name="deep", history_length=20, fields=syn.ALL_FIELDS),
            syn.ProbeCfg(name="shallow", history_length=2, delay=0.05, noise=1.0),
            syn.ProbeCfg(name="none", delay=0.01)]  # fmt: skip
    scene = syn.world(cfgs)
    assert [scene[name].buffers.ring.depth for name in scene] == [20, 7, 3]
    for k in range(1, 26):
        syn.advance(scene)
        past = scene["deep"].history
        assert past.vec.shape == (4, 20, 3) and past.byte.shape == (4, 20)
        for h in range(20):
            assert torch.equal(past.vec[:, h], syn.signal(max(k - h, 0), 4))
            assert torch.equal(past.label[:, h], syn.signal(max(k - h, 0), 4)[:, 0].to(torch.int32) - 7)
    assert scene["shallow"].history.vec.shape == (4, 2, 3)
    with pytest.raises(sn.ConfigError, match="history_length"):
        scene["none"].history  # noqa: B018


def test_history_has_one_entry_per_sample() -> None:
    """A slow sensor has one entry per sample, not per tick, lost samples included."""
    scene = syn.world([syn.ScalarCfg(name="p", history_length=3, update_period=0.04, loss=0.9)])
    syn.advance(scene, 18)
    expected = torch.stack([syn.signal(tick, 4)[:, 0] for tick in (16, 12, 8)], dim=1)
    assert torch.equal(scene["p"].history, expected)


def test_history_with_mounts_has_both_axes() -> None:
    """The mount axis of a history is after env and entry, and squeezed for a singular selector."""
    engine = sn.TensorEngine(2, bodies=("a", "b"))
    kw: dict[str, Any] = {"history_length": 3, "fields": ("ang_vel_b",), "delay": 0.01}
    scene = sn.Scene(engine, [sn.ImuCfg(name="one", body="a", **kw), sn.ImuCfg(name="two", bodies=".*", **kw)])
    scene.update()
    assert scene["one"].history.ang_vel_b.shape == (2, 3, 3) and scene["two"].history.ang_vel_b.shape == (2, 3, 2, 3)
    assert scene["one"].data.ang_vel_b.shape == (2, 3) and scene["two"].data.ang_vel_b.shape == (2, 2, 3)
