"""Camera that images the shapes of the scene: distances, normals, points and segmentations of the visible surfaces.

Axes: ``[env, mount, height, width, channel]`` (no mount axis for a singular selector), row 0 at the top.

`offset` is the pose of the camera relative to its mount. With K its intrinsic matrix, the pixel in row v and column u
looks along p = K^-1 (u + 1/2, v + 1/2, 1), with axes right, down and forward. One visibility pass finds the nearest
surface of each pixel, in all environments at once; `annotators` compute the images from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import torch
from torch import Tensor

from sensorium.cameras.camera_cfg import CameraCfg
from sensorium.cameras.camera_data import CameraData, Images
from sensorium.cameras.image_camera import ImageCamera
from sensorium.cameras.lenses import LensCfg, lines_of, projection_of
from sensorium.cameras.semantics import Semantics
from sensorium.cameras.shutter import ShutterMotion
from sensorium.cameras.stages.depth_image import DepthStage
from sensorium.cameras.stages.image_sensor import LINEAR, ImageSensor
from sensorium.compute import recorded
from sensorium.errors import ConfigError
from sensorium.geometry.shapes import Shape
from sensorium.measurement.record import Record, Timeline
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports, used_if
from sensorium.spec import TENDON_PATHS, Requirement
from sensorium.world.select import Named


def _moving_stage(camera: Camera) -> ImageSensor | None:
    """Return the stage that needs the scene at several instants, if there is one."""
    return next((stage for stage in camera.cfg.stages if isinstance(stage, ImageSensor) and stage.moves), None)


class Camera(ImageCamera[CameraCfg], SimpleSensor[CameraCfg, CameraData]):
    """Camera at one or several mounts, which images the visible shapes of each environment.

    Intrinsics and poses can be changed per env between steps (`set_intrinsic_matrices`, `set_world_poses`), see
    `CameraBase`.
    """

    @classmethod
    def needs(cls, cfg: CameraCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return the poses of bodies, the shapes, and the paths of tendons if the engine provides them."""
        return (*cls.requires, *((TENDON_PATHS,) if supports(TENDON_PATHS) is None else ()))

    @property
    def _casts_twice(self) -> bool:
        return super()._casts_twice or _moving_stage(self) is not None

    @property
    def data(self) -> CameraData:
        """Measured frame that has arrived at the reader: live views, or copies with `copy_data`."""
        return self.read() if self.cfg.copy_data else super().data

    def _allocate(self) -> None:
        super()._allocate()
        if LINEAR not in self.cfg.asked:  # only for stages: not an output
            self.specs = tuple(spec for spec in self.specs if spec.name != LINEAR)

    def setup(self) -> None:
        """Select the shapes, prepare the visibility pass and the annotators."""
        super().setup()
        if self.cfg.reported_pose == "start":
            pos, quat = (torch.zeros_like(each) for each in self._reported)
            self.buffers.kept |= {"camera/start_pos": pos, "camera/start_quat": quat}
            self._reported = pos, quat
        if (stage := _moving_stage(self)) is not None:
            self._shutter = ShutterMotion(self, stage)

    @recorded
    @used_if(_moving_stage)
    def observe(self) -> None:
        """Keep the poses of a tick, for the motion during the exposure."""
        self._shutter.observe()

    @recorded
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Take the true frame, clipped, and the measured one: unclipped until noise was added, and with motion."""
        super().update_current_timestep_data(raw, slot, timeline)
        if _moving_stage(self) is not None:
            self._shutter.render(slot)

    def _lines_of_sight(self) -> dict[str, Tensor]:
        lens = self.optics
        if not lens.is_pinhole:
            self._refuse_depth_errors()
        self.projection = projection_of(lens, self._k)
        self._lines = lines_of(lens, self._k, *self.image_shape, self.cfg.title)
        return self._lines or super()._lines_of_sight()

    def _refuse_depth_errors(self) -> None:
        """Raise `ConfigError` for a stage that models depth errors, which holds for a pinhole only."""
        for number, stage in enumerate(self.cfg.stages):
            if isinstance(stage, DepthStage):
                got = type(stage).__name__
                raise ConfigError.single(self.cfg.title, f"stages.{number}", got, "no depth error of a pinhole camera")

    @cached_property
    def optics(self) -> LensCfg:
        """The lens, of the config or of the camera of the model; its intrinsic matrices are in the data."""
        name = self.mount.cameras[0]
        return self.cfg.lens_on(self.engine.camera_lens(name) if name else None)

    def _follow_lens(self, matrices: Tensor) -> None:
        """Compute the lines of sight from the intrinsic matrices, where they are a table."""
        lines = lines_of(self.optics, matrices, *self.image_shape, self.cfg.title)
        if any(len(tensor) > len(self._lines[name]) for name, tensor in lines.items()):
            self._lines |= lines  # environments differ from now on
            self.cast.look_along(**lines)
            self._context.arrange()
            return
        for name, tensor in lines.items():
            self._lines[name].copy_(tensor)

    @cached_property
    def semantics(self) -> Semantics:
        """Labels and ids of the shapes, for segmentations."""
        shapes, engine, first = self._shapes, self.engine, dict[tuple[str, str], int]()
        firsts = [first.setdefault((shape.element, shape.name), i) for i, shape in enumerate(shapes)]
        return Semantics(
            self.rays.labels[: len(shapes)], self.geom_names, [shape.row for shape in shapes], firsts,
            engine.names("body"), engine.parent_body, self.cfg.semantic_filter,
            self.cfg.title if self.cfg.missing_labels == "error" else None,
        )  # fmt: skip

    @cached_property
    def _shapes(self) -> tuple[Shape, ...]:
        """The shapes that rays can hit, and decorations up to the last visible one."""
        scene = self.rays
        last = max(scene.select(self.cfg.seen, self.cfg.title), default=-1)
        return scene.drawable[: max(last + 1, len(scene.shapes))]

    @property
    def geom_names(self) -> tuple[str, ...]:
        """Names indexed by `geom_ids`: of all geoms, then of tendons (one entry per segment) and of sites."""
        return tuple(shape.name for shape in self._shapes)

    def frame_stack(self) -> Images:
        """Return the last `history_length` frames as channels, oldest first, undelayed (copies).

        Until the history is full, the first frame of the episode takes the places of older ones.

        Returns:
            Data type -> `[env, height, width, history * channel]` (`[env, mount, ...]` with a mount axis).

        Raises:
            ConfigError: the config gives no `history_length`.
        """
        images = self.history.output
        return Images((name, image.flip(1).movedim(1, -2).flatten(-2)) for name, image in images.items())

    def reset_state(self, env_mask: Tensor) -> None:
        """Set the looks of the episode, and note the pose at its start."""
        for annotator in self._annotators:
            annotator.reset(env_mask)
        self._poses_changed(env_mask.nonzero()[:, 0])

    def _poses_changed(self, rows: Tensor) -> None:
        """Note the pose of some envs, where the reported one stays."""
        if self.cfg.reported_pose == "start":
            for kept, now in zip(self._reported, self._poses(), strict=True):
                kept[rows] = now[rows].to(kept.dtype)

    def load(self, tensors: Mapping[str, Tensor], counters: Mapping[str, int]) -> None:
        """Restore the result of `tensors` and `counters`."""
        super().load(tensors, counters)
        for annotator in self._annotators:
            annotator.loaded()
