"""Hysteresis: loops of known areas, a float64 reference sample by sample, and the start of a loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import skin
import torch
from skin import BOTH, Array, SkinCfg, readings

import sensorium as sn
from sensorium.stages import Play
from sensorium.testing import check_sensor

EPS = 2.0**-24
FORCE = ("force",)


def response(
    stage: sn.stages.StageCfg, x: Array, dt: float = 0.01, layout: tuple[int, ...] = (2, 3), **kwargs: Any
) -> Array:
    """Return the readings of taxels with all values x `[tick]`, `[tick]`; they are all the same."""
    forces = np.broadcast_to(x[:, None, None, None], (len(x), 2, math.prod(layout), 3))
    out = readings(SkinCfg(name="s", layout=layout, stages=(stage,), **kwargs), forces, dt=dt).reshape(len(x), -1)
    assert (out == out[:, :1]).all()
    return out[:, 0]


def area(x: Array, y: Array) -> float:
    """Return the integral of y dx around a closed polygon: > 0 where y leads, and work is lost; < 0 where y lags."""
    return float(0.5 * np.sum(y * (np.roll(x, -1) - np.roll(x, 1))))


# A tactile sensor -----------------------------------------------------------------------------------------------------


def test_press_loops_have_the_configured_areas() -> None:
    """A probe of 1000 N/m on a floor moves 1 mm in and out: the loop of 1 N of a play; a sine, of a viscoelastic.

    The play turns at samples. The sine has 500 samples per turn, and its loop differs by a period over tau, 1 %.
    """
    floor, dt = sn.engines.Shape("plane", "floor"), 0.001
    play = Play(fields=FORCE, width=0.2, weight=0.5)
    branch = sn.stages.Viscoelastic(fields=FORCE, strength=0.2, tau=0.1)
    engine = sn.TensorEngine(1, dt, bodies=("flat", "round"), shapes=(floor,))

    def motion(t: float) -> dict[str, Any]:
        to_and_fro = -0.001 * abs((t / 0.25) % 2.0 - 1.0)
        return {"body_pos_w": ((0.0, 0.0, to_and_fro), (0.0, 0.0, -0.0015 - 0.0005 * math.sin(4.0 * math.pi * t)))}

    engine.motion = motion
    cfgs = [
        sn.KinematicTactileSensorCfg(name=body, body=body, probe_local_pos=((0.0, 0.0, 0.0),), probe_radius=radius,
                                     stages=(stage,))
        for body, radius, stage in (("flat", 1e-6, play), ("round", 0.001, branch))
    ]  # fmt: skip
    scene = sn.Scene(engine, cfgs)
    rows = []
    for _ in range(2000):
        scene.update()
        rows.append([part[0, 0, 2].item() for each in cfgs for part in
                     (scene[each].ground_truth.force, scene[each].data.force)])  # fmt: skip
    x, y, sine, shown = np.array(rows[-500:]).T
    assert area(x, y) == pytest.approx(-play.loop_area(1.0), abs=1e-5)
    assert area(sine, shown) == pytest.approx(branch.loop_area(0.5, 2.0), rel=0.01)


# Play -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (Play(fields=FORCE, width=2.0), 2.0 * (8.0 - 2.0)),
        (Play(fields=FORCE, width=2.0, weight=0.25), 0.25 * 2.0 * (8.0 - 2.0)),
        (Play(fields=FORCE, width=(1.0, 4.0, 16.0)), (1.0 * 7.0 + 4.0 * 4.0) / 3.0),
        (Play(fields=FORCE, width=(1.0, 4.0), weight=(0.5, 0.25)), 0.5 * 1.0 * 7.0 + 0.25 * 4.0 * 4.0),
        (Play(fields=FORCE, width=0.1, full_scale=20.0, weight=0.5), 0.5 * 2.0 * 6.0),
        (Play(fields=FORCE, width=0.0), 0.0),
    ],
)
@pytest.mark.parametrize("steps", [16, 64])
def test_triangular_cycle_loop_has_the_configured_area(stage: Play, expected: float, steps: int) -> None:
    """From 0 to 8 and back, at any rate, the area is the sum of w 2r (8 - 2r) over the plays, as for parallelograms.

    Every turn of the loop is at a multiple of 1/2, and therefore at a sample: the polygon of the samples is the loop.
    """
    up = np.linspace(0.0, 8.0, steps + 1)
    x = np.tile(np.concatenate([up, up[-2:0:-1]]), 3)
    y = response(stage, x)
    last = slice(4 * steps, 6 * steps)  # the third cycle: the loop is closed
    assert np.array_equal(y[last], y[2 * steps : 4 * steps])
    assert area(x[last], y[last]) == pytest.approx(-expected, abs=1e-5)
    assert stage.loop_area(8.0) == pytest.approx(expected, abs=1e-12)


def test_play_operators_match_the_slow_reference() -> None:
    """A random walk of loads matches float64, play by play: y = x + sum of w (P(x) - x)."""
    stage = Play(fields=FORCE, width=(0.3, 0.8, 2.0), weight=(0.2, 0.3, 0.1))
    x = np.random.default_rng(2).normal(scale=0.4, size=300).cumsum().astype(np.float32).astype(np.float64)
    y, states = [], [x[0]] * 3
    for value in x:
        states = [
            min(max(o, value - 0.5 * w), value + 0.5 * w) for o, (w, _) in zip(states, stage.plays(), strict=True)
        ]
        y.append(value + sum(w * (o - value) for o, (_, w) in zip(states, stage.plays(), strict=True)))
    np.testing.assert_allclose(response(stage, x), y, atol=8.0 * EPS * np.abs(x).max())


def test_hysteresis_is_independent_of_the_rate() -> None:
    """The same loads at another rate, or with pauses, give the same readings."""
    stage = Play(fields=FORCE, width=0.5)
    x = np.sin(np.arange(60) * 0.4)
    y = response(stage, x)
    assert np.array_equal(response(stage, np.repeat(x, 3))[2::3], y)
    assert np.array_equal(response(stage, x, dt=0.001), y)


# Viscoelastic ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("strength", "tau", "turns"), [(0.3, 0.05, 40), (-0.5, 0.2, 25), (2.0, 0.01, 8)])
def test_step_response_overshoots_and_relaxes(strength: float, tau: float, turns: int) -> None:
    """n samples after a step of 1, the response is 1 + strength exp(-n period / tau): 36.8 % of the excess at tau."""
    x = np.concatenate([np.full(3, 2.0), np.full(turns, 3.0)])
    y = response(sn.stages.Viscoelastic(fields=FORCE, strength=strength, tau=tau), x)
    assert (y[:3] == 2.0).all()
    np.testing.assert_allclose(y[3:], 3.0 + strength * np.exp(-np.arange(turns) * 0.01 / tau), rtol=1e-6)


@pytest.mark.parametrize("strength", [0.4, -0.3])
def test_sine_loop_has_the_configured_area(strength: float) -> None:
    """For N samples per turn: N/2 sin(2 pi/N) strength A^2 Im H(exp(iwT)), H = (1 - 1/z) / (1 - a/z), to rounding.

    For short periods this is pi strength A^2 wT/(1 + (wT)^2), the area of the continuous loop, which `loop_area`
    returns.
    """
    count, amplitude, tau, dt = 200, 3.0, 0.05, 0.001
    turn = 2.0 * math.pi / count  # 5 Hz at 1000 samples/s
    x = amplitude * np.sin(turn * np.arange(6 * count))  # after one second, 20 tau, 2e-9 of the start is left
    y = response(sn.stages.Viscoelastic(fields=FORCE, strength=strength, tau=tau), x, dt)
    z, a = np.exp(1j * turn), math.exp(-dt / tau)
    h = (1.0 - 1.0 / z) / (1.0 - a / z)
    exact = 0.5 * count * math.sin(turn) * strength * amplitude**2 * h.imag
    corner = EPS * amplitude * (1.0 + 2.0 * abs(strength) / (1.0 - a))  # accumulated error of the recursion at one
    assert area(x[-count:], y[-count:]) == pytest.approx(exact, abs=4.0 * amplitude * corner)
    stage = sn.stages.Viscoelastic(strength=strength, tau=tau)
    assert exact == pytest.approx(
        stage.loop_area(amplitude, 5.0), rel=dt / tau
    )  # H differs from its limit by O(dt/tau)
    assert np.sign(exact) == np.sign(strength)


def test_the_loop_is_largest_at_the_time_constant() -> None:
    """The area over frequency has its maximum pi/2 strength A^2 at w = 1/tau."""
    stage = sn.stages.Viscoelastic(strength=0.4, tau=0.05)
    peak = stage.loop_area(3.0, 1.0 / (2.0 * math.pi * 0.05))
    assert peak == pytest.approx(0.5 * math.pi * 0.4 * 9.0)
    assert all(stage.loop_area(3.0, f) < peak for f in (1.0, 3.0, 3.3, 10.0))
    drawn = sn.stages.Viscoelastic(strength=sn.Uniform(0.1, 0.2), tau=0.05)
    with pytest.raises(ValueError, match="strength="):
        drawn.loop_area(3.0, 1.0)
    assert drawn.loop_area(3.0, 1.0, strength=0.4) == stage.loop_area(3.0, 1.0)


def test_two_samples_match_the_recursion_exactly() -> None:
    """For a load d applied at a tick: (1 + s) d, then (1 + s a) d, (1 + s a^2) d, at the sensor's own rate."""
    x = np.array([0.0] + [1.5] * 12)
    y = response(sn.stages.Viscoelastic(fields=FORCE, strength=0.25, tau=0.1), x, rate_hz=25.0)
    a = math.exp(-0.04 / 0.1)
    np.testing.assert_allclose(y[[4, 8, 12]], 1.5 * (1.0 + 0.25 * a ** np.arange(3)), rtol=2e-7)


