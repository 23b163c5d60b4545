"""Header of a data message: 128 bytes that describe its contents.

A message consists of the header, the poses of the sensor, float32 `[env, mount, 7]` (m, quaternion wxyz), and the body
at the next multiple of 64 bytes. All numbers are little endian. The message is in one piece of memory, or in two: the
header with the poses, and the body.

    0   magic       4 bytes b"SNSR"
    4   version     u16
    6   flags       u16
    8   type_id     u64     type of the data; selects the serializer
    16  stream      u32
    20  rows        u32     rows of ragged fields
    24  seq         u64     number of the message in its stream
    32  frame       u64     number of the frame on the server
    40  tick        i64     physics tick of the frame
    48  time_ns     i64     simulation time of the frame, ns
    56  capture_ns  i64     simulation time of the capture shown by the first env, ns
    64  wall_ns     i64     wall clock at the capture, ns since 1970
    72  first_env   u32
    76  num_envs    u32
    80  poses       u32     poses per env; 0 for a sensor without a pose
    84  4 zero bytes
    88  body_bytes  u64
    96  32 zero bytes
"""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from sensorium.errors import WireError

MAGIC = b"SNSR"
VERSION = 1
HEADER_BYTES = 128
ALIGNMENT = 64
"""Alignment in bytes of the poses, the body and every block in the body of the default serializer."""
POSE_BYTES = 28

TRUTH = 1
"""Flag: the body also contains the ground truth."""
EVENTS = 2
"""Flag: a message of a stream of events."""
BUNDLE = 4
"""Flag: the body contains many small messages of one frame, see `data.split_bundle`."""
_KNOWN_FLAGS = TRUTH | EVENTS | BUNDLE

_STRUCT = struct.Struct("<4sHHQIIQQqqqqIII4xQ32x")
_unpack, _pack = _STRUCT.unpack_from, _STRUCT.pack


@lru_cache(1024)
def type_id(name: str) -> int:
    """Return the number of a data type in headers: the first 8 bytes of the blake2b hash of its name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def aligned(size: int) -> int:
    """Return the smallest multiple of 64 that is at least `size`."""
    return (size + ALIGNMENT - 1) & -ALIGNMENT


def body_offset(num_envs: int, poses: int) -> int:
    """Return the start of the body in a message with this number of envs and of poses per env, bytes."""
    return HEADER_BYTES + ((num_envs * poses * POSE_BYTES + ALIGNMENT - 1) & -ALIGNMENT)


class Header(NamedTuple):
    """Contents of the 128-byte header, see the module. All fields are integers: ns, bytes or counts."""

    flags: int = 0
    type_id: int = 0
    stream: int = 0
    rows: int = 0
    seq: int = 0
    frame: int = 0
    tick: int = 0
    time_ns: int = 0
    capture_ns: int = 0
    wall_ns: int = 0
    first_env: int = 0
    num_envs: int = 0
    poses: int = 0
    body_bytes: int = 0

    @property
    def body_offset(self) -> int:
        """Start of the body relative to the header's first byte, bytes."""
        return body_offset(self.num_envs, self.poses)

    def pack(self) -> bytes:
        """Return the 128 bytes of the header.

        Raises:
            WireError: a number does not fit.
        """
        try:
            return _pack(MAGIC, VERSION, *self)
        except struct.error as error:
            raise WireError(f"{self} does not fit into a header ({error}).") from None

    @classmethod
    def peek(cls, memory: Any) -> Header:
        """Return the header of a message written by this process, without any check."""
        return cls._make(_unpack(memory)[2:])

    @classmethod
    def read(cls, memory: memoryview, body_bytes: int | None = None) -> Header:
        """Return the header of a message, with every length checked.

        Args:
            memory: the whole message, as bytes; or only header and poses, if the body is separate.
            body_bytes: length of the separate body; None if `memory` is the whole message.

        Raises:
            WireError: the bytes are not a sensorium message, have another version, or differ in length from their
                header.
        """
        size = len(memory)
        if size < HEADER_BYTES:
            raise WireError(f"a message has {size} bytes, which is shorter than a header of {HEADER_BYTES} bytes.")
        values = _unpack(memory)
        if values[0] != MAGIC:
            raise WireError(f"a message starts with {values[0]!r} instead of {MAGIC!r}, so it is not from sensorium.")
        if values[1] != VERSION:
            raise WireError(
                f"a message has the header version {values[1]}, but this side reads version {VERSION}. Install the "
                "same version of sensorium on both sides."
            )
        header = cls._make(values[2:])
        flags, stated = header.flags, header.body_bytes
        if flags & ~_KNOWN_FLAGS:
            raise WireError(f"a message has the flags {flags:#x}, of which {flags & ~_KNOWN_FLAGS:#x} are unknown.")
        start = body_offset(header.num_envs, header.poses)
        expected, got = (start + stated, size) if body_bytes is None else (start, size)
        if got != expected or (body_bytes is not None and body_bytes != stated):
            whole = f"{size} bytes" if body_bytes is None else f"{size} and {body_bytes} bytes"
            raise WireError(
                f"a message has {whole}, but its header states {header.num_envs} envs, {header.poses} poses of each, "
                f"and a body of {stated} bytes."
            )
        return header


def begin_message(memory: Any, header: Header, poses: Any = 0.0) -> memoryview:
    """Write header and poses of a message, and return the writable memory of its body.

    Args:
        memory: the whole message, or only header and poses if the body is separate; aligned to 64 bytes.
        header: contents of the header.
        poses: float32 `[env, mount, 7]` (m, quaternion wxyz).

    Raises:
        WireError: a number does not fit, or the memory is too small.
    """
    view, start = memoryview(memory), body_offset(header.num_envs, header.poses)
    if len(view) < start:
        raise WireError(f"the header and the poses need {start} bytes of memory, got {len(view)}.")
    view[:start] = header.pack().ljust(start, b"\0")
    np.ndarray((header.num_envs, header.poses, 7), "<f4", view, HEADER_BYTES)[...] = poses
    return view[start:]
