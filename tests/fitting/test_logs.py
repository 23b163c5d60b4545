"""The same samples give the same fit from every format, and damaged logs are refused by name."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag1 import Writer
from rosbags.typesys import Stores, get_typestore

import sensorium as sn
from sensorium.cli import main
from sensorium.errors import ArgumentError, ModelError, UnknownNameError
from sensorium.fitting import Fit
from sensorium.fitting.logs import read_samples

pytest.importorskip("pyarrow")

STEPS, DT = 1200, 0.005
SI = {"ang_vel_b": "rad/s", "lin_acc_b": "m/s^2"}
START_NS = 1_700_000_000_000_000_000


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of an IMU at rest at 200 Hz."""
    engine = sn.TensorEngine(num_envs=1, dt=DT, bodies=["base"])
    imu = sn.ImuCfg(name="imu", body="base", gyro_noise=0.01, acc_noise=0.05, fields=("ang_vel_b", "lin_acc_b"))
    path = tmp_path_factory.mktemp("log") / "run.mcap"
    scene = sn.Scene(engine, [imu], seed=3)
    with scene.record(path):
        for _ in range(STEPS):
            scene.update()
    return path


@pytest.fixture(scope="module")
def samples(recording: Path) -> sn.Samples:
    return read_samples(recording, "imu")


@pytest.fixture(scope="module")
def expected(samples: sn.Samples) -> Fit:
    return sn.fit(samples, "imu")


def exported(recording: Path, to: Path, format: str) -> Path:
    """Export the recording and return the folder."""
    assert main(["export", str(recording), "--to", str(to), "--format", format]) == 0
    return to


