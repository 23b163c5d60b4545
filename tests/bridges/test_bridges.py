"""Bridges: a ROS 2 node, with stand-ins for rclpy, and a Foxglove server, read by a client of its protocol.

The messages are decoded by rosbags.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from nursery import PATIENCE, until
from rosbags.typesys import Stores, get_typestore
from websockets.sync.client import connect

import sensorium as sn
from sensorium.bridges.bridge import Bridge
from sensorium.bridges.foxglove import FoxgloveServer
from sensorium.bridges.ros2 import Ros2Node
from sensorium.cli import main
from sensorium.local import local_client
from sensorium.record.ros2 import MessageBlock, Topic

XML = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body name="base" pos="0 0 1">
      <joint name="hinge" axis="0 1 0"/>
      <geom name="ball" size=".1" mass="1"/>
      <site name="imu"/>
      <camera name="eye"/>
    </body>
  </worldbody>
  <actuator><motor joint="hinge"/></actuator>
</mujoco>
"""
STORE = get_typestore(Stores.ROS2_JAZZY)


@pytest.fixture
def scene() -> sn.Scene:
    rig: list[Any] = [
        sn.ImuCfg(name="imu", site="imu", gyro_noise=0.1),
        sn.DepthCameraCfg(name="eye", camera="eye", res=(4, 3), fov_horizontal=70.0),
        sn.ContactSensorCfg(name="touch", primary=sn.ContactMatch(mode="body", pattern="base")),
        sn.BodyStateCfg(name="state", body="base"),
    ]
    return sn.Scene(sn.MujocoEngine(XML, num_envs=2), rig)


class Publisher:
    def __init__(self, topic: str, profile: Any) -> None:
        self.topic, self.profile = topic, profile
        self.messages: list[bytes] = []

    def publish(self, message: bytes) -> None:
        assert type(message) is bytes  # rclpy sends bytes as they are, and serializes all other objects
        self.messages.append(message)


class Node:
    """Stand-in for a node of rclpy."""

    def __init__(self, name: str) -> None:
        self.name, self.is_destroyed = name, False
        self.publishers: dict[str, Publisher] = {}
        self.subscriptions: dict[str, Callable[[Any], object]] = {}

    def create_publisher(self, kind: str, topic: str, profile: Any) -> Publisher:
        self.publishers[topic] = Publisher(topic, profile)
        return self.publishers[topic]

    def create_subscription(self, kind: str, topic: str, callback: Callable[[Any], object], depth: int) -> None:
        assert kind == "std_msgs/msg/Float64MultiArray"
        self.subscriptions[topic] = callback

    def destroy_node(self) -> None:
        self.is_destroyed = True


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """Install a stand-in for ROS 2, without the package `nav_msgs`; return the created nodes."""
    made: list[Node] = []

    def create_node(name: str) -> Node:
        made.append(Node(name))
        return made[-1]

    def get_message(name: str) -> str:
        if name.startswith("nav_msgs/"):
            raise ModuleNotFoundError("No module named 'nav_msgs'")
        return name

    def interrupted(node: Node) -> None:
        raise InterruptedError

    def install(name: str, **contents: Any) -> None:
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)

    durability = SimpleNamespace(TRANSIENT_LOCAL="latched", VOLATILE="volatile")
    install("rclpy", init=lambda: None, create_node=create_node, try_shutdown=lambda: None, spin=interrupted)
    install("rclpy.executors", ExternalShutdownException=InterruptedError)
    install("rclpy.qos", DurabilityPolicy=durability, QoSProfile=SimpleNamespace)
    install("rosidl_runtime_py")
    install("rosidl_runtime_py.utilities", get_message=get_message)
    return made


def decoded(publisher: Publisher, kind: str) -> list[Any]:
    return [STORE.deserialize_cdr(data, kind) for data in list(publisher.messages)]


def nanoseconds(publisher: Publisher) -> list[int]:
    """Return the times of messages, which follow the encapsulation of 4 bytes."""
    times = [struct.unpack_from("<iI", data, 4) for data in list(publisher.messages)]
    return [seconds * 10**9 + rest for seconds, rest in times]


