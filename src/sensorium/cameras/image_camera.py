"""Base of the cameras whose images come from the visibility pass.

One pass finds the nearest surface of each pixel, in all environments at once; `annotators` compute the images from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic

import warp as wp
from torch import Tensor

from sensorium.cameras.annotators import ANNOTATORS, Distances
from sensorium.cameras.camera_base import CameraBase, CameraCfgT
from sensorium.cameras.camera_data import ALWAYS, CameraData
from sensorium.cameras.render.image_cast import ImageCast, ImageSpec
from sensorium.compute import Rows, kernel, masked_tid, recorded
from sensorium.measurement import work
from sensorium.measurement.record import Record, Timeline
from sensorium.sensors.core.hooks import used_if
from sensorium.spec import BODY_POSE, SHAPES, Requirement


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


class ImageCamera(CameraBase[CameraCfgT, CameraData], Generic[CameraCfgT]):
    """Camera at one or several mounts, whose images come from the visibility pass."""

    requires: ClassVar[tuple[Requirement, ...]] = (BODY_POSE, SHAPES)
    checks_state: ClassVar[bool] = True

    @property
    def _casts_twice(self) -> bool:
        """Whether truth and measured value differ before the standard chain; clipping comes after the noise."""
        return self.cfg.clips and not self.cfg.is_clean

    def setup(self) -> None:
        """Select the shapes, prepare the visibility pass and the annotators."""
        self._take_lens()
        cfg = self.cfg
        self.view: dict[str, Any] = {
            "image": self.image_shape,
            **self._lines_of_sight(),
            "offsets": (self._offset_pos, self._offset_quat),
            "alignment": self._alignment,
            "limits": cfg.depth_limits,
            "targets": cfg.seen,
        }
        """Fields of the `ImageSpec` of `cast`."""
        self.cast = ImageCast(self.query_context, ImageSpec(**self.view))
        self.buffers.body_at_fault = self.cast.body_at_fault
        names = {name: ANNOTATORS[name] for name in cfg.selected if name not in ALWAYS}
        self._annotators = [
            annotator(self, tuple(name for name, other in names.items() if other is annotator))
            for annotator in dict.fromkeys(names.values())
        ]
        for each in self._annotators:
            self.labels |= each.labels
        self._reported = self.cast.pos_w, self.cast.quat_w

    def _lines_of_sight(self) -> dict[str, Tensor]:
        """Return the lines of sight, as fields of an `ImageSpec`; by default those of a pinhole."""
        return {"inverse_k": self._inverse_k}

    def _drop_hits(self, hits: Any) -> None:
        """Turn some hits into misses (launches, inside the visibility pass); by default none."""

    @recorded
    @used_if(lambda self: not self._casts_twice)
    def update_raw_data(self, raw: Record) -> None:
        """Image the scene, and store the pose."""
        self._take(raw)

    @recorded
    @used_if(lambda self: self._casts_twice)
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Take the true frame, clipped, and the measured one, whose misses stay +inf until noise was added."""
        self._take(raw, slot)

    @contextmanager
    def surfaces(self, *, drift: Tensor | None = None, is_placed: bool = False) -> Iterator[Any]:
        """Find the surface that each pixel shows; the launches in the block run after that. The value is the record.

        Args:
            drift: see `ImageCast.render`.
            is_placed: whether the cast already holds the poses to use.
        """
        with self.cast.render(drift, is_placed=is_placed) as hits:
            self._drop_hits(hits)
            yield hits

    def _take(
        self, record: Record, unclipped: Record | None = None, *, is_last: bool = True, drift: Tensor | None = None
    ) -> None:
        """Fill records from one visibility pass.

        Args:
            record: the frame.
            unclipped: the same frame, with distances to which noise follows.
            is_last: whether no noise follows to the distances of `record`.
            drift: see `ImageCast.render`.
        """
        for annotator in self._annotators:
            annotator.begin()
        with self.surfaces(drift=drift) as hits:
            for annotator in self._annotators:
                annotator.annotate(record, hits, is_last=is_last)
                if unclipped is not None and isinstance(annotator, Distances):
                    annotator.annotate(unclipped, hits, is_last=False)
        for annotator in self._annotators:
            annotator.finish()
        self._report_poses(record)
        if unclipped is not None:
            others = [name for name in record if ANNOTATORS.get(name) is not Distances]
            work.move(self.buffers, record, unclipped, work.ALWAYS, others)

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
