"""Motion of the surfaces in the image since the previous frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import warp as wp

from sensorium.cameras.annotators.base import Annotator
from sensorium.cameras.render.motion import Before, image_motion, keep_poses
from sensorium.measurement.record import Record

if TYPE_CHECKING:
    from sensorium.cameras.camera import Camera

SIGNS = {"motion_vectors": -1.0, "optical_flow": 1.0}
"""Sign of each field: motion vectors point to where a surface was, the flow points from there."""


class Motion(Annotator):
    """`motion_vectors` and `optical_flow`."""

    types = tuple(SIGNS)

    def __init__(self, camera: Camera, names: tuple[str, ...]) -> None:
        super().__init__(camera, names)
        mounts, moving = camera.mount.count, len(camera.cast.moving)
        self._before = before = Before()
        for name, count, size, dtype in (
            ("camera_pos", mounts, 3, wp.vec3), ("camera_quat", mounts, 4, wp.vec4),
            ("pos", moving, 3, wp.vec3), ("quat", moving, 4, wp.vec4),
        ):  # fmt: skip
            setattr(before, name, wp.from_torch(camera.new_state(f"before_{name}", (count, size)), dtype=dtype))
        self._items = mounts + moving

    def annotate(self, record: Record, hits: Any, *, is_last: bool) -> None:
        """Compute the motion of a frame (one launch per field)."""
        camera, cast = self.camera, self.camera.cast
        inputs = [cast.lens, camera.projection, cast.cameras, cast.placed, self._before, hits]
        for name in self.names:
            image = wp.from_torch(record[name].view(camera.num_envs, camera.mount.count, self.pixels, 2), dtype=wp.vec2)
            dim = (camera.mount.count, self.pixels)
            camera.compute_on.launch(image_motion, dim, [SIGNS[name], *inputs], [image], split=True)

    def finish(self) -> None:
        """Keep the poses of the frame (one launch)."""
        cast = self.camera.cast
        self.camera.compute_on.launch(keep_poses, (self._items,), [cast.cameras, cast.placed], [self._before])
