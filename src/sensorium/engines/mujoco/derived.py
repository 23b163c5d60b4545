"""How derived arrays come out of MuJoCo's float64 fields: one part, that is one kernel launch, for each family.

With `d = p - subtree_com[body_rootid]` (p: body frame origin), and MuJoCo's spatial vectors about that centre of mass,
in world axes, rotation first (`cvel = [w, v]`, `cacc = [alpha, a]` where `a` holds minus gravity, `cfrc_int = [t, f]`):

    velocity at p                     v + w x d
    coordinate acceleration at p      a + alpha x d + w x (v + w x d) + gravity
    torque of the parent about p      t - d x f

as in mj_objectVelocity, mj_objectAcceleration and the force and torque sensors. Bodies welded to the world and mocap
bodies are at rest by definition: MuJoCo knows no velocity of theirs, also when their pose is edited between steps. As
for MuJoCo's own force sensors, gravity compensation and fluid forces count as transmitted by the parent.

Joint effort is `qfrc_actuator`: all actuators on the joint (also through tendons, sites and bodies), with the joint's
gravity compensation where `actuatorgravcomp` is on, clamped to `actuatorfrcrange`. The torque at the gearbox output is

    qfrc_actuator - armature * qacc + friction + qfrc_damper

where the armature is the joint's and that of actuators on it times the square of their gear. `qfrc_damper` is the force
of the joint's and its actuators' dampers. No field of a batch holds the dry friction, but with the primal solvers
(Newton, CG) it is a function of the acceleration: the force of constraint i of friction type is

    -(qacc + b * qvel) / R, clamped to +-frictionloss,      R = (1 - imp) / imp * dof_invweight0,  b = 2 / (dmax * T)

with `imp = solimp[0]`, `dmax = solimp[1]`, `T = max(solref[0], 2 dt)`, or `b = -solref[1] / dmax` where solref is
negative (MuJoCo's manual, Computation, "Solver parameters": at a residual of 0 the stiffness term is 0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp

from sensorium.compute import Compute, Rows, kernel
from sensorium.engines.mujoco.contacts import contact_sensors, contacts, contacts_part
from sensorium.engines.mujoco.native import native, sensor_id
from sensorium.engines.mujoco.sleep import held_columns, is_held, may_sleep, named_joints, sleeps
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
    Requirement,
)

_POS, _VEL, _ACC = (int(getattr(mujoco.mjtStage, f"mjSTAGE_{stage}")) for stage in ("POS", "VEL", "ACC"))


@dataclass(frozen=True, slots=True)
class Need:
    """What one requirement takes and brings.

    Args:
        arrays: array name to its shape after the env axis; `"body"` and `"joint"` stand for the numbers of rows.
        fields: the MjData fields that they are computed from.
        stage: the stage of MuJoCo's forward computation (mjtStage) that makes them current; 0 for none.
        wrenches: whether it needs mj_rnePostConstraint, which MuJoCo calls only for certain sensors.
        model_fields: fields of the model that are read for each env.
    """

    arrays: Mapping[str, tuple[str | int, ...]]
    fields: tuple[str, ...] = ()
    stage: int = 0
    wrenches: bool = False
    model_fields: tuple[str, ...] = ()


NEEDS: dict[Requirement, Need] = {
    BODY_POSE: Need({"body_pos_w": ("body", 3), "body_quat_w": ("body", 4)}, ("xpos", "xquat"), _POS),
    BODY_VELOCITY: Need(
        {"body_lin_vel_w": ("body", 3), "body_ang_vel_w": ("body", 3)}, ("xpos", "cvel", "subtree_com"), _VEL
    ),
    BODY_ACCELERATION: Need(
        {"body_lin_acc_w": ("body", 3), "body_ang_acc_w": ("body", 3)},
        ("xpos", "cvel", "cacc", "subtree_com"),
        _ACC,
        wrenches=True,
        model_fields=("opt.gravity",),
    ),
    GRAVITY: Need({"gravity_w": (3,)}, model_fields=("opt.gravity",)),
    MAGNETIC: Need({"magnetic_w": (3,)}, model_fields=("opt.magnetic",)),
    JOINT_STATE: Need({"joint_pos": ("joint",), "joint_vel": ("joint",)}, ("qpos", "qvel")),
    JOINT_EFFORT: Need({"joint_effort": ("joint",)}, ("qfrc_actuator",), _ACC),
    JOINT_TORQUE: Need(
        {"joint_torque": ("joint",)},
        ("qfrc_actuator", "qfrc_damper", "qacc", "qvel"),
        _ACC,
        model_fields=("dof_armature", "dof_frictionloss", "dof_invweight0"),
    ),
    JOINT_WRENCH: Need(
        {"body_parent_force_w": ("body", 3), "body_parent_torque_w": ("body", 3)},
        ("xpos", "subtree_com", "cfrc_int"),
        _ACC,
        wrenches=True,
    ),
}
"""All requirements but NATIVE_SENSOR and CONTACT_REPORT, each of which brings an array of its own, and SHAPES, which
brings none."""
STATE_SOURCES = ("qpos", "qvel")
"""Fields that are the state itself: mj_step leaves them one tick newer than all others."""
FRICTION = "dof_friction"
"""Source with the dry friction at each dof `[env, dof]`, where the engine can read it."""
NATIVE_ARRAY = "native:"
"""What the array of a native sensor is called, before the sensor's name."""


