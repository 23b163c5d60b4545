"""What the queries from the mounts of one sensor share: whom they ask, and which body is at fault where one fails."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray

from sensorium.compute import Clock, Compute
from sensorium.engines.base import Engine
from sensorium.world.mount import MountView
from sensorium.world.ray_scene import RayScene


@dataclass(frozen=True, slots=True)
class QueryContext:
    """What the queries of one sensor work with; `Sensor.query_context` has it.

    Attributes:
        scene: the shapes.
        engine: poses of bodies, and their velocities.
        compute: device.
        clock: time.
        mount: what the queries start from.
        config: the asking config, for messages.
    """

    scene: RayScene
    engine: Engine
    compute: Compute
    clock: Clock
    mount: MountView
    config: str

    def body_at_fault(self, env: int, mount: int, bodies: Iterable[int], states: Iterable[str]) -> str:
        """Return the name of the first body whose state is not finite: the mount's, or one of some rows, -1 for none.

        Args:
            env: which environment.
            mount: which mount.
            bodies: rows of the other bodies.
            states: names of the engine's arrays.
        """
        ill = torch.stack([~self.engine.array(name)[env].isfinite().all(dim=-1) for name in states]).any(dim=0).cpu()
        rows = [int(self.mount.body[mount]), *map(int, bodies)]
        names = self.engine.names("body")
        return next((names[row] for row in rows if row >= 0 and bool(ill[row])), self.mount.body_names[mount])


class MountQuery:
    """A query from the mounts of one sensor at the shapes of the scene.

    Args:
        context: what it works with.
        view: the shapes that count.
        hidden: 1 where a mount does not see an instance, `[mount, instance]`.
    """

    states: tuple[str, ...] = ("body_pos_w", "body_quat_w")
    """Names of the engine's arrays that the query reads."""
    view: Any

    def __init__(self, context: QueryContext, view: Any, hidden: NDArray[np.uint8]) -> None:
        self._context, self._config, self.scene, self.view = context, context.config, context.scene, view
        self._engine, self._compute, self._mount = context.engine, context.compute, context.mount
        self._hidden = torch.from_numpy(hidden).to(context.compute.device)

    def body_at_fault(self, env: int, mount: int) -> str:
        """Return the name of the first body, of the mount and of the shapes, whose state is not finite."""
        return self._context.body_at_fault(env, mount, self.view.bodies, self.states)

    def mount_pose(self) -> list[Any]:
        """Return positions and orientations of the mounts, `[env, mount]`, for kernels."""
        return [wp.from_torch(self._mount.pos_w, dtype=wp.vec3), wp.from_torch(self._mount.quat_w, dtype=wp.vec4)]

    def body_pose(self) -> list[Any]:
        """Return those of all bodies, `[env, body]`."""
        pos, quat = (self._engine.array(name) for name in ("body_pos_w", "body_quat_w"))
        return [wp.from_torch(pos, dtype=wp.vec3), wp.from_torch(quat, dtype=wp.vec4)]

    def _flags(self) -> list[Any]:
        """Return where kernels flag what is not finite: the mounts, and that there is one."""
        return [wp.from_torch(self._mount.bad, dtype=wp.uint8), self._context.clock.bad_wp]

    def _unseen(self) -> Any:
        return wp.from_torch(self._hidden, dtype=wp.uint8)


__all__ = ["MountQuery", "QueryContext"]
