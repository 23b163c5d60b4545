"""How derived arrays come out of mujoco_warp's float32 fields: as views where they can be, else by one kernel a family.

The formulas are those of `mujoco.derived`, in float32. What is a view costs nothing: poses of bodies, joint positions,
velocities and efforts, native sensors. It is one where the rows wanted stand side by side in MuJoCo's array. Fields of
the model have one row, or one for each environment: kernels take row `env % rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import warp as wp

from sensorium.compute import Compute, Rows, kernel
from sensorium.engines.envs import mark
from sensorium.engines.mujoco.base import Derived
from sensorium.engines.mujoco.contacts import contact_sensors, contact_shape, contacts
from sensorium.engines.mujoco.derived import NEEDS, friction_constants, native_array, rotor_inertia
from sensorium.engines.mujoco.native import native, sensor_id
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_VELOCITY,
    GRAVITY,
    JOINT_EFFORT,
    JOINT_STATE,
    JOINT_TORQUE,
    JOINT_WRENCH,
    MAGNETIC,
    Requirement,
    contact_array,
    contact_columns,
)

_VIEWS: dict[str, tuple[str, str]] = {
    "body_pos_w": ("xpos", "body"),
    "body_quat_w": ("xquat", "body"),
    "joint_pos": ("qpos", "qpos"),
    "joint_vel": ("qvel", "dof"),
    "joint_effort": ("qfrc_actuator", "dof"),
}
"""Arrays that may be views: of which source, and which ids of a row they go by."""
VELOCITY_BIT, ACCELERATION_BIT, GRAVITY_BIT, MAGNETIC_BIT = (wp.constant(1 << bit) for bit in range(4))
_BITS = {
    BODY_VELOCITY: VELOCITY_BIT,
    BODY_ACCELERATION: ACCELERATION_BIT,
    GRAVITY: GRAVITY_BIT,
    MAGNETIC: MAGNETIC_BIT,
}

Launch = Callable[[Compute], None]


@dataclass(slots=True)
class WarpDerived(Derived):
    """The derived arrays of a mujoco_warp engine: views of its fields, and the launches that fill the others.

    Attributes:
        keeps: whether what would be a view is a copy, which stays as it was when its owner computes the field anew.
        views: names of the arrays that are views, or copies of one.
    """

    keeps: bool = False
    views: set[str] = field(default_factory=set)
    _kept: dict[str, torch.Tensor] = field(default_factory=dict)  # of which view each copy is

    def build(
        self,
        model: Any,
        body_ids: Sequence[int],
        joint_ids: Sequence[int],
        prepared: frozenset[Requirement],
        sources: Mapping[str, Any],
    ) -> None:
        """Make the arrays that `prepared` brings and record the launches that read `sources`.

        Args:
            model: the MjModel.
            body_ids: MuJoCo's body id of each body row.
            joint_ids: MuJoCo's joint id of each joint row.
            prepared: requirements granted.
            sources: float32 tensors `[env, ...]` on the device, those of the model `[1 or env, ...]`.
        """
        room = WarpBuild(self, model, tuple(body_ids), tuple(joint_ids), prepared, sources)
        counts = {"body": len(body_ids), "joint": len(joint_ids)}
        for requirement, need in NEEDS.items():
            if requirement not in prepared:
                continue
            for name, shape in need.arrays.items():
                view = room.view(name)
                if view is not None:
                    self._show(name, view)
                else:
                    sizes = (counts[size] if isinstance(size, str) else size for size in shape)
                    self._fill(name, (self.num_envs, *sizes))
        for requirement in native(prepared):
            i = sensor_id(model, requirement)
            start = int(model.sensor_adr[i])
            values = sources["sensordata"][:, start : start + int(model.sensor_dim[i])]
            self._show(native_array(requirement), values)
        for report in contacts(prepared):
            name = contact_array(report)
            self.arrays[name] = self._allocate(name, (self.num_envs, *contact_shape(report)))
        launches = [launch for part in PARTS if (launch := part(room)) is not None]

        def launch_all() -> None:
            for launch in launches:
                launch(self.compute)

        self._sources = [*sources.values(), launches]
        self._all = self.compute.record(launch_all)
        self._masked = self.compute.record(launch_all, mask=self.compute.reset_envs)

    def _fill(self, name: str, shape: tuple[int, ...]) -> None:
        """Make an array one that launches fill; the tensor object that was handed out stays the same."""
        if name in self.views:
            self.views.discard(name)
            self._kept.pop(name, None)
            nothing = torch.zeros(0, dtype=torch.float32, device=self.device)
            self._storage[name] = self.arrays[name].set_(nothing)  # type: ignore[call-overload]
        self.arrays[name] = self._allocate(name, shape)

    def _show(self, name: str, view: torch.Tensor) -> None:
        """Make an array a view; the tensor object that was handed out stays the same."""
        self.views.add(name)
        self._storage.pop(name, None)
        if self.keeps:
            self._kept[name] = view
            self.arrays.setdefault(name, torch.zeros_like(view, memory_format=torch.contiguous_format))
        elif name in self.arrays:
            self.arrays[name].set_(view)  # type: ignore[call-overload]
        else:
            self.arrays[name] = view

    def convert(self, env_ids: torch.Tensor | None = None) -> None:
        """Fill the arrays that are no views, of all envs or of some, from the fields as they are now."""
        assert self._all is not None and self._masked is not None
        rows = slice(None) if env_ids is None else env_ids
        for name, view in self._kept.items():
            self.arrays[name][rows] = view[rows]
        if env_ids is None:
            self._all.run()
            return
        mask = self.compute.reset_envs
        mark(mask, env_ids)
        self._masked.run()
        mask.zero_()


@dataclass(frozen=True, slots=True)
class WarpBuild:
    """What a part is made from; see `WarpDerived.build`."""

    derived: WarpDerived
    model: Any
    body_ids: tuple[int, ...]
    joint_ids: tuple[int, ...]
    prepared: frozenset[Requirement]
    sources: Mapping[str, torch.Tensor]

    def ids(self, kind: str) -> tuple[int, ...]:
        """Return the index in MuJoCo's arrays of each row: of `"body"`, or of a joint's `"qpos"` or `"dof"`."""
        if kind == "body":
            return self.body_ids
        address = self.model.jnt_qposadr if kind == "qpos" else self.model.jnt_dofadr
        return tuple(int(address[joint]) for joint in self.joint_ids)

    def view(self, name: str) -> torch.Tensor | None:
        """Return an array as a view of its source, None where that cannot be."""
        if name not in _VIEWS:
            return None
        source, kind = _VIEWS[name]
        ids = self.ids(kind)
        if not ids or ids != tuple(range(ids[0], ids[0] + len(ids))):
            return None
        return self.sources[source][:, ids[0] : ids[0] + len(ids)]

    def source(self, name: str, dtype: Any, ndim: int) -> Any:
        """Return a source as a Warp array; empty where it is not needed. A spatial vector is two vectors."""
        tensor = self.sources.get(name)
        if tensor is None or 0 in tensor.shape:
            return self.nothing(dtype, ndim)
        if dtype is wp.vec3 and tensor.shape[-1] == 6:
            tensor = tensor.view(*tensor.shape[:-1], 2, 3)
        return wp.from_torch(tensor, dtype=dtype)

    def output(self, name: str, dtype: Any, ndim: int) -> Any:
        """Return an array to fill as a Warp array; empty where nobody wants it or where it is a view."""
        tensor = self.derived.arrays.get(name)
        if tensor is None or name in self.derived.views or 0 in tensor.shape:
            return self.nothing(dtype, ndim)
        return wp.from_torch(tensor, dtype=dtype)

    def nothing(self, dtype: Any, ndim: int) -> Any:
        """Return an empty array."""
        return wp.empty(shape=(0,) * ndim, dtype=dtype, device=self.derived.compute.wp_device)

    def ints(self, values: Any) -> Any:
        """Return integers on the device."""
        return wp.array(np.asarray(values, np.int32), dtype=wp.int32, device=self.derived.compute.wp_device)

    def floats(self, values: Any) -> Any:
        """Return numbers on the device."""
        return wp.array(np.asarray(values, np.float32), dtype=wp.float32, device=self.derived.compute.wp_device)

    def fills(self, *names: str) -> bool:
        """Return whether one of these arrays is wanted and no view."""
        return any(name in self.derived.arrays and name not in self.derived.views for name in names)

    def body_maps(self) -> list[Any]:
        """Return body id, root and weld of each body row."""
        ids = np.asarray(self.body_ids, dtype=np.int32)
        return [self.ints(values) for values in (ids, self.model.body_rootid[ids], self.model.body_weldid[ids])]


@kernel
def take_poses(
    rows: Rows,
    body_ids: wp.array[wp.int32],
    xpos: wp.array2d[wp.vec3],
    xquat: wp.array2d[wp.vec4],
    # output
    pos_out: wp.array2d[wp.vec3],
    quat_out: wp.array2d[wp.vec4],
) -> None:
    """Copy the poses of bodies that do not stand side by side."""
    i, item = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    pos_out[env, item] = xpos[env, body_ids[item]]
    quat_out[env, item] = xquat[env, body_ids[item]]


def poses_part(build: WarpBuild) -> Launch | None:
    """Return the launch for poses that are no views."""
    if not build.fills("body_pos_w"):
        return None
    inputs = [build.ints(build.body_ids), build.source("xpos", wp.vec3, 2), build.source("xquat", wp.vec4, 2)]
    outputs = [build.output("body_pos_w", wp.vec3, 2), build.output("body_quat_w", wp.vec4, 2)]
    return lambda compute: compute.launch(take_poses, (len(build.body_ids),), inputs, outputs)


@kernel
def derive_motion(
    rows: Rows,
    wanted: wp.int32,
    body_ids: wp.array[wp.int32],
    root_ids: wp.array[wp.int32],
    weld_ids: wp.array[wp.int32],
    xpos: wp.array2d[wp.vec3],
    subtree_com: wp.array2d[wp.vec3],
    cvel: wp.array3d[wp.vec3],
    cacc: wp.array3d[wp.vec3],
    gravity: wp.array[wp.vec3],
    magnetic: wp.array[wp.vec3],
    # output
    lin_vel_out: wp.array2d[wp.vec3],
    ang_vel_out: wp.array2d[wp.vec3],
    lin_acc_out: wp.array2d[wp.vec3],
    ang_acc_out: wp.array2d[wp.vec3],
    gravity_out: wp.array[wp.vec3],
    magnetic_out: wp.array[wp.vec3],
) -> None:
    """Compute one body's velocity and acceleration; the first thread also does the env's gravity and flux."""
    i, item = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    if item == 0:
        if wanted & GRAVITY_BIT:
            gravity_out[env] = gravity[env % gravity.shape[0]]
        if wanted & MAGNETIC_BIT:
            magnetic_out[env] = magnetic[env % magnetic.shape[0]]
    if item >= body_ids.shape[0]:
        return
    body = body_ids[item]
    ang_vel = wp.vec3()
    lin_vel = wp.vec3()
    ang_acc = wp.vec3()
    lin_acc = wp.vec3()
    if weld_ids[item] != 0 and (wanted & (VELOCITY_BIT | ACCELERATION_BIT)) != 0:
        arm = xpos[env, body] - subtree_com[env, root_ids[item]]
        ang_vel = cvel[env, body, 0]
        lin_vel = cvel[env, body, 1] + wp.cross(ang_vel, arm)
        if wanted & ACCELERATION_BIT:
            ang_acc = cacc[env, body, 0]
            coordinate = cacc[env, body, 1] + gravity[env % gravity.shape[0]]
            lin_acc = coordinate + wp.cross(ang_acc, arm) + wp.cross(ang_vel, lin_vel)
    if wanted & VELOCITY_BIT:
        lin_vel_out[env, item] = lin_vel
        ang_vel_out[env, item] = ang_vel
    if wanted & ACCELERATION_BIT:
        lin_acc_out[env, item] = lin_acc
        ang_acc_out[env, item] = ang_acc


def motion_part(build: WarpBuild) -> Launch | None:
    """Return the launch for velocities and accelerations of bodies, gravity and magnetic flux."""
    wanted = sum(int(bit) for requirement, bit in _BITS.items() if requirement in build.prepared)
    if not wanted:
        return None
    inputs = [
        wanted,
        *build.body_maps(),
        build.source("xpos", wp.vec3, 2),
        build.source("subtree_com", wp.vec3, 2),
        build.source("cvel", wp.vec3, 3),
        build.source("cacc", wp.vec3, 3),
        build.source("opt.gravity", wp.vec3, 1),
        build.source("opt.magnetic", wp.vec3, 1),
    ]
    outputs = [
        build.output(name, wp.vec3, len(shape))
        for requirement in _BITS
        for name, shape in NEEDS[requirement].arrays.items()
    ]
    return lambda compute: compute.launch(derive_motion, (max(len(build.body_ids), 1),), inputs, outputs)


@kernel
def derive_wrenches(
    rows: Rows,
    body_ids: wp.array[wp.int32],
    root_ids: wp.array[wp.int32],
    xpos: wp.array2d[wp.vec3],
    subtree_com: wp.array2d[wp.vec3],
    cfrc_int: wp.array3d[wp.vec3],
    # output
    force_out: wp.array2d[wp.vec3],
    torque_out: wp.array2d[wp.vec3],
) -> None:
    """Move what a body's parent exerts on it to the body frame origin."""
    i, item = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    body = body_ids[item]
    arm = xpos[env, body] - subtree_com[env, root_ids[item]]
    force = cfrc_int[env, body, 1]
    force_out[env, item] = force
    torque_out[env, item] = cfrc_int[env, body, 0] - wp.cross(arm, force)


