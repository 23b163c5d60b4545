"""Trajectories as TUM files: one line ``t x y z qx qy qz qw`` per pose."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from sensorium.errors import ArgumentError
from sensorium.readings import Reading
from sensorium.record.export.samples import TimedFile, samples, seconds
from sensorium.record.staging import staged


def write_tum(
    readings: Iterable[Reading],
    path: str | os.PathLike[str],
    *,
    sensor: str | None = None,
    env: int = 0,
    mount: int = 0,
    start_ns: int = 0,
) -> Path:
    """Write the true poses of a sensor, and return the path.

    Args:
        readings: readings with the sensor's pose: from `scene.publish(poses=True)`, or of a sensor with the fields
            `pos_w` and `quat_w`.
        path: the file.
        sensor: the sensor; None takes the first one with a pose.
        env: the environment.
        mount: mount of a sensor that has several.
        start_ns: time at tick 0, ns, e.g. `Trajectory.start_ns`.

    Raises:
        ArgumentError: no reading has a pose.
    """
    path, count = Path(path), 0
    with staged(path.parent) as root:
        with closing(TimedFile(root / path.name, "# timestamp tx ty tz qx qy qz qw")) as file:
            for sample in samples(readings, env, mount=mount):
                if sensor not in (None, sample.reading.name) or not sample.is_of_pose or (pose := sample.pose) is None:
                    continue
                sensor = sample.reading.name
                (w, *xyz), ns = pose.quat, start_ns + sample.tick_ns
                file.write(ns, f"{seconds(ns)} {' '.join(f'{each:.9g}' for each in (*pose.pos, *xyz, w))}")
                count += 1
        if not count:
            raise ArgumentError(
                f"sensor: got {sensor!r}, expected a sensor with poses. Record scene.publish(poses=True), or a "
                "BodyState."
            )
    return path
