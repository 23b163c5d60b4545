"""Camera that measures as if it cast one ray per pixel: distances, normals and ids of the hits.

Axes: ``[env, mount, height, width, channel]`` (no mount axis for a singular selector), row 0 at the top.

`offset` is the pose of the camera relative to its mount. With K its intrinsic matrix, the ray of the pixel in row v and
column u points along p = K^-1 (u + 1/2, v + 1/2, 1), with axes right, down and forward. A hit at the length r of the
ray is at the distance r from the camera, and at z = r / |p| from its image plane. The hits are those of the visibility
pass of `Camera`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import warp as wp
from torch import Tensor

from sensorium.cameras.camera_data import CameraData
from sensorium.cameras.image_camera import ImageCamera
from sensorium.cameras.ray_caster_camera_cfg import UNSUPPORTED, RayCasterCameraCfg
from sensorium.cameras.render.structs import HitRecord, Lens, pixel_line
from sensorium.compute import Rows, kernel, masked_tid, place_of, recorded
from sensorium.errors import ConfigError
from sensorium.geometry.transforms import quat_apply
from sensorium.measurement.record import Record, Timeline
from sensorium.patterns import PinholeCameraPatternCfg
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.rays.ray_caster import RayCaster


@kernel(group="images")
def _limit(rows: Rows, near: float, far: float, lens: Lens, hits: HitRecord) -> None:
    """Turn hits into misses whose rays are shorter or longer than the limits."""
    env, mount, piece = masked_tid(rows)
    place = place_of(rows, env)
    first = (rows.first + piece) * lens.width
    for pixel in range(first, first + lens.width):
        _start, direction = pixel_line(lens, env, pixel)
        length = wp.length(direction)
        inverse = hits.inverse[place, mount, pixel]
        if length < near * inverse or length > far * inverse:
            hits.inverse[place, mount, pixel] = 0.0
            hits.shape[place, mount, pixel] = -1
            hits.face[place, mount, pixel] = -1


class RayCasterCamera(ImageCamera[RayCasterCameraCfg], RayCaster, SimpleSensor[RayCasterCameraCfg, CameraData]):
    """Camera that measures as if it cast rays, at one or several mounts.

    Intrinsics and poses can be changed per env between steps; see `CameraBase`.
    """

    UNSUPPORTED_TYPES: ClassVar[set[str]] = {*UNSUPPORTED}
    """Data types that cast rays do not provide."""

    cfg: RayCasterCameraCfg

    @property
    def _casts_twice(self) -> bool:
        return super()._casts_twice or self.cfg.drifts

    @property
    def _alignment(self) -> str:
        return self.cfg.ray_alignment

    def setup(self) -> None:
        """Select the shapes, prepare the visibility pass and the annotators."""
        super().setup()
        self._drifts = [self.new_state("drift", (self.mount.count, 3)) if self.cfg.drifts else None, None]

    def _drop_hits(self, hits: Any) -> None:
        """Drop hits outside the limits, which apply to the length of the ray."""
        dim = (self.mount.count, self.image_shape[0])
        self.compute_on.launch(_limit, dim, [*self.cfg.limits, self.cast.lens], [hits], split=True)

    @recorded
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Take the true frame, clipped, and the measured one, with a drift from another pose."""
        if not self.cfg.drifts:
            super().update_current_timestep_data(raw, slot, timeline)
            return
        self._take(raw)
        self._take(slot, is_last=self.cfg.is_clean, drift=self._drifts[0])

    @property
    def ray_starts(self) -> Tensor:
        """Starts of the rays in the frame of the mount, float32 `[env, ray, 3]`, m; with a mount axis after env."""
        height, width = self.image_shape
        return self._squeeze(self._offset_pos[:, :, None].expand(-1, -1, height * width, -1))

    @property
    def ray_directions(self) -> Tensor:
        """Unit directions of the rays in the frame of the mount, float32 `[env, ray, 3]`; with a mount axis after env.

        Rays are in the order of the pixels, row by row.
        """
        height, width = self.image_shape
        lines = PinholeCameraPatternCfg(width=width, height=height).rays_from_intrinsics(self._k).to(self.device)
        return self._squeeze(quat_apply(self._offset_quat[:, :, None], lines[:, None]))

    def height_scan(self, offset: float = 0.0, miss_value: float | None = None, *, is_measured: bool = True) -> Tensor:
        """Raise an error, since a camera has no hits in world coordinates.

        Raises:
            ConfigError: always.
        """
        fix = "Use a RayCasterCfg with this pattern."
        raise ConfigError.single(
            self.cfg.title, "data_types", self.cfg.asked, "ray_hits_w, which height_scan needs", fix
        )
