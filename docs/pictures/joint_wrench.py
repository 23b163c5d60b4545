"""Draws docs/images/joint_wrench.png: a pendulum that swings, and the wrench its pivot carries, in two frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn

PENDULUM = """
<mujoco>
  <option timestep="0.002" integrator="RK4"/>
  <worldbody>
    <body pos="0 0 1"><joint name="pivot" axis="0 1 0"/>
      <inertial mass="2" pos="0 0.1 -0.5" diaginertia=".01 .01 .01"/></body>
  </worldbody>
</mujoco>
"""
SECONDS, FRAMES = 3.0, ("world", "joint")


def simulate() -> dict[str, np.ndarray]:
    """Return time [sample] s, and force [sample, 3] N true and measured in each frame."""
    cfgs = [sn.JointWrenchCfg(name=frame, joint="pivot", frame=frame, noise={"force": 0.5}) for frame in FRAMES]
    scene = sn.Scene(sn.MujocoEngine(PENDULUM), cfgs, seed=1)
    scene.reset(qpos=[[1.2]])
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ("time", *FRAMES, "world_measured", "joint_measured")}
    for _ in range(round(SECONDS / 0.002)):
        scene.step()
        rows["time"].append(np.array(scene.time))
        for frame in FRAMES:
            rows[frame].append(scene[frame].read_ground_truth().force[0].numpy())
            rows[f"{frame}_measured"].append(scene[frame].read().force[0].numpy())
    return {name: np.array(values) for name, values in rows.items()}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run = simulate()
    fig, axes = plt.subplots(1, 2, figsize=(8, 4), dpi=120, sharey=True, layout="constrained")
    titles = {"world": "World axes", "joint": "Joint axes: along the arm and across it"}
    for each, frame in zip(axes, FRAMES, strict=True):
        for axis, color in ((0, "tab:red"), (2, "tab:blue")):
            name = "xyz"[axis]
            each.plot(run["time"], run[f"{frame}_measured"][:, axis], ".", ms=1.0, color=color, alpha=0.35,
                      label=f"{name}, measured")  # fmt: skip
            each.plot(run["time"], run[frame][:, axis], color=color, lw=1.4, label=f"{name}, true")
        each.axhline(2.0 * 9.81, color="black", lw=0.8, ls=":", label="weight M g")
        each.set(xlabel="time (s)", title=titles[frame])
        each.grid(alpha=0.3)
    axes[0].set(ylabel="force on the pendulum (N)", ylim=(-25, 62))
    axes[0].legend(loc="upper right", fontsize=7, ncols=3, markerscale=6)
    fig.suptitle("Joint wrench: 2 kg pendulum released at 1.2 rad, force of the pivot on it, noise 0.5 N", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/joint_wrench.png")
