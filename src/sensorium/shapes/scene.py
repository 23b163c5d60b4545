"""The shapes of a scene for rays: static shapes are stored once for all environments and all sensors.

A sensor uses a selection of the shapes (`Targets`). Sensors with the same selection share trees and indices, and all
sensors share meshes and height fields.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import warp as wp
from numpy.typing import NDArray

from sensorium.cameras.render.clusters import build_clusters, triangles_of
from sensorium.cameras.render.image_view import ImageView, build_image_view
from sensorium.cameras.render.looks import SceneLooks
from sensorium.cfg import ObjRef
from sensorium.compute import Compute
from sensorium.engines.base import Engine, NameKind
from sensorium.errors import ConfigError, Fault, ModelError, SelectionError, SensoriumWarning, listed, nearest
from sensorium.geometry.bounds import bounding_sphere, is_upright, ray_tree_of
from sensorium.geometry.hfield import HFields, build_hfields
from sensorium.geometry.ray_structs import Instances, Surroundings
from sensorium.geometry.shapes import KINDS, Element, HeightField, Mesh, Shape
from sensorium.geometry.solid_grid import PreparedMeshes, build_solids
from sensorium.geometry.solid_walk import Solids
from sensorium.geometry.transforms import rotation
from sensorium.shapes.ray_static import IndexKind, Static, building
from sensorium.world.select import WORLD, below_namespace, compiled, match_prim_path, scoped, without_positions

Geometry = Literal["visual", "collision", "all", "any"]


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


def _hidden(own_of: Sequence[set[int]], bodies: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Return flags, 1 if a mount ignores an instance, `[mount, instance]`; at least one column."""
    hidden = np.zeros((len(own_of), max(len(bodies), 1)), dtype=np.uint8)
    for mount, own in enumerate(own_of):
        hidden[mount, : len(bodies)] = np.isin(bodies, list(own))
    return hidden


@dataclass(frozen=True, slots=True)
class SolidView:
    """Solid shapes of one selection.

    Attributes:
        shapes: number in the scene of the shape of each instance row.
        instances: the shapes, static ones first.
        bodies: row of the body of each, -1 for the world.
        solids: their meshes with signed distances.
    """

    shapes: list[int]
    instances: Instances
    bodies: NDArray[np.int32]
    solids: Solids


@dataclass(slots=True)
class View:
    """Shapes of one selection, for rays.

    Attributes:
        shapes: number in the scene of the shape of each instance row.
        instances: the shapes that are tested individually.
        moving: number of moving shapes.
        rows_of_body: body row to instance rows.
    """

    shapes: list[int]
    instances: Instances
    moving: int
    bodies: NDArray[np.int32]
    _parts: Static
    _built: dict[str, Surroundings] = field(default_factory=dict)

    @property
    def met(self) -> list[int]:
        """Numbers of all shapes that rays can hit, static ones included."""
        return sorted({*self.shapes, *self._parts.rows, *self._parts.meshes})

    @property
    def is_upright(self) -> bool:
        """Whether vertical rays find the heights of all static height fields by look-ups."""
        fields = (shape for i in self._parts.rows if (shape := self._parts.shapes[i]).kind == "hfield")
        return all(is_upright(shape.quat) for shape in fields)

    def indexed(self) -> Surroundings:
        """Return the static shapes for vertical rays, with the 2-D index instead of the tree."""
        return self._surroundings("vertical")

    def slanted(self) -> Surroundings:
        """Return the static shapes for rays in any direction: terrain as a grid to walk, all others as a tree."""
        return self._surroundings("walk" if self._parts.is_walked else "tree")

    @property
    def surroundings(self) -> Surroundings:
        """The static shapes, as a tree."""
        return self._surroundings("tree")

    def _surroundings(self, kind: IndexKind) -> Surroundings:
        if kind not in self._built:
            self._built[kind] = self._parts.surroundings(kind)
        return self._built[kind]


