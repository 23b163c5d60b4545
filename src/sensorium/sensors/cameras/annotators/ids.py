"""Numbers of the shapes and faces that the pixels show."""

from __future__ import annotations

from typing import Any

import warp as wp

from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.geometry.images.structs import HitRecord, Placed
from sensorium.geometry.primitives import MESH
from sensorium.measurement.record import Record
from sensorium.sensors.cameras.annotators.base import Annotator

GEOM = 5
"""Number of geoms among MuJoCo's types of objects (mjOBJ_GEOM)."""


@kernel(group="images")
def _ids(
    rows: Rows,
    width: int,
    placed: Placed,
    hits: HitRecord,
    shapes: wp.array3d[wp.int32],
    faces: wp.array3d[wp.int32],
    objects: wp.array3d[wp.int32],
) -> None:
    """Write shape, face, and shape with its type of object of each pixel, -1 for a miss."""
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
            objects[env, mount, 2 * pixel] = shape
            objects[env, mount, 2 * pixel + 1] = wp.where(shape < 0, -1, wp.static(GEOM))


class Ids(Annotator):
    """`geom_ids`, `face_ids` and `segmentation`."""

    def annotate(self, record: Record, hits: Any, *, is_last: bool) -> None:
        """Write the ids of a frame (one launch)."""
        camera = self.camera
        outputs = [self.image(record, name, wp.int32) for name in ("geom_ids", "face_ids")]
        outputs.append(self.image(record, "segmentation", wp.int32, channels=2))
        height, width = camera.image_shape
        inputs = [width, camera.cast.placed, hits]
        camera.compute_on.launch(_ids, (camera.mount.count, height), inputs, outputs, split=True)
