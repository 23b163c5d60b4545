"""Camera that images the shapes of the scene: distances, normals, points and segmentations of the visible surfaces.

Axes: ``[env, mount, height, width, channel]`` (no mount axis for a singular selector), row 0 at the top.

`offset` is the pose of the camera relative to its mount. With K its intrinsic matrix, the pixel in row v and column u
looks along p = K^-1 (u + 1/2, v + 1/2, 1), with axes right, down and forward. One visibility pass finds the nearest
surface of each pixel, in all environments at once; `annotators` compute the images from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar

import torch
import warp as wp
from torch import Tensor

from sensorium.compute import Rows, kernel, masked_tid, place_of, recorded
from sensorium.errors import ConfigError
from sensorium.geometry.images.structs import HitRecord
from sensorium.measurement import work
from sensorium.measurement.record import Record, Timeline
from sensorium.measurement.stages.depth_image import DepthStage
from sensorium.measurement.stages.image_sensor import LINEAR, ImageSensor
from sensorium.sensors.cameras.annotators import ANNOTATORS, Distances
from sensorium.sensors.cameras.camera_base import CameraBase
from sensorium.sensors.cameras.camera_cfg import CameraCfg
from sensorium.sensors.cameras.camera_data import ALWAYS, CameraData, Images
from sensorium.sensors.cameras.lens_tables import lines_of, projection_of
from sensorium.sensors.cameras.lenses import LensCfg
from sensorium.sensors.cameras.random_looks import RandomLooks
from sensorium.sensors.cameras.semantics import Semantics
from sensorium.sensors.cameras.shutter import ShutterMotion
from sensorium.sensors.core.hooks import used_if
from sensorium.spec import BODY_POSE, SHAPES, Field, Requirement


@kernel(group="images")
def _report_pose(
    rows: Rows,
    pos_in: wp.array2d[wp.vec3],
    quat_in: wp.array2d[wp.vec4],
    k_in: wp.array3d[wp.float32],
    pos_out: wp.array2d[wp.vec3],
    quat_out: wp.array2d[wp.vec4],
    k_out: wp.array4d[wp.float32],
) -> None:
    env, mount = masked_tid(rows)
    pos_out[env, mount] = pos_in[env, mount]
    quat_out[env, mount] = quat_in[env, mount]
    for row in range(3):
        for column in range(3):
            k_out[env, mount, row, column] = k_in[env, row, column]


@kernel(group="images")
def _hide(rows: Rows, width: int, is_seen: wp.array2d[wp.uint8], hits: HitRecord) -> None:
    """Turn hits of pixels that the lens does not see into misses."""
    env, mount, piece = masked_tid(rows)
    place = place_of(rows, env)
    first = (rows.first + piece) * width
    for pixel in range(first, first + width):
        if is_seen[env, pixel] == wp.uint8(0):
            hits.inverse[place, mount, pixel] = 0.0
            hits.shape[place, mount, pixel] = -1
            hits.face[place, mount, pixel] = -1


def _moving_stage(camera: Camera) -> ImageSensor | None:
    """Return the stage that needs the scene at several instants, if there is one."""
    return next((stage for stage in camera.cfg.stages if isinstance(stage, ImageSensor) and stage.moves), None)


def _has_two_frames(camera: Camera) -> bool:
    """Return whether the measured frame differs from the true one from the start.

    Misses must stay +inf while noise is added to the measured distance, or the measured colours show motion.
    """
    return (camera.cfg.clips and not camera.cfg.is_clean) or _moving_stage(camera) is not None


class Camera(CameraBase[CameraCfg, CameraData]):
    """Camera at one or several mounts, which images the visible shapes of each environment.

    Intrinsics and poses can be changed per env between steps (`set_intrinsic_matrices`, `set_world_poses`). Changes
    apply from the next sample on. ``scene.update(ticks=0)`` retakes the current sample, unless the camera has memory
    such as a delay or a history. Changes are saved with the scene's state and persist across resets.
    """

    requires: ClassVar[tuple[Requirement, ...]] = (BODY_POSE, SHAPES)
    checks_state: ClassVar[bool] = True

    def _image_field(self, name: str, field: Field) -> Field:
        return ANNOTATORS[name].sized(name, ANNOTATORS[name].field(name, field, self.cfg), self)

    def _allocate(self) -> None:
        super()._allocate()
        if LINEAR not in self.cfg.asked:  # only for stages: not an output
            self.specs = tuple(spec for spec in self.specs if spec.name != LINEAR)

    def setup(self) -> None:
        """Select the shapes, prepare the visibility pass and the annotators."""
        self._take_lens()
        cfg = self.cfg
        lens = self.optics
        if not lens.is_pinhole:
            self._refuse_depth_errors()
        self.projection = projection_of(lens, self._k)
        self._lines = lines_of(lens, self._k, *self.image_shape, cfg.title)
        lines = {name: tensor for name, tensor in self._lines.items() if name != "is_seen"}
        self.view = {
            "image": self.image_shape,
            **(lines or {"inverse_k": self._inverse_k}),
            "offsets": (self._offset_pos, self._offset_quat),
            "limits": cfg.clipping_range,
            "targets": cfg.seen,
        }
        self.cast = self.image_cast(**self.view)
        self.buffers.body_at_fault = self.cast.body_at_fault
        names = {name: ANNOTATORS[name] for name in cfg.selected if name not in ALWAYS}
        self._annotators = [
            annotator(self, tuple(name for name, other in names.items() if other is annotator))
            for annotator in dict.fromkeys(names.values())
        ]
        for each in self._annotators:
            self.labels |= each.labels
        pose = self.cast.pos_w, self.cast.quat_w
        if cfg.reported_pose == "start":
            pose = torch.zeros_like(pose[0]), torch.zeros_like(pose[1])
            self.buffers.kept |= {"camera/start_pos": pose[0], "camera/start_quat": pose[1]}
        self._reported = pose
        if (stage := _moving_stage(self)) is not None:
            self._shutter = ShutterMotion(self, stage)

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

    def _lens_changed(self, inverse_k: Tensor, *, more: bool) -> None:
        """Compute the lines of sight from the intrinsic matrices, where they are a table."""
        lines = lines_of(self.optics, self._k, *self.image_shape, self.cfg.title)
        for name, tensor in lines.items():
            self._lines[name].copy_(tensor)

    @cached_property
    def semantics(self) -> Semantics:
        """Labels and ids of the shapes, for segmentations."""
        scene, engine = self.rays, self.engine
        rows = [shape.row for shape in scene.shapes]
        return Semantics(
            scene.labels, self.geom_names, rows, engine.names("body"), engine.parent_body,
            self.cfg.semantic_filter, self.cfg.title,
        )  # fmt: skip

    @property
    def geom_names(self) -> tuple[str, ...]:
        """Names of all shapes of the scene, indexed by `geom_ids`."""
        return tuple(shape.name for shape in self.rays.shapes)

    @property
    def random_looks(self) -> RandomLooks:
        """Looks of the scene that are set at reset."""
        return self._context.random_looks

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
        """Set the looks of the episode, and note the pose at its start, where that is the reported one."""
        for annotator in self._annotators:
            annotator.reset(env_mask)
        if self.cfg.reported_pose == "start":
            for kept, now in zip(self._reported, self._poses(), strict=True):
                kept.copy_(torch.where(env_mask[:, None, None] > 0, now.to(kept.dtype), kept))

    def load(self, tensors: Mapping[str, Tensor], counters: Mapping[str, int]) -> None:
        """Restore the result of `tensors` and `counters`."""
        super().load(tensors, counters)
        for annotator in self._annotators:
            annotator.loaded()

    # Images -----------------------------------------------------------------------------------------------------------

    @recorded
    @used_if(_moving_stage)
    def observe(self) -> None:
        """Keep the poses of a tick, for the motion during the exposure."""
        self._shutter.observe()

    @recorded
    @used_if(lambda self: not _has_two_frames(self))
    def update_raw_data(self, raw: Record) -> None:
        """Image the scene, and store the pose."""
        self._take(raw)

    @recorded
    @used_if(_has_two_frames)
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Take the true frame, clipped, and the measured one: unclipped until noise was added, and with motion."""
        self._take(raw, slot)
        if _moving_stage(self) is not None:
            self._shutter.render(slot)

    @contextmanager
    def surfaces(self, *, is_placed: bool = False) -> Iterator[Any]:
        """Find the surface that each pixel shows; the launches in the block run after that. The value is the record.

        Args:
            is_placed: whether the cast already holds the poses to use.
        """
        with self.cast.render(is_placed=is_placed) as hits:
            if "is_seen" in self._lines:
                is_seen = wp.from_torch(self._lines["is_seen"], dtype=wp.uint8)
                height, width = self.image_shape
                self.compute_on.launch(_hide, (self.mount.count, height), [width, is_seen], [hits], split=True)
            yield hits

    def _take(self, raw: Record, slot: Record | None = None) -> None:
        """Fill the true frame, and a measured one to which noise follows, from one visibility pass."""
        for annotator in self._annotators:
            annotator.begin()
        with self.surfaces() as hits:
            for annotator in self._annotators:
                annotator.annotate(raw, hits, is_last=True)
                if slot is not None and isinstance(annotator, Distances):
                    annotator.annotate(slot, hits, is_last=False)
        for annotator in self._annotators:
            annotator.finish()
        self._report_poses(raw)
        if slot is not None:
            others = [name for name in raw if ANNOTATORS.get(name) is not Distances]
            work.move(self.buffers, raw, slot, work.ALWAYS, others)

    def _report_poses(self, record: Record) -> None:
        """Store the poses and the intrinsics (a launch)."""
        pos, quat = self._reported
        inputs = [wp.from_torch(pos, dtype=wp.vec3), wp.from_torch(quat, dtype=wp.vec4), wp.from_torch(self._k)]
        pose = [record.warp.pos_w, record.warp.quat_w_world, record.warp.intrinsic_matrices]
        self.compute_on.launch(_report_pose, (self.mount.count,), inputs, pose)

    @recorded
    @used_if(lambda self: not self.cfg.is_clean)
    def derive_measured(self, slot: Record) -> None:
        """Derive fields from other measured ones, and clip distances (a launch per annotator)."""
        knobs = {field for _, field in self.buffers.plan.knobs}
        altered = knobs | {field for run in self.buffers.stages for field in run.key.columns}
        for annotator in self._annotators:
            annotator.derive(slot, altered)
