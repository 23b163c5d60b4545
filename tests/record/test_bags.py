"""Bags that rosbags wrote open in replay, and their readings hold the values of the messages."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.writer import IndexType
from mcap.writer import Writer as McapWriter
from nursery import Nursery
from pyarrow.parquet import read_table
from rosbags.rosbag2 import CompressionFormat, CompressionMode, Reader, StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from scipy.spatial.transform import Rotation, Slerp

import sensorium as sn
from sensorium.cli import main
from sensorium.errors import MissingDependencyError, ModelError, SensoriumWarning, UnknownNameError
from sensorium.record import load
from sensorium.record.bags import BagReplay
from sensorium.record.replay_scene import ReplayScene

START = 1_700_000_000_123_456_789
STEP = 20_000_000
STORE = get_typestore(Stores.ROS2_JAZZY)
STORE.register(get_types_from_msg("float32[4] wheels\nint16 gear\nstring text\n", "car_msgs/msg/Wheels"))
RNG = np.random.default_rng(3)


def make(name: str, /, **values: Any) -> Any:
    """Return a message with zeros in all fields that are not given."""

    def zero(kind: Any) -> Any:
        what, detail = int(kind[0]), kind[1]
        if what == 1:  # a primitive type
            return "" if detail[0] == "string" else 0 if "int" in detail[0] or detail[0] == "octet" else 0.0
        if what == 2:
            return make(detail)
        length = detail[1] if what == 3 else 0
        if int(detail[0][0]) == 1 and detail[0][1][0] != "string":
            return np.zeros(length, detail[0][1][0].replace("octet", "uint8"))
        return [zero(detail[0]) for _ in range(length)]

    fields = STORE.fielddefs[name][1]
    return STORE.types[name](**{key: values.get(key, False if kind[1] == ("bool", 0) else zero(kind))
                                for key, kind in fields})  # fmt: skip


def vector(numbers: Any, kind: str = "Vector3") -> Any:
    return make(f"geometry_msgs/msg/{kind}", **dict(zip("xyz", map(float, numbers), strict=True)))


def turn(wxyz: Any) -> Any:
    return make("geometry_msgs/msg/Quaternion", **dict(zip("wxyz", map(float, wxyz), strict=True)))


def header(ns: int, frame: str = "base") -> Any:
    return make("std_msgs/msg/Header", stamp=make("builtin_interfaces/msg/Time", sec=ns // 10**9, nanosec=ns % 10**9),
                frame_id=frame)  # fmt: skip


def cloud(points: np.ndarray, rings: np.ndarray, k: int) -> Any:
    """Return a cloud with an unused gap of 4 bytes between its fields."""
    dtype = np.dtype({"names": ["x", "y", "z", "ring"], "formats": ["<f4"] * 3 + ["<u2"], "offsets": [0, 4, 8, 16],
                      "itemsize": 18})  # fmt: skip
    rows = np.zeros(len(points), dtype)
    for axis, name in enumerate("xyz"):
        rows[name] = points[:, axis]
    rows["ring"] = rings
    fields = [make("sensor_msgs/msg/PointField", name=name, offset=dtype.fields[name][1], datatype=kind, count=1)
              for name, kind in zip(dtype.names or (), (7, 7, 7, 4), strict=True)]  # fmt: skip
    return make("sensor_msgs/msg/PointCloud2", header=header(START + k * STEP), height=1, width=len(points),
                fields=fields, point_step=18, row_step=18 * len(points), data=rows.view(np.uint8))  # fmt: skip


PIXELS = RNG.integers(0, 256, (4, 6, 3), dtype=np.uint8)
DEPTH = RNG.integers(1, 9000, (4, 6), dtype=np.uint16)
DEPTH[1, 2] = 0
POINTS = [RNG.normal(size=(count, 3)).astype(np.float32) for count in (5, 9, 0)]
WXYZ = np.array([0.5, -0.5, 0.5, 0.5])
K = np.array([[400.0, 0.0, 3.0], [0.0, 410.0, 2.0], [0.0, 0.0, 1.0]])


def image(encoding: str, pixels: np.ndarray, k: int, pad: int = 0) -> Any:
    rows = np.pad(pixels.reshape(len(pixels), -1).view(np.uint8), ((0, 0), (0, pad)))
    return make("sensor_msgs/msg/Image", header=header(START + k * STEP), height=4, width=6, encoding=encoding,
                step=rows.shape[1], data=rows.reshape(-1))  # fmt: skip


def png(pixels: np.ndarray) -> np.ndarray:
    out = io.BytesIO()
    pytest.importorskip("PIL.Image").fromarray(pixels).save(out, "PNG")
    return np.frombuffer(out.getvalue(), np.uint8)


MESSAGES: dict[str, Callable[[int], Any]] = {
    "/imu": lambda k: make(
        "sensor_msgs/msg/Imu", header=header(START + k * STEP - 1_000_000), angular_velocity=vector((k, 0.2, -0.3)),
        linear_acceleration=vector((0.0, 1.0, 9.81)), orientation_covariance=np.array([-1.0] + [0.0] * 8),
    ),
    "/joint_states": lambda k: make(
        "sensor_msgs/msg/JointState", header=header(START), name=["hip", "knee"], position=np.array([k, 2.0 * k]),
        effort=np.array([1.0, -1.0]),
    ),
    "/odom": lambda k: make(
        "nav_msgs/msg/Odometry", header=header(START + k * STEP),
        pose=make("geometry_msgs/msg/PoseWithCovariance", pose=make(
            "geometry_msgs/msg/Pose", position=vector((0.1 * k, 2.0, 1e5), "Point"), orientation=turn(WXYZ))),
        twist=make("geometry_msgs/msg/TwistWithCovariance", twist=make(
            "geometry_msgs/msg/Twist", linear=vector((1.0, 0.0, 0.0)))),
    ),
    "/points": lambda k: cloud(POINTS[k % 3], np.arange(len(POINTS[k % 3])), k),
    "/color": lambda k: image("bgr8", np.roll(PIXELS, k, axis=0), k, pad=5),
    "/depth": lambda k: image("16UC1", DEPTH, k),
    "/packed": lambda k: make("sensor_msgs/msg/CompressedImage", format="rgb8; png compressed bgr8", data=png(PIXELS)),
    "/info": lambda k: make("sensor_msgs/msg/CameraInfo", k=K.reshape(-1), d=np.zeros(5), distortion_model="plumb_bob",
                            height=4, width=6),
    "/scan": lambda k: make("sensor_msgs/msg/LaserScan", angle_min=-1.0, angle_increment=0.5,
                            ranges=np.array([1.0, np.inf, 3.0], np.float32)),
    "/fix": lambda k: make("sensor_msgs/msg/NavSatFix", latitude=47.0, longitude=8.5, altitude=400.0 + k),
    "/wheels": lambda k: make("car_msgs/msg/Wheels", wheels=np.array([1, 2, 3, k], np.float32), gear=-1, text="x"),
    "/velocity": lambda k: make("geometry_msgs/msg/TwistStamped", header=header(7_000_000_000 + k * STEP),
                                twist=make("geometry_msgs/msg/Twist", angular=vector((0, 0, k)))),
    "/speech": lambda k: make("std_msgs/msg/String", data="hello"),
    "/tf": lambda k: make("tf2_msgs/msg/TFMessage"),
}  # fmt: skip
"""Topic -> its message number k."""


def write_all(
    path: Path, plugin: StoragePlugin, messages: Iterable[tuple[int, str, Any]], order: str = "little"
) -> Path:
    """Write a bag of (time of arrival in ns since the start, topic, message)."""
    with Writer(path, version=9, storage_plugin=plugin) as writer:
        opened: dict[str, Any] = {}
        for time, topic, message in sorted(messages, key=lambda each: each[0]):
            if topic not in opened:
                opened[topic] = writer.add_connection(topic, message.__msgtype__, typestore=STORE)
            data = STORE.serialize_cdr(message, message.__msgtype__, little_endian=order == "little")
            writer.write(opened[topic], START + time, data)
    return path


def write(path: Path, plugin: StoragePlugin, messages: Mapping[str, Callable[[int], Any]] = MESSAGES) -> Path:
    """Write a bag with three messages per topic."""
    every = ((k * STEP, topic, message(k)) for k in range(3) for topic, message in messages.items())
    return write_all(path, plugin, every)


WITHOUT_BAGS = """
import sys
sys.modules |= dict.fromkeys(("rosbags", "ruamel", "ruamel.yaml"))
import sensorium as sn
with sn.replay(sys.argv[1]) as replay:
    print(len(replay.description.sensors), "sensor")
