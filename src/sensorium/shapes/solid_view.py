"""The solid shapes of a scene, with signed distances to their meshes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sensorium.errors import ModelError
from sensorium.geometry.ray_structs import Instances
from sensorium.geometry.solid_grid import PreparedMeshes, build_solids
from sensorium.geometry.solid_walk import Solids
from sensorium.shapes.arrays import ShapeArrays
from sensorium.shapes.ray_static import building
from sensorium.shapes.scene import SceneView, ShapeScene, Targets


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


class SolidViews(SceneView):
    """The solid shapes of a scene: sensors with the same selection share them, and all share prepared meshes."""

    def __init__(self, scene: ShapeScene) -> None:
        super().__init__(scene)
        self._prepared = PreparedMeshes(self.device)

    def select(
        self, targets: Targets, own_bodies: Sequence[int], config: str, *, with_inside: bool = True
    ) -> tuple[SolidView, NDArray[np.uint8]]:
        """Return the solid shapes for a sensor, and which of them are hidden from each of its mounts.

        Args:
            targets: its selection.
            own_bodies: as for `RayViews.select`.
            config: for messages.
            with_inside: whether signed distances are needed; otherwise meshes may be open, and are not in `solids`.

        Returns:
            The shapes, and uint8 `[mount, instance]`, 1 if a mount ignores an instance.

        Raises:
            SelectionError: nothing matches, or all selected shapes are the sensor's own.
            ConfigError: a selected shape has no known surface.
            ModelError: a selected mesh is not closed, so that it has no inside.
        """
        shapes = self.scene.shapes
        chosen, own_of = self.scene.seen(targets, own_bodies, config)
        rows = sorted(chosen, key=lambda i: not shapes[i].is_static)
        return self._shared((tuple(rows), with_inside), lambda: self._build(rows, config, with_inside), own_of)

    def _build(self, rows: list[int], config: str, with_inside: bool) -> SolidView:
        shapes = self.scene.shapes
        found = [shapes[i].mesh if with_inside else None for i in rows]
        meshes = [None if m is None else (m, shapes[i].scale) for i, m in zip(rows, found, strict=True)]
        instances = self.scene.view(ShapeArrays).instances(rows)
        bodies = np.array([shapes[i].row for i in rows], dtype=np.int32)
        triangles = sum(len(mesh.faces) for mesh in {id(m): m for m in found if m is not None}.values())
        with building("signed distances", triangles):
            try:
                solids = build_solids(meshes, self.device, self._prepared)
            except ModelError as error:
                pairs = zip(rows, found, strict=True)
                name = next(shapes[i].name for i, m in pairs if m is not None and repr(m.name) in str(error))
                fix = f"Give exclude=({name!r},), or geometry='collision' if it is visual only."
                raise ModelError(f"{config}: {error} {fix}") from None
        return SolidView(rows, instances, bodies, solids)

    @property
    def nbytes(self) -> int:
        """Bytes of the prepared meshes."""
        return self._prepared.nbytes if len(self._prepared) else 0
