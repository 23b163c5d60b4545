"""Plain TCP connections beside the socket, for what is large and goes to another machine.

ZeroMQ hands a large message on from thread to thread; written straight into a connection it costs what the copies of
the kernel cost. Each message that goes this way is announced by a record of kind ``BULK`` in the socket's own messages,
so the order of all that a client is told is that of the socket. Where such a connection cannot be made, or breaks, all
goes through the socket.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import zmq

from sensorium.errors import StreamError
from sensorium.wire.messages import Bulk
from sensorium.wire.packing import BULK, PART, PARTS, Record, pack_length

BULK_FROM = 256 * 1024
"""Bytes from which on a message goes this way: announcing it costs more than it saves for smaller ones."""
AT_ONCE = 2**20
"""Bytes given to the kernel in one call: the receiver begins while the rest is copied."""
TURN = 8 * 2**20
"""Bytes written to one client before the others have their turn."""
KEY_BYTES = 32
KEY_S = 5.0
"""Seconds within which who connected must have said its key."""
MOST_STRANGERS = 16
"""Connections that have not said their key yet; with more, the oldest is closed."""


class Watcher(Protocol):
    """Who polls descriptors."""

    def watch(self, descriptor: int, call: Callable[[int], None], events: int = zmq.POLLIN) -> None:
        """Call something with what happened to a descriptor."""
        ...

    def unwatch(self, descriptor: int) -> None:
        """Take back `watch`."""
        ...


class BulkLine:
    """The connection to one client: what is put in goes out as fast as it is taken.

    Args:
        connection: made by the client, which has said its key.
        watcher: says when more can be written, and when the client has hung up.
        broken: told once that the connection is gone.
    """

    def __init__(self, connection: socket.socket, watcher: Watcher, broken: Callable[[], None]) -> None:
        self._connection, self._watcher, self._broken = connection, watcher, broken
        self._descriptor = connection.fileno()
        self._pending: deque[memoryview] = deque()
        self._watched = zmq.POLLIN
        watcher.watch(self._descriptor, self._on_event)

    @property
    def is_open(self) -> bool:
        """Whether it can be written to."""
        return self._connection.fileno() >= 0

    def take(self, record: Record) -> Record:
        """Take what is large of a data message, and return what the socket says in its place."""
        if record.kind not in (PART, PARTS):
            return record
        parts = record.content if record.kind == PARTS else (record.content,)
        views = [memoryview(part).cast("B") for part in parts]
        length = sum(len(view) for view in views)
        if length < BULK_FROM:
            return record
        self._pending.extend(views)
        return Record(BULK, record.a, record.b, pack_length(length))

    def flush(self) -> None:
        """Write what can be written without waiting; what remains goes out as the client takes it."""
        pending, left = self._pending, TURN
        try:
            while pending and left > 0:
                sent = self._connection.send(pending[0][:AT_ONCE])
                left -= sent
                pending[0] = pending[0][sent:]
                if not pending[0]:
                    pending.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self._break()
            return
        events = zmq.POLLIN | (zmq.POLLOUT if pending else 0)
        if events != self._watched:
            self._watched = events
            self._watcher.watch(self._descriptor, self._on_event, events)

    def finish(self, deadline: float) -> None:
        """Wait until everything is written, but not longer than until `deadline`, in `time.monotonic` seconds."""
        poller = zmq.Poller()
        poller.register(self._descriptor, zmq.POLLOUT)
        while self.is_open and self._pending and (left := deadline - time.monotonic()) > 0.0:
            poller.poll(int(1e3 * left) + 1)
            self.flush()

    def close(self) -> None:
        """Hang up."""
        if self.is_open:
            self._watcher.unwatch(self._descriptor)
            self._connection.close()
            self._pending.clear()

    def _on_event(self, events: int) -> None:
        if events & ~zmq.POLLOUT:
            try:
                self._connection.recv(1)
            except BlockingIOError:
                pass
            except OSError:
                self._break()
                return
            else:  # it has hung up; if it speaks, it is none of ours
                self._break()
                return
        self.flush()

    def _break(self) -> None:
        if self.is_open:
            self.close()
            self._broken()


class _Stranger:
    """Who connected and has not said its key yet."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.said = b""
        self.since = time.monotonic()


