"""Foxglove server of a running simulation: images, clouds, transforms and values for the Foxglove app."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import msgspec

from sensorium.bridges.bridge import Bridge
from sensorium.client.client import Client
from sensorium.errors import MissingDependencyError, StreamError
from sensorium.readings import Reading
from sensorium.record.ros2 import MessageBlock, Topic
from sensorium.wire.messages import FrameDone

BACKLOG = 64
"""Maximum number of messages that wait for one app; older ones are dropped."""
MAX_VALUES = 64
"""Fields with more values per environment are not sent as plain values."""


class FoxgloveServer(Bridge):
    """WebSocket server in the protocol of Foxglove, with the topics of docs/ros2.md.

    Images, clouds, transforms and inertial data have the schemas of ROS 2, which Foxglove displays. Fields without such
    a message are values in JSON, ``[env, ...]``, on ``/<sensor>/values``. A sensor is computed and sent only while an
    app subscribes to one of its topics. The time is that of the simulation.

    The protocol has no authentication: programs on this machine, and pages in its browsers, can read the sensors.

    Args:
        client: connection to the simulation.
        port: port on this machine; 0 for a free one.
        options: sensors, env and truth, see `Bridge`.

    Raises:
        MissingDependencyError: foxglove-sdk is not installed.
        StreamError: the port is not free.

    Attributes:
        port: the port.
    """

    def __init__(self, client: Client, port: int = 8765, **options: Any) -> None:
        super().__init__(client, **options)
        try:
            import foxglove
            from foxglove.websocket import Capability
        except ImportError:
            fix = "pip install foxglove-sdk, or the extra: sensorium[foxglove]."
            raise MissingDependencyError(f"the Foxglove server needs foxglove-sdk: {fix}") from None
        self._foxglove, self._context = foxglove, foxglove.Context()  # its channels end with it
        self._channels: list[Any] = []
        for number, topic in enumerate(self.messages.topics):
            self.declare(number, topic)
        self._sensor_of = {topic.name: topic.sensor for topic in self.messages.topics if topic.sensor}
        self._values: dict[str, tuple[Any, list[str]]] = {}
        for name, left in self.messages.unmapped.items():
            specs = [spec for spec in self.sensors[name].specs if spec.name in left]
            units = {spec.name: {"description": spec.unit} for spec in specs if spec.columns <= MAX_VALUES}
            if units:
                values, schema = f"/{name}/values", msgspec.json.encode({"type": "object", "properties": units})
                channel = self._channel(values, f"sensorium.{name}", "jsonschema", schema, "json")
                self._values[name] = channel, list(units)
                self._sensor_of[values] = name
        self._subscribed: Counter[str] = Counter()
        self._counting, self._posed = threading.Lock(), self.messages.posed
        listener: Any = self
        try:
            self._server = foxglove.start_server(
                name="sensorium", port=port, context=self._context, server_listener=listener,
                capabilities=[Capability.Time], message_backlog_size=BACKLOG,
            )  # fmt: skip
        except RuntimeError as error:
            raise StreamError(f"cannot serve Foxglove at port {port}: {error}. Choose another port.") from None
        self.port = self._server.port

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        super().__exit__()

    def on_subscribe(self, app: Any, channel: Any) -> None:
        """Listen to the sensor of a topic, or send the constant frames; called by the server."""
        if channel.topic == "/tf_static":
            self.publish(self.messages.static())
        self._count(channel.topic, 1)

    def on_unsubscribe(self, app: Any, channel: Any) -> None:
        """Stop to listen to a sensor without subscribed topics; called by the server."""
        self._count(channel.topic, -1)

    def _count(self, topic: str, change: int) -> None:
        """Change the number of apps that subscribe to a topic, and listen to the sensors of subscribed topics only."""
        with self._counting:
            self._subscribed[topic] += change
            wanted = {sensor for each, sensor in self._sensor_of.items() if self._subscribed[each]}
            if self._subscribed["/tf"]:
                wanted.update(self.messages.posed)
            for name in self.sensors:
                (self.listen if name in wanted else self.stop)(name)

    def _channel(self, topic: str, name: str, encoding: str, text: bytes, message_encoding: str) -> Any:
        schema = self._foxglove.Schema(name=name, encoding=encoding, data=text)
        return self._foxglove.Channel(topic, schema=schema, message_encoding=message_encoding, context=self._context)

    def declare(self, number: int, topic: Topic) -> None:
        """Advertise a topic."""
        self._channels.append(self._channel(topic.name, topic.type, "ros2msg", topic.schema.encode(), "cdr"))

    def publish(self, block: MessageBlock) -> None:
        """Send messages to the apps that subscribe to their topics."""
        for number, log_time, data in block:
            self._channels[number].log(bytes(data), log_time=log_time)

    def on_sample(self, reading: Reading) -> None:
        """Publish the messages of a sample, and the values that no message holds."""
        super().on_sample(reading)
        if (found := self._values.get(reading.name)) is not None:
            channel, names = found
            values = {name: reading.measured[name].tolist() for name in names}
            channel.log(msgspec.json.encode(values), log_time=round(reading.time * 1e9))

    def on_frame(self, done: FrameDone) -> None:
        """Publish the time of a frame, and poses of the sensors that are now in the world."""
        super().on_frame(done)
        if self._posed != self.messages.posed:
            self._posed = self.messages.posed
            self._count("/tf", 0)
        self._server.broadcast_time(done.time_ns)
