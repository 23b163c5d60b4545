"""Draws docs/images/joint.png: a swing as a 10 bit encoder with backlash sees it, and three ways to its velocity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn
from sensorium.view.style import MEASURED

DT, SECONDS = 0.002, 2.0
AMPLITUDE, RATE = 0.12, math.pi
MODES = ("difference", "period", "direct")


def _motion(t: float) -> Mapping[str, Any]:
    """A swing of 0.12 rad at 0.5 Hz."""
    return {"joint_pos": AMPLITUDE * math.sin(RATE * t), "joint_vel": AMPLITUDE * RATE * math.cos(RATE * t)}


def simulate() -> dict[str, np.ndarray]:
    """Return time [sample] s, true position and velocity, and those measured in each mode."""
    engine = sn.TensorEngine(1, DT, joints=("knee",), provides=("joint_state",), motion=_motion)
    cfgs = [
        sn.JointSensorCfg(
            name=mode, joint="knee", bits=10, backlash=0.02, velocity_mode=mode,
            velocity_noise=0.01 if mode == "direct" else None,
        )
        for mode in MODES
    ]  # fmt: skip
    scene = sn.Scene(engine, cfgs, seed=1)
    rows = []
    for _ in range(round(SECONDS / DT)):
        scene.update()
        truth, data = scene["direct"].ground_truth, {mode: scene[mode].data for mode in MODES}
        rows.append(
            [scene.time, truth.position.item(), truth.velocity.item(), data["direct"].position.item()]
            + [data[mode].velocity.item() for mode in MODES]
        )
    columns = ("time", "position", "velocity", "measured", *MODES)
    return dict(zip(columns, np.array(rows).T, strict=True))


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run = simulate()
    fig, (left, right) = plt.subplots(1, 2, figsize=(8, 4), dpi=120, layout="constrained")
    left.plot(run["time"], run["position"], color="black", lw=1.2, label="true")
    left.plot(run["time"], run["measured"], color=MEASURED, lw=1.0, drawstyle="steps-post", label="measured")
    left.set(xlabel="time (s)", ylabel="position (rad)", title="Counts of 2π/1024, backlash 0.02 rad")
    left.annotate("turning back takes\nup the backlash", (0.62, 0.111), (1.05, 0.095), fontsize=8,
                  arrowprops={"arrowstyle": "->", "lw": 0.7})  # fmt: skip
    right.plot(
        run["time"], run["difference"], color="tab:orange", lw=0.4, alpha=0.8, label="difference: LSB/T = 3.07 rad/s"
    )
    right.plot(run["time"], run["direct"], ".", color="tab:green", ms=1.5, label="direct, noise 0.01 rad/s")
    right.plot(run["time"], run["period"], color="tab:blue", lw=1.0, label="period (1/T)")
    right.plot(run["time"], run["velocity"], color="black", lw=1.2, label="true")
    right.set(xlabel="time (s)", ylabel="velocity (rad/s)", ylim=(-0.6, 1.0), title="Velocity in the three modes")
    for each in (left, right):
        each.grid(alpha=0.3)
    left.legend(loc="lower left", fontsize=8)
    right.legend(loc="upper center", fontsize=7, framealpha=1.0)
    fig.suptitle("Joint sensor: swing of 0.12 rad at 0.5 Hz, sampled at 500 Hz", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/joint.png")