class BulkDoor:
    """Accepts bulk connections. Only the socket's thread may call its methods.

    Args:
        endpoints: addresses that the socket is bound to; those of TCP get one port each beside their own.
        port: that port; 0 takes a free one.

    Raises:
        StreamError: the port cannot be had.
    """

    def __init__(self, endpoints: Iterable[str], port: int) -> None:
        self._listeners: dict[str, socket.socket] = {}
        self._ports: list[tuple[int, int]] = []
        self._strangers: dict[int, _Stranger] = {}
        self._invited: dict[bytes, bytes] = {}
        self._keys: dict[bytes, bytes] = {}
        self._lines: dict[bytes, BulkLine] = {}
        self._watcher: Watcher | None = None
        try:
            for endpoint in endpoints:
                if endpoint.startswith("tcp://"):
                    host, _, own = endpoint.removeprefix("tcp://").rpartition(":")
                    self._ports.append((int(own), self._listen(host.strip("[]"), port)))
        except BaseException:
            self.close()
            raise

    def _listen(self, host: str, port: int) -> int:
        if host not in self._listeners:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            try:
                listener = socket.create_server((host, port), family=family, backlog=MOST_STRANGERS)
            except OSError as error:
                text = f"cannot listen at port {port} of {host} for large messages: {error.strerror or error}. "
                raise StreamError(f"{text}Name another bulk_port, 0 for a free one, or None for none.") from None
            listener.setblocking(False)
            self._listeners[host] = listener
        number: int = self._listeners[host].getsockname()[1]
        return number

    @property
    def ports(self) -> list[tuple[int, int]]:
        """Ports of the socket's addresses, each with the one for bulk connections."""
        return list(self._ports)

    @property
    def count(self) -> int:
        """Number of clients that are connected."""
        return len(self._lines)

    def start(self, watcher: Watcher) -> None:
        """Begin to accept."""
        self._watcher = watcher
        for listener in self._listeners.values():
            watcher.watch(listener.fileno(), functools.partial(self._accept, listener))

    def invite(self, route: bytes) -> Bulk | None:
        """Return what to tell a client that may connect; None where there is nothing to connect to."""
        if not self._ports:
            return None
        self.forget(route)
        key = secrets.token_bytes(KEY_BYTES)
        self._invited[key], self._keys[route] = route, key
        return Bulk(tuple(self._ports), key)

    def line(self, route: bytes) -> BulkLine | None:
        """Return the connection to a client, where there is one."""
        return self._lines.get(route)

    def forget(self, route: bytes) -> None:
        """Hang up on a client that is gone, and let it not connect any more."""
        self._invited.pop(self._keys.pop(route, b""), None)
        line = self._lines.pop(route, None)
        if line is not None:
            line.close()

    def look_around(self) -> None:
        """Hang up on those who have not said who they are for long."""
        if self._strangers:
            oldest = time.monotonic() - KEY_S
            for stranger in [each for each in self._strangers.values() if each.since < oldest]:
                self._dismiss(stranger)

    def close(self, patience: float = 0.0) -> None:
        """Write what is left, for `patience` seconds at most, and close everything."""
        deadline = time.monotonic() + patience
        for line in list(self._lines.values()):
            line.finish(deadline)
            line.close()
        self._lines.clear()
        for stranger in list(self._strangers.values()):
            self._dismiss(stranger)
        for listener in self._listeners.values():
            if self._watcher is not None:
                self._watcher.unwatch(listener.fileno())
            listener.close()
        self._listeners.clear()
        self._ports.clear()

    def _accept(self, listener: socket.socket, _: int) -> None:
        assert self._watcher is not None
        try:
            connection, _ = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(0.001)  # who waits there stays readable: do not spin
            return
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self._strangers) >= MOST_STRANGERS:
            self._dismiss(next(iter(self._strangers.values())))
        stranger = self._strangers[connection.fileno()] = _Stranger(connection)
        self._watcher.watch(connection.fileno(), functools.partial(self._hear, stranger))

    def _hear(self, stranger: _Stranger, _: int) -> None:
        assert self._watcher is not None
        try:
            said = stranger.connection.recv(KEY_BYTES - len(stranger.said))
        except BlockingIOError:
            return
        except OSError:
            said = b""
        stranger.said += said
        if said and len(stranger.said) < KEY_BYTES:
            return
        route = self._invited.pop(stranger.said, None)
        if route is None:
            self._dismiss(stranger)
            return
        descriptor = stranger.connection.fileno()
        del self._strangers[descriptor]
        self._watcher.unwatch(descriptor)
        self._lines[route] = BulkLine(stranger.connection, self._watcher, functools.partial(self._lose, route))

    def _lose(self, route: bytes) -> None:
        self._lines.pop(route, None)

    def _dismiss(self, stranger: _Stranger) -> None:
        descriptor = stranger.connection.fileno()
        del self._strangers[descriptor]
        if self._watcher is not None:
            self._watcher.unwatch(descriptor)
        stranger.connection.close()


__all__ = ["BULK_FROM", "BulkDoor", "BulkLine"]
