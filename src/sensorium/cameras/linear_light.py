"""Linear colours that a camera computes for its own use, apart from its data types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sensorium.cameras.annotators.colors import Colors
from sensorium.cameras.camera_data import CameraData
from sensorium.cameras.stages.image_sensor import LINEAR
from sensorium.measurement.record import Record
from sensorium.sensors.core.parts import declared_fields
from sensorium.spec import resolve_field

if TYPE_CHECKING:
    from sensorium.cameras.camera import Camera


class LinearLight:
    """Linear colours that a camera computes for its own use.

    Args:
        camera: the camera, whose visibility pass exists.

    Attributes:
        cast: the visibility pass of the colours.
        image: the colours, float32 `[env, mount, height, width, 3]`.
    """

    def __init__(self, camera: Camera) -> None:
        field = Colors.sized(LINEAR, declared_fields(CameraData)[LINEAR], camera)
        spec = resolve_field(LINEAR, field, camera.mount.count)
        self._record = Record([spec], camera.num_envs, camera.device)
        self._colors = Colors(camera, (LINEAR,))
        self.cast = self._colors.cast
        self.image = self._record[LINEAR]

    def render(self, *, is_placed: bool = False) -> None:
        """Compute the colours (launches).

        Args:
            is_placed: whether `cast` already holds the poses to use.
        """
        self._colors.begin()
        self._colors.paint(self._record, is_placed=is_placed)
