"""Images of a depth camera like a D435 and of the true depth, and one row of both."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn
from sensorium.view.style import MEASURED

ROW = 115


def shapes() -> dict[str, sn.engines.Shape]:
    """Return rough ground with boxes, a post and a leg of capsules before a wall."""
    x, y = np.meshgrid(np.linspace(-5, 5, 101), np.linspace(-5, 5, 101))
    ground = sn.engines.HeightField(0.04 * np.sin(2.3 * x) * np.cos(1.9 * y), (5.0, 5.0))
    bend = (0.966, 0.0, 0.259, 0.0)
    return {
        "ground": sn.engines.Shape("hfield", "", hfield=ground),
        "wall": sn.engines.Shape("box", "", (0.1, 5.0, 1.0), pos=(4.6, 0.0, 1.0)),
        "crate": sn.engines.Shape("box", "", (0.3, 0.3, 0.35), pos=(2.4, 0.9, 0.35), quat=(0.95, 0.0, 0.0, 0.31)),
        "post": sn.engines.Shape("cylinder", "", (0.06, 0.8), pos=(1.6, -0.2, 0.8)),
        "thigh": sn.engines.Shape("capsule", "", (0.09, 0.22), pos=(2.9, -1.25, 0.8), quat=bend),
        "shank": sn.engines.Shape("capsule", "", (0.07, 0.25), pos=(2.9, -1.25, 0.3), quat=(0.966, 0.0, -0.259, 0.0)),
    }


def simulate() -> tuple[np.ndarray, np.ndarray]:
    """Return the true and the measured image, m; 0 where there is no depth."""
    tilt = float(np.deg2rad(8.0))
    offset = {"pos": (0.0, 0.0, 0.9), "rot": (np.cos(tilt / 2), 0.0, np.sin(tilt / 2), 0.0), "convention": "world"}
    camera = sn.preset("d435", name="camera", body="world", res=(424, 240), offset=offset)
    sensor = sn.Scene(sn.TensorEngine(shapes=shapes()), [camera], seed=3)["camera"]
    truth, measured = (data.distance_to_image_plane[0, :, :, 0].numpy() for data in (sensor.ground_truth, sensor.data))
    return truth.copy(), measured.copy()


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    truth, measured = simulate()
    fig, axes = plt.subplot_mosaic([["true", "measured"], ["row", "row"]], figsize=(8, 4.6), dpi=100,
                                   height_ratios=[1.35, 1.0], layout="constrained")  # fmt: skip
    for name, image in (("true", truth), ("measured", measured)):
        shown = axes[name].imshow(np.where(image > 0.0, image, np.nan), cmap="viridis_r", vmin=0.8, vmax=5.0)
        axes[name].axhline(ROW, color="tab:red", lw=0.8)
        axes[name].tick_params(labelsize=7)
    axes["true"].set_title("true z-depth", fontsize=10)
    axes["measured"].set_title('measured, preset "d435"; white: no depth (0)', fontsize=10)
    fig.colorbar(shown, ax=[axes["true"], axes["measured"]], label="z-depth (m)", shrink=0.85)
    seen = measured[ROW] > 0.0
    columns = np.arange(len(seen))
    axes["row"].plot(columns, np.where(truth[ROW] > 0.0, truth[ROW], np.nan), color="black", lw=1.0, label="true")
    axes["row"].plot(columns[seen], measured[ROW][seen], ".", ms=2.5, color=MEASURED, label="measured")
    axes["row"].plot(
        columns[~seen], np.full((~seen).sum(), 0.6), "|", ms=5, color="tab:blue", label="measured: no depth"
    )
    axes["row"].set(
        title=f"row {ROW} (red line)", xlabel="column (px)", ylabel="z-depth (m)", ylim=(0.3, 5.9), xlim=(0, 424)
    )
    axes["row"].legend(fontsize=7, loc="upper right", ncols=3, markerscale=2)
    axes["row"].grid(alpha=0.3)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/depth_camera.png")
