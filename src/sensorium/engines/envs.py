"""Selection of environments by an argument, and values for their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from sensorium.compute import Compute
from sensorium.errors import ArgumentError, ConfigError, UnknownNameError, shown

LONGEST_STEP, SHORTEST_STEP = 1e9, 1e-9
"""Longest and shortest time step of an engine, s."""


def env_rows(env_ids: Any, num_envs: int, device: str = "cpu") -> torch.Tensor | None:
    """Return the selected env indices in the given order; None for all.

    Args:
        env_ids: None, a slice, one integer, a sequence, array or tensor of integers, or a bool mask `[env]`.
        num_envs: number of environments.
        device: torch device of the result.

    Returns:
        int64 tensor on the device, without repetition.

    Raises:
        ArgumentError: an index is out of range or repeated, or the value is neither integers nor a mask.
    """
    if env_ids is None:
        return None
    expected = f"expected integers from 0 to {num_envs - 1} without repetition, or a bool mask of shape ({num_envs},)"
    try:
        if isinstance(env_ids, slice):
            return torch.arange(num_envs, device=device)[env_ids]
        ids = torch.as_tensor(env_ids, device="cpu").detach()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:  # text, a set, None in a list, a meta tensor
        raise ArgumentError(f"env_ids: got {shown(env_ids)}, {expected}.") from error
    if ids.dtype == torch.bool:
        if ids.shape != (num_envs,):
            raise ArgumentError(f"env_ids: got a mask of shape {tuple(ids.shape)}, {expected}.")
        return ids.nonzero()[:, 0].to(device)
    if ids.numel() == 0:
        return torch.zeros(0, dtype=torch.int64, device=device)
    if ids.is_floating_point() or ids.is_complex() or ids.ndim > 1:
        raise ArgumentError(f"env_ids: got {shown(env_ids)}, {expected}.")
    ids = ids.to(torch.int64).reshape(-1)
    if int(ids.min()) < 0 or int(ids.max()) >= num_envs or len(set(ids.tolist())) != len(ids):
        raise ArgumentError(f"env_ids: got {shown(ids.tolist())}, {expected}.")
    return ids.to(device)


def env_selection(env_ids: Any, num_envs: int, device: str) -> torch.Tensor | None:
    """Return the result of `env_rows`, or a bool mask `[env]` on the device unchanged, without host synchronisation."""
    if isinstance(env_ids, torch.Tensor) and env_ids.dtype == torch.bool and env_ids.shape == (num_envs,):
        if env_ids.device == torch.device(device):
            return env_ids
    return env_rows(env_ids, num_envs, device)


def mark(mask: torch.Tensor, selected: torch.Tensor | None) -> None:
    """Set a mask `[env]` to 1 in the environments of an `env_selection`, and to 0 elsewhere."""
    if selected is None:
        mask.fill_(1)
    elif selected.dtype == torch.bool:
        mask.copy_(selected)
    else:
        mask.zero_()
        mask[selected] = 1


class EnvLaunches:
    """Recorded launches that run for all environments, or for some.

    Args:
        compute: device and environments.
        launch: function with the launches.

    Attributes:
        all_envs: the launches for all environments.
    """

    def __init__(self, compute: Compute, launch: Callable[[], None]) -> None:
        self._compute = compute
        self.all_envs = compute.record(launch)
        self._masked = compute.record(launch, compute.reset_envs)

    def run(self, selected: torch.Tensor | None = None) -> None:
        """Run the launches for all environments, or for those of an `env_selection`."""
        if selected is None:
            self.all_envs.run()
            return
        mark(self._compute.reset_envs, selected)
        self._masked.run()
        self._compute.reset_envs.zero_()


def put(target: torch.Tensor, values: torch.Tensor, selected: torch.Tensor | None) -> None:
    """Copy rows `[env, ...]`: all, or those of an `env_selection`, without host synchronisation."""
    if selected is None:
        target.copy_(values)
    elif selected.dtype == torch.bool:
        target.copy_(torch.where(selected.reshape(-1, *[1] * (target.dim() - 1)), values, target))
    else:
        target[selected] = values[selected]


def check_quat(quat: torch.Tensor, name: str) -> None:
    """Raise ArgumentError if quaternions `[..., 4]` in host memory are zero, which is not an orientation.

    Quaternions on another device are not checked, because the host would have to wait.
    """
    if quat.device.type == "cpu" and quat.numel() and bool((quat == 0).all(dim=-1).any()):
        raise ArgumentError(f"{name}: got a quaternion of zeros, expected unit quaternions; the identity has w = 1.")


def row_values(
    state: Mapping[str, Any], targets: Mapping[str, torch.Tensor], rows: int, what: str
) -> dict[str, torch.Tensor]:
    """Validate values for rows of arrays and broadcast each to `[rows, ...]`, in the array's dtype and device.

    Args:
        state: array name to values `[n, ...]` or values that broadcast to it.
        targets: arrays that may be written, `[env, ...]`.
        rows: number of selected environments.
        what: term for the names, for messages.

    Raises:
        UnknownNameError: a name is not among `targets`.
        ArgumentError: values have an incompatible shape.
    """
    values = {}
    for name, value in state.items():
        if name not in targets:
            raise UnknownNameError(what, name, targets)
        target = targets[name]
        tensor = as_tensor(value, name).to(device=target.device, dtype=target.dtype)
        values[name] = as_rows(tensor, (rows, *target.shape[1:]), name).clone()  # it may overlap the memory to write
    return values


def as_rows(values: torch.Tensor, shape: tuple[int, ...], name: str) -> torch.Tensor:
    """Return values broadcast to `[env, ...]`, or raise an ArgumentError that names them."""
    try:
        return torch.broadcast_to(values, shape)
    except RuntimeError:
        raise ArgumentError(
            f"{name}: got values of shape {tuple(values.shape)}, expected {shape} (env, ...) or a shape that "
            "broadcasts to it."
        ) from None


def write_controls(ctrl: Any, target: torch.Tensor, note: Callable[[], str] = str) -> None:
    """Write controls `[env, nu]`, or `[nu]` for all environments, into those of an engine.

    Args:
        ctrl: the controls.
        target: controls of the engine `[env, nu]`.
        note: returns an addition to the message of the error.

    Raises:
        ArgumentError: the controls have another shape.
    """
    values, shape = as_tensor(ctrl, "ctrl"), tuple(target.shape)
    if tuple(values.shape) not in (shape, shape[1:]):
        raise ArgumentError(f"ctrl: got shape {tuple(values.shape)}, expected {shape} or {shape[1:]}{note()}.")
    target.copy_(values)


def as_tensor(value: Any, name: str) -> torch.Tensor:
    """Return a tensor of real numbers, from a tensor, an array, nested sequences or a number.

    Tensors, and arrays of other owners that support DLPack (Warp, JAX), are not copied. NumPy arrays and numbers are.

    Args:
        value: numbers to convert.
        name: term for the value, for messages.

    Raises:
        ArgumentError: any other value, such as None, text, complex numbers, or a meta tensor, which holds no numbers.
    """
    if not isinstance(value, torch.Tensor | np.ndarray | np.generic) and hasattr(value, "__dlpack__"):
        # read-only memory, an unsupported type, a device that torch was not built for
        with suppress(AssertionError, BufferError, RuntimeError, TypeError, ValueError):
            value = torch.utils.dlpack.from_dlpack(value)
    if isinstance(value, torch.Tensor):
        if not (value.is_meta or value.is_complex() or value.is_quantized) and value.layout == torch.strided:
            return value.detach()
    else:
        try:
            array = np.asarray(value)
        except (TypeError, ValueError, RuntimeError):  # nested sequences of unequal lengths, tensors on a device
            array = np.empty(0, dtype=object)
        if array.dtype.kind in "biuf":
            return torch.from_numpy(np.array(array, dtype=np.float64))
    raise ArgumentError(f"{name}: got {shown(value)}, expected real numbers.")


def shared_tensor(value: Any, name: str) -> tuple[torch.Tensor, str]:
    """Return a tensor on the memory of an array, where that is possible, and the type of the array for messages.

    Tensors, writable NumPy arrays, and arrays of other owners that support DLPack are shared. Other values are copied.

    Args:
        value: as for `as_tensor`.
        name: term for the value, for messages.

    Raises:
        ArgumentError: as for `as_tensor`.
    """
    if not isinstance(value, np.ndarray):
        tensor = as_tensor(value, name)
        return tensor, str(tensor.dtype) if hasattr(value, "__dlpack__") else type(value).__name__
    what = str(value.dtype) if value.flags.writeable else f"read-only {value.dtype}"
    if min(value.strides, default=0) < 0:
        what = f"reversed {what}"
    if value.flags.writeable and value.dtype.kind in "biuf":
        with suppress(TypeError, ValueError):  # reversed, or of a type that torch lacks
            return torch.from_numpy(value), what
    return as_tensor(value, name), what


def time_step(value: Any, name: str) -> float:
    """Return a time step, s, as a float, or raise an ArgumentError that names it."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or not SHORTEST_STEP <= value <= LONGEST_STEP:
        raise ArgumentError(
            f"{name}: got {shown(value)}, expected a time step from {SHORTEST_STEP:g} to {LONGEST_STEP:g}, in seconds."
        )
    return float(value)


