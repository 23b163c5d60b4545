"""Messages of event sensors with types of their own: one message per environment, or per event.

A serializer with a `kind` converts the readings of that kind of sensor. Listeners import this module without the
dependencies of the sensors.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sensorium.readings import Reading
from sensorium.wire.bundles import Item
from sensorium.wire.data import ArrayData
from sensorium.wire.raw_data import RawData
from sensorium.wire.serializers import Serializer


class SafeDistanceEvent(ArrayData):
    """Ids of the bodies inside the box, ascending; `client.bodies[id]` returns the body."""

    dtype = np.dtype("<u4")


class SafeDistanceSerializer(Serializer):
    """Serializer of `SafeDistanceEvent`: one message per environment with bodies inside the box."""

    type_name: ClassVar[str] = "sensorium.SafeDistanceEvent/1"
    kind: ClassVar[str] = "safe_distance"

    @staticmethod
    def serialize(reading: Reading, since: int) -> list[Item]:
        """Return the ids of the bodies inside the box of each environment that has any."""
        ids, rows = reading["body"].astype("<u4"), map(reading.rows, range(len(reading.env_ids)))
        envs = zip(reading.env_ids.tolist(), rows, strict=True)
        return [(ids[its].tobytes(), env, 1) for env, its in envs if its.stop > its.start]

    @staticmethod
    def deserialize(raw: RawData) -> SafeDistanceEvent:
        """Return the event in a message."""
        return SafeDistanceEvent(raw)
