"""Common base of the queries from the mounts of one sensor: their context, and the body with an invalid state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray

from sensorium.compute import Clock, Compute
from sensorium.engines.base import Engine
from sensorium.geometry.ray_poses import place_shapes
from sensorium.shapes.arrays import ShapeArrays
from sensorium.shapes.scene import ShapeScene
from sensorium.world.mount import MountView


@dataclass(frozen=True, slots=True)
class QueryContext:
    """Context of the queries of one sensor, provided by `Sensor.query_context`.

    Attributes:
        scene: the shapes.
        engine: poses of bodies, and their velocities.
        compute: device.
        clock: time.
        mount: origins of the queries.
        config: the config, for messages.
    """

    scene: ShapeScene
    engine: Engine
    compute: Compute
    clock: Clock
    mount: MountView
    config: str

    def body_at_fault(self, env: int, mount: int, bodies: Iterable[int], states: Iterable[str]) -> str:
        """Return the name of the first body with an invalid state: the mount's, or one of some rows (-1 for none).

        Args:
            env: index of the environment.
            mount: index of the mount.
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
        context: context of the query.
        view: the candidate shapes.
        hidden: 1 if a mount ignores an instance, `[mount, instance]`.
    """

    states: tuple[str, ...] = ("body_pos_w", "body_quat_w")
    """Names of the engine's arrays that the query reads."""
    is_cast: ClassVar[bool] = False
    """Whether it casts rays: a line of sight per ray or pixel."""
    view: Any

    def __init__(self, context: QueryContext, view: Any, hidden: NDArray[np.uint8]) -> None:
        self._context, self._config, self.scene, self.view = context, context.config, context.scene, view
        self.arrays = context.scene.view(ShapeArrays)
        self._engine, self._compute, self._mount = context.engine, context.compute, context.mount
        self._hidden = torch.from_numpy(hidden).to(context.compute.device)
        self._own = [self._hidden]  # its own memory

    def body_at_fault(self, env: int, mount: int) -> str:
        """Return the name of the first body, of the mount and of the shapes, with a state that is not finite."""
        return self._context.body_at_fault(env, mount, self.view.bodies, self.states)

    def mount_pose(self) -> list[Any]:
        """Return positions and orientations of the mounts, `[env, mount]`, for kernels."""
        return [wp.from_torch(self._mount.pos_w, dtype=wp.vec3), wp.from_torch(self._mount.quat_w, dtype=wp.vec4)]

    def body_pose(self) -> list[Any]:
        """Return positions and orientations of all bodies, `[env, body]`, for kernels."""
        pos, quat = (self._engine.array(name) for name in ("body_pos_w", "body_quat_w"))
        return [wp.from_torch(pos, dtype=wp.vec3), wp.from_torch(quat, dtype=wp.vec4)]

    def tendon_paths(self) -> list[Any]:
        """Return ends `[env, segment, 2]` and radii `[env, segment]` of the segments of tendons, for kernels."""
        ends, radii = (self._engine.array(name) for name in ("tendon_segments_w", "tendon_radii"))
        return [wp.from_torch(ends, dtype=wp.vec3), wp.from_torch(radii)]

    def _flags(self) -> list[Any]:
        """Return the arrays in which kernels flag states that are not finite: per mount, and one for all."""
        return [wp.from_torch(self._mount.bad, dtype=wp.uint8), self._context.clock.bad_wp]

    def place_shapes(self, instances: Any, count: int, places: list[Any], slots: int = 1) -> None:
        """Compute the poses of the first moving shapes at this tick, and flag envs with invalid ones (a launch).

        Args:
            instances: the shapes.
            count: number of these shapes.
            places: positions, orientations and centres `[env, slot, moving shape]`, for kernels.
            slots: number of stored ticks.
        """
        if count:
            self._compute.launch(
                place_shapes, (count,), [slots, instances, *self.body_pose()], [*places, *self._flags()]
            )

    def _filled(self, out: Any, dtypes: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], count: int) -> Any:
        """Set the members of a struct to tensors `[env, mount, item, ...]` of `count` items, or to empty arrays."""
        for name, dtype in dtypes.items():
            array, tensor = wp.zeros((0, 0, 0), dtype=dtype, device=self._compute.device), tensors.get(name)
            if tensor is not None:
                shape = (self._compute.num_envs, self._mount.count, count, *((3,) if dtype is wp.vec3 else ()))
                array = wp.from_torch(tensor.view(shape), dtype=dtype)
            setattr(out, name, array)
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of its own memory."""
        return sum(tensor.nbytes for tensor in self._own)

    @property
    def hidden(self) -> Any:
        """Which instances each mount ignores, uint8 `[mount, instance]`, for kernels."""
        return wp.from_torch(self._hidden, dtype=wp.uint8)
