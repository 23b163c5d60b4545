"""Grammar for selection by name.

A pattern is a full-match regular expression over full names; a list holds several patterns. Results are in the order of
the names in the model (for a list: in the order of the list). No match, or several where one was needed, is an error
that lists the existing and the nearest names.

`prim_path` of other simulators: ``{ENV_REGEX_NS}``, ``/World/envs/env_.*`` and ``/World`` are stripped, as is
``/World/envs/env_0`` where it is the only environment. The rest is looked up as ``entity/name``, then as an entity
alone, which means its root body, then as its leaf. An ambiguous leaf is an error; a trailing ``_*`` is a glob.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Protocol, cast

from sensorium.cfg import ObjRef
from sensorium.engines.base import Engine, FrameOnBody, NameKind
from sensorium.errors import Fault, PathError, SelectionError, listed, nearest, shown

WORLD = "world"

_FRAMED: tuple[NameKind, ...] = ("body", "site", "geom", "joint", "camera")
"""Kinds of elements with a frame."""
_ON_PATHS: tuple[NameKind, ...] = ("body", "site", "geom", "camera")
"""Kinds of elements that a path can name, in lookup order."""


class Named(Protocol):
    """Object with named elements: an engine, or a model that is not compiled yet."""

    def names(self, kind: NameKind) -> Sequence[str]:
        """Return all names of a kind in the order of the model."""

    def parent_body(self, body: int) -> int | None:
        """Return the row of a body's parent, -1 for the world; None if the kinematic tree is unknown."""


def compiled(pattern: str, config: str, field: str) -> re.Pattern[str]:
    """Return the regular expression of a field; raise `SelectionError` if it is invalid."""
    try:
        return re.compile(pattern)
    except re.error as error:
        fix = f"The regular expression is invalid: {error}."
        raise SelectionError(config, [Fault(field, repr(pattern), "a name or a regular expression", fix)]) from None


def scoped(pattern: str | ObjRef, names: Sequence[str]) -> tuple[str, str]:
    """Return the prefix of the names that a pattern is about, and the pattern of the rest of these names.

    The prefix is that of the reference's entity; empty without one, and in a model without prefixes.
    """
    if not isinstance(pattern, ObjRef):
        return "", pattern
    prefix = f"{pattern.entity}/" if pattern.entity is not None else ""
    return prefix if any(name.startswith(prefix) for name in names) else "", pattern.name


def matching(pattern: str | ObjRef, names: Sequence[str], config: str, field: str) -> list[str]:
    """Return the names that a pattern matches in full; within an entity it is matched without the prefix."""
    prefix, own = scoped(pattern, names)
    if prefix + own in names:
        return [prefix + own]
    regex = compiled(own, config, field)
    return [name for name in names if name.startswith(prefix) and regex.fullmatch(name[len(prefix) :])]


def match_names(
    pattern: str | ObjRef, names: Sequence[str], *, config: str, field: str, what: str, exactly_one: bool = False
) -> list[str]:
    """Return the names that a pattern matches in full, in the order of `names`; see `matching`.

    Args:
        pattern: an exact name or a regular expression, or a reference with one of these.
        names: all existing names.
        config: the config, for the message.
        field: its field.
        what: kind of element, for the message, e.g. ``"site"``.
        exactly_one: whether several matches are an error.

    Raises:
        SelectionError: no match, several where one was needed, or an invalid pattern.
    """
    found, text = matching(pattern, names, config, field), "".join(scoped(pattern, names))
    if not found:
        fix = f"{nearest(text, names).strip()} {plural(what).capitalize()} in this model: {listed(names)}.".strip()
        raise SelectionError(config, [Fault(field, repr(text), f"the name of a {what} in the model", fix)])
    if exactly_one and len(found) > 1:
        fix = f"It matches {listed(found)}. Give the name of one, or use {plural(field)!r} for a mount axis."
        raise SelectionError(config, [Fault(field, repr(text), f"exactly one {what}", fix)])
    return found


def find_names(
    keys: str | Sequence[str], names: Sequence[str], preserve_order: bool, *, config: str, what: str, once: bool = False
) -> tuple[list[int], list[str]]:
    """Return indices and names that keys match, for a sensor's `find_bodies`; a name may occur more than once.

    Args:
        keys: a name or full-match pattern, or several.
        names: all existing names.
        preserve_order: return them in the order of `keys`, not in that of `names`.
        config: the config, for the message.
        what: kind of element, for the message.
        once: whether two keys that match the same name are an error.

    Raises:
        SelectionError: a key matches nothing, or with `once` a name that another key also matches.
    """
    found: list[int] = []
    for key in (keys,) if isinstance(keys, str) else keys:
        matches = match_names(key, names, config=config, field="find_bodies", what=what)
        rows = [row for row, name in enumerate(names) if name in matches]
        if once and (twice := [names[row] for row in rows if row in found]):
            fix = f"Narrow one of the keys, since another one also matches {twice[0]!r}."
            raise SelectionError(config, [Fault("find_bodies", repr(key), "keys that match each body once", fix)])
        found += [row for row in rows if row not in found]
    if not preserve_order:
        found.sort()
    return found, [names[row] for row in found]


