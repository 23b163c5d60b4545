"""Socket of the client and its thread, which connects, greets, pings, and reconnects after the connection breaks."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from sensorium.client import checks
from sensorium.client.callbacks import LOGGER
from sensorium.errors import ConfigError, StreamError, WireError
from sensorium.wire import messages as msg
from sensorium.wire.keyfiles import KEY_CHARACTERS, is_key, new_keys
from sensorium.wire.packing import CONTROL, CREDIT, DATA, PLACE, RELEASE, SLOT, Record, pack, unpack
from sensorium.wire.slots import SlotReader, probe_slots
from sensorium.wire.waker import Waker

if TYPE_CHECKING:
    from sensorium.client.session import Session

HELLO_S = 0.25
"""Seconds between two unanswered greetings."""
MAX_AT_ONCE = 1024
"""Maximum number of messages read from the socket before pending records are sent."""
MAX_PER_ENVELOPE = 1024
"""Maximum number of records in one message to the server."""
SILENCE_S = 1.0
"""Seconds without a message after which the server counts as unavailable."""
_BUFFER = attrgetter("buffer")
RESERVED = 1024
"""Size reserved beside the content when the length of a long message is checked, bytes."""

Message = tuple[int, memoryview, memoryview | None]
"""Number of a data message in the subscription, its memory, and the memory of its body if that is separate."""


class Link:
    """Connection to one server.

    Args:
        address: address of the server.
        session: session of the client; receives all messages on the thread of the link.
        hello: the greeting. A message that is larger than its `max_message` breaks the connection.
        keys: options of the socket with the keys.
        context: ZeroMQ context of the server, for ``inproc://``; None creates a context.
        uses_slots: whether to read shared memory if possible.
    """

    def __init__(
        self,
        address: str,
        session: Session,
        hello: msg.Hello,
        *,
        keys: Mapping[str, bytes],
        context: zmq.Context[Any] | None,
        uses_slots: bool,
    ) -> None:
        self.address = address
        self._session, self._hello, self._keys = session, hello, keys
        self._owns_context = context is None
        self._context: zmq.Context[Any] = zmq.Context() if context is None else context
        self._uses_slots = uses_slots
        self._waker = Waker()
        self._outbox: deque[Record] = deque()
        self._segments: dict[int, SlotReader] = {}
        self._route = self._server = b""
        self._last_received = self._next_ping = 0.0
        self._is_up = self._gives_up = self._stopping = False
        self._most_taken = 2**24
        self._poller = zmq.Poller()
        self._dealer: Any = None
        self._monitor: Any = None
        try:
            self._connect()
        except BaseException:
            if self._owns_context:
                self._context.destroy(linger=0)
            self._waker.close()
            raise
        self.thread = threading.Thread(target=self._run, name="sensorium-client", daemon=True)
        """Thread of the connection; the session starts it, once it can take messages."""

    @property
    def is_up(self) -> bool:
        """Whether the server has answered and still sends messages."""
        return self._is_up and time.monotonic() - self._last_received < SILENCE_S

    def send(self, *records: Record) -> None:
        """Send records, from any thread and during garbage collection. Without a connection the records are lost."""
        self._outbox.extend(records)
        self._waker.wake()

    def send_credit(self, subscription: int, count: int) -> None:
        """Notify the server that data messages were read; 0 has no effect."""
        if count:
            self.send(Record(CREDIT, subscription, count))

    def send_control(self, message: msg.Message) -> None:
        """Send a control message.

        Raises:
            StreamError: the message cannot be encoded, or is longer than the server accepts.
        """
        try:
            content = msg.encode(message)
        except (TypeError, ValueError, OverflowError) as error:
            raise StreamError(f"cannot send {type(message).__name__}: {error}") from None
        is_long, name, size = isinstance(message, msg.LONG), type(message).__name__, len(content)
        limit = self._most_taken - RESERVED if is_long else msg.MAX_WORDS
        if size > limit:
            fix = " Increase serve(..., max_message=...)." if is_long else ""
            raise StreamError(f"{name} has {size} bytes, but the server accepts at most {limit}.{fix}")
        self.send(Record(CONTROL, 0, 0, content))

    def stop(self) -> None:
        """Send a goodbye message, end the thread and close the socket.

        Repeated calls, and calls from a callback, are allowed.
        """
        self._stopping = True
        self._waker.wake()
        if self.thread is not threading.current_thread():
            self.thread.join()

    # On the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        wake_up = self._waker.fileno()
        self._poller.register(wake_up, zmq.POLLIN)
        try:
            while not self._stopping:
                wait = max(0, int(1e3 * (self._next_ping - time.monotonic())) + 1)
                events = dict(self._poller.poll(wait))
                if wake_up in events:
                    self._waker.rest()
                if self._monitor in events:
                    self._monitor_connection()
                if self._dealer in events:
                    self._take()
                if self._is_up and self._outbox:
                    self._give()
                if time.monotonic() >= self._next_ping:
                    self._next_ping = time.monotonic() + (msg.PING_S if self._is_up else HELLO_S)
                    if self._is_up:
                        self._give(msg.Ping(self._server))
                    elif not self._gives_up:
                        self._send_now(self._hello)
            if self._is_up:
                self._give(msg.Bye())
        except zmq.ContextTerminated:  # a server in this process was closed
            self._end("the server was closed")
        except Exception:
            LOGGER.exception("the thread of the connection to %s failed", self.address)
            self._end("the client failed, see the log of 'sensorium.client'")
        finally:
            self._disconnect(linger=200)
            self._segments.clear()
            if self._owns_context:
                self._context.destroy(linger=200)
            self._waker.close()

    def _connect(self) -> None:
        """Create a socket with a new routing id and connect it."""
        self._hello.resume, self._route = self._route, b"s" + secrets.token_bytes(15)  # ZeroMQ reserves a first 0
        dealer = self._context.socket(zmq.DEALER)
        dealer.routing_id = self._route
        dealer.linger = 0
        dealer.immediate = 1
        dealer.sndhwm = dealer.rcvhwm = 0
        dealer.reconnect_ivl, dealer.reconnect_ivl_max = 50, 250
        dealer.maxmsgsize = self._hello.max_message
        dealer.ipv6 = "[" in self.address
        try:
            for option, key in self._keys.items():
                setattr(dealer, option, key)
            if not self.address.startswith("inproc://"):
                self._monitor = dealer.get_monitor_socket()
                self._poller.register(self._monitor, zmq.POLLIN)
            dealer.connect(self.address)
        except zmq.ZMQError as error:
            self._dealer = dealer
            self._disconnect(linger=0)
            raise StreamError(f"cannot connect to {self.address!r}: {error.strerror}.") from None
        self._dealer = dealer
        self._poller.register(dealer, zmq.POLLIN)

    def _disconnect(self, linger: int) -> None:
        if self._monitor is not None:
            self._poller.unregister(self._monitor)
            self._dealer.disable_monitor()
            self._monitor.close(linger=0)
            self._monitor = None
        if self._dealer in self._poller:
            self._poller.unregister(self._dealer)
        self._dealer.close(linger=linger)

    def _monitor_connection(self) -> None:
        event = parse_monitor_message(self._monitor.recv_multipart())["event"]
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._next_ping = 0.0  # a greeting sent earlier was dropped
        elif event == zmq.EVENT_DISCONNECTED:
            self._take()  # read earlier messages, e.g. the reason why the server ended
            if self._is_up:
                self._start_over()
        elif event in (zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL):
            self._end("the keys do not match those of the server, or the server uses another protocol")

    def _end(self, reason: str, final: bool = True) -> None:
        """Report the end of the connection, then mark it as down, so that the reason is known when the mark is read."""
        self._session.on_refused(reason, final)
        self._is_up, self._gives_up = False, self._gives_up or final

    def _start_over(self) -> None:
        """Reconnect after the connection broke, under a new name: messages to the old name may have been lost."""
        self._session.on_lost()
        self._is_up = False
        self._outbox.clear()
        self._disconnect(linger=0)
        self._connect()

    def _send_now(self, message: msg.Message) -> None:
        with contextlib.suppress(zmq.Again):  # not connected yet
            self._dealer.send_multipart(pack([_record(message)]), zmq.NOBLOCK)

    def _give(self, *last: msg.Message) -> None:
        """Send pending records, and messages after them."""
        outbox = self._outbox
        outbox.extend(map(_record, last))
        while outbox:
            records: list[Record] = []
            while outbox and len(records) < MAX_PER_ENVELOPE:
                records.append(outbox.popleft())
            try:
                self._dealer.send_multipart(pack(records), zmq.NOBLOCK)
            except zmq.Again:
                outbox.extendleft(reversed(records))
                return

    def _take(self) -> None:
        for _ in range(MAX_AT_ONCE):
            try:
                frames = self._dealer.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            self._last_received = time.monotonic()
            try:
                self._read(frames)
            except StreamError as error:
                LOGGER.error("the server at %s sent an invalid message: %s", self.address, error)
                self._end(f"the server sent an invalid message: {error}")
                return

    def _read(self, frames: list[Any]) -> None:
        number = -1
        messages: list[Message] = []  # consecutive messages of one subscription
        for kind, a, b, content in unpack(map(_BUFFER, frames)):
            if messages and (a != number or kind == CONTROL):
                self._session.take(number, messages)
                messages = []
            number = a
            if kind == CONTROL:
                self._handle_message(msg.decode(msg.TO_CLIENT, content))
            elif kind == DATA:
                head, *body = content if isinstance(content, tuple) else (content,)
                messages.append((b, head, body[0] if body else None))
            elif kind == SLOT:
                messages.append((b, memoryview(self._slot(*PLACE.unpack(content))), None))
            else:
                raise WireError(f"a record has the unknown kind {kind}")
        if messages:
            self._session.take(number, messages)

    def _slot(self, segment: int, slot: int, length: int) -> Any:
        if (reader := self._segments.get(segment)) is None:
            raise WireError(f"a message is in segment {segment}, which was not announced")
        return reader.memory(slot, length)

    def _release(self, segments: Mapping[int, SlotReader], segment: int, slot: int) -> None:
        """Notify the server that a slot was read, unless the slot belongs to an earlier connection."""
        if segments is self._segments:
            self.send(Record(RELEASE, segment, slot))

    def _handle_message(self, message: msg.ToClient) -> None:
        match message:
            case msg.Pong(server=server):
                if server != self._server:
                    self._start_over()
            case msg.Unknown():
                if self._is_up:
                    self._start_over()
            case msg.Welcome():
                if self._is_up and message.server == self._server:
                    return
                self._server, self._is_up = message.server, True
                self._most_taken = message.max_message
                self._outbox.clear()
                self._segments.clear()  # also releases the readers, which refer to it
                self._segments = {}
                can_read = self._uses_slots and bool(message.probe) and probe_slots(message.probe, message.probe_token)
                self._outbox.append(_record(msg.ProbeResult(can_read)))
                self._session.on_welcome(message)
            case msg.Refused(reason=reason, final=final):
                if self._is_up:
                    self._send_now(msg.Bye())  # received: the server need not wait
                self._end(reason, final)
            case msg.Segment():
                self._segments[message.segment] = SlotReader(
                    message.name, message.token, message.slot_size, message.count,
                    on_release=partial(self._release, self._segments, message.segment),
                )  # fmt: skip
            case msg.Unmap(segment=segment):
                self._segments.pop(segment, None)  # its memory stays mapped while views of it exist
            case _:
                self._session.on_control(message)


def _record(message: msg.Message) -> Record:
    return Record(CONTROL, 0, 0, msg.encode(message))


def why_silent(address: str) -> str:
    """Return the reason why no server answers at an address."""
    scheme, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    try:
        if scheme == "tcp":
            socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
        elif scheme == "ipc":
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(rest)
    except socket.gaierror:
        return f"the host {host!r} is unknown"
    except FileNotFoundError:
        return "the socket file does not exist"
    except ConnectionRefusedError:
        return "no program listens there"
    except OSError as error:
        return f"the address is unreachable ({error.strerror or error})"
    return "the program that listens there is not a sensorium server, or does not respond"


def key_options(server_key: str, keys: tuple[str, str] | None) -> dict[str, bytes]:
    """Return the keys as options of a socket.

    Args:
        server_key: public key of the server; empty if the server has none.
        keys: (public, secret) key of the client; None generates a new pair.

    Raises:
        ConfigError: a key is invalid, or the key of the server is missing.
    """
    if server_key != "" and not is_key(server_key):
        expected = f"a key of {KEY_CHARACTERS} characters, as the server prints it"
        raise ConfigError.single("connect", "server_key", checks.HIDDEN, expected)
    if keys is not None:
        if not (isinstance(keys, tuple | list) and len(keys) == 2 and all(map(is_key, keys))):
            expected = f"the public and the secret key of this client, {KEY_CHARACTERS} characters each, or None"
            raise ConfigError.single("connect", "keys", checks.HIDDEN, expected)
        if not server_key:
            fix = "Add server_key=..., with the key that the server prints."
            raise ConfigError.single("connect", "keys", checks.HIDDEN, "the key of the server as well", fix)
    if not server_key:
        return {}
    public, secret = keys or new_keys()
    names = ("curve_serverkey", "curve_publickey", "curve_secretkey")
    return dict(zip(names, map(str.encode, (server_key, public, secret)), strict=True))
