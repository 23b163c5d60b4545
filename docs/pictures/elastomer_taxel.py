"""Draws docs/images/elastomer_taxel.png: markers of a gel pad under a ball that presses, drags and twists."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn

SIDE, SPACING, RADIUS = 11, 1.5e-3, 0.008
STAGES = (("pressed 0.8 mm", 100), ("dragged 0.3 mm along x", 200), ("back, and twisted by 20 degrees", 300))


def places() -> np.ndarray:
    """Return the markers [row, column, 3], m."""
    axis = (np.arange(SIDE) - (SIDE - 1) / 2) * SPACING
    return np.stack([*np.meshgrid(axis, axis, indexing="ij"), np.zeros((SIDE, SIDE))], axis=-1)


def pose(tick: int) -> tuple[float, float, float]:
    """Return depth, m, way along x, m, and angle, rad: first it presses, then drags, then goes back and twists."""
    depth = 8e-4 * min(tick / 100, 1.0)
    way = 3e-4 * float(np.interp(tick, [100, 200, 250], [0.0, 1.0, 0.0]))
    return depth, way, np.radians(20.0) * float(np.clip((tick - 250) / 50, 0.0, 1.0))


def simulate() -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray], np.ndarray, dict[str, np.ndarray]]:
    """Return true and measured fields at each stage, places of the ball, and time series of three markers."""
    ball = sn.engines.Shape("sphere", "ball", (RADIUS,), body="ball")
    engine = sn.TensorEngine(1, 0.01, bodies=("pad", "ball"), shapes=[ball])
    engine.body_pos_w[0, 1, 2] = 2.0 * RADIUS
    gel = sn.ElastomerTaxelCfg(
        name="gel", body="pad", targets="ball", probe_local_pos=places(), lambda_d=5e4, lambda_s=6e4,
        dilate_scale=25.0, shear_scale=20.0, n_sample_points=4000, noise=1e-5,
    )  # fmt: skip
    scene = sn.Scene(engine, [gel], seed=0)
    true, measured, balls = [], [], []
    rows: dict[str, list[float]] = {"time": [], "aside": [], "along": [], "aside_m": [], "along_m": []}
    stops = [stop for _, stop in STAGES]
    for tick in range(1, stops[-1] + 1):
        depth, way, angle = pose(tick)
        engine.body_pos_w = np.array([[[0.0, 0.0, 0.0], [way, 0.0, RADIUS - depth]]])
        engine.body_quat_w = np.array([[[1.0, 0.0, 0.0, 0.0], [np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)]]])
        scene.update()
        truth, seen = scene["gel"].ground_truth[0].numpy().copy(), scene["gel"].data[0].numpy().copy()
        rows["time"].append(scene.time)
        for name, field in (("", truth), ("_m", seen)):
            rows["aside" + name].append(1e3 * float(field[SIDE // 2, SIDE // 2 + 2, 1]))
            rows["along" + name].append(1e3 * float(field[SIDE // 2, SIDE // 2 + 2, 0]))
        if tick in stops:
            true.append(truth)
            measured.append(seen)
            balls.append(np.array([way, depth]))
    return np.array(balls), true, measured, places(), {name: np.array(values) for name, values in rows.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    balls, true, measured, grid, rows = simulate()
    x, y = 1e3 * grid[..., 0], 1e3 * grid[..., 1]
    fig, axes = plt.subplots(1, 4, figsize=(11, 3.5), dpi=100, layout="constrained", width_ratios=[1, 1, 1, 1.15])
    for axis, (title, _), ball, truth, seen in zip(axes, STAGES, balls, true, measured, strict=False):
        patch = np.sqrt(2.0 * RADIUS * ball[1]) * 1e3
        axis.add_patch(plt.Circle((1e3 * ball[0], 0.0), patch, color="0.88"))
        for field, color, width in ((seen, "tab:orange", 0.011), (truth, "black", 0.005)):
            axis.quiver(x, y, 1e3 * field[..., 0], 1e3 * field[..., 1], angles="xy", scale_units="xy", scale=0.25,
                        color=color, width=width)  # fmt: skip
        most = 1e3 * np.linalg.norm(truth[..., :2], axis=-1).max()
        axis.set(title=f"{title}\nlongest {most:.2f} mm", xlabel="x (mm)", aspect="equal", xlim=(-9.5, 9.5),
                 ylim=(-9.5, 9.5))  # fmt: skip
        axis.title.set_fontsize(9)
    axes[0].set_ylabel("y (mm)")
    last = axes[3]
    for name, label, color in (("along", "along x", "tab:blue"), ("aside", "along y", "tab:green")):
        last.plot(rows["time"], rows[name + "_m"], ".", ms=2, color=color, label=f"{label}, measured")
        last.plot(rows["time"], rows[name], "-", lw=1.0, color="black", label="true" if name == "aside" else None)
    for at, text in ((0.5, "press"), (1.5, "drag"), (2.25, "back"), (2.75, "twist")):
        last.text(at, 0.97, text, transform=last.get_xaxis_transform(), ha="center", va="top", fontsize=8)
    for at in (1.0, 2.0, 2.5):
        last.axvline(at, color="gray", lw=0.5)
    last.set(title="Marker at (0, 3) mm", xlabel="time (s)", ylabel="displacement (mm)", xlim=(0.0, 3.0))
    low, high = last.get_ylim()
    last.set_ylim(low, high + 0.12 * (high - low))
    last.title.set_fontsize(9)
    last.legend(fontsize=7, markerscale=4, loc="lower left")
    last.grid(alpha=0.3)
    fig.suptitle(
        "Markers of a gel under a ball (grey: contact). Black: true, orange: measured, 4 times as long", fontsize=10
    )
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/elastomer_taxel.png")