try:
    sn.replay(sys.argv[2])
except sn.MissingDependencyError as error:
    print(error)
"""


@pytest.fixture(scope="module", params=[StoragePlugin.SQLITE3, StoragePlugin.MCAP], ids=["sqlite3", "mcap"])
def bag(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bag."""
    return write(tmp_path_factory.mktemp("bags") / "bag", request.param)


EXPECTED: dict[str, Callable[[int], dict[str, Any]]] = {
    "imu": lambda k: {"ang_vel_b": [k, 0.2, -0.3], "lin_acc_b": [0.0, 1.0, 9.81]},
    "joint_states": lambda k: {"position": [k, 2.0 * k], "effort": [1.0, -1.0]},
    "odom": lambda k: {"pos_w": [0.1 * k, 2.0, 1e5], "quat_w": WXYZ, "lin_vel_b": [1.0, 0.0, 0.0],
                       "ang_vel_b": [0.0, 0.0, 0.0]},
    "points": lambda k: {"points_b": POINTS[k % 3], "ring": np.arange(len(POINTS[k % 3]))},
    "color": lambda k: {"image": np.roll(PIXELS, k, axis=0)[..., ::-1]},
    "depth": lambda k: {"distance_to_image_plane": np.where(DEPTH > 0, DEPTH * 1e-3, np.inf)[..., None]},
    "packed": lambda k: {"image": PIXELS},
    "info": lambda k: {"intrinsic_matrices": K + np.outer([0.5, 0.5, 0.0], [0.0, 0.0, 1.0])},
    "scan": lambda k: {"distances": [1.0, np.inf, 3.0], "azimuth": [-1.0, -0.5, 0.0]},
    "fix": lambda k: {"lla": [47.0, 8.5, 400.0 + k], "status": 0},
    "wheels": lambda k: {"wheels": [1.0, 2.0, 3.0, k], "gear": -1},
    "velocity": lambda k: {"lin_vel_b": [0.0] * 3, "ang_vel_b": [0.0, 0.0, k]},
}  # fmt: skip


def test_readings_hold_the_values_of_all_messages(bag: Path) -> None:
    for path in (bag, next(each for each in bag.iterdir() if each.suffix != ".yaml")):
        with sn.replay(path) as replay:
            assert set(replay.description.sensors) == set(EXPECTED) and replay.counts == dict.fromkeys(EXPECTED, 3)
            found: dict[str, list[Any]] = {name: [] for name in EXPECTED}
            frames = list(replay.frames())
            assert len(frames) == 3 and all(set(frame) == set(EXPECTED) for frame in frames)
            for frame in frames:
                for name, reading in frame.items():
                    found[name].append(reading)
            for name, expected in EXPECTED.items():
                for k, reading in enumerate(found[name]):
                    assert set(reading.measured) == set(expected(k)), name
                    for field, value in expected(k).items():
                        rows = reading.rows(0) if reading.offsets is not None else 0
                        np.testing.assert_allclose(reading[field][rows], value, rtol=1e-6, err_msg=f"{name} {field}")
                        assert not reading[field].flags.writeable
                    assert [each.to_dict() for each in reading.specs] == replay.description.sensors[name]["fields"]
                    assert reading.tick == k * STEP and reading.time == pytest.approx(k * 0.02, abs=1e-12)
            assert [each.capture_tick[0] for each in found["imu"]] == [k * STEP - 1_000_000 for k in range(3)]
            assert found["imu"][2].age[0] == pytest.approx(1e-3, abs=1e-12)
            assert [each.capture_tick[0] for each in found["velocity"]] == [k * STEP for k in range(3)]  # another clock
            assert replay.description.sensors["joint_states"]["constants"]["joint_names"] == ["hip", "knee"]
            assert set(replay.unread) == {"/speech", "/tf", "/wheels"}
            assert replay.unread["/wheels"].endswith("readings do not hold text")


def test_parts_of_a_bag(bag: Path) -> None:
    with sn.replay(bag) as replay:
        assert [reading.tick for reading in replay.readings("imu", start=0.02)] == [STEP, 2 * STEP]
        assert [reading.tick for reading in replay.readings(["imu"], end=0.02)] == [0, STEP]
        newest = replay.at(0.03)
        assert newest["imu"]["ang_vel_b"][0, 0] == 1.0 and set(newest) == set(EXPECTED)
        with pytest.raises(UnknownNameError, match="imu"):
            list(replay.readings("imo"))
        with pytest.raises(UnknownNameError):
            replay.log("reward")


def test_a_server_streams_a_bag(bag: Path) -> None:
    """The scene in the place of a simulation shows each message when its time has come."""
    scene, seen = ReplayScene(bag), []
    scene.watch(lambda: seen.append(scene.publish(["imu"])["imu"]["ang_vel_b"][0, 0]))
    while not scene.is_over:
        scene.step(substeps=1_000_000)
    assert seen == [1.0, 2.0] and scene.time == pytest.approx(0.04)  # the first messages are there from the start
    assert scene.description().num_envs == 1
    scene.replay.close()


def test_types_that_neither_the_bag_nor_ros_defines(tmp_path: Path) -> None:
    """The definitions of a SQLite file are removed, as in bags of ROS 2 Humble, one is "unknown", and one topic is not
    of ROS 2.
    """
    (path,) = write(tmp_path / "bag", StoragePlugin.SQLITE3).glob("*.db3")
    with sqlite3.connect(path) as file:
        file.execute("DELETE FROM message_definitions WHERE topic_type != 'sensor_msgs/msg/Imu'")
        file.execute("UPDATE message_definitions SET encoding = 'unknown'")
        file.execute("UPDATE topics SET serialization_format = 'cbor' WHERE name = '/scan'")
    file.close()
    about = (tmp_path / "bag/metadata.yaml").read_text().partition("/scan")
    other = about[2].replace("serialization_format: cdr", "serialization_format: cbor", 1)
    (tmp_path / "bag/metadata.yaml").write_text("".join((*about[:2], other)))
    for each in (path, tmp_path / "bag"):
        with sn.replay(each) as replay:
            assert "scan" not in replay.counts and "'cbor', expected 'cdr'" in replay.unread["/scan"]
    with sn.replay(path) as replay:
        assert "wheels" not in replay.counts and "car_msgs/msg/Wheels is unknown" in replay.unread["/wheels"]
        assert len(list(replay.readings("imu"))) == 3


def pose(wxyz: Any, x: float = 0.0, ns: int = START) -> Any:
    value = make("geometry_msgs/msg/Pose", position=vector((x, 0, 0), "Point"), orientation=turn(wxyz))
    return make("geometry_msgs/msg/PoseStamped", header=header(ns), pose=value)


def gyro(rate: float, ns: int) -> Any:
    return make("sensor_msgs/msg/Imu", header=header(ns), angular_velocity=vector((0, 0, rate)))


SIMULATED = 12_300_000_000
"""Time of a simulation at the start of a bag, ns."""


