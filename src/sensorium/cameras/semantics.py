"""Semantic labels of shapes, their selection by a filter, and the ids and colours of segmentations.

A label is written ``"type:label"``; a label without a type has the type ``"class"``. The grammar of a filter:

    filter = term { (";" | ",") term }        surfaces that fulfil any term
    term   = type ":" labels                  type is a name, or "*" for the labels of all types together
    labels = conj { "|" conj }
    conj   = atom { "&" atom }                binds before "|"
    atom   = [ "!" ] ( label | "*" )          "*" is any label of the type, "!" negates

A list of types ``["a", "b"]`` is the filter ``"a:*; b:*"``. A term only holds for a surface with a label of its type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sensorium.cfg import bad
from sensorium.errors import Fault, SelectionError, listed, nearest
from sensorium.pictures import colors_of

BACKGROUND, UNLABELLED, FIRST = 0, 1, 2
"""Ids of a segmentation: no surface, a surface without a label, and the first one with labels."""
WITHOUT_LABELS = {BACKGROUND: "BACKGROUND", UNLABELLED: "UNLABELLED"}
DEFAULT_TYPE = "class"
"""Type of a label that is given without one."""
_NAME = re.compile(r"[^\s:;,|&!*]+|\*")

Labels = tuple[tuple[str, str], ...]
"""Labels of a surface as (type, label)."""


@dataclass(frozen=True, slots=True)
class Atom:
    """One label of a filter; `label` may be ``"*"``."""

    label: str
    is_negated: bool


@dataclass(frozen=True, slots=True)
class Term:
    """Alternatives, each a conjunction of atoms, for the labels of one type; `type` may be ``"*"``."""

    type: str
    alternatives: tuple[tuple[Atom, ...], ...]

    def kept(self, labels: Labels) -> set[tuple[str, str]]:
        """Return the labels of a surface that fulfil the term; empty if it does not hold."""
        own = {each for each in labels if self.type in ("*", each[0])}
        names, found = {label for _, label in own}, set[tuple[str, str]]()
        for conjunction in self.alternatives if own else ():
            if all((atom.label in ("*", *names)) != atom.is_negated for atom in conjunction):
                wanted = {atom.label for atom in conjunction if not atom.is_negated}
                found |= {each for each in own if not wanted or "*" in wanted or each[1] in wanted}
        return found


def parse_filter(given: str | Sequence[str]) -> tuple[Term, ...]:
    """Return the terms of a semantic filter, text or a list of types; raise as a validator does if it is invalid."""
    form = "'type: label & !label | label; type: *'"
    if not isinstance(given, str):
        if not given:
            raise bad("at least one type of labels", "Give '*:*' for all labels.")
        for name in given:
            if not _NAME.fullmatch(name.strip()):
                raise bad(f"types of labels, e.g. ['class'], not {name!r}", f"Write a filter as one text: {form}.")
        given = ";".join(f"{name}:*" for name in given)
    return tuple(_parse_term(part, form) for part in re.split("[;,]", given))


def _parse_term(text: str, form: str) -> Term:
    kind, colon, labels = (part.strip() for part in text.partition(":"))
    if not colon or not _NAME.fullmatch(kind):
        raise bad(f"a filter such as {form}, not {text.strip()!r}", "Write each term as 'type: labels'.")
    alternatives = []
    for conjunction in labels.split("|"):
        atoms = []
        for atom in (part.strip() for part in conjunction.split("&")):
            name = atom.removeprefix("!").strip()
            if not _NAME.fullmatch(name):
                raise bad(f"a filter such as {form}, not the label {atom!r} in {text.strip()!r}")
            atoms.append(Atom(name, atom.startswith("!")))
        alternatives.append(tuple(atoms))
    return Term(kind, tuple(alternatives))


def typed(label: str) -> tuple[str, str]:
    """Return type and name of a label."""
    kind, colon, name = label.partition(":")
    return (kind.strip(), name.strip()) if colon else (DEFAULT_TYPE, label)


def check_filter(terms: Sequence[Term], known: set[tuple[str, str]], config: str) -> None:
    """Raise `SelectionError` if a filter names a type or a label that no shape has; negated labels are exempt."""
    for term in terms:
        types = {kind for kind, _ in known} | {DEFAULT_TYPE}
        names = {name for kind, name in known if term.type in ("*", kind)}
        wanted = [atom.label for each in term.alternatives for atom in each if not atom.is_negated]
        if term.type not in ("*", *types):
            word, what, of = term.type, "a type of labels", types
        elif missing := [name for name in wanted if name not in ("*", *names)]:
            word, what, of = missing[0], f"a label of type {term.type!r}", names
        else:
            continue
        fix = f"{nearest(word, of).strip()} The scene has {listed(sorted(of))}; define others by "
        fault = Fault("semantic_filter", repr(word), what, f'{fix}Scene(semantics={{"type:label": ...}}).'.strip())
        raise SelectionError(config, [fault])


class Semantics:
    """Ids of the shapes of a scene for segmentations, with the labels that a filter keeps.

    Args:
        labels: labels of each shape, as in `ShapeScene.labels`.
        names: name of each shape.
        rows: row of the body of each shape, -1 for the world.
        firsts: number of each shape; for the segments of a tendon, that of the first segment.
        bodies: name of each body.
        parent_of: row of the parent of a body, -1 for the world, None if unknown.
        given: the filter.
        config: for messages; None accepts a filter that names a type or a label that no shape has.

    Raises:
        SelectionError: the filter names a type or a label that no shape has.
    """

    def __init__(
        self,
        labels: Sequence[Sequence[str]],
        names: Sequence[str],
        rows: Sequence[int],
        firsts: Sequence[int],
        bodies: Sequence[str],
        parent_of: Callable[[int], int | None],
        given: str | Sequence[str],
        config: str | None,
    ) -> None:
        terms = parse_filter(given)
        all_labels = [tuple(typed(label) for label in each) for each in labels]
        if config is not None:
            check_filter(terms, {each for own in all_labels for each in own}, config)
        kept = [set[tuple[str, str]]().union(*(term.kept(own) for term in terms)) for own in all_labels]
        self.labels: list[Labels] = [
            tuple(each for each in own if each in keep) for own, keep in zip(all_labels, kept, strict=True)
        ]
        """Labels of each shape that the filter keeps."""
        self._names, self._rows, self._firsts, self._bodies, self._parent_of = names, rows, firsts, bodies, parent_of

    @cached_property
    def classes(self) -> tuple[list[int], dict[int, dict[str, str]]]:
        """Semantic id of each shape, one for each set of labels, and id -> labels by type, joined by commas."""
        ids, found = _numbered([frozenset(own) or None for own in self.labels])
        return ids, self._texts(found)

    def _texts(self, found: Mapping[int, int]) -> dict[int, dict[str, str]]:
        """Return id -> labels by type, for id -> one of its shapes."""
        own = {id: _by_type(self.labels[shape]) for id, shape in found.items()}
        return {id: {DEFAULT_TYPE: name} for id, name in WITHOUT_LABELS.items()} | own

    @cached_property
    def instances(self) -> tuple[list[int], dict[int, str], dict[int, dict[str, str]]]:
        """Instance id of each shape, id -> name of the object, and id -> its labels by type.

        Shapes of a body with equal labels are one object, together with the parent of the body if that has the same
        labels. Each labelled tendon, and each labelled shape of the world, is a separate object.
        """
        owners = [self._owner(shape) for shape in range(len(self.labels))]
        ids, found = _numbered(owners)
        names = dict(WITHOUT_LABELS)
        for id, shape in found.items():
            row = owners[shape][0]  # type: ignore[index]  # a shape with an id has an owner
            names[id] = self._bodies[row] if row >= 0 else self._names[shape]
        return ids, names, self._texts(found)

    @property
    def leaves(self) -> tuple[list[int], dict[int, str]]:
        """Id of each shape by itself, labelled or not, and id -> its name; the segments of a tendon have one id."""
        ids = [FIRST + shape for shape in self._firsts]
        return ids, WITHOUT_LABELS | dict(zip(ids, self._names, strict=True))

    @cached_property
    def _labels_of_body(self) -> dict[int, set[Labels]]:
        found: dict[int, set[Labels]] = {}
        for row, own in zip(self._rows, self.labels, strict=True):
            found.setdefault(row, set()).add(own)
        return found

    def _owner(self, shape: int) -> tuple[Any, ...] | None:
        """Return the identity of the object of a shape: row of its body and labels; None without labels."""
        own, row = self.labels[shape], self._rows[shape]
        if not own or row < 0:
            return (-1, self._firsts[shape]) if own else None
        above = self._parent_of(row)
        while above is not None and above >= 0:
            if (found := self._labels_of_body.get(above)) is not None:
                if own not in found:
                    break
                row = above
            above = self._parent_of(above)
        return row, own


def _numbered(keys: Sequence[Hashable | None]) -> tuple[list[int], dict[int, int]]:
    """Return ids for keys in order of appearance, `UNLABELLED` for None, and id -> its first position."""
    numbers: dict[Hashable, int] = {}
    first: dict[int, int] = {}
    ids = []
    for at, key in enumerate(keys):
        if key is None:
            ids.append(UNLABELLED)
            continue
        number = numbers.setdefault(key, FIRST + len(numbers))
        first.setdefault(number, at)
        ids.append(number)
    return ids, first


def _by_type(labels: Labels) -> dict[str, str]:
    """Return type -> labels, joined by commas."""
    found: dict[str, list[str]] = {}
    for kind, name in labels:
        found.setdefault(kind, []).append(name)
    return {kind: ",".join(names) for kind, names in found.items()}


def table_of(ids: Sequence[int], colorize: bool) -> NDArray[np.int32]:
    """Return the value of a pixel for each shape, int32 `[1 + shape]`, with the background first.

    Colours are the four bytes of a value, in the order of memory.
    """
    every = [BACKGROUND, *ids]
    if not colorize:
        return np.array(every, dtype=np.int32)
    return colors_of(every).view(np.int32)[:, 0]


def keyed(texts: Mapping[int, Any], colorize: bool) -> dict[str, Any]:
    """Return id as text -> its labels; for a colourised image the colour, such as ``"(0, 0, 0, 255)"``, instead."""
    return {str(tuple(colors_of(id).tolist()) if colorize else id): text for id, text in texts.items()}
