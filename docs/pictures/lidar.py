"""Draws the scan of a VLP-16 on a car on hilly ground, and its distortion by motion, from above."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn
from sensorium.view.style import MEASURED

SPEED, YAW_RATE, DT = 12.0, 1.0, 0.005


def _ground() -> sn.engines.HeightField:
    x, y = np.meshgrid(np.linspace(-40, 40, 161), np.linspace(-40, 40, 161))
    bumps = 0.6 * np.sin(0.25 * x) * np.cos(0.2 * y) + 0.25 * np.sin(0.9 * x + 0.5 * y)
    return sn.engines.HeightField(bumps * np.clip(np.hypot(x, y) / 15.0 - 0.3, 0.0, 1.0), (40.0, 40.0))


def _box(name: str, x: float, y: float, z: float, size: tuple[float, float, float], rho: float) -> sn.engines.Shape:
    return sn.engines.Shape("box", name, size, pos=(x, y, z), reflectance=rho)


WORLD = (
    sn.engines.Shape("hfield", "ground", hfield=_ground(), reflectance=0.25),
    _box("north", 0.0, 15.0, 1.5, (16.0, 0.2, 3.0), 0.6),
    _box("south", 0.0, -13.0, 1.5, (16.0, 0.2, 3.0), 0.6),
    _box("east", 18.0, 0.0, 1.5, (0.2, 8.0, 3.0), 0.9),
    _box("crate", 8.0, 5.0, 0.9, (1.0, 1.5, 1.2), 0.1),
    _box("crate_2", -9.0, -6.0, 0.9, (1.5, 1.0, 1.2), 0.1),
    _box("post", 6.0, -6.0, 2.0, (0.15, 0.15, 2.5), 0.8),
    sn.engines.Shape("box", "van", (2.2, 0.9, 1.0), body="van", reflectance=0.75),
)


def _motion(t: float) -> Mapping[str, Any]:
    """A car in a bend, level at the origin at 0.5 s, and a van that comes towards it."""
    late = t - 0.5
    heading = YAW_RATE * late
    radius = SPEED / YAW_RATE
    car = (radius * np.sin(heading), radius * (1.0 - np.cos(heading)), 1.8)
    half = 0.5 * heading
    return {
        "body_pos_w": np.array([car, (-8.0 - 10.0 * late, 7.0, 1.2)]),
        "body_quat_w": np.array([(np.cos(half), 0.0, 0.0, np.sin(half)), (1.0, 0.0, 0.0, 0.0)]),
    }


def simulate() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the points of a scan of 0.1 s, and the true ones if all rays fired at the capture, with their fields."""
    fields = ("distances", "points_b", "intensity", "channel")
    lidar = sn.preset("vlp16", body="car", fields=fields)
    instant = sn.preset("vlp16", name="instant", body="car", fields=fields, motion_distortion=False)
    engine = sn.TensorEngine(1, DT, bodies=("car", "van"), shapes=WORLD, motion=_motion)
    scene = sn.Scene(engine, [lidar, instant], seed=2)
    scene.step(substeps=round(0.5 / DT))
    return scene[lidar].point_cloud(), scene[instant].point_cloud(measured=False)


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    measured, true = simulate()
    fig = plt.figure(figsize=(8, 4), dpi=120)
    cloud = fig.add_axes((0.02, 0.14, 0.48, 0.74), projection="3d", computed_zorder=False)
    x, y, z = measured["points_b"].T
    near = (np.abs(x) < 22) & (np.abs(y) < 18)
    dots = cloud.scatter(
        x[near],
        y[near],
        z[near],
        c=measured["intensity"][near],
        s=0.4,
        lw=0,
        cmap="turbo",
        vmin=0,
        vmax=90,
        antialiased=False,
    )
    cloud.scatter([0], [0], [0], color="black", marker="^", s=25)
    cloud.set(xlim=(-20, 20), ylim=(-16, 16), zlim=(-3, 6), xlabel="x (m)", ylabel="y (m)")
    cloud.set(xticks=(-20, -10, 0, 10, 20), yticks=(-10, 0, 10))
    cloud.set_zticks([-2, 2, 6])
    cloud.set_box_aspect((40, 32, 9), zoom=1.08)
    cloud.view_init(elev=38, azim=-115)
    cloud.tick_params(labelsize=7, pad=-2)
    cloud.set_title("One scan, by intensity", fontsize=10, y=1.0)
    bar = fig.add_axes((0.11, 0.11, 0.30, 0.022))
    fig.colorbar(dots, cax=bar, orientation="horizontal")
    bar.tick_params(labelsize=7)
    bar.set_xlabel("calibrated intensity (%)", fontsize=8, labelpad=1)
    above = fig.add_axes((0.56, 0.12, 0.42, 0.73))
    for points, color, label in ((true, "black", "true: all rays at the capture"), (measured, MEASURED, "measured")):
        x, y, z = points["points_b"].T
        high = z > -0.5
        above.plot(x[high], y[high], ".", ms=1.1, mew=0, color=color)
        above.plot([], [], ".", ms=6, color=color, label=label)
    above.plot(0, 0, "^", color="tab:blue", ms=7, label="lidar at the capture")
    above.set(xlim=(-19, 21), ylim=(-24, 18), xlabel="x in the sensor's frame (m)", ylabel="y (m)", aspect="equal")
    above.set_title("The same from above: 0.1 s at 12 m/s, 57°/s", fontsize=10)
    above.legend(loc="lower left", fontsize=7)
    above.grid(alpha=0.3)
    fig.suptitle("Lidar: VLP-16 on a car in a bend, a van that comes towards it", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/lidar.png")
