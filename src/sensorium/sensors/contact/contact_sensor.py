"""Contacts of selected elements: the touching elements, the forces, the times, and the events within a control step.

Axes: ``contact`` is primary * num_slots, primary-major; ``primary`` or ``body`` one per element; ``filter`` one per
filter; ``history`` physics ticks or samples, 0 = newest. All names with ``_w`` are in world axes.

Signs: in the contact's frame (normal, tangent, normal x tangent), with the normal from the primary to the other
element, a force with x > 0 presses. Every force in world axes (``netforce``, `global_frame`, names with ``_w``, the
latched impulse) acts on the primary: a standing foot reads +z. MuJoCo's own ``netforce`` has the opposite sign, which
``force_on="secondary"`` gives to `force` and `torque`.

The sensor evaluates every physics tick, whatever its rate: timers, latches and histories miss none. Where the force is
measured with noise, the measured timers and histories follow the measured force, which exists at samples only.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
import warp as wp
from torch import Tensor

from sensorium.cfg import OffsetCfg
from sensorium.compute import pinned, recorded
from sensorium.engines.base import NameKind
from sensorium.errors import NotTrackedError, SensoriumWarning
from sensorium.measurement.record import Record
from sensorium.sensors.contact import contact_kernels as kernels
from sensorium.sensors.contact.contact_cfg import (
    LATCHES,
    REDUCTIONS,
    REPORTED,
    TIMES,
    ContactPlan,
    ContactSensorCfg,
    ContactSensorData,
    plan_of,
)
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.hooks import Supports, between_samples, used_if
from sensorium.sensors.core.parts import declared_fields, frames_of
from sensorium.spec import BODY_POSE, CONTACT_REPORT, Field, Parity, Requirement, contact_array, contact_columns
from sensorium.world.contacts import ContactMatch, check_apart, short_names
from sensorium.world.mount import MountView
from sensorium.world.select import Named, find_names


class ContactSensor(SimpleSensor[ContactSensorCfg, ContactSensorData]):
    """Contacts of elements: fields of contacts or normal forces, times in contact and in the air, latches, histories.

    Every physics tick is evaluated in one launch. `update_period` only decides at which ticks the output changes, all
    fields together. Latches cover the ticks since the start of the control step (`scene.step`, or
    `begin_control_step`); if samples are rarer than control steps, since the previous sample. In the latches, the
    capture at a reset counts as found but adds no impulse, because no time has passed.

    Times are counted in whole ticks, so they are exact for any length of the simulation. A phase of k ticks reads k dt
    while it lasts and (k + 1) dt as the last phase, because the tick that ends it counts in both phases. At a reset all
    four times are 0 and start to count: a standing foot reads k dt k ticks later. This is neither a first contact nor a
    landing.

    Raises:
        SelectionError: a pattern matches nothing, or an element twice, or subtrees contain each other.
    """

    checks_state: ClassVar[bool] = True

    @classmethod
    def needs(cls, cfg: ContactSensorCfg, names: Named, supports: Supports) -> Iterable[Requirement]:
        """Return the poses if requested, and the contact reports of the matched elements."""
        plan = plan_of(cfg, names)
        return dict.fromkeys((*((BODY_POSE,) if cfg.track_pose else ()), *plan.reports, *plan.nets))

    @cached_property
    def _plan(self) -> ContactPlan:
        plan, title = plan_of(self.cfg, self.engine), f"{type(self.cfg).__name__}({self.name!r})"
        if plan.others and not self.cfg.is_prim_form:
            side = (plan.others[0][0], tuple(name for _, name in plan.others))
            check_apart(side, self.engine, config=title, field="secondary")
        return plan

    def fields(self) -> Mapping[str, Field]:
        """Return the requested fields, in the shapes of this config."""
        cfg, declared = self.cfg, declared_fields(self.data_class)
        count, others, ticks = len(self._plan.primary[1]), len(self._plan.others), cfg.history_length
        sizes = {"contact": count * cfg.slots, "primary": count, "body": count, "filter": others,
                 "history": max(ticks, 1), "xyz": 3, "wxyz": 4}  # fmt: skip
        axes = {name: field.axes or () for name, field in declared.items()}
        parities: dict[str, Parity] = {}
        if cfg.is_prim_form:
            names = ["found", "net_forces_w", "net_forces_w_history"]
            axes["found"] = ("body",)
            names += ["force_matrix_w", "force_matrix_w_history"] if others else []
            names += ["pos_w", "quat_w"] if cfg.track_pose else []
            axes |= {name: ("body", *axes[name][1:]) for name in (*TIMES, *LATCHES)}
        else:
            names = list(cfg.reported)
            names += [f"{name}_history" for name in names if ticks]
            axes |= {name: ("contact", "xyz") for name in ("friction_forces_w", "contact_pos_w")}
            if cfg.global_frame or cfg.reduce == "netforce":
                parities = {"force": "polar", "torque": "axial", "force_history": "polar", "torque_history": "axial"}
        names += ["friction_forces_w"] if cfg.has_friction else []
        names += ["contact_pos_w"] if cfg.track_contact_points else []
        names += TIMES if cfg.track_air_time else ()
        names += LATCHES if cfg.latch else ()
        return {
            name: replace(field, axes=axes[name], shape=tuple(sizes[axis] for axis in axes[name]),
                          frame="world" if name in parities else field.frame,
                          parity=parities.get(name, field.parity))
            for name, field in declared.items() if name in names
        }  # fmt: skip

    # Setup ------------------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        """Allocate the memory and set the constant arguments of the kernel."""
        cfg, plan, device = self.cfg, self._plan, self.device
        element, names = plan.primary
        self.notes = {element: ", ".join(names), "against": ", ".join(self.filter_names) or "anything"}
        if cfg.track_air_time:
            self.notes["contact"] = "found > 0" if cfg.threshold is None else f"net force > {cfg.threshold:g} N"
        self.buffers.body_at_fault = lambda env, mount: names[mount]
        count, others = len(names), len(plan.others)
        if cfg.is_prim_form:
            columns = {"found": slice(0, 1), "net_forces_w": slice(1, 4), "force_matrix_w": slice(4, 4 + 3 * others)}
        else:
            columns = contact_columns(CONTACT_REPORT(plan.primary, None, cfg.reported))
        self._columns = {name: part for name, part in columns.items() if part.stop > part.start}
        memory = self._memory = kernels.ContactMemory()
        memory.width, memory.slots = max(part.stop for part in columns.values()), cfg.slots
        words = wp.types.type_size_in_bytes(kernels.ContactState) // 4
        self._states = self.new_state("states", (count, words))
        memory.states = self._as_structs(self._states, kernels.ContactState)
        memory.entries = max(cfg.history_length, 1)
        memory.rows = self.new_state("rows", (count, memory.entries, cfg.slots * memory.width)).data_ptr()
        rules = self._rules = kernels.ContactRules()
        rules.reduce, rules.global_frame = REDUCTIONS.index(cfg.reduce), int(cfg.global_frame)
        rules.sign = -1.0 if cfg.force_on == "secondary" and (cfg.global_frame or cfg.reduce == "netforce") else 1.0
        rules.by_sample = int(cfg.history_of == "sample")
        rules.by_force, rules.threshold = int(cfg.threshold is not None), cfg.threshold or 0.0
        rules.dt, rules.exact_dt = self.clock.dt, self.clock.dt
        self._reports, self._nets = self._sources(plan.reports), self._sources(plan.nets)
        self._most_found = torch.zeros((1 + others, count), dtype=torch.int32, device=device)
        shape = self._most_found.shape
        self._seen = self._most_found if self.compute_on.is_cpu else pinned(shape, torch.int32, self.device).zero_()
        self._seen_host = self._seen.numpy()
        self._warned: set[tuple[int, int]] = set()
        self.buffers.bad = torch.zeros((self.num_envs, count), dtype=torch.uint8, device=device)
        self._measured_past: dict[str, Tensor] = {}
        if cfg.alters_force:
            for name, field in self.fields().items():
                if name.endswith("_history"):
                    items, entries = count * cfg.slots, max(cfg.history_length, 1)
                    past = (items, entries, math.prod(field.shape) // (items * entries))
                    self._measured_past[name] = self.new_state(f"measured_{name}", past)
        if cfg.has_own_times:
            words = wp.types.type_size_in_bytes(kernels.ContactSwitch) // 4
            self._switches = self._as_structs(self.new_state("switches", (count, words)), kernels.ContactSwitch)
        self._bodies: MountView | None = None
        if cfg.track_pose:
            kind: NameKind = "geom" if plan.primary[0] == "geom" else "body"
            frames = [self.engine.frame(kind, name) for name in plan.primary[1]]
            self._bodies = MountView(
                self.engine, self.compute_on, self.clock, plan.primary[1], frames, OffsetCfg(), lambda: self.buffers.bad
            )

    def _sources(self, requirements: Sequence[Requirement]) -> Any:
        """Return the reports of one layout in the form that the kernel takes."""
        arrays = [self.engine.array(contact_array(requirement)) for requirement in requirements]
        reports = kernels.ContactReports()
        reports.address = self._table([array.data_ptr() for array in arrays], wp.uint64)
        if arrays:
            reports.slots, reports.width = arrays[0].shape[2:]
            reports.at = _columns(contact_columns(requirements[0]))
        return reports

    def _table(self, rows: list[Any], dtype: Any) -> Any:
        return wp.array(rows, dtype=dtype, shape=len(rows), device=self.compute_on.wp_device)

    def _as_structs(self, state: Tensor, struct: Any) -> Any:
        """View a state `[env, primary, word]` as an array of structs."""
        return wp.array(ptr=state.data_ptr(), dtype=struct, shape=state.shape[:2], device=self.compute_on.wp_device)

    # The tick ---------------------------------------------------------------------------------------------------------

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Process this tick and write the outputs, in one launch."""
        self._look(raw, sampled=1)

    @recorded
    @between_samples
    def observe(self) -> None:
        """Process a tick between samples."""
        self._look(self.buffers.truth, sampled=0)

    def _look(self, raw: Record, sampled: int) -> None:
        out = self._outputs(raw)
        per_contact = [getattr(raw, name, None) for name in ("friction_forces_w", "contact_pos_w")]
        lanes = 1 if self.compute_on.is_cpu else len(self._plan.primary[1])
        first = [lanes, sampled, self._rules, self._reports, self._nets, self._memory]
        if not self.cfg.is_prim_form:
            columns = _columns(self._columns)
            self.compute_on.launch(kernels.slots, (lanes,), [*first, columns, out], per_contact)
            return
        poses = kernels.ContactPoses()
        if self._bodies is not None:
            poses.bodies = self._bodies.warp_state()
            poses.pos, poses.quat = raw.warp.pos_w, raw.warp.quat_w
        self.compute_on.launch(kernels.bodies, (lanes,), [*first, out, poses], [self._most_found, *per_contact])

    def _outputs(self, raw: Record) -> Any:
        out = kernels.ContactOutputs()
        fields = []
        for name, part in self._columns.items():
            field, history = kernels.ContactOutput(), f"{name}_history"
            field.column, field.width, field.data = part.start, part.stop - part.start, raw[name].data_ptr()
            field.history = raw[history].data_ptr() if history in raw else 0
            fields.append(field)
        out.fields, out.time_first = self._table(fields, kernels.ContactOutput), int(self.cfg.is_prim_form)
        if TIMES[0] in raw:
            out.times = _times(raw)
        if LATCHES[0] in raw:
            out.any, out.peak = raw.warp.latched_any, raw.warp.latched_peak_force
            out.impulse, out.first = raw.warp.latched_impulse_w, raw.warp.latched_first_time
        out.bad, out.any_bad = self.buffers.bad_wp, self.clock.bad_wp
        return out

    def _history_by_item(self, values: Tensor) -> Tensor:
        """View a history as `[env, primary * slot, entry, column]`."""
        entries, items = max(self.cfg.history_length, 1), self.num_bodies * self.cfg.slots
        if self.cfg.is_prim_form:
            return values.view(self.num_envs, entries, items, -1).transpose(1, 2)
        return values.view(self.num_envs, items, entries, -1)

    @recorded
    @used_if(lambda self: self.cfg.has_own_times or (self.cfg.alters_force and self._has_histories))
    def derive_measured(self, slot: Record) -> None:
        """Write the times of the measured switch, and the histories of measured values, in one launch each."""
        cfg, launch = self.cfg, self.compute_on.launch
        count = len(self._plan.primary[1])
        if cfg.has_own_times:
            force = slot["net_forces_w" if cfg.is_prim_form else "force"].view(self.num_envs, count, cfg.slots, 3)
            inputs = [cfg.threshold, self._rules.exact_dt, force, self._switches]
            launch(kernels.measured_times, (count,), inputs, [_times(slot)])
        for name, past in self._measured_past.items():
            values = slot[name.removesuffix("_history")].view(self.num_envs, count * cfg.slots, -1)
            shown = self._history_by_item(slot[name])
            launch(kernels.remember, (count * cfg.slots,), [values, past], [shown])

    @property
    def _has_histories(self) -> bool:
        return any(name.endswith("_history") for name in self.fields())

    # Readings ---------------------------------------------------------------------------------------------------------

    def ensure_current(self, *, is_measured: bool = False) -> None:
        """Make the data current, and warn of contacts that exceeded the slots."""
        super().ensure_current(is_measured=is_measured)
        if not self.cfg.is_prim_form:
            return
        if not self.compute_on.is_cpu:  # the next read checks this copy, so no read waits
            self._seen.copy_(self._most_found, non_blocking=True)
        if self._seen_host.any():
            self._warn_of_lost()

    def _warn_of_lost(self) -> None:
        for other, primary in np.argwhere(self._seen_host).tolist():
            if (other, primary) in self._warned:
                continue
            self._warned.add((other, primary))
            field = "force_matrix_w" if other else "net_forces_w"
            against = f" with {self.filter_names[other - 1]!r}" if other else ""
            most = int(self._seen_host[other, primary])
            warnings.warn(
                f"sensor {self.name!r}: {self.body_names[primary]!r} has {most} contacts{against}, so {field} lacks "
                f"the weakest of them; increase max_contact_data_count_per_prim="
                f"{self.cfg.max_contact_data_count_per_prim} to {most}",
                SensoriumWarning,
                stacklevel=4,
            )

    @property
    def num_instances(self) -> int:
        """Primaries per env times environments."""
        return self.num_envs * self.num_bodies

    @property
    def primary_names(self) -> list[str]:
        """Names of the primaries in the order of their axis, without the entity's prefix where that is unique."""
        return short_names(self._plan.primary[1])

    @property
    def filter_names(self) -> list[str]:
        """Names of the secondaries or filters, in order; empty if the sensor reports contacts with anything."""
        return short_names([name for _, name in self._plan.others])

    @property
    def body_names(self) -> list[str]:
        """`primary_names`."""
        return self.primary_names

    @property
    def contact_names(self) -> list[str]:
        """Names along the contact axis: `primary_names`, with the number of the slot if there are several."""
        names, slots = self.primary_names, self.cfg.slots
        return names if slots == 1 else [f"{name} slot {k}" for name in names for k in range(slots)]

    @property
    def num_bodies(self) -> int:
        """Number of primaries."""
        return len(self._plan.primary[1])

    def about_drawing(self) -> dict[str, Any]:
        """Return the frames of the primaries; of a subtree, that of its root."""
        element, names = self._plan.primary
        return frames_of(self.engine, "geom" if element == "geom" else "body", names)

    def find_bodies(self, name_keys: str | Sequence[str], preserve_order: bool = False) -> tuple[list[int], list[str]]:
        """Return indices on the primary axis, and names, of the matching primaries.

        Args:
            name_keys: a name or full-match pattern, or several.
            preserve_order: return them in the order of `name_keys`, not in that of the axis.

        Raises:
            SelectionError: a key matches nothing, or a name that another key also matches.
        """
        title = f"{type(self.cfg).__name__}({self.name!r})"
        return find_names(name_keys, self.body_names, preserve_order, config=title, what="body", once=True)

    @property
    def history_valid(self) -> Tensor:
        """Bool [env, history]: whether an entry belongs to this episode; earlier entries are 0."""
        ages = torch.arange(max(self.cfg.history_length, 1), device=self.device)
        if self.cfg.history_of == "sample" or self.cfg.alters_force:
            return ages[None] < self.frame[:, None]
        return ages[None] <= (self.truth_tick - self.buffers.counter.first_tick)[:, None]

    def compute_first_contact(self, dt: float, abs_tol: float = 1e-8) -> Tensor:
        """Return where contact was truly established within the last `dt` seconds, bool `[env, primary]`.

        A contact that existed at the start of the episode does not count.

        Args:
            dt: s, a multiple of the physics step; usually the control step.
            abs_tol: s; times are whole ticks, so any tolerance below half a tick gives the same result.

        Raises:
            NotTrackedError: (a RuntimeError) the config does not track air time.
        """
        return self._began("compute_first_contact", 0, dt, abs_tol)

    def compute_first_air(self, dt: float, abs_tol: float = 1e-8) -> Tensor:
        """Return where contact was broken within the last `dt` seconds; as `compute_first_contact`."""
        return self._began("compute_first_air", 1, dt, abs_tol)

    def _began(self, what: str, column: int, dt: float, abs_tol: float) -> Tensor:
        if not self.cfg.track_air_time:
            raise NotTrackedError(
                f"sensor {self.name!r}: {what} needs contact and air times, which its config does not track. "
                "Give ContactSensorCfg(..., track_air_time=True)."
            )
        self.ensure_current()
        ticks = self._states.view(torch.int32)[..., column]  # new_contact, new_air
        return (ticks > 0) & (ticks.to(torch.float64) * self.clock.dt < dt + abs_tol)


def _columns(parts: Mapping[str, slice]) -> Any:
    """Return the column of each field in a row, for a kernel."""
    columns = kernels.ContactColumns()
    for name in REPORTED:
        setattr(columns, name, parts[name].start if name in parts else -1)
    return columns


def _times(record: Record) -> Any:
    """Return the four times as the output of a kernel."""
    times = kernels.ContactTimes()
    for name in TIMES:
        setattr(times, name.removesuffix("_time"), getattr(record.warp, name))
    return times


__all__ = ["ContactMatch", "ContactSensor", "ContactSensorCfg", "ContactSensorData"]
