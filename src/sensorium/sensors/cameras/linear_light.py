"""Linear colours that a camera computes for its own use, apart from its data types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sensorium.measurement.record import Record
from sensorium.measurement.stages.image_sensor import LINEAR
from sensorium.sensors.cameras.annotators import ANNOTATORS
from sensorium.sensors.cameras.camera_data import CameraData
from sensorium.sensors.core.parts import declared_fields
from sensorium.spec import resolve_field

if TYPE_CHECKING:
    from sensorium.sensors.cameras.camera import Camera


class LinearLight:
    """Linear colours that a camera computes for its own use.

    Args:
        camera: the camera, whose visibility pass exists.

    Attributes:
        image: the colours, float32 `[env, mount, height, width, 3]`.
    """

    def __init__(self, camera: Camera) -> None:
        field = ANNOTATORS[LINEAR].sized(LINEAR, declared_fields(CameraData)[LINEAR], camera)
        spec = resolve_field(LINEAR, field, camera.mount.count)
        self._camera, self._record = camera, Record([spec], camera.num_envs, camera.device)
        self._colors = ANNOTATORS[LINEAR](camera, (LINEAR,))
        self.image = self._record[LINEAR]

    def render(self, *, is_placed: bool = False) -> None:
        """Compute the colours (launches).

        Args:
            is_placed: whether the camera's cast already holds the poses to use.
        """
        self._colors.begin()
        with self._camera.surfaces(is_placed=is_placed) as hits:
            self._colors.annotate(self._record, hits, is_last=True)
