"""Contacts of MJX as a `ContactList`.

MJX has one place for each contact that may occur in an environment. A contact exists where the distance is below the
margin. Contacts in the gap zone of a geom, which have no force, do not count.
"""

from __future__ import annotations

from typing import Any

import torch

from sensorium.compute import Compute
from sensorium.engines.base import Engine
from sensorium.engines.contacts import ContactList, ContactReducer
from sensorium.engines.envs import put
from sensorium.engines.mjx.arrays import module, to_torch
from sensorium.engines.mujoco.elements import Elements
from sensorium.spec import Requirement

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
