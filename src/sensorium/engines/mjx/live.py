"""The `mjx.Data` of a loop in JAX as an engine: read only, stepped and reset by its owner.

MJX has one place for each contact that may occur in an environment. A contact exists where the distance is below the
margin. Contacts in the gap zone of a geom, which have no force, do not count.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import mujoco
import numpy as np
import torch

from sensorium.compute import Compute, keeps_current
from sensorium.engines.base import Engine
from sensorium.engines.contacts import ContactList, ContactReducer, is_contact
from sensorium.engines.envs import put
from sensorium.engines.mjx.arrays import check_alive, check_concrete, module, to_torch
from sensorium.engines.mujoco.base import model_time_step
from sensorium.engines.mujoco.contacts import contact_reason, contacts
from sensorium.engines.mujoco.derived import ACC, STATE_SOURCES, Derived
from sensorium.engines.mujoco.elements import Elements
from sensorium.engines.mujoco.live import WrappedModelEngine
from sensorium.engines.mujoco.native import sensor_id
from sensorium.engines.mujoco.sleep import sleeps
from sensorium.engines.mujoco.source import Source
from sensorium.engines.offsets import LiveOffsets
from sensorium.errors import ModelError, ScheduleError, listed, shown
from sensorium.spec import BODY_ACCELERATION, JOINT_TORQUE, JOINT_WRENCH, TENDON_PATHS, Requirement, contact_array

PRIVATE = ("cacc", "cfrc_int")
"""Fields that only the data of MJX's implementation in JAX has."""
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
        self._package, self._mx = package, mx
        _check_model(model, mx)
        self._check_data(data, None, model)
        qpos = to_torch(data.qpos, "data.qpos")
        device, num_envs, dtype = str(qpos.device), len(qpos), qpos.dtype
        compute = Compute(device, num_envs)
        super().__init__(Derived(num_envs, device, compute, dtype, shows=dtype == torch.float32), fresh)
        self._check_unfresh(model.opt)
        self.dt = model_time_step(model.opt.timestep, "from_mjx")
        steps = np.unique(np.asarray(mx.opt.timestep, dtype=np.float32))
        if (steps != np.float32(self.dt)).any():
            raise ModelError(
                f"from_mjx: mx has time steps ({listed(map(str, steps), 4)} s), model has {self.dt:g} s: make them "
                "equal in every environment."
            )
        self._next, self._has_next = data, False
        self._wrap(MjxSource(self, model, mx, data, compute, dtype))
        self.capture(True)

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
        self._check_data(data, self.num_envs, self.model)
        self._next, self._has_next = data, True

    def _check_data(self, data: Any, num_envs: int | None, model: Any) -> None:
        """Raise unless `mjx.Data` has rows for a number of environments, None for any."""
        kind = self._package.Data
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
        self._source.now, self._has_next = self._next, False

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
        before = self._source.now
        self._adopt()
        try:
            super().count_ticks(ticks)
        except ScheduleError:
            self._source.now, self._has_next = before, True
            raise

    def forward(self) -> None:
        """Recompute derived state from the newest data without advancing time; it is then current (`lag` 0)."""
        self._adopt()
        super().forward()

    def _refresh_reset(self, ids: torch.Tensor | None) -> None:
        if ids is not None and not self.fresh:
            self.refresh()  # the last tick of the other envs, before newer data replaces it
        self._adopt()
        super()._refresh_reset(ids)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`, after the owner restored the physics and assigned `data`."""
        self._adopt()
        super().load_state(state)

    def _derive(self, prepared: frozenset[Requirement]) -> None:
        reports = frozenset(contacts(prepared))
        super()._derive(prepared - reports)
        self._derived.arrays |= self._source.reduce(reports)

    # Support ----------------------------------------------------------------------------------------------------------

    def supports(self, requirement: Requirement) -> str | None:
        """Return None if the engine supports the requirement, otherwise the reason and the fix."""
        if requirement == JOINT_TORQUE:
            return "MJX does not provide the force of dampers. JOINT_EFFORT, the actuators' force, is available."
        if requirement == TENDON_PATHS:
            return "MJX does not provide the paths of tendons."
        if is_contact(requirement):
            if not self._source.now._impl.ncon:
                return "MJX checks no pair of geoms of this model for contacts: enable collisions of two of them."
            return contact_reason(self, requirement, self._elements)
        i = sensor_id(self._model, requirement) if requirement.kind == "NATIVE_SENSOR" else -1
        why = _sensor_fault(self._model, i) if i >= 0 else None
        needs_acc = requirement in (BODY_ACCELERATION, JOINT_WRENCH)
        needs_acc = needs_acc or (i >= 0 and int(self._model.sensor_needstage[i]) == ACC)
        if needs_acc and not self.fresh and not self._source.now._impl.efc_J.size:
            why = "a step of MJX does not compute it in a model without constraints, such as contacts: use fresh=True."
        return why or super().supports(requirement)


class MjxSource(Source):
    """The `mjx.Data` of a loop in JAX, whose fields are copied.

    Args:
        engine: engine of contact reports.
        model: the MjModel.
        mx: the `mjx.Model`.
        data: `mjx.Data` with a leading env axis.
        compute: device of the copies.
        dtype: type of the copies.

    Attributes:
        mx: see above.
        now: the data to read.
    """

    updates_all = True

    def __init__(self, engine: Engine, model: Any, mx: Any, data: Any, compute: Compute, dtype: torch.dtype) -> None:
        super().__init__(model, compute.num_envs)
        self._engine, self.mx, self.now, self._compute, self._dtype = engine, mx, data, compute, dtype
        self._copies: dict[str, torch.Tensor] = {}
        self._export: ContactExport | None = None
        self._axes = self._model_axes()

    @property
    def options(self) -> Any:
        """Options of the `mjx.Model`."""
        return self.mx.opt

    def reduce(self, reports: frozenset[Requirement]) -> dict[str, torch.Tensor]:
        """Return the arrays of contact reports by name, which `compute` fills."""
        if reports and self._export is None:
            self._export = ContactExport(self._engine, self.elements, int(self.now._impl.ncon), self._compute)
        return {} if self._export is None else {contact_array(each): self._export.add(each) for each in reports}

    def _model_field(self, name: str) -> torch.Tensor:
        """Return a field of the model, or of its options (`"opt.gravity"`), `[1 or env, ...]`."""
        path = name.split(".")
        values = to_torch(functools.reduce(getattr, path, self.mx), name)
        return values if values.dim() > np.ndim(functools.reduce(getattr, path, self.model)) else values[None]

    def _data_field(self, name: str) -> torch.Tensor:
        """Return a field of the data `[env, ...]`, as the step left it."""
        owner = self.now._impl if name in PRIVATE else self.now
        return to_torch(getattr(owner, name), f"data.{name}")

    def field(self, name: str) -> torch.Tensor:
        """Return the copy of a field."""
        if name not in self._copies:
            values = self._model_field(name) if name in self.plan.model_fields else self._data_field(name)
            self._copies[name] = values.to(self._dtype, copy=True).contiguous()
        return self._copies[name]

    def state(self, name: str) -> torch.Tensor:
        """Return a copy of a field of the state, or of the options."""
        if name.startswith("opt."):
            values = to_torch(getattr(self.options, name.removeprefix("opt.")), name)
            return values.expand(self.num_envs, 3).clone()
        return self._data_field(name).clone()

    def given(self, field: str) -> np.ndarray | None:
        """Return current values of a field of the `mjx.Model`."""
        values = getattr(self.mx, field, None)
        return None if values is None or not np.size(values) else np.asarray(values)

    def compute(self, ids: torch.Tensor | None, *, is_current: bool, is_edited: bool) -> None:
        """Copy the fields of the plan from the data, or from new arrays of MJX's forward computation."""
        plan, found = self.plan, dict[str, Any]()
        computed = tuple(name for name in plan.fields if name not in STATE_SOURCES) if is_current else ()
        if computed or self._export is not None:
            stage = plan.stage if self._export is None else ACC
            functions = dataclasses.replace(plan, stage=stage).functions if is_current and stage else ()
            check_alive(self.now, "the mjx.Data of the last update")
            found = program(computed, functions, self._export is not None, self._axes)(self.mx, self.now)
        for name in plan.fields:
            value = to_torch(found[name], name) if name in found else self._data_field(name)
            put(self._copies[name], value.to(self._dtype), ids)
        if self._export is not None:
            self._export.run(found, ids)
        if not self._compute.is_cpu:  # JAX reuses memory once its arrays are released, without regard to torch's work
            torch.cuda.current_stream(self._compute.device).synchronize()

    def _model_axes(self) -> tuple[int | None, ...]:
        """Return the env axis of each array of the `mjx.Model`: 0, or None for arrays that environments share."""

        def axis(path: Any, array: Any) -> int | None:
            own: Any = self.model
            for key in path:
                own = getattr(own, getattr(key, "name", ""), None)
            if own is None or np.ndim(array) != np.ndim(own) + 1 or np.shape(array)[1:] != np.shape(own):
                return None
            if len(array) != self.num_envs:
                name = ".".join(key.name for key in path)
                raise ModelError(f"from_mjx: {name} of mx has {len(array)} rows, data has {self.num_envs}.")
            return 0

        leaves, _ = module("jax").tree_util.tree_flatten_with_path(self.mx)
        return tuple(axis(path, array) for path, array in leaves)

    def place(self, offsets: LiveOffsets) -> None:
        """Register copies of the fields with the poses of mounts on their bodies; an `mjx.Model` cannot be edited."""
        fields = {name: self._model_field(name) for name in offsets.fields}
        placed = {name: each.to(torch.float32, copy=True).contiguous() for name, each in fields.items()}
        offsets.bind(self.elements.row, placed)


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


@functools.lru_cache(maxsize=32)
def program(
    fields: tuple[str, ...], functions: tuple[str, ...], contacts: bool, axes: tuple[int | None, ...]
) -> Callable[[Any, Any], dict[str, Any]]:
    """Return the compiled function of an `mjx.Model` and `mjx.Data` `[env, ...]` that returns arrays `[env, ...]`.

    Args:
        fields: fields of the data that are returned.
        functions: functions of MJX that compute them, see `Plan.functions`; empty for those of the data.
        contacts: whether contacts are returned, by the names of `contacts_of`.
        axes: env axis of each array of the model: 0, or None for arrays that environments share.
    """
    jax, mjx = module("jax"), module("mujoco.mjx")

    def of_one(m: Any, d: Any) -> dict[str, Any]:
        for name in functions:
            d = getattr(mjx, name)(m, d)
            if name == "forward" and not d._impl.efc_J.size:
                d = mjx.sensor_acc(m, d)  # which MJX omits in a model without constraints
        found = {name: getattr(d._impl if name in PRIVATE else d, name) for name in fields}
        return found | (contacts_of(m, d) if contacts else {})

    def of_all(m: Any, d: Any) -> dict[str, Any]:
        tree = jax.tree_util.tree_structure(m).unflatten(axes)
        found: dict[str, Any] = jax.vmap(of_one, in_axes=(tree, 0))(m, d)
        return found

    compiled: Callable[[Any, Any], dict[str, Any]] = jax.jit(of_all)
    return compiled


_WIDTHS = {"sides": (2,), "point": (3,), "normal": (3,), "tangent": (3,), "force": (3,), "torque": (3,), "dist": ()}


def contacts_of(m: Any, d: Any) -> dict[str, Any]:
    """Return the contacts of one environment `[contact, ...]` by the names of `ContactList`, within JAX.

    Args:
        m: an `mjx.Model`.
        d: `mjx.Data` after a forward computation.
    """
    jnp, support = module("jax.numpy"), module("mujoco.mjx._src.support")
    contact = d._impl.contact
    wrench = jnp.zeros((len(contact.dim), 6))
    for size in sorted({int(size) for size in contact.dim}):
        values, rows = support.contact_force_dim(m, d, size)
        wrench = wrench.at[rows].set(values)
    world = jnp.einsum("nki,nij->nkj", wrench.reshape(-1, 2, 3), contact.frame)
    return {
        "exists": contact.dist < contact.includemargin,
        "sides": contact.geom,
        "point": contact.pos,
        "normal": contact.frame[:, 0],
        "tangent": contact.frame[:, 1],
        "force": world[:, 0],
        "torque": world[:, 1],
        "dist": contact.dist,
    }


class ContactExport:
    """The contacts of all environments at fixed addresses, and their reports.

    Args:
        engine: engine of the reports.
        elements: elements of its MjModel.
        places: number of places for contacts in one environment.
        compute: device of the launches.
    """

    def __init__(self, engine: Engine, elements: Elements, places: int, compute: Compute) -> None:
        envs, device = compute.num_envs, compute.device
        self._arrays = {
            name: torch.zeros(
                (envs, places, *width), dtype=torch.int32 if name == "sides" else torch.float32, device=device
            )
            for name, width in _WIDTHS.items()
        }
        self._env = torch.full((envs, places), -1, dtype=torch.int32, device=device)
        self._envs = torch.arange(envs, dtype=torch.int32, device=device)[:, None]
        flat: dict[str, Any] = {name: array.flatten(0, 1) for name, array in self._arrays.items()}
        count = torch.full((1,), envs * places, dtype=torch.int32, device=device)
        contacts = ContactList(count=count, env=self._env.flatten(), **flat)
        geoms = zip(elements.ids["geom"], elements.model.geom_bodyid.tolist(), strict=True)  # also hidden ones
        self._reducer = ContactReducer(engine, contacts, compute, {name: elements.body_row[i] for name, i in geoms})

    def add(self, report: Requirement) -> torch.Tensor:
        """Return the array of a report, zero until the next `run`."""
        return self._reducer.add(report)

    def run(self, contacts: dict[str, Any], env_ids: torch.Tensor | None) -> None:
        """Copy contacts `[env, contact, ...]` of all environments, or of some, and fill their reports."""
        for name, array in self._arrays.items():
            put(array, to_torch(contacts[name], f"contact.{name}"), env_ids)
        exists = to_torch(contacts["exists"], "contact.dist")
        put(self._env, torch.where(exists, self._envs, -1), env_ids)
        self._reducer.run(env_ids)
