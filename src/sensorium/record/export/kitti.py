"""Lidar data sets in the layout of KITTI's odometry benchmark: scans, poses, times and the calibration.

Files of sequence 00 below the folder:

    sequences/00/velodyne/000000.bin   float32 x, y, z, intensity of each point, in the sensor's frame
    sequences/00/times.txt             time of each scan, s
    sequences/00/calib.txt             Tr, the transform from the sensor's frame to that of the camera, [3, 4] by rows
    poses/00.txt                       pose of the camera in its first frame for each scan, [3, 4] by rows

KITTI gives poses of a camera (x right, y down, z forward). Without cameras it has the place of the lidar here, so that
Tr only exchanges axes. A point p of scan k is at inv(Tr) pose_k Tr p in the lidar's frame at the first scan.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from sensorium.errors import ArgumentError
from sensorium.readings import Reading
from sensorium.record.export.samples import Floats, Sample, samples, seconds

SEQUENCE = "00"
CAMERA = np.array([[0.0, -1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
"""Tr: camera axes (right, down, forward) of a vector in the sensor's axes (forward, left, up)."""


def write_kitti(
    readings: Iterable[Reading],
    folder: str | os.PathLike[str],
    *,
    lidar: str | None = None,
    env: int = 0,
    mount: int = 0,
    truth: bool = False,
) -> list[str]:
    """Write the scans of a lidar with their poses.

    Args:
        readings: readings of the lidar with poses, from `scene.publish(poses=True)`.
        folder: folder in which the files are created.
        lidar: the lidar; None takes the first sensor with points in its own frame.
        env: the environment.
        mount: mount of a lidar that has several.
        truth: whether to write the true scans, without noise and distortion by motion.

    Returns:
        One text for everything that was not written.

    Raises:
        ArgumentError: there is no such lidar, or it has no poses.
    """
    root = Path(folder)
    scans = root / "sequences" / SEQUENCE / "velodyne"
    scans.mkdir(parents=True, exist_ok=True)
    (root / "poses").mkdir(exist_ok=True)
    skipped: dict[str, str] = {}
    first: Floats | None = None
    poses: list[str] = []
    times: list[str] = []
    for sample in samples(readings, env, mount=mount, truth=truth):
        name, field = sample.reading.name, _points(sample)
        if not field or lidar not in (None, name):
            skipped[name] = sample.reading.kind
            continue
        lidar, pose = name, sample.pose
        if pose is None:
            raise ArgumentError(
                f"lidar: {name!r} has no pose at {seconds(sample.ns)} s. Record scene.publish(poses=True) from the "
                "start, and lidars without delay for true scans."
            )
        first = pose.matrix if first is None else first
        relative = CAMERA @ np.linalg.inv(first) @ pose.matrix @ CAMERA.T
        _cloud(sample, field).tofile(scans / f"{len(poses):06d}.bin")
        poses.append(_numbers(relative))
        times.append(seconds(sample.ns))
    if first is None:
        raise ArgumentError(f"lidar: got {lidar!r}, expected a recorded lidar with the field points_b.")
    (root / "poses" / f"{SEQUENCE}.txt").write_text("\n".join(poses) + "\n", encoding="utf-8")
    (scans.parent / "times.txt").write_text("\n".join(times) + "\n", encoding="utf-8")
    (scans.parent / "calib.txt").write_text(f"Tr: {_numbers(CAMERA)}\n", encoding="utf-8")
    return [f"{name} ({kind}): only the scans of {lidar} are written" for name, kind in skipped.items()]


def _points(sample: Sample) -> str:
    """Return the name of the field with points in the sensor's frame, or an empty text."""
    for axes in (("ray", "xyz"), ("ray", "return", "xyz")):
        if name := sample.spec("point", frame="sensor", axes=axes):
            return name
    return ""


def _cloud(sample: Sample, field: str) -> np.ndarray:
    """Return the points of a scan without misses with their intensity (0 where not recorded), float32 `[point, 4]`."""
    points = sample[field].reshape(-1, 3)
    names = [spec.name for spec in sample.reading.specs]
    intensity = sample["intensity"].reshape(-1) if "intensity" in names else np.zeros(len(points), np.float32)
    cloud = np.concatenate([points, intensity[:, None]], axis=1).astype(np.float32)
    return np.ascontiguousarray(cloud[np.isfinite(points).all(axis=1)])


def _numbers(transform: Floats) -> str:
    """Return the upper three rows of a transform as one line."""
    return " ".join(f"{value:.9e}" for value in transform[:3].flatten())