def test_a_strength_can_be_drawn_per_env_and_number() -> None:
    """Just after a step the excess is the strength, within its distribution and different in each env."""
    stage = sn.stages.Viscoelastic(fields=FORCE, strength=sn.Uniform(0.1, 0.2), tau=1.0)
    x = np.concatenate([np.zeros((1, 300, 4, 3)), np.ones((1, 300, 4, 3))])
    out = readings(SkinCfg(name="s", layout=(4,), stages=(stage,)), x)[1] - 1.0
    assert out.min() >= 0.1 - 1e-7 and out.max() <= 0.2 + 1e-7
    sd = 0.1 / math.sqrt(12.0)
    assert out.std() == pytest.approx(
        sd, rel=5.0 * math.sqrt(0.2 / out.size)
    )  # kurtosis 1.8: sd of s^2 is 0.89 / sqrt n
    assert abs(out.mean() - 0.15) < 5.0 * sd / math.sqrt(out.size)


# Both -----------------------------------------------------------------------------------------------------------------


STAGES = (
    sn.stages.Viscoelastic(fields=BOTH, strength=0.5, tau=0.1),
    Play(fields=BOTH, width=0.2, weight=0.5),
)


@pytest.mark.parametrize("stage", STAGES, ids=["viscoelastic", "play"])
def test_no_hysteresis_remains_after_a_reset(stage: sn.stages.StageCfg) -> None:
    """The first sample of an episode is the truth, and a constant load stays constant; the other env is unaffected."""
    cfg = SkinCfg(name="s", stages=(stage,))
    engine = skin.engine_of(cfg, 2)
    scene = sn.Scene(engine, [cfg])
    force = scene["s"].data.force
    assert torch.equal(force, scene["s"].ground_truth.force)
    for k in range(1, 5):
        engine.body_pos_w[:] = float(k)
        scene.update()
    before = scene["s"].data.force.clone()
    assert (before != 4.0).all()
    scene.reset([1], body_pos_w=torch.full((1, 12, 3), -5.0))
    after = scene["s"].data.force.clone()
    assert torch.equal(after[0], before[0]) and (after[1] == -5.0).all()
    for _ in range(3):
        scene.update()
    assert (scene["s"].data.force[1] == -5.0).all()


