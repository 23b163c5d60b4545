"""Draws docs/images/safe_distance.png: a robot drives past a cart and a post; its safe-distance box and its events."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn

FRONT, BACK, LATERAL = 1.0, 0.5, 0.5
MOMENTS = (1.2, 3.2)
HALF = np.array([0.4, 0.25])
HALL = """
<mujoco><option timestep="0.02" gravity="0 0 0"/><worldbody>
  <body name="robot/base"><freejoint/><geom type="box" size="0.4 0.25 0.2"/></body>
  <body name="cart/base" pos="2.2 1.1 0" euler="0 0 30"><geom type="box" size="0.4 0.3 0.3"/></body>
  <body name="post/base" pos="3.4 -0.6 0"><geom type="cylinder" size="0.08 0.5"/></body>
</worldbody></mujoco>
"""
OTHERS = {"cart/base": "tab:orange", "post/base": "tab:green"}
Track = tuple[np.ndarray, dict[str, np.ndarray]]


def simulate() -> Track:
    """Return x, y, yaw of the robot [frame, 3], and for each other body whether it was reported [frame]."""
    scene = sn.Scene(sn.MujocoEngine(HALL))
    scene.reset(qvel=[[1.0, 0.0, 0.0, 0.0, 0.0, 0.12]])
    poses, told = [], []
    with scene.local_client() as client:
        client.spawn("sensor.other.safe_distance", attach_to="robot/base", name="guard")
        with sn.client.FrameSync(client, ["guard", "world"]) as sync:
            for _ in range(250):
                bundle = sync.get(client.step(), timeout=10.0)
                w, _, _, z = bundle["world"]["quat_w"][0, 0]
                poses.append([*bundle["world"]["pos_w"][0, 0, :2], 2.0 * np.arctan2(z, w)])
                told.append([client.bodies[id].name for id in bundle["guard"] or ()])
    return np.array(poses), {name: np.array([name in names for names in told]) for name in OTHERS}


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Circle, Polygon

    poses, told = simulate()
    time = 0.02 * np.arange(1, len(poses) + 1)
    fig, (top, events) = plt.subplots(1, 2, figsize=(8, 4), dpi=120, width_ratios=(3, 2), layout="constrained")

    def corners(pose: np.ndarray, center: float, half: np.ndarray) -> np.ndarray:
        c, s = np.cos(pose[2]), np.sin(pose[2])
        box = np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)]) * half + (center, 0.0)
        return pose[:2] + box @ np.array([[c, s], [-s, c]])

    top.plot(*poses[:, :2].T, color="gray", lw=0.8, label="path of the robot")
    reach = np.array([(FRONT + BACK) / 2, LATERAL]) + HALF
    for k, seconds in enumerate(MOMENTS):
        pose = poses[round(seconds / 0.02) - 1]
        top.add_patch(Polygon(corners(pose, (FRONT - BACK) / 2, reach), fill=False, ec="tab:red", ls="--",
                              label="box of the sensor" if k == 0 else None))  # fmt: skip
        top.add_patch(Polygon(corners(pose, 0.0, HALF), fc="tab:blue", alpha=0.7,
                              label="robot, at 1.2 and 3.2 s" if k == 0 else None))  # fmt: skip
    cart = np.array([2.2, 1.1, np.radians(30.0)])
    top.add_patch(Polygon(corners(cart, 0.0, np.array([0.4, 0.3])), fc=OTHERS["cart/base"]))
    top.add_patch(Circle((3.4, -0.6), 0.08, fc=OTHERS["post/base"]))
    top.annotate("cart", (2.2, 1.1), ha="center", va="center", fontsize=8)
    top.annotate("post", (3.4, -0.85), ha="center", va="center", fontsize=8)
    top.set(title="From above", xlabel="x (m)", ylabel="y (m)", xlim=(-0.4, 5.4), ylim=(-1.7, 3.3), aspect="equal")
    top.legend(fontsize=8, loc="upper left")

    for row, (name, color) in enumerate(OTHERS.items()):
        events.plot(time[told[name]], np.full(told[name].sum(), row), "|", ms=22, mew=1.0, color=color)
    for seconds in MOMENTS:
        events.axvline(seconds, color="tab:blue", lw=1.0)
    events.set(title="Frames with a message", xlabel="time (s)", yticks=range(len(OTHERS)), yticklabels=OTHERS,
               ylim=(-0.6, 1.6), xlim=(0.0, time[-1]))  # fmt: skip
    for each in (top, events):
        each.grid(alpha=0.3)
    fig.suptitle("SafeDistance: which bodies are inside a box around the robot", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/safe_distance.png")