@pytest.mark.parametrize("clock", ["wall", "simulation", "both"])
def test_times_of_all_topics_and_exports_are_the_stamps_of_the_headers(clock: str, tmp_path: Path) -> None:
    """Messages arrive 120 ms after their stamps, those of one topic 4.9 s, and those of another start late."""
    arrivals = {name: [k * STEP for k in range(10)] for name in ("imu", "odom", "amcl")}
    arrivals["late"] = [8 * 10**9 + k * 10**8 for k in range(5)]
    ages = {"imu": 120_000_000, "odom": 120_000_000, "amcl": 4_900_000_000, "late": 0}
    expected = {name: [START + each - ages[name] for each in times] for name, times in arrivals.items()}
    shifts = {name: 0 if clock == "wall" or (clock, name) == ("both", "imu") else SIMULATED - START for name in ages}
    messages = [
        (time, f"/{name}", gyro(k, ns + shifts[name]) if name == "imu" else pose(WXYZ, k, ns + shifts[name]))
        for name, times in arrivals.items()
        for k, (time, ns) in enumerate(zip(times, expected[name], strict=True))
    ]
    path = write_all(tmp_path / "bag", StoragePlugin.MCAP, messages)
    if clock == "simulation":  # all stamps are of one clock, so times are the stamps themselves
        expected = {name: [each + SIMULATED - START for each in times] for name, times in expected.items()}
    with sn.replay(path) as replay:
        start = replay.start_ns
        for name, times in expected.items():
            assert [start + int(each.capture_tick[0]) for each in replay.readings(name)] == times
        rates = {name: each["rate_hz"] for name, each in replay.description.sensors.items()}
        assert rates == {"imu": 50.0, "odom": 50.0, "amcl": 50.0, "late": 10.0}
    for form in ("tum", "csv", "npz", "parquet", "euroc", "rosbag2"):
        assert main(["export", str(path), "--to", str(tmp_path / form), "--format", form]) == 0
    for name in ("odom", "amcl", "late"):
        lines = (tmp_path / f"tum/{name}.tum").read_text().splitlines()[1:]
        assert [int(line.split()[0].replace(".", "")) for line in lines] == expected[name]
    lines = (tmp_path / "csv/amcl.measured.csv").read_text().splitlines()[1:]
    assert [start + round(float(line.split(",")[3]) * 1e9) for line in lines] == expected["amcl"]
    assert (start + np.load(tmp_path / "npz/imu.measured.npz")["tick"]).tolist() == expected["imu"]
    table = read_table(tmp_path / "parquet/amcl.measured.parquet")
    assert [start + tick for tick in table["tick"].to_pylist()] == expected["amcl"]
    lines = (tmp_path / "euroc/mav0/imu0/data.csv").read_text().splitlines()[1:]
    assert [int(line.partition(",")[0]) for line in lines] == expected["imu"]
    with Reader(tmp_path / "rosbag2") as again:
        (imu,) = (each for each in again.connections if each.topic == "/imu/data_raw")
        for (_, time, data), arrival, ns in zip(again.messages([imu]), arrivals["imu"], expected["imu"], strict=True):
            stamp = STORE.deserialize_cdr(data, imu.msgtype).header.stamp  # type: ignore[attr-defined]
            assert (time, stamp.sec * 10**9 + stamp.nanosec) == (start + arrival, ns)


def test_late_messages_are_exported_in_order_of_their_stamps(tmp_path: Path) -> None:
    """One has the stamp of a message that is not the one before, and one of those is not valid."""
    places, messages = [3, 1, 2, -5, 3, 8, 1, 7, 7], []
    for k, place in enumerate(places):
        ns = START + place * STEP
        messages += [(k * STEP, "/imu", gyro(k, ns)), (k * STEP, "/odom", pose(WXYZ if k != 7 else [0] * 4, k, ns))]
    path = write_all(tmp_path / "bag", StoragePlugin.MCAP, messages)
    for form in ("tum", "euroc"):
        assert main(["export", str(path), "--to", str(tmp_path / form), "--format", form]) == 0
    imu = np.loadtxt(tmp_path / "euroc/mav0/imu0/data.csv", delimiter=",")
    odom = np.loadtxt(tmp_path / "tum/odom.tum")
    order = [-5, 1, 2, 3, 7, 8]
    assert [round((ns - START) / STEP) for ns in imu[:, 0]] == order and imu[:, 3].tolist() == [3, 1, 2, 0, 7, 5]
    assert [round((s - START / 1e9) / 0.02) for s in odom[:, 0]] == order and odom[:, 1].tolist() == [3, 1, 2, 0, 8, 5]


