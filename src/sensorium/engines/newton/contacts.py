"""Newton's contacts as a `ContactList`: world points, distances and forces, in one launch over the contacts."""

# Without `from __future__ import annotations`: Warp must see the types of the kernel's arguments.

from typing import Any

import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray

from sensorium.compute import Compute, kernel
from sensorium.engines.contacts import ContactList


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
