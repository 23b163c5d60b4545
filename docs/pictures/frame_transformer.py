"""Draws a foot of the trotting demo robot in the trunk's frame: true, and measured with noise and a delay."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn
from sensorium.demo import Trot, model_path
from sensorium.view.style import MEASURED

SECONDS, EVERY = 2.4, 0.004


def simulate() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times [sample] s, and the foot's measured and true positions in the trunk's frame [sample, 3] m."""
    engine = sn.MujocoEngine(model_path(), keyframe="home")
    foot = sn.FrameTransformerCfg(
        body="trunk",
        target_frames=[sn.FrameTransformerCfg.FrameCfg(name="FL_foot", site="FL_foot")],
        noise={"target_pos_source": 0.002},
        delay=0.020,
        rate_hz=250.0,
    )
    scene, trot = sn.Scene(engine, [foot], seed=1), Trot()
    ticks = round(EVERY / engine.dt)
    times, measured, true = [], [], []
    for step in range(round(SECONDS / EVERY)):
        scene.step(trot.targets(step * EVERY), substeps=ticks)
        times.append((step + 1) * EVERY)
        measured.append(scene[foot].data.target_pos_source[0, 0].numpy().copy())
        true.append(scene[foot].ground_truth.target_pos_source[0, 0].numpy().copy())
    return np.array(times), np.array(measured), np.array(true)


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    times, measured, true = simulate()
    late = times >= 1.6
    fig, axes = plt.subplot_mosaic(
        [["x", "path"], ["z", "path"]], figsize=(8, 4), dpi=120, width_ratios=(3, 2), layout="constrained"
    )
    axes["z"].sharex(axes["x"])
    for column, name in ((0, "x"), (2, "z")):
        axes[name].plot(times[late], measured[late, column], ".", ms=2.5, color=MEASURED, label="measured")
        axes[name].plot(times[late], true[late, column], color="black", lw=1.2, label="true")
    axes["x"].legend(loc="upper right", fontsize=8)
    axes["z"].legend(loc="upper center", bbox_to_anchor=(0.33, 1.0), fontsize=8)
    axes["x"].set(title="Front left foot in the trunk's frame", ylabel="x, forward (m)")
    axes["x"].tick_params(labelbottom=False)
    axes["z"].set(xlabel="time (s)", ylabel="z, up (m)")
    path_axes = axes["path"]
    path_axes.plot(measured[late, 0], measured[late, 2], ".", ms=2.5, color=MEASURED, label="measured")
    path_axes.plot(true[late, 0], true[late, 2], color="black", lw=1.2, label="true")
    path_axes.set(xlabel="x, forward (m)", ylabel="z, up (m)", title="Its path, seen from the side", aspect="equal")
    path_axes.legend(loc="upper right", fontsize=8)
    path_axes.margins(0.1, 0.6)
    for each in axes.values():
        each.grid(alpha=0.3)
    fig.suptitle("FrameTransformer: 2 mm white noise per sample, 20 ms delay, 250 Hz", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/frame_transformer.png")
