"""Draws docs/images/force_torque.png: a tool that is turned and pushes, and a load that creeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn

TOOL = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <body name="wall" pos="0.16 0 0"><geom type="box" size="0.01 0.2 0.5"/></body>
    <body pos="0 0 0">
      <joint name="slide" type="slide" axis="1 0 0" damping="40"/>
      <inertial mass="2" pos="0 0 0" diaginertia=".1 .1 .1"/>
      <body name="hand">
        <joint name="roll" axis="0 1 0" damping="2"/>
        <site name="flange"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.1" size="0.02" mass="0.8"/>
      </body>
    </body>
  </worldbody>
  <actuator><position joint="roll" kp="60"/><position joint="slide" kp="800"/></actuator>
</mujoco>
"""
SIX = ("force", "torque")


def turning() -> dict[str, np.ndarray]:
    """Turn the tool by a full turn, then push it against the wall; return time, truth and reading, force x and z."""
    cfg = sn.ForceTorqueCfg(
        name="ft", site="flange", on="parent", tool_mass=0.8, tool_com=(0.0, 0.0, -0.05), compensate="motion",
        noise={"force": 0.1}, tare=True,
    )  # fmt: skip
    scene = sn.Scene(sn.MujocoEngine(TOOL), [cfg], seed=1)
    rows: dict[str, list[np.ndarray]] = {"time": [], "true": [], "measured": []}
    for _ in range(3000):
        t = scene.time
        smooth = np.clip(t / 4.0, 0.0, 1.0)
        roll = 2.0 * np.pi * smooth**2 * (3.0 - 2.0 * smooth)
        push = 0.18 * np.clip(t - 4.5, 0.0, 1.0)
        scene.step([roll, push])
        rows["time"].append(np.array(scene.time))
        rows["true"].append(scene["ft"].read_ground_truth().force[0].numpy())
        rows["measured"].append(scene["ft"].read().force[0].numpy())
    return {name: np.array(values) for name, values in rows.items()}


def creeping() -> dict[str, np.ndarray]:
    """Put 100 N on for half an hour and take them off; return minutes, and force z true and of four devices."""
    engine = sn.TensorEngine(4, 1.0, bodies=("hand",), provides=("pose", "joint_wrench"))
    stages = (
        sn.stages.Crosstalk(fields=SIX, matrix=sn.Normal(0.0, 0.003), full_scale=(300.0, 30.0)),
        sn.stages.Creep(
            fields=("force",), creep=sn.Normal(0.0, 0.002), t0=2.0, t_max=7200.0, drift=sn.Normal(0.0, 0.5)
        ),
    )
    cfg = sn.ForceTorqueCfg(name="ft", body="hand", stages=stages, tare=True, noise={"force": 0.05})
    scene = sn.Scene(engine, [cfg], seed=4)
    rows: dict[str, list[np.ndarray]] = {"time": [], "error": [], "load": []}
    for second in range(3600):
        engine.body_parent_force_w[:] = 0.0
        engine.body_parent_force_w[..., 2] = 100.0 * (300 <= second < 2100)
        scene.update()
        rows["time"].append(np.array(scene.time / 60.0))
        rows["error"].append((scene["ft"].data.force - scene["ft"].ground_truth.force)[:, 2].numpy())
    return {name: np.array(values) for name, values in rows.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(8, 4), dpi=120, layout="constrained")
    run = turning()
    for axis, color in ((0, "tab:red"), (2, "tab:blue")):
        name = "xyz"[axis]
        left.plot(run["time"], run["measured"][:, axis], color=color, lw=0.7, alpha=0.6, label=f"{name}, measured")
        left.plot(run["time"], run["true"][:, axis], color=color, lw=1.4, ls="--", label=f"{name}, true")
    left.axvspan(0.0, 4.0, color="tab:green", alpha=0.08)
    left.text(2.0, 15.5, "one turn", ha="center", fontsize=8)
    left.text(5.35, 15.5, "pushes", ha="center", fontsize=8)
    left.set(title="0.8 kg tool: weight and inertia taken off", xlabel="time (s)", ylabel="force on the sensor (N)",
             ylim=(-45, 18))  # fmt: skip
    left.legend(fontsize=7, loc="lower left", ncols=2)
    run = creeping()
    right.plot(run["time"], run["error"], lw=0.7)
    right.axvspan(5.0, 35.0, color="tab:gray", alpha=0.15, label="100 N on")
    right.axhline(0.0, color="black", lw=1.0)
    right.set(title="Creep and drift of four tared devices", xlabel="time (min)", ylabel="measured - true, z (N)")
    right.legend(fontsize=7, loc="upper left")
    for each in (left, right):
        each.grid(alpha=0.3)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/force_torque.png")
