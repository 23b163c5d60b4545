"""Resets of some envs: the others are unaffected, and no earlier data remains in any branch."""

from __future__ import annotations

import numpy as np
import pytest
import synthetic as syn
import torch
from selection import pairs

import sensorium as sn


def cfgs() -> list[object]:
    """Return every feature, a lazy slow sensor, and an IMU that differentiates."""
    return [
        *syn.menagerie(),
        syn.ScalarCfg(name="held", evaluate="on_read", update_period=0.05, noise=0.1),
        sn.ImuCfg(name="imu", body="body", fields=("ang_vel_b", "lin_acc_b", "quat_w"), acceleration="difference",
                  gyro_noise=0.1, gyro_random_walk=0.1, delay=0.01),
    ]  # fmt: skip


@pytest.mark.parametrize(("at", "count"), pairs([7, 10], [1, 3]))
def test_reset_does_not_affect_other_envs(at: int, count: int) -> None:
    """Resetting env 2 (off or on a sensor's grid, once or often) keeps the other envs bit-identical permanently."""
    scene, twin = syn.world(cfgs()), syn.world(cfgs())
    others = [0, 1, 3]
    for k in range(1, 20):
        for each in (scene, twin):
            syn.advance(each)
        if k == at:
            for _ in range(count):
                syn.reset(scene, [2])
        for name in scene:
            syn.same(syn.snapshot(scene[name]), syn.snapshot(twin[name]), others)


@pytest.mark.parametrize(("at", "past"), pairs([7, 10], ["other", "nan"]))
@pytest.mark.filterwarnings("ignore::sensorium.errors.NonFiniteStateWarning")
def test_no_value_from_before_a_reset_appears(at: int, past: str) -> None:
    """The readings of env 2 from its reset on are bit for bit the same for any earlier values, NaN included."""
    scene, twin = syn.world(cfgs()), syn.world(cfgs())
    for k in range(1, 20):
        for each in (scene, twin):
            syn.write(each, each.tick + 1)
            if each is twin and k <= at:
                each.engine.body_pos_w[2] = float("nan") if past == "nan" else 7.0 * k
                each.engine.body_lin_vel_w[2] = float("nan") if past == "nan" else 7.0 * k
            each.update()
            if k == at:
                pos, quat = syn.signal(1000, 4)[[2]], syn.yaw(1000, 4)[[2]]
                each.reset([2], body_pos_w=pos[:, None], body_quat_w=quat[:, None], body_lin_vel_w=0.0)
        if k >= at:
            for name in scene:
                syn.same(syn.snapshot(scene[name]), syn.snapshot(twin[name]), [2])


def test_reading_after_a_reset_is_new() -> None:
    """Read right after a reset, every branch has the new state, with age 0 or not valid yet."""
    scene = syn.world([cfg.replace(noise=None, bias=None, random_walk=None, resolution=None, stages=(), loss=None)
                       if isinstance(cfg, (syn.ProbeCfg, syn.KernelProbeCfg)) else cfg
                       for cfg in syn.menagerie()])  # fmt: skip
    syn.advance(scene, 7)
    syn.reset(scene, [2])
    fresh = syn.signal(1000, 4)[2]
    for name in ("clean", "noisy", "torch", "kernel", "stages", "bursts", "lossy", "ramp", "plugin"):
        sensor = scene[name]
        assert torch.equal(sensor.ground_truth.vec[2], fresh), name
        assert torch.equal(sensor.data.vec[2], fresh), name
        assert sensor.age[2] == 0.0 and sensor.frame[2] == 1, name
        assert bool(sensor.valid[2]) == (sensor.cfg.delay is None or (name == "bursts" and bool(sensor.valid[2])))
    assert scene["sum"].ground_truth.total[2] == fresh[0] and scene["sum"].ground_truth.offset[2] == 7.0
    assert scene["kernel_sum"].ground_truth.total[2] == fresh[0] and scene["kernel_sum"].data.offset[2] == 7.0
    assert scene["sum"].ground_truth.total[1] == sum(k + 64.0 for k in range(8))
    assert scene["cast"].ground_truth.count[2] == 1.0 and scene["cast"].ground_truth.count[1] == 8.0
    assert torch.equal(scene["ema"].ground_truth.x[2], fresh)


