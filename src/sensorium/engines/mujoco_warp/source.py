"""Worlds of mujoco_warp on one device as a source: current derived state, or that of one tick ago."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp

from sensorium.compute import Compute
from sensorium.compute.copies import AsyncCopy
from sensorium.engines.contacts import is_contact
from sensorium.engines.envs import mark, put
from sensorium.engines.mujoco.contacts import elements, touchable
from sensorium.engines.mujoco.derived import ACC, STATE_SOURCES, Plan
from sensorium.engines.mujoco.native import sensor_id
from sensorium.engines.mujoco.shapes import SHAPE_FIELDS, compared_part, static_bodies
from sensorium.engines.mujoco.sleep import is_held, sleeps
from sensorium.engines.mujoco.source import OPTIONS, Health, OwnedSource
from sensorium.engines.mujoco_warp.worlds import Worlds, batched, default_state, mujoco_warp
from sensorium.engines.offsets import LiveOffsets
from sensorium.errors import ModelError, SensoriumWarning, listed
from sensorium.spec import Requirement


class WarpSource(OwnedSource):
    """Worlds of mujoco_warp, whose memory is float32.

    Args:
        worlds: model and data on one device.
        compute: that device.
        health: problems that were reported.
        put: returns a new Model on the device, with the engine's options, of an MjModel; None if a live loop of the
            user steps and resets the worlds.
        key: index of the keyframe with the initial state, -1 for the model's default state.

    Attributes:
        worlds: see above.
    """

    updates_all = takes_masks = True

    def __init__(
        self, worlds: Worlds, compute: Compute, health: Health, put: Callable[[Any], Any] | None = None, key: int = -1
    ) -> None:
        super().__init__(worlds.mjm, compute.num_envs)
        self.worlds, self._put, self._key = worlds, put, key
        self._compute_on, self._health = compute, health
        self._overflow = AsyncCopy(compute, worlds.tensor("overflow"))
        self._differ = torch.zeros(1, dtype=torch.bool, device=compute.device)
        self._differing = AsyncCopy(compute, self._differ)
        self._static: torch.Tensor | None = None
        self._batched = frozenset(batched(worlds.m))
        self._time_steps_of: Any = None
        self._read_from: dict[str, Any] = {}
        self._was_weightless = False
        self._placed: dict[str, torch.Tensor] = {}
        self._reset_mask = torch.ones(self.num_envs, dtype=torch.bool, device=compute.device)
        start = {} if key < 0 else default_state(self.model, key)
        self._start = {name: torch.from_numpy(values).to(compute.device) for name, values in start.items()}
        if self._is_owned:
            self._write_start()
            for option in OPTIONS:
                worlds.expand(option)

    @property
    def _is_owned(self) -> bool:
        return self._put is not None

    def take_over(self, old: WarpSource) -> None:
        """Replace other worlds, of the same model before sensors added to it, and keep the values written there."""
        assert self._put is not None
        self.worlds.take_over(old.worlds, self._put(old.model), default_state(old.model, self._key))

    # Memory ----------------------------------------------------------------------------------------------------------

    @property
    def options(self) -> Any:
        """Options of mujoco_warp's Model."""
        return self.worlds.m.opt

    def field(self, name: str) -> torch.Tensor:
        """Return a field of the Data `[env, ...]`, or of the Model `[1 or env, ...]`."""
        return self.worlds.tensor(name)

    state = field

    def bind(self, plan: Plan) -> None:
        """Use a plan; its fields are read from their current memory. Warn once of contacts with wrong signs."""
        super().bind(plan)
        self._warn_of_signs(plan.reports)
        self._read_from = {name: self.worlds.field(name) for name in (*plan.fields, *plan.model_fields)}
        self._was_weightless = self.is_weightless

    def was_moved(self) -> bool:
        """Whether arrays replaced others since `bind`.

        Raises:
            ModelError: an array of the Data was replaced.
        """
        moved = [name for name, array in self._read_from.items() if self.worlds.field(name) is not array]
        for name in moved:
            if name in self.plan.fields:
                raise ModelError(
                    f"{name} of the mujoco_warp Data was replaced by another array: arrays of the Data must stay in "
                    "place. Write into it (wp.copy, assign), or create a new engine."
                )
        return bool(moved) or self._was_weightless != self.is_weightless

    def given(self, field: str) -> np.ndarray | None:
        """Return current values of a field of the Model."""
        array = getattr(self.worlds.m, field, None)
        return array.numpy() if isinstance(array, wp.array) and array.size else None

    def rows(self) -> dict[str, torch.Tensor]:
        """Return the fields of the Data that a step starts from `[env, ...]`, live."""
        return self.worlds.states()

    def separate_options(self) -> dict[str, torch.Tensor]:
        """Return a copy of gravity and magnetic flux of each environment `[env, 3]`."""
        return {name: self.worlds.of_each(name) for name in OPTIONS}

    def separate(self, options: Mapping[str, torch.Tensor]) -> None:
        """Give each environment separate values of the options in a mapping."""
        for name in options:
            self.worlds.expand(name)

    # Computations ----------------------------------------------------------------------------------------------------

    def step(self, ticks: int) -> None:
        """Take steps."""
        self.worlds.step(ticks)

    def reset(self, ids: torch.Tensor | None) -> None:
        """Reset environments to the initial state."""
        mark(self._reset_mask, ids)
        self.worlds.reset(self._reset_mask)
        self._write_start()

    def _write_start(self) -> None:
        """Write the state of the keyframe into the environments of the reset mask."""
        for name, target in self.worlds.states().items():
            if name in self._start:
                put(target, self._start[name].expand_as(target), self._reset_mask)

    def compute(self, ids: torch.Tensor | None, *, is_current: bool, is_edited: bool) -> None:
        """Run the forward computation up to the stage that the plan needs; that of other envs is restored."""
        plan = self.plan
        computed = [name for name in plan.fields if name not in STATE_SOURCES]
        if not is_current or not computed:
            return
        if plan.sensors and (not self._is_owned or sleeps(self.options)):
            plan = dataclasses.replace(plan, stage=ACC)
        before = {} if ids is None else {name: self.field(name).clone() for name in computed}
        self.worlds.forward(plan.functions)
        for name, old in before.items():
            put(old, self.field(name), ids)
            self.field(name).copy_(old)

    def check(self) -> None:
        """Warn if memory was too small, once for each kind.

        On CUDA the flags are copied asynchronously and checked in a later step.
        """
        self._report_shapes()
        flags = self._overflow.take()
        self._overflow.start()
        if flags is None or not flags.any():
            return
        for flag, size, what in self.worlds.losses():
            self._health.report_small(np.flatnonzero(flags & flag), "by", what, self._larger(size))

    def edited_time_step(self, dt: float) -> tuple[float, str] | None:
        """Return a current time step, s, that is not `dt`, with its location for messages; None if there is none.

        On CUDA the values are copied asynchronously and checked in a later step.
        """
        if self._is_owned and self.model_options.timestep != dt:
            return self.model_options.timestep, "engine.model"
        array = self.worlds.m.opt.timestep
        if array is not self._time_steps_of:
            self._time_steps_of = array
            self._time_steps = AsyncCopy(self._compute_on, self.worlds.tensor("opt.timestep"))
        steps = self._time_steps.take()
        self._time_steps.start()
        for step in [] if steps is None else steps[steps != np.float32(dt)].tolist():
            return step, "opt.timestep of mujoco_warp's Model"
        return None

    def check_shapes(self) -> None:
        """Raise an error if shapes described as common to all environments no longer are.

        On CUDA the result is copied asynchronously and checked in a later step or reset.
        """
        model, worlds = self.model, self.worlds
        if "shapes" not in vars(self) or self.num_envs == 1:
            return
        if self._static is None:
            self._static = torch.tensor(static_bodies(model), dtype=torch.int64, device="cpu").to(self._differ.device)
        found = []
        for name in SHAPE_FIELDS:
            array = getattr(worlds.m, name, None)
            if isinstance(array, wp.array) and array.size and array.shape[0] == self.num_envs and name in self._batched:
                values = compared_part(name, worlds.tensor(name), self._static)
                found.append((values != values[:1]).any())
        if found:
            self._differ.copy_(torch.stack(found).any())
            self._differing.start()
            self._report_shapes()

    def _report_shapes(self) -> None:
        """Raise a ModelError with names if the last check of the shapes' fields has arrived and found a difference."""
        flags = self._differing.take()
        if flags is not None and flags.any():
            self.shape_model()

    def _larger(self, size: str) -> str:
        d = self.worlds.d
        if self._is_owned:  # mujoco_warp sets this size equal to the others
            size = {"nccdmax": "nconmax", "njmax_nnz": "njmax"}.get(size, size)
        now = {"nconmax": int(d.naconmax) // self.num_envs, "njmax": int(d.njmax)}.get(size)
        how = f" (now {now})" if now is not None else ""
        if size == "contact_sensor_maxmatch":
            return f"{size}: <custom><numeric name='contact_sensor_maxmatch' data='...'/></custom> in the model"
        if self._is_owned:
            return f"{size}{how}: MujocoWarpEngine(..., {size}=...)"
        return f"{size}{how} in the call that creates the Data: mujoco_warp.make_data(..., {size}=...)"

    # Mounts and support ----------------------------------------------------------------------------------------------

    def place(self, offsets: LiveOffsets) -> None:
        """Read the poses of mounts on their bodies from the current memory of the fields."""
        self._placed = {name: self.field(name) for name in offsets.fields}
        offsets.bind(self.elements.row, self._placed)

    def follow(self, offsets: LiveOffsets, ids: torch.Tensor | None) -> None:
        """Update the mounts of all envs or some from the Model's poses on their bodies."""
        if any(self.field(name) is not placed for name, placed in self._placed.items()):
            self.place(offsets)
        offsets.follow(ids)

    def fault(self, requirement: Requirement) -> str | None:
        """Return why mujoco_warp does not provide a requirement that MuJoCo provides, or None."""
        model, is_native = self.model, requirement.kind == "NATIVE_SENSOR"
        nv, awake = int(model.nv), int(getattr(self.worlds.d, "nvmax", model.nv))
        if (is_held(requirement) or is_contact(requirement) or is_native) and awake < nv and sleeps(self.options):
            return (
                f"mujoco_warp computes it only for bodies that are awake, and nvmax={awake} is less than all {nv} "
                "degrees of freedom: increase it, mujoco_warp.make_data(..., nvmax=...)."
            )
        if is_native and (i := sensor_id(model, requirement)) >= 0:
            kind = mujoco.mjtSensor(model.sensor_type[i])
            if kind in (mujoco.mjtSensor.mjSENS_PLUGIN, mujoco.mjtSensor.mjSENS_USER):
                return f"mujoco_warp has no sensors of type {kind.name}."
        return None

    def _warn_of_signs(self, reports: Sequence[Requirement]) -> None:
        """Warn once of primaries whose contacts this mujoco_warp reports wrongly."""
        version, issued = mujoco_warp().__version__, self._health.issued
        for report in reports:
            names = [name for name in misread_primaries(report, self.model, version) if name not in issued]
            if names:
                issued.update(names)
                warnings.warn(
                    f"contacts of {listed(names)}: mujoco_warp {version} reports wrong signs of normals and forces "
                    f"where reduce={report.args[3]!r} sorts contacts in which a primary is the first geom and others "
                    "in which it is the second. Use reduce='netforce' or 'none', a secondary that is always on one "
                    "side (such as the ground), or mujoco and mujoco_warp 4.",
                    SensoriumWarning,
                    stacklevel=5,
                )


def misread_primaries(report: Requirement, model: Any, version: str) -> list[str]:
    """Return the primaries of a report whose normals and forces may have the wrong sign, before version 4.

    Its contact sensors sort the matches of a sensor by force or distance, but not the side of the primary. A primary
    that is the first geom of one contact and the second of another then gets normals and forces of the wrong sign.
    MuJoCo puts the geom of the lesser type first and, for equal types, the geom of the lesser id.

    Args:
        report: the CONTACT_REPORT.
        model: the MjModel.
        version: version of mujoco_warp.
    """
    (kind, names), secondary, _, reduce, _ = report.args
    if reduce not in ("mindist", "maxforce") or int(version.split(".")[0]) >= 4:
        return []
    others = touchable(model) if secondary is None else _geoms(model, *secondary)
    found = []
    for name in names:
        own = _geoms(model, kind, name)
        sides = {_order(model, geom) < _order(model, other) for geom in own for other in others - own}
        if len(sides) == 2:
            found.append(name)
    return found


def _geoms(model: Any, kind: str, name: str) -> set[int]:
    obj = mujoco.mjtObj.mjOBJ_GEOM if kind == "geom" else mujoco.mjtObj.mjOBJ_BODY
    geoms, _ = elements(model, kind, int(mujoco.mj_name2id(model, obj, name)))
    return geoms


def _order(model: Any, geom: int) -> tuple[int, int]:
    return int(model.geom_type[geom]), geom
