"""Constant poses of sensors in each other's frames, from the recorded poses of all."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from sensorium.record.export.samples import Floats, Pose, Sample

POSES_KEPT = 1024
"""Maximum number of poses of each sensor among which common times of two sensors are sought."""
RIGID = 1e-4
"""Maximum change, m and rad, of the relative pose of two sensors that count as rigidly connected."""
OPTICAL = np.array([[0.0, -1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
"""Transform from a sensor's axes (forward, left, up) to those of its images (right, down, forward), `[4, 4]`."""


class SensorPoses:
    """True poses of sensors. Of long recordings, those at ticks that are multiples of a power of 2 are kept."""

    def __init__(self) -> None:
        self._poses: dict[Hashable, dict[int, Pose]] = {}
        self._strides: dict[Hashable, int] = {}
        self._bodies: dict[str, int] = {}
        self._places: dict[Hashable, dict[int, Pose]] = {}

    def __contains__(self, sensor: Hashable) -> bool:
        return sensor in self._poses or sensor in self._places

    def add(self, sensor: Hashable, sample: Sample) -> None:
        """Take the pose in a sample, if there is one."""
        stride = self._strides.setdefault(sensor, 1)
        if sample.tick % stride or (pose := sample.pose) is None:
            return
        poses = self._poses.setdefault(sensor, {})
        poses[sample.tick] = pose
        while len(poses) > POSES_KEPT:
            self._strides[sensor] = stride = 2 * stride
            for tick in [tick for tick in poses if tick % stride]:
                del poses[tick]

    def place(self, sensor: Hashable, body: str, pose: Sequence[float]) -> None:
        """Take the constant pose of a sensor on its body, for sensors without true poses at a common time.

        Args:
            sensor: the sensor.
            body: name of the body.
            pose: position, m, and quaternion wxyz.
        """
        key = self._bodies.setdefault(body, -1 - len(self._bodies))  # common to the sensors of a body, and no tick
        self._places[sensor] = {key: Pose(np.array(pose[:3], np.float64), np.array(pose[3:], np.float64))}

    def relative(self, sensor: Hashable, reference: Hashable) -> tuple[Floats, bool] | None:
        """Return the pose of a sensor in the frame of another one, `[4, 4]`, and whether it is constant.

        A pose that is not constant is the first one. None if there are no poses of both at the same time, and no places
        on the same body.
        """
        first, second = self._poses.get(sensor, {}), self._poses.get(reference, {})
        common = sorted(first.keys() & second.keys())
        if not common:
            first, second = self._places.get(sensor, {}), self._places.get(reference, {})
            common = list(first.keys() & second.keys())
        if not common:
            return None
        each = np.stack([np.linalg.inv(second[tick].matrix) @ first[tick].matrix for tick in common])
        if np.abs(each - each[0]).max() > RIGID:
            return each[0], False
        mean = each.mean(axis=0)
        left, _, right = np.linalg.svd(mean[:3, :3])
        mean[:3, :3] = left @ right
        return mean, True
