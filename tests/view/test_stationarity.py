"""Noise of a sensor at rest is accepted, and motion is refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sensorium.record import Recording, SensorRecording
from sensorium.view.report import Report, report_of

RATE, COUNT = 100.0, 3000
TIME = np.arange(COUNT)[:, None] / RATE
Random = np.random.Generator
GYRO: dict[str, Any] = {
    "name": "ang_vel_b", "axes": ["env", "xyz"], "shape": [3], "dtype": "float32", "unit": "rad/s", "kind": "vector",
    "role": "angular_velocity",
}  # fmt: skip


def reported(values: np.ndarray, true: np.ndarray | None = None, keep: np.ndarray | None = None) -> Report:
    """Return the report of a gyroscope, as of a bag unless there is truth, of the samples to keep."""
    rows = np.arange(COUNT) if keep is None else np.flatnonzero(keep)
    time = TIME[rows, 0] + 5.0
    measured = {"ang_vel_b": values.astype(np.float32)[rows, None]}
    truth = {} if true is None else {"ang_vel_b": true[rows, None]}
    info = {"kind": "imu", "rate_hz": RATE, "fields": [GYRO], "cfg": {}}
    sensor = SensorRecording("imu", info, np.zeros(1, int), time, time[:, None], time[:, None],
                             np.ones((len(rows), 1), bool), measured, truth, time[:, None])  # fmt: skip
    return report_of(
        Recording({"dt": 1.0 / RATE, "engine": "rosbag2", "seed": 0, "sensors": {"imu": info}}, {"imu": sensor})
    )


def white(random: Random, density: float = 0.01) -> np.ndarray:
    return density * np.sqrt(RATE) * random.normal(size=(COUNT, 3))


def walk(random: Random, density: float) -> np.ndarray:
    return np.cumsum(density / np.sqrt(RATE) * random.normal(size=(COUNT, 3)), axis=0)


def instability(random: Random, size: float) -> np.ndarray:
    """Return 1/f noise of an Allan deviation of about 0.8 times `size`."""
    frequency = np.fft.rfftfreq(2 * COUNT)[1:, None]
    parts = (random.normal(size=(COUNT, 3)) + 1j * random.normal(size=(COUNT, 3))) / np.sqrt(frequency)
    return size * np.fft.irfft(np.concatenate((np.zeros((1, 3)), parts)), axis=0)[:COUNT] * np.sqrt(COUNT / np.pi)


REST: dict[str, Callable[[Random], np.ndarray]] = {
    "white": white,
    "walk": lambda random: white(random) + walk(random, 0.002) + random.normal(size=3),
    "large walk": lambda random: white(random) + walk(random, 0.03),
    "instability": lambda random: white(random) + instability(random, 0.005),
    "coarse steps": lambda random: 0.25 * np.rint((white(random) + walk(random, 0.003) + random.normal(size=3)) / 0.25),
}


@pytest.mark.parametrize("kind", REST)
def test_a_sensor_at_rest_is_accepted(kind: str) -> None:
    """In 12 runs, without truth, with every fifth sample missing, and its white noise is found."""
    fitted = []
    for seed in range(12):
        random = np.random.default_rng(seed)
        report = reported(REST[kind](random), keep=random.random(COUNT) > 0.2)
        assert report.notes == []
        fitted.append(report.allan["imu", "ang_vel_b"].fitted[0])
    assert np.mean(fitted) == pytest.approx(0.01, rel=0.02)


def gait(random: Random) -> np.ndarray:
    phase = 4.0 * np.pi * (TIME + walk(random, 0.03)[:, :1])
    return np.concatenate([sum(np.sin(k * phase + j) / k for k in range(1, 6)) for j in range(3)], axis=1)


def driving(random: Random) -> np.ndarray:
    """Return smooth turns without a period: a random walk of 0.2 rad/s, averaged over 2 s."""
    return np.stack([np.convolve(each, np.ones(200) / 200, "same") for each in walk(random, 0.1).T], axis=1)


MOTION: dict[str, tuple[Callable[[Random], np.ndarray], str]] = {
    "walking": (gait, "change faster"),
    "driving": (driving, "change (faster|more smoothly)"),
    "turning gravity": (lambda _: 9.81 * np.sin(0.05 * TIME + np.arange(3.0)), "change"),
    "slow ramp": (lambda _: 0.01 * TIME * np.ones(3), "more smoothly"),
    "small sine": (lambda _: 0.05 * np.sin(2.0 * TIME + np.arange(3.0)), "change faster|Allan deviation"),
    "vibration": (lambda _: np.sin(2.0 * np.pi * 23.0 * TIME + np.arange(3.0)), "Allan deviation"),
    "one step": (lambda _: np.where(np.abs(TIME - 15.0) < 0.5, np.sin(9.0 * TIME), 0.0) * np.ones(3), "noise changes"),
}


@pytest.mark.parametrize("kind", MOTION)
def test_motion_is_refused(kind: str) -> None:
    motion, reason = MOTION[kind]
    for seed in range(2):
        random = np.random.default_rng(seed)
        report = reported(motion(random) + white(random, 0.003) + walk(random, 1e-4))
        assert not report.allan and not report.tables[2].rows
        (note,) = report.notes
        assert note.startswith("imu.ang_vel_b: no noise is fitted, because its ")
        assert re.search(reason, note)


def test_the_calm_span_is_named() -> None:
    """A robot that stands for 18 s, from 5 s, and then walks: the span of rest is reported, and is accepted."""
    random = np.random.default_rng(0)
    values = np.where(TIME < 18.0, 0.0, gait(random)) + white(random)
    (note,) = reported(values).notes
    first, last = (float(word) for word in note.split("part is from ")[1].removesuffix(" s").split(" to "))
    assert first == pytest.approx(5.0, abs=0.3) and 19.0 <= last <= 23.3
    assert reported(values, keep=TIME[:, 0] < last - 5.0).notes == []


def test_an_error_that_follows_the_truth_is_refused() -> None:
    """With truth, motion has no effect, but the error of a misaligned axis that follows it is no noise."""
    true = np.concatenate([np.sin(2.0 * TIME), np.cos(1.3 * TIME), np.sin(0.7 * TIME)], axis=1)
    noise = white(np.random.default_rng(0)) + walk(np.random.default_rng(1), 0.01)
    assert reported(true + noise, true).notes == []
    (note,) = reported(true + 0.1 * np.roll(true, 1, axis=1) + noise, true).notes
    assert re.search("more smoothly|its Allan deviation is not", note)
