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
from sensorium.cameras.camera_data import COUNT, CameraData
from sensorium.sensors.core.parts import declared_fields

ANNOTATORS: Mapping[str, type[Annotator]] = {
    name: annotator
    for name in declared_fields(CameraData)
    for annotator in (Boxes, Colors, Distances, Ids, Motion, Normals, Segmentation)
    if name in annotator.types
}
"""Field of `CameraData` -> its annotator, in the order of the data class."""
TYPES = tuple(name for name in ANNOTATORS if not name.endswith(COUNT))
"""Data types that a camera can compute."""

__all__ = ["ANNOTATORS", "TYPES", "Annotator", "Distances"]
