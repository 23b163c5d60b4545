"""Buffers whose memory is used again: what is sent every frame is allocated once.

A `Buffer` is a smart pointer to one piece of memory. Memory that a `BufferPool` gave out goes back to the pool by
itself, when the buffer and every view of it are gone, in whatever thread that happens; the next buffer has it then.
"""

from __future__ import annotations

import math
import sys
import weakref
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from sensorium.errors import ConfigError
from sensorium.readings import Array

ALIGNMENT = 64
"""Bytes. A buffer's first byte is at a multiple of it: a cache line, and the widest vector register."""

_COUNT = 8
_BYTES = 256 * 2**20


class _Memory(NamedTuple):
    """Allocated bytes, of which `capacity` from `address` on are used."""

    owner: Array
    address: int
    capacity: int

    @classmethod
    def allocate(cls, capacity: int) -> _Memory:
        owner = np.empty(capacity + ALIGNMENT - 1, np.uint8)
        address = int(owner.__array_interface__["data"][0])
        return cls(owner, address + -address % ALIGNMENT, capacity)


class _Lease:
    """What all views of one memory hold, directly or through each other: it dies with the last of them.

    NumPy makes arrays of it by `__array_interface__`, and keeps it as their base: a view of a view still holds it,
    which it would not with an array as base, for NumPy looks through those.
    """

    __slots__ = ("__array_interface__", "memory", "pool")

    def __init__(self, memory: _Memory, pool: weakref.ref[BufferPool] | None) -> None:
        self.memory = memory
        self.pool = pool
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (memory.capacity,),
            "data": (memory.address, False),
        }

    # Defaults, since the names of a module may be gone when the interpreter ends.
    def __del__(self, is_finalizing: Any = sys.is_finalizing) -> None:
        pool = None if self.pool is None or is_finalizing() else self.pool()
        if pool is not None:
            pool._give_back(self.memory)


class Buffer:
    """A smart pointer to contiguous memory: `size` bytes in use out of `capacity`.

    The memory starts at a multiple of 64 bytes. It is freed, or goes back to the pool that the buffer is from, when the
    buffer and all views of it are gone. A buffer belongs to one thread at a time.

    Args:
        size: bytes to begin with; 0 allocates nothing.

    Raises:
        ConfigError: `size` is no whole number of at least 0.
    """

    __slots__ = ("__weakref__", "_lease", "_pool", "_root", "_size")

    def __init__(self, size: int = 0) -> None:
        self._pool: weakref.ref[BufferPool] | None = None
        self._lease: _Lease | None = None
        self._root: Array | None = None
        self._size = 0
        self.reset(size)

    @property
    def size(self) -> int:
        """Bytes in use."""
        return self._size

    @property
    def capacity(self) -> int:
        """Bytes of the memory."""
        return 0 if self._lease is None else self._lease.memory.capacity

    def reset(self, size: int) -> None:
        """Make the buffer `size` bytes long; what they hold is undefined.

        Up to `capacity` the memory stays. Beyond, it is given up (it does not go back to a pool, where it would be too
        small the next time again) and `size` bytes are allocated anew.

        Raises:
            ConfigError: `size` is no whole number of at least 0.
        """
        if size.__class__ is not int or size < 0:
            raise ConfigError.single("Buffer", "size", size, "a whole number of bytes, at least 0")
        if size > self.capacity:
            self._give_up()
            self._take(_Memory.allocate(size))
        self._size = size

    def resize(self, size: int) -> None:
        """Make the buffer `size` bytes long and keep what it holds; bytes added are undefined.

        Raises:
            ConfigError: `size` is no whole number of at least 0.
        """
        before, kept = self._root, self._size
        self.reset(size)
        if self._root is not before and before is not None and self._root is not None:
            self._root[:kept] = before[:kept]

    def clear(self) -> None:
        """Make the buffer 0 bytes long; it keeps its memory."""
        self._size = 0

    def pop(self) -> Buffer:
        """Return a buffer with the memory moved out of this one, which is empty and without memory then."""
        moved = Buffer()
        moved._pool, moved._lease, moved._root, moved._size = self._pool, self._lease, self._root, self._size
        self._lease, self._root, self._size = None, None, 0
        return moved

    @property
    def view(self) -> memoryview:
        """The `size` bytes, to read and to write: format ``"B"``. It stays valid without the buffer."""
        whole = memoryview(bytearray()) if self._root is None else self._root.data
        return whole[: self._size]

    def array(self, dtype: DTypeLike, shape: int | tuple[int, ...] | None = None, offset: int = 0) -> Array:
        """Return the bytes from `offset` on as a writable array that views them. It stays valid without the buffer.

        Args:
            dtype: type of the elements, may be structured; no Python objects.
            shape: shape of the array, in C order; None: one axis, as many whole elements as there are.
            offset: bytes left out at the beginning.

        Raises:
            ConfigError: the array would not lie within the buffer, or has elements that are no plain bytes.
        """
        kind = np.dtype(dtype)
        if kind.hasobject or not kind.itemsize:
            raise ConfigError.single("Buffer.array", "dtype", kind, "elements of plain bytes of a known number")
        if not 0 <= offset <= self._size:
            raise ConfigError.single("Buffer.array", "offset", offset, f"0 .. {self._size}, the buffer's size")
        if shape is None:
            shape = (self._size - offset) // kind.itemsize
        shape = shape if isinstance(shape, tuple) else (shape,)
        if min(shape, default=0) < 0 or offset + math.prod(shape) * kind.itemsize > self._size:
            expected = f"at most {self._size - offset} bytes from offset {offset} on ({kind.itemsize} per element)"
            raise ConfigError.single("Buffer.array", "shape", shape, expected, "Call reset(size) before.")
        if self._root is None:
            return np.empty(shape, kind)
        return np.ndarray(shape, kind, buffer=self._root, offset=offset)

    def copy_from(self, source: Any) -> None:
        """Make the buffer as long as `source` and copy it.

        Args:
            source: an array of any shape and strides (its elements come in C order), or anything with the buffer
                protocol and contiguous bytes: `bytes`, `bytearray`, `memoryview`, another `Buffer`.
        """
        if isinstance(source, Buffer):
            source = source.view
        data = source if isinstance(source, np.ndarray) else np.frombuffer(source, np.uint8)
        self.reset(data.nbytes)
        if data.nbytes:
            self.array(data.dtype, data.shape)[...] = data

    def _take(self, memory: _Memory) -> None:
        self._lease = _Lease(memory, self._pool)
        self._root = np.asarray(self._lease)

    def _give_up(self) -> None:
        """Let go of the memory, so that it is freed with its last view."""
        if self._lease is not None:
            self._lease.pool = None
        self._lease, self._root, self._size = None, None, 0

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"Buffer(size={self._size}, capacity={self.capacity})"


