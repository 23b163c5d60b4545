"""Common base of the mujoco_warp engines: derived state from worlds on one device, current or one tick old."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp

from sensorium.compute import Compute
from sensorium.compute.copies import AsyncCopy
from sensorium.engines.envs import env_selection, put
from sensorium.engines.mujoco.base import MujocoModelEngine
from sensorium.engines.mujoco.contacts import contacts
from sensorium.engines.mujoco.derived import Derived
from sensorium.engines.mujoco.native import sensor_id
from sensorium.engines.mujoco.needs import STATE_SOURCES
from sensorium.engines.mujoco.shapes import SHAPE_FIELDS, compared_part, static_bodies, with_values
from sensorium.engines.mujoco.sleep import sleeps
from sensorium.engines.mujoco_warp.contacts import misread_primaries
from sensorium.engines.mujoco_warp.worlds import Worlds, batched, mujoco_warp
from sensorium.errors import ModelError, SensoriumWarning, listed
from sensorium.spec import Requirement

_VEL, _ACC = (int(getattr(mujoco.mjtStage, f"mjSTAGE_{stage}")) for stage in ("VEL", "ACC"))


class WarpModelEngine(MujocoModelEngine):
    """Derived state of mujoco_warp's worlds; the base of `MujocoWarpEngine` and `LiveMujocoWarpEngine`.

    The arrays are those of the other MuJoCo engines (see `MujocoModelEngine`), on the worlds' device. Native sensors,
    and poses of bodies, joint positions, velocities and efforts whose rows are adjacent there, are views of
    mujoco_warp's own memory; joint positions and velocities only with `fresh=True`.
    """

    name = "mujoco_warp"
    _holds_asleep = False
    _worlds: Worlds

    def _new_derived(self, threads: int | None) -> Derived:
        shows = (
            self.owns_time or self.fresh
        )  # otherwise the owner's forward() between two updates would mix two instants
        return Derived(self.num_envs, self.device, Compute(self.device, self.num_envs, threads), torch.float32, shows)

    def _attach(self, worlds: Worlds) -> None:
        """Use these worlds from now on."""
        self._worlds = worlds
        self._overflow = AsyncCopy(self._derived.compute, worlds.tensor("overflow"))
        self._differ = torch.zeros(1, dtype=torch.bool, device=self.device)
        self._differing = AsyncCopy(self._derived.compute, self._differ)
        self._static: torch.Tensor | None = None
        self._batched = frozenset(batched(worlds.m))
        self._time_steps_of: Any = None
        self._read_from: list[Any] = []
        self._previous = {}
        self._offset_fields: list[Any] = []

    @property
    def m(self) -> Any:
        """mujoco_warp's Model; writes to it, and replacements of its arrays, take effect."""
        return self._worlds.m

    @property
    def d(self) -> Any:
        """mujoco_warp's Data, `nworld` environments."""
        return self._worlds.d

    def _check_unfresh(self, options: Any) -> None:
        super()._check_unfresh(options)
        if not self.fresh and sleeps(options):
            raise ModelError(
                'fresh=False with <flag sleep="enable"/>: a step of mujoco_warp then leaves velocities that are newer '
                "than the positions. Use fresh=True or remove the flag."
            )

    # Derived state ----------------------------------------------------------------------------------------------------

    def _derive(self, prepared: frozenset[Requirement]) -> None:
        """Create the derived arrays; warn once of primaries whose contacts this mujoco_warp reports wrongly."""
        super()._derive(prepared)
        version = mujoco_warp().__version__
        for report in contacts(prepared):
            names = [name for name in misread_primaries(report, self._worlds.mjm, version) if name not in self._issued]
            if names:
                self._issued.update(names)
                warnings.warn(
                    f"contacts of {listed(names)}: mujoco_warp {version} reports wrong signs of normals and forces "
                    f"where reduce={report.args[3]!r} sorts contacts in which a primary is the first geom and others "
                    "in which it is the second. Use reduce='netforce' or 'none', a secondary that is always on one "
                    "side (such as the ground), or mujoco and mujoco_warp 4.",
                    SensoriumWarning,
                    stacklevel=4,
                )

    def _bind(self, prepared: frozenset[Requirement]) -> None:
        self._read_from = [self._worlds.field(name) for name in (*self._fields, *self._model_fields)]
        self._was_weightless = self._is_weightless
        super()._bind(prepared)

    def _source(self, name: str) -> torch.Tensor:
        return self._worlds.tensor(name)

    @property
    def _model_options(self) -> Any:
        return self._worlds.m.opt

    def _follow(self) -> None:
        """Read from arrays that replaced others since the last call."""
        names = (*self._fields, *self._model_fields)
        moved = [
            name for name, array in zip(names, self._read_from, strict=True) if self._worlds.field(name) is not array
        ]
        if not moved and self._was_weightless == self._is_weightless:
            return
        for name in moved:
            if name in self._fields:
                raise ModelError(
                    f"{name} of the mujoco_warp Data was replaced by another array: arrays of the Data must stay in "
                    "place. Write into it (wp.copy, assign), or create a new engine."
                )
        self._bind(self.prepared)

    def _model_values(self, field: str) -> np.ndarray:
        self._ensure()
        values: np.ndarray = getattr(self._worlds.m, field).numpy()
        return values if values.ndim > getattr(self.model, field).ndim else values[None]

    def _bind_offsets(self) -> None:
        self._offset_fields = [getattr(self._worlds.m, name) for name in self._offsets.fields]
        self._offsets.bind(self._elements.row, dict(zip(self._offsets.fields, self._offset_fields, strict=True)))

    def _follow_offsets(self, ids: torch.Tensor | None = None) -> None:
        """Update the mounts of all envs or some from the model's poses on their bodies."""
        if not self._offsets:
            return
        now = (getattr(self._worlds.m, name) for name in self._offsets.fields)
        if any(array is not bound for array, bound in zip(now, self._offset_fields, strict=True)):
            self._bind_offsets()
        self._offsets.follow(ids)

    def _selected(self, env_ids: Any) -> torch.Tensor | None:
        return env_selection(env_ids, self.num_envs, self.device)

    def _compute(self, current: bool, ids: torch.Tensor | None = None) -> None:
        self._follow()
        if not current:
            return
        kept = {} if ids is None else {name: self._worlds.tensor(name) for name in self._fields}
        before = {name: values.clone() for name, values in kept.items() if name not in STATE_SOURCES}
        self._forward_to_stage()
        for name, old in before.items():
            put(old, kept[name], ids)
            kept[name].copy_(old)

    def _forward_to_stage(self) -> None:
        """Run the forward computation up to the stage that requirements need."""
        if self._fields and set(self._fields) - set(STATE_SOURCES):
            full = self.stage >= _ACC or (self._sensors and (not self.owns_time or sleeps(self._worlds.m.opt)))
            early = "vel" if self.stage >= _VEL or self._sensors else "pos"
            self._worlds.forward(
                "acc" if full else early, sensors=self._sensors, wrenches=self._wrenches, tendons=self._tendons
            )

    def _refresh_reset(self, ids: torch.Tensor | None) -> None:
        super()._refresh_reset(None if self.fresh else ids)  # with `fresh` all envs must be at the current tick

    # Limits -----------------------------------------------------------------------------------------------------------

    def _check_state(self) -> None:
        """Warn if memory was too small, once for each kind.

        On CUDA the flags are copied asynchronously and checked in a later step.
        """
        self._report_shapes()
        flags = self._overflow.take()
        self._overflow.start()
        if flags is None or not flags.any():
            return
        for flag, size, what in self._worlds.losses():
            self._warn_too_small(np.flatnonzero(flags & flag), "by", what, self._larger(size))

    def _check_time_steps(self) -> None:
        """Raise ScheduleError if the time step of mujoco_warp's Model was edited.

        On CUDA the values are copied asynchronously and checked in a later step.
        """
        array = self._worlds.m.opt.timestep
        if array is not self._time_steps_of:
            self._time_steps_of = array
            self._time_steps = AsyncCopy(self._derived.compute, self._worlds.tensor("opt.timestep"))
        steps = self._time_steps.take()
        self._time_steps.start()
        if steps is not None:
            for step in steps[steps != np.float32(self.dt)][:1].tolist():
                self._check_time_step(step, "opt.timestep of mujoco_warp's Model")

    def _check_shapes(self) -> None:
        """Raise an error if shapes described as common to all environments no longer are.

        On CUDA the result is copied asynchronously and checked in a later step or reset.
        """
        model, worlds = self.model, self._worlds
        if self._shapes is None or self.num_envs == 1:
            return
        if self._static is None:
            self._static = torch.tensor(static_bodies(model), dtype=torch.int64, device="cpu").to(self.device)
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
            self._shape_model()

    def _larger(self, size: str) -> str:
        d = self._worlds.d
        if self.owns_time:  # mujoco_warp sets this size equal to the others
            size = {"nccdmax": "nconmax", "njmax_nnz": "njmax"}.get(size, size)
        now = {"nconmax": int(d.naconmax) // self.num_envs, "njmax": int(d.njmax)}.get(size)
        how = f" (now {now})" if now is not None else ""
        if size == "contact_sensor_maxmatch":
            return f"{size}: <custom><numeric name='contact_sensor_maxmatch' data='...'/></custom> in the model"
        if self.owns_time:
            return f"{size}{how}: {type(self).__name__}(..., {size}=...)"
        return f"{size}{how} in the call that creates the Data: mujoco_warp.make_data(..., {size}=...)"

    # Support ----------------------------------------------------------------------------------------------------------

    def supports(self, requirement: Requirement) -> str | None:
        """Return None if the engine supports the requirement, otherwise the reason and the fix."""
        model = self._model
        if requirement.kind == "NATIVE_SENSOR" and model is not None and (i := sensor_id(model, requirement)) >= 0:
            kind = mujoco.mjtSensor(model.sensor_type[i])
            if kind in (mujoco.mjtSensor.mjSENS_PLUGIN, mujoco.mjtSensor.mjSENS_USER):
                return f"mujoco_warp has no sensors of type {kind.name}."
        return super().supports(requirement)

    def _shape_model(self) -> Any:
        self._ensure()
        worlds = self._worlds

        def given(name: str) -> Any:
            array = getattr(worlds.m, name, None)
            return array.numpy() if isinstance(array, wp.array) and array.size else None

        return with_values(worlds.mjm, given)

    # State ------------------------------------------------------------------------------------------------------------

    def _state_view(self, name: str) -> torch.Tensor:
        self._ensure()
        return self._worlds.tensor(name)

    @property
    def diverged(self) -> torch.Tensor:
        """Bool `[env]`: environments whose positions or velocities are currently not finite."""
        return ~(self.qpos.isfinite().all(1) & self.qvel.isfinite().all(1))

    def _own_arrays(self) -> Mapping[str, torch.Tensor]:
        live = {self._worlds.tensor(name).untyped_storage().data_ptr() for name in STATE_SOURCES}
        arrays = self._derived.arrays.items()
        return {name: values for name, values in arrays if values.untyped_storage().data_ptr() not in live}
