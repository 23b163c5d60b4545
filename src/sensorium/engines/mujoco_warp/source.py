"""Worlds of mujoco_warp on one device as a source: current derived state, or that of one tick ago.

A function of mujoco_warp consists of about a hundred small launches, and is replayed as a graph, see `WorkGraphs`.
"""

from __future__ import annotations

import dataclasses
import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp

from sensorium.compute import AsyncCopy, Compute
from sensorium.engines.contacts import is_contact
from sensorium.engines.envs import mark, put
from sensorium.engines.graphs import WorkGraphs
from sensorium.engines.mujoco.base import STATE_FIELDS
from sensorium.engines.mujoco.contacts import elements, touchable
from sensorium.engines.mujoco.derived import ACC, STATE_SOURCES, Plan
from sensorium.engines.mujoco.native import sensor_id
from sensorium.engines.mujoco.shapes import SHAPE_FIELDS, compared_part, static_bodies
from sensorium.engines.mujoco.sleep import AWAKE, disabled, is_held, sleeps
from sensorium.engines.mujoco.source import OPTIONS, Health, OwnedSource
from sensorium.engines.mujoco_warp.worlds import mujoco_warp
from sensorium.engines.offsets import LiveOffsets
from sensorium.errors import ArgumentError, ModelError, SensoriumWarning, UnknownNameError, listed
from sensorium.spec import Requirement

STATE = (
    "time", "qpos", "qvel", "act", "history", "plastic", "qacc_warmstart", "ctrl", "qfrc_applied", "xfrc_applied",
    "eq_active", "mocap_pos", "mocap_quat", "userdata", "tree_asleep",
)  # fmt: skip
"""Fields of the Data that a step starts from, if this version has them."""
SHOWN = ("xpos", "xquat", "qfrc_actuator")
"""Other fields of the Data that derived arrays are views of; their memory must outlive the Data."""
ASLEEP = (
    "tree_asleep", "tree_awake", "body_awake", "body_awake_ind", "dof_awake_ind", "ntree_awake", "nbody_awake",
    "nv_awake",
)  # fmt: skip
"""Fields with the sleep state of bodies; the forward computation wakes some of them."""
LOST = {
    "NEFC": ("njmax", "constraints: some were dropped, so contacts lack forces"),
    "NJMAX_NNZ": ("njmax_nnz", "the constraint Jacobian: constraints were dropped"),
    "BROADPHASE": ("nconmax", "pairs that may touch: contacts were dropped, no report has them"),
    "NARROWPHASE": ("nconmax", "contacts: those beyond it were dropped, no report has them"),
    "CCD": ("nccdmax", "contacts of convex shapes: those beyond it were dropped"),
    "HFIELD": ("nconmax", "contacts with a height field: those beyond it were dropped"),
    "CONTACT_MATCH": ("contact_sensor_maxmatch", "matches of one contact sensor: those beyond it were dropped"),
    "NVMAX": ("nvmax", "degrees of freedom that are awake"),
    "TACTILE": ("nconmax", "contacts of a tactile sensor"),
}
"""mujoco_warp's overflow flags with a loss of data: the size to increase, and the lost data."""


