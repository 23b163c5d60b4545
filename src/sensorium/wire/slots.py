"""Shared memory for payloads between processes of one host: one process writes slots, others map them read-only.

A segment is a `memfd`: memory without a name in any file system. Another process opens it as ``/proc/<pid>/fd/<n>``.
The kernel frees it when the last process that uses it ends, even after a crash. No memory leaks, and the size of
``/dev/shm`` is not a limit. Only processes of the same user (and root) on the same host, with the same ``/proc``, can
open a segment, and they cannot write to it. No process can shrink it, because that would crash its
readers. The layout, little endian: one page with magic, version, page size, token, slot size and count, then the slots.

Shared memory requires Linux 5.1. Elsewhere `slots_available()` is False and payloads are sent through the socket.
"""

from __future__ import annotations

import itertools
import mmap
import os
import re
import stat
import struct
import sys
from collections.abc import Callable
from functools import partial

import numpy as np

from sensorium.errors import StreamError, WireError
from sensorium.readings import Array
from sensorium.wire.buffers import leased

PAGE = mmap.PAGESIZE
"""Page size, bytes. Slots start at multiples of it."""

_MAGIC = b"SNSRSLOT"
_VERSION = 1
_HEAD = struct.Struct("<8sII16sQQ")
_TOKEN_BYTES = 16
_PROC = "/proc"
_numbers = itertools.count()
_NAME = re.compile(r"(/proc/[1-9][0-9]*/fd/)(0|[1-9][0-9]*)")

# From linux/fcntl.h and linux/memfd.h; Python's fcntl has only the second to last, since 3.13.
_F_ADD_SEALS, _F_GET_SEALS = 1033, 1034
_F_SEAL_SEAL, _F_SEAL_SHRINK, _F_SEAL_GROW, _F_SEAL_FUTURE_WRITE = 1, 2, 4, 16


def slots_available() -> bool:
    """Return whether this process can create slots: Linux with `memfd_create` and ``/proc``."""
    try:
        probe = SlotWriter(*PROBE)
    except StreamError:
        return False
    return probe_slots(probe.name, probe.token)


class SlotWriter:
    """Writer of a segment of `count` slots. Safe to use from any thread.

    The kernel provides memory page by page at the first write, so unused slots cost nothing. The most recently freed
    slot is taken first: its pages already exist and are the most likely to be cached. Use NumPy to copy large data into
    a slot, because it lets other threads run in the meantime; a `memoryview` does not.

    Args:
        slot_size: size of a slot, bytes, at least 1; rounded up to whole pages.
        count: number of slots, at least 1.

    Attributes:
        name: path by which another process opens it, e.g. ``"/proc/123/fd/7"``.
        token: 16 random bytes, also stored in the segment. A reader compares them, because pids and descriptors are
            reused.
        slot_size: size of a slot, bytes, a multiple of the page size.
        count: number of slots.
        number: number of the segment in this process.

    Raises:
        StreamError: this system does not support such memory.
    """

    def __init__(self, slot_size: int, count: int) -> None:
        self.slot_size = slot_size + -slot_size % PAGE
        self.count = count
        self.token = os.urandom(_TOKEN_BYTES)
        head = _HEAD.pack(_MAGIC, _VERSION, PAGE, self.token, self.slot_size, count)
        self._file, whole = _make_memory(head, PAGE + self.slot_size * count)
        self._slots: Array | None = np.frombuffer(whole, np.uint8, offset=PAGE).reshape(count, self.slot_size)
        self.name = f"{_PROC}/{os.getpid()}/fd/{self._file}"
        self.number = next(_numbers)
        self._free = list(range(count - 1, -1, -1))  # most recently freed last

    @property
    def free(self) -> int:
        """Number of free slots."""
        return len(self._free)

    def take(self) -> tuple[int, Array] | None:
        """Take a free slot, and return its number and its memory; None if there is none, or the segment is closed.

        The memory, uint8 ``[slot_size]``, is writable and also stays valid after `close`. The slot is free again when
        the array and all its views are gone.
        """
        slots = self._slots
        if slots is None:
            return None
        try:
            slot = self._free.pop()
        except IndexError:
            return None
        return slot, leased(slots[slot], lambda: self._free.append(slot))  # the segment lives as long as its slots

    def close(self) -> None:
        """Release the segment; further calls have no effect.

        Readers and views keep their memory as long as they exist.
        """
        if self._slots is not None:
            self._slots = None  # not unmapped here, because views may still exist
            os.close(self._file)

    def __del__(self) -> None:
        if hasattr(self, "_free"):  # otherwise the construction failed
            self.close()


