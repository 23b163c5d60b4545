"""Draws a thrown box as a motion-capture system sees it: true path, measured poses, and how late and wrong they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn
from sensorium.view.style import MEASURED

MODEL = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body name="box" pos="0 0 .4"><freejoint/><geom type="box" size=".12 .08 .05" mass="1"/></body>
  </worldbody>
</mujoco>
"""
SECONDS = 1.2


def simulate() -> dict[str, np.ndarray]:
    """Return times [tick] s, true position and velocity of the box [tick, 3], and the measured values."""
    engine = sn.MujocoEngine(MODEL)
    engine.qvel[0] = engine.qvel.new_tensor((1.2, 0.0, 2.6, 1.0, 5.0, 2.0))
    mocap = sn.BodyStateCfg(
        name="mocap", body="box", rate_hz=120.0, delay=0.03, noise={"pos_w": 0.004, "lin_vel_w": 0.15, "quat_w": 0.01}
    )
    scene = sn.Scene(engine, [mocap], seed=1)
    rows: dict[str, list[np.ndarray]] = {"time": [], "pos": [], "vel": [], "seen_pos": [], "seen_vel": [], "sensed": []}
    for _ in range(round(SECONDS / engine.dt)):
        scene.step()
        sensor = scene[mocap]
        rows["time"].append(np.array(scene.time))
        rows["pos"].append(engine.qpos[0, :3].numpy().copy())
        rows["vel"].append(engine.qvel[0, :3].numpy().copy())
        rows["seen_pos"].append(sensor.data.pos_w[0].numpy().copy())
        rows["seen_vel"].append(sensor.data.lin_vel_w[0].numpy().copy())
        rows["sensed"].append(sensor.capture_time[0].numpy().copy())
    return {name: np.array(values) for name, values in rows.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    told = simulate()
    _, first = np.unique(told["sensed"], return_index=True)
    fig, (space, speed) = plt.subplots(1, 2, figsize=(8, 4), dpi=120, layout="constrained")
    space.plot(told["pos"][:, 0], told["pos"][:, 2], color="black", lw=1.2, label="true")
    space.plot(told["seen_pos"][first, 0], told["seen_pos"][first, 2], ".", ms=3, color=MEASURED, label="measured")
    space.axhline(0.0, color="tab:brown", lw=1.0)
    space.set(xlabel="x (m)", ylabel="z (m)", title="Path of the box", ylim=(-0.03, 0.85))
    speed.plot(told["time"], told["vel"][:, 2], color="black", lw=1.2, label="true")
    speed.step(told["time"], told["seen_vel"][:, 2], where="post", lw=0.9, color=MEASURED, label="measured")
    speed.set(xlabel="time (s)", ylabel="vertical velocity (m/s)", title="What is shown is 30 to 38 ms old")
    for each in (space, speed):
        each.grid(alpha=0.3)
        each.legend(loc="lower left" if each is speed else "upper left", fontsize=8)
    fig.suptitle("State of a thrown box: 120 Hz, delay 30 ms, 4 mm and 0.15 m/s of noise", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/body_state.png")
