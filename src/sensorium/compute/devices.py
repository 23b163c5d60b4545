"""Devices: an argument that names a device is validated and made canonical before its first use.

This module creates no context on a device: a scene on cuda:1 leaves cuda:0 untouched. Both torch and Warp must see a
device, because torch owns the tensors and Warp runs the kernels.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import warp as wp
from numpy.typing import NDArray

from sensorium.errors import DeviceError, shown

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class DeviceInventory:
    """Versions and devices that torch and Warp found on this machine.

    Args:
        torch: version of torch.
        torch_for: target of its build, such as ``"CUDA 12.8"``; empty for a CPU build.
        torch_devices: number of CUDA devices that torch sees.
        current: index of torch's current CUDA device.
        warp: version of Warp.
        warp_for: target of its build; empty for a CPU build.
        warp_devices: names of the CUDA devices that Warp sees.
        driver: newest CUDA version that the driver supports, such as ``"12.4"``; empty if Warp found no driver.
        visible: environment variable CUDA_VISIBLE_DEVICES; None if it is not set.
    """

    torch: str
    torch_for: str
    torch_devices: int
    current: int
    warp: str
    warp_for: str
    warp_devices: tuple[str, ...]
    driver: str
    visible: str | None

    @classmethod
    def detect(cls) -> DeviceInventory:
        """Return the facts about this machine, as reported by torch and Warp."""
        built, toolkit, driver = torch.version, wp.get_cuda_toolkit_version(), wp.get_cuda_driver_version()
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        hip = getattr(built, "hip", None)
        return cls(
            torch=torch.__version__,
            torch_for=f"CUDA {built.cuda}" if built.cuda else f"ROCm {hip}" if hip else "",
            torch_devices=count,
            current=torch.cuda.current_device() if count else 0,
            warp=wp.__version__,
            warp_for="" if toolkit is None else f"CUDA {_dotted(toolkit)}",
            warp_devices=tuple(device.name for device in wp.get_cuda_devices()),
            driver="" if driver is None else _dotted(driver),
            visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
        )

    def __str__(self) -> str:
        driver = f"a driver for CUDA up to {self.driver}" if self.driver else "no NVIDIA driver"
        hidden = "" if self.visible is None else f" (CUDA_VISIBLE_DEVICES is {self.visible!r})"
        return (
            f"{driver}, torch {self.torch} {_built(self.torch_for)} which sees {_devices(self.torch_devices)}, "
            f"and Warp {self.warp} {_built(self.warp_for)} which sees {_devices(len(self.warp_devices))}{hidden}"
        )

    @property
    def usable(self) -> int:
        """Number of CUDA devices that both torch and Warp see."""
        return min(self.torch_devices, len(self.warp_devices))

    @property
    def remedy(self) -> str:
        """Fix that would make a CUDA device available: a clause that starts with a verb."""
        missing = []
        if not self.driver and self.warp_for:
            missing.append("an NVIDIA driver")
        if not self.torch_for.startswith("CUDA"):
            missing.append("a build of torch for CUDA")
        if not self.warp_for:
            missing.append("a build of Warp for CUDA")
        if missing:
            return f"install {' and '.join(missing)}"
        if self.visible is not None and not (self.torch_devices and self.warp_devices):
            return "set CUDA_VISIBLE_DEVICES to the index of a GPU"
        return f"install a driver that supports {self.torch_for} and {self.warp_for}"


def resolve_device(
    device: str | torch.device, *, argument: str = "device", found: DeviceInventory | None = None
) -> str:
    """Return a device's canonical name: ``"cpu"`` or ``"cuda:INDEX"``; ``"cuda"`` is torch's current CUDA device.

    Args:
        device: a name or a torch device.
        argument: name of the argument in messages; a command-line option where it starts with ``--``.
        found: facts about the machine; None determines them if needed.

    Raises:
        DeviceError: the value is not a supported device, or the device is not available; the message lists the drivers
            and builds that were found.
    """

    def use(name: str) -> str:
        return f"{argument} {name}" if argument.startswith("--") else f"{argument}={name!r}"

    name = str(device) if isinstance(device, str | torch.device) else ""
    got = f"{argument}: got {shown(name or device)}"
    match = re.fullmatch(r"(?:cpu|cuda)(?::(0|[1-9]\d*))?", name)
    if match is None:
        fix = f"For an NVIDIA GPU use {use('cuda')}, otherwise {use('cpu')}."
        raise DeviceError(f"{got}, expected 'cpu', 'cuda' or 'cuda:INDEX'. {fix}")
    if name.startswith("cpu"):
        return "cpu"
    found = found or DeviceInventory.detect()
    if not found.usable:
        raise DeviceError(
            f"{got}, but no CUDA device is available: found {found}; use {use('cpu')}, or {found.remedy}."
        )
    index = found.current if match[1] is None else int(match[1])
    if index >= found.usable:
        there = ", ".join(f"cuda:{i} ({title})" for i, title in enumerate(found.warp_devices[: found.usable]))
        raise DeviceError(f"{got}, expected an available CUDA device: {there}; found {found}.")
    return f"cuda:{index}"


def cuda_devices() -> list[str]:
    """Return the names of all available CUDA devices, in order; empty without CUDA."""
    return [f"cuda:{index}" for index in range(DeviceInventory.detect().usable)]


def keeps_current(method: Function) -> Function:
    """Decorate a method that uses Warp, so that torch's current CUDA device is the same afterwards as before.

    Warp makes its device the current one and does not restore it; ``device="cuda"`` in the caller's next line would
    then select a different device. This has no effect with a single GPU. The method also runs outside torch's inference
    mode, which the caller may use: tensors created in that mode cannot be written outside it.
    """

    @functools.wraps(method)
    def kept(*args: Any, **kwargs: Any) -> Any:
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False), torch.no_grad():
                return kept(*args, **kwargs)
        if not _several():
            return method(*args, **kwargs)
        with torch.cuda.device(torch.cuda.current_device()):
            return method(*args, **kwargs)

    return cast(Function, kept)


@functools.cache
def _several() -> bool:
    return torch.cuda.is_available() and torch.cuda.device_count() > 1


def pinned(shape: tuple[int, ...] | torch.Size, dtype: torch.dtype, device: str | torch.device) -> torch.Tensor:
    """Return uninitialised host memory that a CUDA device can copy to and from asynchronously.

    It is registered with that device, because torch would use, and initialise, the current one.
    """
    with torch.cuda.device(device):
        return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=True)


class AsyncCopy:
    """A tensor as seen by the host: on the CPU its memory, on CUDA a copy that completes some time after its start.

    Args:
        source: tensor to copy; its address must not change.
    """

    def __init__(self, source: torch.Tensor) -> None:
        self._source = source
        self._host = pinned(source.shape, source.dtype, source.device) if source.is_cuda else source
        self._view: NDArray[Any] = self._host.numpy()
        self._event: Any = None

    def start(self) -> bool:
        """Start a copy that includes all work submitted so far, unless a copy is pending or none is needed.

        Returns:
            Whether a copy was started.
        """
        if not self._source.is_cuda or self._event is not None:
            return False
        self._host.copy_(self._source, non_blocking=True)
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(self._source.device))
        return True

    def take(self) -> NDArray[Any] | None:
        """Return the values of the started copy once it is complete; None before, or where none was started.

        The values are constant until the next `start`. On the CPU the memory itself is returned at once.
        """
        if self._source.is_cuda:
            if self._event is None or not self._event.query():
                return None
            self._event = None
        return self._view


def _built(target: str) -> str:
    return f"built {f'for {target}' if target else 'without CUDA'}"


def _devices(count: int) -> str:
    return f"{count or 'no'} device{'' if count == 1 else 's'}"


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
