"""Static shapes of a scene, built for rays and probes: trees of triangles and an index of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import warp as wp
from numpy.typing import NDArray

from sensorium.geometry.bounds import bounding_box, box_mesh, in_world, ray_tree_of
from sensorium.geometry.columns import build_columns
from sensorium.geometry.ray_structs import Surroundings
from sensorium.geometry.shapes import Shape
from sensorium.geometry.wide_tree import build_wide_tree

IndexKind = Literal["rays", "vertical", "nearest"]
"""What triangles are built for: rays in any direction, vertical rays, or nearest points."""
LARGE = 300_000
"""Number of static triangles from which a build shows its progress."""


@dataclass(slots=True)
class Static:
    """Static shapes of one view: the construction of their trees, and the objects that keep these alive.

    Attributes:
        shapes: all shapes of the scene.
        device: device of the trees.
        meshes: numbers of the shapes that are triangles of one tree.
        rows: numbers of the shapes that are tested individually.
        single: those of `rows` that some mount ignores.
        kept: objects that must live as long as the trees.
        nbytes: approximate bytes of the trees and indices.
    """

    shapes: Sequence[Shape]
    device: str
    meshes: list[int]
    rows: list[int]
    single: set[int]
    kept: list[Any] = field(default_factory=list)
    nbytes: int = 0

    def surroundings(self, kind: IndexKind) -> Surroundings:
        """Build the static shapes for one purpose."""
        device = self.device
        out = Surroundings()
        vertical = kind == "vertical"
        boxes = [i for i in self.rows if vertical and self.shapes[i].kind == "box" and i not in self.single]
        points, faces, of_shape, of_face = self._triangles((*self.meshes, *boxes))

        def ints(values: Any) -> Any:
            self.nbytes += np.asarray(values).nbytes
            return wp.array(np.asarray(values, dtype=np.int32), dtype=wp.int32, device=device)

        out.face_shape, out.face_id = ints(of_shape), ints(of_face)
        normal = np.zeros((0, 3), np.float32)
        is_wide = kind == "rays" and device == "cpu"
        if len(faces) and (vertical or is_wide):
            corners = points[faces]
            normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
            normal = (normal / np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-300)).astype(np.float32)
        out.face_normal = wp.array(normal, dtype=wp.vec3, device=device)
        self.nbytes += normal.nbytes
        if len(faces) and vertical:
            with building("the index of the static world", len(faces)) as progress:
                columns = build_columns(points, faces, progress)
            out.columns, out.is_indexed = columns.to(device), 1
            self.nbytes += columns.first.nbytes + columns.entries.nbytes + columns.triangles.nbytes
        elif len(faces):
            with building("the tree of the static world", len(faces)):
                if is_wide:
                    tree = build_wide_tree(points, faces)
                    out.tree = wp.uint64(tree.ptr)
                    self.nbytes += tree.capacity
                else:
                    tree = ray_tree_of(points, faces, device)
                    out.mesh = wp.uint64(tree.id)
                    self.nbytes += tree.points.capacity + tree.indices.capacity
            self.kept.append(tree)
        alone = [k for k, i in enumerate(self.rows) if self.shapes[i].kind in ("plane", "hfield")]
        boxed = [k for k, i in enumerate(self.rows) if k not in alone and i not in boxes]
        out.alone = ints(alone)
        out.bvh_row = ints(boxed)
        if boxed:
            bounds = [bounding_box(self.shapes[self.rows[k]]) for k in boxed]
            lower = wp.array(np.array([low for low, _ in bounds], np.float32), dtype=wp.vec3, device=device)
            upper = wp.array(np.array([high for _, high in bounds], np.float32), dtype=wp.vec3, device=device)
            bvh = wp.Bvh(lower, upper)
            self.kept += [bvh, lower, upper]
            out.bvh = wp.uint64(bvh.id)
        self.kept.append(out)
        return out

    def _triangles(self, shapes: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return vertices in the world, faces, and the shape and the face id of each face."""
        points, faces, of_shape, of_face, first = [np.zeros((0, 3))], [np.zeros((0, 3), np.int32)], [], [], 0
        for i in shapes:
            shape = self.shapes[i]
            mesh = shape.mesh if shape.mesh is not None else box_mesh(shape.size)
            points.append(in_world(shape, mesh.vertices * np.array(shape.scale)))
            mirrored = np.prod(shape.scale) < 0.0
            faces.append((mesh.faces[:, ::-1] if mirrored else mesh.faces) + first)
            of_shape.append(np.full(len(mesh.faces), i, np.int32))
            of_face.append(mesh.face_ids if shape.mesh is not None else np.full(len(mesh.faces), -1, np.int32))
            first += len(mesh.vertices)
        none = np.zeros(0, np.int32)
        return (
            np.concatenate(points),
            np.concatenate(faces).astype(np.int32),
            np.concatenate([none, *of_shape]),
            np.concatenate([none, *of_face]),
        )


@contextmanager
def building(what: str, triangles: int) -> Iterator[Any]:
    """Show the progress of a long build on a terminal; the value is a function of the fraction done, or None."""
    import sys

    if triangles < LARGE or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"Building {what}: {triangles:,} triangles", total=None)
        yield lambda share: bar.update(task, total=1.0, completed=share)
