"""Ray caster: distances along a pattern of rays, as for a height scanner or a simple range finder.

Axes: ``[env, mount, ray]`` (no mount axis for a singular selector). Rays are in the order of the pattern.

With R the rotation of the alignment (base: the mount's; yaw: its heading only; world: none), p the mount's position,
and s and d start and direction of a ray after `offset`, a ray starts at p + R s and points along R d. A hit is the
nearest point between `min_distance` and `max_distance`; both sides of a surface can be hit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Generic, Literal

import numpy as np
import torch
import warp as wp
from pydantic import model_validator
from torch import Tensor

from sensorium.cfg import in_unit
from sensorium.compute import Rows, kernel, masked_tid, recorded, sample_uniforms
from sensorium.drawing import rotate
from sensorium.errors import ConfigError
from sensorium.geometry.transforms import quat_rotate_inverse
from sensorium.measurement.record import Record, Timeline
from sensorium.patterns import GridPatternCfg, PatternField, Rays
from sensorium.sensors.core.hooks import used_if
from sensorium.sensors.rays.ray_cfg import DataT, DriftRange, DriftRanges, RayCfg
from sensorium.sensors.rays.ray_sensor import RaySensor, ray_field
from sensorium.shapes.ray_cast import Alignment
from sensorium.spec import Field


@dataclass(frozen=True, slots=True)
class RayCasterData:
    """One scan; fields that the config does not select are None."""

    pos_w: Annotated[Tensor, Field("m", (3,), frame="world", kind="derived", role="point", parity="polar")]
    """Position of the mount in the world, without `offset`, m; the measured position includes a configured drift."""
    quat_w: Annotated[Tensor, Field("1", (4,), frame="world", kind="derived", role="pose")]
    """Orientation of the mount in the world, unit quaternion (w, x, y, z)."""
    distances: Annotated[Tensor, Field("m", role="range")]
    """Distance along each ray to its hit, m; +inf (or `no_hit_value`) for a miss."""
    ray_hits_w: Annotated[Tensor, Field("m", (3,), frame="world", kind="derived", role="point", parity="polar")]
    """Hit point of each ray, m; +inf for a miss. The measured point is derived from the measured distance."""
    points_b: Annotated[Tensor, Field("m", (3,), frame="mount", kind="derived", role="point", parity="polar")]
    """Hit point in the frame of the mount (`pos_w`, `quat_w`), m."""
    normals_w: Annotated[Tensor, Field("1", (3,), frame="world", kind="derived", low=-1.0, high=1.0, parity="polar")]
    """Outward unit normal of the surface at the hit; 0 for a miss."""
    geom_ids: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Shape that was hit: row in the sensor's `geom_names`; -1 for a miss."""
    body_ids: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Body that was hit: row in ``engine.names("body")``; -1 for the world, -2 for a miss."""
    face_ids: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Triangle that was hit, of a mesh (row of its faces) or height field; -1 for other shapes and for a miss."""


FIELDS = ("pos_w", "quat_w", "distances", "ray_hits_w", "points_b", "normals_w", "geom_ids", "body_ids", "face_ids")
PER_RAY = FIELDS[2:]


class RayScanCfg(RayCfg[DataT], Generic[DataT]):
    """Common config of ray casters and of sensors derived from them.

    Knobs such as `noise` act on the distances, m; hits are derived from them.
    """

    mount_has_offset: ClassVar[bool] = False

    pattern: PatternField = GridPatternCfg()
    """Rays in the sensor's frame: x forward, y left, z up."""
    fields: tuple[str, ...] | Literal["all"] = ("pos_w", "quat_w", "distances", "ray_hits_w")
    """Computed fields; ``"all"`` adds hits in the mount's frame, normals and ids."""
    ray_alignment: Alignment = "base"
    """Rotation of the rays with their mount: ``base`` fully, ``yaw`` about the vertical only, ``yaw_starts`` the starts
    about the vertical while directions keep world axes, ``world`` not at all."""
    drift_range: Annotated[DriftRange, in_unit("m")] = (0.0, 0.0)
    """Range of an error of the measured position along each world axis, m, redrawn per env at each reset; a mapping
    gives one range per axis."""
    ray_cast_drift_range: Annotated[DriftRanges, in_unit("m")] = {}  # noqa: RUF012
    """Ranges of errors of the measured scan, m, redrawn per env at each reset: x and y move the rays along the axes of
    their alignment, z moves the hits."""
    debug_rays: bool = False
    """Whether debug drawing shows the rays in addition to the hits: up to the hit, or the first metre of a miss."""

    selectable: ClassVar[tuple[str, ...]] = FIELDS

    @model_validator(mode="after")
    def _fits(self) -> Any:
        self.refuse_idle_knobs("no distances or hits are computed", "distances")
        return self

    @property
    def selected(self) -> tuple[str, ...]:
        """The computed fields, in the order of the data class."""
        wanted = {*super().selected}
        if not self.is_clean and wanted & {"ray_hits_w", "points_b"}:
            wanted.add("distances")  # the measured hits are derived from them
        return tuple(name for name in self.selectable if name in wanted)

    @property
    def alignment(self) -> Alignment:
        """Rotation of the rays with their mount, as they are cast."""
        return self.ray_alignment