class SlotReader:
    """Reader of a segment of another process or of this process.

    Args:
        name: the writer's `name`.
        token: the writer's `token`.
        slot_size: the writer's `slot_size`, bytes.
        count: the writer's `count`.
        on_release: callback with the slot, called once per array returned by `memory`, when that array and all its
            views are gone. It runs in the thread that released the last view, even after `close` or during a garbage
            collection. It must be short and must not block.

    Raises:
        StreamError: the segment is not the expected one, or cannot be opened: its process has ended, belongs to another
            user or runs on another host. The message names the reason.
    """

    def __init__(
        self, name: str, token: bytes, slot_size: int, count: int, on_release: Callable[[int], None] | None = None
    ) -> None:
        self.name = name
        self.slot_size = slot_size
        self.count = count
        self._on_release = on_release
        self._whole = _map_memory(name, token, slot_size, count)

    def memory(self, slot: int, length: int) -> Array:
        """Return the first `length` bytes of a slot: uint8 [length], read-only, 64-byte aligned and not copied.

        The array stays valid without this reader and without the writer's process. It stays unchanged while the writer
        holds the slot for it.

        Raises:
            WireError: there is no such slot, or it is shorter than `length`.
        """
        if not (0 <= slot < self.count and 0 <= length <= self.slot_size):
            got = f"got {length} bytes in slot {slot}, expected at most {self.count} slots of {self.slot_size} bytes"
            raise WireError(f"shared memory {self.name}: {got}")
        start = PAGE + slot * self.slot_size
        release = None if self._on_release is None else partial(self._on_release, slot)
        return leased(self._whole[start : start + length], release)


PROBE = PAGE, 1
"""Slot size and count of the segment with which another process checks whether it can read this process's slots."""


def probe_slots(name: str, token: bytes) -> bool:
    """Return whether this process can read the slots of the process that created a `SlotWriter` of `PROBE`."""
    try:
        SlotReader(name, token, *PROBE)
    except StreamError:
        return False
    return True


def _make_memory(head: bytes, size: int) -> tuple[int, mmap.mmap]:
    """Create memory of `size` bytes that starts with `head`; return its descriptor and the memory, mapped writable."""
    if not _has_proc():
        raise StreamError(f"shared memory needs Linux with {_PROC}, got {sys.platform}")
    import fcntl

    file = -1
    try:
        file = os.memfd_create("sensorium", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(file, size)
        whole = mmap.mmap(file, size)
        whole[: len(head)] = head
        # The size is now permanent, and further writable mappings are impossible.
        fcntl.fcntl(file, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_SEAL | _F_SEAL_FUTURE_WRITE)
    except OSError as error:
        if file >= 0:
            os.close(file)
        raise StreamError(f"cannot allocate {size} bytes of shared memory: {error}") from error
    return file, whole


def _has_proc() -> bool:
    return sys.platform == "linux" and os.path.isdir(f"{_PROC}/self/fd")


def _map_memory(name: str, token: bytes, slot_size: int, count: int) -> Array:
    """Return the whole segment of that name, mapped read-only, after checking its identity."""

    def unreadable(why: str) -> StreamError:
        return StreamError(f"cannot read the shared memory {name!r}: {why}")

    if not _NAME.fullmatch(name):
        raise unreadable("expected a name such as /proc/<pid>/fd/<n>")
    if not _has_proc():
        raise unreadable(f"this process has no {_PROC}")
    import fcntl

    path, size = _PROC + name.removeprefix("/proc"), PAGE + slot_size * count
    file = -1
    try:
        # Checked before opening, because opening a device or pipe that reused the number may have side effects.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise unreadable("the descriptor now belongs to another kind of file")
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        if (found := os.fstat(file).st_size) != size:
            raise unreadable(f"got {found} bytes, expected {size}")
        if not fcntl.fcntl(file, _F_GET_SEALS) & _F_SEAL_SHRINK:
            raise unreadable("its size is not sealed")
        whole = mmap.mmap(file, size, access=mmap.ACCESS_READ)
    except StreamError:
        raise
    except OSError as error:
        why = "Its process has ended or closed it, or belongs to another user, host or container."
        raise unreadable(f"{error.strerror}. {why}") from error
    finally:
        if file >= 0:
            os.close(file)
    head = _HEAD.unpack_from(whole)
    if head != (_MAGIC, _VERSION, PAGE, bytes(token), slot_size, count):
        whole.close()  # the error's traceback would keep it open
        got = f"got {head[5]} slots of {head[4]} bytes, expected {count} of {slot_size}"
        raise unreadable(f"its token, version or layout differs ({got})")
    return np.frombuffer(whole, np.uint8)
