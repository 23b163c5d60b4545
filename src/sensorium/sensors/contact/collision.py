"""Collisions of one body with every other body and the world, as events of the control step.

Axes: ``[env, event, ...]``. The rows and impulses are those of `collision_events`; forces act on the body that the
sensor is mounted on.

The bodies that may touch must be known before a simulator's model is compiled, see `reserve_contact`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import field_validator, model_validator
from torch import Tensor

from sensorium.cfg import Float, bad, in_unit, must
from sensorium.errors import ConfigError, UnsupportedError
from sensorium.measurement.sensor_cfg import MountedSensorCfg
from sensorium.sensors.contact.collision_events import (
    BEGIN,
    END,
    FIELDS,
    PERSIST,
    CollisionEventsData,
    CollisionRows,
    Pair,
    no_rate,
)
from sensorium.sensors.core.hooks import Supports
from sensorium.spec import CONTACT_REPORT, Field, Requirement
from sensorium.world.bodies import tree_of
from sensorium.world.select import WORLD, Named, match_names

WORLD_ID = -1
"""Id of shapes without a body: the ground and everything else fixed to the world."""
MAX_ROWS = 64
"""Maximum number of rows per environment and control step; few pairs have three rows each."""

_NOT_NEGATIVE = must(lambda number: 0.0 <= number < math.inf, "a finite number >= 0")


@dataclass(frozen=True, slots=True)
class CollisionData(CollisionEventsData):
    """Events of the current control step, as `CollisionEventsData`, with the ids of the bodies."""

    body_ids: Annotated[Tensor, Field("1", (1, 2), ("event", "side"), dtype="int32", kind="id")]
    """Ids of the sensor's body and of the touched body: indices in the engine's list of bodies; -1 for the world."""


class CollisionCfg(MountedSensorCfg[CollisionData]):
    """Configuration of the collisions of a body. The sensor evaluates every tick; read it once per control step.

    Deformables and, without `own_links`, the other bodies of the body's kinematic tree are ignored.
    """

    min_impulse: Annotated[Float, _NOT_NEGATIVE, in_unit("N s", minimum=0.0)] = 0.0
    """Weaker collisions are omitted: magnitude of the impulse within the control step, N s."""
    phases: Literal["begin", "all"] = "begin"
    """``begin``: a row when a contact begins. ``all``: also in each control step in which it persists, and when it
    ends."""
    min_interval: Annotated[Float, _NOT_NEGATIVE, in_unit("s", minimum=0.0)] = 0.0
    """Minimum simulation time between the control steps of two rows of one phase about the same two bodies, s."""
    whole_tree: bool = False
    """Whether all bodies of the body's kinematic tree collide, not only the body itself."""
    own_links: bool = False
    """Whether collisions with bodies of the body's own tree count; not with `whole_tree`."""

    sits_on: ClassVar[tuple[str, tuple[str, ...]] | None] = ("a body", ("body", "link_name"))

    _every_tick = field_validator("update_period", "rate_hz")(no_rate)

    @model_validator(mode="after")
    def _one_side(self) -> Self:
        if self.whole_tree and self.own_links:
            raise bad("own_links, whole_tree: at most one of the two", "Add one sensor to each link.")
        return self


# Possible contacts ----------------------------------------------------------------------------------------------------


def touchable(model: Any) -> dict[str, bool]:
    """Return the names of bodies, and ``world``, with a rigid collision shape, and whether they are static.

    If the engine does not provide shapes, all bodies are included, and only the world is static.
    """
    names = model.names("body")
    shapes = model.shapes() if hasattr(model, "shapes") else ()
    if not shapes:
        return {**dict.fromkeys(names, False), WORLD: True}
    rigid = {
        shape.row: bool(shape.is_static)
        for shape in shapes
        if shape.is_collision and (shape.row != WORLD_ID or shape.is_static)
    }
    return {name: rigid[row] for row, name in (*enumerate(names), (WORLD_ID, WORLD)) if row in rigid}


def sides_of(cfg: CollisionCfg, model: Named) -> tuple[tuple[str, str], dict[str, int]]:
    """Return kind and name of the colliding side, and name and id of everything that can touch it.

    Raises:
        SelectionError: the model has no such body.
        UnsupportedError: no shape of the side collides, or nothing else can touch it.
    """
    selector, value = cfg.selector
    names, engine = list(model.names("body")), getattr(model, "name", "model")
    (body,) = match_names(value, names, config=cfg.title, field=selector, what="body", exactly_one=True)
    row = names.index(body)
    root, links = tree_of(row, model)
    own, mine = (("subtree", names[root]), links) if cfg.whole_tree else (("body", body), frozenset({row}))
    able = touchable(model)
    colliding = [names[link] for link in mine if names[link] in able]
    if not colliding:
        why = f"No shape of {body!r} collides with anything. Enable its collisions, or choose another body."
        raise UnsupportedError(cfg.label, "contacts", engine, why)
    left_out = mine if cfg.own_links else links
    is_static = all(able[name] for name in colliding)  # static bodies cannot touch each other
    ids = {name: WORLD_ID if name == WORLD else names.index(name) for name in able}
    others = {name: each for name, each in ids.items() if each not in left_out and not (is_static and able[name])}
    if not others:
        raise UnsupportedError(cfg.label, "contacts", engine, f"No other body can touch {body!r}.")
    return own, others


