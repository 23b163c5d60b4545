"""Calibration files of recorded sensors: Kalibr's camera chain and IMUs, `camera_info` of ROS, and extrinsics.

    camchain.yaml          cameras in the format of Kalibr: projection, distortion, and poses relative to each other
    imu0.yaml              noise of the first IMU in the format of Kalibr; the second IMU is imu1.yaml
    camera_info/NAME.yaml  intrinsics of a camera in the format of ROS
    extrinsics.yaml        poses of all sensor frames in the frame of a reference sensor

Principal points are those of Kalibr, ROS and OpenCV, for which the centre of the first pixel is at (0, 0).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sensorium.readings import STATES, Array, Reading, SceneDescription
from sensorium.record.archive import LONGEST
from sensorium.record.calibration import Distortion, centred, distortion_of, noise_of
from sensorium.record.export.relative import OPTICAL, SensorPoses
from sensorium.record.export.samples import Floats, Sample, samples
from sensorium.record.ros2 import MappedSensor, Ros2Messages
from sensorium.record.ros2.names import OPTICAL as OPTICAL_NAME
from sensorium.record.ros2.names import numbered, ros_name
from sensorium.record.staging import staged

Frame = tuple[str, int]
"""A sensor's name and one of its mounts."""
DECIMALS = 9
"""Decimals of poses, m and 1; recorded poses are float32."""
_KALIBR_NOISE = {"accelerometer": ("specific_force", "acc"), "gyroscope": ("angular_velocity", "gyro")}
"""Name in Kalibr -> role of the field, and prefix of its knobs."""


@dataclass(slots=True)
class _Camera:
    """One mount of a camera."""

    frame: Frame
    matrix: Floats
    """Intrinsic matrix at the first frame, px, `[3, 3]`."""
    size: tuple[int, int]
    """Width and height, px."""
    distortion: Distortion | None
    changed: bool = False


@dataclass(slots=True)
class _Seen:
    """Contents of the readings."""

    poses: SensorPoses = field(default_factory=SensorPoses)
    cameras: dict[Frame, _Camera] = field(default_factory=dict)
    delays: dict[str, float] = field(default_factory=dict)
    """Sensor -> sum of time stamp - capture time, s."""
    counts: dict[str, int] = field(default_factory=dict)

    def shift(self, name: str) -> float:
        """Return the mean of time stamp - capture time, s."""
        return self.delays.get(name, 0.0) / max(self.counts.get(name, 0), 1)


def write_calibration(
    readings: Iterable[Reading], folder: str | os.PathLike[str], description: SceneDescription, *, env: int = 0
) -> list[str]:
    """Write the calibration of cameras and IMUs, and the poses of all sensors relative to each other.

    Args:
        readings: readings of the sensors. Without poses, the constant places in the description apply.
        folder: folder for the files; created if missing.
        description: description of the scene with the sensors of the readings.
        env: the environment.

    Returns:
        One message for each conversion, and for everything that the formats cannot hold.

    Raises:
        ArgumentError: no reading contains the environment.
    """
    with staged(folder) as root:
        sensors = {name: MappedSensor.from_description(name, about) for name, about in description.sensors.items()}
        seen = _seen(readings, sensors, env)
        for name, about in description.sensors.items():
            for mount, place in enumerate(about.get("frames", ())):
                seen.poses.place((name, mount), place["body"], place["pose"])
        bag = Ros2Messages(description, [env])
        notes: list[str] = []
        imus = [
            (name, mount)
            for name, sensor in sensors.items()
            if all(sensor.field(role=role, frame="sensor") for role, _ in _KALIBR_NOISE.values())
            for mount in range(len(sensor.mounts) or 1)
        ]
        for number, frame in enumerate(imus):
            notes += _write_imu(root / f"imu{number}.yaml", sensors[frame[0]], _topic(bag, frame, "Imu"))
        notes += _write_cameras(root, seen, sensors, bag, imus[0] if imus else None)
        return notes + _write_extrinsics(root / "extrinsics.yaml", seen.poses, sensors, imus)


