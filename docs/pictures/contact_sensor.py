"""Draws docs/images/contact_sensor.png: the feet of a trot, and bounces that a control rate would miss."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn
from sensorium.demo import Trot, model_path

BALL = """
<mujoco>
  <option timestep="0.001"/>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 .1"/>
    <body name="ball" pos="0 0 0.14"><freejoint/><geom size="0.1" mass="0.5" solref="-300000 -120"/></body>
  </worldbody>
</mujoco>
"""
Rows = dict[str, np.ndarray]


def trot() -> Rows:
    """Return time [tick] s, and of two feet force [tick, 2] N, contact [tick, 2] and air time [tick, 2] s."""
    feet = sn.ContactSensorCfg(
        name="feet", primary=sn.ContactMatch(mode="geom", pattern="F[LR]_foot"), reduce="netforce", track_air_time=True
    )
    engine = sn.MujocoEngine(model_path(), keyframe="home")
    scene, gait = sn.Scene(engine, [feet]), Trot()
    rows: dict[str, list[np.ndarray]] = {"time": [], "force": [], "contact": [], "air": []}
    while scene.time < 2.2:
        scene.step(gait.targets(scene.time))
        data = scene[feet].data
        rows["time"].append(np.array(scene.time))
        rows["force"].append(data.force[0, :, 2].numpy().copy())
        rows["contact"].append((data.current_contact_time[0] > 0.0).numpy())
        rows["air"].append(data.current_air_time[0].numpy().copy())
    return {name: np.array(values) for name, values in rows.items()}


def bounces() -> Rows:
    """Return force [tick] N, and at each control step of 20 ticks the force then and the latched peak, N."""
    ball = sn.ContactSensorCfg(
        name="ball", primary=sn.ContactMatch(mode="body", pattern="ball"), reduce="netforce", history_length=20
    )
    scene = sn.Scene(sn.MujocoEngine(BALL), [ball])
    rows: dict[str, list[np.ndarray]] = {"force": [], "shown": [], "peak": []}
    for _ in range(20):
        scene.step(substeps=20)
        data = scene[ball].data
        rows["force"].append(data.force_history[0, 0, :, 2].flip(0).numpy().copy())
        rows["shown"].append(data.force[0, 0, 2].numpy().copy())
        rows["peak"].append(data.latched_peak_force[0, 0].numpy().copy())
    return {name: np.array(values) for name, values in rows.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run, ball = trot(), bounces()
    fig, (left, right) = plt.subplots(1, 2, figsize=(8, 4), dpi=120, layout="constrained")
    late = run["time"] > 1.0
    time, air = run["time"][late], left.twinx()
    for foot, (name, color) in enumerate((("FL", "tab:blue"), ("FR", "tab:orange"))):
        force, contact = run["force"][late, foot], run["contact"][late, foot]
        left.plot(time, force, color=color, lw=1.1, label=f"{name} force (bars: contact)")
        low = -14.0 - 9.0 * foot
        left.fill_between(time, low, low + 6.0, where=contact, color=color, alpha=0.8, lw=0.0)
        left.text(0.995, low + 1.0, name, fontsize=6.5, ha="right")
        air.plot(time, run["air"][late, foot], color=color, lw=1.0, ls="--", label=f"{name} air time")
    left.set(xlabel="time (s)", ylabel="net vertical force on the foot (N)", title="Front feet of a trot")
    left.set(ylim=(-28, 150), xlim=(0.93, 2.22))
    air.set(ylabel="current_air_time (s)", ylim=(-0.0467, 0.25))
    lines = [*left.get_legend_handles_labels()[0], *air.get_legend_handles_labels()[0]]
    left.legend(lines, [str(line.get_label()) for line in lines], fontsize=6.5, loc="upper right", ncols=2)
    ticks, controls = np.arange(1.0, 401.0), np.arange(1, 21) * 20.0
    right.plot(ticks, ball["force"].reshape(-1), color="0.55", lw=1.0, label="force at every tick (history)")
    right.plot(controls, ball["peak"], "v", color="tab:red", ms=5, label="latched_peak_force")
    right.plot(controls, ball["shown"], "o", color="tab:blue", ms=4, label="force when the policy reads")
    for control in controls:
        right.axvline(control, color="0.88", lw=0.6, zorder=0)
    right.set(
        xlabel="time (ms); a control step is 20 ms", ylabel="force on the ball (N)", title="Bounces of a hard ball"
    )
    right.legend(fontsize=7)
    right.grid(axis="y", alpha=0.3)
    fig.suptitle("Contact sensor: times in contact and in the air, and a latch that misses nothing", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/contact_sensor.png")
