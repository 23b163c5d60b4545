"""Draws docs/images/contact_depth_probe.png: a fingertip with a row of probes is dragged over a rod and a ledge."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn

RADIUS = 0.004
PROBES = tuple((0.0, float(y), 0.0) for y in np.linspace(-0.012, 0.012, 7))
"""Along the underside of the finger, m."""
SHOWN = ((0, "first", "tab:green"), (3, "middle", "tab:blue"), (6, "last", "tab:red"))
ROD, LEDGE = 0.01, (0.015, 0.004)
"""Radius of the rod about the origin; half width and half height of a ledge at y = 0.05, m."""
HEIGHT = 0.0095


def simulate() -> dict[str, np.ndarray]:
    """Return time, the finger's place, and depths [time, probe], true and measured."""
    engine = sn.TensorEngine(
        1, 0.01, bodies=("finger",), provides=("pose",),
        shapes=[
            sn.engines.Shape("cylinder", "rod", (ROD, 0.05), quat=(0.5**0.5, 0.0, 0.5**0.5, 0.0)),
            sn.engines.Shape("box", "ledge", (0.05, *LEDGE), pos=(0.0, 0.05, HEIGHT - 0.002 - LEDGE[1])),
            sn.engines.Shape("box", "bone", (0.01, 0.014, 0.006), pos=(0.0, 0.0, 0.006), body="finger"),
        ],
    )  # fmt: skip
    cfg = sn.ContactDepthProbeCfg(
        name="skin", body="finger", probe_local_pos=PROBES, probe_radius=RADIUS, probe_radius_noise=0.0005
    )
    scene = sn.Scene(engine, [cfg], seed=0)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ("time", "finger", "true", "measured")}
    for _ in range(300):
        t = scene.time
        engine.body_pos_w = np.array([[[0.0, -0.04 + 0.04 * t, HEIGHT + 0.0005 * np.cos(2.0 * t)]]])
        scene.update()
        rows["time"].append(np.array(scene.time))
        rows["finger"].append(engine.body_pos_w[0, 0].numpy().copy())
        rows["true"].append(scene[cfg].read_ground_truth()[0].numpy())
        rows["measured"].append(scene[cfg].read()[0].numpy())
    return {name: np.array(values) for name, values in rows.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run = simulate()
    fig, (side, curve) = plt.subplots(
        2, 1, figsize=(8, 5.4), dpi=110, layout="constrained", gridspec_kw={"height_ratios": [1.2, 1]}
    )
    side.add_patch(plt.Circle((0.0, 0.0), 1e3 * ROD, color="0.7"))
    side.add_patch(plt.Rectangle((1e3 * (0.05 - LEDGE[0]), 1e3 * (HEIGHT - 0.002 - 2 * LEDGE[1])), 2e3 * LEDGE[0],
                                 2e3 * LEDGE[1], color="0.7"))  # fmt: skip
    side.text(0.0, -2.0, "rod", ha="center", fontsize=8)
    side.text(50.0, 3.2, "ledge", ha="center", va="center", fontsize=8)
    colors = {probe: color for probe, _, color in SHOWN}
    for k in (90, 240):
        y, z = 1e3 * run["finger"][k, 1], 1e3 * run["finger"][k, 2]
        side.add_patch(plt.Rectangle((y - 14, z), 28, 12, color="tab:orange", alpha=0.25, lw=0))
        side.text(y, z + 8.5, f"finger at {run['time'][k]:.1f} s", ha="center", fontsize=8)
        for probe, place in enumerate(PROBES):
            color, depth = colors.get(probe, "black"), 1e3 * run["true"][k, probe]
            side.add_patch(plt.Circle((y + 1e3 * place[1], z), 1e3 * RADIUS, fill=False, lw=0.8, color=color))
            side.text(y + 1e3 * place[1], z + 4.8, f"{depth:.1f}", ha="center", fontsize=8, color=color)
        curve.axvline(run["time"][k], color="gray", lw=0.5)
    side.set(xlabel="y (mm)", ylabel="z (mm)", aspect="equal", xlim=(-24, 74), ylim=(-7, 25),
             title="Probes of 4 mm radius on a finger dragged to the right, and their true depths (mm)")  # fmt: skip
    for probe, name, color in SHOWN:
        curve.plot(run["time"], 1e3 * run["measured"][:, probe], ".", ms=2, color=color, label=f"{name}, measured")
        curve.plot(run["time"], 1e3 * run["true"][:, probe], "-", lw=1.0, color="black")
    curve.plot([], [], "-", lw=1.0, color="black", label="true")
    curve.axhline(1e3 * RADIUS, color="gray", lw=0.8, ls="--")
    curve.text(
        2.98, 1e3 * RADIUS + 0.1, "probe_radius: the centre is in the surface", fontsize=8, color="gray", ha="right"
    )
    curve.set(xlabel="time (s)", ylabel="depth (mm)", title="True and measured, probe_radius_noise 0.5 mm",
              ylim=(0.0, 6.9), xlim=(0.0, 3.0))  # fmt: skip
    curve.legend(fontsize=8, markerscale=4, loc="upper left", ncols=4)
    for each in (side, curve):
        each.grid(alpha=0.3)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/contact_depth_probe.png")
