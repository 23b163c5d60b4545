"""Waking a thread that waits in a poll, from any other thread."""

from __future__ import annotations

import contextlib
import socket


class Waker:
    """A pipe into a poller: `wake` makes its `fileno` readable, `rest` makes it silent again.

    Waking costs a system call only where the other thread was not woken already.
    """

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._is_awake = False

    def fileno(self) -> int:
        """Return the descriptor to poll for reading."""
        return self._read.fileno()

    def wake(self) -> None:
        """Wake the thread that polls."""
        if not self._is_awake:
            self._is_awake = True
            with contextlib.suppress(OSError):  # closed meanwhile, or full: then it is awake
                self._write.send(b"!")

    def rest(self) -> None:
        """Note that the thread is awake and will look at everything there is from here on."""
        with contextlib.suppress(OSError):
            self._read.recv(4096)
        self._is_awake = False

    def close(self) -> None:
        """Close both ends."""
        self._read.close()
        self._write.close()
