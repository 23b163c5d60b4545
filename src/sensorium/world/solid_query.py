"""The solids around the mounts of one sensor, with the launch that finds which are near.

A sensor makes a `SolidQuery` in `setup`, calls `place` in a hook marked `@recorded`, and gives `shapes` and `around` to
a kernel of its own, which asks `geometry.solid_around.deepest` at each of its points.
"""

from __future__ import annotations

import numpy as np
import torch
import warp as wp
from numpy.typing import ArrayLike

from sensorium.compute import Clock, Compute
from sensorium.engines.base import Engine
from sensorium.geometry.solid_around import Around, Shapes, place_solids
from sensorium.world.mount import MountView
from sensorium.world.ray_scene import RayScene, Targets


class SolidQuery:
    """The solids around the mounts of one sensor.

    Args:
        scene: the shapes.
        engine: poses of bodies, and their velocities.
        compute: device.
        clock: time.
        mount: what the points are fixed to.
        points: all points that will be asked for, `[point, 3]`, m, in the mount's frame.
        reach: how far each looks, m: a number, or `[point]`.
        with_motion: whether velocities are needed; then the sensor requires BODY_VELOCITY.
        with_inside: whether signed distances are; else meshes may be open.
        targets: which shapes count.
        config: the asking config, for messages.

    Raises:
        SelectionError: nothing is selected.
        ConfigError: a shape that is selected has no surface that we know.
        ModelError: a mesh that is selected is not closed, so that it has no inside.
    """

    def __init__(
        self,
        scene: RayScene,
        engine: Engine,
        compute: Compute,
        clock: Clock,
        mount: MountView,
        *,
        points: ArrayLike,
        reach: ArrayLike,
        with_motion: bool = False,
        with_inside: bool = True,
        targets: Targets | None = None,
        config: str = "SolidQuery",
    ) -> None:
        self._engine, self._compute, self._clock, self._mount, self.scene = engine, compute, clock, mount, scene
        self._config, self._with_motion = config, with_motion
        device = compute.device
        self.view, hidden = scene.solids(
            targets or Targets(geometry="any"), mount.body.tolist(), config, with_inside=with_inside
        )
        self._hidden = torch.from_numpy(hidden).to(device)
        places = np.asarray(points, np.float64).reshape(-1, 3)
        far = np.broadcast_to(np.asarray(reach, np.float64), len(places))
        self._centre = 0.5 * (places.min(axis=0) + places.max(axis=0))
        span = float((np.linalg.norm(places - self._centre, axis=1) + far).max())
        self._radius = span * (1.0 + 1e-5) + 1e-6  # above what rounding can do
        self.shapes = Shapes()
        """The shapes, for kernels."""
        self.shapes.instances, self.shapes.solids, self.shapes.fields = (
            self.view.instances, self.view.solids, scene.fields,
        )  # fmt: skip
        size = (compute.num_envs, mount.count, len(self.view.shapes))
        self.around = Around()
        """Those that are near, for kernels; current once `place` has run."""
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
        """List the shapes near each mount at the current state, and flag mounts where one is nowhere (a launch)."""
        mount, none = self._mount, wp.zeros((0, 0), dtype=wp.vec3, device=self._compute.device)

        def vectors(tensor: torch.Tensor) -> wp.array[wp.vec3]:
            return wp.from_torch(tensor, dtype=wp.vec3)

        motion = [vectors(mount.lin_vel_w), vectors(mount.ang_vel_w)] if self._with_motion else [none, none]
        array = self._engine.array
        bodies = [vectors(array("body_pos_w")), wp.from_torch(array("body_quat_w"), dtype=wp.vec4)]
        if self._with_motion:
            bodies += [vectors(array("body_lin_vel_w")), vectors(array("body_ang_vel_w"))]
        else:
            bodies += [none, none]
        inputs = [
            wp.vec3(*self._centre),
            self._radius,
            vectors(mount.pos_w),
            wp.from_torch(mount.quat_w, dtype=wp.vec4),
            *motion,
            self.view.instances,
            wp.from_torch(self._hidden, dtype=wp.uint8),
            *bodies,
        ]
        outputs = [self.around, wp.from_torch(mount.bad, dtype=wp.uint8), self._clock.bad_wp]
        self._compute.launch(place_solids, (mount.count,), inputs, outputs)

    def body_at_fault(self, env: int, mount: int) -> str:
        """Return the name of the first body, of the mount and of the shapes, whose state is not finite."""
        engine, names = self._engine, self._engine.names("body")
        kinds = ("body_pos_w", "body_quat_w", *(("body_lin_vel_w", "body_ang_vel_w") if self._with_motion else ()))
        ill = torch.stack([~engine.array(kind)[env].isfinite().all(dim=-1) for kind in kinds]).any(dim=0).cpu()
        rows = [int(self._mount.body[mount]), *(row for row in self.view.bodies.tolist() if row >= 0)]
        return next((names[row] for row in rows if row >= 0 and bool(ill[row])), self._mount.body_names[mount])

    @property
    def nbytes(self) -> int:
        """Bytes of its own memory."""
        around = self.around
        arrays = (around.count, around.row, around.pos, around.quat, around.lin, around.ang)
        return sum(int(array.capacity) for array in arrays) + self._hidden.numel()


__all__ = ["SolidQuery"]