def test_node_publishes_readings_time_and_frames(scene: sn.Scene, nodes: list[Node]) -> None:
    with local_client(scene, timeout=PATIENCE) as client, Ros2Node(client, "robot", env=1) as bridge:
        (node,) = nodes
        assert node.name == "robot"
        assert bridge.skipped == {"/env_0001/state/odometry": "nav_msgs/msg/Odometry: No module named 'nav_msgs'"}
        expected = []
        for _ in range(5):
            scene.step(torch.ones(2, 1))
            expected.append(scene["imu"].data.ang_vel_b[1].numpy().copy())
        imu, clock = node.publishers["/env_0001/imu/data_raw"], node.publishers["/clock"]
        images = node.publishers["/env_0001/eye/depth/image_raw"]
        until(lambda: nanoseconds(imu)[-1:] == nanoseconds(clock)[-1:] == [50_000_000] and bool(images.messages))
    messages = decoded(imu, "sensor_msgs/msg/Imu")[-5:]  # a sample at 0 s may precede them
    found = [[each.angular_velocity.x, each.angular_velocity.y, each.angular_velocity.z] for each in messages]
    np.testing.assert_array_equal(np.array(found, np.float32), expected)
    assert nanoseconds(imu)[-5:] == nanoseconds(clock)[-5:] == [10_000_000 * k for k in range(1, 6)]
    image = decoded(images, "sensor_msgs/msg/Image")[-1]
    assert (image.width, image.height, image.encoding) == (4, 3, "32FC1")
    latched = node.publishers["/tf_static"]
    assert latched.profile == SimpleNamespace(depth=1, durability="latched")
    assert imu.profile == SimpleNamespace(depth=10, durability="volatile")
    (static,) = decoded(latched, "tf2_msgs/msg/TFMessage")
    assert "env_0001/eye_optical" in [each.child_frame_id for each in static.transforms]
    assert node.is_destroyed


def test_frames_are_published_again_when_a_camera_moves_or_a_reset_changes_the_model(
    scene: sn.Scene, nodes: list[Node]
) -> None:
    """A camera whose place differs between environments is on /tf instead. All sensors continue."""

    def frames() -> list[tuple[int, dict[str, tuple[float, float, float]]]]:
        found = []
        for message in decoded(node.publishers["/tf_static"], "tf2_msgs/msg/TFMessage"):
            times = {(each.header.stamp.sec, each.header.stamp.nanosec) for each in message.transforms}
            ((seconds, rest),) = times
            pos = {each.child_frame_id: each.transform.translation for each in message.transforms}
            found.append((seconds * 10**9 + rest, {name: (p.x, p.y, p.z) for name, p in pos.items()}))
        return found

    def in_tf() -> dict[int, float]:
        found = [each for message in decoded(node.publishers["/tf"], "tf2_msgs/msg/TFMessage")
                 for each in message.transforms if each.child_frame_id == "env_0001/eye"]  # fmt: skip
        return {each.header.stamp.nanosec: each.transform.translation.z for each in found}

    with local_client(scene, timeout=PATIENCE) as client, Ros2Node(client, env=1, truth=True):
        (node,) = nodes
        images = node.publishers["/env_0001/eye/depth/image_raw"]
        imu, clock = node.publishers["/env_0001/imu/data_raw"], node.publishers["/clock"]
        engine, eye = scene.engine, scene["eye"]
        assert isinstance(engine, sn.MujocoEngine) and isinstance(eye, sn.DepthCamera)
        positions = {1: [0.0, 0.0, 2.0], 2: [[0.0, 0.0, 2.0], [0.0, 0.0, 3.0]], 3: [0.0, 0.0, 1.5]}
        for tick in range(5):
            if tick in positions:
                eye.set_world_poses(torch.tensor(positions[tick]))
            scene.step()
            until(lambda: nanoseconds(images)[-1:] == nanoseconds(clock)[-1:] == [10_000_000 * scene.tick])
        until(lambda: nanoseconds(imu)[-1:] == [50_000_000])
        before = nanoseconds(imu)
        engine.batch.expand("site_pos")[..., 2] = 0.25
        scene.reset()
        until(lambda: frames()[-1][1]["env_0001/imu"] == (0.0, 0.0, 0.25))
        published = frames()[:-1]
        eye.set_world_poses(torch.tensor(positions[2]))
        until(lambda: scene.step() or 3.0 in in_tf().values())
    assert [time for time, _ in published] == [0, 20_000_000, 30_000_000, 40_000_000]
    heights = [found.get("env_0001/eye", (0.0, 0.0, -1.0))[2] for _, found in published]
    np.testing.assert_allclose(heights, [0.0, 1.0, -1.0, 0.5], atol=1e-6)
    assert all(found["env_0001/imu"] == (0.0, 0.0, 0.0) for _, found in published)
    assert min(in_tf()) == 30_000_000 and not {40_000_000, 50_000_000} & in_tf().keys()
    np.testing.assert_allclose(list(in_tf().values()), 3.0, atol=1e-6)
    assert before[-5:] == [10_000_000 * k for k in range(1, 6)]


