"""The shapes of a scene, their labels, and their selection by sensors.

A sensor uses a selection of the shapes (`Targets`). Rays, probes, solids and images each have a `SceneView`, which
prepares selected shapes once for all environments and all sensors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from sensorium.cfg import ObjRef
from sensorium.compute import Compute
from sensorium.engines.base import Engine, NameKind
from sensorium.errors import ConfigError, Fault, SelectionError, listed, nearest
from sensorium.geometry.shapes import Element, Shape
from sensorium.world.select import WORLD, below_namespace, compiled, match_prim_path, scoped, without_positions

Geometry = Literal["visual", "collision", "all", "any"]
ViewT = TypeVar("ViewT", bound="SceneView")


@dataclass(frozen=True, slots=True)
class Targets:
    """Selection of the shapes that rays can hit.

    Args:
        geometry: ``"visual"`` (what a viewer shows by default), ``"collision"`` (shapes with contacts), ``"all"``
            (every visible shape) or ``"any"`` (every shape).
        groups: geom groups; None for all.
        include: full-match patterns of names of geoms or bodies, references, or paths of other simulators; None for
            all.
        labels: patterns of semantic labels; None for all.
        exclude: patterns, references or paths of excluded shapes.
        exclude_own: whether a mount ignores its own body.
        exclude_robot: whether it also ignores the other bodies of its robot, which are those of the same kinematic tree
            (of the same entity, if the engine provides no tree), unless `include` or `labels` select some.
        still: entries of `include` whose shapes must be static.
        elements: elements of the model whose shapes are candidates. Only cameras can use elements other than geoms.
    """

    geometry: Geometry = "visual"
    groups: tuple[int, ...] | None = None
    include: tuple[str | ObjRef, ...] | None = None
    labels: tuple[str, ...] | None = None
    exclude: tuple[str | ObjRef, ...] = ()
    exclude_own: bool = True
    exclude_robot: bool = False
    still: tuple[str, ...] = ()
    elements: tuple[Element, ...] = ("geom",)


@dataclass(frozen=True, slots=True)
class _Names:
    """Names of bodies and of shapes, for paths."""

    bodies: Sequence[str]
    shapes: Sequence[str]

    def names(self, kind: NameKind) -> Sequence[str]:
        """Return the names of the bodies, or for geoms the names of the shapes."""
        return {"body": self.bodies, "geom": self.shapes}.get(kind, ())

    def parent_body(self, body: int) -> None:
        """Return None: paths that consist of an entity are resolved separately."""


class SceneView:
    """The shapes of a scene in the form that one kind of query needs, built on demand; see `ShapeScene.view`.

    Args:
        scene: the shapes.
    """

    def __init__(self, scene: ShapeScene) -> None:
        self.scene, self.device = scene, scene.compute.device
        self._built: dict[Any, Any] = {}

    def _shared(self, key: Any, build: Callable[[], Any], own_of: Sequence[set[int]]) -> tuple[Any, NDArray[np.uint8]]:
        """Return the shapes of a selection, built once, and flags, 1 if a mount ignores an instance."""
        if key not in self._built:
            self._built[key] = build()
        bodies = self._built[key].bodies
        hidden = np.zeros((len(own_of), max(len(bodies), 1)), dtype=np.uint8)
        for mount, own in enumerate(own_of):
            hidden[mount, : len(bodies)] = np.isin(bodies, list(own))
        return self._built[key], hidden

    @property
    def nbytes(self) -> int:
        """Approximate bytes of the prepared shapes; they do not grow with the number of environments."""
        return 0


class ShapeScene:
    """The shapes of a scene for all of its sensors.

    Args:
        context: a `SensorContext`: engine, device, and semantic label to patterns of names of geoms or bodies, in
            addition to the shapes' own labels.

    Attributes:
        shapes: all shapes, with their labels.
    """

    def __init__(self, context: Any) -> None:
        self.engine: Engine = context.engine
        self.compute: Compute = context.compute
        self._given = {
            label: (patterns,) if isinstance(patterns, str) else tuple(patterns)
            for label, patterns in (context.semantics or {}).items()
        }
        self._views: dict[Callable[[ShapeScene], SceneView], Any] = {}

    def view(self, kind: Callable[[ShapeScene], ViewT]) -> ViewT:
        """Return the scene's one view of a class, created on first use."""
        if kind not in self._views:
            self._views[kind] = kind(self)
        return cast(ViewT, self._views[kind])

    def __repr__(self) -> str:
        moving = sum(not shape.is_static for shape in self.shapes)
        return f"ShapeScene({len(self.shapes)} shapes, {moving} of them moving)"

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """All shapes of the engine that rays can hit."""
        return self.engine.shapes()

    @cached_property
    def drawable(self) -> tuple[Shape, ...]:
        """`shapes`, then the engine's decorations, which only cameras can see; numbers of shapes are its indices."""
        return (*self.shapes, *self.engine.decorations())

    @cached_property
    def body_names(self) -> tuple[str, ...]:
        """Name of the body of each drawable shape; ``"world"`` for none, and empty for tendons and skins."""
        names = self.engine.names("body")
        rest = {"geom": "world", "site": "world", "tendon": "", "skin": ""}
        return tuple(names[shape.row] if shape.row >= 0 else rest[shape.element] for shape in self.drawable)

    @cached_property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """Semantic labels of each drawable shape: its own, and those whose patterns match its name or its body's name.

        Raises:
            SelectionError: a pattern matches nothing.
        """
        found = [list(shape.labels) for shape in self.drawable]
        for label, patterns in self._given.items():
            for i in self.matching(patterns, "Scene", f"semantics[{label!r}]"):
                if label not in found[i]:
                    found[i].append(label)
        return tuple(map(tuple, found))

    @cached_property
    def label_names(self) -> tuple[str, ...]:
        """All labels in use, sorted. A shape's semantic id is the index of its first label plus 1, or 0."""
        return tuple(sorted({label for labels in self.labels for label in labels}))

    @cached_property
    def semantic_ids(self) -> NDArray[np.int32]:
        """Semantic id of each drawable shape."""
        place = {label: k + 1 for k, label in enumerate(self.label_names)}
        return np.array([place[labels[0]] if labels else 0 for labels in self.labels], dtype=np.int32)

    def check_labels(self) -> None:
        """Raise `SelectionError` if a pattern of a given label matches nothing."""
        if self._given:
            self.labels  # noqa: B018

    def matching(
        self, patterns: Sequence[str | ObjRef], config: str, what: str, *, may_be_empty: bool = False
    ) -> list[int]:
        """Return the shapes for patterns or paths, which must match the names of shapes or bodies in full.

        Args:
            patterns: patterns, paths or references.
            config: for messages.
            what: the field, for messages.
            may_be_empty: whether the name of a body without shapes is allowed.

        Raises:
            SelectionError: no such name, or no shapes there that rays can hit.
        """
        found: dict[int, None] = {}
        bodies = self.engine.names("body")
        for given in patterns:
            prefix, own = scoped(without_positions(given, self.engine), bodies)
            pattern = f"{re.escape(prefix)}(?:{own})" if prefix else own
            is_path = pattern.startswith(("/", "{"))
            matches = self._on_path if is_path else self._by_name
            hits, is_known = matches(pattern, bodies, config, what)
            if not hits and not (is_known and may_be_empty):
                known = [*dict.fromkeys(filter(None, self.body_names)), *(shape.name for shape in self.shapes)]
                expected = "a body with shapes" if is_known else "the name of a body or a geom"
                hint = "" if is_known else nearest(pattern, known).strip()
                fix = f"{hint} Bodies and shapes that rays can hit: {listed(known)}.".strip()
                raise SelectionError(config, [Fault(what, repr(pattern), expected, fix)])
            found.update(dict.fromkeys(hits))
        return sorted(found)

    def _by_name(self, pattern: str, bodies: Sequence[str], config: str, field: str) -> tuple[list[int], bool]:
        """Return the shapes that match a pattern, and whether it matches any body or shape at all."""
        regex = compiled(pattern, config, field)
        pairs = zip(self.body_names, (shape.name for shape in self.drawable), strict=True)
        hits = [i for i, pair in enumerate(pairs) if any(pattern == name or regex.fullmatch(name) for name in pair)]
        return hits, bool(hits) or any(pattern == name or regex.fullmatch(name) for name in (*bodies, WORLD))

    def _on_path(self, path: str, bodies: Sequence[str], config: str, field: str) -> tuple[list[int], bool]:
        """Return the shapes below a path, and True: a path without a match is an error.

        A path names a body, a shape, an entity (the prefix of ``name/``), or everything: ``/World``, the namespace of
        the environments itself, or either with a wildcard.
        """
        rest = below_namespace(path, self.engine.num_envs, config, field)
        everything = list(range(len(self.drawable)))
        if rest in ("", ".*", "*"):
            return everything, True
        names = [shape.name for shape in self.drawable]
        entities = {name.partition("/")[0] for name in (*bodies, *names) if "/" in name}
        if "/" not in rest and rest not in bodies and rest not in names:
            try:
                own = {entity for entity in entities if re.fullmatch(rest, entity)}
            except re.error:
                own = set()  # `match_prim_path` reports
            if own:
                pairs = zip(self.body_names, names, strict=True)
                return [i for i, pair in enumerate(pairs) if any(n.partition("/")[0] in own for n in pair)], True
        kinds: tuple[NameKind, ...] = ("body", "geom")
        kind, found = match_prim_path(path, _Names(bodies, names), config, field, kinds=kinds)
        of = self.body_names if kind == "body" else names
        hits = [i for i in everything if of[i] in found]
        if not hits:  # a body without shapes: a shape may have the name
            hits = [i for i in everything if names[i].rpartition("/")[2] == rest.rpartition("/")[2]]
        return hits, True

    def select(self, targets: Targets, config: str) -> list[int]:
        """Return the numbers of the selected shapes.

        Raises:
            SelectionError: a pattern matches nothing, or no shape remains.
            ConfigError: a selected shape cannot be hit.
        """
        found = [i for i in self._named(targets, config) if self._is_wanted(self.drawable[i], targets)]
        for i in set(found) & set(self.matching(targets.still, config, "targets")):
            if not self.drawable[i].is_static:
                got = f"{self.drawable[i].name!r}, which moves with {self.body_names[i]!r}"
                fix = "Omit track_mesh_transforms=False, since moving shapes are always tracked."
                raise ConfigError(config, [Fault("targets", got, "static shapes", fix)])
        for i in found:
            if fault := self.drawable[i].fault:
                name = self.drawable[i].name
                fix = f"Exclude it: exclude=({name!r},)."
                can = "rays can hit" if self.drawable[i].element == "geom" else "cameras can draw"
                raise ConfigError.single(config, "targets", name, f"shapes that {can}: {fault}", fix)
        return found

    def _named(self, targets: Targets, config: str) -> list[int]:
        """Return the numbers of the shapes selected by names and labels, of any geometry."""
        keep = {i for i, shape in enumerate(self.drawable) if shape.element in targets.elements}
        if targets.include is not None:
            keep &= set(self.matching(targets.include, config, "targets"))
        if targets.labels is not None:
            keep &= set(self._labelled(targets.labels, config))
        if targets.exclude:
            keep -= set(self.matching(targets.exclude, config, "exclude", may_be_empty=True))
        return sorted(keep)

    def _is_wanted(self, shape: Shape, targets: Targets) -> bool:
        if targets.groups is not None and shape.group not in targets.groups:
            return False
        if targets.geometry == "collision":
            return shape.is_collision
        if targets.geometry == "visual" and targets.groups is None:
            return shape.is_visual and shape.is_visible
        return shape.is_visible or targets.geometry == "any"

    def _labelled(self, patterns: Sequence[str], config: str) -> Iterator[int]:
        for pattern in patterns:
            hits = [i for i, labels in enumerate(self.labels) if any(re.fullmatch(pattern, label) for label in labels)]
            if not hits:
                fix = f"{nearest(pattern, self.label_names).strip()} Labels: {listed(self.label_names)}; define others"
                fault = Fault(
                    "labels", repr(pattern), "a semantic label", f'{fix} by Scene(semantics={{"label": ...}}).'
                )
                raise SelectionError(config, [fault])
            yield from hits

    def seen(self, targets: Targets, own_bodies: Sequence[int], config: str) -> tuple[list[int], list[set[int]]]:
        """Return the shapes that at least one mount uses, and the bodies that each mount ignores."""
        chosen = self.select(targets, config)
        own_of = [self._own(body, targets) for body in own_bodies]
        everywhere = set[int]().union(*own_of).intersection(*own_of)  # shapes that every mount ignores are not needed
        left = [i for i in chosen if self.drawable[i].row not in everywhere]
        is_choice = targets.include is not None or targets.labels is not None
        # an empty world and a robot alone may have no targets, but an explicit choice may not be empty
        if (not chosen and self.drawable) or (is_choice and not left):
            known = listed([shape.name for shape in self.shapes])
            fix = f"Shapes in this model: {known}." if self.shapes else "This model has no shapes."
            if others := [] if chosen else self._named(targets, config):
                takes = "geometry='any'" if targets.groups is None else "geometry='any', include_geom_groups=None"
                fix = (
                    f"Give {takes} for every shape; not selected are {listed([self.drawable[i].name for i in others])}."
                )
            if chosen:
                fix = (
                    f"Give exclude_parent_body=False to use its own {listed([self.drawable[i].name for i in chosen])}."
                )
            what = f"geometry={targets.geometry!r}, groups={targets.groups}"
            raise SelectionError(config, [Fault("targets", what, "at least one shape", fix)])
        return left, own_of

    def _own(self, body: int, targets: Targets) -> set[int]:
        """Return the rows of the bodies that a mount on a body ignores; the world is never one of them."""
        if body < 0 or not targets.exclude_own:
            return set()
        if not targets.exclude_robot or targets.include is not None or targets.labels is not None:
            return {body}
        names, root = self.engine.names("body"), body
        above = self.engine.parent_body(root)
        while above is not None and above >= 0:
            root, above = above, self.engine.parent_body(above)
        if above is None:
            entity = names[body].partition("/")[0]
            return {row for row, name in enumerate(names) if row == body or name.startswith(f"{entity}/")}
        return {names.index(name) for name in self.engine.subtree(names[root]) or (names[body],)}

    @property
    def nbytes(self) -> int:
        """Bytes of height fields, trees and indices, about; they do not grow with the number of environments."""
        return sum(view.nbytes for view in self._views.values())
