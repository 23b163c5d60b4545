"""The shapes of one selection, prepared for images."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from sensorium.cameras.render.clusters import Surface, build_clusters, triangles_of
from sensorium.cameras.render.structs import Placed
from sensorium.errors import SensoriumWarning
from sensorium.geometry.bounds import local_box
from sensorium.geometry.shapes import HeightField, Mesh
from sensorium.shapes.arrays import ShapeArrays, device_array
from sensorium.shapes.scene import SceneView, ShapeScene, Targets


@dataclass(frozen=True, slots=True)
class ImageView:
    """Shapes of one selection, for images.

    Attributes:
        shapes: number in the scene of the shape of each instance row: static ones first, segments of tendons last.
        bodies: row of the body of each, -1 for the world.
        segments: row of each segment in the arrays of `TENDON_PATHS`.
        placed: the shapes for kernels, without the poses of the moving ones.
        surfaces: `Surface` of each mesh and height field.
        kinds: kinds of the shapes.
        most_triangles: triangles of the largest mesh.
    """

    shapes: list[int]
    bodies: NDArray[np.int32]
    segments: NDArray[np.int32]
    placed: Any
    surfaces: Any
    kinds: frozenset[str]
    most_triangles: int

    @property
    def met(self) -> list[int]:
        """Numbers of all shapes, sorted."""
        return sorted(self.shapes)


class ImageViews(SceneView):
    """The shapes of a scene for images: cameras with the same selection share them, and all share surfaces."""

    def __init__(self, scene: ShapeScene) -> None:
        super().__init__(scene)
        self._surfaces: dict[Mesh | HeightField, Any] = {}
        self._surface_bytes = 0

    def select(self, targets: Targets, own_bodies: Sequence[int], config: str) -> tuple[ImageView, NDArray[np.uint8]]:
        """Return the shapes for a camera, and which of its instance rows are hidden from each of its mounts.

        Args:
            targets: its selection.
            own_bodies: as for `RayViews.select`.
            config: for messages.

        Raises:
            SelectionError: nothing matches, or all selected shapes are the sensor's own.
            ConfigError: a selected shape cannot be hit.

        Warns:
            SensoriumWarning: once per scene, if the engine lacks a part of its model that cameras would see.
        """
        if not self._built and (notice := self.scene.engine.camera_notice()):
            warnings.warn(notice, SensoriumWarning, stacklevel=2)
        chosen, own_of = self.scene.seen(targets, own_bodies, config)
        shapes = self.scene.drawable
        rows = sorted(chosen, key=lambda i: (not shapes[i].is_static, shapes[i].element == "tendon"))
        return self._shared(tuple(rows), lambda: self._build(rows), own_of)

    def _build(self, rows: Sequence[int]) -> ImageView:
        shapes, device = self.scene.drawable, self.device
        chosen = [shapes[i] for i in rows]
        geometries: dict[Mesh | HeightField, int] = {}
        index = [-1 if (g := shape.mesh or shape.hfield) is None else geometries.setdefault(g, len(geometries))
                 for shape in chosen]  # fmt: skip
        row = np.full(max(len(shapes), 1), -1, np.int32)
        row[list(rows)] = np.arange(len(rows))
        half = np.array([local_box(shape)[1] for shape in chosen]).reshape(-1, 3)
        placed = Placed()
        placed.instances = self.scene.view(ShapeArrays).instances(rows)
        placed.half = device_array(np.minimum(half * (1.0 + 1e-5), 1e30), wp.vec3, device)
        placed.surface = device_array(index, wp.int32, device)
        placed.row = wp.array(row, dtype=wp.int32, device=device)
        tendons = [i for i, shape in enumerate(shapes) if shape.element == "tendon"]
        segments = np.array([tendons.index(i) for i in rows if shapes[i].element == "tendon"], np.int32)
        placed.segments = len(rows) - len(segments)
        surfaces = [self.surface(geometry) for geometry in geometries]
        return ImageView(
            list(rows),
            np.array([shape.row for shape in chosen], dtype=np.int32),
            segments,
            placed,
            wp.array(surfaces, dtype=Surface, device=device) if surfaces else wp.zeros(0, dtype=Surface, device=device),
            frozenset(shape.kind for shape in chosen),
            max((len(g.faces) for g in geometries if isinstance(g, Mesh)), default=0),
        )

    def surface(self, geometry: Mesh | HeightField) -> Any:
        """Return the triangles of a mesh or a height field for drawing, a `Surface`; equal requests share it."""
        if geometry not in self._surfaces:
            device = self.device
            if isinstance(geometry, Mesh):
                clusters = build_clusters(geometry.vertices, geometry.faces)
                points = self.scene.view(ShapeArrays).mesh(geometry).points
            else:
                vertices, faces, ids = triangles_of(geometry)
                clusters = build_clusters(vertices, faces, ids)
                points = wp.array(vertices.astype(np.float32), dtype=wp.vec3, device=device)
            self._surfaces[geometry] = out = Surface()
            out.points, out.triangles = points, len(clusters["face"])
            for name, values in clusters.items():
                setattr(out, name, wp.array(values, dtype=wp.vec4 if values.ndim > 1 else wp.int32, device=device))
                self._surface_bytes += values.nbytes
        return self._surfaces[geometry]

    @property
    def nbytes(self) -> int:
        """Bytes of the surfaces."""
        return self._surface_bytes
