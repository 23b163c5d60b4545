"""Contact force: the net force of all contacts on a body or a geom, as measured by load cells in a foot or a bumper.

Axes: ``[env, mount, xyz]`` (no mount axis for a singular selector). With F the sum of all contact forces that act *on*
the body, in world axes, and R the orientation of the mount (the body's or the geom's, rotated by ``offset.rot``), the
force is R^T F: a standing foot reads M g upwards. A body's own weight is not a contact force.

Two spaces: noise, bias and quantisation act on the force (the intermediate space). The range of the device is applied
last, on both branches: each axis is clipped to +-`max_force`, and a magnitude below `min_force` reads 0. Clipping keeps
the quantum: the measured value is clipped to the multiple of `resolution` nearest to `max_force`, which is the same as
quantising after the clip.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import warp as wp
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import Float, ObjRef, Vec3, bad, in_unit, must
from sensorium.compute import Rows, kernel, masked_tid, recorded
from sensorium.compute.rows import floats_at
from sensorium.geometry.transforms import quat_rotate_inverse
from sensorium.measurement.record import Record, Timeline
from sensorium.measurement.sensor_cfg import MountedSensorCfg
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports, used_if
from sensorium.sensors.core.touchable import TOUCHABLE, matched, selected
from sensorium.spec import BODY_POSE, CONTACT_REPORT, ContactReduce, Field, Requirement, contact_array
from sensorium.world.mount import Mounts, flag_state, is_finite3, is_finite4, mount_pose
from sensorium.world.select import Named


@dataclass(frozen=True, slots=True)
class ContactForceData:
    """One sample of contact forces; `.data` is the tensor itself."""

    force: Annotated[Tensor, Field("N", (3,), frame="sensor", role="vector_at", parity="polar")]
    """Net contact force on the mount, in its axes `[env, mount, 3]`, N."""


def three(value: Any) -> tuple[float, float, float]:
    """Return one number or three as three."""
    return value if isinstance(value, tuple) else (value, value, value)


def _are_forces(value: Any) -> bool:
    return all(0.0 <= each < math.inf for each in three(value))


class ContactForceCfg(MountedSensorCfg[ContactForceData]):
    """Configuration of contact forces. Select bodies (all their geoms) or geoms; `offset.rot` rotates the axes."""

    min_force: Annotated[Float | Vec3, must(_are_forces, "a finite force >= 0, or three"), in_unit("N")] = 0.0
    """Deadband per axis, N: smaller magnitudes read 0. One number, or one per axis."""
    max_force: Annotated[
        Float | Vec3 | None, must(_are_forces, "a finite force >= 0, or three", "Give None for no limit."), in_unit("N")
    ] = None
    """Full scale per axis, N: one number, or one per axis; None for no limit."""
    ignore: str | ObjRef | tuple[str | ObjRef, ...] = ()
    """Bodies whose contacts with the mount are ignored: a name or full-match pattern, or a list of these. ``"world"``
    means the world's own geoms; give a body that is fixed to the world by its name."""

    sits_on: ClassVar[tuple[str, tuple[str, ...]] | None] = TOUCHABLE

    @field_validator("max_force")
    @classmethod
    def _most(cls, value: Any, info: ValidationInfo) -> Any:
        least = info.data.get("min_force", 0.0)
        if value is not None and any(a > b for a, b in zip(three(least), three(value), strict=True)):
            raise bad(f"at least min_force, {least} N", "Increase max_force, since otherwise every reading is 0.")
        return value


def ignored(cfg: Any, model: Named) -> dict[str, str]:
    """Return the note on the ignored bodies."""
    names = matched(cfg, "body", cfg.ignore, "ignore", model)
    return {"ignored": ", ".join(names)} if names else {}


def reports(cfg: Any, model: Named, reduce: ContactReduce = "netforce") -> list[Requirement]:
    """Return the report of all contacts of a config's mounts, then one report per ignored body."""
    side, fields = selected(cfg, model), ("found", "force")
    others = matched(cfg, "body", cfg.ignore, "ignore", model)
    return [CONTACT_REPORT(side, other, fields, reduce) for other in (None, *(("body", name) for name in others))]


