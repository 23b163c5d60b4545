"""Clients, streams, subscriptions and messages, as the server keeps them: plain data."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sensorium.wire.buffers import BufferPool
from sensorium.wire.header import Header
from sensorium.wire.packing import Record
from sensorium.wire.stream_info import StreamInfo

BYTES_QUEUED = 256 * 2**20
"""Bytes that wait for one subscription, or are under way to one client, at most."""


class Share:
    """Memory of a message that queues and connections hold together: it counts once.

    Args:
        size: its bytes.
    """

    __slots__ = ("holders", "size")

    def __init__(self, size: int) -> None:
        self.size, self.holders = size, 0


@dataclass(slots=True)
class Sent:
    """A message under way to a subscription.

    Args:
        count: credits that have yet to come back.
        place: number of the message among all that its client was sent.
        share: its memory; None where that is shared with the client.
    """

    count: int
    place: int
    share: Share | None


Key = tuple[int, int, bool]
"""What a subscription gets of a sample: first env, number of envs, whether with the ground truth."""


class Payload:
    """One data message in memory.

    Args:
        data: its bytes, writable until it is offered.
        size: number of them.
        segment: number of the shared-memory segment it is in; -1 for none.
        slot: number of the slot.
        count: messages that it stands for; of a bundle several.
        body: its body, where that is memory of its own that nobody writes to any more; `data` is header and poses then.
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
        route: what the socket addresses it by.
        name: what it calls itself.
        pid: of its process.
        host: where that runs.
    """

    route: bytes
    name: str
    pid: int
    host: str
    number: int = 0
    shares_memory: bool = False
    """Whether it can read our slots."""
    max_message: int = 2**30
    """Most bytes of a message that it takes through the socket; a longer one would break the connection."""
    hears_frames: bool = False
    last_seen: float = 0.0
    greeted: float = 0.0
    last_pong: float = 0.0
    outbox: deque[Record] = field(default_factory=deque, repr=False)
    subscriptions: dict[int, Subscription] = field(default_factory=dict, repr=False)
    held: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)
    """(segment, slot) -> how often it was lent."""
    held_of: dict[int, int] = field(default_factory=dict, repr=False)
    """Segment -> slots lent."""
    segments: set[int] = field(default_factory=set, repr=False)
    """Segments it was told of."""
    sensors: set[str] = field(default_factory=set, repr=False)
    """Names of the sensors it spawned."""
    noted: set[str] = field(default_factory=set, repr=False)
    """What it was warned of."""
    under_way: int = 0
    """Bytes under way, also to subscriptions that have ended: the client has not shown yet that it has read them."""
    awaited: int = 0
    """Messages among them that a credit will come back for."""
    sent: int = 0
    """Messages that it was sent."""
    is_blocked: bool = False
    """Whether a message waits only since so many bytes are under way."""
    orphans: list[Sent] = field(default_factory=list, repr=False)
    """Messages under way to subscriptions that have ended: a credit for a later one shows that they were read."""
    requests: int = 0
    """Requests that wait for the owner of the loop."""

    def __str__(self) -> str:
        return f"{self.name!r} (process {self.pid} on {self.host})"


@dataclass(slots=True, eq=False)
class Subscription:
    """One client's wish for the data of one topic."""

    session: Session
    number: int
    topic: Topic
    lossless: bool
    every: int
    interval: float
    key: Key
    window: int
    limit: int
    """Messages queued at most."""
    credit: int = 0
    samples: int = 0
    """Samples that it could have had; with `every` it gets the first and each n-th from there."""
    next_time: float = 0.0
    queue: deque[Payload] = field(default_factory=deque, repr=False)
    queued: int = 0
    """Messages in the queue."""
    queued_bytes: int = 0
    under_way: deque[Sent] = field(default_factory=deque, repr=False)
    dropped: int = 0
    lost: int = 0
    last_lost: Header = field(default_factory=Header)
    """Of the last event that was lost."""
    ended: bool = False

    @property
    def is_full(self) -> bool:
        """Whether no further message may wait."""
        return self.queued >= self.limit or self.queued_bytes >= BYTES_QUEUED


@dataclass(slots=True, eq=False)
class Topic:
    """One stream of data, e.g. of one sensor."""

    info: StreamInfo
    pool: BufferPool = field(default_factory=BufferPool, repr=False)
    subscriptions: list[Subscription] = field(default_factory=list, repr=False)
    seq: int = 0
    segment: int = -1
    """Number of its shared-memory segment; -1 before there is one."""
    samples: int = -1
    """What the sensor's count of news was when it was last published."""


class Counts(NamedTuple):
    """How much a server holds for its clients now."""

    sessions: int
    subscriptions: int
    topics: int
    segments: int
    slots_lent: int


__all__ = ["Counts", "Key", "Payload", "Sent", "Session", "Share", "Subscription", "Topic"]
