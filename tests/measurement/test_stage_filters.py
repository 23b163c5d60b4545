"""Filters, checked against closed responses and SciPy's filters, and their start values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest
import synthetic as syn
import torch
from numpy.typing import NDArray
from torch import Tensor

import sensorium as sn

Array = NDArray[np.float64]


def drive(stage: sn.stages.StageCfg, signal: Array, dt: float = 0.01, **kwargs: Any) -> Array:
    """Return a sensor's readings with the stage for a signal `[time]` or `[time, 3]`, equal in all envs, `[time,
    3]`.
    """
    signal = np.broadcast_to(signal[:, None] if signal.ndim == 1 else signal, (len(signal), 3))
    values = torch.tensor(signal.copy(), dtype=torch.float32)
    scene = syn.world([syn.ProbeCfg(name="p", stages=(stage,), **kwargs)], 2, dt, at=values[0].tolist())
    sensor = scene["p"]
    rows = [sensor.data.vec[1].double().numpy().copy()]
    for value in values[1:]:
        scene.engine.body_pos_w[:] = value
        scene.update()
        rows.append(sensor.data.vec[1].double().numpy().copy())
    return np.stack(rows)


# Low-pass -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [{}, {"rate_hz": 25.0}])
def test_the_step_response_of_first_order_is_exponential(rate: dict[str, float]) -> None:
    """n samples after a step, the response is 1 - exp(-n period / tau), per axis, at any rate."""
    taus = np.array([0.02, 0.1, 0.5])
    signal = np.where(np.arange(80) < 20, 1.0, 3.0)  # 20 ticks are 5 samples at 25 Hz
    out = drive(sn.stages.LowPass(time_constant=tuple(taus)), signal, **rate)
    assert (out[:20] == 1.0).all()
    every = 4 if rate else 1
    for n in range(1, 60 // every + 1):
        expected = 1.0 + 2.0 * (1.0 - np.exp(-n * every * 0.01 / taus))
        np.testing.assert_allclose(out[20 + (n - 1) * every], expected, rtol=1e-6)


def test_a_cut_off_of_first_order_is_a_time_constant() -> None:
    """cutoff_hz means 1 / (2 pi tau)."""
    signal = np.sin(np.arange(50))
    a = drive(sn.stages.LowPass(cutoff_hz=5.0), signal)
    b = drive(sn.stages.LowPass(time_constant=1.0 / (10.0 * math.pi)), signal)
    np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize(("cutoff", "dt"), [(12.0, 0.01), (49.0, 0.01), (0.5, 0.001)])
def test_second_order_filter_is_butterworth(cutoff: float, dt: float) -> None:
    """SciPy's Butterworth filter in float64, settled at the first sample, agrees, also far below the rate."""
    from scipy import signal as sps

    b, a = sps.butter(2, cutoff, fs=1.0 / dt)
    x = np.random.default_rng(1).normal(size=(400, 3)).cumsum(axis=0) + 5.0
    expected, _ = sps.lfilter(b, a, x, axis=0, zi=sps.lfilter_zi(b, a)[:, None] * x[0])
    rounding = float(np.spacing(np.float32(np.abs(x).max()))) / math.sqrt(12.0)
    atol = 5.0 * math.sqrt(len(x)) * rounding  # accumulated error of 400 roundings of an integrator
    np.testing.assert_allclose(
        drive(sn.stages.LowPass(cutoff_hz=cutoff, order=2), x, dt), expected, rtol=0.0, atol=atol
    )


def test_the_gain_at_the_cut_off_is_half_the_power() -> None:
    """A sine at the cut-off of order 2 comes out with 1/sqrt(2) of its amplitude, a quarter period late."""
    t = np.arange(600) * 0.001
    out = drive(sn.stages.LowPass(cutoff_hz=20.0, order=2), np.sin(2 * np.pi * 20.0 * t), 0.001)[
        -100:, 0
    ]  # two periods
    basis = np.stack([np.sin(2 * np.pi * 20.0 * t), np.cos(2 * np.pi * 20.0 * t)], axis=1)[-100:]
    np.testing.assert_allclose(np.linalg.lstsq(basis, out, rcond=None)[0], [0.0, -math.sqrt(0.5)], atol=1e-5)


def test_the_place_decides_whether_noise_is_filtered() -> None:
    """A filter before the noise keeps it white; after it, an RC leaves alpha / (2 - alpha) of its variance."""
    n, dt, tau = 4096, 0.01, 0.03
    alpha = 1.0 - math.exp(-dt / tau)
    cfgs = [
        syn.ScalarCfg(name=place, noise=0.5, stages=(sn.stages.LowPass(time_constant=tau, place=place),))
        for place in ("scale", "saturation")
    ]
    scene = syn.world(cfgs, n, dt)
    for _ in range(30):  # the settled start is the noise itself: exp(-2 * 30 dt / tau) = 2e-9 of it is left
        scene.update()
    for name, law in (("scale", 0.25), ("saturation", 0.25 * alpha / (2.0 - alpha))):
        error = (scene[name].data - scene[name].ground_truth).double().numpy()
        assert error.var() == pytest.approx(law, rel=5.0 * math.sqrt(2.0 / n)), name


@pytest.mark.parametrize("stage", [sn.stages.LowPass(time_constant=0.1), sn.stages.LowPass(cutoff_hz=3.0, order=2),
                                   sn.stages.GroupDelay(samples=3), sn.stages.GroupDelay(window="hann", length=5)],
                         ids=["rc", "butterworth", "delay", "hann"])  # fmt: skip
def test_a_filter_starts_settled(stage: sn.stages.StageCfg) -> None:
    """The first sample of an episode passes unchanged, and a constant input stays constant: no earlier data remains."""
    scene = syn.world([syn.ProbeCfg(name="p", stages=(stage,))], 3)
    assert torch.equal(scene["p"].data.vec, scene["p"].ground_truth.vec)
    syn.advance(scene, 5)
    assert not torch.equal(scene["p"].data.vec, scene["p"].ground_truth.vec)
    syn.reset(scene, [1])
    for _ in range(6):
        assert torch.equal(scene["p"].data.vec[1], scene["p"].ground_truth.vec[1])
        assert not torch.equal(scene["p"].data.vec[0], scene["p"].ground_truth.vec[0])
        scene.engine.body_pos_w[0] += 1.0
        scene.update()


# Linear phase ---------------------------------------------------------------------------------------------------------


def test_a_pure_delay_is_the_earlier_value() -> None:
    """`samples` shows, bit for bit, the measurement from that many samples ago; at first the first sample."""
    signal = np.random.default_rng(2).normal(size=(40, 3)).astype(np.float32).astype(np.float64)
    out = drive(sn.stages.GroupDelay(samples=4), signal)
    np.testing.assert_array_equal(out[4:], signal[:-4])
    np.testing.assert_array_equal(out[:4], np.tile(signal[0], (4, 1)))


@pytest.mark.parametrize(
    ("stage", "taps"),
    [
        (sn.stages.GroupDelay(window="boxcar", length=6), np.full(6, 1.0 / 6.0)),
        (sn.stages.GroupDelay(window="hann", length=7), np.hanning(9)[1:-1] / np.hanning(9).sum()),
        (sn.stages.GroupDelay(coefficients=(-0.1, 0.2, 0.8, 0.2, -0.1)), np.array([-0.1, 0.2, 0.8, 0.2, -0.1])),
    ],
    ids=["boxcar", "hann", "given"],
)
def test_taps_convolve_with_half_their_number_as_delay(stage: sn.stages.GroupDelay, taps: Array) -> None:
    """The output is NumPy's convolution with the first value before the start; a ramp is (taps - 1) / 2 late."""
    signal = np.random.default_rng(3).normal(size=(60, 3))
    padded = np.vstack([np.tile(signal[0], (taps.size - 1, 1)), signal])
    expected = np.stack([np.convolve(padded[:, j], taps, mode="valid") for j in range(3)], axis=1)
    np.testing.assert_allclose(drive(stage, signal), expected, atol=1e-6)
    late = 0.5 * (taps.size - 1)
    assert stage.delay_samples == late
    np.testing.assert_allclose(
        drive(stage, np.arange(40.0))[taps.size :, 0], np.arange(40.0)[taps.size :] - late, rtol=1e-6
    )


@pytest.mark.parametrize("frequency", [2.0, 11.0, 17.0])
def test_group_delay_is_equal_at_every_frequency(frequency: float) -> None:
    """Sines of several frequencies pass a window with no phase other than that of its delay."""
    stage = sn.stages.GroupDelay(window="hann", length=5)
    t = np.arange(300) * 0.01
    out = drive(stage, np.sin(2 * np.pi * frequency * t))[-200:, 0]
    shifted = 2 * np.pi * frequency * (t[-200:] - 0.01 * stage.delay_samples)
    basis = np.stack([np.sin(shifted), np.cos(shifted)], axis=1)
    in_phase, quadrature = np.linalg.lstsq(basis, out, rcond=None)[0]
    assert in_phase > 0.1 and abs(quadrature) < 1e-6


# Misses ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RayData:
    distance: Annotated[Tensor, sn.Field("m", role="range")]


class RayCfg(sn.SimpleSensorCfg[RayData]):
    """The first coordinate of the body, as a range that misses beyond 10 m."""


class Ray(sn.SimpleSensor[RayCfg, RayData]):
    requires = (sn.engines.BODY_POSE,)
    single = True

    def update_raw_data(self, raw: sn.Record) -> None:
        x = self.engine.array("body_pos_w")[:, 0, 0]
        raw.distance.copy_(torch.where(x > 10.0, math.inf, x))


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (sn.stages.LowPass(time_constant=1e9), [1, 1, "inf", "inf", 4, 4]),
        (sn.stages.LowPass(cutoff_hz=1e-6, order=2), [1, 1, "inf", "inf", 4, 4]),
        (sn.stages.GroupDelay(samples=1), [1, 1, 2, "inf", "inf", 4]),
        (sn.stages.GroupDelay(window="boxcar", length=2), [1, 1.5, "inf", "inf", "inf", 4.5]),
        (sn.stages.GroupDelay(coefficients=(-0.5, 2.0, -0.5)), [1, 0.5, "inf", "inf", "inf", "inf"]),
    ],
    ids=["rc", "butterworth", "delay", "boxcar", "negative"],
)
def test_a_miss_stays_a_miss(stage: sn.stages.StageCfg, expected: list[Any]) -> None:
    """+inf is reported as +inf, never as NaN, and a low-pass restarts after it."""
    scene = syn.world([RayCfg(name="ray", stages=(stage,))], 2, at=(1.0, 1.0, 1.0))
    sensor = scene["ray"]
    out = [float(sensor.data[0])]
    for x in (2.0, 11.0, 12.0, 4.0, 5.0):
        scene.engine.body_pos_w[:] = x
        scene.update()
        out.append(float(sensor.data[0]))
    np.testing.assert_allclose(out, [float(value) for value in expected], rtol=1e-6)


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "kwargs", "text"),
    [
        (sn.stages.LowPass, {}, "exactly one of cutoff_hz and time_constant"),
        (sn.stages.LowPass, {"cutoff_hz": 1.0, "time_constant": 1.0}, "exactly one"),
        (sn.stages.LowPass, {"time_constant": 1.0, "order": 2}, "Give cutoff_hz"),
        (sn.stages.LowPass, {"cutoff_hz": sn.Uniform(1.0, 2.0)}, "fixed numbers"),
        (sn.stages.LowPass, {"cutoff_hz": 0.0}, "frequencies > 0"),
        (sn.stages.LowPass, {"cutoff_hz": 1.0, "order": 3}, "order"),
        (sn.stages.LowPass, {"cutoff_hz": 1.0, "place": "nowhere"}, "place"),
        (sn.stages.GroupDelay, {}, "exactly one of samples"),
        (sn.stages.GroupDelay, {"samples": 2, "window": "hann", "length": 3}, "exactly one of samples"),
        (sn.stages.GroupDelay, {"window": "hann"}, "number of taps if and only if a window"),
        (sn.stages.GroupDelay, {"samples": 2, "length": 3}, "length: got 3, .*only if a window"),
        (sn.stages.GroupDelay, {"samples": 0}, "whole number >= 1"),
        (sn.stages.GroupDelay, {"coefficients": (0.5, 0.25, 0.25)}, "symmetric"),
        (sn.stages.GroupDelay, {"coefficients": (1.0, 2.0, 1.0)}, r"normalised taps are \(0.25, 0.5, 0.25\)"),
    ],
)
def test_impossible_filters_are_refused(make: Any, kwargs: Mapping[str, Any], text: str) -> None:
    with pytest.raises(sn.ConfigError, match=text):
        make(**kwargs)


def test_a_cut_off_above_half_the_rate_is_refused() -> None:
    """The fault is found when the scene is built, and names sensor, stage and limit."""
    stage = sn.stages.LowPass(cutoff_hz=15.0, order=2)
    syn.world([syn.ProbeCfg(name="p", stages=(stage,))])
    with pytest.raises(sn.ConfigError, match=r"'p'.*stages\.0.*low_pass.*below half the sampling rate, 12.5 Hz"):
        syn.world([syn.ProbeCfg(name="p", rate_hz=25.0, stages=(stage,))])
