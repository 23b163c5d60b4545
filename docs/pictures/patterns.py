"""Draws patterns of rays: where parallel ones start, and where those from one point go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn


def angles(pattern: sn.patterns.PatternBaseCfg, until: float | None = None) -> tuple[Any, Any]:
    """Return azimuth and elevation of the rays of a pattern, deg, those that fire before a time."""
    rays = pattern.rays()
    d = rays.directions.double().numpy()
    if until is not None and rays.times is not None:
        d = d[rays.times.numpy() < until]
    return np.degrees(np.arctan2(d[:, 1], d[:, 0])), np.degrees(np.arcsin(d[:, 2].clip(-1.0, 1.0)))


def draw(path: Path) -> None:
    """Compute the rays and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(2, 4, figsize=(12, 6), dpi=88, layout="constrained")
    flat = axes.ravel()

    grid = sn.patterns.GridPatternCfg(size=(1.6, 1.0), resolution=0.1).rays()
    rings = sn.patterns.RingPatternCfg(rings=(sn.patterns.Ring(0.2, 8), sn.patterns.Ring(0.4, 16))).rays()
    flat[0].plot(*grid.starts[:, [1, 0]].numpy().T, ".", ms=4, color="0.6", label="grid, 17 x 11")
    flat[0].plot(*rings.starts[:, [1, 0]].numpy().T, "o", ms=4, color="tab:red", label="rings of 8 and 16")
    flat[0].set(title="Starts of height scans", xlabel="y, left (m)", ylabel="x, forward (m)", xlim=(0.9, -0.9))
    flat[0].set_ylim(-1.0, 1.5)
    flat[0].set_aspect("equal")
    flat[0].legend(fontsize=7, loc="upper center")

    lidar = sn.patterns.LidarPatternCfg(
        channels=16, vertical_fov_range=(-15, 15), horizontal_fov_range=(-180, 180), horizontal_res=6.0
    )
    panels = [
        (
            flat[1],
            "Pinhole, 16 x 12 pixels, fovy 45",
            sn.patterns.PinholeCameraPatternCfg(width=16, height=12, fovy=45.0),
            None,
            3,
        ),
        (flat[2], "Lidar, 16 channels; Bpearl (red)", lidar, None, 1.5),
        (flat[4], "Risley, Mid-40: 20 ms", sn.patterns.RisleyPatternCfg.mid40(period=0.1), 0.02, 0.8),
        (flat[5], "Risley, Mid-40: 100 ms", sn.patterns.RisleyPatternCfg.mid40(period=0.1), None, 0.5),
        (flat[6], "Risley, Avia style: 20 ms", sn.patterns.RisleyPatternCfg.avia(period=0.1), 0.02, 0.8),
        (flat[7], "Mirror, Mid-360 style: 30 ms", sn.patterns.RotatingMirrorPatternCfg.mid360(period=0.1), 0.03, 1.0),
    ]
    for axis, title, pattern, until, size in panels:
        axis.plot(*angles(pattern, until), ".", ms=size, mew=0, color="tab:blue", rasterized=True)
        axis.set(title=title, xlabel="azimuth, left (deg)", ylabel="elevation (deg)")
        axis.invert_xaxis()
    flat[2].plot(*angles(sn.patterns.BpearlPatternCfg()), ".", ms=1.5, mew=0, color="tab:red")
    for axis in (flat[1], flat[4], flat[5], flat[6]):
        axis.set_aspect("equal")

    rays = sn.patterns.SpinningPatternCfg.vlp16().rays()
    assert rays.times is not None and rays.channels is not None
    first = rays.times.numpy() < 2.2e-4
    azimuth, _ = angles(sn.patterns.SpinningPatternCfg.vlp16())
    points = flat[3].scatter(
        rays.times.numpy()[first] * 1e6,
        azimuth[first] % 360.0 - 180.0,
        c=rays.channels.numpy()[first],
        s=9,
        cmap="viridis",
    )
    flat[3].set(title="Spinning, VLP-16: four cycles", xlabel="firing time (us)", ylabel="azimuth from behind (deg)")
    fig.colorbar(points, ax=flat[3], label="channel")

    for axis in flat:
        axis.title.set_fontsize(9)
        axis.grid(alpha=0.3)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/patterns.png")
