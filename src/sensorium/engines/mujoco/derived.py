"""Derived arrays of the MuJoCo engines: the fields that they need, and their computation in float64 or float32.

One kernel launch fills the arrays of a family (see `kernels`). Where the fields are float32 on the engine's device,
some arrays are views of them, at no cost. These are native sensors, and poses of bodies, joint positions, velocities
and efforts whose rows are adjacent in MuJoCo's array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import mujoco
import numpy as np
import torch

from sensorium.compute import Compute, pinned
from sensorium.engines.base import ARRAYS, NATIVE_ARRAY, array_sizes
from sensorium.engines.contacts import contact_shape
from sensorium.engines.envs import EnvLaunches
from sensorium.engines.mujoco.contacts import contact_sensors, contacts
from sensorium.engines.mujoco.elements import Elements
from sensorium.engines.mujoco.kernels import KERNELS
from sensorium.engines.mujoco.native import native, sensor_id
from sensorium.engines.mujoco.sleep import held_columns, is_held, sleeps
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    BODY_VELOCITY,
    GRAVITY,
    JOINT_EFFORT,
    JOINT_STATE,
    JOINT_TORQUE,
    JOINT_WRENCH,
    MAGNETIC,
    TENDON_PATHS,
    Requirement,
    contact_array,
    contact_columns,
)

POS, VEL, ACC = (int(getattr(mujoco.mjtStage, f"mjSTAGE_{stage}")) for stage in ("POS", "VEL", "ACC"))
"""Stages of MuJoCo's forward computation (mjtStage): position, velocity and acceleration."""


@dataclass(frozen=True, slots=True)
class Need:
    """MuJoCo data for one requirement.

    Args:
        fields: MjData fields from which its arrays are computed.
        stage: stage of MuJoCo's forward computation (mjtStage) that updates them; 0 for none.
        wrenches: whether it needs mj_rnePostConstraint, which MuJoCo calls only for certain sensors.
        model_fields: fields of the model that are read for each env.
    """

    fields: tuple[str, ...] = ()
    stage: int = 0
    wrenches: bool = False
    model_fields: tuple[str, ...] = ()


NEEDS: dict[Requirement, Need] = {
    BODY_POSE: Need(("xpos", "xquat"), POS),
    BODY_VELOCITY: Need(("xpos", "cvel", "subtree_com"), VEL),
    BODY_ACCELERATION: Need(("xpos", "cvel", "cacc", "subtree_com"), ACC, True, ("opt.gravity",)),
    GRAVITY: Need(model_fields=("opt.gravity",)),
    MAGNETIC: Need(model_fields=("opt.magnetic",)),
    JOINT_STATE: Need(("qpos", "qvel")),
    JOINT_EFFORT: Need(("qfrc_actuator",), ACC),
    JOINT_TORQUE: Need(
        ("qfrc_actuator", "qfrc_damper", "qacc", "qvel"),
        ACC,
        model_fields=("dof_armature", "dof_frictionloss", "dof_invweight0"),
    ),
    JOINT_WRENCH: Need(("xpos", "subtree_com", "cfrc_int"), ACC, True),
    TENDON_PATHS: Need(("ten_wrapadr", "ten_wrapnum", "wrap_obj", "wrap_xpos"), POS, model_fields=("opt.gravity",)),
}
"""All requirements except NATIVE_SENSOR, CONTACT_REPORT, SHAPES and MODEL_ELEMENTS."""
STATE_SOURCES = ("qpos", "qvel")
"""Fields of the state itself, which mj_step leaves one tick newer than all others."""
FRICTION = "dof_friction"
"""Source of the dry friction at each dof `[env, dof]`, where the engine can read it."""
_VIEWS = {
    "body_pos_w": ("xpos", "body"),
    "body_quat_w": ("xquat", "body"),
    "joint_pos": ("qpos", "qpos"),
    "joint_vel": ("qvel", "dof"),
    "joint_effort": ("qfrc_actuator", "dof"),
}
"""Arrays that may be views, each with its source and the kind of ids that index its rows."""
_SPATIAL = ("cvel", "cacc", "cfrc_int", "wrap_xpos")
"""Fields whose last axis consists of two vectors."""
_Launch = tuple[Any, int, list[Any]]
"""A kernel, the number of threads per env, and its arguments."""


