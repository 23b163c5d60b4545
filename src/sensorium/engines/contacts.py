"""Contact reports, independent of the engine: their validity, and their reduction from an engine's list of contacts.

`ContactReducer` fills every form of CONTACT_REPORT from a `ContactList`, with the semantics of MuJoCo's contact
sensors. First, one launch over the contacts links them by environment. Then one launch per report and one for the order
work by environment. Contacts keep the order of the list, so equal lists give equal bits on every device.
"""

# Without `from __future__ import annotations`: Warp must see the types of the kernels' arguments.

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import warp as wp

from sensorium.compute import Compute, Rows, kernel, masked_tid
from sensorium.engines.base import Engine, NameKind
from sensorium.engines.envs import EnvLaunches, shared_tensor
from sensorium.errors import ArgumentError, UnknownNameError, listed, nearest, shown
from sensorium.spec import CONTACT_FIELDS, Requirement, contact_array

_KINDS: dict[str, NameKind] = {"geom": "geom", "body": "body", "subtree": "body"}
_REDUCTIONS = ("none", "mindist", "maxforce", "netforce")


def is_contact(requirement: Requirement) -> bool:
    """Whether a requirement is a CONTACT_REPORT."""
    return requirement.kind == "CONTACT_REPORT"


def contact_fault(engine: Engine, report: Requirement) -> str | None:
    """Return why no engine with these geoms and bodies can provide a CONTACT_REPORT, or None."""
    if (why := report_fault(report)) is not None:
        return why
    for what, word, name in named(report):
        try:
            engine.frame(_KINDS[word], name)
        except UnknownNameError:
            known = engine.names(_KINDS[word])
            return f"{what}: there is no {_KINDS[word]} {name!r}.{nearest(name, known)} There are: {listed(known)}."
    return None


def report_fault(report: Requirement) -> str | None:
    """Return the fault of a CONTACT_REPORT that is invalid in any model, or None."""
    (kind, names), secondary, fields, reduce, slots = report.args
    for what, word in (("primary", kind), ("secondary", "geom" if secondary is None else secondary[0])):
        if word not in _KINDS:
            return f"{what}: got kind {shown(word)}, expected one of {listed(_KINDS)}."
    if not names or len(set(names)) != len(names):
        return f"primary: got the names {shown(names)}, expected at least one name, without repetition."
    if not fields or any(field not in CONTACT_FIELDS for field in fields):
        return f"fields: got {shown(fields)}, expected some of {listed(CONTACT_FIELDS)}."
    if reduce not in _REDUCTIONS:
        return f"reduce: got {shown(reduce)}, expected one of {listed(_REDUCTIONS)}."
    if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
        return f"slots: got {shown(slots)}, expected an integer of at least 1."
    if reduce == "netforce" and slots != 1:
        return f"slots: got {slots}, expected 1 with reduce='netforce', which returns one sum per primary."
    return None


def named(report: Requirement) -> list[tuple[str, str, str]]:
    """Return the elements of a CONTACT_REPORT: ``"primary"`` or ``"secondary"``, kind and name."""
    (kind, names), secondary = report.args[:2]
    primaries = [("primary", kind, name) for name in names]
    return primaries if secondary is None else [*primaries, ("secondary", *secondary)]


def contact_shape(report: Requirement) -> tuple[int, int, int]:
    """Return (primaries, slots, columns) of a report."""
    (_, names), _, fields, _, slots = report.args
    return len(names), slots, sum(CONTACT_FIELDS[field] for field in fields)


