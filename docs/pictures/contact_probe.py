"""Draws docs/images/contact_probe.png: a fingertip that brushes a table, and what contact probes of two kinds say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn
from sensorium.view.style import MEASURED

RADIUS, NOISE = 0.005, 0.00012
ON, OFF = 0.0008, 0.0003
PROBES: dict[str, dict[str, Any]] = {
    "contact_threshold=8e-4": {"contact_threshold": ON},
    "the same, release_threshold=3e-4": {"contact_threshold": ON, "release_threshold": OFF},
}


def press(t: float) -> float:
    """Return how deep the probe is in the table, m: a graze, a press that comes slowly and hovers, another graze."""
    knots = [0.0, 0.2, 0.3, 0.4, 0.6, 1.0, 1.2, 1.5, 1.9, 2.2, 2.45, 2.55, 2.65, 3.0]
    depths = [-1.0, -0.4, 0.6, -0.4, -0.6, 0.75, 0.85, 0.8, 0.75, -0.5, -0.4, 1.1, -0.4, -1.0]
    return 1e-3 * float(np.interp(t, knots, depths))


def simulate() -> dict[str, np.ndarray]:
    """Return time, depth true and measured, and the flags of both probes, true and measured."""
    engine = sn.TensorEngine(
        1, 0.01, bodies=("finger",), provides=("pose",), shapes=[sn.engines.Shape("plane", "table")]
    )
    cfgs = [
        sn.ContactProbeCfg(name=name, body="finger", probe_radius=RADIUS, noise=NOISE, **fields)
        for name, fields in PROBES.items()
    ]
    scene = sn.Scene(engine, cfgs, seed=1)
    rows: dict[str, list[float]] = {name: [] for name in ("time", "true", "measured", "truth", *PROBES)}
    for _ in range(300):
        depth = press(scene.time + engine.dt)
        engine.body_pos_w[:, 0, 2] = RADIUS - depth
        scene.update()
        rows["time"].append(scene.time)
        rows["true"].append(max(depth, 0.0))
        name = list(PROBES)[1]
        rows["measured"].append(float(scene[name].buffers.work["depth"][0, 0, 0]))
        rows["truth"].append(float(scene[name].ground_truth[0, 0]))
        for each in PROBES:
            rows[each].append(float(scene[each].data[0, 0]))
    return {name: np.array(values) for name, values in rows.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run = simulate()
    fig, (top, low) = plt.subplots(2, 1, figsize=(8, 4.6), dpi=110, layout="constrained", sharex=True)
    top.plot(run["time"], 1e3 * run["measured"], ".", ms=3, color=MEASURED, label=f"measured, noise {1e3 * NOISE:g} mm")
    top.plot(run["time"], 1e3 * run["true"], color="black", lw=1.2, label="true")
    for level, name in ((ON, "contact"), (OFF, "release")):
        top.axhline(1e3 * level, color="tab:gray", lw=0.8, ls=":")
        top.text(3.01, 1e3 * level, name, fontsize=7, color="tab:gray", va="center")
    top.set(ylabel="depth of the probe (mm)", title="A contact probe on a fingertip that brushes a table",
            ylim=(-0.4, 1.6))  # fmt: skip
    top.legend(fontsize=7, loc="upper right", ncols=2)
    lines = [("true, release_threshold=3e-4", "truth", "black")]
    lines += [(f"measured, {name}", name, color) for name, color in zip(PROBES, ("tab:red", "tab:blue"), strict=True)]
    for k, (label, name, color) in enumerate(lines):
        low.fill_between(run["time"], -1.6 * k, -1.6 * k + 0.9 * run[name], step="post", color=color, alpha=0.6, lw=0)
        low.text(0.02, -1.6 * k + 1.0, label, fontsize=8)
    low.set(xlabel="time (s)", yticks=[], ylabel="contact", xlim=(0.0, 3.0), ylim=(-3.3, 1.6))
    for each in (top, low):
        each.grid(alpha=0.3)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/contact_probe.png")
