"""Sampling schedules: exact rates, held samples, frames, ages, jumps."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import synthetic as syn
import torch
from selection import gate

import sensorium as sn
from sensorium.compute.clock import Rate
from sensorium.spec import exact_fraction

# Rates ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hz", [7.0, 30.0, 100.0, 333.0])
def test_rates_do_not_drift(hz: float) -> None:
    """At dt = 2 ms, sample k is at tick ceil(k period) for 200,000 ticks, so T seconds hold T rate samples to +-1."""
    rate = Rate.of(Fraction(1, 500), 0.0, hz, "s")
    period = 500 / exact_fraction(hz)
    tick = k = 0
    while tick <= 200_000:
        tick, k = rate.next_after(tick), k + 1
        assert tick == math.ceil(k * period)
    assert abs((k - 1) - 400 * hz) <= 1 and rate.index(200_000) == k - 1


def test_rate_of_every_tick_is_due_at_every_tick() -> None:
    """`next_after` and `index` agree with the exact model at every tick, also between samples."""
    for period in (Fraction(1), Fraction(5, 2), Fraction(37, 10), Fraction(10, 3), Fraction(1000)):
        rate = Rate(period.numerator, period.denominator)
        grid = [math.ceil(k * period) for k in range(3000)]
        for tick in range(2000):
            assert rate.next_after(tick) == next(t for t in grid[tick // int(period + 1) :] if t > tick)
            assert grid[rate.index(tick)] <= tick or grid[rate.index(tick)] == math.ceil(rate.index(tick) * period)
    assert Rate(1, 1).every_tick and not Rate(5, 2).every_tick and Rate(5, 2).period == 2.5


def test_rate_faster_than_physics_samples_every_tick() -> None:
    """A period below dt warns once and samples every tick; a period of 0 or exactly dt does not warn."""
    with pytest.warns(sn.SensoriumWarning, match="'fast'") as caught:
        scene = syn.world([syn.ScalarCfg(name="fast", rate_hz=250.0, history_length=2)])
        syn.advance(scene, 5)
    assert len(caught) == 1
    assert scene["fast"].frame.tolist() == [6] * 4 and scene["fast"].info.rate_hz == pytest.approx(100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        syn.world([syn.ScalarCfg(name="a"), syn.ScalarCfg(name="b", update_period=0.01),
                   syn.ScalarCfg(name="c", rate_hz=100.0)])  # fmt: skip


@pytest.mark.parametrize("evaluate", gate(["auto", "always"], {"auto"}))
def test_schedule_is_exact(evaluate: str) -> None:
    """Periods of 1 to 1000 steps, whole or not: each sample at its exact tick, held until the next, across a reset."""
    dt = 0.005
    steps = {f"p{k}": step for k, step in enumerate(("4", "1", "2", "20", "10", "1000", "2.5", "3.7", "0"))}
    cfgs = [syn.ScalarCfg(name=name, update_period=float(Fraction(step) * Fraction("0.005")), evaluate=evaluate)
            for name, step in steps.items()]  # fmt: skip
    scene = syn.world(cfgs, 2, dt)
    periods = {name: max(Fraction(step), Fraction(1)) for name, step in steps.items()}
    frames = dict.fromkeys(steps, 1)
    last = dict.fromkeys(steps, 0)
    for tick in range(1, 2101):
        syn.advance(scene)
        if tick == 1003:
            scene.reset([1])
        for name, period in periods.items():
            k = math.floor(tick / period)
            due = math.ceil(k * period)
            due = due if due <= tick else math.ceil((k - 1) * period)
            if due == tick:
                frames[name] += 1
                last[name] = tick
            if tick % 7 and tick % 20 and tick != 1003:
                continue
            sensor = scene[name]
            mine = [last[name], max(last[name], 1003) if tick >= 1003 else last[name]]
            assert sensor.capture_tick.tolist() == mine, (name, tick)
            assert sensor.data.tolist() == [mine[0], mine[1] + 64.0]
            assert sensor.frame[0] == frames[name]
            assert sensor.age.tolist() == pytest.approx([(tick - m) * dt for m in mine], abs=1e-12)
            assert sensor.capture_time.tolist() == pytest.approx([m * dt for m in mine], abs=1e-9)
            assert sensor.is_new.tolist() == [m == tick for m in mine]


def test_sample_counts_end_to_end() -> None:
    """N samples in T seconds satisfy N = T rate to +-1 in a running scene, at rates that do not divide the physics
    rate.
    """
    cfgs = [syn.ScalarCfg(name=f"r{hz}", rate_hz=float(hz)) for hz in (7, 30, 100, 333)]
    scene = syn.world(cfgs, 1, 0.002)
    for _ in range(3000):
        scene.update()
    for hz in (7, 30, 100, 333):
        assert abs(int(scene[f"r{hz}"].frame) - 1 - 6 * hz) <= 1


def test_hooks_run_on_schedule() -> None:
    """Hooks run on schedule: every second step for a period of two, per read if lazy, never while unread."""
    scene = syn.world([syn.ProbeCfg(name="slow", update_period=0.02)])
    class_calls = syn.Probe.calls
    counts = []
    for _ in range(6):
        scene.update()
        counts.append(syn.Probe.calls - class_calls)
    assert counts == [0, 1, 1, 2, 2, 3]
    scene = syn.world([syn.ProbeCfg(name="lazy")])
    class_calls = syn.Probe.calls
    for _ in range(5):
        scene.update()
    assert syn.Probe.calls == class_calls
    scene.update(force_recompute=True)
    scene["lazy"].data, scene["lazy"].ground_truth, scene["lazy"].read()
    assert syn.Probe.calls == class_calls + 1
    scene.update(force_compute=True)
    assert syn.Probe.calls == class_calls + 2


# On read, wanted ------------------------------------------------------------------------------------------------------


def test_on_read_evaluation_holds_the_sample() -> None:
    """With `evaluate="on_read"` a slow sensor is computed by the first read after it became due, and then held."""
    scene = syn.world([syn.ScalarCfg(name="p", evaluate="on_read", update_period=0.05), syn.ScalarCfg(name="lazy")])
    seen = []
    for k in range(1, 16):
        syn.advance(scene)
        scene["lazy"].read()
        if k not in (5, 6):
            seen.append((k, int(scene["p"].data[0]), int(scene["p"].capture_tick[0])))
    assert seen == [(1, 0, 0), (2, 0, 0), (3, 0, 0), (4, 0, 0), (7, 7, 7), (8, 7, 7), (9, 7, 7), (10, 10, 10),
                    (11, 10, 10), (12, 10, 10), (13, 10, 10), (14, 10, 10), (15, 15, 15)]  # fmt: skip
    with pytest.raises(sn.ConfigError, match="on_read"):
        syn.world([syn.ScalarCfg(evaluate="on_read", delay=0.01)])


def test_wanted_evaluation_skips_unread_samples() -> None:
    """With `evaluate="wanted"` due samples are skipped while unread, and start with the next due sample."""
    scene = syn.world([syn.ProbeCfg(name="p", evaluate="wanted", update_period=0.02)])
    syn.advance(scene, 2)
    calls = syn.Probe.calls
    syn.advance(scene, 10)
    assert syn.Probe.calls == calls
    assert torch.equal(scene["p"].data.vec, syn.signal(2, 4)) and scene["p"].capture_tick.tolist() == [2] * 4
    syn.advance(scene, 3)
    assert syn.Probe.calls == calls + 1 and scene["p"].capture_tick.tolist() == [14] * 4
    scene["p"].buffers.listeners = 1
    syn.advance(scene, 6)
    assert syn.Probe.calls == calls + 4


PAGE = Path(__file__).parents[2] / "docs/architecture.md"
EVALUATIONS: dict[str, dict[str, Any]] = {
    "on read, every tick": {},
    "on read, slower": {"evaluate": "on_read", "update_period": 0.02},
    "at due ticks, without memory": {"update_period": 0.02},
    "at due ticks, with memory": {"update_period": 0.02, "history_length": 2},
    "wanted": {"update_period": 0.02, "evaluate": "wanted"},
    "on access": {"update_period": 0.02, "evaluate": "on_access"},
}


@pytest.mark.parametrize("evaluation", EVALUATIONS)
def test_each_event_computes_as_many_samples_as_the_table_states(evaluation: str) -> None:
    (row,) = (line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {evaluation} |"))
    scene = syn.world([syn.ProbeCfg(name="p", **EVALUATIONS[evaluation])])
    sensor, observe = scene["p"], scene.observer("p.vec")

    def samples_of(event: Callable[[], object]) -> int:
        before = syn.Probe.calls
        event()
        return syn.Probe.calls - before

    def read() -> object:
        return sensor.data, sensor.ground_truth, sensor.read()

    def change_state() -> None:
        syn.write(scene, 50)
        scene.update(ticks=0)

    def force() -> None:
        syn.write(scene, scene.tick + 2)
        scene.update(ticks=2, force_recompute=True)

    read()
    syn.advance(scene, 4)  # the second sample is not wanted
    found = [samples_of(lambda: syn.advance(scene, 2)), samples_of(read), samples_of(read)]
    shown = sensor.data.vec.clone()
    syn.advance(scene, 2)
    found.append(samples_of(lambda: (observe(), observe())))
    is_taken = not observe().equal(shown.flatten(1))
    assert is_taken == (evaluation != "on access")
    syn.advance(scene, 2)
    read()
    found += [samples_of(change_state), samples_of(read)]
    assert sensor.data.vec.equal(syn.signal(10 if "with memory" in evaluation else 50, 4))
    found += [samples_of(lambda: syn.reset(scene)), samples_of(read)]
    syn.advance(scene, 2)
    found.append(samples_of(force))
    assert found == [int(cell) for cell in row.split("|")[2:-1]]


# Jumps ----------------------------------------------------------------------------------------------------------------


def jump(scene: sn.Scene, ticks: int) -> None:
    syn.write(scene, scene.tick + ticks)
    scene.update(ticks=ticks)


@pytest.mark.parametrize("memory", [{"delay": 0.02}, {"history_length": 2}, {"random_walk": 0.1},
                                    {"stages": (sn.GaussMarkov(density=0.1, tau=1.0),)}], ids=str)  # fmt: skip
def test_jump_raises_for_sensors_with_memory(memory: dict[str, Any]) -> None:
    """A jump over samples of a sensor with memory raises and keeps the scene usable; `allow_gaps` permits it."""
    cfgs = [syn.ScalarCfg(name="p", **memory), syn.ScalarCfg(name="clean")]
    scene = syn.world(cfgs)
    for _ in range(2):
        with pytest.raises(sn.ScheduleError, match="p, whose"):
            jump(scene, 5)
        assert scene.tick == 0 and scene.engine.tick == 0
    syn.advance(scene)
    assert scene.tick == 1 and scene["p"].frame.tolist() == [2] * 4
    scene = syn.world(cfgs, allow_gaps=True)
    jump(scene, 5)
    assert scene.tick == 5 and scene["p"].frame.tolist() == [2] * 4


def test_jump_is_allowed_without_memory() -> None:
    """A jump is accepted without memory, or if it misses no sample; a missed grid tick is sampled at the next
    update.
    """
    cfgs = [syn.ScalarCfg(name="p", noise=0.1), syn.ScalarCfg(name="e", evaluate="always"),
            syn.ScalarCfg(name="slow", update_period=0.1, history_length=2)]  # fmt: skip
    scene, twin = syn.world(cfgs), syn.world(cfgs)
    for ticks in (5, 5, 9, 1, 10):
        jump(scene, ticks)
        syn.advance(twin, ticks)
        for name in ("p", "slow"):
            syn.same(*({k: v for k, v in syn.snapshot(each[name]).items() if k not in ("frame", "is_new")}
                       for each in (scene, twin)))  # fmt: skip
        assert scene["p"].frame.tolist() == scene["e"].frame.tolist()
    assert scene["slow"].frame.tolist() == [4] * 4
    with pytest.raises(sn.ScheduleError, match="slow"):
        jump(scene, 11)
    with pytest.raises(sn.ScheduleError, match="backwards"):
        scene.update(ticks=-1)
