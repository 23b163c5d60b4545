"""Sides of a contact by name, in the form that a CONTACT_REPORT takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import field_validator

from sensorium.cfg import Cfg, ObjRef, bad
from sensorium.engines.base import Engine
from sensorium.errors import Fault, SelectionError, listed, nearest, shown
from sensorium.world.select import WORLD, Named, compiled, match_names, match_prim_path

Side = tuple[str, tuple[str, ...]]
"""Kind (``"geom"``, ``"body"`` or ``"subtree"``) and full names of one side of a contact."""

_METACHARACTERS = frozenset(".^$*+?{}[]\\|()")


class ContactMatch(Cfg):
    """One side of a contact: geoms, bodies or subtrees, by name."""

    mode: Literal["geom", "body", "subtree"]
    """``geom``: these geoms. ``body``: all geoms of these bodies. ``subtree``: also those of all their descendants."""
    pattern: str | tuple[str, ...]
    """Full-match regular expression over names, or a list of these. With `entity`, over the names within the entity."""
    entity: str | None = None
    """Entity (name prefix before ``/``); None means full names. In a model without prefixes, any entity means the whole
    model."""
    exclude: tuple[str, ...] = ()
    """Names to exclude from the matches of `pattern`, without the prefix of the entity. An entry with special
    characters of regular expressions is searched for within the names; any other entry is an exact name."""

    @field_validator("pattern", mode="before")
    @classmethod
    def _some(cls, value: Any) -> Any:
        if isinstance(value, Sequence) and not value:
            raise bad("a name or a pattern, or several")
        return tuple(value) if isinstance(value, list) else value

    @field_validator("exclude", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise bad("a list of names or patterns", f"Write exclude=({value!r},).")
        return value


def resolve_match(match: ContactMatch, model: Named, *, config: str, field: str) -> Side:
    """Return the kind and the full names that a `ContactMatch` matches, in the order of the model (or list).

    Args:
        match: the match.
        model: the model with the names.
        config: the config, for the message.
        field: its field, for the message.

    Raises:
        SelectionError: a pattern matches nothing, or a name that another pattern also matches; an exclusion matches
            nothing, or everything is excluded.
    """
    kind: Literal["geom", "body"] = "geom" if match.mode == "geom" else "body"
    known = model.names(kind)
    patterns = (match.pattern,) if isinstance(match.pattern, str) else match.pattern
    found: list[str] = []
    for pattern in patterns:
        if pattern == WORLD and kind == "body":
            matches = [WORLD]
        else:
            reference = ObjRef(type=kind, name=pattern, entity=match.entity)
            matches = match_names(reference, known, config=config, field=f"{field}.pattern", what=kind)
        twice = [name for name in matches if name in found]
        if twice:
            fix = f"Narrow one of the patterns, since another one also matches {listed(twice)}."
            expected = f"patterns that match each {kind} once"
            raise SelectionError(config, [Fault(f"{field}.pattern", repr(pattern), expected, fix)])
        found += matches
    kept = list(found)
    for entry in match.exclude:
        out = _excluded(entry, found, match.entity, config, field)
        if not out:
            fix = f"{nearest(entry, found).strip()} The pattern matches {listed(found)}."
            expected = f"the name of a {kind} that the pattern matches"
            raise SelectionError(config, [Fault(f"{field}.exclude", repr(entry), expected, fix.strip())])
        kept = [name for name in kept if name not in out]
    if not kept:
        fix = f"The pattern matches {listed(found)}, and all are excluded."
        raise SelectionError(
            config, [Fault(f"{field}.exclude", shown(match.exclude), f"at least one {kind} left", fix)]
        )
    return match.mode, tuple(kept)


def _excluded(entry: str, names: Iterable[str], entity: str | None, config: str, field: str) -> list[str]:
    """Return the names that one entry of `exclude` removes."""
    inside = {name: name.removeprefix(f"{entity}/") if entity else name for name in names}
    if not _METACHARACTERS.intersection(entry):
        return [name for name, short in inside.items() if entry in (short, name)]
    regex = compiled(entry, config, f"{field}.exclude")
    return [name for name, short in inside.items() if regex.search(short)]


def resolve_paths(paths: Iterable[str], model: Named, *, config: str, field: str) -> list[tuple[str, str]]:
    """Return the kind and the full name of every body or geom that prim paths match, in their order.

    Args:
        paths: paths or patterns of paths, with or without the namespace of their environments.
        model: the model with the names.
        config: the config, for the message.
        field: its field, for the message.

    Raises:
        SelectionError: a path matches nothing, or an element that another path also matches.
    """
    found: list[tuple[str, str]] = []
    for path in paths:
        kind, names = match_prim_path(path, model, config, field, kinds=("body", "geom"))
        for name in names:
            if (kind, name) in found:
                fix = f"Narrow one of the paths, since another one also matches the {kind} {name!r}."
                raise SelectionError(config, [Fault(field, repr(path), "paths that match each element once", fix)])
            found.append((kind, name))
    return found


def check_apart(side: Side, engine: Engine, *, config: str, field: str) -> None:
    """Raise `SelectionError` if one subtree of a side is inside another, since its contacts would count twice."""
    kind, names = side
    if kind != "subtree":
        return
    for name in names:
        inside = [other for other in names if other != name and other in (engine.subtree(name) or ())]
        if inside:
            fix = f"The subtree of {name!r} contains {listed(inside)}. Remove one of them."
            raise SelectionError(config, [Fault(field, shown(names), "subtrees that do not contain each other", fix)])


def short_names(names: Sequence[str]) -> list[str]:
    """Return the last parts of full names, or the full name if the last part is not unique."""
    leaves = [name.split("/")[-1] for name in names]
    return [name if leaves.count(leaf) > 1 else leaf for name, leaf in zip(names, leaves, strict=True)]
