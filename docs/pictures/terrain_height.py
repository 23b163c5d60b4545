"""Draws docs/images/terrain_height.png: a foot that climbs stairs, and how high it is above them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn

TREAD, RISE, STEPS = 0.3, 0.15, 4
RADIUS, NOISE = 0.05, 0.006
LIFT = 0.1
"""How far above the sole the rays start, m."""


def path_of(time: float) -> tuple[float, float]:
    """Return x and z of the sole: every second it swings up and one tread ahead, then stands."""
    stair, share = divmod(time, 1.0)
    swing = min(share / 0.7, 1.0)
    ahead = 0.5 - 0.5 * np.cos(np.pi * swing)
    up = min(swing / 0.5, 1.0)
    x = TREAD * (stair - 0.5 + ahead)
    z = RISE * (stair + (0.5 - 0.5 * np.cos(np.pi * up))) + 0.09 * np.sin(np.pi * swing) ** 2
    return float(x), float(z)


def simulate() -> dict[str, np.ndarray]:
    """Return time, place of the sole and its heights by three reductions, true and measured."""
    stairs = [
        sn.engines.Shape("box", f"step_{k}", (0.5 * TREAD * (STEPS - k), 0.4, 0.5 * RISE * (k + 1)),
                 pos=(0.5 * TREAD * (STEPS + k), 0.0, 0.5 * RISE * (k + 1)))
        for k in range(STEPS)
    ]  # fmt: skip

    def motion(time: float) -> dict[str, Any]:
        x, z = path_of(time)
        return {"body_pos_w": (x, 0.0, z)}

    ground = sn.engines.Shape("plane", "ground")
    engine = sn.TensorEngine(bodies=("foot",), motion=motion, dt=0.01, shapes=[ground, *stairs])
    ring = sn.patterns.RingPatternCfg.single_ring(radius=RADIUS, num_samples=8)
    offset = sn.OffsetCfg(pos=(0.0, 0.0, LIFT))
    cfgs = [
        sn.TerrainHeightCfg(name=how, body="foot", pattern=ring, reduction=how, noise=NOISE, offset=offset)
        for how in ("min", "max")
    ]
    scene = sn.Scene(engine, cfgs, seed=0)
    rows: dict[str, list[Any]] = {name: [] for name in ("time", "x", "z", "min", "max", "min, true", "max, true")}
    for _ in range(int(100 * STEPS) - 1):
        scene.step()
        rows["time"].append(scene.time)
        for name, value in zip("xz", path_of(scene.time), strict=True):
            rows[name].append(value)
        for how in ("min", "max"):
            rows[how].append(scene[how].data.heights.item())
            rows[f"{how}, true"].append(scene[how].ground_truth.heights.item())
    return {name: np.array(values) for name, values in rows.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run = simulate()
    fig, (place, height) = plt.subplots(1, 2, figsize=(8, 4), dpi=110, layout="constrained")
    corners = [(-0.5, 0.0)]
    for k in range(STEPS):
        corners += [(TREAD * k, RISE * k), (TREAD * k, RISE * (k + 1))]
    corners.append((TREAD * STEPS, RISE * STEPS))
    place.fill_between(*np.array(corners).T, -0.05, color="0.85", label="stairs")
    place.plot(run["x"], run["z"], color="tab:red", lw=1.2, label="path of the sole")
    for k in (35, 135, 235):
        for x in (-RADIUS, 0.0, RADIUS):
            top = RISE * np.clip(np.floor((run["x"][k] + x) / TREAD) + 1, 0, STEPS)
            place.plot([run["x"][k] + x] * 2, [run["z"][k] + LIFT, top], color="tab:blue", lw=0.7)
    place.plot([], [], color="tab:blue", lw=0.7, label="three of nine rays, at three times")
    place.set(
        title="A foot climbs stairs",
        xlabel="x (m)",
        ylabel="z (m)",
        aspect="equal",
        xlim=(-0.25, 1.25),
        ylim=(-0.05, 1.05),
    )
    place.legend(fontsize=7, loc="upper left")
    for how, color in (("max", "tab:orange"), ("min", "tab:blue")):
        height.plot(run["time"], run[how], ".", ms=2.5, color=color, label=f"{how}, measured")
        height.plot(run["time"], run[f"{how}, true"], color="black", lw=0.9, ls="-" if how == "min" else ":",
                    label=f"{how}, true")  # fmt: skip
    height.set(title=f"Height of the sole, {1000 * NOISE:.0f} mm noise per ray", ylim=(-0.03, 0.34), xlabel="time (s)",
               ylabel="height above the stairs (m)")  # fmt: skip
    height.legend(fontsize=7, loc="upper right", markerscale=2, ncols=2)
    height.grid(alpha=0.3)
    for axes in (place, height):
        axes.title.set_fontsize(10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/terrain_height.png")