def reports_of(own: tuple[str, str], others: Sequence[str], model: Any, supports: Supports) -> list[Requirement]:
    """Return the fewest reports of the contacts of one side with other bodies; prepared ones that cover more count too.

    In the first report the others are the primaries, so that one report covers them. Bodies whose contacts the engine
    does not provide this way have one report each, in which they are the secondary.
    """

    def report(names: Sequence[str]) -> Requirement:
        return CONTACT_REPORT(("body", tuple(names)), own, FIELDS, "netforce")

    primaries = list(others)
    if supports(report(primaries)) is not None:
        primaries = [name for name in others if supports(report([name])) is None]
    fixed = [
        CONTACT_REPORT((own[0], (own[1],)), ("body", name), FIELDS, "netforce")
        for name in others
        if name not in primaries
    ]
    if not primaries:
        return fixed
    known = [each.args[0][1] for each in getattr(model, "prepared", ()) if each.kind == "CONTACT_REPORT"]
    covering = [names for names in known if set(primaries) <= set(names) and report(names) in model.prepared]
    return [report(min(covering, key=lambda names: (len(names), names), default=primaries)), *fixed]


class Collision(CollisionRows[CollisionCfg, CollisionData]):
    """Collisions of a body: when it starts to touch another body or the world, and with which impulse."""

    @classmethod
    def needs(cls, cfg: CollisionCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return the reports of the body's contacts with everything that can touch it."""
        own, others = sides_of(cfg, names)
        return reports_of(own, tuple(others), names, supports)

    @cached_property
    def sides(self) -> Sequence[Pair]:
        """The pairs of the body and each other body."""
        own, others = sides_of(self.cfg, self.engine)
        body, found = int(self.mount.body[0]), []
        for report in reports_of(own, tuple(others), self.engine, self.engine.supports):
            is_other = report.args[1] == own
            for place, name in enumerate(report.args[0][1] if is_other else (report.args[1][1],)):
                if name in others:
                    sign = -1.0 if is_other else 1.0
                    found.append(Pair(report, place, (own[1], name), sign, (body, others[name])))
        return found

    @property
    def max_rows(self) -> int:
        """Number of rows per environment and control step."""
        return min(3 * len(self.sides), MAX_ROWS)

    def setup(self) -> None:
        """Allocate the memory of pairs and envs."""
        self.phases = (BEGIN,) if self.cfg.phases == "begin" else (BEGIN, PERSIST, END)
        self.min_impulse, self.min_interval = self.cfg.min_impulse, self.cfg.min_interval
        super().setup()


def reserve_contact(
    model: Any, bodies: str | Sequence[str] = ".*", *, whole_tree: bool = False, own_links: bool = False
) -> list[Requirement]:
    """Return the requirements that a scene must reserve so that `Collision` can be added to bodies later.

    ::

        engine = sn.MujocoEngine("robot.xml")
        scene = sn.Scene(engine, reserve=sn.reserve_contact(engine, "robot/base"))

    The cost is one contact sensor in the model per pair of a body and another body that can touch it. MuJoCo evaluates
    these in every tick, so name the bodies in a large model. Contacts with deformables (flexes) are not included.

    Args:
        model: the engine; or the names of the bodies that can collide (also ``world``), for a model that is not yet
            compiled.
        bodies: one or several patterns of the colliding bodies, full-match on full names.
        whole_tree: for `CollisionCfg` with the same field.
        own_links: for `CollisionCfg` with the same field.

    Raises:
        ConfigError: `model` is text.
        SelectionError: a pattern is invalid, or matches no body that can touch anything.
        UnsupportedError: the engine reports no contacts.
    """
    if isinstance(model, str):
        raise ConfigError.single("reserve_contact", "model", model, "an engine, or the names of bodies")
    known = model if hasattr(model, "names") else _named_only(list(model))
    able = touchable(known)
    candidates = [name for name in known.names("body") if name in able]
    found: dict[Requirement, None] = {}
    for pattern in (bodies,) if isinstance(bodies, str) else bodies:
        for name in match_names(pattern, candidates, config="reserve_contact", field="bodies", what="body"):
            cfg = CollisionCfg(name=name, body=name, whole_tree=whole_tree, own_links=own_links)
            for report in Collision.needs(cfg, known, known.supports):
                if (why := known.supports(report)) is not None:
                    raise UnsupportedError("reserve_contact", report, known.name, why)
                found[report] = None
    return list(found)


def _named_only(names: Sequence[str]) -> Any:
    """Return a model that only knows the names of its colliding bodies."""
    bodies = [name for name in names if name != WORLD]
    rows: Mapping[str, int] = {name: row for row, name in enumerate(bodies)} | {WORLD: WORLD_ID}
    shapes = [SimpleNamespace(row=rows[name], is_static=name == WORLD, is_collision=True) for name in names]
    return SimpleNamespace(
        name="names",
        names=lambda kind: bodies,
        shapes=lambda: shapes,
        parent_body=lambda body: None,
        supports=lambda requirement: None,
    )
