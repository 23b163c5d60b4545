"""Draws docs/images/proximity_taxel.png: a palm of taxels closes on an egg that lies askew, and holds it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn

SIDE = np.linspace(-0.028, 0.028, 15)
"""Places of the taxels along both sides of the palm, m."""
RADIUS, NOISE = 0.02, 0.0004
EGG = (0.030, 0.017, 0.015)
"""Radii of the egg, m."""
QUAT = (0.9239, 0.0, 0.0, 0.3827)
"""It lies on the floor, turned by 45 degrees."""
SHOWN = 0.25
"""When the map is drawn, s: before the palm touches."""


def gap(t: float) -> float:
    """Return the distance between the palm and the top of the egg, m: it closes, presses 3 mm deep, and opens."""
    return float(np.interp(t, [0.0, 0.5, 0.75, 1.0], [0.024, -0.003, -0.003, 0.024]))


def simulate() -> dict[str, np.ndarray]:
    """Return time, gap, and the forces along the normals `[time, row, column]`, true and measured."""
    grid = np.stack([*np.meshgrid(SIDE, SIDE), np.zeros((15, 15))], axis=-1)
    egg = sn.engines.Shape("ellipsoid", "egg", EGG, body="egg", quat=QUAT)
    engine = sn.TensorEngine(1, 0.005, bodies=("palm", "egg"), shapes=[egg])
    engine.body_pos_w[:, 1, 2] = EGG[2]
    cfg = sn.ProximityTaxelCfg(
        name="palm", body="palm", probe_local_pos=grid, probe_local_normal=(0.0, 0.0, -1.0), probe_radius=RADIUS,
        probe_radius_noise=NOISE, sample_spacing=0.001, noise={"force": 0.0005},
    )  # fmt: skip
    scene = sn.Scene(engine, [cfg], seed=0)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ("time", "gap", "true", "measured")}
    for _ in range(200):
        here = gap(scene.time + engine.dt)
        engine.body_pos_w[:, 0, 2] = 2.0 * EGG[2] + here
        scene.update()
        rows["time"].append(np.array(scene.time))
        rows["gap"].append(np.array(here))
        rows["true"].append(-scene[cfg].read_ground_truth().force[0, ..., 2].numpy())
        rows["measured"].append(-scene[cfg].read().force[0, ..., 2].numpy())
    return {name: np.array(values) for name, values in rows.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run = simulate()
    fig, axes = plt.subplots(
        1, 3, figsize=(9.6, 3.4), dpi=110, layout="constrained", gridspec_kw={"width_ratios": [1, 1, 1.35]}
    )
    k = int(np.argmin(np.abs(run["time"] - SHOWN)))
    reach = 1e3 * (SIDE[-1] + 0.5 * (SIDE[1] - SIDE[0]))
    angle = np.linspace(0.0, 2.0 * np.pi, 100)
    x, y = EGG[0] * np.cos(angle), EGG[1] * np.sin(angle)
    outline = 1e3 * np.array([(x - y) * np.sqrt(0.5), (x + y) * np.sqrt(0.5)])
    top = 1e3 * run["true"][k].max()
    for each, name in ((axes[0], "true"), (axes[1], "measured")):
        shown = each.imshow(
            1e3 * run[name][k],
            origin="lower",
            extent=(-reach, reach, -reach, reach),
            cmap="viridis",
            vmin=0.0,
            vmax=top,
        )
        each.plot(*outline, "--", color="white", lw=1.0)
        each.set(title=f"{name}, at a gap of {1e3 * run['gap'][k]:.0f} mm", xlabel="x (mm)",
                 xlim=(-reach, reach), ylim=(-reach, reach))  # fmt: skip
        each.title.set_fontsize(9)
    axes[0].set_ylabel("y (mm)")
    fig.colorbar(shown, ax=axes[:2], label="force along the normal (mN)", shrink=0.8)
    curve = axes[2]
    closing = run["time"] <= 0.5
    for row, column, name, color in ((7, 7, "over the egg", "tab:red"), (11, 4, "beside the egg", "tab:blue")):
        where = f"{1e3 * SIDE[column]:.0f}, {1e3 * SIDE[row]:.0f} mm"
        curve.plot(
            1e3 * run["gap"][closing], 1e3 * run["measured"][closing, row, column], ".", ms=4, color=color,
            label=f"{name} ({where}), measured",
        )  # fmt: skip
        curve.plot(1e3 * run["gap"][closing], 1e3 * run["true"][closing, row, column], "-", lw=1.2, color="black")
    curve.plot([], [], "-", lw=1.2, color="black", label="true")
    curve.axvline(0.0, color="gray", lw=0.8)
    curve.text(-0.2, curve.get_ylim()[1] * 0.08, "touch", rotation=90, fontsize=8, color="gray", ha="left")
    curve.axvline(1e3 * RADIUS, color="gray", lw=0.8, ls="--")
    curve.text(1e3 * RADIUS - 0.2, curve.get_ylim()[1] * 0.3, "probe_radius", rotation=90, fontsize=8, color="gray",
               ha="left")  # fmt: skip
    curve.set(xlabel="gap between palm and egg (mm)", ylabel="force along the normal (mN)",
              title="Two taxels while the palm closes")  # fmt: skip
    curve.title.set_fontsize(9)
    curve.invert_xaxis()
    curve.set_ylim(top=1.4 * curve.get_ylim()[1])
    curve.legend(fontsize=7, loc="upper right")
    curve.grid(alpha=0.3)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/proximity_taxel.png")