def _seen(readings: Iterable[Reading], sensors: Mapping[str, MappedSensor], env: int) -> _Seen:
    """Return the contents of the readings of one environment."""
    seen = _Seen()
    for sample in samples(readings, env):
        name = sample.reading.name
        sensor = sensors[name]
        mounts = range(len(sensor.mounts) or 1)
        if sample.is_of_pose:
            for mount in mounts:
                seen.poses.add((name, mount), replace(sample, mount=mount))
        if not sample.truth:
            seen.delays[name] = seen.delays.get(name, 0.0) + (sample.ns - sample.tick_ns) * 1e-9
            seen.counts[name] = seen.counts.get(name, 0) + 1
            for mount in mounts if _size(sensor) else ():
                _take_camera(seen, sensor, (name, mount), replace(sample, mount=mount))
    return seen


def _size(sensor: MappedSensor) -> tuple[int, int] | None:
    """Return width and height of a camera's images, px; None for other sensors."""
    image = sensor.field(role="image")
    if image is None or sensor.field(unit="px", shape=(3, 3)) is None:
        return None
    return image.shape[1], image.shape[0]


def _take_camera(seen: _Seen, sensor: MappedSensor, frame: Frame, sample: Sample) -> None:
    spec, size = sensor.field(unit="px", shape=(3, 3)), _size(sensor)
    assert spec is not None and size is not None
    matrix = centred(sample[spec.name])
    known = seen.cameras.get(frame)
    if known is None:
        seen.cameras[frame] = _Camera(frame, matrix, size, distortion_of(sensor.cfg))
    elif not np.array_equal(matrix, known.matrix):
        known.changed = True


def _topic(bag: Ros2Messages, frame: Frame, message: str) -> str:
    """Return the topic of a message of one sensor and mount in a bag, colour images first; empty without one."""
    found = [each.name for each in bag.topics_of(*frame) if each.type == f"sensor_msgs/msg/{message}"]
    return min(found, key=lambda topic: "/color/" not in topic, default="")


# Files ----------------------------------------------------------------------------------------------------------------


def imu_noise(sensor: MappedSensor) -> tuple[dict[str, float], list[str]]:
    """Return the noise of an IMU by its name in Kalibr and EuRoC, and one message for each conversion.

    Densities are in unit/sqrt(Hz), random walks in unit*sqrt(Hz), as `gyroscope_noise_density`. Those that the config
    does not define are missing: estimators divide by them, so that 0 is not a value.
    """
    values: dict[str, float] = {}
    notes: list[str] = []
    for word, (role, prefix) in _KALIBR_NOISE.items():
        spec = sensor.field(role=role, frame="sensor")
        assert spec is not None
        noise = noise_of(sensor.cfg, spec, prefix, sensor.rate_hz)
        notes += noise.notes
        values |= {f"{word}_noise_density": noise.density, f"{word}_random_walk": noise.random_walk}
    return {name: value for name, value in values.items() if value}, notes


