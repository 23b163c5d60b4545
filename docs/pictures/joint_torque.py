"""Draws docs/images/joint_torque.png: an arm with a strain wave gear sweeps its load, as its torque cell sees it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

import sensorium as sn
from sensorium.view.style import ERROR, MEASURED

ARM = """
<mujoco>
  <option timestep="0.0005" integrator="implicitfast"/>
  <worldbody>
    <body><joint name="shoulder" axis="0 1 0" armature="0.5" damping="1" frictionloss="2"/>
      <inertial mass="3" pos="0.4 0 0" diaginertia=".05 .05 .05"/></body>
  </worldbody>
  <actuator><position joint="shoulder" kp="500" kv="40"/></actuator>
</mujoco>
"""
SECONDS = 4.0


def simulate() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return time s, and torque N m: of the motor, at the output, and measured there."""
    cell = sn.JointTorqueCfg(joint="shoulder", ripple=0.4, gear=50.0, noise=0.05, resolution=0.05, rate_hz=500.0)
    motor = sn.JointSensorCfg(joint="shoulder", fields=("effort",), rate_hz=500.0)
    scene = sn.Scene(sn.MujocoEngine(ARM), [cell, motor], seed=1)
    rows = []
    for step in range(round(SECONDS / 0.0005)):
        scene.step([0.6 * math.sin(2.0 * math.pi * step * 0.0005 / SECONDS)])
        if not scene[cell].is_new:
            continue
        truth = scene[cell].ground_truth
        rows.append((scene.time, scene[motor].data.effort.item(), truth.item(), scene[cell].data.item()))
    time, effort, true, measured = np.array(rows).T
    return time, effort, true, measured


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    time, effort, true, measured = simulate()
    shown = time > 0.5  # the fall into the first position
    fig, (above, below) = plt.subplots(2, 1, figsize=(8, 4), dpi=120, sharex=True, layout="constrained")
    above.plot(time[shown], measured[shown], color=MEASURED, lw=0.8, label="measured by the cell")
    above.plot(time[shown], effort[shown], color="tab:blue", lw=1.0, label="effort of the motor")
    above.plot(time[shown], true[shown], color="black", lw=1.2, label="true, at the gearbox output")
    above.set(ylabel="torque (N m)", title="3 kg arm that sweeps ±0.6 rad; the drive's friction is 2 N m + 1 N m s/rad")
    above.legend(loc="upper right", fontsize=8, ncols=3)
    above.margins(y=0.35)
    below.plot(time[shown], (measured - true)[shown], color=ERROR, lw=0.6)
    below.axhline(0.0, color="black", lw=1.2)
    below.set(
        xlabel="time (s)", ylabel="error (N m)", title="Measured minus true: two cycles per turn of the wave generator"
    )
    for each in (above, below):
        each.grid(alpha=0.3)
    fig.suptitle("Torque cell: ripple 0.4 N m at a 50:1 strain wave gear, noise 0.05 N m", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/joint_torque.png")
