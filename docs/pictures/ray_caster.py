"""Draws docs/images/ray_caster.png: a robot walks over hills and steps and scans the ground around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn
from sensorium.view.style import MEASURED

SIZE, POINTS = 4.0, 161
NOISE, DRIFT = 0.02, 0.06


def terrain() -> sn.engines.HeightField:
    """Return gentle hills with a flight of five steps along x, in the middle."""
    x = np.linspace(-SIZE, SIZE, POINTS)
    xx, yy = np.meshgrid(x, x)
    hills = 0.12 * np.sin(1.3 * xx + 0.5) * np.cos(0.9 * yy)
    steps = 0.12 * np.clip(np.floor((xx + 0.2) / 0.4), 0, 5)
    on_steps = np.abs(yy) < 0.45
    return sn.engines.HeightField(np.where(on_steps, steps, hills), (SIZE, SIZE), name="terrain")


def simulate() -> tuple[sn.engines.HeightField, Any, Any]:
    """Return the terrain, and the measured and the true scan after 2 s of walking."""
    field = terrain()

    def motion(time: float) -> dict[str, Any]:
        yaw, pitch = 0.12, -0.15 + 0.05 * np.sin(12.0 * time)
        quat = np.array([np.cos(yaw / 2) * np.cos(pitch / 2), -np.sin(yaw / 2) * np.sin(pitch / 2),
                         np.cos(yaw / 2) * np.sin(pitch / 2), np.sin(yaw / 2) * np.cos(pitch / 2)])  # fmt: skip
        return {"body_pos_w": (0.3 * time, 0.06, 0.6 + 0.15 * time), "body_quat_w": quat}

    engine = sn.TensorEngine(
        bodies=("trunk",), motion=motion, dt=0.02, shapes=[sn.engines.Shape("hfield", "t", hfield=field)]
    )
    scan = sn.RayCasterCfg(
        body="trunk",
        pattern=sn.patterns.GridPatternCfg(size=(1.6, 1.0), resolution=0.1),
        ray_alignment="yaw",
        noise=NOISE,
        drift_range={"z": (DRIFT, DRIFT)},
    )
    scene = sn.Scene(engine, [scan], seed=1)
    scene.step(substeps=100)
    return field, scene[scan].read(), scene[scan].read_ground_truth()


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    field, measured, true = simulate()
    hits, truth = (data.ray_hits_w[0].numpy() for data in (measured, true))
    fig, (top, side) = plt.subplots(1, 2, figsize=(8, 4), dpi=110, layout="constrained")
    base = true.pos_w[0].numpy()
    colours = {"vmin": -0.15, "vmax": 0.65, "cmap": "viridis"}
    shade = top.imshow(field.heights, extent=(-SIZE, SIZE, -SIZE, SIZE), origin="lower", alpha=0.5, **colours)
    top.scatter(truth[:, 0], truth[:, 1], c=truth[:, 2], s=14, edgecolors="black", linewidths=0.4, **colours)
    top.annotate("", base[:2] + 0.35 * np.array([np.cos(0.12), np.sin(0.12)]), base[:2],
                 arrowprops={"color": "tab:red", "width": 1.5, "headwidth": 7, "headlength": 7})  # fmt: skip
    top.text(base[0] - 0.05, base[1] + 0.1, "trunk", color="tab:red", fontsize=8, ha="center", weight="bold")
    top.set(title="Stairs and hills from above, with the hits of 17 x 11 rays", xlabel="x (m)", ylabel="y (m)",
            xlim=(-0.7, 1.9), ylim=(-1.0, 1.1), aspect="equal")  # fmt: skip
    fig.colorbar(shade, ax=top, label="height of terrain and hits (m)", location="bottom", shrink=0.8)

    row = slice(5 * 17, 6 * 17)
    along = np.linspace(-0.9, 0.9, 400)
    line_x, line_y = base[0] + along * np.cos(0.12), base[1] + along * np.sin(0.12)
    cells = np.clip(
        np.round((np.stack([line_y, line_x]) + SIZE) / (2 * SIZE) * (POINTS - 1)).astype(int), 0, POINTS - 1
    )
    side.plot(line_x, field.heights[cells[0], cells[1]], color="0.6", lw=1, label="terrain")
    side.plot(truth[row, 0], truth[row, 2], "o", ms=4, color="black", label="true hits")
    side.plot(hits[row, 0], hits[row, 2], "x", ms=5, color=MEASURED, label="measured hits")
    for data, color, name in ((true, "black", "trunk, true"), (measured, MEASURED, "trunk, as it believes")):
        pos = data.pos_w[0].numpy()
        side.plot(pos[0], pos[2], "^", color=color, ms=7, label=name)
    side.set(title=f"The middle row: {100 * NOISE:.0f} cm noise, {100 * DRIFT:.0f} cm drift upwards",
             xlabel="x (m)", ylabel="z (m)")  # fmt: skip
    side.legend(fontsize=7)
    side.grid(alpha=0.3)
    for axes in (top, side):
        axes.title.set_fontsize(9)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/ray_caster.png")
