"""A bag of the drone's flight with a VLP-16: its size, its messages in two readers, and the odometry of KISS-ICP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evo.core import metrics
from evo.core.trajectory import PosePath3D
from kiss_icp.config.parser import load_config
from kiss_icp.kiss_icp import KissICP
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from numpy.typing import NDArray
from rosbags.typesys import Stores, get_typestore

from sensorium.cli import main
from sensorium.demo import hall

Array = NDArray[np.float64]
SECONDS, SCAN = 24, 0.1
VOXEL = 0.7
"""Size of the voxels of KISS-ICP's map, m; its default is 1 m for ranges of 100 m.

With the default, the error is 0.066 m. Points that the true motion corrects have 0.045 m, and 0.038 m without noise.
The rest is that of KISS-ICP, which corrects by the motion of the previous scan, and matches points to a coarse map.
"""
RATES = {
    "/lidar/points": 10, "/cam/color/image_raw/compressed": 10, "/cam/color/camera_info": 10, "/imu/data_raw": 200,
    "/gnss/fix": 5, "/gnss/fix_velocity": 5,
}  # fmt: skip
RIG = """
[[sensor]]
kind = "lidar"
name = "lidar"
body = "body"
preset = "vlp16"

[[sensor]]
kind = "camera"
name = "cam"
body = "body"
data_types = ["rgb"]
width = 320
height = 240
rate_hz = 10.0

[[sensor]]
kind = "imu"
name = "imu"
body = "body"
preset = "adis16448"
fields = ["ang_vel_b", "lin_acc_b"]
rate_hz = 200.0

[[sensor]]
kind = "gnss"
name = "gnss"
body = "body"
rate_hz = 5.0
pos_noise = 0.05
vel_noise = 0.05
"""


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("flight")
    (root / "rig.toml").write_text(RIG)
    run = ["run", "--trajectory", "drone", "--world", "hall", "--rig", f"{root}/rig.toml", "--seconds", str(SECONDS)]
    assert main([*run, "--record", f"{root}/run.mcap", "--ros2-only", "--no-truth", "--images", "png"]) == 0
    return root / "run.mcap"


def test_a_bag_is_small(bag: Path) -> None:
    """350 MB per 40 s."""
    assert bag.stat().st_size < 350e6 * SECONDS / 40.0


def content(message: Any, other: Any, name: str) -> None:
    """Check that a message of rosbags and one of mcap-ros2-support are equal."""
    for field in type(other).__slots__:
        a, b = getattr(message, field), getattr(other, field)
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, np.frombuffer(b, a.dtype) if isinstance(b, bytes) else b, name)
        elif isinstance(a, list):
            assert len(a) == len(b), name
            for x, y in zip(a, b, strict=True):
                content(x, y, name)
        elif isinstance(a, str | int | float):
            assert a == b or a != a, f"{name}, {field}"
        else:
            content(a, b, name)


def test_two_readers_decode_every_message(bag: Path) -> None:
    store, counts = get_typestore(Stores.ROS2_JAZZY), Counter[str]()
    with bag.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        for schema, channel, message, decoded in reader.iter_decoded_messages():
            content(store.deserialize_cdr(message.data, schema.name), decoded, channel.topic)
            counts[channel.topic] += 1
    assert set(counts) == {*RATES, "/tf_static", "/clock"}  # without truth, no frame moves
    for topic, rate in RATES.items():
        assert counts[topic] in (rate * SECONDS, rate * SECONDS + 1), topic


def scans(bag: Path) -> Iterator[tuple[float, Array, Array]]:
    """Yield the time of the start of each scan, its points and their times since the start."""
    store = get_typestore(Stores.ROS2_JAZZY)
    types = {4: "<u2", 7: "<f4"}
    with bag.open("rb") as file:
        for schema, _, message in make_reader(file).iter_messages(topics=["/lidar/points"]):
            cloud = store.deserialize_cdr(message.data, schema.name)
            names, places, formats = zip(*((f.name, f.offset, types[f.datatype]) for f in cloud.fields), strict=True)
            layout = {"names": names, "offsets": places, "formats": formats, "itemsize": cloud.point_step}
            points = np.frombuffer(cloud.data.tobytes(), np.dtype(layout))
            xyz = np.stack([points[axis] for axis in "xyz"], axis=1).astype(np.float64)
            yield cloud.header.stamp.sec + 1e-9 * cloud.header.stamp.nanosec, xyz, points["time"].astype(np.float64)


def odometry_error(bag: Path, *, deskew: bool) -> tuple[float, float]:
    """Return the absolute trajectory error of KISS-ICP, root mean square, m, and the length of the path, m."""
    config = load_config(None)
    config.data.deskew, config.mapping.voxel_size, config.registration.max_num_threads = deskew, VOXEL, 1
    odometry, poses, times = KissICP(config), [], []
    for time, points, offsets in scans(bag):
        odometry.register_frame(points, offsets)
        poses.append(odometry.last_pose.copy())
        times.append(time + (SCAN if deskew else 0.5 * SCAN))  # it moves the points to the end of the scan
    motion = hall.drone().at(np.array(times))
    true, found = PosePath3D(motion.pos, motion.quat), PosePath3D(poses_se3=poses)
    found.align(true)
    error = metrics.APE(metrics.PoseRelation.translation_part)
    error.process_data((true, found))
    return error.get_statistic(metrics.StatisticsType.rmse), true.path_length


def test_the_odometry_of_kiss_icp_follows_the_flight(bag: Path) -> None:
    """Point times let it correct the motion during a scan, which moves points by up to 0.2 m."""
    error, length = odometry_error(bag, deskew=True)
    assert length > 50.0 and error < 0.06
    assert odometry_error(bag, deskew=False)[0] > 1.2 * error  # at the best time, the middle of a scan
