"""Draws docs/images/touch.png: a ball rolls over a plate with three pressure pads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn

PLATE = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <body name="plate">
      <geom name="top" type="box" size="0.3 0.1 0.01" pos="0 0 -0.01"/>
      <site name="left" type="box" size="0.09 0.1 0.02" pos="-0.2 0 0"/>
      <site name="middle" type="box" size="0.09 0.1 0.02"/>
      <site name="right" type="box" size="0.09 0.1 0.02" pos="0.2 0 0"/>
    </body>
    <body name="ball" pos="-0.28 0 0.06"><freejoint/><geom size="0.04" mass="0.5" friction="1 0.01 0.001"/></body>
  </worldbody>
</mujoco>
"""
PADS = ("left", "middle", "right")


def simulate() -> dict[str, np.ndarray]:
    """Return time, position of the ball, and the forces of the pads [time, 3], true and measured."""
    pads = sn.TouchCfg(
        name="pads", sites=PADS, noise=0.15, resolution=0.1, stages=(sn.stages.LowPass(time_constant=0.02),)
    )
    engine = sn.MujocoEngine(PLATE)
    scene = sn.Scene(engine, [pads], seed=1)
    scene.reset(qvel=[[0.45, 0.0, 0.0, 0.0, 11.0, 0.0]])
    rows: dict[str, list[np.ndarray]] = {"time": [], "x": [], "true": [], "measured": []}
    for _ in range(700):
        scene.step()
        rows["time"].append(np.array(scene.time))
        rows["x"].append(engine.qpos[0, 0].numpy().copy())
        rows["true"].append(scene["pads"].read_ground_truth()[0].numpy())
        rows["measured"].append(scene["pads"].read()[0].numpy())
    return {name: np.array(values) for name, values in rows.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run = simulate()
    fig, each = plt.subplots(figsize=(8, 4), dpi=110, layout="constrained")
    for k, (name, color) in enumerate(zip(PADS, ("tab:red", "tab:blue", "tab:green"), strict=True)):
        each.plot(run["time"], run["measured"][:, k] + 9.0 * (2 - k), ".", ms=2, color=color, label=f"{name}, measured")
        each.plot(
            run["time"], run["true"][:, k] + 9.0 * (2 - k), color="black", lw=1.0, label="true" if k == 0 else None
        )
        each.axhline(9.0 * (2 - k), color="gray", lw=0.5)
    each.set(title="A 0.5 kg ball is dropped on a plate and rolls over its three pads (shifted by 9 N each)",
             xlabel="time (s)", ylabel="force in the pad's volume (N)", ylim=(-1, 32))  # fmt: skip
    each.legend(fontsize=7, loc="upper right", markerscale=3)
    each.grid(alpha=0.3)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/touch.png")