class RayCasterCfg(RayScanCfg[RayCasterData]):
    """Configuration of a ray caster. Knobs such as `noise` act on the distances, m; hits are derived from them."""


@kernel
def _note_pose(
    rows: Rows,
    pos_in: wp.array2d[wp.vec3],
    quat_in: wp.array2d[wp.vec4],
    drift_in: wp.array2d[wp.vec3],
    pos_out: wp.array2d[wp.vec3],
    quat_out: wp.array2d[wp.vec4],
) -> None:
    env, mount = masked_tid(rows)
    if pos_out.shape[0] > 0:
        pos = pos_in[env, mount]
        if drift_in.shape[0] > 0:
            pos = pos + drift_in[env, mount]
        pos_out[env, mount] = pos
    if quat_out.shape[0] > 0:
        quat_out[env, mount] = quat_in[env, mount]


@kernel
def _into_mount(
    rows: Rows,
    pos_in: wp.array2d[wp.vec3],
    quat_in: wp.array2d[wp.vec4],
    drift_in: wp.array2d[wp.vec3],
    point_in: wp.array3d[wp.vec3],
    point_out: wp.array3d[wp.vec3],
) -> None:
    env, mount, ray = masked_tid(rows)
    point = point_in[env, mount, ray]
    if wp.isfinite(point[0]):
        pos = pos_in[env, mount]
        if drift_in.shape[0] > 0:
            pos = pos + drift_in[env, mount]
        point = quat_rotate_inverse(quat_in[env, mount], point - pos)
    point_out[env, mount, ray] = point


@kernel
def _draw(
    rows: Rows,
    key0: wp.uint32,
    key1: wp.uint32,
    number: int,
    low: wp.vec3,
    high: wp.vec3,
    drift_out: wp.array2d[wp.vec3],
) -> None:
    env, mount = masked_tid(rows)
    element = wp.uint32(2 * mount + number)
    u = sample_uniforms(rows, env, element, key0, key1)
    drift_out[env, mount] = low + wp.cw_mul(wp.vec3(u[0], u[1], u[2]), high - low)


