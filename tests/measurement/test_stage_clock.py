"""The sensor's own clock: stamps with offset, skew and jitter, while values and arrival times stay true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import synthetic as syn
import torch
from scipy import stats

import sensorium as sn

N = 2000


def scene_of(num_envs: int = 4, dt: float = 0.01, **clock: Any) -> sn.Scene:
    cfg = syn.ProbeCfg(name="p", delay=0.02, stages=(sn.stages.ClockError(**clock),))
    return syn.world([cfg], num_envs, dt)


def test_without_a_clock_error_the_stamp_is_the_capture_time() -> None:
    """The stamp of a plain sensor, delayed or not, is the time at which its value was sensed."""
    scene = syn.world([syn.ProbeCfg(name="p", delay=0.02), syn.ProbeCfg(name="q")])
    syn.advance(scene, 7)
    for name in ("p", "q"):
        assert torch.equal(scene[name].stamp, scene[name].capture_time)
        assert np.array_equal(scene.publish()[name].stamp, scene[name].capture_time.numpy())


def test_skew_in_ppm() -> None:
    """The slope of stamp against capture time is 1 + 35e-6, within 0.01 ppm over 1000 s."""
    scene = scene_of(1, dt=1.0, skew_ppm=35.0)
    times, stamps = [], []
    for _ in range(1000):
        syn.advance(scene)
        times.append(scene["p"].capture_time.item())
        stamps.append(scene["p"].stamp.item())
    slope = np.polyfit(times, stamps, 1)[0]
    assert (slope - 1.0) * 1e6 == pytest.approx(35.0, abs=0.01)


def test_clock_offset_is_drawn_per_env_and_episode() -> None:
    """Offsets follow their distribution and differ between episodes, and skew counts from the reset."""
    scene = scene_of(N, offset=sn.Normal(0.0, 0.5), skew_ppm=1e5)
    first = scene["p"].stamp - scene["p"].capture_time
    assert stats.kstest(first.numpy() / 0.5, "norm").pvalue > 0.01
    syn.advance(scene, 50)
    drifted = scene["p"].stamp - scene["p"].capture_time
    np.testing.assert_allclose((drifted - first).numpy(), 0.1 * scene["p"].capture_time.numpy(), rtol=1e-9)
    syn.reset(scene, list(range(0, N, 2)))
    again = scene["p"].stamp - scene["p"].capture_time
    assert stats.kstest(again[::2].numpy() / 0.5, "norm").pvalue > 0.01
    assert abs(np.corrcoef(again[::2].numpy(), first[::2].numpy())[0, 1]) < 4.0 / (N / 2) ** 0.5
    assert torch.equal(again[1::2], drifted[1::2])


def test_jitter_and_resolution_belong_to_a_sample() -> None:
    """The jitter of a stamp belongs to its capture tick: a second read changes nothing; stamps are multiples."""
    scene = scene_of(N, jitter=1e-3)
    syn.advance(scene, 5)
    error = (scene["p"].stamp - scene["p"].capture_time).numpy()
    assert stats.kstest(error / 1e-3, "norm").pvalue > 0.01
    assert np.array_equal(error, (scene["p"].stamp - scene["p"].capture_time).numpy())
    syn.advance(scene)
    assert abs(np.corrcoef(error, (scene["p"].stamp - scene["p"].capture_time).numpy())[0, 1]) < 4.0 / N**0.5
    scene = scene_of(N, jitter=1e-3, resolution=2.0**-10)
    syn.advance(scene, 5)
    steps = scene["p"].stamp.numpy() * 1024.0
    assert np.array_equal(steps, np.round(steps)) and len(np.unique(steps)) > 3


def test_clock_error_does_not_change_values_or_arrivals() -> None:
    """A clock error alters no value, no capture time, no age and no validity."""
    plain = syn.world([syn.ProbeCfg(name="p", delay=0.02, noise=0.1)])
    wrong = syn.world([syn.ProbeCfg(name="p", delay=0.02, noise=0.1, stages=(sn.stages.ClockError(offset=0.3),))])
    for scene in (plain, wrong):
        syn.advance(scene, 6)
    syn.same(syn.snapshot(plain["p"]), syn.snapshot(wrong["p"]))
    np.testing.assert_allclose((wrong["p"].stamp - plain["p"].stamp).numpy(), 0.3, rtol=1e-6)


def test_stamps_do_not_depend_on_the_number_of_envs() -> None:
    """Env 3 of 4 has the stamps of env 3 of 64."""
    knobs = {"offset": sn.Uniform(0.0, 1.0), "skew_ppm": sn.Normal(0.0, 50.0), "jitter": 1e-3}
    few, many = scene_of(4, **knobs), scene_of(64, **knobs)
    for scene in (few, many):
        syn.advance(scene, 9)
    assert torch.equal(few["p"].stamp, many["p"].stamp[:4])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"offset": (0.1, 0.2)}, "offset: .*one number"),
        ({"jitter": -1.0}, "jitter: .*>= 0"),
        ({"resolution": -1.0}, "resolution: .*>= 0"),
        ({"resolution": float("inf")}, "resolution: .*finite"),
    ],
)
def test_bad_values_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(sn.ConfigError, match=message):
        sn.stages.ClockError(**fields)


def test_clock_error_with_fields_or_a_second_clock_is_refused() -> None:
    """A clock stage alters no field, and a sensor has one clock."""
    with pytest.raises(sn.ConfigError, match="alters no value"):
        syn.world([syn.ProbeCfg(stages=(sn.stages.ClockError(fields=("vec",), offset=0.1),))])
    with pytest.raises(sn.ConfigError, match="only one stage of this kind"):
        syn.world([syn.ProbeCfg(stages=(sn.stages.ClockError(offset=0.1), sn.stages.ClockError(skew_ppm=1.0)))])


def test_sensor_reset_alone_sets_its_own_clock() -> None:
    """The skew counts from the last reset of the sensor: of its env, of itself, or from its addition."""
    scene = syn.world([syn.ProbeCfg(name="p", stages=(sn.stages.ClockError(skew_ppm=1e5),))], 3)
    syn.advance(scene, 10)
    scene["p"].reset([1])
    scene.add(syn.ProbeCfg(name="late", delay=0.02, stages=(sn.stages.ClockError(skew_ppm=1e5),)))
    syn.advance(scene, 5)
    syn.reset(scene, [2])
    syn.advance(scene, 5)
    for name, starts in {"p": [0.0, 0.1, 0.15], "late": [0.1, 0.1, 0.15]}.items():
        sensor = scene[name]
        expected = 0.1 * (sensor.capture_time - torch.tensor(starts, dtype=torch.float64))
        torch.testing.assert_close(sensor.stamp - sensor.capture_time, expected, rtol=0.0, atol=1e-12)
    saved = scene.state()
    twin = syn.world([syn.ProbeCfg(name="p", stages=(sn.stages.ClockError(skew_ppm=1e5),)), scene["late"].cfg], 3)
    twin.load_state(saved)
    assert all(torch.equal(twin[name].stamp, scene[name].stamp) for name in ("p", "late"))
