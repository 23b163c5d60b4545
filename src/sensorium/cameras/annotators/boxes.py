"""Bounding boxes of the labelled objects, in the image and in space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import warp as wp

from sensorium.cameras.annotators.base import Annotator
from sensorium.cameras.camera_data import COUNT
from sensorium.cameras.render.boxes import (
    Objects,
    SolidBoxes,
    clear_extents,
    measure_alone,
    measure_visible,
    write_boxes,
    write_solid_boxes,
)
from sensorium.cameras.semantics import FIRST, keyed
from sensorium.errors import ConfigError
from sensorium.geometry.bounds import local_box, placed_box
from sensorium.geometry.shapes import Shape
from sensorium.geometry.transforms import rotation
from sensorium.measurement.record import Record
from sensorium.shapes.arrays import device_array
from sensorium.spec import Field

if TYPE_CHECKING:
    from sensorium.cameras.camera import Camera

COLUMNS = 5
"""Numbers of an extent: bounds and count of pixels."""


class Boxes(Annotator):
    """`bounding_box_2d_tight`, `bounding_box_2d_loose` and `bounding_box_3d`, each with its count."""

    types = tuple(f"bounding_box_{kind}{end}" for kind in ("2d_tight", "2d_loose", "3d") for end in ("", COUNT))

    def __init__(self, camera: Camera, names: tuple[str, ...]) -> None:
        super().__init__(camera, names)
        ids = camera.semantics.instances[0]
        classes, texts = camera.semantics.classes
        self.labels = {name: {"idToLabels": keyed(texts, False)} for name in names if not name.endswith(COUNT)}
        shapes, seen = camera.rays.drawable, set(camera.cast.view.shapes)
        visible = [(i, each) for i, each in enumerate(ids) if i in seen]
        owned = [[i for i, each in visible if each == FIRST + k] for k in range(self.count(camera))]
        self._objects = Objects()
        of_shape = [each - FIRST if each >= FIRST and i in seen else -1 for i, each in enumerate(ids)]
        self._put(self._objects, "of_shape", of_shape)
        self._put(self._objects, "first", np.cumsum([0, *map(len, owned)]))
        self._put(self._objects, "shape", [i for own in owned for i in own])
        self._put(self._objects, "label", [next((classes[i] for i in own), 0) for own in owned])
        self._solids = self._solid_boxes(shapes, owned) if "bounding_box_3d" in names else None
        size = (camera.num_envs, camera.mount.count, len(owned), COLUMNS)
        self._visible, self._alone = (
            wp.from_torch(torch.zeros(size, dtype=torch.int32, device=camera.device)) for _ in range(2)
        )

    @staticmethod
    def count(camera: Camera) -> int:
        """Return the number of labelled objects."""
        return max((id - FIRST + 1 for id in camera.semantics.instances[0]), default=0)

    @classmethod
    def sized(cls, name: str, field: Field, camera: Camera) -> Field:
        """Return the field with one row per labelled object."""
        if not cls.count(camera):
            fix = 'Label shapes: Scene(semantics={"class:box": "box"}).'
            raise ConfigError.single(camera.cfg.title, "data_types", name, "a scene with labelled shapes", fix)
        return field if name.endswith(COUNT) else replace(field, shape=(cls.count(camera), *field.shape[1:]))

    def _put(self, struct: Any, name: str, values: Any, dtype: Any = wp.int32) -> None:
        setattr(struct, name, device_array(values, dtype, self.camera.compute_on.wp_device))

    def _solid_boxes(self, shapes: Sequence[Shape], owned: Sequence[Sequence[int]]) -> SolidBoxes:
        """Return the parts of the objects: a shape alone has its own frame, several shapes that of their body."""
        first, parts = [0], []
        for own in owned:
            bodies: dict[tuple[int, int], list[int]] = {}
            for i in own:
                bodies.setdefault((shapes[i].row, i if shapes[i].element == "tendon" else -1), []).append(i)
            parts += [_part([shapes[i] for i in rows], rows[0]) for rows in bodies.values()]
            first.append(len(parts))
        solids = SolidBoxes()
        self._put(solids, "first", first)
        self._put(solids, "shape", [part[0] for part in parts])
        for number, (name, dtype) in enumerate(
            (("pos", wp.vec3), ("quat", wp.vec4), ("low", wp.vec3), ("high", wp.vec3)), 1
        ):
            self._put(solids, name, [part[number] for part in parts], dtype)
        return solids

    def annotate(self, record: Record, hits: Any, *, is_last: bool) -> None:
        """Measure the extents of the objects in a frame, and list their boxes (five launches or more)."""
        camera, cast, mounts = self.camera, self.camera.cast, self.camera.mount.count
        launch, objects, every = camera.compute_on.launch, self._objects, (mounts, self.pixels)
        for extents in (self._visible, self._alone):
            launch(clear_extents, (mounts, extents.shape[2]), list(camera.image_shape), [extents])
        launch(measure_visible, every, [cast.lens, objects, hits], [self._visible], split=True)
        scene = [cast.lens, cast.cameras, cast.placed, cast.arrays.fields, objects, cast.hidden]
        launch(measure_alone, every, scene, [self._alone], split=True)
        for name in self.names:
            if name.endswith(COUNT):
                continue
            boxes = wp.from_torch(record[name].view(camera.num_envs, mounts, -1, record[name].shape[-1]))
            count = wp.from_torch(record[name + COUNT].view(camera.num_envs, mounts))
            pair = [self._visible, self._alone]
            if self._solids is not None and name == "bounding_box_3d":
                launch(write_solid_boxes, (mounts,), [cast.placed, objects, self._solids, *pair], [boxes, count])
            else:
                extents = pair[name == "bounding_box_2d_loose"]
                launch(write_boxes, (mounts,), [objects, extents, *pair], [boxes, count])


def _part(shapes: Sequence[Shape], number: int) -> tuple[int, Any, Any, Any, Any]:
    """Return the number of a shape, the pose of the frame in that shape's, and the corners of the box in the frame."""
    if len(shapes) == 1:
        centre, half = local_box(shapes[0])
        return number, (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), centre - half, centre + half
    boxes = [placed_box(shape, rotation(shape.quat), np.array(shape.pos)) for shape in shapes]
    low, high = np.min([low for low, _ in boxes], axis=0), np.max([high for _, high in boxes], axis=0)
    w, x, y, z = shapes[0].quat
    return number, -rotation(shapes[0].quat).T @ np.array(shapes[0].pos), (w, -x, -y, -z), low, high
