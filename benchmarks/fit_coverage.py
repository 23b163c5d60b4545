"""Coverage: how often 95 % intervals of `sn.fit` contain the true parameters of simulated logs, of 100 per case."""

import math
from collections import Counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import sensorium as sn
from benchmarks.timing import repeats_of
from sensorium.readings import Array

Row = tuple[str, str, str]

RATE, N = 200.0, 0.001
UNITS = {"ang_vel_b": "rad/s"}
CLOCK = sn.stages.ClockError(skew_ppm=50.0, resolution=0.002, offset=sn.Uniform(0.0, 0.002))
CASES: dict[str, tuple[int, dict[str, float], dict[str, Any]]] = {
    "N and K": (8000, {"K": 0.003}, {"random_walk_density": 0.003}),
    "N and B": (8000, {"B": 0.002}, {"stages": (sn.stages.Flicker(bias_instability=0.002, tau_min=0.05),)}),
    "N and Q": (8000, {"Q": 2.5e-5}, {}),
    "N and R": (8000, {"R": 6e-4}, {}),
    "step of 2 sigma": (4000, {}, {"resolution": 2.0 * N * math.sqrt(RATE)}),
    "losses, jitter": (
        8000, {"loss.p": 0.04, "loss.r": 0.76, "stamp.jitter": 4e-4},
        {"loss": sn.GilbertElliott(p=0.04, r=0.76), "stages": (sn.stages.ClockError(jitter=4e-4),)},
    ),
    "stamps of 2 ms": (8000, {}, {"stages": (CLOCK,)}),
    "short": (600, {}, {}),
}  # fmt: skip
"""Name -> number of samples, true parameters in addition to N and the rate, and the fields of the gyroscope."""


def logs(count: int, length: int, true: dict[str, float], fields: dict[str, Any]) -> list[sn.Samples]:
    """Return simulated logs of a gyroscope at rest; Q and R are added to those of the chain."""
    cfg = sn.ImuCfg(body="body", fields=("ang_vel_b",), rate_hz=RATE, noise_density=N, **fields)
    scene = sn.Scene(sn.TensorEngine(count, 1.0 / RATE), [cfg], seed=1)
    values, (stamp, capture) = np.empty((length, count)), np.empty((2, length, count))
    for row in range(length):
        scene.update()
        values[row] = scene[cfg].data.ang_vel_b.reshape(count, -1)[:, 0].numpy()
        stamp[row], capture[row] = scene[cfg].stamp.numpy(), scene[cfg].capture_time.numpy()
    if "Q" in true:
        grain = math.sqrt(12.0) * true["Q"]
        angle = np.cumsum(values, axis=0) / RATE + grain * np.random.default_rng(2).random(count)
        values = np.diff(grain * np.rint(angle / grain), axis=0, prepend=0.0)[1:] * RATE
        stamp, capture = stamp[1:], capture[1:]
    values += true.get("R", 0.0) * np.arange(len(values))[:, None] / RATE
    new = np.diff(capture, axis=0, prepend=-1.0) > 0.0
    return [
        sn.Samples(t[k], {"ang_vel_b": x[k, None]}, UNITS, "log")
        for t, x, k in zip(stamp.T, values.T, new.T, strict=True)
    ]


def run() -> list[Row]:
    """Count for each parameter of each case how many fits find it, and how many intervals contain its true value."""
    rows = []
    for case, (length, true, fields) in CASES.items():
        skew = 50e-6 if CLOCK in fields.get("stages", ()) else 0.0
        true = {"rate_hz": RATE / (1.0 + skew), "N": N, **true}
        count, inside, widths, refused = (
            repeats_of(1000 if length < 1000 else 100),
            Counter[str](),
            dict[str, list[float]](),
            0,
        )
        length = length if count > 1 else 600
        for samples in logs(count, length, true, fields):
            try:
                found = sn.fit(samples, "imu").parameters
            except sn.ArgumentError:
                refused += 1
                continue
            for name, value in true.items():
                each = found.get(name) or found.get(f"ang_vel_b.{name}")
                if each is not None:
                    inside[name] += each.low <= value <= each.high
                    widths.setdefault(name, []).append((each.value - value) / max(each.high - each.low, 1e-300))
        for name in true:
            errors: Array = np.array(widths.get(name, []))
            sd = f"scatter {3.92 * float(np.sqrt(np.mean(errors**2))):.2f} of the stated" if len(errors) else ""
            rows.append((f"{case}: {name}", f"{inside[name]} of {len(errors)} inside", f"{sd}, {refused} logs refused"))
    moving = motions()
    refused = sum(map(is_refused, moving))
    return [*rows, ("moving logs", f"{refused} of {len(moving)} refused", "")]


def motions() -> list[sn.Samples]:
    """Return 20 logs with motion: swings of several frequencies and lengths, steps, slow turns and vibration."""
    random, time = np.random.default_rng(3), np.arange(8000) / RATE
    noise = N * math.sqrt(RATE)
    swings = [size * noise * np.sin(2.0 * np.pi * hertz * time) for hertz in (0.1, 0.5, 2.0, 10.0) for size in (3, 30)]
    parts = [30.0 * noise * np.sin(6.0 * time) * (abs(time - 20.0) < half) for half in (1.0, 3.0, 8.0)]
    steps = [size * noise * (time > at) for size, at in ((10.0, 20.0), (30.0, 10.0), (100.0, 5.0))]
    bumps = [20.0 * noise * np.exp(-(((time - at) / 0.2) ** 2)) for at in (5.0, 20.0, 33.0)]
    walks = [np.convolve(random.normal(size=8000), np.hanning(width), "same") * noise for width in (20, 100, 400)]
    values = [noise * random.normal(size=8000) + each for each in (*swings, *parts, *steps, *bumps, *walks)]
    return [sn.Samples(time, {"ang_vel_b": each[:, None]}, UNITS, "log") for each in values]


def is_refused(samples: sn.Samples) -> bool:
    """Return whether a fit refuses a log."""
    try:
        sn.fit(samples, "imu")
    except sn.ArgumentError:
        return True
    return False


if __name__ == "__main__":
    table = Table("parameter", "intervals", "error", title="Coverage of 95 % intervals")
    for row in run():
        table.add_row(*row)
    Console().print(table)
