"""The rays of one sensor: their starts, their targets, and the launches that cast them.

A sensor creates a `RayCast` in `setup` and calls `cast` in a hook marked `@recorded`; so do plugins. Rays are given in
the sensor's ray frame: x forward, y left, z up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray

from sensorium.errors import ConfigError
from sensorium.geometry.ray_poses import bridge_gap, follow_rays, keep_pose
from sensorium.geometry.ray_structs import BASE, BLOCK, WORLD, YAW, YAW_STARTS, Bundle, Hits, Moving, Pose
from sensorium.geometry.trace import cast_rays
from sensorium.geometry.trace_vertical import cast_vertical
from sensorium.geometry.transforms import rotation
from sensorium.shapes.query import MountQuery, QueryContext
from sensorium.shapes.ray_view import RayViews
from sensorium.shapes.scene import Targets

Alignment = Literal["base", "yaw", "world", "yaw_starts"]
_ALIGNMENTS = {"base": BASE, "yaw": YAW, "world": WORLD, "yaw_starts": YAW_STARTS}
_HITS = {
    "distance": wp.float32,
    "point": wp.vec3,
    "normal": wp.vec3,
    "cosine": wp.float32,
    "shape": wp.int32,
    "body": wp.int32,
    "face": wp.int32,
    "start": wp.vec3,
    "direction": wp.vec3,
    "time": wp.float32,
}
"""Outputs of a cast, and their element types; see `geometry.ray_structs.Hits`."""
SCAN = 256
"""Vertical rays per CPU thread, if there are enough environments for all threads."""
Cones = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]
"""Cosines, sines and radii `[1, ray]` of the cones around blocks of rays."""
FARTHEST = 1e30
"""Maximum length of a ray, m."""


@dataclass(frozen=True, kw_only=True)
class RaySpec:
    """The rays of one sensor: directions in the ray frame, pose of that frame on the mount, times and targets.

    Attributes:
        starts: `[ray, 3]`, m; None for all at the origin.
        directions: `[ray, 3]`.
        drawn: alternative to directions: unit vectors `[1 or env, ray, 3]` that a kernel rewrites before each cast.
        spread: rad, with `drawn`: angle about the x axis that contains all of them.
        alignment: rotation with the mount: ``"base"`` fully, ``"yaw"`` about the vertical only, ``"world"`` not at all,
            ``"yaw_starts"`` about the vertical for the starts only.
        offset: pose on the mount (position, quaternion wxyz).
        offsets: alternative to `offset`: tensors `[env, mount, 3]` and `[env, mount, 4]` that may change.
        times: `[ray]`, s, firing time of each ray of a period, for scans that take time.
        period: s, of the times.
        count: rays of one scan; None for the whole period.
        per_tick: groups of rays per tick, for a scan that is a moving window of the period.
        group: rays that such a window never separates, e.g. the sub-rays of a beam.
        slots: number of stored ticks of motion; if more than 1, call `RayCast.look` at each tick.
        motion: another cast with the same mount and targets whose `look` serves this one too, instead of `slots`.
        new_state: `Sensor.new_state`, for the memory of those ticks; None for memory that is not saved.
        targets: the shapes that they can hit.
        limits: minimum and maximum distance, m; a hit outside is a miss.
        miss: distance reported for a miss.
        block: rays per thread; None chooses a number.
    """

    starts: NDArray[Any] | torch.Tensor | None = None
    directions: NDArray[Any] | torch.Tensor | None = None
    drawn: torch.Tensor | None = None
    spread: float = np.pi
    alignment: Alignment = "base"
    offset: tuple[Any, Any] | None = None
    offsets: tuple[torch.Tensor, torch.Tensor] | None = None
    times: NDArray[Any] | None = None
    period: float = 0.0
    count: int | None = None
    per_tick: float = 0.0
    group: int = 1
    slots: int = 1
    motion: RayCast | None = None
    new_state: Any = None
    targets: Targets | None = None
    limits: tuple[float, float] = (0.0, 1e6)
    miss: float = float("inf")
    block: int | None = None


class RayCast(MountQuery):
    """The rays of one sensor.

    Args:
        context: context of the cast.
        spec: the rays.

    Attributes:
        bundle: the rays for custom kernels, a `geometry.ray_structs.Bundle`.

    Raises:
        ConfigError: directions that are zero or not finite, or no shapes to hit.
    """

    is_cast: ClassVar[bool] = True

    _pose: Any
    _moving: Any
    _memory: torch.Tensor
    _looked: list[tuple[int, list[Any]]]

    def __init__(self, context: QueryContext, spec: RaySpec) -> None:
        compute, mount, device = context.compute, context.mount, context.compute.device
        targets = spec.targets or Targets()
        super().__init__(context, *context.scene.view(RayViews).select(targets, mount.body.tolist(), context.config))
        self._spec, self._miss = spec, spec.miss
        self._limits = (spec.limits[0], min(spec.limits[1], FARTHEST))  # with infinity a miss would count as a hit
        self._block = (int(BLOCK) if compute.is_cpu else 1) if spec.block is None else spec.block
        bundle = self.bundle = Bundle()
        cones = self._take_directions() if spec.drawn is None else self._take_drawn(spec.drawn)
        self.cones = [torch.from_numpy(values).to(device) for values in cones]
        self._own += self.cones
        bundle.angle_cos, bundle.angle_sin, bundle.radius = (wp.from_torch(t, dtype=wp.float32) for t in self.cones)
        bundle.times = wp.zeros(0, dtype=wp.float32, device=device)
        if spec.times is not None:
            times = torch.from_numpy(np.ascontiguousarray(spec.times, dtype=np.float32)).to(device)
            bundle.times = wp.from_torch(times, dtype=wp.float32)
            self._own.append(times)
        bundle.period, bundle.per_tick, bundle.group = wp.float64(spec.period), wp.float64(spec.per_tick), spec.group
        self.count = int(bundle.count)
        """Rays of one scan."""
        self.vertical = int(bundle.vertical)
        self._surroundings = self.view.indexed() if self.vertical else self.view.slanted()  # long builds run now
        other = spec.motion
        if other is None:
            self._slots = spec.slots
            self._make_pose()
        else:
            assert other.view is self.view
            self._slots, self._pose, self._moving = other._slots, other._pose, other._moving
            self._memory, self._looked = other._memory, other._looked
        self._own.append(self._memory)

    def _take_directions(self) -> Cones:
        """Store fixed directions in the bundle, and return the cones around its blocks."""
        spec, bundle, compute, config = self._spec, self.bundle, self._compute, self._config
        d = np.asarray(spec.directions, dtype=np.float64).reshape(-1, 3)
        count = len(d) if spec.count is None else spec.count
        compute.memory.take_rays((count,), self._mount.count)
        s = np.zeros_like(d) if spec.starts is None else np.asarray(spec.starts, dtype=np.float64).reshape(-1, 3)
        if len(s) != len(d):
            raise ConfigError.single(config, "pattern", f"{len(s)} starts", f"{len(d)}, one for each direction")
        length = np.linalg.norm(d, axis=1)
        wrong = np.flatnonzero(~(length > 1e-12) | ~np.isfinite(s).all(axis=1) | ~np.isfinite(length))
        if len(wrong):
            what = f"ray {wrong[0]} with start {s[wrong[0]].tolist()} and direction {d[wrong[0]].tolist()}"
            raise ConfigError.single(config, "pattern", what, "finite starts, and directions that are not zero")
        d = d / length[:, None]
        if spec.offset is not None:
            pos, quat = (np.asarray(part, np.float64) for part in spec.offset)
            turn = rotation((quat / np.linalg.norm(spec.offset[1])).tolist())
            s, d = s @ turn.T + pos, d @ turn.T
        bundle.vertical = self._vertical(d, spec.alignment) if spec.offsets is None else 0
        if bundle.vertical and spec.block is None and compute.is_cpu and compute.num_envs >= compute.threads:
            self._block = SCAN  # look-ups are so fast that the overhead per block matters
        given = [torch.from_numpy(np.ascontiguousarray(part, np.float32)).to(compute.device) for part in (s, d)]
        bundle.starts, bundle.directions = (wp.from_torch(part[None], dtype=wp.vec3) for part in given)
        bundle.total, bundle.count = len(d), count
        self._own += given
        return cones_of(s, d, self._block, count if spec.per_tick == 0.0 else None)

    def _take_drawn(self, drawn: torch.Tensor) -> Cones:
        """Store drawn directions in the bundle, and return a cone around all of them."""
        bundle, zeros, count = self.bundle, torch.zeros_like(drawn[:1]), drawn.shape[1]
        self._compute.memory.take_rays((count,), self._mount.count)
        bundle.starts = self._array(zeros.expand_as(drawn), wp.vec3)
        bundle.directions = wp.from_torch(drawn, dtype=wp.vec3)
        bundle.total = bundle.count = count
        self._own += [zeros, drawn]
        return _wide_cones(2.0 * self._spec.spread, count)

    @property
    def pose(self) -> Any:
        """The poses of the mounts for custom kernels: a `geometry.ray_structs.Pose`, without drift."""
        return self._drifting(None, None)

    def __repr__(self) -> str:
        return f"RayCast({self._config}: {self.count} rays at {self._mount!r}, {len(self.view.shapes)} single shapes)"

    @staticmethod
    def _vertical(directions: NDArray[np.float64], alignment: Alignment) -> int:
        """Return -1 or 1 if all rays are along the world's -z or +z for any rotation of the mount."""
        for sign in (-1, 1):
            if alignment != "base" and (directions == np.array([0.0, 0.0, sign])).all():
                return sign
        return 0

    def _make_pose(self) -> None:
        envs, mounts, moving, device = self._compute.num_envs, self._mount.count, self.view.moving, self._compute.device
        spec, slots, dt = self._spec, self._slots, self._context.clock.dt

        def unsaved(_name: str, shape: tuple[int, ...]) -> torch.Tensor:
            return torch.zeros((envs, *shape), dtype=torch.float32, device=device)

        make = spec.new_state or unsaved
        memory = self._memory = make("motion", (slots * (mounts * 7 + moving * 10),))
        pose, parts, start = Pose(), [], 0
        pose.alignment, pose.slots, pose.dt = _ALIGNMENTS[spec.alignment], slots, wp.float64(dt)
        for count, width in ((mounts, 3), (mounts, 4), (moving, 3), (moving, 4), (moving, 3)):
            size = slots * count * width
            part = memory[:, start : start + size].view(envs, slots, count, width)
            parts.append(self._array(part, wp.vec3 if width == 3 else wp.vec4))
            start += size
        pose.pos, pose.quat = parts[:2]
        if spec.offsets is not None:
            pose.offset_pos = wp.from_torch(spec.offsets[0], dtype=wp.vec3)
            pose.offset_quat = wp.from_torch(spec.offsets[1], dtype=wp.vec4)
        else:
            pose.offset_pos = wp.zeros((0, 1), dtype=wp.vec3, device=device)
            pose.offset_quat = wp.zeros((0, 1), dtype=wp.vec4, device=device)
        self._moving = Moving()
        self._moving.pos, self._moving.quat, self._moving.centre = parts[2:]
        self._pose, self._looked = pose, []
        if slots > 1:
            looked = make("looked", (mounts + moving,)).view(torch.int32)
            none = wp.zeros((0, 0, 0), dtype=wp.vec3, device=device)
            for each, places in ((looked[:, :mounts], (*parts[:2], none)), (looked[:, mounts:], tuple(parts[2:]))):
                if each.shape[1]:
                    self._looked.append((each.shape[1], [wp.from_torch(each, dtype=wp.int32), *places]))

    def _array(self, tensor: torch.Tensor, dtype: Any) -> Any:
        """View a strided tensor as a Warp array of vectors."""
        shape, item = tensor.shape[:-1], tensor.element_size()
        strides = tuple(step * item for step in tensor.stride()[:-1])
        if 0 in tensor.shape:
            return wp.zeros(shape, dtype=dtype, device=self._compute.device)
        return wp.array(
            ptr=tensor.data_ptr(), dtype=dtype, shape=tuple(shape), strides=strides, device=self._compute.device
        )

    # Work -------------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Store the poses of the mount and the moving shapes at this tick, and flag invalid ones (launches)."""
        compute, flags = self._compute, self._flags()
        inputs = [self._slots, *self.mount_pose()]
        compute.launch(keep_pose, (self._mount.count,), inputs, [self._pose.pos, self._pose.quat, *flags])
        places = [self._moving.pos, self._moving.quat, self._moving.centre]
        self.place_shapes(self.view.instances, self.view.moving, places, self._slots)
        for count, looked in self._looked:
            compute.launch(bridge_gap, (count,), [self._slots], looked)

    def cast(
        self,
        outputs: Mapping[str, torch.Tensor],
        *,
        drift: torch.Tensor | None = None,
        cast_drift: torch.Tensor | None = None,
        look: bool = True,
        miss: float | None = None,
    ) -> None:
        """Cast all rays at the current state (launches).

        Args:
            outputs: the tensors for members of `Hits`, `[env, mount, ray, ...]` with any split of the ray axis.
            drift: `[env, mount, 3]`, added to the mount's position, m, world.
            cast_drift: `[env, mount, 3]`: x and y move the starts in the alignment's axes, z the hits, m.
            look: call `look` first; False if that was done for this sample.
            miss: distance reported for a miss; by default that of the spec.
        """
        if look:
            self.look()
        compute, out = self._compute, self._hits(outputs, miss)
        pose = self._drifting(drift, cast_drift)
        shapes = [self._surroundings, self.view.instances, self.arrays.fields, self._moving, self.hidden]
        inputs = [wp.vec2(*self._limits), self._block, *shapes, pose, self.bundle]
        blocks = self._mount.count, -(-self.count // self._block)
        statics = self._surroundings
        has_shapes = bool(statics.alone.shape[0] or statics.bvh_row.shape[0])
        variant = "all" if self._moving.pos.shape[2] else "still" if has_shapes else "triangles"
        if self.vertical and self.view.is_upright and self._slots == 1 and self._spec.offsets is None:
            is_more = int(not set(outputs) <= {"distance", "point", "normal"})
            compute.launch(cast_vertical[variant], blocks, [*inputs, is_more], [out], split=True)
        else:
            compute.launch(cast_rays[variant], blocks, inputs, [out], split=True)

    def follow(
        self,
        outputs: Mapping[str, torch.Tensor],
        *,
        drift: torch.Tensor | None = None,
        cast_drift: torch.Tensor | None = None,
        miss: float | None = None,
    ) -> None:
        """Follow other distances in the outputs of the last cast: points at these distances, and misses (one launch).

        Args:
            outputs: see `cast`, with `distance`; a distance outside the limits becomes a miss in all of them.
            drift: see `cast`.
            cast_drift: see `cast`.
            miss: see `cast`.
        """
        inputs = [wp.vec2(*self._limits), self._block, self._drifting(drift, cast_drift), self.bundle]
        blocks = self._mount.count, -(-self.count // self._block)
        self._compute.launch(follow_rays, blocks, inputs, [self._hits(outputs, miss)], split=True)

    def _hits(self, outputs: Mapping[str, torch.Tensor], miss: float | None) -> Any:
        """Return the struct through which kernels write outputs."""
        out = self._filled(Hits(), _HITS, outputs, self.count)
        out.miss = self._miss if miss is None else miss
        return out

    def _drifting(self, drift: torch.Tensor | None, cast_drift: torch.Tensor | None) -> Any:
        kind: Any = Pose
        pose = kind()
        for name in kind.vars:
            setattr(pose, name, getattr(self._pose, name))
        none = wp.zeros((0, 0), dtype=wp.vec3, device=self._compute.device)
        pose.drift = none if drift is None else wp.from_torch(drift, dtype=wp.vec3)
        pose.cast_drift = none if cast_drift is None else wp.from_torch(cast_drift, dtype=wp.vec3)
        return pose


def _wide_cones(angle: float, count: int) -> Cones:
    """Return cones as `cones_of` does, for rays from one point within an angle of each other, rad."""
    angle += 1e-4
    sine = np.sin(angle) if angle < 1.5 else -1.0
    return tuple(np.full((1, count), value, np.float32) for value in (np.cos(angle), sine, 1e-6))  # type: ignore[return-value]


def cones_of(starts: NDArray[np.float64], directions: NDArray[np.float64], block: int, count: int | None) -> Cones:
    """Return cosine, sine and radius of the cone around each block, about its middle ray, by its first ray.

    Args:
        starts: `[ray, 3]`.
        directions: `[ray, 3]`, unit.
        block: rays in a block.
        count: rays of a scan; None if blocks may start at any ray and wrap around.

    Returns:
        Three arrays `[1, ray]`; the sine is -1 if a block is wider than a half space.
    """
    total = len(directions)
    cosine, radius = np.ones(total), np.zeros(total)
    first = np.arange(total)
    last = first + block if count is None else np.minimum(first + block, count)
    middle = ((first + last) // 2) % total
    for k in range(block):
        other = np.minimum(first + k, last - 1) % total
        cosine = np.minimum(cosine, (directions[middle] * directions[other]).sum(axis=1))
        radius = np.maximum(radius, np.linalg.norm(starts[middle] - starts[other], axis=1))
    angle = np.arccos(np.clip(cosine, -1.0, 1.0)) + 1e-4
    sine = np.where(angle < 1.5, np.sin(angle), -1.0)
    return tuple(values.astype(np.float32)[None] for values in (np.cos(angle), sine, radius * (1.0 + 1e-5) + 1e-6))  # type: ignore[return-value]
