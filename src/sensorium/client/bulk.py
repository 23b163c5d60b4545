"""The plain TCP connection over which a server on another machine sends what is large; see `stream.bulk`."""

from __future__ import annotations

import contextlib
import errno
import socket

from sensorium.wire.buffers import Buffer, BufferPool

GOOD_PART = 2**20
"""Bytes that are waited for, where as many are missing."""


class BulkBrokenError(Exception):
    """The connection ended in the midst of a message."""


class BulkLine:
    """A connection that is being made, or is there. Nothing here waits.

    Args:
        host: the server's number.
        port: of its bulk connections.
        key: what the server is told first.

    Raises:
        OSError: it cannot be reached.
    """

    def __init__(self, host: str, port: int, key: bytes) -> None:
        self._key = key
        self._at_least = 1
        self._buffers = BufferPool()
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            self._socket.setblocking(False)
            failure = self._socket.connect_ex((host, port))
            if failure not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
                raise OSError(failure, "not reached")
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor: writable once it is connected, or could not be; readable when something came."""
        return self._socket.fileno()

    def introduce(self) -> None:
        """Say the key, once it is writable.

        Raises:
            OSError: it could not be connected.
        """
        failure = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure:
            raise OSError(failure, "not reached")
        self._socket.send(self._key)  # it fits: nothing was sent before

    def buffer(self, length: int) -> Buffer:
        """Return memory for a message."""
        buffer = self._buffers.pop()
        buffer.reset(length)
        return buffer

    def read(self, view: memoryview) -> int:
        """Fill what is there into `view` and return how many bytes that were.

        Raises:
            BulkBrokenError: the other side is gone.
        """
        at = 0
        try:
            while at < len(view):
                count = self._socket.recv_into(view[at:])
                if not count:
                    raise BulkBrokenError("the connection for large messages was closed")
                at += count
        except BlockingIOError:
            self._wake_at(len(view) - at)
        except OSError as error:
            raise BulkBrokenError(f"the connection for large messages broke: {error}") from None
        return at

    def _wake_at(self, missing: int) -> None:
        """Count as readable only when a good part is there: every wake costs more than the copy of what trickles in."""
        at_least = min(missing, GOOD_PART)
        if at_least != self._at_least:
            self._at_least = at_least
            with contextlib.suppress(OSError):  # not everywhere can it be set
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, at_least)

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._socket.close()


def port_of(address: str) -> int:
    """Return the port of an address of TCP; 0 of others."""
    if not address.startswith("tcp://"):
        return 0
    _, _, port = address.rpartition(":")
    return int(port) if port.isdigit() else 0


__all__ = ["BulkBrokenError", "BulkLine", "port_of"]
