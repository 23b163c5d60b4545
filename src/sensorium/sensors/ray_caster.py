"""Ray caster: distances along a pattern of rays, as a height scanner or a plain range finder gives them.

Axes: ``[env, mount, ray]`` (no mount axis for a singular selector). Rays are in the order of the pattern.

With R the turn of the alignment (base: the mount's; yaw: its heading only; world: none), p the mount's position, and s
and d start and direction of a ray after `offset`, a ray leaves from p + R s along R d. A hit is the nearest point in
between `min_distance` and `max_distance`; both faces of a surface count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import torch
import warp as wp
from pydantic import field_validator
from torch import Tensor

from sensorium.cfg import Float, OffsetCfg, bad
from sensorium.compute import Rows, recorded
from sensorium.errors import nearest
from sensorium.measurement.pipeline import Hooks
from sensorium.measurement.record import Record, Timeline
from sensorium.patterns import GridPatternCfg, PatternField
from sensorium.random import uniforms4
from sensorium.readings import DebugShape
from sensorium.sensors.base import SimpleSensor
from sensorium.sensors.ray_cfg import RayCfg
from sensorium.spec import BODY_POSE, SHAPES, Field, Requirement
from sensorium.world.ray_cast import Alignment, RayCast

wp.set_module_options({"fuse_fp": False, "enable_backward": False})


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
    normals_w: Annotated[Tensor, Field("1", (3,), frame="world", kind="derived")]
    """Unit normal of the surface there, outward; 0 for a miss."""
    geom_ids: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """What was met: row in the sensor's `geom_names`; -1 for a miss."""
    face_ids: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Triangle of a mesh (row of its faces) or height field that was met; -1 for others and for a miss."""

    @property
    def hit_pos_w(self) -> Tensor:
        """Alias of `ray_hits_w`."""
        return self.ray_hits_w

    @property
    def frame_pos_w(self) -> Tensor:
        """`pos_w` with a mount axis in any case, `[env, mount, 3]`."""
        return self.pos_w if self.pos_w.dim() > 2 else self.pos_w.unsqueeze(1)

    @property
    def frame_quat_w(self) -> Tensor:
        """`quat_w` with a mount axis in any case, `[env, mount, 4]`."""
        return self.quat_w if self.quat_w.dim() > 2 else self.quat_w.unsqueeze(1)


FIELDS = ("pos_w", "quat_w", "distances", "ray_hits_w", "normals_w", "geom_ids", "face_ids")
ALIASES = {"hit_pos_w": "ray_hits_w", "frame_pos_w": "pos_w", "frame_quat_w": "quat_w"}
Range = tuple[Float, Float]


class RayCasterCfg(RayCfg[RayCasterData]):
    """Configuration of a ray caster. Knobs such as `noise` act on the distances, m; hits follow from them."""

    pattern: PatternField = GridPatternCfg()
    """The rays, in the sensor's frame: x forward, y left, z up."""
    pattern_cfg: PatternField | None = None
    """Alias of `pattern`."""
    fields: tuple[str, ...] | Literal["all"] = ("pos_w", "quat_w", "distances", "ray_hits_w")
    """What is computed; ``"all"`` adds normals and what was met."""
    ray_alignment: Literal["base", "yaw", "world"] = "base"
    """How the rays follow their mount: wholly, about the vertical only, or not at all."""
    attach_yaw_only: bool | None = None
    """True is ``ray_alignment="yaw"``, False ``"base"``; `ray_alignment`, where given, wins."""
    legacy_yaw_directions: bool = False
    """With yaw alignment, turn the starts only and leave the directions in the world's axes, as Isaac Lab does."""
    drift_range: Range = (0.0, 0.0)
    """Range of an error of the measured position along each world axis, m, drawn anew per env at each reset."""
    ray_cast_drift_range: dict[Literal["x", "y", "z"], Range] = {}
    """Ranges of errors of the measured scan, m, drawn likewise: x and y move the rays along the axes of their
    alignment, z moves the hits."""

    def __init__(self, /, **data: Any) -> None:
        if data.get("pattern_cfg") is not None and "pattern" not in data:
            data = {**data, "pattern": data["pattern_cfg"]}
        super().__init__(**data)

    @field_validator("fields")
    @classmethod
    def _known(cls, value: tuple[str, ...] | str) -> tuple[str, ...] | str:
        if not isinstance(value, str):
            for name in value:
                if ALIASES.get(name, name) not in FIELDS:
                    raise bad(f"fields among {', '.join(FIELDS)}", nearest(name, FIELDS).strip())
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
        """The fields that are computed, in the order of `RayCasterData`."""
        wanted = FIELDS if self.fields == "all" else [ALIASES.get(name, name) for name in self.fields]
        return tuple(name for name in FIELDS if name in wanted)

    @property
    def alignment(self) -> Alignment:
        """How rays follow their mount, as `RayCast` takes it."""
        chosen = self.ray_alignment
        if "ray_alignment" not in self.model_fields_set and self.attach_yaw_only is not None:
            chosen = "yaw" if self.attach_yaw_only else "base"
        return "yaw_starts" if chosen == "yaw" and self.legacy_yaw_directions else chosen

    @property
    def drifts(self) -> bool:
        """Whether the measured scan is taken from elsewhere than the true one."""
        return any(self.drift_range) or any(any(span) for span in self.ray_cast_drift_range.values())


