"""Base of sensors that render their images themselves, such as cameras of plugins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from sensorium.cameras.camera_base_cfg import CameraMountCfg
from sensorium.cameras.geometry import convert_orientation_convention
from sensorium.geometry.transforms import matrix_from_quat, quat_apply, quat_mul
from sensorium.measurement.record import Record, Timeline
from sensorium.measurement.work import as_fields
from sensorium.patterns.pinhole import Pixels
from sensorium.sensors.core.base import PIPELINE_KNOBS, Sensor
from sensorium.sensors.core.hooks import hook_of
from sensorium.sensors.core.parts import SensorContext
from sensorium.sensors.core.reader import DataT
from sensorium.spec import BODY_POSE, Field, Requirement
from sensorium.world.mount import MountView


class RenderedSensorCfg(CameraMountCfg[DataT], Generic[DataT]):
    """Configuration of a camera that renders its own images.

    `offset` places the camera on its mount: numbers, `CameraOffsetCfg.from_view(pos, lookat, up)` or
    `CameraOffsetCfg.from_matrix(matrix)`; the class is `RenderedSensorCfg.OffsetCfg`.
    """

    width: Pixels
    """Number of columns, px."""
    height: Pixels
    """Number of rows, px."""


RenderedCfgT = TypeVar("RenderedCfgT", bound=RenderedSensorCfg[Any])


class RenderedSensor(Sensor[RenderedCfgT, DataT], Generic[RenderedCfgT, DataT]):
    """Camera that renders its own images: `apply_camera_transform` gets its pose, `render_current_state` the image.

    A camera without knobs is rendered at the first read after a step, once for all reads, and not at all without a
    read. Its only memory is `output`. Knobs of the pipeline, such as `delay`, `history_length` or `noise`, apply if the
    config gives them. Frames are then rendered when due and kept.

    `post_process` projects `output`, which has the `intermediate_fields`, to the images that readers see. It may read
    earlier images with `lookback` of at least 1; frames are then also rendered when due.
    """

    requires: ClassVar[tuple[Requirement, ...]] = (BODY_POSE,)
    uses_ring_pipeline: ClassVar[bool] = False
    mount: MountView

    output: Record
    """The images to fill, `[env, mount, ...]` per field; available from `setup` on."""

    def __init__(self, cfg: RenderedCfgT, context: SensorContext) -> None:
        others = any(getattr(cfg, knob) not in (None, ()) for knob in PIPELINE_KNOBS if knob != "history_length")
        self.__dict__["uses_ring_pipeline"] = others or cfg.history_length > 0 or self.lookback > 0
        super().__init__(cfg, context)

    # Hooks for authors ------------------------------------------------------------------------------------------------

    def fields(self) -> Mapping[str, Field]:
        """Return the declared fields. Height and width of the config replace the first two axes of images.

        Images are the fields of role ``"image"``.
        """
        fields = super().fields()
        return {
            name: replace(field, shape=(*self.image_shape, *field.shape[2:])) if field.role == "image" else field
            for name, field in fields.items()
        }

    def apply_camera_transform(self, transform: Tensor) -> None:
        """Pass the poses of the cameras to the renderer; by default nothing.

        Args:
            transform: camera to world, float32 `[env, mount, 4, 4]`, m: axes right, up, backward (the camera looks
                along -z, as in OpenGL). A new tensor at each call.
        """

    def render_current_state(self) -> None:
        """Render the current state of the engine into `output`, for all environments and mounts."""
        raise NotImplementedError(f"{type(self).__name__} must define render_current_state(self)")

    # Rendering --------------------------------------------------------------------------------------------------------

    @property
    def image_shape(self) -> tuple[int, int]:
        """(height, width), pixels."""
        return self.cfg.height, self.cfg.width

    def camera_transform(self) -> Tensor:
        """Return the current poses of the cameras, as `apply_camera_transform` gets them."""
        assert self.pose_offset is not None
        pos, quat = self.pose_offset
        turn = self.mount.quat_w
        transform = torch.zeros((*turn.shape[:-1], 4, 4), dtype=turn.dtype, device=turn.device)
        quat = convert_orientation_convention(quat_mul(turn, quat), "world", "opengl")
        transform[..., :3, :3] = matrix_from_quat(quat)
        transform[..., :3, 3] = self.mount.pos_w + quat_apply(turn, pos)
        transform[..., 3, 3] = 1.0
        return transform

    def compute(self, truth: Record, measured: Record) -> None:
        """Render a frame."""
        self.apply_camera_transform(self.camera_transform())
        self.render_current_state()
        if self.uses_ring_pipeline:
            measured.copy_from(truth)
        for branch, shown in enumerate(self._shown):
            made = self.post_process(
                self.output, Timeline([], lambda: self.clock.reset_tick == self.clock.tick), is_measured=branch == 1
            )
            shown.copy_from(as_fields(made, self.mount_specs))

    def _allocate(self) -> None:
        super()._allocate()
        shape = (self.num_envs, self.mount.count)
        pos, quat = (part.float().to(self.device) for part in self.cfg.offset_on(all(self.mount.cameras)))
        self.pose_offset = pos.expand(*shape, 3).contiguous(), quat.expand(*shape, 4).contiguous()
        self._shown: list[Record] = []
        if self.uses_ring_pipeline:
            self.output = self.buffers.truth
            return
        inner = self.mount_specs
        if hook_of(self, "post_process"):
            inner = self._specs(self.intermediate_fields())
            self._shown = [Record(self.mount_specs, self.num_envs, self.device) for _ in range(2)]
        self.output = Record(inner, self.num_envs, self.device)
        for kind, record in zip(("output", "truth", "measured"), (self.output, *self._shown), strict=False):
            self.buffers.kept |= {f"{kind}/{name}": image for name, image in record.items()}
        self.set_outputs(*(dict(record.items()) for record in self._shown or [self.output]))