def native_array(requirement: Requirement) -> str:
    """Return the name of the array that a NATIVE_SENSOR requirement brings."""
    return f"{NATIVE_ARRAY}{requirement.args[0]}"


def fields_of(requirements: frozenset[Requirement], *, held: bool = False) -> tuple[str, ...]:
    """Return the MjData fields that requirements are computed from, in a fixed order.

    Args:
        requirements: requirements granted.
        held: whether native sensors hold what MuJoCo does not compute of bodies that sleep, see `mujoco.sleep`.
    """
    fields = [name for requirement, need in NEEDS.items() if requirement in requirements for name in need.fields]
    if held and any(map(is_held, requirements)):
        fields += ["xquat", "sensordata"]
    if native(requirements) or contacts(requirements):
        fields.append("sensordata")
    return tuple(dict.fromkeys(fields))


def model_fields_of(requirements: frozenset[Requirement]) -> tuple[str, ...]:
    """Return the fields of the model that requirements read for each env."""
    needs = [need for requirement, need in NEEDS.items() if requirement in requirements]
    return tuple(dict.fromkeys(name for need in needs for name in need.model_fields))


def stage_of(model: Any, requirements: frozenset[Requirement]) -> int:
    """Return the highest mjtStage that requirements need."""
    stages = [NEEDS[requirement].stage for requirement in requirements if requirement in NEEDS]
    stages += [_stage_of_sensor(model, sensor_id(model, requirement)) for requirement in native(requirements)]
    stages += [_stage_of_sensor(model, i) for report in contacts(requirements) for i in contact_sensors(model, report)]
    return max(stages, default=0)


def _stage_of_sensor(model: Any, i: int) -> int:
    """The kinetic energy, a position sensor to MuJoCo, is computed anew only after a pass through velocities."""
    stage = int(model.sensor_needstage[i])
    return max(stage, _VEL) if int(model.sensor_type[i]) == int(mujoco.mjtSensor.mjSENS_E_KINETIC) else stage


def needs_wrenches(requirement: Requirement) -> bool:
    """Return whether a requirement needs what mj_rnePostConstraint computes."""
    return requirement in NEEDS and NEEDS[requirement].wrenches


