"""Ray caster: distances along a pattern of rays, as a height scanner or a plain range finder gives them.

Axes: ``[env, mount, ray]`` (no mount axis for a singular selector). Rays are in the order of the pattern.

With R the turn of the alignment (base: the mount's; yaw: its heading only; world: none), p the mount's position, and s
and d start and direction of a ray after `offset`, a ray leaves from p + R s along R d. A hit is the nearest point in
between `min_distance` and `max_distance`; both faces of a surface count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Generic, Literal, Self

import torch
import warp as wp
from pydantic import field_validator
from torch import Tensor

from sensorium.cfg import Float, bad, differ
from sensorium.compute import Rows, kernel, recorded, sample_uniforms
from sensorium.errors import ConfigError, nearest
from sensorium.geometry.transforms import quat_apply, quat_level, quat_rotate_inverse
from sensorium.measurement.record import Record, Timeline
from sensorium.patterns import GridPatternCfg, OptionalPatternField, PatternField, Rays
from sensorium.readings import DebugShape
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import used_if
from sensorium.sensors.rays.ray_cfg import DataT, RayCfg
from sensorium.spec import BODY_POSE, SHAPES, Field, Requirement
from sensorium.world.ray_cast import Alignment


@dataclass(frozen=True, slots=True)
class RayCasterData:
    """One scan; fields that the config does not name are None."""

    pos_w: Annotated[Tensor, Field("m", (3,), frame="world", kind="derived", role="point")]
    """Position of the mount in the world, without `offset`, m; the measured one drifts where that is asked for."""
    quat_w: Annotated[Tensor, Field("1", (4,), frame="world", kind="derived", role="pose")]
    """Orientation of the mount in the world, unit quaternion (w, x, y, z)."""
    distances: Annotated[Tensor, Field("m", role="range")]
    """Length of each ray up to its hit, m; +inf (or `no_hit_value`) for a miss."""
    ray_hits_w: Annotated[Tensor, Field("m", (3,), frame="world", kind="derived", role="point")]
    """Where each ray meets a surface, m; +inf for a miss. The measured one follows from the measured distance."""
    points_b: Annotated[Tensor, Field("m", (3,), frame="mount", kind="derived", role="point")]
    """The same in the frame of the mount (`pos_w`, `quat_w`), m."""
    normals_w: Annotated[Tensor, Field("1", (3,), frame="world", kind="derived", low=-1.0, high=1.0)]
    """Unit normal of the surface there, outward; 0 for a miss."""
    geom_ids: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """What was met: row in the sensor's `geom_names`; -1 for a miss."""
    body_ids: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Row of its body in ``engine.names("body")``; -1 for the world, -2 for a miss."""
    face_ids: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Triangle of a mesh (row of its faces) or height field that was met; -1 for others and for a miss."""

    @property
    def hit_pos_w(self) -> Tensor:
        """Alias of `ray_hits_w`."""
        return self.ray_hits_w

    @property
    def points(self) -> Tensor:
        """The hits: `points_b` where that is computed, else `ray_hits_w`."""
        return self.points_b if self.points_b is not None else self.ray_hits_w

    @property
    def ray_mesh_ids(self) -> Tensor:
        """`geom_ids` with an axis of length 1 at the end, as Isaac Lab has it."""
        return self.geom_ids if self.geom_ids is None else self.geom_ids.unsqueeze(-1)

    @property
    def frame_pos_w(self) -> Tensor:
        """`pos_w` of `.data` with a mount axis in any case, `[env, mount, 3]`."""
        return self.pos_w if self.pos_w is None or self.pos_w.dim() > 2 else self.pos_w.unsqueeze(1)

    @property
    def frame_quat_w(self) -> Tensor:
        """`quat_w` of `.data` with a mount axis in any case, `[env, mount, 4]`."""
        return self.quat_w if self.quat_w is None or self.quat_w.dim() > 2 else self.quat_w.unsqueeze(1)


FIELDS = ("pos_w", "quat_w", "distances", "ray_hits_w", "points_b", "normals_w", "geom_ids", "body_ids", "face_ids")
PER_RAY = FIELDS[2:]
FIELD_ALIASES = {
    "hit_pos_w": "ray_hits_w",
    "frame_pos_w": "pos_w",
    "frame_quat_w": "quat_w",
    "points": "points_b",
    "ray_mesh_ids": "geom_ids",
}
WORDS = {"pattern_cfg": "pattern", "min_range": "min_distance", "max_range": "max_distance"}
"""Fields of a config that are other words for one of it, and become that."""
Range = tuple[Float, Float]
DriftRange = Range | dict[Literal["x", "y", "z"], Range]
AXES: tuple[Literal["x", "y", "z"], ...] = ("x", "y", "z")


