"""Images of a camera above a table: distances, normals, and segmentations of labelled things."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn

RED, BLUE = ("cup", "color:red"), ("cup", "color:blue")


def shapes() -> dict[str, sn.engines.Shape]:
    """Return a table with cups, boxes, a ball and a tool of two parts."""
    turn = (0.92, 0.0, 0.0, 0.39)
    return {
        "floor": sn.engines.Shape("plane", "", pos=(0.0, 0.0, -0.7)),
        "table": sn.engines.Shape("box", "", (0.6, 0.45, 0.02), pos=(0.0, 0.0, -0.02), labels=("table",)),
        "cup_1": sn.engines.Shape("cylinder", "", (0.05, 0.07), pos=(-0.3, 0.1, 0.07), labels=RED),
        "cup_2": sn.engines.Shape("cylinder", "", (0.05, 0.07), pos=(0.05, 0.25, 0.07), labels=BLUE),
        "cup_3": sn.engines.Shape("cylinder", "", (0.05, 0.07), pos=(0.3, -0.05, 0.07), labels=BLUE),
        "crate": sn.engines.Shape("box", "", (0.09, 0.06, 0.06), pos=(-0.1, -0.15, 0.06), quat=turn, labels=("box",)),
        "case": sn.engines.Shape("box", "", (0.05, 0.05, 0.1), pos=(-0.42, -0.2, 0.1), quat=turn, labels=("box",)),
        "ball": sn.engines.Shape("sphere", "", (0.06,), pos=(0.1, -0.3, 0.06)),
        "handle": sn.engines.Shape("capsule", "", (0.02, 0.1), body="tool", labels=("tool",)),
        "head": sn.engines.Shape("box", "", (0.03, 0.06, 0.03), body="tool", pos=(0.0, 0.0, 0.12), labels=("tool",)),
    }


def simulate() -> Any:
    """Return the data of one image."""
    camera = sn.CameraCfg(
        name="camera",
        body="world",
        width=320,
        height=240,
        lens=sn.lenses.PinholeLensCfg(fovy=48.0),
        offset=sn.CameraCfg.OffsetCfg.from_view(pos=(0.1, -1.15, 0.85), lookat=(0.0, -0.02, 0.0)),
        data_types=("depth", "normals", "semantic_segmentation", "instance_segmentation", "geom_ids"),
    )
    engine = sn.TensorEngine(bodies=("tool",), shapes=shapes())
    engine.body_pos_w[:, 0, :] = engine.body_pos_w.new_tensor([0.35, 0.25, 0.03])
    engine.body_quat_w[:, 0] = engine.body_quat_w.new_tensor([0.7071068, 0.5, -0.5, 0.0])
    return sn.Scene(engine, [camera])["camera"].data


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    data = simulate()
    hit = (data.geom_ids[0] >= 0).numpy()
    fig, axes = plt.subplots(1, 4, figsize=(10, 3.1), dpi=100, layout="constrained")
    depth = data.output["depth"][0, :, :, 0].numpy()
    shown = axes[0].imshow(np.where(np.isfinite(depth), depth, np.nan), cmap="viridis_r", vmin=0.8, vmax=2.4)
    axes[1].imshow(np.where(hit, 0.5 + 0.5 * data.normals[0].numpy(), 1.0))
    for at, name in ((2, "semantic_segmentation"), (3, "instance_segmentation")):
        colors = data.output[name][0].numpy()[..., :3] / 255.0
        unlabelled = colors.sum(axis=-1, keepdims=True) == 0.0
        axes[at].imshow(np.where(unlabelled, 0.92, 0.3 + 0.7 * colors))
    fig.colorbar(shown, ax=axes, location="bottom", shrink=0.4, label="depth (m)")
    titles = ("depth", "normals: x, y, z as colors", "semantic_segmentation", "instance_segmentation")
    for each, title in zip(axes, titles, strict=True):
        each.set_title(title, fontsize=9)
        each.set_xticks([])
        each.set_yticks([])
    fig.suptitle("Data types of one frame; surfaces without a label are grey", fontsize=11)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/camera.png")
