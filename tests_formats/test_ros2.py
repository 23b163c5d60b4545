"""mcap-ros2-support decodes all ROS 2 messages of a recording, and finds the same values as rosbags."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

import sensorium as sn
from sensorium.patterns import RotatingMirrorPatternCfg


def numbers(message: Any) -> list[float]:
    """Return all numbers of a message, in order."""
    if isinstance(message, bool | int | float | np.number):
        return [float(message)]
    if isinstance(message, np.ndarray | bytes | memoryview | list | tuple):
        return [each for item in message for each in numbers(item)]
    names = getattr(message, "__dataclass_fields__", None) or getattr(message, "__slots__", ())
    return [each for name in names if name[0] != "_" and not name.isupper() for each in numbers(getattr(message, name))]


def is_own(topic: str) -> bool:
    """Return whether a topic holds the readings themselves."""
    return topic.startswith(("/batch/", "/marks"))


def test_all_types(tmp_path: Path) -> None:
    times = np.arange(5.0)
    path = sn.Trajectory(times, np.stack([times, 0.0 * times, 1.0 + 0.0 * times], axis=1), [[1.0, 0.0, 0.0, 0.0]] * 5)
    shapes = [sn.engines.Shape("plane", "floor", (50, 50, 1))]
    mid360 = RotatingMirrorPatternCfg.mid360().replace(points_per_second=2000)
    scene = sn.Scene(sn.TrajectoryEngine(path, 0.05, world=shapes), [
        sn.preset("adis16448", name="imu", body="body", magnetic_field=(0.2, 0.0, -0.4), rate_hz=20.0),
        sn.GnssCfg(name="gnss", body="body", horizontal_sd=1.0, vertical_sd=1.0),
        sn.BarometerCfg(name="baro", body="body", noise=1.0),
        sn.BodyStateCfg(name="state", body="body"),
        sn.preset("mid360", name="mid360", body="body", pattern=mid360),
        sn.RadarCfg(name="radar", body="body"),
        sn.CameraCfg(name="eye", body="body", width=8, height=6, data_types=("rgb", "depth", "points_b")),
        sn.EventCameraCfg(name="events", body="body", width=8, height=6),
    ])  # fmt: skip
    with scene.record(tmp_path / "run.mcap", ros2=True):
        scene.step(substeps=4)
    with (tmp_path / "run.mcap").open("rb") as file:
        decoded = make_reader(file, decoder_factories=[DecoderFactory()]).iter_decoded_messages()
        found = [(channel.topic, message) for _, channel, _, message in decoded if not is_own(channel.topic)]
    expected: list[tuple[str, Any]] = []
    with AnyReader([tmp_path / "run.mcap"], default_typestore=get_typestore(Stores.ROS2_JAZZY)) as bag:
        for connection, _, data in bag.messages():
            if not is_own(connection.topic):
                expected.append((connection.topic, bag.deserialize(data, connection.msgtype)))
        types = {each.msgtype for each in bag.connections if not is_own(each.topic)}
    assert len(types) >= 12 and Counter(topic for topic, _ in found) == Counter(topic for topic, _ in expected)
    for topic in {topic for topic, _ in expected}:
        ours, theirs = ([numbers(message) for name, message in each if name == topic] for each in (found, expected))
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=topic)