class RayScanCfg(RayCfg[DataT], Generic[DataT]):
    """What the configs of ray casters and of sensors made of them share.

    Knobs such as `noise` act on the distances, m; hits follow from them.
    """

    mount_has_offset: ClassVar[bool] = False

    pattern: PatternField = GridPatternCfg()
    """The rays, in the sensor's frame: x forward, y left, z up."""
    pattern_cfg: OptionalPatternField = None
    """Alias of `pattern`, which it becomes."""
    fields: tuple[str, ...] | Literal["all"] = ("pos_w", "quat_w", "distances", "ray_hits_w")
    """What is computed; ``"all"`` adds hits in the mount's frame, normals and what was met."""
    return_points: bool | None = None
    """True computes the hits as well, False leaves them out; None leaves that to `fields`."""
    return_world_frame: bool = True
    """Whether `return_points` means `ray_hits_w`, or `points_b` in the frame of the mount."""
    update_mesh_ids: bool = False
    """Whether to compute `geom_ids` as well."""
    min_range: Float | None = None
    """Alias of `min_distance`, which it becomes."""
    max_range: Float | None = None
    """Alias of `max_distance`, which it becomes."""
    ray_alignment: Literal["base", "yaw", "world"] = "base"
    """How the rays follow their mount: wholly, about the vertical only, or not at all."""
    attach_yaw_only: bool | None = None
    """True is ``ray_alignment="yaw"``, False ``"base"``; `ray_alignment`, where given, wins."""
    legacy_yaw_directions: bool = False
    """With yaw alignment, turn the starts only and leave the directions in the world's axes, as Isaac Lab does."""
    drift_range: DriftRange = (0.0, 0.0)
    """Range of an error of the measured position along each world axis, m, drawn anew per env at each reset; a mapping
    has one for each axis."""
    ray_cast_drift_range: dict[Literal["x", "y", "z"], Range] = {}  # noqa: RUF012
    """Ranges of errors of the measured scan, m, drawn likewise: x and y move the rays along the axes of their
    alignment, z moves the hits."""
    debug_rays: bool = False
    """Whether debug drawing shows the rays beside the hits: up to them, and of misses the first metre."""

    own_fields: ClassVar[tuple[str, ...]] = FIELDS
    """All fields, in the order of the data class."""
    always: ClassVar[tuple[str, ...]] = ()
    """Fields that are computed in any case."""

    def __init__(self, /, **data: Any) -> None:
        for alias, name in WORDS.items():
            if data.get(alias) is None:
                continue
            if name in data and differ(data[name], data[alias]):
                fix = "Keep one of the two."
                raise ConfigError.single(type(self).__name__, alias, data[alias], f"it absent beside {name}", fix)
            data = {**data, name: data[alias]}
            del data[alias]
        super().__init__(**data)
        config, knob = f"{type(self).__name__.split('[')[0]}({self.label!r})", self.first_imperfection
        if not self.selected:
            fix = "return_points=False leaves the hits out."
            raise ConfigError.single(config, "fields", self.fields, "at least one field that is computed", fix)
        if knob is not None and "distances" not in self.selected:
            expected = "it absent where no distances or hits are computed"
            raise ConfigError.single(config, knob, getattr(self, knob), expected, "It acts on the field distances.")

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated as a whole."""
        for alias, name in WORDS.items():
            if changes.get(alias) is not None and name not in changes:
                changes[name] = changes.pop(alias)
        return super().replace(**changes)

    @field_validator("fields")
    @classmethod
    def _known(cls, value: tuple[str, ...] | str) -> tuple[str, ...] | str:
        if not isinstance(value, str):
            for name in value:
                if FIELD_ALIASES.get(name, name) not in cls.own_fields:
                    raise bad(f"fields among {', '.join(cls.own_fields)}", nearest(name, cls.own_fields).strip())
            if not value:
                raise bad("at least one field")
        return value

    @field_validator("drift_range", "ray_cast_drift_range")
    @classmethod
    def _ordered(cls, value: Any) -> Any:
        for low, high in [value] if isinstance(value, tuple) else value.values():
            if not -float("inf") < low <= high < float("inf"):
                raise bad("a range (low, high) with low <= high, m")
        return value

    @property
    def selected(self) -> tuple[str, ...]:
        """The fields that are computed, in the order of the data class."""
        names = self.own_fields if self.fields == "all" else self.fields
        wanted = {FIELD_ALIASES.get(name, name) for name in names} | set(self.always)
        if self.update_mesh_ids:
            wanted.add("geom_ids")
        if self.return_points:
            wanted.add("ray_hits_w" if self.return_world_frame else "points_b")
        elif self.return_points is not None:
            wanted -= {"ray_hits_w", "points_b"} - set(self.always)
        if not self.is_clean and wanted & {"ray_hits_w", "points_b"}:
            wanted.add("distances")  # the measured hits follow from them
        return tuple(name for name in self.own_fields if name in wanted)

    @property
    def alignment(self) -> Alignment:
        """How rays follow their mount, as `RayCast` takes it."""
        chosen = self.ray_alignment
        if "ray_alignment" not in self.model_fields_set and self.attach_yaw_only is not None:
            chosen = "yaw" if self.attach_yaw_only else "base"
        return "yaw_starts" if chosen == "yaw" and self.legacy_yaw_directions else chosen

    @property
    def drift_spans(self) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
        """Ranges of the drift of the position, and of that of the scan, for x, y and z, m."""
        given = self.drift_range
        of = given if isinstance(given, dict) else dict.fromkeys(AXES, given)
        first, second = (tuple(each.get(axis, (0.0, 0.0)) for axis in AXES) for each in (of, self.ray_cast_drift_range))
        return first, second

    @property
    def drifts(self) -> bool:
        """Whether the measured scan is taken from elsewhere than the true one."""
        return any(any(span) for spans in self.drift_spans for span in spans)


class RayCasterCfg(RayScanCfg[RayCasterData]):
    """Configuration of a ray caster. Knobs such as `noise` act on the distances, m; hits follow from them."""


class RayCastSensorCfg(RayCasterCfg):
    """Configuration of a ray caster with the defaults of mjlab: all fields, 10 m, geom groups 0 to 2, own links seen.

    Its misses are ``no_hit_value=-1``; here they are +inf unless you say so.
    """

    fields: tuple[str, ...] | Literal["all"] = "all"
    """What is computed."""
    max_distance: Float = 10.0
    """A farther hit is a miss, m."""
    include_geom_groups: tuple[int, ...] | None = (0, 1, 2)
    """Geom groups that are met, 0 to 5; None leaves that to `geometry`."""
    exclude_own_links: bool = False
    """Whether the other links of its robot are invisible as well."""


@kernel
def _note_pose(
    rows: Rows,
    pos_in: wp.array2d[wp.vec3],
    quat_in: wp.array2d[wp.vec4],
    drift_in: wp.array2d[wp.vec3],
    pos_out: wp.array2d[wp.vec3],
    quat_out: wp.array2d[wp.vec4],
) -> None:
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
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
    i, mount, ray = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
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
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    element = wp.uint32(2 * mount + number)
    u = sample_uniforms(rows, env, element, key0, key1)
    drift_out[env, mount] = low + wp.cw_mul(wp.vec3(u[0], u[1], u[2]), high - low)


@kernel
def _show_miss(rows: Rows, miss: float, distances: wp.array3d[wp.float32]) -> None:
    i, mount, ray = wp.tid()
    env = rows.start + i
    if rows.mask[env] != wp.uint8(0) and wp.isinf(distances[env, mount, ray]):
        distances[env, mount, ray] = miss


class RayCaster(SimpleSensor[RayCasterCfg, RayCasterData]):
    """Ray caster at one or several mounts."""

    requires: ClassVar[tuple[Requirement, ...]] = (BODY_POSE, SHAPES)
    checks_state: ClassVar[bool] = True

    @cached_property
    def pattern(self) -> Rays:
        """The rays of the pattern, in the sensor's frame, without `offset`."""
        return self.rays_of("pattern")

    def fields(self) -> Mapping[str, Field]:
        """Return the selected fields, with the number of rays."""
        declared, rays = super().fields(), len(self.pattern)
        return {
            name: ray_field(declared[name], rays) if name in PER_RAY else declared[name] for name in self.cfg.selected
        }

    @property
    def _casts_twice(self) -> bool:
        """Whether truth and measured value differ from the start."""
        return self.cfg.drifts or self._shows_misses

    @property
    def _shows_misses(self) -> bool:
        """Whether the measured misses are +inf while noise is added, and a number in the end."""
        return self.cfg.no_hit_value is not None and not self.cfg.is_clean

    def setup(self) -> None:
        """Choose the shapes, and build what is not built yet."""
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
            self.new_state(name, (self.mount.count, 3)) if any(any(span) for span in spans) else None
            for name, spans in zip(names, cfg.drift_spans, strict=True)
        ]

    @property
    def geom_names(self) -> tuple[str, ...]:
        """Names of all shapes of the scene: what `geom_ids` count."""
        return tuple(shape.name for shape in self.rays.shapes)

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
    def flat(self) -> RayCasterData:
        """`data` with the mount axis and the rays as one axis, `[env, mount * ray, ...]`, the mount's rays together."""
        data = self.data
        if not self._mount_axis:
            return data
        names = [spec.name for spec in self.specs if "ray" in spec.axes]
        return replace(data, **{name: getattr(data, name).flatten(1, 2) for name in names})

    def height_scan(self, offset: float = 0.0, miss_value: float | None = None) -> Tensor:
        """Return how far the mount is above each measured hit, ``pos_w.z - hit.z - offset``, `[env, mount, ray]`, m.

        It is what observations are made of in mjlab (offset 0) and Isaac Lab (offset 0.5).

        Args:
            offset: height that reads as 0, m.
            miss_value: value for misses, m; None for `max_distance`, as in mjlab.

        Raises:
            ConfigError: `fields` lacks `pos_w` or `ray_hits_w`.
        """
        data = self.data
        for name in ("pos_w", "ray_hits_w"):
            if getattr(data, name) is None:
                config = f"{type(self.cfg).__name__}({self.name!r})"
                raise ConfigError.single(config, "fields", self.cfg.fields, f"{name!r} among them for height_scan")
        hit = data.ray_hits_w[..., 2]
        miss = self.cfg.max_distance if miss_value is None else miss_value
        return torch.where(hit.isfinite(), data.pos_w[..., 2:] - hit - offset, miss)

    def reset_state(self, env_mask: Tensor) -> None:
        """Draw the drifts anew."""
        key0, key1 = self.stream("drift")
        for number, (state, spans) in enumerate(zip(self._drifts, self.cfg.drift_spans, strict=True)):
            if state is None:
                continue
            low, high = (wp.vec3(*(span[end] for span in spans)) for end in (0, 1))
            inputs = [key0, key1, number, low, high]
            self.compute_on.launch(_draw, (self.mount.count,), inputs, [wp.from_torch(state, dtype=wp.vec3)])

    @recorded
    @used_if(lambda self: not self._casts_twice)
    def update_raw_data(self, raw: Record) -> None:
        """Cast all rays (one launch), and note the pose."""
        self._scan(raw, (None, None))

    @recorded
    @used_if(lambda self: self._casts_twice)
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Cast the true rays, and the measured ones from where the sensor believes itself to be.

        The true ones show misses as they are read; the measured ones keep +inf, which noise does not move.
        """
        self._scan(raw, (None, None), miss=self.cfg.miss)
        self._scan(slot, self._drifts, look=False)

    def _scan(
        self, record: Record, drifts: Iterable[Tensor | None], *, look: bool = True, miss: float | None = None
    ) -> None:
        drift, cast_drift = drifts
        outputs = {
            "distance": "distances",
            "point": "ray_hits_w" if "ray_hits_w" in record else "points_b",
            "normal": "normals_w",
            "shape": "geom_ids",
            "body": "body_ids",
            "face": "face_ids",
        }
        wanted = {name: record[field] for name, field in outputs.items() if field in record}
        self._cast.cast(wanted, drift=drift, cast_drift=cast_drift, look=look, miss=miss)
        pose = [wp.from_torch(self.mount.pos_w, dtype=wp.vec3), wp.from_torch(self.mount.quat_w, dtype=wp.vec4)]
        none = {kind: wp.zeros((0, 0), dtype=kind, device=self.device) for kind in (wp.vec3, wp.vec4)}
        moved = none[wp.vec3] if drift is None else wp.from_torch(drift, dtype=wp.vec3)
        outs = [getattr(record.warp, name, none[kind]) for name, kind in (("pos_w", wp.vec3), ("quat_w", wp.vec4))]
        if "pos_w" in record or "quat_w" in record:
            self.compute_on.launch(_note_pose, (self.mount.count,), [*pose, moved], outs)
        self._follow(record, drifts)

    def _follow(self, record: Record, drifts: Iterable[Tensor | None]) -> None:
        """Launch what follows from the hits in the world."""
        if "points_b" not in record:
            return
        drift, _ = drifts
        moved = torch.zeros((0, 0, 3), dtype=torch.float32, device=self.device) if drift is None else drift
        hits = record.warp.ray_hits_w if "ray_hits_w" in record else record.warp.points_b
        inputs = [
            wp.from_torch(self.mount.pos_w, dtype=wp.vec3),
            wp.from_torch(self.mount.quat_w, dtype=wp.vec4),
            wp.from_torch(moved, dtype=wp.vec3),
            hits,
        ]
        self.compute_on.launch(_into_mount, (self.mount.count, len(self.pattern)), inputs, [record.warp.points_b])

    @recorded
    @used_if(lambda self: not self.cfg.is_clean)
    def derive_measured(self, slot: Record) -> None:
        """Put the measured hits where the measured distances end, and show misses as `no_hit_value`."""
        drift, cast_drift = self._drifts
        hits = "ray_hits_w" if "ray_hits_w" in slot else "points_b"
        if hits in slot:
            self._cast.points(slot.distances, slot[hits], drift=drift, cast_drift=cast_drift)
            self._follow(slot, self._drifts)
        if self.cfg.no_hit_value is not None and "distances" in slot:
            size = (self.mount.count, len(self.pattern))
            self.compute_on.launch(_show_miss, size, [self.cfg.no_hit_value], [slot.warp.distances])

    def _in_world(self, pos: Tensor, quat: Tensor) -> tuple[Tensor, Tensor]:
        """Return starts and directions `[env, mount, ray, 3]` of the rays of mounts in these poses, for drawing."""
        offset = torch.tensor([self.cfg.offset.rot], dtype=torch.float32, device=self.device)
        starts = quat_apply(offset, self.pattern.starts.to(self.device)) + torch.tensor(
            self.cfg.offset.pos, dtype=torch.float32, device=self.device
        )
        directions = quat_apply(offset, self.pattern.directions.to(self.device))
        alignment = self.cfg.alignment
        turn = quat[..., None, :]
        if alignment == "world":
            turn = torch.zeros_like(turn)
            turn[..., 0] = 1.0
        elif alignment != "base":
            turn = quat_level(turn)
        starts_w = pos[..., None, :] + quat_apply(turn, starts)
        return starts_w, directions.expand_as(starts_w) if alignment == "yaw_starts" else quat_apply(turn, directions)

    def debug_draw(self) -> list[DebugShape]:
        """Return measured hits as green points, misses as red ones at the starts of their rays; rays if configured."""
        data = self.data
        if data.ray_hits_w is None and data.distances is None:
            return []
        lead = (self.num_envs, self.mount.count, len(self.pattern))
        pos = self.mount.pos_w if data.pos_w is None else data.pos_w.reshape(*lead[:2], 3)
        quat = self.mount.quat_w if data.quat_w is None else data.quat_w.reshape(*lead[:2], 4)
        starts, directions = self._in_world(pos, quat)
        if data.ray_hits_w is not None:
            hits = data.ray_hits_w.reshape(*lead, 3)
        else:
            distances = data.distances.reshape(*lead, 1)
            hits = starts + torch.where(distances == self.cfg.miss, torch.inf, distances) * directions
        is_hit = hits.isfinite().all(dim=-1)
        green, red = (0.0, 1.0, 0.0), (1.0, 0.0, 0.0)

        def shape(kind: str, values: Tensor, mask: Tensor, color: tuple[float, float, float]) -> DebugShape:
            return DebugShape(kind, values[mask].cpu().numpy(), color, mask.flatten(1).sum(dim=1).tolist())

        shapes = [shape("points", hits, is_hit, green), shape("points", starts, ~is_hit, red)]
        if self.cfg.debug_rays:
            ends = torch.where(is_hit[..., None], hits, starts + directions)
            lines = torch.stack([starts, ends], dim=-2)
            shapes += [shape("lines", lines, mask, color) for mask, color in ((is_hit, green), (~is_hit, red))]
        return shapes


def ray_field(field: Field, rays: int) -> Field:
    """Return a field with one value, or vector, per ray."""
    axes = ("ray", *(("xyz",) if field.shape == (3,) else ()))
    return replace(field, shape=(rays, *field.shape), axes=axes)


class RayCastSensor(RayCaster, SimpleSensor[RayCastSensorCfg, RayCasterData]):
    """Ray caster at one or several mounts, by mjlab's name and defaults."""


RaycasterSensor = RayCaster
RaycasterSensorCfg = RayCasterCfg
MultiMeshRayCaster = RayCaster
MultiMeshRayCasterCfg = RayCasterCfg
MultiMeshRayCasterData = RayCasterData

__all__ = [
    "MultiMeshRayCaster",
    "MultiMeshRayCasterCfg",
    "MultiMeshRayCasterData",
    "RayCastSensor",
    "RayCastSensorCfg",
    "RayCaster",
    "RayCasterCfg",
    "RayCasterData",
    "RayScanCfg",
    "RaycasterSensor",
    "RaycasterSensorCfg",
]
