"""Equal seeds give equal numbers for any read pattern, number of envs, other sensors and execution mode."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import synthetic as syn
import torch
from selection import gate

import sensorium as sn
from sensorium.compute import program
from sensorium.scene import draws

TICKS = 20


def snapshots(scene: sn.Scene) -> dict[str, dict[str, np.ndarray]]:
    return {name: syn.snapshot(scene[name]) for name in scene}


def compare(a: dict[str, dict[str, np.ndarray]], b: dict[str, dict[str, np.ndarray]], rows: Any = slice(None)) -> None:
    for name in a.keys() & b.keys():
        try:
            syn.same(a[name], b[name], rows)
        except AssertionError as error:
            raise AssertionError(f"sensor {name!r}: {error}") from None


def run(
    cfgs: list[Any], num_envs: int = 4, read: Callable[[int], int] = lambda k: 1, **kwargs: Any
) -> dict[str, dict[str, np.ndarray]]:
    """Run 20 ticks with a partial reset, reading `read(tick)` times at each, and return the final readings."""
    scene = syn.world(cfgs, num_envs, **kwargs)
    for k in range(1, TICKS + 1):
        syn.advance(scene)
        if k == 7:
            syn.reset(scene, [2, 3])
        for _ in range(read(k)):
            snapshots(scene)
            for name in scene:
                scene[name].read([0])
                scene[name].read_ground_truth()
    return snapshots(scene)


# Read patterns --------------------------------------------------------------------------------------------------------


READERS: dict[str, Callable[[int], int]] = {
    "tenth": lambda k: int(k % 10 == 0),
    "twice": lambda k: 2,
    "each": lambda k: 1,
}


@functools.cache
def unread() -> dict[str, dict[str, np.ndarray]]:
    """Return the final readings of all sensors in a run that reads nothing before."""
    return run(syn.menagerie(), read=lambda k: 0)


@pytest.mark.parametrize("reader", READERS)
def test_reading_changes_nothing(reader: str) -> None:
    """Reading every step, every tenth, twice or only at the end gives the same bits."""
    compare(unread(), run(syn.menagerie(), read=READERS[reader]))


def test_lazy_equals_eager() -> None:
    """Lazy evaluation is indistinguishable from `evaluate="always"` by values, frame, age and is_new."""
    always = [cfg.replace(evaluate="always") for cfg in syn.menagerie()]
    scenes = [syn.world(cfgs) for cfgs in (syn.menagerie(), always)]
    assert [scenes[0][name].is_lazy for name in ("clean", "noisy", "torch")] == [True, True, False]
    assert not any(scenes[1][name].is_lazy for name in scenes[1])
    for k in range(12):
        for scene in scenes:
            if k == 4:
                syn.reset(scene, [1])
            if k == 8:
                scene.step(substeps=3)
            else:
                syn.advance(scene)
        if k % 3 == 0:
            compare(*map(snapshots, scenes))
    compare(*map(snapshots, scenes))


def test_reads_are_pure() -> None:
    """A second read gives the same memory, and `read()` returns copies that stay while the simulation continues."""
    scene = syn.world(syn.menagerie())
    syn.advance(scene)
    copy = scene["noisy"].read()
    before = copy.vec.clone()
    assert copy.vec.data_ptr() != scene["noisy"].data.vec.data_ptr()
    syn.advance(scene)
    assert torch.equal(copy.vec, before)
    assert scene["noisy"].read([2, 0]).vec.equal(scene["noisy"].data.vec[[2, 0]])
    first = snapshots(scene)
    for name in scene:
        for read in (scene[name].read, scene[name].read_ground_truth):
            read()
            read([1])
    compare(snapshots(scene), first)


# Independence ---------------------------------------------------------------------------------------------------------


def test_readings_are_independent_of_env_count() -> None:
    """Env 3 of 4 and env 3 of 4096 see the same bits."""
    few, many = unread(), run(syn.menagerie(), 4096, lambda k: 0)
    compare(few, many, slice(0, 4))


def test_slices_equal_the_whole_run() -> None:
    """Envs 3 to 5 of 6 have the bits of a scene of 3 whose first env is number 3, after resets too."""
    whole, part = syn.world(syn.menagerie(), 6), syn.world(syn.menagerie(), 3, first_env=3)
    for k in range(1, TICKS + 1):
        for scene in (whole, part):
            rows = slice(6 - scene.num_envs, 6)
            scene.engine.body_pos_w[:, 0] = syn.signal(k, 6)[rows]
            scene.engine.body_quat_w[:, 0] = syn.yaw(k, 6)[rows]
            scene.update()
            if k in (1, 7):  # at 1, to discard the state in which the scenes were built
                scene.reset([env - rows.start for env in ((3, 5) if k == 7 else range(rows.start, 6))])
    shown = {name: {key: values[3:] for key, values in each.items()} for name, each in snapshots(whole).items()}
    compare(snapshots(part), shown)


def test_the_global_index_of_an_env_is_checked() -> None:
    """The number is a nonnegative integer, and all env numbers of the scene fit a kernel's integer range."""
    for wrong in (-1, 1.0, True, "3", 2**31 - 3):
        with pytest.raises(sn.ConfigError, match=r"Scene\.first_env: got .*expected an integer from 0 to 2147483644"):
            syn.world([], 4, first_env=wrong)
    scene = syn.world([syn.ScalarCfg(noise=1.0)], 4, first_env=np.int64(2**31 - 4))
    assert scene.description().to_dict()["first_env"] == scene.first_env == 2**31 - 4