def wrenches_part(build: WarpBuild) -> Launch | None:
    """Return the launch for what parents exert on bodies."""
    if JOINT_WRENCH not in build.prepared:
        return None
    body_ids, root_ids, _ = build.body_maps()
    inputs = [
        body_ids,
        root_ids,
        build.source("xpos", wp.vec3, 2),
        build.source("subtree_com", wp.vec3, 2),
        build.source("cfrc_int", wp.vec3, 3),
    ]
    outputs = [build.output(name, wp.vec3, 2) for name in NEEDS[JOINT_WRENCH].arrays]
    return lambda compute: compute.launch(derive_wrenches, (len(build.body_ids),), inputs, outputs)


@kernel
def derive_joints(
    rows: Rows,
    qpos_ids: wp.array[wp.int32],
    dof_ids: wp.array[wp.int32],
    rotor_inertia: wp.array[wp.float32],
    softness: wp.array[wp.float32],
    decay: wp.array[wp.float32],
    qpos: wp.array2d[wp.float32],
    qvel: wp.array2d[wp.float32],
    qacc: wp.array2d[wp.float32],
    effort: wp.array2d[wp.float32],
    damper: wp.array2d[wp.float32],
    armature: wp.array2d[wp.float32],
    friction_loss: wp.array2d[wp.float32],
    inverse_weight: wp.array2d[wp.float32],
    # output
    pos_out: wp.array2d[wp.float32],
    vel_out: wp.array2d[wp.float32],
    effort_out: wp.array2d[wp.float32],
    torque_out: wp.array2d[wp.float32],
) -> None:
    """Compute one scalar joint's derived state; outputs that are empty are not wanted."""
    i, item = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    dof = dof_ids[item]
    if pos_out.shape[0] > 0:
        pos_out[env, item] = qpos[env, qpos_ids[item]]
    if vel_out.shape[0] > 0:
        vel_out[env, item] = qvel[env, dof]
    if effort_out.shape[0] > 0:
        effort_out[env, item] = effort[env, dof]
    if torque_out.shape[0] > 0:
        friction = wp.float32(0.0)
        if softness[item] > 0.0:
            loss = friction_loss[env % friction_loss.shape[0], dof]
            slip = qacc[env, dof] + decay[item] * qvel[env, dof]
            weight = inverse_weight[env % inverse_weight.shape[0], dof]
            friction = wp.clamp(-slip / wp.max(softness[item] * weight, 1.0e-15), -loss, loss)  # mjMINVAL
        inertia = armature[env % armature.shape[0], dof] + rotor_inertia[item]
        torque_out[env, item] = effort[env, dof] - inertia * qacc[env, dof] + friction + damper[env, dof]