def _write_imu(path: Path, sensor: MappedSensor, topic: str) -> list[str]:
    """Write the noise of an IMU, and return notes."""
    values, notes = imu_noise(sensor)
    lines = [f"# sensor {sensor.name}", *(f"{name}: {yaml_number(value)}" for name, value in values.items())]
    missing = [f"{word}_{end}" for word in _KALIBR_NOISE for end in ("noise_density", "random_walk")]
    for name in (name for name in missing if name not in values):
        lines.append(f"# {name}: the config of the sensor defines none, and Kalibr requires a value above 0")
        notes.append(f"{name} is missing, since the config defines none; Kalibr requires it. Add it to the file")
    others = [each["kind"] for each in sensor.cfg.get("stages", ()) if each["kind"] != "gauss_markov"]
    others += [knob for knob in ("bias", "resolution") if any(key.endswith(knob) for key in sensor.cfg)]
    if others:
        notes.append(f"the format has no place for {', '.join(dict.fromkeys(others))}")
    lines += [f"rostopic: {topic}", f"update_rate: {yaml_number(sensor.rate_hz)}"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [f"{sensor.name}, {path.name}: {note}" for note in notes]


def _write_cameras(
    root: Path, seen: _Seen, sensors: Mapping[str, MappedSensor], bag: Ros2Messages, imu: Frame | None
) -> list[str]:
    """Write the camera chain and the intrinsics of each camera, and return notes."""
    notes: list[str] = []
    chain: list[str] = []
    before: Frame | None = None
    for frame, camera in seen.cameras.items():
        name = _label(frame, sensors)
        if camera.changed:
            notes.append(f"{name}: its intrinsic matrix changed; the first one is written")
        if camera.distortion is None:
            lens = sensors[frame[0]].cfg["lens"]["kind"]
            notes.append(f"{name}: neither Kalibr nor ROS has a model of the lens {lens}")
            continue
        (root / "camera_info").mkdir(exist_ok=True)
        paths = (root / "camera_info" / f"{each}.yaml" for each in numbered(ros_name(name).replace("/", "_")[:LONGEST]))
        file = next(path for path in paths if not path.exists())
        file.write_text(_camera_info(file.stem, camera, camera.distortion), encoding="utf-8")
        if not camera.distortion.kalibr:
            notes.append(f"{name}: Kalibr has no model with its coefficients of distortion; camera_info has them")
            continue
        fx, fy, cx, cy = camera.matrix[[0, 1, 0, 1], [0, 1, 2, 2]]
        lines = [
            f"cam{len(chain)}:  # sensor {name}",
            "  camera_model: pinhole",
            f"  intrinsics: {yaml_row([fx, fy, cx, cy])}",
            f"  distortion_model: {camera.distortion.kalibr}",
            f"  distortion_coeffs: {yaml_row(camera.distortion.coefficients[:4])}",
            f"  resolution: [{camera.size[0]}, {camera.size[1]}]",
            f"  rostopic: {_topic(bag, frame, 'Image')}",
        ]
        for other, word in ((imu, "T_cam_imu"), (before, "T_cn_cnm1")):
            if other is None:
                continue
            pose = _constant(seen.poses, other, frame, sensors, notes)
            if pose is not None:
                after = np.eye(4) if other == imu else OPTICAL.T
                lines += [f"  {word}:", *(f"  - {yaml_row(row)}" for row in np.round(OPTICAL @ pose @ after, DECIMALS))]
        if imu is not None:
            shift = seen.shift(imu[0]) - seen.shift(frame[0])
            lines.append(f"  timeshift_cam_imu: {yaml_number(shift)}  # s, t_imu = t_cam + shift")
        chain.append("\n".join(lines) + "\n")
        before = frame
    if chain:
        (root / "camchain.yaml").write_text("".join(chain), encoding="utf-8")
    return notes


def _camera_info(name: str, camera: _Camera, distortion: Distortion) -> str:
    """Return the intrinsics of a camera in the format of ROS."""
    k = camera.matrix
    p = np.concatenate([k, np.zeros((3, 1))], axis=1)
    text = f"image_width: {camera.size[0]}\nimage_height: {camera.size[1]}\n"
    text += f"camera_name: {name}\n{_matrix('camera_matrix', k)}"
    text += f"distortion_model: {distortion.model}\n"
    text += _matrix("distortion_coefficients", np.array([distortion.coefficients]))
    return text + _matrix("rectification_matrix", np.eye(3)) + _matrix("projection_matrix", p)


def _write_extrinsics(
    path: Path, poses: SensorPoses, sensors: Mapping[str, MappedSensor], imus: Sequence[Frame]
) -> list[str]:
    """Write the poses of all sensor frames in the frame of a reference sensor, and return notes."""
    mounted = {name: sensor for name, sensor in sensors.items() if sensor.kind != STATES}
    frames = [(name, mount) for name, sensor in mounted.items() for mount in range(len(sensor.mounts) or 1)]
    notes = [f"{_label(frame, sensors)}: it has no poses, so extrinsics.yaml omits it"
             for frame in frames if frame not in poses]  # fmt: skip
    left = [frame for frame in (*imus, *(each for each in frames if each not in imus)) if frame in poses]
    text = (
        "# Poses of sensor frames (x forward, y left, z up) in the frame of a reference sensor that moves with them.\n"
    )
    text += (
        "# A point p of the sensor's frame is at T p in the frame of the reference. Frames that end in _optical are\n"
    )
    text += "# those of images (x right, y down, z forward).\n"
    groups = []
    while left:
        reference, rest = left[0], []
        groups.append(_label(reference, sensors))
        text += f"- reference: {_quoted(groups[-1])}\n  frames:\n"
        for frame in left:
            found = poses.relative(frame, reference)
            if found is None or not found[1]:
                rest.append(frame)
                continue
            text += _frame(_label(frame, sensors), found[0])
            if _size(sensors[frame[0]]):
                text += _frame(_label(frame, sensors) + OPTICAL_NAME, found[0] @ OPTICAL.T)
        left = rest
    if len(groups) > 1:
        notes.append(f"extrinsics.yaml has groups that move relative to each other, those of {', '.join(groups)}")
    path.write_text(text, encoding="utf-8")
    return notes


def _constant(
    poses: SensorPoses, frame: Frame, reference: Frame, sensors: Mapping[str, MappedSensor], notes: list[str]
) -> Floats | None:
    """Return the constant pose of a frame in another one; without one, add a note and return None."""
    found = poses.relative(frame, reference)
    if found is not None and found[1]:
        return found[0]
    why = "no poses at a common time" if found is None else "no constant relative pose"
    notes.append(f"{_label(reference, sensors)} and {_label(frame, sensors)} have {why}, so camchain.yaml has none")
    return None


def _frame(label: str, pose: Floats) -> str:
    pose = np.round(pose, DECIMALS)
    rows = "".join(f"    - {yaml_row(row)}\n" for row in pose)
    return (
        f"  - name: {_quoted(label)}\n    position: {yaml_row(pose[:3, 3])}  # m\n"
        f"    quaternion_wxyz: {yaml_row(_quaternion(pose[:3, :3]))}\n    T:\n{rows}"
    )


def _quaternion(turn: Array) -> Array:
    """Return the unit quaternion wxyz of a rotation matrix, with w >= 0."""
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = turn
    # The eigenvector of the greatest eigenvalue: exact for all rotations (Bar-Itzhack, J. Guidance 23, 2000).
    k = np.array([
        [xx + yy + zz, zy - yz, xz - zx, yx - xy],
        [zy - yz, xx - yy - zz, xy + yx, xz + zx],
        [xz - zx, xy + yx, yy - xx - zz, yz + zy],
        [yx - xy, xz + zx, yz + zy, zz - xx - yy],
    ])  # fmt: skip
    quat: Array = np.linalg.eigh(k)[1][:, -1]
    return quat if quat[0] >= 0.0 else -quat


def _label(frame: Frame, sensors: Mapping[str, MappedSensor]) -> str:
    name, mount = frame
    mounts = sensors[name].mounts
    return f"{name}/{mounts[mount]}" if mounts else name


def _matrix(name: str, values: Array) -> str:
    rows, columns = values.shape
    return f"{name}:\n  rows: {rows}\n  cols: {columns}\n  data: {yaml_row(values.flatten())}\n"


def yaml_row(values: Iterable[Any]) -> str:
    """Return numbers as a list of YAML."""
    return f"[{', '.join(map(yaml_number, values))}]"


def yaml_number(value: Any) -> str:
    """Return a number that every version of YAML reads as a float."""
    text = f"{float(value) + 0.0:.9g}"  # never -0
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}{mark}{exponent}"


def _quoted(text: str) -> str:
    return json.dumps(text)