class Collected(Bridge):
    """Bridge that keeps its messages; it listens to no sensor."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.found: list[tuple[str, str]] = []
        self.declared: list[str] = []

    def declare(self, number: int, topic: Topic) -> None:
        self.declared.append(topic.name)

    def publish(self, block: MessageBlock) -> None:
        for number, time, data in block:
            topic = self.messages.topics[number]
            if topic.name.startswith("/tf"):
                message: Any = STORE.deserialize_cdr(bytes(data), topic.type)
                self.found += [(topic.name, f"{each.child_frame_id} {time}") for each in message.transforms]


@pytest.mark.parametrize("is_late", [False, True])
def test_samples_have_the_frames_of_their_tick(scene: sn.Scene, is_late: bool) -> None:
    """A sample that precedes the end of its frame, and one that follows the end of later frames."""
    camera, positions = scene["eye"], {2: [[0.0, 0.0, 2.0], [0.0, 0.0, 3.0]], 3: [0.0, 0.0, 1.5]}
    assert isinstance(camera, sn.DepthCamera)
    with local_client(scene, timeout=PATIENCE) as client:
        bridge, readings, ends = Collected(client, sensors=["eye"], env=1), list[Any](), list[Any]()

        def convert() -> None:
            for kept, take in ((readings, bridge.on_sample), (ends, bridge.on_frame)):
                for each in kept:
                    take(each)
                kept.clear()

        client.subscribe("eye", readings.append, policy="lossless", envs=1)
        client.on_frame(ends.append)
        until(lambda: len(readings) == 1)  # the present one
        for tick in range(1, 5):
            if tick in positions:
                camera.set_world_poses(torch.tensor(positions[tick]))
            scene.step()
            until(lambda: readings[-1:] and readings[-1].tick == scene.tick and ends and ends[-1].tick == scene.tick)
            if is_late:
                bridge.on_frame(ends[-1])
            else:
                convert()
        convert()
    in_tf = [text for name, text in bridge.found if name == "/tf" and text.startswith("env_0001/eye ")]
    assert in_tf == ["env_0001/eye 20000000"]
    again = [text for name, text in bridge.found if name == "/tf_static" and text.startswith("env_0001/eye ")]
    assert again == ["env_0001/eye 30000000"]


def test_first_constant_frame_adds_its_topic(scene: sn.Scene, nodes: list[Node]) -> None:
    """The place of the sensor differs between environments, until a reset."""
    engine = scene.engine
    assert isinstance(engine, sn.MujocoEngine)
    places = engine.batch.expand("site_pos")
    places[..., 2] = torch.tensor([[0.1], [0.2]])
    scene.reset()
    with local_client(scene, timeout=PATIENCE) as client, Ros2Node(client, sensors=["imu"]):
        (node,) = nodes
        assert "/tf_static" not in node.publishers
        places[..., 2] = 0.3
        scene.reset()
        until(lambda: "/tf_static" in node.publishers and node.publishers["/tf_static"].messages)
        (static,) = decoded(node.publishers["/tf_static"], "tf2_msgs/msg/TFMessage")
        assert {each.child_frame_id for each in static.transforms} == {"env_0000/imu", "env_0001/imu"}
        assert all(each.transform.translation.z == pytest.approx(0.3) for each in static.transforms)


def test_commands_become_controls_of_their_environment(
    scene: sn.Scene, nodes: list[Node], caplog: pytest.LogCaptureFixture
) -> None:
    with local_client(scene, lockstep=False, timeout=PATIENCE) as client, Ros2Node(client, sensors=["imu"]):
        (node,), engine = nodes, scene.engine
        assert isinstance(engine, sn.MujocoEngine)
        node.subscriptions["/env_0001/cmd"](SimpleNamespace(data=[0.5]))
        assert engine.ctrl.tolist() == [[0.0], [0.5]]
        node.subscriptions["/env_0000/cmd"](SimpleNamespace(data=[-2.0]))
        assert engine.ctrl.tolist() == [[-2.0], [0.5]]
        node.subscriptions["/env_0000/cmd"](SimpleNamespace(data=[1.0, 2.0]))
        assert "controls of env 0: control.ctrl: got (2, 2), expected the shape [1] or [2, 1]" in caplog.text
        assert engine.ctrl.tolist() == [[-2.0], [0.5]]


def test_command_publishes_a_served_simulation(
    scene: sn.Scene, nodes: list[Node], capsys: pytest.CaptureFixture[str]
) -> None:
    with sn.serve(scene, "tcp://127.0.0.1:0") as server:
        assert main(["ros2", server.address, "imu", "state", "--env", "1", "--truth", "--name", "robot"]) == 0
        assert main(["ros2", server.address, "imo"]) == 2
        assert main(["ros2", server.address, "--env", "2"]) == 2
    (node,) = nodes
    assert node.name == "robot" and {"/env_0001/imu/data_raw", "/env_0001/imu/truth/data_raw"} <= node.publishers.keys()
    told = " ".join(capsys.readouterr().err.split())
    assert "/env_0001/state/odometry is not published: nav_msgs/msg/Odometry: No module named 'nav_msgs'" in told
    assert "unknown sensor 'imo'. Did you mean 'imu'?" in told and "env: got 2, expected a number from 0 to 1" in told


def test_node_without_ros_2_says_what_is_missing(scene: sn.Scene) -> None:
    with (
        local_client(scene, timeout=PATIENCE) as client,
        pytest.raises(sn.errors.MissingDependencyError, match="needs rclpy, which is part of ROS 2"),
    ):
        Ros2Node(client)


class App:
    """Client of Foxglove's protocol."""

    def __init__(self, port: int) -> None:
        self._socket = connect(f"ws://127.0.0.1:{port}", subprotocols=["foxglove.sdk.v1"])  # type: ignore[list-item]
        self.channels: dict[str, dict[str, Any]] = {}
        self.messages: dict[str, list[tuple[int, bytes]]] = {}
        self.times: list[int] = []
        self._topics: dict[int, str] = {}

    def read(self) -> None:
        """Read one message."""
        message = self._socket.recv(timeout=120.0)
        if isinstance(message, str):
            said = json.loads(message)
            if said["op"] == "advertise":
                self.channels |= {each["topic"]: each for each in said["channels"]}
        elif message[0] == 1:
            number, time = struct.unpack_from("<IQ", message, 1)
            self.messages.setdefault(self._topics[number], []).append((time, message[13:]))
        elif message[0] == 2:
            self.times.append(struct.unpack_from("<Q", message, 1)[0])

    def subscribe(self, *topics: str) -> None:
        wanted = []
        for number, topic in enumerate(topics):
            self._topics[number] = topic
            wanted.append({"id": number, "channelId": self.channels[topic]["id"]})
        self._socket.send(json.dumps({"op": "subscribe", "subscriptions": wanted}))

    def close(self) -> None:
        self._socket.close()


