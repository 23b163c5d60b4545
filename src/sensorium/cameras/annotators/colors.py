"""Colours of the visible surfaces: with light, and without (albedo)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch
import warp as wp

from sensorium.cameras.annotators.base import Annotator
from sensorium.cameras.camera_data import CameraData
from sensorium.cameras.random_looks import RandomLooks
from sensorium.cameras.render.image_cast import ImageCast, ImageSpec
from sensorium.cameras.render.looks import SceneLooks
from sensorium.cameras.render.paint_structs import Canvas
from sensorium.cameras.render.paths import trace_paths
from sensorium.cameras.render.shade import refine_lens, shade, write_bytes, write_linear
from sensorium.cameras.render.shadows import cast_shadows
from sensorium.cameras.render.srgb import encoded
from sensorium.cameras.stages.image_sensor import LINEAR
from sensorium.compute import Rows, kernel, masked_tid
from sensorium.errors import ConfigError, ModelError
from sensorium.measurement.record import Record
from sensorium.sensors.core.parts import declared_fields
from sensorium.spec import resolve_field

if TYPE_CHECKING:
    from sensorium.cameras.camera import Camera

SIDE = 16
"""Pixels along a side of a tile whose shadows are found together, on a CPU core."""
SIDE_ON_GPU = 2
"""The same number on a GPU."""
CHANNELS = {"rgb": 3, "rgba": 4, "albedo": 4}
"""Data types of bytes -> their channels."""
LIT = ("rgb", "rgba", LINEAR)
"""Data types that need light."""


@kernel
def encode_linear(
    rows: Rows, width: int, channels: int, linear: wp.array3d[wp.vec3], image: wp.array3d[wp.uint8]
) -> None:
    """Write a row of linear colours as bytes; a fourth channel stays."""
    env, mount, piece = masked_tid(rows)
    row = rows.first + piece
    for pixel in range(row * width, (row + 1) * width):
        color = linear[env, mount, pixel]
        for k in range(3):
            image[env, mount, pixel * channels + k] = wp.uint8(int(255.0 * encoded(color[k]) + 0.5))


class Colors(Annotator):
    """`rgb`, `rgba`, `albedo` and `linear_rgb`.

    Attributes:
        cast: the visibility pass of its colours: that of the camera, or of a finer image.
    """

    types = (*CHANNELS, LINEAR)

    def __init__(self, camera: Camera, names: tuple[str, ...]) -> None:
        super().__init__(camera, names)
        cfg, device = camera.cfg, camera.device
        self._side = 2 if cfg.samples == 4 else 1
        self.cast = camera.cast if self._side == 1 else self._finer_cast()
        self._record: Record | None = None
        try:
            self._looks = looks = camera.service(SceneLooks)
        except ModelError as error:
            raise ConfigError.single(cfg.title, "data_types", names, "types without color", str(error)) from None
        self._is_lit = any(name in LIT for name in names)
        self._backdrop = looks.backdrop(fog=cfg.fog, haze=cfg.haze)
        self._textured = looks.looks if cfg.textures else looks.without_textures
        self._casts_shadows = (
            self._is_lit and cfg.shadows and any(light.casts_shadow for light in looks.lighting.lights)
        )
        self._has_mirrors = self._is_lit and cfg.reflections and looks.has_mirrors
        self._has_paths = self._is_lit and (self._has_mirrors or looks.has_clear)
        shape = self.cast.record.inverse.shape
        self._memory: list[torch.Tensor] = []

        def memory(is_used: bool, width: int, torch_type: torch.dtype, dtype: Any) -> Any:
            tensor = torch.zeros((*(shape if is_used else (0, 0, 0)), width), dtype=torch_type, device=device)
            self._memory.append(tensor)
            return wp.from_torch(tensor if width > 1 else tensor[..., 0], dtype=dtype)

        finer = {*names} if self._side > 1 else set()
        self._samples = memory(bool({"rgb", "rgba"} & finer), 4, torch.float32, wp.vec4)
        self._linear_samples = memory(LINEAR in finer, 3, torch.float32, wp.vec3)
        self._albedo_samples = memory("albedo" in finer, 4, torch.float32, wp.vec4)
        self._reached = memory(self._casts_shadows, 1, torch.int32, wp.int32)

        each = {name: table for name, table in looks.tables.items() if len(table) == camera.num_envs}
        camera.buffers.kept |= {f"looks/{name}": table for name, table in each.items()}

    def _finer_cast(self) -> ImageCast:
        """Return the visibility pass of an image with four pixels for each one of the camera."""
        camera = self.camera
        if camera.cast.lens.inverse_k.shape[0] == 0:
            expected, fix = "1 for this lens", "Several samples are available for a pinhole."
            raise ConfigError.single(camera.cfg.title, "samples", camera.cfg.samples, expected, fix)
        height, width = camera.image_shape
        self._inverse_k = torch.zeros((camera.num_envs, 3, 3), dtype=torch.float32, device=camera.device)
        view = {**camera.view, "image": (2 * height, 2 * width), "inverse_k": self._inverse_k}
        return ImageCast(camera.query_context, ImageSpec(**view))

    def reset(self, env_mask: torch.Tensor) -> None:
        """Set the looks of a new episode."""
        self.camera.service(RandomLooks).reset(env_mask)

    def loaded(self) -> None:
        """Set the looks that were restored."""
        self._looks.bind()

    def begin(self) -> None:
        """Place the lights (a launch, and one for the lens of a finer image)."""
        if self._is_lit:
            self._looks.place(self.cast.body_pose())
        if self._side > 1:
            inverse_k = self.camera.cast.lens.inverse_k
            self.camera.compute_on.launch(refine_lens, (3,), [inverse_k], [self.cast.lens.inverse_k])

    def annotate(self, record: Record, hits: Any, *, is_last: bool) -> None:
        """Compute the colours of a frame (a launch, and one each for shadows and for paths)."""
        self._record = record
        if self._side == 1:
            self._draw(record, hits)

    def finish(self) -> None:
        """Compute the colours of a finer image, and from them those of the frame."""
        if self._side > 1 and self._record is not None:
            with self.cast.render() as hits:
                self._draw(self._record, hits)

    def _canvas(self, record: Record) -> Any:
        """Return where the colours go: to the images of a record, or to the samples of a finer image."""
        out = Canvas()
        images = record if self._side == 1 else Record((), 0, self.camera.device)
        for name, channels in CHANNELS.items():
            setattr(out, name, self.image(images, name, wp.uint8, channels))
        out.linear = self.image(images, LINEAR, wp.vec3)
        out.samples, out.linear_samples, out.albedo_samples = self._samples, self._linear_samples, self._albedo_samples
        return out

    def _draw(self, record: Record, hits: Any) -> None:
        """Compute the colours of the surfaces, and write them into the images of a record."""
        camera, cast, looks, launch = self.camera, self.cast, self._looks, self.camera.compute_on.launch
        mounts, canvas = camera.mount.count, self._canvas(record)
        seen = [cast.lens, cast.cameras, cast.placed, cast.arrays.fields]
        if self._casts_shadows:
            side, variant = (SIDE, "drawn") if camera.compute_on.is_cpu else (SIDE_ON_GPU, "rays")
            tiles = -(-cast.lens.width // side) * -(-cast.lens.height // side)
            inputs = [side, *seen, cast.view.surfaces, self._textured, looks.lights, cast.hidden, hits]
            launch(cast_shadows[variant], (mounts, tiles), inputs, [self._reached], split=True)
        drawn = [*seen, self._textured, looks.images, looks.lights, self._backdrop]
        rows = (mounts, cast.lens.height)
        launch(shade, rows, [int(self._is_lit), float(self._side), *drawn, hits, self._reached], [canvas], split="row")
        if self._has_paths:
            flags = [int(self._casts_shadows), int(self._has_mirrors), float(self._side)]
            launch(trace_paths, rows, [*flags, *drawn, cast.hidden, hits], [canvas], split="row")
        if self._side > 1:
            self._average(record)

    def _average(self, record: Record) -> None:
        """Write the means of the samples of a finer image into the images of a record."""
        camera, launch = self.camera, self.camera.compute_on.launch
        height, width = camera.image_shape
        rows = (camera.mount.count, height)
        for name, channels in CHANNELS.items():
            if name in self.names:
                samples = self._albedo_samples if name == "albedo" else self._samples
                image = self.image(record, name, wp.uint8, channels)
                launch(write_bytes, rows, [width, channels, samples], [image], split=True)
        if LINEAR in self.names:
            image = self.image(record, LINEAR, wp.vec3)
            launch(write_linear, rows, [width, self._linear_samples], [image], split=True)

    def paint(self, record: Record, *, is_placed: bool) -> None:
        """Compute the colours of a frame apart from the camera's (launches); `begin` comes first.

        Args:
            record: fields of the frame.
            is_placed: whether `cast` already holds the poses to use.
        """
        surfaces = self.camera.surfaces if self._side == 1 else self.cast.render
        with surfaces(is_placed=is_placed) as hits:
            self._draw(record, hits)

    def derive(self, record: Record, altered: Collection[str]) -> None:
        """Encode measured linear colours as `rgb` and `rgba` (a launch each); the opacity stays."""
        if LINEAR not in altered:
            return
        linear = self.image(record, LINEAR, wp.vec3)
        for name, channels in (("rgb", 3), ("rgba", 4)):
            if name in self.names:
                image = self.image(record, name, wp.uint8, channels)
                rows = (self.camera.mount.count, self.camera.image_shape[0])
                inputs = [self.camera.image_shape[1], channels, linear]
                self.camera.compute_on.launch(encode_linear, rows, inputs, [image], split=True)


class LinearLight:
    """Linear colours that a camera computes for its own use.

    Args:
        camera: the camera, whose visibility pass exists.

    Attributes:
        cast: the visibility pass of the colours.
        image: the colours, float32 `[env, mount, height, width, 3]`.
    """

    def __init__(self, camera: Camera) -> None:
        field = Colors.sized(LINEAR, declared_fields(CameraData)[LINEAR], camera)
        spec = resolve_field(LINEAR, field, camera.mount.count)
        self._record = Record([spec], camera.num_envs, camera.device)
        self._colors = Colors(camera, (LINEAR,))
        self.cast = self._colors.cast
        self.image = self._record[LINEAR]

    def render(self, *, is_placed: bool = False) -> None:
        """Compute the colours (launches).

        Args:
            is_placed: whether `cast` already holds the poses to use.
        """
        self._colors.begin()
        self._colors.paint(self._record, is_placed=is_placed)
