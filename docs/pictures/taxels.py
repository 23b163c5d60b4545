"""Draws docs/images/taxels.png: layouts of taxels on a pad, a dome and a bumpy mesh, and readings of four pads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn

BALL = (0.004, 0.002)
"""Where the ball is pressed on the pad, m."""


def fingertip(count: int = 60) -> sn.engines.Mesh:
    """Return an ellipsoid of 12 x 9 x 15 mm with bumps."""
    polar, turn = np.pi * np.arange(1, count) / count, np.pi * np.arange(2 * count) / count
    p, a = (grid.ravel() for grid in np.meshgrid(polar, turn, indexing="ij"))
    ball = np.stack([np.sin(p) * np.cos(a), np.sin(p) * np.sin(a), np.cos(p)], axis=1)
    points = np.concatenate([ball, [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]])
    points *= (1.0 + 0.06 * np.sin(7.0 * points[:, 0] + 1.0) * np.sin(6.0 * points[:, 1]))[:, None]
    row, after = np.arange(len(ball)).reshape(count - 1, 2 * count), (np.arange(2 * count) + 1) % (2 * count)
    up, down, north = row[:-1], row[1:], np.full(2 * count, len(ball))
    faces = [
        np.stack([up, down, down[:, after]], -1),
        np.stack([up, down[:, after], up[:, after]], -1),
        np.stack([north, row[0], row[0, after]], -1),
        np.stack([north + 1, row[-1, after], row[-1]], -1),
    ]
    return sn.engines.Mesh(
        points * [0.012, 0.009, 0.015], np.concatenate([part.reshape(-1, 3) for part in faces]), "fingertip"
    )


def press(layout: sn.patterns.TaxelLayout) -> tuple[np.ndarray, sn.PadReading]:
    """Return normal forces `[row, column]`, N, and four pad readings, of a ball that sinks 1 mm into a flat skin."""
    engine = sn.TensorEngine(
        1, bodies=("pad", "ball"), provides=("pose", "velocity"),
        shapes=[sn.engines.Shape("sphere", "ball", (0.008,), body="ball")],
    )  # fmt: skip
    engine.body_pos_w = np.array([[[0.0, 0.0, 0.0], [*BALL, 0.007]]])
    cfg = sn.KinematicTactileSensorCfg(name="skin", link_name="pad", probe_radius=0.001, **layout.cfg())
    scene = sn.Scene(engine, [cfg], seed=0)
    scene.update()
    pads = sn.Pads.of(scene[cfg], sn.pad_blocks(layout, 2, 2))
    force = scene[cfg].ground_truth.force
    return np.abs(force[0, ..., 2].numpy()), pads(force)


def solid(axis: Any, points: np.ndarray, faces: np.ndarray) -> None:
    """Draw triangles in grey."""
    x, y, z = 1e3 * points.T
    axis.plot_trisurf(x, y, z, triangles=faces, color="0.8", alpha=0.6, lw=0, antialiased=False, rasterized=True)


def taxels(axis: Any, layout: sn.patterns.TaxelLayout, title: str, length: float = 2.0) -> None:
    """Draw places and normals of taxels."""
    places, normals = (np.reshape(part, (-1, 3)) for part in (layout.positions, layout.normals))
    up, turn = np.radians(28.0), np.radians(-55.0)
    shown = normals @ [np.cos(up) * np.cos(turn), np.cos(up) * np.sin(turn), np.sin(up)] > -0.1  # the others are behind
    places, normals = 1e3 * places[shown], length * normals[shown]
    axis.quiver(*places.T, *normals.T, color="tab:blue", lw=0.8, arrow_length_ratio=0.35, zorder=3)
    axis.scatter(*places.T, s=9, color="tab:red", depthshade=False, zorder=4)
    axis.set_xlabel("x (mm)", fontsize=7, labelpad=-4)
    axis.set_ylabel("y (mm)", fontsize=7, labelpad=-4)
    axis.set_zlabel("z (mm)", fontsize=7, labelpad=-7)
    axis.set_title(title, fontsize=9)
    axis.set_aspect("equal")
    axis.tick_params(labelsize=6, pad=-3)
    axis.locator_params(nbins=4)
    axis.view_init(28, -55)


def draw(path: Path) -> None:
    """Make the layouts, press the pad and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig = plt.figure(figsize=(12, 3.7), dpi=88, layout="constrained")
    pad = sn.patterns.taxel_grid(8, 10, 0.002)
    axis = fig.add_subplot(1, 4, 1, projection="3d", computed_zorder=False)
    taxels(axis, pad, "taxel_grid(8, 10, 0.002)")
    axis.set_zlim(-4, 6)
    axis.set_aspect("equal")

    dome = sn.patterns.taxel_dome(0.008, 5, 12)
    axis = fig.add_subplot(1, 4, 2, projection="3d", computed_zorder=False)
    shell = sn.patterns.taxel_dome(0.0079, 24, 48, angle_deg=90.0)
    index = np.arange(24 * 48).reshape(24, 48)
    near, far = index[:-1].ravel(), index[1:].ravel()
    beside, beyond = np.roll(index, -1, 1)[:-1].ravel(), np.roll(index, -1, 1)[1:].ravel()
    faces = np.concatenate([np.stack([near, far, beyond], -1), np.stack([near, beyond, beside], -1)])
    solid(axis, np.reshape(shell.positions, (-1, 3)), faces)
    taxels(axis, dome, "taxel_dome(0.008, 5, 12)")

    mesh = fingertip()
    patch = sn.patterns.taxel_patch(mesh, count=64, normal=(0.4, -0.6, 1.0), max_angle_deg=60.0)
    axis = fig.add_subplot(1, 4, 3, projection="3d", computed_zorder=False)
    solid(axis, mesh.vertices, mesh.faces)
    taxels(axis, patch, "taxel_patch(mesh, count=64,\nnormal=(0.4, -0.6, 1.0))", 3.0)

    force, felt = press(pad)
    axis = fig.add_subplot(1, 4, 4)
    places = 1e3 * np.array(pad.positions)
    image = axis.pcolormesh(places[0, :, 0], places[:, 0, 1], force, cmap="Blues", shading="nearest")
    fig.colorbar(image, ax=axis, label="normal force of a taxel (N)", shrink=0.75)
    axis.axhline(0.0, color="black", lw=0.8)
    axis.axvline(0.0, color="black", lw=0.8)
    for i, (x, y) in enumerate([(-5, -4), (5, -4), (-5, 4), (5, 4)]):
        net = float(felt.load[0, i])
        axis.text(x, 1.8 * y, f"{net:.1f} N" if felt.valid[0, i] else "no load", ha="center", va="center", fontsize=8)
        if felt.valid[0, i]:
            label = "centre of pressure of a pad" if i == 3 else None
            axis.plot(*(1e3 * felt.centre[0, i, :2].numpy()), "x", color="tab:red", ms=6, label=label)
    axis.plot(*(1e3 * np.array(BALL)), "+", color="black", ms=10, label="the ball")
    axis.set(xlabel="x (mm)", ylabel="y (mm)", aspect="equal")
    axis.set_ylim(-8, 13)
    axis.set_title("Four pads of the grid, a ball pressed on", fontsize=9)
    axis.legend(fontsize=7, loc="upper left")
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/taxels.png")