@wp.kernel
def _copy_pose(
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


@wp.kernel
def _draw(
    rows: Rows,
    clock: wp.array[wp.int32],
    episode: wp.array[wp.int32],
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
    u = uniforms4(wp.uint32(clock[0]), wp.uint32(env), wp.uint32(episode[env]), element, key0, key1)
    drift_out[env, mount] = low + wp.cw_mul(wp.vec3(u[0], u[1], u[2]), high - low)


@wp.kernel
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
    def pattern(self) -> Any:
        """The rays of the pattern."""
        return self.cfg.pattern.rays("cpu")

    def fields(self) -> Mapping[str, Field]:
        """Return the selected fields, with the number of rays."""
        declared, rays = super().fields(), len(self.pattern.directions)
        per_ray = {name: replace_shape(declared[name], rays) for name in FIELDS[2:]}
        return {name: per_ray.get(name, declared[name]) for name in self.cfg.selected}

    def _mount_offset(self) -> OffsetCfg:
        """The offset is the rays' own: `pos_w` and `quat_w` are the mount's."""
        return OffsetCfg()

    def _hooks(self) -> Hooks:
        hooks = super()._hooks()
        if self.cfg.drifts:
            hooks.raw = None
        else:
            hooks.fused = None
        if self.cfg.is_clean:
            hooks.derive = None
        return hooks

    def setup(self) -> None:
        """Choose the shapes, and build what is not built yet."""
        cfg, pattern = self.cfg, self.pattern
        self._cast = RayCast(
            self.rays,
            self.engine,
            self.compute_on,
            self.clock,
            self.mount,
            starts=pattern.starts.numpy(),
            directions=pattern.directions.numpy(),
            targets=cfg.seen,
            config=f"{type(cfg).__name__}({cfg.label!r})",
            alignment=cfg.alignment,
            offset=(cfg.offset.pos, cfg.offset.rot),
            limits=cfg.limits,
            miss=cfg.miss if cfg.is_clean else float("inf"),
        )
        shape = (self.mount.count, 3)
        self._drift = self.new_state("drift", shape) if any(cfg.drift_range) else None
        self._cast_drift = self.new_state("cast_drift", shape) if cfg.ray_cast_drift_range else None

    @property
    def geom_names(self) -> tuple[str, ...]:
        """Names of all shapes of the scene: what `geom_ids` count."""
        return tuple(shape.name for shape in self.rays.shapes)

    @property
    def num_rays(self) -> int:
        """Rays of one mount."""
        return self._cast.count

    def reset(self, env_mask: Tensor) -> None:
        """Draw the drifts anew."""
        spans = [(0.0, 0.0) if self._cast_drift is None else self.cfg.ray_cast_drift_range.get(axis, (0.0, 0.0))
                 for axis in ("x", "y", "z")]  # fmt: skip
        key0, key1 = self.stream("drift")
        for number, (state, ranges) in enumerate(((self._drift, [self.cfg.drift_range] * 3), (self._cast_drift, spans))):
            if state is None:
                continue
            low, high = (wp.vec3(*(span[end] for span in ranges)) for end in (0, 1))
            inputs = [self.clock.words_wp, self.clock.episode_wp, key0, key1, number, low, high]
            self.compute_on.launch(_draw, (self.mount.count,), inputs, [wp.from_torch(state, dtype=wp.vec3)])

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Cast all rays (one launch), and note the pose."""
        self._scan(raw, None, None)

    @recorded
    def update_current_timestep_data(self, raw: Record, slot: Record, timeline: Timeline) -> None:
        """Cast the true rays, and the measured ones from where the sensor believes itself to be."""
        self._scan(raw, None, None)
        self._scan(slot, self._drift, self._cast_drift)

    def _scan(self, record: Record, drift: Tensor | None, cast_drift: Tensor | None) -> None:
        names = {
            "distances": "distance",
            "ray_hits_w": "point",
            "normals_w": "normal",
            "geom_ids": "shape",
            "face_ids": "face",
        }
        outputs = {names[name]: record[name] for name in record if name in names}
        self._cast.cast(outputs, drift=drift, cast_drift=cast_drift)
        self._note_pose(record, drift)

    def _note_pose(self, record: Record, drift: Tensor | None) -> None:
        none = torch.zeros((0, 1, 4), device=self.device)
        pose = [wp.from_torch(self.mount.pos_w, dtype=wp.vec3), wp.from_torch(self.mount.quat_w, dtype=wp.vec4)]
        moved = none[..., :3].contiguous() if drift is None else drift
        outputs = [
            record.warp.pos_w if "pos_w" in record else wp.from_torch(none[..., :3].contiguous(), dtype=wp.vec3),
            record.warp.quat_w if "quat_w" in record else wp.from_torch(none, dtype=wp.vec4),
        ]
        inputs = [*pose, wp.from_torch(moved, dtype=wp.vec3)]
        self.compute_on.launch(_copy_pose, (self.mount.count,), inputs, outputs)

    @recorded
    def derive_measured(self, slot: Record) -> None:
        """Put the measured hits where the measured distances end, and show misses as `no_hit_value`."""
        if "ray_hits_w" in slot and "distances" in slot:
            self._cast.points(slot.distances, slot.ray_hits_w, drift=self._drift, cast_drift=self._cast_drift)
        if self.cfg.no_hit_value is not None and "distances" in slot:
            for record in (slot, self.line.truth):
                self.compute_on.launch(
                    _show_miss, (self.mount.count, self.num_rays), [self.cfg.no_hit_value], [as_rays(record.distances)]
                )

    def debug_draw(self) -> list[DebugShape]:
        """Return the hits as points."""
        hits = self.data.ray_hits_w
        if hits is None:
            return []
        points = hits.reshape(self.num_instances, -1, 3)
        return [DebugShape("points", points.cpu().numpy())]


def as_rays(distances: Tensor) -> Any:
    """View distances `[env, mount, ray]` as a Warp array."""
    return wp.from_torch(distances, dtype=wp.float32)


def replace_shape(field: Field, rays: int) -> Field:
    """Return a field with one value, or vector, per ray."""
    return Field(
        field.unit,
        (rays, *field.shape),
        ("ray", *(("xyz",) if field.shape == (3,) else ())),
        field.dtype,
        field.frame,
        field.kind,
        field.role,
    )


__all__ = ["RayCaster", "RayCasterCfg", "RayCasterData"]
