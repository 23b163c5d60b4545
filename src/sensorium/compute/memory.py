"""Memory and rays of sensors: what does not fit is refused with its size, before anything is allocated."""

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
"""Host memory that the rays of a pattern take for a moment while they are made, bytes (240 were measured)."""
_FIX = "Take a smaller one, or fewer environments."
_MAKERS = {"zeros", "ones", "empty", "full", "rand", "randn"}
"""Functions of torch that make a tensor of a size, also as ``new_zeros``."""


class Memory:
    """What the sensors of one scene may allocate while they are built.

    Args:
        device: torch device that they are on.
        num_envs: number of environments.
    """

    def __init__(self, device: str, num_envs: int) -> None:
        self._device, self._num_envs = device, num_envs
        self._allowances: list[Allowance] = []
        self._builds: list[tuple[Any, ...]] = []
        """Configs of what is being built, the innermost last."""

    @contextmanager
    def within(self, allowance: Allowance) -> Iterator[Allowance]:
        """Bound what is built inside, besides what the machine has, and count it."""
        self._allowances.append(allowance)
        try:
            yield allowance
        finally:
            self._allowances.pop()

    @contextmanager
    def building(self, *configs: Any) -> Iterator[None]:
        """Refuse every allocation inside that does not fit.

        Args:
            configs: configs of the sensors, for messages: the field that drives a size is one of theirs.

        Raises:
            ConfigError: something does not fit; with the field, its size and what is available.
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
            except (MemoryError, RuntimeError) as error:  # of NumPy, of Warp, or of torch where it was not foreseen
                if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "allocat" not in str(error):
                    raise
                title, where, value = self._driver(())
                raise ConfigError.single(title, where, value, f"a size that fits: {error}", _FIX) from error

    # Before something is allocated ------------------------------------------------------------------------------------

    def check(
        self,
        nbytes: float,
        where: str = "",
        value: Any = None,
        title: str = "",
        shape: Sequence[int] = (),
        rays: str = "",
    ) -> None:
        """Raise where so many bytes do not fit beside what was taken.

        Args:
            nbytes: bytes that are going to be allocated.
            where: field of the config that drives them; empty to find it by `shape` where they do not fit.
            value: its value.
            title: the config; empty for that of the sensor that is built.
            shape: the shape that drives them, environments included.
            rays: the rays that take these bytes, for the message.

        Raises:
            ConfigError: they do not fit.
        """
        for each in self._allowances:
            if nbytes > (left := each.nbytes - each.taken):
                if not where:
                    title, where, value = self._driver(shape)
                available = f"{in_mb(max(left, 0))} are available"
                raise self._error(where, value, each, f"{rays}{in_mb(nbytes)}", available, title)

    def check_rays(self, count: int, where: str, value: object, mounts: int) -> None:
        """Raise where a pattern has too many rays, before they are made.

        Args:
            count: rays of the pattern.
            where: field of the config with the pattern.
            value: the pattern.
            mounts: mounts in each environment, which cast the pattern each.

        Raises:
            ConfigError: they are more than allowed, or making them takes more host memory than is available.
        """
        self.check_cast((count,), mounts, where, value)
        with self.within(Allowance(available_bytes("cpu"))):
            self.check(count * HOST_BYTES_PER_RAY, where, value, rays=f"{count:.6g} rays, ")

    def check_cast(self, shape: tuple[int, ...], mounts: int, where: str = "", value: object = None) -> None:
        """Raise where a sensor casts too many rays for each sample.

        Args:
            shape: rays of one mount: their number, or the size of an image.
            mounts: mounts in each environment.
            where: field of the config that drives them; empty to find it by `shape` where they are too many.
            value: its value.

        Raises:
            ConfigError: they are more than allowed.
        """
        rays, title = prod(shape) * mounts * self._num_envs, ""
        for each in self._allowances:
            if rays > (left := each.rays - each.rays_taken):
                if not where:
                    title, where, value = self._driver(shape, has_envs=False)
                    where, value = ("rays", prod(shape)) if where == "memory" else (where, value)
                raise self._error(where, value, each, f"{rays} rays", f"{max(left, 0):.0f} are left", title)

    def take_rays(self, shape: tuple[int, ...], mounts: int) -> None:
        """Count the rays that a sensor casts for each sample, after `check_cast` of them."""
        self.check_cast(shape, mounts)
        for each in self._allowances:
            each.rays_taken += prod(shape) * mounts * self._num_envs

    def allocating(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        """Check one tensor that is going to be allocated, and count it."""
        nbytes = prod(shape) * dtype.itemsize
        self.check(nbytes, shape=shape)
        for each in self._allowances:
            each.taken += nbytes

    def _driver(self, shape: Sequence[int], *, has_envs: bool = True) -> tuple[str, str, object]:
        """Return config, field and value that gave a shape its longest axis; the whole shape where none is found."""
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
    return f"{type(configs[0]).__name__}({configs[0].label!r})" if len(configs) == 1 else "Scene"


def _integers(value: object) -> list[int]:
    """Return the integers that a value of a config consists of."""
    parts = value if isinstance(value, tuple) else vars(value).values() if isinstance(value, BaseModel) else (value,)
    return [part for part in parts if type(part) is int]


def check_envs(title: str, num_envs: int, nbytes: int, device: str) -> None:
    """Raise where the state of so many environments does not fit into the memory.

    Args:
        title: the engine, for messages.
        num_envs: number of environments.
        nbytes: bytes that the state of one environment takes at least.
        device: torch device that it is on.

    Raises:
        ConfigError: it does not fit; with its size and what is available.
    """
    needed, available = num_envs * nbytes, available_bytes(device)
    if needed > available:
        expected = f"a number that fits: the state needs {in_mb(needed)}, and {in_mb(available)} are available"
        raise ConfigError.single(title, "num_envs", num_envs, expected, "Take fewer environments.")


class _Watch(TorchFunctionMode):
    """Has a `Memory` check each tensor that is made while a sensor is built, also by its author."""

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
