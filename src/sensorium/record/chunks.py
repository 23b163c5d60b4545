"""Chunks of messages that are collected for a file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from sensorium.readings import Array


@dataclass(slots=True)
class Part:
    """Consecutive records of a chunk.

    Attributes:
        order: place among the parts of its chunk; those of the same order are written in the order of their addition.
        buffers: consecutive buffers, which must not change afterwards.
        index: channel, log time (ns) and relative place of each message, int64 `[message, 3]`.
        about: data of the owner, see `McapWriter.collect`.
    """

    order: int
    buffers: Sequence[Any] = ()
    index: Array = field(default_factory=lambda: np.empty((0, 3), np.int64))
    about: Any = None

    def complete(self) -> None:
        """Complete `buffers` and `index`; called by a thread of the writer, before it reads them."""


class State(IntEnum):
    """What happens to a chunk."""

    WAITS, TAKEN, PACKED, WRITING = range(4)


@dataclass(slots=True, eq=False)
class Chunk:
    """Messages that are not written yet. An interrupted caller leaves it as it was, or with one more part."""

    is_open: bool = True
    """Whether messages can be added."""
    state: State = State.WAITS
    opened: float = field(default_factory=time.monotonic)
    """Time at which it was opened, s."""
    parts: list[Part] = field(default_factory=list)
    nbytes: int = 0
    buffers: list[Any] = field(default_factory=list)
    """Contents for the file, once it is packed."""
    index: Array = field(default_factory=lambda: np.empty((0, 3), np.int64))
    """Channel, log time (ns) and place of each message, int64 `[message, 3]`, once it is packed."""
    compression: str = ""
    crc: int = 0
    """Checksum of the buffers before compression."""
    error: Exception | None = None
    """Reason why it cannot be written."""

    def add_part(self, part: Part, nbytes: int = 0) -> Chunk:
        """Add records of a size, bytes; see `McapWriter.add_part`."""
        self.parts.append(part)
        self.nbytes += nbytes
        return self

    def grow(self, _: Chunk, nbytes: int) -> None:
        """Note that a part has grown; see `McapWriter.grow`."""
        self.nbytes += nbytes
