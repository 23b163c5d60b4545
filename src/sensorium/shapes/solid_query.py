"""The solids around the mounts of one sensor, with the launch that finds the near ones.

A sensor creates a `SolidQuery` in `setup`, calls `place` in a hook marked `@recorded`, and passes `shapes` and `around`
to a custom kernel, which calls `geometry.solid_around.deepest` for each of its points.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import warp as wp
from numpy.typing import ArrayLike

from sensorium.geometry.solid_around import NearShapes, Shapes, place_solids
from sensorium.shapes.query import MountQuery, QueryContext
from sensorium.shapes.scene import Targets
from sensorium.shapes.solid_view import SolidViews


class SolidQuery(MountQuery):
    """The solids around the mounts of one sensor.

    Args:
        context: context of the query.
        points: all points of later queries, `[point, 3]`, m, in the mount's frame.
        reach: sensing distance of each, m: a number, or `[point]`.
        with_motion: whether velocities are needed; the sensor then requires BODY_VELOCITY.
        with_inside: whether signed distances are needed; otherwise meshes may be open.
        targets: the candidate shapes.

    Raises:
        SelectionError: no shape is selected.
        ConfigError: a selected shape has no known surface.
        ModelError: a selected mesh is not closed, so that it has no inside.
    """

    def __init__(
        self,
        context: QueryContext,
        *,
        points: ArrayLike,
        reach: ArrayLike,
        with_motion: bool = False,
        with_inside: bool = True,
        targets: Targets | None = None,
    ) -> None:
        scene, mount, device = context.scene, context.mount, context.compute.device
        chosen = targets or Targets(geometry="any")
        solids = scene.view(SolidViews)
        super().__init__(context, *solids.select(chosen, mount.body.tolist(), context.config, with_inside=with_inside))
        if with_motion:
            self.states = (*self.states, "body_lin_vel_w", "body_ang_vel_w")
        self._with_motion = with_motion
        places = np.asarray(points, np.float64).reshape(-1, 3)
        far = np.broadcast_to(np.asarray(reach, np.float64), len(places))
        self._centre = 0.5 * (places.min(axis=0) + places.max(axis=0))
        span = float((np.linalg.norm(places - self._centre, axis=1) + far).max())
        self._radius = span * (1.0 + 1e-5) + 1e-6  # larger than rounding errors
        self.shapes = Shapes()
        """The shapes, for kernels."""
        self.shapes.instances, self.shapes.solids, self.shapes.fields = (
            self.view.instances, self.view.solids, self.arrays.fields,
        )  # fmt: skip
        size = (self._compute.num_envs, mount.count, len(self.view.shapes))
        self.around = NearShapes()
        """The near shapes, for kernels; valid after `place` has run."""
        self.around.count = wp.zeros(size[:2], dtype=wp.int32, device=device)
        self.around.row = wp.zeros(size, dtype=wp.int32, device=device)
        self.around.pos = wp.zeros(size, dtype=wp.vec3, device=device)
        self.around.quat = wp.zeros(size, dtype=wp.vec4, device=device)
        moving = size if with_motion else (0, 0, 0)
        self.around.lin, self.around.ang = (wp.zeros(moving, dtype=wp.vec3, device=device) for _ in range(2))

    def __repr__(self) -> str:
        return f"SolidQuery({self._config}: {len(self.view.shapes)} shapes around {self._mount!r})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the shapes, in the order of instance rows (`around.row`)."""
        return tuple(self.scene.shapes[i].name for i in self.view.shapes)

    def place(self) -> None:
        """List the shapes near each mount in the current state, and flag mounts with invalid poses (one launch)."""
        none, array = [wp.zeros((0, 0), dtype=wp.vec3, device=self._compute.device)] * 2, self._engine.array

        def motion(*velocities: torch.Tensor) -> list[Any]:
            return [wp.from_torch(each, dtype=wp.vec3) for each in velocities]

        mount = self._mount
        own = motion(mount.lin_vel_w, mount.ang_vel_w) if self._with_motion else none
        others = motion(array("body_lin_vel_w"), array("body_ang_vel_w")) if self._with_motion else none
        around = [wp.vec3(*self._centre), self._radius, *self.mount_pose(), *own]
        inputs = [*around, self.view.instances, self.hidden, *self.body_pose(), *others]
        self._compute.launch(place_solids, (mount.count,), inputs, [self.around, *self._flags()])

    @property
    def nbytes(self) -> int:
        """Bytes of its own memory."""
        around = self.around
        arrays = (around.count, around.row, around.pos, around.quat, around.lin, around.ang)
        return super().nbytes + sum(int(array.capacity) for array in arrays)
