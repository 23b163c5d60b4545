"""Clients, streams, subscriptions and messages in the server: plain data."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sensorium.wire.buffers import BufferPool
from sensorium.wire.packing import Record
from sensorium.wire.serializers import FieldSerializer, Serializer
from sensorium.wire.stream_info import StreamInfo

LOG = logging.getLogger("sensorium.stream")
"""Logger of the server."""
Key = tuple[int, int, bool]
"""Requested content of a sample: first env, number of envs, whether with the ground truth."""


@dataclass(slots=True, eq=False)
class Payload:
    """One data message in memory.

    Args:
        data: its bytes, writable until it is offered.
        size: its size, bytes.
        segment: number of its shared-memory segment; -1 for none.
        slot: number of the slot.
        count: number of messages that it represents; several for a bundle.
        body: its body, if it is in separate memory that never changes; `data` is then header and poses.
    """

    data: Any
    size: int
    segment: int = -1
    slot: int = -1
    count: int = 1
    body: Any = None


@dataclass(slots=True, eq=False)
class Session:
    """One client.

    Args:
        route: its address in the socket.
        name: its chosen name.
        pid: id of its process.
        host: host of its process.
    """

    route: bytes
    name: str
    pid: int
    host: str
    shares_memory: bool = False
    """Whether it can read the server's slots."""
    max_message: int = 2**30
    """Largest message that it accepts through the socket, bytes; a longer one would break the connection."""
    listens_to_frames: bool = False
    silence: float = 0.0
    """Time without a message from it, s, while the server's thread ran: not that of a suspended program."""
    greeted: float = 0.0
    last_pong: float = 0.0
    outbox: deque[Record] = field(default_factory=deque, repr=False)
    subscriptions: dict[int, Subscription] = field(default_factory=dict, repr=False)
    """Subscriptions, including ended ones with messages in transit."""
    held: int = 0
    """Size of the messages that wait or are in transit through the socket, bytes."""
    lent: dict[tuple[int, int], list[Any]] = field(default_factory=dict, repr=False)
    """(segment, slot) -> its memory, once for each time that it was lent."""
    segments: set[int] = field(default_factory=set, repr=False)
    """Segments announced to the client."""
    sensors: set[str] = field(default_factory=set, repr=False)
    """Names of the sensors it spawned."""
    process: int | None = None
    """Descriptor that tells the end of its process, which is on this machine."""
    requests: int = 0
    """Number of requests that wait for the owner of the loop."""

    def __str__(self) -> str:
        return f"{self.name!r} (process {self.pid} on {self.host})"


@dataclass(slots=True, eq=False)
class Subscription:
    """Subscription of one client to one topic."""

    session: Session
    number: int
    topic: Topic
    lossless: bool
    every: int
    interval: float
    key: Key
    window: int
    """Maximum number of messages in transit."""
    limit: int
    """Maximum number of waiting messages."""
    samples: int = 0
    """Number of samples available to it; with `every` it receives the first and every n-th after it."""
    next_time: float = 0.0
    seq: int = 0
    """Number of messages offered to it, including those that were replaced or lost."""
    waiting: deque[tuple[int, Payload]] = field(default_factory=deque, repr=False)
    """Messages that may not be sent yet, each with the number of its first message."""
    queued: int = 0
    """Number of waiting messages; a bundle counts as its messages."""
    in_transit: deque[list[int]] = field(default_factory=deque, repr=False)
    """Number of messages without a credit, and size in the socket, of each sent payload."""
    sent: int = 0
    """Number of messages in transit."""
    ended: bool = False


@dataclass(slots=True, eq=False)
class Topic:
    """One stream of data, e.g. of one sensor."""

    info: StreamInfo
    serializer: type[Serializer] = FieldSerializer
    """Converts the readings of a sensor of the scene."""
    env: int | None = None
    """Only environment of the stream; None for all."""
    pool: BufferPool = field(default_factory=BufferPool, repr=False)
    subscriptions: list[Subscription] = field(default_factory=list, repr=False)
    seq: int = 0
    segment: int = -1
    """Number of its shared-memory segment; -1 for none yet."""
    sent_tick: int = -1
    """Physics tick up to which events were sent, or happened before there were listeners."""
    has_lost: bool = False
    """Whether the log reports that its sensor lost events."""


class Counts(NamedTuple):
    """Current numbers of objects that a server holds for its clients."""

    sessions: int
    subscriptions: int
    topics: int
    segments: int
    slots_lent: int
