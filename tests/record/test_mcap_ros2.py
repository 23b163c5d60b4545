"""Recordings with ROS 2 messages hold those that `Ros2Messages` makes of all live readings at once."""

from __future__ import annotations

import io
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mcap.reader import make_reader
from mcap_scenes import following, scene
from PIL import Image
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

import sensorium as sn
from sensorium.errors import ConfigError
from sensorium.readings import Reading
from sensorium.record import mcap_writer, rows
from sensorium.record.export import rosbag2
from sensorium.record.ros2 import Ros2Messages

EYE = sn.DepthCameraCfg(name="eye", body="arm", res=(4, 3))


@pytest.mark.parametrize("collected", [1, 7, 256])
def test_messages_are_those_of_the_live_readings(
    collected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many readings are converted at once, by recorder and export; two of five environments, with a reset."""
    monkeypatch.setattr(rows, "MAX_ROWS", collected)
    monkeypatch.setattr(mcap_writer, "CHUNK_BYTES", 20_000)
    monkeypatch.setattr(rosbag2, "BLOCK_BYTES", 1000)
    made = scene()
    with (
        following(made) as live,
        made.record(tmp_path / "run.mcap", envs=[1, 3], ros2=True),
        made.record(tmp_path / "only.mcap", envs=[1, 3], ros2="only"),
        made.record(tmp_path / "measured.mcap", envs=[1, 3], ros2="only", truth=False),
    ):
        for tick in range(90):
            made.update()
            if tick == 50:
                made.reset([3])
    messages = Ros2Messages(made.description(), [1, 3], truth=True, poses=True)
    expected: dict[str, list[tuple[int, bytes]]] = {}

    def add(block: Any) -> None:
        for topic, log_time, data in block:
            expected.setdefault(messages.topics[topic].name, []).append((log_time, bytes(data)))

    add(messages.static())
    for name in made:
        add_all = [reading for reading in live if reading.name == name]
        for block in messages.encode(add_all):
            add(block)
    add(messages.clock(sorted({reading.time for reading in live})))
    with sn.replay(tmp_path / "run.mcap") as replay:
        for name, readings in (("stacks", replay.stacks()), ("readings", replay.readings())):
            rosbag2.write_rosbag2(readings, tmp_path / name, replay.description, [1, 3])
    measured = {topic: values for topic, values in expected.items() if "/truth/" not in topic and topic != "/tf"}
    for path in ("run.mcap", "stacks/stacks_0.mcap", "readings/readings_0.mcap", "only.mcap", "measured.mcap"):
        found: dict[str, list[tuple[int, bytes]]] = {}
        with open(tmp_path / path, "rb") as file:
            for _, channel, message in make_reader(file).iter_messages(log_time_order=False):
                if path != "run.mcap" or not channel.topic.startswith(("/batch/", "/marks")):
                    found.setdefault(channel.topic, []).append((message.log_time, message.data))
                    assert "offered_qos_profiles" in channel.metadata
        if path == "measured.mcap":
            assert found.keys() == measured.keys() and len(measured) < len(expected) - 4
            expected = measured
        assert found.keys() == expected.keys() and len(found) > 4
        for topic, values in expected.items():
            assert sorted(found[topic]) == sorted(values), topic
            times = [log_time for log_time, _ in found[topic]]
            assert topic == "/tf" or times == sorted(times)


def test_an_export_holds_few_readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings of one tick are more than a block: each is released when the next tick begins."""
    monkeypatch.setattr(rosbag2, "BLOCK_BYTES", 1)
    made, held, most = scene(), weakref.WeakSet[Reading](), 0

    def readings() -> Iterator[Reading]:
        nonlocal most
        for _ in range(30):
            made.update()
            held.update(tick := [*made.publish(poses=True).values()])
            while tick:
                yield tick.pop()
            most = max(most, len(held))

    rosbag2.write_rosbag2(readings(), tmp_path / "bag", made.description(), [1, 3])
    assert 0 < most < 4 * len(made.sensors)


def test_a_recording_without_truth_has_the_measured_values_alone(tmp_path: Path) -> None:
    made = scene()
    with (
        made.record(tmp_path / "all.mcap", envs=[1, 3]),
        made.record(tmp_path / "measured.mcap", envs=[1, 3], truth=False),
    ):
        for _ in range(30):
            made.step()
    with sn.replay(tmp_path / "all.mcap") as both, sn.replay(tmp_path / "measured.mcap") as measured:
        assert measured.description.to_dict() == both.description.to_dict()
        topics = {channel.topic for channel in measured._file.channels.values()}
        assert not any("truth" in topic or "bodies" in topic for topic in topics) and len(topics) == 2
        for one, other in zip(both.readings(), measured.readings(), strict=True):
            assert one.truth and not other.truth and one.pose is not None and other.pose is None
            for name, array in one.measured.items():
                np.testing.assert_array_equal(other.measured[name], array)


def test_images_of_8_bits_are_compressed(tmp_path: Path) -> None:
    """PNG keeps them, and JPEG has a PSNR above 35 dB; distances stay as they are."""
    engine = sn.TensorEngine(num_envs=1, dt=0.01, bodies=["base"], shapes=[sn.engines.Shape("plane", "floor")])
    offset = sn.OffsetCfg(pos=(0.0, 0.0, 1.0))  # it sees the horizon
    types = ("rgb", "depth")
    camera = sn.CameraCfg(name="eye", body="base", width=48, height=32, data_types=types, offset=offset)
    made = sn.Scene(engine, [camera])
    with (
        following(made) as live,
        made.record(tmp_path / "png.mcap", ros2="only", truth=False, images="png"),
        made.record(tmp_path / "jpeg.mcap", ros2="only", truth=False, images="jpeg"),
    ):
        for _ in range(2):
            made.step()
    for images in ("png", "jpeg"):
        with AnyReader([tmp_path / f"{images}.mcap"], default_typestore=get_typestore(Stores.ROS2_JAZZY)) as bag:
            topics = {each.topic: each.msgtype for each in bag.connections}
            found = [
                bag.deserialize(data, each.msgtype)
                for each, _, data in bag.messages()
                if each.topic.endswith("/compressed")
            ]
        assert topics["/eye/depth/image_raw"] == "sensor_msgs/msg/Image" and "/eye/rgb/image_raw" not in topics
        for reading, message in zip(live, found, strict=True):
            with Image.open(io.BytesIO(bytes(message.data))) as picture:
                assert str(picture.format).lower() == images and len(message.data) < reading.rgb.nbytes / 2
                error = np.asarray(picture, np.float64) - reading.rgb[0]
            assert reading.rgb.std() > 5.0 and (error**2).mean() < {"png": 1e-9, "jpeg": 255.0**2 / 10.0**3.5}[images]


def test_contradictory_options_and_what_a_bag_cannot_hold(tmp_path: Path) -> None:
    made = scene(1)
    for options, field in (({"images": "png"}, "images"), ({"states": True, "ros2": "only"}, "states")):
        with pytest.raises(ConfigError, match=field):
            made.record(tmp_path / "run.mcap", **options)
    assert not (tmp_path / "run.mcap").exists()
    with made.record(tmp_path / "run.mcap", ros2="only") as recorder:
        made.step()
        for call in (lambda: recorder.log("reward", np.zeros(1)), lambda: recorder.mark("task")):
            with pytest.raises(ConfigError, match="ROS 2 messages only"):
                call()


def test_a_recording_has_the_given_date(tmp_path: Path) -> None:
    """Of its start: at once in the messages of a bag, and in exports of readings, whose times count from 0."""
    made, date = scene(1), 1_700_000_000_123_456_789
    with (
        made.record(tmp_path / "bag.mcap", ros2="only", start_ns=date),
        made.record(tmp_path / "run.mcap", ros2=True, start_ns=date),
    ):
        made.update()
        made.update()
    stamps = {}
    for name in ("bag", "run"):
        with AnyReader([tmp_path / f"{name}.mcap"], default_typestore=get_typestore(Stores.ROS2_JAZZY)) as bag:
            clocks = [bag.deserialize(data, each.msgtype) for each, _, data in bag.messages() if each.topic == "/clock"]
        stamps[name] = [each.clock.sec * 10**9 + each.clock.nanosec for each in clocks]
    assert len(stamps["run"]) == 3 and stamps["bag"] == [date + ns for ns in stamps["run"]]
    with sn.replay(tmp_path / "run.mcap") as replay:
        assert replay.start_ns == date and replay.end < 1.0
    with pytest.raises(ConfigError, match="start_ns: got -1"):
        made.record(tmp_path / "other.mcap", start_ns=-1)


def test_rosbags_reads_all_topics(tmp_path: Path) -> None:
    made = scene(2)
    with made.record(tmp_path / "run.mcap", ros2=True):
        for _ in range(20):
            made.update()
    with AnyReader([tmp_path / "run.mcap"], default_typestore=get_typestore(Stores.ROS2_JAZZY)) as bag:
        times: dict[str, list[float]] = {}
        for connection, stamp, data in bag.messages():
            message: Any = bag.deserialize(data, connection.msgtype)
            if connection.topic == "/clock":
                times.setdefault("clock", []).append(message.clock.sec + message.clock.nanosec * 1e-9)
                assert stamp == round(times["clock"][-1] * 1e9)
    assert np.allclose(times["clock"], np.arange(21) * 0.002)


def test_constant_transforms_follow_the_scene(tmp_path: Path) -> None:
    """Each message on /tf_static holds all frames, and the first one is not earlier than the recording.

    A camera that moves on its body has another constant transform, and none once it differs between environments.
    """
    engine = sn.TensorEngine(num_envs=2, dt=0.002, bodies=["base", "arm"], shapes=[sn.engines.Shape("plane", "floor")])
    made = sn.Scene(engine, [sn.BodyStateCfg(name="state", body="base")])
    for _ in range(100):
        made.update()
    with made.record(tmp_path / "run.mcap", ros2=True):
        made.update()
        made.add(EYE)
        made.update()
        made.add(EYE.replace(name="second"))
        made.update()
        made.remove("state")
        made.update()
        for positions in (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])):
            made["eye"].set_world_poses(positions)  # type: ignore[attr-defined]
            made.update()
            made.update()
    found, moving = [], []
    with AnyReader([tmp_path / "run.mcap"], default_typestore=get_typestore(Stores.ROS2_JAZZY)) as bag:
        for connection, stamp, data in bag.messages():
            assert stamp >= 200_000_000
            message: Any = bag.deserialize(data, connection.msgtype)
            if connection.topic == "/tf_static":
                found.append((stamp // 1_000_000, message.transforms))
            elif connection.topic == "/tf":
                moving.append((stamp // 1_000_000, {each.child_frame_id for each in message.transforms}))
    children = [(time, [each.child_frame_id for each in transforms]) for time, transforms in found]
    base, arms = ["state"], ["eye", "second"]
    expected = [
        (200, base),
        (204, [*arms[:1], *base]),
        (206, [*arms, *base]),
        (208, arms),
        (210, arms),
        (214, arms[1:]),
    ]
    assert [time for time, _ in children] == [time for time, _ in expected]
    for (_, names), (time, wanted) in zip(children, expected, strict=True):
        cameras = {"eye", "second"} & {*wanted} | ({"eye"} if time == 214 else set())
        every = {*wanted, *(f"{camera}_optical" for camera in cameras)}
        assert len(names) == 2 * len(every) and {*names} == {f"env_000{env}/{name}" for env in (0, 1) for name in every}
    for time, place in ((208, [0.0, 0.0, 0.0]), (210, [1.0, 2.0, 3.0])):
        (eye,) = (each for each in dict(found)[time] if each.child_frame_id == "env_0001/eye")
        where = eye.transform.translation
        assert eye.header.frame_id == "env_0001/arm" and [where.x, where.y, where.z] == pytest.approx(place)
    assert {name for time, names in moving if time < 214 for name in names} == {
        f"env_000{env}/{body}" for env in (0, 1) for body in ("base", "arm")
    }
    assert {name for time, names in moving if time > 214 for name in names} == {
        f"env_000{env}/{frame}" for env in (0, 1) for frame in ("arm", "eye")
    }
    with sn.replay(tmp_path / "run.mcap") as replay:
        assert replay.start == pytest.approx(0.2)
