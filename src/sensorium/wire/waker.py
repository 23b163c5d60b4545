"""Wake-up of a polling thread from any other thread."""

from __future__ import annotations

import contextlib
import socket
from threading import RLock, get_ident


class Waker:
    """Pollable object: `wake` makes its `fileno` readable, `rest` makes it unreadable again.

    Waking costs a system call only if the polling thread is not already awake. Calls from the polling thread itself are
    free, because it processes all pending work before it polls again.
    """

    def __init__(self) -> None:
        self._pair = socket.socketpair()
        for end in self._pair:
            end.setblocking(False)
        self._is_awake = False
        self._poller = 0
        self._lock = RLock()  # prevents writes to a closed descriptor whose number may be reused

    def fileno(self) -> int:
        """Return the descriptor to poll for reading."""
        return self._pair[0].fileno()

    def wake(self) -> None:
        """Wake the polling thread."""
        if self._is_awake or get_ident() == self._poller:
            return
        self._is_awake = True
        with self._lock, contextlib.suppress(OSError):  # closed in the meantime, or full: then the thread is awake
            self._pair[1].send(b"!")

    def rest(self) -> None:
        """Make the descriptor unreadable, after the poll reported it. The thread then processes all pending work."""
        self._poller = get_ident()
        with contextlib.suppress(OSError):
            self._pair[0].recv(4096)
        self._is_awake = False

    def close(self) -> None:
        """Close the polled descriptor. Waking has no effect afterwards."""
        with self._lock:
            self._is_awake = True
            for end in self._pair:
                end.close()
