"""Draws docs/images/contact_force.png: a foot that falls and bounces, through a range."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn
from sensorium.view.style import MEASURED

DROP = """
<mujoco>
  <option timestep="0.001"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1" solref="-8000 -40"/>
    <body name="foot" pos="0 0 0.3">
      <joint type="slide" axis="0 0 1"/>
      <geom type="box" size="0.08 0.05 0.02" mass="2" solref="-8000 -40"/>
    </body>
  </worldbody>
</mujoco>
"""


def simulate() -> dict[str, np.ndarray]:
    """Drop a foot; return time, and the force along z: true without a range, and measured with one."""
    cfgs = [
        sn.ContactForceCfg(name="true", body="foot"),
        sn.ContactForceCfg(name="cell", body="foot", noise=1.5, resolution=2.0, min_force=6.0, max_force=150.0),
    ]
    scene = sn.Scene(sn.MujocoEngine(DROP), cfgs, seed=1)
    rows: dict[str, list[float]] = {"time": [], "true": [], "cell": [], "limited": []}
    for _ in range(1300):
        scene.step()
        rows["time"].append(scene.time)
        rows["true"].append(float(scene["true"].data[0, 2]))
        rows["cell"].append(float(scene["cell"].data[0, 2]))
        rows["limited"].append(float(scene["cell"].ground_truth[0, 2]))
    return {name: np.array(values) for name, values in rows.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run = simulate()
    fig, (left, right) = plt.subplots(1, 2, figsize=(8, 4), dpi=120, layout="constrained")
    for each in (left, right):
        each.plot(run["time"], run["true"], color="black", lw=1.0, label="net contact force")
        each.plot(run["time"], run["cell"], ".", ms=2.5, color=MEASURED, label="measured")
        each.plot(run["time"], run["limited"], color="tab:blue", lw=1.0, label="true, within the range")
        each.axhline(150.0, color="tab:green", ls=":", lw=1.0, label="max_force")
        each.axhline(6.0, color="tab:orange", ls=":", lw=1.0, label="min_force")
        each.grid(alpha=0.3)
        each.set(xlabel="time (s)")
    left.set(title="A 2 kg foot falls from 0.28 m", ylabel="force on the foot, z (N)")
    left.legend(fontsize=7)
    right.set(title="It comes to rest: deadband, steps of 2 N", xlim=(0.65, 1.2), ylim=(-4, 60))
    right.axhline(2.0 * 9.81, color="gray", lw=0.8, ls="--")
    right.text(0.66, 2.0 * 9.81 + 1.5, "weight", fontsize=7, color="gray")
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/contact_force.png")
