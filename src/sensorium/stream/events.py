"""Messages of event sensors with custom types: one message per environment, or per event.

A serializer with a `kind` converts the readings of that kind of sensor. Listeners import this module without the
dependencies of the sensors.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sensorium.errors import WireError
from sensorium.readings import Array, Reading
from sensorium.wire.data import ArrayData, Item, RawData
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

    deserialize = staticmethod(SafeDistanceEvent)


def _item(name: str, kind: type[float]) -> Any:
    """Return a property with a number of the only row."""
    return property(lambda data: kind(data.array[name][0]))


class ObstacleEvent(ArrayData):
    """The nearest obstacle ahead."""

    dtype = np.dtype([("other_actor", "<i4"), ("distance", "<f4")])

    other_actor: int = _item("other_actor", int)
    """Id of the body in the way; -1 for the world."""
    distance: float = _item("distance", float)
    """Way to the obstacle, m."""


class ObstacleSerializer(Serializer):
    """Serializer of `ObstacleEvent`: one message per environment and mount with an obstacle."""

    type_name: ClassVar[str] = "sensorium.ObstacleEvent/1"
    kind: ClassVar[str] = "obstacle"

    @staticmethod
    def serialize(reading: Reading, since: int) -> list[Item]:
        """Return the obstacle of each environment that has any."""
        distance, ids = (reading[name].reshape(len(reading.env_ids), -1) for name in ("distance", "body"))
        rows = np.empty(distance.shape, ObstacleEvent.dtype)
        rows["other_actor"], rows["distance"] = ids, distance
        envs = reading.env_ids.tolist()
        return [(rows[k, mount].tobytes(), envs[k], 1) for k, mount in np.argwhere(np.isfinite(distance)).tolist()]

    deserialize = staticmethod(ObstacleEvent)


PHASES = {1: "begin", 2: "persist", 3: "end"}
"""Numbers of the phases, as in `CollisionEventsData.phase`."""


class CollisionEvent(ArrayData):
    """Data of one collision."""

    dtype = np.dtype(
        [
            ("actor", "<i4"),
            ("other_actor", "<i4"),
            ("phase", "<i4"),
            ("normal_impulse", "<f4", 3),
            ("pos_w", "<f4", 3),
            ("duration", "<f4"),
            ("peak_force", "<f4"),
            ("tick", "<i8"),
        ]
    )

    def __init__(self, raw: RawData) -> None:
        super().__init__(raw)
        if len(self.array) != 1:
            raise WireError(f"a collision of stream {raw.info.name!r} has {len(self.array)} rows, expected one")

    actor: int = _item("actor", int)
    """Id of the body that the sensor is attached to."""
    other_actor: int = _item("other_actor", int)
    """Id of the touched body; -1 for the world."""

    @property
    def phase(self) -> str:
        """``begin``, ``persist`` (the contact existed before this frame's control step) or ``end``."""
        return PHASES.get(int(self.array["phase"][0]), "unknown")

    @property
    def normal_impulse(self) -> Array:
        """Impulse on the owner, world, float32 [3], N s: of this control step; at the end, of the whole contact.

        It is the full impulse, including friction.
        """
        return self.array["normal_impulse"][0]  # type: ignore[no-any-return]

    @property
    def pos_w(self) -> Array:
        """Contact position, world, float32 [3], m: centre of the contacts, weighted by force."""
        return self.array["pos_w"][0]  # type: ignore[no-any-return]

    duration: float = _item("duration", float)
    """Duration of the contact so far, or in total at its end, s."""
    peak_force: float = _item("peak_force", float)
    """Largest net force of the contact so far, N."""
    event_tick: int = _item("tick", int)
    """Physics tick of the event; for ``persist`` the first tick of the control step."""


class CollisionSerializer(Serializer):
    """Serializer of `CollisionEvent`: one message per new row."""

    type_name: ClassVar[str] = "sensorium.CollisionEvent/1"
    kind: ClassVar[str] = "collision"
    at_step_end: ClassVar[bool] = True

    @staticmethod
    def serialize(reading: Reading, since: int) -> list[Item]:
        """Return the rows of the contacts that began, persisted or ended after a tick."""
        offsets = reading.offsets
        assert offsets is not None  # the sensor has ragged fields
        rows = np.empty(int(offsets[-1]), CollisionEvent.dtype)
        rows["actor"], rows["other_actor"] = reading["body_ids"].T
        rows["normal_impulse"] = reading["impulse_w"]
        for name in ("phase", "pos_w", "duration", "peak_force", "tick"):
            rows[name] = reading[name]
        envs = np.repeat(reading.env_ids, np.diff(offsets)).tolist()
        return [(rows[k].tobytes(), envs[k], 1) for k in np.flatnonzero(rows["tick"] > since).tolist()]

    deserialize = staticmethod(CollisionEvent)
