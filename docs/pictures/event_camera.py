"""Draws a ball that rolls past an event camera: the image, the events of 10 ms, and the events of one pixel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn

WORLD = """
<mujoco><option timestep="0.001"/>
  <asset>
    <texture name="tiles" type="2d" builtin="checker" rgb1=".15 .2 .3" rgb2=".7 .65 .6" width="128" height="128"/>
    <material name="tiles" texture="tiles" texrepeat="9 9"/>
  </asset>
  <worldbody>
    <light pos="0 1 3" dir="0 -.3 -1"/>
    <geom type="plane" size="4 4 1" material="tiles"/>
    <body pos="0 0 .2"><joint type="slide" axis="0 1 0"/><geom size=".2" rgba=".85 .25 .1 1"/></body>
  </worldbody>
</mujoco>
"""
RATE, SAMPLES, SHOWN = 500.0, 100, 50
ROW, COLUMN = 55, 82


def simulate() -> dict[str, Any]:
    """Return an image, the events around it, and brightness and events of a pixel."""
    offset = sn.CameraCfg.OffsetCfg.from_view(pos=(1.3, 0.0, 0.7), lookat=(0.0, 0.0, 0.15))
    place: dict[str, Any] = {
        "body": "world", "offset": offset, "width": 160, "height": 120, "rate_hz": RATE,
        "lens": sn.lenses.PinholeLensCfg(fovy=45.0),
    }  # fmt: skip
    scene = sn.Scene(
        sn.MujocoEngine(WORLD),
        [
            sn.CameraCfg(name="camera", data_types=("rgb", "linear_rgb"), **place),
            sn.EventCameraCfg(name="dvs", shot_noise_rate_hz=2.0, sigma_positive_threshold=0.03, **place),
        ],
        seed=0,
    )
    scene.reset(qpos=[[-0.3]], qvel=[[3.0]])
    out: dict[str, Any] = {"time": [], "light": [], "events": [], "recent": np.zeros((120, 160))}
    for sample in range(SAMPLES):
        scene.step(substeps=2)
        time, data = (sample + 1) / RATE, scene["dvs"].data
        count = int(data.count[0])
        x, y, p = (getattr(data, name)[0, :count].numpy() for name in ("x", "y", "polarity"))
        light = scene["camera"].data.linear_rgb[0, ROW, COLUMN].numpy()
        out["time"].append(time)
        out["light"].append(np.log(light @ [0.2126, 0.7152, 0.0722] + 0.001))
        own = (x == COLUMN) & (y == ROW)
        out["events"] += zip(time + data.time_offset[0, :count].numpy()[own], p[own], strict=True)
        if SHOWN - 5 < sample + 1 <= SHOWN:
            np.add.at(out["recent"], (y, x), p)
        if sample + 1 == SHOWN:
            out["image"] = scene["camera"].data.rgb[0].numpy().copy()
    return out


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    out = simulate()
    fig, axes = plt.subplots(1, 3, figsize=(10, 3.1), dpi=100, layout="constrained", width_ratios=(1, 1, 1.25))
    axes[0].imshow(out["image"])
    axes[0].plot(COLUMN, ROW, "wo", ms=6, mfc="none")
    axes[0].set_title("image; a circle around the pixel", fontsize=9)
    axes[1].imshow(out["recent"], cmap="RdBu", vmin=-3, vmax=3)
    axes[1].set_title("events of 10 ms: blue brighter, red darker", fontsize=9)
    for axis in axes[:2]:
        axis.axis("off")
    axes[2].plot(out["time"], out["light"], "k-", lw=1, label="brightness, ln(I + 0.001)")
    level = float(out["light"][0])
    for polarity, color in ((1, "tab:blue"), (-1, "tab:red")):
        times = [t for t, p in out["events"] if p == polarity]
        at = np.interp(times, out["time"], out["light"]) if times else []
        axes[2].plot(times, at, "|", color=color, ms=12, label=f"events of polarity {polarity}")
    axes[2].set_xlabel("time, s", fontsize=8)
    axes[2].set_ylim(min(out["light"]) - 0.3, max(*out["light"], level) + 0.3)
    axes[2].tick_params(labelsize=8)
    axes[2].legend(fontsize=8)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).resolve().parents[1] / "images" / "event_camera.png")
