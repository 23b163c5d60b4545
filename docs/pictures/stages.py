"""Draws what stages do: the Allan deviation of flicker, step responses, faults on a sine, warming up."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sensorium as sn
from sensorium.view.style import MEASURED

Array = NDArray[np.float64]

GYRO = ("ang_vel_b",)
FLICKER = sn.stages.Flicker(fields=GYRO, bias_instability=1.0, tau_min=2.0, tau_max=200.0)


def read(
    stages: tuple[sn.stages.StageCfg, ...],
    turn_rate: Callable[[float], float],
    seconds: float,
    dt: float = 0.005,
    envs: int = 1,
) -> tuple[Array, Array]:
    """Return times [sample] and readings of a gyroscope that turns about all axes, `[sample, env * axis]`."""

    def motion(t: float) -> dict[str, Any]:
        return {"body_ang_vel_w": (turn_rate(t),) * 3}

    imu = sn.ImuCfg(body="body", fields=GYRO, stages=stages)
    scene = sn.Scene(sn.TensorEngine(envs, dt, motion=motion), [imu], seed=2)
    times, rows = [], []
    for _ in range(round(seconds / dt)):
        times.append(scene.time)
        rows.append(scene[imu].data.ang_vel_b.double().numpy().ravel().copy())
        scene.update()
    return np.array(times), np.stack(rows)


def allan(samples: Array, m: int) -> float:
    """Return the Allan deviation over averages of m samples."""
    total = np.vstack([np.zeros((1, samples.shape[1])), np.cumsum(samples, axis=0)])
    means = (total[m:] - total[:-m]) / m
    return math.sqrt(0.5 * float(np.mean((means[m:] - means[:-m]) ** 2)))


def part(t: Array, tau: float, sd: float) -> Array:
    """Return the Allan deviation of one Gauss-Markov process."""
    x = t / tau
    variance: Array = 2.0 * sd**2 / x * (1.0 - (3.0 - 4.0 * np.exp(-x) + np.exp(-2.0 * x)) / (2.0 * x))
    return np.sqrt(variance)


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, ((top_left, top_right), (low_left, low_right)) = plt.subplots(
        2, 2, figsize=(9, 6.4), dpi=96, layout="constrained"
    )

    _, samples = read((FLICKER,), lambda t: 0.0, 1500.0, dt=0.5, envs=64)
    t = np.geomspace(0.5, 500.0, 200)
    for k, (tau, sd) in enumerate(zip(*FLICKER.components(), strict=True)):
        label = "its Gauss-Markov parts" if k == 0 else None
        top_left.loglog(t, part(t, tau, sd), "--", lw=0.9, color="0.6", label=label)
    sizes = np.unique(np.geomspace(1, 700, 40).round().astype(int))
    top_left.loglog(sizes * 0.5, [allan(samples, m) for m in sizes], "o", ms=3, color=MEASURED, label="measured")
    top_left.axhline(math.sqrt(2.0 * math.log(2.0) / math.pi), color="black", lw=1.2, label="0.664 B")
    top_left.axvspan(2.0, 200.0, color="tab:green", alpha=0.1, label="tau_min to tau_max")
    top_left.set(title="Flicker, B = 1", xlabel="averaging time (s)", ylabel="Allan deviation", ylim=(0.05, 4.0))

    def step(t: float) -> float:
        return 1.0 if t > 0.0475 else 0.0

    for label, stage in {
        "LowPass, time_constant=0.02": sn.stages.LowPass(time_constant=0.02),
        "LowPass, cutoff_hz=8, order=2": sn.stages.LowPass(cutoff_hz=8.0, order=2),
        "GroupDelay, hann of 9": sn.stages.GroupDelay(window="hann", length=9),
        "GroupDelay, 10 samples": sn.stages.GroupDelay(samples=10),
    }.items():
        times, values = read((stage,), step, 0.3)
        top_right.plot(times * 1e3, values[:, 0], ".-", ms=4, lw=1, label=label)
    top_right.plot(times * 1e3, [step(t) for t in times], color="black", lw=1.2, drawstyle="steps-post", label="true")
    top_right.set(title="Filters, 200 Hz", xlabel="time (ms)", ylabel="rate (rad/s)")

    def sine(t: float) -> float:
        return math.sin(2.0 * math.pi * t)

    faults = (
        sn.stages.Dropout(fields=GYRO, probability=(0.0, 0.2, 0.0), mode="zero"),
        sn.stages.StuckFault(fields=GYRO, start=0.5, duration=0.4, elements=(0,)),
        sn.stages.SaturationFault(fields=GYRO, start=1.3, duration=0.3, high=2.0, rail="high", elements=(0,)),
        sn.stages.SpikeFault(fields=GYRO, rate=4.0, amount=sn.Choice((-1.5, 1.5)), elements=(2,)),
    )
    times, values = read(faults, sine, 2.0, dt=0.02)
    for k, (label, color) in enumerate(
        {
            "StuckFault, then SaturationFault": "tab:red",
            "Dropout, zero, 20 %": "tab:blue",
            "SpikeFault, 4 per s": "tab:green",
        }.items()
    ):
        low_left.plot(times, values[:, k] - 4.0 * k, ".-", ms=3, lw=0.8, color=color, label=label)
        low_left.plot(
            times, [sine(t) - 4.0 * k for t in times], color="black", lw=0.8, label="true" if k == 2 else None
        )
    low_left.set(title="Faults (axes shifted apart)", xlabel="time (s)", ylabel="rate (rad/s)", ylim=(-11.0, 6.5))

    warm = sn.stages.TemperatureDrift(
        coefficient=sn.Normal(2.6e-4, 5e-5), ambient=sn.Uniform(5.0, 25.0), self_heating=15.0, tau=60.0
    )
    times, values = read((warm,), lambda t: 0.0, 300.0, dt=1.0, envs=8)
    low_right.plot(times, np.degrees(values[:, ::3]), lw=1)
    low_right.axhline(0.0, color="black", lw=1.2, label="true")
    low_right.set(
        title="TemperatureDrift: x axis of 8 environments", xlabel="time since reset (s)", ylabel="rate (deg/s)"
    )

    for each in (top_left, top_right, low_left, low_right):
        each.grid(alpha=0.3)
    top_left.legend(fontsize=7, loc="upper center", ncols=2)
    top_right.legend(fontsize=7, loc="lower right")
    low_left.legend(fontsize=7, loc="upper left", ncols=2)
    low_right.legend(fontsize=7, loc="lower right")
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/stages.png")
