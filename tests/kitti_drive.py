"""Readings of a lidar and of cameras on a vehicle, made of poses and points that are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial.transform import Rotation

from sensorium.readings import Reading
from sensorium.spec import FieldSpec

LANDMARKS = np.random.default_rng(4).uniform((4.0, -2.0, -1.0), (9.0, 2.0, 2.0), (200, 3))
"""Points in the world."""
TURNS = {
    "lidar": Rotation.from_euler("z", 0.2),
    "grey": Rotation.identity(),
    "color": Rotation.identity(),
    "tilted": Rotation.from_euler("y", 0.3),
}
PLACES = {"lidar": (0.0, 0.0, 0.5), "grey": (0.3, 0.2, 0.0), "color": (0.3, -0.2, 0.0), "tilted": (0.0, 0.1, 0.1)}
INTRINSICS = np.array([[50.0, 0.0, 32.0], [0.0, 55.0, 24.0], [0.0, 0.0, 1.0]])


def drive() -> tuple[list[Reading], dict[str, list[tuple[Rotation, np.ndarray]]]]:
    """Return readings of a lidar at 10 Hz and of three cameras at 20 Hz, and the poses at each tick of 10 ms."""
    camera = (
        FieldSpec("rgb", ("height", "width", "channel"), (4, 6, 3), "uint8", "1", "", "vector", "image"),
        FieldSpec("intrinsic_matrices", ("row", "column"), (3, 3), "float32", "px", "", "derived", "scalar"),
    )
    points = (FieldSpec("points_b", ("ray", "xyz"), (200, 3), "float32", "m", "sensor", "derived", "point"),)
    poses: dict[str, list[tuple[Rotation, np.ndarray]]] = {name: [] for name in TURNS}
    readings = []
    for tick in range(41):
        turn, place = Rotation.from_euler("z", 0.01 * tick), np.array([0.02 * tick, 0.001 * tick**2, 0.0])
        for name, own in TURNS.items():
            at, heading = place + turn.apply(PLACES[name]), turn * own
            poses[name].append((heading, at))
            if tick % (10 if name == "lidar" else 5):
                continue
            values = {"points_b": heading.inv().apply(LANDMARKS - at).astype(np.float32)}
            if name != "lidar":
                pixels = np.full((4, 6, 1 if name == "grey" else 3), tick, np.uint8)
                values = {"rgb": pixels, "intrinsic_matrices": INTRINSICS.astype(np.float32)}
            grey = (replace(camera[0], shape=(4, 6, 1)), camera[1])
            meta = {"capture_tick": np.array([tick]), "valid": np.array([True])}
            pose = np.concatenate([at, heading.as_quat()[[3, 0, 1, 2]]])[None, None]
            readings.append(
                Reading(name, name, points if name == "lidar" else grey if name == "grey" else camera, np.array([0]),
                        tick, tick * 0.01, {key: value[None] for key, value in values.items()}, {}, meta, _pose=pose,
                        _dt=0.01)
            )  # fmt: skip
    return readings, poses
