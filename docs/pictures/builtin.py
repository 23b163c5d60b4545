"""Draws docs/images/builtin.png: a ball that bounces, as its model's own range and touch sensors see it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn
from sensorium.view.style import MEASURED

BALL = """
<mujoco>
  <option timestep="0.001"/>
  <worldbody>
    <geom type="plane" size="5 5 .1" solref="-8000 -4"/>
    <body name="ball" pos="0 0 .6">
      <joint type="slide" axis="0 0 1"/>
      <geom size=".1" mass=".5" solref="-8000 -4"/>
      <site name="skin" size=".11"/>
      <site name="eye" zaxis="0 0 -1"/>
    </body>
  </worldbody>
  <sensor><rangefinder name="height" site="eye"/><touch name="impact" site="skin"/></sensor>
</mujoco>
"""


def simulate(seconds: float = 2.0) -> dict[str, np.ndarray]:
    """Return time, and for both sensors the true and the measured values."""
    full_scale = sn.stages.Saturation(low=0.0, high=120.0)
    scene = sn.Scene(
        sn.MujocoEngine(BALL),
        [
            sn.BuiltinSensorCfg.from_existing("height", noise=0.01, rate_hz=50.0, delay=0.04),
            sn.BuiltinSensorCfg.from_existing("impact", noise=2.0, resolution=5.0, stages=(full_scale,)),
        ],
        seed=1,
    )
    rows = []
    while scene.time < seconds:
        scene.step()
        row = [scene.time]
        for name in ("height", "impact"):
            row += [scene[name].ground_truth.item(), scene[name].data.item()]
        rows.append(row)
    columns = np.array(rows).T
    return dict(zip(("time", "height_true", "height", "impact_true", "impact"), columns, strict=True))


def draw(path: Path) -> None:
    """Write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    run = simulate()
    figure, axes = plt.subplots(1, 2, figsize=(8.0, 3.6), layout="constrained")
    left, right = axes
    left.plot(run["time"], run["height_true"], color="0.2", linewidth=1.2, label="native value (true)")
    left.step(run["time"], run["height"], where="post", color=MEASURED, linewidth=0.9, label="measured")
    left.set(title="rangefinder: 50 Hz, 10 mm noise, 40 ms late", xlabel="time (s)", ylabel="distance to the floor (m)")
    left.set_ylim(0.0, 0.78)
    first = run["time"][run["impact_true"] > 0.0][0]
    near = abs(run["time"] - first - 0.012) < 0.03
    milliseconds = (run["time"][near] - first) * 1e3
    right.plot(milliseconds, run["impact_true"][near], color="0.2", linewidth=1.2, label="native value (true)")
    right.step(milliseconds, run["impact"][near], where="post", color=MEASURED, linewidth=0.9, label="measured")
    right.set(title="touch: 2 N noise, full scale 120 N, steps of 5 N", xlabel="time since the first impact (ms)")
    right.set_ylabel("normal force (N)")
    right.set_ylim(-5.0, 170.0)
    for each in axes:
        each.grid(alpha=0.3)
        each.legend(loc="upper right", fontsize=8, ncols=2)
        each.title.set_fontsize(9.5)
    figure.suptitle("Sensors that the model declares, with knobs from a config", fontsize=11)
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/builtin.png")
