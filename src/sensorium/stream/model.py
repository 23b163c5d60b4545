"""What streamed sensors see of the engine, and of the kinematic tree of the body that they are attached to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from sensorium.readings import Bodies, Body
from sensorium.spec import Requirement
from sensorium.wire.owner import Owner
from sensorium.wire.owner import owner_of as owner_by_entity


class Model(Protocol):
    """What streamed sensors see of the engine."""

    name: str
    prepared: frozenset[Requirement]
    """What sensors of the scene can require now."""

    def names(self, kind: Literal["body"]) -> Sequence[str]:
        """Return the names of all bodies, without the world; a body's id is its place among them."""
        ...

    def parent_body(self, body: int) -> int | None:
        """Return the body above one, -1 for the world; None where the engine knows no kinematic tree."""
        ...

    def shapes(self) -> Sequence[Any]:
        """Return all shapes of one environment; none where the engine does not know them."""
        ...

    def supports(self, requirement: Requirement) -> str | None:
        """Return why the engine cannot give what a sensor of the scene would require, or None."""
        ...


def owner_of(body: Body, bodies: Bodies, model: Model) -> Owner:
    """Return a body with the others of its kinematic tree.

    Args:
        body: what the sensor is attached to.
        bodies: all bodies.
        model: the engine, which may know the tree.
    """
    root = _root(body.id, model)
    if root is None:
        return owner_by_entity(body, bodies)
    return Owner(body, frozenset(other for other in bodies if _root(other, model) == root), bodies[root])


def _root(body: int, model: Model) -> int | None:
    """Return the body above it that hangs on the world; None where the tree is not known."""
    above = model.parent_body(body)
    while above is not None and above >= 0:
        body, above = above, model.parent_body(above)
    return None if above is None else body
