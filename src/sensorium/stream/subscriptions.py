"""Clients, streams, subscriptions and messages in the server: plain data."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sensorium.wire.buffers import BufferPool
from sensorium.wire.header import Header
from sensorium.wire.packing import Record
from sensorium.wire.serializers import FieldSerializer, Serializer
from sensorium.wire.stream_info import StreamInfo

BYTES_QUEUED = 256 * 2**20
"""Largest total size of messages queued for one subscription, or in transit to one client, bytes."""


class Share:
    """Memory of a message shared by queues and connections, so that it is counted once.

    Args:
        size: its size, bytes.
    """

    __slots__ = ("holders", "size")

    def __init__(self, size: int) -> None:
        self.size, self.holders = size, 0


@dataclass(slots=True)
class Sent:
    """Message in transit to a subscription.

    Args:
        count: number of credits not yet returned.
        place: number of the message among all messages sent to its client.
        share: its memory; None for memory that is shared with the client.
    """

    count: int
    place: int
    share: Share | None


Key = tuple[int, int, bool]
"""Requested content of a sample: first env, number of envs, whether with the ground truth."""


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

    __slots__ = ("body", "count", "data", "segment", "share", "size", "slot")

    def __init__(
        self, data: Any, size: int, segment: int = -1, slot: int = -1, count: int = 1, body: Any = None
    ) -> None:
        self.data, self.size, self.segment, self.slot, self.count = data, size, segment, slot, count
        self.body, self.share = body, Share(size)


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
    number: int = 0
    shares_memory: bool = False
    """Whether it can read the server's slots."""
    max_message: int = 2**30
    """Largest message that it accepts through the socket, bytes; a longer one would break the connection."""
    listens_to_frames: bool = False
    last_seen: float = 0.0
    greeted: float = 0.0
    last_pong: float = 0.0
    outbox: deque[Record] = field(default_factory=deque, repr=False)
    subscriptions: dict[int, Subscription] = field(default_factory=dict, repr=False)
    held: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)
    """(segment, slot) -> number of times it was lent."""
    held_of: dict[int, int] = field(default_factory=dict, repr=False)
    """Segment -> number of lent slots."""
    segments: set[int] = field(default_factory=set, repr=False)
    """Segments announced to the client."""
    sensors: set[str] = field(default_factory=set, repr=False)
    """Names of the sensors it spawned."""
    under_way: int = 0
    """Size of the data not yet confirmed as read, including those to ended subscriptions, bytes."""
    awaited: int = 0
    """Number of these messages for which a credit will be returned."""
    sent: int = 0
    """Number of messages sent to the client."""
    is_blocked: bool = False
    """Whether a message waits only because too many bytes are in transit."""
    orphans: list[Sent] = field(default_factory=list, repr=False)
    """Messages in transit to ended subscriptions: a credit for a later message confirms that they were read."""
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
    limit: int
    """Maximum number of queued messages."""
    credit: int = 0
    samples: int = 0
    """Number of samples available to it; with `every` it receives the first and every n-th after it."""
    next_time: float = 0.0
    queue: deque[Payload] = field(default_factory=deque, repr=False)
    queued: int = 0
    """Number of messages in the queue."""
    queued_bytes: int = 0
    under_way: deque[Sent] = field(default_factory=deque, repr=False)
    dropped: int = 0
    lost: int = 0
    last_lost: Header = field(default_factory=Header)
    """Header of the last lost event."""
    ended: bool = False

    @property
    def is_full(self) -> bool:
        """Whether no further message can be queued."""
        return self.queued >= self.limit or self.queued_bytes >= BYTES_QUEUED


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
