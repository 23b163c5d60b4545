"""Debouncing, checked against a slow state machine in Python, at any rate, and exact to the tick."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import synthetic as syn
import torch

import sensorium as sn
from sensorium.testing import check_sensor


def drive(
    stage: sn.stages.Debounce, signal: Sequence[float], dt: float = 0.01, start: int = 0, **kwargs: Any
) -> list[float]:
    """Return a sensor's reading with the stage at each tick of a signal; the first value is present at tick `start`."""
    scene = syn.world([], 1, dt, at=(signal[0],) * 3, allow_gaps=True)
    if start:
        scene.update(ticks=start)
    sensor = scene.add(syn.ScalarCfg(name="p", stages=(stage,), **kwargs))
    out = [float(sensor.data[0])]
    for value in signal[1:]:
        scene.engine.body_pos_w[:] = value
        scene.update()
        out.append(float(sensor.data[0]))
    return out


def by_hand(samples: Sequence[float], ticks: Sequence[int], n: int | None, wait: Fraction | None, dt: Fraction,
            threshold: float) -> list[float]:  # fmt: skip
    """Return the debounced reading of samples at given ticks by definition, in exact arithmetic."""
    side, held, run = samples[0] > threshold, samples[0], 0
    began, out = 0, []
    for value, tick in zip(samples, ticks, strict=True):
        if (value > threshold) == side:
            run, held = 0, value
        else:
            began = tick if run == 0 else began
            run += 1
            if (n is not None and run >= n) or (wait is not None and (tick - began) * dt >= wait):
                side, held, run = value > threshold, value, 0
        out.append(held)
    return out


@pytest.mark.parametrize("how", [{"samples": 1}, {"samples": 3}, {"time": 0.0}, {"time": 0.02}, {"time": 0.025}])
@pytest.mark.parametrize("every", [1, 3])
def test_random_signal_is_debounced_like_the_reference(how: dict[str, Any], every: int) -> None:
    """For values around two thresholds, sampled at every or every third tick, readings are equal at every tick."""
    rng = np.random.default_rng(every)
    signal = np.repeat(rng.normal(1.0, 1.0, 60), rng.integers(1, 9, 60))[:200].astype(np.float32).tolist()
    stage = sn.stages.Debounce(threshold=0.9, **how)
    out = drive(stage, signal, **({"update_period": 0.03} if every == 3 else {}))
    wait = None if "samples" in how else Fraction(str(how["time"]))
    ticks = range(0, len(signal), every)
    expected = by_hand(signal[::every], ticks, how.get("samples"), wait, Fraction(1, 100), np.float32(0.9))
    assert out == np.repeat(expected, every)[: len(signal)].tolist()


def test_a_time_is_exact_to_the_tick() -> None:
    """0.003 s at 1 kHz is three ticks, not two or four by decimal rounding; also at tick 10^9."""
    signal = [0.0, 0.0, 5.0, 5.0, 5.0, 5.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    for start in (0, 1_000_000_000):
        out = drive(sn.stages.Debounce(time=0.003), signal, dt=0.001, start=start)
        assert out == [0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 5.0, 5.0, 5.0, 5.0, 0.0, 0.0]


def test_a_bounce_shorter_than_the_time_never_shows() -> None:
    """For repeated pairs of samples on the other side and a wait of three, the count restarts each time."""
    out = drive(sn.stages.Debounce(samples=3), [7.0, *(0.0, 0.0, 7.0) * 20])
    assert set(out) == {7.0}


def test_values_on_the_accepted_side_pass_as_they_are() -> None:
    """Only the crossing is delayed: above the threshold the value itself is shown."""
    assert drive(sn.stages.Debounce(samples=2, threshold=1.0), [3.0, 4.0, 0.5, 5.0, 0.5, 0.25, 0.0, 9.0]) == [
        3.0, 4.0, 4.0, 5.0, 5.0, 0.25, 0.0, 0.0,
    ]  # fmt: skip


def test_reset_starts_on_the_current_side() -> None:
    """A crossing that was pending before the reset is forgotten; the first sample is passed on at once."""
    scene = syn.world([syn.ScalarCfg(name="p", stages=(sn.stages.Debounce(samples=3, threshold=500.0),))], 2)
    syn.advance(scene, 5)
    syn.reset(scene, [1], tick=2000)
    assert scene["p"].data.tolist() == [5.0, 2064.0]


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({}, "exactly one of samples and time"),
        ({"samples": 2, "time": 0.1}, "exactly one"),
        ({"samples": 0}, ">= 1"),
        ({"time": -0.1}, ">= 0 in seconds"),
        ({"samples": 2, "threshold": sn.Uniform(0.0, 1.0)}, r"threshold: got Uniform.*fixed numbers"),
    ],
)
def test_contradictory_config_is_refused(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        sn.stages.Debounce(**fields)


@pytest.mark.parametrize("how", [pytest.param({"samples": 2}, marks=pytest.mark.full), {"time": 0.005}])
def test_contract_holds(how: dict[str, Any]) -> None:
    """A debounced gyroscope passes every rule."""
    stage = sn.stages.Debounce(threshold=torch.tensor([0.1, 0.2, 0.3]), **how)
    assert "resuming_is_exact" in check_sensor(sn.ImuCfg(body="body", fields=("ang_vel_b",), stages=(stage,)))