# Reduction ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ContactList:
    """An engine's list of contacts: its own arrays, at fixed addresses on the engine's device, which are not copied.

    Arrays are torch tensors, Warp arrays, or of any other owner that supports DLPack. With `env`, or with `envs`, the
    contacts of all environments are in one list, and `count` is `[1]`. Without both, the list has the same number of
    places for each environment, environment by environment, and `count` is `[env]`.

    Args:
        count: number of contacts in the list, int32 `[1]` or `[env]`. Entries beyond it are ignored.
        sides: ids of the two touching elements, int32 `[contact, 2]`. Contacts with unknown ids are ignored.
        point: positions, float32 `[contact, 3]`, m, world.
        normal: unit vectors from the first side to the second, float32 `[contact, 3]`, world.
        force: forces on the second side, float32 `[contact, 3]`, N, world.
        torque: torques on the second side about `point`, float32 `[contact, 3]`, N m, world; None if contacts transmit
            none.
        dist: distances, float32 `[contact]`, m, negative for penetration; None if unknown.
        tangent: unit vectors normal to `normal`, float32 `[contact, 3]`, world; None derives them as MuJoCo does.
        env: environment of each contact, int32 `[contact]`.
        rows: row of each id in the engine's names of `kind`, -1 for the world, int32 `[id]`; None if ids are rows.
        envs: environment of each id, -1 for ids shared by all environments, int32 `[id]`.
        kind: kind of the elements, ``"geom"`` or ``"body"``; bodies do not support reports about geoms.

    Raises:
        ArgumentError: an array has another type or shape.
    """

    count: Any
    sides: Any
    point: Any
    normal: Any
    force: Any
    torque: Any = None
    dist: Any = None
    tangent: Any = None
    env: Any = None
    rows: Any = None
    envs: Any = None
    kind: NameKind = "geom"

    def __post_init__(self) -> None:
        if self.kind not in ("geom", "body"):
            raise ArgumentError(f"ContactList kind: got {shown(self.kind)}, expected 'geom' or 'body'.")
        size = None
        for name in (each.name for each in fields(self) if each.name != "kind"):
            if (given := getattr(self, name)) is None and name not in _REQUIRED:
                continue
            array, what = shared_tensor(given, f"ContactList {name}")
            dtype = torch.int32 if name in _INTEGERS else torch.float32
            length = len(array) if array.dim() else 1
            if name == "sides":
                size = length
            shape = (length if name in _TABLES else size, *_WIDTHS.get(name, ()))
            is_here = name == "count" or array.device == self.count.device
            if array.dtype != dtype or tuple(array.shape) != shape or not array.is_contiguous() or not is_here:
                raise ArgumentError(
                    f"ContactList {name}: got {what} of shape {tuple(array.shape)} on {array.device}, expected "
                    f"a contiguous {dtype} of shape {shape} on the device of count."
                )
            object.__setattr__(self, name, array)


_REQUIRED = ("count", "sides", "point", "normal", "force")
_INTEGERS = ("count", "sides", "env", "rows", "envs")
_TABLES = ("count", "sides", "rows", "envs")
"""Arrays whose length is not that of the list, or defines it."""
_WIDTHS = {"sides": (2,), **dict.fromkeys(("point", "normal", "force", "torque", "tangent"), (3,))}


if TYPE_CHECKING:
    _Parts: TypeAlias = Any
else:
    _Parts = wp.types.matrix((len(CONTACT_FIELDS), 3), dtype=wp.float32)
"""The fields of one slot, in the order of CONTACT_FIELDS; numbers are in the first column."""


@wp.struct
class Contacts:
    """A `ContactList` for kernels, linked by environment; absent arrays have length 0.

    Attributes:
        places: number of places per environment; 0 if all environments share one list.
        first: first contact of each environment, -1 for none.
        next: contact after each contact, -1 for none.
    """

    count: wp.array[wp.int32]
    sides: wp.array2d[wp.int32]
    point: wp.array[wp.vec3]
    normal: wp.array[wp.vec3]
    force: wp.array[wp.vec3]
    torque: wp.array[wp.vec3]
    dist: wp.array[wp.float32]
    tangent: wp.array[wp.vec3]
    env: wp.array[wp.int32]
    rows: wp.array[wp.int32]
    envs: wp.array[wp.int32]
    places: wp.int32
    first: wp.array[wp.int32]
    next: wp.array[wp.int32]


@wp.struct
class ReportForm:
    """Elements and form of a CONTACT_REPORT; element 0 is the world, and element r + 1 is row r.

    Attributes:
        primary: 1 if an element belongs to a primary `[primary, element]`.
        secondary: 1 if an element belongs to the secondary `[element]`.
        reduce: index in `_REDUCTIONS`.
        sources: for each column, 3 times the index of its field in CONTACT_FIELDS plus its component.
    """

    primary: wp.array2d[wp.uint8]
    secondary: wp.array[wp.uint8]
    reduce: wp.int32
    sources: wp.array[wp.int32]


