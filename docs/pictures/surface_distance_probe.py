"""Draws docs/images/surface_distance_probe.png: a hand with seven probes sinks beside a post onto rough ground."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn

PROBES = tuple((0.0, 0.12 * float(np.cos(a)), 0.12 * float(np.sin(a))) for a in np.linspace(-np.pi, 0.0, 7))
"""Around the lower half of the hand, in the plane of y and z, m."""
SHOWN = ((0, "y -", "tab:green"), (3, "down", "tab:blue"), (6, "y +", "tab:red"))
REACH = 0.4


def ground() -> sn.engines.HeightField:
    """Return rough ground of 2 m by 2 m that is the same along x."""
    y = np.linspace(-1.0, 1.0, 81)
    height = 0.12 + 0.08 * np.sin(5.0 * y + 1.0) + 0.03 * np.sin(17.0 * y)
    return sn.engines.HeightField(np.repeat(height[:, None], 5, axis=1), (1.0, 1.0))


def simulate() -> dict[str, np.ndarray]:
    """Return time, the hand's place, distances [time, probe], true and measured, and nearest points."""
    field = ground()
    engine = sn.TensorEngine(
        1, 0.01, bodies=("hand", "ball"),
        shapes=[
            sn.engines.Shape("hfield", "ground", hfield=field),
            sn.engines.Shape("box", "post", (0.1, 0.1, 0.45), pos=(0.0, -0.65, 0.45)),
            sn.engines.Shape("sphere", "ball", (0.12,), body="ball"),
            sn.engines.Shape("sphere", "shell", (0.11,), body="hand"),
        ],
    )  # fmt: skip
    cfg = sn.SurfaceDistanceProbeCfg(
        name="skin", body="hand", probe_local_pos=PROBES, probe_radius=REACH, noise=0.004, resolution=0.002
    )
    scene = sn.Scene(engine, [cfg], seed=0)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ("time", "hand", "ball", "true", "measured", "points")}
    for _ in range(300):
        t = scene.time
        hand, ball = [0.0, 0.25 * np.sin(1.3 * t) - 0.2, 0.95 - 0.17 * t], [0.0, 1.0 - 0.25 * t, 0.6]
        engine.body_pos_w = np.array([[hand, ball]])
        scene.update()
        rows["time"].append(np.array(scene.time))
        rows["hand"].append(engine.body_pos_w[0, 0].numpy().copy())
        rows["ball"].append(engine.body_pos_w[0, 1].numpy().copy())
        rows["true"].append(scene[cfg].read_ground_truth().distance[0].numpy())
        rows["measured"].append(scene[cfg].read().distance[0].numpy())
        rows["points"].append(scene[cfg].read_ground_truth().nearest_points_w[0].numpy())
    return {name: np.array(values) for name, values in rows.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run, field = simulate(), ground()
    fig, (side, curve) = plt.subplots(
        1, 2, figsize=(9, 4), dpi=110, layout="constrained", gridspec_kw={"width_ratios": [1, 1.1]}
    )
    k = 220
    side.fill_between(np.linspace(-1, 1, 81), field.heights[:, 0], -0.05, color="0.8")
    side.add_patch(plt.Rectangle((-0.75, 0.0), 0.2, 0.9, color="0.6"))
    side.add_patch(plt.Circle(run["ball"][k, 1:], 0.12, color="0.6"))
    side.add_patch(plt.Circle(run["hand"][k, 1:], 0.11, color="tab:orange", alpha=0.5))
    colors = {probe: color for probe, _, color in SHOWN}
    for probe, place in enumerate(PROBES):
        start = run["hand"][k, 1:] + np.array(place[1:])
        color = colors.get(probe, "black")
        side.plot(*start, "o", ms=5 if probe in colors else 3, color=color)
        point = run["points"][k, probe, 1:]
        if np.isfinite(point).all():
            side.plot([start[0], point[0]], [start[1], point[1]], "-", lw=1.2, color=color)
            side.plot(*point, "x", ms=5, color=color)
    side.plot(
        run["hand"][: k + 1, 1], run["hand"][: k + 1, 2], ":", color="tab:orange", lw=1.2, label="path of the hand"
    )
    side.set(xlabel="y (m)", ylabel="z (m)", title=f"Nearest points at {run['time'][k]:.1f} s", aspect="equal",
             xlim=(-1, 1), ylim=(-0.05, 1.15), xticks=np.arange(-1.0, 1.1, 0.5))  # fmt: skip
    side.text(-0.65, 0.93, "post", ha="center", fontsize=8)
    side.text(*(run["ball"][k, 1:] + [0.0, 0.14]), "ball", ha="center", fontsize=8)
    side.text(0.6, 0.0, "height field", ha="center", fontsize=8)
    side.legend(loc="upper right", fontsize=8)
    for probe, name, color in SHOWN:
        curve.plot(run["time"], run["measured"][:, probe], ".", ms=2, color=color, label=f"probe {name}, measured")
        curve.plot(run["time"], run["true"][:, probe], "-", lw=1.0, color="black")
    curve.plot([], [], "-", lw=1.0, color="black", label="true")
    curve.axhline(REACH, color="gray", lw=0.8, ls="--")
    curve.text(0.02, REACH + 0.006, "probe_radius: nothing farther is reported", fontsize=8, color="gray")
    curve.axvline(run["time"][k], color="gray", lw=0.5)
    curve.set(xlabel="time (s)", ylabel="distance to the nearest surface (m)", title="Distances, true and measured",
              ylim=(0.0, REACH + 0.06), xlim=(0.0, 3.0))  # fmt: skip
    curve.legend(fontsize=8, markerscale=4, loc="lower left")
    for each in (side, curve):
        each.grid(alpha=0.3)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/surface_distance_probe.png")