def test_app_shows_images_transforms_and_values(scene: sn.Scene) -> None:
    with local_client(scene, timeout=PATIENCE) as client, FoxgloveServer(client, 0) as server:
        app = App(server.port)
        topics = ("/env_0001/imu/data_raw", "/env_0000/eye/depth/image_raw", "/tf_static", "/touch/values")
        while not app.channels.keys() >= {*topics}:
            app.read()
        about = app.channels[topics[0]]
        assert (about["encoding"], about["schemaName"], about["schemaEncoding"]) == (
            "cdr", "sensor_msgs/msg/Imu", "ros2msg",
        )  # fmt: skip
        assert "geometry_msgs/Vector3 angular_velocity" in about["schema"]
        assert client.server.counts.subscriptions == 0  # nothing is computed for nobody
        app.subscribe(*topics)
        until(lambda: client.server.counts.subscriptions == 3)
        scene.step(torch.ones(2, 1))
        while not app.messages.keys() >= {*topics} or not app.times:
            app.read()
        time, data = app.messages[topics[0]][-1]
        assert time == app.times[-1] == 10_000_000
        message: Any = STORE.deserialize_cdr(data, "sensor_msgs/msg/Imu")
        rate = message.angular_velocity
        np.testing.assert_array_equal(
            np.array([rate.x, rate.y, rate.z], np.float32), scene["imu"].data.ang_vel_b[1].numpy()
        )
        np.testing.assert_allclose(message.angular_velocity_covariance[[0, 4, 8]], 0.1**2)
        image: Any = STORE.deserialize_cdr(app.messages[topics[1]][-1][1], "sensor_msgs/msg/Image")
        depth = scene["eye"].data.distance_to_image_plane[0].numpy().squeeze()
        np.testing.assert_array_equal(image.data.view("<f4").reshape(3, 4), np.where(np.isfinite(depth), depth, np.nan))
        values = json.loads(app.messages["/touch/values"][-1][1])
        assert values["found"] == scene["touch"].data.found.tolist()
        transforms: Any = STORE.deserialize_cdr(app.messages["/tf_static"][-1][1], "tf2_msgs/msg/TFMessage")
        parents = {each.child_frame_id: each.header.frame_id for each in transforms.transforms}
        assert parents["env_0001/imu"] == parents["env_0001/eye"] != "env_0001/world"
        app.close()
        until(lambda: client.server.counts.subscriptions == 0)


