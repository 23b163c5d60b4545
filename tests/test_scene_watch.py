"""Watches of a scene: when callbacks are called, in which order, and the effect of exceptions."""

from __future__ import annotations

from typing import Any

import pytest
import synthetic as syn
import torch

import sensorium as sn


def moving(cfgs: Any, num_envs: int = 2, **kwargs: Any) -> sn.Scene:
    """Return a scene whose body is at x = 100 * time, equal to the tick."""
    engine = sn.TensorEngine(num_envs, 0.01, motion=lambda t: {"body_pos_w": [[[round(100 * t), 2.0, 3.0]]]})
    return sn.Scene(engine, cfgs, **kwargs)


def test_watch_is_called_at_due_ticks_and_step_ends() -> None:
    """A step of five ticks stops at the samples of a sensor that samples every second tick, and at its end."""
    scene = moving([syn.ScalarCfg(name="s", update_period=0.02)])
    seen: list[tuple[int, float]] = []
    scene.watch(lambda: seen.append((scene.tick, float(scene["s"].data[0]))))
    scene.step(substeps=5)
    assert seen == [(2, 2.0), (4, 4.0), (5, 4.0)]
    scene.step()
    assert seen[3:] == [(6, 6.0)]


def test_one_watch_can_request_every_tick() -> None:
    """With `every_tick` a watch sees a lazy sensor and a delayed arrival at each tick; the option can be changed."""
    scene = moving([syn.ScalarCfg(name="lazy"), syn.ScalarCfg(name="late", update_period=0.05, delay=0.03)])
    seen: list[tuple[int, float, float]] = []
    scene.watch(lambda: None)
    watch = scene.watch(
        lambda: seen.append((scene.tick, float(scene["lazy"].data[0]), float(scene["late"].data[0]))), every_tick=True
    )
    scene.step(substeps=10)
    late = [0.0] * 7 + [5.0] * 3  # captured at ticks 0 and 5, each with a delay of three ticks
    assert seen == [(tick, float(tick), late[tick - 1]) for tick in range(1, 11)]
    seen.clear()
    watch.every_tick = False
    scene.step(substeps=10)
    assert [tick for tick, _, _ in seen] == [15, 20]
    watch.every_tick = True
    watch.close()
    seen.clear()
    scene.step(substeps=10)
    assert not seen and watch.is_closed


@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "one_tick_old"])
def test_a_watch_of_sensors_is_called_at_each_of_their_changes(fresh: bool) -> None:
    """It sees what a watch of every tick sees, at less than half of the ticks: captures, arrivals and resets."""
    late: dict[str, Any] = {"body": "ball", "update_period": 0.2, "fields": ("pos_w",)}
    cfgs = [
        sn.BodyStateCfg(name="constant", delay=0.03, **late),
        sn.BodyStateCfg(name="long", delay=0.47, **late),
        sn.BodyStateCfg(name="lossy", delay=0.03, jitter=0.02, loss=0.3, **late),
        sn.BodyStateCfg(name="lazy", evaluate="on_read", **late),
    ]
    ball = "<body name='ball'><freejoint/><geom size='.1'/></body>"
    text = f"<mujoco><option timestep='0.01'/><worldbody>{ball}</worldbody></mujoco>"
    seen: list[list[Any]] = [[], []]
    calls: list[list[int]] = [[], []]
    for every_tick in (True, False):
        scene = sn.Scene(sn.MujocoEngine(text, 3, fresh=fresh), cfgs, seed=3)
        shown: dict[str, list[Any]] = {}

        def take(scene: sn.Scene = scene, shown: dict[str, list[Any]] = shown, row: int = int(every_tick)) -> None:
            calls[row].append(scene.tick)
            for name, reading in scene.publish().items():
                about = (
                    reading.capture_tick,
                    reading.valid,
                    reading.captures,
                    reading["pos_w"],
                    reading.truth["pos_w"],
                )
                if (now := [each.tolist() for each in about]) != shown.get(name):
                    shown[name] = now
                    seen[row].append((scene.tick, name, now))

        watch = scene.watch(take, every_tick=every_tick)
        watch.sensors = () if every_tick else list(scene.sensors.values())
        take()
        for ticks in (33, 100, 7, 100, 60):
            scene.step(substeps=ticks)
            scene.reset([ticks % 3])
    assert seen[0] == seen[1] and len(seen[1]) > 60
    assert set(calls[0]) < set(calls[1]) and len(calls[0]) < 0.5 * len(calls[1])


def test_a_watch_of_sensors_is_called_when_a_sample_of_a_jump_arrives() -> None:
    """A jump to tick 7 takes the sample of tick 5 late, so that it arrives at tick 14, and that of tick 10 at 17."""
    scene = moving([syn.ScalarCfg(name="late", update_period=0.05, delay=0.07)], allow_gaps=True)
    scene.update(ticks=7)
    ticks: list[int] = []
    with scene.watch(lambda: ticks.append(scene.tick)) as watch:
        watch.sensors = [scene["late"]]
        scene.step(substeps=11)
    assert {10, 14, 15, 17, 18} <= set(ticks)