@dataclass(frozen=True, slots=True)
class Plan:
    """MuJoCo data for all prepared requirements, and the computations that bring it up to date.

    Args:
        fields: MjData fields, in a fixed order.
        model_fields: fields of the model that are read for each env.
        stage: highest mjtStage required; 0 for none.
        sensors: whether native sensors are read.
        wrenches: whether results of mj_rnePostConstraint are read.
        tendons: whether the paths of tendons are read.
        reports: contact reports.
    """

    fields: tuple[str, ...] = ()
    model_fields: tuple[str, ...] = ()
    stage: int = 0
    sensors: bool = False
    wrenches: bool = False
    tendons: bool = False
    reports: tuple[Requirement, ...] = ()

    @property
    def functions(self) -> tuple[str, ...]:
        """MuJoCo's functions that update derived state of a state up to `stage`, in order, as mujoco_warp names them.

        Position, velocity and acceleration build on each other. Without native sensors only the parts that `NEEDS`
        lists are computed. Position sensors need the velocity stage, which recomputes the kinetic energy.
        """
        if self.stage >= ACC:
            return ("forward", "rne_postconstraint") if self.wrenches else ("forward",)
        if self.sensors:
            return ("fwd_position", "sensor_pos", "fwd_velocity", "sensor_vel")
        if self.stage < POS:
            return ()
        moving = self.stage >= VEL
        chosen = {"kinematics": True, "com_pos": moving or self.tendons, "com_vel": moving, "tendon": self.tendons}
        return tuple(name for name, is_needed in chosen.items() if is_needed)


def plan_of(model: Any, requirements: frozenset[Requirement], *, held: bool) -> Plan:
    """Return the data for requirements that a compiled model fulfils.

    Args:
        model: compiled MjModel.
        requirements: granted requirements.
        held: whether native sensors hold values that MuJoCo does not compute for sleeping bodies, see `mujoco.sleep`.
    """
    used = requirements
    if TENDON_PATHS in requirements:
        from sensorium.engines.mujoco.tendons import paths_of

        used = requirements if len(paths_of(model).tendon) else requirements - {TENDON_PATHS}
    needs = [need for requirement, need in NEEDS.items() if requirement in used]
    fields = [name for need in needs for name in need.fields]
    if held and any(map(is_held, used)):
        fields += ["xquat", "sensordata"]
    reports = contacts(used)
    ids = [sensor_id(model, requirement) for requirement in native(used)]
    ids += [i for report in reports for i in contact_sensors(model, report)]
    if ids:
        fields.append("sensordata")
    return Plan(
        fields=tuple(dict.fromkeys(fields)),
        model_fields=tuple(dict.fromkeys(name for need in needs for name in need.model_fields)),
        stage=max([need.stage for need in needs] + [_stage_of_sensor(model, i) for i in ids], default=0),
        sensors=bool(ids),
        wrenches=any(need.wrenches for need in needs),
        tendons=TENDON_PATHS in used,
        reports=tuple(reports),
    )


def _stage_of_sensor(model: Any, i: int) -> int:
    """Return the mjtStage of a sensor; the kinetic energy, nominally a position sensor, needs the velocity stage."""
    stage = int(model.sensor_needstage[i])
    return max(stage, VEL) if int(model.sensor_type[i]) == int(mujoco.mjtSensor.mjSENS_E_KINETIC) else stage


def needs_wrenches(requirement: Requirement) -> bool:
    """Whether a requirement needs results of mj_rnePostConstraint."""
    return requirement in NEEDS and NEEDS[requirement].wrenches


