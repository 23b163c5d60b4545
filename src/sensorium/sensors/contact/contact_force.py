"""Contact force: the net force of all contacts on a body or a geom, as a foot or a bumper with load cells feels it.

Axes: ``[env, mount, xyz]`` (no mount axis for a singular selector). With F the sum of all contact forces that act *on*
the body, in world axes, and R the orientation of the mount (the body's or the geom's, turned by ``offset.rot``), the
force is R^T F: a foot that stands reads M g upwards. A body's own weight is no contact force.

Two spaces: noise, bias and quantisation act on the force (the intermediate space); what a reader sees went through the
device's range last, on both branches. Per axis, it is clipped to +-`max_force` and is then 0 where less than
`min_force` is left. The quantum is kept: the measured value is clipped to the multiple of `resolution` that is nearest
to `max_force`, which is the same as quantising after the clip.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

import torch
import warp as wp
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Float, MountedSensorCfg, ObjRef, Vec3, bad
from sensorium.compute import Rows, kernel, recorded
from sensorium.engines.base import NameKind
from sensorium.errors import ConfigError, Fault
from sensorium.geometry.transforms import quat_apply, quat_multiply, quat_rotate_inverse
from sensorium.measurement.record import Record, Timeline
from sensorium.readings import DebugShape
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports, used_if
from sensorium.spec import BODY_POSE, CONTACT_REPORT, ContactReduce, Field, Requirement, contact_array
from sensorium.world.mount import is_finite3, is_finite4
from sensorium.world.select import WORLD, Named, entity_pattern, match_names

SELECTABLE = ("body", "bodies", "geom", "geoms", "link_name", "link_names")


@dataclass(frozen=True, slots=True)
class ContactForceData:
    """One sample of contact forces: `.data` is the tensor itself."""

    force: Annotated[Tensor, Field("N", (3,), frame="sensor", role="vector_at")]
    """Net contact force on the mount, in its axes `[env, mount, 3]`, N."""


class ContactForceCfg(MountedSensorCfg[ContactForceData]):
    """Configuration of contact forces. Select bodies (all their geoms) or geoms; `offset.rot` turns the axes."""

    min_force: Float | Vec3 = 0.0
    """Deadband per axis, N: what is smaller reads 0. A number, or one per axis."""
    max_force: Float | Vec3 | None = None
    """Full scale per axis, N: a number, or one per axis; None for none."""
    ignore: str | tuple[str, ...] = ()
    """Bodies whose contacts with the mount do not count: a name or full-match pattern, or a list of such. ``"world"``
    means the world's own geoms; a body that is fixed to it is named by itself."""

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**data)
        check_touchable(self)

    @field_validator("min_force", "max_force")
    @classmethod
    def _forces(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None:
            return value
        if not all(0.0 <= each < math.inf for each in three(value)):
            raise bad(
                "a finite force >= 0, or three", "None leaves it unbounded." if info.field_name != "min_force" else ""
            )
        least = info.data.get("min_force", 0.0)
        if info.field_name == "max_force" and any(a > b for a, b in zip(three(least), three(value), strict=True)):
            raise bad(f"at least min_force, {least} N", "Else nothing but 0 is ever read.")
        return value


def three(value: Any) -> tuple[float, float, float]:
    """Return a number or three as three."""
    return value if isinstance(value, tuple) else (value, value, value)


def check_touchable(cfg: MountedSensorCfg[Any]) -> None:
    """Raise `ConfigError` where a config selects what no contact report can be made for."""
    selector, value = cfg.selector
    if selector not in SELECTABLE or WORLD in (value if isinstance(value, tuple) else (value,)):
        fault = Fault(selector, repr(value), f"a body or a geom that can be touched, by one of {', '.join(SELECTABLE)}")
        raise ConfigError(f"{type(cfg).__name__}({cfg.label!r})", [fault])


def selected(cfg: MountedSensorCfg[Any], model: Named) -> tuple[str, tuple[str, ...]]:
    """Return the kind and the full names of what a config selects, in the order of its mounts."""
    selector, value = cfg.selector
    kind = "geom" if selector.startswith("geom") else "body"
    return kind, matched(cfg, kind, value, selector, model)


def matched(cfg: MountedSensorCfg[Any], kind: str, value: Any, field: str, model: Named) -> tuple[str, ...]:
    """Return the full names that a pattern, a reference or a list of such matches, in their order."""
    known, found = model.names(cast(NameKind, kind)), []
    for pattern in value if isinstance(value, tuple) else (value,):
        name = entity_pattern(pattern, model) if isinstance(pattern, ObjRef) else pattern
        config = f"{type(cfg).__name__}({cfg.label!r})"
        names = [WORLD] if name == WORLD else match_names(name, known, config=config, field=field, what=kind)
        found += [each for each in names if each not in found]
    return tuple(found)


def ignored(cfg: Any, model: Named) -> dict[str, str]:
    """Return the note on the bodies that a config ignores."""
    names = matched(cfg, "body", cfg.ignore, "ignore", model)
    return {"ignored": ", ".join(names)} if names else {}


def reports(cfg: Any, model: Named, reduce: ContactReduce = "netforce") -> list[Requirement]:
    """Return the report of all contacts of a config's mounts, then one for each body that it ignores."""
    side, fields = selected(cfg, model), ("found", "force")
    others = matched(cfg, "body", cfg.ignore, "ignore", model)
    return [CONTACT_REPORT(side, other, fields, reduce) for other in (None, *(("body", name) for name in others))]


@kernel
def _add(
    rows: Rows, sign: float, is_first: int, report_in: wp.array3d[wp.float32], total: wp.array3d[wp.float32]
) -> None:
    """Sum up reports `[env, mount, (found, force)]`."""
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    for k in range(4):
        value = sign * report_in[env, mount, k]
        if is_first == 0:
            value = value + total[env, mount, k]
        total[env, mount, k] = value


@wp.func
def net_force(total: wp.array3d[wp.float32], env: int, mount: int) -> wp.vec3:
    """Return the force of a report, exactly 0 without a contact."""
    force = wp.vec3()
    if total[env, mount, 0] != 0.0:
        force = wp.vec3(total[env, mount, 1], total[env, mount, 2], total[env, mount, 3])
    return force


@kernel
def _force(
    rows: Rows,
    total_in: wp.array3d[wp.float32],
    body_in: wp.array[wp.int32],
    offset_quat_in: wp.array2d[wp.vec4],
    body_quat_in: wp.array2d[wp.vec4],
    force_out: wp.array2d[wp.vec3],
    bad_out: wp.array2d[wp.uint8],
    any_bad: wp.array[wp.int32],
) -> None:
    i, mount = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    turn = offset_quat_in[env, mount]
    if body_in[mount] >= 0:
        turn = quat_multiply(body_quat_in[env, body_in[mount]], turn)
    force = net_force(total_in, env, mount)
    force_out[env, mount] = quat_rotate_inverse(turn, force)
    flag = wp.uint8(0)
    if not (is_finite3(force) and is_finite4(turn)):
        flag = wp.uint8(1)
        any_bad[0] = 1
    bad_out[env, mount] = flag


class Touching:
    """The contact reports of a sensor's mounts, summed up less those of ignored bodies."""

    def __init__(self, sensor: SimpleSensor[Any, Any], requirements: list[Requirement]) -> None:
        self._sensor = sensor
        self._arrays = [sensor.engine.array(contact_array(requirement))[:, :, 0] for requirement in requirements]
        self._total = torch.zeros((sensor.num_envs, sensor.mount.count, 4), dtype=torch.float32, device=sensor.device)

    def total(self) -> Any:
        """Sum up (a launch per report where bodies are ignored) and return `[env, mount, (found, force)]`."""
        if len(self._arrays) == 1:
            return wp.from_torch(self._arrays[0])
        total = wp.from_torch(self._total)
        for k, array in enumerate(self._arrays):
            inputs = [1.0 if k == 0 else -1.0, int(k == 0), wp.from_torch(array)]
            self._sensor.compute_on.launch(_add, (self._sensor.mount.count,), inputs, [total])
        return total


class ContactForce(SimpleSensor[ContactForceCfg, ContactForceData]):
    """Net contact force on one or several bodies or geoms."""

    requires: ClassVar[tuple[Requirement, ...]] = (BODY_POSE,)
    single: ClassVar[bool] = True
    checks_state: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: ContactForceCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return the reports of net forces."""
        return reports(cfg, names)

    def intermediate_fields(self) -> Mapping[str, Field]:
        """Return the same field: what noise acts on is distinct from what went through the range."""
        return self.fields()

    def setup(self) -> None:
        """Find the reports."""
        cfg = self.cfg
        self.notes = ignored(cfg, self.engine)
        self._touching = Touching(self, reports(cfg, self.engine))
        self._least = torch.tensor(three(cfg.min_force), dtype=torch.float32, device=self.device)
        self._most = torch.tensor(
            three(math.inf if cfg.max_force is None else cfg.max_force), dtype=torch.float32, device=self.device
        )

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Turn the net forces in one launch."""
        body, _, turn = self.mount.warp_inputs
        self.compute_on.launch(
            _force,
            (self.mount.count,),
            [self._touching.total(), body, turn, wp.from_torch(self.engine.array("body_quat_w"), dtype=wp.vec4)],
            [raw.warp.force, self.buffers.bad_wp, self.clock.bad_wp],
        )

    @used_if(lambda self: self.cfg.max_force is not None or any(three(self.cfg.min_force)))
    def post_process(self, data: Record, timeline: Timeline, *, is_measured: bool) -> Tensor:
        """Clip, then drop what is below the deadband."""
        most = self._most
        table = self.buffers.knobs.tables.get(("resolution", "force")) if is_measured else None
        if table is not None:
            step = table.values.view(-1, self.mount.count, 3)
            most = torch.where((step > 0.0) & most.isfinite(), torch.round(most / step) * step, most)
        force = torch.minimum(torch.maximum(data.force, -most), most)
        return torch.where(force.abs() < self._least, 0.0, force)

    def debug_draw(self) -> Iterable[DebugShape]:
        """Draw the true force as an arrow at each mount, 0.01 m per N."""
        self.ensure_current()
        pos, quat, force = self.mount.pos_w, self.mount.quat_w, self.buffers.truth["force"]
        ends = pos + 0.01 * quat_apply(quat, force)
        yield DebugShape("arrows", torch.stack([pos, ends], dim=-2).reshape(-1, 2, 3).cpu().numpy())
