"""Compiled functions of JAX that compute what sensors need from `mjx.Data`, shared by all engines with equal needs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mujoco

from sensorium.engines.mjx.arrays import module
from sensorium.engines.mjx.contacts import contacts_of

_VEL, _ACC = (int(getattr(mujoco.mjtStage, f"mjSTAGE_{stage}")) for stage in ("VEL", "ACC"))
PRIVATE = ("cacc", "cfrc_int")
"""Fields that only the data of MJX's implementation in JAX has."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Needs of an engine.

    Args:
        fields: fields of the data that are returned.
        stage: mjtStage up to which the forward computation runs; 0 runs none.
        sensors: whether native sensors are computed.
        wrenches: whether accelerations and wrenches of bodies are computed.
        contacts: whether contacts are returned, by the names of `contacts_of`.
        axes: env axis of each array of the model: 0, or None for arrays that environments share.
    """

    fields: tuple[str, ...]
    stage: int
    sensors: bool
    wrenches: bool
    contacts: bool
    axes: tuple[int | None, ...]


@functools.lru_cache(maxsize=32)
def program(plan: Plan) -> Callable[[Any, Any], dict[str, Any]]:
    """Return the compiled function of an `mjx.Model` and `mjx.Data` `[env, ...]` that returns arrays `[env, ...]`."""
    jax = module("jax")

    def of_one(m: Any, d: Any) -> dict[str, Any]:
        d = _forwarded(m, d, plan) if plan.stage else d
        found = {name: getattr(d._impl if name in PRIVATE else d, name) for name in plan.fields}
        return found | (contacts_of(m, d) if plan.contacts else {})

    def of_all(m: Any, d: Any) -> dict[str, Any]:
        axes = jax.tree_util.tree_structure(m).unflatten(plan.axes)
        found: dict[str, Any] = jax.vmap(of_one, in_axes=(axes, 0))(m, d)
        return found

    compiled: Callable[[Any, Any], dict[str, Any]] = jax.jit(of_all)
    return compiled


def _forwarded(m: Any, d: Any, plan: Plan) -> Any:
    """Run the forward computation of one environment."""
    mjx = module("mujoco.mjx")
    if plan.stage >= _ACC:
        d = mjx.forward(m, d)
        if not d._impl.efc_J.size:
            d = mjx.sensor_acc(m, d)  # which MJX omits in a model without constraints
        return mjx.rne_postconstraint(m, d) if plan.wrenches else d
    if plan.sensors:
        d = mjx.sensor_pos(m, mjx.fwd_position(m, d))
        return mjx.sensor_vel(m, mjx.fwd_velocity(m, d))
    d = mjx.kinematics(m, d)
    return mjx.com_vel(m, mjx.com_pos(m, d)) if plan.stage >= _VEL else d
