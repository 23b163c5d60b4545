"""Messages of streamed sensors, with frame, time and pose of their measurement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from sensorium.errors import RegistrationError, shown
from sensorium.readings import Array
from sensorium.wire.buffers import Buffer
from sensorium.wire.bundles import Item
from sensorium.wire.serializers import Serializer

Serialised: TypeAlias = "Buffer | bytes | bytearray | memoryview | Array"
"""Types that a serializer may return."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Time and pose of a measurement.

    Attributes:
        frame: the frame.
        tick: its physics tick.
        time_ns: its simulation time, ns.
        wall_ns: its wall clock, ns since 1970.
        first_env: first environment in `poses`.
        poses: pose of the sensor in the world, float32 ``[env, 1, 7]``: position in m and orientation wxyz.
        age_ns: age of the data at that time, ns.
    """

    frame: int
    tick: int
    time_ns: int
    wall_ns: int
    first_env: int
    poses: Array
    age_ns: int = 0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message of a streamed sensor, or many small ones of one frame, ready to send.

    Attributes:
        type_id: number of their data type, which selects the serializer.
        items: body, first environment and number of environments of each; bodies are read-only.
        moment: frame of the messages; `poses` has all environments of the sensor.
        is_lasting: whether the bytes never change while a view of them exists, so that no copy is needed. Bytes of a
            buffer return to the pool with the last view.
    """

    type_id: int
    items: list[Item]
    moment: Moment
    is_lasting: bool = True


def as_bytes(body: Serialised, serializer: type[Serializer]) -> tuple[memoryview, bool]:
    """Return the result of a serializer as read-only bytes, and whether they can no longer change.

    Raises:
        RegistrationError: the result does not consist of bytes.
    """
    if isinstance(body, bytes):
        return memoryview(body), True
    if isinstance(body, Buffer):
        return body.pop().view.toreadonly(), True  # moved out: later changes to the author's buffer have no effect
    if isinstance(body, np.ndarray) and not body.dtype.hasobject:
        body = np.ascontiguousarray(body, body.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data
    elif not isinstance(body, (bytearray, memoryview)):
        what = f"{serializer.__name__}.serialize returned {shown(body)}"
        raise RegistrationError(f"{what}, expected a Buffer, bytes or an array of numbers")
    view = memoryview(body).toreadonly()
    return view if view.format == "B" and view.ndim == 1 else memoryview(view.tobytes()), False
