"""Draws the hall as a lidar on the drone sees it, and the paths of the drone and of the car."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn
from sensorium.demo import hall

COLORS = {
    "floor": "#c9ced3", "wall": "#7f8c99", "ramp": "#e4572e", "room": "#1780a1", "rack": "#3d4a57", "crate": "#c98b2b",
    "furniture": "#6a994e", "steel": "#8e5aa8",
}  # fmt: skip


def simulate() -> tuple[np.ndarray, np.ndarray]:
    """Return the points of a flight in the world, `[point, 3]`, m, and the index of each point's shape."""
    beams = sn.patterns.SphericalPatternCfg(fov=(360.0, 150.0), n_points=(240, 100))
    lidar = sn.LidarCfg(
        body="body", pattern=beams, rate_hz=0.5, max_distance=40.0, fields=("distances", "points_w", "geom_ids")
    )
    engine = sn.TrajectoryEngine(hall.drone(), 0.02, world=hall.shapes())
    scene = sn.Scene(engine, [lidar])
    points, shapes = [], []
    while engine.ticks_left >= 100:
        scene.step(substeps=100)
        scan = scene[lidar].read()
        hit = scan.geom_ids[0] >= 0
        points.append(scan.points_w[0][hit].numpy())
        shapes.append(scan.geom_ids[0][hit].numpy())
    return np.concatenate(points), np.concatenate(shapes)


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    points, shapes = simulate()
    labels = np.array([shape.name for shape in hall.shapes()])[shapes]
    paths = {name: path.at(np.linspace(0.0, path.duration, 2000)).pos for name, path in _paths().items()}
    fig = plt.figure(figsize=(7.4, 6.0), dpi=100)
    view = fig.add_axes((-0.1, 0.195, 1.2, 1.0), projection="3d", computed_zorder=False)
    above = fig.add_axes((0.0, 0.09, 0.91, 0.38))
    for label, color in COLORS.items():
        mine = points[labels == label]
        low = mine[(mine[:, 2] < 5.6) & (mine[:, 1] > -11.9)]
        view.scatter(*low.T, c=color, s=2.5, lw=0, antialiased=False)
        high = mine[(mine[:, 2] > 0.1) & (mine[:, 2] < 3.0)]
        above.plot(*high[:, :2].T, ".", ms=1.2, mew=0, color=color, antialiased=False)
        above.plot([], [], "s", ms=5, color=color, label=label)
    for (name, line), style in zip(paths.items(), ("k-", "r--"), strict=True):
        view.plot(*line.T, style, lw=1.2)
        above.plot(*line[:, :2].T, style, lw=1.2, label=f"{name}'s path")
    view.set(xlim=(-20, 20), ylim=(-12, 12), zlim=(0, 6))
    view.set_box_aspect((40, 24, 6), zoom=0.97)
    view.view_init(elev=34, azim=-68)
    view.set_axis_off()
    above.set(xlim=(-20.5, 20.5), ylim=(-12.5, 12.5), xlabel="x (m)", ylabel="y (m)", aspect="equal")
    above.legend(loc="upper left", bbox_to_anchor=(1.0, 0.75), fontsize=8, frameon=False)
    fig.suptitle("The hall as a lidar on the drone scans it, without the roof; below, a cut under 3 m", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


def _paths() -> dict[str, sn.Trajectory]:
    return {"drone": hall.drone(), "car": hall.car()}


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/trajectories.png")