class BufferPool:
    """Keeps the memory of buffers that are no longer used for those to come. Safe to use from any thread.

    The memory that came back last is given out first: it is the likeliest to be in the processor's caches. Where the
    pool holds too much, what came back first is freed. A pool may die before its buffers; their memory is freed then.

    Args:
        max_count: how many pieces of memory it keeps at most.
        max_bytes: how many bytes it keeps at most, all pieces together.

    Attributes:
        hits: buffers given out with memory.
        misses: buffers given out without, as the pool was empty.
        returned: pieces of memory that came back.
        discarded: pieces of memory that came back and were freed, then or later, since the pool was full.

    Raises:
        ConfigError: a limit is below 0.
    """

    def __init__(self, max_count: int = _COUNT, max_bytes: int = _BYTES) -> None:
        for field, value in (("max_count", max_count), ("max_bytes", max_bytes)):
            if value < 0:
                raise ConfigError.single("BufferPool", field, value, "at least 0", "0 keeps nothing.")
        self.max_count = max_count
        self.max_bytes = max_bytes
        self.hits = 0
        self.misses = 0
        self.returned = 0
        self.discarded = 0
        self._memories: list[_Memory] = []  # last returned last
        # Re-entrant: the garbage collector may give a buffer back in the midst of any call, also of one of these.
        self._lock = RLock()
        self._self = weakref.ref(self)

    @property
    def in_pool(self) -> int:
        """Pieces of memory in the pool."""
        return len(self._memories)

    @property
    def bytes_in_pool(self) -> int:
        """Bytes of memory in the pool."""
        return sum(memory.capacity for memory in tuple(self._memories))

    def pop(self) -> Buffer:
        """Return a buffer of size 0: with the memory that came back last, or without memory if there is none."""
        buffer = Buffer()
        buffer._pool = self._self
        with self._lock:
            try:
                memory = self._memories.pop()
            except IndexError:
                self.misses += 1
                return buffer
            self.hits += 1
        buffer._take(memory)
        return buffer

    def clear(self) -> None:
        """Free the memory in the pool."""
        with self._lock:
            self._memories.clear()

    def _give_back(self, memory: _Memory) -> None:
        with self._lock:
            self.returned += 1
            if memory.capacity > self.max_bytes:
                self.discarded += 1
                return
            # First in, then out what is too much: right also where another memory comes back in between.
            self._memories.append(memory)
            while self._memories and (self.in_pool > self.max_count or self.bytes_in_pool > self.max_bytes):
                del self._memories[0]
                self.discarded += 1

    def __repr__(self) -> str:
        return f"BufferPool({self.in_pool} pieces, {self.bytes_in_pool} bytes, {self.hits} hits, {self.misses} misses)"
