"""Draws a lap of a car with a tunnel on it as its GNSS receiver sees it: a wandering error, an outage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn
from sensorium.view.style import MEASURED

DT, SECONDS, RADIUS, SPEED = 0.02, 120.0, 50.0, 8.0
TUNNEL = sn.SkyZone(low=(-20.0, 40.0, -5.0), high=(20.0, 60.0, 5.0))


def _motion(t: float) -> Mapping[str, Any]:
    angle = SPEED * t / RADIUS - 0.5
    c, s = np.cos(angle), np.sin(angle)
    return {"body_pos_w": (RADIUS * c, RADIUS * s, 0.0), "body_lin_vel_w": (-SPEED * s, SPEED * c, 0.0)}


def simulate() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return capture times [sample] s, measured and true positions [sample, 3] m then, and whether there was a fix."""
    gnss = sn.GnssCfg(
        body="body",
        origin=(47.3977, 8.5456, 488.0),
        rate_hz=5.0,
        horizontal_sd=1.0,
        vertical_sd=2.0,
        tau=30.0,
        pos_noise=0.15,
        zones=(TUNNEL,),
        reacquisition_time=1.5,
    )
    scene = sn.Scene(sn.TensorEngine(1, DT, motion=_motion), [gnss], seed=5)
    times, measured, true, fixes = [], [], [], []
    for _ in range(round(SECONDS * 5)):
        scene.step(substeps=round(0.2 / DT))
        times.append(scene[gnss].capture_time.item())
        measured.append(scene[gnss].data.pos_enu[0].numpy().copy())
        true.append(scene[gnss].ground_truth.pos_enu[0].numpy().copy())
        fixes.append(scene[gnss].data.fix.item() > 0)
    return np.array(times), np.array(measured), np.array(true), np.array(fixes)


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    times, measured, true, has_fix = simulate()
    lap = times < 2 * np.pi * RADIUS / SPEED
    fig, (track, error) = plt.subplots(1, 2, figsize=(8, 4), dpi=120, layout="constrained", width_ratios=(1, 1.3))
    track.add_patch(plt.Rectangle((-20, 40), 40, 20, color="0.8", label="tunnel"))
    track.plot(*true[lap, :2].T, color="black", lw=1.2, label="true")
    track.plot(*measured[lap & has_fix, :2].T, ".", ms=4, color=MEASURED, label="measured")
    track.plot(*measured[lap & ~has_fix, :2].T, "o", ms=5, mfc="none", color="tab:blue", label="held, not valid")
    track.set(xlabel="east (m)", ylabel="north (m)", title="One lap of a car at 8 m/s", aspect="equal")
    track.legend(loc="center", fontsize=8)
    for column, name, color in ((0, "east", "tab:blue"), (1, "north", "tab:orange")):
        difference = np.where(has_fix, measured[:, column] - true[:, column], np.nan)
        error.plot(times, difference, ".-", ms=2, lw=0.6, color=color, label=name)
    edges = np.flatnonzero(np.diff(np.concatenate([[True], has_fix, [True]]).astype(int)))
    for start, end in edges.reshape(-1, 2):
        error.axvspan(times[start], times[min(end, len(times) - 1)], color="tab:red", alpha=0.15, lw=0)
    error.axhline(0.0, color="black", lw=1.2)
    error.set(xlabel="time (s)", ylabel="measured minus true (m)", title="Error at capture; red: no fix")
    error.legend(loc="upper right", fontsize=8)
    for each in (track, error):
        each.grid(alpha=0.3)
    fig.suptitle("GNSS: 1 m wandering with a correlation time of 30 s, 0.15 m white noise, 5 Hz", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/gnss.png")
