"""The points of one sensor and the nearest surfaces, with the launches that find these.

A sensor creates a `SurfaceQuery` in `setup` and calls `find` in a hook marked `@recorded`; so do plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import warp as wp
from numpy.typing import ArrayLike

from sensorium.geometry.probes import Nearest, Trees, follow_distance, probe_surfaces, show_misses
from sensorium.geometry.ray_structs import Moving
from sensorium.shapes.arrays import device_array
from sensorium.shapes.query import MountQuery, QueryContext
from sensorium.shapes.ray_view import RayViews
from sensorium.shapes.scene import Targets

_OUTPUTS = {"distance": wp.float32, "point": wp.vec3, "shape": wp.int32}
"""Outputs of `find`, and their element types; see `geometry.probes.Nearest`."""


class SurfaceQuery(MountQuery):
    """The points of one sensor, and the surfaces near them.

    Args:
        context: context of the query.
        points: `[probe, 3]`, m, in the mount's frame.
        reach: sensing distance of each, m: a number, or `[probe]`.
        least: minimum distance, m; nearer surfaces are misses.
        targets: the candidate shapes.

    Raises:
        SelectionError: no shape is selected.
        ConfigError: a selected shape has no known surface.
    """

    def __init__(
        self,
        context: QueryContext,
        *,
        points: ArrayLike,
        reach: ArrayLike,
        least: float = 0.0,
        targets: Targets | None = None,
    ) -> None:
        mount, device, self._least = context.mount, context.compute.device, least
        shapes = context.scene.view(RayViews)
        super().__init__(context, *shapes.select(targets or Targets(), mount.body.tolist(), context.config))
        places = np.asarray(points, np.float32).reshape(-1, 3)
        self.count = len(places)
        """Probes of one mount."""
        self._points = torch.from_numpy(places.copy()).to(device)
        self._reach = torch.from_numpy(np.broadcast_to(np.asarray(reach, np.float32), self.count).copy()).to(device)
        self._own += [self._points, self._reach]
        self._trees = self._make_trees()
        shape = (self._compute.num_envs, 1, self.view.moving)
        self._places = [wp.zeros(shape, dtype=dtype, device=device) for dtype in (wp.vec3, wp.vec4, wp.vec3)]
        self._moving = Moving()
        self._moving.pos, self._moving.quat, self._moving.centre = self._places

    def __repr__(self) -> str:
        return f"SurfaceQuery({self._config}: {self.count} probes at {self._mount!r}, {len(self.view.shapes)} shapes)"

    def _make_trees(self) -> Trees:
        """Choose the tree of each mesh, in its own frame or scaled beforehand."""
        one, ids, scales = (1.0, 1.0, 1.0), [], []
        for i in self.view.shapes:
            shape = self.scene.shapes[i]
            is_even = len(set(np.abs(shape.scale))) == 1
            ids.append(
                0 if shape.mesh is None else int(self.arrays.mesh(shape.mesh, one if is_even else shape.scale).id)
            )
            scales.append(shape.scale if shape.mesh is not None and is_even else one)
        out, device = Trees(), self._compute.device
        out.mesh, out.scale = device_array(ids, wp.uint64, device), device_array(scales, wp.vec3, device)
        return out

    # Work -------------------------------------------------------------------------------------------------------------

    def find(self, outputs: Mapping[str, torch.Tensor], miss: float | None = float("inf"), stay: bool = False) -> None:
        """Find the nearest surface of all probes in the current state, and flag envs with invalid poses (launches).

        Args:
            outputs: the tensors for members of `Nearest`, `[env, mount, probe, ...]` with any split of the probe axis.
            miss: distance reported without a surface in reach, m; None for the probe's reach.
            stay: whether the nearest point is then the probe's own position, instead of +inf.
        """
        self.place_shapes(self.view.instances, self.view.moving, self._places)
        shapes = [self.view.surroundings, self.view.instances, self._trees, self.arrays.fields, self._moving]
        inputs = [*self._probes, self._least, *self.mount_pose(), *shapes, self.hidden]
        self._compute.launch(probe_surfaces, self._items, inputs, [self._nearest(outputs, miss, stay)])

    def follow(self, outputs: Mapping[str, torch.Tensor]) -> None:
        """Clip other distances to the range, and move the true nearest points to them (one launch).

        Args:
            outputs: see `find`, with `distance`, m, +inf for a miss; overwritten.
        """
        out = self._nearest(outputs)
        inputs = [*self._probes, self._least, *self.mount_pose()]
        self._compute.launch(follow_distance, self._items, inputs, [out.distance, out.point])

    def show_misses(
        self, found: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor], miss: float | None, stay: bool
    ) -> None:
        """Copy results, with infinite distances and points replaced by the values of a miss (one launch).

        Args:
            found: results of `find`, with misses at +inf.
            outputs: the same tensors, or others.
            miss: as for `find`.
            stay: as for `find`.
        """
        inputs = [*self._probes, *self.mount_pose(), self._nearest(found)]
        self._compute.launch(show_misses, self._items, inputs, [self._nearest(outputs, miss, stay)])

    @property
    def _items(self) -> tuple[int, int]:
        return self._mount.count, self.count

    @property
    def _probes(self) -> list[Any]:
        return [wp.from_torch(self._points, dtype=wp.vec3), wp.from_torch(self._reach, dtype=wp.float32)]

    def _nearest(
        self, outputs: Mapping[str, torch.Tensor], miss: float | None = float("inf"), stay: bool = False
    ) -> Any:
        out = self._filled(Nearest(), _OUTPUTS, outputs, self.count)
        out.miss = float("nan") if miss is None else miss
        out.stay = int(stay)
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of its own memory."""
        return super().nbytes + sum(int(array.capacity) for array in self._places)
