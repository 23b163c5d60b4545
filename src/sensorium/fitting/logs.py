"""Samples of one sensor in logs of several formats, in SI units."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from sensorium.errors import MissingDependencyError, ModelError, SensoriumError, UnknownNameError, listed
from sensorium.fitting.lidar import lidar_samples
from sensorium.fitting.samples import UNITS, Samples
from sensorium.readings import Array

SI: Mapping[str, tuple[float, str]] = {
    "rad/s": (1.0, "rad/s"), "rad s^-1": (1.0, "rad/s"), "deg/s": (np.pi / 180.0, "rad/s"),
    "dps": (np.pi / 180.0, "rad/s"),
    "m/s^2": (1.0, "m/s^2"), "m s^-2": (1.0, "m/s^2"), "m/s2": (1.0, "m/s^2"), "g": (9.80665, "m/s^2"),
    "mg": (9.80665e-3, "m/s^2"), "T": (1.0, "T"), "uT": (1e-6, "T"), "µT": (1e-6, "T"), "mT": (1e-3, "T"),
    "G": (1e-4, "T"), "gauss": (1e-4, "T"), "Pa": (1.0, "Pa"), "hPa": (100.0, "Pa"), "mbar": (100.0, "Pa"),
    "N": (1.0, "N"), "N m": (1.0, "N m"), "Nm": (1.0, "N m"),
    "s": (1.0, "s"), "ms": (1e-3, "s"), "us": (1e-6, "s"), "ns": (1e-9, "s"),
}  # fmt: skip
"""Unit as logs write it -> factor, and SI unit. g is standard gravity (CGPM 1901)."""
FIELDS: Mapping[str, Mapping[str, str]] = {
    "imu": {"ang_vel_b": r"gyr|\bw_rs|ang_?vel|angular_vel", "lin_acc_b": r"acc|\ba_rs"},
    "magnetometer": {"mag_b": r"mag"},
    "barometer": {"pressure": r"press|baro"},
    "force_torque": {"force": r"force|^f[xyz]", "torque": r"torque|^t[xyz]"},
}
"""Kind -> field -> pattern of the columns of a table, in lower case. Those of covariances do not count."""
TIMES = re.compile(r"^[#%]?\s*(time|timestamp|stamp|t)\b", re.IGNORECASE)
UNIT = re.compile(r"[(\[]([^)\]]*)[)\]]\s*$")
SUFFIXES = (".mcap", ".db3", ".npz", ".bag", ".ulg", ".csv")
"""Ends of the names of logs that are files."""
LEROBOT = "meta/info.json"
ULOG = {
    "imu": (("sensor_combined",), {"ang_vel_b": ("gyro_rad", "rad/s"), "lin_acc_b": ("accelerometer_m_s2", "m/s^2")}),
    "magnetometer": (("vehicle_magnetometer", "sensor_combined"), {"mag_b": ("magnetometer_ga", "gauss")}),
    "barometer": (("vehicle_air_data",), {"pressure": ("baro_pressure_pa", "Pa")}),
}
"""Kind -> topics of a ULog file, the first one that it has; and field -> its columns and unit."""


def read_samples(
    path: str | os.PathLike[str],
    kind: str,
    sensor: str = "",
    units: Mapping[str, str] | None = None,
    *,
    truth: bool = False,
) -> Samples:
    """Return the samples of one sensor of a log, in SI units.

    Args:
        path: a recording, a ROS 2 or ROS 1 bag, a ULog file, a CSV table with a header, an npz file with one array per
            field and `time`, the folder of a EuRoC sensor with data.csv, or the longest episode of a LeRobot data set.
        kind: kind of the sensor config, which names the fields.
        sensor: name of the sensor or topic, or a part of the names of its columns; empty for the only one with such
            fields.
        units: field -> unit in the log, where it does not state one; ``"time"`` for the times of a table.
        truth: whether to return true instead of measured values where a recording has them, as a reference.

    Raises:
        ModelError: the log is missing, is damaged, or has no such sensor.
        UnknownNameError: no sensor has that name, or a unit is unknown or of another quantity.
        MissingDependencyError: the package that reads the format is not installed.
    """
    path = Path(path)
    if kind not in FIELDS and kind != "lidar":
        raise UnknownNameError("kind of sensor whose log can be read", kind, [*FIELDS, "lidar"])
    if not path.exists():
        raise ModelError(f"log {os.fspath(path)!r} does not exist. Check the path.")
    if path.is_file() and path.suffix.lower() not in SUFFIXES:
        raise ModelError(
            f"log {os.fspath(path)!r}: got a file {path.suffix!r}, expected {listed(SUFFIXES)}. Convert it."
        )
    if kind == "lidar":
        return _of_scans(path, sensor)
    if (path / "data.csv").exists():
        path = path / "data.csv"
    units = units or {}
    for name in units:
        if name not in FIELDS[kind] and name != "time":
            raise UnknownNameError("field with a unit", name, [*FIELDS[kind], "time"])
    readers: Mapping[str, Callable[..., Samples]] = {
        ".csv": partial(_of_table, time_unit=units.get("time", "")),
        ".ulg": _of_ulog,
        ".bag": _of_ros1,
        ".npz": partial(_of_arrays, truth=truth),
    }
    read = readers.get(path.suffix.lower(), partial(_of_recording, truth=truth))
    if (path / LEROBOT).exists():
        read = _of_lerobot
    try:
        samples = read(path, kind, sensor)
    except SensoriumError:
        raise
    except Exception as error:  # packages that read formats have errors of any class
        reason = str(error).rstrip(".")
        raise ModelError(f"log {os.fspath(path)!r} cannot be read: {reason}. Correct or replace the file.") from error
    if not len(samples):
        raise ModelError(f"log {os.fspath(path)!r} has no samples of this sensor. Record it for longer.")
    return _in_si(samples, units)


def _in_si(samples: Samples, units: Mapping[str, str]) -> Samples:
    values, known = dict(samples.values), dict(samples.units)
    for name in values:
        unit = units.get(name, known.get(name, ""))
        if not unit:
            continue
        expected = [each for each, (_, si) in SI.items() if si == UNITS.get(name, "T")]
        if unit not in expected:
            raise UnknownNameError(f"unit of {name}", unit, expected)
        factor, known[name] = SI[unit]
        values[name] = values[name] * factor
    return replace(samples, values=values, units=known)


def _no_sensor(path: Path, kind: str, has: Sequence[str]) -> ModelError:
    return ModelError(
        f"log {os.fspath(path)!r} has no sensor with {' or '.join(FIELDS[kind])} of kind {kind!r}, got "
        f"{listed(has)}. Choose another --sensor or --kind."
    )


def _columns_of(path: Path, kind: str, sensor: str, header: Sequence[str]) -> dict[str, list[int]]:
    """Return field -> its columns of a table, x, y and z."""
    found = {}
    usable = [k for k, each in enumerate(header) if sensor in each and not TIMES.match(each) and "cov" not in each]
    for name, pattern in FIELDS[kind].items():
        columns = [k for k in usable if re.search(pattern, header[k], re.IGNORECASE)]
        size = 1 if name == "pressure" else 3
        if columns and len(columns) != size:
            names = listed([header[k] for k in columns])
            raise ModelError(
                f"log {os.fspath(path)!r}: {name}: got the columns {names}, expected {size}. Give a part of the names "
                "that the others do not have: --sensor PART."
            )
        if columns:
            found[name] = columns
    if not found:
        raise _no_sensor(path, kind, header)
    return found


def _of_table(path: Path, kind: str, sensor: str, time_unit: str) -> Samples:
    """Return the samples of a CSV table, whose header gives names and units, such as ``Gyroscope X (deg/s)``."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = [each.strip() for each in next(csv.reader(file), [])]
        times = [k for k, each in enumerate(header) if TIMES.match(each)]
        if not times:
            raise ModelError(
                f"table {os.fspath(path)!r}: expected a header with a column `time`, got {listed(header)}. Add it."
            )
        fields = _columns_of(path, kind, sensor, header)
        used = [times[0], *(k for columns in fields.values() for k in columns)]
        table = np.loadtxt(file, np.float64, delimiter=",", usecols=used, ndmin=2)
    unit = time_unit or _unit_of(header[times[0]]) or "s"
    seconds = [each for each in SI if SI[each][1] == "s"]
    if unit not in seconds:
        raise UnknownNameError("unit of the time", unit, seconds)
    raw = table[:, 0]
    time = (raw - raw[:1]) * SI[unit][0]
    sizes = np.cumsum([len(columns) for columns in fields.values()])
    values = dict(zip(fields, np.split(table[:, 1:], sizes[:-1], axis=1), strict=True))
    units = {name: _unit_of(header[columns[0]]) for name, columns in fields.items()}
    return Samples(time, values, units, path.name, start=float(raw[:1].sum()) * SI[unit][0])