def entity_of(name: str) -> str:
    """Return the entity of a body: the part of its name before the first ``/``, empty where there is none."""
    entity, slash, _ = name.partition("/")
    return entity if slash else ""


def root_of(body: int, model: Named) -> int | None:
    """Return the ancestor attached to the world; None if the tree is unknown."""
    above = model.parent_body(body)
    while above is not None and above >= 0:
        body, above = above, model.parent_body(above)
    return None if above is None else body


def plural(word: str) -> str:
    """Return the plural of a selector or kind of element."""
    return "bodies" if word == "body" else f"{word}s"


def without_positions(pattern: str | ObjRef, engine: Named) -> str | ObjRef:
    """Return a pattern whose entity and element are given by name; a reference may give their positions.

    Raises:
        SelectionError: the model has no such position.
    """
    if not isinstance(pattern, ObjRef) or (pattern.index is None and not isinstance(pattern.entity, int)):
        return pattern
    names, entity = engine.names(cast(NameKind, pattern.type)), pattern.entity  # of the kinds that a selector takes
    if isinstance(entity, int):
        trees = _trees(engine)
        entity = _at([*trees], entity, "entity")
        names = names if f"{entity}/" in trees[entity][0] else trees[entity]
    found = matching(ObjRef(type=pattern.type, name=pattern.name, entity=entity), names, "ObjRef", "name")
    return "|".join(map(re.escape, found if pattern.index is None else [_at(found, pattern.index, "index")]))


def _trees(engine: Named) -> dict[str, list[str]]:
    """Return the bodies of each entity by its name; without prefixes, of each kinematic tree by that of its root."""
    bodies, trees = engine.names("body"), dict[str, list[str]]()
    for row, name in enumerate(bodies):
        root = root_of(row, engine)
        trees.setdefault(entity_of(name) or bodies[row if root is None else root], []).append(name)
    return trees


def _at(names: Sequence[str], index: int, field: str) -> str:
    if not 0 <= index < len(names):
        expected = f"a position from 0 to {len(names) - 1}: {listed(names)}"
        raise SelectionError("ObjRef", [Fault(field, str(index), expected)])
    return names[index]


def resolve_frames(
    selector: str, value: object, engine: Engine, *, config: str, field: str, exactly_one: bool = False
) -> tuple[list[str], list[FrameOnBody]]:
    """Return names and frames of all elements that a selector matches, in the order of the model (or list).

    Args:
        selector: ``"body"``, ``"sites"``, ``"prim_path"``, ...: kind of element.
        value: a pattern, an `ObjRef`, or a tuple of these; a path for ``"prim_path"``.
        engine: the engine with the names.
        config: the config, for the message.
        field: its field, for the message.
        exactly_one: whether several matches of one pattern are an error.

    Raises:
        SelectionError: no element, or too many, matched.
    """
    if selector == "prim_path":
        kind, names = match_prim_path(str(value), engine, config, field, exactly_one=exactly_one)
        return names, [_frame(engine, kind, name) for name in names]
    kind = next((kind for kind in _FRAMED if selector in (kind, plural(kind))), "body")  # of a link_name too
    names = []
    for pattern in value if isinstance(value, tuple) else (value,):
        if isinstance(pattern, ObjRef) and pattern.type != kind:
            fault = Fault(field, shown(pattern), f"a reference to a {kind}", f"Use {pattern.type}=... instead.")
            raise SelectionError(config, [fault])
        pattern = without_positions(pattern, engine)
        known = engine.names(kind)
        if kind == "body" and scoped(pattern, known) == ("", WORLD):
            names.append(WORLD)
            continue
        try:
            found = match_names(pattern, known, config=config, field=field, what=kind, exactly_one=exactly_one)
        except SelectionError as error:
            hint = _of_another_kind(pattern, kind, engine)
            if not hint:
                raise
            raise SelectionError(config, [replace(each, fix=f"{hint} {each.fix}") for each in error.faults]) from None
        names.extend(name for name in found if name not in names)
    if not names:
        raise SelectionError(config, [Fault(field, shown(value), f"at least one {kind}")])
    return names, [_frame(engine, kind, name) for name in names]


def _frame(engine: Engine, kind: NameKind, name: str) -> FrameOnBody:
    return FrameOnBody(-1) if name == WORLD and kind == "body" else engine.frame(kind, name)


