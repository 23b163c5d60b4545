"""Window averaging: a sample is the exact mean of the true signal over the ticks since the previous sample."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import synthetic as syn
import torch

import sensorium as sn
from sensorium.errors import ScheduleError
from sensorium.testing import tumbling_engine

WINDOW = (sn.stages.WindowAverage(),)


def probe(rate_hz: float = 25.0, **knobs: Any) -> syn.ProbeCfg:
    return syn.ProbeCfg(name="p", rate_hz=rate_hz, stages=WINDOW, **knobs)


def vec(scene: sn.Scene) -> np.ndarray:
    return scene["p"].data.vec.numpy().copy()


def mean_signal(ticks: range, envs: int) -> np.ndarray:
    return np.mean([syn.signal(tick, envs).double().numpy() for tick in ticks], axis=0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("capture", [False, True])
@pytest.mark.parametrize(
    "cfg", [probe(), syn.KernelProbeCfg(name="p", rate_hz=25.0, stages=(sn.stages.WindowAverage(fields=("vec",)),))]
)
def test_a_sample_is_the_mean_over_the_ticks_since_the_last_one(cfg: Any, capture: bool) -> None:
    """At 25 Hz and 100 ticks/s a sample is the mean of four ticks, its own included; the truth is the point sample."""
    scene = syn.world([cfg], capture=capture)
    assert np.array_equal(vec(scene), syn.signal(0, 4).numpy())
    for sample in range(1, 6):
        syn.advance(scene, 4)
        assert np.array_equal(vec(scene), mean_signal(range(4 * sample - 3, 4 * sample + 1), 4))
        assert np.array_equal(scene["p"].ground_truth.vec.numpy(), syn.signal(4 * sample, 4).numpy())


def test_windows_of_a_rational_rate_are_of_unequal_length() -> None:
    """At 3 samples per 10 ticks the windows have 4, 3 and 3 ticks and omit none."""
    scene = syn.world([probe(30.0)])
    edges = [0, 4, 7, 10, 14]
    for start, stop in pairwise(edges):
        syn.advance(scene, stop - start)
        np.testing.assert_allclose(vec(scene), mean_signal(range(start + 1, stop + 1), 4), rtol=2e-7)


def test_scene_substeps_count_as_ticks() -> None:
    """scene.step(substeps=n) shows the stage every tick, like single steps."""
    means = []
    for substeps in (1, 7, 14):
        scene = sn.Scene(tumbling_engine(3), [sn.ImuCfg(name="p", body="body", rate_hz=100.0, stages=(
            sn.stages.WindowAverage(fields=("lin_acc_b", "ang_vel_b")),))])  # fmt: skip
        for _ in range(14 // substeps):
            scene.step(substeps=substeps)
        means.append(torch.cat([scene["p"].data.lin_acc_b, scene["p"].data.ang_vel_b], dim=1).numpy().copy())
    assert np.array_equal(means[0], means[1]) and np.array_equal(means[0], means[2])


def test_mean_times_period_is_the_increment() -> None:
    """The mean gyro rate about a fixed axis times the period is the rotation angle, to the step of the sum."""
    engine = sn.TensorEngine(1, 0.001)
    scene = sn.Scene(engine, [sn.ImuCfg(name="p", body="body", fields=("ang_vel_b",), rate_hz=50.0, stages=WINDOW)])
    for tick in range(1, 21):
        engine.body_ang_vel_w[..., 2] = 3.0 * np.cos(40.0 * (tick - 0.5) * 0.001)  # at the middle of the tick
        scene.update()
    turned = 3.0 / 40.0 * np.sin(40.0 * 0.02)
    assert scene["p"].data.ang_vel_b[0, 2].item() * 0.02 == pytest.approx(turned, rel=1e-4)
    assert scene["p"].ground_truth.ang_vel_b[0, 2].item() * 0.02 != pytest.approx(turned, rel=0.1)


def test_a_window_starts_at_a_reset() -> None:
    """After a reset of some envs their window contains no earlier data, and the others are unaffected."""
    scene, other = syn.world([probe()]), syn.world([probe()])
    for each in (scene, other):
        syn.advance(each, 6)
    syn.reset(scene, [1, 2], tick=1000)
    assert np.array_equal(vec(scene)[1:3], syn.signal(1000, 4).numpy()[1:3])
    for each in (scene, other):
        syn.advance(each, 2)
    assert np.array_equal(vec(scene)[1:3], mean_signal(range(7, 9), 4)[1:3])
    assert np.array_equal(vec(scene)[[0, 3]], vec(other)[[0, 3]])


@pytest.mark.parametrize("ticks", [4, 6], ids=["at a sample", "within a window"])
def test_edit_without_time_is_in_no_window(ticks: int) -> None:
    """update(ticks=0) after an edit, once or repeatedly, keeps the sample and adds nothing to the open window."""
    scene = syn.world([probe()])
    syn.advance(scene, ticks)
    held = syn.snapshot(scene["p"])
    scene.engine.body_pos_w[:] += 8.0
    for _ in range(3):
        scene.update(ticks=0)
        syn.same(syn.snapshot(scene["p"]), held)
    syn.advance(scene, 8 - ticks)
    assert np.array_equal(vec(scene), mean_signal(range(5, 9), 4))


def test_a_run_resumes_within_a_window() -> None:
    """State saved between two samples continues bit for bit."""
    first, second = syn.world([probe(noise=0.1)]), syn.world([probe(noise=0.1)])
    syn.advance(first, 6)
    second.load_state(first.state())
    for scene in (first, second):
        syn.advance(scene, 3)
    assert syn.bits(vec(first)) == syn.bits(vec(second))


def test_non_finite_tick_within_the_window_invalidates_the_sample() -> None:
    """A tick of non-finite state invalidates the sample of its window, but neither the previous sample nor the next."""
    scene = syn.world([probe()])
    syn.advance(scene, 4)
    scene.engine.body_pos_w[2] = float("nan")
    with pytest.warns(sn.NonFiniteStateWarning):
        scene.update()
    assert scene["p"].valid.all()
    syn.advance(scene, 3)
    assert scene["p"].valid.tolist() == [True, True, False, True]
    scene.update(ticks=0)
    assert scene["p"].valid.tolist() == [True, True, False, True]
    syn.advance(scene, 4)
    assert scene["p"].valid.all()


def test_a_miss_is_a_miss() -> None:
    """One infinite value in the window makes the mean infinite, not NaN."""
    scene = syn.world([probe()])
    syn.advance(scene, 1)
    scene.engine.body_pos_w[1] = float("inf")
    scene.update()
    syn.advance(scene, 2)
    assert torch.isposinf(scene["p"].data.vec[1]).all() and torch.isfinite(scene["p"].data.vec[0]).all()


def test_jumps_over_ticks_are_refused() -> None:
    """A jump that misses ticks of the window raises, even if it misses no sample."""
    scene = syn.world([probe()])
    with pytest.raises(ScheduleError, match="misses samples of p"):
        scene.update(ticks=2)


def test_sensors_without_observation_are_refused_by_name() -> None:
    """Sensors with their own memory, a kernel for both branches, or no samples while unread are rejected by name."""
    engine = sn.TensorEngine(1, 0.01)
    window = (sn.stages.WindowAverage(fields=("lin_acc_b",)),)
    imu = sn.ImuCfg(name="imu", body="body", acceleration="difference", rate_hz=25.0, stages=window)
    with pytest.raises(sn.ConfigError, match=r"stages: got 'window_average'.*lin_vel"):
        sn.Scene(engine, [imu])
    with pytest.raises(sn.ConfigError, match="while unread"):
        sn.Scene(engine, [probe(evaluate="wanted")])


def test_window_average_must_be_first_at_its_place() -> None:
    """A stage at place physics before the window is rejected, because it would alter only one tick; after it is
    accepted.
    """
    spike = sn.stages.SpikeFault(start=0.0, duration=None, amount=8.0, place="physics")
    with pytest.raises(sn.ConfigError, match=r"stages\.0: got spike_fault, expected .*after window_average"):
        syn.world([syn.ProbeCfg(name="p", rate_hz=25.0, stages=(spike, *WINDOW))])
    scene = syn.world([syn.ProbeCfg(name="p", rate_hz=25.0, stages=(*WINDOW, spike))])
    syn.advance(scene, 4)
    assert np.array_equal(vec(scene), mean_signal(range(1, 5), 4) + 8.0)