@pytest.mark.parametrize(
    ("rank", "size", "given", "warns"),
    [("1", "2", {}, True), ("0", "2", {}, True), ("1", "2", {"first_env": 0}, False), ("0", "1", {}, False)],
)
def test_launcher_rank_requires_first_env(
    rank: str, size: str, given: dict[str, int], warns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning is issued once per process and states the argument to pass."""
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    draws._warn_where_distributed.cache_clear()
    with pytest.warns(sn.SensoriumWarning, match=r"first_env=rank \* num_envs") if warns else nullcontext():
        syn.world([], **given)
    syn.world([], **given)
    draws._warn_where_distributed.cache_clear()


def test_readings_are_independent_of_other_sensors() -> None:
    """Adding, removing or reordering sensors does not change any other sensor's numbers."""
    whole = unread()
    compare(run(syn.menagerie()[::-1]), whole)
    compare(run(syn.menagerie()[3:7]), whole)
    cfgs = syn.menagerie()
    scene = syn.world(cfgs[:8])
    for k in range(1, TICKS + 1):
        syn.advance(scene)
        if k == 3:
            scene.add(syn.KernelProbeCfg(name="extra", noise={"vec": 1.0}, delay=0.01))
            scene.add(cfgs[9])
        if k == 7:
            syn.reset(scene, [2, 3])
        if k == 9:
            scene.remove("noisy")
            scene["extra"].reset([0])
            scene.reconfigure("extra", history_length=3)
    late = snapshots(scene)
    del late["contract"], late["extra"]
    compare(late, whole)
    assert len(late) == 7


def test_random_streams_differ() -> None:
    """Sensors, seeds, envs, ticks and episodes have separate streams."""
    cfgs = [syn.ScalarCfg(name="a", noise=1.0), syn.ScalarCfg(name="b", noise=1.0)]
    scene, other = syn.world(cfgs), syn.world(cfgs, seed=1)
    draws = []
    for each in (scene, other):
        for _ in range(2):
            for _ in range(2):
                draws += [each[name].data - each[name].ground_truth for name in ("a", "b")]
                syn.advance(each)
            syn.reset(each, tick=0)
    values = torch.cat(draws).numpy()
    assert len(np.unique(values)) == values.size


def test_two_episodes_differ_at_equal_ticks() -> None:
    """Two resets at one tick are two episodes with different numbers; the same sequence gives the same ones."""
    cfg = syn.ScalarCfg(name="a", noise=1.0, bias=sn.Uniform(0.0, 1.0), random_walk=1.0)

    def episodes() -> torch.Tensor:
        scene = syn.world([cfg])
        seen = []
        for _ in range(3):
            syn.reset(scene, tick=0)
            seen.append(scene["a"].read())
        return torch.stack(seen)

    first, second = episodes(), episodes()
    assert torch.equal(first, second) and len(first.unique()) == first.numel()


# No time --------------------------------------------------------------------------------------------------------------


def test_update_zero_draws_nothing() -> None:
    """`update(ticks=0)` without an edit leaves every reading, history and later draw unchanged."""
    plain, again = syn.world(syn.menagerie()), syn.world(syn.menagerie())
    for k in range(12):
        for _ in range(k % 3):
            again.update(ticks=0)
        compare(snapshots(plain), snapshots(again))
        for scene in (plain, again):
            syn.advance(scene)
            if k == 5:
                syn.reset(scene, [2])


@pytest.mark.parametrize("when", ["start", "tick", "reset", "after_reset", "sensor_reset", "added"])
def test_update_zero_follows_an_edit(when: str) -> None:
    """After an edit and `update(ticks=0)`, sensors without memory read as if the edited state had existed from the
    start of the tick; the others keep their sample.
    """
    edited, straight = syn.world(syn.menagerie()), syn.world(syn.menagerie(), tick=500 if when == "start" else 0)
    both = (edited, straight)
    if when != "start":
        for scene in both:
            syn.advance(scene, 4)
    if when == "tick":
        syn.advance(edited)
        syn.write(straight, 500)
        straight.update()
    elif when == "reset":
        syn.reset(edited, [1, 2], tick=300)
        syn.reset(straight, [1, 2], tick=500)
    elif when == "after_reset":
        for scene in both:
            syn.reset(scene, [1, 2], tick=300)
        syn.advance(edited)
        syn.write(straight, 500)
        straight.update()
    elif when == "sensor_reset":
        names = ("torch", "kernel", "stages", "contract", "ema", "lag", "cast", "sum", "scalar", "lossy")
        for scene, tick in zip(both, (300, 500), strict=True):
            syn.write(scene, tick, [1, 2])
            for name in names:
                scene[name].reset([1, 2])
    elif when == "added":
        for scene in both:
            for name in ("scalar", "ema", "kernel", "stages", "cast", "sum"):
                scene.remove(name)
        by_name = {cfg.name: cfg for cfg in syn.menagerie()}
        syn.write(straight, 500)
        straight.update(ticks=0)
        for scene in both:
            for name in ("scalar", "ema", "kernel", "stages", "cast", "sum"):
                scene.add(by_name[name])
    rows = [1, 2] if "reset" in when and when != "after_reset" else None
    held = snapshots(edited)
    syn.write(edited, 500, rows)
    if when == "sensor_reset":  # the sensors that were not reset keep their last sample
        syn.write(straight, 500, rows)
        straight.update(ticks=0)
    edited.update(ticks=0)
    now, as_from_start = map(snapshots, both)
    holds = {name for name in edited if edited[name].buffers.plan.has_memory}
    assert holds and holds != set(edited)
    compare({name: now[name] for name in holds}, held)
    compare({name: now[name] for name in now.keys() - holds}, as_from_start)


def test_update_zero_leaves_sensors_not_due() -> None:
    """An edit at a tick without a due sample does not reach the sensor, also right after another sensor was added."""
    scene = syn.world([syn.ScalarCfg(name="slow", update_period=0.1)])
    syn.advance(scene, 13)
    held = scene["slow"].read()
    scene.add(syn.ScalarCfg(name="late", update_period=0.1))
    syn.write(scene, 500)
    scene.update(ticks=0)
    assert torch.equal(scene["slow"].data, held) and torch.equal(held, syn.signal(10, 4)[:, 0])
    assert torch.equal(scene["late"].data, syn.signal(500, 4)[:, 0])


def test_update_zero_follows_an_edit_after_an_off_grid_reset() -> None:
    """Right after a reset only its envs see the edit, computed on read or not."""
    cfgs = [syn.ScalarCfg(name=how, evaluate=how, update_period=0.1) for how in ("on_read", "always")]
    scene = syn.world(cfgs)
    syn.advance(scene, 10)
    held = {name: scene[name].read() for name in scene}
    syn.advance(scene, 3)
    syn.reset(scene, [1, 2])
    syn.write(scene, 500)
    scene.update(ticks=0)
    for name in scene:
        assert torch.equal(scene[name].data[1:3], syn.signal(500, 4)[1:3, 0])
        assert torch.equal(scene[name].data[[0, 3]], held[name][[0, 3]])


# Resuming -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", gate([0, 6, 7], {0, 7}))
def test_resuming_is_bit_identical(at: int) -> None:
    """A state saved to bytes and loaded into a fresh scene continues bit for bit, with all features on."""
    cfgs = syn.menagerie()
    scene = syn.world(cfgs)
    for k in range(1, at + 1):
        syn.advance(scene)
        if k == 3:
            syn.reset(scene, [2])
            scene["kernel"].set("noise", {"vec": 0.7}, [1])
            scene["kernel"].set("delay", 0.01, [1])
            scene["kernel"].set("jitter", 0.01, [0])
            scene["stages"].set("bias", {"vec": (1.0, 2.0, 3.0)}, [3])
    buffer = io.BytesIO()
    torch.save(scene.state(), buffer)
    buffer.seek(0)
    fresh = syn.world(cfgs, tick=99)
    syn.advance(fresh, 2)
    fresh["noisy"].set("noise", 0.1, [0])
    fresh.load_state(torch.load(buffer, weights_only=False))
    assert fresh.tick == scene.tick
    for k in range(10):
        compare(snapshots(scene), snapshots(fresh))
        for each in (scene, fresh):
            each.update(ticks=0)
            syn.advance(each)
            if k == 4:
                syn.reset(each, [0, 3])
    compare(snapshots(scene), snapshots(fresh))


def test_resuming_refuses_another_scene() -> None:
    """Another seed, other sensors, another number of envs or another config are rejected by name."""
    cfgs = [syn.ScalarCfg(name="a", history_length=2)]
    state = syn.world(cfgs).state()
    others: list[tuple[sn.Scene, str]] = [
        (syn.world(cfgs, seed=1), "seed"),
        (syn.world(cfgs, first_env=4), "first_env"),
        (syn.world([syn.ScalarCfg(name="b")]), "sensors"),
        (syn.world(cfgs, num_envs=5), "num_envs"),
        (syn.world([syn.ScalarCfg(name="a", history_length=3)]), "a"),
    ]
    for scene, word in others:
        with pytest.raises(sn.ConfigError, match=word):
            scene.load_state(state)


# Execution modes ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("at_once")
def test_captured_graphs_are_bit_identical() -> None:
    """Captured graphs give the bits of recorded launches."""
    compare(run(syn.menagerie(), capture=False), run(syn.menagerie(), capture=True))


def test_shards_are_bit_identical(monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without sharding over threads the bits are the same, and sharding did occur."""
    whole = run(syn.menagerie(), num_envs=37)
    monkeypatch.setattr(program, "SHARD_ABOVE_S", 0.0)
    made: list[int] = []
    split = program.Segment._share
    monkeypatch.setattr(program.Segment, "_share", lambda self, n: (made.append(n), split(self, n))[1])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(program.os, "cpu_count", lambda: 3)
    sharded = run(syn.menagerie(), num_envs=37)
    assert 3 in made
    compare(whole, sharded)