@dataclass(frozen=True, slots=True)
class Build:
    """What a part is made from.

    Args:
        model: the MjModel.
        body_ids: MuJoCo's body id of each body row.
        joint_ids: MuJoCo's joint id of each joint row.
        prepared: requirements granted.
        sources: float64 arrays `[env, ...]` at fixed addresses: the fields needed, of MjData and of the model.
        outputs: the arrays to fill, on the host; native sensors in blocks.
        blocks: block name to the requirements in it, in order.
    """

    model: Any
    body_ids: Sequence[int]
    joint_ids: Sequence[int]
    prepared: frozenset[Requirement]
    sources: Mapping[str, np.ndarray]
    outputs: Mapping[str, torch.Tensor]
    blocks: Mapping[str, Sequence[Requirement]]

    def source(self, name: str, dtype: Any, ndim: int) -> Any:
        """View a source as a Warp array, without a copy; empty where it is not needed.

        Args:
            name: name of the source.
            dtype: Warp type of an element; vectors take the last axis, or of a spatial vector half of it.
            ndim: dimensions of the Warp array.
        """
        field = self.sources.get(name)
        if field is None or 0 in field.shape:
            return wp.empty(shape=(0,) * ndim, dtype=dtype, device="cpu")
        assert field.dtype == np.float64
        shape, strides = field.shape[:ndim], field.strides[:ndim]
        if dtype is not wp.float64:
            if ndim == field.ndim:  # a spatial vector is two vectors
                shape, strides = (*field.shape[:-1], 2), (*field.strides[:-1], 24)
            else:
                shape, strides = field.shape[:-1], field.strides[:-1]
        return wp.array(ptr=field.ctypes.data, dtype=dtype, shape=shape, strides=strides, device="cpu")

    def held(self, requirement: Requirement, rows: Sequence[int]) -> Any:
        """Return where in `sensordata` the values of some bodies or joints are held while they sleep, else -1."""
        columns = held_columns(self.model, requirement)[list(rows)]
        return _ints(columns if "sensordata" in self.sources and sleeps(self.model.opt) else np.full_like(columns, -1))

    def output(self, name: str, dtype: Any, ndim: int) -> Any:
        """View an output as a Warp array; empty where nobody wants it."""
        tensor = self.outputs.get(name)
        if tensor is None or 0 in tensor.shape:
            return wp.empty(shape=(0,) * ndim, dtype=dtype, device="cpu")
        return wp.from_torch(tensor, dtype=dtype)

    def wanted(self, bits: Mapping[Requirement, Any]) -> int:
        """Return the bits of the requirements that are prepared."""
        return sum(int(bit) for requirement, bit in bits.items() if requirement in self.prepared)


Launch = Callable[[Compute], None]
_BITS = {
    requirement: wp.constant(1 << bit)
    for bit, requirement in enumerate((BODY_POSE, BODY_VELOCITY, BODY_ACCELERATION, GRAVITY, MAGNETIC))
}
POSE_BIT, VELOCITY_BIT, ACCELERATION_BIT, GRAVITY_BIT, MAGNETIC_BIT = _BITS.values()
_JOINT_BITS = {
    requirement: wp.constant(1 << bit) for bit, requirement in enumerate((JOINT_STATE, JOINT_EFFORT, JOINT_TORQUE))
}
STATE_BIT, EFFORT_BIT, TORQUE_BIT = _JOINT_BITS.values()


@wp.func
def _triple(sensordata: wp.array2d[wp.float64], env: wp.int32, column: wp.int32) -> wp.vec3d:
    return wp.vec3d(sensordata[env, column], sensordata[env, column + 1], sensordata[env, column + 2])


@kernel
def convert_bodies(
    rows: Rows,
    wanted: wp.int32,
    body_ids: wp.array[wp.int32],
    root_ids: wp.array[wp.int32],
    weld_ids: wp.array[wp.int32],
    xpos: wp.array2d[wp.vec3d],
    xquat: wp.array2d[wp.vec4d],
    subtree_com: wp.array2d[wp.vec3d],
    cvel: wp.array3d[wp.vec3d],
    cacc: wp.array3d[wp.vec3d],
    held: wp.array2d[wp.int32],
    sensordata: wp.array2d[wp.float64],
    gravity: wp.array[wp.vec3d],
    magnetic: wp.array[wp.vec3d],
    # output
    pos_out: wp.array2d[wp.vec3],
    quat_out: wp.array2d[wp.vec4],
    lin_vel_out: wp.array2d[wp.vec3],
    ang_vel_out: wp.array2d[wp.vec3],
    lin_acc_out: wp.array2d[wp.vec3],
    ang_acc_out: wp.array2d[wp.vec3],
    gravity_out: wp.array[wp.vec3],
    magnetic_out: wp.array[wp.vec3],
) -> None:
    """Compute one body's derived state in float64 and store it as float32; the first thread also does the env's."""
    i, item = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    if item == 0:
        if wanted & GRAVITY_BIT:
            gravity_out[env] = wp.vec3(gravity[env])
        if wanted & MAGNETIC_BIT:
            magnetic_out[env] = wp.vec3(magnetic[env])
    if item >= body_ids.shape[0]:
        return
    body = body_ids[item]
    if wanted & POSE_BIT:
        pos_out[env, item] = wp.vec3(xpos[env, body])
        quat_out[env, item] = wp.vec4(xquat[env, body])
    ang_vel = wp.vec3d()
    lin_vel = wp.vec3d()
    ang_acc = wp.vec3d()
    lin_acc = wp.vec3d()
    if weld_ids[item] != 0 and (wanted & (VELOCITY_BIT | ACCELERATION_BIT)) != 0:
        arm = xpos[env, body] - subtree_com[env, root_ids[item]]
        ang_vel = cvel[env, body, 0]
        lin_vel = cvel[env, body, 1] + wp.cross(ang_vel, arm)
        if wanted & ACCELERATION_BIT:
            if held[item, 0] >= 0:
                lin_acc = _triple(sensordata, env, held[item, 0]) + gravity[env]
                ang_acc = _triple(sensordata, env, held[item, 1])
            else:
                ang_acc = cacc[env, body, 0]
                lin_acc = cacc[env, body, 1] + wp.cross(ang_acc, arm) + wp.cross(ang_vel, lin_vel) + gravity[env]
    if wanted & VELOCITY_BIT:
        lin_vel_out[env, item] = wp.vec3(lin_vel)
        ang_vel_out[env, item] = wp.vec3(ang_vel)
    if wanted & ACCELERATION_BIT:
        lin_acc_out[env, item] = wp.vec3(lin_acc)
        ang_acc_out[env, item] = wp.vec3(ang_acc)


