"""Draws a climb and a dash of a multirotor as its barometer sees them: noise, lag, and suction at the port."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn
from sensorium.view.style import ERROR, MEASURED

DT, SECONDS = 0.02, 40.0


def _motion(t: float) -> Mapping[str, Any]:
    """Climb 20 m from 5 s on, then fly 15 m/s from 20 to 30 s; both begin and end smoothly."""
    climb = np.clip((t - 5.0) / 8.0, 0.0, 1.0)
    height = 20.0 * climb**2 * (3.0 - 2.0 * climb)
    rise, fall = np.clip((t - 20.0) / 2.0, 0.0, 1.0), np.clip((t - 28.0) / 2.0, 0.0, 1.0)
    speed = 15.0 * (rise**2 * (3.0 - 2.0 * rise) - fall**2 * (3.0 - 2.0 * fall))
    return {"body_pos_w": (0.0, 0.0, height), "body_lin_vel_w": (speed, 0.0, 0.0)}


def simulate() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times [sample] s, and the altitude [sample] m, measured and true."""
    baro = sn.preset("px4_baro", body="body", lag=0.5, position_error=-0.25, altitude_offset=488.0)
    scene = sn.Scene(sn.TensorEngine(1, DT, motion=_motion), [baro], seed=1)
    rows = []
    for _ in range(round(SECONDS / DT)):
        scene.update()
        rows.append((scene.time, scene[baro].data.altitude.item(), scene[baro].ground_truth.altitude.item()))
    times, measured, true = np.array(rows).T
    return times, measured, true


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    times, measured, true = simulate()
    fig, (above, below) = plt.subplots(2, 1, figsize=(8, 4), dpi=120, sharex=True, layout="constrained")
    above.plot(times, measured, ".", ms=1.5, color=MEASURED, label="measured")
    above.plot(times, true, color="black", lw=1.2, label="true")
    above.set(ylabel="altitude (m)", title="Altitude above sea level")
    above.legend(loc="lower right", fontsize=8)
    below.plot(times, measured - true, ".", ms=1.5, color=ERROR)
    below.axhline(0.0, color="black", lw=1.2)
    below.set(xlabel="time (s)", ylabel="error (m)", title="Measured minus true", ylim=(-2.6, 4.2))
    below.annotate("lag: 0.5 s at up to 3.8 m/s", (13.5, -1.4), ha="left", va="center", fontsize=8)
    below.annotate("suction at the port: 15 m/s", (25.0, 3.7), ha="center", va="center", fontsize=8)
    for each in (above, below):
        each.grid(alpha=0.3)
    fig.suptitle("Barometer: 1 Pa white noise, 0.5 s lag, pressure coefficient -0.25", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/barometer.png")
