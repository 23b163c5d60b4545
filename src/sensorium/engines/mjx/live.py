"""The `mjx.Data` of a loop in JAX as an engine: read only, stepped and reset by its owner."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp

from sensorium.compute import Compute, keeps_current
from sensorium.engines.contacts import is_contact
from sensorium.engines.envs import put
from sensorium.engines.mjx.arrays import check_alive, check_concrete, module, to_torch
from sensorium.engines.mjx.contacts import ContactExport
from sensorium.engines.mjx.program import PRIVATE, Plan, program
from sensorium.engines.mujoco.base import model_time_step
from sensorium.engines.mujoco.contacts import contact_reason, contacts
from sensorium.engines.mujoco.derived import Derived
from sensorium.engines.mujoco.native import sensor_id
from sensorium.engines.mujoco.needs import STATE_SOURCES
from sensorium.engines.mujoco.shapes import with_values
from sensorium.engines.mujoco.sleep import sleeps
from sensorium.engines.mujoco.wrapped import WrappedModelEngine
from sensorium.errors import ModelError, ScheduleError, listed, shown
from sensorium.spec import BODY_ACCELERATION, JOINT_TORQUE, JOINT_WRENCH, TENDON_PATHS, Requirement, contact_array

_ACC = int(mujoco.mjtStage.mjSTAGE_ACC)
_SIZES = ("nq", "nv", "nu", "nbody", "ngeom", "nsensordata")


class LiveMjxEngine(WrappedModelEngine):
    """The `mjx.Data` of a loop in JAX, one row for each environment; created by `sensorium.jax.from_mjx`.

    MJX returns new data from each step. The owner of the loop assigns it to `data` and then calls `scene.update()`.
    The required fields are copied once, on the data's device, when sensors first need them after an update. Nothing of
    the owner's is written: with `fresh=True`, MJX's forward computation creates new arrays, up to the required stage.

    The arrays are those of the other MuJoCo engines (see `MujocoModelEngine`). Contact reports are reduced from MJX's
    contacts, without sensors in the model. The state (`qpos`, ...) is a copy: write to your data instead.

    Args:
        model: MjModel that `mx` was created from.
        mx: an `mjx.Model`; fields of a domain randomisation may have a leading env axis.
        data: `mjx.Data` with a leading env axis in all arrays.
        fresh: whether to compute derived state for the current state; False reads the state that the step left
            (`lag` 1).

    Raises:
        ModelError: an argument has a wrong type, sizes do not match, time steps differ between environments, the
            implementation is not JAX, bodies may sleep, or `fresh=False` with the RK4 integrator.
        ScheduleError: an argument is a tracer.
        MissingDependencyError: jax or mujoco-mjx is not installed.
    """

    name = "mjx"
    _holds_asleep = False
    _data, _step_call = "mjx.Data", "mjx.step(mjx_model, data), assign the result to engine.data"
    _reset_fix = "assign data with the new {} to engine.data"

    @keeps_current
    def __init__(self, model: Any, mx: Any, data: Any, *, fresh: bool = True) -> None:
        package = module("mujoco.mjx")
        for what, value, kind in (("model", model, mujoco.MjModel), ("mx", mx, package.Model)):
            if not isinstance(value, kind):
                raise ModelError(f"from_mjx: got {shown(value)} as {what}, expected {kind.__name__}.")
        check_concrete(mx, "mx")
        self._package, self._model, self._mx = package, model, mx
        _check_model(model, mx)
        self._now = self._next = data
        self._has_next = False
        self._check_data(data, None)
        qpos = to_torch(data.qpos, "data.qpos")
        self._dtype = qpos.dtype
        super().__init__(len(qpos), str(qpos.device), fresh, None)
        self._check_unfresh(model.opt)
        self.dt = model_time_step(model.opt.timestep, "from_mjx")
        steps = np.unique(np.asarray(mx.opt.timestep, dtype=np.float32))
        if (steps != np.float32(self.dt)).any():
            raise ModelError(
                f"from_mjx: mx has time steps ({listed(map(str, steps), 4)} s), model has {self.dt:g} s: make them "
                "equal in every environment."
            )
        self._staged: dict[str, torch.Tensor] = {}
        self._export: ContactExport | None = None
        self._axes = self._model_axes()
        self._derive(frozenset())
        self.capture(True)

    def _new_derived(self, threads: int | None) -> Derived:
        compute = Compute(self.device, self.num_envs, threads)
        return Derived(self.num_envs, self.device, compute, self._dtype, shows=self._dtype == torch.float32)

    # Data -------------------------------------------------------------------------------------------------------------

    @property
    def data(self) -> Any:
        """The newest `mjx.Data`; assign the result of each step, or of a reset, before you update the scene.

        Raises:
            ModelError: on assignment, if the data has other sizes or another number of environments.
            ScheduleError: on assignment, if the data is a tracer.
        """
        return self._next

    @data.setter
    def data(self, data: Any) -> None:
        self._check_data(data, self.num_envs)
        self._next, self._has_next = data, True

    def _check_data(self, data: Any, num_envs: int | None) -> None:
        """Raise unless `mjx.Data` has rows for a number of environments, None for any."""
        kind, model = self._package.Data, self._model
        if not isinstance(data, kind):
            raise ModelError(f"data: got {shown(data)}, expected mjx.Data.")
        check_concrete(data, "mjx.Data")
        if data.impl != self._mx.impl:
            raise ModelError(f"data: got data of the implementation {data.impl.value!r}, expected that of the model.")
        sizes = {"qpos": (model.nq,), "qvel": (model.nv,), "xpos": (model.nbody, 3), "sensordata": (model.nsensordata,)}
        for name, size in sizes.items():
            shape = tuple(getattr(data, name).shape)
            if len(shape) < 1 or shape[1:] != size or shape[0] != (num_envs or shape[0]) or shape[0] == 0:
                env = "env" if num_envs is None else num_envs
                raise ModelError(
                    f"data: {name} has shape {shape}, expected ({env}, {', '.join(map(str, size))}): data has a "
                    "leading env axis, as from jax.vmap, and belongs to the model."
                )

    def _adopt(self) -> None:
        """Read from the newest data from now on."""
        self._now, self._has_next = self._next, False

    def count_ticks(self, ticks: int) -> None:
        """Register `ticks` steps of the owner; derived state is read again at the next `refresh`.

        Raises:
            ScheduleError: no new data was assigned, or as `WrappedModelEngine.count_ticks`.
        """
        if ticks and not self._has_next:
            raise ScheduleError(
                "the scene was updated without new data: each step of MJX returns new data, so assign it, "
                "engine.data = data, before scene.update()."
            )
        before = self._now
        self._adopt()
        try:
            super().count_ticks(ticks)
        except ScheduleError:
            self._now, self._has_next = before, True
            raise

    def forward(self) -> None:
        """Recompute derived state from the newest data without advancing time; it is then current (`lag` 0)."""
        self._adopt()
        super().forward()

    def _refresh_reset(self, ids: torch.Tensor | None) -> None:
        if ids is not None and not self.fresh:
            self.refresh()  # the last tick of the other envs, before newer data replaces it
        self._adopt()
        super()._refresh_reset(None if self.fresh else ids)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`, after the owner restored the physics and assigned `data`."""
        self._adopt()
        super().load_state(state)

    # Derived state ----------------------------------------------------------------------------------------------------

    def _derive(self, prepared: frozenset[Requirement]) -> None:
        reports = contacts(prepared)
        super()._derive(prepared - frozenset(reports))
        if reports and self._export is None:
            places, compute = int(self._now._impl.ncon), self._derived.compute
            self._export = ContactExport(self, self._elements, places, compute)
        for report in reports:
            assert self._export is not None
            self.stage = _ACC
            self._derived.arrays[contact_array(report)] = self._export.add(report)

    def _model_field(self, name: str) -> torch.Tensor:
        """Return a field of the model, or of its options (`"opt.gravity"`), `[1 or env, ...]`."""
        path = name.split(".")
        values = to_torch(functools.reduce(getattr, path, self._mx), name)
        return values if values.dim() > np.ndim(functools.reduce(getattr, path, self._model)) else values[None]

    def _field(self, name: str) -> torch.Tensor:
        """Return a field of the data `[env, ...]`, as the step left it."""
        owner = self._now._impl if name in PRIVATE else self._now
        return to_torch(getattr(owner, name), f"data.{name}")

    def _source(self, name: str) -> torch.Tensor:
        if name not in self._staged:
            values = self._model_field(name) if name in self._model_fields else self._field(name)
            self._staged[name] = values.to(self._dtype, copy=True).contiguous()
        return self._staged[name]

    def _compute(self, current: bool, ids: torch.Tensor | None = None) -> None:
        """Copy the required fields from the data, or from new arrays of MJX's forward computation."""
        computed = tuple(name for name in self._fields if name not in STATE_SOURCES) if current else ()
        found: dict[str, Any] = {}
        if computed or self._export is not None:
            plan = Plan(
                fields=computed,
                stage=self.stage if current else 0,
                sensors=self._sensors,
                wrenches=self._wrenches,
                contacts=self._export is not None,
                axes=self._axes,
            )
            check_alive(self._now, "the mjx.Data of the last update")
            found = program(plan)(self._mx, self._now)
        for name in self._fields:
            value = to_torch(found[name], name) if name in found else self._field(name)
            put(self._staged[name], value.to(self._dtype), ids)
        if self._export is not None:
            self._export.run(found, ids)
        if self.device != "cpu":  # JAX reuses memory once its arrays are released, without regard to torch's work
            torch.cuda.current_stream(self.device).synchronize()

    # Model ------------------------------------------------------------------------------------------------------------

    def _model_axes(self) -> tuple[int | None, ...]:
        """Return the env axis of each array of the `mjx.Model`: 0, or None for arrays that environments share."""

        def axis(path: Any, array: Any) -> int | None:
            own: Any = self._model
            for key in path:
                own = getattr(own, getattr(key, "name", ""), None)
            if own is None or np.ndim(array) != np.ndim(own) + 1 or np.shape(array)[1:] != np.shape(own):
                return None
            if len(array) != self.num_envs:
                name = ".".join(key.name for key in path)
                raise ModelError(f"from_mjx: {name} of mx has {len(array)} rows, data has {self.num_envs}.")
            return 0

        leaves, _ = module("jax").tree_util.tree_flatten_with_path(self._mx)
        return tuple(axis(path, array) for path, array in leaves)

    @property
    def _model_options(self) -> Any:
        return self._mx.opt

    def _check_time_steps(self) -> None:
        """Do nothing: an `mjx.Model` cannot be edited."""

    def _model_values(self, field: str) -> np.ndarray:
        values, own = np.asarray(getattr(self._mx, field)), np.asarray(getattr(self._model, field))
        return values if values.ndim > own.ndim else values[None]

    def _bind_offsets(self) -> None:
        self._placed = {
            name: self._model_field(name).to(torch.float32, copy=True).contiguous() for name in self._offsets.fields
        }
        dtypes = {3: wp.vec3, 4: wp.vec4}
        sources = {name: wp.from_torch(each, dtype=dtypes[each.shape[-1]]) for name, each in self._placed.items()}
        self._offsets.bind(self._elements.row, sources)

    def _follow_offsets(self, ids: torch.Tensor | None = None) -> None:
        """Do nothing: an `mjx.Model` cannot be edited."""

    def _shape_model(self) -> Any:
        def given(name: str) -> np.ndarray | None:
            values = getattr(self._mx, name, None)
            return None if values is None or not np.size(values) else np.asarray(values)

        return with_values(self._model, given)

    # Support ----------------------------------------------------------------------------------------------------------

    def supports(self, requirement: Requirement) -> str | None:
        """Return None if the engine supports the requirement, otherwise the reason and the fix."""
        if requirement == JOINT_TORQUE:
            return "MJX does not provide the force of dampers. JOINT_EFFORT, the actuators' force, is available."
        if requirement == TENDON_PATHS:
            return "MJX does not provide the paths of tendons."
        if is_contact(requirement):
            if not self._now._impl.ncon:
                return "MJX checks no pair of geoms of this model for contacts: enable collisions of two of them."
            return contact_reason(self, requirement, self._elements)
        why = None
        if requirement.kind == "NATIVE_SENSOR" and (i := sensor_id(self._model, requirement)) >= 0:
            why = _sensor_fault(self._model, i)
        needs_acc = requirement in (BODY_ACCELERATION, JOINT_WRENCH) or self._is_of_stage_acc(requirement)
        if needs_acc and not self.fresh and not self._now._impl.efc_J.size:
            why = "a step of MJX does not compute it in a model without constraints, such as contacts: use fresh=True."
        return why or super().supports(requirement)

    def _is_of_stage_acc(self, requirement: Requirement) -> bool:
        if requirement.kind != "NATIVE_SENSOR" or (i := sensor_id(self._model, requirement)) < 0:
            return False
        return int(self._model.sensor_needstage[i]) == _ACC

    # State ------------------------------------------------------------------------------------------------------------

    def _state_view(self, name: str) -> torch.Tensor:
        if name.startswith("opt."):
            values = to_torch(getattr(self._mx.opt, name.removeprefix("opt.")), name)
            return values.expand(self.num_envs, 3).clone()
        return to_torch(getattr(self._now, name), f"data.{name}").clone()

    @property
    def diverged(self) -> torch.Tensor:
        """Bool `[env]`: environments whose positions or velocities are currently not finite."""
        return ~(self.qpos.isfinite().all(1) & self.qvel.isfinite().all(1))


