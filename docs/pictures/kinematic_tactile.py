"""Draws docs/images/kinematic_tactile.png: a sphere is pressed on a pad of taxels, held, and dragged along it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn
from sensorium.view.style import MEASURED

RADIUS, LOAD, MU, SPEED = 0.012, 5.0, 0.5, 0.015  # m, N, 1, m/s
SCENE = f"""
<mujoco>
  <option timestep="0.001" cone="elliptic" impratio="100" gravity="0 0 0"/>
  <default><geom solref="-6000 -20" solimp="0.9 0.9 0.001" friction="{MU}"/></default>
  <worldbody>
    <body name="pad"><geom type="box" size="0.02 0.014 0.005" pos="0 0 -0.005"/></body>
    <body name="ball" pos="-0.007 0.001 {RADIUS + 0.0002}">
      <joint name="lift" type="slide" axis="0 0 1" damping="20"/>
      <joint name="slide" type="slide" axis="1 0 0" damping="1"/>
      <geom type="sphere" size="{RADIUS}" mass="0.1"/>
    </body>
  </worldbody>
  <actuator><motor joint="lift"/><position joint="slide" kp="4000" kv="80"/></actuator>
</mujoco>
"""
SPACING = 0.002
STIFFNESS = 1000.0
"""N/m of one taxel, before calibration."""
HELD, DRAGGED, END = 0.6, 1.0, 1.6
"""When the load is there in full, when the drag begins, and the end, s."""


def skin(stiffness: float) -> sn.KinematicTactileSensorCfg:
    """Return a pad of 12 x 18 taxels of radius 0.5 mm whose balls touch the skin from within."""
    layout = sn.patterns.taxel_grid(12, 18, SPACING, origin=(0.0, 0.0, -0.0005))
    return sn.KinematicTactileSensorCfg(
        name="skin", link_name="pad", probe_radius=0.0005, normal_stiffness=stiffness, normal_damping=0.0,
        friction=MU, shear_stiffness=stiffness, shear_scalar=0.0, twist_scalar=0.0, noise={"force": 0.005},
        stages=(
            sn.stages.TaxelGain(fields=("force",), gain=sn.Normal(1.0, 0.08)),
            sn.stages.DeadTaxels(fields=("force",), probability=0.02),
        ),
        rate_hz=200.0, **layout.cfg(),
    )  # fmt: skip


def simulate(stiffness: float) -> dict[str, np.ndarray]:
    """Return time, forces of the taxels [time, row, column, 3], true and measured, and the engine's [time, 3], N."""
    cfg, contact = skin(stiffness), sn.ContactForceCfg(name="contact", body="pad")
    engine = sn.MujocoEngine(SCENE)
    scene = sn.Scene(engine, [cfg, contact], seed=4)
    rows: dict[str, list[Any]] = {"time": [], "true": [], "measured": [], "engine": []}
    for _ in range(round(END / 0.005)):
        time = scene.time
        scene.step([-LOAD * min(time / HELD, 1.0), SPEED * max(0.0, time - DRAGGED)], substeps=5)
        rows["time"].append(scene.time)
        rows["true"].append(scene[cfg].read_ground_truth().force[0].numpy())
        rows["measured"].append(scene[cfg].read().force[0].numpy())
        rows["engine"].append(scene[contact].read_ground_truth()[0].numpy())
    return {name: np.array(values) for name, values in rows.items()}


def calibrated() -> float:
    """Return the stiffness of a taxel at which their sum is the load while it is held, N/m."""
    run = simulate(STIFFNESS)
    held = run["time"].searchsorted(0.5 * (HELD + DRAGGED))
    return float(STIFFNESS * LOAD / run["true"][held, ..., 2].sum())


def show(axis: Any, force: np.ndarray, most: float, title: str) -> Any:
    """Draw normal forces as colours and shear as arrows; 0.3 N of shear is as long as 4 mm."""
    layout = sn.patterns.taxel_grid(12, 18, SPACING)
    x, y, _ = 1e3 * np.moveaxis(np.array(layout.positions), -1, 0)
    image = axis.pcolormesh(x, y, force[..., 2], cmap="viridis", vmin=0.0, vmax=most, shading="nearest")
    shown = np.hypot(force[..., 0], force[..., 1]) > 0.02
    arrows = axis.quiver(
        x[shown], y[shown], force[shown, 0], force[shown, 1], angles="xy", scale_units="xy", scale=0.3 / 4.0,
        color="white", edgecolor="black", linewidth=0.3, width=0.012,
    )  # fmt: skip
    if shown.any():
        key = {"labelcolor": "white", "labelpos": "E", "coordinates": "data", "fontproperties": {"size": 7}}
        axis.quiverkey(arrows, -15.0, -10.3, 0.3, "0.3 N of shear", **key)
    axis.set_title(title, fontsize=8, loc="left")
    axis.set_aspect("equal")
    axis.tick_params(labelsize=7)
    return image


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run = simulate(calibrated())
    fig = plt.figure(figsize=(11, 4.4), dpi=100, layout="constrained")
    maps = fig.add_gridspec(2, 4, width_ratios=(1, 1, 0.04, 1.15))
    most = float(run["true"][..., 2].max())
    moments = (("pressed", 0.95), ("dragged to the right", 1.45))
    for row, (what, time) in enumerate(moments):
        at = int(run["time"].searchsorted(time))
        for column, which in enumerate(("true", "measured")):
            axis = fig.add_subplot(maps[row, column])
            image = show(axis, run[which][at], most, f"{which}, {what}, t = {time:.2f} s")
            if row == 1:
                axis.set_xlabel("x (mm)", fontsize=8)
            if column == 0:
                axis.set_ylabel("y (mm)", fontsize=8)
    bar = fig.colorbar(image, cax=fig.add_subplot(maps[:, 2]))
    bar.set_label("normal force of a taxel (N)", fontsize=8)
    bar.ax.tick_params(labelsize=7)

    engine = -run["engine"]  # force of the pad on the ball
    normal = {name: run[name][..., 2].sum(axis=(1, 2)) for name in ("true", "measured")}
    shear = {name: run[name][..., 0].sum(axis=(1, 2)) for name in ("true", "measured")}
    bound = MU * normal["true"]
    upper, lower = (fig.add_subplot(maps[k, 3]) for k in (0, 1))
    for axis, total, truth in ((upper, normal, engine[:, 2]), (lower, shear, engine[:, 0])):
        axis.plot(run["time"], total["measured"], color=MEASURED, lw=0.9, label="taxels, measured")
        axis.plot(run["time"], total["true"], color="black", lw=1.2, label="taxels, true")
        axis.plot(run["time"], truth, color="tab:blue", lw=1.2, ls="--", label="the engine's contact force")
        axis.grid(alpha=0.3)
        axis.tick_params(labelsize=7)
        for _, time in moments:
            axis.axvline(time, color="0.6", lw=0.8, ls=":")
    lower.fill_between(run["time"], -bound, bound, color="0.9", zorder=0, label=f"friction bound, {MU:g} x normal")
    upper.set_ylabel("normal, sum (N)", fontsize=8)
    lower.set_ylabel("shear along x, sum (N)", fontsize=8)
    lower.set_xlabel("time (s)", fontsize=8)
    upper.set_title(f"Sum of {run['true'][0, ..., 0].size} taxels, stiffness calibrated at {LOAD:g} N", fontsize=8)
    upper.legend(fontsize=7, loc="lower right")
    lower.legend(*(each[-1:] for each in lower.get_legend_handles_labels()), fontsize=7, loc="upper left")
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/kinematic_tactile.png")
