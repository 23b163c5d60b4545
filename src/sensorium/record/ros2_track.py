"""Standard ROS 2 messages in a recording, made of many readings at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sensorium.readings import SceneDescription
from sensorium.record.mcap_writer import JOINED, McapWriter
from sensorium.record.ros2 import ImageFormat, MessageBlock, Ros2Messages
from sensorium.record.stacks import Stack

if TYPE_CHECKING:
    from sensorium.readings import Array


class Ros2Track:
    """The messages of one recording.

    Args:
        writer: the file.
        description: description of the scene with the recorded sensors.
        envs: the recorded environments.
        before: messages of the same recording before its sensors changed; its channels are used further.
        time: time of the message with the constant transforms, s.
        start_ns: time of the messages at tick 0, ns.
        truth: whether to write true values, and poses.
        images: format of images of 8 bits.
    """

    def __init__(
        self,
        writer: McapWriter,
        description: SceneDescription,
        envs: Sequence[int],
        before: Ros2Track | None = None,
        *,
        time: float = 0.0,
        start_ns: int = 0,
        truth: bool = True,
        images: ImageFormat = "raw",
    ) -> None:
        self._writer = writer
        self._messages = Ros2Messages(description, envs, truth=truth, poses=truth, images=images, start_ns=start_ns)
        self._opened: dict[str, int] = {} if before is None else before._opened
        """Topic -> its channel."""
        self._channels = np.zeros(len(self._messages.topics), np.int64)
        """Channel of each topic; 0 before its first message."""
        self._pending: list[Stack] = []
        self._last = -1.0
        """Time of the newest clock message, s."""
        self._static = bytes(self._messages.static().data)
        if before is None or self._static != before._static:  # a new camera has an optical frame
            self._write(self._messages.static(time), 0)

    @property
    def unmapped(self) -> dict[str, tuple[str, ...]]:
        """Sensor -> names of its fields that no message holds."""
        return self._messages.unmapped

    def add(self, stack: Stack) -> None:
        """Add readings, from which messages are made later."""
        self._pending.append(stack)

    def write(self, frame: int) -> None:
        """Write the messages of all readings added so far.

        Args:
            frame: number of the last frame.
        """
        pending, self._pending = self._pending, []
        times = sorted({time for stack in pending for time in stack.times.tolist()} - {self._last})
        if times:
            self._last = times[-1]
            self._write(self._messages.clock(times), frame)
        for stack in pending:
            for block in self._messages.encode(stack):
                self._write(block, frame)

    def _write(self, block: MessageBlock, frame: int) -> None:
        if not len(block):
            return
        channels = self._channels[block.topics]
        if not channels.all():
            self._open(block.topics)
            channels = self._channels[block.topics]
        now, sizes = time.time_ns(), np.diff(block.starts)
        size = int(sizes[0])
        if size <= JOINED and (sizes == size).all():
            self._writer.add_rows(channels, block.log_times, now, frame, block.data.reshape(len(block), size))
            return
        for (_, log_time, data), channel in zip(block, channels.tolist(), strict=True):
            self._writer.add((channel, log_time, now, frame, [data]))

    def _open(self, topics: Array) -> None:
        """Open the channels of topics."""
        for number in np.unique(topics[self._channels[topics] == 0]).tolist():
            topic = self._messages.topics[number]
            if topic.name not in self._opened:
                self._opened[topic.name] = self._writer.add_channel(
                    topic.name, topic.type, topic.schema, topic.metadata
                )
            self._channels[number] = self._opened[topic.name]
