"""Socket of the server and its only thread, which forwards incoming messages and sends records to clients."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from sensorium.errors import StreamError
from sensorium.stream.subscription_table import LOG, Session
from sensorium.wire import messages as msg
from sensorium.wire.packing import CONTROL, Record, pack
from sensorium.wire.waker import Waker

COPIED_BELOW = 64 * 1024
"""Largest part that is copied into the socket, bytes; below it, passing memory by reference costs more."""
TICK_S = 0.1
"""Interval of the checks for silent clients, s."""
MAX_RECEIVED = 4096
"""Maximum number of queued messages of one client; beyond it, the connection is no longer read."""
MAX_AT_ONCE = 256
"""Maximum number of messages read from the socket before records are sent."""
MAX_PER_ENVELOPE = 1024
"""Maximum number of records in one message of the socket."""
HANDSHAKE_S = 3.0
"""Time after which a connection whose other end does not speak ZeroMQ is closed, s."""
BACKLOG = 32
"""Maximum number of connections that arrive at once: fewer than the reserved descriptors."""
RESERVED_DESCRIPTORS = 64
"""Number of descriptors of the process that connections leave free; at most half of its limit."""
LINGER_S = 0.2
"""Longest wait at the end for sent messages to be read, s."""


class Sockets:
    """ROUTER socket bound to some addresses, and its thread.

    Args:
        addresses: ``inproc://``, ``ipc://`` and ``tcp://`` addresses.
        max_message: largest part from a client, bytes; a client that sends more is disconnected.
        prepare: sets further options of the socket (keys) before it is bound; returns a function that is called at the
            end.

    Raises:
        StreamError: an address cannot be bound.
    """

    def __init__(
        self, addresses: list[str], *, max_message: int, prepare: Callable[[zmq.Context[Any], Any], Callable[[], None]]
    ) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        zmq.Frame(b" ", copy=False)  # pyzmq's thread for sent memory starts now, while there are descriptors for it
        self._waker = Waker()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._unprepare: Callable[[], None] = lambda: None
        self._ready: dict[Session, None] = {}
        self._router = router = self.context.socket(zmq.ROUTER)
        router.linger = 0
        router.sndhwm = 0  # messages in transit are limited by credits and by the lease
        router.rcvhwm = MAX_RECEIVED
        router.maxmsgsize = max_message
        router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        router.handshake_ivl = int(1e3 * HANDSHAKE_S)
        router.backlog = BACKLOG
        router.copy_threshold = COPIED_BELOW
        self._accepted = router.get_monitor_socket(zmq.EVENT_ACCEPTED)
        self._was_full = False
        self.addresses: list[str] = []
        self._files: list[str] = []
        try:
            self._unprepare = prepare(self.context, router)
            for address in addresses:
                path = address.removeprefix("ipc://")
                is_file = path != address and not path.startswith("@")
                if is_file and os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
                    why = "the path exists and is not a socket. Choose another path."  # libzmq would delete it
                    raise StreamError(f"Cannot listen at {address!r}: {why}")
                try:
                    router.ipv6 = "[" in address
                    if is_file:
                        self._bind_file(path)
                    else:
                        router.bind(address)
                except (zmq.ZMQError, OSError) as error:
                    fix = "another path" if is_file else "another address, or port 0 for a free one"
                    why = zmq.strerror(error.errno or 0)
                    raise StreamError(f"Cannot listen at {address!r}: {why}. Choose {fix}.") from None
                endpoint = router.getsockopt(zmq.LAST_ENDPOINT)
                assert isinstance(endpoint, bytes)
                self.addresses.append(address if is_file else endpoint.rstrip(b"\0").decode())
        except BaseException:
            self._close()
            raise

    def _bind_file(self, path: str) -> None:
        """Bind to a file that only this user can access."""
        with socket.socket(socket.AF_UNIX) as probe:
            if not probe.connect_ex(path):  # renaming would take over the file of the current listener
                raise zmq.ZMQError(errno.EADDRINUSE)
        with tempfile.TemporaryDirectory(prefix=".", dir=os.path.dirname(path) or ".") as private:
            self._router.bind(f"ipc://{private}/s")
            os.chmod(f"{private}/s", 0o600)
            os.rename(f"{private}/s", path)
        self._files.append(path)

    def start(
        self, receive: Callable[[bytes, list[Any]], None], run_periodic: Callable[[], None], between: Callable[[], None]
    ) -> None:
        """Start the thread.

        Args:
            receive: called with (route, parts) of each incoming message; it raises no exceptions.
            run_periodic: called every `TICK_S`.
            between: called after `wake`, before records are sent.
        """
        self._receive, self._run_periodic, self._between = receive, run_periodic, between
        self._thread = threading.Thread(target=self._run, name="sensorium-stream", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread, from any other."""
        self._waker.wake()

    def put(self, session: Session, record: Record) -> None:
        """Send a record to a client, from any thread."""
        session.outbox.append(record)
        self._ready[session] = None
        self._waker.wake()

    def send(self, session: Session, message: msg.Message) -> None:
        """Send a control message to a client, from any thread."""
        self.put(session, Record(CONTROL, 0, 0, msg.encode(message)))

    def _refuse_excess(self) -> None:
        """Close new connections that use the descriptors which the process needs otherwise.

        The system gives the lowest free number to a descriptor, so that the number says how many are in use.
        """
        import resource  # not on Windows

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(zmq.Again):
            while True:
                descriptor = recv_monitor_message(self._accepted, zmq.NOBLOCK)["value"]
                if descriptor < limit - min(RESERVED_DESCRIPTORS, limit // 2):
                    continue
                if not self._was_full:
                    LOG.warning("Connections are refused: this process may open only %d files. See `ulimit -n`.", limit)
                self._was_full = True
                with contextlib.suppress(OSError):  # closed in the meantime
                    connection = socket.socket(fileno=descriptor)
                    try:
                        connection.shutdown(socket.SHUT_RDWR)
                    finally:
                        connection.detach()  # its owner closes it

    def _run(self) -> None:
        router, accepted, waker, woken = self._router, self._accepted, self._waker, self._waker.fileno()
        poller = zmq.Poller()
        for each in (router, woken, accepted) if os.name == "posix" else (router, woken):
            poller.register(each, zmq.POLLIN)
        next_look = time.monotonic()
        try:
            while not self._stopping:
                wait = 0 if self._ready else max(0, int(1e3 * (next_look - time.monotonic())) + 1)
                events = dict(poller.poll(wait))
                if accepted in events:
                    self._refuse_excess()
                if woken in events:
                    waker.rest()
                    self._between()
                if router in events:
                    self._take()
                if self._ready:
                    self._give()
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + TICK_S
                    self._run_periodic()
            self._give()
        except Exception:
            LOG.exception("The thread of the stream's socket ended because of an error")
        finally:
            self._close()

    def _take(self) -> None:
        for _ in range(MAX_AT_ONCE):
            try:
                route, *parts = self._router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._receive(route, [memoryview(part) for part in parts])

    def _give(self) -> None:
        while self._ready:
            session, _ = self._ready.popitem()  # before its records are taken: later ones make it ready again
            records: list[Record] = []
            with contextlib.suppress(IndexError):  # there are no more
                while len(records) < MAX_PER_ENVELOPE:
                    records.append(session.outbox.popleft())
                self._ready[session] = None
            if records:
                with contextlib.suppress(zmq.ZMQError):  # the connection is gone; the lease detects it
                    self._router.send_multipart([session.route, *pack(records)], zmq.NOBLOCK, copy=False)

    def send_now(self, route: bytes, parts: list[Any]) -> None:
        """Send to a client without a session. Only the socket's thread may call this."""
        with contextlib.suppress(zmq.ZMQError):
            self._router.send_multipart([route, *parts], zmq.NOBLOCK)

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """Send the remaining records, end the thread and close the socket."""
        self._stopping = True
        self._waker.wake()
        if self._thread is None:
            self._close()
        elif self._thread is not threading.current_thread():
            self._thread.join()

    def _close(self) -> None:
        self._unprepare()
        self._router.disable_monitor()
        self._accepted.close()
        self._router.close(linger=int(1e3 * LINGER_S))
        self.context.term()
        for path in self._files:
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._waker.close()