def test_frames_of_lerobot_are_the_messages_of_the_slowest_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages that come 5 ms early or late make one frame each; a stamp of 0 is captured on arrival. The slower poses
    of a frame are not in the data set.
    """
    times = [10**8 + k * 10**9 // 30 + (-1) ** k * 5_000_000 for k in range(61)]
    slow = [(time, "/slow", gyro(float(k), START + time if k != 5 else 0)) for k, time in enumerate(times)]
    fast = [(time, "/fast", pose((1.0, 0.0, 0.0, 0.0), 0.0, START + time)) for time in range(0, 22 * 10**8, 5_000_000)]
    frames = [
        (
            time,
            "/tf",
            make(
                "tf2_msgs/msg/TFMessage",
                transforms=[transform("map", "odom", START + time, (0, 0, 0), Rotation.identity())],
            ),
        )
        for time in (10**9, 2 * 10**9)
    ]
    path, out = write_all(tmp_path / "bag", StoragePlugin.MCAP, [*slow, *fast, *frames]), str(tmp_path / "set")
    assert main(["export", str(path), "--to", out, "--format", "lerobot"]) == 0
    left_out = "not exported: true states and poses of frames: tf/odom; add some with --sensor or --feature"
    assert left_out in capsys.readouterr().out
    info = json.loads((tmp_path / "set/meta/info.json").read_text())
    assert (info["fps"], info["total_frames"]) == (30, 61)
    with sn.replay(path) as replay:
        late = [float(reading.time - reading.stamp[0]) for reading in replay.readings("slow")]
        with pytest.raises(sn.ArgumentError, match="got nan"):
            replay.at(float("nan"))
    assert late == pytest.approx([0.0] * 61, abs=1e-6)
    capsys.readouterr()
    assert main(["export", str(path), "--to", str(tmp_path / "late"), "--format", "csv", "--start", "9"]) != 0
    assert "no reading is in this time span" in capsys.readouterr().err and not (tmp_path / "late").exists()


def test_frames_of_lerobot_at_a_rate(tmp_path: Path) -> None:
    """Commands become the action with the names of their joints; a message with impossible contents is omitted."""
    names = ["hip", "knee"]

    def joints(k: int, position: list[float]) -> Any:
        return make(
            "sensor_msgs/msg/JointState",
            header=header(START + k * STEP),
            name=names,
            position=np.array(position, float),
        )

    messages = [(k * STEP, "/joints", joints(k, [k, -k])) for k in range(100)]
    messages += [(k * STEP, "/commands", joints(k, [0.5 * k, 1.0])) for k in range(0, 100, 4)]
    messages += [
        (k * STEP, "/pose", pose(WXYZ if k != 20 else (0, 0, 0, 0), k, START + k * STEP)) for k in range(0, 100, 5)
    ]
    path, out = write_all(tmp_path / "bag", StoragePlugin.MCAP, messages), tmp_path / "set"
    options = ("--fps", "10", "--feature", "state=joints,pose.pos_w", "--feature", "action=commands.position")
    assert main(["export", str(path), "--to", str(out), "--format", "lerobot", *options]) == 0
    info = json.loads((out / "meta/info.json").read_text())
    assert info["fps"] == 10 and info["features"]["action"]["names"] == [
        "commands.position.hip",
        "commands.position.knee",
    ]
    frames = pytest.importorskip("pyarrow.parquet").read_table(out / "data/chunk-000/file-000.parquet").to_pydict()
    ticks = [round(k * 0.1 * 1e9 / STEP) for k in range(len(frames["index"]))]
    assert len(ticks) == info["total_frames"] == 20 and ticks[:3] == [0, 5, 10]
    assert [row[0] for row in frames["action"]] == [0.5 * (tick // 4 * 4) for tick in ticks]
    assert [row[:2] for row in frames["observation.state"]] == [[tick, -tick] for tick in ticks]
    assert [row[2] for row in frames["observation.state"]] == [tick if tick != 20 else 15 for tick in ticks]


def test_clocks_of_devices_are_apart_from_dates(tmp_path: Path) -> None:
    """Devices count from their start, a map is a day old, and a topic sets its stamps from its second message on.

    The first message of a device is inconsistent.
    """
    messages = [(k * STEP, "/device", gyro(k, 5_000_000_000 + k * STEP)) for k in range(2)]
    for k, count in enumerate((2, 3)):
        scan = make("sensor_msgs/msg/LaserScan", header=header(5_000_000_000 + k * STEP),
                    ranges=np.ones(3, np.float32), intensities=np.ones(count, np.float32))  # fmt: skip
        messages.append((k * STEP, "/scan", scan))
    messages += [(STEP, "/map", pose(WXYZ, 0, START - 86_400 * 10**9))]
    messages += [(k * STEP + 7, "/unset", pose(WXYZ, k, START + STEP if k else 0)) for k in range(3)]
    with sn.replay(write_all(tmp_path / "bag", StoragePlugin.SQLITE3, messages)) as replay:
        ticks = {name: [int(each.capture_tick[0]) for each in replay.readings(name)] for name in replay.counts}
        assert ticks == {"device": [0, STEP], "scan": [STEP], "map": [STEP], "unset": [7, STEP, STEP]}
        assert replay.start_ns == START and replay.description.sensors["map"]["rate_hz"] == 0.0


@pytest.mark.parametrize("order", ["little", "big"])
def test_joints_are_read_by_name(order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of the names changes, and two publishers have different joints, some of them the same number. Messages
    with known names are not decoded when the bag opens.
    """

    def joints(names: str, position: Any, **more: Any) -> Any:
        return make("sensor_msgs/msg/JointState", name=[*names], position=np.array(position, float), **more)

    frame = header(START, "a long name")
    messages = [joints("abc", [1, 2, 3]), joints("cab", [3, 1, 2], header=frame), joints("xyz", [7, 8, 9]),
                joints("bca", [2, 3, 1]), joints("xyz", [4, 5, 6]), joints("abc", [0, 0, 0], effort=np.zeros(2)),
                joints("abb", [0, 0, 0]), joints("zyx", [6, 5, 4])]  # fmt: skip
    path = write_all(
        tmp_path / "bag", StoragePlugin.MCAP, ((k * STEP, "/arm", each) for k, each in enumerate(messages)), order
    )
    with sn.replay(path) as replay:
        assert replay.counts == {"arm": 4, "arm.2": 3}
        names = {name: each["constants"]["joint_names"] for name, each in replay.description.sensors.items()}
        assert names == {"arm": ["a", "b", "c"], "arm.2": ["x", "y", "z"]}
        assert replay.description.sensors["arm.2"]["rate_hz"] == 20.0  # 2 periods in 5 steps of 20 ms
        assert [each["position"].tolist() for each in replay.readings("arm")] == [[[1, 2, 3]]] * 3
        assert [each["position"].tolist() for each in replay.readings("arm.2")] == [
            [[7, 8, 9]],
            [[4, 5, 6]],
            [[4, 5, 6]],
        ]
        assert {name: each.tick for name, each in replay.at(0.08).items()} == {"arm": 3 * STEP, "arm.2": 4 * STEP}
        assert "3 joints, and effort has 2 values" in replay.unread["/arm"] and "twice" in replay.unread["/arm"]
    assert main(["export", str(path), "--to", str(tmp_path / "csv"), "--format", "csv"]) == 0
    tables = {each.name: np.loadtxt(each, delimiter=",", skiprows=1)[:, 5:].tolist()
              for each in (tmp_path / "csv").glob("*.csv")}  # fmt: skip
    assert tables == {"arm.measured.csv": [[1, 2, 3]] * 3, "arm.2.measured.csv": [[7, 8, 9], [4, 5, 6], [4, 5, 6]]}
    same = [(k * STEP, "/arm", joints("abc", [k, k, k])) for k in range(50)]
    path, decoded, whole = write_all(tmp_path / "same", StoragePlugin.MCAP, same, order), [], BagReplay._decoded
    monkeypatch.setattr(BagReplay, "_decoded", lambda *args: decoded.append(args) or whole(*args))
    with sn.replay(path) as replay:
        assert replay.counts == {"arm": 50} and len(decoded) < 5


def jpeg(pixels: np.ndarray) -> np.ndarray:
    out = io.BytesIO()
    pytest.importorskip("PIL.Image").fromarray(pixels).save(out, "JPEG")
    return np.frombuffer(out.getvalue(), np.uint8)