def rosbag1(samples: sn.Samples, path: Path) -> Path:
    """Write the samples as a ROS 1 bag by rosbags."""
    store = get_typestore(Stores.ROS1_NOETIC)
    types = store.types
    with Writer(path) as bag:
        connection = bag.add_connection("/imu", "sensor_msgs/msg/Imu", typestore=store)
        for k, time in enumerate(samples.time):
            ns = START_NS + round(1e9 * time)
            rate, force = (
                types["geometry_msgs/msg/Vector3"](*samples.values[name][k].tolist())
                for name in ("ang_vel_b", "lin_acc_b")
            )
            stamp = types["builtin_interfaces/msg/Time"](sec=ns // 10**9, nanosec=ns % 10**9)
            none, turn = np.full(9, -1.0), types["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0)
            header = types["std_msgs/msg/Header"](seq=k, stamp=stamp, frame_id="imu")
            message = types["sensor_msgs/msg/Imu"](header, turn, none, rate, np.zeros(9), force, np.zeros(9))
            bag.write(connection, ns, store.serialize_ros1(message, "sensor_msgs/msg/Imu"))
    return path


def ulog(samples: sn.Samples, path: Path) -> Path:
    """Write the samples as a ULog file, format of PX4: header, format, subscription, data."""
    columns = "uint64_t timestamp;float[3] gyro_rad;float[3] accelerometer_m_s2;"

    def message(kind: bytes, content: bytes) -> bytes:
        return struct.pack("<H", len(content)) + kind + content

    parts = [b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 0), message(b"B", bytes(40))]
    parts += [message(b"F", f"sensor_combined:{columns}".encode()), message(b"A", b"\0\0\0sensor_combined")]
    for time, rate, force in zip(samples.time, *samples.values.values(), strict=True):
        parts.append(message(b"D", struct.pack("<HQ6f", 0, round(1e6 * time), *rate, *force)))
    path.write_bytes(b"".join(parts))
    return path


def npz(samples: sn.Samples, path: Path) -> Path:
    np.savez(path, time=samples.time, ang_vel_b=samples.values["ang_vel_b"], lin_acc_b=samples.values["lin_acc_b"])
    return path


def in_degrees(samples: sn.Samples, path: Path) -> Path:
    """Write a table as loggers write it: ms, degrees per second and g, units in the header."""
    header = [
        "Time (ms)",
        *(f"Gyroscope {axis} (deg/s)" for axis in "XYZ"),
        *(f"Accelerometer {axis} (g)" for axis in "XYZ"),
    ]
    rows = [1e3 * samples.time[:, None], np.rad2deg(samples.values["ang_vel_b"]), samples.values["lin_acc_b"] / 9.80665]
    np.savetxt(path, np.concatenate(rows, axis=1), "%.9g", ",", header=",".join(header), comments="")
    return path


LOGS: dict[str, Callable[[Path, sn.Samples, Path], Any]] = {
    "mcap": lambda recording, _, folder: recording,
    "ROS 2 bag": lambda recording, _, folder: exported(recording, folder / "bag", "rosbag2"),
    "ROS 1 bag": lambda _, samples, folder: rosbag1(samples, folder / "log.bag"),
    "ULog": lambda _, samples, folder: ulog(samples, folder / "log.ulg"),
    "CSV": lambda _, samples, folder: in_degrees(samples, folder / "log.csv"),
    "exported CSV": lambda recording, _, folder: exported(recording, folder / "csv", "csv") / "imu.measured.csv",
    "npz": lambda _, samples, folder: npz(samples, folder / "log.npz"),
    "exported npz": lambda recording, _, folder: exported(recording, folder / "npz", "npz") / "imu.measured.npz",
    "EuRoC": lambda recording, _, folder: exported(recording, folder / "euroc", "euroc") / "mav0/imu0",
    "LeRobot": lambda recording, _, folder: exported(recording, folder / "lerobot", "lerobot"),
}
"""Format -> function that writes the samples."""
UNITLESS = ("exported CSV", "npz", "exported npz", "LeRobot")


@pytest.mark.parametrize("form", LOGS)
def test_all_formats_give_the_same_fit(
    form: str, recording: Path, samples: sn.Samples, expected: Fit, tmp_path: Path
) -> None:
    if form == "ULog":
        pytest.importorskip("pyulog")
    log = LOGS[form](recording, samples, tmp_path)
    if form in UNITLESS:
        with pytest.raises(ArgumentError, match="ang_vel_b: its unit is unknown"):
            sn.fit(read_samples(log, "imu"), "imu")
    read = read_samples(log, "imu", "imu/data_raw" * (form == "ROS 2 bag"), SI if form in UNITLESS else {})
    assert abs(len(read) - STEPS) <= 1
    found = sn.fit(read, "imu")
    assert expected.parameters["ang_vel_b.N.x"].value == pytest.approx(0.01 * DT**0.5, rel=0.1)
    assert {*expected.parameters} <= {*found.parameters}
    for name, each in expected.parameters.items():
        assert found.parameters[name].value == pytest.approx(each.value, rel=2e-3, abs=2e-5), name


def test_the_longest_episode_of_a_lerobot_set_is_read(tmp_path: Path) -> None:
    """Of two IMUs in a vector, --sensor chooses one."""
    engine = sn.TensorEngine(num_envs=1, dt=DT, bodies=["base"])
    scene = sn.Scene(engine, [sn.ImuCfg(name=name, body="base", gyro_noise=0.1) for name in ("left", "right")], seed=3)
    with scene.record(tmp_path / "run.mcap"):
        for step in range(50):
            scene.update()
            if step in (9, 39):
                scene.reset()
    root = exported(tmp_path / "run.mcap", tmp_path / "set", "lerobot")
    with pytest.raises(ModelError, match=r"left\.ang_vel_b\.x.*right\.ang_vel_b\.x.*--sensor PART"):
        read_samples(root, "imu")
    read = read_samples(root, "imu", "left")
    assert len(read) == 30 and np.diff(read.time) == pytest.approx(DT)
    reference = read_samples(tmp_path / "run.mcap", "imu", "left").values["ang_vel_b"]
    assert np.array_equal(read.values["ang_vel_b"][1:], reference[10:39])  # from the reset, whose sample is another one
    with pytest.raises(ModelError, match="no sensor with pressure"):
        read_samples(root, "barometer")


def test_estimates_of_biases_are_no_samples(tmp_path: Path) -> None:
    """The true poses of EuRoC have columns b_w_RS and b_a_RS."""
    names = [
        "#timestamp [ns]",
        *(f"b_w_RS_S_{axis} [rad s^-1]" for axis in "xyz"),
        *(f"b_a_RS_S_{axis} [m s^-2]" for axis in "xyz"),
    ]
    (tmp_path / "data.csv").write_text(",".join(names) + "\n0,0,0,0,0,0,0\n5000000,0,0,0,0,0,0\n", encoding="utf-8")
    with pytest.raises(ModelError, match="has no sensor with ang_vel_b or lin_acc_b"):
        read_samples(tmp_path, "imu")


@pytest.mark.parametrize(
    ("text", "units", "error", "message"),
    [
        ("gyro x,gyro y,gyro z\n1,2,3\n", {}, ModelError, "expected a header with a column `time`"),
        ("time,pressure\n0,1\n", {}, ModelError, "has no sensor with ang_vel_b or lin_acc_b"),
        ("", {}, ModelError, "expected a header with a column `time`, got none"),
        ("time,gyro x,gyro y\n0,1,2\n", {}, ModelError, "got the columns gyro x, gyro y, expected 3"),
        (
            "time,gyro x,gyro y,gyro z\n0,1,,3\n",
            {},
            ModelError,
            "could not convert string '' .* Correct or replace",
        ),
        ("time (h),gyro x,gyro y,gyro z\n0,1,2,3\n", {}, UnknownNameError, "unknown unit of the time 'h'"),
        ("time,gyro x,gyro y,gyro z\n0,1,2,3\n", {"gyro": "deg/s"}, UnknownNameError, "field with a unit 'gyro'"),
        ("time,gyro x,gyro y,gyro z\n0,1,2,3\n", {"ang_vel_b": "g"}, UnknownNameError, "unit of ang_vel_b 'g'.*deg/s"),
    ],
)
def test_unusable_tables_are_refused(
    text: str, units: dict[str, str], error: type[Exception], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(error, match=message):
        read_samples(path, "imu", units=units)


def test_columns_of_covariances_and_others_are_ignored(tmp_path: Path) -> None:
    """As rostopic writes a topic, with times in ns."""
    path = tmp_path / "log.csv"
    fields = [f"field.angular_velocity{each}" for each in (".x", ".y", ".z", "_covariance0", "_covariance1")]
    path.write_text(",".join(["%time", "field.header.frame_id", *fields]) + "\n" + "5000000,imu,1,2,3,0,0\n" * 2)
    read = read_samples(path, "imu", units={"time": "ns", "ang_vel_b": "rad/s"})
    assert read.values["ang_vel_b"].tolist() == [[1.0, 2.0, 3.0]] * 2 and read.start == pytest.approx(0.005)


@pytest.mark.parametrize("name", ["log.csv", "log.bag", "log.ulg", "log.npz", "log.mcap", "log.txt", "folder"])
def test_a_missing_or_damaged_log_is_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "log.ulg":
        pytest.importorskip("pyulog")
    path = tmp_path / name
    assert main(["fit", str(path)]) == 2
    assert f"{str(path)!r} does not exist. Check the path." in capsys.readouterr().err
    if path.suffix:
        path.write_bytes(np.random.default_rng(0).bytes(500))
    else:
        path.mkdir()
    assert main(["fit", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_a_span_without_samples_is_refused(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(recording), "--start", "300"]) == 2
    assert "--start, --end: got '300.0, None', expected a part of 0" in capsys.readouterr().err
