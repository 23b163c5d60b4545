"""Bridge: the samples of a client's sensors as the ROS 2 messages that a recording has, while the simulation runs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Self

from sensorium.client.client import WORLD, Client
from sensorium.client.session import FrameListener
from sensorium.client.subscription import Subscription
from sensorium.errors import ArgumentError, ConfigError, UnknownNameError
from sensorium.readings import Reading
from sensorium.record.ros2 import MessageBlock, Ros2Messages, Topic
from sensorium.wire.messages import FrameDone
from sensorium.wire.stream_info import StreamInfo

MAX_LOSSLESS = 4096
"""Largest number of values per environment of a sensor all of whose samples are sent. Of larger ones, such as images
and scans, a receiver that is too slow gets the newest."""
MAX_PLACES = 1000
"""Number of places of the sensors that are kept for samples that arrive later than those of other sensors."""


class Bridge:
    """Base of bridges, as context managers: subclasses define `declare` and `publish`.

    Args:
        client: connection to the simulation. Sensors that are added later have no messages.
        sensors: names of the sensors; empty for all but the state of all bodies.
        env: only this environment; None for all.
        truth: whether to send the ground truth too, on topics ``<sensor>/truth/...``.
        poses: whether to send the true poses of bodies, on ``/tf``.

    Raises:
        UnknownNameError: an unknown sensor.
        ArgumentError: an unknown environment.
        ConfigError: no sensor has fields.

    Attributes:
        messages: the conversion with the newest places of the sensors, with all topics.
        sensors: name -> description of each sensor.
    """

    def __init__(
        self, client: Client, *, sensors: Iterable[str] = (), env: int | None = None, truth: bool = False,
        poses: bool = True,
    ) -> None:  # fmt: skip
        offered = {name: info for name, info in client.streams.items() if info.where == "scene" and info.specs}
        names = list(dict.fromkeys(sensors)) or [name for name in offered if name != WORLD]
        for name in names:
            if name not in offered:
                raise UnknownNameError("sensor", name, offered)
        if not names:
            raise ConfigError.single(type(self).__name__, "sensors", names, "a simulation with sensors")
        if env is not None and not 0 <= env < client.num_envs:
            raise ArgumentError(f"env: got {env}, expected a number from 0 to {client.num_envs - 1}")
        self.sensors: dict[str, StreamInfo] = {name: offered[name] for name in names}
        envs = None if env is None else [env]
        self.messages = Ros2Messages(client.description, envs, sensors=names, truth=truth, poses=poses)
        self._client, self._env, self._truth = client, env, truth
        self._subscriptions: dict[str, Subscription] = {}
        self._frames: FrameListener | None = None
        self._lock = threading.RLock()
        self._tick = -1
        self._places = deque([(-1, self.messages)], MAX_PLACES)

    def __enter__(self) -> Self:
        self._frames = self._client.on_frame(self.on_frame)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._subscriptions):
            self.stop(name)
        if self._frames is not None:
            self._frames.stop()

    def listen(self, name: str) -> None:
        """Start to publish the messages of a sensor; without effect if it has started."""
        if name not in self._subscriptions:
            is_small = sum(spec.columns for spec in self.sensors[name].specs) <= MAX_LOSSLESS
            self._subscriptions[name] = self._client.subscribe(
                name, self.on_sample, policy="lossless" if is_small else "latest", envs=self._env, truth=self._truth
            )

    def stop(self, name: str) -> None:
        """Stop to publish the messages of a sensor; without effect if it has not started."""
        if (subscription := self._subscriptions.pop(name, None)) is not None:
            subscription.stop()

    def declare(self, number: int, topic: Topic) -> None:
        """Prepare to publish on a topic."""
        raise NotImplementedError

    def publish(self, block: MessageBlock) -> None:
        """Publish messages; called on the thread of each sensor's listener, and on that of the connection."""
        raise NotImplementedError

    def on_sample(self, reading: Reading) -> None:
        """Publish the messages of a sample."""
        with self._lock:  # the connection gives the news of a frame, its samples, and its end, in this order
            if reading.tick > self._tick:
                self._follow(reading.tick, reading.time)
            messages = next((each for tick, each in reversed(self._places) if tick <= reading.tick), self.messages)
        for block in messages.encode([reading]):
            self.publish(block)

    def on_frame(self, done: FrameDone) -> None:
        """Publish the time of a frame, and the constant frames if a sensor was moved on its body."""
        with self._lock:
            if done.tick < self._tick:  # the simulation was started again
                self._places.clear()
            self._tick = done.tick
            self._follow(done.tick, done.time_ns * 1e-9)
        self.publish(self.messages.clock(done.time_ns * 1e-9))

    def _follow(self, tick: int, time: float) -> None:
        """Use the places of the sensors in the news so far from a tick on, if they have changed."""
        streams = self._client.streams
        infos = {name: streams.get(name, info) for name, info in self.sensors.items()}
        before, self.sensors = self.sensors, infos
        if any(info.constants.get("frames") != before[name].constants.get("frames") for name, info in infos.items()):
            known = len(self.messages.topics)
            self.messages = self.messages.placed(self._client.description)
            self._places.append((tick, self.messages))
            for number, topic in enumerate(self.messages.topics[known:], known):
                self.declare(number, topic)
            self.publish(self.messages.static(time))
