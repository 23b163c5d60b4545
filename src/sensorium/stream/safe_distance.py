"""Safe distance: the bodies inside a box around the body that the sensor is attached to.

The box is given in the sensor's frame: x forward, y left, z up. The distances are f to the front, b to the back and l
to each side. The centre is at x = (f - b)/2, y = z = 0. The half-extents are ((f + b)/2, l, 0) plus those of the
owner's bounding box, which are added without rotation. A body is inside if its own bounding box, which rotates with it,
overlaps or touches this box. A body without shapes has no bounding box, so it is never inside.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import numpy as np

from sensorium.errors import ConfigError, Fault, SelectionError, listed
from sensorium.readings import Array
from sensorium.stream.geometry import boxes_overlap, matrices, rotated
from sensorium.stream.streamed import StreamedSensor
from sensorium.wire.attributes import ActorDescription, Attribute, SensorDefinition, make_generic_sensor_definition
from sensorium.wire.data import ArrayData
from sensorium.wire.owner import Owner
from sensorium.wire.raw_data import RawData
from sensorium.wire.serializers import Serializer
from sensorium.wire.world import Snapshot

FRONT, BACK, LATERAL = 1.0, 0.5, 0.5
"""Default distances, m."""


class SafeDistanceEvent(ArrayData):
    """Ids of the bodies inside the box, ascending; `client.bodies[id]` returns the body."""

    dtype = np.dtype("<u4")


class SafeDistanceSerializer(Serializer):
    """Serializer of a `SafeDistanceEvent`: its ids."""

    type_name: ClassVar[str] = "sensorium.SafeDistanceEvent/1"

    @staticmethod
    def serialize(sensor: StreamedSensor, *args: Any) -> bytes:
        """Return the bytes of one array of body ids."""
        (ids,) = args
        return np.asarray(ids, "<u4").tobytes()

    @staticmethod
    def deserialize(raw: RawData) -> SafeDistanceEvent:
        """Return the event in a message."""
        return SafeDistanceEvent(raw)


class SafeDistance(StreamedSensor):
    """Sensor that sends the ids of the bodies inside its box: a message per frame and environment with such bodies.

    The owner is never inside; other bodies of its kinematic tree count only with ``exclude_own_links=false``. Without
    an owner, only the three distances define the box, which then has no height.
    """

    serializer = SafeDistanceSerializer
    events = True

    @classmethod
    def definition(cls) -> SensorDefinition:
        """Return the definition of ``sensor.other.safe_distance``."""
        front, back, lateral = (
            Attribute(
                id=f"safe_distance_{side}", type="float", recommended_values=(str(value),), low=low, unit="m", doc=doc
            )
            for side, value, low, doc in (
                ("front", FRONT, -np.inf, "How far the box reaches forward from the sensor, beside the owner's size."),
                ("back", BACK, -np.inf, "How far it reaches backward; negative where it begins in front."),
                ("lateral", LATERAL, 0.0, "How far it reaches to each side."),
            )
        )
        entity = Attribute(id="entity", doc="Only bodies of these entities count: a full-match pattern; empty for all.")
        own = Attribute(
            id="exclude_own_links", type="bool", default="true", doc="Whether the owner's own links never count."
        )
        doc = "Tells which bodies are inside a box around the body that it is attached to."
        return make_generic_sensor_definition("other", "safe_distance", (front, back, lateral, entity, own), doc=doc)

    def set(self, description: ActorDescription) -> None:
        """Build the box from the distances.

        Raises:
            ConfigError: the distances are not finite or do not form a box, or the pattern is invalid.
        """
        super().set(description)
        front = description.get_float("safe_distance_front", FRONT)
        back = description.get_float("safe_distance_back", BACK)
        lateral = description.get_float("safe_distance_lateral", LATERAL)
        title = type(self).__name__
        if not 0.0 <= front + back < np.inf:
            got = {"safe_distance_front": front, "safe_distance_back": back}
            raise ConfigError.single(title, "safe_distance_front", got, "finite distances whose sum is >= 0 (m)")
        if not 0.0 <= lateral < np.inf:
            raise ConfigError.single(title, "safe_distance_lateral", lateral, "a finite distance >= 0 (m)")
        self.center = np.array([(front - back) / 2.0, 0.0, 0.0])
        """Centre of the box in the sensor's frame, m."""
        self.half_extents = np.array([(front + back) / 2.0, lateral, 0.0])
        """Half of its size along the axes of the sensor's frame, m."""
        try:
            self._entity = re.compile(description.get_str("entity", "") or ".*")
        except re.error as error:
            fault = Fault("entity", repr(description["entity"]), "a pattern", f"The pattern is broken: {error}.")
            raise ConfigError(title, [fault]) from None
        self._exclude_links = description.get_bool("exclude_own_links", True)

    def set_owner(self, owner: Owner | None) -> None:
        """Add the owner's size to the box, and select the bodies that can be inside.

        Raises:
            SelectionError: no entity matches the pattern.
        """
        super().set_owner(owner)
        own: frozenset[int] = frozenset()
        if owner is not None:
            self.half_extents = self.half_extents + np.asarray(owner.body.half_extents)
            own = owner.links if self._exclude_links else frozenset({owner.body.id})
        matching = [body for body in self.bodies.values() if self._entity.fullmatch(body.entity)]
        if not matching:
            there = listed(sorted({body.entity or "''" for body in self.bodies.values()}))
            raise SelectionError(
                type(self).__name__,
                [Fault("entity", repr(self._entity.pattern), "a pattern of an entity", f"There are: {there}.")],
            )
        chosen = [body for body in matching if body.id not in own and any(body.half_extents)]
        self._ids = np.array([body.id for body in chosen], np.int64)
        self._places = np.array([self.bodies.row(body.id) for body in chosen], np.int64)
        self._centers = np.array([body.center for body in chosen], np.float64).reshape(-1, 3)
        self._halves = np.array([body.half_extents for body in chosen], np.float64).reshape(-1, 3)
        self._radii = np.linalg.norm(np.abs(self._centers) + self._halves, axis=-1)

    def tick(self, snapshot: Snapshot) -> None:
        """Send the bodies inside the box, if there are any."""
        super().tick(snapshot)
        if not self.listeners or not len(self._ids):
            return
        inside = self.inside(snapshot)
        for row in np.flatnonzero(inside.any(axis=1)):
            self.stream.send(self._ids[inside[row]], env=self.envs[int(row)])

    def inside(self, snapshot: Snapshot) -> Array:
        """Return which of the selected bodies are inside: bool ``[env, body]``."""
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # states may be invalid
            return self._inside(snapshot)

    def _inside(self, snapshot: Snapshot) -> Array:
        rows = self.rows(snapshot)
        pose = self.pose(snapshot)
        center = pose[:, :3] + rotated(pose[:, 3:], self.center)
        pos = snapshot.pos_w[rows, self._places]
        reach = self._radii + np.linalg.norm(self.half_extents)
        between = pos - center[:, None, :]
        near: Array = np.einsum("ebi,ebi->eb", between, between) <= np.square(reach * (1.0 + 1e-6))
        env, body = np.nonzero(near)  # values that are not finite are never near
        if len(env):
            quat = snapshot.quat_w[rows, self._places][env, body].astype(np.float64)
            turn_a, turn_b = matrices(pose[:, 3:])[env], matrices(quat)
            other = pos[env, body] + np.einsum("kij,kj->ki", turn_b, self._centers[body])
            near[env, body] = boxes_overlap(other - center[env], turn_a, self.half_extents, turn_b, self._halves[body])
        return near
