"""Draws what stages do to a pad of 12 x 12 taxels under a ball, and the loops of both kinds of hysteresis."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sensorium as sn

Array = NDArray[np.float64]

FORCE = ("force",)
PITCH = 0.004
PLACES = tuple(tuple((PITCH * x, PITCH * y, 0.0) for x in range(12)) for y in range(12))
SPEED = 1.0
"""Of the ball that is scanned, m/s."""


def pads(stages: dict[str, Any], depth: float = 0.004) -> dict[str, Array]:
    """Return the normal force that pads read of a ball that moves along their rows; by name, and of the truth."""
    middle = 5.5 * PITCH
    ball = sn.engines.Shape("sphere", "ball", size=(0.03,), body="ball", pos=(middle, middle, 0.03 - depth))
    engine = sn.TensorEngine(1, 0.001, bodies=("pad", "ball"), shapes=(ball,))
    engine.motion = lambda t: {"body_pos_w": ((0.0, 0.0, 0.0), (SPEED * (t - 0.02), 0.0, 0.0))}
    common: dict[str, Any] = {
        "probe_local_pos": PLACES,
        "probe_radius": 0.001,
        "shear_scalar": 0.0,
        "update_period": 0.02,
    }
    cfgs = [sn.KinematicTactileSensorCfg(name=name, body="pad", stages=each, **common) for name, each in stages.items()]
    scene = sn.Scene(engine, cfgs, seed=4)
    for _ in range(20):
        scene.update()
    read = {name: scene[name].data.force[0, ..., 2].double().numpy().copy() for name in stages}
    first = scene[next(iter(stages))].ground_truth.force[0, ..., 2]
    return {"true": first.double().numpy().copy(), **read}


def loops(stages: dict[str, Any], frequency: float = 1.0) -> tuple[Array, dict[str, Array]]:
    """Return true and measured force of one taxel, pressed by 0 to 4 mm, over the third cycle."""
    ball = sn.engines.Shape("sphere", "ball", size=(0.03,), body="ball", pos=(0.0, 0.0, 0.031))
    engine = sn.TensorEngine(1, 0.002, bodies=("pad", "ball"), shapes=(ball,))

    def motion(t: float) -> dict[str, Any]:
        return {"body_pos_w": ((0.0, 0.0, 0.0), (0.0, 0.0, -0.002 * (1.0 - math.cos(2.0 * math.pi * frequency * t))))}

    engine.motion = motion
    common: dict[str, Any] = {"probe_radius": 0.001, "normal_damping": 0.0}
    cfgs = [
        sn.KinematicTactileSensorCfg(name=name, body="pad", stages=(each,), **common) for name, each in stages.items()
    ]
    scene = sn.Scene(engine, cfgs)
    true: list[float] = []
    read: dict[str, list[float]] = {name: [] for name in stages}
    for tick in range(round(3.0 / frequency / 0.002) + 1):
        if tick > 0:
            scene.update()
        if tick >= round(2.0 / frequency / 0.002):
            for name, values in read.items():
                values.append(float(scene[name].data.force[0, 0, 2]))
            true.append(float(scene[name].ground_truth.force[0, 0, 2]))
    return np.array(true), {name: np.array(values) for name, values in read.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    maps = {
        "TaxelGain, 15 % spread": (sn.stages.TaxelGain(fields=FORCE, gain=sn.Normal(1.0, 0.15)),),
        "DeadTaxels, 15 %, 0 to 3 N": (
            sn.stages.DeadTaxels(fields=FORCE, probability=0.15, value=sn.Uniform(0.0, 3.0)),
        ),
        "TaxelCrosstalk, 60 %, 6 mm": (
            sn.stages.TaxelCrosstalk(fields=FORCE, strength=0.6, sigma=0.006, spacing=PITCH),
        ),
        "RowScan, 20 ms, ball at 1 m/s": (sn.stages.RowScan(fields=FORCE, scan_time=0.02),),
    }
    shown = pads(maps)
    plays = {
        "Play, 1.5 N": sn.stages.Play(fields=FORCE, width=1.5),
        "Viscoelastic, 0.3, 0.16 s": sn.stages.Viscoelastic(fields=FORCE, strength=0.3, tau=0.16),
    }
    force, read = loops(plays)

    fig, axes = plt.subplots(2, 3, figsize=(9, 5.6), dpi=100, layout="constrained")
    high = float(shown["true"].max()) * 1.15
    flat = list(axes.reshape(-1))
    for axis, (name, values) in zip(flat, shown.items(), strict=False):
        image = axis.imshow(values, origin="lower", cmap="viridis", vmin=0.0, vmax=high)
        title = "True: a ball, 4 mm deep" if name == "true" else name
        axis.set(title=title, xlabel="column", ylabel="row", xticks=(0, 5, 11), yticks=(0, 5, 11))
        axis.title.set_fontsize(10)
    fig.colorbar(image, ax=flat[:5], location="left", shrink=0.6, label="normal force (N)")
    last = flat[5]
    last.plot(force, force, color="black", lw=1, label="true")
    for (name, values), color in zip(read.items(), ("tab:blue", "tab:red"), strict=True):
        last.plot(force, values, color=color, lw=1.2, label=name)
    last.set(title="Hysteresis, pressed at 1 Hz", xlabel="true normal force (N)", ylabel="measured (N)")
    last.title.set_fontsize(10)
    last.grid(alpha=0.3)
    last.legend(fontsize=7, loc="upper left")
    last.set_ylim(-0.6, 6.2)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/skin_stages.png")