def test_a_watch_of_a_sensor_that_was_replaced_is_called_at_the_next_tick() -> None:
    """There its owner can follow the new sensor."""
    scene = moving([syn.ScalarCfg(name="late", update_period=1.0, delay=0.5)])
    ticks: list[int] = []
    watch = scene.watch(lambda: ticks.append(scene.tick))
    watch.sensors = [scene["late"]]
    scene.step(substeps=3)
    scene.reconfigure("late", delay=0.01)
    with watch:
        scene.step(substeps=2)
    assert ticks == [3, 4, 5]


@pytest.mark.parametrize("capture", [True, False], ids=["captured", "uncaptured"])
def test_watching_every_tick_changes_no_reading(capture: bool) -> None:
    """A scene that stops at every tick for a watch gives the same bits as a scene without watches, resets included."""
    watched, plain = (moving(syn.menagerie(), 3, seed=5) for _ in range(2))
    for scene in (watched, plain):
        scene.capture(capture)
    ticks = []
    with watched.watch(lambda: ticks.append(watched.tick), every_tick=True):
        for k in range(8):
            for scene in (watched, plain):
                scene.step(substeps=3)
                if k == 4:
                    scene.reset([1])
        for name in plain:
            syn.same(*(syn.snapshot(scene[name]) for scene in (watched, plain)))
    assert ticks == [*range(1, 16), 15, *range(16, 25)]


def test_watch_is_called_on_update_reset_and_load_and_not_on_add() -> None:
    """A watch is called per update, also without time, per reset and per loaded state, but not for an added sensor."""
    scene = syn.world([syn.ScalarCfg(name="s", delay=0.01)])
    ticks: list[int] = []
    scene.watch(lambda: ticks.append(scene.tick))
    syn.advance(scene, 2)
    scene.update(ticks=0)
    syn.reset(scene, [1])
    assert ticks == [1, 2, 2, 2]
    scene.add(syn.ScalarCfg(name="new"))
    scene.reconfigure("new", noise=0.1)
    scene["s"].reset([0])
    scene.remove("new")
    assert len(ticks) == 4
    state, before = scene.state(), scene["s"].data.clone()
    syn.advance(scene)
    scene.watch(lambda: ticks.append(-int(torch.equal(scene["s"].data, before))))
    scene.load_state(state)
    assert ticks[4:] == [3, 2, -1]


def test_watch_is_called_after_a_reset() -> None:
    """In the callback of a reset the sensors show the new episode."""
    scene = syn.world([syn.ScalarCfg(name="s")])
    shown: list[torch.Tensor] = []
    scene.watch(lambda: shown.append(scene["s"].data.clone()))
    syn.reset(scene)
    assert torch.equal(shown[0], syn.signal(1000, 4)[:, 0])


def test_watches_are_called_in_order_and_can_close_each_other() -> None:
    """Watches run in creation order. A watch closed in the same round is skipped; a watch created in it waits."""
    scene = moving([])
    calls: list[str] = []

    def first() -> None:
        calls.append("first")
        third.close()
        if len(calls) == 1:
            scene.watch(lambda: calls.append("fourth"))

    def second() -> None:
        calls.append("second")
        kept.close()
        kept.close()

    scene.watch(first)
    kept = scene.watch(second)
    third = scene.watch(lambda: calls.append("third"))
    scene.step()
    assert calls == ["first", "second"] and kept.is_closed and third.is_closed
    scene.step()
    assert calls[2:] == ["first", "fourth"]
    assert "closed" in repr(kept)


def test_an_exception_stops_the_step_in_a_consistent_state() -> None:
    """The exception leaves the step after all watch calls; the scene is at that tick and continues from there."""
    scene = moving([syn.ScalarCfg(name="s", noise=1.0)])
    other = moving([syn.ScalarCfg(name="s", noise=1.0)])
    seen: list[int] = []

    def fail() -> None:
        if scene.tick == 2:
            raise RuntimeError("no more")

    broken = scene.watch(fail, every_tick=True)
    scene.watch(lambda: seen.append(scene.tick))
    with pytest.raises(RuntimeError, match="no more"):
        scene.step(substeps=4)
    assert seen == [1, 2] and scene.tick == scene.engine.tick == 2
    broken.close()
    scene.step(substeps=2)
    other.step(substeps=2)
    other.step(substeps=2)
    assert torch.equal(scene["s"].data, other["s"].data)
    for text in ("one", "two"):
        scene.watch(lambda text=text: (_ for _ in ()).throw(ValueError(text)))
    with pytest.raises(ExceptionGroup) as failure:
        scene.step()
    assert [str(error) for error in failure.value.exceptions] == ["one", "two"]
