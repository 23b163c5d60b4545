"""Draws the robot of the demo with what it senses: lidar, height scan, head camera and IMU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn
from sensorium.demo import SEMANTICS, Trot, model_path
from sensorium.geometry.transforms import quat_apply, quat_conjugate
from sensorium.patterns import GridPatternCfg, SpinningPatternCfg
from sensorium.view.style import INK, MEASURED, TRUTH

CHASE, HEAD = (960, 600), (320, 240)
STEPS = 150
"""Control steps of 10 ms."""


def sensors() -> dict[str, Any]:
    """Return the configs by name."""
    rings = SpinningPatternCfg(elevations=tuple(range(-40, 2, 3)), cycle_interval=0.1 / 180)
    view = sn.CameraCfg.OffsetCfg.from_view(pos=(-0.85, -1.25, 0.95), lookat=(0.75, 0.3, 0.1))
    given = [
        sn.CameraCfg(
            name="chase", body="world", offset=view, width=CHASE[0], height=CHASE[1], samples=4, rate_hz=1.0,
            data_types=("rgb", "distance_to_image_plane"), lens=sn.lenses.PinholeLensCfg(fovy=48.0),
        ),
        sn.CameraCfg(
            name="head", camera="front", width=HEAD[0], height=HEAD[1], rate_hz=1.0,
            data_types=("rgb", "depth", "semantic_segmentation"), colorize_semantic_segmentation=False,
        ),
        sn.LidarCfg(
            name="lidar", site="lidar", pattern=rings, max_distance=30.0, range_noise=0.01, rate_hz=10.0,
            fields=("distances", "points_w"),
        ),
        sn.RayCasterCfg(
            name="scan", body="trunk", pattern=GridPatternCfg(size=(1.6, 1.0)), ray_alignment="yaw",
            max_distance=5.0, fields=("distances", "ray_hits_w"),
        ),
        sn.preset("bmi088", name="imu", site="imu", rate_hz=100.0, delay=0.004),
    ]  # fmt: skip
    return {cfg.name: cfg for cfg in given}


def simulate() -> tuple[sn.Scene, np.ndarray]:
    """Return the scene after a walk, and the angular velocity about y, `[step, (measured, true)]`, rad/s."""
    engine, trot = sn.MujocoEngine(model_path(), keyframe="home"), Trot()
    scene = sn.Scene(engine, list(sensors().values()), semantics=SEMANTICS)
    rates = []
    for step in range(STEPS):
        scene.step(trot.targets(0.01 * step), substeps=5)
        imu = scene["imu"]
        rates.append([float(imu.data.ang_vel_b[0, 1]), float(imu.ground_truth.ang_vel_b[0, 1])])
    return scene, np.array(rates)


def visible(scene: sn.Scene, points: Any) -> np.ndarray:
    """Return the pixels `[point, 2]` of points that the chase camera sees."""
    data = scene["chase"].data
    pos, quat, k = data.pos_w[0], data.quat_w_ros[0], data.intrinsic_matrices[0]
    points = points[points.isfinite().all(dim=-1)]
    seen = quat_apply(quat_conjugate(quat), points - pos)
    seen = seen[seen[:, 2] > 0.05]
    pixels = sn.math.project_points(seen, k)[:, :2]
    column, row = pixels.floor().long().unbind(dim=-1)
    inside = (column >= 0) & (column < CHASE[0]) & (row >= 0) & (row < CHASE[1])
    depth = data.output["distance_to_image_plane"][0, ..., 0]
    near = inside.clone()
    near[inside] = seen[inside, 2] < depth[row[inside], column[inside]] + 0.04
    return pixels[near].numpy()


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    scene, rates = simulate()
    fig = plt.figure(figsize=(12.0, 6.6), dpi=100, facecolor="white")
    whole = fig.add_axes((0.0, 0.0, 0.727, 1.0))
    whole.imshow(scene["chase"].data.output["rgb"][0].numpy(), aspect="auto")
    lidar = visible(scene, scene["lidar"].data.points_w[0])
    scan = visible(scene, scene["scan"].data.ray_hits_w[0])
    whole.plot(*lidar.T, ".", color="#ffd23f", ms=3.8, mew=0)
    whole.plot(*scan.T, "o", color="#3bceac", ms=3.4, mew=0)
    whole.set(xlim=(0, CHASE[0] - 1), ylim=(CHASE[1] - 1, 0))
    for place, text, color in ((0.935, "lidar", "#ffd23f"), (0.885, "height scan", "#3bceac")):
        whole.plot([0.025], [place], "o", color=color, ms=8, mew=0, transform=whole.transAxes)
        whole.text(0.042, place, text, color=INK, fontsize=13, va="center", transform=whole.transAxes)
    head = scene["head"].data.output
    pictures = {
        "head camera": head["rgb"][0].numpy(),
        "depth": sn.pictures.colorize_depth(head["depth"][0]),
        "semantic segmentation": sn.pictures.colorize_ids(head["semantic_segmentation"][0]),
    }
    for number, (name, picture) in enumerate(pictures.items()):
        axes = fig.add_axes((0.735, 0.757 - 0.243 * number, 0.262, 0.235))
        axes.imshow(picture, aspect="auto")
        axes.set_axis_off()
        axes.text(0.03, 0.93, name, color=INK, fontsize=11, va="top", transform=axes.transAxes)
    whole.set_axis_off()
    axes = fig.add_axes((0.765, 0.068, 0.228, 0.175))
    times = 0.01 * np.arange(len(rates))
    axes.step(times, rates[:, 0], where="post", color=MEASURED, lw=1.6, label="measured")
    axes.plot(times, rates[:, 1], color=TRUTH, lw=0.9, label="true")
    axes.set_title("IMU: pitch rate [rad/s]", fontsize=10, color=INK, loc="left", pad=3)
    axes.legend(fontsize=8, ncols=2, frameon=False, loc="upper right", handlelength=1.2, columnspacing=0.8)
    axes.tick_params(labelsize=8)
    axes.set_xlim(0.0, times[-1])
    axes.set_ylim(1.1 * rates.min(), 1.9 * rates.max())
    fig.savefig(path, facecolor="white")
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images" / "overview.png")
