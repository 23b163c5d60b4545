"""JAX and MJX themselves: their import, and arrays that cross between JAX and torch through DLPack."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

import numpy as np
import torch

from sensorium.errors import ArgumentError, MissingDependencyError, ScheduleError


@functools.cache
def module(name: str) -> Any:
    """Return ``"jax"``, ``"mujoco.mjx"`` or a module in one of them.

    Raises:
        MissingDependencyError: it is not installed, or cannot be imported.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingDependencyError(
            f"sensorium.jax needs jax and mujoco-mjx, which cannot be imported ({error}): pip install 'sensorium[jax]'."
        ) from error


def check_concrete(values: Any, what: str) -> None:
    """Raise `ScheduleError` if a pytree contains a tracer, which has no values yet.

    Args:
        values: arrays of JAX.
        what: term for the values, for messages.
    """
    jax = module("jax")
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(values)):
        raise ScheduleError(
            f"{what} has no values yet, because JAX is tracing a function (jit, vmap, scan or grad). Sensors have "
            "memory outside JAX, so they cannot be part of such a function: apply jax.jit to the physics and to the "
            "policy, and update the sensors between these calls."
        )


def check_alive(values: Any, what: str) -> None:
    """Raise `ScheduleError` if JAX deleted an array of a pytree, because it was donated to a function.

    Args:
        values: arrays of JAX.
        what: term for the values, for messages.
    """
    jax = module("jax")
    if any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in jax.tree_util.tree_leaves(values)):
        raise ScheduleError(
            f"{what} was deleted, because it was donated to a function. Read sensors before the next step, or omit "
            "donate_argnums."
        )


def to_torch(array: Any, what: str) -> torch.Tensor:
    """Return a tensor on the memory of a JAX array, once it is computed; the tensor must not be written.

    Args:
        array: array on one device.
        what: term for the array, for messages.

    Raises:
        ScheduleError: the array is a tracer, or JAX deleted it, because it was donated to a function.
        ArgumentError: torch cannot use the memory.
    """
    if isinstance(array, np.ndarray):
        return torch.from_numpy(array.copy())
    check_concrete(array, what)
    check_alive(array, what)
    if not array.size:  # JAX gives no memory for it
        return torch.zeros(array.shape, device="cpu")
    try:
        return torch.utils.dlpack.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArgumentError(f"{what}: torch cannot use this array ({error}): put it on one CPU or GPU.") from error


def to_jax(tensor: torch.Tensor) -> Any:
    """Return a JAX array on the memory of a tensor, which must not be written afterwards.

    JAX copies memory that it cannot use, such as memory of another order.
    """
    jax = module("jax")
    return jax.dlpack.from_dlpack(tensor.detach().contiguous())
