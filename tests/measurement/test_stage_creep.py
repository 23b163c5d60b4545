"""Creep, checked against log10(1 + t / t0) and its superposition in float64; drift per hour."""

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
SUM = 2e-3
"""Allowed error of the sum of processes, in creeps of one decade."""
EPS = 2.0**-24


def drive(stage: sn.stages.Creep, signal: Array, dt: float, envs: int = 1, **kwargs: Any) -> Array:
    """Return a sensor's readings with the stage for a signal `[time]`, `[time, env, axis]`; the first is at time 0."""
    scene = syn.world([syn.ProbeCfg(name="p", stages=(stage,), **kwargs)], envs, dt, at=(float(signal[0]),) * 3)
    sensor = scene["p"]
    rows = [sensor.data.vec.double().numpy().copy()]
    for value in signal[1:]:
        scene.engine.body_pos_w[:] = float(value)
        scene.update()
        rows.append(sensor.data.vec.double().numpy().copy())
    return np.stack(rows)


@pytest.mark.parametrize(("dt", "t0"), [(0.01, 0.05), (0.5, 2.0), (10.0, 0.1)])
def test_a_constant_load_creeps_with_the_logarithm_of_time(dt: float, t0: float) -> None:
    """b = c F log10(1 + t / t0) since the first sample, per axis, also for samples far longer than t0."""
    c = np.array([0.01, 0.0, -0.03])
    out = drive(sn.stages.Creep(creep=tuple(c), t0=t0, t_max=1000.0 * dt), np.full(600, 20.0), dt)[:, 0]
    law = np.log10(1.0 + np.arange(600) * dt / t0)
    np.testing.assert_allclose(out, 20.0 + 20.0 * c * law[:, None], atol=20.0 * 0.03 * SUM + 4.0 * EPS * 20.0)


def test_loads_that_change_are_superposed() -> None:
    """Each change of the load creeps separately from its own time; an unloaded amount recovers."""
    rng, dt, t0 = np.random.default_rng(4), 0.1, 1.0
    load = np.where(np.arange(500) < 250, 50.0, 0.0) + np.repeat(rng.normal(0.0, 5.0, 20), 25)
    out = drive(sn.stages.Creep(creep=0.02, t0=t0, t_max=100.0), load, dt)[:, 0, 0]
    steps, t = np.diff(load, prepend=0.0), np.arange(500) * dt
    law = np.log10(1.0 + np.maximum(t[:, None] - t[None], 0.0) / t0)
    expected = load + 0.02 * law @ steps
    bound = 0.02 * np.abs(steps).sum() * SUM
    np.testing.assert_allclose(out, expected, atol=bound)
    assert np.abs(expected - load).max() > 20.0 * bound
    assert expected[-1] - load[-1] < 0.5 * (expected[249] - load[249])  # it recovers


def test_settled_device_creeps_only_after_changes() -> None:
    """The first load is treated as long applied: nothing creeps until it changes."""
    signal = np.where(np.arange(300) < 100, 30.0, 40.0)
    out = drive(sn.stages.Creep(creep=0.1, t0=0.1, t_max=10.0, start="settled"), signal, 0.01)[:, 0, 0]
    assert (out[:100] == 30.0).all()
    expected = 40.0 + 0.1 * 10.0 * np.log10(1.0 + np.arange(200) * 0.01 / 0.1)
    np.testing.assert_allclose(out[100:], expected, atol=0.1 * 10.0 * SUM + 8.0 * EPS * 40.0)


def test_slowest_process_below_float_resolution_still_converges() -> None:
    """At 500 Hz and t_max = 10^6 s a process moves by 2e-10 of the load per sample, which adds up over 2000 samples."""
    stage = sn.stages.Creep(creep=0.05, t0=1.0, t_max=1e6)
    scene = syn.world([syn.ProbeCfg(name="p", stages=(stage,))], 1, 0.002, at=(100.0,) * 3)
    run = scene["p"].buffers.stages[0]
    for _ in range(2000):
        scene.update()
    rates, _ = stage.processes()
    parts = run.states["parts_vec"][0, 0].double().numpy()
    exact = 100.0 * -np.expm1(-2000 * 0.002 * rates)
    np.testing.assert_allclose(parts, exact, rtol=1e-4)


def test_drift_is_per_hour_since_the_reset() -> None:
    """3 N per hour are 1 N after 20 minutes, at any rate, and zero right after a reset."""
    scene = syn.world(
        [syn.ProbeCfg(name="p", rate_hz=0.05, stages=(sn.stages.Creep(drift=(3.0, -6.0, 0.0)),))], 2, 10.0
    )
    scene.engine.body_pos_w[:] = 0.0
    for _ in range(120):
        scene.update()
    np.testing.assert_allclose(scene["p"].data.vec[1].numpy(), [1.0, -2.0, 0.0], rtol=1e-6)
    scene.reset([1])
    assert scene["p"].data.vec[1].tolist() == [0.0, 0.0, 0.0] and float(scene["p"].data.vec[0, 0]) == pytest.approx(1)


def test_amounts_are_drawn_per_env_and_axis() -> None:
    """Normally distributed drifts differ per env and axis and are constant in an episode."""
    out = drive(sn.stages.Creep(drift=sn.Normal(0.0, 2.0)), np.zeros(21), 180.0, envs=300)
    half, hour = out[10], out[20]
    np.testing.assert_allclose(hour, 2.0 * half, rtol=1e-5)
    assert hour.std() == pytest.approx(2.0, rel=5.0 / math.sqrt(2.0 * hour.size))


def test_a_reset_forgets_the_load() -> None:
    """After a reset of env 1 only that env restarts, like a fresh scene."""
    stage = sn.stages.Creep(creep=0.1, t0=0.01, t_max=10.0)
    scene = syn.world([syn.ProbeCfg(name="p", stages=(stage,))], 2)
    syn.advance(scene, 50)
    syn.reset(scene, [1])
    fresh = syn.world([syn.ProbeCfg(name="p", stages=(stage,))], 2, tick=1000)
    for k in range(10):
        assert torch.equal(scene["p"].data.vec[1], fresh["p"].data.vec[1]), k
        assert not torch.equal(scene["p"].data.vec[0], fresh["p"].data.vec[0])
        for each in (scene, fresh):
            syn.write(each, 1001 + k)
            each.update()


@pytest.mark.parametrize(
    ("fields", "match"),
    [({"t0": 0.0}, "time > 0"), ({"t0": 10.0, "t_max": 5.0}, "above t0, 10 s"), ({"start": "warm"}, "start")],
)
def test_impossible_times_are_refused(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        sn.stages.Creep(creep=0.1, **fields)


def test_contract_holds() -> None:
    """A gyroscope with creep and drift passes every rule."""
    stage = sn.stages.Creep(creep=sn.Uniform(0.0, 0.1), t0=0.01, t_max=10.0, drift=0.5)
    assert "resuming_is_exact" in check_sensor(sn.ImuCfg(body="body", fields=("ang_vel_b",), stages=(stage,)))
