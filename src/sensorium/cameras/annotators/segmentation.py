"""Segmentations: the value of each pixel is that of its shape in a table, an id or the four bytes of a colour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import warp as wp

from sensorium.cameras.annotators.base import Annotator
from sensorium.cameras.camera_data import IMAGE
from sensorium.cameras.render.structs import HitRecord
from sensorium.cameras.semantics import Semantics, keyed, table_of
from sensorium.compute import Rows, kernel, masked_tid, place_of
from sensorium.measurement.record import Record
from sensorium.spec import Field

if TYPE_CHECKING:
    from sensorium.cameras.camera import Camera


@kernel(group="images")
def _look_up(rows: Rows, width: int, table: wp.array[wp.int32], hits: HitRecord, values: wp.array3d[wp.int32]) -> None:
    """Write the table's value of each pixel's shape; the first one is that of a miss."""
    env, mount, piece = masked_tid(rows)
    first = (rows.first + piece) * width
    for pixel in range(first, first + width):
        values[env, mount, pixel] = table[hits.shape[place_of(rows, env), mount, pixel] + 1]


IDS: Mapping[str, Callable[[Semantics], tuple[Sequence[int], Mapping[str, Mapping[int, Any]]]]] = {
    "semantic_segmentation": lambda semantics: (semantics.classes[0], {"idToLabels": semantics.classes[1]}),
    "instance_segmentation": lambda semantics: (
        semantics.instances[0],
        {"idToLabels": semantics.instances[1], "idToSemantics": semantics.instances[2]},
    ),
    "instance_id_segmentation": lambda semantics: (semantics.leaves[0], {"idToLabels": semantics.leaves[1]}),
}
"""Field -> id of each shape, and the texts of the ids by their keys in `info`."""


class Segmentation(Annotator):
    """`semantic_segmentation`, `instance_segmentation` and `instance_id_segmentation`."""

    types = tuple(IDS)

    def __init__(self, camera: Camera, names: tuple[str, ...]) -> None:
        super().__init__(camera, names)
        self._tables: dict[str, Any] = {}
        for name in names:
            ids, texts = IDS[name](camera.semantics)
            colorize = getattr(camera.cfg, f"colorize_{name}")
            self._tables[name] = torch.from_numpy(table_of(ids, colorize)).to(camera.device)
            self.labels[name] = {key: keyed(each, colorize) for key, each in texts.items()}

    @classmethod
    def sized(cls, name: str, field: Field, camera: Camera) -> Field:
        """Return the field of a colour, or of an id."""
        if not getattr(camera.cfg, f"colorize_{name}"):
            field = replace(field, shape=(1, 1, 1), axes=IMAGE, dtype="int32")
        return super().sized(name, field, camera)

    def annotate(self, record: Record, hits: Any, *, is_last: bool) -> None:
        """Write the values of a frame (one launch per field)."""
        camera, (height, width) = self.camera, self.camera.image_shape
        for name, table in self._tables.items():
            words = record[name].view(torch.int32).view(camera.num_envs, camera.mount.count, self.pixels)
            inputs = [width, wp.from_torch(table), hits]
            dim = (camera.mount.count, height)
            camera.compute_on.launch(_look_up, dim, inputs, [wp.from_torch(words)], split=True)