def bodies_part(build: Build) -> Launch | None:
    """Return the launch for poses, velocities and accelerations of bodies, gravity and magnetic flux."""
    wanted = build.wanted(_BITS)
    if not wanted:
        return None
    inputs = [
        wanted,
        *_body_maps(build),
        build.source("xpos", wp.vec3d, 2),
        build.source("xquat", wp.vec4d, 2),
        build.source("subtree_com", wp.vec3d, 2),
        build.source("cvel", wp.vec3d, 3),
        build.source("cacc", wp.vec3d, 3),
        build.held(BODY_ACCELERATION, build.body_ids),
        build.source("sensordata", wp.float64, 2),
        build.source("opt.gravity", wp.vec3d, 1),
        build.source("opt.magnetic", wp.vec3d, 1),
    ]
    outputs = [
        build.output(name, wp.vec4 if shape[-1] == 4 else wp.vec3, len(shape))
        for requirement in _BITS
        for name, shape in NEEDS[requirement].arrays.items()
    ]
    items = (max(len(build.body_ids), 1),)
    return lambda compute: compute.launch(convert_bodies, items, inputs, outputs)


@kernel
def convert_wrenches(
    rows: Rows,
    body_ids: wp.array[wp.int32],
    root_ids: wp.array[wp.int32],
    xpos: wp.array2d[wp.vec3d],
    subtree_com: wp.array2d[wp.vec3d],
    cfrc_int: wp.array3d[wp.vec3d],
    xquat: wp.array2d[wp.vec4d],
    held: wp.array2d[wp.int32],
    sensordata: wp.array2d[wp.float64],
    # output
    force_out: wp.array2d[wp.vec3],
    torque_out: wp.array2d[wp.vec3],
) -> None:
    """Move what a body's parent exerts on it to the body frame origin; a held wrench is there, in the body's axes."""
    i, item = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    body = body_ids[item]
    if held[item, 0] >= 0:
        q = xquat[env, body]
        turn = wp.quat_to_matrix(wp.quatd(q[1], q[2], q[3], q[0]))
        force_out[env, item] = wp.vec3(turn * _triple(sensordata, env, held[item, 0]))
        torque_out[env, item] = wp.vec3(turn * _triple(sensordata, env, held[item, 1]))
        return
    arm = xpos[env, body] - subtree_com[env, root_ids[item]]
    force = cfrc_int[env, body, 1]
    force_out[env, item] = wp.vec3(force)
    torque_out[env, item] = wp.vec3(cfrc_int[env, body, 0] - wp.cross(arm, force))


def wrenches_part(build: Build) -> Launch | None:
    """Return the launch for what parents exert on bodies."""
    if JOINT_WRENCH not in build.prepared:
        return None
    body_ids, root_ids, _ = _body_maps(build)
    inputs = [
        body_ids,
        root_ids,
        build.source("xpos", wp.vec3d, 2),
        build.source("subtree_com", wp.vec3d, 2),
        build.source("cfrc_int", wp.vec3d, 3),
        build.source("xquat", wp.vec4d, 2),
        build.held(JOINT_WRENCH, build.body_ids),
        build.source("sensordata", wp.float64, 2),
    ]
    outputs = [build.output(name, wp.vec3, 2) for name in NEEDS[JOINT_WRENCH].arrays]
    return lambda compute: compute.launch(convert_wrenches, (len(build.body_ids),), inputs, outputs)


