"""Static shapes of a scene, built for rays: a tree of triangles, a walk over terrain, an index of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import warp as wp
from numpy.typing import NDArray

from sensorium.geometry.bounds import bounding_box, box_mesh, in_world, ray_tree_of
from sensorium.geometry.columns import Columns, ColumnsIndex, build_columns
from sensorium.geometry.columns_walk import build_walk, is_terrain, may_be_terrain
from sensorium.geometry.ray_structs import Surroundings
from sensorium.geometry.shapes import Shape

IndexKind = Literal["tree", "walk", "vertical"]
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
    _columns: dict[tuple[int, ...], tuple[Columns, ColumnsIndex, Any]] = field(default_factory=dict)
    _is_walked: bool | None = None

    @property
    def is_walked(self) -> bool:
        """Whether the triangles form terrain, so that slanted rays are faster over the index than in a tree."""
        if self._is_walked is None:
            points, faces, _, _ = self._triangles(self.meshes)
            self._is_walked = bool(
                self.device == "cpu"
                and may_be_terrain(points, faces)
                and is_terrain(self._indexed(tuple(self.meshes), points, faces)[0], points, faces)
            )
        return self._is_walked

    def _indexed(
        self, shapes: tuple[int, ...], points: NDArray[Any], faces: NDArray[Any]
    ) -> tuple[Columns, ColumnsIndex, Any]:
        """Return the index of the triangles of shapes and their unit normals, built once for all kinds."""
        if shapes not in self._columns:
            with building("the index of the static world", len(faces)) as progress:
                columns = build_columns(points, faces, progress)
            corners = points[faces]
            normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
            normals /= np.linalg.norm(normals, axis=1, keepdims=True)
            normal = wp.array(normals.astype(np.float32), dtype=wp.vec3, device=self.device)
            self.nbytes += columns.first.nbytes + columns.entries.nbytes + columns.triangles.nbytes + normal.capacity
            self._columns[shapes] = columns, columns.to(self.device), normal
        return self._columns[shapes]

    def surroundings(self, kind: IndexKind) -> Surroundings:
        """Build the tree or the walk for rays in any direction, or the index for vertical rays."""
        device = self.device
        out = Surroundings()
        vertical = kind == "vertical"
        boxes = [i for i in self.rows if vertical and self.shapes[i].kind == "box" and i not in self.single]
        chosen = (*self.meshes, *boxes)
        points, faces, of_shape, of_face = self._triangles(chosen)

        def ints(values: Any) -> Any:
            self.nbytes += np.asarray(values).nbytes
            return wp.array(np.asarray(values, dtype=np.int32), dtype=wp.int32, device=device)

        none = ints(np.zeros(0))
        out.face_shape, out.face_id = (ints(of_shape), ints(of_face)) if kind == "tree" else (none, none)
        out.column_shape, out.column_face = (ints(of_shape), ints(of_face)) if kind != "tree" else (none, none)
        out.column_normal = wp.zeros(0, dtype=wp.vec3, device=device)
        if len(faces) and kind != "tree":
            columns, out.columns, out.column_normal = self._indexed(chosen, points, faces)
            if vertical:
                out.is_indexed = 1
            else:
                out.walk = walk = build_walk(columns, points, faces, device)
                out.is_walked = 1
                arrays = (
                    walk.heights,
                    walk.more,
                    walk.steep_first,
                    walk.steep_entries,
                    walk.steep,
                    walk.steep_triangle,
                )
                self.nbytes += sum(each.capacity for each in arrays)
        elif len(faces):
            with building("the tree of the static world", len(faces)):
                tree = ray_tree_of(points, faces, device)
            self.kept.append(tree)
            self.nbytes += tree.points.capacity + tree.indices.capacity
            out.mesh = wp.uint64(tree.id)
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
