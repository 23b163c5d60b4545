"""Body that a sensor is attached to, with its related bodies."""

from __future__ import annotations

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


def owner_of(body: Body, bodies: Bodies) -> Owner:
    """Return a body with the bodies of its entity, for an unknown kinematic tree; alone if it has no entity."""
    mine = [other.id for other in bodies.values() if body.entity and other.entity == body.entity]
    return Owner(body, frozenset({body.id, *mine}), body)