def _unit_of(column: str) -> str:
    found = UNIT.search(column)
    return found[1].strip() if found else ""


def _of_arrays(path: Path, kind: str, sensor: str, truth: bool) -> Samples:
    """Return the samples of an npz file: a recording, or arrays `time` and one per field."""
    with np.load(path, allow_pickle=False) as arrays:
        if "time" not in arrays or not any(name in arrays for name in FIELDS[kind]):
            return _of_recording(path, kind, sensor, truth)
        values = {name: np.asarray(arrays[name], np.float64) for name in FIELDS[kind] if name in arrays}
        time = np.asarray(arrays["time"], np.float64)
    return Samples(time, {name: each.reshape(len(time), -1) for name, each in values.items()}, {}, path.name)


def _of_lerobot(path: Path, kind: str, sensor: str) -> Samples:
    """Return the samples of the longest episode of a LeRobot data set, at its constant rate."""
    try:
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise MissingDependencyError(
            "data sets of LeRobot need pyarrow, which is not installed: pip install 'sensorium[parquet]'."
        ) from None
    info = json.loads((path / LEROBOT).read_text(encoding="utf-8"))
    header, places = [], []
    for feature, about in info["features"].items():
        if feature.startswith("observation.") and about["dtype"].startswith("float") and len(about["shape"]) == 1:
            names = about.get("names")
            names = next(iter(names.values())) if isinstance(names, dict) else names or range(about["shape"][0])
            header += [f"{feature}.{each}" for each in names]
            places += [(feature, k) for k in range(about["shape"][0])]
    fields = _columns_of(path, kind, sensor, header)
    used = dict.fromkeys(places[k][0] for columns in fields.values() for k in columns)
    table = parquet.read_table(path / "data", columns=["episode_index", "frame_index", *used])
    episodes, lengths = np.unique(table["episode_index"].to_numpy(), return_counts=True)
    longest = episodes[np.argmax(lengths)]
    frame = table["frame_index"].to_numpy()
    rows = np.flatnonzero(table["episode_index"].to_numpy() == longest)
    rows = rows[np.argsort(frame[rows])]
    arrays = {name: np.array(table[name].take(rows).to_pylist(), np.float64).reshape(len(rows), -1) for name in used}
    values = {
        name: np.stack([arrays[places[k][0]][:, places[k][1]] for k in columns], axis=1)
        for name, columns in fields.items()
    }
    return Samples(frame[rows] / float(info["fps"]), values, {}, f"{path.name} episode {longest}")


