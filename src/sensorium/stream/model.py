"""Bodies that streamed sensors are attached to, with their kinematic trees."""

from __future__ import annotations

from typing import Protocol

from sensorium.readings import Bodies, Body
from sensorium.wire.owner import Owner
from sensorium.wire.owner import owner_of as owner_by_entity


class Model(Protocol):
    """Kinematic trees of an engine."""

    def parent_body(self, body: int) -> int | None:
        """Return the parent of a body, -1 for the world; None if the engine provides no kinematic tree."""
        ...


def owner_of(body: Body, bodies: Bodies, model: Model) -> Owner:
    """Return a body with the bodies of its kinematic tree.

    Args:
        body: body that the sensor is attached to.
        bodies: all bodies.
        model: the engine, which may provide the tree.
    """
    root = _root(body.id, model)
    if root is None:
        return owner_by_entity(body, bodies)
    return Owner(body, frozenset(other for other in bodies if _root(other, model) == root), bodies[root])


def _root(body: int, model: Model) -> int | None:
    """Return the ancestor attached to the world; None if the tree is unknown."""
    above = model.parent_body(body)
    while above is not None and above >= 0:
        body, above = above, model.parent_body(above)
    return None if above is None else body
