"""Draws what depth cameras make of a scene: a slanted floor, a wall with a step, and a sphere before them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import make_dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

import sensorium as sn

Array = NDArray[np.float64]

WIDTH, HEIGHT, FOCAL = 160, 90, 113.0
WALL, NEARER, RADIUS = 4.0, 2.6, 0.38
SPHERE = np.array([-0.25, 0.05, 1.5])


def scene_depth() -> Array:
    """Return the true z-depth `[height, width]`; x to the right, y down, z forward, m. Upper right is open sky."""
    u, v = np.meshgrid(np.arange(WIDTH) + 0.5 - 0.5 * WIDTH, np.arange(HEIGHT) + 0.5 - 0.5 * HEIGHT)
    rays = np.stack([u / FOCAL, v / FOCAL, np.ones_like(u)], axis=-1)
    depth = np.where(rays[..., 0] < -0.35, NEARER, WALL)  # a wall that comes forward on the left
    floor = 0.55 / np.maximum(rays[..., 1], 1e-9)  # a floor 0.55 m below
    depth = np.minimum(depth, floor)
    depth[(rays[..., 0] > 0.45) & (rays[..., 1] < -0.1)] = np.inf
    a, b = (rays**2).sum(axis=-1), rays @ SPHERE
    root = b**2 - a * (SPHERE @ SPHERE - RADIUS**2)
    ball = np.where(root > 0.0, (b - np.sqrt(np.maximum(root, 0.0))) / a, np.inf)
    return np.minimum(depth, ball)


@functools.cache
def camera() -> type[sn.SimpleSensorCfg[Any]]:
    """Return the config class of a camera that sees `scene_depth`."""
    import torch

    image = sn.Field("m", (HEIGHT, WIDTH), ("height", "width"), role="image")
    data = make_dataclass(
        "DrawnCameraData", [("distance_to_image_plane", Annotated[torch.Tensor, image])], frozen=True, slots=True
    )

    class DrawnCameraCfg(sn.SimpleSensorCfg[data]):  # type: ignore[valid-type]
        """A camera without settings."""

    class DrawnCamera(sn.SimpleSensor[DrawnCameraCfg, data]):  # type: ignore[valid-type]
        """Shows the scene."""

        def update_raw_data(self, raw: sn.Record) -> None:
            """Copy it."""
            raw.distance_to_image_plane.copy_(torch.from_numpy(scene_depth()).expand(self.engine.num_envs, -1, -1))

    return DrawnCameraCfg


def _stages(name: Any) -> tuple[Any, ...]:
    """Return the stages of a device for the lens of all cameras."""
    return tuple(stage.replace(fov_deg=None, focal_px=FOCAL) for stage in sn.preset(name, body="body").stages)


def cameras() -> Mapping[str, tuple[Any, ...]]:
    """Return the stages of each camera; all see with the same lens, so the devices' focal lengths are replaced."""
    return {
        "StereoDepth (D435)": _stages("d435"),
        "KinectDepth (v1)": _stages("kinect_v1"),
        "TofDepth, repeats after 3.75 m": (
            sn.stages.TofDepth(
                focal_px=FOCAL, modulation_hz=60e6, unambiguous_range=3.75, signal=2e4, ambient=2e3, contrast=0.7,
                reflectance=0.5, min_signal=200.0, multipath=0.02, flying=0.7, wiggle=0.004,
            ),
        ),
    }  # fmt: skip


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    truth = scene_depth()
    fig, axes = plt.subplots(2, 4, figsize=(11, 4.4), dpi=88, layout="constrained")
    depths = plt.get_cmap("viridis_r", 32).with_extremes(bad="white")
    errors = plt.get_cmap("RdBu", 13).with_extremes(bad="0.35")

    def show(ax: Any, image: Array, cmap: Any, low: float, high: float) -> Any:
        shown = ax.imshow(image, cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
        ax.set(xticks=[], yticks=[])
        return shown

    show(axes[0, 0], np.where(np.isinf(truth), np.nan, truth), depths, 0.9, 4.2)
    axes[0, 0].set_title("true z-depth (white: sky, no hit)", fontsize=9)
    row = 46
    line = axes[1, 0]
    line.plot(np.where(np.isinf(truth[row]), np.nan, truth[row]), color="black", lw=1.4, label="true")
    for k, ((title, stages), color) in enumerate(
        zip(cameras().items(), ("tab:blue", "tab:orange", "tab:red"), strict=True), start=1
    ):
        scene = sn.Scene(sn.TensorEngine(1, 1 / 30), [camera()(name="camera", stages=stages)], seed=4)
        out = scene["camera"].data.distance_to_image_plane[0].double().numpy()
        value = np.where((out > 0.0) & np.isfinite(out), out, np.nan)
        depth_image = show(axes[0, k], value, depths, 0.9, 4.2)
        axes[0, k].set_title(title, fontsize=9)
        error = (value - np.where(np.isinf(truth), np.nan, truth)) * 1000.0
        error_image = show(axes[1, k], error, errors, -65.0, 65.0)
        axes[1, k].set_title(f"error; grey: sky, and {np.mean(out == 0.0):.0%} holes", fontsize=9)
        line.plot(value[row], ".", ms=2.5, color=color, label=title.split("Depth")[0])
        axes[0, k].axhline(row, color="black", lw=0.5, ls=":")
    axes[0, 0].axhline(row, color="black", lw=0.5, ls=":")
    line.set(xlabel="column (px)", ylabel="z-depth (m)", ylim=(0.0, 8.0))
    line.set_title("the dotted row", fontsize=9)
    line.grid(alpha=0.3)
    line.legend(fontsize=8, loc="upper center", ncols=2, columnspacing=1.0, handletextpad=0.4)
    fig.colorbar(depth_image, ax=axes[0, :], label="z-depth (m)", pad=0.01)
    fig.colorbar(error_image, ax=axes[1, :], label="measured - true (mm)", pad=0.01)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/depth_errors.png")
