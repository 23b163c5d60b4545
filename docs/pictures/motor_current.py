"""Draws docs/images/motor_current.png: the current of a motor, and what its drive takes for the torque at the joint."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

import sensorium as sn
from sensorium.view.style import MEASURED

LEG = """
<mujoco>
  <option timestep="0.0005" integrator="implicitfast"/>
  <worldbody>
    <body><joint name="knee" axis="0 1 0" armature="0.005" damping="0.3" frictionloss="0.8"/>
      <inertial mass="2" pos="0.15 0 0" diaginertia=".02 .02 .02"/></body>
  </worldbody>
  <actuator><position joint="knee" kp="100" kv="8"/></actuator>
</mujoco>
"""
SECONDS = 3.0


def simulate() -> dict[str, np.ndarray]:
    """Return time s, currents A, torques N m and the joint's velocity rad/s."""
    naive = sn.MotorCurrentCfg(
        name="naive", joint="knee", torque_constant=0.09, gear=9.0, noise=0.15, current_resolution=0.05,
        cogging=(0.02,), cogging_cycles=12.0, rate_hz=500.0,
    )  # fmt: skip
    wise = naive.replace(name="wise", coulomb=0.8, viscous=0.3)
    joint = sn.JointSensorCfg(joint="knee", rate_hz=500.0)
    scene = sn.Scene(sn.MujocoEngine(LEG), [naive, wise, joint], seed=1)
    rows = []
    for step in range(round(SECONDS / 0.0005)):
        scene.step([0.7 * math.sin(2.0 * math.pi * step * 0.0005 / 1.5)])
        if not scene[naive].is_new:
            continue
        truth, data = scene[naive].ground_truth, scene[naive].data
        rows.append((
            scene.time, truth.current.item(), data.current.item(), truth.torque.item(), data.torque.item(),
            scene[wise].data.torque.item(), scene[joint].data.velocity.item(),
        ))  # fmt: skip
    columns = ("time", "current", "measured", "torque", "naive", "wise", "velocity")
    return {name: values[150:] for name, values in zip(columns, np.array(rows).T, strict=True)}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run = simulate()
    fig, (left, right) = plt.subplots(1, 2, figsize=(8, 4), dpi=120, layout="constrained")
    left.plot(run["time"], run["measured"], color=MEASURED, lw=0.6, label="measured")
    left.plot(run["time"], run["current"], color="black", lw=1.2, label="true")
    left.set(xlabel="time (s)", ylabel="current (A)", title="Motor current")
    for name, color, label in (("naive", "tab:orange", "drive ignores friction"),
                               ("wise", "tab:blue", "drive subtracts 0.8 N m + 0.3 N m s/rad")):  # fmt: skip
        right.plot(run["velocity"], run[name] - run["torque"], ".", ms=1.5, color=color, label=label)
    right.axhline(0.0, color="black", lw=1.2)
    right.set(xlabel="joint velocity (rad/s)", ylabel="torque error (N m)", title="Estimated minus true torque")
    for each in (left, right):
        each.grid(alpha=0.3)
        each.legend(loc="upper left", fontsize=8)
    left.margins(y=0.15)
    right.margins(y=0.2)
    fig.suptitle("Motor current: 0.09 N m/A, gear 9, noise 0.15 A, cogging 0.02 N m", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/motor_current.png")
