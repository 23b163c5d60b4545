"""Collision: a message with the impulse when the sensor's body starts to touch another body.

A contact is the touch of the owner and one other body, with any number of contact points. Its impulse is the sum of
force times time step on the owner, including friction, in world axes. Every physics tick counts. The sensor reads
`CollisionEvents` in the scene, whose rows cover a control step, so an impact counts up to its end.

The bodies that may touch must be known before a simulator's model is compiled, see `reserve_contact`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from sensorium.errors import ConfigError, Fault, SelectionError, UnsupportedError, WireError, listed, nearest
from sensorium.readings import Array, Bodies, Body, Reading
from sensorium.spec import CONTACT_REPORT, Requirement
from sensorium.stream.failures import LOG
from sensorium.stream.model import Model, owner_of
from sensorium.stream.streamed import StreamedSensor
from sensorium.wire.attributes import ActorDescription, Attribute, SensorDefinition, make_generic_sensor_definition
from sensorium.wire.data import ArrayData
from sensorium.wire.owner import Owner
from sensorium.wire.raw_data import RawData
from sensorium.wire.serializers import Serializer
from sensorium.wire.world import Snapshot

if TYPE_CHECKING:
    from sensorium.cfg import SensorCfg

WORLD = -1
"""Id of shapes without a body: the ground and everything else fixed to the world."""

PHASES = {1: "begin", 2: "persist", 3: "end"}
"""Numbers of the phases, as in `CollisionEventsData.phase`."""

_SENT = {"begin": (1,), "all": (1, 2, 3)}
_ROWS = 64


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

    @property
    def actor(self) -> int:
        """Id of the body that the sensor is attached to."""
        return int(self.array["actor"][0])

    @property
    def other_actor(self) -> int:
        """Id of the touched body; -1 for the world."""
        return int(self.array["other_actor"][0])

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

    @property
    def duration(self) -> float:
        """Duration of the contact so far, or in total at its end, s."""
        return float(self.array["duration"][0])

    @property
    def peak_force(self) -> float:
        """Largest net force of the contact so far, N."""
        return float(self.array["peak_force"][0])

    @property
    def event_tick(self) -> int:
        """Physics tick of the event; for ``persist`` the first tick of the control step."""
        return int(self.array["tick"][0])


class CollisionSerializer(Serializer):
    """Serializer of a `CollisionEvent`: one row."""

    type_name: ClassVar[str] = "sensorium.CollisionEvent/1"

    @staticmethod
    def serialize(sensor: Any, /, *args: Any) -> bytes:
        """Return the bytes of one row of `CollisionEvent.dtype`."""
        (row,) = args
        return np.array([row], CollisionEvent.dtype).tobytes()

    @staticmethod
    def deserialize(raw: RawData, /) -> CollisionEvent:
        """Return the event in a message."""
        return CollisionEvent(raw)


class Collision(StreamedSensor):
    """Sensor that sends a message for each collision of its owner with another body or the world.

    Deformables and, without ``own_links``, bodies of the owner's kinematic tree are ignored. With ``whole_tree`` the
    collisions of the owner's whole tree count.
    """

    serializer = CollisionSerializer
    events = True

    @classmethod
    def definition(cls) -> SensorDefinition:
        """Return the definition of ``sensor.other.collision``."""
        attributes = (
            Attribute(
                id="min_impulse",
                type="float",
                default="0.0",
                low=0.0,
                unit="N s",
                doc="Weaker collisions are omitted: length of the impulse within the control step.",
            ),
            Attribute(
                id="phases",
                default="begin",
                recommended_values=tuple(_SENT),
                restrict_to_recommended=True,
                doc="`begin`: a message at the start of a contact. `all`: also in each further control step, "
                "and at its end.",
            ),
            Attribute(
                id="min_interval",
                type="float",
                default="0.0",
                low=0.0,
                unit="s",
                doc="Simulation time that must pass between two messages of one phase about the same two bodies.",
            ),
            Attribute(
                id="whole_tree",
                type="bool",
                default="false",
                doc="Whether all bodies of the owner's kinematic tree collide, not only the owner.",
            ),
            Attribute(
                id="own_links",
                type="bool",
                default="false",
                doc="Whether to tell of collisions with bodies of the owner's own tree; not with whole_tree.",
            ),
        )
        return make_generic_sensor_definition(
            "other",
            "collision",
            attributes,
            doc="Tells when the body that it is attached to collides, with what, and with which impulse.",
            needs="contact",
            attach="the body that collides",
        )

    def set(self, description: ActorDescription) -> None:
        """Set the attributes.

        Raises:
            ConfigError: a bound is below 0, a phase is unknown, or ``own_links`` is combined with ``whole_tree``.
        """
        super().set(description)
        title = type(self).__name__
        self._min_impulse = description.get_float("min_impulse", 0.0)
        self._min_interval = description.get_float("min_interval", 0.0)
        for name, value in (("min_impulse", self._min_impulse), ("min_interval", self._min_interval)):
            if not 0.0 <= value < np.inf:
                raise ConfigError.single(title, name, value, "a finite number >= 0")
        phases = description.get_str("phases", "begin")
        if phases not in _SENT:
            raise ConfigError.single(title, "phases", phases, f"one of {', '.join(_SENT)}")
        self._phases = _SENT[phases]
        self._whole_tree = description.get_bool("whole_tree", False)
        self._own_links = description.get_bool("own_links", False)
        if self._whole_tree and self._own_links:
            raise ConfigError.single(title, "own_links", True, "false with whole_tree=true", "Attach one to each link.")
        self._contacts: dict[str, Contacts] = {}
        self._seen: dict[str, set[tuple[int, int, int, int]]] = {}
        self._last: dict[tuple[int, int, int], float] = {}
        self._captures: dict[str, Array] = {}
        self._told = False

    def set_owner(self, owner: Owner | None) -> None:
        """Set the body whose collisions are measured.

        Raises:
            ConfigError: the sensor is not attached to a body.
        """
        super().set_owner(owner)
        if owner is None:
            raise ConfigError.single(type(self).__name__, "attach_to", None, "a body", "Only bodies collide.")

    def scene_sensors(self, model: Model) -> Mapping[str, Mapping[str, Any]]:
        """Return the `CollisionEvents` of the owner with everything that can touch it, from the reserved contacts.

        Raises:
            UnsupportedError: nothing can touch the owner, or its contacts were not reserved.
        """
        owner = cast(Owner, self.owner)
        own, others = _sides(owner, self.bodies, touchable(model), model.name, **self._variant())
        found = _reserved(own, others, model.prepared)
        if found is None:
            why = model.supports(_report(("body", tuple(others)[:1]), own)) or "the model was prepared without them."
            attributes = "".join(f", {name}=True" for name, given in self._variant().items() if given)
            raise UnsupportedError(
                self.name,
                f"contacts of {own[1]!r}",
                model.name,
                f"{why} For collisions, write Scene(..., reserve=sn.reserve_contact(engine, {owner.body.name!r}"
                f"{attributes})), or serve with --reserve contact.",
            )
        self._contacts = found
        persist = len(self._phases) > 1
        return {key: {**contacts.cfg, "persist": persist} for key, contacts in found.items()}

    def _variant(self) -> dict[str, bool]:
        return {"whole_tree": self._whole_tree, "own_links": self._own_links}

    def tick(self, snapshot: Snapshot) -> None:
        """Send new contacts at the end of a control step, because an impact counts up to its end."""
        super().tick(snapshot)
        if self.is_within_step:
            return
        for key, contacts in self._contacts.items():
            reading, envs = self.readings[key], self.reading_rows(key)
            self._forget(key, reading, envs)
            self._warn(reading["lost"][envs])
            for env, row in self._new(key, reading, envs):
                self._send(env, row, reading, contacts)

    def _forget(self, key: str, reading: Reading, envs: slice) -> None:
        """Discard the send times of environments that were reset since the last frame."""
        captures = reading.frame[envs].copy()
        if key in self._captures:
            reset = {self.envs[int(row)] for row in np.flatnonzero(captures < self._captures[key])}
            if reset:
                self._last = {pair: time for pair, time in self._last.items() if pair[0] not in reset}
        self._captures[key] = captures

    def _warn(self, lost: Array) -> None:
        if lost.any() and not self._told:
            self._told = True
            text = "sensor %r: %d contacts started or ended within one control step and were lost for lack of free rows"
            LOG.warning(text, self.name, int(lost.sum()))

    def _new(self, key: str, reading: Reading, envs: slice) -> list[tuple[int, int]]:
        """Return (env, row) of the rows that were not in the reading of the previous frame."""
        offsets = cast(Array, reading.offsets)[envs.start : envs.stop + 1]
        rows = np.arange(offsets[0], offsets[-1])
        env = np.repeat(np.asarray(self.envs), np.diff(offsets))
        columns = [env, *(reading[name][offsets[0] : offsets[-1]] for name in ("pair", "phase", "tick"))]
        ids = list(zip(*(column.tolist() for column in columns), strict=True))
        before, self._seen[key] = self._seen.get(key, set()), set(ids)
        return [(which[0], row) for which, row in zip(ids, rows.tolist(), strict=True) if which not in before]

    def _send(self, env: int, row: int, reading: Reading, contacts: Contacts) -> None:
        phase, tick = int(reading["phase"][row]), int(reading["tick"][row])
        impulse = contacts.sign * reading["impulse_w"][row]
        if phase not in self._phases or np.linalg.norm(impulse) < self._min_impulse:
            return
        other = contacts.others[int(reading["pair"][row])]
        if other is None:
            return
        now, which = reading.time, (env, other, phase)
        if self._min_interval and now - self._last.get(which, -np.inf) < self._min_interval * (1.0 - 1e-9):
            return
        self._last[which] = now
        pos, duration, peak = reading["pos_w"][row], reading["duration"][row], reading["peak_force"][row]
        me = cast(Owner, self.owner).body.id
        self.stream.send((me, other, phase, impulse, pos, duration, peak, tick), env=env)


# Possible contacts ----------------------------------------------------------------------------------------------------

Side = tuple[str, str]
"""Kind (``"body"`` or ``"subtree"``) and name of one side of a contact."""


@dataclass(frozen=True, slots=True)
class Contacts:
    """One `CollisionEvents` sensor of an owner.

    Attributes:
        cfg: its config, as plain values.
        others: ids of the touched bodies, by pair; None for ignored bodies.
        sign: sign of the impulse: the sensor reports the impulse on its primary.
    """

    cfg: Mapping[str, Any]
    others: tuple[int | None, ...]
    sign: float


def _report(primary: tuple[str, tuple[str, ...]], secondary: Side) -> Requirement:
    """Return the requirement of `CollisionEvents`."""
    return CONTACT_REPORT(primary, secondary, ("found", "force", "pos"), "netforce")


def touchable(model: Model) -> dict[str, bool]:
    """Return the names of bodies, and ``world``, with a rigid collision shape, and whether they are static.

    If the engine does not provide shapes, all bodies are included, and only the world is static.
    """
    names, shapes = model.names("body"), model.shapes()
    if not shapes:
        return {**dict.fromkeys(names, False), "world": True}
    rigid = {
        shape.body: bool(shape.is_static)
        for shape in shapes
        if shape.is_collision and (shape.body != WORLD or shape.is_static)
    }
    return {name: rigid[row] for row, name in (*enumerate(names), (WORLD, "world")) if row in rigid}


def _sides(
    owner: Owner, bodies: Bodies, able: Mapping[str, bool], engine: str, *, whole_tree: bool, own_links: bool
) -> tuple[Side, dict[str, int]]:
    """Return the side of the owner, and name and id of everything that can touch it.

    Args:
        owner: colliding body.
        bodies: all bodies.
        able: see `touchable`.
        engine: name of the engine, for messages.
        whole_tree: see `Collision`.
        own_links: see `Collision`.

    Raises:
        UnsupportedError: no shape of the owner collides, or no other body can touch it.
    """
    own = ("subtree", owner.root.name) if whole_tree else ("body", owner.body.name)
    mine = owner.links if whole_tree else {owner.body.id}
    links = [bodies[each].name for each in mine if bodies[each].name in able]
    if not links:
        raise UnsupportedError(owner.body.name, "contacts", engine, "none of its shapes collides with anything.")
    ids = {name: WORLD if name == "world" else bodies[name].id for name in able}
    left_out = {owner.body.id} if own_links else owner.links
    is_static = all(able[name] for name in links)  # static bodies cannot touch each other
    others = {name: body for name, body in ids.items() if body not in left_out and not (is_static and able[name])}
    if not others:
        raise UnsupportedError(owner.body.name, "contacts", engine, "the model has no other body that it can touch.")
    return own, others


def _reserved(own: Side, others: Mapping[str, int], prepared: Iterable[Requirement]) -> dict[str, Contacts] | None:
    """Return the sensors that cover all contacts of an owner from the prepared reports, by key; None if incomplete.

    In the first sensor the others are the primaries, so that one report covers all of them. Bodies whose contacts the
    engine does not provide this way have one report each, in the second sensor.
    """
    kind, name = own
    mine = {"mode": kind, "pattern": name}
    reports = [
        each.args[0][1]
        for each in prepared
        if each.kind == "CONTACT_REPORT" and each.args[0][0] == "body" and others.keys() & each.args[0][1]
        if _report(each.args[0], own) == each
    ]
    best = max(reports, key=lambda names: (len(others.keys() & names), -len(names), names), default=())
    fixed = tuple(other for other in others if other not in best)
    if any(_report((kind, (name,)), ("body", other)) not in prepared for other in fixed):
        return None
    found = {}
    if best:
        cfg = _cfg({"mode": "body", "pattern": list(best)}, mine, len(best))
        found["contacts"] = Contacts(cfg, tuple(others.get(other) for other in best), -1.0)
    if fixed:
        cfg = _cfg(mine, {"mode": "body", "pattern": list(fixed)}, len(fixed))
        found["fixed"] = Contacts(cfg, tuple(others[other] for other in fixed), 1.0)
    return found


def _cfg(primary: Mapping[str, Any], secondary: Mapping[str, Any], pairs: int) -> dict[str, Any]:
    rows = min(3 * pairs, _ROWS)
    return {"kind": "collision_events", "primary": primary, "secondary": secondary, "max_events": rows}


def reserve_contact(
    model: Model | Iterable[str],
    bodies: str | Sequence[str] = ".*",
    *,
    whole_tree: bool = False,
    own_links: bool = False,
) -> list[SensorCfg[Any]]:
    """Return the configs that a scene must reserve so that `Collision` can be attached to bodies later.

    ::

        engine = sn.MujocoEngine("robot.xml")
        scene = sn.Scene(engine, reserve=sn.reserve_contact(engine, "robot/base"))

    The cost is one contact sensor in the model per pair of a body and another body that can touch it. MuJoCo evaluates
    these in every tick, so name the bodies in a large model. Contacts with deformables (flexes) are not included.

    Args:
        model: the engine; or the names of the bodies that can collide (also ``world``), for a model that is not yet
            compiled.
        bodies: one or several patterns of the colliding bodies, full-match on full names.
        whole_tree: for `Collision` with the same attribute.
        own_links: for `Collision` with the same attribute.

    Raises:
        ConfigError: `model` is text.
        SelectionError: a pattern is invalid, or matches no body that can touch anything.
        UnsupportedError: the engine reports no contacts.
    """
    from sensorium import registry  # clients import this module for its serializer, without the dependencies of configs

    if isinstance(model, str):
        raise ConfigError.single("reserve_contact", "model", model, "an engine, or the names of bodies")
    if isinstance(model, Iterable):
        able = {name: name == "world" for name in model}
        names: Sequence[str] = [name for name in able if name != "world"]
        known: Any = SimpleNamespace(name="names", parent_body=lambda body: None, supports=lambda need: None)
    else:
        able, names, known = touchable(model), model.names("body"), model
    everything = Bodies(
        Body(row, name, name.partition("/")[0] if "/" in name else "") for row, name in enumerate(names)
    )
    candidates = [name for name in names if name in able]
    cfg_class = registry.cfg_for_kind("collision_events")
    found: dict[Side, list[SensorCfg[Any]]] = {}
    for name in _matching((bodies,) if isinstance(bodies, str) else bodies, candidates):
        owner = owner_of(everything[name], everything, known)
        own, others = _sides(owner, everything, able, known.name, whole_tree=whole_tree, own_links=own_links)
        if own in found:
            continue
        contacts = _reserved(own, others, _grantable(own, tuple(others), known)) or {}
        found[own] = [cfg_class.from_dict({"name": f"{name}/{key}", **each.cfg}) for key, each in contacts.items()]
    return [cfg for cfgs in found.values() for cfg in cfgs]


def _grantable(own: Side, others: tuple[str, ...], model: Model) -> list[Requirement]:
    """Return the fewest reports of the engine that cover all contacts of an owner.

    Raises:
        UnsupportedError: the engine does not provide them.
    """
    every = _report(("body", others), own)
    if model.supports(every) is None:
        return [every]
    primaries, fixed = [], []
    for other in others:
        if (why := model.supports(_report(("body", (other,)), own))) is None:
            primaries.append(other)
        elif model.supports(_report((own[0], (own[1],)), ("body", other))) is None:
            fixed.append(_report((own[0], (own[1],)), ("body", other)))
        else:
            raise UnsupportedError("(reserved)", f"contacts of {own[1]!r} with {other!r}", model.name, why)
    return [_report(("body", tuple(primaries)), own), *fixed] if primaries else fixed


def _matching(patterns: Iterable[str], names: Sequence[str]) -> Iterator[str]:
    """Yield the names that match any of the patterns, in the order of the model."""
    matches = []
    for pattern in patterns:
        try:
            matched = [name for name in names if name == pattern or re.fullmatch(pattern, name)]
        except re.error as error:
            fault = Fault("bodies", repr(pattern), "a name or a pattern", f"The pattern is broken: {error}.")
            raise SelectionError("reserve_contact", [fault]) from None
        if not matched:
            fix = f"{nearest(pattern, names).strip()} Those are: {listed(names)}.".strip()
            raise SelectionError(
                "reserve_contact", [Fault("bodies", repr(pattern), "bodies that something can touch", fix)]
            )
        matches += matched
    yield from (name for name in names if name in matches)
