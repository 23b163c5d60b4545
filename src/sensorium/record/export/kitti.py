"""Lidar data sets in the layout of KITTI's odometry benchmark: scans, images, poses, times and the calibration.

Files of sequence 00 below the folder:

    sequences/00/velodyne/000000.bin   float32 x, y, z, intensity of each point, in the sensor's frame
    sequences/00/image_0/000000.png    images of the first camera without colours; image_1 of the second one
    sequences/00/image_2/000000.png    images of the first camera with colours; image_3 of the second one
    sequences/00/times.txt             time of each scan, s
    sequences/00/calib.txt             P0 to P3 and Tr, each [3, 4] by rows
    sequences/00/point_times/000000.bin  float32 firing time of each point of the scan relative to times.txt, s
    sequences/00/oxts/data/000000.txt  30 true values of a navigation system, nearest in time to the scan
    sequences/00/oxts/times.txt        time of each of these, s
    poses/00.txt                       pose of camera 0 in its first frame for each scan, [3, 4] by rows

All poses are those of camera 0 (x right, y down, z forward): of image_0, or of image_2 without it. Tr is the transform
from the lidar to camera 0. Pi projects points in the frame of camera 0 to pixels of image_i. Without cameras, camera 0
has the place of the lidar, so that Tr only exchanges axes. A point p of scan k is at inv(Tr) pose_k Tr p in the lidar's
frame at the first scan.

The values of `oxts` follow the raw data of KITTI: place and velocity of the antenna of a GNSS receiver; roll, pitch and
yaw (0 is east) of an IMU, its accelerations with gravity and its rates, in its frame (x, y, z) and in the level frame
that has only its yaw (f, l, u). They are true, so both accuracies are 0. The status, satellites and
modes are unknown: -1.
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
OUTDATED = tuple(
    f"sequences/{SEQUENCE}/{files}"
    for files in ("velodyne/*.bin", "image_?/*.png", "point_times/*.bin", "oxts/data/*.txt")
)
"""Files of an earlier sequence."""
GREY, COLOURED = (0, 1), (2, 3)
"""Numbers of the folders of images."""
XYZ, KEPT = ("xyz",), 4096
"""Axes of a vector, and number of the samples of an IMU that wait for those of a GNSS receiver."""
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
            sequence.oxts.add(sample)
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
                sequence.add_scan(*_cloud(sample, points), pose.matrix, sample.ns)
        if lidar is None or not sequence.scans:
            raise ArgumentError(f"lidar: got {lidar!r}, expected a recorded lidar with the field points_b.")
        notes = sequence.finish(lidar, root / "poses" / f"{SEQUENCE}.txt")
        notes += sequence.oxts.write(root / "sequences" / SEQUENCE / "oxts", [ns for ns, _ in sequence.scans])
        written = f"the scans of {lidar}{' and images' if sequence.has_images else ''}"
        return notes + [
            f"{name} ({kind}): only {written} are written"
            for name, kind in skipped.items()
            if name not in sequence.oxts.sensors
        ]


class _Oxts:
    """True values of a GNSS receiver and of an IMU, as packets of a navigation system."""

    def __init__(self) -> None:
        self._gnss = self._imu = ""
        self.sensors: tuple[str, ...] = ()
        """The sensors whose values were written."""
        self._places: dict[int, tuple[int, Floats, Floats]] = {}
        """Tick -> time (ns), latitude, longitude and height, and velocity to the east, north and up."""
        self._motions: dict[int, tuple[Floats, Floats]] = {}
        """Tick -> specific force and rate of the IMU."""
        self._turns: dict[int, Floats] = {}
        """Tick -> orientation of the IMU, `[3, 3]`."""

    def add(self, sample: Sample) -> None:
        """Keep a sample of the first receiver or IMU."""
        name = sample.reading.name
        place, velocity = sample.spec("scalar", unit="deg, deg, m"), sample.spec("scalar", unit="m/s", frame="enu")
        rate, force = (sample.spec(role, frame="sensor", axes=XYZ) for role in ("angular_velocity", "specific_force"))
        if place and velocity and self._gnss in ("", name):
            self._gnss = name
            if sample.truth:
                at, speed = (sample[each].astype(np.float64) for each in (place, velocity))
                self._places[sample.tick] = sample.ns, at, speed
        elif rate and force and self._imu in ("", name):
            self._imu = name
            if sample.truth:
                self._motions[sample.tick] = sample[force].astype(np.float64), sample[rate].astype(np.float64)
            if sample.is_of_pose and (pose := sample.pose) is not None:
                self._turns[sample.tick] = pose.matrix[:3, :3]
            for kept in (self._motions, self._turns):
                while len(kept) > KEPT + len(self._places):
                    del kept[next((tick for tick in kept if tick not in self._places), next(iter(kept)))]

    def write(self, folder: Path, scans: list[int]) -> list[str]:
        """Write the packet nearest to each scan, and return notes.

        Args:
            folder: the folder.
            scans: time of each scan, ns.
        """
        ticks = sorted(self._places.keys() & self._motions.keys() & self._turns.keys())
        if not ticks:
            return [f"oxts: {self._gnss} needs an IMU with poses at the same times"] if self._gnss else []
        self.sensors = self._gnss, self._imu
        times = np.array([self._places[tick][0] for tick in ticks])
        (folder / "data").mkdir(parents=True)
        nearest = [int(np.abs(times - ns).argmin()) for ns in scans]
        for number, k in enumerate(nearest):
            values = [f"{each:.17g}" for each in self._packet(ticks[k])] + ["-1"] * 5
            (folder / "data" / f"{number:06d}.txt").write_text(" ".join(values) + "\n", encoding="utf-8")
        stamps = "".join(f"{seconds(int(times[k]))}\n" for k in nearest)
        (folder / "times.txt").write_text(stamps, encoding="utf-8")
        late = max(abs(int(times[k]) - ns) for k, ns in zip(nearest, scans, strict=True))
        return [f"oxts: its values are up to {late * 1e-6:.3g} ms from their scans"] if late else []

    def _packet(self, tick: int) -> Floats:
        """Return the first 25 values of a packet."""
        _, place, (east, north, up) = self._places[tick]
        (force, rate), turn = self._motions[tick], self._turns[tick]
        roll, pitch = np.arctan2(turn[2, 1], turn[2, 2]), -np.arcsin(np.clip(turn[2, 0], -1.0, 1.0))
        yaw = np.arctan2(turn[1, 0], turn[0, 0])
        cos, sin = np.cos(yaw), np.sin(yaw)
        level = np.array([[cos, sin, 0.0], [-sin, cos, 0.0], [0.0, 0.0, 1.0]])  # from the world
        angles, ahead = (roll, pitch, yaw), level @ (east, north, up)
        values = (
            place,
            angles,
            (north, east),
            ahead,
            force,
            level @ turn @ force,
            rate,
            level @ turn @ rate,
            (0.0, 0.0),
        )
        packet: Floats = np.concatenate(values)
        return packet


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
        self.poses, self.oxts = SensorPoses(), _Oxts()
        self.scans: list[tuple[int, Floats]] = []
        """Time, ns, and pose of the lidar, `[4, 4]`, of each scan."""
        self._cameras: dict[str, _Camera] = {}
        self._notes: dict[str, None] = {}

    @property
    def has_images(self) -> bool:
        """Whether there are images."""
        return bool(self._cameras)

    def add_scan(self, cloud: Array, times: Array | None, pose: Floats, ns: int) -> None:
        """Write a scan, with the firing times of its points if they are known."""
        cloud.tofile(self._folder / "velodyne" / f"{len(self.scans):06d}.bin")
        if times is not None:
            (self._folder / "point_times").mkdir(exist_ok=True)
            times.tofile(self._folder / "point_times" / f"{len(self.scans):06d}.bin")
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


def _cloud(sample: Sample, field: str) -> tuple[Array, Array | None]:
    """Return the points of a scan without misses with their intensity (0 where not recorded), and their firing times.

    Points are float32 `[point, 4]`, times float32 `[point]`, s; None where not recorded.
    """
    points = sample[field].reshape(-1, 3)
    names = [spec.name for spec in sample.reading.specs]
    intensity = sample["intensity"].reshape(-1) if "intensity" in names else np.zeros(len(points), np.float32)
    cloud, hit = np.concatenate([points, intensity[:, None]], axis=1), np.isfinite(points).all(axis=1)
    times: Array | None = None
    if "time_offset" in names:
        offsets = sample["time_offset"].astype(np.float32).reshape(-1)
        times = np.repeat(offsets, len(points) // len(offsets))[hit] if len(offsets) else offsets
    return np.ascontiguousarray(cloud.astype(np.float32)[hit]), times


def _numbers(transform: Floats) -> str:
    """Return the upper three rows of a transform as one line."""
    return " ".join(f"{value:.9e}" for value in transform[:3].flatten())
