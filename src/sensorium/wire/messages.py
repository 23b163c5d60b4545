"""The control messages: what server and client say to each other beside data. Small, typed, checked when decoded.

HELLO -> WELCOME and CATALOGUE; SUBSCRIBE -> SUBSCRIBED -> data ... -> EOS; a request -> WORKING ... REPLY;
PING -> PONG.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sensorium.errors import WireError

PROTOCOL = 4
"""Version of the protocol: both sides must have the same."""

PING_S = 0.25
"""Seconds between a client's pings."""


MOST_WORDS = 2**20
"""Bytes of a message to the server, but for `LONG`: reading more would keep others waiting."""


class Message(msgspec.Struct, array_like=True, tag=True, forbid_unknown_fields=True):
    """Base of all of them."""


# To the server --------------------------------------------------------------------------------------------------------


class Hello(Message, tag=1):
    """The first words of a client."""

    protocol: int
    version: str
    """Of the package, for messages to people."""
    token: str
    name: str
    host: str
    pid: int
    resume: bytes
    """What the socket addressed this client by before its connection broke; empty for a new client."""
    max_message: int = 2**30
    """Most bytes of a message that it takes."""


class ProbeResult(Message, tag=2):
    """Whether the client can read the server's shared memory."""

    can_read: bool


class Subscribe(Message, tag=3):
    """Ask for the data of a stream."""

    subscription: int
    """Number that the client chose for it."""
    stream: int
    lossless: bool
    every: int
    max_rate: float
    """Per second of the wall clock; 0 for no bound."""
    first_env: int
    num_envs: int
    """0: all from `first_env` on."""
    truth: bool
    window: int
    """Credits: data messages that may be under way."""
    queue: int
    """Data messages kept for it on the server beyond these, where it is lossless."""


class Unsubscribe(Message, tag=4):
    """End a subscription."""

    subscription: int


class Frames(Message, tag=5):
    """Whether the client wants to hear of each frame."""

    wanted: bool


class Ping(Message, tag=6):
    """The client lives."""

    server: bytes
    """The server it thinks it talks to."""


class Bye(Message, tag=7):
    """The client leaves."""


class Step(Message, tag=8):
    """Take a control step (lock-step only)."""

    request: int
    substeps: int
    shape: tuple[int, ...]
    ctrl: bytes
    """Little-endian float64 of that shape; nothing keeps the controls."""


class Control(Message, tag=9):
    """Set the controls, for the steps to come."""

    request: int
    shape: tuple[int, ...]
    ctrl: bytes


class Reset(Message, tag=10):
    """Reset environments."""

    request: int
    envs: tuple[int, ...] | None
    """None: all."""


class Spawn(Message, tag=11):
    """Make a sensor."""

    request: int
    blueprint: str
    values: dict[str, Any]
    name: str
    pose: tuple[float, ...]
    """Position (m) and quaternion (wxyz), relative to what it is attached to."""
    attach_to: str
    """Name of a body; empty for the world."""
    env: int
    """The only environment it is for; -1 for all."""
    client_side: dict[str, Any] | None = None
    """Definition of a sensor that runs in the client; None for any other."""


class Destroy(Message, tag=12):
    """Remove a sensor that this client spawned."""

    request: int
    name: str


class Ask(Message, tag=13):
    """Ask for something that is told once: ``"blueprints"``."""

    request: int
    what: str


class Set(Message, tag=14):
    """Set a live knob of a sensor."""

    request: int
    name: str
    knob: str
    value: Any
    envs: tuple[int, ...] | None


# To a client ----------------------------------------------------------------------------------------------------------


class Welcome(Message, tag=32):
    """The answer to HELLO."""

    version: str
    server: bytes
    """Number of this run of the server."""
    pid: int
    lease: float
    """Seconds of silence after which a client counts as gone."""
    probe: str
    """Name of a segment that a client on this host can read; empty for none."""
    probe_token: bytes
    resumed: bool
    """Whether it goes on with the sensors that it had spawned."""
    max_message: int = 2**24
    """Most bytes of a message to the server."""


