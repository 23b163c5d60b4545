"""Limits on the memory and rays of sensors: excess is rejected with its size, before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import inf, prod
from typing import Any

import torch
from pydantic import BaseModel
from torch.overrides import TorchFunctionMode

from sensorium.errors import ConfigError, SensoriumError
from sensorium.memory import Allowance, host_available, in_mb

HOST_BYTES_PER_RAY = 250
"""Temporary host memory per ray while the rays of a pattern are generated, bytes (240 were measured)."""
_FIX = "Use a smaller value, or fewer environments."
_MAKERS = {"zeros", "ones", "empty", "full", "rand", "randn"}
"""Functions of torch that create a tensor of a given size, also as ``new_zeros``."""


class Memory:
    """Memory that the sensors of one scene may allocate while they are built.

    Args:
        device: torch device of the sensors.
        num_envs: number of environments.
    """

    def __init__(self, device: str, num_envs: int) -> None:
        self._device, self._num_envs = device, num_envs
        self._allowances: list[Allowance] = []
        self._builds: list[tuple[Any, ...]] = []
        """Configs of the sensors being built, the innermost last."""

    @contextmanager
    def within(self, allowance: Allowance) -> Iterator[Allowance]:
        """Limit and count the allocations inside the block, in addition to the machine's limits."""
        self._allowances.append(allowance)
        try:
            yield allowance
        finally:
            self._allowances.pop()

    @contextmanager
    def building(self, *configs: Any) -> Iterator[None]:
        """Reject every allocation inside the block that does not fit.

        Args:
            configs: configs of the sensors, used in messages to name the field that determines a size.

        Raises:
            ConfigError: an allocation does not fit; the message gives the field, the size and the available memory.
        """
        self._builds.append(configs)
        with ExitStack() as stack:
            stack.callback(self._builds.pop)
            if len(self._builds) == 1:
                stack.enter_context(self.within(Allowance(available_bytes(self._device))))
                stack.enter_context(_Watch(self))
            try:
                yield
            except SensoriumError:
                raise
            except (MemoryError, RuntimeError) as error:  # NumPy, Warp, or an unforeseen torch allocation
                if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "allocat" not in str(error):
                    raise
                title, where, value = self._driver(())
                raise ConfigError.single(title, where, value, f"a size that fits: {error}", _FIX) from error

    # Checks before an allocation --------------------------------------------------------------------------------------

    def check(
        self,
        nbytes: float,
        where: str = "",
        value: Any = None,
        title: str = "",
        shape: Sequence[int] = (),
        rays: str = "",
    ) -> None:
        """Raise an error if a number of bytes does not fit into the remaining memory.

        Args:
            nbytes: bytes that are going to be allocated.
            where: field of the config that drives them; empty to find it by `shape` where they do not fit.
            value: its value.
            title: the config; empty for that of the sensor that is built.
            shape: the shape that drives them, environments included.
            rays: the rays that take these bytes, for the message.

        Raises:
            ConfigError: the allocation does not fit.
        """
        for each in self._allowances:
            if nbytes > (left := each.nbytes - each.taken):
                if not where:
                    title, where, value = self._driver(shape)
                available = f"{in_mb(max(left, 0))} are available"
                raise self._error(where, value, each, f"{rays}{in_mb(nbytes)}", available, title)

    def check_rays(self, count: int, where: str, value: object, mounts: int) -> None:
        """Raise an error if a pattern has too many rays, before they are generated.

        Args:
            count: number of rays of the pattern.
            where: config field with the pattern.
            value: the pattern.
            mounts: number of mounts per environment, each of which casts the pattern.

        Raises:
            ConfigError: the number exceeds the limit, or generating the rays needs more host memory than available.
        """
        self.check_cast((count,), mounts, where, value)
        with self.within(Allowance(available_bytes("cpu"))):
            self.check(count * HOST_BYTES_PER_RAY, where, value, rays=f"{count:.6g} rays, ")

    def check_cast(self, shape: tuple[int, ...], mounts: int, where: str = "", value: object = None) -> None:
        """Raise an error if a sensor casts too many rays for each sample.

        Args:
            shape: rays of one mount: their number, or the size of an image.
            mounts: mounts in each environment.
            where: field of the config that drives them; empty to find it by `shape` where they are too many.
            value: its value.

        Raises:
            ConfigError: the number of rays exceeds the limit.
        """
        rays, title = prod(shape) * mounts * self._num_envs, ""
        for each in self._allowances:
            if rays > (left := each.rays - each.rays_taken):
                if not where:
                    title, where, value = self._driver(shape, has_envs=False)
                    where, value = ("rays", prod(shape)) if where == "memory" else (where, value)
                raise self._error(where, value, each, f"{rays} rays", f"{max(left, 0):.0f} are left", title)

    def take_rays(self, shape: tuple[int, ...], mounts: int) -> None:
        """Count the rays that a sensor casts per sample, after `check_cast`."""
        self.check_cast(shape, mounts)
        for each in self._allowances:
            each.rays_taken += prod(shape) * mounts * self._num_envs

    def allocating(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        """Check and count one tensor before its allocation."""
        nbytes = prod(shape) * dtype.itemsize
        self.check(nbytes, shape=shape)
        for each in self._allowances:
            each.taken += nbytes

    def _driver(self, shape: Sequence[int], *, has_envs: bool = True) -> tuple[str, str, object]:
        """Return config, field and value that determine a shape's longest axis; the whole shape where none is found."""
        configs = self._builds[-1] if self._builds else ()
        for size in sorted({size for size in shape if size > 1}, reverse=True):
            if has_envs and size == self._num_envs:
                return _title(configs), "num_envs", size
            for cfg in configs:
                for name in type(cfg).model_fields:
                    if size in _integers(getattr(cfg, name)):
                        return _title((cfg,)), name, getattr(cfg, name)
        return _title(configs), "memory", list(shape)

    def _error(
        self, where: str, value: object, allowance: Allowance, needed: str, left: str, title: str = ""
    ) -> ConfigError:
        envs = f"{self._num_envs} environment{'s' if self._num_envs > 1 else ''}"
        expected = f"{allowance.expected}: it needs {needed} with {envs}, and {left}"
        title = title or _title(self._builds[-1] if self._builds else ())
        return ConfigError.single(title, where, value, expected, allowance.fix or _FIX)


def _title(configs: tuple[Any, ...]) -> str:
    return str(configs[0].title) if len(configs) == 1 else "Scene"


def _integers(value: object) -> list[int]:
    """Return the integers contained in a config value."""
    parts = value if isinstance(value, tuple) else vars(value).values() if isinstance(value, BaseModel) else (value,)
    return [part for part in parts if type(part) is int]


def check_envs(title: str, num_envs: int, nbytes: int, device: str) -> None:
    """Raise an error if the state of an engine's environments does not fit into memory.

    Args:
        title: name of the engine, for messages.
        num_envs: number of environments.
        nbytes: minimum size of the state of one environment, bytes.
        device: torch device of the state.

    Raises:
        ConfigError: the state does not fit; the message gives its size and the available memory.
    """
    needed, available = num_envs * nbytes, available_bytes(device)
    if needed > available:
        expected = f"a number that fits: the state needs {in_mb(needed)}, and {in_mb(available)} are available"
        raise ConfigError.single(title, "num_envs", num_envs, expected, "Use fewer environments.")


class _Watch(TorchFunctionMode):
    """Makes a `Memory` check each tensor that is created while a sensor is built, including in an author's code."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options, name = kwargs or {}, getattr(func, "__name__", "")
        stem = name.removeprefix("new_")
        if args and (name.endswith("_like") or name in ("clone", "contiguous")):
            self._memory.allocating(args[0].shape, options.get("dtype") or args[0].dtype)
        elif stem in _MAKERS and options.get("out") is None:
            given = args[stem != name :]
            size = options.get("size", given[0] if given and not isinstance(given[0], int) else given)
            self._memory.allocating(size, options.get("dtype") or torch.float32)
        return func(*args, **options)


def available_bytes(device: str) -> float:
    """Return the available bytes of memory of a torch device; infinite where the system does not report them."""
    if torch.device(device).type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    available = host_available()
    return inf if available is None else available
