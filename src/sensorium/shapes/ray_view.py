"""The shapes of a scene for rays and for probes of distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sensorium.geometry.bounds import is_upright
from sensorium.geometry.ray_structs import Instances, Surroundings
from sensorium.shapes.arrays import ShapeArrays
from sensorium.shapes.ray_static import IndexKind, Static
from sensorium.shapes.scene import SceneView, Targets


@dataclass(slots=True)
class RayView:
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
    static: Static
    _built: dict[str, Surroundings] = field(default_factory=dict)

    @property
    def met(self) -> list[int]:
        """Numbers of all shapes that rays can hit, static ones included."""
        return sorted({*self.shapes, *self.static.rows, *self.static.meshes})

    @property
    def is_upright(self) -> bool:
        """Whether vertical rays find the heights of all static height fields by look-ups."""
        fields = (shape for i in self.static.rows if (shape := self.static.shapes[i]).kind == "hfield")
        return all(is_upright(shape.quat) for shape in fields)

    def indexed(self) -> Surroundings:
        """Return the static shapes for vertical rays, with the 2-D index instead of the tree."""
        return self._surroundings("vertical")

    def slanted(self) -> Surroundings:
        """Return the static shapes for rays in any direction, with a tree of triangles."""
        return self._surroundings("rays")

    @property
    def surroundings(self) -> Surroundings:
        """The static shapes for nearest points, with a `wp.Mesh`."""
        return self._surroundings("nearest")

    def _surroundings(self, kind: IndexKind) -> Surroundings:
        if kind not in self._built:
            self._built[kind] = self.static.surroundings(kind)
        return self._built[kind]


class RayViews(SceneView):
    """The shapes of a scene for rays: sensors with the same selection share trees and indices."""

    def select(self, targets: Targets, own_bodies: Sequence[int], config: str) -> tuple[RayView, NDArray[np.uint8]]:
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
        chosen, own_of = self.scene.seen(targets, own_bodies, config)
        own = set[int]().union(*own_of)
        single = tuple(i for i in chosen if self.scene.shapes[i].is_static and self.scene.shapes[i].row in own)
        return self._shared((tuple(chosen), single), lambda: self._build(chosen, set(single)), own_of)

    def _build(self, chosen: Sequence[int], single: set[int]) -> RayView:
        shapes = self.scene.shapes
        still = [i for i in chosen if shapes[i].is_static]
        # static triangles are in one tree; analytic shapes, height fields and exclusions are tested individually
        rows = [i for i in still if shapes[i].kind != "mesh" or i in single]
        static = len(rows)
        rows += [i for i in chosen if not shapes[i].is_static]
        arrays = self.scene.view(ShapeArrays)
        instances = arrays.instances(rows)
        instances.tree = arrays.trees(rows)
        parts = Static(shapes, self.device, [i for i in still if i not in rows], rows[:static], single)
        bodies = np.array([shapes[i].row for i in rows], dtype=np.int32)
        return RayView(rows, instances, len(rows) - static, bodies, parts)

    @property
    def nbytes(self) -> int:
        """Bytes of the trees and indices of static shapes."""
        return sum(view.static.nbytes for view in self._built.values())