class RayScene:
    """The shapes of a scene for all sensors that cast rays; data structures are built on demand.

    Args:
        engine: the engine with the shapes.
        compute: device.
        labels: semantic label to patterns of names of geoms or bodies, in addition to the shapes' own labels.
        varied: quantities of looks that are set per environment, see `geometry.appearance.VARIED`.

    Attributes:
        shapes: all shapes, with their labels.
    """

    def __init__(
        self,
        engine: Engine,
        compute: Compute,
        labels: Mapping[str, str | Sequence[str]] | None = None,
        varied: Collection[str] = (),
    ) -> None:
        self._engine, self._compute, self._varied = engine, compute, varied
        self._given = {
            label: (patterns,) if isinstance(patterns, str) else tuple(patterns)
            for label, patterns in (labels or {}).items()
        }
        self._views: dict[Any, View] = {}
        self._solids: dict[Any, SolidView] = {}
        self._images: dict[Any, ImageView] = {}
        self._surfaces: dict[Mesh | HeightField, Any] = {}
        self._surface_bytes = 0
        self._prepared = PreparedMeshes(compute.device)
        self._meshes: dict[tuple[int, tuple[float, ...]], tuple[Mesh, wp.Mesh]] = {}

    def __repr__(self) -> str:
        moving = sum(not shape.is_static for shape in self.shapes)
        return f"RayScene({len(self.shapes)} shapes, {moving} of them moving)"

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """All shapes of the engine that rays can hit."""
        return self._engine.shapes()

    @cached_property
    def drawable(self) -> tuple[Shape, ...]:
        """`shapes`, then the engine's decorations, which only cameras can see; numbers of shapes are its indices."""
        return (*self.shapes, *self._engine.decorations())

    @cached_property
    def looks(self) -> SceneLooks:
        """Colours, textures and lights, for cameras that compute colours."""
        return SceneLooks(self._engine, self.drawable, self._compute, self._varied)

    @cached_property
    def body_names(self) -> tuple[str, ...]:
        """Name of the body of each drawable shape; ``"world"`` for none, and empty for tendons and skins."""
        names = self._engine.names("body")
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
        bodies = self._engine.names("body")
        for given in patterns:
            prefix, own = scoped(without_positions(given, self._engine), bodies)
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
        rest = below_namespace(path, self._engine.num_envs, config, field)
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

    def view(self, targets: Targets, own_bodies: Sequence[int], config: str) -> tuple[View, NDArray[np.uint8]]:
        """Return the shapes for a sensor, and which of its instance rows are hidden from each of its mounts.

        Args:
            targets: its selection.
            own_bodies: row of the body of each mount, -1 for the world, which never counts as a mount's own body.
            config: for messages.

        Returns:
            The view, and uint8 `[mount, instance]`, 1 if a mount ignores an instance.

        Raises:
            SelectionError: nothing matches, or all selected shapes are the sensor's own.
            ConfigError: a selected shape cannot be hit.
        """
        chosen, own_of = self._seen(targets, own_bodies, config)
        own = set[int]().union(*own_of)
        single = tuple(i for i in chosen if self.shapes[i].is_static and self.shapes[i].row in own)
        key = (tuple(chosen), single)
        if key not in self._views:
            self._views[key] = self._build(chosen, set(single))
        view = self._views[key]
        return view, _hidden(own_of, view.bodies)

    def solids(
        self, targets: Targets, own_bodies: Sequence[int], config: str, *, with_inside: bool = True
    ) -> tuple[SolidView, NDArray[np.uint8]]:
        """Return the solid shapes for a sensor, and which of them are hidden from each of its mounts.

        Args:
            targets: its selection.
            own_bodies: as for `view`.
            config: for messages.
            with_inside: whether signed distances are needed; otherwise meshes may be open, and are not in `solids`.

        Returns:
            The shapes, and uint8 `[mount, instance]`, 1 if a mount ignores an instance.

        Raises:
            SelectionError: nothing matches, or all selected shapes are the sensor's own.
            ConfigError: a selected shape has no known surface.
            ModelError: a selected mesh is not closed, so that it has no inside.
        """
        chosen, own_of = self._seen(targets, own_bodies, config)
        rows = sorted(chosen, key=lambda i: not self.shapes[i].is_static)
        key = (tuple(rows), with_inside)
        if key not in self._solids:
            found = [self.shapes[i].mesh if with_inside else None for i in rows]
            meshes = [None if m is None else (m, self.shapes[i].scale) for i, m in zip(rows, found, strict=True)]
            instances = self._instances(rows, sum(bool(self.shapes[i].is_static) for i in rows))
            bodies = np.array([self.shapes[i].row for i in rows], dtype=np.int32)
            triangles = sum(len(mesh.faces) for mesh in {id(m): m for m in found if m is not None}.values())
            with building("signed distances", triangles):
                try:
                    solids = build_solids(meshes, self._compute.device, self._prepared)
                except ModelError as error:
                    pairs = zip(rows, found, strict=True)
                    name = next(self.shapes[i].name for i, m in pairs if m is not None and repr(m.name) in str(error))
                    fix = f"Give exclude=({name!r},), or geometry='collision' if it is visual only."
                    raise ModelError(f"{config}: {error} {fix}") from None
            self._solids[key] = SolidView(rows, instances, bodies, solids)
        view = self._solids[key]
        return view, _hidden(own_of, view.bodies)

    def images(self, targets: Targets, own_bodies: Sequence[int], config: str) -> tuple[ImageView, NDArray[np.uint8]]:
        """Return the shapes for a camera, and which of its instance rows are hidden from each of its mounts.

        Args:
            targets: its selection.
            own_bodies: as for `view`.
            config: for messages.

        Raises:
            SelectionError: nothing matches, or all selected shapes are the sensor's own.
            ConfigError: a selected shape cannot be hit.

        Warns:
            SensoriumWarning: once per scene, if the engine lacks a part of its model that cameras would see.
        """
        if not self._images and (notice := self._engine.camera_notice()):
            warnings.warn(notice, SensoriumWarning, stacklevel=2)
        chosen, own_of = self._seen(targets, own_bodies, config)
        rows = sorted(chosen, key=lambda i: (not self.drawable[i].is_static, self.drawable[i].element == "tendon"))
        key = tuple(rows)
        if key not in self._images:
            instances = self._instances(rows, sum(bool(self.drawable[i].is_static) for i in rows))
            self._images[key] = build_image_view(self.drawable, rows, instances, self.surface, self._compute.device)
        view = self._images[key]
        return view, _hidden(own_of, view.bodies)

    def _seen(self, targets: Targets, own_bodies: Sequence[int], config: str) -> tuple[list[int], list[set[int]]]:
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
        names, root = self._engine.names("body"), body
        above = self._engine.parent_body(root)
        while above is not None and above >= 0:
            root, above = above, self._engine.parent_body(above)
        if above is None:
            entity = names[body].partition("/")[0]
            return {row for row, name in enumerate(names) if row == body or name.startswith(f"{entity}/")}
        return {names.index(name) for name in self._engine.subtree(names[root]) or (names[body],)}

    # Building ---------------------------------------------------------------------------------------------------------

    @cached_property
    def fields(self) -> HFields:
        """All height fields."""
        return build_hfields(list(self._field_rows), self._compute.device)

    @cached_property
    def _field_rows(self) -> dict[HeightField, int]:
        fields = dict.fromkeys(shape.hfield for shape in self.shapes if shape.hfield is not None)
        return {each: row for row, each in enumerate(fields) if each is not None}

    def mesh(self, mesh: Mesh, scale: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> wp.Mesh:
        """Return the tree of a mesh in its own frame, scaled on request; equal requests share it."""
        key = (id(mesh), scale)
        known = self._meshes.get(key)
        if known is None:
            with building(f"mesh {mesh.name!r}", len(mesh.faces)):
                points = mesh.vertices * np.array(scale)
                known = self._meshes[key] = (mesh, ray_tree_of(points, mesh.faces, self._compute.device))
        return known[1]

    def surface(self, geometry: Mesh | HeightField) -> Any:
        """Return the triangles of a mesh or a height field for drawing, a `Surface`; equal requests share it."""
        if geometry not in self._surfaces:
            device = self._compute.device
            if isinstance(geometry, Mesh):
                clusters = build_clusters(geometry.vertices, geometry.faces)
                points = self.mesh(geometry).points
            else:
                vertices, faces, ids = triangles_of(geometry)
                clusters = build_clusters(vertices, faces, ids)
                points = wp.array(vertices.astype(np.float32), dtype=wp.vec3, device=device)
            self._surfaces[geometry] = clusters.surface(points, device)
            self._surface_bytes += clusters.nbytes
        return self._surfaces[geometry]

    def _build(self, chosen: Sequence[int], single: set[int]) -> View:
        shapes = self.shapes
        still = [i for i in chosen if shapes[i].is_static]
        # static triangles are in one tree; analytic shapes, height fields and exclusions are tested individually
        rows = [i for i in still if shapes[i].kind != "mesh" or i in single]
        static = len(rows)
        rows += [i for i in chosen if not shapes[i].is_static]
        instances = self._instances(rows, static)
        parts = Static(shapes, self._compute.device, [i for i in still if i not in rows], rows[:static], single)
        bodies = np.array([shapes[i].row for i in rows], dtype=np.int32)
        return View(rows, instances, len(rows) - static, bodies, parts)

    def _instances(self, rows: Sequence[int], static: int) -> Instances:
        shapes, device = [self.drawable[i] for i in rows], self._compute.device
        meshes = {id(shape.mesh): shape.mesh for shape in shapes if shape.mesh is not None}
        starts, ids, start = {}, [np.zeros(0, np.int32)], 0
        for key, mesh in meshes.items():
            starts[key] = start
            ids.append(mesh.face_ids)
            start += len(mesh.face_ids)
        spheres = [bounding_sphere(shape) for shape in shapes]

        def array(values: Sequence[Any], dtype: Any, width: int = 0) -> Any:
            shape = (len(values), width) if width else (len(values),)
            kind = {wp.int32: np.int32, wp.uint64: np.uint64}.get(dtype, np.float32)
            return wp.array(np.asarray(values, dtype=kind).reshape(shape), dtype=dtype, device=device)

        out = Instances()
        out.kind = array([KINDS.index(shape.kind) for shape in shapes], wp.int32)
        sizes = [shape.scale if shape.mesh is not None else (*shape.size, 0.0, 0.0, 0.0)[:3] for shape in shapes]
        out.size = array(sizes, wp.vec3, 3)
        out.mesh = array([0 if s.mesh is None else self.mesh(s.mesh).id for s in shapes], wp.uint64)
        out.field = array([-1 if s.hfield is None else self._field_rows[s.hfield] for s in shapes], wp.int32)
        out.upright = array([int(bool(s.is_static) and is_upright(s.quat)) for s in shapes], wp.int32)
        out.heading = array([rotation(shape.quat)[:2, 0] for shape in shapes], wp.vec2, 2)
        out.shape = array(list(rows), wp.int32)
        out.face_start = array([starts.get(id(shape.mesh), 0) for shape in shapes], wp.int32)
        out.face_id = array(np.concatenate(ids), wp.int32)  # type: ignore[arg-type]
        out.body = array([-1 if shape.is_static else shape.row for shape in shapes], wp.int32)
        out.pos = array([shape.pos for shape in shapes], wp.vec3, 3)
        out.quat = array([shape.quat for shape in shapes], wp.vec4, 4)
        out.centre = array([centre for centre, _ in spheres], wp.vec3, 3)
        out.radius = array([radius for _, radius in spheres], wp.float32)
        out.moving = static
        out.shape_body = array([shape.row for shape in self.drawable], wp.int32)
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of height fields, trees and indices, about; they do not grow with the number of environments."""
        trees = sum(tree.points.capacity + tree.indices.capacity for _, tree in self._meshes.values())
        heights = self.fields.heights.capacity + self.fields.blocks.capacity
        solids = self._prepared.nbytes if len(self._prepared) else 0
        return int(
            heights + trees + solids + self._surface_bytes + sum(view._parts.nbytes for view in self._views.values())
        )
