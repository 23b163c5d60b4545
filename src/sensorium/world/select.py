"""One grammar for choosing things by name.

A pattern is a full-match regular expression over full names; a list is a list of such. The order is the order of names
in the model (for a list: the order of the list). Matching nothing, or several where one was needed, is an error that
lists what exists and the nearest names.

`prim_path` of other simulators: ``{ENV_REGEX_NS}``, ``/World/envs/env_.*`` and ``/World`` are stripped; the rest is
tried as ``entity/name``, then as its leaf; an ambiguous leaf is an error; a trailing ``_*`` is a glob.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sensorium.cfg import MountedSensorCfg, ObjRef
from sensorium.engines.base import Engine, FrameOnBody, NameKind
from sensorium.errors import Fault, SelectionError, listed, nearest, shown

WORLD = "world"

_KIND_OF_SELECTOR: dict[str, NameKind] = {
    "site": "site", "sites": "site", "body": "body", "bodies": "body", "geom": "geom", "geoms": "geom",
    "joint": "joint", "joints": "joint", "camera": "camera", "cameras": "camera", "link_name": "body",
    "link_names": "body",
}  # fmt: skip


def match_names(
    pattern: str, names: Sequence[str], *, config: str, field: str, what: str, exactly_one: bool = False
) -> list[str]:
    """Return the names that a pattern matches in full, in the order of `names`.

    Args:
        pattern: an exact name or a regular expression.
        names: all names there are.
        config: the asking config, for the message.
        field: its field.
        what: kind of thing, for the message, e.g. ``"site"``.
        exactly_one: whether several matches are an error.

    Raises:
        SelectionError: no match, several where one was needed, or a broken pattern.
    """
    if pattern in names:
        return [pattern]
    try:
        regex = re.compile(pattern)
    except re.error as error:
        fault = Fault(field, repr(pattern), "a name or a regular expression", f"The pattern is broken: {error}.")
        raise SelectionError(config, [fault]) from None
    found = [name for name in names if regex.fullmatch(name)]
    if not found:
        fix = f"{nearest(pattern, names).strip()} {plural(what).capitalize()} in this model: {listed(names)}.".strip()
        raise SelectionError(config, [Fault(field, repr(pattern), f"the name of a {what} in the model", fix)])
    if exactly_one and len(found) > 1:
        fix = f"It matches {listed(found)}. Name one, or use {plural(field)!r} for a mount axis."
        raise SelectionError(config, [Fault(field, repr(pattern), f"exactly one {what}", fix)])
    return found


def plural(word: str) -> str:
    """Return the plural of a selector or kind of thing."""
    return "bodies" if word == "body" else f"{word}s"


def entity_pattern(reference: ObjRef, engine: Engine) -> str:
    """Return the full-name pattern of a reference: inside its entity, or the bare name in a model without prefixes."""
    if reference.entity is None:
        return reference.name
    prefixed = any(name.startswith(f"{reference.entity}/") for name in engine.names(reference.type))
    return f"{re.escape(reference.entity)}/(?:{reference.name})" if prefixed else reference.name


def resolve_mounts(cfg: MountedSensorCfg[object], engine: Engine) -> tuple[list[str], list[FrameOnBody]]:
    """Return names and frames of everything a mounted sensor sits on.

    Raises:
        SelectionError: nothing, or too much, was matched.
    """
    config = f"{type(cfg).__name__}({cfg.label!r})"
    selector, value = cfg.selector
    if selector == "prim_path":
        kind, name = resolve_prim_path(value, engine, config)
        return [name], [_frame(engine, kind, name)]
    kind = _KIND_OF_SELECTOR[selector]
    patterns = value if isinstance(value, tuple) else (value,)
    names: list[str] = []
    for pattern in patterns:
        if isinstance(pattern, ObjRef):
            if pattern.type != kind:
                fault = Fault(selector, shown(pattern), f"a reference to a {kind}", f"Use {pattern.type}=... instead.")
                raise SelectionError(config, [fault])
            pattern = entity_pattern(pattern, engine)
        if kind == "body" and pattern == WORLD:
            names.append(WORLD)
            continue
        found = match_names(
            pattern, engine.names(kind), config=config, field=selector, what=kind, exactly_one=not cfg.is_plural
        )
        names.extend(name for name in found if name not in names)
    if not names:
        raise SelectionError(config, [Fault(selector, shown(value), f"at least one {kind}")])
    return names, [_frame(engine, kind, name) for name in names]


def _frame(engine: Engine, kind: NameKind, name: str) -> FrameOnBody:
    return FrameOnBody(-1) if name == WORLD and kind == "body" else engine.frame(kind, name)


def resolve_prim_path(path: str, engine: Engine, config: str) -> tuple[NameKind, str]:
    """Return the kind and the name that a prim path of another simulator means here.

    Bodies come before sites, geoms and cameras; the full ``entity/name`` before the leaf.

    Raises:
        SelectionError: nothing matches, or the leaf is ambiguous.
    """
    rest = re.sub(r"^(\{ENV_REGEX_NS\}|/World/envs/env_(\.\*|\d+|\*)|/World)", "", path).strip("/")
    if not rest:
        return "body", WORLD
    if rest.endswith("_*"):
        rest = rest[:-1] + ".*"
    parts = rest.split("/")
    kinds: tuple[NameKind, ...] = ("body", "site", "geom", "camera")
    for candidate in (rest, f"{parts[0]}/{parts[-1]}", parts[-1]):
        for kind in kinds:
            found = [name for name in engine.names(kind) if re.fullmatch(candidate, name)]
            if not found and candidate == parts[-1]:
                found = [name for name in engine.names(kind) if re.fullmatch(candidate, name.split("/")[-1])]
            if len(found) > 1:
                fix = f"It matches {listed(found)}. Write the path with its entity, or a selector such as {kind}=."
                raise SelectionError(config, [Fault("prim_path", repr(path), f"exactly one {kind}", fix)])
            if found:
                return kind, found[0]
    known = [name for kind in kinds for name in engine.names(kind)]
    fix = (
        f"{nearest(parts[-1], known).strip()} Tried {rest!r} and {parts[-1]!r}. Bodies: {listed(engine.names('body'))}."
    )
    raise SelectionError(
        config, [Fault("prim_path", repr(path), "a body, site, geom or camera of the model", fix.strip())]
    )


__all__ = ["WORLD", "entity_pattern", "match_names", "resolve_mounts", "resolve_prim_path"]
