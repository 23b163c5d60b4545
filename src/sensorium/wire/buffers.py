"""Buffers with reusable memory: memory for data sent every frame is allocated only once.

A `Buffer` is a smart pointer to a block of memory. Memory from a `BufferPool` returns to the pool automatically when
the buffer and all its views are gone, in any thread. The next buffer then reuses it.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable
from functools import partial
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from sensorium.errors import ConfigError
from sensorium.readings import Array
from sensorium.wire.data import empty

MAX_BLOCKS = 8
"""Maximum number of blocks that a pool keeps."""
MAX_BYTES = 256 * 2**20
"""Maximum total size of these blocks, bytes."""


class _Lease:
    """Object held, directly or indirectly, by all views of a block of memory; it is destroyed with the last view.

    NumPy makes arrays from its `__array_interface__` and keeps it as their base, so a view of a view still holds it. An
    array as base would not work, because NumPy skips intermediate arrays.
    """

    __slots__ = ("__array_interface__", "memory", "release")

    def __init__(self, memory: Array, release: Callable[[], object] | None) -> None:
        self.memory, self.release = memory, release
        self.__array_interface__ = memory.__array_interface__

    # The default argument is needed because module globals may be gone at interpreter shutdown.
    def __del__(self, is_finalizing: Any = sys.is_finalizing) -> None:
        if self.release is not None and not is_finalizing():
            self.release()


def leased(memory: Array, release: Callable[[], object] | None) -> Array:
    """Return a view of memory.

    Args:
        memory: array of bytes.
        release: function called once, when the returned array and all its views are gone. It runs in the thread that
            released the last view.
    """
    lease: Any = _Lease(memory, release)
    return np.asarray(lease)


class Buffer:
    """Smart pointer to contiguous memory: `size` bytes in use out of `capacity`.

    The memory starts at a multiple of 64 bytes. When the buffer and all its views are gone, it is freed or returned to
    the pool of the buffer. A buffer belongs to one thread at a time.

    Args:
        size: initial size, bytes; 0 allocates nothing.

    Raises:
        ConfigError: `size` is not an integer of at least 0.
    """

    __slots__ = ("__weakref__", "_pool", "_root", "_size")

    def __init__(self, size: int = 0) -> None:
        self._pool: weakref.ref[BufferPool] | None = None
        self._root: Array | None = None
        self._size = 0
        if size:
            self.reset(size)

    @property
    def size(self) -> int:
        """Number of bytes in use."""
        return self._size

    @property
    def capacity(self) -> int:
        """Number of bytes allocated."""
        return 0 if self._root is None else len(self._root)

    def reset(self, size: int) -> None:
        """Set the size to `size` bytes, with undefined contents.

        Up to `capacity`, the memory is kept. Beyond it, `size` bytes are newly allocated. The old memory is freed
        instead of returning to a pool, where it would be too small again the next time.

        Raises:
            ConfigError: `size` is not an integer of at least 0.
        """
        if size.__class__ is not int or size < 0:
            raise ConfigError.single("Buffer", "size", size, "a whole number of bytes, at least 0")
        if self._root is None or size > len(self._root):
            if self._root is not None:
                lease: Any = self._root.base
                lease.release = None  # the old memory is freed with its last view
            self._take(empty(size))
        self._size = size

    def resize(self, size: int) -> None:
        """Set the size to `size` bytes and keep the contents; added bytes are undefined.

        Raises:
            ConfigError: `size` is not an integer of at least 0.
        """
        before, kept = self._root, self._size
        self.reset(size)
        if self._root is not before and before is not None and self._root is not None:
            self._root[:kept] = before[:kept]

    def clear(self) -> None:
        """Set the size to 0 bytes and keep the memory."""
        self._size = 0

    def pop(self) -> Buffer:
        """Move the memory to a new buffer and return it; this buffer is then empty and has no memory."""
        moved = Buffer()
        moved._pool, moved._root, moved._size = self._pool, self._root, self._size
        self._root, self._size = None, 0
        return moved

    @property
    def view(self) -> memoryview:
        """The `size` bytes, readable and writable, format ``"B"``. The view stays valid without the buffer."""
        whole = memoryview(bytearray()) if self._root is None else self._root.data
        return whole[: self._size]

    def array(self, dtype: DTypeLike, shape: int | tuple[int, ...] | None = None, offset: int = 0) -> Array:
        """Return the bytes from `offset` on as a writable array view. It stays valid without the buffer.

        Args:
            dtype: type of the elements, may be structured; no Python objects.
            shape: shape of the array, in C order; None for one axis with as many whole elements as fit.
            offset: number of bytes skipped at the start.

        Raises:
            ConfigError: the array would not lie within the buffer, or its elements are not plain bytes.
        """
        kind = np.dtype(dtype)
        if kind.hasobject or not kind.itemsize:
            raise ConfigError.single("Buffer.array", "dtype", kind, "a type of plain bytes with a fixed size")
        if not 0 <= offset <= self._size:
            raise ConfigError.single("Buffer.array", "offset", offset, f"0 .. {self._size}, the buffer's size")
        if shape is None:
            shape = (self._size - offset) // kind.itemsize
        shape = shape if isinstance(shape, tuple) else (shape,)
        if min(shape, default=0) < 0 or offset + math.prod(shape) * kind.itemsize > self._size:
            expected = f"at most {self._size - offset} bytes from offset {offset} on ({kind.itemsize} per element)"
            raise ConfigError.single("Buffer.array", "shape", shape, expected, "Call reset(size) first.")
        if self._root is None:
            return np.empty(shape, kind)
        return np.ndarray(shape, kind, buffer=self._root, offset=offset)

    def copy_from(self, source: Any) -> None:
        """Copy `source` into the buffer and set the size to match.

        Args:
            source: an array of any shape and strides (elements are copied in C order), or any object with the buffer
                protocol and contiguous bytes: `bytes`, `bytearray`, `memoryview`, another `Buffer`.
        """
        if isinstance(source, Buffer):
            source = source.view
        data = source if isinstance(source, np.ndarray) else np.frombuffer(source, np.uint8)
        self.reset(data.nbytes)
        if data.nbytes:
            self.array(data.dtype, data.shape)[...] = data

    def _take(self, memory: Array) -> None:
        self._root = leased(memory, None if self._pool is None else partial(_give_back, self._pool, memory))

    def __len__(self) -> int:
        return self._size


class BufferPool:
    """Pool that keeps the memory of released buffers for new ones. Safe to use from any thread.

    The most recently returned memory is reused first, because it is the most likely to be in the processor's caches. If
    the pool exceeds `MAX_BLOCKS` or `MAX_BYTES`, the memory returned earliest is freed. A pool may be destroyed before
    its buffers; their memory is then freed.
    """

    def __init__(self) -> None:
        self._memories: list[Array] = []  # most recently returned last
        # Re-entrant: the garbage collector may return a buffer during any call, including the calls of this class.
        self._lock = RLock()
        self._self = weakref.ref(self)

    @property
    def in_pool(self) -> int:
        """Number of blocks of memory in the pool."""
        return len(self._memories)

    def lend(self, size: int) -> Array:
        """Return memory of `size` bytes, uint8 ``[size]``, which returns to the pool with its last view."""
        with self._lock:
            memory = self._memories.pop() if self._memories else None
        if memory is None or len(memory) < size:
            memory = empty(size)
        return leased(memory, partial(_give_back, self._self, memory))[:size]

    def pop(self, size: int = 0) -> Buffer:
        """Return a buffer with the most recently returned memory; it has none if the pool is empty.

        Args:
            size: size of the buffer, bytes; see `Buffer.reset`.
        """
        buffer = Buffer()
        buffer._pool = self._self
        with self._lock:
            memory = self._memories.pop() if self._memories else None
        if memory is not None:
            buffer._take(memory)
        if size:
            buffer.reset(size)
        return buffer

    def give_back(self, memory: Array) -> None:
        """Keep a block of memory within the limits."""
        with self._lock:
            if len(memory) > MAX_BYTES:
                return
            # The block is added before the excess is removed: correct even if another block is returned in between.
            self._memories.append(memory)
            while len(self._memories) > MAX_BLOCKS or sum(map(len, tuple(self._memories))) > MAX_BYTES:
                del self._memories[0]


def _give_back(pool: weakref.ref[BufferPool], memory: Array) -> None:
    """Return memory to its pool, if the pool still exists."""
    if (there := pool()) is not None:
        there.give_back(memory)
