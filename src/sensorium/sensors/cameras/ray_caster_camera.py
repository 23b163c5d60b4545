"""Camera that casts one ray per pixel: distances, normals and ids of the hits, without rendering.

Axes: ``[env, mount, height, width, channel]`` (no mount axis for a singular selector), row 0 at the top.

`offset` is the pose of the camera relative to its mount. With K its intrinsic matrix, the ray of the pixel in row v and
column u points along p = K^-1 (u + 1/2, v + 1/2, 1), with axes right, down and forward. A hit at the length r of the
ray is at the distance r from the camera, and at z = r / |p| from its image plane.
"""

from __future__ import annotations

from typing import Any, ClassVar

import warp as wp
from torch import Tensor

from sensorium.compute import recorded
from sensorium.errors import ConfigError
from sensorium.measurement.record import Record, Timeline, words_of
from sensorium.sensors.cameras import ray_caster_camera_kernels as kernels
from sensorium.sensors.cameras.camera_base import CameraBase
from sensorium.sensors.cameras.camera_data import DISTANCES, CameraData
from sensorium.sensors.cameras.ray_caster_camera_cfg import UNSUPPORTED, RayCasterCameraCfg
from sensorium.sensors.rays.ray_caster import RayCaster


class RayCasterCamera(CameraBase[RayCasterCameraCfg, CameraData], RayCaster):
    """Camera that casts rays, at one or several mounts.

    Intrinsics and poses can be changed per env between steps; see `CameraBase`.
    """

    UNSUPPORTED_TYPES: ClassVar[set[str]] = {*UNSUPPORTED}
    """Data types that cast rays do not provide."""

    cfg: RayCasterCameraCfg

    @property
    def _casts_twice(self) -> bool:
        """Whether truth and measured value differ before the standard chain; clipping comes after the noise."""
        return super()._casts_twice or (self.cfg.clips and not self.cfg.is_clean)

    @property
    def _alignment(self) -> str:
        return self.cfg.ray_alignment

    def _lens_changed(self, inverse_k: Tensor, *, more: bool) -> None:
        self._cast.widen(inverse_k, more=more)

    def setup(self) -> None:
        """Select the shapes, and build their acceleration structures where needed."""
        self._take_lens()
        cfg = self.cfg
        self._cast = self.ray_cast(
            targets=cfg.seen,
            alignment=cfg.ray_alignment,
            offsets=(self._offset_pos, self._offset_quat),
            limits=cfg.limits,
            inverse_k=self._inverse_k,
            image=self.image_shape,
        )
        self.buffers.body_at_fault = self._cast.body_at_fault
        self._drifts = [self.new_state("drift", (self.mount.count, 3)) if cfg.drifts else None, None]

    # Images -----------------------------------------------------------------------------------------------------------

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Cast all rays, compute their images, and store the pose (four launches)."""
        self._take(raw, None, is_last=self.cfg.is_clean)

    @recorded
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Take the true image, clipped, and the measured one, from the drifted pose."""
        if self.cfg.drifts:
            self._take(raw, None, is_last=True)
            self._take(slot, self._drifts[0], is_last=self.cfg.is_clean, look=False)
            return
        self._take(slot, None, is_last=False)
        for name in slot:
            if name not in (*DISTANCES, "points_b"):
                words = words_of(slot[name])
                inputs = [*words, words_of(raw[name]).address]
                self.compute_on.launch(kernels.copy_field, (words.per_row,), inputs)
        self._make_images(slot, raw, kernels.RAY if "distance_to_camera" in raw else kernels.DEPTH, is_last=True)

    def _take(self, record: Record, drift: Tensor | None, *, is_last: bool, look: bool = True) -> None:
        outputs = {"normals": "normal", "geom_ids": "shape", "face_ids": "face"}
        wanted = {word: record[name] for name, word in outputs.items() if name in record}
        holder = "distance_to_camera" if "distance_to_camera" in record else "distance_to_image_plane"
        if holder in record:
            wanted["distance"] = record[holder]
        self._cast.cast(wanted, drift=drift, look=look)
        source = kernels.RAY if holder == "distance_to_camera" else kernels.RAY_IN_PLANE
        self._make_images(record, record, source, is_last=is_last)
        inputs = [
            ("base", "yaw", "world").index(self.cfg.ray_alignment),
            *self._cast.mount_pose(),
            wp.from_torch(self._offset_pos, dtype=wp.vec3),
            wp.from_torch(self._offset_quat, dtype=wp.vec4),
            self._moved(drift),
            wp.from_torch(self._k),
        ]
        pose = [record.warp.pos_w, record.warp.quat_w_world, record.warp.intrinsic_matrices]
        self.compute_on.launch(kernels.camera_pose, (self.mount.count,), inputs, pose)

    def _make_images(self, given: Record, record: Record, source: int, *, is_last: bool) -> None:
        """Compute the distances and points of `record` from one distance in `given` (one launch)."""
        if not any(name in record for name in DISTANCES):
            return
        height, width = self.image_shape
        farthest, beyond = self.cfg.clipping

        def image(record: Record, name: str, dtype: Any = wp.float32) -> Any:
            return self._twin(record[name] if name in record else None, height * width, dtype)

        keeps = int(self.cfg.depth_clipping_behavior != "none")
        inputs = [source, int(is_last), farthest, beyond, keeps, width, wp.from_torch(self._inverse_k, dtype=wp.vec3)]
        inputs += [image(given, name) for name in reversed(DISTANCES)]
        images = [image(record, name) for name in reversed(DISTANCES)]
        images.append(image(record, "points_b", wp.vec3))
        self.compute_on.launch(kernels.make_images, (self.mount.count, height * width), inputs, images)

    @recorded
    def derive_measured(self, slot: Record) -> None:
        """Derive the other distance and the points from the measured distance, and clip (one launch)."""
        self._make_images(slot, slot, kernels.DEPTH if "distance_to_image_plane" in slot else kernels.RAY, is_last=True)

    def height_scan(self, offset: float = 0.0, miss_value: float | None = None, *, is_measured: bool = True) -> Tensor:
        """Raise an error, since a camera has no hits in world coordinates.

        Raises:
            ConfigError: always.
        """
        fix = "Use a RayCasterCfg with this pattern."
        raise ConfigError.single(
            self.cfg.title, "data_types", self.cfg.asked, "ray_hits_w, which height_scan needs", fix
        )