def test_poses_need_no_other_topic(scene: sn.Scene) -> None:
    """An app that shows only /tf gets the poses of all bodies with sensors."""
    with local_client(scene, timeout=PATIENCE) as client, FoxgloveServer(client, 0) as server:
        app = App(server.port)
        while "/tf" not in app.channels:
            app.read()
        app.subscribe("/tf")
        until(lambda: client.server.counts.subscriptions == len(server.messages.posed) > 0)
        scene.step(torch.ones(2, 1))
        while "/tf" not in app.messages:
            app.read()
        (found,) = (STORE.deserialize_cdr(data, "tf2_msgs/msg/TFMessage") for _, data in app.messages["/tf"][-1:])
        assert found.transforms[0].header.frame_id.endswith("/world")  # type: ignore[attr-defined]
        app.close()
        until(lambda: client.server.counts.subscriptions == 0)


def test_a_sensor_that_leaves_its_body_is_a_pose_of_a_subscribed_app(scene: sn.Scene) -> None:
    """A camera whose place differs between environments is on /tf, until it has one place again."""
    with local_client(scene, timeout=PATIENCE) as client, FoxgloveServer(client, 0, sensors=["imu", "eye"]) as server:
        app, eye = App(server.port), scene["eye"]
        assert isinstance(eye, sn.DepthCamera)
        while "/tf" not in app.channels:
            app.read()
        app.subscribe("/tf")
        until(lambda: client.server.counts.subscriptions == len(server.messages.posed) == 1)
        eye.set_world_poses(torch.tensor([[0.0, 0.0, 2.0], [0.0, 0.0, 3.0]]))
        scene.step()
        until(lambda: client.server.counts.subscriptions == len(server.messages.posed) == 2)
        found: dict[str, float] = {}
        while "env_0001/eye" not in found:
            scene.step()
            app.read()
            for _, data in app.messages.get("/tf", []):
                message: Any = STORE.deserialize_cdr(data, "tf2_msgs/msg/TFMessage")
                found |= {each.child_frame_id: each.transform.translation.z for each in message.transforms}
        assert (found["env_0000/eye"], found["env_0001/eye"]) == (2.0, 3.0)
        eye.set_world_poses(torch.tensor([0.0, 0.0, 1.5]))
        scene.step()
        until(lambda: client.server.counts.subscriptions == len(server.messages.posed) == 1)
        app.close()
        until(lambda: client.server.counts.subscriptions == 0)


def test_taken_port_is_an_error(scene: sn.Scene) -> None:
    with local_client(scene, timeout=PATIENCE) as client, FoxgloveServer(client, 0) as server:
        with pytest.raises(sn.errors.StreamError, match=f"port {server.port}: .*Choose another port"):
            FoxgloveServer(client, server.port)


def test_served_simulation_has_a_port_for_foxglove(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "robot.xml"
    model.write_text(XML)
    (tmp_path / "rig.toml").write_text('[[sensor]]\nkind = "imu"\nsite = "imu"\n')
    options = [
        "--rig",
        str(tmp_path / "rig.toml"),
        "--address",
        "tcp://127.0.0.1:0",
        "--speed",
        "0",
        "--seconds",
        "0.1",
    ]
    assert main(["serve", str(model), *options, "--foxglove", "--foxglove-port", "0"]) == 0
    assert re.search(r"^Foxglove at ws://localhost:[1-9]\d*$", capsys.readouterr().out, re.MULTILINE)
