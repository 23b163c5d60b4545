"""Draws one scan of a radar on a car in traffic: where its detections are, and how fast they come or go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn

SPEED, ONCOMING, LEADING = 15.0, -8.0, 19.0
CARS = {"oncoming": (45.0, 3.5), "leading": (28.0, -1.0)}
HALF = (2.2, 0.9, 0.75)


def simulate() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], tuple[str, ...], sn.RadarCfg]:
    """Return the detections of one scan, the true ones, the names of the shapes, and the config."""
    shapes = [
        sn.engines.Shape("box", "rail", (60.0, 0.1, 0.6), pos=(60.0, 7.0, 0.0), reflectance=1.0),
        sn.engines.Shape("box", "building", (10.0, 4.0, 5.0), pos=(55.0, -14.0, 0.0), reflectance=1.0),
        *(sn.engines.Shape("box", name, HALF, body=name, labels=("car",)) for name in CARS),
    ]
    engine = sn.TensorEngine(1, 0.05, bodies=("ego", *CARS), shapes=shapes)
    engine.body_lin_vel_w[0, 0, 0] = SPEED
    for row, (name, (x, y)) in enumerate(CARS.items(), 1):
        engine.body_pos_w[0, row, 0], engine.body_pos_w[0, row, 1] = x, y
        engine.body_lin_vel_w[0, row, 0] = ONCOMING if name == "oncoming" else LEADING
    cfg = sn.RadarCfg(
        name="radar",
        body="ego",
        horizontal_fov_deg=70.0,
        vertical_fov_deg=6.0,
        points=700,
        fields="all",
        bandwidth=150e6,
        frame_time=0.003,
        chirp_time=2e-5,
        grid=True,
        reference_snr=200.0,
        reference_range=50.0,
        rcs={"car": 10.0},
        false_alarm_probability=1e-5,
        clutter_rate=8.0,
        clutter_speed=40.0,
        noise={"azimuth": 0.004},
    )
    radar: Any = sn.Scene(engine, [cfg], seed=4)["radar"]
    return radar.detections(), radar.detections(measured=False), radar.geom_names, cfg


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    found, true, names, _cfg = simulate()
    fig, (top, plane) = plt.subplots(1, 2, figsize=(8, 4), dpi=120, layout="constrained", width_ratios=(1.15, 1))
    boxes = [((0.0, 6.9), 120.0, 0.2), ((45.0, -18.0), 20.0, 8.0)]
    boxes += [((x - HALF[0], y - HALF[1]), 2 * HALF[0], 2 * HALF[1]) for x, y in CARS.values()]
    for corner, width, height in boxes:
        top.add_patch(Rectangle(corner, width, height, facecolor="0.85", edgecolor="0.4", lw=0.8))
    is_false = found["geom_ids"] < 0
    x, y = found["points_b"][:, 0], found["points_b"][:, 1]
    dots = top.scatter(
        x[~is_false], y[~is_false], c=found["velocity"][~is_false], s=6, cmap="coolwarm_r", vmin=-24, vmax=24
    )
    top.plot(x[is_false], y[is_false], "x", color="black", ms=4, mew=0.9, label="false alarm")
    top.plot(0, 0, ">", color="black", ms=8)
    top.annotate("radar, 15 m/s", (0, 0), (1.0, -4.0), fontsize=8)
    for name, (cx, cy) in CARS.items():
        speed = ONCOMING if name == "oncoming" else LEADING
        top.annotate("", (cx + 0.6 * speed, cy), (cx, cy), arrowprops={"arrowstyle": "->", "color": "black"})
    top.set(xlabel="x (m)", ylabel="y (m)", title="One scan from above", xlim=(-3, 100), ylim=(-26, 20))
    top.legend(loc="lower right", fontsize=8)
    fig.colorbar(dots, ax=top, label="velocity (m/s), negative: approaching", shrink=0.9)
    colors = {"rail": "tab:gray", "building": "tab:brown", "oncoming": "tab:red", "leading": "tab:blue"}
    for row, name in enumerate(names):
        own = found["geom_ids"] == row
        plane.plot(found["range"][own], found["velocity"][own], ".", ms=7, mew=0, color=colors[name], label=name)
    plane.plot(true["range"], true["velocity"], ".", ms=1.2, color="black", label="true")
    plane.plot(found["range"][is_false], found["velocity"][is_false], "x", color="black", ms=4, mew=0.9)
    plane.set(xlabel="range (m)", ylabel="velocity (m/s)", title="Range and velocity, measured", xlim=(0, 105))
    plane.legend(fontsize=8, loc="upper right")
    for each in (top, plane):
        each.grid(alpha=0.3)
        each.set_axisbelow(True)
    fig.suptitle("Radar with cells of 1 m and 0.65 m/s; targets fluctuate (Swerling 1), false alarms", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/radar.png")