def _of_recording(path: Path, kind: str, sensor: str, truth: bool) -> Samples:
    """Return the samples of a recording or a ROS 2 bag."""
    from sensorium.record import Recording
    from sensorium.record import open as open_recording

    opened = open_recording(path)
    if isinstance(opened, Recording):
        recording = opened
    else:
        with opened as replay:
            recording = replay.recording(max_envs=1)
    fitting = [name for name, each in recording.items() if any(field in each.measured for field in FIELDS[kind])]
    if not fitting:
        raise _no_sensor(path, kind, [*recording])
    if sensor not in fitting and (sensor or len(fitting) > 1):
        raise UnknownNameError(f"sensor with fields of the kind {kind!r}", sensor, fitting, "Give it: --sensor NAME.")
    chosen = recording[sensor or fitting[0]]
    has_truth = truth and any(name in chosen.truth for name in FIELDS[kind])
    branch, rows = (chosen.truth, chosen.captures(0)) if has_truth else (chosen.measured, chosen.arrivals(0))
    specs = {str(spec["name"]): str(spec["unit"]) for spec in chosen.info["fields"]}
    values = {
        name: np.asarray(branch[name][rows, 0], np.float64).reshape(len(rows), -1)
        for name in FIELDS[kind]
        if name in branch
    }
    stamp, arrival = (chosen.truth_time if has_truth else chosen.stamp)[rows, 0], chosen.time[rows]
    has_arrival = not has_truth and bool((arrival != stamp).any())
    units = {name: specs[name] for name in values}
    return Samples(stamp, values, units, f"{path.name} {chosen.name}", arrival if has_arrival else None)