@dataclass(slots=True)
class Derived:
    """Derived arrays of one engine and the launches that fill them.

    Attributes:
        num_envs: number of environments.
        device: torch device of the arrays.
        compute: device of the launches and of the fields.
        dtype: type of the fields.
        shows: whether arrays may be views of fields; False where the owner recomputes fields between two refreshes.
        arrays: name to float32 tensor; tensor objects are never replaced. Native sensors that were prepared together
            are views of one block.
        views: names of the arrays that are views of fields.
    """

    num_envs: int
    device: str
    compute: Compute
    dtype: torch.dtype = torch.float64
    shows: bool = False
    arrays: dict[str, torch.Tensor] = field(default_factory=dict)
    views: set[str] = field(default_factory=set)
    _storage: dict[str, torch.Tensor] = field(default_factory=dict)  # arrays and blocks that launches fill
    _host: dict[str, torch.Tensor] = field(default_factory=dict)  # the same, where the kernels write
    _blocks: dict[str, list[Requirement]] = field(default_factory=dict)
    _launches: EnvLaunches | None = None

    def build(self, elements: Elements, prepared: frozenset[Requirement], sources: Mapping[str, torch.Tensor]) -> None:
        """Create the arrays of `prepared` and record the launches that read `sources`.

        Args:
            elements: elements of the model.
            prepared: granted requirements.
            sources: tensors of `dtype` at fixed addresses: the required fields, of MjData `[env, ...]` and of the model
                `[1 or env, ...]`.
        """
        fields = _Fields(self, elements.model, elements.body_ids, elements.joint_ids, sources)
        counts = {"body": len(fields.body_ids), "joint": len(fields.joint_ids)}
        if TENDON_PATHS in prepared:
            from sensorium.engines.mujoco.tendons import paths_of

            counts["segment"] = len(paths_of(fields.model).tendon)
        for requirement in filter(prepared.__contains__, ARRAYS):
            for name, shape in array_sizes(requirement, self.num_envs, counts).items():
                if (view := fields.view(name)) is not None:
                    self._show(name, view)
                else:
                    self.arrays[name] = self._fill(name, shape)
        self._place_native(fields, native(prepared))
        for report in contacts(prepared):
            name = contact_array(report)
            self.arrays[name] = self._fill(name, (self.num_envs, *contact_shape(report)))
        launches = [*fields.bodies(), *fields.wrenches(), *fields.joints()]
        launches += fields.tendons() if TENDON_PATHS in prepared else []
        launches += [*fields.natives(self._blocks), *map(fields.contacts, contacts(prepared))]

        def launch_all() -> None:
            for kernel, items, arguments in launches:
                self.compute.launch(kernel, (items,), arguments)

        self._launches = EnvLaunches(self.compute, launch_all)

    def _place_native(self, fields: _Fields, sensors: list[Requirement]) -> None:
        """Show native sensors as views, or allocate a new block for those without memory, so that no other moves."""
        if self.shows:
            for requirement in sensors:
                self._show(f"{NATIVE_ARRAY}{requirement.args[0]}", fields.sensor(requirement))
            return
        placed = set(chain.from_iterable(self._blocks.values()))
        if not (new := [requirement for requirement in sensors if requirement not in placed]):
            return
        sizes = [fields.sensor(requirement).shape[1] for requirement in new]
        name = f"native block {len(self._blocks)}"
        self._blocks[name] = new
        block = self._fill(name, (self.num_envs, sum(sizes)))
        for requirement, values in zip(new, torch.split(block, sizes, dim=1), strict=True):
            self.arrays[f"{NATIVE_ARRAY}{requirement.args[0]}"] = values

    def _fill(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Return an array that launches fill; a tensor object that was already returned is kept."""
        if name in self.views:
            self.views.discard(name)
            nothing = torch.zeros(0, dtype=torch.float32, device=self.device)
            self._storage[name] = self.arrays[name].set_(nothing)  # type: ignore[call-overload]
        if name in self._storage and self._storage[name].shape == shape:
            return self._storage[name]
        fresh = torch.zeros(shape, dtype=torch.float32, device=self.compute.device)
        if name == "body_quat_w":
            fresh[..., 0] = 1.0
        on_host = self.compute.device == self.device
        host = fresh if on_host else pinned(shape, torch.float32, self.device).copy_(fresh)
        array = host if on_host else host.to(self.device)
        if name in self._storage:
            self._storage[name].set_(array)  # type: ignore[call-overload]
            array = self._storage[name]
        self._storage[name] = array
        self._host[name] = array if on_host else host
        return array

    def _show(self, name: str, view: torch.Tensor) -> None:
        """Make an array a view; a tensor object that was already returned is kept."""
        self.views.add(name)
        self._storage.pop(name, None)
        self._host.pop(name, None)
        if name in self.arrays:
            self.arrays[name].set_(view)  # type: ignore[call-overload]
        else:
            self.arrays[name] = view

    def convert(self, env_ids: torch.Tensor | None = None) -> None:
        """Fill the arrays, of all envs or of some, from the current fields."""
        assert self._launches is not None
        self._launches.run(env_ids)
        if self.compute.device != self.device:
            for name, array in self._storage.items():
                array.copy_(self._host[name])


@dataclass(frozen=True, slots=True)
class _Fields:
    """Sources of the arrays, as arguments of launches; see `Derived.build`."""

    derived: Derived
    model: Any
    body_ids: list[int]
    joint_ids: list[int]
    sources: Mapping[str, torch.Tensor]

    def view(self, name: str) -> torch.Tensor | None:
        """Return an array as a view of its source, or None if that is not possible."""
        if name not in _VIEWS or not self.derived.shows:
            return None
        source, kind = _VIEWS[name]
        ids = self._ids(kind).tolist()
        if not ids or ids != list(range(ids[0], ids[0] + len(ids))):
            return None
        return self.sources[source][:, ids[0] : ids[0] + len(ids)]

    def sensor(self, requirement: Requirement) -> torch.Tensor:
        """Return the memory that a native sensor writes."""
        i = sensor_id(self.model, requirement)
        start = int(self.model.sensor_adr[i])
        return self.sources["sensordata"][:, start : start + int(self.model.sensor_dim[i])]

    def _ids(self, kind: str) -> np.ndarray:
        """Return the index in MuJoCo's arrays of each row: of `"body"`, or of a joint's `"qpos"` or `"dof"`."""
        if kind == "body":
            return np.asarray(self.body_ids, dtype=np.int32)
        address = self.model.jnt_qposadr if kind == "qpos" else self.model.jnt_dofadr
        return np.asarray(address)[self.joint_ids]

    def _inputs(self, *names: str) -> list[torch.Tensor | None]:
        return [self._source(name) for name in names]

    def _source(self, name: str) -> torch.Tensor | None:
        tensor = self.sources.get(name)
        if tensor is None or 0 in tensor.shape:
            return None
        return tensor.view(*tensor.shape[:-1], 2, 3) if name in _SPATIAL else tensor

    def _outputs(self, *requirements: Requirement) -> list[torch.Tensor | None]:
        """Return the arrays of requirements that launches fill; None for those that are not requested or are views."""
        host = self.derived._host
        arrays = [host.get(name) for requirement in requirements for name in ARRAYS[requirement]]
        return [None if array is None or 0 in array.shape else array for array in arrays]

    def _numbers(self, values: Any, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.from_numpy(np.array(values)).to(device=self.derived.compute.device, dtype=dtype)

    def _held(self, requirement: Requirement, rows: Sequence[int]) -> torch.Tensor:
        """Return the columns of `sensordata` that hold the values of sleeping bodies or joints, -1 for none."""
        columns = held_columns(self.model, requirement)[list(rows)]
        holds = self.derived.dtype == torch.float64 and "sensordata" in self.sources and sleeps(self.model.opt)
        return self._numbers(columns if holds else np.full_like(columns, -1))

    def _body_maps(self) -> list[torch.Tensor]:
        """Return body id, root and weld of each body row."""
        ids = self._ids("body")
        return [self._numbers(values) for values in (ids, self.model.body_rootid[ids], self.model.body_weldid[ids])]

    def bodies(self) -> list[_Launch]:
        """Return the launch for poses, velocities and accelerations of bodies, gravity and magnetic flux."""
        outputs = self._outputs(BODY_POSE, BODY_VELOCITY, BODY_ACCELERATION, GRAVITY, MAGNETIC)
        inputs = [
            *self._body_maps(),
            *self._inputs("xpos", "xquat", "subtree_com", "cvel", "cacc"),
            self._held(BODY_ACCELERATION, self.body_ids),
            *self._inputs("sensordata", "opt.gravity", "opt.magnetic"),
        ]
        return self._by_env(KERNELS[self.derived.dtype].bodies, max(len(self.body_ids), 1), inputs, outputs)

    def wrenches(self) -> list[_Launch]:
        """Return the launch for loads that parents exert on bodies."""
        inputs = [
            *self._body_maps()[:2],
            *self._inputs("xpos", "subtree_com", "cfrc_int", "xquat"),
            self._held(JOINT_WRENCH, self.body_ids),
            *self._inputs("sensordata"),
        ]
        outputs = self._outputs(JOINT_WRENCH)
        return self._by_env(KERNELS[self.derived.dtype].wrenches, len(self.body_ids), inputs, outputs)

    def joints(self) -> list[_Launch]:
        """Return the launch for positions, velocities, efforts and torques of scalar joints."""
        dofs, dtype = self._ids("dof"), self.derived.dtype
        outputs = self._outputs(JOINT_STATE, JOINT_EFFORT, JOINT_TORQUE)
        constants: list[Any] = [None] * 3
        if outputs[-1] is not None:
            from sensorium.engines.mujoco.torque import friction_constants, rotor_inertia

            found = rotor_inertia(self.model), *friction_constants(self.model)
            constants = [self._numbers(values[dofs], dtype) for values in found]
        inputs = [
            self._numbers(self._ids("qpos")),
            self._numbers(dofs),
            *constants,
            *self._inputs("qpos", "qvel", "qacc", "qfrc_actuator", "qfrc_damper"),
            *self._inputs(*NEEDS[JOINT_TORQUE].model_fields, FRICTION),
            self._held(JOINT_EFFORT, self.joint_ids),
            *self._inputs("sensordata"),
        ]
        return self._by_env(KERNELS[dtype].joints, len(dofs), inputs, outputs)

    def tendons(self) -> list[_Launch]:
        """Return the launch for segments of the tendons' paths."""
        from sensorium.engines.mujoco.tendons import TENDON_KERNELS, paths_of

        paths, dtype = paths_of(self.model), self.derived.dtype
        inputs = [
            *map(self._numbers, (paths.tendon, paths.place)),
            *(self._numbers(values, dtype) for values in (paths.radius, paths.length)),
            *self._inputs("ten_wrapadr", "ten_wrapnum", "wrap_obj", "wrap_xpos", "opt.gravity"),
        ]
        return self._launch(TENDON_KERNELS[dtype], len(paths.tendon), inputs, self._outputs(TENDON_PATHS))

    def natives(self, blocks: Mapping[str, Sequence[Requirement]]) -> list[_Launch]:
        """Return the launches for native sensors that are not views, one per block."""
        ids = {name: [sensor_id(self.model, each) for each in block] for name, block in blocks.items()}
        starts, sizes = self.model.sensor_adr, self.model.sensor_dim
        columns = {name: [np.arange(starts[i], starts[i] + sizes[i]) for i in block] for name, block in ids.items()}
        return [self._take(np.concatenate(each), self.derived._host[name]) for name, each in columns.items()]

    def contacts(self, report: Requirement) -> _Launch:
        """Return the launch for a contact report; see `mujoco.contacts`."""
        starts = self.model.sensor_adr[contact_sensors(self.model, report)]
        shape = contact_shape(report)
        columns = starts[:, None] + np.arange(shape[1] * shape[2])
        negated, found = np.zeros(shape), np.full(shape, -1)
        if report.args[3] == "netforce":
            parts = contact_columns(report)
            for name, part in parts.items():
                negated[..., part] = name in ("force", "torque")
                if name in ("normal", "tangent") and "found" in parts:
                    found[..., part] = starts[:, None, None]  # first column, which belongs to one slot
        return self._take(columns.ravel(), self.derived._host[contact_array(report)], negated.ravel(), found.ravel())

    def _take(self, columns: Any, output: torch.Tensor, negated: Any = None, found: Any = None) -> _Launch:
        """Return the launch that copies columns of `sensordata`, optionally negated, or 0 where `found` is 0."""
        inputs = [
            self._numbers(columns),
            self._numbers(np.zeros(len(columns)) if negated is None else negated, torch.uint8),
            self._numbers(np.full(len(columns), -1) if found is None else found),
            self._source("sensordata"),
        ]
        (launch,) = self._by_env(KERNELS[self.derived.dtype].sensors, len(columns), inputs, [output.flatten(1)])
        return launch

    def _by_env(self, kernel: Any, items: int, inputs: list[Any], outputs: list[Any]) -> list[_Launch]:
        """Return the launch of a kernel whose threads loop over items: on the CPU, over all items of an env."""
        per_thread = max(items, 1) if self.derived.compute.is_cpu else 1  # there a thread costs as much as an item
        return self._launch(kernel, -(-items // per_thread), [per_thread, *inputs], outputs)

    @staticmethod
    def _launch(kernel: Any, items: int, inputs: list[Any], outputs: list[Any]) -> list[_Launch]:
        return [(kernel, items, [*inputs, *outputs])] if any(output is not None for output in outputs) else []
