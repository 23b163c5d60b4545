"""Draws docs/images/lane_invasion.png: a car weaves along a road; where its corners cross the lane markings."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn

DT, SPEED, SECONDS = 0.04, 12.0, 8.8
HALF = np.array([2.2, 0.9])
CORNERS = {"front_left": (1, 1), "front_right": (1, -1), "back_left": (-1, 1), "back_right": (-1, -1)}
LANES = (
    sn.client.LaneMarking([(x, 5.25 + 2.0 * np.sin(x / 40.0)) for x in range(-10, 121, 2)], type="solid"),
    sn.client.LaneMarking([(x, 1.75 + 2.0 * np.sin(x / 40.0)) for x in range(-10, 121, 2)], type="broken"),
    sn.client.LaneMarking(
        [(x, -1.75 + 2.0 * np.sin(x / 40.0)) for x in range(-10, 121, 2)], type="solid", color="yellow"
    ),
    sn.client.LaneMarking([(100.0, -4.0), (100.0, 8.0)], type="stop"),
)


def path_of(time: float) -> tuple[float, float, float]:
    """Return x, y (m) and yaw (rad) of the car."""
    x = SPEED * time
    slope = 2.0 / 40.0 * np.cos(x / 40.0) + 3.4 / 13.0 * np.cos(x / 13.0)
    return x, 2.0 * np.sin(x / 40.0) + 3.4 * np.sin(x / 13.0), float(np.arctan(slope))


def motion(time: float) -> dict[str, Any]:
    """Return the pose of the car."""
    x, y, yaw = path_of(time)
    return {"body_pos_w": (x, y, 0.7), "body_quat_w": (np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2))}


def simulate() -> list[Any]:
    """Return the events until the car is past the stop line."""
    box = sn.engines.Shape("box", "box", (*HALF, 0.7), body="body")
    scene = sn.Scene(sn.TensorEngine(num_envs=1, dt=DT, motion=motion, shapes=[box]))
    got: queue.SimpleQueue[Any] = queue.SimpleQueue()
    events: list[Any] = []
    with scene.local_client() as client:
        sensor = client.spawn("sensor.other.lane_invasion", attach_to="body", lanes=LANES)
        sensor.listen(got.put)
        for _ in range(round(SECONDS / DT)):
            scene.update()
        while not events or not events[-1].crossed_lane_markings[-1].type == "stop":
            events.append(got.get(timeout=10.0))
    return events


def corners(time: float) -> np.ndarray:
    """Return where the corners of the car are [corner, 2]."""
    x, y, yaw = path_of(time)
    c, s = np.cos(yaw), np.sin(yaw)
    return np.array([x, y]) + np.array(list(CORNERS.values())) * HALF @ np.array([[c, s], [-s, c]])


def draw(path: Path) -> None:
    """Simulate and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Polygon

    events = simulate()
    fig, (road, told) = plt.subplots(2, 1, figsize=(8, 4), dpi=120, sharex=True, height_ratios=(1, 1),
                                     layout="constrained")  # fmt: skip
    styles = {"solid": "-", "broken": "--", "stop": "-"}
    for line in LANES:
        color = {"yellow": "goldenrod"}.get(line.color, "black")
        road.plot(*np.array(line.points).T, styles[line.type], color=color, lw=2.5 if line.type == "stop" else 1.2)
    times = np.arange(0.0, SECONDS, DT)
    road.plot(*np.array([path_of(time)[:2] for time in times]).T, color="tab:blue", lw=0.8, label="path of the car")
    for time in np.arange(0.0, SECONDS, 1.0):
        outline = corners(time)[[0, 1, 3, 2]]
        road.add_patch(Polygon(outline, fc="tab:blue", alpha=0.25, label="car, each second" if time == 0.0 else None))
    colors = dict(zip(CORNERS, ("tab:red", "tab:orange", "tab:purple", "tab:green"), strict=True))
    names = {0: "left edge", 1: "middle (broken)", 2: "right edge (yellow)", 3: "stop line"}
    seen: set[str] = set()
    for event in events:
        here = corners(event.timestamp)
        for index, crossing in zip(event.indices, event.corners, strict=True):
            for name in crossing:
                point = here[list(CORNERS).index(name)]
                label = None if name in seen else name.replace("_", " ")
                road.plot(*point, "o", ms=5, color=colors[name])
                told.plot(point[0], index, "o", ms=6, color=colors[name], label=label)
                seen.add(name)
    road.set(title="A car weaves along a road; points: corners that cross a marking", ylabel="y (m)",
             xlim=(-4.0, 108.0), ylim=(-6.5, 9.0))  # fmt: skip
    told.set(xlabel="x (m)", title="What the messages say: marking and corner", yticks=list(names),
             yticklabels=list(names.values()), ylim=(4.8, -0.7))  # fmt: skip
    road.legend(fontsize=8, loc="lower left", ncols=2)
    told.legend(fontsize=8, loc="lower left", ncols=4)
    for each in (road, told):
        each.grid(alpha=0.3)
    fig.suptitle("LaneInvasion", fontsize=10)
    fig.savefig(path)
    plt.close(fig)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images/lane_invasion.png")
