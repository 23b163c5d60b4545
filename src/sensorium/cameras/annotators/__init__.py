"""Annotators: each computes some data types of a camera from the surfaces that its pixels show.

All annotators of a frame read the same hits, so their images agree pixel for pixel. To add a data type, declare its
field in `CameraData`, define an `Annotator`, and list it here.
"""

from collections.abc import Mapping

from sensorium.cameras.annotators.base import Annotator
from sensorium.cameras.annotators.boxes import Boxes
from sensorium.cameras.annotators.colors import Colors
from sensorium.cameras.annotators.distances import Distances
from sensorium.cameras.annotators.ids import Ids
from sensorium.cameras.annotators.motion import Motion
from sensorium.cameras.annotators.normals import Normals
from sensorium.cameras.annotators.segmentation import Segmentation
from sensorium.cameras.camera_data import COUNT

ANNOTATORS: Mapping[str, type[Annotator]] = {
    "distance_to_camera": Distances,
    "distance_to_image_plane": Distances,
    "normals": Normals,
    "points_b": Distances,
    "rgb": Colors,
    "rgba": Colors,
    "albedo": Colors,
    "linear_rgb": Colors,
    "geom_ids": Ids,
    "face_ids": Ids,
    "semantic_segmentation": Segmentation,
    "instance_segmentation": Segmentation,
    "instance_id_segmentation": Segmentation,
    "segmentation": Ids,
    "motion_vectors": Motion,
    "optical_flow": Motion,
    "bounding_box_2d_tight": Boxes,
    "bounding_box_2d_tight_count": Boxes,
    "bounding_box_2d_loose": Boxes,
    "bounding_box_2d_loose_count": Boxes,
    "bounding_box_3d": Boxes,
    "bounding_box_3d_count": Boxes,
}
"""Field of `CameraData` -> its annotator, in the order of the data class."""
TYPES = tuple(name for name in ANNOTATORS if not name.endswith(COUNT))
"""Data types that a camera can compute."""

__all__ = ["ANNOTATORS", "TYPES", "Annotator", "Distances"]
