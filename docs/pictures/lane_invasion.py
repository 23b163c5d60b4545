"""Draws docs/images/lane_invasion.png: a car weaves along a road; where its corners cross the lane markings."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import numpy as np

import sensorium as sn

DT, SPEED, SECONDS = 0.04, 12.0, 9.0
HALF = np.array([2.2, 0.9])
CORNERS = {"front_left": (1, 1), "front_right": (1, -1), "back_left": (-1, 1), "back_right": (-1, -1)}
LANES = (
    sn.LaneMarking([(x, 5.25 + 2.0 * np.sin(x / 40.0)) for x in range(-10, 121, 2)], type="solid"),
    sn.LaneMarking([(x, 1.75 + 2.0 * np.sin(x / 40.0)) for x in range(-10, 121, 2)], type="broken"),
    sn.LaneMarking([(x, -1.75 + 2.0 * np.sin(x / 40.0)) for x in range(-10, 121, 2)], type="solid", color="yellow"),
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
    """Return the events."""
    box = sn.Box(body="body", half_size=(*HALF, 0.7))
    scene = sn.Scene(sn.TensorEngine(num_envs=1, dt=DT, motion=motion, shapes=[box]))
    got: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with scene.local_client() as client:
        blueprint = client.blueprints.find("sensor.other.lane_invasion")
        client.spawn(blueprint, attach_to="body", lanes=LANES).listen(got.put)
        done: queue.SimpleQueue[int] = queue.SimpleQueue()
        client.on_tick(lambda snapshot: done.put(snapshot.frame))
        for _ in range(round(SECONDS / DT)):
            frame = client.step()
    return []


if __name__ == "__main__":
    pass
