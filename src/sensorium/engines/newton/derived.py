"""The derived arrays of a Newton engine: Newton's own memory where it has the layout, otherwise filled by launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray

from sensorium.compute import Compute, kernel
from sensorium.engines.base import ARRAYS, Engine
from sensorium.engines.body_state import BodyState
from sensorium.engines.contacts import ContactList, ContactReducer, is_contact
from sensorium.engines.newton.layout import NewtonLayout
from sensorium.engines.newton.solvers import SolverAccess
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    BODY_VELOCITY,
    GRAVITY,
    JOINT_EFFORT,
    JOINT_STATE,
    JOINT_WRENCH,
    MAGNETIC,
    Requirement,
    contact_array,
)

# Without `from __future__ import annotations`: Warp must see the types of the kernel's arguments.


@kernel
def list_contacts(
    count: wp.array[wp.int32],
    first: wp.array[wp.int32],
    second: wp.array[wp.int32],
    point0: wp.array[wp.vec3],
    point1: wp.array[wp.vec3],
    margin0: wp.array[wp.float32],
    margin1: wp.array[wp.float32],
    normal: wp.array[wp.vec3],
    wrench: wp.array[wp.spatial_vector],
    shape_body: wp.array[wp.int32],
    body_q: wp.array[wp.transform],
    sides: wp.array2d[wp.int32],
    point: wp.array[wp.vec3],
    force: wp.array[wp.vec3],
    torque: wp.array[wp.vec3],
    dist: wp.array[wp.float32],
) -> None:
    """Convert one contact; Newton's wrench acts on the body of the first shape."""
    i = wp.tid()
    if i >= count[0]:
        return
    a = point0[i]
    b = point1[i]
    if shape_body[first[i]] >= 0:
        a = wp.transform_point(body_q[shape_body[first[i]]], a)
    if shape_body[second[i]] >= 0:
        b = wp.transform_point(body_q[shape_body[second[i]]], b)
    a = a + margin0[i] * normal[i]
    b = b - margin1[i] * normal[i]
    sides[i, 0] = first[i]
    sides[i, 1] = second[i]
    point[i] = 0.5 * (a + b)
    force[i] = -wp.spatial_top(wrench[i])
    torque[i] = -wp.spatial_bottom(wrench[i])
    dist[i] = wp.dot(b - a, normal[i])


class NewtonContactExport:
    """The contacts that a solver exports, converted for `ContactReducer`.

    Args:
        model: a `newton.Model`.
        contacts: the `newton.Contacts` that the solver fills.
        wrenches: the solver's observable `contact_f`.
        body_q: poses of the bodies at the instant of the contacts.
        geoms: rows of the geoms among Newton's shapes, int64 `[env, geom]`.
        compute: device of the launch.
        has_torques: whether the wrenches have torques about the contact points, as those of SolverMuJoCo.

    Attributes:
        list: the contacts, at fixed addresses.
    """

    def __init__(
        self,
        model: Any,
        contacts: Any,
        wrenches: Any,
        body_q: Any,
        geoms: NDArray[np.int64],
        compute: Compute,
        *,
        has_torques: bool,
    ) -> None:
        size, device = int(contacts.rigid_contact_max), compute.device
        sides = torch.zeros((size, 2), dtype=torch.int32, device=device)
        point, force, torque = (torch.zeros((size, 3), device=device) for _ in range(3))
        dist = torch.zeros(size, device=device)
        rows = np.full(model.shape_count, -1, dtype=np.int32)
        rows[geoms] = np.arange(geoms.shape[1], dtype=np.int32)
        self._source = contacts
        self._compute = compute
        self._command = compute.command(
            list_contacts,
            (size,),
            [
                contacts.rigid_contact_count, contacts.rigid_contact_shape0, contacts.rigid_contact_shape1,
                contacts.rigid_contact_point0, contacts.rigid_contact_point1, contacts.rigid_contact_margin0,
                contacts.rigid_contact_margin1, contacts.rigid_contact_normal, wrenches, model.shape_body, body_q,
                wp.from_torch(sides), wp.from_torch(point, dtype=wp.vec3), wp.from_torch(force, dtype=wp.vec3),
                wp.from_torch(torque, dtype=wp.vec3), wp.from_torch(dist),
            ],
        )  # fmt: skip
        worlds = np.zeros(model.shape_count, dtype=np.int32) if model.world_count <= 1 else model.shape_world.numpy()
        self.list = ContactList(
            count=wp.to_torch(contacts.rigid_contact_count),
            sides=sides,
            point=point,
            normal=wp.to_torch(contacts.rigid_contact_normal),
            force=force,
            torque=torque if has_torques else None,
            dist=dist,
            rows=torch.from_numpy(rows).to(device),
            envs=torch.from_numpy(worlds.astype(np.int32)).to(device),
        )

    def run(self) -> None:
        """Convert the current contacts."""
        self._command.launch(self._compute.stream)


