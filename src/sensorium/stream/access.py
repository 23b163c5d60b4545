"""Messages of clients on the socket's thread: greetings, subscriptions, credits. Commands go to the loop's owner."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from sensorium.errors import WireError
from sensorium.stream.options import ServerOptions
from sensorium.stream.security import Credentials
from sensorium.stream.sockets import TICK_S, Sockets
from sensorium.stream.subscription_table import LOG, Session, SubscriptionTable
from sensorium.wire import messages as msg
from sensorium.wire.packing import CONTROL, CREDIT, RELEASE, Record, pack, unpack
from sensorium.wire.slots import SlotWriter

PONG_S = 0.02
"""Minimum interval between answers to pings of a client, which may send many pings without reading, s."""
MAX_ANSWERS = 256
"""Maximum number of answers to messages without a session, between two maintenance rounds."""
MAX_RECORDS = 4096
"""Maximum number of records in one message of a client."""
GREETING_S = 0.1
"""Minimum interval between answers to greetings of a client, s."""
MAX_REQUESTS = 256
"""Maximum number of requests of a client that wait for the owner of the loop."""
LAST_WORDS_S = 0.2
"""Longest wait for clients to read the end of the server, s. Unread messages are lost with the connection."""


class AccessControl:
    """Access control: admits and disconnects clients, and handles their messages.

    Args:
        table: the subscriptions.
        sockets: the socket.
        credentials: required credentials of clients.
        options: limits for clients.
        server: number of this run of the server.
        probe: segment with which clients check that they can read the server's memory; None without shared memory.
        catalogue: function that returns the latched description.
    """

    def __init__(
        self,
        table: SubscriptionTable,
        sockets: Sockets,
        credentials: Credentials,
        options: ServerOptions,
        *,
        server: bytes,
        probe: SlotWriter | None,
        catalogue: Callable[[], msg.Catalogue],
    ) -> None:
        from sensorium import __version__

        self._table, self._sockets, self._credentials = table, sockets, credentials
        self._options, self._server, self._version = options, server, str(__version__)
        self._probe, self._catalogue = probe, catalogue
        self._answers = 0
        self.commands: deque[tuple[Session, msg.Request]] = deque()
        """Commands for the owner of the loop."""
        self.new_frame_listeners: dict[Session, None] = {}
        """Clients that requested frame notifications since the last frame."""
        self._closing = False
        self.refused = 0
        """Number of messages and clients that were refused."""
        self.arrived = threading.Event()
        """Set after a command was added to `commands`."""

    # Called by the socket's thread ------------------------------------------------------------------------------------

    def receive(self, route: bytes, parts: list[Any]) -> None:
        """Handle one message; raises no exceptions."""
        session = self._table.sessions.get(route)
        try:
            if len(parts) > MAX_RECORDS:
                raise WireError(f"more than {MAX_RECORDS} records in one message")
            for kind, a, b, content in unpack(parts):
                if isinstance(content, tuple):
                    raise WireError("a record with further parts")
                if len(content) > msg.MAX_WORDS and content[1] not in msg.LONG_TAGS:
                    raise WireError(f"a control message of {len(content)} bytes")
                message = msg.decode(msg.TO_SERVER, content) if kind == CONTROL else None
                if session is not None:
                    session.silence = 0.0
                    if kind == CREDIT:
                        self._table.credit(session, a, b)
                    elif kind == RELEASE:
                        self._table.release(session, a, b)
                    elif message is not None:
                        self._handle_message(session, message)
                    else:
                        raise WireError(f"a record of kind {kind}, which clients do not send")
                elif isinstance(message, msg.Hello):
                    self._welcome(route, message)
                    session = self._table.sessions.get(route)
                elif not isinstance(message, msg.Bye):
                    self._answer(route, msg.Unknown(self._server))
                    return
        except Exception as error:
            self.refused += 1
            if isinstance(error, WireError | ValueError):
                reason = f"the client sent an invalid message: {error}"
            else:
                LOG.exception("The server could not handle a message of a client")
                reason = f"the server failed to handle a message: {type(error).__name__}: {error}"
            self._answer(route, msg.Refused(reason, True), always=session is not None)
            if session is not None:
                LOG.warning("Client %s is disconnected: %s", session, reason)
                self.end(session)

    def run_periodic(self) -> None:
        """End the sessions of silent clients and ended processes."""
        self._answers = 0
        for session in list(self._table.sessions.values()):
            session.silence += TICK_S
            if session.silence > self._options.lease:
                LOG.info("Client %s has sent no message for %g s", session, self._options.lease)
                self.end(session)
            elif session.process is not None:
                ended = select.poll()
                ended.register(session.process, select.POLLIN)
                if ended.poll(0):
                    LOG.info("The process of client %s ended", session)
                    self.end(session)

    def end(self, session: Session) -> None:
        """End a session."""
        if session.process is not None:
            os.close(session.process)
            session.process = None
        with self._table.lock:  # as one change: where `clients` shows the end, its sensors are known to be orphans
            self._table.remove_session(session)
            self.new_frame_listeners.pop(session, None)

    def close(self, reason: str) -> None:
        """Notify all clients that the server ends, and wait a limited time until they have received it.

        Called from the owner's thread when the server closes.
        """
        self._closing = True
        self._table.send_to_all(msg.Refused(reason, False))
        with self._table.lock:
            self._table.has_room.wait_for(lambda: not self._table.sessions, LAST_WORDS_S)

    # Greetings --------------------------------------------------------------------------------------------------------

    def _welcome(self, route: bytes, hello: msg.Hello) -> None:
        if self._closing:
            return
        reason, final = "", True
        if hello.protocol != msg.PROTOCOL:
            reason = (
                f"the server speaks protocol {msg.PROTOCOL} (sensorium {self._version}), the client {hello.protocol} "
                f"(sensorium {hello.version}). Install the same version on both sides"
            )
        elif not self._credentials.admits(hello.token):
            self.refused += 1
            reason = "the token is wrong. Pass the token of the server: connect(..., token=...)"
        elif len(self._table.sessions) >= self._options.max_clients:
            reason, final = f"the server already has max_clients={self._options.max_clients} clients", False
        if reason:
            self._answer(route, msg.Refused(reason, final))
            return
        session = Session(route, hello.name[:64], hello.pid, hello.host[:64])
        session.max_message = hello.max_message
        old = self._table.sessions.get(hello.resume) if hello.resume else None
        with self._table.lock:
            if old is not None:
                session.sensors, old.sensors = old.sensors, set()
            self._table.sessions[route] = session
            self._greet(session, resumed=old is not None)
        if old is not None:
            self.end(old)

    def _greet(self, session: Session, *, resumed: bool) -> None:
        now = time.monotonic()
        if now - session.greeted < GREETING_S:
            return  # the answer to the first greeting is in transit
        session.greeted = now
        probe = ("", b"") if self._probe is None else (self._probe.name, self._probe.token)
        self._table.send(session, msg.Welcome(self._server, *probe, resumed, self._options.max_message))
        self._table.send(session, self._catalogue())

    def _answer(self, route: bytes, message: msg.Message, *, always: bool = False) -> None:
        self._answers += not always
        if self._answers > MAX_ANSWERS and not always:
            return  # the client asks again
        self._sockets.send_now(route, pack([Record(CONTROL, 0, 0, msg.encode(message))]))

    # In a session -----------------------------------------------------------------------------------------------------

    def _handle_message(self, session: Session, message: msg.ToServer) -> None:
        table = self._table
        match message:
            case msg.Ping(server=server):
                if server != self._server:
                    raise WireError("a PING to another server")
                if (now := time.monotonic()) - session.last_pong >= PONG_S:
                    session.last_pong = now
                    table.send(session, msg.Pong(self._server))
            case msg.Subscribe():
                table.subscribe(session, message)
                self.arrived.set()
            case msg.Unsubscribe(subscription=number):
                table.unsubscribe(session, number)
            case msg.Frames(wanted=wanted):
                with table.lock:
                    table.frame_listeners.pop(session, None)
                    if wanted:
                        table.frame_listeners[session] = self.new_frame_listeners[session] = None
                        self.arrived.set()
            case msg.ProbeResult(can_read=can_read):
                session.shares_memory = can_read and self._probe is not None
                if session.shares_memory and session.process is None and session.pid != os.getpid():
                    with contextlib.suppress(OSError, OverflowError):  # not watchable: then the lease applies
                        session.process = os.pidfd_open(session.pid)
            case msg.Bye():
                self.end(session)
            case msg.Hello():  # repeated by the client before the answer arrived
                self._greet(session, resumed=bool(session.sensors))
            case msg.Request():
                if session.requests >= MAX_REQUESTS:
                    raise WireError(f"more than {MAX_REQUESTS} requests that wait for an answer")
                session.requests += 1
                self.commands.append((session, message))
                self.arrived.set()