def joints_part(build: WarpBuild) -> Launch | None:
    """Return the launch for positions, velocities, efforts and torques of scalar joints, where they are no views."""
    names = [name for requirement in (JOINT_STATE, JOINT_EFFORT, JOINT_TORQUE) for name in NEEDS[requirement].arrays]
    if not build.fills(*names):
        return None
    dofs = np.asarray(build.ids("dof"), dtype=np.int32)
    softness, decay = friction_constants(build.model)
    inputs = [
        build.ints(build.ids("qpos")),
        build.ints(dofs),
        build.floats(rotor_inertia(build.model)[dofs]),
        build.floats(softness[dofs]),
        build.floats(decay[dofs]),
        *(build.source(name, wp.float32, 2) for name in ("qpos", "qvel", "qacc", "qfrc_actuator", "qfrc_damper")),
        *(build.source(name, wp.float32, 2) for name in NEEDS[JOINT_TORQUE].model_fields),
    ]
    outputs = [build.output(name, wp.float32, 2) for name in names]
    return lambda compute: compute.launch(derive_joints, (len(dofs),), inputs, outputs)


@kernel
def take_contacts(
    rows: Rows,
    columns: wp.array[wp.int32],
    signs: wp.array[wp.float32],
    found: wp.array[wp.int32],
    sensordata: wp.array2d[wp.float32],
    # output
    values_out: wp.array2d[wp.float32],
) -> None:
    """Copy one number of one slot; 0 where the column `found` is (-1: none asked)."""
    i, item = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    value = sensordata[env, columns[item]]
    if signs[item] < 0.0:
        value = 0.0 - value
    if found[item] >= 0 and sensordata[env, wp.max(found[item], 0)] == 0.0:
        value = wp.float32(0.0)
    values_out[env, item] = value