@pytest.mark.parametrize("stage", STAGES, ids=["viscoelastic", "play"])
def test_miss_passes_without_effect_on_later_samples(stage: sn.stages.StageCfg) -> None:
    """Infinity is shown unchanged, also as the first sample, and no later value is infinite or NaN."""
    x = np.array([math.inf, 1.0, 1.0, 2.0, math.inf, 2.0, 2.5])
    y = response(stage, x)
    assert np.array_equal(np.isposinf(y), np.isposinf(x)) and not np.isnan(y).any()
    assert (y[1:3] == 1.0).all()
    whole = response(stage, np.array([1.0, 1.0, 2.0, 2.0, 2.5])) if isinstance(stage, Play) else None
    if whole is not None:
        assert np.array_equal(y[[1, 2, 3, 5, 6]], whole)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: sn.stages.Viscoelastic(tau=1.0), "strength: got nothing"),
        (lambda: sn.stages.Viscoelastic(strength=0.1, tau=0.0), r"tau: got 0\.0, expected a finite time > 0"),
        (lambda: sn.stages.Viscoelastic(strength=0.1, tau=-1.0), "a finite time > 0"),
        (lambda: sn.stages.Viscoelastic(strength=0.1, tau=math.inf), "a finite time > 0"),
        (lambda: sn.stages.Viscoelastic(strength=0.1, tau=math.nan), "a finite time > 0"),
        (lambda: sn.stages.Viscoelastic(strength=-1.0, tau=0.1), r"strength: got -1\.0, expected numbers above -1"),
        (lambda: Play(width=-0.1), r"width: got -0\.1, expected finite widths >= 0"),
        (lambda: Play(width=(0.1, math.nan)), "finite widths"),
        (lambda: Play(width=()), "finite widths"),
        (lambda: Play(width=0.1, weight=1.5), r"weight: got 1\.5, expected shares >= 0 with a sum of at most 1"),
        (lambda: Play(width=(0.1, 0.2), weight=(0.6, 0.6)), "a sum of at most 1"),
        (lambda: Play(width=(0.1, 0.2), weight=0.5), "one share for each of 2 widths, not 1"),
        (lambda: Play(width=0.1, full_scale=0.0), r"full_scale: got 0\.0, expected a finite number > 0"),
    ],
)  # fmt: skip
def test_invalid_hysteresis_is_refused(make: Any, match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        make()


def test_a_strength_that_does_not_fit_the_columns_is_refused() -> None:
    """Five numbers do not fit 36 columns."""
    cfg = SkinCfg(name="s", stages=(sn.stages.Viscoelastic(fields=FORCE, strength=(0.1,) * 5, tau=1.0),))
    with pytest.raises(sn.ConfigError, match="strength that fits: an amount of 5 numbers"):
        sn.Scene(skin.engine_of(cfg, 1), [cfg])


def test_contract_holds() -> None:
    """A skin with both stages passes every rule."""
    stages = (*STAGES, sn.stages.Viscoelastic(fields=("pressure",), strength=sn.Normal(0.1, 0.02), tau=0.02))
    cfg = SkinCfg(stages=stages)
    assert "resuming_is_exact" in check_sensor(cfg, engine=skin.moving(cfg))
