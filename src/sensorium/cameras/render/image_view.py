"""The shapes of one selection, prepared for images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from sensorium.cameras.render.clusters import Surface
from sensorium.cameras.render.structs import Placed
from sensorium.geometry.bounds import local_box
from sensorium.geometry.shapes import HeightField, Mesh, Shape


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


def build_image_view(
    shapes: Sequence[Shape], rows: Sequence[int], instances: Any, surface: Callable[[Any], Any], device: Any
) -> ImageView:
    """Return the shapes of a selection for images.

    Args:
        shapes: all shapes of the scene.
        rows: the selected ones, static ones first, segments of tendons last.
        instances: their `Instances`.
        surface: returns the `Surface` of a mesh or a height field.
        device: device of the arrays.
    """
    chosen = [shapes[i] for i in rows]
    geometries: dict[Mesh | HeightField, int] = {}
    index = [-1 if (g := shape.mesh or shape.hfield) is None else geometries.setdefault(g, len(geometries))
             for shape in chosen]  # fmt: skip
    row = np.full(max(len(shapes), 1), -1, np.int32)
    row[list(rows)] = np.arange(len(rows))
    half = np.array([local_box(shape)[1] for shape in chosen]).reshape(-1, 3)
    placed = Placed()
    placed.instances = instances
    placed.half = wp.array(np.minimum(half * (1.0 + 1e-5), 1e30).astype(np.float32), dtype=wp.vec3, device=device)
    placed.surface = wp.array(np.array(index, np.int32), dtype=wp.int32, device=device)
    placed.row = wp.array(row, dtype=wp.int32, device=device)
    tendons = [i for i, shape in enumerate(shapes) if shape.element == "tendon"]
    segments = np.array([tendons.index(i) for i in rows if shapes[i].element == "tendon"], np.int32)
    placed.segments = len(rows) - len(segments)
    surfaces = [surface(geometry) for geometry in geometries]
    return ImageView(
        list(rows),
        np.array([shape.row for shape in chosen], dtype=np.int32),
        segments,
        placed,
        wp.array(surfaces, dtype=Surface, device=device) if surfaces else wp.zeros(0, dtype=Surface, device=device),
        frozenset(shape.kind for shape in chosen),
        max((len(g.faces) for g in geometries if isinstance(g, Mesh)), default=0),
    )
