"""Control messages between server and client: small, typed, and checked when decoded.

HELLO -> WELCOME and CATALOGUE; SUBSCRIBE -> data ... -> EOS; a request -> WORKING ... REPLY;
PING -> PONG.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, TypeVar

import msgspec

from sensorium.errors import WireError

M = TypeVar("M")

PROTOCOL = 6
"""Version of the protocol; it must be the same on both sides."""

PING_S = 0.25
"""Interval of a client's pings, s."""


MAX_WORDS = 2**20
"""Largest message to the server, bytes, except for `LONG`. Reading larger ones would delay other clients."""


class Message(msgspec.Struct, array_like=True, tag=True, forbid_unknown_fields=True):
    """Base of all control messages."""


class ToServer(Message):
    """Base of the messages to the server."""


class Request(ToServer):
    """Base of the requests, which are executed between two steps and answered by a `Reply`."""

    request: int
    """Number of the request, chosen by the client."""


class ToClient(Message):
    """Base of the messages to a client."""


# To the server --------------------------------------------------------------------------------------------------------


class Hello(ToServer, tag=1):
    """First message of a client."""

    protocol: int
    version: str
    """Version of the package, for messages to users."""
    token: str
    name: str
    host: str
    pid: int
    resume: bytes
    """Socket address of this client before its connection broke; empty for a new client."""
    max_message: int = 2**30
    """Largest message that the client accepts, bytes."""


class ProbeResult(ToServer, tag=2):
    """Whether the client can read the server's shared memory."""

    can_read: bool


class Subscribe(ToServer, tag=3):
    """Request for the data of a stream."""

    subscription: int
    """Number of the subscription, chosen by the client."""
    stream: int
    lossless: bool
    every: int
    max_rate: float
    """Maximum number of messages per second of wall clock; 0 for no limit."""
    first_env: int
    num_envs: int
    """Number of envs; 0 for all from `first_env` on."""
    truth: bool
    window: int
    """Number of credits: data messages that may be in transit."""
    queue: int
    """Number of data messages that the server queues beyond the credits, for a lossless subscription."""


class Unsubscribe(ToServer, tag=4):
    """End of a subscription."""

    subscription: int


class Frames(ToServer, tag=5):
    """Whether the client wants a notification of each frame."""

    wanted: bool


class Ping(ToServer, tag=6):
    """Heartbeat of a client."""

    server: bytes
    """Server that the client believes it is connected to."""


class Bye(ToServer, tag=7):
    """Notice that the client disconnects."""


class Step(Request, tag=8):
    """Request for a control step (lock-step only)."""

    substeps: int
    shape: tuple[int, ...]
    ctrl: bytes
    """Controls of that shape as little-endian float64; empty keeps the current controls."""


class Control(Request, tag=9):
    """Request to set the controls of the following steps."""

    shape: tuple[int, ...]
    ctrl: bytes


class Reset(Request, tag=10):
    """Request to reset environments."""

    envs: tuple[int, ...] | None
    """Environments to reset; None for all."""


class Spawn(Request, tag=11):
    """Request to create a sensor."""

    blueprint: str
    values: dict[str, Any]
    name: str
    pose: tuple[float, ...]
    """Position (m) and quaternion (wxyz), relative to the body that it is attached to."""
    attach_to: str
    """Name of a body; empty for the world."""
    env: int
    """Only environment of the sensor; -1 for all."""
    client_side: dict[str, Any] | None = None
    """Definition of a sensor that runs in the client; None for all other sensors."""


class Destroy(Request, tag=12):
    """Request to remove a sensor that this client spawned."""

    name: str


class Ask(Request, tag=13):
    """Request for information: ``"blueprints"``, ``"world"``, ``"pace"``, or ``"drawings"`` of an environment."""

    what: str
    env: int = 0


class Set(Request, tag=14):
    """Request to set a live knob of a sensor."""

    name: str
    knob: str
    value: Any
    envs: tuple[int, ...] | None


# To a client ----------------------------------------------------------------------------------------------------------


