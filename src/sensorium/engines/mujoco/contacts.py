"""Contact reports from MuJoCo's contact sensors: a hidden sensor for each primary, one launch for each report.

MuJoCo's sensor matches the contacts of mjData.contact (including those in the gap zone of a geom, which have no force
yet), counts them, and sorts or sums them; this is the first step of a report. With the reductions ``none``, ``mindist``
and ``maxforce`` its columns are those of a report. The frame of a contact is turned where its first geom is the
secondary's, so that the normal points from the primary to the secondary, and a positive force presses. With
``netforce`` MuJoCo returns the load that the primary exerts, in world axes; force and torque are negated here. Then
dist is 0, and normal and tangent are the x and y axes. Before MuJoCo 4 they are so even without a contact, in which
case (`found` is 0) they are set to 0 here. Where both geoms belong to the primary (a subtree against itself, or against
any geom), a contact counts once, as seen from its first geom.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from sensorium.engines.contacts import contact_fault, is_contact, named, report_fault
from sensorium.engines.mujoco.elements import HIDDEN_PREFIX, Elements
from sensorium.engines.mujoco.sleep import disabled, sleeps
from sensorium.errors import ModelError, listed, nearest
from sensorium.spec import CONTACT_FIELDS, Requirement, contact_array

if TYPE_CHECKING:
    from sensorium.engines.base import Engine

CONTACT_PREFIX = f"{HIDDEN_PREFIX}contact/"
_OBJ = mujoco.mjtObj
_OBJECTS = {"geom": _OBJ.mjOBJ_GEOM, "body": _OBJ.mjOBJ_BODY, "subtree": _OBJ.mjOBJ_XBODY}
_BITS = {field: 1 << bit for bit, field in enumerate(CONTACT_FIELDS)}
_REDUCE = {"none": 0, "mindist": 1, "maxforce": 2, "netforce": 3}


def contacts(requirements: Iterable[Requirement]) -> list[Requirement]:
    """Return the CONTACT_REPORT requirements in a collection, sorted by the names of their arrays."""
    return sorted(filter(is_contact, requirements), key=contact_array)


def sensor_names(report: Requirement) -> list[str]:
    """Return the names in the model of a report's hidden sensors, one per primary; a name encodes all settings."""
    (kind, names), *rest = report.args
    return [f"{CONTACT_PREFIX}{contact_array(Requirement(report.kind, ((kind, (name,)), *rest)))}" for name in names]


def contact_sensors(model: Any, report: Requirement) -> list[int]:
    """Return the indices of a report's hidden sensors in a compiled model, -1 for missing ones."""
    return [int(mujoco.mj_name2id(model, _OBJ.mjOBJ_SENSOR, name)) for name in sensor_names(report)]


def add_contacts(spec: Any, requirements: Iterable[Requirement]) -> None:
    """Add the hidden sensors of CONTACT_REPORT requirements to an MjSpec, unless they exist.

    Raises:
        ModelError: a report is invalid, or names a geom or body that is not in the model.
    """
    present = {sensor.name for sensor in spec.sensors}
    for report in contacts(requirements):
        (kind, names), secondary, fields, reduce, slots = report.args
        if (why := report_fault(report) or _absent(spec, report)) is not None:
            raise ModelError(f"{report}: {why}")
        settings: dict[str, Any] = {
            "type": mujoco.mjtSensor.mjSENS_CONTACT,
            "objtype": _OBJECTS[kind],
            "intprm": [sum(_BITS[field] for field in fields), _REDUCE[reduce], slots],
        }
        if secondary is not None:
            settings |= {"reftype": _OBJECTS[secondary[0]], "refname": secondary[1]}
        for element, name in zip(names, sensor_names(report), strict=True):
            if name not in present:
                spec.add_sensor(name=name, objname=element, **settings)
                present.add(name)


def _absent(spec: Any, report: Requirement) -> str | None:
    for what, word, name in named(report):
        elements = spec.geoms if word == "geom" else spec.bodies
        known = [element.name for element in elements]
        if name not in known:
            there = "geom" if word == "geom" else "body"
            return f"{what}: the model has no {there} {name!r}.{nearest(name, known)} It has: {listed(known)}."
    return None


