"""Lidar data sets in the layout of KITTI's odometry benchmark: scans, images, poses, times and the calibration.

Files of sequence 00 below the folder:

    sequences/00/velodyne/000000.bin   float32 x, y, z, intensity of each point, in the sensor's frame
    sequences/00/image_0/000000.png    images of the first camera without colours; image_1 of the second one
    sequences/00/image_2/000000.png    images of the first camera with colours; image_3 of the second one
    sequences/00/times.txt             time of each scan, s
    sequences/00/calib.txt             P0 to P3 and Tr, each [3, 4] by rows
    poses/00.txt                       pose of camera 0 in its first frame for each scan, [3, 4] by rows

All poses are those of camera 0 (x right, y down, z forward): of image_0, or of image_2 without it. Tr is the transform
from the lidar to camera 0. Pi projects points in the frame of camera 0 to pixels of image_i. Without cameras, camera 0
has the place of the lidar, so that Tr only exchanges axes. A point p of scan k is at inv(Tr) pose_k Tr p in the lidar's
frame at the first scan.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sensorium.errors import ArgumentError
from sensorium.readings import Array, Reading
from sensorium.record.export.images import image_field, write_png
from sensorium.record.export.relative import OPTICAL, SensorPoses
from sensorium.record.export.samples import Floats, Sample, samples, seconds
from sensorium.record.staging import staged

SEQUENCE = "00"
OUTDATED = f"sequences/{SEQUENCE}/velodyne/*.bin", f"sequences/{SEQUENCE}/image_?/*.png"
"""Files of an earlier sequence."""
GREY, COLOURED = (0, 1), (2, 3)
"""Numbers of the folders of images."""
PARALLEL = 1e-3
"""Maximum rotation, rad, of a camera relative to camera 0 that tools which expect rectified images ignore."""


def write_kitti(
    readings: Iterable[Reading],
    folder: str | os.PathLike[str],
    *,
    lidar: str | None = None,
    env: int = 0,
    mount: int = 0,
    truth: bool = False,
) -> list[str]:
    """Write the scans of a lidar with their poses, and with each scan the image of each camera that is nearest in time.

    Args:
        readings: readings of the lidar and of cameras with poses, from `scene.publish(poses=True)`.
        folder: folder in which the files are created.
        lidar: the lidar; None takes the first sensor with points in its own frame.
        env: the environment.
        mount: mount of sensors that have several.
        truth: whether to write the true scans and images, without noise.

    Returns:
        One message for everything that was not written.

    Raises:
        ArgumentError: there is no such lidar, or it has no poses.
        MissingDependencyError: there are images, and Pillow is not installed.
    """
    with staged(folder, *OUTDATED) as root:
        sequence = _Sequence(root / "sequences" / SEQUENCE)
        skipped: dict[str, str] = {}
        for sample in samples(readings, env, mount=mount):
            name, points = sample.reading.name, _points(sample)
            if sample.is_of_pose:
                sequence.poses.add(name, sample)
            is_lidar = bool(points) and lidar in (None, name)
            if not is_lidar and not image_field(sample):
                skipped[name] = sample.reading.kind
            elif sample.truth == truth and not is_lidar:
                sequence.add_image(sample)
            elif sample.truth == truth:
                lidar, pose = name, sample.pose
                if pose is None:
                    raise ArgumentError(
                        f"lidar: {name!r} has no pose at {seconds(sample.ns)} s. Record scene.publish(poses=True) from "
                        "the start, and lidars without delay for true scans."
                    )
                sequence.add_scan(_cloud(sample, points), pose.matrix, sample.ns)
        if lidar is None or not sequence.scans:
            raise ArgumentError(f"lidar: got {lidar!r}, expected a recorded lidar with the field points_b.")
        notes = sequence.finish(lidar, root / "poses" / f"{SEQUENCE}.txt")
        written = f"the scans of {lidar}{' and images' if sequence.has_images else ''}"
        return notes + [f"{name} ({kind}): only {written} are written" for name, kind in skipped.items()]


@dataclass(slots=True)
class _Camera:
    """A camera, and its images that may still belong to a scan."""

    number: int
    matrix: Floats | None
    """Intrinsic matrix, px, `[3, 3]`."""
    waiting: deque[tuple[int, Array]] = field(default_factory=deque)
    """Time, ns, and pixels of images, in the order of time."""
    done: int = 0
    """Number of scans with an image."""
    late: int = 0
    """Maximum difference in time of a scan and its image, ns."""


class _Sequence:
    """Files of a sequence."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "velodyne").mkdir(parents=True, exist_ok=True)
        self.poses = SensorPoses()
        self.scans: list[tuple[int, Floats]] = []
        """Time, ns, and pose of the lidar, `[4, 4]`, of each scan."""
        self._cameras: dict[str, _Camera] = {}
        self._notes: dict[str, None] = {}

    @property
    def has_images(self) -> bool:
        """Whether there are images."""
        return bool(self._cameras)

    def add_scan(self, cloud: Array, pose: Floats, ns: int) -> None:
        """Write a scan."""
        cloud.tofile(self._folder / "velodyne" / f"{len(self.scans):06d}.bin")
        self.scans.append((ns, pose))
        self._assign()

    def add_image(self, sample: Sample) -> None:
        """Take an image."""
        name, pixels = sample.reading.name, sample[image_field(sample)]
        camera = self._cameras.get(name)
        if camera is None:
            numbers = GREY if pixels.shape[-1] == 1 else COLOURED
            free = [each for each in numbers if each not in {known.number for known in self._cameras.values()}]
            if not free:
                self._notes[f"{name}: KITTI has two cameras with and two without colours"] = None
                return
            matrix = sample.spec("scalar", unit="px", axes=("row", "column"))
            camera = self._cameras[name] = _Camera(free[0], sample[matrix].astype(np.float64) if matrix else None)
            (self._folder / f"image_{camera.number}").mkdir(exist_ok=True)
        camera.waiting.append((sample.ns, pixels[..., :3]))
        self._assign()

    def _assign(self, is_end: bool = False) -> None:
        """Write the image of each scan for which no later image can be nearer."""
        for camera in self._cameras.values():
            while camera.waiting and camera.done < len(self.scans):
                ns, images = self.scans[camera.done][0], camera.waiting
                while len(images) > 1 and abs(images[1][0] - ns) <= abs(images[0][0] - ns):
                    images.popleft()
                if images[-1][0] < ns and not is_end:
                    break
                camera.late = max(camera.late, abs(images[0][0] - ns))
                write_png(self._folder / f"image_{camera.number}" / f"{camera.done:06d}.png", images[0][1])
                camera.done += 1

    def finish(self, lidar: str, poses: Path) -> list[str]:
        """Write times, poses and the calibration, and return notes."""
        self._assign(is_end=True)
        cameras = sorted(self._cameras.items(), key=lambda each: each[1].number)
        change, lines = OPTICAL, []  # from the lidar to camera 0
        if cameras and (place := self._constant(cameras[0][0], lidar)) is not None:
            change = OPTICAL @ np.linalg.inv(place)
        projections = {
            camera.number: found for name, camera in cameras if (found := self._projection(name, camera, cameras[0][0]))
            is not None
        }  # fmt: skip
        if projections:
            first = next(iter(projections.values()))
            lines = [f"P{number}: {_numbers(projections.get(number, first))}" for number in range(4)]
        lines.append(f"Tr: {_numbers(change)}")
        back = np.linalg.inv(change)
        start = np.linalg.inv(self.scans[0][1])
        poses.parent.mkdir(exist_ok=True)
        for path, texts in (
            (poses, [_numbers(change @ start @ pose @ back) for _, pose in self.scans]),
            (self._folder / "times.txt", [seconds(ns) for ns, _ in self.scans]),
            (self._folder / "calib.txt", lines),
        ):
            path.write_text("\n".join(texts) + "\n", encoding="utf-8")
        for name, camera in cameras:
            if camera.late:
                self._notes[f"{name}: images are up to {camera.late * 1e-6:.3g} ms from their scans"] = None
        return list(self._notes)

    def _projection(self, name: str, camera: _Camera, reference: str) -> Floats | None:
        """Return the projection from the frame of camera 0 to pixels, `[3, 4]`; None if it is unknown."""
        if camera.matrix is None:
            self._notes[f"{name}: it has no intrinsic matrix, so calib.txt has no P{camera.number}"] = None
            return None
        place = np.eye(4) if name == reference else self._constant(reference, name)
        if place is None:
            return None
        pose = OPTICAL @ place @ OPTICAL.T
        if np.abs(pose[:3, :3] - np.eye(3)).max() > PARALLEL:
            self._notes[
                f"{name}: its axes differ from those of {reference}, so P{camera.number} contains a rotation, and "
                "images are not rectified"
            ] = None
        projection: Floats = camera.matrix @ pose[:3]
        return projection

    def _constant(self, name: str, reference: str) -> Floats | None:
        """Return the constant pose of a sensor in the frame of another one; without one, add a note and return None."""
        found = self.poses.relative(name, reference)
        if found is not None and found[1]:
            return found[0]
        self._notes[f"{name}: it has no constant pose relative to {reference}, so calib.txt has none"] = None
        return None


def _points(sample: Sample) -> str:
    """Return the name of the field with points in the sensor's frame, or an empty text."""
    for axes in (("ray", "xyz"), ("ray", "return", "xyz"), ("event", "xyz")):
        if name := sample.spec("point", frame="sensor", axes=axes):
            return name
    return ""


def _cloud(sample: Sample, field: str) -> Array:
    """Return the points of a scan without misses with their intensity (0 where not recorded), float32 `[point, 4]`."""
    points = sample[field].reshape(-1, 3)
    names = [spec.name for spec in sample.reading.specs]
    intensity = sample["intensity"].reshape(-1) if "intensity" in names else np.zeros(len(points), np.float32)
    cloud = np.concatenate([points, intensity[:, None]], axis=1).astype(np.float32)
    return np.ascontiguousarray(cloud[np.isfinite(points).all(axis=1)])


def _numbers(transform: Floats) -> str:
    """Return the upper three rows of a transform as one line."""
    return " ".join(f"{value:.9e}" for value in transform[:3].flatten())
