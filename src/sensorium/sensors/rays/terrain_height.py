"""Terrain height: the height of feet, or of any other mount, above the surface below.

Axes: ``[env, mount]`` (no mount axis for a singular selector); rays ``[env, mount, ray]``.

A ray gives the height z - z_hit, with z of the mount and z_hit of the hit. This differs from the length of a ray that
is slanted or does not start at the mount. A hit on the back of a surface (its outward normal points down) means that
the mount is inside the terrain: height 0. If some rays of a mount hit and others miss, misses count as `max_distance`.
If all rays miss, the height is +inf, or `no_hit_value`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import warp as wp
from torch import Tensor

from sensorium.cfg import Float, in_unit
from sensorium.compute import Rows, kernel, masked_tid
from sensorium.measurement.record import Record
from sensorium.patterns import PatternField, RingPatternCfg
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.rays.ray_caster import FIELDS, RayCaster, RayCasterData, RayScanCfg
from sensorium.sensors.rays.ray_sensor import ray_field
from sensorium.shapes.ray_cast import Alignment
from sensorium.spec import Field

_REDUCTIONS = ("min", "max", "mean", "none")


@dataclass(frozen=True, slots=True)
class TerrainHeightData(RayCasterData):
    """Heights and the underlying rays; fields that the config does not select are None."""

    heights: Annotated[Tensor, Field("m", kind="derived", role="range")]
    """Height of the mount above the hits of its rays, m: one per mount, or one per ray with ``"none"``."""


class TerrainHeightCfg(RayScanCfg[TerrainHeightData]):
    """Configuration of a terrain height sensor: one mount for each foot, ``sites=("FL", "FR", ...)``.

    Knobs such as `noise` act on the distances of the rays, m; heights are derived from them.
    """

    pattern: PatternField = RingPatternCfg.single_ring(radius=0.04, num_samples=6)
    """Rays; by default one at the mount, and six on a circle of 4 cm around it."""
    fields: tuple[str, ...] | Literal["all"] = ("heights",)
    """Computed fields in addition to `heights`, `distances`, `ray_hits_w` and `normals_w`, which are always
    computed."""
    reduction: Literal["min", "max", "mean", "none"] = "min"
    """How the heights of one mount's rays are combined; ``"none"`` keeps one height per ray."""
    mount_height_on_miss: bool = False
    """Whether the height is the mount's height in the world, from 0 to `max_distance`, if all its rays miss."""
    ray_alignment: Alignment = "yaw"
    """Rotation of the rays with their mount, see `RayCasterCfg`."""
    max_distance: Annotated[Float, in_unit("m")] = 10.0
    """Largest measured distance, m; farther hits are misses, and misses count as this distance beside hits."""

    selectable: ClassVar[tuple[str, ...]] = (*FIELDS, "heights")
    always: ClassVar[tuple[str, ...]] = ("distances", "ray_hits_w", "normals_w", "heights")


@kernel
def _heights(
    rows: Rows,
    reduction: int,
    farthest: float,
    nothing: float,
    mount_height: int,
    pos_in: wp.array2d[wp.vec3],
    drift_in: wp.array2d[wp.vec3],
    hit_in: wp.array3d[wp.vec3],
    normal_in: wp.array3d[wp.vec3],
    heights_out: wp.array3d[wp.float32],
) -> None:
    env, mount = masked_tid(rows)
    z = pos_in[env, mount][2]
    if drift_in.shape[0] > 0:
        z = z + drift_in[env, mount][2]
    rays = hit_in.shape[2]
    hits = wp.int32(0)
    for ray in range(rays):
        if wp.isfinite(hit_in[env, mount, ray][2]):
            hits += 1
    empty = nothing
    if mount_height != 0:
        empty = wp.clamp(z, 0.0, farthest)
    least = wp.float32(wp.inf)
    most = wp.float32(-wp.inf)
    total = wp.float32(0.0)
    for ray in range(rays):
        height = empty
        if hits > 0:
            height = farthest
            if wp.isfinite(hit_in[env, mount, ray][2]):
                height = z - hit_in[env, mount, ray][2]
                if normal_in[env, mount, ray][2] < 0.0:
                    height = 0.0
        if reduction == 3:
            heights_out[env, mount, ray] = height
        least = wp.min(least, height)
        most = wp.max(most, height)
        total += height
    if reduction != 3:
        value = least
        if reduction == 1:
            value = most
        if reduction == 2:
            value = empty
            if hits > 0:
                value = total / float(rays)
        heights_out[env, mount, 0] = value


class TerrainHeight(RayCaster, SimpleSensor[TerrainHeightCfg, TerrainHeightData]):
    """Height above the terrain at one or several mounts."""

    cfg: TerrainHeightCfg  # type: ignore[assignment]

    def fields(self) -> dict[str, Field]:
        """Return the selected fields, with the number of rays."""
        found = dict(super().fields())
        if self.cfg.reduction == "none":
            found["heights"] = ray_field(found["heights"], len(self.pattern))
        return found

    def _follow(self, record: Record, drifts: Iterable[Tensor | None]) -> None:
        super()._follow(record, drifts)
        drift, _ = drifts
        cfg, heights = self.cfg, record.heights.view(self.num_envs, self.mount.count, -1)
        inputs = [
            _REDUCTIONS.index(cfg.reduction),
            cfg.max_distance,
            cfg.miss,
            int(cfg.mount_height_on_miss),
            self._cast.mount_pose()[0],
            drift,
            record.warp.ray_hits_w,
            record.warp.normals_w,
        ]
        self.compute_on.launch(_heights, (self.mount.count,), inputs, [heights])