def contact_reason(engine: Engine, report: Requirement, named_by: Elements) -> str | None:
    """Return why a model can never provide a CONTACT_REPORT, or None; a sensor missing from the model does not count.

    Args:
        engine: engine, for the names.
        report: requirement to check.
        named_by: elements of the compiled model.
    """
    model = named_by.model
    for word in ("sensor", "contact", "constraint"):
        if disabled(model.opt, word.upper()):
            return f'the model has <flag {word}="disable"/>, which disables contact forces: remove it.'
    if (why := contact_fault(engine, report)) is not None:
        return why
    able = touchable(model)
    soft = _soft_bodies(model)
    for what, word, name in named(report):
        i = named_by.row("geom" if word == "geom" else "body", name)
        if word == "body" and i in soft:
            return (
                f"{what}: the body {name!r} is a vertex of the flex {soft[i]!r}. MuJoCo assigns a contact of the flex "
                "in full to each vertex near it, so sums would be wrong: name a 'subtree' that contains the whole "
                "flex, or use the object that touches it as the primary."
            )
        if (
            what == "primary"
            and sleeps(model.opt)
            and int(model.body_treeid[model.geom_bodyid[i] if word == "geom" else i]) < 0
        ):
            return (
                f"{what}: the {word} {name!r} is static, and MuJoCo omits its contacts with sleeping bodies: "
                'use the moving object as the primary and this one as the secondary, or remove <flag sleep="enable"/>.'
            )
        geoms, bodies = elements(model, word, i)
        if what == "secondary" and word == "subtree" and sleeps(model.opt):
            trees = model.body_treeid[sorted(bodies)]
            if (trees < 0).any() and (trees >= 0).any():  # MuJoCo then treats it as awake
                return (
                    f"{what}: the subtree of {name!r} has static and moving bodies, for which MuJoCo omits contacts "
                    "with sleeping bodies: omit the secondary, name a 'body' or 'geom', or remove "
                    '<flag sleep="enable"/>.'
                )
        if not geoms and not soft.keys() & bodies:
            hint = " Use the kind 'subtree' to include its descendants." if word == "body" else ""
            return f"{what}: the {word} {name!r} has no geoms, so nothing can touch it.{hint}"
        if geoms and not geoms & able and not soft.keys() & bodies:
            its = f"the geom {name!r} collides" if word == "geom" else f"no geom of the {word} {name!r} collides"
            with_ = "nothing" if word == "geom" else "anything"
            return (
                f"{what}: {its} with {with_} (contype and conaffinity are 0, and no pair names it): omit it, or "
                "enable its collisions."
            )
    return None


def touchable(model: Any) -> set[int]:
    """Return the geoms that can have contacts."""
    able = {int(geom) for geom in np.flatnonzero((model.geom_contype != 0) | (model.geom_conaffinity != 0))}
    return able | {int(geom) for pair in (model.pair_geom1, model.pair_geom2) for geom in np.ravel(pair)}


def _soft_bodies(model: Any) -> dict[int, str]:
    """Return the bodies that are vertices or nodes of flexible flexes: body -> name of the flex."""
    soft: dict[int, str] = {}
    for flex in range(model.nflex):
        bodies: set[int] = set()
        for kind in ("vert", "node"):
            start, count = (int(getattr(model, f"flex_{kind}{what}")[flex]) for what in ("adr", "num"))
            bodies.update(int(body) for body in getattr(model, f"flex_{kind}bodyid")[start : start + count])
        if len(bodies) > 1:
            name = mujoco.mj_id2name(model, _OBJ.mjOBJ_FLEX, flex) or f"flex_{flex}"
            soft.update(dict.fromkeys(bodies - {0}, name))
    return soft


def elements(model: Any, kind: str, i: int) -> tuple[set[int], set[int]]:
    """Return the geoms and the bodies of a geom, body or subtree."""
    if kind == "geom":
        return {i}, set()
    bodies = {i}
    if kind == "subtree":
        for body in range(i + 1, model.nbody):  # parents precede their children in MuJoCo
            if int(model.body_parentid[body]) in bodies:
                bodies.add(body)
    return {geom for geom in range(model.ngeom) if int(model.geom_bodyid[geom]) in bodies}, bodies