def test_first_sample_fills_histories() -> None:
    """The first sample of an episode fills the whole history, and `history_valid` marks the entries that are
    samples.
    """
    scene = syn.world([syn.ProbeCfg(name="h", history_length=4, noise=1.0)], 3)
    sensor = scene["h"]
    assert sensor.history_valid.tolist() == [[True, False, False, False]] * 3
    syn.advance(scene, 2)
    assert sensor.history_valid.tolist() == [[True, True, True, False]] * 3
    history = sensor.history.vec
    assert torch.equal(history[:, 2], history[:, 3]) and not torch.equal(history[:, 1], history[:, 2])
    syn.reset(scene, [1])
    assert sensor.history_valid.tolist() == [[True] * 3 + [False], [True] + [False] * 3, [True] * 3 + [False]]
    assert torch.equal(sensor.history.vec[1], sensor.history.vec[1, :1].expand(4, 3))
    assert torch.equal(sensor.history.vec[[0, 2]], history[[0, 2]])
    syn.advance(scene)
    assert sensor.history_valid.tolist() == [[True] * 4, [True, True, False, False], [True] * 4]
    assert sensor.history.vec.shape == (3, 4, 3) and torch.equal(sensor.history.vec[:, 0], sensor.data.vec)


@pytest.mark.parametrize("extra", [{}, {"loss": 0.0}, {"jitter": 0.0}, {"history_length": 9}])
def test_no_invented_zeros(extra: dict[str, object]) -> None:
    """Before the first arrival a delayed sensor shows its first capture, marked invalid."""
    scene = syn.world([syn.ProbeCfg(name="d", delay=0.03, **extra)], tick=50)
    sensor = scene["d"]
    for k in range(9):
        if k == 5:
            syn.reset(scene, [1], tick=77)
        first = torch.tensor([50, 77 if k >= 5 else 50, 50, 50])
        start = torch.tensor([0, 5 if k >= 5 else 0, 0, 0])
        shown = torch.maximum(torch.tensor(k - 3), start)
        arrived = k - 3 >= start
        assert sensor.valid.tolist() == arrived.tolist()
        assert sensor.is_new.tolist() == (arrived & (k > 0)).tolist()
        assert sensor.capture_tick.tolist() == shown.tolist()
        for env in range(4):
            tick = int(first[env]) if shown[env] == start[env] else int(shown[env])
            assert torch.equal(sensor.data.vec[env], syn.signal(tick, 4)[env])
        syn.advance(scene)


def test_single_sensor_can_be_reset() -> None:
    """Resetting one sensor restarts its walk, history and delay line, and no other sensor is affected."""
    knobs = {"random_walk": 1.0, "history_length": 3, "delay": 0.02}
    scenes = [syn.world([syn.ProbeCfg(name=name, **knobs) for name in "ab"]) for _ in range(2)]
    for scene in scenes:
        syn.advance(scene, 5)
    scenes[0]["a"].reset([1])
    sensor = scenes[0]["a"]
    assert sensor.frame.tolist() == [6, 1, 6, 6] and sensor.history_valid[1].tolist() == [True, False, False]
    assert sensor.valid.tolist() == [True, False, True, True]
    assert torch.equal(sensor.history.vec[1], syn.signal(5, 4)[1].expand(3, 3))
    for _ in range(4):
        syn.same(*(syn.snapshot(scene["b"]) for scene in scenes))
        syn.same(*(syn.snapshot(scene["a"]) for scene in scenes), [0, 2, 3])
        for scene in scenes:
            syn.advance(scene)


def test_reset_accepts_all_forms_of_env_ids() -> None:
    """Ids, a mask, one int and all are accepted; an empty selection changes nothing; an unknown id is rejected."""
    mask = torch.tensor([True, False, False, False])
    ways: list[tuple[object, list[int]]] = [
        ([1, 3], [0, 1, 0, 1]), (mask, [1, 0, 0, 0]), (2, [0, 0, 1, 0]), (None, [1, 1, 1, 1]), ([], [0, 0, 0, 0]),
        (np.array([0]), [1, 0, 0, 0]),
    ]  # fmt: skip
    for envs, expected in ways:
        scene = syn.world([syn.ScalarCfg(name="s", history_length=1)])
        syn.advance(scene, 3)
        scene.reset(envs)
        assert scene["s"].frame.tolist() == [1 if reset else 4 for reset in expected]
    with pytest.raises(ValueError, match="env_ids"):
        scene.reset([4])
