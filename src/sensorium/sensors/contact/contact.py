"""Contact switch: whether a body or a geom is pressed, determined by thresholds on the contact force.

Axes: ``[env, mount]``, bool (no mount axis for a singular selector).

Two spaces: noise and bias act on the force F (N, the intermediate space); readers get the flag. The flag turns on at
F > `on_force`, turns off at F <= `off_force`, and otherwise keeps its value (Schmitt trigger). The measured branch then
reports a change only after it has lasted (debouncing). The first sample of an episode starts from off and is not
debounced.

Where the true force is 0, noise, bias, walk and quantisation are not applied to the measured force: they cannot close a
switch without contact. Stages still apply, so use a `SpikeFault` or a `StuckFault` to model false contacts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
import warp as wp
from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import COLUMN_KNOBS, Float, ObjRef, OffsetCfg, bad, in_unit, must
from sensorium.compute import Rows, is_first, kernel, masked_tid, recorded, tick_now
from sensorium.measurement.record import Record, Timeline
from sensorium.measurement.sensor_cfg import MountedSensorCfg
from sensorium.measurement.stages.debounce import has_lasted, noted
from sensorium.sensors.contact.contact_force import Touching, ignored, net_force, reports, touching
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports, used_if
from sensorium.sensors.core.touchable import TOUCHABLE
from sensorium.spec import ContactReduce, Field, Requirement, exact_fraction
from sensorium.world.mount import flag_state, is_finite3
from sensorium.world.select import Named

REDUCE: dict[str, ContactReduce] = {"net": "netforce", "strongest": "maxforce"}


@dataclass(frozen=True, slots=True)
class ContactFlagData:
    """One sample of contact switches; `.data` is the tensor itself."""

    contact: Annotated[Tensor, Field("1", dtype="bool", kind="flag")]
    """Whether the mount is pressed `[env, mount]`."""


Force = Annotated[Float, must(lambda force: 0.0 <= force < math.inf, "a finite force >= 0 in newton")]


class ContactCfg(MountedSensorCfg[ContactFlagData]):
    """Configuration of contact switches. Select bodies (all their geoms) or geoms. Knobs are in N."""

    on_force: Annotated[Force, in_unit("N")] = 0.0
    """Force above which the switch turns on, N."""
    off_force: Annotated[Force | None, in_unit("N")] = None
    """Force at or below which the switch turns off, N; None uses `on_force`, which means no hysteresis."""
    debounce: Annotated[
        Float | None, must(lambda time: 0.0 <= time < math.inf, "a finite time >= 0 in seconds"), in_unit("s")
    ] = None
    """Time for which a change must last before it is reported, s; measured branch only."""
    debounce_samples: Annotated[
        int | None, must(lambda samples: samples >= 1, "a whole number >= 1", "Give 1 to report every change.")
    ] = None
    """The same as a number of consecutive samples; an alternative to `debounce`."""
    measure: Literal["net", "strongest"] = "net"
    """Measured force. ``net``: magnitude of the sum of all contact forces, suited to a foot; opposite forces cancel.
    ``strongest``: magnitude of the strongest contact's force, suited to a bumper."""
    ignore: str | ObjRef | tuple[str | ObjRef, ...] = ()
    """Bodies whose contacts with the mount are ignored: a name or full-match pattern, or a list of these. ``"world"``
    means the world's own geoms; give a body that is fixed to the world by its name."""

    sits_on: ClassVar[tuple[str, tuple[str, ...]] | None] = TOUCHABLE

    @field_validator("offset")
    @classmethod
    def _no_frame(cls, value: OffsetCfg) -> OffsetCfg:
        if value != OffsetCfg():
            raise bad("no offset", "Omit it, since a flag has no frame.")
        return value

    @field_validator("off_force")
    @classmethod
    def _off(cls, value: float | None, info: ValidationInfo) -> float | None:
        most = info.data.get("on_force", math.inf)
        if value is not None and value > most:
            raise bad(f"at most on_force, {most:g} N")
        return value

    @field_validator("debounce_samples")
    @classmethod
    def _samples(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("debounce") is not None:
            raise bad("either debounce or debounce_samples", "Keep one of the two.")
        return value

    @field_validator("ignore")
    @classmethod
    def _ignore(cls, value: Any, info: ValidationInfo) -> Any:
        if value and info.data.get("measure") == "strongest":
            raise bad(
                "no ignored bodies with measure='strongest'",
                "Use measure='net', since the strongest contact may be an ignored one.",
            )
        return value


@wp.struct
class MagnitudeTask:
    """Data of one sensor for the kernel."""

    touching: Touching
    force: wp.array2d[wp.float32]
    bad: wp.array2d[wp.uint8]
    any_bad: wp.array[wp.int32]


@kernel
def _magnitude(rows: Rows, tasks: wp.array[MagnitudeTask]) -> None:
    k, env, mount = masked_tid(rows)
    t = tasks[k]
    if mount >= t.bad.shape[1]:
        return
    force = net_force(t.touching, env, mount)
    t.force[env, mount] = wp.length(force)
    flag_state(t.bad, t.any_bad, env, mount, is_finite3(force))


@wp.struct
class CopyTask:
    """Data of one sensor whose values are copied where the true force is 0."""

    truth: wp.array2d[wp.float32]
    source: wp.array2d[wp.float32]
    target: wp.array2d[wp.float32]


@kernel
def _copy_unloaded(rows: Rows, tasks: wp.array[CopyTask]) -> None:
    k, env, mount = masked_tid(rows)
    t = tasks[k]
    if mount >= t.truth.shape[1]:
        return
    if t.truth[env, mount] == 0.0:
        t.target[env, mount] = t.source[env, mount]


@kernel
def _debounced(
    rows: Rows,
    on_force: float,
    off_force: float,
    by_ticks: int,
    wait: int,
    force_in: wp.array2d[wp.float32],
    before_in: wp.array2d[wp.bool],
    side: wp.array2d[wp.float32],
    pending: wp.array2d[wp.int32],
    contact_out: wp.array2d[wp.bool],
) -> None:
    env, mount = masked_tid(rows)
    force = force_in[env, mount]
    is_on = force > on_force or (side[env, mount] > 0.0 and force > off_force)
    side[env, mount] = wp.where(is_on, 1.0, 0.0)
    shown = before_in[env, mount]
    note = wp.int32(0)
    if is_first(rows, env):
        shown = is_on
    else:
        note = noted(is_on != shown, pending[env, mount], by_ticks, tick_now(rows))
        if has_lasted(note, by_ticks, tick_now(rows), wait):
            shown = is_on
            note = 0
    pending[env, mount] = note
    contact_out[env, mount] = shown


def _scalars(record: Record) -> Any:
    """Return the force as an array of scalars, for any number of mounts."""
    return wp.from_torch(record.force, dtype=wp.float32)


class Contact(SimpleSensor[ContactCfg, ContactFlagData]):
    """Contact switch on one or several bodies or geoms."""

    single: ClassVar[bool] = True
    checks_state: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: ContactCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return the reports of forces."""
        return reports(cfg, names, REDUCE[cfg.measure])

    def intermediate_fields(self) -> Mapping[str, Field]:
        """Return the force, on which noise acts."""
        return {"force": Field("N")}

    @property
    def _thresholds(self) -> tuple[float, float]:
        cfg = self.cfg
        return cfg.on_force, cfg.on_force if cfg.off_force is None else cfg.off_force

    def setup(self) -> None:
        """Look up the reports, and allocate the memory of debouncing."""
        cfg, shape = self.cfg, (self.mount.count,)
        on, off = self._thresholds
        self.notes = {"on": f"{cfg.measure} force > {on:g} N", "off": f"<= {off:g} N"} | ignored(cfg, self.engine)
        self._touching = touching(self, reports(cfg, self.engine, REDUCE[cfg.measure]))
        self._clean = torch.zeros((self.num_envs, *shape), dtype=torch.float32, device=self.device)
        self._debounces = bool(cfg.debounce) or (cfg.debounce_samples or 1) > 1
        if self._debounces:
            self._side, pending = self.new_state("side", shape), self.new_state("pending", shape)
            self._pending = pending.view(torch.int32)
            self._flags = torch.zeros((self.num_envs, *shape), dtype=torch.bool, device=self.device)

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Compute the magnitudes in one launch, shared by all switches of one rate."""
        t = MagnitudeTask()
        t.touching, t.force = self._touching, _scalars(raw)
        t.bad, t.any_bad = self.buffers.bad_wp, self.clock.bad_wp
        self.compute_on.launch_task(_magnitude, (self.mount.count,), t)

    @recorded
    @used_if(lambda self: any(getattr(self.cfg, knob) is not None for knob in COLUMN_KNOBS))
    def apply_hardware_imperfections(self, slot: Record) -> None:
        """Run the standard chain where there is contact; elsewhere keep the unmodified force (two more launches)."""
        before, after = CopyTask(), CopyTask()
        before.truth = after.truth = _scalars(self.buffers.truth)
        before.source = after.target = _scalars(slot)
        before.target = after.source = wp.from_torch(self._clean, dtype=wp.float32)
        self.compute_on.launch_task(_copy_unloaded, (self.mount.count,), before)
        self.standard_chain(slot)
        self.compute_on.launch_task(_copy_unloaded, (self.mount.count,), after)

    def post_process(self, data: Record, timeline: Timeline, *, is_measured: bool) -> Tensor:
        """Compare with the thresholds, and debounce the measured flag."""
        on, off = self._thresholds
        before = timeline.at(0)
        if not (is_measured and self._debounces):
            return (data.force > on) | (before.contact & (data.force > off))
        time, clock = self.cfg.debounce, self.clock
        wait = self.cfg.debounce_samples or 0
        if time is not None:
            wait = math.ceil(exact_fraction(time) / clock.dt_exact)
        self.compute_on.launch(
            _debounced,
            (self.mount.count,),
            [on, off, int(time is not None), wait, _scalars(data), before.warp.contact],
            [wp.from_torch(self._side), wp.from_torch(self._pending), wp.from_torch(self._flags)],
        )  # fmt: skip
        return self._flags