class DerivedArrays:
    """The arrays of prepared requirements, at fixed addresses.

    Args:
        engine: the engine, for names of bodies and geoms.
        model: a `newton.Model`.
        layout: names and rows of the model.
        access: the solver, with its observables and contacts.
        shown: the `newton.State` that the arrays belong to.
        compute: device and environments.

    Attributes:
        arrays: array by name.
    """

    def __init__(
        self, engine: Engine, model: Any, layout: NewtonLayout, access: SolverAccess, shown: Any, compute: Compute
    ) -> None:
        self._engine, self._model, self._layout = engine, model, layout
        self._access, self._shown, self._compute = access, shown, compute
        self.arrays: dict[str, torch.Tensor] = {}
        self._bodies: BodyState | None = None
        self._gathered: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self._export: NewtonContactExport | None = None
        self._reducer: ContactReducer | None = None

    def bind(self, prepared: frozenset[Requirement]) -> None:
        """Create the arrays of requirements; those of earlier ones keep their addresses."""
        self._bind_bodies(prepared)
        self._bind_joints(prepared)
        num_envs = self._layout.num_envs
        if GRAVITY in prepared:
            self.arrays.setdefault("gravity_w", wp.to_torch(self._model.gravity)[:num_envs])
        if MAGNETIC in prepared:
            flux = wp.to_torch(self._access.solver.mjw_model.opt.magnetic)
            self.arrays.setdefault("magnetic_w", flux if len(flux) == num_envs else flux.expand(num_envs, 3))
        reports, access = sorted(filter(is_contact, prepared), key=contact_array), self._access
        if reports and self._reducer is None:
            self._export = NewtonContactExport(
                self._model, access.contacts, access.observables.contact_f, self._shown.body_q, self._layout.shapes,
                self._compute, has_torques=access.is_mujoco,
            )  # fmt: skip
            self._reducer = ContactReducer(self._engine, self._export.list, self._compute)
        if self._reducer is not None:
            self.arrays |= {contact_array(report): self._reducer.add(report) for report in reports}

    def _bind_bodies(self, prepared: frozenset[Requirement]) -> None:
        state, observables = self._shown, self._access.observables
        given: dict[str, torch.Tensor] = {}
        sources = {BODY_POSE: state.body_q, BODY_VELOCITY: state.body_qd}
        if observables is not None:
            sources |= {BODY_ACCELERATION: observables.body_qdd, JOINT_WRENCH: observables.body_parent_f}
        needed = set(prepared)
        if needed & {BODY_VELOCITY, BODY_ACCELERATION, JOINT_WRENCH}:
            needed.add(BODY_POSE)
        if BODY_ACCELERATION in needed:
            needed.add(BODY_VELOCITY)
        for requirement, source in sources.items():
            if requirement in needed:
                values = self._layout.of_bodies(source)
                given |= zip(ARRAYS[requirement], (values[..., :3], values[..., 3:]), strict=True)
        self._bodies = None
        if given:
            at_com = ("body_lin_vel_w", "body_lin_acc_w", "body_parent_torque_w")
            com = self._layout.of_bodies(self._model.body_com)
            self._bodies = BodyState(self._compute, given, quat_order="xyzw", at_com=at_com, com=com, out=self.arrays)
            named = {name for requirement in prepared & set(ARRAYS) for name in ARRAYS[requirement]}
            self.arrays |= {name: array for name, array in self._bodies.arrays.items() if name in named}

    def _bind_joints(self, prepared: frozenset[Requirement]) -> None:
        layout, sources = self._layout, {}
        if JOINT_STATE in prepared:
            sources["joint_pos"] = (self._shown.joint_q, layout.joint_q)
            sources["joint_vel"] = (self._shown.joint_qd, layout.joint_qd)
        if JOINT_EFFORT in prepared:
            sources["joint_effort"] = (self._access.observables.qfrc_actuator, layout.joint_qd)
        device = self._compute.device
        for name, (source, rows) in sources.items():
            if name in self.arrays:
                continue
            if not rows.size:
                self.arrays[name] = torch.zeros(rows.shape, device=device)
                continue
            values = wp.to_torch(source)
            steps = np.unique(np.diff(rows[:, 0])) if len(rows) > 1 else np.array([rows.shape[1]])
            if len(steps) == 1 and (np.diff(rows, axis=1) == 1).all():
                self.arrays[name] = values.as_strided(rows.shape, (int(steps[0]), 1), int(rows[0, 0]))
                continue
            places = torch.from_numpy(rows.copy()).to(device)
            self.arrays[name] = torch.zeros(rows.shape, device=device)
            self._gathered.append((values, places.reshape(-1), self.arrays[name].view(-1)))

    def fill(self, ids: torch.Tensor | None = None) -> None:
        """Fill the arrays of all environments, or of some, from the shown state and the observables."""
        if self._bodies is not None:
            self._bodies.run(ids)
        for values, places, out in self._gathered:  # rows of other environments do not change
            torch.index_select(values, 0, places, out=out)
        if self._export is not None and self._reducer is not None:
            self._export.run()
            self._reducer.run(ids)
