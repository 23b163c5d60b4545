"""The body that a sensor is attached to, with those that belong to it."""

from __future__ import annotations

from dataclasses import dataclass

from sensorium.readings import Bodies, Body


@dataclass(frozen=True, slots=True)
class Owner:
    """The body that a sensor is attached to.

    Attributes:
        body: its id, name, entity and bounding box.
        links: ids of all bodies of its kinematic tree, itself among them. Where no tree is known, as in clients, those
            of its entity.
        root: the body of its tree that hangs on the world; itself where the tree is not known.
    """

    body: Body
    links: frozenset[int]
    root: Body


def owner_of(body: Body, bodies: Bodies) -> Owner:
    """Return a body with the others of its entity, where no kinematic tree is known; alone where it has none."""
    mine = [other.id for other in bodies.values() if body.entity and other.entity == body.entity]
    return Owner(body, frozenset({body.id, *mine}), body)
