"""The rays of one sensor: where they start, what they meet, and the launches that cast them.

A sensor makes a `RayCast` in `setup` and calls `cast` in a hook marked `@recorded`; plugins do the same. Rays are given
in the sensor's ray frame: x forward, y left, z up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray

from sensorium.compute import Clock, Compute
from sensorium.engines.base import Engine
from sensorium.errors import ConfigError
from sensorium.geometry.ray_poses import bridge_gap, keep_pose, place_shapes, ray_points
from sensorium.geometry.ray_structs import BASE, BLOCK, WORLD, YAW, YAW_STARTS, Bundle, Hits, Moving, Pose
from sensorium.geometry.trace import cast_rays
from sensorium.geometry.trace_vertical import cast_vertical
from sensorium.geometry.transforms import rotation
from sensorium.world.mount import MountView
from sensorium.world.ray_scene import RayScene, Targets

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
"""What a cast can write, and the type of an element; see `geometry.ray_structs.Hits`."""
SCAN = 256
"""Vertical rays that one CPU thread casts after each other, where there are environments for all threads."""
Cones = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]
"""Cosines, sines and radii `[1, ray]` of what holds each block of rays."""
FARTHEST = 1e30
"""No ray is longer than this, m."""


class RayCast:
    """The rays of one sensor.

    Args:
        scene: what they meet.
        engine: poses of bodies.
        compute: device.
        clock: time.
        mount: where they start.
        starts: `[ray, 3]`, m, in the ray frame; None for all at its origin.
        directions: `[ray, 3]`; None where `inverse_k` is given.
        targets: which shapes they meet.
        config: the asking config, for messages.
        alignment: how they follow their mount: ``"base"`` wholly, ``"yaw"`` about the vertical only, ``"world"`` not at
            all, ``"yaw_starts"`` about the vertical with the starts only.
        offset: pose of the ray frame on the mount (position, quaternion wxyz).
        offsets: instead of it, tensors `[env, mount, 3]` and `[env, mount, 4]` that may change.
        limits: least and greatest distance, m; a hit outside is a miss.
        miss: the distance that a miss shows.
        inverse_k: instead of directions, rows of inverse intrinsic matrices `[1 or env, 3, 3]`, which may change (call
            `widen` then), for pixels of an image of `image` size.
        image: height and width, with `inverse_k`.
        drawn: instead of directions, unit vectors `[1 or env, ray, 3]` that a kernel writes anew before each cast.
        spread: rad, with `drawn`: the angle about the x axis that holds all of them.
        times: `[ray]`, s, when each ray of a period fires, where a scan takes time.
        period: s, of the times.
        count: rays of one scan; None for all of the period.
        per_tick: groups of rays per tick, where a scan is a window that moves over the period.
        group: rays that such a window never parts, e.g. the sub-rays of a beam.
        slots: ticks of motion that are kept; call `look` at each tick where it is more than 1.
        motion: other rays of the same mount and targets whose `look` serves these as well, instead of `slots`.
        new_state: `Sensor.new_state`, for the memory of those ticks; None for memory that is not saved.
        block: rays that one thread casts; None for a fitting number.

    Raises:
        ConfigError: directions that are zero or not finite, or nothing to meet.
    """

    _pose: Any
    _moving: Any
    _memory: torch.Tensor
    _offsets: tuple[torch.Tensor, torch.Tensor] | None
    _looked: list[tuple[int, list[Any]]]

    def __init__(
        self,
        scene: RayScene,
        engine: Engine,
        compute: Compute,
        clock: Clock,
        mount: MountView,
        *,
        starts: NDArray[Any] | torch.Tensor | None = None,
        directions: NDArray[Any] | torch.Tensor | None = None,
        targets: Targets | None = None,
        config: str = "RayCast",
        alignment: Alignment = "base",
        offset: tuple[Any, Any] | None = None,
        offsets: tuple[torch.Tensor, torch.Tensor] | None = None,
        limits: tuple[float, float] = (0.0, 1e6),
        miss: float = float("inf"),
        inverse_k: torch.Tensor | None = None,
        image: tuple[int, int] | None = None,
        drawn: torch.Tensor | None = None,
        spread: float = np.pi,
        times: NDArray[Any] | None = None,
        period: float = 0.0,
        count: int | None = None,
        per_tick: float = 0.0,
        group: int = 1,
        slots: int = 1,
        motion: RayCast | None = None,
        new_state: Any = None,
        block: int | None = None,
    ) -> None:
        self._engine, self._compute, self._clock, self._mount = engine, compute, clock, mount
        self.scene, self._config = scene, config
        own = mount.body.tolist()
        self.view, hidden = scene.view(targets or Targets(), own, config)
        device = compute.device
        self._hidden = torch.from_numpy(hidden).to(device)
        self._miss, self._limits = miss, (limits[0], min(limits[1], FARTHEST))  # at infinity a miss would be a hit
        if image is None:
            given = directions if drawn is None else drawn[0]
            assert given is not None
            compute.memory.take_rays((len(given) if count is None else count,), mount.count)
        else:
            compute.memory.take_rays(image, mount.count)
        self._slots = slots
        self._block = (int(BLOCK) if compute.is_cpu else 1) if block is None else block
        bundle, kept = Bundle(), []
        if drawn is not None:
            zeros = torch.zeros_like(drawn[:1])
            bundle.starts = self._array(zeros.expand_as(drawn), wp.vec3)
            bundle.directions = wp.from_torch(drawn, dtype=wp.vec3)
            bundle.total = bundle.count = drawn.shape[1]
            cones = _wide_cones(2.0 * spread, drawn.shape[1])
            kept += [zeros, drawn]
        elif inverse_k is None:
            d = np.asarray(directions, dtype=np.float64).reshape(-1, 3)
            s = np.zeros_like(d) if starts is None else np.asarray(starts, dtype=np.float64).reshape(-1, 3)
            if len(s) != len(d):
                raise ConfigError.single(config, "pattern", f"{len(s)} starts", f"{len(d)}, one for each direction")
            length = np.linalg.norm(d, axis=1)
            wrong = np.flatnonzero(~(length > 1e-12) | ~np.isfinite(s).all(axis=1) | ~np.isfinite(length))
            if len(wrong):
                what = f"ray {wrong[0]} with start {s[wrong[0]].tolist()} and direction {d[wrong[0]].tolist()}"
                raise ConfigError.single(config, "pattern", what, "finite starts, and directions that are not zero")
            d = d / length[:, None]
            if offset is not None:
                turn = rotation((np.asarray(offset[1], np.float64) / np.linalg.norm(offset[1])).tolist())
                s, d = s @ turn.T + np.asarray(offset[0], np.float64), d @ turn.T
            self._directions = d
            bundle.total = len(d)
            bundle.vertical = self._vertical(d, alignment) if offsets is None else 0
            if bundle.vertical and block is None and compute.is_cpu and compute.num_envs >= compute.threads:
                self._block = SCAN  # look-ups are so fast that what a block costs counts
            starts_t = torch.from_numpy(np.ascontiguousarray(s, np.float32)).to(device)
            directions_t = torch.from_numpy(d.astype(np.float32)).to(device)
            bundle.starts = wp.from_torch(starts_t[None], dtype=wp.vec3)
            bundle.directions = wp.from_torch(directions_t[None], dtype=wp.vec3)
            bundle.count = len(d) if count is None else count
            cones = cones_of(s, d, self._block, bundle.count if per_tick == 0.0 else None)
            kept += [starts_t, directions_t]
        else:
            assert image is not None
            bundle.inverse_k = wp.from_torch(inverse_k, dtype=wp.vec3)
            bundle.width = image[1]
            bundle.total = bundle.count = image[0] * image[1]
            cones = self._image_cones(inverse_k, image)
            kept.append(inverse_k)
        self.cones = [torch.from_numpy(values).to(device) for values in cones]
        bundle.angle_cos, bundle.angle_sin, bundle.radius = (wp.from_torch(t, dtype=wp.float32) for t in self.cones)
        self._image = image
        if times is not None:
            times_t = torch.from_numpy(np.ascontiguousarray(times, dtype=np.float32)).to(device)
            bundle.times = wp.from_torch(times_t, dtype=wp.float32)
            kept.append(times_t)
        else:
            bundle.times = wp.zeros(0, dtype=wp.float32, device=device)
        bundle.period, bundle.per_tick, bundle.group = wp.float64(period), wp.float64(per_tick), group
        self.count = int(bundle.count)
        """Rays of one scan."""
        self.vertical = int(bundle.vertical)
        self._surroundings = self.view.indexed() if self.vertical else self.view.slanted()  # long builds come now
        self._bundle, self._kept = bundle, kept
        if motion is None:
            self._make_pose(alignment, offsets, slots, new_state)
        else:
            assert motion.view is self.view
            self._slots, self._pose, self._moving = motion._slots, motion._pose, motion._moving
            self._memory, self._offsets, self._looked = motion._memory, motion._offsets, motion._looked

    @property
    def bundle(self) -> Any:
        """The rays, for kernels of a sensor's own: a `geometry.ray_structs.Bundle`."""
        return self._bundle

    @property
    def pose(self) -> Any:
        """Where the mounts are, likewise: a `geometry.ray_structs.Pose`, without drift."""
        return self._drifting(None, None)

    def __repr__(self) -> str:
        return f"RayCast({self._config}: {self.count} rays at {self._mount!r}, {len(self.view.shapes)} single shapes)"

    @staticmethod
    def _vertical(directions: NDArray[np.float64], alignment: Alignment) -> int:
        """Return -1 or 1 where all rays are along the world's -z or +z, however the mount turns."""
        for sign in (-1, 1):
            if alignment != "base" and (directions == np.array([0.0, 0.0, sign])).all():
                return sign
        return 0

    def _make_pose(
        self, alignment: Alignment, offsets: tuple[torch.Tensor, torch.Tensor] | None, slots: int, new_state: Any
    ) -> None:
        envs, mounts, moving, device = self._compute.num_envs, self._mount.count, self.view.moving, self._compute.device
        pose = Pose()
        pose.alignment, pose.slots, pose.dt = _ALIGNMENTS[alignment], slots, wp.float64(self._clock.dt)
        if new_state is None:
            memory = torch.zeros((envs, slots * (mounts * 7 + moving * 10)), dtype=torch.float32, device=device)
        else:
            memory = new_state("motion", (slots * (mounts * 7 + moving * 10),))
        parts, start = [], 0
        for count, width in ((mounts, 3), (mounts, 4), (moving, 3), (moving, 4), (moving, 3)):
            size = slots * count * width
            parts.append(memory[:, start : start + size].view(envs, slots, count, width))
            start += size
        vector = {3: wp.vec3, 4: wp.vec4}
        arrays = [self._array(part, vector[part.shape[-1]]) for part in parts]
        pose.pos, pose.quat = arrays[:2]
        none = torch.zeros((0, 1, 4), dtype=torch.float32, device=device)
        if offsets is not None:
            pose.offset_pos = wp.from_torch(offsets[0], dtype=wp.vec3)
            pose.offset_quat = wp.from_torch(offsets[1], dtype=wp.vec4)
        else:
            pose.offset_pos = wp.from_torch(none[..., :3].contiguous(), dtype=wp.vec3)
            pose.offset_quat = wp.from_torch(none, dtype=wp.vec4)
        self._moving = Moving()
        self._moving.pos, self._moving.quat, self._moving.centre = arrays[2:]
        self._pose, self._memory, self._offsets = pose, memory, offsets
        self._looked = []
        if slots > 1:
            make = new_state or (lambda name, shape: torch.zeros((envs, *shape), dtype=torch.float32, device=device))
            looked = make("looked", (mounts + moving,)).view(torch.int32)
            none3 = wp.zeros((0, 0, 0), dtype=wp.vec3, device=device)
            for each, arrays_of in (
                (looked[:, :mounts], (*arrays[:2], none3)),
                (looked[:, mounts:], tuple(arrays[2:])),
            ):
                if each.shape[1]:
                    self._looked.append((each.shape[1], [self._ints(each), *arrays_of]))

    def _ints(self, tensor: torch.Tensor) -> Any:
        """View a strided tensor of whole numbers as a Warp array, which keeps the tensor."""
        return wp.from_torch(tensor, dtype=wp.int32)

    def _array(self, tensor: torch.Tensor, dtype: Any) -> Any:
        """View a strided tensor as a Warp array of vectors."""
        shape, item = tensor.shape[:-1], tensor.element_size()
        strides = tuple(step * item for step in tensor.stride()[:-1])
        if 0 in tensor.shape:
            return wp.zeros(shape, dtype=dtype, device=self._compute.device)
        return wp.array(
            ptr=tensor.data_ptr(), dtype=dtype, shape=tuple(shape), strides=strides, device=self._compute.device
        )

    def _image_cones(self, inverse_k: torch.Tensor, image: tuple[int, int]) -> Cones:
        """Return what holds each block of pixels for every one of the matrices, by the block's first pixel."""
        height, width = image
        first = np.arange(0, height * width, self._block)
        last = np.minimum(first + self._block, height * width)
        cosine = np.ones(len(first))
        matrices = np.unique(inverse_k.detach().cpu().numpy().astype(np.float64), axis=0)
        for matrix in matrices if self._block > 1 else ():
            middle = pixel_rays((first + last) // 2, width, matrix)
            for k in range(self._block):
                other = pixel_rays(np.minimum(first + k, last - 1), width, matrix)
                cosine = np.minimum(cosine, (middle * other).sum(axis=1))
        angle = np.full(height * width, 1e-4)
        angle[first] += np.arccos(np.clip(cosine, -1.0, 1.0))
        sine = np.where(angle < 1.5, np.sin(angle), -1.0)
        radius = np.full(height * width, 1e-6)
        cosines, sines, radii = (values.astype(np.float32)[None] for values in (np.cos(angle), sine, radius))
        return cosines, sines, radii

    def widen(self, inverse_k: torch.Tensor, *, more: bool = False) -> None:
        """Take note that intrinsic matrices have changed.

        Args:
            inverse_k: rows of the inverse matrices, `[n, 3, 3]`.
            more: whether there are others that stay as they are.
        """
        assert self._image is not None
        new = [
            torch.from_numpy(values).to(self._compute.device) for values in self._image_cones(inverse_k, self._image)
        ]
        is_wider = new[0] < self.cones[0]
        for mine, other in zip(self.cones, new, strict=True):
            mine.copy_(torch.where(is_wider, other, mine) if more else other)

    # Work -------------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Keep where the mount and the moving shapes are at this tick, and flag what is not finite (launches)."""
        compute, clock = self._compute, self._clock
        pose = [wp.from_torch(self._mount.pos_w, dtype=wp.vec3), wp.from_torch(self._mount.quat_w, dtype=wp.vec4)]
        inputs = [self._slots, *pose]
        flags = [wp.from_torch(self._mount.bad, dtype=wp.uint8), clock.bad_wp]
        compute.launch(keep_pose, (self._mount.count,), inputs, [self._pose.pos, self._pose.quat, *flags])
        if self.view.moving:
            bodies = [
                wp.from_torch(self._engine.array("body_pos_w"), dtype=wp.vec3),
                wp.from_torch(self._engine.array("body_quat_w"), dtype=wp.vec4),
            ]
            inputs = [self._slots, self.view.instances, *bodies]
            outputs = [self._moving.pos, self._moving.quat, self._moving.centre, *flags]
            compute.launch(place_shapes, (self.view.moving,), inputs, outputs)
        for count, places in self._looked:
            compute.launch(bridge_gap, (count,), [self._slots], places)

    def cast(
        self,
        outputs: Mapping[str, torch.Tensor],
        *,
        drift: torch.Tensor | None = None,
        cast_drift: torch.Tensor | None = None,
        instant: bool = False,
        look: bool = True,
        miss: float | None = None,
    ) -> None:
        """Cast all rays at the current state (launches).

        Args:
            outputs: which of `Hits` is written where, `[env, mount, ray, ...]` with any split of the ray axis.
            drift: `[env, mount, 3]`, added to the mount's position, m, world.
            cast_drift: `[env, mount, 3]`: x and y move the starts in the alignment's axes, z the hits, m.
            instant: cast all rays from the pose at the capture, although they fire at different times.
            look: note first where everything is; False where that was done for this sample.
            miss: what a distance shows for a miss; by default what this was made with.
        """
        if look:
            self.look()
        compute, device = self._compute, self._compute.device
        envs, mounts = compute.num_envs, self._mount.count
        out = Hits()
        for name, dtype in _HITS.items():
            tensor = outputs.get(name)
            if tensor is None:
                setattr(out, name, wp.zeros((0, 0, 0), dtype=dtype, device=device))
                continue
            width = () if dtype in (wp.float32, wp.int32) else (3,)
            setattr(out, name, wp.from_torch(tensor.view(envs, mounts, self.count, *width), dtype=dtype))
        out.miss = self._miss if miss is None else miss
        pose = self._drifting(drift, cast_drift)
        bundle = self._bundle
        if instant and self._slots > 1:
            bundle = _copy(self._bundle)
            bundle.times = wp.zeros(0, dtype=wp.float32, device=device)
        surroundings = self._surroundings
        inputs = [
            wp.vec2(*self._limits),
            self._block,
            surroundings,
            self.view.instances,
            self.scene.fields,
            self._moving,
            wp.from_torch(self._hidden, dtype=wp.uint8),
            pose,
            bundle,
        ]
        blocks = -(-self.count // self._block)
        if self.vertical and self.view.is_flat and self._slots == 1 and self._offsets is None:
            is_more = int(not set(outputs) <= {"distance", "point"})
            compute.launch(cast_vertical, (mounts, blocks), [*inputs, is_more], [out], split=True)
        else:
            compute.launch(cast_rays, (mounts, blocks), inputs, [out], split=True)

    def points(
        self,
        distance: torch.Tensor,
        point: torch.Tensor,
        *,
        drift: torch.Tensor | None = None,
        cast_drift: torch.Tensor | None = None,
    ) -> None:
        """Write where rays of given lengths end, for the state of the last cast; +inf where a length is not finite.

        Args:
            distance: `[env, mount, ray]`, m.
            point: `[env, mount, ray, 3]`, m, world: what is written.
            drift: see `cast`.
            cast_drift: see `cast`.
        """
        compute = self._compute
        shape = (compute.num_envs, self._mount.count, self.count)
        inputs = [
            self._block,
            self._drifting(drift, cast_drift),
            self._bundle,
            wp.from_torch(distance.view(shape), dtype=wp.float32),
        ]
        outputs = [wp.from_torch(point.view(*shape, 3), dtype=wp.vec3)]
        blocks = -(-self.count // self._block)
        compute.launch(ray_points, (self._mount.count, blocks), inputs, outputs, split=True)

    def _drifting(self, drift: torch.Tensor | None, cast_drift: torch.Tensor | None) -> Any:
        pose = _copy(self._pose)
        none = wp.zeros((0, 0), dtype=wp.vec3, device=self._compute.device)
        pose.drift = none if drift is None else wp.from_torch(drift, dtype=wp.vec3)
        pose.cast_drift = none if cast_drift is None else wp.from_torch(cast_drift, dtype=wp.vec3)
        return pose

    def body_at_fault(self, env: int, mount: int) -> str:
        """Return the name of the body whose state is not finite: the mount's, or one that carries a shape."""
        rows = [
            int(self._mount.body[mount]),
            *map(int, self.view.bodies[-self.view.moving :] if self.view.moving else ()),
        ]
        names = self._engine.names("body")
        for row in rows:
            pose = [self._engine.array(name)[env, row] for name in ("body_pos_w", "body_quat_w")] if row >= 0 else []
            if not all(bool(torch.isfinite(part).all()) for part in pose):
                return names[row]
        return self._mount.body_names[mount]

    @property
    def nbytes(self) -> int:
        """Bytes of its own memory."""
        own = [self._memory, self._hidden, *self.cones, *self._kept]
        return sum(tensor.numel() * tensor.element_size() for tensor in own)


def _copy(struct: Any) -> Any:
    """Return another struct with the same members."""
    kind: Any = Bundle if hasattr(struct, "inverse_k") else Pose
    other = kind()
    for name in kind.vars:
        setattr(other, name, getattr(struct, name))
    return other


def _wide_cones(angle: float, count: int) -> Cones:
    """Return what `cones_of` does, for rays from one point within an angle of each other, rad."""
    angle += 1e-4
    sine = np.sin(angle) if angle < 1.5 else -1.0
    return tuple(np.full((1, count), value, np.float32) for value in (np.cos(angle), sine, 1e-6))  # type: ignore[return-value]


def pixel_rays(pixel: NDArray[Any], width: int, inverse_k: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return unit directions of pixels of an image, counted row by row, in the ray frame, `[pixel, 3]`."""
    v, u = np.divmod(pixel, width)
    p = np.stack([u + 0.5, v + 0.5, np.ones(len(pixel))], axis=1) @ inverse_k.T
    d = np.stack([p[:, 2], -p[:, 0], -p[:, 1]], axis=1)
    unit: NDArray[np.float64] = d / np.linalg.norm(d, axis=1, keepdims=True)
    return unit


def cones_of(starts: NDArray[np.float64], directions: NDArray[np.float64], block: int, count: int | None) -> Cones:
    """Return cosine, sine and radius of what holds each block of rays about its middle ray, by the block's first ray.

    Args:
        starts: `[ray, 3]`.
        directions: `[ray, 3]`, unit.
        block: rays in a block.
        count: rays of a scan; None where blocks may start at any ray and wrap around.

    Returns:
        Three arrays `[1, ray]`; the sine is -1 where a block is wider than a half space.
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


__all__ = ["Alignment", "RayCast", "cones_of"]