class WarpSource(OwnedSource):
    """Worlds of mujoco_warp, whose memory is float32.

    Args:
        mjm: the MjModel.
        m: mujoco_warp's Model.
        d: mujoco_warp's Data.
        compute: their device, streams, and whether to replay graphs.
        health: problems that were reported.
        put: returns a new Model on the device, with the engine's options, of an MjModel; None if a live loop of the
            user steps and resets the worlds.
        key: index of the keyframe with the initial state, -1 for the model's default state.

    Attributes:
        m: see above.
        d: see above.
    """

    updates_all = takes_masks = True

    def __init__(
        self, mjm: Any, m: Any, d: Any, compute: Compute, health: Health, put: Callable[[Any], Any] | None = None,
        key: int = -1,
    ) -> None:  # fmt: skip
        super().__init__(mjm, compute.num_envs)
        self.m, self.d, self._put, self._key, self._is_owned = m, d, put, key, put is not None
        self._compute_on, self._health = compute, health
        self._module = mujoco_warp()
        self._graphs = WorkGraphs(compute, self._parts)
        self._tensors: dict[str, tuple[Any, torch.Tensor]] = {}
        self._kept: dict[str, Any] = {}
        self._overflow = AsyncCopy(self.field("overflow"))
        self._differ = torch.zeros(1, dtype=torch.bool, device=compute.device)
        self._differing = AsyncCopy(self._differ)
        self._static: torch.Tensor | None = None
        self._batched = frozenset(batched(m))
        self._time_steps_of: Any = None
        self._read_from: dict[str, Any] = {}
        self._was_weightless = False
        self._placed: dict[str, torch.Tensor] = {}
        self._reset_mask = torch.ones(self.num_envs, dtype=torch.bool, device=compute.device)
        start = {} if key < 0 else _default_state(self.model, key)
        self._start = {name: torch.from_numpy(values).to(compute.device) for name, values in start.items()}
        if self._is_owned:
            self._write_start()
            for option in OPTIONS:
                self.expand(option)

    def take_over(self, old: WarpSource) -> None:
        """Replace other worlds, of the same model before sensors added to it, and keep the values written there."""
        assert self._put is not None
        start = _default_state(old.model, self._key)
        fix = "and a sensor then changed its size: write it after Scene(...)."
        for name in (*STATE, *SHOWN):
            mine, previous = getattr(self.d, name, None), getattr(old.d, name, None)
            if mine is None or previous is None:
                continue
            if mine.shape == previous.shape:
                if name in SHOWN:
                    wp.copy(previous, mine)
                setattr(self.d, name, previous)
            elif name in start and not np.array_equal(
                old.field(name).cpu(), np.broadcast_to(start[name], tuple(old.field(name).shape))
            ):
                raise ModelError(f"{name} was written before the scene was created, {fix}")
        for field, value in old._edited(self._put(old.model)).items():
            owner, name = _owner(self.m, field)
            if isinstance(value, wp.array):
                shared = 1 if name in batched(owner) else 0
                if getattr(owner, name).shape[shared:] != value.shape[shared:]:
                    raise ModelError(f"{field} of mujoco_warp's Model was written before the scene was created, {fix}")
            setattr(owner, name, value)
        for name, (_, tensor) in old._tensors.items():
            tensor.set_(self.field(name))  # type: ignore[call-overload]
            self._tensors[name] = self.array(name), tensor

    def _edited(self, pristine: Any) -> dict[str, Any]:
        """Return the fields of the model that its owner wrote or replaced: Warp arrays, options and callbacks.

        Args:
            pristine: the same model as it was put on the device.
        """
        found: dict[str, Any] = {"callback": self.m.callback}
        first = parts_of(pristine)
        for prefix, mine in parts_of(self.m).items():
            for name, value in vars(mine).items():
                other = getattr(first[prefix], name, None)
                if isinstance(value, wp.array) and isinstance(other, wp.array):
                    same = value.shape == other.shape and (
                        not value.size or np.array_equal(value.numpy(), other.numpy(), equal_nan=True)
                    )
                else:
                    same = (
                        not prefix or value == other
                    )  # values of the options; the model's other numbers are its sizes
                if not same:
                    found[prefix + name] = value
        return found

    # Memory ----------------------------------------------------------------------------------------------------------

    @property
    def options(self) -> Any:
        """Options of mujoco_warp's Model."""
        return self.m.opt

    def array(self, name: str) -> Any:
        """Return the Warp array of a field: of the options (`"opt.gravity"`), of the data, or of the model."""
        if "." not in name and hasattr(self.d, name):
            return getattr(self.d, name)
        owner, name = _owner(self.m, name)
        return getattr(owner, name)

    def field(self, name: str) -> torch.Tensor:
        """Return a field of the Data `[env, ...]`, or of the Model `[1 or env, ...]`, as a tensor without a copy.

        Vectors, quaternions and matrices become further axes.
        """
        array = self.array(name)
        bound, tensor = self._tensors.get(name, (None, None))
        if tensor is None or bound is not array:
            with torch.inference_mode(False):  # tensors created in that mode cannot be written outside it
                if 0 in array.shape:
                    width = tuple(getattr(array.dtype, "_shape_", ()))
                    device = wp.device_to_torch(array.device)
                    tensor = torch.zeros((*array.shape, *width), dtype=torch.float32, device=device)
                else:
                    tensor = wp.to_torch(array)
            self._tensors[name] = array, tensor
        return tensor

    state = field

    def bind(self, plan: Plan) -> None:
        """Use a plan; its fields are read from their current memory. Warn once of contacts with wrong signs."""
        super().bind(plan)
        self._warn_of_signs(plan.reports)
        self._read_from = {name: self.array(name) for name in (*plan.fields, *plan.model_fields)}
        self._was_weightless = self.is_weightless

    def was_moved(self) -> bool:
        """Whether arrays replaced others since `bind`.

        Raises:
            ModelError: an array of the Data was replaced.
        """
        moved = [name for name, array in self._read_from.items() if self.array(name) is not array]
        for name in moved:
            if name in self.plan.fields:
                raise ModelError(
                    f"{name} of the mujoco_warp Data was replaced by another array: arrays of the Data must stay in "
                    "place. Write into it (wp.copy, assign), or create a new engine."
                )
        return bool(moved) or self._was_weightless != self.is_weightless

    def given(self, field: str) -> np.ndarray | None:
        """Return current values of a field of the Model."""
        array = getattr(self.m, field, None)
        return array.numpy() if isinstance(array, wp.array) and array.size else None

    def rows(self) -> dict[str, torch.Tensor]:
        """Return the fields that a step starts from, as tensors without a copy; empty ones are omitted."""
        fields = {name: getattr(self.d, name, None) for name in STATE}
        return {name: wp.to_torch(array) for name, array in fields.items() if array is not None and array.size}

    def expand(self, field: str) -> torch.Tensor:
        """Give each world separate values in a field of the model and return them; see `MujocoWarpEngine.expand`."""
        owner, name = _owner(self.m, field)
        array = getattr(owner, name, None)
        if not isinstance(array, wp.array):
            known = [prefix + each for prefix, part in parts_of(self.m).items() for each in batched(part)]
            raise UnknownNameError("field of mujoco_warp's Model", field, known)
        if name not in batched(owner) or field == "opt.timestep":
            raise ArgumentError(
                f"{field}: got a field that all environments of mujoco_warp share, expected one with a value for each."
            )
        if array.shape[0] != self.num_envs:
            setattr(owner, name, wp.from_torch(self._of_each(field), dtype=array.dtype))
        return self.field(field)

    def _of_each(self, field: str) -> torch.Tensor:
        """Return a copy of each world's values `[world, ...]` in a batched field of the model."""
        values = self.field(field)
        return values[torch.arange(self.num_envs, device=values.device) % len(values)]

    def separate_options(self) -> dict[str, torch.Tensor]:
        """Return a copy of gravity and magnetic flux of each environment `[env, 3]`."""
        return {name: self._of_each(name) for name in OPTIONS}

    def separate(self, options: Mapping[str, torch.Tensor]) -> None:
        """Give each environment separate values of the options in a mapping."""
        for name in options:
            self.expand(name)

    # Computations ----------------------------------------------------------------------------------------------------

    def step(self, ticks: int) -> None:
        """Take steps."""
        for _ in range(ticks):
            self._graphs.run("step", lambda: self._module.step(self.m, self.d))

    def reset(self, ids: torch.Tensor | None) -> None:
        """Reset environments to the initial state."""
        mark(self._reset_mask, ids)
        rows = wp.from_torch(self._reset_mask, dtype=wp.bool)
        self._graphs.run("reset", lambda: self._module.reset_data(self.m, self.d, reset=rows))
        self._write_start()

    def _write_start(self) -> None:
        """Write the state of the keyframe into the environments of the reset mask."""
        for name, target in self.rows().items():
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
        self._forward(plan.functions)
        for name, old in before.items():
            put(old, self.field(name), ids)
            self.field(name).copy_(old)

    def _forward(self, functions: Sequence[str]) -> None:
        """Compute derived state by functions of mujoco_warp, see `Plan.functions`.

        The state is preserved, including sleep, the history of delayed sensors, and the controls, which a callback
        writes. The whole forward computation treats all bodies as awake: mujoco_warp has no contacts of sleeping
        bodies.
        """
        module, m, d = self._module, self.m, self.d

        def compute() -> None:
            control, m.callback.control = m.callback.control, None
            try:
                with self._keeping():
                    if "forward" in functions and sleeps(m.opt):
                        d.tree_asleep.fill_(AWAKE)
                    for name in functions:
                        if name == "sensor_pos":
                            d.sensordata.zero_()
                        if name != "rne_postconstraint" or not self._computes_wrenches:
                            getattr(module, name)(m, d)
            finally:
                m.callback.control = control

        self._graphs.run(functions, compute)

    @property
    def _computes_wrenches(self) -> bool:
        """Whether mujoco_warp.forward computes accelerations and wrenches of bodies."""
        asked = self.m.sensor_rne_postconstraint and not disabled(self.m.opt, "SENSOR")
        return bool(asked or getattr(self.m.opt, "run_rne_postconstraint", False))

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        """Restore state that the forward computation overwrites within the block."""
        names = (*(ASLEEP if sleeps(self.m.opt) else ()), "history")
        fields = {name: array for name in names if (array := getattr(self.d, name, None)) is not None and array.size}
        for name, array in fields.items():
            if name not in self._kept:
                self._kept[name] = wp.empty_like(array)
            wp.copy(self._kept[name], array)
        yield
        for name, array in fields.items():
            wp.copy(array, self._kept[name])

    def _parts(self) -> list[Any]:
        """Return all arrays and options that a graph may have frozen."""
        m, d = self.m, self.d
        parts = (*parts_of(m).values(), m.callback, d, d.contact, d.efc)
        return [value for part in parts for value in vars(part).values()]

    def check(self) -> None:
        """Warn if memory was too small, once for each kind.

        On CUDA the flags are copied asynchronously and checked in a later step.
        """
        self._report_shapes()
        flags = self._overflow.take()
        self._overflow.start()
        if flags is None or not flags.any():
            return
        kinds = getattr(self._module, "OverflowType", None)
        if kinds is None:  # not exported by 3.11
            kinds = importlib.import_module("mujoco_warp._src.types").OverflowType
        for kind in kinds:
            if kind.name in LOST:
                size, what = LOST[kind.name]
                self._health.report_small(np.flatnonzero(flags & int(kind)), "by", what, self._larger(size))

    def edited_time_step(self, dt: float) -> tuple[float, str] | None:
        """Return a current time step, s, that is not `dt`, with its location for messages; None if there is none.

        On CUDA the values are copied asynchronously and checked in a later step.
        """
        if self._is_owned and self.model_options.timestep != dt:
            return self.model_options.timestep, "engine.model"
        array = self.m.opt.timestep
        if array is not self._time_steps_of:
            self._time_steps_of = array
            self._time_steps = AsyncCopy(self.field("opt.timestep"))
        steps = self._time_steps.take()
        self._time_steps.start()
        for step in [] if steps is None else steps[steps != np.float32(dt)].tolist():
            return step, "opt.timestep of mujoco_warp's Model"
        return None

    def check_shapes(self) -> None:
        """Raise an error if shapes described as common to all environments no longer are.

        On CUDA the result is copied asynchronously and checked in a later step or reset.
        """
        if "shapes" not in vars(self) or self.num_envs == 1:
            return
        if self._static is None:
            self._static = torch.tensor(static_bodies(self.model), dtype=torch.int64, device="cpu").to(
                self._differ.device
            )
        found = []
        for name in SHAPE_FIELDS:
            array = getattr(self.m, name, None)
            if isinstance(array, wp.array) and array.size and array.shape[0] == self.num_envs and name in self._batched:
                values = compared_part(name, self.field(name), self._static)
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
        if self._is_owned:  # mujoco_warp sets this size equal to the others
            size = {"nccdmax": "nconmax", "njmax_nnz": "njmax"}.get(size, size)
        now = {"nconmax": int(self.d.naconmax) // self.num_envs, "njmax": int(self.d.njmax)}.get(size)
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
        nv, awake = int(model.nv), int(getattr(self.d, "nvmax", model.nv))
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
        version, issued = self._module.__version__, self._health.issued
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


def parts_of(m: Any) -> dict[str, Any]:
    """Return mujoco_warp's Model and the parts of it that have fields, by the prefix of their names."""
    return {"": m, "opt.": m.opt} | ({"stat.": m.stat} if hasattr(m, "stat") else {})


def _owner(m: Any, field: str) -> tuple[Any, str]:
    """Return the part of the Model that contains a field, and the field's name in it."""
    prefix, dot, name = field.partition(".")
    parts = parts_of(m)
    return (parts[prefix + dot], name) if dot and prefix + dot in parts else (m, field)


def batched(owner: Any) -> list[str]:
    """Return the fields of a mujoco_warp Model, or of a part of it, that may hold values per world."""
    return [
        spec.name for spec in dataclasses.fields(owner) if tuple(getattr(spec.type, "shape", None) or ())[:1] == ("*",)
    ]


def _default_state(mjm: Any, key: int) -> dict[str, np.ndarray]:
    """Return the state of a keyframe (-1: the model's default state), by name of the state field."""
    data = mujoco.MjData(mjm)
    if key >= 0:
        mujoco.mj_resetDataKeyframe(mjm, data, key)
    state = {name: np.array(getattr(data, name), dtype=np.float32) for name in STATE_FIELDS}
    state["time"] = np.array(data.time, dtype=np.float32)
    return state