def positive_int(value: Any, name: str) -> int:
    """Return `value` as an integer of at least 1, or raise an ArgumentError that names it."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value < 2**31:
        raise ArgumentError(f"{name}: got {shown(value)}, expected an integer of at least 1, below 2**31.")
    return int(value)


def copies(arrays: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a copy of each array."""
    return {name: array.clone() for name, array in arrays.items()}


def restore(arrays: Mapping[str, torch.Tensor], saved: Mapping[str, torch.Tensor]) -> list[str]:
    """Copy saved arrays back in place and return the names of arrays that were not saved."""
    for name, array in arrays.items():
        if name in saved:
            if saved[name].shape != array.shape:
                raise ArgumentError(
                    f"saved {name} has shape {tuple(saved[name].shape)}, this engine's {tuple(array.shape)}: "
                    "the state belongs to another model or number of environments."
                )
            array.copy_(saved[name])
    return [name for name in arrays if name not in saved]


def env_range(envs: slice | None, num_envs: int) -> range:
    """Return the environments that a slice selects.

    Raises:
        ConfigError: they are not contiguous, or do not exist.
    """
    if envs is None:
        return range(num_envs)
    rows, limits = range(num_envs)[envs], range(-num_envs, num_envs + 1)
    if rows.step != 1 or (envs.start or 0) not in limits or (envs.stop or 0) not in limits:
        expected = f"a slice of step 1 within the {num_envs} environments"
        raise ConfigError.single("Scene.publish", "envs", envs, expected)
    return rows
