"""The visibility pass of the cameras of one sensor: which surface each pixel shows.

A sensor creates an `ImageCast` in `setup`, and launches its annotators in a hook marked `@recorded`:

    spec = ImageSpec(image=(height, width), inverse_k=inverse_k, offsets=(pos, quat), limits=(0.01, 100.0))
    self._cast = ImageCast(self.query_context, spec)

    with self._cast.render() as record:
        self.compute_on.launch(annotate, (mounts, height), [self._cast.lens, record], [image], split=True)

Memory: the hit record takes 12 B per pixel of the environments in flight. The launches of the block therefore run on
some environments at a time. They must not be tasks. In a kernel, the record of an environment is at
`compute.place_of(rows, env)`, and images are at `env`. A thread should compute a row, because a thread per pixel costs
more than the work on it:

    env, mount, piece = masked_tid(rows)
    place = place_of(rows, env)
    first = (rows.first + piece) * lens.width
    for pixel in range(first, first + lens.width):
        image[env, mount, pixel] = 1.0 / record.inverse[place, mount, pixel]

The structs `lens`, `cameras`, `placed` and the record are those of `cameras.render.structs`, which also has the kernel
functions `pixel_line` and `shape_pose`.

Rules: both faces of a surface are visible. A transparent shape is opaque, except that one with alpha 0 is invisible.
Surfaces with t outside the limits are cut away. Of surfaces at the same t, a pixel shows the one with the lowest shape
number, then the one with the lowest face.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import warp as wp

from sensorium.cameras.render.cast import cast_pixels
from sensorium.cameras.render.image_view import ImageViews
from sensorium.cameras.render.place import BASE, WORLD, YAW, place_cameras, place_segments
from sensorium.cameras.render.raster import FEW, draw_analytic, draw_clusters, list_shapes
from sensorium.cameras.render.structs import Cameras, HitRecord, Lens, Lists, Placed
from sensorium.shapes.query import MountQuery, QueryContext
from sensorium.shapes.scene import Targets

Alignment = Literal["base", "yaw", "world"]
_ALIGNMENTS = {"base": BASE, "yaw": YAW, "world": WORLD}
PIXELS_IN_FLIGHT = 1 << 16
"""Pixels of the environments in flight on each CPU core, about; at least one environment is in flight."""
PIXELS_ON_GPU = 1 << 24
"""The same number on a GPU."""
TILE = 64
"""Pixels along a side of a tile on a CPU core."""
TILE_ON_GPU = 8
"""The same number on a GPU, where a thread draws a tile."""
SIDE = 16
"""Pixels along a side of a tile for a table of directions, on a CPU core."""
SIDE_ON_GPU = 2
"""The same number on a GPU."""


@dataclass(frozen=True, kw_only=True)
class ImageSpec:
    """The images of one sensor. Give either `inverse_k` or `directions`.

    The camera's frame has x forward, y to the left and z up.

    Attributes:
        image: height and width, px.
        inverse_k: pinhole: inverse intrinsic matrices `[1 or env, 3, 3]`, live.
        directions: other lenses: unit vectors `[1 or env, pixel, 3]` in the camera's frame; 0 for pixels that see
            nothing.
        starts: with `directions`: starts of the lines of sight `[1 or env, pixel, 3]`, m; None for all at the camera.
        offsets: poses of the cameras on their mounts, live: `[1 or env, mount, 3]` m, and `[1 or env, mount, 4]`.
        alignment: rotation with the mount: ``"base"`` fully, ``"yaw"`` about the vertical only, ``"world"`` not at all.
        limits: minimum and maximum t, m: depth for a pinhole, length of the ray for other lenses.
        targets: the visible shapes; by default all visual geoms, including those of the mount's own body. A sensor that
            selects tendons requires `TENDON_PATHS`.
    """

    image: tuple[int, int]
    inverse_k: torch.Tensor | None = None
    directions: torch.Tensor | None = None
    starts: torch.Tensor | None = None
    offsets: tuple[torch.Tensor, torch.Tensor]
    alignment: Alignment = "base"
    limits: tuple[float, float] = (0.01, 1e6)
    targets: Targets | None = None


class ImageCast(MountQuery):
    """The visibility pass of the cameras of one sensor.

    Args:
        context: context of the cast.
        spec: the images.

    Attributes:
        lens: the lines of sight, for kernels.
        cameras: poses of the cameras in the world, for kernels.
        placed: the visible shapes and their poses, for kernels.
        record: the hit record, for kernels inside `render`.
        pos_w: positions of the cameras `[env, mount, 3]`, m, float32, as of the last `render`.
        quat_w: their orientations `[env, mount, 4]`.
        moving_pos_w: origins of the moving shapes `[env, moving, 3]`, m, float32, as of the last `render`.
        moving_quat_w: their orientations `[env, moving, 4]`.
        moving: number in the scene of each moving shape.
    """

    is_cast: ClassVar[bool] = True

    def __init__(self, context: QueryContext, spec: ImageSpec) -> None:
        compute, mount, device = context.compute, context.mount, context.compute.device
        targets = spec.targets or Targets(exclude_own=False)
        super().__init__(context, *context.scene.view(ImageViews).select(targets, mount.body.tolist(), context.config))
        self._spec = spec
        height, width = spec.image
        self.count = height * width
        """Pixels of one image."""
        envs, mounts = compute.num_envs, mount.count
        compute.memory.take_rays(spec.image, mounts)
        view = self.view
        self.moving = view.shapes[view.placed.instances.moving :]

        def memory(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            self._own.append(torch.zeros(shape, dtype=dtype, device=device))
            return self._own[-1]

        self.pos_w, self.quat_w = memory(envs, mounts, 3), memory(envs, mounts, 4)
        moving = len(self.moving)
        self.moving_pos_w, self.moving_quat_w = memory(envs, moving, 3), memory(envs, moving, 4)
        poses = (self.moving_pos_w, self.moving_quat_w, memory(envs, moving, 3))
        self.cameras = Cameras()
        self.cameras.pos = wp.from_torch(self.pos_w, dtype=wp.vec3)
        self.cameras.quat = wp.from_torch(self.quat_w, dtype=wp.vec4)
        self.placed = Placed()
        for name in ("instances", "half", "surface", "row", "segments"):
            setattr(self.placed, name, getattr(view.placed, name))
        dtypes = (wp.vec3, wp.vec4, wp.vec3)
        for name, pose, dtype in zip(("pos", "quat", "centre"), poses, dtypes, strict=True):
            setattr(self.placed, name, wp.from_torch(pose, dtype=dtype))
        self._places = [wp.from_torch(pose[:, None], dtype=dtype) for pose, dtype in zip(poses, dtypes, strict=True)]
        self.placed.size = wp.from_torch(memory(envs, len(view.segments), 3), dtype=wp.vec3)
        self._segments = torch.from_numpy(view.segments).to(device)
        self.lens = self._make_lens()
        self._tiles = self.lens.columns * -(-height // self.lens.tile)
        in_flight = PIXELS_IN_FLIGHT if compute.is_cpu else PIXELS_ON_GPU
        self._part = compute.part_of(in_flight // (self.count * mounts))
        shape = (self._part.places, mounts, self.count)
        self.record = HitRecord()
        self.record.inverse = wp.from_torch(memory(*shape))
        self.record.shape, self.record.face = (wp.from_torch(memory(*shape, dtype=torch.int32)) for _ in range(2))
        tiles = (self._part.places, mounts, self._tiles if spec.inverse_k is not None else 0)
        self._lists = Lists()
        self._lists.count = wp.from_torch(memory(*tiles, dtype=torch.int32))
        self._lists.front = wp.from_torch(memory(*tiles, len(view.shapes)))
        for name in ("row", "rect"):
            setattr(self._lists, name, wp.from_torch(memory(*tiles, len(view.shapes), dtype=torch.int32)))

    def _make_lens(self) -> Any:
        spec, lens = self._spec, Lens()
        lens.height, lens.width = spec.image
        lens.tile = TILE if self._compute.is_cpu else TILE_ON_GPU
        lens.columns = -(-lens.width // lens.tile)
        lens.near, lens.far = spec.limits
        for name in ("inverse_k", "directions", "starts"):
            tensor = getattr(spec, name)
            none = wp.zeros((0, 0), dtype=wp.vec3, device=self._compute.device)
            setattr(lens, name, none if tensor is None else wp.from_torch(tensor, dtype=wp.vec3))
        return lens

    def look_along(self, directions: torch.Tensor, starts: torch.Tensor | None = None) -> None:
        """Replace the tables of `ImageSpec`; launches that were recorded before keep the previous ones."""
        self.lens.directions = wp.from_torch(directions, dtype=wp.vec3)
        if starts is not None:
            self.lens.starts = wp.from_torch(starts, dtype=wp.vec3)

    def __repr__(self) -> str:
        height, width = self._spec.image
        return f"ImageCast({self._config}: {width} x {height} px at {self._mount!r}, {len(self.view.shapes)} shapes)"

    def place(self, drift: torch.Tensor | None = None) -> None:
        """Place cameras and shapes at their current poses (launches).

        Args:
            drift: `[env, mount, 3]`, added to the cameras' positions, m, world.
        """
        compute, mounts, flags = self._compute, self._mount.count, self._flags()
        offsets = [wp.from_torch(self._spec.offsets[0], dtype=wp.vec3)]
        offsets.append(wp.from_torch(self._spec.offsets[1], dtype=wp.vec4))
        none = wp.zeros((0, 0), dtype=wp.vec3, device=compute.device)
        drifts = none if drift is None else wp.from_torch(drift, dtype=wp.vec3)
        inputs = [_ALIGNMENTS[self._spec.alignment], *self.mount_pose(), *offsets, drifts]
        compute.launch(place_cameras, (mounts,), inputs, [self.cameras, *flags])
        segments = len(self.view.segments)
        self.place_shapes(self.placed.instances, len(self.moving) - segments, self._places)
        if segments:
            inputs = [wp.from_torch(self._segments), *self.tendon_paths()]
            compute.launch(place_segments, (segments,), inputs, [self.placed, *flags])

    @contextmanager
    def render(self, drift: torch.Tensor | None = None, *, is_placed: bool = False) -> Iterator[Any]:
        """Place cameras and shapes, and find the nearest surface of each pixel (launches).

        The launches in the block run after that, part by part of the environments. The value is `record`.

        Args:
            drift: see `place`.
            is_placed: whether `cameras` and `placed` already hold the poses to use.
        """
        if not is_placed:
            self.place(drift)
        with self._compute.by_parts(self._part):
            if self._spec.inverse_k is None:
                self._cast_table()
            else:
                self._draw()
            yield self.record

    def _draw(self) -> None:
        """Draw all tiles of a pinhole image (launches)."""
        view, where = self.view, [self.lens, self.cameras, self.placed]

        def launch(kernel: Any, *inputs: Any) -> None:
            items = (self._mount.count, self._tiles)
            self._compute.launch(kernel, items, [*where, *inputs], [self.record], split="tile")

        launch(list_shapes, view.surfaces, self.hidden, self._lists)
        if view.kinds - {"mesh", "hfield"} or view.most_triangles > FEW:
            launch(draw_analytic, self._lists)
        if view.kinds & {"mesh", "hfield"}:
            launch(draw_clusters, view.surfaces, self._lists)

    def _cast_table(self) -> None:
        """Cast the pixels of a table of directions (launches)."""
        side = SIDE if self._compute.is_cpu else SIDE_ON_GPU
        tiles = -(-self.lens.width // side) * -(-self.lens.height // side)
        inputs = [side, self.lens, self.cameras, self.placed, self.arrays.fields, self.hidden]
        self._compute.launch(cast_pixels, (self._mount.count, tiles), inputs, [self.record], split=True)
