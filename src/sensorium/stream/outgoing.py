"""What streamed sensors send: messages with the frame, the time and the place at which they were measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from sensorium.errors import RegistrationError, shown
from sensorium.readings import Array
from sensorium.wire.buffers import Buffer
from sensorium.wire.serializers import Serializer
from sensorium.wire.world import Snapshot

Serialised: TypeAlias = "Buffer | bytes | bytearray | memoryview | Array"
"""What a serializer may return."""


@dataclass(frozen=True, slots=True)
class Context:
    """The frame in progress: the state of the bodies, and when it was taken.

    Attributes:
        snapshot: the bodies at this frame.
        wall_ns: wall clock of the frame, ns since 1970.
    """

    snapshot: Snapshot
    wall_ns: int


@dataclass(frozen=True, slots=True)
class Moment:
    """When, and from where, something was measured.

    Attributes:
        frame: the frame.
        tick: its physics tick.
        time_ns: its simulation time, ns.
        wall_ns: its wall clock, ns since 1970.
        first_env: the first of the environments that `poses` has.
        poses: float32 ``[env, 1, 7]``, where the sensor was in the world: position in m and orientation wxyz.
    """

    frame: int
    tick: int
    time_ns: int
    wall_ns: int
    first_env: int
    poses: Array


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message of a streamed sensor, ready for the wire.

    Attributes:
        type_id: which serializer reads it.
        body: its bytes, read-only.
        is_lasting: whether these bytes stay as they are as long as somebody looks at them: they need no copy then.
            Those of a buffer go back to the pool with the last view.
        moment: the frame it belongs to; `poses` has the environments of this message.
        first_env: the first environment it is about.
        num_envs: how many.
    """

    type_id: int
    body: memoryview
    moment: Moment
    first_env: int
    num_envs: int
    is_lasting: bool = False


@dataclass(frozen=True, slots=True)
class Bundle:
    """Many small messages of a streamed sensor, of one frame.

    Attributes:
        type_id: which serializer reads them.
        items: body, first environment and number of environments of each.
        moment: the frame they belong to; `poses` has all environments of the sensor.
    """

    type_id: int
    items: list[tuple[bytes, int, int]]
    moment: Moment


def as_bytes(body: Serialised, serializer: type[Serializer]) -> tuple[memoryview, bool]:
    """Return what a serializer made as read-only bytes, and whether nobody writes to them any more.

    Raises:
        RegistrationError: it made what are no bytes.
    """
    if isinstance(body, bytes):
        return memoryview(body), True
    if isinstance(body, Buffer):
        return body.pop().view.toreadonly(), True  # moved out: what the author does to the buffer next is his own
    if isinstance(body, np.ndarray) and not body.dtype.hasobject:
        body = np.ascontiguousarray(body, body.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data
    elif not isinstance(body, (bytearray, memoryview)):
        what = f"{serializer.__name__}.serialize returned {shown(body)}"
        raise RegistrationError(f"{what}, expected a Buffer, bytes or an array of numbers")
    return _flat(memoryview(body).toreadonly()), False


def _flat(view: memoryview) -> memoryview:
    """Return the same bytes, as bytes."""
    return view if view.format == "B" and view.ndim == 1 else memoryview(view.tobytes())
