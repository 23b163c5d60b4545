"""ROS 2 node of a running simulation: it publishes the readings, the time and the frames, and takes controls."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, Self

import numpy as np

from sensorium.bridges.bridge import Bridge
from sensorium.client.client import Client
from sensorium.errors import MissingDependencyError, SensoriumError
from sensorium.record.ros2 import MessageBlock, Topic

LOG = logging.getLogger("sensorium.ros2")
COMMAND = "std_msgs/msg/Float64MultiArray"
"""Type of the messages with controls."""


class Ros2Node(Bridge):
    """Node that publishes the messages of a recording, byte for byte, on the topics of docs/ros2.md.

    ``/clock`` has the time of the simulation, and the latched ``/tf_static`` the constant frames. The numbers in a
    message on ``/cmd``, or on ``/env_0003/cmd`` with several environments, become the controls of the following steps.

    Args:
        client: connection to the simulation.
        name: name of the node.
        options: sensors, env and truth, see `Bridge`. With truth there is ``/tf``, too.

    Raises:
        MissingDependencyError: rclpy is not installed, or its environment is not set up.

    Attributes:
        skipped: topic -> reason why it is not published: the package of its type is not installed.
    """

    def __init__(self, client: Client, name: str = "sensorium", **options: Any) -> None:
        super().__init__(client, poses=options.get("truth", False), **options)
        try:
            import rclpy
            from rosidl_runtime_py.utilities import get_message
        except ImportError as error:
            raise MissingDependencyError(
                f"the ROS 2 node needs rclpy, which is part of ROS 2 ({error}). Install sensorium in its Python, and "
                "source its setup first, e.g. source /opt/ros/jazzy/setup.bash."
            ) from None
        self._rclpy = rclpy
        rclpy.init()
        self._node = rclpy.create_node(name)
        self.skipped: dict[str, str] = {}
        self._publishers: dict[int, Any] = {}
        for number, topic in enumerate(self.messages.topics):
            self.declare(number, topic)
        self._controls = np.zeros((client.num_envs, 0))
        for env, prefix in zip(self.messages.envs, self.messages.prefixes, strict=True):
            self._node.create_subscription(get_message(COMMAND), f"/{prefix}cmd", self._taker(env), 10)

    def __enter__(self) -> Self:
        self.publish(self.messages.static())
        for name in self.sensors:
            self.listen(name)
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._node.destroy_node()
        self._rclpy.try_shutdown()

    def spin(self) -> None:
        """Take controls until the node is shut down; readings are published on other threads."""
        from rclpy.executors import ExternalShutdownException

        with contextlib.suppress(ExternalShutdownException):
            self._rclpy.spin(self._node)

    def declare(self, number: int, topic: Topic) -> None:
        """Create the publisher of a topic, or note why there is none."""
        from rclpy.qos import DurabilityPolicy, QoSProfile
        from rosidl_runtime_py.utilities import get_message

        latched = DurabilityPolicy.TRANSIENT_LOCAL if topic.is_latched else DurabilityPolicy.VOLATILE
        profile = QoSProfile(depth=1 if topic.is_latched else 10, durability=latched)
        try:
            kind = get_message(topic.type)
        except (ImportError, AttributeError, ValueError) as error:
            self.skipped[topic.name] = f"{topic.type}: {error}"
        else:
            self._publishers[number] = self._node.create_publisher(kind, topic.name, profile)

    def publish(self, block: MessageBlock) -> None:
        """Publish messages as serialized bytes."""
        for number, _, data in block:
            if (publisher := self._publishers.get(number)) is not None:
                publisher.publish(bytes(data))

    def _taker(self, env: int) -> Any:
        """Return the function that sets the controls of an environment; those of the others remain, 0 at first."""

        def take(command: Any) -> None:
            if self._controls.shape[1] != len(command.data):
                self._controls = np.zeros((len(self._controls), len(command.data)))
            self._controls[env] = command.data
            try:
                self._client.control(self._controls)
            except SensoriumError as error:
                LOG.error("controls of env %d: %s", env, error)

        return take