@wp.struct
class Touching:
    """Reports of a sensor's mounts `[env, mount, (found, force)]`, see `reports`: that of all contacts first."""

    total: wp.array3d[wp.float32]
    ignored: wp.array[wp.uint64]
    """Addresses."""


def touching(sensor: SimpleSensor[Any, Any], requirements: Iterable[Requirement]) -> Any:
    """Return the arrays of the reports of a sensor's mounts, for a kernel."""
    total, *ignored = (sensor.engine.array(contact_array(requirement))[:, :, 0] for requirement in requirements)
    t = Touching()
    t.total = wp.from_torch(total)
    addresses = [report.data_ptr() for report in ignored]
    t.ignored = wp.array(addresses, dtype=wp.uint64, device=sensor.compute_on.wp_device)
    return t


@wp.func
def net_force(t: Touching, env: int, mount: int) -> wp.vec3:
    """Return the force of all contacts less that of ignored bodies, exactly 0 without a contact."""
    found = t.total[env, mount, 0]
    force = wp.vec3(t.total[env, mount, 1], t.total[env, mount, 2], t.total[env, mount, 3])
    for k in range(t.ignored.shape[0]):
        report = floats_at(t.ignored[k], 4 * (env * t.total.shape[1] + mount), 4)
        found = found - report[0]
        force = force - wp.vec3(report[1], report[2], report[3])
    if found == 0.0:
        force = wp.vec3()
    return force


@wp.struct
class ForceTask:
    """Data of one sensor for the kernel."""

    touching: Touching
    mounts: wp.array[Mounts]
    force: wp.array2d[wp.vec3]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@kernel
def _force(rows: Rows, tasks: wp.array[ForceTask]) -> None:
    k, env = masked_tid(rows)
    t = tasks[k]
    for mount in range(t.bad.shape[1]):
        _pos, turn = mount_pose(t.mounts, env, mount)
        force = net_force(t.touching, env, mount)
        t.force[env, mount] = quat_rotate_inverse(turn, force)
        flag_state(t.bad, t.any_bad, env, mount, is_finite3(force) and is_finite4(turn))


class ContactForce(SimpleSensor[ContactForceCfg, ContactForceData]):
    """Net contact force on one or several bodies or geoms."""

    single: ClassVar[bool] = True
    checks_state: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: ContactForceCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return the pose, and the reports of net forces."""
        return [BODY_POSE, *reports(cfg, names)]

    def intermediate_fields(self) -> Mapping[str, Field]:
        """Return the same field: noise acts on the force before the range is applied."""
        return self.fields()

    def setup(self) -> None:
        """Look up the reports."""
        cfg = self.cfg
        self.notes = ignored(cfg, self.engine)
        self._touching = touching(self, reports(cfg, self.engine))
        self._least = torch.tensor(three(cfg.min_force), dtype=torch.float32, device=self.device)
        self._most = torch.tensor(
            three(math.inf if cfg.max_force is None else cfg.max_force), dtype=torch.float32, device=self.device
        )

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Rotate the net forces in one launch, shared by all such sensors of one rate."""
        t = ForceTask()
        t.touching, t.mounts, t.force = self._touching, self.mount.warp_state(), raw.warp.force
        t.bad, t.any_bad = self.buffers.bad_wp, self.clock.bad_wp
        self.compute_on.launch_task(_force, (), t)

    @used_if(lambda self: self.cfg.max_force is not None or any(three(self.cfg.min_force)))
    def post_process(self, data: Record, timeline: Timeline, *, is_measured: bool) -> Tensor:
        """Clip the force, then apply the deadband."""
        most = self._most
        table = self.buffers.knobs.tables.get(("resolution", "force")) if is_measured else None
        if table is not None:
            step = table.values.view(-1, self.mount.count, 3)
            most = torch.where((step > 0.0) & most.isfinite(), torch.round(most / step) * step, most)
        force = torch.minimum(torch.maximum(data.force, -most), most)
        return torch.where(force.abs() < self._least, 0.0, force)
