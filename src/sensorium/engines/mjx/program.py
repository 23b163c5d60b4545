"""Compiled functions of JAX that compute what sensors need from `mjx.Data`, shared by all engines with equal needs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from sensorium.engines.mjx.arrays import module
from sensorium.engines.mjx.contacts import contacts_of

PRIVATE = ("cacc", "cfrc_int")
"""Fields that only the data of MJX's implementation in JAX has."""


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