class Refused(Message, tag=33):
    """The server does not talk to this client, or no longer."""

    reason: str
    final: bool
    """Whether trying again is of no use."""


class Unknown(Message, tag=34):
    """The server does not know this client (any more): HELLO again."""

    server: bytes


class Catalogue(Message, tag=35):
    """All that listeners need to know once: the latched description."""

    description: dict[str, Any]
    """`SceneDescription.to_dict`."""
    streams: list[dict[str, Any]]
    """`StreamInfo.to_dict` of each."""
    bodies: dict[str, Any]
    """`Bodies.to_dict`."""
    lockstep: bool
    frame: int
    tick: int


class Added(Message, tag=36):
    """A stream was added."""

    stream: dict[str, Any]


class Removed(Message, tag=37):
    """A stream is gone."""

    stream: int
    reason: str


class Subscribed(Message, tag=38):
    """A subscription begins."""

    subscription: int
    seq: int
    """Number of the last sample before it."""


class Eos(Message, tag=39):
    """A subscription ended."""

    subscription: int
    reason: str


class Segment(Message, tag=41):
    """A segment of shared memory that slots will be named of."""

    segment: int
    name: str
    token: bytes
    slot_size: int
    count: int


class Unmap(Message, tag=42):
    """A segment is not used any more."""

    segment: int


class FrameDone(Message, tag=43):
    """All data of a frame were sent."""

    frame: int
    tick: int
    time_ns: int
    streams: tuple[int, ...]
    """Streams with data in it."""
    subscriptions: tuple[int, ...] = ()
    """Those of this client that had data of it: not all of a stream's have the same."""
    counts: tuple[int, ...] = ()
    """How many messages of it each of those was sent, lost events included: they may still be under way."""


class Reply(Message, tag=44):
    """The answer to a request."""

    request: int
    result: Any
    error: str
    """Empty where it was done."""
    kind: str
    """Name of the exception's class."""
    warnings: tuple[tuple[str, str], ...] = ()
    """What was warned of meanwhile: name of the category, and text."""


class Pong(Message, tag=45):
    """The server lives."""

    server: bytes
    frame: int


class Note(Message, tag=46):
    """A warning for the client's user."""

    text: str


class Working(Message, tag=48):
    """The owner of the loop is at work, and requests of this client wait for that: their time-outs begin anew."""

    requests: tuple[int, ...]
    text: str
    """What it does, for the client's user; empty where that is what was asked for."""


LONG = (Step, Control)
"""Messages whose bytes are controls: reading them takes no time."""
LONG_TAGS = (8, 9)

ToServer = (
    Hello
    | ProbeResult
    | Subscribe
    | Unsubscribe
    | Frames
    | Ping
    | Bye
    | Step
    | Control
    | Reset
    | Spawn
    | Destroy
    | Ask
    | Set
)
ToClient = (
    Welcome
    | Refused
    | Unknown
    | Catalogue
    | Added
    | Removed
    | Subscribed
    | Eos
    | Segment
    | Unmap
    | FrameDone
    | Reply
    | Pong
    | Note
    | Working
)

_ENCODER = msgspec.msgpack.Encoder()
_TO_SERVER: msgspec.msgpack.Decoder[ToServer] = msgspec.msgpack.Decoder(ToServer)
_TO_CLIENT: msgspec.msgpack.Decoder[ToClient] = msgspec.msgpack.Decoder(ToClient)


def encode(message: Message) -> bytes:
    """Return a message as bytes."""
    return _ENCODER.encode(message)


def decode_at_server(content: Any) -> ToServer:
    """Return what a client said.

    Raises:
        WireError: it is none of these messages.
    """
    try:
        return _TO_SERVER.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise WireError(f"a message that a client does not send: {error}") from None


def decode_at_client(content: Any) -> ToClient:
    """Return what a server said.

    Raises:
        WireError: it is none of these messages.
    """
    try:
        return _TO_CLIENT.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise WireError(f"a message that a server does not send: {error}") from None
