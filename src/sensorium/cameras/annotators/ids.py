"""Numbers of the shapes and faces that the pixels show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import warp as wp

from sensorium.cameras.annotators.base import Annotator
from sensorium.cameras.render.structs import HitRecord, Placed
from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.geometry.primitives import MESH
from sensorium.measurement.record import Record
from sensorium.shapes.arrays import device_array

if TYPE_CHECKING:
    from sensorium.cameras.camera import Camera

_TYPES = {"geom": 5, "site": 6, "tendon": 18, "skin": 11}
"""Number of each element among MuJoCo's types of objects (mjtObj)."""


@kernel(group="images")
def _ids(
    rows: Rows,
    width: int,
    placed: Placed,
    object_in: wp.array[wp.vec2i],
    hits: HitRecord,
    shapes: wp.array3d[wp.int32],
    faces: wp.array3d[wp.int32],
    objects: wp.array3d[wp.int32],
) -> None:
    """Write shape, face, and number and type of the object of each pixel, -1 for a miss."""
    env, mount, piece = masked_tid(rows)
    place = place_of(rows, env)
    first = (rows.first + piece) * width
    for pixel in range(first, first + width):
        shape = hits.shape[place, mount, pixel]
        if shapes.shape[0] > 0:
            shapes[env, mount, pixel] = shape
        if faces.shape[0] > 0:
            face = hits.face[place, mount, pixel]
            if face >= 0:
                row = placed.row[shape]
                if placed.instances.kind[row] == MESH:
                    face = placed.instances.face_id[placed.instances.face_start[row] + face]
            faces[env, mount, pixel] = face
        if objects.shape[0] > 0:
            object = wp.vec2i(-1, -1)
            if shape >= 0:
                object = object_in[shape]
            objects[env, mount, 2 * pixel] = object[0]
            objects[env, mount, 2 * pixel + 1] = object[1]


class Ids(Annotator):
    """`geom_ids`, `face_ids` and `segmentation`."""

    types = ("geom_ids", "face_ids", "segmentation")

    def __init__(self, camera: Camera, names: tuple[str, ...]) -> None:
        super().__init__(camera, names)
        shapes = camera.rays.drawable
        objects = [(i if s.number < 0 else s.number, _TYPES[s.element]) for i, s in enumerate(shapes)]
        self._objects = device_array(objects, wp.vec2i, camera.compute_on.wp_device)

    def annotate(self, record: Record, hits: Any, *, is_last: bool) -> None:
        """Write the ids of a frame (one launch)."""
        camera = self.camera
        outputs = [self.image(record, name, wp.int32) for name in ("geom_ids", "face_ids")]
        outputs.append(self.image(record, "segmentation", wp.int32, channels=2))
        height, width = camera.image_shape
        inputs = [width, camera.cast.placed, self._objects, hits]
        camera.compute_on.launch(_ids, (camera.mount.count, height), inputs, outputs, split="row")
