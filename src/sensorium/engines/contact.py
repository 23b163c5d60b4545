"""Validity of contact reports, independent of the engine."""

from __future__ import annotations

from sensorium.engines.base import Engine, NameKind
from sensorium.errors import UnknownNameError, listed, nearest, shown
from sensorium.spec import CONTACT_FIELDS, Requirement

_KINDS: dict[str, NameKind] = {"geom": "geom", "body": "body", "subtree": "body"}
_REDUCTIONS = ("none", "mindist", "maxforce", "netforce")


def is_contact(requirement: Requirement) -> bool:
    """Whether a requirement is a CONTACT_REPORT."""
    return requirement.kind == "CONTACT_REPORT"


def contact_fault(engine: Engine, report: Requirement) -> str | None:
    """Return why no engine with these geoms and bodies can provide a CONTACT_REPORT, or None."""
    return report_fault(report) or names_fault(engine, report)


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


def names_fault(engine: Engine, report: Requirement) -> str | None:
    """Return which geom or body of a CONTACT_REPORT the engine lacks, or None."""
    for what, word, name in named(report):
        try:
            engine.frame(_KINDS[word], name)
        except UnknownNameError:
            known = engine.names(_KINDS[word])
            return f"{what}: there is no {_KINDS[word]} {name!r}.{nearest(name, known)} There are: {listed(known)}."
    return None


def named(report: Requirement) -> list[tuple[str, str, str]]:
    """Return the elements of a CONTACT_REPORT: ``"primary"`` or ``"secondary"``, kind and name."""
    (kind, names), secondary = report.args[:2]
    primaries = [("primary", kind, name) for name in names]
    return primaries if secondary is None else [*primaries, ("secondary", *secondary)]