def contacts_part(build: WarpBuild) -> Launch | None:
    """Return the launches for contact reports, one for each; see `mujoco.contacts`."""
    calls = []
    for report in contacts(build.prepared):
        output = build.derived.arrays[contact_array(report)].flatten(1)
        starts = build.model.sensor_adr[contact_sensors(build.model, report)]
        count = output.shape[1] // len(starts)
        columns = (starts[:, None] + np.arange(count)).ravel()
        signs, found = np.ones(contact_shape(report)), np.full(contact_shape(report), -1)
        if report.args[3] == "netforce":
            parts = contact_columns(report)
            for name, part in parts.items():
                signs[..., part] = -1.0 if name in ("force", "torque") else 1.0
                if name in ("normal", "tangent") and "found" in parts:
                    found[..., part] = starts[:, None, None]  # the first column, of one slot
        inputs = [
            build.ints(columns),
            build.floats(signs.ravel()),
            build.ints(found.ravel()),
            build.source("sensordata", wp.float32, 2),
        ]
        calls.append((inputs, [wp.from_torch(output)], (len(columns),)))

    def launch(compute: Compute) -> None:
        for inputs, outputs, items in calls:
            compute.launch(take_contacts, items, inputs, outputs)

    return launch if calls else None


PARTS: tuple[Callable[[WarpBuild], Launch | None], ...] = (
    poses_part,
    motion_part,
    wrenches_part,
    joints_part,
    contacts_part,
)
"""In the order in which they are launched."""
