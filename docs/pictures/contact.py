"""Draws docs/images/contact.png: a foot that lands, rolls and lifts, and what switches of three kinds say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn
from sensorium.spec import CONTACT_REPORT
from sensorium.view.style import MEASURED

REPORT = CONTACT_REPORT(("body", ("foot",)), None, ("found", "force"), "netforce")
SWITCHES: dict[str, dict[str, Any]] = {
    "on_force=12": {"on_force": 12.0},
    "on_force=15, off_force=8": {"on_force": 15.0, "off_force": 8.0},
    "the same, debounce=0.02": {"on_force": 15.0, "off_force": 8.0, "debounce": 0.02},
}


def load(t: float) -> float:
    """Return the force on the foot, N: a touch that slips, a stance with a soft middle, the lift-off."""
    if 0.08 <= t < 0.09:
        return 22.0
    stance = np.interp(t, [0.12, 0.16, 0.2, 0.28, 0.34, 0.4, 0.46], [0.0, 34.0, 30.0, 12.0, 13.0, 31.0, 0.0])
    return float(stance) if 0.12 < t < 0.46 else 0.0


def simulate() -> dict[str, np.ndarray]:
    """Return time, force true and measured, and the flag of each switch."""
    engine = sn.TensorEngine(1, 0.002, bodies=("foot",), provides=("pose", "contact"))
    cfgs = [sn.ContactCfg(name=name, body="foot", noise=2.5, **fields) for name, fields in SWITCHES.items()]
    scene = sn.Scene(engine, cfgs, seed=2)
    rows: dict[str, list[float]] = {name: [] for name in ("time", "true", "measured", *SWITCHES)}
    for _ in range(300):
        force = load(scene.time + engine.dt)
        engine.contacts[REPORT] = (float(force > 0.0), 0.0, 0.0, force)
        scene.update()
        rows["time"].append(scene.time)
        rows["true"].append(force)
        rows["measured"].append(float(scene["on_force=12"].buffers.work["force"][0, 0]))
        for name in SWITCHES:
            rows[name].append(float(scene[name].data[0]))
    return {name: np.array(values) for name, values in rows.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run = simulate()
    fig, (top, low) = plt.subplots(2, 1, figsize=(8, 4.6), dpi=110, layout="constrained", sharex=True)
    top.plot(run["time"], run["measured"], ".", ms=3, color=MEASURED, label="measured, noise 2.5 N")
    top.plot(run["time"], run["true"], color="black", lw=1.2, label="true")
    for level, name in ((15.0, "15"), (12.0, "12"), (8.0, "8")):
        top.axhline(level, color="tab:gray", lw=0.8, ls=":")
        top.text(0.602, level, f"{name} N", fontsize=7, va="center")
    top.set(ylabel="force on the foot (N)", title="Contact switches on one foot")
    top.legend(fontsize=7, loc="upper right")
    for k, (name, color) in enumerate(zip(SWITCHES, ("tab:red", "tab:blue", "tab:green"), strict=True)):
        low.fill_between(run["time"], -1.2 * k, -1.2 * k + 0.9 * run[name], step="post", color=color, alpha=0.6)
        low.text(0.475, -1.2 * k + 0.35, name, fontsize=8)
    low.set(xlabel="time (s)", yticks=[], ylabel="contact", xlim=(0.0, 0.6))
    for each in (top, low):
        each.grid(alpha=0.3)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/contact.png")
