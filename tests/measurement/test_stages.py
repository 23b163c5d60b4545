"""Stages: built-in stages by their statistics, a plugin's by the contract of places, states and resets."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import synthetic as syn
import torch

import sensorium as sn
from sensorium.measurement.stage_cfg import PLACES, Place, StageCfg
from sensorium.stages import (
    Dropout,
    Flicker,
    GaussMarkov,
    GroupDelay,
    LowPass,
    Saturation,
    SaturationFault,
    SpikeFault,
    StuckFault,
    TemperatureDrift,
    WindowAverage,
)

N = 4096


def error(scene: sn.Scene, name: str = "p") -> np.ndarray:
    """Return measured minus true of `Scalar`, float64 [env]."""
    return (scene[name].data.double() - scene[name].ground_truth.double()).numpy()


def still(cfgs: list[Any], num_envs: int = N, dt: float = 0.01, **kwargs: Any) -> sn.Scene:
    """Build a scene whose body rests at (1, 2, 4), so that differences of float32 are exact enough."""
    return syn.world(cfgs, num_envs, dt, at=(1.0, 2.0, 4.0), **kwargs)


# Gauss-Markov ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["stationary", "zero"])
@pytest.mark.parametrize("rate", [{}, {"rate_hz": 25.0}])
def test_gauss_markov_is_stationary_with_its_correlation_time(start: str, rate: dict[str, float]) -> None:
    """The deviation is q sqrt(tau/2) from the start or in the long run, the correlation exp(-t/tau), at any rate."""
    from scipy import stats

    q, tau, dt = 0.2, 0.1, 0.01
    stage = GaussMarkov(density=q, tau=tau, start=start)
    scene = still([syn.ScalarCfg(name="p", stages=(stage,), **rate)], dt=dt, seed=1)
    sd = q * (tau / 2.0) ** 0.5
    if start == "zero":
        assert np.all(error(scene) == 0.0)
        for _ in range(80):  # exp(-80 dt / tau) = 3e-4 of the start is left
            scene.update()
    low, high = stats.chi2.ppf([0.005, 0.995], N) / N
    before = error(scene)
    assert low < (before**2).mean() / sd**2 < high
    assert stats.kstest(before / sd, "norm").pvalue > 0.01
    for _ in range(8):
        scene.update()
    after = error(scene)
    assert low < (after**2).mean() / sd**2 < high
    rho = np.exp(-8 * dt / tau)
    assert abs(np.arctanh(np.corrcoef(before, after)[0, 1]) - np.arctanh(rho)) < 2.58 / (N - 3) ** 0.5


def test_turn_on_bias_is_drawn_per_episode() -> None:
    """The turn-on bias has its deviation across envs, is constant in an episode and is redrawn at a reset."""
    from scipy import stats

    stage = GaussMarkov(density=0.0, tau=1.0, turn_on=0.5)
    scene = still([syn.ScalarCfg(name="p", stages=(stage,))], seed=2)
    first = error(scene)
    low, high = stats.chi2.ppf([0.005, 0.995], N) / N
    assert low < (first**2).mean() / 0.25 < high
    for _ in range(5):
        scene.update()
        assert np.array_equal(error(scene), first)
    scene.reset(list(range(N // 2)))
    second = error(scene)
    assert np.array_equal(second[N // 2 :], first[N // 2 :])
    assert np.all(second[: N // 2] != first[: N // 2])
    assert abs(np.corrcoef(first[: N // 2], second[: N // 2])[0, 1]) < 2.58 / (N // 2) ** 0.5


# Scale and saturation -------------------------------------------------------------------------------------------------


def test_scale_error_is_the_configured_matrix() -> None:
    """x -> T (I + S) x, with six couplings, three (one per source axis) or one; also per mount axis."""
    x = np.array([1.0, 2.0, 4.0])
    scale = np.array([0.1, -0.2, 0.5])
    six = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06)
    matrices = {
        "six": (six, np.array([[1, 0.01, 0.02], [0.03, 1, 0.04], [0.05, 0.06, 1]])),
        "three": ((0.1, 0.2, 0.3), np.array([[1, 0.2, 0.3], [0.1, 1, 0.3], [0.1, 0.2, 1]])),
        "one": (0.1, np.full((3, 3), 0.1) + 0.9 * np.eye(3)),
    }
    cfgs = [syn.ProbeCfg(name=name, stages=(sn.stages.ScaleError(scale=tuple(scale), cross_axis=cross),))
            for name, (cross, _) in matrices.items()]  # fmt: skip
    scene = still(cfgs, 3)
    for name, (_, matrix) in matrices.items():
        expected = matrix @ ((1.0 + scale) * x)
        np.testing.assert_allclose(scene[name].data.vec.numpy(), np.tile(expected, (3, 1)), rtol=3e-7)


def test_scale_error_is_drawn_per_env() -> None:
    """A distribution of scale errors is drawn per env and axis at reset and constant in an episode."""
    scene = still([syn.ProbeCfg(name="p", stages=(sn.stages.ScaleError(scale=sn.Uniform(-0.1, 0.1)),))], 64)
    first = scene["p"].data.vec / scene["p"].ground_truth.vec - 1.0
    assert first.abs().max() < 0.1000002 and len(first.unique()) > 180
    scene.update()
    assert torch.equal(scene["p"].data.vec / scene["p"].ground_truth.vec - 1.0, first)
    scene.reset([3])
    second = scene["p"].data.vec / scene["p"].ground_truth.vec - 1.0
    changed = (second != first).any(dim=1)
    assert changed.nonzero().tolist() == [[3]]


def test_saturation_clips_at_both_ends() -> None:
    """Values are clipped exactly to full scale, per axis or with two ends, before quantisation."""
    cfgs = [
        syn.ProbeCfg(name="both", bias=-3.0, stages=(Saturation(high=1.5),)),
        syn.ProbeCfg(name="ends", stages=(Saturation(high=(1.5, 9.0, 3.0), low=1.25),)),
        syn.ProbeCfg(name="steps", resolution=1.0, stages=(Saturation(high=2.4),)),
    ]  # fmt: skip
    scene = still(cfgs, 2)
    assert scene["both"].data.vec[0].tolist() == [-1.5, -1.0, 1.0]
    assert scene["ends"].data.vec[0].tolist() == [1.25, 2.0, 3.0]
    assert scene["steps"].data.vec[0].tolist() == [1.0, 2.0, 2.0]


@pytest.mark.parametrize("make", [Saturation, lambda **ends: SaturationFault(rate=1.0, **ends)])
def test_empty_saturation_range_is_refused(make: Any) -> None:
    """The negative of a negative upper end lies above it, so the lower end must be given."""
    with pytest.raises(sn.ConfigError, match=r"low: got None, expected .*below"):
        make(high=-1.0)
    with pytest.raises(sn.ConfigError, match=r"low: got 2\.0, expected .*at or below"):
        make(high=1.0, low=2.0)
    assert make(high=-1.0, low=-3.0).low == -3.0 and make(high=(0.0, 1.0, 2.0)).low is None


# Rotations ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stage",
    [
        GaussMarkov(density=1.0, tau=1.0), Flicker(bias_instability=1.0), TemperatureDrift(coefficient=0.1),
        LowPass(time_constant=1.0), GroupDelay(window="hann", length=3), Saturation(high=0.5),
        SpikeFault(rate=1.0, amount=1.0), SaturationFault(rate=1.0, high=1.0), StuckFault(rate=1.0),
        Dropout(probability=0.5), Dropout(probability=0.5, per="sample", mode="zero"), WindowAverage(),
    ],
    ids=lambda stage: stage.to_dict()["kind"],
)  # fmt: skip
def test_stage_that_breaks_unit_quaternions_is_refused(stage: StageCfg) -> None:
    """Stages that modify numbers one by one do not keep a quaternion unit, so naming such a field is an error."""
    with pytest.raises(sn.ConfigError, match=r"stages\.0\.fields: got 'quat', expected no rotation"):
        syn.world([syn.KernelProbeCfg(name="p", rate_hz=50.0, stages=(stage.replace(fields=("quat",)),))])


@pytest.mark.parametrize(
    "stage",
    [
        GroupDelay(samples=2), StuckFault(rate=20.0, per="sample", duration=0.05),
        Dropout(probability=0.5, per="sample"),
        Dropout(probability=0.5, per="sample", mode="value", value=(1.0, 0.0, 0.0, 0.0)),
    ],
    ids=["delay", "stuck", "hold", "value"],
)  # fmt: skip
def test_stages_that_move_whole_quaternions_keep_them_unit(stage: StageCfg) -> None:
    """A delayed, frozen or replaced quaternion is an earlier one or the given one."""
    scene = syn.world([syn.KernelProbeCfg(name="p", stages=(stage.replace(fields=("quat",)),))])
    differs = False
    for _ in range(10):
        syn.advance(scene)
        quat = scene["p"].data.quat
        torch.testing.assert_close(quat.norm(dim=-1), torch.ones(4))
        differs |= not torch.equal(quat, scene["p"].ground_truth.quat)
    assert differs


# Plugins --------------------------------------------------------------------------------------------------------------


def test_stages_run_in_the_order_of_places() -> None:
    """Stages run in the order of their places, stages of one place in the given order, once per sample."""
    stages = tuple(syn.NOTES[place](amount=float(k)) for k, place in enumerate(reversed(PLACES)))
    scene = syn.world([syn.ScalarCfg(name="p", noise=0.0, stages=stages)])
    for _ in range(3):
        syn.LOG.clear()
        syn.advance(scene)
        assert syn.LOG == list(PLACES)


class Mark(StageCfg):
    """A stage that doubles and adds one: order matters."""

    place: ClassVar[Place] = "bias"
    first: float = 2.0
    """Factor."""
    then: float = 1.0
    """Summand."""

    def apply(self, slot: Any, truth: Any, state: Any, key: Any) -> None:
        for field in key.columns:
            slot[field].mul_(self.first).add_(self.then)


class MarkNoise(Mark):
    """The same stage, before the bias."""

    place: ClassVar[Place] = "noise"


class MarkPost(Mark):
    """The same stage, after quantisation."""

    place: ClassVar[Place] = "post"


class MarkPhysics(Mark):
    """The same stage, before all others."""

    place: ClassVar[Place] = "physics"


def test_stages_run_between_the_standard_parts() -> None:
    """Stages at noise precede the bias setting, at bias and saturation follow it, dropout and post follow rounding."""
    x = 1.0
    cases: dict[str, tuple[tuple[StageCfg, ...], float]] = {
        "noise": ((MarkNoise(),), round((2 * x + 1 + 0.7) / 0.5) * 0.5),
        "bias": ((Mark(),), round((2 * (x + 0.7) + 1) / 0.5) * 0.5),
        "post": ((MarkPost(),), 2 * (round((x + 0.7) / 0.5) * 0.5) + 1),
        "two": ((Mark(), Mark(first=3.0)), round((3 * (2 * (x + 0.7) + 1) + 1) / 0.5) * 0.5),
        "turned": ((Mark(first=3.0), Mark()), round((2 * (3 * (x + 0.7) + 1) + 1) / 0.5) * 0.5),
        "physics": ((MarkPhysics(),), round((2 * x + 1 + 0.7) / 0.5) * 0.5),
    }
    cfgs = [syn.ScalarCfg(name=name, bias=0.7, resolution=0.5, stages=stages) for name, (stages, _) in cases.items()]
    scene = still(cfgs, 2)
    for name, (_, expected) in cases.items():
        assert scene[name].data.tolist() == [expected] * 2, name
        assert scene[name].ground_truth.tolist() == [x] * 2


def test_physics_stage_enters_the_recurrence() -> None:
    """A physics stage compounds through a moving average on the measured branch; truth stays clean."""
    scene = syn.world([syn.EmaCfg(name="e", stages=(syn.NOTES["physics"](amount=1.0, by_count=True),))], 1)
    truth = measured = None
    for k in range(6):
        s = syn.signal(k, 1)
        truth = s if truth is None else 0.5 * s + 0.5 * truth
        noisy = s + (k + 1.0)
        measured = noisy if measured is None else 0.5 * noisy + 0.5 * measured
        assert torch.equal(scene["e"].ground_truth.x, truth) and torch.equal(scene["e"].data.x, measured)
        syn.advance(scene)


@pytest.mark.parametrize("stage", [syn.NOTES["bias"](amount=1.0, by_count=True), syn.Ramp()], ids=["torch", "recorded"])
def test_states_reset_by_mask(stage: StageCfg) -> None:
    """The states of a stage restart from its `reset` in the reset envs, and continue in the others."""
    scene = still([syn.ScalarCfg(name="p", stages=(stage,))], 4)
    counts = torch.ones(4)
    for k in range(1, 9):
        scene.update()
        counts += 1.0
        if k in (3, 5):
            scene.reset([2])
            counts[2] = 1.0
        scene.update(ticks=0)  # it has memory, and holds its sample
        assert (scene["p"].data - scene["p"].ground_truth).tolist() == counts.tolist()


class Coin(StageCfg):
    """A stage that reads truth of another field, and draws with the key."""

    place: ClassVar[Place] = "dropout"

    def apply(self, slot: Any, truth: Any, state: Any, key: Any) -> None:
        for field in key.columns:
            u, z = key.uniform("u", field), key.normal("z", field)
            slot[field].copy_((truth.speed + u[:, 0] + 1024.0 * (z[:, 0] > 0))[:, None].expand_as(slot[field]))


def test_stage_keys_are_independent() -> None:
    """A stage reads all truth fields; its draws are a pure function of the sample and differ between stages."""
    cfg = syn.ProbeCfg(name="p", fields=("vec", "speed"), stages=(Coin(fields=("vec",)),), history_length=1)
    scene = still([cfg], N)
    first = scene["p"].data.vec[:, 0].clone()
    u = (first - 2.0) % 1024.0
    assert u.min() >= 0.0 and u.max() < 1.0001 and abs(float(u.mean()) - 0.5) < 2.58 * (1.0 / 12 / N) ** 0.5
    scene.update(ticks=0)
    assert torch.equal(scene["p"].data.vec[:, 0], first)
    scene.update()
    assert not torch.equal(scene["p"].data.vec[:, 0], first)
    twice = syn.ProbeCfg(name="p", stages=(GaussMarkov(density=1.0, tau=1.0),) * 2)
    states = still([twice], 4)["p"].buffers.stages
    assert not torch.equal(*(run.states["drift_vec"] for run in states))


def test_invalid_stages_are_refused() -> None:
    """A stage on an unknown field, on fields of several units, or on an unsuitable field is rejected by name."""
    for stages, text in [
        ((Saturation(high=1.0, fields=("vek",)),), "vec"),
        ((Saturation(high=1.0),), "fields"),
        ((sn.stages.ScaleError(fields=("speed",)),), "three-axis"),
        ((Saturation(high=1.0, fields=("label",)),), "label"),
    ]:
        with pytest.raises(sn.ConfigError, match=text):
            syn.world([syn.ProbeCfg(fields=("vec", "speed", "label"), stages=stages)])
    with pytest.raises(TypeError, match="place"):

        class Nowhere(StageCfg):
            place: ClassVar[Any] = "nowhere"

    with pytest.raises(TypeError, match="place"):

        class NowhereByDefault(StageCfg):
            place: Any = "nowhere"


class Anywhere(StageCfg):
    """A stage with its place as a field of each instance; it doubles and adds one."""

    place: Place = "bias"  # type: ignore[misc]
    """The place at which the stage works."""

    def apply(self, slot: Any, truth: Any, state: Any, key: Any) -> None:
        for field in key.columns:
            slot[field].mul_(2.0).add_(1.0)


def test_place_can_be_a_config_field() -> None:
    """An instance works at its place, before or after quantisation, and files keep the place."""
    cfgs = [
        syn.ScalarCfg(name="default", resolution=2.0, stages=(Anywhere(),)),
        syn.ScalarCfg(name="post", resolution=2.0, stages=(Anywhere(place="post"),)),
    ]
    scene = still(cfgs, 2)
    assert scene["default"].data.tolist() == [4.0] * 2  # 2 * 1 + 1, in steps of 2, half to even
    assert scene["post"].data.tolist() == [1.0] * 2  # 1 in steps of 2 is 0
    assert syn.ScalarCfg.from_json(cfgs[1].to_json()) == cfgs[1]
    with pytest.raises(sn.ConfigError, match="place"):
        Anywhere(place="nowhere")
