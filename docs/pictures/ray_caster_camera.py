"""Images of a ray-casting camera of a robot on rough ground: distances, normals and shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn


def shapes() -> dict[str, sn.engines.Shape]:
    """Return rough ground, boxes, and a robot of capsules with a box as its trunk."""
    x, y = np.meshgrid(np.linspace(-3, 3, 61), np.linspace(-3, 3, 61))
    ground = sn.engines.HeightField(0.07 * np.sin(2.1 * x) * np.cos(1.7 * y) + 0.03 * np.sin(5 * x + 2 * y), (3.0, 3.0))
    robot = {"trunk": sn.engines.Shape("box", "trunk", (0.35, 0.15, 0.08), pos=(0.0, 0.0, 0.62))}
    tilt = (0.2, -0.2)
    for k, (front, left) in enumerate(((1, 1), (1, -1), (-1, 1), (-1, -1))):
        for part, height, turn in (("thigh", 0.46, tilt[0]), ("shank", 0.2, tilt[1])):
            pos = (0.28 * front - 0.4 * turn * (0.5 if part == "thigh" else 0.6), 0.19 * left, height)
            quat = (float(np.cos(turn / 2)), 0.0, float(np.sin(turn / 2)), 0.0)
            robot[f"{part}{k}"] = sn.engines.Shape("capsule", "", (0.04, 0.12), pos=pos, quat=quat)
    boxes = {
        "crate": sn.engines.Shape("box", "", (0.25, 0.25, 0.25), pos=(0.9, -1.2, 0.25), quat=(0.92, 0.0, 0.0, 0.39)),
        "post": sn.engines.Shape("cylinder", "", (0.09, 0.6), pos=(0.6, 1.1, 0.6)),
        "ball": sn.engines.Shape("sphere", "", (0.15,), pos=(-0.1, -0.75, 0.15)),
    }
    return {"ground": sn.engines.Shape("hfield", "", hfield=ground), **robot, **boxes}


def simulate() -> Any:
    """Return the data of one image."""
    camera = sn.RayCasterCameraCfg(
        name="camera",
        body="world",
        pattern=sn.patterns.PinholeCameraPatternCfg(width=320, height=240, horizontal_aperture=28.0),
        data_types=("distance_to_image_plane", "normals", "geom_ids"),
    )
    import torch

    scene = sn.Scene(sn.TensorEngine(shapes=shapes()), [camera])
    sensor: Any = scene["camera"]
    sensor.set_world_poses_from_view(torch.tensor([[-1.5, -1.5, 0.95]]), torch.tensor([[0.2, 0.0, 0.35]]))
    return sensor.data


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    data = simulate()
    depth = data.distance_to_image_plane[0, :, :, 0].numpy()
    ids = data.geom_ids[0, :, :, 0].numpy()
    fig, (left, middle, right) = plt.subplots(1, 3, figsize=(8, 3.2), dpi=110, layout="constrained")
    shown = left.imshow(np.where(np.isfinite(depth), depth, np.nan), cmap="viridis_r", vmin=1.0, vmax=4.0)
    normals = 0.5 + 0.5 * data.normals[0].numpy()
    middle.imshow(np.where((ids >= 0)[..., None], normals, 1.0))
    colours = plt.get_cmap("tab20")(np.arange(ids.max() + 1) % 20)[:, :3]
    right.imshow(np.where((ids >= 0)[..., None], 0.5 + 0.5 * colours[np.maximum(ids, 0)], 1.0))
    fig.colorbar(shown, ax=[left, middle, right], location="bottom", shrink=0.5, label="z-depth (m); white: a miss")
    titles = ("distance_to_image_plane", "normals: x, y, z as red, green, blue", "geom_ids: a colour for each shape")
    for axes, title in zip((left, middle, right), titles, strict=True):
        axes.set_title(title, fontsize=9)
        axes.set_xticks([0, 160, 320])
        axes.set_yticks([0, 120, 240])
        axes.tick_params(labelsize=7)
    fig.suptitle("A robot on rough ground, one ray per pixel of 320 x 240", fontsize=11)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/ray_caster_camera.png")