def _body_maps(build: Build) -> list[Any]:
    ids = np.asarray(build.body_ids, dtype=np.int32)
    return [_ints(values) for values in (ids, build.model.body_rootid[ids], build.model.body_weldid[ids])]


def _ints(values: Any) -> Any:
    return wp.array(np.asarray(values, dtype=np.int32), dtype=wp.int32, device="cpu")


def _doubles(values: Any) -> Any:
    return wp.array(np.asarray(values, dtype=np.float64), dtype=wp.float64, device="cpu")


@kernel
def convert_joints(
    rows: Rows,
    wanted: wp.int32,
    qpos_ids: wp.array[wp.int32],
    dof_ids: wp.array[wp.int32],
    rotor_inertia: wp.array[wp.float64],
    softness: wp.array[wp.float64],
    decay: wp.array[wp.float64],
    qpos: wp.array2d[wp.float64],
    qvel: wp.array2d[wp.float64],
    qacc: wp.array2d[wp.float64],
    effort: wp.array2d[wp.float64],
    held: wp.array[wp.int32],
    sensordata: wp.array2d[wp.float64],
    damper: wp.array2d[wp.float64],
    armature: wp.array2d[wp.float64],
    friction_loss: wp.array2d[wp.float64],
    inverse_weight: wp.array2d[wp.float64],
    friction_known: wp.array2d[wp.float64],
    # output
    pos_out: wp.array2d[wp.float32],
    vel_out: wp.array2d[wp.float32],
    effort_out: wp.array2d[wp.float32],
    torque_out: wp.array2d[wp.float32],
) -> None:
    """Compute one scalar joint's derived state in float64 and store it as float32."""
    i, item = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    dof = dof_ids[item]
    if wanted & STATE_BIT:
        pos_out[env, item] = wp.float32(qpos[env, qpos_ids[item]])
        vel_out[env, item] = wp.float32(qvel[env, dof])
    driven = wp.float64(0.0)
    if wanted & (EFFORT_BIT | TORQUE_BIT):
        if held[item] >= 0:
            driven = sensordata[env, held[item]]
        else:
            driven = effort[env, dof]
    if wanted & EFFORT_BIT:
        effort_out[env, item] = wp.float32(driven)
    if wanted & TORQUE_BIT:
        friction = wp.float64(0.0)
        if friction_known.shape[0] > 0:
            friction = friction_known[env, dof]
        elif softness[item] > wp.float64(0.0):
            loss = friction_loss[env, dof]
            slip = qacc[env, dof] + decay[item] * qvel[env, dof]
            regularisation = wp.max(softness[item] * inverse_weight[env, dof], wp.float64(1.0e-15))  # mjMINVAL
            friction = wp.clamp(-slip / regularisation, -loss, loss)
        inertia = armature[env, dof] + rotor_inertia[item]
        torque_out[env, item] = wp.float32(driven - inertia * qacc[env, dof] + friction + damper[env, dof])


def joints_part(build: Build) -> Launch | None:
    """Return the launch for positions, velocities, efforts and torques of scalar joints."""
    wanted = build.wanted(_JOINT_BITS)
    if not wanted:
        return None
    model, ids = build.model, np.asarray(build.joint_ids, dtype=np.int32)
    dofs = model.jnt_dofadr[ids]
    softness, decay = friction_constants(model)
    inputs = [
        wanted,
        _ints(model.jnt_qposadr[ids]),
        _ints(dofs),
        _doubles(rotor_inertia(model)[dofs]),
        _doubles(softness[dofs]),
        _doubles(decay[dofs]),
        *(build.source(name, wp.float64, 2) for name in ("qpos", "qvel", "qacc", "qfrc_actuator")),
        build.held(JOINT_EFFORT, build.joint_ids),
        build.source("sensordata", wp.float64, 2),
        build.source("qfrc_damper", wp.float64, 2),
        *(build.source(name, wp.float64, 2) for name in NEEDS[JOINT_TORQUE].model_fields),
        build.source(FRICTION, wp.float64, 2),
    ]
    outputs = [build.output(name, wp.float32, 2) for requirement in _JOINT_BITS for name in NEEDS[requirement].arrays]
    return lambda compute: compute.launch(convert_joints, (len(ids),), inputs, outputs)