def _check_model(model: Any, mx: Any) -> None:
    """Raise ModelError unless an `mjx.Model` was created from the MjModel, for the implementation in JAX."""
    if mx.impl.value != "jax":
        raise ModelError(
            f"from_mjx: mx has the implementation {mx.impl.value!r}, expected 'jax': mjx.put_model(model, impl='jax'). "
            "In MuJoCo Playground: config_overrides={'impl': 'jax'}."
        )
    given, own = ([int(getattr(each, name)) for name in _SIZES] for each in (mx, model))
    if given != own:
        raise ModelError(
            f"from_mjx: mx has ({', '.join(_SIZES)}) = {given}, model has {own}: mx = mjx.put_model(model)."
        )
    if sleeps(model.opt):
        raise ModelError('from_mjx: the model has <flag sleep="enable"/>, which MJX ignores: remove it.')


def _sensor_fault(model: Any, i: int) -> str | None:
    """Return why MJX does not compute a sensor of a model as MuJoCo does, or None."""
    is_rangefinder = int(model.sensor_type[i]) == int(mujoco.mjtSensor.mjSENS_RANGEFINDER)
    if is_rangefinder and int(model.sensor_dim[i]) != 1:
        return "MJX computes only the distance of a rangefinder: omit data."
    if model.sensor_interval[i].any() or model.sensor_delay[i]:
        return "MJX ignores interval and delay of sensors: remove them, and set rate_hz and delay of the config."
    return None