@wp.func
def _element(contacts: Contacts, contact: int, side: int) -> wp.int32:
    """Return the column of an element in the tables of a report; -1 for an unknown id."""
    element = contacts.sides[contact, side]
    if element < -1:
        return -1
    if contacts.rows.shape[0] > 0 and element >= 0:
        if element >= contacts.rows.shape[0]:
            return -1
        element = contacts.rows[element]
    return element + 1


@wp.func
def _side(contacts: Contacts, report: ReportForm, contact: int, row: int) -> wp.float32:
    """Return 1 if a primary is the first side of a matching contact, -1 if it is the second, and 0 if none matches."""
    first = _element(contacts, contact, 0)
    second = _element(contacts, contact, 1)
    sign = wp.float32(0.0)
    if wp.min(first, second) < 0 or wp.max(first, second) >= report.secondary.shape[0]:
        return sign
    if report.primary[row, first] != wp.uint8(0) and report.secondary[second] != wp.uint8(0):
        sign = 1.0
    elif report.primary[row, second] != wp.uint8(0) and report.secondary[first] != wp.uint8(0):
        sign = -1.0
    return sign


@kernel(group="contacts")
def link_contacts(contacts: Contacts) -> None:
    """Add a contact to the list of its environment, in any order."""
    i = wp.tid()
    env = wp.int32(-1)
    if contacts.places > 0:
        if i % contacts.places < contacts.count[i // contacts.places]:
            env = i // contacts.places
    elif i < contacts.count[0]:
        if contacts.env.shape[0] > 0:
            env = contacts.env[i]
        else:
            for side in range(2):
                if contacts.sides[i, side] >= 0 and contacts.sides[i, side] < contacts.envs.shape[0]:
                    env = wp.max(env, contacts.envs[contacts.sides[i, side]])
    if env >= 0 and env < contacts.first.shape[0]:
        contacts.next[i] = wp.atomic_exch(contacts.first, env, i)


@kernel(group="contacts")
def order_contacts(rows: Rows, contacts: Contacts) -> None:
    """Link the contacts of an environment in the order of the list."""
    env = masked_tid(rows)
    ordered = wp.int32(-1)
    i = contacts.first[env]
    while i >= 0:
        following = contacts.next[i]
        if ordered < 0 or i < ordered:
            contacts.next[i] = ordered
            ordered = i
        else:
            j = ordered
            while contacts.next[j] >= 0 and contacts.next[j] < i:
                j = contacts.next[j]
            contacts.next[i] = contacts.next[j]
            contacts.next[j] = i
        i = following
    contacts.first[env] = ordered


@wp.func
def _torque(contacts: Contacts, i: int) -> wp.vec3:
    torque = wp.vec3()
    if contacts.torque.shape[0] > 0:
        torque = contacts.torque[i]
    return torque


@wp.func
def _write(report: ReportForm, parts: _Parts, out: wp.array[wp.float32]) -> None:
    for column in range(out.shape[0]):
        out[column] = parts[report.sources[column] // 3, report.sources[column] % 3]


@wp.func
def _sum(contacts: Contacts, report: ReportForm, first: int, row: int, out: wp.array[wp.float32]) -> None:
    """Write the sum of all contacts of a primary, about the centre of their forces."""
    found = wp.int32(0)
    total = wp.float32(0.0)
    centre = wp.vec3()
    force = wp.vec3()
    torque = wp.vec3()
    i = first
    while i >= 0:
        sign = _side(contacts, report, i, row)
        if sign != 0.0:
            size = wp.length(contacts.force[i])
            found += 1
            total += size
            centre += size * contacts.point[i]
            force -= sign * contacts.force[i]
        i = contacts.next[i]
    if found == 0:
        return
    centre = centre / wp.max(total, 1.0e-15)  # mjMINVAL
    i = first
    while i >= 0:
        sign = _side(contacts, report, i, row)
        if sign != 0.0:
            torque -= sign * (_torque(contacts, i) + wp.cross(contacts.point[i] - centre, contacts.force[i]))
        i = contacts.next[i]
    parts = _Parts()
    parts[0, 0] = float(found)
    parts[1] = force
    parts[2] = torque
    parts[4] = centre
    parts[5] = wp.vec3(1.0, 0.0, 0.0)
    parts[6] = wp.vec3(0.0, 1.0, 0.0)
    _write(report, parts, out)


@wp.func
def _frame(contacts: Contacts, i: int, sign: float) -> tuple[wp.vec3, wp.vec3]:
    """Return normal and tangent of a contact as seen from the primary; without a tangent as in mju_makeFrame."""
    normal = contacts.normal[i]
    tangent = wp.vec3(0.0, 0.0, 1.0)
    if contacts.tangent.shape[0] > 0:
        tangent = contacts.tangent[i]
    else:
        if wp.abs(normal[1]) < 0.5:
            tangent = wp.vec3(0.0, 1.0, 0.0)
        tangent = wp.normalize(tangent - wp.dot(normal, tangent) * normal)
    return sign * normal, sign * tangent


@kernel(group="contacts")
def reduce_contacts(rows: Rows, contacts: Contacts, report: ReportForm, values: wp.array4d[wp.float32]) -> None:
    """Write a primary's slots of a report `[env, primary, slot, column]`."""
    env, row = masked_tid(rows)
    for slot in range(values.shape[2]):
        for column in range(values.shape[3]):
            values[env, row, slot, column] = 0.0
    first = contacts.first[env]
    if report.reduce == 3:
        _sum(contacts, report, first, row, values[env, row, 0])
        return
    found = wp.int32(0)
    last = wp.int32(-1)
    last_key = wp.float32(-wp.inf)
    for slot in range(values.shape[2]):
        best = wp.int32(-1)
        best_key = wp.float32(wp.inf)
        best_sign = wp.float32(0.0)
        i = first
        while i >= 0:
            sign = _side(contacts, report, i, row)
            if sign != 0.0:
                if slot == 0:
                    found += 1
                key = wp.float32(0.0)
                if report.reduce == 1:
                    key = contacts.dist[i]
                elif report.reduce == 2:
                    key = -wp.length(contacts.force[i])
                is_later = key > last_key or (key == last_key and i > last)
                if is_later and (best < 0 or key < best_key):
                    best = i
                    best_key = key
                    best_sign = sign
            i = contacts.next[i]
        if best < 0:
            return
        last = best
        last_key = best_key
        normal, tangent = _frame(contacts, best, best_sign)
        second = wp.cross(normal, tangent)
        axes = wp.matrix_from_rows(normal, tangent, second)
        parts = _Parts()
        parts[0, 0] = float(found)
        parts[1] = axes * (best_sign * contacts.force[best])
        parts[2] = axes * (best_sign * _torque(contacts, best))
        if contacts.dist.shape[0] > 0:
            parts[3, 0] = contacts.dist[best]
        parts[4] = contacts.point[best]
        parts[5] = normal
        parts[6] = tangent
        _write(report, parts, values[env, row, slot])


class ContactReducer:
    """Contact reports of an engine, reduced from its list of contacts.

    Args:
        engine: engine with the names; `subtree` must be known for reports about subtrees.
        contacts: the list.
        compute: device of the list.
        bodies: row of the body of each element of the list, by its name; None for those of the engine.

    Attributes:
        arrays: name of each report's array to its tensor `[env, primary, slot, column]`, at a fixed address.

    Raises:
        ArgumentError: the list is on another device, or does not have equally many places for each environment.
    """

    def __init__(
        self, engine: Engine, contacts: ContactList, compute: Compute, bodies: Mapping[str, int] | None = None
    ) -> None:
        size, envs = len(contacts.sides), compute.num_envs
        if contacts.count.device != compute.all_envs.device:
            raise ArgumentError(f"ContactList: got arrays on {contacts.count.device}, expected {compute.device}.")
        is_one_list = contacts.env is not None or contacts.envs is not None
        if len(contacts.count) != (1 if is_one_list else envs) or (not is_one_list and size % envs):
            raise ArgumentError(
                f"ContactList count: got {len(contacts.count)} counts for {size} places in {envs} environments, "
                "expected one count with env or envs, or one per environment and equally many places for each."
            )
        self._engine, self._list, self._compute, self._given_bodies = engine, contacts, compute, bodies
        self._contacts = Contacts()
        for each in fields(contacts):
            array = getattr(contacts, each.name)
            if isinstance(array, torch.Tensor):
                dtype = wp.vec3 if _WIDTHS.get(each.name) == (3,) else None
                setattr(self._contacts, each.name, wp.from_torch(array, dtype=dtype))
        self._contacts.places = 0 if is_one_list else size // envs
        self._first = torch.full((envs,), -1, dtype=torch.int32, device=compute.device)
        self._next = torch.full((max(size, 1),), -1, dtype=torch.int32, device=compute.device)
        self._contacts.first, self._contacts.next = wp.from_torch(self._first), wp.from_torch(self._next)
        self._link = compute.command(link_contacts, (max(size, 1),), [self._contacts])
        self.arrays: dict[str, torch.Tensor] = {}
        self._reports: list[tuple[ReportForm, torch.Tensor]] = []
        self._launches: EnvLaunches | None = None

    def fault(self, report: Requirement) -> str | None:
        """Return why the list cannot provide a CONTACT_REPORT, or None."""
        if (why := contact_fault(self._engine, report)) is not None:
            return why
        for what, word, name in named(report):
            if word == "geom" and self._list.kind == "body":
                return f"{what}: {self._engine.name} reports contacts of bodies, not of geoms: name bodies."
            if word == "subtree" and self._engine.subtree(name) is None:
                return f"{what}: {self._engine.name} knows no kinematic tree: name bodies instead of a 'subtree'."
        if self._list.dist is None and (report.args[3] == "mindist" or "dist" in report.args[2]):
            return f"{self._engine.name} does not report the distance of contacts."
        return None

    def add(self, report: Requirement) -> torch.Tensor:
        """Return the array of a report without a `fault`, zero until the next `run`."""
        name = contact_array(report)
        if name in self.arrays:
            return self.arrays[name]
        (kind, names), secondary, _, reduce, _ = report.args
        device, form = self._compute.device, ReportForm()
        every = torch.ones(len(self._bodies) + 1, dtype=torch.uint8, device="cpu")
        other = every if secondary is None else self._elements(*secondary)
        primary = torch.stack([self._elements(kind, name) for name in names])
        form.primary, form.secondary = wp.from_torch(primary.to(device)), wp.from_torch(other.to(device))
        form.reduce = _REDUCTIONS.index(reduce)
        chosen = [3 * k + i for k, field in enumerate(CONTACT_FIELDS) for i in range(CONTACT_FIELDS[field])
                  if field in report.args[2]]  # fmt: skip
        form.sources = wp.array(chosen, dtype=wp.int32, device=device)
        array = torch.zeros((self._compute.num_envs, *contact_shape(report)), device=device)
        self.arrays[name] = array
        self._reports.append((form, array))
        self._launches = None
        return array

    @property
    def _bodies(self) -> Mapping[str, int]:
        """Row of the body of each element of the list, by its name."""
        engine, kind = self._engine, self._list.kind
        if self._given_bodies is not None:
            return self._given_bodies
        return {name: engine.frame(kind, name).body for name in engine.names(kind)}

    def _elements(self, kind: str, name: str) -> torch.Tensor:
        """Return 1 for each element of a geom, body or subtree, uint8 `[element]`; element 0 is the world."""
        engine, own = self._engine, self._bodies
        if kind == "geom":
            return torch.tensor([False, *(each == name for each in own)], dtype=torch.uint8, device="cpu")
        body = engine.frame("body", name).body
        bodies = {body}
        if kind == "subtree":
            bodies |= {engine.frame("body", each).body for each in engine.subtree(name) or ()}
        return torch.tensor([row in bodies for row in (-1, *own.values())], dtype=torch.uint8, device="cpu")

    def run(self, env_ids: torch.Tensor | None = None) -> None:
        """Fill the reports of all environments, or of some, from the current list, without host synchronisation."""
        if not self._reports:
            return
        compute = self._compute
        if self._launches is None:
            self._launches = EnvLaunches(compute, self._launch)
        self._first.fill_(-1)
        self._link.launch(compute.stream)
        self._launches.run(env_ids)

    def _launch(self) -> None:
        self._compute.launch(order_contacts, (), [self._contacts])
        for form, array in self._reports:
            self._compute.launch(reduce_contacts, (array.shape[1],), [self._contacts, form], [array])
