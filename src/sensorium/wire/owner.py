"""Body that a sensor is attached to, with its related bodies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sensorium.readings import Bodies, Body


@dataclass(frozen=True, slots=True)
class Owner:
    """Body that a sensor is attached to.

    Attributes:
        body: its id, name, entity and bounding box.
        links: ids of all bodies of its kinematic tree, including its own. If the tree is unknown, as in clients, the
            bodies of its entity.
        root: body of the tree that is attached to the world; the body itself if the tree is unknown.
    """

    body: Body
    links: frozenset[int]
    root: Body


def owner_of(body: Body, bodies: Bodies, parent: Callable[[int], int | None] = lambda body: None) -> Owner:
    """Return a body with the bodies of its kinematic tree; of its entity, if any, if the tree is unknown.

    Args:
        body: body that the sensor is attached to.
        bodies: all bodies.
        parent: function that returns the parent of a body, -1 for the world; None if the tree is unknown.
    """

    def root_of(body: int) -> int | None:
        above = parent(body)
        while above is not None and above >= 0:
            body, above = above, parent(above)
        return None if above is None else body

    root = root_of(body.id)
    if root is None:
        mine = [other.id for other in bodies.values() if body.entity and other.entity == body.entity]
        return Owner(body, frozenset({body.id, *mine}), body)
    return Owner(body, frozenset(other for other in bodies if root_of(other) == root), bodies[root])