def rotor_inertia(model: Any) -> np.ndarray:
    """Return the armature `[dof]` that actuators add to the joints they act on, kg m^2 (slide: kg)."""
    inertia = np.zeros(model.nv)
    on_joint = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
    for i in range(len(model.actuator_trntype)):
        armature = getattr(model, "actuator_armature", None)
        if armature is None or armature[i] == 0.0 or int(model.actuator_trntype[i]) not in on_joint:
            continue
        output = int(model.actuator_outadr[i])
        inertia[model.jnt_dofadr[model.actuator_trnid[i, 0]]] += armature[i] * model.actuator_gear[output, 0] ** 2
    return inertia


def friction_constants(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return softness `(1 - imp) / imp` and decay `b` (1/s) of the dry friction at each dof, 0 where it is off."""
    off = int(mujoco.mjtDisableBit.mjDSBL_FRICTIONLOSS) | int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    if int(model.opt.disableflags) & off:
        return np.zeros(model.nv), np.zeros(model.nv)
    low, high = float(mujoco.mjMINIMP), float(mujoco.mjMAXIMP)
    first, last = (np.clip(model.dof_solimp[:, i], low, high) for i in (0, 1))
    time, ratio = model.dof_solref[:, 0], model.dof_solref[:, 1]
    safe = not int(model.opt.disableflags) & int(mujoco.mjtDisableBit.mjDSBL_REFSAFE)
    lag = np.maximum(time, 2.0 * float(model.opt.timestep)) if safe else time
    decay = np.where(ratio > 0.0, 2.0 / np.maximum(float(mujoco.mjMINVAL), last * lag), -ratio / last)
    return (1.0 - first) / first, decay


@kernel
def convert_native(
    rows: Rows,
    columns: wp.array[wp.int32],
    sensordata: wp.array2d[wp.float64],
    # output
    values_out: wp.array2d[wp.float32],
) -> None:
    """Copy one number of one native sensor."""
    i, item = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    values_out[env, item] = wp.float32(sensordata[env, columns[item]])


def native_part(build: Build) -> Launch | None:
    """Return the launches for native sensors, one for each block of them that was prepared at once."""
    model, sensordata = build.model, build.source("sensordata", wp.float64, 2)
    calls = []
    for block, requirements in build.blocks.items():
        ids = [sensor_id(model, requirement) for requirement in requirements]
        columns = [
            column for i in ids for column in range(model.sensor_adr[i], model.sensor_adr[i] + model.sensor_dim[i])
        ]
        calls.append(([_ints(columns), sensordata], [build.output(block, wp.float32, 2)], (len(columns),)))

    def launch(compute: Compute) -> None:
        for inputs, outputs, items in calls:
            compute.launch(convert_native, items, inputs, outputs)

    return launch if calls else None


PARTS: tuple[Callable[[Build], Launch | None], ...] = (
    bodies_part,
    wrenches_part,
    joints_part,
    native_part,
    contacts_part,
)
"""In the order in which they are launched."""


# What JOINT_TORQUE cannot tell apart ----------------------------------------------------------------------------------


def torque_fault(model: Any, *, friction_known: bool, held: bool = False) -> str | None:
    """Return why the torque at the gearbox outputs of a model cannot be told, or None.

    Args:
        model: the compiled MjModel.
        friction_known: whether the engine reads the dry friction itself, instead of computing it.
        held: whether native sensors hold what MuJoCo does not compute of bodies that sleep.
    """
    why = _tendon_fault(model) or (None if friction_known else _friction_fault(model))
    return why or (_sleep_fault(model) if held else None)


def _sleep_fault(model: Any) -> str | None:
    """MuJoCo keeps no acceleration of a joint that sleeps, and no native sensor measures it."""
    inert = model.dof_armature + model.dof_frictionloss + rotor_inertia(model)
    may = may_sleep(model)
    for joint in named_joints(model):
        if inert[model.jnt_dofadr[joint]] > 0.0 and may[model.body_treeid[model.jnt_bodyid[joint]]]:
            name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_JOINT, joint)
            return (
                f"joint {name!r} has armature or dry friction and may sleep, and MuJoCo does not keep the acceleration "
                'of a joint that sleeps: give the root body of its tree sleep="never". JOINT_EFFORT, the actuators\' '
                "force, is available."
            )
    return None


def _tendon_fault(model: Any) -> str | None:
    """Dampers of tendons count in qfrc_damper, but act on the link beside the drive."""
    damped = (model.tendon_damping != 0.0) | _actuated_dampers(model)
    for tendon in np.flatnonzero(damped):
        name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_TENDON, int(tendon)) or f"tendon_{tendon}"
        start, count = int(model.tendon_adr[tendon]), int(model.tendon_num[tendon])
        if model.wrap_type[start] == int(mujoco.mjtWrap.mjWRAP_JOINT):
            over = "joint " + ", ".join(
                repr(mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_JOINT, int(joint)) or f"joint_{joint}")
                for joint in model.wrap_objid[start : start + count]
            )
        else:
            over = "the joints along it"
        return (
            f"tendon {name!r} damps {over}, which MuJoCo adds to their own damping: move its damping to the joints. "
            "JOINT_EFFORT, the actuators' force, is available."
        )
    return None


def _actuated_dampers(model: Any) -> np.ndarray:
    damped = np.zeros(model.ntendon, dtype=bool)
    damping = getattr(model, "actuator_damping", np.zeros(0))
    for i in np.flatnonzero(damping):
        if int(model.actuator_trntype[i]) == int(mujoco.mjtTrn.mjTRN_TENDON):
            damped[model.actuator_trnid[i, 0]] = True
    return damped


def _friction_fault(model: Any) -> str | None:
    scalar = (model.jnt_type == int(mujoco.mjtJoint.mjJNT_HINGE)) | (model.jnt_type == int(mujoco.mjtJoint.mjJNT_SLIDE))
    rubbing = np.flatnonzero(scalar & (model.dof_frictionloss[model.jnt_dofadr] > 0.0))
    softness, _ = friction_constants(model)
    if not len(rubbing) or not softness.any():
        return None
    joint = int(rubbing[0])
    name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_JOINT, joint) or f"joint_{joint}"
    solver, integrator = mujoco.mjtSolver(model.opt.solver), mujoco.mjtIntegrator(model.opt.integrator)
    why = ""
    if solver == mujoco.mjtSolver.mjSOL_PGS:
        why = 'the PGS solver: choose solver="Newton" or "CG"'
    elif model.opt.noslip_iterations > 0:
        why = "noslip iterations: set noslip_iterations to 0"
    elif integrator == getattr(mujoco.mjtIntegrator, "mjINT_DISCRETE", None):
        why = "the discrete integrator: choose another one"
    elif not _friction_as_expected(model):
        why = f"this version of MuJoCo ({mujoco.__version__}), whose friction is another one than is known here"
    if not why:
        return None
    return (
        f"joint {name!r} has dry friction (frictionloss), which cannot be told under {why}; or own the loop, where it "
        "can be read: MujocoEngine.from_mj(model, data). JOINT_EFFORT, the actuators' force, is available."
    )


def _friction_as_expected(model: Any) -> bool:
    """Whether MuJoCo's dry friction in a moving state is what the formula says."""
    data = mujoco.MjData(model)
    data.qvel[:] = np.cos(np.arange(1.0, model.nv + 1.0))
    mujoco.mj_forward(model, data)
    real = dry_friction(model, data)
    softness, decay = friction_constants(model)
    regularisation = np.maximum(softness * model.dof_invweight0, float(mujoco.mjMINVAL))
    force = -(data.qacc + decay * data.qvel) / regularisation
    expected = np.clip(force, -model.dof_frictionloss, model.dof_frictionloss)
    return bool(np.allclose(real, expected, rtol=1e-6, atol=1e-9 * max(1.0, float(model.dof_frictionloss.max()))))


def dry_friction(model: Any, data: Any) -> np.ndarray:
    """Return the dry friction force at each dof `[dof]`, N m (N), of MjData after a forward computation."""
    friction = np.zeros(model.nv)
    rows = np.flatnonzero(data.efc_type == int(mujoco.mjtConstraint.mjCNSTR_FRICTION_DOF))
    friction[data.efc_id[rows]] = data.efc_force[rows]
    return friction
