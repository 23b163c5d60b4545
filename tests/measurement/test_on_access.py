"""Samples that wait for a read, `evaluate="on_access"`, and loops that update their sensors by the time passed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mujoco
import numpy as np
import pytest
import synthetic as syn
import torch

import sensorium as sn
from sensorium.jobs.control import steps

PERIODS = (Fraction(4), Fraction(5, 2), Fraction(3), Fraction(29, 4))
"""Periods of the sensors below, in ticks of 10 ms."""


class Due:
    """The rule in exact arithmetic: a sample is due one period after the last read that took one, or after a reset."""

    def __init__(self, period: Fraction, envs: int) -> None:
        self.period, self.taken = period, [0] * envs
        self.last: list[Fraction | None] = [None] * envs

    def reset(self, envs: list[int]) -> None:
        for env in envs:
            self.last[env], self.taken[env] = None, 0

    def read(self, tick: int) -> list[int]:
        """Return the tick that each env shows to a read at a tick."""
        for env, last in enumerate(self.last):
            if last is None or tick - last >= self.period:
                self.last[env] = Fraction(tick)
                self.taken[env] += 1
        return [int(last) for last in self.last if last is not None]


def cfgs() -> list[Any]:
    """Return sensors of a torch hook and of a kernel, one with noise, at the periods."""
    made = zip((syn.ScalarCfg, syn.KernelProbeCfg, syn.ScalarCfg, syn.KernelProbeCfg), PERIODS, strict=True)
    return [
        kind(name=f"s{k}", update_period=float(period / 100), evaluate="on_access", noise=0.5 * (k == 2) or None)
        for k, (kind, period) in enumerate(made)
    ]


def outputs_of(scene: sn.Scene) -> tuple[sn.Observer, Any]:
    return scene.observer("s0", "s1.vec", "s2", "s0.age"), scene.sample_cursor()


def test_due_sample_waits_for_its_reader() -> None:
    """At reads at random ticks, across partial resets, values, capture ticks, ages, frames and `is_new` are those of
    the rule; outputs in between, and a saved state, change no bit of a read.
    """
    chance, envs = np.random.default_rng(5), 4
    scene, alone = (syn.world(cfgs(), num_envs=envs, debug=debug) for debug in (True, False))
    rules = [Due(period, envs) for period in PERIODS]
    look, cursor = outputs_of(scene)
    published = 0
    noise: set[float] = set()
    for tick in range(1, 90):
        for each in (scene, alone):
            syn.advance(each)
        if chance.random() < 0.12:
            chosen = [env for env in range(envs) if chance.random() < 0.5]
            for each in (scene, alone):
                syn.reset(each, chosen, tick=tick)
            for rule in rules:
                rule.reset(chosen)
        if tick == 45:
            state, scene = scene.state(), syn.world(cfgs(), num_envs=envs, debug=True)
            scene.load_state(state)
            look, cursor = outputs_of(scene)
        if chance.random() < 0.3:
            look()
        published += len(scene.publish(list(scene), since=cursor, poses=False))
        for k, rule in enumerate(rules):
            if chance.random() > 0.4:
                continue
            shown, sensor = rule.read(tick), scene[f"s{k}"]
            if tick % 2:  # any property counts as a read
                assert sensor.age.tolist() == [pytest.approx(0.01 * (tick - each)) for each in shown]
            assert sensor.capture_tick.tolist() == shown
            assert sensor.frame.tolist() == rule.taken
            assert sensor.is_new.tolist() == [each == tick for each in shown]
            position = torch.stack([syn.signal(each, envs)[env] for env, each in enumerate(shown)])
            truth = sensor.ground_truth if sensor.single else sensor.ground_truth.vec[:, 0]
            assert truth.equal(position[:, 0])
            if k == 2:
                noise |= set((sensor.data - truth).tolist())
            syn.same(syn.snapshot(sensor), syn.snapshot(alone[f"s{k}"]))
    assert len(noise) > 20 and published > 40


def test_outputs_show_the_sample_of_the_last_read() -> None:
    """Outputs take no sample but the first one after a reset, which a later read repeats at its own tick."""
    scene = syn.world(cfgs()[:1])
    sensor, cursor = scene["s0"], scene.sample_cursor()
    look = scene.observer("s0")
    assert (
        look()[:, 0].equal(syn.signal(0, 4)[:, 0])
        and scene.publish("s0", since=cursor)["s0"].captures.tolist() == [0] * 4
    )
    syn.advance(scene, 3)
    assert look()[:, 0].equal(syn.signal(0, 4)[:, 0]) and not cursor.pending()
    assert sensor.data.equal(syn.signal(3, 4)[:, 0]) and cursor.pending() == ["s0"]
    syn.advance(scene, 9)
    live = scene.live_sample("s0")
    assert live is not None and live.update() is None and live.about()["capture_tick"].tolist() == [3] * 4
    reading = scene.publish("s0", since=cursor)["s0"]
    assert reading.capture_tick.tolist() == [3] * 4 and look()[:, 0].equal(syn.signal(3, 4)[:, 0])
    syn.reset(scene, [1], tick=700)
    syn.advance(scene)
    expected = syn.signal(3, 4)
    expected[1] = syn.signal(13, 4)[1]
    assert look()[:, 0].equal(expected[:, 0]) and cursor.pending() == ["s0"]
    assert sensor.drawings() == []
    assert scene.publish("s0")["s0"].capture_tick.tolist() == [3, 13, 3, 3]
    assert sensor.data.equal(syn.signal(13, 4)[:, 0])


def test_unread_sensor_is_never_computed() -> None:
    """Neither ticks nor resets compute a sensor that waits for a read; `force_recompute` counts as a read."""
    scene = syn.world([syn.ProbeCfg(name="p", evaluate="on_access", update_period=0.04)])
    calls = syn.Probe.calls
    for _ in range(5):
        syn.advance(scene, 7)
        syn.reset(scene, [2])
    scene["p"].reset()
    assert syn.Probe.calls == calls
    info = scene["p"].info
    assert info.evaluation == "on_access" and "reads change" in info.why and scene["p"].is_lazy
    for forced, expected in ((True, 1), (True, 1), (False, 1), (True, 1), (True, 2)):
        syn.advance(scene, force_recompute=forced)
        assert syn.Probe.calls == calls + expected
    scene.engine.body_pos_w += 1.0
    scene.update(ticks=0, force_recompute=True)  # the state was edited at the tick of a sample
    assert syn.Probe.calls == calls + 3 and scene["p"].frame.tolist() == [2] * 4
    assert scene["p"].data.vec.equal(syn.signal(scene.tick, 4) + 1.0)


def test_sensors_that_need_every_sample_do_not_wait() -> None:
    """With a memory, or at every tick, the mode is that of "auto"."""
    memory: list[dict[str, Any]] = [
        {"history_length": 2}, {"delay": 0.01}, {"random_walk": 0.1},
        {"stages": (sn.stages.GaussMarkov(density=0.1, tau=1.0),)}, {"update_period": 0.0},
    ]  # fmt: skip
    for options in memory:
        options = {"update_period": 0.04, **options}
        scene = syn.world([syn.ScalarCfg(name=how, evaluate=how, **options) for how in ("on_access", "auto")])
        assert len({(scene[how].info.evaluation, scene[how].info.why) for how in scene}) == 1
        assert scene["auto"].info.evaluation in ("eager", "lazy")
    scene = syn.world([syn.ScalarCfg(name="s", evaluate="on_access", update_period=0.04)])
    with pytest.raises(sn.ConfigError, match="a job writes each sample"):
        next(steps(scene, lambda *_: None, 1, 4, [scene["s"]]))


def test_capture_time_of_a_lagging_engine() -> None:
    """With `fresh=False` a sample is one tick old, and `capture_tick` reports it for each environment."""
    spec = mujoco.MjSpec.from_string(
        '<mujoco><worldbody><body name="b"><freejoint/><geom size="1"/></body></worldbody></mujoco>'
    )
    engine = sn.MujocoEngine(spec, num_envs=2, fresh=False)
    scene = sn.Scene(engine, [sn.BodyStateCfg(name="s", body="b", update_period=4 * engine.dt, evaluate="on_access")])
    scene.step(substeps=5)
    assert scene["s"].capture_tick.tolist() == [4, 4] and scene["s"].is_new.all()
    scene.reset([1])
    assert scene["s"].capture_tick.tolist() == [4, 5]
    scene.step(substeps=4)
    assert scene["s"].capture_tick.tolist() == [8, 8]


# Time ----------------------------------------------------------------------------------------------------------------


def test_update_takes_seconds() -> None:
    """A float is seconds, in any spelling of a multiple of the time step; other times and integers are refused."""
    scene = syn.world([syn.ScalarCfg(name="a")])
    for dt, ticks in ((0.01, 1), (0.03, 3), (np.float32(0.02), 2), (0.1 * 3, 30), (0.0, 0), (1, 1), (0, 0)):
        tick = scene.tick
        scene.update(dt)
        assert scene.tick == tick + ticks
    for wrong, words in (
        (0.010001, "multiple"),
        (0.015, "0.015 s.*multiple.*0.01 s"), (-0.01, "multiple >= 0"), (float("nan"), "multiple"),
        (float("inf"), "multiple"), (1e-9, "multiple"), (4, r"update\(ticks=4\).*update\(0.04\)"), (True, "an integer"),
    ):  # fmt: skip
        with pytest.raises(sn.ScheduleError, match=words):
            scene.update(wrong)
        with pytest.raises(sn.ScheduleError, match=words):
            scene["a"].update(wrong)
    with pytest.raises(sn.ScheduleError, match="one of the two"):
        scene.update(0.01, ticks=1)
    assert scene.tick == 37


def test_loop_may_update_its_sensors() -> None:
    """The first sensor updated after a tick advances the scene and the others follow, in any order and any subset."""
    scene = syn.world([syn.ScalarCfg(name=name, update_period=0.02) for name in "abc"])
    for tick, names in enumerate(("abc", "cab", "b", "ba", "abc"), 1):
        syn.write(scene, tick)
        for name in names:
            scene[name].update(0.01)
            assert scene.tick == tick
    syn.advance(scene)
    scene["a"].update(0.01, force_recompute=True)
    assert scene.tick == 7
    with pytest.raises(sn.ScheduleError, match=r"'b'\.update: got 0\.02, but a advanced the scene by 0\.01 s"):
        scene["b"].update(0.02)
    scene["b"].update(0.0)
    assert scene.tick == 7

    spec = mujoco.MjSpec.from_string(
        '<mujoco><worldbody><body name="b"><freejoint/><geom size="1"/></body></worldbody></mujoco>'
    )
    engine = sn.MujocoEngine(spec)
    scene = sn.Scene(engine, [sn.BodyStateCfg(name=name, body="b") for name in "ab"])
    for names in ("ab", "ba", "a", "b"):
        engine.step(None, 1)
        for name in names:
            scene[name].update(engine.dt)
            assert scene.tick == engine.tick
    scene.step()
    for update in (scene.update, scene["a"].update):
        with pytest.raises(sn.ScheduleError, match="took no ticks"):
            update(engine.dt)