class RayCaster(RaySensor[RayCasterCfg, RayCasterData]):
    """Ray caster at one or several mounts."""

    derived_values: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **RaySensor.derived_values, "height_scan": {"unit": "m"},
    }  # fmt: skip

    @cached_property
    def pattern(self) -> Rays:
        """The rays of the pattern, in the sensor's frame, without `offset`."""
        return self.rays_of("pattern")

    def fields(self) -> Mapping[str, Field]:
        """Return the selected fields, with the number of rays."""
        rays, selected = len(self.pattern), super().fields().items()
        return {name: ray_field(field, rays) if name in PER_RAY else field for name, field in selected}

    @property
    def _casts_twice(self) -> bool:
        """Whether truth and measured value differ before the standard chain.

        With a `no_hit_value`, measured misses are +inf while noise is added, and become that number at the end.
        """
        return self.cfg.drifts or (self.cfg.no_hit_value is not None and not self.cfg.is_clean)

    def setup(self) -> None:
        """Select the shapes, and build their acceleration structures where needed."""
        cfg, pattern, shape = self.cfg, self.pattern, (self.num_envs, self.mount.count)
        pos, quat = (torch.tensor(part, device=self.device) for part in (cfg.offset.pos, cfg.offset.rot))
        self.pose_offset = pos.float().expand(*shape, 3), quat.float().expand(*shape, 4)
        self._cast = self.ray_cast(
            starts=pattern.starts.numpy(),
            directions=pattern.directions.numpy(),
            targets=cfg.seen,
            alignment=cfg.alignment,
            offset=(cfg.offset.pos, cfg.offset.rot),
            limits=cfg.limits,
            miss=cfg.miss if cfg.is_clean else float("inf"),
        )
        self.buffers.body_at_fault = self._cast.body_at_fault
        names = ("drift", "cast_drift")
        self._drifts = [
            None if spans is None else self.new_state(name, (self.mount.count, 3))
            for name, spans in zip(names, cfg.drift_spans, strict=True)
        ]

    @property
    def num_frames(self) -> int:
        """Number of mounts."""
        return self.mount.count

    @property
    def num_rays_per_frame(self) -> int:
        """Rays of one mount."""
        return len(self.pattern)

    @property
    def num_rays(self) -> int:
        """Rays of all mounts."""
        return self.num_frames * self.num_rays_per_frame

    @property
    def ray_starts(self) -> Tensor:
        """Starts of the rays in the frame of the mount, with `offset`, float32 `[env, ray, 3]`, m."""
        starts: Tensor = wp.to_torch(self._cast.bundle.starts)
        return starts.expand(self.num_envs, -1, -1)

    @property
    def ray_directions(self) -> Tensor:
        """Unit directions of the rays in the frame of the mount, with `offset`, float32 `[env, ray, 3]`."""
        directions: Tensor = wp.to_torch(self._cast.bundle.directions)
        return directions.expand(self.num_envs, -1, -1)

    @property
    def drift(self) -> Tensor:
        """Present error of the measured position along the world axes, see `drift_range`, `[env, mount, 3]`, m."""
        return self._drift(0)

    @property
    def ray_cast_drift(self) -> Tensor:
        """Present errors of the measured scan, see `ray_cast_drift_range`, `[env, mount, 3]`, m."""
        return self._drift(1)

    def _drift(self, number: int) -> Tensor:
        self.ensure_current()
        drift = self._drifts[number]
        if drift is None:  # expanded, so that a write is an error
            drift = torch.zeros(1, dtype=torch.float32, device=self.device).expand(self.num_envs, self.mount.count, 3)
        return self._squeeze(drift)

    @property
    def flat(self) -> RayCasterData:
        """`data` with mount and ray as one axis, `[env, mount * ray, ...]`, the rays of a mount together."""
        self.ensure_current(is_measured=True)
        data, own = self._visible(is_measured=True)
        kept = (spec.name for spec in self.specs if "ray" in spec.axes and self._mount_axis)
        names = [name for name in kept if getattr(data, name) is own[name]]  # otherwise already on one axis
        return self.packaged(own | {name: own[name].flatten(1, 2) for name in names}) if names else data

    @cached_property
    def _ray_axes(self) -> dict[str, int]:
        """Index of the ray axis, from the end, of the fields that have one."""
        return {spec.name: spec.axes.index("ray") - len(spec.axes) for spec in self.specs if "ray" in spec.axes}

    def packaged(self, values: Mapping[str, Tensor]) -> RayCasterData:
        """Build the data object; with `keeps_layout` the axes of the pattern replace the ray axis."""
        if self.cfg.keeps_layout:
            shape, split = self.pattern.return_shape, self._ray_axes
            values = dict(values) | {name: torch.unflatten(values[name], axis, shape) for name, axis in split.items()}
        return super().packaged(values)

    def height_scan(self, offset: float = 0.0, miss_value: float | None = None, *, is_measured: bool = True) -> Tensor:
        """Return the height of the mount above each measured hit, ``pos_w.z - hit.z - offset``, `[env, mount, ray]`, m.

        Observations use it in mjlab (offset 0) and Isaac Lab (offset 0.5).

        Args:
            offset: height that reads as 0, m.
            miss_value: value for misses, m; None uses `max_distance`, as in mjlab.
            is_measured: whether to use the measured hits instead of the true ones.

        Raises:
            ConfigError: `fields` lacks `pos_w` or `ray_hits_w`.
        """
        self.ensure_current(is_measured=is_measured)
        own = self.own_tensors(is_measured=is_measured)
        for name in ("pos_w", "ray_hits_w"):
            if name not in own:
                config = self.cfg.title
                raise ConfigError.single(
                    config, "fields", self.cfg.fields, f"{name!r} in fields, which height_scan needs"
                )
        hit = own["ray_hits_w"][..., 2]
        miss = self.cfg.max_distance if miss_value is None else miss_value
        return torch.where(hit.isfinite(), own["pos_w"][..., 2:] - hit - offset, miss)

    def reset_state(self, env_mask: Tensor) -> None:
        """Redraw the drifts."""
        key0, key1 = self.stream("drift")
        for number, (state, spans) in enumerate(zip(self._drifts, self.cfg.drift_spans, strict=True)):
            if state is None or spans is None:
                continue
            low, high = (wp.vec3(*(span[end] for span in spans)) for end in (0, 1))
            self.compute_on.launch(_draw, (self.mount.count,), [key0, key1, number, low, high], [state])

    @recorded
    @used_if(lambda self: not self._casts_twice)
    def update_raw_data(self, raw: Record) -> None:
        """Cast all rays (one launch), and store the pose."""
        self._scan(raw, (None, None))

    @recorded
    @used_if(lambda self: self._casts_twice)
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Cast the true rays, and the measured ones from the drifted pose.

        True misses have their final value; measured misses stay +inf until noise was added.
        """
        self._scan(raw, (None, None), miss=self.cfg.miss)
        self._scan(slot, self._drifts, look=False)

    def _scan(
        self, record: Record, drifts: Iterable[Tensor | None], *, look: bool = True, miss: float | None = None
    ) -> None:
        drift, cast_drift = drifts
        self._cast.cast(self._outputs(record), drift=drift, cast_drift=cast_drift, look=look, miss=miss)
        outs = [getattr(record.warp, name, None) for name in ("pos_w", "quat_w")]
        if outs != [None, None]:
            self.compute_on.launch(_note_pose, (self.mount.count,), [*self._cast.mount_pose(), drift], outs)
        self._follow(record, drifts)

    def _outputs(self, record: Record) -> dict[str, Tensor]:
        """Return the fields of a record that the cast fills, by their names there."""
        fields = {
            "distance": "distances",
            "point": "ray_hits_w" if "ray_hits_w" in record else "points_b",
            "normal": "normals_w",
            "shape": "geom_ids",
            "body": "body_ids",
            "face": "face_ids",
        }
        return {name: record[field] for name, field in fields.items() if field in record}

    def _follow(self, record: Record, drifts: Iterable[Tensor | None]) -> None:
        """Launch the kernels that derive fields from the hits in the world."""
        if "points_b" not in record:
            return
        drift, _ = drifts
        hits = record.warp.ray_hits_w if "ray_hits_w" in record else record.warp.points_b
        inputs = [*self._cast.mount_pose(), drift, hits]
        self.compute_on.launch(_into_mount, (self.mount.count, len(self.pattern)), inputs, [record.warp.points_b])

    @recorded
    @used_if(lambda self: not self.cfg.is_clean)
    def derive_measured(self, slot: Record) -> None:
        """Move the measured hits to the measured distances, and show misses as such in all fields."""
        outputs, (drift, cast_drift) = self._outputs(slot), self._drifts
        if "distance" in outputs:
            self._cast.follow(outputs, drift=drift, cast_drift=cast_drift, miss=self.cfg.miss)
            self._follow(slot, self._drifts)

    def about_drawing(self) -> dict[str, Any]:
        """Return the rays in the frame of the mount, as start and direction, and how they turn with it."""
        turn, pos = np.array(self.cfg.offset.rot, np.float32), np.array(self.cfg.offset.pos, np.float32)
        lines = [rotate(turn, part.numpy()) for part in (self.pattern.starts, self.pattern.directions)]
        lines[0] = lines[0] + pos
        offset = [*self.cfg.offset.pos, *self.cfg.offset.rot]
        return {"rays": {"lines": np.concatenate(lines, axis=1), "offset": offset, "alignment": self.cfg.alignment}}
