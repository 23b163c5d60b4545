"""Data sets in the layout of EuRoC: folders ``imu0``, ``cam0`` and ``state_groundtruth_estimate0`` in ``mav0``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from sensorium.errors import ArgumentError
from sensorium.readings import STATES, STATES_OF, Array, Reading, SceneDescription
from sensorium.record.calibration import centred, distortion_of
from sensorium.record.export.calib import DECIMALS, imu_noise, yaml_number, yaml_row
from sensorium.record.export.images import image_field, write_png
from sensorium.record.export.relative import OPTICAL, SensorPoses
from sensorium.record.export.samples import Pose, Sample, TimedFile, samples
from sensorium.record.ros2 import MappedSensor
from sensorium.record.staging import staged

XYZ = ("xyz",)
IMU = "#timestamp [ns]" + "".join(f",w_RS_S_{axis} [rad s^-1]" for axis in "xyz")
IMU += "".join(f",a_RS_S_{axis} [m s^-2]" for axis in "xyz")
CAMERA = "#timestamp [ns],filename"
TRUTH = "#timestamp" + "".join(f", p_RS_R_{axis} [m]" for axis in "xyz")
TRUTH += "".join(f", q_RS_{axis} []" for axis in "wxyz")
DISTORTIONS = {"radtan": "radial-tangential", "equidistant": "equidistant"}
"""Name of a model of distortion in Kalibr -> in EuRoC."""
VELOCITY = "".join(f", v_RS_R_{axis} [m s^-1]" for axis in "xyz")
BIASES = "".join(f", b_w_RS_S_{axis} [rad s^-1]" for axis in "xyz")
BIASES += "".join(f", b_a_RS_S_{axis} [m s^-2]" for axis in "xyz")


def write_euroc(
    readings: Iterable[Reading],
    folder: str | os.PathLike[str],
    *,
    description: SceneDescription | None = None,
    body: str | None = None,
    env: int = 0,
    mount: int = 0,
    start_ns: int = 0,
) -> list[str]:
    """Write IMUs and cameras as measured, and the true poses of one sensor with its velocity and the biases of an IMU.

    IMUs and cameras are numbered in the order of the readings. Their `sensor.yaml` contains T_BS, the pose in the frame
    of `body`, where both have poses; with `description` also the rate, the noise of an IMU, and the intrinsics and the
    distortion of a camera. As in EuRoC, the frame of a camera is optical: x right, y down, z forward.

    The true velocity, in the world, is a field of `body` or among its states, see `Recorder`. The true biases are
    states of `body`, which must be an IMU; where nothing adds a bias they are 0. Without them, their columns are
    omitted, and a message says so.

    Args:
        readings: readings of all sensors. Poses come from `scene.publish(poses=True)`, or from a sensor with the fields
            `pos_w` and `quat_w`.
        folder: folder in which ``mav0`` is created.
        description: description of the scene with the sensors of the readings.
        body: sensor whose frame is the body frame, and whose true poses are written; None takes the first sensor with a
            pose.
        env: the environment.
        mount: mount of sensors that have several.
        start_ns: time at tick 0, ns, e.g. `Trajectory.start_ns`.

    Returns:
        One message for everything that the layout cannot hold.

    Raises:
        ArgumentError: no reading has a pose, and none is of an IMU or a camera.
        MissingDependencyError: there are images, and Pillow is not installed.
    """
    with staged(folder) as root, ExitStack() as stack:
        tree = _Tree(root / "mav0", start_ns, description, stack)
        for sample in samples(readings, env, mount=mount):
            if sample.reading.kind == STATES:
                tree.add_states(sample)
                continue
            pose = sample.pose
            tree.poses.add(sample.reading.name, sample)
            if pose is not None and sample.is_of_pose and body in (None, sample.reading.name):
                body = sample.reading.name
                tree.add_truth(sample, pose)
            tree.add(sample)
        tree.note_skipped()
        if body is None and tree.is_empty:
            raise ArgumentError(
                "body: got no sensor with a pose, expected at least one. Record scene.publish(poses=True), or a "
                "BodyState."
            )
        if body is None:
            tree.notes.append("no sensor has poses, so there are neither true poses nor T_BS")
        else:
            tree.write_truth(body)
        tree.write_calibration(body)
        return tree.notes


class _Tree:
    """Open files of a data set."""

    def __init__(self, root: Path, start_ns: int, description: SceneDescription | None, stack: ExitStack) -> None:
        self._root, self._start_ns, self._stack = root, start_ns, stack
        self._sensors = {} if description is None else description.sensors
        self._calibrations: dict[str, str] = {}
        """Sensor -> lines of `sensor.yaml` after its pose."""
        self._files: dict[Path, TimedFile] = {}
        self._folders: dict[str, Path] = {}
        self._truth: list[tuple[int, int, tuple[float, ...], Array | None]] = []
        """Tick, time (ns), pose, and velocity in the world of the body, m/s."""
        self._states: dict[str, dict[int, dict[str, Array]]] = {}
        """Sensor -> tick -> states."""
        self._imus: dict[str, tuple[str, str]] = {}
        """IMU -> its fields with the rate and the specific force."""
        self.poses = SensorPoses()
        self._skipped: dict[tuple[str, str], int] = {}
        """Name and kind of a sensor -> number of samples that are neither of an IMU nor an image."""
        self.notes: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written."""
        return not self._files

    def add(self, sample: Sample) -> None:
        """Write a measured sample of an IMU or of a camera; other sensors are noted."""
        name = sample.reading.name
        rate, force = (sample.spec(role, frame="sensor", axes=XYZ) for role in ("angular_velocity", "specific_force"))
        image = image_field(sample)
        if rate and force:
            self._imus[name] = rate, force
            folder = self._folder(name, "imu")
            if not sample.truth:
                self._calibrate(sample)
                self._row(folder, IMU, sample.ns, (*sample[rate], *sample[force]))
        elif image:
            folder = self._folder(name, "cam")
            if not sample.truth:
                self._calibrate(sample)
                stem = self._start_ns + sample.ns
                write_png(folder / f"data/{stem}.png", sample[image])
                self._file(folder, CAMERA).write(stem, f"{stem},{stem}.png")
        elif not sample.spec("pose") or sample.spec("image"):
            key = name, sample.reading.kind
            self._skipped[key] = self._skipped.get(key, 0) + (not sample.truth)

    def note_skipped(self) -> None:
        """Note sensors that the layout cannot hold, and those of which it cannot hold some samples."""
        for (name, kind), count in self._skipped.items():
            if name in self._folders:
                self.notes.append(
                    f"{name} ({kind}): {count} samples have neither a rate and a specific force nor an image"
                )
            else:
                self.notes.append(f"{name} ({kind}): EuRoC holds IMUs and images of 8 bits only")

    def add_truth(self, sample: Sample, pose: Pose) -> None:
        """Keep a true pose, and the velocity if the sensor has one."""
        world = sample.spec("vector_at", unit="m/s", frame="world", axes=XYZ)
        local = world or sample.spec("vector_at", unit="m/s", frame="sensor", axes=XYZ)
        velocity: Array | None = None
        if sample.truth and local:
            velocity = sample[local].astype(np.float64)
            velocity = velocity if world else pose.matrix[:3, :3] @ velocity
        self._truth.append((sample.tick, sample.tick_ns, (*pose.pos, *pose.quat), velocity))

    def add_states(self, sample: Sample) -> None:
        """Keep the states of a sensor."""
        if not sample.truth:
            found = {spec.name: sample[spec.name] for spec in sample.reading.specs}
            self._states.setdefault(sample.reading.name.removesuffix(STATES_OF), {})[sample.tick] = found

    def write_truth(self, body: str) -> None:
        """Write the true poses, with velocities and biases where they are known."""
        states, fields = self._states.get(body, {}), self._imus.get(body)
        omitted = 0
        has_velocity = bool(self._truth) and self._truth[0][3] is not None
        has_velocity |= any("lin_vel_w" in each for each in states.values())
        has_biases = has_velocity and bool(states) and fields is not None
        header = TRUTH + VELOCITY * has_velocity + BIASES * has_biases
        for tick, ns, values, velocity in self._truth:
            state = states.get(tick, {})
            velocity = state.get("lin_vel_w") if velocity is None else velocity
            if (has_velocity and velocity is None) or (has_biases and not state):
                omitted += 1
                continue
            if has_velocity and velocity is not None:
                values = (*values, *velocity)
            for field in fields or () if has_biases else ():
                values = (*values, *state.get(f"bias_{field}", np.zeros(3)))
            self._row(self._root / "state_groundtruth_estimate0", header, ns, values)
        if omitted:
            self.notes.append(f"{body}: {omitted} true poses without a velocity or biases at the same time")
        missing = [name for name, has in (("velocity", has_velocity), ("biases", has_biases)) if not has]
        if missing:
            self.notes.append(
                f"{body}: the true {' and '.join(missing)}, which an IMU has if it is recorded with its states "
                "(--states, states=True)"
            )

    def _calibrate(self, sample: Sample) -> None:
        """Keep the calibration of a sensor from its first sample."""
        name = sample.reading.name
        if name in self._calibrations or name not in self._sensors:
            return
        sensor = MappedSensor.from_description(name, self._sensors[name])
        lines = [f"rate_hz: {yaml_number(sensor.rate_hz)}"]
        if self._folders[name].name.startswith("imu"):
            lines += [f"{each}: {yaml_number(value)}" for each, value in imu_noise(sensor)[0].items()]
        elif camera := _camera(sensor, sample):
            lines += camera
        else:
            self.notes.append(f"{name}: the intrinsics of its lens; sensorium calib may write them in other formats")
        self._calibrations[name] = "".join(f"{line}\n" for line in lines)

    def write_calibration(self, body: str | None) -> None:
        """Write `sensor.yaml` of each sensor: its pose in the body's frame, and its calibration."""
        for name, folder in self._folders.items():
            is_camera = folder.name.startswith("cam")
            text = f"sensor_type: {'camera' if is_camera else 'imu'}\ncomment: {json.dumps(name)}\n"
            found = None if body is None else self.poses.relative(name, body)
            if found is not None:
                pose = found[0] @ OPTICAL.T if is_camera else found[0]
                text += f"T_BS:\n  cols: 4\n  rows: 4\n  data: {yaml_row(np.round(pose, DECIMALS).flatten())}\n"
            if body is not None and found is None:
                self.notes.append(f"{name}: no pose at a common time with {body}, so sensor.yaml has no T_BS")
            elif found is not None and not found[1]:
                self.notes.append(f"{name}: it moves relative to {body}; T_BS is its first pose")
            text += self._calibrations.get(name, "")
            (folder / "sensor.yaml").write_text(text, encoding="utf-8")

    def _folder(self, name: str, kind: str) -> Path:
        if name not in self._folders:
            number = sum(folder.name.startswith(kind) for folder in self._folders.values())
            self._folders[name] = self._root / f"{kind}{number}"
            (self._folders[name] / ("data" if kind == "cam" else "")).mkdir(parents=True, exist_ok=True)
        return self._folders[name]

    def _file(self, folder: Path, header: str) -> TimedFile:
        if folder not in self._files:
            folder.mkdir(parents=True, exist_ok=True)
            self._files[folder] = self._stack.enter_context(closing(TimedFile(folder / "data.csv", header)))
        return self._files[folder]

    def _row(self, folder: Path, header: str, ns: int, values: Sequence[float]) -> None:
        numbers = ",".join(f"{float(value):.9g}" for value in values)
        self._file(folder, header).write(self._start_ns + ns, f"{self._start_ns + ns},{numbers}")


def _camera(sensor: MappedSensor, sample: Sample) -> list[str]:
    """Return the lines of `sensor.yaml` about the image of a camera; none for a lens without a model in EuRoC."""
    image, spec = sensor.field(role="image"), sensor.field(unit="px", shape=(3, 3))
    distortion = distortion_of(sensor.cfg)
    if image is None or spec is None or distortion is None or distortion.kalibr not in DISTORTIONS:
        return []
    fx, fy, cx, cy = centred(sample[spec.name])[[0, 1, 0, 1], [0, 1, 2, 2]]
    return [
        f"resolution: [{image.shape[1]}, {image.shape[0]}]",
        "camera_model: pinhole",
        f"intrinsics: {yaml_row([fx, fy, cx, cy])}",
        f"distortion_model: {DISTORTIONS[distortion.kalibr]}",
        f"distortion_coefficients: {yaml_row(distortion.coefficients[:4])}",
    ]
