"""Segmentations: the value of each pixel is that of its shape in a table, an id or the four bytes of a colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

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
    from sensorium.cameras.camera_cfg import CameraCfg


@kernel(group="images")
def _look_up(rows: Rows, width: int, table: wp.array[wp.int32], hits: HitRecord, values: wp.array3d[wp.int32]) -> None:
    """Write the table's value of each pixel's shape; the first one is that of a miss."""
    env, mount, piece = masked_tid(rows)
    first = (rows.first + piece) * width
    for pixel in range(first, first + width):
        values[env, mount, pixel] = table[hits.shape[place_of(rows, env), mount, pixel] + 1]


class Segmentation(Annotator):
    """Base of the segmentations, each with one field."""

    option: ClassVar[str]
    """Option of the config that selects colours."""

    def __init__(self, camera: Camera, names: tuple[str, ...]) -> None:
        super().__init__(camera, names)
        colorize = getattr(camera.cfg, self.option)
        ids, texts = self.ids(camera.semantics)
        self._table = torch.from_numpy(table_of(ids, colorize)).to(camera.device)
        self.labels = {names[0]: {key: keyed(each, colorize) for key, each in texts.items()}}

    @classmethod
    def field(cls, name: str, field: Field, cfg: CameraCfg) -> Field:
        """Return the field of a colour, or of an id."""
        return field if getattr(cfg, cls.option) else replace(field, shape=(1, 1, 1), axes=IMAGE, dtype="int32")

    def ids(self, semantics: Semantics) -> tuple[Sequence[int], Mapping[str, Mapping[int, Any]]]:
        """Return the id of each shape, and the texts of the ids by their keys in `info`."""
        raise NotImplementedError

    def annotate(self, record: Record, hits: Any, *, is_last: bool) -> None:
        """Write the values of a frame (one launch)."""
        camera, image = self.camera, record[self.names[0]]
        words = wp.from_torch(image.view(torch.int32).view(camera.num_envs, camera.mount.count, self.pixels))
        height, width = camera.image_shape
        inputs = [width, wp.from_torch(self._table), hits]
        camera.compute_on.launch(_look_up, (camera.mount.count, height), inputs, [words], split=True)


class SemanticClasses(Segmentation):
    """`semantic_segmentation`: surfaces with the same labels have the same id."""

    option = "colorize_semantic_segmentation"

    def ids(self, semantics: Semantics) -> tuple[Sequence[int], Mapping[str, Mapping[int, Any]]]:
        """Return the id of each shape, and the labels of each id by type."""
        ids, texts = semantics.classes
        return ids, {"idToLabels": texts}


class Instances(Segmentation):
    """`instance_segmentation`: each labelled object has an id."""

    option = "colorize_instance_segmentation"

    def ids(self, semantics: Semantics) -> tuple[Sequence[int], Mapping[str, Mapping[int, Any]]]:
        """Return the id of each shape, and the name and the labels of each object."""
        ids, names, texts = semantics.instances
        return ids, {"idToLabels": names, "idToSemantics": texts}


class InstanceIds(Segmentation):
    """`instance_id_segmentation`: each shape has an id, labelled or not."""

    option = "colorize_instance_id_segmentation"

    def ids(self, semantics: Semantics) -> tuple[Sequence[int], Mapping[str, Mapping[int, Any]]]:
        """Return the id of each shape, and the name of each shape."""
        ids, names = semantics.leaves
        return ids, {"idToLabels": names}
