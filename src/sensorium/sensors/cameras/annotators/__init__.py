"""Annotators: each computes some data types of a camera from the surfaces that its pixels show.

All annotators of a frame read the same hits, so their images agree pixel for pixel. To add a data type, declare its
field in `CameraData`, define an `Annotator`, and list it here.
"""

from collections.abc import Mapping

from sensorium.sensors.cameras.annotators.base import Annotator
from sensorium.sensors.cameras.annotators.distances import Distances
from sensorium.sensors.cameras.annotators.ids import Ids
from sensorium.sensors.cameras.annotators.normals import Normals
from sensorium.sensors.cameras.annotators.segmentation import InstanceIds, Instances, SemanticClasses

ANNOTATORS: Mapping[str, type[Annotator]] = {
    "distance_to_camera": Distances,
    "distance_to_image_plane": Distances,
    "normals": Normals,
    "points_b": Distances,
    "geom_ids": Ids,
    "face_ids": Ids,
    "semantic_segmentation": SemanticClasses,
    "instance_segmentation": Instances,
    "instance_id_segmentation": InstanceIds,
    "segmentation": Ids,
}
"""Field of `CameraData` -> its annotator, in the order of the data class."""
TYPES = tuple(ANNOTATORS)
"""Fields that a camera can compute."""
COLOR = ("rgb", "rgba")
"""Data types that need light, which no annotator computes."""

__all__ = ["ANNOTATORS", "COLOR", "TYPES", "Annotator", "Distances"]