def mosaic(pixels: np.ndarray, colours: str) -> np.ndarray:
    """Return one colour per pixel: `colours` are those of the first two pixels of the first and the second row."""
    out = np.zeros(pixels.shape[:2], pixels.dtype)
    for place, colour in enumerate(colours):
        out[place // 2 :: 2, place % 2 :: 2] = pixels[place // 2 :: 2, place % 2 :: 2, "rgb".index(colour)]
    return out


def ramp(dtype: str, scale: int) -> np.ndarray:
    """Return colours that change linearly, of which the mean of two neighbours on opposite sides is the pixel."""
    row, column = np.indices((4, 6))
    return np.stack(
        [scale * (10 + 4 * row), scale * (20 + 2 * column), scale * (90 - 2 * row - 4 * column)], -1
    ).astype(dtype)


def compressed_depth(layout: str, pixels: np.ndarray, a: float = 0.0, b: float = 0.0) -> Any:
    head = np.array([0], "<i4").tobytes() + np.array([a, b], "<f4").tobytes()
    data = np.concatenate([np.frombuffer(head, np.uint8), png(pixels)])
    return make("sensor_msgs/msg/CompressedImage", format=layout, data=data)


LIVOX = """std_msgs/Header header
uint64 timebase
uint32 point_num
uint8 lidar_id
uint8[3] rsvd
CustomPoint[] points
"""
LIVOX_POINT = "uint32 offset_time\nfloat32 x\nfloat32 y\nfloat32 z\nuint8 reflectivity\nuint8 tag\nuint8 line\n"
for _package in ("livox_ros_driver", "livox_ros_driver2"):
    for _name, _text in (("CustomPoint", LIVOX_POINT), ("CustomMsg", LIVOX.replace("Custom", f"{_package}/Custom"))):
        STORE.register(get_types_from_msg(_text, f"{_package}/msg/{_name}"))


def livox(package: str, points: np.ndarray) -> Any:
    each = [make(f"{package}/msg/CustomPoint", x=float(x), y=float(y), z=float(z), offset_time=7 * k, reflectivity=k,
                 tag=16, line=k % 4) for k, (x, y, z) in enumerate(points)]  # fmt: skip
    return make(f"{package}/msg/CustomMsg", header=header(START), timebase=START, point_num=len(each), points=each)


QUANTISED = np.array([[0, 100, 200, 4000, 65535, 1]] * 4, np.uint16)
SIGNED = RNG.integers(-30000, 30000, (4, 6), dtype=np.int16)
YUV = RNG.integers(16, 236, (4, 3, 4), dtype=np.uint8)


def test_more_images_and_clouds(tmp_path: Path) -> None:
    """Patterns of colours as ROS names them, of linear images, which bilinear interpolation reproduces."""
    messages = {
        f"/{name}": image(name, mosaic(ramp(f"uint{bits}", bits // 8), name[6:10]), 0)
        for bits in (8, 16)
        for name in (f"bayer_{each}{bits}" for each in ("rggb", "bggr", "gbrg", "grbg"))
    }
    messages |= {
        "/packed_bayer": make("sensor_msgs/msg/CompressedImage", format="bayer_gbrg8; png compressed ",
                              data=png(mosaic(ramp("uint8", 1), "gbrg"))),
        "/uyvy": image("yuv422", YUV, 0), "/yuyv": image("yuv422_yuy2", YUV[..., [1, 0, 3, 2]], 0),
        "/signed": image("16SC1", SIGNED, 0), "/noise": image("bayer_grbg8", PIXELS[..., 0], 0),
        "/mm": compressed_depth("16UC1; compressedDepth png", DEPTH),
        "/inverse": compressed_depth("32FC1; compressedDepth png", QUANTISED, 1e4, -40.0),
        "/rvl": make("sensor_msgs/msg/CompressedImage", format="16UC1; compressedDepth rvl", data=np.ones(40, "u1")),
        "/nv21": image("nv21", PIXELS, 0),
        "/livox": livox("livox_ros_driver", POINTS[0]), "/livox2": livox("livox_ros_driver2", POINTS[1]),
    }  # fmt: skip
    with sn.replay(
        write_all(tmp_path / "bag", StoragePlugin.MCAP, ((0, *each) for each in messages.items()))
    ) as replay:
        found = replay.at(0.0)
        for name in found:
            if "bayer" in name:
                bits = 16 if name.endswith("16") else 8
                expected = ramp(f"uint{bits}", bits // 8)
                assert found[name]["image"].dtype == expected.dtype, name
                np.testing.assert_array_equal(found[name]["image"][0, 1:-1, 1:-1], expected[1:-1, 1:-1], err_msg=name)
        assert sum("bayer" in name for name in found) == 9
        for channel in range(3):  # the colour of each pixel itself is kept
            known = mosaic(np.eye(3, dtype=np.uint8)[[[channel] * 6] * 4], "grbg") > 0
            np.testing.assert_array_equal(found["noise"]["image"][0, ..., channel][known], PIXELS[..., 0][known])
        np.testing.assert_array_equal(found["signed"]["image"][0, ..., 0], SIGNED)
        u, y, v, _ = np.moveaxis(YUV.astype(float), -1, 0)
        red = 255 / 219 * (y - 16) + 255 / 112 * 0.701 * (v - 128)
        blue = 255 / 219 * (y - 16) + 255 / 112 * 0.886 * (u - 128)
        green = (255 / 219 * (y - 16) - 0.299 * red - 0.114 * blue) / 0.587
        for k, channel in enumerate((red, green, blue)):  # Y = 0.299 R + 0.587 G + 0.114 B
            np.testing.assert_allclose(found["uyvy"]["image"][0, :, ::2, k], np.clip(channel, 0, 255), atol=0.51)
        np.testing.assert_array_equal(found["uyvy"]["image"], found["yuyv"]["image"])
        assert set(replay.unread) == {"/rvl", "/nv21"} and "compressedDepth rvl" in replay.unread["/rvl"]
        expected = np.where(DEPTH > 0, DEPTH * 1e-3, np.inf)
        np.testing.assert_allclose(found["mm"]["distance_to_image_plane"][0, ..., 0], expected, rtol=1e-6)
        with np.errstate(divide="ignore"):
            depth = np.where(QUANTISED > 0, 1e4 / (QUANTISED + 40.0), np.inf)
        np.testing.assert_allclose(found["inverse"]["distance_to_image_plane"][0, ..., 0], depth, rtol=1e-6)
        for name, points in (("livox", POINTS[0]), ("livox2", POINTS[1])):
            np.testing.assert_array_equal(found[name]["points_b"], points)
            assert found[name]["offset_time"].tolist() == [7 * k for k in range(len(points))]
            assert found[name]["line"].tolist() == [k % 4 for k in range(len(points))]
            assert found[name]["timebase"].tolist() == [START]


def transform(parent: str, child: str, ns: int, pos: Any, turned: Rotation) -> Any:
    value = make("geometry_msgs/msg/Transform", translation=vector(pos), rotation=turn(np.roll(turned.as_quat(), 1)))
    return make("geometry_msgs/msg/TransformStamped", header=header(ns, parent), child_frame_id=child, transform=value)


def matrix(pos: Any, turned: Rotation) -> np.ndarray:
    out = np.eye(4)
    out[:3, :3], out[:3, 3] = turned.as_matrix(), pos
    return out


def test_transforms_are_poses_of_each_frame_in_the_root_of_its_tree(tmp_path: Path) -> None:
    """Of a robot with a camera and a laser, whose slow correction of odometry starts late and ends early, and of a ring
    and a frame with two parents.
    """
    rng = np.random.default_rng(7)
    maps, bases = np.arange(1, 5) * 100_000_000, np.arange(25) * 20_000_000
    corrections, turns = rng.normal(size=(4, 3)), Rotation.random(4, rng=rng)
    path, turned = rng.normal(size=(25, 3)), Rotation.random(25, rng=rng)
    arm, place = (
        (np.array([0.2, 0.0, 0.3]), Rotation.from_rotvec([0.0, 0.0, 1.0])),
        Rotation.from_rotvec([-1.5, 0.2, 0]),
    )
    static = [transform("base_link", "arm", START, *arm), transform("/arm", "camera", START, (0.1, 0, 0), place),
              transform("dock", "tag", START, (1.0, 2.0, 3.0), place)]  # fmt: skip
    odd = [transform(*names, START, (0, 0, 0), place) for names in (("a", "b"), ("b", "a"), ("m", "c"), ("n", "c"))]
    both = transform("odom", "base_link", START + int(bases[0]), path[0], turned[0])
    messages = [(0, "/tf_static", static), (0, "/tf", [both, *odd])]
    messages += [(int(ns) + 3_000_000, "/tf", [transform("map", "odom", START + int(ns), pos, each)])
                 for ns, pos, each in zip(maps, corrections, turns, strict=True)]  # fmt: skip
    messages += [(int(ns) + 2_000_000, "/tf", [transform("odom", "base_link", START + int(ns), pos, each)])
                 for ns, pos, each in zip(bases[1:], path[1:], turned[1:], strict=True)]  # fmt: skip
    bag = write_all(
        tmp_path / "bag",
        StoragePlugin.MCAP,
        ((ns, topic, make("tf2_msgs/msg/TFMessage", transforms=each)) for ns, topic, each in messages),
    )
    slerp = Slerp(maps, turns)
    with sn.replay(bag) as replay:
        roots = {name: each["cfg"]["frame_id"] for name, each in replay.description.sensors.items()}
        assert roots == {"tf/odom": "map", "tf/base_link": "map", "tf/arm": "map", "tf/camera": "map", "tf/tag": "dock"}
        (tag,) = replay.readings("tf/tag")
        assert tag["pos_w"].tolist() == [[1.0, 2.0, 3.0]]
        found = list(replay.readings("tf/camera"))
        assert [each.capture_tick[0] for each in found] == bases[5:].tolist()  # those before the first correction lack
        for k, each in enumerate(found, 5):
            ns = min(bases[k], maps[-1])
            correction = [np.interp(ns, maps, column) for column in corrections.T]
            expected = matrix(correction, slerp(ns)) @ matrix(path[k], turned[k]) @ matrix(*arm)
            expected = expected @ matrix((0.1, 0, 0), place)
            np.testing.assert_allclose(each["pos_w"][0], expected[:3, 3], atol=1e-9)
            rotation = Rotation.from_quat(np.roll(each["quat_w"][0], -1)).as_matrix()
            np.testing.assert_allclose(rotation, expected[:3, :3], atol=1e-9)
        assert len(list(replay.readings("tf/odom"))) == 4 and replay.at(1.0)["tf/base_link"].capture_tick == bases[-1]
        for part in ("form a ring", "c has several parents: m, n", "from map to odom is later"):
            assert part in replay.unread["/tf"]
    assert main(["export", str(bag), "--to", str(tmp_path), "--format", "tum", "--sensor", "tf/camera"]) == 0
    lines = (tmp_path / "tf%2Fcamera.tum").read_text().splitlines()
    assert len(lines) == 21 and lines[1].startswith(f"{START // 10**9}.223456789 ")


def depth_file(layout: str) -> Any:
    data = np.concatenate([np.zeros(12 if "compressedDepth" in layout else 0, np.uint8), jpeg(PIXELS[..., 0])])
    return make("sensor_msgs/msg/CompressedImage", format=layout, data=data)


def organised(row_step: int) -> Any:
    """Return a cloud of 2 rows of 3 points whose x counts from 0."""
    points = np.zeros((6, 3), np.float32)
    points[:, 0] = range(6)
    fields = [make("sensor_msgs/msg/PointField", name=name, offset=4 * place, datatype=7, count=1)
              for place, name in enumerate("xyz")]  # fmt: skip
    return make("sensor_msgs/msg/PointCloud2", height=2, width=3, fields=fields, point_step=12, row_step=row_step,
                data=points.view(np.uint8).reshape(-1))  # fmt: skip


FIX = {"latitude": 47.0, "longitude": 8.5, "altitude": float("nan")}
NO_FIX = make("sensor_msgs/msg/NavSatStatus", status=-1)
IMPOSSIBLE: dict[str, tuple[Any, Any, str]] = {
    "/zero": (pose(WXYZ), pose((0, 0, 0, 0)), "quat_w is zero"),
    "/lost": (pose(WXYZ), pose(WXYZ, float("nan")), "pos_w is not finite"),
    "/fix": (make("sensor_msgs/msg/NavSatFix", **FIX), make("sensor_msgs/msg/NavSatFix", status=NO_FIX), "no position"),
    "/nan": (make("sensor_msgs/msg/NavSatFix", **FIX), make("sensor_msgs/msg/NavSatFix", latitude=float("nan")),
             "no position"),
    "/info": (MESSAGES["/info"](0), make("sensor_msgs/msg/CameraInfo"), "not calibrated"),
}  # fmt: skip
"""Topic -> a message with valid contents, one without, and a part of the reason."""
INCONSISTENT: dict[str, tuple[Any, Any, str]] = {
    "/points": (organised(36), organised(24), "72 bytes, row_step 24 and 2 x 3 points of 12 bytes"),
    "/cut": (organised(36), organised(72), "row_step 72"),
    "/image": (image("rgb8", PIXELS, 0), make("sensor_msgs/msg/Image", height=9, width=6, step=18, encoding="rgb8",
               data=PIXELS.reshape(-1)), "72 bytes for 9 rows of 18 bytes"),
    "/scan": (make("sensor_msgs/msg/LaserScan", ranges=np.ones(3, np.float32)), make("sensor_msgs/msg/LaserScan",
              ranges=np.ones(3, np.float32), intensities=np.ones(2, np.float32)), "3 ranges and 2 intensities"),
    "/depth": (make("sensor_msgs/msg/CompressedImage", format="16UC1; png", data=png(DEPTH)),
               depth_file("16UC1; jpeg compressed mono8"), "its pixels have 8 bits"),
    "/packed": (make("sensor_msgs/msg/CompressedImage", format="16UC1; png", data=png(DEPTH)),
                depth_file("16UC1; compressedDepth"), "its pixels have 8 bits"),
}  # fmt: skip
"""Topic -> a message whose parts fit together, one whose parts do not, and a part of the reason."""


def test_impossible_and_inconsistent_messages_are_named_and_cost_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where they are the first of their topic."""
    every = [
        (k * STEP, topic, good if k == 1 else bad)
        for topic, (good, bad, _) in (IMPOSSIBLE | INCONSISTENT).items()
        for k in range(3)
    ]
    every += [(k * STEP, "/still", pose(WXYZ, k)) for k in range(3)]
    path = write_all(tmp_path / "bag", StoragePlugin.MCAP, every)
    with sn.replay(path) as replay:
        for topic, (_, _, reason) in (IMPOSSIBLE | INCONSISTENT).items():
            valid = [bool(each.valid[0]) for each in replay.readings(topic[1:])]
            assert valid == ([False, True, False] if topic in IMPOSSIBLE else [True]), topic
            assert reason in replay.unread[topic]
        (depth,) = replay.readings("depth")
        np.testing.assert_allclose(depth["distance_to_image_plane"][0, 0, 0, 0], DEPTH[0, 0] * 1e-3)
    assert main(["export", str(path), "--to", str(tmp_path / "out"), "--format", "tum"]) == 0
    assert len((tmp_path / "out/zero.tum").read_text().splitlines()) == 2  # with the head
    assert "not exported: still: messages with the time stamp of the message before" in capsys.readouterr().out
    assert main(["export", str(path), "--to", str(tmp_path / "csv"), "--format", "csv"]) == 0
    assert len((tmp_path / "csv/zero.measured.csv").read_text().splitlines()) == 2
    assert len((tmp_path / "csv/still.measured.csv").read_text().splitlines()) == 4


def test_steps_of_zero_are_those_without_gaps(tmp_path: Path) -> None:
    """As old drivers leave them."""
    packed = make("sensor_msgs/msg/Image", height=4, width=6, encoding="rgb8", data=PIXELS.reshape(-1))
    path = write_all(tmp_path / "bag", StoragePlugin.MCAP, [(0, "/points", organised(0)), (0, "/image", packed)])
    with sn.replay(path) as replay:
        frame = replay.at(0.0)
    assert frame["points"]["points_b"][0, ..., 0].tolist() == [[0, 1, 2], [3, 4, 5]]
    np.testing.assert_array_equal(frame["image"]["image"][0], PIXELS)


def test_an_orientation_that_is_zero_at_first_is_described(tmp_path: Path) -> None:
    """As of filters that are not initialised. Its other fields are valid."""
    turned = make("sensor_msgs/msg/Imu", header=header(START + STEP), orientation=turn(WXYZ))
    path = write_all(tmp_path / "bag", StoragePlugin.MCAP, [(0, "/imu", gyro(1, START)), (STEP, "/imu", turned)])
    with sn.replay(path) as replay:
        first, second = replay.readings("imu")
        assert [each["name"] for each in replay.description.sensors["imu"]["fields"]] == [*second.measured]
        assert first.valid[0] and [*first.measured] == ["ang_vel_b", "lin_acc_b"]
        assert second["quat_w"].tolist() == [WXYZ.tolist()]


POINT_IDL = "module car_msgs { module msg { struct Dot { float x; float y; float z; }; }; };"


def test_definitions_and_encodings_of_one_topic_cost_no_other(tmp_path: Path) -> None:
    """One cannot be parsed, one is another version of a known type, one has a header without a time, and two channels
    have the same topic. Others are not of ROS 2, or have definitions in other languages or none.
    """
    imu, string = "sensor_msgs/msg/Imu", "std_msgs/msg/String"
    schemas = {
        "/do": ("my_pkg/srv/Do_Event", "MSG: my_pkg/srv/Do_Event\nint64 a\n---\nint64 b\n"),
        "/sonar": ("sensor_msgs/msg/Range", "float32 range\nfloat64 extra\n"),
        "/unknown": ("my_pkg/msg/Other", ""),
        "/head": ("my_pkg/msg/Head", f"my_pkg/Kind header\nfloat32 x\n{'=' * 80}\nMSG: my_pkg/Kind\nuint32 kind\n"),
        "/imu": (imu, ""), "/imu ": (imu, STORE.generate_msgdef(imu, ros_version=2)[0]), "/text": (string, ""),
        "/page": ("Page", "{}"), "/proto": ("foxglove.Pose", "\n"), "/idl": ("car_msgs/msg/Dot", POINT_IDL),
        "/cbor": (imu, ""),
    }  # fmt: skip
    languages = {"/page": ("jsonschema", "json"), "/proto": ("protobuf", "protobuf"), "/idl": ("omgidl", "cdr"),
                 "/cbor": ("ros2msg", "cbor"), "/imu": ("jsonschema", "cdr")}  # fmt: skip
    data = {
        "/do": bytes(20),
        "/head": b"\0\1\0\0" + bytes([7, 0, 0, 0]) + np.float32(1.5).tobytes(),
        "/unknown": bytes(20),
        "/sonar": b"\0\1\0\0" + np.float32(2.5).tobytes() + bytes(12),
        "/idl": b"\0\1\0\0" + np.array([1, 2, 3], np.float32).tobytes(),
    }
    with open(tmp_path / "bag.mcap", "wb") as file:
        writer = McapWriter(file)
        writer.start("ros2")
        for topic, (name, text) in schemas.items():
            language, encoding = languages.get(topic, ("ros2msg", "cdr"))
            schema = writer.register_schema(name, language, text.encode())
            channel = writer.register_channel(topic.strip(), encoding, schema)
            for k in range(3):
                message = bytes(STORE.serialize_cdr(gyro(k, START), imu))
                if topic == "/imu" and k == 0:
                    message = message[:40]
                writer.add_message(channel, START + k, data.get(topic, message), START + k)
        writer.add_message(writer.register_channel("/bare", "json", 0), START, b"{}", START)
        writer.finish()
    with sn.replay(tmp_path / "bag.mcap") as replay:
        rates = [float(each["ang_vel_b"][0, 2]) for each in replay.readings("imu")]
        assert rates == [0.0, 1.0, 1.0, 2.0, 2.0] and replay.counts == {"imu": 6, "sonar": 3, "head": 3, "idl": 3}
        head = next(replay.readings("head"))
        assert (head["x"][0], head["header.kind"][0], head.capture_tick[0]) == (1.5, 7, 0)
        assert [float(each["range"][0]) for each in replay.readings("sonar")] == [2.5] * 3
        assert "cannot be parsed" in replay.unread["/do"] and "does not define it" in replay.unread["/unknown"]
        assert "cannot be decoded" in replay.unread["/imu"]
        assert [next(replay.readings("idl"))[axis][0] for axis in "xyz"] == [1, 2, 3]
        found = {topic: why.split("'")[1] for topic, why in replay.unread.items() if "the encoding of" in why}
        assert found == {"/page": "json", "/proto": "protobuf", "/cbor": "cbor", "/bare": "json"}


def padded(k: int) -> Any:
    """Return a cloud with two fields of the same name."""
    fields = [make("sensor_msgs/msg/PointField", name=name, offset=4 * place, datatype=7, count=1)
              for place, name in enumerate(("x", "y", "z", "_", "_"))]  # fmt: skip
    data = np.arange(5 * k, dtype=np.float32).view(np.uint8)
    return make("sensor_msgs/msg/PointCloud2", height=1, width=k, fields=fields, point_step=20, row_step=20 * k,
                data=data)  # fmt: skip


ODD: dict[str, Callable[[int], Any]] = {
    "/scan": lambda k: make("sensor_msgs/msg/LaserScan", ranges=np.ones(2 + k % 2, np.float32)),
    "/padded": padded,
    "/battery": lambda k: make("sensor_msgs/msg/BatteryState", voltage=12.0),
    "/nothing": lambda k: make("sensor_msgs/msg/PointCloud2"),
    "/no_kind": lambda k: make("sensor_msgs/msg/PointCloud2", height=1, width=1, fields=[
        make("sensor_msgs/msg/PointField", name="x", count=1)]),
    "/video": lambda k: make("sensor_msgs/msg/CompressedImage", format="h264", data=np.arange(9, dtype=np.uint8)),
    "/dark": lambda k: make("sensor_msgs/msg/Image", encoding="rgb8"),
}  # fmt: skip
"""Topic -> its message number k: legitimate or inconsistent, and without an equal in `MESSAGES`."""


def test_odd_messages_do_not_stop_the_others(tmp_path: Path) -> None:
    path = write(tmp_path / "bag", StoragePlugin.MCAP, ODD)
    with sn.replay(path) as replay:
        assert replay.counts == {"scan": 3, "padded": 3, "battery": 3}
        assert [each["distances"].shape for each in replay.readings("scan")] == [(1, 2), (1, 3), (1, 2)]
        (*_, newest) = replay.readings("padded")
        assert newest["points_b"].tolist() == [[0, 1, 2], [5, 6, 7]] and newest["_"].tolist() == [3, 8]
        assert not [name for name in replay.at(1.0)["battery"].measured if name.startswith("POWER")]
        assert "no numbers" in replay.unread["/nothing"] and "KeyError: 0" in replay.unread["/no_kind"]
        assert "its format is 'h264'" in replay.unread["/video"] and "no pixels" in replay.unread["/dark"]
    for command in (["replay", "--out", str(tmp_path / "run")], ["report"], ["plot", "--to", str(tmp_path / "a.png")]):
        with pytest.warns(sn.SensoriumWarning, match="scan: 1 of 3 readings are omitted, because their fields differ"):
            assert main([command[0], str(path), *command[1:]]) == 0
    assert main(["export", str(path), "--to", str(tmp_path / "csv"), "--format", "csv"]) == 0
    found = {each.name: len(each.read_text().splitlines()) for each in (tmp_path / "csv").glob("scan*")}
    assert found == {"scan.measured.csv": 3, "scan.2.measured.csv": 2}  # one file per number of rays, with a head
    scans = load(tmp_path / "run/readings.npz")["scan"].measured["distances"]
    assert scans.shape == (2, 1, 2)
    scene, seen = ReplayScene(path), []
    scene.watch(lambda: seen.append((scene.tick, scene.publish(["scan"])["scan"]["distances"].shape)))
    with pytest.warns(SensoriumWarning, match="scan: some readings are omitted"):
        scene.step(substeps=10 * STEP)
    assert seen == [(STEP, (1, 2)), (2 * STEP, (1, 2))] and scene["scan"].samples == 2
    scene.replay.close()


@pytest.mark.parametrize(
    ("plugin", "mode"),
    [(StoragePlugin.SQLITE3, "FILE"), (StoragePlugin.MCAP, "MESSAGE"), (StoragePlugin.MCAP, "STORAGE")],
)
def test_compressed_bags_of_several_files(plugin: StoragePlugin, mode: str, tmp_path: Path) -> None:
    """The list of files has the later one first."""
    folders = [tmp_path / name for name in "ba"]
    for place, folder in enumerate(folders):
        writer = Writer(folder, version=9, storage_plugin=plugin)
        writer.set_compression(CompressionMode[mode], CompressionFormat.ZSTD)
        with writer:
            connection = writer.add_connection("/imu", "sensor_msgs/msg/Imu", typestore=STORE)
            for k in range(3 * place, 3 * place + 3):
                message = STORE.serialize_cdr(gyro(k, START + k * STEP), "sensor_msgs/msg/Imu")
                writer.write(connection, START + k * STEP, message)
    (early,) = (each for each in folders[0].iterdir() if each.suffix != ".yaml")
    early.rename(folders[1] / early.name)
    about = folders[1] / "metadata.yaml"
    (line,) = (each for each in about.read_text().splitlines(keepends=True) if each.startswith("  - a."))
    about.write_text(about.read_text().replace(line, line + line.replace("a.", "b.", 1)))
    with sn.replay(folders[1]) as replay:
        assert [float(each["ang_vel_b"][0, 2]) for each in replay.readings()] == [0, 1, 2, 3, 4, 5]
        assert replay.counts == {"imu": 6} and replay.description.sensors["imu"]["rate_hz"] == 50.0
        assert replay.start_ns == START and replay.end == pytest.approx(0.1)


PARTS: dict[str, dict[str, Any]] = {
    "all": {}, "no index": {"index_types": IndexType.NONE, "repeat_schemas": False},
    "chunks": {"index_types": IndexType.CHUNK, "repeat_schemas": False}, "no counts": {"use_statistics": False},
}  # fmt: skip


@pytest.mark.parametrize("parts", PARTS)
def test_messages_of_a_file_are_in_order_of_time(parts: str, tmp_path: Path) -> None:
    """Its chunks overlap in time, and its summary has only some parts. The newest message is cut."""
    with open(tmp_path / "bag.mcap", "wb") as file:
        writer = McapWriter(file, chunk_size=900, **PARTS[parts])
        writer.start("")
        schema = writer.register_schema("sensor_msgs/msg/Imu", "ros2msg", b"")
        channel = writer.register_channel("/imu", "cdr", schema)
        for k in (5, 0, 3, 9, 1, 4, 2, 8, 7, 6):
            message = bytes(STORE.serialize_cdr(gyro(k, START + k * STEP), "sensor_msgs/msg/Imu"))
            writer.add_message(channel, START + k * STEP, message[: 40 if k == 9 else None], START)
        writer.finish()
    with sn.replay(tmp_path / "bag.mcap") as replay:
        assert replay.counts == {"imu": 10}
        assert [float(each["ang_vel_b"][0, 2]) for each in replay.readings()] == [*range(9)]
        assert [each.tick // STEP for each in replay.readings(start=0.03, end=0.11)] == [2, 3, 4, 5]
        assert replay.at(0.09)["imu"].tick == 4 * STEP and replay.at(1.0)["imu"].tick == 8 * STEP


def test_messages_in_the_journal_of_a_killed_writer_are_read(tmp_path: Path) -> None:
    (path,) = write_all(tmp_path / "bag", StoragePlugin.SQLITE3, [(0, "/imu", gyro(0, START))]).glob("*.db3")
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode = WAL")
        file.execute(
            "INSERT INTO messages (topic_id, timestamp, data) SELECT topic_id, timestamp + 5, data FROM messages"
        )
        file.commit()
        (tmp_path / "killed").mkdir()
        for each in path.parent.glob("*.db3*"):
            shutil.copy(each, tmp_path / "killed")
    with sn.replay(tmp_path / "killed" / path.name) as replay:
        assert [each.tick for each in replay] == [0, 5]


def test_a_bag_without_messages_is_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        writer.add_connection("/imu", "sensor_msgs/msg/Imu", typestore=STORE)
    with sn.replay(tmp_path / "bag") as replay:
        assert not list(replay) and replay.counts == {} and replay.end == 0.0
    assert main(["replay", str(tmp_path / "bag")]) == 0 and "0 to 0 s" in capsys.readouterr().out


def test_commands(bag: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(bag), "--out", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "not shown: /speech: std_msgs/msg/String: it has no numbers" in out and "joint_states" in out
    assert load(tmp_path / "run/readings.npz")["imu"].measured["ang_vel_b"].shape == (3, 1, 3)
    assert main(["export", str(bag), "--to", str(tmp_path / "tum"), "--format", "tum", "--sensor", "odom"]) == 0
    (line, *_) = (tmp_path / "tum/odom.tum").read_text().splitlines()[1:]
    assert line.split()[:4] == ["1700000000.123456789", "0", "2", "100000"]
    assert main(["export", str(bag), "--to", str(tmp_path / "csv"), "--format", "csv"]) == 0
    for name in ("imu", "joint_states"):  # the latter with the same stamp in all messages
        rows = np.loadtxt(tmp_path / f"csv/{name}.measured.csv", delimiter=",", skiprows=1)
        np.testing.assert_allclose(rows[:, 5], [0.0, 1.0, 2.0])
    assert "not exported: /speech" in capsys.readouterr().out
    assert main(["export", str(bag), "--to", str(tmp_path / "again"), "--format", "rosbag2"]) == 0
    with Reader(tmp_path / "again") as again:
        counts = {each.topic: each.msgcount for each in again.connections}
    assert counts["/imu/data_raw"] == counts["/joint_states/joint_states"] == 3
    for sensors in (["imu"], ["imu", "color", "odom"]):
        chosen = [word for name in sensors for word in ("--sensor", name)]
        assert main(["export", str(bag), "--to", str(tmp_path / "euroc"), "--format", "euroc", *chosen]) == 0
        assert ("neither true poses" in capsys.readouterr().out) is (len(sensors) == 1)
    lines = (tmp_path / "euroc/mav0/imu0/data.csv").read_text().splitlines()[1:]
    assert [line.partition(",")[0] for line in lines] == [str(START + k * STEP - 1_000_000) for k in range(3)]
    assert len(list((tmp_path / "euroc/mav0/cam0/data").glob("*.png"))) == 3


@pytest.mark.parametrize("damage", ["cut", "flip", "text"])
def test_damaged_bags_give_one_error(bag: Path, damage: str, tmp_path: Path) -> None:
    source = next(each for each in bag.iterdir() if each.suffix != ".yaml")
    data = bytearray(source.read_bytes())
    if damage == "cut":
        del data[100:]
    elif damage == "flip":
        data[: len(data) // 2] = bytes(len(data) // 2)
    else:
        data = bytearray(b"no bag")
    path = tmp_path / source.name
    path.write_bytes(data)
    with pytest.raises(ModelError):
        list(sn.replay(path))
    with pytest.raises(ModelError):
        sn.replay(tmp_path)  # a folder without metadata.yaml
    (tmp_path / "metadata.yaml").write_text("rosbag2_bagfile_information:\n  relative_file_paths:\n")
    with pytest.raises(ModelError, match="no list of files"):
        sn.replay(tmp_path)


def test_a_file_that_is_neither_a_recording_nor_a_bag_names_both_reasons(tmp_path: Path) -> None:
    with open(tmp_path / "run.mcap", "wb") as file:
        writer = McapWriter(file)
        writer.start("")
        channel = writer.register_channel("/a", "json", writer.register_schema("a", "jsonschema", b"{}"))
        writer.add_message(channel, 0, b"{}", 0)
        writer.finish()
    with pytest.raises(
        ModelError, match=r"not written by sensorium, and .* readable messages: /a: a: .*'json'.*in CDR"
    ):
        sn.replay(tmp_path / "run.mcap")


def test_rosbags_is_named_when_it_is_missing(bag: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rosbags.typesys", None)
    with pytest.raises(MissingDependencyError, match=r"sensorium\[bags\]"):
        sn.replay(bag)


def test_recordings_need_no_extra_of_bags(tmp_path: Path, nursery: Nursery) -> None:
    """A program without the packages of the extra `bags` replays our recordings, and names the extra for other bags."""
    scene = sn.Scene(
        sn.TensorEngine(1, 0.01, bodies=("base",), provides=("pose", "velocity")), [sn.BodyStateCfg(body="base")]
    )
    with scene.record(tmp_path / "own.mcap"):
        scene.step()
    program = nursery.program(WITHOUT_BAGS, str(tmp_path / "own.mcap"), "other.db3", bare=True)
    assert program.wait() == 0, program.err
    assert "1 sensor\n" in program.out and "pip install 'sensorium[bags]'" in program.out
