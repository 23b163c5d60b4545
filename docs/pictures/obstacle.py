"""Draws docs/images/obstacle.png: a car approaches a post beside its way; the measured distance for two radii."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn

RADII = {0.5: "tab:red", 0.1: "tab:blue"}
POST, SIZE, WALL = (4.0, 0.4), 0.2, 7.0
YARD = f"""
<mujoco><option timestep="0.02" gravity="0 0 0"/><worldbody>
  <geom name="wall" type="box" size="0.1 5 5" pos="{WALL + 0.1} 0 0"/>
  <body name="car/base"><freejoint/><geom size="0.1" contype="0" conaffinity="0"/></body>
  <body name="post/base" pos="{POST[0]} {POST[1]} 0"><geom type="cylinder" size="{SIZE} 2"/></body>
</worldbody></mujoco>
"""


def simulate() -> tuple[np.ndarray, dict[float, np.ndarray]]:
    """Return the positions of the car [step], and the distances of each radius [step], m."""
    sensors = [
        sn.ObstacleCfg(name=f"r{radius}", body="car/base", max_distance=5.0, hit_radius=radius) for radius in RADII
    ]
    scene = sn.Scene(sn.MujocoEngine(YARD), sensors)
    scene.reset(qvel=[[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    places, found = [], {radius: [] for radius in RADII}
    for _ in range(300):
        scene.step()
        places.append(float(scene.engine.qpos[0, 0]))
        for radius, sensor in zip(RADII, sensors, strict=True):
            found[radius].append(float(scene[sensor].data.distance[0]))
    return np.array(places), {radius: np.array(values) for radius, values in found.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Circle, Rectangle

    places, found = simulate()
    fig, (top, curves) = plt.subplots(2, 1, figsize=(8, 5), dpi=120, height_ratios=(2, 3), layout="constrained")
    top.add_patch(Circle(POST, SIZE, fc="tab:green"))
    top.add_patch(Rectangle((WALL, -1.0), 0.2, 2.0, fc="gray"))
    for radius, color in RADII.items():
        end = float(found[radius][0])
        end = end if np.isfinite(end) else 5.0
        top.add_patch(Circle((0.0, 0.0), radius, fill=False, ec=color))
        top.add_patch(Circle((end, 0.0), radius, fill=False, ec=color, ls="--"))
        top.annotate("", (end, 0.0), (0.0, 0.0), arrowprops={"arrowstyle": "->", "color": color})
        curves.plot(places, found[radius], color=color, label=f"radius {radius:g} m")
    top.set(xlim=(-1.0, 7.5), ylim=(-1.0, 1.0), aspect="equal", ylabel="y (m)", title="the ball at its start and end")
    curves.set(xlabel="position of the car (m)", ylabel="distance (m)", xlim=(-1.0, 7.5), ylim=(0.0, 5.0))
    curves.legend()
    curves.grid(alpha=0.3)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images" / "obstacle.png")