class Welcome(ToClient, tag=32):
    """Answer to HELLO."""

    server: bytes
    """Number of this run of the server."""
    probe: str
    """Name of a segment that a client on this host can read; empty for none."""
    probe_token: bytes
    resumed: bool
    """Whether the client keeps the sensors that it had spawned."""
    max_message: int = 2**24
    """Largest message to the server, bytes."""


class Refused(ToClient, tag=33):
    """Notice that the server rejects this client, or no longer accepts it."""

    reason: str
    final: bool
    """Whether a further attempt is useless."""


class Unknown(ToClient, tag=34):
    """Notice that the server does not know this client, or no longer does; the client must send HELLO again."""

    server: bytes


class Catalogue(ToClient, tag=35):
    """Latched description: all one-time information for listeners."""

    description: dict[str, Any]
    """`SceneDescription.to_dict`."""
    streams: list[dict[str, Any]]
    """`StreamInfo.to_dict` of each stream."""
    bodies: dict[str, Any]
    """`Bodies.to_dict`."""
    lockstep: bool
    frame: int


class Added(ToClient, tag=36):
    """Notice that a stream was added, or that the information about a stream has changed."""

    stream: dict[str, Any]


class Removed(ToClient, tag=37):
    """Notice that a stream was removed."""

    stream: int
    reason: str


class Eos(ToClient, tag=39):
    """Notice that a subscription ended."""

    subscription: int
    reason: str


class Segment(ToClient, tag=41):
    """Segment of shared memory that later slots refer to."""

    segment: int
    name: str
    token: bytes
    slot_size: int
    count: int


class Unmap(ToClient, tag=42):
    """Notice that a segment is no longer used."""

    segment: int


class FrameDone(ToClient, tag=43):
    """Notice that all data of a frame were sent."""

    frame: int
    tick: int
    time_ns: int
    streams: tuple[int, ...]
    """Streams with data in the frame."""
    messages: tuple[tuple[int, int, int], ...] = ()
    """Subscriptions of this client with data in the frame, each with the number of messages of the frame that were sent
    to it and may still be in transit, and the number of those that are lost."""


class Reply(ToClient, tag=44):
    """Answer to a request."""

    request: int
    result: Any
    error: str
    """Error text; empty on success."""
    kind: str
    """Name of the exception's class."""
    warnings: tuple[tuple[str, str], ...] = ()
    """Warnings issued during the request: name of the category, and text."""


class Pong(ToClient, tag=45):
    """Heartbeat of the server."""

    server: bytes


class Note(ToClient, tag=46):
    """Warning for the client's user."""

    text: str


class Working(ToClient, tag=48):
    """Notice that the owner of the loop is busy and requests of this client wait: their time-outs restart."""

    requests: tuple[int, ...]
    text: str
    """Current activity, for the client's user; empty if it is the request itself."""


LONG = (Step, Control)
"""Messages that consist of controls; reading them takes negligible time."""
LONG_TAGS = (8, 9)


def _decoder(*bases: type[Message]) -> msgspec.msgpack.Decoder[Any]:
    """Return a decoder of all messages that derive directly from the bases."""
    kinds = [kind for base in bases for kind in base.__subclasses__() if kind is not Request]
    return msgspec.msgpack.Decoder(reduce(or_, kinds))


TO_SERVER: msgspec.msgpack.Decoder[ToServer] = _decoder(ToServer, Request)
TO_CLIENT: msgspec.msgpack.Decoder[ToClient] = _decoder(ToClient)

encode = msgspec.msgpack.Encoder().encode
"""Return a message as bytes."""


def decode(decoder: msgspec.msgpack.Decoder[M], content: Any) -> M:
    """Decode a message with `TO_SERVER` or `TO_CLIENT`.

    Raises:
        WireError: the bytes are not a message in this direction.
    """
    try:
        return decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        sender = "client" if decoder is TO_SERVER else "server"
        raise WireError(f"the {sender} sent an invalid control message: {error}") from None
