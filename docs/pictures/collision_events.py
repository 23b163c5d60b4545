"""Draws the feet of the trotting demo robot against the ground: every touch as an event, with its impulse."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sensorium as sn
from sensorium.demo import Trot, model_path
from sensorium.sensors.contact.collision_events import END

SECONDS, STEP = 2.4, 0.02
FEET = ("FL_foot", "FR_foot", "RL_foot", "RR_foot")


def simulate() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return for each touch that ended: foot, end (s), duration (s) and upward impulse (N s)."""
    engine = sn.MujocoEngine(model_path(), keyframe="home")
    feet = sn.CollisionEventsCfg(primary=sn.ContactMatch(mode="geom", pattern=FEET), persist=False)
    scene, trot = sn.Scene(engine, [feet]), Trot()
    ticks = round(STEP / engine.dt)
    ends = []
    for step in range(round(SECONDS / STEP)):
        scene.step(trot.targets(step * STEP), substeps=ticks)
        events = scene.publish()["collision_events"]
        for row in np.flatnonzero(events["phase"] == END):
            time = events["tick"][row] * engine.dt
            ends.append((events["pair"][row], time, events["duration"][row], events["impulse_w"][row, 2]))
    foot, time, duration, impulse = np.array(ends).T
    return foot, time, duration, impulse


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    foot, end, duration, impulse = simulate()
    fig, (gait, sizes) = plt.subplots(1, 2, figsize=(8, 4), dpi=120, width_ratios=(3, 2), layout="constrained")
    for k, name in enumerate(FEET):
        own = foot == k
        gait.barh(foot[own], duration[own], left=end[own] - duration[own], height=0.6, color=f"C{k}", label=name)
        sizes.plot(1e3 * duration[own], impulse[own], "o", ms=5, color=f"C{k}", label=name)
    gait.set(title="Touches, begin to end", xlabel="time (s)", yticks=range(4), yticklabels=FEET, xlim=(0.0, SECONDS))
    gait.invert_yaxis()
    sizes.set(title="Impulse of each touch", xlabel="duration (ms)", ylabel="upward impulse on the foot (N s)")
    sizes.legend(fontsize=8)
    for each in (gait, sizes):
        each.grid(alpha=0.3)
    fig.suptitle("CollisionEvents: four feet of a trotting robot, looked at in every 2 ms tick", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/collision_events.png")