def _of_another_kind(pattern: str | ObjRef, kind: NameKind, engine: Engine) -> str:
    """Return a hint if elements of another kind have exactly this name, or if the engine's model may lack bodies."""
    for other in _FRAMED:
        name = "".join(scoped(pattern, engine.names(other)))
        if other != kind and name in engine.names(other):
            return f"Write {other}={name!r} for the {other} of that name."
    return engine.merged_hint if kind == "body" else ""


def below_namespace(path: str, num_envs: int, config: str, field: str) -> str:
    """Return a path without the namespace of its environments, as a pattern; empty for the namespace itself.

    Raises:
        PathError: the path is that of one environment, and there are others.
    """
    one = re.match(r"/World/envs/env_(\d+)(.*)", path)
    if one and (num_envs > 1 or int(one[1]) > 0):
        expected = f"a path in {'all environments' if num_envs > 1 else 'env_0, the only environment'}"
        raise PathError(config, [Fault(field, repr(path), expected, f"Write '{{ENV_REGEX_NS}}{one[2]}'.")])
    rest = re.sub(r"^(\{ENV_REGEX_NS\}|/World/envs/env_(\.\*|\d+|\*)|/World)", "", path).strip("/")
    return rest[:-1] + ".*" if rest.endswith("_*") else rest


def match_prim_path(
    path: str,
    engine: Named,
    config: str,
    field: str = "prim_path",
    *,
    exactly_one: bool = False,
    kinds: tuple[NameKind, ...] = _ON_PATHS,
) -> tuple[NameKind, list[str]]:
    """Return the kind and the names that a prim path of another simulator, or a pattern of paths, denotes.

    Bodies come before sites, geoms and cameras; the full ``entity/name`` before the leaf. An entity alone means its
    root body. Names are in the order of the model. A leaf alone never matches in several entities.

    Args:
        path: the path, with or without the namespace of its environments.
        engine: the engine with the names.
        config: the config, for the message.
        field: its field, for the message.
        exactly_one: whether several matches are an error.
        kinds: kinds of elements, in lookup order.

    Raises:
        PathError: no element matches, the leaf is ambiguous, or the path is an invalid pattern or that of one of
            several environments.
    """
    rest = below_namespace(path, getattr(engine, "num_envs", 1), config, field)  # a model that is not compiled has none
    if not rest:
        return "body", [WORLD]
    try:
        match = _match_path(rest, engine, kinds)
    except re.error as error:
        fault = Fault(field, repr(path), "a path or a pattern of paths", f"The regular expression is invalid: {error}.")
        raise PathError(config, [fault]) from None
    if match is None:
        leaf = rest.split("/")[-1]
        known = [name for kind in kinds for name in engine.names(kind)]
        fix = f"{nearest(leaf, known).strip()} Tried {rest!r} and {leaf!r}. Bodies: {listed(engine.names('body'))}."
        *most, last = kinds
        fault = Fault(field, repr(path), f"a {', '.join(most)} or {last} of the model", fix.strip())
        raise PathError(config, [fault])
    kind, found, way = match
    entities = set(map(entity_of, found))
    has_many = len(found) > len(entities) and way == "entity"
    if len(found) > 1 and (exactly_one or has_many or (way == "leaf" and len(entities) > 1)):
        expected = f"exactly one {kind}" if exactly_one else f"{plural(kind)} of one entity"
        expected = "an entity with one root body" if has_many else expected
        fix = f"It matches {listed(found)}. Write the path with its entity, or a selector such as {kind}=."
        raise PathError(config, [Fault(field, repr(path), expected, fix)])
    return kind, found


def _match_path(
    rest: str, engine: Named, kinds: tuple[NameKind, ...]
) -> tuple[NameKind, list[str], Literal["name", "entity", "leaf"]] | None:
    """Return kind and names that a path without its namespace matches, and which part of them it matches."""
    parts = rest.split("/")
    for candidate in (rest, f"{parts[0]}/{parts[-1]}"):
        for kind in kinds:
            if found := _full_matches(candidate, engine.names(kind)):
                return kind, found, "name"
    if len(parts) == 1 and (roots := _roots(rest, engine)):
        return "body", roots, "entity"
    for kind in kinds:
        if found := [name for name in engine.names(kind) if _full_matches(parts[-1], [name.split("/")[-1]])]:
            return kind, found, "leaf"
    return None


def _roots(pattern: str, engine: Named) -> list[str]:
    """Return the root bodies of the entities of a pattern; all their bodies if the kinematic tree is unknown."""
    bodies = engine.names("body")
    entities = list(map(entity_of, bodies))
    chosen = _full_matches(pattern, [entity for entity in dict.fromkeys(entities) if entity])
    found = []
    for row, name in enumerate(bodies):
        if entities[row] in chosen:
            parent = engine.parent_body(row)
            if parent is None or parent < 0 or entities[parent] != entities[row]:
                found.append(name)
    return found


def _full_matches(pattern: str, names: Sequence[str]) -> list[str]:
    return [pattern] if pattern in names else [name for name in names if re.fullmatch(pattern, name)]