def _of_scans(path: Path, sensor: str) -> Samples:
    """Return the scans of a lidar or a point cloud in a recording or a ROS 2 bag."""
    from sensorium.record import replay

    with replay(path) as opened:
        sensors = opened.description.sensors
        found = [name for name, info in sensors.items() if any(each["name"] == "points_b" for each in info["fields"])]
        if sensor not in found and (sensor or len(found) != 1):
            raise UnknownNameError("sensor with the field points_b", sensor, found, "Give it: --sensor NAME.")
        name = sensor or found[0]
        return lidar_samples(opened.readings(name), f"{path.name} {name}")


def _of_ros1(path: Path, kind: str, sensor: str) -> Samples:
    """Return the samples of a topic of a ROS 1 bag."""
    try:
        from rosbags.highlevel import AnyReader
    except ImportError as error:
        raise MissingDependencyError(
            f"ROS 1 bags need {error.name}, which is not installed: pip install 'sensorium[bags]'."
        ) from None
    from sensorium.record.bag_messages import stamp_of, values_of

    with AnyReader([path]) as bag:
        found: dict[str, list[tuple[int, int, dict[str, Array]]]] = {}
        units: dict[str, str] = {}
        for connection, arrival, data in bag.messages():
            if sensor and connection.topic.lstrip("/") != sensor.lstrip("/"):
                continue
            message: Any = bag.deserialize(data, connection.msgtype)
            fields = {each.spec.name: each for each in values_of(message) if each.spec.name in FIELDS[kind]}
            if fields:
                stamp = stamp_of(message)
                arrays = {name: np.atleast_1d(each.array) for name, each in fields.items()}
                units |= {name: each.spec.unit for name, each in fields.items()}
                found.setdefault(connection.topic, []).append((arrival if stamp is None else stamp, arrival, arrays))
    if not found:
        raise _no_sensor(path, kind, [])
    if len(found) > 1:
        raise UnknownNameError(f"topic with fields of the kind {kind!r}", sensor, found, "Give it: --sensor TOPIC.")
    ((topic, rows),) = found.items()
    start = rows[0][0]
    time = np.array([stamp - start for stamp, _, _ in rows]) * 1e-9
    values = {name: np.array([arrays[name] for _, _, arrays in rows], np.float64) for name in rows[0][2]}
    arrived = np.array([arrival - start for _, arrival, _ in rows]) * 1e-9
    own = arrived if (arrived != time).any() else None
    return Samples(time, values, units, f"{path.name} {topic}", own, 1e-9 * start)


def _of_ulog(path: Path, kind: str, sensor: str) -> Samples:
    """Return the samples of a ULog file of PX4."""
    try:
        from pyulog import ULog
    except ImportError:
        raise MissingDependencyError(
            "ULog files need pyulog, which is not installed: pip install 'sensorium[ulog]'."
        ) from None
    if kind not in ULOG:
        raise UnknownNameError("kind of sensor in ULog files", kind, ULOG)
    names, columns = ULOG[kind]
    topics = [sensor] if sensor else [*names]
    with path.open("rb") as file:
        log = ULog(file, topics)
    wanted = {column for column, _ in columns.values()}
    having = [each for each in log.data_list if wanted <= {key.partition("[")[0] for key in each.data}]
    if not having:
        raise _no_sensor(path, kind, sorted(log.message_formats))
    chosen = min(having, key=lambda each: topics.index(each.name))
    found = chosen.data
    stamp = found["timestamp"]
    values, units = {}, {}
    for name, (column, unit) in columns.items():
        keys = [key for key in (f"{column}[{k}]" for k in range(3)) if key in found] or [column]
        values[name], units[name] = np.stack([found[key] for key in keys], axis=1).astype(np.float64), unit
    time, start = 1e-6 * (stamp - stamp[0]), 1e-6 * float(stamp[0])
    lost = np.array([[1e-6 * each.timestamp, 1e-3 * each.duration] for each in log.dropouts]).reshape(-1, 2)
    lost = np.cumsum(lost, axis=1) - start
    return Samples(time, values, units, f"{path.name} {chosen.name}", start=start, dropouts=lost)
