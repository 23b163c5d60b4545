"""Interface of the engine and of kinematic trees for streamed sensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from sensorium.readings import Bodies, Body
from sensorium.spec import Requirement
from sensorium.wire.owner import Owner
from sensorium.wire.owner import owner_of as owner_by_entity


class Model(Protocol):
    """Interface of the engine for streamed sensors."""

    name: str
    prepared: frozenset[Requirement]
    """Requirements that sensors of the scene can have at present."""

    def names(self, kind: Literal["body"]) -> Sequence[str]:
        """Return the names of all bodies except the world; a body's id is its index."""
        ...

    def parent_body(self, body: int) -> int | None:
        """Return the parent of a body, -1 for the world; None if the engine provides no kinematic tree."""
        ...

    def shapes(self) -> Sequence[Any]:
        """Return all shapes of one environment; empty if the engine does not provide them."""
        ...

    def supports(self, requirement: Requirement) -> str | None:
        """Return why the engine does not support a requirement, or None if it does."""
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
